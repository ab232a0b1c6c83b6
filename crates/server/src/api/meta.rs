//! What the server says about itself: health, readiness, version, error pages and the OpenAPI document.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Extension;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::OpenApi as Document;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::app::App;
use crate::codes;
use crate::metrics::{MetricsForm, Sample};
use crate::problem::ApiProblem;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(healthz))
        .routes(routes!(readyz))
        .routes(routes!(version))
        .routes(routes!(error_page))
        .routes(routes!(document))
        .routes(routes!(metrics))
}

#[derive(Debug, Serialize, ToSchema)]
struct Health {
    /// `ok`.
    status: &'static str,
}

/// Whether the process lives. It may still be unable to serve: see `/readyz`.
#[utoipa::path(get, path = "/healthz", tag = "server", security(("token" = ["public"])),
    responses((status = 200, body = Health)))]
async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Readiness {
    /// Whether requests can be served.
    ready: bool,
    /// Why not, one sentence each.
    reasons: Vec<String>,
    /// What does not work beside that, one sentence each: an engine outside that does not answer or that nobody
    /// serves, whose runs wait.
    warnings: Vec<String>,
    /// How long the oldest change is not yet in the snapshots, in milliseconds.
    projector_lag_ms: u64,
}

/// Whether the server can serve requests, and why not.
#[utoipa::path(get, path = "/readyz", tag = "server", security(("token" = ["public"])),
    responses((status = 200, body = Readiness), (status = 503, body = Readiness)))]
async fn readyz(State(app): State<Arc<App>>) -> Response {
    let mut reasons = Vec::new();
    if app.will_stop.load(Ordering::SeqCst) || app.stopping.is_cancelled() {
        reasons.push("the server is stopping".to_owned());
    }
    // Any read will do: it needs the whole way to the store.
    if let Err(problem) = app.ask(|store| store.sinks()).await {
        reasons.push(format!("{}: {}", problem.code, problem.detail));
    }
    let standings = app.engines.iter().flat_map(|it| it.standings());
    let warnings = standings.filter_map(|it| it.notice());
    let warnings = warnings.chain(app.unserved.notices());
    let lag = app.projector.lag();
    let readiness = Readiness {
        ready: reasons.is_empty(),
        reasons,
        warnings: warnings.collect(),
        projector_lag_ms: u64::try_from(lag.as_millis()).unwrap_or(u64::MAX),
    };
    let status = match readiness.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(readiness)).into_response()
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Version {
    version: &'static str,
    /// The store: `sqlite`, `postgres` or `memory`.
    store: &'static str,
}

/// The version of the server.
#[utoipa::path(get, path = "/api/v1/version", tag = "server", security(("token" = ["view"])),
    responses((status = 200, body = Version)))]
async fn version(State(app): State<Arc<App>>) -> Json<Version> {
    Json(Version {
        version: env!("CARGO_PKG_VERSION"),
        store: app.store.name(),
    })
}

/// The page that explains an error code: cause and what to do, as Markdown.
#[utoipa::path(get, path = "/api/v1/errors/{code}", tag = "server", security(("token" = ["public"])),
    params(("code" = String, Path, description = "The code of a problem.")),
    responses((status = 200, content_type = "text/markdown", body = String), (status = 404, body = ApiProblem)))]
async fn error_page(State(app): State<Arc<App>>, Path(code): Path<String>) -> Response {
    match (app.error_page)(&code) {
        Some(page) => (
            [(header::CONTENT_TYPE, "text/markdown; charset=utf-8")],
            page,
        )
            .into_response(),
        None => ApiProblem::not_found(codes::CODE_UNKNOWN, "there is no page about this code")
            .into_response(),
    }
}

/// The OpenAPI document that describes this server.
#[utoipa::path(get, path = "/api/openapi.json", tag = "server", security(("token" = ["public"])),
    responses((status = 200, body = Object)))]
async fn document(Extension(document): Extension<Arc<Document>>) -> Response {
    Json(&*document).into_response()
}

/// What the server counts and measures, as Prometheus reads it: in the text format, or as OpenMetrics if the header `Accept`
/// prefers it.
#[utoipa::path(get, path = "/metrics", tag = "server", security(("token" = ["view"])),
    responses((status = 200, content((String = "text/plain"), (String = "application/openmetrics-text"))),
        (status = 403, body = ApiProblem)))]
async fn metrics(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    super::operations::whole_installation(&caller)?;
    if app.metrics.needs_sample() {
        let now = app.now();
        // A store that is away is a number too.
        let counts = app.ask(move |store| store.waiting(now)).await.ok();
        let workers = app.workers.registry.workers(None, now).len();
        app.metrics.sampled(Sample::new(counts, workers, now));
    }
    let text = app.metrics.text();
    let text = text.map_err(|error| ApiProblem::internal(&error))?;
    let form = MetricsForm::wanted(&headers);
    let kind = (header::CONTENT_TYPE, form.content_type());
    Ok(([kind, (header::VARY, "accept")], form.of(text)).into_response())
}
