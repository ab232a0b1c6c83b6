//! Callers that lose their standing, names that mean harm, and secrets that must be nowhere.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::blocking::Client;
use serde_json::{Value as Json, json};

use crate::access::{audited, bearer, id_of, stepwell, token, wait};
use crate::harness::{PATIENCE, TestServer, asked};
use crate::stores::{Place, on_each_store};
use crate::tenants::endpoints;

/// Waits for a person.
pub(crate) const WAITS: &str = "
schemaVersion: 1
workflowId: waits
workspaceId: w
name: waits
version: 1
active: true
executionTier: Auto
actions:
  - {actionId: sign, order: 1, portFamily: x, operation: 'a:b', completionMode: manual, tool: {kind: noop}}
";

on_each_store!(
    streams_and_long_polls_end_with_their_token,
    what_is_done_to_a_tenant_is_in_its_audit_log,
    secrets_are_in_no_answer_and_no_log,
);

fn start(server: &TestServer, by: &str, text: &str) -> String {
    let body = json!({ "definition": { "text": text } });
    let (status, seen) = asked(bearer(server.post("/api/v1/runs", &body), by));
    assert_eq!(status, 201, "{seen}");
    seen["runId"].as_str().unwrap().to_owned()
}

/// Reads a stream to its end on a thread of its own, and returns all of it.
fn read_stream(
    server: &TestServer,
    path: &str,
    token: &str,
) -> std::thread::JoinHandle<(String, Duration)> {
    let client = Client::builder().timeout(PATIENCE).build().unwrap();
    let request = bearer(client.get(format!("{}{path}", server.url)), token);
    let response = request.send().unwrap();
    assert_eq!(response.status(), 200, "{path}");
    let began = Instant::now();
    std::thread::spawn(move || {
        let lines = BufReader::new(response).lines().map_while(Result::ok);
        let text: Vec<String> = lines.collect();
        (text.join("\n"), began.elapsed())
    })
}

fn streams_and_long_polls_end_with_their_token(place: Place) {
    let Some(server) = place.controlled() else {
        return;
    };
    let admin = token(&server.folder, &["root", "--role", "admin"]);
    let run = start(&server, &admin, WAITS);
    let reader = token(&server.folder, &["vic", "--role", "viewer"]);
    let short = token(
        &server.folder,
        &["tim", "--role", "viewer", "--expires", "6s"],
    );
    let worker = token(&server.folder, &["wanda", "--role", "worker"]);
    let paths = [
        format!("/api/v1/runs/{run}/stream"),
        format!("/api/v1/runs/{run}/watch"),
        "/api/v1/stream".to_owned(),
    ];
    let open = |token: &str| paths.clone().map(|path| read_stream(&server, &path, token));
    let (expiring, revoked, stays) = (open(&short), open(&reader), open(&admin));
    let client = Client::builder().timeout(PATIENCE).build().unwrap();
    let poll = bearer(
        client.post(format!("{}/api/v1/worker/poll", server.url)),
        &worker,
    );
    let poll = poll.json(
        &json!({ "protocol": 1, "workerId": "w", "max": 1, "waitSeconds": 50,
        "serves": [{ "queue": "q", "operation": "o" }] }),
    );
    let began = Instant::now();
    let poll = std::thread::spawn(move || asked(poll));
    std::thread::sleep(Duration::from_millis(500));
    for token in [&reader, &worker] {
        let out = stepwell(server.folder.path(), &["token", "revoke", id_of(token)]);
        assert!(out.status.success(), "{out:?}");
    }
    let (status, seen) = poll.join().unwrap();
    assert_eq!(
        (status, &seen["code"]),
        (401, &json!("TOKEN_INVALID")),
        "{seen}"
    );
    assert!(began.elapsed() < Duration::from_secs(40));
    for stream in expiring.into_iter().chain(revoked) {
        let (text, took) = stream.join().unwrap();
        let last = text.trim_end().rsplit("\n\n").next().unwrap();
        assert!(
            last.starts_with("event: problem") && last.contains("TOKEN_INVALID"),
            "{text}"
        );
        assert!(took < PATIENCE, "{took:?}");
    }
    assert!(stays.iter().all(|it| !it.is_finished()), "others stay open");
}

fn what_is_done_to_a_tenant_is_in_its_audit_log(place: Place) {
    let Some(server) = place.controlled() else {
        return;
    };
    let root = token(&server.folder, &["root", "--role", "admin"]);
    let of = |name, tenant| {
        token(
            &server.folder,
            &[name, "--role", "admin", "--tenant", tenant],
        )
    };
    let (acme, other) = (of("ann", "acme"), of("uma", "umbrella"));
    let run = start(&server, &acme, WAITS);
    let cancel = |by: &str| {
        let path = format!("/api/v1/runs/{run}/cancel");
        asked(bearer(server.post(&path, &json!({ "reason": "late" })), by)).0
    };
    assert_eq!((cancel(&other), cancel(&root)), (404, 200));
    let body = json!({ "name": "new", "roles": ["viewer"], "tenant": "acme" });
    assert_eq!(
        asked(bearer(server.post("/api/v1/tokens", &body), &root)).0,
        201
    );
    // The people of the tenant see what an administrator of all tenants did to them.
    for action in [
        "POST%20/api/v1/runs/%7Brun%7D/cancel",
        "POST%20/api/v1/tokens",
    ] {
        let rows = audited(&server, &acme, &format!("actor=root&action={action}"));
        assert_eq!(
            (rows.len(), &rows[0]["tenant"]),
            (1, &json!("acme")),
            "{rows:?}"
        );
    }
    // What another tenant tried is in its own log only.
    let rows = audited(&server, &other, "actor=uma&accepted=false");
    assert_eq!(rows[0]["tenant"], "umbrella", "{rows:?}");
    let (_, page) = asked(bearer(server.get("/api/v1/audit?actor=uma"), &acme));
    assert_eq!(page["rows"], json!([]), "{page}");
}

const STEP: &str = "canary-of-a-step-51c9";
const HOOK: &str = "canary-of-a-hook-51c9";
const PASSWORD: &str = "canary-of-a-password-51c9";

/// Says its secret wherever it can, and fails.
const TALKS: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: talks, path: talks}
workflow:
- step: start
  tool:
    kind: shell
    env: {P: "${secret:canary}"}
    cmds: ['echo "out $P"; echo "err $P" >&2; exit 3']
"#;

/// All files below a folder whose bytes contain a text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if let Ok(bytes) = std::fs::read(&path)
            && bytes.windows(text.len()).any(|it| it == text.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
    found
}

fn secrets_are_in_no_answer_and_no_log(place: Place) {
    let Some(folder) = place.folder() else {
        return;
    };
    let config = "[server]\naccess = 'tokens'\n[server.rate]\nper_source = 0\n";
    std::fs::write(folder.path().join("stepwell.toml"), config).unwrap();
    crate::stores::set_password(folder.path(), PASSWORD);
    let env = [
        ("STEPWELL_SECRET_CANARY", STEP),
        ("STEPWELL_SECRET_HOOK", HOOK),
        ("RUST_LOG", "debug"),
    ];
    let server = TestServer::with_env(folder, &[], &env);
    let roles = ["--role", "admin", "--role", "worker"];
    let admin = token(&server.folder, &[&["root"][..], &roles].concat());
    let ask = |request| asked(bearer(request, &admin));
    let register = json!({ "text": TALKS });
    assert_eq!(ask(server.post("/api/v1/definitions", &register)).0, 201);
    let hook = server
        .client
        .put(format!("{}/api/v1/webhooks/talks", server.url));
    let hook = hook.json(&json!({ "target": { "start": { "definition": "talks" } },
        "signature": { "github": {} }, "secret": "env://STEPWELL_SECRET_HOOK" }));
    assert!(ask(hook).0 < 300);
    let wrong = server.post("/hooks/local/talks", &json!({}));
    let wrong = wrong.header("x-hub-signature-256", format!("sha256={}", "0".repeat(64)));
    assert_eq!(asked(wrong).0, 401);
    let run = start(&server, &admin, TALKS);
    let path = format!("/api/v1/runs/{run}");
    wait("the run has failed", || {
        ask(server.get(&path)).1["status"] == "FAILED"
    });
    let second = ask(server.post(
        "/api/v1/tokens",
        &json!({ "name": "second", "roles": ["viewer"] }),
    ));
    let second = second.1["token"].as_str().unwrap().to_owned();
    // Wrong in every part that is shown again.
    let odd = server.get(&format!("/api/v1/runs/{second}"));
    asked(bearer(odd, &admin));
    asked(bearer(server.get("/api/v1/runs"), &format!("{second}x")));
    let secret = |token: &str| token.rsplit('_').next().unwrap().to_owned();
    let canaries = [
        STEP.to_owned(),
        HOOK.to_owned(),
        PASSWORD.to_owned(),
        secret(&admin),
    ];
    let mut asked_for = 0;
    for (method, path) in endpoints().into_keys() {
        if method != "GET" || path == "/api/v1/stream" {
            continue;
        }
        let words = path.split('/').map(|part| match part {
            "{run}" => run.as_str(),
            "{step}" => "start",
            "{name}" => "talks",
            "{revision}" | "{seq}" => "1",
            part => part,
        });
        let url = words.collect::<Vec<_>>().join("/");
        let answer = bearer(server.get(&url), &admin).send().unwrap();
        let text = format!("{:?}", answer.headers()) + &answer.text().unwrap();
        for canary in &canaries {
            assert!(!text.contains(canary), "{url} tells {canary}: {text}");
        }
        asked_for += 1;
    }
    assert!(asked_for > 30, "{asked_for}");
    let (_, logs) = ask(server.get(&format!("/api/v1/runs/{run}/logs/start")));
    assert!(logs.to_string().contains("out "), "{logs}");
    let log = server.log.lock().unwrap().clone();
    assert!(log.contains("serving on"), "{log}");
    for canary in canaries.iter().chain([&secret(&second)]) {
        assert!(!log.contains(canary), "the log tells {canary}: {log}");
        let found = files_with(&server.folder.path().join(".stepwell"), canary);
        assert_eq!(found, Vec::<String>::new(), "{canary}");
    }
}

/// Names of artifacts that mean harm, as a worker would send them.
const NAMES: [&str; 10] = [
    "../../../escaped",
    "/etc/escaped",
    "..",
    ".",
    "a/../../b",
    "a\\..\\b",
    "%2e%2e%2fescaped",
    "nul\0byte",
    "name with spaces and ünicode",
    ".hidden",
];

#[test]
fn artifacts_stay_in_their_place_whatever_their_name() {
    let text = "workflowType: elsewhere\nworkflowVersion: 1\nsteps:\n  - {stepType: PACK}\n";
    let server = TestServer::with(&["--no-worker"]);
    let run = server.start_run(text, &json!({}));
    let poll = json!({ "protocol": 1, "workerId": "w", "max": 1, "waitSeconds": 30,
        "serves": [{ "queue": "elsewhere", "operation": "PACK" }] });
    let (_, polled) = asked(server.post("/api/v1/worker/poll", &poll));
    let task = polled["tasks"][0]["taskToken"].as_str().unwrap();
    let before = files_with(server.folder.path(), "content-of-an-artifact");
    assert!(before.is_empty(), "{before:?}");
    let url = |path: &str, pairs: &[(&str, &str)]| {
        reqwest::Url::parse_with_params(&format!("{}{path}", server.url), pairs).unwrap()
    };
    let long = "x".repeat(5_000);
    let mut kept = Vec::new();
    for name in NAMES.into_iter().chain([long.as_str()]) {
        let pairs = [("taskToken", task), ("name", name), ("kind", "text")];
        let put = server
            .client
            .put(url("/api/v1/worker/artifacts", &pairs))
            .header("content-type", "application/octet-stream")
            .body("content-of-an-artifact");
        let (status, seen) = asked(put);
        match status {
            200 | 201 => kept.push(seen["uri"].as_str().unwrap().to_owned()),
            400 | 422 => {}
            status => panic!("{name:?}: {status} {seen}"),
        }
    }
    assert!(!kept.is_empty());
    let places = files_with(server.folder.path(), "content-of-an-artifact");
    let folder = server.folder.path().join(".stepwell/artifacts/runs");
    let own = folder.join(&run).display().to_string();
    assert_eq!(places.len(), kept.len(), "{places:?} {kept:?}");
    assert!(places.iter().all(|it| it.starts_with(&own)), "{places:?}");
    // A link in the place of an artifact, and addresses that mean harm, show nothing.
    std::fs::write(server.folder.path().join("outside"), "outside-of-all").unwrap();
    let link = Path::new(&own).join("PACK/1/link");
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(server.folder.path().join("outside"), &link).unwrap();
    let uri = &kept[0];
    let scheme = &uri[..uri.find("runs/").unwrap()];
    for harm in [
        format!("{scheme}runs/{run}/PACK/1/link"),
        format!("{scheme}runs/{run}/PACK/1/../../../../../outside"),
        format!("{scheme}../../outside"),
        format!("{scheme}/etc/passwd"),
        format!("{scheme}runs/{run}/PACK/1/..%2f..%2f..%2f..%2foutside"),
        "file:///etc/passwd".to_owned(),
    ] {
        for (path, pair) in [
            (
                "/api/v1/worker/artifacts".to_owned(),
                ("uri", harm.as_str()),
            ),
            (
                format!("/api/v1/runs/{run}/artifact"),
                ("uri", harm.as_str()),
            ),
        ] {
            let (status, seen) = asked(server.client.get(url(&path, &[pair])));
            assert!(
                [400, 404].contains(&status),
                "{path} {harm}: {status} {seen}"
            );
            let text = seen.to_string();
            assert!(
                !text.contains("outside-of-all") && !text.contains("root:"),
                "{text}"
            );
        }
    }
    let good: Json = asked(
        server
            .client
            .get(url("/api/v1/worker/artifacts", &[("uri", uri)])),
    )
    .1;
    assert_eq!(good, json!("content-of-an-artifact"));
}
