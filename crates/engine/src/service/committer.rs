//! The commit pipeline: the actors that take batches to the store. Nothing here knows what a batch means.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::Input;
use super::actor::{self, Actor, Answer, Step};
use crate::shard::Shard;
use crate::store::{Batch, Store};

/// How many batches share a transaction at most.
const MAX_SHARED: usize = Shard::MAX;
/// A transaction with this many appends takes no further batch.
const MAX_SHARED_APPENDS: usize = 1_024;

/// The way of the batches of all shards to the store. Where the store takes one commit at a time, batches that wait
/// share a transaction.
#[derive(Debug)]
pub(super) struct CommitPipeline {
    /// None once the actors are to end.
    queue: Option<Sender<Job>>,
    /// How many commits may be under way at a time for one shard.
    slots: usize,
    /// How many batches are on their way.
    busy: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

/// A batch, and where its answer goes: the shard, and which of its committers.
struct Job {
    inbox: Sender<Input>,
    committer: usize,
    batch: Box<Batch>,
}

/// Waits for the threads, so that the store is closed when the service has stopped. Threads that are still in a commit
/// are not waited for, since the commit may never return.
impl Drop for CommitPipeline {
    fn drop(&mut self) {
        self.queue = None;
        if self.busy.load(Ordering::SeqCst) == 0 {
            for thread in self.threads.drain(..) {
                let _ = thread.join();
            }
        }
    }
}

impl CommitPipeline {
    /// A pipeline, and the actors that take its batches to the store.
    pub(super) fn new(store: &Arc<dyn Store>) -> (CommitPipeline, Vec<CommitActor>) {
        let slots = store.capabilities().concurrent_commits.max(1);
        let (queue, jobs) = mpsc::channel::<Job>();
        let jobs = Arc::new(Mutex::new(jobs));
        let busy = Arc::<AtomicUsize>::default();
        let actor = |_| CommitActor {
            store: store.clone(),
            jobs: jobs.clone(),
            busy: busy.clone(),
            most: if slots == 1 { MAX_SHARED } else { 1 },
        };
        let actors = (0..slots).map(actor).collect();
        let pipeline = CommitPipeline {
            queue: Some(queue),
            slots,
            threads: Vec::new(),
            busy,
        };
        (pipeline, actors)
    }

    /// A pipeline whose actors have threads.
    pub(super) fn start(store: &Arc<dyn Store>) -> CommitPipeline {
        let (mut pipeline, actors) = CommitPipeline::new(store);
        // Without a thread the queue is closed, and `send` says so.
        let started = actors
            .into_iter()
            .map(|it| actor::start("stepwell-commit", it));
        pipeline.threads = started.filter_map(Result::ok).collect();
        pipeline
    }

    /// The committers of one shard, whose answers go to `inbox`.
    pub(super) fn committers(&self, inbox: &Sender<Input>) -> Vec<Committer> {
        let committer = |index| Committer {
            queue: self.queue.clone(),
            inbox: inbox.clone(),
            on_its_way: self.busy.clone(),
            index,
            busy: false,
        };
        (0..self.slots).map(committer).collect()
    }
}

/// Takes batches to the store, until there will be no more.
pub(super) struct CommitActor {
    store: Arc<dyn Store>,
    jobs: Arc<Mutex<Receiver<Job>>>,
    busy: Arc<AtomicUsize>,
    /// How many batches share a transaction at most.
    most: usize,
}

impl CommitActor {
    /// The batches of the next transaction.
    fn next(&self, waits: bool) -> Result<Vec<Job>, TryRecvError> {
        let queue = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let first = match waits {
            true => queue.recv().map_err(|_| TryRecvError::Disconnected)?,
            false => queue.try_recv()?,
        };
        let mut appends = first.batch.appends.len();
        let mut jobs = vec![first];
        while jobs.len() < self.most && appends < MAX_SHARED_APPENDS {
            let Ok(next) = queue.try_recv() else { break };
            appends += next.batch.appends.len();
            jobs.push(next);
        }
        Ok(jobs)
    }
}

impl Actor for CommitActor {
    fn step(&mut self, waits: bool) -> Step {
        let jobs = match self.next(waits) {
            Ok(jobs) => jobs,
            Err(TryRecvError::Empty) => return Step::Idle,
            Err(TryRecvError::Disconnected) => return Step::Ended,
        };
        let answers = match &jobs[..] {
            [one] => vec![self.store.commit(&one.batch)],
            many => {
                let batches: Vec<&Batch> = many.iter().map(|job| &*job.batch).collect();
                self.store.commit_all(&batches)
            }
        };
        self.busy.fetch_sub(jobs.len(), Ordering::SeqCst);
        let answer = |(job, answer): (Job, _)| Answer {
            inbox: job.inbox,
            input: Input::Committed(job.committer, job.batch, answer),
        };
        Step::Done(jobs.into_iter().zip(answers).map(answer).collect())
    }
}

/// One commit of a shard that may be under way.
pub(super) struct Committer {
    queue: Option<Sender<Job>>,
    inbox: Sender<Input>,
    on_its_way: Arc<AtomicUsize>,
    index: usize,
    pub(super) busy: bool,
}

impl Committer {
    /// Sends a batch on its way.
    pub(super) fn send(&mut self, batch: Box<Batch>) {
        self.busy = true;
        self.on_its_way.fetch_add(1, Ordering::SeqCst);
        if let Some(queue) = &self.queue {
            let _ = queue.send(Job {
                inbox: self.inbox.clone(),
                committer: self.index,
                batch,
            });
        }
    }
}
