//! The HTTP API under `/api/v1`: one file for each group of endpoints. The routes and the OpenAPI document are made from
//! the same functions, so the document cannot say something else than the server does.

mod actions;
mod alerts;
mod allowed;
mod attention;
mod audit;
mod body;
mod bulk;
mod cursor;
mod dead_letters;
mod definition_texts;
mod definitions;
mod described;
mod engines;
mod etag;
mod events;
mod folder;
mod held;
mod hooks;
mod inbox;
mod languages;
mod log_windows;
mod logs;
mod meta;
mod operations;
mod pages;
mod run_feed;
mod run_filter;
mod run_list;
mod run_reads;
mod runs;
mod schedules;
mod sessions;
mod sources;
mod stream;
mod time_limit;
mod tokens;
mod watch;
mod webhooks;
mod workers;

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use tower_http::CompressionLevel;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use tracing::Instrument as _;
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{self, RefOr};
use utoipa::{OpenApi, ToSchema as _};
use utoipa_axum::router::OpenApiRouter;

use crate::access::{Rights, SCHEME, guard};
use crate::app::App;
use crate::codes;
use crate::metrics::known_method;
use crate::problem::ApiProblem;
use crate::ui;
pub(crate) use attention::PersonTasks;
pub(crate) use held::HeldSteps;
use time_limit::TimeLimits;

const JSON: &str = "application/json";
const PROBLEM_JSON: &str = "application/problem+json";
/// The id of a request: the caller's, or one that the server gives.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

#[derive(OpenApi)]
#[openapi(info(
    title = "Stepwell",
    description = "Durable workflows: definitions, runs, signals, events and streams. Refusals are RFC 9457 problems; \
                   their `code` never changes, and their `type` is the address of a page that explains the code.",
    license(name = "Apache-2.0", identifier = "Apache-2.0"),
))]
struct Described;

/// The endpoints with their descriptions.
fn endpoints() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Described::openapi())
        .merge(meta::routes())
        .merge(engines::routes())
        .merge(definitions::routes())
        .merge(definition_texts::routes())
        .merge(folder::routes())
        .merge(runs::routes())
        .merge(run_list::routes())
        .merge(held::routes())
        .merge(run_reads::routes())
        .merge(actions::routes())
        .merge(allowed::routes())
        .merge(languages::routes())
        .merge(schedules::routes())
        .merge(webhooks::routes())
        .merge(sources::routes())
        .merge(hooks::routes())
        .merge(events::routes())
        .merge(stream::routes())
        .merge(run_feed::routes())
        .merge(watch::routes())
        .merge(logs::routes())
        .merge(log_windows::routes())
        .merge(inbox::routes())
        .merge(bulk::routes())
        .merge(alerts::routes())
        .merge(operations::routes())
        .merge(dead_letters::routes())
        .merge(attention::routes())
        .merge(tokens::routes())
        .merge(audit::routes())
        .merge(sessions::routes())
        .merge(workers::routes())
}

/// The OpenAPI document of the server.
#[must_use]
pub fn openapi() -> Document {
    described(endpoints().split_for_parts().1)
}

fn described(mut document: Document) -> Document {
    let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    let components = document.components.get_or_insert_default();
    components.add_security_scheme(SCHEME, scheme);
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    for (path, item) in &mut document.paths.paths {
        let operations = [
            ("get", &mut item.get),
            ("put", &mut item.put),
            ("post", &mut item.post),
            ("delete", &mut item.delete),
            ("patch", &mut item.patch),
        ];
        for (method, operation) in operations {
            let Some(operation) = operation else { continue };
            operation.operation_id = Some(operation_id(method, path));
            operation
                .responses
                .responses
                .values_mut()
                .for_each(as_problem);
        }
    }
    document
}

/// The id of an operation, which no other one has: `get_runs_run_events` for `GET /api/v1/runs/{run}/events`.
fn operation_id(method: &str, path: &str) -> String {
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    let words = path
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|it| !it.is_empty());
    let mut id = method.to_owned();
    for word in words {
        id.push('_');
        id.push_str(word);
    }
    id
}

/// Refusals have a media type of their own.
fn as_problem(response: &mut RefOr<openapi::Response>) {
    let RefOr::T(response) = response else { return };
    let problem = format!("#/components/schemas/{}", ApiProblem::name());
    let is_problem = |content: &RefOr<openapi::Content>| match content {
        RefOr::T(content) => match &content.schema {
            Some(RefOr::Ref(reference)) => reference.ref_location == problem,
            Some(RefOr::T(_)) | None => false,
        },
        RefOr::Ref(_) => false,
    };
    if response.content.get(JSON).is_some_and(is_problem)
        && let Some(content) = response.content.swap_remove(JSON)
    {
        response.content.insert(PROBLEM_JSON.to_owned(), content);
    }
}

/// All routes, with the guard and the limits around them.
pub(crate) fn router(app: Arc<App>) -> Router {
    let (routes, document) = endpoints().split_for_parts();
    let document = Arc::new(described(document));
    let rights = Arc::new(Rights::of(&document));
    // Events of a stream must not wait for a block of the compression to fill.
    let compressed = SizeAbove::new(1024).and(NotForContentType::SSE);
    let max_body = app.settings.max_body;
    let times = TimeLimits {
        body: app.settings.body_timeout,
        all: app.settings.request_timeout,
    };
    routes
        .route_layer(middleware::from_fn(etag::etag))
        .route_layer(middleware::from_fn(move |request, next| {
            time_limit::limited(request, next, times)
        }))
        .route_layer(middleware::from_fn_with_state(
            (Arc::clone(&app), rights),
            guard,
        ))
        .fallback(no_such_endpoint)
        .method_not_allowed_fallback(no_such_method)
        .layer(Extension(document))
        .layer(DefaultBodyLimit::max(max_body))
        .layer(
            CompressionLayer::new()
                .gzip(true)
                // Answers are made for one caller: what a better level saves on the way, it costs here.
                .quality(CompressionLevel::Fastest)
                .compress_when(compressed),
        )
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn(with_request_id))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), counted))
        .with_state(app)
}

/// Counts requests and how long they take, and says where in a trace they are.
async fn counted(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let span = match is_worth_a_span(route) {
        true => {
            let (trace, span) = app.telemetry.begin(request.headers());
            if let Some(trace) = trace {
                request.extensions_mut().insert(trace);
            }
            span
        }
        false => None,
    };
    let response = next.run(request).await;
    if let Some(span) = span {
        let method = known_method(method.as_str());
        let status = response.status().as_u16();
        app.telemetry.end(span, method, route, status);
    }
    app.metrics.answered(
        method.as_str(),
        route,
        response.status().as_u16(),
        began.elapsed(),
    );
    response
}

/// Questions that machines ask all the time are no part of a trace.
fn is_worth_a_span(route: &str) -> bool {
    let is_poll = route.starts_with("/api/v1/worker/");
    !is_poll && !["/healthz", "/readyz", "/metrics"].contains(&route)
}

/// Gives every answer the id of its request, and headers that keep browsers from guessing.
async fn with_request_id(mut request: Request, next: Next) -> Response {
    let plain = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        (1..=128).contains(&text.len()) && text.chars().all(good)
    };
    let given = request.headers().get(REQUEST_ID).filter(|it| plain(it));
    let id = given.cloned().unwrap_or_else(|| {
        let fresh = uuid::Uuid::now_v7().to_string();
        HeaderValue::try_from(fresh).unwrap_or(HeaderValue::from_static("none"))
    });
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let hosts = request.headers().get_all(header::HOST).iter().count();
    let is_odd = hosts > 1 || (hosts == 0 && request.version() == Version::HTTP_11);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    // Every line that is logged for the request names it; the guard adds the tenant.
    let span = tracing::error_span!(
        "request",
        request = id.to_str().unwrap_or_default(),
        tenant = tracing::field::Empty
    );
    let mut response = match is_odd {
        // RFC 9112: a server must refuse it, because two readers could take it for requests to different hosts.
        true => ApiProblem::bad_request("the header `host` must be there once").into_response(),
        false => next.run(request).instrument(span.clone()).await,
    };
    if response.status().is_server_error() {
        let status = response.status().as_u16();
        span.in_scope(|| tracing::warn!(status, "{method} {path} was not done"));
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// A bug in one endpoint is an answer, and no end of the connection.
fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    let text = panic.downcast_ref::<&str>().map(|it| (*it).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    let text = text.unwrap_or_else(|| "no message".to_owned());
    ApiProblem::internal(&format!("an endpoint panicked: {text}")).into_response()
}

/// What is no endpoint: a file of the UI, or nothing.
async fn no_such_endpoint(request: Request) -> Response {
    if let Some(file) = ui::answer(&request) {
        return file;
    }
    ApiProblem::not_found(
        codes::ENDPOINT_UNKNOWN,
        format!(
            "there is no endpoint {}; /api/openapi.json lists all endpoints",
            request.uri().path()
        ),
    )
    .into_response()
}

async fn no_such_method(request: Request) -> ApiProblem {
    ApiProblem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        codes::METHOD_NOT_ALLOWED,
        format!(
            "{} has no method {}; /api/openapi.json lists all endpoints",
            request.uri().path(),
            request.method()
        ),
    )
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::*;

    #[test]
    fn every_operation_has_an_id_of_its_own() {
        let document = serde_json::to_value(openapi()).unwrap();
        let mut ids = std::collections::BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                assert!(
                    ids.insert(id.clone()),
                    "{method} {path}: {id} is there twice"
                );
            }
        }
        assert!(ids.contains("get_runs_run_events"), "{ids:?}");
    }

    #[test]
    fn every_endpoint_names_the_right_that_it_needs() {
        let document = openapi();
        let rights = Rights::of(&document);
        for (path, item) in &document.paths.paths {
            let operations = [
                (Method::GET, &item.get),
                (Method::PUT, &item.put),
                (Method::POST, &item.post),
                (Method::DELETE, &item.delete),
                (Method::PATCH, &item.patch),
            ];
            for (method, operation) in operations {
                if operation.is_some() {
                    let need = rights.need(&method, path);
                    assert!(need.is_some(), "{method} {path} names no right");
                }
            }
        }
    }
}
