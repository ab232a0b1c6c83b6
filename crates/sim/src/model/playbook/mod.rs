//! The model of playbooks: where tokens go and what they carry, who may enter, how loops go on and end, which failures
//! are handled, what the variables of the run are, and how the run ends.
//!
//! An operator who skips or repeats a step changes what the playbook says; from then on the model judges nothing.

mod each;
mod tokens;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use stepwell_kernel::command::Claimed;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{
    AdmissionVerdict, Body, Event, LoopStart, Loss, Patch, Routing, SkipReason, StopCause,
    SuccessKind,
};
use stepwell_kernel::plan::StepRef;

use super::Verdict;
use crate::definitions::Playbook;
use crate::definitions::playbook::PlaybookStep;
use each::LoopModel;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A token has come and may not enter.
    Denied,
    /// A token has come and may enter.
    Arrived,
    Started,
    Succeeded,
    Failed,
    /// Never to run, or not to the end: the run stops, or the token was removed.
    Dropped,
}

/// The argument `n` of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Args {
    None,
    Number(u64),
    /// Several tokens became one; nothing says what their arguments become.
    Unknown,
}

/// One visit of a step: one token, or those that a join took together.
#[derive(Clone, Debug)]
struct Visit {
    stage: Stage,
    args: Args,
    each: Option<LoopModel>,
    /// How often the work was lost, by item.
    losses: BTreeMap<Option<u32>, u32>,
    /// The token has gone on, or there is nowhere to go.
    routed: bool,
    /// The event that the token came with.
    since: u64,
    /// What the step returned.
    output: u64,
}

/// What a claim must carry: the parameters, and the variable of the run that the work reads.
#[derive(Clone, Debug)]
struct ClaimModel {
    params: Arc<Json>,
    variable: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Failure,
    Stall,
    Cancel,
}

/// A run of a playbook as the specification describes it.
#[derive(Clone, Debug)]
pub(crate) struct PlaybookModel {
    book: Arc<Playbook>,
    params: Arc<Json>,
    /// All values that `workload.n` has had.
    numbers: Vec<u64>,
    ctx: BTreeMap<String, u64>,
    /// The visits of each step, in the order in which their tokens came.
    visits: Vec<Vec<Visit>>,
    /// How many tokens wait at a join, by the number of the arc that they came along.
    waiting: Vec<u32>,
    claims: BTreeMap<(StepRef, u32), ClaimModel>,
    /// A step failed, and no arc has handled it.
    unhandled: bool,
    /// A token had nowhere to go, and the playbook calls that an error.
    astray: bool,
    must_stop: bool,
    stalled: bool,
    finalizing: bool,
    final_failed: bool,
    stopping: Option<Cause>,
    cancel_asked: bool,
    /// An operator changed the course of the run.
    by_hand: bool,
}

impl PlaybookModel {
    pub(crate) fn new(book: Arc<Playbook>) -> PlaybookModel {
        PlaybookModel {
            params: Arc::default(),
            numbers: Vec::new(),
            ctx: BTreeMap::new(),
            visits: vec![Vec::new(); book.steps.len()],
            waiting: vec![0; book.arcs().count()],
            claims: BTreeMap::new(),
            unhandled: false,
            astray: false,
            must_stop: false,
            stalled: false,
            finalizing: false,
            final_failed: false,
            stopping: None,
            cancel_asked: false,
            by_hand: false,
            book,
        }
    }

    pub(crate) fn take(&mut self, event: &Event) -> Verdict {
        if self.by_hand {
            return Ok(());
        }
        match &event.body {
            Body::RunCreated { params, .. } => {
                self.params = params.clone();
                self.numbers.push(number(&params["n"]));
                if params["items"] != json!(self.book.items) {
                    return Err(format!("the parameters are {params}"));
                }
            }
            Body::ParamsUpdated { params } => {
                self.params = params.clone();
                self.numbers.push(number(&params["n"]));
            }
            Body::SignalAccepted { signal, .. } => {
                self.cancel_asked |= signal == "CANCEL" || signal == "EMERGENCY_STOP";
                self.by_hand |= signal == "SKIP_STEP" || signal == "RETRY_STEP";
            }
            Body::RunStarted { entry, .. } => {
                let step = self.book.entry;
                return self.arrives(step, Args::None, *entry, event.seq);
            }
            Body::StepStarted {
                step,
                execution,
                each,
                ..
            } => return self.starts(*step, *execution, each.as_ref()),
            Body::StepExecutionStarted {
                step, execution, ..
            } => return self.starts_again(*step, *execution),
            Body::StepExecutionFailed { step, loss, .. } => return self.is_lost(*step, *loss),
            Body::StepCompleted {
                step,
                output,
                ctx,
                routing,
                ..
            } => {
                let output = output.as_ref().map_or(0, |it| number(&it["v"]));
                return self.completes(*step, output, ctx, routing.as_ref(), event.seq);
            }
            Body::StepFailed {
                step, cancelled, ..
            } => return self.fails(*step, *cancelled),
            Body::StepRouted { step, routing } => return self.routes(*step, routing, event.seq),
            Body::StepSkipped { step, reason, .. } => return self.skips(*step, *reason),
            Body::StepRetried { .. } => self.by_hand = true,
            Body::TokensAdmitted { tokens } => return self.admits(tokens),
            Body::RunStalled { .. } => return self.stalls(),
            Body::RunFinalizing { summary, entry } => {
                if !summary.is_object() {
                    return Err(format!("the summary for the final step is {summary}"));
                }
                return self.finalizes(*entry, event.seq);
            }
            Body::RunStopping { cause, compensate } => return self.stops(cause, *compensate),
            Body::RunCompleted { success } => return self.completed(*success),
            Body::RunFailed { .. } => return self.failed(),
            Body::RunCancelled { .. } if !self.cancel_asked => {
                return Err("the run was cancelled, and nobody asked for it".into());
            }
            _ => {}
        }
        Ok(())
    }

    /// Work begins with what this claim carries.
    pub(crate) fn begins(&self, target: Target, claimed: &Claimed) -> Verdict {
        let Target::Step(at) = target else {
            return Err("work of a playbook is undone".into());
        };
        if self.by_hand {
            return Ok(());
        }
        let step = &self.book.steps[index(at)];
        let visit = self.visit(at)?;
        let claim = { self.claims.get(&(at, claimed.claim.execution)) }
            .ok_or("work begins without a claim")?;
        let name = &claimed.step_id;
        if *claim.params != *claimed.params {
            return Err(format!(
                "{name} began with the parameters {}, not {}",
                claimed.params, claim.params
            ));
        }
        let got = claimed.args.as_deref().and_then(|it| it["n"].as_u64());
        let right = match visit.args {
            Args::None => got.is_none(),
            Args::Number(number) => got == Some(number),
            Args::Unknown => true,
        };
        if !right {
            return Err(format!(
                "{name} began with the arguments {:?}, not {:?}",
                claimed.args, visit.args
            ));
        }
        let key = format!("c{}", step.reads);
        if claimed.ctx[key.as_str()].as_u64() != claim.variable {
            return Err(format!(
                "{name} began with the variables {}, and {key} is {:?}",
                claimed.ctx, claim.variable
            ));
        }
        let item = at.item.and_then(|item| {
            let each = visit.each.as_ref()?;
            each.items.get(item as usize)
        });
        match claimed.item.as_ref() == item {
            true => Ok(()),
            false => Err(format!(
                "{name} began with the item {:?}, not {item:?}",
                claimed.item
            )),
        }
    }

    fn visit(&self, at: StepRef) -> Result<&Visit, String> {
        let visits = self.visits.get(index(at)).ok_or("a step of no playbook")?;
        let visit = visits.get(at.visit as usize - 1);
        visit.ok_or_else(|| format!("no token has come for visit {} of {}", at.visit, at.step.0))
    }

    fn visit_mut(&mut self, at: StepRef) -> Result<(&mut Visit, &PlaybookStep), String> {
        let step = { self.book.steps.get(index(at)) }.ok_or("a step of no playbook")?;
        let visit = self.visits[index(at)].get_mut(at.visit as usize - 1);
        let visit =
            visit.ok_or_else(|| format!("no token has come for visit {} of it", at.visit))?;
        Ok((visit, step))
    }

    fn starts(&mut self, at: StepRef, execution: u32, each: Option<&LoopStart>) -> Verdict {
        if (self.stopping.is_some() || self.must_stop) && !self.is_last(at) {
            return Err(format!("step {} started in a run that stops", at.step.0));
        }
        let book = self.book.clone();
        self.note_claim(at, execution);
        let (visit, step) = self.visit_mut(at)?;
        let name = &step.name;
        if let Some(item) = at.item {
            let each = visit.each.as_mut().ok_or("an item without a loop")?;
            return each
                .starts(item)
                .map_err(|what| format!("item {item} of {name}: {what}"));
        }
        if visit.stage != Stage::Arrived {
            return Err(format!(
                "{name} started, and its token is {:?}",
                visit.stage
            ));
        }
        visit.stage = Stage::Started;
        let (Some(definition), Some(start)) = (&step.each, each) else {
            return match step.each.is_some() == each.is_some() {
                true => Ok(()),
                false => Err(format!("{name} started with the loop {each:?}")),
            };
        };
        let items = book.items(definition);
        let window = definition.parallel.unwrap_or(1);
        if start.count as usize != items.len() || (start.window != window && !items.is_empty()) {
            return Err(format!(
                "the loop {name} has {} items, {} at a time; not {} and {window}",
                start.count,
                start.window,
                items.len()
            ));
        }
        visit.each = Some(LoopModel {
            items,
            window: window as usize,
            goes_on: definition.goes_on,
            ..LoopModel::default()
        });
        Ok(())
    }

    /// Whether this is the final step, after all others.
    fn is_last(&self, at: StepRef) -> bool {
        self.finalizing && self.book.final_step == Some(index(at))
    }

    /// The work of a step that was lost is claimed again.
    fn starts_again(&mut self, at: StepRef, execution: u32) -> Verdict {
        if (self.stopping.is_some() || self.must_stop) && !self.is_last(at) {
            return Err(format!("step {} started in a run that stops", at.step.0));
        }
        self.note_claim(at, execution);
        let (visit, step) = self.visit_mut(at)?;
        match visit.stage {
            Stage::Started => Ok(()),
            stage => Err(format!("{} started again, and is {stage:?}", step.name)),
        }
    }

    fn note_claim(&mut self, at: StepRef, execution: u32) {
        let Some(step) = self.book.steps.get(index(at)) else {
            return;
        };
        let claim = ClaimModel {
            params: self.params.clone(),
            variable: self.ctx.get(&format!("c{}", step.reads)).copied(),
        };
        // A parameter that was changed reaches only what starts later.
        let first = (1..execution).find_map(|it| self.claims.get(&(at, it)));
        let params = first.map(|it| it.params.clone());
        let claim = ClaimModel {
            params: params.unwrap_or_else(|| claim.params.clone()),
            ..claim
        };
        self.claims.insert((at, execution), claim);
    }

    /// Only work that was lost is done again: how often work itself is tried is a matter of the tasks.
    fn is_lost(&mut self, at: StepRef, loss: Option<Loss>) -> Verdict {
        let (visit, step) = self.visit_mut(at)?;
        let name = &step.name;
        match loss {
            None => return Err(format!("{name} is tried again, and no rule says so")),
            Some(Loss::Released) => return Ok(()),
            Some(Loss::Lost) => {}
        }
        let losses = visit.losses.entry(at.item).or_default();
        *losses += 1;
        if step.at_most_once {
            return Err(format!("{name} is done again, and may be done only once"));
        }
        match *losses <= step.max_losses {
            true => Ok(()),
            false => Err(format!(
                "{name} was lost {losses} times, of {}",
                step.max_losses
            )),
        }
    }

    fn completes(
        &mut self,
        at: StepRef,
        output: u64,
        ctx: &Patch,
        routing: Option<&Routing>,
        seq: u64,
    ) -> Verdict {
        let (visit, step) = self.visit_mut(at)?;
        let name = step.name.clone();
        if visit.stage != Stage::Started {
            return Err(format!("{name} completed, and is {:?}", visit.stage));
        }
        if let Some(item) = at.item {
            let each = visit.each.as_mut().ok_or("an item without a loop")?;
            return each
                .ends(item, false)
                .map_err(|what| format!("item {item} of {name}: {what}"));
        }
        if let Some(each) = &visit.each {
            each.is_over(false)
                .map_err(|what| format!("the loop {name}: {what}"))?;
        }
        visit.stage = Stage::Succeeded;
        visit.output = match &visit.each {
            Some(_) => 0,
            None => output,
        };
        let sets = step.sets.clone();
        let boundary = self.boundary(at)?;
        let expected = sets.iter().map(|(key, value)| {
            let value = self.value(value, &boundary);
            (format!("c{key}"), value)
        });
        let expected: Vec<_> = expected.collect();
        // Nothing says whether the end of a step still sets variables when the run stops.
        if self.stopping.is_none() || !ctx.is_empty() {
            self.patches(&name, ctx, &expected)?;
        }
        let step = &self.book.steps[index(at)];
        let is_final = self.book.final_step == Some(index(at));
        match routing {
            Some(routing) => self.routes(at, routing, seq),
            None => {
                let leaf = step.arcs.is_empty() || is_final;
                self.visit_mut(at)?.0.routed |= leaf;
                Ok(())
            }
        }
    }

    fn fails(&mut self, at: StepRef, cancelled: bool) -> Verdict {
        let stops = self.stopping.is_some() || self.must_stop;
        let is_final = self.book.final_step == Some(index(at));
        let (visit, step) = self.visit_mut(at)?;
        let name = step.name.clone();
        if let Some(item) = at.item {
            let each = visit.each.as_mut().ok_or("an item without a loop")?;
            let ended = each.ends(item, true);
            return ended.map_err(|what| format!("item {item} of {name}: {what}"));
        }
        if cancelled {
            visit.stage = Stage::Dropped;
            return match stops {
                true => Ok(()),
                false => Err(format!("{name} was stopped, and the run goes on")),
            };
        }
        if !matches!(visit.stage, Stage::Started | Stage::Arrived) {
            return Err(format!("{name} failed, and is {:?}", visit.stage));
        }
        if let Some(each) = &visit.each
            && !stops
        {
            each.is_over(true)
                .map_err(|what| format!("the loop {name}: {what}"))?;
        }
        visit.stage = Stage::Failed;
        if is_final {
            visit.routed = true;
            self.final_failed = true;
            return Ok(());
        }
        let leaf = step.arcs.is_empty();
        let stops_run = step.fails_fast;
        self.must_stop |= stops_run || (leaf && self.book.fails_fast);
        self.unhandled |= leaf || stops_run;
        Ok(())
    }

    fn skips(&mut self, at: StepRef, reason: SkipReason) -> Verdict {
        let stops = self.stopping.is_some() || self.must_stop;
        match reason {
            SkipReason::Operator | SkipReason::OperatorAhead => {
                self.by_hand = true;
                Ok(())
            }
            SkipReason::Discarded => {
                let (visit, step) = self.visit_mut(at)?;
                let discards = step.admit.as_ref().is_some_and(|it| it.discards);
                match discards && visit.stage == Stage::Dropped {
                    true => Ok(()),
                    false => Err(format!("the token for {} was removed", step.name)),
                }
            }
            _ if at.item.is_some() => {
                let (visit, step) = self.visit_mut(at)?;
                let each = visit.each.as_mut().ok_or("an item without a loop")?;
                match stops || (each.failed > 0 && !each.goes_on) {
                    true => Ok(()),
                    false => Err(format!("an item of {} was skipped: {reason:?}", step.name)),
                }
            }
            _ if !stops => Err(format!("step {} was skipped: {reason:?}", at.step.0)),
            _ => {
                if let Ok((visit, _)) = self.visit_mut(at) {
                    visit.stage = Stage::Dropped;
                }
                Ok(())
            }
        }
    }

    /// Nothing can move any more.
    fn stalls(&mut self) -> Verdict {
        let mut visits = self.visits.iter().flatten();
        let moves = visits.any(|it| matches!(it.stage, Stage::Arrived | Stage::Started));
        let denied = { self.visits.iter().enumerate() }
            .filter(|(_, visits)| visits.iter().any(|it| it.stage == Stage::Denied));
        let denied: Vec<usize> = denied.map(|(step, _)| step).collect();
        let open = denied.iter().any(|it| self.may_enter(*it) == Some(true));
        let starved = self.waiting.iter().any(|it| *it > 0);
        if moves || open || (denied.is_empty() && !starved) {
            return Err("the run is said to be stuck, and something can move".into());
        }
        self.stalled = true;
        Ok(())
    }

    /// Whether no token is left.
    fn is_quiet(&self) -> Verdict {
        for (step, visits) in self.visits.iter().enumerate() {
            let definition = &self.book.steps[step];
            for visit in visits {
                let ended = match visit.stage {
                    Stage::Denied | Stage::Arrived | Stage::Started => false,
                    Stage::Dropped => true,
                    Stage::Succeeded | Stage::Failed => visit.routed || definition.arcs.is_empty(),
                };
                if !ended {
                    return Err(format!(
                        "a token of {} is left: {:?}",
                        definition.name, visit.stage
                    ));
                }
            }
        }
        match self.waiting.iter().position(|it| *it > 0) {
            None => Ok(()),
            Some(arc) => Err(format!("a token waits for others on arc {arc}")),
        }
    }

    fn finalizes(&mut self, entry: AdmissionVerdict, seq: u64) -> Verdict {
        let last = { self.book.final_step }.ok_or("a final step that no playbook has")?;
        match self.stopping {
            _ if self.finalizing => return Err("the final step runs twice".into()),
            // Tokens that wait at joins are given up.
            Some(Cause::Failure) => {}
            Some(Cause::Stall | Cause::Cancel) => {
                return Err("the final step runs in a run that was cancelled or stalled".into());
            }
            None => self.is_quiet()?,
        }
        self.finalizing = true;
        self.arrives(last, Args::Unknown, entry, seq)
    }

    fn stops(&mut self, cause: &StopCause, compensate: bool) -> Verdict {
        if compensate {
            return Err("the run is to be undone, and playbooks undo nothing".into());
        }
        let why = match cause {
            StopCause::StepFailed { step } => {
                // Without a step that stops the run at once, it stops when nothing else is left.
                if !self.must_stop && !self.astray {
                    let name = &self.book.steps[index(*step)].name;
                    let may = self.unhandled || (self.final_failed && !self.book.final_partial);
                    if !may {
                        return Err(format!("the run stops because of {name}"));
                    }
                    self.is_quiet()?;
                }
                Cause::Failure
            }
            StopCause::StallTimeout { .. } if self.stalled => Cause::Stall,
            StopCause::Cancel { .. } | StopCause::Emergency { .. } if self.cancel_asked => {
                Cause::Cancel
            }
            _ => return Err(format!("the run stops because of {cause:?}")),
        };
        self.stopping.get_or_insert(why);
        Ok(())
    }

    /// Whether the run has done everything that there was to do.
    fn is_done(&self) -> Verdict {
        self.is_quiet()?;
        match self.book.final_step.is_some() && !self.finalizing {
            true => Err("the run ended without its final step".into()),
            false => Ok(()),
        }
    }

    fn completed(&self, success: SuccessKind) -> Verdict {
        if self.stopping.is_some() || self.must_stop {
            return Err("the run completed, but it must stop".into());
        }
        self.is_done()?;
        let (book, bad) = (&self.book, self.unhandled || self.astray);
        let fails = (bad && !book.partial) || (self.final_failed && !book.final_partial);
        let wanted = match bad || self.final_failed {
            true => SuccessKind::Partial,
            false => SuccessKind::Full,
        };
        match success == wanted && !fails {
            true => Ok(()),
            false => Err(format!(
                "the run completed as {success:?}; failures that nothing handled: {}, of the final step: {}",
                self.unhandled, self.final_failed
            )),
        }
    }

    fn failed(&self) -> Verdict {
        match self.stopping {
            Some(Cause::Failure) if self.book.final_step.is_some() && !self.finalizing => {
                return Err("the run failed without its final step".into());
            }
            Some(Cause::Failure | Cause::Stall) => return Ok(()),
            Some(Cause::Cancel) | None => {}
        }
        let (book, bad) = (&self.book, self.unhandled || self.astray);
        let fails =
            (bad && !book.partial) || self.astray || (self.final_failed && !book.final_partial);
        if !fails || self.stopping.is_some() {
            return Err("the run failed, and nothing that is left has failed".into());
        }
        self.is_done()
    }
}

fn number(value: &Json) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn index(at: StepRef) -> usize {
    at.step.0 as usize
}
