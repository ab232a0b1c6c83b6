//! Writes the audit log: a queue and a thread of its own, so that a request does not wait for a commit of the store. A row
//! is durable a moment after the answer of its request; a server that is killed in this moment loses it. A queue that is
//! full makes requests wait: what is answered is in the queue.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stepwell_engine::store::{AuditRow, Store};
use tokio::sync::mpsc::{self, Receiver, Sender};

/// How many rows may wait.
const QUEUE: usize = 4_096;
/// How many rows are one transaction.
const BATCH: usize = 500;
/// How long rows are collected: a commit for each row would slow the work of the store down.
const COLLECT: Duration = Duration::from_millis(25);
/// How long to rest when the store cannot be used.
const REST: Duration = Duration::from_millis(500);
/// How long a server that stops tries to write what is left.
const LAST: Duration = Duration::from_secs(5);
/// The most characters of a reason that are kept.
const MAX_REASON: usize = 1_000;

#[derive(Debug)]
enum Entry {
    Row(Box<AuditRow>),
    End,
}

/// Where requests put their rows.
#[derive(Clone, Debug)]
pub(crate) struct Trail(Sender<Entry>);

/// The thread that writes.
#[derive(Debug)]
pub(crate) struct TrailWriter {
    trail: Trail,
    thread: JoinHandle<()>,
    stops: Stops,
}

/// Since when the server stops, if it does. Rows that cannot be written must not keep a server from ending.
type Stops = Arc<OnceLock<Instant>>;

impl TrailWriter {
    pub(crate) fn start(store: Arc<dyn Store>) -> io::Result<TrailWriter> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let stops = Stops::default();
        let seen = Arc::clone(&stops);
        let thread = std::thread::Builder::new()
            .name("stepwell-audit".into())
            .spawn(move || write(&*store, receiver, &seen))?;
        Ok(TrailWriter {
            trail: Trail(sender),
            thread,
            stops,
        })
    }

    pub(crate) fn trail(&self) -> Trail {
        self.trail.clone()
    }

    /// Writes what is in the queue, and ends; gives up after a while if the store does not take it.
    pub(crate) fn stop(self) {
        let _ = self.stops.set(Instant::now());
        let _ = self.trail.0.blocking_send(Entry::End);
        let _ = self.thread.join();
    }
}

impl Trail {
    /// Puts a row into the queue; waits while it is full.
    pub(crate) async fn put(&self, row: AuditRow) {
        if self.0.send(Entry::Row(Box::new(row))).await.is_err() {
            tracing::error!("a row of the audit log came after the server had stopped");
        }
    }
}

fn write(store: &dyn Store, mut queue: Receiver<Entry>, stops: &Stops) {
    let mut ends = false;
    while !ends {
        let Some(first) = queue.blocking_recv() else {
            return;
        };
        let mut rows = Vec::new();
        ends = take(&mut rows, first);
        if !ends {
            std::thread::sleep(COLLECT);
        }
        while rows.len() < BATCH {
            match queue.try_recv() {
                Ok(entry) => ends |= take(&mut rows, entry),
                Err(_) => break,
            }
        }
        // Rows after the end are those of the last requests.
        record(store, &rows, stops);
    }
    while let Ok(entry) = queue.try_recv() {
        let mut rows = Vec::new();
        take(&mut rows, entry);
        record(store, &rows, stops);
    }
}

/// Whether the entry was the end.
fn take(rows: &mut Vec<AuditRow>, entry: Entry) -> bool {
    match entry {
        Entry::Row(row) => {
            rows.push(*row);
            false
        }
        Entry::End => true,
    }
}

/// Writes rows until they are written, or until a server that stops has tried long enough.
fn record(store: &dyn Store, rows: &[AuditRow], stops: &Stops) {
    if rows.is_empty() {
        return;
    }
    let mut told = false;
    while let Err(error) = store.record(rows) {
        if !told {
            tracing::error!(%error, rows = rows.len(), "the audit log cannot be written; it is tried again");
            told = true;
        }
        if stops.get().is_some_and(|since| since.elapsed() > LAST) {
            tracing::error!(rows = rows.len(), "rows of the audit log were lost");
            return;
        }
        std::thread::sleep(REST);
    }
}

/// What the body of a request says about the request, for the audit log: filled by whoever reads the body.
#[derive(Clone, Debug, Default)]
pub(crate) struct GivenReason(Arc<OnceLock<Given>>);

#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    /// Why it is done.
    #[serde(default)]
    reason: Option<String>,
    /// The tenant that it is done to.
    #[serde(default)]
    tenant: Option<String>,
    /// Which signal is sent.
    #[serde(default)]
    signal_type: Option<String>,
    /// What is done to many runs.
    #[serde(default)]
    action: Option<String>,
    /// Whether nothing is done, only told.
    #[serde(default)]
    dry_run: Option<bool>,
    /// The type and the id of an event.
    #[serde(default, rename = "type")]
    event_type: Option<String>,
    #[serde(default)]
    id: Option<String>,
}

/// What a body must have to be looked at.
const LOOKED_FOR: [&[u8]; 5] = [
    b"\"reason\"",
    b"\"tenant\"",
    b"\"signalType\"",
    b"\"action\"",
    b"\"type\"",
];

impl GivenReason {
    /// Looks for a reason and a tenant in a body of JSON.
    pub(crate) fn look(&self, body: &[u8]) {
        // Most bodies have none, and are not read twice.
        let has = |name: &[u8]| body.windows(name.len()).any(|it| it == name);
        if LOOKED_FOR.iter().any(|it| has(it))
            && let Ok(given) = serde_json::from_slice::<Given>(body)
        {
            let cut = |text: String| text.chars().take(MAX_REASON).collect();
            let _ = self.0.set(Given {
                reason: given.reason.map(cut),
                tenant: given.tenant.map(cut),
                signal_type: given.signal_type.map(cut),
                action: given.action.map(cut),
                dry_run: given.dry_run,
                event_type: given.event_type.map(cut),
                id: given.id.map(cut),
            });
        }
    }

    pub(crate) fn get(&self) -> Option<String> {
        self.0.get()?.reason.clone()
    }

    /// What is done, where the address does not say it: the signal, the action for many runs, the event.
    pub(crate) fn what(&self) -> Option<String> {
        let given = self.0.get()?;
        if let Some(signal) = &given.signal_type {
            return Some(signal.to_uppercase());
        }
        if let Some(action) = &given.action {
            // A bulk action changes nothing unless it says so.
            let dry = given.dry_run.unwrap_or(true);
            return Some(format!("{action}{}", if dry { "/dryRun" } else { "" }));
        }
        let (event_type, id) = (given.event_type.as_ref()?, given.id.as_ref()?);
        Some(format!("{event_type}/{id}"))
    }

    pub(crate) fn tenant(&self) -> Option<String> {
        self.0.get()?.tenant.clone()
    }
}

#[cfg(test)]
mod tests {
    use stepwell_engine::store::{AuditFilter, AuditLog as _, MemoryStore};

    use super::*;

    #[test]
    fn rows_are_written_before_the_writer_ends() {
        let store: Arc<MemoryStore> = Arc::new(MemoryStore::with_secret([0; 32]));
        let writer = TrailWriter::start(store.clone()).unwrap();
        let trail = writer.trail();
        for _ in 0..3 {
            let row = Entry::Row(Box::default());
            trail.0.blocking_send(row).unwrap();
        }
        writer.stop();
        let filter = AuditFilter {
            limit: 10,
            ..AuditFilter::default()
        };
        assert_eq!(store.audit_rows(&filter).unwrap().len(), 3);
    }

    #[test]
    fn a_reason_is_found_where_there_is_one() {
        let of = |body: &str| {
            let given = GivenReason::default();
            given.look(body.as_bytes());
            given.get()
        };
        assert_eq!(of(r#"{"a":1,"reason":"late"}"#).as_deref(), Some("late"));
        assert_eq!(of(r#"{"reason":7}"#), None);
        let given = GivenReason::default();
        given.look(br#"{"tenant":"acme"}"#);
        assert_eq!(
            (given.get(), given.tenant().as_deref()),
            (None, Some("acme"))
        );
        assert_eq!(of("{"), None);
    }
}
