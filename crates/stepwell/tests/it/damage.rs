//! Damage of a store through the doors that users have: it is found and named, a damaged run is not served,
//! the others are, and rows that follow from the log are made anew.

use std::time::{Duration, Instant};

use rusqlite::Connection;
use stepwell::{ScrubOptions, Stepwell};

use super::test_store::TestStore;

const SAGA: &str = "examples/actions/order-saga.yaml";

/// Two runs that have ended.
fn store(name: &str) -> TestStore {
    let test_store = TestStore::sqlite(name);
    for run in ["run_a", "run_b"] {
        test_store.good(&["run", SAGA, "--engine", "mock", "--run-id", run]);
    }
    test_store
}

/// Changes rows behind the back of the program.
fn change(test_store: &TestStore, sql: &str) {
    let changed = Connection::open(test_store.database())
        .unwrap()
        .execute(sql, []);
    assert!(changed.unwrap() > 0, "{sql}");
}

#[test]
fn a_run_whose_log_was_changed_is_named_and_not_shown_and_others_are() {
    let test_store = store("changed-log");
    change(
        &test_store,
        "UPDATE log SET body = replace(body, '\"local\"', '\"remote\"')
         WHERE run_no = (SELECT run_no FROM runs WHERE run_id = 'run_a') AND first_seq = 1",
    );
    let check = test_store.call(&["db", "check"]);
    assert_eq!(check.code, 1, "{}", check.out);
    assert!(
        check.out.contains("run run_a: table log: LOG_INVALID"),
        "{}",
        check.out
    );
    assert!(!check.out.contains("run_b"), "{}", check.out);
    for args in [
        &["runs", "show", "run_a"][..],
        &["runs", "events", "run_a"],
        &["resume", "run_a"],
    ] {
        let call = test_store.call(args);
        assert_eq!(call.code, 1, "{args:?}: {}", call.out);
        assert!(call.err.contains("LOG_INVALID"), "{args:?}: {}", call.err);
    }
    test_store.good(&["runs", "show", "run_b"]);

    // What cannot be made anew is put into quarantine, and is shown by no door.
    let repair = test_store.call(&["db", "check", "--repair"]);
    assert_eq!(repair.code, 1, "{}", repair.out);
    assert!(
        repair.out.contains("run_a was put into quarantine"),
        "{}",
        repair.out
    );
    let listed = test_store.good(&["runs", "list"]);
    assert!(listed.contains("run_a  order-saga  DAMAGED"), "{listed}");
    assert!(listed.contains("run_b  order-saga  COMPLETED"), "{listed}");
    let conn = Connection::open(test_store.database()).unwrap();
    let seen = |run: &str| -> i64 {
        let count = "SELECT count(*) FROM events WHERE run_id = ?1";
        conn.query_row(count, [run], |row| row.get(0)).unwrap()
    };
    assert_eq!(seen("run_a"), 0);
    assert!(seen("run_b") > 0);
    drop(conn);

    // A run that is whole again is released.
    change(
        &test_store,
        "UPDATE log SET body = replace(body, '\"remote\"', '\"local\"')
         WHERE run_no = (SELECT run_no FROM runs WHERE run_id = 'run_a') AND first_seq = 1",
    );
    let released = test_store.good(&["db", "check", "--repair"]);
    assert!(
        released.contains("run_a is whole and was released"),
        "{released}"
    );
    test_store.good(&["runs", "show", "run_a"]);
    test_store.good(&["db", "check"]);
}

#[test]
fn rows_that_follow_from_the_log_are_made_anew_after_a_copy() {
    let test_store = store("derived-rows");
    change(
        &test_store,
        "UPDATE heads SET status = 'RUNNING', ended_at = NULL WHERE run_no = (SELECT run_no FROM runs WHERE run_id = 'run_a')",
    );
    change(
        &test_store,
        "DELETE FROM event_keys WHERE run_no = (SELECT run_no FROM runs WHERE run_id = 'run_b')",
    );
    let check = test_store.call(&["db", "check"]);
    assert_eq!(check.code, 1, "{}", check.out);
    assert!(
        check
            .out
            .contains("run run_a: table heads: the head says RUNNING"),
        "{}",
        check.out
    );
    assert!(check.out.contains("run run_b: "), "{}", check.out);
    let repaired = test_store.good(&["db", "check", "--repair"]);
    assert!(
        repaired.contains("run_a: heads was made anew"),
        "{repaired}"
    );
    assert!(repaired.contains("runs.db-before-repair-1"), "{repaired}");
    assert!(
        test_store
            .database()
            .with_file_name("runs.db-before-repair-1")
            .exists()
    );
    test_store.good(&["db", "check"]);
    let listed = test_store.good(&["runs", "list"]);
    assert!(listed.contains("run_a  order-saga  COMPLETED"), "{listed}");
}

#[test]
fn a_log_that_lost_its_end_is_not_what_a_repair_makes_rows_from() {
    let test_store = TestStore::sqlite("repair-cut-log");
    for id in ["run_a", "run_b"] {
        test_store.good(&["run", SAGA, "--engine", "mock", "--run-id", id]);
    }
    let (of_a, of_b) = (
        "run_no = (SELECT run_no FROM runs WHERE run_id = 'run_a')",
        "run_no = (SELECT run_no FROM runs WHERE run_id = 'run_b')",
    );
    let last = format!("(SELECT max(first_seq) FROM log WHERE {of_a})");
    let cut = format!("DELETE FROM log WHERE {of_a} AND first_seq = {last}");
    change(&test_store, &cut);
    change(&test_store, &format!("DELETE FROM log WHERE {of_b}"));
    for args in [&["db", "check"][..], &["db", "check", "--repair"]] {
        let check = test_store.call(args);
        assert_eq!(check.code, 1, "{}", check.out);
        assert!(
            check.out.contains("the end of the log is lost"),
            "{}",
            check.out
        );
    }
    // The runs are listed, and neither is served.
    let listed = test_store.good(&["runs", "list"]);
    assert_eq!(listed.matches("DAMAGED").count(), 2, "{listed}");
    for id in ["run_a", "run_b"] {
        for args in [&["runs", "show", id][..], &["resume", id]] {
            let call = test_store.call(args);
            assert_eq!(call.code, 1, "{}", call.out);
            assert!(call.err.contains("LOG_INVALID"), "{}", call.err);
        }
    }
}

#[test]
fn a_repair_waits_for_no_process_that_has_the_store() {
    let test_store = TestStore::sqlite("repair-held");
    let how = [
        "--engine",
        "mock",
        "--work-ms",
        "60000",
        "--run-id",
        "run_a",
    ];
    let mut process = test_store.start(&[&["run", SAGA][..], &how].concat());
    process.until("authorise-payment  Running");
    let refused = test_store.call(&["db", "check", "--repair"]);
    assert_eq!(refused.code, 1, "{}", refused.out);
    assert!(refused.err.contains("STORE_HELD"), "{}", refused.err);
    process.kill();
}

#[test]
fn the_scrub_of_an_engine_finds_a_damaged_run_that_nobody_reads() {
    let test_store = store("scrub");
    change(
        &test_store,
        "UPDATE log SET body = replace(body, '\"local\"', '\"remote\"')
         WHERE run_no = (SELECT run_no FROM runs WHERE run_id = 'run_a') AND first_seq = 1",
    );
    let engine = Stepwell::at(&test_store.url)
        .scrub(ScrubOptions {
            bytes_per_second: 100 << 20,
            rest: Duration::from_millis(20),
        })
        .open()
        .unwrap();
    let begin = Instant::now();
    while !test_store
        .good(&["runs", "list"])
        .contains("run_a  order-saga  DAMAGED")
    {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "the scrub found nothing"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    engine.stop().unwrap();
    let conn = Connection::open(test_store.database()).unwrap();
    let alerts = "SELECT count(*) FROM alerts JOIN runs USING (run_no)
         WHERE code = 'LOG_INVALID' AND alerts.priority = 1 AND run_id = 'run_a'";
    let alerts: i64 = conn.query_row(alerts, [], |row| row.get(0)).unwrap();
    assert_eq!(alerts, 1);
    test_store.good(&["runs", "show", "run_b"]);
}
