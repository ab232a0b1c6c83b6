//! Sessions, and the runs that are due. The end of a session is kept by the database's clock.

use std::time::Duration;

use stepwell_engine::store::{Result, RunNo, SessionNo, Sessions, Slots, WakeQueue};
use stepwell_kernel::time::Time;

use super::query::Query;
use super::{PostgresStore, limit, reads, unsigned};

const OPEN: &str = "
INSERT INTO sessions (name, ends_at) VALUES ($1, $4 + clock($2) - $3) RETURNING session_no";

const RENEW: &str = "
UPDATE sessions SET ends_at = $4 + clock($2) - $3
WHERE session_no = $1 AND NOT dead AND ends_at >= clock($2) RETURNING session_no";

/// Commits lock the row of their session FOR KEY SHARE. A renewal never waits for that lock; the end of a session
/// must, so it locks FOR UPDATE: a commit that has seen the session alive comes first, or sees it dead.
const CLOSE: &str = "
UPDATE sessions s SET dead = true FROM (
    SELECT session_no FROM sessions WHERE session_no = $1 FOR UPDATE
) AS ended WHERE s.session_no = ended.session_no";

const MARK_DEAD: &str = "
UPDATE sessions s SET dead = true FROM (
    SELECT session_no FROM sessions WHERE NOT dead AND ends_at < clock($1)
    ORDER BY session_no FOR UPDATE
) AS ended WHERE s.session_no = ended.session_no";

/// The clock that decides when sessions and leases end.
const CLOCK: &str = "SELECT clock(NULL)";

const FORGET: &str = "
DELETE FROM sessions s WHERE s.dead
AND NOT EXISTS (SELECT FROM heads h WHERE h.session_no = s.session_no)";

const DEAD: &str = "
SELECT s.session_no FROM sessions s WHERE s.dead
AND EXISTS (SELECT FROM heads h WHERE h.session_no = s.session_no) ORDER BY s.session_no";

const RUNS_OF: &str = "
SELECT run_no FROM heads WHERE session_no = $1 ORDER BY run_no LIMIT $2";

/// By the time of the caller, as wake-up times are written: a clock that is set back must keep no run waiting.
const DUE: &str = "
WITH due AS MATERIALIZED (
    SELECT h.run_no, h.due_at FROM heads h
    WHERE h.session_no IS NULL AND NOT h.queued AND h.due_at IS NOT NULL AND h.due_at <= $1
    ORDER BY h.due_at, h.run_no LIMIT $3 FOR UPDATE SKIP LOCKED
), hidden AS (
    UPDATE heads h SET due_at = $2 FROM due WHERE h.run_no = due.run_no
)
SELECT run_no FROM due ORDER BY due_at, run_no";

const NEXT_DUE: &str = "
SELECT due_at FROM heads WHERE session_no IS NULL AND NOT queued AND due_at IS NOT NULL
ORDER BY due_at LIMIT 1";

const QUEUED: &str = "
SELECT h.run_no FROM heads h JOIN runs r ON r.run_no = h.run_no WHERE h.queued AND h.session_no IS NULL
AND (h.wake_at IS NULL OR h.wake_at <= $1) ORDER BY r.priority DESC, r.created_at, h.run_no LIMIT $2";

const SLOTS_TAKEN: &str = "SELECT taken FROM slots WHERE key = $1";

/// How long the clock may take to answer.
const CLOCK_PATIENCE: Duration = Duration::from_secs(1);

/// How long a renewal of a session of this length may take: its renewer ends its work in time only if the call returns.
fn patience(length_ms: u64) -> Duration {
    Duration::from_millis((length_ms / 5).clamp(1_000, 5_000))
}

impl Sessions for PostgresStore {
    fn open_session(&self, name: &str, now: Time, until: Time) -> Result<SessionNo> {
        let values: super::Values<'_> = &[&name, &self.given(now), &now.0, &until.0];
        let rows = self.connections.write(OPEN, values)?;
        Ok(SessionNo(reads::first(&rows)?.get(0)))
    }

    fn renew_session(&self, session: SessionNo, now: Time, until: Time) -> Result<bool> {
        let values: super::Values<'_> = &[&session.0, &self.given(now), &now.0, &until.0];
        let patience = patience(until.since(now));
        Ok(!self
            .connections
            .ask_apart(RENEW, values, patience)?
            .is_empty())
    }

    fn store_clock(&self) -> Result<Option<Time>> {
        if self.given_time {
            return Ok(None);
        }
        let rows = self.connections.ask_apart(CLOCK, &[], CLOCK_PATIENCE)?;
        Ok(Some(Time(reads::first(&rows)?.get(0))))
    }

    fn close_session(&self, session: SessionNo) -> Result<()> {
        self.connections.write(CLOSE, &[&session.0])?;
        Ok(())
    }

    fn dead_sessions(&self, now: Time) -> Result<Vec<SessionNo>> {
        let answers = self.connections.transact(vec![
            Query::new(MARK_DEAD).with(self.given(now)),
            Query::new(FORGET),
            Query::new(DEAD),
        ])?;
        let dead = answers.iter().flatten();
        Ok(dead.map(|row| SessionNo(row.get(0))).collect())
    }

    fn runs_of(&self, session: SessionNo, most: usize) -> Result<Vec<RunNo>> {
        let rows = self
            .connections
            .read(RUNS_OF, &[&session.0, &limit(most)])?;
        Ok(rows.iter().map(|row| RunNo(row.get(0))).collect())
    }
}

impl WakeQueue for PostgresStore {
    fn due(&self, now: Time, until: Time, most: usize) -> Result<Vec<RunNo>> {
        let values: super::Values<'_> = &[&now.0, &until.0, &limit(most)];
        let rows = self.connections.write(DUE, values)?;
        Ok(rows.iter().map(|row| RunNo(row.get(0))).collect())
    }

    fn next_due(&self) -> Result<Option<Time>> {
        let rows = self.connections.read(NEXT_DUE, &[])?;
        Ok(rows.first().map(|row| Time(row.get(0))))
    }
}

impl Slots for PostgresStore {
    fn queued(&self, now: Time, most: usize) -> Result<Vec<RunNo>> {
        let rows = self.connections.read(QUEUED, &[&now.0, &limit(most)])?;
        Ok(rows.iter().map(|row| RunNo(row.get(0))).collect())
    }

    fn slots_taken(&self, key: &str) -> Result<u32> {
        let rows = self.connections.read(SLOTS_TAKEN, &[&key])?;
        let taken: i32 = rows.first().map_or(0, |row| row.get(0));
        Ok(unsigned(taken))
    }
}
