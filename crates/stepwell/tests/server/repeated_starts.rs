//! Start requests with an id that was used before: the same content finds the first run, other content is refused. Start
//! requests that repeat a run.

use serde_json::{Value as Json, json};

use crate::access::{bearer, controlled, token};
use crate::harness::{TestServer, asked};
use crate::stores::{Place, on_each_store};
use crate::workers::servers;

const NAMED: &str = "
workflowType: hello
workflowVersion: 1
steps:
  - {stepType: SAY, tool: {kind: noop}}
";

fn started(server: &TestServer, body: &Json) -> (u16, Json) {
    asked(server.post("/api/v1/runs", body))
}

fn with(body: &Json, field: &str, value: Json) -> Json {
    let mut body = body.clone();
    body[field] = value;
    body
}

#[test]
fn a_request_id_with_other_content_is_refused() {
    for server in servers(&[]) {
        let large = "x".repeat(300_000);
        let body = json!({
            "definition": { "text": NAMED }, "requestId": "r-1", "labels": { "team": "a" },
            "params": { "amount": 1, "large": { "text": large } },
        });
        let (status, first) = started(&server, &body);
        assert_eq!(status, 201, "{first}");
        let (status, again) = started(&server, &body);
        assert_eq!((status, &again["runId"]), (200, &first["runId"]), "{again}");
        assert_eq!(again["created"], false, "{again}");
        // When it is to start is no content: a request may be repeated later.
        let later = with(&body, "startAt", json!("2099-01-01T00:00:00Z"));
        assert_eq!(started(&server, &later).0, 200);

        let mut other_large = body["params"].clone();
        other_large["large"]["text"] = json!(format!("{large}y"));
        let text = NAMED.replace("SAY", "SHOUT");
        for (what, other) in [
            (
                "amount",
                with(
                    &body,
                    "params",
                    json!({ "amount": 2, "large": { "text": large } }),
                ),
            ),
            ("large", with(&body, "params", other_large)),
            ("labels", with(&body, "labels", json!({ "team": "b" }))),
            ("priority", with(&body, "priority", json!(7))),
            (
                "definition",
                with(&body, "definition", json!({ "text": text })),
            ),
        ] {
            let (status, refused) = started(&server, &other);
            assert_eq!(status, 409, "{what}: {refused}");
            assert_eq!(refused["code"], "REQUEST_CONTRADICTED", "{what}: {refused}");
            assert!(refused["detail"].to_string().contains(what), "{refused}");
        }
        let (_, list) = asked(server.get("/api/v1/runs"));
        assert_eq!(list["runs"].as_array().unwrap().len(), 1, "{list}");
        // The large parameter of the first run is what it was.
        let run = first["runId"].as_str().unwrap();
        server.wait_for(run, |seen| seen["status"] == "COMPLETED");
        let same = with(&body, "waitSeconds", json!(1));
        assert_eq!(started(&server, &same).0, 200);

        let by_header = |amount: u32| {
            let body = json!({ "definition": { "text": NAMED }, "params": { "amount": amount } });
            let request = server.post("/api/v1/runs", &body);
            asked(request.header("idempotency-key", "h-1"))
        };
        assert_eq!(by_header(1).0, 201);
        assert_eq!(by_header(1).0, 200);
        let (status, refused) = by_header(2);
        assert_eq!(
            (status, &refused["code"]),
            (409, &json!("REQUEST_CONTRADICTED"))
        );
    }
}

#[test]
fn a_definition_that_is_named_may_have_changed_since() {
    let server = TestServer::start();
    let register = |text: &str| {
        let (status, answer) = asked(server.post("/api/v1/definitions", &json!({ "text": text })));
        assert!(status < 300, "{answer}");
    };
    register(NAMED);
    let body =
        json!({ "definition": { "name": "hello" }, "requestId": "r-1", "params": { "n": 1 } });
    let (status, first) = started(&server, &body);
    assert_eq!(status, 201, "{first}");
    register(&NAMED.replace("SAY", "SHOUT"));
    let (status, again) = started(&server, &body);
    assert_eq!((status, &again["runId"]), (200, &first["runId"]), "{again}");
    let (status, refused) = started(&server, &with(&body, "params", json!({ "n": 2 })));
    assert_eq!(status, 409, "{refused}");
    let revision = json!({ "name": "hello", "revision": 2 });
    let (status, refused) = started(&server, &with(&body, "definition", revision));
    assert_eq!(status, 409, "this very revision: {refused}");
}

#[test]
fn of_requests_at_the_same_time_those_with_other_content_are_refused() {
    for server in servers(&[]) {
        let answers: Vec<(u32, u16, Json)> = std::thread::scope(|scope| {
            let asks = (0..8).map(|at| {
                let server = &server;
                scope.spawn(move || {
                    let amount = at % 2;
                    let body = json!({
                        "definition": { "text": NAMED }, "requestId": "r-1", "params": { "amount": amount },
                    });
                    let (status, answer) = started(server, &body);
                    (amount, status, answer)
                })
            });
            let asks: Vec<_> = asks.collect();
            asks.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let winner = answers.iter().find(|it| it.1 == 201).unwrap();
        for (amount, status, answer) in &answers {
            match *amount == winner.0 {
                true => assert!([200, 201].contains(status), "{answer}"),
                false => assert_eq!(*status, 409, "{answer}"),
            }
        }
        let created = answers.iter().filter(|it| it.1 == 201).count();
        assert_eq!(created, 1, "{answers:?}");
    }
}

on_each_store!(the_request_ids_of_tenants_are_apart);

fn the_request_ids_of_tenants_are_apart(place: Place) {
    let Some(server) = place.controlled() else {
        return;
    };
    for (tenant, amount) in [("acme", 1), ("globex", 2)] {
        let args = ["ada", "--role", "operator", "--tenant", tenant];
        let token = token(&server.folder, &args);
        let body = json!({
            "definition": { "text": NAMED }, "requestId": "r-1", "params": { "amount": amount },
        });
        let (status, answer) = asked(bearer(server.post("/api/v1/runs", &body), &token));
        assert_eq!(status, 201, "{tenant}: {answer}");
    }
}

#[test]
fn a_run_says_which_run_it_repeats() {
    let server = TestServer::start();
    let (_, first) = started(&server, &json!({ "definition": { "text": NAMED } }));
    let first = first["runId"].as_str().unwrap();
    // Whichever definition the new run has.
    for definition in [
        json!({ "run": first }),
        json!({ "text": NAMED.replace("SAY", "SHOUT") }),
    ] {
        let body = json!({ "definition": definition, "repeats": first, "params": { "n": 2 } });
        let (status, again) = started(&server, &body);
        assert_eq!(status, 201, "{again}");
        let run = again["runId"].as_str().unwrap();
        let seen = server.wait_for(run, |seen| seen["status"] == "COMPLETED");
        assert_eq!(seen["ext"]["repeats"], first, "{seen}");
    }
    let unknown = json!({ "definition": { "text": NAMED }, "repeats": "run_none" });
    let (status, refused) = started(&server, &unknown);
    assert_eq!(
        (status, &refused["code"]),
        (404, &json!("RUN_UNKNOWN")),
        "{refused}"
    );
    // It is content of the request.
    let body = json!({ "definition": { "text": NAMED }, "requestId": "r-1", "repeats": first });
    assert_eq!(started(&server, &body).0, 201);
    assert_eq!(started(&server, &body).0, 200);
    let (status, refused) = started(&server, &with(&body, "repeats", Json::Null));
    assert_eq!(status, 409, "{refused}");
    assert!(
        refused["detail"].to_string().contains("repeats"),
        "{refused}"
    );
}

#[test]
fn a_run_of_another_tenant_is_not_repeated() {
    let server = controlled();
    let operator = |tenant: &[&str]| {
        let args = [&["ada", "--role", "operator"], tenant].concat();
        token(&server.folder, &args)
    };
    let acme = operator(&["--tenant", "acme"]);
    let body = json!({ "definition": { "text": NAMED } });
    let (status, first) = asked(bearer(server.post("/api/v1/runs", &body), &acme));
    assert_eq!(status, 201, "{first}");
    let body = with(&body, "repeats", first["runId"].clone());
    let (status, own) = asked(bearer(server.post("/api/v1/runs", &body), &acme));
    assert_eq!(status, 201, "{own}");
    let globex = operator(&["--tenant", "globex"]);
    let (status, refused) = asked(bearer(server.post("/api/v1/runs", &body), &globex));
    assert_eq!(
        (status, &refused["code"]),
        (404, &json!("RUN_UNKNOWN")),
        "{refused}"
    );
    // Who may act for all tenants sees the run, and may not repeat it for another tenant.
    let all = operator(&[]);
    let body = with(&body, "tenant", json!("globex"));
    let (status, refused) = asked(bearer(server.post("/api/v1/runs", &body), &all));
    assert_eq!(status, 400, "{refused}");
    assert!(refused["detail"].to_string().contains("acme"), "{refused}");
}
