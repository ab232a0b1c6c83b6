//! The stream of all runs: rows of the list as they change. A reader that comes back with its watermark goes on there, at
//! any server of the store; where that is not possible it is told why, and reads the list again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use futures_util::stream;
use serde_json::{Value, json};
use stepwell_engine::store::Mark;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::runs::RunRow;
use super::stream::{problem, sse};
use crate::access::Caller;
use crate::app::App;
use crate::feed::{FeedBatch, FeedRow, Since, since};
use crate::metrics::OpenStream;
use crate::problem::ApiProblem;

/// How often a reader gets a new watermark, whether something has changed or not: the pace says nothing about others.
const WATERMARK: Duration = Duration::from_secs(15);
/// How long a store that is away is left alone.
const REST: Duration = Duration::from_secs(1);

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(all_runs))
}

/// Watch the runs of the installation as server-sent events.
///
/// Each event `run` is a row of the list of runs that has changed, as it is now. The id of an event is a watermark, and
/// so is the header `stepwell-watermark` of the list of runs: who sends it as `Last-Event-ID` is told every run that has changed since, by any
/// server of the store and after a restart too. Changes are remembered for ten minutes at least. Where they are not, or too
/// many runs have changed, the reader is told `resync` with the reason: the list must be read again. A row may come twice;
/// the number of `events` says which one is newer. The event `watermark` comes first and every 15 seconds.
#[utoipa::path(get, path = "/api/v1/stream", tag = "streams", security(("token" = ["view"])),
    params(("Last-Event-ID" = Option<String>, Header, description = "The watermark to go on from.")),
    responses((status = 200, content_type = "text/event-stream", body = String), (status = 403, body = ApiProblem),
        (status = 503, body = ApiProblem)))]
async fn all_runs(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    // Heard from before the mark is taken, so that no change in between is missed.
    let batches = app.feed.subscribe();
    let mut reader = Reader {
        mark: app.ask(|store| store.mark()).await?,
        batches,
        waiting: VecDeque::new(),
        marked: Instant::now(),
        _open: app.metrics.stream(),
        app,
        caller,
    };
    if let Some(id) = headers.get("last-event-id") {
        let known = id
            .to_str()
            .ok()
            .and_then(|it| reader.app.watermarks.open(it));
        match known {
            Some(mark) => {
                reader.mark = mark;
                reader.catch_up().await?;
            }
            None => reader.resync("the watermark is not one of this store")?,
        }
    }
    reader.tell_mark()?;
    Ok(sse(stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok(event), reader))
    })))
}

/// A reader of all runs. What it has not taken is not read: a slow reader costs a few batches of memory.
struct Reader {
    app: Arc<App>,
    caller: Caller,
    batches: broadcast::Receiver<Arc<FeedBatch>>,
    /// Up to where the reader was told everything.
    mark: Mark,
    /// When it was last told its mark.
    marked: Instant,
    waiting: VecDeque<Event>,
    _open: OpenStream,
}

impl Reader {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            let batch = tokio::select! {
                () = self.app.stopping.cancelled() => return None,
                () = tokio::time::sleep_until(self.marked + WATERMARK) => None,
                batch = self.batches.recv() => Some(batch),
            };
            let told = match batch {
                None => self.tell_mark(),
                Some(Ok(batch)) => self.take(&batch).await,
                Some(Err(RecvError::Lagged(_))) => self.catch_up().await,
                Some(Err(RecvError::Closed)) => return None,
            };
            if let Err(why) = told {
                // A store that is away is told. What is missing comes with the next batch.
                self.waiting.push_back(problem(&why));
                tokio::time::sleep(REST).await;
            }
        }
    }

    async fn take(&mut self, batch: &FeedBatch) -> Result<(), ApiProblem> {
        if batch.is_gap || batch.since.at > self.mark.at {
            return self.catch_up().await;
        }
        if batch.mark.at > self.mark.at {
            self.tell(&batch.rows, batch.mark.clone())?;
        }
        Ok(())
    }

    /// Reads what has changed since the mark.
    async fn catch_up(&mut self) -> Result<(), ApiProblem> {
        let mark = self.mark.clone();
        match self.app.ask(move |store| since(store, &mark)).await? {
            Since::Rows(rows, mark) => self.tell(&rows, mark),
            Since::Unknown(why, mark) => {
                self.mark = mark;
                self.resync(why)
            }
        }
    }

    /// Tells the caller's runs among these. Only the last one has the new mark: who leaves before is told all of them
    /// again.
    fn tell(&mut self, rows: &[FeedRow], mark: Mark) -> Result<(), ApiProblem> {
        let own = rows.iter().filter(|row| self.caller.may_see_row(&row.run));
        let own: Vec<Value> = own
            .map(|row| json!(RunRow::new(row.run.clone(), row.is_damaged)))
            .collect();
        let last = own.len().saturating_sub(1);
        for (place, row) in own.into_iter().enumerate() {
            let event = Event::default().event("run").data(row.to_string());
            self.waiting.push_back(match place == last {
                true => event.id(self.sealed(&mark)?),
                false => event,
            });
        }
        self.mark = mark;
        Ok(())
    }

    fn tell_mark(&mut self) -> Result<(), ApiProblem> {
        self.marked = Instant::now();
        let sealed = self.sealed(&self.mark)?;
        let data = json!({ "watermark": sealed }).to_string();
        let event = Event::default().event("watermark").id(sealed);
        self.waiting.push_back(event.data(data));
        Ok(())
    }

    fn resync(&mut self, why: &str) -> Result<(), ApiProblem> {
        let data = json!({ "reason": why }).to_string();
        let event = Event::default().event("resync").data(data);
        self.waiting.push_back(event.id(self.sealed(&self.mark)?));
        Ok(())
    }

    fn sealed(&self, mark: &Mark) -> Result<String, ApiProblem> {
        let sealed = self.app.watermarks.seal(mark);
        sealed.map_err(|error| ApiProblem::internal(&error))
    }
}
