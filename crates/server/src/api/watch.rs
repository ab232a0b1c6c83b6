//! Streams of states: the snapshot of one run whenever it changes, with watermark, STALE and resync as the contract has
//! them, and the runs of a list as they change.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use stepwell_engine::Error;
use stepwell_engine::projector::{Projected, ResyncMode};
use stepwell_engine::store::{RunFilter, RunNo, RunSummary};
use stepwell_views::watch::{Line, lines};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Params;
use super::runs::RunRow;
use crate::access::Caller;
use crate::app::App;
use crate::changes::Change;
use crate::metrics::OpenStream;
use crate::problem::ApiProblem;

/// How often the store is asked for what other servers have committed.
const LOOK: Duration = Duration::from_secs(1);
/// Changes of this time are told together: a busy run is told at most so often.
const TOGETHER: Duration = Duration::from_millis(200);
/// How many runs of other servers are compared with what was told.
const COMPARED: usize = 200;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(watch))
        .routes(routes!(resync))
        .routes(routes!(projected))
        .routes(routes!(all_runs))
}

fn sse<S>(stream: S) -> Response
where
    S: stream::Stream<Item = Result<Event, Infallible>> + Send + 'static,
{
    let keep_alive = KeepAlive::new().interval(Duration::from_secs(15));
    let stream = Sse::new(stream).keep_alive(keep_alive);
    ([("x-accel-buffering", "no")], stream).into_response()
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
    let changes = app.changes.subscribe();
    let run = app.find(&caller, &run).await?;
    let watcher = Watcher {
        _open: app.metrics.stream(),
        app,
        run,
        changes,
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
    changes: broadcast::Receiver<Change>,
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
                wait(&self.app, &mut self.changes, |change| {
                    change.run == self.run
                })
                .await?;
            }
            if let Err(problem) = self.look().await {
                self.over = true;
                return Some(
                    Event::default()
                        .event("problem")
                        .data(json!(problem).to_string()),
                );
            }
        }
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

/// Waits for a change that counts, or for the time to look again. None if the server stops.
async fn wait(
    app: &App,
    changes: &mut broadcast::Receiver<Change>,
    counts: impl Fn(Change) -> bool,
) -> Option<()> {
    let until = Instant::now() + LOOK;
    loop {
        tokio::select! {
            () = app.stopping.cancelled() => return None,
            () = tokio::time::sleep_until(until) => return Some(()),
            change = changes.recv() => match change {
                Ok(change) if counts(change) => return Some(()),
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return Some(()),
                Err(RecvError::Closed) => return None,
            },
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ResyncQuery {
    /// `full`: from all events; `from_snapshot`: from the kept snapshot and the events after it.
    mode: Option<String>,
}

/// Make the snapshot of a run again, whether something is missing or not.
#[utoipa::path(post, path = "/api/v1/runs/{run}/resync", tag = "runs", security(("token" = ["operate"])),
    params(("run" = String, Path, description = "The id of the run."), ResyncQuery),
    responses((status = 200, body = Object), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn resync(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
    Params(query): Params<ResyncQuery>,
) -> Result<Json<Value>, ApiProblem> {
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
    Ok(Json(Line::of(&seen).json()))
}

/// The snapshot of a run as an event of `watch` has it: with its watermark, the highest event that was seen, and the lag.
#[utoipa::path(get, path = "/api/v1/runs/{run}/snapshot", tag = "runs", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run.")),
    responses((status = 200, body = Object), (status = 403, body = ApiProblem), (status = 404, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn projected(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
) -> Result<Json<Value>, ApiProblem> {
    let run = app.find(&caller, &run).await?;
    let projector = app.projector.clone();
    let seen = app.block(move || projector.refresh(run)).await?;
    Ok(Json(Line::of(&seen).json()))
}

/// Watch the runs of the installation as server-sent events.
///
/// Each event `run` is a row of the list of runs that has changed. Who comes back with `Last-Event-ID` is first told
/// `resync`: changes may have been missed, so the list must be read again.
#[utoipa::path(get, path = "/api/v1/stream", tag = "streams", security(("token" = ["view"])),
    responses((status = 200, content_type = "text/event-stream", body = String), (status = 403, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn all_runs(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    let mut waiting = VecDeque::new();
    if headers.contains_key("last-event-id") {
        let resync = Event::default().event("resync");
        waiting.push_back(
            resync.data(json!({ "reason": "changes may have been missed" }).to_string()),
        );
    }
    let changes = app.changes.subscribe();
    let mut follower = ListFollower {
        told: HashMap::new(),
        changed: BTreeMap::new(),
        number: 0,
        _open: app.metrics.stream(),
        app,
        caller,
        changes,
        waiting,
    };
    // What is there now is not news.
    follower.compare(false).await?;
    Ok(sse(stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok(event), follower))
    })))
}

struct ListFollower {
    app: Arc<App>,
    caller: Caller,
    changes: broadcast::Receiver<Change>,
    /// The last event of each run as it was told.
    told: HashMap<RunNo, u64>,
    /// Runs that have changed and are not told yet.
    changed: BTreeMap<RunNo, u64>,
    number: u64,
    waiting: VecDeque<Event>,
    _open: OpenStream,
}

impl ListFollower {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            self.collect().await?;
            let told = match self.changed.is_empty() {
                true => self.compare(true).await,
                false => self.tell().await,
            };
            if let Err(problem) = told {
                // A store that is away is told, and asked again.
                self.push("problem", json!(problem));
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// Collects changes for a moment. Nothing was collected if it is time to look at other servers' runs.
    async fn collect(&mut self) -> Option<()> {
        let mut until = Instant::now() + LOOK;
        loop {
            tokio::select! {
                () = self.app.stopping.cancelled() => return None,
                () = tokio::time::sleep_until(until) => return Some(()),
                change = self.changes.recv() => match change {
                    Ok(change) => {
                        if self.changed.is_empty() {
                            until = until.min(Instant::now() + TOGETHER);
                        }
                        self.changed.insert(change.run, change.seq);
                    }
                    Err(RecvError::Lagged(_)) => {
                        self.push("resync", json!({ "reason": "changes were missed" }));
                        return Some(());
                    }
                    Err(RecvError::Closed) => return None,
                },
            }
        }
    }

    /// Tells the runs that have changed.
    async fn tell(&mut self) -> Result<(), ApiProblem> {
        let runs: Vec<RunNo> = std::mem::take(&mut self.changed).into_keys().collect();
        let rows = self
            .app
            .ask(move |store| {
                let mut rows = Vec::new();
                for run in runs {
                    // The newest run before the next number is the run itself.
                    let filter = RunFilter {
                        before: Some(RunNo(run.0 + 1)),
                        limit: 1,
                        ..RunFilter::default()
                    };
                    rows.extend(store.list(&filter)?.into_iter().filter(|it| it.run == run));
                }
                Ok::<_, Error>(rows)
            })
            .await?;
        self.push_rows(rows, true);
        Ok(())
    }

    /// Looks for runs that other servers have changed.
    async fn compare(&mut self, tells: bool) -> Result<(), ApiProblem> {
        if tells && !self.app.store.is_shared() {
            return Ok(());
        }
        let filter = RunFilter {
            tenant: self.caller.tenant.clone(),
            project: self.caller.project.clone(),
            limit: COMPARED,
            ..RunFilter::default()
        };
        let rows = self.app.ask(move |store| store.list(&filter)).await?;
        self.push_rows(rows, tells);
        Ok(())
    }

    fn push_rows(&mut self, rows: Vec<RunSummary>, tells: bool) {
        for row in rows {
            let of =
                |own: &Option<String>, theirs: &str| own.as_ref().is_none_or(|it| it == theirs);
            let is_own =
                of(&self.caller.tenant, &row.tenant) && of(&self.caller.project, &row.project);
            if !is_own || self.told.insert(row.run, row.last_seq) == Some(row.last_seq) {
                continue;
            }
            if tells {
                let row = RunRow::new(row, false);
                self.push("run", json!(row));
            }
        }
        // What was told long ago is told again at worst.
        if self.told.len() > 100 * COMPARED {
            self.told.clear();
        }
    }

    fn push(&mut self, kind: &str, data: Value) {
        self.number += 1;
        let event = Event::default().event(kind).id(self.number.to_string());
        self.waiting.push_back(event.data(data.to_string()));
    }
}
