//! `shell`: what a task sees and gives, and that nothing of it is left whatever it does.

use std::time::Duration;

use crate::outcome::TaskOutcome;
use crate::step_log::Stream;
use crate::tool::{TaskContext, TaskLimits, Tool};
use crate::tools::process::ProcessOptions;
use crate::tools::shell::Shell;
use serde_json::{Value as Json, json};
use stepwell_kernel::plan::ErrorClass;
use tokio::time::Instant;

use crate::testing::programs::{
    MEMORY, call, code, cx, is_gone, logged, pids, resident, short, soon,
};

async fn run_in(cmds: Json, cx: &TaskContext) -> TaskOutcome {
    let shell = Shell::new(ProcessOptions::default());
    shell
        .run(&call(json!({ "cmds": cmds }), json!({})), cx)
        .await
}

async fn run(cmds: Json) -> TaskOutcome {
    run_in(cmds, &cx()).await
}

#[tokio::test]
async fn commands_run_in_order_and_give_their_output() {
    let (cx, log) = logged();
    let outcome = run_in(json!(["echo one; echo two >&2", "echo three"]), &cx).await;
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.result["stdout"], "one\nthree\n");
    assert_eq!(outcome.result["stderr"], "two\n");
    assert_eq!(outcome.result["exit_code"], 0);
    assert_eq!(outcome.result["commands"].as_array().unwrap().len(), 2);
    assert_eq!(outcome.details["sh"]["exit_code"], 0);
    assert_eq!(log.of(Stream::Out), ["one", "three"]);
    assert_eq!(log.of(Stream::Err), ["two"]);
}

#[tokio::test]
async fn the_first_command_that_fails_is_the_last() {
    let outcome = run(json!(["echo a", "echo why >&2; exit 3", "echo never"])).await;
    let error = outcome.error.clone().unwrap();
    assert_eq!(
        (error.class, error.code.as_str()),
        (ErrorClass::Unknown, "SHELL_EXIT")
    );
    assert_eq!(error.message, "the command ended with exit code 3: why");
    assert_eq!(outcome.result["stdout"], "a\n");
    assert_eq!(outcome.result["exit_code"], 3);
    assert_eq!(outcome.result["commands"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn scripts_may_be_written_for_bash() {
    let script = "set -euo pipefail\nwords=(a b)\nif [[ ${#words[@]} == 2 ]]; then echo yes; fi";
    assert_eq!(run(json!([script])).await.result["stdout"], "yes\n");
}

#[tokio::test]
async fn output_that_is_one_json_document_is_given_as_data() {
    assert_eq!(
        run(json!(["echo '{\"a\": [1]}'"])).await.result["data"],
        json!({"a": [1]})
    );
    assert!(
        run(json!(["echo hello"]))
            .await
            .result
            .get("data")
            .is_none()
    );
}

#[tokio::test]
async fn a_command_that_is_not_there_is_the_tasks_own_mistake() {
    let error = run(json!(["no-such-command-here"])).await.error.unwrap();
    assert_eq!(error.code, "SHELL_NOT_FOUND");
    assert_eq!(error.class, ErrorClass::Validation);
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_killed_command_may_be_tried_again_and_a_crashed_one_not() {
    let killed = run(json!(["kill -KILL $$"])).await;
    assert!(killed.error.as_ref().unwrap().is_retryable());
    assert_eq!(killed.details["sh"]["signal"], 9);
    let crashed = run(json!(["kill -SEGV $$"])).await.error.unwrap();
    assert_eq!(crashed.class, ErrorClass::Unknown);
    assert!(crashed.message.contains("SIGSEGV"), "{}", crashed.message);
}

#[tokio::test]
async fn the_environment_is_clean_and_says_who_is_calling() {
    let fields = json!({"cmds": ["env -0"], "env": {"N": 5, "T": "a b", "L": [1], "HOME": null}});
    let shell = Shell::new(ProcessOptions::default());
    let outcome = shell
        .run(&call(fields, json!({"who": "it's me"})), &cx())
        .await;
    let text = outcome.result["stdout"].as_str().unwrap();
    let has = |line: &str| text.split('\0').any(|found| found == line);
    assert!(has("N=5") && has("T=a b") && has("L=[1]"), "{text:?}");
    assert!(has("STEPWELL_RUN_ID=run-1") && has("STEPWELL_STEP_ID=load[3]"));
    assert!(has("STEPWELL_IDEMPOTENCY_KEY=key-1") && has("STEPWELL_ATTEMPT=2"));
    assert!(has("STEPWELL_EXECUTION=3") && has("STEPWELL_FENCE=41"));
    assert!(has("STEPWELL_ARGS={\"who\":\"it's me\"}"));
    assert!(text.contains("PATH="));
    // Cargo gives it to this test; a command has no business with it.
    assert!(!text.contains("CARGO_MANIFEST_DIR") && !text.contains("HOME="));
}

#[tokio::test]
async fn a_variable_can_be_passed_by_name() {
    let options = ProcessOptions {
        pass: vec!["CARGO_PKG_NAME".into()],
        ..ProcessOptions::default()
    };
    let shell = Shell::new(options);
    let echo = call(json!({"cmds": ["echo $CARGO_PKG_NAME"]}), json!({}));
    let outcome = shell.run(&echo, &cx()).await;
    assert_eq!(outcome.result["stdout"], "stepwell-worker\n");
}

#[tokio::test]
async fn the_directory_is_the_tasks_and_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    let shell = Shell::new(ProcessOptions {
        directory: Some(folder.path().to_owned()),
        ..ProcessOptions::default()
    });
    let inside = call(json!({"cmds": ["basename $PWD"], "cwd": "sub"}), json!({}));
    assert_eq!(shell.run(&inside, &cx()).await.result["stdout"], "sub\n");
    let nowhere = call(json!({"cmds": ["pwd"], "cwd": "nowhere"}), json!({}));
    let error = shell.run(&nowhere, &cx()).await.error.unwrap();
    assert_eq!(
        (error.class, error.code.as_str()),
        (ErrorClass::Validation, "PROCESS_CWD")
    );
}

#[tokio::test]
async fn standard_input_is_empty() {
    assert_eq!(
        run(json!(["cat; echo done"])).await.result["stdout"],
        "done\n"
    );
}

#[tokio::test]
async fn a_background_process_lives_as_long_as_the_task() {
    let outcome = run(json!(["sleep 1000 & echo $!", "true"])).await;
    assert_eq!(outcome.error, None);
    let pid = outcome.result["stdout"]
        .as_str()
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(soon(|| is_gone(pid)).await);
}

#[tokio::test]
async fn a_command_that_never_ends_is_asked_to_end() {
    let began = Instant::now();
    let cx = short(Duration::from_millis(300));
    let outcome = run_in(
        json!(["trap 'echo bye; exit 0' TERM; while :; do sleep 0.01; done"]),
        &cx,
    )
    .await;
    assert_eq!(code(&outcome.error), "TASK_TIMEOUT");
    assert_eq!(outcome.result["stdout"], "bye\n");
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn whoever_ignores_the_request_is_killed_with_all_children() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let script = format!(
        "trap '' TERM; for i in $(seq 50); do sleep 1000 & echo $! >> {0}; done; echo $$ >> {0}; wait; sleep 1000",
        file.display()
    );
    let (mut cx, cancel) = (cx(), tokio_util::sync::CancellationToken::new());
    cx.cancelled = cancel.clone();
    let cancelled = async {
        assert!(soon(|| pids(&file).len() == 51).await);
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(run_in(json!([script]), &cx), cancelled);
    assert_eq!(code(&outcome.error), "TASK_CANCELLED");
    assert!(soon(|| pids(&file).into_iter().all(is_gone)).await);
}

#[tokio::test]
async fn a_dropped_task_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let script = format!(
        "trap '' TERM; sleep 1000 & echo $! > {0}; echo $$ >> {0}; wait",
        file.display()
    );
    let cx = cx();
    tokio::select! {
        _ = run_in(json!([script]), &cx) => panic!("it must not end"),
        began = soon(|| pids(&file).len() == 2) => assert!(began),
    }
    assert!(soon(|| pids(&file).into_iter().all(is_gone)).await);
}

#[tokio::test]
async fn a_process_that_left_the_group_holds_nobody_up() {
    let began = Instant::now();
    let outcome = run(json!(["setsid sleep 3 & echo here"])).await;
    assert_eq!(outcome.result["stdout"], "here\n");
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn a_gigabyte_of_output_is_read_in_bounded_memory() {
    let _alone = MEMORY.lock().await;
    let before = resident();
    let outcome = run(json!(["yes | head -c 1G"])).await;
    assert_eq!(outcome.error, None);
    let kept = outcome.result["stdout"].as_str().unwrap();
    let limit = TaskLimits::default().captured_bytes;
    assert!(kept.starts_with("y\n") && kept.len() < limit + 100);
    assert!(kept.contains(&format!("[{} bytes left out]", (1 << 30) - limit)));
    assert!(
        resident() < before + (64 << 20),
        "{} {}",
        before,
        resident()
    );
}

#[tokio::test]
async fn output_without_lines_or_text_is_kept() {
    let (cx, log) = logged();
    let outcome = run_in(
        json!(["head -c 40000 /dev/zero | tr '\\0' x", "printf '\\377\\n'"]),
        &cx,
    )
    .await;
    assert_eq!(
        outcome.result["stdout"].as_str().unwrap().chars().count(),
        40002
    );
    let lines = log.of(Stream::Out);
    assert_eq!(lines.len(), 3);
    assert!(lines[2].ends_with("x\u{fffd}"));
}

#[tokio::test]
async fn a_command_that_kills_its_group_fails_alone() {
    let outcome = run(json!(["kill -KILL 0"])).await;
    assert_eq!(code(&outcome.error), "SHELL_EXIT");
    assert_eq!(outcome.details["sh"]["signal"], 9);
}

#[tokio::test]
async fn a_field_of_the_wrong_kind_is_refused() {
    for fields in [
        json!({"cmds": [5]}),
        json!({"cmds": []}),
        json!({"cmds": ["true"], "env": "x"}),
    ] {
        let shell = Shell::new(ProcessOptions::default());
        let outcome = shell.run(&call(fields, json!({})), &cx()).await;
        assert_eq!(code(&outcome.error), "TOOL_FIELD");
    }
}
