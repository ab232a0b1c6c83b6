//! The loop around the coordinator: takes inputs, ticks, and carries batches to the store. `Service` runs
//! the loop on a thread, `Engine` on the caller's (`in_line`); `notices` turns what the coordinator says
//! into calls of the worker, the observer and the senders.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use stepwell_kernel::time::Time;

use super::committer::{CommitPipeline, Committer};
use super::delivery::DeliveryQueue;
use super::renewing::session_length;
use super::stats::Stats;
use super::visit::Visitor;
use super::{
    Handle, Idle, Input, Observer, OnAnswer, OnClaimed, OnDelivered, OnRest, Reporter, Setup,
    Worker,
};
use crate::coordinator::{Coordinator, Handoff, Retry, SharedParts, Ticket};
use crate::error::Error;
use crate::number_map::NumberMap;
use crate::port::Clock;
use crate::shard::Shard;
use crate::store::{Batch, Delivered, OutsideEvent, StoreError, StoreErrorKind, TaskRow};

/// How long the loop sleeps at most before it looks around.
const LONGEST_NAP: Duration = Duration::from_millis(250);
/// How often the same failure with the store is logged.
const COMPLAIN_MS: u64 = 60_000;
/// How long a batch that failed waits before it is sent again, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// How many inputs are taken before the clock is looked at again.
const MAX_INPUTS: usize = 8_192;
/// How many inputs are taken before an idle committer is given a batch.
const SHARE: usize = 64;
/// A stop that was asked for.
pub(super) struct Stopping {
    /// How long work in flight may take.
    pub(super) until: Instant,
    /// The worker was told to stop.
    pub(super) told: bool,
    pub(super) answer: Sender<Result<(), StoreError>>,
}

/// What comes after a turn of the loop.
pub(super) enum Turn {
    /// This input is there.
    Take(Input),
    /// There is nothing to do for so long, unless an input comes.
    Wait(Duration),
    /// The loop has stopped, as was asked.
    Ended,
}

/// What one shard of an engine gets beside the setup.
pub(super) struct ShardSetup {
    pub(super) shard: Shard,
    pub(super) shared: Arc<SharedParts>,
    pub(super) handle: Handle,
    pub(super) inputs: Receiver<Input>,
    pub(super) committers: Vec<Committer>,
    pub(super) stats: Arc<Stats>,
}

impl ShardSetup {
    /// All shards of an engine. Without a pipeline each loop commits on its own thread.
    pub(super) fn all(
        shards: &[Shard],
        handle: &Handle,
        inputs: Vec<Receiver<Input>>,
        pipeline: Option<&CommitPipeline>,
        stats: &Arc<Stats>,
    ) -> Vec<ShardSetup> {
        let shared = Arc::new(SharedParts::with_seats(handle.seats()));
        let part = |(shard, inputs): (&Shard, _)| ShardSetup {
            shard: *shard,
            shared: shared.clone(),
            handle: handle.clone(),
            inputs,
            committers: pipeline
                .map_or_else(Vec::new, |it| it.committers(handle.inbox(shard.index()))),
            stats: stats.clone(),
        };
        shards.iter().zip(inputs).map(part).collect()
    }

    /// The only shard of an engine, which commits on the loop's own thread.
    pub(super) fn of_all(handle: Handle, inputs: Receiver<Input>) -> ShardSetup {
        ShardSetup {
            shard: Shard::ALL,
            shared: Arc::new(SharedParts::with_seats(handle.seats())),
            handle,
            inputs,
            committers: Vec::new(),
            stats: Arc::default(),
        }
    }
}

/// The loop and what it needs.
pub(crate) struct ServiceLoop<W> {
    pub(super) coordinator: Coordinator,
    /// The steady time just before the session was opened.
    pub(super) opened_at: Time,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) worker: W,
    pub(super) observer: Box<dyn Observer>,
    pub(super) reporter: Reporter,
    /// Where the answers of the store go.
    pub(super) inbox: Sender<Input>,
    pub(super) inputs: Receiver<Input>,
    /// Without any, batches are committed on the loop's own thread.
    pub(super) committers: Vec<Committer>,
    pub(super) deliveries: DeliveryQueue,
    pub(super) tickets: u64,
    pub(super) answers: NumberMap<Ticket, OnAnswer>,
    pub(super) flushes: Vec<OnRest>,
    /// Those who wait to look at a run.
    pub(super) visitors: Vec<Visitor>,
    pub(super) stopping: Option<Stopping>,
    pub(super) backoff: Duration,
    /// Batches that the store did not take, with when to send them again.
    pub(super) again: Vec<(Time, Box<Batch>)>,
    /// The next batch, formed while the committers are busy.
    pub(super) next: Option<Box<Batch>>,
    /// A batch that is committed on this thread.
    pub(super) alone: Option<Box<Batch>>,
    /// Something has happened since the observer was last told that the loop is at rest.
    pub(super) moved: bool,
    /// How many commits had events in them.
    pub(super) changes: u64,
    pub(super) stats: Arc<Stats>,
    /// What kept the store from being asked, and when that was logged last.
    pub(super) complained: Option<(StoreErrorKind, Time)>,
}

impl<W: Worker> ServiceLoop<W> {
    pub(super) fn new(setup: Setup<W>, part: ShardSetup) -> Result<ServiceLoop<W>, StoreError> {
        let (opened_at, now) = (setup.clock.steady(), setup.clock.now());
        let deliveries = DeliveryQueue::new(setup.store.clone(), setup.clock.clone());
        let shard = (part.shard, part.shared);
        let (store, catalog, mut config) = (setup.store, setup.catalog, setup.config);
        config.session_ms = session_length(&*store, config.session_ms);
        let coordinator = Coordinator::open_shard(store, catalog, config, shard, now)?;
        Ok(ServiceLoop {
            coordinator,
            opened_at,
            clock: setup.clock,
            worker: setup.worker,
            observer: setup.observer,
            inbox: part.handle.inbox(part.shard.index()).clone(),
            reporter: Reporter::new(part.handle),
            inputs: part.inputs,
            committers: part.committers,
            deliveries,
            tickets: 0,
            answers: NumberMap::default(),
            flushes: Vec::new(),
            visitors: Vec::new(),
            stopping: None,
            backoff: BACKOFF.0,
            again: Vec::new(),
            next: None,
            alone: None,
            moved: true,
            changes: 0,
            stats: part.stats,
            complained: None,
        })
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

    pub(super) fn run(self) {
        match self.clock.is_virtual() {
            true => self.run_virtual(),
            false => self.run_real(),
        }
    }

    fn run_real(mut self) {
        loop {
            let first = match self.turn() {
                Turn::Take(input) => Some(input),
                Turn::Wait(nap) => self.inputs.recv_timeout(nap).ok(),
                Turn::Ended => return,
            };
            self.take_waiting(first);
        }
    }

    /// Logs that the store cannot be asked: at once, and the same again once in a while.
    fn complain(&mut self, error: &StoreError, now: Time) {
        let is_known = |&(kind, at): &(StoreErrorKind, Time)| {
            kind == error.kind && now.since(at) < COMPLAIN_MS
        };
        if !self.complained.as_ref().is_some_and(is_known) {
            tracing::warn!(%error, "the store could not be asked; it is asked again");
            self.complained = Some((error.kind, now));
        }
    }

    /// One turn: does what is due, and gives the actors what there is for them. The inputs come next.
    pub(super) fn turn(&mut self) -> Turn {
        let now = self.clock.now();
        if now >= self.coordinator.next_tick()
            && let Err(error) = self.coordinator.tick(now)
        {
            self.complain(&error, now);
            self.store_failed(&error);
            // Asked again after a while, not at once.
            self.coordinator.rest(now);
        }
        self.pass_on();
        self.tick_worker(now);
        self.deliveries.send(&self.inbox);
        self.send_batches(true, now);
        self.prepare(now);
        self.serve_visitors();
        self.stats
            .in_flight
            .store(self.coordinator.busy(), Ordering::SeqCst);
        if self.is_done() {
            return Turn::Ended;
        }
        match self.inputs.try_recv() {
            Ok(input) => Turn::Take(input),
            Err(_) => Turn::Wait(self.nap()),
        }
    }

    /// Takes an input and those that wait behind it, until it is time for something else.
    pub(super) fn take_waiting(&mut self, first: Option<Input>) {
        let now = self.clock.now();
        let mut next = first;
        let mut taken = 0;
        while let Some(input) = next {
            self.take(input, now);
            taken += 1;
            // A committer that has nothing to do gets what there is: the next batch forms meanwhile.
            if taken % SHARE == 0 {
                self.deliveries.send(&self.inbox);
                self.send_batches(false, now);
                // Whatever comes in, timers fire in time.
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

    pub(super) fn tick_worker(&mut self, now: Time) -> bool {
        let is_due = self.worker.next_due().is_some_and(|due| due <= now);
        if is_due {
            self.worker.tick(now, &self.reporter);
            self.moved = true;
        }
        is_due
    }

    /// How long there is nothing to do unless an input comes.
    fn nap(&mut self) -> Duration {
        let now = self.clock.now();
        let retry = self.again.iter().map(|(at, _)| *at);
        let due = retry.chain(self.worker.next_due());
        let until = due.fold(self.coordinator.next_tick(), Time::min);
        let nap = Duration::from_millis(until.since(now)).min(LONGEST_NAP);
        let committing = self.committers.iter().any(|it| it.busy) || self.next.is_some();
        let flying = committing || !self.deliveries.is_empty();
        let is_busy = flying || !self.again.is_empty() || self.coordinator.is_pressed();
        if !nap.is_zero() && !is_busy {
            self.rest();
        }
        nap
    }

    /// Nothing is left to do for now.
    pub(super) fn rest(&mut self) {
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
        for on_rest in std::mem::take(&mut self.flushes) {
            on_rest();
        }
    }

    pub(crate) fn take(&mut self, input: Input, now: Time) {
        let Some(input) = self.route(input) else {
            return;
        };
        self.moved = true;
        match input {
            Input::Submit(run_id, command, on_answer) => {
                let ticket = self.ticket(on_answer);
                self.coordinator.submit(&run_id, *command, ticket, now);
            }
            Input::Together(run_id, both, on_answer) => {
                let ticket = self.ticket(on_answer);
                let (claim, result) = *both;
                self.coordinator
                    .submit_together(&run_id, claim, result, ticket, now);
            }
            Input::Guarded(run_id, command, guard, on_answer) => {
                let ticket = self.ticket(on_answer);
                self.coordinator
                    .submit_guarded(&run_id, *command, guard, ticket, now);
            }
            Input::ClaimTask(task, lease_until, on_claimed) => {
                self.claim_task(*task, lease_until, on_claimed, now);
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
                        self.stats.count(&batch, now);
                        self.coordinator.committed(&batch, results, now);
                    }
                    Err(error) => self.failed(batch, &error, now),
                }
            }
            Input::Deliver(event, on_delivered) => self.deliveries.push(*event, on_delivered),
            Input::Delivered(events, answer) => self.delivered(events, answer),
            Input::Look => self.coordinator.look(),
            Input::Visit(visit) => self.take_visit(visit, now),
            Input::Handoff(handoff) => self.coordinator.take_handoff(handoff, now),
            Input::Recover(run_id, answer) => {
                self.coordinator.work_on(&run_id);
                let _ = answer.send(self.recover(&run_id, now));
            }
            Input::CatchUp(run_id) => {
                if let Err(error) = self.catch_up(&run_id, now) {
                    tracing::warn!(%error, run = run_id, "a run could not be read again yet");
                }
            }
            Input::Flush(on_rest) => self.flushes.push(on_rest),
            Input::Advance(time) => self.advance(time),
            Input::Stop(grace, answer) => {
                self.coordinator.stop();
                // Asked again: only the time changes, and not once the worker was told.
                let told = self
                    .stopping
                    .as_ref()
                    .filter(|it| it.told)
                    .map(|it| it.until);
                self.stopping = Some(Stopping {
                    until: told.unwrap_or_else(|| later(grace)),
                    told: told.is_some(),
                    answer,
                });
            }
        }
        self.pass_on();
    }

    /// A worker outside takes a task that is reserved for it.
    fn claim_task(&mut self, task: TaskRow, until: Time, on_claimed: OnClaimed, now: Time) {
        let (claim, given) = match self.coordinator.reserved_for_outside(&task, until) {
            Ok(found) => found,
            Err(error) => return on_claimed(Err(error)),
        };
        let (run_id, guard) = (given.run_id.clone(), given.guard.clone());
        let ticket = self.ticket(Box::new(move |answer| {
            on_claimed(answer.and_then(|reply| given.assignment(reply)));
        }));
        match guard {
            Some(guard) => {
                let coordinator = &mut self.coordinator;
                coordinator.submit_guarded(&run_id, claim, guard, ticket, now);
            }
            None => self.coordinator.submit(&run_id, claim, ticket, now),
        }
    }

    /// Passes on what is for a run of another shard; gives back what is for this one. A run that cannot be found is
    /// refused here.
    fn route(&self, input: Input) -> Option<Input> {
        let shard = self.coordinator.shard();
        let run_id = match &input {
            _ if shard.is_all() => return Some(input),
            Input::Submit(run_id, ..)
            | Input::Together(run_id, ..)
            | Input::Recover(run_id, _)
            | Input::CatchUp(run_id) => run_id,
            Input::Visit(visit) => match visit.run_id() {
                Some(run_id) => run_id,
                None => return Some(input),
            },
            // These are sent to the shard that they are for.
            Input::Start { .. }
            | Input::Guarded(..)
            | Input::ClaimTask(..)
            | Input::Finished { .. }
            | Input::MissingChildEnded(..)
            | Input::Committed(..)
            | Input::Deliver(..)
            | Input::Delivered(..)
            | Input::Look
            | Input::Handoff(_)
            | Input::Flush(_)
            | Input::Advance(_)
            | Input::Stop(..) => return Some(input),
        };
        match self.coordinator.number_of(run_id) {
            Ok(run) if !shard.has(run) => {
                self.reporter.handle().pass_to_run(run, input);
                None
            }
            _ => Some(input),
        }
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
                let shard = self.coordinator.shard();
                if !shard.is_all() {
                    self.reporter.handle().hand_off(shard, Handoff::Mailed);
                }
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

    /// A store that is gone takes no result any more: its work is ended, nothing is begun, and senders are told. Any
    /// other fault may pass, and work in flight goes on.
    fn store_failed(&mut self, error: &StoreError) {
        if error.kind == StoreErrorKind::Gone {
            self.coordinator.term().lose();
            if let Some(work) = self.worker.lost_work() {
                let shard = self.coordinator.shard();
                work.end(&|run| shard.has(run));
            }
            for (_, on_answer) in self.answers.drain() {
                on_answer(Err(error.clone().into()));
            }
        }
        self.observer.store_failed(error);
    }

    fn failed(&mut self, batch: Box<Batch>, error: &StoreError, now: Time) {
        tracing::warn!(%error, appends = batch.appends.len(), "a commit failed");
        self.store_failed(error);
        if self.coordinator.failed(&batch, error, now) == Retry::Same {
            let at = now.plus(self.backoff.as_millis() as u64);
            self.again.push((at, batch));
            self.backoff = (self.backoff * 2).min(BACKOFF.1);
        }
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
            let Some(mut batch) = batch else { break };
            // It may have waited for the store, or behind another one that did.
            self.coordinator.restamp(&mut batch, now);
            let idle = self.committers.iter().all(|it| !it.busy);
            let sole = self.committers.len() == 1 && self.coordinator.shard().is_all();
            if idle && quiet && sole && batch.appends.len() == 1 {
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

    /// Whether a stop that was asked for is done. Runs are given back only when their work has ended, or
    /// has had its time to: another server begins with them at once.
    pub(super) fn is_done(&mut self) -> bool {
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

    pub(super) fn ticket(&mut self, on_answer: OnAnswer) -> Ticket {
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
