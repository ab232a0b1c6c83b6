//! `stepwell bench tools`: measures steps with real work in the complete engine, and compares them with
//! the tool alone. `tools/measured_tool.rs` defines the step of each tool.

mod http_server;
mod measured_tool;
mod timed_worker;
mod tool_alone;
mod tool_report;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use stepwell_engine::coordinator::Config;
use stepwell_engine::service::{Service, Setup};
use stepwell_worker::artifacts::Artifacts;
use stepwell_worker::logs::Logs;
use stepwell_worker::secrets::Secrets;
use stepwell_worker::{Crew, WorkerResources};

use super::bench_store::BenchStore;
use super::load_generator::LoadGenerator;
use super::resource_usage::{self, CpuUsage};
use super::{PATIENCE, SyncMode};
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::{term, usage};
use http_server::HttpServer;
use measured_tool::{MeasuredTool, ToolSetting};
use timed_worker::{StepTimes, TimedWorker};
use tool_report::{CallSample, ToolFigures};

/// The number of steps of one run.
const STEPS: u32 = 10;

/// Warm-up time before the measurement.
const WARM_UP: Duration = Duration::from_secs(2);

/// The shortest and longest pause between two checks of the progress.
const SHORTEST_NAP: Duration = Duration::from_millis(1);
const LONGEST_NAP: Duration = Duration::from_millis(100);

/// The environment variable with the PostgreSQL server of the tests.
const TEST_SERVER: &str = "STEPWELL_TEST_POSTGRES";

/// Measure steps with real work: programs, requests, queries
#[derive(Debug, Args)]
#[command(after_help = "\
Tools:
  noop          a no-op task
  handler       a no-op async function in Rust
  shell         `true` in a shell
  python        code that sets `result`, forked from a warm interpreter
  python-cold   the same, with a new interpreter for each step
  http          a GET of 11 bytes from a local server in this process
  postgres      SELECT 1 on the server of --postgres
  sqlite        SELECT 1 on a file

Examples:
  stepwell bench tools                               all tools, 8 concurrent steps
  stepwell bench tools python --at-a-time 1          the latency of one step
  stepwell bench tools noop handler --at-a-time 1000
  stepwell bench tools postgres --postgres postgresql://localhost/bench

A run has ten sequential steps; the number of concurrent runs is the number of concurrent steps. Each
result is compared with the tool alone: no engine, store or templates, with the same concurrency.

Exit codes: 0 measured, 1 a step failed or the store cannot be used, 2 wrong usage.")]
pub(super) struct ToolsArgs {
    /// Tools; all tools if none is given
    #[arg(value_enum, value_name = "TOOL")]
    tools: Vec<MeasuredTool>,
    /// Number of concurrent steps
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    at_a_time: u32,
    /// Duration of each measurement in seconds
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    seconds: f64,
    /// Store: `sqlite:PATH` (a new file), `postgres://…` (a new schema) or `memory:`
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Sync mode of SQLite
    #[arg(long, value_enum, default_value_t = SyncMode::Full)]
    sync: SyncMode,
    /// Server for the tool `postgres` [default: the variable STEPWELL_BENCH_POSTGRES]
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
}

impl ToolsArgs {
    fn postgres(&self) -> Option<String> {
        let named = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
        self.postgres
            .clone()
            .or_else(|| named("STEPWELL_BENCH_POSTGRES"))
            .or_else(|| named(TEST_SERVER))
    }

    fn time(&self) -> Result<Duration> {
        match Duration::try_from_secs_f64(self.seconds) {
            Ok(time) if !time.is_zero() && time <= PATIENCE => Ok(time),
            _ => usage(format!(
                "--seconds must be more than 0 and at most {}",
                PATIENCE.as_secs()
            )),
        }
    }
}

pub(super) fn run(args: &ToolsArgs) -> Result<Exit> {
    let bench = ToolBench {
        time: args.time()?,
        at_a_time: args.at_a_time,
        store: BenchStore::of(args.store.as_deref(), args.sync)?,
    };
    let folder = BenchFolder::new(&bench.store)?;
    let server = HttpServer::start().context("the server for `http` cannot be started")?;
    let setting = ToolSetting {
        server: server.url(),
        postgres: args.postgres(),
        database: folder.0.join("tool.db"),
    };
    for kind in MeasuredTool::chosen(&args.tools) {
        let text = match kind.left_out(&setting) {
            Some(why) => tool_report::left_out(kind, why, args.output),
            None => {
                let figures = bench.tool(kind, &setting, &folder);
                bench.store.remove()?;
                let figures = figures.with_context(|| format!("tool {}", kind.name()))?;
                figures.print(args.output)
            }
        };
        term::print(&text)?;
    }
    Ok(Exit::Ok)
}

/// The folder for logs, artifacts and databases of tools; deleted on drop.
struct BenchFolder(PathBuf);

impl BenchFolder {
    fn new(store: &BenchStore) -> Result<BenchFolder> {
        let path = match store {
            BenchStore::Sqlite { path, .. } => path.with_extension("data"),
            BenchStore::Memory | BenchStore::Postgres { .. } => {
                std::env::temp_dir().join(format!("stepwell-bench-{}", std::process::id()))
            }
        };
        let path = std::path::absolute(path)?;
        if path.exists() {
            return usage(format!(
                "{} already exists; the benchmark needs a new folder, which it deletes afterwards",
                path.display()
            ));
        }
        std::fs::create_dir_all(&path)?;
        Ok(BenchFolder(path))
    }
}

impl Drop for BenchFolder {
    fn drop(&mut self) {
        // If the folder cannot be deleted, the next benchmark reports that it already exists.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct ToolBench {
    time: Duration,
    at_a_time: u32,
    store: BenchStore,
}

impl ToolBench {
    fn tool(
        &self,
        kind: MeasuredTool,
        setting: &ToolSetting,
        folder: &BenchFolder,
    ) -> Result<ToolFigures> {
        let plan = kind.plan(setting, STEPS)?;
        let alone = match kind.alone(&plan) {
            Some((tool, call)) => Some(tool_alone::measure(
                &tool,
                &call,
                self.at_a_time,
                self.time,
            )?),
            None => None,
        };
        let crew = Crew::new(resources(&folder.0, kind)?, kind.handlers())?;
        let store = self.store.open()?;
        let load = LoadGenerator::new(plan, "t");
        let times = Arc::new(StepTimes::default());
        let config = Config {
            name: "bench".into(),
            serves: crew.serves(),
            capacity: 1_000_000,
            ..Config::default()
        };
        let worker = TimedWorker::new(crew, load.clone(), times.clone());
        let service = Service::start(Setup {
            config,
            ..Setup::new(store.clone(), worker)
        })?;
        load.add(service.handle());
        let engine = self.measure(&load, &times);
        load.stop();
        // Open runs are not finished: the store is deleted afterwards.
        service.stop(Duration::from_secs(10))?;
        let engine = engine?;
        Ok(ToolFigures {
            kind,
            store: store.name().to_owned(),
            sync: self.store.sync(),
            at_a_time: self.at_a_time,
            engine,
            worked: times.take_worked(),
            alone,
        })
    }

    /// Runs the steps for the configured time and counts.
    fn measure(&self, load: &LoadGenerator, times: &StepTimes) -> Result<CallSample> {
        for _ in 0..self.at_a_time {
            load.start()?;
        }
        let steps = || load.steps.load(Ordering::Relaxed);
        // Warm-up: interpreters start, connections open, caches fill.
        let at_a_time = u64::from(self.at_a_time);
        self.pass(self.time.min(WARM_UP), times, || steps() >= at_a_time)?;
        times.take_steps();
        times.take_worked();
        let before = (CpuUsage::now(), Instant::now(), steps());
        self.pass(self.time, times, || steps() > before.2)?;
        let sample = CallSample {
            done: steps() - before.2,
            took: before.1.elapsed(),
            cpu: CpuUsage::now().since(before.0),
            resident: resource_usage::resident(),
            latencies: times.take_steps(),
        };
        Ok(sample)
    }

    /// Waits for `time`, and longer until `is_enough`. Returns an error if a step fails.
    fn pass(&self, time: Duration, times: &StepTimes, is_enough: impl Fn() -> bool) -> Result<()> {
        let begin = Instant::now();
        loop {
            let left = time.saturating_sub(begin.elapsed());
            std::thread::sleep(left.clamp(SHORTEST_NAP, LONGEST_NAP));
            if let Some(why) = times.failure() {
                bail!("a step failed: {why}");
            }
            if begin.elapsed() >= time && is_enough() {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                bail!("no step ended within {} s", PATIENCE.as_secs());
            }
        }
    }
}

fn resources(folder: &Path, kind: MeasuredTool) -> Result<WorkerResources> {
    let artifacts = Artifacts::open(&folder.join("artifacts").to_string_lossy())?;
    let logs = Logs::beside(folder, &artifacts);
    let resources = WorkerResources::new(Secrets::from_env()?, artifacts, logs).with_all_tools();
    Ok(match kind.own_tool() {
        Some((name, tool)) => resources.with_tool(name, tool),
        None => resources,
    })
}
