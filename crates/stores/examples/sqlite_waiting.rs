//! What a million waiting runs cost the SQLite store: opening it, and asking what is due.
//!
//! `cargo run --release -p stepwell-stores --example sqlite_waiting -- [DIRECTORY] [RUNS]`
//!
//! The database is made on the first call and kept for the next.

use std::path::Path;
use std::time::{Duration, Instant};

use stepwell_engine::store::{
    Append, Batch, Chunk, CommitId, Commits as _, Head, Mailbox as _, Maintenance as _, NewRun,
    PlanNo, Plans as _, RunFilter, RunNo, RunReader as _, Sessions as _, Slots as _, WaitChange,
    WakeQueue as _,
};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;
use stepwell_stores::sqlite::{Durability, SqliteOptions, SqliteStore};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Fallible<()> {
    let mut args = std::env::args().skip(1);
    let dir = args
        .next()
        .unwrap_or_else(|| "/tmp/stepwell-waiting".into());
    let runs: i64 = args.next().map_or(Ok(1_000_000), |runs| runs.parse())?;
    std::fs::create_dir_all(&dir)?;
    let path = Path::new(&dir).join(format!("waiting-{runs}.db"));
    if !path.exists() {
        fill(&path, runs)?;
    }
    let store = timed("open", || {
        SqliteStore::open(&path, SqliteOptions::default())
    })?;
    let now = Time(i64::from(i32::MAX));
    let session = timed("open_session", || {
        store.open_session("bench", now, now.plus(60_000))
    })?;
    timed("dead_sessions", || store.dead_sessions(now))?;
    timed("next_due", || store.next_due())?;
    timed("due, none", || store.due(Time(0), now, 100))?;
    timed("due, 100", || store.due(now, now.plus(60_000), 100))?;
    timed("queued", || store.queued(now, 100))?;
    timed("mail", || store.mail(session, 100))?;
    timed("load", || store.load(RunNo(runs / 2)))?;
    let open = RunFilter {
        open: true,
        limit: 50,
        ..RunFilter::default()
    };
    timed("list, 50 open", || store.list(&open))?;
    timed("check", || store.check())?;
    println!(
        "file: {} bytes a run",
        std::fs::metadata(&path)?.len() as i64 / runs
    );
    Ok(())
}

fn timed<T, E: Into<Box<dyn std::error::Error>>>(
    what: &str,
    work: impl FnOnce() -> Result<T, E>,
) -> Fallible<T> {
    let began = Instant::now();
    let done = work().map_err(Into::into)?;
    let took: Duration = began.elapsed();
    println!("{what:<14} {took:?}");
    Ok(done)
}

fn fill(path: &Path, runs: i64) -> Fallible<()> {
    let options = SqliteOptions {
        durability: Durability::Off,
        ..SqliteOptions::default()
    };
    let store = SqliteStore::open(path, options)?;
    let net = include_str!("../../../fixtures/histories/linear-payment/net.json");
    let plan = store.put_plan(&Plan::new(serde_json::from_str(net)?)?)?;
    store.reserve_numbers(u32::try_from(runs)?)?;
    for (number, from) in (1..=runs).step_by(1_000).enumerate() {
        let batch = Batch {
            id: CommitId {
                session: 0,
                number: number as i64,
            },
            session: None,
            now: Time(0),
            appends: (from..from + 1_000).map(|no| waiting(no, plan)).collect(),
        };
        store.commit(&batch)?;
    }
    Ok(())
}

fn waiting(no: i64, plan: PlanNo) -> Append {
    let mut append = Append::new(RunNo(no), 0);
    append.create = Some(Box::new(NewRun {
        run_id: format!("run_019a8a3c-7f1e-7000-8000-{no:012x}"),
        plan: Some(plan),
        event_key: format!("order-{no}"),
        ..NewRun::default()
    }));
    append.chunk = Some(Chunk {
        first: 1,
        last: 3,
        codec: 1,
        body: format!("[\"{}\"]", "x".repeat(446)),
        digests: vec![7; 240],
        keys: (1..4)
            .map(|seq| format!("{seq:012}").into_bytes())
            .collect(),
    });
    append.head = Some(Head {
        status: "RUNNING".into(),
        wake_at: Some(Time(1_000_000 + no)),
        ..Head::default()
    });
    append.waits = vec![WaitChange::Put {
        step: "paid".into(),
        event_type: "PAID".into(),
    }];
    append
}
