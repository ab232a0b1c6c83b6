//! The store as a whole: its secret, its size, runs in quarantine, and rows that are made anew from the log.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _, params};
use stepwell_engine::store::{
    DerivedRows, Health, KeptRows, Maintenance, Result, RunColumns, RunNo, UniqueKey, WaitingCounts,
};
use stepwell_kernel::time::Time;

use super::commit::write_labels;
use super::{SqliteStore, check, run_list};

impl Maintenance for SqliteStore {
    fn secret(&self) -> Result<[u8; 32]> {
        self.read(|conn| {
            conn.prepare_cached("SELECT value FROM settings WHERE name = 'secret'")?
                .query_row([], |row| row.get(0))
        })
    }

    fn check(&self) -> Result<Health> {
        check::check(self)
    }

    /// Of pages in use; the write-ahead log is not counted.
    fn bytes(&self) -> Result<u64> {
        let pages = "SELECT (page_count - freelist_count) * page_size
             FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
        self.read(|conn| conn.query_row(pages, [], |row| row.get(0)))
    }

    fn waiting(&self, now: Time) -> Result<WaitingCounts> {
        self.read(|conn| {
            conn.prepare_cached(
                "SELECT (SELECT count(*) FROM heads WHERE queued = 1),
                        (SELECT count(*) FROM tasks WHERE leased = 0 AND stopping = 0),
                        (SELECT count(*) FROM tasks WHERE leased = 1),
                        (SELECT count(*) FROM outbox), (SELECT min(since) FROM outbox),
                        (SELECT count(*) FROM dead_letters),
                        (SELECT count(*) FROM sessions WHERE dead = 0 AND until >= ?1)",
            )?
            .query_row([now.0], |row| {
                Ok(WaitingCounts {
                    queued: row.get(0)?,
                    offered: row.get(1)?,
                    leased: row.get(2)?,
                    outbox: row.get(3)?,
                    outbox_since: row.get::<_, Option<i64>>(4)?.map(Time),
                    dead_letters: row.get(5)?,
                    sessions: row.get(6)?,
                })
            })
        })
    }

    fn still_there(&self) -> Result<()> {
        self.looks.look()
    }

    fn quarantine(&self, run: RunNo, why: &str, now: Time) -> Result<()> {
        let put =
            "INSERT INTO quarantine (run_no, why, at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
        self.write(|conn| conn.execute(put, params![run.0, why, now.0]).map(|_| ()))
    }

    fn quarantined(&self) -> Result<Vec<(RunNo, String)>> {
        self.read(|conn| {
            conn.prepare_cached("SELECT run_no, why FROM quarantine ORDER BY at, run_no")?
                .query_map([], |row| Ok((RunNo(row.get(0)?), row.get(1)?)))?
                .collect()
        })
    }

    fn release(&self, run: RunNo) -> Result<()> {
        let gone = "DELETE FROM quarantine WHERE run_no = ?1";
        self.write(|conn| conn.execute(gone, [run.0]).map(|_| ()))
    }

    fn scrubbed(&self) -> Result<Option<RunNo>> {
        self.read(|conn| {
            conn.prepare_cached("SELECT value FROM settings WHERE name = 'scrubbed'")?
                .query_row([], |row| row.get(0).map(RunNo))
                .optional()
        })
    }

    fn set_scrubbed(&self, run: Option<RunNo>) -> Result<()> {
        self.write(|conn| {
            match run {
                Some(run) => conn.execute(
                    "INSERT OR REPLACE INTO settings (name, value) VALUES ('scrubbed', ?1)",
                    [run.0],
                ),
                None => conn.execute("DELETE FROM settings WHERE name = 'scrubbed'", []),
            }
            .map(|_| ())
        })
    }

    fn kept_rows(&self, run: RunNo) -> Result<Option<KeptRows>> {
        self.read(|conn| kept_rows(conn, run))
    }

    fn correct(&self) -> Result<Vec<String>> {
        self.write(check::correct)
    }

    fn rebuild(&self, run: RunNo, rows: &DerivedRows, now: Time) -> Result<()> {
        self.write(|conn| rebuild(conn, run, rows, now))
    }
}

fn kept_rows(conn: &Connection, run: RunNo) -> rusqlite::Result<Option<KeptRows>> {
    let columns = conn
        .prepare_cached(
            "SELECT runs.tenant, project, environment, parent, event_key, created_at, due_at, priority, heads.tenant
             FROM runs JOIN heads USING (run_no) WHERE run_no = ?1",
        )?
        .query_row([run.0], |row| {
            let columns = RunColumns {
                tenant: row.get(0)?,
                project: row.get(1)?,
                environment: row.get(2)?,
                parent: row.get(3)?,
                event_key: row.get(4)?,
                created_at: Time(row.get(5)?),
                priority: row.get(7)?,
                labels: BTreeMap::new(),
            };
            let due_at = row.get::<_, Option<i64>>(6)?.map(Time);
            Ok((columns, due_at, row.get(8)?))
        })
        .optional()?;
    let Some((mut columns, due_at, head_tenant)) = columns else {
        return Ok(None);
    };
    columns.labels = run_list::labels(conn, run.0)?;
    let mut keys = conn.prepare_cached("SELECT key FROM event_keys WHERE run_no = ?1")?;
    let mut waits =
        conn.prepare_cached("SELECT step, event_type, event_key FROM waits WHERE run_no = ?1")?;
    let mut unique_keys =
        conn.prepare_cached("SELECT tenant, key FROM unique_keys WHERE run_no = ?1")?;
    let mut view_rows =
        conn.prepare_cached("SELECT view_name, row_no, body FROM view_rows WHERE run_no = ?1")?;
    Ok(Some(KeptRows {
        columns,
        head_tenant,
        due_at,
        keys: keys
            .query_map([run.0], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?,
        waits: waits
            .query_map([run.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<rusqlite::Result<_>>()?,
        unique_keys: unique_keys
            .query_map([run.0], |row| {
                Ok(UniqueKey {
                    tenant: row.get(0)?,
                    key: row.get(1)?,
                })
            })?
            .collect::<rusqlite::Result<_>>()?,
        view_rows: view_rows
            .query_map([run.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<rusqlite::Result<_>>()?,
    }))
}

fn rebuild(conn: &Connection, run: RunNo, rows: &DerivedRows, now: Time) -> rusqlite::Result<()> {
    let (head, columns) = (&rows.head, &rows.columns);
    conn.execute(
        "UPDATE runs SET tenant = ?2, project = ?3, environment = ?4, parent = ?5, event_key = ?6, created_at = ?7,
           priority = ?8
         WHERE run_no = ?1",
        params![
            run.0,
            columns.tenant,
            columns.project,
            columns.environment,
            columns.parent,
            columns.event_key,
            columns.created_at.0,
            columns.priority,
        ],
    )?;
    conn.execute(
        "INSERT INTO heads (run_no, version, status, substatus, session, wake_at, due_at, queued, ended_at,
           commit_session, commit_number, tenant)
         VALUES (?1, 1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, 0, 0, ?8)
         ON CONFLICT DO UPDATE SET version = version + 1, status = ?2, substatus = ?3, session = ?4,
           wake_at = ?5, due_at = ?5, queued = ?6, ended_at = ?7, tenant = ?8",
        params![
            run.0,
            head.status,
            head.substatus,
            head.session.map(|it| it.0),
            head.wake_at.map(|it| it.0),
            head.queued,
            head.ended_at.map(|it| it.0),
            columns.tenant,
        ],
    )?;
    conn.execute(
        "UPDATE heads SET slots = ?2 WHERE run_no = ?1",
        params![run.0, crate::slots_text(&head.slots)],
    )?;
    conn.execute("DELETE FROM run_labels WHERE run_no = ?1", [run.0])?;
    write_labels(conn, run, &columns.labels)?;
    conn.execute("DELETE FROM event_keys WHERE run_no = ?1", [run.0])?;
    let mut key = conn.prepare_cached("INSERT INTO event_keys (run_no, key) VALUES (?1, ?2)")?;
    for it in &rows.keys {
        key.execute(params![run.0, it])?;
    }
    // Rows with another key are no rows of this run's waits.
    conn.execute(
        "DELETE FROM waits WHERE run_no = ?1 AND event_key <> ?2",
        params![run.0, columns.event_key],
    )?;
    let mut there = conn.prepare_cached("SELECT step, event_type FROM waits WHERE run_no = ?1")?;
    let there = there.query_map([run.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let there: Vec<(String, String)> = there.collect::<rusqlite::Result<_>>()?;
    for (step, _) in there.iter().filter(|it| !rows.waits.contains(it)) {
        conn.execute(
            "DELETE FROM waits WHERE run_no = ?1 AND step = ?2",
            params![run.0, step],
        )?;
    }
    for (step, event_type) in rows.waits.iter().filter(|it| !there.contains(it)) {
        conn.execute(
            "INSERT INTO waits (run_no, step, event_type, event_key, since, given)
             VALUES (?1, ?2, ?3, ?4, ?5, 0)",
            params![run.0, step, event_type, columns.event_key, now.0],
        )?;
    }
    conn.execute("DELETE FROM unique_keys WHERE run_no = ?1", [run.0])?;
    if let Some(unique) = &rows.unique_key {
        conn.execute(
            "INSERT INTO unique_keys (tenant, key, run_no) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            params![unique.tenant, unique.key, run.0],
        )?;
    }
    // All views of the run at once: by name they would need a statement each.
    conn.execute("DELETE FROM view_rows WHERE run_no = ?1", [run.0])?;
    for row in &rows.view_rows {
        conn.execute(
            "INSERT INTO view_rows (view_name, run_no, row_no, body) VALUES (?1, ?2, ?3, ?4)",
            params![row.view, run.0, row.row_no, row.body],
        )?;
    }
    conn.execute("DELETE FROM snapshots WHERE run_no = ?1", [run.0])?;
    Ok(())
}
