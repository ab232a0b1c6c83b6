//! Several engines inside programs on one PostgreSQL, and what a program is told of its runs.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepwell::files::Definition;
use stepwell::{Error, Failure, Job, Limits, Run, RunOutcome, StartOptions, Stepwell, WhenFull};

use crate::scratch;
use crate::test_store::TestStore;

/// How long a test waits for what must come.
const LONG: Duration = Duration::from_secs(60);

/// How long the session of an embedded engine lives without being renewed (`docs/reliability.md`).
const SESSION: Duration = Duration::from_secs(15);

/// Set for the process that is killed: the address of its store, and the file that says that it works.
const VICTIM: [&str; 2] = ["STEPWELL_TEST_VICTIM", "STEPWELL_TEST_VICTIM_WORKS"];

/// One step for a handler.
fn definition(name: &str) -> String {
    let text = format!(
        "apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: {{name: {name}, version: '1'}}
spec:
  timeout: 5m
  steps:
    - name: s
      agent: a
      action: do
      retryPolicy: {{maxRetries: 2, initialDelay: 1ms}}
"
    );
    scratch(&format!("embedded-servers/{name}.yaml"), text.as_bytes())
}

/// An engine that does one step at a time, and counts them.
fn counting(url: &str) -> (Stepwell, Arc<AtomicUsize>) {
    let done = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&done);
    let engine = Stepwell::at(url)
        .on("a", "do", move |_: Job, _: Value| {
            let count = Arc::clone(&count);
            async move {
                tokio::time::sleep(Duration::from_millis(200)).await;
                count.fetch_add(1, Ordering::SeqCst);
                Ok::<Value, Failure>(json!({}))
            }
        })
        .limit("a", 1)
        .open();
    (engine.unwrap(), done)
}

#[test]
fn two_engines_on_one_store_share_the_work_of_a_queue() {
    let store = TestStore::postgres("embedded-share");
    let (one, by_one) = counting(&store.url);
    let (two, by_two) = counting(&store.url);
    let file = definition("share");
    let runs: Vec<Run<'_>> = (0..16)
        .map(|_| one.start(&file, json!({})).unwrap())
        .collect();
    for run in &runs {
        let ended = run.wait_for(LONG).unwrap().expect("the run ends");
        assert_eq!(ended.outcome, RunOutcome::Succeeded);
    }
    let (first, second) = (by_one.load(Ordering::SeqCst), by_two.load(Ordering::SeqCst));
    assert_eq!(first + second, 16, "each step is done once");
    // Neither of them leaves most of it to the other.
    assert!(first >= 4 && second >= 4, "{first} and {second}");
    one.stop().unwrap();
    two.stop().unwrap();
}

/// A process of this test, which is killed with it.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process that is killed: an engine whose handler never ends.
fn be_the_victim(url: &str) {
    let works = PathBuf::from(std::env::var(VICTIM[1]).unwrap());
    let engine = Stepwell::at(url)
        .on("a", "do", move |job: Job, _: Value| {
            std::fs::write(&works, &*job.run_id).unwrap();
            async { std::future::pending::<Result<Value, Failure>>().await }
        })
        .open()
        .unwrap();
    let run = engine.start(definition("dead"), json!({})).unwrap();
    let _ = run.wait();
}

#[test]
fn an_engine_takes_over_the_runs_of_a_dead_one_within_the_time_of_a_session() {
    if let Ok(url) = std::env::var(VICTIM[0]) {
        return be_the_victim(&url);
    }
    let store = TestStore::postgres("embedded-dead");
    let works = store.file("works", "");
    let name = "embedded_servers::an_engine_takes_over_the_runs_of_a_dead_one_within_the_time_of_a_session";
    let victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(VICTIM[0], &store.url)
        .env(VICTIM[1], &works)
        .spawn();
    let mut victim = Victim(victim.unwrap());
    let since = Instant::now();
    let run_id = loop {
        let run_id = store.file_text("works");
        if !run_id.is_empty() {
            break run_id;
        }
        assert!(since.elapsed() < LONG, "the other engine does not begin");
        std::thread::sleep(Duration::from_millis(20));
    };
    let heir = Stepwell::at(&store.url)
        .on("a", "do", |job: Job, _: Value| async move {
            Ok::<Value, Failure>(json!({ "execution": job.execution, "attempt": job.attempt }))
        })
        .open()
        .unwrap();
    // Nothing is taken from an engine that lives.
    let run = heir.run(&run_id);
    assert_eq!(run.wait_for(Duration::from_secs(2)).unwrap(), None);
    victim.0.kill().unwrap();
    let died = Instant::now();
    let ended = run.wait_for(LONG).unwrap().expect("the run goes on");
    let waited = died.elapsed();
    assert_eq!(ended.output, json!({ "execution": 2, "attempt": 1 }));
    // Half a second until the heir looks, and what a busy machine needs.
    assert!(waited < SESSION + Duration::from_secs(5), "{waited:?}");
    heir.stop().unwrap();
}

#[test]
fn a_start_with_a_known_key_finds_the_run() {
    for store in [
        TestStore::sqlite("embedded-once"),
        TestStore::postgres("embedded-once"),
    ] {
        let open = || {
            let on = Stepwell::at(&store.url).on("a", "do", |job: Job, _: Value| async move {
                Ok::<Value, Failure>(json!(job.run_id.to_string()))
            });
            on.open().unwrap()
        };
        let engine = open();
        let (file, other) = (definition("once"), definition("once-other"));
        let first = engine.start_once("order-7", &file, json!({})).unwrap();
        let again = engine.start_once("order-7", &file, json!({})).unwrap();
        assert_eq!(first.id(), again.id());
        let changed = engine.start_once("order-7", &file, json!({ "n": 1 }));
        let refused = changed.err().map(|it| it.to_string()).unwrap_or_default();
        assert!(refused.contains("REQUEST_CONTRADICTED"), "{refused}");
        let ended = first.wait_for(LONG).unwrap().expect("the run ends");
        assert_eq!(ended.output, json!(first.id()));
        // The key is the workflow's own.
        let elsewhere = engine.start_once("order-7", &other, json!({})).unwrap();
        assert_ne!(first.id(), elsewhere.id());
        let first = first.id().to_owned();
        engine.stop().unwrap();
        // Also for a program that knows nothing of the first, and after the run has ended.
        let engine = open();
        let again = engine.start_once("order-7", &file, json!({})).unwrap();
        assert_eq!(again.id(), first);
        let ended = again.wait_for(LONG).unwrap().expect("it has ended");
        assert_eq!(ended.output, json!(first));
        engine.stop().unwrap();
    }
}

#[test]
fn a_run_that_failed_is_an_error_with_its_cause() {
    let engine = Stepwell::at("memory:")
        .on("a", "do", |_: Job, _: Value| async {
            Err::<Value, _>(Failure::dead("no such account"))
        })
        .open()
        .unwrap();
    let run = engine.start(definition("fails"), json!({})).unwrap();
    let Err(Error::Run(failure)) = run.wait() else {
        panic!("it failed");
    };
    assert_eq!(failure.run_id, run.id());
    let text = failure.to_string();
    assert!(
        text.contains(run.id()) && text.contains("no such account"),
        "{text}"
    );
    assert!(matches!(failure.ended.outcome, RunOutcome::Failed(_)));
    // Who only looks gets the same as a value.
    let looked = run.ended().unwrap().expect("it has ended");
    assert_eq!(looked.error, failure.ended.error);
    engine.stop().unwrap();
}

#[test]
fn attempts_are_counted() {
    let (tell, heard) = std::sync::mpsc::channel();
    let engine = Stepwell::at("memory:")
        .on("a", "do", move |job: Job, _: Value| {
            let _ = tell.send((job.attempt, job.logical_attempt));
            let again = job.attempt < 3;
            async move {
                match again {
                    true => Err(Failure::retry("busy")),
                    false => Ok::<Value, Failure>(json!({})),
                }
            }
        })
        .open()
        .unwrap();
    let run = engine.start(definition("attempts"), json!({})).unwrap();
    run.wait_for(LONG).unwrap().expect("the third is good");
    assert_eq!(
        heard.iter().take(3).collect::<Vec<_>>(),
        [(1, 1), (2, 1), (3, 1)]
    );
    engine.stop().unwrap();
}

#[test]
fn runs_above_a_limit_wait_and_start_by_priority() {
    let (tell, heard) = std::sync::mpsc::channel();
    let (open, gate) = tokio::sync::watch::channel(false);
    let limits = Limits {
        total: Some(1),
        when_full: WhenFull::Queue,
        ..Limits::default()
    };
    let engine = Stepwell::at("memory:")
        .limits(limits)
        .on("a", "do", move |_: Job, input: Value| {
            let _ = tell.send(input["name"].clone());
            let mut gate = gate.clone();
            async move {
                let opened = gate.wait_for(|open| *open).await.is_ok();
                Ok::<Value, Failure>(json!(opened))
            }
        })
        .open()
        .unwrap();
    let definition = Definition::open(&definition("limited"));
    let plan = Arc::new(definition.into_plan().unwrap());
    let start = |name: &str, priority: i32| {
        let options = StartOptions {
            priority,
            ..StartOptions::default()
        };
        let params = json!({ "name": name });
        engine.start_with(&plan, &options, params).unwrap()
    };
    let first = start("first", 0);
    assert_eq!(heard.recv_timeout(LONG).unwrap(), "first");
    let (usual, urgent) = (start("usual", 0), start("urgent", 5));
    let soon = Duration::from_millis(300);
    assert!(heard.recv_timeout(soon).is_err(), "the others wait");
    open.send(true).unwrap();
    for run in [&first, &usual, &urgent] {
        run.wait_for(LONG).unwrap().expect("the run ends");
    }
    assert_eq!(
        heard.iter().take(2).collect::<Vec<_>>(),
        ["urgent", "usual"]
    );
    engine.stop().unwrap();
}
