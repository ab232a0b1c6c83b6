//! How fast PostgreSQL takes appends: `cargo xtask postgres -- cargo run --release -p stepwell-stores
//! --example postgres_bench`. Live runs get chunks like those of a happy step, from two threads.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use stepwell_engine::store::{
    Append, AppendResult, Batch, Chunk, CommitId, Commits as _, Guard, Head, NewRun, PlanNo,
    Plans as _, RunNo, SessionNo, Sessions as _,
};
use stepwell_kernel::plan::{Dialect, Net, Plan, RunPolicy, SourceRef, Step, Work};
use stepwell_kernel::time::Time;
use stepwell_stores::postgres::{PostgresOptions, PostgresStore};

const LIVE: i64 = 1000;
const THREADS: i64 = 2;

type Done = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Done {
    let url = std::env::var("STEPWELL_TEST_POSTGRES")
        .map_err(|_| "run it with `cargo xtask postgres -- cargo run --release …`")?;
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(8), |it| it.parse())?;
    for size in [1000, 100, 10] {
        measure(&url, size, Duration::from_secs(seconds))?;
    }
    Ok(())
}

fn measure(url: &str, size: i64, time: Duration) -> Done {
    let schema = format!("bench_{}_{size}", std::process::id());
    let options = PostgresOptions {
        schema: schema.clone(),
        ..PostgresOptions::default()
    };
    let store = PostgresStore::connect(url, options)?;
    let plan = store.put_plan(&plan()?)?;
    let now = now();
    let session = store.open_session("bench", now, Time(now.0 + 3_600_000))?;
    let before = bytes(url, &schema)?;
    let commits = AtomicI64::new(0);
    let (runs, steps) = (AtomicU64::new(0), AtomicU64::new(0));
    let cpu = cpu();
    let begin = Instant::now();
    std::thread::scope(|scope| -> Done {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| -> Done {
                    let work = Bench {
                        store: &store,
                        plan,
                        session,
                        commits: &commits,
                    };
                    while begin.elapsed() < time {
                        work.generation(LIVE / THREADS, size, &runs, &steps)?;
                    }
                    Ok(())
                })
            })
            .collect();
        for worker in workers {
            worker.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })?;
    let spent = begin.elapsed().as_secs_f64();
    let used = self::cpu() - cpu;
    let steps = steps.load(Ordering::Relaxed) as f64;
    let grown = bytes(url, &schema)? - before;
    println!(
        "batches of {size}: {:.0} appends/s ({steps:.0} in {spent:.1} s, {} runs), {:.0} bytes an \
         append, client CPU {:.1} µs an append",
        steps / spent,
        runs.load(Ordering::Relaxed),
        grown as f64 / steps,
        used * 1e6 / steps
    );
    Ok(())
}

struct Bench<'a> {
    store: &'a PostgresStore,
    plan: PlanNo,
    session: SessionNo,
    commits: &'a AtomicI64,
}

impl Bench<'_> {
    /// So many runs from their start to their tenth step, in batches.
    fn generation(&self, live: i64, size: i64, runs: &AtomicU64, steps: &AtomicU64) -> Done {
        let numbers = self.store.reserve_numbers(u32::try_from(live)?)?;
        let numbers: Vec<i64> = numbers.collect();
        for step in 0..=10_u64 {
            for batch in numbers.chunks(usize::try_from(size)?) {
                let appends = batch.iter().map(|no| self.append(*no, step)).collect();
                let batch = Batch {
                    id: CommitId {
                        session: self.session.0,
                        number: self.commits.fetch_add(1, Ordering::Relaxed),
                    },
                    session: Some(self.session),
                    now: now(),
                    appends,
                };
                let outcomes = self.store.commit(&batch)?;
                if let Some(lost) = outcomes.iter().find(|it| **it != AppendResult::Committed) {
                    return Err(format!("an append was lost: {lost:?}").into());
                }
                if step > 0 {
                    steps.fetch_add(outcomes.len() as u64, Ordering::Relaxed);
                }
            }
        }
        runs.fetch_add(numbers.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn append(&self, no: i64, step: u64) -> Append {
        let mut append = Append::new(RunNo(no), step * 2);
        append.guards = vec![Guard::Session];
        if step == 0 {
            let run_id = format!("run_{no:032}");
            append.create = Some(Box::new(NewRun {
                event_key: run_id.clone(),
                run_id,
                plan: Some(self.plan),
                created_at: now(),
                ..NewRun::default()
            }));
            append.head = Some(Head {
                status: "RUNNING".into(),
                session: Some(self.session),
                ..Head::default()
            });
        }
        append.chunk = Some(chunk(no, step * 2 + 1));
        append
    }
}

/// Two events as a happy step has them: 290 bytes of text, 160 of digests, two keys of 12.
fn chunk(no: i64, first: u64) -> Chunk {
    let body = format!(
        r#"[[1767225600000,{{"stepId":"step-{first:07}"}},{{"type":"StepCompleted","step":{{"step":0,"visit":1}},"logical":1,"execution":1}}],[1767225600000,{{"stepId":"step-{first:07}"}},{{"type":"StepStarted","step":{{"step":1,"visit":1}},"logical":1,"execution":1,"lease":{{"worker":"mock","until":1767225630000}}}}]]"#
    );
    // Digests do not compress and do not repeat.
    let mut state = (no as u64) << 20 | first;
    let digests = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33).to_le_bytes()[0]
    });
    let key = |seq: u64| [&[1; 4], &seq.to_be_bytes()[..]].concat();
    Chunk {
        first,
        last: first + 1,
        codec: 1,
        body,
        digests: digests.take(160).collect(),
        keys: vec![key(first), key(first + 1)],
    }
}

fn now() -> Time {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Time(now.map_or(0, |it| it.as_millis() as i64))
}

/// Seconds of processor time that this process has used.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    let ticks = |index: usize| fields.get(index).and_then(|it| it.parse::<f64>().ok());
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}

/// What the tables and indexes of a schema take.
fn bytes(url: &str, schema: &str) -> Result<i64, Box<dyn std::error::Error + Send + Sync>> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        let row = client
            .query_one(
                "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c
                 JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = $1 AND c.relkind = 'r'",
                &[&schema],
            )
            .await?;
        Ok(row.get(0))
    })
}

fn plan() -> Result<Plan, Box<dyn std::error::Error + Send + Sync>> {
    let work = Work::Task {
        queue: "default".into(),
        operation: "op".into(),
        config: Json::Null,
    };
    Ok(Plan::new(Net {
        dialect: Dialect::Plan,
        plan_id: "bench".into(),
        plan_version: "1".into(),
        schema_version: "v1.2".into(),
        source: SourceRef::default(),
        workload: Json::Null,
        edges: Vec::new(),
        steps: vec![Step::new("one", work)],
        policy: RunPolicy::default(),
        library: std::collections::BTreeMap::new(),
        extra: Json::Null,
    })
    .map_err(|fault| format!("{fault:?}"))?)
}
