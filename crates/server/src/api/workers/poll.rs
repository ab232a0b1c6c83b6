//! Waiting for work: a worker that finds none waits until work is offered here, and looks every second for what other
//! servers offer.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use stepwell_engine::coordinator::Assignment;
use stepwell_engine::remote::{RemoteClaim, RemoteWorker};
use stepwell_engine::rows::{BUILT_IN, target_name};
use stepwell_engine::store::{StoreError, TaskRow};
use stepwell_kernel::effect::Target;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::dto::WorkTask;
use super::results;
use crate::access::Caller;
use crate::app::App;
use crate::problem::ApiProblem;

/// How often a worker that waits looks for what other servers offered, and for work that it must stop.
const LOOK: Duration = Duration::from_secs(1);

/// What a worker that asked for work gets.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) tasks: Vec<WorkTask>,
    /// Tokens of tasks that the worker must stop.
    pub(super) cancel: Vec<String>,
}

/// How much work a worker asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) max: usize,
    pub(super) lease_ms: u64,
    pub(super) until: Instant,
}

/// Looks for work until there is some, or something to stop, or the time is over.
pub(super) async fn find_work(
    app: &App,
    caller: &Caller,
    worker: &RemoteWorker,
    wanted: Wanted,
) -> Result<Found, ApiProblem> {
    loop {
        // Before the look: what is offered after it is not missed.
        let mut offered = std::pin::pin!(app.workers.offers.notified());
        offered.as_mut().enable();
        let tasks = match wanted.max {
            0 => Vec::new(),
            max => take(app, caller, worker, max, wanted.lease_ms).await?,
        };
        if !tasks.is_empty() {
            let cancel = Vec::new();
            return Ok(Found { tasks, cancel });
        }
        let (cancel, news) = stops(app, worker).await?;
        let now = Instant::now();
        if news || now >= wanted.until || app.stopping.is_cancelled() {
            return Ok(Found { tasks, cancel });
        }
        let nap = next_look(app, worker).await?.min(wanted.until - now);
        tokio::select! {
            () = offered => {}
            () = tokio::time::sleep(nap) => {}
            () = app.stopping.cancelled() => {}
        }
    }
}

/// How long until work of this worker may become visible, a second at most.
async fn next_look(app: &App, worker: &RemoteWorker) -> Result<Duration, ApiProblem> {
    let (serves, now) = (worker.serves.clone(), app.now());
    let next = app.ask(move |store| store.next_visible(&serves)).await?;
    let wait = next.map_or(LOOK, |at| {
        Duration::from_millis(u64::try_from(at.0 - now.0).unwrap_or(0).max(10))
    });
    Ok(wait.min(LOOK))
}

/// Tasks of a worker whose runs no longer want them, and whether the worker has not been told so.
async fn stops(app: &App, worker: &RemoteWorker) -> Result<(Vec<String>, bool), ApiProblem> {
    let (name, tenant) = (worker.name.clone(), worker.tenant.clone());
    let leases: Vec<TaskRow> = app
        .ask(move |store| store.leases(Some(&name), tenant.as_deref(), usize::MAX))
        .await?;
    let stopping = leases.into_iter().filter(|task| task.stopping);
    let named = stopping.map(|task| (task.run, task.target));
    Ok(app.workers.registry.stops(named))
}

/// Reserves and claims tasks for a worker.
async fn take(
    app: &App,
    caller: &Caller,
    worker: &RemoteWorker,
    max: usize,
    lease_ms: u64,
) -> Result<Vec<WorkTask>, ApiProblem> {
    let (remote, asking) = (app.workers.remote.clone(), worker.clone());
    let reserved = app
        .block(move || remote.reserve(&asking, max).map_err(problem_of))
        .await?;
    // All claims are sent before the first is awaited: they share a commit.
    let claims = reserved
        .into_iter()
        .map(|task| claim(app, caller, task, lease_ms));
    Ok(join_all(claims).await.into_iter().flatten().collect())
}

fn problem_of(error: StoreError) -> ApiProblem {
    error.into()
}

/// Claims one reserved task, and says what the worker gets; nothing if another was faster.
async fn claim(app: &App, caller: &Caller, task: TaskRow, lease_ms: u64) -> Option<WorkTask> {
    let (answer, answered) = oneshot::channel();
    let (queue, operation) = (task.queue.clone(), task.op.clone());
    let until = app.now().plus(lease_ms);
    let began = Instant::now();
    let sent = app.workers.remote.claim(task, lease_ms, move |claimed| {
        // The worker may be gone; then its lease ends by itself.
        let _ = answer.send(claimed);
    });
    let claimed = match (sent, answered.await) {
        (Ok(()), Ok(Ok(claimed))) => claimed,
        (Err(error), _) | (Ok(()), Ok(Err(error))) => {
            tracing::debug!(%error, "a task could not be claimed");
            return None;
        }
        (Ok(()), Err(_)) => return None,
    };
    app.metrics.claimed(began.elapsed());
    let remote = RemoteClaim::of(&claimed);
    let mut task = described(app, caller, &claimed, &remote);
    task.lease_until = until.to_rfc3339();
    (task.queue, task.operation) = (queue, operation);
    if task.queue == BUILT_IN {
        task.claimed = serde_json::to_value(&claimed.claimed).ok();
        return Some(task);
    }
    match app.workers.inputs.of(&claimed).await {
        Ok(input) => {
            let shared = |value: std::sync::Arc<Value>| Value::clone(&value);
            task.input = Some(input.input);
            task.config = Some(input.config).filter(|it| !it.is_null());
            task.params = Some(shared(input.params));
            task.ctx = Some(shared(input.ctx)).filter(|it| !it.is_null());
            task.payload = input.payload.map(shared);
            task.memo = input.memo.map(shared);
            let outputs = claimed.claimed.outputs.iter();
            let outputs: Map<String, Value> = outputs
                .map(|(name, value)| (name.clone(), Value::clone(value)))
                .collect();
            task.outputs = Some(Value::Object(outputs));
            task.item.clone_from(&claimed.claimed.item);
            task.target = claimed.claimed.target.clone().map(shared);
            Some(task)
        }
        Err(failed) => {
            // Its input cannot be evaluated: the step fails, and the worker never hears of it.
            if let Err(problem) = results::submit(app, &remote, *failed).await {
                tracing::warn!(
                    code = problem.code,
                    run = remote.run_id,
                    "{}",
                    problem.detail
                );
            }
            None
        }
    }
}

/// The parts of a task that follow from its claim, and the token that stands for it.
fn described(app: &App, caller: &Caller, job: &Assignment, remote: &RemoteClaim) -> WorkTask {
    let claimed = &job.claimed;
    let task_token = app.workers.token(caller, remote);
    app.workers.registry.give(&task_token, remote, &job.plan);
    WorkTask {
        task_token,
        run_id: job.run_id.to_string(),
        step_id: target_name(&job.plan, claimed.claim.target),
        queue: String::new(),
        operation: String::new(),
        attempt: claimed.attempt,
        logical_attempt: claimed.logical,
        execution: claimed.claim.execution,
        fence: claimed.fence,
        idempotency_key: claimed.idempotency_key.clone(),
        task: json!(claimed.task),
        undo: matches!(claimed.claim.target, Target::Undo(_)),
        lease_until: String::new(),
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
        traceparent: job.trace.as_ref().map(|it| it.traceparent.clone()),
        tracestate: job.trace.as_ref().and_then(|it| it.tracestate.clone()),
        claimed: None,
    }
}
