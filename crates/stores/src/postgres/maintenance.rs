//! The store as a whole: its secret, its size, and the search for damage (rows that contradict each
//! other), which reads everything and therefore lets the server plan freely.

use stepwell_engine::store::{Health, Maintenance, Result, StoreError, StoreErrorKind};

use super::errors::DbError;
use super::{PostgresStore, broken, limit, migrate, reads};

const COUNTS: &str = "
SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM heads WHERE ended_at IS NULL)";

/// At most this many of each kind are named.
const GAPS: &str = "
SELECT format('run %s: the log has a gap after event %s', r.run_id, x.before)
FROM (SELECT run_no, first_seq, COALESCE(lag(last_seq) OVER (PARTITION BY run_no ORDER BY first_seq), 0)
             AS before FROM log) x
LEFT JOIN runs r ON r.run_no = x.run_no WHERE x.first_seq <> x.before + 1 LIMIT 100";

const KEYS: &str = "
SELECT format('run %s: %s events, %s keys', r.run_id, COALESCE(l.events, 0), COALESCE(k.keys, 0))
FROM (SELECT run_no, sum(last_seq - first_seq + 1) AS events FROM log GROUP BY run_no) l
FULL JOIN (SELECT run_no, count(*) AS keys FROM event_keys GROUP BY run_no) k ON k.run_no = l.run_no
LEFT JOIN runs r ON r.run_no = COALESCE(l.run_no, k.run_no)
WHERE COALESCE(l.events, 0) <> COALESCE(k.keys, 0) LIMIT 100";

const HEADLESS: &str = "
SELECT format('run %s: %s', COALESCE(r.run_id, h.run_no::text),
              CASE WHEN r.run_no IS NULL THEN 'it has a head and no row of its own'
                   ELSE 'it has no head' END)
FROM runs r FULL JOIN heads h ON h.run_no = r.run_no
WHERE r.run_no IS NULL OR h.run_no IS NULL LIMIT 100";

const EMPTY: &str = "
SELECT format('run %s: it has no events', r.run_id) FROM runs r
WHERE NOT EXISTS (SELECT FROM log l WHERE l.run_no = r.run_no) LIMIT 100";

const AHEAD: &str = "
SELECT format('run %s: its snapshot is ahead of its log', r.run_id)
FROM snapshots s LEFT JOIN runs r ON r.run_no = s.run_no
WHERE NOT EXISTS (SELECT FROM log l WHERE l.run_no = s.run_no AND l.last_seq >= s.seq) LIMIT 100";

/// Nobody has it and nothing will wake it.
const ASLEEP: &str = "
SELECT r.run_id
FROM heads h JOIN runs r ON r.run_no = h.run_no
WHERE h.ended_at IS NULL AND h.session_no IS NULL AND h.wake_at IS NULL AND NOT h.queued
  AND NOT EXISTS (SELECT FROM tasks t WHERE t.run_no = h.run_no)
  AND NOT EXISTS (SELECT FROM waits w WHERE w.run_no = h.run_no)
  AND NOT EXISTS (SELECT FROM mailbox m WHERE m.run_no = h.run_no AND m.answer IS NULL) ORDER BY r.run_no LIMIT $1";

const AT_ONCE: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

const FREELY: &str = "
SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on;
SET LOCAL enable_bitmapscan = on; SET LOCAL statement_timeout = 0";

const SECRET: &str = "SELECT value FROM settings WHERE name = 'secret'";

const MAKE_SECRET: &str = "
INSERT INTO settings (name, value) VALUES ('secret', $1) ON CONFLICT DO NOTHING";

const BYTES: &str = "
SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace";

impl Maintenance for PostgresStore {
    fn secret(&self) -> Result<[u8; 32]> {
        let mut known = self.connections.read(SECRET, &[])?;
        if known.is_empty() {
            // Version 4 UUIDs come from the system's random source, 122 bits each.
            let mut fresh = Vec::with_capacity(32);
            for _ in 0..2 {
                fresh.extend_from_slice(uuid::Uuid::new_v4().as_bytes());
            }
            self.connections.write(MAKE_SECRET, &[&fresh])?;
            known = self.connections.read(SECRET, &[])?;
        }
        let secret: Vec<u8> = reads::first(&known)?.get(0);
        let wrong = |_| StoreError::new(StoreErrorKind::Corrupt, "the secret has not 32 bytes");
        secret.try_into().map_err(wrong)
    }

    fn check(&self) -> Result<Health> {
        self.look_for_damage()
    }

    /// Of the tables and their indexes.
    fn bytes(&self) -> Result<u64> {
        let rows = self.connections.read(BYTES, &[])?;
        let bytes: Option<i64> = rows.first().and_then(|row| row.get(0));
        Ok(bytes.and_then(|it| u64::try_from(it).ok()).unwrap_or(0))
    }
}

impl PostgresStore {
    /// `RunReader::asleep`. Not part of `check`, which knows nothing of what runs are for.
    pub(super) fn runs_nothing_wakes(&self, most: usize) -> Result<Vec<String>> {
        let rows = self.connections.read(ASLEEP, &[&limit(most)])?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    fn look_for_damage(&self) -> Result<Health> {
        let mut connection = self.connections.get()?;
        let found = connection.wait_long(async |connection| {
            connection.begin(AT_ONCE).await?;
            connection.script(FREELY).await?;
            let counts = connection.query(COUNTS, &[]).await;
            let mut problems = Vec::new();
            for sql in [GAPS, KEYS, HEADLESS, EMPTY, AHEAD] {
                match connection.query(sql, &[]).await {
                    Ok(rows) => problems.extend(rows.iter().map(|row| row.get::<_, String>(0))),
                    Err(fault) => {
                        connection.script("ROLLBACK").await?;
                        return Err(fault);
                    }
                }
            }
            connection.script("ROLLBACK").await?;
            Ok((counts?, problems))
        });
        let (counts, problems) = found.map_err(DbError::of_read)?;
        let row = counts
            .first()
            .ok_or_else(|| broken("nothing was counted"))?;
        let (runs, open): (i64, i64) = (row.get(0), row.get(1));
        Ok(Health {
            schema: i64::from(migrate::VERSION),
            runs: u64::try_from(runs).unwrap_or(0),
            open: u64::try_from(open).unwrap_or(0),
            problems,
        })
    }
}
