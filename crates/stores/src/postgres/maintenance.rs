//! The store as a whole: its secret, its size, and the search for damage (rows that contradict each
//! other), which reads everything and therefore lets the server plan freely.

use stepwell_engine::random;
use stepwell_engine::store::{
    DerivedRows, Health, KeptRows, Maintenance, Result, RunColumns, RunNo, StoreError,
    StoreErrorKind, UniqueKey, WaitingCounts,
};
use stepwell_kernel::time::Time;

use super::errors::DbError;
use super::outbox::readable;
use super::query::{Query, Values};
use super::{PostgresStore, broken, limit, migrate, reads, unsigned};

const COUNTS: &str = "
SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM heads WHERE ended_at IS NULL)";

/// `now` is given by the caller, or by the store if it has the time.
const WAITING: &str = "
SELECT (SELECT count(*) FROM heads WHERE queued AND session_no IS NULL),
       (SELECT count(*) FROM tasks WHERE NOT leased AND NOT stopping),
       (SELECT count(*) FROM tasks WHERE leased),
       (SELECT count(*) FROM outbox), (SELECT min(since) FROM outbox),
       (SELECT count(*) FROM dead_letters),
       (SELECT count(*) FROM sessions WHERE NOT dead AND ends_at >= clock($1))";

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

const PLANLESS: &str = "
SELECT format('run %s: its plan is not there', r.run_id) FROM runs r
WHERE NOT EXISTS (SELECT FROM plans p WHERE p.plan_no = r.plan_no) LIMIT 100";

const AHEAD: &str = "
SELECT format('run %s: its snapshot is ahead of its log', r.run_id)
FROM snapshots s LEFT JOIN runs r ON r.run_no = s.run_no
WHERE NOT EXISTS (SELECT FROM log l WHERE l.run_no = s.run_no AND l.last_seq >= s.seq) LIMIT 100";

/// Rows that follow from the log of a run that is not there, and heads that name a session that is not there.
const ORPHANS: &str = "
SELECT format('run number %s: rows of %s without a run', x.run_no, x.name) FROM (
    SELECT DISTINCT run_no, 'log' AS name FROM log UNION ALL
    SELECT DISTINCT run_no, 'event_keys' FROM event_keys UNION ALL
    SELECT run_no, 'snapshots' FROM snapshots UNION ALL
    SELECT DISTINCT run_no, 'waits' FROM waits UNION ALL
    SELECT DISTINCT run_no, 'tasks' FROM tasks UNION ALL
    SELECT run_no, 'unique_keys' FROM unique_keys UNION ALL
    SELECT DISTINCT run_no, 'view_rows' FROM view_rows UNION ALL
    SELECT DISTINCT run_no, 'run_labels' FROM run_labels
) x WHERE NOT EXISTS (SELECT FROM runs r WHERE r.run_no = x.run_no) LIMIT 100";

const SESSIONLESS: &str = "
SELECT format('run %s: its head names a session that is not there', r.run_id)
FROM heads h JOIN runs r ON r.run_no = h.run_no
WHERE NOT EXISTS (SELECT FROM sessions s WHERE s.session_no = h.session_no) AND h.session_no IS NOT NULL LIMIT 100";

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

const QUARANTINE: &str = "
INSERT INTO quarantine (run_no, at, why) VALUES ($1, clock($2), $3) ON CONFLICT DO NOTHING";

const QUARANTINED: &str = "SELECT run_no, why FROM quarantine ORDER BY at, run_no";

const RELEASE: &str = "DELETE FROM quarantine WHERE run_no = $1";

const SCRUBBED: &str = "SELECT value FROM settings WHERE name = 'scrubbed'";

const SCRUB_ENDED: &str = "DELETE FROM settings WHERE name = 'scrubbed'";

const SET_SCRUBBED: &str = "
INSERT INTO settings (name, value) VALUES ('scrubbed', $1)
ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value";

const KEPT_COLUMNS: &str = "
SELECT r.tenant, r.project, r.environment, r.parent, r.event_key, r.created_at, h.due_at, r.priority, h.tenant
FROM runs r JOIN heads h ON h.run_no = r.run_no WHERE r.run_no = $1";

const KEPT_LABELS: &str = "SELECT name, value FROM run_labels WHERE run_no = $1";

const KEPT_KEYS: &str = "SELECT key FROM event_keys WHERE run_no = $1";

const KEPT_WAITS: &str = "SELECT step, event_type, event_key FROM waits WHERE run_no = $1";

const KEPT_UNIQUE: &str = "SELECT tenant, key FROM unique_keys WHERE run_no = $1";

const KEPT_VIEWS: &str = "SELECT view_name, row_no, body FROM view_rows WHERE run_no = $1";

const SET_COLUMNS: &str = "
UPDATE runs SET tenant = $2, project = $3, environment = $4, parent = $5, event_key = $6, created_at = $7,
    priority = $8
WHERE run_no = $1";

const PUT_HEAD: &str = "
INSERT INTO heads (run_no, version, commit_session, commit_number, session_no, wake_at, due_at, ended_at, slots,
                   queued, status, substatus, tenant)
VALUES ($1, 1, 0, 0, $2, $3, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (run_no) DO UPDATE SET version = heads.version + 1, session_no = $2, wake_at = $3, due_at = $3,
    ended_at = $4, slots = $5, queued = $6, status = $7, substatus = $8,
    tenant = $9";

const DROP_LABELS: &str = "DELETE FROM run_labels WHERE run_no = $1";

const PUT_LABELS: &str = "
INSERT INTO run_labels (run_no, name, value)
SELECT $1, l.name, l.value FROM unnest($2::text[], $3::text[]) AS l (name, value)";

const DROP_KEYS: &str = "DELETE FROM event_keys WHERE run_no = $1";

const PUT_KEYS: &str = "INSERT INTO event_keys (run_no, key) SELECT $1, unnest($2::bytea[])";

const DROP_WAITS: &str = "
DELETE FROM waits WHERE run_no = $1
  AND ((step, event_type) NOT IN (SELECT * FROM unnest($2::text[], $3::text[])) OR event_key <> $4)";

const PUT_WAITS: &str = "
INSERT INTO waits (run_no, since, given, step, event_type, event_key)
SELECT $1, clock($2), false, w.step, w.event_type, $3 FROM unnest($4::text[], $5::text[]) AS w (step, event_type)
ON CONFLICT DO NOTHING";

const DROP_UNIQUE: &str = "DELETE FROM unique_keys WHERE run_no = $1";

const PUT_UNIQUE: &str = "
INSERT INTO unique_keys (run_no, tenant, key) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";

const DROP_VIEW_ROWS: &str = "DELETE FROM view_rows WHERE run_no = $1";

const PUT_VIEW_ROWS: &str = "
INSERT INTO view_rows (run_no, view_name, row_no, body)
SELECT $1, v.view_name, v.row_no, v.body
FROM unnest($2::text[], $3::bigint[], $4::text[]) AS v (view_name, row_no, body)";

const DROP_SNAPSHOT: &str = "DELETE FROM snapshots WHERE run_no = $1";

const BYTES: &str = "
SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace";

impl Maintenance for PostgresStore {
    fn secret(&self) -> Result<[u8; 32]> {
        let mut known = self.connections.read(SECRET, &[])?;
        if known.is_empty() {
            let fresh = random::bytes::<32>()?;
            self.connections.write(MAKE_SECRET, &[&fresh.as_slice()])?;
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
        // A schema without tables has no size.
        Ok(bytes.map_or(0, unsigned))
    }

    fn waiting(&self, now: Time) -> Result<WaitingCounts> {
        let rows = self.connections.read(WAITING, &[&self.given(now)])?;
        let row = reads::first(&rows)?;
        let count = |at: usize| unsigned(row.get::<_, i64>(at));
        Ok(WaitingCounts {
            queued: count(0),
            offered: count(1),
            leased: count(2),
            outbox: count(3),
            outbox_since: row.get::<_, Option<i64>>(4).map(Time),
            dead_letters: count(5),
            sessions: count(6),
        })
    }

    fn quarantine(&self, run: RunNo, why: &str, now: Time) -> Result<()> {
        let values: Values<'_> = &[&run.0, &self.given(now), &readable(why)];
        self.connections.write(QUARANTINE, values).map(|_| ())
    }

    fn quarantined(&self) -> Result<Vec<(RunNo, String)>> {
        let rows = self.connections.read(QUARANTINED, &[])?;
        Ok(rows
            .iter()
            .map(|row| (RunNo(row.get(0)), row.get(1)))
            .collect())
    }

    fn release(&self, run: RunNo) -> Result<()> {
        self.connections.write(RELEASE, &[&run.0]).map(|_| ())
    }

    fn scrubbed(&self) -> Result<Option<RunNo>> {
        let rows = self.connections.read(SCRUBBED, &[])?;
        let text = rows.first().map(|row| row.get::<_, Vec<u8>>(0));
        let number = text.and_then(|it| String::from_utf8(it).ok()?.parse().ok());
        Ok(number.map(RunNo))
    }

    fn set_scrubbed(&self, run: Option<RunNo>) -> Result<()> {
        let Some(run) = run else {
            return self.connections.write(SCRUB_ENDED, &[]).map(|_| ());
        };
        let text = run.0.to_string().into_bytes();
        self.connections
            .write(SET_SCRUBBED, &[&text.as_slice()])
            .map(|_| ())
    }

    fn kept_rows(&self, run: RunNo) -> Result<Option<KeptRows>> {
        let ask = |sql: &'static str| self.connections.read(sql, &[&run.0]);
        let columns = ask(KEPT_COLUMNS)?;
        let Some(row) = columns.first() else {
            return Ok(None);
        };
        let columns = RunColumns {
            tenant: row.get(0),
            project: row.get(1),
            environment: row.get(2),
            parent: row.get(3),
            event_key: row.get(4),
            created_at: Time(row.get(5)),
            priority: row.get(7),
            labels: ask(KEPT_LABELS)?
                .iter()
                .map(|row| (row.get(0), row.get(1)))
                .collect(),
        };
        let unique = |row: &tokio_postgres::Row| UniqueKey {
            tenant: row.get(0),
            key: row.get(1),
        };
        Ok(Some(KeptRows {
            columns,
            head_tenant: row.get(8),
            due_at: row.get::<_, Option<i64>>(6).map(Time),
            keys: ask(KEPT_KEYS)?.iter().map(|row| row.get(0)).collect(),
            waits: ask(KEPT_WAITS)?
                .iter()
                .map(|row| (row.get(0), row.get(1), row.get(2)))
                .collect(),
            unique_keys: ask(KEPT_UNIQUE)?.iter().map(unique).collect(),
            view_rows: ask(KEPT_VIEWS)?
                .iter()
                .map(|row| (row.get(0), row.get(1), row.get(2)))
                .collect(),
        }))
    }

    fn rebuild(&self, run: RunNo, rows: &DerivedRows, now: Time) -> Result<()> {
        let (head, columns) = (&rows.head, &rows.columns);
        let own = Query::new(SET_COLUMNS)
            .with(run.0)
            .with(&columns.tenant)
            .with(&columns.project)
            .with(&columns.environment)
            .with(columns.parent.as_ref())
            .with(&columns.event_key)
            .with(columns.created_at.0)
            .with(columns.priority);
        let head = Query::new(PUT_HEAD)
            .with(run.0)
            .with(head.session.map(|it| it.0))
            .with(head.wake_at.map(|it| it.0))
            .with(head.ended_at.map(|it| it.0))
            .with(crate::slots_text(&head.slots))
            .with(head.queued)
            .with(&head.status)
            .with(head.substatus.as_ref())
            .with(&columns.tenant);
        let (names, labels): (Vec<&str>, Vec<&str>) = columns
            .labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .unzip();
        let (steps, types): (Vec<&str>, Vec<&str>) = rows
            .waits
            .iter()
            .map(|(step, kind)| (step.as_str(), kind.as_str()))
            .unzip();
        let keys: Vec<&[u8]> = rows.keys.iter().map(Vec::as_slice).collect();
        let views: Vec<&str> = rows.view_rows.iter().map(|it| it.view).collect();
        let places: Vec<i64> = rows
            .view_rows
            .iter()
            .map(|it| i64::from(it.row_no))
            .collect();
        let bodies: Vec<&str> = rows.view_rows.iter().map(|it| it.body.as_str()).collect();
        let mut queries = vec![
            own,
            head,
            Query::new(DROP_LABELS).with(run.0),
            Query::new(PUT_LABELS).with(run.0).with(names).with(labels),
            Query::new(DROP_KEYS).with(run.0),
            Query::new(PUT_KEYS).with(run.0).with(keys),
            Query::new(DROP_WAITS)
                .with(run.0)
                .with(steps.clone())
                .with(types.clone())
                .with(&columns.event_key),
            Query::new(PUT_WAITS)
                .with(run.0)
                .with(self.given(now))
                .with(&columns.event_key)
                .with(steps)
                .with(types),
            Query::new(DROP_UNIQUE).with(run.0),
            Query::new(DROP_VIEW_ROWS).with(run.0),
            Query::new(PUT_VIEW_ROWS)
                .with(run.0)
                .with(views)
                .with(places)
                .with(bodies),
            Query::new(DROP_SNAPSHOT).with(run.0),
        ];
        if let Some(key) = &rows.unique_key {
            let put = Query::new(PUT_UNIQUE)
                .with(run.0)
                .with(&key.tenant)
                .with(&key.key);
            queries.push(put);
        }
        self.connections.transact(queries).map(|_| ())
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
            for sql in [
                GAPS,
                KEYS,
                HEADLESS,
                EMPTY,
                PLANLESS,
                AHEAD,
                ORPHANS,
                SESSIONLESS,
            ] {
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
            runs: unsigned(runs),
            open: unsigned(open),
            problems,
        })
    }
}
