//! Who does the work of an engine, and who watches it. What they are told has been committed.

use std::sync::Arc;
use std::time::Duration;

use stepwell_kernel::command::Command;
use stepwell_kernel::effect::Target;
use stepwell_kernel::time::Time;

use super::{Handle, Input};
use crate::coordinator::{Assignment, Notice};
use crate::store::{MessageNo, RunNo, StoreError};

/// Does the work whose claims are committed. Called on the engine's thread: anything that takes time
/// belongs elsewhere.
pub trait Worker: Send {
    /// Do this work, and report its result once with `reporter`.
    fn start(&mut self, assignment: Assignment, reporter: &Reporter);

    /// The result of this work is no longer wanted; the work is to end soon and be reported.
    fn stop(&mut self, run: RunNo, target: Target, execution: u32) {
        let _ = (run, target, execution);
    }

    /// The engine stops: all work is to end. Returns how long that may take. Results that are reported
    /// within this time count; afterwards the work is given to others, ended or not. An engine with several
    /// shards has one worker, and each shard calls this when the shard stops: the first call ends the work of
    /// all shards, a later call only returns the time again.
    fn stop_all(&mut self) -> Duration {
        Duration::ZERO
    }

    /// What ends work at once, from any thread, when the session that leases the work is lost. None if nothing would
    /// be done twice: the work is only pretended.
    fn lost_work(&self) -> Option<Arc<dyn EndLostWork>> {
        None
    }

    /// Something happened in a run that this engine works on.
    fn notice(&mut self, notice: &Notice, reporter: &Reporter) {
        let _ = (notice, reporter);
    }

    /// When `tick` is to be called. A worker whose work ends by itself needs no tick.
    fn next_due(&self) -> Option<Time> {
        None
    }

    /// The time of `next_due` has come. Called again for as long as something is due.
    fn tick(&mut self, now: Time, reporter: &Reporter) {
        let _ = (now, reporter);
    }
}

/// Ends work whose leases are gone.
pub trait EndLostWork: Send + Sync {
    /// Ends all work of these runs at once, without grace and without a report: others may begin it any moment.
    fn end(&self, of: &dyn Fn(RunNo) -> bool);
}

impl<W: Worker + ?Sized> Worker for Box<W> {
    fn start(&mut self, assignment: Assignment, reporter: &Reporter) {
        (**self).start(assignment, reporter);
    }

    fn stop(&mut self, run: RunNo, target: Target, execution: u32) {
        (**self).stop(run, target, execution);
    }

    fn stop_all(&mut self) -> Duration {
        (**self).stop_all()
    }

    fn lost_work(&self) -> Option<Arc<dyn EndLostWork>> {
        (**self).lost_work()
    }

    fn notice(&mut self, notice: &Notice, reporter: &Reporter) {
        (**self).notice(notice, reporter);
    }

    fn next_due(&self) -> Option<Time> {
        (**self).next_due()
    }

    fn tick(&mut self, now: Time, reporter: &Reporter) {
        (**self).tick(now, reporter);
    }
}

/// A worker for an engine that does no work itself (`Serves::Nothing`).
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWorker;

impl Worker for NoWorker {
    fn start(&mut self, assignment: Assignment, _: &Reporter) {
        tracing::error!(run = %assignment.run_id, "work was claimed for an engine without a worker");
    }
}

/// Where a worker reports its results.
#[derive(Clone, Debug)]
pub struct Reporter {
    handle: Handle,
}

impl Reporter {
    pub(crate) fn new(handle: Handle) -> Reporter {
        Reporter { handle }
    }

    /// Reports the result of an assignment. If the engine is gone, the lease of the work ends by itself.
    pub fn report(&self, assignment: &Assignment, result: Command) {
        let claim = &assignment.claimed.claim;
        let finished = Input::Finished {
            run: assignment.run,
            target: claim.target,
            execution: claim.execution,
            result: Box::new(result),
        };
        self.handle.send_to_run(assignment.run, finished);
    }

    /// Ends the wait for a child run whose definition was not found (`Notice::MissingChild`).
    pub fn end_missing_child(&self, run: RunNo, message: MessageNo, end: Command) {
        let ended = Input::MissingChildEnded(run, message, Box::new(end));
        self.handle.send_to_run(run, ended);
    }

    /// A handle of the engine, for everything else. A worker must not wait for an answer of the engine
    /// on the engine's own thread.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// Watches an engine. Called on the engine's thread, right after the worker.
pub trait Observer: Send {
    /// Called for every notice except `Answer`, `Start` and `Elsewhere`, which the engine handles itself.
    fn notice(&mut self, notice: &Notice) {
        let _ = notice;
    }

    /// Nothing is left to do for now: all commands are answered and everything that follows from them
    /// is committed. Called once each time the engine becomes idle; with several shards, by each of them.
    fn idle(&mut self, idle: Idle) {
        let _ = idle;
    }

    /// The store failed. The engine goes on trying.
    fn store_failed(&mut self, error: &StoreError) {
        let _ = error;
    }
}

/// An observer that ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

/// What an engine at rest waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// How much work of this process is in flight.
    pub in_flight: usize,
    /// When the worker has something to do next, if time decides that.
    pub worker_due: Option<Time>,
    /// When something happens next by itself, the worker's work included.
    pub next_due: Option<Time>,
    /// More can be done right now: the engine only stopped to let its driver look
    /// (see [`Handle::advance_to`]).
    pub has_more: bool,
}

impl Idle {
    /// Whether neither work in flight nor the worker will report anything.
    #[must_use]
    pub fn is_worker_idle(&self) -> bool {
        self.in_flight == 0 && self.worker_due.is_none()
    }
}
