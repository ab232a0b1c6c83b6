//! State: a fold of events and nothing else. The fields of all its parts are visible to `evolve` alone,
//! which the compiler checks; everyone else reads them through methods of the same names.

mod encoding;
mod evolved;
mod loops;
mod marking;
mod ordered_set;
mod step_run;
mod tally;
mod timers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use encoding::FORMAT;
pub use loops::{ItemResult, LoopState};
pub use marking::{StepState, Visit};
pub use ordered_set::OrderedSet;
pub use step_run::{ManualAnswer, Status, StepRun, UndoStatus, WaitState};
pub use tally::Tally;
pub use timers::Timers;

use crate::effect::{RunOutcome, Target};
use crate::event::{Parent, RunContext, StepError, StopCause, UndoResult};
use crate::plan::{Plan, StepNo, StepRef};
use crate::time::Time;
use evolved::evolved;

/// Where a run is in its life. Pause is not a phase: it lies over Running and Finalizing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The run does not exist yet.
    Void,
    /// The run exists and has not started.
    Created,
    /// The run waits for a slot.
    Queued,
    /// Steps run, and tokens move between them.
    Running,
    /// Only the final step is left.
    Finalizing,
    /// Nothing new starts; work in flight ends.
    Stopping,
    /// The effects of completed steps are undone.
    Compensating,
    /// The run has ended.
    Ended(RunOutcome),
}

impl Phase {
    /// Whether tokens can move.
    #[must_use]
    pub fn is_moving(self) -> bool {
        matches!(self, Phase::Running | Phase::Finalizing)
    }

    /// Whether the run has ended.
    #[must_use]
    pub fn is_ended(self) -> bool {
        matches!(self, Phase::Ended(_))
    }
}

evolved! {
    /// A pause that is in force.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Pause {
        /// Which pause of the run this is, from 1.
        ordinal: u32 => copy,
        /// Whether work in flight took too long to end and an alert was raised.
        drain_timed_out: bool => copy,
    }
}

evolved! {
    /// Why and how a run stops.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct StopState {
        /// Why the run stops.
        cause: StopCause => get,
        /// Whether the effects of completed steps are undone.
        compensate: bool => copy,
    }
}

evolved! {
    /// The undoing of a run, one step at a time.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct Undoing {
        /// The steps to undo, first to last.
        todo: Vec<StepRef> => deref([StepRef]),
        /// The index in `todo` of the step that is being undone, or is next.
        next: usize => copy,
        /// The executions of the undo at `next`.
        run: StepRun => get,
        /// The results of the undos before it.
        results: Vec<UndoResult> => deref([UndoResult]),
        /// Whether no further undo is started: one failed and the plan says stop, or the run was cancelled.
        halted: bool => copy,
        /// The person who cancelled during the undoing and the reason, if there was a cancel.
        interrupted: Option<(Option<String>, Option<String>)> => opt((Option<String>, Option<String>)),
    }
}

impl Undoing {
    /// Whether nothing is left to undo, or nothing more may be undone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.current().is_none() || (self.halted && self.run.status != Status::Running)
    }

    /// The step that is being undone, or is next.
    #[must_use]
    pub fn current(&self) -> Option<StepRef> {
        self.todo.get(self.next).copied()
    }
}

/// Something that happened and that the kernel has not yet answered, because the run was paused or a
/// decision was full. `decide` works these off, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// The engine itself must act on a step that a token has reached.
    Enter(StepRef),
    /// A finished step's tokens must move.
    Route(StepRef),
    /// A failure must be answered.
    Failure(StepRef),
}

evolved! {
    /// An event that came before any step waited for it.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct KeptEvent {
        /// The id that the sender of the event chose; a second event with this id is ignored.
        id: String => deref(str),
        /// The type of the event, which a step that waits for events names.
        event_type: String => deref(str),
        /// The content of the event, for the step that will wait for it.
        payload: Arc<Json> => get,
    }
}

evolved! {
    /// A failure that no edge handled.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct UnhandledFailure {
        /// The step-run that failed.
        step: StepRef => copy,
        /// The error it failed with.
        error: StepError => get,
    }
}

evolved! {
    /// Everything that is known about a run.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct State {
        /// The id of the run, which never changes.
        run_id: String => deref(str),
        /// The sequence number of the last event.
        seq: u64 => copy,
        /// The time of the last event.
        last_at: Time => copy,
        /// Where the run is in its life.
        phase: Phase => copy,
        /// Whether the run may start.
        approved: bool => copy,
        /// The pause in force.
        pause: Option<Pause> => copy,
        /// The number of pauses so far, the current pause included.
        pauses: u32 => copy,
        /// Why the run stops, once it does.
        stop: Option<StopState> => opt(StopState),
        /// The undoing, once it has started.
        undoing: Option<Undoing> => opt(Undoing),
        /// What is stuck, in words, if only tokens that may not enter and starved joins are left.
        stalled: Option<Vec<String>> => opt_deref([String]),
        /// When the run was created.
        created_at: Time => copy,
        /// When the run started.
        started_at: Option<Time> => copy,
        /// When the run ended.
        ended_at: Option<Time> => copy,
        /// When the run may start at the earliest.
        start_after: Option<Time> => copy,
        /// The tenant and project that the run belongs to, and who started it.
        context: RunContext => get,
        /// The run and step that wait for this run.
        parent: Option<Parent> => opt(Parent),
        /// The id of the run that this run repeats.
        original_run_id: Option<String> => opt_deref(str),
        /// The engine that executes the run, such as `native`; absent before the start.
        engine: Option<String> => opt_deref(str),
        /// The parameters, oldest version first; a logical attempt keeps the version it started with.
        params: Vec<Arc<Json>> => deref([Arc<Json>]),
        /// The run's own variables.
        ctx: BTreeMap<String, Arc<Json>> => get,
        /// Each step of the plan, by step number.
        steps: Vec<StepState> => deref([StepState]),
        /// How many tokens lie on each edge into a joining step, by edge number.
        marks: Vec<u32> => deref([u32]),
        /// The number of step-runs in each status.
        tally: Tally => get,
        /// The step-runs that have not ended, so that no question about them has to look at all step-runs.
        open: BTreeSet<StepRef> => get,
        /// The step-runs that wait for an event, by its type; the one that has waited longest is first.
        listening: BTreeMap<String, OrderedSet<StepRef>> => get,
        /// The timers that are armed; the engine fires the earliest when it is due.
        timers: Timers => get,
        /// What the kernel still has to answer.
        due: OrderedSet<Due> => get,
        /// The tokens that may not enter, oldest first.
        denied: OrderedSet<StepRef> => get,
        /// The step-runs that had effects outside, in the order they completed.
        marked: Vec<StepRef> => deref([StepRef]),
        /// The failures that no edge handled.
        failures: Vec<UnhandledFailure> => deref([UnhandledFailure]),
        /// Why the run failed, once it has.
        error: Option<StepError> => opt(StepError),
        /// The result of each undo, once the run has ended.
        undos: Vec<UndoResult> => deref([UndoResult]),
        /// The events that no step has waited for yet, oldest first.
        inbox: VecDeque<KeptEvent> => get,
        /// The ids of all events that were taken.
        seen_events: BTreeSet<String> => get,
        /// All signals that were decided, by id; a refused one with its code.
        signals: BTreeMap<String, Option<String>> => get,
        /// When the last signals came, for the rate limit.
        signal_times: VecDeque<Time> => get,
        /// The steps that people completed or approved, each with the id of the person.
        acted: Vec<(StepNo, String)> => deref([(StepNo, String)]),
        /// What operators merged over the input of steps.
        overrides: BTreeMap<StepNo, Arc<Json>> => get,
        /// The targets that operators redirected steps to.
        targets: BTreeMap<StepNo, Arc<Json>> => get,
    }
}

impl State {
    /// The state before the first event.
    #[must_use]
    pub fn new(run_id: impl Into<String>, plan: &Plan) -> State {
        State {
            run_id: run_id.into(),
            seq: 0,
            last_at: Time(0),
            phase: Phase::Void,
            approved: false,
            pause: None,
            pauses: 0,
            stop: None,
            undoing: None,
            stalled: None,
            created_at: Time(0),
            started_at: None,
            ended_at: None,
            start_after: None,
            context: RunContext::default(),
            parent: None,
            original_run_id: None,
            engine: None,
            params: Vec::new(),
            ctx: BTreeMap::new(),
            steps: plan
                .numbers()
                .map(|no| StepState::new(plan.incoming(no).len() as u32))
                .collect(),
            marks: vec![0; plan.net().edges.len()],
            tally: Tally::default(),
            timers: Timers::default(),
            open: BTreeSet::new(),
            listening: BTreeMap::new(),
            due: OrderedSet::default(),
            denied: OrderedSet::default(),
            marked: Vec::new(),
            failures: Vec::new(),
            error: None,
            undos: Vec::new(),
            inbox: VecDeque::new(),
            seen_events: BTreeSet::new(),
            signals: BTreeMap::new(),
            signal_times: VecDeque::new(),
            acted: Vec::new(),
            overrides: BTreeMap::new(),
            targets: BTreeMap::new(),
        }
    }

    /// One step of the plan in this run. Step numbers come from the plan, so the step exists.
    #[inline]
    #[must_use]
    pub fn step(&self, no: StepNo) -> &StepState {
        &self.steps[no.0 as usize]
    }

    /// The visit that a reference names.
    #[must_use]
    pub fn visit(&self, at: StepRef) -> Option<&Visit> {
        self.steps
            .get(at.step.0 as usize)?
            .visits
            .get((at.visit as usize).checked_sub(1)?)
    }

    /// The step-run that a reference names: a visit, or an item of its loop that is still open.
    #[must_use]
    pub fn run(&self, at: StepRef) -> Option<&StepRun> {
        let visit = self.visit(at)?;
        match at.item {
            None => Some(&visit.run),
            Some(item) => visit.each.as_ref()?.active.get(&item),
        }
    }

    /// Whether a reference names an item of a loop that has ended: it has a result, no step-run.
    #[must_use]
    pub fn has_closed(&self, at: StepRef) -> bool {
        let each = self.visit(at).and_then(|visit| visit.each.as_ref());
        let result = at.item.and_then(|item| each?.results.get(item as usize));
        result.is_some_and(Option::is_some)
    }

    /// The step-run that a target names: a step's own, or the undo in progress.
    #[must_use]
    pub fn target(&self, target: Target) -> Option<&StepRun> {
        match target {
            Target::Step(at) => self.run(at),
            Target::Undo(at) => self
                .undoing
                .as_ref()
                .filter(|u| u.current() == Some(at))
                .map(|u| &u.run),
        }
    }

    /// The parameters as they are now.
    #[must_use]
    pub fn current_params(&self) -> Arc<Json> {
        self.params.last().cloned().unwrap_or_default()
    }

    /// Whether every started, unfinished step waits for a person or an event.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.phase.is_moving() && self.tally.waits_outside > 0 && !self.tally.someone_works()
    }

    /// Whether the run is paused and work is still in flight.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.pause.is_some() && self.tally.running > 0
    }
}
