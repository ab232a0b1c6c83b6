//! From a valid model to the net: a chain of plain edges. Cannot fail.

use serde_json::{Value as Json, json};
use stepwell_kernel::plan::{
    Backoff, BackoffKind, Dialect, Edge, ErrorClass, Net, OnFailure, RetryPolicy, RunPolicy,
    SourceRef, Step as NetStep, StepNo, WaitOn, WaitSpec, WaitTimeout, Work,
};

use super::model::{LinearStep, LinearWorkflow, StepAction};

/// What is retried. The specification leaves the choice between Retry and Dead to the handler; these
/// are the classes of failures that a retry may fix.
const RETRYABLE: [ErrorClass; 7] = [
    ErrorClass::Timeout,
    ErrorClass::RateLimit,
    ErrorClass::Transient,
    ErrorClass::Transport,
    ErrorClass::Agent,
    ErrorClass::External,
    ErrorClass::Unknown,
];

pub(super) fn net(workflow: LinearWorkflow, source: SourceRef) -> Net {
    let types: Vec<Json> = workflow
        .steps
        .iter()
        .map(|step| json!(step.step_type))
        .collect();
    let extra = json!({
        "description": workflow.description,
        "stepTypes": types,
    });
    let last = workflow.steps.len().saturating_sub(1) as u32;
    let queue = &workflow.workflow_type;
    let steps = workflow.steps.into_iter().zip(0..);
    Net {
        dialect: Dialect::Linear,
        plan_id: workflow.workflow_type.clone(),
        plan_version: workflow.version.to_string(),
        schema_version: "v1.0".to_owned(),
        source,
        workload: Json::Null,
        steps: steps.map(|(it, seq)| step(it, seq, queue)).collect(),
        edges: (0..last)
            .map(|seq| Edge::plain(StepNo(seq), StepNo(seq + 1)))
            .collect(),
        policy: RunPolicy {
            wait_timeout: match workflow.timeout_claims {
                true => WaitTimeout::Claim,
                false => WaitTimeout::Ignore,
            },
            handler_may_retry: true,
            losses_are_attempts: true,
            strict_templates: true,
            event_key: workflow.biz_key,
            lease_ms: u64::try_from(workflow.defaults.lease_seconds)
                .ok()
                .map(|seconds| seconds.saturating_mul(1_000)),
            ..RunPolicy::default()
        },
        library: Default::default(),
        extra,
    }
}

fn step(step: LinearStep, seq: u32, workflow_type: &str) -> NetStep {
    let retry = RetryPolicy {
        max_executions: step.max_attempts,
        backoff: Backoff {
            kind: BackoffKind::Exponential,
            initial_ms: step.backoff.initial_ms,
            multiplier: 2.0,
            max_ms: step.backoff.max_ms,
        },
        classes: RETRYABLE.to_vec(),
    };
    let mut published = Vec::new();
    let (work, retry) = match step.does {
        StepAction::Tool(work) => (work, retry),
        StepAction::Wait {
            event,
            timeout_ms,
            outbound,
        } => {
            published = outbound;
            let wait = Work::Wait(WaitSpec {
                on: WaitOn::Event { event_type: event },
                deadline_ms: timeout_ms,
            });
            // A wait that ran out is over: there is no handler to try it again.
            let never = RetryPolicy {
                classes: Vec::new(),
                ..retry
            };
            (wait, never)
        }
        StepAction::Handler {
            queue,
            operation,
            wait_for,
        } => (
            Work::Task {
                queue: queue.unwrap_or_else(|| workflow_type.to_owned()),
                operation: operation.unwrap_or_else(|| step.step_type.clone()),
                config: match wait_for.is_null() {
                    true => Json::Null,
                    false => json!({ "waitFor": wait_for }),
                },
            },
            retry,
        ),
    };
    let mut compiled = NetStep::new(step.name, work);
    compiled.description = step.description;
    compiled.order = seq;
    compiled.input = step.input;
    compiled.retry = retry;
    compiled.outbound = published;
    step.losses.apply(&mut compiled);
    compiled.timeout_ms = step.timeout_ms;
    compiled.on_failure = OnFailure::Stop { compensate: false };
    compiled
}
