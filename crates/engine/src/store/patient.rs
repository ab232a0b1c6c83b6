//! A store that is waited for. Callers that can wait get a [`PatientStore`] that makes a call until it is answered;
//! an engine, which tries again by itself and must not be held up, gets one that only takes notice.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use super::patience::{Asks, Patience};
use super::{
    AlertRow, Alerts, AppendResult, AuditFilter, AuditLog, AuditRow, Batch, Capabilities,
    ChangeFeed, Changed, Commits, DeadLetter, DeadLetters, DeleteFilter, DeletedRun, Delivered,
    DeliveryFailure, DerivedRows, DocumentFilter, Documents, FoundRuns, Health, Inbox, InboxEvent,
    KeptRows, Mailbox, Maintenance, Mark, Marker, MessageNo, MessageState, NewAlert, NewDocument,
    NewProjection, NoticeFilter, Outbox, OutsideEvent, PlanNo, PlanRow, Plans, Projections, Result,
    Retention, RunCounts, RunFilter, RunNo, RunReader, RunSummary, SessionNo, Sessions, SinkRow,
    SinkStart, Slots, Store, StoreError, StoreErrorKind, StoredAuditRow, StoredChunk,
    StoredDocument, StoredMessage, StoredRun, TaskRow, Tasks, WaitingCounts, WakeQueue,
};

/// A store with someone who waits for it.
#[derive(Debug)]
pub struct PatientStore {
    inner: Arc<dyn Store>,
    patience: Arc<Patience>,
    /// Whether calls wait here; else failures are only noted.
    waits: AtomicBool,
}

impl PatientStore {
    /// A store whose calls wait until they are answered or the patience is over.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, patience: Arc<Patience>) -> PatientStore {
        PatientStore {
            inner,
            patience,
            waits: AtomicBool::new(true),
        }
    }

    /// From now on failures are only noted: for an engine that has started, which tries again by itself.
    pub fn only_notes(&self) {
        self.waits.store(false, Ordering::SeqCst);
    }

    /// Whether the same call may succeed later. A server may be read-only until a failover is over; a file or a
    /// mode that does not allow writing stays so.
    fn passes(&self, kind: StoreErrorKind) -> bool {
        kind.may_pass() && (kind != StoreErrorKind::ReadOnly || self.inner.is_shared())
    }

    fn ask<T>(&self, asks: Asks, mut call: impl FnMut(&dyn Store) -> Result<T>) -> Result<T> {
        if self.waits.load(Ordering::Relaxed) {
            let passes = |kind| self.passes(kind);
            return self.patience.keep_store(passes, || call(&*self.inner));
        }
        let answer = call(&*self.inner);
        match &answer {
            Err(error) => self.note(asks, error),
            Ok(_) => self.patience.answered(asks),
        }
        answer
    }

    fn note(&self, asks: Asks, error: &StoreError) {
        match self.passes(error.kind) {
            true => self.patience.failed(asks, error),
            false => self.patience.answered(asks),
        }
    }
}

/// Methods that read, and methods that change something; the latter may be made twice after a lost answer, as the
/// port says.
macro_rules! asks {
    ($port:ident, $asks:ident: $(fn $name:ident($($arg:ident: $kind:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $($arg: $kind),*) -> Result<$answer> {
            self.ask(Asks::$asks, |store| $port::$name(store, $($arg),*))
        })*
    };
}

impl Commits for PatientStore {
    fn commit_all(&self, batches: &[&Batch]) -> Vec<Result<Vec<AppendResult>>> {
        if self.waits.load(Ordering::Relaxed) {
            return batches.iter().map(|batch| self.commit(batch)).collect();
        }
        let answers = self.inner.commit_all(batches);
        match answers.iter().find_map(|answer| answer.as_ref().err()) {
            Some(error) => self.note(Asks::EngineWrites, error),
            None => self.patience.answered(Asks::EngineWrites),
        }
        answers
    }

    asks! { Commits, EngineWrites:
        fn commit(batch: &Batch) -> Vec<AppendResult>;
        fn reserve_numbers(count: u32) -> Range<i64>;
    }
}

impl Plans for PatientStore {
    asks! { Plans, EngineWrites: fn put_plan(plan: &Plan) -> PlanNo; }
    asks! { Plans, EngineReads: fn plan(no: PlanNo) -> Option<PlanRow>; }
}

impl RunReader for PatientStore {
    asks! { RunReader, EngineReads:
        fn find(run_id: &str) -> Option<RunNo>;
        fn load(run: RunNo) -> Option<StoredRun>;
        fn load_all(runs: &[RunNo]) -> Vec<StoredRun>;
        fn chunks(run: RunNo, after: u64, limit: usize) -> Vec<StoredChunk>;
        fn search(filter: &RunFilter) -> FoundRuns;
        fn summaries(runs: &[RunNo]) -> Vec<RunSummary>;
        fn count_runs(filter: &RunFilter) -> RunCounts;
        fn asleep(limit: usize) -> Vec<String>;
    }
}

impl ChangeFeed for PatientStore {
    asks! { ChangeFeed, EngineReads:
        fn mark() -> Mark;
        fn changed_since(mark: &Mark, limit: usize) -> Changed;
    }
    asks! { ChangeFeed, EngineWrites: fn forget_changes(before: Time) -> (); }
}

impl Sessions for PatientStore {
    asks! { Sessions, EngineWrites:
        fn open_session(name: &str, now: Time, until: Time) -> SessionNo;
        fn close_session(session: SessionNo) -> ();
    }
    asks! { Sessions, EngineReads:
        fn dead_sessions(now: Time) -> Vec<SessionNo>;
        fn runs_of(session: SessionNo, limit: usize) -> Vec<RunNo>;
        fn store_clock() -> Option<Time>;
    }

    /// Never waits: a session that cannot be renewed in time must end its work in time.
    fn renew_session(&self, session: SessionNo, now: Time, until: Time) -> Result<bool> {
        self.inner.renew_session(session, now, until)
    }
}

impl WakeQueue for PatientStore {
    asks! { WakeQueue, EngineWrites:
        fn due(now: Time, until: Time, limit: usize) -> Vec<RunNo>;
    }
    asks! { WakeQueue, EngineReads: fn next_due() -> Option<Time>; }
}

impl Slots for PatientStore {
    asks! { Slots, EngineReads:
        fn queued(now: Time, limit: usize) -> Vec<RunNo>;
        fn slots_taken(key: &str) -> u32;
    }
}

impl Tasks for PatientStore {
    asks! { Tasks, EngineWrites:
        fn reserve_for(
            tenant: Option<&str>, serves: &[(String, String)], worker: &str, now: Time, until: Time, limit: usize
        ) -> Vec<TaskRow>;
        fn heartbeat(run: RunNo, target: &str, worker: &str, now: Time, until: Time) -> bool;
        fn revive(run: RunNo, target: &str, worker: &str, now: Time, until: Time) -> bool;
    }
    asks! { Tasks, EngineReads:
        fn open_for(tenant: Option<&str>, serves: &[(String, String)], now: Time, limit: usize) -> Vec<TaskRow>;
        fn expired(now: Time, limit: usize) -> Vec<TaskRow>;
        fn leases(worker: Option<&str>, tenant: Option<&str>, limit: usize) -> Vec<TaskRow>;
        fn open_kinds(limit: usize) -> Vec<(String, String)>;
        fn next_visible(serves: &[(String, String)]) -> Option<Time>;
    }
}

impl Mailbox for PatientStore {
    asks! { Mailbox, EngineWrites:
        fn post(to: RunNo, body: &str, now: Time) -> MessageNo;
        fn answer(mail: MessageNo, answer: &str) -> ();
        fn take_answer(mail: MessageNo) -> MessageState;
    }
    asks! { Mailbox, EngineReads:
        fn mail(session: SessionNo, limit: usize) -> Vec<StoredMessage>;
    }

    /// Not an answer of the database everywhere, so it says nothing.
    fn news(&self) -> Result<i64> {
        self.inner.news()
    }
}

impl Inbox for PatientStore {
    asks! { Inbox, EngineWrites:
        fn deliver_all(events: &[OutsideEvent], now: Time) -> Vec<Delivered>;
        fn give_back(message: MessageNo, event: &OutsideEvent, now: Time) -> Delivered;
    }
    asks! { Inbox, EngineReads:
        fn kept(tenant: &str, event_type: &str, key: &str, after: (Time, &str), limit: usize) -> Vec<InboxEvent>;
    }
}

impl Outbox for PatientStore {
    asks! { Outbox, EngineWrites:
        fn take(sink: &str, publisher: &str, now: Time, until: Time, limit: usize) -> Vec<Marker>;
        fn sent(marker: &Marker) -> ();
        fn failed(marker: &Marker, at: Time, why: &str) -> ();
        fn add_sink(sink: &SinkRow, start: SinkStart, now: Time) -> u64;
        fn remove_sink(name: &str) -> Option<u64>;
    }
    asks! { Outbox, EngineReads:
        fn backlog(sink: &str) -> (u64, Option<Time>);
        fn delivery_failure(sink: &str) -> Option<DeliveryFailure>;
        fn waiting_sinks() -> Vec<String>;
        fn sinks() -> Vec<SinkRow>;
    }
}

impl DeadLetters for PatientStore {
    asks! { DeadLetters, EngineWrites:
        fn bury(marker: &Marker, now: Time, why: &str, alert: &NewAlert) -> ();
        fn redrive(letter: i64) -> bool;
    }
    asks! { DeadLetters, EngineReads: fn list_dead_letters(filter: &NoticeFilter) -> Vec<DeadLetter>; }
}

impl Alerts for PatientStore {
    asks! { Alerts, EngineWrites:
        fn alert(run: Option<RunNo>, alert: &NewAlert, now: Time) -> ();
    }
    asks! { Alerts, EngineReads: fn list_alerts(filter: &NoticeFilter) -> Vec<AlertRow>; }
}

impl Projections for PatientStore {
    asks! { Projections, EngineWrites:
        fn put_projections(all: &[NewProjection], now: Time) -> ();
    }
    asks! { Projections, EngineReads: fn projection(run: RunNo) -> Option<(u64, String)>; }
}

impl Documents for PatientStore {
    asks! { Documents, EngineWrites:
        fn put_document(document: &NewDocument, expected: Option<u64>, now: Time) -> Option<u64>;
        fn delete_document(kind: &str, tenant: &str, key: &str, expected: u64) -> bool;
    }
    asks! { Documents, EngineReads:
        fn document(kind: &str, tenant: &str, key: &str) -> Option<StoredDocument>;
        fn documents(filter: &DocumentFilter) -> Vec<StoredDocument>;
    }
}

impl AuditLog for PatientStore {
    asks! { AuditLog, EngineWrites:
        fn record(rows: &[AuditRow]) -> ();
        fn prune_audit(before: Time, limit: usize) -> usize;
    }
    asks! { AuditLog, EngineReads: fn audit_rows(filter: &AuditFilter) -> Vec<StoredAuditRow>; }
}

impl Retention for PatientStore {
    asks! { Retention, EngineWrites:
        fn delete_ended(filter: &DeleteFilter, limit: usize, now: Time) -> Vec<DeletedRun>;
    }
}

impl Maintenance for PatientStore {
    asks! { Maintenance, EngineReads:
        fn secret() -> [u8; 32];
        fn check() -> Health;
        fn bytes() -> u64;
        fn waiting(now: Time) -> WaitingCounts;
        fn still_there() -> ();
        fn quarantined() -> Vec<(RunNo, String)>;
        fn scrubbed() -> Option<RunNo>;
        fn kept_rows(run: RunNo) -> Option<KeptRows>;
    }
    asks! { Maintenance, EngineWrites:
        fn correct() -> Vec<String>;
        fn quarantine(run: RunNo, why: &str, now: Time) -> ();
        fn release(run: RunNo) -> ();
        fn set_scrubbed(run: Option<RunNo>) -> ();
        fn rebuild(run: RunNo, rows: &DerivedRows, now: Time) -> ();
    }
}

impl Store for PatientStore {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}
