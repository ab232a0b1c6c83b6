//! Looks for damage: SQLite's own check, and rows against each other. No rule about workflows.

use rusqlite::Connection;
use stepwell_engine::store::{Health, Result};

use super::SqliteStore;
use super::open::SCHEMA;

/// How many problems of a kind are named.
const NAMED: usize = 100;

/// Runs that are looked at in one view of the database, so that no view is long.
const AT_A_TIME: i64 = 2_000;

/// Problems of single runs; each names the run and takes the runs between two numbers.
const OF_RUNS: [&str; 6] = [
    // A chunk must begin after the one before it.
    "SELECT 'run ' || run_id || ': the log has a gap after event ' || before FROM (
       SELECT run_no, first_seq,
         lag(last_seq, 1, 0) OVER (PARTITION BY run_no ORDER BY first_seq) AS before
       FROM log WHERE run_no BETWEEN ?1 AND ?2
     ) JOIN runs USING (run_no) WHERE first_seq <> before + 1",
    "SELECT 'run ' || run_id || ': its snapshot is ahead of its log'
     FROM snapshots JOIN runs USING (run_no)
     WHERE run_no BETWEEN ?1 AND ?2
       AND seq > (SELECT max(last_seq) FROM log WHERE log.run_no = snapshots.run_no)",
    "SELECT 'run ' || run_id || ': ' || events || ' events, but ' || keys || ' keys' FROM (
       SELECT run_no, run_id,
         (SELECT coalesce(sum(last_seq - first_seq + 1), 0) FROM log
          WHERE log.run_no = runs.run_no) AS events,
         (SELECT count(*) FROM event_keys WHERE event_keys.run_no = runs.run_no) AS keys
       FROM runs WHERE run_no BETWEEN ?1 AND ?2
     ) WHERE events <> keys",
    "SELECT 'run ' || run_id || ': it has no log' FROM runs
     WHERE run_no BETWEEN ?1 AND ?2
       AND NOT EXISTS (SELECT 1 FROM log WHERE log.run_no = runs.run_no)",
    "SELECT 'run ' || run_id || ': it has no head' FROM runs
     WHERE run_no BETWEEN ?1 AND ?2
       AND NOT EXISTS (SELECT 1 FROM heads WHERE heads.run_no = runs.run_no)",
    "SELECT 'run number ' || run_no || ': a head without a run' FROM heads
     WHERE run_no BETWEEN ?1 AND ?2
       AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_no = heads.run_no)",
];

/// Open runs that nothing will ever look at again.
const ASLEEP: &str = "SELECT run_id
     FROM heads JOIN runs USING (run_no)
     WHERE run_no BETWEEN ?1 AND ?2 AND ended_at IS NULL
       AND heads.session IS NULL AND wake_at IS NULL AND queued = 0
       AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.run_no = heads.run_no)
       AND NOT EXISTS (SELECT 1 FROM waits WHERE waits.run_no = heads.run_no)
       AND NOT EXISTS (
         SELECT 1 FROM mailbox WHERE mailbox.run_no = heads.run_no AND answer IS NULL)
     ORDER BY run_no";

pub(super) fn check(store: &SqliteStore) -> Result<Health> {
    // The file's own check is one statement and cannot be cut into short views.
    let damage = store.look(quick_check, None::<fn() -> bool>)?;
    let (schema, runs, open) = store.look(counts, None::<fn() -> bool>)?;
    let mut health = Health {
        schema,
        runs,
        open,
        problems: damage,
    };
    // What belongs to rows of a damaged file says nothing more.
    if health.problems.is_empty() {
        health.problems = by_ranges(store, &OF_RUNS, NAMED)?;
    }
    Ok(health)
}

/// Open runs that no session, time, task, wait, message or queue will wake.
pub(super) fn asleep(store: &SqliteStore, limit: usize) -> Result<Vec<String>> {
    by_ranges(store, &[ASLEEP], limit)
}

fn by_ranges(store: &SqliteStore, questions: &[&str], limit: usize) -> Result<Vec<String>> {
    let last = store.read(|conn| {
        conn.query_row(
            "SELECT max(coalesce((SELECT max(run_no) FROM runs), 0),
                        coalesce((SELECT max(run_no) FROM heads), 0))",
            [],
            |row| row.get::<_, i64>(0),
        )
    })?;
    let mut problems = Vec::new();
    let mut from = i64::MIN;
    let mut to = AT_A_TIME;
    while from <= last && problems.len() < limit {
        let found = store.look(
            |conn| {
                let mut found = Vec::new();
                for question in questions {
                    let rows = conn
                        .prepare_cached(question)?
                        .query_map([from, to], |row| row.get(0))?
                        .collect::<rusqlite::Result<Vec<String>>>()?;
                    found.extend(rows);
                }
                Ok(found)
            },
            None::<fn() -> bool>,
        )?;
        problems.extend(found);
        from = to + 1;
        to += AT_A_TIME;
    }
    problems.truncate(limit);
    Ok(problems)
}

fn quick_check(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let said: Vec<String> = conn
        .prepare(&format!("PRAGMA quick_check({NAMED})"))?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(said.into_iter().filter(|it| it != "ok").collect())
}

fn counts(conn: &Connection) -> rusqlite::Result<(i64, u64, u64)> {
    let count = |what: &str| conn.query_row(what, [], |row| row.get(0));
    let schema: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok((
        schema.min(SCHEMA),
        count("SELECT count(*) FROM runs")?,
        count("SELECT count(*) FROM heads WHERE ended_at IS NULL")?,
    ))
}
