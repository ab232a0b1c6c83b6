//! Opening a database: its directory, its lock, its schema, and what earlier owners left behind.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicI64;

use rusqlite::{Connection, OpenFlags, params};
use stepwell_engine::chunk;
use stepwell_engine::store::{Result, StoreError, StoreErrorKind};

use super::checkpoint::Checkpoints;
use super::errors::said;
use super::{Mode, SqliteOptions, SqliteStore, lock};

/// In the header of each database of this program ("Step").
const APPLICATION: i32 = 0x5374_6570;

/// Statements that change the schema, oldest first. The schema's version is how many have been run.
const MIGRATIONS: [&str; 2] = [
    include_str!("../../migrations/sqlite/0001_start.sql"),
    include_str!("../../migrations/sqlite/0002_views.sql"),
];

/// The schema's version that this program writes.
pub(super) const SCHEMA: i64 = MIGRATIONS.len() as i64;

impl SqliteStore {
    /// Opens a database; as owner it is made if it is not there, with its directory.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<SqliteStore> {
        let path = path.as_ref().to_path_buf();
        match options.mode {
            Mode::Own => own(path, options),
            Mode::Guest => visit(path, options),
            Mode::ReadOnly => look(path, options),
        }
    }
}

fn own(path: PathBuf, options: SqliteOptions) -> Result<SqliteStore> {
    if let Some(directory) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).map_err(|error| unusable(directory, &error))?;
    }
    if path.is_dir() {
        let what = format!("{} is a directory; name a file in it", path.display());
        return Err(StoreError::new(StoreErrorKind::Unusable, what));
    }
    let held = lock::take(&path)?;
    let mut writer = connect(
        &path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    )?;
    let readied = prepare(&mut writer, &path, &options);
    readied.map_err(|error| match error {
        Setup::Refused(refused) => refused,
        Setup::Sqlite(error) => said(&path, &error),
    })?;
    let checkpoints = Checkpoints::start(path.clone(), &options, &mut writer)?;
    Ok(SqliteStore {
        path,
        options,
        frozen: false,
        readers: Mutex::default(),
        writer: Mutex::new(writer),
        checkpoints: Some(checkpoints),
        news: AtomicI64::new(0),
        _lock: Some(held),
    })
}

fn visit(path: PathBuf, options: SqliteOptions) -> Result<SqliteStore> {
    must_exist(&path)?;
    let writer = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    settle(&writer, &options)
        .and_then(|()| version(&writer))
        .map_err(|error| said(&path, &error))
        .and_then(|version| version.must_be_current(&path))?;
    Ok(beside_the_owner(path, options, writer, false))
}

fn look(path: PathBuf, options: SqliteOptions) -> Result<SqliteStore> {
    must_exist(&path)?;
    let mut frozen = false;
    let conn = match reader(&path, &options, false) {
        // Reading beside a writer needs a file for their shared index. Where none can be made and no
        // log waits to be read, nobody is writing and the file can be read as it is.
        Err(error) if error.kind != StoreErrorKind::Corrupt && !has_log(&path) => {
            frozen = true;
            reader(&path, &options, true)?
        }
        other => other?,
    };
    version(&conn)
        .map_err(|error| said(&path, &error))
        .and_then(|version| version.must_be_current(&path))?;
    Ok(beside_the_owner(path, options, conn, frozen))
}

fn beside_the_owner(
    path: PathBuf,
    options: SqliteOptions,
    conn: Connection,
    frozen: bool,
) -> SqliteStore {
    SqliteStore {
        path,
        options,
        frozen,
        readers: Mutex::default(),
        writer: Mutex::new(conn),
        checkpoints: None,
        news: AtomicI64::new(0),
        _lock: None,
    }
}

/// Opening can fail for reasons that SQLite does not know.
enum Setup {
    Refused(StoreError),
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Setup {
    fn from(error: rusqlite::Error) -> Setup {
        Setup::Sqlite(error)
    }
}

fn prepare(
    writer: &mut Connection,
    path: &Path,
    options: &SqliteOptions,
) -> std::result::Result<(), Setup> {
    if writer.is_readonly("main")? {
        let what = format!(
            "{} may not be written; check the permissions of the file, or open it for reading",
            path.display()
        );
        return Err(Setup::Refused(StoreError::new(
            StoreErrorKind::ReadOnly,
            what,
        )));
    }
    writer.pragma_update(None, "page_size", options.page_size)?;
    // Before anything is written: a file of someone else is left as it was.
    version(writer)?
        .may_be_migrated(path)
        .map_err(Setup::Refused)?;
    let mode: String = writer.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        let what = format!(
            "{}: this file system has no shared memory, which write-ahead logging needs; keep the \
             database on a local disk",
            path.display()
        );
        return Err(Setup::Refused(StoreError::new(
            StoreErrorKind::Unusable,
            what,
        )));
    }
    settle(writer, options)?;
    if let Some(pages) = options.max_pages {
        writer.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
    }
    let transaction = writer.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    migrate(&transaction)?;
    // The lock proves that the process that opened these has ended.
    transaction.execute("UPDATE sessions SET dead = 1 WHERE dead = 0", [])?;
    keep_templates(&transaction)?;
    transaction.commit()?;
    Ok(())
}

fn migrate(conn: &Connection) -> rusqlite::Result<()> {
    let done = version(conn)?.schema;
    for (index, statements) in MIGRATIONS.iter().enumerate() {
        let number = index as i64 + 1;
        if number > done {
            conn.execute_batch(statements)?;
            conn.pragma_update(None, "user_version", number)?;
        }
    }
    if done == 0 {
        conn.pragma_update(None, "application_id", APPLICATION)?;
    }
    Ok(())
}

/// The view of the log reads them. They never change under a codec's number, so what is kept stays.
fn keep_templates(conn: &Connection) -> rusqlite::Result<()> {
    let mut keep = conn.prepare("INSERT OR IGNORE INTO event_templates VALUES (?1, ?2, ?3)")?;
    for template in chunk::templates() {
        keep.execute(params![template.codec, template.event_type, template.json])?;
    }
    Ok(())
}

/// What the header says.
struct Version {
    application: i32,
    schema: i64,
    tables: i64,
}

fn version(conn: &Connection) -> rusqlite::Result<Version> {
    let number = |what: &str| conn.query_row(what, [], |row| row.get(0));
    Ok(Version {
        application: conn.query_row("PRAGMA application_id", [], |row| row.get(0))?,
        schema: number("PRAGMA user_version")?,
        tables: number("SELECT count(*) FROM sqlite_schema")?,
    })
}

impl Version {
    fn may_be_migrated(&self, path: &Path) -> Result<()> {
        let empty = self.application == 0 && self.tables == 0;
        if self.application != APPLICATION && !empty {
            let what = format!(
                "{} is a database of another program; name another file",
                path.display()
            );
            return Err(StoreError::new(StoreErrorKind::Corrupt, what));
        }
        if self.schema > SCHEMA {
            let what = format!(
                "{} has schema version {}, this program knows versions up to {SCHEMA}; use the \
                 newer program that wrote it",
                path.display(),
                self.schema
            );
            return Err(StoreError::new(StoreErrorKind::Newer, what));
        }
        Ok(())
    }

    fn must_be_current(&self, path: &Path) -> Result<()> {
        self.may_be_migrated(path)?;
        if self.schema < SCHEMA {
            let what = format!(
                "{} has schema version {}, this program needs {SCHEMA}; open it once as its owner, \
                 which brings it up to date",
                path.display(),
                self.schema
            );
            return Err(StoreError::new(StoreErrorKind::Older, what));
        }
        Ok(())
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|error| said(path, &error))?;
    conn.set_prepared_statement_cache_capacity(128);
    Ok(conn)
}

/// What holds for every connection that writes.
fn settle(conn: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    conn.busy_timeout(options.patience)?;
    let synchronous = options.durability.name();
    conn.execute_batch(&format!(
        "PRAGMA synchronous = {synchronous};
         PRAGMA cache_size = -{};
         PRAGMA temp_store = MEMORY;
         PRAGMA foreign_keys = OFF;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA journal_size_limit = {};",
        options.cache_bytes / 1024,
        u64::from(options.checkpoint_bytes) * 4,
    ))
}

/// A connection that copies the write-ahead log.
pub(super) fn checkpointer(path: &Path, options: &SqliteOptions) -> Result<Connection> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let small = SqliteOptions {
        cache_bytes: 1 << 20,
        ..options.clone()
    };
    settle(&conn, &small).map_err(|error| said(path, &error))?;
    Ok(conn)
}

/// A connection that only reads.
pub(super) fn reader(path: &Path, options: &SqliteOptions, frozen: bool) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let conn = if frozen {
        connect(
            Path::new(&frozen_address(path)),
            flags | OpenFlags::SQLITE_OPEN_URI,
        )?
    } else {
        connect(path, flags)?
    };
    conn.busy_timeout(options.patience)
        .and_then(|()| {
            conn.execute_batch(
                "PRAGMA cache_size = -8192; PRAGMA temp_store = MEMORY; PRAGMA query_only = ON;
                 SELECT 1 FROM sqlite_schema LIMIT 1;",
            )
        })
        .map_err(|error| said(path, &error))?;
    Ok(conn)
}

fn frozen_address(path: &Path) -> String {
    let mut address = String::from("file:");
    for letter in path.to_string_lossy().chars() {
        match letter {
            '%' => address.push_str("%25"),
            '?' => address.push_str("%3f"),
            '#' => address.push_str("%23"),
            other => address.push(other),
        }
    }
    address.push_str("?immutable=1");
    address
}

fn has_log(path: &Path) -> bool {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    std::fs::metadata(PathBuf::from(name)).is_ok_and(|it| it.len() > 0)
}

fn must_exist(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(unusable(path, &error)),
    }
}

/// What an error of the file system means.
pub(super) fn unusable(path: &Path, error: &io::Error) -> StoreError {
    let at = path.display();
    let (kind, advice) = match error.kind() {
        io::ErrorKind::NotFound => (
            StoreErrorKind::Unusable,
            "it is not there; start a run, or name the right file",
        ),
        io::ErrorKind::PermissionDenied => (
            StoreErrorKind::Unusable,
            "this user may not use it; change its permissions or name another place",
        ),
        io::ErrorKind::ReadOnlyFilesystem => (
            StoreErrorKind::ReadOnly,
            "the file system may not be written; open the store for reading, or move it",
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => (
            StoreErrorKind::Full,
            "there is no room on the disk; make some",
        ),
        _ => (StoreErrorKind::Unusable, "it cannot be used"),
    };
    StoreError::new(kind, format!("{at}: {advice} ({error})"))
}
