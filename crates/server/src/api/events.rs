//! Events from outside: to one run, by a key, or for everyone, also before anyone waits.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stepwell_engine::service::ExternalEvent;
use stepwell_engine::store::{Delivered, TRIGGER_KEY};
use stepwell_kernel::command::{Command, Reply};
use tokio::sync::oneshot;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Body;
use crate::access::Caller;
use crate::app::App;
use crate::problem::ApiProblem;

/// Why a caller with a project sends no event that names no run.
pub(super) const EVENTS_OF_A_TENANT: &str = "events that name no run are for all projects of the tenant: send the event to a \
     run of the project with POST /api/v1/runs/RUN/events, or use a token without a project";

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(deliver))
        .routes(routes!(deliver_to_run))
}

/// An event from outside.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SendEvent {
    /// An id that the sender chooses: an event that is sent twice counts once.
    id: String,
    #[serde(rename = "type")]
    event_type: String,
    /// The key of the run that waits: the business key of a linear run, else the id of the run. Absent: the event is for
    /// everyone, and starts runs of the definitions that it triggers.
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    #[schema(value_type = Object)]
    payload: Option<Value>,
}

/// What became of an event.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeliveredEvent {
    event_id: String,
    /// TO_RUN, KEPT if no run waits for it yet, or AGAIN if an event with this id is known.
    delivered: &'static str,
    /// The run that received the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
}

/// Deliver an event. It may come before the run that waits for it: then it is kept.
#[utoipa::path(post, path = "/api/v1/events", tag = "events", security(("token" = ["operate"])),
    request_body = SendEvent,
    responses((status = 200, body = DeliveredEvent), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 413, body = ApiProblem), (status = 415, body = ApiProblem), (status = 422, body = ApiProblem),
        (status = 429, body = ApiProblem), (status = 503, body = ApiProblem), (status = 504, body = ApiProblem)))]
async fn deliver(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(body): Body<SendEvent>,
) -> Result<Json<DeliveredEvent>, ApiProblem> {
    caller.whole_tenant(EVENTS_OF_A_TENANT)?;
    let event_id = body.id.clone();
    let event = ExternalEvent {
        tenant: caller.context().tenant_id,
        id: body.id,
        event_type: body.event_type,
        key: body.key.unwrap_or_else(|| TRIGGER_KEY.to_owned()),
        payload: body.payload.unwrap_or_else(|| json!({})),
    };
    let (answer, answered) = oneshot::channel();
    app.engine.deliver_with(event, move |delivered| {
        // The caller may be gone.
        let _ = answer.send(delivered);
    })?;
    let stopping = || ApiProblem::from(stepwell_engine::Error::Stopping);
    let delivered = answered.await.map_err(|_| stopping())??;
    // It may trigger a run.
    app.due.event();
    let (word, run) = match delivered {
        Delivered::ToRun(run) => ("TO_RUN", Some(run)),
        Delivered::Kept => ("KEPT", None),
        Delivered::Again => ("AGAIN", None),
    };
    let run_id = match run {
        Some(run) => app
            .ask(move |store| store.load(run))
            .await?
            .map(|it| it.run_id),
        None => None,
    };
    Ok(Json(DeliveredEvent {
        event_id,
        delivered: word,
        run_id,
    }))
}

/// An event for one run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SendRunEvent {
    id: String,
    #[serde(rename = "type")]
    event_type: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    payload: Option<Value>,
}

/// Deliver an event to one run, whatever its key is.
#[utoipa::path(post, path = "/api/v1/runs/{run}/events", tag = "events", security(("token" = ["operate"])),
    params(("run" = String, Path, description = "The id of the run.")), request_body = SendRunEvent,
    responses((status = 200, body = DeliveredEvent), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 409, body = ApiProblem), (status = 413, body = ApiProblem),
        (status = 415, body = ApiProblem), (status = 422, body = ApiProblem), (status = 429, body = ApiProblem),
        (status = 503, body = ApiProblem), (status = 504, body = ApiProblem)))]
async fn deliver_to_run(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
    Body(body): Body<SendRunEvent>,
) -> Result<Json<DeliveredEvent>, ApiProblem> {
    app.find(&caller, &run).await?;
    let event_id = body.id.clone();
    let command = Command::DeliverEvent {
        event_id: body.id,
        event_type: body.event_type,
        payload: body.payload.unwrap_or_else(|| json!({})),
    };
    let delivered = match app.submit(&run, command).await? {
        Reply::Duplicate(_) => "AGAIN",
        Reply::Done
        | Reply::Created { .. }
        | Reply::Claimed(_)
        | Reply::Refused(_)
        | Reply::RetryRun { .. } => "TO_RUN",
    };
    Ok(Json(DeliveredEvent {
        event_id,
        delivered,
        run_id: Some(run),
    }))
}
