//! Workers outside that wait for work at a server: what becomes ready there is given to them in the commit that makes it
//! ready. A seat ends with its server, and a worker may leave at any time.

use stepwell_engine::Seat;
use stepwell_engine::coordinator::Assignment;
use stepwell_engine::remote::{RemoteClaim, RemoteWork, RemoteWorker};

use crate::external::{LEASE_MS, RemoteTask};
use crate::server::Server;
use crate::simulation::{Simulation, say};

/// The seat of a worker at a server.
#[derive(Debug)]
pub(crate) struct TakenSeat {
    /// Which of the workers.
    worker: usize,
    seat: Seat,
}

impl Server {
    /// A worker takes a seat; says whether the server is there.
    fn sit(&mut self, worker: usize, who: RemoteWorker, places: usize) -> bool {
        let Some(engine) = &self.engine else {
            return false;
        };
        let (store, handle) = (self.connection.clone(), engine.handle().clone());
        let work = RemoteWork::new(store, handle, self.clock());
        let seat = work.sit(who, places, LEASE_MS, || {});
        self.seats.push(TakenSeat { worker, seat });
        true
    }
}

impl Simulation {
    /// A worker outside takes a seat at a server, or leaves the one that it has there.
    pub(crate) fn sit(&mut self, no: usize, worker: usize) {
        let seats = &mut self.servers[no].seats;
        if let Some(index) = seats.iter().position(|it| it.worker == worker) {
            let left = seats.remove(index);
            // What is on its way to the store is given to nobody then: its lease ends by itself.
            left.seat.leave();
            say!(self, "remote-{worker} leaves s{no}");
            return;
        }
        let who = RemoteWorker {
            name: self.remotes[worker].name.clone(),
            tenant: None,
            serves: self.pairs.clone(),
        };
        let places = 1 + self.rng.index(3);
        if self.servers[no].sit(worker, who, places) {
            say!(self, "remote-{worker} waits at s{no} for {places}");
        }
    }

    /// Workers outside get what was given to their seats at a server.
    pub(crate) fn take_given(&mut self, no: usize) -> Result<(), String> {
        let seats = self.servers[no].seats.iter();
        let given: Vec<(usize, Assignment)> = seats
            .flat_map(|it| it.seat.take().into_iter().map(|job| (it.worker, job)))
            .collect();
        if given.is_empty() {
            return Ok(());
        }
        // What is given is committed, so the log must show it.
        self.oracle.read(&self.sim_store)?;
        for (worker, job) in given {
            // The answer may be lost on its way to the worker.
            if !self.quiet && self.rng.one_in(12) {
                continue;
            }
            let claim = RemoteClaim::of(&job);
            let (run, target) = (job.run, claim.target);
            self.oracle
                .begins(run, target, claim.execution, &claim.worker)?;
            self.oracle.gets(run, target, &job.claimed)?;
            say!(self, "remote-{worker} is given {} of {}", claim.name, run.0);
            self.remotes[worker].tasks.push(RemoteTask {
                run,
                run_id: claim.run_id,
                name: claim.name,
                claimed: job.claimed,
            });
        }
        Ok(())
    }
}
