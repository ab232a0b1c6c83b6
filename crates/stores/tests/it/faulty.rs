//! A store whose reads can be torn, so that a chunk of the log that is there is not seen, or fail.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use stepwell_engine::store::*;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

#[derive(Debug)]
pub(crate) struct Torn {
    inner: Arc<dyn Store>,
    /// For each of the next reads the chunk that is not seen, by its first event.
    pub(crate) hidden: Mutex<VecDeque<u64>>,
    /// Runs cannot be read now.
    pub(crate) down: AtomicBool,
    /// Other servers may have the store too.
    shared: bool,
}

impl Torn {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Torn {
        Torn {
            inner,
            hidden: Mutex::default(),
            down: AtomicBool::new(false),
            shared: false,
        }
    }

    /// One that other servers may have too, whatever the store says of itself.
    pub(crate) fn shared(inner: Arc<dyn Store>) -> Torn {
        Torn {
            shared: true,
            ..Torn::new(inner)
        }
    }

    /// Runs cannot be read, or can again.
    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }
}

macro_rules! as_it_is {
    ($port:ident: $(fn $name:ident($($arg:ident: $kind:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $($arg: $kind),*) -> $answer {
            $port::$name(&*self.inner, $($arg),*)
        })*
    };
}

impl RunReader for Torn {
    fn chunks(&self, run: RunNo, after: u64, limit: usize) -> Result<Vec<StoredChunk>> {
        let mut chunks = self.inner.chunks(run, after, limit)?;
        let hidden = self.hidden.lock().unwrap().pop_front();
        chunks.retain(|it| Some(it.first) != hidden);
        Ok(chunks)
    }

    fn load(&self, run: RunNo) -> Result<Option<StoredRun>> {
        if self.down.load(Ordering::Relaxed) {
            return Err(StoreError::new(
                StoreErrorKind::Unavailable,
                "nobody is there",
            ));
        }
        self.inner.load(run)
    }

    as_it_is! { RunReader:
        fn find(run_id: &str) -> Result<Option<RunNo>>;
        fn search(filter: &RunFilter) -> Result<FoundRuns>;
        fn count_runs(filter: &RunFilter) -> Result<RunCounts>;
        fn asleep(limit: usize) -> Result<Vec<String>>;
    }
}

impl Commits for Torn {
    as_it_is! { Commits:
        fn commit(batch: &Batch) -> Result<Vec<AppendResult>>;
        fn reserve_numbers(count: u32) -> Result<Range<i64>>;
    }
}

impl Plans for Torn {
    as_it_is! { Plans:
        fn put_plan(plan: &Plan) -> Result<PlanNo>;
        fn plan(no: PlanNo) -> Result<Option<PlanRow>>;
    }
}

impl Sessions for Torn {
    as_it_is! { Sessions:
        fn open_session(name: &str, now: Time, until: Time) -> Result<SessionNo>;
        fn renew_session(session: SessionNo, now: Time, until: Time) -> Result<bool>;
        fn close_session(session: SessionNo) -> Result<()>;
        fn dead_sessions(now: Time) -> Result<Vec<SessionNo>>;
        fn runs_of(session: SessionNo, limit: usize) -> Result<Vec<RunNo>>;
    }
}

impl WakeQueue for Torn {
    as_it_is! { WakeQueue:
        fn due(now: Time, until: Time, limit: usize) -> Result<Vec<RunNo>>;
        fn next_due() -> Result<Option<Time>>;
    }
}

impl Slots for Torn {
    as_it_is! { Slots:
        fn queued(now: Time, limit: usize) -> Result<Vec<RunNo>>;
        fn slots_taken(key: &str) -> Result<u32>;
    }
}

impl Tasks for Torn {
    as_it_is! { Tasks:
        fn reserve_for(tenant: Option<&str>, serves: &[(String, String)], worker: &str, now: Time, until: Time, limit: usize) -> Result<Vec<TaskRow>>;
        fn open_for(tenant: Option<&str>, serves: &[(String, String)], now: Time, limit: usize) -> Result<Vec<TaskRow>>;
        fn heartbeat(run: RunNo, target: &str, worker: &str, now: Time, until: Time) -> Result<bool>;
        fn revive(run: RunNo, target: &str, worker: &str, now: Time, until: Time) -> Result<bool>;
        fn expired(now: Time, limit: usize) -> Result<Vec<TaskRow>>;
        fn leases(worker: Option<&str>, tenant: Option<&str>, limit: usize) -> Result<Vec<TaskRow>>;
        fn open_kinds(limit: usize) -> Result<Vec<(String, String)>>;
        fn next_visible(serves: &[(String, String)]) -> Result<Option<Time>>;
    }
}

impl Mailbox for Torn {
    as_it_is! { Mailbox:
        fn post(to: RunNo, body: &str, now: Time) -> Result<MessageNo>;
        fn mail(session: SessionNo, limit: usize) -> Result<Vec<StoredMessage>>;
        fn answer(mail: MessageNo, answer: &str) -> Result<()>;
        fn take_answer(mail: MessageNo) -> Result<MessageState>;
        fn news() -> Result<i64>;
    }
}

impl Inbox for Torn {
    as_it_is! { Inbox:
        fn deliver_all(events: &[OutsideEvent], now: Time) -> Result<Vec<Delivered>>;
        fn give_back(message: MessageNo, event: &OutsideEvent, now: Time) -> Result<Delivered>;
        fn kept(tenant: &str, event_type: &str, key: &str, after: (Time, &str), limit: usize) -> Result<Vec<InboxEvent>>;
    }
}

impl Outbox for Torn {
    as_it_is! { Outbox:
        fn take(sink: &str, publisher: &str, now: Time, until: Time, limit: usize) -> Result<Vec<Marker>>;
        fn sent(marker: &Marker) -> Result<()>;
        fn failed(marker: &Marker, at: Time, why: &str) -> Result<()>;
        fn backlog(sink: &str) -> Result<(u64, Option<Time>)>;
        fn delivery_failure(sink: &str) -> Result<Option<DeliveryFailure>>;
        fn waiting_sinks() -> Result<Vec<String>>;
        fn add_sink(sink: &SinkRow, start: SinkStart, now: Time) -> Result<u64>;
        fn sinks() -> Result<Vec<SinkRow>>;
        fn remove_sink(name: &str) -> Result<Option<u64>>;
    }
}

impl DeadLetters for Torn {
    as_it_is! { DeadLetters:
        fn bury(marker: &Marker, now: Time, why: &str, alert: &NewAlert) -> Result<()>;
        fn list_dead_letters(filter: &NoticeFilter) -> Result<Vec<DeadLetter>>;
        fn redrive(letter: i64) -> Result<bool>;
    }
}

impl Alerts for Torn {
    as_it_is! { Alerts:
        fn alert(run: Option<RunNo>, alert: &NewAlert, now: Time) -> Result<()>;
        fn list_alerts(filter: &NoticeFilter) -> Result<Vec<AlertRow>>;
    }
}

impl ChangeFeed for Torn {
    as_it_is! { ChangeFeed:
        fn mark() -> Result<Mark>;
        fn changed_since(mark: &Mark, limit: usize) -> Result<Changed>;
        fn forget_changes(before: Time) -> Result<()>;
    }
}

impl Projections for Torn {
    as_it_is! { Projections:
        fn put_projections(all: &[NewProjection], now: Time) -> Result<()>;
        fn projection(run: RunNo) -> Result<Option<(u64, String)>>;
    }
}

impl Documents for Torn {
    as_it_is! { Documents:
        fn document(kind: &str, tenant: &str, key: &str) -> Result<Option<StoredDocument>>;
        fn documents(filter: &DocumentFilter) -> Result<Vec<StoredDocument>>;
        fn put_document(document: &NewDocument, expected: Option<u64>, now: Time) -> Result<Option<u64>>;
        fn delete_document(kind: &str, tenant: &str, key: &str, expected: u64) -> Result<bool>;
    }
}

impl AuditLog for Torn {
    as_it_is! { AuditLog:
        fn record(rows: &[AuditRow]) -> Result<()>;
        fn audit_rows(filter: &AuditFilter) -> Result<Vec<StoredAuditRow>>;
        fn prune_audit(before: Time, limit: usize) -> Result<usize>;
    }
}

impl Retention for Torn {
    as_it_is! { Retention:
        fn delete_ended(filter: &DeleteFilter, limit: usize, now: Time) -> Result<Vec<DeletedRun>>;
    }
}

impl Maintenance for Torn {
    as_it_is! { Maintenance:
        fn secret() -> Result<[u8; 32]>;
        fn check() -> Result<Health>;
        fn bytes() -> Result<u64>;
        fn waiting(now: Time) -> Result<WaitingCounts>;
        fn quarantine(run: RunNo, why: &str, now: Time) -> Result<()>;
        fn quarantined() -> Result<Vec<(RunNo, String)>>;
        fn release(run: RunNo) -> Result<()>;
        fn scrubbed() -> Result<Option<RunNo>>;
        fn set_scrubbed(run: Option<RunNo>) -> Result<()>;
        fn kept_rows(run: RunNo) -> Result<Option<KeptRows>>;
        fn rebuild(run: RunNo, rows: &DerivedRows, now: Time) -> Result<()>;
    }
}

impl Store for Torn {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.capabilities();
        Capabilities {
            shared: self.shared || inner.shared,
            ..inner
        }
    }
}
