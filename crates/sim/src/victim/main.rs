//! A process to be killed: a real engine on a real store, whose work leaves a mark in a file outside.
//!
//! It starts its runs (under the same request ids each time, so that starting again starts nothing
//! twice), works until every run of the store has ended, says `done` and leaves. The mark, one line a
//! side effect, is written before the work is reported, as a real side effect would be.

mod plan_catalog;
mod warnings;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use stepwell_engine::coordinator::{Assignment, Config, Serves};
use stepwell_engine::rows::served_by;
use stepwell_engine::service::{Reporter, Service, Setup, Worker};
use stepwell_engine::store::{RunFilter, Store};
use stepwell_engine::{Error, StartRequest};
use stepwell_kernel::command::Command;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{Patch, RunContext, StepError};
use stepwell_kernel::plan::ErrorClass;
use stepwell_kernel::rejection::Code;
use stepwell_sim::Rng;
use stepwell_stores::postgres::{PostgresOptions, PostgresStore};
use stepwell_stores::sqlite::{SqliteOptions, SqliteStore};

use plan_catalog::{DOOMED, PlanCatalog};

/// How many jobs are worked on at a time.
const WORKER_THREADS: usize = 8;

#[derive(Debug, Parser)]
struct Args {
    /// Address of the store: `sqlite:PATH` or `postgres://…`
    #[arg(long)]
    store: String,
    /// Schema of the tables in PostgreSQL
    #[arg(long, default_value = "stepwell")]
    schema: String,
    /// Name of the server
    #[arg(long)]
    name: String,
    /// File that records the work of this process
    #[arg(long)]
    witness: PathBuf,
    /// The first run to start
    #[arg(long, default_value_t = 0)]
    first: u32,
    /// How many runs to start
    #[arg(long, default_value_t = 0)]
    runs: u32,
    /// Milliseconds between two starts
    #[arg(long, default_value_t = 0)]
    every_ms: u64,
    /// Starts runs and drives them, works on their steps, or both
    #[arg(long, value_enum, default_value_t = Role::Both)]
    role: Role,
    /// Seed of the random numbers
    #[arg(long)]
    seed: u64,
    /// Length of the session lease in milliseconds
    #[arg(long, default_value_t = 1_000)]
    session_ms: u64,
    /// Continue after all runs have ended, until the process is stopped
    #[arg(long)]
    stay: bool,
    /// End as soon as standard input is closed, as it is when the program that started this one has ended
    #[arg(long)]
    leash: bool,
    /// Longest time in milliseconds of a long job; one job in ten is long
    #[arg(long, default_value_t = 0)]
    long_ms: u64,
    /// Print warnings of the engine on standard error
    #[arg(long)]
    tell: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Server,
    Worker,
    Both,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.tell {
        tracing::subscriber::set_global_default(warnings::WarningPrinter)?;
    }
    if args.leash {
        thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            std::process::exit(0);
        });
    }
    let store = open(&args)?;
    let plan_catalog = PlanCatalog::load();
    let worker_threads = WorkerThreads::start(&args)?;
    let config = Config {
        name: args.name.clone(),
        serves: match args.role {
            Role::Server => Serves::Nothing,
            Role::Worker | Role::Both => Serves::Only(Arc::new(plan_catalog.serves())),
        },
        capacity: 64,
        session_ms: args.session_ms,
        poll_ms: 50,
        ..Config::default()
    };
    let service = Service::start(Setup {
        catalog: Box::new(plan_catalog.clone()),
        config,
        // Kills and faults must not find a difference between one deciding thread and several.
        shards: 1 + (args.seed % 3) as usize,
        ..Setup::new(store.clone(), worker_threads)
    })?;
    say("ready");
    if args.role != Role::Worker {
        start_runs(&args, &service, &plan_catalog)?;
        say("started");
    }
    while args.stay || any_open(&*store)? {
        thread::sleep(Duration::from_millis(50));
    }
    service.stop(Duration::from_secs(5))?;
    say("done");
    Ok(())
}

fn say(word: &str) {
    // The reader of standard output may have ended.
    let _ = writeln!(std::io::stdout(), "{word}");
}

fn open(args: &Args) -> Result<Arc<dyn Store>> {
    if let Some(path) = args.store.strip_prefix("sqlite:") {
        let store = SqliteStore::open(PathBuf::from(path), SqliteOptions::default())?;
        return Ok(Arc::new(store));
    }
    let options = PostgresOptions {
        schema: args.schema.clone(),
        ..PostgresOptions::default()
    };
    Ok(Arc::new(PostgresStore::connect(&args.store, options)?))
}

/// Starts the runs; those that the store could not take are asked for again, until it can.
fn start_runs(args: &Args, service: &Service, plan_catalog: &PlanCatalog) -> Result<()> {
    let handle = service.handle();
    let mut wanted: Vec<u32> = (args.first..args.first + args.runs).collect();
    while !wanted.is_empty() {
        let mut answers = Vec::new();
        for number in std::mem::take(&mut wanted) {
            let plan = plan_catalog.nth(number as usize);
            answers.push((number, handle.start_later(&plan, request(args, number))?));
            thread::sleep(Duration::from_millis(args.every_ms));
        }
        for (number, answer) in answers {
            match answer.recv().context("the engine is gone")? {
                Ok(_) => {}
                // The business key belongs to the same run, started before a crash.
                Err(Error::Rejected(rejection)) if rejection.code == Code::KeyTaken => {}
                Err(Error::Store(error)) if error.kind.may_pass() => {
                    wanted.push(number);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if !wanted.is_empty() {
            thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

fn request(args: &Args, number: u32) -> StartRequest {
    StartRequest {
        run_id: format!("run_{}-{number}", uuid_like(args.seed, number)),
        request_id: Some(number.to_string()),
        params: serde_json::json!({ "number": number, "orderId": number }),
        context: RunContext {
            tenant_id: "t".into(),
            project_id: "p".into(),
            environment_id: "e".into(),
            ..RunContext::default()
        },
        ..StartRequest::default()
    }
}

/// A run id that another process would not choose.
fn uuid_like(seed: u64, number: u32) -> String {
    format!("{:016x}", Rng::new(seed ^ (u64::from(number) << 32)).draw())
}

fn any_open(store: &dyn Store) -> Result<bool> {
    let filter = RunFilter {
        open: true,
        limit: 1,
        ..RunFilter::default()
    };
    match store.list(&filter) {
        Ok(open) => Ok(!open.is_empty()),
        // A store that is not there now may come back; the engine waits for it too.
        Err(error) if error.kind.may_pass() => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Threads that do the work.
struct WorkerThreads {
    jobs: Sender<(Assignment, Reporter)>,
}

impl WorkerThreads {
    fn start(args: &Args) -> Result<WorkerThreads> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&args.witness)
            .with_context(|| format!("{}", args.witness.display()))?;
        let (jobs, taken) = mpsc::channel::<(Assignment, Reporter)>();
        let taken = Arc::new(Mutex::new(taken));
        for hand in 0..WORKER_THREADS {
            let (taken, file) = (taken.clone(), file.try_clone()?);
            let rng = Rng::new(args.seed.wrapping_add(hand as u64));
            let long_ms = args.long_ms;
            thread::spawn(move || {
                let (mut file, mut rng) = (file, rng);
                loop {
                    let next = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((job, reporter)) = next else { return };
                    let command = work(&job, &mut file, long_ms, &mut rng);
                    reporter.report(&job, command);
                }
            });
        }
        Ok(WorkerThreads { jobs })
    }
}

impl Worker for WorkerThreads {
    fn start(&mut self, job: Assignment, reporter: &Reporter) {
        let _ = self.jobs.send((job, reporter.clone()));
    }
}

/// Leaves a mark, takes its time, and succeeds most of the time.
fn work(job: &Assignment, file: &mut File, long_ms: u64, rng: &mut Rng) -> Command {
    let claim = &job.claimed.claim;
    let kind = match claim.target {
        Target::Step(_) => "step",
        Target::Undo(_) => "undo",
    };
    let mark = format!(
        "{} {kind} {} {}\n",
        job.run_id, job.claimed.step_id, claim.execution
    );
    // One write of one line to a file that is only appended to: lines of other processes stay whole.
    let written = file.write_all(mark.as_bytes());
    thread::sleep(Duration::from_micros(rng.below(4_000)));
    if long_ms > 0 && rng.one_in(10) {
        thread::sleep(Duration::from_millis(rng.below(long_ms)));
    }
    let claim = claim.clone();
    let doomed = served_by(&job.plan, claim.target).1 == DOOMED;
    if written.is_err() || doomed || rng.one_in(20) {
        let class = match doomed {
            true => ErrorClass::Validation,
            false => ErrorClass::Transient,
        };
        return Command::FailStep {
            claim,
            error: StepError::new(class, "UNLUCKY", "it did not work out"),
            retryable: None,
            delay_ms: None,
            ctx: Default::default(),
        };
    }
    Command::CompleteStep {
        claim,
        output: serde_json::json!({ "ok": true }),
        ctx: Patch::new(),
        artifacts: Vec::new(),
    }
}
