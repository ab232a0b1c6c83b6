//! Which runs have changed: one process appends, so the numbers of the rows of the log are the order of the changes.

use rusqlite::{Connection, OptionalExtension as _, params};
use stepwell_engine::store::{ChangeFeed, Changed, Mark, Result, RunNo};
use stepwell_kernel::time::Time;

use super::SqliteStore;
use super::commit::seq;
use super::tasks::limit_of;

/// How many rows of the log are looked at for each run that may be told: a run may have many.
const ROWS: usize = 20;

/// A mark is the last row of the log. Numbers of rows are used again when the last row is deleted with its run, so a mark
/// names what is in the row, too: no run and no event has the same place twice.
fn mark_before(conn: &Connection, row: i64) -> rusqlite::Result<Option<Mark>> {
    conn.prepare_cached(
        "SELECT log_no, run_no, first_seq FROM log WHERE log_no <= ?1 ORDER BY log_no DESC LIMIT 1",
    )?
    .query_row([row], |row| {
        let (run, first): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(Mark {
            at: row.get(0)?,
            check: format!("{run}.{first}"),
        })
    })
    .optional()
}

fn changed_since(conn: &Connection, mark: &Mark, limit: usize) -> rusqlite::Result<Changed> {
    let empty = Mark::default();
    if *mark != empty && mark_before(conn, seq(mark.at))?.as_ref() != Some(mark) {
        return Ok(Changed::Lost);
    }
    let most = limit.saturating_mul(ROWS);
    let mut runs: Vec<i64> = conn
        .prepare_cached("SELECT run_no FROM log WHERE log_no > ?1 ORDER BY log_no LIMIT ?2")?
        .query_map(
            params![seq(mark.at), limit_of(most.saturating_add(1))],
            |row| row.get(0),
        )?
        .collect::<rusqlite::Result<_>>()?;
    let is_more = runs.len() > most;
    runs.sort_unstable();
    runs.dedup();
    if is_more || runs.len() > limit {
        return Ok(Changed::TooMany);
    }
    let now = mark_before(conn, i64::MAX)?.unwrap_or(empty);
    Ok(Changed::Runs(runs.into_iter().map(RunNo).collect(), now))
}

impl ChangeFeed for SqliteStore {
    fn mark(&self) -> Result<Mark> {
        Ok(self
            .read(|conn| mark_before(conn, i64::MAX))?
            .unwrap_or_default())
    }

    fn changed_since(&self, mark: &Mark, limit: usize) -> Result<Changed> {
        self.read(|conn| changed_since(conn, mark, limit))
    }

    /// The log itself says what has changed.
    fn forget_changes(&self, _before: Time) -> Result<()> {
        Ok(())
    }
}
