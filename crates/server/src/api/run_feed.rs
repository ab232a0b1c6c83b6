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
use serde_json::json;
use stepwell_engine::store::{Mark, RunNo};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::run_list::RunRow;
use super::stream::{problem, sse};
use crate::access::Caller;
use crate::app::App;
use crate::feed::{FeedBatch, FeedRow, Since, rows, since};
use crate::metrics::OpenStream;
use crate::problem::ApiProblem;

/// How often a reader gets a new watermark, whether something has changed or not: the pace says nothing about others.
const WATERMARK: Duration = Duration::from_secs(15);
/// How many rows of runs that only one reader lacks are read at a time: so much memory a slow reader takes.
const PAGE: usize = 32;
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
        telling: None,
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

/// A reader of all runs. What it has not taken is not read: a slow reader holds one batch, which all readers share, or a
/// page of rows of its own.
struct Reader {
    app: Arc<App>,
    caller: Caller,
    batches: broadcast::Receiver<Arc<FeedBatch>>,
    /// Up to where the reader was told everything.
    mark: Mark,
    /// When it was last told its mark.
    marked: Instant,
    /// Events that are no rows.
    waiting: VecDeque<Event>,
    /// Rows that are being told.
    telling: Option<Telling>,
    _open: OpenStream,
}

/// Rows that a reader is being told, one after the other.
struct Telling {
    rows: Rows,
    /// Up to where the reader was told everything then.
    mark: Mark,
    /// A row that is told when it is known whether another one follows: only the last one has the mark.
    held: Option<Arc<str>>,
}

enum Rows {
    /// A batch of all readers, and the place of the next row.
    Shared(Arc<FeedBatch>, usize),
    /// Runs that only this reader lacks, and the rows that were read of those that came before them.
    Own(VecDeque<RunNo>, VecDeque<FeedRow>),
}

impl Rows {
    /// The next row that the caller may see.
    async fn next(&mut self, app: &App, caller: &Caller) -> Result<Option<Arc<str>>, ApiProblem> {
        let told = |row: &FeedRow| {
            let may_see = caller.may_see_row(&row.run);
            may_see.then(|| row.text(|row| json!(RunRow::of(row)).to_string()))
        };
        match self {
            Rows::Shared(batch, next) => {
                while let Some(row) = batch.rows.get(*next) {
                    *next += 1;
                    if let Some(text) = told(row) {
                        return Ok(Some(text));
                    }
                }
                Ok(None)
            }
            Rows::Own(runs, read) => loop {
                while let Some(row) = read.pop_front() {
                    if let Some(text) = told(&row) {
                        return Ok(Some(text));
                    }
                }
                if runs.is_empty() {
                    return Ok(None);
                }
                let page: Vec<RunNo> = runs.iter().take(PAGE).copied().collect();
                let many = page.len();
                let more = app.ask(move |store| rows(store, &page)).await?;
                // Only now: they are read again if the store is away.
                runs.drain(..many);
                *read = more.into();
            },
        }
    }
}

impl Reader {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            let told = match self.row().await {
                Ok(Some(event)) => return Some(event),
                Ok(None) => self.listen().await?,
                Err(problem) => Err(problem),
            };
            if let Err(why) = told {
                // A store that is away is told. What is missing comes later.
                self.waiting.push_back(problem(&why));
                tokio::time::sleep(REST).await;
            }
        }
    }

    /// Waits for the next batch, or for the time to tell the mark. None if the server stops.
    async fn listen(&mut self) -> Option<Result<(), ApiProblem>> {
        let batch = tokio::select! {
            () = self.app.stopping.cancelled() => return None,
            () = tokio::time::sleep_until(self.marked + WATERMARK) => None,
            batch = self.batches.recv() => Some(batch),
        };
        match batch {
            None => Some(self.tell_mark()),
            Some(Ok(batch)) => Some(self.take(batch).await),
            Some(Err(RecvError::Lagged(_))) => Some(self.catch_up().await),
            Some(Err(RecvError::Closed)) => None,
        }
    }

    async fn take(&mut self, batch: Arc<FeedBatch>) -> Result<(), ApiProblem> {
        if batch.is_gap || batch.since.at > self.mark.at {
            return self.catch_up().await;
        }
        if batch.mark.at > self.mark.at {
            let mark = batch.mark.clone();
            self.tell(Rows::Shared(batch, 0), mark);
        }
        Ok(())
    }

    /// Reads what has changed since the mark.
    async fn catch_up(&mut self) -> Result<(), ApiProblem> {
        let mark = self.mark.clone();
        match self.app.ask(move |store| since(store, &mark)).await? {
            Since::Runs(runs, mark) => {
                self.tell(Rows::Own(runs.into(), VecDeque::new()), mark);
                Ok(())
            }
            Since::Unknown(why, mark) => {
                self.mark = mark;
                self.resync(why)
            }
        }
    }

    fn tell(&mut self, rows: Rows, mark: Mark) {
        let held = None;
        self.telling = Some(Telling { rows, mark, held });
    }

    /// The next of the caller's runs among those that are being told; none if nothing is. Only the last one has the new
    /// mark: who leaves before is told all of them again.
    async fn row(&mut self) -> Result<Option<Event>, ApiProblem> {
        let event = |text: Arc<str>| Event::default().event("run").data(text);
        while let Some(telling) = &mut self.telling {
            let next = telling.rows.next(&self.app, &self.caller).await?;
            let is_last = next.is_none();
            let held = std::mem::replace(&mut telling.held, next);
            if is_last {
                let mark = telling.mark.clone();
                self.telling = None;
                self.mark = mark;
                let sealed = self.sealed(&self.mark)?;
                return Ok(held.map(|text| event(text).id(sealed)));
            }
            if let Some(text) = held {
                return Ok(Some(event(text)));
            }
        }
        Ok(None)
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
