//! Stopping: a failure that ends the run, a cancel or a timeout never jumps to the end. Open steps are
//! ended one by one, work in flight ends by its result, a kill or its lease, children are awaited.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | Created or Queued, `CancelRun` | `RunCancelled` | `AUTHZ_DENIED` |
//! | Running or Finalizing, `CancelRun` | `RunStopping` | `AUTHZ_DENIED` |
//! | Compensating, `CancelRun` | `CompensationInterrupted` | `AUTHZ_DENIED`, `RUN_UNDOING` where the undo is to be kept |
//! | any other state, `CancelRun` | – | `RUN_TERMINAL`, `RUN_STOPPING` |
//! | Stopping, a step-run that nobody works on | `StepFailed` if it had started, `unknown` if it was cut off in the middle, else `StepSkipped` | – |
//! | Stopping, nothing is in flight | `StepSkipped` for steps that were never reached, then undoing, or after a failure the final step as `settle.rs` says, or `RunFailed` or `RunCancelled` | – |

use super::{Decider, Handled, reject, terminal};
use crate::codes;
use crate::command::{Actor, Reply, Role};
use crate::event::{Body, Rollback, SkipReason, StepError, StopCause};
use crate::evolve::open_runs;
use crate::plan::{ErrorClass, StepRef};
use crate::rejection::Code;
use crate::state::{Due, Phase, Status, StepRun};

impl Decider<'_> {
    pub(super) fn cancel(
        &mut self,
        actor: &Actor,
        reason: Option<String>,
        compensate: bool,
        keep_undo: bool,
    ) -> Handled {
        self.check_tenant(actor)?;
        match self.state.phase() {
            Phase::Ended(_) => return terminal(),
            Phase::Stopping => return reject(Code::RunStopping, "the run is stopping already"),
            Phase::Void
            | Phase::Created
            | Phase::Queued
            | Phase::Running
            | Phase::Finalizing
            | Phase::Compensating => {}
        }
        if actor.role < Role::Operator {
            return reject(Code::AuthzDenied, "cancelling needs the role operator");
        }
        if keep_undo && self.state.phase() == Phase::Compensating {
            return reject(
                Code::RunUndoing,
                "the run is undoing its steps, and a cancel would drop the rest of that; wait for its end, or say that \
                 the undo is to be abandoned",
            );
        }
        self.begin_cancel(Some(actor.id.clone()), reason, compensate);
        Ok(Reply::Done)
    }

    /// Cancels from any state that is not the end. In a run that is stopping the first cause stays.
    pub(super) fn begin_cancel(
        &mut self,
        by: Option<String>,
        reason: Option<String>,
        compensate: bool,
    ) {
        match self.state.phase() {
            Phase::Created | Phase::Queued => {
                self.emit(Body::RunCancelled {
                    by,
                    reason,
                    rollback: Rollback::None,
                    undos: Vec::new(),
                });
            }
            Phase::Running | Phase::Finalizing => {
                self.emit(Body::RunStopping {
                    cause: StopCause::Cancel { by, reason },
                    compensate,
                });
            }
            Phase::Compensating if !self.is_interrupted() => {
                self.emit(Body::CompensationInterrupted { by, reason });
            }
            Phase::Void | Phase::Stopping | Phase::Compensating | Phase::Ended(_) => {}
        }
    }

    /// Stops the run for a reason of its own. Compensate beats abort: a failure that was not answered
    /// yet, and now never will be, may have asked for undoing.
    pub(super) fn stop(&mut self, cause: StopCause, compensate: bool) {
        let asked = || {
            self.state.due().iter().any(|due| match due {
                Due::Failure(at) => self.undoes(*at),
                Due::Enter(_) | Due::Route(_) => false,
            })
        };
        let compensate = compensate || asked();
        self.emit(Body::RunStopping { cause, compensate });
    }

    fn is_interrupted(&self) -> bool {
        self.state
            .undoing()
            .is_some_and(|undoing| undoing.interrupted().is_some())
    }

    /// Ends a step that is still open: one that had started has failed, one that had not is skipped. Of work that was
    /// cut off in the middle nobody knows whether it had its effect.
    pub(super) fn cancel_step(&mut self, at: StepRef, why: &str) {
        let Some(run) = self.state.run(at) else {
            return self.missing(at);
        };
        let (logical, execution) = (run.logical(), run.execution());
        if run.has_started() {
            let unknown = is_cut_off(run);
            let error = match unknown {
                true => StepError::new(
                    ErrorClass::Cancelled,
                    codes::OUTCOME_UNKNOWN,
                    format!("{why}; whether its work took effect is not known"),
                ),
                false => StepError::new(ErrorClass::Cancelled, codes::CANCELLED, why),
            };
            self.emit(Body::StepFailed {
                step: at,
                logical,
                execution,
                error,
                cancelled: true,
                unknown,
                by: None,
            });
        } else {
            self.emit(Body::StepSkipped {
                step: at,
                logical,
                reason: SkipReason::Cancelled,
            });
        }
    }

    pub(super) fn settle_stopping(&mut self) {
        if let Some(Due::Enter(at)) = self.state.due().first() {
            return self.enter(at);
        }
        if self.state.tally().idle() > 0 {
            return self.end_idle();
        }
        if self.state.tally().in_flight() == 0 {
            self.end_stopped();
        }
    }

    /// Ends every open step that nobody works on. Children are awaited.
    fn end_idle(&mut self) {
        let open = open_runs(self.state, |status| {
            matches!(
                status,
                Status::Arrived | Status::Denied | Status::Ready | Status::Waiting
            )
        });
        for at in open {
            let is_child = self.state.run(at).is_some_and(|run| run.child().is_some());
            if !is_child && !self.is_full() {
                self.cancel_step(at, "the run was stopped");
            }
        }
    }

    /// No lease is left: what was done is undone, or the run ends.
    fn end_stopped(&mut self) {
        let Some(stop) = self.state.stop().cloned() else {
            return self.invalid("the run stops without a cause");
        };
        if stop.compensate() && self.state.undoing().is_none() && self.begin_compensation() {
            return;
        }
        // The final step reports failures, so it runs after one; it does not after a cancel or a timeout.
        if let StopCause::StepFailed { .. } = stop.cause()
            && let Some(step) = self.plan.policy().final_step
            && self.state.step(step).visits().is_empty()
        {
            return self.finalize(step);
        }
        self.end_run();
    }

    /// The terminal event of a run that was stopped, after the steps that were never reached.
    pub(super) fn end_run(&mut self) {
        let Some(stop) = self.state.stop().cloned() else {
            return self.invalid("the run stops without a cause");
        };
        let (rollback, undos) = self.rollback();
        let interrupted = self
            .state
            .undoing()
            .and_then(|undoing| undoing.interrupted().cloned());
        let cancelled = match (stop.cause(), interrupted) {
            (_, Some((by, reason))) => Some((by, reason)),
            (StopCause::Cancel { by, reason }, None) => Some((by.clone(), reason.clone())),
            (StopCause::Emergency { by, reason }, None) => Some((by.clone(), Some(reason.clone()))),
            (
                StopCause::StepFailed { .. }
                | StopCause::RunTimeout
                | StopCause::StallTimeout { .. },
                None,
            ) => None,
        };
        if self.plan.policy().skip_unreached && self.skip_unreached(cancelled.is_some()) {
            return;
        }
        match cancelled {
            Some((by, reason)) => self.emit(Body::RunCancelled {
                by,
                reason,
                rollback,
                undos,
            }),
            None => {
                let error = self.stop_error(stop.cause());
                self.emit(Body::RunFailed {
                    error,
                    rollback,
                    undos,
                });
            }
        }
    }

    fn skip_unreached(&mut self, cancelled: bool) -> bool {
        let reason = if cancelled {
            SkipReason::Cancelled
        } else {
            SkipReason::DependencyFailed
        };
        let mut skipped = false;
        for no in self.plan.numbers() {
            if self.state.step(no).visits().is_empty() && !self.is_full() {
                skipped = true;
                self.emit(Body::StepSkipped {
                    step: StepRef::first(no),
                    logical: 1,
                    reason,
                });
            }
        }
        skipped
    }

    fn stop_error(&self, cause: &StopCause) -> StepError {
        match cause {
            StopCause::StepFailed { step } => {
                let id = self.plan.step_id(*step);
                let own = self.state.run(*step).and_then(|run| run.error());
                // A step that succeeded and could not be routed has no error of its own.
                let mut failures = self.state.failures().iter();
                let unrouted = || failures.find(|it| it.step() == *step).map(|it| it.error());
                match own.or_else(unrouted).cloned() {
                    Some(error) => StepError {
                        message: format!("{id}: {}", error.message),
                        ..error
                    },
                    None => StepError::new(
                        ErrorClass::Unknown,
                        codes::STEP_FAILED,
                        format!("{id} failed"),
                    ),
                }
            }
            StopCause::RunTimeout => {
                let limit = self.plan.policy().timeout_ms.unwrap_or_default();
                StepError::new(
                    ErrorClass::Timeout,
                    codes::RUN_TIMEOUT,
                    format!("the run took longer than {limit} ms"),
                )
            }
            StopCause::StallTimeout { stuck } => {
                let message = format!("nothing could move for too long: {}", stuck.join("; "));
                StepError::new(ErrorClass::Timeout, codes::STALL_TIMEOUT, message)
            }
            StopCause::Cancel { .. } | StopCause::Emergency { .. } => StepError::new(
                ErrorClass::Cancelled,
                codes::CANCELLED,
                "the run was cancelled",
            ),
        }
    }
}

/// Whether a worker has begun this step-run and nobody has said how it ended.
pub(super) fn is_cut_off(run: &StepRun) -> bool {
    match run.status() {
        Status::Running => true,
        // It runs again after a loss or a wait; after a failure that was reported it is not.
        Status::Ready => run.woken(),
        // A worker let it wait, or did its part before a person.
        Status::Waiting => {
            run.memo().is_some() || run.wait().is_some_and(|wait| wait.kind().reruns())
        }
        Status::Arrived
        | Status::Denied
        | Status::Looping
        | Status::Succeeded
        | Status::Failed
        | Status::Held
        | Status::Skipped
        | Status::Cancelled => false,
    }
}
