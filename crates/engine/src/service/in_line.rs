//! The loop on one thread: commits happen here, and time passes only when the owner of the loop says so.
//! For a service with a virtual clock, and for the engine in line. The same inputs give the same log.

use std::sync::atomic::Ordering;
use std::time::Instant;

use stepwell_kernel::time::Time;

use super::service_loop::{ServiceLoop, ShardSetup};
use super::{Handle, Setup, Worker};
use crate::coordinator::Retry;
use crate::store::{Batch, RunNo, StoreError};

/// How many things are done at one instant of virtual time before the driver may look.
const MAX_ACTIONS: usize = 256;
/// How often a batch is sent on the caller's thread before the caller is told that the store failed.
const TRIES: u32 = 3;

impl<W: Worker> ServiceLoop<W> {
    /// A loop without a thread, for its owner to turn.
    pub(crate) fn in_line(setup: Setup<W>) -> Result<ServiceLoop<W>, StoreError> {
        let (handle, mut inputs) = Handle::new(1);
        let inputs = inputs.remove(0);
        ServiceLoop::new(setup, ShardSetup::of_all(handle, inputs))
    }

    /// The same loop with another worker, which is told of the runs that are in memory.
    pub(crate) fn with_worker<V: Worker>(self, worker: V) -> ServiceLoop<V> {
        let mut changed = ServiceLoop {
            coordinator: self.coordinator,
            opened_at: self.opened_at,
            clock: self.clock,
            worker,
            observer: self.observer,
            reporter: self.reporter,
            inbox: self.inbox,
            inputs: self.inputs,
            committers: self.committers,
            deliveries: self.deliveries,
            tickets: self.tickets,
            answers: self.answers,
            flushes: self.flushes,
            visitors: self.visitors,
            stopping: self.stopping,
            backoff: self.backoff,
            again: self.again,
            next: self.next,
            alone: self.alone,
            moved: true,
            changes: self.changes,
            stats: self.stats,
            complained: self.complained,
        };
        let all = changed.coordinator.all_hot();
        let mut runs: Vec<RunNo> = all.map(|hot| hot.run()).collect();
        runs.sort_unstable();
        for run in runs {
            changed.introduce(run);
        }
        changed
    }

    /// Time passes only when the driver says so, and everything happens on this thread: the same inputs
    /// give the same log.
    pub(super) fn run_virtual(mut self) {
        loop {
            if let Err(error) = self.settle() {
                self.observer.store_failed(&error);
            }
            let in_flight = self.coordinator.busy();
            self.stats.in_flight.store(in_flight, Ordering::SeqCst);
            if self.is_done() {
                return;
            }
            self.rest();
            let input = match &self.stopping {
                None => self.inputs.recv().ok(),
                Some(stopping) => {
                    let left = stopping.until.saturating_duration_since(Instant::now());
                    self.inputs.recv_timeout(left).ok()
                }
            };
            if let Some(input) = input {
                let now = self.clock.now();
                self.take(input, now);
            }
        }
    }

    /// Takes what is there and commits what follows until nothing follows any more, all at the present
    /// time.
    pub(crate) fn settle(&mut self) -> Result<(), StoreError> {
        loop {
            let now = self.clock.now();
            self.pass_on();
            self.deliveries.send(&self.inbox);
            if let Some(batch) = self.coordinator.next_batch(now) {
                self.commit_here(&batch, now)?;
            } else if let Ok(input) = self.inputs.try_recv() {
                self.take(input, now);
            } else if self.coordinator.is_pressed() {
                self.coordinator.tick(now)?;
            } else {
                self.serve_visitors();
                self.pass_on();
                return Ok(());
            }
        }
    }

    /// Does one thing that is due now, and what follows from it. Says whether there was one.
    pub(crate) fn act(&mut self) -> Result<bool, StoreError> {
        self.settle()?;
        let before = self.changes;
        let now = self.clock.now();
        if self.tick_worker(now) {
            self.settle()?;
            return Ok(true);
        }
        self.coordinator.tick(now)?;
        self.settle()?;
        Ok(self.changes != before)
    }

    /// When something happens next by itself, at a later time than now.
    pub(crate) fn next_due(&self) -> Option<Time> {
        let now = self.clock.now();
        let due = self.coordinator.next_due().into_iter();
        due.chain(self.worker.next_due())
            .filter(|due| *due > now)
            .min()
    }

    pub(super) fn advance(&mut self, time: Time) {
        self.clock.advance_to(time);
        self.moved = true;
        for _ in 0..MAX_ACTIONS {
            match self.act() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.observer.store_failed(&error),
            }
        }
    }

    /// Commits a batch on this thread; an error means that the batch was given up.
    fn commit_here(&mut self, batch: &Batch, now: Time) -> Result<(), StoreError> {
        for tries in 1.. {
            match self.coordinator.store().commit(batch) {
                Ok(results) => {
                    self.stats.count(batch, now);
                    self.coordinator.committed(batch, results, now);
                    break;
                }
                Err(error) if tries >= TRIES => {
                    self.coordinator.abandon(batch, &error);
                    self.pass_on();
                    return Err(error);
                }
                Err(error) => {
                    if self.coordinator.failed(batch, &error, now) == Retry::Never {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}
