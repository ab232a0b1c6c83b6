//! The language `actions`: what it accepts, what it refuses, what it compiles to.

use expect_test::expect;
use serde_json::json;
use stepwell_dialects::actions::{compile, detect, schema, words};
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::{Rollback, WaitKind};
use stepwell_kernel::plan::{
    BackoffKind, Completion, Duty, ErrorClass, Join, Net, OnFailure, Plan, Route, SideEffect, Step,
    StepNo, StepRef, UndoMode, WaitOn, Work,
};
use stepwell_kernel::state::{Phase, State, Status};

use crate::made::{edited, fresh, pause, visit};

use crate::{accepts, compiled, diagnosed, examples, net, node, reported};

/// A workflow of the tier `Auto` around these actions.
fn workflow(actions: &str) -> String {
    format!(
        "schemaVersion: 1\nworkflowId: w\nworkspaceId: s\nname: W\nversion: 2\nactive: true\n\
         executionTier: Auto\nactions:\n{actions}"
    )
}

/// One action with further fields in flow style.
fn action(id: &str, order: i64, more: &str) -> String {
    let comma = if more.is_empty() { "" } else { ", " };
    format!("- {{actionId: {id}, order: {order}, portFamily: q, operation: 'a:b'{comma}{more}}}\n")
}

/// The one step of a workflow with one action with these further fields.
fn only(more: &str) -> Step {
    let mut net = net(&workflow(&action("a", 1, more)), compile);
    net.steps.remove(0)
}

fn codes(more: &str) -> Vec<&'static str> {
    reported(&workflow(&action("a", 1, more)), compile)
}

fn edges(net: &Net) -> Vec<(String, String)> {
    let name = |no: StepNo| net.steps[no.0 as usize].name.clone();
    let edge = |edge: &stepwell_kernel::plan::Edge| (name(edge.from), name(edge.to));
    net.edges.iter().map(edge).collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(from, to): &(&str, &str)| ((*from).to_owned(), (*to).to_owned());
    list.iter().map(own).collect()
}

#[test]
fn examples_load_without_a_word_and_fit_the_schema() {
    let files = examples("actions");
    assert!(files.len() >= 3);
    for (name, text) in files {
        assert!(detect(&node(&text)), "{name}");
        assert!(accepts(&schema(), &text), "{name}");
        Plan::new(net(&text, compile)).expect("a plan");
    }
}

#[test]
fn a_file_without_extensions_is_a_chain_with_every_default() {
    let text = workflow(&(action("b", 2, "") + &action("a", 1, "") + &action("c", 3, "")));
    let net = net(&text, compile);
    assert_eq!(edges(&net), pairs(&[("a", "b"), ("b", "c")]));
    assert_eq!(
        (net.plan_id.as_str(), net.plan_version.as_str()),
        ("w", "2")
    );
    assert_eq!(net.schema_version, "v1.0");
    assert_eq!(net.policy.undo_mode, UndoMode::Continue);
    assert!(net.policy.skip_unreached);
    let step = &net.steps[0];
    assert_eq!((step.name.as_str(), step.order), ("b", 2));
    assert_eq!((step.join, step.route), (Join::All, Route::Edges));
    assert_eq!(step.on_failure, OnFailure::Stop { compensate: true });
    assert_eq!(step.side_effect, SideEffect::Unknown);
    let Work::Task {
        queue, operation, ..
    } = &step.work
    else {
        panic!("{:?}", step.work);
    };
    assert_eq!((queue.as_str(), operation.as_str()), ("q", "a:b"));
}

#[test]
fn a1_orders_must_be_exactly_one_to_n() {
    for orders in [[1, 1], [0, 1], [1, 3], [2, 3], [-1, 1], [i64::MIN, 1]] {
        let text = workflow(&(action("a", orders[0], "") + &action("b", orders[1], "")));
        let codes = reported(&text, compile);
        assert!(
            !codes.is_empty() && codes.iter().all(|c| *c == "ORDER_INVALID"),
            "{orders:?}"
        );
    }
}

#[test]
fn any_depends_on_makes_a_graph_of_exactly_the_named_edges() {
    let text = workflow(
        &(action("a", 1, "") + &action("b", 2, "") + &action("c", 3, "dependsOn: [b, a]")),
    );
    assert_eq!(
        edges(&net(&text, compile)),
        pairs(&[("b", "c"), ("a", "c")])
    );
    let text = workflow(&(action("a", 1, "dependsOn: []") + &action("b", 2, "")));
    assert!(net(&text, compile).edges.is_empty());
}

#[test]
fn a13_omitted_retry_fields_take_the_documented_defaults() {
    for more in ["", "retryPolicy: {}"] {
        let retry = only(more).retry;
        assert_eq!(retry.max_executions, 3);
        assert_eq!(retry.backoff.kind, BackoffKind::Exponential);
        assert_eq!(
            (retry.backoff.initial_ms, retry.backoff.max_ms),
            (1000, 30_000)
        );
        assert!((retry.backoff.multiplier - 2.0).abs() < f64::EPSILON);
    }
}

#[test]
fn a14_max_attempts_outside_one_to_ten_is_refused() {
    for n in [0, -1, 11] {
        assert_eq!(
            codes(&format!("retryPolicy: {{maxAttempts: {n}}}")),
            ["FIELD_VALUE"]
        );
    }
    assert_eq!(
        only("retryPolicy: {maxAttempts: 10}").retry.max_executions,
        10
    );
}

#[test]
fn the_wait_before_a_retry_grows_by_the_factor_up_to_the_cap() {
    let retry =
        only("retryPolicy: {initialBackoffMs: 100, backoffMultiplier: 3, maxBackoffMs: 1000}");
    let waits: Vec<u64> = (1..=4)
        .map(|n| retry.retry.backoff.delay_ms(n, || 0))
        .collect();
    assert_eq!(waits, [100, 300, 900, 1000]);
}

#[test]
fn only_passing_and_unknown_errors_are_retried() {
    use ErrorClass::*;
    let retry = only("").retry;
    for class in [Timeout, RateLimit, Transient, Transport, Unknown] {
        assert!(retry.covers(class), "{class:?}");
    }
    for class in [Validation, Policy, Auth, Conflict, Rejected, Cancelled] {
        assert!(!retry.covers(class), "{class:?}");
    }
    let retry = only("retryPolicy: {retryableErrors: [5xx, timeout, transient]}").retry;
    assert_eq!(retry.classes, [Transient, Timeout]);
    let bad = "retryPolicy: {retryableErrors: [validation, 5xxx]}";
    assert_eq!(codes(bad), ["ERROR_CLASS_FINAL", "ERROR_CLASS_UNKNOWN"]);
}

#[test]
fn an_attempt_may_take_five_minutes_unless_the_file_says_otherwise() {
    assert_eq!(only("").timeout_ms, Some(300_000));
    assert_eq!(only("timeoutMs: 50").timeout_ms, Some(50));
    assert_eq!(codes("timeoutMs: 0"), ["FIELD_DURATION"]);
    assert_eq!(codes("timeoutMs: -5"), ["FIELD_DURATION"]);
    assert_eq!(codes("timeoutMs: 99999999999999"), ["FIELD_DURATION"]);
}

#[test]
fn side_effects_follow_from_what_the_file_says() {
    let hook = "compensation: {compensationOperation: 'a:undo', compensationInput: {}}";
    assert_eq!(
        only("sideEffecting: true").side_effect,
        SideEffect::Irreversible
    );
    assert_eq!(only("sideEffecting: false").side_effect, SideEffect::Pure);
    assert_eq!(only(hook).side_effect, SideEffect::Compensable);
    let both = codes(&format!("sideEffecting: false, {hook}"));
    assert_eq!(both, ["SIDE_EFFECT_CONTRADICTED"]);
}

#[test]
fn compensations_have_their_own_defaults_and_come_in_pairs() {
    let step = only("compensation: {compensationOperation: 'a:undo', compensationInput: {x: 1}}");
    let undo = step.undo.expect("an undo");
    assert_eq!(
        (undo.queue.as_str(), undo.operation.as_str()),
        ("q", "a:undo")
    );
    assert_eq!(undo.input, json!({"x": 1}));
    assert_eq!(
        (undo.retry.max_executions, undo.retry.backoff.max_ms),
        (2, 10_000)
    );
    assert_eq!(undo.timeout_ms, Some(300_000));
    assert_eq!(
        codes("compensation: {compensationInput: {}}"),
        ["COMPENSATION_INCOMPLETE"]
    );
    assert_eq!(
        codes("compensation: {compensationOperation: 'a:b'}"),
        ["COMPENSATION_INCOMPLETE"]
    );
    assert_eq!(codes("compensation: {}"), ["COMPENSATION_INCOMPLETE"; 2]);
}

#[test]
fn a_compensation_can_be_done_by_a_tool_that_does_not_wait() {
    let hook = |tool: &str| {
        format!(
            "compensation: {{compensationOperation: 'a:undo', compensationInput: {{}}, tool: {tool}}}"
        )
    };
    let step = only(&hook("{kind: shell, cmds: [ls]}"));
    let undo = step.undo.expect("an undo");
    assert_eq!(undo.tasks[0]["kind"], "shell");
    assert_eq!(codes(&hook("{kind: wait, event: paid}")), ["FIELD_VALUE"]);
}

#[test]
fn tiers_decide_what_a_person_has_to_do() {
    assert_eq!(only("executionTierOverride: Assisted"), only(""));
    let approve = only("executionTierOverride: HumanApprove, separationOfDuties: [MakerChecker]");
    assert_eq!(approve.gate.expect("a gate").duties, [Duty::MakerChecker]);
    assert!(approve.duties.is_empty());
    let manual =
        only("executionTierOverride: ManualOnly, separationOfDuties: [{distinctApprovers: 2}]");
    let Work::Wait(wait) = &manual.work else {
        panic!("{:?}", manual.work);
    };
    assert_eq!((&wait.on, wait.deadline_ms), (&WaitOn::Manual, None));
    assert_eq!((manual.timeout_ms, manual.retry.max_executions), (None, 1));
    assert_eq!(manual.duties, [Duty::DistinctApprovers { count: 2 }]);
    let tool = only("executionTierOverride: ManualOnly, tool: {kind: noop}");
    assert!(matches!(tool.work, Work::Pipeline { .. }));
    assert_eq!(tool.completion, Completion::Manual);
    assert_eq!(
        only("completionMode: manual").completion,
        Completion::Manual
    );
}

#[test]
fn an_override_may_only_be_stricter() {
    let text = workflow(&action("a", 1, "executionTierOverride: Assisted"));
    let strict = text.replace("executionTier: Auto", "executionTier: HumanApprove");
    assert_eq!(reported(&strict, compile), ["TIER_LOOSENED"]);
    let same = text.replace("executionTier: Auto", "executionTier: Assisted");
    assert!(reported(&same, compile).is_empty());
}

#[test]
fn an_inactive_workflow_loads_with_a_warning() {
    let text = workflow(&action("a", 1, "")).replace("active: true", "active: false");
    let (net, problems) = compiled(&text, compile);
    assert!(net.is_some());
    assert_eq!(problems[0].code, "WORKFLOW_INACTIVE");
}

#[test]
fn duties_must_name_actions_and_need_a_person() {
    let gate = "executionTierOverride: HumanApprove, separationOfDuties:";
    assert_eq!(
        codes(&format!("{gate} [{{incompatibleDuties: [b]}}]")),
        ["DUTY_UNKNOWN"]
    );
    assert_eq!(
        codes(&format!("{gate} [{{incompatibleDuties: []}}]")),
        ["FIELD_VALUE"]
    );
    assert_eq!(
        codes(&format!("{gate} [{{distinctApprovers: 0}}]")),
        ["FIELD_VALUE"]
    );
    assert_eq!(codes(&format!("{gate} [{{}}]")), ["FIELD_VALUE"]);
    assert_eq!(codes(&format!("{gate} [MakerCheker]")), ["FIELD_VALUE"]);
    assert_eq!(codes("separationOfDuties: [MakerChecker]"), ["DUTY_UNUSED"]);
    let automatic = "executionTierOverride: ManualOnly, completionMode: automatic";
    assert_eq!(codes(automatic), ["COMPLETION_CONTRADICTED"]);
}

#[test]
fn the_version_of_the_format_may_be_written_in_several_ways() {
    let text = workflow(&action("a", 1, ""));
    for version in ["1", "'1'", "1.0", "'v1.0'"] {
        let text = text.replace("schemaVersion: 1", &format!("schemaVersion: {version}"));
        assert!(reported(&text, compile).is_empty(), "{version}");
    }
    for version in ["2", "'v2.0'", "x"] {
        let text = text.replace("schemaVersion: 1", &format!("schemaVersion: {version}"));
        assert_eq!(
            reported(&text, compile),
            ["SCHEMA_VERSION_UNSUPPORTED"],
            "{version}"
        );
    }
}

#[test]
fn typical_mistakes_are_shown_with_their_cure() {
    let text = "\
schemaVersion: 1
workflowId: orders|eu
workspaceId: shop
name: Orders
version: 0
active: yes
executionTier: HumanAprove
actions:
  - actionId: pay
    order: 1
    portFamily: payments
    operation: authorise
    dependson: [ship]
    retryPolicy: {maxAttempts: 12, retryableErrors: [rate-limit]}
    compensation: {compensationOperation: 'payment:void'}
  - actionId: ship
    order: 1
    portFamily: carrier
    operation: parcel:ship
    dependsOn: [pai, ship]
    timeoutMs: soon
    input: {to: '{{ workload.address }'}
  - actionId: pay
    order: 3
    portFamily: payments
    operation: payment:settle
";
    expect![[r#"
        error[NAME_INVALID]: the name `orders|eu` holds `|`
         --> t.yaml:2:13
          |
        2 | workflowId: orders|eu
          |             ^^^^^^^^^
          |
          = help: write a name such as `orders-eu`

        error[FIELD_VALUE]: `version` must be at least 1, but is 0
         --> t.yaml:5:10
          |
        5 | version: 0
          |          ^

        error[FIELD_TYPE]: `active` must be true or false, but is the text `yes`
         --> t.yaml:6:9
          |
        6 | active: yes
          |         ^^^
          |
          = help: write `true`, without quotes

        error[FIELD_VALUE]: `executionTier` must be `Auto`, `Assisted`, `HumanApprove` or `ManualOnly`, but is `HumanAprove`
         --> t.yaml:7:16
          |
        7 | executionTier: HumanAprove
          |                ^^^^^^^^^^^
          |
          = help: did you mean `HumanApprove`?

        error[OPERATION_INVALID]: `operation` must be `entity:verb`, but is `authorise`
          --> t.yaml:12:16
           |
        12 |     operation: authorise
           |                ^^^^^^^^^
           |
           = help: write what is acted on and what is done, such as `payment:authorise`

        error[FIELD_UNKNOWN]: `actions[0]` has no field `dependson`
          --> t.yaml:13:5
           |
        13 |     dependson: [ship]
           |     ^^^^^^^^^
           |
           = help: did you mean `dependsOn`?

        error[FIELD_VALUE]: `maxAttempts` must be from 1 to 10, but is 12
          --> t.yaml:14:32
           |
        14 |     retryPolicy: {maxAttempts: 12, retryableErrors: [rate-limit]}
           |                                ^^

        error[ERROR_CLASS_UNKNOWN]: `retryableErrors[0]` names no class of errors: `rate-limit`
          --> t.yaml:14:54
           |
        14 |     retryPolicy: {maxAttempts: 12, retryableErrors: [rate-limit]}
           |                                                      ^^^^^^^^^^
           |
           = help: did you mean `rate_limit`?

        error[COMPENSATION_INCOMPLETE]: a compensation needs `compensationInput`; it comes in a pair with `compensationOperation`
          --> t.yaml:15:19
           |
        15 |     compensation: {compensationOperation: 'payment:void'}
           |                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
           |
           = help: add `compensationInput: {}` if the operation needs no input

        error[ORDER_INVALID]: the order 1 is used twice; orders must be exactly 1 to 3
          --> t.yaml:17:12
           |
        17 |     order: 1
           |            ^
           |
           = help: 2 is free

        error[DEPENDENCY_UNKNOWN]: there is no action `pai`
          --> t.yaml:20:17
           |
        20 |     dependsOn: [pai, ship]
           |                 ^^^
           |
           = help: did you mean `pay`?

        error[DEPENDENCY_SELF]: `ship` depends on itself
          --> t.yaml:20:22
           |
        20 |     dependsOn: [pai, ship]
           |                      ^^^^
           |
           = help: remove it

        error[FIELD_DURATION]: `timeoutMs` is not a duration
          --> t.yaml:21:16
           |
        21 |     timeoutMs: soon
           |                ^^^^
           |
           = help: write a number of milliseconds, or one with a unit, such as "30s" or "1h30m"

        error[TEMPLATE_SYNTAX]: this template does not parse: `}` closes nothing
          --> t.yaml:22:17
           |
        22 |     input: {to: '{{ workload.address }'}
           |                 ^^^^^^^^^^^^^^^^^^^^^^^
           |
           = help: templates are Jinja: `{{ ctx.page | int + 1 }}`; write `{% raw %}{{{% endraw %}` for a literal `{{`

        error[NAME_DUPLICATE]: two actions have the id `pay`
          --> t.yaml:23:15
           |
        23 |   - actionId: pay
           |               ^^^
           |
           = help: give each action an id of its own
    "#]].assert_eq(&diagnosed(text, compile));
}

#[test]
fn cycles_are_shown_as_they_run() {
    let text = workflow(
        &(action("a", 1, "dependsOn: [c]")
            + &action("b", 2, "dependsOn: [a]")
            + &action("c", 3, "dependsOn: [b, b]")),
    );
    expect![[r#"
        error[DEPENDENCY_CYCLE]: these wait for each other: `a` → `c` → `b` → `a`
         --> t.yaml:9:72
          |
        9 | - {actionId: a, order: 1, portFamily: q, operation: 'a:b', dependsOn: [c]}
          |                                                                        ^
          |
          = help: remove one of these dependencies

        error[DEPENDENCY_DUPLICATE]: `c` depends on `b` twice
          --> t.yaml:11:75
           |
        11 | - {actionId: c, order: 3, portFamily: q, operation: 'a:b', dependsOn: [b, b]}
           |                                                                           ^
           |
           = help: keep one of the two
    "#]]
    .assert_eq(&diagnosed(&text, compile));
}

#[test]
fn hopeless_files_are_refused_and_do_not_panic() {
    for text in [
        "[]",
        "x",
        "actions: 5",
        "actions: []",
        "actions: [[], 5, {}]",
        "actions: [{order: x}]",
    ] {
        assert!(!reported(text, compile).is_empty(), "{text}");
    }
    assert_eq!(reported(&workflow("  []\n"), compile), ["FIELD_VALUE"]);
}

#[test]
fn reader_and_schema_agree() {
    let hook = "compensation: {compensationOperation: 'a:b'}";
    for (more, fine) in [
        ("", true),
        ("dependsOn: []", true),
        ("timeoutMs: 10s", true),
        ("timeoutMs: 1h 30m", true),
        ("timeoutMs: 5 minutes", false),
        ("timeoutMs: -5s", false),
        ("tool: {kind: noop}", true),
        ("tool: []", false),
        ("tool: {}", false),
        ("depends: []", false),
        ("retryPolicy: {maxAttempts: 0}", false),
        ("retryPolicy: {backoffMultiplier: 0.5}", false),
        ("completionMode: auto", false),
        ("executionTierOverride: Manual", false),
        (
            "separationOfDuties: [{distinctApprovers: 2, incompatibleDuties: [a]}]",
            false,
        ),
        (hook, false),
    ] {
        let text = workflow(&action("a", 1, more));
        assert_eq!(accepts(&schema(), &text), fine, "schema: {more}");
        assert_eq!(compiled(&text, compile).0.is_some(), fine, "reader: {more}");
    }
    let without = workflow(&action("a", 1, "")).replace("version: 2\n", "");
    assert!(!accepts(&schema(), &without) && compiled(&without, compile).0.is_none());
}

#[test]
fn the_language_is_told_by_its_own_keys() {
    assert!(detect(&node(&workflow(&action("a", 1, "")))));
    assert!(detect(&node("workflowId: w\nactions: []")));
    assert!(!detect(&node("apiVersion: x\nactions: [{actionId: a}]")));
    assert!(!detect(&node("steps: [{stepType: A}]")));
    assert!(!detect(&node("[1]")));
}

/// A state of a one-action workflow in this phase.
fn state(phase: Phase) -> (Plan, State) {
    let plan = Plan::new(net(&workflow(&action("a", 1, "")), compile)).expect("a plan");
    let state = fresh(&plan, |it| it["phase"] = json!(phase));
    (plan, state)
}

#[test]
fn every_state_of_a_run_has_a_word() {
    let word = |phase| words::run_word(&state(phase).1);
    assert_eq!(
        [Phase::Void, Phase::Created, Phase::Queued].map(word),
        ["Pending"; 3]
    );
    let running = [
        Phase::Running,
        Phase::Finalizing,
        Phase::Stopping,
        Phase::Compensating,
    ];
    assert_eq!(running.map(word), ["Running"; 4]);
    assert_eq!(word(Phase::Ended(RunOutcome::Succeeded)), "Succeeded");
    assert_eq!(
        word(Phase::Ended(RunOutcome::Failed(Rollback::Complete))),
        "Failed"
    );
    assert_eq!(
        word(Phase::Ended(RunOutcome::Cancelled(Rollback::None))),
        "Cancelled"
    );
    let (plan, running) = state(Phase::Running);
    let paused = edited(&plan, &running, |it| it["pause"] = pause());
    assert_eq!(words::run_word(&paused), "Paused");
    let (_, undone) = state(Phase::Ended(RunOutcome::Failed(Rollback::Incomplete)));
    assert_eq!(words::run_substatus(&undone), Some("PartiallyCompensated"));
}

/// The words of run and action while the action waits like this.
fn waiting(kind: WaitKind) -> (&'static str, &'static str) {
    let (plan, state) = state(Phase::Running);
    let state = edited(&plan, &state, |it| {
        let mut visit = visit(Status::Waiting);
        visit["run"]["wait"] = json!({ "kind": kind, "approvals": [] });
        it["tally"]["waits_outside"] = json!(1);
        it["open"] = json!([StepRef::first(StepNo(0))]);
        it["steps"][0]["visits"] = json!([visit]);
    });
    let at = StepRef::first(StepNo(0));
    (words::run_word(&state), words::step_word(&plan, &state, at))
}

#[test]
fn waiting_for_an_approval_is_not_waiting_for_a_completion() {
    assert_eq!(waiting(WaitKind::Gate), ("WaitingForApproval", "Pending"));
    assert_eq!(
        waiting(WaitKind::Manual),
        ("Running", "WaitingForManualCompletion")
    );
}

#[test]
fn every_state_of_an_action_has_a_word() {
    let word = |status: Status, started: bool| {
        let (plan, state) = state(Phase::Running);
        let state = edited(&plan, &state, |it| {
            let mut visit = visit(status);
            visit["run"]["started_at"] = json!(started.then_some(1));
            it["steps"][0]["visits"] = json!([visit]);
        });
        words::step_word(&plan, &state, StepRef::first(StepNo(0)))
    };
    let (plan, fresh) = state(Phase::Running);
    assert_eq!(
        words::step_word(&plan, &fresh, StepRef::first(StepNo(0))),
        "Pending"
    );
    for (status, started, expected) in [
        (Status::Arrived, false, "Pending"),
        (Status::Denied, false, "Pending"),
        (Status::Ready, false, "Pending"),
        (Status::Ready, true, "Running"),
        (Status::Running, true, "Running"),
        (Status::Looping, true, "Running"),
        (Status::Succeeded, true, "Succeeded"),
        (Status::Failed, true, "Failed"),
        (Status::Held, true, "Failed"),
        (Status::Skipped, false, "Cancelled"),
        (Status::Cancelled, true, "Cancelled"),
    ] {
        assert_eq!(word(status, started), expected, "{status:?}");
    }
}
