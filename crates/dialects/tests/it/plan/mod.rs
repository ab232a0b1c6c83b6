//! The language `plan`: what a definition decides of the contract, and its mistakes.

mod mistakes;
mod reference;
mod words;

use stepwell_dialects::plan::{compile, detect, schema};
use stepwell_kernel::plan::{
    Duty, ErrorClass, OnFailure, Plan, SideEffect, StepNo, UndoMode, WaitOn, Work,
};

use crate::definition;

/// A plan with these steps.
pub(crate) fn text(steps: &str) -> String {
    format!("metadata: {{planId: p, planVersion: '1', schemaVersion: v1.2}}\nsteps:\n{steps}")
}

/// The plan with these steps.
pub(crate) fn plan(steps: &str) -> Plan {
    definition::plan(compile, &text(steps))
}

fn codes(steps: &str) -> Vec<&'static str> {
    definition::codes(compile, &text(steps))
}

/// One step with these fields.
fn step(fields: &str) -> stepwell_kernel::plan::Step {
    plan(&format!("- {{stepId: s, {fields}}}\n"))
        .step(StepNo(0))
        .clone()
}

/// The edges as names.
fn edges(plan: &Plan) -> Vec<(&str, &str)> {
    let name = |no| plan.step(no).name.as_str();
    let edges = plan.net().edges.iter();
    edges.map(|edge| (name(edge.from), name(edge.to))).collect()
}

#[test]
fn examples_load_without_a_warning_and_fit_the_schema() {
    definition::check_examples("plan", compile, detect, &schema());
}

#[test]
fn a_plan_without_dependencies_is_strictly_sequential() {
    let plan = plan("- {stepId: a}\n- {stepId: b, dependsOn: []}\n- {stepId: c}\n");
    assert_eq!(edges(&plan), [("a", "b"), ("b", "c")]);
}

#[test]
fn a_plan_with_any_dependency_is_a_graph() {
    let plan = plan("- {stepId: a}\n- {stepId: b}\n- {stepId: c, dependsOn: [a]}\n");
    assert_eq!(edges(&plan), [("a", "c")]);
}

#[test]
fn a_list_that_asks_for_parallel_steps_is_warned_of() {
    let text = r#"{"metadata": {"planId": "p", "planVersion": "1.0.0", "schemaVersion": "v1.2",
        "targetAdapter": "mock", "fallbackBehavior": "reject",
        "requiresCapabilities": ["basic-execution", "workflow.fan.parallel"]},
        "steps": [{"stepId": "s1", "kind": "noop"}, {"stepId": "s2", "kind": "noop"}]}"#;
    let (net, problems, _) = definition::compiled(compile, text);
    assert_eq!(problems[0].code, "PLAN_SEQUENTIAL");
    assert_eq!(net.unwrap().edges.len(), 1);
}

#[test]
fn both_shapes_mean_the_same() {
    let new = "metadata: {planId: p, planVersion: '2', schemaVersion: v1.0}\nsteps: [{stepId: a, kind: x, config: {k: 1}}, {stepId: b, kind: y, dependsOn: [a]}]\n";
    let old = "planId: p\nversion: '2'\nsteps: [{stepId: a, type: x, input: {k: 1}}, {stepId: b, type: y, dependencies: [a]}]\n";
    let (new, old) = (
        definition::plan(compile, new),
        definition::plan(compile, old),
    );
    assert_eq!(
        (&new.net().steps, &new.net().edges),
        (&old.net().steps, &old.net().edges)
    );
    assert_eq!(
        (
            &new.net().plan_id,
            &new.net().plan_version,
            &new.net().schema_version
        ),
        (
            &old.net().plan_id,
            &old.net().plan_version,
            &old.net().schema_version
        )
    );
}

#[test]
fn shapes_that_contradict_each_other_are_refused() {
    let both = |id: &str| {
        let text = format!(
            "planId: {id}\nmetadata: {{planId: p, planVersion: '1', schemaVersion: v1.2}}\nsteps: [{{stepId: a}}]\n"
        );
        definition::codes(compile, &text)
    };
    assert_eq!(both("p"), Vec::<&str>::new());
    assert_eq!(both("q"), ["FIELD_CONFLICT"]);
    assert_eq!(
        codes("- {stepId: a, kind: x, type: y}\n"),
        ["FIELD_CONFLICT"]
    );
}

#[test]
fn schema_versions_of_the_first_major_are_read() {
    let codes = |version: &str| {
        let text = format!(
            "metadata: {{planId: p, planVersion: '1', schemaVersion: '{version}'}}\nsteps: [{{stepId: a}}]\n"
        );
        definition::codes(compile, &text)
    };
    for known in ["v1", "v1.0", "v1.2", "v1.99", "1.2", "v1.2.3"] {
        assert!(codes(known).is_empty(), "{known}");
    }
    for unknown in ["v2.0", "v10", "v1.x", "v1.", "latest", "v1.2.3.4", "vv1"] {
        assert_eq!(codes(unknown), ["PLAN_SCHEMA_VERSION_UNKNOWN"], "{unknown}");
    }
}

#[test]
fn a_kind_is_an_operation_and_noop_is_nothing() {
    let task = |fields| match step(fields).work {
        Work::Task {
            queue, operation, ..
        } => (queue, operation),
        work => panic!("{work:?}"),
    };
    let pair = |queue: &str, operation: &str| (queue.to_owned(), operation.to_owned());
    assert_eq!(
        task("kind: models.build, queue: models"),
        pair("models", "models.build")
    );
    assert_eq!(task("kind: shell"), pair("default", "shell"));
    assert_eq!(task("config: {}"), pair("default", "s"));
    assert!(
        matches!(step("kind: noop").work, Work::Pipeline { tasks } if tasks[0]["kind"] == "noop")
    );
}

#[test]
fn attempts_are_total_and_classes_are_those_that_may_pass() {
    let retry = step("retryPolicy: {maxAttempts: 3, backoff: 5s}").retry;
    assert_eq!(
        (retry.max_executions, retry.backoff.delay_ms(2, || 0)),
        (3, 5_000)
    );
    assert!(retry.covers(ErrorClass::Timeout) && retry.covers(ErrorClass::Unknown));
    assert!(!retry.covers(ErrorClass::Validation) && !retry.covers(ErrorClass::Rejected));
    assert_eq!(step("kind: x").retry.max_executions, 1);
}

#[test]
fn a_plan_may_wait_with_jitter_and_a_dag_may_not() {
    let retry = step("retryPolicy: {maxAttempts: 9, backoff: decorrelated, maxDelay: 20s}").retry;
    assert_eq!(retry.backoff.kind.name(), "decorrelated");
    let waits = |seed| (1..9).map(|n| retry.backoff.delay_ms(n, || seed)).collect();
    let (one, other): (Vec<u64>, Vec<u64>) = (waits(1), waits(2));
    assert_ne!(one, other);
    assert!(
        one.iter().all(|wait| (1_000..=20_000).contains(wait)),
        "{one:?}"
    );
    let offers = |schema: serde_json::Value| {
        let backoff = schema["$defs"]["backoff"].to_string();
        backoff.contains("decorrelated")
    };
    assert!(offers(stepwell_dialects::plan::schema()));
    assert!(!offers(stepwell_dialects::dag::schema()));
}

#[test]
fn failure_fails_the_run_or_holds_it() {
    assert_eq!(
        step("kind: x").on_failure,
        OnFailure::Stop { compensate: false }
    );
    let day = 24 * 3_600_000;
    assert_eq!(
        step("onStepFailure: hold").on_failure,
        OnFailure::Hold { timeout_ms: day }
    );
    let text = "metadata: {planId: p, planVersion: 1, schemaVersion: v1.2, onStepFailure: hold, holdTimeout: 2h}\nsteps: [{stepId: a}, {stepId: b, onStepFailure: fail}, {stepId: c, holdTimeout: 5m}]\n";
    let plan = definition::plan(compile, text);
    let answers: Vec<OnFailure> = plan.net().steps.iter().map(|it| it.on_failure).collect();
    let hold = |timeout_ms| OnFailure::Hold { timeout_ms };
    assert_eq!(
        answers,
        [
            hold(7_200_000),
            OnFailure::Stop { compensate: false },
            hold(300_000)
        ]
    );
}

#[test]
fn a_declared_compensation_is_run_when_a_step_fails() {
    let plan = plan("- {stepId: a, compensation: {kind: undo, config: {x: 1}}}\n- {stepId: b}\n");
    assert_eq!(
        plan.step(StepNo(1)).on_failure,
        OnFailure::Stop { compensate: true }
    );
    let first = plan.step(StepNo(0));
    assert_eq!(first.side_effect, SideEffect::Compensable);
    let undo = first.undo.clone().unwrap();
    assert_eq!(
        (undo.queue.as_str(), undo.operation.as_str()),
        ("default", "undo")
    );
    assert_eq!(plan.policy().undo_mode, UndoMode::Continue);
    assert!(plan.policy().timeout_compensates && plan.policy().skip_unreached);
}

#[test]
fn a_plan_can_demand_that_its_runs_are_approved() {
    let text = "planId: p\nplanVersion: '1'\nrequiresApproval: true\nsteps: [{stepId: a}]\n";
    assert!(definition::plan(compile, text).policy().needs_approval);
    assert!(!plan("- {stepId: a}\n").policy().needs_approval);
}

#[test]
fn an_approval_gates_the_work_or_is_the_work() {
    let gated = step("kind: deploy, approval: {timeout: 1h, approvers: 2, makerChecker: true}");
    assert!(matches!(gated.work, Work::Task { .. }));
    let gate = gated.gate.unwrap();
    assert_eq!(gate.deadline_ms, Some(3_600_000));
    assert_eq!(
        gate.duties,
        [Duty::DistinctApprovers { count: 2 }, Duty::MakerChecker]
    );

    let only = step("approval: true, timeout: 24h");
    let Work::Wait(wait) = &only.work else {
        panic!("{:?}", only.work)
    };
    assert_eq!(
        (&wait.on, wait.deadline_ms),
        (&WaitOn::Approval, Some(86_400_000))
    );
    assert!(only.gate.is_none() && only.timeout_ms.is_none());
    assert!(step("kind: x, approval: false").gate.is_none());
}

#[test]
fn a_step_can_wait_for_an_event_or_for_time() {
    let wait = |fields| match step(fields).work {
        Work::Wait(wait) => (wait.on, wait.deadline_ms),
        work => panic!("{work:?}"),
    };
    let event = || WaitOn::Event {
        event_type: "order.paid".to_owned(),
    };
    assert_eq!(
        wait("waitFor: order.paid, timeout: 1m"),
        (event(), Some(60_000))
    );
    assert_eq!(
        wait("waitFor: {event: order.paid, timeout: 2m}"),
        (event(), Some(120_000))
    );
    assert_eq!(
        wait("waitFor: {delay: 3s}"),
        (WaitOn::Timer { millis: 3_000 }, None)
    );
}

#[test]
fn secrets_written_out_are_warned_of() {
    let warned = |config: &str| codes(&format!("- {{stepId: s, config: {config}}}\n"));
    for bad in [
        "{password: hunter2}",
        "{db: {Api-Key: abc}}",
        "{list: [{client_secret: abc}]}",
        "{accessToken: abc}",
    ] {
        assert_eq!(warned(bad), ["PLAN_SECRET_VALUE"], "{bad}");
    }
    for good in [
        "{password: 'secret://db/loader'}",
        "{password: '${secret:db}'}",
        "{password: '{{ keychain.db.password }}'}",
        "{token: {secretRef: api}}",
        "{passwordRef: db, maxTokens: 5, secretName: x, token: ''}",
    ] {
        assert!(warned(good).is_empty(), "{good}");
    }
}

#[test]
fn capabilities_are_known_or_the_fallback_decides() {
    let codes = |fallback: &str, capability: &str| {
        let text = format!(
            "metadata: {{planId: p, planVersion: '1', schemaVersion: v1.2, fallbackBehavior: {fallback}, requiresCapabilities: [{capability}]}}\nsteps: [{{stepId: a}}]\n"
        );
        let (net, problems, _) = definition::compiled(compile, &text);
        let codes: Vec<_> = problems.iter().map(|problem| problem.code).collect();
        (net.is_some(), codes)
    };
    assert_eq!(codes("reject", "workflow.retry"), (true, vec![]));
    assert_eq!(
        codes("reject", "teleport"),
        (false, vec!["PLAN_CAPABILITY_UNSUPPORTED"])
    );
    assert_eq!(
        codes("emulate", "teleport"),
        (true, vec!["PLAN_CAPABILITY_UNSUPPORTED"])
    );
    assert_eq!(
        codes("degrade", "teleport"),
        (true, vec!["PLAN_CAPABILITY_UNSUPPORTED"])
    );
}

#[test]
fn detection_needs_only_an_id() {
    let says = |text: &str| detect(&crate::node(text));
    assert!(says("metadata: {planId: p}\n"));
    assert!(says("planId: p\n"));
    assert!(says("steps: [{stepId: a}]\n"));
    assert!(!says("apiVersion: ioa.dev/v0.2\nkind: Workflow\n"));
    assert!(!says("steps: [{name: a}]\n"));
    assert!(!says("7\n"));
}

#[test]
fn the_schema_accepts_and_refuses_what_the_reader_does() {
    let agree = |steps: &str, accepted| {
        definition::agree(compile, &schema(), &text(steps), accepted);
    };
    agree("- {stepId: a, kind: noop}\n", true);
    agree(
        "- {stepId: a, type: x, dependencies: [], input: 7, timeout: 10s}\n",
        true,
    );
    agree("- {stepId: a, approval: {approvers: 2}}\n", true);
    agree("- {stepId: a, waitFor: {event: e}}\n", true);
    agree("- {stepId: a, retryPolicy: {backoff: none}}\n", true);
    agree("- {stepId: a, colour: red}\n", false);
    agree("- {kind: noop}\n", false);
    agree("- {stepId: 'a#2'}\n", false);
    agree("- {stepId: a, timeout: 10}\n", false);
    agree("- {stepId: a, retryPolicy: {maxAttempts: 0}}\n", false);
    agree("- {stepId: a, onStepFailure: ignore}\n", false);
    agree("- {stepId: a, waitFor: {}}\n", false);
    agree("- {stepId: a, compensation: {}}\n", false);
    agree("- just text\n", false);
    let whole = |text: &str, accepted| definition::agree(compile, &schema(), text, accepted);
    whole("planId: p\nversion: 3\nsteps: [{stepId: a}]\n", true);
    whole(
        "$schema: x\nplanId: p\nversion: 3\ncolour: red\nsteps: [{stepId: a}]\n",
        true,
    );
    whole("planId: p\nversion: 3\nsteps: []\n", false);
}

#[test]
fn a_damaged_file_is_refused_or_sound() {
    definition::survives_damage("plan", compile);
}

#[test]
fn what_has_no_meaning_is_not_dropped_in_silence() {
    for fields in [
        "tool: {kind: noop}, kind: x",
        "tool: {kind: noop}, queue: q",
        "waitFor: e, kind: x",
        "waitFor: e, retryPolicy: {}",
        "approval: true, queue: q",
        "approval: true, retryPolicy: {}",
        "kind: noop, queue: q",
        "compensation: {tool: {kind: noop}, kind: x}",
    ] {
        let found = codes(&format!("- {{stepId: s, {fields}}}\n"));
        assert_eq!(found, ["INVALID_STEP_SCHEMA"], "{fields}");
    }
    assert_eq!(
        codes("- {stepId: s, holdTimeout: 5m}\n"),
        ["PLAN_HOLD_UNUSED"]
    );
}
