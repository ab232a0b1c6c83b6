//! A copy of a database that another process may be writing: a backup, or a store made from one.
//!
//! The copy shows one moment: everything that was committed before it began, and nothing after. The pages are read
//! in steps inside one read transaction, so the writer goes on meanwhile; only its write-ahead log cannot begin anew
//! until the copy is done. Without the transaction, SQLite would begin the copy again after every commit.
//!
//! The copy is written under another name and takes its own name when it is whole and on the disk. A file that is
//! there already is never replaced. What a copy has left that was killed is used by the next one for the same name; a
//! lock keeps two copies for one name apart.

use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use stepwell_engine::store::{Result, StoreError, StoreErrorKind};

use super::backup::with_ending;
use super::errors::said;
use super::{SqliteOptions, open, private, wal_witness};

/// How many pages are copied before others are let through: 4 MiB.
const PAGES: i32 = 1024;
/// How long to wait for a page that is locked.
const LOCKED: Duration = Duration::from_millis(20);

/// A copy that is whole and on the disk, but not yet under its name. Dropping it deletes it.
#[derive(Debug)]
pub struct UnnamedCopy {
    path: PathBuf,
    target: PathBuf,
    bytes: u64,
    named: bool,
    /// Locked as long as the copy has no name.
    _part: File,
}

impl UnnamedCopy {
    /// Copies the database at `source`, for the name `target`. `progress` is told how many pages are done, and of how
    /// many.
    pub fn of(
        source: &Path,
        target: &Path,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<UnnamedCopy> {
        must_be_free(target)?;
        open::must_exist(source)?;
        wal_witness::check_unless_held(source)?;
        let from = open::reader(source, &SqliteOptions::default(), false)?;
        open::version(&from)
            .map_err(|error| said(source, &error))
            .and_then(|version| version.may_be_migrated(source))?;
        if let Some(folder) = target.parent().filter(|it| !it.as_os_str().is_empty()) {
            private::folder(folder).map_err(|error| open::unusable(folder, &error))?;
        }
        let path = with_ending(target, "-part");
        let part = part(&path)?;
        let mut copy = UnnamedCopy {
            path,
            target: target.to_owned(),
            bytes: 0,
            named: false,
            _part: part,
        };
        copy.fill(&from, &mut progress)
            .map_err(|error| said(&copy.path, &error))?;
        let file = File::open(&copy.path).map_err(|error| open::unusable(&copy.path, &error))?;
        file.sync_all()
            .map_err(|error| open::unusable(&copy.path, &error))?;
        copy.bytes = file.metadata().map_or(0, |it| it.len());
        Ok(copy)
    }

    fn fill(&self, from: &Connection, progress: &mut impl FnMut(u64, u64)) -> rusqlite::Result<()> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut to = Connection::open_with_flags(&self.path, flags)?;
        // The whole file is synced once, at the end.
        to.execute_batch("PRAGMA synchronous = OFF")?;
        from.execute_batch("BEGIN; SELECT 1 FROM sqlite_schema LIMIT 1;")?;
        {
            let steps = Backup::new(from, &mut to)?;
            loop {
                let step = steps.step(PAGES)?;
                let seen = steps.progress();
                let count = |pages: i32| u64::try_from(pages).unwrap_or(0);
                let (all, left) = (count(seen.pagecount), count(seen.remaining));
                progress(all.saturating_sub(left), all);
                match step {
                    StepResult::Done => break,
                    StepResult::More => std::thread::yield_now(),
                    StepResult::Busy | StepResult::Locked => std::thread::sleep(LOCKED),
                    // The library may add results; each of them means that the copy is not done.
                    _ => std::thread::sleep(LOCKED),
                }
            }
        }
        from.execute_batch("COMMIT")?;
        // One file without a log beside it; the owner of a store changes that back.
        to.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
        to.close().map_err(|(_, error)| error)
    }

    /// Where the copy is until it has its name, for those who verify it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How large the copy is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the copy its name. Fails if a file has taken the name meanwhile.
    pub fn name(mut self) -> Result<()> {
        must_be_free(&self.target)?;
        // A link, because a rename would replace a file.
        fs::hard_link(&self.path, &self.target)
            .map_err(|error| open::unusable(&self.target, &error))?;
        self.named = true;
        remove(&self.path);
        let folder = self.target.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let synced = File::open(folder).and_then(|it| it.sync_all());
        synced.map_err(|error| open::unusable(folder, &error))
    }
}

impl Drop for UnnamedCopy {
    fn drop(&mut self) {
        if !self.named {
            remove(&self.path);
        }
    }
}

/// The empty file of a copy that has no name yet, for this process alone.
fn part(path: &Path) -> Result<File> {
    let unusable = |error: io::Error| open::unusable(path, &error);
    private::file(path).map_err(unusable)?;
    if !fs::symlink_metadata(path).map_err(unusable)?.is_file() {
        let what = format!("{} is not a file; move it away", path.display());
        return Err(StoreError::new(StoreErrorKind::Unusable, what));
    }
    let file = File::options().write(true).open(path).map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let what = format!("another process is writing {}; wait for it", path.display());
            return Err(StoreError::new(StoreErrorKind::Held, what));
        }
        Err(TryLockError::Error(error)) => return Err(unusable(error)),
    }
    file.set_len(0).map_err(unusable)?;
    file.set_permissions(Permissions::from_mode(0o600))
        .map_err(unusable)?;
    remove_beside(path);
    Ok(file)
}

/// A store that is there, or was there, is not touched: a log beside a new database would be taken for its own.
fn must_be_free(target: &Path) -> Result<()> {
    for ending in ["", "-wal", "-shm", "-journal"] {
        let path = with_ending(target, ending);
        if fs::symlink_metadata(&path).is_ok() {
            let what = format!(
                "{} exists; nothing is overwritten: name another file, or move this one away",
                path.display()
            );
            return Err(StoreError::new(StoreErrorKind::Unusable, what));
        }
    }
    Ok(())
}

fn remove(path: &Path) {
    // It may be gone.
    drop(fs::remove_file(path));
    remove_beside(path);
}

/// Removes what SQLite has left beside a copy that was killed.
fn remove_beside(path: &Path) {
    for ending in ["-wal", "-shm", "-journal"] {
        let gone: io::Result<()> = fs::remove_file(with_ending(path, ending));
        // Most of them are not there.
        drop(gone);
    }
}
