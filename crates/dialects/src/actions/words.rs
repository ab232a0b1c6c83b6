//! The language's words for the kernel's states. Total: every state has one.

use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::{Rollback, WaitKind};
use stepwell_kernel::plan::{ErrorClass, Plan, StepRef};
use stepwell_kernel::state::{ItemResult, Phase, State, Status, StepRun};

/// The run's status.
#[must_use]
pub fn run_word(state: &State) -> &'static str {
    match state.phase() {
        Phase::Void | Phase::Created | Phase::Queued => "Pending",
        Phase::Running | Phase::Finalizing if state.pause().is_some() => "Paused",
        Phase::Running if state.is_blocked() && waits_for_approval(state) => "WaitingForApproval",
        Phase::Running | Phase::Finalizing | Phase::Stopping | Phase::Compensating => "Running",
        Phase::Ended(RunOutcome::Succeeded | RunOutcome::Partial) => "Succeeded",
        Phase::Ended(RunOutcome::Failed(_)) => "Failed",
        Phase::Ended(RunOutcome::Cancelled(_)) => "Cancelled",
    }
}

/// How far the undoing of a failed run came; the summary is in its evidence.
#[must_use]
pub fn run_substatus(state: &State) -> Option<&'static str> {
    match state.phase() {
        Phase::Ended(RunOutcome::Failed(Rollback::Complete)) => Some("Compensated"),
        Phase::Ended(RunOutcome::Failed(Rollback::Incomplete)) => Some("PartiallyCompensated"),
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

/// An action's status.
#[must_use]
pub fn step_word(_plan: &Plan, state: &State, at: StepRef) -> &'static str {
    if let Some(run) = state.run(at) {
        return word(run);
    }
    let closed = at
        .item
        .zip(state.visit(at).and_then(|visit| visit.each()))
        .and_then(|(item, each)| each.results().get(item as usize)?.as_ref());
    match closed {
        None => "Pending",
        Some(ItemResult::Succeeded(_)) => "Succeeded",
        Some(ItemResult::Failed(_)) => "Failed",
        Some(ItemResult::Skipped | ItemResult::Cancelled) => "Cancelled",
    }
}

fn word(run: &StepRun) -> &'static str {
    match run.status() {
        // A retry is still the action that was started; a retry by an operator is a new one.
        Status::Arrived | Status::Ready if run.has_started() => "Running",
        Status::Arrived | Status::Ready | Status::Denied => "Pending",
        Status::Running | Status::Looping => "Running",
        // The approval comes before the action: it has not begun.
        Status::Waiting if waits_for(run, |kind| *kind == WaitKind::Gate) => "Pending",
        Status::Waiting if waits_for(run, is_person) => "WaitingForManualCompletion",
        // An event, time or a child: no person is asked for anything.
        Status::Waiting => "Running",
        Status::Succeeded => "Succeeded",
        // A person withdrew it: a failure for the run, but not what they said.
        Status::Failed | Status::Held if is_withdrawn(run) => "Cancelled",
        Status::Failed | Status::Held => "Failed",
        Status::Skipped | Status::Cancelled => "Cancelled",
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
    let mut visits = state.steps().iter().flat_map(|step| step.visits());
    visits.any(|visit| {
        let mut items = visit
            .each()
            .into_iter()
            .flat_map(|each| each.active().values());
        approval(visit.run()) || items.any(approval)
    })
}
