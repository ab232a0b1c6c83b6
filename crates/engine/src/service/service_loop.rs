//! The loop around the coordinator: takes inputs, ticks, carries batches to the store, and turns what the
//! coordinator says into calls of the worker, the observer and the senders. This is the only place where
//! notices are interpreted; `Service` runs the loop on a thread, `Engine` on the caller's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use stepwell_kernel::time::Time;

use super::committer::{Committer, Stats};
use super::delivery::DeliveryQueue;
use super::{Handle, Idle, Input, Observer, OnAnswer, OnDelivered, Reporter, Setup, Worker};
use crate::coordinator::{Assignment, Coordinator, Notice, Retry, Ticket};
use crate::error::Error;
use crate::number_map::NumberMap;
use crate::port::Clock;
use crate::store::{Batch, Delivered, OutsideEvent, RunNo, StoreError};

/// How long the loop sleeps at most before it looks around.
const LONGEST_NAP: Duration = Duration::from_millis(250);
/// How long a batch that failed waits before it is sent again, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// How many inputs are taken before the clock is looked at again.
const MAX_INPUTS: usize = 8_192;
/// How many inputs are taken before an idle committer is given a batch.
const SHARE: usize = 64;
/// How many things are done at one instant of virtual time before the driver may look.
const MAX_ACTIONS: usize = 256;
/// How often a batch is sent on the caller's thread before the caller is told that the store failed.
const TRIES: u32 = 3;

/// A stop that was asked for.
struct Stopping {
    /// How long work in flight may take.
    until: Instant,
    /// The worker was told to stop.
    told: bool,
    answer: Sender<Result<(), StoreError>>,
}

/// The loop and what it needs.
pub(crate) struct ServiceLoop<W> {
    coordinator: Coordinator,
    clock: Arc<dyn Clock>,
    worker: W,
    observer: Box<dyn Observer>,
    reporter: Reporter,
    inputs: Receiver<Input>,
    /// Without any, batches are committed on the loop's own thread.
    committers: Vec<Committer>,
    deliveries: DeliveryQueue,
    tickets: u64,
    answers: NumberMap<Ticket, OnAnswer>,
    flushes: Vec<Sender<()>>,
    stopping: Option<Stopping>,
    backoff: Duration,
    /// Batches that the store did not take, with when to send them again.
    again: Vec<(Time, Box<Batch>)>,
    /// The next batch, formed while the committers are busy.
    next: Option<Box<Batch>>,
    /// A batch that is committed on this thread.
    alone: Option<Box<Batch>>,
    /// Something has happened since the observer was last told that the loop is at rest.
    moved: bool,
    /// How many commits had events in them.
    changes: u64,
    stats: Arc<Stats>,
}

impl<W: Worker> ServiceLoop<W> {
    pub(super) fn new(
        setup: Setup<W>,
        handle: Handle,
        inputs: Receiver<Input>,
        committers: Vec<Committer>,
    ) -> Result<ServiceLoop<W>, StoreError> {
        let now = setup.clock.now();
        let deliveries = DeliveryQueue::in_line(setup.store.clone(), setup.clock.clone());
        let coordinator = Coordinator::open(setup.store, setup.catalog, setup.config, now)?;
        Ok(ServiceLoop {
            coordinator,
            clock: setup.clock,
            worker: setup.worker,
            observer: setup.observer,
            reporter: Reporter::new(handle),
            inputs,
            committers,
            deliveries,
            tickets: 0,
            answers: NumberMap::default(),
            flushes: Vec::new(),
            stopping: None,
            backoff: BACKOFF.0,
            again: Vec::new(),
            next: None,
            alone: None,
            moved: true,
            changes: 0,
            stats: Arc::new(Stats::default()),
        })
    }

    /// A loop without a thread, for its owner to turn.
    pub(crate) fn in_line(setup: Setup<W>) -> Result<ServiceLoop<W>, StoreError> {
        let (inbox, inputs) = std::sync::mpsc::channel();
        ServiceLoop::new(setup, Handle::new(inbox), inputs, Vec::new())
    }

    /// The same loop with another worker, which is told of the runs that are in memory.
    pub(crate) fn with_worker<V: Worker>(self, worker: V) -> ServiceLoop<V> {
        let mut changed = ServiceLoop {
            coordinator: self.coordinator,
            clock: self.clock,
            worker,
            observer: self.observer,
            reporter: self.reporter,
            inputs: self.inputs,
            committers: self.committers,
            deliveries: self.deliveries,
            tickets: self.tickets,
            answers: self.answers,
            flushes: self.flushes,
            stopping: self.stopping,
            backoff: self.backoff,
            again: self.again,
            next: self.next,
            alone: self.alone,
            moved: true,
            changes: self.changes,
            stats: self.stats,
        };
        let all = changed.coordinator.all_hot();
        let mut runs: Vec<RunNo> = all.map(|hot| hot.run()).collect();
        runs.sort_unstable();
        for run in runs {
            changed.introduce(run);
        }
        changed
    }

    pub(crate) fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    pub(crate) fn coordinator_mut(&mut self) -> &mut Coordinator {
        &mut self.coordinator
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn worker(&self) -> &W {
        &self.worker
    }

    pub(crate) fn worker_mut(&mut self) -> &mut W {
        &mut self.worker
    }

    pub(crate) fn reporter(&self) -> &Reporter {
        &self.reporter
    }

    pub(super) fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    pub(super) fn run(self) {
        match self.clock.is_virtual() {
            true => self.run_virtual(),
            false => self.run_real(),
        }
    }

    fn run_real(mut self) {
        loop {
            let now = self.clock.now();
            if now >= self.coordinator.next_tick()
                && let Err(error) = self.coordinator.tick(now)
            {
                tracing::warn!(%error, "the store could not be asked");
                self.observer.store_failed(&error);
                // Asked again after a while, not at once.
                self.coordinator.rest(now);
            }
            self.pass_on();
            self.tick_worker(now);
            self.deliveries.send(self.reporter.handle());
            self.send_batches(true, now);
            self.prepare(now);
            self.stats
                .in_flight
                .store(self.coordinator.busy(), Ordering::SeqCst);
            if self.is_done() {
                return;
            }
            let mut next = self.wait();
            let now = self.clock.now();
            let mut taken = 0;
            while let Some(input) = next {
                self.take(input, now);
                taken += 1;
                // A committer that has nothing to do gets what there is: the next batch forms meanwhile.
                if taken % SHARE == 0 {
                    self.deliveries.send(self.reporter.handle());
                    self.send_batches(false, now);
                    // Whatever comes in, the session is renewed in time.
                    if self.clock.now().since(now) > LONGEST_NAP.as_millis() as u64 / 5 {
                        break;
                    }
                }
                next = match taken < MAX_INPUTS {
                    true => self.inputs.try_recv().ok(),
                    false => None,
                };
            }
        }
    }

    /// Time passes only when the driver says so, and everything happens on this thread: the same inputs
    /// give the same log.
    fn run_virtual(mut self) {
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
            self.deliveries.send(self.reporter.handle());
            if let Some(batch) = self.coordinator.next_batch(now) {
                self.commit_here(&batch, now)?;
            } else if let Ok(input) = self.inputs.try_recv() {
                self.take(input, now);
            } else if self.coordinator.is_pressed() {
                self.coordinator.tick(now)?;
            } else {
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

    fn advance(&mut self, time: Time) {
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

    fn tick_worker(&mut self, now: Time) -> bool {
        let is_due = self.worker.next_due().is_some_and(|due| due <= now);
        if is_due {
            self.worker.tick(now, &self.reporter);
            self.moved = true;
        }
        is_due
    }

    /// The next input, or none once it is time for something else.
    fn wait(&mut self) -> Option<Input> {
        if let Ok(input) = self.inputs.try_recv() {
            return Some(input);
        }
        let now = self.clock.now();
        let retry = self.again.iter().map(|(at, _)| *at);
        let due = retry.chain(self.worker.next_due());
        let until = due.fold(self.coordinator.next_tick(), Time::min);
        let nap = Duration::from_millis(until.since(now)).min(LONGEST_NAP);
        if nap.is_zero() {
            return None;
        }
        let committing = self.committers.iter().any(|it| it.busy) || self.next.is_some();
        let flying = committing || !self.deliveries.is_empty();
        if !flying && self.again.is_empty() && !self.coordinator.is_pressed() {
            self.rest();
        }
        self.inputs.recv_timeout(nap).ok()
    }

    /// Nothing is left to do for now.
    fn rest(&mut self) {
        for flush in self.flushes.drain(..) {
            let _ = flush.send(());
        }
        if std::mem::take(&mut self.moved) {
            let worker_due = self.worker.next_due();
            let now = self.clock.now();
            self.observer.idle(Idle {
                in_flight: self.coordinator.busy(),
                worker_due,
                next_due: self.next_due(),
                has_more: self.clock.is_virtual() && worker_due.is_some_and(|due| due <= now),
            });
        }
    }

    pub(crate) fn take(&mut self, input: Input, now: Time) {
        self.moved = true;
        match input {
            Input::Submit(run_id, command, on_answer) => {
                let ticket = self.ticket(on_answer);
                self.coordinator.submit(&run_id, *command, ticket, now);
            }
            Input::Start {
                plan,
                request,
                enqueue,
                on_answer,
            } => {
                let ticket = self.ticket(on_answer);
                self.coordinator
                    .start(&plan, *request, enqueue, ticket, now);
            }
            Input::Finished {
                run,
                target,
                execution,
                result,
            } => self
                .coordinator
                .finished(run, target, execution, *result, now),
            Input::MissingChildEnded(run, message, end) => {
                self.coordinator.pretend_child(run, message, *end, now);
            }
            Input::Committed(index, batch, answer) => {
                if let Some(committer) = self.committers.get_mut(index) {
                    committer.busy = false;
                }
                match answer {
                    Ok(results) => {
                        self.backoff = BACKOFF.0;
                        self.stats.count(&batch);
                        self.coordinator.committed(&batch, results, now);
                    }
                    Err(error) => self.failed(batch, &error, now),
                }
            }
            Input::Deliver(event, on_delivered) => self.deliveries.push(*event, on_delivered),
            Input::Delivered(events, answer) => self.delivered(events, answer),
            Input::Look => self.coordinator.look(),
            Input::Recover(run_id, answer) => {
                let _ = answer.send(self.recover(&run_id, now));
            }
            Input::CatchUp(run_id) => {
                if let Err(error) = self.catch_up(&run_id, now) {
                    tracing::warn!(%error, run = run_id, "a run could not be read again yet");
                }
            }
            Input::Flush(answer) => self.flushes.push(answer),
            Input::Advance(time) => self.advance(time),
            Input::Stop(grace, answer) => {
                self.coordinator.stop();
                self.stopping = Some(Stopping {
                    until: later(grace),
                    told: false,
                    answer,
                });
            }
        }
        self.pass_on();
    }

    /// Events are in the store: their senders are told, and the runs that got them are looked after.
    fn delivered(
        &mut self,
        events: Vec<(OutsideEvent, OnDelivered)>,
        answer: Result<Vec<Delivered>, StoreError>,
    ) {
        self.deliveries.answered();
        match answer {
            Ok(delivered) => {
                for ((_, on_delivered), delivered) in events.into_iter().zip(delivered) {
                    on_delivered(Ok(delivered));
                }
                self.coordinator.look();
            }
            Err(error) => {
                tracing::warn!(%error, events = events.len(), "events could not be delivered");
                for (_, on_delivered) in events {
                    on_delivered(Err(error.clone().into()));
                }
            }
        }
    }

    /// Reads a run and sees to everything that it needs, unless it is this engine's already.
    pub(crate) fn recover(&mut self, run_id: &str, now: Time) -> Result<(), Error> {
        let run = self.coordinator.store().find(run_id)?;
        let run = run.ok_or_else(|| Error::UnknownRun(run_id.to_owned()))?;
        let session = Some(self.coordinator.session());
        let owned = self.coordinator.hot(run);
        if owned.is_some_and(|hot| hot.head().session == session) {
            return Ok(());
        }
        self.coordinator.recover(run_id, now)?;
        self.coordinator.look();
        self.introduce(run);
        Ok(())
    }

    fn catch_up(&mut self, run_id: &str, now: Time) -> Result<(), Error> {
        self.coordinator.forget_if_moved(run_id)?;
        let run = self.coordinator.store().find(run_id)?;
        match run.is_some_and(|run| self.coordinator.hot(run).is_none()) {
            true => self.recover(run_id, now),
            false => Ok(()),
        }
    }

    /// Tells the worker of a run that was in the log before the worker was there.
    fn introduce(&mut self, run: RunNo) {
        if let Some(hot) = self.coordinator.hot(run) {
            let seq = hot.state().seq();
            self.tell(&Notice::Changed { run, seq });
        }
    }

    fn failed(&mut self, batch: Box<Batch>, error: &StoreError, now: Time) {
        tracing::warn!(%error, appends = batch.appends.len(), "a commit failed");
        self.observer.store_failed(error);
        if self.coordinator.failed(&batch, error, now) == Retry::Same {
            let at = now.plus(self.backoff.as_millis() as u64);
            self.again.push((at, batch));
            self.backoff = (self.backoff * 2).min(BACKOFF.1);
        }
    }

    /// Commits a batch on this thread; an error means that the batch was given up.
    fn commit_here(&mut self, batch: &Batch, now: Time) -> Result<(), StoreError> {
        for tries in 1.. {
            match self.coordinator.store().commit(batch) {
                Ok(results) => {
                    self.stats.count(batch);
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

    /// Gives idle committers something to do; `quiet` if nothing else waits to be taken.
    fn send_batches(&mut self, quiet: bool, now: Time) {
        for committer in 0..self.committers.len() {
            if self.committers[committer].busy {
                continue;
            }
            let due = self.again.iter().position(|(at, _)| *at <= now);
            let batch = match due {
                Some(index) => Some(self.again.swap_remove(index).1),
                None => self
                    .next
                    .take()
                    .or_else(|| self.coordinator.next_batch(now).map(Box::new)),
            };
            let Some(batch) = batch else { break };
            let idle = self.committers.iter().all(|it| !it.busy);
            if idle && quiet && self.committers.len() == 1 && batch.appends.len() == 1 {
                self.alone = Some(batch);
                break;
            }
            self.committers[committer].send(batch);
        }
    }

    /// Forms the next batch while the committers are busy, so that none of them waits for it. With
    /// nothing else to do, a batch of one run is committed right here: handing it to another thread and
    /// back takes longer than many a disk needs.
    fn prepare(&mut self, now: Time) {
        if self.next.is_none() && self.committers.iter().all(|it| it.busy) {
            self.next = self.coordinator.next_batch(now).map(Box::new);
        }
        while let Some(batch) = self.alone.take() {
            let answer = self.coordinator.store().commit(&batch);
            let now = self.clock.now();
            self.take(Input::Committed(usize::MAX, batch, answer), now);
        }
    }

    /// Passes on what the coordinator has to say: answers to their senders, work to the worker, and
    /// everything else to the worker and the observer.
    pub(crate) fn pass_on(&mut self) {
        let notices: Vec<Notice> = self.coordinator.notices().collect();
        for notice in notices {
            self.moved = true;
            match notice {
                Notice::Answer(ticket, answer) => {
                    if let Some(on_answer) = self.answers.remove(&ticket) {
                        on_answer(answer);
                    }
                    continue;
                }
                Notice::Start(assignment) => {
                    self.begin(*assignment);
                    continue;
                }
                Notice::Stop {
                    run,
                    target,
                    execution,
                } => self.worker.stop(run, target, execution),
                Notice::Changed { .. } => self.changes += 1,
                Notice::Alert(run, ref alert) => {
                    tracing::warn!(run = run.0, code = alert.code, priority = ?alert.priority, "{}", alert.message);
                }
                Notice::Offer { .. }
                | Notice::Person { .. }
                | Notice::MissingChild { .. }
                | Notice::Published(..)
                | Notice::Ended(..) => {}
            }
            self.tell(&notice);
        }
    }

    fn tell(&mut self, notice: &Notice) {
        if self.is_for_worker(notice) {
            self.worker.notice(notice, &self.reporter);
        }
        self.observer.notice(notice);
    }

    /// A worker hears nothing of runs that this engine does not work on.
    fn is_for_worker(&self, notice: &Notice) -> bool {
        let run = match notice {
            Notice::Changed { run, .. }
            | Notice::Person { run, .. }
            | Notice::MissingChild { run, .. } => *run,
            _ => return true,
        };
        let hot = self.coordinator.hot(run);
        hot.is_some_and(|hot| self.coordinator.works_on(hot.run_id()))
    }

    /// Whether a stop that was asked for is done. Runs are given back only when their work has ended, or
    /// has had its time to: another server begins with them at once.
    fn is_done(&mut self) -> bool {
        let Some(stopping) = &mut self.stopping else {
            return false;
        };
        let now = Instant::now();
        let flying = !self.again.is_empty()
            || self.next.is_some()
            || !self.deliveries.is_empty()
            || self.committers.iter().any(|committer| committer.busy);
        let idle = !flying && self.coordinator.busy() == 0;
        if !idle && now >= stopping.until && !stopping.told {
            stopping.told = true;
            stopping.until = later(self.worker.stop_all());
        }
        if !idle && now < stopping.until {
            return false;
        }
        let closed = self.coordinator.close();
        if let Some(stopping) = self.stopping.take() {
            let _ = stopping.answer.send(closed);
        }
        true
    }

    /// Hands out work. A claim that was on its way to the store when all work was told to stop is told
    /// so too.
    fn begin(&mut self, assignment: Assignment) {
        let claim = &assignment.claimed.claim;
        let (run, target, execution) = (assignment.run, claim.target, claim.execution);
        self.worker.start(assignment, &self.reporter);
        if self.stopping.as_ref().is_some_and(|it| it.told) {
            self.worker.stop(run, target, execution);
        }
    }

    fn ticket(&mut self, on_answer: OnAnswer) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.answers.insert(ticket, on_answer);
        ticket
    }
}

/// A time from now; one that no clock reaches if the wait is too long to be added.
fn later(wait: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    Instant::now() + wait.min(CENTURY)
}
