//! Sinks and sources of a server on a real broker: events go out, messages come in once, what cannot be used is put aside.
//!
//! Needs the program redis-server (Debian package redis-server).

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::harness::{PATIENCE, TestServer, asked};

const PASSWORD: &str = "no-place-for-this-in-a-store";
const BUILD: &str = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: build, path: build}\n\
    workload: {payload: {}, headers: {}}\nworkflow:\n- {step: start, tool: {kind: noop}}\n";

/// A Redis with a password, gone when it is dropped.
struct Redis {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Redis {
    fn start() -> Redis {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("redis-server");
        command.args([
            "--bind",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--save",
            "",
        ]);
        command
            .args(["--requirepass", PASSWORD])
            .arg("--dir")
            .arg(folder.path());
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Redis {
            child,
            port,
            _folder: folder,
        }
    }

    /// The answers to a command, as text.
    fn ask(&self, words: &[&str]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        for words in [&["AUTH", PASSWORD][..], words, &["QUIT"]] {
            let mut packed = format!("*{}\r\n", words.len());
            for word in words {
                packed.push_str(&format!("${}\r\n{word}\r\n", word.len()));
            }
            stream.write_all(packed.as_bytes()).unwrap();
        }
        let mut reader = BufReader::new(stream);
        let mut hello = String::new();
        reader.read_line(&mut hello).unwrap();
        assert_eq!(hello, "+OK\r\n");
        let mut answer = String::new();
        reader.read_to_string(&mut answer).unwrap();
        answer
    }

    fn number(&self, words: &[&str]) -> u64 {
        let answer = self.ask(words);
        let line = answer.lines().next().unwrap_or_default();
        line.trim_start_matches(':').parse().unwrap_or_default()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn server() -> TestServer {
    let folder = tempfile::tempdir().unwrap();
    let open = "[security.network]\nopen = [\"loopback\"]\n";
    std::fs::write(folder.path().join("stepwell.toml"), open).unwrap();
    let server = TestServer::with_env(folder, &[], &[("STEPWELL_SECRET_REDIS", PASSWORD)]);
    let (status, answer) = asked(server.post("/api/v1/definitions", &json!({ "text": BUILD })));
    assert_eq!(status, 201, "{answer}");
    server
}

fn put(server: &TestServer, path: &str, body: &Json) -> (u16, Json) {
    asked(
        server
            .client
            .put(format!("{}{path}", server.url))
            .json(body),
    )
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn runs(server: &TestServer) -> u64 {
    let (_, counts) = asked(server.get("/api/v1/runs/counts?plan=build"));
    counts["total"].as_u64().unwrap()
}

#[test]
fn messages_of_a_broker_start_runs_once_and_events_go_back() {
    let (redis, server) = (Redis::start(), server());
    let port = redis.port;
    let sink = json!({ "address": format!("redis://127.0.0.1:{port}?auth=redis&prefix=out:") });
    let (status, answer) = put(&server, "/api/v1/sinks/stream", &sink);
    assert_eq!(status, 200, "{answer}");
    let source = json!({
        "address": format!("redis://127.0.0.1:{port}?stream=in&auth=redis"),
        "target": { "start": { "definition": "build" } }, "maxBody": 100,
    });
    let (status, answer) = put(&server, "/api/v1/sources/jobs", &source);
    assert_eq!(status, 201, "{answer}");
    assert!(!answer.to_string().contains("auth"), "{answer}");
    let large = "x".repeat(200);
    for (id, body) in [
        ("m1", r#"{"order": 1}"#),
        ("m1", r#"{"order": 1}"#),
        ("large", large.as_str()),
        ("m2", "plain text"),
    ] {
        redis.ask(&["XADD", "in", "*", "id", id, "data", body]);
    }
    until("two runs", || runs(&server) == 2);
    let state = || asked(server.get("/api/v1/sources/jobs")).1["state"].clone();
    until("all messages", || {
        state()["accepted"] == 2 && state()["rejected"] == 1
    });
    assert_eq!((runs(&server), &state()["repeated"]), (2, &json!(1)));
    // What cannot be used is put aside, with an alert.
    assert_eq!(redis.number(&["XLEN", "in:dead"]), 1);
    let (_, alerts) = asked(server.get("/api/v1/alerts?code=SOURCE_MESSAGE_REJECTED"));
    assert!(alerts.to_string().contains("in:dead"), "{alerts}");
    // Every event of the runs is in a stream of the run.
    let (_, list) = asked(server.get("/api/v1/runs"));
    for run in list["runs"].as_array().unwrap() {
        let run = run["runId"].as_str().unwrap();
        let (_, snapshot) = asked(server.get(&format!("/api/v1/runs/{run}")));
        let last = snapshot["lastEventSeq"].as_u64().unwrap();
        let key = format!("out:{run}");
        until("all events", || redis.number(&["XLEN", &key]) == last);
        let first = redis.ask(&["XRANGE", &key, "-", "+", "COUNT", "1"]);
        assert!(
            first.contains(r#""specversion":"1.0""#) && first.contains("1-0"),
            "{first}"
        );
    }
    assert_eq!(list["runs"].as_array().unwrap().len(), 2, "{list}");
    let state = state();
    assert_eq!(
        (&state["isConnected"], &state["deadLetters"]),
        (&json!(true), &json!("the stream in:dead")),
        "{state}"
    );
    assert!(
        state["since"].is_string() && state["lastMessageAt"].is_string(),
        "{state}"
    );
    let metrics = server.get("/metrics").send().unwrap().text().unwrap();
    for line in [
        "stepwell_sources 1",
        "stepwell_sources_connected 1",
        "stepwell_source_messages_total{result=\"accepted\"} 2",
        "stepwell_source_messages_total{result=\"repeated\"} 1",
        "stepwell_source_messages_total{result=\"rejected\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // The secret is nowhere but in the process.
    let (_, sinks) = asked(server.get("/api/v1/sinks"));
    assert!(!sinks.to_string().contains(PASSWORD), "{sinks}");
}

/// A server that loses its connection in the middle of a message goes on with this message, and not only when others may
/// take it over.
#[test]
fn a_message_that_a_server_has_taken_is_not_left_behind() {
    let (redis, server) = (Redis::start(), server());
    let port = redis.port;
    let source = json!({
        "address": format!("redis://127.0.0.1:{port}?stream=in&auth=redis"),
        "target": { "start": { "definition": "build" } }, "maxBody": 100,
    });
    // Nothing can be put aside as long as the place is something else.
    redis.ask(&["SET", "in:dead", "in the way"]);
    let (status, answer) = put(&server, "/api/v1/sources/jobs", &source);
    assert_eq!(status, 201, "{answer}");
    let large = "x".repeat(200);
    redis.ask(&["XADD", "in", "*", "id", "large", "data", &large]);
    let state = || asked(server.get("/api/v1/sources/jobs")).1["state"].clone();
    until("the reason is told", || {
        state()["error"]
            .as_str()
            .is_some_and(|it| it.contains("WRONGTYPE"))
    });
    redis.ask(&["XADD", "in", "*", "id", "m1", "data", "{}"]);
    redis.ask(&["DEL", "in:dead"]);
    let began = Instant::now();
    until("the message is put aside", || state()["rejected"] == 1);
    until("the next message is taken", || runs(&server) == 1);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(redis.number(&["XLEN", "in:dead"]), 1);
}

#[test]
fn addresses_that_cannot_be_used_are_refused() {
    let server = server();
    let source = |address: &str| {
        let body = json!({ "address": address, "target": { "start": { "definition": "build" } } });
        put(&server, "/api/v1/sources/odd", &body)
    };
    for (address, says) in [
        ("nats://u:secret@h/S", "auth=NAME"),
        ("webhook:https://h/", "gives no messages"),
        ("snowflake://u@h/D/S?auth=a", "gives no messages"),
        ("kafka://h", "topic"),
        ("elsewhere://h", "there are"),
        ("amqp://h?secret=x", "there is no parameter"),
    ] {
        let (status, answer) = source(address);
        assert_eq!(
            (status, &answer["code"]),
            (422, &json!("SOURCE_INVALID")),
            "{answer}"
        );
        let detail = answer["detail"].as_str().unwrap();
        assert!(
            detail.contains("BROKER_ADDRESS_INVALID") && detail.contains(says),
            "{detail}"
        );
        assert!(!detail.contains("secret@"), "{detail}");
    }
    let (status, answer) = asked(server.get("/api/v1/sources/odd"));
    assert_eq!(
        (status, &answer["code"]),
        (404, &json!("SOURCE_UNKNOWN")),
        "{answer}"
    );
    let body =
        json!({ "address": "nats://h/S", "target": { "start": { "definition": "nobody" } } });
    let (status, answer) = put(&server, "/api/v1/sources/odd", &body);
    assert_eq!(status, 404, "{answer}");
    let both = json!({ "start": { "definition": "build" }, "event": { "type": "go" } });
    let body = json!({ "address": "nats://h/S", "target": both });
    let (status, answer) = put(&server, "/api/v1/sources/odd", &body);
    let detail = answer["detail"].as_str().unwrap();
    assert_eq!(status, 400, "{answer}");
    assert!(detail.contains("keep one at line 1"), "{detail}");
}

#[test]
fn a_source_keeps_its_address_when_it_is_paused() {
    let server = server();
    let target = json!({ "event": { "type": "go" } });
    let body = json!({ "target": target });
    let (status, answer) = put(&server, "/api/v1/sources/kept", &body);
    let detail = answer["detail"].as_str().unwrap();
    assert_eq!(
        (status, &answer["code"]),
        (422, &json!("SOURCE_INVALID")),
        "{answer}"
    );
    assert!(detail.contains("a new source needs one"), "{detail}");
    let address = "redis://127.0.0.1:9/?stream=orders&auth=nobody";
    let body = json!({ "address": address, "target": target });
    assert_eq!(put(&server, "/api/v1/sources/kept", &body).0, 201);
    let body = json!({ "target": target, "enabled": false });
    let (status, answer) = put(&server, "/api/v1/sources/kept", &body);
    assert_eq!(
        (status, &answer["enabled"]),
        (200, &json!(false)),
        "{answer}"
    );
    assert_eq!(
        answer["address"], "redis://127.0.0.1:9/?stream=orders",
        "{answer}"
    );
    // The whole address is kept: without `stream` the source could not be opened.
    let body = json!({ "target": target, "enabled": true });
    assert_eq!(put(&server, "/api/v1/sources/kept", &body).0, 200);
    let state = || asked(server.get("/api/v1/sources/kept")).1["state"].clone();
    until("it says why", || state()["error"].is_string());
    let error = state()["error"].as_str().unwrap().to_owned();
    assert!(!error.contains("BROKER_ADDRESS_INVALID"), "{error}");
}
