//! The rows of linear runs, under the names of their specification.

use rusqlite::{Connection, params};
use stepwell_engine::store::{LinearRows, RunNo};

/// Whether another run that is RUNNING is about the same thing.
pub(super) fn biz_key_is_taken(
    conn: &Connection,
    run: RunNo,
    rows: &LinearRows,
) -> rusqlite::Result<bool> {
    let Some(new) = rows.instance.as_ref().filter(|it| it.status == "RUNNING") else {
        return Ok(false);
    };
    let Some(key) = &new.biz_key else {
        return Ok(false);
    };
    conn.prepare_cached(
        "SELECT 1 FROM linear_instances
         WHERE workflow_type = ?1 AND biz_key = ?2 AND biz_key IS NOT NULL AND status = 'RUNNING'
           AND run_no <> ?3",
    )?
    .exists(params![new.workflow_type, key, run.0])
}

/// Writes the rows that changed.
pub(super) fn write(conn: &Connection, run: RunNo, rows: &LinearRows) -> rusqlite::Result<()> {
    if let Some(row) = &rows.instance {
        conn.prepare_cached(
            "INSERT INTO linear_instances VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
             ON CONFLICT (run_no) DO UPDATE SET biz_key = ?2, workflow_type = ?3,
               workflow_version = ?4, status = ?5, current_step_seq = ?6, current_step_type = ?7,
               started_at = ?8, completed_at = ?9, failed_at = ?10",
        )?
        .execute(params![
            run.0,
            row.biz_key,
            row.workflow_type,
            row.workflow_version,
            row.status,
            row.current_step_seq,
            row.current_step_type,
            row.started_at.map(|it| it.0),
            row.completed_at.map(|it| it.0),
            row.failed_at.map(|it| it.0),
        ])?;
    }
    for row in &rows.steps {
        conn.prepare_cached(
            "INSERT INTO linear_steps
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
             ON CONFLICT DO UPDATE SET step_type = ?3, status = ?4, attempts = ?5,
               max_attempts = ?6, next_run_at = ?7, waiting_event_type = ?8, deadline_at = ?9,
               locked_by = ?10, locked_until = ?11, last_error = ?12",
        )?
        .execute(params![
            run.0,
            row.step_seq,
            row.step_type,
            row.status,
            row.attempts,
            row.max_attempts,
            row.next_run_at.map(|it| it.0),
            row.waiting_event_type,
            row.deadline_at.map(|it| it.0),
            row.locked_by,
            row.locked_until.map(|it| it.0),
            row.last_error,
        ])?;
    }
    Ok(())
}
