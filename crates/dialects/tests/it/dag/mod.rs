//! The language `dag`: its statements of conformance that a definition decides, and its mistakes.

mod mistakes;
mod telemetry;
mod words;

use stepwell_dialects::dag::{compile, detect, schema};
use stepwell_kernel::plan::{
    BackoffKind, ErrorClass, Join, OnFailure, Plan, Route, SideEffect, StepNo, UndoMode, WaitOn,
    Work,
};

use crate::definition;

/// A workflow with this below `spec`, which gets a timeout so that nothing is warned of.
pub(crate) fn workflow(spec: &str) -> String {
    format!(
        "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n  timeout: 1h\n{spec}"
    )
}

/// The plan of such a workflow.
pub(crate) fn plan(spec: &str) -> Plan {
    definition::plan(compile, &workflow(spec))
}

fn codes(spec: &str) -> Vec<&'static str> {
    definition::codes(compile, &workflow(spec))
}

/// One step `s` with these fields.
fn step(fields: &str) -> stepwell_kernel::plan::Step {
    let plan = plan(&format!(
        "  steps:\n  - {{name: s, agent: a, action: do, {fields}}}\n"
    ));
    plan.step(StepNo(0)).clone()
}

#[test]
fn examples_load_without_a_warning_and_fit_the_schema() {
    definition::check_examples("dag", compile, detect, &schema());
}

#[test]
fn a_step_is_a_task_for_its_agent() {
    let plan =
        plan("  steps:\n  - {name: s, agent: crm, action: account:create, input: {id: 7}}\n");
    let step = plan.step(StepNo(0));
    assert_eq!((step.join, step.route), (Join::All, Route::Edges));
    assert_eq!(step.input["id"], 7);
    let Work::Task {
        queue, operation, ..
    } = &step.work
    else {
        panic!("{:?}", step.work)
    };
    assert_eq!(
        (queue.as_str(), operation.as_str()),
        ("crm", "account:create")
    );
}

#[test]
fn every_run_must_queue() {
    assert!(
        plan("  steps:\n  - {name: s, agent: a, action: b}\n")
            .policy()
            .must_queue
    );
}

#[test]
fn a_gate_waits_for_a_person_and_keeps_its_on_failure() {
    let plan = plan(
        "  steps:\n  - {name: g, gate: approval, agent: boss, timeout: 24h, onFailure: compensate}\n  compensation: [{step: g, agent: a, action: undo}]\n",
    );
    let gate = plan.step(StepNo(0));
    let Work::Wait(wait) = &gate.work else {
        panic!("{:?}", gate.work)
    };
    assert_eq!(
        (&wait.on, wait.deadline_ms),
        (&WaitOn::Approval, Some(86_400_000))
    );
    assert_eq!(gate.timeout_ms, None);
    assert_eq!(gate.on_failure, OnFailure::Stop { compensate: true });
    assert_eq!(plan.net().extra["approvers"]["g"], "boss");
}

#[test]
fn the_steps_own_word_wins_over_the_failure_policy() {
    let answers = |policy: &str, step: &str| {
        let spec = format!(
            "{policy}  steps:\n  - {{name: s, agent: a, action: b, {step} retryPolicy: {{}}}}\n  compensation: [{{step: s, agent: a, action: undo}}]\n"
        );
        plan(&spec).step(StepNo(0)).on_failure
    };
    let stop = |compensate| OnFailure::Stop { compensate };
    assert_eq!(answers("", ""), stop(false));
    assert_eq!(answers("  failurePolicy: abort\n", ""), stop(false));
    assert_eq!(answers("  failurePolicy: retry\n", ""), stop(false));
    assert_eq!(answers("  failurePolicy: compensate\n", ""), stop(true));
    assert_eq!(
        answers("  failurePolicy: compensate\n", "onFailure: abort,"),
        stop(false)
    );
    assert_eq!(
        answers("  failurePolicy: abort\n", "onFailure: compensate,"),
        stop(true)
    );
    assert_eq!(
        answers("  failurePolicy: compensate\n", "onFailure: skip,"),
        OnFailure::Skip
    );
}

#[test]
fn timeouts_validation_and_governance_are_never_retried() {
    let retry = step("retryPolicy: {maxRetries: 3, retryOn: [agent, external, unknown]}").retry;
    for class in [
        ErrorClass::Timeout,
        ErrorClass::Validation,
        ErrorClass::Governance,
    ] {
        assert!(!retry.covers(class), "{}", class.name());
    }
    for word in ["timeout", "validation", "governance"] {
        let steps = format!(
            "  steps:\n  - {{name: s, agent: a, action: b, retryPolicy: {{retryOn: [{word}]}}}}\n"
        );
        assert_eq!(codes(&steps), ["FIELD_VALUE"]);
    }
}

#[test]
fn agent_and_external_errors_are_retried_only_if_configured() {
    let plain = step("retryPolicy: {maxRetries: 1}").retry;
    for class in [
        ErrorClass::Transient,
        ErrorClass::Transport,
        ErrorClass::RateLimit,
    ] {
        assert!(plain.covers(class), "{}", class.name());
    }
    for class in [ErrorClass::Agent, ErrorClass::External, ErrorClass::Unknown] {
        assert!(!plain.covers(class), "{}", class.name());
    }
    let more = step("retryPolicy: {maxRetries: 1, retryOn: [agent, external]}").retry;
    assert!(more.covers(ErrorClass::Agent) && more.covers(ErrorClass::External));
    let silent = step("").retry;
    assert!(silent.covers(ErrorClass::Transient) && !silent.covers(ErrorClass::Agent));
}

#[test]
fn three_retries_are_four_executions() {
    assert_eq!(step("retryPolicy: {maxRetries: 3}").retry.max_executions, 4);
    assert_eq!(step("retryPolicy: {}").retry.max_executions, 4);
    assert_eq!(step("retryPolicy: {maxRetries: 0}").retry.max_executions, 1);
    assert_eq!(step("").retry.max_executions, 4);
}

#[test]
fn d19_delays_follow_the_strategy_and_the_cap() {
    let delays = |fields: &str| {
        let backoff = step(&format!("retryPolicy: {{{fields}}}")).retry.backoff;
        (1..=4)
            .map(|n| backoff.delay_ms(n, || 0))
            .collect::<Vec<_>>()
    };
    assert_eq!(delays("backoff: constant, initialDelay: 5s"), [5_000; 4]);
    assert_eq!(
        delays("backoff: linear, initialDelay: 5s"),
        [5_000, 10_000, 15_000, 20_000]
    );
    assert_eq!(delays("backoff: exponential"), [1_000, 2_000, 4_000, 8_000]);
    assert_eq!(delays("maxDelay: 3s"), [1_000, 2_000, 3_000, 3_000]);
    assert_eq!(delays("backoff: 30s"), [30_000; 4]);
    assert_eq!(delays("backoff: 5m"), [300_000; 4]);
    assert_eq!(delays("initialDelay: 2m, backoff: linear"), [120_000; 4]);
    assert_eq!(
        step("retryPolicy: {backoff: 30s}").retry.backoff.kind,
        BackoffKind::Constant
    );
}

#[test]
fn a_run_timeout_follows_the_failure_policy() {
    let run = |policy: &str| {
        let spec = format!(
            "  failurePolicy: {policy}\n  steps:\n  - {{name: s, agent: a, action: b, retryPolicy: {{}}}}\n  compensation: [{{step: s, agent: a, action: undo}}]\n"
        );
        let plan = plan(&spec);
        (plan.policy().timeout_ms, plan.policy().timeout_compensates)
    };
    assert_eq!(run("compensate"), (Some(3_600_000), true));
    assert_eq!(run("abort"), (Some(3_600_000), false));
    assert_eq!(run("retry"), (Some(3_600_000), false));
}

#[test]
fn a_failed_compensation_stops_the_rest() {
    let plan = plan(
        "  steps:\n  - {name: s, agent: a, action: b}\n  compensation:\n  - {step: s, agent: u, action: undo, input: {x: 1}, timeout: 5s}\n",
    );
    assert_eq!(plan.policy().undo_mode, UndoMode::Stop);
    let undo = plan.step(StepNo(0)).undo.clone().unwrap();
    assert_eq!(
        (undo.queue.as_str(), undo.operation.as_str()),
        ("u", "undo")
    );
    assert_eq!(
        (undo.timeout_ms, undo.retry.max_executions),
        (Some(5_000), 3)
    );
    assert!(undo.retry.covers(ErrorClass::LeaseLost) && !undo.retry.covers(ErrorClass::Agent));
}

#[test]
fn a_step_without_a_compensation_is_passed_over() {
    assert_eq!(step("").side_effect, SideEffect::Unknown);
    assert_eq!(
        step("compensable: false").side_effect,
        SideEffect::Irreversible
    );
    assert!(step("").undo.is_none());
}

#[test]
fn steps_with_the_same_dependency_run_side_by_side() {
    let plan = plan(
        "  steps:\n  - {name: a, agent: x, action: y}\n  - {name: b, agent: x, action: y, dependsOn: [a]}\n  - {name: c, agent: x, action: y, dependsOn: a}\n  - {name: d, agent: x, action: y, dependsOn: [b, c]}\n",
    );
    let incoming = |name| plan.incoming(plan.find(name).unwrap()).len();
    assert_eq!(["a", "b", "c", "d"].map(incoming), [0, 1, 1, 2]);
}

#[test]
fn d29_cycles_unknown_names_missing_roots_and_unreachable_steps_are_refused() {
    let steps = |list: &[(&str, &str)]| {
        let mut spec = "  steps:\n".to_owned();
        for (name, needs) in list {
            spec += &format!("  - {{name: {name}, agent: a, action: b, dependsOn: [{needs}]}}\n");
        }
        codes(&spec)
    };
    assert_eq!(steps(&[("a", ""), ("b", "b")]), ["DAG_CYCLE"]);
    assert_eq!(steps(&[("r", ""), ("a", "b"), ("b", "a")]), ["DAG_CYCLE"]);
    assert_eq!(
        steps(&[("r", ""), ("a", "r, b"), ("b", "a")]),
        ["DAG_CYCLE"]
    );
    assert_eq!(
        steps(&[("a", "b"), ("b", "a")]),
        ["DAG_NO_ROOT", "DAG_CYCLE"]
    );
    assert_eq!(steps(&[("a", ""), ("b", "zzz")]), ["DAG_STEP_UNKNOWN"]);
    assert_eq!(
        steps(&[("r", ""), ("a", "a"), ("late", "a")]),
        ["DAG_CYCLE", "DAG_UNREACHABLE"]
    );
}

#[test]
fn a_tool_is_run_by_the_built_in_worker_also_as_an_undo() {
    let plan = plan(
        "  steps:\n  - {name: s, tool: {kind: noop}}\n  compensation:\n  - {step: s, tool: {kind: noop}}\n",
    );
    let step = plan.step(StepNo(0));
    assert!(matches!(&step.work, Work::Pipeline { tasks } if tasks[0]["kind"] == "noop"));
    let undo = step.undo.clone().unwrap();
    assert_eq!(
        (undo.queue.as_str(), undo.operation.as_str()),
        ("builtin", "pipeline")
    );
    assert_eq!(undo.tasks[0]["kind"], "noop");
}

#[test]
fn metadata_and_trigger_travel_with_the_plan() {
    let text = "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: w, version: 7, owner: me, labels: {a: 1}}\nspec:\n  timeout: 1h\n  trigger: {schedule: '@daily'}\n  steps: [{name: s, agent: a, action: b}]\n";
    let plan = definition::plan(compile, text);
    assert_eq!(plan.net().plan_version, "7");
    assert_eq!(plan.net().extra["metadata"]["labels"]["a"], "1");
    assert_eq!(plan.net().extra["trigger"]["schedule"], "@daily");
}

#[test]
fn detection_needs_only_the_head_of_the_file() {
    let says = |text: &str| detect(&crate::node(text));
    assert!(says("apiVersion: ioa.dev/v0.2\nkind: Workflow\nspec: 7\n"));
    assert!(says("apiVersion: ioa.dev/v9\n"));
    assert!(says("kind: Workflow\nspec: {}\n"));
    assert!(!says("apiVersion: noetl.io/v2\nkind: Playbook\n"));
    assert!(!says("metadata: {planId: p}\nsteps: []\n"));
    assert!(!says("- 1\n"));
}

#[test]
fn the_schema_accepts_and_refuses_what_the_reader_does() {
    let agree = |spec: &str, accepted| {
        definition::agree(compile, &schema(), &workflow(spec), accepted);
    };
    agree("  steps: [{name: s, agent: a, action: b}]\n", true);
    agree(
        "  steps: [{name: s, agent: a, action: b, timeout: PT5M, dependsOn: []}]\n",
        true,
    );
    agree(
        "  steps: [{name: s, agent: a, action: b, colour: red}]\n",
        false,
    );
    agree("  steps: [{name: s, agent: a}]\n", false);
    agree("  steps: [{name: 's|t', agent: a, action: b}]\n", false);
    agree(
        "  steps: [{name: s, agent: a, action: b, timeout: 5}]\n",
        false,
    );
    agree(
        "  steps: [{name: s, agent: a, action: b, retryPolicy: {maxRetries: -1}}]\n",
        false,
    );
    agree(
        "  steps: [{name: s, gate: approval, tool: {kind: noop}}]\n",
        false,
    );
    agree("  steps: []\n", false);
    agree(
        "  steps: [{name: s, agent: a, action: b}]\n  trigger: {}\n",
        false,
    );
    agree(
        "  steps: [{name: s, agent: a, action: b}]\n  compensation: [{step: s}]\n",
        false,
    );
}

#[test]
fn a_damaged_file_is_refused_or_sound() {
    definition::survives_damage("dag", compile);
}

#[test]
fn agents_beside_tools_are_kept() {
    let plan = plan("  steps: [{name: s, agent: me, action: look, tool: {kind: noop}}]\n");
    assert_eq!(plan.net().extra["agents"]["s"], "me");
    assert_eq!(plan.step(StepNo(0)).description.as_deref(), Some("look"));
}
