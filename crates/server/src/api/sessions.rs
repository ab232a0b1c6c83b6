//! Sessions of browsers: a token is exchanged for a cookie that scripts cannot read.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Body;
use crate::access::{Access, Caller, Known, Right, Shown, csrf_denied, invalid};
use crate::app::App;
use crate::problem::ApiProblem;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(begin, show, end))
}

/// What a session begins with.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BeginSession {
    /// An API token, or a token of the OIDC issuer.
    token: String,
}

/// A session of a browser.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SessionInfo {
    /// The name of the person or program.
    name: String,
    /// The roles of the person or program.
    roles: Vec<&'static str>,
    /// The rights that the roles have: `view`, `operate`, `engineer`, `approve`, `administer`, `work`.
    rights: Vec<&'static str>,
    /// `open`: callers say who they are, and need no token. `tokens`: callers need a token.
    access: &'static str,
    /// The only tenant that they know; absent: all tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    /// The only project that they know; absent: all projects.
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<String>,
    /// The value of the header `x-stepwell-csrf` of every changing request; absent without a cookie, which needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    csrf: Option<String>,
    /// When the session ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

impl SessionInfo {
    fn of(caller: &Caller, access: &Access) -> SessionInfo {
        let rights = Right::ALL.into_iter().filter(|it| caller.has(*it));
        SessionInfo {
            name: caller.name.clone(),
            roles: caller.roles.iter().map(|it| it.name()).collect(),
            rights: rights.map(Right::name).collect(),
            access: match access {
                Access::Open => "open",
                Access::Controlled { .. } => "tokens",
            },
            tenant: caller.tenant.clone(),
            project: caller.project.clone(),
            csrf: None,
            expires_at: None,
        }
    }
}

/// Begin a session of a browser: the answer sets a cookie.
///
/// Changing requests with the cookie need the header `x-stepwell-csrf` with the value `csrf` of the answer. A session ends
/// with its token, after 12 hours at the latest. A server without access control answers without a cookie: none is needed.
#[utoipa::path(post, path = "/api/v1/session", tag = "access", security(("token" = ["public"])),
    request_body = BeginSession,
    responses((status = 200, body = SessionInfo), (status = 400, body = ApiProblem), (status = 401, body = ApiProblem),
        (status = 413, body = ApiProblem), (status = 415, body = ApiProblem), (status = 429, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn begin(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(body): Body<BeginSession>,
) -> Result<Response, ApiProblem> {
    if matches!(app.settings.access, Access::Open) {
        return Ok(Json(SessionInfo::of(&caller, &app.settings.access)).into_response());
    }
    let shown = Shown::Bearer(body.token.trim());
    let known = app.gate.identify(&app, shown, &caller.source).await?;
    let now = app.now();
    let claims = app.gate.begin(&known, now)?;
    let seconds = claims.expires.since(now) / 1_000;
    let value = app.gate.signer.sign(&claims);
    let cookie = app
        .gate
        .signer
        .set_cookie(&value, seconds, app.settings.tls.is_some());
    let cookie = cookie.ok_or_else(|| ApiProblem::internal(&"a cookie has odd characters"))?;
    let info = SessionInfo {
        csrf: Some(app.gate.signer.csrf(&claims)),
        expires_at: Some(claims.expires.to_rfc3339()),
        ..SessionInfo::of(&known.caller, &app.settings.access)
    };
    let mut response = Json(info).into_response();
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    // The audit log names who has come.
    response.extensions_mut().insert(known.caller);
    Ok(not_kept(response))
}

/// Who the caller is, by cookie or by token.
#[utoipa::path(get, path = "/api/v1/session", tag = "access", security(("token" = ["public"])),
    responses((status = 200, body = SessionInfo), (status = 401, body = ApiProblem), (status = 429, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    known: Option<Extension<Known>>,
) -> Result<Response, ApiProblem> {
    let mut info = SessionInfo::of(&caller, &app.settings.access);
    match (&app.settings.access, known) {
        (Access::Open, _) => {}
        (Access::Controlled { .. }, None) => return Err(invalid()),
        (Access::Controlled { .. }, Some(Extension(known))) => {
            let session = known.session.as_ref();
            let ends = session.map(|it| it.expires).or(known.expires);
            info.csrf = session.map(|it| app.gate.signer.csrf(it));
            info.expires_at = ends.map(|it| it.to_rfc3339());
        }
    }
    Ok(not_kept(Json(info).into_response()))
}

/// End the session of the cookie, on all servers within a few seconds. Needs the header `x-stepwell-csrf`.
#[utoipa::path(delete, path = "/api/v1/session", tag = "access", security(("token" = ["public"])),
    responses((status = 204), (status = 401, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 429, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn end(
    State(app): State<Arc<App>>,
    known: Option<Extension<Known>>,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    if matches!(app.settings.access, Access::Open) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let session = known.and_then(|Extension(it)| it.session);
    let session = session.ok_or_else(invalid)?;
    if !app.gate.signer.has_csrf(&session, &headers) {
        return Err(csrf_denied());
    }
    app.gate.end(&app, &session).await?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Some(gone) = app
        .gate
        .signer
        .set_cookie("", 0, app.settings.tls.is_some())
    {
        response.headers_mut().insert(header::SET_COOKIE, gone);
    }
    Ok(not_kept(response))
}

/// What is about one caller is kept by no cache.
fn not_kept(mut response: Response) -> Response {
    let value = header::HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, value);
    response
}
