//! Evidence of `actions` runs: what is recorded, and what a verifier notices.

use std::sync::Arc;

use serde_json::json;
use stepwell_dialects::actions::compile;
use stepwell_dialects::actions::evidence::{
    EvidenceFault, EvidenceFinding, EvidenceKind, evidence, verify,
};
use stepwell_kernel::event::{
    Body, Event, Lease, Rollback, RunContext, StepError, SuccessKind, UndoOutcome, UndoResult,
};
use stepwell_kernel::plan::{ErrorClass, Plan, StepNo, StepRef};
use stepwell_kernel::time::Time;

use crate::net;

const TEXT: &str = "
schemaVersion: 1
workflowId: w
workspaceId: s
name: W
version: 1
active: true
executionTier: Auto
actions:
- {actionId: pay, order: 1, portFamily: q, operation: 'a:b', compensation: {compensationOperation: 'a:c', compensationInput: {}}}
- {actionId: ship, order: 2, portFamily: q, operation: 'a:d'}
";

fn plan() -> Plan {
    Plan::new(net(TEXT, compile)).expect("a plan")
}

fn at(step: u32) -> StepRef {
    StepRef::first(StepNo(step))
}

fn lease() -> Lease {
    Lease {
        worker: "w1".into(),
        until: Time(9_000),
    }
}

fn error(class: ErrorClass) -> StepError {
    StepError::new(class, "E", "it broke")
}

/// A log of these bodies, a second apart.
fn log(bodies: Vec<Body>) -> Vec<Event> {
    let event = |(seq, body)| Event {
        seq,
        at: Time(seq as i64 * 1000),
        body,
    };
    (1..).zip(bodies).map(event).collect()
}

fn created() -> Body {
    Body::RunCreated {
        plan_hash: String::new(),
        params: Arc::new(json!({})),
        context: RunContext {
            tenant_id: "acme".into(),
            triggered_by: Some("eva".into()),
            ..RunContext::default()
        },
        parent: None,
        original_run_id: None,
        start_after: None,
    }
}

fn started(step: u32) -> Body {
    Body::StepStarted {
        step: at(step),
        logical: 1,
        execution: 1,
        lease: Some(lease()),
        each: None,
    }
}

fn completed(step: u32, execution: u32) -> Body {
    Body::StepCompleted {
        step: at(step),
        logical: 1,
        execution,
        output: None,
        artifacts: vec![],
        ctx: Default::default(),
        routing: None,
        by: None,
    }
}

/// A run that pays at the second attempt, cannot ship, and pays back.
fn compensated() -> Vec<Event> {
    log(vec![
        created(),
        started(0),
        Body::StepExecutionFailed {
            step: at(0),
            logical: 1,
            execution: 1,
            error: error(ErrorClass::Timeout),
            retry_at: Time(0),
            loss: None,
        },
        Body::StepExecutionStarted {
            step: at(0),
            logical: 1,
            execution: 2,
            lease: lease(),
            task: Default::default(),
        },
        completed(0, 2),
        started(1),
        Body::StepFailed {
            step: at(1),
            logical: 1,
            execution: 1,
            error: error(ErrorClass::Validation),
            cancelled: false,
            unknown: false,
            by: None,
        },
        Body::CompensationStarted {
            undo: vec![at(0)],
            not_compensable: vec![],
        },
        Body::UndoStarted {
            step: at(0),
            execution: 1,
            lease: lease(),
        },
        Body::UndoCompleted {
            step: at(0),
            execution: 1,
        },
        Body::RunFailed {
            error: error(ErrorClass::Validation),
            rollback: Rollback::Complete,
            undos: vec![UndoResult {
                step: at(0),
                outcome: UndoOutcome::Done,
                executions: 1,
                attempts: 1,
                error: None,
            }],
        },
    ])
}

#[test]
fn every_attempt_and_terminal_transition_leaves_evidence() {
    let records = evidence(&plan(), "run_1", &compensated());
    let shown: Vec<String> = records
        .iter()
        .map(|it| {
            format!(
                "{:?} {} {} {:?} {} {}..{}",
                it.kind,
                it.action_id.as_deref().unwrap_or("-"),
                it.attempt,
                it.outcome,
                it.error_class.as_deref().unwrap_or("-"),
                &it.started_at_iso[17..19],
                &it.ended_at_iso[17..19],
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "Attempt pay 1 Failed timeout 02..03",
            "Attempt pay 2 Succeeded - 04..05",
            "Transition pay 2 Succeeded - 02..05",
            "Attempt ship 1 Failed validation 06..07",
            "Transition ship 1 Failed validation 06..07",
            "CompensationAttempt pay 1 Succeeded - 09..10",
            "Run - 0 Failed validation 01..11",
            "CompensationSummary - 0 Failed - 01..11",
        ]
    );
    let correlation = &records[0].correlation;
    assert_eq!(
        (
            correlation.tenant_id.as_str(),
            correlation.triggered_by.as_deref()
        ),
        ("acme", Some("eva"))
    );
    assert_eq!(correlation.actor.as_deref(), Some("w1"));
    // The key is the same for both attempts of an action.
    assert_eq!(
        correlation.idempotency_key,
        records[1].correlation.idempotency_key
    );
    assert_eq!(
        records[5].correlation.idempotency_key.as_deref(),
        Some("run_1:pay:compensate")
    );
}

#[test]
fn the_evidence_of_a_compensated_run_ends_with_a_summary() {
    let records = evidence(&plan(), "run_1", &compensated());
    let last = records.last().expect("records");
    assert_eq!(last.kind, EvidenceKind::CompensationSummary);
    let summary = serde_json::to_value(&last.compensation).expect("JSON");
    let expected = json!({
        "rollback": "complete",
        "actions": [{"actionId": "pay", "outcome": "done", "attempts": 1, "executions": 1}],
    });
    assert_eq!(summary, expected);
}

#[test]
fn a_run_that_was_not_compensated_has_no_summary() {
    let bodies = vec![
        created(),
        started(0),
        completed(0, 1),
        Body::RunCompleted {
            success: SuccessKind::Full,
        },
    ];
    let records = evidence(&plan(), "run_1", &log(bodies));
    let kinds: Vec<EvidenceKind> = records.iter().map(|it| it.kind).collect();
    assert_eq!(
        kinds,
        [
            EvidenceKind::Attempt,
            EvidenceKind::Transition,
            EvidenceKind::Run
        ]
    );
}

#[test]
fn the_chain_of_a_log_is_always_the_same_and_sound() {
    let records = evidence(&plan(), "run_1", &compensated());
    assert_eq!(records, evidence(&plan(), "run_1", &compensated()));
    assert_eq!(verify(&records), []);
    assert_eq!(records[0].previous_hash, None);
    let json = serde_json::to_string(&records).expect("JSON");
    let back: Vec<_> = serde_json::from_str(&json).expect("evidence");
    assert_eq!(verify(&back), []);
}

#[test]
fn a_signature_does_not_change_the_hash() {
    let mut records = evidence(&plan(), "run_1", &compensated());
    records[2].signature = Some("signed".into());
    assert_eq!(verify(&records), []);
}

fn found(index: usize, fault: EvidenceFault) -> EvidenceFinding {
    EvidenceFinding { index, fault }
}

#[test]
fn a_changed_record_is_a_hash_mismatch() {
    let mut records = evidence(&plan(), "run_1", &compensated());
    records[1].attempt = 7;
    assert_eq!(verify(&records), [found(1, EvidenceFault::HashMismatch)]);
    assert_eq!(
        serde_json::to_value(EvidenceFault::HashMismatch).expect("JSON"),
        "hash_mismatch"
    );
}

#[test]
fn a_missing_record_is_a_chain_break() {
    let mut records = evidence(&plan(), "run_1", &compensated());
    records.remove(2);
    assert_eq!(verify(&records), [found(2, EvidenceFault::ChainBreak)]);
    records.remove(0);
    assert_eq!(verify(&records)[0], found(0, EvidenceFault::ChainBreak));
}

#[test]
fn time_that_runs_backwards_is_noticed() {
    let mut events = compensated();
    events[6].at = Time(500);
    let faults: Vec<EvidenceFinding> = verify(&evidence(&plan(), "run_1", &events));
    assert!(
        faults.contains(&found(3, EvidenceFault::TimestampNotMonotonic)),
        "{faults:?}"
    );
}

#[test]
fn events_about_steps_that_do_not_exist_are_passed_over() {
    assert!(
        evidence(
            &plan(),
            "run_1",
            &log(vec![created(), started(99), completed(99, 1)])
        )
        .is_empty()
    );
}
