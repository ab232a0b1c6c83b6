//! Webhooks as they are configured. What they receive is in `hooks`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use stepwell_worker::secrets::is_reference;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Body, Params};
use super::definitions::percent;
use super::events::EVENTS_OF_A_TENANT;
use super::pages::{NamedQuery, TenantQuery};
use super::schedules::fixed_params;
use crate::access::{Caller, LOCAL};
use crate::app::App;
use crate::definitions::Registry;
use crate::problem::ApiProblem;
use crate::webhooks::{Signature, Target, WebhookDocument, Webhooks, invalid, unknown};

/// The largest body of a webhook, if nobody says.
const MAX_BODY: usize = 1024 * 1024;
/// How many headers a webhook may hand on.
const MAX_HEADERS: usize = 20;
/// Headers with secrets, which no webhook hands on.
const SECRET_HEADERS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list_webhooks))
        .routes(routes!(put_webhook, webhook, delete_webhook))
}

/// A webhook to be kept.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PutWebhook {
    /// What each delivery does.
    target: Target,
    /// How deliveries are signed.
    signature: Signature,
    /// A reference to the secret of the signatures, such as `${secret:GITHUB_HOOK}` or `env://GITHUB_HOOK`: never the secret.
    secret: String,
    /// A reference to the secret before, which is accepted too while the sender changes to the new one.
    #[serde(default)]
    previous_secret: Option<String>,
    /// The header with the id of a delivery: one that is sent twice counts once. Absent: `X-GitHub-Delivery`, the `id` of
    /// Stripe's body, or the hash of the signed content.
    #[serde(default)]
    delivery_header: Option<String>,
    /// Headers that runs get in `headers`, such as `X-GitHub-Event`.
    #[serde(default)]
    headers: Vec<String>,
    /// The largest body in bytes; 1 MiB if absent.
    #[serde(default)]
    max_body: Option<usize>,
    /// Whether deliveries are accepted; true if absent.
    #[serde(default = "yes")]
    enabled: bool,
    /// The project of the webhook and its runs, for callers that may act for all projects. Absent: as it is; of a new
    /// webhook the project of its definition.
    #[serde(default)]
    project: Option<String>,
    #[serde(default)]
    environment: Option<String>,
    /// The tenant of the webhook, for callers that may act for all tenants.
    #[serde(default)]
    tenant: Option<String>,
}

fn yes() -> bool {
    true
}

/// A webhook as it is now. Its secrets are not shown.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct WebhookView {
    tenant: String,
    name: String,
    /// Where deliveries are sent to, on this server.
    path: String,
    target: Target,
    signature: Signature,
    /// Whether a secret before the current one is accepted.
    has_previous_secret: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_header: Option<String>,
    headers: Vec<String>,
    /// The largest body in bytes.
    max_body: usize,
    enabled: bool,
    project: String,
    environment: String,
    /// Who has changed the webhook last, and when.
    changed_by: String,
    changed_at: String,
}

impl WebhookView {
    fn new(tenant: &str, document: WebhookDocument) -> WebhookView {
        WebhookView {
            path: format!("/hooks/{}/{}", percent(tenant), percent(&document.name)),
            tenant: tenant.to_owned(),
            name: document.name,
            target: document.target,
            signature: document.signature,
            has_previous_secret: document.secrets.len() > 1,
            delivery_header: document.delivery_header,
            headers: document.headers,
            max_body: document.max_body,
            enabled: document.enabled,
            project: document.project,
            environment: document.environment,
            changed_by: document.by,
            changed_at: document.changed_at,
        }
    }
}

/// The name of a header in small letters.
fn header_name(text: &str) -> Result<String, ApiProblem> {
    let name = text.parse::<HeaderName>();
    let name = name.map_err(|_| invalid(format!("{text:?} is no name of a header")))?;
    Ok(name.as_str().to_owned())
}

fn check_signature(signature: &Signature) -> Result<(), ApiProblem> {
    let window = match signature {
        Signature::Github {} => None,
        Signature::Stripe(stripe) => stripe.window_seconds,
        Signature::Generic(generic) => {
            header_name(&generic.header)?;
            generic
                .timestamp_header
                .as_deref()
                .map(header_name)
                .transpose()?;
            generic.window_seconds
        }
    };
    match window.is_none_or(|it| (1..=3600).contains(&it)) {
        true => Ok(()),
        false => Err(invalid("windowSeconds: a number from 1 to 3600 is needed")),
    }
}

/// Checks what a webhook or a source does with a message.
pub(super) fn check_target(target: &mut Target) -> Result<(), ApiProblem> {
    match target {
        Target::Start(start) => {
            start.params = start
                .params
                .take()
                .map(|it| fixed_params(Some(it)))
                .transpose()?;
            let has = |key: &str| {
                start
                    .params
                    .as_ref()
                    .is_some_and(|it| it.get(key).is_some())
            };
            match has("payload") || has("headers") {
                true => Err(invalid(
                    "params: payload and headers come from each delivery",
                )),
                false => Ok(()),
            }
        }
        Target::Event(event) => {
            let key = event.key_from.as_deref();
            let is_pointer = key.is_none_or(|it| it.starts_with('/'));
            match is_pointer && (1..=200).contains(&event.event_type.len()) {
                true => Ok(()),
                false => Err(invalid(
                    "target.event: a type of 1 to 200 bytes is needed, and keyFrom begins with /",
                )),
            }
        }
    }
}

/// Create or change a webhook.
#[utoipa::path(put, path = "/api/v1/webhooks/{name}", tag = "webhooks", security(("token" = ["engineer"])),
    params(("name" = String, Path, description = "The name of the webhook.")), request_body = PutWebhook,
    responses((status = 200, description = "The webhook was changed.", body = WebhookView),
        (status = 201, description = "The webhook was created.", body = WebhookView),
        (status = 400, body = ApiProblem), (status = 403, body = ApiProblem), (status = 404, body = ApiProblem),
        (status = 409, body = ApiProblem), (status = 413, body = ApiProblem), (status = 415, body = ApiProblem),
        (status = 422, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn put_webhook(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    Body(mut body): Body<PutWebhook>,
) -> Result<Response, ApiProblem> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !(1..=100).contains(&name.len()) || !name.chars().all(good) {
        return Err(invalid(
            "the name of a webhook has 1 to 100 letters from A to Z, digits, -, _ and .",
        ));
    }
    check_signature(&body.signature)?;
    check_target(&mut body.target)?;
    let secrets: Vec<String> = [Some(body.secret), body.previous_secret]
        .into_iter()
        .flatten()
        .collect();
    for secret in &secrets {
        if !is_reference(secret) {
            return Err(invalid(
                "secret: a reference such as ${secret:NAME} or env://NAME is needed",
            ));
        }
        if let Err(error) = app.secrets.resolve(secret).await {
            return Err(invalid(format!(
                "secret: {}: this server cannot resolve {secret}",
                error.code()
            )));
        }
    }
    let headers = body.headers.iter().map(|it| header_name(it));
    let headers = headers.collect::<Result<Vec<_>, _>>()?;
    if headers.len() > MAX_HEADERS
        || headers
            .iter()
            .any(|it| SECRET_HEADERS.contains(&it.as_str()))
    {
        return Err(invalid(format!(
            "headers: at most {MAX_HEADERS}, without {}",
            SECRET_HEADERS.join(", ")
        )));
    }
    let max_body = body.max_body.unwrap_or(MAX_BODY);
    if !(1..=app.settings.max_body).contains(&max_body) {
        let most = app.settings.max_body;
        return Err(invalid(format!(
            "maxBody: a number from 1 to {most} is needed"
        )));
    }
    if let Target::Event(_) = &body.target {
        caller.whole_tenant(EVENTS_OF_A_TENANT)?;
    }
    let tenant = caller.one_tenant(body.tenant)?;
    let project = caller.project_of(body.project)?;
    let (own, now) = (caller.context(), app.now());
    let mut document = WebhookDocument {
        name,
        target: body.target,
        signature: body.signature,
        secrets,
        delivery_header: body
            .delivery_header
            .as_deref()
            .map(header_name)
            .transpose()?,
        headers,
        max_body,
        enabled: body.enabled,
        project: String::new(),
        environment: body.environment.unwrap_or(own.environment_id),
        by: caller.name.clone(),
        changed_at: now.to_rfc3339(),
    };
    let plans = app.plans.clone();
    let (created, view) = app
        .ask(move |store| {
            let webhooks = Webhooks::new(store);
            let known = webhooks.find(&tenant, &document.name)?;
            document.project = match (project, known, &document.target) {
                (Some(project), _, _) => project,
                // Nobody says of which project it is from now on.
                (None, Some((known, _)), _) => known.project,
                (None, None, Target::Event(_)) => LOCAL.to_owned(),
                (None, None, Target::Start(start)) => Registry::new(store)
                    .project(&tenant, &start.definition)?
                    .unwrap_or_else(|| LOCAL.to_owned()),
            };
            if let Target::Start(start) = &document.target {
                // A webhook of a definition that nobody knows is most likely a typing mistake.
                let registry = Registry::of_project(store, Some(&document.project));
                registry.plan_of_new_run(&plans, &tenant, &start.definition, start.revision)?;
            }
            let whose = (tenant.as_str(), caller.project.as_deref());
            let created = webhooks.replace(whose, &document, now)?;
            Ok::<_, ApiProblem>((created, WebhookView::new(&tenant, document)))
        })
        .await?;
    let status = match created {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    Ok((status, Json(view)).into_response())
}

/// A page of webhooks.
#[derive(Debug, Serialize, ToSchema)]
struct WebhookPage {
    webhooks: Vec<WebhookView>,
    /// The `after` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List the webhooks by name.
#[utoipa::path(get, path = "/api/v1/webhooks", tag = "webhooks", security(("token" = ["engineer"])),
    params(NamedQuery),
    responses((status = 200, body = WebhookPage), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn list_webhooks(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<NamedQuery>,
) -> Result<Json<WebhookPage>, ApiProblem> {
    let page = query.page()?;
    let tenant = caller.tenant_of(query.tenant)?;
    let page = app.ask(move |store| {
        let whose = (tenant, caller.project.as_deref());
        let found = Webhooks::new(store).list(whose, page.after.clone(), page.rows())?;
        let (found, next) = page.cut(found, |it| (&it.0, &it.1.name));
        let view = |(tenant, it, _): (String, WebhookDocument, u64)| WebhookView::new(&tenant, it);
        Ok::<_, ApiProblem>(WebhookPage {
            webhooks: found.into_iter().map(view).collect(),
            next,
        })
    });
    Ok(Json(page.await?))
}

/// Read a webhook, without its secrets.
#[utoipa::path(get, path = "/api/v1/webhooks/{name}", tag = "webhooks", security(("token" = ["engineer"])),
    params(("name" = String, Path, description = "The name of the webhook."), TenantQuery),
    responses((status = 200, body = WebhookView), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn webhook(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    Params(query): Params<TenantQuery>,
) -> Result<Json<WebhookView>, ApiProblem> {
    let tenant = caller.one_tenant(query.tenant)?;
    let view = app.ask(
        move |store| match Webhooks::new(store).find(&tenant, &name)? {
            Some((document, _)) if caller.is_of(&tenant, &document.project) => {
                Ok(WebhookView::new(&tenant, document))
            }
            Some(_) | None => Err(unknown(&name)),
        },
    );
    Ok(Json(view.await?))
}

/// Delete a webhook: its deliveries are refused from now on.
#[utoipa::path(delete, path = "/api/v1/webhooks/{name}", tag = "webhooks", security(("token" = ["engineer"])),
    params(("name" = String, Path, description = "The name of the webhook."), TenantQuery),
    responses((status = 204), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn delete_webhook(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    Params(query): Params<TenantQuery>,
) -> Result<StatusCode, ApiProblem> {
    let (tenant, project) = (caller.one_tenant(query.tenant)?, caller.project);
    app.ask(move |store| Webhooks::new(store).delete(&tenant, project.as_deref(), &name))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
