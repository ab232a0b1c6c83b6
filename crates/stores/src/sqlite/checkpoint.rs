//! Copies the write-ahead log into the database, on a thread of its own, so that commits do not stall.
//!
//! The thread copies what is committed while the writer goes on. The log can begin anew only at an
//! instant when all of it is copied, and with a busy writer that never happens by itself; so once the
//! log is large and nearly all of it is copied, the writer copies the small rest between two commits.
//! A log that begins anew is written over in place, which the disk does faster than growing it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use stepwell_engine::store::Result;

use super::errors::said;
use super::{SqliteOptions, open};

/// After this long without a commit the rest is copied, so that little is left to do at the next open.
const QUIET: Duration = Duration::from_secs(1);

/// The writer waits for readers if the log is this many times larger than it should be.
const TOO_LARGE: i64 = 16;

/// Shared by the writer and the thread.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// How many pages the log holds, by the last commit.
    pages: AtomicI64,
    /// How many of them are copied.
    copied: AtomicI64,
    /// Nearly all is copied: the writer may do the rest.
    nearly: AtomicBool,
    /// How many pages may be uncopied before the thread is woken.
    every: i64,
    wake: SyncSender<()>,
    stopped: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Checkpoints {
    /// Starts the thread for the database that `writer` writes.
    pub(super) fn start(
        path: PathBuf,
        options: &SqliteOptions,
        writer: &mut Connection,
    ) -> Result<Arc<Checkpoints>> {
        let page_size: i64 = writer
            .query_row("PRAGMA page_size", [], |row| row.get(0))
            .map_err(|error| said(&path, &error))?;
        let conn = open::checkpointer(&path, options)?;
        let (wake, woken) = sync_channel(1);
        let checkpoints = Arc::new(Checkpoints {
            pages: AtomicI64::new(0),
            copied: AtomicI64::new(0),
            nearly: AtomicBool::new(false),
            every: (i64::from(options.checkpoint_bytes) / page_size.max(512)).max(1),
            wake,
            stopped: AtomicBool::new(false),
            thread: Mutex::new(None),
        });
        let counted = Arc::clone(&checkpoints);
        writer
            .wal_hook(Some(move |_: &mut _, pages| {
                counted.pages.store(i64::from(pages), Ordering::Relaxed);
                Ok(())
            }))
            .map_err(|error| said(&path, &error))?;
        let shared = Arc::clone(&checkpoints);
        let thread = std::thread::Builder::new()
            .name("sqlite-checkpoint".into())
            .spawn(move || shared.work(&conn, &woken))
            .map_err(|error| open::unusable(&path, &error))?;
        *checkpoints.slot() = Some(thread);
        Ok(checkpoints)
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many pages the log holds, by the last commit.
    pub(super) fn pages(&self) -> u64 {
        u64::try_from(self.pages.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Called by the writer between two transactions.
    pub(super) fn after_commit(&self, conn: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        let copied = self.copied.load(Ordering::Relaxed);
        if pages < copied {
            // The log has begun anew.
            self.copied.store(0, Ordering::Relaxed);
            return;
        }
        if pages > self.every * TOO_LARGE {
            // Readers have kept it from beginning anew. If they do now, it goes on growing.
            let _ = conn.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
            self.nearly.store(false, Ordering::Relaxed);
        } else if self.nearly.swap(false, Ordering::Relaxed) {
            self.copy(conn);
        } else if pages - copied >= self.every
            && let Err(TrySendError::Disconnected(())) = self.wake.try_send(())
        {
            self.copy(conn);
        }
    }

    /// Copies what can be copied without waiting. An error is ignored here: the next commit has the same error and can
    /// report it.
    fn copy(&self, conn: &Connection) -> Option<(i64, i64)> {
        let counts = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        });
        let (pages, copied) = counts.ok()?;
        self.copied.store(copied, Ordering::Relaxed);
        Some((pages, copied))
    }

    fn work(&self, conn: &Connection, woken: &Receiver<()>) {
        let mut all_copied = false;
        loop {
            let quiet = match woken.recv_timeout(QUIET) {
                Ok(()) => false,
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            let pages = self.pages.load(Ordering::Relaxed);
            if quiet && all_copied && pages == self.copied.load(Ordering::Relaxed) {
                continue;
            }
            if let Some((pages, copied)) = self.copy(conn) {
                all_copied = pages == copied;
                self.nearly.store(pages >= self.every, Ordering::Relaxed);
            }
        }
    }

    /// Asks the thread to end and waits until it has ended.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        let _ = self.wake.try_send(());
        let thread = self.slot().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}
