//! Names whose addresses change between a look-up and the next: a name server of the test answers with an address that is
//! open, and with one inside, in turn. Whatever is judged must be what is connected to.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::harness::{PATIENCE, TestServer, asked, until};
use crate::preload;

/// Where the name leads in turn: an address that the configuration opens, and one that it does not.
const OPEN: &str = "127.0.0.2";
const INSIDE: &str = "127.0.0.1";
/// How often each way is tried.
const TIMES: usize = 6;

type Count = Arc<AtomicUsize>;

/// Answers each question for an address with the next one of the list.
fn name_server(answers: &'static [&'static str]) -> (u16, Count) {
    let socket = UdpSocket::bind((INSIDE, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    let asked = Count::default();
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        let mut name = [0; 512];
        while let Ok((_, from)) = socket.recv_from(&mut name) {
            let at = count.fetch_add(1, Ordering::SeqCst);
            let answer = answers[at % answers.len()];
            let _ = socket.send_to(answer.as_bytes(), from);
        }
    });
    (port, asked)
}

/// Counts who comes, and answers each with this.
fn listens(listener: TcpListener, answer: String) -> Count {
    let came = Count::default();
    let count = Arc::clone(&came);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            count.fetch_add(1, Ordering::SeqCst);
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    came
}

fn answer(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// A server whose names are those of the test, and two listeners on the same port: one that may be reached, one inside.
struct Site {
    server: TestServer,
    port: u16,
    outside: Count,
    inside: Count,
    lookups: Count,
}

impl Site {
    /// None on a machine without a C compiler, which is told.
    fn start(config: impl Fn(u16) -> String) -> Option<Site> {
        let folder = tempfile::tempdir().unwrap();
        let library = preload::names(folder.path())?;
        let inside = TcpListener::bind((INSIDE, 0)).unwrap();
        let port = inside.local_addr().unwrap().port();
        let outside = TcpListener::bind((OPEN, port)).unwrap();
        let (names, lookups) = name_server(&[OPEN, INSIDE]);
        std::fs::write(folder.path().join("stepwell.toml"), config(port)).unwrap();
        let names = names.to_string();
        let env = [
            ("LD_PRELOAD", library.to_str().unwrap()),
            ("TEST_DNS", names.as_str()),
        ];
        Some(Site {
            server: TestServer::with_env(folder, &[], &env),
            port,
            outside: listens(outside, answer("{}")),
            inside: listens(inside, answer("{}")),
            lookups,
        })
    }

    fn lookups(&self) -> usize {
        self.lookups.load(Ordering::SeqCst)
    }

    /// The name was looked up this often since, the open address was reached, and nobody came inside.
    fn holds(&self, lookups_before: usize) {
        let lookups = self.lookups() - lookups_before;
        assert!(lookups >= 2, "the name was looked up {lookups} times only");
        assert!(self.outside.swap(0, Ordering::SeqCst) > 0, "nobody came");
        assert_eq!(
            self.inside.load(Ordering::SeqCst),
            0,
            "a connection came inside"
        );
    }
}

fn closed(_: u16) -> String {
    format!("[security.network]\nopen = ['{OPEN}']\n")
}

fn playbook(task: &str) -> String {
    format!(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: one, path: one}}\nworkflow:\n- step: start\n  \
         tool: {task}\n"
    )
}

/// The statuses of some runs of a task.
fn outcomes(server: &TestServer, task: &str) -> Vec<(String, String)> {
    let outcome = |_| {
        let run = server.start_run(&playbook(task), &json!({}));
        let seen = server.wait_for(&run, |it| {
            it["status"] == "COMPLETED" || it["status"] == "FAILED"
        });
        let status = seen["status"].as_str().unwrap().to_owned();
        (status, seen.to_string())
    };
    (0..TIMES).map(outcome).collect()
}

#[test]
fn tools_connect_to_what_was_judged() {
    let Some(site) = Site::start(closed) else {
        return;
    };
    let (server, port) = (&site.server, site.port);
    let before = site.lookups();
    let seen = outcomes(
        server,
        &format!("{{kind: http, url: 'http://name.test:{port}/', timeout: 10}}"),
    );
    let done = seen.iter().filter(|it| it.0 == "COMPLETED").count();
    assert!((1..TIMES).contains(&done), "{seen:#?}");
    let denied = |it: &&(String, String)| it.1.contains("HTTP_HOST_DENIED");
    assert_eq!(
        seen.iter().filter(denied).count(),
        TIMES - done,
        "{seen:#?}"
    );
    site.holds(before);
    for task in [
        format!("{{kind: redis, url: 'redis://name.test:{port}', commands: [PING]}}"),
        format!(
            "{{kind: postgres, auth: {{host: name.test, port: {port}, user: u}}, query: SELECT 1}}"
        ),
    ] {
        let before = site.lookups();
        let seen = outcomes(server, &task);
        assert!(seen.iter().all(|it| it.0 == "FAILED"), "{seen:#?}");
        assert!(
            seen.iter().any(|it| it.1.contains("HOST_DENIED")),
            "{seen:#?}"
        );
        site.holds(before);
    }
}

#[test]
fn redirects_lead_nobody_to_a_name_that_leads_inside() {
    let Some(site) = Site::start(closed) else {
        return;
    };
    let moved = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://name.test:{}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        site.port
    );
    let listener = TcpListener::bind((OPEN, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let first = listens(listener, moved);
    let before = site.lookups();
    let seen = outcomes(
        &site.server,
        &format!("{{kind: http, url: 'http://{OPEN}:{port}/', timeout: 10}}"),
    );
    assert!(first.load(Ordering::SeqCst) >= TIMES, "{seen:#?}");
    let denied = |it: &&(String, String)| it.1.contains("HTTP_HOST_DENIED");
    assert!(seen.iter().filter(denied).count() > 0, "{seen:#?}");
    site.holds(before);
}

#[test]
fn deliveries_to_sinks_go_to_what_was_judged() {
    let Some(site) = Site::start(closed) else {
        return;
    };
    let url = format!("{}/api/v1/sinks/hook", site.server.url);
    let address = format!("webhook:http://name.test:{}/", site.port);
    let put = site
        .server
        .client
        .put(url)
        .json(&json!({ "address": address }));
    let (status, seen) = asked(put);
    assert_eq!(status, 200, "{seen}");
    let before = site.lookups();
    for _ in 0..TIMES {
        let run = site.server.start_run(&playbook("{kind: noop}"), &json!({}));
        site.server.wait_for(&run, |it| it["status"] == "COMPLETED");
        std::thread::sleep(Duration::from_millis(300));
    }
    until(|| site.lookups() - before, |it| *it >= 4);
    until(|| site.outside.load(Ordering::SeqCst), |it| *it > 0);
    site.holds(before);
}

#[test]
fn definitions_are_fetched_from_what_was_judged() {
    let config = |port: u16| {
        format!(
            "{}[plans]\nallow = ['http://name.test:{port}/']\n",
            closed(port)
        )
    };
    let Some(site) = Site::start(config) else {
        return;
    };
    let before = site.lookups();
    let reference = json!({
        "uri": format!("http://name.test:{}/plan.yaml", site.port),
        "sha256": "0".repeat(64),
        "schemaVersion": "v1.0",
        "planId": "p",
        "planVersion": "1",
    });
    let body = json!({ "definition": { "reference": reference } });
    let mut codes = Vec::new();
    for _ in 0..TIMES {
        let (status, seen) = asked(site.server.post("/api/v1/runs", &body));
        assert!(status < 500, "{seen}");
        codes.push(seen);
    }
    let text = Json::from(codes).to_string();
    assert!(text.contains("[security.network]"), "{text}");
    site.holds(before);
}
