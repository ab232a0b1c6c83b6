//! What an answer becomes.

use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use crate::tools::http::Http;
use serde_json::json;

use super::server::{Answer, Server, json as json_answer, reply};
use super::{Bench, kind};

#[tokio::test]
async fn a_json_body_is_the_result_and_the_rest_is_told_beside_it() {
    let headers = "Content-Type: application/json\r\nX-A: 1\r\nX-A: 2\r\nSet-Cookie: s3cret=1\r\n";
    let server = Server::start(move |_| reply(201, headers, r#"{"id": 7}"#)).await;
    let bench = Bench::new();
    let outcome = bench.get(&server.url("/orders?page=1")).await;
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.result, json!({"id": 7}));
    let http = &outcome.details["http"];
    assert_eq!(http["status"], json!(201));
    assert_eq!(http["url"], json!(server.url("/orders?page=1")));
    assert_eq!(http["headers"]["x-a"], json!("1, 2"));
    assert_eq!(http["headers"]["set-cookie"], json!("***"));
    assert!(http["elapsed_ms"].is_u64());
    let line = bench.log.text();
    let wanted = format!("GET {}: 201 in ", server.url("/orders?page=1"));
    assert!(
        line.starts_with(&wanted) && line.lines().count() == 1,
        "{line}"
    );
}

#[tokio::test]
async fn bodies_of_every_kind_have_their_form() {
    let server = Server::start(|heard| match heard.target.as_str() {
        "/text" => reply(200, "Content-Type: text/csv\r\n", "a,b"),
        "/binary" => reply(200, "Content-Type: image/png\r\n", b"\x89PNG"),
        "/untyped" => reply(200, "", "[1]"),
        "/empty" => Answer::Say(b"HTTP/1.1 204 X\r\n\r\n".to_vec()),
        "/chunks" => Answer::Say(
            b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
                .to_vec(),
        ),
        "/until-close" => Answer::Close(b"HTTP/1.1 200 X\r\n\r\nto the end".to_vec()),
        _ => reply(200, "Content-Type: application/json\r\n", "{broken"),
    })
    .await;
    let bench = Bench::new();
    for (path, wanted) in [
        ("/text", json!("a,b")),
        ("/binary", json!({"_base64": "iVBORw=="})),
        ("/untyped", json!([1])),
        ("/empty", json!(null)),
        ("/chunks", json!("abc")),
        ("/until-close", json!("to the end")),
        ("/broken", json!("{broken")),
    ] {
        let outcome = bench.get(&server.url(path)).await;
        assert_eq!((outcome.error, outcome.result), (None, wanted), "{path}");
    }
    assert!(bench.log.text().contains("JSON but is not"));
}

#[tokio::test]
async fn a_head_request_may_announce_more_than_fits() {
    let head = "HTTP/1.1 200 X\r\nContent-Length: 999999999\r\n\r\n";
    let server = Server::start(move |_| Answer::Say(head.into())).await;
    let fields = json!({"url": server.url("/"), "method": "HEAD"});
    let outcome = Bench::new().run(fields).await;
    assert_eq!((outcome.error, outcome.result), (None, json!(null)));
    assert_eq!(
        outcome.details["http"]["headers"]["content-length"],
        json!("999999999")
    );
}

#[tokio::test]
async fn a_packed_body_is_unpacked() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(br#"{"a": 1}"#).unwrap();
    let body = gzip.finish().unwrap();
    let headers = "Content-Type: application/json\r\nContent-Encoding: gzip\r\n";
    let server = Server::start(move |_| reply(200, headers, &body)).await;
    let outcome = Bench::new().get(&server.url("/")).await;
    assert_eq!((outcome.error, outcome.result), (None, json!({"a": 1})));
    assert_eq!(server.last().header("accept-encoding").unwrap(), "gzip");
}

#[tokio::test]
async fn an_error_keeps_its_body() {
    let headers = "Content-Type: application/problem+json\r\n";
    let server = Server::start(move |_| reply(422, headers, r#"{"title": "no"}"#)).await;
    let outcome = Bench::new().get(&server.url("/")).await;
    assert_eq!(kind(&outcome), ("validation", "HTTP_422", false));
    assert_eq!(outcome.result, json!({"title": "no"}));
    assert_eq!(outcome.details["http"]["status"], json!(422));
    let message = outcome.error.unwrap().message;
    assert_eq!(message, "the answer was 422 Unprocessable Entity");
}

#[tokio::test]
async fn whoever_asks_for_patience_is_heard() {
    let server = Server::start(|heard| match heard.target.as_str() {
        "/busy" => reply(429, "Retry-After: 7\r\n", ""),
        "/past" => reply(503, "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n", ""),
        _ => reply(429, "Retry-After: soon\r\n", ""),
    })
    .await;
    let bench = Bench::new();
    let busy = bench.get(&server.url("/busy")).await;
    assert_eq!(kind(&busy), ("rate_limit", "HTTP_429", true));
    assert_eq!(
        busy.error.unwrap().retry_after,
        Some(Duration::from_secs(7))
    );
    let past = bench.get(&server.url("/past")).await;
    assert_eq!(kind(&past), ("transient", "HTTP_503", true));
    assert_eq!(past.error.unwrap().retry_after, Some(Duration::ZERO));
    let odd = bench.get(&server.url("/odd")).await;
    assert_eq!(odd.error.unwrap().retry_after, None);
}

#[tokio::test]
async fn one_connection_serves_many_tasks() {
    let server = Server::start(|heard| match heard.target.as_str() {
        "/missing" => reply(404, "", "no"),
        _ => json_answer("{}"),
    })
    .await;
    let bench = Bench::new();
    for path in ["/a", "/missing", "/b", "/c"] {
        bench.get(&server.url(path)).await;
    }
    assert_eq!(
        (server.counts().requests, server.counts().connections),
        (4, 1)
    );
}

/// The environment belongs to a process, so this test runs in one of its own.
#[tokio::test]
async fn a_proxy_of_the_environment_is_used() {
    const INSIDE: &str = "STEPWELL_TEST_BEHIND_PROXY";
    if std::env::var_os(INSIDE).is_some() {
        let bench = Bench {
            http: Http::default(),
            ..Bench::new()
        };
        let outcome = bench.get("http://nowhere.invalid/a").await;
        assert_eq!(outcome.result, json!("by proxy"));
        return;
    }
    let server = Server::start(|_| reply(200, "Content-Type: text/plain\r\n", "by proxy")).await;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "tools::http::tests::answers::a_proxy_of_the_environment_is_used",
        ])
        .env(INSIDE, "1")
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .env("http_proxy", server.url(""));
    let child = tokio::task::spawn_blocking(move || command.output());
    let output = child.await.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(server.last().target, "http://nowhere.invalid/a");
}
