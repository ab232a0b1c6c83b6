//! People: tokens, answers and deadlines of steps that wait for someone.

use stepwell_kernel::command::{EarlierResult, ManualOutcome, Reply, TimerKind, WaitFor};
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::{Body, Rollback};
use stepwell_kernel::keys::{self, TokenKey};
use stepwell_kernel::plan::{Completion, Duty, ErrorClass, Gate, OnFailure, Step, WaitOn};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::Status;

use crate::support::{Sim, chain, code, retried, task, waits};

fn by_hand(name: &str) -> Step {
    Step {
        completion: Completion::Manual,
        timeout_ms: Some(1_000),
        ..retried(name, 5)
    }
}

fn gated(name: &str) -> Step {
    let gate = Gate {
        duties: Vec::new(),
        deadline_ms: None,
    };
    Step {
        gate: Some(gate),
        ..task(name)
    }
}

#[test]
fn the_token_is_made_from_run_step_and_execution_and_only_its_hash_is_logged() {
    let mut sim = Sim::started(chain(vec![by_hand("a")]));
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    sim.run("a").unwrap();
    let token = sim.token("a");
    assert_eq!(
        token,
        keys::completion_token(&sim.env.key, "run_sim", "a", 2)
    );
    let Some(Body::StepWaiting { token_hash, .. }) = sim.last() else {
        panic!("{:?}", sim.last());
    };
    assert_eq!(
        token_hash.as_deref(),
        Some(keys::sha256_hex(&token).as_str())
    );
    let log = serde_json::to_string(sim.events()).unwrap();
    assert!(!log.contains(&token));
    // Each part, and the secret, makes another.
    let others = [
        keys::completion_token(&sim.env.key, "run_other", "a", 2),
        keys::completion_token(&sim.env.key, "run_sim", "b", 2),
        keys::completion_token(&sim.env.key, "run_sim", "a", 1),
        keys::completion_token(&TokenKey([8; 32]), "run_sim", "a", 2),
    ];
    for other in others {
        let answer = sim.answer_with("a", &other, ManualOutcome::Succeeded, "someone");
        assert_eq!(code(answer), Code::TokenMismatch);
    }
}

#[test]
fn the_attempt_timeout_stops_when_the_step_starts_to_wait() {
    for handed_over in [true, false] {
        let mut sim = Sim::started(chain(vec![by_hand("a")]));
        sim.claim("a").unwrap();
        assert_eq!(sim.next_timer().unwrap().1.kind, TimerKind::Attempt);
        sim.advance(999);
        if handed_over {
            sim.wait("a", WaitFor::Manual, None).unwrap();
        } else {
            sim.complete("a").unwrap();
        }
        assert_eq!(sim.next_timer(), None);
        sim.advance(1_000_000);
        sim.answer("a", ManualOutcome::Succeeded, "someone")
            .unwrap();
        assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
    }
}

#[test]
fn a_manual_failure_is_a_failure_without_retry() {
    let steps = [
        by_hand("a"),
        Step {
            retry: retried("a", 5).retry,
            ..waits("a", WaitOn::Manual, None)
        },
        Step {
            retry: retried("a", 5).retry,
            ..gated("a")
        },
    ];
    for step in steps {
        for outcome in [ManualOutcome::Failed, ManualOutcome::Cancelled] {
            let mut sim = Sim::started(chain(vec![step.clone(), task("b")]));
            if sim.status("a") == Some(Status::Ready) {
                sim.run("a").unwrap();
            }
            sim.answer("a", outcome, "someone").unwrap();
            assert_eq!(sim.status("a"), Some(Status::Failed));
            assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
            let class = sim.state.error().unwrap().class;
            let expected = match outcome {
                ManualOutcome::Cancelled => ErrorClass::Cancelled,
                _ => ErrorClass::Rejected,
            };
            assert_eq!(class, expected);
        }
    }
}

#[test]
fn an_operators_retry_asks_for_approval_again_and_remembers_the_old_answer() {
    let step = Step {
        on_failure: OnFailure::Hold { timeout_ms: 60_000 },
        ..gated("a")
    };
    let mut sim = Sim::started(chain(vec![step]));
    let first = sim.token("a");
    sim.answer("a", ManualOutcome::Succeeded, "boss").unwrap();
    sim.run_failing("a", ErrorClass::Policy).unwrap();
    assert_eq!(sim.status("a"), Some(Status::Held));
    sim.signal("RETRY_STEP", serde_json::json!({ "stepId": "a" }))
        .unwrap();
    assert_eq!(sim.status("a"), Some(Status::Waiting));
    let second = sim.token("a");
    assert_ne!(first, second);
    let again = sim.answer_with("a", &first, ManualOutcome::Failed, "boss");
    let expected = EarlierResult::Manual(ManualOutcome::Succeeded);
    assert_eq!(again, Ok(Reply::Duplicate(Box::new(expected))));
    assert_eq!(sim.status("a"), Some(Status::Waiting));
    sim.answer("a", ManualOutcome::Succeeded, "boss").unwrap();
    sim.run("a").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn who_approved_first_may_not_be_the_second_of_two() {
    let mut step = gated("a");
    if let Some(gate) = &mut step.gate {
        gate.duties = vec![Duty::DistinctApprovers { count: 2 }];
    }
    let mut sim = Sim::started(chain(vec![step]));
    sim.answer("a", ManualOutcome::Succeeded, "ann").unwrap();
    let seq = sim.state.seq();
    sim.answer("a", ManualOutcome::Succeeded, "ann").unwrap();
    assert_eq!(
        (sim.state.seq(), sim.status("a")),
        (seq, Some(Status::Waiting))
    );
    // One rejection ends it, also after approvals.
    let token = sim.token("a");
    sim.answer("a", ManualOutcome::Failed, "bob").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
    let again = sim.answer_with("a", &token, ManualOutcome::Succeeded, "ann");
    let expected = EarlierResult::Manual(ManualOutcome::Failed);
    assert_eq!(again, Ok(Reply::Duplicate(Box::new(expected))));
}

#[test]
fn a_person_who_is_too_late_changes_nothing() {
    let mut sim = Sim::started(chain(vec![
        waits("a", WaitOn::Approval, Some(500)),
        task("b"),
    ]));
    let token = sim.token("a");
    sim.advance_to_next_timer().unwrap();
    assert_eq!(sim.status("a"), Some(Status::Failed));
    let late = sim.answer_with("a", &token, ManualOutcome::Succeeded, "someone");
    assert_eq!(code(late), Code::RunTerminal);
}
