//! Who is believed to be who.

use crate::tools::http::HttpOptions;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::server::{AUTHORITY, Server, json as json_answer};
use super::{Bench, kind};

#[tokio::test]
async fn an_unknown_certificate_is_refused_for_good() {
    let server = Server::start_tls(|_| json_answer("{}")).await;
    let outcome = Bench::new().get(&server.url("/")).await;
    assert_eq!(kind(&outcome), ("transport", "HTTP_TLS", false));
    let message = outcome.error.unwrap().message;
    assert!(message.contains("verify_ssl: false"), "{message}");
    assert_eq!(server.counts().requests, 0);
}

#[tokio::test]
async fn a_certificate_goes_unchecked_if_the_task_says_so() {
    let server = Server::start_tls(|_| json_answer("{}")).await;
    let bench = Bench::new();
    let fields = json!({"url": server.url("/"), "verify_ssl": false});
    assert_eq!(bench.run(fields).await.error, None);
    assert!(bench.log.text().contains("verify_ssl is false"));
    // The two kinds of tasks share no connection.
    let outcome = bench.get(&server.url("/")).await;
    assert_eq!(kind(&outcome), ("transport", "HTTP_TLS", false));
}

#[tokio::test]
async fn an_authority_of_ones_own_is_trusted_beside_the_others() {
    let server = Server::start_tls(|_| json_answer("{}")).await;
    let bench = Bench::with(HttpOptions {
        extra_roots: vec![AUTHORITY.to_vec()],
        ..HttpOptions::default()
    });
    assert_eq!(bench.get(&server.other_url("/")).await.error, None);
    assert_eq!(bench.log.text().lines().count(), 1);
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_may_do_so_later() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let greet = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream
            .write_all(b"220 mail.example ready\r\n")
            .await
            .unwrap();
    };
    let url = format!("https://127.0.0.1:{port}/");
    let bench = Bench::new();
    let (outcome, ()) = tokio::join!(bench.get(&url), greet);
    assert_eq!(kind(&outcome), ("transport", "HTTP_TRANSPORT", true));
}

#[tokio::test]
async fn certificates_that_are_none_make_no_worker_fall() {
    let bench = Bench::with(HttpOptions {
        extra_roots: vec![b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n".to_vec()],
        ..HttpOptions::default()
    });
    let outcome = bench.get("http://127.0.0.1:1/").await;
    assert_eq!(kind(&outcome), ("transport", "HTTP_TRANSPORT", false));
    assert!(
        outcome
            .error
            .unwrap()
            .message
            .contains("cannot send requests")
    );
}
