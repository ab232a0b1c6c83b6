//! The engine in line: the service loop on the caller's thread. Everything that a call leads to is done
//! when the call returns, and time passes only when the caller says so. For tests that look at a run
//! after each command; programs use [`crate::service::Service`].

use std::collections::VecDeque;
use std::sync::Arc;

use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::event::Event;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

pub use crate::coordinator::engine_actor;
use crate::coordinator::{Assignment, Config, Coordinator, HotRun, Notice};
pub use crate::error::Error;
use crate::port::Clock;
use crate::read;
use crate::service::{Answered, Reporter, ServiceLoop, Setup, Worker};
use crate::start::StartRequest;
use crate::store::{NewAlert, Store, StoreError};

/// The engine in line.
pub struct Engine<W> {
    service: ServiceLoop<W>,
}

impl<W: Worker> std::fmt::Debug for Engine<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("coordinator", self.service.coordinator())
            .finish_non_exhaustive()
    }
}

impl<W: Worker> Engine<W> {
    /// An engine. Runs that have ended stay in memory, for callers that look at them.
    pub fn new(mut setup: Setup<W>) -> Result<Engine<W>, StoreError> {
        setup.config.keeps_ended = true;
        let service = ServiceLoop::in_line(setup)?;
        Ok(Engine { service })
    }

    /// The same engine with another worker.
    pub fn with_worker<V: Worker>(self, worker: V) -> Engine<V> {
        Engine {
            service: self.service.with_worker(worker),
        }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        self.service.coordinator().store()
    }

    /// Which runs and which work the engine takes.
    pub fn config(&mut self) -> &mut Config {
        self.service.coordinator_mut().config()
    }

    /// Does from now on all work in this process, at most `capacity` at a time.
    pub fn serve_everything(&mut self, capacity: usize) -> Result<(), Error> {
        let config = self.config();
        config.serves = crate::coordinator::Serves::Everything;
        config.capacity = capacity;
        let now = self.now();
        self.service.coordinator_mut().attend_all(now);
        Ok(self.service.settle()?)
    }

    pub fn coordinator(&self) -> &Coordinator {
        self.service.coordinator()
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.service.clock()
    }

    pub fn now(&self) -> Time {
        self.clock().now()
    }

    pub fn worker(&self) -> &W {
        self.service.worker()
    }

    /// The worker, to be changed.
    pub fn worker_mut(&mut self) -> &mut W {
        self.service.worker_mut()
    }

    /// A run that is in memory.
    pub fn run(&self, run_id: &str) -> Option<&HotRun> {
        let mut all = self.coordinator().all_hot();
        all.find(|hot| **hot.run_id() == *run_id)
    }

    /// All runs in memory, by id.
    pub fn runs(&self) -> Vec<(&str, &HotRun)> {
        let all = self.coordinator().all_hot();
        let mut runs: Vec<(&str, &HotRun)> = all.map(|hot| (&**hot.run_id(), hot)).collect();
        runs.sort_unstable_by_key(|(run_id, _)| *run_id);
        runs
    }

    /// Decides a command, commits the result, and does what follows.
    pub fn submit(&mut self, run_id: &str, command: Command) -> Result<Reply, Error> {
        let (answer, answered) = oneshot::channel();
        let handle = self.service.reporter().handle();
        handle.submit_with(run_id, command, move |reply| drop(answer.send(reply)))?;
        self.answer(&answered)
    }

    /// Creates a run and puts it into the queue; it starts when a slot is free. Two requests with the
    /// same request id create one run, whose id both get.
    pub fn trigger(&mut self, plan: &Arc<Plan>, request: StartRequest) -> Result<String, Error> {
        let handle = self.service.reporter().handle();
        let answered = handle.create_later(plan, request, true)?;
        self.answer(&answered)
    }

    /// Creates a run; it stays as it is.
    pub fn create(&mut self, plan: &Arc<Plan>, request: StartRequest) -> Result<String, Error> {
        let handle = self.service.reporter().handle();
        let answered = handle.create_later(plan, request, false)?;
        self.answer(&answered)
    }

    /// Reports the result of work of this process.
    pub fn finish(&mut self, assignment: &Assignment, result: Command) -> Result<(), Error> {
        self.service.reporter().report(assignment, result);
        Ok(self.service.settle()?)
    }

    /// Starts queued runs while slots are free, first come first served.
    pub fn dequeue_and_start(&mut self) -> Result<(), Error> {
        let now = self.now();
        self.service.coordinator_mut().dequeue(now)?;
        Ok(self.service.settle()?)
    }

    /// Does everything that is due. Says whether anything happened.
    pub fn fire_due(&mut self) -> Result<bool, Error> {
        let mut acted = false;
        while self.service.act()? {
            acted = true;
        }
        Ok(acted)
    }

    /// When something happens next by itself, as far as the coordinator knows.
    pub fn next_wake(&self) -> Option<Time> {
        self.coordinator().next_due()
    }

    /// Does one thing that is due, or lets time pass until there is one. Says whether there was one.
    pub fn step(&mut self) -> Result<bool, Error> {
        if self.service.act()? {
            return Ok(true);
        }
        let Some(due) = self.service.next_due() else {
            return Ok(false);
        };
        self.clock().advance_to(due);
        Ok(true)
    }

    /// Lets time pass and everything happen until nothing can happen any more.
    pub fn run_to_end(&mut self) -> Result<(), Error> {
        while self.step()? {}
        Ok(())
    }

    /// Reads a run out of the store and sees to everything that it needs, as after a crash.
    pub fn recover(&mut self, run_id: &str) -> Result<(), Error> {
        let now = self.now();
        self.service.recover(run_id, now)?;
        Ok(self.service.settle()?)
    }

    /// The events of a run after `after`, as they are in the store.
    pub fn events(&self, run_id: &str, after: u64) -> Result<Vec<Event>, Error> {
        read::events(&**self.store(), run_id, after)
    }

    fn answer<T>(&mut self, answered: &Answered<T>) -> Result<T, Error> {
        self.service.settle()?;
        // Another server may have the run; it answers when it has looked.
        answered.try_recv().unwrap_or(Err(Error::Stopping))
    }
}

/// A worker that only keeps what it is given: its owner does the work, or does not.
#[derive(Debug, Default)]
pub struct Collector {
    /// Work whose claim is committed, oldest first.
    pub assignments: VecDeque<Assignment>,
    /// Alerts that were raised, oldest first.
    pub alerts: Vec<NewAlert>,
}

impl Worker for Collector {
    fn start(&mut self, assignment: Assignment, _: &Reporter) {
        self.assignments.push_back(assignment);
    }

    fn notice(&mut self, notice: &Notice, _: &Reporter) {
        if let Notice::Alert(_, alert) = notice {
            self.alerts.push(alert.clone());
        }
    }
}
