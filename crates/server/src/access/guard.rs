//! The guard before every endpoint: finds out who calls, looks up the right that the endpoint needs, and refuses callers
//! that do not have it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, MatchedPath, Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use stepwell_engine::store::{AuditRow, RunFilter, RunNo, StoreError};
use stepwell_kernel::rejection::Code;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

use super::gate::{Known, Shown};
use super::open::{act_for, open_caller};
use super::standing::{Lost, Standing, answered};
use super::trail::GivenReason;
use super::{Access, Caller, Right};
use crate::app::App;
use crate::codes;
use crate::problem::{ApiProblem, ProblemCode};

/// The scheme in the OpenAPI document whose scopes are rights.
pub(crate) const SCHEME: &str = "token";
/// The scope of endpoints that need no right.
pub(crate) const PUBLIC: &str = "public";
/// Whom the audit log names if nobody has shown who they are.
const UNKNOWN: &str = "unknown";
/// The endpoints that say how the server does.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];
/// What the routes of the API begin with.
const API: &str = "/api/";
/// What the routes of runs begin with.
const RUNS: &str = "/api/v1/runs";
/// Asked with a body, and changes nothing: an editor asks it after every key.
const CHECK: &str = "/api/v1/check";
/// Where a page asks whether it has a session.
const SESSION: &str = "/api/v1/session";

/// What each endpoint needs and knows, from the OpenAPI document.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights(HashMap<(Method, String), Endpoint>);

/// An endpoint as its description has it.
#[derive(Clone, Debug)]
struct Endpoint {
    need: Need,
    /// The names of the parameters of its query.
    query: Vec<String>,
}

/// What an endpoint needs of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    Right(Right),
}

impl Rights {
    pub(crate) fn of(document: &OpenApi) -> Rights {
        let mut rights = HashMap::new();
        for (path, item) in &document.paths.paths {
            let operations = [
                (Method::GET, &item.get),
                (Method::PUT, &item.put),
                (Method::POST, &item.post),
                (Method::DELETE, &item.delete),
                (Method::PATCH, &item.patch),
            ];
            for (method, operation) in operations {
                let Some(operation) = operation else { continue };
                if let Some(need) = need(operation) {
                    let query = query_names(operation);
                    rights.insert((method, path.clone()), Endpoint { need, query });
                }
            }
        }
        Rights(rights)
    }

    pub(crate) fn need(&self, method: &Method, path: &str) -> Option<Need> {
        self.endpoint(method, path).map(|it| it.need)
    }

    fn endpoint(&self, method: &Method, path: &str) -> Option<&Endpoint> {
        let method = match *method {
            // Whoever may read a page may ask for its headers.
            Method::HEAD => Method::GET,
            _ => method.clone(),
        };
        self.0.get(&(method, path.to_owned()))
    }

    /// Refuses a parameter of the query that the endpoint does not know: a slip must not be a filter that nobody sees.
    /// Other systems may add what they like to the address of a webhook or of a probe.
    fn knows_query(&self, method: &Method, route: &str, uri: &Uri) -> Result<(), ApiProblem> {
        let Some(endpoint) = self.endpoint(method, route) else {
            return Ok(());
        };
        if uri.query().is_none() || !route.starts_with(API) {
            return Ok(());
        }
        // What cannot be taken apart is told by the endpoint.
        let Ok(Query(pairs)) = Query::<Vec<(String, String)>>::try_from_uri(uri) else {
            return Ok(());
        };
        let is_known = |name: &String| endpoint.query.contains(name);
        let Some((unknown, _)) = pairs.into_iter().find(|(name, _)| !is_known(name)) else {
            return Ok(());
        };
        let unknown: String = unknown.chars().take(100).collect();
        let known = match endpoint.query.is_empty() {
            true => "it has none".to_owned(),
            false => format!("it has `{}`", endpoint.query.join("`, `")),
        };
        Err(ApiProblem::bad_request(format!(
            "the query of {method} {route} has no parameter `{unknown}`; {known}"
        )))
    }
}

/// The names of the parameters that the query of an endpoint may have.
fn query_names(operation: &Operation) -> Vec<String> {
    let all = operation.parameters.iter().flatten();
    let name = |it: &RefOr<Parameter>| match it {
        RefOr::T(it) if it.parameter_in == ParameterIn::Query => Some(it.name.clone()),
        RefOr::T(_) | RefOr::Ref(_) => None,
    };
    all.filter_map(name).collect()
}

/// What the description of an endpoint says that it needs.
fn need(operation: &Operation) -> Option<Need> {
    let requirements = operation.security.as_ref()?;
    let json = serde_json::to_value(requirements).ok()?;
    let scope = json.get(0)?.get(SCHEME)?.get(0)?.as_str()?.to_owned();
    match scope.as_str() {
        PUBLIC => Some(Need::Nothing),
        name => Right::from_name(name).map(Need::Right),
    }
}

/// What an endpoint says about its answer, so that the audit log need not read it again.
#[derive(Clone, Debug)]
pub(crate) struct ActedOn {
    /// The tenant of what was changed.
    pub(crate) tenant: String,
}

/// Stands before every endpoint.
pub(crate) async fn guard(
    State((app, rights)): State<(Arc<App>, Arc<Rights>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let asked = Asked::of(&rights, &request);
    let reason = GivenReason::default();
    let admitted = admit(&app, &asked, request.headers()).await;
    let admitted = admitted.and_then(|admitted| {
        let known = rights.knows_query(&asked.method, &asked.route, request.uri());
        let refused = |problem| Refused {
            who: Who::of(&admitted.caller),
            problem,
        };
        known.map_err(|problem| Box::new(refused(problem)))?;
        Ok(admitted)
    });
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(refused) => {
            let response = refused.problem.into_response();
            note(
                &app,
                &asked,
                asked.row(&app, refused.who, &response, &reason),
                &reason,
            )
            .await;
            return response;
        }
    };
    let who = Who::of(&admitted.caller);
    let standing = match (asked.need, &admitted.known) {
        (Some(Need::Right(right)), Some(known)) => Some(Standing::new(
            Arc::clone(&app),
            request.headers(),
            right,
            known.clone(),
        )),
        (Some(Need::Right(_) | Need::Nothing) | None, _) => None,
    };
    let lost = Lost::default();
    if let Some(tenant) = &admitted.caller.tenant {
        tracing::Span::current().record("tenant", tenant);
    }
    let extensions = request.extensions_mut();
    extensions.insert(admitted.caller);
    if asked.is_change() {
        // Nobody looks for a reason in what is not recorded.
        extensions.insert(reason.clone());
    }
    extensions.insert(lost.clone());
    if let Some(known) = admitted.known {
        extensions.insert(known);
    }
    let is_change = asked.is_change();
    let noted = async move {
        let response = answered(standing, &lost, next.run(request)).await;
        let row = asked.row(&app, who, &response, &reason);
        note(&app, &asked, row, &reason).await;
        response
    };
    if !is_change {
        return noted.await;
    }
    // To its end, also if the caller has gone meanwhile: what was done must not be missing in the audit log.
    let done = tokio::spawn(noted);
    match done.await {
        Ok(response) => response,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => ApiProblem::internal(&error).into_response(),
    }
}

async fn note(app: &App, asked: &Asked, row: Option<AuditRow>, given: &GivenReason) {
    let Some(mut row) = row else { return };
    // A caller with a tenant reaches nothing of another one. One without acts on the tenant of what it names, whose
    // people must see it in their log.
    if row.tenant.is_none() && row.actor != UNKNOWN {
        row.tenant = acted_on(app, asked, &row.target).await;
        row.tenant = row.tenant.or_else(|| asked.tenant.clone());
        row.tenant = row.tenant.or_else(|| given.tenant());
    }
    app.gate.trail.put(row).await;
}

/// The tenant of the run that was acted on or created.
async fn acted_on(app: &App, asked: &Asked, target: &str) -> Option<String> {
    if !asked.route.starts_with(RUNS) {
        return None;
    }
    let run = target.split('/').next().unwrap_or_default().to_owned();
    let found = app.ask(move |store| {
        let Some(no) = store.find(&run)? else {
            return Ok::<_, StoreError>(None);
        };
        let rows = store.list(&RunFilter {
            before: Some(RunNo(no.0 + 1)),
            limit: 1,
            ..RunFilter::default()
        })?;
        Ok(rows.into_iter().find(|row| row.run == no))
    });
    // Without the store there is no row either, until it is back.
    found.await.ok()?.map(|row| row.tenant)
}

/// What a request asks for.
struct Asked {
    method: Method,
    /// The path with the names of its parameters.
    route: String,
    /// The values of the parameters.
    target: String,
    source: String,
    need: Option<Need>,
    /// The tenant that the address names.
    tenant: Option<String>,
    /// The caller shows neither a token nor a session.
    shows_nothing: bool,
}

/// Whom the audit log names.
struct Who {
    actor: String,
    token: Option<String>,
    tenant: Option<String>,
}

impl Who {
    fn of(caller: &Caller) -> Who {
        Who {
            actor: caller.name.clone(),
            token: caller.token.clone(),
            tenant: caller.tenant.clone(),
        }
    }

    /// Someone who has not shown who they are; the id of the token may be invented.
    fn unknown(shown: Shown<'_>) -> Who {
        Who {
            actor: UNKNOWN.to_owned(),
            token: shown.claimed(),
            tenant: None,
        }
    }
}

struct Admitted {
    caller: Caller,
    known: Option<Known>,
}

struct Refused {
    who: Who,
    problem: ApiProblem,
}

impl Asked {
    fn of(rights: &Rights, request: &Request) -> Asked {
        let route = request.extensions().get::<MatchedPath>();
        let route = route.map_or("", MatchedPath::as_str);
        let source = request.extensions().get::<ConnectInfo<SocketAddr>>();
        Asked {
            method: request.method().clone(),
            target: target(route, request.uri().path()),
            source: source.map_or_else(String::new, |it| it.0.ip().to_string()),
            need: rights.need(request.method(), route),
            tenant: named_tenant(route, request.uri()),
            shows_nothing: matches!(Shown::by(request.headers()), Shown::Nothing),
            route: route.to_owned(),
        }
    }

    fn changes(&self) -> bool {
        !matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS)
    }

    /// Whether it changes something, other than what workers report.
    fn is_change(&self) -> bool {
        self.changes() && self.need != Some(Need::Right(Right::Work)) && self.route != CHECK
    }

    /// Whether the audit log has a row about it: whatever changes something or is meant to, and whatever was denied. Not
    /// what workers report, which is in the logs of their runs, and not the refusals of load, of which there may be many.
    fn is_recorded(&self, response: &Response) -> bool {
        let status = response.status();
        let denied = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
        if denied.contains(&status) {
            // A page that asks whether it has a session, and shows nothing, has tried nothing.
            return !(self.shows_nothing && self.method == Method::GET && self.route == SESSION);
        }
        self.is_change() && status != StatusCode::TOO_MANY_REQUESTS
    }

    /// The row about it, if there is to be one.
    fn row(
        &self,
        app: &App,
        who: Who,
        response: &Response,
        reason: &GivenReason,
    ) -> Option<AuditRow> {
        if !self.is_recorded(response) {
            return None;
        }
        let code = response.extensions().get::<ProblemCode>();
        // Someone who shows who they are in the body of the request.
        let shown = response.extensions().get::<Caller>();
        let who = shown.map_or(who, Who::of);
        let acted_on = response.extensions().get::<ActedOn>();
        let acted_on = acted_on.map(|it| it.tenant.clone());
        let created = response.headers().get(header::LOCATION);
        let created = created.and_then(|it| named_in(it.to_str().ok()?));
        Some(AuditRow {
            at: app.now(),
            tenant: who.tenant.or(acted_on),
            actor: who.actor,
            token: who.token,
            source: self.source.clone(),
            action: format!("{} {}", self.method, self.route),
            target: with_what(
                created.unwrap_or_else(|| self.target.clone()),
                reason.what(),
            ),
            accepted: response.status().as_u16() < 400,
            code: code.map(|it| it.0.clone()),
            reason: reason.get(),
        })
    }
}

/// The tenant in the path or in the query.
fn named_tenant(route: &str, uri: &Uri) -> Option<String> {
    let mut pairs = route.split('/').zip(uri.path().split('/'));
    if let Some((_, value)) = pairs.find(|(name, _)| *name == "{tenant}") {
        return Some(value.chars().take(200).collect());
    }
    let query = uri.query().unwrap_or_default().split('&');
    let named = query.filter_map(|it| it.strip_prefix("tenant=")).next();
    named.map(|it| it.chars().take(200).collect())
}

/// What the address of something that was created names: `RUN`, or `NAME/REVISION`.
fn named_in(location: &str) -> Option<String> {
    let (_, named) = location.strip_prefix("/api/v1/")?.split_once('/')?;
    Some(named.replacen("/revisions/", "/", 1))
}

/// A target with what the body says is done to it: which signal, which action, which event.
fn with_what(target: String, what: Option<String>) -> String {
    match (target.is_empty(), what) {
        (_, None) => target,
        (true, Some(what)) => what,
        (false, Some(what)) => format!("{target}/{what}"),
    }
}

/// The values of the parameters of a path.
fn target(route: &str, path: &str) -> String {
    let pairs = route.split('/').zip(path.split('/'));
    let values = pairs.filter(|(name, _)| name.starts_with('{'));
    let values: Vec<&str> = values.map(|(_, value)| value).collect();
    values.join("/").chars().take(500).collect()
}

/// Who calls, and whether this caller may do what is asked for.
async fn admit(app: &App, asked: &Asked, headers: &HeaderMap) -> Result<Admitted, Box<Refused>> {
    let shown = Shown::by(headers);
    let stranger = |problem| {
        Box::new(Refused {
            who: Who::unknown(shown),
            problem,
        })
    };
    let Some(need) = asked.need else {
        let what = format!("{} {} names no right", asked.method, asked.route);
        return Err(stranger(ApiProblem::internal(&what)));
    };
    let mut admitted = match (&app.settings.access, need) {
        (Access::Open, _) => {
            from_source(app, asked).map_err(stranger)?;
            let caller = open_caller(headers, asked.source.clone());
            Admitted {
                caller: caller.map_err(stranger)?,
                known: None,
            }
        }
        (Access::Controlled { .. }, Need::Nothing) => {
            let admitted = anyone(app, asked, shown).await;
            // Who asks how the server does must be told, or the server is taken for one that is not well.
            if admitted.known.is_none() && !PROBES.contains(&asked.route.as_str()) {
                let key = format!("{} {}", asked.source, asked.route);
                let room = app.gate.per_source.take(&key);
                room.map_err(|seconds| stranger(too_many(seconds)))?;
            }
            admitted
        }
        (Access::Controlled { .. }, Need::Right(_)) => {
            let known = known(app, asked, shown).await;
            known.map_err(stranger)?
        }
    };
    if admitted.known.is_some()
        && let Err(problem) = act_for(&mut admitted.caller, headers)
    {
        let who = Who::of(&admitted.caller);
        return Err(Box::new(Refused { who, problem }));
    }
    let refused = |problem| {
        Box::new(Refused {
            who: Who::of(&admitted.caller),
            problem,
        })
    };
    if let (Need::Right(_), Some(known)) = (need, &admitted.known) {
        let name = admitted.caller.token.as_ref();
        let key = name.unwrap_or(&admitted.caller.name);
        let room = app.gate.per_token.take(key);
        room.map_err(|seconds| refused(too_many(seconds)))?;
        if let Some(session) = &known.session
            && asked.changes()
            && !app.gate.signer.has_csrf(session, headers)
        {
            return Err(refused(csrf_denied()));
        }
    }
    match need {
        Need::Right(right) if !admitted.caller.has(right) => Err(refused(ApiProblem::new(
            StatusCode::FORBIDDEN,
            Code::AuthzDenied.name(),
            format!("this needs the right `{}`", right.name()),
        ))),
        Need::Right(_) | Need::Nothing => Ok(admitted),
    }
}

/// Someone with a right, who must show who they are. Only requests that show nothing valid count for their source address:
/// behind a proxy everybody has the same one.
async fn known(app: &App, asked: &Asked, shown: Shown<'_>) -> Result<Admitted, ApiProblem> {
    let gate = &app.gate;
    match gate.identify(app, shown, &asked.source).await {
        Ok(known) => Ok(Admitted {
            caller: known.caller.clone(),
            known: Some(known),
        }),
        Err(problem) => {
            tracing::debug!(source = %asked.source, "a request showed no valid token");
            from_source(app, asked)?;
            Err(problem)
        }
    }
}

/// Whoever it is: the endpoint is for everyone, and may want to know who it is.
async fn anyone(app: &App, asked: &Asked, shown: Shown<'_>) -> Admitted {
    let known = app.gate.identify(app, shown, &asked.source).await.ok();
    let nobody = || Caller {
        name: "anonymous".to_owned(),
        roles: Vec::new(),
        tenant: None,
        project: None,
        token: None,
        source: asked.source.clone(),
    };
    Admitted {
        caller: known.as_ref().map_or_else(nobody, |it| it.caller.clone()),
        known,
    }
}

fn from_source(app: &App, asked: &Asked) -> Result<(), ApiProblem> {
    let room = app.gate.per_source.take(&asked.source);
    room.map_err(too_many)
}

fn too_many(seconds: u64) -> ApiProblem {
    ApiProblem::new(
        StatusCode::TOO_MANY_REQUESTS,
        codes::RATE_LIMITED,
        "there were too many requests; wait as long as the header Retry-After says",
    )
    .retry_after(seconds)
}

pub(crate) fn csrf_denied() -> ApiProblem {
    ApiProblem::new(
        StatusCode::FORBIDDEN,
        codes::CSRF_DENIED,
        "a changing request of a session needs the header `x-stepwell-csrf` with the value of the session",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_what_stands_for_the_parameters() {
        let route = "/api/v1/runs/{run}/steps/{step}/complete";
        let path = "/api/v1/runs/r1/steps/sign/complete";
        assert_eq!(target(route, path), "r1/sign");
        assert_eq!(target("/api/v1/runs", "/api/v1/runs"), "");
    }
}
