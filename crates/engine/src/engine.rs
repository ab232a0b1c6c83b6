//! The engine over one store: commands in, commits, effects out. Effects that are messages to other
//! runs go through a queue, so a run never waits inside another's decision.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_kernel::command::{Actor, Command, Env, Reply, Role};
use stepwell_kernel::contract::{Recorder, SchemaFault};
use stepwell_kernel::decide::decide;
use stepwell_kernel::effect::{Effect, Priority, Target};
use stepwell_kernel::event::Event;
use stepwell_kernel::evolve::replay;
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::rejection::Rejection;
use stepwell_kernel::state::State;
use stepwell_kernel::time::Time;

use crate::port::{AppendError, Catalog, Clock, Store};

/// Why a command did not go through.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The store refused what the kernel decided.
    #[error("run {run_id}: {source}")]
    Append {
        /// Which run.
        run_id: String,
        /// Why.
        source: AppendError,
    },
    /// What the kernel decided does not fit the contract's schemas: a bug, and nothing was written.
    #[error("run {run_id}: {source}")]
    Schema {
        /// Which run.
        run_id: String,
        /// What does not fit.
        source: SchemaFault,
    },
    /// There is no such run here.
    #[error("there is no run {0}")]
    UnknownRun(String),
}

/// Someone must be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// About which run.
    pub run_id: String,
    /// Which alert.
    pub code: &'static str,
    /// How urgent.
    pub priority: Priority,
    /// For people.
    pub message: String,
}

/// Work that can be claimed: sorted as it is to be offered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task {
    /// Not before.
    pub visible_at: Time,
    /// The plan's order.
    pub order: u32,
    /// The step's name.
    pub name: String,
    /// The run.
    pub run_id: String,
    /// What to claim.
    pub target: Target,
}

/// A run that is held in memory.
#[derive(Debug)]
pub struct Live {
    /// Its plan.
    pub plan: Arc<Plan>,
    /// Its state.
    pub state: State,
    /// Its log in the contract's form, as far as it is committed.
    pub(crate) recorder: Recorder,
}

impl Live {
    /// A run with this log.
    pub(crate) fn replayed(
        plan: &Arc<Plan>,
        run_id: &str,
        events: &[Event],
    ) -> Result<Live, Error> {
        let mut recorder = Recorder::new(run_id);
        record(&mut recorder, plan, run_id, events)?;
        Ok(Live {
            plan: plan.clone(),
            state: replay(plan, run_id, events),
            recorder,
        })
    }
}

/// Checks events against the contract's schemas and links them to the hash chain.
fn record(
    recorder: &mut Recorder,
    plan: &Plan,
    run_id: &str,
    events: &[Event],
) -> Result<(), Error> {
    let records = recorder.record_all(plan, events);
    records.map(|_| ()).map_err(|source| Error::Schema {
        run_id: run_id.to_owned(),
        source,
    })
}

/// Someone or something outside is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Work in flight is no longer wanted.
    Stop {
        /// Which.
        target: Target,
        /// Which execution.
        execution: u32,
    },
    /// A person must answer.
    Person(StepRef),
    /// A child's definition was not found.
    MissingChild {
        /// The step that waits.
        step: StepRef,
        /// The child's key.
        request_key: String,
        /// What was looked for.
        path: String,
    },
}

/// The engine over one store.
#[derive(Debug)]
pub struct Engine<S, C, F> {
    pub(crate) store: S,
    pub(crate) clock: C,
    pub(crate) catalog: F,
    pub(crate) key: TokenKey,
    /// Which engine the log names.
    pub engine_type: &'static str,
    /// How many runs may run at a time; children run in their parent's slot.
    pub slots: Option<usize>,
    pub(crate) runs: BTreeMap<String, Live>,
    pub(crate) queue: VecDeque<String>,
    pub(crate) running: BTreeSet<String>,
    pub(crate) messages: VecDeque<(String, Command)>,
    pub(crate) children: BTreeMap<String, String>,
    /// Work that can be claimed.
    pub tasks: BTreeSet<Task>,
    /// What the outside is asked for, oldest first.
    pub asks: VecDeque<(String, Ask)>,
    /// What someone must be told, oldest first.
    pub alerts: Vec<Alert>,
    /// Events that steps sent to the outside, oldest first.
    pub published: Vec<(String, Json)>,
}

impl<S: Store, C: Clock, F: Catalog> Engine<S, C, F> {
    /// An engine with nothing in it.
    pub fn new(store: S, clock: C, catalog: F, key: TokenKey) -> Engine<S, C, F> {
        Engine {
            store,
            clock,
            catalog,
            key,
            engine_type: "native",
            slots: None,
            runs: BTreeMap::new(),
            queue: VecDeque::new(),
            running: BTreeSet::new(),
            messages: VecDeque::new(),
            children: BTreeMap::new(),
            tasks: BTreeSet::new(),
            asks: VecDeque::new(),
            alerts: Vec::new(),
            published: Vec::new(),
        }
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The clock.
    pub fn clock(&mut self) -> &mut C {
        &mut self.clock
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// A run.
    pub fn run(&self, run_id: &str) -> Option<&Live> {
        self.runs.get(run_id)
    }

    /// All runs, by id.
    pub fn runs(&self) -> impl Iterator<Item = (&String, &Live)> {
        self.runs.iter()
    }

    /// The secret for completion tokens.
    pub fn key(&self) -> &TokenKey {
        &self.key
    }

    /// Decides a command, commits what came of it, and does what follows.
    pub fn submit(&mut self, run_id: &str, command: Command) -> Result<Reply, Error> {
        let reply = self.commit(run_id, command)?;
        if let Reply::RetryRun { request_key } = &reply {
            self.repeat(run_id, request_key)?;
        }
        self.deliver_messages();
        Ok(reply)
    }

    /// Passes on what runs have to say to each other.
    pub(crate) fn deliver_messages(&mut self) {
        while let Some((to, message)) = self.messages.pop_front() {
            // A message to a run that has moved on is lawfully refused; there is nobody to tell.
            let _ = self.commit(&to, message);
        }
    }

    pub(crate) fn env(&self) -> Env {
        Env {
            now: self.clock.now(),
            key: self.key.clone(),
        }
    }

    fn commit(&mut self, run_id: &str, command: Command) -> Result<Reply, Error> {
        let env = self.env();
        let Some(live) = self.runs.get_mut(run_id) else {
            return Err(Error::UnknownRun(run_id.to_owned()));
        };
        let expected = live.state.seq;
        let decision = decide(&live.plan, &mut live.state, command, &env)?;
        if !decision.events.is_empty()
            && let Err(error) = self.append(run_id, expected, &decision.events)
        {
            self.read_back(run_id)?;
            return Err(error);
        }
        for effect in decision.effects {
            self.perform(run_id, effect);
        }
        Ok(decision.reply)
    }

    fn append(&mut self, run_id: &str, expected: u64, events: &[Event]) -> Result<(), Error> {
        let Some(live) = self.runs.get_mut(run_id) else {
            return Err(Error::UnknownRun(run_id.to_owned()));
        };
        record(&mut live.recorder, &live.plan, run_id, events)?;
        let appended = self.store.append(&live.plan, run_id, expected, events);
        appended.map_err(|source| Error::Append {
            run_id: run_id.to_owned(),
            source,
        })
    }

    /// The run has events in memory that were not committed: only the log is truth.
    fn read_back(&mut self, run_id: &str) -> Result<(), Error> {
        if let Some(live) = self.runs.get_mut(run_id) {
            *live = Live::replayed(&live.plan, run_id, &self.store.events(run_id, 0))?;
        }
        Ok(())
    }

    pub(crate) fn perform(&mut self, run_id: &str, effect: Effect) {
        let to = run_id.to_owned();
        match effect {
            Effect::Dispatch {
                target, visible_at, ..
            } => {
                if let Some(live) = self.runs.get(run_id) {
                    let step = live.plan.step(target.step_ref().step);
                    let (order, name) = (step.order, step.name.clone());
                    self.tasks.insert(Task {
                        visible_at,
                        order,
                        name,
                        run_id: to,
                        target,
                    });
                }
            }
            Effect::CancelWork { target, execution } => {
                self.asks.push_back((to, Ask::Stop { target, execution }))
            }
            Effect::IssueToken { step, .. } => self.asks.push_back((to, Ask::Person(step))),
            Effect::Publish(event) => self.published.push((to, event)),
            Effect::Alert {
                code,
                priority,
                message,
            } => {
                self.alerts.push(Alert {
                    run_id: to,
                    code,
                    priority,
                    message,
                });
            }
            Effect::Proceed => self.messages.push_back((to, Command::Proceed)),
            Effect::StartChild {
                step,
                request_key,
                input,
            } => {
                self.start_child(run_id, step, request_key, input.as_ref().clone());
            }
            Effect::CancelChild { request_key, .. } => {
                if let Some(child) = self.children.get(&request_key).cloned() {
                    let cancel = Command::CancelRun {
                        actor: engine_actor(),
                        reason: Some("the parent stops".into()),
                        compensate: false,
                    };
                    self.messages.push_back((child, cancel));
                }
            }
            Effect::PauseChildren => self.signal_children(run_id, "PAUSE"),
            Effect::ResumeChildren => self.signal_children(run_id, "RESUME"),
            Effect::RunEnded(outcome) => self.ended(run_id, outcome),
            // Timers are read off the state.
            Effect::WakeAt(_) => {}
        }
    }

    /// The events of a run after `after`.
    pub fn events(&self, run_id: &str, after: u64) -> Vec<Event> {
        self.store.events(run_id, after)
    }
}

/// The engine itself, as the sender of what it passes on.
#[must_use]
pub fn engine_actor() -> Actor {
    Actor {
        id: "engine".into(),
        role: Role::System,
        tenant: None,
    }
}
