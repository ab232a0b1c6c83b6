//! An engine over the memory store with a clock that stands still, and definitions by name.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use stepwell_dialects::problem::render;
use stepwell_dialects::{Source, load};
use stepwell_engine::port::Catalog;
use stepwell_engine::store::{MemoryStore, Store};
use stepwell_engine::{Error, StartRequest};
use stepwell_kernel::command::{Actor, Command, Reply, Role};
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::Phase;
use stepwell_kernel::time::Time;

pub(crate) const START: Time = Time(1_770_805_800_000);

/// Definitions that are found by their name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named(pub(crate) Vec<(&'static str, Arc<Plan>)>);

impl Catalog for Named {
    fn find(&self, _: &Plan, path: &str) -> Option<Arc<Plan>> {
        let found = self.0.iter().find(|(name, _)| *name == path);
        found.map(|(_, plan)| plan.clone())
    }
}

pub(crate) type Test = crate::MemoryEngine;

/// The plan of a definition in any language.
#[track_caller]
pub(crate) fn plan(text: &str) -> Arc<Plan> {
    let source = Source::from_bytes("t.yaml", text.as_bytes()).expect("small UTF-8 text");
    let loaded = load(&source);
    let shown = render(&source, &loaded.problems, false);
    Arc::new(loaded.plan.unwrap_or_else(|| panic!("{shown}")))
}

pub(crate) fn engine(catalog: Named) -> Test {
    engine_on(Arc::new(MemoryStore::default()), catalog)
}

pub(crate) fn engine_on(store: Arc<dyn Store>, catalog: Named) -> Test {
    crate::engine_on(store, catalog)
}

pub(crate) fn trigger(engine: &mut Test, plan: &Arc<Plan>, run_id: &str) {
    let request = StartRequest {
        run_id: run_id.into(),
        params: json!({}),
        context: RunContext {
            tenant_id: "tenant".into(),
            project_id: "project".into(),
            environment_id: "test".into(),
            ..RunContext::default()
        },
        ..StartRequest::default()
    };
    engine.trigger(plan, request).unwrap();
}

pub(crate) fn phase(engine: &Test, run_id: &str) -> Phase {
    engine
        .run(run_id)
        .expect("the run is known")
        .state()
        .phase()
}

/// Claims a step and completes it.
#[track_caller]
pub(crate) fn run(engine: &mut Test, run_id: &str, step: &str, output: Json) {
    let at = engine.run(run_id).unwrap().plan().parse_step_id(step);
    let claim = Command::ClaimStep {
        target: Target::Step(at.unwrap()),
        worker: "worker".into(),
        lease_until: START.plus(60_000),
    };
    let Reply::Claimed(claimed) = engine.submit(run_id, claim).unwrap() else {
        panic!("it was not claimed");
    };
    let complete = Command::CompleteStep {
        claim: claimed.claim,
        output,
        ctx: Default::default(),
        artifacts: Vec::new(),
    };
    engine.submit(run_id, complete).unwrap();
}

pub(crate) fn cancel(engine: &mut Test, run_id: &str) -> Result<Reply, Error> {
    let actor = admin();
    let reason = None;
    let compensate = false;
    let cancel = Command::CancelRun {
        actor,
        reason,
        compensate,
        keep_undo: false,
    };
    engine.submit(run_id, cancel)
}

pub(crate) fn signal(engine: &mut Test, run_id: &str, id: &str, signal: &str) -> Reply {
    let command = Command::Signal {
        signal_id: id.into(),
        signal: signal.into(),
        payload: json!({}),
        reason: None,
        actor: admin(),
    };
    engine.submit(run_id, command).unwrap()
}

fn admin() -> Actor {
    Actor {
        id: "admin".into(),
        role: Role::Admin,
        tenant: None,
        may_answer: true,
    }
}
