//! The language's words for the kernel's states. Total: every state has one.

use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::state::{ItemResult, Phase, State, Status};

use crate::states::{language_words, state_words};

state_words! {
    /// The states of a run.
    RunWord {
        /// from its creation to its end
        Running = "RUNNING",
        /// ended: all steps are DONE
        Completed = "COMPLETED",
        /// ended: a step is DEAD
        Failed = "FAILED",
        /// ended: the run was cancelled
        Canceled = "CANCELED",
    }
}

state_words! {
    /// What is said beside the state of a run.
    RunSubstatus {
        /// no new step starts until the run is resumed
        Paused = "paused",
    }
}

state_words! {
    /// The states of a step-run.
    StepWord {
        /// the steps before are not all DONE
        Pending = "PENDING",
        /// can be claimed from `next_run_at` on
        Ready = "READY",
        /// a worker has it until `locked_until`
        Running = "RUNNING",
        /// waits for `waiting_event_type` until `deadline_at`
        Waiting = "WAITING",
        /// completed, or skipped by an operator
        Done = "DONE",
        /// given up, or stopped
        Dead = "DEAD",
    }
}

language_words!();

/// The status in the row of `workflow_instance`.
#[must_use]
pub fn run_state(state: &State) -> RunWord {
    match state.phase() {
        Phase::Void
        | Phase::Created
        | Phase::Queued
        | Phase::Running
        | Phase::Finalizing
        | Phase::Stopping
        | Phase::Compensating => RunWord::Running,
        Phase::Ended(RunOutcome::Succeeded | RunOutcome::Partial) => RunWord::Completed,
        Phase::Ended(RunOutcome::Failed(_)) => RunWord::Failed,
        Phase::Ended(RunOutcome::Cancelled(_)) => RunWord::Canceled,
    }
}

/// What the status leaves out: the language has no word for a pause.
#[must_use]
pub fn run_substate(state: &State) -> Option<RunSubstatus> {
    (state.phase().is_moving() && state.pause().is_some()).then_some(RunSubstatus::Paused)
}

/// The word for the two words of the contract that a list of runs keeps. They say all that this language says.
#[must_use]
pub fn listed_word(status: &str, _substatus: Option<&str>) -> &'static str {
    let word = match status {
        "COMPLETED" => RunWord::Completed,
        "FAILED" => RunWord::Failed,
        "CANCELLED" => RunWord::Canceled,
        _ => RunWord::Running,
    };
    word.word()
}

/// The status in the row of `workflow_step`.
#[must_use]
pub fn step_state(_plan: &Plan, state: &State, at: StepRef) -> StepWord {
    if let Some(run) = state.run(at) {
        return match run.status() {
            Status::Denied => StepWord::Pending,
            Status::Arrived | Status::Ready => StepWord::Ready,
            Status::Running | Status::Looping => StepWord::Running,
            Status::Waiting => StepWord::Waiting,
            Status::Succeeded | Status::Skipped => StepWord::Done,
            Status::Failed | Status::Held | Status::Cancelled => StepWord::Dead,
        };
    }
    let closed = at
        .item
        .zip(state.visit(at).and_then(|visit| visit.each()))
        .and_then(|(item, each)| each.results().get(item as usize)?.as_ref());
    match closed {
        None => StepWord::Pending,
        Some(ItemResult::Succeeded(_) | ItemResult::Skipped) => StepWord::Done,
        Some(ItemResult::Failed(_) | ItemResult::Cancelled) => StepWord::Dead,
    }
}

/// `skipped` for a step that an operator skipped: its status is DONE.
#[must_use]
pub fn step_substatus(state: &State, at: StepRef) -> Option<&'static str> {
    let skipped = state
        .run(at)
        .is_some_and(|run| run.status() == Status::Skipped);
    skipped.then_some("skipped")
}
