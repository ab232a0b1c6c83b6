//! The language `linear`: what it accepts, what it refuses, what it compiles to, and its rows.

use expect_test::expect;
use serde_json::{Value as Json, json};
use stepwell_dialects::linear::rows::{StepRow, instance_row, step_rows};
use stepwell_dialects::linear::{compile, detect, schema, words};
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::{Rollback, StepError, WaitKind};
use stepwell_kernel::plan::{
    ErrorClass, OnFailure, Plan, Step, StepNo, StepRef, WaitOn, WaitTimeout, Work,
};
use stepwell_kernel::state::{Phase, State, Status};
use stepwell_kernel::time::Time;

use crate::made::{edited, fresh, pause, visit};

use crate::{accepts, compiled, diagnosed, examples, net, node, reported};

fn workflow(steps: &str) -> String {
    format!("workflowType: order.process\nworkflowVersion: 3\nsteps:\n{steps}")
}

/// The one step of a workflow whose step has these further fields.
fn only(more: &str) -> Step {
    net(&one(more), compile).steps.remove(0)
}

fn one(more: &str) -> String {
    let comma = if more.is_empty() { "" } else { ", " };
    workflow(&format!("- {{stepType: A{comma}{more}}}\n"))
}

fn codes(more: &str) -> Vec<&'static str> {
    reported(&one(more), compile)
}

#[test]
fn examples_load_without_a_word_and_fit_the_schema() {
    let files = examples("linear");
    assert!(files.len() >= 3);
    for (name, text) in files {
        assert!(detect(&node(&text)), "{name}");
        assert!(accepts(&schema(), &text), "{name}");
        Plan::new(net(&text, compile)).expect("a plan");
    }
}

#[test]
fn steps_form_a_chain_in_the_order_of_the_file() {
    let net = net(
        &workflow("- stepType: A\n- stepType: B\n- stepType: C\n"),
        compile,
    );
    let edges: Vec<_> = net.edges.iter().map(|it| (it.from.0, it.to.0)).collect();
    assert_eq!(edges, [(0, 1), (1, 2)]);
    assert_eq!(
        (net.plan_id.as_str(), net.plan_version.as_str()),
        ("order.process", "3")
    );
    assert_eq!(net.policy.wait_timeout, WaitTimeout::Claim);
    assert!(!net.policy.skip_unreached);
    let expected = Work::Task {
        queue: "order.process".into(),
        operation: "B".into(),
        config: json!(null),
    };
    assert_eq!(net.steps[1].work, expected);
    assert_eq!(
        net.steps[1].on_failure,
        OnFailure::Stop { compensate: false }
    );
}

#[test]
fn a_step_wins_over_the_workflow_and_the_workflow_over_the_defaults() {
    let retry = only("").retry;
    assert_eq!(retry.max_executions, 10);
    let waits: Vec<u64> = [1, 2, 3, 9, 10]
        .map(|n| retry.backoff.delay_ms(n, || 0))
        .to_vec();
    assert_eq!(waits, [1_000, 2_000, 4_000, 256_000, 300_000]);
    let text = "workflowType: w\nworkflowVersion: 1\n\
        defaults: {maxAttempts: 4, leaseSeconds: 9, backoff: {initial: 2s, max: 60}}\n\
        steps: [{stepType: A}, {stepType: B, maxAttempts: 7, backoff: {initial: 5s}}]\n";
    let net = net(text, compile);
    let of = |no: usize| {
        let retry = &net.steps[no].retry;
        (
            retry.max_executions,
            retry.backoff.initial_ms,
            retry.backoff.max_ms,
        )
    };
    assert_eq!((of(0), of(1)), ((4, 2_000, 60_000), (7, 5_000, 60_000)));
    assert_eq!(net.policy.lease_ms, Some(9_000));
}

#[test]
fn failures_that_trying_again_may_mend_are_retried() {
    use ErrorClass::*;
    let retry = only("").retry;
    for class in [
        Unknown, Timeout, Transient, Transport, RateLimit, Agent, External, LeaseLost,
    ] {
        assert!(retry.covers(class), "{class:?}");
    }
    for class in [
        Validation, Policy, Auth, Conflict, Governance, Rejected, Cancelled,
    ] {
        assert!(!retry.covers(class), "{class:?}");
    }
}

#[test]
fn a_step_that_only_waits_has_no_worker_and_is_not_retried() {
    let step = only("waitFor: {event: paid, timeout: 24h}");
    let Work::Wait(wait) = &step.work else {
        panic!("{:?}", step.work);
    };
    assert_eq!(
        wait.on,
        WaitOn::Event {
            event_type: "paid".into()
        }
    );
    assert_eq!(wait.deadline_ms, Some(86_400_000));
    assert!(step.retry.classes.is_empty());
    for field in [
        "timeout: 5s",
        "input: {a: 1}",
        "maxAttempts: 2",
        "backoff: {initial: 1s}",
    ] {
        assert_eq!(
            codes(&format!("waitFor: {{event: e, timeout: 1h}}, {field}")),
            ["WAIT_FIELD"],
            "{field}"
        );
    }
    assert_eq!(codes("waitFor: {event: e}"), ["WAIT_WITHOUT_TIMEOUT"]);
    let step = only("waitFor: {event: e, timeout: 1h, outbound: [{type: ask}]}");
    assert_eq!(step.outbound.len(), 1);
}

#[test]
fn a_handler_is_told_what_to_wait_for() {
    let step = only(
        "handler: ask, queue: bank, waitFor: {event: paid, timeout: 5, outbound: [{type: ask}]}",
    );
    let expected = Work::Task {
        queue: "bank".into(),
        operation: "ask".into(),
        config: json!({"waitFor": {"event": "paid", "timeout": 5, "outbound": [{"type": "ask"}]}}),
    };
    assert_eq!(step.work, expected);
}

#[test]
fn without_timeout_claims_waits_never_time_out() {
    let text =
        one("waitFor: {event: e, timeout: 5s}").replace("steps:", "timeoutClaims: false\nsteps:");
    let (net, problems) = compiled(&text, compile);
    let net = net.expect("a warning only");
    assert_eq!(problems[0].code, "WAIT_TIMEOUT_UNUSED");
    assert_eq!(net.policy.wait_timeout, WaitTimeout::Ignore);
    let Work::Wait(wait) = &net.steps[0].work else {
        panic!("{:?}", net.steps[0].work);
    };
    assert_eq!(wait.deadline_ms, None);
}

#[test]
fn a_tool_excludes_a_worker_and_a_wait() {
    assert!(matches!(
        only("tool: {kind: noop}").work,
        Work::Pipeline { .. }
    ));
    assert_eq!(codes("tool: {kind: noop}, queue: q"), ["WORK_CONFLICT"]);
    assert_eq!(
        codes("tool: {kind: noop}, waitFor: {event: e}"),
        ["WORK_CONFLICT"]
    );
    assert_eq!(codes("handler: a, operation: b"), ["FIELD_CONFLICT"]);
}

#[test]
fn a_repeated_step_type_needs_a_name() {
    let twice = workflow("- stepType: A\n- stepType: A\n");
    assert_eq!(reported(&twice, compile), ["NAME_DUPLICATE"]);
    let named = net(
        &workflow("- stepType: A\n- {stepType: A, name: A2}\n"),
        compile,
    );
    assert_eq!(named.steps[1].name, "A2");
    let plan = Plan::new(named).expect("a plan");
    let rows = step_rows(&plan, &State::new("run_1", &plan));
    assert_eq!(rows[1].step_type, "A");
}

#[test]
fn typical_mistakes_are_shown_with_their_cure() {
    let text = "\
workflowType: order[eu]
workflowVersion: '1'
bizKey: '{{ workload.orderId | nope }}'
defaults: {maxAttempts: 0, leaseSecond: 30, backoff: {initial: 10m}}
timeoutClaims: off
steps:
  - stepType: VALIDATE
    timeout: -5s
  - stepType: VALIDATE
  - steptype: SHIP
  - stepType: WAIT
    waitFor: {timeout: 1h, outbound: [x]}
    timeout: 2h
  - stepType: PAY
    tool: {url: x}
    handler: pay
";
    expect![[r#"
        error[NAME_INVALID]: the name `order[eu]` holds `[`
         --> t.yaml:1:15
          |
        1 | workflowType: order[eu]
          |               ^^^^^^^^^
          |
          = help: write a name such as `order-eu`

        error[FIELD_TYPE]: `workflowVersion` must be a whole number, but is the text `1`
         --> t.yaml:2:18
          |
        2 | workflowVersion: '1'
          |                  ^^^
          |
          = help: remove the quotes

        error[TEMPLATE_SYNTAX]: this template does not parse: there is no filter `nope`
         --> t.yaml:3:9
          |
        3 | bizKey: '{{ workload.orderId | nope }}'
          |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          |
          = help: templates are Jinja: `{{ ctx.page | int + 1 }}`; write `{% raw %}{{{% endraw %}` for a literal `{{`

        error[FIELD_VALUE]: `maxAttempts` must be from 1 to 1000, but is 0
         --> t.yaml:4:25
          |
        4 | defaults: {maxAttempts: 0, leaseSecond: 30, backoff: {initial: 10m}}
          |                         ^

        error[FIELD_UNKNOWN]: `defaults` has no field `leaseSecond`
         --> t.yaml:4:28
          |
        4 | defaults: {maxAttempts: 0, leaseSecond: 30, backoff: {initial: 10m}}
          |                            ^^^^^^^^^^^
          |
          = help: did you mean `leaseSeconds`?

        warning[BACKOFF_CAPPED]: the first wait of 600000 ms is longer than the longest, 300000 ms
         --> t.yaml:4:54
          |
        4 | defaults: {maxAttempts: 0, leaseSecond: 30, backoff: {initial: 10m}}
          |                                                      ^^^^^^^^^^^^^^
          |
          = help: raise `max`, or lower `initial`

        error[FIELD_TYPE]: `timeoutClaims` must be true or false, but is the text `off`
         --> t.yaml:5:16
          |
        5 | timeoutClaims: off
          |                ^^^
          |
          = help: write `false`, without quotes

        error[FIELD_DURATION]: `timeout` must not be negative
         --> t.yaml:8:14
          |
        8 |     timeout: -5s
          |              ^^^
          |
          = help: write a number of seconds, or one with a unit, such as "500ms" or "1h30m"

        error[NAME_DUPLICATE]: two steps are named `VALIDATE`
         --> t.yaml:9:15
          |
        9 |   - stepType: VALIDATE
          |               ^^^^^^^^
          |
          = help: a step is named after its `stepType`; where the type occurs again, add a `name`

        error[FIELD_UNKNOWN]: `steps[2]` has no field `steptype`
          --> t.yaml:10:5
           |
        10 |   - steptype: SHIP
           |     ^^^^^^^^
           |
           = help: did you mean `stepType`?

        error[FIELD_MISSING]: `waitFor` needs `event`
          --> t.yaml:12:14
           |
        12 |     waitFor: {timeout: 1h, outbound: [x]}
           |              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
           |
           = help: add `event: …`

        error[WAIT_FIELD]: `timeout` has no meaning in a step that only waits
          --> t.yaml:13:5
           |
        13 |     timeout: 2h
           |     ^^^^^^^
           |
           = help: move it into `waitFor`

        error[FIELD_MISSING]: `tool` needs `kind`
          --> t.yaml:15:11
           |
        15 |     tool: {url: x}
           |           ^^^^^^^^
           |
           = help: add `kind: …`

        error[WORK_CONFLICT]: `handler` names a worker, but `tool` is run by the built-in one
          --> t.yaml:16:5
           |
        16 |     handler: pay
           |     ^^^^^^^
           |
           = help: remove `handler` or `tool`
    "#]].assert_eq(&diagnosed(text, compile));
}

#[test]
fn hopeless_files_are_refused_and_do_not_panic() {
    for text in [
        "[]",
        "x",
        "steps: 5",
        "steps: []",
        "steps: [[], 5, {}]",
        "workflowType: 5",
    ] {
        assert!(!reported(text, compile).is_empty(), "{text}");
    }
    assert_eq!(reported(&workflow("  []\n"), compile), ["FIELD_VALUE"]);
}

#[test]
fn reader_and_schema_agree() {
    for (more, fine) in [
        ("", true),
        ("maxAttempts: 1000", true),
        ("backoff: {initial: 0}", true),
        ("waitFor: {event: e}", true),
        ("handler: h, waitFor: {event: e, outbound: []}", true),
        ("maxAttempts: 1001", false),
        ("backoff: {first: 1s}", false),
        ("timeout: PT5M", true),
        ("timeout: 0", false),
        ("timeout: 5 minutes", false),
        ("timeout: -5s", false),
        ("waitFor: {}", false),
        ("waitFor: {event: e}, timeout: 5s", false),
        ("waitFor: {event: e, outbound: []}", true),
        ("tool: {kind: noop}, handler: h", false),
        ("handler: h, operation: o", false),
        ("unknown: 1", false),
    ] {
        assert_eq!(accepts(&schema(), &one(more)), fine, "schema: {more}");
        assert_eq!(
            compiled(&one(more), compile).0.is_some(),
            fine,
            "reader: {more}"
        );
    }
}

#[test]
fn the_language_is_told_by_its_own_keys() {
    assert!(detect(&node("steps: [{stepType: A}]")));
    assert!(detect(&node("workflowType: w\nsteps: 5")));
    assert!(!detect(&node("steps: [{stepId: a}]")));
    assert!(!detect(&node("workflowType: w")));
}

/// A run of a two-step chain whose first step is as given.
fn run_with(phase: Phase, change: impl FnOnce(&mut Json)) -> (Plan, State) {
    let net = net(&workflow("- stepType: A\n- stepType: B\n"), compile);
    let plan = Plan::new(net).expect("a plan");
    let state = fresh(&plan, |it| {
        it["phase"] = json!(phase);
        it["started_at"] = json!(5);
        let mut visit = visit(Status::Ready);
        visit["run"]["visible_at"] = json!(10);
        change(&mut visit["run"]);
        it["steps"][0]["visits"] = json!([visit]);
    });
    (plan, state)
}

fn row(change: impl FnOnce(&mut Json)) -> StepRow {
    let (plan, state) = run_with(Phase::Running, change);
    step_rows(&plan, &state).remove(0)
}

#[test]
fn a_started_instance_is_ready_at_its_first_step() {
    let (plan, state) = run_with(Phase::Running, |_| {});
    let instance = instance_row(&plan, &state, Some("order-7"));
    let expected = json!({
        "biz_key": "order-7", "workflow_type": "order.process", "workflow_version": 3,
        "status": "RUNNING", "current_step_seq": 0, "current_step_type": "A", "started_at": 5,
    });
    assert_eq!(instance.instance_id, "run_1");
    assert_eq!((instance.completed_at, instance.failed_at), (None, None));
    assert_eq!(serde_json::to_value(instance).expect("JSON"), expected);
    let rows = step_rows(&plan, &state);
    assert_eq!(
        (rows[0].status, rows[0].next_run_at),
        ("READY", Some(Time(10)))
    );
    assert_eq!((rows[1].status, rows[1].next_run_at), ("PENDING", None));
    assert_eq!((rows[0].attempts, rows[0].max_attempts), (0, 10));
}

#[test]
fn a_claimed_step_shows_its_lease_and_no_failure() {
    let row = row(|run| {
        run["status"] = json!(Status::Running);
        run["tries"] = json!(1);
        run["lease"] = json!({ "worker": "w", "until": 40 });
    });
    assert_eq!((row.status, row.attempts), ("RUNNING", 0));
    assert_eq!(
        (row.locked_by.as_deref(), row.locked_until),
        (Some("w"), Some(Time(40)))
    );
}

#[test]
fn a_failed_execution_counts_and_says_why() {
    let failed = |class, message: &str| {
        let error = StepError::new(class, "CODE", message);
        row(move |run| {
            run["tries"] = json!(2);
            run["error"] = json!(error);
        })
    };
    let retry = failed(ErrorClass::Unknown, "no answer");
    assert_eq!((retry.status, retry.attempts), ("READY", 2));
    assert_eq!(retry.last_error.as_deref(), Some("no answer"));
    let lost = failed(ErrorClass::LeaseLost, "lost");
    assert_eq!(lost.last_error.as_deref(), Some("LEASE_EXPIRED"));
    let dead = row(|run| {
        run["status"] = json!(Status::Failed);
        run["tries"] = json!(3);
    });
    assert_eq!(
        (dead.status, dead.attempts, dead.next_run_at),
        ("DEAD", 3, None)
    );
}

#[test]
fn a_waiting_step_shows_its_event_and_is_ready_again_without_a_failure() {
    let waiting = row(|run| {
        run["status"] = json!(Status::Waiting);
        run["tries"] = json!(1);
        let kind = WaitKind::Event {
            event_type: "paid".into(),
            rerun: true,
        };
        run["wait"] = json!({ "kind": kind, "deadline": 99, "approvals": [] });
    });
    assert_eq!(
        (waiting.status, waiting.attempts, waiting.next_run_at),
        ("WAITING", 0, None)
    );
    assert_eq!(waiting.waiting_event_type.as_deref(), Some("paid"));
    assert_eq!(waiting.deadline_at, Some(Time(99)));
    let woken = row(|run| {
        run["tries"] = json!(1);
        run["woken"] = json!(true);
    });
    assert_eq!(
        (woken.status, woken.attempts, woken.next_run_at),
        ("READY", 0, Some(Time(10)))
    );
    assert_eq!((woken.waiting_event_type, woken.deadline_at), (None, None));
}

#[test]
fn the_pointer_stands_at_the_first_step_that_is_not_done() {
    let (plan, state) = run_with(Phase::Running, |run| {
        run["status"] = json!(Status::Succeeded)
    });
    let instance = instance_row(&plan, &state, None);
    assert_eq!(
        (
            instance.current_step_seq,
            instance.current_step_type.as_str()
        ),
        (1, "B")
    );
}

#[test]
fn the_end_of_an_instance_has_its_own_column() {
    let ended = |outcome| {
        let (plan, state) = run_with(Phase::Ended(outcome), |_| {});
        let state = edited(&plan, &state, |it| it["ended_at"] = json!(70));
        let row = instance_row(&plan, &state, None);
        (row.status, row.completed_at, row.failed_at)
    };
    assert_eq!(
        ended(RunOutcome::Succeeded),
        ("COMPLETED", Some(Time(70)), None)
    );
    assert_eq!(
        ended(RunOutcome::Failed(Rollback::None)),
        ("FAILED", None, Some(Time(70)))
    );
    assert_eq!(
        ended(RunOutcome::Cancelled(Rollback::None)),
        ("CANCELED", None, None)
    );
}

#[test]
fn every_state_of_a_step_has_a_word() {
    let at = StepRef::first(StepNo(0));
    for (status, expected) in [
        (Status::Arrived, "READY"),
        (Status::Denied, "PENDING"),
        (Status::Ready, "READY"),
        (Status::Running, "RUNNING"),
        (Status::Waiting, "WAITING"),
        (Status::Looping, "RUNNING"),
        (Status::Succeeded, "DONE"),
        (Status::Failed, "DEAD"),
        (Status::Held, "DEAD"),
        (Status::Skipped, "DONE"),
        (Status::Cancelled, "DEAD"),
    ] {
        let (plan, state) = run_with(Phase::Running, |run| run["status"] = json!(status));
        assert_eq!(words::step_word(&plan, &state, at), expected, "{status:?}");
    }
    let (_, state) = run_with(Phase::Running, |run| run["status"] = json!(Status::Skipped));
    assert_eq!(words::step_substatus(&state, at), Some("skipped"));
}

#[test]
fn a_pause_is_a_substatus() {
    let (plan, state) = run_with(Phase::Running, |_| {});
    assert_eq!(words::run_substatus(&state), None);
    let state = edited(&plan, &state, |it| it["pause"] = pause());
    assert_eq!(
        (words::run_word(&state), words::run_substatus(&state)),
        ("RUNNING", Some("paused"))
    );
}
