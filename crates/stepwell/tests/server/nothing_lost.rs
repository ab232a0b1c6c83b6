//! What is answered with success is done, and what cannot be done is told: repetitions of runs and of requests, deliveries,
//! due times, triggers, children.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};
use stepwell_bus::signature;

use crate::access::configured;
use crate::harness::{TestServer, asked, stream, until};
use crate::stores::{Place, on_each_store};

/// A linear run with a business key, which ends after an event.
const KEYED: &str = r#"
workflowType: keyed
workflowVersion: 1
bizKey: "{{ workload.k }}"
steps:
  - {stepType: ARRIVE, waitFor: {event: arrived, timeout: 24h}}
"#;

/// A run that waits for a person.
const WAITS: &str = "
schemaVersion: 1
workflowId: waits
workspaceId: w
name: Waits
version: 1
active: true
executionTier: Auto
actions:
  - {actionId: sign, order: 1, portFamily: x, operation: 'a:b', completionMode: manual, tool: {kind: noop}}
";

fn playbook(name: &str, tool: &str) -> String {
    format!(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: {name}}}\nworkflow:\n\
         - {{step: start, tool: {tool}}}\n"
    )
}

fn register(server: &TestServer, text: &str) {
    let (status, answer) = asked(server.post("/api/v1/definitions", &json!({ "text": text })));
    assert!(status < 300, "{answer}");
}

fn code(answer: &(u16, Json)) -> (u16, &str) {
    (answer.0, answer.1["code"].as_str().unwrap_or_default())
}

on_each_store!(
    a_repetition_that_cannot_be_created_is_refused,
    a_bulk_request_that_is_repeated_reaches_for_no_other_runs,
    ids_with_nul_are_refused,
);

fn a_repetition_that_cannot_be_created_is_refused(place: Place) {
    let Some(server) = place.server("") else {
        return;
    };
    let run = server.start_run(KEYED, &json!({ "k": "odd" }));
    let arrived = json!({ "id": "e1", "type": "arrived" });
    let (status, seen) = asked(server.post(&format!("/api/v1/runs/{run}/events"), &arrived));
    assert_eq!(status, 200, "{seen}");
    server.wait_for(&run, |it| it["status"] == "COMPLETED");
    let retry = |id: &str| {
        let signal =
            json!({ "signalType": "RETRY_RUN", "payload": {}, "reason": "r", "signalId": id });
        asked(server.post(&format!("/api/v1/runs/{run}/signals"), &signal))
    };
    let (status, first) = retry("s1");
    assert_eq!(status, 200, "{first}");
    let second = first["repeatedAs"].as_str().unwrap().to_owned();
    // Who is told the id can look at the run at once.
    let (status, seen) = asked(server.get(&format!("/api/v1/runs/{second}")));
    assert_eq!(status, 200, "{seen}");
    server.wait_for(&second, |it| it["status"] == "RUNNING");
    // The same signal again is the same run, and another one finds the key taken.
    let (status, again) = retry("s1");
    assert_eq!((status, &again["repeatedAs"]), (200, &json!(second)));
    let refused = retry("s2");
    assert_eq!(code(&refused), (409, "BIZ_KEY_TAKEN"), "{refused:?}");
    let bulk = json!({ "action": "retry", "dryRun": false, "runs": [run] });
    let (_, answer) = asked(server.post("/api/v1/runs/bulk", &bulk));
    assert_eq!(
        answer["runs"][0]["problem"]["code"], "BIZ_KEY_TAKEN",
        "{answer}"
    );
    let (_, list) = asked(server.get("/api/v1/runs"));
    assert_eq!(list["runs"].as_array().unwrap().len(), 2, "{list}");
}

#[test]
fn a_repetition_for_which_no_slot_is_free_is_refused() {
    let server = configured("[limits]\nruns = 1\nwhen_full = 'reject'\n");
    let text = playbook("quick", "{kind: sleep, seconds: 0}");
    let body = json!({ "definition": { "text": text }, "waitSeconds": 30 });
    let (_, ended) = asked(server.post("/api/v1/runs", &body));
    let run = ended["runId"].as_str().unwrap().to_owned();
    server.wait_for(&run, |it| it["status"] == "COMPLETED");
    server.start_run(WAITS, &json!({}));
    let signal = json!({ "signalType": "RETRY_RUN", "payload": {}, "reason": "r" });
    let refused = asked(server.post(&format!("/api/v1/runs/{run}/signals"), &signal));
    assert_eq!(code(&refused), (429, "CONCURRENCY_LIMIT"), "{refused:?}");
}

fn a_bulk_request_that_is_repeated_reaches_for_no_other_runs(place: Place) {
    let Some(server) = place.server("") else {
        return;
    };
    for _ in 0..4 {
        let body = json!({ "definition": { "text": WAITS }, "labels": { "grp": "x" } });
        assert_eq!(asked(server.post("/api/v1/runs", &body)).0, 201);
    }
    let cancel = |limit: usize| {
        let body = json!({ "action": "cancel", "dryRun": false, "requestId": "b1",
            "filter": { "labels": "grp=x", "limit": limit } });
        asked(server.post("/api/v1/runs/bulk", &body))
    };
    let ids = |answer: &Json| -> Vec<Json> {
        let runs = answer["runs"].as_array().unwrap().iter();
        runs.map(|it| it["runId"].clone()).collect()
    };
    let (status, first) = cancel(2);
    assert_eq!((status, &first["count"]), (200, &json!(2)), "{first}");
    let (status, again) = cancel(2);
    assert_eq!((status, ids(&again)), (200, ids(&first)), "{again}");
    let open = || {
        let (_, list) = asked(server.get("/api/v1/runs?open=true"));
        list["runs"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(until(open, |open| *open == 2), 2);
    let other = cancel(3);
    assert_eq!(code(&other), (409, "REQUEST_CONTRADICTED"), "{other:?}");
}

fn ids_with_nul_are_refused(place: Place) {
    let Some(server) = place.server("") else {
        return;
    };
    for (id, kind, key) in [("x\0", "t", "k"), ("x", "t\0", "k"), ("x", "t", "k\0")] {
        let event = json!({ "id": id, "type": kind, "key": key });
        let refused = asked(server.post("/api/v1/events", &event));
        assert_eq!(code(&refused), (422, "INVALID_ID"), "{refused:?}");
    }
    let url = format!("{}/api/v1/sinks/%00", server.url);
    let refused = asked(server.client.delete(url));
    assert_eq!(code(&refused), (404, "SINK_UNKNOWN"), "{refused:?}");
}

#[test]
fn deliveries_with_different_ids_are_different_deliveries() {
    // The example of GitHub's documentation.
    let (secret, body) = ("It's a Secret to Everybody", "Hello, World!");
    let signed = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let server = TestServer::with_env(
        tempfile::tempdir().unwrap(),
        &[],
        &[("STEPWELL_SECRET_HOOK", secret)],
    );
    register(&server, &playbook("build", "{kind: sleep, seconds: 0}"));
    for (name, style) in [("gh", "github"), ("st", "stripe")] {
        let hook = json!({ "target": { "start": { "definition": "build" } }, "signature": { style: {} },
            "secret": "env://STEPWELL_SECRET_HOOK" });
        let url = format!("{}/api/v1/webhooks/{name}", server.url);
        let (status, seen) = asked(server.client.put(url).json(&hook));
        assert_eq!(status, 201, "{seen}");
    }
    let deliver = |id: &str| {
        let url = format!("{}/hooks/local/gh", server.url);
        let request = server.client.post(url).header("x-github-delivery", id);
        asked(request.header("x-hub-signature-256", signed).body(body))
    };
    let long = "d".repeat(3_000);
    let mut runs = Vec::new();
    for id in [long.as_str(), "d|x", "d|y", "plain"] {
        let (status, seen) = deliver(id);
        assert_eq!((status, &seen["created"]), (202, &json!(true)), "{seen}");
        runs.push(seen["runId"].to_string());
        let (status, again) = deliver(id);
        assert_eq!((status, &again["runId"]), (200, &seen["runId"]), "{again}");
    }
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 4, "{runs:?}");
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let at = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let signed = signature(secret.as_bytes(), at, deep.as_bytes());
    let url = format!("{}/hooks/local/st", server.url);
    let request = server.client.post(url).body(deep);
    let refused = asked(request.header("stripe-signature", format!("t={at},v1={signed}")));
    assert_eq!(code(&refused), (422, "WEBHOOK_INVALID"), "{refused:?}");
}

#[test]
fn a_schedule_or_trigger_that_starts_nothing_says_so() {
    let server = TestServer::start();
    register(&server, &playbook("tick", "{kind: sleep, seconds: 0}"));
    let put = |body: &Json| {
        let url = format!("{}/api/v1/schedules/s", server.url);
        asked(server.client.put(url).json(body))
    };
    for project in ["p".repeat(300), "a\0".to_owned()] {
        let body = json!({ "definition": "tick", "cron": "* * * * * *", "project": project });
        let refused = put(&body);
        assert_eq!(code(&refused), (422, "INVALID_ID"), "{refused:?}");
    }
    assert_eq!(
        put(&json!({ "definition": "tick", "cron": "* * * * * *" })).0,
        201
    );
    let path = "/api/v1/definitions/tick/revisions/1/deprecate";
    assert_eq!(asked(server.post(path, &json!({}))).0, 200);
    let seen = until(
        || asked(server.get("/api/v1/schedules/s")).1,
        |it| it["missedTotal"].as_u64() > Some(1),
    );
    assert!(seen.to_string().contains("DEFINITION_DEPRECATED"), "{seen}");
    let alerts = || asked(server.get("/api/v1/alerts")).1.to_string();
    let said = until(alerts, |it| it.contains("SCHEDULE_FAILED"));
    assert_eq!(said.matches("SCHEDULE_FAILED").count(), 1, "{said}");
    let metrics = server.get("/metrics").send().unwrap().text().unwrap();
    let missed = metrics
        .lines()
        .find(|it| it.starts_with("stepwell_schedules_missed_total"));
    assert!(!missed.unwrap().ends_with(" 0"), "{missed:?}");

    register(
        &server,
        "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: paid}\nspec:\n  timeout: 1h\n  \
         trigger: {event: paid, condition: '{{ event.n > 5 }}'}\n  steps:\n    - {name: s, timeout: 1m, tool: {kind: noop}}\n",
    );
    let event = json!({ "id": "e1", "type": "paid", "payload": { "n": "notnumber" } });
    assert_eq!(asked(server.post("/api/v1/events", &event)).0, 200);
    let said = until(alerts, |it| it.contains("TRIGGER_FAILED"));
    assert!(said.contains("e1"), "{said}");
}

#[test]
fn a_child_definition_that_is_deprecated_is_told_as_such() {
    let server = TestServer::start();
    register(&server, &playbook("kid", "{kind: sleep, seconds: 0}"));
    let path = "/api/v1/definitions/kid/revisions/1/deprecate";
    assert_eq!(asked(server.post(path, &json!({}))).0, 200);
    for (path, why) in [
        ("kid", "DEFINITION_DEPRECATED"),
        ("nobody", "there is no definition"),
    ] {
        let run = server.start_run(
            &playbook("parent", &format!("{{kind: playbook, path: {path}}}")),
            &json!({}),
        );
        let seen = server.wait_for(&run, |it| it["status"] == "FAILED");
        assert!(seen.to_string().contains(why), "{seen}");
    }
}

#[test]
fn what_a_request_says_twice_must_be_the_same_and_logs_are_of_steps() {
    let server = TestServer::start();
    let body = json!({ "definition": { "text": WAITS }, "requestId": "one" });
    let start = |key: &str| {
        let request = server.post("/api/v1/runs", &body);
        asked(request.header("idempotency-key", key))
    };
    let refused = start("two");
    assert_eq!(code(&refused), (400, "REQUEST_INVALID"), "{refused:?}");
    let (status, seen) = start("one");
    assert_eq!(status, 201, "{seen}");
    let run = seen["runId"].as_str().unwrap();
    let logs = |rest: &str| asked(server.get(&format!("/api/v1/runs/{run}/logs/{rest}")));
    assert_eq!(logs("sign/1").0, 200, "it has written nothing");
    for rest in ["..%2f..%2fetc/1", "none", "none/1", "none/1/search?text=x"] {
        let refused = logs(rest);
        assert_eq!(code(&refused), (404, "STEP_UNKNOWN"), "{rest}: {refused:?}");
    }
    // A reader that has seen more than there is has read another log.
    let request = server.get(&format!("/api/v1/runs/{run}/stream"));
    let told: Vec<_> = stream(request.header("last-event-id", "500"))
        .take(2)
        .collect();
    assert_eq!(told[0].event, "resync", "{told:?}");
    assert_eq!(told[1].id.as_deref(), Some("1"), "{told:?}");
    // Alerts in the log of the server name the run as everybody does.
    let signal =
        json!({ "signalType": "UPDATE_PARAMS", "payload": { "params": {} }, "reason": "r" });
    asked(server.post(&format!("/api/v1/runs/{run}/signals"), &signal));
    until(
        || server.log.lock().unwrap().clone(),
        |log| {
            let line = log.lines().find(|it| it.contains("DESTRUCTIVE_SIGNAL"));
            line.is_some_and(|it| it.contains(run) && it.contains("local"))
        },
    );
}

#[test]
fn the_audit_log_says_which_definition_signal_and_action() {
    let server = TestServer::start();
    register(&server, &playbook("named", "{kind: sleep, seconds: 0}"));
    let run = server.start_run(WAITS, &json!({}));
    let signal = json!({ "signalType": "PAUSE", "payload": {} });
    asked(server.post(&format!("/api/v1/runs/{run}/signals"), &signal));
    for dry_run in [true, false] {
        let body = json!({ "action": "pause", "dryRun": dry_run, "all": true });
        asked(server.post("/api/v1/runs/bulk", &body));
    }
    asked(server.post("/api/v1/events", &json!({ "id": "e7", "type": "paid" })));
    let wanted = [
        "named/1".to_owned(),
        format!("{run}/PAUSE"),
        "pause/dryRun".to_owned(),
        "pause".to_owned(),
        "paid/e7".to_owned(),
    ];
    until(
        || {
            let (_, page) = asked(server.get("/api/v1/audit"));
            let rows = page["rows"].as_array().unwrap().iter();
            rows.map(|it| it["target"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        },
        |targets| wanted.iter().all(|it| targets.contains(it)),
    );
}

#[test]
fn every_language_is_started_by_reference_and_links_do_not_lead_out() {
    let folder = tempfile::tempdir().unwrap();
    let plans = folder.path().join("plans");
    std::fs::create_dir(&plans).unwrap();
    let allow = format!("file://{}/", plans.display());
    let config = format!("[plans]\nallow = ['{allow}']\n");
    std::fs::write(folder.path().join("stepwell.toml"), config).unwrap();
    let dag = "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: d}\nspec:\n  timeout: 1h\n  \
        steps:\n    - {name: s, timeout: 1m, tool: {kind: noop}}\n";
    let book = playbook("b", "{kind: sleep, seconds: 0}");
    for (name, text) in [("b", book.as_str()), ("d", dag)] {
        std::fs::write(plans.join(format!("{name}.yaml")), text).unwrap();
    }
    std::fs::write(folder.path().join("secret.yaml"), &book).unwrap();
    std::os::unix::fs::symlink(folder.path().join("secret.yaml"), plans.join("link.yaml")).unwrap();
    let server = TestServer::in_folder(folder, &[]);
    let start = |file: &str, schema: &str, id: &str, text: &str| {
        let (_, checked) = asked(server.post("/api/v1/check", &json!({ "text": text })));
        let reference = json!({ "uri": format!("{allow}{file}.yaml"), "sha256": checked["sha256"],
            "schemaVersion": schema, "planId": id, "planVersion": checked["planVersion"] });
        let body = json!({ "definition": { "reference": reference }, "waitSeconds": 30 });
        asked(server.post("/api/v1/runs", &body))
    };
    for (file, schema, text) in [("b", "v2.0", book.as_str()), ("d", "v0.2", dag)] {
        let (status, seen) = start(file, schema, file, text);
        assert_eq!(
            (status, &seen["run"]["status"]),
            (201, &json!("COMPLETED")),
            "{seen}"
        );
    }
    let (status, seen) = start("link", "v2.0", "b", &book);
    assert_eq!(status, 422, "{seen}");
    assert!(seen.to_string().contains("PLAN_URI_NOT_ALLOWED"), "{seen}");
}
