//! A store as an earlier release left it: the process that had the store is gone, and the file gets the tables, the events
//! and the snapshots that an earlier release would have written. The next process is of this release: it must open the
//! store, bring it up to date and go on with the runs.
//!
//! Only what an earlier release could have written is written: a run keeps its log if its steps were lost more often than
//! attempts were left, because an earlier release would have decided otherwise.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, params};
use stepwell_engine::chunk::{self, ChunkWriter};
use stepwell_engine::store::{RunNo, StoreErrorKind};
use stepwell_kernel::contract::Recorder;
use stepwell_kernel::event::{Body, Event};
use stepwell_kernel::plan::{Net, Plan, StepRef};
use stepwell_stores::sqlite::{SqliteOptions, SqliteStore};

use crate::rng::Rng;

/// The migrations that earlier releases had.
const MIGRATIONS: [&str; 3] = [
    include_str!("../../stores/migrations/sqlite/0001_start.sql"),
    include_str!("../../stores/migrations/sqlite/0002_views.sql"),
    include_str!("../../stores/migrations/sqlite/0003_unique_keys_and_view_rows.sql"),
];

/// The first earlier version that is written.
const FIRST: i64 = 2;

/// Added to the version of a snapshot that has a seal; the seal and the hash before it follow the state.
const SEALED: i64 = 1 << 16;
const SEAL_BYTES: usize = 64;

/// What a store that was made older has.
#[derive(Debug, Default)]
pub(crate) struct Aged {
    /// The version of its tables.
    pub(crate) version: i64,
    /// The runs whose logs are other than before.
    pub(crate) rewritten: Vec<RunNo>,
}

/// Makes the store older. Nobody may have it open.
pub(crate) fn age(file: &Path, rng: &mut Rng) -> Result<Aged, String> {
    refuses_newer(file)?;
    let to = i64::try_from(rng.between(2, 3)).unwrap_or(FIRST);
    let aged = Connection::open(file).and_then(|mut conn| {
        if keys_meet(&conn)? {
            return Ok(Aged::default());
        }
        let transaction = conn.transaction()?;
        let rewritten = rewrite_logs(&transaction)?;
        unseal(&transaction)?;
        downgrade(&transaction, to)?;
        transaction.commit()?;
        conn.close().map_err(|(_, error)| error)?;
        Ok(Aged {
            version: to,
            rewritten,
        })
    });
    aged.map_err(|error| format!("the store cannot be made older: {error}"))
}

/// What a bad migration would do.
pub(crate) fn lose_rows(file: &Path) -> Result<(), String> {
    let lost = Connection::open(file).and_then(|conn| {
        conn.execute_batch(
            "DELETE FROM tasks; DELETE FROM waits; UPDATE heads SET wake_at = NULL, due_at = NULL",
        )
    });
    lost.map_err(|error| error.to_string())
}

/// A store of a release that does not exist yet is refused, and left as it is.
fn refuses_newer(file: &Path) -> Result<(), String> {
    let set = |version: i64| {
        let conn = Connection::open(file)?;
        let before: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        conn.pragma_update(None, "user_version", version)?;
        conn.close().map_err(|(_, error)| error)?;
        Ok(before)
    };
    let said = |error: rusqlite::Error| error.to_string();
    let before = set(99).map_err(said)?;
    let opened = SqliteStore::open(file, SqliteOptions::default());
    set(before).map_err(said)?;
    match opened {
        Err(error) if error.kind == StoreErrorKind::Newer => Ok(()),
        Err(error) => Err(format!("a store of a later release gives {error}")),
        Ok(_) => Err("a store of a later release was opened".into()),
    }
}

/// Writes the logs without what earlier releases did not write: how an execution counts that was lost.
fn rewrite_logs(conn: &Connection) -> rusqlite::Result<Vec<RunNo>> {
    let mut rewritten = Vec::new();
    let mut runs = conn.prepare(
        "SELECT run_no, run_id, net FROM runs JOIN plans USING (plan_no) ORDER BY run_no",
    )?;
    let runs = runs.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    for row in runs {
        let (run, run_id, net): (i64, String, String) = row?;
        let net: Option<Net> = serde_json::from_str(&net).ok();
        let Some(plan) = net.and_then(|net| Plan::new(net).ok()) else {
            continue;
        };
        if rewrite(conn, run, &run_id, &plan)? {
            rewritten.push(RunNo(run));
        }
    }
    Ok(rewritten)
}

fn rewrite(conn: &Connection, run: i64, run_id: &str, plan: &Plan) -> rusqlite::Result<bool> {
    let mut log = conn.prepare(
        "SELECT log_no, first_seq, codec, body FROM log WHERE run_no = ?1 ORDER BY first_seq",
    )?;
    let log = log.query_map([run], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    })?;
    let mut chunks: Vec<(i64, Vec<Event>)> = Vec::new();
    for row in log {
        let (no, first, codec, body): (i64, i64, i16, String) = row?;
        let first = u64::try_from(first).unwrap_or(0);
        let Ok(events) = chunk::decode(first, codec, &body) else {
            return Ok(false);
        };
        chunks.push((no, events));
    }
    let mut tries: BTreeMap<(StepRef, u32), u32> = BTreeMap::new();
    let mut changed = false;
    for event in chunks.iter_mut().flat_map(|(_, events)| events) {
        match &mut event.body {
            Body::StepExecutionFailed {
                step,
                logical,
                loss,
                ..
            } => {
                changed |= loss.take().is_some();
                let tries = tries.entry((*step, *logical)).or_default();
                *tries += 1;
                if *tries >= plan.step(step.step).retry.max_executions {
                    return Ok(false);
                }
            }
            // How often an undo is tried is not counted here.
            Body::UndoExecutionFailed { loss, .. } if loss.is_some() => return Ok(false),
            _ => {}
        }
    }
    if !changed {
        return Ok(false);
    }
    let (mut writer, mut recorder) = (ChunkWriter::default(), Recorder::new(run_id.to_owned()));
    for (no, events) in &chunks {
        let Ok(chunk) = writer.write(&mut recorder, plan, events) else {
            return Err(rusqlite::Error::InvalidQuery);
        };
        conn.execute(
            "UPDATE log SET body = ?2, digests = ?3 WHERE log_no = ?1",
            params![no, chunk.body, chunk.digests],
        )?;
    }
    // A snapshot of the state is of the log that was.
    conn.execute("DELETE FROM snapshots WHERE run_no = ?1", [run])?;
    conn.execute("DELETE FROM projections WHERE run_no = ?1", [run])?;
    Ok(true)
}

/// Snapshots had no seal.
fn unseal(conn: &Connection) -> rusqlite::Result<()> {
    let cut = i64::try_from(SEAL_BYTES).unwrap_or(0);
    conn.execute(
        "UPDATE snapshots SET version = version - ?1, body = substr(body, 1, length(body) - ?2) WHERE version > ?1",
        [SEALED, cut],
    )?;
    Ok(())
}

/// The tables and views of an earlier version, with the rows of today.
fn downgrade(conn: &Connection, to: i64) -> rusqlite::Result<()> {
    let earlier = Connection::open_in_memory()?;
    for statements in &MIGRATIONS[..usize::try_from(to).unwrap_or(0)] {
        earlier.execute_batch(statements)?;
    }
    let names = |conn: &Connection, kind: &str| -> rusqlite::Result<Vec<(String, String)>> {
        let mut found = conn
            .prepare("SELECT name, sql FROM sqlite_schema WHERE type = ?1 AND sql IS NOT NULL")?;
        let found = found.query_map([kind], |row| Ok((row.get(0)?, row.get(1)?)))?;
        found.collect()
    };
    for (trigger, _) in names(conn, "trigger")? {
        conn.execute_batch(&format!("DROP TRIGGER {trigger}"))?;
    }
    for (view, _) in names(conn, "view")? {
        conn.execute_batch(&format!("DROP VIEW {view}"))?;
    }
    conn.execute_batch(KEYS_OF_PLANS)?;
    let old = names(&earlier, "table")?;
    let now = names(conn, "table")?;
    for (table, sql) in &old {
        if !now.iter().any(|(it, _)| it == table) {
            conn.execute_batch(sql)?;
        }
    }
    if to < 3 {
        conn.execute_batch(LINEAR_ROWS)?;
    }
    for (table, _) in &now {
        if !old.iter().any(|(it, _)| it == table) {
            conn.execute_batch(&format!("DROP TABLE {table}"))?;
        }
    }
    let earlier_indexes = names(&earlier, "index")?;
    for index in names(conn, "index")? {
        if !earlier_indexes.contains(&index) {
            conn.execute_batch(&format!("DROP INDEX {}", index.0))?;
        }
    }
    for (table, _) in &old {
        let had = columns(&earlier, table)?;
        for column in columns(conn, table)? {
            if !had.contains(&column) {
                conn.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN {column}"))?;
            }
        }
    }
    for (index, sql) in earlier_indexes {
        let there = names(conn, "index")?;
        if !there.iter().any(|(it, _)| *it == index) {
            conn.execute_batch(&sql)?;
        }
    }
    for (_, sql) in names(&earlier, "view")? {
        conn.execute_batch(&sql)?;
    }
    conn.pragma_update(None, "user_version", to)
}

/// Whether two tenants have the same unique key: an earlier release would have refused the second run.
fn keys_meet(conn: &Connection) -> rusqlite::Result<bool> {
    let twice = "SELECT EXISTS (SELECT 1 FROM unique_keys GROUP BY key HAVING count(*) > 1)";
    conn.query_row(twice, [], |row| row.get(0))
}

/// The names of the columns of a table.
fn columns(conn: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut found = conn.prepare("SELECT name FROM pragma_table_info(?1)")?;
    let found = found.query_map([table], |row| row.get(0))?;
    found.collect()
}

/// Unique keys as they were before they belonged to a tenant.
const KEYS_OF_PLANS: &str = "
CREATE TABLE keys_of_plans (
  plan_id TEXT NOT NULL,
  key     TEXT NOT NULL,
  run_no  INTEGER NOT NULL,
  PRIMARY KEY (plan_id, key)
) STRICT, WITHOUT ROWID;
INSERT INTO keys_of_plans SELECT '', key, run_no FROM unique_keys;
DROP TABLE unique_keys;
ALTER TABLE keys_of_plans RENAME TO unique_keys;";

/// The rows of linear runs as they were before views of all languages had one table.
const LINEAR_ROWS: &str = "
INSERT INTO linear_instances
SELECT run_no, body ->> 'biz_key', body ->> 'workflow_type', body ->> 'workflow_version', body ->> 'status',
  body ->> 'current_step_seq', body ->> 'current_step_type', body ->> 'started_at', body ->> 'completed_at',
  body ->> 'failed_at'
FROM view_rows WHERE view_name = 'workflow_instance';
INSERT INTO linear_steps
SELECT run_no, row_no, body ->> 'step_type', body ->> 'status', body ->> 'attempts', body ->> 'max_attempts',
  body ->> 'next_run_at', body ->> 'waiting_event_type', body ->> 'deadline_at', body ->> 'locked_by',
  body ->> 'locked_until', body ->> 'last_error'
FROM view_rows WHERE view_name = 'workflow_step';
";
