//! Telemetry: exactly one event for each change of state, in the language's words.

use std::sync::Arc;

use expect_test::{Expect, expect};
use serde_json::json;
use stepwell_dialects::dag::telemetry::telemetry;
use stepwell_kernel::event::{
    Body, Event, Lease, Rollback, RunContext, SkipReason, StepError, StopCause, SuccessKind,
    WaitKind,
};
use stepwell_kernel::plan::{ErrorClass, Plan, StepNo, StepRef};
use stepwell_kernel::time::Time;

fn log(bodies: Vec<Body>) -> Vec<Event> {
    let numbered = bodies.into_iter().zip(1..);
    let event = |(body, seq): (Body, u64)| Event {
        seq,
        at: Time(1_000),
        body,
    };
    numbered.map(event).collect()
}

fn check(plan: &Plan, bodies: Vec<Body>, expected: Expect) {
    let emitted = telemetry(plan, "run_1", &log(bodies)).expect("a log");
    assert!(emitted.iter().all(|it| it.correlation_id == "run_1"));
    let lines: Vec<String> = emitted
        .iter()
        .map(|it| {
            let step = it.step.as_ref().map(|step| format!(" {step}"));
            let sub = it.substatus.map(|sub| format!(" ({sub})"));
            format!(
                "{} {}{}: {} → {}{}",
                it.seq,
                it.name,
                step.unwrap_or_default(),
                it.from.unwrap_or("·"),
                it.to,
                sub.unwrap_or_default()
            )
        })
        .collect();
    expected.assert_eq(&(lines.join("\n") + "\n"));
}

fn at(no: u32) -> StepRef {
    StepRef::first(StepNo(no))
}

fn begun(plan: &Plan) -> Vec<Body> {
    vec![
        Body::RunCreated {
            plan_hash: plan.hash().to_owned(),
            params: Arc::new(json!({})),
            context: RunContext::default(),
            parent: None,
            original_run_id: None,
            start_after: None,
        },
        Body::RunQueued {},
        Body::RunApproved {
            by: None,
            reason: None,
        },
        Body::RunStarted {
            engine: "native".to_owned(),
            engine_run_ref: "1".to_owned(),
            entry: Default::default(),
            deadline: None,
        },
    ]
}

fn started(no: u32, leased: bool) -> Body {
    Body::StepStarted {
        step: at(no),
        logical: 1,
        execution: 1,
        lease: leased.then(|| Lease {
            worker: "w".to_owned(),
            until: Time(60_000),
        }),
        each: None,
    }
}

fn completed(no: u32) -> Body {
    Body::StepCompleted {
        step: at(no),
        logical: 1,
        execution: 1,
        output: None,
        artifacts: Vec::new(),
        ctx: Default::default(),
        routing: None,
        by: None,
    }
}

fn failed(no: u32, class: ErrorClass) -> Body {
    Body::StepFailed {
        step: at(no),
        logical: 1,
        execution: 1,
        error: StepError::new(class, "E", "it failed"),
        cancelled: false,
        unknown: false,
        by: None,
    }
}

fn waiting(no: u32) -> Body {
    Body::StepWaiting {
        step: at(no),
        logical: 1,
        execution: 1,
        wait: WaitKind::Approval,
        deadline: None,
        token_hash: None,
        outbound: Vec::new(),
        memo: None,
    }
}

fn run_failed() -> Body {
    Body::RunFailed {
        error: StepError::new(ErrorClass::Unknown, "E", "it failed"),
        rollback: Rollback::None,
        undos: Vec::new(),
    }
}

#[test]
fn d30_every_change_of_state_emits_one_event() {
    let plan = super::plan(
        "  steps:\n  - {name: a, agent: x, action: y}\n  - {name: note, agent: x, action: y, dependsOn: [a], onFailure: skip}\n",
    );
    let mut log = begun(&plan);
    log.extend([
        started(0, true),
        Body::RunPaused {
            ordinal: 1,
            drain_deadline: None,
        },
        completed(0),
        Body::RunResumed { ordinal: 1 },
        started(1, true),
        failed(1, ErrorClass::Agent),
        Body::StepSkipped {
            step: at(1),
            logical: 2,
            reason: SkipReason::OnFailure,
        },
        Body::RunCompleted {
            success: SuccessKind::Full,
        },
    ]);
    check(
        &plan,
        log,
        expect![[r#"
        1 workflow_created: · → idle
        2 workflow_queued: idle → queued
        4 workflow_started: queued → executing
        5 workflow_step_started a: pending → running
        6 workflow_paused: executing → executing (paused)
        7 workflow_step_completed a: running → completed
        8 workflow_resumed: executing → executing
        9 workflow_step_started note: pending → running
        10 workflow_step_skipped note: running → skipped
        12 workflow_completed: executing → completed
    "#]],
    );
}

#[test]
fn a_gate_that_runs_out_under_abort_goes_from_blocked_to_failed() {
    let plan = super::plan("  steps: [{name: g, gate: approval, timeout: 1h, onFailure: abort}]\n");
    let mut log = begun(&plan);
    log.extend([
        started(0, false),
        waiting(0),
        failed(0, ErrorClass::Timeout),
        Body::RunStopping {
            cause: StopCause::StepFailed { step: at(0) },
            compensate: false,
        },
        run_failed(),
    ]);
    check(
        &plan,
        log,
        expect![[r#"
        1 workflow_created: · → idle
        2 workflow_queued: idle → queued
        4 workflow_started: queued → executing
        5 workflow_step_started g: pending → running
        6 workflow_blocked: executing → blocked
        7 workflow_step_failed g: running → failed
        9 workflow_failed: blocked → failed
    "#]],
    );
}

#[test]
fn a_rejection_returns_the_run_to_executing() {
    let plan = super::plan("  steps: [{name: g, gate: approval, timeout: 1h, onFailure: abort}]\n");
    let mut log = begun(&plan);
    log.extend([
        started(0, false),
        waiting(0),
        failed(0, ErrorClass::Rejected),
        Body::RunStopping {
            cause: StopCause::StepFailed { step: at(0) },
            compensate: false,
        },
        run_failed(),
    ]);
    check(
        &plan,
        log,
        expect![[r#"
        1 workflow_created: · → idle
        2 workflow_queued: idle → queued
        4 workflow_started: queued → executing
        5 workflow_step_started g: pending → running
        6 workflow_blocked: executing → blocked
        7 workflow_step_failed g: running → failed
        7 workflow_resumed: blocked → executing
        9 workflow_failed: executing → failed
    "#]],
    );
}

#[test]
fn a_gate_that_runs_out_under_compensate_passes_through_executing() {
    let plan = super::plan(
        "  steps:\n  - {name: a, agent: x, action: y}\n  - {name: g, gate: approval, dependsOn: [a], timeout: 1h, onFailure: compensate}\n  compensation: [{step: a, agent: x, action: undo}]\n",
    );
    let mut log = begun(&plan);
    log.extend([
        started(0, true),
        completed(0),
        started(1, false),
        waiting(1),
        failed(1, ErrorClass::Timeout),
        Body::RunStopping {
            cause: StopCause::StepFailed { step: at(1) },
            compensate: true,
        },
        Body::CompensationStarted {
            undo: vec![at(0)],
            not_compensable: Vec::new(),
        },
        Body::UndoStarted {
            step: at(0),
            execution: 1,
            lease: Lease {
                worker: "w".to_owned(),
                until: Time(60_000),
            },
        },
        Body::UndoCompleted {
            step: at(0),
            execution: 1,
        },
        Body::RunFailed {
            error: StepError::new(ErrorClass::Timeout, "E", "it failed"),
            rollback: Rollback::Complete,
            undos: Vec::new(),
        },
    ]);
    check(
        &plan,
        log,
        expect![[r#"
        1 workflow_created: · → idle
        2 workflow_queued: idle → queued
        4 workflow_started: queued → executing
        5 workflow_step_started a: pending → running
        6 workflow_step_completed a: running → completed
        7 workflow_step_started g: pending → running
        8 workflow_blocked: executing → blocked
        9 workflow_step_failed g: running → failed
        9 workflow_resumed: blocked → executing
        11 workflow_compensating: executing → compensating
        14 workflow_completed: compensating → completed (rollback)
    "#]],
    );
}
