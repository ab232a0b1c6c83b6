//! The coordinator: holds the runs that are hot, decides their commands, and turns the decisions into
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
//! - `config`, `notices`: how it works, and what is said to it and by it.
//! - `hot_run`: a run in memory, and what is decided but not committed (`Draft`); `run_cache`: which are.
//! - `capacity`: what this process does, and which work waits for room.
//! - `effects`: what follows from events and effects for the other tables.
//! - `creation`: how runs come to be; the queue and its slots.
//! - `messages`: messages between runs, and from other processes.
//! - `commit_results`: what the store answered.
//! - `polling`: time: timers and polls; `sessions`: who lives, and whose leases have ended.
//!
//! A run belongs to this coordinator's session while the coordinator itself has something to do for it: work in
//! flight in this process, work about to be claimed, a decision to go on with. Everything else that
//! can move a run is a row: a wake-up time, a task, a wait, a message.

mod capacity;
mod commit_results;
mod config;
mod creation;
mod effects;
mod hot_run;
mod messages;
mod notices;
mod polling;
mod run_cache;
mod sessions;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use stepwell_kernel::command::{Command, Env, Reply};
use stepwell_kernel::decide::decide;
use stepwell_kernel::effect::{Effect, Target};
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use crate::chunk::ChunkWriter;
use crate::error::Error;
use crate::port::Catalog;
use crate::store::{
    Append, Batch, CommitId, Guard, MessageNo, PlanNo, RunNo, SessionNo, Store, StoreError,
};

pub use commit_results::Retry;
pub use config::{Config, Serves};
pub use effects::engine_actor;
pub(crate) use hot_run::Draft;
pub use hot_run::HotRun;
pub use messages::Message;
pub use notices::{Answer, Assignment, Notice, Ticket};
pub(crate) use notices::{Origin, Request};

/// How many runs one commit takes at most.
const MAX_APPENDS: usize = 512;
/// How many times a command is decided again because others were faster.
const MAX_RETRIES: u8 = 8;

/// The coordinator.
pub struct Coordinator {
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
    runs: HashMap<RunNo, HotRun>,
    ids: HashMap<Arc<str>, RunNo>,
    /// Runs with something for the next batch.
    dirty: BTreeSet<RunNo>,
    /// Runs with work to claim that found no capacity, in turn.
    awaiting_capacity: VecDeque<RunNo>,
    /// When runs of this session must be looked at.
    timers: BTreeSet<(Time, RunNo)>,
    /// Work of this process in flight or being claimed.
    load: capacity::Load,
    polls: polling::Polls,
    /// Messages that are being dealt with.
    reading: HashSet<MessageNo>,
    notices: VecDeque<Notice>,
    /// Writes the log, in memory that is used again for every run.
    chunks: ChunkWriter,
    clock: u64,
    /// How many runs were left in memory when some were forgotten last.
    kept: usize,
    stopping: bool,
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator")
            .field("session", &self.session)
            .field("runs", &self.runs.len())
            .field("busy", &self.load.busy())
            .finish_non_exhaustive()
    }
}

impl Coordinator {
    /// A coordinator with a session of its own.
    pub fn open(
        store: Arc<dyn Store>,
        catalog: Box<dyn Catalog + Send>,
        config: Config,
        now: Time,
    ) -> Result<Coordinator, StoreError> {
        let key = TokenKey(store.secret()?);
        let session_until = now.plus(config.session_ms);
        let session = store.open_session(&config.name, now, session_until)?;
        Ok(Coordinator {
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
            awaiting_capacity: VecDeque::new(),
            timers: BTreeSet::new(),
            load: capacity::Load::default(),
            polls: polling::Polls::at(now),
            reading: HashSet::new(),
            notices: VecDeque::new(),
            chunks: ChunkWriter::default(),
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

    /// This coordinator's session.
    #[must_use]
    pub fn session(&self) -> SessionNo {
        self.session
    }

    /// Work of this process in flight.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.load.busy()
    }

    /// A run that is in memory.
    #[must_use]
    pub fn hot(&self, run: RunNo) -> Option<&HotRun> {
        self.runs.get(&run)
    }

    /// Runs that are in memory.
    pub fn all_hot(&self) -> impl Iterator<Item = &HotRun> {
        self.runs.values()
    }

    /// What it has to say, oldest first.
    pub fn notices(&mut self) -> impl Iterator<Item = Notice> + '_ {
        self.notices.drain(..)
    }

    /// Takes a command for a run; the answer comes as an output.
    pub fn submit(&mut self, run_id: &str, command: Command, ticket: Ticket, now: Time) {
        let request = Request {
            command,
            from: Origin::Sender(ticket),
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
            from: Origin::Sender(ticket),
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
            self.load.end(hot, target);
        }
        // The session is the lease of this process's work, however long it takes: the commit is
        // guarded by it, and the time that the claim was granted for says nothing.
        let result = Request::own(command);
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
    pub fn offers(&self, hot: &HotRun, target: Target) -> bool {
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
        let owner = hot.head.session;
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
        let leased = matches!(request.guard, Some(Guard::Lease { .. }));
        let until = Some(now.max(hot.state.last_at));
        let alive = |mut command: Command| {
            if let Some(claim) = command.claim_mut()
                && (leased || claim.worker == self.worker)
            {
                // The append's guard says whether the session or the row still has it. By the clock
                // alone a result that had to wait for a commit, or for a clock that was set back,
                // would be lost.
                claim.lease_until = until;
            }
            command
        };
        let command = alive(request.command.clone());
        let mut decided = decide(&hot.plan, &mut hot.state, command, &env);
        if let Err(rejection) = &decided
            && let Some(failure) = commit_results::instead_of(&request, rejection)
            && let Ok(decision) = decide(&hot.plan, &mut hot.state, alive(failure), &env)
        {
            decided = Ok(decision);
        }
        let (events, effects, answer) = match decided {
            Ok(decision) => (decision.events, decision.effects, Ok(decision.reply)),
            Err(rejection) => (Vec::new(), Vec::new(), Err(rejection)),
        };
        let starts = matches!(request.command, Command::StartRun { .. }) && answer.is_ok();
        let run_id = hot.run_id.clone();
        let draft = hot.absorb(events);
        if let Some(guard) = &request.guard
            && !draft.guards.contains(guard)
        {
            draft.guards.push(guard.clone());
        }
        if let Ok(Reply::RetryRun { request_key }) = &answer {
            // In the same commit as the signal, so that a crash cannot lose it.
            let request_key = request_key.clone();
            draft.mail.push(Message::Repeat { request_key }.to(&run_id));
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
        self.feed(now);
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
        let mut later = Vec::new();
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
            let untold = self.runs.get_mut(&run).and_then(|hot| hot.untold.take());
            if let Some(outcome) = untold {
                self.tell_parent(run, outcome);
                if self.runs.get(&run).is_some_and(|hot| hot.untold.is_some()) {
                    later.push(run);
                    continue;
                }
            }
            self.claim_ready(run, now);
            if let Some(append) = self.seal(run, now) {
                appends.push(append);
            }
        }
        self.dirty.extend(later);
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

    /// Turns a run's draft into an append and sends it on its way.
    fn seal(&mut self, run: RunNo, now: Time) -> Option<Append> {
        let hot = self.runs.get_mut(&run)?;
        let mut draft = hot.draft.take()?;
        let append = match hot.seal(
            &mut draft,
            &mut self.chunks,
            self.session,
            &self.config,
            now,
        ) {
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
            Origin::Sender(ticket) => self.notices.push_back(Notice::Answer(ticket, Err(error))),
            Origin::Message { no, reply } => {
                self.reading.remove(&no);
                if reply {
                    let _ = self.store.answer(no, &error.to_string());
                }
            }
            Origin::Parent { mail, .. } => {
                self.reading.remove(&mail);
            }
            Origin::Coordinator => {}
        }
    }

    /// Forgets a run that is in memory, with all that is not committed.
    fn drop_run(&mut self, run: RunNo) -> Option<HotRun> {
        let mut hot = self.runs.remove(&run)?;
        self.ids.remove(&hot.run_id);
        self.timers.remove(&(hot.timer.unwrap_or(Time(0)), run));
        self.load.forget(&mut hot);
        Some(hot)
    }

    /// Does what follows from a decision: in the draft what is a row, in memory what is not.
    fn follow(&mut self, run: RunNo, effects: Vec<Effect>) {
        for effect in effects {
            self.perform(run, effect);
        }
    }
}

/// What a session's own work is leased to. No worker outside may have such a name.
#[must_use]
pub fn worker_of(session: SessionNo) -> String {
    format!("@{}", session.0)
}
