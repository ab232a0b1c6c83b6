//! Sources as they are configured: queues, streams and topics of brokers whose messages start runs or deliver events.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use stepwell_bus::{is_sink_name, open_source, shown_address};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Body, Params};
use super::operations::bad_address;
use super::pages::{NamedQuery, TenantQuery};
use super::webhooks::check_target;
use crate::access::Caller;
use crate::app::App;
use crate::definitions::Registry;
use crate::problem::ApiProblem;
use crate::sources::{SourceDocument, SourceState, Sources, invalid, unknown};
use crate::webhooks::Target;

/// The largest body of a message, if nobody says.
const MAX_BODY: usize = 1024 * 1024;

/// Why a caller with a project has no sources.
const OF_A_TENANT: &str =
    "sources are for all projects of the tenant: use a token without a project";

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list_sources))
        .routes(routes!(put_source, source, delete_source))
}

/// A source to be kept.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PutSource {
    /// The address of the broker, such as `nats://HOST/STREAM`. Never with a password: `auth` names a secret. Absent: a
    /// source that is there keeps its address, of which answers show only a part.
    #[serde(default)]
    address: Option<String>,
    /// What each message does.
    target: Target,
    /// The largest body of a message in bytes; 1 MiB if absent.
    #[serde(default)]
    max_body: Option<usize>,
    /// Whether messages are taken; true if absent.
    #[serde(default = "yes")]
    enabled: bool,
    #[serde(default)]
    environment: Option<String>,
    /// The tenant of the source, for callers that may act for all tenants.
    #[serde(default)]
    tenant: Option<String>,
}

fn yes() -> bool {
    true
}

/// A source as it is now.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SourceView {
    tenant: String,
    name: String,
    /// The address, without user and options; what names the place at the broker is kept.
    address: String,
    target: Target,
    /// The largest body of a message in bytes.
    max_body: usize,
    enabled: bool,
    project: String,
    environment: String,
    /// Who has changed the source last, and when.
    changed_by: String,
    changed_at: String,
    /// The source at the server that is asked.
    state: SourceState,
}

impl SourceView {
    fn new(app: &App, tenant: &str, document: SourceDocument) -> SourceView {
        SourceView {
            state: app.sources.get(tenant, &document.name),
            address: shown_address(&document.address),
            tenant: tenant.to_owned(),
            name: document.name,
            target: document.target,
            max_body: document.max_body,
            enabled: document.enabled,
            project: document.project,
            environment: document.environment,
            changed_by: document.by,
            changed_at: document.changed_at,
        }
    }
}

/// Create or change a source. Every server of the store reads from it within seconds.
#[utoipa::path(put, path = "/api/v1/sources/{name}", tag = "sources", security(("token" = ["administer"])),
    params(("name" = String, Path, description = "The name of the source: letters, digits, `-`, `_` and `.`.")),
    request_body = PutSource,
    responses((status = 200, description = "The source was changed.", body = SourceView),
        (status = 201, description = "The source was created.", body = SourceView),
        (status = 400, body = ApiProblem), (status = 403, body = ApiProblem), (status = 404, body = ApiProblem),
        (status = 409, body = ApiProblem), (status = 413, body = ApiProblem), (status = 415, body = ApiProblem),
        (status = 422, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn put_source(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    Body(mut body): Body<PutSource>,
) -> Result<Response, ApiProblem> {
    if !is_sink_name(&name) {
        return Err(invalid(
            "the name of a source has 1 to 100 letters from A to Z, digits, -, _ and .",
        ));
    }
    check_target(&mut body.target)?;
    if let Some(address) = &body.address {
        open_source(address, &app.around).map_err(|why| bad_address(&why, invalid))?;
    }
    let max_body = body.max_body.unwrap_or(MAX_BODY);
    if !(1..=app.settings.max_body).contains(&max_body) {
        let most = app.settings.max_body;
        return Err(invalid(format!(
            "maxBody: a number from 1 to {most} is needed"
        )));
    }
    caller.whole_tenant(OF_A_TENANT)?;
    let tenant = caller.one_tenant(body.tenant)?;
    let (own, now) = (caller.context(), app.now());
    let mut document = SourceDocument {
        name,
        address: body.address.unwrap_or_default(),
        target: body.target,
        max_body,
        enabled: body.enabled,
        project: own.project_id,
        environment: body.environment.unwrap_or(own.environment_id),
        by: caller.name.clone(),
        changed_at: now.to_rfc3339(),
    };
    let plans = app.plans.clone();
    let (tenant, created, document) = app
        .ask(move |store| {
            if document.address.is_empty() {
                let known = Sources::new(store).find(&tenant, &document.name)?;
                let known = known.ok_or_else(|| invalid("address: a new source needs one"))?;
                document.address = known.0.address;
            }
            if let Target::Start(start) = &document.target {
                // A source of a definition that nobody knows is most likely a typing mistake.
                let of = Registry::new(store).project(&tenant, &start.definition)?;
                document.project = of.unwrap_or(document.project);
                let registry = Registry::of_project(store, Some(&document.project));
                registry.plan_of_new_run(&plans, &tenant, &start.definition, start.revision)?;
            }
            let created = Sources::new(store).replace((&tenant, None), &document, now)?;
            Ok::<_, ApiProblem>((tenant, created, document))
        })
        .await?;
    let status = match created {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    Ok((status, Json(SourceView::new(&app, &tenant, document))).into_response())
}

/// A page of sources.
#[derive(Debug, Serialize, ToSchema)]
struct SourcePage {
    sources: Vec<SourceView>,
    /// The `after` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List the sources by name.
#[utoipa::path(get, path = "/api/v1/sources", tag = "sources", security(("token" = ["administer"])),
    params(NamedQuery),
    responses((status = 200, body = SourcePage), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn list_sources(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<NamedQuery>,
) -> Result<Json<SourcePage>, ApiProblem> {
    let page = query.page()?;
    caller.whole_tenant(OF_A_TENANT)?;
    let tenant = caller.tenant_of(query.tenant)?;
    let (after, rows) = (page.after.clone(), page.rows());
    let found = app
        .ask(move |store| Sources::new(store).list((tenant, None), after, rows))
        .await?;
    let (found, next) = page.cut(found, |it| (&it.0, &it.1.name));
    let view = |(tenant, it, _): (String, SourceDocument, u64)| SourceView::new(&app, &tenant, it);
    Ok(Json(SourcePage {
        sources: found.into_iter().map(view).collect(),
        next,
    }))
}

/// Read a source, with its state at this server.
#[utoipa::path(get, path = "/api/v1/sources/{name}", tag = "sources", security(("token" = ["administer"])),
    params(("name" = String, Path, description = "The name of the source."), TenantQuery),
    responses((status = 200, body = SourceView), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn source(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    Params(query): Params<TenantQuery>,
) -> Result<Json<SourceView>, ApiProblem> {
    caller.whole_tenant(OF_A_TENANT)?;
    let tenant = caller.one_tenant(query.tenant)?;
    let (of, called) = (tenant.clone(), name.clone());
    let found = app
        .ask(move |store| Sources::new(store).find(&of, &called))
        .await?;
    match found {
        Some((document, _)) => Ok(Json(SourceView::new(&app, &tenant, document))),
        None => Err(unknown(&name)),
    }
}

/// Delete a source: its messages stay in the broker from now on.
#[utoipa::path(delete, path = "/api/v1/sources/{name}", tag = "sources", security(("token" = ["administer"])),
    params(("name" = String, Path, description = "The name of the source."), TenantQuery),
    responses((status = 204), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn delete_source(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    Params(query): Params<TenantQuery>,
) -> Result<StatusCode, ApiProblem> {
    caller.whole_tenant(OF_A_TENANT)?;
    let tenant = caller.one_tenant(query.tenant)?;
    app.ask(move |store| Sources::new(store).delete(&tenant, None, &name))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
