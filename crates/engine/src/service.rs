//! The engine that runs by itself: one or more threads decide, others commit, and while a commit is on
//! its way to the disk the next batch forms. Thousands of runs share each sync.
//!
//! ```text
//! handles ──► inbox ──► service loop ──► batches ──► commit pipeline ──► store
//!                 ▲           │                           │
//!                 └─ results ─┴─► worker (does the work)  └── answers ──► inbox
//! ```
//!
//! Where a machine has many cores, several loops share the runs ([`Setup::shards`], [`crate::Shard`]): each run has
//! one loop, all loops have one commit pipeline, one worker and one limit of work. One shard decides as several do;
//! only the threads differ.
//!
//! Everything runs on this loop: `stepwell run`, the engine inside a program, the bench. With a virtual
//! clock the loop never sleeps: the owner of the service moves the time ([`Handle::advance_to`]), and commits
//! happen on the loop's own thread, so the same commands give the same log. [`crate::Engine`] is the same
//! loop without a thread of its own.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use stepwell_engine::service::{NoWorker, Service, Setup};
//! use stepwell_engine::store::MemoryStore;
//!
//! let store = Arc::new(MemoryStore::default());
//! let service = Service::start(Setup::new(store, NoWorker))?;
//! let handle = service.handle(); // starts runs, sends commands, from any thread
//! handle.flush(Duration::from_secs(1))?;
//! service.stop(Duration::from_secs(1))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod actor;
mod committer;
mod delivery;
mod handle;
mod in_line;
mod notices;
mod renewing;
mod service_loop;
#[cfg(test)]
mod shard_tests;
mod shared;
mod stats;
#[cfg(feature = "stepped")]
mod stepped;
mod visit;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::effect::Target;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use crate::clock::SystemClock;
use crate::coordinator::{Assignment, Config, Handoff};
use crate::error::Error;
use crate::port::{Catalog, Clock, NoCatalog};
use crate::shard::Shard;
use crate::start::StartRequest;
use crate::store::{
    AppendResult, Batch, Delivered, Guard, MessageNo, OutsideEvent, RunNo, Store, StoreError,
    StoreErrorKind, TaskRow,
};
use committer::CommitPipeline;
pub use delivery::ExternalEvent;
pub use handle::Handle;
use renewing::{CloseOnPanic, RenewerThread};
pub(crate) use service_loop::ServiceLoop;
use service_loop::ShardSetup;
use shared::{SharedCatalog, SharedObserver, SharedWorker};
pub use stats::{BatchSize, Buckets, LIMITS, Latency, Limits, Stats};
#[cfg(feature = "stepped")]
pub use stepped::{SteppedService, Turned};
use visit::Visit;
pub use worker::{EndLostWork, Idle, NoObserver, NoWorker, Observer, Reporter, Worker};

/// What an engine is made of.
pub struct Setup<W> {
    /// Where the runs are kept.
    pub store: Arc<dyn Store>,
    /// Finds the definitions of child runs.
    pub catalog: Box<dyn Catalog + Send>,
    /// Which runs and which work the engine takes.
    pub config: Config,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Does the work that the engine claims for this process.
    pub worker: W,
    /// Receives what happens: notices, idle times and failures of the store.
    pub observer: Box<dyn Observer>,
    /// How many threads decide, each for its own runs ([`Shard::suited`] says how many suit this machine). An engine
    /// with a virtual clock, or for some runs only (`Config::only`), has one.
    pub shards: usize,
}

impl<W> fmt::Debug for Setup<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("config", &self.config)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

impl<W: Worker> Setup<W> {
    /// A store and a worker; the machine's clock, no definitions of child runs, the default
    /// configuration, nobody who watches.
    pub fn new(store: Arc<dyn Store>, worker: W) -> Setup<W> {
        Setup {
            store,
            catalog: Box::new(NoCatalog),
            config: Config::default(),
            clock: Arc::new(SystemClock),
            worker,
            observer: Box::new(NoObserver),
            shards: 1,
        }
    }
}

/// Takes the result of the delivery of an event from outside.
pub(crate) type OnDelivered = Box<dyn FnOnce(Result<Delivered, Error>) + Send>;

/// Takes the answer to a command.
pub(crate) type OnAnswer = Box<dyn FnOnce(Result<Reply, Error>) + Send>;

/// Takes the work that a worker outside has claimed.
pub(crate) type OnClaimed = Box<dyn FnOnce(Result<Assignment, Error>) + Send>;

/// Is called when the engine is at rest.
pub(crate) type OnRest = Box<dyn FnOnce() + Send>;

pub(crate) enum Input {
    Submit(String, Box<Command>, OnAnswer),
    /// A claim and the result of its work, for one commit.
    Together(String, Box<(Command, Command)>, OnAnswer),
    /// A command of a worker outside, with what must hold when it is committed.
    Guarded(String, Box<Command>, Guard, OnAnswer),
    /// A worker outside takes a task that is reserved for it, until the lease ends.
    ClaimTask(Box<TaskRow>, Time, OnClaimed),
    Start {
        plan: Arc<Plan>,
        request: Box<StartRequest>,
        enqueue: bool,
        on_answer: OnAnswer,
    },
    Finished {
        run: RunNo,
        target: Target,
        execution: u32,
        result: Box<Command>,
    },
    MissingChildEnded(RunNo, MessageNo, Box<Command>),
    /// From which committer, for which batch.
    Committed(usize, Box<Batch>, Result<Vec<AppendResult>, StoreError>),
    Deliver(Box<OutsideEvent>, OnDelivered),
    /// The events that the delivery thread took, and the store's answer.
    Delivered(
        Vec<(OutsideEvent, OnDelivered)>,
        Result<Vec<Delivered>, StoreError>,
    ),
    Look,
    /// Someone looks at a run as it is in memory.
    Visit(Visit),
    /// Another shard of this engine found this.
    Handoff(Handoff),
    Recover(String, oneshot::Sender<Result<(), Error>>),
    CatchUp(String),
    Flush(OnRest),
    Advance(Time),
    Stop(Duration, Sender<Result<(), StoreError>>),
}

/// The answer of the engine that will come: to be awaited, or to be waited for by a thread.
pub type Answered<T> = oneshot::Receiver<Result<T, Error>>;
/// Why an answer cannot be taken now.
pub use oneshot::TryRecvError as NoAnswer;

/// The loops of all shards, which share the worker, the observer and the catalog. Each opens its session when it is asked
/// for.
fn share_out<W: Worker>(
    setup: Setup<W>,
    parts: Vec<ShardSetup>,
) -> impl Iterator<Item = Result<ServiceLoop<SharedWorker<W>>, StoreError>> {
    let worker = SharedWorker::new(setup.worker);
    let observer = SharedObserver::new(setup.observer);
    let catalog = SharedCatalog::new(setup.catalog);
    parts.into_iter().map(move |part| {
        let mut config = setup.config.clone();
        if !part.shard.is_all() {
            config.name = format!("{}#{}", config.name, part.shard.index() + 1);
        }
        let setup = Setup {
            store: setup.store.clone(),
            catalog: Box::new(catalog.clone()),
            config,
            clock: setup.clock.clone(),
            worker: worker.clone(),
            observer: Box::new(observer.clone()),
            shards: 1,
        };
        ServiceLoop::new(setup, part)
    })
}

/// An engine that runs by itself. Dropping it without `stop()` stops immediately: work in flight is told
/// to stop and given back.
#[derive(Debug)]
pub struct Service {
    handle: Handle,
    clock: Arc<dyn Clock>,
    stats: Arc<Stats>,
    threads: Vec<JoinHandle<()>>,
    /// Keep the sessions of the loops alive.
    renewers: Vec<RenewerThread>,
    /// None with a virtual clock: then batches are committed by the loop itself, so that what is decided next does
    /// not depend on threads. Dropped after the loops have ended, which closes the store.
    pipeline: Option<CommitPipeline>,
}

impl Service {
    /// Opens a session in the store and starts the threads of the engine.
    ///
    /// Where several servers share a store that has a clock of its own, the engine follows that clock
    /// ([`Service::clock`]).
    pub fn start<W: Worker + 'static>(mut setup: Setup<W>) -> Result<Service, StoreError> {
        renewing::follow_store(&mut setup)?;
        let one = setup.clock.is_virtual() || setup.config.only.is_some();
        let shards: Vec<Shard> = Shard::all(if one { 1 } else { setup.shards }).collect();
        let (handle, inputs) = Handle::new(shards.len());
        let pipeline = (!setup.clock.is_virtual()).then(|| CommitPipeline::start(&setup.store));
        let mut service = Service {
            handle: handle.clone(),
            clock: setup.clock.clone(),
            stats: Arc::default(),
            threads: Vec::new(),
            renewers: Vec::new(),
            pipeline,
        };
        let pipeline = service.pipeline.as_ref();
        let mut parts = ShardSetup::all(&shards, &handle, inputs, pipeline, &service.stats);
        // With one shard nothing is shared, and nothing is locked.
        if parts.len() == 1
            && let Some(part) = parts.pop()
        {
            service.spawn(ServiceLoop::new(setup, part)?)?;
            return Ok(service);
        }
        for service_loop in share_out(setup, parts) {
            service.spawn(service_loop?)?;
        }
        Ok(service)
    }

    fn spawn<W: Worker + 'static>(
        &mut self,
        service_loop: ServiceLoop<W>,
    ) -> Result<(), StoreError> {
        if let Some(renewer) = service_loop.renewer() {
            let clock = service_loop.clock().clone();
            self.renewers.push(RenewerThread::start(renewer, clock)?);
        }
        let close_on_panic = CloseOnPanic {
            store: service_loop.coordinator().store().clone(),
            term: service_loop.coordinator().term().clone(),
        };
        let run = move || {
            let _close_on_panic = close_on_panic;
            service_loop.run();
        };
        let thread = thread::Builder::new()
            .name("stepwell-decide".into())
            .spawn(run)
            .map_err(|error| StoreError::new(StoreErrorKind::Unusable, error))?;
        self.threads.push(thread);
        Ok(())
    }

    /// A handle to talk to the engine.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The clock that the engine goes by.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// What the engine has committed so far.
    #[must_use]
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// How much work of this process is in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.stats.in_flight.load(Ordering::SeqCst)
    }

    /// Stops: nothing new is claimed, and work in flight has `grace` to end. What is left then is told
    /// to stop, and given back once it has, so that others can take it over at once.
    pub fn stop(mut self, grace: Duration) -> Result<(), StoreError> {
        self.end(grace, &AtomicBool::new(false))
    }

    /// Stops as [`Service::stop`] does, and no longer leaves work in flight its time once `hurry` is set.
    pub fn stop_sooner(mut self, grace: Duration, hurry: &AtomicBool) -> Result<(), StoreError> {
        self.end(grace, hurry)
    }

    fn end(&mut self, grace: Duration, hurry: &AtomicBool) -> Result<(), StoreError> {
        /// How often `hurry` is looked at.
        const LOOK: Duration = Duration::from_millis(50);
        let (answer, answered) = mpsc::channel();
        let threads = std::mem::take(&mut self.threads);
        let tell = |grace: Duration| {
            for (inbox, _) in self.handle.inboxes.iter().zip(&threads) {
                let _ = inbox.send(Input::Stop(grace, answer.clone()));
            }
        };
        tell(grace);
        let (mut result, mut answers, mut hurries) = (Ok(()), 0, false);
        while answers < threads.len() {
            match answered.recv_timeout(LOOK) {
                Ok(answer) => {
                    answers += 1;
                    result = result.and(answer);
                }
                // A loop that is gone without an answer has nothing left to close.
                Err(_) if threads.iter().all(JoinHandle::is_finished) => break,
                Err(_) if hurry.load(Ordering::SeqCst) && !hurries => {
                    hurries = true;
                    tell(Duration::ZERO);
                }
                Err(_) => {}
            }
        }
        for thread in threads {
            let _ = thread.join();
        }
        self.renewers.clear();
        result
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Err(error) = self.end(Duration::ZERO, &AtomicBool::new(false)) {
            tracing::warn!(%error, "the session could not be closed; it ends by itself");
        }
    }
}
