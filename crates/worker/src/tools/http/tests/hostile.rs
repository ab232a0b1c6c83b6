//! Servers that mean no good, or are broken. None may hold a task beyond its deadline, nor fill the
//! worker's memory.

use std::io::Write as _;
use std::time::Duration;

use crate::tools::http::HttpOptions;
use serde_json::json;
use tokio::time::Instant;

use super::server::{Answer, Server, json as json_answer, reply, silence};
use super::{Bench, kind};

const NOW: Duration = Duration::ZERO;
const TIMEOUT: (&str, &str, bool) = ("timeout", "TASK_TIMEOUT", true);
const BROKEN: (&str, &str, bool) = ("transport", "HTTP_TRANSPORT", true);
const TOO_LARGE: (&str, &str, bool) = ("validation", "HTTP_TOO_LARGE", false);

#[tokio::test]
async fn a_slow_drip_is_cut_off_at_the_deadline() {
    let head = "HTTP/1.1 200 X\r\nContent-Type: text/plain\r\n\r\n";
    let pause = Duration::from_millis(50);
    let server = Server::start(move |_| Answer::Repeat(head.into(), b"x".to_vec(), pause)).await;
    let began = Instant::now();
    let bench = Bench::new().within(300);
    let outcome = bench.get(&server.url("/")).await;
    assert_eq!(kind(&outcome), TIMEOUT);
    assert!(began.elapsed() < Duration::from_millis(900));
    assert_eq!(outcome.details["http"]["status"], json!(200));
    assert!(bench.log.text().contains("TASK_TIMEOUT after"));
    server.wait(|it| it.closed == 1).await;
}

#[tokio::test]
async fn silence_is_cut_off_at_the_deadline() {
    for beginning in [
        "",
        "HTTP/1.1 200 X\r\nA: ",
        "HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n",
    ] {
        let server = Server::start(move |_| silence(beginning)).await;
        let outcome = Bench::new().within(100).get(&server.url("/")).await;
        assert_eq!(kind(&outcome), TIMEOUT, "{beginning}");
        server.wait(|it| it.closed == 1).await;
    }
}

#[tokio::test]
async fn headers_without_end_are_left() {
    let line = b"X-More: and more and more and more and more\r\n".repeat(1000);
    let server =
        Server::start(move |_| Answer::Repeat(b"HTTP/1.1 200 X\r\n".to_vec(), line.clone(), NOW))
            .await;
    let outcome = Bench::new().get(&server.url("/")).await;
    assert_eq!(kind(&outcome), BROKEN);
    assert!(server.counts().poured < 16 << 20, "{:?}", server.counts());
}

#[tokio::test]
async fn a_body_without_end_is_left_at_the_limit() {
    let head = "HTTP/1.1 200 X\r\nContent-Type: text/plain\r\n\r\n";
    let piece = vec![b'x'; 64 << 10];
    let server = Server::start(move |_| Answer::Repeat(head.into(), piece.clone(), NOW)).await;
    let outcome = Bench::new().get(&server.url("/")).await;
    assert_eq!(kind(&outcome), TOO_LARGE);
    assert_eq!(outcome.result, json!(null));
    assert_eq!(outcome.details["http"]["status"], json!(200));
    server.wait(|it| it.closed == 1).await;
    // What is above the limit lay in the buffers of sockets.
    assert!(server.counts().poured < 32 << 20, "{:?}", server.counts());
}

#[tokio::test]
async fn a_body_that_is_announced_too_large_is_not_begun() {
    let head = "HTTP/1.1 200 X\r\nContent-Length: 1073741824\r\n\r\n";
    let server = Server::start(move |_| silence(head)).await;
    let outcome = Bench::new().get(&server.url("/")).await;
    assert_eq!(kind(&outcome), TOO_LARGE);
    server.wait(|it| it.closed == 1).await;
}

#[tokio::test]
async fn a_body_of_just_the_limit_is_read() {
    let server = Server::start(|heard| {
        let more = usize::from(heard.target == "/more");
        reply(
            200,
            "Content-Type: text/plain\r\n",
            "x".repeat((1 << 20) + more),
        )
    })
    .await;
    let bench = Bench::new();
    let outcome = bench.get(&server.url("/")).await;
    assert_eq!(outcome.result.as_str().map(str::len), Some(1 << 20));
    let outcome = bench.get(&server.url("/more")).await;
    assert_eq!(kind(&outcome), TOO_LARGE);
}

#[tokio::test]
async fn a_packed_bomb_is_counted_as_it_unpacks() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0; 1 << 20];
    for _ in 0..16 {
        gzip.write_all(&zeros).unwrap();
    }
    let bomb = gzip.finish().unwrap();
    assert!(bomb.len() < 1 << 18);
    let server = Server::start(move |_| reply(200, "Content-Encoding: gzip\r\n", &bomb)).await;
    let outcome = Bench::new().get(&server.url("/")).await;
    assert_eq!(kind(&outcome), TOO_LARGE);
}

#[tokio::test]
async fn an_error_counts_more_than_its_unreadable_body() {
    let server = Server::start(|heard| match heard.target.as_str() {
        "/large" => silence("HTTP/1.1 503 X\r\nRetry-After: 3\r\nContent-Length: 9999999\r\n\r\n"),
        _ => Answer::Close(b"HTTP/1.1 404 X\r\nContent-Length: 9\r\n\r\nabc".to_vec()),
    })
    .await;
    let bench = Bench::new();
    let outcome = bench.get(&server.url("/large")).await;
    assert_eq!(kind(&outcome), ("transient", "HTTP_503", true));
    assert_eq!(
        outcome.error.unwrap().retry_after,
        Some(Duration::from_secs(3))
    );
    assert!(bench.log.text().contains("/large: HTTP_TOO_LARGE after"));
    let outcome = bench.get(&server.url("/cut")).await;
    assert_eq!(kind(&outcome), ("validation", "HTTP_404", false));
}

#[tokio::test]
async fn broken_answers_are_of_the_transport() {
    let chunked = "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n";
    for answer in [
        String::new(),
        "SSH-2.0-OpenSSH_9.6\r\n\r\n".into(),
        "\0\u{1}\u{2} rubbish \r\n\r\n".into(),
        "HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nabc".into(),
        "HTTP/1.1 200 X\r\nContent-Length: many\r\n\r\nabc".into(),
        "HTTP/1.1 200 X\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd".into(),
        format!("{chunked}5\r\nab"),
        format!("{chunked}zz\r\nab\r\n"),
        format!("{chunked}ffffffffffffffffff\r\nab\r\n"),
        "HTTP/1.1 200 X\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc".into(),
    ] {
        let bytes = answer.clone().into_bytes();
        let server = Server::start(move |_| Answer::Close(bytes.clone())).await;
        let outcome = Bench::new().get(&server.url("/")).await;
        assert_eq!(kind(&outcome), BROKEN, "{answer:?}");
    }
}

#[tokio::test]
async fn more_than_was_announced_is_no_part_of_the_answer() {
    let answer = b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\n12HTTP/1.1 200 X\r\n\r\nevil";
    let server = Server::start(move |heard| match heard.target.as_str() {
        "/more" => Answer::Say(answer.to_vec()),
        _ => json_answer("\"good\""),
    })
    .await;
    let bench = Bench::new();
    assert_eq!(bench.get(&server.url("/more")).await.result, json!(12));
    assert_eq!(bench.get(&server.url("/next")).await.result, json!("good"));
}

#[tokio::test]
async fn no_connection_is_of_the_transport() {
    let bench = Bench::new();
    let outcome = bench.get("http://127.0.0.1:1/").await;
    assert_eq!(kind(&outcome), BROKEN);
    assert_eq!(outcome.details["http"]["status"], json!(null));
    assert!(
        outcome
            .error
            .unwrap()
            .message
            .starts_with("no connection to http://127.0.0.1")
    );
    let outcome = bench.get("http://nowhere.invalid/").await;
    assert_eq!(kind(&outcome), BROKEN);
}

#[tokio::test]
async fn a_connection_that_takes_too_long_is_given_up() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // The listener takes no connection, so a handshake over it never ends.
    let bench = Bench::with(HttpOptions {
        connect_timeout: Duration::from_millis(100),
        ..HttpOptions::default()
    });
    let outcome = bench.get(&format!("https://127.0.0.1:{port}/")).await;
    assert_eq!(kind(&outcome), ("timeout", "HTTP_TRANSPORT", true));
}

#[tokio::test]
async fn to_cancel_closes_the_connection() {
    for beginning in ["", "HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\nab"] {
        let server = Server::start(move |_| silence(beginning)).await;
        let bench = Bench::new();
        let url = server.url("/");
        let cancel = async {
            server.wait(|it| it.requests == 1).await;
            bench.cx.cancelled.cancel();
        };
        let (outcome, ()) = tokio::join!(bench.get(&url), cancel);
        assert_eq!(kind(&outcome), ("cancelled", "TASK_CANCELLED", false));
        server.wait(|it| it.closed == 1).await;
    }
}

#[tokio::test]
async fn to_drop_the_work_closes_the_connection() {
    let server = Server::start(|_| silence("HTTP/1.1 200 X\r\n\r\nab")).await;
    let bench = Bench::new();
    let url = server.url("/");
    tokio::select! {
        outcome = bench.get(&url) => panic!("{outcome:?}"),
        () = server.wait(|it| it.requests == 1) => {}
    }
    server.wait(|it| it.closed == 1).await;
}

#[tokio::test]
async fn a_task_that_is_cancelled_before_it_begins_sends_nothing() {
    let server = Server::start(|_| json_answer("{}")).await;
    let bench = Bench::new();
    bench.cx.cancelled.cancel();
    let outcome = bench.get(&server.url("/")).await;
    assert_eq!(kind(&outcome), ("cancelled", "TASK_CANCELLED", false));
    assert_eq!(server.counts().connections, 0);
}
