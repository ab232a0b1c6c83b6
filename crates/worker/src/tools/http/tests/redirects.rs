//! Where redirects lead, and what stays behind.

use serde_json::json;

use super::server::{Answer, Heard, Server, json as json_answer, reply};
use super::{Bench, kind};

fn to(status: u16, location: &str) -> Answer {
    reply(status, &format!("Location: {location}\r\n"), "moved")
}

/// A server that sends `/from` on.
async fn sends_on(status: u16, location: &'static str) -> Server {
    Server::start(move |heard: &Heard| match heard.target.as_str() {
        "/from" => to(status, location),
        _ => json_answer("{}"),
    })
    .await
}

#[tokio::test]
async fn a_redirect_is_followed_and_each_request_is_told() {
    let server = sends_on(302, "there?a=1").await;
    let bench = Bench::new();
    let outcome = bench.get(&server.url("/from")).await;
    assert_eq!(outcome.error, None);
    assert_eq!(
        outcome.details["http"]["url"],
        json!(server.url("/there?a=1"))
    );
    let log = bench.log.text();
    assert!(
        log.contains("/from: 302 in") && log.contains("/there?a=1: 200 in"),
        "{log}"
    );
}

#[tokio::test]
async fn a_redirect_is_the_answer_if_the_task_says_so() {
    let server = sends_on(302, "/there").await;
    let fields = json!({"url": server.url("/from"), "follow_redirects": false});
    let outcome = Bench::new().run(fields).await;
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.details["http"]["status"], json!(302));
    assert_eq!(
        outcome.details["http"]["headers"]["location"],
        json!("/there")
    );
}

#[tokio::test]
async fn the_status_decides_whether_the_body_goes_along() {
    for (status, method, wanted, body) in [
        (301, "POST", "GET", ""),
        (302, "POST", "GET", ""),
        (303, "PUT", "GET", ""),
        (302, "PUT", "PUT", "[1]"),
        (307, "POST", "POST", "[1]"),
        (308, "POST", "POST", "[1]"),
    ] {
        let server = sends_on(status, "/there").await;
        let fields = json!({"url": server.url("/from"), "method": method, "json": [1]});
        assert_eq!(Bench::new().run(fields).await.error, None);
        let last = server.last();
        assert_eq!(
            (last.method.as_str(), last.body.as_str()),
            (wanted, body),
            "{status}"
        );
        let kept = wanted != "GET";
        assert_eq!(last.header("content-type").is_some(), kept, "{status}");
        assert_eq!(last.header("idempotency-key").is_some(), kept, "{status}");
        assert_eq!(last.header("stepwell-fence").is_some(), kept, "{status}");
    }
}

#[tokio::test]
async fn credentials_stay_with_their_host() {
    let other = Server::start(|_| json_answer("{}")).await;
    let place = other.other_url("/there");
    let server = Server::start(move |heard: &Heard| match heard.target.as_str() {
        "/from" => to(307, "/here"),
        _ => to(307, &place),
    })
    .await;
    let fields = json!({
        "url": server.url("/from"), "method": "POST", "body": "b",
        "headers": {"Cookie": "c", "X-Session-Token": "t", "X-Plain": "p"},
    });
    for (auth, name) in [
        (json!({"token": "t"}), "authorization"),
        (
            json!({"type": "header", "name": "X-Mine", "value": "v"}),
            "x-mine",
        ),
    ] {
        let bench = Bench::new().auth(auth);
        assert_eq!(bench.run(fields.clone()).await.error, None);
        let here = server.last();
        assert_eq!(here.target, "/here");
        let there = other.last();
        for secret in [name, "cookie", "x-session-token"] {
            assert!(here.header(secret).is_some(), "{secret}");
            assert_eq!(there.header(secret), None, "{secret}");
        }
        assert_eq!(there.header("x-plain").unwrap(), "p");
        // The other host does the work, so it must know the fence too.
        assert!(there.header("idempotency-key").is_some());
        assert_eq!(there.header("stepwell-fence").unwrap(), "41");
        assert_eq!(there.body, "b");
    }
}

#[tokio::test]
async fn a_circle_of_redirects_is_left() {
    let server = Server::start(|_| to(302, "/again")).await;
    let outcome = Bench::new().get(&server.url("/")).await;
    assert_eq!(kind(&outcome), ("validation", "HTTP_REDIRECTS", false));
    assert_eq!(server.counts().requests, 11);
}

#[tokio::test]
async fn redirects_that_lead_nowhere_are_refused() {
    for place in ["file:///etc/passwd", "http://", "gopher://h/"] {
        let server = sends_on(302, place).await;
        let bench = Bench::new();
        let outcome = bench.get(&server.url("/from")).await;
        assert_eq!(
            kind(&outcome),
            ("validation", "HTTP_REDIRECTS", false),
            "{place}"
        );
        assert!(bench.log.text().contains("/from: 302 in"), "{place}");
    }
    let server = Server::start(|_| reply(302, "", "no place")).await;
    let outcome = Bench::new().get(&server.url("/")).await;
    assert_eq!((outcome.error, outcome.result), (None, json!("no place")));
}

#[tokio::test]
async fn nothing_is_sent_on_from_https_to_http() {
    let plain = Server::start(|_| json_answer("{}")).await;
    let place = plain.url("/");
    let server = Server::start_tls(move |_| to(302, &place)).await;
    let fields = json!({"url": server.url("/"), "verify_ssl": false});
    let outcome = Bench::new().run(fields).await;
    assert_eq!(kind(&outcome), ("validation", "HTTP_REDIRECTS", false));
    assert_eq!(plain.counts().connections, 0);
}
