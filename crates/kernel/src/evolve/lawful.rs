//! Which event can follow which state. `evolve` asks here before it changes anything, so a state is either
//! as it was or as the event makes it. Nothing is changed or decided here.

use crate::event::{Body, Event, Routing, SkipReason, StopCause};
use crate::plan::{Plan, StepNo, StepRef};
use crate::state::{Due, Phase, State, Status, StepRun};

/// Why an event cannot follow a state. The texts are stable: they stand in alerts.
pub(super) type Why = &'static str;

/// The reason for an event that names a step-run the state does not have.
pub(super) const NO_STEP_RUN: Why = "there is no such step-run";

fn need(holds: bool, why: Why) -> Result<(), Why> {
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
    need(!state.phase.is_ended(), "the run has ended")?;
    let creates = matches!(event.body, Body::RunCreated { .. });
    match state.phase {
        Phase::Void => need(creates, "the run does not exist")?,
        _ => need(!creates, "the run exists already")?,
    }
    check_body(plan, state, &event.body)
}

fn check_body(plan: &Plan, state: &State, body: &Body) -> Result<(), Why> {
    let phase = state.phase;
    let moving = || need(phase.is_moving(), "the run is not running");
    let step = |at: &StepRef| step_run(plan, state, *at);
    match body {
        Body::RunCreated { .. } | Body::RunFailed { .. } => Ok(()),
        Body::RunQueued {} => need(phase == Phase::Created, "the run was not just created"),
        Body::RunApproved { .. } => {
            need(!has_started(phase), "the run has started already")?;
            need(!state.approved, "the run is approved already")
        }
        Body::RunStarted { .. } => need(!has_started(phase), "the run has started already"),
        Body::RunPaused { .. } => {
            moving()?;
            need(state.pause.is_none(), "the run is paused already")
        }
        Body::RunResumed { ordinal } | Body::PauseDrainTimedOut { ordinal, .. } => {
            let this = |pause: crate::state::Pause| pause.ordinal == *ordinal;
            need(state.pause.is_some_and(this), "this pause is not in force")
        }
        Body::RunStalled { .. } => {
            moving()?;
            need(state.stalled.is_none(), "the run is stalled already")
        }
        Body::RunFinalizing { .. } => {
            need(phase == Phase::Running, "the run is not running")?;
            let last = plan.policy().final_step;
            need(last.is_some(), "the plan has no final step")
        }
        Body::RunStopping { cause, .. } => {
            let stops = phase.is_moving() || phase == Phase::Stopping;
            need(stops, "the run is not running")?;
            match cause {
                StopCause::StepFailed { step } => visited(state, *step),
                StopCause::RunTimeout
                | StopCause::StallTimeout { .. }
                | StopCause::Cancel { .. }
                | StopCause::Emergency { .. } => Ok(()),
            }
        }
        Body::RunCompleted { .. } => moving(),
        Body::RunCancelled { .. } => {
            need(!phase.is_moving(), "the run is running and has not stopped")
        }
        Body::SignalAccepted { signal_id, .. } | Body::SignalRejected { signal_id, .. } => {
            let known = state.signals.contains_key(signal_id);
            need(!known, "the signal was decided already")
        }
        Body::CtxPatched { .. } => moving(),
        Body::ParamsUpdated { .. } => not_stopping(phase),
        Body::OverrideInjected { step, .. } | Body::TargetUpdated { step, .. } => {
            known(plan, *step)?;
            not_stopping(phase)
        }
        Body::EventReceived { event_id, .. } => {
            let seen = state.seen_events.contains(event_id);
            need(!seen, "the event was received already")
        }
        Body::StepStarted {
            step: at,
            logical,
            execution,
            lease,
            each,
        } => {
            let run = step(at)?;
            need(!run.has_started(), "the logical attempt has started")?;
            same_logical(run, *logical)?;
            next_execution(run, *execution)?;
            let expected: &[Status] = match (lease, each) {
                (Some(_), None) => &[Status::Ready],
                (None, None) => &[Status::Arrived, Status::Waiting],
                (None, Some(_)) if at.item.is_none() && plan.step(at.step).each.is_some() => {
                    &[Status::Arrived]
                }
                (_, Some(_)) => return Err("the step has no loop"),
            };
            is_one_of(run, expected)
        }
        Body::StepExecutionStarted {
            step: at,
            logical,
            execution,
            ..
        } => {
            let run = step(at)?;
            need(run.has_started(), "the logical attempt has not started")?;
            same_logical(run, *logical)?;
            next_execution(run, *execution)?;
            is_one_of(run, &[Status::Ready, Status::Waiting])
        }
        Body::StepExecutionFailed {
            step: at,
            logical,
            execution,
            ..
        } => {
            let run = step(at)?;
            same_logical(run, *logical)?;
            same_execution(run, *execution)?;
            is_one_of(run, &[Status::Running, Status::Waiting])
        }
        Body::StepWaiting {
            step: at,
            logical,
            execution,
            ..
        } => {
            let run = step(at)?;
            same_logical(run, *logical)?;
            same_execution(run, *execution)?;
            is_one_of(run, &[Status::Arrived, Status::Running])
        }
        Body::StepApproved { step: at, .. } | Body::StepWoken { step: at, .. } => {
            let run = step(at)?;
            is_one_of(run, &[Status::Waiting])?;
            need(run.wait.is_some(), "the step-run does not wait")
        }
        Body::StepHeld { step: at, .. } => is_one_of(step(at)?, &[Status::Failed]),
        Body::StepRetried { step: at, logical } => {
            let run = step(at)?;
            need(at.item.is_none(), "an item is retried with its loop")?;
            need(*logical > run.logical, "the logical attempt does not rise")?;
            is_one_of(run, &[Status::Failed, Status::Held])
        }
        Body::StepCompleted {
            step: at,
            logical,
            routing,
            ..
        } => {
            let run = step(at)?;
            same_logical(run, *logical)?;
            is_one_of(run, UNFINISHED)?;
            routing.iter().try_for_each(|it| edges(plan, *at, it))
        }
        Body::StepFailed {
            step: at, logical, ..
        } => {
            let run = step(at)?;
            same_logical(run, *logical)?;
            is_one_of(run, UNFINISHED)
        }
        Body::StepSkipped {
            step: at, reason, ..
        } => match state.run(*at) {
            Some(run) => match run.status {
                Status::Succeeded | Status::Skipped => Err("the step-run has ended"),
                Status::Failed => need(*reason == SkipReason::OnFailure, "the step-run failed"),
                Status::Cancelled => need(*reason == SkipReason::Operator, "the step-run ended"),
                Status::Arrived
                | Status::Denied
                | Status::Ready
                | Status::Running
                | Status::Waiting
                | Status::Looping
                | Status::Held => Ok(()),
            },
            None => {
                known(plan, at.step)?;
                let next = state.step(at.step).visits.len() + 1;
                let unreached = at.item.is_none() && at.visit as usize == next;
                need(unreached, NO_STEP_RUN)
            }
        },
        Body::StepRouted { step: at, routing } => {
            step(at)?;
            let due = [Due::Route(*at), Due::Failure(*at)];
            let is_due = due.iter().any(|due| state.due.contains(due));
            need(is_due, "no tokens of this step-run are due to move")?;
            edges(plan, *at, routing)
        }
        Body::TokensAdmitted { tokens } => {
            moving()?;
            let denied = tokens.iter().all(|token| state.denied.contains(token));
            need(denied, "it admits a token that was not denied")
        }
        Body::CompensationStarted {
            undo,
            not_compensable,
        } => {
            need(phase == Phase::Stopping, "the run is not stopping")?;
            need(state.undoing.is_none(), "the undoing has started already")?;
            let mut all = undo.iter().chain(not_compensable);
            all.try_for_each(|at| visited(state, *at))
        }
        Body::CompensationInterrupted { .. } => {
            let undoing = state.undoing.as_ref().ok_or(NOT_UNDOING)?;
            let interrupted = undoing.interrupted.is_some();
            need(!interrupted, "the undoing is interrupted already")
        }
        Body::UndoStarted {
            step, execution, ..
        } => {
            let run = undo_run(state, *step)?;
            next_execution(run, *execution)?;
            is_one_of(run, &[Status::Ready])
        }
        Body::UndoExecutionFailed {
            step, execution, ..
        }
        | Body::UndoCompleted { step, execution }
        | Body::UndoFailed {
            step, execution, ..
        } => {
            let run = undo_run(state, *step)?;
            same_execution(run, *execution)?;
            is_one_of(run, &[Status::Running])
        }
    }
}

pub(super) const NOT_UNDOING: Why = "nothing is being undone";

/// The statuses of a step-run that can still end by itself.
const UNFINISHED: &[Status] = &[
    Status::Arrived,
    Status::Ready,
    Status::Running,
    Status::Waiting,
    Status::Looping,
];

fn has_started(phase: Phase) -> bool {
    !matches!(phase, Phase::Void | Phase::Created | Phase::Queued)
}

fn not_stopping(phase: Phase) -> Result<(), Why> {
    let stopping = matches!(phase, Phase::Stopping | Phase::Compensating);
    need(!stopping, "the run is stopping")
}

fn known(plan: &Plan, no: StepNo) -> Result<(), Why> {
    need((no.0 as usize) < plan.len(), "the plan has no such step")
}

fn visited(state: &State, at: StepRef) -> Result<(), Why> {
    need(state.visit(at).is_some(), NO_STEP_RUN)
}

fn step_run<'s>(plan: &Plan, state: &'s State, at: StepRef) -> Result<&'s StepRun, Why> {
    known(plan, at.step)?;
    state.run(at).ok_or(NO_STEP_RUN)
}

fn undo_run(state: &State, at: StepRef) -> Result<&StepRun, Why> {
    let undoing = state.undoing.as_ref().ok_or(NOT_UNDOING)?;
    need(
        undoing.current() == Some(at),
        "another step is being undone",
    )?;
    Ok(&undoing.run)
}

fn is_one_of(run: &StepRun, expected: &[Status]) -> Result<(), Why> {
    need(
        expected.contains(&run.status),
        "the status of the step-run does not allow it",
    )
}

fn same_logical(run: &StepRun, logical: u32) -> Result<(), Why> {
    need(run.logical == logical, "it is of another logical attempt")
}

fn same_execution(run: &StepRun, execution: u32) -> Result<(), Why> {
    need(run.execution == execution, "it is of another execution")
}

fn next_execution(run: &StepRun, execution: u32) -> Result<(), Why> {
    need(
        execution > run.execution,
        "the execution number does not rise",
    )
}

fn edges(plan: &Plan, at: StepRef, routing: &Routing) -> Result<(), Why> {
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
