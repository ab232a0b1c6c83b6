//! What else a worker sends and reads: lines of step logs, artifacts, compiled definitions.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepwell_engine::Error;
use stepwell_engine::read::LoggedRun;
use stepwell_engine::remote::RemoteClaim;
use stepwell_engine::store::StoreError;
use stepwell_kernel::event::ArtifactRef;
use stepwell_kernel::reference::SCHEME;
use stepwell_kernel::rejection::Code;
use stepwell_worker::artifacts::ArtifactKey;
use stepwell_worker::secrets::Redactor;
use stepwell_worker::step_log::{LogSink as _, Stream};
use stepwell_worker::tool::TaskLimits;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::super::body::{Body, Params, whole};
use crate::access::Caller;
use crate::app::App;
use crate::codes;
use crate::problem::ApiProblem;

/// The largest artifact that a worker sends through the server, in bytes.
const MAX_ARTIFACT: usize = 64 << 20;
/// The most lines of one request.
const MAX_LINES: usize = 10_000;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    let uploads = OpenApiRouter::new()
        .routes(routes!(put_artifact, get_artifact))
        .layer(DefaultBodyLimit::max(MAX_ARTIFACT));
    OpenApiRouter::new()
        .routes(routes!(logs))
        .routes(routes!(plan))
        .merge(uploads)
}

/// Where a line comes from.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum LineStream {
    /// Standard output of a program.
    Out,
    /// Standard error of a program.
    Err,
    /// A note of the worker.
    Note,
}

/// A line of a step's log.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WorkLine {
    /// The token of the task.
    task_token: String,
    /// The part of the step that wrote the line; empty for the step itself.
    #[serde(default)]
    task: String,
    stream: LineStream,
    /// The line, without its end.
    text: String,
}

/// Lines of step logs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LinesRequest {
    /// The version of the protocol: 1.
    protocol: u32,
    /// At most 10,000, in the order in which they were written.
    lines: Vec<WorkLine>,
}

/// What became of lines.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct LinesAnswer {
    /// How many lines were taken.
    taken: usize,
    /// How many lines have a token that nobody gave, or are about a task that is over.
    refused: usize,
}

/// Write lines to the logs of steps, where `stepwell runs logs` shows them. Lines of a task are taken while its lease holds:
/// send them before the result.
#[utoipa::path(post, path = "/api/v1/worker/logs", tag = "workers", security(("token" = ["work"])),
    request_body = LinesRequest,
    responses((status = 200, body = LinesAnswer), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 413, body = ApiProblem), (status = 415, body = ApiProblem)))]
async fn logs(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(body): Body<LinesRequest>,
) -> Result<Json<LinesAnswer>, ApiProblem> {
    super::speaks(body.protocol)?;
    super::within("lines", body.lines.len(), 0, MAX_LINES)?;
    let all = body.lines.len();
    let mut claims = HashMap::new();
    for line in &body.lines {
        if !claims.contains_key(&line.task_token)
            && let Ok(claim) = app.workers.claim(&caller, &line.task_token)
        {
            claims.insert(line.task_token.clone(), claim);
        }
    }
    let claims = held(&app, claims).await?;
    let mut taken = 0;
    for line in body.lines {
        let Some(claim) = claims.get(&line.task_token) else {
            continue;
        };
        taken += 1;
        let writer = app.workers.registry.log_of(claim, || {
            let (run, step, execution) = (&claim.run_id, &claim.name, claim.execution);
            let limits = TaskLimits::default();
            app.logs
                .begin(run, step, execution, &Redactor::new(), &limits)
        });
        let stream = match line.stream {
            LineStream::Out => Stream::Out,
            LineStream::Err => Stream::Err,
            LineStream::Note => Stream::Note,
        };
        writer.line(&line.task, stream, &line.text);
    }
    let refused = all - taken;
    Ok(Json(LinesAnswer { taken, refused }))
}

/// Those of the claims that are still their workers': what belongs to a task that is over is never changed.
async fn held(
    app: &App,
    claims: HashMap<String, RemoteClaim>,
) -> Result<HashMap<String, RemoteClaim>, ApiProblem> {
    let current = |(_, claim): &(String, RemoteClaim)| !app.workers.registry.is_replaced(claim);
    let (tokens, claims): (Vec<String>, Vec<RemoteClaim>) =
        claims.into_iter().filter(current).unzip();
    let remote = app.workers.remote.clone();
    let (claims, held) = app
        .block(move || {
            let held = remote.held(&claims)?;
            Ok::<_, StoreError>((claims, held))
        })
        .await?;
    let claims = tokens.into_iter().zip(claims).zip(held);
    Ok(claims
        .filter(|(_, held)| *held)
        .map(|(claim, _)| claim)
        .collect())
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
struct ArtifactQuery {
    /// The token of the task that the artifact belongs to.
    task_token: String,
    /// The name of the artifact in its task.
    name: String,
    /// What it is, in the word of the worker; `file` if absent.
    kind: Option<String>,
}

/// Keep bytes as an artifact of a task, while its lease holds: for outputs that are too large for a result. An artifact is
/// never replaced: the same bytes may be put again, other bytes need another name. The answer is the reference for the field
/// `artifacts` of the result; `{"_ref": reference}` in an output stands for JSON that was kept.
#[utoipa::path(put, path = "/api/v1/worker/artifacts", tag = "workers", security(("token" = ["work"])),
    params(ArtifactQuery), request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = Object), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 409, body = ApiProblem), (status = 413, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn put_artifact(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<ArtifactQuery>,
    bytes: Result<Bytes, axum::extract::rejection::BytesRejection>,
) -> Result<Json<ArtifactRef>, ApiProblem> {
    let bytes = whole(bytes)?;
    super::within("name", query.name.len(), 1, 200)?;
    let claim = app.workers.claim(&caller, &query.task_token)?;
    let claims = HashMap::from([(query.task_token, claim)]);
    let Some((_, claim)) = held(&app, claims).await?.into_iter().next() else {
        return Err(ApiProblem::new(
            StatusCode::CONFLICT,
            Code::LeaseLost.name(),
            "the task is over or no longer this worker's, so nothing of it can be changed: stop the work",
        ));
    };
    let (run, step) = (&claim.run_id, &claim.name);
    let key = ArtifactKey::new(run, step, claim.execution, &query.name);
    let kind = query.kind.as_deref().unwrap_or("file");
    let kept = app.artifacts.put_new(&key, kind, bytes).await?;
    app.workers.registry.kept(&claim, &kept);
    Ok(Json(kept))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ArtifactAddress {
    /// The `uri` of a reference.
    uri: String,
}

/// Read an artifact that a task refers to.
#[utoipa::path(get, path = "/api/v1/worker/artifacts", tag = "workers", security(("token" = ["work"])),
    params(ArtifactAddress),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 400, body = ApiProblem), (status = 403, body = ApiProblem), (status = 404, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn get_artifact(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<ArtifactAddress>,
) -> Result<Response, ApiProblem> {
    let unknown = || {
        ApiProblem::not_found(
            codes::ARTIFACT_UNKNOWN,
            "there is no artifact with this address",
        )
    };
    let path = query.uri.strip_prefix(SCHEME).ok_or_else(unknown)?;
    let key = ArtifactKey::from_path(path).ok_or_else(unknown)?;
    // A run of another tenant has no artifacts for this worker.
    app.find(&caller, &key.run_id)
        .await
        .map_err(|_| unknown())?;
    let reference = ArtifactRef {
        uri: query.uri,
        kind: String::new(),
        sha256: None,
        size_bytes: None,
        expires_at: None,
    };
    let bytes = app.artifacts.get(&reference).await;
    let bytes = bytes.map_err(|_| unknown())?;
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((kind, bytes).into_response())
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct PlanQuery {
    /// The id of a run with this plan, such as the run of the task.
    run: String,
}

/// The compiled definition of a run: the net that the built-in tools work with.
#[utoipa::path(get, path = "/api/v1/plans/{hash}", tag = "workers", security(("token" = ["work"])),
    params(("hash" = String, Path, description = "The `planHash` of a task."), PlanQuery),
    responses((status = 200, body = Object), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn plan(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(hash): Path<String>,
    Params(query): Params<PlanQuery>,
) -> Result<Json<Value>, ApiProblem> {
    app.find(&caller, &query.run).await?;
    let run_id = query.run.clone();
    let plan = app
        .ask(move |store| Ok::<_, Error>(LoggedRun::open(store, &run_id)?.plan))
        .await?;
    match plan.hash() == hash {
        true => serde_json::to_value(plan.net())
            .map(Json)
            .map_err(|error| ApiProblem::internal(&error)),
        false => Err(ApiProblem::not_found(
            codes::PLAN_UNKNOWN,
            format!("run {} has another plan", query.run),
        )),
    }
}
