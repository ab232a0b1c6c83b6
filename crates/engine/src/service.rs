//! The engine that runs by itself: one thread decides, one or more commit, and while a commit is on
//! its way to the disk the next batch forms. Thousands of runs share each sync.
//!
//! ```text
//! handles ──► inbox ──► coordinator thread ──► batches ──► committers ──► store
//!                 ▲            │                            │
//!                 └── results ─┴─► worker (does the work)   └── answers ──► inbox
//! ```

mod committer;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::effect::{RunOutcome, Target};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use crate::clock::SystemClock;
use crate::coordinator::{Answer, Assignment, Config, Coordinator, Notice, Retry, Ticket};
use crate::error::Error;
use crate::port::{Catalog, Clock};
use crate::start::StartRequest;
use crate::store::{AppendResult, Batch, NewAlert, RunNo, Store, StoreError};
use committer::Committer;
pub use committer::Stats;

/// How long the coordinator sleeps at most before it looks around.
const LONGEST_NAP: Duration = Duration::from_millis(250);
/// How long a committer waits before it sends a batch again, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// How many inputs are taken before the clock is looked at again.
const MAX_INPUTS: usize = 8_192;
/// How many inputs are taken before an idle committer is given a batch.
const SHARE: usize = 64;

/// Does the work whose claims are committed, and is told what else happens. Called on the coordinator's
/// thread: whatever takes time belongs elsewhere.
pub trait Worker: Send {
    /// Do this, and send what became of it with `done`.
    fn start(&mut self, job: Assignment, done: &Done);

    /// This work is no longer wanted.
    fn stop(&mut self, run: RunNo, target: Target, execution: u32) {
        let _ = (run, target, execution);
    }

    /// None of its work is wanted any longer: the engine stops. Says how long the work may take to
    /// end. Its results still count; when the time is over it is given to others, ended or not.
    fn stop_all(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Something else happened.
    fn heard(&mut self, news: &News) {
        let _ = news;
    }
}

/// What a worker hears beside its work.
#[derive(Clone, Debug)]
pub enum News {
    /// Events were committed.
    Changed(RunNo, u64),
    /// A run has ended.
    Ended(RunNo, Arc<str>, RunOutcome),
    /// An alert was raised.
    Alert(RunNo, NewAlert),
}

/// Where a worker sends what became of its work.
#[derive(Clone, Debug)]
pub struct Done {
    inbox: Sender<Input>,
}

impl Done {
    /// This became of it.
    pub fn send(&self, job: &Assignment, command: Command) {
        let claim = &job.claimed.claim;
        // With nobody there to hear it the work's lease ends by itself.
        let _ = self.inbox.send(Input::Finished {
            run: job.run,
            target: claim.target,
            execution: claim.execution,
            command: Box::new(command),
        });
    }
}

enum Input {
    Submit(String, Box<Command>, Sender<Result<Reply, Error>>),
    Start(
        Box<(Arc<Plan>, StartRequest)>,
        Sender<Result<String, Error>>,
    ),
    Finished {
        run: RunNo,
        target: Target,
        execution: u32,
        command: Box<Command>,
    },
    /// From which committer, for which batch.
    Committed(usize, Box<Batch>, Result<Vec<AppendResult>, StoreError>),
    Look,
    Stop(Duration, Sender<Result<(), StoreError>>),
}

/// A way to talk to a running engine.
#[derive(Clone, Debug)]
pub struct Handle {
    inbox: Sender<Input>,
}

impl Handle {
    /// Sends a command and waits for the answer, which comes after the commit.
    pub fn submit(&self, run_id: &str, command: Command) -> Result<Reply, Error> {
        let (answer, answered) = mpsc::channel();
        let input = Input::Submit(run_id.to_owned(), Box::new(command), answer);
        self.inbox.send(input).map_err(|_| Error::Stopping)?;
        answered.recv().unwrap_or(Err(Error::Stopping))
    }

    /// Starts a run and waits until that is committed.
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
        let (answer, answered) = mpsc::channel();
        let input = Input::Start(Box::new((plan.clone(), request)), answer);
        self.inbox.send(input).map_err(|_| Error::Stopping)?;
        Ok(answered)
    }

    /// Something may have changed in the store.
    pub fn look(&self) {
        let _ = self.inbox.send(Input::Look);
    }
}

/// An engine that runs by itself.
#[derive(Debug)]
pub struct Service {
    inbox: Sender<Input>,
    stats: Arc<Stats>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts an engine over a store.
    pub fn start(
        store: Arc<dyn Store>,
        catalog: impl Catalog + Send + 'static,
        config: Config,
        worker: impl Worker + 'static,
    ) -> Result<Service, StoreError> {
        let coordinator =
            Coordinator::open(store.clone(), Box::new(catalog), config, SystemClock.now())?;
        let (inbox, inputs) = mpsc::channel();
        let committers = (0..store.committers().max(1))
            .map(|index| Committer::start(index, store.clone(), inbox.clone()))
            .collect();
        let stats = Arc::new(Stats::default());
        let desk = Desk {
            coordinator,
            worker: Box::new(worker),
            done: Done {
                inbox: inbox.clone(),
            },
            committers,
            tickets: 0,
            submits: HashMap::new(),
            starts: HashMap::new(),
            stopping: None,
            backoff: BACKOFF.0,
            next: None,
            alone: None,
            stats: stats.clone(),
        };
        let thread = thread::Builder::new()
            .name("stepwell-decide".into())
            .spawn(move || desk.run(&inputs))
            .map_err(|error| StoreError::new(crate::store::StoreErrorKind::Unusable, error))?;
        Ok(Service {
            inbox,
            stats,
            thread: Some(thread),
        })
    }

    /// A way to talk to it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle {
            inbox: self.inbox.clone(),
        }
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
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
        let _ = self.inbox.send(Input::Stop(grace, answer));
        let result = answered.recv().unwrap_or(Ok(()));
        let _ = thread.join();
        result
    }
}

/// Whoever lets go of it without a word gets a stop without grace: nobody could reach it any more.
impl Drop for Service {
    fn drop(&mut self) {
        if let Err(error) = self.end(Duration::ZERO) {
            tracing::warn!(%error, "the session could not be closed; it ends by itself");
        }
    }
}

/// A stop that was asked for.
struct Stopping {
    /// How long what is under way may take.
    until: Time,
    /// The worker was told to stop.
    told: bool,
    answer: Sender<Result<(), StoreError>>,
}

/// What the coordinator's thread has before it.
struct Desk {
    coordinator: Coordinator,
    worker: Box<dyn Worker>,
    done: Done,
    committers: Vec<Committer>,
    tickets: u64,
    submits: HashMap<Ticket, Sender<Result<Reply, Error>>>,
    starts: HashMap<Ticket, Sender<Result<String, Error>>>,
    stopping: Option<Stopping>,
    backoff: Duration,
    /// The next batch, formed while the committers are busy.
    next: Option<Box<Batch>>,
    /// A batch that is committed on this thread.
    alone: Option<Box<Batch>>,
    stats: Arc<Stats>,
}

impl Desk {
    fn run(mut self, inputs: &Receiver<Input>) {
        // Batches that the store did not take, with when to send them again.
        let mut again: Vec<(Time, Box<Batch>)> = Vec::new();
        loop {
            let now = SystemClock.now();
            if now >= self.coordinator.next_tick()
                && let Err(error) = self.coordinator.tick(now)
            {
                tracing::warn!(%error, "the store could not be asked");
                // Asked again after a while, not at once.
                self.coordinator.rest(now);
            }
            self.speak();
            self.send_batches(&mut again, true, now);
            self.prepare(&mut again, now);
            if self.is_done(again.is_empty() && self.next.is_none(), now) {
                return;
            }
            let Some(first) = self.wait(inputs, &again) else {
                return;
            };
            let now = SystemClock.now();
            let mut taken = 0;
            let mut next = first;
            while let Some(input) = next {
                self.take(input, &mut again, now);
                taken += 1;
                // A committer that has nothing to do gets what there is: the next batch forms meanwhile.
                if taken % SHARE == 0 {
                    self.send_batches(&mut again, false, now);
                    // Whatever comes in, the session is renewed in time.
                    if SystemClock.now().since(now) > LONGEST_NAP.as_millis() as u64 / 5 {
                        break;
                    }
                }
                next = match taken < MAX_INPUTS {
                    true => inputs.try_recv().ok(),
                    false => None,
                };
            }
        }
    }

    /// The next input, or nothing once it is time for something else; `None` if all are gone.
    #[allow(
        clippy::option_option,
        reason = "gone and nothing yet are different answers"
    )]
    fn wait(
        &self,
        inputs: &Receiver<Input>,
        again: &[(Time, Box<Batch>)],
    ) -> Option<Option<Input>> {
        let now = SystemClock.now();
        let retry = again.iter().map(|(at, _)| *at).min();
        let until = retry.map_or(self.coordinator.next_tick(), |at| {
            at.min(self.coordinator.next_tick())
        });
        let nap = Duration::from_millis(until.since(now)).min(LONGEST_NAP);
        if nap.is_zero() {
            return Some(inputs.try_recv().ok());
        }
        match inputs.recv_timeout(nap) {
            Ok(input) => Some(Some(input)),
            Err(RecvTimeoutError::Timeout) => Some(None),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    fn take(&mut self, input: Input, again: &mut Vec<(Time, Box<Batch>)>, now: Time) {
        match input {
            Input::Submit(run_id, command, answer) => {
                let ticket = self.ticket();
                self.submits.insert(ticket, answer);
                self.coordinator.submit(&run_id, *command, ticket, now);
            }
            Input::Start(start, answer) => {
                let (plan, request) = *start;
                let ticket = self.ticket();
                self.starts.insert(ticket, answer);
                self.coordinator.start(&plan, request, true, ticket, now);
            }
            Input::Finished {
                run,
                target,
                execution,
                command,
            } => self
                .coordinator
                .finished(run, target, execution, *command, now),
            Input::Committed(index, batch, answer) => {
                if let Some(committer) = self.committers.get_mut(index) {
                    committer.busy = false;
                }
                match answer {
                    Ok(outcomes) => {
                        self.backoff = BACKOFF.0;
                        self.stats.count(&batch);
                        self.coordinator.committed(&batch, outcomes, now);
                    }
                    Err(error) => self.failed(batch, &error, again, now),
                }
            }
            Input::Look => self.coordinator.look(),
            Input::Stop(grace, answer) => {
                self.coordinator.stop();
                self.stopping = Some(Stopping {
                    until: after(now, grace),
                    told: false,
                    answer,
                });
            }
        }
        self.speak();
    }

    fn failed(
        &mut self,
        batch: Box<Batch>,
        error: &StoreError,
        again: &mut Vec<(Time, Box<Batch>)>,
        now: Time,
    ) {
        tracing::warn!(%error, appends = batch.appends.len(), "a commit failed");
        if self.coordinator.failed(&batch, error, now) == Retry::Same {
            again.push((now.plus(self.backoff.as_millis() as u64), batch));
            self.backoff = (self.backoff * 2).min(BACKOFF.1);
        }
    }

    /// Gives idle committers something to do; `quiet` if nothing else waits to be taken.
    fn send_batches(&mut self, again: &mut Vec<(Time, Box<Batch>)>, quiet: bool, now: Time) {
        for committer in 0..self.committers.len() {
            if self.committers[committer].busy {
                continue;
            }
            let due = again.iter().position(|(at, _)| *at <= now);
            let batch = match due {
                Some(index) => Some(again.swap_remove(index).1),
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
    fn prepare(&mut self, again: &mut Vec<(Time, Box<Batch>)>, now: Time) {
        if self.next.is_none() && self.committers.iter().all(|it| it.busy) {
            self.next = self.coordinator.next_batch(now).map(Box::new);
        }
        while let Some(batch) = self.alone.take() {
            let answer = self.coordinator.store().commit(&batch);
            self.take(
                Input::Committed(usize::MAX, batch, answer),
                again,
                SystemClock.now(),
            );
        }
    }

    /// Passes on what the coordinator has to say.
    fn speak(&mut self) {
        let notices: Vec<Notice> = self.coordinator.notices().collect();
        for notice in notices {
            match notice {
                Notice::Answer(ticket, answer) => {
                    if let Some(sender) = self.submits.remove(&ticket) {
                        let _ = sender.send(answer.map(|answer| match answer {
                            Answer::Reply(reply) => reply,
                            Answer::Run(_) => Reply::Done,
                        }));
                    } else if let Some(sender) = self.starts.remove(&ticket) {
                        let _ = sender.send(answer.and_then(|answer| match answer {
                            Answer::Run(run_id) => Ok(run_id),
                            Answer::Reply(_) => Err(Error::Stopping),
                        }));
                    }
                }
                Notice::Start(job) => self.begin(*job),
                Notice::Stop {
                    run,
                    target,
                    execution,
                } => self.worker.stop(run, target, execution),
                Notice::Changed { run, seq } => self.worker.heard(&News::Changed(run, seq)),
                Notice::Ended(run, run_id, outcome) => {
                    self.worker.heard(&News::Ended(run, run_id, outcome));
                }
                Notice::Alert(run, alert) => {
                    tracing::warn!(run = run.0, code = alert.code, priority = ?alert.priority, "{}", alert.message);
                    self.worker.heard(&News::Alert(run, alert));
                }
                // Tokens are given out by whoever asks for them; events go out through the outbox.
                Notice::Offer { .. }
                | Notice::Person { .. }
                | Notice::MissingChild { .. }
                | Notice::Published(..) => {}
            }
        }
    }

    /// Whether a stop that was asked for is done; `sent` if no batch waits to be sent again. Runs are
    /// given back only when their work has ended, or has had its time to: another server begins with
    /// them at once.
    fn is_done(&mut self, sent: bool, now: Time) -> bool {
        let Some(stopping) = &mut self.stopping else {
            return false;
        };
        let flying = !sent || self.committers.iter().any(|committer| committer.busy);
        let idle = !flying && self.coordinator.busy() == 0;
        if !idle && now >= stopping.until && !stopping.told {
            stopping.told = true;
            stopping.until = after(now, self.worker.stop_all());
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
    fn begin(&mut self, job: Assignment) {
        let claim = &job.claimed.claim;
        let (run, target, execution) = (job.run, claim.target, claim.execution);
        self.worker.start(job, &self.done);
        if self.stopping.as_ref().is_some_and(|it| it.told) {
            self.worker.stop(run, target, execution);
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }
}

fn after(now: Time, length: Duration) -> Time {
    now.plus(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
}
