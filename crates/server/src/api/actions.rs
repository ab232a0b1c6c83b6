//! What people and programs do to a run: signals, cancel, approve, complete a step, patch ctx.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stepwell_engine::run_id_for;
use stepwell_kernel::command::{AnswerDetails, Command, EarlierResult, ManualOutcome, Reply};
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::signal::SignalKind;
use stepwell_views::answers::{ANSWER_CONTRADICTED, Contradiction, GivenAnswer};
use stepwell_views::undo;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Body;
use super::runs::{of_own_project, read_time};
use crate::access::Caller;
use crate::app::App;
use crate::problem::ApiProblem;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(signal))
        .routes(routes!(cancel))
        .routes(routes!(approve))
        .routes(routes!(complete))
        .routes(routes!(patch_ctx))
}

/// How long the answer to RETRY_RUN waits for the run that it speaks of.
const UNTIL_CREATED: Duration = Duration::from_secs(2);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// What came of a command to a run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    run_id: String,
    /// DONE, or BEFORE if the same was done before.
    answer: &'static str,
    /// The id of the signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal_id: Option<String>,
    /// The run that repeats this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated_as: Option<String>,
    /// The result that counts, for the answer to a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    /// How many people have approved, where more than one must.
    #[serde(skip_serializing_if = "Option::is_none")]
    approvals: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approvals_needed: Option<u32>,
    /// What a repeated answer says otherwise than the first one, which counts: output, notes, evidence, completion time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differs: Vec<&'static str>,
    /// The completed steps that could be undone and were not, because the cancel did not ask for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_undone: Vec<String>,
    /// What an answer to a step or a cancel came to, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl Answer {
    fn of(run: &str, reply: &Reply) -> Result<Answer, ApiProblem> {
        let answer = match reply {
            Reply::Duplicate(first) => {
                if let EarlierResult::SignalRejected(code) = &**first {
                    return Err(ApiProblem::new(
                        StatusCode::CONFLICT,
                        code,
                        "a signal with this id is known, and it had been refused",
                    ));
                }
                "BEFORE"
            }
            Reply::Done
            | Reply::Created { .. }
            | Reply::Claimed(_)
            | Reply::Refused(_)
            | Reply::RetryRun { .. } => "DONE",
        };
        Ok(Answer {
            run_id: run.to_owned(),
            answer,
            signal_id: None,
            repeated_as: None,
            outcome: None,
            approvals: None,
            approvals_needed: None,
            differs: Vec::new(),
            not_undone: Vec::new(),
            message: None,
        })
    }
}

/// A signal of the contract.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SendSignal {
    /// PAUSE, RESUME, CANCEL, RETRY_STEP, RETRY_RUN, SKIP_STEP, UPDATE_PARAMS, INJECT_OVERRIDE, UPDATE_TARGET or
    /// EMERGENCY_STOP.
    signal_type: String,
    /// An id that the caller chooses: a signal that is sent twice counts once.
    #[serde(default)]
    signal_id: Option<String>,
    #[serde(default)]
    #[schema(value_type = Object)]
    payload: Option<Value>,
    /// The reason, which the log keeps; signals for administrators need one.
    #[serde(default)]
    reason: Option<String>,
}

/// Send a signal to a run.
#[utoipa::path(post, path = "/api/v1/runs/{run}/signals", tag = "actions", security(("token" = ["operate"])),
    params(("run" = String, Path, description = "The id of the run.")), request_body = SendSignal,
    responses((status = 200, body = Answer), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 409, body = ApiProblem), (status = 413, body = ApiProblem),
        (status = 415, body = ApiProblem), (status = 422, body = ApiProblem), (status = 429, body = ApiProblem),
        (status = 503, body = ApiProblem), (status = 504, body = ApiProblem)))]
async fn signal(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
    Body(body): Body<SendSignal>,
) -> Result<Json<Answer>, ApiProblem> {
    app.find(&caller, &run).await?;
    let name = body.signal_type.to_uppercase();
    let signal_id = body
        .signal_id
        .unwrap_or_else(|| format!("api-{}", uuid::Uuid::now_v7()));
    let command = Command::Signal {
        signal_id: signal_id.clone(),
        signal: name.clone(),
        payload: body.payload.unwrap_or_else(|| json!({})),
        reason: body.reason,
        actor: caller.actor(),
    };
    let reply = match app.submit(&run, command).await {
        Ok(reply) => reply,
        Err(problem) => return Err(of_own_project(&app, &caller, problem).await),
    };
    let mut answer = Answer::of(&run, &reply)?;
    if name == SignalKind::RetryRun.name() {
        // The id of the new run is derived from the id of the signal.
        let again = run_id_for(&format!("{run}|RETRY_RUN|{signal_id}"));
        // Longer than this takes only an engine that has much to do: the signal is accepted, and the run comes.
        let _ = tokio::time::timeout(UNTIL_CREATED, created(&app, &again)).await;
        answer.repeated_as = Some(again);
    }
    answer.signal_id = Some(signal_id);
    Ok(Json(answer))
}

/// Waits until a run that the engine creates after the commit of a signal can be read: who is told its id looks at it next.
async fn created(app: &App, run: &str) {
    loop {
        let id = run.to_owned();
        // A store that does not answer is told to who reads the run.
        match app.ask(move |store| store.find(&id)).await {
            Ok(None) => tokio::time::sleep(LOOK).await,
            Ok(Some(_)) | Err(_) => return,
        }
    }
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CancelRun {
    #[serde(default)]
    reason: Option<String>,
    /// Undo the completed steps before the run ends.
    #[serde(default)]
    compensate: bool,
}

/// Cancel a run; with `compensate` its completed steps are undone first.
#[utoipa::path(post, path = "/api/v1/runs/{run}/cancel", tag = "actions", security(("token" = ["operate"])),
    params(("run" = String, Path, description = "The id of the run.")), request_body = CancelRun,
    responses((status = 200, body = Answer), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 409, body = ApiProblem), (status = 413, body = ApiProblem),
        (status = 415, body = ApiProblem), (status = 503, body = ApiProblem), (status = 504, body = ApiProblem)))]
async fn cancel(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
    Body(body): Body<CancelRun>,
) -> Result<Json<Answer>, ApiProblem> {
    let view = app.run_view(&caller, &run).await?;
    let command = Command::CancelRun {
        actor: caller.actor(),
        reason: body.reason,
        compensate: body.compensate,
        keep_undo: false,
    };
    let reply = app.submit(&run, command).await?;
    let mut answer = Answer::of(&run, &reply)?;
    if !body.compensate {
        answer.not_undone = undo::undone_steps(&view);
    }
    if !answer.not_undone.is_empty() {
        let message =
            "these completed steps were not undone; a cancel with `compensate: true` undoes them";
        answer.message = Some(message.to_owned());
    }
    Ok(Json(answer))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ApproveRun {
    #[serde(default)]
    reason: Option<String>,
}

/// Approve a run whose definition requires an approval before the start.
#[utoipa::path(post, path = "/api/v1/runs/{run}/approve", tag = "actions", security(("token" = ["approve"])),
    params(("run" = String, Path, description = "The id of the run.")), request_body = ApproveRun,
    responses((status = 200, body = Answer), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 409, body = ApiProblem), (status = 413, body = ApiProblem),
        (status = 415, body = ApiProblem), (status = 503, body = ApiProblem), (status = 504, body = ApiProblem)))]
async fn approve(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
    Body(body): Body<ApproveRun>,
) -> Result<Json<Answer>, ApiProblem> {
    let view = app.run_view(&caller, &run).await?;
    if !view.plan.policy().needs_approval {
        let what = "the definition of the run requires no approval";
        return Err(Rejection::new(Code::InvalidTransition, what).into());
    }
    let command = Command::ApproveRun {
        actor: caller.actor(),
        reason: body.reason,
    };
    let reply = app.submit(&run, command).await?;
    Ok(Json(Answer::of(&run, &reply)?))
}

/// How a person ends a wait.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// The work is done, or the approval is given.
    Succeeded,
    /// The work failed, or the approval is refused.
    Failed,
    /// The work is no longer needed.
    Cancelled,
}

impl From<Outcome> for ManualOutcome {
    fn from(outcome: Outcome) -> ManualOutcome {
        match outcome {
            Outcome::Succeeded => ManualOutcome::Succeeded,
            Outcome::Failed => ManualOutcome::Failed,
            Outcome::Cancelled => ManualOutcome::Cancelled,
        }
    }
}

/// The answer of a person to a step that waits for one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CompleteStep {
    outcome: Outcome,
    /// The output of the step.
    #[serde(default)]
    #[schema(value_type = Object)]
    output: Option<Value>,
    /// The completion token: the answer is then for this wait only. Absent: for the open wait of the step.
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    notes: Option<String>,
    /// Ids of evidence, or references to it.
    #[serde(default)]
    evidence_refs: Vec<String>,
    /// When the work was completed; absent: now.
    #[serde(default)]
    completed_at: Option<String>,
}

/// Complete, approve or reject a step that waits for a person.
///
/// Who repeats an answer gets the same answer once more. An answer that contradicts the first one is refused with
/// ANSWER_CONTRADICTED and changes nothing.
#[utoipa::path(post, path = "/api/v1/runs/{run}/steps/{step}/complete", tag = "actions",
    security(("token" = ["approve"])),
    params(("run" = String, Path, description = "The id of the run."),
        ("step" = String, Path, description = "The id of the step, such as `sign-off` or `sign-off#2`.")),
    request_body = CompleteStep,
    responses((status = 200, body = Answer), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 409, body = ApiProblem), (status = 413, body = ApiProblem),
        (status = 415, body = ApiProblem), (status = 422, body = ApiProblem), (status = 503, body = ApiProblem),
        (status = 504, body = ApiProblem)))]
async fn complete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((run, step)): Path<(String, String)>,
    Body(body): Body<CompleteStep>,
) -> Result<Json<Answer>, ApiProblem> {
    let view = app.run_view(&caller, &run).await?;
    let given = GivenAnswer {
        step,
        outcome: body.outcome.into(),
        output: body.output.unwrap_or(Value::Null),
        details: AnswerDetails {
            completed_at: body.completed_at.as_deref().map(read_time).transpose()?,
            notes: body.notes,
            evidence_refs: body.evidence_refs,
        },
        actor: caller.actor(),
        token: body.token,
    };
    let key = TokenKey(app.ask(|store| store.secret()).await?);
    let first = match given.command(&view, &key)? {
        Err(first) => Some(first),
        Ok(command) => match app.submit(&run, command).await? {
            Reply::Duplicate(first) => match *first {
                EarlierResult::Manual(first) => Some(first),
                EarlierResult::Succeeded
                | EarlierResult::Failed(_)
                | EarlierResult::SucceededOtherwise
                | EarlierResult::FailedOtherwise(_)
                | EarlierResult::Event
                | EarlierResult::SignalAccepted
                | EarlierResult::SignalRejected(_)
                | EarlierResult::Child => None,
            },
            Reply::Done
            | Reply::Created { .. }
            | Reply::Claimed(_)
            | Reply::Refused(_)
            | Reply::RetryRun { .. } => None,
        },
    };
    let view = app.run_view(&caller, &run).await?;
    let result = given.came_to(&view, first)?.map_err(|Contradiction(why)| {
        ApiProblem::new(StatusCode::CONFLICT, ANSWER_CONTRADICTED, why)
    })?;
    let mut answer = Answer::of(&run, &Reply::Done)?;
    if result.is_repeated {
        answer.answer = "BEFORE";
    }
    answer.outcome = Some(result.outcome.word());
    answer.approvals = result.approvals.as_ref().map(|it| it.given);
    answer.approvals_needed = result.approvals.map(|it| it.needed);
    answer.differs = result.differs;
    answer.message = Some(result.text);
    Ok(Json(answer))
}

/// A change of the ctx of a playbook run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PatchCtx {
    /// The keys to set, with their values.
    #[schema(value_type = Object)]
    ctx: serde_json::Map<String, Value>,
}

/// Set keys of the ctx of a run, as an operator: a run that is stalled looks at its conditions again.
#[utoipa::path(post, path = "/api/v1/runs/{run}/ctx", tag = "actions", security(("token" = ["engineer"])),
    params(("run" = String, Path, description = "The id of the run.")), request_body = PatchCtx,
    responses((status = 200, body = Answer), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 409, body = ApiProblem), (status = 413, body = ApiProblem),
        (status = 415, body = ApiProblem), (status = 422, body = ApiProblem), (status = 503, body = ApiProblem),
        (status = 504, body = ApiProblem)))]
async fn patch_ctx(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
    Body(body): Body<PatchCtx>,
) -> Result<Json<Answer>, ApiProblem> {
    app.find(&caller, &run).await?;
    let command = Command::PatchCtx {
        actor: caller.actor(),
        ctx: body.ctx.into_iter().collect(),
    };
    let reply = app.submit(&run, command).await?;
    Ok(Json(Answer::of(&run, &reply)?))
}
