//! `stepwell run` and `stepwell resume`: run a definition to its end, or go on with a run that is in
//! the store. The runs are kept as they go, so that whatever ends this process ends no run.

mod args;
mod clock;
mod engine_kind;
mod follow;
mod idle;
pub(crate) mod input;
mod lines;
mod local_engine;
mod on_server;
pub(crate) mod report;
mod resume;
mod rules;
mod server_follow;
mod start_options;
mod supervise;
pub(crate) mod tree;
mod view;

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result};
use stepwell_engine::read::RunSource;
use stepwell_engine::store::{MemoryStore, Patience, Store, StoreError};
use stepwell_engine::{AskedDefinition, Error, StartRequest, check_repeated, run_id_of_request};
use stepwell_kernel::command::{Actor, Command};
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::Code;
use stepwell_stores::{Address, OpenMode};

use crate::actor;
use crate::definition::{self, Definition};
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::place::Place;
use crate::runs::logs;
use crate::sink::SinkPublishers;
use crate::store::{OpenStore, StoreArgs, word};
use crate::work::{Data, DataArgs};
use crate::{log, outbox, term, usage, work};
use args::GoArgs;
pub(crate) use args::{ResumeArgs, RunArgs};
use engine_kind::EngineKind;
pub(crate) use engine_kind::must_be_built;
use follow::{Followed, Follower};
use local_engine::{LocalEngine, SESSION_MS};
use report::Ending;
use resume::Watermarks;
pub(crate) use start_options::label_pairs;
use stepwell::files::{FetchedDefinition, Files};
use stepwell::settings::Settings;
use stepwell_views::stuck::End;
use stepwell_views::{ChildRuns, RunView};
use stepwell_views::{may_see, snapshot};
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

/// A store that was opened for a run.
struct RunStore {
    open: OpenStore,
    /// The store for this command, which waits until it answers.
    store: Arc<dyn Store>,
    is_virtual: bool,
    /// Whether the data is kept after the end of this process.
    durable: bool,
    address: Address,
    data: OnceLock<Data>,
}

pub(crate) fn run(args: &RunArgs) -> Result<Exit> {
    if let Place::Server(server) = args.go.store.place(&args.go.actor)? {
        return on_server::run(args, &server);
    }
    let kind = check_usage(&args.go)?;
    let who = who(&args.go, "starting a run")?;
    args.start.check()?;
    let address = address(args)?;
    if let EngineKind::Outside(engine) = kind
        && address == Address::Memory
    {
        return usage(format!(
            "a run on the engine `{engine}` outlives this process, and a memory store and --virtual-time do not; name a store \
             with --store"
        ));
    }
    let params = input::params(args.input_file.as_deref(), &args.input)?;
    let FetchedDefinition {
        mut definition,
        changed,
    } = definition_of(args)?;
    if changed.is_none() {
        definition.look_at_input(&params);
    }
    definition.look_at_engine(kind.name());
    let problems = definition::problems(&definition, term::stderr_paint());
    io::stderr().write_all(problems.as_bytes())?;
    if args.go.output == OutputFormat::Json {
        definition::tell_program(&definition);
    }
    let Ok(plan) = definition.into_plan().map(Arc::new) else {
        return Ok(Exit::Problems);
    };
    let how = || match (&args.file, &args.plan_ref) {
        (Some(file), _) => format!("stepwell run {}", word(file)),
        (None, reference) => {
            let reference = reference.as_deref().unwrap_or_default();
            format!("stepwell run --plan-ref {}", word(reference))
        }
    };
    engine_kind::must_have_workers(kind, &plan, how)?;
    rules::read(&args.go.fail, &plan, &Files::default())?;
    if args.idle.idle {
        idle::check(args, &plan, &params, address != Address::Memory)?;
    }
    let place = open(args.go.store.store(), &address, args.virtual_time)?;
    if args.idle.idle {
        return idle::wait(args, &who, kind, &plan, params, &place);
    }
    if args.resume {
        let found = match &args.run_id {
            Some(run_id) => RunView::read(&*place.store, run_id)?,
            None => resume::latest(
                &*place.store,
                &plan,
                args.go.store.store(),
                who.tenant.clone(),
            )?,
        };
        return go_on(&args.go, &who, kind, &place, found);
    }
    idle::note_trigger(args, &plan);
    let context = RunContext {
        priority: args.start.priority,
        labels: args.start.labels()?,
        ..actor::context_of(&who)
    };
    let run_id = match (&args.run_id, &args.start.request_id) {
        (Some(id), _) => id.clone(),
        // Known before the run is started, so that a second request finds the run where a new one would be refused.
        (None, Some(request_id)) => run_id_of_request(&plan, &context, request_id),
        (None, None) if args.virtual_time => format!("run_{}", &plan.net().source.sha256[..32]),
        (None, None) => format!("run_{}", uuid::Uuid::now_v7()),
    };
    let mut request = StartRequest {
        run_id: run_id.clone(),
        request_id: args.start.request_id.clone(),
        params,
        context,
        ..StartRequest::default()
    };
    let is_same = |first: &str, request: &StartRequest| {
        check_repeated(&*place.store, first, &plan, AskedDefinition::Fixed, request)
            .context("the run cannot be started")
    };
    if args.start.request_id.is_some() && place.store.find(&run_id)?.is_some() {
        is_same(&run_id, &request)?;
        return again(args, &who, kind, &place, &run_id);
    }
    if kind != EngineKind::Mock {
        let artifacts = place.data(&args.go.data)?.artifacts;
        request.params = work::store_large(&artifacts, &run_id, &plan, request.params)?;
    }
    let engine = engine(&args.go, kind, &plan, &place, HashSet::new())?;
    // A run that fails before it starts does so now.
    request.start_after = match changed {
        Some(_) => None,
        None => args.start.start_at(engine.clock.now())?,
    };
    request.fetched_sha256 = changed;
    let started = start(&args.go, &engine, &plan, request.clone(), &place)?;
    if started != run_id {
        is_same(&started, &request)?;
        // Another process, or a run with an id of its own, was started with this request id.
        let mut engine = engine;
        engine.stop(Duration::ZERO, &AtomicBool::new(true))?;
        return again(args, &who, kind, &place, &started);
    }
    finish(&args.go, &who, &run_id, engine, Watermarks::new(), &place)
}

/// The definition of a file, or of a reference.
fn definition_of(args: &RunArgs) -> Result<FetchedDefinition> {
    let Some(path) = &args.plan_ref else {
        let path = args.file.as_deref().unwrap_or_default();
        return Ok(FetchedDefinition {
            definition: Definition::open(path),
            changed: None,
        });
    };
    let settings = Settings::open(args.go.config.path())?;
    Ok(FetchedDefinition::of_file(path, &settings))
}

/// Goes on with the run that was started with this request id before.
fn again(
    args: &RunArgs,
    who: &Actor,
    kind: EngineKind,
    place: &RunStore,
    run_id: &str,
) -> Result<Exit> {
    let request_id = args.start.request_id.as_deref().unwrap_or_default();
    log::line(&format!(
        "{run_id} was started with the request id {} before; no other run is started",
        word(request_id)
    ));
    go_on(
        &args.go,
        who,
        kind,
        place,
        RunView::read(&*place.store, run_id)?,
    )
}

pub(crate) fn resume(args: &ResumeArgs) -> Result<Exit> {
    if let Place::Server(server) = args.go.store.place(&args.go.actor)? {
        return on_server::resume(args, &server);
    }
    let kind = check_usage(&args.go)?;
    let who = who(&args.go, "continuing a run")?;
    let store = args.go.store.store();
    let place = RunStore::new(store.own_existing()?, store.address()?);
    let found = RunView::read(&*place.store, &args.run)?;
    let how = || format!("stepwell resume {}", word(&args.run));
    engine_kind::may_run(kind.name(), &found.plan)?;
    engine_kind::must_have_workers(kind, &found.plan, how)?;
    go_on(&args.go, &who, kind, &place, found)
}

/// Goes on with a run that is in the store.
fn go_on(
    args: &GoArgs,
    who: &Actor,
    kind: EngineKind,
    place: &RunStore,
    found: RunView,
) -> Result<Exit> {
    may_see(who, found.state.context())?;
    let (plan, run_id) = (found.plan.clone(), found.state.run_id().to_owned());
    if found.state.phase().is_ended() {
        let kept = place.durable.then(|| args.store.flag());
        show_end(args, &*place.store, kept, &found)?;
        return Ok(report::exit(&found.state, &End::Over));
    }
    engine_kind::must_be_of(args, &found.state)?;
    resume::wait_for_owner(&*place.store, &found)?;
    let below = ChildRuns::read(&*place.store, &found)?;
    let known = resume::watermarks(&found, &below);
    let ids = below.ids.iter().cloned().chain([run_id.clone()]);
    let engine = engine(args, kind, &plan, place, ids.collect())?;
    resume::take_over(&engine.handle, &place.open.patience, &run_id, &below)?;
    // The events of a long run take much memory, and the engine and the view have read them by themselves.
    drop((found, below));
    finish(args, who, &run_id, engine, known, place)
}

/// Starts the run, and says which: that of an earlier request with the same id, if there is one. A store that does not
/// answer is waited for.
fn start(
    args: &GoArgs,
    engine: &LocalEngine,
    plan: &Arc<Plan>,
    request: StartRequest,
    place: &RunStore,
) -> Result<String> {
    let mut asked = 0;
    let started = place.open.patience.keep_engine(|| {
        asked += 1;
        match engine.handle.start(plan, request.clone()) {
            // The store took the first request and its answer was lost: nobody else knows the id.
            Err(Error::Rejected(why)) if why.code == Code::RunExists && asked > 1 => {
                Ok(request.run_id.clone())
            }
            answer => answer,
        }
    });
    let started = started.context("the run cannot be started");
    started.map_err(|error| how_to_go_on(error, args, &request.run_id, place))
}

/// Adds to an error of the store what continues the run.
fn how_to_go_on(
    error: anyhow::Error,
    args: &GoArgs,
    run_id: &str,
    place: &RunStore,
) -> anyhow::Error {
    let passes = |cause: &(dyn std::error::Error + 'static)| {
        let own = cause.downcast_ref::<StoreError>();
        let engine = cause.downcast_ref::<Error>();
        let passes = own.is_some_and(|it| it.kind.may_pass());
        passes || matches!(engine, Some(Error::Store(it)) if it.kind.may_pass())
    };
    match place.durable && error.chain().any(passes) {
        true => error.context(format!(
            "the store does not answer; everything that it has confirmed is kept; when it is back, continue with `{}`",
            args.resume_command(run_id)
        )),
        false => error,
    }
}

/// Watches a run that is under way, gives it back if it has not ended, and shows its end.
fn finish(
    args: &GoArgs,
    who: &Actor,
    run_id: &str,
    engine: LocalEngine,
    known: Watermarks,
    place: &RunStore,
) -> Result<Exit> {
    let ended = watch(args, who, run_id, engine, known, place);
    ended.map_err(|error| how_to_go_on(error, args, run_id, place))
}

fn watch(
    args: &GoArgs,
    who: &Actor,
    run_id: &str,
    mut engine: LocalEngine,
    known: Watermarks,
    place: &RunStore,
) -> Result<Exit> {
    let outlet = match place.is_virtual {
        true => None,
        false => Some(place.open.start(|store| args.sinks.publish_all(&store))?),
    };
    // Before any output: a user who sees the run may interrupt it.
    let go_on = place.durable.then(|| args.resume_command(run_id));
    let interrupted = interrupts(Some((Arc::clone(&place.open.patience), go_on)))?;
    let mut follower = Follower::new(place.store.clone(), run_id)?;
    let mut view = view(args, run_id, known);
    approve(
        args,
        who,
        &mut follower,
        &mut view,
        &engine,
        &place.open.patience,
    )?;
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
        actor: who,
        stop: Arc::clone(&interrupted.stop),
        outbox: outlet.as_ref().map(SinkPublishers::notify),
        patience: &place.open.patience,
        ready: false,
        idle: None,
    };
    let supervised = supervisor.run();
    let stopped = stop(&mut engine, &supervised, &interrupted.hurry);
    let end = supervised?;
    let unclosed = stopped?;
    while let Some(entry) = engine.said() {
        view.say(entry);
    }
    follower.follow_all(&mut view)?;
    view.finish(&follower, engine.clock.now())?;
    let mut notes = engine.notes();
    notes.extend(unclosed);
    if let Some(outlet) = outlet {
        let patience = match end {
            End::Interrupted => EMPTYING.1,
            End::Over | End::GaveUp(_) => EMPTYING.0,
        };
        let left = outlet.empty(&*place.store, patience, &AtomicBool::new(false))?;
        notes.extend(outbox::left(&left, args.store.store(), place.durable));
    }
    // A result that nobody finds again is no result.
    place.store.still_there()?;
    let ending = Ending {
        end,
        notes,
        is_virtual: place.is_virtual,
        go_on: place.durable.then(|| args.resume_command(run_id)),
        kept: place.durable.then(|| args.store.flag()),
        tail: None,
        only_shown: false,
    };
    show_result(args, &*place.store, &follower, ending)
}

/// Shows how a run ended, and says with which exit code.
fn show_result(
    args: &GoArgs,
    runs: &dyn RunSource,
    follower: &Follower,
    mut ending: Ending,
) -> Result<Exit> {
    let root = follower.root()?;
    if args.output == OutputFormat::Json {
        let snapshot = snapshot::snapshot(runs, root, ending.end, &ending.notes)?;
        term::print(&format!(
            "{}\n",
            serde_json::to_string_pretty(&serde_json::to_value(snapshot)?)?
        ))?;
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
/// otherwise they are told to end. Gives a note if the session could not be ended: that is no reason to call a run
/// failed whose end is recorded.
fn stop(
    engine: &mut LocalEngine,
    supervised: &Result<End>,
    hurry: &AtomicBool,
) -> Result<Option<String>> {
    let patience = match (supervised, engine.busy()) {
        (Ok(End::Interrupted), busy) if busy > 0 => {
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
        // What is still worked on belongs to other runs of the store: told to stop, it would have to be done twice.
        (Ok(_), busy) if busy > 0 && engine.shares_work() => {
            let steps = if busy == 1 { "a step" } else { "steps" };
            writeln!(
                io::stderr(),
                "the run has ended; waiting until {steps} of other runs of this store, which the engine gave to this process, end \
                 ({busy} now); press Ctrl-C twice to stop them: they are executed again elsewhere"
            )?;
            crate::outside_engine::GRACE_OF_COMMAND
        }
        _ => Duration::ZERO,
    };
    // Whatever happened: a process that comes next need not wait until this session has expired.
    match engine.stop(patience, hurry) {
        Err(error) if error.kind.may_pass() => Ok(Some(format!(
            "the session of this command could not be closed and ends by itself within {} s; until then no other \
             process takes over runs that this command has worked on: {error}",
            SESSION_MS.div_ceil(1_000)
        ))),
        stopped => Ok(stopped.map(|()| None)?),
    }
}

/// A run that had ended before it was asked to go on.
fn show_end(
    args: &GoArgs,
    runs: &dyn RunSource,
    kept: Option<String>,
    found: &RunView,
) -> Result<()> {
    let mut ending = Ending {
        kept,
        ..Ending::default()
    };
    let text = if args.output == OutputFormat::Json {
        let snapshot = snapshot::snapshot(runs, found, ending.end, &ending.notes)?;
        format!(
            "{}\n",
            serde_json::to_string_pretty(&serde_json::to_value(snapshot)?)?
        )
    } else {
        let below = ChildRuns::read(runs, found)?;
        let below: Vec<Live<'_>> = below.views.iter().map(Live::of).collect();
        ending.tail = tail(args, Live::of(found), &below);
        report::summary(Live::of(found), &below, &ending, term::stdout_paint())
    };
    Ok(term::print(&text)?)
}

/// The end of the log of the step that made a run fail.
fn tail(args: &GoArgs, top: Live<'_>, below: &[Live<'_>]) -> Option<Vec<String>> {
    let failing = report::failing(top, below)?;
    logs::tail(
        &*logs::open(&args.store, &args.actor, &args.data).ok()?,
        &failing,
    )
}

/// Who acts, if not only to read.
fn who(args: &GoArgs, what: &str) -> Result<Actor> {
    let who = args.actor.actor(args.config.path())?;
    actor::may_act(&who, what)?;
    Ok(who)
}

fn check_usage(args: &GoArgs) -> Result<EngineKind> {
    if args.events && args.output == OutputFormat::Json {
        return usage("--events and -o json both use standard output; choose one of them");
    }
    args.sinks.check()?;
    let kind = engine_kind::kind(&args.engine)?;
    let pretends = !args.fail.is_empty() || args.work_ms > 0;
    if kind != EngineKind::Mock && pretends {
        return usage(
            "--fail and --work-ms need --engine mock, because they control simulated work",
        );
    }
    Ok(kind)
}

fn address(args: &RunArgs) -> Result<Address> {
    if !args.virtual_time {
        return Ok(args.go.store.store().address()?);
    }
    if !args.go.sinks.is_empty() {
        return usage(
            "--virtual-time jumps through time, and sinks are told of what happens in the real one; \
             leave out one of --virtual-time and --sink",
        );
    }
    match args.go.store.store().named() {
        None => Ok(Address::Memory),
        Some(named) if Address::parse(named)? == Address::Memory => Ok(Address::Memory),
        Some(_) => usage(
            "--virtual-time jumps through time, and what a store keeps must have the real one; leave \
             out one of --virtual-time and --store",
        ),
    }
}

impl RunStore {
    /// A store that keeps its data.
    fn new(open: OpenStore, address: Address) -> RunStore {
        RunStore {
            store: open.patient(),
            is_virtual: false,
            durable: address != Address::Memory,
            address,
            open,
            data: OnceLock::new(),
        }
    }

    /// Artifacts and logs, opened once: those of a memory store are lost with what has opened them.
    fn data(&self, args: &DataArgs) -> Result<Data> {
        if let Some(data) = self.data.get() {
            return Ok(data.clone());
        }
        let data = args.open(&self.address)?;
        Ok(self.data.get_or_init(|| data).clone())
    }
}

fn open(args: &StoreArgs, address: &Address, is_virtual: bool) -> Result<RunStore> {
    let mut opened = args.open(address, OpenMode::Own)?;
    if is_virtual {
        // Completion tokens never leave this process, so the secret need only be the same each time.
        opened = opened.with(Arc::new(MemoryStore::with_secret([7; 32])));
    }
    Ok(RunStore {
        is_virtual,
        ..RunStore::new(opened, address.clone())
    })
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
    actor: &Actor,
    follower: &mut Follower,
    view: &mut View,
    engine: &LocalEngine,
    waiting: &Patience,
) -> Result<()> {
    follower.follow_all(view)?;
    let waits = |run: &Followed| run.plan.policy().needs_approval && !run.state.approved();
    let root = follower.root()?;
    if args.approve && waits(root) {
        let actor = actor.clone();
        let approve = Command::ApproveRun {
            actor,
            reason: None,
        };
        let id = root.state.run_id();
        waiting
            .keep_engine(|| engine.handle.submit(id, approve.clone()))
            .context("the run cannot be approved")?;
    }
    engine.handle.look();
    Ok(())
}

fn view(args: &GoArgs, run_id: &str, known: Watermarks) -> View {
    match args.output {
        OutputFormat::Json => View::quiet(),
        OutputFormat::Human if args.events => View::events(known),
        OutputFormat::Human if term::is_live() => View::tree(),
        OutputFormat::Human => View::lines(run_id, known),
    }
}
