//! Deliveries of other systems to webhooks. Anyone may send them: the signature is the access. Whoever has no right signature
//! does not learn whether there is such a webhook.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use stepwell_engine::service::ExternalEvent;
use stepwell_engine::store::{Delivered, TRIGGER_KEY};
use stepwell_engine::{Error, StartRequest, check_repeated_parameter, run_id_of_trigger};
use stepwell_kernel::event::RunContext;
use stepwell_kernel::keys;
use stepwell_kernel::trace::TraceContext;
use stepwell_worker::large_params;
use tokio::sync::oneshot;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{PathOf, whole};
use crate::app::App;
use crate::codes;
use crate::definitions::Registry;
use crate::problem::ApiProblem;
use crate::telemetry::CallerTrace;
use crate::triggers::{params_with, start_once};
use crate::webhooks::{
    EventTarget, Refusal, Signature, StartTarget, Target, Verified, WebhookDocument, Webhooks,
    verify,
};

/// The longest id of a delivery that is taken as it is.
const MAX_ID: usize = 200;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(hook))
}

/// A delivery that was accepted.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AcceptedDelivery {
    /// The id of the delivery: one that is sent twice counts once.
    delivery_id: String,
    /// Whether this delivery has started a run or delivered an event; false if it came before.
    created: bool,
    /// The run that was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
}

/// Deliver to a webhook. The signature is the access.
#[utoipa::path(post, path = "/hooks/{tenant}/{name}", tag = "webhooks", security(("token" = ["public"])),
    params(("tenant" = String, Path, description = "The tenant of the webhook."),
        ("name" = String, Path, description = "The name of the webhook.")),
    request_body(content = String, content_type = "application/json", description = "What the sender delivers."),
    responses((status = 202, description = "The delivery has started a run or was kept as an event.", body = AcceptedDelivery),
        (status = 200, description = "The same delivery came before.", body = AcceptedDelivery),
        (status = 400, body = ApiProblem), (status = 401, body = ApiProblem), (status = 404, body = ApiProblem),
        (status = 409, body = ApiProblem), (status = 413, body = ApiProblem), (status = 422, body = ApiProblem),
        (status = 429, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn hook(
    State(app): State<Arc<App>>,
    PathOf((tenant, name)): PathOf<(String, String)>,
    trace: Option<Extension<CallerTrace>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiProblem> {
    let body = whole(body)?;
    let (of, called) = (tenant.clone(), name.clone());
    let found = app
        .ask(move |store| Webhooks { store }.find(&of, &called))
        .await?;
    let found = found.filter(|it| it.enabled);
    let verified = verified(&app, found.as_ref(), &headers, &body).await;
    let (Some(webhook), Some(verified)) = (found, verified) else {
        return Err(denied());
    };
    let verified = verified.map_err(|_| late())?;
    if body.len() > webhook.max_body {
        return Err(too_large());
    }
    let payload = read_body(&body)?;
    let delivery = delivery_id(&webhook, verified, &headers, &payload, &body);
    let handed_on = handed_on(&webhook, &headers);
    let answer = match &webhook.target {
        Target::Start(start) => {
            let cause = json!({
                "payload": payload,
                "headers": handed_on,
                "trigger": { "webhook": name, "id": delivery },
            });
            let trace = trace.map(|it| it.0.0);
            started(&app, &tenant, &webhook, start, &delivery, (cause, trace)).await?
        }
        Target::Event(event) => {
            let mut payload = payload;
            if let Some(fields) = payload.as_object_mut().filter(|_| !handed_on.is_empty()) {
                fields.entry("headers").or_insert(Value::Object(handed_on));
            }
            delivered(&app, &tenant, &webhook, event, &delivery, payload).await?
        }
    };
    let status = match answer.created {
        true => StatusCode::ACCEPTED,
        false => StatusCode::OK,
    };
    Ok((status, Json(answer)).into_response())
}

/// What the signature of a delivery says; none if it is wrong. A webhook that is not there is answered as a wrong signature
/// is, after the same work.
async fn verified(
    app: &App,
    webhook: Option<&WebhookDocument>,
    headers: &HeaderMap,
    body: &[u8],
) -> Option<Result<Verified, Refusal>> {
    let mut secrets = Vec::new();
    for reference in webhook.into_iter().flat_map(|it| &it.secrets) {
        match app.secrets.resolve(reference).await {
            Ok(Value::String(secret)) if !secret.is_empty() => secrets.push(secret.into_bytes()),
            Ok(_) => tracing::warn!("the secret of a webhook is no text"),
            Err(error) => tracing::warn!(%error, "the secret of a webhook cannot be read"),
        }
    }
    let now = u64::try_from(app.now().0 / 1000).unwrap_or_default();
    let Some(webhook) = webhook else {
        let _ = verify(&Signature::Github {}, &[vec![0; 32]], headers, body, now);
        return None;
    };
    match verify(&webhook.signature, &secrets, headers, body, now) {
        Err(Refusal::Wrong) => None,
        Err(Refusal::Late) => Some(Err(Refusal::Late)),
        Ok(verified) => Some(Ok(verified)),
    }
}

fn denied() -> ApiProblem {
    ApiProblem::new(
        StatusCode::UNAUTHORIZED,
        codes::WEBHOOK_DENIED,
        "there is no such webhook, or the signature of the delivery is missing or wrong",
    )
}

fn late() -> ApiProblem {
    ApiProblem::new(
        StatusCode::UNAUTHORIZED,
        codes::WEBHOOK_LATE,
        "the delivery was signed too long ago, or in the future",
    )
}

fn too_large() -> ApiProblem {
    ApiProblem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        codes::BODY_TOO_LARGE,
        "the body of the delivery is larger than the webhook allows",
    )
}

/// The body as a value: JSON, or else the text itself.
fn read_body(body: &[u8]) -> Result<Value, ApiProblem> {
    let Ok(text) = std::str::from_utf8(body) else {
        return Err(ApiProblem::bad_request("the body is neither JSON nor text"));
    };
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        // Nothing here is wrong with the JSON but its depth, or what is behind that.
        Err(error) if error.to_string().contains("recursion limit") => Err(ApiProblem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            codes::WEBHOOK_INVALID,
            "the JSON of the body is nested too deep: 127 levels are allowed",
        )),
        Err(_) => Ok(Value::String(text.to_owned())),
    }
}

/// The id of a delivery: the sender's, or the hash of what was signed.
fn delivery_id(
    webhook: &WebhookDocument,
    verified: Verified,
    headers: &HeaderMap,
    payload: &Value,
    body: &[u8],
) -> String {
    let header = |name: &str| {
        let value = headers.get(name)?;
        let text = value.to_str().map(str::to_owned);
        Some(text.unwrap_or_else(|_| keys::hex(value.as_bytes())))
    };
    let named = webhook.delivery_header.as_deref().and_then(header);
    let own = match &webhook.signature {
        Signature::Github {} => header("x-github-delivery"),
        Signature::Stripe(_) => payload.get("id").and_then(Value::as_str).map(str::to_owned),
        Signature::Generic(_) => None,
    };
    let good = |id: &str| {
        let fits = (1..=MAX_ID).contains(&id.len()) && !id.contains('|');
        fits && !id.chars().any(char::is_control)
    };
    match named.or(own).filter(|id| !id.is_empty()) {
        Some(id) if good(&id) => id,
        // Different ids stay different, whatever they look like.
        Some(id) => keys::hex(&Sha256::digest(id.as_bytes())),
        None => {
            let mut hash = Sha256::new();
            hash.update(verified.signed_at.unwrap_or_default().to_be_bytes());
            hash.update(body);
            keys::hex(&hash.finalize())
        }
    }
}

/// The headers that the webhook hands on.
fn handed_on(webhook: &WebhookDocument, headers: &HeaderMap) -> Map<String, Value> {
    let value = |name: &String| {
        let value = headers.get(name)?.to_str().ok()?;
        Some((name.clone(), json!(value)))
    };
    webhook.headers.iter().filter_map(value).collect()
}

async fn started(
    app: &Arc<App>,
    tenant: &str,
    webhook: &WebhookDocument,
    target: &StartTarget,
    delivery: &str,
    (cause, trace): (Value, Option<TraceContext>),
) -> Result<AcceptedDelivery, ApiProblem> {
    let context = RunContext {
        trace,
        tenant_id: tenant.to_owned(),
        project_id: webhook.project.clone(),
        environment_id: webhook.environment.clone(),
        triggered_by: Some(format!("webhook {}", webhook.name)),
        trigger_source: Some("api".to_owned()),
        ..RunContext::default()
    };
    let (plans, of, wanted) = (app.plans.clone(), tenant.to_owned(), target.clone());
    let project = webhook.project.clone();
    let plan = app.ask(move |store| {
        let registry = Registry::of_project(store, Some(&project));
        registry.plan_of_new_run(&plans, &of, &wanted.definition, wanted.revision)
    });
    let plan = plan.await?;
    let params = params_with(&target.params.clone().unwrap_or_else(|| json!({})), &cause);
    let cause = format!("webhook|{}|{delivery}", webhook.name);
    let run_id = run_id_of_trigger(&plan, &context, &cause);
    let request = StartRequest {
        params,
        ..StartRequest::default()
    };
    // Stripe changes counters inside an event that it sends again.
    let compares = !matches!(webhook.signature, Signature::Stripe(_));
    let (known, asked) = (run_id.clone(), request.clone());
    let is_known = app.ask(move |store| -> Result<bool, Error> {
        let is_known = store.find(&known)?.is_some();
        if is_known && compares {
            check_repeated_parameter(store, &known, "payload", &asked)?;
        }
        Ok(is_known)
    });
    if is_known.await? {
        return Ok(AcceptedDelivery {
            delivery_id: delivery.to_owned(),
            created: false,
            run_id: Some(run_id),
        });
    }
    let params = request.params;
    let params = match large_params::may_be_large(&plan, &params) {
        true => large_params::shrink(&app.artifacts, &run_id, &plan, params)
            .await
            .map_err(|error| ApiProblem::internal(&error))?,
        false => params,
    };
    let acting = Arc::clone(app);
    let started = app
        .block(move || start_once(&acting, &plan, context, &cause, params))
        .await?;
    Ok(AcceptedDelivery {
        delivery_id: delivery.to_owned(),
        created: started.created,
        run_id: Some(started.run_id),
    })
}

async fn delivered(
    app: &Arc<App>,
    tenant: &str,
    webhook: &WebhookDocument,
    target: &EventTarget,
    delivery: &str,
    payload: Value,
) -> Result<AcceptedDelivery, ApiProblem> {
    let key = match &target.key_from {
        None => TRIGGER_KEY.to_owned(),
        Some(pointer) => match payload.pointer(pointer) {
            Some(Value::String(key)) => key.clone(),
            Some(Value::Number(key)) => key.to_string(),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => {
                return Err(ApiProblem::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    codes::WEBHOOK_INVALID,
                    format!("the body has no key at {pointer}"),
                ));
            }
        },
    };
    let event = ExternalEvent {
        tenant: tenant.to_owned(),
        id: format!("{}:{delivery}", webhook.name),
        event_type: target.event_type.clone(),
        key,
        payload,
    };
    let (answer, answered) = oneshot::channel();
    app.engine.deliver_with(event, move |delivered| {
        // The caller may be gone.
        let _ = answer.send(delivered);
    })?;
    let stopping = || ApiProblem::from(stepwell_engine::Error::Stopping);
    let result = answered.await.map_err(|_| stopping())??;
    // It may trigger a run.
    app.due.event();
    Ok(AcceptedDelivery {
        delivery_id: delivery.to_owned(),
        created: match result {
            Delivered::ToRun(_) | Delivered::Kept => true,
            Delivered::Again => false,
        },
        run_id: None,
    })
}
