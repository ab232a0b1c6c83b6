//! What a task's fields become on the wire.

use serde_json::json;

use super::Bench;
use super::server::{Answer, Heard, Server, json as json_answer};

async fn sent(bench: Bench, mut fields: serde_json::Value) -> Heard {
    let server = Server::start(|_| json_answer("{}")).await;
    if fields.get("url").is_none() {
        fields["url"] = server.url("/a").into();
    }
    let outcome = bench.run(fields).await;
    assert_eq!(outcome.error, None);
    server.last()
}

#[tokio::test]
async fn a_body_makes_it_a_post() {
    let heard = sent(Bench::new(), json!({})).await;
    assert_eq!(
        (heard.method.as_str(), heard.target.as_str()),
        ("GET", "/a")
    );
    assert_eq!(heard.header("content-length"), None);
    let heard = sent(Bench::new(), json!({"body": "words"})).await;
    assert_eq!(
        (heard.method.as_str(), heard.body.as_str()),
        ("POST", "words")
    );
    assert_eq!(heard.header("content-type"), None);
    let heard = sent(Bench::new(), json!({"method": "put", "json": [1]})).await;
    assert_eq!((heard.method.as_str(), heard.body.as_str()), ("PUT", "[1]"));
}

#[tokio::test]
async fn data_goes_out_as_json_whether_it_is_called_json_or_body() {
    for field in ["json", "body"] {
        let heard = sent(Bench::new(), json!({field: {"a": [1, null]}})).await;
        assert_eq!(heard.body, r#"{"a":[1,null]}"#);
        assert_eq!(heard.header("content-type").unwrap(), "application/json");
    }
    let headers = json!({"content-type": "application/merge-patch+json"});
    let heard = sent(Bench::new(), json!({"json": {}, "headers": headers})).await;
    assert_eq!(
        heard.header("content-type").unwrap(),
        "application/merge-patch+json"
    );
}

#[tokio::test]
async fn a_form_is_encoded() {
    let form = json!({"a": "x &y", "n": 1, "flag": true, "none": null, "many": ["p", 2]});
    let heard = sent(Bench::new(), json!({"form": form})).await;
    assert_eq!(heard.body, "a=x+%26y&flag=true&many=p&many=2&n=1");
    let content_type = heard.header("content-type").unwrap();
    assert_eq!(content_type, "application/x-www-form-urlencoded");
}

#[tokio::test]
async fn params_join_the_query_in_every_form() {
    let server = Server::start(|_| json_answer("{}")).await;
    let bench = Bench::new();
    for (params, wanted) in [
        (
            json!({"b": [1, "x y"], "c": null, "d": false}),
            "/a?z=1&b=1&b=x+y&d=false",
        ),
        (
            json!([["b", 2], ["a", "1"], ["b", "ü"]]),
            "/a?z=1&b=2&a=1&b=%C3%BC",
        ),
        (json!("?q=1&r=a%20b"), "/a?z=1&q=1&r=a%20b"),
        (json!({}), "/a?z=1"),
        (json!(null), "/a?z=1"),
    ] {
        let fields = json!({"url": server.url("/a?z=1"), "params": params});
        assert_eq!(bench.run(fields).await.error, None);
        assert_eq!(server.last().target, wanted);
    }
}

#[tokio::test]
async fn headers_go_out_as_text() {
    let headers = json!({"X-Number": 7, "X-None": null, "X-Many": ["a", "b"], "X-End": "v\n",
                         "Content-Length": 999});
    let heard = sent(Bench::new(), json!({"headers": headers, "body": "abc"})).await;
    assert_eq!(heard.header("x-number").unwrap(), "7");
    assert_eq!(heard.header("x-none"), None);
    assert_eq!(heard.header("x-many").unwrap(), "a, b");
    assert_eq!(heard.header("x-end").unwrap(), "v");
    assert_eq!(heard.header("content-length").unwrap(), "3");
    assert!(heard.header("user-agent").unwrap().starts_with("stepwell/"));
}

#[tokio::test]
async fn the_idempotency_key_goes_with_what_changes_something() {
    let heard = sent(Bench::new(), json!({"method": "POST"})).await;
    assert_eq!(
        heard.header("idempotency-key").unwrap(),
        "run/fetch%20%C3%A4"
    );
    let own = [
        ("stepwell-run", "run"),
        ("stepwell-step", "fetch"),
        ("stepwell-execution", "3"),
        ("stepwell-attempt", "1"),
        ("stepwell-fence", "41"),
    ];
    for (name, value) in own {
        assert_eq!(heard.header(name).unwrap(), value);
    }
    for method in ["GET", "HEAD", "OPTIONS"] {
        let heard = sent(Bench::new(), json!({"method": method})).await;
        assert_eq!(heard.header("idempotency-key"), None, "{method}");
        assert!(own.iter().all(|(name, _)| heard.header(name).is_none()));
    }
    let headers = json!({"Idempotency-Key": "mine", "STEPWELL-fence": 7});
    let heard = sent(
        Bench::new(),
        json!({"method": "DELETE", "headers": headers}),
    )
    .await;
    assert_eq!(heard.header("idempotency-key").unwrap(), "mine");
    assert_eq!(heard.header("stepwell-fence").unwrap(), "7");
    assert_eq!(heard.header("stepwell-run").unwrap(), "run");
}

#[tokio::test]
async fn auth_goes_out_and_is_never_shown() {
    for (auth, name, wanted) in [
        (
            json!({"type": "bearer", "token": "s3cret"}),
            "authorization",
            "Bearer s3cret",
        ),
        (
            json!({"user": "me", "password": "s3cret"}),
            "authorization",
            "Basic bWU6czNjcmV0",
        ),
        (json!({"key": "s3cret"}), "x-api-key", "s3cret"),
    ] {
        let bench = Bench::new().auth(auth);
        let log = bench.log.clone();
        let headers = json!({"Authorization": "old"});
        let heard = sent(bench, json!({"headers": headers})).await;
        assert_eq!(heard.header(name).unwrap(), wanted);
        assert!(!log.text().contains("s3cret"));
    }
    let server = Server::start(|_| json_answer("{}")).await;
    let auth = json!({"key": "s3cret", "in": "query", "name": "appid"});
    let bench = Bench::new().auth(auth);
    let outcome = bench.get(&server.url("/a?b=1&sig=s3cret")).await;
    assert_eq!(server.last().target, "/a?b=1&sig=s3cret&appid=s3cret");
    let url = outcome.details["http"]["url"].as_str().unwrap();
    assert!(url.ends_with("/a?b=1&sig=***&appid=***"), "{url}");
    assert!(!bench.log.text().contains("s3cret"));
}

#[tokio::test]
async fn a_password_in_the_address_is_used_and_hidden() {
    let server = Server::start(|heard| match heard.target.as_str() {
        "/cut" => Answer::Close(Vec::new()),
        _ => json_answer("{}"),
    })
    .await;
    let with_password = |path| server.url(path).replace("//", "//me:s3%40cret@");
    let bench = Bench::new();
    let outcome = bench.get(&with_password("/a")).await;
    let sent = server.last().header("authorization").unwrap();
    assert_eq!(sent, "Basic bWU6czNAY3JldA==");
    assert_eq!(outcome.details["http"]["url"], json!(server.url("/a")));
    let error = bench.error(json!({"url": with_password("/cut")})).await;
    assert!(error.message.contains(&server.url("/cut")), "{error}");
    assert!(!bench.log.text().contains("s3"));
}

#[tokio::test]
async fn a_task_that_is_wrong_is_told_so_before_anything_is_sent() {
    let server = Server::start(|_| json_answer("{}")).await;
    let url = server.url("/");
    for (fields, wanted) in [
        (json!({}), "`url` is missing"),
        (json!({"url": "/orders"}), "whole address"),
        (json!({"url": "ftp://h/x"}), "`ftp`"),
        (json!({"url": 5}), "must be text"),
        (json!({"url": url, "method": "CONNECT"}), "one of GET"),
        (
            json!({"url": url, "json": 1, "form": {}}),
            "keep one of `json` and `form`",
        ),
        (
            json!({"url": url, "form": "a=1"}),
            "`form` must be a mapping, it is text",
        ),
        (
            json!({"url": url, "params": {"a": {}}}),
            "`params.a` must be text",
        ),
        (json!({"url": url, "params": ["a"]}), "must be a pair"),
        (
            json!({"url": url, "params": 3}),
            "`params` must be a mapping",
        ),
        (
            json!({"url": url, "headers": ["a"]}),
            "`headers` must be a mapping",
        ),
        (
            json!({"url": url, "headers": {"a b": "1"}}),
            "invalid header name",
        ),
        (
            json!({"url": url, "headers": {"a": "1\r\nb: 2"}}),
            "no header may have",
        ),
        (json!({"url": url, "verify_ssl": "maybe"}), "true or false"),
    ] {
        let outcome = Bench::new().run(fields.clone()).await;
        let error = outcome.error.unwrap();
        assert_eq!(
            (error.class.name(), error.code.as_str()),
            ("validation", "TOOL_FIELD")
        );
        assert!(error.message.contains(wanted), "{fields}: {error}");
        assert_eq!(outcome.details["http"]["status"], json!(null));
    }
    assert_eq!(server.counts().connections, 0);
}
