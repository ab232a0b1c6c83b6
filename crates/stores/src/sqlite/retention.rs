//! Deletes runs that have ended, with everything that belongs to them. Their pages are used again.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};
use stepwell_engine::store::{DeleteFilter, DeletedRun, Result, Retention, RunNo};
use stepwell_kernel::time::Time;

use super::SqliteStore;
use super::tasks::limit_of;

/// Runs that nothing needs any more. The sinks that wait are few, and what waits for one is found by an index.
const OVER: &str = "WITH RECURSIVE waiting (sink) AS (
       SELECT min(sink) FROM outbox
       UNION ALL SELECT (SELECT min(outbox.sink) FROM outbox WHERE outbox.sink > waiting.sink)
       FROM waiting WHERE waiting.sink IS NOT NULL)
     SELECT heads.run_no, run_id, heads.tenant, status, ended_at
     FROM heads INDEXED BY heads_by_end CROSS JOIN runs ON runs.run_no = heads.run_no
     WHERE ended_at < ?1 AND session IS NULL AND slots IS NULL
       AND NOT EXISTS (SELECT 1 FROM quarantine WHERE quarantine.run_no = heads.run_no)
       AND NOT EXISTS (SELECT 1 FROM waiting CROSS JOIN outbox
         ON outbox.sink = waiting.sink AND outbox.run_no = heads.run_no)
       AND NOT EXISTS (SELECT 1 FROM mailbox WHERE mailbox.run_no = heads.run_no AND answer IS NULL)
       AND NOT EXISTS (SELECT 1 FROM runs AS parent CROSS JOIN heads AS its
         ON its.run_no = parent.run_no
         WHERE parent.run_id = runs.parent AND its.ended_at IS NULL)";

/// Tables whose rows are found by the number of their run.
const BY_NUMBER: [&str; 9] = [
    "log",
    "event_keys",
    "tasks",
    "waits",
    "snapshots",
    "projections",
    "run_labels",
    "heads",
    "runs",
];

/// Tables without an index for it, and with few rows of runs that have ended: they are gone through once for all runs.
const THROUGH: [&str; 4] = ["unique_keys", "mailbox", "dead_letters", "alerts"];

impl Retention for SqliteStore {
    fn delete_ended(
        &self,
        filter: &DeleteFilter,
        limit: usize,
        now: Time,
    ) -> Result<Vec<DeletedRun>> {
        self.write(|conn| {
            let ended = over(conn, filter, limit, now)?;
            if !ended.is_empty() {
                delete(conn, &ended)?;
            }
            Ok(ended)
        })
    }
}

fn over(
    conn: &Connection,
    filter: &DeleteFilter,
    limit: usize,
    now: Time,
) -> rusqlite::Result<Vec<DeletedRun>> {
    let mut values: Vec<Value> = vec![filter.ended_before.min(now).0.into()];
    let mut sql = OVER.to_owned();
    let mut place = |value: Value| {
        values.push(value);
        format!("?{}", values.len())
    };
    if let Some(tenant) = &filter.tenant {
        let tenant = place(tenant.clone().into());
        sql.push_str(&format!(" AND heads.tenant = {tenant}"));
    }
    if !filter.statuses.is_empty() {
        let statuses = filter.statuses.iter();
        let statuses: Vec<String> = statuses.map(|it| place(it.clone().into())).collect();
        sql.push_str(&format!(" AND status IN ({})", statuses.join(", ")));
    }
    sql.push_str(&format!(
        " ORDER BY ended_at, heads.run_no LIMIT {}",
        limit_of(limit)
    ));
    let deleted = |row: &Row<'_>| {
        Ok(DeletedRun {
            run: RunNo(row.get(0)?),
            run_id: row.get(1)?,
            tenant: row.get(2)?,
            status: row.get(3)?,
            ended_at: Time(row.get(4)?),
        })
    };
    conn.prepare_cached(&sql)?
        .query_map(params_from_iter(values), deleted)?
        .collect()
}

fn delete(conn: &Connection, ended: &[DeletedRun]) -> rusqlite::Result<()> {
    let numbers: Vec<String> = ended.iter().map(|it| it.run.0.to_string()).collect();
    let numbers = format!("[{}]", numbers.join(","));
    for table in THROUGH {
        conn.prepare_cached(&format!(
            "DELETE FROM {table} WHERE run_no IN (SELECT value FROM json_each(?1))"
        ))?
        .execute([&numbers])?;
    }
    let views = views(conn)?;
    for run in ended {
        for table in BY_NUMBER {
            conn.prepare_cached(&format!("DELETE FROM {table} WHERE run_no = ?1"))?
                .execute([run.run.0])?;
        }
        for view in &views {
            conn.prepare_cached("DELETE FROM view_rows WHERE view_name = ?1 AND run_no = ?2")?
                .execute(params![view, run.run.0])?;
        }
    }
    Ok(())
}

/// The names of the views that have rows: few, and the first part of the key of the rows.
fn views(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    conn.prepare_cached(
        "WITH RECURSIVE views (name) AS (
           SELECT min(view_name) FROM view_rows
           UNION ALL SELECT (SELECT min(view_name) FROM view_rows WHERE view_name > views.name)
           FROM views WHERE views.name IS NOT NULL)
         SELECT name FROM views WHERE name IS NOT NULL",
    )?
    .query_map([], |row| row.get(0))?
    .collect()
}
