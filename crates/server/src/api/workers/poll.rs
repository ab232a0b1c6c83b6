//! Waiting for work. A worker takes a seat at the engine before its results are reported, so that what they make ready
//! comes back in the same commit and the same answer. What lies in the store, because nobody waited for it, is looked
//! for too.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use stepwell_engine::Seat;
use stepwell_engine::coordinator::Assignment;
use stepwell_engine::remote::RemoteWorker;
use stepwell_engine::store::{StoreError, TaskRow};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::dto::{ResultAnswer, SentResult, WorkTask};
use super::{results, task};
use crate::access::{Caller, Lost};
use crate::app::App;
use crate::problem::ApiProblem;

/// How often a worker that waits looks for what other servers offered, and for work that it must stop.
const LOOK: Duration = Duration::from_secs(1);
/// The shortest pause between two looks into the store.
const SHORTEST: Duration = Duration::from_millis(10);

/// What a worker that asked for work gets.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) tasks: Vec<WorkTask>,
    /// Tokens of tasks that the worker must stop.
    pub(super) cancel: Vec<String>,
}

/// How much work a worker asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) max: usize,
    pub(super) lease_ms: u64,
    pub(super) until: Instant,
}

/// One request of a worker.
pub(super) struct Visit<'a> {
    app: &'a App,
    caller: &'a Caller,
    /// Whether the worker may still have work.
    lost: &'a Lost,
    worker: &'a RemoteWorker,
    wanted: Wanted,
    seat: Seat,
    /// Told when the seat has news.
    news: Arc<Notify>,
}

impl<'a> Visit<'a> {
    /// The worker takes its seat.
    pub(super) fn begin(
        app: &'a App,
        (caller, lost): (&'a Caller, &'a Lost),
        worker: &'a RemoteWorker,
        wanted: Wanted,
    ) -> Visit<'a> {
        let news = Arc::<Notify>::default();
        let told = Arc::clone(&news);
        let wake = move || told.notify_one();
        let remote = &app.workers.remote;
        Visit {
            seat: remote.sit(worker.clone(), wanted.max, wanted.lease_ms, wake),
            app,
            caller,
            lost,
            worker,
            wanted,
            news,
        }
    }

    /// Reports results, and looks for work until there is some, or something to stop, or the time is over.
    pub(super) async fn work(
        self,
        completed: Vec<SentResult>,
    ) -> (Vec<ResultAnswer>, Result<Found, ApiProblem>) {
        // What lies in the store has its share of the places: what the results make ready must not keep it waiting.
        let share = match completed.is_empty() {
            true => self.wanted.max,
            false => self.wanted.max.div_ceil(2),
        };
        self.seat.set_reporting(!completed.is_empty());
        let reported = results::report_all(self.app, self.caller, completed);
        let (results, lying) = join(reported, self.lying(share)).await;
        self.seat.set_reporting(false);
        let found = match lying {
            Ok(tasks) => self.wait(tasks).await,
            Err(problem) => Err(problem),
        };
        let found = match found {
            Ok(found) => Ok(found),
            // Whatever went wrong: what was given meanwhile is the worker's.
            Err(problem) => match self.last().await {
                tasks if tasks.is_empty() => Err(problem),
                tasks => Ok(Found {
                    tasks,
                    cancel: Vec::new(),
                }),
            },
        };
        (results, found)
    }

    async fn wait(&self, mut tasks: Vec<WorkTask>) -> Result<Found, ApiProblem> {
        loop {
            tasks.extend(self.described(self.seat.take()).await);
            if !tasks.is_empty() {
                tasks.extend(self.last().await);
                let cancel = Vec::new();
                return Ok(Found { tasks, cancel });
            }
            let (cancel, news) = self.stops().await?;
            let now = Instant::now();
            if news || now >= self.wanted.until || self.app.stopping.is_cancelled() {
                let tasks = self.last().await;
                return Ok(Found { tasks, cancel });
            }
            let nap = self.nap().min(self.wanted.until - now);
            tokio::select! {
                () = self.news.notified() => {}
                () = tokio::time::sleep(nap) => {}
                () = self.app.stopping.cancelled() => {}
                () = self.lost.cancelled() => {}
            }
            self.lost.check()?;
            tasks = self.lying(self.wanted.max).await?;
        }
    }

    /// How long nothing lies in the store, a second at most.
    fn nap(&self) -> Duration {
        if self.wanted.max == 0 {
            return LOOK;
        }
        let clear = self.app.workers.remote.clear_until(self.worker);
        let wait = clear.map_or(0, |until| until.since(self.app.now()));
        Duration::from_millis(wait).clamp(SHORTEST, LOOK)
    }

    /// The worker leaves its seat: what is on its way to the store comes along.
    async fn last(&self) -> Vec<WorkTask> {
        self.seat.leave();
        while self.seat.is_expecting() {
            self.news.notified().await;
        }
        self.described(self.seat.take()).await
    }

    async fn described(&self, work: Vec<Assignment>) -> Vec<WorkTask> {
        let described = work
            .iter()
            .map(|job| task::describe(self.app, self.caller, job));
        join_all(described).await.into_iter().flatten().collect()
    }

    /// Reserves and claims tasks that lie in the store.
    async fn lying(&self, share: usize) -> Result<Vec<WorkTask>, ApiProblem> {
        let remote = &self.app.workers.remote;
        if share == 0 || remote.clear_until(self.worker).is_some() {
            return Ok(Vec::new());
        }
        let aside = self.seat.set_aside(share);
        let (remote, asking) = (remote.clone(), self.worker.clone());
        let reserved = self
            .app
            .block(move || remote.reserve(&asking, aside).map_err(problem_of))
            .await;
        let reserved = reserved.inspect_err(|_| self.seat.put_back(aside))?;
        // All claims are sent before the first is awaited: they share a commit.
        let claims = reserved.into_iter().map(|task| self.claim(task));
        let tasks: Vec<WorkTask> = join_all(claims).await.into_iter().flatten().collect();
        self.seat.put_back(aside - tasks.len().min(aside));
        Ok(tasks)
    }

    /// Tasks of the worker whose runs no longer want them, and whether the worker has not been told so. Looked at once a second.
    async fn stops(&self) -> Result<(Vec<String>, bool), ApiProblem> {
        let (app, registry) = (self.app, &self.app.workers.registry);
        let (name, tenant) = (self.worker.name.clone(), self.worker.tenant.clone());
        let pause = LOOK.as_millis() as u64;
        if !registry.is_time_to_look(&name, app.now(), pause) {
            return Ok((Vec::new(), false));
        }
        let leases: Vec<TaskRow> = app
            .ask(move |store| store.leases(Some(&name), tenant.as_deref(), usize::MAX))
            .await?;
        let stopping = leases.into_iter().filter(|task| task.stopping);
        let named = stopping.map(|task| (task.run, task.target));
        Ok(registry.stops(named))
    }

    /// Claims one reserved task, and says what the worker gets; nothing if another was faster.
    async fn claim(&self, task: TaskRow) -> Option<WorkTask> {
        let (answer, answered) = oneshot::channel();
        let (remote, began) = (&self.app.workers.remote, Instant::now());
        let sent = remote.claim(task, self.wanted.lease_ms, move |claimed| {
            // The worker may be gone; then its lease ends by itself.
            let _ = answer.send(claimed);
        });
        let claimed = match (sent, answered.await) {
            (Ok(()), Ok(Ok(claimed))) => claimed,
            (Err(error), _) | (Ok(()), Ok(Err(error))) => {
                tracing::debug!(%error, "a task could not be claimed");
                return None;
            }
            (Ok(()), Err(_)) => return None,
        };
        self.app.metrics.claimed(began.elapsed());
        task::describe(self.app, self.caller, &claimed).await
    }
}

fn problem_of(error: StoreError) -> ApiProblem {
    error.into()
}
