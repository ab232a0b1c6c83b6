//! A server's way to the store of a simulation: it can be down, any call over it can fail, and bugs that are put in on
//! purpose show here what the store answers to questions.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stepwell_engine::store::{
    AlertRow, Alerts, AppendResult, AuditFilter, AuditLog, AuditRow, Batch, Capabilities,
    ChangeFeed, Changed, Commits, DeadLetter, DeadLetters, DeleteFilter, DeletedRun, Delivered,
    DeliveryFailure, DerivedRows, DocumentFilter, Documents, FoundRuns, Health, Inbox, InboxEvent,
    KeptRows, Mailbox, Maintenance, Mark, Marker, MessageNo, MessageState, NewAlert, NewDocument,
    NewProjection, NoticeFilter, Outbox, OutsideEvent, PlanNo, PlanRow, Plans, Projections, Result,
    Retention, RunCounts, RunFilter, RunNo, RunReader, SessionNo, Sessions, SinkRow, SinkStart,
    Slots, Store, StoredAuditRow, StoredChunk, StoredDocument, StoredMessage, StoredRun, TaskRow,
    Tasks, WaitingCounts, WakeQueue,
};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use super::{SessionRecord, SimStore, lost, unavailable};
use crate::sabotage::Sabotage;

/// A server's way to the store.
#[derive(Debug)]
pub(crate) struct StoreConnection {
    sim_store: Arc<SimStore>,
    down: AtomicBool,
    /// The server is being killed: what it sends now may arrive later.
    dying: AtomicBool,
}

impl StoreConnection {
    pub(crate) fn new(sim_store: Arc<SimStore>) -> StoreConnection {
        StoreConnection {
            sim_store,
            down: AtomicBool::new(false),
            dying: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_dying(&self, dying: bool) {
        self.dying.store(dying, Ordering::Relaxed);
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }

    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// Whether this is what is broken on purpose.
    fn hides(&self, sabotage: Sabotage) -> bool {
        self.sim_store.sabotage == Some(sabotage)
    }

    /// What the store shows, unless that is sabotaged.
    fn shown<T>(&self, sabotage: Sabotage, mut rows: Vec<T>) -> Vec<T> {
        if self.hides(sabotage) {
            rows.clear();
        }
        rows
    }

    /// The store, if it can be reached just now.
    fn store(&self) -> Result<Arc<dyn Store>> {
        if self.is_down() {
            return Err(unavailable());
        }
        self.sim_store.fault_rate()?;
        Ok(self.sim_store.store())
    }

    fn writing(&self) -> Result<Arc<dyn Store>> {
        let store = self.store()?;
        self.sim_store.touch();
        Ok(store)
    }

    /// Rows that were asked for; giving them away changes the store.
    fn given<T>(&self, rows: Result<Vec<T>>) -> Result<Vec<T>> {
        if rows.as_ref().map_or(true, |it| !it.is_empty()) {
            self.sim_store.touch();
        }
        rows
    }
}

impl Commits for StoreConnection {
    fn commit(&self, batch: &Batch) -> Result<Vec<AppendResult>> {
        let dying = self.dying.load(Ordering::Relaxed);
        if dying || (self.is_down() && self.sim_store.inner().rng.one_in(2)) {
            self.sim_store.inner().late.push(batch.clone());
            return Err(lost());
        }
        self.store()?;
        self.sim_store.send(batch)
    }

    fn reserve_numbers(&self, count: u32) -> Result<Range<i64>> {
        self.store()?.reserve_numbers(count)
    }
}

impl Plans for StoreConnection {
    fn put_plan(&self, plan: &Plan) -> Result<PlanNo> {
        let no = self.store()?.put_plan(plan)?;
        match self.hides(Sabotage::MixUpPlans) {
            true => Ok(*self.sim_store.inner().first_plan.get_or_insert(no)),
            false => Ok(no),
        }
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
        let mut stored = self.store()?.load(run)?;
        if self.hides(Sabotage::StaleReads)
            && let Some(stored) = &mut stored
            && stored.chunks.len() > 1
        {
            stored.chunks.pop();
        }
        Ok(stored)
    }

    fn chunks(&self, run: RunNo, after: u64, limit: usize) -> Result<Vec<StoredChunk>> {
        self.store()?.chunks(run, after, limit)
    }

    fn search(&self, filter: &RunFilter) -> Result<FoundRuns> {
        self.store()?.search(filter)
    }

    fn count_runs(&self, filter: &RunFilter) -> Result<RunCounts> {
        self.store()?.count_runs(filter)
    }

    fn asleep(&self, limit: usize) -> Result<Vec<String>> {
        self.store()?.asleep(limit)
    }
}

impl Maintenance for StoreConnection {
    fn secret(&self) -> Result<[u8; 32]> {
        self.sim_store.store().secret()
    }

    fn check(&self) -> Result<Health> {
        self.store()?.check()
    }

    fn bytes(&self) -> Result<u64> {
        self.store()?.bytes()
    }

    fn waiting(&self, now: Time) -> Result<WaitingCounts> {
        self.store()?.waiting(now)
    }

    fn quarantine(&self, run: RunNo, why: &str, now: Time) -> Result<()> {
        self.writing()?.quarantine(run, why, now)
    }

    fn quarantined(&self) -> Result<Vec<(RunNo, String)>> {
        // Not a fault of its own: no seed may change because of it.
        self.sim_store.store().quarantined()
    }

    fn release(&self, run: RunNo) -> Result<()> {
        self.writing()?.release(run)
    }

    fn scrubbed(&self) -> Result<Option<RunNo>> {
        self.store()?.scrubbed()
    }

    fn set_scrubbed(&self, run: Option<RunNo>) -> Result<()> {
        self.writing()?.set_scrubbed(run)
    }

    fn kept_rows(&self, run: RunNo) -> Result<Option<KeptRows>> {
        self.store()?.kept_rows(run)
    }

    fn rebuild(&self, run: RunNo, rows: &DerivedRows, now: Time) -> Result<()> {
        self.writing()?.rebuild(run, rows, now)
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
        let lives = self.store()?.renew_session(session, now, until)?;
        if !lives {
            self.sim_store.touch();
        }
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
        let mut dead = self.given(self.store()?.dead_sessions(now))?;
        let mut inner = self.sim_store.inner();
        for seen in inner.sessions.values_mut() {
            seen.dead |= seen.until < now;
        }
        // The store forgets dead sessions that have no runs.
        let known = inner.sessions.len();
        { &mut inner.sessions }.retain(|no, seen| !seen.dead || dead.contains(no));
        inner.touched |= inner.sessions.len() < known;
        if self.hides(Sabotage::HideTheDead) {
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
        let due = self.given(self.store()?.due(now, until, limit))?;
        Ok(self.shown(Sabotage::HideDue, due))
    }

    fn next_due(&self) -> Result<Option<Time>> {
        self.store()?.next_due()
    }
}

impl Slots for StoreConnection {
    fn queued(&self, now: Time, limit: usize) -> Result<Vec<RunNo>> {
        let (now, _) = self.sim_store.time(now, now);
        let queued = self.store()?.queued(now, limit)?;
        Ok(self.shown(Sabotage::HideQueued, queued))
    }

    fn slots_taken(&self, key: &str) -> Result<u32> {
        self.store()?.slots_taken(key)
    }
}

impl Tasks for StoreConnection {
    fn reserve_for(
        &self,
        tenant: Option<&str>,
        serves: &[(String, String)],
        worker: &str,
        now: Time,
        until: Time,
        limit: usize,
    ) -> Result<Vec<TaskRow>> {
        let (now, until) = self.sim_store.time(now, until);
        if self.hides(Sabotage::HideTasks) {
            return Ok(Vec::new());
        }
        let store = self.store()?;
        self.given(store.reserve_for(tenant, serves, worker, now, until, limit))
    }

    fn open_for(
        &self,
        tenant: Option<&str>,
        serves: &[(String, String)],
        now: Time,
        limit: usize,
    ) -> Result<Vec<TaskRow>> {
        let (now, _) = self.sim_store.time(now, now);
        if self.hides(Sabotage::HideTasks) {
            return Ok(Vec::new());
        }
        self.store()?.open_for(tenant, serves, now, limit)
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

    fn revive(
        &self,
        run: RunNo,
        target: &str,
        worker: &str,
        now: Time,
        until: Time,
    ) -> Result<bool> {
        let (now, until) = self.sim_store.time(now, until);
        self.writing()?.revive(run, target, worker, now, until)
    }

    fn leases(
        &self,
        worker: Option<&str>,
        tenant: Option<&str>,
        limit: usize,
    ) -> Result<Vec<TaskRow>> {
        self.store()?.leases(worker, tenant, limit)
    }

    fn expired(&self, now: Time, limit: usize) -> Result<Vec<TaskRow>> {
        let (now, _) = self.sim_store.time(now, now);
        let expired = self.store()?.expired(now, limit)?;
        Ok(self.shown(Sabotage::HideExpired, expired))
    }

    fn open_kinds(&self, limit: usize) -> Result<Vec<(String, String)>> {
        self.store()?.open_kinds(limit)
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
        let mail = self.store()?.mail(session, limit)?;
        Ok(self.shown(Sabotage::HideMail, mail))
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
        if self.hides(Sabotage::ForgetDelivery) {
            return Ok(vec![Delivered::Kept; events.len()]);
        }
        self.writing()?.deliver_all(events, now)
    }

    fn give_back(&self, message: MessageNo, event: &OutsideEvent, now: Time) -> Result<Delivered> {
        let (now, _) = self.sim_store.time(now, now);
        self.writing()?.give_back(message, event, now)
    }

    fn kept(
        &self,
        tenant: &str,
        event_type: &str,
        key: &str,
        after: (Time, &str),
        limit: usize,
    ) -> Result<Vec<InboxEvent>> {
        self.store()?.kept(tenant, event_type, key, after, limit)
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
        let mut markers = self.given(self.store()?.take(sink, publisher, now, until, limit))?;
        if self.hides(Sabotage::WrongMarkers) {
            markers.iter_mut().for_each(|it| it.first += 1);
        }
        Ok(markers)
    }

    fn sent(&self, marker: &Marker) -> Result<()> {
        self.writing()?.sent(marker)
    }

    fn failed(&self, marker: &Marker, at: Time, why: &str) -> Result<()> {
        if self.hides(Sabotage::ForgetFailures) {
            return self.writing()?.sent(marker);
        }
        self.writing()?.failed(marker, at, why)
    }

    fn backlog(&self, sink: &str) -> Result<(u64, Option<Time>)> {
        self.store()?.backlog(sink)
    }

    fn delivery_failure(&self, sink: &str) -> Result<Option<DeliveryFailure>> {
        self.store()?.delivery_failure(sink)
    }

    fn waiting_sinks(&self) -> Result<Vec<String>> {
        self.store()?.waiting_sinks()
    }

    fn add_sink(&self, sink: &SinkRow, start: SinkStart, now: Time) -> Result<u64> {
        self.writing()?.add_sink(sink, start, now)
    }

    fn sinks(&self) -> Result<Vec<SinkRow>> {
        self.store()?.sinks()
    }

    fn remove_sink(&self, name: &str) -> Result<Option<u64>> {
        self.writing()?.remove_sink(name)
    }
}

impl DeadLetters for StoreConnection {
    fn bury(&self, marker: &Marker, now: Time, why: &str, alert: &NewAlert) -> Result<()> {
        self.writing()?.bury(marker, now, why, alert)
    }

    fn list_dead_letters(&self, filter: &NoticeFilter) -> Result<Vec<DeadLetter>> {
        self.store()?.list_dead_letters(filter)
    }

    fn redrive(&self, letter: i64) -> Result<bool> {
        self.writing()?.redrive(letter)
    }
}

impl Alerts for StoreConnection {
    fn alert(&self, run: Option<RunNo>, alert: &NewAlert, now: Time) -> Result<()> {
        self.writing()?.alert(run, alert, now)
    }

    fn list_alerts(&self, filter: &NoticeFilter) -> Result<Vec<AlertRow>> {
        self.store()?.list_alerts(filter)
    }
}

impl ChangeFeed for StoreConnection {
    fn mark(&self) -> Result<Mark> {
        self.store()?.mark()
    }

    fn changed_since(&self, mark: &Mark, limit: usize) -> Result<Changed> {
        self.store()?.changed_since(mark, limit)
    }

    fn forget_changes(&self, before: Time) -> Result<()> {
        self.writing()?.forget_changes(before)
    }
}

impl Projections for StoreConnection {
    fn put_projections(&self, all: &[NewProjection], now: Time) -> Result<()> {
        self.writing()?.put_projections(all, now)
    }

    fn projection(&self, run: RunNo) -> Result<Option<(u64, String)>> {
        self.store()?.projection(run)
    }
}

impl Documents for StoreConnection {
    fn document(&self, kind: &str, tenant: &str, key: &str) -> Result<Option<StoredDocument>> {
        self.store()?.document(kind, tenant, key)
    }

    fn documents(&self, filter: &DocumentFilter) -> Result<Vec<StoredDocument>> {
        self.store()?.documents(filter)
    }

    fn put_document(
        &self,
        document: &NewDocument,
        expected: Option<u64>,
        now: Time,
    ) -> Result<Option<u64>> {
        self.writing()?.put_document(document, expected, now)
    }

    fn delete_document(&self, kind: &str, tenant: &str, key: &str, expected: u64) -> Result<bool> {
        self.writing()?.delete_document(kind, tenant, key, expected)
    }
}

impl AuditLog for StoreConnection {
    fn record(&self, rows: &[AuditRow]) -> Result<()> {
        self.writing()?.record(rows)
    }

    fn audit_rows(&self, filter: &AuditFilter) -> Result<Vec<StoredAuditRow>> {
        self.store()?.audit_rows(filter)
    }

    fn prune_audit(&self, before: Time, limit: usize) -> Result<usize> {
        self.writing()?.prune_audit(before, limit)
    }
}

impl Retention for StoreConnection {
    fn delete_ended(
        &self,
        filter: &DeleteFilter,
        limit: usize,
        now: Time,
    ) -> Result<Vec<DeletedRun>> {
        self.writing()?.delete_ended(filter, limit, now)
    }
}

impl Store for StoreConnection {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            shared: self.sim_store.shared,
            concurrent_commits: self.sim_store.committers,
            ..self.sim_store.store().capabilities()
        }
    }
}
