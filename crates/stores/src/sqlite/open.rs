//! Opening a database: its directory, its lock, its schema, and what earlier owners left behind.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, params};
use stepwell_engine::chunk;
use stepwell_engine::store::{Result, StoreError, StoreErrorKind};

use super::checkpoint::Checkpoints;
use super::errors::said;
use super::watch::{Looks, Watch, WatchedFile};
use super::{Mode, SqliteOptions, SqliteStore, lock, private, tallies, wal_witness};

/// In the header of each database of this program ("Step").
const APPLICATION: i32 = 0x5374_6570;

/// Statements that change the schema, oldest first. The schema's version is how many have been run.
pub(super) const MIGRATIONS: [&str; 13] = [
    include_str!("../../migrations/sqlite/0001_start.sql"),
    include_str!("../../migrations/sqlite/0002_views.sql"),
    include_str!("../../migrations/sqlite/0003_unique_keys_and_view_rows.sql"),
    include_str!("../../migrations/sqlite/0004_quarantine.sql"),
    include_str!("../../migrations/sqlite/0005_tallies.sql"),
    include_str!("../../migrations/sqlite/0006_sinks.sql"),
    include_str!("../../migrations/sqlite/0007_priority.sql"),
    include_str!("../../migrations/sqlite/0008_linear_columns.sql"),
    include_str!("../../migrations/sqlite/0009_ranges.sql"),
    include_str!("../../migrations/sqlite/0010_documents_and_audit_log.sql"),
    include_str!("../../migrations/sqlite/0011_run_list.sql"),
    include_str!("../../migrations/sqlite/0012_runs_of_a_tenant.sql"),
    include_str!("../../migrations/sqlite/0013_keys_of_a_tenant.sql"),
];

/// The version of the schema that counts the rows of tables.
const TALLIES_SINCE: i64 = 5;

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
        private::folder(directory).map_err(|error| unusable(directory, &error))?;
    }
    if path.is_dir() {
        let what = format!("{} is a directory; name a file in it", path.display());
        return Err(StoreError::new(StoreErrorKind::Unusable, what));
    }
    let held = lock::take(&path)?;
    private::file(&path).map_err(|error| unusable(&path, &error))?;
    wal_witness::check(&path)?;
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
    let page_size = writer.query_row("PRAGMA page_size", [], |row| row.get(0));
    let page_size = page_size.map_err(|error| said(&path, &error))?;
    let sizes = (page_size, log_limit(&options));
    let watch = Watch::start(&path, sizes, Arc::clone(&checkpoints))?;
    Ok(SqliteStore {
        path,
        options,
        frozen: false,
        readers: Mutex::default(),
        writer: Mutex::new(writer),
        checkpoints: Some(checkpoints),
        looks: Looks::AtAll(watch),
        news: AtomicI64::new(0),
        _lock: Some(held),
    })
}

fn visit(path: PathBuf, options: SqliteOptions) -> Result<SqliteStore> {
    must_exist(&path)?;
    wal_witness::check_unless_held(&path)?;
    let writer = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    settle(&writer, &options)
        .and_then(|()| version(&writer))
        .map_err(|error| said(&path, &error))
        .and_then(|version| version.must_be_current(&path))?;
    tallies::keep(&writer).map_err(|error| said(&path, &error))?;
    beside_the_owner(path, options, writer, false)
}

fn look(path: PathBuf, options: SqliteOptions) -> Result<SqliteStore> {
    must_exist(&path)?;
    wal_witness::check_unless_held(&path)?;
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
    beside_the_owner(path, options, conn, frozen)
}

fn beside_the_owner(
    path: PathBuf,
    options: SqliteOptions,
    conn: Connection,
    frozen: bool,
) -> Result<SqliteStore> {
    let looks = Looks::AtDatabase(WatchedFile::at(path.clone())?);
    Ok(SqliteStore {
        path,
        options,
        frozen,
        readers: Mutex::default(),
        writer: Mutex::new(conn),
        checkpoints: None,
        looks,
        news: AtomicI64::new(0),
        _lock: None,
    })
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
    if migrate(&transaction)? < TALLIES_SINCE {
        tallies::count_anew(&transaction)?;
    }
    tallies::keep(&transaction)?;
    // The lock proves that the process that opened these has ended.
    transaction.execute("UPDATE sessions SET dead = 1 WHERE dead = 0", [])?;
    keep_templates(&transaction)?;
    transaction.commit()?;
    Ok(())
}

/// Says which version of the schema was there before.
fn migrate(conn: &Connection) -> rusqlite::Result<i64> {
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
    Ok(done)
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
pub(super) struct Version {
    application: i32,
    schema: i64,
    tables: i64,
}

pub(super) fn version(conn: &Connection) -> rusqlite::Result<Version> {
    let number = |what: &str| conn.query_row(what, [], |row| row.get(0));
    Ok(Version {
        application: conn.query_row("PRAGMA application_id", [], |row| row.get(0))?,
        schema: number("PRAGMA user_version")?,
        tables: number("SELECT count(*) FROM sqlite_schema")?,
    })
}

impl Version {
    pub(super) fn may_be_migrated(&self, path: &Path) -> Result<()> {
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
                "{} has schema version {}, this program needs {SCHEMA}; run `stepwell db migrate`",
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
    // Without the guarantee SQLite may look at bound values when it plans a statement, and then plans the
    // statement again whenever other values are bound: a kept statement would be compiled at every use.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(|error| said(path, &error))?;
    Ok(conn)
}

/// The size to which SQLite cuts a write-ahead log that has grown beyond it, when the log begins anew.
fn log_limit(options: &SqliteOptions) -> u64 {
    u64::from(options.checkpoint_bytes) * 4
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
        log_limit(options),
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

pub(super) fn must_exist(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(unusable(path, &error)),
    }
}

/// What an error of the file system means.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the errors of the system are a list that grows"
)]
pub(super) fn unusable(path: &Path, error: &io::Error) -> StoreError {
    let at = path.display();
    let (kind, advice) = match error.kind() {
        io::ErrorKind::NotFound => (
            StoreErrorKind::Unusable,
            "the file does not exist; start a run, or name the right file",
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

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::StatementStatus;

    #[test]
    fn a_kept_statement_is_not_compiled_again_for_other_values() {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let conn = connect(Path::new(":memory:"), flags).unwrap();
        conn.execute_batch(MIGRATIONS[0]).unwrap();
        let sql = "SELECT step FROM waits WHERE event_type = ?1 AND event_key = ?2 LIMIT ?3";
        let compiled_again = || {
            let mut kept = conn.prepare_cached(sql).unwrap();
            assert!(!kept.exists(params!["paid", "order-1", 7]).unwrap());
            kept.get_status(StatementStatus::RePrepare)
        };
        assert_eq!((compiled_again(), compiled_again()), (0, 0));
    }
}
