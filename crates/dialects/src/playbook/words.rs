//! What playbooks call the states of runs and steps. Total: every state has a word.

use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::state::{Phase, State, Status};

/// The run's state.
#[must_use]
pub fn run_word(state: &State) -> &'static str {
    match state.phase() {
        Phase::Void | Phase::Created => "pending",
        Phase::Queued => "queued",
        Phase::Running | Phase::Finalizing if state.pause().is_some() => "paused",
        Phase::Running | Phase::Finalizing | Phase::Stopping => "running",
        Phase::Compensating => "compensating",
        Phase::Ended(RunOutcome::Succeeded) => "success",
        Phase::Ended(RunOutcome::Partial) => "partial",
        Phase::Ended(RunOutcome::Failed(_)) => "failed",
        Phase::Ended(RunOutcome::Cancelled(_)) => "cancelled",
    }
}

/// What there is to say beside it.
#[must_use]
pub fn run_substatus(state: &State) -> Option<&'static str> {
    match state.phase() {
        Phase::Running | Phase::Finalizing if state.is_draining() => Some("draining"),
        Phase::Running | Phase::Finalizing if state.stalled().is_some() => Some("stalled"),
        Phase::Running if state.is_blocked() => Some("waiting"),
        Phase::Finalizing => Some("final_step"),
        Phase::Stopping => Some("stopping"),
        Phase::Void
        | Phase::Created
        | Phase::Queued
        | Phase::Running
        | Phase::Compensating
        | Phase::Ended(_) => None,
    }
}

/// A step-run's state. A step that no token has reached is `pending`.
#[must_use]
pub fn step_word(_plan: &Plan, state: &State, at: StepRef) -> &'static str {
    match state.run(at).map(|run| run.status()) {
        Some(status) => status_word(status),
        None => closed_item(state, at).unwrap_or("pending"),
    }
}

fn status_word(status: Status) -> &'static str {
    match status {
        Status::Arrived | Status::Ready => "ready",
        Status::Denied => "pending",
        Status::Running | Status::Looping => "running",
        Status::Waiting | Status::Held => "waiting",
        Status::Succeeded => "success",
        Status::Failed => "failed",
        Status::Skipped => "skipped",
        Status::Cancelled => "cancelled",
    }
}

/// An item of a loop that is over has no step-run any more, only its result.
fn closed_item(state: &State, at: StepRef) -> Option<&'static str> {
    use stepwell_kernel::state::ItemResult;
    let results = &state.visit(at)?.each()?.results();
    Some(match results.get(at.item? as usize)?.as_ref()? {
        ItemResult::Succeeded(_) => "success",
        ItemResult::Failed(_) => "failed",
        ItemResult::Skipped => "skipped",
        ItemResult::Cancelled => "cancelled",
    })
}
