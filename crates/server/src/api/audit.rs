//! The audit log: who did what, or tried to.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use stepwell_engine::store::{AuditFilter, StoredAuditRow};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Params;
use crate::access::Caller;
use crate::app::App;
use crate::problem::ApiProblem;

const PAGE: usize = 100;
const MAX_PAGE: usize = 1_000;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
struct AuditQuery {
    /// Only rows of this tenant, for callers that know all tenants.
    tenant: Option<String>,
    /// Only what this person or program did.
    actor: Option<String>,
    /// Only this action: method and route, such as `POST /api/v1/runs/{run}/cancel`.
    action: Option<String>,
    /// Only what was done to this run or object.
    target: Option<String>,
    /// Only what was done (`true`), or only what was refused (`false`).
    accepted: Option<bool>,
    /// Only rows before this number: `next` of the page before.
    before: Option<i64>,
    /// At most this many rows; 100 if absent, 1000 at most.
    limit: Option<usize>,
}

/// What someone did, or tried to do.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AuditEntry {
    /// The number of the row; later rows have larger numbers.
    no: i64,
    /// When the request was answered.
    at: String,
    /// The tenant that was acted on: of the run, or the one that the request names. A caller with a tenant acts on this tenant
    /// only. Absent: the installation.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    /// The person or program that acted; `unknown` if no valid token was shown.
    actor: String,
    /// The id of the token that was shown; without a valid token the id that was claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// The address that the request came from, or the command.
    source: String,
    /// Method and route of the request, or the command.
    action: String,
    /// What it was done to.
    target: String,
    /// Whether it was done.
    accepted: bool,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// The reason that the actor gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// A page of the audit log.
#[derive(Debug, Serialize, ToSchema)]
struct AuditPage {
    /// The rows of the page, newest first.
    rows: Vec<AuditEntry>,
    /// `before` of the next page; absent if this is the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<i64>,
}

impl From<StoredAuditRow> for AuditEntry {
    fn from(StoredAuditRow { no, row }: StoredAuditRow) -> AuditEntry {
        AuditEntry {
            no,
            at: row.at.to_rfc3339(),
            tenant: row.tenant,
            actor: row.actor,
            token: row.token,
            source: row.source,
            action: row.action,
            target: row.target,
            accepted: row.accepted,
            code: row.code,
            reason: row.reason,
        }
    }
}

/// Read the audit log, newest first. A row is there a moment after the request that it tells of. A caller with a tenant
/// reads what was done to this tenant, by whomever.
#[utoipa::path(get, path = "/api/v1/audit", tag = "access", security(("token" = ["administer"])),
    params(AuditQuery),
    responses((status = 200, body = AuditPage), (status = 400, body = ApiProblem), (status = 401, body = ApiProblem),
        (status = 403, body = ApiProblem), (status = 429, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<AuditQuery>,
) -> Result<Json<AuditPage>, ApiProblem> {
    caller.whole_tenant(
        "the audit log tells of all projects of the tenant: use a token without a project",
    )?;
    let limit = query.limit.unwrap_or(PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(ApiProblem::bad_request(format!(
            "limit: a number from 1 to {MAX_PAGE} is needed"
        )));
    }
    let tenant = caller.tenant_of(query.tenant)?;
    let filter = AuditFilter {
        tenant,
        actor: query.actor,
        action: query.action,
        target: query.target,
        accepted: query.accepted,
        before: query.before,
        // One more tells whether there is another page.
        limit: limit + 1,
    };
    let mut rows = app.ask(move |store| store.audit_rows(&filter)).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let last = rows.last().map(|it| it.no);
    Ok(Json(AuditPage {
        next: last.filter(|_| more),
        rows: rows.into_iter().map(AuditEntry::from).collect(),
    }))
}
