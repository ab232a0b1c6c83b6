//! The store of a simulation, and what goes wrong on the way to it. Every server has a connection of its own to
//! the one store; a connection can be down, and any call over it can fail.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stepwell_engine::store::{
    AlertRow, Alerts, AppendResult, Batch, Capabilities, Commits, DeadLetter, DeadLetters,
    Delivered, Health, Inbox, Mailbox, Maintenance, Marker, MemoryStore, MessageNo, MessageState,
    NewAlert, Outbox, OutsideEvent, PlanNo, PlanRow, Plans, Projections, Result, RunFilter, RunNo,
    RunReader, RunSummary, SessionNo, Sessions, Slots, Store, StoreError, StoreErrorKind,
    StoredChunk, StoredMessage, StoredRun, TaskRow, Tasks, WakeQueue,
};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use crate::rng::Rng;
use crate::sabotage::{Sabotage, Saboteur};

/// A session as the sim_store remembers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionRecord {
    pub(crate) until: Time,
    pub(crate) dead: bool,
}

#[derive(Debug)]
struct Inner {
    rng: Rng,
    now: Time,
    /// One call in so many fails; zero for none.
    fault_rate: u64,
    sessions: BTreeMap<SessionNo, SessionRecord>,
    /// Something was written since this was asked last.
    touched: bool,
    commits: u64,
    saboteur: Saboteur,
}

/// The one store of a simulation.
#[derive(Debug)]
pub(crate) struct SimStore {
    pub(crate) memory: MemoryStore,
    /// Several servers share it, as they do PostgreSQL.
    shared: bool,
    sabotage: Option<Sabotage>,
    inner: Mutex<Inner>,
}

impl SimStore {
    pub(crate) fn new(seed: u64, now: Time, shared: bool, sabotage: Option<Sabotage>) -> SimStore {
        SimStore {
            memory: MemoryStore::with_secret([7; 32]),
            shared,
            sabotage,
            inner: Mutex::new(Inner {
                rng: Rng::new(seed ^ 0xdead),
                now,
                fault_rate: 0,
                sessions: BTreeMap::new(),
                touched: true,
                commits: 0,
                saboteur: Saboteur::default(),
            }),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_now(&self, now: Time) {
        self.inner().now = now;
    }

    /// From now on one call in `one_in` fails; none with zero.
    pub(crate) fn set_fault_rate(&self, one_in: u64) {
        self.inner().fault_rate = one_in;
    }

    pub(crate) fn session(&self, no: SessionNo) -> Option<SessionRecord> {
        self.inner().sessions.get(&no).copied()
    }

    pub(crate) fn sessions(&self) -> Vec<(SessionNo, SessionRecord)> {
        let inner = self.inner();
        inner.sessions.iter().map(|(no, it)| (*no, *it)).collect()
    }

    pub(crate) fn take_touched(&self) -> bool {
        std::mem::take(&mut self.inner().touched)
    }

    pub(crate) fn commits(&self) -> u64 {
        self.inner().commits
    }

    fn touch(&self) {
        self.inner().touched = true;
    }

    /// A batch arrives. Shared stores go by their own clock.
    pub(crate) fn commit(&self, batch: &Batch) -> Result<Vec<AppendResult>> {
        let mut inner = self.inner();
        inner.touched = true;
        let mut batch = batch.clone();
        if self.shared {
            batch.now = inner.now;
        }
        let outcomes = match self.sabotage {
            None => self.memory.commit(&batch)?,
            Some(how) => {
                let Inner { saboteur, rng, .. } = &mut *inner;
                saboteur.commit(how, &self.memory, &batch, rng)?
            }
        };
        let done = |it: &&AppendResult| **it == AppendResult::Committed;
        inner.commits += outcomes.iter().filter(done).count() as u64;
        Ok(outcomes)
    }

    fn fault_rate(&self) -> Result<()> {
        let mut inner = self.inner();
        let one_in = inner.fault_rate;
        if one_in > 0 && inner.rng.one_in(one_in) {
            return Err(unavailable());
        }
        Ok(())
    }

    /// The time, and how much later something is.
    fn time(&self, now: Time, later: Time) -> (Time, Time) {
        if !self.shared {
            return (now, later);
        }
        let own = self.inner().now;
        (own, own.plus(later.since(now)))
    }
}

pub(crate) fn unavailable() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        "simulated: the store is not there",
    )
}

/// A server's way to the store.
#[derive(Debug)]
pub(crate) struct StoreConnection {
    sim_store: Arc<SimStore>,
    down: AtomicBool,
}

impl StoreConnection {
    pub(crate) fn new(sim_store: Arc<SimStore>) -> StoreConnection {
        StoreConnection {
            sim_store,
            down: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }

    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// The store, if it can be reached just now.
    fn store(&self) -> Result<&MemoryStore> {
        if self.is_down() {
            return Err(unavailable());
        }
        self.sim_store.fault_rate()?;
        Ok(&self.sim_store.memory)
    }

    fn writing(&self) -> Result<&MemoryStore> {
        let store = self.store()?;
        self.sim_store.touch();
        Ok(store)
    }
}

impl Commits for StoreConnection {
    fn commit(&self, batch: &Batch) -> Result<Vec<AppendResult>> {
        self.store()?;
        self.sim_store.commit(batch)
    }

    fn reserve_numbers(&self, count: u32) -> Result<Range<i64>> {
        self.store()?.reserve_numbers(count)
    }
}

impl Plans for StoreConnection {
    fn put_plan(&self, plan: &Plan) -> Result<PlanNo> {
        self.store()?.put_plan(plan)
    }

    fn plan(&self, no: PlanNo) -> Result<Option<PlanRow>> {
        self.store()?.plan(no)
    }
}

impl RunReader for StoreConnection {
    fn find(&self, run_id: &str) -> Result<Option<RunNo>> {
        self.store()?.find(run_id)
    }

    fn load(&self, run: RunNo) -> Result<Option<StoredRun>> {
        self.store()?.load(run)
    }

    fn chunks(&self, run: RunNo, after: u64, limit: usize) -> Result<Vec<StoredChunk>> {
        self.store()?.chunks(run, after, limit)
    }

    fn list(&self, filter: &RunFilter) -> Result<Vec<RunSummary>> {
        self.store()?.list(filter)
    }

    fn asleep(&self, limit: usize) -> Result<Vec<String>> {
        self.store()?.asleep(limit)
    }
}

impl Maintenance for StoreConnection {
    fn secret(&self) -> Result<[u8; 32]> {
        self.sim_store.memory.secret()
    }

    fn check(&self) -> Result<Health> {
        self.store()?.check()
    }

    fn bytes(&self) -> Result<u64> {
        self.store()?.bytes()
    }
}

impl Sessions for StoreConnection {
    fn open_session(&self, name: &str, now: Time, until: Time) -> Result<SessionNo> {
        let (now, until) = self.sim_store.time(now, until);
        let no = self.writing()?.open_session(name, now, until)?;
        let seen = SessionRecord { until, dead: false };
        self.sim_store.inner().sessions.insert(no, seen);
        Ok(no)
    }

    fn renew_session(&self, session: SessionNo, now: Time, until: Time) -> Result<bool> {
        let (now, until) = self.sim_store.time(now, until);
        let lives = self.writing()?.renew_session(session, now, until)?;
        if lives && let Some(seen) = self.sim_store.inner().sessions.get_mut(&session) {
            seen.until = until;
        }
        Ok(lives)
    }

    fn close_session(&self, session: SessionNo) -> Result<()> {
        self.writing()?.close_session(session)?;
        if let Some(seen) = self.sim_store.inner().sessions.get_mut(&session) {
            seen.dead = true;
        }
        Ok(())
    }

    fn dead_sessions(&self, now: Time) -> Result<Vec<SessionNo>> {
        let (now, _) = self.sim_store.time(now, now);
        let mut dead = self.writing()?.dead_sessions(now)?;
        let sessions = &mut self.sim_store.inner().sessions;
        for seen in sessions.values_mut() {
            seen.dead |= seen.until < now;
        }
        // The store forgets dead sessions that have no runs.
        sessions.retain(|no, seen| !seen.dead || dead.contains(no));
        if self.sim_store.sabotage == Some(Sabotage::HideTheDead) {
            dead.clear();
        }
        Ok(dead)
    }

    fn runs_of(&self, session: SessionNo, limit: usize) -> Result<Vec<RunNo>> {
        self.store()?.runs_of(session, limit)
    }
}

impl WakeQueue for StoreConnection {
    fn due(&self, now: Time, until: Time, limit: usize) -> Result<Vec<RunNo>> {
        let (now, until) = self.sim_store.time(now, until);
        self.writing()?.due(now, until, limit)
    }

    fn next_due(&self) -> Result<Option<Time>> {
        self.store()?.next_due()
    }
}

impl Slots for StoreConnection {
    fn queued(&self, now: Time, limit: usize) -> Result<Vec<RunNo>> {
        let (now, _) = self.sim_store.time(now, now);
        self.store()?.queued(now, limit)
    }

    fn slots_taken(&self, key: &str) -> Result<u32> {
        self.store()?.slots_taken(key)
    }
}

impl Tasks for StoreConnection {
    fn reserve(
        &self,
        serves: &[(String, String)],
        worker: &str,
        now: Time,
        until: Time,
        limit: usize,
    ) -> Result<Vec<TaskRow>> {
        let (now, until) = self.sim_store.time(now, until);
        self.writing()?.reserve(serves, worker, now, until, limit)
    }

    fn heartbeat(
        &self,
        run: RunNo,
        target: &str,
        worker: &str,
        now: Time,
        until: Time,
    ) -> Result<bool> {
        let (now, until) = self.sim_store.time(now, until);
        self.writing()?.heartbeat(run, target, worker, now, until)
    }

    fn expired(&self, now: Time, limit: usize) -> Result<Vec<TaskRow>> {
        let (now, _) = self.sim_store.time(now, now);
        self.store()?.expired(now, limit)
    }

    fn next_visible(&self, serves: &[(String, String)]) -> Result<Option<Time>> {
        self.store()?.next_visible(serves)
    }
}

impl Mailbox for StoreConnection {
    fn post(&self, to: RunNo, body: &str, now: Time) -> Result<MessageNo> {
        self.writing()?.post(to, body, now)
    }

    fn mail(&self, session: SessionNo, limit: usize) -> Result<Vec<StoredMessage>> {
        self.store()?.mail(session, limit)
    }

    fn answer(&self, mail: MessageNo, answer: &str) -> Result<()> {
        self.writing()?.answer(mail, answer)
    }

    fn take_answer(&self, mail: MessageNo) -> Result<MessageState> {
        self.writing()?.take_answer(mail)
    }

    fn news(&self) -> Result<i64> {
        self.store()?.news()
    }
}

impl Inbox for StoreConnection {
    fn deliver_all(&self, events: &[OutsideEvent], now: Time) -> Result<Vec<Delivered>> {
        let (now, _) = self.sim_store.time(now, now);
        self.writing()?.deliver_all(events, now)
    }
}

impl Outbox for StoreConnection {
    fn take(
        &self,
        sink: &str,
        publisher: &str,
        now: Time,
        until: Time,
        limit: usize,
    ) -> Result<Vec<Marker>> {
        let (now, until) = self.sim_store.time(now, until);
        self.writing()?.take(sink, publisher, now, until, limit)
    }

    fn sent(&self, marker: &Marker) -> Result<()> {
        self.writing()?.sent(marker)
    }

    fn failed(&self, marker: &Marker, at: Time, why: &str) -> Result<()> {
        self.writing()?.failed(marker, at, why)
    }

    fn backlog(&self, sink: &str) -> Result<(u64, Option<Time>)> {
        self.store()?.backlog(sink)
    }

    fn waiting_sinks(&self) -> Result<Vec<String>> {
        self.store()?.waiting_sinks()
    }
}

impl DeadLetters for StoreConnection {
    fn bury(&self, marker: &Marker, now: Time, why: &str, alert: &NewAlert) -> Result<()> {
        self.writing()?.bury(marker, now, why, alert)
    }

    fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>> {
        self.store()?.dead_letters(limit)
    }

    fn redrive(&self, letter: i64) -> Result<bool> {
        self.writing()?.redrive(letter)
    }
}

impl Alerts for StoreConnection {
    fn alert(&self, run: Option<RunNo>, alert: &NewAlert, now: Time) -> Result<()> {
        self.writing()?.alert(run, alert, now)
    }

    fn alerts(&self, limit: usize) -> Result<Vec<AlertRow>> {
        self.store()?.alerts(limit)
    }
}

impl Projections for StoreConnection {
    fn put_projection(&self, run: RunNo, seq: u64, snapshot: &str, now: Time) -> Result<()> {
        self.writing()?.put_projection(run, seq, snapshot, now)
    }

    fn projection(&self, run: RunNo) -> Result<Option<(u64, String)>> {
        self.store()?.projection(run)
    }
}

impl Store for StoreConnection {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            shared: self.sim_store.shared,
            ..self.sim_store.memory.capabilities()
        }
    }
}
