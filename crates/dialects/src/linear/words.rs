//! The language's words for the kernel's states. Total: every state has one.

use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::state::{ItemResult, Phase, State, Status};

/// The instance's status.
#[must_use]
pub fn run_word(state: &State) -> &'static str {
    match state.phase() {
        Phase::Void
        | Phase::Created
        | Phase::Queued
        | Phase::Running
        | Phase::Finalizing
        | Phase::Stopping
        | Phase::Compensating => "RUNNING",
        Phase::Ended(RunOutcome::Succeeded | RunOutcome::Partial) => "COMPLETED",
        Phase::Ended(RunOutcome::Failed(_)) => "FAILED",
        Phase::Ended(RunOutcome::Cancelled(_)) => "CANCELED",
    }
}

/// What the status leaves out: the language has no word for a pause.
#[must_use]
pub fn run_substatus(state: &State) -> Option<&'static str> {
    (state.phase().is_moving() && state.pause().is_some()).then_some("paused")
}

/// A step's status.
#[must_use]
pub fn step_word(_plan: &Plan, state: &State, at: StepRef) -> &'static str {
    if let Some(run) = state.run(at) {
        return match run.status() {
            Status::Denied => "PENDING",
            Status::Arrived | Status::Ready => "READY",
            Status::Running | Status::Looping => "RUNNING",
            Status::Waiting => "WAITING",
            Status::Succeeded | Status::Skipped => "DONE",
            Status::Failed | Status::Held | Status::Cancelled => "DEAD",
        };
    }
    let closed = at
        .item
        .zip(state.visit(at).and_then(|visit| visit.each()))
        .and_then(|(item, each)| each.results().get(item as usize)?.as_ref());
    match closed {
        None => "PENDING",
        Some(ItemResult::Succeeded(_) | ItemResult::Skipped) => "DONE",
        Some(ItemResult::Failed(_) | ItemResult::Cancelled) => "DEAD",
    }
}

/// What a step's status leaves out.
#[must_use]
pub fn step_substatus(state: &State, at: StepRef) -> Option<&'static str> {
    let skipped = state
        .run(at)
        .is_some_and(|run| run.status() == Status::Skipped);
    skipped.then_some("skipped")
}
