//! Consequences: whatever follows from the state by itself, one event at a time, until nothing does.
//!
//! ```text
//! Stopping      open steps are ended; when none is left: undo, or end
//! Compensating  one undo at a time; when none is left: end
//! paused        nothing follows
//! moving        entries, routes and failures that are due; tokens that may enter now; quiescence:
//!               nothing left ─► final step or end, only stuck tokens left ─► stalled
//! ```
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | moving, only stuck tokens are left, one at a join that was skipped ahead | `StepRouted` | – |
//! | moving, an entry, a route or a failure is due | what `enter.rs`, `failure.rs` and `route.rs` say; `StepRouted` for a late route | – |
//! | moving, ctx has changed, denied tokens may enter now | `TokensAdmitted` | – |
//! | moving, only stuck tokens are left | `RunStalled` | – |
//! | Running, nothing is left, the plan has a final step | `RunFinalizing`; after a failure that stopped the run so does `stop.rs` | – |
//! | moving, nothing is left | `RunCompleted` or `RunFailed` | – |
//! | Stopping or Compensating | what `stop.rs` and `compensate.rs` say | – |
//! | paused | nothing | – |

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use super::{Decider, MAX_CONSEQUENCES};
use crate::effect::Effect;
use crate::event::{AdmissionVerdict, Body, Rollback, StepError, StopCause, SuccessKind};
use crate::keys;
use crate::plan::{FinalFailure, Join, StepNo, StepRef, Unhandled};
use crate::scope::Boundary;
use crate::state::{Due, Phase, State, Status, Undoing, UnhandledFailure};

/// Whether something follows from the state by itself: only a decision that was cut short leaves such a
/// state behind, and `Proceed` goes on with it.
pub(crate) fn is_unsettled(state: &State) -> bool {
    let tally = state.tally();
    match state.phase() {
        Phase::Void | Phase::Created | Phase::Queued | Phase::Ended(_) => false,
        Phase::Running | Phase::Finalizing if state.pause().is_some() => false,
        Phase::Running | Phase::Finalizing => {
            !state.due().is_empty() || (tally.active() == 0 && state.stalled().is_none())
        }
        Phase::Stopping => !state.due().is_empty() || tally.idle() > 0 || tally.in_flight() == 0,
        Phase::Compensating => state.undoing().is_none_or(Undoing::is_over),
    }
}

impl Decider<'_> {
    pub(super) fn settle(&mut self) {
        loop {
            if self.is_full() {
                if !self.decision.effects.contains(&Effect::Proceed) {
                    self.decision.effects.push(Effect::Proceed);
                }
                return;
            }
            let before = self.state.seq();
            match self.state.phase() {
                Phase::Stopping => self.settle_stopping(),
                Phase::Compensating => self.settle_compensation(),
                Phase::Running | Phase::Finalizing if self.state.pause().is_none() => {
                    self.settle_moving()
                }
                Phase::Running | Phase::Finalizing => return,
                Phase::Void | Phase::Created | Phase::Queued | Phase::Ended(_) => return,
            }
            if self.state.seq() == before {
                return;
            }
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.decision.events.len() >= MAX_CONSEQUENCES
    }

    fn settle_moving(&mut self) {
        match self.state.due().first() {
            Some(Due::Enter(at)) => return self.enter(at),
            Some(Due::Route(at)) => return self.route_late(at),
            Some(Due::Failure(at)) => return self.react(at),
            None => {}
        }
        if self.ctx_changed && !self.state.denied().is_empty() {
            self.ctx_changed = false;
            let tokens = self.readmit();
            if !tokens.is_empty() {
                return self.emit(Body::TokensAdmitted { tokens });
            }
        }
        let tally = self.state.tally();
        if tally.active() > 0 {
            return;
        }
        if self.state.stop().is_some() && tally.denied() == 0 {
            // The final step was all that was left to do; tokens that wait at joins were given up before.
            return self.end_run();
        }
        if tally.starved() > 0
            && let Some(at) = self.skipped_and_starved()
        {
            return self.route_late(at);
        }
        if tally.denied() + tally.starved() > 0 {
            if self.state.stalled().is_none() {
                let deadline = self.now.plus(self.plan.policy().stall_timeout_ms);
                self.emit(Body::RunStalled {
                    stuck: self.stuck(),
                    deadline,
                });
            }
            return;
        }
        if self.state.phase() == Phase::Running
            && let Some(step) = self.plan.policy().final_step
        {
            return self.finalize(step);
        }
        self.end_quiescent();
    }

    /// A token with the summary of the run goes to the final step.
    pub(super) fn finalize(&mut self, step: StepNo) {
        let summary = Arc::new(self.summary());
        let boundary = Boundary {
            args: Some(summary.clone()),
            ..Boundary::default()
        };
        // A rule that cannot be evaluated denies: the stall then names it.
        let entry = self
            .admits(step, &boundary)
            .unwrap_or(AdmissionVerdict::Denied);
        self.emit(Body::RunFinalizing { summary, entry });
    }

    /// A join that was skipped ahead and some of whose tokens never come: nothing is left that the steps after it
    /// could overtake.
    fn skipped_and_starved(&self) -> Option<StepRef> {
        let waits = |no: &StepNo| {
            let step = self.state.step(*no);
            step.passes() && (step.missing() as usize) < self.plan.incoming(*no).len()
        };
        let step = self.plan.numbers().find(waits)?;
        Some(StepRef {
            step,
            visit: 1,
            item: None,
        })
    }

    /// Routing that was held back by a pause, or that follows an operator's skip.
    fn route_late(&mut self, at: StepRef) {
        let boundary = Boundary {
            event: Some(if self.plan.step(at.step).each.is_some() {
                "loop.done"
            } else {
                "step.done"
            }),
            this: Some((at.step, crate::scope::output_of(self.plan, self.state, at))),
            error: None,
            args: self.state.visit(at).and_then(|visit| visit.args().cloned()),
            ..Boundary::default()
        };
        let routing = self.route(at, &boundary);
        let unrouted = routing.error.is_some();
        self.emit(Body::StepRouted { step: at, routing });
        if unrouted {
            self.stop_if_unhandled(at);
        }
    }

    /// Nothing is left to do: what the failures so far mean decides how the run ended.
    fn end_quiescent(&mut self) {
        let policy = self.plan.policy();
        let is_final = |failure: &&UnhandledFailure| policy.final_step == Some(failure.step().step);
        let other = self
            .state
            .failures()
            .iter()
            .find(|failure| !is_final(failure));
        let last = self.state.failures().iter().find(is_final);
        // Each failure has a policy of its own, and one that accepts a failure says nothing of the other.
        let other_fails = other.filter(|_| policy.unhandled != Unhandled::Partial);
        let last_fails = last.filter(|_| policy.final_failure != FinalFailure::Partial);
        let body = match other_fails.or(last_fails) {
            None if other.or(last).is_none() => Body::RunCompleted {
                success: SuccessKind::Full,
            },
            None => Body::RunCompleted {
                success: SuccessKind::Partial,
            },
            Some(failure) => {
                let id = self.plan.step_id(failure.step());
                let error = StepError {
                    message: format!("{id}: {}", failure.error().message),
                    ..failure.error().clone()
                };
                Body::RunFailed {
                    error,
                    rollback: Rollback::None,
                    undos: Vec::new(),
                }
            }
        };
        self.emit(body);
    }

    /// What is stuck, in words: which token waits where, which join lacks which tokens.
    fn stuck(&self) -> Vec<String> {
        let mut words: Vec<String> = self
            .state
            .denied()
            .iter()
            .map(|at| self.not_admitted(*at))
            .collect();
        for no in self.plan.numbers() {
            let state = self.state.step(no);
            let incoming = self.plan.incoming(no);
            let joins = self.plan.step(no).join == Join::All;
            if joins && state.missing() > 0 && (state.missing() as usize) < incoming.len() {
                let name = |no: StepNo| self.plan.step(no).name.as_str();
                let lacks: Vec<&str> = incoming
                    .iter()
                    .filter(|edge| self.state.marks()[edge.0 as usize] == 0)
                    .map(|edge| name(self.plan.edge(*edge).from))
                    .collect();
                words.push(format!(
                    "{} waits for a token from {}",
                    name(no),
                    lacks.join(", ")
                ));
            }
        }
        words
    }

    /// Which token may not enter, and what could change that.
    fn not_admitted(&self, at: StepRef) -> String {
        let admission = self.plan.step(at.step).admit.iter();
        let rules = admission.flat_map(|admission| &admission.rules);
        let reads: BTreeSet<&str> = rules
            .filter_map(|rule| rule.when.as_ref())
            .flat_map(|when| when.reads().iter().map(String::as_str))
            .collect();
        let id = self.plan.step_id(at);
        if reads.is_empty() {
            return format!("{id} is not admitted");
        }
        let reads: Vec<&str> = reads.into_iter().collect();
        format!("{id} is not admitted: its rules read {}", reads.join(", "))
    }

    /// What the final step gets to know about the run.
    fn summary(&self) -> serde_json::Value {
        let tally = self.state.tally();
        let shown = |step: StepRef, error: &StepError| {
            let step = self.plan.step_id(step);
            json!({ "step": step, "code": error.code, "message": error.message })
        };
        let unhandled = self.state.failures();
        let mut failures: Vec<_> = unhandled
            .iter()
            .map(|failure| shown(failure.step(), failure.error()))
            .collect();
        // A failure that stopped the run by the policy of its step was never routed.
        if let Some(StopCause::StepFailed { step }) = self.state.stop().map(|stop| stop.cause())
            && !unhandled.iter().any(|failure| failure.step() == *step)
            && let Some(error) = self.state.run(*step).and_then(|run| run.error())
        {
            failures.push(shown(*step, error));
        }
        let results: Vec<String> = self
            .plan
            .numbers()
            .filter(|no| {
                let visits = self.state.step(*no).visits();
                visits
                    .iter()
                    .any(|visit| visit.run().status() == Status::Succeeded)
            })
            .map(|no| self.plan.step(no).name.clone())
            .collect();
        json!({
            "execution_id": keys::execution_id(self.state.run_id()),
            "run_id": self.state.run_id(),
            "counts": { "succeeded": tally.succeeded(), "failed": tally.failed(), "skipped": tally.skipped() },
            "results": results,
            "failures": failures,
        })
    }
}
