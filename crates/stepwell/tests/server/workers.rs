//! Workers in other processes: by plain HTTP, as a client in any language would.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::harness::{PATIENCE, TestServer, asked};

/// Two steps that a worker elsewhere does.
pub(crate) const ORDER: &str = r#"
workflowType: order
workflowVersion: 1
steps:
  - {stepType: PACK, input: {what: "{{ workload.what | default('nothing') }}"}}
  - {stepType: SHIP}
"#;

/// One step that must not be done twice.
const ONCE: &str = "
workflowType: once
workflowVersion: 1
steps:
  - {stepType: PAY, atMostOnce: true}
";

/// A worker that asks by plain HTTP.
pub(crate) struct PlainWorker<'a> {
    server: &'a TestServer,
    id: &'a str,
    queue: &'a str,
    operations: &'a [&'a str],
}

impl PlainWorker<'_> {
    fn body(&self, more: &Json) -> Json {
        let serves = self.operations.iter();
        let serves: Vec<Json> = serves
            .map(|it| json!({ "queue": self.queue, "operation": it }))
            .collect();
        let mut body = json!({
            "protocol": 1, "workerId": self.id, "serves": serves, "max": 8, "waitSeconds": 20,
        });
        let fields = body.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        body
    }

    pub(crate) fn poll(&self, more: &Json) -> Json {
        let (status, answer) = asked(self.server.post("/api/v1/worker/poll", &self.body(more)));
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// The only task that there is.
    pub(crate) fn task(&self, more: &Json) -> Json {
        let answer = self.poll(more);
        let tasks = answer["tasks"].as_array().unwrap();
        assert_eq!(tasks.len(), 1, "{answer:#}");
        tasks[0].clone()
    }

    pub(crate) fn report(&self, result: &Json) -> Json {
        let body = json!({ "protocol": 1, "results": [result] });
        let (status, answer) = asked(self.server.post("/api/v1/worker/results", &body));
        assert_eq!(status, 200, "{answer}");
        answer["results"][0].clone()
    }

    fn heartbeat(&self, task: &Json) -> String {
        let body = json!({ "protocol": 1, "taskTokens": [task["taskToken"]] });
        let (status, answer) = asked(self.server.post("/api/v1/worker/heartbeats", &body));
        assert_eq!(status, 200, "{answer}");
        answer["leases"][0]["state"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn order_worker<'a>(server: &'a TestServer, id: &'a str) -> PlainWorker<'a> {
    PlainWorker {
        server,
        id,
        queue: "order",
        operations: &["PACK", "SHIP"],
    }
}

pub(crate) fn done(task: &Json, output: &Json) -> Json {
    json!({ "taskToken": task["taskToken"], "outcome": "completed", "output": output })
}

/// Servers on each kind of store that there is.
pub(crate) fn servers(args: &[&str]) -> Vec<TestServer> {
    let mut all = vec![TestServer::with(args)];
    all.extend(TestServer::on_postgres(args));
    all
}

#[test]
fn a_handler_elsewhere_completes_and_polls_in_one_request() {
    for server in servers(&["--no-worker"]) {
        let run = server.start_run(ORDER, &json!({ "what": "books" }));
        let worker = order_worker(&server, "w1");
        let first = worker.task(&json!({}));
        assert_eq!(first["runId"], run, "{first:#}");
        assert_eq!(first["operation"], "PACK");
        assert_eq!(first["input"], json!({ "what": "books" }), "{first:#}");
        assert_eq!(first["execution"], 1);
        assert_eq!(worker.heartbeat(&first), "HELD");
        let (_, list) = asked(server.get("/api/v1/workers"));
        assert_eq!(list["workers"][0]["workerId"], "w1", "{list:#}");
        assert_eq!(list["workers"][0]["leases"][0]["stepId"], first["stepId"]);

        let first_done = done(&first, &json!({ "boxes": 2 }));
        let answer = worker.poll(&json!({ "completed": [first_done.clone()] }));
        assert_eq!(answer["results"][0]["accepted"], true, "{answer:#}");
        let second = answer["tasks"][0].clone();
        assert_eq!(second["operation"], "SHIP", "{answer:#}");
        assert_ne!(second["fence"], first["fence"]);
        assert_eq!(worker.heartbeat(&first), "LOST", "it is reported");

        let again = worker.report(&first_done);
        assert_eq!(again["accepted"], true, "the same answer: {again}");
        let other = json!({ "taskToken": first["taskToken"], "outcome": "failed",
            "error": { "class": "unknown", "code": "X", "message": "no" } });
        let other = worker.report(&other);
        assert_eq!(other["accepted"], false, "another result: {other}");

        let line = json!({ "protocol": 1, "lines": [
            { "taskToken": second["taskToken"], "stream": "out", "text": "on its way" } ] });
        let (status, taken) = asked(server.post("/api/v1/worker/logs", &line));
        assert_eq!((status, &taken["taken"]), (200, &json!(1)), "{taken}");
        assert_eq!(
            worker.report(&done(&second, &json!({})))["accepted"],
            json!(true)
        );
        server.wait_for(&run, |run| run["status"] == "COMPLETED");
        let log = format!(".stepwell/logs/{run}/SHIP/1.jsonl");
        let log = std::fs::read_to_string(server.folder.path().join(log)).unwrap();
        assert!(log.contains("on its way"), "{log}");
    }
}

#[test]
fn a_lease_ends_when_its_worker_does_and_its_late_result_is_refused() {
    for server in servers(&["--no-worker"]) {
        let run = server.start_run(ORDER, &json!({}));
        let lost = order_worker(&server, "lost");
        let first = lost.task(&json!({ "leaseSeconds": 1 }));
        // Nothing is heard of the worker any more.
        let other = order_worker(&server, "other");
        let again = other.task(&json!({}));
        assert_eq!(again["stepId"], first["stepId"]);
        assert_eq!(again["execution"], 2, "{again:#}");
        assert_eq!(again["idempotencyKey"], first["idempotencyKey"]);
        let late = lost.report(&done(&first, &json!({ "from": "lost" })));
        assert_eq!(late["accepted"], false, "{late}");
        assert_eq!(late["retry"], false, "{late}");
        assert_eq!(lost.heartbeat(&first), "LOST");
        let answer = other.report(&done(&again, &json!({ "from": "other" })));
        assert_eq!(answer["accepted"], true, "{answer}");
        let (_, seen) = asked(server.get(&format!("/api/v1/runs/{run}/events?limit=1000")));
        assert!(!seen.to_string().contains(r#""from":"lost""#), "{seen:#}");
    }
}

#[test]
fn a_worker_that_drains_gives_back_what_it_has() {
    let server = TestServer::with(&["--no-worker"]);
    server.start_run(ORDER, &json!({}));
    let leaving = order_worker(&server, "leaving");
    let first = leaving.task(&json!({ "leaseSeconds": 3600 }));
    let url = format!("{}/api/v1/worker/leaving", server.url);
    let (status, drained) = asked(server.client.delete(url));
    assert_eq!((status, &drained["givenBack"]), (200, &json!(1)));
    let again = order_worker(&server, "other").task(&json!({}));
    assert_eq!(again["stepId"], first["stepId"]);
}

#[test]
fn a_cancel_reaches_the_worker() {
    for server in servers(&["--no-worker"]) {
        let run = server.start_run(ORDER, &json!({}));
        let worker = order_worker(&server, "w1");
        let task = worker.task(&json!({}));
        let cancel = json!({ "reason": "wrong address" });
        let (status, answer) = asked(server.post(&format!("/api/v1/runs/{run}/cancel"), &cancel));
        assert_eq!(status, 200, "{answer}");
        let told = worker.poll(&json!({ "waitSeconds": 20 }));
        assert_eq!(told["cancel"], json!([task["taskToken"]]), "{told:#}");
        assert_eq!(worker.heartbeat(&task), "CANCEL");
        let stopped = json!({ "taskToken": task["taskToken"], "outcome": "stopped" });
        assert_eq!(worker.report(&stopped)["accepted"], true);
        server.wait_for(&run, |run| run["status"] == "CANCELLED");
    }
}

#[test]
fn work_that_must_happen_once_is_not_given_to_a_second_worker() {
    for server in servers(&["--no-worker"]) {
        let run = server.start_run(ONCE, &json!({}));
        let worker = PlainWorker {
            server: &server,
            id: "w1",
            queue: "once",
            operations: &["PAY"],
        };
        worker.task(&json!({ "leaseSeconds": 1 }));
        let none = worker.poll(&json!({ "waitSeconds": 4 }));
        assert_eq!(none["tasks"], json!([]), "{none:#}");
        let seen = server.wait_for(&run, |run| {
            run["status"] != "RUNNING" || run.to_string().contains("LOST")
        });
        assert_ne!(seen["status"], "COMPLETED", "{seen:#}");
    }
}

/// The deadline of the wait must not be taken for the time when the step that was woken can be claimed.
#[test]
fn a_step_that_waits_for_an_event_that_is_there_is_offered_at_once() {
    for server in servers(&["--no-worker"]) {
        let worker = order_worker(&server, "w1");
        let run = server.start_run(ORDER, &json!({}));
        let task = worker.task(&json!({}));
        let event = json!({ "type": "paid", "id": "e1", "payload": { "amount": 1 } });
        let (status, told) = asked(server.post(&format!("/api/v1/runs/{run}/events"), &event));
        assert!(status < 300, "{told}");
        let wait = json!({ "for": "event", "eventType": "paid", "timeoutMs": 600_000 });
        let waiting = json!({ "taskToken": task["taskToken"], "outcome": "waiting", "wait": wait });
        let again = worker.task(&json!({ "completed": [waiting] }));
        assert_eq!(again["payload"]["amount"], 1, "{again:#}");
        let last = worker.task(&json!({ "completed": [done(&again, &json!({}))] }));
        worker.poll(&json!({ "completed": [done(&last, &json!({}))], "max": 0, "waitSeconds": 0 }));
        server.wait_for(&run, |seen| seen["status"] == "COMPLETED");
    }
}

#[test]
fn a_long_poll_is_answered_when_work_is_offered() {
    let server = TestServer::with(&["--no-worker"]);
    let came = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let task = order_worker(&server, "w1").task(&json!({}));
            (task, Instant::now())
        });
        std::thread::sleep(Duration::from_millis(300));
        let started = Instant::now();
        let run = server.start_run(ORDER, &json!({}));
        let (task, came) = waiting.join().unwrap();
        assert_eq!(task["runId"], run);
        came.saturating_duration_since(started)
    });
    assert!(came < Duration::from_secs(5), "{came:?}");
}

#[test]
fn what_is_wrong_is_refused_with_a_code() {
    let server = TestServer::with(&["--no-worker"]);
    let worker = order_worker(&server, "w1");
    for (wrong, code) in [
        (json!({ "protocol": 2 }), "PROTOCOL_UNKNOWN"),
        (json!({ "max": 1000 }), "REQUEST_INVALID"),
        (json!({ "waitSeconds": 51 }), "REQUEST_INVALID"),
        (json!({ "workerId": "a/b" }), "REQUEST_INVALID"),
    ] {
        let (status, answer) = asked(server.post("/api/v1/worker/poll", &worker.body(&wrong)));
        assert_eq!((status, &answer["code"]), (400, &json!(code)), "{answer}");
    }
    let forged = worker.report(&done(&json!({ "taskToken": "t1.00.00" }), &json!({})));
    assert_eq!(forged["code"], "TASK_TOKEN_UNKNOWN", "{forged}");
    let viewer = server
        .post("/api/v1/worker/poll", &worker.body(&json!({})))
        .header("stepwell-role", "viewer");
    assert_eq!(asked(viewer).0, 403);
}

#[test]
fn a_worker_of_one_tenant_sees_nothing_of_another() {
    for server in servers(&["--no-worker"]) {
        let body = json!({ "definition": { "text": ORDER }, "params": {} });
        let of = |tenant: &str, request: reqwest::blocking::RequestBuilder| {
            asked(request.header("stepwell-tenant", tenant))
        };
        let (status, started) = of("acme", server.post("/api/v1/runs", &body));
        assert_eq!(status, 201, "{started}");
        let worker = order_worker(&server, "w1");
        let poll = worker.body(&json!({ "waitSeconds": 0 }));
        let (_, none) = of("other", server.post("/api/v1/worker/poll", &poll));
        assert_eq!(none["tasks"], json!([]), "{none}");
        let until = Instant::now() + PATIENCE;
        let task = loop {
            let (_, some) = of("acme", server.post("/api/v1/worker/poll", &poll));
            if !some["tasks"][0].is_null() {
                break some["tasks"][0].clone();
            }
            assert!(Instant::now() < until, "{some}");
        };
        let report = json!({ "protocol": 1, "results": [done(&task, &json!({}))] });
        let (_, refused) = of("other", server.post("/api/v1/worker/results", &report));
        assert_eq!(refused["results"][0]["code"], "TASK_TOKEN_UNKNOWN");
        let (_, list) = of("other", server.get("/api/v1/workers"));
        let listed = list["workers"].as_array().unwrap();
        assert!(listed.iter().all(|it| it["leases"] == json!([])), "{list}");
        let plan = format!(
            "/api/v1/plans/{}?run={}",
            task["planHash"].as_str().unwrap(),
            task["runId"].as_str().unwrap()
        );
        assert_eq!(of("other", server.get(&plan)).0, 404);
        assert_eq!(of("acme", server.get(&plan)).0, 200);
        let (_, taken) = of("acme", server.post("/api/v1/worker/results", &report));
        assert_eq!(taken["results"][0]["accepted"], true, "{taken}");
    }
}

#[test]
fn a_large_output_and_an_artifact_are_kept() {
    let server = TestServer::with(&["--no-worker"]);
    let run = server.start_run(ORDER, &json!({}));
    let worker = order_worker(&server, "w1");
    let task = worker.task(&json!({}));
    let token = task["taskToken"].as_str().unwrap();
    let address = format!(
        "{}/api/v1/worker/artifacts?taskToken={token}&name=label.txt",
        server.url
    );
    let (status, reference) = asked(server.client.put(address).body("ship to: Ada"));
    assert_eq!(status, 200, "{reference}");
    let uri = reference["uri"].as_str().unwrap();
    let kept = asked(server.get(&format!("/api/v1/worker/artifacts?uri={uri}")));
    assert_eq!(kept, (200, json!("ship to: Ada")));
    let mut result = done(&task, &json!({ "text": "x".repeat(200_000) }));
    result["artifacts"] = json!([reference]);
    assert_eq!(worker.report(&result)["accepted"], true);
    let next = worker.task(&json!({}));
    worker.report(&done(&next, &json!({})));
    server.wait_for(&run, |run| run["status"] == "COMPLETED");
    let (_, log) = asked(server.get(&format!("/api/v1/runs/{run}/events?limit=1000")));
    assert!(log.to_string().len() < 100_000, "the log has a reference");
}

#[test]
fn the_examples_of_the_protocol_page_work() {
    let server = TestServer::with(&["--no-worker"]);
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut script = "set -eu\n".to_owned();
    let mut block: Option<(&str, String)> = None;
    for line in page.lines() {
        match (&mut block, line.strip_prefix("```")) {
            (None, Some(kind)) => block = Some((kind, String::new())),
            (Some(_), Some(_)) => match block.take().unwrap() {
                ("sh", text) => script.push_str(&text),
                (kind, text) => {
                    if let Some((_, file)) = kind.split_once("file=") {
                        std::fs::write(server.folder.path().join(file), text).unwrap();
                    }
                }
            },
            (Some((_, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(script.matches("curl").count() > 6, "{script}");
    let played = std::process::Command::new("sh")
        .args(["-c", &script])
        .env("SERVER", &server.url)
        .current_dir(server.folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&played.stdout);
    let wrong = String::from_utf8_lossy(&played.stderr);
    assert!(played.status.success(), "{said}\n{wrong}");
    let (_, runs) = asked(server.get("/api/v1/runs?status=completed"));
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs:#}");
}
