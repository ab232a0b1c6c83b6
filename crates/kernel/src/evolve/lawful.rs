//! Which event can follow which state. `evolve` asks here before it changes anything, so a state is either
//! as it was or as the event makes it. What an event of a group needs is checked beside the code that applies it;
//! what all events need, and the conditions they share, are here. Nothing is changed or decided here.

use super::{compensation, notice, outcome, run, step};
use crate::event::{
    Body, Event, Routing, notice_events, outcome_events, run_events, step_events, undo_events,
};
use crate::plan::{Plan, StepNo, StepRef};
use crate::state::{Pause, Phase, State, Status, StepRun};

/// Why an event cannot follow a state. The texts are stable: they stand in alerts.
pub(super) type Why = &'static str;

/// The reason for an event that names a step-run the state does not have.
pub(super) const NO_STEP_RUN: Why = "there is no such step-run";

pub(super) fn need(holds: bool, why: Why) -> Result<(), Why> {
    if holds { Ok(()) } else { Err(why) }
}

/// Whether an event can follow the state.
pub(super) fn check(plan: &Plan, state: &State, event: &Event) -> Result<(), Why> {
    need(
        event.seq == state.seq + 1,
        "its sequence number is not the next one",
    )?;
    need(
        event.at >= state.last_at,
        "it is earlier than the event before it",
    )?;
    if matches!(event.body, Body::Opaque(_)) {
        // Whatever it says, it changes nothing: only the place in the log counts.
        return need(state.phase != Phase::Void, "the run does not exist");
    }
    need(!state.phase.is_ended(), "the run has ended")?;
    let creates = matches!(event.body, Body::RunCreated { .. });
    match state.phase == Phase::Void {
        true => need(creates, "the run does not exist")?,
        false => need(!creates, "the run exists already")?,
    }
    check_body(plan, state, &event.body)
}

fn check_body(plan: &Plan, state: &State, body: &Body) -> Result<(), Why> {
    match body {
        run_events!() => run::check(plan, state, body),
        notice_events!() => notice::check(plan, state, body),
        step_events!() => step::check(plan, state, body),
        outcome_events!() => outcome::check(plan, state, body),
        undo_events!() => compensation::check(plan, state, body),
        Body::Opaque(_) => Ok(()),
    }
}

pub(super) fn moving(phase: Phase) -> Result<(), Why> {
    need(phase.is_moving(), "the run is not running")
}

pub(super) fn in_force(state: &State, ordinal: u32) -> Result<(), Why> {
    let this = |pause: Pause| pause.ordinal == ordinal;
    need(state.pause.is_some_and(this), "this pause is not in force")
}

pub(super) const NOT_UNDOING: Why = "nothing is being undone";

/// The statuses of a step-run that can still end by itself.
pub(super) const UNFINISHED: &[Status] = &[
    Status::Arrived,
    Status::Ready,
    Status::Running,
    Status::Waiting,
    Status::Looping,
];

pub(super) fn has_started(phase: Phase) -> bool {
    !matches!(phase, Phase::Void | Phase::Created | Phase::Queued)
}

pub(super) fn not_stopping(phase: Phase) -> Result<(), Why> {
    let stopping = matches!(phase, Phase::Stopping | Phase::Compensating);
    need(!stopping, "the run is stopping")
}

pub(super) fn known(plan: &Plan, no: StepNo) -> Result<(), Why> {
    need((no.0 as usize) < plan.len(), "the plan has no such step")
}

pub(super) fn visited(state: &State, at: StepRef) -> Result<(), Why> {
    need(state.visit(at).is_some(), NO_STEP_RUN)
}

pub(super) fn step_run<'s>(plan: &Plan, state: &'s State, at: StepRef) -> Result<&'s StepRun, Why> {
    known(plan, at.step)?;
    state.run(at).ok_or(NO_STEP_RUN)
}

pub(super) fn undo_run(state: &State, at: StepRef) -> Result<&StepRun, Why> {
    let undoing = state.undoing.as_ref().ok_or(NOT_UNDOING)?;
    need(
        undoing.current() == Some(at),
        "another step is being undone",
    )?;
    Ok(&undoing.run)
}

pub(super) fn is_one_of(run: &StepRun, expected: &[Status]) -> Result<(), Why> {
    need(
        expected.contains(&run.status),
        "the status of the step-run does not allow it",
    )
}

pub(super) fn same_logical(run: &StepRun, logical: u32) -> Result<(), Why> {
    need(run.logical == logical, "it is of another logical attempt")
}

pub(super) fn same_execution(run: &StepRun, execution: u32) -> Result<(), Why> {
    need(run.execution == execution, "it is of another execution")
}

pub(super) fn next_execution(run: &StepRun, execution: u32) -> Result<(), Why> {
    need(
        execution > run.execution,
        "the execution number does not rise",
    )
}

pub(super) fn edges(plan: &Plan, at: StepRef, routing: &Routing) -> Result<(), Why> {
    let leaves = |edge: crate::plan::EdgeNo| {
        let edge = plan.net().edges.get(edge.0 as usize);
        edge.is_some_and(|edge| edge.from == at.step)
    };
    let mut taken = routing.taken.iter();
    need(
        taken.all(|taken| leaves(taken.edge)),
        "it takes an edge that does not leave the step",
    )
}
