//! Which runs have changed. Many servers append at the same time, so the order of the changes is that of their
//! transactions: a mark is a transaction before which none is under way any more.

use stepwell_engine::store::{ChangeFeed, Changed, Mark, Result, RunNo};
use stepwell_kernel::time::Time;

use super::{PostgresStore, Values, limit, reads, unsigned};

/// All transactions before this one are over.
const MARK: &str = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint";

/// The mark of now, the last transaction that was forgotten, and a row for each run.
const CHANGED: &str = "
SELECT now.mark, forgotten.xact, found.run_no
FROM (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS mark) now
CROSS JOIN (SELECT COALESCE((SELECT convert_from(s.value, 'UTF8')::bigint FROM settings s
                             WHERE s.name = 'changes_forgotten'), 0) AS xact) forgotten
LEFT JOIN LATERAL (
    SELECT DISTINCT told.run_no FROM changes c CROSS JOIN LATERAL unnest(c.runs) AS told (run_no)
    WHERE c.xact >= $1 AND c.xact < now.mark LIMIT $2
) found ON true";

const FORGET: &str = "
WITH gone AS (
    DELETE FROM changes WHERE at < $1 RETURNING xact
)
INSERT INTO settings AS s (name, value)
SELECT 'changes_forgotten', convert_to(max(g.xact)::text, 'UTF8') FROM gone g HAVING count(*) > 0
ON CONFLICT (name) DO UPDATE SET value = excluded.value
WHERE convert_from(s.value, 'UTF8')::bigint < convert_from(excluded.value, 'UTF8')::bigint";

impl ChangeFeed for PostgresStore {
    fn mark(&self) -> Result<Mark> {
        let rows = self.connections.read(MARK, &[])?;
        Ok(mark(reads::first(&rows)?.get(0)))
    }

    fn changed_since(&self, since: &Mark, most: usize) -> Result<Changed> {
        let from = i64::try_from(since.at).unwrap_or(i64::MAX);
        let values: Values<'_> = &[&from, &limit(most.saturating_add(1))];
        let rows = self.connections.read(CHANGED, values)?;
        let row = reads::first(&rows)?;
        let (now, forgotten): (i64, i64) = (row.get(0), row.get(1));
        if from > now || forgotten >= from || !since.check.is_empty() {
            return Ok(Changed::Lost);
        }
        let runs = rows.iter().filter_map(|row| row.get::<_, Option<i64>>(2));
        let runs: Vec<RunNo> = runs.map(RunNo).collect();
        Ok(match runs.len() > most {
            true => Changed::TooMany,
            false => Changed::Runs(runs, mark(now)),
        })
    }

    fn forget_changes(&self, before: Time) -> Result<()> {
        self.connections.write(FORGET, &[&before.0])?;
        Ok(())
    }
}

fn mark(at: i64) -> Mark {
    Mark {
        at: unsigned(at),
        check: String::new(),
    }
}
