//! What the cases have in common: a fresh store with a plan, and short words for what goes into it.

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::Value as Json;
use stepwell_kernel::effect::Priority;
use stepwell_kernel::plan::{Dialect, Net, Plan, RunPolicy, SourceRef, Step, Work};
use stepwell_kernel::time::Time;

use super::Fresh;
use crate::store::{
    Append, AppendResult, Batch, Chunk, CommitId, Guard, Head, KeyChange, NewAlert, NewRun,
    OutsideEvent, PlanNo, RunNo, SessionNo, SlotChange, Store, StoredRun, TaskChange, UniqueKey,
    WaitChange,
};

/// A fresh store that knows one plan.
#[derive(Debug)]
pub struct Fixture {
    pub(super) store: Box<dyn Store>,
    pub(super) second: Option<Box<dyn Store>>,
    pub(super) plan: PlanNo,
    commits: AtomicI64,
}

/// The pretended time: so many milliseconds after 2026-02-11T10:30:00.000Z.
pub(super) fn at(millis: i64) -> Time {
    Time(1_770_805_800_000 + millis)
}

/// A plan of one step.
pub(super) fn plan(plan_id: &str) -> Plan {
    let work = Work::Task {
        queue: "default".into(),
        operation: "op".into(),
        config: Json::Null,
    };
    let net = Net {
        dialect: Dialect::Plan,
        plan_id: plan_id.into(),
        plan_version: "1".into(),
        schema_version: "v1.2".into(),
        source: SourceRef::default(),
        workload: Json::Null,
        edges: Vec::new(),
        steps: vec![Step::new("one", work)],
        policy: RunPolicy::default(),
        library: std::collections::BTreeMap::new(),
        extra: Json::Null,
    };
    Plan::new(net).unwrap()
}

/// Events `first..=last`; no two chunks with another first event share a key.
pub(super) fn chunk(first: u64, last: u64) -> Chunk {
    let seqs = || first..=last;
    let body: Vec<&str> = seqs().map(|_| r#"[0,{},{"type":"X"}]"#).collect();
    Chunk {
        first,
        last,
        codec: 1,
        body: format!("[{}]", body.join(",")),
        digests: seqs().flat_map(|seq| [seq as u8; 80]).collect(),
        keys: seqs()
            .map(|seq| format!("key|{seq}").into_bytes())
            .collect(),
    }
}

/// The head of a run that nobody has.
pub(super) fn running() -> Head {
    Head {
        status: "RUNNING".into(),
        ..Head::default()
    }
}

/// An append of one event, with a head.
pub(super) fn next(run: RunNo, after: u64) -> Append {
    Append {
        chunk: Some(chunk(after + 1, after + 1)),
        head: Some(running()),
        ..Append::new(run, after)
    }
}

/// A change of rows without events.
pub(super) fn rows(run: RunNo, after: u64, version: i64) -> Append {
    Append {
        head: Some(running()),
        head_version: Some(version),
        ..Append::new(run, after)
    }
}

/// Work, visible from `visible_at` on.
pub(super) fn put(target: &str, visible_at: Time) -> TaskChange {
    TaskChange::Put {
        target: target.into(),
        queue: "q".into(),
        op: "op".into(),
        priority: 0,
        visible_at,
    }
}

pub(super) fn lease(target: &str, worker: &str, until: Time) -> TaskChange {
    TaskChange::Lease {
        target: target.into(),
        worker: worker.into(),
        until,
    }
}

/// The worker has the task.
pub(super) fn has(target: &str, worker: &str) -> Guard {
    Guard::Lease {
        target: target.into(),
        worker: worker.into(),
    }
}

/// What `put` is served by.
pub(super) fn serves() -> Vec<(String, String)> {
    vec![("q".into(), "op".into())]
}

/// A step waits for `paid`.
pub(super) fn wait(step: &str) -> WaitChange {
    WaitChange::Put {
        step: step.into(),
        event_type: "paid".into(),
    }
}

/// An external event of the type `paid` without content.
pub(super) fn paid(id: &str, key: &str) -> OutsideEvent {
    OutsideEvent {
        tenant: "tenant".into(),
        id: id.into(),
        event_type: "paid".into(),
        key: key.into(),
        payload: "{}".into(),
        mail: format!("{{\"event\":\"{id}\"}}"),
    }
}

/// A change of slots.
pub(super) fn slot(key: &str, change: i32, limit: u32) -> SlotChange {
    SlotChange {
        key: key.into(),
        change,
        limit: Some(limit),
    }
}

fn unique(tenant: &str, key: &str) -> UniqueKey {
    UniqueKey {
        tenant: tenant.into(),
        key: key.into(),
    }
}

/// A key that only one open run of a tenant may have is taken.
pub(super) fn take(tenant: &str, key: &str) -> Option<Box<KeyChange>> {
    Some(Box::new(KeyChange::Take(unique(tenant, key))))
}

/// The change that frees a unique key.
pub(super) fn free(tenant: &str, key: &str) -> Option<Box<KeyChange>> {
    Some(Box::new(KeyChange::Free(unique(tenant, key))))
}

pub(super) fn alert(code: &str) -> NewAlert {
    NewAlert {
        code: code.into(),
        priority: Priority::P2,
        message: "look".into(),
    }
}

impl Fixture {
    /// A world around a fresh store.
    #[must_use]
    pub fn new(fresh: Fresh) -> Fixture {
        let no = fresh.store.put_plan(&plan("plan_suite")).unwrap();
        Fixture {
            store: fresh.store,
            second: fresh.second,
            plan: no,
            commits: AtomicI64::new(0),
        }
    }

    /// The number of a new run.
    pub(super) fn number(&self) -> RunNo {
        RunNo(self.store.reserve_numbers(1).unwrap().start)
    }

    /// The first append of a new run.
    pub(super) fn new_run(&self, run: RunNo, run_id: &str) -> Append {
        let new = NewRun {
            run_id: run_id.into(),
            plan: Some(self.plan),
            tenant: "tenant".into(),
            project: "project".into(),
            environment: "test".into(),
            event_key: run_id.into(),
            created_at: at(0),
            ..NewRun::default()
        };
        Append {
            create: Some(Box::new(new)),
            ..next(run, 0)
        }
    }

    /// A batch that was never sent before.
    pub(super) fn batch(&self, now: Time, appends: Vec<Append>) -> Batch {
        Batch {
            id: CommitId {
                session: 0,
                number: self.commits.fetch_add(1, Ordering::Relaxed) + 1,
            },
            session: None,
            now,
            appends,
        }
    }

    pub(super) fn send(&self, now: Time, appends: Vec<Append>) -> Vec<AppendResult> {
        self.store.commit(&self.batch(now, appends)).unwrap()
    }

    /// Commits one append at the beginning of time.
    pub(super) fn one(&self, append: Append) -> AppendResult {
        self.one_at(at(0), append)
    }

    pub(super) fn one_at(&self, now: Time, append: Append) -> AppendResult {
        self.send(now, vec![append]).remove(0)
    }

    /// Commits one append of a session.
    pub(super) fn one_of(&self, session: SessionNo, now: Time, append: Append) -> AppendResult {
        let batch = Batch {
            session: Some(session),
            ..self.batch(now, vec![append])
        };
        self.store.commit(&batch).unwrap().remove(0)
    }

    /// A run of one event.
    pub(super) fn run(&self, run_id: &str) -> RunNo {
        self.run_with(run_id, |_| {})
    }

    /// A run of one event, with what its first commit also says.
    pub(super) fn run_with(&self, run_id: &str, also: impl FnOnce(&mut Append)) -> RunNo {
        let run = self.number();
        let mut append = self.new_run(run, run_id);
        also(&mut append);
        assert_eq!(
            self.one(append),
            AppendResult::Committed,
            "creating {run_id}"
        );
        run
    }

    /// A run with a task that a worker has claimed until `until`.
    pub(super) fn leased(&self, run_id: &str, until: Time) -> RunNo {
        self.run_with(run_id, |append| {
            append.tasks = vec![put("t", at(0)), lease("t", "w", until)];
        })
    }

    pub(super) fn load(&self, run: RunNo) -> StoredRun {
        self.store.load(run).unwrap().unwrap()
    }

    pub(super) fn last_seq(&self, run: RunNo) -> u64 {
        self.load(run).chunks.last().map_or(0, |chunk| chunk.last)
    }

    /// What lies in a run's mailbox.
    pub(super) fn mail_of(&self, run: RunNo) -> Vec<String> {
        self.load(run).mail.into_iter().map(|it| it.body).collect()
    }
}
