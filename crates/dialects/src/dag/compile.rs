//! From the model to the net. Nothing can go wrong here: all checks are done.

use std::collections::HashMap;

use serde_json::{Map, Value as Json, json};
use stepwell_kernel::plan::{
    self, Dialect, Edge, Net, RetryPolicy, RunPolicy, SideEffect, SourceRef, StepNo, Undo,
    UndoMode, Work,
};

use super::model::{DagCompensation, DagOnFailure, DagStep, DagWorkflow, FailurePolicy};
use super::read::default_retry;

/// The net of a workflow whose steps depend on each other as `needs` says.
pub(crate) fn net(it: DagWorkflow<'_>, needs: &[Vec<usize>], source: SourceRef) -> Net {
    let number = |at: usize| StepNo(u32::try_from(at).unwrap_or(u32::MAX));
    let failure = it.failure.map(|(failure, _)| failure);
    let mut undos: HashMap<&str, Undo> = it
        .compensation
        .into_iter()
        .map(|entry| (entry.step.name, undo(entry)))
        .collect();
    let mut edges = Vec::new();
    for (at, needed) in needs.iter().enumerate() {
        edges.extend(
            needed
                .iter()
                .map(|need| Edge::plain(number(*need), number(at))),
        );
    }
    let mut extra = it.extra;
    for (key, gates) in [("approvers", true), ("agents", false)] {
        let named = named_agents(&it.steps, gates);
        if !named.is_empty() {
            extra[key] = Json::Object(named);
        }
    }
    let steps = it.steps.into_iter().enumerate().map(|(at, step)| {
        let undo = undos.remove(step.name.name);
        self::step(number(at).0, step, undo, failure)
    });
    Net {
        dialect: Dialect::Dag,
        plan_id: it.name.to_owned(),
        plan_version: it.version,
        schema_version: "v0.2".to_owned(),
        source,
        workload: Json::Null,
        steps: steps.collect(),
        edges,
        policy: RunPolicy {
            must_queue: true,
            timeout_ms: it.timeout_ms,
            timeout_compensates: failure == Some(FailurePolicy::Compensate),
            undo_mode: UndoMode::Stop,
            strict_templates: true,
            ..RunPolicy::default()
        },
        library: Default::default(),
        extra: if extra == json!({}) {
            Json::Null
        } else {
            extra
        },
    }
}

/// Who is asked at the gates, or who is named beside a tool: nothing in the work says it.
fn named_agents(steps: &[DagStep<'_>], gates: bool) -> Map<String, Json> {
    let unsaid = |step: &&DagStep<'_>| match step.work {
        Work::Task { .. } => false,
        Work::Pipeline { .. } | Work::Wait(_) | Work::Child(_) => step.is_gate == gates,
    };
    let named = |step: &DagStep<'_>| Some((step.name.name.to_owned(), step.agent?.into()));
    steps.iter().filter(unsaid).filter_map(named).collect()
}

fn step(
    order: u32,
    it: DagStep<'_>,
    undo: Option<Undo>,
    failure: Option<FailurePolicy>,
) -> plan::Step {
    let on_failure = it.on_failure.map(|(action, _)| action);
    let side_effect = match (&undo, it.compensable) {
        (Some(_), _) => SideEffect::Compensable,
        (None, Some((false, _))) => SideEffect::Irreversible,
        (None, _) => SideEffect::Unknown,
    };
    let mut step = plan::Step {
        description: it.description.map(str::to_owned),
        order,
        input: it.input,
        retry: match (&it.work, it.retry) {
            (_, Some(retry)) => retry,
            (Work::Task { .. } | Work::Pipeline { .. }, None) => default_retry(),
            (Work::Wait(_) | Work::Child(_), None) => RetryPolicy::once(),
        },
        timeout_ms: it.timeout_ms,
        on_failure: answer(on_failure, failure),
        undo,
        side_effect,
        ..plan::Step::new(it.name.name, it.work)
    };
    it.losses.apply(&mut step);
    step
}

/// What a failure for good leads to: the step's own word, else the workflow's, else abort.
fn answer(step: Option<DagOnFailure>, workflow: Option<FailurePolicy>) -> plan::OnFailure {
    match (step, workflow) {
        (Some(DagOnFailure::Skip), _) => plan::OnFailure::Skip,
        (Some(DagOnFailure::Compensate), _) | (None, Some(FailurePolicy::Compensate)) => {
            plan::OnFailure::Stop { compensate: true }
        }
        (Some(DagOnFailure::Abort), _)
        | (None, Some(FailurePolicy::Retry | FailurePolicy::Abort) | None) => {
            plan::OnFailure::Stop { compensate: false }
        }
    }
}

fn undo(it: DagCompensation<'_>) -> Undo {
    Undo {
        queue: it.queue,
        operation: it.operation,
        input: it.input,
        tasks: it.tasks,
        retry: crate::undo::retry(),
        timeout_ms: it.timeout_ms,
    }
}
