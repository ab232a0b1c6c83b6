//! What several shards of one engine share: the worker, the observer and the catalog, each behind a lock that is held for
//! one call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stepwell_kernel::effect::Target;
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use super::{EndLostWork, Idle, Observer, Reporter, Worker};
use crate::coordinator::{Assignment, Notice};
use crate::port::{Catalog, NoChild};
use crate::store::{RunNo, StoreError};

/// A value behind a lock. What a thread left that panicked is what the next one gets.
#[derive(Debug)]
struct Shared<T: ?Sized>(Arc<Mutex<T>>);

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        Shared(self.0.clone())
    }
}

impl<T: ?Sized> Shared<T> {
    fn get(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One worker for all shards.
pub(super) struct SharedWorker<W>(Shared<W>);

impl<W> Clone for SharedWorker<W> {
    fn clone(&self) -> SharedWorker<W> {
        SharedWorker(self.0.clone())
    }
}

impl<W> SharedWorker<W> {
    pub(super) fn new(worker: W) -> SharedWorker<W> {
        SharedWorker(Shared(Arc::new(Mutex::new(worker))))
    }
}

impl<W: Worker> Worker for SharedWorker<W> {
    fn start(&mut self, assignment: Assignment, reporter: &Reporter) {
        self.0.get().start(assignment, reporter);
    }

    fn stop(&mut self, run: RunNo, target: Target, execution: u32) {
        self.0.get().stop(run, target, execution);
    }

    fn stop_all(&mut self) -> Duration {
        self.0.get().stop_all()
    }

    fn lost_work(&self) -> Option<Arc<dyn EndLostWork>> {
        self.0.get().lost_work()
    }

    fn notice(&mut self, notice: &Notice, reporter: &Reporter) {
        self.0.get().notice(notice, reporter);
    }

    fn next_due(&self) -> Option<Time> {
        self.0.get().next_due()
    }

    fn tick(&mut self, now: Time, reporter: &Reporter) {
        self.0.get().tick(now, reporter);
    }
}

/// One observer for all shards. Each shard tells it when the shard becomes idle.
#[derive(Clone)]
pub(super) struct SharedObserver(Shared<Box<dyn Observer>>);

impl SharedObserver {
    pub(super) fn new(observer: Box<dyn Observer>) -> SharedObserver {
        SharedObserver(Shared(Arc::new(Mutex::new(observer))))
    }
}

impl Observer for SharedObserver {
    fn notice(&mut self, notice: &Notice) {
        self.0.get().notice(notice);
    }

    fn idle(&mut self, idle: Idle) {
        self.0.get().idle(idle);
    }

    fn store_failed(&mut self, error: &StoreError) {
        self.0.get().store_failed(error);
    }
}

/// One catalog for all shards.
#[derive(Clone)]
pub(super) struct SharedCatalog(Shared<Box<dyn Catalog + Send>>);

impl SharedCatalog {
    pub(super) fn new(catalog: Box<dyn Catalog + Send>) -> SharedCatalog {
        SharedCatalog(Shared(Arc::new(Mutex::new(catalog))))
    }
}

impl Catalog for SharedCatalog {
    fn find(&self, from: &Plan, path: &str) -> Option<Arc<Plan>> {
        self.0.get().find(from, path)
    }

    fn find_for(
        &self,
        run: &RunContext,
        from: &Plan,
        path: &str,
    ) -> Result<Option<Arc<Plan>>, NoChild> {
        self.0.get().find_for(run, from, path)
    }
}
