//! The keeper: holds the runs that are hot, decides their commands, and turns the decisions into
//! commits. It has no thread and no clock of its own: a driver hands it commands and the time, takes
//! batches to the store, and brings the answers back. So the same code runs under threads, in line
//! for tests and the mock, and in the simulator.
//!
//! ```text
//! take(command) ─► decide ─► draft ─┐                    ┌─► answers, jobs to start, …
//!                                   next_batch ─► store ─┤
//! commands for a run in flight wait ┘                    └─► lost: read again, decide again
//! ```
//!
//! - `hot`: a run in memory, and what is decided but not committed (`Draft`).
//! - `rows`: what follows from events and effects for the other tables.
//! - `start`: how runs come to be; the queue and its slots.
//! - `letters`: messages between runs, and from other processes.
//! - `outcome`: what the store answered.
//! - `wake`: time: timers, sessions, leases, polls.
//!
//! A run belongs to this keeper's session while the keeper itself has something to do for it: work in
//! flight in this process, work about to be claimed, a decision to go on with. Everything else that
//! can move a run is a row: a wake-up time, a task, a wait, a message.

mod hot;
mod letters;
mod outcome;
mod rows;
mod start;
mod wake;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_kernel::command::{Claim, Claimed, Command, Env, Reply};
use stepwell_kernel::decide::decide;
use stepwell_kernel::effect::{Effect, Outcome as RunOutcome, Target};
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::time::Time;

use crate::error::Error;
use crate::limits::Limits;
use crate::port::Catalog;
use crate::store::{
    Append, Batch, CommitId, Guard, MailNo, NewAlert, PlanNo, RunNo, SessionNo, Store, StoreError,
};

pub(crate) use hot::Draft;
pub use hot::Hot;
pub use letters::Letter;
pub use outcome::Retry;
pub use rows::engine_actor;

/// How many runs one commit takes at most.
const MAX_APPENDS: usize = 2_000;
/// How many times a command is decided again because others were faster.
const MAX_RETRIES: u8 = 8;

/// What a sender knows its answer by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What a sender gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The kernel's reply.
    Reply(Reply),
    /// The run that was started, or had been started by the same request.
    Run(String),
}

/// Work in this process whose claim is committed.
#[derive(Clone, Debug)]
pub struct Job {
    /// The run.
    pub run: RunNo,
    /// Its id.
    pub run_id: Arc<str>,
    /// Its plan.
    pub plan: Arc<Plan>,
    /// What was claimed.
    pub claimed: Claimed,
}

/// What the keeper has to say. Everything in it is committed.
#[derive(Debug)]
pub enum Output {
    /// An answer.
    Answer(Ticket, Result<Answer, Error>),
    /// Do this work.
    Start(Box<Job>),
    /// This work is no longer wanted.
    Stop {
        /// The run.
        run: RunNo,
        /// Which work.
        target: Target,
        /// Which execution.
        execution: u32,
    },
    /// There is work that nobody here serves.
    Offer {
        /// The run.
        run: RunNo,
        /// Which work.
        target: Target,
        /// Not before.
        visible_at: Time,
    },
    /// A person must answer.
    Person {
        /// The run.
        run: RunNo,
        /// Which step waits.
        step: StepRef,
    },
    /// A child's definition was not found.
    MissingChild {
        /// The run.
        run: RunNo,
        /// The step that waits.
        step: StepRef,
        /// The child's key.
        request_key: String,
        /// What was looked for.
        path: String,
        /// The message that asks for it.
        mail: MailNo,
    },
    /// A step sent an event to the outside.
    Published(RunNo, Json),
    /// An alert was raised.
    Alert(RunNo, NewAlert),
    /// Events were committed.
    Changed {
        /// The run.
        run: RunNo,
        /// Its last sequence number.
        seq: u64,
    },
    /// The run has ended.
    Ended(RunNo, Arc<str>, RunOutcome),
}

/// Which work this process does itself.
#[derive(Clone)]
pub enum Serves {
    /// None: work is offered to others.
    Nothing,
    /// All.
    Everything,
    /// These queues and operations.
    Only(Arc<HashSet<(String, String)>>),
}

impl Serves {
    fn has(&self, queue: &str, operation: &str) -> bool {
        match self {
            Serves::Nothing => false,
            Serves::Everything => true,
            // Borrowed pairs cannot be looked up in a set of owned ones; the sets are small.
            Serves::Only(set) => set.iter().any(|(q, o)| q == queue && o == operation),
        }
    }
}

impl fmt::Debug for Serves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Serves::Nothing => f.write_str("Nothing"),
            Serves::Everything => f.write_str("Everything"),
            Serves::Only(set) => write!(f, "Only({})", set.len()),
        }
    }
}

/// How a keeper works.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which engine the log names.
    pub engine_type: &'static str,
    /// What this server is called.
    pub name: String,
    /// Which work this process does itself.
    pub serves: Serves,
    /// The only runs that are started and worked on here; absent means all. Runs that this keeper
    /// creates and their children join them. Messages and dead servers are seen to for all runs, and
    /// time too where there is nobody else who does.
    pub only: Option<HashSet<String>>,
    /// How much of it at a time.
    pub capacity: usize,
    /// How many runs may run at a time.
    pub limits: Limits,
    /// Who gets every event.
    pub sinks: Vec<String>,
    /// How many runs are kept in memory when nothing is to be done for them.
    pub cache: usize,
    /// How long a session lives without being renewed.
    pub session_ms: u64,
    /// How often the store is asked for what others have left there.
    pub poll_ms: u64,
    /// How long a result may take to be written before the step fails instead.
    pub write_budget_ms: u64,
    /// A state is not written down for a log shorter than this.
    pub snapshot_bytes: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            engine_type: "native",
            name: "stepwell".into(),
            serves: Serves::Nothing,
            only: None,
            capacity: 1_000,
            limits: Limits::default(),
            sinks: Vec::new(),
            cache: 10_000,
            session_ms: 15_000,
            poll_ms: 500,
            write_budget_ms: 3_000,
            snapshot_bytes: 256 * 1024,
        }
    }
}

impl Config {
    pub(crate) fn works_on(&self, run_id: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(run_id))
    }

    /// Whether this process does a run's work itself.
    pub(crate) fn does(&self, run_id: &str, plan: &Plan, target: Target) -> bool {
        let (queue, op) = crate::rows::served_by(plan, target);
        self.serves.has(queue, op) && self.works_on(run_id)
    }
}

/// A command on its way.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) from: From,
    pub(crate) guard: Option<Guard>,
    pub(crate) retries: u8,
}

/// Who a command comes from, and how it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// Someone who waits for the answer.
    Sender(Ticket),
    /// A message; `reply` if its sender looks for an answer.
    Mail { no: MailNo, reply: bool },
    /// A run that waits for the child that is created; its message is done once the child is there.
    Parent { run: RunNo, mail: MailNo },
    /// The keeper itself.
    Keeper,
}

impl Request {
    /// The end of a lease, found by asking the store: it is found again if it is still so. Decided
    /// later, by a clock that may have been set back, it would take a run over with its leases alive.
    fn is_found(&self) -> bool {
        self.from == From::Keeper && self.guard.is_some()
    }

    fn keeper(command: Command) -> Request {
        Request {
            command,
            from: From::Keeper,
            guard: None,
            retries: 0,
        }
    }
}

/// The keeper.
pub struct Keeper {
    store: Arc<dyn Store>,
    catalog: Box<dyn Catalog + Send>,
    key: TokenKey,
    config: Config,
    session: SessionNo,
    worker: String,
    session_until: Time,
    commits: i64,
    numbers: Range<i64>,
    plans: HashMap<PlanNo, Arc<Plan>>,
    plan_numbers: HashMap<String, PlanNo>,
    runs: HashMap<RunNo, Hot>,
    ids: HashMap<Arc<str>, RunNo>,
    /// Runs with something for the next batch.
    dirty: BTreeSet<RunNo>,
    /// Runs with work to claim that found no capacity, in turn.
    hungry: VecDeque<RunNo>,
    /// When runs of this session must be looked at.
    timers: BTreeSet<(Time, RunNo)>,
    /// Work of this process in flight or being claimed.
    busy: usize,
    polls: wake::Polls,
    /// Messages that are being dealt with.
    reading: HashSet<MailNo>,
    outputs: VecDeque<Output>,
    clock: u64,
    /// How many runs were left in memory when some were forgotten last.
    kept: usize,
    stopping: bool,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper")
            .field("session", &self.session)
            .field("runs", &self.runs.len())
            .field("busy", &self.busy)
            .finish_non_exhaustive()
    }
}

impl Keeper {
    /// A keeper with a session of its own.
    pub fn open(
        store: Arc<dyn Store>,
        catalog: Box<dyn Catalog + Send>,
        config: Config,
        now: Time,
    ) -> Result<Keeper, StoreError> {
        let key = TokenKey(store.secret()?);
        let session_until = now.plus(config.session_ms);
        let session = store.open_session(&config.name, now, session_until)?;
        Ok(Keeper {
            worker: worker_of(session),
            store,
            catalog,
            key,
            config,
            session,
            session_until,
            commits: 0,
            numbers: 0..0,
            plans: HashMap::new(),
            plan_numbers: HashMap::new(),
            runs: HashMap::new(),
            ids: HashMap::new(),
            dirty: BTreeSet::new(),
            hungry: VecDeque::new(),
            timers: BTreeSet::new(),
            busy: 0,
            polls: wake::Polls::at(now),
            reading: HashSet::new(),
            outputs: VecDeque::new(),
            clock: 0,
            kept: 0,
            stopping: false,
        })
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The secret for completion tokens.
    #[must_use]
    pub fn key(&self) -> &TokenKey {
        &self.key
    }

    /// How it works.
    pub fn config(&mut self) -> &mut Config {
        &mut self.config
    }

    /// This keeper's session.
    #[must_use]
    pub fn session(&self) -> SessionNo {
        self.session
    }

    /// Work of this process in flight.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.busy
    }

    /// A run that is in memory.
    #[must_use]
    pub fn hot(&self, run: RunNo) -> Option<&Hot> {
        self.runs.get(&run)
    }

    /// Runs that are in memory.
    pub fn all_hot(&self) -> impl Iterator<Item = &Hot> {
        self.runs.values()
    }

    /// What it has to say, oldest first.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output> + '_ {
        self.outputs.drain(..)
    }

    /// Takes a command for a run; the answer comes as an output.
    pub fn submit(&mut self, run_id: &str, command: Command, ticket: Ticket, now: Time) {
        let request = Request {
            command,
            from: From::Sender(ticket),
            guard: None,
            retries: 0,
        };
        match self.number_of(run_id) {
            Ok(run) => self.take(run, request, now),
            Err(error) => self.refuse(&request, error),
        }
    }

    /// Takes a command of a worker outside, which counts only if `guard` holds when it is committed.
    pub fn submit_guarded(
        &mut self,
        run_id: &str,
        command: Command,
        guard: Guard,
        ticket: Ticket,
        now: Time,
    ) {
        let request = Request {
            command,
            from: From::Sender(ticket),
            guard: Some(guard),
            retries: 0,
        };
        match self.number_of(run_id) {
            Ok(run) => self.take(run, request, now),
            Err(error) => self.refuse(&request, error),
        }
    }

    /// Takes the result of work in this process.
    pub fn finished(
        &mut self,
        run: RunNo,
        target: Target,
        execution: u32,
        command: Command,
        now: Time,
    ) {
        if let Some(hot) = self.runs.get_mut(&run)
            && hot.jobs.get(&target) == Some(&execution)
        {
            hot.jobs.remove(&target);
            self.busy = self.busy.saturating_sub(1);
        }
        // The session is the lease of this process's work, however long it takes: the commit is
        // guarded by it, and the time that the claim was granted for says nothing.
        let result = Request::keeper(unhurried(command));
        let Some(result) = self.park_result(run, target, execution, result) else {
            return;
        };
        match self.ensure(run) {
            Ok(()) => self.take(run, result, now),
            // Nobody would do it again as long as this session lives.
            Err(error @ Error::Store(_)) => self.park(run, vec![result], HashMap::new(), error),
            Err(error) => self.refuse(&result, error),
        }
    }

    /// Reads a run and sees to everything that it needs.
    pub fn recover(&mut self, run_id: &str, now: Time) -> Result<(), Error> {
        let run = self.number_of(run_id)?;
        self.ensure(run)?;
        self.wake(run, now);
        Ok(())
    }

    /// Whether a run's work is offered to others rather than done here.
    #[must_use]
    pub fn offers(&self, hot: &Hot, target: Target) -> bool {
        !self.config.does(&hot.run_id, &hot.plan, target)
    }

    /// Whether a run is started and worked on here.
    #[must_use]
    pub fn works_on(&self, run_id: &str) -> bool {
        self.config.works_on(run_id)
    }

    fn number_of(&mut self, run_id: &str) -> Result<RunNo, Error> {
        if let Some(run) = self.ids.get(run_id) {
            return Ok(*run);
        }
        let found = self.store.find(run_id)?;
        found.ok_or_else(|| Error::UnknownRun(run_id.to_owned()))
    }

    /// Decides a request, or lets it wait until the run's commit is answered.
    pub(crate) fn take(&mut self, run: RunNo, request: Request, now: Time) {
        if let Err(error) = self.ensure(run) {
            self.refuse(&request, error);
            return;
        }
        let Some(hot) = self.runs.get_mut(&run) else {
            return;
        };
        if hot.flight.is_some() {
            hot.waiting.push_back(request);
            return;
        }
        let owner = hot.head.head.session;
        if owner.is_some_and(|owner| owner != self.session) && request.guard.is_none() {
            self.forward(run, request, now);
            return;
        }
        self.decide(run, request, now);
    }

    /// Decides a request now: the run is in memory and nothing of it is in flight.
    fn decide(&mut self, run: RunNo, request: Request, now: Time) {
        let env = Env {
            now,
            key: self.key.clone(),
        };
        let Some(hot) = self.runs.get_mut(&run) else {
            return;
        };
        hot.used = self.clock;
        let mut command = request.command.clone();
        let leased = matches!(request.guard, Some(Guard::Lease { .. }));
        if let Some(claim) = claim_of(&mut command)
            && (leased || claim.worker == self.worker)
        {
            // The append's guard says whether the session or the row still has it. By the clock alone
            // a result that had to wait for a commit, or for a clock that was set back, would be lost.
            claim.lease_until = Some(now.max(hot.state.last_at));
        }
        let decided = decide(&hot.plan, &mut hot.state, command, &env);
        let (events, effects, answer) = match decided {
            Ok(decision) => (decision.events, decision.effects, Ok(decision.reply)),
            Err(rejection) => (Vec::new(), Vec::new(), Err(rejection)),
        };
        let starts = matches!(request.command, Command::StartRun { .. }) && answer.is_ok();
        let draft = hot.absorb(events);
        if let Some(guard) = &request.guard
            && !draft.guards.contains(guard)
        {
            draft.guards.push(guard.clone());
        }
        draft.decided.push((request, answer));
        self.dirty.insert(run);
        if starts && !self.config.limits.are_none() {
            self.take_slots(run);
        }
        self.follow(run, effects);
    }

    /// The next batch for the store, if there is anything to commit.
    pub fn next_batch(&mut self, now: Time) -> Option<Batch> {
        // Without a session nothing could be committed; `tick` opens another one.
        if self.polls.session_lost {
            return None;
        }
        self.feed();
        if self.dirty.is_empty() {
            return None;
        }
        self.clock += 1;
        self.commits += 1;
        let id = CommitId {
            session: self.session.0,
            number: self.commits,
        };
        let mut appends = Vec::with_capacity(self.dirty.len().min(MAX_APPENDS));
        while appends.len() < MAX_APPENDS {
            let Some(run) = self.dirty.pop_first() else {
                break;
            };
            if self.runs.get(&run).is_none_or(|hot| hot.flight.is_some()) {
                continue;
            }
            if self.runs.get(&run).is_some_and(|hot| hot.fresh) {
                // Work that is not due yet is in no row but the head's wake-up time, and this batch
                // writes the head: it must be known first.
                self.attend(run, now);
                self.dirty.remove(&run);
            }
            self.claim_ready(run, now);
            if let Some(append) = self.seal(run, now) {
                appends.push(append);
            }
        }
        if appends.is_empty() {
            return None;
        }
        Some(Batch {
            id,
            session: Some(self.session),
            now,
            appends,
        })
    }

    /// Lets runs that found no capacity try again.
    fn feed(&mut self) {
        let mut free = self.config.capacity.saturating_sub(self.busy);
        while free > 0 {
            let Some(run) = self.hungry.pop_front() else {
                break;
            };
            if let Some(hot) = self.runs.get_mut(&run) {
                hot.hungry = false;
                free = free.saturating_sub(hot.ready.len().max(1));
                self.dirty.insert(run);
            }
        }
    }

    /// Claims what this process can do now, in the same commit as what made it ready.
    fn claim_ready(&mut self, run: RunNo, now: Time) {
        loop {
            let Some(hot) = self.runs.get_mut(&run) else {
                return;
            };
            if hot.owner(hot.draft.as_ref(), self.session).is_some() {
                // It is for the server that has the run.
                hot.ready.clear();
                return;
            }
            let Some((visible_at, order, target)) = hot.ready.first().copied() else {
                return;
            };
            if visible_at > now || self.stopping {
                return;
            }
            if self.busy >= self.config.capacity {
                if !hot.hungry {
                    hot.hungry = true;
                    self.hungry.push_back(run);
                }
                return;
            }
            hot.ready.remove(&(visible_at, order, target));
            let claim = Command::ClaimStep {
                target,
                worker: self.worker.clone(),
                lease_until: now.plus(lease_ms(&hot.plan)),
            };
            let env = Env {
                now,
                key: self.key.clone(),
            };
            // A task that is out of date is dropped: the state offers it again when it is due.
            let Ok(decision) = decide(&hot.plan, &mut hot.state, claim, &env) else {
                continue;
            };
            let draft = hot.absorb(decision.events);
            if let Reply::Claimed(claimed) = decision.reply {
                let execution = claimed.claim.execution;
                draft.starts.push(*claimed);
                // An execution that timed out may still be known; it makes room for this one.
                if hot.jobs.insert(target, execution).is_none() {
                    self.busy += 1;
                }
            }
            self.follow(run, decision.effects);
        }
    }

    /// Turns a run's draft into an append and sends it on its way.
    fn seal(&mut self, run: RunNo, now: Time) -> Option<Append> {
        let hot = self.runs.get_mut(&run)?;
        let mut draft = hot.draft.take()?;
        let append = match hot.seal(&mut draft, self.session, &self.config, now) {
            Ok(append) => append,
            // Refused as the database would have refused it, only sooner.
            Err(Error::Refused { why, .. }) => {
                self.refused(run, draft, &why, now);
                return None;
            }
            Err(error) => {
                // A bug: nothing of this draft can be written. Only the log is truth.
                tracing::error!(%error, "a decision was dropped");
                let requests = std::mem::take(&mut draft.decided);
                for (request, _) in &requests {
                    self.refuse(request, error.clone());
                }
                self.drop_run(run);
                return None;
            }
        };
        match append {
            Some(append) => {
                hot.flight = Some(draft);
                Some(append)
            }
            None => {
                // Nothing to write and nothing to confirm.
                self.settle(run, draft, now);
                None
            }
        }
    }

    /// Answers a request that could not be decided.
    fn refuse(&mut self, request: &Request, error: Error) {
        match request.from {
            From::Sender(ticket) => self.outputs.push_back(Output::Answer(ticket, Err(error))),
            From::Mail { no, reply } => {
                self.reading.remove(&no);
                if reply {
                    let _ = self.store.answer(no, &error.to_string());
                }
            }
            From::Parent { mail, .. } => {
                self.reading.remove(&mail);
            }
            From::Keeper => {}
        }
    }

    /// Forgets a run that is in memory, with all that is not committed.
    fn drop_run(&mut self, run: RunNo) -> Option<Hot> {
        let hot = self.runs.remove(&run)?;
        self.ids.remove(&hot.run_id);
        self.timers.remove(&(hot.timer.unwrap_or(Time(0)), run));
        self.busy = self.busy.saturating_sub(hot.jobs.len());
        Some(hot)
    }

    /// Brings a run into memory.
    pub(crate) fn ensure(&mut self, run: RunNo) -> Result<(), Error> {
        if self.runs.contains_key(&run) {
            return Ok(());
        }
        let stored = self.store.load(run)?;
        let stored = stored.ok_or_else(|| Error::UnknownRun(format!("number {}", run.0)))?;
        let plan = self.plan(stored.plan, &stored.run_id)?;
        let store = self.store.clone();
        let mut hot = Hot::read(stored, plan, || Ok(store.chunks(run, 0, usize::MAX)?))?;
        hot.used = self.clock;
        self.ids.insert(hot.run_id.clone(), run);
        self.runs.insert(run, hot);
        self.evict(run);
        Ok(())
    }

    /// Forgets runs that have been idle longest when there are too many, but not `wanted`, which was
    /// brought into memory because something is about to be done for it.
    pub(crate) fn evict(&mut self, wanted: RunNo) {
        // Where most runs are busy, looking at all of them for each new one would be too much.
        let enough = self.config.cache.max(self.kept).saturating_mul(2);
        if self.runs.len() <= enough {
            return;
        }
        let session = self.session;
        let mut idle: Vec<(u64, RunNo)> = self
            .runs
            .iter()
            .filter(|(run, hot)| **run != wanted && hot.is_idle(session))
            .map(|(run, hot)| (hot.used, *run))
            .collect();
        idle.sort_unstable();
        let extra = self.runs.len().saturating_sub(self.config.cache);
        for (_, run) in idle.into_iter().take(extra) {
            self.drop_run(run);
        }
        self.kept = self.runs.len();
    }

    fn plan(&mut self, no: PlanNo, run_id: &str) -> Result<Arc<Plan>, Error> {
        if let Some(plan) = self.plans.get(&no) {
            return Ok(plan.clone());
        }
        let fault = |why: String| Error::Plan {
            run_id: run_id.to_owned(),
            why,
        };
        let row = self.store.plan(no)?;
        let row = row.ok_or_else(|| fault(format!("there is no plan number {}", no.0)))?;
        let net = serde_json::from_str(&row.net).map_err(|error| fault(error.to_string()))?;
        let plan = Arc::new(Plan::new(net).map_err(|error| fault(error.to_string()))?);
        if plan.hash() != row.hash {
            return Err(fault("it is not what its hash says".to_owned()));
        }
        self.keep_plan(no, &plan);
        Ok(plan)
    }

    fn keep_plan(&mut self, no: PlanNo, plan: &Arc<Plan>) {
        self.plans.insert(no, plan.clone());
        self.plan_numbers.insert(plan.hash().to_owned(), no);
    }

    fn plan_number(&mut self, plan: &Arc<Plan>) -> Result<PlanNo, Error> {
        if let Some(no) = self.plan_numbers.get(plan.hash()) {
            return Ok(*no);
        }
        let no = self.store.put_plan(plan)?;
        self.keep_plan(no, plan);
        Ok(no)
    }

    /// Does what follows from a decision: in the draft what is a row, in memory what is not.
    fn follow(&mut self, run: RunNo, effects: Vec<Effect>) {
        for effect in effects {
            self.perform(run, effect);
        }
    }
}

/// The proof that a result comes with.
fn claim_of(command: &mut Command) -> Option<&mut Claim> {
    match command {
        Command::CompleteStep { claim, .. }
        | Command::FailStep { claim, .. }
        | Command::WaitStep { claim, .. }
        | Command::ConfirmKill { claim } => Some(claim),
        _ => None,
    }
}

/// How long a lease is granted for. What this process does itself is its session's as long as that
/// lives, whatever this says.
fn lease_ms(plan: &Plan) -> u64 {
    let own = plan.net().extra.get("leaseSeconds").and_then(Json::as_u64);
    own.map_or(30_000, |seconds| seconds.saturating_mul(1_000))
}

/// A result whose lease has no end of its own.
fn unhurried(mut command: Command) -> Command {
    if let Command::CompleteStep { claim, .. }
    | Command::FailStep { claim, .. }
    | Command::WaitStep { claim, .. }
    | Command::ConfirmKill { claim } = &mut command
    {
        claim.lease_until = Some(Time(i64::MAX));
    }
    command
}

/// What a session's own work is leased to. No worker outside may have such a name.
#[must_use]
pub fn worker_of(session: SessionNo) -> String {
    format!("@{}", session.0)
}
