//! Results of tasks that are reported twice, or that cannot be read.

use serde_json::{Value as Json, json};

use crate::harness::{TestServer, asked};
use crate::workers::{ORDER, PlainWorker, done, order_worker, servers};

fn failed(task: &Json, message: &str) -> Json {
    let error = json!({ "class": "validation", "code": "NO", "message": message });
    json!({ "taskToken": task["taskToken"], "outcome": "failed", "error": error, "retryable": false })
}

fn contradicted(worker: &PlainWorker<'_>, result: &Json) {
    let answer = worker.report(result);
    assert_eq!(answer["accepted"], false, "{result}: {answer}");
    assert_eq!(answer["code"], "RESULT_CONTRADICTED", "{result}: {answer}");
    assert_eq!(answer["retry"], false, "{answer}");
}

fn events(server: &TestServer, run: &str) -> usize {
    let (_, seen) = asked(server.get(&format!("/api/v1/runs/{run}/events")));
    seen["events"].as_array().unwrap().len()
}

#[test]
fn another_result_of_a_finished_task_is_refused_and_the_same_one_is_accepted_again() {
    for server in servers(&["--no-worker"]) {
        let run = server.start_run(ORDER, &json!({}));
        let worker = order_worker(&server, "w1");
        let first = worker.task(&json!({}));
        let mut result = done(&first, &json!({ "boxes": 2 }));
        result["ctx"] = json!({ "seen": 1 });
        assert_eq!(worker.report(&result)["accepted"], true);
        let before = events(&server, &run);
        assert_eq!(worker.report(&result)["accepted"], true, "the same one");
        contradicted(&worker, &done(&first, &json!({ "boxes": 3 })));
        contradicted(&worker, &done(&first, &json!({ "boxes": 2 })));
        contradicted(&worker, &failed(&first, "no"));
        let wait = json!({ "for": "timer", "timeoutMs": 5 });
        let token = &first["taskToken"];
        contradicted(
            &worker,
            &json!({ "taskToken": token, "outcome": "waiting", "wait": wait }),
        );
        assert_eq!(events(&server, &run), before, "nothing was changed");

        let second = worker.task(&json!({}));
        let result = failed(&second, "out of stock");
        assert_eq!(worker.report(&result)["accepted"], true);
        server.wait_for(&run, |run| run["status"] == "FAILED");
        assert_eq!(worker.report(&result)["accepted"], true, "the same one");
        contradicted(&worker, &failed(&second, "another reason"));
        contradicted(&worker, &done(&second, &json!({})));
    }
}

/// What a server remembers of results is lost with it; the run knows its own.
#[test]
fn a_server_that_has_not_seen_the_first_result_refuses_another_one_too() {
    let server = TestServer::with(&["--no-worker"]);
    let run = server.start_run(ORDER, &json!({}));
    let (first, second) = {
        let worker = order_worker(&server, "w1");
        let first = worker.task(&json!({}));
        let more = json!({ "completed": [done(&first, &json!({ "boxes": 2 }))] });
        let second = worker.task(&more);
        assert_eq!(
            worker.report(&failed(&second, "no stock"))["accepted"],
            true
        );
        (first, second)
    };
    server.wait_for(&run, |run| run["status"] == "FAILED");
    let server = TestServer::in_folder(server.kill(), &["--no-worker"]);
    let worker = order_worker(&server, "w1");
    let same = worker.report(&done(&first, &json!({ "boxes": 2 })));
    assert_eq!(same["accepted"], true, "{same}");
    contradicted(&worker, &done(&first, &json!({ "boxes": 3 })));
    let same = worker.report(&failed(&second, "no stock"));
    assert_eq!(same["accepted"], true, "{same}");
    contradicted(&worker, &failed(&second, "another reason"));
}

#[test]
fn one_result_that_cannot_be_read_keeps_no_other_from_being_accepted() {
    for server in servers(&["--no-worker"]) {
        let runs = [(); 2].map(|()| server.start_run(ORDER, &json!({})));
        let worker = order_worker(&server, "w1");
        let mut tasks = Vec::new();
        while tasks.len() < 2 {
            let given = worker.poll(&json!({}));
            tasks.extend(given["tasks"].as_array().unwrap().iter().cloned());
        }
        let mut unknown = done(&tasks[0], &json!({}));
        unknown["colour"] = json!("red");
        let good = done(&tasks[1], &json!({}));
        let more = json!({ "completed": [unknown, good, { "outcome": "completed" }, 7] });
        let answer = worker.poll(&more);
        let results = answer["results"].as_array().unwrap();
        assert_eq!(results.len(), 4, "{answer:#}");
        assert_eq!(results[1]["accepted"], true, "{answer:#}");
        for (place, says) in [(0, "colour"), (2, "taskToken"), (3, "WorkResult")] {
            let refused = &results[place];
            assert_eq!(refused["accepted"], false, "{refused}");
            assert_eq!(refused["code"], "REQUEST_INVALID", "{refused}");
            assert!(refused["detail"].to_string().contains(says), "{refused}");
        }
        assert_eq!(results[0]["taskToken"], tasks[0]["taskToken"]);
        // The task of the result that could not be read is still the worker's.
        let again = worker.report(&done(&tasks[0], &json!({})));
        assert_eq!(again["accepted"], true, "{again}");
        for run in runs {
            server.wait_for(&run, |run| run["status"] == "RUNNING");
        }
    }
}
