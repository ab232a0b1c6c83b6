//! The web UI as files of the server, and what the API has for it.

use serde_json::{Value as Json, json};

use crate::harness::{TestServer, asked};

const SAGA: &str = "
schemaVersion: 1
workflowId: saga
workspaceId: w
name: Saga
version: 1
active: true
executionTier: Auto
actions:
  - actionId: talk
    order: 1
    portFamily: x
    operation: 'a:b'
    tool: {kind: shell, cmds: ['for i in 1 2 3 4 5; do echo Line $i; done; echo needle >&2']}
  - actionId: sign
    order: 2
    portFamily: x
    operation: 'a:b'
    executionTierOverride: HumanApprove
    separationOfDuties: [MakerChecker]
    tool: {kind: noop}
";

fn waits(seen: &Json) -> bool {
    seen["ext"]["waitsFor"].to_string().contains("outside")
}

#[test]
fn the_page_is_served_at_the_root_and_asks_for_nothing_from_elsewhere() {
    let server = TestServer::start();
    let page = server.get("/").send().unwrap();
    assert_eq!(page.status(), 200);
    let headers = page.headers().clone();
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    let text = page.text().unwrap();
    assert!(text.contains("<div id=\"app\">"), "{text}");
    assert!(!text.contains("https://"), "{text}");
    let script = server.get("/assets/app.js").send().unwrap();
    assert_eq!(
        script.headers()["content-type"],
        "text/javascript; charset=utf-8"
    );
    let (status, problem) = asked(server.get("/assets/none.js"));
    assert_eq!(
        (status, &problem["code"]),
        (404, &json!("ENDPOINT_UNKNOWN"))
    );
}

#[test]
fn what_may_be_done_is_what_the_kernel_would_do() {
    let server = TestServer::start();
    let body = json!({ "definition": { "text": SAGA } });
    let (_, started) = asked(
        server
            .post("/api/v1/runs", &body)
            .header("stepwell-actor", "ada"),
    );
    let run = started["runId"].as_str().unwrap().to_owned();
    server.wait_for(&run, waits);
    let actions = |actor: &str, role: &str| {
        let request = server.get(&format!("/api/v1/runs/{run}/actions?step=sign"));
        let request = request.header("stepwell-actor", actor);
        asked(request.header("stepwell-role", role)).1
    };
    let of = |all: &Json, name: &str| -> Json {
        let rows = all.as_array().unwrap();
        let row = rows.iter().find(|it| it["action"] == name);
        row.unwrap_or_else(|| panic!("{name} in {all}")).clone()
    };
    let maker = actions("ada", "admin");
    assert_eq!(of(&maker, "PAUSE")["allowed"], true, "{maker}");
    assert_eq!(of(&maker, "RESUME")["allowed"], false, "{maker}");
    assert_eq!(
        of(&maker, "COMPLETE")["allowed"],
        false,
        "the maker may not approve: {maker}"
    );
    assert!(of(&maker, "COMPLETE")["detail"].is_string());
    let checker = actions("bob", "admin");
    assert_eq!(of(&checker, "COMPLETE")["allowed"], true, "{checker}");
    let viewer = actions("vera", "viewer");
    assert_eq!(of(&viewer, "PAUSE")["code"], "AUTHZ_DENIED", "{viewer}");
    // A role that would not do is not asked for.
    for role in ["viewer", "operator"] {
        let seen = of(&actions("vera", role), "RETRY_STEP");
        assert_eq!(
            seen["detail"], "retry_step needs the role engineer",
            "{role}"
        );
    }
    // Nothing was changed by asking.
    let (_, events) = asked(server.get(&format!("/api/v1/runs/{run}/events")));
    assert!(!events.to_string().contains("Signal"), "{events}");
    let path = format!("/api/v1/runs/{run}/steps/sign/complete");
    let answer = server.post(&path, &json!({ "outcome": "succeeded" }));
    assert_eq!(asked(answer.header("stepwell-actor", "bob")).0, 200);
}

#[test]
fn a_moment_of_the_past_has_all_that_the_present_has() {
    let server = TestServer::start();
    let run = server.start_run(SAGA, &json!({ "colour": "blue" }));
    let now = server.wait_for(&run, waits);
    assert_eq!(now["ext"]["params"]["colour"], "blue");
    let reason = &now["ext"]["waitsFor"][0];
    assert!(reason["since"].is_string(), "{reason}");
    let word = |seen: &Json, step: &str| {
        let steps = seen["ext"]["steps"].as_array().unwrap();
        let found = steps.iter().find(|it| it["stepId"] == step).unwrap();
        found["word"].clone()
    };
    assert_eq!(word(&now, "talk"), "Succeeded");
    let (_, then) = asked(server.get(&format!("/api/v1/runs/{run}/at/5")));
    assert_eq!(then["lastEventSeq"], 5, "{then}");
    assert_eq!(word(&then, "talk"), "Running", "{then}");
    assert_eq!(then["ext"]["params"]["colour"], "blue");
    let (status, problem) = asked(server.get(&format!("/api/v1/runs/{run}/at/5000")));
    assert_eq!((status, &problem["code"]), (404, &json!("EVENT_UNKNOWN")));
}

#[test]
fn a_list_speaks_the_language_of_the_run_and_is_filtered_by_its_words() {
    let server = TestServer::start();
    let run = server.start_run(SAGA, &json!({}));
    server.wait_for(&run, waits);
    let (_, all) = asked(server.get("/api/v1/runs"));
    assert_eq!(all["runs"][0]["word"], "WaitingForApproval", "{all}");
    let found = |query: &str| {
        let (status, page) = asked(server.get(&format!("/api/v1/runs?{query}")));
        (status, page["runs"].as_array().map_or(0, Vec::len))
    };
    assert_eq!(found("language=actions&state=WaitingForApproval"), (200, 1));
    assert_eq!(found("language=actions&state=Running"), (200, 0));
    assert_eq!(found("language=actions&state=Succeeded"), (200, 0));
    assert_eq!(found("language=actions&state=nonsense").0, 400);
    assert_eq!(found("state=Running").0, 400, "a state needs its language");
    let (_, languages) = asked(server.get("/api/v1/languages"));
    let words = languages.as_array().unwrap();
    assert_eq!(words.len(), 5);
    assert!(
        words[0]["run"].to_string().contains("WaitingForApproval"),
        "{languages}"
    );
    let (status, schema) = asked(server.get("/api/v1/languages/dag/schema"));
    assert_eq!(status, 200);
    assert!(schema["properties"].is_object(), "{schema}");
    assert_eq!(asked(server.get("/api/v1/languages/cobol/schema")).0, 400);
}

#[test]
fn a_part_of_a_log_is_read_from_its_end_from_a_place_and_by_a_text() {
    let server = TestServer::start();
    let run = server.start_run(SAGA, &json!({}));
    server.wait_for(&run, waits);
    let part = |query: &str| asked(server.get(&format!("/api/v1/runs/{run}/logs/talk/1{query}"))).1;
    let whole = part("?from=0");
    let lines = whole["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 6, "{whole}");
    assert_eq!(whole["next"], whole["size"]);
    let third = lines[2]["atByte"].as_u64().unwrap();
    let rest = part(&format!("?from={third}"));
    assert_eq!(rest["lines"].as_array().unwrap().len(), 4, "{rest}");
    let end = part("?bytes=200");
    assert!(end["first"].as_u64().unwrap() > 0, "{end}");
    let found = part("/search?text=NEEDLE");
    assert_eq!(found["lines"][0]["stream"], "err", "{found}");
    assert_eq!(part("/search?text=haystack")["lines"], json!([]));
}

#[test]
fn a_check_gives_the_net_if_it_is_asked_for_and_is_no_row_of_the_audit_log() {
    let server = TestServer::start();
    let (_, plain) = asked(server.post("/api/v1/check", &json!({ "text": SAGA })));
    assert_eq!(
        (&plain["valid"], &plain["net"]),
        (&json!(true), &Json::Null)
    );
    let (_, drawn) = asked(server.post("/api/v1/check", &json!({ "text": SAGA, "net": true })));
    assert_eq!(drawn["net"]["steps"][0]["name"], "talk", "{drawn}");
    let (_, session) = asked(server.get("/api/v1/session"));
    assert_eq!(session["access"], "open");
    assert!(
        session["rights"].to_string().contains("administer"),
        "{session}"
    );
    server.start_run(SAGA, &json!({}));
    let rows = crate::harness::until(
        || asked(server.get("/api/v1/audit")).1,
        |seen| seen["rows"].to_string().contains("/api/v1/runs"),
    );
    assert!(!rows.to_string().contains("/api/v1/check"), "{rows}");
}
