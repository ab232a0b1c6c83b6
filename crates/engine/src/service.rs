//! The engine that runs by itself: one thread decides, one or more commit, and while a commit is on
//! its way to the disk the next batch forms. Thousands of runs share each sync.
//!
//! ```text
//! handles ──► inbox ──► service loop ──► batches ──► committers ──► store
//!                 ▲           │                           │
//!                 └─ results ─┴─► worker (does the work)  └── answers ──► inbox
//! ```
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

mod committer;
mod delivery;
mod in_line;
mod notices;
mod service_loop;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::effect::Target;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use crate::clock::SystemClock;
use crate::coordinator::Config;
use crate::error::Error;
use crate::port::{Catalog, Clock, NoCatalog};
use crate::start::StartRequest;
use crate::store::{
    AppendResult, Batch, Delivered, MessageNo, OutsideEvent, RunNo, Store, StoreError,
    StoreErrorKind,
};
use committer::Committer;
pub use committer::Stats;
pub use delivery::ExternalEvent;
pub(crate) use service_loop::ServiceLoop;
pub use worker::{Idle, NoObserver, NoWorker, Observer, Reporter, Worker};

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
    /// Does the work.
    pub worker: W,
    /// Watches the engine.
    pub observer: Box<dyn Observer>,
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
        }
    }
}

/// Takes the result of the delivery of an event from outside.
pub(crate) type OnDelivered = Box<dyn FnOnce(Result<Delivered, Error>) + Send>;

/// Takes the answer to a command.
pub(crate) type OnAnswer = Box<dyn FnOnce(Result<Reply, Error>) + Send>;

/// Is called when the engine is at rest.
pub(crate) type OnRest = Box<dyn FnOnce() + Send>;

pub(crate) enum Input {
    Submit(String, Box<Command>, OnAnswer),
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
    Recover(String, Sender<Result<(), Error>>),
    CatchUp(String),
    Flush(OnRest),
    Advance(Time),
    Stop(Duration, Sender<Result<(), StoreError>>),
}

/// Talks to a running engine, from any thread.
#[derive(Clone, Debug)]
pub struct Handle {
    inbox: Sender<Input>,
}

impl Handle {
    pub(crate) fn new(inbox: Sender<Input>) -> Handle {
        Handle { inbox }
    }

    /// Sends a command and waits for the answer, which comes after the commit.
    pub fn submit(&self, run_id: &str, command: Command) -> Result<Reply, Error> {
        let (answer, answered) = mpsc::channel();
        self.submit_with(run_id, command, move |reply| drop(answer.send(reply)))?;
        answered.recv().unwrap_or(Err(Error::Stopping))
    }

    /// Sends a command; `on_answer` is called on the engine's thread after the commit.
    pub fn submit_with(
        &self,
        run_id: &str,
        command: Command,
        on_answer: impl FnOnce(Result<Reply, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        let input = Input::Submit(run_id.to_owned(), Box::new(command), Box::new(on_answer));
        self.inbox.send(input).map_err(|_| Error::Stopping)
    }

    /// Starts a run and waits until its start is committed. Two requests with the same request id are
    /// one run, whose id both get.
    pub fn start(&self, plan: &Arc<Plan>, request: StartRequest) -> Result<String, Error> {
        let answered = self.start_later(plan, request)?;
        answered.recv().unwrap_or(Err(Error::Stopping))
    }

    /// Starts a run; the answer comes later.
    pub fn start_later(
        &self,
        plan: &Arc<Plan>,
        request: StartRequest,
    ) -> Result<Receiver<Result<String, Error>>, Error> {
        self.create_later(plan, request, true)
    }

    /// Creates a run; with `enqueue` it starts when a slot is free.
    pub(crate) fn create_later(
        &self,
        plan: &Arc<Plan>,
        request: StartRequest,
        enqueue: bool,
    ) -> Result<Receiver<Result<String, Error>>, Error> {
        let (answer, answered) = mpsc::channel();
        let run_id = request.run_id.clone();
        let on_answer = move |started: Result<Reply, Error>| {
            let _ = answer.send(started.map(|started| match started {
                Reply::Created { run_id } => run_id,
                // A start is always answered by the id of its run.
                _ => run_id,
            }));
        };
        let input = Input::Start {
            plan: plan.clone(),
            request: Box::new(request),
            enqueue,
            on_answer: Box::new(on_answer),
        };
        self.inbox.send(input).map_err(|_| Error::Stopping)?;
        Ok(answered)
    }

    /// Delivers an event that is not addressed to a run: the run that has waited longest for its type and
    /// key gets the event, or the store keeps the event until a step waits for it. The same id counts
    /// once. Events that arrive while others are on their way to the disk share the next transaction.
    pub fn deliver(&self, event: ExternalEvent) -> Result<Delivered, Error> {
        let (answer, answered) = mpsc::channel();
        self.deliver_with(event, move |delivered| drop(answer.send(delivered)))?;
        answered.recv().unwrap_or(Err(Error::Stopping))
    }

    /// Delivers an event; `on_delivered` is called on the engine's thread once the event is on the disk.
    pub fn deliver_with(
        &self,
        event: ExternalEvent,
        on_delivered: impl FnOnce(Result<Delivered, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        let input = Input::Deliver(Box::new(event.into()), Box::new(on_delivered));
        self.inbox.send(input).map_err(|_| Error::Stopping)
    }

    /// Says that something may have changed in the store: messages and queued runs are looked for.
    pub fn look(&self) {
        self.send(Input::Look);
    }

    /// Reads a run that is in the store and sees to everything that it needs, unless this engine has the
    /// run already.
    pub fn recover(&self, run_id: &str) -> Result<(), Error> {
        let (answer, answered) = mpsc::channel();
        let input = Input::Recover(run_id.to_owned(), answer);
        self.inbox.send(input).map_err(|_| Error::Stopping)?;
        answered.recv().unwrap_or(Err(Error::Stopping))
    }

    /// Reads a run again if other processes have moved it. For engines that work on a few runs of a
    /// store that many processes share.
    pub fn catch_up(&self, run_id: &str) {
        self.send(Input::CatchUp(run_id.to_owned()));
    }

    /// Waits until the engine is at rest: everything that follows from earlier commands is committed.
    /// Returns `false` if the engine is not at rest after `patience`, as when the store is down.
    pub fn flush(&self, patience: Duration) -> Result<bool, Error> {
        let (answer, answered) = mpsc::channel();
        self.flush_with(move || {
            let _ = answer.send(());
        })?;
        match answered.recv_timeout(patience) {
            Ok(()) => Ok(true),
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Stopping),
        }
    }

    /// Calls `on_rest` on the engine's thread once the engine is at rest, right after the observer was told
    /// so.
    pub fn flush_with(&self, on_rest: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let input = Input::Flush(Box::new(on_rest));
        self.inbox.send(input).map_err(|_| Error::Stopping)
    }

    /// Moves an engine's virtual clock to `time` and lets everything happen that is due then. The
    /// observer is told when the engine is at rest again. Where very much is due at one time the engine
    /// stops in between with [`Idle::has_more`], so that a workflow that loops without end in no time
    /// can be stopped.
    pub fn advance_to(&self, time: Time) {
        self.send(Input::Advance(time));
    }

    /// An engine that is gone hears nothing, and needs to hear nothing.
    pub(crate) fn send(&self, input: Input) {
        let _ = self.inbox.send(input);
    }
}

/// An engine that runs by itself. Dropping it without `stop()` stops immediately: work in flight is told
/// to stop and given back.
#[derive(Debug)]
pub struct Service {
    handle: Handle,
    stats: Arc<Stats>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts an engine.
    pub fn start<W: Worker + 'static>(setup: Setup<W>) -> Result<Service, StoreError> {
        let (inbox, inputs) = mpsc::channel();
        let handle = Handle::new(inbox);
        let committers = match setup.clock.is_virtual() {
            // On the loop's own thread: what is decided next must not depend on threads.
            true => 0,
            false => setup.store.capabilities().concurrent_commits.max(1),
        };
        let committers = (0..committers)
            .map(|index| Committer::start(index, setup.store.clone(), handle.clone()))
            .collect();
        let service_loop = ServiceLoop::new(setup, handle.clone(), inputs, committers)?;
        let stats = service_loop.stats().clone();
        let thread = thread::Builder::new()
            .name("stepwell-decide".into())
            .spawn(move || service_loop.run())
            .map_err(|error| StoreError::new(StoreErrorKind::Unusable, error))?;
        Ok(Service {
            handle,
            stats,
            thread: Some(thread),
        })
    }

    /// A handle to talk to the engine.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
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
        self.end(grace)
    }

    fn end(&mut self, grace: Duration) -> Result<(), StoreError> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        let (answer, answered) = mpsc::channel();
        self.handle.send(Input::Stop(grace, answer));
        let result = answered.recv().unwrap_or(Ok(()));
        let _ = thread.join();
        result
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Err(error) = self.end(Duration::ZERO) {
            tracing::warn!(%error, "the session could not be closed; it ends by itself");
        }
    }
}
