//! How a server listens: not to everyone, with TLS, and to requests that mean harm.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::blocking::Client;
use reqwest::tls::TlsInfo;
use serde_json::json;

use crate::access::{RUN, audited, bearer, controlled, stepwell, token, wait};
use crate::harness::{PATIENCE, TestServer, asked};

#[test]
fn a_server_that_others_reach_does_not_start_without_access_control() {
    let folder = tempfile::tempdir().unwrap();
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let out = stepwell(folder.path(), &["serve", "--listen", listen]);
        assert_eq!(out.status.code(), Some(2), "{out:?}");
        let text = String::from_utf8(out.stderr).unwrap();
        assert!(
            text.contains("--access tokens") && text.contains("stepwell token create"),
            "{text}"
        );
    }
    assert!(
        !folder.path().join(".stepwell").exists(),
        "nothing was begun"
    );
}

/// The tests are built without engines outside.
#[cfg(not(feature = "temporal"))]
#[test]
fn a_server_refuses_engines_that_it_was_built_without_and_addresses_that_are_wrong() {
    for (section, code, part) in [
        (
            "[engines]\norders = 'temporal://127.0.0.1:1/default'",
            2,
            "--features temporal",
        ),
        (
            "\n[engines]\norders = 'nowhere'",
            1,
            "cannot be used: line 2: engines.orders: ENGINE_ADDRESS",
        ),
        (
            "[[engines.definitions]]\nname = 'order'\nengine = 'orders'",
            1,
            "no engine \"orders\"",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("stepwell.toml"), section).unwrap();
        let out = stepwell(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
        let text = String::from_utf8(out.stderr).unwrap();
        assert!(text.contains(part), "{text}");
        assert_eq!(out.status.code(), Some(code), "{text}");
    }
}

#[test]
fn a_server_without_engines_outside_runs_everything_itself() {
    let server = TestServer::start();
    let (status, answer) = asked(server.get("/api/v1/engines"));
    assert_eq!((status, answer), (200, json!({"engines": []})));
    let (status, answer) = asked(server.get("/readyz"));
    assert_eq!((status, &answer["warnings"]), (200, &json!([])));
    let out = stepwell(server.folder.path(), &["engines", "--server", &server.url]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("runs all definitions itself"), "{text}");
}

#[test]
fn an_address_that_cannot_be_listened_on_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let said = |args: &[&str]| {
        let out = stepwell(folder.path(), args);
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let (code, text) = said(&["serve", "--listen", "example.com:7117"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("127.0.0.1:7117"), "{text}");
    // The name of this machine is understood. Before the store is waited for, which another process has too.
    let server = TestServer::start();
    let taken = server.url.replace("http://127.0.0.1", "localhost");
    let began = Instant::now();
    let out = stepwell(server.folder.path(), &["serve", "--listen", &taken]);
    let text = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("LISTEN_FAILED"), "{text}");
    assert!(began.elapsed() < Duration::from_secs(30), "{text}");
}

#[test]
fn a_server_that_will_stop_serves_on_and_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[server]\nstop_notice_seconds = 60\n";
    std::fs::write(folder.path().join("stepwell.toml"), text).unwrap();
    let mut server = TestServer::in_folder(folder, &[]);
    assert_eq!(asked(server.get("/readyz")).0, 200);
    let id = server.child.id().to_string();
    let signal = || {
        let sent = std::process::Command::new("kill")
            .args(["-TERM", &id])
            .status();
        assert!(sent.unwrap().success());
    };
    signal();
    wait("the server is not ready", || {
        let (status, answer) = asked(server.get("/readyz"));
        status == 503 && answer["reasons"][0] == "the server is stopping"
    });
    assert_eq!(asked(server.get("/api/v1/runs")).0, 200);
    // A second signal cuts the notice short.
    signal();
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn tls_is_served_and_a_new_certificate_is_used_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str| {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/postgres_access");
        for kind in ["key", "pem"] {
            let to = folder.path().join(format!("tls.{kind}"));
            std::fs::copy(from.join(format!("{name}.{kind}")), to).unwrap();
        }
    };
    put("server");
    let text = "[server]\naccess = 'tokens'\n[server.tls]\ncert = 'tls.pem'\nkey = 'tls.key'\n";
    std::fs::write(folder.path().join("stepwell.toml"), text).unwrap();
    let path = folder.path().to_owned();
    let server = TestServer::in_folder(folder, &[]);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let certificate = || {
        // A new client each time: a connection keeps the certificate that it began with.
        let client = Client::builder()
            .tls_danger_accept_invalid_certs(true)
            .tls_info(true)
            .build()
            .unwrap();
        let answer = client
            .get(format!("{}/healthz", server.url))
            .send()
            .unwrap();
        assert_eq!(answer.status(), 200);
        let info = answer.extensions().get::<TlsInfo>().unwrap();
        info.peer_certificate().unwrap().to_vec()
    };
    let first = certificate();
    // A file that cannot be used changes nothing.
    std::fs::write(path.join("tls.pem"), "nonsense").unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(certificate(), first);
    for kind in ["key", "pem"] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/postgres_access");
        let from = from.join(format!("self-signed.{kind}"));
        std::fs::copy(from, path.join(format!("tls.{kind}"))).unwrap();
    }
    wait("the new certificate is used", || certificate() != first);
    // Who does not speak TLS is told so at once, whatever is asked for, and does not keep others from being served.
    let plain = server.url.replace("https", "http");
    let refused = server
        .client
        .get(format!("{plain}/healthz"))
        .send()
        .unwrap();
    assert_eq!(refused.status(), 400);
    let problem: serde_json::Value = refused.json().unwrap();
    assert_eq!(problem["code"], "TLS_REQUIRED");
    let began = Instant::now();
    let listed = stepwell(&path, &["runs", "list", "--server", &plain]);
    let said = String::from_utf8(listed.stderr).unwrap();
    assert!(said.contains("TLS_REQUIRED"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(30), "{said}");
    let _silent = TcpStream::connect(server.url.trim_start_matches("https://")).unwrap();
    certificate();
    // The cookie of a session is for TLS only.
    let admin = stepwell(&path, &["token", "create", "root", "--role", "admin"]);
    let admin = String::from_utf8(admin.stdout).unwrap();
    let client = Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .build()
        .unwrap();
    let begin = client.post(format!("{}/api/v1/session", server.url));
    let answer = begin
        .json(&json!({ "token": admin.trim() }))
        .send()
        .unwrap();
    let cookie = answer.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("; Secure"), "{cookie}");
}

/// Sends bytes as they are, and reads until the connection is closed.
fn raw(server: &TestServer, bytes: &str) -> String {
    let mut stream = TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn paths_and_headers_that_mean_harm_reach_nothing() {
    let server = controlled();
    let admin = token(&server.folder, &["root", "--role", "admin"]);
    let ask = |method: &str, path: &str, more: &str| {
        raw(
            &server,
            &format!(
                "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {admin}\r\n\
                 connection: close\r\n{more}\r\n"
            ),
        )
    };
    for run in [
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e%2fstepwell.toml",
        "..",
        "%00",
        "a%0d%0aset-cookie:%20x=y",
        "..%5c..%5cstepwell.toml",
        "%c0%ae%c0%ae",
    ] {
        for path in [
            "",
            "/events",
            "/artifacts",
            "/artifact?uri=file:///etc/passwd",
            "/explain",
        ] {
            let answer = ask("GET", &format!("/api/v1/runs/{run}{path}"), "");
            let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
            assert!(
                ["400", "404"].contains(&status.as_str()),
                "{run}{path}: {answer}"
            );
            assert!(
                !answer.to_lowercase().contains("\r\nset-cookie"),
                "{answer}"
            );
            assert!(!answer.contains("root:"), "{answer}");
        }
    }
    for path in [
        "/api/v1/../../etc/passwd",
        "/../stepwell.toml",
        "//etc/passwd",
        "/api/v1//tokens",
    ] {
        let answer = ask("GET", path, "");
        assert!(answer.starts_with("HTTP/1.1 40"), "{path}: {answer}");
    }
    // An id of a request that could become a header is replaced.
    let odd = server.get("/healthz").header("x-request-id", "a b;c=\"d\"");
    let odd = odd.send().unwrap();
    let id = odd.headers()["x-request-id"].to_str().unwrap();
    assert!(
        id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
        "{id}"
    );
    // Two lengths, or a length and chunks, could hide a second request.
    for lengths in [
        "content-length: 2\r\ncontent-length: 30\r\n",
        "content-length: -1\r\n",
        "transfer-encoding: chunked, odd\r\n",
    ] {
        let answer = ask("POST", "/api/v1/tokens", lengths);
        assert!(!answer.starts_with("HTTP/1.1 2"), "{lengths}: {answer}");
    }
    let large = format!("x-large: {}\r\n", "x".repeat(100_000));
    let answer = ask("GET", "/api/v1/runs", &large);
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_caller_who_says_nothing_or_never_ends_is_given_up() {
    let server = controlled();
    let slow = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n";
    // Nothing, the beginning of both versions of HTTP, a head that goes on and on.
    let cases = [("", ""), ("PRI", ""), (slow, "x-a: b\r\n")];
    std::thread::scope(|scope| {
        for (first, drop) in cases {
            let server = &server;
            scope.spawn(move || until_closed(server, first, drop));
        }
    });
    assert_eq!(asked(server.get("/healthz")).0, 200);
}

/// Sends something, then a drop now and then, until the server closes the connection.
fn until_closed(server: &TestServer, first: &str, drop: &str) {
    let mut stream = TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
    let look = Some(Duration::from_millis(500));
    stream.set_read_timeout(look).unwrap();
    stream.write_all(first.as_bytes()).unwrap();
    let began = Instant::now();
    let is_open = |error: &std::io::Error| {
        let kinds = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut];
        kinds.contains(&error.kind())
    };
    loop {
        let sent = stream.write_all(drop.as_bytes());
        let read = stream.read(&mut [0; 512]);
        match (sent, read) {
            (Err(_), _) | (_, Ok(0)) => break,
            (_, Err(error)) if !is_open(&error) => break,
            _ => {}
        }
        let waited = began.elapsed() < Duration::from_secs(30);
        assert!(waited, "the connection is still open after {first:?}");
    }
    assert!(began.elapsed() > Duration::from_secs(5));
}

#[test]
fn who_leaves_before_the_answer_is_in_the_audit_log_too() {
    let server = controlled();
    let admin = token(&server.folder, &["root", "--role", "admin"]);
    let text = RUN.replace("'true'", "sleep 2");
    let body = json!({ "definition": { "text": text }, "waitSeconds": 20 }).to_string();
    let mut stream = TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
    let head = "POST /api/v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    let length = body.len();
    let request = format!(
        "{head}\r\nauthorization: Bearer {admin}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    wait("the run is there", || {
        let (_, list) = asked(bearer(server.get("/api/v1/runs"), &admin));
        !list["runs"].as_array().unwrap().is_empty()
    });
    drop(stream);
    let rows = audited(&server, &admin, "action=POST%20/api/v1/runs");
    assert_eq!(rows[0]["accepted"], true, "{rows:?}");
}
