//! One owner: a lock on a file beside the database, which the system gives up with the process.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use stepwell_engine::store::{Result, StoreError, StoreErrorKind};

/// The lock, held as long as this lives.
#[derive(Debug)]
pub(super) struct Held {
    _file: File,
}

/// Takes the lock, or says who has it.
pub(super) fn take(database: &Path) -> Result<Held> {
    let path = beside(database);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // A link in the place of the file is not followed.
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(&path)
        .map_err(|error| no_lock(database, &path, &error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(held(database, &mut file)),
        Err(TryLockError::Error(error)) => return Err(super::open::unusable(&path, &error)),
    }
    // Only for people: the lock is what counts, so a full disk does not matter here.
    let _ = file.set_len(0);
    let _ = file.rewind();
    let _ = writeln!(file, "{}", std::process::id());
    Ok(Held { _file: file })
}

/// Whether a process owns the database now. Asked without keeping anyone from taking the lock.
pub(super) fn is_held(database: &Path) -> bool {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(beside(database));
    let asked = file.map(|file| file.try_lock_shared());
    matches!(asked, Ok(Err(TryLockError::WouldBlock)))
}

/// Where no file can be made beside a database that is there, it can still be read.
fn no_lock(database: &Path, lock: &Path, error: &io::Error) -> StoreError {
    let mut unusable = super::open::unusable(lock, error);
    if error.kind() == io::ErrorKind::PermissionDenied && File::open(database).is_ok() {
        unusable.kind = StoreErrorKind::ReadOnly;
    }
    unusable
}

fn held(database: &Path, file: &mut File) -> StoreError {
    let mut owner = String::new();
    let _ = file.read_to_string(&mut owner);
    let owner = match owner.trim() {
        "" => "another process".to_owned(),
        pid => format!("process {pid}"),
    };
    StoreError::new(
        StoreErrorKind::Held,
        format!(
            "{} belongs to {owner}; send it your commands, stop it first, or use another store \
             (reading is possible meanwhile)",
            database.display()
        ),
    )
}

fn beside(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-lock");
    PathBuf::from(name)
}
