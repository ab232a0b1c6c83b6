//! The snapshot of one run, now and whenever it changes, with watermark, STALE and resync as the contract has them.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::response::sse::Event;
use futures_util::stream;
use serde::Deserialize;
use stepwell_engine::projector::{Projected, ResyncMode};
use stepwell_engine::store::RunNo;
use stepwell_views::watch::{Line, RunMoment, lines};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Params;
use super::described::MomentBody;
use super::stream::sse;
use crate::access::Caller;
use crate::app::App;
use crate::changes::{NextLook, RunChanges};
use crate::metrics::OpenStream;
use crate::problem::ApiProblem;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(watch))
        .routes(routes!(resync))
        .routes(routes!(projection))
}

/// Watch the snapshot of a run as server-sent events.
///
/// Each event `snapshot` has the snapshot, its watermark (`lastEventSeq`, also the id of the event), the highest event
/// that was seen, and the lag. With a gap in the log the run is told with `stale: true`, is resynced, and is told again.
/// The stream ends with the run.
#[utoipa::path(get, path = "/api/v1/runs/{run}/watch", tag = "streams", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run.")),
    responses((status = 200, content_type = "text/event-stream", body = String), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn watch(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
) -> Result<Response, ApiProblem> {
    let run = app.find(&caller, &run).await?;
    let watcher = Watcher {
        _open: app.metrics.stream(),
        changes: app.changes.of_run(run),
        // A resync is no change of the run: it is found by looking.
        look: NextLook::new(true),
        app,
        run,
        seen: None,
        waiting: VecDeque::new(),
        over: false,
    };
    Ok(sse(stream::unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await?;
        Some((Ok(event), watcher))
    })))
}

struct Watcher {
    app: Arc<App>,
    run: RunNo,
    changes: RunChanges,
    look: NextLook,
    seen: Option<Projected>,
    waiting: VecDeque<Event>,
    over: bool,
    _open: OpenStream,
}

impl Watcher {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            if self.seen.is_some() {
                self.wait().await?;
            }
            if let Err(problem) = self.look().await {
                self.over = true;
                return Some(super::stream::problem(&problem));
            }
        }
    }

    /// Waits for a change of the run, or for the time to look again. None if the server stops.
    async fn wait(&mut self) -> Option<()> {
        tokio::select! {
            () = self.app.stopping.cancelled() => return None,
            () = tokio::time::sleep(self.look.pause()) => {}
            () = self.changes.changed() => self.look.reset(),
        }
        Some(())
    }

    async fn look(&mut self) -> Result<(), ApiProblem> {
        let (projector, run) = (self.app.projector.clone(), self.run);
        let next = self.app.block(move || projector.refresh(run)).await?;
        let is_news = |seen: &Projected| next.is_news_after(seen);
        if self.seen.as_ref().is_none_or(is_news) {
            self.waiting.extend(lines(&next).iter().map(told));
        }
        self.over = next.snapshot.status.is_terminal() && !next.is_stale;
        self.seen = Some(next);
        Ok(())
    }
}

fn told(line: &Line<'_>) -> Event {
    let id = line.snapshot.last_event_seq.to_string();
    let event = Event::default().event("snapshot").id(id);
    event.data(line.json().to_string())
}

/// Show the snapshot of a run as the projector has it, caught up with the log.
///
/// `lastEventSeq` is its watermark. With a gap in the log that cannot be bridged the run is `stale`: the snapshot is that
/// before the gap, and `observedSeq` the highest event that was seen. The cost does not grow with the log.
#[utoipa::path(get, path = "/api/v1/runs/{run}/snapshot", tag = "runs", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run.")),
    responses((status = 200, body = MomentBody), (status = 403, body = ApiProblem), (status = 404, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn projection(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
) -> Result<Json<RunMoment>, ApiProblem> {
    let run = app.find(&caller, &run).await?;
    let projector = app.projector.clone();
    let seen = app.block(move || projector.refresh(run)).await?;
    Ok(Json(Line::of(&seen).document()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ResyncQuery {
    /// `full`: from all events; `from_snapshot`: from the kept snapshot and the events after it.
    mode: Option<String>,
}

/// Make the snapshot of a run again, whether something is missing or not.
#[utoipa::path(post, path = "/api/v1/runs/{run}/resync", tag = "runs", security(("token" = ["operate"])),
    params(("run" = String, Path, description = "The id of the run."), ResyncQuery),
    responses((status = 200, body = MomentBody), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn resync(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
    Params(query): Params<ResyncQuery>,
) -> Result<Json<RunMoment>, ApiProblem> {
    let mode = match query.mode.as_deref() {
        None | Some("full") => ResyncMode::Full,
        Some("from_snapshot") => ResyncMode::FromSnapshot,
        Some(other) => {
            return Err(ApiProblem::bad_request(format!(
                "mode: {other:?} is neither `full` nor `from_snapshot`"
            )));
        }
    };
    let run = app.find(&caller, &run).await?;
    let projector = app.projector.clone();
    let seen = app.block(move || projector.resync(run, mode)).await?;
    Ok(Json(Line::of(&seen).document()))
}
