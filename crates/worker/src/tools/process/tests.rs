//! A worker that is killed outright: what it had started ends with it.

use std::process::{Command, Stdio};

use crate::tool::{Tool, ToolCall};
use crate::tools::process::ProcessOptions;
use crate::tools::python::{Python, PythonOptions};
use crate::tools::shell::Shell;
use serde_json::json;

use crate::testing::programs::{call, cx, is_gone, pids, soon};

/// Says to the process that a test starts that it is the worker, and where to tell its processes.
const ROLE: &str = "STEPWELL_TEST_WORKER";

fn endless(file: &str) -> (ToolCall, ToolCall) {
    let script = format!("trap '' TERM; sleep 1000 & echo $! >> {file}; echo $$ >> {file}; wait");
    let code = "
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
parent = os.getppid()
os.fork()
with open(path, 'a') as file:
    file.write(f'{os.getpid()}\\n{parent}\\n')
while True: time.sleep(1)";
    let shell = call(json!({ "cmds": [script] }), json!({}));
    (
        shell,
        call(json!({ "code": code }), json!({ "path": file })),
    )
}

/// The worker's part. Without its role it has nothing to do.
#[tokio::test]
async fn a_worker_runs_what_never_ends() {
    let Ok(file) = std::env::var(ROLE) else {
        return;
    };
    let (script, code) = endless(&file);
    let shell = Shell::new(ProcessOptions::default());
    let (warm, cold) = (
        Python::new(PythonOptions::default()),
        Python::new(PythonOptions {
            warm: false,
            ..PythonOptions::default()
        }),
    );
    let cx = cx();
    tokio::join!(
        shell.run(&script, &cx),
        warm.run(&code, &cx),
        cold.run(&code, &cx)
    );
}

#[tokio::test]
async fn nothing_outlives_a_worker_that_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let mut worker = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "tools::process::tests::a_worker_runs_what_never_ends",
        ])
        .env(ROLE, &file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Two of the shell; of each interpreter two processes, and twice the one they came from.
    let all_began = soon(|| pids(&file).len() == 10).await;
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert!(all_began, "{:?}", pids(&file));
    assert!(soon(|| pids(&file).into_iter().all(is_gone)).await);
}
