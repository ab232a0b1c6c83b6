//! The client of workers: how many requests its work takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value as Json, json};
use stepwell_client::{Outcome, WorkerClient};
use tokio::sync::Notify;

use crate::harness::{TestServer, asked};

const STEPS: usize = 10;
const RUNS: usize = 5;

fn operation(step: usize) -> String {
    format!("STEP_{step}")
}

/// How many polls the server has answered.
fn polls(server: &TestServer) -> f64 {
    let text = server.get("/metrics").send().unwrap().text().unwrap();
    let of_polls = text.lines().filter(|line| {
        line.starts_with("stepwell_http_requests_total") && line.contains("worker/poll")
    });
    let numbers = of_polls.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    numbers.sum()
}

/// Runs of ten steps, one after the other, done by a worker whose steps take so long. Says how many polls were answered.
fn polls_of_runs(takes: Duration) -> f64 {
    let server = TestServer::with(&["--no-worker"]);
    let (ended, done) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (until, counted, url) = (Arc::clone(&ended), Arc::clone(&done), server.url.clone());
    let working = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mut worker = WorkerClient::new(&url, None).unwrap().parallel(64);
        for step in 1..=STEPS {
            let counted = Arc::clone(&counted);
            worker = worker.on("quick", &operation(step), move |_| {
                counted.fetch_add(1, Ordering::SeqCst);
                async move {
                    if !takes.is_zero() {
                        tokio::time::sleep(takes).await;
                    }
                    Outcome::done(Json::Null)
                }
            });
        }
        let worked = runtime.block_on(worker.run(async move { until.notified().await }));
        worked.unwrap();
    });
    let steps = (1..=STEPS).map(|step| format!("  - {{stepType: {}}}\n", operation(step)));
    let steps: String = steps.collect();
    let text = format!("workflowType: quick\nworkflowVersion: 1\nsteps:\n{steps}");
    let body = json!({ "definition": { "text": text }, "waitSeconds": 30 });
    let run = || {
        let (status, answer) = asked(server.post("/api/v1/runs", &body));
        assert_eq!(status, 201, "{answer}");
        assert_eq!(answer["run"]["status"], "COMPLETED", "{answer:#}");
    };
    // The first one finds out that nothing lies in the store.
    run();
    let before = polls(&server);
    for _ in 0..RUNS {
        run();
    }
    let took = polls(&server) - before;
    assert_eq!(done.load(Ordering::SeqCst), STEPS * (RUNS + 1));
    ended.notify_one();
    working.join().unwrap();
    took
}

#[test]
fn a_quick_step_is_one_request() {
    let took = polls_of_runs(Duration::ZERO);
    let most = (STEPS + 1) * RUNS;
    assert!(took <= most as f64, "{took} polls, {most} at most");
}

#[test]
fn a_step_that_takes_its_time_is_one_request_beside_the_one_that_waits() {
    let took = polls_of_runs(Duration::from_millis(5));
    // The last result of a run is a request of its own, which brings no work.
    let most = (STEPS + 2) * RUNS;
    assert!(took <= most as f64, "{took} polls, {most} at most");
}
