//! Work that means no good, through the command: bounded in time and memory, with an error that says
//! what it is.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::call::Call;
use crate::servers;
use crate::test_site::{TestSite, is_gone, soon};

/// A playbook of one step with this block of tools.
fn playbook(tool: &Json) -> String {
    json!({
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": { "name": "hostile" },
        "workflow": [{ "step": "work", "tool": tool, "next": "then" }, { "step": "then", "tool": { "kind": "shell", "cmds": ["echo then"] } }],
    })
    .to_string()
}

/// Runs it, and expects that the step fails with this class and code, soon.
fn fails(site: &TestSite, tool: &Json, class: &str, code: &str) -> Call {
    let file = site.file("hostile.yaml", &playbook(tool));
    let began = Instant::now();
    let call = site.run(&file, &[]);
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(call.code, 3, "{}{}", call.out, call.err);
    let log = site.log();
    let failed = log.of("StepFailed", "work");
    assert_eq!(failed.len(), 1, "{:?}", log.types());
    let error = &failed[0]["ext"]["error"];
    assert_eq!(
        (&error["class"], &error["code"]),
        (&json!(class), &json!(code)),
        "{}",
        failed[0]
    );
    // The end of the run says it too, and how to go on.
    for text in [code, "stepwell runs retry run_a"] {
        assert!(call.out.contains(text), "{text}: {}", call.out);
    }
    call
}

fn shell(script: &str) -> Json {
    json!({ "kind": "shell", "cmds": [script] })
}

/// A shell task with a timeout of its own.
fn short(script: &str, seconds: f64) -> Json {
    json!({ "kind": "shell", "cmds": [script], "timeout": seconds })
}

#[test]
fn a_gigabyte_of_output_fits_into_little_memory() {
    let site = TestSite::new("gigabyte");
    let tool = shell("head -c 1000000000 /dev/zero | tr '\\0' 'x'");
    let file = site.file("hostile.yaml", &playbook(&tool));
    site.hold("then");
    let process = site.start(&file, &[]);
    site.begun("then", 1);
    let peak = process.peak_kib();
    site.release("then");
    let (code, said) = process.end();
    assert_eq!(code, 0);
    assert!(peak < 300 * 1024, "{peak} KiB at its peak");
    assert!(said.len() < 64 << 20, "{} bytes were printed", said.len());
    let logs = site.good(&["runs", "logs", "run_a", "work"]);
    assert!(logs.len() < 32 << 20, "{} bytes were kept", logs.len());
}

#[test]
fn a_step_that_never_ends_is_ended_by_its_timeout() {
    let site = TestSite::new("endless");
    let tool = short("while :; do sleep 1; done", 0.3);
    fails(&site, &tool, "timeout", "TASK_TIMEOUT");
}

#[test]
fn a_step_that_ignores_being_asked_is_killed() {
    let site = TestSite::new("deaf");
    let tool = short(
        "trap '' TERM; echo $$ > pid; while :; do sleep 1; done",
        0.3,
    );
    fails(&site, &tool, "timeout", "TASK_TIMEOUT");
    assert!(is_gone(site.read("pid").trim().parse().unwrap()));
}

#[test]
fn what_a_step_leaves_in_its_group_ends_with_it() {
    let site = TestSite::new("daemons");
    let script =
        "for n in 1 2 3; do (trap '' TERM HUP; sleep 1000) & echo $! >> pids; done; echo ok";
    let file = site.file("hostile.yaml", &playbook(&shell(script)));
    let call = site.run(&file, &[]);
    assert_eq!(call.code, 0, "{}{}", call.out, call.err);
    let pids = site.read("pids");
    let pids: Vec<u32> = pids.lines().map(|it| it.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3);
    soon("they end with the step", || {
        pids.iter().all(|pid| is_gone(*pid))
    });
}

#[test]
fn a_program_that_is_not_there_is_a_mistake_of_the_definition() {
    let site = TestSite::new("missing");
    let call = fails(
        &site,
        &shell("no-such-program --now"),
        "validation",
        "SHELL_NOT_FOUND",
    );
    assert!(call.out.contains("no-such-program"), "{}", call.out);
}

#[test]
fn a_result_that_cannot_be_json_is_refused() {
    let site = TestSite::new("cycle");
    let tool = json!({ "kind": "python", "code": "result = []\nresult.append(result)" });
    fails(&site, &tool, "validation", "PYTHON_RESULT");
}

#[test]
fn ten_megabytes_are_returned_beside_the_log() {
    let site = TestSite::new("ten-megabytes");
    let tool = json!({ "kind": "python", "code": "result = ['x' * 1000] * 10_000" });
    let file = site.file("hostile.yaml", &playbook(&tool));
    let call = site.run(&file, &[]);
    assert_eq!(call.code, 0, "{}{}", call.out, call.err);
    let log = site.log();
    let done = log.of("StepCompleted", "work")[0].to_string();
    assert!(done.len() < 8 * 1024, "{} bytes in the log", done.len());
    assert!(done.contains("artifact:runs/run_a/work/1/"), "{done}");
}

#[test]
fn a_server_that_redirects_for_ever_is_left() {
    let site = TestSite::new("redirects");
    let tool = json!({ "kind": "http", "url": servers::redirects() });
    fails(&site, &tool, "validation", "HTTP_REDIRECTS");
}

#[test]
fn a_slow_drip_is_cut_off_at_the_deadline() {
    let site = TestSite::new("drips");
    let tool = json!({ "kind": "http", "url": servers::drips(), "timeout": 0.5 });
    fails(&site, &tool, "timeout", "TASK_TIMEOUT");
}

#[test]
fn a_database_that_somebody_holds_is_waited_for_until_the_deadline() {
    let site = TestSite::new("locked");
    // Python holds the lock as a process of its own, until it is told to go.
    let holder = "import sqlite3, sys; c = sqlite3.connect('held.db', isolation_level=None); \
                  c.execute('create table t (x)'); c.execute('begin exclusive'); print('held', flush=True); \
                  sys.stdin.read()";
    let holder = site.helper("python3", &["-c", holder], "held");
    let tool = json!({
        "kind": "sqlite", "database": "held.db", "timeout": 0.5, "query": "INSERT INTO t VALUES (1)",
    });
    let file = site.file("hostile.yaml", &playbook(&tool));
    let call = site.run(&file, &[]);
    assert_eq!(call.code, 3, "{}{}", call.out, call.err);
    let log = site.log();
    let error = &log.of("StepFailed", "work")[0]["ext"]["error"];
    let code = error["code"].as_str().unwrap();
    assert!(["SQLITE_BUSY", "TASK_TIMEOUT"].contains(&code), "{error}");
    drop(holder);
}

#[test]
fn a_template_that_would_run_for_ever_runs_out_of_fuel() {
    let site = TestSite::new("fuel");
    let text = "{% for a in range(10000) %}{% for b in range(10000) %}x{% endfor %}{% endfor %}";
    let tool = json!({ "kind": "shell", "env": { "X": text }, "cmds": ["echo"] });
    let call = fails(&site, &tool, "expression", "EXPRESSION_FAILED");
    assert!(call.out.contains("takes too many steps"), "{}", call.out);
}

#[test]
fn bytes_that_are_no_text_are_shown_as_such() {
    let site = TestSite::new("no-text");
    let tool = shell("printf 'a\\377\\376b\\n'; printf '\\000\\033[31m\\n'");
    let file = site.file("hostile.yaml", &playbook(&tool));
    let call = site.run(&file, &[]);
    assert_eq!(call.code, 0, "{}{}", call.out, call.err);
    assert!(call.out.contains("a\u{fffd}\u{fffd}b"), "{}", call.out);
    // The output of a step must not control the terminal of the reader.
    assert!(!call.out.contains('\u{1b}'), "{:?}", call.out);
    let log = site.log();
    let done = log.of("StepCompleted", "work")[0].to_string();
    assert!(done.contains("a\u{fffd}\u{fffd}b"), "{done}");
}

#[test]
fn artifacts_that_cannot_be_opened_are_said_before_anything_is_done() {
    let site = TestSite::new("in-the-way");
    // A file stands where the folder would be: that stops even a user who may write everywhere.
    site.file("artifacts", "in the way");
    let site = site.with("STEPWELL_ARTIFACTS", "./artifacts/here");
    let file = site.file("hostile.yaml", &playbook(&shell("echo done > done")));
    let call = site.run(&file, &[]);
    assert_eq!(call.code, 1, "{}{}", call.out, call.err);
    assert!(call.err.contains("./artifacts/here"), "{}", call.err);
    assert_eq!(site.read("done"), "");
}

#[test]
fn artifacts_that_cannot_be_written_fail_the_step_and_say_where() {
    let site = TestSite::new("unwritable");
    let spoil = "rm -rf .stepwell/artifacts; touch .stepwell/artifacts";
    let tool = json!([
        { "name": "spoil", "kind": "shell", "cmds": [spoil] },
        { "name": "make", "kind": "python", "code": "result = ['x' * 1000] * 1000" },
    ]);
    let call = fails(&site, &tool, "transport", "ARTIFACT_STORE");
    assert!(call.out.contains(".stepwell/artifacts"), "{}", call.out);
}

#[test]
fn a_step_that_never_ends_is_ended_by_the_timeout_of_the_step() {
    let site = TestSite::new("endless-step");
    let text = json!({
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": { "name": "endless" },
        "workflow": [{
            "step": "work",
            "spec": { "timeout": 0.5 },
            "tool": [{ "name": "a", "kind": "noop" }, { "name": "b", "kind": "shell", "cmds": ["sleep 1000"] }],
        }],
    });
    let file = site.file("hostile.yaml", &text.to_string());
    let began = Instant::now();
    let call = site.run(&file, &[]);
    assert_eq!(call.code, 3, "{}{}", call.out, call.err);
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    let log = site.log();
    let error = &log.of("StepFailed", "work")[0]["ext"]["error"];
    assert_eq!(
        (&error["class"], &error["code"]),
        (&json!("timeout"), &json!("TIMEOUT"))
    );
    let pid = site.seen()[0].pid;
    soon("the command ends with the step", || is_gone(pid));
}

#[test]
fn a_result_that_is_no_json_becomes_text_with_a_note() {
    let site = TestSite::new("no-json");
    let tool =
        json!({ "kind": "python", "code": "result = {'it': object(), 'nan': float('nan')}" });
    let file = site.file("hostile.yaml", &playbook(&tool));
    let call = site.run(&file, &[]);
    assert_eq!(call.code, 0, "{}{}", call.out, call.err);
    let log = site.log();
    let done = log.of("StepCompleted", "work")[0].to_string();
    assert!(done.contains("<object object"), "{done}");
    assert!(done.contains("\"nan\":null"), "{done}");
}
