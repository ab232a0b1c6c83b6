//! The kernel is pure: its source does no I/O, awaits nothing, reads no clock, draws no randomness.
//!
//! Unit tests inside the kernel keep the same rule; one that must read a file belongs into
//! crates/kernel/tests.

use super::{Finding, Tree};
use crate::source::{Source, leading_word, words};

const FOLDER: &str = "crates/kernel/src/";

/// Modules of `std` that reach outside, by path or inside a `use std::{…}`.
const MODULES: &[&str] = &["fs", "net", "env", "process", "thread", "io", "os"];

/// Crates that reach outside, as the first part of a path.
const CRATES: &[&str] = &[
    "tokio",
    "rand",
    "uuid",
    "getrandom",
    "chrono",
    "jiff",
    "futures",
];

/// Names that mean a clock or randomness wherever they stand.
const NAMES: &[&str] = &[
    "SystemTime",
    "Instant",
    "RandomState",
    "thread_local",
    "async",
];

/// Macros that print, or that panic on purpose.
const MACROS: &[&str] = &[
    "println",
    "eprintln",
    "print",
    "eprint",
    "dbg",
    "todo",
    "unimplemented",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust(FOLDER) {
        for (line, what) in banned(text) {
            findings.push(Finding::error(
                path,
                line,
                format!("`{what}` is banned in the kernel; pass the value in a command instead"),
            ));
        }
    }
    findings
}

/// Line and name of each banned use, in order.
fn banned(text: &str) -> Vec<(usize, String)> {
    let source = Source::scan(text);
    let code = source.code.as_str();
    let mut found: Vec<(usize, String)> = Vec::new();
    for name in NAMES {
        found.extend(words(code, name).map(|at| (at, (*name).to_owned())));
    }
    for name in MACROS {
        let calls = words(code, name).filter(|at| code[at + name.len()..].starts_with('!'));
        found.extend(calls.map(|at| (at, format!("{name}!"))));
    }
    for name in CRATES {
        let paths = words(code, name).filter(|at| {
            let before = code[..*at].trim_end();
            let rooted = !before.ends_with("::") || before.ends_with(" ::");
            let path = code[at + name.len()..].starts_with("::");
            (rooted && path) || before.ends_with("use") || before.ends_with("extern crate")
        });
        found.extend(paths.map(|at| (at, (*name).to_owned())));
    }
    found.extend(
        code.match_indices(".await")
            .map(|(at, _)| (at, ".await".to_owned())),
    );
    for at in words(code, "std") {
        let Some(rest) = code[at + 3..].strip_prefix("::") else {
            continue;
        };
        for module in first_parts(rest) {
            if MODULES.contains(&module) {
                found.push((at, format!("std::{module}")));
            }
        }
    }
    found.sort();
    found
        .into_iter()
        .map(|(at, what)| (source.line_of(at), what))
        .collect()
}

/// What follows `std::`: one name, or the first name of each part of a group.
fn first_parts(rest: &str) -> Vec<&str> {
    let Some(group) = rest.strip_prefix('{') else {
        return vec![leading_word(rest)];
    };
    let mut parts = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                parts.push(&group[start..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts
        .into_iter()
        .map(|part| leading_word(part.trim_start()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        banned(text).into_iter().map(|(_, what)| what).collect()
    }

    #[test]
    fn clocks_io_and_randomness_are_found() {
        assert_eq!(names("use std::fs;"), ["std::fs"]);
        assert_eq!(
            names("use std::{collections::{BTreeMap, env}, env, net::Ipv4Addr};"),
            ["std::env", "std::net"]
        );
        assert_eq!(names("let t = std::time::Instant::now();"), ["Instant"]);
        assert_eq!(names("use rand::Rng;"), ["rand"]);
        assert_eq!(names("let x: u8 = rand::random();"), ["rand"]);
        assert_eq!(names("use tokio;"), ["tokio"]);
        assert_eq!(names("async fn f() { g().await }"), ["async", ".await"]);
        assert_eq!(names("println!(\"x\"); todo!()"), ["println!", "todo!"]);
    }

    #[test]
    fn words_that_only_look_alike_are_not() {
        for fine in [
            "// std::fs and rand::random() would be wrong here",
            "let uuid = run.uuid; let operand = 1;",
            "use std::collections::BTreeMap; use std::fmt;",
            "let text = \"SystemTime\";",
            "struct InstantPlan; let println = 1;",
            "self::rand::pick()",
            "use std::time::Duration;",
        ] {
            assert!(names(fine).is_empty(), "{fine}: {:?}", names(fine));
        }
    }

    #[test]
    fn the_line_is_named() {
        assert_eq!(banned("\n\nuse std::env;")[0].0, 3);
    }
}
