//! Compares layouts of the log on SQLite: what a batch of appends costs in time and room.
//!
//! `cargo run --release -p stepwell-stores --example sqlite_layouts -- [DIRECTORY] [STEPS]`
//!
//! 1,000 live runs of ten steps, one chunk a step (300 bytes of body, 160 of digests, two keys of 12),
//! synchronous FULL, checkpoints on a second thread. Medians and bests of five rounds.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const RUNS: i64 = 1_000;
const STEPS_OF_A_RUN: i64 = 10;
const ROUNDS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    /// Chunks in append order, a unique index for the sequence, the keys in a tree of their own.
    Indexed,
    /// Chunks in a tree by run and sequence number, the keys in another.
    Clustered,
    /// Chunks in append order; sequence numbers and keys share one tree.
    Marks,
}

fn main() -> Fallible<()> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(
        args.next()
            .unwrap_or_else(|| "/tmp/stepwell-layouts".into()),
    );
    let steps: i64 = args.next().map_or(Ok(200_000), |steps| steps.parse())?;
    std::fs::create_dir_all(&dir)?;
    let mut cases = Vec::new();
    for layout in [Layout::Marks, Layout::Indexed, Layout::Clustered] {
        for page in [4096, 8192, 16384] {
            for batch in [1_000, 100] {
                let steps = if batch == 1_000 { steps } else { steps / 4 };
                cases.push((layout, page, batch, steps, Vec::new()));
            }
        }
    }
    // In rounds, so that what else the machine does falls on all of them.
    for _ in 0..ROUNDS {
        for (layout, page, batch, steps, seen) in &mut cases {
            seen.push(measure(&dir, *layout, *page, *batch, *steps)?);
        }
    }
    println!("layout      page   batch   steps/s      best   bytes/step");
    for (layout, page, batch, _, seen) in &mut cases {
        seen.sort_unstable();
        let (rate, bytes) = seen[ROUNDS / 2];
        let best = seen[ROUNDS - 1].0;
        let name = format!("{layout:?}");
        println!("{name:<10} {page:>5} {batch:>7} {rate:>9} {best:>9} {bytes:>12}");
    }
    Ok(())
}

fn measure(dir: &Path, layout: Layout, page: i64, batch: i64, steps: i64) -> Fallible<(u64, i64)> {
    let path = dir.join("layout.db");
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(dir.join(format!("layout.db{end}")));
    }
    let conn = Connection::open(&path)?;
    conn.execute_batch(&format!(
        "PRAGMA page_size={page}; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
         PRAGMA cache_size=-65536; PRAGMA temp_store=MEMORY; PRAGMA wal_autocheckpoint=0;"
    ))?;
    conn.execute_batch(schema(layout))?;
    let done = AtomicBool::new(false);
    let elapsed = std::thread::scope(|scope| -> Fallible<Duration> {
        let checkpoints = scope.spawn(|| checkpointer(&path, &done));
        let began = Instant::now();
        let written = write(&conn, layout, batch, steps);
        let elapsed = began.elapsed();
        done.store(true, Ordering::Relaxed);
        let _ = checkpoints.join();
        written.map(|()| elapsed)
    })?;
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    let size = i64::try_from(std::fs::metadata(&path)?.len())?;
    let rate = (steps as f64 / elapsed.as_secs_f64()) as u64;
    Ok((rate, size / steps))
}

fn checkpointer(path: &Path, done: &AtomicBool) {
    let Ok(conn) = Connection::open(path) else {
        return;
    };
    while !done.load(Ordering::Relaxed) {
        let _ = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn schema(layout: Layout) -> &'static str {
    match layout {
        Layout::Indexed => {
            "CREATE TABLE log(log_no INTEGER PRIMARY KEY, run_no INT, first_seq INT, last_seq INT,
               session INT, number INT, codec INT, body TEXT, digests BLOB);
             CREATE UNIQUE INDEX log_seq ON log(run_no, first_seq);
             CREATE TABLE event_keys(run_no INT, key BLOB, PRIMARY KEY(run_no, key)) WITHOUT ROWID;"
        }
        Layout::Clustered => {
            "CREATE TABLE log(run_no INT, first_seq INT, last_seq INT, session INT, number INT,
               codec INT, body TEXT, digests BLOB, PRIMARY KEY(run_no, first_seq)) WITHOUT ROWID;
             CREATE TABLE event_keys(run_no INT, key BLOB, PRIMARY KEY(run_no, key)) WITHOUT ROWID;"
        }
        Layout::Marks => {
            "CREATE TABLE log(log_no INTEGER PRIMARY KEY, run_no INT, first_seq INT, last_seq INT,
               session INT, number INT, codec INT, body TEXT, digests BLOB);
             CREATE TABLE marks(run_no INT, mark, last_seq INT, log_no INT,
               PRIMARY KEY(run_no, mark)) WITHOUT ROWID;"
        }
    }
}

fn write(conn: &Connection, layout: Layout, batch: i64, steps: i64) -> Fallible<()> {
    let body = "x".repeat(300);
    let digests = [7u8; 160];
    let marks = layout == Layout::Marks;
    let mut last = conn.prepare(if marks {
        "SELECT last_seq FROM marks WHERE run_no = ?1 AND mark < x'' ORDER BY mark DESC LIMIT 1"
    } else {
        "SELECT last_seq FROM log WHERE run_no = ?1 ORDER BY first_seq DESC LIMIT 1"
    })?;
    let mut chunk = conn.prepare(
        "INSERT INTO log(run_no, first_seq, last_seq, session, number, codec, body, digests)
         VALUES (?1, ?2, ?3, 3, ?4, 1, ?5, ?6)",
    )?;
    let mut key = conn.prepare(if marks {
        "INSERT INTO marks(run_no, mark) VALUES (?1, ?2)"
    } else {
        "INSERT INTO event_keys(run_no, key) VALUES (?1, ?2)"
    })?;
    let mut mark = conn.prepare_cached(if marks {
        "INSERT INTO marks(run_no, mark, last_seq, log_no) VALUES (?1, ?2, ?3, ?4)"
    } else {
        "SELECT 1"
    })?;
    let mut written = 0;
    let mut number = 0;
    while written < steps {
        number += 1;
        conn.execute_batch("BEGIN IMMEDIATE")?;
        for slot in written..(written + batch).min(steps) {
            let round = slot / RUNS;
            let run = (round / STEPS_OF_A_RUN) * RUNS + slot % RUNS;
            let step = round % STEPS_OF_A_RUN;
            let first = step * 2 + 1;
            let mut rows = last.query([run])?;
            let after: i64 = rows.next()?.map_or(Ok(0), |row| row.get(0))?;
            drop(rows);
            assert_eq!(after + 1, first, "the sequence");
            chunk.execute(params![run, first, first + 1, number, body, &digests[..]])?;
            if marks {
                let log_no = conn.last_insert_rowid();
                mark.execute(params![run, first, first + 1, log_no])?;
            }
            for event in 0..2 {
                let preimage = format!("s{step:04}e{event}abcd");
                key.execute(params![run, preimage.as_bytes()])?;
            }
        }
        conn.execute_batch("COMMIT")?;
        written += batch;
    }
    Ok(())
}
