//! Starting, reading and steering runs over HTTP.

use std::io::{BufRead as _, BufReader};

use serde_json::{Value as Json, json};

use crate::harness::{TestServer, asked};

/// Writes a line, waits for a person, writes another line.
const SIGNED: &str = "
schemaVersion: 1
workflowId: signed
workspaceId: w
name: Signed
version: 1
active: true
executionTier: Auto
actions:
  - {actionId: write, order: 1, portFamily: x, operation: 'a:b', tool: {kind: shell, cmds: ['echo written >> witness']}}
  - {actionId: sign, order: 2, portFamily: x, operation: 'a:b', completionMode: manual, tool: {kind: noop}}
  - {actionId: send, order: 3, portFamily: x, operation: 'a:b', tool: {kind: shell, cmds: ['echo sent >> witness']}}
";

fn playbook(cmd: &str) -> String {
    format!(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: one, path: one}}\nworkflow:\n\
         - step: start\n  tool: {{kind: shell, cmds: [\"{cmd}\"]}}\n"
    )
}

#[test]
fn a_run_is_started_waited_for_listed_and_read() {
    let server = TestServer::start();
    let body = json!({
        "definition": { "text": playbook("echo hi >> witness") },
        "requestId": "r-1",
        "waitSeconds": 30,
    });
    let (status, first) = asked(server.post("/api/v1/runs", &body));
    assert_eq!((status, &first["created"]), (201, &json!(true)), "{first}");
    assert_eq!(first["run"]["status"], "COMPLETED", "{first}");
    let run = first["runId"].as_str().unwrap();
    let (status, again) = asked(server.post("/api/v1/runs", &body));
    assert_eq!((status, &again["created"]), (200, &json!(false)), "{again}");
    assert_eq!(again["runId"], run);
    let witness = std::fs::read_to_string(server.folder.path().join("witness")).unwrap();
    assert_eq!(witness, "hi\n", "the second request starts nothing");

    let (_, list) = asked(server.get("/api/v1/runs?status=completed"));
    assert_eq!(list["runs"][0]["runId"], run, "{list}");
    let (_, none) = asked(server.get("/api/v1/runs?status=failed"));
    assert_eq!(none["runs"], json!([]));
    let (_, page) = asked(server.get(&format!("/api/v1/runs/{run}/events?after=1&limit=2")));
    let events = page["events"].as_array().unwrap();
    assert_eq!(
        (events.len(), &events[0]["runSeq"]),
        (2, &json!(2)),
        "{page}"
    );
    let (_, before) = asked(server.get(&format!("/api/v1/runs/{run}/at/2")));
    assert_ne!(before["status"], "COMPLETED", "{before}");
    let (_, evidence) = asked(server.get(&format!("/api/v1/runs/{run}/evidence")));
    assert_eq!(evidence["findings"], json!([]), "{evidence}");
}

#[test]
fn a_stream_has_every_event_once_and_goes_on_where_its_reader_was() {
    let server = TestServer::start();
    let run = server.start_run(&playbook("sleep 0.3"), &json!({}));
    let ids = |after: Option<&str>| -> Vec<u64> {
        let mut request = server.get(&format!("/api/v1/runs/{run}/stream"));
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        // The stream ends by itself, because the run does.
        let lines = BufReader::new(request.send().unwrap()).lines();
        let ids = lines.map(Result::unwrap);
        ids.filter_map(|line| line.strip_prefix("id: ").map(|id| id.parse().unwrap()))
            .collect()
    };
    let all = ids(None);
    let wanted: Vec<u64> = (1..=all.len() as u64).collect();
    assert_eq!(all, wanted);
    assert_eq!(ids(Some("3")), wanted[3..]);
}

#[test]
fn a_person_completes_a_step_and_the_second_answer_is_the_first() {
    let server = TestServer::start();
    let run = server.start_run(SIGNED, &json!({}));
    let waits = |seen: &Json| {
        seen["ext"]["waitsFor"]
            .to_string()
            .contains("waits for a person")
    };
    server.wait_for(&run, waits);
    let (_, why) = asked(server.get(&format!("/api/v1/runs/{run}/explain")));
    assert!(
        why["reasons"].to_string().contains("waits for a person"),
        "{why}"
    );
    let path = format!("/api/v1/runs/{run}/steps/sign/complete");
    let answer = |outcome: &str, role: &str| {
        let request = server.post(&path, &json!({ "outcome": outcome, "notes": "fine" }));
        asked(
            request
                .header("stepwell-actor", "Zoë 李雷".as_bytes())
                .header("stepwell-role", role),
        )
    };
    let (status, denied) = answer("succeeded", "operator");
    assert_eq!(
        (status, &denied["code"]),
        (403, &json!("AUTHZ_DENIED")),
        "{denied}"
    );
    let (status, done) = answer("succeeded", "approver");
    assert_eq!((status, &done["answer"]), (200, &json!("DONE")), "{done}");
    let (status, again) = answer("succeeded", "approver");
    assert_eq!(
        (status, &again["answer"]),
        (200, &json!("BEFORE")),
        "{again}"
    );
    let (status, other) = answer("failed", "approver");
    assert_eq!(
        (status, &other["code"]),
        (409, &json!("ANSWER_CONTRADICTED")),
        "{other}"
    );
    let ended = server.wait_for(&run, |seen| seen["status"] == "COMPLETED");
    assert_eq!(ended["ext"]["answers"][0]["by"], "Zoë 李雷", "{ended}");
}

#[test]
fn signals_are_decided_by_the_kernel_and_count_once() {
    let server = TestServer::start();
    let run = server.start_run(SIGNED, &json!({}));
    server.wait_for(&run, |seen| {
        seen["ext"]["waitsFor"]
            .to_string()
            .contains("waits for a person")
    });
    let path = format!("/api/v1/runs/{run}/signals");
    let pause = json!({ "signalType": "PAUSE", "signalId": "p1" });
    let (status, done) = asked(server.post(&path, &pause));
    assert_eq!((status, &done["answer"]), (200, &json!("DONE")), "{done}");
    let (_, again) = asked(server.post(&path, &pause));
    assert_eq!(again["answer"], "BEFORE", "{again}");
    server.wait_for(&run, |seen| seen["status"] == "PAUSED");
    let viewer = server.post(&path, &json!({ "signalType": "RESUME" }));
    let (status, denied) = asked(viewer.header("stepwell-role", "viewer"));
    assert_eq!(status, 403, "{denied}");
    let skip = json!({ "signalType": "SKIP_STEP", "payload": { "stepId": "sign" } });
    let operator = server
        .post(&path, &skip)
        .header("stepwell-role", "operator");
    let (status, denied) = asked(operator);
    assert_eq!(
        (status, &denied["code"]),
        (403, &json!("AUTHZ_DENIED")),
        "{denied}"
    );
    let (status, unknown) = asked(server.post(&path, &json!({ "signalType": "DANCE" })));
    assert_eq!(
        (status, &unknown["code"]),
        (404, &json!("SIGNAL_NOT_FOUND")),
        "{unknown}"
    );
    let cancel = json!({ "reason": "wrong order" });
    let (status, done) = asked(server.post(&format!("/api/v1/runs/{run}/cancel"), &cancel));
    assert_eq!(status, 200, "{done}");
    server.wait_for(&run, |seen| seen["status"] == "CANCELLED");
}

#[test]
fn a_run_goes_on_after_the_server_was_killed() {
    let server = TestServer::start();
    let run = server.start_run(SIGNED, &json!({}));
    server.wait_for(&run, |seen| {
        seen["ext"]["waitsFor"]
            .to_string()
            .contains("waits for a person")
    });
    let server = TestServer::in_folder(server.kill(), &[]);
    let path = format!("/api/v1/runs/{run}/steps/sign/complete");
    let (status, done) = asked(server.post(&path, &json!({ "outcome": "succeeded" })));
    assert_eq!(status, 200, "{done}");
    server.wait_for(&run, |seen| seen["status"] == "COMPLETED");
    let witness = std::fs::read_to_string(server.folder.path().join("witness")).unwrap();
    assert_eq!(witness, "written\nsent\n");
}

#[test]
fn other_tenants_do_not_exist() {
    let server = TestServer::start();
    let body = json!({ "definition": { "text": SIGNED } });
    let of = |tenant: &'static str| {
        move |it: reqwest::blocking::RequestBuilder| it.header("stepwell-tenant", tenant)
    };
    let (status, started) = asked(of("acme")(server.post("/api/v1/runs", &body)));
    assert_eq!(status, 201, "{started}");
    let run = started["runId"].as_str().unwrap();
    let other = of("umbrella");
    for path in [
        "",
        "/events",
        "/explain",
        "/evidence",
        "/artifacts",
        "/stream",
        "/at/1",
    ] {
        let (status, seen) = asked(other(server.get(&format!("/api/v1/runs/{run}{path}"))));
        assert_eq!(
            (status, &seen["code"]),
            (404, &json!("RUN_UNKNOWN")),
            "{path}: {seen}"
        );
        let (_, none) = asked(other(server.get(&format!("/api/v1/runs/run_none{path}"))));
        let as_none = seen.to_string().replace(run, "run_none");
        assert_eq!(as_none, none.to_string());
    }
    for (path, body) in [
        ("signals", json!({ "signalType": "CANCEL" })),
        ("cancel", json!({})),
        ("events", json!({ "id": "e", "type": "t" })),
        ("steps/sign/complete", json!({ "outcome": "succeeded" })),
    ] {
        let path = format!("/api/v1/runs/{run}/{path}");
        let (status, seen) = asked(other(server.post(&path, &body)));
        assert_eq!(
            (status, &seen["code"]),
            (404, &json!("RUN_UNKNOWN")),
            "{path}: {seen}"
        );
    }
    let (_, list) = asked(other(server.get("/api/v1/runs")));
    assert_eq!(list["runs"], json!([]));
    // Whether there is such a tenant or not makes no difference.
    for tenant in ["acme", "nobody"] {
        for path in ["/api/v1/runs", "/api/v1/runs/counts", "/api/v1/definitions"] {
            let (status, denied) = asked(other(server.get(&format!("{path}?tenant={tenant}"))));
            assert_eq!(
                (status, &denied["code"]),
                (403, &json!("AUTHZ_TENANT_FORBIDDEN")),
                "{path}: {denied}"
            );
            assert!(!denied.to_string().contains(tenant), "{denied}");
        }
    }
    let theirs = json!({ "definition": { "text": SIGNED }, "tenant": "acme" });
    let (status, denied) = asked(other(server.post("/api/v1/runs", &theirs)));
    assert_eq!(status, 403, "{denied}");
}

#[test]
fn what_cannot_be_read_is_a_problem_with_a_page() {
    let server = TestServer::start();
    let cases = [
        (
            server.post("/api/v1/runs", &json!({})),
            400,
            "REQUEST_INVALID",
        ),
        (
            server.post("/api/v1/runs", &json!({ "definition": { "text": "x: [" } })),
            422,
            "SOURCE_SYNTAX",
        ),
        (
            server.post(
                "/api/v1/runs",
                &json!({ "definition": { "text": SIGNED }, "requestId": "a|b" }),
            ),
            422,
            "INVALID_ID",
        ),
        (
            server.post(
                "/api/v1/runs",
                &json!({ "definition": { "text": SIGNED }, "params": [1] }),
            ),
            400,
            "REQUEST_INVALID",
        ),
        (server.get("/api/v1/runs?limit=0"), 400, "REQUEST_INVALID"),
        (
            server.get("/api/v1/runs?status=odd"),
            400,
            "REQUEST_INVALID",
        ),
        (
            server.get("/api/v1/runs?statsu=failed"),
            400,
            "REQUEST_INVALID",
        ),
        (
            server.get("/api/v1/runs?before=run_none"),
            404,
            "RUN_UNKNOWN",
        ),
        (server.get("/api/v1/nothing"), 404, "ENDPOINT_UNKNOWN"),
        (
            server.client.delete(format!("{}/api/v1/runs", server.url)),
            405,
            "METHOD_NOT_ALLOWED",
        ),
        (
            server.post("/api/v1/events", &json!({ "id": "", "type": "t" })),
            422,
            "INVALID_ID",
        ),
        (
            server
                .get("/api/v1/runs")
                .header("origin", "https://evil.example"),
            403,
            "ORIGIN_DENIED",
        ),
        (
            server.get("/api/v1/runs").header("host", "evil.example"),
            403,
            "ORIGIN_DENIED",
        ),
    ];
    for (request, status, code) in cases {
        let (seen, problem) = asked(request);
        assert_eq!(
            (seen, &problem["code"]),
            (status, &json!(code)),
            "{problem}"
        );
        let page = problem["type"].as_str().unwrap();
        let (seen, text) = asked(server.get(page));
        assert_eq!(seen, 200, "{code}: {text}");
    }
    let large = json!({ "definition": { "text": "x".repeat(9 * 1024 * 1024) } });
    let (status, problem) = asked(server.post("/api/v1/runs", &large));
    assert_eq!(
        (status, &problem["code"]),
        (413, &json!("BODY_TOO_LARGE")),
        "{problem}"
    );
}

#[test]
fn an_event_before_its_run_is_kept_and_counts_once() {
    let server = TestServer::start();
    let event =
        json!({ "id": "e1", "type": "order.paid", "key": "order-7", "payload": { "sum": 3 } });
    let (status, kept) = asked(server.post("/api/v1/events", &event));
    assert_eq!(
        (status, &kept["delivered"]),
        (200, &json!("KEPT")),
        "{kept}"
    );
    let (_, again) = asked(server.post("/api/v1/events", &event));
    assert_eq!(again["delivered"], "AGAIN", "{again}");
}

#[test]
fn a_list_is_filtered_searched_counted_and_paged() {
    let server = TestServer::start();
    for (number, team) in [(1, "blue"), (2, "blue"), (3, "red")] {
        let body = json!({
            "definition": { "text": playbook("true") },
            "labels": { "team": team, "number": number.to_string() },
            "requestId": format!("r{number}"),
            "waitSeconds": 30,
        });
        assert_eq!(asked(server.post("/api/v1/runs", &body)).0, 201);
    }
    let found = |query: &str| {
        let (status, page) = asked(server.get(&format!("/api/v1/runs?{query}")));
        assert_eq!(status, 200, "{query}: {page}");
        page["runs"].as_array().unwrap().len()
    };
    for (query, wanted) in [
        ("", 3),
        ("labels=team=blue", 2),
        ("labels=team=blue,number=2", 1),
        ("text=RED", 1),
        ("language=playbook&status=completed,failed", 3),
        ("language=dag", 0),
        ("open=true", 0),
        (
            "createdFrom=2020-01-01T00:00:00Z&createdUntil=2021-01-01T00:00:00Z",
            0,
        ),
        ("endedFrom=2020-01-01T00:00:00Z", 3),
    ] {
        assert_eq!(found(query), wanted, "{query}");
    }
    let (_, counts) = asked(server.get("/api/v1/runs/counts?labels=team=blue"));
    assert_eq!(counts, json!({ "counts": { "COMPLETED": 2 }, "total": 2 }));
    let (_, first) = asked(server.get("/api/v1/runs?limit=2"));
    let next = first["next"].as_str().unwrap();
    let (_, second) = asked(server.get(&format!("/api/v1/runs?limit=2&before={next}")));
    assert_eq!(second["runs"].as_array().unwrap().len(), 1, "{second}");
    assert_eq!(second["next"], Json::Null);
    let odd = json!({ "definition": { "text": playbook("true") }, "labels": { "a=b": "c" } });
    let (status, seen) = asked(server.post("/api/v1/runs", &odd));
    assert_eq!((status, &seen["code"]), (422, &json!("LABELS_INVALID")));
}
