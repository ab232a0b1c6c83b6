//! The log: commits, and runs read back.

use std::ops::Range;
use std::sync::LazyLock;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use stepwell_engine::store::{
    AppendResult, Batch, CommitId, Commits, FoundRuns, Head, PlanNo, PlanRow, Plans, Result,
    RunCounts, RunFilter, RunNo, RunReader, SessionNo, StateSnapshot, StoreError, StoreErrorKind,
    StoredChunk, StoredRun,
};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use super::commit::{commit, commit_all, find, seq};
use super::tasks::limit_of;
use super::{SqliteStore, check, mailbox, tasks};

/// The columns of a head, as `head` reads them.
pub(super) const HEAD: &str =
    "heads.status, heads.substatus, heads.session, heads.wake_at, heads.queued, heads.ended_at,
     heads.slots";

/// Reads the columns of `HEAD`.
pub(super) fn head(row: &Row<'_>, from: usize) -> rusqlite::Result<Head> {
    let time = |index| row.get::<_, Option<i64>>(index).map(|it| it.map(Time));
    let slots: Option<String> = row.get(from + 6)?;
    let slots = crate::slots_list(slots.as_deref());
    Ok(Head {
        status: row.get(from)?,
        substatus: row.get(from + 1)?,
        session: row.get::<_, Option<i64>>(from + 2)?.map(SessionNo),
        wake_at: time(from + 3)?,
        queued: row.get(from + 4)?,
        ended_at: time(from + 5)?,
        slots: slots.map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(from + 6, Type::Text, Box::new(error))
        })?,
    })
}

fn chunk(row: &Row<'_>) -> rusqlite::Result<StoredChunk> {
    Ok(StoredChunk {
        first: row.get(0)?,
        last: row.get(1)?,
        commit: CommitId {
            session: row.get(2)?,
            number: row.get(3)?,
        },
        codec: row.get(4)?,
        body: row.get(5)?,
        digests: row.get(6)?,
    })
}

/// Chunks of a run that end at `from` or later.
pub(super) fn chunks(
    conn: &Connection,
    run: RunNo,
    from: u64,
    limit: usize,
) -> rusqlite::Result<Vec<StoredChunk>> {
    // The chunk that `from` is in is the last that begins before it.
    conn.prepare_cached(
        "SELECT first_seq, last_seq, session, number, codec, body, digests FROM log
         WHERE run_no = ?1 AND last_seq >= ?2 AND first_seq >= coalesce(
           (SELECT max(first_seq) FROM log WHERE run_no = ?1 AND first_seq <= ?2), 0)
         ORDER BY first_seq LIMIT ?3",
    )?
    .query_map(params![run.0, seq(from), limit_of(limit)], chunk)?
    .collect()
}

fn load(conn: &Connection, run: RunNo) -> rusqlite::Result<Option<StoredRun>> {
    static RUN: LazyLock<String> = LazyLock::new(|| {
        format!(
            "SELECT run_id, plan_no, event_key, heads.version, seq, snapshots.version, body, {HEAD}
             FROM runs JOIN heads USING (run_no) LEFT JOIN snapshots USING (run_no)
             WHERE runs.run_no = ?1"
        )
    });
    let found = conn
        .prepare_cached(&RUN)?
        .query_row([run.0], |row| {
            Ok(StoredRun {
                run,
                run_id: row.get(0)?,
                plan: PlanNo(row.get(1)?),
                event_key: row.get(2)?,
                head_version: row.get(3)?,
                head: head(row, 7)?,
                snapshot: match row.get(4)? {
                    Some(seq) => Some(StateSnapshot {
                        seq,
                        version: row.get(5)?,
                        body: row.get(6)?,
                    }),
                    None => None,
                },
                chunks: Vec::new(),
                tasks: Vec::new(),
                mail: Vec::new(),
                waits: Vec::new(),
            })
        })
        .optional()?;
    let Some(mut stored) = found else {
        return Ok(None);
    };
    // The chunk with the snapshot's last event comes along: its last hash is what the next links to.
    let from = stored.snapshot.as_ref().map_or(0, |it| it.seq);
    stored.chunks = chunks(conn, run, from, usize::MAX)?;
    stored.tasks = tasks::of(conn, run)?;
    stored.mail = mailbox::of(conn, run)?;
    stored.waits = conn
        .prepare_cached("SELECT step FROM waits WHERE run_no = ?1 ORDER BY step")?
        .query_map([run.0], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Some(stored))
}

fn plan(row: &Row<'_>) -> rusqlite::Result<PlanRow> {
    Ok(PlanRow {
        no: PlanNo(row.get(0)?),
        plan_id: row.get(1)?,
        version: row.get(2)?,
        hash: row.get(3)?,
        net: row.get(4)?,
    })
}

fn plan_by_hash(conn: &Connection, hash: &str) -> rusqlite::Result<Option<PlanNo>> {
    conn.prepare_cached("SELECT plan_no FROM plans WHERE hash = ?1")?
        .query_row([hash], |row| row.get(0).map(PlanNo))
        .optional()
}

impl Commits for SqliteStore {
    fn commit(&self, batch: &Batch) -> Result<Vec<AppendResult>> {
        self.write(|conn| commit(conn, batch))
    }

    fn commit_all(&self, batches: &[&Batch]) -> Vec<Result<Vec<AppendResult>>> {
        let together = self.write(|conn| {
            let all = commit_all(conn, batches)?;
            if all.is_none() {
                conn.execute_batch("ROLLBACK; BEGIN IMMEDIATE")?;
            }
            Ok(all)
        });
        match together {
            Ok(Some(all)) => all.into_iter().map(Ok).collect(),
            // A value is refused: each by itself, so that only its own append suffers.
            Ok(None) => batches.iter().map(|batch| self.commit(batch)).collect(),
            Err(error) => batches.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn reserve_numbers(&self, count: u32) -> Result<Range<i64>> {
        self.write(|conn| {
            let last: i64 = conn
                .prepare_cached(
                    "UPDATE settings SET value = value + ?1 WHERE name = 'last_run_no'
                     RETURNING value",
                )?
                .query_row([count], |row| row.get(0))?;
            Ok(last + 1 - i64::from(count)..last + 1)
        })
    }
}

impl Plans for SqliteStore {
    fn put_plan(&self, plan: &Plan) -> Result<PlanNo> {
        if let Some(no) = self.read(|conn| plan_by_hash(conn, plan.hash()))? {
            return Ok(no);
        }
        let net = serde_json::to_string(plan.net())
            .map_err(|error| StoreError::new(StoreErrorKind::Internal, error))?;
        self.write(|conn| {
            if let Some(no) = plan_by_hash(conn, plan.hash())? {
                return Ok(no);
            }
            let of = plan.net();
            conn.prepare_cached(
                "INSERT INTO plans (plan_id, version, hash, net) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![of.plan_id, of.plan_version, plan.hash(), net])?;
            Ok(PlanNo(conn.last_insert_rowid()))
        })
    }

    fn plan(&self, no: PlanNo) -> Result<Option<PlanRow>> {
        self.read(|conn| {
            conn.prepare_cached(
                "SELECT plan_no, plan_id, version, hash, net FROM plans WHERE plan_no = ?1",
            )?
            .query_row([no.0], plan)
            .optional()
        })
    }
}

impl RunReader for SqliteStore {
    fn find(&self, run_id: &str) -> Result<Option<RunNo>> {
        self.read(|conn| find(conn, run_id))
    }

    fn load(&self, run: RunNo) -> Result<Option<StoredRun>> {
        self.read(|conn| load(conn, run))
    }

    fn load_all(&self, runs: &[RunNo]) -> Result<Vec<StoredRun>> {
        self.read(|conn| {
            let loaded = runs.iter().map(|run| load(conn, *run));
            loaded.filter_map(rusqlite::Result::transpose).collect()
        })
    }

    fn chunks(&self, run: RunNo, after: u64, limit: usize) -> Result<Vec<StoredChunk>> {
        self.read(|conn| chunks(conn, run, after.saturating_add(1), limit))
    }

    fn search(&self, filter: &RunFilter) -> Result<FoundRuns> {
        self.search_runs(filter)
    }

    fn count_runs(&self, filter: &RunFilter) -> Result<RunCounts> {
        self.count_listed(filter)
    }

    fn asleep(&self, limit: usize) -> Result<Vec<String>> {
        check::asleep(self, limit)
    }
}
