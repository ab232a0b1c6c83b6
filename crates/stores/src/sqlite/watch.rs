//! Watches the files of a database that this process owns. A file that is deleted, replaced or cut under a
//! live process would otherwise go unnoticed: the process would go on writing into a file that nobody finds
//! again. Looks every half second on a thread of its own; from then on every call is refused. A process beside
//! the owner looks at the database itself before each call: it would go on reading what nobody changes any more.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stepwell_engine::store::{Result, StoreError, StoreErrorKind};

use super::backup::with_ending;
use super::checkpoint::Checkpoints;
use super::open;

/// How often the files are looked at.
const PACE: Duration = Duration::from_millis(500);

/// Bytes before the first frame of a write-ahead log, and before the page of a frame.
const LOG_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;

/// How a process looks after the files of a database that it has open.
#[derive(Debug)]
pub(super) enum Looks {
    /// The owner looks at the database, the write-ahead log and the lock file.
    AtAll(Arc<Watch>),
    /// A process beside the owner looks at the database only: SQLite may make the other files anew.
    AtDatabase(WatchedFile),
}

impl Looks {
    /// Fails if the files were found deleted or replaced. Costs little.
    pub(super) fn known(&self) -> Result<()> {
        match self {
            Looks::AtAll(watch) => watch.known(),
            Looks::AtDatabase(file) => file.is_in_place(),
        }
    }

    /// Looks at the files now.
    pub(super) fn look(&self) -> Result<()> {
        match self {
            Looks::AtAll(watch) => watch.look(),
            Looks::AtDatabase(file) => file.is_in_place(),
        }
    }

    pub(super) fn stop(&self) {
        match self {
            Looks::AtAll(watch) => watch.stop(),
            Looks::AtDatabase(_) => {}
        }
    }
}

/// The files of a database, as they were when it was opened.
#[derive(Debug)]
pub(super) struct Watch {
    database: WatchedFile,
    log: WatchedFile,
    lock: WatchedFile,
    page_size: u64,
    /// SQLite itself cuts a log that begins anew to this size, and never to a smaller one.
    log_limit: u64,
    checkpoints: Arc<Checkpoints>,
    /// The largest size that the database had.
    size: Mutex<u64>,
    gone: OnceLock<StoreError>,
    /// Dropping it ends the thread.
    stop: Mutex<Option<SyncSender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A file, as it was when it was opened.
#[derive(Debug)]
pub(super) struct WatchedFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl WatchedFile {
    pub(super) fn at(path: PathBuf) -> Result<WatchedFile> {
        let found = fs::metadata(&path).map_err(|error| open::unusable(&path, &error))?;
        let identity = identity(&found);
        Ok(WatchedFile { path, identity })
    }

    /// Fails if another file, or none, is in its place.
    fn is_in_place(&self) -> Result<()> {
        match self.is_replaced() {
            None | Some(false) => Ok(()),
            Some(true) => Err(StoreError::new(
                StoreErrorKind::Gone,
                format!(
                    "{} was deleted, renamed or replaced while this process read the store; repeat the command to \
                     read what is there now",
                    self.path.display()
                ),
            )),
        }
    }

    /// Whether another file, or none, is in its place, if that can be said.
    fn is_replaced(&self) -> Option<bool> {
        match fs::metadata(&self.path) {
            Ok(found) => Some(identity(&found) != self.identity),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(true),
            // A directory that cannot be read now says nothing about the file.
            Err(_) => None,
        }
    }
}

impl Watch {
    /// Starts to watch a database that is open.
    pub(super) fn start(
        path: &Path,
        (page_size, log_limit): (u64, u64),
        checkpoints: Arc<Checkpoints>,
    ) -> Result<Arc<Watch>> {
        let size = fs::metadata(path).map_or(0, |it| it.len());
        let (stop, stopped) = sync_channel(1);
        let watch = Arc::new(Watch {
            database: WatchedFile::at(path.to_owned())?,
            log: WatchedFile::at(with_ending(path, "-wal"))?,
            lock: WatchedFile::at(with_ending(path, "-lock"))?,
            page_size,
            log_limit,
            checkpoints,
            size: Mutex::new(size),
            gone: OnceLock::new(),
            stop: Mutex::new(Some(stop)),
            thread: Mutex::new(None),
        });
        let own = Arc::clone(&watch);
        let thread = std::thread::Builder::new()
            .name("sqlite-watch".into())
            .spawn(move || {
                while stopped.recv_timeout(PACE) == Err(RecvTimeoutError::Timeout) {
                    if own.look().is_err() {
                        return;
                    }
                }
            })
            .map_err(|error| open::unusable(path, &error))?;
        *watch.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(watch)
    }

    /// Says why the database cannot be used any more, if that was found.
    pub(super) fn known(&self) -> Result<()> {
        match self.gone.get() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Looks at the files now.
    pub(super) fn look(&self) -> Result<()> {
        self.known()?;
        if let Some(what) = self.what_is_wrong() {
            let error = StoreError::new(
                StoreErrorKind::Gone,
                format!(
                    "{what} while this process used the store; what was written since then is lost; stop the \
                     program that did it, restore the file or a backup, run `stepwell db check`, and start again"
                ),
            );
            let _ = self.gone.set(error);
        }
        self.known()
    }

    fn what_is_wrong(&self) -> Option<String> {
        for file in [&self.database, &self.log, &self.lock] {
            // SQLite makes a new log as soon as it opens a connection: whether the log was deleted or replaced is not
            // known.
            if file.is_replaced()? {
                let at = file.path.display();
                return Some(format!("{at} was deleted, renamed or replaced"));
            }
        }
        self.is_cut()
    }

    fn is_cut(&self) -> Option<String> {
        let length = |file: &WatchedFile| fs::metadata(&file.path).map(|it| it.len()).ok();
        let now = length(&self.database)?;
        let mut size = self.size.lock().unwrap_or_else(PoisonError::into_inner);
        if now < *size {
            let at = self.database.path.display();
            return Some(format!("{at} was cut from {size} to {now} bytes"));
        }
        *size = now;
        drop(size);
        // The log begins anew between two looks: only what is the same before and after counts.
        let frames = self.checkpoints.pages();
        let log = length(&self.log)?;
        let least = least_log(frames, self.page_size, self.log_limit);
        if log < least && frames == self.checkpoints.pages() && length(&self.log)? < least {
            let at = self.log.path.display();
            return Some(format!("{at} was cut to {log} bytes"));
        }
        None
    }

    /// Ends the thread that looks, and waits for its end.
    pub(super) fn stop(&self) {
        drop(
            self.stop
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// The least size of a log with so many frames, by the last commit. The commit after which a log begins anew cuts a log
/// that readers had let grow, before this process hears that there are fewer frames: a log of the limit may be whole.
fn least_log(frames: u64, page_size: u64, limit: u64) -> u64 {
    match frames {
        0 => 0,
        frames => limit.min(LOG_HEADER + frames * (FRAME_HEADER + page_size)),
    }
}

/// What a file is known by, whatever its name.
#[cfg(unix)]
fn identity(found: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (found.dev(), found.ino())
}

/// Other systems do not let a file be deleted while a process has it open.
#[cfg(not(unix))]
fn identity(_: &Metadata) -> (u64, u64) {
    (0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_sqlite_has_cut_to_its_limit_is_not_taken_for_a_damaged_one() {
        let limit = 64 << 20;
        assert_eq!(least_log(0, 4096, limit), 0);
        assert_eq!(least_log(1, 4096, limit), 32 + 24 + 4096);
        // Readers kept the log from beginning anew until it was larger than the limit.
        assert_eq!(least_log(20_000, 4096, limit), limit);
    }
}
