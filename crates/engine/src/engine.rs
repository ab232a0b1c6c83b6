//! The engine over one store: commands in, commits, effects out. Effects that are messages to other
//! runs go through a queue, so a run never waits inside another's decision.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_kernel::command::{Actor, Command, Env, Reply, Role};
use stepwell_kernel::decide::{decide, next_wake};
use stepwell_kernel::effect::{Effect, Outcome, Priority, Target};
use stepwell_kernel::event::{Event, Parent, Rollback, RunContext, StepError};
use stepwell_kernel::evolve::replay;
use stepwell_kernel::keys::{self, TokenKey};
use stepwell_kernel::plan::{ErrorClass, Plan, StepRef, Work};
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::state::{Phase, State};
use stepwell_kernel::time::Time;

use crate::port::{AppendError, Catalog, Clock, Store};

/// How deep runs may start runs: a definition that calls itself for ever ends here.
pub const MAX_CHILD_DEPTH: usize = 16;

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

/// What a run is started with.
#[derive(Clone, Debug, Default)]
pub struct StartRequest {
    /// The new run's id.
    pub run_id: String,
    /// The requester's own id for this start: two starts with the same one are one run.
    pub request_id: Option<String>,
    /// Merged over the plan's workload.
    pub params: Json,
    /// Who it belongs to.
    pub context: RunContext,
    /// The run and step that wait for it.
    pub parent: Option<Parent>,
    /// The run that it repeats.
    pub original_run_id: Option<String>,
    /// Not to be started before.
    pub start_after: Option<Time>,
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
    clock: C,
    catalog: F,
    key: TokenKey,
    /// Which engine the log names.
    pub engine_type: &'static str,
    /// How many runs may run at a time; children run in their parent's slot.
    pub slots: Option<usize>,
    pub(crate) runs: BTreeMap<String, Live>,
    plans: HashMap<String, Arc<Plan>>,
    pub(crate) queue: VecDeque<String>,
    pub(crate) running: BTreeSet<String>,
    messages: VecDeque<(String, Command)>,
    children: BTreeMap<String, String>,
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
            plans: HashMap::new(),
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

    /// Creates a run and puts it into the queue; it starts when a slot is free. Two requests with the
    /// same request id create one run, whose id both get.
    pub fn trigger(&mut self, plan: &Arc<Plan>, request: StartRequest) -> Result<String, Error> {
        let run_id = self.create(plan, request)?;
        if self
            .run(&run_id)
            .is_some_and(|live| live.state.phase == Phase::Created)
        {
            self.submit(&run_id, Command::EnqueueRun)?;
            self.queue.push_back(run_id.clone());
            self.dequeue_and_start();
        }
        Ok(run_id)
    }

    /// Creates a run; it stays as it is.
    pub fn create(&mut self, plan: &Arc<Plan>, request: StartRequest) -> Result<String, Error> {
        let net = plan.net();
        let run_id = request.run_id.clone();
        let create = Command::CreateRun {
            run_id: run_id.clone(),
            params: request.params,
            context: request.context.clone(),
            parent: request.parent,
            original_run_id: request.original_run_id,
            start_after: request.start_after,
        };
        // What the kernel refuses must not use up the request's key.
        let mut state = State::new(run_id.clone(), plan);
        decide(plan, &mut state, create.clone(), &self.env())?;
        if let Some(id) = &request.request_id {
            let context = &request.context;
            let key = keys::request_key(
                &context.tenant_id,
                &context.project_id,
                &context.environment_id,
                &net.plan_id,
                &net.plan_version,
                id,
            );
            if let Some(existing) = self.store.claim_request(&key, &run_id) {
                return Ok(existing);
            }
        }
        if self.runs.contains_key(&run_id) {
            let message = format!("there is a run {run_id} already");
            return Err(Rejection::new(Code::RunExists, message).into());
        }
        let state = State::new(run_id.clone(), plan);
        self.plans.insert(plan.hash().to_owned(), plan.clone());
        self.runs.insert(
            run_id.clone(),
            Live {
                plan: plan.clone(),
                state,
            },
        );
        if let Err(error) = self.submit(&run_id, create) {
            self.runs.remove(&run_id);
            return Err(error);
        }
        Ok(run_id)
    }

    /// Starts queued runs while slots are free, first come first served.
    pub fn dequeue_and_start(&mut self) -> Vec<String> {
        let mut started = Vec::new();
        let mut waiting = VecDeque::new();
        while let Some(run_id) = self.queue.pop_front() {
            // A child runs in its parent's slot, or the two could wait for each other.
            let child = self
                .run(&run_id)
                .is_some_and(|it| it.state.parent.is_some());
            let free = self.slots.is_none_or(|slots| self.running.len() < slots);
            if !child && !free {
                waiting.push_back(run_id);
                continue;
            }
            match self.start(&run_id) {
                Ok(()) => started.push(run_id),
                // Not yet approved, or not to be started yet: it keeps its place.
                Err(_)
                    if self
                        .run(&run_id)
                        .is_some_and(|live| live.state.phase == Phase::Queued) =>
                {
                    waiting.push_back(run_id);
                }
                Err(_) => {}
            }
        }
        self.queue = waiting;
        started
    }

    fn start(&mut self, run_id: &str) -> Result<(), Error> {
        let engine = self.engine_type.to_owned();
        let engine_run_ref = format!("{engine}://{run_id}");
        self.submit(
            run_id,
            Command::StartRun {
                engine,
                engine_run_ref,
                fetched_sha256: None,
            },
        )?;
        let live = self.runs.get(run_id);
        if live.is_some_and(|live| live.state.parent.is_none() && !live.state.phase.is_ended()) {
            self.running.insert(run_id.to_owned());
        }
        Ok(())
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

    /// Starts the run that RETRY_RUN asked for: what was asked for then, once more.
    fn repeat(&mut self, run_id: &str, request_key: &str) -> Result<(), Error> {
        let repeated = run_id_for(request_key);
        let Some(live) = self.runs.get(run_id) else {
            return Err(Error::UnknownRun(run_id.to_owned()));
        };
        if self.runs.contains_key(&repeated) {
            return Ok(());
        }
        let plan = live.plan.clone();
        let first = live.state.original_run_id.as_deref().unwrap_or(run_id);
        let request = StartRequest {
            run_id: repeated,
            params: live
                .state
                .params
                .first()
                .map(|it| Json::clone(it))
                .unwrap_or_default(),
            context: live.state.context.clone(),
            original_run_id: Some(first.to_owned()),
            ..StartRequest::default()
        };
        self.trigger(&plan, request)?;
        Ok(())
    }

    fn env(&self) -> Env {
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
            && let Err(source) = self
                .store
                .append(&live.plan, run_id, expected, &decision.events)
        {
            // The state has events that were not committed: only the log is truth.
            let plan = live.plan.clone();
            live.state = replay(&plan, run_id, &self.store.events(run_id, 0));
            return Err(Error::Append {
                run_id: run_id.to_owned(),
                source,
            });
        }
        for effect in decision.effects {
            self.perform(run_id, effect);
        }
        Ok(decision.reply)
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

    fn start_child(&mut self, run_id: &str, step: StepRef, request_key: String, input: Json) {
        if self.children.contains_key(&request_key) {
            return;
        }
        let Some(live) = self.runs.get(run_id) else {
            return;
        };
        let Work::Child(spec) = &live.plan.step(step.step).work else {
            return;
        };
        if self.depth(run_id) >= MAX_CHILD_DEPTH {
            let message = format!(
                "runs may start runs {MAX_CHILD_DEPTH} deep; {:?} would be one more",
                spec.path
            );
            let error = StepError::new(ErrorClass::Validation, "CHILD_TOO_DEEP", message);
            let end = Command::ChildEnded {
                step,
                request_key,
                outcome: Outcome::Failed(Rollback::None),
                output: Json::Null,
                error: Some(error),
            };
            self.messages.push_back((run_id.to_owned(), end));
            return;
        }
        let Some(plan) = self.catalog.find(&live.plan, &spec.path) else {
            let path = spec.path.clone();
            self.asks.push_back((
                run_id.to_owned(),
                Ask::MissingChild {
                    step,
                    request_key,
                    path,
                },
            ));
            return;
        };
        let parent = Parent {
            run_id: run_id.to_owned(),
            step_id: live.plan.step_id(step),
        };
        let context = live.state.context.clone();
        let child = run_id_for(&request_key);
        self.children.insert(request_key, child.clone());
        if !self.store.events(&child, 0).is_empty() {
            // It was started before a crash.
            let _ = self.load(&plan, &child);
            return;
        }
        let request = StartRequest {
            run_id: child,
            params: input,
            context,
            parent: Some(parent),
            ..StartRequest::default()
        };
        let _ = self.trigger(&plan, request);
    }

    /// How many runs are above this one.
    fn depth(&self, run_id: &str) -> usize {
        let above = |id: &&str| {
            let parent = self.runs.get(*id)?.state.parent.as_ref()?;
            Some(parent.run_id.as_str())
        };
        std::iter::successors(Some(run_id), above).count() - 1
    }

    /// Passes a pause or its end on. The signal's id follows from the pause, so that a child that was
    /// told before a crash is not told twice; the end of a pause is only for children that were paused
    /// by it.
    fn signal_children(&mut self, run_id: &str, signal: &str) {
        let pause = self.runs.get(run_id).map_or(0, |live| live.state.pauses);
        let id = |signal: &str| format!("parent-{signal}-{pause}");
        let prefix = format!("{run_id}|");
        let open = self.children.range(prefix.clone()..);
        for (_, child) in open.take_while(|(key, _)| key.starts_with(&prefix)) {
            let paused = |live: &Live| live.state.signals.contains_key(&id("PAUSE"));
            if signal == "RESUME" && !self.runs.get(child).is_some_and(paused) {
                continue;
            }
            let command = Command::Signal {
                signal_id: id(signal),
                signal: signal.to_owned(),
                payload: Json::Null,
                reason: None,
                actor: engine_actor(),
            };
            self.messages.push_back((child.clone(), command));
        }
    }

    fn ended(&mut self, run_id: &str, outcome: Outcome) {
        self.running.remove(run_id);
        self.tasks.retain(|task| task.run_id != run_id);
        let Some(live) = self.runs.get(run_id) else {
            return;
        };
        let request_key = self
            .children
            .iter()
            .find(|(_, child)| *child == run_id)
            .map(|(key, _)| key.clone());
        if let (Some(parent), Some(request_key)) = (&live.state.parent, request_key) {
            let output = self.output_for_parent(live, parent);
            let step = self
                .runs
                .get(&parent.run_id)
                .and_then(|live| live.plan.parse_step_id(&parent.step_id));
            if let Some(step) = step {
                let error = live.state.error.clone();
                let end = Command::ChildEnded {
                    step,
                    request_key,
                    outcome,
                    output,
                    error,
                };
                self.messages.push_back((parent.run_id.clone(), end));
            }
        }
        self.dequeue_and_start();
    }

    /// What a child returns: the output of the step that the parent names, else of the last to succeed.
    fn output_for_parent(&self, live: &Live, parent: &Parent) -> Json {
        let wanted = self.runs.get(&parent.run_id).and_then(|parent_run| {
            let at = parent_run.plan.parse_step_id(&parent.step_id)?;
            match &parent_run.plan.step(at.step).work {
                Work::Child(spec) => live.plan.find(spec.return_step.as_deref()?),
                _ => None,
            }
        });
        let mut visits: Vec<_> = live
            .plan
            .numbers()
            .filter(|no| wanted.is_none_or(|wanted| wanted == *no))
            .flat_map(|no| live.state.steps[no.0 as usize].visits.iter())
            .filter(|visit| visit.run.output.is_some())
            .collect();
        visits.sort_by_key(|visit| visit.run.ended_at);
        visits
            .last()
            .and_then(|visit| visit.run.output.as_deref().cloned())
            .unwrap_or_default()
    }

    /// The events of a run after `after`.
    pub fn events(&self, run_id: &str, after: u64) -> Vec<Event> {
        self.store.events(run_id, after)
    }

    /// Fires everything that is due. Says whether anything was.
    pub fn fire_due(&mut self) -> bool {
        let now = self.now();
        let due: Vec<_> = self
            .runs
            .iter()
            .filter(|(_, live)| next_wake(&live.state).is_some_and(|wake| wake <= now))
            .map(|(id, live)| {
                (
                    id.clone(),
                    live.state.timers.next(),
                    live.state.phase,
                    live.state.pause.is_some(),
                )
            })
            .collect();
        let mut fired = false;
        for (run_id, timer, phase, paused) in due {
            fired |= match (phase, timer) {
                (Phase::Created | Phase::Queued, _) => !self.dequeue_and_start().is_empty(),
                (_, Some((_, id))) if !paused => {
                    self.submit(&run_id, Command::FireTimer(id)).is_ok()
                }
                (_, _) => {
                    let drain = self.runs.get(&run_id).and_then(|live| {
                        live.state
                            .timers
                            .own(stepwell_kernel::command::TimerKind::Drain)
                    });
                    drain
                        .is_some_and(|(_, id)| self.submit(&run_id, Command::FireTimer(id)).is_ok())
                }
            };
        }
        fired
    }

    /// When something happens next by itself.
    pub fn next_wake(&self) -> Option<Time> {
        let now = self.now();
        // A run whose start time has passed waits for a slot or an approval, not for time.
        let waits = |state: &State| matches!(state.phase, Phase::Created | Phase::Queued);
        let timers = self
            .runs
            .values()
            .filter_map(|live| {
                next_wake(&live.state).filter(|wake| *wake > now || !waits(&live.state))
            })
            .min();
        let task = self.tasks.first().map(|task| task.visible_at);
        timers.into_iter().chain(task).min()
    }
}

/// The id of a run that is asked for under a key: a child, or the repetition of a run. It follows from
/// the key, so that a crash between the request and the run cannot make two.
#[must_use]
pub fn run_id_for(request_key: &str) -> String {
    format!("run_{}", &keys::sha256_hex(request_key)[..32])
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
