//! Sessions, and runs that must be looked at.

use rusqlite::{Connection, params};
use stepwell_engine::store::{Result, RunNo, SessionNo, Sessions, Slots, WakeQueue};
use stepwell_kernel::time::Time;

use super::tasks::limit_of;
use super::{SqliteStore, commit};

fn due(conn: &Connection, now: Time, limit: usize) -> rusqlite::Result<Vec<RunNo>> {
    conn.prepare_cached(
        "SELECT run_no FROM heads
         WHERE session IS NULL AND queued = 0 AND due_at IS NOT NULL AND due_at <= ?1
         ORDER BY due_at, run_no LIMIT ?2",
    )?
    .query_map(params![now.0, limit_of(limit)], |row| row.get(0).map(RunNo))?
    .collect()
}

/// Dead sessions, and whether a run still has each.
fn dead(conn: &Connection) -> rusqlite::Result<Vec<(i64, bool)>> {
    conn.prepare_cached(
        "SELECT session_no, EXISTS (SELECT 1 FROM heads WHERE heads.session = session_no)
         FROM sessions WHERE dead = 1 ORDER BY session_no",
    )?
    .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
    .collect()
}

impl Sessions for SqliteStore {
    fn open_session(&self, name: &str, now: Time, until: Time) -> Result<SessionNo> {
        self.write(|conn| {
            conn.prepare_cached(
                "INSERT INTO sessions (name, opened_at, until, dead) VALUES (?1, ?2, ?3, 0)",
            )?
            .execute(params![name, now.0, until.0])?;
            Ok(SessionNo(conn.last_insert_rowid()))
        })
    }

    fn renew_session(&self, session: SessionNo, now: Time, until: Time) -> Result<bool> {
        self.write(|conn| {
            let renewed = conn
                .prepare_cached(
                    "UPDATE sessions SET until = ?3
                     WHERE session_no = ?1 AND dead = 0 AND until >= ?2",
                )?
                .execute(params![session.0, now.0, until.0])?;
            Ok(renewed > 0)
        })
    }

    fn close_session(&self, session: SessionNo) -> Result<()> {
        self.write(|conn| {
            conn.prepare_cached("UPDATE sessions SET dead = 1 WHERE session_no = ?1")?
                .execute([session.0])?;
            Ok(())
        })
    }

    fn dead_sessions(&self, now: Time) -> Result<Vec<SessionNo>> {
        // Asked often; mostly there is nothing to write down.
        let (news, known) = self.read(|conn| {
            let over = conn
                .prepare_cached("SELECT 1 FROM sessions WHERE dead = 0 AND until < ?1")?
                .exists([now.0])?;
            let known = dead(conn)?;
            Ok((over || known.iter().any(|(_, has_runs)| !has_runs), known))
        })?;
        let with_runs = |all: Vec<(i64, bool)>| {
            let with = all.into_iter().filter(|(_, has_runs)| *has_runs);
            with.map(|(no, _)| SessionNo(no)).collect()
        };
        if !news {
            return Ok(with_runs(known));
        }
        self.write(|conn| {
            conn.prepare_cached("UPDATE sessions SET dead = 1 WHERE dead = 0 AND until < ?1")?
                .execute([now.0])?;
            let all = dead(conn)?;
            for (no, has_runs) in &all {
                if !has_runs {
                    conn.prepare_cached("DELETE FROM sessions WHERE session_no = ?1")?
                        .execute([no])?;
                }
            }
            Ok(with_runs(all))
        })
    }

    fn runs_of(&self, session: SessionNo, limit: usize) -> Result<Vec<RunNo>> {
        self.read(|conn| {
            conn.prepare_cached(
                "SELECT run_no FROM heads WHERE session = ?1 ORDER BY run_no LIMIT ?2",
            )?
            .query_map(params![session.0, limit_of(limit)], |row| {
                row.get(0).map(RunNo)
            })?
            .collect()
        })
    }
}

impl WakeQueue for SqliteStore {
    fn due(&self, now: Time, until: Time, limit: usize) -> Result<Vec<RunNo>> {
        if self.read(|conn| due(conn, now, 1))?.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        self.write(|conn| {
            let runs = due(conn, now, limit)?;
            let mut later =
                conn.prepare_cached("UPDATE heads SET due_at = ?2 WHERE run_no = ?1")?;
            for run in &runs {
                later.execute(params![run.0, until.0])?;
            }
            Ok(runs)
        })
    }

    fn next_due(&self) -> Result<Option<Time>> {
        self.read(|conn| {
            conn.prepare_cached(
                "SELECT min(due_at) FROM heads
                 WHERE session IS NULL AND queued = 0 AND due_at IS NOT NULL",
            )?
            .query_row([], |row| row.get::<_, Option<i64>>(0))
            .map(|at| at.map(Time))
        })
    }
}

impl Slots for SqliteStore {
    fn queued(&self, now: Time, limit: usize) -> Result<Vec<RunNo>> {
        self.read(|conn| {
            conn.prepare_cached(
                "SELECT run_no FROM heads JOIN runs USING (run_no)
                 WHERE queued = 1 AND session IS NULL AND (wake_at IS NULL OR wake_at <= ?1)
                 ORDER BY priority DESC, created_at, run_no LIMIT ?2",
            )?
            .query_map(params![now.0, limit_of(limit)], |row| row.get(0).map(RunNo))?
            .collect()
        })
    }

    fn slots_taken(&self, key: &str) -> Result<u32> {
        let taken = self.read(|conn| commit::taken(conn, key))?;
        // More than can be counted leaves no slot free.
        Ok(u32::try_from(taken).unwrap_or(u32::MAX))
    }
}
