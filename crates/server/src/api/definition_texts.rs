//! Texts of definitions: read a revision, its net, compare two, and check a text that is not kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stepwell_dialects::secret_literals::{masked, masked_text};
use stepwell_kernel::plan::Plan;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Body, Params, PathOf};
use super::definitions::RevisionRow;
use super::described::NetBody;
use crate::access::Caller;
use crate::app::App;
use crate::definitions::{
    Checked, FoundProblem, Head, Permits, Registry, Revision, check_file, registered, unified,
};
use crate::problem::ApiProblem;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(revision))
        .routes(routes!(net))
        .routes(routes!(diff))
        .routes(routes!(check))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TenantQuery {
    /// The tenant of the definition, for callers that may see all tenants.
    tenant: Option<String>,
}

/// One revision with its text.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RevisionText {
    #[serde(flatten)]
    row: RevisionRow,
    /// The text as it was registered; secrets that are written out in it are masked.
    source: String,
    /// The inputs that the definition declares, with their defaults.
    #[schema(value_type = Object)]
    inputs: Value,
    /// Warnings and advice, with line and column.
    problems: Vec<FoundProblem>,
}

/// A revision and its head, for a caller.
async fn found(
    app: &Arc<App>,
    caller: &Caller,
    (name, number): (String, u32),
    tenant: Option<String>,
) -> Result<(String, Head, Revision), ApiProblem> {
    let (tenant, project) = (caller.one_tenant(tenant)?, caller.project.clone());
    app.ask(move |store| {
        let registry = Registry::of_project(store, project.as_deref());
        let head = registry.head(&tenant, &name)?;
        let revision = registry.revision(&tenant, &name, number)?;
        Ok::<_, ApiProblem>((tenant, head, revision))
    })
    .await
}

/// A net as JSON, with the secrets that are written out in it.
fn whole(plan: &Plan) -> Result<Value, ApiProblem> {
    serde_json::to_value(plan.net()).map_err(|error| ApiProblem::internal(&error))
}

/// The net of a plan without the secrets that are written out in it.
pub(super) fn shown_net(plan: &Plan) -> Result<Value, ApiProblem> {
    if plan.policy().hidden.is_empty() {
        return whole(plan);
    }
    let mut net = masked(&whole(plan)?);
    if let Some(policy) = net.get_mut("policy").and_then(Value::as_object_mut) {
        // The list of these secrets.
        policy.remove("hidden");
    }
    Ok(net)
}

/// The text of a revision without the secrets in it.
fn shown_text(revision: &Revision) -> String {
    let checked = Checked::of(
        Permits::default(),
        revision.file.as_deref(),
        &revision.source,
    );
    let net = checked.loaded.plan.as_ref().map(whole);
    match net {
        Some(Ok(net)) => masked_text(&net, &revision.source),
        Some(Err(_)) | None => revision.source.clone(),
    }
}

/// Read one revision: its text, the inputs that it declares, and advice.
#[utoipa::path(get, path = "/api/v1/definitions/{name}/revisions/{revision}", tag = "definitions",
    security(("token" = ["view"])),
    params(("name" = String, Path, description = "The name of the definition."),
        ("revision" = u32, Path, description = "The number of the revision."), TenantQuery),
    responses((status = 200, body = RevisionText), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn revision(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(path): PathOf<(String, u32)>,
    Params(query): Params<TenantQuery>,
) -> Result<Json<RevisionText>, ApiProblem> {
    let (tenant, head, revision) = found(&app, &caller, path, query.tenant).await?;
    let answer = app.block(move || {
        let checked = Checked::of(
            Permits::default(),
            revision.file.as_deref(),
            &revision.source,
        );
        let inputs = checked.loaded.plan.as_ref().map(inputs);
        Ok::<_, ApiProblem>(RevisionText {
            source: shown_text(&revision),
            inputs: inputs.unwrap_or_else(|| json!({})),
            problems: checked.problems,
            row: RevisionRow::new(&tenant, &head, revision),
        })
    });
    Ok(Json(answer.await?))
}

/// The inputs that a plan declares, with their defaults.
fn inputs(plan: &Plan) -> Value {
    let workload = &plan.net().workload;
    match workload.is_null() {
        true => json!({}),
        false => masked(workload),
    }
}

/// The compiled net of a revision.
#[derive(Debug, Serialize, ToSchema)]
struct CompiledNet {
    /// The hash of the plan.
    hash: String,
    /// The net, as `stepwell plan -o json` prints it.
    #[schema(value_type = NetBody)]
    net: Value,
}

/// Read the net that a revision compiles to.
#[utoipa::path(get, path = "/api/v1/definitions/{name}/revisions/{revision}/net", tag = "definitions",
    security(("token" = ["view"])),
    params(("name" = String, Path, description = "The name of the definition."),
        ("revision" = u32, Path, description = "The number of the revision."), TenantQuery),
    responses((status = 200, body = CompiledNet), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 422, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn net(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(path): PathOf<(String, u32)>,
    Params(query): Params<TenantQuery>,
) -> Result<Json<CompiledNet>, ApiProblem> {
    let (tenant, _, revision) = found(&app, &caller, path, query.tenant).await?;
    let plans = app.plans.clone();
    let answer = app.ask(move |store| {
        let registry = Registry::new(store);
        let plan = plans.plan(&registry, &tenant, &revision.name, revision.revision)?;
        Ok::<_, ApiProblem>(CompiledNet {
            hash: plan.hash().to_owned(),
            net: shown_net(&plan)?,
        })
    });
    Ok(Json(answer.await?))
}

/// Which revisions to compare.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DiffQuery {
    /// The number of the older revision.
    from: u32,
    /// The number of the newer revision.
    to: u32,
    /// The tenant of the definition, for callers that may see all tenants.
    tenant: Option<String>,
}

/// The difference of two revisions.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RevisionDiff {
    name: String,
    from: u32,
    to: u32,
    /// Whether both compile to the same plan.
    same_plan: bool,
    /// The difference of the texts in the form of `diff -u`; empty if they are equal.
    diff: String,
}

/// Compare two revisions of a definition.
#[utoipa::path(get, path = "/api/v1/definitions/{name}/diff", tag = "definitions", security(("token" = ["view"])),
    params(("name" = String, Path, description = "The name of the definition."), DiffQuery),
    responses((status = 200, body = RevisionDiff), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn diff(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    Params(query): Params<DiffQuery>,
) -> Result<Json<RevisionDiff>, ApiProblem> {
    let tenant = query.tenant;
    let (_, _, old) = found(&app, &caller, (name.clone(), query.from), tenant.clone()).await?;
    let (_, _, new) = found(&app, &caller, (name.clone(), query.to), tenant).await?;
    let answer = app.block(move || {
        let called = |it: &Revision| format!("{} revision {}", it.name, it.revision);
        let diff = unified(
            (&called(&old), &shown_text(&old)),
            (&called(&new), &shown_text(&new)),
        );
        Ok::<_, ApiProblem>(RevisionDiff {
            name,
            from: old.revision,
            to: new.revision,
            same_plan: old.plan_hash == new.plan_hash,
            diff,
        })
    });
    Ok(Json(answer.await?))
}

/// A text to be checked.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CheckText {
    /// The text of the definition, in YAML or JSON. It is not kept.
    text: String,
    /// The path of its file, for messages.
    #[serde(default)]
    file: Option<String>,
    /// Whether the answer has the compiled net, as `stepwell plan -o json` prints it.
    #[serde(default)]
    net: bool,
}

/// What was found in a text.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct CheckedText {
    /// Whether the text can be registered and run.
    valid: bool,
    /// How many of the problems are errors.
    errors: usize,
    /// Everything that is wrong, and advice: code, severity, message, line, column, help.
    problems: Vec<FoundProblem>,
    /// The language, as far as it could be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    dialect: Option<String>,
    /// The name that the definition gives itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The version that the definition gives itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_hash: Option<String>,
    /// The inputs that the definition declares, with their defaults.
    #[schema(value_type = Object)]
    inputs: BTreeMap<String, Value>,
    /// The compiled net, if it was asked for and the text can be compiled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<NetBody>)]
    net: Option<Value>,
}

/// Check a text without keeping it: all problems with line, column and help, and advice. Child definitions that the
/// tenant has not registered are warnings.
#[utoipa::path(post, path = "/api/v1/check", tag = "definitions", security(("token" = ["view"])),
    request_body = CheckText,
    responses((status = 200, body = CheckedText), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 413, body = ApiProblem), (status = 415, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn check(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(body): Body<CheckText>,
) -> Result<Json<CheckedText>, ApiProblem> {
    check_file(body.file.as_deref())?;
    let (settings, plans) = (app.settings.clone(), app.plans.clone());
    let answer = app.ask(move |store| {
        let tenant = caller.context().tenant_id;
        let permits = Permits::new(&settings, &tenant, caller.project.as_deref());
        let whose = (tenant.as_str(), caller.project.as_deref());
        let is_known = |plan: &Plan, path: &str| {
            !matches!(registered(store, &plans, whose, plan, path), Ok(None))
        };
        let checked = Checked::with_children(permits, body.file.as_deref(), &body.text, &is_known);
        let plan = checked.loaded.plan.as_ref();
        let net = plan.map(Plan::net);
        let shown = plan.filter(|_| body.net).map(shown_net).transpose()?;
        let declared = plan.map(inputs);
        let declared = declared.as_ref().and_then(Value::as_object).cloned();
        Ok::<_, ApiProblem>(CheckedText {
            valid: plan.is_some(),
            errors: checked.errors,
            dialect: checked.loaded.dialect.map(|it| it.name().to_owned()),
            name: net.map(|it| it.plan_id.clone()),
            plan_version: net.map(|it| it.plan_version.clone()),
            sha256: checked.sha256,
            plan_hash: plan.map(|it| it.hash().to_owned()),
            inputs: declared.into_iter().flatten().collect(),
            problems: checked.problems,
            net: shown,
        })
    });
    Ok(Json(answer.await?))
}
