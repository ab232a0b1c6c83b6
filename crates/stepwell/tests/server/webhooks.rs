//! Deliveries to webhooks: right, wrong, sent again and late.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};
use stepwell_bus::signature;

use crate::harness::{PATIENCE, TestServer, asked};

/// The example of GitHub's documentation.
const GITHUB: (&str, &str, &str) = (
    "It's a Secret to Everybody",
    "Hello, World!",
    "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
);

const BUILD: &str = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: build, path: build}\n\
    workload: {payload: {}, headers: {}}\nworkflow:\n\
    - step: start\n  tool: {kind: shell, env: {P: '{{ workload.payload }}', E: \"{{ workload.headers['x-github-event'] }}\"}, \
    cmds: ['echo \"$P $E\" >> witness']}\n";

fn server() -> TestServer {
    let server = TestServer::with_env(
        tempfile::tempdir().unwrap(),
        &[],
        &[
            ("STEPWELL_SECRET_HOOK_GITHUB", GITHUB.0),
            ("STEPWELL_SECRET_HOOK_NEW", "whsec_new"),
            ("STEPWELL_SECRET_HOOK_OLD", "whsec_old"),
        ],
    );
    let (status, answer) = asked(server.post("/api/v1/definitions", &json!({ "text": BUILD })));
    assert_eq!(status, 201, "{answer}");
    server
}

fn put(server: &TestServer, name: &str, body: &Json) -> (u16, Json) {
    let path = format!("{}/api/v1/webhooks/{name}", server.url);
    asked(server.client.put(path).json(body))
}

fn deliver(server: &TestServer, name: &str, headers: &[(&str, &str)], body: &str) -> (u16, Json) {
    let mut request = server
        .client
        .post(format!("{}/hooks/local/{name}", server.url));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    asked(request.body(body.to_owned()))
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

#[test]
fn a_delivery_of_github_starts_one_run() {
    let server = server();
    let body = json!({
        "target": { "start": { "definition": "build", "params": { "branch": "main" } } },
        "signature": { "github": {} }, "secret": "env://STEPWELL_SECRET_HOOK_GITHUB", "headers": ["X-GitHub-Event"],
    });
    let (status, made) = put(&server, "gh", &body);
    assert_eq!(
        (status, &made["path"]),
        (201, &json!("/hooks/local/gh")),
        "{made}"
    );
    assert!(
        !made.to_string().contains("STEPWELL_SECRET_HOOK_GITHUB"),
        "{made}"
    );
    let headers = [
        ("x-hub-signature-256", GITHUB.2),
        ("x-github-delivery", "d-1"),
        ("x-github-event", "push"),
    ];
    let (status, first) = deliver(&server, "gh", &headers, GITHUB.1);
    assert_eq!((status, &first["created"]), (202, &json!(true)), "{first}");
    let run = first["runId"].as_str().unwrap();
    let (status, again) = deliver(&server, "gh", &headers, GITHUB.1);
    assert_eq!(
        (status, again["runId"].as_str()),
        (200, Some(run)),
        "{again}"
    );
    server.wait_for(run, |it| it["status"] == "COMPLETED");
    let witness = std::fs::read_to_string(server.folder.path().join("witness")).unwrap();
    assert_eq!(witness, "Hello, World! push\n");

    // The same id with another body is no repetition.
    let moon = "sha256=09c9f66ddff9875434f48f6e679674cae4b37bade255a57d1a0c669ac9601b37";
    let other = [("x-hub-signature-256", moon), headers[1], headers[2]];
    let (status, refused) = deliver(&server, "gh", &other, "Hello, Moon!");
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("REQUEST_CONTRADICTED")),
        "{refused}"
    );

    // What has no right signature is answered as if there were no such webhook.
    let (status, unknown) = deliver(&server, "nothing", &headers, GITHUB.1);
    assert_eq!(
        (status, &unknown["code"]),
        (401, &json!("WEBHOOK_DENIED")),
        "{unknown}"
    );
    let wrong = GITHUB.2.replace("757", "756");
    for (name, headers, body) in [
        ("changed body", &headers[..], "Hello, World?"),
        ("no signature", &headers[1..], GITHUB.1),
        (
            "wrong",
            &[("x-hub-signature-256", wrong.as_str())][..],
            GITHUB.1,
        ),
        (
            "no scheme",
            &[("x-hub-signature-256", &GITHUB.2[7..])][..],
            GITHUB.1,
        ),
    ] {
        let (status, answer) = deliver(&server, "gh", headers, body);
        assert_eq!((status, &answer), (401, &unknown), "{name}");
    }
    let path = format!("{}/hooks/umbrella/gh", server.url);
    let (status, _) = asked(
        server
            .client
            .post(path)
            .header("x-hub-signature-256", GITHUB.2)
            .body(GITHUB.1),
    );
    assert_eq!(status, 401, "another tenant has no such webhook");
}

#[test]
fn a_delivery_of_stripe_has_a_window_and_two_secrets_and_triggers_by_event() {
    let server = server();
    let text = "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: paid}\nspec:\n  timeout: 1h\n  \
         trigger: {event: stripe, condition: \"{{ event.type == 'invoice.paid' }}\"}\n  steps:\n    \
         - {name: s, timeout: 1m, tool: {kind: shell, cmds: ['true']}}\n";
    asked(server.post("/api/v1/definitions", &json!({ "text": text })));
    let body = json!({
        "target": { "event": { "type": "stripe" } }, "signature": { "stripe": { "windowSeconds": 60 } },
        "secret": "env://STEPWELL_SECRET_HOOK_NEW", "previousSecret": "env://STEPWELL_SECRET_HOOK_OLD",
    });
    assert_eq!(put(&server, "stripe", &body).0, 201);
    let send = |secret: &str, at: u64, body: &Json| {
        let body = body.to_string();
        let signed = signature(secret.as_bytes(), at, body.as_bytes());
        let header = format!("t={at},v1={signed}");
        deliver(&server, "stripe", &[("stripe-signature", &header)], &body)
    };
    let paid = json!({ "id": "evt_1", "type": "invoice.paid" });
    let (status, first) = send("whsec_new", now(), &paid);
    assert_eq!(
        (status, &first["deliveryId"]),
        (202, &json!("evt_1")),
        "{first}"
    );
    let (status, again) = send("whsec_old", now(), &paid);
    assert_eq!((status, &again["created"]), (200, &json!(false)), "{again}");
    let (status, late) = send("whsec_new", now() - 70, &paid);
    assert_eq!(
        (status, &late["code"]),
        (401, &json!("WEBHOOK_LATE")),
        "{late}"
    );
    let (status, early) = send("whsec_new", now() + 70, &paid);
    assert_eq!(
        (status, &early["code"]),
        (401, &json!("WEBHOOK_LATE")),
        "{early}"
    );
    let (status, wrong) = send("whsec_other", now(), &paid);
    assert_eq!(
        (status, &wrong["code"]),
        (401, &json!("WEBHOOK_DENIED")),
        "{wrong}"
    );
    send(
        "whsec_new",
        now(),
        &json!({ "id": "evt_2", "type": "invoice.voided" }),
    );
    let runs = || {
        asked(server.get("/api/v1/runs")).1["runs"]
            .as_array()
            .unwrap()
            .len()
    };
    let until = Instant::now() + PATIENCE;
    while runs() == 0 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(runs(), 1, "one event fits, and counts once");
}

#[test]
fn a_general_signature_has_headers_of_your_choice_and_a_limit() {
    let server = server();
    let mut body = json!({
        "target": { "start": { "definition": "build" } },
        "signature": { "generic": { "header": "X-Sig", "timestampHeader": "X-Time" } },
        "secret": "env://STEPWELL_SECRET_HOOK_NEW", "deliveryHeader": "X-Id", "maxBody": 100,
    });
    assert_eq!(put(&server, "own", &body).0, 201);
    let send = |at: u64, id: Option<&str>, body: &str| {
        let signed = signature(b"whsec_new", at, body.as_bytes());
        let at = at.to_string();
        let mut headers = vec![("x-sig", signed.as_str()), ("x-time", at.as_str())];
        headers.extend(id.map(|id| ("x-id", id)));
        deliver(&server, "own", &headers, body)
    };
    let at = now();
    assert_eq!(send(at, Some("1"), "{\"a\": 1}").0, 202);
    assert_eq!(send(at, Some("1"), "{\"a\": 1}").0, 200, "sent again");
    assert_eq!(send(at, Some("2"), "{\"a\": 1}").0, 202);
    // Without an id what was signed is the id.
    assert_eq!(send(at, None, "{\"b\": 1}").0, 202);
    assert_eq!(send(at, None, "{\"b\": 1}").0, 200, "replayed");
    assert_eq!(send(at - 301, Some("3"), "{}").1["code"], "WEBHOOK_LATE");
    let (status, large) = send(at, Some("4"), &"x".repeat(101));
    assert_eq!(
        (status, &large["code"]),
        (413, &json!("BODY_TOO_LARGE")),
        "{large}"
    );
    body["enabled"] = json!(false);
    assert_eq!(put(&server, "own", &body).0, 200);
    assert_eq!(send(at, Some("5"), "{}").0, 401, "not accepted for now");

    for (field, value) in [
        ("secret", json!("whsec_new")),
        ("secret", json!("env://STEPWELL_SECRET_THAT_IS_NOT_THERE")),
        // There, and none of the variables for secrets: it must look like one that is not.
        ("secret", json!("env://PATH")),
        ("headers", json!(["Authorization"])),
        ("headers", json!(["not a header"])),
        ("maxBody", json!(0)),
        ("signature", json!({ "stripe": { "windowSeconds": 99999 } })),
    ] {
        let mut wrong = body.clone();
        wrong[field] = value;
        let (status, problem) = put(&server, "wrong", &wrong);
        assert_eq!(
            (status, &problem["code"]),
            (422, &json!("WEBHOOK_INVALID")),
            "{field}: {problem}"
        );
        assert!(!problem.to_string().contains("whsec"), "{problem}");
    }
    let other = |it: reqwest::blocking::RequestBuilder| it.header("stepwell-tenant", "umbrella");
    let (status, theirs) = asked(other(server.get("/api/v1/webhooks/own")));
    assert_eq!(
        (status, &theirs["code"]),
        (404, &json!("WEBHOOK_UNKNOWN")),
        "{theirs}"
    );
    let (_, list) = asked(server.get("/api/v1/webhooks"));
    assert_eq!(list["webhooks"][0]["name"], "own", "{list}");
    let delete = || {
        server
            .client
            .delete(format!("{}/api/v1/webhooks/own", server.url))
    };
    assert_eq!(
        (
            asked(other(delete())).0,
            asked(delete()).0,
            asked(delete()).0
        ),
        (404, 204, 404)
    );
}

#[test]
fn a_forged_delivery_is_refused_and_a_replayed_one_counts_once_until_its_window_ends() {
    let server = server();
    let body = json!({
        "target": { "start": { "definition": "build" } }, "signature": { "stripe": { "windowSeconds": 60 } },
        "secret": "env://STEPWELL_SECRET_HOOK_NEW",
    });
    assert_eq!(put(&server, "pay", &body).0, 201);
    let sent = |header: &str, body: &str| {
        let (status, seen) = deliver(&server, "pay", &[("stripe-signature", header)], body);
        (status, seen["code"].as_str().unwrap_or_default().to_owned())
    };
    let text = |id: &str| json!({ "id": id, "type": "paid" }).to_string();
    let signed = |at: u64, body: &str| signature(b"whsec_new", at, body.as_bytes());
    let right = |at: u64, body: &str| format!("t={at},v1={}", signed(at, body));
    let (denied, late) = ("WEBHOOK_DENIED".to_owned(), "WEBHOOK_LATE".to_owned());
    // Both borders of the window, with room for the seconds that the test takes.
    for at in [now() - 55, now() + 55] {
        let body = text(&format!("at-{at}"));
        assert_eq!(sent(&right(at, &body), &body).0, 202, "{at}");
        assert_eq!(sent(&right(at, &body), &body).0, 200, "replayed");
    }
    for at in [now() - 65, now() + 70] {
        let body = text("late");
        assert_eq!(sent(&right(at, &body), &body), (401, late.clone()), "{at}");
    }
    let (at, body) = (now(), text("forged"));
    let good = signed(at, &body);
    for forged in [
        String::new(),
        format!("t={at}"),
        format!("v1={good}"),
        format!("t={at},v0={good}"),
        format!("t={},v1={good}", at + 1),
        // The time that counts is the one that was signed.
        format!("t={at},t={},v1={good}", at - 1),
        format!("t={at},v1={}", &good[..62]),
        format!("t={at},v1={good}00"),
        format!("t={at},v1={}", signature(b"", at, body.as_bytes())),
        format!("t={at} ,v1={}", "0".repeat(64)),
    ] {
        assert_eq!(sent(&forged, &body), (401, denied.clone()), "{forged}");
    }
    let other = text("other");
    assert_eq!(sent(&right(at, &body), &other), (401, denied.clone()));
    // A webhook that is not there answers as one with another secret does.
    let (status, seen) = deliver(
        &server,
        "nobody",
        &[("stripe-signature", &right(at, &body))],
        &body,
    );
    assert_eq!(
        (status, &seen["code"]),
        (401, &json!("WEBHOOK_DENIED")),
        "{seen}"
    );
    let (_, runs) = asked(server.get("/api/v1/runs"));
    assert_eq!(runs["runs"].as_array().unwrap().len(), 2, "{runs}");
}
