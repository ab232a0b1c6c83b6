//! Streams of server-sent events: the log of one run as it grows. A reader that comes back says which event it saw last
//! and misses nothing.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::json;
use stepwell_engine::Error;
use stepwell_engine::read::LogRecords;
use stepwell_engine::store::RunNo;
use stepwell_views::snapshot::event as line;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Params;
use crate::access::Caller;
use crate::app::App;
use crate::changes::{NextLook, RunChanges};
use crate::metrics::OpenStream;
use crate::problem::ApiProblem;

/// How many commits are read at a time.
const CHUNKS: usize = 64;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(run_stream))
}

/// A stream as an answer.
pub(super) fn sse<S>(stream: S) -> Response
where
    S: Stream<Item = Result<Event, Infallible>> + Send + 'static,
{
    // Proxies that wait for the first bytes pass the head of the answer on at once, and readers know that they are live.
    let first = futures_util::stream::iter([Ok(Event::default().comment("open"))]);
    let stream = futures_util::StreamExt::chain(first, stream);
    let keep_alive = KeepAlive::new().interval(Duration::from_secs(15));
    let stream = Sse::new(stream).keep_alive(keep_alive);
    ([("x-accel-buffering", "no")], stream).into_response()
}

/// What keeps a stream from going on.
pub(super) fn problem(problem: &ApiProblem) -> Event {
    let event = Event::default().event("problem");
    event.data(json!(problem).to_string())
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct StreamQuery {
    /// Only events after this number. The header `Last-Event-ID` comes first.
    #[serde(default)]
    after: u64,
}

/// Follow the log of a run as server-sent events.
///
/// The id of each event is its number in the run; a reader that sends it as `Last-Event-ID` goes on there. A reader that names
/// an event that the log does not have, because the store was restored from a backup, is told so with the event `resync`, and
/// gets all events. The stream ends with the event `end` when the run has ended.
#[utoipa::path(get, path = "/api/v1/runs/{run}/stream", tag = "streams", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run."), StreamQuery),
    responses((status = 200, content_type = "text/event-stream", body = String), (status = 400, body = ApiProblem),
        (status = 403, body = ApiProblem), (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn run_stream(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
    headers: HeaderMap,
    Params(query): Params<StreamQuery>,
) -> Result<Response, ApiProblem> {
    let after = match headers.get("last-event-id") {
        Some(id) => {
            let id = id.to_str().ok().and_then(|it| it.trim().parse().ok());
            id.ok_or_else(|| ApiProblem::bad_request("Last-Event-ID: a whole number is needed"))?
        }
        None => query.after,
    };
    let opened = app.ask(move |store| {
        let row = caller.row(store, &run)?;
        // A reader that has seen more than there is has read another log: the store was restored from a backup.
        let is_other = after > row.last_seq;
        let after = if is_other { 0 } else { after };
        let records = LogRecords::after(store, &row, after)?;
        Ok::<_, Error>((row, records, after, is_other))
    });
    let (row, records, after, is_other) = opened.await?;
    let no = row.run;
    let resync = is_other.then(|| {
        let data = json!({ "lastSeq": row.last_seq }).to_string();
        Event::default().event("resync").data(data)
    });
    // Heard from before the log is read, so that no change in between is missed.
    let changes = app.changes.of_run(no);
    let follower = Follower {
        run: no,
        records: Some(records),
        after,
        read: after,
        waiting: resync.into_iter().collect(),
        changes,
        look: NextLook::new(app.store.is_shared()),
        has_all: false,
        ended: false,
        _open: app.metrics.stream(),
        app,
    };
    Ok(sse(follower.stream()))
}

/// Follows the log of one run. Nothing is read before the reader has taken what was read before, so a slow reader costs
/// one page of memory.
struct Follower {
    app: Arc<App>,
    run: RunNo,
    /// Lent to the thread that reads.
    records: Option<LogRecords>,
    /// Events up to this one are not told.
    after: u64,
    /// The number of the last event that was read.
    read: u64,
    waiting: VecDeque<Event>,
    changes: RunChanges,
    look: NextLook,
    /// Everything was read that was there at the last look.
    has_all: bool,
    ended: bool,
    _open: OpenStream,
}

impl Follower {
    fn stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut follower| async move {
            let event = follower.next().await?;
            Some((Ok(event), follower))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            if std::mem::take(&mut self.has_all) {
                self.wait().await?;
            }
            // Boxed: most of the time a stream only waits, and has no need for the room that reading takes.
            if let Err(why) = Box::pin(self.read_more()).await {
                self.ended = true;
                return Some(problem(&why));
            }
        }
    }

    /// Reads what was committed since.
    async fn read_more(&mut self) -> Result<(), ApiProblem> {
        let Some(mut records) = self.records.take() else {
            return Err(ApiProblem::internal(&"a log is read twice at a time"));
        };
        let run = self.run;
        // What has changed up to now is in what is read.
        self.changes.heard();
        let (records, read, row) = self
            .app
            .ask(move |store| {
                // Asked before the log is read: an end that is seen here is in what is read.
                let row = store.summary(run)?;
                let row = row.ok_or_else(|| Error::UnknownRun(format!("number {}", run.0)))?;
                let read = records.unread(store, CHUNKS)?;
                Ok::<_, Error>((records, read, row))
            })
            .await?;
        self.records = Some(records);
        let is_empty = read.is_empty();
        for record in read {
            let line = line(record);
            let seq = line["runSeq"].as_u64().unwrap_or(self.read + 1);
            let kind = line["eventType"].as_str().unwrap_or("event").to_owned();
            self.read = seq;
            if seq > self.after {
                let event = Event::default().id(seq.to_string()).event(kind);
                self.waiting.push_back(event.data(line.to_string()));
            }
        }
        self.has_all = is_empty || self.read >= row.last_seq;
        if self.has_all && row.head.ended_at.is_some() {
            let end = Event::default().event("end");
            let data = json!({ "lastSeq": row.last_seq }).to_string();
            self.waiting.push_back(end.data(data));
            self.ended = true;
        }
        Ok(())
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
}
