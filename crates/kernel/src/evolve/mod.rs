//! `evolve`: one event changes the state. This is the only code that can change a `State`.
//!
//! Nothing is decided or evaluated here: what an event needs is in it. An event that cannot follow the
//! state is an [`IllegalEvent`] and changes nothing, so a hostile log cannot panic a reader and a damaged
//! log is never taken for a whole one. [`replay`] is the one way to fold a run out of its events.

mod compensation;
mod lawful;
mod notice;
mod outcome;
mod run;
pub mod state;
mod step;
mod tokens;

use serde_json::Value as Json;
use std::sync::Arc;

use crate::command::{TimerId, TimerKind};
use crate::effect::{Effect, Target};
use crate::event::{
    Body, Event, Patch, TaskKind, WaitKind, notice_events, outcome_events, run_events, step_events,
    undo_events,
};
use crate::plan::{Plan, StepRef, WaitTimeout};
use crate::state::{Due, State, StepRun, StepState, Visit};
use crate::time::Time;

use lawful::{NO_STEP_RUN, Why};
pub(crate) use run::open_runs;
pub(crate) use tokens::merge_args;

/// An event that cannot follow the state it is folded into: the log is damaged, or a rule is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {seq} ({kind}{}) cannot follow the events before it: {why}", .step.as_ref().map_or_else(String::new, |step| format!(" of {step}")))]
pub struct IllegalEvent {
    /// The event's sequence number.
    pub seq: u64,
    /// The type of the event, such as `StepStarted`.
    pub kind: &'static str,
    /// The id of the step-run that the event is about.
    pub step: Option<String>,
    /// Why the event cannot follow.
    pub why: &'static str,
}

impl IllegalEvent {
    #[cold]
    fn new(plan: &Plan, event: &Event, why: Why) -> IllegalEvent {
        let known = |at: &StepRef| (at.step.0 as usize) < plan.len();
        let step = event.body.step().filter(known);
        IllegalEvent {
            seq: event.seq,
            kind: event.body.kind(),
            step: step.map(|at| plan.step_id(at)),
            why,
        }
    }
}

/// Folds one event into the state, and adds the effects that must follow once the event is committed.
/// On `Err` the event cannot follow the state, and the state is as it was.
pub fn evolve(
    plan: &Plan,
    state: &mut State,
    event: &Event,
    effects: &mut Vec<Effect>,
) -> Result<(), IllegalEvent> {
    let illegal = |why| IllegalEvent::new(plan, event, why);
    lawful::check(plan, state, event).map_err(illegal)?;
    let mut fold = Fold {
        plan,
        state,
        effects,
        seq: event.seq,
        at: event.at,
    };
    let body = plan.hidden().show(&event.body);
    fold.apply(&body).map_err(illegal)?;
    state.seq = event.seq;
    state.last_at = event.at;
    if state.pause.is_some() && state.tally.running == 0 {
        state.timers.disarm_own(TimerKind::Drain);
    }
    Ok(())
}

/// Folds a run out of its events: from the state before the first event, or from a decoded snapshot.
/// Events that the snapshot has already are passed over.
pub fn replay<'e>(
    plan: &Plan,
    run_id: &str,
    snapshot: Option<State>,
    events: impl IntoIterator<Item = &'e Event>,
) -> Result<State, IllegalEvent> {
    let mut state = snapshot.unwrap_or_else(|| State::new(run_id, plan));
    let known = state.seq;
    let mut effects = Vec::new();
    for event in events.into_iter().filter(|event| event.seq > known) {
        evolve(plan, &mut state, event, &mut effects)?;
        effects.clear();
    }
    Ok(state)
}

/// The reason for an event that was given to the wrong part of the fold; `Fold::apply` does not.
const MISPLACED: Why = "it was folded in the wrong place";

struct Fold<'a> {
    plan: &'a Plan,
    state: &'a mut State,
    effects: &'a mut Vec<Effect>,
    seq: u64,
    at: Time,
}

impl Fold<'_> {
    fn apply(&mut self, body: &Body) -> Result<(), Why> {
        match body {
            run_events!() => self.apply_run(body),
            notice_events!() => self.apply_notice(body),
            step_events!() => self.apply_step(body),
            outcome_events!() => self.apply_outcome(body),
            undo_events!() => self.apply_compensation(body),
            Body::Opaque(_) => Ok(()),
        }
    }

    fn patch_ctx(&mut self, patch: &Patch) {
        for (key, value) in patch {
            self.state.ctx.insert(key.clone(), Arc::new(value.clone()));
        }
    }

    /// Changes a step-run and keeps the tally right.
    fn change<T>(&mut self, at: StepRef, f: impl FnOnce(&mut StepRun) -> T) -> Result<T, Why> {
        let state = &mut *self.state;
        let visit = visit_of(&mut state.steps, at).ok_or(NO_STEP_RUN)?;
        let run = match at.item {
            None => &mut visit.run,
            Some(item) => {
                let each = visit.each.as_mut().ok_or(NO_STEP_RUN)?;
                each.active.get_mut(&item).ok_or(NO_STEP_RUN)?
            }
        };
        state.tally.leave(run);
        let heard = run.listens_for().map(str::to_owned);
        let was_open = !run.status.is_terminal();
        let result = f(run);
        state.tally.enter(run);
        match (was_open, !run.status.is_terminal()) {
            (true, false) => drop(state.open.remove(&at)),
            (false, true) => drop(state.open.insert(at)),
            (true, true) | (false, false) => {}
        }
        if run.listens_for() != heard.as_deref() {
            let hears = run.listens_for().map(str::to_owned);
            self.listen(at, heard, hears);
        }
        Ok(result)
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
    fn arm(&mut self, at: StepRef, kind: TimerKind, due: Time) -> Result<(), Why> {
        self.disarm(at)?;
        let id = TimerId {
            kind,
            target: Some(Target::Step(at)),
            armed: self.seq,
        };
        self.change(at, |run| run.timer = Some((due, id)))?;
        self.state.timers.arm(due, id);
        Ok(())
    }

    fn disarm(&mut self, at: StepRef) -> Result<(), Why> {
        if let Some((due, id)) = self.change(at, |run| run.timer.take())? {
            self.state.timers.disarm(due, id);
        }
        Ok(())
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

    fn dispatch(&mut self, at: StepRef) -> Result<(), Why> {
        let run = self.state.run(at).ok_or(NO_STEP_RUN)?;
        self.offer(at, run.visible_at, run.task);
        Ok(())
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

/// The visit that a reference names, to be changed.
fn visit_of(steps: &mut [StepState], at: StepRef) -> Option<&mut Visit> {
    let visits = &mut steps.get_mut(at.step.0 as usize)?.visits;
    visits.get_mut((at.visit as usize).checked_sub(1)?)
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
