//! The guard before every endpoint: finds out who calls, looks up the right that the endpoint needs, and refuses callers
//! that do not have it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::unseen::is_unseen;
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::Operation;

use super::right::ServerRole;
use super::{Access, Caller, Right};
use crate::app::App;
use crate::codes;
use crate::problem::ApiProblem;

/// The headers with which callers of an open server say who they are.
const ACTOR: &str = "stepwell-actor";
const ROLE: &str = "stepwell-role";
const TENANT: &str = "stepwell-tenant";
/// The most characters of a name.
const MAX_NAME: usize = 200;

/// The scheme in the OpenAPI document whose scopes are rights.
pub(crate) const SCHEME: &str = "token";
/// The scope of endpoints that need no right.
pub(crate) const PUBLIC: &str = "public";

/// The right that each endpoint needs, from the OpenAPI document.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights(HashMap<(Method, String), Need>);

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
                if let Some(need) = operation.as_ref().and_then(need) {
                    rights.insert((method, path.clone()), need);
                }
            }
        }
        Rights(rights)
    }

    pub(crate) fn need(&self, method: &Method, path: &str) -> Option<Need> {
        let method = match *method {
            // Whoever may read a page may ask for its headers.
            Method::HEAD => Method::GET,
            _ => method.clone(),
        };
        self.0.get(&(method, path.to_owned())).copied()
    }
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

/// Stands before every endpoint.
pub(crate) async fn guard(
    State((app, rights)): State<(Arc<App>, Arc<Rights>)>,
    mut request: Request,
    next: Next,
) -> Response {
    match admit(&app, &rights, &request) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

fn admit(app: &App, rights: &Rights, request: &Request) -> Result<Caller, ApiProblem> {
    let path = request.extensions().get::<MatchedPath>();
    let path = path.map_or("", MatchedPath::as_str);
    let need = rights.need(request.method(), path);
    let source = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let source = source.map_or_else(String::new, |it| it.0.ip().to_string());
    let caller = match &app.settings.access {
        Access::Open => open_caller(request.headers(), source)?,
    };
    match need {
        Some(Need::Nothing) => Ok(caller),
        Some(Need::Right(right)) if caller.has(right) => Ok(caller),
        Some(Need::Right(right)) => Err(ApiProblem::new(
            StatusCode::FORBIDDEN,
            Code::AuthzDenied.name(),
            format!("this needs the right `{}`", right.name()),
        )),
        None => Err(ApiProblem::internal(&format!(
            "{} {path} names no right",
            request.method()
        ))),
    }
}

/// The caller of a server that trusts everyone who reaches it.
fn open_caller(headers: &HeaderMap, source: String) -> Result<Caller, ApiProblem> {
    not_from_a_page(headers)?;
    let text = |name: &str| -> Result<Option<String>, ApiProblem> {
        let Some(value) = headers.get(name) else {
            return Ok(None);
        };
        let value = value.to_str().unwrap_or_default().trim();
        let seen = !value.chars().any(|c| c.is_control() || is_unseen(c));
        match (1..=MAX_NAME).contains(&value.chars().count()) && seen {
            true => Ok(Some(value.to_owned())),
            false => Err(ApiProblem::bad_request(format!(
                "the header {name} has 1 to {MAX_NAME} visible characters"
            ))),
        }
    };
    let roles = match text(ROLE)? {
        None => vec![ServerRole::Admin, ServerRole::Worker],
        Some(words) => {
            let role = |word: &str| {
                ServerRole::from_name(word.trim()).ok_or_else(|| {
                    let known: Vec<&str> = ServerRole::ALL.iter().map(|it| it.name()).collect();
                    ApiProblem::bad_request(format!(
                        "the header {ROLE} has the role {word:?}; roles are {}",
                        known.join(", ")
                    ))
                })
            };
            words.split(',').map(role).collect::<Result<_, _>>()?
        }
    };
    Ok(Caller {
        name: text(ACTOR)?.unwrap_or_else(|| "anonymous".to_owned()),
        roles,
        tenant: text(TENANT)?,
        project: None,
        token: None,
        source,
    })
}

/// A page of another site must not use the browser of someone who has an open server on this machine: neither with a
/// request of its own, nor under a name that it has pointed at this machine.
fn not_from_a_page(headers: &HeaderMap) -> Result<(), ApiProblem> {
    let value = |name| headers.get(name).and_then(|it| it.to_str().ok());
    let denied = |what: &str| {
        Err(ApiProblem::new(
            StatusCode::FORBIDDEN,
            codes::ORIGIN_DENIED,
            format!("{what}; a server without access control answers only this machine"),
        ))
    };
    let Some(host) = value(header::HOST) else {
        return Ok(());
    };
    if !is_loopback(host) {
        return denied("the request names another host");
    }
    match value(header::ORIGIN) {
        Some(origin) if origin.split_once("://").map(|it| it.1) != Some(host) => {
            denied("the request comes from a page of another site")
        }
        _ => Ok(()),
    }
}

/// Whether a host, with or without a port, is this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address: Option<std::net::IpAddr> = name.parse().ok();
    name.eq_ignore_ascii_case("localhost") || address.is_some_and(|it| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn names_of_this_machine_are_known() {
        for own in [
            "localhost",
            "LOCALHOST:7117",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:7117",
        ] {
            assert!(is_loopback(own), "{own}");
        }
        for other in [
            "evil.example",
            "localhost.evil.example:7117",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "",
            "[::2]:1",
        ] {
            assert!(!is_loopback(other), "{other}");
        }
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost:7117"));
        assert!(not_from_a_page(&headers).is_ok());
        headers.insert(
            header::ORIGIN,
            HeaderValue::from_static("http://localhost:7117"),
        );
        assert!(not_from_a_page(&headers).is_ok());
        headers.insert(
            header::ORIGIN,
            HeaderValue::from_static("https://evil.example"),
        );
        assert!(not_from_a_page(&headers).is_err());
    }
}
