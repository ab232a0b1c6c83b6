//! The coordinator: holds the runs that are hot, decides their commands, and turns the decisions into
//! commits. It has no thread and no clock of its own: a driver hands it commands and the time, takes
//! batches to the store, and brings the answers back. So the same code runs under threads, in line
//! for tests and the mock, and in the simulator.
//!
//! ```text
//! take(command) ─► decide ─► draft ─┐                    ┌─► answers, assignments, …
//!                                   next_batch ─► store ─┤
//! commands for a run in flight wait ┘                    └─► lost: read again, decide again
//! ```
//!
//! The data is in parts. Each part is a struct with private fields in a file of its own; a part that needs
//! another one is lent it for one call.
//!
//! | part | owns |
//! |---|---|
//! | `run_cache` | the runs and plans in memory |
//! | `hot_run` | one run: its state, its draft, its commit in flight, what is known of its rows |
//! | `schedule` | which runs the next batch looks at, timers, when the store is asked |
//! | `load` | how much this process does, counted for all shards together |
//! | `capacity` | the work of each run, and the lines of runs that wait for room |
//! | `inbox` | messages being handled, answers of other servers |
//! | `slots` | when queued runs are looked at, and what a run needs to start |
//! | `sharing` | whether other servers offer more work than there was room for |
//! | `session_lease`, `lease_term` | the session of this server; what its renewer knows too |
//! | `parked` | commands for runs that cannot be read now, commits in doubt |
//! | `batch_builder` | ids of commits |
//! | `run_numbers` | the numbers of new runs, for all shards together |
//! | `notices` | what the driver is told |
//! | `invariants` | states that cannot be and were found |
//! | `slow_writes` | commits that took longer than the write budget |
//! | `outage` | when the store was away, and whether leases may be ended |
//!
//! The other files hold what is done with the parts: `decisions` (a command), `batches` (the next commit),
//! `commit_results` and `lost_commits` (what the store answered), `creation`, `queue`, `messages`, `visits` (a look at a run in memory),
//! `children`, `hand_out` (work for workers that wait in other processes), `outside_tasks`, `tick` (time and polls), `takeover` (who died), `substitutes` (what is recorded instead).
//!
//! A run belongs to this coordinator's session while the coordinator itself has something to do for it:
//! work in flight in this process, work about to be claimed, a decision to go on with. Everything else
//! that can move a run is a row: a wake-up time, a task, a wait, a message.

mod batch_builder;
mod batches;
mod capacity;
mod children;
mod commit_results;
mod config;
mod creation;
mod decisions;
#[cfg(test)]
pub(crate) mod fixture;
mod hand_out;
mod hot_run;
mod inbox;
mod invariants;
mod lease_term;
mod load;
mod lost_commits;
mod messages;
mod notices;
mod outage;
mod outside_tasks;
mod parked;
mod queue;
mod request;
mod run_cache;
mod run_numbers;
mod schedule;
mod session_lease;
mod sharing;
mod slots;
mod slow_writes;
mod substitutes;
mod takeover;
mod tick;
mod visits;

use std::fmt;
use std::sync::Arc;

use stepwell_kernel::command::Command;
use stepwell_kernel::effect::Target;
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::time::Time;

use crate::error::Error;
use crate::number_map::NumberMap;
use crate::port::{Catalog, Clock};
use crate::seats::Seats;
use crate::shard::Shard;
use crate::store::{Guard, RunNo, SessionNo, Store, StoreError, TaskRow};

use batch_builder::BatchBuilder;
use capacity::Capacity;
use hot_run::Leftover;
use inbox::Inbox;
use invariants::Invariants;
use load::Load;
use notices::Notices;
use outage::Outage;
use parked::Parked;
use request::{Origin, Request};
use run_cache::{Room, RunCache};
use run_numbers::RunNumbers;
use schedule::Schedule;
use session_lease::SessionLease;
use sharing::Sharing;
use slots::Slots;
use slow_writes::SlowWrites;

pub use commit_results::Retry;
pub use config::{Config, MissingChildren, Serves};
pub(crate) use config::{NATIVE, PRETENDS};
pub(crate) use hot_run::is_whole;
pub use hot_run::{HotRun, engine_actor};
pub(crate) use lease_term::LeaseTerm;
pub use messages::{Message, MessageAnswer};
pub use notices::{Assignment, Handoff, Notice, Tenancy, Ticket};
pub use session_lease::worker_of;

/// The parts that all shards of an engine have together.
#[derive(Debug, Default)]
pub(crate) struct SharedParts {
    load: Load,
    numbers: RunNumbers,
    /// Workers in other processes that wait for work.
    seats: Arc<Seats>,
}

impl SharedParts {
    /// The parts of an engine where these workers wait.
    pub(crate) fn with_seats(seats: &Arc<Seats>) -> SharedParts {
        SharedParts {
            seats: Arc::clone(seats),
            ..SharedParts::default()
        }
    }
}

/// Decides the commands of many runs; see the module.
pub struct Coordinator {
    store: Arc<dyn Store>,
    catalog: Box<dyn Catalog + Send>,
    key: TokenKey,
    config: Config,
    shard: Shard,
    shared: Arc<SharedParts>,
    lease: SessionLease,
    runs: RunCache,
    schedule: Schedule,
    capacity: Capacity,
    inbox: Inbox,
    slots: Slots,
    sharing: Sharing,
    parked: Parked,
    batches: BatchBuilder,
    notices: Notices,
    invariants: Invariants,
    slow_writes: SlowWrites,
    outage: Outage,
    /// Nothing new is started or claimed.
    stopping: bool,
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator")
            .field("session", &self.lease.session())
            .field("runs", &self.runs.len())
            .field("busy", &self.capacity.busy())
            .finish_non_exhaustive()
    }
}

impl Coordinator {
    /// A coordinator of all runs, with a session of its own.
    pub fn open(
        store: Arc<dyn Store>,
        catalog: Box<dyn Catalog + Send>,
        config: Config,
        now: Time,
    ) -> Result<Coordinator, StoreError> {
        Coordinator::open_shard(store, catalog, config, (Shard::ALL, Arc::default()), now)
    }

    /// A coordinator of the runs of one shard, with a session of its own.
    pub(crate) fn open_shard(
        store: Arc<dyn Store>,
        catalog: Box<dyn Catalog + Send>,
        config: Config,
        (shard, shared): (Shard, Arc<SharedParts>),
        now: Time,
    ) -> Result<Coordinator, StoreError> {
        let key = TokenKey(store.secret()?);
        let lease = SessionLease::open(&*store, &config.name, config.session_ms, now)?;
        let outage = Outage::at_start(config.driven, now);
        let mut runs = RunCache::new(store.clone());
        runs.set_quarantined(store.quarantined()?);
        Ok(Coordinator {
            runs,
            store,
            catalog,
            key,
            config,
            shard,
            lease,
            schedule: Schedule::new(now),
            capacity: Capacity::new(shard, shared.clone()),
            shared,
            inbox: Inbox::default(),
            slots: Slots::default(),
            sharing: Sharing::default(),
            parked: Parked::default(),
            batches: BatchBuilder::new(),
            notices: Notices::default(),
            invariants: Invariants::default(),
            slow_writes: SlowWrites::default(),
            outage,
            stopping: false,
        })
    }

    /// The store that runs are read from. The driver takes batches to it.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The secret for completion tokens.
    #[must_use]
    pub fn key(&self) -> &TokenKey {
        &self.key
    }

    /// The settings, which may be changed between two calls.
    pub fn config(&mut self) -> &mut Config {
        &mut self.config
    }

    /// The session that this server's runs name.
    #[must_use]
    pub fn session(&self) -> SessionNo {
        self.lease.session()
    }

    /// From now on a renewer renews the session, which was opened after `sent` by the clock's steady time.
    pub(crate) fn keep_session(&self, clock: Arc<dyn Clock>, sent: Time) -> Arc<LeaseTerm> {
        self.lease.keep(clock, self.config.session_ms, sent)
    }

    /// How long the session lives without being renewed.
    pub(crate) fn session_ms(&self) -> u64 {
        self.config.session_ms
    }

    /// What the renewer of the session knows too.
    pub(crate) fn term(&self) -> &Arc<LeaseTerm> {
        self.lease.term()
    }

    /// The runs that this coordinator has.
    #[must_use]
    pub fn shard(&self) -> Shard {
        self.shard
    }

    /// The number of a run.
    pub fn number_of(&self, run_id: &str) -> Result<RunNo, Error> {
        self.runs.number_of(run_id)
    }

    /// How much work of this process is in flight, all shards together.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.capacity.busy()
    }

    /// A run that is in memory.
    #[must_use]
    pub fn hot(&self, run: RunNo) -> Option<&HotRun> {
        self.runs.get(run)
    }

    /// All runs that are in memory, in no order.
    pub fn all_hot(&self) -> impl Iterator<Item = &HotRun> {
        self.runs.iter()
    }

    /// Everything that the driver has not been told yet, oldest first.
    pub fn notices(&mut self) -> impl Iterator<Item = Notice> + '_ {
        self.notices.drain()
    }

    /// Takes a command for a run; the answer comes as a notice.
    pub fn submit(&mut self, run_id: &str, command: Command, ticket: Ticket, now: Time) {
        let request = Request::new(command, Origin::Sender(ticket));
        self.accept(run_id, request, now);
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
        let request = Request::new(command, Origin::Sender(ticket));
        self.accept(run_id, request.guarded(guard), now);
    }

    /// Takes a claim and the result of its work, which are in one commit: the claim could not be written before. The answer is
    /// that of the result.
    pub fn submit_together(
        &mut self,
        run_id: &str,
        claim: Command,
        mut result: Command,
        ticket: Ticket,
        now: Time,
    ) {
        if let Some(proof) = result.claim_mut() {
            // The lease is in the same commit.
            proof.lease_until = Some(Time(i64::MAX));
        }
        self.accept(run_id, Request::own(claim), now);
        self.submit(run_id, result, ticket, now);
    }

    fn accept(&mut self, run_id: &str, request: Request, now: Time) {
        match self.runs.number_of(run_id) {
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
        // Work that was stopped, or whose run was read anew, may be known no longer.
        if let Some(hot) = self.runs.get_mut(run)
            && hot.work().job(target) == Some(execution)
        {
            self.capacity.end(hot, target);
            if !self.capacity.has_waiting() {
                self.sharing.has_room();
            }
        }
        // The session is the lease of this process's work, however long it takes: the commit is
        // guarded by it, and the time that the claim was granted for says nothing.
        let result = Request::own(command);
        let result = self.parked.add_result(run, target, execution, result);
        let Some(result) = result else {
            // It waits with the other commands of a run that cannot be read now.
            return;
        };
        match self.runs.load(run, self.room()) {
            Ok(_) => self.take(run, result, now),
            // Nobody would do it again as long as this session lives.
            Err(error @ Error::Store(_)) => {
                self.park(run, vec![result], NumberMap::default(), error)
            }
            Err(error) => {
                tracing::error!(%error, run = run.0, "a result is lost: its run cannot be read");
                self.refuse(&result, error);
            }
        }
    }

    /// Reads a run and sees to everything that it needs.
    pub fn recover(&mut self, run_id: &str, now: Time) -> Result<(), Error> {
        let run = self.runs.number_of(run_id)?;
        self.rejoin(run, now);
        self.runs.load(run, self.room())?;
        self.wake(run, now);
        Ok(())
    }

    /// From now on the run is one of those that are worked on here.
    pub fn work_on(&mut self, run_id: &str) {
        if let Some(only) = &mut self.config.only {
            only.insert(run_id.to_owned());
        }
    }

    /// Takes what another shard of this engine found for this one.
    pub fn take_handoff(&mut self, handoff: Handoff, now: Time) {
        match handoff {
            Handoff::Due(run) => {
                self.refresh(run);
                self.wake_in_time(run, now);
            }
            Handoff::Reserved(task) => self.take_reserved(*task),
            Handoff::Queued(_) => self.slots.look(),
            Handoff::Mailed => self.inbox.look(),
            // The next batch looks who waits for it.
            Handoff::Room => {}
        }
    }

    /// Passes on what is for a run of another shard. Says whether it was.
    fn hands_off(&mut self, run: RunNo, handoff: impl FnOnce() -> Handoff) -> bool {
        let other = !self.shard.has(run);
        if other {
            self.notices.push(Notice::Elsewhere(handoff()));
        }
        other
    }

    fn take_reserved(&mut self, task: TaskRow) {
        if !self.hands_off(task.run, || Handoff::Reserved(Box::new(task.clone()))) {
            self.refresh(task.run);
            self.adopt(&task);
        }
    }

    /// Whether a run's work is offered to others rather than done here.
    #[must_use]
    pub fn offers(&self, hot: &HotRun, target: Target) -> bool {
        !self.config.does(hot, target)
    }

    /// Whether a run is started and worked on here.
    #[must_use]
    pub fn works_on(&self, run_id: &str) -> bool {
        self.config.works_on(run_id)
    }

    /// Forgets a run that others have moved while nobody here had it. Says whether that was so.
    pub fn forget_if_moved(&mut self, run_id: &str) -> Result<bool, Error> {
        let run = self.runs.number_of(run_id)?;
        let hot = self.runs.get(run);
        let Some(hot) = hot.filter(|hot| hot.is_idle(self.lease.session())) else {
            // Not in memory, so it is read anew anyway; or this server is moving it.
            return Ok(false);
        };
        let moved = !self.store.chunks(run, hot.committed(), 1)?.is_empty();
        if moved {
            self.drop_run(run);
        }
        Ok(moved)
    }

    /// Nothing new is started or claimed from now on.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Gives everything back: others may take it over at once.
    pub fn close(&mut self) -> Result<(), StoreError> {
        self.lease.close(&*self.store)
    }

    /// How many runs are kept in memory, and whose.
    fn room(&self) -> Room {
        Room {
            limit: self.config.cache,
            session: self.lease.session(),
        }
    }

    /// Forgets a run that is in memory, with all that is not committed.
    fn drop_run(&mut self, run: RunNo) -> Option<Leftover> {
        let mut hot = self.runs.remove(run)?;
        self.schedule.clear_timer(&mut hot);
        let jobs = self.capacity.forget(&mut hot);
        Some(hot.into_leftover(jobs))
    }

    /// Forgets a run that nobody here has, so that it is read anew.
    fn refresh(&mut self, run: RunNo) {
        let idle = |hot: &HotRun| hot.is_idle(self.lease.session());
        if self.runs.get(run).is_some_and(idle) && !self.is_alone(run) {
            self.drop_run(run);
        }
    }

    /// Whether nobody but this coordinator changes a run, and all that it has sent is known to be written or not: a commit
    /// that was given up may have come through, behind the back of the only process too.
    fn is_alone(&self, run: RunNo) -> bool {
        self.store_is_ours() && self.shard.has(run) && !self.parked.is_doubtful(run)
    }

    /// Whether nobody else can have changed a run since it came into memory. Work of a run that is shared may have been
    /// taken, and done, by another server, which then had the run.
    fn is_current(&self, hot: &HotRun) -> bool {
        let ours = self.lease.owns(hot.head()) && !hot.work().is_shared();
        self.is_alone(hot.run()) || (ours && !self.parked.is_doubtful(hot.run()))
    }

    /// Whether no other process writes to this store.
    fn store_is_ours(&self) -> bool {
        !self.store.is_shared()
    }
}
