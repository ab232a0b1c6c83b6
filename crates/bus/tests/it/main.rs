//! The webhook against real servers, good and bad ones.
#![allow(clippy::unwrap_used)]

#[cfg(feature = "brokers")]
mod brokers;
mod doc_tables;
mod listener;

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use stepwell_bus::{Webhook, WebhookOptions, signature};
use stepwell_engine::outbox::{Delivery, Outbound, Sink as _, SinkError};

use listener::{Answer, Listener, OK};

fn delivery() -> Delivery {
    Delivery {
        run_id: "run_ä 1".into(),
        first_seq: 7,
        last_seq: 8,
        attempt: 3,
        events: vec![json!({"runSeq": 7}), json!({"runSeq": 8})],
        outbound: vec![Outbound {
            seq: 8,
            place: 0,
            step_id: "ask".into(),
            event: json!({"type": "asked"}),
        }],
        telemetry: Vec::new(),
    }
}

fn options() -> WebhookOptions {
    WebhookOptions {
        timeout: Duration::from_millis(400),
        ..WebhookOptions::default()
    }
}

/// What comes of a delivery to a server that answers like this.
fn answered(answer: Answer) -> Result<(), SinkError> {
    let listener = Listener::start(0, answer);
    let webhook = Webhook::new(&listener.url(), options()).unwrap();
    let result = webhook.deliver(&delivery());
    assert_eq!(listener.heard().len(), 1, "each delivery is one request");
    result
}

#[test]
fn a_delivery_is_one_signed_request() {
    let listener = Listener::start(0, OK);
    let options = WebhookOptions {
        name: "orders".into(),
        secret: Some(b"secret".to_vec()),
        headers: vec![("Authorization".into(), "Bearer t".into())],
        ..options()
    };
    let webhook = Webhook::new(&format!("webhook:{}", listener.url()), options).unwrap();
    assert_eq!(webhook.name(), "orders");
    webhook.deliver(&delivery()).unwrap();
    webhook.deliver(&delivery()).unwrap();
    let heard = listener.heard();
    assert_eq!(heard.len(), 2);
    let header = |name: &str| heard[0].headers[name].as_str();
    assert_eq!(header("content-type"), "application/json");
    assert_eq!(header("stepwell-run"), "run_%C3%A4%201");
    assert_eq!(header("stepwell-first-seq"), "7");
    assert_eq!(header("stepwell-attempt"), "3");
    assert_eq!(header("idempotency-key"), "run_%C3%A4%201/7");
    assert_eq!(header("authorization"), "Bearer t");
    assert_eq!(
        heard[0].headers["idempotency-key"],
        heard[1].headers["idempotency-key"]
    );
    let (time, signed) = header("stepwell-signature").split_once(",v1=").unwrap();
    let seconds = time.strip_prefix("t=").unwrap().parse().unwrap();
    assert_eq!(
        signature(b"secret", seconds, heard[0].body.as_bytes()),
        signed
    );
    let body: Json = serde_json::from_str(&heard[0].body).unwrap();
    let expected = json!({
        "runId": "run_ä 1", "firstSeq": 7, "lastSeq": 8,
        "events": [{"runSeq": 7}, {"runSeq": 8}],
        "outbound": [{"runSeq": 8, "index": 0, "stepId": "ask", "event": {"type": "asked"}}],
    });
    assert_eq!(body, expected);
}

/// Computed with another implementation: HMAC-SHA256 of `1.{}` under `key`.
#[test]
fn the_signature_is_what_others_compute() {
    assert_eq!(
        signature(b"key", 1, b"{}"),
        "1ba6b8171186efc613e8bcc0cbdab2748f24984d7c5a84faa2637afa0e40d224"
    );
}

#[test]
fn any_2xx_is_success_and_its_body_is_not_read() {
    answered(OK).unwrap();
    answered(Answer::Write(
        "HTTP/1.1 202 Accepted\r\nContent-Length: 9999999\r\n\r\nx",
    ))
    .unwrap();
}

#[test]
fn refusals_say_what_was_answered() {
    for (answer, says, down) in [
        ("HTTP/1.1 500 Internal Server Error\r\n\r\n", "500", false),
        ("HTTP/1.1 503 Service Unavailable\r\n\r\n", "503", true),
        ("HTTP/1.1 404 Not Found\r\n\r\n", "404", false),
        ("HTTP/1.1 408 Request Timeout\r\n\r\n", "408", true),
        (
            "HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
            "301",
            false,
        ),
    ] {
        let error = answered(Answer::Write(answer)).unwrap_err();
        assert!(error.why.contains(says), "{error}");
        assert_eq!((error.down, error.retry_after), (down, None), "{error}");
    }
}

#[test]
fn a_sink_may_ask_for_time() {
    let answer = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\n\r\n";
    let error = answered(Answer::Write(answer)).unwrap_err();
    assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
    assert!(error.down);
}

#[test]
fn an_answer_that_breaks_off_is_a_failure() {
    for answer in [
        "",
        "HTTP/1.1 20",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "no HTTP at all\r\n\r\n",
    ] {
        let error = answered(Answer::Write(answer)).unwrap_err();
        assert!(error.down, "{answer:?}: {error}");
    }
}

#[test]
fn a_slow_server_is_given_up_in_time() {
    let begun = Instant::now();
    let error = answered(Answer::Wait(Duration::from_secs(30))).unwrap_err();
    assert!(error.down && error.why.contains("timed out"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_server_that_is_gone_and_comes_back() {
    let listener = Listener::start(0, OK);
    let (port, url) = (listener.port, listener.url());
    let webhook = Webhook::new(&url, options()).unwrap();
    webhook.deliver(&delivery()).unwrap();
    drop(listener);
    let error = webhook.deliver(&delivery()).unwrap_err();
    assert!(error.down, "{error}");
    assert!(
        !error.why.contains("/events"),
        "addresses may hold tokens: {error}"
    );
    let listener = Listener::start(port, OK);
    webhook.deliver(&delivery()).unwrap();
    assert_eq!(listener.heard().len(), 1);
}

#[test]
fn what_is_no_webhook_is_refused() {
    for address in ["", "nothing", "ftp://host/", "webhook:"] {
        let fault = Webhook::new(address, options()).unwrap_err();
        assert!(fault.to_string().starts_with("WEBHOOK_UNUSABLE"), "{fault}");
    }
    let bad = WebhookOptions {
        headers: vec![("a b".into(), "c".into())],
        ..options()
    };
    assert!(Webhook::new("http://host/", bad).is_err());
    assert!(Webhook::new("https://host/", options()).is_ok());
}
