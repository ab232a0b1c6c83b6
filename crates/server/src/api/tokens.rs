//! API tokens: create, list, revoke and rotate. The secret of a token is in the answer that makes it, and nowhere else.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::json;
use stepwell_kernel::time::Time;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Body, Params};
use super::runs::read_time;
use crate::access::{
    Caller, FreshToken, GivenReason, NewToken, TokenBook, TokenError, TokenRecord,
};
use crate::app::App;
use crate::codes;
use crate::problem::ApiProblem;

/// How long the old secret of a rotated token counts, if nobody says, and at most.
const OVERLAP_SECONDS: u64 = 3_600;
const MAX_OVERLAP_SECONDS: u64 = 30 * 86_400;

/// How long a token lasts if nobody says otherwise: 365 days.
const LIFETIME_MS: u64 = 365 * 24 * 3_600 * 1_000;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(revoke))
        .routes(routes!(rotate))
}

/// What a token is made with.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CreateToken {
    /// The name of the holder, which events and the audit log record. Rules about different persons compare it.
    name: String,
    /// `viewer`, `operator`, `engineer`, `approver`, `admin`, `worker`.
    roles: Vec<String>,
    /// The only tenant that the holder knows; absent: the tenant of the caller, or all tenants if the caller has none.
    #[serde(default)]
    tenant: Option<String>,
    /// The only project of the tenant that the holder knows; absent: the project of the caller, or all projects.
    #[serde(default)]
    project: Option<String>,
    /// When the token ends, as `2026-03-01T08:00:00Z`; absent: after 365 days.
    #[serde(default)]
    expires_at: Option<String>,
    /// The reason, which the audit log keeps.
    #[serde(default)]
    #[expect(dead_code, reason = "read from the body by the audit log")]
    reason: Option<String>,
}

/// A token, without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct TokenInfo {
    /// The middle part of the token. It is no secret.
    id: String,
    /// The name of the holder.
    name: String,
    /// The roles of the holder.
    roles: Vec<String>,
    /// The only tenant that the holder knows; absent: all tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    /// The only project that the holder knows; absent: all projects.
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<String>,
    /// `valid`, `expired` or `revoked`.
    state: &'static str,
    /// When the token was created.
    created_at: String,
    /// Who created the token.
    created_by: String,
    /// When the token ends; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// When the token got its present secret, if that is not its first.
    #[serde(skip_serializing_if = "Option::is_none")]
    rotated_at: Option<String>,
    /// Until when the secret before counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    old_secret_until: Option<String>,
    /// When the token was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<String>,
    /// Who revoked the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_by: Option<String>,
}

/// A token with its secret, which is shown this once.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SecretToken {
    /// The token: `swt_<id>_<secret>`. The server keeps only a hash of it.
    token: String,
    /// What the token is.
    #[serde(flatten)]
    info: TokenInfo,
}

/// The tokens that a caller may know.
#[derive(Debug, Serialize, ToSchema)]
struct TokenList {
    /// All tokens that the caller may know, newest first.
    tokens: Vec<TokenInfo>,
}

impl TokenInfo {
    fn of(record: TokenRecord, now: Time) -> TokenInfo {
        let text = |time: Option<Time>| time.map(Time::to_rfc3339);
        let old = record.old_until().filter(|it| now < *it);
        TokenInfo {
            state: record.state(now),
            created_at: record.created_at.to_rfc3339(),
            created_by: record.created_by,
            expires_at: text(record.expires_at),
            rotated_at: text(record.rotated_at),
            old_secret_until: text(old),
            revoked_at: text(record.revoked_at),
            revoked_by: record.revoked_by,
            id: record.id,
            name: record.name,
            roles: record.roles,
            tenant: record.tenant,
            project: record.project,
        }
    }
}

impl From<TokenError> for ApiProblem {
    fn from(error: TokenError) -> ApiProblem {
        let what = error.to_string();
        match error {
            TokenError::Store(error) => error.into(),
            TokenError::Unknown(_) => ApiProblem::not_found(codes::TOKEN_UNKNOWN, what),
            TokenError::Ended(_) => ApiProblem::new(StatusCode::CONFLICT, codes::TOKEN_ENDED, what),
            TokenError::Invalid(_) => ApiProblem::bad_request(what),
            TokenError::Contended(_) | TokenError::NoRandom => ApiProblem::internal(&what),
        }
    }
}

/// Create a token. Its secret is in the answer, and is shown this once.
///
/// A caller with a tenant creates tokens of this tenant only, and a caller with a project tokens of this project only.
#[utoipa::path(post, path = "/api/v1/tokens", tag = "access", security(("token" = ["administer"])),
    request_body = CreateToken,
    responses((status = 201, body = SecretToken), (status = 400, body = ApiProblem), (status = 401, body = ApiProblem),
        (status = 403, body = ApiProblem), (status = 413, body = ApiProblem), (status = 415, body = ApiProblem),
        (status = 429, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(body): Body<CreateToken>,
) -> Result<Response, ApiProblem> {
    let now = app.now();
    let expires_at = body.expires_at.as_deref().map(read_time).transpose()?;
    let new = NewToken {
        tenant: caller.tenant_of(body.tenant)?,
        project: caller.project_of(body.project)?,
        expires_at: Some(expires_at.unwrap_or_else(|| now.plus(LIFETIME_MS))),
        name: body.name,
        roles: body.roles,
    };
    let fresh = app
        .ask(move |store| TokenBook(store).create(new, &caller.name, now))
        .await?;
    let location = format!("/api/v1/tokens/{}", fresh.record.id);
    let token = secret_token(fresh, now);
    let headers = [
        (header::LOCATION, location),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    Ok((StatusCode::CREATED, headers, Json(token)).into_response())
}

fn secret_token(fresh: FreshToken, now: Time) -> SecretToken {
    SecretToken {
        token: fresh.token,
        info: TokenInfo::of(fresh.record, now),
    }
}

/// List the tokens, newest first. Tokens of other tenants are not there for a caller with a tenant.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "access", security(("token" = ["administer"])),
    responses((status = 200, body = TokenList), (status = 401, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 429, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<TokenList>, ApiProblem> {
    let now = app.now();
    let records = app
        .ask(move |store| {
            TokenBook(store).list(caller.tenant.as_deref(), caller.project.as_deref())
        })
        .await?;
    let infos = records.into_iter().map(|it| TokenInfo::of(it, now));
    Ok(Json(TokenList {
        tokens: infos.collect(),
    }))
}

/// Fails as if the token did not exist if it is of someone whom the caller does not know.
async fn may_change(app: &App, caller: &Caller, id: &str) -> Result<(), ApiProblem> {
    let (caller, id) = (caller.clone(), id.to_owned());
    app.ask(move |store| {
        let found = TokenBook(store).find(&id)?;
        let own = |it: &TokenRecord| it.is_of(caller.tenant.as_deref(), caller.project.as_deref());
        match found.as_ref().is_some_and(own) {
            true => Ok(()),
            false => Err(TokenError::Unknown(id)),
        }
    })
    .await
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct RevokeQuery {
    /// The reason, which the audit log keeps.
    reason: Option<String>,
}

/// Revoke a token for good. It counts on all servers within a few seconds, and ends the sessions of the token too.
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", tag = "access", security(("token" = ["administer"])),
    params(("id" = String, Path, description = "The id of the token."), RevokeQuery),
    responses((status = 200, body = TokenInfo), (status = 400, body = ApiProblem), (status = 401, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 429, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Extension(given): Extension<GivenReason>,
    Params(query): Params<RevokeQuery>,
) -> Result<Json<TokenInfo>, ApiProblem> {
    given.look(json!({ "reason": query.reason }).to_string().as_bytes());
    may_change(&app, &caller, &id).await?;
    let now = app.now();
    let wanted = id.clone();
    let record = app
        .ask(move |store| TokenBook(store).revoke(&wanted, &caller.name, now))
        .await?;
    app.gate.forget(&id);
    Ok(Json(TokenInfo::of(record, now)))
}

/// How a token is rotated.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RotateToken {
    /// How many seconds the old secret still counts: one hour if absent, at most 30 days; 0 ends it now.
    #[serde(default)]
    overlap_seconds: Option<u64>,
    /// The reason, which the audit log keeps.
    #[serde(default)]
    #[expect(dead_code, reason = "read from the body by the audit log")]
    reason: Option<String>,
}

/// Give a token a new secret, which is shown this once. The old secret counts for a while.
#[utoipa::path(post, path = "/api/v1/tokens/{id}/rotate", tag = "access", security(("token" = ["administer"])),
    params(("id" = String, Path, description = "The id of the token.")), request_body = RotateToken,
    responses((status = 200, body = SecretToken), (status = 400, body = ApiProblem), (status = 401, body = ApiProblem),
        (status = 403, body = ApiProblem), (status = 404, body = ApiProblem), (status = 409, body = ApiProblem),
        (status = 413, body = ApiProblem), (status = 415, body = ApiProblem), (status = 429, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn rotate(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Body(body): Body<RotateToken>,
) -> Result<Response, ApiProblem> {
    let overlap = body.overlap_seconds.unwrap_or(OVERLAP_SECONDS);
    if overlap > MAX_OVERLAP_SECONDS {
        return Err(ApiProblem::bad_request(format!(
            "overlapSeconds: a number up to {MAX_OVERLAP_SECONDS} is needed"
        )));
    }
    may_change(&app, &caller, &id).await?;
    let now = app.now();
    let wanted = id.clone();
    let fresh = app
        .ask(move |store| TokenBook(store).rotate(&wanted, overlap * 1_000, now))
        .await?;
    app.gate.forget(&id);
    let headers = [(header::CACHE_CONTROL, "no-store")];
    Ok((headers, Json(secret_token(fresh, now))).into_response())
}
