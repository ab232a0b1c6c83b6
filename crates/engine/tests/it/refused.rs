//! Results that the kernel refuses: while the work is still its worker's the step fails and says why,
//! and a result that comes too late changes nothing.

use stepwell_engine::coordinator::Assignment;
use stepwell_kernel::command::{Claim, Command, WaitFor};
use stepwell_kernel::event::{Body, StepError};
use stepwell_kernel::plan::{ErrorClass, RetryPolicy, Undo};

use crate::{MemoryEngine, chain, engine, log, plan, request, task};

const RUN: &str = "run_1";

fn wait(claim: &Claim, wait: WaitFor) -> Command {
    Command::WaitStep {
        claim: claim.clone(),
        wait,
        timeout_ms: None,
        outbound: Vec::new(),
        memo: None,
    }
}

fn event(event_type: &str) -> WaitFor {
    WaitFor::Event {
        event_type: event_type.to_owned(),
    }
}

fn completed(claim: &Claim) -> Command {
    Command::CompleteStep {
        claim: claim.clone(),
        output: serde_json::Value::Null,
        ctx: Default::default(),
        artifacts: Vec::new(),
    }
}

/// A run whose first work is in flight, and may be tried again.
fn begun() -> (MemoryEngine, Assignment) {
    let mut step = task("a");
    step.retry.max_executions = 3;
    step.retry.classes = vec![ErrorClass::Validation, ErrorClass::Unknown];
    let mut engine = engine();
    engine.serve_everything(10).unwrap();
    engine
        .trigger(&plan(chain(vec![step])), request(RUN))
        .unwrap();
    let job = engine.worker_mut().assignments.pop_front().unwrap();
    (engine, job)
}

/// The error of the last step or undo that failed.
fn why(engine: &MemoryEngine) -> StepError {
    let failed = |body| match body {
        Body::StepFailed { error, .. } | Body::UndoFailed { error, .. } => Some(error),
        _ => None,
    };
    let events = engine.events(RUN, 0).unwrap().into_iter();
    let errors = events.filter_map(|event| failed(event.body));
    StepError::clone(&errors.last().expect("something has failed"))
}

#[test]
fn a_wait_that_the_step_cannot_have_fails_it_at_once_and_says_why() {
    let long = "x".repeat(201);
    let refused = [
        (WaitFor::Manual, "NOT_MANUAL"),
        (event(""), "INVALID_ID"),
        (event(&long), "INVALID_ID"),
        (WaitFor::Timer, "INVALID_TRANSITION"),
    ];
    for (what, code) in refused {
        let (mut engine, job) = begun();
        engine.finish(&job, wait(&job.claimed.claim, what)).unwrap();
        let error = why(&engine);
        assert_eq!(
            (error.class, &*error.code),
            (ErrorClass::Validation, code),
            "{}",
            log(&engine, RUN)
        );
        assert!(!error.message.is_empty());
        assert!(
            engine.worker().assignments.is_empty(),
            "the same would happen again"
        );
        assert!(engine.run(RUN).unwrap().state().phase().is_ended());
        assert_eq!(engine.coordinator().busy(), 0);
    }
}

#[test]
fn an_undo_that_wants_to_wait_fails() {
    let mut first = task("a");
    first.undo = Some(Undo {
        queue: "default".into(),
        operation: "undo".into(),
        input: serde_json::Value::Null,
        tasks: serde_json::Value::Null,
        retry: RetryPolicy::once(),
        timeout_ms: None,
    });
    let mut engine = engine();
    engine.serve_everything(10).unwrap();
    let net = chain(vec![first, task("b")]);
    engine.trigger(&plan(net), request(RUN)).unwrap();
    let job = engine.worker_mut().assignments.pop_front().unwrap();
    engine.finish(&job, completed(&job.claimed.claim)).unwrap();
    let cancel = Command::CancelRun {
        actor: stepwell_engine::engine::engine_actor(),
        reason: Some("for the test".into()),
        compensate: true,
        keep_undo: false,
    };
    engine.submit(RUN, cancel).unwrap();
    let job = engine.worker_mut().assignments.pop_front().unwrap();
    let claim = job.claimed.claim.clone();
    engine.finish(&job, Command::ConfirmKill { claim }).unwrap();
    let undo = engine
        .worker_mut()
        .assignments
        .pop_front()
        .expect("the first step is undone");
    let refused = wait(&undo.claimed.claim, event("tick"));
    engine.finish(&undo, refused).unwrap();
    assert_eq!(&*why(&engine).code, "INVALID_TRANSITION");
    assert_eq!(engine.coordinator().busy(), 0);
}

#[test]
fn a_refused_wait_of_an_execution_that_is_no_longer_current_changes_nothing() {
    let (mut engine, job) = begun();
    let failed = Command::FailStep {
        claim: job.claimed.claim.clone(),
        error: StepError::new(ErrorClass::Unknown, "TEST", "once more"),
        retryable: Some(true),
        delay_ms: Some(0),
        ctx: Default::default(),
    };
    engine.finish(&job, failed).unwrap();
    let again = engine.worker_mut().assignments.pop_front().unwrap();
    let before = engine.events(RUN, 0).unwrap();
    engine
        .finish(&job, wait(&job.claimed.claim, WaitFor::Manual))
        .unwrap();
    assert_eq!(engine.events(RUN, 0).unwrap(), before);
    assert_eq!(engine.coordinator().busy(), 1);
    engine
        .finish(&again, completed(&again.claimed.claim))
        .unwrap();
    // Nor one that comes when all is over.
    let before = engine.events(RUN, 0).unwrap();
    engine
        .finish(&again, wait(&again.claimed.claim, WaitFor::Manual))
        .unwrap();
    assert_eq!(engine.events(RUN, 0).unwrap(), before);
}
