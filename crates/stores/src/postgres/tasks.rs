//! Tasks: reserved by one worker at a time, leased by the commit that claims them.

use stepwell_engine::store::{Result, RunNo, TaskRow, Tasks};
use stepwell_kernel::time::Time;
use tokio_postgres::Row;

use super::{PostgresStore, limit};

/// For each queue and operation the best that are open, in the index's own order; of those the best.
const RESERVE: &str = "
WITH open AS MATERIALIZED (
    SELECT t.* FROM unnest($1::text[], $2::text[]) AS u (queue, op)
    CROSS JOIN LATERAL (
        SELECT o.run_no, o.target FROM tasks o
        WHERE o.queue = u.queue AND o.op = u.op AND NOT o.leased AND NOT o.stopping
          AND o.visible_at <= $5 AND (o.until IS NULL OR o.until < clock($4))
          AND ($8::text IS NULL OR $8 = (SELECT r.tenant FROM runs r WHERE r.run_no = o.run_no))
        ORDER BY o.priority, o.visible_at, o.run_no, o.target LIMIT $7 FOR UPDATE SKIP LOCKED
    ) t
), best AS MATERIALIZED (
    SELECT t.run_no, t.target FROM open JOIN tasks t ON t.run_no = open.run_no
        AND t.target = open.target
    ORDER BY t.priority, t.visible_at, t.run_no, t.target LIMIT $7
)
UPDATE tasks t SET worker = $3, until = $6 + clock($4) - $5
FROM best WHERE t.run_no = best.run_no AND t.target = best.target
RETURNING t.run_no, t.target, t.queue, t.op, t.priority, t.visible_at, t.worker, t.until, t.leased,
          t.stopping";

const OPEN: &str = "
SELECT t.* FROM unnest($1::text[], $2::text[]) AS u (queue, op)
CROSS JOIN LATERAL (
    SELECT o.run_no, o.target, o.queue, o.op, o.priority, o.visible_at, o.worker, o.until, o.leased, o.stopping
    FROM tasks o
    WHERE o.queue = u.queue AND o.op = u.op AND NOT o.leased AND NOT o.stopping
      AND o.visible_at <= $4 AND (o.until IS NULL OR o.until < clock($3))
      AND ($6::text IS NULL OR $6 = (SELECT r.tenant FROM runs r WHERE r.run_no = o.run_no))
    ORDER BY o.priority, o.visible_at, o.run_no, o.target LIMIT $5
) t
ORDER BY t.priority, t.visible_at, t.run_no, t.target LIMIT $5";

const HEARTBEAT: &str = "
UPDATE tasks SET until = $6 + clock($4) - $5
WHERE run_no = $1 AND target = $2 AND worker = $3 AND leased AND NOT stopping
  AND until >= clock($4) RETURNING run_no";

const EXPIRED: &str = "
SELECT run_no, target, queue, op, priority, visible_at, worker, until, leased, stopping FROM tasks
WHERE leased AND until < clock($1) ORDER BY until, run_no, target LIMIT $2";

const LEASES: &str = "
SELECT run_no, target, queue, op, priority, visible_at, worker, until, leased, stopping FROM tasks
WHERE leased AND ($1::text IS NULL OR worker = $1)
  AND ($2::text IS NULL OR $2 = (SELECT r.tenant FROM runs r WHERE r.run_no = tasks.run_no))
ORDER BY run_no, target LIMIT $3";

/// By leaps through the index: there may be many tasks of few kinds.
const OPEN_KINDS: &str = "
WITH RECURSIVE kinds (queue, op) AS (
    (SELECT queue, op FROM tasks WHERE NOT leased AND NOT stopping ORDER BY queue, op LIMIT 1)
    UNION ALL
    SELECT n.queue, n.op FROM kinds k CROSS JOIN LATERAL (
        SELECT t.queue, t.op FROM tasks t
        WHERE NOT t.leased AND NOT t.stopping AND (t.queue, t.op) > (k.queue, k.op)
        ORDER BY t.queue, t.op LIMIT 1
    ) n
)
SELECT queue, op FROM kinds LIMIT $1";

/// A reservation holds at its last instant, so the next one begins after it.
const NEXT_VISIBLE: &str = "
SELECT min(GREATEST(t.visible_at, t.until + 1))
FROM (SELECT DISTINCT * FROM unnest($1::text[], $2::text[])) AS u (queue, op)
JOIN tasks t ON t.queue = u.queue AND t.op = u.op AND NOT t.leased AND NOT t.stopping";

impl Tasks for PostgresStore {
    fn reserve_for(
        &self,
        tenant: Option<&str>,
        serves: &[(String, String)],
        worker: &str,
        now: Time,
        until: Time,
        most: usize,
    ) -> Result<Vec<TaskRow>> {
        let (queues, ops) = distinct(serves);
        let rows = self.connections.write(
            RESERVE,
            &[
                &queues,
                &ops,
                &worker,
                &self.given(now),
                &now.0,
                &until.0,
                &limit(most),
                &tenant,
            ],
        )?;
        let mut tasks: Vec<TaskRow> = rows.iter().map(task).collect();
        tasks.sort_by(|a, b| {
            let rank = |it: &TaskRow| (it.priority, it.visible_at, it.run);
            rank(a).cmp(&rank(b)).then_with(|| a.target.cmp(&b.target))
        });
        Ok(tasks)
    }

    fn open_for(
        &self,
        tenant: Option<&str>,
        serves: &[(String, String)],
        now: Time,
        most: usize,
    ) -> Result<Vec<TaskRow>> {
        let (queues, ops) = distinct(serves);
        let (given, most) = (self.given(now), limit(most));
        let values: super::Values<'_> = &[&queues, &ops, &given, &now.0, &most, &tenant];
        let rows = self.connections.read(OPEN, values)?;
        Ok(rows.iter().map(task).collect())
    }

    fn heartbeat(
        &self,
        run: RunNo,
        target: &str,
        worker: &str,
        now: Time,
        until: Time,
    ) -> Result<bool> {
        let values: super::Values<'_> =
            &[&run.0, &target, &worker, &self.given(now), &now.0, &until.0];
        Ok(!self.connections.write(HEARTBEAT, values)?.is_empty())
    }

    fn expired(&self, now: Time, most: usize) -> Result<Vec<TaskRow>> {
        let rows = self
            .connections
            .read(EXPIRED, &[&self.given(now), &limit(most)])?;
        Ok(rows.iter().map(task).collect())
    }

    fn leases(
        &self,
        worker: Option<&str>,
        tenant: Option<&str>,
        most: usize,
    ) -> Result<Vec<TaskRow>> {
        let values: super::Values<'_> = &[&worker, &tenant, &limit(most)];
        let rows = self.connections.read(LEASES, values)?;
        Ok(rows.iter().map(task).collect())
    }

    fn open_kinds(&self, most: usize) -> Result<Vec<(String, String)>> {
        let rows = self.connections.read(OPEN_KINDS, &[&limit(most)])?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    fn next_visible(&self, serves: &[(String, String)]) -> Result<Option<Time>> {
        let (queues, ops) = distinct(serves);
        let rows = self.connections.read(NEXT_VISIBLE, &[&queues, &ops])?;
        let next: Option<i64> = rows.first().and_then(|row| row.get(0));
        Ok(next.map(Time))
    }
}

/// Each pair once: a task that is found twice would be reserved twice.
fn distinct(serves: &[(String, String)]) -> (Vec<&str>, Vec<&str>) {
    let pairs = serves.iter().map(|(queue, op)| (&**queue, &**op));
    let pairs: std::collections::BTreeSet<(&str, &str)> = pairs.collect();
    pairs.into_iter().unzip()
}

/// A row of `tasks`.
pub(super) fn task(row: &Row) -> TaskRow {
    let until: Option<i64> = row.get(7);
    TaskRow {
        run: RunNo(row.get(0)),
        target: row.get(1),
        queue: row.get(2),
        op: row.get(3),
        priority: row.get(4),
        visible_at: Time(row.get(5)),
        worker: row.get(6),
        until: until.map(Time),
        leased: row.get(8),
        stopping: row.get(9),
    }
}
