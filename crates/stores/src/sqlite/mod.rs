//! SQLite, inside the process: the store for one machine.
//!
//! One process owns a database (`lock`); it has one connection that writes and a few that only read.
//! Others may read it, put messages into its mailbox, and keep snapshots and alerts (`Mode::Guest`).
//! Commits go into the write-ahead log, which a second thread copies into the database (`checkpoint`).

mod backup;
mod change_feed;
mod check;
mod checkpoint;
mod commit;
mod errors;
mod installation;
mod lock;
mod log;
mod mailbox;
mod maintenance;
mod online_copy;
mod open;
mod outbox;
mod private;
mod retention;
mod run_list;
mod run_search;
mod schema_check;
mod sessions;
#[cfg(feature = "suite")]
mod store_dump;
mod tallies;
mod tasks;
mod unique_keys;
mod wal_witness;
mod watch;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use stepwell_engine::store::{Capabilities, Result, Store, StoreError, StoreErrorKind};

pub use backup::backup;
use checkpoint::Checkpoints;
use errors::{said, said_at_commit};
pub use online_copy::UnnamedCopy;
pub use private::{exposed, protect};
pub use wal_witness::accept_loss;

/// How long a reader may hold its view of the database: until it lets go, the write-ahead log cannot
/// begin anew.
const LONGEST_READ: Duration = Duration::from_secs(1);

/// Connections that wait for the next reader; more are opened when needed and closed afterwards.
const READERS_KEPT: usize = 4;

/// How a process uses a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Reads and writes everything; no other process may do so at the same time.
    #[default]
    Own,
    /// Reads, calls `post`, `answered`, `deliver`, `alert` and `put_projections`, writes documents and adds to the audit
    /// log, while another process owns the database.
    Guest,
    ReadOnly,
}

/// When a commit is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Before the commit is answered.
    #[default]
    Full,
    /// Some time later: a power failure loses the latest commits. For benches.
    Normal,
    /// When the system decides: a power failure can damage the database. For benches and tests.
    Off,
}

impl Durability {
    /// The value of `PRAGMA synchronous`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Durability::Full => "FULL",
            Durability::Normal => "NORMAL",
            Durability::Off => "OFF",
        }
    }
}

/// How a database is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    pub mode: Mode,
    /// When a commit is on disk.
    pub durability: Durability,
    /// The size of a page of a new database.
    pub page_size: u32,
    /// The write connection's cache.
    pub cache_bytes: u32,
    /// How much the write-ahead log grows before it is copied into the database.
    pub checkpoint_bytes: u32,
    /// The most pages the database may have; none is SQLite's own limit.
    pub max_pages: Option<u32>,
    /// How long a call waits for the write of another process. It is short: those who can wait longer try again, and
    /// the engine gives its events the time of the attempt that succeeds.
    pub patience: Duration,
}

impl Default for SqliteOptions {
    fn default() -> SqliteOptions {
        SqliteOptions {
            mode: Mode::Own,
            durability: Durability::Full,
            page_size: 4096,
            cache_bytes: 64 << 20,
            checkpoint_bytes: 16 << 20,
            max_pages: None,
            patience: Duration::from_millis(500),
        }
    }
}

impl SqliteOptions {
    /// The defaults for a mode.
    #[must_use]
    pub fn with_mode(mode: Mode) -> SqliteOptions {
        SqliteOptions {
            mode,
            ..SqliteOptions::default()
        }
    }
}

/// A database that is open.
pub struct SqliteStore {
    path: PathBuf,
    options: SqliteOptions,
    /// Opened as `immutable`: nobody writes it, and no file may be made beside it.
    frozen: bool,
    readers: Mutex<Vec<Connection>>,
    writer: Mutex<Connection>,
    checkpoints: Option<Arc<Checkpoints>>,
    /// Looks after the files.
    looks: watch::Looks,
    /// The last answer of `news`, for when the writer is busy.
    news: AtomicI64,
    /// Held while this process owns the database; given up after the connections are closed, since
    /// fields are dropped in order.
    _lock: Option<lock::Held>,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.path)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.looks.stop();
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.stop();
        }
    }
}

impl SqliteStore {
    /// Where the database is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn writer(&self) -> MutexGuard<'_, Connection> {
        // A panic in a call leaves at most an open transaction, which the next call rolls back.
        let conn = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if !conn.is_autocommit() {
            let _ = conn.execute_batch("ROLLBACK");
        }
        conn
    }

    /// A transaction that only the owner may make.
    fn write<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        match self.options.mode {
            Mode::Own => self.transact(work),
            Mode::Guest => Err(StoreError::new(
                StoreErrorKind::Held,
                format!(
                    "{} is open as a guest, who may read and send messages; ask the process that \
                     owns it, or stop that one and open the store as its owner",
                    self.path.display()
                ),
            )),
            Mode::ReadOnly => Err(self.read_only()),
        }
    }

    /// A short transaction that a guest may make too.
    fn send<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        match self.options.mode {
            Mode::Own | Mode::Guest => self.transact(work),
            Mode::ReadOnly => Err(self.read_only()),
        }
    }

    fn read_only(&self) -> StoreError {
        StoreError::new(
            StoreErrorKind::ReadOnly,
            format!("{} is open for reading only", self.path.display()),
        )
    }

    /// Fails if the files of the database were found deleted or replaced.
    fn is_in_place(&self) -> Result<()> {
        self.looks.known()
    }

    /// The cause of an error. Files that are deleted or cut look like damage to SQLite, before the next look at them.
    fn why(&self, error: StoreError) -> StoreError {
        self.looks.look().err().unwrap_or(error)
    }

    fn transact<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        self.is_in_place()?;
        let conn = self.writer();
        let begin = |conn: &Connection| conn.prepare_cached("BEGIN IMMEDIATE")?.execute([]);
        begin(&conn).map_err(|error| self.why(said(&self.path, &error)))?;
        let done = match work(&conn) {
            Ok(done) => done,
            Err(error) => {
                let _ = conn.execute_batch("ROLLBACK");
                return Err(self.why(said(&self.path, &error)));
            }
        };
        let commit = |conn: &Connection| conn.prepare_cached("COMMIT")?.execute([]);
        if let Err(error) = commit(&conn) {
            let _ = conn.execute_batch("ROLLBACK");
            return Err(self.why(said_at_commit(&self.path, &error)));
        }
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.after_commit(&conn);
        }
        Ok(done)
    }

    /// One view of the database, for at most a second.
    fn read<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let until = Instant::now() + LONGEST_READ;
        self.look(work, Some(move || Instant::now() > until))
    }

    fn look<T, F>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
        stop: Option<F>,
    ) -> Result<T>
    where
        F: FnMut() -> bool + Send + 'static,
    {
        self.is_in_place()?;
        let pool = || self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = pool().pop();
        let mut conn = match kept {
            Some(conn) => conn,
            None => open::reader(&self.path, &self.options, self.frozen)
                .map_err(|error| self.why(error))?,
        };
        let seen = || {
            conn.progress_handler(20_000, stop)?;
            conn.prepare_cached("BEGIN")?.execute([])?;
            let seen = work(&conn);
            let ended = conn.prepare_cached("ROLLBACK")?.execute([]);
            seen.and_then(|seen| ended.map(|_| seen))
        };
        // A connection with an error is closed, not kept.
        let seen = seen().map_err(|error| self.why(said(&self.path, &error)))?;
        let mut kept = pool();
        if kept.len() < READERS_KEPT {
            kept.push(conn);
        }
        Ok(seen)
    }

    /// Counts what other processes have written. The writer's own connection is asked, since only its
    /// count leaves out what this process writes; while it is busy the last answer stands.
    fn data_version(&self) -> Result<i64> {
        let conn = match self.writer.try_lock() {
            Ok(conn) => conn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(self.news.load(Ordering::Relaxed)),
        };
        let asked = conn
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)));
        let version = asked.map_err(|error| self.why(said(&self.path, &error)))?;
        self.news.store(version, Ordering::Relaxed);
        Ok(version)
    }
}

impl Store for SqliteStore {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // Guests append nothing to the log: one process does.
            shared: false,
            durable: true,
            concurrent_commits: 1,
        }
    }
}
