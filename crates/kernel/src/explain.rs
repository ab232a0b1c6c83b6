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
    /// It waits for a slot, an approval or its start time.
    Queue,
    /// Work that a worker can claim.
    Task {
        /// Whose.
        target: Target,
        /// From when.
        visible_at: Time,
        /// As what: ordinary work, or a wait that ended.
        task: TaskKind,
    },
    /// A worker that has it, or the end of its lease.
    Lease {
        /// Whose.
        target: Target,
        /// Until when it was granted.
        until: Time,
    },
    /// A person or an event.
    Outside {
        /// Which step waits.
        step: StepRef,
        /// For what.
        wait: WaitKind,
    },
    /// A child run.
    Child {
        /// Which step waits.
        step: StepRef,
        /// The child's key.
        request_key: String,
    },
    /// Time.
    Timer {
        /// Which timer.
        kind: TimerKind,
        /// When.
        due: Time,
    },
    /// An operator: the run is paused, or a failed step is held.
    Operator,
    /// A change of ctx, for tokens that may not enter.
    Ctx {
        /// Which token.
        step: StepRef,
    },
    /// The engine itself: a decision was cut short and goes on with `Proceed`.
    Proceed,
}

/// Everything that can make a run move; empty only if it has ended or never began.
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
    match (run.status(), run.wait()) {
        (Status::Ready, _) if claimable => sources.push(WakeSource::Task {
            target,
            visible_at: run.visible_at(),
            task: run.task(),
        }),
        (Status::Running, _) => {
            sources.extend(run.lease().map(|lease| WakeSource::Lease {
                target,
                until: lease.until,
            }));
        }
        (Status::Held, _) if moving => sources.push(WakeSource::Operator),
        (Status::Waiting, Some(wait)) => match wait.kind() {
            WaitKind::Child { request_key, .. } => {
                sources.push(WakeSource::Child {
                    step: at,
                    request_key: request_key.clone(),
                });
            }
            // Its timer is listed already.
            WaitKind::Timer { .. } => {}
            kind if moving => {
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
            _ => {}
        },
        _ => {}
    }
}
