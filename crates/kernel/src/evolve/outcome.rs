//! Step events that end a step, and where its tokens go then.

use std::sync::Arc;

use super::Fold;
use crate::command::ManualOutcome;
use crate::effect::{Effect, Priority, Target};
use crate::event::{Body, SkipReason, StepError};
use crate::plan::{ErrorClass, Route, SideEffect, StepRef};
use crate::state::{Due, ItemResult, Status, StepRun, Visit};

impl Fold<'_> {
    pub(super) fn apply_outcome(&mut self, body: &Body) {
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
                });
                if let Some(by) = by {
                    self.state.acted.push((step.step, by.clone()));
                }
                self.patch_ctx(ctx);
                if let Some(item) = step.item {
                    return self.close_item(*step, item);
                }
                self.remember_mark(*step);
                match (self.plan.step(step.step).route, routing) {
                    _ if !self.state.phase.is_moving() => {}
                    (Route::Edges, _) => self.mark_all(step.step),
                    (_, Some(routing)) => self.apply_routing(*step, routing, false),
                    (_, None) => self.state.due.push(Due::Route(*step)),
                }
            }
            Body::StepFailed {
                step,
                execution,
                error,
                cancelled,
                by,
                ..
            } => {
                self.failed(*step, *execution, error, *cancelled, by.as_ref());
            }
            Body::StepSkipped {
                step,
                logical,
                reason,
            } => self.skipped(*step, *logical, *reason),
            Body::StepRouted { step, routing } => {
                self.settle(Due::Route(*step));
                self.settle(Due::Failure(*step));
                let failed = self
                    .state
                    .run(*step)
                    .is_some_and(|run| run.status == Status::Failed);
                if failed && !routing.taken.is_empty() {
                    self.change(*step, |run| run.routed = true);
                }
                self.apply_routing(*step, routing, failed);
            }
            Body::TokensAdmitted { tokens } => {
                for token in tokens {
                    self.state.denied.remove(*token);
                    self.enter(*token);
                }
            }
            _ => {}
        }
    }

    /// A step-run ends: its timer, lease and wait end with it.
    fn end(&mut self, at: StepRef, status: Status, set: impl FnOnce(&mut StepRun)) {
        self.disarm(at);
        self.settle(Due::Enter(at));
        let now = self.at;
        self.change(at, |run| {
            run.status = status;
            run.ended_at = Some(now);
            run.lease = None;
            set(run);
            run.wait = None;
        });
    }

    fn failed(
        &mut self,
        at: StepRef,
        execution: u32,
        error: &StepError,
        cancelled: bool,
        by: Option<&String>,
    ) {
        let had_lease = self.state.run(at).is_some_and(|run| run.lease.is_some());
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
        });
        if let Some(by) = by {
            self.state.acted.push((at.step, by.clone()));
        }
        match at.item {
            Some(item) => self.close_item(at, item),
            None if !cancelled && self.state.phase.is_moving() => {
                self.state.due.push(Due::Failure(at))
            }
            None => {}
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

    fn skipped(&mut self, at: StepRef, logical: u32, reason: SkipReason) {
        let satisfies = matches!(reason, SkipReason::OnFailure | SkipReason::Operator);
        let status = if reason == SkipReason::Cancelled {
            Status::Cancelled
        } else {
            Status::Skipped
        };
        self.settle(Due::Failure(at));
        self.state.denied.remove(at);
        if self.state.run(at).is_none() && at.item.is_none() {
            self.skip_unreached(at);
        }
        self.end(at, status, |run| {
            run.logical = logical;
            run.skip = Some(reason);
        });
        if let Some(item) = at.item {
            return self.close_item(at, item);
        }
        if !satisfies || !self.state.phase.is_moving() {
            return;
        }
        self.revive();
        match self.plan.step(at.step).route {
            Route::Edges => self.mark_all(at.step),
            Route::Exclusive | Route::Inclusive => self.state.due.push(Due::Route(at)),
        }
    }

    /// A step that no token had reached: it gets a visit to be skipped in, and later tokens are absorbed.
    fn skip_unreached(&mut self, at: StepRef) {
        let plan = self.plan;
        let incoming = plan.incoming(at.step);
        let Some(step) = self.state.steps.get_mut(at.step.0 as usize) else {
            return;
        };
        if step.visits.len() + 1 != at.visit as usize {
            return;
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
    }

    /// An item of a loop has ended: it leaves the window and the next one is opened.
    fn close_item(&mut self, at: StepRef, item: u32) {
        let visit = self
            .state
            .steps
            .get_mut(at.step.0 as usize)
            .and_then(|step| step.visits.get_mut((at.visit as usize).wrapping_sub(1)));
        let Some(each) = visit.and_then(|visit| visit.each.as_mut()) else {
            return;
        };
        let Some(run) = each.active.remove(&item) else {
            return;
        };
        each.highest = each.highest.max(run.execution);
        let result = match run.status {
            Status::Succeeded => ItemResult::Succeeded(run.output),
            Status::Skipped => ItemResult::Skipped,
            Status::Cancelled => ItemResult::Cancelled,
            _ => {
                each.failed += 1;
                let unknown = || Arc::new(StepError::new(ErrorClass::Unknown, "UNKNOWN", "failed"));
                ItemResult::Failed(run.error.unwrap_or_else(unknown))
            }
        };
        if let Some(slot) = each.results.get_mut(item as usize) {
            *slot = Some(result);
        }
        self.advance_loop(at.visit_ref());
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
