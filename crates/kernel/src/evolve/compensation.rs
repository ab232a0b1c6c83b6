//! Events about the undoing of a run. An undo is a step-run of its own that happens to a finished step.

use std::sync::Arc;

use super::lawful::{
    NOT_UNDOING, Why, is_one_of, need, next_execution, same_execution, undo_run, visited,
};
use super::step::count_loss;
use super::{Fold, MISPLACED};
use crate::command::{TimerId, TimerKind};
use crate::effect::{Effect, Target};
use crate::event::{
    Body, StepError, TaskKind, UndoOutcome, UndoResult, notice_events, outcome_events, run_events,
    step_events,
};
use crate::plan::{ErrorClass, Plan, StepRef, UndoMode};
use crate::state::{Phase, State, Status, StepRun, UndoStatus, Undoing};

/// Whether an event of this group can follow the state.
pub(super) fn check(_plan: &Plan, state: &State, body: &Body) -> Result<(), Why> {
    let phase = state.phase;
    match body {
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
        run_events!() | notice_events!() | step_events!() | outcome_events!() | Body::Opaque(_) => {
            Err(MISPLACED)
        }
    }
}

impl Fold<'_> {
    pub(super) fn apply_compensation(&mut self, body: &Body) -> Result<(), Why> {
        match body {
            Body::CompensationStarted {
                undo,
                not_compensable,
            } => {
                self.state.phase = Phase::Compensating;
                let results = not_compensable
                    .iter()
                    .map(|step| UndoResult::untried(*step, UndoOutcome::NotCompensable))
                    .collect();
                for at in not_compensable {
                    self.change(*at, |run| run.compensation = UndoStatus::NotCompensable)?;
                }
                for at in undo {
                    self.change(*at, |run| run.compensation = UndoStatus::Due)?;
                }
                self.state.undoing = Some(Undoing {
                    todo: undo.clone(),
                    next: 0,
                    run: StepRun::new(Status::Ready, self.at),
                    results,
                    halted: false,
                    interrupted: None,
                });
                self.dispatch_undo()
            }
            Body::CompensationInterrupted { by, reason } => {
                let undoing = self.undoing()?;
                undoing.halted = true;
                undoing.interrupted = Some((by.clone(), reason.clone()));
                Ok(())
            }
            Body::UndoStarted {
                step,
                execution,
                lease,
            } => {
                let timeout = self
                    .plan
                    .step(step.step)
                    .undo
                    .as_ref()
                    .and_then(|undo| undo.timeout_ms);
                let timer = timeout.map(|timeout| {
                    let id = TimerId {
                        kind: TimerKind::Attempt,
                        target: Some(Target::Undo(*step)),
                        armed: self.seq,
                    };
                    (self.at.plus(timeout), id)
                });
                if let Some((due, id)) = timer {
                    self.state.timers.arm(due, id);
                }
                let now = self.at;
                let run = &mut self.undoing()?.run;
                run.status = Status::Running;
                run.execution = *execution;
                if !run.woken {
                    run.tries += 1;
                }
                run.woken = false;
                run.lease = Some(lease.clone());
                run.started_at.get_or_insert(now);
                run.timer = timer;
                self.change(*step, |run| run.compensation = UndoStatus::Running)
            }
            Body::UndoExecutionFailed {
                step,
                execution,
                error,
                retry_at,
                loss,
            } => {
                self.undo_ends(*step, *execution, Some(error))?;
                let run = &mut self.undoing()?.run;
                run.status = Status::Ready;
                run.visible_at = *retry_at;
                count_loss(run, *loss);
                let losses = run.losses;
                self.announce_losses(Target::Undo(*step), *loss, losses);
                self.dispatch_undo()
            }
            Body::UndoCompleted { step, execution } => {
                self.undo_ends(*step, *execution, None)?;
                self.next_undo(*step, UndoOutcome::Done, UndoStatus::Done)
            }
            Body::UndoFailed {
                step,
                execution,
                error,
            } => {
                self.undo_ends(*step, *execution, Some(error))?;
                if self.plan.policy().undo_mode == UndoMode::Stop {
                    self.undoing()?.halted = true;
                }
                self.next_undo(*step, UndoOutcome::Failed, UndoStatus::Failed)
            }
            run_events!()
            | notice_events!()
            | step_events!()
            | outcome_events!()
            | Body::Opaque(_) => Err(MISPLACED),
        }
    }

    fn undoing(&mut self) -> Result<&mut Undoing, Why> {
        self.state
            .undoing
            .as_mut()
            .ok_or(super::lawful::NOT_UNDOING)
    }

    /// An execution of an undo ends: its timer and lease end with it.
    fn undo_ends(
        &mut self,
        at: StepRef,
        execution: u32,
        error: Option<&StepError>,
    ) -> Result<(), Why> {
        let run = &mut self.undoing()?.run;
        let timer = run.timer.take();
        let had_lease = run.lease.take().is_some();
        run.execution = execution;
        run.error = error.cloned().map(Arc::new);
        if let Some((due, id)) = timer {
            self.state.timers.disarm(due, id);
        }
        let unwanted =
            |error: &StepError| matches!(error.class, ErrorClass::Timeout | ErrorClass::Cancelled);
        if had_lease && error.is_some_and(unwanted) {
            self.effects.push(Effect::CancelWork {
                target: Target::Undo(at),
                execution,
            });
        }
        Ok(())
    }

    fn next_undo(
        &mut self,
        at: StepRef,
        outcome: UndoOutcome,
        mark: UndoStatus,
    ) -> Result<(), Why> {
        self.change(at, |run| run.compensation = mark)?;
        let now = self.at;
        let undoing = self.undoing()?;
        undoing.results.push(UndoResult {
            step: at,
            outcome,
            executions: undoing.run.execution,
            attempts: undoing.run.tries,
            error: undoing.run.error.as_deref().cloned(),
        });
        undoing.next += 1;
        undoing.run = StepRun::new(Status::Ready, now);
        self.dispatch_undo()
    }

    /// Offers the next undo to workers, unless no further undo is started or none is left.
    fn dispatch_undo(&mut self) -> Result<(), Why> {
        let undoing = self.undoing()?;
        if let Some(at) = undoing.current().filter(|_| !undoing.halted) {
            let visible_at = undoing.run.visible_at;
            self.effects.push(Effect::Dispatch {
                target: Target::Undo(at),
                visible_at,
                task: TaskKind::ReadyStep,
            });
        }
        Ok(())
    }
}
