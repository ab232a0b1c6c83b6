//! State: a fold of events and nothing else. Only `evolve` changes it; everyone else reads.

mod frozen;
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

pub use frozen::FORMAT;
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

/// Where a run is in its life. Pause is not a phase: it lies over Running and Finalizing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It does not exist yet.
    Void,
    /// It exists.
    Created,
    /// It waits for a slot.
    Queued,
    /// Tokens move.
    Running,
    /// Only the final step is left.
    Finalizing,
    /// Nothing fires; what is in flight ends.
    Stopping,
    /// What was done is undone.
    Compensating,
    /// It is over.
    Ended(RunOutcome),
}

impl Phase {
    /// Whether tokens can move.
    #[must_use]
    pub fn is_moving(self) -> bool {
        matches!(self, Phase::Running | Phase::Finalizing)
    }

    /// Whether it is over.
    #[must_use]
    pub fn is_ended(self) -> bool {
        matches!(self, Phase::Ended(_))
    }
}

/// A pause that is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Which pause of the run.
    pub ordinal: u32,
    /// The drain took too long and an alert was raised.
    pub drain_timed_out: bool,
}

/// Why and how a run stops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopState {
    /// Why.
    pub cause: StopCause,
    /// Whether what was done is undone.
    pub compensate: bool,
}

/// The undoing of a run, one step at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Undoing {
    /// What to undo, first to last.
    pub todo: Vec<StepRef>,
    /// The one that is being undone, or next.
    pub next: usize,
    /// Its executions.
    pub run: StepRun,
    /// What became of those before it.
    pub results: Vec<UndoResult>,
    /// No further undo is started: one failed and the plan says stop, or somebody cancelled.
    pub halted: bool,
    /// Somebody cancelled: who and why.
    pub interrupted: Option<(Option<String>, Option<String>)>,
}

impl Undoing {
    /// Whether nothing is left to undo, or nothing more may be.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.current().is_none() || (self.halted && self.run.status != Status::Running)
    }

    /// The step that is being undone.
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

/// An event that came before anyone waited for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptEvent {
    /// Its id.
    pub id: String,
    /// Its type.
    pub event_type: String,
    /// What it says.
    pub payload: Arc<Json>,
}

/// A failure that no edge handled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnhandledFailure {
    /// Whose.
    pub step: StepRef,
    /// What it was.
    pub error: StepError,
}

/// Everything that is known about a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The run's id.
    pub run_id: String,
    /// The last event's sequence number.
    pub seq: u64,
    /// The last event's time.
    pub last_at: Time,
    /// Where it is in its life.
    pub phase: Phase,
    /// It may start.
    pub approved: bool,
    /// The pause in force.
    pub pause: Option<Pause>,
    /// How often it was paused.
    pub pauses: u32,
    /// Why it stops.
    pub stop: Option<StopState>,
    /// The undoing.
    pub undoing: Option<Undoing>,
    /// Only tokens that may not enter and joins that starve are left: what is stuck, in words.
    pub stalled: Option<Vec<String>>,
    /// When it was created.
    pub created_at: Time,
    /// When it started.
    pub started_at: Option<Time>,
    /// When it ended.
    pub ended_at: Option<Time>,
    /// Not to be started before.
    pub start_after: Option<Time>,
    /// Who it belongs to.
    pub context: RunContext,
    /// Who waits for it.
    pub parent: Option<Parent>,
    /// The run that it repeats.
    pub original_run_id: Option<String>,
    /// The engine that runs it.
    pub engine: Option<String>,
    /// Parameters, oldest version first; a logical attempt keeps the version it started with.
    pub params: Vec<Arc<Json>>,
    /// The run's own variables.
    pub ctx: BTreeMap<String, Arc<Json>>,
    /// Each step of the plan.
    pub steps: Vec<StepState>,
    /// How many tokens lie on each edge into a joining step.
    pub marks: Vec<u32>,
    /// How many step-runs are in which condition.
    pub tally: Tally,
    /// Step-runs that have not ended, so that no question about them has to look at all that have.
    pub open: BTreeSet<StepRef>,
    /// Who waits for an event of which type, who has waited longest first.
    pub listening: BTreeMap<String, OrderedSet<StepRef>>,
    /// What will happen by itself.
    pub timers: Timers,
    /// What the kernel still has to answer.
    pub due: OrderedSet<Due>,
    /// Tokens that may not enter, oldest first.
    pub denied: OrderedSet<StepRef>,
    /// Steps that left a mark on the world, in the order they completed.
    pub marked: Vec<StepRef>,
    /// Failures that no edge handled.
    pub failures: Vec<UnhandledFailure>,
    /// Why the run failed, once it has.
    pub error: Option<StepError>,
    /// What became of each undo, once the run has ended.
    pub undos: Vec<UndoResult>,
    /// Events nobody has waited for yet, oldest first.
    pub inbox: VecDeque<KeptEvent>,
    /// Ids of all events that were taken.
    pub seen_events: BTreeSet<String>,
    /// All signals that were decided; a refused one with its code.
    pub signals: BTreeMap<String, Option<String>>,
    /// When the last signals came, for the rate limit.
    pub signal_times: VecDeque<Time>,
    /// Who completed or approved which step.
    pub acted: Vec<(StepNo, String)>,
    /// What operators merged over steps' input.
    pub overrides: BTreeMap<StepNo, Arc<Json>>,
    /// Where operators redirected steps to.
    pub targets: BTreeMap<StepNo, Arc<Json>>,
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

    /// The executions that a target names.
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
