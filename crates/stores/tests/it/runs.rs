//! Runs on each store, driven by the engine in line with pretended work.

use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_engine::chunk::contract_events;
use stepwell_engine::clock::VirtualClock;
use stepwell_engine::coordinator::Config;
use stepwell_engine::mock::Mock;
use stepwell_engine::service::Setup;
use stepwell_engine::store::{MemoryStore, RunNo, Store};
use stepwell_engine::{Engine, StartRequest};
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::{Dialect, Edge, Net, Plan, RunPolicy, SourceRef, Step, StepNo, Work};
use stepwell_kernel::time::Time;
use stepwell_stores::sqlite::SqliteStore;

use crate::place::Place;
use crate::server;
use crate::sqlite::quick;

/// Start time of the tests: 2026-02-11T10:30:00.000Z
pub(crate) const START: Time = Time(1_770_805_800_000);

pub(crate) type Pretended = Engine<Mock>;

/// Does something on each kind of store.
pub(crate) fn each(test: impl Fn(Arc<dyn Store>)) {
    test(Arc::new(MemoryStore::default()));
    let place = Place::new();
    let sqlite = SqliteStore::open(place.at("s.db"), quick()).unwrap();
    test(Arc::new(sqlite));
    test(Arc::new(server::fresh()));
}

/// Steps one after the other.
pub(crate) fn plan(steps: u32) -> Arc<Plan> {
    let task = |no: u32| {
        let work = Work::Task {
            queue: "default".into(),
            operation: "op".into(),
            config: Json::Null,
        };
        Step::new(format!("s{no}"), work)
    };
    let net = Net {
        dialect: Dialect::Plan,
        plan_id: "chain".into(),
        plan_version: "3".into(),
        schema_version: "v1.2".into(),
        source: SourceRef::default(),
        workload: Json::Null,
        edges: (1..steps)
            .map(|to| Edge::plain(StepNo(to - 1), StepNo(to)))
            .collect(),
        steps: (0..steps).map(task).collect(),
        policy: RunPolicy::default(),
        library: std::collections::BTreeMap::new(),
        extra: Json::Null,
    };
    Arc::new(Plan::new(net).unwrap())
}

/// An engine whose every commit is for these sinks.
pub(crate) fn engine(store: Arc<dyn Store>, sinks: &[&str]) -> Pretended {
    let config = Config {
        poll_ms: 0,
        session_ms: 1_000_000_000,
        sinks: sinks.iter().map(ToString::to_string).collect(),
        ..Config::default()
    };
    let clock = Arc::new(VirtualClock::at(START));
    let mut mock = Mock::new(store.clone(), clock.clone()).unwrap();
    mock.work_ms = 1;
    let setup = Setup {
        config: Mock::configure(config),
        clock,
        ..Setup::new(store, mock)
    };
    Engine::new(setup).unwrap()
}

pub(crate) fn request(run_id: &str) -> StartRequest {
    StartRequest {
        run_id: run_id.into(),
        context: RunContext {
            tenant_id: "tenant".into(),
            project_id: "project".into(),
            environment_id: "test".into(),
            ..RunContext::default()
        },
        ..StartRequest::default()
    }
}

/// Runs a run of so many steps to its end.
pub(crate) fn run(engine: &mut Pretended, run_id: &str, steps: u32) -> RunNo {
    engine.trigger(&plan(steps), request(run_id)).unwrap();
    engine.run_to_end().unwrap();
    let store = engine.store();
    let run = store.find(run_id).unwrap().unwrap();
    let head = store.load(run).unwrap().unwrap().head;
    assert_eq!(head.status, "COMPLETED");
    run
}

/// The contract's events of a run, by chunk.
pub(crate) fn chunks(store: &dyn Store, run_id: &str) -> Vec<Vec<Json>> {
    let run = store.find(run_id).unwrap().unwrap();
    let chunks = store.chunks(run, 0, usize::MAX).unwrap();
    let read = |it| contract_events(run_id, "3", it).unwrap();
    chunks.iter().map(read).collect()
}

pub(crate) fn events(store: &dyn Store, run_id: &str) -> Vec<Json> {
    chunks(store, run_id).concat()
}
