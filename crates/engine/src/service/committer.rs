//! The threads that take batches to the store, and the count of what they took. Nothing here knows what
//! a batch means.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use super::{Handle, Input};
use crate::store::{Batch, Store};

/// What an engine has committed so far, and what it is doing.
#[derive(Debug, Default)]
pub struct Stats {
    /// Commits that were answered.
    pub commits: AtomicU64,
    /// Appends in them.
    pub appends: AtomicU64,
    /// Bytes of log in them: bodies and digests.
    pub bytes: AtomicU64,
    /// Work of this process that is in flight now.
    pub in_flight: AtomicUsize,
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

/// Waits for the thread, so that the store is closed when the service has stopped. A thread that is
/// still in a commit is not waited for, since the commit may never return.
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
    pub(super) fn start(index: usize, store: Arc<dyn Store>, inbox: Handle) -> Committer {
        let (batches, to_commit) = mpsc::channel::<Box<Batch>>();
        let work = move || {
            for batch in to_commit {
                let answer = store.commit(&batch);
                inbox.send(Input::Committed(index, batch, answer));
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

    /// Gives the thread a batch.
    pub(super) fn send(&mut self, batch: Box<Batch>) {
        self.busy = true;
        if let Some(batches) = &self.batches {
            let _ = batches.send(batch);
        }
    }
}
