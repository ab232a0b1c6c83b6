//! Which work somebody does: this server itself, workers that ask this server for work, and those of the other servers of
//! the same store. Each server of a shared store keeps a note of its own there, so that every server can say what nobody
//! does. A note that its server has not renewed counts for nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stepwell_engine::coordinator::Serves;
use stepwell_engine::rows::BUILT_IN;
use stepwell_engine::store::{DocumentFilter, NewDocument, Store, StoreError, TaskRow};
use stepwell_kernel::time::Time;
use stepwell_views::RunView;
use stepwell_views::why::{self, WorkName};
use tokio::time::Instant;

use super::registry::Registry;
use crate::app::App;
use crate::problem::ApiProblem;

/// The kind of the documents that are notes.
const KIND: &str = "serving";
/// How often a server looks whether its note must change.
const LOOK: Duration = Duration::from_secs(2);
/// How often a note is renewed that does not change.
const RENEW: Duration = Duration::from_secs(15);
/// A note that was not renewed for so long counts for nothing, in milliseconds.
const OLD_MS: u64 = 60_000;
/// A note that was not renewed for so long is deleted by whoever sees it, in milliseconds.
const DEAD_MS: u64 = 10 * 60_000;
/// The most servers whose notes are read.
const MAX_NOTES: usize = 1_000;
/// The most leases that are looked at.
const MAX_LEASES: usize = 1_000;
/// The most kinds of work in a note; a server with more serves so much that a note of all of it helps nobody.
const MAX_PAIRS: usize = 2_000;

/// What one server knows to be served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// The server does the work of every queue by itself.
    #[serde(default)]
    everything: bool,
    serves: BTreeSet<NotedWork>,
}

/// Work that somebody does, of one tenant or of all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct NotedWork {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    queue: String,
    operation: String,
}

impl Note {
    fn has(&self, tenant: &str, work: &WorkName) -> bool {
        let is_it = |it: &NotedWork| {
            it.queue == work.queue
                && it.operation == work.operation
                && it.tenant.as_deref().is_none_or(|it| it == tenant)
        };
        self.everything || self.serves.iter().any(is_it)
    }
}

/// What this server does by itself, and the name of its note.
#[derive(Debug)]
pub(crate) struct Attendance {
    serves: Serves,
    key: String,
}

impl Attendance {
    pub(super) fn new(serves: Serves) -> Attendance {
        Attendance {
            serves,
            key: uuid::Uuid::now_v7().to_string(),
        }
    }

    /// What this server knows to be served now.
    fn note(&self, registry: &Registry, now: Time) -> Note {
        let (everything, own) = match &self.serves {
            Serves::Nothing => (false, Vec::new()),
            Serves::Everything => (true, Vec::new()),
            Serves::Only(pairs) => (false, pairs.iter().cloned().collect()),
        };
        let own = own.into_iter().map(|pair| (None, pair));
        let there = registry.there(now).into_iter();
        let others = there.flat_map(|worker| {
            let tenant = worker.tenant;
            let pairs = worker.serves.into_iter();
            pairs.map(move |pair| (tenant.clone(), pair))
        });
        let work = |(tenant, (queue, operation))| NotedWork {
            tenant,
            queue,
            operation,
        };
        Note {
            everything,
            serves: own.chain(others).map(work).take(MAX_PAIRS).collect(),
        }
    }

    /// The work that a run waits for and that nobody does, as far as the servers of the store know.
    pub(crate) async fn unserved(
        &self,
        app: &App,
        view: &RunView,
    ) -> Result<Vec<WorkName>, ApiProblem> {
        // Only the engine outside gives the work of tools to somebody: if it does not answer, nobody does that work.
        let lacks_engine = app.lacks_engine(view);
        let (mut unserved, mut wanted): (Vec<WorkName>, Vec<WorkName>) = why::work_needed(view)
            .into_iter()
            .partition(|it| lacks_engine && it.queue == BUILT_IN);
        wanted.retain(|it| !self.serves.has(&it.queue, &it.operation));
        let tenant = view.state.context().tenant_id.clone();
        let own = self.own(app);
        wanted.retain(|it| !own.note.has(&tenant, it));
        if !wanted.is_empty() {
            let others = app.ask(move |store| {
                let served = own.with_others(store)?;
                wanted.retain(|it| !served.has(&tenant, it));
                Ok::<_, StoreError>(wanted)
            });
            unserved.extend(others.await?);
        }
        Ok(unserved)
    }

    /// What this server knows to be served now, before others are asked.
    pub(crate) fn own(&self, app: &App) -> OwnNote {
        let now = app.now();
        OwnNote {
            note: self.note(&app.workers.registry, now),
            now,
        }
    }
}

/// What this server knows to be served at a moment.
pub(crate) struct OwnNote {
    note: Note,
    now: Time,
}

impl OwnNote {
    /// What all servers of the store know to be served.
    pub(crate) fn with_others(self, store: &dyn Store) -> Result<ServedWork, StoreError> {
        let OwnNote { note, now } = self;
        let mut all = vec![note];
        if store.is_shared() {
            let fresh = notes(store)?.into_iter();
            let fresh = fresh.filter(|(_, at)| at.plus(OLD_MS) >= now);
            all.extend(fresh.map(|(note, _)| note));
        }
        Ok(ServedWork {
            notes: all,
            // A worker that has no room does not ask for more, and is there all the same.
            leases: store.leases(None, None, MAX_LEASES)?,
            now,
        })
    }
}

/// The work that somebody does, as far as the servers of the store know.
pub(crate) struct ServedWork {
    notes: Vec<Note>,
    leases: Vec<TaskRow>,
    now: Time,
}

impl ServedWork {
    /// Whether somebody does this work for this tenant.
    pub(crate) fn has(&self, tenant: &str, work: &WorkName) -> bool {
        let leases = &mut self.leases.iter();
        self.notes.iter().any(|it| it.has(tenant, work))
            || leases.any(|task| is_of(task, tenant, work, self.now))
    }

    /// Whether somebody does this work for every tenant.
    pub(crate) fn has_for_all(&self, queue: &str, operation: &str) -> bool {
        let is_it =
            |it: &NotedWork| it.tenant.is_none() && it.queue == queue && it.operation == operation;
        let mut notes = self.notes.iter();
        notes.any(|it| it.everything || it.serves.iter().any(is_it))
    }
}

/// Whether a task that a worker has is work of this name, and the worker may get work of the tenant.
fn is_of(task: &TaskRow, tenant: &str, work: &WorkName, now: Time) -> bool {
    let worker = task.worker.as_deref().unwrap_or_default();
    // The name of a worker of one tenant begins with the tenant.
    let suits = match worker.rsplit_once('/') {
        Some((of, _)) => of == tenant,
        None => true,
    };
    let holds = task.until.is_some_and(|until| until >= now);
    suits && holds && task.queue == work.queue && task.op == work.operation
}

/// The notes of all servers, and when they were renewed. A note of a later version that cannot be read says nothing.
fn notes(store: &dyn Store) -> Result<Vec<(Note, Time)>, StoreError> {
    let kept = store.documents(&DocumentFilter {
        kind: KIND.to_owned(),
        limit: MAX_NOTES,
        ..DocumentFilter::default()
    })?;
    let read = kept
        .into_iter()
        .map(|it| Some((serde_json::from_str(&it.body).ok()?, it.changed_at)));
    Ok(read.flatten().collect())
}

/// Keeps the note of this server until the server stops. A store that only one process uses needs none.
pub(crate) async fn announce(app: Arc<App>) {
    if !app.store.is_shared() {
        return;
    }
    let mut written: Option<(Note, Instant)> = None;
    loop {
        let now = app.now();
        let note = app.workers.attendance.note(&app.workers.registry, now);
        let is_due = match &written {
            Some((last, at)) => *last != note || at.elapsed() >= RENEW,
            None => true,
        };
        if is_due {
            let (key, next) = (app.workers.attendance.key.clone(), note.clone());
            let put = app.ask(move |store| write(store, &key, &next, now)).await;
            match put {
                Ok(()) => written = Some((note, Instant::now())),
                // Said by who needs the store more; the next look tries again.
                Err(problem) => tracing::debug!(code = problem.code, "no note of served work"),
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = app.stopping.cancelled() => break,
        }
    }
    let key = app.workers.attendance.key.clone();
    let deleted = app.ask(move |store| delete(store, &key)).await;
    if let Err(problem) = deleted {
        tracing::debug!(code = problem.code, "the note of served work is left");
    }
}

/// Writes the note of a server, and deletes those of servers that are long gone.
fn write(store: &dyn Store, key: &str, note: &Note, now: Time) -> Result<(), StoreError> {
    let body = serde_json::to_string(note).unwrap_or_default();
    let new = NewDocument {
        kind: KIND.to_owned(),
        key: key.to_owned(),
        body,
        ..NewDocument::default()
    };
    let known = store.documents(&DocumentFilter {
        kind: KIND.to_owned(),
        limit: MAX_NOTES,
        ..DocumentFilter::default()
    })?;
    let own = known.iter().find(|it| it.key == key).map(|it| it.version);
    // Nobody else writes it.
    store.put_document(&new, own, now)?;
    for old in known {
        if old.key != key && old.changed_at.plus(DEAD_MS) < now {
            store.delete_document(KIND, &old.tenant, &old.key, old.version)?;
        }
    }
    Ok(())
}

fn delete(store: &dyn Store, key: &str) -> Result<(), StoreError> {
    if let Some(own) = store.document(KIND, "", key)? {
        store.delete_document(KIND, "", key, own.version)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::SeenWorker;

    fn work(queue: &str) -> WorkName {
        WorkName {
            queue: queue.to_owned(),
            operation: "o".to_owned(),
        }
    }

    #[test]
    fn a_worker_is_there_while_it_asks_and_a_while_longer() {
        let (registry, attendance) = (Registry::default(), Attendance::new(Serves::Nothing));
        let at = |seconds: i64| Time(seconds * 1_000);
        let has = |seconds, tenant: &str| {
            let note = attendance.note(&registry, at(seconds));
            note.has(tenant, &work("q"))
        };
        assert!(!has(0, "a"));
        let serves = vec![("q".to_owned(), "o".to_owned())];
        let of = Some("a".to_owned());
        registry.begins("a/w", SeenWorker::new("w".into(), of, serves, at(0)));
        assert!(has(1, "a") && !has(1, "b"), "only of its tenant");
        assert!(has(50, "a"), "its request is open");
        registry.ends("a/w", at(50));
        assert!(has(79, "a") && !has(81, "a"));
        registry.forget_worker("a/w");
        assert!(!has(60, "a"), "a worker that has drained is gone");
    }
}
