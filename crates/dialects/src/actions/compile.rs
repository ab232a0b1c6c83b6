//! From a valid model to the net. Cannot fail.

use std::collections::HashMap;

use serde_json::{Map, Value as Json, json};
use stepwell_kernel::plan::{
    Completion, Dialect, Duty, Edge, Gate, Net, OnFailure, RetryPolicy, RunPolicy, SideEffect,
    SourceRef, Step, StepNo, Undo, UndoMode, WaitOn, WaitSpec, Work,
};

use super::model::{Action, ActionsWorkflow, Tier};

pub(super) fn net(workflow: &ActionsWorkflow, source: SourceRef) -> Net {
    let steps = workflow.actions.iter();
    Net {
        dialect: Dialect::Actions,
        plan_id: workflow.id.clone(),
        plan_version: workflow.version.to_string(),
        schema_version: "v1.0".to_owned(),
        source,
        workload: Json::Null,
        steps: steps.map(|action| step(action, workflow.tier)).collect(),
        edges: edges(&workflow.actions),
        policy: RunPolicy {
            undo_mode: UndoMode::Continue,
            skip_unreached: true,
            strict_templates: true,
            ..RunPolicy::default()
        },
        library: Default::default(),
        extra: extra(workflow),
    }
}

/// What the file says beyond the net, for people and workers.
fn extra(workflow: &ActionsWorkflow) -> Json {
    let mut actions = Map::new();
    for action in &workflow.actions {
        let mut about = notes(action);
        let tier = action.effective_tier(workflow.tier).name();
        about.insert("executionTier".to_owned(), json!(tier));
        about.insert("portFamily".to_owned(), json!(action.port_family));
        about.insert("operation".to_owned(), json!(action.operation));
        actions.insert(action.id().to_owned(), Json::Object(about));
    }
    json!({
        "workspaceId": workflow.workspace,
        "name": workflow.name,
        "description": workflow.description,
        "active": workflow.active.value,
        "executionTier": workflow.tier.name(),
        "actions": actions,
    })
}

fn notes(action: &Action) -> Map<String, Json> {
    let notes = action.notes.iter();
    notes
        .map(|(key, text)| ((*key).to_owned(), json!(text)))
        .collect()
}

/// A chain by `order`; or, if the file has any `dependsOn`, exactly the edges it names.
fn edges(actions: &[Action]) -> Vec<Edge> {
    if actions.iter().all(|action| action.depends_on.is_none()) {
        let mut chain: Vec<(i64, StepNo)> = Vec::new();
        for (at, action) in actions.iter().enumerate() {
            chain.push((order(action), StepNo(at as u32)));
        }
        chain.sort_unstable();
        let links = chain.windows(2);
        return links
            .map(|pair| Edge::plain(pair[0].1, pair[1].1))
            .collect();
    }
    let by_id: HashMap<&str, u32> = actions
        .iter()
        .zip(0..)
        .map(|(action, at)| (action.id(), at))
        .collect();
    let mut edges = Vec::new();
    for (action, to) in actions.iter().zip(0..) {
        for need in action.depends_on.iter().flatten() {
            let from = by_id.get(need.value.as_str());
            edges.extend(from.map(|from| Edge::plain(StepNo(*from), StepNo(to))));
        }
    }
    edges
}

fn order(action: &Action) -> i64 {
    action.order.as_ref().map_or(0, |order| order.value)
}

fn step(action: &Action, workflow: Tier) -> Step {
    let tier = action.effective_tier(workflow);
    let duties: Vec<Duty> = action
        .duties
        .iter()
        .map(|duty| duty.value.clone())
        .collect();
    let mut step = Step::new(action.id(), work(action, tier));
    let waits = matches!(step.work, Work::Wait(_));
    step.order = u32::try_from(order(action)).unwrap_or(0);
    step.input = action.input.clone();
    // A wait for a person is not tried again unless the file asks for it.
    step.retry = if waits && !action.retry_given {
        RetryPolicy::once()
    } else {
        action.retry.clone()
    };
    action.losses.apply(&mut step);
    step.timeout_ms = (!waits).then_some(action.timeout_ms);
    step.on_failure = OnFailure::Stop { compensate: true };
    if tier == Tier::HumanApprove {
        step.gate = Some(Gate {
            duties: duties.clone(),
            deadline_ms: None,
        });
    }
    let says_manual = action.manual.as_ref().is_some_and(|mode| mode.value);
    let by_person = says_manual || tier == Tier::ManualOnly;
    if by_person {
        step.duties = duties;
    }
    if by_person && !waits {
        step.completion = Completion::Manual;
    }
    step.side_effect = side_effect(action);
    step.undo = undo(action);
    step
}

/// A tool block is run by the built-in worker. Without one a worker that serves the port family does
/// it; a `ManualOnly` action then needs no worker at all, only a person.
fn work(action: &Action, tier: Tier) -> Work {
    if let Some(tool) = &action.tool {
        return tool.clone();
    }
    if tier == Tier::ManualOnly {
        return Work::Wait(WaitSpec {
            on: WaitOn::Manual,
            deadline_ms: action.timeout_given.then_some(action.timeout_ms),
        });
    }
    let notes = notes(action);
    Work::Task {
        queue: action.port_family.clone(),
        operation: action.operation.clone(),
        config: if notes.is_empty() {
            Json::Null
        } else {
            Json::Object(notes)
        },
    }
}

fn side_effect(action: &Action) -> SideEffect {
    let says = action.side_effecting.as_ref().map(|says| says.value);
    match (says, &action.compensation) {
        (_, Some(_)) => SideEffect::Compensable,
        (Some(true), None) => SideEffect::Irreversible,
        (Some(false), None) => SideEffect::Pure,
        (None, None) => SideEffect::Unknown,
    }
}

fn undo(action: &Action) -> Option<Undo> {
    let compensation = action.compensation.as_ref()?;
    Some(Undo {
        queue: action.port_family.clone(),
        operation: compensation.operation.clone(),
        input: compensation.input.clone(),
        tasks: compensation.tool.clone().unwrap_or_default(),
        retry: compensation.retry.clone(),
        timeout_ms: Some(compensation.timeout_ms),
    })
}
