//! `explain`, `schema`, `plan`, `--version`, and a reader that goes away.

use std::io::Read;
use std::process::{Command, Stdio};

use super::{root, stepwell};

#[test]
fn codes_are_explained() {
    let call = stepwell(&["explain", "field-missing"]);
    assert_eq!(call.code, 0, "{}", call.err);
    assert!(call.out.contains("## What to do"), "{}", call.out);
    for code in ["SOURCE_UNREADABLE", "TOO_MANY_PROBLEMS"] {
        assert_eq!(stepwell(&["explain", code]).code, 0, "{code}");
    }
    let call = stepwell(&["explain", "FIELD_MISING"]);
    assert_eq!(call.code, 2);
    assert!(call.err.contains("FIELD_MISSING"), "{}", call.err);
}

#[test]
fn schemas_are_json_and_end_with_a_line_break() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("schemas");
    let call = stepwell(&["schema", "--all", folder.to_str().unwrap()]);
    assert_eq!(call.code, 0, "{}", call.err);
    let file = folder.join("definitions/playbook.schema.json");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.ends_with("}\n"));
    let one = stepwell(&["schema", "definitions/playbook"]);
    assert_eq!(one.out, text);
    for name in stepwell(&["schema"]).out.lines() {
        let schema = stepwell(&["schema", name]).json();
        assert!(jsonschema::meta::is_valid(&schema), "{name}");
    }
    assert_eq!(stepwell(&["schema", "definitions/playbok"]).code, 2);
}

#[test]
fn the_version_names_engines_and_stores() {
    let call = stepwell(&["--version"]);
    let wanted = format!(
        "stepwell {}\nengines: native, mock\nstores:  sqlite, postgres, memory\n",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(call.out, wanted);
}

#[test]
fn a_plan_is_the_net_and_its_hash() {
    let json = stepwell(&["plan", "examples/playbook/nightly-load.yaml", "-o", "json"]).json();
    assert_eq!(json["hash"].as_str().unwrap().len(), 64);
    assert_eq!(json["net"]["dialect"], "playbook");
    assert_eq!(stepwell(&["plan", "/nonexistent"]).code, 1);
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(["run", "examples/playbook/nightly-load.yaml"])
        .args(["--engine", "mock", "--work-ms", "50"])
        .env("STEPWELL_STORE", "memory:")
        .current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(141));
    assert_eq!(err, "");
}

#[cfg(unix)]
#[test]
fn an_interrupt_says_where_the_run_was() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(["run", "examples/playbook/nightly-load.yaml"])
        .args(["--engine", "mock", "--work-ms", "60000"])
        .env("STEPWELL_STORE", "memory:")
        .current_dir(root())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    // Once it shows a running step it listens for the signal.
    while !text.contains("prepare") {
        let read = std::io::BufRead::read_line(&mut out, &mut text).unwrap();
        assert!(read > 0, "{text}");
    }
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(sent.success());
    out.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(text.contains("was at        prepare: running"), "{text}");
}
