//! Hosts that may not be asked: as they are written, behind a redirect, and behind a name.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::server::{Answer, Heard, Server, json as json_answer, reply};
use super::{Bench, kind};
use crate::hosts::{HostRule, HostRules};
use crate::tools::http::HttpOptions;

fn bench(allow: &[&str], deny: &[&str]) -> Bench {
    let list = |texts: &[&str]| {
        let rules = texts.iter().map(|it| HostRule::try_from((*it).to_owned()));
        rules.map(Result::unwrap).collect()
    };
    Bench::with(HttpOptions {
        hosts: Arc::new(HostRules {
            allow: list(allow),
            deny: list(deny),
            ..HostRules::default()
        }),
        ..HttpOptions::default()
    })
}

/// Sends every request on to this address.
async fn sends_on(location: String) -> Server {
    Server::start(move |_: &Heard| -> Answer {
        reply(302, &format!("Location: {location}\r\n"), "moved")
    })
    .await
}

/// The address of a server with its host replaced.
fn at(server: &Server, host: &str) -> String {
    server.url("/x").replace("127.0.0.1", host)
}

const DENIED: (&str, &str, bool) = ("policy", "HTTP_HOST_DENIED", false);

#[tokio::test]
async fn an_address_in_the_list_is_not_asked() {
    let server = Server::start(|_: &Heard| json_answer("{}")).await;
    let url = server.url("/x");
    let denies = bench(&[], &["loopback"]);
    for host in [
        "127.0.0.1",
        "127.1",
        "0x7f000001",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
    ] {
        let outcome = denies.get(&at(&server, host)).await;
        assert_eq!(kind(&outcome), DENIED, "{host}");
    }
    assert_eq!(bench(&[], &["private"]).get(&url).await.error, None);
    assert_eq!(bench(&["127.0.0.0/8"], &[]).get(&url).await.error, None);
    assert_eq!(
        kind(&bench(&["api.example.com"], &[]).get(&url).await),
        DENIED
    );
}

#[tokio::test]
async fn a_name_that_resolves_to_an_address_in_the_list_is_not_asked() {
    let server = Server::start(|_: &Heard| json_answer("{}")).await;
    let url = at(&server, "localhost");
    let outcome = bench(&[], &["loopback"]).get(&url).await;
    assert_eq!(kind(&outcome), DENIED, "{:?}", outcome.error);
    let message = &outcome.error.unwrap().message;
    assert!(
        message.contains("localhost") && message.contains("deny"),
        "{message}"
    );
    // The name is in one list, its address in the other.
    assert_eq!(
        kind(&bench(&["localhost"], &["loopback"]).get(&url).await),
        DENIED
    );
    assert_eq!(
        bench(&["localhost"], &["link-local"]).get(&url).await.error,
        None
    );
    assert_eq!(bench(&["loopback"], &[]).get(&url).await.error, None);
    assert_eq!(kind(&bench(&["10.0.0.0/8"], &[]).get(&url).await), DENIED);
}

#[tokio::test]
async fn a_redirect_leads_to_no_host_in_the_list() {
    let target = Server::start(|_: &Heard| json_answer("{}")).await;
    for (place, deny) in [
        (
            "http://169.254.169.254/latest/meta-data".to_owned(),
            "link-local",
        ),
        (at(&target, "127.0.0.2"), "127.0.0.2"),
        (at(&target, "localhost"), "localhost"),
        ("http://[fe80::1]/".to_owned(), "link-local"),
    ] {
        let server = sends_on(place.clone()).await;
        let denies = bench(&[], &[deny]);
        let outcome = denies.get(&server.url("/from")).await;
        assert_eq!(kind(&outcome), DENIED, "{place}: {:?}", outcome.error);
        assert!(
            denies.log.text().contains("/from: 302 in"),
            "the first request was sent"
        );
    }
}

#[tokio::test]
async fn a_redirect_leads_to_no_name_with_an_address_in_the_list() {
    let target = Server::start(|_: &Heard| json_answer("{}")).await;
    let location = at(&target, "localhost");
    // On another address than the target, so that only the target is in the list.
    let listener = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
    let first = listener.local_addr().unwrap();
    let answer = format!(
        "HTTP/1.1 302 X\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let serve = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    let denies = bench(&[], &["127.0.0.1", "::1"]);
    let outcome = denies.get(&format!("http://{first}/from")).await;
    assert_eq!(kind(&outcome), DENIED, "{:?}", outcome.error);
    assert!(
        denies.log.text().contains("/from: 302 in"),
        "the first request was sent"
    );
    serve.await.unwrap();
}
