//! The changes of all runs, read once for all streams that follow them: also those that other servers have committed. A
//! stream that was told nothing for a while, or too much, reads what it lacks by itself.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stepwell_engine::Error;
use stepwell_engine::store::{Changed, Mark, RunNo, RunSummary, Store};
use stepwell_kernel::time::Time;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::app::App;
use crate::problem::ApiProblem;

/// How often a store that other servers share is asked for what they have committed.
const PACE: Duration = Duration::from_secs(1);
/// Changes of this time are told together.
const TOGETHER: Duration = Duration::from_millis(200);
/// How many runs may have changed between two marks: for more the list is read again.
const MOST: usize = 1_000;
/// How many batches a stream may be behind before it reads by itself. All streams share the batches, so this bounds the
/// memory of the feed, however slowly someone reads.
const BEHIND: usize = 16;
/// How long changes are remembered, so that a stream can go on from its mark.
const REMEMBERED_MS: u64 = 10 * 60_000;
const FORGET: Duration = Duration::from_secs(60);

/// The rows of runs that changed between two marks.
#[derive(Debug)]
pub(crate) struct FeedBatch {
    pub(crate) since: Mark,
    pub(crate) mark: Mark,
    pub(crate) rows: Vec<FeedRow>,
    /// It is not known what changed before the mark.
    pub(crate) is_gap: bool,
}

/// A run as a list shows it.
#[derive(Clone, Debug)]
pub(crate) struct FeedRow {
    pub(crate) run: RunSummary,
    pub(crate) is_damaged: bool,
    /// What streams say about it: made by the first one that does, for all of them.
    text: OnceLock<Arc<str>>,
}

impl FeedRow {
    /// What streams say about it.
    pub(crate) fn text(&self, made: impl FnOnce(&FeedRow) -> String) -> Arc<str> {
        Arc::clone(self.text.get_or_init(|| made(self).into()))
    }
}

/// Where batches are told and heard.
#[derive(Clone, Debug)]
pub(crate) struct Feed(broadcast::Sender<Arc<FeedBatch>>);

impl Feed {
    pub(crate) fn new() -> Feed {
        Feed(broadcast::channel(BEHIND).0)
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<FeedBatch>> {
        self.0.subscribe()
    }
}

/// What has changed since a mark.
pub(crate) enum Since {
    Runs(Vec<RunNo>, Mark),
    /// That cannot be told: why, and the mark of now.
    Unknown(&'static str, Mark),
}

/// Reads which runs have changed since a mark, oldest first.
pub(crate) fn since(store: &dyn Store, mark: &Mark) -> Result<Since, Error> {
    let why = match store.changed_since(mark, MOST)? {
        Changed::Runs(runs, mark) => return Ok(Since::Runs(runs, mark)),
        Changed::TooMany => "more runs have changed than are told one by one",
        Changed::Lost => "the changes since the watermark are not remembered any more",
    };
    Ok(Since::Unknown(why, store.mark()?))
}

/// The rows of runs, oldest first.
pub(crate) fn rows(store: &dyn Store, runs: &[RunNo]) -> Result<Vec<FeedRow>, Error> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let damaged = store.quarantined()?;
    let row = |run: RunSummary| FeedRow {
        is_damaged: damaged.iter().any(|(it, _)| *it == run.run),
        run,
        text: OnceLock::new(),
    };
    // Oldest first, as they came.
    Ok(store.summaries(runs)?.into_iter().rev().map(row).collect())
}

/// Tells the changes of all runs until the server stops.
pub(crate) async fn follow(app: Arc<App>) {
    let mut follower = Follower {
        changes: app.changes.subscribe(),
        is_shared: app.store.is_shared(),
        mark: None,
        forgotten: Instant::now(),
        app,
    };
    while follower.wait().await.is_some() {
        if let Err(problem) = follower.look().await {
            tracing::warn!(why = %problem.detail, "the changes of all runs cannot be read now");
            tokio::time::sleep(PACE).await;
        }
    }
}

struct Follower {
    app: Arc<App>,
    changes: watch::Receiver<()>,
    is_shared: bool,
    /// Up to where changes were told; none while nobody listens.
    mark: Option<Mark>,
    /// When old changes were forgotten.
    forgotten: Instant,
}

impl Follower {
    /// Waits for changes, or for the time to look at what other servers do. None if the server stops.
    async fn wait(&mut self) -> Option<()> {
        let mut until = Instant::now() + PACE;
        let mut is_changed = false;
        loop {
            tokio::select! {
                () = self.app.stopping.cancelled() => return None,
                () = tokio::time::sleep_until(until) => {
                    if is_changed || self.is_shared {
                        self.changes.mark_unchanged();
                        return Some(());
                    }
                    until = Instant::now() + PACE;
                }
                // Only the first: however much changes meanwhile, this is woken once.
                change = self.changes.changed(), if !is_changed => {
                    change.ok()?;
                    is_changed = true;
                    until = until.min(Instant::now() + TOGETHER);
                }
            }
        }
    }

    async fn look(&mut self) -> Result<(), ApiProblem> {
        self.forget().await?;
        let streams = self.app.feed.0.receiver_count();
        // One of the listeners to changes is this task.
        let is_heard = streams > 0 || (self.is_shared && self.app.changes.listeners() > 1);
        if !is_heard {
            self.mark = None;
            return Ok(());
        }
        let Some(known) = self.mark.clone() else {
            // Streams that began before compare their mark with this one.
            let mark = self.app.ask(|store| store.mark()).await?;
            self.tell(mark.clone(), mark, Vec::new(), false);
            return Ok(());
        };
        let asked = known.clone();
        let read = move |store: &dyn Store| match since(store, &asked)? {
            Since::Runs(runs, mark) => Ok::<_, Error>((Some(rows(store, &runs)?), mark)),
            Since::Unknown(_, mark) => Ok((None, mark)),
        };
        match self.app.ask(read).await? {
            (Some(rows), _) if rows.is_empty() => {}
            (Some(rows), mark) => self.tell(known, mark, rows, false),
            (None, mark) => self.tell(known, mark, Vec::new(), true),
        }
        Ok(())
    }

    fn tell(&mut self, since: Mark, mark: Mark, rows: Vec<FeedRow>, is_gap: bool) {
        if self.is_shared {
            // Streams of one run hear of changes of other servers.
            for row in &rows {
                self.app.changes.tell(row.run.run, row.run.last_seq);
                if row.run.head.ended_at.is_some() {
                    self.app.changes.tell_end(&row.run.run_id);
                }
            }
        }
        self.mark = Some(mark.clone());
        let batch = FeedBatch {
            since,
            mark,
            rows,
            is_gap,
        };
        // Nobody may be listening.
        let _ = self.app.feed.0.send(Arc::new(batch));
    }

    /// Forgets changes that no stream goes on from any more.
    async fn forget(&mut self) -> Result<(), ApiProblem> {
        if !self.is_shared || self.forgotten.elapsed() < FORGET {
            return Ok(());
        }
        self.forgotten = Instant::now();
        let before = Time(self.app.now().0.saturating_sub_unsigned(REMEMBERED_MS));
        self.app
            .ask(move |store| store.forget_changes(before))
            .await
    }
}
