//! `evolve`: one event changes the state. Total, and the only code that changes a `State`.
//!
//! Nothing is decided or evaluated here: what an event needs is in it. An event that names a step
//! the state does not have changes nothing, so a hostile log cannot panic a reader.

mod compensation;
mod outcome;
mod run;
pub mod state;
mod step;
mod tokens;

use serde_json::Value as Json;
use std::sync::Arc;

use crate::command::{TimerId, TimerKind};
use crate::effect::{Effect, Target};
use crate::event::{Body, Event, Patch, StopCause, TaskKind, WaitKind};
use crate::plan::{Plan, StepRef, WaitTimeout};
use crate::state::{Due, State, StepRun};
use crate::time::Time;

pub(crate) use run::open_runs;
pub(crate) use tokens::merge_args;

/// Folds one event into the state and says what must be done once it is committed.
pub fn evolve(plan: &Plan, state: &mut State, event: &Event, effects: &mut Vec<Effect>) {
    state.seq = event.seq;
    state.last_at = event.at;
    if !fits(plan, &event.body) {
        return;
    }
    Fold {
        plan,
        state,
        effects,
        seq: event.seq,
        at: event.at,
    }
    .apply(&event.body);
    if state.pause.is_some() && state.tally.running == 0 {
        state.timers.disarm_own(TimerKind::Drain);
    }
}

/// Whether every step that an event names is one of the plan's.
fn fits(plan: &Plan, body: &Body) -> bool {
    let known = |at: &StepRef| (at.step.0 as usize) < plan.len();
    match body {
        Body::TokensAdmitted { tokens } => tokens.iter().all(known),
        Body::CompensationStarted {
            undo,
            not_compensable,
        } => undo.iter().chain(not_compensable).all(known),
        Body::RunStopping {
            cause: StopCause::StepFailed { step },
            ..
        } => known(step),
        _ => body.step().is_none_or(|at| known(&at)),
    }
}

/// Folds a whole log.
#[must_use]
pub fn replay(plan: &Plan, run_id: &str, events: &[Event]) -> State {
    let mut state = State::new(run_id, plan);
    let mut effects = Vec::new();
    for event in events {
        evolve(plan, &mut state, event, &mut effects);
        effects.clear();
    }
    state
}

struct Fold<'a> {
    plan: &'a Plan,
    state: &'a mut State,
    effects: &'a mut Vec<Effect>,
    seq: u64,
    at: Time,
}

impl Fold<'_> {
    fn apply(&mut self, body: &Body) {
        match body {
            Body::RunCreated { .. }
            | Body::RunQueued {}
            | Body::RunApproved { .. }
            | Body::RunStarted { .. }
            | Body::RunPaused { .. }
            | Body::RunResumed { .. }
            | Body::PauseDrainTimedOut { .. }
            | Body::RunStalled { .. }
            | Body::RunFinalizing { .. }
            | Body::RunStopping { .. }
            | Body::RunCompleted { .. }
            | Body::RunFailed { .. }
            | Body::RunCancelled { .. }
            | Body::SignalAccepted { .. }
            | Body::SignalRejected { .. }
            | Body::CtxPatched { .. }
            | Body::ParamsUpdated { .. }
            | Body::OverrideInjected { .. }
            | Body::TargetUpdated { .. }
            | Body::EventReceived { .. } => self.apply_run(body),
            Body::StepStarted { .. }
            | Body::StepExecutionStarted { .. }
            | Body::StepExecutionFailed { .. }
            | Body::StepWaiting { .. }
            | Body::StepApproved { .. }
            | Body::StepWoken { .. }
            | Body::StepHeld { .. }
            | Body::StepRetried { .. } => self.apply_step(body),
            Body::StepCompleted { .. }
            | Body::StepFailed { .. }
            | Body::StepSkipped { .. }
            | Body::StepRouted { .. }
            | Body::TokensAdmitted { .. } => self.apply_outcome(body),
            Body::CompensationStarted { .. }
            | Body::CompensationInterrupted { .. }
            | Body::UndoStarted { .. }
            | Body::UndoExecutionFailed { .. }
            | Body::UndoCompleted { .. }
            | Body::UndoFailed { .. } => self.apply_compensation(body),
        }
    }

    fn patch_ctx(&mut self, patch: &Patch) {
        for (key, value) in patch {
            self.state.ctx.insert(key.clone(), Arc::new(value.clone()));
        }
    }

    /// Changes a step-run and keeps the tally right. Returns nothing if there is no such step-run.
    fn change<T>(&mut self, at: StepRef, f: impl FnOnce(&mut StepRun) -> T) -> Option<T> {
        let state = &mut *self.state;
        let visit = state
            .steps
            .get_mut(at.step.0 as usize)?
            .visits
            .get_mut((at.visit as usize).checked_sub(1)?)?;
        let run = match at.item {
            None => &mut visit.run,
            Some(item) => visit.each.as_mut()?.active.get_mut(&item)?,
        };
        state.tally.leave(run);
        let heard = run.listens_for().map(str::to_owned);
        let was_open = !run.status.is_terminal();
        let result = f(run);
        state.tally.enter(run);
        match (was_open, !run.status.is_terminal()) {
            (true, false) => drop(state.open.remove(&at)),
            (false, true) => drop(state.open.insert(at)),
            _ => {}
        }
        if run.listens_for() != heard.as_deref() {
            let hears = run.listens_for().map(str::to_owned);
            self.listen(at, heard, hears);
        }
        Some(result)
    }

    fn listen(&mut self, at: StepRef, before: Option<String>, after: Option<String>) {
        let listening = &mut self.state.listening;
        if let Some(event_type) = before
            && let Some(line) = listening.get_mut(&event_type)
        {
            line.remove(at);
            if line.is_empty() {
                listening.remove(&event_type);
            }
        }
        if let Some(event_type) = after {
            listening.entry(event_type).or_default().push(at);
        }
    }

    /// Arms a step-run's one timer, instead of the one before.
    fn arm(&mut self, at: StepRef, kind: TimerKind, due: Time) {
        self.disarm(at);
        let id = TimerId {
            kind,
            target: Some(Target::Step(at)),
            armed: self.seq,
        };
        if self.change(at, |run| run.timer = Some((due, id))).is_some() {
            self.state.timers.arm(due, id);
        }
    }

    fn disarm(&mut self, at: StepRef) {
        if let Some(Some((due, id))) = self.change(at, |run| run.timer.take()) {
            self.state.timers.disarm(due, id);
        }
    }

    /// A due item has been answered.
    fn settle(&mut self, due: Due) {
        self.state.due.remove(due);
    }

    /// The run is no longer stuck.
    fn revive(&mut self) {
        if self.state.stalled.take().is_some() {
            self.state.timers.disarm_own(TimerKind::Stall);
        }
    }

    fn dispatch(&mut self, at: StepRef) {
        if let Some(run) = self.state.run(at) {
            self.offer(at, run.visible_at, run.task);
        }
    }

    /// Offers work to workers. A paused run offers nothing; its resume makes up for it.
    fn offer(&mut self, at: StepRef, visible_at: Time, task: TaskKind) {
        if self.state.pause.is_none() {
            self.effects.push(Effect::Dispatch {
                target: Target::Step(at),
                visible_at,
                task,
            });
        }
    }

    fn params_version(&self) -> u32 {
        (self.state.params.len() as u32).saturating_sub(1)
    }
}

/// When a worker is to be told that a wait ran out; absent for waits that no worker answers.
pub(crate) fn claimable_deadline(plan: &Plan, run: &StepRun) -> Option<Time> {
    let wait = run.wait.as_deref()?;
    let reruns = matches!(wait.kind, WaitKind::Event { rerun: true, .. });
    let claims = plan.policy().wait_timeout == WaitTimeout::Claim;
    wait.deadline.filter(|_| reruns && claims)
}

/// The value at a path of the run's state, as expressions see it.
pub(crate) fn at_path(plan: &Plan, state: &State, path: &[String]) -> Option<Arc<Json>> {
    let (first, rest) = path.split_first()?;
    // ctx is kept by key: going through it whole would copy all of it.
    if first == "ctx"
        && let [key] = rest
    {
        return state.ctx.get(key).cloned();
    }
    let root = crate::scope::lookup(plan, state, first)?;
    if rest.is_empty() {
        return Some(root);
    }
    let mut value: &Json = &root;
    for part in rest {
        value = value.get(part)?;
    }
    Some(Arc::new(value.clone()))
}
