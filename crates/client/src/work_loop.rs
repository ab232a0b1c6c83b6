//! The loop of a worker: asks for as much work as it has room for, keeps the leases, reports results with the next poll,
//! and drains.
//!
//! Several lanes poll at the same time, each for its share of the room: while one waits for the server, the tasks of
//! another are done. A lane that has results to report does not wait for work, unless nothing else is under way.
//!
//! Tasks are begun by the lane that got them. Those that end at once are reported with the lane's next request, so that a
//! chain of quick steps costs one request for each step. A lane that was given all that it asked for calls another one:
//! there may be more work than one lane does.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::error::ClientError;
use crate::protocol::{
    Outcome, PROTOCOL, PollBody, ResultAnswer, ServedPair, Task, TaskLease, TaskResult,
};

/// How long a poll waits for work, in seconds.
const WAIT_SECONDS: u64 = 20;
/// The most tasks and results of one request.
const MAX_BATCH: usize = 256;
/// How long the worker waits before it asks a server that did not answer again, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long a lane may be busy with tasks that it begins. The others go on as tasks of the runtime, on all its threads.
const BEGINNING: Duration = Duration::from_micros(500);

/// The future of a task.
pub type Executing = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Does the tasks that the loop is given.
pub trait Execute: Send + Sync + 'static {
    /// Does a task. `cancelled` is set when the work is no longer wanted: it is to end soon, with what it came to.
    fn execute(&self, task: Task, cancelled: CancellationToken) -> Executing;
}

/// How a worker works.
#[derive(Clone, Debug)]
pub struct WorkOptions {
    /// The name of this process; no two processes share one.
    pub worker_id: String,
    pub serves: Vec<ServedPair>,
    /// How many tasks at a time.
    pub parallel: usize,
    /// How long a task belongs to the worker without a heartbeat.
    pub lease: Duration,
    /// How long tasks have to end when the worker drains.
    pub grace: Duration,
}

/// A change of the connection between a worker and its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// The server has answered, for the first time or after a loss.
    Connected,
    /// The server does not answer, with the reason; the worker asks again and again.
    Lost(String),
}

/// Is told of changes of the connection.
type LinkListener = Box<dyn Fn(&LinkChange) + Send + Sync>;

/// Asks for work and has it done.
pub struct WorkLoop<E> {
    shared: Arc<LoopShared<E>>,
    lanes: usize,
}

impl<E> std::fmt::Debug for WorkLoop<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkLoop").finish_non_exhaustive()
    }
}

struct LoopShared<E> {
    connection: Connection,
    options: WorkOptions,
    executor: E,
    state: Mutex<LoopState>,
    /// A result is there, or a task has ended.
    changed: Notify,
    draining: CancellationToken,
    listener: OnceLock<LinkListener>,
}

#[derive(Default)]
struct LoopState {
    /// Tasks under way, by their tokens.
    running: HashMap<String, CancellationToken>,
    /// Results that the server has not answered.
    results: Vec<TaskResult>,
    /// Lanes that wait for work.
    waiting: usize,
    /// Whether the last poll was answered; absent before the first one.
    is_connected: Option<bool>,
    /// There may be work that no lane asks for.
    is_more: bool,
}

impl LoopState {
    /// A task has ended. One whose lease was lost is no longer listed, and its result is nobody's.
    fn ended(&mut self, task_token: String, outcome: Outcome) {
        if self.running.remove(&task_token).is_some() {
            let result = TaskResult {
                task_token,
                outcome,
            };
            self.results.push(result);
        }
    }
}

/// A task whose panic is a failure.
struct Caught(Executing);

impl Future for Caught {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let polled = catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().map(|it| (*it).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            let text = text.unwrap_or_else(|| "the handler panicked".to_owned());
            Poll::Ready(Outcome::failed("unknown", "WORKER_PANIC", text))
        })
    }
}

impl<E: Execute> WorkLoop<E> {
    #[must_use]
    pub fn new(connection: Connection, options: WorkOptions, executor: E) -> WorkLoop<E> {
        let lanes = match options.parallel {
            // One waits for work, and another one reports what ends meanwhile.
            0..=15 => 2,
            _ => 4,
        };
        WorkLoop {
            shared: Arc::new(LoopShared {
                connection,
                options,
                executor,
                state: Mutex::default(),
                changed: Notify::new(),
                draining: CancellationToken::new(),
                listener: OnceLock::new(),
            }),
            lanes,
        }
    }

    /// Tells of each change of the connection: once when the server first answers, and once for each loss and return.
    #[must_use]
    pub fn on_link(self, tell: impl Fn(&LinkChange) + Send + Sync + 'static) -> WorkLoop<E> {
        // A loop has one listener.
        let _ = self.shared.listener.set(Box::new(tell));
        self
    }

    /// Works until `until` ends; then finishes what is under way, reports it, and gives the rest back.
    pub async fn run(self, until: impl Future<Output = ()>) -> Result<(), ClientError> {
        let shared = &self.shared;
        let mut lanes = JoinSet::new();
        for _ in 0..self.lanes {
            let share = shared.options.parallel.div_ceil(self.lanes).min(MAX_BATCH);
            lanes.spawn(Arc::clone(shared).lane(share));
        }
        let beating = tokio::spawn(Arc::clone(shared).beat());
        let refused = tokio::select! {
            () = until => None,
            // Lanes end by themselves only if the server refuses the worker for good.
            ended = lanes.join_next() => ended,
        };
        shared.draining.cancel();
        shared.changed.notify_waiters();
        let ended = match refused {
            Some(Ok(ended)) => ended,
            Some(Err(_)) | None => Ok(()),
        };
        let drained = shared.drain().await;
        lanes.abort_all();
        beating.abort();
        ended.and(drained)
    }
}

impl<E: Execute> LoopShared<E> {
    fn state(&self) -> MutexGuard<'_, LoopState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether a poll was answered, and tells of a change.
    fn link(&self, answered: Result<(), &ClientError>) {
        let is_connected = answered.is_ok();
        let before = self.state().is_connected.replace(is_connected);
        if before == Some(is_connected) {
            return;
        }
        let change = match answered {
            Ok(()) => LinkChange::Connected,
            Err(error) => LinkChange::Lost(error.to_string()),
        };
        if let Some(tell) = self.listener.get() {
            tell(&change);
        }
    }

    async fn lane(self: Arc<Self>, share: usize) -> Result<(), ClientError> {
        let mut backoff = BACKOFF.0;
        // Whether this lane is the one that waits for work. It stays so until it has decided what it does next: otherwise
        // another lane would begin to wait while this one is about to report and wait in one request.
        let mut is_waiting = false;
        while !self.draining.is_cancelled() {
            let changed = self.changed.notified();
            let (results, room, waits, asks) = {
                let mut state = self.state();
                let many = state.results.len().min(MAX_BATCH);
                let results: Vec<TaskResult> = state.results.drain(..many).collect();
                let free = self.options.parallel.saturating_sub(state.running.len());
                let room = free.min(share);
                let others = state.waiting - usize::from(is_waiting);
                let alone = others == 0 && (results.is_empty() || state.running.is_empty());
                let waits = alone && room > 0;
                state.waiting = others + usize::from(waits);
                // Only a lane that would rest: the one that called has its own request to make.
                let rests = results.is_empty() && !waits && room > 0;
                let asks = rests && std::mem::take(&mut state.is_more);
                (results, room, waits, asks)
            };
            if is_waiting && !waits {
                // Another one may wait.
                self.changed.notify_waiters();
            }
            is_waiting = waits;
            if results.is_empty() && !waits && !asks {
                // Another lane waits for work, or there is no room.
                tokio::select! {
                    () = changed => {}
                    () = self.draining.cancelled() => {}
                    () = tokio::time::sleep(Duration::from_millis(500)) => {}
                }
                continue;
            }
            match self.poll(&results, room, waits).await {
                Ok(()) => {
                    self.link(Ok(()));
                    backoff = BACKOFF.0;
                }
                Err(error) => {
                    // They are reported again: a result that the server knows gets its first answer.
                    self.state().results.extend(results);
                    if !error.is_passing() {
                        return Err(error);
                    }
                    self.state().waiting -= usize::from(std::mem::take(&mut is_waiting));
                    self.link(Err(&error));
                    tracing::debug!(%error, "the server does not give work");
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(BACKOFF.1);
                }
            }
        }
        Ok(())
    }

    async fn poll(
        self: &Arc<Self>,
        results: &[TaskResult],
        max: usize,
        waits: bool,
    ) -> Result<(), ClientError> {
        // The first answer says that the server is there, and does not wait for work.
        let waits = waits && self.state().is_connected == Some(true);
        let body = PollBody {
            protocol: PROTOCOL,
            worker_id: &self.options.worker_id,
            serves: &self.options.serves,
            max,
            wait_seconds: if waits { WAIT_SECONDS } else { 0 },
            lease_seconds: self.options.lease.as_secs().max(1),
            completed: results,
        };
        let polled = tokio::select! {
            polled = self.connection.poll(&body) => polled?,
            // Whatever the server gives now is given back.
            () = self.draining.cancelled(), if results.is_empty() => return Ok(()),
        };
        self.answered(results, &polled.results);
        for token in polled.cancel {
            self.cancel(&token);
        }
        let is_full = max > 1 && polled.tasks.len() >= max;
        self.begin_all(polled.tasks).await;
        if is_full {
            self.state().is_more = true;
            self.changed.notify_waiters();
        }
        Ok(())
    }

    fn answered(&self, results: &[TaskResult], answers: &[ResultAnswer]) {
        for (result, answer) in results.iter().zip(answers) {
            if answer.accepted {
                continue;
            }
            let (code, detail) = (answer.code.as_deref(), answer.detail.as_deref());
            tracing::info!(code, detail, retry = answer.retry, "a result was refused");
            if answer.retry {
                self.state().results.push(result.clone());
            }
        }
    }

    /// Begins tasks. Those that end at once, as long as that takes little time, are over when this returns.
    async fn begin_all(self: &Arc<Self>, tasks: Vec<Task>) {
        let mut began = Vec::with_capacity(tasks.len());
        {
            // All of them before the first is begun: leases are kept from now on.
            let mut state = self.state();
            for task in tasks {
                let cancelled = CancellationToken::new();
                let token = task.task_token.clone();
                state.running.insert(token, cancelled.clone());
                began.push((task, cancelled));
            }
        }
        let until = Instant::now() + BEGINNING;
        let mut ended = Vec::new();
        for (task, cancelled) in began {
            let token = task.task_token.clone();
            let mut executing = Caught(self.executor.execute(task, cancelled));
            if Instant::now() < until {
                let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut executing).poll(cx))).await;
                if let Poll::Ready(outcome) = first {
                    ended.push((token, outcome));
                    continue;
                }
            }
            let shared = Arc::clone(self);
            tokio::spawn(async move {
                let outcome = executing.await;
                shared.state().ended(token, outcome);
                shared.changed.notify_waiters();
            });
        }
        let mut state = self.state();
        for (token, outcome) in ended {
            state.ended(token, outcome);
        }
        if state.results.len() > MAX_BATCH {
            // More than this lane can report.
            self.changed.notify_waiters();
        }
    }

    fn cancel(&self, token: &str) {
        if let Some(cancelled) = self.state().running.get(token) {
            cancelled.cancel();
        }
    }

    /// Keeps the leases, and stops what is no longer wanted.
    async fn beat(self: Arc<Self>) {
        let lease = self.options.lease.as_secs().max(1);
        let pause = (self.options.lease / 3).max(Duration::from_millis(200));
        loop {
            tokio::time::sleep(pause).await;
            // A result that is not reported yet needs its lease too.
            let tokens: Vec<String> = {
                let state = self.state();
                let ended = state.results.iter().map(|it| &it.task_token);
                state.running.keys().chain(ended).cloned().collect()
            };
            for tokens in tokens.chunks(1_000) {
                match self.connection.heartbeat(tokens, lease).await {
                    Ok(answer) => {
                        for beat in answer.leases {
                            match beat.state {
                                TaskLease::Held => {}
                                TaskLease::Cancel => self.cancel(&beat.task_token),
                                TaskLease::Lost => {
                                    let lost = self.state().running.remove(&beat.task_token);
                                    if let Some(cancelled) = lost {
                                        tracing::warn!("a lease was lost; its work is stopped");
                                        cancelled.cancel();
                                    }
                                }
                            }
                        }
                    }
                    Err(error) => tracing::debug!(%error, "leases could not be extended"),
                }
            }
        }
    }

    /// Lets tasks end, reports them, and gives the rest back.
    async fn drain(&self) -> Result<(), ClientError> {
        let until = Instant::now() + self.options.grace;
        while Instant::now() < until && !self.state().running.is_empty() {
            let changed = self.changed.notified();
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        }
        self.state()
            .running
            .values()
            .for_each(CancellationToken::cancel);
        loop {
            let results: Vec<TaskResult> = {
                let mut state = self.state();
                let many = state.results.len().min(MAX_BATCH);
                state.results.drain(..many).collect()
            };
            if results.is_empty() {
                break;
            }
            let answers = self.connection.report(&results).await?;
            for answer in answers.results.iter().filter(|it| !it.accepted) {
                let (code, detail) = (answer.code.as_deref(), answer.detail.as_deref());
                tracing::info!(code, detail, "a result was refused");
            }
        }
        self.connection.drain(&self.options.worker_id).await
    }
}
