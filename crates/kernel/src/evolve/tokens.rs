//! How tokens move: along edges, into joins, into visits, into the items of a loop.

use std::sync::Arc;

use serde_json::Value as Json;

use super::lawful::{NO_STEP_RUN, Why};
use super::{Fold, visit_of};
use crate::event::{AdmissionVerdict, Routing};
use crate::plan::{EdgeNo, Join, OnLoopFailure, StepNo, StepRef, Work};
use crate::state::{Due, Status, StepRun, UnhandledFailure, Visit};

impl Fold<'_> {
    /// A token on every outgoing edge.
    pub(super) fn mark_all(&mut self, from: StepNo) -> Result<(), Why> {
        let plan = self.plan;
        let mut edges = plan.outgoing(from).iter();
        edges.try_for_each(|edge| self.arrive(*edge, None, AdmissionVerdict::Allowed))
    }

    /// Tokens where the routing says.
    pub(super) fn apply_routing(
        &mut self,
        at: StepRef,
        routing: &Routing,
        failed: bool,
    ) -> Result<(), Why> {
        self.patch_ctx(&routing.set);
        if let Some(error) = &routing.error {
            self.state.failures.push(UnhandledFailure {
                step: at,
                error: error.clone(),
            });
        } else if failed && !routing.handled {
            let run = self.state.run(at).ok_or(NO_STEP_RUN)?;
            let error = run.error.as_deref().cloned();
            self.state.failures.push(UnhandledFailure {
                step: at,
                error: error.ok_or("the step-run failed without an error")?,
            });
        }
        let mut taken = routing.taken.iter();
        taken.try_for_each(|it| self.arrive(it.edge, it.args.clone(), it.verdict))
    }

    fn arrive(
        &mut self,
        edge: EdgeNo,
        args: Option<Arc<Json>>,
        verdict: AdmissionVerdict,
    ) -> Result<(), Why> {
        let found = self.plan.net().edges.get(edge.0 as usize);
        let target = found.ok_or("the plan has no such edge")?.to;
        match self.plan.step(target).join {
            Join::Each => self.visit(target, args, verdict),
            Join::All => self.mark(edge, target, args, verdict),
        }
    }

    /// One token more on an edge into a join; the join fires when none is missing, with what admission
    /// said about the token that made it fire.
    fn mark(
        &mut self,
        edge: EdgeNo,
        target: StepNo,
        args: Option<Arc<Json>>,
        verdict: AdmissionVerdict,
    ) -> Result<(), Why> {
        let plan = self.plan;
        let step = &mut self.state.steps[target.0 as usize];
        if step.absorbed {
            // An operator skipped the step ahead: its tokens are absorbed.
            return Ok(());
        }
        if let Some(args) = args {
            step.joined_args = Some(merge_args(step.joined_args.take(), args));
        }
        let incoming = plan.incoming(target);
        let count = &mut self.state.marks[edge.0 as usize];
        *count += 1;
        if *count > 1 {
            // The edge had a token already: this one waits for the next round.
            return Ok(());
        }
        if step.missing == incoming.len() as u32 {
            self.state.tally.starved += 1;
        }
        step.missing = step.missing.saturating_sub(1);
        if step.missing > 0 {
            // The join waits for its other tokens.
            return Ok(());
        }
        if step.passes {
            // An operator skipped the step ahead: now it is due, and the steps after it are.
            self.absorb(target);
            self.state.due.push(Due::Route(StepRef {
                step: target,
                visit: 1,
                item: None,
            }));
            return Ok(());
        }
        // Fire: take one token from every edge; what is left over waits for the next round.
        let mut missing = 0;
        for edge in incoming {
            let count = &mut self.state.marks[edge.0 as usize];
            *count = count.saturating_sub(1);
            missing += u32::from(*count == 0);
        }
        step.missing = missing;
        let args = step.joined_args.take();
        if missing == incoming.len() as u32 {
            self.state.tally.starved = self.state.tally.starved.saturating_sub(1);
        }
        self.visit(target, args, verdict)
    }

    /// The tokens at a join that was skipped ahead are taken away, and those that come later are absorbed.
    pub(super) fn absorb(&mut self, skipped: StepNo) {
        let incoming = self.plan.incoming(skipped);
        let step = &mut self.state.steps[skipped.0 as usize];
        step.passes = false;
        step.absorbed = true;
        if step.missing < incoming.len() as u32 {
            self.state.tally.starved = self.state.tally.starved.saturating_sub(1);
        }
        step.missing = incoming.len() as u32;
        step.joined_args = None;
        for edge in incoming {
            self.state.marks[edge.0 as usize] = 0;
        }
    }

    /// A token has reached a step.
    pub(super) fn visit(
        &mut self,
        step: StepNo,
        args: Option<Arc<Json>>,
        verdict: AdmissionVerdict,
    ) -> Result<(), Why> {
        let status = match verdict {
            AdmissionVerdict::Allowed => Status::Arrived,
            AdmissionVerdict::Denied => Status::Denied,
            AdmissionVerdict::Discarded => Status::Skipped,
        };
        let mut run = StepRun::new(status, self.at);
        run.params = self.params_version();
        if verdict == AdmissionVerdict::Discarded {
            run.skip = Some(crate::event::SkipReason::Discarded);
            run.ended_at = Some(self.at);
        }
        self.state.tally.enter(&run);
        let visits = &mut self.state.steps[step.0 as usize].visits;
        if visits.is_empty() {
            // Most steps are visited once, and a visit is large.
            visits.reserve_exact(1);
        }
        visits.push(Visit {
            run,
            args,
            each: None,
        });
        let at = StepRef {
            step,
            visit: visits.len() as u32,
            item: None,
        };
        if verdict != AdmissionVerdict::Discarded {
            self.state.open.insert(at);
        }
        match verdict {
            AdmissionVerdict::Allowed => self.enter(at),
            AdmissionVerdict::Denied => {
                self.state.denied.push(at);
                Ok(())
            }
            AdmissionVerdict::Discarded => Ok(()),
        }
    }

    /// A token that may enter: either a worker can claim it or the engine itself must act.
    pub(super) fn enter(&mut self, at: StepRef) -> Result<(), Why> {
        self.revive();
        let step = self.plan.step(at.step);
        let run = self.state.run(at).ok_or(NO_STEP_RUN)?;
        let gated = step.gate.is_some() && !run.is_answered();
        let engine_acts = match at.item {
            None => gated || step.each.is_some() || !is_claimable(&step.work),
            Some(_) => !is_claimable(&step.work),
        };
        let now = self.at;
        self.change(at, |run| {
            run.status = if engine_acts {
                Status::Arrived
            } else {
                Status::Ready
            };
            run.visible_at = now;
        })?;
        if engine_acts {
            self.state.due.push(Due::Enter(at));
            Ok(())
        } else {
            self.dispatch(at)
        }
    }

    /// Opens items of a loop while its window allows, or says that the loop is over.
    pub(super) fn advance_loop(&mut self, at: StepRef) -> Result<(), Why> {
        let stop_on_failure = self
            .plan
            .step(at.step)
            .each
            .as_ref()
            .is_some_and(|each| each.on_failure == OnLoopFailure::Fail);
        let moving = self.state.phase.is_moving();
        // A loop that was ended from outside opens nothing and is not told that it is over.
        let run = self.state.run(at).ok_or(NO_STEP_RUN)?;
        if run.status != Status::Looping {
            return Ok(());
        }
        let (logical, execution) = (run.logical, run.execution);
        loop {
            let visit = visit_of(&mut self.state.steps, at).ok_or(NO_STEP_RUN)?;
            let each = visit.each.as_mut().ok_or("the step-run has no loop")?;
            let draining = !moving || (stop_on_failure && each.failed > 0);
            if each.is_over(draining) {
                self.state.due.push(Due::Enter(at));
                return Ok(());
            }
            if !each.can_open(draining) {
                return Ok(());
            }
            let item = each.next;
            each.next += 1;
            let mut run = StepRun::new(Status::Arrived, self.at);
            run.params = (self.state.params.len() as u32).saturating_sub(1);
            run.logical = logical;
            run.execution = execution.saturating_sub(1);
            self.state.tally.enter(&run);
            each.active.insert(item, run);
            self.state.open.insert(at.with_item(item));
            self.enter(at.with_item(item))?;
        }
    }
}

/// Whether a worker does it.
pub(super) fn is_claimable(work: &Work) -> bool {
    matches!(work, Work::Task { .. } | Work::Pipeline { .. })
}

/// The arguments of a join: those of all its tokens, the latest last.
pub(crate) fn merge_args(before: Option<Arc<Json>>, args: Arc<Json>) -> Arc<Json> {
    match (before.as_deref(), args.as_ref()) {
        (Some(Json::Object(old)), Json::Object(new)) => {
            let mut merged = old.clone();
            merged.extend(new.iter().map(|(key, value)| (key.clone(), value.clone())));
            Arc::new(Json::Object(merged))
        }
        _ => args,
    }
}
