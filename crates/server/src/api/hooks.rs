//! Deliveries of other systems to webhooks. Anyone may send them: the signature is the access. Whoever has no right signature
//! does not learn whether there is such a webhook.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use stepwell_kernel::keys;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{PathOf, whole};
use crate::app::App;
use crate::codes;
use crate::intake::{self, AcceptedDelivery, Door};
use crate::problem::ApiProblem;
use crate::telemetry::CallerTrace;
use crate::webhooks::{Refusal, Signature, Target, Verified, WebhookDocument, Webhooks, verify};

/// The longest id of a delivery that is taken as it is.
const MAX_ID: usize = 200;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(hook))
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
        .ask(move |store| Webhooks::new(store).find(&of, &called))
        .await?;
    let found = found.map(|it| it.0).filter(|it| it.enabled);
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
    let door = Door {
        kind: "webhook",
        name: name.clone(),
        tenant,
        project: webhook.project.clone(),
        environment: webhook.environment.clone(),
        // Stripe changes counters inside an event that it sends again.
        compares: !matches!(webhook.signature, Signature::Stripe(_)),
        invalid: codes::WEBHOOK_INVALID,
    };
    let answer = match &webhook.target {
        Target::Start(start) => {
            let cause = json!({
                "payload": payload,
                "headers": handed_on,
                "trigger": { "webhook": name, "id": delivery },
            });
            let trace = trace.map(|it| it.0.0);
            intake::start(&app, &door, start, &delivery, (cause, trace)).await?
        }
        Target::Event(event) => {
            let mut payload = payload;
            if let Some(fields) = payload.as_object_mut().filter(|_| !handed_on.is_empty()) {
                fields.entry("headers").or_insert(Value::Object(handed_on));
            }
            intake::deliver(&app, &door, event, &delivery, payload).await?
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
