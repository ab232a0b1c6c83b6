//! Files of a store that are deleted, replaced or cut under a live process: the process notices, stops, and never
//! reports a result that nobody finds again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepwell::{Failure, Job, Stepwell};

use super::test_store::TestStore;

const SAGA: &str = "examples/actions/order-saga.yaml";

/// The work of the run would take longer than the test waits.
const WORK_MS: &str = "600000";

fn beside(test_store: &TestStore, ending: &str) -> PathBuf {
    let mut path = test_store.database().into_os_string();
    path.push(ending);
    path.into()
}

/// Changes a file under a live process, and says what the process wrote and how it ended.
fn hurt(name: &str, ending: &str, how: impl Fn(&Path)) -> (i32, String) {
    let test_store = TestStore::sqlite(&format!("gone-{name}{ending}"));
    let run = [
        "run",
        SAGA,
        "--engine",
        "mock",
        "--work-ms",
        WORK_MS,
        "--run-id",
        "run_a",
    ];
    let mut process = test_store.start_heard(&run);
    process.until("authorise-payment  Running");
    let begin = Instant::now();
    how(&beside(&test_store, ending));
    let (code, out) = process.end();
    assert!(
        begin.elapsed() < Duration::from_secs(120),
        "it noticed late"
    );
    assert!(!out.contains("Succeeded  order-saga"), "{out}");
    (code, test_store.heard())
}

fn is_gone((code, err): (i32, String), what: &str) {
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("STORE_GONE") && err.contains(what), "{err}");
}

const FILES: [&str; 3] = ["", "-wal", "-lock"];

#[test]
fn a_deleted_file_is_noticed() {
    for ending in FILES {
        let ended = hurt("deleted", ending, |path| fs::remove_file(path).unwrap());
        is_gone(ended, "was deleted, renamed or replaced");
    }
}

#[test]
fn a_file_that_was_moved_away_is_noticed() {
    for ending in FILES {
        let ended = hurt("moved", ending, |path| {
            fs::rename(path, path.with_extension("away")).unwrap();
        });
        is_gone(ended, "was deleted, renamed or replaced");
    }
}

#[test]
fn a_replaced_file_is_noticed() {
    for ending in FILES {
        let ended = hurt("replaced", ending, |path| {
            let copy = path.with_extension("copy");
            fs::copy(path, &copy).unwrap();
            fs::rename(&copy, path).unwrap();
        });
        is_gone(ended, "was deleted, renamed or replaced");
    }
}

#[test]
fn a_database_or_a_log_that_is_cut_is_noticed() {
    // The lock file has only a note for people in it: cutting it loses nothing.
    for ending in ["", "-wal"] {
        let (code, err) = hurt("cut", ending, |path| {
            fs::OpenOptions::new()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(40)
                .unwrap();
        });
        assert_eq!(code, 1, "{err}");
        assert!(
            err.contains("STORE_GONE") || err.contains("STORE_CORRUPT"),
            "{err}"
        );
    }
}

/// Between two looks at the files the run ends: the end is not reported.
#[test]
fn a_run_that_ends_before_the_next_look_is_not_reported_as_kept() {
    let test_store = TestStore::sqlite("gone-at-the-end");
    let run = [
        "run",
        SAGA,
        "--engine",
        "mock",
        "--work-ms",
        "300",
        "--run-id",
        "run_a",
    ];
    let mut process = test_store.start_heard(&run);
    process.until("ship               Running");
    fs::remove_file(test_store.database()).unwrap();
    let (code, out) = process.end();
    assert_eq!(code, 1, "{out}");
    assert!(
        test_store.heard().contains("STORE_GONE"),
        "{}",
        test_store.heard()
    );
}

/// Says when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Changes a file under an embedded engine whose only step never ends.
fn hurt_embedded(name: &str, ending: &str, how: impl Fn(&Path), what: &str) {
    const LONG: Duration = Duration::from_secs(120);
    let test_store = TestStore::sqlite(&format!("gone-embedded-{name}{ending}"));
    let file = test_store.file(
        "endless.yaml",
        "apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: {name: endless, owner: t, version: '1'}
spec:
  timeout: 1h
  failurePolicy: abort
  steps: [{name: s, agent: a, action: do}]
",
    );
    let ended = Arc::new(AtomicBool::new(false));
    let (begin, begun) = mpsc::channel();
    let flag = Arc::clone(&ended);
    let engine = Stepwell::at(&test_store.url)
        .on("a", "do", move |_: Job, _: Value| {
            let dropped = Dropped(Arc::clone(&flag));
            let _ = begin.send(());
            async move {
                let _dropped = dropped;
                std::future::pending::<Result<Value, Failure>>().await
            }
        })
        .patience(Duration::ZERO)
        .open()
        .unwrap();
    let run = engine.start(&file, json!({})).unwrap();
    begun.recv_timeout(LONG).unwrap();
    how(&beside(&test_store, ending));
    // Who waits for the run is told, the work stops, and nothing new is accepted.
    let told = run.wait_for(LONG).unwrap_err().to_string();
    assert!(told.contains("STORE_GONE") && told.contains(what), "{told}");
    let begin = Instant::now();
    while !ended.load(Ordering::SeqCst) {
        assert!(begin.elapsed() < LONG, "the work goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    let refused = engine.start(&file, json!({})).unwrap_err().to_string();
    assert!(refused.contains("STORE_GONE"), "{refused}");
    let stopped = engine.stop().unwrap_err().to_string();
    assert!(stopped.contains("STORE_GONE"), "{stopped}");
}

#[test]
fn an_embedded_engine_notices_a_deleted_file_and_stops_its_work() {
    for ending in FILES {
        let delete = |path: &Path| fs::remove_file(path).unwrap();
        hurt_embedded(
            "deleted",
            ending,
            delete,
            "was deleted, renamed or replaced",
        );
    }
}

#[test]
fn an_embedded_engine_notices_a_file_that_was_moved_away_or_replaced() {
    for ending in FILES {
        let away = |path: &Path| fs::rename(path, path.with_extension("away")).unwrap();
        hurt_embedded("moved", ending, away, "was deleted, renamed or replaced");
    }
    let replace = |path: &Path| {
        let copy = path.with_extension("copy");
        fs::copy(path, &copy).unwrap();
        fs::rename(&copy, path).unwrap();
    };
    hurt_embedded("replaced", "", replace, "was deleted, renamed or replaced");
}
