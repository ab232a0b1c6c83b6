//! Step events that end a step, and where its tokens go then.

use std::sync::Arc;

use super::lawful::{NO_STEP_RUN, Why};
use super::{Fold, MISPLACED, run_events, step_events, undo_events, visit_of};
use crate::command::ManualOutcome;
use crate::effect::{Effect, Priority, Target};
use crate::event::{Body, SkipReason, StepError};
use crate::plan::{ErrorClass, Route, SideEffect, StepRef};
use crate::state::{Due, ItemResult, Status, StepRun, Visit};

impl Fold<'_> {
    pub(super) fn apply_outcome(&mut self, body: &Body) -> Result<(), Why> {
        match body {
            Body::StepCompleted {
                step,
                execution,
                output,
                ctx,
                routing,
                by,
                ..
            } => {
                let output = output.clone();
                self.end(*step, Status::Succeeded, |run| {
                    run.execution = *execution;
                    run.output = output;
                    run.error = None;
                    if by.is_some() {
                        run.remember_answer(ManualOutcome::Succeeded);
                    }
                })?;
                if let Some(by) = by {
                    self.state.acted.push((step.step, by.clone()));
                }
                self.patch_ctx(ctx);
                if let Some(item) = step.item {
                    return self.close_item(*step, item);
                }
                self.remember_mark(*step);
                match (self.plan.step(step.step).route, routing) {
                    // A run that stops moves no tokens.
                    _ if !self.state.phase.is_moving() => Ok(()),
                    (Route::Edges, _) => self.mark_all(step.step),
                    (Route::Exclusive | Route::Inclusive, Some(routing)) => {
                        self.apply_routing(*step, routing, false)
                    }
                    (Route::Exclusive | Route::Inclusive, None) => {
                        self.state.due.push(Due::Route(*step));
                        Ok(())
                    }
                }
            }
            Body::StepFailed {
                step,
                execution,
                error,
                cancelled,
                by,
                ..
            } => self.failed(*step, *execution, error, *cancelled, by.as_ref()),
            Body::StepSkipped {
                step,
                logical,
                reason,
            } => self.skipped(*step, *logical, *reason),
            Body::StepRouted { step, routing } => {
                self.settle(Due::Route(*step));
                self.settle(Due::Failure(*step));
                let run = self.state.run(*step).ok_or(NO_STEP_RUN)?;
                let failed = run.status == Status::Failed;
                if failed && !routing.taken.is_empty() {
                    self.change(*step, |run| run.routed = true)?;
                }
                self.apply_routing(*step, routing, failed)
            }
            Body::TokensAdmitted { tokens } => {
                for token in tokens {
                    self.state.denied.remove(*token);
                    self.enter(*token)?;
                }
                Ok(())
            }
            run_events!() | step_events!() | undo_events!() => Err(MISPLACED),
        }
    }

    /// A step-run ends: its timer, lease and wait end with it.
    fn end(
        &mut self,
        at: StepRef,
        status: Status,
        set: impl FnOnce(&mut StepRun),
    ) -> Result<(), Why> {
        self.disarm(at)?;
        self.settle(Due::Enter(at));
        let now = self.at;
        self.change(at, |run| {
            run.status = status;
            run.ended_at = Some(now);
            run.lease = None;
            set(run);
            run.wait = None;
        })
    }

    fn failed(
        &mut self,
        at: StepRef,
        execution: u32,
        error: &StepError,
        cancelled: bool,
        by: Option<&String>,
    ) -> Result<(), Why> {
        let run = self.state.run(at).ok_or(NO_STEP_RUN)?;
        let had_lease = run.lease.is_some();
        let unwanted = cancelled || error.class == ErrorClass::Timeout;
        if had_lease && unwanted {
            self.effects.push(Effect::CancelWork {
                target: Target::Step(at),
                execution,
            });
        }
        if unwanted {
            self.abandon_child(at);
        }
        if error.class == ErrorClass::Governance {
            let message = format!("{}: {}", self.plan.step_id(at), error.message);
            self.alert("GOVERNANCE_BLOCKED", Priority::P1, message);
        }
        let status = if cancelled {
            Status::Cancelled
        } else {
            Status::Failed
        };
        let outcome = if error.class == ErrorClass::Cancelled {
            ManualOutcome::Cancelled
        } else {
            ManualOutcome::Failed
        };
        self.end(at, status, |run| {
            run.execution = execution;
            run.error = Some(Arc::new(error.clone()));
            if by.is_some() {
                run.remember_answer(outcome);
            }
        })?;
        if let Some(by) = by {
            self.state.acted.push((at.step, by.clone()));
        }
        match at.item {
            Some(item) => self.close_item(at, item),
            None if !cancelled && self.state.phase.is_moving() => {
                self.state.due.push(Due::Failure(at));
                Ok(())
            }
            // A step that was stopped, or fails while the run stops, leads to nothing more.
            None => Ok(()),
        }
    }

    /// Nobody waits for the child any more. A run that stops has cancelled its children already.
    fn abandon_child(&mut self, at: StepRef) {
        let child = self
            .state
            .run(at)
            .and_then(StepRun::child)
            .map(str::to_owned);
        if let Some(request_key) = child.filter(|_| self.state.phase.is_moving()) {
            self.effects.push(Effect::CancelChild {
                step: at,
                request_key,
            });
        }
    }

    fn skipped(&mut self, at: StepRef, logical: u32, reason: SkipReason) -> Result<(), Why> {
        let satisfies = matches!(reason, SkipReason::OnFailure | SkipReason::Operator);
        let status = if reason == SkipReason::Cancelled {
            Status::Cancelled
        } else {
            Status::Skipped
        };
        self.settle(Due::Failure(at));
        self.state.denied.remove(at);
        if self.state.run(at).is_none() && at.item.is_none() {
            self.skip_unreached(at)?;
        }
        self.end(at, status, |run| {
            run.logical = logical;
            run.skip = Some(reason);
        })?;
        if let Some(item) = at.item {
            return self.close_item(at, item);
        }
        if !satisfies || !self.state.phase.is_moving() {
            // Its dependents do not go on.
            return Ok(());
        }
        self.revive();
        match self.plan.step(at.step).route {
            Route::Edges => self.mark_all(at.step),
            Route::Exclusive | Route::Inclusive => {
                self.state.due.push(Due::Route(at));
                Ok(())
            }
        }
    }

    /// A step that no token had reached: it gets a visit to be skipped in, and later tokens are absorbed.
    fn skip_unreached(&mut self, at: StepRef) -> Result<(), Why> {
        let plan = self.plan;
        let incoming = plan.incoming(at.step);
        let step = self.state.steps.get_mut(at.step.0 as usize);
        let step = step.ok_or(NO_STEP_RUN)?;
        if step.visits.len() + 1 != at.visit as usize {
            return Err(NO_STEP_RUN);
        }
        step.absorbed = true;
        if step.missing > 0 && step.missing < incoming.len() as u32 {
            self.state.tally.starved = self.state.tally.starved.saturating_sub(1);
        }
        step.missing = incoming.len() as u32;
        for edge in incoming {
            self.state.marks[edge.0 as usize] = 0;
        }
        let run = StepRun::new(Status::Arrived, self.at);
        self.state.tally.enter(&run);
        self.state.open.insert(at);
        step.visits.push(Visit {
            run,
            args: None,
            each: None,
        });
        Ok(())
    }

    /// An item of a loop has ended: it leaves the window and the next one is opened.
    fn close_item(&mut self, at: StepRef, item: u32) -> Result<(), Why> {
        let visit = visit_of(&mut self.state.steps, at).ok_or(NO_STEP_RUN)?;
        let each = visit.each.as_mut().ok_or(NO_STEP_RUN)?;
        let run = each.active.remove(&item).ok_or(NO_STEP_RUN)?;
        each.highest = each.highest.max(run.execution);
        let result = match run.status {
            Status::Succeeded => ItemResult::Succeeded(run.output),
            Status::Skipped => ItemResult::Skipped,
            Status::Cancelled => ItemResult::Cancelled,
            Status::Failed => {
                each.failed += 1;
                ItemResult::Failed(run.error.ok_or("the item failed without an error")?)
            }
            Status::Arrived
            | Status::Denied
            | Status::Ready
            | Status::Running
            | Status::Waiting
            | Status::Looping
            | Status::Held => return Err("the item has not ended"),
        };
        let slot = each.results.get_mut(item as usize).ok_or(NO_STEP_RUN)?;
        *slot = Some(result);
        self.advance_loop(at.visit_ref())
    }

    /// Remembers, in completion order, what left a mark on the world.
    fn remember_mark(&mut self, at: StepRef) {
        let step = self.plan.step(at.step);
        let marks = step.undo.is_some()
            || matches!(
                step.side_effect,
                SideEffect::Compensable | SideEffect::Irreversible
            );
        if marks {
            self.state.marked.push(at);
        }
    }
}
