//! A server: a process with a coordinator, its work, and batches on their way to the store. A crash takes
//! all of it; only what the store has stays.

use std::collections::BTreeMap;
use std::sync::Arc;

use stepwell_engine::coordinator::{Assignment, Config, Coordinator, Ticket};
use stepwell_engine::store::{AppendResult, Batch, RunNo, StoreError};
use stepwell_kernel::effect::Target;
use stepwell_kernel::time::Time;

use crate::sim_store::{SimStore, StoreConnection};
use crate::workload::Workload;

/// Work that runs in a server.
#[derive(Clone, Debug)]
pub(crate) struct LocalTask {
    pub(crate) job: Assignment,
    /// It is no longer wanted.
    pub(crate) stopped: bool,
    /// Its result was reported; it may be reported once more.
    pub(crate) reported: bool,
}

/// A batch on its way.
#[derive(Clone, Debug)]
pub(crate) struct BatchInFlight {
    pub(crate) batch: Batch,
    pub(crate) stage: BatchStage,
}

/// Where a batch is.
#[derive(Clone, Debug)]
pub(crate) enum BatchStage {
    /// Between the server and the store.
    Sent,
    /// The answer is between the store and the server.
    Answered(Result<Vec<AppendResult>, StoreError>),
    /// It waits to be sent again.
    Again(Time),
}

/// What an answer is awaited for.
#[derive(Clone, Debug)]
pub(crate) enum PendingRequest {
    /// A start; once it is answered the run is there.
    Start,
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
    /// Any other request, whose answer is not checked.
    Other,
}

/// A simulated server process.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) connection: Arc<StoreConnection>,
    pub(crate) coordinator: Option<Coordinator>,
    pub(crate) flights: Vec<BatchInFlight>,
    pub(crate) tasks: Vec<LocalTask>,
    pub(crate) asked: BTreeMap<Ticket, PendingRequest>,
    /// How far its clock is off, in milliseconds.
    pub(crate) skew: i64,
    pub(crate) config: Config,
}

impl Server {
    pub(crate) fn new(sim_store: &Arc<SimStore>, config: Config) -> Server {
        Server {
            name: config.name.clone(),
            connection: Arc::new(StoreConnection::new(sim_store.clone())),
            coordinator: None,
            flights: Vec::new(),
            tasks: Vec::new(),
            asked: BTreeMap::new(),
            skew: 0,
            config,
        }
    }

    /// Its own idea of the time.
    pub(crate) fn clock(&self, now: Time) -> Time {
        Time(now.0 + self.skew)
    }

    /// Starts the process; says whether the store was there.
    pub(crate) fn boot(&mut self, workload: &Workload, now: Time) -> bool {
        let catalog = Box::new(workload.clone());
        let now = self.clock(now);
        self.coordinator =
            Coordinator::open(self.connection.clone(), catalog, self.config.clone(), now).ok();
        self.coordinator.is_some()
    }

    /// Kills the process. What was on its way to the store may still arrive.
    pub(crate) fn crash(&mut self) -> Vec<Batch> {
        self.coordinator = None;
        self.tasks.clear();
        self.asked.clear();
        let flights = std::mem::take(&mut self.flights);
        let sent = |it: &BatchInFlight| matches!(it.stage, BatchStage::Sent);
        flights
            .into_iter()
            .filter(sent)
            .map(|it| it.batch)
            .collect()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.coordinator.is_some()
    }

    /// How many batches are between it and the store.
    pub(crate) fn flying(&self) -> usize {
        let flies = |it: &&BatchInFlight| !matches!(it.stage, BatchStage::Again(_));
        self.flights.iter().filter(flies).count()
    }
}
