//! From a checked playbook to the net.

use std::collections::HashMap;

use serde_json::Value as Json;
use stepwell_kernel::expr::{TemplateValue, has_template};
use stepwell_kernel::plan::{
    ChildSpec, Dialect, Edge, EntryPoint, Join, Net, RetryPolicy, SourceRef, Step, StepNo, WaitOn,
    WaitSpec, Work,
};

use super::model::{Playbook, StepDef};
use super::read;
use crate::tools;

/// Writes the net. Names were checked, so every one of them is found.
pub(super) fn net(playbook: Playbook, source: SourceRef) -> Net {
    let numbers: HashMap<String, StepNo> = playbook
        .steps
        .iter()
        .enumerate()
        .map(|(at, step)| (step.name.text.clone(), StepNo(at as u32)))
        .collect();
    let edges = edges(&playbook, &numbers);
    let find = |name: &super::model::Named| numbers.get(&name.text).copied();
    let executor = playbook.executor;
    let mut policy = executor.policy;
    policy.entry = EntryPoint::Step(executor.entry.as_ref().and_then(find).unwrap_or(StepNo(0)));
    policy.final_step = executor.final_step.as_ref().and_then(find);
    policy.renders_workload = has_templates(&playbook.workload);
    let timeout = executor.default_timeout_ms;
    Net {
        dialect: Dialect::Playbook,
        plan_id: playbook.name,
        plan_version: playbook.version,
        schema_version: "v2.0".to_owned(),
        source,
        workload: playbook.workload,
        steps: playbook
            .steps
            .into_iter()
            .enumerate()
            .map(|(at, step)| self::step(step, at as u32, timeout))
            .collect(),
        edges,
        policy,
        library: read::library_json(playbook.library),
        extra: playbook.extra,
    }
}

fn edges(playbook: &Playbook, numbers: &HashMap<String, StepNo>) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (at, step) in playbook.steps.iter().enumerate() {
        for arc in &step.arcs {
            let Some(to) = numbers.get(&arc.to.text) else {
                continue;
            };
            edges.push(Edge {
                from: StepNo(at as u32),
                to: *to,
                when: arc.when.clone(),
                args: arc.args.clone(),
                set_ctx: arc.set_ctx.clone(),
            });
        }
    }
    edges
}

fn step(def: StepDef, order: u32, default_timeout_ms: Option<u64>) -> Step {
    let work = def.tasks.map_or_else(tools::nothing, tools::into_work);
    let waits = matches!(work, Work::Wait(_) | Work::Child(_));
    let (work, input) = give_input(limit_wait(work, def.timeout_ms), def.input);
    let mut step = Step::new(def.name.text, work);
    step.description = def.description;
    step.order = order;
    step.join = if def.join_all.is_some() {
        Join::All
    } else {
        Join::Each
    };
    step.route = def.route;
    step.admit = def.admit;
    step.input = input;
    step.set_ctx = def.set_ctx;
    step.each = def.each;
    // Failures that a tool reports are not retried here: that is for the task's own rules.
    step.retry = RetryPolicy::once();
    def.losses.apply(&mut step);
    // The default is meant for work; a person may take longer.
    step.timeout_ms = def.timeout_ms.or(default_timeout_ms.filter(|_| !waits));
    step.on_failure = def.on_failure;
    step
}

/// A wait has its tool's timeout and its step's: the shorter one ends it.
fn limit_wait(work: Work, timeout_ms: Option<u64>) -> Work {
    match work {
        Work::Wait(WaitSpec { on, deadline_ms }) if !matches!(on, WaitOn::Timer { .. }) => {
            let deadline_ms = deadline_ms.into_iter().chain(timeout_ms).min();
            Work::Wait(WaitSpec { on, deadline_ms })
        }
        work @ (Work::Task { .. } | Work::Pipeline { .. } | Work::Wait(_) | Work::Child(_)) => work,
    }
}

/// A child gets what its step was given, with the call's own input over it.
fn give_input(work: Work, input: Json) -> (Work, Json) {
    let Work::Child(spec) = work else {
        return (work, input);
    };
    let mut merged = if let Json::Object(map) = input {
        map
    } else {
        serde_json::Map::new()
    };
    if let Json::Object(own) = spec.input.to_json() {
        merged.extend(own);
    }
    let input = TemplateValue::parse(&Json::Object(merged)).unwrap_or(spec.input);
    (Work::Child(ChildSpec { input, ..spec }), Json::Null)
}

fn has_templates(value: &Json) -> bool {
    match value {
        Json::String(text) => has_template(text),
        Json::Array(items) => items.iter().any(has_templates),
        Json::Object(map) => map.values().any(has_templates),
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
    }
}
