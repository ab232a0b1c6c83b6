//! The engine inside a program, with handlers in Rust.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepwell::{Ended, Failure, Job, Reply, Run, RunFailure, RunOutcome, Stepwell};

use crate::scratch;
use crate::test_store::TestStore;

/// How long a test waits for what must come.
const LONG: Duration = Duration::from_secs(20);

/// One step for a handler.
fn definition(name: &str, agent: &str) -> String {
    let text = format!(
        "apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: {{name: {name}, owner: t, version: '1'}}
spec:
  timeout: 5m
  failurePolicy: abort
  steps: [{{name: s, agent: {agent}, action: do}}]
"
    );
    scratch(&format!("embedded/{name}.yaml"), text.as_bytes())
}

fn end(run: &Run<'_>) -> Ended {
    let ended = run.wait_for(LONG).unwrap();
    ended.expect("the run ends")
}

fn failure(run: &Run<'_>) -> RunFailure {
    match run.wait_for(LONG) {
        Err(stepwell::Error::Run(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

/// Notices that a handler is gone.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// An engine whose only handler never ends, with a run of it under way.
fn endless(test_store: &TestStore, name: &str) -> (Stepwell, Arc<AtomicBool>, String) {
    let gone = Arc::new(AtomicBool::new(false));
    let (begin, begun) = mpsc::channel();
    let flag = Arc::clone(&gone);
    let stepwell = Stepwell::at(&test_store.url)
        .on("a", "do", move |_: Job, _: Value| {
            let gone = Gone(Arc::clone(&flag));
            let _ = begin.send(());
            async move {
                let _gone = gone;
                std::future::pending::<Result<Value, Failure>>().await
            }
        })
        .patience(Duration::ZERO)
        .open()
        .unwrap();
    let run = stepwell.start(definition(name, "a"), json!({})).unwrap();
    let id = run.id().to_owned();
    begun.recv_timeout(LONG).unwrap();
    (stepwell, gone, id)
}

#[test]
fn work_has_stopped_when_stop_returns() {
    let test_store = TestStore::sqlite("embedded-stop");
    let (stepwell, gone, _) = endless(&test_store, "stop");
    assert!(!gone.load(Ordering::SeqCst));
    stepwell.stop().unwrap();
    assert!(gone.load(Ordering::SeqCst));
}

#[test]
fn an_engine_that_is_dropped_stops_its_work_and_lets_go_of_its_store() {
    let test_store = TestStore::sqlite("embedded-drop");
    let (stepwell, gone, id) = endless(&test_store, "drop");
    drop(stepwell);
    assert!(gone.load(Ordering::SeqCst));
    // Another one has the store at once, and does what was cut off.
    let next = Stepwell::at(&test_store.url)
        .on("a", "do", |job: Job, _: Value| async move {
            Ok::<Value, Failure>(json!({ "execution": job.execution }))
        })
        .open()
        .unwrap();
    let ended = end(&next.run(&id));
    assert_eq!(ended.outcome, RunOutcome::Succeeded);
    assert_eq!(ended.output, json!({ "execution": 2 }));
}

#[test]
fn a_handler_that_was_cut_off_has_a_greater_fence_and_the_same_key() {
    let test_store = TestStore::sqlite("embedded-fence");
    let told = |job: &Job| {
        let numbers = (job.execution, job.attempt, job.logical_attempt);
        (numbers, job.fence, job.idempotency_key.to_string())
    };
    let (tell, heard) = mpsc::channel();
    let open = |ends: bool| {
        let tell = tell.clone();
        let on = Stepwell::at(&test_store.url).on("a", "do", move |job: Job, _: Value| {
            let _ = tell.send(told(&job));
            async move {
                match ends {
                    true => Ok::<Value, Failure>(json!({})),
                    false => std::future::pending().await,
                }
            }
        });
        on.patience(Duration::ZERO).open().unwrap()
    };
    let first = open(false);
    let run = first.start(definition("fence", "a"), json!({})).unwrap();
    let id = run.id().to_owned();
    let (numbers, fence, key) = heard.recv_timeout(LONG).unwrap();
    assert_eq!(numbers, (1, 1, 1));
    drop(first);
    let second = open(true);
    assert_eq!(end(&second.run(&id)).outcome, RunOutcome::Succeeded);
    let (numbers, greater, same) = heard.recv_timeout(LONG).unwrap();
    // A stop of the engine is no attempt.
    assert_eq!(numbers, (2, 1, 1));
    assert!(greater > fence, "{greater} {fence}");
    assert_eq!(same, key);
}

#[test]
fn a_run_can_be_waited_for_and_the_engine_dropped_inside_a_runtime() {
    let large = "x".repeat(300_000);
    let output = json!({ "large": large });
    let answer = output.clone();
    let stepwell = Stepwell::at("memory:")
        .on("a", "do", move |_: Job, _: Value| {
            let answer = answer.clone();
            async move { Ok::<Value, Failure>(answer) }
        })
        .open()
        .unwrap();
    let file = definition("large", "a");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async move {
        let ended = end(&stepwell.start(file, json!({})).unwrap());
        assert_eq!(ended.outcome, RunOutcome::Succeeded);
        assert!(ended.output == output, "it comes whole");
        drop(stepwell);
    });
}

#[test]
fn a_handler_that_leaves_to_a_person_what_is_not_a_persons_fails_its_step() {
    let stepwell = Stepwell::at("memory:")
        .on("a", "do", |_: Job, _: Value| async {
            Ok::<Reply, Failure>(Reply::Manual)
        })
        .open()
        .unwrap();
    let run = stepwell.start(definition("manual", "a"), json!({}));
    let ended = failure(&run.unwrap()).ended;
    let error = ended.error.expect("it says why");
    assert_eq!(error.code, "NOT_MANUAL");
    stepwell.stop().unwrap();
}

#[test]
fn a_queues_limit_holds_and_another_queue_goes_on() {
    static NOW: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let (open, gate) = tokio::sync::watch::channel(false);
    let stepwell = Stepwell::at("memory:")
        .on("slow", "do", move |_: Job, _: Value| {
            let mut gate = gate.clone();
            async move {
                MOST.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let opened = gate.wait_for(|open| *open).await.is_ok();
                tokio::task::yield_now().await;
                NOW.fetch_sub(1, Ordering::SeqCst);
                Ok::<Value, Failure>(json!(opened))
            }
        })
        .on("fast", "do", |_: Job, _: Value| async {
            Ok::<Value, Failure>(Value::Null)
        })
        .limit("slow", 1)
        .at_a_time(2)
        .open()
        .unwrap();
    let (slow, fast) = (definition("slow", "slow"), definition("fast", "fast"));
    let start = |file: &str| stepwell.start(file, json!({})).unwrap();
    let slow: Vec<Run<'_>> = (0..40).map(|_| start(&slow)).collect();
    let fast: Vec<Run<'_>> = (0..5).map(|_| start(&fast)).collect();
    // With the limited queue's work all before them, and none of it done.
    for run in &fast {
        assert_eq!(end(run).outcome, RunOutcome::Succeeded);
    }
    open.send(true).unwrap();
    for run in &slow {
        assert_eq!(end(run).outcome, RunOutcome::Succeeded);
    }
    assert_eq!(MOST.load(Ordering::SeqCst), 1);
    stepwell.stop().unwrap();
}

#[test]
fn a_definition_with_errors_is_refused_in_the_words_of_the_command() {
    let test_store = TestStore::sqlite("embedded-refused");
    let stepwell = Stepwell::at(&test_store.url).open().unwrap();
    let broken = scratch("embedded/broken.yaml", b"kind: Playbook\n");
    for file in [broken.as_str(), "examples/no-such-file.yaml"] {
        let refused = stepwell.start(file, json!({})).unwrap_err();
        let stepwell::Error::Definition(error) = &refused else {
            panic!("{refused:?}");
        };
        assert!(!error.problems().is_empty());
        let told = crate::stepwell(&["plan", file]).err;
        assert!(told.contains(&refused.to_string()), "{refused}\n{told}");
    }
    stepwell.stop().unwrap();
}

#[cfg(unix)]
#[test]
fn a_store_that_goes_away_is_waited_for_and_no_work_is_repeated() {
    use crate::cluster::Cluster;

    let cluster = Cluster::start(&[]).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let (begin, begun) = mpsc::channel();
    let (go_on, may_go_on) = tokio::sync::oneshot::channel::<()>();
    let (counted, waits) = (Arc::clone(&calls), std::sync::Mutex::new(Some(may_go_on)));
    let stepwell = Stepwell::at(&cluster.url())
        .on("a", "do", move |_: Job, _: Value| {
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = begin.send(());
            let waits = waits.lock().unwrap().take();
            async move {
                if let Some(waits) = waits {
                    let _ = waits.await;
                }
                Ok::<_, Failure>(json!({ "done": true }))
            }
        })
        .store_patience(None)
        .open()
        .unwrap();
    let file = definition("embedded-patience", "a");
    let run = stepwell.start(&file, json!({})).unwrap();
    begun.recv_timeout(LONG).unwrap();
    let since = Instant::now();
    cluster.stop_fast().unwrap();
    // The work ends while nobody can record it, and a second run is asked for.
    go_on.send(()).unwrap();
    let mut away = Duration::ZERO;
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| end(&run));
        let second = scope.spawn(|| {
            stepwell
                .start(&file, json!({}))
                .map(|it| it.wait().unwrap())
        });
        std::thread::sleep(Duration::from_secs(4));
        cluster.resume().unwrap();
        away = since.elapsed();
        (first.join().unwrap(), second.join().unwrap())
    });
    assert_eq!(first.output, json!({ "done": true }));
    assert_eq!(second.unwrap().outcome, RunOutcome::Succeeded);
    // On a machine that is very busy the server may have been away for longer than the session lives.
    if away < Duration::from_secs(8) {
        assert_eq!(calls.load(Ordering::SeqCst), 2, "each step was done once");
    }
    stepwell.stop().unwrap();
    // A server that is away is a clear error once the patience is over.
    cluster.stop_fast().unwrap();
    let away = Stepwell::at(&cluster.url()).store_patience(Some(Duration::from_millis(300)));
    let error = away.open().unwrap_err().to_string();
    assert!(error.contains("STORE_UNAVAILABLE"), "{error}");
    assert!(error.contains("given up after"), "{error}");
}
