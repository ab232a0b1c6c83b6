//! The outbox with its dead letters, alerts and projections.

use stepwell_engine::store::{
    AlertRow, Alerts, DeadLetter, DeadLetters, DeliveryFailure, Marker, NewAlert, NewProjection,
    NoticeFilter, Outbox, Projections, Result, RunNo, SinkRow, SinkStart,
};
use stepwell_kernel::time::Time;
use tokio_postgres::Row;

use super::query::Query;
use super::{PostgresStore, limit, row_changes, seq, unsigned};

/// Only a run's oldest marker is looked at: one that is not due, or that someone has, holds up those
/// after it. That is what keeps the order.
const TAKE: &str = "
WITH free AS MATERIALIZED (
    SELECT o.run_no, o.first_seq, o.due_at FROM outbox o
    WHERE o.sink = $1 AND o.due_at <= clock($3) AND (o.until IS NULL OR o.until < clock($3))
      AND NOT EXISTS (SELECT FROM outbox e WHERE e.sink = o.sink AND e.run_no = o.run_no
                      AND e.first_seq < o.first_seq)
    ORDER BY o.due_at, o.run_no LIMIT $6 FOR UPDATE OF o SKIP LOCKED
), taken AS (
    UPDATE outbox o SET publisher = $2, until = $5 + clock($3) - $4 FROM free
    WHERE o.sink = $1 AND o.run_no = free.run_no AND o.first_seq = free.first_seq
    RETURNING o.run_no, o.first_seq, o.attempts
)
SELECT $1, f.run_no, r.run_id, f.first_seq, t.attempts
FROM free f JOIN taken t ON t.run_no = f.run_no AND t.first_seq = f.first_seq
JOIN runs r ON r.run_no = f.run_no ORDER BY f.due_at, f.run_no";

const SENT: &str = "DELETE FROM outbox WHERE sink = $1 AND run_no = $2 AND first_seq = $3";

const FAILED: &str = "
UPDATE outbox SET attempts = attempts + 1, due_at = $4, publisher = NULL, until = NULL, why = $5
WHERE sink = $1 AND run_no = $2 AND first_seq = $3";

/// Someone else may have delivered or buried it since: then there is nothing to tell.
const BURY: &str = "
WITH gone AS (
    DELETE FROM outbox WHERE sink = $1 AND run_no = $2 AND first_seq = $3 RETURNING attempts
), letter AS (
    INSERT INTO dead_letters (run_no, at, first_seq, attempts, sink, why)
    SELECT $2, clock($4), $3, attempts + 1, $1, $5 FROM gone
)
INSERT INTO alerts (run_no, at, priority, code, message)
SELECT $2, clock($4), $6, $7, $8 FROM gone";

/// The statement of the list of dead letters: what comes after `$2`, and in which order.
macro_rules! letters {
    ($after:literal, $order:literal) => {
        concat!(
            "
SELECT d.sink, d.run_no, r.run_id, d.first_seq, d.attempts, d.letter_no, d.why, d.at
FROM dead_letters d JOIN runs r ON r.run_no = d.run_no
WHERE ",
            $after,
            " AND ($3::text IS NULL OR d.sink = $3)
  AND ($4::text IS NULL OR r.tenant = $4) AND ($5::text IS NULL OR r.project = $5)
  AND ($6::text IS NULL OR r.run_id = $6)
ORDER BY ",
            $order,
            " LIMIT $1"
        )
    };
}

const DEAD_LETTERS: &str = letters!("d.letter_no > COALESCE($2::bigint, -1)", "d.letter_no");

const NEWEST_DEAD_LETTERS: &str = letters!(
    "d.letter_no < COALESCE($2::bigint, 9223372036854775807)",
    "d.letter_no DESC"
);

/// A new beginning: all attempts again, and due since it was given up.
const REDRIVE: &str = "
WITH letter AS (
    DELETE FROM dead_letters WHERE letter_no = $1 RETURNING sink, run_no, first_seq, at
)
INSERT INTO outbox (sink, run_no, first_seq, attempts, due_at, since)
SELECT sink, run_no, first_seq, 0, at, at FROM letter
ON CONFLICT (sink, run_no, first_seq) DO UPDATE SET attempts = 0, due_at = excluded.due_at,
    since = excluded.since, publisher = NULL, until = NULL, why = NULL
RETURNING run_no";

const BACKLOG: &str = "SELECT count(*), min(since) FROM outbox WHERE sink = $1";

const DELIVERY_FAILURE: &str = "
SELECT attempts, why, due_at FROM outbox WHERE sink = $1 AND why IS NOT NULL
ORDER BY attempts DESC, run_no, first_seq LIMIT 1";

const ALERT: &str = "
INSERT INTO alerts (run_no, at, priority, code, message) VALUES ($1, clock($2), $3, $4, $5)";

const ALERTS: &str = "
SELECT a.alert_no, r.run_id, a.code, a.priority, a.message, a.at, a.run_no
FROM alerts a LEFT JOIN runs r ON r.run_no = a.run_no
WHERE a.alert_no < COALESCE($2::bigint, 9223372036854775807) AND ($3::text IS NULL OR a.code = $3)
  AND CASE WHEN a.run_no IS NULL THEN $7
      ELSE ($4::text IS NULL OR r.tenant = $4) AND ($5::text IS NULL OR r.project = $5)
        AND ($6::text IS NULL OR r.run_id = $6) END
ORDER BY a.alert_no DESC LIMIT $1";

const PUT_PROJECTIONS: &str = "
INSERT INTO projections AS p (run_no, at, seq, snapshot)
SELECT DISTINCT ON (n.run_no) n.run_no, clock($2), n.seq, n.snapshot
FROM unnest($1::bigint[], $3::int[], $4::text[]) AS n (run_no, seq, snapshot)
WHERE EXISTS (SELECT FROM runs r WHERE r.run_no = n.run_no)
ORDER BY n.run_no, n.seq DESC
ON CONFLICT (run_no) DO UPDATE SET at = excluded.at, seq = excluded.seq,
    snapshot = excluded.snapshot WHERE p.seq <= excluded.seq";

const PROJECTION: &str = "SELECT seq, snapshot FROM projections WHERE run_no = $1";

const WAITING_SINKS: &str = "SELECT sink FROM outbox GROUP BY sink ORDER BY sink COLLATE \"C\"";

/// Commits read the table: a commit that is under way is waited for, and those that come later see the change.
const LOCK_SINKS: &str = "LOCK TABLE sinks IN ACCESS EXCLUSIVE MODE";

const ADD_SINK: &str = "
INSERT INTO sinks (since, name, address) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET since = excluded.since, address = excluded.address";

const MARK_ALL: &str = "
WITH marked AS (
    INSERT INTO outbox (sink, run_no, first_seq, attempts, due_at, since)
    SELECT $1, run_no, first_seq, 0, clock($2), clock($2) FROM log
    ON CONFLICT DO NOTHING RETURNING 1
) SELECT count(*) FROM marked";

const SINKS: &str = "SELECT name, address, since FROM sinks ORDER BY name";

const REMOVE_SINK: &str = "DELETE FROM sinks WHERE name = $1 RETURNING name";

/// Nobody marks for a sink that is not registered but who names it, and then its deliveries stay.
const DROP_MARKERS: &str = "
WITH gone AS (
    DELETE FROM outbox WHERE sink = $1 AND NOT EXISTS (SELECT FROM sinks WHERE name = $1) RETURNING 1
) SELECT count(*) FROM gone";

impl Outbox for PostgresStore {
    fn take(
        &self,
        sink: &str,
        publisher: &str,
        now: Time,
        until: Time,
        most: usize,
    ) -> Result<Vec<Marker>> {
        let rows = self.connections.write(
            TAKE,
            &[
                &sink,
                &publisher,
                &self.given(now),
                &now.0,
                &until.0,
                &limit(most),
            ],
        )?;
        Ok(rows.iter().map(marker).collect())
    }

    fn sent(&self, marker: &Marker) -> Result<()> {
        let values: super::Values<'_> = &[&marker.sink, &marker.run.0, &seq(marker.first)];
        self.connections.write(SENT, values)?;
        Ok(())
    }

    fn failed(&self, marker: &Marker, at: Time, why: &str) -> Result<()> {
        let why = readable(why);
        let first = seq(marker.first);
        let values: super::Values<'_> = &[&marker.sink, &marker.run.0, &first, &at.0, &why];
        self.connections.write(FAILED, values)?;
        Ok(())
    }

    fn backlog(&self, sink: &str) -> Result<(u64, Option<Time>)> {
        let rows = self.connections.read(BACKLOG, &[&sink])?;
        let row = super::reads::first(&rows)?;
        let (count, since): (i64, Option<i64>) = (row.get(0), row.get(1));
        Ok((unsigned(count), since.map(Time)))
    }

    fn delivery_failure(&self, sink: &str) -> Result<Option<DeliveryFailure>> {
        let rows = self.connections.read(DELIVERY_FAILURE, &[&sink])?;
        Ok(rows.first().map(|row| DeliveryFailure {
            attempts: unsigned(row.get::<_, i32>(0)),
            why: row.get(1),
            due_at: Time(row.get(2)),
        }))
    }

    fn waiting_sinks(&self) -> Result<Vec<String>> {
        let rows = self.connections.read(WAITING_SINKS, &[])?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    fn add_sink(&self, sink: &SinkRow, start: SinkStart, now: Time) -> Result<u64> {
        let mut steps = vec![
            Query::new(LOCK_SINKS),
            Query::new(ADD_SINK)
                .with(sink.since.0)
                .with(&sink.name)
                .with(&sink.address),
        ];
        if start == SinkStart::Beginning {
            let mark = Query::new(MARK_ALL).with(&sink.name);
            steps.push(mark.with(self.given(now)));
        }
        let rows = self.connections.transact(steps)?;
        let marked = rows.get(2).and_then(|rows| rows.first());
        Ok(marked.map_or(0, |row| unsigned(row.get::<_, i64>(0))))
    }

    fn sinks(&self) -> Result<Vec<SinkRow>> {
        let rows = self.connections.read(SINKS, &[])?;
        let sink = |row: &Row| SinkRow {
            name: row.get(0),
            address: row.get(1),
            since: Time(row.get(2)),
        };
        Ok(rows.iter().map(sink).collect())
    }

    fn remove_sink(&self, name: &str) -> Result<Option<u64>> {
        let rows = self.connections.transact(vec![
            Query::new(LOCK_SINKS),
            Query::new(REMOVE_SINK).with(name),
            Query::new(DROP_MARKERS).with(name),
        ])?;
        let is_gone = rows.get(1).is_some_and(|rows| !rows.is_empty());
        let dropped = rows.get(2).and_then(|rows| rows.first());
        let dropped = dropped.map_or(0, |row| unsigned(row.get::<_, i64>(0)));
        Ok(is_gone.then_some(dropped))
    }
}

impl DeadLetters for PostgresStore {
    fn bury(&self, marker: &Marker, now: Time, why: &str, alert: &NewAlert) -> Result<()> {
        self.connections.transact(vec![
            Query::new(BURY)
                .with(&marker.sink)
                .with(marker.run.0)
                .with(seq(marker.first))
                .with(self.given(now))
                .with(readable(why))
                .with(row_changes::rank(alert.priority))
                .with(&alert.code)
                .with(readable(&alert.message)),
        ])?;
        Ok(())
    }

    fn list_dead_letters(&self, filter: &NoticeFilter) -> Result<Vec<DeadLetter>> {
        let statement = match filter.newest_first {
            true => NEWEST_DEAD_LETTERS,
            false => DEAD_LETTERS,
        };
        let rows = self.notices(statement, filter, &[])?;
        let letter = |row: &Row| DeadLetter {
            no: row.get(5),
            marker: marker(row),
            why: row.get(6),
            at: Time(row.get(7)),
        };
        Ok(rows.iter().map(letter).collect())
    }

    fn redrive(&self, letter: i64) -> Result<bool> {
        Ok(!self.connections.write(REDRIVE, &[&letter])?.is_empty())
    }
}

impl Alerts for PostgresStore {
    fn alert(&self, run: Option<RunNo>, alert: &NewAlert, now: Time) -> Result<()> {
        self.connections.write(
            ALERT,
            &[
                &run.map(|it| it.0),
                &self.given(now),
                &row_changes::rank(alert.priority),
                &alert.code,
                &readable(&alert.message),
            ],
        )?;
        Ok(())
    }

    fn list_alerts(&self, filter: &NoticeFilter) -> Result<Vec<AlertRow>> {
        let rows = self.notices(ALERTS, filter, &[&filter.about_store])?;
        Ok(rows.iter().map(alert).collect())
    }
}

impl Projections for PostgresStore {
    fn put_projections(&self, all: &[NewProjection], now: Time) -> Result<()> {
        let runs: Vec<i64> = all.iter().map(|it| it.run.0).collect();
        let seqs: Vec<i32> = all.iter().map(|it| seq(it.seq)).collect();
        let snapshots: Vec<&str> = all.iter().map(|it| it.snapshot.as_str()).collect();
        let values: super::Values<'_> = &[&runs, &self.given(now), &seqs, &snapshots];
        self.connections.write(PUT_PROJECTIONS, values)?;
        Ok(())
    }

    fn projection(&self, run: RunNo) -> Result<Option<(u64, String)>> {
        let rows = self.connections.read(PROJECTION, &[&run.0])?;
        Ok(rows
            .first()
            .map(|row| (unsigned(row.get::<_, i32>(0)), row.get(1))))
    }
}

impl PostgresStore {
    /// The rows of a list of notices. The first parameters of its statement are the fields of the filter.
    fn notices(
        &self,
        statement: &'static str,
        filter: &NoticeFilter,
        more: super::Values<'_>,
    ) -> Result<Vec<Row>> {
        if has_nul(filter) {
            return Ok(Vec::new());
        }
        let most = limit(filter.limit);
        let mut values: Vec<_> = Vec::with_capacity(6 + more.len());
        let first: super::Values<'_> = &[
            &most,
            &filter.past,
            &filter.word,
            &filter.tenant,
            &filter.project,
            &filter.run_id,
        ];
        values.extend_from_slice(first);
        values.extend_from_slice(more);
        self.connections.read(statement, &values)
    }
}

/// No text of the database has a NUL, so nothing is found by one.
fn has_nul(filter: &NoticeFilter) -> bool {
    let texts = [
        &filter.word,
        &filter.tenant,
        &filter.project,
        &filter.run_id,
    ];
    texts.into_iter().flatten().any(|it| it.contains('\0'))
}

/// Text for people that may come from anywhere: what no text of the database can hold is left out,
/// because an alert with a hole is better than none.
pub(super) fn readable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn marker(row: &Row) -> Marker {
    Marker {
        sink: row.get(0),
        run: RunNo(row.get(1)),
        run_id: row.get(2),
        first: unsigned(row.get::<_, i32>(3)),
        attempts: unsigned(row.get::<_, i32>(4)),
    }
}

/// A row of `alerts`. One about a run that is not there is about a run without an id.
pub(super) fn alert(row: &Row) -> AlertRow {
    let (run_id, run): (Option<String>, Option<i64>) = (row.get(1), row.get(6));
    AlertRow {
        no: row.get(0),
        run_id: run_id.or_else(|| run.map(|_| String::new())),
        code: row.get(2),
        priority: row_changes::priority(row.get(3)),
        message: row.get(4),
        at: Time(row.get(5)),
    }
}
