//! The handle of an engine: starts runs, sends commands and events, waits for rest, from any thread. Each message goes to the
//! inbox of the loop that has its run.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::time::Time;

use super::{Answered, ExternalEvent, Input, OnRest};
use crate::coordinator::{Assignment, Handoff};
use crate::error::Error;
use crate::seats::Seats;
use crate::shard::Shard;
use crate::start::StartRequest;
use crate::store::{Delivered, Guard, RunNo, TaskRow};

/// Talks to a running engine, from any thread.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The inbox of each shard.
    pub(super) inboxes: Arc<[Sender<Input>]>,
    /// How many inputs shards have sent to each other.
    pub(super) handed: Arc<AtomicU64>,
    /// Workers in other processes that wait for work.
    seats: Arc<Seats>,
}

impl Handle {
    /// A handle for so many shards, with what each of them receives.
    pub(crate) fn new(shards: usize) -> (Handle, Vec<mpsc::Receiver<Input>>) {
        let (inboxes, inputs): (Vec<_>, Vec<_>) = (0..shards).map(|_| mpsc::channel()).unzip();
        let handle = Handle {
            inboxes: inboxes.into(),
            handed: Arc::default(),
            seats: Arc::default(),
        };
        (handle, inputs)
    }

    /// The workers in other processes that wait for work of this engine.
    pub(crate) fn seats(&self) -> &Arc<Seats> {
        &self.seats
    }

    /// The inbox of a shard.
    pub(super) fn inbox(&self, shard: usize) -> &Sender<Input> {
        &self.inboxes[shard % self.inboxes.len()]
    }

    /// Sends what is for a run of this id.
    pub(super) fn send_to_id(&self, run_id: &str, input: Input) -> Result<(), Error> {
        let shard = Shard::of_id(run_id, self.inboxes.len());
        self.inbox(shard).send(input).map_err(|_| Error::Stopping)
    }

    /// Sends what is for a run. An engine that is gone hears nothing, and needs to hear nothing.
    pub(crate) fn send_to_run(&self, run: RunNo, input: Input) {
        let shard = Shard::of_run(run, self.inboxes.len());
        let _ = self.inbox(shard).send(input);
    }

    /// Sends an input from one shard to the shard of a run.
    pub(super) fn pass_to_run(&self, run: RunNo, input: Input) {
        self.handed.fetch_add(1, Ordering::SeqCst);
        self.send_to_run(run, input);
    }

    /// Sends an input from one shard to all others.
    fn pass_to_others(&self, from: Shard, input: impl Fn() -> Input) {
        self.handed.fetch_add(1, Ordering::SeqCst);
        for (shard, inbox) in self.inboxes.iter().enumerate() {
            if shard != from.index() {
                let _ = inbox.send(input());
            }
        }
    }

    /// Passes on what one shard found for others.
    pub(super) fn hand_off(&self, from: Shard, handoff: Handoff) {
        let run = match &handoff {
            Handoff::Due(run) | Handoff::Queued(run) => *run,
            Handoff::Reserved(task) => task.run,
            Handoff::Mailed | Handoff::Room => {
                return self.pass_to_others(from, || Input::Handoff(handoff.clone()));
            }
        };
        self.pass_to_run(run, Input::Handoff(handoff));
    }

    /// Sends a command and waits for the answer, which comes after the commit.
    pub fn submit(&self, run_id: &str, command: Command) -> Result<Reply, Error> {
        let (answer, answered) = oneshot::channel();
        self.submit_with(run_id, command, move |reply| drop(answer.send(reply)))?;
        answered.recv().unwrap_or(Err(Error::Stopping))
    }

    /// Sends a command; `on_answer` is called on the engine's thread after the commit.
    pub fn submit_with(
        &self,
        run_id: &str,
        command: Command,
        on_answer: impl FnOnce(Result<Reply, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        let input = Input::Submit(run_id.to_owned(), Box::new(command), Box::new(on_answer));
        self.send_to_id(run_id, input)
    }

    /// Sends a claim and the result of its work, for one commit; the answer is that of the result. For work that was begun while
    /// the store was away (`Config::driven`). `on_answer` is called on the engine's thread after the commit.
    pub fn submit_together(
        &self,
        run_id: &str,
        (claim, result): (Command, Command),
        on_answer: impl FnOnce(Result<Reply, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        let both = Box::new((claim, result));
        let input = Input::Together(run_id.to_owned(), both, Box::new(on_answer));
        self.send_to_id(run_id, input)
    }

    /// A command of a worker outside, which counts only if `guard` holds when the command is committed; `on_answer` is
    /// called on the engine's thread after the commit.
    pub fn submit_guarded(
        &self,
        (run, run_id): (RunNo, &str),
        command: Command,
        guard: Guard,
        on_answer: impl FnOnce(Result<Reply, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        let (run_id, command) = (run_id.to_owned(), Box::new(command));
        let input = Input::Guarded(run_id, command, guard, Box::new(on_answer));
        let shard = Shard::of_run(run, self.inboxes.len());
        self.inbox(shard).send(input).map_err(|_| Error::Stopping)
    }

    /// A worker outside takes a task that is reserved for it; `on_claimed` is called on the engine's thread once the claim
    /// is committed.
    pub(crate) fn claim_task(
        &self,
        task: TaskRow,
        lease_until: Time,
        on_claimed: impl FnOnce(Result<Assignment, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        let shard = Shard::of_run(task.run, self.inboxes.len());
        let input = Input::ClaimTask(Box::new(task), lease_until, Box::new(on_claimed));
        self.inbox(shard).send(input).map_err(|_| Error::Stopping)
    }

    /// Starts a run and waits until its start is committed. Two requests with the same request id are
    /// one run, whose id both get.
    pub fn start(&self, plan: &Arc<Plan>, request: StartRequest) -> Result<String, Error> {
        let answered = self.start_later(plan, request)?;
        answered.recv().unwrap_or(Err(Error::Stopping))
    }

    /// Starts a run; the answer comes later: it can be awaited, or waited for.
    pub fn start_later(
        &self,
        plan: &Arc<Plan>,
        request: StartRequest,
    ) -> Result<Answered<String>, Error> {
        self.create_later(plan, request, true)
    }

    /// Creates a run; with `enqueue` it starts when a slot is free.
    pub(crate) fn create_later(
        &self,
        plan: &Arc<Plan>,
        request: StartRequest,
        enqueue: bool,
    ) -> Result<Answered<String>, Error> {
        let (answer, answered) = oneshot::channel();
        let run_id = request.run_id.clone();
        let new_run = run_id.clone();
        let on_answer = move |started: Result<Reply, Error>| {
            // A start that is not refused is answered by the id of the run, which may be an earlier one.
            drop(answer.send(started.map(|started| {
                if let Reply::Created { run_id } = started {
                    return run_id;
                }
                run_id
            })));
        };
        let input = Input::Start {
            plan: plan.clone(),
            request: Box::new(request),
            enqueue,
            on_answer: Box::new(on_answer),
        };
        self.send_to_id(&new_run, input)?;
        Ok(answered)
    }

    /// Delivers an event that is not addressed to a run: the run that has waited longest for its type and
    /// key gets the event, or the store keeps the event until a step waits for it. The same id counts
    /// once. Events that arrive while others are on their way to the disk share the next transaction.
    pub fn deliver(&self, event: ExternalEvent) -> Result<Delivered, Error> {
        let (answer, answered) = oneshot::channel();
        self.deliver_with(event, move |delivered| drop(answer.send(delivered)))?;
        answered.recv().unwrap_or(Err(Error::Stopping))
    }

    /// Delivers an event; `on_delivered` is called on the engine's thread once the event is on the disk.
    pub fn deliver_with(
        &self,
        event: ExternalEvent,
        on_delivered: impl FnOnce(Result<Delivered, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        Command::check_event(&event.id, &event.event_type)?;
        if event.key.contains('\0') {
            // Not every database can keep it.
            let why = "the key of an event has no NUL character";
            return Err(Rejection::new(Code::InvalidId, why).into());
        }
        let input = Input::Deliver(Box::new(event.into()), Box::new(on_delivered));
        // One shard takes them all to the store, so that they share transactions.
        self.inbox(0).send(input).map_err(|_| Error::Stopping)
    }

    /// Says that something may have changed in the store: messages and queued runs are looked for.
    pub fn look(&self) {
        for inbox in &*self.inboxes {
            let _ = inbox.send(Input::Look);
        }
    }

    /// Reads a run that is in the store and sees to everything that it needs, unless this engine has the
    /// run already. An engine that works on some runs only works on this one too from now on.
    pub fn recover(&self, run_id: &str) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        self.send_to_id(run_id, Input::Recover(run_id.to_owned(), answer))?;
        answered.recv().unwrap_or(Err(Error::Stopping))
    }

    /// Reads a run again if other processes have moved it. For engines that work on a few runs of a
    /// store that many processes share.
    pub fn catch_up(&self, run_id: &str) {
        // An engine that is gone needs to read nothing.
        let _ = self.send_to_id(run_id, Input::CatchUp(run_id.to_owned()));
    }

    /// Waits until the engine is at rest: everything that follows from earlier commands is committed.
    /// Returns `false` if the engine is not at rest after `patience`, as when the store is down.
    pub fn flush(&self, patience: Duration) -> Result<bool, Error> {
        let (answer, answered) = oneshot::channel();
        self.flush_with(move || {
            let _ = answer.send(());
        })?;
        match answered.recv_timeout(patience) {
            Ok(()) => Ok(true),
            Err(oneshot::RecvTimeoutError::Timeout) => Ok(false),
            Err(oneshot::RecvTimeoutError::Disconnected) => Err(Error::Stopping),
        }
    }

    /// Calls `on_rest` on the engine's thread once the engine is at rest, right after the observer was told
    /// so.
    pub fn flush_with(&self, on_rest: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        self.flush_all(Box::new(on_rest))
    }

    /// Waits until every shard is at rest, and once more if one of them sent something to another meanwhile.
    fn flush_all(&self, on_rest: OnRest) -> Result<(), Error> {
        let before = self.handed.load(Ordering::SeqCst);
        let left = Arc::new(AtomicUsize::new(self.inboxes.len()));
        let on_rest = Arc::new(Mutex::new(Some(on_rest)));
        for inbox in &*self.inboxes {
            let (left, on_rest, handle) = (left.clone(), on_rest.clone(), self.clone());
            let rested = move || {
                if left.fetch_sub(1, Ordering::SeqCst) > 1 {
                    return;
                }
                let on_rest = on_rest
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                let Some(on_rest) = on_rest else { return };
                match handle.handed.load(Ordering::SeqCst) == before {
                    true => on_rest(),
                    // An engine that is gone drops `on_rest`, and the caller that waits for it notices.
                    false => drop(handle.flush_all(on_rest)),
                }
            };
            let flush = Input::Flush(Box::new(rested));
            inbox.send(flush).map_err(|_| Error::Stopping)?;
        }
        Ok(())
    }

    /// Moves an engine's virtual clock to `time` and lets everything happen that is due then. The
    /// observer is told when the engine is at rest again. Where very much is due at one time the engine
    /// stops in between with [`Idle::has_more`], so that a workflow that loops without end in no time
    /// can be stopped.
    pub fn advance_to(&self, time: Time) {
        // An engine with a virtual clock has one shard; one that is gone needs no time.
        let _ = self.inbox(0).send(Input::Advance(time));
    }
}
