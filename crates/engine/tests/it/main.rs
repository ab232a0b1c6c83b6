//! One binary for all tests of this crate.
#![allow(clippy::unwrap_used)]

mod children;
mod chunk;
mod conformance;
mod definitions;
mod port_docs;
mod queues;
mod refused;
mod routes;
mod service;
mod slots;
mod store_away;
mod stores;
mod virtual_time;

use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_engine::Engine;
use stepwell_engine::StartRequest;
use stepwell_engine::clock::VirtualClock;
use stepwell_engine::coordinator::Config;
use stepwell_engine::engine::Collector;
use stepwell_engine::mock::Mock;
use stepwell_engine::port::{Catalog, NoCatalog};
use stepwell_engine::service::Setup;
use stepwell_engine::store::{MemoryStore, Store};
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::{Dialect, Edge, Net, Plan, RunPolicy, SourceRef, Step, StepNo, Work};
use stepwell_kernel::time::Time;

/// Start time of the tests: 2026-02-11T10:30:00.000Z
const START: Time = Time(1_770_805_800_000);

type MemoryEngine = Engine<Collector>;

fn task(name: &str) -> Step {
    let work = Work::Task {
        queue: "default".into(),
        operation: name.into(),
        config: Json::Null,
    };
    Step::new(name, work)
}

/// Steps one after the other.
fn chain(steps: Vec<Step>) -> Net {
    let edges = (1..steps.len() as u32).map(|to| Edge::plain(StepNo(to - 1), StepNo(to)));
    Net {
        dialect: Dialect::Plan,
        plan_id: "plan_engine".into(),
        plan_version: "1".into(),
        schema_version: "v1.2".into(),
        source: SourceRef::default(),
        workload: Json::Null,
        edges: edges.collect(),
        steps,
        policy: RunPolicy::default(),
        library: std::collections::BTreeMap::new(),
        extra: Json::Null,
    }
}

fn plan(net: Net) -> Arc<Plan> {
    Arc::new(Plan::new(net).expect("the test's net is a plan"))
}

/// Everything is looked for at once, and time stands still.
fn config() -> Config {
    Config {
        poll_ms: 0,
        session_ms: 1_000_000_000,
        ..Config::default()
    }
}

fn engine_on(store: Arc<dyn Store>, catalog: impl Catalog + Send + 'static) -> MemoryEngine {
    let setup = Setup {
        catalog: Box::new(catalog),
        config: config(),
        clock: Arc::new(VirtualClock::at(START)),
        ..Setup::new(store, Collector::default())
    };
    Engine::new(setup).expect("the store is there")
}

fn engine_with(catalog: impl Catalog + Send + 'static) -> MemoryEngine {
    engine_on(Arc::new(MemoryStore::default()), catalog)
}

fn engine() -> MemoryEngine {
    engine_with(NoCatalog)
}

fn request(run_id: &str) -> StartRequest {
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

/// Pretends all work until nothing can happen any more.
fn run_to_the_end(mut engine: MemoryEngine, work_ms: u64) -> MemoryEngine {
    let config = Config {
        // The runs may have begun before.
        engine_type: engine.config().engine_type,
        ..Mock::configure(engine.config().clone())
    };
    let capacity = config.capacity;
    *engine.config() = config;
    let mock = Mock::new(engine.store().clone(), engine.clock().clone());
    let mut mock = mock.expect("the store is there");
    mock.work_ms = work_ms;
    let mut engine = engine.with_worker(mock);
    engine
        .serve_everything(capacity)
        .expect("the store is there");
    engine.run_to_end().expect("the mock runs");
    engine.with_worker(Collector::default())
}

/// The log for people: one line an event, its type and its step.
fn log(engine: &MemoryEngine, run_id: &str) -> String {
    let plan = &engine.run(run_id).expect("the run exists").plan();
    let line = |event: &stepwell_kernel::event::Event| match event.body.step() {
        Some(at) => format!("{} {}\n", event.body.kind(), plan.step_id(at)),
        None => format!("{}\n", event.body.kind()),
    };
    engine.events(run_id, 0).unwrap().iter().map(line).collect()
}
