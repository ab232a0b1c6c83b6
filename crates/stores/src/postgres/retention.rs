//! Deletes runs that have ended, with everything that belongs to them.

use stepwell_engine::store::{DeleteFilter, DeletedRun, Result, Retention, RunNo};
use stepwell_kernel::time::Time;
use tokio_postgres::Row;

use super::{PostgresStore, Values, limit};

/// One statement, so that it is one transaction: `gone` are the runs that nothing needs any more. Their heads are locked,
/// and those that another transaction has are left for the next time. The sinks that wait and the views are few: what
/// belongs to one is found by an index. Rows of tables without an index are gone through once for all runs. The statement
/// reads the table `sinks`, so that nobody marks the log for a new sink meanwhile.
const DELETE_ENDED: &str = "
WITH RECURSIVE waiting (sink) AS (
    SELECT min(o.sink) FROM outbox o
    UNION ALL SELECT (SELECT min(o.sink) FROM outbox o WHERE o.sink > w.sink)
    FROM waiting w WHERE w.sink IS NOT NULL
), views (name) AS (
    SELECT min(v.view_name) FROM view_rows v
    UNION ALL SELECT (SELECT min(v.view_name) FROM view_rows v WHERE v.view_name > w.name)
    FROM views w WHERE w.name IS NOT NULL
), gone AS MATERIALIZED (
    SELECT h.run_no, r.run_id, h.tenant, h.status, h.ended_at
    FROM heads h JOIN runs r ON r.run_no = h.run_no
    WHERE h.ended_at < $1 AND h.session_no IS NULL AND h.slots IS NULL
      AND (cardinality($2::text[]) = 0 OR h.status = ANY($2)) AND ($3::text IS NULL OR h.tenant = $3)
      AND NOT EXISTS (SELECT FROM quarantine q WHERE q.run_no = h.run_no)
      AND NOT EXISTS (SELECT FROM waiting w JOIN outbox o ON o.sink = w.sink WHERE o.run_no = h.run_no)
      AND NOT EXISTS (SELECT FROM mailbox m WHERE m.run_no = h.run_no AND m.answer IS NULL)
      AND NOT EXISTS (SELECT FROM runs p JOIN heads i ON i.run_no = p.run_no
                      WHERE p.run_id = r.parent AND i.ended_at IS NULL)
      AND (SELECT count(*) FROM sinks) >= 0
    ORDER BY h.ended_at, h.run_no LIMIT $4 FOR UPDATE OF h SKIP LOCKED
), d1 AS (DELETE FROM log x USING gone o WHERE x.run_no = o.run_no
), d2 AS (DELETE FROM event_keys x USING gone o WHERE x.run_no = o.run_no
), d3 AS (DELETE FROM tasks x USING gone o WHERE x.run_no = o.run_no
), d4 AS (DELETE FROM waits x USING gone o WHERE x.run_no = o.run_no
), d5 AS (DELETE FROM snapshots x USING gone o WHERE x.run_no = o.run_no
), d6 AS (DELETE FROM projections x USING gone o WHERE x.run_no = o.run_no
), d7 AS (DELETE FROM run_labels x USING gone o WHERE x.run_no = o.run_no
), d8 AS (DELETE FROM view_rows x USING gone o CROSS JOIN views v
          WHERE x.view_name = v.name AND x.run_no = o.run_no
), d9 AS (DELETE FROM unique_keys WHERE (run_no IN (SELECT run_no FROM gone)) IS TRUE
), d10 AS (DELETE FROM mailbox WHERE (run_no IN (SELECT run_no FROM gone)) IS TRUE
), d11 AS (DELETE FROM dead_letters WHERE (run_no IN (SELECT run_no FROM gone)) IS TRUE
), d12 AS (DELETE FROM alerts WHERE (run_no IN (SELECT run_no FROM gone)) IS TRUE
), d13 AS (DELETE FROM heads x USING gone o WHERE x.run_no = o.run_no
), d14 AS (DELETE FROM runs x USING gone o WHERE x.run_no = o.run_no
)
SELECT run_no, run_id, tenant, status, ended_at FROM gone ORDER BY ended_at, run_no";

impl Retention for PostgresStore {
    fn delete_ended(
        &self,
        filter: &DeleteFilter,
        most: usize,
        now: Time,
    ) -> Result<Vec<DeletedRun>> {
        let values: Values<'_> = &[
            &filter.ended_before.min(now).0,
            &filter.statuses,
            &filter.tenant,
            &limit(most),
        ];
        let rows = self.connections.write(DELETE_ENDED, values)?;
        let deleted = |row: &Row| DeletedRun {
            run: RunNo(row.get(0)),
            run_id: row.get(1),
            tenant: row.get(2),
            status: row.get(3),
            ended_at: Time(row.get(4)),
        };
        Ok(rows.iter().map(deleted).collect())
    }
}
