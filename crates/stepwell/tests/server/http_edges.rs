//! The edges of HTTP: methods, media types, conditions, bodies that do not come, heads and bodies that mean harm. Sent as bytes
//! where a client would not send them.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::access::{bearer, configured, controlled, token};
use crate::hardening::WAITS;
use crate::harness::{PATIENCE, TestServer, asked};

/// A connection of the test.
fn connect(server: &TestServer) -> TcpStream {
    let stream = TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends bytes, and reads the answer until the server closes the connection.
fn raw(server: &TestServer, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = connect(server);
    // A server that refuses the head may close the connection before all of it is sent.
    let _ = stream.write_all(bytes.as_ref());
    rest(&mut stream)
}

fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> u16 {
    let status = answer.split(' ').nth(1).and_then(|it| it.parse().ok());
    status.unwrap_or_else(|| panic!("no answer of HTTP: {answer:?}"))
}

const START: &str =
    "POST /api/v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

#[test]
fn a_body_that_does_not_come_is_the_callers_fault() {
    let server = configured("[server.limits]\nbody_seconds = 2\nhead_seconds = 2\n");
    let long = format!("{START}content-length: 100\r\n\r\n{{\"defin");
    let chunked = format!("{START}transfer-encoding: chunked\r\n\r\n5\r\n{{\"def\r\n");
    // Nothing more comes, or a byte now and then: in chunks each byte is one of its own.
    for (begin, drip) in [
        (long.as_str(), ""),
        (long.as_str(), " "),
        (chunked.as_str(), ""),
        (chunked.as_str(), "1\r\n \r\n"),
    ] {
        let mut stream = connect(&server);
        stream.write_all(begin.as_bytes()).unwrap();
        let began = Instant::now();
        let mut writer = stream.try_clone().unwrap();
        let drip = drip.to_owned();
        let dripping = std::thread::spawn(move || {
            for _ in 0..40 {
                std::thread::sleep(Duration::from_millis(200));
                if drip.is_empty() || writer.write_all(drip.as_bytes()).is_err() {
                    break;
                }
            }
        });
        let answer = rest(&mut stream);
        assert_eq!(status(&answer), 408, "{answer}");
        assert!(answer.contains("BODY_TIMEOUT"), "{answer}");
        assert!(
            answer.to_lowercase().contains("connection: close"),
            "{answer}"
        );
        let took = began.elapsed();
        assert!((2..8).contains(&took.as_secs()), "{took:?}");
        drop(stream);
        dripping.join().unwrap();
    }
    // Who closes its side in the middle of the body, or announces another length, is told or left, and nothing is done.
    let mut half = connect(&server);
    half.write_all(long.as_bytes()).unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    let answer = rest(&mut half);
    assert!(answer.is_empty() || status(&answer) == 400, "{answer}");
    // A head that does not end has no answer: nobody knows what was asked for.
    let began = Instant::now();
    let answer = raw(&server, "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-a:");
    assert!(answer.is_empty() || status(&answer) == 408, "{answer}");
    assert!(began.elapsed() < Duration::from_secs(10));
    let (_, runs) = asked(server.get("/api/v1/runs"));
    assert_eq!(runs["runs"], json!([]));
    // A request that waits for long, and whose body is there, is not meant.
    let body = json!({ "definition": { "text": WAITS }, "waitSeconds": 4 });
    let (code, seen) = asked(server.post("/api/v1/runs", &body));
    assert_eq!(code, 201, "{seen}");
}

#[test]
fn limits_of_the_configuration_count() {
    let server = configured("[server.limits]\nbody_bytes = 2000\nconnections = 3\n");
    let body = json!({ "definition": { "text": "x".repeat(3_000) } });
    let (code, seen) = asked(server.post("/api/v1/runs", &body));
    assert_eq!(
        (code, &seen["code"]),
        (413, &json!("BODY_TOO_LARGE")),
        "{seen}"
    );
    let open: Vec<TcpStream> = (0..3).map(|_| connect(&server)).collect();
    std::thread::sleep(Duration::from_millis(300));
    let answer = raw(&server, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(answer, "", "one connection too many is closed");
    drop(open);
}

#[test]
fn metrics_are_in_the_form_that_the_caller_reads() {
    let server = TestServer::start();
    let metrics = |accept: Option<&str>| {
        let mut request = server.get("/metrics");
        if let Some(accept) = accept {
            request = request.header("accept", accept);
        }
        let response = request.send().unwrap();
        assert_eq!(response.status(), 200);
        let kind = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        (kind, response.text().unwrap())
    };
    for accept in [
        None,
        Some("*/*"),
        Some("text/plain"),
        Some("application/json"),
    ] {
        let (kind, text) = metrics(accept);
        assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
        assert!(
            !text.contains("# EOF") && !text.contains("# UNIT"),
            "{text}"
        );
        assert!(
            text.contains("# TYPE stepwell_commits_total counter\n"),
            "{text}"
        );
    }
    let open =
        "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    let (kind, text) = metrics(Some(open));
    assert!(
        kind.starts_with("application/openmetrics-text; version=1.0.0"),
        "{kind}"
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert!(text.contains("# TYPE stepwell_commits counter\n"), "{text}");
}

#[test]
fn methods_conditions_and_media_types_are_answered_as_http_says() {
    let server = TestServer::start();
    let run = server.start_run(WAITS, &json!({}));
    // What does not change while the run goes on.
    let path = format!("/api/v1/runs/{run}/net");
    let get = server.get(&path).send().unwrap();
    let tag = get.headers()["etag"].to_str().unwrap().to_owned();
    let head = server
        .client
        .head(format!("{}{path}", server.url))
        .send()
        .unwrap();
    assert_eq!(head.status(), 200);
    assert_eq!(head.headers()["etag"].to_str().unwrap(), tag);
    assert_eq!(head.text().unwrap(), "");
    let strong = tag.trim_start_matches("W/").to_owned();
    for known in [tag.clone(), strong, format!("\"x\", {tag}"), "*".to_owned()] {
        let same = server
            .get(&path)
            .header("if-none-match", &known)
            .send()
            .unwrap();
        assert_eq!(same.status(), 304, "{known}");
        assert_eq!(same.headers()["etag"].to_str().unwrap(), tag);
        assert!(same.headers().contains_key("cache-control"));
    }
    let other = server
        .get(&path)
        .header("if-none-match", "\"x\"")
        .send()
        .unwrap();
    assert_eq!(other.status(), 200);
    // Ranges are not served: all of it is the right answer.
    let ranged = server
        .get(&path)
        .header("range", "bytes=0-3")
        .send()
        .unwrap();
    assert_eq!(ranged.status(), 200);
    for method in ["OPTIONS", "PUT", "DELETE", "BREW"] {
        let bytes = format!(
            "{method} /api/v1/runs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        );
        let answer = raw(&server, bytes).to_lowercase();
        assert_eq!(status(&answer), 405, "{answer}");
        assert!(answer.contains("\r\nallow: "), "{answer}");
        assert!(
            !answer.contains("access-control"),
            "CORS is closed: {answer}"
        );
    }
    for path in [
        "/api/v1/runs/",
        "/api/v1/",
        "/API/V1/runs",
        "/api/v1/runs?limit=1&limt=2",
    ] {
        let (code, seen) = asked(server.get(path));
        let wanted = if path.contains('?') { 400 } else { 404 };
        assert_eq!(code, wanted, "{path}: {seen}");
    }
    // A slip in the name of a parameter is told on every list.
    for path in [
        "definitions",
        "schedules",
        "webhooks",
        "sources",
        "alerts",
        "dead-letters",
        "audit",
        "inbox",
    ] {
        let (code, seen) = asked(server.get(&format!("/api/v1/{path}?limt=2")));
        assert_eq!(
            (code, &seen["code"]),
            (400, &json!("REQUEST_INVALID")),
            "{path}: {seen}"
        );
    }
    let start = |headers: &[(&str, &str)], body: Vec<u8>| {
        let mut request = server.client.post(format!("{}/api/v1/runs", server.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        asked(request.body(body))
    };
    let good = json!({ "definition": { "text": WAITS } })
        .to_string()
        .into_bytes();
    let json_type = ("content-type", "application/json");
    assert_eq!(start(&[json_type], good.clone()).0, 201);
    for wrong in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "odd",
    ] {
        let (code, seen) = start(&[("content-type", wrong)], good.clone());
        assert_eq!(code, 415, "{wrong}: {seen}");
    }
    assert_eq!(start(&[], good.clone()).0, 415, "a body without a type");
    // Nothing is unpacked: 10 MB of zeros that are 10 KB on the way are refused as what they are.
    let (code, seen) = start(
        &[json_type, ("content-encoding", "gzip")],
        vec![0x1f, 0x8b, 8, 0],
    );
    assert_eq!(code, 415, "{seen}");
    assert!(
        seen["detail"].as_str().unwrap().contains("compressed"),
        "{seen}"
    );
    let (code, _) = start(&[json_type, ("content-encoding", "identity")], good.clone());
    assert_eq!(code, 201);
    for broken in [
        &b"\xff\xfe{}"[..],
        b"{\"definition\": {\"text\": \"\xc3\x28\"}}",
        b"",
        b"null",
        b"[]",
    ] {
        let (code, seen) = start(&[json_type], broken.to_vec());
        assert_eq!(
            (code, &seen["code"]),
            (400, &json!("REQUEST_INVALID")),
            "{seen}"
        );
    }
    let twice = [
        json_type,
        ("idempotency-key", "a"),
        ("idempotency-key", "b"),
    ];
    assert_eq!(start(&twice, good).0, 400);
}

#[test]
fn heads_that_two_readers_could_read_differently_are_refused() {
    let server = controlled();
    let root = token(&server.folder, &["root", "--role", "admin"]);
    let ask = |version: &str, headers: &str| {
        let bytes =
            format!("GET /api/v1/runs HTTP/{version}\r\n{headers}connection: close\r\n\r\n");
        status(&raw(&server, bytes))
    };
    let own = format!("authorization: Bearer {root}\r\n");
    assert_eq!(ask("1.1", &format!("host: localhost\r\n{own}")), 200);
    assert_eq!(ask("1.0", &own), 200, "HTTP/1.0 has no host");
    assert_eq!(ask("1.1", &own), 400, "HTTP/1.1 has one");
    assert_eq!(ask("1.1", &format!("host: a\r\nhost: b\r\n{own}")), 400);
    assert_eq!(
        ask("1.1", &format!("host: localhost\r\n{own}{own}")),
        401,
        "two tokens are none"
    );
    let tenants = "stepwell-tenant: a\r\nstepwell-tenant: b\r\n";
    assert_eq!(
        ask("1.1", &format!("host: localhost\r\n{own}{tenants}")),
        400
    );
    // Folded lines, spaces in names, control characters and more than 100 headers.
    let many: String = (0..200).map(|it| format!("x-{it}: 1\r\n")).collect();
    for odd in [
        "x-a: 1\r\n folded\r\n",
        "x a: 1\r\n",
        "x-a: \u{1}\r\n",
        ": 1\r\n",
        &many,
    ] {
        let code = ask("1.1", &format!("host: localhost\r\n{odd}{own}"));
        assert!((400..500).contains(&code), "{odd:?}: {code}");
    }
    let huge = format!(
        "host: localhost\r\nx-huge: {}\r\n{own}",
        "x".repeat(200_000)
    );
    let bytes = format!("GET /api/v1/runs HTTP/1.1\r\n{huge}\r\n");
    let answer = raw(&server, bytes);
    assert!(answer.is_empty() || status(&answer) == 431, "{answer}");
    let long = format!(
        "GET /api/v1/runs?text={} HTTP/1.1\r\nhost: localhost\r\n{own}\r\n",
        "x".repeat(100_000)
    );
    let answer = raw(&server, long);
    assert!(
        answer.is_empty() || (400..500).contains(&status(&answer)),
        "{answer}"
    );
    assert_eq!(asked(server.get("/healthz")).0, 200);
}

#[test]
fn texts_of_callers_do_not_become_headers() {
    let server = TestServer::start();
    let harm = "a\r\nset-cookie: x=y\r\n\r\n<html>";
    let labels = json!({ "definition": { "text": WAITS }, "labels": { "team": harm } });
    let (code, seen) = asked(server.post("/api/v1/runs", &labels));
    assert_eq!(
        (code, &seen["code"]),
        (422, &json!("LABELS_INVALID")),
        "{seen}"
    );
    for field in ["requestId", "runId", "tenant", "project", "environment"] {
        let mut body = json!({ "definition": { "text": WAITS } });
        body[field] = harm.into();
        let response = server.post("/api/v1/runs", &body).send().unwrap();
        assert!(!response.headers().contains_key("set-cookie"), "{field}");
        let (code, seen) = (response.status().as_u16(), response.text().unwrap());
        assert_eq!(code, 422, "{field}: {seen}");
    }
    // Headers of webhooks that go out, and of requests that the tool makes.
    let sink = server.client.put(format!("{}/api/v1/sinks/s", server.url));
    let (code, seen) =
        asked(sink.json(&json!({ "address": format!("webhook:http://example.com/{harm}") })));
    assert!(code == 400 || code == 200, "{seen}");
    let text = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: h, path: h}\nworkload: {v: ''}\nworkflow:\n\
                - step: start\n  tool: {kind: http, url: 'http://192.0.2.1/', timeout: 2, headers: {x-a: '{{ workload.v }}'}}\n";
    let run = server.start_run(text, &json!({ "v": harm }));
    let ended = server.wait_for(&run, |it| {
        it["status"] == "FAILED" || it["status"] == "COMPLETED"
    });
    assert_eq!(ended["status"], "FAILED", "{ended}");
    let attempts = ended["ext"]["steps"][0]["attempts"].as_u64();
    assert_eq!(
        attempts,
        Some(1),
        "refused before anything was sent: {ended}"
    );
}

#[test]
fn limits_of_a_start_are_the_same_for_each_way_in() {
    let server = TestServer::start();
    let folder = server.folder.path();
    std::fs::write(folder.join("waits.yaml"), WAITS).unwrap();
    let many: serde_json::Map<String, Json> =
        (0..33).map(|it| (format!("l{it}"), json!("v"))).collect();
    let long = "x".repeat(201);
    for labels in [
        json!(many),
        json!({ &long: "v" }),
        json!({ "n": &long }),
        json!({ "": "v" }),
        json!({ "a,b": "v" }),
    ] {
        let body = json!({ "definition": { "text": WAITS }, "labels": labels });
        let (code, seen) = asked(server.post("/api/v1/runs", &body));
        assert_eq!(
            (code, &seen["code"]),
            (422, &json!("LABELS_INVALID")),
            "{seen}"
        );
    }
    let run = |args: &[&str]| {
        let out = crate::access::stepwell(folder, &[&["run", "waits.yaml"], args].concat());
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        (out.status.code(), text)
    };
    let local = ["--store", "other.db"];
    let remote = ["--server", &server.url];
    for place in [local, remote] {
        let wrong = format!("n={long}");
        let (code, text) = run(&[&place[..], &["--label", &wrong]].concat());
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("--label"), "{text}");
    }
    let good = [
        "--label",
        "team=blue",
        "--label",
        "region=eu",
        "--max-events",
        "3",
    ];
    let _ = run(&[&local[..], &good].concat());
    let list = |args: &[&str]| {
        let out =
            crate::access::stepwell(folder, &[&["runs", "list", "-o", "json"], args].concat());
        let seen: Json = serde_json::from_slice(&out.stdout).unwrap();
        seen["runs"].as_array().unwrap().len()
    };
    assert_eq!(list(&["--store", "other.db", "--label", "team=blue"]), 1);
    assert_eq!(list(&["--store", "other.db", "--label", "team=red"]), 0);
    let body = json!({ "definition": { "text": WAITS }, "labels": { "team": "blue" } });
    assert_eq!(asked(server.post("/api/v1/runs", &body)).0, 201);
    assert_eq!(list(&["--server", &server.url, "--label", "team=blue"]), 1);
    assert_eq!(list(&["--server", &server.url, "--label", "team=red"]), 0);
}

#[test]
fn a_caller_that_loses_its_right_in_the_middle_of_a_request_gets_nothing_more() {
    let server = controlled();
    let root = token(&server.folder, &["root", "--role", "admin"]);
    let operator = token(&server.folder, &["op", "--role", "operator"]);
    let body = json!({ "definition": { "text": WAITS }, "waitSeconds": 50 });
    let request = bearer(server.post("/api/v1/runs", &body), &operator);
    let began = Instant::now();
    let waiting = std::thread::spawn(move || asked(request));
    std::thread::sleep(Duration::from_millis(800));
    let id = crate::access::id_of(&operator);
    let revoke = server
        .client
        .delete(format!("{}/api/v1/tokens/{id}", server.url));
    assert_eq!(asked(bearer(revoke, &root)).0, 200);
    let (code, seen) = waiting.join().unwrap();
    assert_eq!(
        (code, &seen["code"]),
        (401, &json!("TOKEN_INVALID")),
        "{seen}"
    );
    assert!(began.elapsed() < Duration::from_secs(30));
    let bulk = json!({ "action": "cancel", "all": true, "dryRun": false });
    let (code, seen) = asked(bearer(server.post("/api/v1/runs/bulk", &bulk), &operator));
    assert_eq!(code, 401, "{seen}");
    let (_, runs) = asked(bearer(server.get("/api/v1/runs?open=true"), &root));
    assert_eq!(
        runs["runs"].as_array().unwrap().len(),
        1,
        "nothing was cancelled"
    );
}

#[test]
fn names_of_files_and_places_stay_below_the_place_that_is_meant() {
    let server = TestServer::start();
    for file in [
        "../x.yaml",
        "/etc/passwd",
        "flows/../../x.yaml",
        "flows//x.yaml",
        "./x.yaml",
        "..\\x.yaml",
        "file:///etc/passwd",
        "a\nb.yaml",
        "a\u{0}b.yaml",
        "",
    ] {
        let register = json!({ "text": WAITS, "file": file });
        let start = json!({ "definition": { "text": WAITS, "file": file } });
        for (path, body) in [("/api/v1/definitions", register), ("/api/v1/runs", start)] {
            let (code, seen) = asked(server.post(path, &body));
            assert_eq!(
                (code, &seen["code"]),
                (400, &json!("REQUEST_INVALID")),
                "{path} {file:?}: {seen}"
            );
        }
    }
    // A reference leads nowhere that the configuration does not list.
    for uri in [
        "file:///etc/passwd",
        "file:../stepwell.toml",
        "http://127.0.0.1:1/x",
        "gopher://x/",
        "",
    ] {
        let reference = json!({ "uri": uri, "sha256": "0".repeat(64), "schemaVersion": "v1.0", "planId": "p",
            "planVersion": "1" });
        let body = json!({ "definition": { "reference": reference } });
        let (code, seen) = asked(server.post("/api/v1/runs", &body));
        assert!((400..500).contains(&code), "{uri}: {code} {seen}");
        assert!(!seen.to_string().contains("root:"), "{seen}");
    }
    let (_, runs) = asked(server.get("/api/v1/runs"));
    assert_eq!(runs["runs"], json!([]));
}

/// What the served document says: each endpoint with the parameters of its query.
#[test]
fn no_endpoint_takes_a_parameter_that_it_does_not_know() {
    let server = TestServer::start();
    let (_, document) = asked(server.get("/api/openapi.json"));
    let mut seen = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        if !path.starts_with("/api/") {
            continue;
        }
        let address = path.replace('{', "").replace('}', "");
        for method in operations.as_object().unwrap().keys() {
            let method = method.to_uppercase().parse().unwrap();
            let url = format!("{}{address}?bogus=1", server.url);
            let request = server.client.request(method, url).json(&json!({}));
            let (status, problem) = asked(request);
            assert_eq!(status, 400, "{path}: {problem}");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("`bogus`"), "{path}: {problem}");
            seen += 1;
        }
    }
    assert!(seen > 60, "{seen}");
}
