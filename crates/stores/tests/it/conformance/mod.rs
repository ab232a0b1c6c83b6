//! The numbered statements that a store has a part in, and the engine's own rules, each on memory,
//! SQLite and PostgreSQL. `each_store` runs a test on all three; `Hand` is a coordinator driven by hand, so
//! that a test can look between any two commits, lose one, or let two coordinators race.

mod coordinators;
mod lab;
mod limits;
mod linear;
mod linear_races;
mod linear_results;
mod linear_waits;
mod log;
mod mailbox;
mod migrations;
mod ownership;
mod results;
mod sharing;
mod snapshots;
mod values;

use std::sync::Arc;

use serde_json::{Value as Json, json};
use stepwell_dialects::{Source, load};
use stepwell_engine::StartRequest;
use stepwell_engine::coordinator::{Config, Serves};
use stepwell_kernel::command::{Claim, Command};
use stepwell_kernel::event::{RunContext, StepError};
use stepwell_kernel::plan::{
    Dialect, Edge, ErrorClass, Net, Plan, RunPolicy, SourceRef, Step, StepNo, Work,
};
use stepwell_kernel::time::Time;

use lab::{Hand, Lab, each_store};

/// Start time of the tests: 2026-02-11T10:30:00.000Z
const START: Time = Time(1_770_805_800_000);

/// Work that may fail twice.
fn task(name: &str) -> Step {
    let work = Work::Task {
        queue: "default".into(),
        operation: name.into(),
        config: Json::Null,
    };
    let mut step = Step::new(name, work);
    step.retry.max_executions = 3;
    step.retry.classes = vec![ErrorClass::Unknown];
    step
}

fn net(steps: Vec<Step>, edges: Vec<Edge>) -> Net {
    Net {
        dialect: Dialect::Plan,
        plan_id: "plan_stores".into(),
        plan_version: "1".into(),
        schema_version: "v1.2".into(),
        source: SourceRef::default(),
        workload: Json::Null,
        edges,
        steps,
        policy: RunPolicy::default(),
        library: std::collections::BTreeMap::new(),
        extra: Json::Null,
    }
}

/// Steps one after the other.
fn chain(names: &[&str]) -> Arc<Plan> {
    let edges = (1..names.len() as u32).map(|to| Edge::plain(StepNo(to - 1), StepNo(to)));
    let steps = names.iter().map(|name| task(name)).collect();
    Arc::new(Plan::new(net(steps, edges.collect())).unwrap())
}

/// Steps beside each other.
fn beside(names: &[&str]) -> Arc<Plan> {
    let steps = names.iter().map(|name| task(name)).collect();
    Arc::new(Plan::new(net(steps, Vec::new())).unwrap())
}

/// The plan of a definition.
fn define(text: &str) -> Arc<Plan> {
    let source = Source::from_bytes("t.yaml", text.as_bytes()).unwrap();
    Arc::new(load(&source).plan.expect("the test's definition is one"))
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

/// Work is for others.
fn offers() -> Config {
    Config {
        poll_ms: 0,
        session_ms: 1_000_000_000,
        ..Config::default()
    }
}

/// Work is done in this process; a session lives for a quarter of a minute.
fn serves() -> Config {
    Config {
        serves: Serves::Everything,
        poll_ms: 0,
        session_ms: 15_000,
        ..Config::default()
    }
}

fn completed(claim: &Claim) -> Command {
    completed_with(claim, Json::Null)
}

fn completed_with(claim: &Claim, output: Json) -> Command {
    Command::CompleteStep {
        claim: claim.clone(),
        output,
        ctx: Default::default(),
        artifacts: Vec::new(),
    }
}

fn failed(claim: &Claim, message: &str, retryable: bool, delay_ms: u64) -> Command {
    Command::FailStep {
        claim: claim.clone(),
        error: StepError::new(ErrorClass::Unknown, "TEST", message),
        retryable: Some(retryable),
        delay_ms: Some(delay_ms),
        ctx: Default::default(),
    }
}

fn signal(id: &str, name: &str) -> Command {
    Command::Signal {
        signal_id: id.into(),
        signal: name.into(),
        payload: json!({}),
        reason: Some("because".into()),
        actor: stepwell_engine::coordinator::engine_actor(),
    }
}

fn event(id: &str, event_type: &str, payload: Json) -> Command {
    Command::DeliverEvent {
        event_id: id.into(),
        event_type: event_type.into(),
        payload,
    }
}
