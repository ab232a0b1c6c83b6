//! The memory store: every promise of the port but durability. It is the oracle that the durable
//! stores are compared with, so it is written to be obviously right, not to be fast.

mod change_feed;
mod commit;
#[cfg(feature = "suite")]
mod dump;
mod installation;
mod mailbox;
mod outbox;
mod ownership;
mod retention;
mod run_list;
mod tasks;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use crate::random;

use super::{
    AlertRow, AppendResult, AuditRow, Batch, Capabilities, CommitId, Commits, DeadLetter,
    DerivedRows, FoundRuns, Head, Health, KeptRows, Maintenance, MarkerState, MessageNo, NewAlert,
    NewRun, OutsideEvent, PlanNo, PlanRow, Plans, Result, RunColumns, RunCounts, RunFilter, RunNo,
    RunReader, SessionNo, SinkRow, StateSnapshot, Store, StoreError, StoreErrorKind, StoredChunk,
    StoredDocument, StoredMessage, StoredRun, TaskRow, UniqueKey, ViewRow, WaitingCounts,
};

/// A store that lives in this process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    tables: Mutex<Tables>,
}

impl MemoryStore {
    /// A store whose secret is known: the same commands at the same times give the same log.
    #[must_use]
    pub fn with_secret(secret: [u8; 32]) -> MemoryStore {
        let store = MemoryStore::default();
        store.tables().secret = Some(secret);
        store
    }

    /// A run as `load` reads it, without its snapshot and its log: for the simulator, which looks at the rows of all runs
    /// after every step.
    #[cfg(feature = "stepped")]
    #[must_use]
    pub fn load_rows(&self, run: RunNo) -> Option<StoredRun> {
        let tables = self.tables();
        let found = tables.runs.get(&run);
        found.map(|it| tables.stored_rows(run, it))
    }

    /// The rows of a run that databases show as views of its language, by view and place.
    pub fn view_rows(&self, run_id: &str) -> Vec<ViewRow> {
        let tables = self.tables();
        let run = tables.ids.get(run_id).and_then(|no| tables.runs.get(no));
        let rows = run.into_iter().flat_map(|run| &run.view_rows);
        let row = |((view, row_no), body): (&(&'static str, u32), &String)| ViewRow {
            view,
            row_no: *row_no,
            body: body.clone(),
        };
        rows.map(row).collect()
    }
}

/// All rows. Under one lock, so that every call is one transaction.
#[derive(Debug, Default)]
struct Tables {
    plans: Vec<PlanRow>,
    /// The languages of the plans, in the order of their numbers.
    languages: Vec<String>,
    last_number: i64,
    runs: BTreeMap<RunNo, Run>,
    ids: HashMap<String, RunNo>,
    requests: HashMap<String, RunNo>,
    unique_keys: BTreeMap<UniqueKey, RunNo>,
    last_session: i64,
    sessions: BTreeMap<SessionNo, Session>,
    /// By tenant and id.
    inbox: HashMap<(String, String), Kept>,
    last_mail: i64,
    mail: BTreeMap<MessageNo, MailRow>,
    outbox: BTreeMap<(String, RunNo, u64), MarkerState>,
    /// The sinks that get every chunk, by name.
    sinks: BTreeMap<String, SinkRow>,
    last_letter: i64,
    letters: BTreeMap<i64, DeadLetter>,
    slots: BTreeMap<String, u32>,
    alerts: Vec<AlertRow>,
    secret: Option<[u8; 32]>,
    quarantine: BTreeMap<RunNo, String>,
    scrubbed: Option<RunNo>,
    /// By kind, tenant and key.
    documents: BTreeMap<(String, String, String), StoredDocument>,
    changes: change_feed::Changes,
    last_audit: i64,
    audit: BTreeMap<i64, AuditRow>,
}

/// A run and the rows that belong to it.
#[derive(Debug)]
struct Run {
    row: NewRun,
    plan: PlanNo,
    head: Head,
    version: i64,
    /// The commit that wrote the head last.
    head_commit: CommitId,
    /// When it is offered as due: `wake_at`, or later if it has been offered.
    due_at: Option<Time>,
    chunks: BTreeMap<u64, StoredChunk>,
    keys: HashSet<Vec<u8>>,
    tasks: BTreeMap<String, TaskRow>,
    waits: BTreeMap<String, Wait>,
    view_rows: BTreeMap<(&'static str, u32), String>,
    snapshot: Option<StateSnapshot>,
    projection: Option<(u64, String)>,
}

impl Run {
    fn last_seq(&self) -> u64 {
        self.chunks.values().next_back().map_or(0, |it| it.last)
    }
}

#[derive(Debug)]
struct Session {
    /// Needed only for dumps.
    #[cfg(feature = "suite")]
    name: String,
    until: Time,
    dead: bool,
}

/// A step that waits for an event.
#[derive(Debug)]
struct Wait {
    event_type: String,
    since: Time,
    /// The event is in the mailbox; the step gets no second event until it waits again.
    given: bool,
}

/// An event from outside; those that were given stay so that their id counts once.
#[derive(Debug)]
struct Kept {
    event: OutsideEvent,
    since: Time,
    given: bool,
}

#[derive(Debug)]
struct MailRow {
    run: RunNo,
    body: String,
    answer: Option<String>,
}

impl MemoryStore {
    /// A panic elsewhere does not make the rows wrong: every change is decided before it is made.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn run_id(&self, run: RunNo) -> String {
        self.runs
            .get(&run)
            .map_or_else(String::new, |it| it.row.run_id.clone())
    }

    fn post(&mut self, run: RunNo, body: &str) -> MessageNo {
        self.last_mail += 1;
        let no = MessageNo(self.last_mail);
        if self.runs.contains_key(&run) {
            let row = MailRow {
                run,
                body: body.into(),
                answer: None,
            };
            self.mail.insert(no, row);
        }
        no
    }

    fn mail_where(&self, wanted: impl Fn(&MailRow) -> bool) -> impl Iterator<Item = StoredMessage> {
        let open = self.mail.iter();
        let open = open.filter(move |(_, row)| row.answer.is_none() && wanted(row));
        open.map(|(no, row)| StoredMessage {
            no: *no,
            run: row.run,
            body: row.body.clone(),
        })
    }

    fn raise(&mut self, run: Option<RunNo>, alert: &NewAlert, at: Time) {
        let row = AlertRow {
            no: self.alerts.last().map_or(0, |it| it.no) + 1,
            run_id: run.map(|run| self.run_id(run)),
            code: alert.code.clone(),
            priority: alert.priority,
            message: alert.message.clone(),
            at,
        };
        self.alerts.push(row);
    }

    fn plan(&self, no: PlanNo) -> Option<&PlanRow> {
        let index = usize::try_from(no.0).ok()?.checked_sub(1)?;
        self.plans.get(index)
    }

    /// A run without its log.
    fn stored_rows(&self, no: RunNo, run: &Run) -> StoredRun {
        StoredRun {
            run: no,
            run_id: run.row.run_id.clone(),
            plan: run.plan,
            event_key: run.row.event_key.clone(),
            head: run.head.clone(),
            head_version: run.version,
            snapshot: None,
            chunks: Vec::new(),
            tasks: run.tasks.values().cloned().collect(),
            mail: self.mail_where(|row| row.run == no).collect(),
            waits: run.waits.keys().cloned().collect(),
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for run in self.runs.values() {
            let id = &run.row.run_id;
            let mut last = 0;
            for chunk in run.chunks.values() {
                if chunk.first != last + 1 || chunk.last < chunk.first {
                    problems.push(format!("run {id}: the log has a gap after event {last}"));
                }
                last = chunk.last;
            }
            if run.snapshot.as_ref().is_some_and(|it| it.seq > last) {
                problems.push(format!("run {id}: its snapshot is ahead of its log"));
            }
        }
        problems
    }
}

impl Commits for MemoryStore {
    fn commit(&self, batch: &Batch) -> Result<Vec<AppendResult>> {
        Ok(self.tables().commit(batch))
    }

    fn reserve_numbers(&self, count: u32) -> Result<Range<i64>> {
        let mut tables = self.tables();
        let first = tables.last_number + 1;
        tables.last_number += i64::from(count);
        Ok(first..tables.last_number + 1)
    }
}

impl Plans for MemoryStore {
    fn put_plan(&self, plan: &Plan) -> Result<PlanNo> {
        let mut tables = self.tables();
        if let Some(row) = tables.plans.iter().find(|row| row.hash == plan.hash()) {
            return Ok(row.no);
        }
        let net = serde_json::to_string(plan.net())
            .map_err(|error| StoreError::new(StoreErrorKind::Internal, error))?;
        let no = PlanNo(tables.plans.len() as i64 + 1);
        tables.languages.push(run_list::language(&net));
        tables.plans.push(PlanRow {
            no,
            plan_id: plan.net().plan_id.clone(),
            version: plan.net().plan_version.clone(),
            hash: plan.hash().into(),
            net,
        });
        Ok(no)
    }

    fn plan(&self, no: PlanNo) -> Result<Option<PlanRow>> {
        Ok(self.tables().plan(no).cloned())
    }
}

impl RunReader for MemoryStore {
    fn find(&self, run_id: &str) -> Result<Option<RunNo>> {
        Ok(self.tables().ids.get(run_id).copied())
    }

    fn load(&self, no: RunNo) -> Result<Option<StoredRun>> {
        let tables = self.tables();
        let Some(run) = tables.runs.get(&no) else {
            return Ok(None);
        };
        // The chunk with the snapshot's last event comes along: its last hash is what the next links to.
        let from = run.snapshot.as_ref().map_or(0, |it| it.seq);
        let chunks = run.chunks.values().filter(|it| it.last >= from);
        Ok(Some(StoredRun {
            snapshot: run.snapshot.clone(),
            chunks: chunks.cloned().collect(),
            ..tables.stored_rows(no, run)
        }))
    }

    fn chunks(&self, run: RunNo, after: u64, limit: usize) -> Result<Vec<StoredChunk>> {
        let tables = self.tables();
        let Some(run) = tables.runs.get(&run) else {
            return Ok(Vec::new());
        };
        // Readers of a long run ask again after every commit: what they have is not looked at.
        let before = run.chunks.range(..=after.saturating_add(1)).next_back();
        let from = before.map_or(0, |(first, _)| *first);
        let chunks = run.chunks.range(from..).map(|(_, chunk)| chunk);
        let later = chunks.filter(|it| it.last > after).take(limit);
        Ok(later.cloned().collect())
    }

    fn search(&self, filter: &RunFilter) -> Result<FoundRuns> {
        Ok(self.tables().search(filter))
    }

    fn count_runs(&self, filter: &RunFilter) -> Result<RunCounts> {
        Ok(self.tables().count(filter))
    }

    fn asleep(&self, limit: usize) -> Result<Vec<String>> {
        let tables = self.tables();
        let asleep = tables.runs.iter().filter(|(no, run)| {
            let head = &run.head;
            let nobody = head.ended_at.is_none() && head.session.is_none();
            let no_time = head.wake_at.is_none() && !head.queued;
            let no_rows = run.tasks.is_empty() && run.waits.is_empty();
            nobody
                && no_time
                && no_rows
                && tables.mail_where(|row| row.run == **no).next().is_none()
        });
        let ids = asleep.map(|(_, run)| run.row.run_id.clone());
        Ok(ids.take(limit).collect())
    }
}

impl Maintenance for MemoryStore {
    fn secret(&self) -> Result<[u8; 32]> {
        let fresh = random::bytes()?;
        Ok(*self.tables().secret.get_or_insert(fresh))
    }

    fn check(&self) -> Result<Health> {
        let tables = self.tables();
        let open = tables.runs.values().filter(|it| it.head.ended_at.is_none());
        Ok(Health {
            schema: 0,
            runs: tables.runs.len() as u64,
            open: open.count() as u64,
            problems: tables.problems(),
        })
    }

    fn bytes(&self) -> Result<u64> {
        Ok(0)
    }

    fn waiting(&self, now: Time) -> Result<WaitingCounts> {
        let tables = self.tables();
        let count = |wanted: &dyn Fn(&TaskRow) -> bool| {
            let tasks = tables.runs.values().flat_map(|run| run.tasks.values());
            tasks.filter(|task| wanted(task)).count() as u64
        };
        let sessions = tables.sessions.values();
        Ok(WaitingCounts {
            queued: tables.runs.values().filter(|run| run.head.queued).count() as u64,
            offered: count(&|task| !task.leased && !task.stopping),
            leased: count(&|task| task.leased),
            outbox: tables.outbox.len() as u64,
            outbox_since: tables.outbox.values().map(|it| it.since).min(),
            dead_letters: tables.letters.len() as u64,
            sessions: sessions.filter(|it| !it.dead && it.until >= now).count() as u64,
        })
    }

    fn quarantine(&self, run: RunNo, why: &str, _: Time) -> Result<()> {
        let mut tables = self.tables();
        tables
            .quarantine
            .entry(run)
            .or_insert_with(|| why.to_owned());
        Ok(())
    }

    fn quarantined(&self) -> Result<Vec<(RunNo, String)>> {
        let tables = self.tables();
        let listed = tables
            .quarantine
            .iter()
            .map(|(run, why)| (*run, why.clone()));
        Ok(listed.collect())
    }

    fn release(&self, run: RunNo) -> Result<()> {
        self.tables().quarantine.remove(&run);
        Ok(())
    }

    fn scrubbed(&self) -> Result<Option<RunNo>> {
        Ok(self.tables().scrubbed)
    }

    fn set_scrubbed(&self, run: Option<RunNo>) -> Result<()> {
        self.tables().scrubbed = run;
        Ok(())
    }

    fn kept_rows(&self, no: RunNo) -> Result<Option<KeptRows>> {
        let tables = self.tables();
        let keys = tables.unique_keys.iter();
        let unique_keys = keys.filter(|(_, holder)| **holder == no);
        let unique_keys = unique_keys.map(|(key, _)| key.clone()).collect();
        let Some(run) = tables.runs.get(&no) else {
            return Ok(None);
        };
        let row = &run.row;
        let wait = |(step, wait): (&String, &Wait)| {
            (step.clone(), wait.event_type.clone(), row.event_key.clone())
        };
        let view = |(place, body): (&(&'static str, u32), &String)| {
            (place.0.to_owned(), i64::from(place.1), body.clone())
        };
        Ok(Some(KeptRows {
            columns: RunColumns {
                tenant: row.tenant.clone(),
                project: row.project.clone(),
                environment: row.environment.clone(),
                parent: row.parent.clone(),
                event_key: row.event_key.clone(),
                created_at: row.created_at,
                priority: row.priority,
                labels: row.labels.clone(),
            },
            head_tenant: row.tenant.clone(),
            due_at: run.due_at,
            keys: run.keys.iter().cloned().collect(),
            waits: run.waits.iter().map(wait).collect(),
            unique_keys,
            view_rows: run.view_rows.iter().map(view).collect(),
        }))
    }

    fn rebuild(&self, no: RunNo, rows: &DerivedRows, now: Time) -> Result<()> {
        let mut tables = self.tables();
        tables.unique_keys.retain(|_, holder| *holder != no);
        if let Some(key) = &rows.unique_key {
            tables.unique_keys.entry(key.clone()).or_insert(no);
        }
        let Some(run) = tables.runs.get_mut(&no) else {
            return Ok(());
        };
        let columns = rows.columns.clone();
        run.row.tenant = columns.tenant;
        run.row.project = columns.project;
        run.row.environment = columns.environment;
        run.row.parent = columns.parent;
        run.row.event_key = columns.event_key;
        run.row.created_at = columns.created_at;
        run.row.priority = columns.priority;
        run.row.labels = columns.labels;
        run.head = rows.head.clone();
        run.version += 1;
        run.due_at = run.head.wake_at;
        run.keys = rows.keys.iter().cloned().collect();
        run.waits.retain(|step, wait| {
            let fits = |(name, event_type): &(String, String)| {
                name == step && *event_type == wait.event_type
            };
            rows.waits.iter().any(fits)
        });
        for (step, event_type) in &rows.waits {
            run.waits.entry(step.clone()).or_insert_with(|| Wait {
                event_type: event_type.clone(),
                since: now,
                given: false,
            });
        }
        let kept = rows.view_rows.iter();
        run.view_rows = kept
            .map(|row| ((row.view, row.row_no), row.body.clone()))
            .collect();
        run.snapshot = None;
        Ok(())
    }
}

impl Store for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            shared: false,
            durable: false,
            concurrent_commits: 1,
        }
    }
}
