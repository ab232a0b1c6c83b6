//! What a worker is told of a task.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use stepwell_engine::coordinator::Assignment;
use stepwell_engine::remote::RemoteClaim;
use stepwell_engine::rows::{BUILT_IN, served_by};
use stepwell_kernel::command::Command;
use stepwell_kernel::effect::Target;
use stepwell_kernel::time::Time;

use super::dto::WorkTask;
use super::results;
use crate::access::Caller;
use crate::app::App;

/// What the worker is told of work that was claimed for it; nothing if the input of the work cannot be evaluated.
pub(super) async fn describe(app: &App, caller: &Caller, job: &Assignment) -> Option<WorkTask> {
    let remote = RemoteClaim::of(job);
    let mut task = described(app, caller, job, &remote);
    if task.queue == BUILT_IN {
        if let Some(refused) = app.settings.tools.refusal(job) {
            // The lists of tools have changed since the run was started: no worker hears of it.
            fail(app, &remote, refused).await;
            return None;
        }
        task.claimed = serde_json::to_value(&job.claimed).ok();
        return Some(task);
    }
    match app.workers.inputs.of(job).await {
        Ok(input) => {
            let shared = |value: Arc<Value>| Value::clone(&value);
            task.input = Some(input.input);
            task.config = Some(input.config).filter(|it| !it.is_null());
            task.params = Some(shared(input.params));
            task.ctx = Some(shared(input.ctx)).filter(|it| !it.is_null());
            task.payload = input.payload.map(shared);
            task.memo = input.memo.map(shared);
            let outputs = job.claimed.outputs.iter();
            let outputs: Map<String, Value> = outputs
                .map(|(name, value)| (name.clone(), Value::clone(value)))
                .collect();
            task.outputs = Some(Value::Object(outputs));
            task.item.clone_from(&job.claimed.item);
            task.target = job.claimed.target.clone().map(shared);
            Some(task)
        }
        Err(failed) => {
            // Its input cannot be evaluated: the step fails, and the worker never hears of it.
            fail(app, &remote, *failed).await;
            None
        }
    }
}

/// Reports that a task failed before any worker had it.
async fn fail(app: &App, remote: &RemoteClaim, failed: Command) {
    if let Err(problem) = results::submit(app, remote, failed).await {
        tracing::warn!(
            code = problem.code,
            run = remote.run_id,
            "{}",
            problem.detail
        );
    }
}

/// The parts of a task that follow from its claim, and the token that stands for it.
fn described(app: &App, caller: &Caller, job: &Assignment, remote: &RemoteClaim) -> WorkTask {
    let claimed = &job.claimed;
    let task_token = app.workers.token(caller, remote);
    app.workers.registry.give(&task_token, remote, &job.plan);
    let (queue, operation) = served_by(&job.plan, claimed.claim.target);
    WorkTask {
        task_token,
        run_id: job.run_id.to_string(),
        step_id: remote.name.clone(),
        queue: queue.to_owned(),
        operation: operation.to_owned(),
        attempt: claimed.attempt,
        logical_attempt: claimed.logical,
        execution: claimed.claim.execution,
        fence: claimed.fence,
        idempotency_key: claimed.idempotency_key.clone(),
        task: json!(claimed.task),
        undo: matches!(claimed.claim.target, Target::Undo(_)),
        lease_until: claimed
            .claim
            .lease_until
            .map(Time::to_rfc3339)
            .unwrap_or_default(),
        plan_hash: job.plan.hash().to_owned(),
        input: None,
        config: None,
        params: None,
        ctx: None,
        outputs: None,
        memo: None,
        payload: None,
        item: None,
        target: None,
        parent_run_id: job.parent.as_ref().map(ToString::to_string),
        tenant_id: job.tenancy.tenant().to_owned(),
        project_id: job.tenancy.project().to_owned(),
        traceparent: job.trace.as_ref().map(|it| it.traceparent.clone()),
        tracestate: job.trace.as_ref().and_then(|it| it.tracestate.clone()),
        claimed: None,
    }
}
