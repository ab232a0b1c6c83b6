//! Keys that only one open run of a tenant may have, and the runs that have them.

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
         WHERE unique_keys.tenant = ?1 AND key = ?2 AND run_no <> ?3",
    )?
    .query_row(params![wanted.tenant, wanted.key, run.0], |row| row.get(0))
    .optional()
}

/// Writes who has a key. Nobody else has a key that is taken: `other_holder` was asked before.
pub(super) fn change(conn: &Connection, run: RunNo, change: &KeyChange) -> rusqlite::Result<()> {
    let statement = match change {
        KeyChange::Take(_) => {
            "INSERT INTO unique_keys (tenant, key, run_no) VALUES (?1, ?2, ?3)
             ON CONFLICT DO NOTHING"
        }
        KeyChange::Free(_) => {
            "DELETE FROM unique_keys WHERE tenant = ?1 AND key = ?2 AND run_no = ?3"
        }
    };
    let UniqueKey { tenant, key } = change.key();
    conn.prepare_cached(statement)?
        .execute(params![tenant, key, run.0])?;
    Ok(())
}
