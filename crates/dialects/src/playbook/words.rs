//! What playbooks call the states of runs and steps. Total: every state has a word.

use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::state::{Phase, State, Status};

use crate::states::{language_words, state_words};

state_words! {
    /// The states of a run.
    RunWord {
        /// created, and neither queued nor started
        Pending = "pending",
        /// waits for a slot
        Queued = "queued",
        /// tokens move; also while the run stops
        Running = "running",
        /// no new step starts until the run is resumed
        Paused = "paused",
        /// completed steps are undone
        Compensating = "compensating",
        /// ended: the run succeeded
        Success = "success",
        /// ended: as much as the policy asks for
        Partial = "partial",
        /// ended: the run failed
        Failed = "failed",
        /// ended: the run was cancelled
        Cancelled = "cancelled",
    }
}

state_words! {
    /// What is said beside the state of a run.
    RunSubstatus {
        /// paused, and work is in flight
        Draining = "draining",
        /// only tokens that are not admitted are left
        Stalled = "stalled",
        /// all that is open waits for a person, an event or a time
        Waiting = "waiting",
        /// only the final step is left
        FinalStep = "final_step",
        /// nothing fires any more; work in flight ends
        Stopping = "stopping",
    }
}

state_words! {
    /// The states of a step-run.
    StepWord {
        /// no token has reached the step, or the token is not admitted
        Pending = "pending",
        /// can be claimed, now or after its backoff
        Ready = "ready",
        /// a worker executes it, or its iterations run
        Running = "running",
        /// waits for a person, an event, a time, a called run, or an operator
        Waiting = "waiting",
        /// ended: the step succeeded
        Success = "success",
        /// ended: the step failed
        Failed = "failed",
        /// ended: the step was skipped
        Skipped = "skipped",
        /// ended: the step was stopped
        Cancelled = "cancelled",
    }
}

language_words!();

#[must_use]
pub fn run_state(state: &State) -> RunWord {
    match state.phase() {
        Phase::Void | Phase::Created => RunWord::Pending,
        Phase::Queued => RunWord::Queued,
        Phase::Running | Phase::Finalizing if state.pause().is_some() => RunWord::Paused,
        Phase::Running | Phase::Finalizing | Phase::Stopping => RunWord::Running,
        Phase::Compensating => RunWord::Compensating,
        Phase::Ended(RunOutcome::Succeeded) => RunWord::Success,
        Phase::Ended(RunOutcome::Partial) => RunWord::Partial,
        Phase::Ended(RunOutcome::Failed(_)) => RunWord::Failed,
        Phase::Ended(RunOutcome::Cancelled(_)) => RunWord::Cancelled,
    }
}

/// The word beside the state of a run; absent if the state says everything.
#[must_use]
pub fn run_substate(state: &State) -> Option<RunSubstatus> {
    match state.phase() {
        Phase::Running | Phase::Finalizing if state.is_draining() => Some(RunSubstatus::Draining),
        Phase::Running | Phase::Finalizing if state.stalled().is_some() => {
            Some(RunSubstatus::Stalled)
        }
        Phase::Running if state.is_blocked() => Some(RunSubstatus::Waiting),
        Phase::Finalizing => Some(RunSubstatus::FinalStep),
        Phase::Stopping => Some(RunSubstatus::Stopping),
        Phase::Void
        | Phase::Created
        | Phase::Queued
        | Phase::Running
        | Phase::Compensating
        | Phase::Ended(_) => None,
    }
}

/// The word for the two words of the contract that a list of runs keeps. A list cannot tell `partial` from
/// `success`: the contract completes both. Nor can it tell `pending` from `queued`: a run is queued as soon as it is
/// created, because no playbook needs an approval.
#[must_use]
pub fn listed_word(status: &str, substatus: Option<&str>) -> &'static str {
    let word = match (status, substatus) {
        ("PENDING" | "APPROVED", _) => RunWord::Queued,
        ("PAUSED", _) => RunWord::Paused,
        ("COMPLETED", _) => RunWord::Success,
        ("FAILED", _) => RunWord::Failed,
        ("CANCELLED", _) => RunWord::Cancelled,
        (_, Some("stepwell/COMPENSATING")) => RunWord::Compensating,
        _ => RunWord::Running,
    };
    word.word()
}

/// A step-run's state. A step that no token has reached is `pending`.
#[must_use]
pub fn step_state(_plan: &Plan, state: &State, at: StepRef) -> StepWord {
    match state.run(at).map(|run| run.status()) {
        Some(status) => status_word(status),
        None => closed_item(state, at).unwrap_or(StepWord::Pending),
    }
}

fn status_word(status: Status) -> StepWord {
    match status {
        Status::Arrived | Status::Ready => StepWord::Ready,
        Status::Denied => StepWord::Pending,
        Status::Running | Status::Looping => StepWord::Running,
        Status::Waiting | Status::Held => StepWord::Waiting,
        Status::Succeeded => StepWord::Success,
        Status::Failed => StepWord::Failed,
        Status::Skipped => StepWord::Skipped,
        Status::Cancelled => StepWord::Cancelled,
    }
}

/// An item of a loop that is over has no step-run any more, only its result.
fn closed_item(state: &State, at: StepRef) -> Option<StepWord> {
    use stepwell_kernel::state::ItemResult;
    let results = &state.visit(at)?.each()?.results();
    Some(match results.get(at.item? as usize)?.as_ref()? {
        ItemResult::Succeeded(_) => StepWord::Success,
        ItemResult::Failed(_) => StepWord::Failed,
        ItemResult::Skipped => StepWord::Skipped,
        ItemResult::Cancelled => StepWord::Cancelled,
    })
}
