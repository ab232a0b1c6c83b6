//! `stepwell run`: runs a definition to its end. In this build only on the mock engine: the real
//! kernel and log in memory, with pretended work.

mod catalog;
mod clock;
mod follow;
mod input;
mod lines;
mod report;
mod rules;
mod tree;
mod view;
mod wire;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use stepwell_dialects::words::quote;
use stepwell_engine::StartRequest;
use stepwell_engine::engine::{Engine, engine_actor};
use stepwell_engine::keeper::Config;
use stepwell_engine::mock::{FailRule, Mock};
use stepwell_engine::port::Clock as _;
use stepwell_engine::store::MemoryStore;
use stepwell_kernel::command::Command;
use stepwell_kernel::event::{Patch, RunContext};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::State;

use crate::definition::Definition;
use crate::exit::Exit;
use crate::{term, usage};
use catalog::Files;
use clock::RunClock;
use report::End;
use view::View;

/// An engine as this command builds it.
type RunEngine = Engine<RunClock>;

/// How long a real-time run sleeps at most before it looks up: for Ctrl-C and for the tree.
const NAP: Duration = Duration::from_millis(50);

/// Run a definition to its end
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell run order.yaml --engine mock --virtual-time
  stepwell run order.yaml --engine mock --input customer.id=42 --input express=true
  stepwell run order.yaml --engine mock --fail charge-card=external    fails for good
  stepwell run order.yaml --engine mock --fail charge-card@1           only the first attempt
  stepwell run order.yaml --engine mock --fail ship~undo               its undo fails
  stepwell run order.yaml --engine mock --virtual-time --events > log.jsonl

The mock engine runs the real kernel and log in memory and pretends the work: steps succeed
with an empty result unless --fail says otherwise, people approve, events come, after a second.

Classes of --fail: timeout, rate_limit, transient, transport, validation, policy, auth, conflict,
agent, external, governance, lease_lost, expression, rejected, cancelled, unknown (the default),
and crash: the worker dies. STEP is a name, or one visit or item of it: `fetch#2`, `load[3]`.

Exit codes: 0 the run succeeded (or partially), 1 the definition has errors, 2 wrong usage,
3 the run failed, 4 the run was cancelled, 5 the run did not end and cannot go on by itself,
130 interrupted.")]
pub(crate) struct RunArgs {
    /// The definition; `-` reads standard input
    #[arg(value_name = "FILE")]
    file: String,
    /// Which engine runs it; this build has `mock`
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// A parameter; VALUE is JSON if it can be read as such, dots in KEY nest
    #[arg(short, long, value_name = "KEY=VALUE")]
    input: Vec<String>,
    /// Parameters from a YAML or JSON file; `--input` goes over them
    #[arg(long, value_name = "FILE")]
    input_file: Option<PathBuf>,
    /// Make a step fail, or with `STEP~undo` its undo; CLASS is one of those below
    #[arg(long, value_name = "STEP[=CLASS][@ATTEMPT]")]
    fail: Vec<String>,
    /// Do not wait: jump to when something happens next, from 2026-01-01T00:00:00Z
    #[arg(long)]
    virtual_time: bool,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Human)]
    output: Output,
    /// Print the log as JSON lines instead
    #[arg(long)]
    events: bool,
    /// The run's id
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// How long pretended work takes, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 0)]
    work_ms: u64,
    /// Approve the run, where the definition asks for that
    #[arg(long)]
    approve: bool,
    /// Set a key of the run's ctx, as an operator would, once the run is stalled
    #[arg(long, value_name = "KEY=VALUE")]
    patch: Vec<String>,
    /// Give up after this many events: pretended results can make a workflow go round for ever
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    max_events: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people: a live tree on a terminal, else one line per change
    Human,
    /// The run as it is at the end, for programs
    Json,
}

pub(crate) fn run(args: &RunArgs) -> Result<Exit> {
    check_usage(args)?;
    let definition = Definition::open(&args.file);
    let problems = definition.render(term::stderr_paint());
    io::stderr().write_all(problems.as_bytes())?;
    let Some(plan) = definition.into_plan().map(Arc::new) else {
        return Ok(Exit::Problems);
    };
    let params = input::params(args.input_file.as_deref(), &args.input)?;
    let patch = input::patch(&args.patch)?;
    let catalog = Files::default();
    let rules = rules::read(&args.fail, &plan, &catalog)?;
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
    let mut mock = mock(args, catalog, rules)?;
    let stop = interrupts()?;
    start(&mut mock, &plan, request, args.approve)?;
    let mut view = view(args, &run_id);
    let end = drive(&mut mock, &run_id, &mut view, args, patch, &stop)?;
    view.finish(&mock.engine)?;
    let notes: Vec<String> = mock.notes.drain(..).collect();
    let Some(live) = mock.engine.run(&run_id) else {
        anyhow::bail!("the run {run_id} has vanished");
    };
    if args.output == Output::Json {
        let events = mock.engine.events(&run_id, 0)?;
        let snapshot = wire::snapshot(&plan, &live.state, &events, &end, &notes)?;
        term::print(&format!("{}\n", serde_json::to_string_pretty(&snapshot)?))?;
    } else if args.events {
        let text = report::summary(&plan, &live.state, &end, &notes, args, term::stderr_paint());
        io::stderr().write_all(text.as_bytes())?;
    } else {
        let text = report::summary(&plan, &live.state, &end, &notes, args, term::stdout_paint());
        term::print(&text)?;
    }
    Ok(report::exit(&live.state, &end))
}

fn check_usage(args: &RunArgs) -> Result<()> {
    let how = format!("stepwell run {} --engine mock --virtual-time", args.file);
    match args.engine.as_deref() {
        Some("mock") => {}
        Some(other) => {
            return usage(format!(
                "there is no engine {} in this build, only `mock`: {how}",
                quote(other)
            ));
        }
        None => {
            return usage(format!(
                "this build has only the mock engine, which pretends the work; say so: {how}"
            ));
        }
    }
    if args.events && args.output == Output::Json {
        return usage("--events and -o json both want standard output; choose one");
    }
    Ok(())
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

fn mock(args: &RunArgs, catalog: Files, rules: Vec<FailRule>) -> Result<Mock<RunClock>> {
    let clock = RunClock::new(args.virtual_time);
    let config = Config {
        // Nobody else can have a run that is in this process's memory.
        session_ms: u64::MAX / 4,
        ..Config::default()
    };
    // Completion tokens never leave this process, so the secret need only be the same each time.
    let store = match args.virtual_time {
        true => MemoryStore::with_secret([7; 32]),
        false => MemoryStore::default(),
    };
    let engine = Engine::new(Arc::new(store), clock, catalog, config)?;
    let mut mock = Mock::new(engine)?;
    mock.rules = rules;
    mock.work_ms = args.work_ms;
    Ok(mock)
}

fn start(
    mock: &mut Mock<RunClock>,
    plan: &Arc<Plan>,
    request: StartRequest,
    approve: bool,
) -> Result<()> {
    let run_id = request.run_id.clone();
    mock.engine
        .trigger(plan, request)
        .context("the run cannot be started")?;
    if approve && plan.policy().needs_approval {
        let actor = engine_actor();
        mock.engine
            .submit(&run_id, Command::ApproveRun { actor })
            .context("the run cannot be approved")?;
        mock.engine.dequeue_and_start()?;
    }
    Ok(())
}

fn interrupts() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::SeqCst))
        .context("cannot listen for Ctrl-C")?;
    Ok(stop)
}

fn view(args: &RunArgs, run_id: &str) -> View {
    match args.output {
        Output::Json => View::Quiet,
        Output::Human if args.events => View::events(),
        Output::Human if term::is_live() => View::tree(run_id),
        Output::Human => View::lines(run_id),
    }
}

/// Lets things happen until the run has ended or nothing more can happen.
fn drive(
    mock: &mut Mock<RunClock>,
    run_id: &str,
    view: &mut View,
    args: &RunArgs,
    mut patch: Patch,
    stop: &AtomicBool,
) -> Result<End> {
    view.changed(&mock.engine)?;
    for round in 0_u64.. {
        if stop.load(Ordering::SeqCst) {
            return Ok(End::Interrupted);
        }
        if is(mock, run_id, |state| state.phase.is_ended()) {
            break;
        }
        if round.is_multiple_of(256) && events(&mock.engine) > args.max_events {
            return Ok(End::GaveUp(args.max_events));
        }
        // Before anything is done: see `Mock::step`.
        let now = mock.engine.now();
        if mock.act()? {
            view.changed(&mock.engine)?;
            continue;
        }
        // Only someone who changes ctx can revive it; nobody else can reach a run in memory.
        if is(mock, run_id, |state| state.stalled.is_some()) {
            let ctx = std::mem::take(&mut patch);
            if ctx.is_empty() {
                break;
            }
            let actor = engine_actor();
            mock.engine
                .submit(run_id, Command::PatchCtx { actor, ctx })
                .context("--patch was refused")?;
            continue;
        }
        match mock.due().filter(|due| *due > now) {
            None => break,
            Some(due) if args.virtual_time => mock.engine.clock().wait_until(due),
            Some(due) => {
                view.waiting(&mock.engine)?;
                let wait = Duration::from_millis(due.since(mock.engine.now()));
                std::thread::sleep(wait.min(NAP));
            }
        }
    }
    Ok(End::Over)
}

/// Whether the run is so; one that is not there is over.
fn is(mock: &Mock<RunClock>, run_id: &str, what: fn(&State) -> bool) -> bool {
    let live = mock.engine.run(run_id);
    live.is_none_or(|live| what(&live.state))
}

fn events(engine: &RunEngine) -> u64 {
    engine.runs().iter().map(|(_, live)| live.state.seq).sum()
}
