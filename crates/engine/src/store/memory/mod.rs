//! The memory store: every promise of the port but durability. It is the oracle that the durable
//! stores are compared with, so it is written to be obviously right, not to be fast.

mod commit;
#[cfg(feature = "suite")]
mod dump;
mod mailbox;
mod outbox;
mod ownership;
mod tasks;

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use super::{
    AlertRow, AppendResult, Batch, Capabilities, CommitId, Commits, DeadLetter, Head, Health,
    LinearInstance, LinearStep, Maintenance, MarkerState, MessageNo, NewAlert, NewRun,
    OutsideEvent, PlanNo, PlanRow, Plans, Result, RunFilter, RunNo, RunReader, RunSummary,
    SessionNo, StateSnapshot, Store, StoreError, StoreErrorKind, StoredChunk, StoredMessage,
    StoredRun, TaskRow,
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

    /// The rows of a linear run, which databases show as the views `workflow_instance` and
    /// `workflow_step`.
    pub fn linear(&self, run_id: &str) -> Option<(LinearInstance, Vec<LinearStep>)> {
        let tables = self.tables();
        let run = tables.runs.get(tables.ids.get(run_id)?)?;
        let steps = run.steps.values().cloned().collect();
        Some((run.instance.clone()?, steps))
    }
}

/// All rows. Under one lock, so that every call is one transaction.
#[derive(Debug, Default)]
struct Tables {
    plans: Vec<PlanRow>,
    last_number: i64,
    runs: BTreeMap<RunNo, Run>,
    ids: HashMap<String, RunNo>,
    requests: HashMap<String, RunNo>,
    last_session: i64,
    sessions: BTreeMap<SessionNo, Session>,
    inbox: HashMap<String, Kept>,
    last_mail: i64,
    mail: BTreeMap<MessageNo, MailRow>,
    outbox: BTreeMap<(String, RunNo, u64), MarkerState>,
    last_letter: i64,
    letters: BTreeMap<i64, DeadLetter>,
    slots: BTreeMap<String, u32>,
    alerts: Vec<AlertRow>,
    secret: Option<[u8; 32]>,
}

/// A run and the rows that belong to it.
#[derive(Debug)]
struct Run {
    row: NewRun,
    plan: PlanNo,
    head: Head,
    version: i64,
    /// Who wrote the head last.
    head_commit: CommitId,
    /// When it is offered as due: `wake_at`, or later if it has been offered.
    due_at: Option<Time>,
    chunks: BTreeMap<u64, StoredChunk>,
    keys: HashSet<Vec<u8>>,
    tasks: BTreeMap<String, TaskRow>,
    waits: BTreeMap<String, Wait>,
    instance: Option<LinearInstance>,
    steps: BTreeMap<u32, LinearStep>,
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
    /// Only shown.
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
    /// It has its event as mail; no second one until it waits again.
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
            no: self.alerts.len() as i64 + 1,
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

    fn summary(&self, no: RunNo, run: &Run) -> RunSummary {
        let plan = self.plan(run.plan);
        RunSummary {
            run: no,
            run_id: run.row.run_id.clone(),
            plan_id: plan.map_or_else(String::new, |it| it.plan_id.clone()),
            plan_version: plan.map_or_else(String::new, |it| it.version.clone()),
            tenant: run.row.tenant.clone(),
            created_at: run.row.created_at,
            head: run.head.clone(),
            last_seq: run.last_seq(),
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
            run: no,
            run_id: run.row.run_id.clone(),
            plan: run.plan,
            event_key: run.row.event_key.clone(),
            head: run.head.clone(),
            head_version: run.version,
            snapshot: run.snapshot.clone(),
            chunks: chunks.cloned().collect(),
            tasks: run.tasks.values().cloned().collect(),
            mail: tables.mail_where(|row| row.run == no).collect(),
            waits: run.waits.keys().cloned().collect(),
        }))
    }

    fn chunks(&self, run: RunNo, after: u64, limit: usize) -> Result<Vec<StoredChunk>> {
        let tables = self.tables();
        let chunks = tables.runs.get(&run).into_iter();
        let chunks = chunks.flat_map(|run| run.chunks.values());
        let later = chunks.filter(|it| it.last > after).take(limit);
        Ok(later.cloned().collect())
    }

    fn list(&self, filter: &RunFilter) -> Result<Vec<RunSummary>> {
        let tables = self.tables();
        let all = tables.runs.iter().rev();
        let all = all.map(|(no, run)| tables.summary(*no, run));
        let found = all.filter(|run| {
            let says =
                |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|it| it == is);
            says(&filter.status, &run.head.status)
                && says(&filter.plan_id, &run.plan_id)
                && says(&filter.tenant, &run.tenant)
                && (!filter.open || run.head.ended_at.is_none())
                && filter.before.is_none_or(|before| run.run < before)
        });
        Ok(found.take(filter.limit).collect())
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
        // The standard library's hash keys come from the system's random source; for tokens that die
        // with this process that is enough.
        let make = || {
            let mut secret = [0; 32];
            for (index, part) in secret.chunks_mut(8).enumerate() {
                part.copy_from_slice(&RandomState::new().hash_one(index).to_le_bytes());
            }
            secret
        };
        Ok(*self.tables().secret.get_or_insert_with(make))
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
