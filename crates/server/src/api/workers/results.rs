//! Results of tasks: each becomes the command that reports it, and all of a batch share a commit.

use std::sync::Arc;

use axum::http::StatusCode;
use futures_util::future::join_all;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use stepwell_engine::Error;
use stepwell_engine::read::LoggedRun;
use stepwell_engine::remote::RemoteClaim;
use stepwell_kernel::command::{Claim, Command, WaitFor};
use stepwell_kernel::event::{ArtifactRef, CalledRun, Patch, StepError};
use stepwell_kernel::plan::{ErrorClass, Plan};
use stepwell_worker::artifacts::INLINE_BYTES;
use tokio::sync::oneshot;

use super::dto::{ResultAnswer, WaitsFor, WorkOutcome, WorkResult, WorkWait};
use crate::access::Caller;
use crate::app::App;
use crate::problem::ApiProblem;

/// The longest message of an error that is kept, in bytes.
const MAX_MESSAGE: usize = 4 << 10;

/// Reports all results of a batch at once, and answers in their order.
pub(super) async fn report_all(
    app: &App,
    caller: &Caller,
    results: Vec<WorkResult>,
) -> Vec<ResultAnswer> {
    join_all(results.into_iter().map(|it| report_one(app, caller, it))).await
}

async fn report_one(app: &App, caller: &Caller, result: WorkResult) -> ResultAnswer {
    let task_token = result.task_token.clone();
    match reported(app, caller, result).await {
        Ok(()) => ResultAnswer {
            task_token,
            accepted: true,
            code: None,
            detail: None,
            retry: false,
        },
        Err(problem) => ResultAnswer {
            task_token,
            accepted: false,
            // Whatever is not the worker's fault may go better later.
            retry: problem.retry_after.is_some()
                || problem.status >= StatusCode::INTERNAL_SERVER_ERROR.as_u16(),
            code: Some(problem.code),
            detail: Some(problem.detail),
        },
    }
}

async fn reported(app: &App, caller: &Caller, result: WorkResult) -> Result<(), ApiProblem> {
    let claim = app.workers.claim(caller, &result.task_token)?;
    // What is written in the same words is the same result.
    let text = serde_json::to_vec(&result).map_err(|error| ApiProblem::internal(&error))?;
    let hash: [u8; 32] = Sha256::digest(&text).into();
    let command = command_of(result, claim.proof())?;
    let command = match text.len() > INLINE_BYTES {
        true => shrunk(app, &claim, command).await?,
        false => command,
    };
    match submit(app, &claim, command).await {
        Ok(()) => {
            if let Some(log) = app.workers.registry.reported(&claim, hash) {
                log.finish().await;
            }
            Ok(())
        }
        // The kernel knows a success or a failure again, but not a wait or a failure that was retried.
        Err(problem) if problem.status == 409 && app.workers.registry.was_accepted(&hash) => {
            tracing::debug!(code = problem.code, "a result was reported twice");
            Ok(())
        }
        Err(problem) => Err(problem),
    }
}

/// Reports the result of a claim, and waits until it is committed.
pub(super) async fn submit(
    app: &App,
    claim: &RemoteClaim,
    command: Command,
) -> Result<(), ApiProblem> {
    let (answer, answered) = oneshot::channel();
    app.workers.remote.report(claim, command, move |reply| {
        // The worker may be gone.
        let _ = answer.send(reply);
    })?;
    app.answer(&claim.run_id, answered).await?;
    Ok(())
}

/// Keeps large values as artifacts.
async fn shrunk(app: &App, claim: &RemoteClaim, command: Command) -> Result<Command, ApiProblem> {
    let plan: Arc<Plan> = match app.workers.registry.plan_of(claim) {
        Some(plan) => plan,
        None => {
            let run_id = claim.run_id.clone();
            app.ask(move |store| Ok::<_, Error>(LoggedRun::open(store, &run_id)?.plan))
                .await?
        }
    };
    let run = (claim.run_id.as_str(), &plan);
    Ok(app
        .workers
        .inputs
        .shrink(run, &claim.proof(), command)
        .await)
}

/// The command that reports a result.
fn command_of(result: WorkResult, claim: Claim) -> Result<Command, ApiProblem> {
    let needs = |field: &str, outcome: &str| {
        ApiProblem::bad_request(format!("a result with the outcome {outcome} needs {field}"))
    };
    let ctx: Patch = result.ctx.into_iter().collect();
    Ok(match result.outcome {
        WorkOutcome::Completed => Command::CompleteStep {
            claim,
            output: result.output,
            ctx,
            artifacts: read_all(result.artifacts)?,
        },
        WorkOutcome::Failed => {
            let error = result.error.ok_or_else(|| needs("`error`", "failed"))?;
            let class: ErrorClass = read("error.class", Value::String(error.class))?;
            let end = error.message.floor_char_boundary(MAX_MESSAGE);
            Command::FailStep {
                claim,
                error: StepError::new(class, error.code, &error.message[..end]),
                retryable: result.retryable,
                delay_ms: result.delay_ms,
                ctx,
            }
        }
        WorkOutcome::Waiting => {
            let wait = result.wait.ok_or_else(|| needs("`wait`", "waiting"))?;
            waiting(wait, claim)?
        }
        WorkOutcome::Stopped => Command::ConfirmKill { claim },
    })
}

fn waiting(wait: WorkWait, claim: Claim) -> Result<Command, ApiProblem> {
    let needs = |field: &str| ApiProblem::bad_request(format!("this wait needs {field}"));
    let wait_for = match wait.waits_for {
        WaitsFor::Event => WaitFor::Event {
            event_type: wait.event_type.ok_or_else(|| needs("`eventType`"))?,
        },
        WaitsFor::Manual => WaitFor::Manual,
        WaitsFor::Timer => WaitFor::Timer,
        WaitsFor::Child => {
            let call = wait.call.ok_or_else(|| needs("`call`"))?;
            WaitFor::Child {
                call: read::<CalledRun>("wait.call", call)?,
                input: wait.input.unwrap_or_default(),
            }
        }
    };
    Ok(Command::WaitStep {
        claim,
        wait: wait_for,
        timeout_ms: wait.timeout_ms,
        outbound: wait.outbound,
        memo: wait.memo,
    })
}

fn read_all(values: Vec<Value>) -> Result<Vec<ArtifactRef>, ApiProblem> {
    let read = |value| read("artifacts", value);
    values.into_iter().map(read).collect()
}

fn read<T: serde::de::DeserializeOwned>(field: &str, value: Value) -> Result<T, ApiProblem> {
    serde_json::from_value(value)
        .map_err(|error| ApiProblem::bad_request(format!("{field}: {error}")))
}
