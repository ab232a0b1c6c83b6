//! The tool `redis` against a real server: replies as JSON, pipelines, transactions, streams, and everything
//! that can go wrong.
//!
//! Needs the program redis-server (Debian package redis-server).

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::outcome::{TaskOutcome, ToolError};
use crate::tool::{TaskContext, TaskLimits, Tool as _};
use crate::tools::redis::Redis;
use serde_json::{Value as Json, json};
use stepwell_kernel::plan::ErrorClass;
use tokio::time::Instant;

use crate::testing::calls::call_with;
use crate::testing::programs::{cx, short};

/// A port that nobody listens on.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A server of a test's own, on a port and in a folder that end with it.
struct Server {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start(more: &[&str]) -> Server {
        let port = free_port();
        Server::start_on(port, &["--port", &port.to_string()], more)
    }

    fn start_on(port: u16, listen: &[&str], more: &[&str]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", "127.0.0.1", "--save", ""])
            .args(listen);
        command.arg("--dir").arg(folder.path()).args(more);
        let process = command.stdout(Stdio::null()).spawn().unwrap_or_else(|error| {
            panic!(
                "redis-server cannot be started ({error}); run `cargo xtask test`, which installs it on \
                 Debian as root, or install it"
            )
        });
        let server = Server {
            process,
            port,
            _folder: folder,
        };
        let begun = std::time::Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "it does not answer"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    async fn run(&self, fields: Json) -> TaskOutcome {
        self.run_in(fields, &cx()).await
    }

    async fn run_in(&self, mut fields: Json, cx: &TaskContext) -> TaskOutcome {
        fields["url"] = json!(self.url());
        Redis::default()
            .run(&call_with(fields, Json::Null), cx)
            .await
    }

    async fn values(&self, commands: Json) -> Json {
        let outcome = self.run(json!({ "commands": commands })).await;
        assert_eq!(outcome.error, None);
        outcome.result["values"].clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn error(outcome: TaskOutcome) -> ToolError {
    outcome.error.expect("it must fail")
}

async fn at(url: &str, auth: Json) -> TaskOutcome {
    let fields = json!({ "commands": "PING", "url": url });
    Redis::default().run(&call_with(fields, auth), &cx()).await
}

#[tokio::test]
async fn replies_keep_their_types() {
    let server = Server::start(&[]);
    let values = server
        .values(json!([
            "SET greeting 'hello world'",
            ["GET", "greeting"],
            "GET nothing",
            ["INCRBY", "counter", 41],
            ["RPUSH", "list", "a", 2, true],
            "LRANGE list 0 -1",
            ["HSET", "order", "id", 7, "total", "12.50"],
            "HGETALL order",
            ["SADD", "tags", "x"],
            "SMEMBERS tags",
            ["ZADD", "scores", 1.5, "ann"],
            "ZSCORE scores ann",
            ["SET", "bytes", { "base64": "/wD+" }],
            "GET bytes",
            "STRLEN bytes",
        ]))
        .await;
    let expected = json!([
        "OK",
        "hello world",
        null,
        41,
        3,
        ["a", "2", "true"],
        2,
        { "id": "7", "total": "12.50" },
        1,
        ["x"],
        1,
        1.5,
        "OK",
        { "base64": "/wD+" },
        3,
    ]);
    assert_eq!(values, expected);
}

#[tokio::test]
async fn one_text_is_one_command_and_its_reply_is_the_value() {
    let server = Server::start(&[]);
    let outcome = server.run(json!({ "commands": "PING" })).await;
    assert_eq!(
        outcome.result,
        json!({ "value": "PONG", "values": ["PONG"] })
    );
}

#[tokio::test]
async fn streams_are_written_read_and_acknowledged() {
    let server = Server::start(&[]);
    let values = server
        .values(json!([
            ["XADD", "orders", "1-1", "id", 7],
            ["XGROUP", "CREATE", "orders", "billing", "0"],
            [
                "XREADGROUP",
                "GROUP",
                "billing",
                "w1",
                "COUNT",
                10,
                "BLOCK",
                100,
                "STREAMS",
                "orders",
                ">"
            ],
            ["XACK", "orders", "billing", "1-1"],
            [
                "XREADGROUP",
                "GROUP",
                "billing",
                "w1",
                "BLOCK",
                50,
                "STREAMS",
                "orders",
                ">"
            ],
        ]))
        .await;
    assert_eq!(values[0], "1-1");
    assert_eq!(values[2], json!({ "orders": [["1-1", ["id", "7"]]] }));
    assert_eq!(values[3], 1);
    assert_eq!(values[4], Json::Null, "nothing new within 50 ms");
}

#[tokio::test]
async fn the_first_error_ends_commands_in_order_but_not_a_pipeline() {
    let server = Server::start(&[]);
    let commands = json!(["SET text x", "LPUSH text y", "SET after 1"]);
    let failed = server.run(json!({ "commands": commands })).await;
    assert_eq!(failed.details["redis"]["command"], 2);
    assert_eq!(failed.details["redis"]["name"], "LPUSH");
    let failed = error(failed);
    assert_eq!(failed.code, "REDIS_WRONGTYPE");
    assert_eq!(failed.class, ErrorClass::Validation);
    assert!(!failed.is_retryable());
    assert_eq!(server.values(json!("EXISTS after")).await, json!([0]));
    let piped = json!({ "commands": commands, "pipeline": true });
    assert_eq!(error(server.run(piped).await).code, "REDIS_WRONGTYPE");
    assert_eq!(server.values(json!("EXISTS after")).await, json!([1]));
}

#[tokio::test]
async fn a_transaction_is_executed_as_a_whole_or_not_at_all() {
    let server = Server::start(&[]);
    let fields = json!({ "commands": ["INCR a", "INCR a"], "transaction": true });
    assert_eq!(server.run(fields).await.result["values"], json!([1, 2]));
    let fields = json!({ "commands": ["SET b 1", "NOSUCHCOMMAND x"], "transaction": "true" });
    let failed = server.run(fields).await;
    assert_eq!(
        failed.details["redis"]["command"], 2,
        "what was wrong, not EXECABORT"
    );
    assert_eq!(error(failed).code, "REDIS_ERR");
    assert_eq!(server.values(json!("EXISTS b")).await, json!([0]));
}

#[tokio::test]
async fn a_long_pipeline_does_not_block_itself() {
    let server = Server::start(&[]);
    let value = "x".repeat(20_000);
    let commands: Vec<Json> = (0..300).map(|_| json!(["ECHO", value])).collect();
    let outcome = server
        .run(json!({ "commands": commands, "pipeline": true }))
        .await;
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.result["values"].as_array().map(Vec::len), Some(300));
}

#[tokio::test]
async fn commands_that_are_none_are_refused_before_anything_is_sent() {
    let nowhere = "redis://127.0.0.1:1";
    for commands in [
        json!([]),
        json!(""),
        json!([[]]),
        json!([""]),
        json!(7),
        json!("GET 'open"),
        json!([["SET", "a", null]]),
        json!([["SET", "a", {"b": 1}]]),
        json!([["SET", "a", {"base64": "%"}]]),
        json!("SUBSCRIBE news"),
        json!("monitor"),
    ] {
        let fields = json!({ "commands": commands, "url": nowhere });
        let outcome = Redis::default()
            .run(&call_with(fields, Json::Null), &cx())
            .await;
        assert_eq!(error(outcome).code, "TOOL_FIELD", "{commands}");
    }
}

#[tokio::test]
async fn addresses_that_are_none_are_refused_without_showing_them() {
    for url in [
        "",
        "http://h",
        "redis://:secret@h:99999",
        "redis://u:secret@h/x",
        "redis://:secret@",
    ] {
        let failed = error(at(url, Json::Null).await);
        assert_eq!(failed.code, "TOOL_FIELD", "{url}");
        assert!(!failed.message.contains("secret"), "{failed}");
    }
    let fields = json!({ "commands": "PING" });
    let outcome = Redis::default()
        .run(&call_with(fields, Json::Null), &cx())
        .await;
    assert_eq!(error(outcome).code, "TOOL_FIELD", "no server at all");
}

#[tokio::test]
async fn an_unknown_command_is_permanent() {
    let server = Server::start(&[]);
    let failed = error(server.run(json!({ "commands": "NOSUCHCOMMAND" })).await);
    assert_eq!(
        (failed.code.as_str(), failed.class),
        ("REDIS_ERR", ErrorClass::Validation)
    );
}

#[tokio::test]
async fn a_message_repeats_no_argument() {
    let server = Server::start(&[]);
    for command in [["ATUH", "hunter2"], ["ACL", "hunter2"]] {
        let failed = error(server.run(json!({ "commands": [command] })).await);
        assert!(!failed.message.contains("hunter2"), "{failed}");
        assert!(failed.message.contains(command[0]), "{failed}");
    }
}

#[tokio::test]
async fn a_reply_that_is_nested_too_deep_is_no_lost_connection() {
    let server = Server::start(&[]);
    let deep = "local t={} local c=t for i=1,2000 do c[1]={} c=c[1] end return t";
    let failed = error(
        server
            .run(json!({ "commands": [["EVAL", deep, "0"]] }))
            .await,
    );
    assert_eq!(failed.code, "REDIS_ERROR");
    assert_eq!(failed.class, ErrorClass::Validation);
}

/// As a server that speaks another protocol, or one behind TLS.
#[tokio::test]
async fn a_server_that_accepts_and_never_answers_is_unreachable() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let plain = format!("redis://127.0.0.1:{port}");
    let encrypted = format!("rediss://127.0.0.1:{port}");
    let (plain, encrypted) = tokio::join!(at(&plain, Json::Null), at(&encrypted, Json::Null));
    for failed in [error(plain), error(encrypted)] {
        assert_eq!(failed.code, "REDIS_UNREACHABLE");
        assert!(failed.message.contains("within 15 s"), "{failed}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_may_be_there_later() {
    let failed = error(at("redis://127.0.0.1:1", Json::Null).await);
    assert_eq!(failed.code, "REDIS_UNREACHABLE");
    assert_eq!(failed.class, ErrorClass::Transport);
    assert!(failed.is_retryable(), "nothing was sent");
}

#[tokio::test]
async fn a_server_that_ends_during_a_command_leaves_it_in_doubt() {
    let mut server = Server::start(&[]);
    let blocked = json!({ "commands": "BLPOP nothing 0" });
    let blocked = server.run(blocked);
    let pid = server.process.id();
    let kill = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status()
            .unwrap();
    };
    let (outcome, ()) = tokio::join!(blocked, kill);
    let failed = error(outcome);
    assert_eq!(failed.code, "REDIS_UNREACHABLE");
    assert!(!failed.is_retryable(), "{failed}");
    assert!(failed.message.contains("unknown whether"), "{failed}");
    server.process.wait().unwrap();
}

#[tokio::test]
async fn a_slow_command_ends_at_the_deadline_and_when_it_is_cancelled() {
    let server = Server::start(&[]);
    let blocked = || json!({ "commands": "BLPOP nothing 0" });
    let begun = Instant::now();
    let failed = server
        .run_in(blocked(), &short(Duration::from_millis(200)))
        .await;
    assert_eq!(error(failed).code, "TASK_TIMEOUT");
    let cancelled = cx();
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cancelled.cancelled.cancel();
    };
    let (outcome, ()) = tokio::join!(server.run_in(blocked(), &cancelled), cancel);
    assert_eq!(error(outcome).code, "TASK_CANCELLED");
    assert!(begun.elapsed() < Duration::from_secs(5));
    // The server sees that nobody waits any more.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let clients = server.values(json!("INFO clients")).await;
    let clients = clients[0].as_str().unwrap().to_owned();
    assert!(clients.contains("blocked_clients:0"), "{clients}");
}

#[tokio::test]
async fn a_huge_reply_is_stopped_at_the_limit() {
    let server = Server::start(&[]);
    let script = "for i = 1, 2000 do redis.call('RPUSH', 'big', string.rep('x', 1000)) end";
    server.values(json!([["EVAL", script, 0]])).await;
    let limits = TaskLimits {
        result_bytes: 100_000,
        ..TaskLimits::default()
    };
    let small = TaskContext { limits, ..cx() };
    for commands in [
        "LRANGE big 0 -1",
        "EVAL \"return string.rep('x', 5000000)\" 0",
    ] {
        let failed = server.run_in(json!({ "commands": commands }), &small).await;
        let failed = error(failed);
        assert_eq!(failed.code, "REDIS_TOO_LARGE", "{commands}: {failed}");
        assert!(!failed.is_retryable());
    }
}

#[tokio::test]
async fn who_may_not_is_told_so() {
    let server = Server::start(&["--requirepass", "s3cret"]);
    let url = server.url();
    let failed = error(at(&url, Json::Null).await);
    assert_eq!(
        (failed.code.as_str(), failed.class),
        ("REDIS_NOAUTH", ErrorClass::Auth)
    );
    let failed = error(at(&url, json!({ "password": "other" })).await);
    assert_eq!(
        (failed.code.as_str(), failed.class),
        ("REDIS_WRONGPASS", ErrorClass::Auth)
    );
    assert!(!failed.message.contains("other"), "{failed}");
    let fine = at(&url, json!({ "password": "s3cret", "db": 3 })).await;
    assert_eq!(fine.result["value"], "PONG");
    let inside = format!("redis://:s3cret@127.0.0.1:{}/2", server.port);
    assert_eq!(at(&inside, Json::Null).await.result["value"], "PONG");
    let failed = error(at(&inside, json!({ "db": 999 })).await);
    assert_eq!(failed.class, ErrorClass::Validation, "{failed}");
}

#[tokio::test]
async fn a_server_with_tls_is_checked() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tools/http/tests/tls");
    let file = |name: &str| format!("{folder}/{name}.pem");
    let port = free_port();
    let listen = ["--port", "0", "--tls-port", &port.to_string()];
    let tls = [
        "--tls-cert-file",
        &file("certificate"),
        "--tls-key-file",
        &file("key"),
        "--tls-ca-cert-file",
        &file("authority"),
        "--tls-auth-clients",
        "no",
    ];
    let _server = Server::start_on(port, &listen, &tls);
    let url = format!("rediss://localhost:{port}");
    let fine = at(&url, json!({ "sslrootcert": file("authority") })).await;
    assert_eq!(fine.error, None);
    let failed = error(at(&url, Json::Null).await);
    assert_eq!(
        failed.code, "REDIS_UNREACHABLE",
        "nobody vouches for it: {failed}"
    );
    let plain = format!("redis://localhost:{port}");
    assert_eq!(
        error(at(&plain, Json::Null).await).code,
        "REDIS_UNREACHABLE"
    );
}
