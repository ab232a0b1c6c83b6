//! The contract's words for what the kernel knows. Total: every state has a word.

use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::Rollback;
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::state::{Phase, State, Status};

use crate::states::{language_words, state_words};

state_words! {
    /// The states of a run.
    RunWord {
        /// created or queued, and not approved
        Pending = "PENDING",
        /// approved, and not started
        Approved = "APPROVED",
        /// steps run; also while stopping and undoing
        Running = "RUNNING",
        /// no new step starts until the run is resumed
        Paused = "PAUSED",
        /// ended: the run succeeded
        Completed = "COMPLETED",
        /// ended: the run failed
        Failed = "FAILED",
        /// ended: the run was cancelled
        Cancelled = "CANCELLED",
    }
}

state_words! {
    /// What is said beside the state of a run.
    RunSubstatus {
        /// paused, and work is in flight
        Draining = "DRAINING",
        /// all that is open waits for a person or an event
        WaitingApproval = "WAITING_APPROVAL",
        /// nothing fires any more; work in flight ends
        Stopping = "stepwell/STOPPING",
        /// completed steps are being undone
        Compensating = "stepwell/COMPENSATING",
        /// failed or cancelled, and everything was undone
        RolledBack = "stepwell/ROLLED_BACK",
        /// failed or cancelled, and something was not undone
        PartialRollback = "stepwell/PARTIAL_ROLLBACK",
    }
}

state_words! {
    /// The states of a step-run.
    StepWord {
        /// not started; also while the work waits for its `approval`
        Pending = "PENDING",
        /// started; also while waiting or between retries
        Running = "RUNNING",
        /// ended: the step succeeded
        Success = "SUCCESS",
        /// ended: failed; also while held
        Failed = "FAILED",
        /// ended: the step was skipped
        Skipped = "SKIPPED",
    }
}

language_words!();

/// `PENDING`, `APPROVED`, `RUNNING`, `PAUSED`, `COMPLETED`, `FAILED` or `CANCELLED`.
#[must_use]
pub fn run_state(state: &State) -> RunWord {
    match state.phase() {
        Phase::Created | Phase::Queued if state.approved() => RunWord::Approved,
        Phase::Void | Phase::Created | Phase::Queued => RunWord::Pending,
        Phase::Running | Phase::Finalizing if state.pause().is_some() => RunWord::Paused,
        Phase::Running | Phase::Finalizing | Phase::Stopping | Phase::Compensating => {
            RunWord::Running
        }
        Phase::Ended(RunOutcome::Succeeded | RunOutcome::Partial) => RunWord::Completed,
        Phase::Ended(RunOutcome::Failed(_)) => RunWord::Failed,
        Phase::Ended(RunOutcome::Cancelled(_)) => RunWord::Cancelled,
    }
}

/// What the word alone does not say; what the contract does not list is prefixed `stepwell/`.
#[must_use]
pub fn run_substate(state: &State) -> Option<RunSubstatus> {
    match state.phase() {
        Phase::Running | Phase::Finalizing if state.is_draining() => Some(RunSubstatus::Draining),
        Phase::Running | Phase::Finalizing if state.pause().is_some() => None,
        Phase::Running | Phase::Finalizing if state.is_blocked() => {
            Some(RunSubstatus::WaitingApproval)
        }
        Phase::Stopping => Some(RunSubstatus::Stopping),
        Phase::Compensating => Some(RunSubstatus::Compensating),
        Phase::Ended(
            RunOutcome::Failed(Rollback::Complete) | RunOutcome::Cancelled(Rollback::Complete),
        ) => Some(RunSubstatus::RolledBack),
        Phase::Ended(
            RunOutcome::Failed(Rollback::Incomplete) | RunOutcome::Cancelled(Rollback::Incomplete),
        ) => Some(RunSubstatus::PartialRollback),
        Phase::Void
        | Phase::Created
        | Phase::Queued
        | Phase::Running
        | Phase::Finalizing
        | Phase::Ended(
            RunOutcome::Succeeded
            | RunOutcome::Partial
            | RunOutcome::Failed(Rollback::None)
            | RunOutcome::Cancelled(Rollback::None),
        ) => None,
    }
}

/// The word for the two words of the contract that a list of runs keeps. They are the words of this language.
#[must_use]
pub fn listed_word(status: &str, _substatus: Option<&str>) -> &'static str {
    let mut words = RunWord::WORDS.iter();
    let own = words.find(|it| it.word == status);
    own.map_or(RunWord::Running.word(), |it| it.word)
}

/// `PENDING`, `RUNNING`, `SUCCESS`, `FAILED` or `SKIPPED`.
#[must_use]
pub fn step_state(_plan: &Plan, state: &State, at: StepRef) -> StepWord {
    let Some(run) = state.run(at) else {
        return StepWord::Pending;
    };
    match run.status() {
        // At its gate too: the approval comes before StepStarted, and the snapshot says the same.
        Status::Arrived | Status::Denied | Status::Ready | Status::Waiting
            if !run.has_started() =>
        {
            StepWord::Pending
        }
        Status::Arrived
        | Status::Denied
        | Status::Ready
        | Status::Running
        | Status::Waiting
        | Status::Looping => StepWord::Running,
        Status::Succeeded => StepWord::Success,
        Status::Failed | Status::Held => StepWord::Failed,
        Status::Skipped => StepWord::Skipped,
        Status::Cancelled if run.has_started() => StepWord::Failed,
        Status::Cancelled => StepWord::Skipped,
    }
}
