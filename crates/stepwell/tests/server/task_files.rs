//! What belongs to a task can be changed while the task is its worker's, and what results say about it must be true.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::harness::{TestServer, asked};
use crate::workers::{ORDER, done, order_worker, servers};

fn put(server: &TestServer, task: &Json, name: &str, bytes: &str) -> (u16, Json) {
    let token = task["taskToken"].as_str().unwrap();
    let url = format!(
        "{}/api/v1/worker/artifacts?taskToken={token}&name={name}",
        server.url
    );
    asked(server.client.put(url).body(bytes.to_owned()))
}

fn log(server: &TestServer, task: &Json) -> Json {
    let line = json!({ "protocol": 1, "lines": [
        { "taskToken": task["taskToken"], "stream": "out", "text": "forged" } ] });
    asked(server.post("/api/v1/worker/logs", &line)).1
}

fn code(answer: &(u16, Json)) -> (u16, &str) {
    (answer.0, answer.1["code"].as_str().unwrap_or_default())
}

#[test]
fn nothing_of_a_task_that_is_over_is_changed() {
    for server in servers(&["--no-worker"]) {
        let run = server.start_run(ORDER, &json!({}));
        let worker = order_worker(&server, "w1");
        let first = worker.task(&json!({}));
        let (status, kept) = put(&server, &first, "good", r#"{"v":42}"#);
        assert_eq!(status, 200, "{kept}");
        // The answer was lost: the same bytes again are as good as the first time, others are not.
        let again = put(&server, &first, "good", r#"{"v":42}"#);
        assert_eq!(again, (200, kept.clone()));
        let other = put(&server, &first, "good", r#"{"v":666}"#);
        assert_eq!(code(&other), (409, "ARTIFACT_EXISTS"), "{other:?}");
        assert_eq!(log(&server, &first)["taken"], 1);

        let mut result = done(&first, &json!({ "d": { "_ref": kept } }));
        result["artifacts"] = json!([kept]);
        assert_eq!(worker.report(&result)["accepted"], true);
        let second = worker.task(&json!({ "leaseSeconds": 1 }));
        for (name, bytes) in [("good", r#"{"v":666}"#), ("more", "x")] {
            let late = put(&server, &first, name, bytes);
            assert_eq!(code(&late), (409, "LEASE_LOST"), "{late:?}");
        }
        assert_eq!(
            log(&server, &first),
            json!({ "taken": 0, "refused": 1 }),
            "no line is added later"
        );
        // A lease that has ended, before others have the work.
        std::thread::sleep(Duration::from_millis(1_500));
        let late = put(&server, &second, "late", "x");
        assert_eq!(code(&late), (409, "LEASE_LOST"), "{late:?}");
        assert_eq!(log(&server, &second)["taken"], 0);
        let third = worker.task(&json!({}));
        assert_eq!(third["execution"], 2, "{third}");
        // The same worker has the lease again, for another execution.
        let late = put(&server, &second, "late", "x");
        assert_eq!(code(&late), (409, "LEASE_LOST"), "{late:?}");
        assert_eq!(log(&server, &second)["taken"], 0);
        assert_eq!(worker.report(&done(&third, &json!({})))["accepted"], true);
        server.wait_for(&run, |run| run["status"] == "COMPLETED");

        let uri = kept["uri"].as_str().unwrap();
        let path = format!("/api/v1/runs/{run}/artifact?uri={uri}");
        assert_eq!(asked(server.get(&path)), (200, json!({ "v": 42 })));
        // The disk is damaged: the answer says so.
        let file = uri.strip_prefix("artifact:").unwrap();
        let file = server.folder.path().join(".stepwell/artifacts").join(file);
        std::fs::write(&file, r#"{"v":66}"#).unwrap();
        let damaged = asked(server.get(&path));
        assert_eq!(code(&damaged), (500, "ARTIFACT_CORRUPT"), "{damaged:?}");
    }
}

#[test]
fn a_result_that_says_something_wrong_about_an_artifact_is_refused() {
    for server in servers(&["--no-worker"]) {
        let run = server.start_run(ORDER, &json!({}));
        let worker = order_worker(&server, "w1");
        let task = worker.task(&json!({}));
        let (_, kept) = put(&server, &task, "good", r#"{"v":42}"#);
        let with = |field: &str, value: Json| {
            let mut changed = kept.clone();
            changed[field] = value;
            changed
        };
        let nowhere = kept["uri"].as_str().unwrap().replace("good", "bad");
        let wrong = [
            (with("sha256", json!("0".repeat(64))), "ARTIFACT_CORRUPT"),
            (with("sizeBytes", json!(7)), "ARTIFACT_CORRUPT"),
            (with("uri", json!(nowhere)), "ARTIFACT_MISSING"),
        ];
        for (reference, code) in wrong {
            let mut listed = done(&task, &json!({}));
            listed["artifacts"] = json!([reference]);
            let inside = done(&task, &json!({ "d": [{ "_ref": reference }] }));
            for result in [listed, inside] {
                let answer = worker.report(&result);
                assert_eq!(answer["accepted"], false, "{answer}");
                assert_eq!(answer["code"], code, "{answer}");
                assert_eq!(answer["retry"], false, "{answer}");
            }
        }
        let mut bare = done(&task, &json!({}));
        bare["artifacts"] = json!([{ "uri": kept["uri"], "kind": "file" }]);
        let answer = worker.report(&bare);
        assert_eq!(answer["code"], "REQUEST_INVALID", "{answer}");
        // What the server does not keep is not its matter.
        let mut good = done(&task, &json!({ "d": { "_ref": kept } }));
        good["artifacts"] = json!([kept, { "uri": "https://example.com/x", "kind": "page" }]);
        let answer = worker.poll(&json!({ "completed": [good] }));
        assert_eq!(answer["results"][0]["accepted"], true, "{answer}");
        let (status, seen) = asked(server.get(&format!("/api/v1/runs/{run}/snapshot")));
        assert_eq!(status, 200, "{seen}");
        // A reference that another step has written is handed on after a look at it.
        let task = answer["tasks"][0].clone();
        let handed_on = done(&task, &json!({ "same": { "_ref": kept } }));
        assert_eq!(worker.report(&handed_on)["accepted"], true);
        server.wait_for(&run, |run| run["status"] == "COMPLETED");
    }
}

#[test]
fn a_worker_that_takes_nanoseconds_for_milliseconds_parks_no_run() {
    let server = TestServer::with(&["--no-worker"]);
    let run = server.start_run(ORDER, &json!({}));
    let worker = order_worker(&server, "w1");
    let task = worker.task(&json!({}));
    let failed = |delay: u64| {
        json!({ "taskToken": task["taskToken"], "outcome": "failed", "retryable": true, "delayMs": delay,
            "error": { "class": "transient", "code": "X", "message": "no" } })
    };
    let timer = json!({ "taskToken": task["taskToken"], "outcome": "waiting",
        "wait": { "for": "timer", "timeoutMs": 31_622_400_001_u64 } });
    let child = json!({ "taskToken": task["taskToken"], "outcome": "waiting",
        "wait": { "for": "child", "call": "order", "input": {} } });
    let wrong = [
        (failed(1_000_000_000_000_000), "delayMs"),
        (timer, "wait.timeoutMs"),
        (child, "wait.call: an object with the field `path`"),
    ];
    for (result, what) in wrong {
        let answer = worker.report(&result);
        assert_eq!(answer["code"], "REQUEST_INVALID", "{answer}");
        assert!(
            answer["detail"].as_str().unwrap().contains(what),
            "{answer}"
        );
    }
    assert_eq!(worker.report(&failed(31_622_400_000))["accepted"], true);
    let (_, why) = asked(server.get(&format!("/api/v1/runs/{run}/explain")));
    assert!(why.to_string().contains("in 365 d 23 h"), "{why}");
}
