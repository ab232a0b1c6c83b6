//! Keys that only one open run may have, and the runs that have them.

use rusqlite::{Connection, OptionalExtension as _, params};
use stepwell_engine::store::{KeyChange, RunNo, UniqueKey};

/// The id of another run that has the key.
pub(super) fn other_holder(
    conn: &Connection,
    run: RunNo,
    wanted: &UniqueKey,
) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached(
        "SELECT run_id FROM unique_keys JOIN runs USING (run_no)
         WHERE plan_id = ?1 AND key = ?2 AND run_no <> ?3",
    )?
    .query_row(params![wanted.plan_id, wanted.key, run.0], |row| row.get(0))
    .optional()
}

/// Writes who has a key. Nobody else has a key that is taken: `other_holder` was asked before.
pub(super) fn change(conn: &Connection, run: RunNo, change: &KeyChange) -> rusqlite::Result<()> {
    let statement = match change {
        KeyChange::Take(_) => {
            "INSERT INTO unique_keys (plan_id, key, run_no) VALUES (?1, ?2, ?3)
             ON CONFLICT DO NOTHING"
        }
        KeyChange::Free(_) => {
            "DELETE FROM unique_keys WHERE plan_id = ?1 AND key = ?2 AND run_no = ?3"
        }
    };
    let UniqueKey { plan_id, key } = change.key();
    conn.prepare_cached(statement)?
        .execute(params![plan_id, key, run.0])?;
    Ok(())
}
