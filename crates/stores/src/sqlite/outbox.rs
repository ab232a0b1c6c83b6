//! The outbox, its dead letters, alerts and projections.

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use stepwell_engine::store::{
    AlertRow, Alerts, DeadLetter, DeadLetters, DeliveryFailure, Marker, NewAlert, NewProjection,
    NoticeFilter, Outbox, Projections, Result, RunNo, SinkRow, SinkStart,
};
use stepwell_kernel::effect::Priority;
use stepwell_kernel::time::Time;

use super::SqliteStore;
use super::commit::seq;
use super::tasks::limit_of;

/// Marks a chunk as to be delivered.
pub(super) fn mark(
    conn: &Connection,
    sink: &str,
    run: RunNo,
    first: u64,
    now: Time,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO outbox (sink, run_no, first_seq, attempts, due_at, since)
         VALUES (?1, ?2, ?3, 0, ?4, ?4) ON CONFLICT DO NOTHING",
    )?
    .execute(params![sink, run.0, seq(first), now.0])?;
    Ok(())
}

/// Inserts a row of `alerts`; `run` is absent if the alert is not about a run.
pub(super) fn raise(
    conn: &Connection,
    run: Option<RunNo>,
    alert: &NewAlert,
    now: Time,
) -> rusqlite::Result<()> {
    let priority = match alert.priority {
        Priority::P1 => 1,
        Priority::P2 => 2,
        Priority::P3 => 3,
    };
    conn.prepare_cached(
        "INSERT INTO alerts (run_no, code, priority, message, at) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        run.map(|it| it.0),
        alert.code,
        priority,
        alert.message,
        now.0
    ])?;
    Ok(())
}

/// Reads a marker from five columns.
fn marker(row: &Row<'_>, from: usize) -> rusqlite::Result<Marker> {
    Ok(Marker {
        sink: row.get(from)?,
        run: RunNo(row.get(from + 1)?),
        run_id: row.get(from + 2)?,
        first: row.get(from + 3)?,
        attempts: row.get(from + 4)?,
    })
}

/// For each run its oldest marker, if it is due and nobody has it; those that have waited longest
/// first. One that is not due, or that someone has, holds up those after it: that keeps the order.
/// Runs are found by leaps through the primary key, so a run with many markers costs one step.
fn free(conn: &Connection, sink: &str, now: Time, limit: usize) -> rusqlite::Result<Vec<Marker>> {
    conn.prepare_cached(
        "WITH RECURSIVE its(run_no) AS (
           SELECT min(run_no) FROM outbox WHERE sink = ?1
           UNION ALL
           SELECT (SELECT min(run_no) FROM outbox WHERE sink = ?1 AND run_no > its.run_no)
           FROM its WHERE its.run_no IS NOT NULL
         )
         SELECT o.sink, o.run_no, runs.run_id, o.first_seq, o.attempts
         FROM its
         JOIN outbox AS o ON o.sink = ?1 AND o.run_no = its.run_no AND o.first_seq =
           (SELECT min(first_seq) FROM outbox WHERE sink = ?1 AND run_no = its.run_no)
         JOIN runs ON runs.run_no = its.run_no
         WHERE o.due_at <= ?2 AND (o.until IS NULL OR o.until < ?2)
         ORDER BY o.due_at, o.run_no LIMIT ?3",
    )?
    .query_map(params![sink, now.0, limit_of(limit)], |row| marker(row, 0))?
    .collect()
}

impl Outbox for SqliteStore {
    fn take(
        &self,
        sink: &str,
        publisher: &str,
        now: Time,
        until: Time,
        limit: usize,
    ) -> Result<Vec<Marker>> {
        if self.read(|conn| free(conn, sink, now, 1))?.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        self.write(|conn| {
            let markers = free(conn, sink, now, limit)?;
            let mut take = conn.prepare_cached(
                "UPDATE outbox SET publisher = ?4, until = ?5
                 WHERE sink = ?1 AND run_no = ?2 AND first_seq = ?3",
            )?;
            for it in &markers {
                take.execute(params![sink, it.run.0, seq(it.first), publisher, until.0])?;
            }
            Ok(markers)
        })
    }

    fn sent(&self, marker: &Marker) -> Result<()> {
        self.write(|conn| {
            conn.prepare_cached(
                "DELETE FROM outbox WHERE sink = ?1 AND run_no = ?2 AND first_seq = ?3",
            )?
            .execute(params![marker.sink, marker.run.0, seq(marker.first)])?;
            Ok(())
        })
    }

    fn failed(&self, marker: &Marker, at: Time, why: &str) -> Result<()> {
        self.write(|conn| {
            conn.prepare_cached(
                "UPDATE outbox SET attempts = attempts + 1, due_at = ?4, publisher = NULL,
                   until = NULL, why = ?5
                 WHERE sink = ?1 AND run_no = ?2 AND first_seq = ?3",
            )?
            .execute(params![
                marker.sink,
                marker.run.0,
                seq(marker.first),
                at.0,
                why
            ])?;
            Ok(())
        })
    }

    fn backlog(&self, sink: &str) -> Result<(u64, Option<Time>)> {
        self.read(|conn| {
            conn.prepare_cached("SELECT count(*), min(since) FROM outbox WHERE sink = ?1")?
                .query_row([sink], |row| {
                    Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?.map(Time)))
                })
        })
    }

    fn delivery_failure(&self, sink: &str) -> Result<Option<DeliveryFailure>> {
        self.read(|conn| {
            conn.prepare_cached(
                "SELECT attempts, why, due_at FROM outbox WHERE sink = ?1 AND why IS NOT NULL
                 ORDER BY attempts DESC, run_no, first_seq LIMIT 1",
            )?
            .query_row([sink], |row| {
                Ok(DeliveryFailure {
                    attempts: row.get(0)?,
                    why: row.get(1)?,
                    due_at: Time(row.get(2)?),
                })
            })
            .optional()
        })
    }

    fn waiting_sinks(&self) -> Result<Vec<String>> {
        self.read(|conn| {
            let mut found =
                conn.prepare_cached("SELECT DISTINCT sink FROM outbox ORDER BY sink")?;
            found.query_map([], |row| row.get(0))?.collect()
        })
    }

    fn add_sink(&self, sink: &SinkRow, start: SinkStart, now: Time) -> Result<u64> {
        self.send(|conn| {
            conn.prepare_cached(
                "INSERT INTO sinks (name, address, since) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO UPDATE SET address = ?2, since = ?3",
            )?
            .execute(params![sink.name, sink.address, sink.since.0])?;
            if start == SinkStart::Now {
                return Ok(0);
            }
            let marked = conn
                .prepare_cached(
                    "INSERT INTO outbox (sink, run_no, first_seq, attempts, due_at, since)
                     SELECT ?1, run_no, first_seq, 0, ?2, ?2 FROM log WHERE true
                     ON CONFLICT DO NOTHING",
                )?
                .execute(params![sink.name, now.0])?;
            Ok(marked as u64)
        })
    }

    fn sinks(&self) -> Result<Vec<SinkRow>> {
        self.read(|conn| {
            let mut found =
                conn.prepare_cached("SELECT name, address, since FROM sinks ORDER BY name")?;
            let sink = |row: &Row<'_>| {
                Ok(SinkRow {
                    name: row.get(0)?,
                    address: row.get(1)?,
                    since: Time(row.get(2)?),
                })
            };
            found.query_map([], sink)?.collect()
        })
    }

    fn remove_sink(&self, name: &str) -> Result<Option<u64>> {
        self.send(|conn| {
            let gone = conn
                .prepare_cached("DELETE FROM sinks WHERE name = ?1")?
                .execute([name])?;
            if gone == 0 {
                return Ok(None);
            }
            let dropped = conn
                .prepare_cached("DELETE FROM outbox WHERE sink = ?1")?
                .execute([name])?;
            Ok(Some(dropped as u64))
        })
    }
}

/// The names of the registered sinks.
pub(super) fn registered(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    conn.prepare_cached("SELECT name FROM sinks")?
        .query_map([], |row| row.get(0))?
        .collect()
}

impl DeadLetters for SqliteStore {
    fn bury(&self, marker: &Marker, now: Time, why: &str, alert: &NewAlert) -> Result<()> {
        self.write(|conn| {
            let attempts: Option<i64> = conn
                .prepare_cached(
                    "DELETE FROM outbox WHERE sink = ?1 AND run_no = ?2 AND first_seq = ?3
                     RETURNING attempts",
                )?
                .query_row(
                    params![marker.sink, marker.run.0, seq(marker.first)],
                    |row| row.get(0),
                )
                .optional()?;
            // Someone else may have delivered or buried it since: then there is nothing to tell.
            let Some(attempts) = attempts else {
                return Ok(());
            };
            conn.prepare_cached(
                "INSERT INTO dead_letters (sink, run_no, first_seq, attempts, why, at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                marker.sink,
                marker.run.0,
                seq(marker.first),
                attempts + 1,
                why,
                now.0
            ])?;
            raise(conn, Some(marker.run), alert, now)
        })
    }

    fn list_dead_letters(&self, filter: &NoticeFilter) -> Result<Vec<DeadLetter>> {
        self.read(|conn| letters(conn, filter))
    }

    fn redrive(&self, letter: i64) -> Result<bool> {
        self.write(|conn| {
            // A new beginning: all attempts again, and due since it was given up.
            let put_back = conn
                .prepare_cached(
                    "INSERT OR REPLACE INTO outbox (sink, run_no, first_seq, attempts, due_at, since)
                     SELECT sink, run_no, first_seq, 0, at, at FROM dead_letters
                     WHERE letter_no = ?1",
                )?
                .execute([letter])?;
            conn.prepare_cached("DELETE FROM dead_letters WHERE letter_no = ?1")?
                .execute([letter])?;
            Ok(put_back > 0)
        })
    }
}

impl Alerts for SqliteStore {
    fn alert(&self, run: Option<RunNo>, alert: &NewAlert, now: Time) -> Result<()> {
        self.send(|conn| raise(conn, run, alert, now))
    }

    fn list_alerts(&self, filter: &NoticeFilter) -> Result<Vec<AlertRow>> {
        self.read(|conn| alerts(conn, filter))
    }
}

impl Projections for SqliteStore {
    fn put_projections(&self, all: &[NewProjection], now: Time) -> Result<()> {
        self.send(|conn| {
            let mut put = conn.prepare_cached(
                "INSERT INTO projections SELECT ?1, ?2, ?3, ?4
                 WHERE EXISTS (SELECT 1 FROM runs WHERE run_no = ?1)
                 ON CONFLICT DO UPDATE SET seq = ?2, snapshot = ?3, at = ?4 WHERE seq <= ?2",
            )?;
            for new in all {
                put.execute(params![new.run.0, seq(new.seq), new.snapshot, now.0])?;
            }
            Ok(())
        })
    }

    fn projection(&self, run: RunNo) -> Result<Option<(u64, String)>> {
        self.read(|conn| {
            conn.prepare_cached("SELECT seq, snapshot FROM projections WHERE run_no = ?1")?
                .query_row([run.0], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
        })
    }
}

/// The statement of the list of dead letters: what comes after `?2`, and in which order.
macro_rules! letters {
    ($after:literal, $order:literal) => {
        concat!(
            "SELECT letter_no, why, at, sink, run_no, coalesce(run_id, ''), first_seq, attempts
             FROM dead_letters LEFT JOIN runs USING (run_no)
             WHERE ",
            $after,
            " AND (?3 IS NULL OR sink = ?3) AND (?4 IS NULL OR tenant = ?4)
               AND (?5 IS NULL OR project = ?5) AND (?6 IS NULL OR run_id = ?6)
             ORDER BY ",
            $order,
            " LIMIT ?1"
        )
    };
}

/// Dead letters, oldest first unless the filter asks for the newest first.
pub(super) fn letters(
    conn: &Connection,
    filter: &NoticeFilter,
) -> rusqlite::Result<Vec<DeadLetter>> {
    conn.prepare_cached(match filter.newest_first {
        true => letters!(
            "letter_no < coalesce(?2, 9223372036854775807)",
            "letter_no DESC"
        ),
        false => letters!("letter_no > coalesce(?2, -1)", "letter_no"),
    })?
    .query_map(asked(filter), |row| {
        Ok(DeadLetter {
            no: row.get(0)?,
            why: row.get(1)?,
            at: Time(row.get(2)?),
            marker: marker(row, 3)?,
        })
    })?
    .collect()
}

/// The places ?1 to ?6 of both lists.
type Asked<'a> = (
    i64,
    Option<i64>,
    Option<&'a str>,
    Option<&'a str>,
    Option<&'a str>,
    Option<&'a str>,
);

fn asked(filter: &NoticeFilter) -> Asked<'_> {
    (
        limit_of(filter.limit),
        filter.past,
        filter.word.as_deref(),
        filter.tenant.as_deref(),
        filter.project.as_deref(),
        filter.run_id.as_deref(),
    )
}

/// Alerts that fit a filter, newest first.
pub(super) fn alerts(conn: &Connection, filter: &NoticeFilter) -> rusqlite::Result<Vec<AlertRow>> {
    let (limit, past, word, tenant, project, run_id) = asked(filter);
    conn.prepare_cached(
        "SELECT alert_no, CASE WHEN alerts.run_no IS NOT NULL THEN coalesce(run_id, '') END, code,
           alerts.priority, message, at
         FROM alerts LEFT JOIN runs USING (run_no)
         WHERE alert_no < coalesce(?2, 9223372036854775807) AND (?3 IS NULL OR code = ?3)
           AND CASE WHEN alerts.run_no IS NULL THEN ?7
                    ELSE (?4 IS NULL OR tenant = ?4) AND (?5 IS NULL OR project = ?5)
                      AND (?6 IS NULL OR run_id = ?6) END
         ORDER BY alert_no DESC LIMIT ?1",
    )?
    .query_map(
        params![
            limit,
            past,
            word,
            tenant,
            project,
            run_id,
            filter.about_store
        ],
        |row| {
            Ok(AlertRow {
                no: row.get(0)?,
                run_id: row.get(1)?,
                code: row.get(2)?,
                priority: match row.get::<_, i64>(3)? {
                    1 => Priority::P1,
                    2 => Priority::P2,
                    _ => Priority::P3,
                },
                message: row.get(4)?,
                at: Time(row.get(5)?),
            })
        },
    )?
    .collect()
}
