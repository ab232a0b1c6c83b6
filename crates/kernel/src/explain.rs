//! Why a run is where it is: everything that can make it move. An open run for which this is empty
//! would be silently stuck; the kernel's laws say that there is none.

use crate::command::{TimerId, TimerKind};
use crate::decide::is_unsettled;
use crate::effect::Target;
use crate::event::{TaskKind, WaitKind};
use crate::evolve::claimable_deadline;
use crate::plan::{Plan, StepRef};
use crate::state::{Phase, State, Status, StepRun};
use crate::time::Time;

/// Something that can make a run move.
#[derive(Clone, Debug, PartialEq)]
pub enum WakeSource {
    /// The run has not started: it waits for a slot, an approval or its start time.
    Queue,
    /// Work that a worker can claim.
    Task {
        /// The step-run whose work or undo can be claimed.
        target: Target,
        /// When the work can be claimed at the earliest.
        visible_at: Time,
        /// Ordinary work, or a wait that ran out.
        task: TaskKind,
    },
    /// A worker has claimed work: its result or the end of its lease moves the run.
    Lease {
        /// The step-run whose work or undo the worker has.
        target: Target,
        /// When the lease ends, as the claim granted it.
        until: Time,
    },
    /// A person must answer, or an external event must come.
    Outside {
        /// The step-run that waits.
        step: StepRef,
        wait: WaitKind,
    },
    /// A child run must end.
    Child {
        /// The step-run that waits.
        step: StepRef,
        /// The key that the child was started with.
        request_key: String,
    },
    /// A timer must become due.
    Timer {
        kind: TimerKind,
        /// When the engine fires the timer.
        due: Time,
    },
    /// An operator must act: the run is paused, or a failed step is held.
    Operator,
    /// A change of ctx can admit a token that may not enter its step now.
    Ctx {
        /// The visit that the token is for.
        step: StepRef,
    },
    /// The engine must send `Proceed`: the last decision reached the limit of events.
    Proceed,
}

/// Everything that can make a run move; empty only if the run has ended or was never created.
#[must_use]
pub fn wake_sources(plan: &Plan, state: &State) -> Vec<WakeSource> {
    match state.phase() {
        Phase::Void | Phase::Ended(_) => return Vec::new(),
        Phase::Created | Phase::Queued => return vec![WakeSource::Queue],
        Phase::Running | Phase::Finalizing | Phase::Stopping | Phase::Compensating => {}
    }
    let mut sources = Vec::new();
    let paused = state.pause().is_some();
    if paused {
        sources.push(WakeSource::Operator);
    }
    if is_unsettled(state) {
        sources.push(WakeSource::Proceed);
    }
    // A pause holds every timer back but its own.
    let timers = state.timers().iter();
    let counts = |id: &TimerId| !paused || id.kind == TimerKind::Drain;
    sources.extend(
        timers
            .filter(|(_, id)| counts(id))
            .map(|(due, id)| WakeSource::Timer { kind: id.kind, due }),
    );
    if state.phase().is_moving() {
        let denied = state.denied().iter();
        sources.extend(denied.map(|step| WakeSource::Ctx { step: *step }));
    }
    sources.extend(undo_source(state));
    for at in state.open() {
        if let Some(run) = state.run(*at) {
            step_sources(plan, state, *at, run, &mut sources);
        }
    }
    sources
}

/// The undo that a worker has or can claim.
fn undo_source(state: &State) -> Option<WakeSource> {
    let undoing = state.undoing().filter(|it| !it.is_over())?;
    let (target, run) = (Target::Undo(undoing.current()?), undoing.run());
    Some(match run.lease() {
        Some(lease) => WakeSource::Lease {
            target,
            until: lease.until,
        },
        None => WakeSource::Task {
            target,
            visible_at: run.visible_at(),
            task: run.task(),
        },
    })
}

/// What can make a step-run move. In a run that stops only what is in flight can.
fn step_sources(
    plan: &Plan,
    state: &State,
    at: StepRef,
    run: &StepRun,
    sources: &mut Vec<WakeSource>,
) {
    let target = Target::Step(at);
    let moving = state.phase().is_moving();
    let claimable = moving && state.pause().is_none();
    match run.status() {
        Status::Ready if claimable => sources.push(WakeSource::Task {
            target,
            visible_at: run.visible_at(),
            task: run.task(),
        }),
        Status::Running => {
            sources.extend(run.lease().map(|lease| WakeSource::Lease {
                target,
                until: lease.until,
            }));
        }
        Status::Held if moving => sources.push(WakeSource::Operator),
        Status::Waiting => match run.wait().map(|wait| wait.kind()) {
            Some(WaitKind::Child { request_key, .. }) => {
                sources.push(WakeSource::Child {
                    step: at,
                    request_key: request_key.clone(),
                });
            }
            // Its timer is listed already.
            Some(WaitKind::Timer { .. }) | None => {}
            Some(
                kind @ (WaitKind::Gate
                | WaitKind::Approval
                | WaitKind::Manual
                | WaitKind::Event { .. }),
            ) => {
                if !moving {
                    return;
                }
                sources.push(WakeSource::Outside {
                    step: at,
                    wait: kind.clone(),
                });
                let deadline = claimable_deadline(plan, run).filter(|_| claimable);
                sources.extend(deadline.map(|visible_at| WakeSource::Task {
                    target,
                    visible_at,
                    task: TaskKind::WaitingTimeout,
                }));
            }
        },
        Status::Arrived
        | Status::Denied
        | Status::Ready
        | Status::Looping
        | Status::Held
        | Status::Succeeded
        | Status::Failed
        | Status::Skipped
        | Status::Cancelled => {}
    }
}
