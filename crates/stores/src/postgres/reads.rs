//! The log: commits go to `commit`, everything that is read back is here.

use std::ops::Range;

use stepwell_engine::store::{
    AppendResult, Batch, CommitId, Commits, FoundRuns, Head, MessageNo, PlanNo, PlanRow, Plans,
    Result, RunCounts, RunFilter, RunNo, RunReader, RunSummary, SessionNo, StateSnapshot,
    StoreError, StoreErrorKind, StoredChunk, StoredMessage, StoredRun,
};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;
use tokio_postgres::Row;

use super::query::Query;
use super::{PostgresStore, broken, limit, seq, tasks, unsigned};

/// A sequence hands out one number at a time; a block of them needs the lock.
const RESERVE_NUMBERS: &str = "
SELECT setval('run_numbers', nextval('run_numbers') + $1 - 1)
FROM (SELECT pg_advisory_xact_lock(hashtextextended('numbers/' || current_schema(), 0))) l";

const PUT_PLAN: &str = "
INSERT INTO plans (plan_id, version, hash, net) VALUES ($1, $2, $3, $4)
ON CONFLICT (hash) DO NOTHING RETURNING plan_no";

const FIND_PLAN: &str = "SELECT plan_no FROM plans WHERE hash = $1";

const PLAN: &str = "SELECT plan_id, version, hash, net FROM plans WHERE plan_no = $1";

const FIND: &str = "SELECT run_no FROM runs WHERE run_id = $1";

const RUN: &str = "
SELECT h.status, h.substatus, h.session_no, h.wake_at, h.queued, h.ended_at, h.version,
       r.run_id, r.plan_no, r.event_key, s.seq, s.version, s.body, h.slots
FROM runs r JOIN heads h ON h.run_no = r.run_no LEFT JOIN snapshots s ON s.run_no = r.run_no
WHERE r.run_no = $1";

const RUN_CHUNKS: &str = "
SELECT first_seq, last_seq, commit_session, commit_number, codec, body, digests FROM log
WHERE run_no = $1 AND first_seq >= COALESCE(
    (SELECT l.first_seq FROM log l WHERE l.run_no = $1 AND l.first_seq <= (
        SELECT s.seq FROM snapshots s WHERE s.run_no = $1) ORDER BY l.first_seq DESC LIMIT 1), 0)
ORDER BY first_seq";

const RUN_TASKS: &str = "
SELECT run_no, target, queue, op, priority, visible_at, worker, until, leased, stopping
FROM tasks WHERE run_no = $1 ORDER BY target";

const RUN_MAIL: &str = "
SELECT mail_no, run_no, body FROM mailbox WHERE run_no = $1 AND answer IS NULL ORDER BY mail_no";

const RUN_WAITS: &str = "SELECT step FROM waits WHERE run_no = $1 ORDER BY step";

/// From the chunk that holds the event after `after`; found by its first number, which is indexed.
const CHUNKS: &str = "
SELECT first_seq, last_seq, commit_session, commit_number, codec, body, digests FROM log
WHERE run_no = $1 AND last_seq > $2 AND first_seq >= COALESCE(
    (SELECT l.first_seq FROM log l WHERE l.run_no = $1 AND l.first_seq <= $2
     ORDER BY l.first_seq DESC LIMIT 1), 0)
ORDER BY first_seq LIMIT $3";

impl Commits for PostgresStore {
    fn commit(&self, batch: &Batch) -> Result<Vec<AppendResult>> {
        self.commit_batch(batch)
    }

    fn reserve_numbers(&self, count: u32) -> Result<Range<i64>> {
        if count == 0 {
            return Ok(1..1);
        }
        let rows = self
            .connections
            .write(RESERVE_NUMBERS, &[&i64::from(count)])?;
        let last: i64 = first(&rows)?.get(0);
        Ok(last + 1 - i64::from(count)..last + 1)
    }
}

impl Plans for PostgresStore {
    fn put_plan(&self, plan: &Plan) -> Result<PlanNo> {
        let known = self.connections.read(FIND_PLAN, &[&plan.hash()])?;
        if let Some(row) = known.first() {
            return Ok(PlanNo(row.get(0)));
        }
        let net = plan.net();
        let text = serde_json::to_string(net)
            .map_err(|error| StoreError::new(StoreErrorKind::Internal, error))?;
        let made = self.connections.write(
            PUT_PLAN,
            &[&net.plan_id, &net.plan_version, &plan.hash(), &text],
        )?;
        if let Some(row) = made.first() {
            return Ok(PlanNo(row.get(0)));
        }
        let known = self.connections.read(FIND_PLAN, &[&plan.hash()])?;
        Ok(PlanNo(first(&known)?.get(0)))
    }

    fn plan(&self, no: PlanNo) -> Result<Option<PlanRow>> {
        let rows = self.connections.read(PLAN, &[&no.0])?;
        Ok(rows.first().map(|row| PlanRow {
            no,
            plan_id: row.get(0),
            version: row.get(1),
            hash: row.get(2),
            net: row.get(3),
        }))
    }
}

impl RunReader for PostgresStore {
    fn find(&self, run_id: &str) -> Result<Option<RunNo>> {
        // No text of the database has a NUL, so neither has the id of any run.
        if run_id.contains('\0') {
            return Ok(None);
        }
        let rows = self.connections.read(FIND, &[&run_id])?;
        Ok(rows.first().map(|row| RunNo(row.get(0))))
    }

    fn load(&self, run: RunNo) -> Result<Option<StoredRun>> {
        Ok(self.load_all(&[run])?.pop())
    }

    fn load_all(&self, runs: &[RunNo]) -> Result<Vec<StoredRun>> {
        // The runs as they were at one moment, whatever is written meanwhile.
        const OF_RUN: [&str; 5] = [RUN, RUN_CHUNKS, RUN_TASKS, RUN_MAIL, RUN_WAITS];
        let questions = runs
            .iter()
            .flat_map(|run| OF_RUN.map(|sql| Query::new(sql).with(run.0)));
        let answers = self.connections.read_at_once(questions.collect());
        let answers = answers.map_err(|error| match error.kind {
            StoreErrorKind::AnswerLost => {
                StoreError::new(StoreErrorKind::Unavailable, error.message)
            }
            StoreErrorKind::Unavailable
            | StoreErrorKind::Full
            | StoreErrorKind::ReadOnly
            | StoreErrorKind::Held
            | StoreErrorKind::Corrupt
            | StoreErrorKind::Gone
            | StoreErrorKind::Newer
            | StoreErrorKind::Older
            | StoreErrorKind::Unusable
            | StoreErrorKind::Internal => error,
        })?;
        let (parts, rest) = answers.as_chunks::<{ OF_RUN.len() }>();
        if parts.len() != runs.len() || !rest.is_empty() {
            return Err(broken("runs were read in the wrong number of parts"));
        }
        let stored = |(run, [rows, chunks, tasks, mail, waits]): (&RunNo, &[Vec<Row>; 5])| {
            let row = rows.first()?;
            let frozen: Option<i32> = row.get(10);
            let stored = head(row).map(|head| StoredRun {
                run: *run,
                run_id: row.get(7),
                plan: PlanNo(row.get(8)),
                event_key: row.get(9),
                head,
                head_version: row.get(6),
                snapshot: frozen.map(|seq| StateSnapshot {
                    seq: unsigned(seq),
                    version: row.get(11),
                    body: row.get(12),
                }),
                chunks: chunks.iter().map(chunk).collect(),
                tasks: tasks.iter().map(tasks::task).collect(),
                mail: mail.iter().map(letter).collect(),
                waits: waits.iter().map(|row| row.get(0)).collect(),
            });
            Some(stored)
        };
        runs.iter().zip(parts).filter_map(stored).collect()
    }

    fn chunks(&self, run: RunNo, after: u64, most: usize) -> Result<Vec<StoredChunk>> {
        let values: super::Values<'_> = &[&run.0, &seq(after), &limit(most)];
        let rows = self.connections.read(CHUNKS, values)?;
        Ok(rows.iter().map(chunk).collect())
    }

    fn search(&self, filter: &RunFilter) -> Result<FoundRuns> {
        self.search_runs(filter)
    }

    fn summaries(&self, runs: &[RunNo]) -> Result<Vec<RunSummary>> {
        self.read_summaries(runs)
    }

    fn count_runs(&self, filter: &RunFilter) -> Result<RunCounts> {
        self.count_listed(filter)
    }

    fn asleep(&self, most: usize) -> Result<Vec<String>> {
        self.runs_nothing_wakes(most)
    }
}

/// The head that begins a row.
pub(super) fn head(row: &Row) -> Result<Head> {
    let session: Option<i64> = row.get(2);
    let (wake_at, ended_at): (Option<i64>, Option<i64>) = (row.get(3), row.get(5));
    let slots: Option<&str> = row.get("slots");
    let slots = crate::slots_list(slots).map_err(|error| {
        StoreError::new(
            StoreErrorKind::Corrupt,
            format!("the slots of a run cannot be read: {error}"),
        )
    })?;
    Ok(Head {
        status: row.get(0),
        substatus: row.get(1),
        session: session.map(SessionNo),
        wake_at: wake_at.map(Time),
        queued: row.get(4),
        ended_at: ended_at.map(Time),
        slots,
    })
}

pub(super) fn chunk(row: &Row) -> StoredChunk {
    StoredChunk {
        first: unsigned(row.get::<_, i32>(0)),
        last: unsigned(row.get::<_, i32>(1)),
        commit: CommitId {
            session: row.get(2),
            number: row.get(3),
        },
        codec: row.get(4),
        body: row.get(5),
        digests: row.get(6),
    }
}

pub(super) fn letter(row: &Row) -> StoredMessage {
    StoredMessage {
        no: MessageNo(row.get(0)),
        run: RunNo(row.get(1)),
        body: row.get(2),
    }
}

pub(super) fn first(rows: &[Row]) -> Result<&Row> {
    rows.first()
        .ok_or_else(|| broken("a statement answered nothing"))
}
