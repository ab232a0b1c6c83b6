//! Why a run is where it is: everything that can make it move. An open run for which this is empty
//! would be silently stuck; the kernel's laws say that there is none.

use crate::command::TimerKind;
use crate::effect::Target;
use crate::event::WaitKind;
use crate::evolve::open_runs;
use crate::plan::{Plan, StepRef};
use crate::state::{Phase, State, Status};
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
pub fn wake_sources(_plan: &Plan, state: &State) -> Vec<WakeSource> {
    let mut sources = Vec::new();
    match state.phase {
        Phase::Void | Phase::Ended(_) => return sources,
        Phase::Created | Phase::Queued => return vec![WakeSource::Queue],
        Phase::Running | Phase::Finalizing | Phase::Stopping | Phase::Compensating => {}
    }
    if state.pause.is_some() {
        sources.push(WakeSource::Operator);
    }
    if !state.due.is_empty() {
        sources.push(WakeSource::Proceed);
    }
    sources.extend(
        state
            .timers
            .iter()
            .map(|(due, id)| WakeSource::Timer { kind: id.kind, due }),
    );
    sources.extend(
        state
            .denied
            .iter()
            .map(|step| WakeSource::Ctx { step: *step }),
    );
    if let Some(undoing) = &state.undoing
        && let Some(at) = undoing.current()
    {
        let target = Target::Undo(at);
        match (&undoing.run.lease, undoing.halted) {
            (Some(lease), _) => sources.push(WakeSource::Lease {
                target,
                until: lease.until,
            }),
            (None, false) => sources.push(WakeSource::Task {
                target,
                visible_at: undoing.run.visible_at,
            }),
            (None, true) => {}
        }
    }
    for at in open_runs(state, |status| !status.is_terminal()) {
        let Some(run) = state.run(at) else { continue };
        let target = Target::Step(at);
        match (run.status, run.wait.as_deref()) {
            (Status::Ready, _) => sources.push(WakeSource::Task {
                target,
                visible_at: run.visible_at,
            }),
            (Status::Running, _) => {
                sources.extend(run.lease.as_ref().map(|lease| WakeSource::Lease {
                    target,
                    until: lease.until,
                }));
            }
            (Status::Held, _) => sources.push(WakeSource::Operator),
            (Status::Waiting, Some(wait)) => match &wait.kind {
                WaitKind::Child { request_key, .. } => {
                    sources.push(WakeSource::Child {
                        step: at,
                        request_key: request_key.clone(),
                    });
                }
                // Its timer is listed already.
                WaitKind::Timer { .. } => {}
                kind => sources.push(WakeSource::Outside {
                    step: at,
                    wait: kind.clone(),
                }),
            },
            _ => {}
        }
    }
    sources
}
