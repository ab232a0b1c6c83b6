//! Whether the write-ahead log still has what was committed. SQLite takes a log that is cut or damaged for the trace of
//! a crash: it leaves out everything from the damage on, without an error, and what was committed is gone. The index of
//! the log (`-shm`) remembers how many frames were committed and synced; a process that was killed leaves it behind. So
//! before a log is recovered, its frames are counted and compared.
//!
//! The formats are those of <https://www.sqlite.org/walformat.html>.

use std::fs;
use std::path::Path;

use stepwell_engine::store::{Result, StoreError, StoreErrorKind};

use super::backup::with_ending;
use super::lock;

const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
/// Two copies of the header of the index, then what checkpoints know.
const INDEX_HEADER: usize = 48;
const BACKFILLED: usize = 2 * INDEX_HEADER;
/// The last bit says in which order the bytes of the sums are.
const MAGIC: u32 = 0x377f_0682;

/// Fails if frames that were committed are not in the log. Only for those who hold the lock: a log that is being
/// written changes meanwhile.
pub(super) fn check(database: &Path) -> Result<()> {
    match loss(database) {
        None => Ok(()),
        Some((committed, left)) => Err(lost(database, committed, left)),
    }
}

/// The same for those who only look; a process that owns the database knows better.
pub(super) fn check_unless_held(database: &Path) -> Result<()> {
    if lock::is_held(database) || loss(database).is_none() {
        return Ok(());
    }
    // Another process may have begun to write in between.
    match (lock::is_held(database), loss(database)) {
        (false, Some((committed, left))) => Err(lost(database, committed, left)),
        _ => Ok(()),
    }
}

/// Takes the store as it is: what is missing from the log is given up. Says what that is; none if nothing is missing.
/// Fails while another process owns the database.
pub fn accept_loss(database: &Path) -> Result<Option<String>> {
    let _held = lock::take(database)?;
    let Some((committed, left)) = loss(database) else {
        return Ok(None);
    };
    let index = with_ending(database, "-shm");
    fs::remove_file(&index).map_err(|error| super::open::unusable(&index, &error))?;
    Ok(Some(format!(
        "the write-ahead log is damaged: {left} of {committed} committed pages can be read; the rest is given up"
    )))
}

fn lost(database: &Path, committed: u32, left: u32) -> StoreError {
    let what = format!(
        "{}-wal is damaged: {left} of {committed} committed pages can be read, and what was committed last is lost; \
         restore the database and its log from a backup (and delete {}-shm), or accept the loss with `stepwell db \
         check --repair`",
        database.display(),
        database.display(),
    );
    StoreError::new(StoreErrorKind::Corrupt, what)
}

/// How many frames were committed and how many of them are left, if some are missing. Without an index, or with one
/// that says nothing, nothing is known.
fn loss(database: &Path) -> Option<(u32, u32)> {
    let index = fs::read(with_ending(database, "-shm")).ok()?;
    let header = index.get(..INDEX_HEADER)?;
    let is_whole = index.get(INDEX_HEADER..BACKFILLED)? == header
        && header[12] != 0
        && sums(&header[..40], (0, 0), native) == (native(&header[40..])?, native(&header[44..])?);
    let (committed, salts) = (native(&header[16..])?, &header[32..40]);
    let copied = native(index.get(BACKFILLED..)?)?;
    if !is_whole || committed <= copied {
        return None;
    }
    let log = fs::read(with_ending(database, "-wal")).unwrap_or_default();
    let left = committed_frames(&log, salts).unwrap_or(0);
    (left < committed).then_some((committed, left))
}

/// The number of the last frame that ends a transaction, as SQLite finds it when it recovers a log.
fn committed_frames(log: &[u8], salts: &[u8]) -> Option<u32> {
    let header = log.get(..LOG_HEADER)?;
    let magic = big(header)?;
    let word = match magic {
        MAGIC => little,
        _ if magic == MAGIC | 1 => big,
        _ => return None,
    };
    let mut sum = sums(&header[..24], (0, 0), word);
    if sum != (big(&header[24..])?, big(&header[28..])?) || header[16..24] != *salts {
        return None;
    }
    let page = usize::try_from(big(&header[8..])?).ok()?;
    let mut committed = 0;
    let frames = log[LOG_HEADER..].chunks_exact(FRAME_HEADER + page);
    for (number, frame) in (1..).zip(frames) {
        let (head, body) = frame.split_at(FRAME_HEADER);
        sum = sums(body, sums(&head[..8], sum, word), word);
        if head[8..16] != *salts || sum != (big(&head[16..])?, big(&head[20..])?) {
            break;
        }
        if big(&head[4..])? != 0 {
            committed = number;
        }
    }
    Some(committed)
}

type Word = fn(&[u8]) -> Option<u32>;

fn big(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|it| u32::from_be_bytes(*it))
}

fn little(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|it| u32::from_le_bytes(*it))
}

fn native(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|it| u32::from_ne_bytes(*it))
}

/// SQLite's sums over pairs of words, continued.
fn sums(bytes: &[u8], (mut one, mut two): (u32, u32), word: Word) -> (u32, u32) {
    for pair in bytes.chunks_exact(8) {
        one = one.wrapping_add(word(pair).unwrap_or(0)).wrapping_add(two);
        two = two
            .wrapping_add(word(&pair[4..]).unwrap_or(0))
            .wrapping_add(one);
    }
    (one, two)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    use rusqlite::Connection;

    /// A database as a killed process leaves it: with a log and its index.
    fn left(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("stepwell-witness-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("copy")).unwrap();
        let live = folder.join("a.db");
        let conn = Connection::open(&live).unwrap();
        conn.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (a);
             INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); INSERT INTO t VALUES (3);",
        )
        .unwrap();
        for ending in ["", "-wal", "-shm"] {
            let name = format!("a.db{ending}");
            fs::copy(folder.join(&name), folder.join("copy").join(&name)).unwrap();
        }
        folder.join("copy/a.db")
    }

    fn rows(database: &Path) -> i64 {
        let conn = Connection::open(database).unwrap();
        conn.query_row("SELECT count(*) FROM t", [], |row| row.get(0))
            .unwrap()
    }

    #[test]
    fn a_log_that_a_killed_process_left_is_whole() {
        let database = left("whole");
        assert_eq!(loss(&database), None);
        check(&database).unwrap();
        assert_eq!(rows(&database), 3);
    }

    #[test]
    fn a_log_that_is_cut_damaged_or_gone_is_found_before_sqlite_forgets_it() {
        type Hurt = fn(&Path);
        let all: [(&str, Hurt); 4] = [
            ("cut", |log| {
                let size = fs::metadata(log).unwrap().len();
                fs::OpenOptions::new()
                    .write(true)
                    .open(log)
                    .unwrap()
                    .set_len(size - 10)
                    .unwrap();
            }),
            ("flipped", |log| {
                let mut bytes = fs::read(log).unwrap();
                let at = bytes.len() - 5000;
                bytes[at] ^= 4;
                fs::write(log, bytes).unwrap();
            }),
            ("header", |log| {
                let mut bytes = fs::read(log).unwrap();
                bytes[17] ^= 1;
                fs::write(log, bytes).unwrap();
            }),
            ("gone", |log| fs::remove_file(log).unwrap()),
        ];
        for (name, hurt) in all {
            let database = left(name);
            hurt(&with_ending(&database, "-wal"));
            let found = check(&database).unwrap_err();
            assert_eq!(found.kind, StoreErrorKind::Corrupt, "{name}");
            check_unless_held(&database).unwrap_err();
            let given_up = accept_loss(&database).unwrap().unwrap();
            assert!(given_up.contains("committed pages"), "{given_up}");
            check(&database).unwrap();
        }
    }

    #[test]
    fn a_log_that_was_copied_into_the_database_may_be_gone() {
        let database = left("copied");
        // Closing the last connection copies the log and deletes it.
        assert_eq!(rows(&database), 3);
        assert_eq!(loss(&database), None);
    }
}
