//! Servers that die, servers that share a store, and runs that are deleted when they are old.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::harness::{PATIENCE, TestServer, asked, postgres};

/// Three steps that each take a moment, and say so in a file.
fn slow(witness: &str) -> String {
    let step = |name: &str, next: &str| {
        let cmd = format!("echo {name} {{{{ execution_id }}}} >> {witness}; sleep 0.3");
        format!("- step: {name}\n  tool: {{kind: shell, cmds: [\"{cmd}\"]}}\n{next}")
    };
    format!(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: slow, path: slow}}\nworkflow:\n{}{}{}",
        step("start", "  next: [{step: middle}]\n"),
        step("middle", "  next: [{step: last}]\n"),
        step("last", ""),
    )
}

#[test]
fn another_server_finishes_the_runs_of_one_that_was_killed() {
    let store = postgres("killed");
    let folder = tempfile::tempdir().unwrap();
    let witness = folder.path().join("witness");
    let first = TestServer::with(&["--store", &store]);
    let second = TestServer::with(&["--store", &store]);
    let text = slow(&witness.display().to_string());
    let runs: Vec<String> = (0..12)
        .map(|_| first.start_run(&text, &json!({})))
        .collect();
    std::thread::sleep(Duration::from_millis(400));
    drop(first.kill());
    let killed = Instant::now();
    for run in &runs {
        let ended = second.wait_for(run, |seen| seen["completedAt"].is_string());
        assert_eq!(ended["status"], "COMPLETED", "{ended}");
    }
    // The session of the killed server ends after 5 seconds; the rest is the work itself.
    let took = killed.elapsed();
    assert!(
        took < Duration::from_secs(30),
        "taken over only after {took:?}"
    );
    let lines = std::fs::read_to_string(&witness).unwrap();
    for name in ["start", "middle", "last"] {
        let done = lines.lines().filter(|it| it.starts_with(name)).count();
        assert!(done >= runs.len(), "{name}: {done} of {}", runs.len());
    }
    let (_, alerts) = asked(second.get("/api/v1/alerts"));
    assert!(!alerts.to_string().contains("ENGINE_INVARIANT"), "{alerts}");
}

#[test]
fn both_servers_of_a_store_see_and_steer_the_same_runs() {
    let store = postgres("both");
    let first = TestServer::with(&["--store", &store]);
    let second = TestServer::with(&["--store", &store]);
    let folder = tempfile::tempdir().unwrap();
    let text = slow(&folder.path().join("witness").display().to_string());
    let run = first.start_run(&text, &json!({}));
    let body = json!({ "signalType": "PAUSE", "signalId": "p" });
    let path = format!("/api/v1/runs/{run}/signals");
    let (status, paused) = asked(second.post(&path, &body));
    assert_eq!(
        (status, &paused["answer"]),
        (200, &json!("DONE")),
        "{paused}"
    );
    first.wait_for(&run, |seen| seen["status"] == "PAUSED");
    let (status, _) = asked(second.post(&path, &json!({ "signalType": "RESUME" })));
    assert_eq!(status, 200);
    second.wait_for(&run, |seen| seen["status"] == "COMPLETED");
    let request = json!({ "definition": { "text": text }, "requestId": "once" });
    let (_, one) = asked(first.post("/api/v1/runs", &request));
    let (status, two) = asked(second.post("/api/v1/runs", &request));
    assert_eq!((status, &two["runId"]), (200, &one["runId"]), "{two}");
}

#[test]
fn runs_that_ended_long_ago_are_deleted_and_open_ones_are_not() {
    let server = TestServer::start();
    let quick = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: quick, path: quick}\nworkflow:\n\
                 - {step: start, tool: {kind: shell, cmds: ['echo hello']}}\n";
    let waiting = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: waiting, path: waiting}\nworkflow:\n\
                   - {step: start, tool: {kind: sleep, seconds: 3600}}\n";
    let old = server.start_run(quick, &json!({}));
    let open = server.start_run(waiting, &json!({}));
    server.wait_for(&old, |seen| seen["status"] == "COMPLETED");
    let folder = server.kill();
    std::thread::sleep(Duration::from_millis(1_100));
    let config = "[retention]\ncompleted = \"1s\"\nfailed = \"1s\"\ncancelled = \"1s\"\n";
    std::fs::write(folder.path().join("stepwell.toml"), config).unwrap();
    let server = TestServer::in_folder(folder, &[]);
    let until = Instant::now() + PATIENCE;
    let is_there = |run: &str| asked(server.get(&format!("/api/v1/runs/{run}"))).0 == 200;
    while is_there(&old) {
        assert!(Instant::now() < until, "the old run is still there");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(is_there(&open));
    let (_, list): (_, Json) = asked(server.get("/api/v1/runs"));
    assert_eq!(list["runs"].as_array().unwrap().len(), 1, "{list}");
    let logs = server.folder.path().join(".stepwell/logs");
    assert!(!logs.join(&old).exists(), "the log of the run is gone too");
}
