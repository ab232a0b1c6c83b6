//! The bell: tells the engine outside that a run wants something else than the engine was told: a command came, a child has ended,
//! a lease is over. A ring is a hint: the engine asks for a turn, and the turn says everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use stepwell_engine::Error;
use stepwell_engine::coordinator::HotRun;
use stepwell_engine::store::RunNo;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::driver::Driver;
use crate::turn::Turn;

/// How long news is gathered before the engine is told: what an attempt has written, the engine hears from the attempt itself.
const GATHER: Duration = Duration::from_millis(30);
/// How often runs of a store that others share are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How long an engine that has been told of work may leave it undone before it is told again: it may have lost its driver.
const OVERDUE: Duration = Duration::from_secs(10);
/// How long the engine is left alone after it did not answer, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// A run that wants something, as the engine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunNews {
    pub run_id: String,
    pub tenant: String,
    /// The name and the version of the definition.
    pub definition: String,
    /// The status, in the words of the contract.
    pub status: String,
    /// The run is over: its driver, if there is one, ends.
    pub ended: bool,
}

/// Tells an engine outside to look at a run.
pub trait Ring: Send + Sync {
    /// Makes the driver of a run ask for a turn, and starts a driver if the run is open and has none. Once it returns `Ok`
    /// the engine does not forget it.
    fn ring(&self, news: &RunNews) -> impl Future<Output = Result<(), String>> + Send;
}

/// Listens to the changes of runs and rings.
#[derive(Debug)]
pub struct Bell<R> {
    driver: Arc<Driver>,
    changes: mpsc::UnboundedReceiver<RunNo>,
    ring: R,
    /// Runs that the engine could not be told of yet.
    waiting: BTreeMap<String, RunNews>,
    /// Since when a run has work that nobody has begun.
    idle_since: BTreeMap<String, Instant>,
    backoff: Duration,
}

/// What the bell needs to know of a run.
struct Looked {
    run_id: String,
    engine: Option<String>,
    news: RunNews,
    turn: Turn,
}

impl<R: Ring> Bell<R> {
    /// A bell for the runs whose numbers come through the channel.
    pub fn new(driver: Arc<Driver>, changes: mpsc::UnboundedReceiver<RunNo>, ring: R) -> Bell<R> {
        Bell {
            driver,
            changes,
            ring,
            waiting: BTreeMap::new(),
            idle_since: BTreeMap::new(),
            backoff: BACKOFF.0,
        }
    }

    /// Rings until the channel is closed.
    pub async fn run(mut self) {
        let mut looks = tokio::time::interval(LOOK);
        let mut retry_at = Instant::now();
        loop {
            let mut changed = BTreeSet::new();
            tokio::select! {
                run = self.changes.recv() => match run {
                    Some(run) => drop(changed.insert(run)),
                    None => return,
                },
                _ = looks.tick() => self.look_again().await,
                () = tokio::time::sleep_until(retry_at), if !self.waiting.is_empty() => {}
            }
            if !changed.is_empty() {
                tokio::time::sleep(GATHER).await;
                while let Ok(run) = self.changes.try_recv() {
                    changed.insert(run);
                }
            }
            for run in changed {
                match self.look(run).await {
                    Ok(looked) => self.consider(looked),
                    Err(error) => {
                        tracing::warn!(%error, run = run.0, "a run could not be looked at yet");
                    }
                }
            }
            if Instant::now() >= retry_at {
                retry_at = Instant::now() + self.tell().await;
            }
        }
    }

    /// Tells the engine what waits. Says how long the engine is then left alone.
    async fn tell(&mut self) -> Duration {
        while let Some((run_id, news)) = self.waiting.pop_first() {
            if let Err(error) = self.ring.ring(&news).await {
                tracing::warn!(
                    error,
                    run = run_id,
                    "the engine could not be told of a run yet"
                );
                self.waiting.insert(run_id, news);
                self.backoff = (self.backoff * 2).min(BACKOFF.1);
                return self.backoff;
            }
            self.backoff = BACKOFF.0;
        }
        Duration::ZERO
    }

    fn consider(&mut self, looked: Looked) {
        let Looked {
            run_id,
            engine,
            news,
            turn,
        } = looked;
        // A run that has not started is nobody's yet.
        if engine.as_deref() != Some(self.driver.engine()) {
            return;
        }
        self.driver.stop_unwanted(&run_id, &turn);
        if turn.ended.is_some() {
            self.driver.note_end(&run_id);
        }
        if turn.ended.is_some() || !self.driver.is_told(&run_id, &turn) {
            self.waiting.insert(run_id, news);
        }
    }

    async fn look(&self, run: RunNo) -> Result<Looked, Error> {
        let (tell, told) = oneshot::channel();
        let now = self.driver.setup.clock.now();
        let serves = self.driver.serves.clone();
        self.driver.setup.handle.look_at_number(run, move |hot| {
            let looked = hot.map(|hot| looked(hot, Turn::of(hot, now, &serves)));
            drop(tell.send(looked));
        });
        told.await.unwrap_or(Err(Error::Stopping))
    }

    /// Looks at the runs that the engine has been told of: others may have moved them, and the engine may have lost a driver.
    async fn look_again(&mut self) {
        let runs = self.driver.open_runs();
        self.idle_since.retain(|run, _| runs.contains(run));
        for run_id in runs {
            if self.driver.setup.store.is_shared() {
                self.driver.setup.handle.catch_up(&run_id);
            }
            let now = self.driver.setup.clock.now();
            let serves = self.driver.serves.clone();
            let look = move |hot: &HotRun| looked(hot, Turn::of(hot, now, &serves));
            let Ok(looked) = self.driver.visit(&run_id, false, look).await else {
                continue;
            };
            let due = |turn: &Turn| {
                let work = turn.work.iter().any(|it| !it.held && it.start_in_ms == 0);
                work || turn.wake_in_ms == Some(0)
            };
            if !due(&looked.turn) || self.driver.has_attempts(&run_id) {
                self.idle_since.remove(&run_id);
                continue;
            }
            let since = *self
                .idle_since
                .entry(run_id.clone())
                .or_insert_with(Instant::now);
            if since.elapsed() >= OVERDUE {
                self.idle_since.remove(&run_id);
                self.waiting.insert(run_id, looked.news);
            }
        }
    }
}

fn looked(hot: &HotRun, turn: Turn) -> Looked {
    let net = hot.plan().net();
    Looked {
        run_id: hot.run_id().to_string(),
        engine: hot.state().engine().map(str::to_owned),
        news: RunNews {
            run_id: hot.run_id().to_string(),
            tenant: hot.state().context().tenant_id.clone(),
            definition: format!("{}@{}", net.plan_id, net.plan_version),
            status: turn.status.clone(),
            ended: turn.ended.is_some(),
        },
        turn,
    }
}
