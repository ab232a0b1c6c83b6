//! Work that ends while the store is away, for a run that had to be forgotten and cannot be read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value as Json;
use stepwell_engine::StartRequest;
use stepwell_engine::coordinator::{
    Assignment, Config, Coordinator, Notice, Retry, Serves, Ticket,
};
use stepwell_engine::port::NoCatalog;
use stepwell_engine::store::{Commits as _, RunFilter, RunReader as _, StoreError, StoreErrorKind};
use stepwell_kernel::command::Command;
use stepwell_kernel::event::Patch;
use stepwell_kernel::plan::{
    Backoff, Dialect, ErrorClass, Net, Plan, RetryPolicy, RunPolicy, SourceRef, Step, Work,
};
use stepwell_kernel::time::Time;
use stepwell_stores::sqlite::SqliteStore;

use crate::faulty::Torn;
use crate::place::Place;
use crate::sqlite::quick;

/// Two steps at the same time.
fn plan() -> Arc<Plan> {
    let step = |name: &str| {
        let work = Work::Task {
            queue: "default".into(),
            operation: "op".into(),
            config: Json::Null,
        };
        Step {
            retry: RetryPolicy {
                max_executions: 10,
                backoff: Backoff::none(),
                classes: vec![ErrorClass::Timeout],
            },
            ..Step::new(name, work)
        }
    };
    let net = Net {
        dialect: Dialect::Plan,
        plan_id: "parked".into(),
        plan_version: "1".into(),
        schema_version: "v1.2".into(),
        source: SourceRef::default(),
        workload: Json::Null,
        edges: Vec::new(),
        steps: vec![step("one"), step("two")],
        policy: RunPolicy::default(),
        library: std::collections::BTreeMap::new(),
        extra: Json::Null,
    };
    Arc::new(Plan::new(net).unwrap())
}

fn jobs(coordinator: &mut Coordinator) -> Vec<Assignment> {
    let jobs = coordinator.notices().filter_map(|notice| match notice {
        Notice::Start(job) => Some(*job),
        _ => None,
    });
    jobs.collect()
}

fn finish(coordinator: &mut Coordinator, job: &Assignment, now: Time) {
    let claim = job.claimed.claim.clone();
    let (target, execution) = (claim.target, claim.execution);
    let command = Command::CompleteStep {
        claim,
        output: Json::Null,
        ctx: Patch::new(),
        artifacts: Vec::new(),
    };
    coordinator.finished(job.run, target, execution, command, now);
}

fn commit_all(coordinator: &mut Coordinator, store: &Torn, now: Time) {
    while let Some(batch) = coordinator.next_batch(now) {
        let outcomes = store.commit(&batch).unwrap();
        coordinator.committed(&batch, outcomes, now);
    }
}

#[test]
fn a_result_is_not_lost_because_its_run_cannot_be_read() {
    let place = Place::new();
    let inner = SqliteStore::open(place.at("s.db"), quick()).unwrap();
    let store = Arc::new(Torn::new(Arc::new(inner)));
    let config = Config {
        serves: Serves::Everything,
        session_ms: 1_000_000,
        ..Config::default()
    };
    let mut coordinator =
        Coordinator::open(store.clone(), Box::new(NoCatalog), config, Time(1_000)).unwrap();
    let request = StartRequest {
        run_id: "run_1".into(),
        ..StartRequest::default()
    };
    coordinator.start(&plan(), request, true, Ticket(1), Time(1_000));
    commit_all(&mut coordinator, &store, Time(1_000));
    let both = jobs(&mut coordinator);
    assert_eq!(both.len(), 2);
    finish(&mut coordinator, &both[0], Time(1_001));
    let batch = coordinator.next_batch(Time(1_001)).unwrap();
    store.down.store(true, Ordering::Relaxed);
    let away = StoreError::new(StoreErrorKind::Unavailable, "nobody is there");
    assert_eq!(coordinator.failed(&batch, &away, Time(9_000)), Retry::Never);
    finish(&mut coordinator, &both[1], Time(9_001));
    store.down.store(false, Ordering::Relaxed);
    coordinator.tick(Time(9_500)).unwrap();
    commit_all(&mut coordinator, &store, Time(9_500));
    // The first took too long to be written and is done once more; the second is not.
    let again = jobs(&mut coordinator);
    assert_eq!(again.len(), 1, "{again:?}");
    assert_eq!(again[0].claimed.claim.target, both[0].claimed.claim.target);
    finish(&mut coordinator, &again[0], Time(9_501));
    commit_all(&mut coordinator, &store, Time(9_501));
    let filter = RunFilter {
        limit: 1,
        ..RunFilter::default()
    };
    let run = store.list(&filter).unwrap().remove(0);
    assert_eq!(run.head.status, "COMPLETED");
    assert_eq!(coordinator.busy(), 0);
}
