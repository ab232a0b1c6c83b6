//! `stepwell worker`: the built-in tools in a process of their own, beside a server that does no work.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{PATIENCE, TestServer};

/// Takes long in the middle, and says where it is.
const SLOW: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: slow, path: slow}
workload: {who: nobody}
workflow:
- step: start
  tool: {kind: shell, cmds: ["echo hello {{ workload.who }}; echo first >> witness"]}
  next: {arcs: [{step: middle}]}
- step: middle
  tool: {kind: shell, cmds: ["echo begun >> witness; sleep 2; echo ended >> witness"]}
  next: {arcs: [{step: last}]}
- step: last
  tool: {kind: shell, cmds: ["head -c 200000 /dev/zero | tr '\\0' x; echo last >> witness"]}
"#;

struct WorkerProcess(Child);

impl WorkerProcess {
    fn start(server: &TestServer, args: &[&str]) -> WorkerProcess {
        let child = Command::new(env!("CARGO_BIN_EXE_stepwell"))
            .args(["worker", "--server", &server.url])
            .args(args)
            .current_dir(server.folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        WorkerProcess(child)
    }

    /// Ends the worker as a crash would.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn witness(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("witness")).unwrap_or_default()
}

fn wait_for_line(server: &TestServer, line: &str) {
    let until = Instant::now() + PATIENCE;
    while !witness(server.folder.path()).contains(line) {
        assert!(Instant::now() < until, "{}", witness(server.folder.path()));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_worker_runs_a_playbook_and_another_takes_over_when_it_is_killed() {
    let mut servers = vec![TestServer::with(&["--no-worker"])];
    servers.extend(TestServer::on_postgres(&["--no-worker"]));
    for server in servers {
        let run = server.start_run(SLOW, &json!({ "who": "world" }));
        let mut first = WorkerProcess::start(&server, &["--lease", "2", "--parallel", "2"]);
        wait_for_line(&server, "begun");
        first.kill();
        let _second = WorkerProcess::start(&server, &["--lease", "2"]);
        let ended = server.wait_for(&run, |run| {
            ["COMPLETED", "FAILED"].contains(&run["status"].as_str().unwrap_or_default())
        });
        assert_eq!(ended["status"], "COMPLETED", "{ended:#}");
        let witness = witness(server.folder.path());
        assert_eq!(
            witness, "first\nbegun\nbegun\nended\nlast\n",
            "what was under way is done again, nothing else"
        );
        let logs = server.folder.path().join(".stepwell/logs").join(&run);
        let log = std::fs::read_to_string(logs.join("start/1.jsonl")).unwrap();
        assert!(log.contains("hello world"), "{log}");
    }
}

#[test]
fn a_worker_that_is_told_to_stop_gives_its_work_back() {
    let server = TestServer::with(&["--no-worker"]);
    let run = server.start_run(SLOW, &json!({}));
    let mut first = WorkerProcess::start(&server, &[]);
    wait_for_line(&server, "begun");
    let stopped = Command::new("kill")
        .args(["-TERM", &first.0.id().to_string()])
        .status();
    assert!(stopped.unwrap().success());
    assert!(first.0.wait().unwrap().success(), "it drains");
    // What it had begun, it has ended.
    assert!(witness(server.folder.path()).contains("ended"));
    let _second = WorkerProcess::start(&server, &[]);
    server.wait_for(&run, |run| run["status"] == "COMPLETED");
    let lines = witness(server.folder.path());
    assert_eq!(lines.matches("begun").count(), 1, "{lines}");
}

#[test]
fn the_bench_measures_a_server_with_workers_in_other_processes() {
    let measured = Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(["bench", "remote", "--seconds", "1", "--concurrency", "5"])
        .args(["--workers", "2", "-o", "json"])
        .output()
        .unwrap();
    let figures: serde_json::Value = serde_json::from_slice(&measured.stdout).unwrap();
    assert!(figures["stepsPerSecond"].as_f64() > Some(0.0), "{figures}");
    assert!(figures["idleMsP50"].as_f64() > Some(0.0), "{figures}");
}
