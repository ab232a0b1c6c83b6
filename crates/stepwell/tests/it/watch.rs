//! `runs watch` as a person uses it: what it prints, when it ends, and what it refuses.

use std::fs;
use std::path::Path;

use rusqlite::Connection;

use super::test_store::{Process, TestStore};

/// A run whose first step ends when the file `go` is there.
fn waiting_run(test_store: &TestStore) -> Process {
    let go = test_store.file("go", "");
    fs::remove_file(&go).unwrap();
    let definition = format!(
        "metadata: {{planId: watched, planVersion: '1', schemaVersion: v1.0}}\n\
         steps:\n\
         - {{stepId: one, tool: {{kind: shell, cmds: ['while ! test -e {go}; do sleep 0.05; done']}}}}\n\
         - {{stepId: two, dependsOn: [one], tool: {{kind: noop}}}}\n"
    );
    let flow = test_store.file("flow.yaml", &definition);
    let mut worker = test_store.start(&["run", &flow, "--run-id", "run_1", "--events"]);
    worker.until("StepStarted");
    worker
}

fn let_go(test_store: &TestStore) {
    test_store.file("go", "now");
}

#[test]
fn a_watch_prints_a_line_for_each_change_and_ends_with_the_run() {
    let test_store = TestStore::sqlite("watch-to-the-end");
    let worker = waiting_run(&test_store);
    let mut watch = test_store.start(&["runs", "watch", "run_1"]);
    watch.until("run_1  RUNNING  event 5  lag 0 ms  steps: 1 RUNNING\n");
    test_store.good(&["runs", "pause", "run_1"]);
    watch.until("run_1  PAUSED");
    test_store.good(&["runs", "resume", "run_1"]);
    let_go(&test_store);
    let (code, lines) = watch.end();
    let last = lines.lines().last().unwrap();
    assert_eq!(code, 0, "{lines}");
    assert!(last.starts_with("run_1  COMPLETED  event "), "{lines}");
    assert!(last.contains("steps: 2 SUCCESS"), "{lines}");
    assert!(!lines.contains("STALE"), "{lines}");
    assert_eq!(worker.end().0, 0);
    // The rows that the watch wrote beside the owner are as they should be.
    test_store.good(&["db", "check"]);
}

#[test]
fn ctrl_c_ends_a_watch_and_not_the_run() {
    let test_store = TestStore::sqlite("watch-interrupted");
    let worker = waiting_run(&test_store);
    let mut watch = test_store.start(&["runs", "watch", "run_1"]);
    watch.until("RUNNING");
    watch.interrupt();
    // It is ended by the signal: a shell says 130.
    assert_eq!(watch.end().0, -1);
    let_go(&test_store);
    assert_eq!(worker.end().0, 0);
}

#[test]
fn a_store_that_is_gone_ends_those_who_follow_a_run() {
    for args in [
        &["runs", "watch", "run_1"][..],
        &["runs", "events", "run_1", "--follow"],
    ] {
        let test_store = TestStore::sqlite(&format!("gone-{}", args[1]));
        let worker = waiting_run(&test_store);
        let mut reader = test_store.start_heard(args);
        reader.until("RUNNING");
        worker.kill();
        let_go(&test_store);
        let database = test_store.database();
        fs::rename(&database, database.with_extension("away")).unwrap();
        let (code, out) = reader.end();
        let err = test_store.heard();
        assert_eq!(code, 1, "{args:?}: {out}");
        assert!(
            err.contains("STORE_GONE") && err.contains("was deleted, renamed or replaced"),
            "{args:?}: {err}"
        );
    }
}

#[test]
fn what_cannot_be_watched_is_refused_with_a_code() {
    let test_store = TestStore::sqlite("watch-refused");
    let refused = |args: &[&str], code: i32, what: &str| {
        let args = [&["runs", "watch"], args].concat();
        let call = test_store.call(&args);
        assert_eq!(call.code, code, "{args:?}: {}", call.err);
        assert!(call.err.contains(what), "{args:?}: {}", call.err);
        assert_eq!(call.out, "", "{args:?}");
    };
    refused(&["run_1"], 1, "STORE_UNUSABLE");
    assert!(!Path::new(&test_store.database()).exists());
    let saga = "examples/actions/order-saga.yaml";
    test_store.good(&["run", saga, "--engine", "mock", "--run-id", "run_1"]);
    refused(&["nobody"], 1, "RUN_UNKNOWN");
    refused(&["nobody", "-o", "json"], 1, r#""code":"RUN_UNKNOWN""#);
    refused(&["run_1", "--resync", "half"], 2, "full, from-snapshot");
    refused(&["run_1", "--tenant", "other"], 1, "TENANT");
    refused(&[], 2, "<RUN>");

    // The first event is missing: a person of a tenant cannot be told whose the run is.
    let change = |sql: &str| {
        let database = Connection::open(test_store.database()).unwrap();
        assert!(database.execute(sql, []).unwrap() > 0, "{sql}");
    };
    change("DELETE FROM log WHERE first_seq = 1");
    refused(&["run_1", "--tenant", "local"], 1, "TENANT");
    let shown = test_store.good(&["runs", "watch", "run_1", "--once"]);
    assert!(shown.contains("resync FULL"), "{shown}");
    assert_eq!(shown.lines().count(), 1, "{shown}");

    // What `db check` has put into quarantine is shown by no command.
    assert_eq!(test_store.call(&["db", "check", "--repair"]).code, 1);
    refused(&["run_1"], 1, "LOG_INVALID");
}
