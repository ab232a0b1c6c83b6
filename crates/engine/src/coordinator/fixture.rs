//! For the tests of the parts: a plan whose steps are beside each other, each with a queue of its own name,
//! and runs of it in a memory store.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_kernel::effect::Target;
use stepwell_kernel::plan::{
    Dialect, Net, Plan, RunPolicy, SourceRef, Step, StepNo, StepRef, Work,
};
use stepwell_kernel::time::Time;

use super::{Config, Coordinator, HotRun, Ticket};
use crate::port::NoCatalog;
use crate::start::StartRequest;
use crate::store::{MemoryStore, RunNo, Store};

/// Steps beside each other.
pub(super) fn plan(steps: &[&str]) -> Arc<Plan> {
    let step = |name: &&str| {
        let work = Work::Task {
            queue: (*name).to_owned(),
            operation: "do".into(),
            config: Json::Null,
        };
        Step::new(*name, work)
    };
    let net = Net {
        dialect: Dialect::Plan,
        plan_id: "parts".into(),
        plan_version: "1".into(),
        schema_version: "v1.2".into(),
        source: SourceRef::default(),
        workload: Json::Null,
        edges: Vec::new(),
        steps: steps.iter().map(step).collect(),
        policy: RunPolicy::default(),
        library: BTreeMap::new(),
        extra: Json::Null,
    };
    Arc::new(Plan::new(net).unwrap())
}

/// A run that is only in memory.
pub(super) fn hot(run: i64, steps: &[&str]) -> HotRun {
    HotRun::new(RunNo(run), &format!("run_{run}"), plan(steps))
}

pub(super) fn target(step: u32) -> Target {
    Target::Step(StepRef::first(StepNo(step)))
}

/// A store with runs `run_0`, `run_1`, … that have started and whose work is offered to others.
pub(crate) fn store_with(runs: usize) -> (Arc<dyn Store>, Vec<RunNo>) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let catalog = Box::new(NoCatalog);
    let now = Time(1_000);
    let mut coordinator =
        Coordinator::open(store.clone(), catalog, Config::default(), now).unwrap();
    let plan = plan(&["a"]);
    for no in 0..runs {
        let request = StartRequest {
            run_id: format!("run_{no}"),
            ..StartRequest::default()
        };
        coordinator.start(&plan, request, true, Ticket(no as u64), now);
    }
    commit_all(&mut coordinator, now);
    let find = |no| store.find(&format!("run_{no}")).unwrap().unwrap();
    let runs = (0..runs).map(find).collect();
    (store, runs)
}

pub(super) fn commit_all(coordinator: &mut Coordinator, now: Time) {
    while let Some(batch) = coordinator.next_batch(now) {
        let results = coordinator.store().commit(&batch).unwrap();
        coordinator.committed(&batch, results, now);
    }
}
