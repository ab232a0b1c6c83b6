//! `stepwell bench`: runs named workloads on a store, and compares them with the bare store on the same
//! disk at the same time. Every result names the sync mode.

mod bench_store;
mod lists;
mod load_generator;
mod outside;
mod percentile;
mod remote;
mod resource_usage;
mod server;
mod server_process;
mod tools;
mod workload;
mod workload_report;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use stepwell_engine::Shard;
use stepwell_engine::coordinator::{Config, Serves};
use stepwell_engine::service::{ExternalEvent, Service, Setup};
use stepwell_engine::store::Store;
use stepwell_kernel::plan::Plan;
use stepwell_stores::sqlite::Durability;

use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::outside_engine::OutsideEngine;
use crate::progress::Progress;
use crate::{term, usage};
use bench_store::BenchStore;
use load_generator::{LoadGenerator, NoopWorker};
use resource_usage::CpuUsage;
use workload::{EVENT, NAMES, Workload};
use workload_report::WorkloadFigures;

/// The maximum time to wait for the end of the runs of a workload.
const PATIENCE: Duration = Duration::from_secs(1_800);
/// The engine of this program itself.
const NATIVE: &str = "native";
/// How many runs may wait for their first commit: more than a few commits take.
const MAX_LAG: u64 = 4_000;
/// From so many waiting runs on the memory at open is theirs; with fewer it is what the process itself happens to need.
const MANY_WAITING: u32 = 100_000;
/// How long the allocator may keep memory that was freed before it gives it back to the system.
const FREED_AFTER: Duration = Duration::from_secs(2);

/// Measure the throughput of the engine on this machine
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Workloads:
  chain-1, chain-3, chain-10    sequential no-op steps, many concurrent runs
  chain-1000, chain-10000       the same with more steps
  idle                          ten steps, one run at a time: latency of a run
  fan-out                       one step, 1,000 parallel steps, one step
  loop                          a loop over 100,000 items
  waiting                       1,000,000 waiting runs, then chains, then events for some of the waiting runs

`stepwell bench tools` measures steps with real work: programs, requests, queries.
`stepwell bench remote` measures a server with workers in other processes.
`stepwell bench server` measures a server over HTTP: starts, latency, memory of streams, many clients.
`stepwell bench lists` measures lists and counts of many runs over HTTP.

Examples:
  stepwell bench                                     chain-10 and idle on SQLite
  stepwell bench all -o json > figures.json
  stepwell bench chain-10 --store postgres://localhost/bench --servers 2
  stepwell bench waiting --waiting 100000
  stepwell bench chain-10 --engine temporal://127.0.0.1:7233/default --concurrency 20

The memory of an engine that opens a store (residentAtOpenMb) is reported from 100,000 waiting runs on.

Each result is compared with the bare store: rows of the same size, in batches of the same size, with
the same sync mode, on the same disk. Run no other programs on the machine during the benchmark.

Exit codes: 0 measured, 1 the store cannot be used, 2 wrong usage."
)]
pub(crate) struct BenchArgs {
    /// Workloads; `all` for all workloads
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<String>,
    /// Store: `sqlite:PATH` (a new file), `postgres://…` (a new schema) or `memory:`; deleted after the measurement
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Number of concurrent runs
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    concurrency: u64,
    /// Duration of the measurement in seconds
    #[arg(long, value_name = "N", default_value_t = 10)]
    seconds: u64,
    /// Sync mode of SQLite
    #[arg(long, value_enum, default_value_t = SyncMode::Full)]
    sync: SyncMode,
    /// Engine that moves the runs: `native`, or the address of an engine outside (docs/engines.md), which is measured
    /// beside native, with the ratio. With that one choose a smaller --concurrency
    #[arg(long, value_name = "ENGINE", default_value = NATIVE)]
    engine: String,
    /// Number of engines that share the store; more than one needs PostgreSQL
    #[arg(long, value_name = "N", default_value_t = 1)]
    servers: usize,
    /// Number of threads that decide in each engine, 1 to 16; chosen by the number of cores if absent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    shards: Option<u8>,
    /// Number of waiting runs in the workload `waiting`
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    waiting: u32,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    #[command(subcommand)]
    command: Option<BenchCommand>,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    Tools(tools::ToolsArgs),
    Remote(remote::RemoteArgs),
    Server(server::ServerArgs),
    Lists(lists::ListsArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SyncMode {
    /// A commit is on disk before it is acknowledged
    Full,
    /// A commit is on disk some time after it is acknowledged
    Normal,
    /// The operating system decides when a commit is written to disk
    Off,
}

impl From<SyncMode> for Durability {
    fn from(sync: SyncMode) -> Durability {
        match sync {
            SyncMode::Full => Durability::Full,
            SyncMode::Normal => Durability::Normal,
            SyncMode::Off => Durability::Off,
        }
    }
}

pub(crate) fn run(args: &BenchArgs) -> Result<Exit> {
    match &args.command {
        Some(BenchCommand::Tools(args)) => return tools::run(args),
        Some(BenchCommand::Remote(args)) => return remote::run(args),
        Some(BenchCommand::Server(args)) => return server::run(args),
        Some(BenchCommand::Lists(args)) => return lists::run(args),
        None => {}
    }
    let workloads = chosen(args)?;
    let store = BenchStore::of(args.store.as_deref(), args.sync)?;
    if args.servers > 1 && !matches!(store, BenchStore::Postgres { .. }) {
        return usage("--servers greater than 1 needs --store postgres://…");
    }
    // An engine outside is measured beside the native engine, with the same workload on the same store.
    let engines = match args.engine.as_str() {
        NATIVE => vec![NATIVE],
        address => {
            let known = crate::outside_engine::address(address);
            let known = known.or_else(|error| usage(error.to_string()))?;
            crate::run::must_be_built(known.engine())?;
            vec![NATIVE, address]
        }
    };
    for (name, workload) in workloads {
        let mut native: Option<WorkloadFigures> = None;
        for engine in &engines {
            let bench = WorkloadBench {
                outside: RefCell::default(),
                args,
                engine,
                store: &store,
                name,
                workload,
            };
            let all = bench.run().with_context(|| format!("workload {name}"))?;
            for mut figures in all {
                figures.beside_native = native.as_ref().map(|it| figures.ratio(it));
                let text = match args.output {
                    OutputFormat::Human => figures.human(),
                    OutputFormat::Json => format!("{}\n", figures.json()),
                };
                term::print(&text)?;
                if *engine == NATIVE {
                    native = Some(figures);
                }
            }
        }
    }
    Ok(Exit::Ok)
}

fn chosen(args: &BenchArgs) -> Result<Vec<(&str, Workload)>> {
    if args.workloads.iter().any(|name| name == "all") {
        return Ok(NAMES.to_vec());
    }
    let default = ["chain-10".to_owned(), "idle".to_owned()];
    let names = match args.workloads.is_empty() {
        true => &default[..],
        false => &args.workloads[..],
    };
    let mut chosen = Vec::new();
    for name in names {
        let Some(known) = NAMES.iter().find(|(known, _)| known == name) else {
            let all = NAMES.map(|(name, _)| name).join(", ");
            return usage(format!("unknown workload {name:?}; available: {all}, all"));
        };
        chosen.push(match known {
            (name, Workload::Waiting(_)) => (*name, Workload::Waiting(args.waiting)),
            known => *known,
        });
    }
    Ok(chosen)
}

/// One workload with its store and options.
struct WorkloadBench<'a> {
    /// What moves the runs, if an engine outside does.
    outside: RefCell<Vec<OutsideEngine>>,
    args: &'a BenchArgs,
    /// What moves the runs: `native` or an address.
    engine: &'a str,
    store: &'a BenchStore,
    name: &'a str,
    workload: Workload,
}

impl WorkloadBench<'_> {
    fn run(&self) -> Result<Vec<WorkloadFigures>> {
        let result = match self.workload {
            Workload::Waiting(runs) => self.waiting(runs),
            Workload::Chain(_) | Workload::Idle | Workload::FanOut(_) | Workload::Loop(_) => {
                self.load().map(|figures| vec![figures])
            }
        };
        self.store.remove()?;
        result
    }

    /// Starts the engines on one store, with no-op handlers.
    fn engines(&self, load: &Arc<LoadGenerator>) -> Result<Vec<(Service, Arc<dyn Store>)>> {
        let mut engines = Vec::new();
        let first = self.store.open()?;
        for number in 0..self.args.servers {
            let store = match number {
                0 => first.clone(),
                _ => self.store.open()?,
            };
            let worker = NoopWorker { load: load.clone() };
            let config = Config {
                name: format!("bench-{number}"),
                serves: Serves::Everything,
                capacity: 1_000_000,
                ..Config::default()
            };
            let service = match self.engine {
                NATIVE => Service::start(Setup {
                    config,
                    shards: self.shards(),
                    ..Setup::new(store.clone(), worker)
                })?,
                address => {
                    let (service, outside) = outside::start(address, config, &store, load)?;
                    self.outside.borrow_mut().push(outside);
                    service
                }
            };
            load.add(service.handle());
            engines.push((service, store));
        }
        Ok(engines)
    }

    fn shards(&self) -> usize {
        self.args.shards.map_or_else(Shard::suited, usize::from)
    }

    fn load(&self) -> Result<WorkloadFigures> {
        let plan = self.workload.plan()?;
        let load = LoadGenerator::new(plan, "b");
        let engines = self.engines(&load)?;
        let figures = self.measure(&load, &engines, self.workload)?;
        for outside in self.outside.take() {
            outside.stop();
        }
        stop(engines)?;
        let batch = figures.appends_per_commit().round().max(1.0) as usize;
        let bare = self.store.bare(figures.log_bytes_per_append(), batch)?;
        Ok(figures.beside(bare))
    }

    /// Runs the workload for the configured time and counts.
    fn measure(
        &self,
        load: &Arc<LoadGenerator>,
        engines: &[(Service, Arc<dyn Store>)],
        workload: Workload,
    ) -> Result<WorkloadFigures> {
        let concurrency = match workload {
            Workload::Idle => 1,
            Workload::FanOut(_) => self.args.concurrency.min(4),
            Workload::Loop(_) => 1,
            // The state of a long run is large; 1,000 runs of 10,000 steps would need gigabytes.
            Workload::Chain(steps) => self.args.concurrency.min(1_000_000 / u64::from(steps)),
            _ => self.args.concurrency,
        };
        let time = Duration::from_secs(self.args.seconds);
        let _measuring = Progress::of(format!("measuring {}", self.name));
        load.go_on();
        for _ in 0..concurrency {
            load.start()?;
        }
        // Warm-up: caches fill and files grow.
        let one = matches!(workload, Workload::Loop(_));
        if !one {
            std::thread::sleep(Duration::from_secs(2).min(time));
        }
        load.take_latencies();
        let before = Counters::take(load, engines)?;
        if one {
            load.stop();
            if !load.wait_for(load.started(), PATIENCE) {
                bail!("the run did not end within {} s", PATIENCE.as_secs());
            }
        } else {
            std::thread::sleep(time);
        }
        let after = Counters::take(load, engines)?;
        let latencies = load.take_latencies();
        load.stop();
        // Long runs are not finished: the store is deleted afterwards.
        let long = matches!(workload, Workload::Chain(steps) if steps > 100);
        if !long && !load.wait_for(load.started(), PATIENCE) {
            bail!("the runs did not end within {} s", PATIENCE.as_secs());
        }
        let store = &engines[0].1;
        Ok(WorkloadFigures {
            engine: match self.engine.split_once(':') {
                Some((scheme, _)) => scheme.split('+').next().unwrap_or(scheme).to_owned(),
                None => self.engine.to_owned(),
            },
            beside_native: None,
            workload: self.name.to_owned(),
            store: store.name().to_owned(),
            sync: self.store.sync(),
            servers: engines.len(),
            shards: self.shards(),
            concurrency,
            steps_per_run: workload.steps(),
            before,
            after,
            latencies,
            bare: None,
            notes: Vec::new(),
        })
    }

    /// Measures chains before and after many waiting runs exist.
    fn waiting(&self, runs: u32) -> Result<Vec<WorkloadFigures>> {
        let chain: Arc<Plan> = self.workload.plan()?;
        let load = LoadGenerator::new(chain.clone(), "w");
        let engines = self.engines(&load)?;
        let mut alone = self.measure(&load, &engines, Workload::Chain(10))?;
        alone.workload = "chain-10, no waiting runs".into();

        load.set_plan(workload::waiting()?);
        let begin = Instant::now();
        let first = load.started();
        let bytes = engines[0].1.bytes()?;
        let starting = Progress::of_many("starting runs that wait", u64::from(runs));
        for number in 0..runs {
            load.start()?;
            starting.set(u64::from(number));
            // Limits the queue of the engine, which uses memory too.
            while load.started() - first > MAX_LAG
                && started_lag(&engines[0].1, load.started()) > MAX_LAG
            {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        settle(&engines)?;
        drop(starting);
        let parked = begin.elapsed();
        let grown = engines[0].1.bytes()?.saturating_sub(bytes);

        stop(engines)?;
        // What is measured next is the engine that opens the store, not what is left of the one before.
        std::thread::sleep(FREED_AFTER);
        let opened = Instant::now();
        let load = LoadGenerator::new(chain, "x");
        let engines = self.engines(&load)?;
        let opened = opened.elapsed();
        let resident = resource_usage::resident();
        let mut beside = self.measure(&load, &engines, Workload::Chain(10))?;
        beside.workload = format!("chain-10, {runs} waiting runs");
        beside.notes = vec![
            ("waitingRuns", f64::from(runs)),
            ("startedPerSecond", f64::from(runs) / parked.as_secs_f64()),
            ("bytesPerWaitingRun", grown as f64 / f64::from(runs.max(1))),
            ("openMs", opened.as_secs_f64() * 1e3),
        ];
        if runs >= MANY_WAITING {
            let resident = resident as f64 / 1e6;
            beside.notes.push(("residentAtOpenMb", resident));
        }
        let wake = self.wake(&load, &engines, runs.min(1_000))?;
        beside.notes.push(("wokenPerSecond", wake));
        stop(engines)?;
        Ok(vec![alone, beside])
    }

    /// Sends events to some waiting runs; returns the completed runs per second.
    fn wake(
        &self,
        load: &Arc<LoadGenerator>,
        engines: &[(Service, Arc<dyn Store>)],
        some: u32,
    ) -> Result<f64> {
        let store = &engines[0].1;
        let filter = stepwell_engine::store::RunFilter {
            open: true,
            limit: some as usize,
            ..Default::default()
        };
        let open = store.list(&filter)?;
        let ended = load.ended.load(Ordering::SeqCst);
        let begin = Instant::now();
        let (service, _) = engines.first().context("no engine runs")?;
        for run in &open {
            let event = ExternalEvent {
                tenant: run.tenant.clone(),
                id: format!("wake-{}", run.run_id),
                event_type: EVENT.into(),
                key: run.run_id.clone(),
                payload: serde_json::Value::Null,
            };
            // The answer is the run's end.
            service.handle().deliver_with(event, drop)?;
        }
        if !load.wait_for(ended + open.len() as u64, PATIENCE) {
            bail!("the runs that received an event did not end");
        }
        Ok(open.len() as f64 / begin.elapsed().as_secs_f64())
    }
}

/// How many requested runs are not in the store yet, at least: later runs have larger numbers, some of which are not used.
fn started_lag(store: &Arc<dyn Store>, asked: u64) -> u64 {
    let filter = stepwell_engine::store::RunFilter {
        limit: 1,
        ..Default::default()
    };
    let newest = store
        .list(&filter)
        .ok()
        .and_then(|runs| runs.into_iter().next());
    let number = newest.map_or(0, |run| run.run.0.max(0) as u64);
    asked.saturating_sub(number)
}

/// Waits until the engines make no more commits.
fn settle(engines: &[(Service, Arc<dyn Store>)]) -> Result<()> {
    let commits = || -> u64 {
        let all = engines.iter().map(|(service, _)| service.stats());
        all.map(|stats| stats.appends.load(Ordering::Relaxed)).sum()
    };
    let mut seen = commits();
    for _ in 0..6_000 {
        std::thread::sleep(Duration::from_millis(300));
        let now = commits();
        if now == seen {
            return Ok(());
        }
        seen = now;
    }
    bail!("the engine does not become idle")
}

fn stop(engines: Vec<(Service, Arc<dyn Store>)>) -> Result<()> {
    for (service, _) in engines {
        service.stop(Duration::from_secs(10))?;
    }
    Ok(())
}

/// All counters at one time.
#[derive(Clone, Copy, Debug)]
struct Counters {
    at: Instant,
    steps: u64,
    runs: u64,
    commits: u64,
    appends: u64,
    log_bytes: u64,
    store_bytes: u64,
    cpu: CpuUsage,
    resident: u64,
}

impl Counters {
    fn take(load: &LoadGenerator, engines: &[(Service, Arc<dyn Store>)]) -> Result<Counters> {
        let sum = |what: fn(&stepwell_engine::service::Stats) -> u64| -> u64 {
            engines
                .iter()
                .map(|(service, _)| what(service.stats()))
                .sum()
        };
        let store_bytes = match engines.first() {
            Some((_, store)) => store.bytes()?,
            None => 0,
        };
        Ok(Counters {
            steps: load.steps.load(Ordering::Relaxed),
            runs: load.ended.load(Ordering::Relaxed),
            commits: sum(|stats| stats.commits.load(Ordering::Relaxed)),
            appends: sum(|stats| stats.appends.load(Ordering::Relaxed)),
            log_bytes: sum(|stats| stats.bytes.load(Ordering::Relaxed)),
            store_bytes,
            cpu: CpuUsage::now(),
            resident: resource_usage::resident(),
            at: Instant::now(),
        })
    }
}
