//! `stepwell bench remote`: a server and workers as processes of their own, over loopback: chains of ten no-op steps,
//! many at a time, and one at a time.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value as Json, json};
use stepwell_client::{Connection, Outcome, WorkerClient};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::percentile::Times;
use super::server_process::{BenchProcess, BenchServer, in_new_folder};
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::term;

/// The queue of the steps.
const QUEUE: &str = "bench";
/// How many steps a run has.
const STEPS: u64 = 10;
/// How long the last runs may take to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a worker says how far it is.
const TELL: Duration = Duration::from_millis(10);

/// Measure a server with workers in other processes, over loopback
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell bench remote
  stepwell bench remote --workers 2 --seconds 20 -o json

Starts `stepwell serve --no-worker` and worker processes whose steps do nothing. First many chains of ten steps
at a time (steps/s, and the processor time of the server and of all workers for each step), then one at a time (ms for
one run, start and answer included). The store is deleted afterwards.

Exit codes: 0 measured, 1 a process did not start, 2 wrong usage.")]
pub(crate) struct RemoteArgs {
    /// Number of worker processes
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
    /// Number of concurrent runs
    #[arg(long, value_name = "N", default_value_t = 500)]
    concurrency: u64,
    /// Duration of each measurement in seconds
    #[arg(long, value_name = "N", default_value_t = 10)]
    seconds: u64,
    /// Store of the server [default: a new SQLite file]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    /// Be a worker of this server
    #[arg(long, value_name = "URL", hide = true)]
    work_for: Option<String>,
}

pub(crate) fn run(args: &RemoteArgs) -> Result<Exit> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    if let Some(url) = &args.work_for {
        runtime.block_on(work(url, args.concurrency))?;
        return Ok(Exit::Ok);
    }
    let figures = in_new_folder(|folder| measure(args, folder, &runtime))?;
    let text = match (figures, args.output) {
        (figures, OutputFormat::Json) => format!("{}\n", figures.json(args)),
        (figures, OutputFormat::Human) => figures.human(args),
    };
    term::print(&text)?;
    Ok(Exit::Ok)
}

fn operation(step: u64) -> String {
    format!("STEP_{step}")
}

/// Ten steps in sequence.
fn definition() -> String {
    let step = |step| {
        let operation = operation(step);
        format!("  - {{stepId: step-{step}, kind: {operation}, queue: {QUEUE}}}\n")
    };
    let steps: String = (1..=STEPS).map(step).collect();
    let plan = format!("planId: {QUEUE}, planVersion: '1', schemaVersion: v1.2");
    format!("metadata: {{{plan}}}\nsteps:\n{steps}")
}

/// A worker whose steps do nothing. It writes down how many steps and how many last steps it has done.
async fn work(url: &str, parallel: u64) -> Result<()> {
    let done: Arc<[AtomicU64; 2]> = Arc::default();
    let parallel = usize::try_from(parallel)?.clamp(256, 1_024);
    let mut worker = WorkerClient::new(url, None)?.parallel(parallel);
    for step in 1..=STEPS {
        let done = Arc::clone(&done);
        worker = worker.on(QUEUE, &operation(step), move |_| {
            done[0].fetch_add(1, Ordering::Relaxed);
            if step == STEPS {
                done[1].fetch_add(1, Ordering::Relaxed);
            }
            async { Outcome::done(Json::Null) }
        });
    }
    let told = async {
        let mut last = (0, 0);
        loop {
            tokio::time::sleep(TELL).await;
            let now = (
                done[0].load(Ordering::Relaxed),
                done[1].load(Ordering::Relaxed),
            );
            if now == last {
                continue;
            }
            last = now;
            let mut out = std::io::stdout().lock();
            // Nobody listens any more: the measurement is over.
            if writeln!(out, "{} {}", now.0, now.1).is_err() || out.flush().is_err() {
                return;
            }
        }
    };
    worker.run(told).await?;
    Ok(())
}

/// Rate and times that were measured.
struct RemoteFigures {
    load: LoadRate,
    /// Runs one at a time.
    idle: Times,
}

/// What many runs at a time took.
struct LoadRate {
    steps_per_second: f64,
    /// Processor time of the server and of all workers for each step, in microseconds.
    cpu: [f64; 2],
}

impl RemoteFigures {
    fn json(&self, args: &RemoteArgs) -> Json {
        json!({
            "workload": "remote chain-10",
            "workers": args.workers,
            "concurrency": args.concurrency,
            "stepsPerSecond": self.load.steps_per_second.round(),
            "serverUsPerStep": self.load.cpu[0].round(),
            "workersUsPerStep": self.load.cpu[1].round(),
            "idleMsP50": self.idle.percentile(50),
            "idleMsP99": self.idle.percentile(99),
        })
    }

    fn human(&self, args: &RemoteArgs) -> String {
        format!(
            "remote chain-10   {} workers, {} runs at a time: {:.0} steps/s, {:.0} µs of processor for each step in the server, \
             {:.0} µs in the workers\n\
             remote idle       one run at a time: {:.2} ms (p50), {:.2} ms (p99)\n",
            args.workers,
            args.concurrency,
            self.load.steps_per_second,
            self.load.cpu[0],
            self.load.cpu[1],
            self.idle.percentile(50),
            self.idle.percentile(99)
        )
    }
}

fn measure(
    args: &RemoteArgs,
    folder: &std::path::Path,
    runtime: &tokio::runtime::Runtime,
) -> Result<RemoteFigures> {
    let program = std::env::current_exe().context("this program cannot be started again")?;
    let server = BenchServer::start(folder, args.store.as_deref(), &["--no-worker"])?;
    let url = &server.url;
    let parallel = args.concurrency.to_string();
    let counts: Vec<Arc<[AtomicU64; 2]>> = (0..args.workers).map(|_| Arc::default()).collect();
    let mut workers = Vec::new();
    for count in &counts {
        let mut worker = Command::new(&program)
            .args(["bench", "remote", "--work-for", url])
            .args(["--concurrency", &parallel])
            .stdout(Stdio::piped())
            .spawn()?;
        let out = worker.stdout.take().context("the worker has no output")?;
        workers.push(BenchProcess(worker));
        let count = Arc::clone(count);
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let numbers = line.split(' ').map(|it| it.parse().unwrap_or(0));
                for (count, number) in count.iter().zip(numbers) {
                    count.store(number, Ordering::Relaxed);
                }
            }
        });
    }
    let sum = move |which: usize| -> u64 {
        let all = counts.iter();
        all.map(|it| it[which].load(Ordering::Relaxed)).sum()
    };
    let connection = Connection::new(url, None)?;
    let cpu = || {
        let of_workers = workers.iter().map(BenchProcess::cpu).sum();
        [server.cpu(), of_workers]
    };
    runtime.block_on(async {
        let load = load(args, &connection, &sum, &cpu).await?;
        let idle = idle(args, &connection).await?;
        Ok(RemoteFigures { load, idle })
    })
}

/// Many runs at a time: a new one is started for each that ends.
async fn load(
    args: &RemoteArgs,
    connection: &Connection,
    sum: &(dyn Fn(usize) -> u64 + Sync),
    cpu: &(dyn Fn() -> [Duration; 2] + Sync),
) -> Result<LoadRate> {
    let body = Arc::new(json!({ "definition": { "text": definition() } }));
    let mut starting = JoinSet::new();
    let warm = Instant::now() + Duration::from_secs(2).min(Duration::from_secs(args.seconds));
    let until = warm + Duration::from_secs(args.seconds);
    let (mut started, mut measured) = (0, None);
    while Instant::now() < until {
        while started < sum(1) + args.concurrency && starting.len() < 64 {
            let (connection, body) = (connection.clone(), Arc::clone(&body));
            starting.spawn(async move { connection.start(&body).await.map(drop) });
            started += 1;
        }
        while let Some(ended) = starting.try_join_next() {
            ended??;
        }
        if measured.is_none() && Instant::now() >= warm {
            measured = Some((Instant::now(), sum(0), cpu()));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (from, before, used) = measured.context("the measurement was too short")?;
    let steps = (sum(0) - before) as f64;
    let now = cpu();
    let micros = |at: usize| {
        let used = now[at].saturating_sub(used[at]);
        used.as_secs_f64() * 1e6 / steps.max(1.0)
    };
    let rate = LoadRate {
        steps_per_second: steps / from.elapsed().as_secs_f64(),
        cpu: [micros(0), micros(1)],
    };
    while let Some(ended) = starting.join_next().await {
        ended??;
    }
    let patience = Instant::now() + PATIENCE;
    while sum(1) < started {
        if Instant::now() > patience {
            bail!("{} runs did not end in time", started - sum(1));
        }
        tokio::time::sleep(TELL).await;
    }
    Ok(rate)
}

/// One run after the other: from the start to the answer that says that it has ended.
async fn idle(args: &RemoteArgs, connection: &Connection) -> Result<Times> {
    let body = json!({ "definition": { "text": definition() }, "waitSeconds": 30 });
    let until = Instant::now() + Duration::from_secs(args.seconds).min(Duration::from_secs(5));
    let mut took = Times::default();
    while Instant::now() < until {
        let begin = Instant::now();
        connection.start(&body).await?;
        took.push(begin.elapsed());
    }
    Ok(took)
}
