//! `stepwell run` and `stepwell resume`: run a definition to its end, or go on with a run that is in
//! the store. The runs are kept as they go, so that whatever ends this process ends no run.

mod clock;
mod engine_kind;
mod follow;
mod input;
mod lines;
mod local_engine;
pub(crate) mod phrases;
pub(crate) mod report;
mod resume;
mod rules;
mod supervise;
pub(crate) mod tree;
mod view;
pub(crate) mod wire;

use std::collections::HashSet;
use std::io::{self, Write};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use stepwell_engine::StartRequest;
use stepwell_engine::engine::engine_actor;
use stepwell_engine::read;
use stepwell_engine::store::{MemoryStore, Store};
use stepwell_kernel::command::Command;
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::Plan;
use stepwell_stores::{Address, OpenMode};

use crate::definition::{self, Definition};
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::run_view::{ChildRuns, RunView};
use crate::runs::logs;
use crate::sink::{SinkArgs, SinkPublishers};
use crate::store::{StoreArgs, word};
use crate::work::DataArgs;
use crate::{outbox, term, usage};
use engine_kind::EngineKind;
use follow::{Followed, Follower};
use local_engine::LocalEngine;
use report::Ending;
use resume::Watermarks;
use stepwell::files::Files;
use supervise::Supervisor;
pub(crate) use supervise::interrupts;
use tree::Live;
use view::View;

/// How long running steps may take to end after an interrupt.
const PATIENCE: Duration = Duration::from_secs(10);

/// The default limit of events for simulated work.
const PRETENDED_EVENTS: u64 = 500_000;

/// How long the sinks have for pending deliveries: at the end of the run, and after an interrupt.
const EMPTYING: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(1));

/// Run a definition to its end
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell run order.yaml
  stepwell run order.yaml --resume                                     continue the latest open run
  stepwell run order.yaml --input customer.id=42 --input express=true
  stepwell run order.yaml --store postgresql://me@db/stepwell --parallel 64
  stepwell run order.yaml --events > log.jsonl
  stepwell run order.yaml --sink hook=webhook:https://example.com/events
  stepwell run order.yaml --engine mock --virtual-time                 simulate the work, skip waiting times
  stepwell run order.yaml --engine mock --fail charge-card=external    a step fails in every attempt
  stepwell run order.yaml --engine mock --fail charge-card@1           a step fails in its first attempt
  stepwell run order.yaml --engine mock --fail ship~undo               the undo of a step fails

Every step of the run is recorded in the store (see --store). After Ctrl-C no new step starts, the
command waits up to 10 seconds for running steps, and then prints the command that continues the
run; a second Ctrl-C stops immediately. After a crash, --resume continues the latest open run of
the same definition: completed steps stay completed, and steps in flight are executed again if
their retry policy allows it. Other runs of the store are not executed; only their messages and
expired leases are handled, and on SQLite their timers.

Steps with a tool (docs/tools lists the tools) are executed by this process. STEPWELL_PYTHON sets
the Python interpreter or virtual environment, STEPWELL_DUCKDB the program duckdb,
STEPWELL_SECRETS the secret providers (docs/secrets.md). A step without a tool needs a program
with a handler for its operation (docs/handlers.md); such a definition is refused here. The
output of steps is shown and stored: `stepwell runs logs RUN STEP`.

The mock engine uses the real kernel and log and simulates the work: steps succeed with an empty
result unless --fail makes them fail; people approve and events arrive after one second.

With --sink every event is also delivered to a webhook, at least once and in order. At the end of the
run there are 5 seconds for pending deliveries; the rest is kept and reported (`stepwell outbox
--help`).

Classes of --fail: timeout, rate_limit, transient, transport, validation, policy, auth, conflict,
agent, external, governance, lease_lost, expression, rejected, cancelled, unknown (the default),
and crash: the worker crashes. STEP is the name of a step, or one visit or item: `fetch#2`, `load[3]`.

Exit codes: 0 the run succeeded (or partially), 1 the definition has errors or the store cannot
be used, 2 wrong usage, 3 the run failed, 4 the run was cancelled, 5 the run did not end and needs
a person, an event or a worker, 130 interrupted.")]
pub(crate) struct RunArgs {
    /// File with the definition; `-` reads standard input
    #[arg(value_name = "FILE")]
    file: String,
    /// Parameter of the run; VALUE is JSON if it is valid JSON, else text; dots in KEY make nested keys
    #[arg(short, long, value_name = "KEY=VALUE")]
    input: Vec<String>,
    /// YAML or JSON file with parameters; `--input` has priority
    #[arg(long, value_name = "FILE")]
    input_file: Option<PathBuf>,
    /// Skip waiting times: use a virtual clock from 2026-01-01T00:00:00Z and a memory store
    #[arg(long)]
    virtual_time: bool,
    /// Continue the latest open run of this definition, or the run of --run-id
    #[arg(long, conflicts_with_all = ["virtual_time", "input", "input_file"])]
    resume: bool,
    /// Id of the new run
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    #[command(flatten)]
    go: GoArgs,
}

/// Continue a run of the store
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell resume run_0199f3a2-...
  stepwell resume run_0199f3a2-... --store postgresql://me@db/stepwell
  stepwell resume run_0199f3a2-... --patch approved=true     continue a stalled run

The definition is in the store, so its file is not needed. The definitions of child runs that have
not started yet are searched near the original file. On PostgreSQL a run of a killed process can
be resumed after 5 seconds.

A paused run stays paused until `stepwell runs resume RUN`.

Exit codes: as `stepwell run`.")]
pub(crate) struct ResumeArgs {
    /// Run id; `stepwell runs list --open` lists the open runs
    #[arg(value_name = "RUN")]
    run: String,
    #[command(flatten)]
    go: GoArgs,
}

/// Options of `run` and `resume`.
#[derive(Debug, Args)]
struct GoArgs {
    /// Worker: `native` (the tools of this process) or `mock` (simulated work)
    #[arg(long, value_name = "ENGINE", default_value = "native")]
    engine: String,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    sinks: SinkArgs,
    /// Maximum number of concurrent steps
    #[arg(long, value_name = "N", default_value = "32")]
    parallel: NonZeroU16,
    /// Make a step fail, or its undo with `STEP~undo`; `run --help` lists the classes
    #[arg(long, value_name = "STEP[=CLASS][@ATTEMPT]")]
    fail: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    /// Print the event log as JSON lines
    #[arg(long)]
    events: bool,
    /// Duration of simulated work in milliseconds
    #[arg(long, value_name = "N", default_value_t = 0)]
    work_ms: u64,
    /// Approve the run if the definition requires an approval
    #[arg(long)]
    approve: bool,
    /// Set a key of ctx as an operator when the run is stalled
    #[arg(long, value_name = "KEY=VALUE")]
    patch: Vec<String>,
    /// Stop after this many events: simulated results can make a workflow repeat without end
    /// [default: 500000 with --engine mock, else none]
    #[arg(long, value_name = "N")]
    max_events: Option<u64>,
}

/// A store that was opened for a run.
struct RunStore {
    store: Arc<dyn Store>,
    is_virtual: bool,
    /// Whether the data is kept after the end of this process.
    durable: bool,
    address: Address,
}

pub(crate) fn run(args: &RunArgs) -> Result<Exit> {
    let kind = check_usage(&args.go)?;
    let address = address(args)?;
    let definition = Definition::open(&args.file);
    let problems = definition::problems(&definition, term::stderr_paint());
    io::stderr().write_all(problems.as_bytes())?;
    if args.go.output == OutputFormat::Json {
        definition::tell_program(&definition);
    }
    let Ok(plan) = definition.into_plan().map(Arc::new) else {
        return Ok(Exit::Problems);
    };
    let how = || format!("stepwell run {}", word(&args.file));
    engine_kind::must_have_workers(kind, &plan, how)?;
    let params = input::params(args.input_file.as_deref(), &args.input)?;
    rules::read(&args.go.fail, &plan, &Files::default())?;
    let place = open(&address, args.virtual_time)?;
    if args.resume {
        let found = match &args.run_id {
            Some(run_id) => RunView::read(&*place.store, run_id)?,
            None => resume::latest(&*place.store, &plan, &args.go.store)?,
        };
        return go_on(&args.go, kind, &place, found);
    }
    let run_id = match &args.run_id {
        Some(id) => id.clone(),
        None if args.virtual_time => format!("run_{}", &plan.net().source.sha256[..32]),
        None => format!("run_{}", uuid::Uuid::now_v7()),
    };
    let request = StartRequest {
        run_id: run_id.clone(),
        params,
        context: context(),
        ..StartRequest::default()
    };
    let engine = engine(&args.go, kind, &plan, &place, HashSet::new())?;
    let started = engine.handle.start(&plan, request);
    started.context("the run cannot be started")?;
    finish(&args.go, &run_id, engine, Watermarks::new(), &place)
}

pub(crate) fn resume(args: &ResumeArgs) -> Result<Exit> {
    let kind = check_usage(&args.go)?;
    let place = RunStore {
        store: args.go.store.own_existing()?,
        is_virtual: false,
        durable: true,
        address: args.go.store.address()?,
    };
    let found = RunView::read(&*place.store, &args.run)?;
    let how = || format!("stepwell resume {}", word(&args.run));
    engine_kind::must_have_workers(kind, &found.plan, how)?;
    go_on(&args.go, kind, &place, found)
}

/// Goes on with a run that is in the store.
fn go_on(args: &GoArgs, kind: EngineKind, place: &RunStore, found: RunView) -> Result<Exit> {
    let (plan, run_id) = (found.plan.clone(), found.state.run_id().to_owned());
    if found.state.phase().is_ended() {
        show_end(args, place, &found)?;
        return Ok(report::exit(&found.state, &report::End::Over));
    }
    resume::wait_for_owner(&*place.store, &found)?;
    let below = ChildRuns::read(&*place.store, &found)?;
    let known = resume::watermarks(&found, &below);
    let ids = below.ids.iter().cloned().chain([run_id.clone()]);
    let engine = engine(args, kind, &plan, place, ids.collect())?;
    resume::take_over(&engine.handle, &run_id, &below)?;
    finish(args, &run_id, engine, known, place)
}

/// Watches a run that is under way, gives it back if it has not ended, and shows its end.
fn finish(
    args: &GoArgs,
    run_id: &str,
    mut engine: LocalEngine,
    known: Watermarks,
    place: &RunStore,
) -> Result<Exit> {
    let outlet = match args.sinks.is_empty() {
        true => None,
        false => Some(args.sinks.publish(&place.store)?),
    };
    // Before any output: a user who sees the run may interrupt it.
    let interrupted = interrupts()?;
    let mut follower = Follower::new(place.store.clone(), run_id)?;
    let mut view = view(args, run_id, known);
    approve(args, &mut follower, &mut view, &engine)?;
    let supervisor = Supervisor {
        engine: &mut engine,
        follower: &mut follower,
        view: &mut view,
        durable: place.durable,
        shared: place.store.is_shared(),
        max_events: args.max_events.unwrap_or(match args.engine.as_str() {
            "mock" => PRETENDED_EVENTS,
            _ => u64::MAX,
        }),
        patch: input::patch(&args.patch)?,
        stop: interrupted,
        outbox: outlet.as_ref().map(SinkPublishers::notify),
        ready: false,
        idle: None,
        failing: None,
    };
    let supervised = supervisor.run();
    let stopped = stop(&mut engine, &supervised);
    let end = supervised?;
    stopped?;
    while let Some(entry) = engine.said() {
        view.say(entry);
    }
    follower.follow_all(&mut view)?;
    view.finish(&follower, engine.clock.now())?;
    let mut notes = engine.notes();
    if let Some(outlet) = outlet {
        let patience = match end {
            report::End::Interrupted => EMPTYING.1,
            report::End::Over | report::End::GaveUp(_) => EMPTYING.0,
        };
        let left = outlet.empty(patience, &AtomicBool::new(false))?;
        notes.extend(outbox::left(&left, &args.store, place.durable));
    }
    let ending = Ending {
        end,
        notes,
        is_virtual: place.is_virtual,
        go_on: place.durable.then(|| command(args, run_id)),
        kept: place.durable.then(|| args.store.flag()),
        tail: None,
        only_shown: false,
    };
    show_result(args, place, &follower, ending)
}

/// Shows how a run ended, and says with which exit code.
fn show_result(
    args: &GoArgs,
    place: &RunStore,
    follower: &Follower,
    mut ending: Ending,
) -> Result<Exit> {
    let root = follower.root()?;
    if args.output == OutputFormat::Json {
        let events = read::events(&*place.store, root.state.run_id(), 0)?;
        let snapshot = wire::snapshot(&root.plan, &root.state, &events, &ending)?;
        term::print(&format!("{}\n", serde_json::to_string_pretty(&snapshot)?))?;
    } else {
        let below = follower.live();
        ending.tail = tail(args, root.live(), &below);
        let say = |paint| report::summary(root.live(), &below, &ending, paint);
        match args.events {
            true => io::stderr().write_all(say(term::stderr_paint()).as_bytes())?,
            false => term::print(&say(term::stdout_paint()))?,
        }
    }
    Ok(report::exit(&root.state, &ending.end))
}

/// Stops the engine. Steps that still run have time to end if a person has interrupted the run;
/// otherwise they are told to end.
fn stop(engine: &mut LocalEngine, supervised: &Result<report::End>) -> Result<()> {
    let patience = match (supervised, engine.busy()) {
        (Ok(report::End::Interrupted), busy) if busy > 0 => {
            let steps = if busy == 1 {
                "a step ends"
            } else {
                "steps end"
            };
            let seconds = PATIENCE.as_secs();
            writeln!(
                io::stderr(),
                "waiting up to {seconds} s until {steps}; press Ctrl-C again to stop immediately"
            )?;
            PATIENCE
        }
        _ => Duration::ZERO,
    };
    // Whatever happened: a process that comes next need not wait until this session has expired.
    Ok(engine.stop(patience)?)
}

/// A run that had ended before it was asked to go on.
fn show_end(args: &GoArgs, place: &RunStore, found: &RunView) -> Result<()> {
    let mut ending = Ending {
        kept: place.durable.then(|| args.store.flag()),
        ..Ending::default()
    };
    let text = if args.output == OutputFormat::Json {
        let snapshot = wire::snapshot(&found.plan, &found.state, &found.events, &ending)?;
        format!("{}\n", serde_json::to_string_pretty(&snapshot)?)
    } else {
        let below = ChildRuns::read(&*place.store, found)?;
        let below: Vec<Live<'_>> = below.views.iter().map(RunView::live).collect();
        ending.tail = tail(args, found.live(), &below);
        report::summary(found.live(), &below, &ending, term::stdout_paint())
    };
    Ok(term::print(&text)?)
}

/// The end of the log of the step that made a run fail.
fn tail(args: &GoArgs, top: Live<'_>, below: &[Live<'_>]) -> Option<Vec<String>> {
    let failing = report::failing(top, below)?;
    logs::tail(&*logs::open(&args.store, &args.data).ok()?, &failing)
}

fn check_usage(args: &GoArgs) -> Result<EngineKind> {
    if args.events && args.output == OutputFormat::Json {
        return usage("--events and -o json both use standard output; choose one of them");
    }
    args.sinks.check()?;
    let kind = engine_kind::kind(&args.engine)?;
    let pretends = !args.fail.is_empty() || args.work_ms > 0;
    if kind == EngineKind::Native && pretends {
        return usage(
            "--fail and --work-ms need --engine mock, because they control simulated work",
        );
    }
    Ok(kind)
}

fn address(args: &RunArgs) -> Result<Address> {
    if !args.virtual_time {
        return Ok(args.go.store.address()?);
    }
    if !args.go.sinks.is_empty() {
        return usage(
            "--virtual-time jumps through time, and sinks are told of what happens in the real one; \
             leave out one of --virtual-time and --sink",
        );
    }
    match args.go.store.named() {
        None => Ok(Address::Memory),
        Some(named) if Address::parse(named)? == Address::Memory => Ok(Address::Memory),
        Some(_) => usage(
            "--virtual-time jumps through time, and what a store keeps must have the real one; leave \
             out one of --virtual-time and --store",
        ),
    }
}

fn open(address: &Address, is_virtual: bool) -> Result<RunStore> {
    let store: Arc<dyn Store> = match is_virtual {
        // Completion tokens never leave this process, so the secret need only be the same each time.
        true => Arc::new(MemoryStore::with_secret([7; 32])),
        false => address.open(OpenMode::Own)?,
    };
    Ok(RunStore {
        store,
        is_virtual,
        durable: *address != Address::Memory,
        address: address.clone(),
    })
}

fn context() -> RunContext {
    RunContext {
        tenant_id: "local".into(),
        project_id: "local".into(),
        environment_id: "local".into(),
        triggered_by: Some("cli".into()),
        trigger_source: Some("manual".into()),
    }
}

fn engine(
    args: &GoArgs,
    kind: EngineKind,
    plan: &Arc<Plan>,
    place: &RunStore,
    only: HashSet<String>,
) -> Result<LocalEngine> {
    let rules = rules::read(&args.fail, plan, &Files::default())?;
    LocalEngine::start(args, kind, rules, place, only)
}

/// Approves the run where that was asked for, and lets a run that is approved start.
fn approve(
    args: &GoArgs,
    follower: &mut Follower,
    view: &mut View,
    engine: &LocalEngine,
) -> Result<()> {
    follower.follow_all(view)?;
    let waits = |run: &Followed| run.plan.policy().needs_approval && !run.state.approved();
    let root = follower.root()?;
    if args.approve && waits(root) {
        let actor = engine_actor();
        engine
            .handle
            .submit(root.state.run_id(), Command::ApproveRun { actor })
            .context("the run cannot be approved")?;
    }
    engine.handle.look();
    Ok(())
}

/// The command that goes on with a run.
fn command(args: &GoArgs, run_id: &str) -> String {
    let mut text = format!("stepwell resume {}", word(run_id));
    if args.engine != "native" {
        text.push_str(&format!(" --engine {}", args.engine));
    }
    text.push_str(&args.store.flag());
    text.push_str(&args.data.flag());
    text.push_str(&args.sinks.flags());
    if args.work_ms > 0 {
        text.push_str(&format!(" --work-ms {}", args.work_ms));
    }
    for rule in &args.fail {
        text.push_str(&format!(" --fail {}", word(rule)));
    }
    text
}

fn view(args: &GoArgs, run_id: &str, known: Watermarks) -> View {
    match args.output {
        OutputFormat::Json => View::quiet(),
        OutputFormat::Human if args.events => View::events(known),
        OutputFormat::Human if term::is_live() => View::tree(),
        OutputFormat::Human => View::lines(run_id, known),
    }
}
