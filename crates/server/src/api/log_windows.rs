//! Parts of large logs: lines around a place, and the places of a text. The cost does not grow with what comes before.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use stepwell_worker::logs::{PlacedLine, Wanted};
use stepwell_worker::step_log::Stream;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::{Params, PathOf};
use super::logs::check_step;
use crate::access::Caller;
use crate::app::App;
use crate::problem::ApiProblem;

/// How many bytes of a log a window has.
const WINDOW: usize = 64 << 10;
const MAX_WINDOW: usize = 1 << 20;
/// The most lines that a search answers with.
const MAX_HITS: usize = 1_000;
const HITS: usize = 200;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(window))
        .routes(routes!(search))
}

/// A line of a log and its place.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PlacedLogRow {
    /// The byte of the log at which the line begins.
    at_byte: u64,
    at: String,
    /// The task that wrote the line; empty for the step itself.
    task: String,
    /// `out`, `err`, or `note` for notes of the worker.
    stream: &'static str,
    text: String,
}

impl PlacedLogRow {
    fn all(lines: Vec<PlacedLine>) -> Vec<PlacedLogRow> {
        let row = |it: PlacedLine| PlacedLogRow {
            at_byte: it.at_byte,
            at: it.line.at,
            task: it.line.task,
            stream: it.line.stream.name(),
            text: it.line.text,
        };
        lines.into_iter().map(row).collect()
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct WindowQuery {
    /// The first line that begins at this byte or later; absent: the end of the log.
    from: Option<u64>,
    /// How many bytes of the log to read; 65536 if absent, 1048576 at most.
    bytes: Option<usize>,
}

/// Lines of one execution of a step that stand one after the other.
#[derive(Debug, Serialize, ToSchema)]
struct LogPart {
    lines: Vec<PlacedLogRow>,
    /// The byte at which the first line begins.
    first: u64,
    /// Pass it as `from` to get what comes later.
    next: u64,
    /// How many bytes the log has now.
    size: u64,
}

/// Read a part of the log of one execution of a step: its end, or what stands at a place.
#[utoipa::path(get, path = "/api/v1/runs/{run}/logs/{step}/{execution}", tag = "runs", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run."),
        ("step" = String, Path, description = "The id of the step, such as `fetch` or `load[3]`."),
        ("execution" = u32, Path, description = "The number of the execution, from 1."), WindowQuery),
    responses((status = 200, body = LogPart), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn window(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf((run, step, execution)): PathOf<(String, String, u32)>,
    Params(query): Params<WindowQuery>,
) -> Result<Json<LogPart>, ApiProblem> {
    let most = within("bytes", query.bytes, WINDOW, MAX_WINDOW)?;
    let no = app.find(&caller, &run).await?;
    let read = app.logs.window(&run, &step, execution, query.from, most);
    let read = read.await.map_err(|error| ApiProblem::internal(&error))?;
    if read.size == 0 {
        check_step(&app, no, &run, step).await?;
    }
    Ok(Json(LogPart {
        lines: PlacedLogRow::all(read.lines),
        first: read.first,
        next: read.next,
        size: read.size,
    }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct SearchQuery {
    /// The text that lines contain; upper and lower case are the same. Absent: every line of `stream`.
    #[serde(default)]
    text: String,
    /// Only lines of this stream: `out`, `err` or `note`. Absent: lines of all streams that contain `text`.
    stream: Option<String>,
    /// Only lines that begin at this byte or later.
    #[serde(default)]
    from: u64,
    /// At most this many lines; 200 if absent, 1000 at most.
    limit: Option<usize>,
}

/// Lines of a log with a text.
#[derive(Debug, Serialize, ToSchema)]
struct LogHitPage {
    lines: Vec<PlacedLogRow>,
    /// Pass it as `from` to search on; equal to `size` if all was searched.
    next: u64,
    size: u64,
}

/// Find the lines of the log of one execution of a step that contain a text, or that are of one stream. One request searches about 16 MiB: search on
/// at `next` until it is `size`.
#[utoipa::path(get, path = "/api/v1/runs/{run}/logs/{step}/{execution}/search", tag = "runs",
    security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run."),
        ("step" = String, Path, description = "The id of the step, such as `fetch` or `load[3]`."),
        ("execution" = u32, Path, description = "The number of the execution, from 1."), SearchQuery),
    responses((status = 200, body = LogHitPage), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn search(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf((run, step, execution)): PathOf<(String, String, u32)>,
    Params(query): Params<SearchQuery>,
) -> Result<Json<LogHitPage>, ApiProblem> {
    let most = within("limit", query.limit, HITS, MAX_HITS)?;
    let stream = query.stream.as_deref().map(stream_of).transpose()?;
    if query.text.is_empty() && stream.is_none() {
        return Err(ApiProblem::bad_request(
            "text: a text is needed, or a stream",
        ));
    }
    let wanted = Wanted {
        text: query.text,
        stream,
    };
    let no = app.find(&caller, &run).await?;
    let logs = &app.logs;
    let read = logs.search(&run, &step, execution, wanted, query.from, most);
    let read = read.await.map_err(|error| ApiProblem::internal(&error))?;
    if read.size == 0 {
        check_step(&app, no, &run, step).await?;
    }
    Ok(Json(LogHitPage {
        lines: PlacedLogRow::all(read.lines),
        next: read.next,
        size: read.size,
    }))
}

fn stream_of(name: &str) -> Result<Stream, ApiProblem> {
    let all = [Stream::Out, Stream::Err, Stream::Note];
    let found = all.into_iter().find(|it| it.name() == name);
    found.ok_or_else(|| ApiProblem::bad_request("stream: out, err or note is needed"))
}

fn within(
    name: &str,
    asked: Option<usize>,
    absent: usize,
    most: usize,
) -> Result<usize, ApiProblem> {
    let asked = asked.unwrap_or(absent);
    match (1..=most).contains(&asked) {
        true => Ok(asked),
        false => Err(ApiProblem::bad_request(format!(
            "{name}: a number from 1 to {most} is needed"
        ))),
    }
}
