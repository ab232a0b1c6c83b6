//! What the SQLite store does with commits of the engine's hot path, through the port.
//!
//! `cargo run --release -p stepwell-stores --example sqlite_appends -- [DIRECTORY] [STEPS] [PAGE] [FULL|NORMAL|OFF]`
//!
//! 1,000 live runs of ten steps; a step is one append of its owner: two events in a chunk of 300 bytes
//! of body and 160 of digests, two keys of 12 bytes, a guard on the session, no head. Runs are made
//! ten steps ahead, outside the time that is measured. Bytes are what the closed file grew by.

use std::path::Path;
use std::time::{Duration, Instant};

use stepwell_engine::store::{
    Append, AppendResult, Batch, Chunk, CommitId, Commits as _, Guard, Head, NewRun, PlanNo,
    Plans as _, RunNo, SessionNo, Sessions as _,
};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;
use stepwell_stores::sqlite::{Durability, SqliteOptions, SqliteStore};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const RUNS: usize = 1_000;
const STEPS_OF_A_RUN: u64 = 10;

fn main() -> Fallible<()> {
    let mut args = std::env::args().skip(1);
    let dir = args
        .next()
        .unwrap_or_else(|| "/tmp/stepwell-appends".into());
    let steps: usize = args.next().map_or(Ok(300_000), |steps| steps.parse())?;
    let page_size: u32 = args.next().map_or(Ok(4096), |page| page.parse())?;
    let durability = match args.next().as_deref() {
        None | Some("FULL") => Durability::Full,
        Some("NORMAL") => Durability::Normal,
        Some("OFF") => Durability::Off,
        Some(other) => return Err(format!("{other}: FULL, NORMAL or OFF").into()),
    };
    let options = SqliteOptions {
        durability,
        page_size,
        ..SqliteOptions::default()
    };
    let dir = Path::new(&dir);
    std::fs::create_dir_all(dir)?;
    println!(
        "disk: fdatasync of 8 KiB in place takes {:?} (median)",
        disk(dir)?
    );
    println!("page {page_size}, synchronous {durability:?}");
    println!("  batch   steps/s   median commit   p99 commit   bytes/step");
    for (batch, steps) in [(1_000, steps), (100, steps / 4), (1, steps / 100)] {
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(measure(dir, &options, batch, steps)?);
        }
        seen.sort_by_key(|it| it.rate);
        let it = &seen[1];
        println!(
            "{batch:>7} {:>9} {:>15?} {:>12?} {:>12}",
            it.rate, it.median, it.p99, it.bytes
        );
    }
    Ok(())
}

/// How long the disk takes for what a commit of one append writes.
fn disk(dir: &Path) -> Fallible<Duration> {
    use std::io::{Seek as _, Write as _};
    let path = dir.join("disk");
    let mut file = std::fs::File::create(&path)?;
    file.write_all(&vec![1; 4 << 20])?;
    file.sync_all()?;
    let mut took = Vec::new();
    for round in 0..400 {
        file.seek(std::io::SeekFrom::Start(round % 500 * 8192))?;
        file.write_all(&[7; 8192])?;
        let began = Instant::now();
        file.sync_data()?;
        took.push(began.elapsed());
    }
    std::fs::remove_file(path)?;
    took.sort_unstable();
    Ok(took[200])
}

struct Figures {
    rate: usize,
    median: Duration,
    p99: Duration,
    bytes: u64,
}

fn measure(dir: &Path, options: &SqliteOptions, batch: usize, steps: usize) -> Fallible<Figures> {
    let path = dir.join("appends.db");
    for end in ["", "-wal", "-shm", "-lock"] {
        let _ = std::fs::remove_file(dir.join(format!("appends.db{end}")));
    }
    let store = SqliteStore::open(&path, options.clone())?;
    let plan = store.put_plan(&plan()?)?;
    let session = store.open_session("bench", Time(0), Time(i64::from(i32::MAX)))?;
    let waves = steps.div_ceil(RUNS * STEPS_OF_A_RUN as usize);
    let numbers = store.reserve_numbers(u32::try_from(waves * RUNS)?)?;
    let mut sender = Sender {
        store: &store,
        session,
        commits: 0,
    };
    for from in numbers.clone().step_by(RUNS) {
        let runs = from..from + RUNS as i64;
        sender.send(runs.map(|no| create(RunNo(no), plan, session)).collect())?;
    }
    drop(store);
    let before = std::fs::metadata(&path)?.len();

    let store = SqliteStore::open(&path, options.clone())?;
    let session = store.open_session("bench", Time(0), Time(i64::from(i32::MAX)))?;
    let mut sender = Sender {
        store: &store,
        session,
        commits: 0,
    };
    let mut took = Vec::with_capacity(steps / batch + 1);
    let mut written = 0;
    while written < steps {
        let appends = (written..(written + batch).min(steps)).map(|slot| {
            let (wave, slot) = (slot / (RUNS * 10), slot % (RUNS * 10));
            let run = numbers.start + (wave * RUNS + slot % RUNS) as i64;
            step(RunNo(run), (slot / RUNS) as u64)
        });
        let appends: Vec<Append> = appends.collect();
        written += appends.len();
        took.push(sender.send(appends)?);
    }
    drop(store);
    let grown = std::fs::metadata(&path)?.len() - before;
    let total: Duration = took.iter().sum();
    took.sort_unstable();
    Ok(Figures {
        rate: (steps as f64 / total.as_secs_f64()) as usize,
        median: took[took.len() / 2],
        p99: took[(took.len() * 99 / 100).min(took.len() - 1)],
        bytes: grown / steps as u64,
    })
}

struct Sender<'a> {
    store: &'a SqliteStore,
    session: SessionNo,
    commits: i64,
}

impl Sender<'_> {
    /// Only the store's own time is counted.
    fn send(&mut self, appends: Vec<Append>) -> Fallible<Duration> {
        self.commits += 1;
        let batch = Batch {
            id: CommitId {
                session: self.session.0,
                number: self.commits,
            },
            session: Some(self.session),
            now: Time(0),
            appends,
        };
        let began = Instant::now();
        let outcomes = self.store.commit(&batch)?;
        let took = began.elapsed();
        match outcomes.iter().find(|it| **it != AppendResult::Committed) {
            Some(lost) => Err(format!("an append lost: {lost:?}").into()),
            None => Ok(took),
        }
    }
}

fn create(run: RunNo, plan: PlanNo, session: SessionNo) -> Append {
    let mut append = Append::new(run, 0);
    append.create = Some(Box::new(NewRun {
        run_id: format!("run_019a8a3c-7f1e-7000-8000-{:012x}", run.0),
        plan: Some(plan),
        event_key: format!("run_{}", run.0),
        ..NewRun::default()
    }));
    append.chunk = Some(chunk(1));
    append.head = Some(Head {
        status: "RUNNING".into(),
        session: Some(session),
        ..Head::default()
    });
    append
}

fn step(run: RunNo, step: u64) -> Append {
    let after = 2 + step * 2;
    let mut append = Append::new(run, after);
    append.chunk = Some(chunk(after + 1));
    append.guards = vec![Guard::Session];
    append
}

fn chunk(first: u64) -> Chunk {
    let key = |seq: u64| format!("{:08x}{:04}", seq.wrapping_mul(2_654_435_761) as u32, seq);
    Chunk {
        first,
        last: first + 1,
        codec: 1,
        body: format!("[\"{}\"]", "x".repeat(296)),
        digests: vec![7; 160],
        keys: vec![key(first).into_bytes(), key(first + 1).into_bytes()],
    }
}

fn plan() -> Fallible<Plan> {
    let net = include_str!("../../../fixtures/histories/linear-payment/net.json");
    Plan::new(serde_json::from_str(net)?).map_err(Into::into)
}
