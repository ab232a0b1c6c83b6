//! The contract's words for what the kernel knows. Total: every state has a word.

use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::Rollback;
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::state::{Phase, State, Status};

/// `PENDING`, `APPROVED`, `RUNNING`, `PAUSED`, `COMPLETED`, `FAILED` or `CANCELLED`.
#[must_use]
pub fn run_word(state: &State) -> &'static str {
    match state.phase() {
        Phase::Created | Phase::Queued if state.approved() => "APPROVED",
        Phase::Void | Phase::Created | Phase::Queued => "PENDING",
        Phase::Running | Phase::Finalizing if state.pause().is_some() => "PAUSED",
        Phase::Running | Phase::Finalizing | Phase::Stopping | Phase::Compensating => "RUNNING",
        Phase::Ended(RunOutcome::Succeeded | RunOutcome::Partial) => "COMPLETED",
        Phase::Ended(RunOutcome::Failed(_)) => "FAILED",
        Phase::Ended(RunOutcome::Cancelled(_)) => "CANCELLED",
    }
}

/// What the word alone does not say; what the contract does not list is prefixed `stepwell/`.
#[must_use]
pub fn run_substatus(state: &State) -> Option<&'static str> {
    match state.phase() {
        Phase::Running | Phase::Finalizing if state.is_draining() => Some("DRAINING"),
        Phase::Running | Phase::Finalizing if state.pause().is_some() => None,
        Phase::Running | Phase::Finalizing if state.is_blocked() => Some("WAITING_APPROVAL"),
        Phase::Stopping => Some("stepwell/STOPPING"),
        Phase::Compensating => Some("stepwell/COMPENSATING"),
        Phase::Ended(RunOutcome::Failed(Rollback::Complete)) => Some("stepwell/ROLLED_BACK"),
        Phase::Ended(RunOutcome::Failed(Rollback::Incomplete)) => Some("stepwell/PARTIAL_ROLLBACK"),
        Phase::Void
        | Phase::Created
        | Phase::Queued
        | Phase::Running
        | Phase::Finalizing
        | Phase::Ended(
            RunOutcome::Succeeded
            | RunOutcome::Partial
            | RunOutcome::Failed(Rollback::None)
            | RunOutcome::Cancelled(_),
        ) => None,
    }
}

/// `PENDING`, `RUNNING`, `SUCCESS`, `FAILED` or `SKIPPED`.
#[must_use]
pub fn step_word(_plan: &Plan, state: &State, at: StepRef) -> &'static str {
    let Some(run) = state.run(at) else {
        return "PENDING";
    };
    match run.status() {
        // At its gate too: the approval comes before StepStarted, and the snapshot says the same.
        Status::Arrived | Status::Denied | Status::Ready | Status::Waiting
            if !run.has_started() =>
        {
            "PENDING"
        }
        Status::Arrived
        | Status::Denied
        | Status::Ready
        | Status::Running
        | Status::Waiting
        | Status::Looping => "RUNNING",
        Status::Succeeded => "SUCCESS",
        Status::Failed | Status::Held => "FAILED",
        Status::Skipped => "SKIPPED",
        Status::Cancelled if run.has_started() => "FAILED",
        Status::Cancelled => "SKIPPED",
    }
}
