//! What operators do and see over HTTP: logs, inbox, bulk actions, sinks, streams of states, metrics.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use reqwest::blocking::Client;
use serde_json::{Value as Json, json};

use crate::access::configured;
use crate::harness::{PATIENCE, TestServer, asked, until};

/// Says something, waits for a person, and can be undone.
const ORDER: &str = "
schemaVersion: 1
workflowId: order
workspaceId: w
name: Order
version: 1
active: true
executionTier: Auto
actions:
  - actionId: reserve
    order: 1
    portFamily: x
    operation: 'a:b'
    sideEffecting: true
    tool: {kind: shell, cmds: ['echo reserved five', 'echo oops >&2']}
    compensation: {compensationOperation: 'a:c', compensationInput: {}, tool: {kind: shell, cmds: ['echo undone']}}
  - {actionId: mail, order: 2, portFamily: x, operation: 'a:b', sideEffecting: true, tool: {kind: noop}}
  - {actionId: sign, order: 3, portFamily: x, operation: 'a:b', completionMode: manual, tool: {kind: noop}}
";

fn waits(seen: &Json) -> bool {
    seen["ext"]["waitsFor"]
        .to_string()
        .contains("waits for a person")
}

#[test]
fn logs_inbox_and_the_preview_of_an_undo_say_what_is_there() {
    let server = TestServer::start();
    let run = server.start_run(ORDER, &json!({}));
    server.wait_for(&run, waits);
    let (_, logs) = asked(server.get(&format!("/api/v1/runs/{run}/logs")));
    assert_eq!(logs[0]["stepId"], "reserve", "{logs}");
    let (_, page) = asked(server.get(&format!(
        "/api/v1/runs/{run}/logs/reserve?contains=RESERVED"
    )));
    assert_eq!(page["lines"][0]["text"], "reserved five", "{page}");
    let (_, all) = asked(server.get(&format!("/api/v1/runs/{run}/logs/reserve")));
    assert!(all.to_string().contains(r#""stream":"err""#), "{all}");

    let (_, inbox) = asked(server.get("/api/v1/inbox"));
    assert_eq!(inbox["tasks"][0]["stepId"], "sign", "{inbox}");
    assert_eq!(inbox["tasks"][0]["kind"], "manual", "{inbox}");
    let other = server
        .get("/api/v1/inbox")
        .header("stepwell-tenant", "other");
    assert_eq!(asked(other).1["tasks"], json!([]));

    let (_, preview) = asked(server.get(&format!("/api/v1/runs/{run}/undo-preview")));
    assert_eq!(preview["undo"], json!(["reserve"]), "{preview}");
    assert_eq!(preview["cannotUndo"], json!(["mail"]), "{preview}");
    assert_eq!(preview["stays"], json!([]), "{preview}");
    let message = preview["message"].as_str().unwrap();
    assert!(message.contains("`compensate: true`"), "{message}");
    let cancel = json!({ "compensate": true, "reason": "wrong" });
    asked(server.post(&format!("/api/v1/runs/{run}/cancel"), &cancel));
    let ended = server.wait_for(&run, |seen| seen["status"] == "CANCELLED");
    let undone = &ended["ext"]["compensation"];
    let reserve = undone
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["stepId"] == "reserve");
    assert_eq!(reserve.unwrap()["outcome"], "done", "{undone}");
}

#[test]
fn a_cancel_without_undo_says_what_stays_as_it_is() {
    let server = TestServer::start();
    let run = server.start_run(ORDER, &json!({}));
    server.wait_for(&run, waits);
    let slip = format!("/api/v1/runs/{run}/cancel?compensate=true");
    let (status, problem) = asked(server.post(&slip, &json!({})));
    assert_eq!((status, &problem["code"]), (400, &json!("REQUEST_INVALID")));
    let (status, answer) = asked(server.post(&format!("/api/v1/runs/{run}/cancel"), &json!({})));
    assert_eq!(
        (status, &answer["answer"]),
        (200, &json!("DONE")),
        "{answer}"
    );
    assert_eq!(answer["notUndone"], json!(["reserve"]), "{answer}");
    server.wait_for(&run, |seen| seen["status"] == "CANCELLED");
}

#[test]
fn a_bulk_action_says_first_what_it_would_hit() {
    let server = TestServer::start();
    let runs: Vec<String> = (0..3)
        .map(|_| server.start_run(ORDER, &json!({})))
        .collect();
    for run in &runs {
        server.wait_for(run, waits);
    }
    let dry = json!({ "action": "cancel", "filter": { "plan": "order" } });
    let (_, seen) = asked(server.post("/api/v1/runs/bulk", &dry));
    assert_eq!(
        (&seen["dryRun"], &seen["count"]),
        (&json!(true), &json!(3)),
        "{seen}"
    );
    server.wait_for(&runs[0], waits);
    let some = json!({ "action": "cancel", "runs": [runs[0]], "dryRun": false, "reason": "test" });
    let (_, done) = asked(server.post("/api/v1/runs/bulk", &some));
    assert_eq!(
        (&done["count"], &done["runs"][0]["problem"]),
        (&json!(1), &Json::Null),
        "{done}"
    );
    server.wait_for(&runs[0], |seen| seen["status"] == "CANCELLED");
    // A dry run says which runs would refuse and why, and changes nothing.
    let mixed = json!({ "action": "pause", "runs": [runs[0], runs[1]] });
    let (_, seen) = asked(server.post("/api/v1/runs/bulk", &mixed));
    let problem = |run: &String| {
        let rows = seen["runs"].as_array().unwrap().iter();
        let row = { rows }.find(|it| it["runId"] == *run).cloned().unwrap();
        row["problem"]["code"].clone()
    };
    assert_eq!(
        (&seen["count"], &seen["refused"]),
        (&json!(2), &json!(1)),
        "{seen}"
    );
    assert_eq!(problem(&runs[0]), "RUN_TERMINAL", "{seen}");
    assert_eq!(problem(&runs[1]), Json::Null, "{seen}");
    let (_, open) = asked(server.get(&format!("/api/v1/runs/{}", runs[1])));
    assert_eq!(open["status"], "RUNNING", "{open}");
    let vague = json!({ "action": "pause", "dryRun": false });
    let (status, seen) = asked(server.post("/api/v1/runs/bulk", &vague));
    assert_eq!(
        status, 400,
        "every run is meant only if that is said: {seen}"
    );
    let all = json!({ "action": "pause", "all": true, "dryRun": false });
    let other = server
        .post("/api/v1/runs/bulk", &all)
        .header("stepwell-tenant", "other");
    assert_eq!(asked(other).1["count"], 0);
    let (_, done) = asked(server.post("/api/v1/runs/bulk", &all));
    assert_eq!(done["count"], 2, "{done}");
    for run in &runs[1..] {
        server.wait_for(run, |seen| seen["status"] == "PAUSED");
    }
    let (status, seen) = asked(server.post("/api/v1/runs/bulk", &json!({ "action": "retry" })));
    assert_eq!(status, 400, "{seen}");
}

#[test]
fn a_sink_that_is_registered_over_http_gets_the_events() {
    let server = configured("[security.network]\nopen = ['loopback']\n");
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!(
        "webhook:http://{}/hook?key=hidden",
        hook.local_addr().unwrap()
    );
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in hook.incoming() {
            let mut stream = stream.unwrap();
            stream
                .set_read_timeout(Some(Duration::from_millis(300)))
                .unwrap();
            let mut seen = Vec::new();
            let mut page = [0; 8192];
            while let Ok(read) = stream.read(&mut page) {
                seen.extend_from_slice(&page[..read]);
                if read == 0 {
                    break;
                }
            }
            let _ = stream.write_all(
                b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            );
            let _ = tell.send(String::from_utf8_lossy(&seen).into_owned());
        }
    });
    let sink = server
        .client
        .put(format!("{}/api/v1/sinks/hook", server.url));
    let (status, added) = asked(sink.json(&json!({ "address": address })));
    assert_eq!((status, &added["name"]), (200, &json!("hook")), "{added}");
    let (_, list) = asked(server.get("/api/v1/sinks"));
    assert!(!list.to_string().contains("hidden"), "{list}");
    let run = server.start_run(ORDER, &json!({}));
    let body = told.recv_timeout(PATIENCE).unwrap();
    assert!(body.contains(&run), "{body}");
    let bad = server
        .client
        .put(format!("{}/api/v1/sinks/bad", server.url));
    let (status, refused) = asked(bad.json(&json!({ "address": "ftp:x" })));
    assert_eq!(status, 400, "{refused}");
    let remove = |name: &str| {
        asked(
            server
                .client
                .delete(format!("{}/api/v1/sinks/{name}", server.url)),
        )
    };
    assert_eq!(remove("hook").0, 200);
    assert_eq!(remove("hook").1["code"], "SINK_UNKNOWN");
    let tenant = server
        .get("/api/v1/sinks")
        .header("stepwell-tenant", "acme");
    assert_eq!(asked(tenant).0, 403);
}

#[test]
fn a_sink_that_gets_nothing_says_why() {
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|it| it.local_addr())
        .unwrap()
        .port();
    let address = format!("webhook:http://127.0.0.1:{port}/hook");
    let server = configured("[security.network]\nopen = ['loopback']\n");
    let sink = server
        .client
        .put(format!("{}/api/v1/sinks/hook", server.url));
    assert_eq!(asked(sink.json(&json!({ "address": address }))).0, 200);
    let (_, list) = asked(server.get("/api/v1/sinks"));
    assert_eq!(list[0].get("problem"), None, "{list}");
    server.start_run(ORDER, &json!({}));
    let tried = |list: &Json| list[0]["problem"]["attempts"].as_u64() > Some(1);
    let list = until(|| asked(server.get("/api/v1/sinks")).1, tried);
    let problem = &list[0]["problem"];
    let message = problem["message"].as_str().unwrap();
    assert!(message.contains("refused"), "{problem}");
    assert!(problem["nextAt"].is_string(), "{problem}");
}

#[test]
fn a_sink_that_a_server_may_not_reach_is_an_alert() {
    let server = configured("[security.network]\nopen = ['loopback']\n");
    let sink = server
        .client
        .put(format!("{}/api/v1/sinks/closed", server.url));
    let address = json!({ "address": "webhook:http://127.0.0.1:9/hook" });
    assert_eq!(asked(sink.json(&address)).0, 200);
    let folder = server.kill();
    let config = folder.path().join("stepwell.toml");
    std::fs::write(&config, "[security.network]\nopen = []\n").unwrap();
    let server = TestServer::in_folder(folder, &["--config", config.to_str().unwrap()]);
    let found = |list: &Json| list[0]["problem"].is_object();
    let list = until(|| asked(server.get("/api/v1/sinks")).1, found);
    let problem = &list[0]["problem"];
    assert!(
        problem["message"].as_str().unwrap().contains("HOST_DENIED"),
        "{problem}"
    );
    assert_eq!(problem.get("attempts"), None, "{problem}");
    let (_, alerts) = asked(server.get("/api/v1/alerts?code=SINK_UNUSABLE"));
    let message = alerts[0]["message"].as_str().unwrap();
    assert!(message.contains("the sink closed gets nothing"), "{alerts}");
}

#[test]
fn dead_letters_are_named_or_of_one_sink() {
    let server = TestServer::start();
    let (_, attention) = asked(server.get("/api/v1/attention"));
    assert_eq!(attention["deadLetters"]["count"], 0, "{attention}");
    let redrive = |body: &Json| asked(server.post("/api/v1/dead-letters/redrive", body));
    let many: Vec<u32> = (0..1_001).collect();
    for wrong in [
        json!({}),
        json!({ "numbers": [1], "sink": "hook" }),
        json!({ "numbers": many }),
        json!({ "sink": "hook", "all": true }),
    ] {
        let (status, refused) = redrive(&wrong);
        assert_eq!(status, 400, "{refused}");
    }
    for none in [json!({ "sink": "nobody" }), json!({ "numbers": [999_999] })] {
        let (status, done) = redrive(&none);
        assert_eq!((status, &done["count"]), (200, &json!(0)), "{done}");
    }
}

/// The data of the events of one kind, until the last of them is as wanted.
fn streamed(
    server: &TestServer,
    path: &str,
    kind: &str,
    is_last: impl Fn(&Json) -> bool,
) -> Vec<Json> {
    let response = server.get(path).send().unwrap();
    let mut found = Vec::new();
    let mut current = String::new();
    for line in BufReader::new(response).lines() {
        let line = line.unwrap();
        if let Some(name) = line.strip_prefix("event: ") {
            current = name.to_owned();
        }
        if let Some(data) = line.strip_prefix("data: ").filter(|_| current == kind) {
            let data: Json = serde_json::from_str(data).unwrap();
            let last = is_last(&data);
            found.push(data);
            if last {
                break;
            }
        }
    }
    found
}

#[test]
fn streams_of_states_tell_a_run_until_it_has_ended() {
    let server = TestServer::start();
    let run = server.start_run(ORDER, &json!({}));
    let watched = format!("/api/v1/runs/{run}/watch");
    std::thread::scope(|scope| {
        let list = scope.spawn(|| {
            streamed(&server, "/api/v1/stream", "run", |row| {
                row["status"] == "COMPLETED"
            })
        });
        let watch = scope.spawn(|| streamed(&server, &watched, "snapshot", |_| false));
        server.wait_for(&run, waits);
        // The streams are open by then.
        std::thread::sleep(Duration::from_millis(300));
        let path = format!("/api/v1/runs/{run}/steps/sign/complete");
        asked(server.post(&path, &json!({ "outcome": "succeeded" })));
        let rows = list.join().unwrap();
        assert_eq!(rows.last().unwrap()["runId"], run, "{rows:?}");
        let snapshots = watch.join().unwrap();
        let last = snapshots.last().unwrap();
        assert_eq!(
            (&last["status"], &last["stale"]),
            (&json!("COMPLETED"), &json!(false)),
            "{last}"
        );
        let marks: Vec<u64> = snapshots
            .iter()
            .map(|it| it["lastEventSeq"].as_u64().unwrap())
            .collect();
        assert!(marks.is_sorted(), "{marks:?}");
    });
    let (status, resynced) =
        asked(server.post(&format!("/api/v1/runs/{run}/resync?mode=full"), &json!({})));
    assert_eq!(
        (status, &resynced["resync"]),
        (200, &json!("FULL")),
        "{resynced}"
    );
}

#[test]
fn an_answer_that_did_not_change_is_not_sent_again_and_large_ones_are_compressed() {
    let server = TestServer::start();
    let run = server.start_run(ORDER, &json!({}));
    server.wait_for(&run, waits);
    let path = format!("/api/v1/runs/{run}/events");
    let plain = Client::builder().no_gzip().build().unwrap();
    let first = plain
        .get(format!("{}{path}", server.url))
        .header("accept-encoding", "gzip")
        .send()
        .unwrap();
    assert_eq!(first.headers()["content-encoding"], "gzip");
    let tag = first.headers()["etag"].clone();
    let again = server
        .get(&path)
        .header("if-none-match", &tag)
        .send()
        .unwrap();
    assert_eq!(again.status(), 304);
    asked(server.post(&format!("/api/v1/runs/{run}/cancel"), &json!({})));
    server.wait_for(&run, |seen| seen["status"] == "CANCELLED");
    let changed = server
        .get(&path)
        .header("if-none-match", &tag)
        .send()
        .unwrap();
    assert_eq!(changed.status(), 200);
    let given = server
        .get("/healthz")
        .header("x-request-id", "abc-1")
        .send()
        .unwrap();
    assert_eq!(given.headers()["x-request-id"], "abc-1");
    let odd = server
        .get("/healthz")
        .header("x-request-id", "a b")
        .send()
        .unwrap();
    assert_ne!(odd.headers()["x-request-id"], "a b");
}

#[test]
fn metrics_count_requests_commits_and_ended_runs() {
    let server = TestServer::start();
    let run = server.start_run(ORDER, &json!({}));
    asked(server.post(&format!("/api/v1/runs/{run}/cancel"), &json!({})));
    server.wait_for(&run, |seen| seen["status"] == "CANCELLED");
    let text = server.get("/metrics").send().unwrap().text().unwrap();
    for wanted in [
        r#"stepwell_http_requests_total{method="POST",route="/api/v1/runs",status="201"} 1"#,
        r#"stepwell_runs_ended_total{plan="order",outcome="Cancelled"} 1"#,
        "stepwell_commits_total",
        "stepwell_projector_lag_seconds",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
    assert!(!text.contains(&run), "{text}");
}

/// Its undo waits for a file.
const SLOW_UNDO: &str = "
schemaVersion: 1
workflowId: slow-undo
workspaceId: w
name: Slow
version: 1
active: true
executionTier: Auto
actions:
  - actionId: reserve
    order: 1
    portFamily: x
    operation: 'a:b'
    sideEffecting: true
    tool: {kind: noop}
    compensation: {compensationOperation: 'a:c', compensationInput: {}, tool: {kind: shell, cmds: ['while ! test -e go; do sleep 0.05; done']}}
  - {actionId: sign, order: 2, portFamily: x, operation: 'a:b', completionMode: manual, tool: {kind: noop}}
";

#[test]
fn a_bulk_cancel_leaves_out_runs_that_are_undoing_unless_that_is_said() {
    let server = TestServer::start();
    let [undoing, waiting] = [(); 2].map(|()| server.start_run(SLOW_UNDO, &json!({})));
    for run in [&undoing, &waiting] {
        server.wait_for(run, waits);
    }
    let cancel = json!({ "compensate": true });
    asked(server.post(&format!("/api/v1/runs/{undoing}/cancel"), &cancel));
    server.wait_for(&undoing, |seen| {
        seen["substatus"] == "stepwell/COMPENSATING"
    });
    let bulk = |body: Json| {
        let (status, seen) = asked(server.post("/api/v1/runs/bulk", &body));
        assert_eq!(status, 200, "{seen}");
        let rows = seen["runs"].as_array().unwrap().clone();
        let row = |run: &String| {
            rows.iter()
                .find(|it| it["runId"] == *run)
                .cloned()
                .unwrap_or_default()
        };
        (seen["undoing"].clone(), row(&undoing), row(&waiting))
    };
    for action in ["cancel", "cancel_and_undo"] {
        let (left_out, row, other) = bulk(json!({ "action": action, "all": true }));
        assert_eq!(
            (left_out, &row["undo"]),
            (json!(1), &json!("kept")),
            "{row}"
        );
        assert_eq!(other["undo"], Json::Null, "{other}");
        // What has an undo is named before anybody decides, whichever cancel it is.
        let would = json!({ "count": 1, "steps": ["reserve"], "cannotUndo": 0 });
        assert_eq!(
            (&other["wouldUndo"], &row["wouldUndo"]),
            (&would, &Json::Null)
        );
    }
    let (_, _, other) = bulk(json!({ "action": "pause", "all": true }));
    assert_eq!(other["wouldUndo"], Json::Null, "{other}");
    let abandon = json!({ "action": "cancel", "all": true, "abandonUndo": true });
    let (left_out, row, _) = bulk(abandon);
    assert_eq!(
        (left_out, &row["undo"]),
        (json!(0), &json!("dropped")),
        "{row}"
    );

    let cancel = json!({ "action": "cancel", "all": true, "dryRun": false });
    let (left_out, row, other) = bulk(cancel);
    assert_eq!(
        (left_out, &row["undo"]),
        (json!(1), &json!("kept")),
        "{row}"
    );
    assert_eq!(row["problem"]["code"], "RUN_UNDOING", "{row}");
    assert_eq!(other["problem"], Json::Null, "{other}");
    server.wait_for(&waiting, |seen| seen["status"] == "CANCELLED");
    let (_, seen) = asked(server.get(&format!("/api/v1/runs/{undoing}")));
    assert_eq!(seen["substatus"], "stepwell/COMPENSATING", "{seen}");

    let wrong = json!({ "action": "pause", "all": true, "abandonUndo": true });
    assert_eq!(asked(server.post("/api/v1/runs/bulk", &wrong)).0, 400);
    let abandon =
        json!({ "action": "cancel", "runs": [undoing], "abandonUndo": true, "dryRun": false });
    let (_, row, _) = bulk(abandon);
    assert_eq!(
        (&row["undo"], &row["problem"]),
        (&json!("dropped"), &Json::Null),
        "{row}"
    );
    std::fs::write(server.folder.path().join("go"), "").unwrap();
    server.wait_for(&undoing, |seen| seen["status"] == "CANCELLED");
}

#[test]
fn a_failed_step_says_why_it_was_not_tried_again() {
    let server = TestServer::start();
    let not_retried = |policy: &str| {
        let tool = "{kind: shell, cmds: ['exit 2']}";
        let text = format!(
            "{{schemaVersion: 1, workflowId: fails, workspaceId: w, name: F, version: 1, active: true, executionTier: Auto, \
              actions: [{{actionId: go, order: 1, portFamily: x, operation: 'a:b', retryPolicy: {{{policy}}}, tool: {tool}}}]}}"
        );
        let run = server.start_run(&text, &json!({}));
        let seen = server.wait_for(&run, |seen| seen["status"] == "FAILED");
        seen["ext"]["steps"][0]["notRetried"].clone()
    };
    assert_eq!(not_retried("maxAttempts: 1"), Json::Null);
    let all = "maxAttempts: 2, initialBackoffMs: 1, retryableErrors: [external, unknown]";
    assert_eq!(not_retried(all), "all 2 attempts are used");
    let other = not_retried("maxAttempts: 2, retryableErrors: [timeout]");
    let other = other.as_str().unwrap_or_default();
    assert!(
        other.contains("of the class timeout, and this one"),
        "{other}"
    );
}
