//! The language's words for what the kernel knows. Total: every state has a word.

use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::Rollback;
use stepwell_kernel::plan::{OnFailure, Plan, StepRef};
use stepwell_kernel::state::{Due, Phase, State, Status};

use crate::states::{language_words, state_words};

state_words! {
    /// The states of a run.
    RunWord {
        /// created, and not yet queued
        Idle = "idle",
        /// waits for a slot; every run passes through this state
        Queued = "queued",
        /// steps run; also while paused and while stopping
        Executing = "executing",
        /// every started, unfinished step waits for a person or an event
        Blocked = "blocked",
        /// completed steps are being undone
        Compensating = "compensating",
        /// ended: done, or completely rolled back
        Completed = "completed",
        /// ended: failed or cancelled
        Failed = "failed",
    }
}

state_words! {
    /// What is said beside the state of a run.
    RunSubstatus {
        /// no new step starts until the run is resumed
        Paused = "paused",
        /// failed, and everything was undone
        Rollback = "rollback",
        /// failed, and something was not undone
        Partial = "partial",
        /// ended: the run was cancelled
        Cancelled = "cancelled",
    }
}

state_words! {
    /// The states of a step-run.
    StepWord {
        /// the step has not started
        Pending = "pending",
        /// started; also while waiting or between retries
        Running = "running",
        /// ended: the step succeeded
        Completed = "completed",
        /// ended: the step failed
        Failed = "failed",
        /// ended: skipped, or stopped with the run
        Skipped = "skipped",
    }
}

language_words!();

/// `idle`, `queued`, `executing`, `blocked`, `compensating`, `completed` or `failed`.
#[must_use]
pub fn run_state(state: &State) -> RunWord {
    match state.phase() {
        Phase::Void | Phase::Created => RunWord::Idle,
        Phase::Queued => RunWord::Queued,
        Phase::Running | Phase::Finalizing if state.pause().is_some() => RunWord::Executing,
        Phase::Running | Phase::Finalizing if state.is_blocked() => RunWord::Blocked,
        Phase::Running | Phase::Finalizing | Phase::Stopping => RunWord::Executing,
        Phase::Compensating => RunWord::Compensating,
        Phase::Ended(outcome) => match outcome {
            RunOutcome::Succeeded
            | RunOutcome::Partial
            | RunOutcome::Failed(Rollback::Complete) => RunWord::Completed,
            RunOutcome::Failed(Rollback::None | Rollback::Incomplete)
            | RunOutcome::Cancelled(_) => RunWord::Failed,
        },
    }
}

/// What the word alone does not say: `paused`, `rollback`, `partial` or `cancelled`.
#[must_use]
pub fn run_substate(state: &State) -> Option<RunSubstatus> {
    match state.phase() {
        Phase::Ended(RunOutcome::Failed(Rollback::Complete)) => Some(RunSubstatus::Rollback),
        Phase::Ended(RunOutcome::Failed(Rollback::Incomplete)) => Some(RunSubstatus::Partial),
        Phase::Ended(RunOutcome::Cancelled(_)) => Some(RunSubstatus::Cancelled),
        Phase::Ended(_) => None,
        Phase::Void
        | Phase::Created
        | Phase::Queued
        | Phase::Running
        | Phase::Finalizing
        | Phase::Stopping
        | Phase::Compensating => state.pause().map(|_| RunSubstatus::Paused),
    }
}

/// The word for the two words of the contract that a list of runs keeps. A list knows no `idle`: a run has this
/// state for the moment before it is queued.
#[must_use]
pub fn listed_word(status: &str, substatus: Option<&str>) -> &'static str {
    let word = match (status, substatus) {
        ("PENDING" | "APPROVED", _) => RunWord::Queued,
        ("COMPLETED", _) | ("FAILED", Some("stepwell/ROLLED_BACK")) => RunWord::Completed,
        ("FAILED" | "CANCELLED", _) => RunWord::Failed,
        ("RUNNING", Some("stepwell/COMPENSATING")) => RunWord::Compensating,
        ("RUNNING", Some("WAITING_APPROVAL")) => RunWord::Blocked,
        _ => RunWord::Executing,
    };
    word.word()
}

/// `pending`, `running`, `completed`, `failed` or `skipped`.
#[must_use]
pub fn step_state(plan: &Plan, state: &State, at: StepRef) -> StepWord {
    let Some(run) = state.run(at) else {
        return StepWord::Pending;
    };
    match run.status() {
        Status::Arrived | Status::Denied | Status::Ready if !run.has_started() => StepWord::Pending,
        Status::Arrived
        | Status::Denied
        | Status::Ready
        | Status::Running
        | Status::Waiting
        | Status::Looping => StepWord::Running,
        Status::Succeeded => StepWord::Completed,
        // The log says failed and then skipped; in this language it is one change.
        Status::Failed if will_be_skipped(plan, state, at) => StepWord::Skipped,
        Status::Failed | Status::Held => StepWord::Failed,
        Status::Skipped | Status::Cancelled => StepWord::Skipped,
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
