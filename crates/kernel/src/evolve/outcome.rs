//! Step events that end a step, and where its tokens go then.

use std::sync::Arc;

use super::lawful::{
    NO_STEP_RUN, UNFINISHED, Why, edges, is_one_of, known, moving, need, same_logical, step_run,
};
use super::{Fold, MISPLACED, visit_of};
use crate::codes;
use crate::command::ManualOutcome;
use crate::effect::{Effect, Priority, Target};
use crate::event::{
    Body, SkipReason, StepError, notice_events, run_events, step_events, undo_events,
};
use crate::plan::{ErrorClass, Plan, Route, SideEffect, StepRef};
use crate::state::{Due, ItemResult, State, Status, StepRun, Visit};

/// Whether an event of this group can follow the state.
pub(super) fn check(plan: &Plan, state: &State, body: &Body) -> Result<(), Why> {
    match body {
        Body::StepCompleted {
            step: at,
            logical,
            routing,
            ..
        } => {
            let run = step_run(plan, state, *at)?;
            same_logical(run, *logical)?;
            is_one_of(run, UNFINISHED)?;
            routing.iter().try_for_each(|it| edges(plan, *at, it))
        }
        Body::StepFailed {
            step: at, logical, ..
        } => {
            let run = step_run(plan, state, *at)?;
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
            step_run(plan, state, *at)?;
            let due = [Due::Route(*at), Due::Failure(*at)];
            let is_due = due.iter().any(|due| state.due.contains(due));
            let passes = state.step(at.step).passes && at.item.is_none();
            need(
                is_due || passes,
                "no tokens of this step-run are due to move",
            )?;
            edges(plan, *at, routing)
        }
        Body::TokensAdmitted { tokens } => {
            moving(state.phase)?;
            let denied = tokens.iter().all(|token| state.denied.contains(token));
            need(denied, "it admits a token that was not denied")
        }
        run_events!() | notice_events!() | step_events!() | undo_events!() | Body::Opaque(_) => {
            Err(MISPLACED)
        }
    }
}

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
                self.forget_unknown(*step);
                self.end(*step, Status::Succeeded, |run| {
                    run.execution = *execution;
                    run.output = output;
                    run.error = None;
                    run.unknown = false;
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
                unknown,
                by,
                ..
            } => {
                self.failed(*step, *execution, error, *cancelled, by.as_ref())?;
                if *unknown && step.item.is_none() {
                    self.forget_unknown(*step);
                    self.remember_mark(*step);
                    self.change(*step, |run| run.unknown = true)?;
                }
                Ok(())
            }
            Body::StepSkipped {
                step,
                logical,
                reason,
            } => self.skipped(*step, *logical, *reason),
            Body::StepRouted { step, routing } => {
                self.settle(Due::Route(*step));
                self.settle(Due::Failure(*step));
                if self.state.step(step.step).passes {
                    self.absorb(step.step);
                }
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
            run_events!()
            | notice_events!()
            | step_events!()
            | undo_events!()
            | Body::Opaque(_) => Err(MISPLACED),
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
            self.alert(codes::GOVERNANCE_BLOCKED, Priority::P1, message);
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
            if error.code == codes::LOST_TOO_OFTEN {
                run.losses += 1;
            }
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
            self.skip_unreached(at, reason)?;
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

    /// A step that no token had reached: it gets a visit to be skipped in. Its tokens are absorbed; those of a step that
    /// was skipped ahead pass on when all of them are there.
    fn skip_unreached(&mut self, at: StepRef, reason: SkipReason) -> Result<(), Why> {
        let step = self.state.steps.get(at.step.0 as usize);
        let step = step.ok_or(NO_STEP_RUN)?;
        if step.visits.len() + 1 != at.visit as usize {
            return Err(NO_STEP_RUN);
        }
        let is_join = !self.plan.incoming(at.step).is_empty();
        match reason == SkipReason::OperatorAhead && is_join {
            true => self.state.steps[at.step.0 as usize].passes = true,
            false => self.absorb(at.step),
        }
        let step = &mut self.state.steps[at.step.0 as usize];
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

    /// An operator's retry of work that was lost has ended: the step is undone once.
    fn forget_unknown(&mut self, at: StepRef) {
        if self.state.run(at).is_some_and(StepRun::unknown) {
            self.state.marked.retain(|marked| *marked != at);
        }
    }

    /// Remembers, in completion order, what left a mark on the world, or may have.
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
