//! A server: a process with the product's own loops and actors, its work and its clock. A crash takes all of it;
//! only what the store has stays.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stepwell_engine::Error;
use stepwell_engine::coordinator::{Assignment, Config};
use stepwell_engine::port::Clock;
use stepwell_engine::service::{Answered, Observer, Reporter, Setup, SteppedService, Worker};
use stepwell_engine::store::{Delivered, RunNo, SessionNo, StoreError};
use stepwell_kernel::command::Reply;
use stepwell_kernel::effect::Target;
use stepwell_kernel::time::Time;

use crate::oracle::KeptEvent;
use crate::seats::TakenSeat;
use crate::sim_store::{SimStore, StoreConnection};
use crate::workload::Workload;

/// Work that runs in a server.
#[derive(Clone, Debug)]
pub(crate) struct LocalTask {
    pub(crate) job: Assignment,
    pub(crate) reporter: Reporter,
    /// The work is no longer wanted.
    pub(crate) stopped: bool,
    /// The result was reported; it may be reported once more.
    pub(crate) reported: bool,
}

/// What an answer is awaited for.
#[derive(Debug)]
pub(crate) enum PendingRequest {
    /// A start, with the number of the request; once it is answered the run is there.
    Start(u64, Answered<String>),
    /// A signal; once it is accepted it is in the run's log.
    Signal { run_id: String, id: String },
    /// A worker outside wants work.
    Claim {
        worker: usize,
        run: RunNo,
        run_id: String,
        target: Target,
        name: String,
    },
    /// An event from outside; once it is kept, the next step that waits for it gets it.
    Event(KeptEvent),
    /// Any other request, whose answer is not checked.
    Other,
}

/// The number of a request.
pub(crate) type RequestNo = u64;

/// What the engine of a server tells its surroundings, in order.
#[derive(Debug)]
pub(crate) enum Told {
    Begin(Box<Assignment>, Reporter),
    Stop {
        run: RunNo,
        target: Target,
        execution: u32,
    },
    Answer(RequestNo, Result<Reply, Error>),
    Delivered(RequestNo, Result<Delivered, Error>),
    StoreFailed(StoreError),
}

/// Where the engine says it. The simulation reads it after each step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ear(Arc<Mutex<Vec<Told>>>);

impl Ear {
    pub(crate) fn tell(&self, told: Told) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(told);
    }

    pub(crate) fn take(&self) -> Vec<Told> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *all)
    }
}

/// The worker of a simulated server: the simulation does the work later, and chooses the result.
#[derive(Debug)]
pub(crate) struct SimWorker(Ear);

impl Worker for SimWorker {
    fn start(&mut self, assignment: Assignment, reporter: &Reporter) {
        let reporter = reporter.clone();
        self.0.tell(Told::Begin(Box::new(assignment), reporter));
    }

    fn stop(&mut self, run: RunNo, target: Target, execution: u32) {
        self.0.tell(Told::Stop {
            run,
            target,
            execution,
        });
    }
}

impl Observer for Ear {
    fn store_failed(&mut self, error: &StoreError) {
        self.tell(Told::StoreFailed(error.clone()));
    }
}

/// The clock of one server, which only the simulation moves.
#[derive(Debug, Default)]
pub(crate) struct SimClock {
    now: AtomicI64,
}

impl SimClock {
    fn set(&self, now: Time) {
        self.now.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Time {
        Time(self.now.load(Ordering::SeqCst))
    }
}

/// A simulated server process.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) connection: Arc<StoreConnection>,
    pub(crate) engine: Option<SteppedService<SimWorker>>,
    pub(crate) tasks: Vec<LocalTask>,
    pub(crate) asked: BTreeMap<RequestNo, PendingRequest>,
    pub(crate) ear: Ear,
    /// Workers outside that wait for work here.
    pub(crate) seats: Vec<TakenSeat>,
    /// How many loops share its runs.
    shards: usize,
    clock: Arc<SimClock>,
    /// How far its clock is off, in milliseconds.
    skew: i64,
    /// Until when the whole process stands still.
    pub(crate) frozen_until: Option<Time>,
    /// Until when its store answers nothing.
    pub(crate) slow_until: Option<Time>,
    config: Config,
}

impl Server {
    pub(crate) fn new(
        sim_store: &Arc<SimStore>,
        config: Config,
        shards: usize,
        now: Time,
    ) -> Server {
        let server = Server {
            name: config.name.clone(),
            connection: Arc::new(StoreConnection::new(sim_store.clone())),
            engine: None,
            tasks: Vec::new(),
            asked: BTreeMap::new(),
            ear: Ear::default(),
            seats: Vec::new(),
            shards,
            clock: Arc::default(),
            skew: 0,
            frozen_until: None,
            slow_until: None,
            config,
        };
        server.set_now(now);
        server
    }

    /// The time as the clock of this server shows it.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// The clock of this server.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// The world's time has changed.
    pub(crate) fn set_now(&self, now: Time) {
        self.clock.set(Time(now.0 + self.skew));
    }

    /// The clock of this server is wrong by so many milliseconds from now on.
    pub(crate) fn set_skew(&mut self, skew: i64, now: Time) {
        self.skew = skew;
        self.set_now(now);
    }

    /// Whether its loops and actors can take a step now.
    pub(crate) fn can_move(&self, now: Time) -> bool {
        self.is_up() && self.frozen_until.is_none_or(|until| until <= now)
    }

    /// Whether its store answers now.
    pub(crate) fn store_answers(&self, now: Time) -> bool {
        self.can_move(now) && self.slow_until.is_none_or(|until| until <= now)
    }

    /// Starts the process; says whether the store was there.
    pub(crate) fn boot(&mut self, workload: &Workload) -> bool {
        let setup = Setup {
            store: self.connection.clone(),
            catalog: Box::new(workload.clone()),
            config: self.config.clone(),
            clock: self.clock.clone(),
            worker: SimWorker(self.ear.clone()),
            observer: Box::new(self.ear.clone()),
            shards: self.shards,
        };
        self.engine = SteppedService::open(setup).ok();
        self.engine.is_some()
    }

    /// Kills the process. What was on its way to the store may still arrive.
    pub(crate) fn crash(&mut self, arrives: bool) {
        if let Some(engine) = &mut self.engine
            && arrives
        {
            self.connection.set_dying(true);
            for actor in 0..engine.actors() {
                engine.step(actor);
            }
            self.connection.set_dying(false);
        }
        self.engine = None;
        self.seats.clear();
        self.tasks.clear();
        self.asked.clear();
        self.ear.take();
        self.frozen_until = None;
    }

    pub(crate) fn is_up(&self) -> bool {
        self.engine.is_some()
    }

    /// The sessions of its loops.
    pub(crate) fn sessions(&self) -> Vec<SessionNo> {
        let engine = self.engine.iter();
        engine
            .flat_map(|it| (0..it.shards()).map(|shard| it.coordinator(shard).session()))
            .collect()
    }

    /// How much work it believes to be doing.
    pub(crate) fn busy(&self) -> usize {
        { self.engine.as_ref() }.map_or(0, |it| it.coordinator(0).busy())
    }
}
