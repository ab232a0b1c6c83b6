//! Timers: what happens when one is due. A timer that was disarmed or armed anew is refused, so it
//! does no harm that the engine may fire one twice or late.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | the timer is armed and due, `FireTimer` | by its kind: `StepWoken` or a success after a wait for time, `PauseDrainTimedOut`, a failed execution, a stop | – |
//! | the timer is armed and not due, `FireTimer` | – | `TIMER_NOT_DUE` |
//! | the timer is not armed, `FireTimer` | – | `TIMER_STALE` |
//! | paused, and not the drain timer, `FireTimer` | – | `RUN_PAUSED` |
//! | Ended, `FireTimer` | – | `RUN_TERMINAL` |

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::{Decider, Handled, reject, terminal};
use crate::codes;
use crate::command::{Reply, TimerId, TimerKind};
use crate::effect::Target;
use crate::event::{Body, Patch, StepError, StopCause, WaitKind};
use crate::plan::{ErrorClass, StepRef};
use crate::rejection::{Code, Rejection};

impl Decider<'_> {
    pub(super) fn fire_timer(&mut self, id: TimerId) -> Handled {
        if self.state.phase().is_ended() {
            return terminal();
        }
        self.check_timer(id)?;
        if self.state.pause().is_some() && id.kind != TimerKind::Drain {
            return reject(
                Code::RunPaused,
                "the run is paused: its deadlines are looked at when it resumes",
            );
        }
        self.timer_due(id);
        Ok(Reply::Done)
    }

    fn check_timer(&self, id: TimerId) -> Result<(), Rejection> {
        let armed = match id.target {
            Some(target) => self.state.target(target).and_then(|run| run.timer()),
            None => self.state.timers().own(id.kind),
        };
        match armed {
            Some((due, armed)) if armed == id && due <= self.now => Ok(()),
            Some((due, armed)) if armed == id => {
                reject(Code::TimerNotDue, format!("the timer is due at {due}"))
            }
            _ => reject(Code::TimerStale, "the timer was disarmed or armed anew"),
        }
    }

    /// Fires every timer that became due while the run was paused.
    pub(super) fn fire_overdue(&mut self) {
        while self.state.pause().is_none()
            && let Some((due, id)) = self.state.timers().next()
            && due <= self.now
            && !self.is_full()
        {
            let before = self.state.seq();
            self.timer_due(id);
            self.settle();
            if self.state.seq() == before {
                return;
            }
        }
    }

    fn timer_due(&mut self, id: TimerId) {
        match (id.kind, id.target) {
            (TimerKind::Attempt, Some(target)) => {
                let at = target.step_ref();
                let step = self.plan.step(at.step);
                let limit = match target {
                    Target::Step(_) => step.timeout_ms,
                    Target::Undo(_) => step.undo.as_ref().and_then(|undo| undo.timeout_ms),
                };
                let message = format!("took longer than {} ms", limit.unwrap_or_default());
                let Some(run) = self.state.target(target) else {
                    return self.missing(at);
                };
                let execution = run.execution();
                self.execution_failed(target, execution, timeout(message), None, None);
            }
            (TimerKind::Wait, Some(Target::Step(at))) => self.wait_over(at),
            (TimerKind::Hold, Some(Target::Step(step))) => {
                self.stop(StopCause::StepFailed { step }, false);
            }
            (TimerKind::Run, _) => {
                let compensate = self.plan.policy().timeout_compensates;
                self.stop(StopCause::RunTimeout, compensate);
            }
            (TimerKind::Drain, _) => {
                let Some(pause) = self.state.pause() else {
                    return self.invalid("a drain timer is armed and the run is not paused");
                };
                let ordinal = pause.ordinal();
                let in_flight = self.state.tally().running();
                self.emit(Body::PauseDrainTimedOut { ordinal, in_flight });
            }
            (TimerKind::Stall, _) => {
                let stuck = self.state.stalled().unwrap_or_default().to_vec();
                self.stop(StopCause::StallTimeout { stuck }, false);
            }
            (TimerKind::Wait | TimerKind::Hold, Some(Target::Undo(_)) | None)
            | (TimerKind::Attempt, None) => {
                self.invalid("a timer is armed for a target that cannot have one");
            }
        }
    }

    /// A wait's deadline: the time it waited for has come, or what it waited for has not.
    fn wait_over(&mut self, at: StepRef) {
        let Some(run) = self.state.run(at) else {
            return self.missing(at);
        };
        let execution = run.execution();
        let Some(wait) = run.wait() else {
            return self.invalid("a step-run has the timer of a wait and does not wait");
        };
        match wait.kind() {
            WaitKind::Timer { rerun: true } => {
                let body = Body::StepWoken {
                    step: at,
                    execution,
                    event_id: None,
                    payload: None,
                    by: None,
                };
                self.emit(body);
            }
            WaitKind::Timer { rerun: false } => {
                let output: Arc<Json> = Arc::new(json!({ "waited": true }));
                self.succeed(at, execution, output, Patch::new(), Vec::new(), None);
            }
            WaitKind::Event {
                event_type,
                rerun: true,
            } => {
                let error = timeout(format!("no event {event_type} came in time"));
                self.execution_failed(Target::Step(at), execution, error, None, None);
            }
            WaitKind::Event {
                event_type,
                rerun: false,
            } => {
                let error = timeout(format!("no event {event_type} came in time"));
                self.fail_for_good(at, execution, error, None);
            }
            WaitKind::Gate | WaitKind::Approval | WaitKind::Manual | WaitKind::Child { .. } => {
                self.fail_unstarted(at, timeout("nobody answered in time".into()), None);
            }
        }
    }
}

fn timeout(message: String) -> StepError {
    StepError::new(ErrorClass::Timeout, codes::TIMEOUT, message)
}
