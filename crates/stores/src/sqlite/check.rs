//! Looks for damage: SQLite's own check, the schema, tallies, and rows against each other. No rule about workflows.

use rusqlite::{Connection, params};
use stepwell_engine::chunk;
use stepwell_engine::store::{Health, Result};

use super::open::SCHEMA;
use super::{SqliteStore, schema_check, tallies};

/// How many problems of a kind are named.
const NAMED: usize = 100;

/// Runs that are looked at in one view of the database, so that no view is long.
const AT_A_TIME: i64 = 2_000;

/// Rows of runs that are not there.
macro_rules! orphans {
    ($table:literal) => {
        concat!(
            "SELECT DISTINCT 'run number ' || run_no || ': rows of ",
            $table,
            " without a run' FROM ",
            $table,
            " WHERE run_no BETWEEN ?1 AND ?2 AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_no = ",
            $table,
            ".run_no)"
        )
    };
}

/// Problems of single runs; each names the run and takes the runs between two numbers.
const OF_RUNS: [&str; 15] = [
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
    "SELECT 'run ' || run_id || ': its plan is not there' FROM runs
     WHERE run_no BETWEEN ?1 AND ?2
       AND NOT EXISTS (SELECT 1 FROM plans WHERE plans.plan_no = runs.plan_no)",
    "SELECT 'run ' || run_id || ': its head names a session that is not there'
     FROM heads JOIN runs USING (run_no)
     WHERE run_no BETWEEN ?1 AND ?2 AND session IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM sessions WHERE session_no = heads.session)",
    orphans!("log"),
    orphans!("event_keys"),
    orphans!("snapshots"),
    orphans!("waits"),
    orphans!("unique_keys"),
    orphans!("view_rows"),
    orphans!("run_labels"),
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
    let damage = store.look(integrity_check, None::<fn() -> bool>)?;
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
        let rest = |conn: &Connection| -> rusqlite::Result<Vec<String>> {
            let mut found = schema_check::differing(conn)?;
            found.extend(tallies::differing(conn)?);
            Ok(found)
        };
        health
            .problems
            .extend(store.look(rest, None::<fn() -> bool>)?);
    }
    Ok(health)
}

/// Corrects what belongs to no run. The rows that are left after the repair of the runs count as written.
pub(super) fn correct(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut done = Vec::new();
    for table in [
        "event_keys",
        "snapshots",
        "waits",
        "unique_keys",
        "view_rows",
        "run_labels",
    ] {
        let orphans = format!("DELETE FROM {table} WHERE run_no NOT IN (SELECT run_no FROM runs)");
        let count = conn.execute(&orphans, [])?;
        if count > 0 {
            done.push(format!(
                "{count} rows of {table} without a run were deleted"
            ));
        }
    }
    for template in chunk::templates() {
        conn.execute(
            "INSERT INTO event_templates VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET template = ?3
             WHERE template <> ?3",
            params![template.codec, template.event_type, template.json],
        )?;
    }
    for what in tallies::count_anew(conn)? {
        done.push(format!("{what}; the rows that are there count from now on"));
    }
    Ok(done)
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
    let mut is_last = false;
    while !is_last && problems.len() < limit {
        // Damaged rows can have any number.
        is_last = from > last;
        to = if is_last { i64::MAX } else { to };
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
        from = to.saturating_add(1);
        to = to.saturating_add(AT_A_TIME);
    }
    problems.truncate(limit);
    Ok(problems)
}

/// Of every page, and of every index with its table.
fn integrity_check(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let said: Vec<String> = conn
        .prepare(&format!("PRAGMA integrity_check({NAMED})"))?
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
