//! What a crash costs: no attempt of anyone, an execution of a step that runs at most once, and in the end the step
//! that kills its worker.

use serde_json::Value as Json;

use crate::test_site::{Log, RUN, TestSite, is_gone, soon};

/// The row of a step in `runs show -o json`.
fn row(site: &TestSite, step: &str) -> Json {
    let shown = site.show();
    let rows = shown["ext"]["steps"].as_array().unwrap();
    let row = rows.iter().find(|it| it["stepId"] == step);
    row.unwrap_or_else(|| panic!("{step} in {shown}")).clone()
}

/// How the executions of a step ended that were followed by another one: `lost`, `released`, or null for an attempt.
fn ends(log: &Log, step: &str) -> Vec<Json> {
    let failed = log.of("StepExecutionFailed", step).into_iter();
    failed.map(|it| it["ext"]["loss"].clone()).collect()
}

/// A playbook whose loop has twelve items, all at the same time.
const TWELVE: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: twelve}
workflow:
  - step: each
    loop:
      in: "{{ range(12) | list }}"
      iterator: number
      spec: {mode: parallel, max_in_flight: 12}
    tool:
      kind: shell
      env: {NUMBER: "{{ iter.number }}"}
      cmds: ['echo "$NUMBER"']
"#;

#[test]
fn six_crashes_use_up_nobodys_attempts() {
    let site = TestSite::new("six-crashes");
    let file = site.file("twelve.yaml", TWELVE);
    let items: Vec<String> = (0..12).map(|number| format!("each[{number}]")).collect();
    items.iter().for_each(|item| site.hold(item));
    for crash in 1..=6 {
        let process = match crash {
            1 => site.start(&file, &[]),
            _ => site.spawn(&["resume", RUN]),
        };
        let begun: Vec<u32> = items.iter().map(|item| site.begun(item, crash)).collect();
        process.kill();
        soon("the items end with their worker", || {
            begun.iter().all(|pid| is_gone(*pid))
        });
    }
    // What an operator sees while the seventh process works.
    let process = site.spawn(&["resume", RUN]);
    for item in &items {
        site.begun(item, 7);
    }
    let shown = site.good(&["runs", "show", RUN]);
    assert!(shown.contains("lost 6 times with its worker"), "{shown}");
    items.iter().for_each(|item| site.release(item));
    let (code, said) = process.end();
    assert_eq!(code, 0, "{said}");
    let log = site.log();
    for item in &items {
        assert_eq!(log.count("StepCompleted", item), 1, "{item}");
        assert_eq!(ends(&log, item), ["lost"; 6], "{item}");
        assert_eq!(site.times(item), (7, 1), "{item}");
    }
}

#[test]
fn a_plan_without_retries_survives_a_crash() {
    let site = TestSite::new("no-retry-policy");
    let text = "
metadata: {planId: p, planVersion: '1', schemaVersion: v1.2}
steps:
  - {stepId: first, tool: {kind: shell, cmds: [echo first]}}
  - {stepId: second, tool: {kind: shell, cmds: [echo second]}}
";
    let file = site.file("plan.yaml", text);
    site.hold("second");
    let process = site.start(&file, &[]);
    site.begun("second", 1);
    process.kill();
    site.hold_no_more("second");
    let said = site.good(&["resume", RUN]);
    assert!(
        said.contains("lost with its worker (1 of 10), executed again"),
        "{said}"
    );
    assert_eq!(site.log().completed(), ["first", "second"]);
    let second = row(&site, "second");
    let counts = (
        &second["executions"],
        &second["attempts"],
        &second["losses"],
    );
    assert_eq!(counts, (&2.into(), &1.into(), &1.into()));
}

/// A graph whose first step must not be executed twice.
fn once(on_failure: &str) -> String {
    format!(
        "
apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: {{name: pay-out}}
spec:
  timeout: 1h
  steps:
    - name: pay
      atMostOnce: true
      onFailure: {on_failure}
      tool: {{kind: shell, cmds: [echo paid]}}
    - name: tell
      dependsOn: pay
      tool: {{kind: shell, cmds: [echo told]}}
"
    )
}

#[test]
fn a_step_that_runs_at_most_once_is_not_executed_again_after_a_crash() {
    for (on_failure, code, word) in [("skip", 0, "skipped"), ("abort", 3, "failed")] {
        let site = TestSite::new(&format!("at-most-once-{on_failure}"));
        let file = site.file("once.yaml", &once(on_failure));
        site.hold("pay");
        let process = site.start(&file, &[]);
        site.begun("pay", 1);
        process.kill();
        site.hold_no_more("pay");
        let resumed = site.call(&["resume", RUN]);
        assert_eq!(resumed.code, code, "{resumed:?}");
        assert_eq!(site.times("pay"), (1, 0), "never again");
        let log = site.log();
        assert_eq!(log.executions("pay"), 1);
        let failed = log.of("StepFailed", "pay");
        let error = &failed[0]["ext"]["error"];
        assert_eq!(error["class"], "lease_lost", "{}", failed[0]);
        assert_eq!(error["code"], "LEASE_EXPIRED");
        // What the definition says of the failure is done.
        assert_eq!(row(&site, "pay")["word"], word);
        let told = if on_failure == "skip" { (1, 1) } else { (0, 0) };
        assert_eq!(site.times("tell"), told);
        let shown = site.good(&["runs", "show", RUN]);
        let named = shown.contains("not executed again: atMostOnce");
        assert_eq!(named, on_failure == "abort", "{shown}");
    }
}

#[test]
fn a_step_that_runs_at_most_once_is_not_executed_again_after_a_stop_in_the_middle() {
    let site = TestSite::new("at-most-once-stopped");
    let file = site.file("once.yaml", &once("skip"));
    site.hold("pay");
    let process = site.start(&file, &[]);
    let step = site.begun("pay", 1);
    process.send("INT");
    process.until("waiting up to");
    process.send("INT");
    process.end();
    soon("the step ends with its worker", || is_gone(step));
    site.hold_no_more("pay");
    site.good(&["resume", RUN]);
    assert_eq!(site.times("pay"), (1, 0));
    let log = site.log();
    assert_eq!(
        log.of("StepFailed", "pay")[0]["ext"]["error"]["code"],
        "KILLED"
    );
    assert_eq!(site.times("tell"), (1, 1));
}

#[test]
fn a_step_that_kills_its_worker_is_lost_too_often() {
    let site = TestSite::new("killer");
    // Without the witness the parent of the shell is the worker.
    std::fs::remove_file(site.folder.join("bin/bash")).unwrap();
    let text = "
metadata: {planId: p, planVersion: '1', schemaVersion: v1.2}
steps:
  - {stepId: killer, tool: {kind: shell, cmds: ['echo killed >> kills; kill -9 $PPID; sleep 60']}}
";
    let file = site.file("plan.yaml", text);
    let mut alerts = Vec::new();
    for life in 1..=11 {
        let process = match life {
            1 => site.start(&file, &[]),
            _ => site.spawn(&["resume", RUN]),
        };
        let (code, said) = process.end();
        if said.contains("STEP_LOST_REPEATEDLY") {
            alerts.push(life);
        }
        // The eleventh process finds the tenth loss, and executes nothing.
        let expected = if life <= 10 { -1 } else { 3 };
        assert_eq!(code, expected, "process {life}: {said}");
    }
    assert_eq!(site.read("kills").lines().count(), 10);
    assert_eq!(
        alerts,
        [4],
        "the process that finds the third loss tells of it"
    );
    let log = site.log();
    assert_eq!(log.executions("killer"), 10);
    assert_eq!(ends(&log, "killer"), ["lost"; 9]);
    let failed = log.of("StepFailed", "killer");
    let error = &failed[0]["ext"]["error"];
    assert_eq!(error["class"], "lease_lost");
    assert_eq!(error["code"], "LOST_TOO_OFTEN");
    let shown = site.good(&["runs", "show", RUN]);
    assert!(shown.contains("lost 10 times with its worker"), "{shown}");
    let page = site.good(&["explain", "LOST_TOO_OFTEN"]);
    assert!(page.contains("maxLosses"), "{page}");
}

#[test]
fn a_stop_charges_nobody() {
    let site = TestSite::new("stopped-often");
    let text = "
metadata: {planId: p, planVersion: '1', schemaVersion: v1.2}
steps:
  - {stepId: slow, maxLosses: 1, tool: {kind: shell, cmds: [echo slow]}}
";
    let file = site.file("plan.yaml", text);
    site.hold("slow");
    for stop in 1..=3 {
        let process = match stop {
            1 => site.start(&file, &[]),
            _ => site.spawn(&["resume", RUN]),
        };
        let step = site.begun("slow", stop);
        process.send("INT");
        process.until("waiting up to");
        process.send("INT");
        let (code, said) = process.end();
        assert_eq!(code, 130, "{said}");
        soon("the step ends with its worker", || is_gone(step));
    }
    site.hold_no_more("slow");
    site.good(&["resume", RUN]);
    let slow = row(&site, "slow");
    let counts = (&slow["executions"], &slow["attempts"], &slow["losses"]);
    assert_eq!(counts, (&4.into(), &1.into(), &0.into()));
    assert_eq!(ends(&site.log(), "slow"), ["released"; 3]);
}

#[test]
fn a_crash_costs_a_linear_step_an_attempt() {
    let site = TestSite::new("linear-crash");
    let text = "
workflowType: order
workflowVersion: 1
defaults: {maxAttempts: 2}
steps:
  - {stepType: PAY, tool: {kind: shell, cmds: [echo paid]}}
";
    let file = site.file("order.yaml", text);
    site.hold("PAY");
    let process = site.start(&file, &[]);
    site.begun("PAY", 1);
    process.kill();
    let process = site.spawn(&["resume", RUN]);
    site.begun("PAY", 2);
    process.kill();
    let ended = site.call(&["resume", RUN]);
    assert_eq!(ended.code, 3, "{ended:?}");
    let pay = row(&site, "PAY");
    assert_eq!(
        (&pay["word"], &pay["attempts"]),
        (&"DEAD".into(), &2.into())
    );
}
