//! Collecting and showing problems.

use expect_test::expect;
use serde_json::json;
use stepwell_dialects::problem::{MAX_PROBLEMS, render, to_json};
use stepwell_dialects::{Problems, Source, Span};

use crate::source;

#[test]
fn problems_come_in_source_order_and_once() {
    let mut p = Problems::new();
    p.warn("B", Span::new(5, 6), "later");
    p.error("A", Span::new(0, 1), "first").help("do this");
    p.warn("B", Span::new(5, 6), "later");
    assert!(p.has_errors());
    let codes: Vec<_> = p.into_vec().iter().map(|problem| problem.code).collect();
    assert_eq!(codes, ["A", "B"]);
}

#[test]
fn warnings_alone_are_no_errors() {
    let mut p = Problems::new();
    p.warn("W", Span::default(), "odd");
    assert!(!p.has_errors() && !p.is_empty());
}

#[test]
fn past_the_cap_problems_are_counted() {
    let mut p = Problems::new();
    for at in 0..MAX_PROBLEMS + 7 {
        p.error("E", Span::at(at), "x").help("y");
    }
    let problems = p.into_vec();
    assert_eq!(problems.len(), MAX_PROBLEMS + 1);
    assert_eq!(problems.last().unwrap().message, "and at least 7 more");
}

#[test]
fn a_span_over_many_lines_shows_its_first() {
    let source = source("steps:\n  a: 1\n  b: 2\n");
    let mut p = Problems::new();
    p.warn("W", Span::new(9, 20), "something about `steps`")
        .help("a help\nof two lines");
    expect![[r#"
        warning[W]: something about `steps`
         --> t.yaml:2:3
          |
        2 |   a: 1
          |   ^^^^
          |
          = help: a help
                  of two lines
    "#]]
    .assert_eq(&render(&source, &p.into_vec(), false));
}

#[test]
fn long_lines_are_cut_around_the_problem() {
    let text = format!("a: \"{}\" x\n", "ä".repeat(400_000));
    let source = source(&text);
    let mut p = Problems::new();
    let end = text.len() - 2;
    p.error("E", Span::new(end, end + 1), "at the end");
    p.error("E", Span::new(3, end - 1), "in the middle");
    expect![[r#"
        error[E]: in the middle
         --> t.yaml:1:4
          |
        1 | a: "äääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääääää…
          |    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

        error[E]: at the end
         --> t.yaml:1:400007
          |
        1 | …ääääääääääääääääääääääääääää" x
          |                                ^
    "#]]
    .assert_eq(&render(&source, &p.into_vec(), false));
}

#[test]
fn a_source_that_cannot_be_read_is_still_named() {
    let problem = Source::from_bytes("bad.yaml", b"\xff").unwrap_err();
    let source = Source::unreadable("bad.yaml");
    expect![[r#"
        error[SOURCE_NOT_UTF8]: byte 0 is not valid UTF-8
        --> bad.yaml
         = help: save the file as UTF-8
    "#]]
    .assert_eq(&render(&source, &[problem], false));
}

#[test]
fn utf_16_is_called_by_its_name() {
    for bytes in [&b"\xff\xfea\0"[..], b"\xfe\xff\0a"] {
        let problem = Source::from_bytes("bad.yaml", bytes).unwrap_err();
        assert_eq!(problem.message, "the file is UTF-16, not UTF-8");
    }
}

#[test]
fn a_cut_line_looks_the_same_in_colour() {
    let source = source(&format!("{} x\n", "a".repeat(400)));
    let mut p = Problems::new();
    p.error("E", Span::new(401, 402), "at the end");
    let text = render(&source, &p.into_vec(), true);
    assert!(text.contains("\x1b[") && !text.contains(":::"), "{text}");
}

#[test]
fn colour_is_only_used_when_asked_for() {
    let source = source("a: 1");
    let mut p = Problems::new();
    p.error("E", Span::new(0, 1), "text with \x1b[31m escape");
    let problems = p.into_vec();
    assert!(!render(&source, &problems, false).contains('\x1b'));
    assert!(render(&source, &problems, true).contains('\x1b'));
}

#[test]
fn json_has_lines_and_columns() {
    let source = source("a: 1\nbc: 2\n");
    let mut p = Problems::new();
    p.error("E", Span::new(5, 7), "bad key").help("rename it");
    assert_eq!(
        to_json(&source, &p.into_vec()),
        json!([{
            "code": "E", "severity": "error", "file": "t.yaml",
            "line": 2, "column": 1, "endLine": 2, "endColumn": 3,
            "message": "bad key", "help": "rename it",
        }])
    );
}

#[test]
fn a_key_that_stands_twice_does_not_hide_the_rest() {
    let text = "kind: Playbook\napiVersion: noetl.io/v2\nmetadata: {name: x}\nworkflow:\n- step: a\n  desc: one\n  desc: two\n  tol: {kind: noop}\n";
    let loaded = stepwell_dialects::load(&crate::source(text));
    let codes: Vec<&str> = loaded.problems.iter().map(|problem| problem.code).collect();
    assert_eq!(codes, ["SOURCE_DUPLICATE_KEY", "FIELD_UNKNOWN"]);
    let twice = text.replace("  tol: {kind: noop}\n", "");
    let loaded = stepwell_dialects::load(&crate::source(&twice));
    assert!(loaded.plan.is_none(), "it is an error all the same");
}
