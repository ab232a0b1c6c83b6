//! The conformance kit: all scenarios on all columns, and how its command answers.

use std::io::Write as _;
use std::path::Path;

use super::{root, stepwell};

/// Plays scenarios and expects all of them to be as wanted.
fn play(args: &[&str]) -> serde_json::Value {
    let call = stepwell(&[&["conformance", "--json", "-", "--jobs", "8"], args].concat());
    let results: serde_json::Value =
        serde_json::from_str(&call.out).unwrap_or_else(|error| panic!("{error}: {call:?}"));
    let failed: Vec<String> = results["scenarios"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["outcome"] == "failed" || it["outcome"] == "fixed")
        .map(|it| format!("{it:#}"))
        .collect();
    if !failed.is_empty() {
        // Beside the line of the failed test: a long output is often read at such lines only.
        let _ = writeln!(std::io::stderr(), "{}", failed.join("\n"));
    }
    assert!(failed.is_empty(), "{} scenarios failed", failed.len());
    assert_eq!(call.code, 0, "{call:?}");
    results
}

fn passed(results: &serde_json::Value, column: &str) -> usize {
    let scenarios = results["scenarios"].as_array().unwrap();
    let of = |it: &&serde_json::Value| it["column"] == column && it["outcome"] == "passed";
    scenarios.iter().filter(of).count()
}

/// One kit after the other, in one test: each plays several scenarios at a time, and tests that wait for each other
/// would hold the threads of all other tests.
#[test]
fn all_scenarios_are_as_wanted_on_every_column_of_this_machine() {
    let results = play(&[]);
    for column in ["memory", "sqlite", "mock"] {
        assert!(passed(&results, column) > 0, "{column}");
    }
    let results = play(&["--server"]);
    assert!(passed(&results, "server") > 100, "{results:#}");
    let url = std::env::var("STEPWELL_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!(
            "STEPWELL_TEST_POSTGRES is not set: run `cargo xtask test`, which starts a PostgreSQL"
        )
    });
    let results = play(&["--store", &format!("postgres:{url}")]);
    assert!(passed(&results, "postgres") > 0);
}

#[test]
fn scenarios_with_handlers_are_played_where_the_program_is_built() {
    let program = Path::new(env!("CARGO_BIN_EXE_stepwell")).parent().unwrap();
    if !program.join("examples/kit_handlers").is_file() {
        // `cargo test --test it` builds no examples; `cargo xtask test` does.
        eprintln!("skipped: build the program first, `cargo build -p stepwell --examples`");
        return;
    }
    let results = play(&["L9", "--store", "sqlite"]);
    assert_eq!(passed(&results, "sqlite"), 1);
}

/// Plays one scenario file on SQLite.
fn play_file(name: &str, text: &str) -> super::Call {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("kit")
        .join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("one.yaml"), text).unwrap();
    let folder = folder.to_str().unwrap();
    stepwell(&["conformance", "--dir", folder, "--store", "sqlite"])
}

const CHECK: &str = "statements: [A1]\ntitle: one\nfiles: {f.yaml: 'kind: Nothing'}\nsteps:\n";

#[test]
fn fail_fast_stops_at_the_first_failure_and_a_program_that_is_not_there_is_refused() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kit/fast");
    std::fs::create_dir_all(&folder).unwrap();
    let bad = format!("{CHECK}  - call: check f.yaml\n    exit: 0\n");
    for name in ["a.yaml", "b.yaml", "c.yaml"] {
        std::fs::write(folder.join(name), &bad).unwrap();
    }
    let args = ["conformance", "--store", "sqlite", "--jobs", "1", "--dir"];
    let all = [&args[..], &[folder.to_str().unwrap()]].concat();
    assert!(stepwell(&all).out.contains("3 failed"));
    let call = stepwell(&[&all[..], &["--fail-fast"]].concat());
    assert_eq!(call.code, 1, "{call:?}");
    assert!(call.out.contains("1 failed"), "{call:?}");
    let call = stepwell(&[&all[..], &["--program", "/nowhere/stepwell"]].concat());
    assert_eq!(call.code, 1, "{call:?}");
    assert!(call.err.contains("/nowhere/stepwell"), "{call:?}");
}

#[test]
fn a_step_that_is_not_as_wanted_is_told_with_its_line() {
    let call = play_file(
        "failed",
        &format!("{CHECK}  - call: check f.yaml\n    exit: 0\n"),
    );
    assert_eq!(call.code, 1, "{call:?}");
    for part in [
        "A1         failed",
        "one.yaml on sqlite: failed",
        "line 5",
        "expected exit code 0, seen 1",
    ] {
        assert!(call.out.contains(part), "{part} is not in {}", call.out);
    }
}

#[test]
fn a_known_failure_is_allowed_until_it_passes() {
    let known = format!("known: it is wrong\n{CHECK}");
    let call = play_file("known", &format!("{known}  - call: check f.yaml\n"));
    assert_eq!(call.code, 0, "{call:?}");
    assert!(call.out.contains("known: it is wrong"), "{call:?}");
    let call = play_file(
        "fixed",
        &format!("{known}  - call: check f.yaml\n    exit: 1\n"),
    );
    assert_eq!(call.code, 1, "{call:?}");
    assert!(call.out.contains("remove that line"), "{call:?}");
}

#[test]
fn a_scenario_file_with_errors_is_refused_with_places() {
    let call = play_file(
        "bad",
        &format!("{CHECK}  - call: check f.yaml\n    exits: 0\n"),
    );
    assert_eq!(call.code, 1, "{call:?}");
    assert!(call.err.contains("one.yaml:6:5"), "{call:?}");
    assert!(call.err.contains("exit"), "{call:?}");
}

#[test]
fn the_example_of_the_readme_passes() {
    let readme = std::fs::read_to_string(root().join("conformance/README.md")).unwrap();
    let example = readme.split("```yaml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let call = play_file("readme", example);
    assert_eq!(call.code, 0, "{call:?}");
    assert!(call.out.contains("1 passed"), "{call:?}");
}
