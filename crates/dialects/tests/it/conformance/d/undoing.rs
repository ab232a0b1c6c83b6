//! Timeouts of the run, compensation, cancels and telemetry.

use expect_test::expect;
use serde_json::json;
use stepwell_dialects::dag::telemetry::Telemetry;
use stepwell_kernel::command::{Command, ManualOutcome, Reply, Role, WaitFor};
use stepwell_kernel::effect::{RunOutcome, Target};
use stepwell_kernel::event::{Rollback, UndoOutcome};
use stepwell_kernel::plan::ErrorClass;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::{Phase, Status};

use super::{CHAIN, SAGA, compensating, emitted, gated, path, started, undone, word, words};
use crate::support::{RUN_ID, START, Sim, actor, code};

/// `a` and then `b`, with a minute for both and this policy. `b` may take an hour.
fn timed(policy: &str) -> Sim {
    let mut sim = started(&format!(
        "
  timeout: 1m
  failurePolicy: {policy}
  steps:
  - {{name: a, agent: x, action: do}}
  - {{name: b, agent: x, action: do, dependsOn: [a], timeout: 1h, onFailure: skip}}
  compensation: [{{step: a, agent: x, action: undo}}]
"
    ));
    sim.run("a").unwrap();
    sim.claim("b").unwrap();
    let (due, _) = sim.next_timer().unwrap();
    assert_eq!(due, START.plus(60_000));
    sim.advance_to_next_timer().unwrap();
    // The run timeout is the run's: `b` was told to stop, and its onFailure is not asked.
    assert_eq!(sim.phase(), Phase::Stopping);
    sim.confirm_kill("b").unwrap();
    sim
}

#[test]
fn d20_the_workflow_timeout_wins_over_the_steps_and_follows_the_failure_policy() {
    for policy in ["abort", "retry"] {
        let sim = timed(policy);
        assert_eq!(path(&sim), "idle queued executing failed", "{policy}");
        assert_eq!(undone(&sim), [""; 0]);
        assert_eq!(sim.state.error().unwrap().code, "RUN_TIMEOUT");
        assert_eq!(word(&sim, "b"), "skipped");
    }
    let mut sim = timed("compensate");
    assert_eq!(words(&sim), ("compensating", None));
    // While the run compensates there is no timeout any more.
    assert_eq!(sim.next_timer(), None);
    sim.advance(86_400_000).run_everything();
    assert_eq!(words(&sim), ("completed", Some("rollback")));
    assert_eq!(path(&sim), "idle queued executing compensating completed");
}

#[test]
fn d21_time_in_blocked_counts_against_the_workflow_timeout() {
    let mut sim = started(
        "
  timeout: 1h
  steps:
  - {name: a, agent: x, action: do}
  - {name: g, gate: approval, dependsOn: [a], timeout: 24h}
",
    );
    sim.advance(600_000).run("a").unwrap();
    assert_eq!(words(&sim), ("blocked", None));
    let (due, _) = sim.next_timer().unwrap();
    assert_eq!(
        due,
        START.plus(3_600_000),
        "blocked does not stop the clock"
    );
    sim.advance_to_next_timer().unwrap();
    assert_eq!(path(&sim), "idle queued executing blocked failed");
    assert_eq!(sim.state.error().unwrap().code, "RUN_TIMEOUT");
}

// also proves: D23
#[test]
fn d22_compensations_run_one_at_a_time_in_reverse_order_of_completion() {
    let mut sim = started(
        "
  steps:
  - {name: a, agent: x, action: do}
  - {name: b, agent: x, action: do}
  - {name: note, agent: x, action: do, onFailure: skip}
  - {name: busy, agent: x, action: do}
  - {name: bad, agent: x, action: do, dependsOn: [a, b, note], onFailure: compensate}
  - {name: never, agent: x, action: do, dependsOn: [bad]}
  compensation:
  - {step: a, agent: x, action: undo}
  - {step: b, agent: x, action: undo}
  - {step: note, agent: x, action: undo}
  - {step: busy, agent: x, action: undo}
  - {step: bad, agent: x, action: undo}
  - {step: never, agent: x, action: undo}
",
    );
    sim.claim("busy").unwrap();
    sim.run("b").unwrap();
    sim.run("a").unwrap();
    sim.run_failing("note", ErrorClass::Agent).unwrap();
    sim.run_failing("bad", ErrorClass::Agent).unwrap();
    assert_eq!(words(&sim), ("executing", None));
    // What was in flight and succeeds after the failure was completed last.
    sim.complete("busy").unwrap();
    assert_eq!(sim.ready(), ["busy"]);
    assert_eq!(code(sim.claim_undo("a")), Code::StepNotEligible);
    sim.claim_undo("busy").unwrap();
    assert!(sim.ready().is_empty(), "one at a time");
    sim.complete_undo("busy").unwrap();
    assert_eq!(sim.ready(), ["a"]);
    sim.run_everything();
    assert_eq!(undone(&sim), ["busy", "a", "b"]);
    assert_eq!(words(&sim), ("completed", Some("rollback")));
}

#[test]
fn d24_a_complete_rollback_ends_completed_and_is_marked() {
    let mut sim = compensating();
    sim.run_everything();
    assert_eq!(words(&sim), ("completed", Some("rollback")));
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::Complete)));
    assert_eq!(undone(&sim), ["b", "a"]);
    let last = emitted(&sim).pop().unwrap();
    assert_eq!(
        (last.name, last.substatus),
        ("workflow_completed", Some("rollback"))
    );
}

#[test]
fn d25_a_failed_compensation_ends_failed_and_stops_the_rest() {
    let mut sim = compensating();
    sim.claim_undo("b").unwrap();
    sim.fail_undo("b", ErrorClass::Validation).unwrap();
    assert_eq!(words(&sim), ("failed", Some("partial")));
    assert_eq!(path(&sim), "idle queued executing compensating failed");
    assert_eq!(undone(&sim), ["b"]);
    let outcomes: Vec<_> = sim.state.undos().iter().map(|it| it.outcome).collect();
    assert_eq!(outcomes, [UndoOutcome::Failed, UndoOutcome::NotRun]);
    assert_eq!(sim.count("CompensationStarted"), 1);
}

#[test]
fn d26_a_compensation_that_a_crash_interrupted_runs_again_under_the_same_key() {
    let key = |reply: Reply| match reply {
        Reply::Claimed(claimed) => claimed.idempotency_key,
        other => panic!("{other:?}"),
    };
    let mut sim = compensating();
    let first = key(sim.claim_undo("b").unwrap());
    assert_eq!(first, format!("{RUN_ID}:b:compensate"));
    sim.crash();
    assert_eq!(words(&sim), ("compensating", None));
    sim.advance(60_001);
    let lost = Command::ExpireLease {
        target: Target::Undo(sim.at("b")),
        execution: 1,
        lease_until: None,
        cause: Default::default(),
    };
    sim.send(lost).unwrap();
    let second = key(sim.claim_undo("b").unwrap());
    assert_eq!(second, first);
    sim.complete_undo("b").unwrap();
    sim.run_everything();
    assert_eq!(words(&sim), ("completed", Some("rollback")));
    assert_eq!(undone(&sim), ["b", "b", "a"]);
    let executions: Vec<_> = sim.state.undos().iter().map(|it| it.executions).collect();
    assert_eq!(executions, [2, 1]);
}

#[test]
fn d27_a_completed_step_without_a_compensation_is_passed_over() {
    let mut sim = started(
        "
  steps:
  - {name: a, agent: x, action: do}
  - {name: read, agent: x, action: do, dependsOn: [a]}
  - {name: c, agent: x, action: do, dependsOn: [read], onFailure: compensate}
  compensation: [{step: a, agent: x, action: undo}]
",
    );
    sim.run("a").unwrap();
    sim.run("read").unwrap();
    sim.run_failing("c", ErrorClass::Agent).unwrap();
    sim.run_everything();
    assert_eq!(undone(&sim), ["a"]);
    assert_eq!(words(&sim), ("completed", Some("rollback")));
}

#[test]
fn a_step_that_cannot_be_undone_makes_the_rollback_partial() {
    let mut sim = started(
        "
  steps:
  - {name: a, agent: x, action: do}
  - {name: mail, agent: x, action: do, dependsOn: [a], compensable: false}
  - {name: c, agent: x, action: do, dependsOn: [mail], onFailure: compensate}
  compensation: [{step: a, agent: x, action: undo}]
",
    );
    sim.run("a").unwrap();
    sim.run("mail").unwrap();
    sim.run_failing("c", ErrorClass::Agent).unwrap();
    sim.run_everything();
    assert_eq!(undone(&sim), ["a"]);
    assert_eq!(words(&sim), ("failed", Some("partial")));
}

#[test]
fn a_cancel_ends_failed_and_undoes_only_when_asked() {
    let mut plain = started(SAGA);
    plain.run("a").unwrap();
    plain.cancel().unwrap();
    assert_eq!(words(&plain), ("failed", Some("cancelled")));
    assert_eq!(undone(&plain), [""; 0]);

    let mut asked = started(SAGA);
    asked.run("a").unwrap();
    asked.run("b").unwrap();
    asked.cancel_with(true).unwrap();
    assert_eq!(words(&asked), ("compensating", None));
    asked.run_everything();
    assert_eq!(undone(&asked), ["b", "a"]);
    assert_eq!(words(&asked), ("failed", Some("cancelled")));
    assert_eq!(
        asked.outcome(),
        Some(RunOutcome::Cancelled(Rollback::Complete))
    );
}

#[test]
fn a_cancel_while_compensating_finishes_the_current_undo_only() {
    let mut sim = compensating();
    sim.claim_undo("b").unwrap();
    sim.cancel().unwrap();
    assert_eq!(words(&sim), ("compensating", None));
    sim.complete_undo("b").unwrap();
    assert_eq!(undone(&sim), ["b"]);
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Cancelled(Rollback::Incomplete))
    );
}

// also proves: D30
#[test]
fn telemetry_of_a_whole_run_names_every_change_once() {
    let mut sim = started(
        "
  steps:
  - {name: a, agent: x, action: do, retryPolicy: {maxRetries: 1, backoff: 1s}}
  - {name: note, agent: x, action: do, dependsOn: [a], onFailure: skip}
  - {name: g, gate: approval, dependsOn: [a], timeout: 24h, onFailure: compensate}
  compensation: [{step: a, agent: x, action: undo}]
",
    );
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    sim.advance(1_000).run("a").unwrap();
    sim.run_failing("note", ErrorClass::Agent).unwrap();
    sim.pause().unwrap();
    sim.resume().unwrap();
    sim.answer("g", ManualOutcome::Failed, "boss").unwrap();
    sim.run_everything();
    let line = |it: &Telemetry| {
        assert_eq!(it.correlation_id, RUN_ID);
        let step = it.step.as_deref().unwrap_or("run");
        let sub = it.substatus.map(|sub| format!(" ({sub})"));
        format!(
            "{} {step}: {} {}{}\n",
            it.name,
            it.from.unwrap_or("·"),
            it.to,
            sub.unwrap_or_default()
        )
    };
    let lines: String = emitted(&sim).iter().map(line).collect();
    expect![[r#"
        workflow_created run: · idle
        workflow_queued run: idle queued
        workflow_started run: queued executing
        workflow_step_started a: pending running
        workflow_step_completed a: running completed
        workflow_step_started g: pending running
        workflow_blocked run: executing blocked
        workflow_step_started note: pending running
        workflow_resumed run: blocked executing
        workflow_step_skipped note: running skipped
        workflow_blocked run: executing blocked
        workflow_paused run: blocked executing (paused)
        workflow_blocked run: executing blocked
        workflow_step_failed g: running failed
        workflow_resumed run: blocked executing
        workflow_compensating run: executing compensating
        workflow_completed run: compensating completed (rollback)
    "#]]
    .assert_eq(&lines);
}

#[test]
fn a_paused_run_is_executing_with_a_substatus() {
    let mut sim = started(CHAIN);
    sim.claim("a").unwrap();
    sim.pause().unwrap();
    assert_eq!(words(&sim), ("executing", Some("paused")));
    sim.complete("a").unwrap();
    assert_eq!(code(sim.claim("b")), Code::RunPaused);
    sim.resume().unwrap();
    assert_eq!(words(&sim), ("executing", None));
    sim.run("b").unwrap();
    assert_eq!(path(&sim), "idle queued executing completed");
}

#[test]
fn only_a_person_of_the_tenant_answers_a_gate() {
    let mut sim = gated("abort");
    let token = sim.token("g");
    let stranger = Command::CompleteManually {
        details: Default::default(),
        step: sim.at("g"),
        token: token.clone(),
        outcome: ManualOutcome::Succeeded,
        actor: stepwell_kernel::command::Actor {
            tenant: Some("another".into()),
            ..actor("boss", Role::Operator)
        },
        output: json!(null),
    };
    assert_eq!(code(sim.send(stranger)), Code::AuthzTenantForbidden);
    let wrong = sim.answer_with("g", "no-such-token", ManualOutcome::Succeeded, "boss");
    assert_eq!(code(wrong), Code::TokenMismatch);
    assert_eq!(words(&sim), ("blocked", None));
    assert_eq!(sim.status("g"), Some(Status::Waiting));
    assert_eq!(
        code(sim.wait("a", WaitFor::Manual, None)),
        Code::StepNotRunning
    );
}
