//! The language's words for the kernel's states. Total: every state has one.

use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::{Rollback, WaitKind};
use stepwell_kernel::plan::{ErrorClass, Plan, StepRef};
use stepwell_kernel::state::{ItemResult, Phase, State, Status, StepRun};

use crate::states::{language_words, state_words};

state_words! {
    /// The states of a run.
    RunWord {
        /// created or queued, and not started
        Pending = "Pending",
        /// also while it stops, and while it is compensated
        Running = "Running",
        /// nothing else goes on and an approval is awaited
        WaitingForApproval = "WaitingForApproval",
        /// no new action starts until the run is resumed
        Paused = "Paused",
        /// ended: all actions succeeded
        Succeeded = "Succeeded",
        /// ended: an action failed
        Failed = "Failed",
        /// ended: the run was cancelled
        Cancelled = "Cancelled",
    }
}

state_words! {
    /// What is said beside the state of a run.
    RunSubstatus {
        /// failed, and everything was undone
        Compensated = "Compensated",
        /// failed, and something was not undone
        PartiallyCompensated = "PartiallyCompensated",
    }
}

state_words! {
    /// The states of a step-run.
    StepWord {
        /// not started, or waiting for its approval
        Pending = "Pending",
        /// started, also between attempts and while it waits for an event, time or another run
        Running = "Running",
        /// waiting for a person to complete it
        WaitingForManualCompletion = "WaitingForManualCompletion",
        /// ended: the action succeeded
        Succeeded = "Succeeded",
        /// ended: the action failed
        Failed = "Failed",
        /// ended: stopped, withdrawn by a person, or never started
        Cancelled = "Cancelled",
    }
}

language_words!();

#[must_use]
pub fn run_state(state: &State) -> RunWord {
    match state.phase() {
        Phase::Void | Phase::Created | Phase::Queued => RunWord::Pending,
        Phase::Running | Phase::Finalizing if state.pause().is_some() => RunWord::Paused,
        Phase::Running if state.is_blocked() && waits_for_approval(state) => {
            RunWord::WaitingForApproval
        }
        Phase::Running | Phase::Finalizing | Phase::Stopping | Phase::Compensating => {
            RunWord::Running
        }
        Phase::Ended(RunOutcome::Succeeded | RunOutcome::Partial) => RunWord::Succeeded,
        Phase::Ended(RunOutcome::Failed(_)) => RunWord::Failed,
        Phase::Ended(RunOutcome::Cancelled(_)) => RunWord::Cancelled,
    }
}

/// How far the undoing of a failed run came; the summary is in its evidence.
#[must_use]
pub fn run_substate(state: &State) -> Option<RunSubstatus> {
    match state.phase() {
        Phase::Ended(RunOutcome::Failed(Rollback::Complete)) => Some(RunSubstatus::Compensated),
        Phase::Ended(RunOutcome::Failed(Rollback::Incomplete)) => {
            Some(RunSubstatus::PartiallyCompensated)
        }
        Phase::Void
        | Phase::Created
        | Phase::Queued
        | Phase::Running
        | Phase::Finalizing
        | Phase::Stopping
        | Phase::Compensating
        | Phase::Ended(
            RunOutcome::Succeeded
            | RunOutcome::Partial
            | RunOutcome::Failed(Rollback::None)
            | RunOutcome::Cancelled(_),
        ) => None,
    }
}

/// The word for the two words of the contract that a list of runs keeps. A list cannot tell a wait for an
/// approval from one for an event, and calls both `WaitingForApproval`.
#[must_use]
pub fn listed_word(status: &str, substatus: Option<&str>) -> &'static str {
    let word = match (status, substatus) {
        ("PENDING" | "APPROVED", _) => RunWord::Pending,
        ("PAUSED", _) => RunWord::Paused,
        ("COMPLETED", _) => RunWord::Succeeded,
        ("FAILED", _) => RunWord::Failed,
        ("CANCELLED", _) => RunWord::Cancelled,
        (_, Some("WAITING_APPROVAL")) => RunWord::WaitingForApproval,
        _ => RunWord::Running,
    };
    word.word()
}

#[must_use]
pub fn step_state(_plan: &Plan, state: &State, at: StepRef) -> StepWord {
    if let Some(run) = state.run(at) {
        return word(run);
    }
    let closed = at
        .item
        .zip(state.visit(at).and_then(|visit| visit.each()))
        .and_then(|(item, each)| each.results().get(item as usize)?.as_ref());
    match closed {
        None => StepWord::Pending,
        Some(ItemResult::Succeeded(_)) => StepWord::Succeeded,
        Some(ItemResult::Failed(_)) => StepWord::Failed,
        Some(ItemResult::Skipped | ItemResult::Cancelled) => StepWord::Cancelled,
    }
}

fn word(run: &StepRun) -> StepWord {
    match run.status() {
        // A retry is still the action that was started; a retry by an operator is a new one.
        Status::Arrived | Status::Ready if run.has_started() => StepWord::Running,
        Status::Arrived | Status::Ready | Status::Denied => StepWord::Pending,
        Status::Running | Status::Looping => StepWord::Running,
        // The approval comes before the action: it has not begun.
        Status::Waiting if waits_for(run, |kind| *kind == WaitKind::Gate) => StepWord::Pending,
        Status::Waiting if waits_for(run, is_person) => StepWord::WaitingForManualCompletion,
        // An event, time or a child: no person is asked for anything.
        Status::Waiting => StepWord::Running,
        Status::Succeeded => StepWord::Succeeded,
        // A person withdrew it: a failure for the run, but not what they said.
        Status::Failed | Status::Held if is_withdrawn(run) => StepWord::Cancelled,
        Status::Failed | Status::Held => StepWord::Failed,
        Status::Skipped | Status::Cancelled => StepWord::Cancelled,
    }
}

fn waits_for(run: &StepRun, wanted: impl FnOnce(&WaitKind) -> bool) -> bool {
    let wait = run.wait();
    wait.is_some_and(|wait| wanted(wait.kind()))
}

fn is_person(kind: &WaitKind) -> bool {
    matches!(kind, WaitKind::Approval | WaitKind::Manual)
}

fn is_withdrawn(run: &StepRun) -> bool {
    let error = run.error();
    error.is_some_and(|error| error.class == ErrorClass::Cancelled)
}

fn waits_for_approval(state: &State) -> bool {
    let approval = |run: &StepRun| {
        waits_for(run, |kind| {
            matches!(kind, WaitKind::Gate | WaitKind::Approval)
        })
    };
    // What waits has not ended.
    let mut open = state.open().iter().filter_map(|at| state.run(*at));
    open.any(approval)
}
