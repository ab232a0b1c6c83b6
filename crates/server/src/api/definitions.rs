//! Definitions by name: register, list and deprecate them. Their texts are in `definition_texts`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Body, Params, PathOf};
use super::pages::{NamedQuery, page_of};
use crate::access::Caller;
use crate::app::App;
use crate::definitions::{Deprecation, Head, NewDefinition, Registered, Registry, Revision};
use crate::problem::ApiProblem;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(register, put_definition, list_definitions))
        .routes(routes!(definition))
        .routes(routes!(deprecate))
}

/// A text to be registered.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RegisterDefinition {
    /// The text of the definition, in YAML or JSON. Its own name is the name that it is known by.
    text: String,
    /// The path of its file, such as `flows/order.yaml`: definitions find each other by these paths.
    #[serde(default)]
    file: Option<String>,
    /// The tenant that the definition belongs to, for callers that may act for all tenants.
    #[serde(default)]
    tenant: Option<String>,
}

/// A definition that was registered.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RegisteredDefinition {
    /// Whether the content is new; false if a revision has it already.
    created: bool,
    #[serde(flatten)]
    revision: RevisionRow,
}

/// One revision of a definition, without its text.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RevisionRow {
    tenant: String,
    name: String,
    /// Counts the contents of this name, from 1.
    revision: u32,
    /// Whether runs are started from this revision if nobody says which: it was registered last.
    current: bool,
    /// Whether no runs are started from this revision any more.
    deprecated: bool,
    /// Who has deprecated it, when, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    deprecation: Option<Value>,
    /// The language of the definition.
    dialect: String,
    /// The version that the definition gives itself.
    plan_version: String,
    /// The hash of the text.
    sha256: String,
    /// The hash of the compiled plan, which runs are pinned to.
    plan_hash: String,
    /// The path of its file, if the sender has named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// Who has registered this content first.
    registered_by: String,
    registered_at: String,
}

impl RevisionRow {
    pub(super) fn new(tenant: &str, head: &Head, revision: Revision) -> RevisionRow {
        let deprecation = head.deprecated.get(&revision.revision);
        RevisionRow {
            tenant: tenant.to_owned(),
            current: head.current == revision.revision,
            deprecated: deprecation.is_some(),
            deprecation: deprecation.map(|it| json!(it)),
            name: revision.name,
            revision: revision.revision,
            dialect: revision.dialect,
            plan_version: revision.plan_version,
            sha256: revision.sha256,
            plan_hash: revision.plan_hash,
            file: revision.file,
            registered_by: revision.by,
            registered_at: revision.at,
        }
    }
}

/// Register a definition. The same content again changes nothing.
///
/// Each new content of a name is its next revision; the content that was registered last is the current one.
#[utoipa::path(post, path = "/api/v1/definitions", tag = "definitions", security(("token" = ["engineer"])),
    request_body = RegisterDefinition,
    responses(
        (status = 201, description = "The content is a new revision.", body = RegisteredDefinition),
        (status = 200, description = "A revision has this content already.", body = RegisteredDefinition),
        (status = 400, body = ApiProblem), (status = 403, body = ApiProblem), (status = 409, body = ApiProblem),
        (status = 413, body = ApiProblem), (status = 415, body = ApiProblem), (status = 422, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn register(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(body): Body<RegisterDefinition>,
) -> Result<Response, ApiProblem> {
    registered(&app, &caller, body).await
}

/// Register a definition: the same as POST.
#[utoipa::path(put, path = "/api/v1/definitions", tag = "definitions", security(("token" = ["engineer"])),
    request_body = RegisterDefinition,
    responses(
        (status = 201, description = "The content is a new revision.", body = RegisteredDefinition),
        (status = 200, description = "A revision has this content already.", body = RegisteredDefinition),
        (status = 400, body = ApiProblem), (status = 403, body = ApiProblem), (status = 409, body = ApiProblem),
        (status = 413, body = ApiProblem), (status = 415, body = ApiProblem), (status = 422, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn put_definition(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(body): Body<RegisterDefinition>,
) -> Result<Response, ApiProblem> {
    registered(&app, &caller, body).await
}

async fn registered(
    app: &Arc<App>,
    caller: &Caller,
    body: RegisterDefinition,
) -> Result<Response, ApiProblem> {
    let tenant = caller.one_tenant(body.tenant)?;
    let new = NewDefinition {
        tenant: tenant.clone(),
        project: caller.project.clone(),
        file: body.file,
        text: body.text,
        by: caller.name.clone(),
    };
    let (now, settings) = (app.now(), app.settings.clone());
    let Registered {
        head,
        revision,
        created,
    } = app
        .ask(move |store| Registry::new(store).register(new, &settings, now))
        .await?;
    app.due.changed();
    let status = match created {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    let location = format!(
        "/api/v1/definitions/{}/revisions/{}",
        percent(&revision.name),
        revision.revision
    );
    let answer = RegisteredDefinition {
        created,
        revision: RevisionRow::new(&tenant, &head, revision),
    };
    Ok((status, [(header::LOCATION, location)], Json(answer)).into_response())
}

/// A name as a part of an address.
pub(super) fn percent(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Where a page begins: a tenant and a key, which may have any characters.
/// A page of definitions.
#[derive(Debug, Serialize, ToSchema)]
struct DefinitionPage {
    definitions: Vec<DefinitionRow>,
    /// The `after` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A definition in a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DefinitionRow {
    tenant: String,
    /// The project that the definition belongs to; absent: all projects of the tenant share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<String>,
    name: String,
    /// The revision that runs are started from if nobody says which.
    current: u32,
    /// How many revisions there are.
    revisions: u32,
    /// Whether the current revision is deprecated.
    deprecated: bool,
    dialect: String,
    /// The version that the current revision gives itself.
    plan_version: String,
    /// Whether runs are started by a trigger of the definition.
    has_trigger: bool,
}

/// List the definitions by name.
#[utoipa::path(get, path = "/api/v1/definitions", tag = "definitions", security(("token" = ["view"])),
    params(NamedQuery),
    responses((status = 200, body = DefinitionPage), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn list_definitions(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<NamedQuery>,
) -> Result<Json<DefinitionPage>, ApiProblem> {
    let page = query.page()?;
    let (after, rows) = (page.after.clone(), page.rows());
    let (tenant, project) = (caller.tenant_of(query.tenant)?, caller.project);
    let heads = app
        .ask(move |store| {
            let registry = Registry::of_project(store, project.as_deref());
            registry.heads(tenant, after, rows)
        })
        .await?;
    let (heads, next) = page.cut(heads, |it| (&it.0, &it.1.name));
    let row = |(tenant, head): (String, Head)| DefinitionRow {
        tenant,
        deprecated: head.deprecated.contains_key(&head.current),
        project: head.project,
        name: head.name,
        current: head.current,
        revisions: head.latest,
        dialect: head.dialect,
        plan_version: head.plan_version,
        has_trigger: head.has_trigger,
    };
    Ok(Json(DefinitionPage {
        definitions: heads.into_iter().map(row).collect(),
        next,
    }))
}

/// Which revisions to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RevisionsQuery {
    /// The tenant of the definition, for callers that may see all tenants.
    tenant: Option<String>,
    /// Only revisions after this number.
    #[serde(default)]
    after: u32,
    /// At most this many; 50 if absent, 500 at most.
    limit: Option<usize>,
}

/// A definition and its revisions.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DefinitionRevisions {
    tenant: String,
    name: String,
    /// The revision that runs are started from if nobody says which.
    current: u32,
    /// The revisions of this page, oldest first.
    revisions: Vec<RevisionRow>,
    /// The `after` of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u32>,
}

/// Read a definition and its revisions.
#[utoipa::path(get, path = "/api/v1/definitions/{name}", tag = "definitions", security(("token" = ["view"])),
    params(("name" = String, Path, description = "The name of the definition."), RevisionsQuery),
    responses((status = 200, body = DefinitionRevisions), (status = 400, body = ApiProblem),
        (status = 403, body = ApiProblem), (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn definition(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    Params(query): Params<RevisionsQuery>,
) -> Result<Json<DefinitionRevisions>, ApiProblem> {
    let limit = page_of(query.limit)?;
    let (tenant, project) = (caller.one_tenant(query.tenant)?, caller.project);
    let answer = app
        .ask(move |store| {
            let registry = Registry::of_project(store, project.as_deref());
            let head = registry.head(&tenant, &name)?;
            let found = registry.revisions(&tenant, &name, query.after, limit)?;
            let last = found.last().map(|it| it.revision);
            let row = |it| RevisionRow::new(&tenant, &head, it);
            Ok::<_, ApiProblem>(DefinitionRevisions {
                revisions: found.into_iter().map(row).collect(),
                next: last.filter(|it| *it < head.latest),
                current: head.current,
                tenant,
                name,
            })
        })
        .await?;
    Ok(Json(answer))
}

/// Whether a revision is deprecated from now on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeprecateRevision {
    /// False takes the deprecation back; true if absent.
    #[serde(default = "yes")]
    deprecated: bool,
    /// The reason, which callers are told who want to start a run.
    #[serde(default)]
    reason: Option<String>,
    /// The tenant of the definition, for callers that may act for all tenants.
    #[serde(default)]
    tenant: Option<String>,
}

fn yes() -> bool {
    true
}

/// Deprecate a revision: no new runs are started from it. Runs that are under way go on.
#[utoipa::path(post, path = "/api/v1/definitions/{name}/revisions/{revision}/deprecate", tag = "definitions",
    security(("token" = ["engineer"])),
    params(("name" = String, Path, description = "The name of the definition."),
        ("revision" = u32, Path, description = "The number of the revision.")),
    request_body = DeprecateRevision,
    responses((status = 200, body = RevisionRow), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 413, body = ApiProblem), (status = 415, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn deprecate(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf((name, number)): PathOf<(String, u32)>,
    Body(body): Body<DeprecateRevision>,
) -> Result<Json<RevisionRow>, ApiProblem> {
    let tenant = caller.one_tenant(body.tenant)?;
    let now = app.now();
    let deprecation = body.deprecated.then(|| Deprecation {
        by: caller.name.clone(),
        at: now.to_rfc3339(),
        reason: body.reason,
    });
    let project = caller.project;
    let row = app.ask(move |store| {
        let registry = Registry::of_project(store, project.as_deref());
        let head = registry.deprecate((&tenant, &name, number), deprecation.as_ref(), now)?;
        let revision = registry.revision(&tenant, &name, number)?;
        Ok::<_, ApiProblem>(RevisionRow::new(&tenant, &head, revision))
    });
    let row = row.await?;
    app.due.changed();
    Ok(Json(row))
}
