//! The threads that take batches to the store, and the count of what they took. What a batch holds is the
//! coordinator's to say.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use super::Input;
use crate::store::{Batch, Store};

/// What an engine has done so far.
#[derive(Debug, Default)]
pub struct Stats {
    /// Commits that were answered.
    pub commits: AtomicU64,
    /// Appends in them.
    pub appends: AtomicU64,
    /// Bytes of log in them: bodies and digests.
    pub bytes: AtomicU64,
}

impl Stats {
    pub(super) fn count(&self, batch: &Batch) {
        let chunks = batch.appends.iter().filter_map(|it| it.chunk.as_ref());
        let bytes: usize = chunks.map(|it| it.body.len() + it.digests.len()).sum();
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.appends
            .fetch_add(batch.appends.len() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// One thread that takes batches to the store.
pub(super) struct Committer {
    /// None once it is to end.
    batches: Option<Sender<Box<Batch>>>,
    pub(super) busy: bool,
    thread: Option<JoinHandle<()>>,
}

/// A store is closed when the last who has it lets go of it: whoever stopped the service finds it so.
/// A thread that is still in a commit is left to itself, since nobody knows how long that takes.
impl Drop for Committer {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take()
            && !self.busy
        {
            let _ = thread.join();
        }
    }
}

impl Committer {
    pub(super) fn start(index: usize, store: Arc<dyn Store>, inbox: Sender<Input>) -> Committer {
        let (batches, to_commit) = mpsc::channel::<Box<Batch>>();
        let work = move || {
            for batch in to_commit {
                let answer = store.commit(&batch);
                if inbox.send(Input::Committed(index, batch, answer)).is_err() {
                    return;
                }
            }
        };
        // Without the thread its channel is closed, and `send` says so.
        let thread = thread::Builder::new()
            .name("stepwell-commit".into())
            .spawn(work);
        Committer {
            batches: Some(batches),
            busy: false,
            thread: thread.ok(),
        }
    }
    /// Gives it a batch.
    pub(super) fn send(&mut self, batch: Box<Batch>) {
        self.busy = true;
        if let Some(batches) = &self.batches {
            let _ = batches.send(batch);
        }
    }
}
