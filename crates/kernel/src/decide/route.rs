//! Routing and admission: guards, arguments and patches are evaluated here, once, and their results
//! go into the event.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | a step has ended and its guards are due | the edges, arguments and patches that an event of another file carries | – |
//! | a token asks to enter | allowed, denied or discarded | – |

use std::sync::Arc;

use serde_json::Value as Json;

use super::{Decider, MAX_VISITS};
use crate::codes;
use crate::event::{AdmissionVerdict, Routing, StepError, TakenEdge};
use crate::evolve::merge_args;
use crate::expr::{TemplateError, TemplateValue};
use crate::plan::{ErrorClass, Join, OnDenied, Route, StepNo, StepRef};
use crate::scope::{Boundary, RunScope};

impl Decider<'_> {
    /// Where the tokens of a step go at this boundary.
    pub(super) fn route(&self, at: StepRef, boundary: &Boundary) -> Routing {
        let mut routing = Routing::default();
        if let Err(error) = self.try_route(at, boundary, &mut routing) {
            return Routing {
                error: Some(error),
                ..Routing::default()
            };
        }
        let step = self.plan.step(at.step);
        let has_edges = !self.plan.outgoing(at.step).is_empty();
        if routing.taken.is_empty()
            && has_edges
            && self.plan.policy().no_next_is_error
            && boundary.error.is_none()
        {
            let message = format!(
                "no arc of {} matched and no_next_is_error is set",
                step.name
            );
            routing.error = Some(StepError::new(
                ErrorClass::Validation,
                codes::NO_NEXT_MATCHED,
                message,
            ));
        }
        routing
    }

    fn try_route(
        &self,
        at: StepRef,
        boundary: &Boundary,
        routing: &mut Routing,
    ) -> Result<(), StepError> {
        let plan = self.plan;
        let exclusive = plan.step(at.step).route == Route::Exclusive;
        let mut matched = Vec::new();
        for no in plan.outgoing(at.step) {
            let guard = plan.edge(*no).when.as_ref();
            let view = RunScope {
                plan,
                state: self.state,
                boundary,
                guard,
            };
            let holds = match guard {
                Some(when) => when
                    .truthy(&view)
                    .map_err(|error| self.broken(at, "a guard", &error))?,
                None => true,
            };
            if holds {
                self.check_visits(plan.edge(*no).to)?;
                matched.push(*no);
                if exclusive {
                    break;
                }
            }
        }
        // Patches of the edges come after all guards, so that one edge cannot change another's.
        let mut after = boundary.clone();
        for no in matched {
            let edge = plan.edge(no);
            let view = RunScope {
                plan,
                state: self.state,
                boundary,
                guard: None,
            };
            let args = match &edge.args {
                Some(args) => Some(
                    args.evaluate(&view)
                        .map_err(|error| self.broken(at, "an argument", &error))?,
                ),
                None => None,
            };
            for (key, value) in &edge.set_ctx {
                let value = value
                    .evaluate(&view)
                    .map_err(|error| self.broken(at, "a ctx patch", &error))?;
                routing.set.insert(key.clone(), value.clone());
                after.patch.insert(key.clone(), value);
            }
            routing.handled |= boundary.error.is_some() && edge.handles_failure();
            routing.taken.push(TakenEdge {
                edge: no,
                args: args.map(Arc::new),
                verdict: AdmissionVerdict::Allowed,
            });
        }
        for index in 0..routing.taken.len() {
            if let Some(args) = self.visit_args(&routing.taken[..=index]) {
                after.args = args;
                let target = plan.edge(routing.taken[index].edge).to;
                routing.taken[index].verdict = self.admits(target, &after)?;
            }
        }
        Ok(())
    }

    /// The arguments of the visit that the last of these tokens starts; nothing if it starts none,
    /// since its join waits for more.
    fn visit_args(&self, taken: &[TakenEdge]) -> Option<Option<Arc<Json>>> {
        let last = taken.last()?;
        let target = self.plan.edge(last.edge).to;
        if self.plan.step(target).join == Join::Each {
            return Some(last.args.clone());
        }
        let state = self.state.step(target);
        let mut missing = state.missing();
        let mut args = state.joined_args().cloned();
        for token in taken
            .iter()
            .filter(|it| self.plan.edge(it.edge).to == target)
        {
            if self.state.marks()[token.edge.0 as usize] == 0 {
                missing = missing.saturating_sub(1);
            }
            if let Some(given) = &token.args {
                args = Some(merge_args(args, given.clone()));
            }
        }
        (missing == 0).then_some(args)
    }

    /// A cycle that never ends fails, since its log and its state would grow without end.
    fn check_visits(&self, step: StepNo) -> Result<(), StepError> {
        if self.state.step(step).visits().len() < MAX_VISITS {
            return Ok(());
        }
        let name = &self.plan.step(step).name;
        let message = format!("{name} has been visited {MAX_VISITS} times");
        Err(StepError::new(
            ErrorClass::Policy,
            codes::TOO_MANY_VISITS,
            message,
        ))
    }

    /// What admission says about a token for a step.
    pub(super) fn admits(
        &self,
        step: StepNo,
        boundary: &Boundary,
    ) -> Result<AdmissionVerdict, StepError> {
        let Some(admission) = &self.plan.step(step).admit else {
            return Ok(AdmissionVerdict::Allowed);
        };
        let view = RunScope {
            plan: self.plan,
            state: self.state,
            boundary,
            guard: None,
        };
        for rule in &admission.rules {
            let matches = match &rule.when {
                Some(when) => when.truthy(&view).map_err(|error| {
                    self.broken(StepRef::first(step), "an admission rule", &error)
                })?,
                None => true,
            };
            if matches {
                return Ok(match (rule.allow, admission.denied) {
                    (true, _) => AdmissionVerdict::Allowed,
                    (false, OnDenied::Pending) => AdmissionVerdict::Denied,
                    (false, OnDenied::Discard) => AdmissionVerdict::Discarded,
                });
            }
        }
        Ok(AdmissionVerdict::Allowed)
    }

    /// Evaluates patches that a step makes at its boundary; later ones see earlier ones.
    pub(super) fn patch_at_boundary(
        &self,
        patches: &[(String, TemplateValue)],
        boundary: &mut Boundary,
    ) -> Result<(), StepError> {
        for (key, value) in patches {
            let view = RunScope {
                plan: self.plan,
                state: self.state,
                boundary,
                guard: None,
            };
            let value = value.evaluate(&view).map_err(|error| {
                StepError::new(
                    ErrorClass::Expression,
                    codes::EXPRESSION_FAILED,
                    format!("ctx.{key}: {error}"),
                )
            })?;
            boundary.patch.insert(key.clone(), value);
        }
        Ok(())
    }

    pub(super) fn broken(&self, at: StepRef, what: &str, error: &TemplateError) -> StepError {
        let step = &self.plan.step(at.step).name;
        StepError::new(
            ErrorClass::Expression,
            codes::EXPRESSION_FAILED,
            format!("{what} of {step}: {error}"),
        )
    }

    /// Looks at denied tokens again, oldest first. A rule that cannot be evaluated denies.
    pub(super) fn readmit(&self) -> Vec<StepRef> {
        let allowed = |at: &StepRef| {
            let args = self
                .state
                .visit(*at)
                .and_then(|visit| visit.args().cloned());
            let boundary = Boundary {
                args,
                ..Boundary::default()
            };
            self.admits(at.step, &boundary) == Ok(AdmissionVerdict::Allowed)
        };
        self.state
            .denied()
            .iter()
            .copied()
            .filter(allowed)
            .collect()
    }
}
