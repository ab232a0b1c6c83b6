//! The tables at the top of the files of `decide/` and the code below them say the same: each command is
//! in one table, and each event and each code of a file is in its table and nowhere else.

use std::collections::BTreeSet;

use stepwell_kernel::event::EventType;
use stepwell_kernel::rejection::Code;

const COMMANDS: &str = include_str!("../../src/command.rs");

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../src/decide/", $name)))),*]
    };
}

const FILES: [(&str, &str); 16] = files![
    "actor_name.rs",
    "claim.rs",
    "compensate.rs",
    "duties.rs",
    "enter.rs",
    "failure.rs",
    "lifecycle.rs",
    "mod.rs",
    "outside.rs",
    "people.rs",
    "report.rs",
    "route.rs",
    "settle.rs",
    "signal.rs",
    "stop.rs",
    "timer.rs",
];

type Names = BTreeSet<String>;

/// The columns of a file's table: what stands between backticks in each.
fn table(source: &str) -> [Vec<String>; 3] {
    let mut columns = [const { Vec::new() }; 3];
    let rows = source.lines().take_while(|line| line.starts_with("//!"));
    let rows = rows.filter(|line| line.starts_with("//! | "));
    for row in rows.skip(1) {
        let cells: Vec<&str> = row["//! | ".len()..].split(" | ").collect();
        assert_eq!(cells.len(), 3, "{row}");
        for (column, cell) in columns.iter_mut().zip(cells) {
            column.extend(cell.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    assert!(source.contains("//! | state and command | what follows | refused with |"));
    columns
}

/// The code of a file: no comments.
fn code(source: &str) -> String {
    let lines = source.lines();
    let lines = lines.filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The names that follow a prefix in code.
fn after(code: &str, prefix: &str) -> Names {
    let parts = code.split(prefix).skip(1);
    let name = |part: &str| part.chars().take_while(|c| c.is_alphanumeric()).collect();
    parts.map(name).collect()
}

/// The variants of an enum, from its source.
fn variants(source: &str, start: &str) -> Names {
    let body = source.split(start).nth(1).expect("the enum");
    let body = body.split("\n}").next().expect("its end");
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    lines
        .filter(|line| line.starts_with(char::is_uppercase))
        .map(|line| line.chars().take_while(|c| c.is_alphanumeric()).collect())
        .collect()
}

#[test]
fn every_command_is_in_exactly_one_table() {
    let commands = variants(COMMANDS, "pub enum Command {");
    assert!(commands.len() > 15, "{commands:?}");
    let mut found: Vec<(String, &str)> = Vec::new();
    for (file, source) in FILES {
        let named: Names = table(source)[0].iter().cloned().collect();
        found.extend(named.intersection(&commands).map(|it| (it.clone(), file)));
    }
    for command in &commands {
        let files: Vec<_> = found.iter().filter(|(name, _)| name == command).collect();
        assert_eq!(files.len(), 1, "{command} is in {files:?}");
    }
}

#[test]
fn every_event_is_in_the_table_of_the_file_that_emits_it() {
    let events: Names = EventType::ALL.iter().map(|it| it.name().into()).collect();
    assert!(events.len() > 35, "{events:?}");
    for (file, source) in FILES {
        let told: Names = table(source)[1].iter().cloned().collect();
        let told: Names = told.intersection(&events).cloned().collect();
        // mod.rs emits nothing itself: it looks at what the others emit.
        let emitted = match file {
            "mod.rs" => Names::new(),
            _ => after(&code(source), "Body::"),
        };
        assert_eq!(
            told, emitted,
            "decide/{file}: table on the left, code on the right"
        );
    }
}

#[test]
fn every_code_is_in_the_table_of_the_file_that_refuses_with_it() {
    for (file, source) in FILES {
        let told: Names = table(source)[2].iter().cloned().collect();
        let is_code = |name: &String| Code::ALL.iter().any(|code| code.name() == name);
        let told: Names = told.into_iter().filter(is_code).collect();
        let code = code(source);
        let variants = after(&code, "Code::");
        let codes = Code::ALL.iter();
        let mut used: Names = codes
            .filter(|code| variants.contains(&format!("{code:?}")))
            .map(|code| code.name().to_owned())
            .collect();
        assert_eq!(
            used.len(),
            variants.len(),
            "decide/{file} names {variants:?}"
        );
        if code.contains("terminal()") {
            used.insert(Code::RunTerminal.name().to_owned());
        }
        assert_eq!(
            told, used,
            "decide/{file}: table on the left, code on the right"
        );
    }
}

#[test]
fn every_file_of_decide_has_a_table() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/decide");
    let files = std::fs::read_dir(folder).unwrap();
    let names = files.map(|it| it.unwrap().file_name().into_string().unwrap());
    let names: Names = names.collect();
    let listed: Names = FILES.iter().map(|(file, _)| (*file).to_owned()).collect();
    assert_eq!(names, listed);
    for (file, source) in FILES {
        assert!(!table(source)[1].is_empty() || !table(source)[2].is_empty() || file == "route.rs");
    }
}
