//! The output of the steps of a run.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use stepwell_engine::Error;
use stepwell_engine::read::LoggedRun;
use stepwell_engine::store::RunNo;
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_worker::logs::LogLine;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Params;
use crate::access::Caller;
use crate::app::App;
use crate::problem::ApiProblem;

/// The most lines of an answer.
const MAX_LINES: usize = 10_000;
const LINES: usize = 1_000;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(lines))
}

/// The log of one execution of a step.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct LogOfExecution {
    step_id: String,
    /// The number of the execution, from 1.
    execution: u32,
    size_bytes: u64,
}

/// List the logs of a run, one for each execution of a step that wrote something, least recently changed first.
#[utoipa::path(get, path = "/api/v1/runs/{run}/logs", tag = "runs", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run.")),
    responses((status = 200, body = Vec<LogOfExecution>), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
) -> Result<Json<Vec<LogOfExecution>>, ApiProblem> {
    app.find(&caller, &run).await?;
    let found = app.logs.list(&run).await;
    let mut found = found.map_err(|error| ApiProblem::internal(&error))?;
    found.sort_by_key(|file| file.modified);
    let row = |file: stepwell_worker::logs::LogFile| LogOfExecution {
        step_id: file.step_id,
        execution: file.execution,
        size_bytes: file.bytes,
    };
    Ok(Json(found.into_iter().map(row).collect()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct LinesQuery {
    /// Only this execution; absent: all of them in order.
    execution: Option<u32>,
    /// Only lines after this number: the `next` of the answer before.
    #[serde(default)]
    after: usize,
    /// At most this many lines; 1000 if absent, 10000 at most.
    limit: Option<usize>,
    /// Only lines that contain this text; upper and lower case are the same.
    contains: Option<String>,
}

/// Refuses a step that the definition of the run does not have; a step that has written nothing has an empty log.
pub(super) async fn check_step(
    app: &App,
    no: RunNo,
    run: &str,
    step: String,
) -> Result<(), ApiProblem> {
    let missing = Rejection::new(
        Code::StepUnknown,
        format!("the definition of run {run} has no step {step:?}"),
    );
    let is_there = app.ask(move |store| {
        let plan = LoggedRun::numbered(store, no)?.plan;
        let id = step.strip_suffix("~undo").unwrap_or(&step);
        Ok::<_, Error>(plan.parse_step_id(id).is_some())
    });
    match is_there.await? {
        true => Ok(()),
        false => Err(missing.into()),
    }
}

/// A line that a step wrote.
#[derive(Debug, Serialize, ToSchema)]
struct LogRow {
    at: String,
    /// The task that wrote the line; empty for the step itself.
    task: String,
    /// `out`, `err`, or `note` for notes of the worker.
    stream: &'static str,
    text: String,
}

/// Lines of the log of a step.
#[derive(Debug, Serialize, ToSchema)]
struct LogPage {
    lines: Vec<LogRow>,
    /// Pass it as `after` to get what comes later.
    next: usize,
}

/// Read the output of a step.
#[utoipa::path(get, path = "/api/v1/runs/{run}/logs/{step}", tag = "runs", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run."),
        ("step" = String, Path, description = "The id of the step, such as `fetch` or `load[3]`."), LinesQuery),
    responses((status = 200, body = LogPage), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn lines(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((run, step)): Path<(String, String)>,
    Params(query): Params<LinesQuery>,
) -> Result<Json<LogPage>, ApiProblem> {
    let limit = query.limit.unwrap_or(LINES);
    if !(1..=MAX_LINES).contains(&limit) {
        return Err(ApiProblem::bad_request(format!(
            "limit: a number from 1 to {MAX_LINES} is needed"
        )));
    }
    let no = app.find(&caller, &run).await?;
    let read = app.logs.read(&run, &step, query.execution).await;
    let read = read.map_err(|error| ApiProblem::internal(&error))?;
    if read.is_empty() {
        check_step(&app, no, &run, step).await?;
    }
    let wanted = query.contains.map(|it| it.to_lowercase());
    let fits = |line: &LogLine| {
        let text = || line.text.to_lowercase();
        wanted.as_ref().is_none_or(|wanted| text().contains(wanted))
    };
    let mut next = query.after.min(read.len());
    let mut lines = Vec::new();
    for line in read.into_iter().skip(query.after) {
        if lines.len() == limit {
            break;
        }
        next += 1;
        if fits(&line) {
            lines.push(LogRow {
                at: line.at,
                task: line.task,
                stream: line.stream.name(),
                text: line.text,
            });
        }
    }
    Ok(Json(LogPage { lines, next }))
}
