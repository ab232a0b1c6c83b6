//! Tasks: work for workers that serve its queue.

use std::sync::LazyLock;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use stepwell_engine::store::{Result, RunNo, TaskChange, TaskRow, Tasks};
use stepwell_kernel::time::Time;

use super::SqliteStore;

const COLUMNS: &str =
    "run_no, target, queue, op, priority, visible_at, worker, until, leased, stopping";

/// With a tenant: only tasks of its runs.
const OF_TENANT: &str = "AND (?6 IS NULL OR
     ?6 = (SELECT tenant FROM runs WHERE runs.run_no = tasks.run_no))";

/// Reads a row of `COLUMNS`.
fn task(row: &Row<'_>) -> rusqlite::Result<TaskRow> {
    Ok(TaskRow {
        run: RunNo(row.get(0)?),
        target: row.get(1)?,
        queue: row.get(2)?,
        op: row.get(3)?,
        priority: row.get(4)?,
        visible_at: Time(row.get(5)?),
        worker: row.get(6)?,
        until: row.get::<_, Option<i64>>(7)?.map(Time),
        leased: row.get(8)?,
        stopping: row.get(9)?,
    })
}

/// The tasks of a run.
pub(super) fn of(conn: &Connection, run: RunNo) -> rusqlite::Result<Vec<TaskRow>> {
    static OF_RUN: LazyLock<String> =
        LazyLock::new(|| format!("SELECT {COLUMNS} FROM tasks WHERE run_no = ?1 ORDER BY target"));
    conn.prepare_cached(&OF_RUN)?
        .query_map([run.0], task)?
        .collect()
}

/// Changes rows in a commit, in this order.
pub(super) fn change_all(
    conn: &Connection,
    run: RunNo,
    changes: &[TaskChange],
) -> rusqlite::Result<()> {
    let mut rest = changes;
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            // Work that is given to a worker as it becomes ready: its row is never among those that are free.
            (
                TaskChange::Put {
                    target,
                    queue,
                    op,
                    priority,
                    visible_at,
                },
                [
                    TaskChange::Lease {
                        target: leased,
                        worker,
                        until,
                    },
                    after @ ..,
                ],
            ) if target == leased => {
                conn.prepare_cached(
                    "INSERT OR REPLACE INTO tasks
                       (run_no, target, queue, op, priority, visible_at, free_from, worker, until, leased)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8, 1)",
                )?
                .execute(params![
                    run.0,
                    target,
                    queue,
                    op,
                    priority,
                    visible_at.0,
                    worker,
                    until.0
                ])?;
                after
            }
            _ => {
                change(conn, run, first)?;
                after
            }
        };
    }
    Ok(())
}

/// Changes a row in a commit.
fn change(conn: &Connection, run: RunNo, change: &TaskChange) -> rusqlite::Result<()> {
    match change {
        TaskChange::Put {
            target,
            queue,
            op,
            priority,
            visible_at,
        } => conn
            .prepare_cached(
                "INSERT OR REPLACE INTO tasks
                   (run_no, target, queue, op, priority, visible_at, free_from)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
            )?
            .execute(params![run.0, target, queue, op, priority, visible_at.0])?,
        TaskChange::Lease {
            target,
            worker,
            until,
        } => conn
            .prepare_cached(
                "UPDATE tasks SET worker = ?3, until = ?4, leased = 1
                 WHERE run_no = ?1 AND target = ?2",
            )?
            .execute(params![run.0, target, worker, until.0])?,
        TaskChange::Delete { target } => conn
            .prepare_cached("DELETE FROM tasks WHERE run_no = ?1 AND target = ?2")?
            .execute(params![run.0, target])?,
        TaskChange::Stop { target } => conn
            .prepare_cached("UPDATE tasks SET stopping = 1 WHERE run_no = ?1 AND target = ?2")?
            .execute(params![run.0, target])?,
    };
    Ok(())
}

/// The priorities that tasks of a queue and operation have, by leaps through the index: there are few,
/// and for each the tasks are in the order in which they are given out.
fn priorities(conn: &Connection, queue: &str, op: &str) -> rusqlite::Result<Vec<i64>> {
    let mut next = conn.prepare_cached(
        "SELECT min(priority) FROM tasks
         WHERE queue = ?1 AND op = ?2 AND leased = 0 AND stopping = 0 AND priority > ?3",
    )?;
    let mut found = Vec::new();
    let mut last = i64::MIN;
    while let Some(priority) =
        next.query_row(params![queue, op, last], |row| row.get::<_, Option<i64>>(0))?
    {
        found.push(priority);
        last = priority;
    }
    Ok(found)
}

/// Tasks that may be reserved now, best first.
fn free(
    conn: &Connection,
    tenant: Option<&str>,
    serves: &[(String, String)],
    now: Time,
    limit: usize,
) -> rusqlite::Result<Vec<TaskRow>> {
    let mut found: Vec<TaskRow> = Vec::new();
    let mut asked: Vec<&(String, String)> = serves.iter().collect();
    asked.sort_unstable();
    asked.dedup();
    for (queue, op) in asked {
        let mut from_this = 0;
        for priority in priorities(conn, queue, op)? {
            let rows = conn
                .prepare_cached(&format!(
                    "SELECT {COLUMNS} FROM tasks
                     WHERE queue = ?1 AND op = ?2 AND priority = ?3 AND leased = 0 AND stopping = 0
                       AND visible_at <= ?4 AND free_from <= ?4 {OF_TENANT}
                     ORDER BY visible_at, run_no, target LIMIT ?5"
                ))?
                .query_map(
                    params![
                        queue,
                        op,
                        priority,
                        now.0,
                        limit_of(limit - from_this),
                        tenant
                    ],
                    task,
                )?
                .collect::<rusqlite::Result<Vec<_>>>()?;
            from_this += rows.len();
            found.extend(rows);
            if from_this >= limit {
                break;
            }
        }
    }
    found.sort_by(|a, b| {
        let rank = |it: &TaskRow| (it.priority, it.visible_at, it.run);
        rank(a).cmp(&rank(b)).then_with(|| a.target.cmp(&b.target))
    });
    found.truncate(limit);
    Ok(found)
}

/// SQLite counts with a sign.
pub(super) fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

impl Tasks for SqliteStore {
    fn reserve_for(
        &self,
        tenant: Option<&str>,
        serves: &[(String, String)],
        worker: &str,
        now: Time,
        until: Time,
        limit: usize,
    ) -> Result<Vec<TaskRow>> {
        // Workers ask often and mostly find nothing: a look costs no write.
        if limit == 0
            || self
                .read(|conn| free(conn, tenant, serves, now, 1))?
                .is_empty()
        {
            return Ok(Vec::new());
        }
        self.write(|conn| {
            let mut found = free(conn, tenant, serves, now, limit)?;
            // A reservation holds at its last instant, so the next one begins after it.
            let mut reserve = conn.prepare_cached(
                "UPDATE tasks SET worker = ?3, until = ?4, free_from = max(visible_at, ?4 + 1)
                 WHERE run_no = ?1 AND target = ?2",
            )?;
            for task in &mut found {
                reserve.execute(params![task.run.0, task.target, worker, until.0])?;
                task.worker = Some(worker.into());
                task.until = Some(until);
            }
            Ok(found)
        })
    }

    fn open_for(
        &self,
        tenant: Option<&str>,
        serves: &[(String, String)],
        now: Time,
        limit: usize,
    ) -> Result<Vec<TaskRow>> {
        self.read(|conn| free(conn, tenant, serves, now, limit))
    }

    fn heartbeat(
        &self,
        run: RunNo,
        target: &str,
        worker: &str,
        now: Time,
        until: Time,
    ) -> Result<bool> {
        self.write(|conn| {
            let changed = conn
                .prepare_cached(
                    "UPDATE tasks SET until = ?5
                     WHERE run_no = ?1 AND target = ?2 AND worker = ?3 AND until >= ?4
                       AND leased = 1 AND stopping = 0",
                )?
                .execute(params![run.0, target, worker, now.0, until.0])?;
            Ok(changed > 0)
        })
    }

    fn expired(&self, now: Time, limit: usize) -> Result<Vec<TaskRow>> {
        self.read(|conn| {
            conn.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM tasks WHERE leased = 1 AND until < ?1
                 ORDER BY until, run_no, target LIMIT ?2"
            ))?
            .query_map(params![now.0, limit_of(limit)], task)?
            .collect()
        })
    }

    fn leases(
        &self,
        worker: Option<&str>,
        tenant: Option<&str>,
        limit: usize,
    ) -> Result<Vec<TaskRow>> {
        self.read(|conn| {
            conn.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM tasks
                 WHERE leased = 1 AND (?1 IS NULL OR worker = ?1)
                   AND (?2 IS NULL OR
                        ?2 = (SELECT tenant FROM runs WHERE runs.run_no = tasks.run_no))
                 ORDER BY run_no, target LIMIT ?3"
            ))?
            .query_map(params![worker, tenant, limit_of(limit)], task)?
            .collect()
        })
    }

    fn open_kinds(&self, limit: usize) -> Result<Vec<(String, String)>> {
        self.read(|conn| {
            // By leaps through the index, as `priorities`: there may be many tasks of few kinds.
            let mut first = conn.prepare_cached(
                "SELECT queue, op FROM tasks WHERE leased = 0 AND stopping = 0
                 ORDER BY queue, op LIMIT 1",
            )?;
            let mut next = conn.prepare_cached(
                "SELECT queue, op FROM tasks
                 WHERE leased = 0 AND stopping = 0 AND (queue, op) > (?1, ?2)
                 ORDER BY queue, op LIMIT 1",
            )?;
            let pair = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let mut kinds: Vec<(String, String)> = Vec::new();
            while kinds.len() < limit {
                let found = match kinds.last() {
                    Some((queue, op)) => next.query_row(params![queue, op], pair),
                    None => first.query_row([], pair),
                };
                match found.optional()? {
                    Some(kind) => kinds.push(kind),
                    None => break,
                }
            }
            Ok(kinds)
        })
    }

    fn next_visible(&self, serves: &[(String, String)]) -> Result<Option<Time>> {
        self.read(|conn| {
            let mut open = conn.prepare_cached(
                "SELECT visible_at, free_from FROM tasks
                 WHERE queue = ?1 AND op = ?2 AND priority = ?3 AND leased = 0 AND stopping = 0
                 ORDER BY visible_at",
            )?;
            let mut earliest: Option<i64> = None;
            for (queue, op) in serves {
                for priority in priorities(conn, queue, op)? {
                    // Those in front may be reserved; none is free before it is visible.
                    let mut rows = open.query(params![queue, op, priority])?;
                    while let Some(row) = rows.next()? {
                        let visible_at: i64 = row.get(0)?;
                        if earliest.is_some_and(|it| it <= visible_at) {
                            break;
                        }
                        earliest = earliest.into_iter().chain([row.get(1)?]).min();
                    }
                }
            }
            Ok(earliest.map(Time))
        })
    }
}
