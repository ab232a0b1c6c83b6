//! What definitions of tenants reach from a server: hosts, files and variables only as far as they are opened, and tools
//! only as far as they are allowed. Asked through real servers and workers.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value as Json, json};

use crate::access::{bearer, configured, token};
use crate::harness::{PATIENCE, TestServer, asked};

const ASK: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: ask, path: ask}
workload: {url: ''}
workflow:
- step: start
  tool: {kind: http, url: "{{ workload.url }}", timeout: 20}
"#;

const SHELL: &str = "
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: sh, path: sh}
workflow:
- step: start
  tool: {kind: shell, cmds: ['true']}
";

/// A step with one task.
fn one(task: &str) -> String {
    format!(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: one, path: one}}\nworkflow:\n- step: start\n  \
         tool: {task}\n"
    )
}

/// Listens at an address, counts who comes, and answers all of them with this.
fn listener(at: &str, answer: String) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((at, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            seen.fetch_add(1, Ordering::SeqCst);
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (port, count)
}

fn fine() -> String {
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}".to_owned()
}

fn moved(to: &str) -> String {
    format!(
        "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
}

fn has_ended(seen: &Json) -> bool {
    seen["status"] == "COMPLETED" || seen["status"] == "FAILED"
}

/// How a run ended: its status, and its snapshot as text.
fn outcome(server: &TestServer, text: &str, params: &Json) -> (String, String) {
    let run = server.start_run(text, params);
    let seen = server.wait_for(&run, has_ended);
    let status = seen["status"].as_str().unwrap().to_owned();
    (status, seen.to_string())
}

fn attempts(seen: &str) -> u64 {
    let seen: Json = serde_json::from_str(seen).unwrap();
    seen["ext"]["steps"][0]["attempts"].as_u64().unwrap()
}

fn denied(server: &TestServer, text: &str, params: &Json, code: &str, names: &str) {
    let (status, events) = outcome(server, text, params);
    assert_eq!(status, "FAILED", "{params} {events}");
    assert!(
        events.contains(code) && events.contains(names),
        "{params} {events}"
    );
    assert_eq!(attempts(&events), 1, "a denial is final: {events}");
}

#[test]
fn a_server_asks_nobody_inside_however_the_address_is_written() {
    let (port, came) = listener("127.0.0.1", fine());
    let proxy = format!("http://127.0.0.1:{port}");
    let env = [
        ("HTTP_PROXY", proxy.as_str()),
        ("HTTPS_PROXY", proxy.as_str()),
        ("ALL_PROXY", proxy.as_str()),
    ];
    let server = TestServer::with_env(tempfile::tempdir().unwrap(), &[], &env);
    for host in [
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "127.0.0.1.",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::127.0.0.1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "example.com@127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "224.0.0.1",
        "255.255.255.255",
    ] {
        let params = json!({ "url": format!("http://{host}:{port}/latest/meta-data") });
        denied(
            &server,
            ASK,
            &params,
            "HTTP_HOST_DENIED",
            "[security.network]",
        );
    }
    assert_eq!(came.load(Ordering::SeqCst), 0, "nobody was asked");
}

#[test]
fn single_places_are_opened_and_no_redirect_leads_on_from_them() {
    let (inner, came) = listener("127.0.0.1", fine());
    let (first, _) = listener("127.0.0.2", moved(&format!("http://127.0.0.1:{inner}/x")));
    let (second, _) = listener("127.0.0.2", moved(&format!("http://localhost:{inner}/x")));
    let (third, _) = listener("127.0.0.2", moved("http://169.254.169.254/latest"));
    let (open, opened) = listener("127.0.0.3", fine());
    let (beside, passed) = listener("127.0.0.3", fine());
    let server = configured(&format!(
        "[security.network]\nopen = ['127.0.0.2', '127.0.0.3:{open}']\n"
    ));
    for port in [first, second, third] {
        let params = json!({ "url": format!("http://127.0.0.2:{port}/from") });
        denied(
            &server,
            ASK,
            &params,
            "HTTP_HOST_DENIED",
            "[security.network]",
        );
    }
    assert_eq!(came.load(Ordering::SeqCst), 0, "nobody was asked");
    let params = json!({ "url": format!("http://127.0.0.3:{beside}/") });
    denied(&server, ASK, &params, "HTTP_HOST_DENIED", "127.0.0.3");
    assert_eq!(passed.load(Ordering::SeqCst), 0, "another port is closed");
    let params = json!({ "url": format!("http://127.0.0.3:{open}/") });
    assert_eq!(outcome(&server, ASK, &params).0, "COMPLETED");
    assert_eq!(opened.load(Ordering::SeqCst), 1);
}

#[test]
fn databases_files_and_variables_of_the_server_are_closed() {
    let (port, came) = listener("127.0.0.1", fine());
    let folder = tempfile::tempdir().unwrap();
    let (allowed, other) = (folder.path().join("data"), folder.path().join("other"));
    for directory in [&allowed, &other] {
        std::fs::create_dir(directory).unwrap();
        std::fs::write(directory.join("a.txt"), "content of a file").unwrap();
        std::fs::write(directory.join("a.sql"), "SELECT 1 AS one").unwrap();
    }
    std::os::unix::fs::symlink(&other, allowed.join("link")).unwrap();
    let text = format!("[security.files]\nallow = ['{}']\n", allowed.display());
    std::fs::write(folder.path().join("stepwell.toml"), text).unwrap();
    let env = [
        ("CANARY_OF_THE_SERVER", "canary-of-the-server"),
        ("STEPWELL_SECRET_OWN", "own"),
    ];
    let server = TestServer::with_env(folder, &[], &env);
    let none = json!({});
    let (allowed, other) = (allowed.display(), other.display());
    for (task, code) in [
        (
            format!("{{kind: redis, url: 'redis://localhost:{port}', commands: [PING]}}"),
            "HOST_DENIED",
        ),
        (
            format!(
                "{{kind: postgres, auth: {{host: localhost, port: {port}, user: u}}, query: SELECT 1}}"
            ),
            "HOST_DENIED",
        ),
        (
            format!("{{kind: postgres, auth: 'postgresql://u@127.1:{port}/d', query: SELECT 1}}"),
            "HOST_DENIED",
        ),
        (
            format!(
                "{{kind: postgres, auth: {{host: example.com, user: u, dsn: 'hostaddr=127.0.0.1 port={port}'}}, \
                 query: SELECT 1}}"
            ),
            "HOST_DENIED",
        ),
        (
            "{kind: postgres, auth: {host: /tmp, user: u}, query: SELECT 1}".to_owned(),
            "HOST_DENIED",
        ),
        (
            "{kind: postgres, auth: {host: example.com, user: u, sslmode: verify-ca, sslrootcert: /etc/passwd}, \
             query: SELECT 1}"
                .to_owned(),
            "PATH_DENIED",
        ),
        (
            "{kind: file, action: read, root: /etc, path: passwd}".to_owned(),
            "PATH_DENIED",
        ),
        (
            "{kind: file, action: read, path: stepwell.toml}".to_owned(),
            "PATH_DENIED",
        ),
        (
            format!("{{kind: file, action: read, root: '{other}', path: a.txt}}"),
            "PATH_DENIED",
        ),
        (
            format!("{{kind: file, action: read, root: '{allowed}/link', path: a.txt}}"),
            "PATH_DENIED",
        ),
        (
            format!("{{kind: file, action: read, root: '{allowed}', path: link/a.txt}}"),
            "FILE_OUTSIDE",
        ),
        (
            "{kind: sqlite, database: .stepwell/stepwell.db, query: SELECT 1}".to_owned(),
            "PATH_DENIED",
        ),
        (
            format!("{{kind: sqlite, database: '{allowed}/../other/x.db', query: SELECT 1}}"),
            "PATH_DENIED",
        ),
        (
            "{kind: sqlite, database: ':memory:', query: \"ATTACH '/tmp/x.db' AS x\"}".to_owned(),
            "PATH_DENIED",
        ),
        (
            format!("{{kind: sqlite, database: ':memory:', script: '{other}/a.sql'}}"),
            "PATH_DENIED",
        ),
        (
            "{kind: noop, args: {x: 'env://CANARY_OF_THE_SERVER'}}".to_owned(),
            "CANARY_OF_THE_SERVER",
        ),
    ] {
        let (status, events) = outcome(&server, &one(&task), &none);
        assert_eq!(status, "FAILED", "{task} {events}");
        assert!(events.contains(code), "{task} {events}");
        assert_eq!(attempts(&events), 1, "a denial is final: {task} {events}");
        assert!(!events.contains("canary-of-the-server"), "{task} {events}");
    }
    assert_eq!(came.load(Ordering::SeqCst), 0, "nobody was asked");
    for task in [
        format!("{{kind: file, action: read, root: '{allowed}', path: a.txt}}"),
        format!("{{kind: sqlite, database: '{allowed}/x.db', script: '{allowed}/a.sql'}}"),
        "{kind: noop, args: {x: 'env://STEPWELL_SECRET_OWN'}}".to_owned(),
    ] {
        let (status, events) = outcome(&server, &one(&task), &none);
        assert_eq!(status, "COMPLETED", "{task} {events}");
    }
}

#[test]
fn whoever_develops_alone_is_not_confined_and_the_setting_says_otherwise() {
    let (port, _) = listener("127.0.0.1", fine());
    let params = json!({ "url": format!("http://localhost:{port}/") });
    let open = configured("[security]\nconfine = false\n");
    assert_eq!(outcome(&open, ASK, &params).0, "COMPLETED");
    let variable = [("STEPWELL_CONFINE", "false")];
    let open = TestServer::with_env(tempfile::tempdir().unwrap(), &[], &variable);
    assert_eq!(outcome(&open, ASK, &params).0, "COMPLETED");
    let file = tempfile::tempdir().unwrap();
    std::fs::write(file.path().join("ask.yaml"), ASK).unwrap();
    let ran = |args: &[&str], confine: &str| {
        let out = Command::new(env!("CARGO_BIN_EXE_stepwell"))
            .args(["run", "ask.yaml", "--input"])
            .arg(format!("url=http://localhost:{port}/"))
            .args(args)
            .current_dir(file.path())
            .env_remove("STEPWELL_STORE")
            .env("STEPWELL_CONFINE", confine)
            .output()
            .unwrap();
        let text = [out.stdout, out.stderr].concat();
        (
            out.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    assert!(ran(&[], "").0, "one's own machine is open");
    let (fine, text) = ran(&[], "true");
    assert!(!fine && text.contains("HTTP_HOST_DENIED"), "{text}");
    let (fine, text) = ran(&[], "maybe");
    assert!(!fine && text.contains("STEPWELL_CONFINE"), "{text}");
}

#[test]
fn webhooks_are_not_sent_inside() {
    let (port, came) = listener("127.0.0.1", fine());
    let server = TestServer::start();
    let put = |address: String| {
        let url = format!("{}/api/v1/sinks/hook", server.url);
        asked(
            server
                .client
                .put(url)
                .json(&json!({ "address": format!("webhook:{address}") })),
        )
    };
    let (status, seen) = put(format!("http://127.0.0.1:{port}/"));
    assert_eq!(
        (status, &seen["code"]),
        (400, &json!("HOST_DENIED")),
        "{seen}"
    );
    // Brokers too, as sinks and as sources.
    let source =
        |address: &str| json!({ "address": address, "target": { "event": { "type": "t" } } });
    for (path, body) in [
        ("sinks", json!({ "address": "nats://127.0.0.1/S" })),
        (
            "sinks",
            json!({ "address": "kafka://10.0.0.1,192.0.2.1/t" }),
        ),
        (
            "sinks",
            json!({ "address": "snowflake://u@169.254.169.254/D/S?auth=a" }),
        ),
        ("sources", source("amqp://[::1]?queue=q")),
        ("sources", source("redis://192.168.0.1?stream=s")),
    ] {
        let url = format!("{}/api/v1/{path}/inside", server.url);
        let (status, seen) = asked(server.client.put(url).json(&body));
        assert_eq!(
            (status, &seen["code"]),
            (400, &json!("HOST_DENIED")),
            "{body}: {seen}"
        );
    }
    // A name is judged when it is looked up: its address may change.
    let (status, seen) = put(format!("http://localhost:{port}/"));
    assert_eq!(status, 200, "{seen}");
    assert_eq!(outcome(&server, SHELL, &json!({})).0, "COMPLETED");
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert_eq!(came.load(Ordering::SeqCst), 0, "nobody was asked");
}

/// Tools are off for all, on for one tenant, and off again for one of its projects.
const TOOLS: &str = "
[server]
access = 'tokens'
[security.tools]
deny = ['shell', 'python', 'duckdb']
[[security.tools.for]]
tenant = 'acme'
[[security.tools.for]]
tenant = 'acme'
project = 'web'
allow = ['http']
";

#[test]
fn a_definition_with_a_tool_that_its_tenant_may_not_use_is_refused_with_its_place() {
    let server = configured(TOOLS);
    let of = |name: &str, more: &[&str]| {
        let role: Vec<&str> = [&[name, "--role", "engineer"], more].concat();
        token(&server.folder, &role)
    };
    let acme = of("ann", &["--tenant", "acme"]);
    let web = of("wes", &["--tenant", "acme", "--project", "web"]);
    let other = of("uma", &["--tenant", "umbrella"]);
    let doors = |by: &str| {
        let ask = |request| asked(bearer(request, by));
        let put = server
            .client
            .put(format!("{}/api/v1/definitions", server.url));
        [
            ask(server.post("/api/v1/check", &json!({ "text": SHELL }))),
            ask(put.json(&json!({ "text": SHELL }))),
            ask(server.post(
                "/api/v1/runs",
                &json!({ "definition": { "text": SHELL }, "waitSeconds": 30 }),
            )),
        ]
    };
    for by in [&other, &web] {
        let [checked, registered, started] = doors(by);
        assert_eq!(
            (checked.0, &checked.1["valid"]),
            (200, &json!(false)),
            "{checked:?}"
        );
        for (status, seen) in [&registered, &started] {
            assert_eq!(
                (*status, &seen["code"]),
                (422, &json!("TOOL_FORBIDDEN")),
                "{seen}"
            );
        }
        for (_, seen) in [checked, registered, started] {
            let problem = &seen["problems"][0];
            assert_eq!(problem["code"], "TOOL_FORBIDDEN", "{seen}");
            assert_eq!(
                (&problem["line"], &problem["column"]),
                (&json!(7), &json!(16)),
                "{seen}"
            );
            assert!(
                problem["message"].as_str().unwrap().contains("`shell`"),
                "{seen}"
            );
        }
    }
    let [checked, registered, started] = doors(&acme);
    assert_eq!(checked.1["valid"], true, "{checked:?}");
    assert!([200, 201].contains(&registered.0), "{registered:?}");
    assert_eq!(started.1["run"]["status"], "COMPLETED", "{started:?}");
    // By name, in a project that may not: no place is known, but the tool.
    let by_name = json!({ "definition": { "name": "sh" } });
    let (status, seen) = asked(bearer(server.post("/api/v1/runs", &by_name), &web));
    assert_eq!(
        (status, &seen["code"]),
        (422, &json!("TOOL_FORBIDDEN")),
        "{seen}"
    );
}

/// A worker process with a configuration file of its own.
struct Elsewhere(Child);

impl Elsewhere {
    fn start(server: &TestServer, folder: &Path, config: &str) -> Elsewhere {
        std::fs::write(folder.join("stepwell.toml"), config).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_stepwell"))
            .args(["worker", "--server", &server.url])
            .current_dir(folder)
            .env_remove("STEPWELL_CONFIG")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Elsewhere(child)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const FORBID: &str = "[security.tools]\ndeny = ['shell']\n";

#[test]
fn work_that_was_begun_before_the_lists_changed_is_refused_by_server_and_worker() {
    // The server allows it, the worker does not.
    let server = TestServer::with(&["--no-worker"]);
    let run = server.start_run(SHELL, &json!({}));
    let place = tempfile::tempdir().unwrap();
    let worker = Elsewhere::start(&server, place.path(), FORBID);
    let seen = server.wait_for(&run, has_ended);
    assert!(
        seen.to_string().contains("TOOL_FORBIDDEN"),
        "the worker refuses: {seen}"
    );
    drop(worker);
    // The worker allows it, and the server no longer does.
    let run = server.start_run(SHELL, &json!({}));
    let folder = server.kill();
    std::fs::write(folder.path().join("stepwell.toml"), FORBID).unwrap();
    let server = TestServer::in_folder(folder, &["--no-worker"]);
    let worker = Elsewhere::start(&server, place.path(), "");
    let seen = server.wait_for(&run, has_ended);
    assert!(
        seen.to_string().contains("TOOL_FORBIDDEN"),
        "the server refuses: {seen}"
    );
    drop(worker);
    // So does the worker inside a server, for a run that another one started.
    let folder = server.kill();
    std::fs::write(folder.path().join("stepwell.toml"), "").unwrap();
    let server = TestServer::in_folder(folder, &["--no-worker"]);
    let run = server.start_run(SHELL, &json!({}));
    let folder = server.kill();
    std::fs::write(folder.path().join("stepwell.toml"), FORBID).unwrap();
    let server = TestServer::in_folder(folder, &[]);
    let seen = server.wait_for(&run, has_ended);
    assert!(seen.to_string().contains("TOOL_FORBIDDEN"), "{seen}");
}

#[test]
fn a_child_run_is_refused_the_tools_of_its_tenant_too() {
    let parent = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: up, path: up}\nworkflow:\n- step: start\n  \
                  tool: {kind: playbook, path: sh}\n";
    let server = TestServer::start();
    let put = server
        .client
        .put(format!("{}/api/v1/definitions", server.url));
    assert_eq!(asked(put.json(&json!({ "text": SHELL }))).0, 201);
    let folder = server.kill();
    std::fs::write(folder.path().join("stepwell.toml"), FORBID).unwrap();
    let server = TestServer::in_folder(folder, &[]);
    let (status, events) = outcome(&server, parent, &json!({}));
    assert_eq!(status, "FAILED", "{events}");
    assert!(
        events.contains("the tool `shell` is in the list `deny`"),
        "{events}"
    );
}
