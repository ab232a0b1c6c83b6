//! Work that nobody does: the server, the commands and the worker say so, and stop saying so when a worker comes.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};

use crate::access::{bearer, controlled, stepwell, token};
use crate::harness::{TestServer, asked, until};

/// A step of the built-in tools.
const TOOL: &str = "
metadata: {planId: tool, planVersion: '1', schemaVersion: v1.0}
steps:
  - {stepId: one, tool: {kind: shell, cmds: [\"true\"]}}
";

/// A step of a worker that the user writes.
const OTHER: &str = "workflowType: parcels\nworkflowVersion: 1\nsteps:\n  - {stepType: SHIP}\n";

/// A step that fails, and is executed again a minute later.
const FLAKY: &str = "
workflowType: flaky
workflowVersion: 1
steps:
  - stepType: FLAKY
    tool: {kind: shell, cmds: [\"exit 1\"]}
    maxAttempts: 4
    backoff: {initial: 60s, max: 120s}
";

/// A process of the test, and what it writes to standard error.
struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    fn start(folder: &Path, args: &[&str]) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_stepwell"))
            .args(args)
            .current_dir(folder)
            .env_remove("STEPWELL_STORE")
            .env_remove("STEPWELL_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let written = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in err.lines().map_while(Result::ok) {
                eprintln!("process: {line}");
                written.lock().unwrap().push(line);
            }
        });
        Process { child, lines }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    fn says(&self, text: &str) -> Vec<String> {
        until(
            || self.lines(),
            |lines| lines.iter().any(|it| it.contains(text)),
        )
    }

    fn terminate(&mut self) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        assert!(sent.unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn reasons(server: &TestServer, run: &str) -> Vec<Json> {
    let (status, seen) = asked(server.get(&format!("/api/v1/runs/{run}/explain")));
    assert_eq!(status, 200, "{seen}");
    seen["reasons"].as_array().unwrap().clone()
}

fn is_unserved(server: &TestServer, run: &str) -> bool {
    let reasons = reasons(server, run);
    reasons.iter().any(|it| it["unserved"] == true)
}

#[test]
fn who_waits_for_a_worker_is_told_that_there_is_none() {
    let server = TestServer::with(&["--no-worker"]);
    let folder = server.folder.path();
    std::fs::write(folder.join("tool.yaml"), TOOL).unwrap();
    let url = server.url.as_str();
    let mut run = Process::start(
        folder,
        &["run", "tool.yaml", "--server", url, "--run-id", "run_tool"],
    );
    let lines = run.says("nobody serves");
    let line = lines
        .iter()
        .find(|it| it.contains("nobody serves"))
        .unwrap();
    let start = format!("stepwell worker --server {url}");
    for part in ["`stepwell`/`pipeline`", "step one", &start] {
        assert!(line.contains(part), "{line}");
    }
    let reasons = reasons(&server, "run_tool");
    assert_eq!(
        (
            &reasons[0]["queue"],
            &reasons[0]["operation"],
            &reasons[0]["unserved"]
        ),
        (&json!("stepwell"), &json!("pipeline"), &json!(true)),
        "{reasons:?}"
    );
    let (_, held) = asked(server.get("/api/v1/runs/held"));
    let first = &held["runs"][0];
    assert_eq!(
        (
            &first["run"]["runId"],
            &first["waitsFor"],
            &first["steps"][0]["stepId"]
        ),
        (&json!("run_tool"), &json!("worker"), &json!("one")),
        "{held}"
    );
    let says = first["says"].as_str().unwrap();
    assert!(
        says.contains("nobody serves `stepwell`/`pipeline`"),
        "{says}"
    );
    let (_, none) = asked(server.get("/api/v1/runs/held?plan=other"));
    assert_eq!(none["runs"], json!([]), "{none}");
    let (_, shown) = asked(server.get("/api/v1/runs/run_tool"));
    assert_eq!(shown["ext"]["waitsFor"][0]["unserved"], true, "{shown}");
    let shown = stepwell(folder, &["runs", "show", "run_tool", "--server", url]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("nobody serves it now"), "{shown}");
    // A worker that serves something else does not help.
    let other = json!({ "protocol": 1, "workerId": "w", "max": 1, "waitSeconds": 0,
        "serves": [{ "queue": "parcels", "operation": "SHIP" }] });
    assert_eq!(asked(server.post("/api/v1/worker/poll", &other)).0, 200);
    assert!(is_unserved(&server, "run_tool"));
    let _worker = Process::start(folder, &["worker", "--server", url]);
    assert!(run.child.wait().unwrap().success(), "{:?}", run.lines());
    let (_, held) = asked(server.get("/api/v1/runs/held"));
    assert_eq!(held["runs"], json!([]), "{held}");
    let told = run.lines();
    let told = told.iter().filter(|it| it.contains("nobody serves"));
    assert_eq!(told.count(), 1, "it is said once");
}

#[test]
fn who_waits_for_a_retry_is_told_what_failed_and_when_the_next_attempt_comes() {
    let server = TestServer::start();
    let run = server.start_run(FLAKY, &json!({}));
    let retry = |it: &&Json| it["retry"].is_object();
    let seen = until(
        || reasons(&server, &run),
        |all| all.iter().any(|it| retry(&it)),
    );
    let reason = seen.iter().find(retry).unwrap();
    assert_eq!(
        (
            &reason["retry"]["attempt"],
            &reason["retry"]["of"],
            &reason["retry"]["error"]["code"],
            reason["until"].is_string(),
        ),
        (&json!(2), &json!(4), &json!("SHELL_EXIT"), true),
        "{reason}"
    );
    let says = reason["says"].as_str().unwrap();
    for part in [
        "FLAKY: attempt 2 of 4, after a backoff, in ",
        "; attempt 1 failed: SHELL_EXIT",
    ] {
        assert!(says.contains(part), "{says}");
    }
}

#[test]
fn a_worker_of_another_tenant_or_one_that_has_left_serves_nothing() {
    let server = controlled();
    let of = |name: &str, role: &str, tenant: &str| {
        token(&server.folder, &[name, "--role", role, "--tenant", tenant])
    };
    let (ada, acme, umbrella) = (
        of("ada", "operator", "acme"),
        of("w1", "worker", "acme"),
        of("w2", "worker", "umbrella"),
    );
    let body = json!({ "definition": { "text": OTHER } });
    let (status, run) = asked(bearer(server.post("/api/v1/runs", &body), &ada));
    assert_eq!(status, 201, "{run}");
    let path = format!("/api/v1/runs/{}/explain", run["runId"].as_str().unwrap());
    let unserved = || {
        let (_, seen) = asked(bearer(server.get(&path), &ada));
        let reason = seen["reasons"][0].clone();
        assert_eq!(reason["kind"], "task", "{seen}");
        (reason["unserved"] == true, reason)
    };
    let work =
        |reason: &Json| json!([{ "queue": reason["queue"], "operation": reason["operation"] }]);
    let (is_unserved, reason) = unserved();
    assert!(is_unserved, "{reason}");
    let text = reason["text"].as_str().unwrap();
    assert!(
        text.contains("start a worker that serves this queue"),
        "{text}"
    );
    // With no room for the task, so that the run goes on to wait.
    let poll = |token: &str, id: &str| {
        let body = json!({ "protocol": 1, "workerId": id, "max": 0, "waitSeconds": 0,
            "serves": work(&reason) });
        let (status, seen) = asked(bearer(server.post("/api/v1/worker/poll", &body), token));
        assert_eq!(status, 200, "{seen}");
    };
    let held = |token: &str| {
        let (status, seen) = asked(bearer(server.get("/api/v1/runs/held"), token));
        assert_eq!(status, 200, "{seen}");
        seen["runs"].as_array().unwrap().len()
    };
    let zoe = of("zoe", "operator", "umbrella");
    assert_eq!((held(&ada), held(&zoe)), (1, 0), "a list of the own tenant");
    poll(&umbrella, "theirs");
    assert!(unserved().0, "a worker of another tenant is nobody here");
    assert_eq!(held(&ada), 1);
    poll(&acme, "ours");
    assert!(!unserved().0, "a worker is there");
    assert_eq!(held(&ada), 0);
    let drained = server
        .client
        .delete(format!("{}/api/v1/worker/ours", server.url));
    assert_eq!(asked(bearer(drained, &acme)).0, 200);
    assert!(unserved().0, "who has drained is gone");
}

#[test]
fn each_server_of_a_store_knows_what_the_workers_of_the_others_serve() {
    let Some(store) = TestServer::postgres_store() else {
        eprintln!("not run on PostgreSQL: STEPWELL_TEST_POSTGRES is not set");
        return;
    };
    let start = || TestServer::with(&["--no-worker", "--store", &store]);
    let (first, second) = (start(), start());
    let run = first.start_run(OTHER, &json!({}));
    until(|| is_unserved(&first, &run), |it| *it);
    let pair = reasons(&first, &run)[0].clone();
    let body = json!({ "protocol": 1, "workerId": "far", "max": 0, "waitSeconds": 0,
        "serves": [{ "queue": pair["queue"], "operation": pair["operation"] }] });
    assert_eq!(asked(second.post("/api/v1/worker/poll", &body)).0, 200);
    until(|| is_unserved(&first, &run), |it| !*it);
    let drained = second
        .client
        .delete(format!("{}/api/v1/worker/far", second.url));
    assert_eq!(asked(drained).0, 200);
    until(|| is_unserved(&first, &run), |it| *it);
}

#[test]
fn a_worker_says_one_line_for_each_change() {
    let server = TestServer::with(&["--no-worker"]);
    let folder = server.folder.path().to_path_buf();
    let url = server.url.clone();
    let mut worker = Process::start(&folder, &["worker", "--server", &url, "--name", "w1"]);
    worker.says("connected to");
    let run = server.start_run(TOOL, &json!({}));
    server.wait_for(&run, |run| run["status"] == "COMPLETED");
    let store = server.kill();
    worker.says("no connection to");
    // Long enough for several tries.
    std::thread::sleep(std::time::Duration::from_secs(4));
    let address = url.trim_start_matches("http://").to_owned();
    let _server = Process::start(
        store.path(),
        &["serve", "--no-worker", "--listen", &address],
    );
    until(
        || worker.lines(),
        |lines| {
            lines
                .iter()
                .filter(|it| it.contains("connected to"))
                .count()
                == 2
        },
    );
    worker.terminate();
    let lines = worker.lines();
    let begins = [
        format!(
            "worker w1 serves stepwell/pipeline (the built-in tools) for {url}, 16 steps at a time"
        ),
        format!("connected to {url}"),
        format!("no connection to {url}; trying again: "),
        format!("connected to {url}"),
        "draining: steps have 10 seconds to end".to_owned(),
        "drained".to_owned(),
    ];
    assert_eq!(lines.len(), begins.len(), "{lines:#?}");
    for (line, begin) in lines.iter().zip(&begins) {
        assert!(line.starts_with(begin.as_str()), "{line} is not {begin}");
    }
}

#[test]
fn a_command_for_a_tenant_that_is_not_the_callers_is_refused() {
    let server = controlled();
    let folder = server.folder.path();
    let acme = token(
        &server.folder,
        &["ada", "--role", "operator", "--tenant", "acme"],
    );
    let root = token(&server.folder, &["root", "--role", "admin"]);
    std::fs::write(folder.join("acme"), &acme).unwrap();
    std::fs::write(folder.join("root"), &root).unwrap();
    let list = |file: &str, tenant: &str| {
        let args = [
            "runs",
            "list",
            "--server",
            &server.url,
            "--token-file",
            file,
        ];
        let out = stepwell(folder, &[&args[..], &["--tenant", tenant]].concat());
        let text = [out.stdout, out.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        (out.status.code(), text)
    };
    let (code, own) = list("acme", "acme");
    assert_eq!(code, Some(0), "{own}");
    assert!(own.contains("no runs of the tenant \"acme\""), "{own}");
    let (code, text) = list("acme", "umbrella");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("AUTHZ_TENANT_FORBIDDEN"), "{text}");
    // Who may see all tenants is told that there is nothing; every request is about this tenant only.
    let body = json!({ "definition": { "text": TOOL }, "tenant": "acme" });
    let (status, started) = asked(bearer(server.post("/api/v1/runs", &body), &root));
    assert_eq!(status, 201, "{started}");
    let run = started["runId"].as_str().unwrap();
    assert!(list("root", "acme").1.contains(run));
    let (code, text) = list("root", "acne");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("no runs of the tenant \"acne\""), "{text}");
    let path = format!("/api/v1/runs/{run}");
    let as_tenant = |tenant: &str| {
        let request = bearer(server.get(&path), &root);
        asked(request.header("stepwell-tenant", tenant)).0
    };
    assert_eq!((as_tenant("acme"), as_tenant("acne")), (200, 404));
}
