//! A copy of the files of a database, made before a repair. The files are copied as they are, because a
//! damaged database cannot be read in any other way.

use std::fs;
use std::path::{Path, PathBuf};

use stepwell_engine::store::{Result, StoreError, StoreErrorKind};

use super::{lock, open};

/// Copies the database and its write-ahead log; says where the copy is. Fails while another process owns
/// the database.
pub fn backup(path: &Path) -> Result<PathBuf> {
    if !path.exists() {
        let what = format!(
            "{}: the file does not exist; name the right file",
            path.display()
        );
        return Err(StoreError::new(StoreErrorKind::Unusable, what));
    }
    let _held = lock::take(path)?;
    let copy = (1..)
        .map(|number| with_ending(path, &format!("-before-repair-{number}")))
        .find(|copy| !copy.exists())
        .unwrap_or_else(|| with_ending(path, "-before-repair"));
    fs::copy(path, &copy).map_err(|error| open::unusable(&copy, &error))?;
    let log = with_ending(path, "-wal");
    if log.exists() {
        let copied = with_ending(&copy, "-wal");
        fs::copy(&log, &copied).map_err(|error| open::unusable(&copied, &error))?;
    }
    Ok(copy)
}

/// The path of a file beside a database.
pub(super) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}
