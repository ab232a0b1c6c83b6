//! `stepwell run` on the mock engine.

use expect_test::expect;

use super::{mock, scratch, stepwell};

const ROUTING: &str = "examples/playbook/error-routing.yaml";
const SAGA: &str = "examples/actions/order-saga.yaml";
const GATE: &str = "examples/playbook/release-gate.yaml";

#[test]
fn piped_output_is_one_plain_line_per_change() {
    let call = mock(GATE, &["--patch", "approved=true", "--work-ms", "1500"]);
    assert_eq!(call.code, 0, "{}", call.err);
    expect![[r#"
        00:00.000  (run)     running
        00:00.000  checkout  running  (attempt 1)
        00:01.500  checkout  success  (1.5 s)
        00:01.500  build     running  (attempt 1)
        00:01.500  test      running  (attempt 1)
        00:03.000  build     success  (1.5 s)
        00:03.000  test      success  (1.5 s)
        00:03.000  ready     running  (attempt 1)
        00:04.500  ready     success  (1.5 s)
        00:04.500  deploy    denied  (by its admission rules)
        00:04.500  (run)     running  (stalled: deploy is not admitted: its rules read ctx.approved)
        00:04.500  deploy    running  (attempt 1)
        00:06.000  deploy    success  (1.5 s)
        00:06.000  (run)     success

        success  release-gate  run_b9b11d9a60f9871ca26cef714ed826fa in 6 s of virtual time, 18 events
    "#]].assert_eq(&call.out);
}

#[test]
fn a_failed_saga_says_what_was_undone() {
    let call = mock(SAGA, &["--fail", "ship=external"]);
    assert_eq!(call.code, 3, "{}", call.err);
    expect![[r#"
        00:00.000  (run)              Running
        00:00.000  authorise-payment  Running  (attempt 1 of 3)
        00:00.000  authorise-payment  Succeeded
        00:00.000  reserve-stock      Running  (attempt 1 of 5)
        00:00.000  reserve-stock      Succeeded
        00:00.000  ship               Running  (attempt 1 of 3)
        00:00.000  ship               Failed  (SIMULATED_FAILURE (external): simulated, as --fail asks)
        00:00.000  (run)              Running  (stopping, then undoing)
        00:00.000  (run)              Running  (undoing 2 steps)
        00:00.000  reserve-stock      undoing  (attempt 1 of 4)
        00:00.000  reserve-stock      undone
        00:00.000  authorise-payment  undoing  (attempt 1 of 2)
        00:00.000  authorise-payment  undone
        00:00.000  (run)              Failed  (Compensated)

        Failed (Compensated)  order-saga  run_d3812331e0be5d9e78cfc1c3b8ac6d84 in 0 ms of virtual time, 17 events
          cause         ship: SIMULATED_FAILURE: simulated, as --fail asks
                        attempt 1 of 3, error class external (not retried)
          undone        reserve-stock, authorise-payment
          next          stepwell explain SIMULATED_FAILURE  # explains the code: cause and what to do
    "#]].assert_eq(&call.out);
}

#[test]
fn a_failed_attempt_is_tried_again() {
    let call = mock(SAGA, &["--fail", "reserve-stock=timeout@1", "-o", "json"]);
    assert_eq!(call.code, 0, "{}", call.err);
    let json = call.json();
    let steps = json["steps"].as_array().unwrap();
    let stock = steps.iter().find(|step| step["stepId"] == "reserve-stock");
    assert_eq!(stock.unwrap()["status"], "SUCCESS");
}

#[test]
fn a_run_that_nobody_admits_fails_when_its_stall_is_over() {
    let call = mock(GATE, &[]);
    assert_eq!(call.code, 3);
    assert!(
        call.out.contains("stalled: deploy is not admitted"),
        "{}",
        call.out
    );
}

#[test]
fn work_that_nobody_here_does_is_refused_before_it_starts() {
    let call = stepwell(&["run", "examples/actions/order-saga.yaml"]);
    assert_eq!(call.code, 2);
    assert!(call.err.contains("--engine mock"), "{}", call.err);
    assert_eq!(stepwell(&["run", ROUTING, "--engine", "temporal"]).code, 2);
}

#[test]
fn misspelt_rules_name_what_was_meant() {
    let call = mock(ROUTING, &["--fail", "chrage"]);
    assert_eq!(call.code, 2);
    assert!(call.err.contains("did you mean `charge`?"), "{}", call.err);
    let call = mock(ROUTING, &["--fail", "charge=boom"]);
    assert_eq!(call.code, 2);
    assert!(call.err.contains("rate_limit"), "{}", call.err);
}

#[test]
fn errors_in_the_definition_come_first() {
    let bad = scratch("run/bad.yaml", b"kind: Playbook\n");
    let call = mock(&bad, &[]);
    assert_eq!(call.code, 1);
    assert!(call.out.is_empty(), "{}", call.out);
    assert!(call.err.contains("error["), "{}", call.err);
}

#[test]
fn input_goes_over_the_input_file_and_the_workload() {
    let file = scratch("run/input.yaml", b"revision: file\nother: {deep: 1}\n");
    let args = [
        "--input-file",
        &file,
        "-i",
        "revision=line",
        "-i",
        "other.more=[2]",
    ];
    let more = ["--patch", "approved=true", "--events"];
    let call = mock(GATE, &[&args[..], &more].concat());
    assert_eq!(call.code, 0, "{}", call.err);
    let first = call.out.lines().next().unwrap();
    assert!(first.contains(r#""revision":"line""#), "{first}");
    assert!(
        first.contains(r#""other":{"deep":1,"more":[2]}"#),
        "{first}"
    );
    assert_eq!(mock(GATE, &["-i", "novalue"]).code, 2);
    assert_eq!(mock(GATE, &["--input-file", "/nonexistent"]).code, 2);
}

/// A playbook that calls another, by the path given.
fn caller(name: &str, path: &str) -> String {
    format!(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata:\n  name: {name}\nworkflow:\n  \
         - step: start\n    tool:\n      kind: playbook\n      path: {path}\n"
    )
}

#[test]
fn children_are_found_by_path_and_by_name() {
    let leaf = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata:\n  name: leaf\nworkflow:\n  \
                - step: work\n    tool:\n      kind: noop\n";
    scratch("family/below/leaf.yaml", leaf.as_bytes());
    let paths = ["./below/leaf.yaml", "below/leaf", "leaf"];
    for (number, path) in paths.into_iter().enumerate() {
        let text = caller("parent", path);
        let parent = scratch(&format!("family/parent{number}.yaml"), text.as_bytes());
        let call = mock(&parent, &[]);
        assert_eq!(call.code, 0, "{}{}", call.out, call.err);
        assert!(call.out.contains("start/work"), "{path}: {}", call.out);
    }
    let lost = scratch("lost/parent.yaml", caller("parent", "nowhere").as_bytes());
    let call = mock(&lost, &[]);
    assert!(
        call.out.contains("no definition found for nowhere"),
        "{}",
        call.out
    );
}

#[test]
fn a_definition_that_calls_itself_fails_clearly() {
    let text = caller("ouroboros", "./ouroboros.yaml");
    let file = scratch("ouroboros/ouroboros.yaml", text.as_bytes());
    let call = mock(&file, &[]);
    assert_eq!(call.code, 3, "{}", call.out);
    let why = "runs may start runs 16 deep";
    assert!(call.out.contains(why), "{}", call.out);
}

#[test]
fn a_workflow_that_goes_round_for_ever_is_given_up() {
    let text = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata:\n  name: round\nworkflow:\n  \
                - step: start\n    tool:\n      kind: noop\n    next: start\n";
    let file = scratch("run/round.yaml", text.as_bytes());
    let call = mock(&file, &["--max-events", "2000", "-o", "json"]);
    assert_eq!(call.code, 5, "{}", call.err);
    let json = call.json();
    assert!(
        json["ext"]["stuck"][0]
            .as_str()
            .unwrap()
            .contains("stopped after 2000 events")
    );
}

#[test]
fn a_run_that_only_waits_says_so_in_the_words_of_its_language() {
    for (file, word) in [
        ("examples/dag/customer-onboarding.yaml", "blocked"),
        ("examples/actions/onboarding.yaml", "WaitingForApproval"),
    ] {
        let call = mock(file, &[]);
        let mut lines = call.out.lines().filter(|line| line.contains("(run)"));
        assert!(lines.any(|line| line.ends_with(word)), "{}", call.out);
    }
}

#[test]
fn the_end_says_what_to_do_by_hand() {
    let call = mock(
        SAGA,
        &["--fail", "ship=auth", "--fail", "reserve-stock~undo=auth"],
    );
    let end = "undo failed   reserve-stock (after 1 attempt: SIMULATED_FAILURE: simulated, as --fail asks)";
    assert!(call.out.contains(end), "{}", call.out);
    // In real time the command does not wait for the end of a stall.
    let real = ["run", GATE, "--engine", "mock", "--store", "memory:"];
    let call = stepwell(&real);
    assert_eq!(call.code, 5, "{}", call.err);
    assert!(call.out.contains("--patch KEY=VALUE"), "{}", call.out);
}
