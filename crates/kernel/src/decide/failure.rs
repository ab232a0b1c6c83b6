//! Failures: retry or not, and what a failure for good leads to. Every language's rule is a value of
//! `RetryPolicy` and `OnFailure`; this is the only code that reads them.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | an execution failed and another is allowed | `StepExecutionFailed`, or `UndoExecutionFailed` for an undo | – |
//! | an execution failed and none is allowed | `StepFailed`, or `UndoFailed` for an undo | – |
//! | an execution was lost | `StepExecutionFailed` with `loss`, or `UndoExecutionFailed` for an undo: no attempt is used up | – |
//! | an execution was lost: once too often, of a step that runs at most once, or where losses are attempts | as a failed execution | – |
//! | an execution was stopped or given back | as a loss, and no loss is counted | – |
//! | Stopping without compensation, and this failure asks for it | `RunStopping` with compensation | – |
//! | a failure is due, `onFailure` stops | `RunStopping`, by `stop.rs` | – |
//! | a failure is due, `onFailure` skips | `StepSkipped` | – |
//! | a failure is due, `onFailure` holds | `StepHeld` | – |
//! | a failure is due, `onFailure` routes, or only the final step is left | `StepRouted` | – |

use crate::codes;
use crate::effect::Target;
use crate::event::{Body, Loss, Routing, SkipReason, StepError, StopCause};
use crate::keys;
use crate::plan::{
    Backoff, ErrorClass, Loop, OnFailure, OnLoopFailure, RetryPolicy, RunPolicy, StepRef, Unhandled,
};
use crate::state::{Phase, StepRun};
use crate::time::{LONGEST_WAIT_MS, Time};

use super::Decider;
use crate::scope::Boundary;

impl Decider<'_> {
    /// An execution failed: another follows, or the step (or undo) has failed for good.
    pub(super) fn execution_failed(
        &mut self,
        target: Target,
        execution: u32,
        error: StepError,
        retryable: Option<bool>,
        delay_ms: Option<u64>,
    ) {
        let Some(run) = self.state.target(target) else {
            return self.missing(target.step_ref());
        };
        let logical = run.logical();
        let retry_at = self.retries_at(target, error.class, retryable, delay_ms);
        match (target, retry_at) {
            (Target::Step(step), Some(retry_at)) => {
                self.emit(Body::StepExecutionFailed {
                    step,
                    logical,
                    execution,
                    error,
                    retry_at,
                    loss: None,
                });
            }
            (Target::Step(at), None) => self.fail_for_good(at, execution, error, None),
            (Target::Undo(step), Some(retry_at)) => {
                self.emit(Body::UndoExecutionFailed {
                    step,
                    execution,
                    error,
                    retry_at,
                    loss: None,
                });
            }
            (Target::Undo(step), None) => self.emit(Body::UndoFailed {
                step,
                execution,
                error,
            }),
        }
    }

    /// An execution ended without a result of its own: its worker was lost, or stopped the work.
    pub(super) fn execution_lost(
        &mut self,
        target: Target,
        execution: u32,
        error: StepError,
        loss: Loss,
    ) {
        let Some(run) = self.state.target(target) else {
            return self.missing(target.step_ref());
        };
        let (logical, losses) = (run.logical(), run.losses() + 1);
        let step = self.plan.step(target.step_ref().step);
        let counts = loss == Loss::Lost;
        let is_attempt = counts && self.plan.policy().losses_are_attempts;
        if is_attempt || self.is_last(target) {
            return self.execution_failed(target, execution, error, None, None);
        }
        let most = match target {
            Target::Step(_) => step.max_losses,
            Target::Undo(_) => None,
        };
        if counts && losses >= most.unwrap_or(RunPolicy::MAX_LOSSES) {
            let message = format!(
                "lost {losses} times with its worker, most recently: {}",
                error.message
            );
            let error = StepError::new(ErrorClass::LeaseLost, codes::LOST_TOO_OFTEN, message);
            return match target {
                Target::Step(at) => self.fail_for_good(at, execution, error, None),
                Target::Undo(step) => self.emit(Body::UndoFailed {
                    step,
                    execution,
                    error,
                }),
            };
        }
        // A loss says nothing about the other side, so there is nothing to wait for.
        let (retry_at, loss) = (self.now, Some(loss));
        self.emit(match target {
            Target::Step(step) => Body::StepExecutionFailed {
                step,
                logical,
                execution,
                error,
                retry_at,
                loss,
            },
            Target::Undo(step) => Body::UndoExecutionFailed {
                step,
                execution,
                error,
                retry_at,
                loss,
            },
        });
    }

    /// Whether no other execution may follow this one, however it ends.
    fn is_last(&self, target: Target) -> bool {
        match target {
            Target::Step(at) => {
                self.plan.step(at.step).at_most_once || !self.state.phase().is_moving()
            }
            Target::Undo(_) => self.state.undoing().is_some_and(|undoing| undoing.halted()),
        }
    }

    /// When the next execution of this work may start after such a failure; nothing if there is none.
    pub(super) fn retries_at(
        &self,
        target: Target,
        class: ErrorClass,
        retryable: Option<bool>,
        delay_ms: Option<u64>,
    ) -> Option<Time> {
        let run = self.state.target(target)?;
        let step = self.plan.step(target.step_ref().step);
        let retry = match target {
            Target::Step(_) => Some(&step.retry),
            Target::Undo(_) => step.undo.as_ref().map(|undo| &undo.retry),
        };
        retry
            .filter(|_| !self.is_last(target))
            .and_then(|retry| self.retry_at(retry, (target, run), class, retryable, delay_ms))
    }

    /// By the rules of its retry policy.
    fn retry_at(
        &self,
        retry: &RetryPolicy,
        (target, run): (Target, &StepRun),
        class: ErrorClass,
        retryable: Option<bool>,
        delay_ms: Option<u64>,
    ) -> Option<Time> {
        let allowed = match retryable {
            Some(true) if self.plan.policy().handler_may_retry => true,
            Some(false) => false,
            Some(true) | None => retry.covers(class),
        };
        if run.tries() >= retry.max_executions || !allowed {
            return None;
        }
        // A lost lease says nothing about the other side, so there is nothing to wait for.
        let lost = class == ErrorClass::LeaseLost;
        let delay = delay_ms.unwrap_or_else(|| {
            if lost {
                0
            } else {
                let seed = || self.jitter_seed(target, run.logical());
                retry.backoff.delay_ms(run.tries(), seed)
            }
        });
        Some(self.now.plus(delay.min(LONGEST_WAIT_MS)))
    }

    /// What the jitter of a wait follows from: the same for every decision about the same retry, and another
    /// for every run, step-run and logical attempt. The kernel draws no random numbers.
    fn jitter_seed(&self, target: Target, logical: u32) -> u64 {
        let step_id = self.plan.step_id(target.step_ref());
        let key = match target {
            Target::Step(_) => keys::step_key(self.state.run_id(), &step_id, logical),
            Target::Undo(_) => keys::undo_key(self.state.run_id(), &step_id),
        };
        Backoff::seed(&key)
    }

    pub(super) fn fail_for_good(
        &mut self,
        at: StepRef,
        execution: u32,
        error: StepError,
        by: Option<String>,
    ) {
        let Some(run) = self.state.run(at) else {
            return self.missing(at);
        };
        let logical = run.logical();
        // Work that was lost and is not begun again may have had its effect.
        let unknown = error.class == ErrorClass::LeaseLost;
        self.emit(Body::StepFailed {
            step: at,
            logical,
            execution,
            error,
            cancelled: false,
            unknown,
            by,
        });
        self.escalate_stop(at);
        self.drain_loop(at);
    }

    /// After a failed item no other is started: those that a worker could still claim are ended. What
    /// has started goes on.
    fn drain_loop(&mut self, failed: StepRef) {
        let step = self.plan.step(failed.step);
        let fails = |each: &Loop| each.on_failure == OnLoopFailure::Fail;
        if failed.item.is_none()
            || !self.state.phase().is_moving()
            || !step.each.as_ref().is_some_and(fails)
        {
            return;
        }
        let visit = self.state.visit(failed);
        let active = visit.and_then(|it| it.each()).map(|it| it.active());
        let unstarted: Vec<u32> = active
            .into_iter()
            .flatten()
            .filter(|(_, run)| !run.has_started())
            .map(|(item, _)| *item)
            .collect();
        for item in unstarted {
            self.cancel_step(failed.with_item(item), "another item failed");
        }
    }

    /// Compensate beats abort: a failure that arrives while the run stops may still ask for undoing.
    fn escalate_stop(&mut self, at: StepRef) {
        if self.state.phase() != Phase::Stopping || !self.undoes(at) {
            return;
        }
        if let Some(stop) = self
            .state
            .stop()
            .cloned()
            .filter(|stop| !stop.compensate() && !stop.cause().is_cancel())
        {
            self.emit(Body::RunStopping {
                cause: stop.cause().clone(),
                compensate: true,
            });
        }
    }

    /// Whether a step's failure asks for what was done to be undone.
    pub(super) fn undoes(&self, at: StepRef) -> bool {
        self.plan.step(at.step).on_failure == OnFailure::Stop { compensate: true }
    }

    /// What a failure for good leads to.
    pub(super) fn react(&mut self, at: StepRef) {
        let Some(run) = self.state.run(at) else {
            return self.missing(at);
        };
        let logical = run.logical();
        let error = run.error().cloned();
        if self.state.phase() == Phase::Finalizing {
            // Only the final step is left; the run's end weighs its failure.
            return self.emit(Body::StepRouted {
                step: at,
                routing: Routing::default(),
            });
        }
        match self.plan.step(at.step).on_failure {
            OnFailure::Stop { compensate } => {
                self.stop(StopCause::StepFailed { step: at }, compensate)
            }
            OnFailure::Skip => {
                self.emit(Body::StepSkipped {
                    step: at,
                    logical: logical + 1,
                    reason: SkipReason::OnFailure,
                });
            }
            OnFailure::Hold { timeout_ms } => {
                self.emit(Body::StepHeld {
                    step: at,
                    until: self.now.plus(timeout_ms),
                });
            }
            OnFailure::Route => {
                let boundary = Boundary {
                    event: Some("step.failed"),
                    this: Some((at.step, crate::scope::output_of(self.plan, self.state, at))),
                    error,
                    args: self.state.visit(at).and_then(|visit| visit.args().cloned()),
                    ..Boundary::default()
                };
                let routing = self.route(at, &boundary);
                let unhandled = !routing.handled || routing.error.is_some();
                self.emit(Body::StepRouted { step: at, routing });
                if unhandled {
                    self.stop_if_unhandled(at);
                }
            }
        }
    }

    /// No edge handles what went wrong at this step: the run stops, where the plan says so.
    pub(super) fn stop_if_unhandled(&mut self, step: StepRef) {
        if self.plan.policy().unhandled == Unhandled::Stop {
            self.stop(StopCause::StepFailed { step }, false);
        }
    }
}
