//! Commits. Each append is checked before any of its rows is written, so that one that lost leaves
//! nothing behind and the others pay nothing for it.
//!
//! What cannot be checked before (a value that a constraint refuses, a key that exists) undoes the
//! whole transaction, and the batch is done again with a savepoint for each append. It is rare.

use std::collections::BTreeMap;

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, params};
use stepwell_engine::store::{
    Append, AppendResult, Batch, Chunk, Guard, Head, NewRun, PlanNo, RunNo, SlotChange,
};

use super::errors::refuses_value;
use super::{mailbox, outbox, tallies, tasks, unique_keys};

/// The longest text that is taken: SQLite refuses to bind more than a gigabyte, and a message is
/// written after its append's savepoint has gone.
const LONGEST_MESSAGE: usize = 256 << 20;

/// Why the rows of an append were not written.
enum Fault {
    /// The append is refused, after some of its rows were written.
    Halfway(AppendResult),
    /// SQLite reported an error that is not about a value of the append.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        match refuses_value(&error) {
            Some(why) => Fault::Halfway(AppendResult::Refused(why)),
            None => Fault::Sqlite(error),
        }
    }
}

/// Does a batch in the transaction that is open; may end it and begin another.
pub(super) fn commit(conn: &Connection, batch: &Batch) -> rusqlite::Result<Vec<AppendResult>> {
    let mut commit = Commit::new(conn, batch)?;
    let outcomes = match commit.all()? {
        Some(outcomes) => outcomes,
        None => {
            drop(commit);
            conn.execute_batch("ROLLBACK; BEGIN IMMEDIATE")?;
            Commit::new(conn, batch)?.one_by_one()?
        }
    };
    send_messages(conn, batch, &outcomes)?;
    Ok(outcomes)
}

/// Does several batches in the transaction that is open; none if one of them must be done by itself.
pub(super) fn commit_all(
    conn: &Connection,
    batches: &[&Batch],
) -> rusqlite::Result<Option<Vec<Vec<AppendResult>>>> {
    let mut all = Vec::with_capacity(batches.len());
    for batch in batches {
        let Some(outcomes) = Commit::new(conn, batch)?.all()? else {
            return Ok(None);
        };
        send_messages(conn, batch, &outcomes)?;
        all.push(outcomes);
    }
    Ok(Some(all))
}

/// Messages come last: one may be for a run that a later append of the batch creates.
fn send_messages(
    conn: &Connection,
    batch: &Batch,
    outcomes: &[AppendResult],
) -> rusqlite::Result<()> {
    for (append, outcome) in batch.appends.iter().zip(outcomes) {
        if *outcome == AppendResult::Committed {
            for mail in &append.mail {
                if let Some(run) = find(conn, &mail.to)? {
                    mailbox::put(conn, run, &mail.body, batch.now)?;
                }
            }
        }
    }
    Ok(())
}

/// The number of a run.
pub(super) fn find(conn: &Connection, run_id: &str) -> rusqlite::Result<Option<RunNo>> {
    conn.prepare_cached("SELECT run_no FROM runs WHERE run_id = ?1")?
        .query_row([run_id], |row| row.get(0).map(RunNo))
        .optional()
}

/// Sequence numbers are counted from one; none can come near the end of what SQLite can count.
pub(super) fn seq(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A batch under way, with the statements of the hot path at hand.
struct Commit<'a> {
    conn: &'a Connection,
    batch: &'a Batch,
    last: CachedStatement<'a>,
    key: CachedStatement<'a>,
    chunk: CachedStatement<'a>,
    run: CachedStatement<'a>,
    head: CachedStatement<'a>,
    /// Whether the batch's session lives: asked once, nothing in a commit changes it.
    lives: Option<bool>,
    /// The plan that was found last: most new runs of a batch have the same.
    plan: Option<PlanNo>,
    /// The sinks that get every chunk. Another process may have registered one since the last batch.
    sinks: Vec<String>,
}

impl<'a> Commit<'a> {
    fn new(conn: &'a Connection, batch: &'a Batch) -> rusqlite::Result<Commit<'a>> {
        Ok(Commit {
            conn,
            batch,
            last: conn.prepare_cached(
                "SELECT last_seq FROM log WHERE run_no = ?1 ORDER BY first_seq DESC LIMIT 1",
            )?,
            key: conn.prepare_cached(
                "INSERT INTO event_keys (run_no, key) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            )?,
            chunk: conn.prepare_cached(
                "INSERT INTO log
                   (run_no, first_seq, last_seq, session, number, codec, body, digests)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?,
            run: conn.prepare_cached(
                "INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
                 ON CONFLICT DO NOTHING",
            )?,
            head: conn.prepare_cached(
                "INSERT INTO heads (run_no, version, status, substatus, session, wake_at, due_at,
                   queued, ended_at, commit_session, commit_number, tenant)
                 VALUES (?1, 1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9, ?10)
                 ON CONFLICT DO UPDATE SET version = version + 1, status = ?2,
                   substatus = ?3, session = ?4, wake_at = ?5, due_at = ?5, queued = ?6,
                   ended_at = ?7, commit_session = ?8, commit_number = ?9",
            )?,
            lives: None,
            plan: None,
            sinks: outbox::registered(conn)?,
        })
    }

    /// The outcomes, or none if an append stopped halfway.
    fn all(&mut self) -> rusqlite::Result<Option<Vec<AppendResult>>> {
        let mut outcomes = Vec::with_capacity(self.batch.appends.len());
        for append in &self.batch.appends {
            match self.append(append) {
                Ok(outcome) => outcomes.push(outcome),
                Err(Fault::Halfway(_)) => return Ok(None),
                Err(Fault::Sqlite(error)) => return Err(error),
            }
        }
        Ok(Some(outcomes))
    }

    fn one_by_one(&mut self) -> rusqlite::Result<Vec<AppendResult>> {
        let mut outcomes = Vec::with_capacity(self.batch.appends.len());
        for append in &self.batch.appends {
            self.conn.execute_batch("SAVEPOINT append")?;
            outcomes.push(match self.append(append) {
                Ok(outcome) => outcome,
                Err(Fault::Halfway(outcome)) => {
                    self.conn.execute_batch("ROLLBACK TO append")?;
                    outcome
                }
                Err(Fault::Sqlite(error)) => return Err(error),
            });
            self.conn.execute_batch("RELEASE append")?;
        }
        Ok(outcomes)
    }

    fn append(&mut self, append: &Append) -> Result<AppendResult, Fault> {
        let Some(new) = &append.create else {
            if let Some(lost) = self.is_where_thought(append)? {
                return Ok(lost);
            }
            return match self.what_else_forbids(append)? {
                Some(lost) => Ok(self.key_exists_or(append, lost)?),
                None => self.write(append),
            };
        };
        let lost = match self.cannot_begin(append, new)? {
            Some(lost) => Some(lost),
            None => match self.what_else_forbids(append)? {
                Some(lost) => Some(self.key_exists_or(append, lost)?),
                None => None,
            },
        };
        // The constraints of the row say whether the run is there. Only then it is asked how.
        match lost {
            None if self.write_run(append.run, new)? => self.write(append),
            lost => {
                let there = self.is_there(append, new)?;
                Ok(there.or(lost).unwrap_or(AppendResult::RunExists))
            }
        }
    }

    /// A key that exists says more than what was found.
    fn key_exists_or(&self, append: &Append, lost: AppendResult) -> rusqlite::Result<AppendResult> {
        Ok(match self.a_key_exists(append)? {
            true => AppendResult::KeyExists,
            false => lost,
        })
    }

    /// What a new run, or the run of its request, is found by.
    fn is_there(&self, append: &Append, new: &NewRun) -> rusqlite::Result<Option<AppendResult>> {
        let there: Option<(i64, String)> = self
            .conn
            .prepare_cached(
                "SELECT run_no, run_id FROM runs WHERE run_id = ?1
                 UNION ALL SELECT run_no, run_id FROM runs WHERE run_no = ?2 LIMIT 1",
            )?
            .query_row(params![new.run_id, append.run.0], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        if let Some((no, run_id)) = there {
            // Another append of the same batch may have created a run with this id.
            let ours = no == append.run.0 && run_id == new.run_id && self.is_ours(RunNo(no), 1)?;
            return Ok(Some(if ours {
                AppendResult::Again
            } else {
                AppendResult::RunExists
            }));
        }
        if let Some(key) = &new.request_key {
            let taken = self
                .conn
                .prepare_cached("SELECT run_id FROM runs WHERE request_key = ?1")?
                .query_row([key], |row| row.get(0))
                .optional()?;
            if let Some(run_id) = taken {
                return Ok(Some(AppendResult::RequestTaken(run_id)));
            }
        }
        Ok(None)
    }

    fn cannot_begin(
        &mut self,
        append: &Append,
        new: &NewRun,
    ) -> rusqlite::Result<Option<AppendResult>> {
        if self.plan.is_none() || self.plan != new.plan {
            let kept = self
                .conn
                .prepare_cached("SELECT 1 FROM plans WHERE plan_no = ?1")?
                .exists([new.plan.map(|it| it.0)])?;
            if !kept {
                return Ok(Some(AppendResult::Refused(
                    "the run's plan is not kept".into(),
                )));
            }
            self.plan = new.plan;
        }
        Ok(match &append.chunk {
            None => Some(AppendResult::Refused("a run begins with a chunk".into())),
            Some(chunk) if append.after != 0 || chunk.first != 1 => Some(AppendResult::Moved),
            Some(_) => None,
        })
    }

    /// Whether this very commit wrote the run's chunk that begins there.
    fn is_ours(&self, run: RunNo, first: u64) -> rusqlite::Result<bool> {
        let id = self.batch.id;
        self.conn
            .prepare_cached(
                "SELECT 1 FROM log
                 WHERE run_no = ?1 AND first_seq = ?2 AND session = ?3 AND number = ?4",
            )?
            .exists(params![run.0, seq(first), id.session, id.number])
    }

    fn is_where_thought(&mut self, append: &Append) -> rusqlite::Result<Option<AppendResult>> {
        let last: Option<i64> = self
            .last
            .query_row([append.run.0], |row| row.get(0))
            .optional()?;
        let Some(last) = last else {
            return Ok(Some(AppendResult::Moved));
        };
        let there = last == seq(append.after);
        let (thought, ours) = match &append.chunk {
            Some(chunk) => {
                let thought = there && chunk.first == append.after + 1;
                (thought, !thought && self.is_ours(append.run, chunk.first)?)
            }
            None => {
                let (version, session, number): (i64, i64, i64) = self
                    .conn
                    .prepare_cached(
                        "SELECT version, commit_session, commit_number FROM heads
                         WHERE run_no = ?1",
                    )?
                    .query_row([append.run.0], |row| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                    })?;
                let id = self.batch.id;
                let ours = session == id.session && number == id.number;
                (there && append.head_version == Some(version), ours)
            }
        };
        Ok(if ours {
            Some(AppendResult::Again)
        } else if thought {
            None
        } else {
            Some(AppendResult::Moved)
        })
    }

    fn what_else_forbids(&mut self, append: &Append) -> rusqlite::Result<Option<AppendResult>> {
        let wanted = append.unique_key.as_ref().and_then(|it| it.taken());
        if let Some(wanted) = wanted
            && let Some(holder) = unique_keys::other_holder(self.conn, append.run, wanted)?
        {
            return Ok(Some(AppendResult::UniqueKeyTaken(holder)));
        }
        for (index, guard) in append.guards.iter().enumerate() {
            if !self.holds(append.run, guard)? {
                return Ok(Some(AppendResult::GuardFailed(index)));
            }
        }
        for no in &append.taken {
            if !mailbox::lies_there(self.conn, append.run, *no)? {
                return Ok(Some(AppendResult::Moved));
            }
        }
        if let Some(full) = self.full_slot(&append.slots)? {
            return Ok(Some(AppendResult::SlotsFull(full)));
        }
        let long = append.mail.iter().any(|it| it.body.len() > LONGEST_MESSAGE);
        Ok(long.then(|| AppendResult::Refused("a message is too long".into())))
    }

    fn holds(&mut self, run: RunNo, guard: &Guard) -> rusqlite::Result<bool> {
        let now = self.batch.now.0;
        match guard {
            Guard::Session => {
                if let Some(lives) = self.lives {
                    return Ok(lives);
                }
                let lives = self
                    .conn
                    .prepare_cached(
                        "SELECT 1 FROM sessions WHERE session_no = ?1 AND dead = 0 AND until >= ?2",
                    )?
                    .exists(params![self.batch.session.map(|it| it.0), now])?;
                self.lives = Some(lives);
                Ok(lives)
            }
            Guard::Dead(session) => self
                .conn
                .prepare_cached("SELECT 1 FROM sessions WHERE session_no = ?1 AND dead = 0")?
                .exists([session.0])
                .map(|lives| !lives),
            Guard::Lease { target, worker } => self
                .conn
                .prepare_cached(
                    "SELECT 1 FROM tasks
                     WHERE run_no = ?1 AND target = ?2 AND worker = ?3 AND until >= ?4",
                )?
                .exists(params![run.0, target, worker, now]),
            Guard::Expired { target } => self
                .conn
                .prepare_cached(
                    "SELECT 1 FROM tasks
                     WHERE run_no = ?1 AND target = ?2 AND leased = 1 AND until < ?3",
                )?
                .exists(params![run.0, target, now]),
        }
    }

    /// The first key of which more would be taken than there are.
    fn full_slot(&self, slots: &[SlotChange]) -> rusqlite::Result<Option<String>> {
        let mut after: Vec<(&str, i64)> = Vec::new();
        for slot in slots {
            let known = after.iter().position(|(key, _)| *key == slot.key);
            let index = match known {
                Some(index) => index,
                None => {
                    after.push((&slot.key, taken(self.conn, &slot.key)?));
                    after.len() - 1
                }
            };
            let count = &mut after[index].1;
            *count = (*count + i64::from(slot.change)).max(0);
            let over = slot.limit.is_some_and(|limit| *count > i64::from(limit));
            if slot.change > 0 && over {
                return Ok(Some(slot.key.clone()));
            }
        }
        Ok(None)
    }

    fn a_key_exists(&self, append: &Append) -> rusqlite::Result<bool> {
        let keys = append.chunk.as_ref().map_or(&[][..], |it| &it.keys);
        let mut known = self
            .conn
            .prepare_cached("SELECT 1 FROM event_keys WHERE run_no = ?1 AND key = ?2")?;
        for (index, key) in keys.iter().enumerate() {
            if keys[..index].contains(key) || known.exists(params![append.run.0, key])? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn write(&mut self, append: &Append) -> Result<AppendResult, Fault> {
        // The chunk is first, and its keys are the first of it: a key that exists then finds nothing
        // to undo in most cases.
        if let Some(chunk) = &append.chunk
            && let Some(lost) = self.write_chunk(append, chunk)?
        {
            return Ok(lost);
        }
        for no in &append.taken {
            mailbox::remove(self.conn, *no)?;
        }
        self.write_head(append)?;
        tasks::change_all(self.conn, append.run, &append.tasks)?;
        if let Some(change) = &append.unique_key {
            unique_keys::change(self.conn, append.run, change)?;
        }
        for row in &append.view_rows {
            self.conn
                .prepare_cached(
                    "INSERT INTO view_rows (view_name, run_no, row_no, body)
                     VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET body = excluded.body",
                )?
                .execute(params![row.view, append.run.0, row.row_no, row.body])?;
        }
        if let Some(frozen) = &append.snapshot {
            self.conn
                .prepare_cached(
                    "INSERT INTO snapshots VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE
                     SET seq = excluded.seq, version = excluded.version, body = excluded.body
                     WHERE excluded.seq >= seq",
                )?
                .execute(params![
                    append.run.0,
                    seq(frozen.seq),
                    frozen.version,
                    frozen.body
                ])?;
        }
        for change in &append.waits {
            mailbox::change_wait(self.conn, append.run, change, self.batch.now)?;
        }
        if let Some(chunk) = &append.chunk {
            for sink in append.sinks.iter().chain(&self.sinks) {
                outbox::mark(self.conn, sink, append.run, chunk.first, self.batch.now)?;
            }
        }
        for alert in &append.alerts {
            outbox::raise(self.conn, Some(append.run), alert, self.batch.now)?;
        }
        for slot in &append.slots {
            self.conn
                .prepare_cached(
                    "INSERT INTO slots VALUES (?1, max(?2, 0))
                     ON CONFLICT DO UPDATE SET taken = max(taken + ?2, 0)",
                )?
                .execute(params![slot.key, slot.change])?;
        }
        Ok(AppendResult::Committed)
    }

    fn write_chunk(
        &mut self,
        append: &Append,
        chunk: &Chunk,
    ) -> Result<Option<AppendResult>, Fault> {
        let run = append.run.0;
        for (index, key) in chunk.keys.iter().enumerate() {
            if self.key.execute(params![run, key])? == 0 {
                return match index {
                    0 if append.create.is_none() => Ok(Some(AppendResult::KeyExists)),
                    _ => Err(Fault::Halfway(AppendResult::KeyExists)),
                };
            }
        }
        self.chunk.execute(params![
            run,
            seq(chunk.first),
            seq(chunk.last),
            self.batch.id.session,
            self.batch.id.number,
            chunk.codec,
            chunk.body,
            chunk.digests
        ])?;
        Ok(None)
    }

    /// Writes the row of a new run, unless that run or another one of its request is there.
    fn write_run(&mut self, run: RunNo, new: &NewRun) -> rusqlite::Result<bool> {
        let written = self.run.execute(params![
            run.0,
            new.run_id,
            new.request_key,
            new.plan.map(|it| it.0),
            new.tenant,
            new.project,
            new.environment,
            new.parent,
            new.event_key,
            new.created_at.0,
            new.priority,
        ])?;
        if written > 0
            && let Some(key) = &new.request_key
        {
            tallies::add_request_key(self.conn, run, key)?;
        }
        if written > 0 {
            write_labels(self.conn, run, &new.labels)?;
        }
        Ok(written > 0)
    }

    /// Without a chunk the head is written even if it says the same as before: its version and its
    /// commit are what a second sending is recognised by.
    fn write_head(&mut self, append: &Append) -> rusqlite::Result<()> {
        let id = self.batch.id;
        let none = Head::default();
        match (&append.head, append.create.is_some()) {
            (None, false) if append.chunk.is_some() => {}
            (None, false) => {
                self.conn
                    .prepare_cached(
                        "UPDATE heads SET version = version + 1, due_at = wake_at,
                           commit_session = ?2, commit_number = ?3
                         WHERE run_no = ?1",
                    )?
                    .execute(params![append.run.0, id.session, id.number])?;
            }
            (head, _) => {
                let head = head.as_ref().unwrap_or(&none);
                self.head.execute(params![
                    append.run.0,
                    head.status,
                    head.substatus,
                    head.session.map(|it| it.0),
                    head.wake_at.map(|it| it.0),
                    head.queued,
                    head.ended_at.map(|it| it.0),
                    id.session,
                    id.number,
                    // Of a run that is there its head keeps the tenant.
                    append.create.as_ref().map_or("", |it| it.tenant.as_str()),
                ])?;
                // Rarely there are any, and their tally is kept by a trigger, which each statement that sets them pays for.
                if !append.slots.is_empty() || !head.slots.is_empty() {
                    self.conn
                        .prepare_cached(
                            "UPDATE heads SET slots = ?2 WHERE run_no = ?1 AND slots IS NOT ?2",
                        )?
                        .execute(params![append.run.0, crate::slots_text(&head.slots)])?;
                }
            }
        }
        Ok(())
    }
}

/// Writes the labels of a run that has none.
pub(super) fn write_labels(
    conn: &Connection,
    run: RunNo,
    labels: &BTreeMap<String, String>,
) -> rusqlite::Result<()> {
    for (name, value) in labels {
        conn.prepare_cached("INSERT INTO run_labels (run_no, name, value) VALUES (?1, ?2, ?3)")?
            .execute(params![run.0, name, value])?;
    }
    Ok(())
}

/// How many slots of a key are taken.
pub(super) fn taken(conn: &Connection, key: &str) -> rusqlite::Result<i64> {
    conn.prepare_cached("SELECT taken FROM slots WHERE slot_key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()
        .map(|taken| taken.unwrap_or(0))
}
