//! The language's words for what the kernel knows. Total: every state has a word.

use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::Rollback;
use stepwell_kernel::plan::{OnFailure, Plan, StepRef};
use stepwell_kernel::state::{Due, Phase, State, Status};

/// `idle`, `queued`, `executing`, `blocked`, `compensating`, `completed` or `failed`.
#[must_use]
pub fn run_word(state: &State) -> &'static str {
    match state.phase() {
        Phase::Void | Phase::Created => "idle",
        Phase::Queued => "queued",
        Phase::Running | Phase::Finalizing if state.pause().is_some() => "executing",
        Phase::Running | Phase::Finalizing if state.is_blocked() => "blocked",
        Phase::Running | Phase::Finalizing | Phase::Stopping => "executing",
        Phase::Compensating => "compensating",
        Phase::Ended(outcome) => match outcome {
            RunOutcome::Succeeded
            | RunOutcome::Partial
            | RunOutcome::Failed(Rollback::Complete) => "completed",
            RunOutcome::Failed(Rollback::None | Rollback::Incomplete)
            | RunOutcome::Cancelled(_) => "failed",
        },
    }
}

/// What the word alone does not say: `paused`, `rollback`, `partial` or `cancelled`.
#[must_use]
pub fn run_substatus(state: &State) -> Option<&'static str> {
    match state.phase() {
        Phase::Ended(RunOutcome::Failed(Rollback::Complete)) => Some("rollback"),
        Phase::Ended(RunOutcome::Failed(Rollback::Incomplete)) => Some("partial"),
        Phase::Ended(RunOutcome::Cancelled(_)) => Some("cancelled"),
        Phase::Ended(_) => None,
        Phase::Void
        | Phase::Created
        | Phase::Queued
        | Phase::Running
        | Phase::Finalizing
        | Phase::Stopping
        | Phase::Compensating => state.pause().map(|_| "paused"),
    }
}

/// `pending`, `running`, `completed`, `failed` or `skipped`.
#[must_use]
pub fn step_word(plan: &Plan, state: &State, at: StepRef) -> &'static str {
    let Some(run) = state.run(at) else {
        return "pending";
    };
    match run.status() {
        Status::Arrived | Status::Denied | Status::Ready if !run.has_started() => "pending",
        Status::Arrived
        | Status::Denied
        | Status::Ready
        | Status::Running
        | Status::Waiting
        | Status::Looping => "running",
        Status::Succeeded => "completed",
        // The log says failed and then skipped; in this language it is one change.
        Status::Failed if will_be_skipped(plan, state, at) => "skipped",
        Status::Failed | Status::Held => "failed",
        Status::Skipped | Status::Cancelled => "skipped",
    }
}

/// `cancelled` for a step that was stopped or never reached because the run was.
#[must_use]
pub fn step_substatus(state: &State, at: StepRef) -> Option<&'static str> {
    let cancelled = state.run(at)?.status() == Status::Cancelled;
    cancelled.then_some("cancelled")
}

fn will_be_skipped(plan: &Plan, state: &State, at: StepRef) -> bool {
    plan.step(at.step).on_failure == OnFailure::Skip && state.due().contains(&Due::Failure(at))
}
