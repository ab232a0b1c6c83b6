//! `stepwell runs watch`: the snapshot of a run in the words of the contract, kept up to date by the projector. It reads
//! the log from its watermark on, marks a run with a hole STALE, and resyncs.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::Value as Json;
use stepwell_engine::Error;
use stepwell_engine::chunk;
use stepwell_engine::clock::SystemClock;
use stepwell_engine::port::Clock as _;
use stepwell_engine::projector::{Config, Projected, Projector, ResyncMode};
use stepwell_engine::read::LoggedRun;
use stepwell_engine::store::{RunNo, Store};
use stepwell_kernel::codes::PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED;
use stepwell_kernel::command::Actor;
use stepwell_kernel::event::{Body, RunContext};

use super::Refused;
use stepwell_views::watch::{Line, lines, text};

use crate::actor::ActorArgs;
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::place::{Place, PlaceArgs};
use crate::remote::Remote;
use crate::store::StoreArgs;
use crate::term::one_line;

/// How often the log is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// How often a run that is STALE is read from its beginning.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Show the contract's snapshot of a run whenever the run changes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell runs watch RUN                              until the run has ended
  stepwell runs watch RUN --once -o json | jq .snapshot
  stepwell runs watch RUN --once --resync full         read the whole log again

A line has the status of the run, the last event in the snapshot (`lastEventSeq`, the watermark), and the lag:
how long the oldest new event had been in the store when it was read. In the first line the lag is 0. The snapshot has the
steps that have started or were skipped; `runs show` has all steps.

A run is STALE if events were read after a hole in its log. The hole raises the alert
PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED, once, and the snapshot is made again: from the kept snapshot and the events
after it (FROM_SNAPSHOT), or from all events (FULL). The run stays STALE until the snapshot has reached every event
that was seen before. `stepwell db check` says what is missing. A lag above 5 s raises the alert PROJECTOR_LAG_HIGH, and
a step that starts before a step that it depends on has ended the alert PROJECTOR_CAUSAL_VIOLATION: `stepwell alerts list`.

Works while another process uses the store. Needs the right to write to the store: snapshots and alerts are kept there.

Exit codes: 0 the run has ended, in whatever way, or was shown (`--once`), 1 the run was not found, is STALE (`--once`), or
the store cannot be used, 2 wrong usage.")]
pub(super) struct WatchArgs {
    /// Run id, as `stepwell runs list` shows it
    #[arg(value_name = "RUN")]
    run: String,
    /// Show the run as it is now in one line, and end
    #[arg(long)]
    once: bool,
    /// Make the snapshot again, whether something is missing or not
    #[arg(long, value_enum, value_name = "MODE")]
    resync: Option<ResyncWord>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    #[command(flatten)]
    actor: ActorArgs,
    #[command(flatten)]
    store: PlaceArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ResyncWord {
    /// From all events
    Full,
    /// From the kept snapshot and the events after it; from all events if no snapshot is kept
    FromSnapshot,
}

pub(super) fn run(args: &WatchArgs) -> Result<Exit> {
    match args.store.place(&args.actor)? {
        Place::Store(store) => of_store(args, store),
        Place::Server(server) => of_server(args, &server),
    }
}

fn of_store(args: &WatchArgs, place: &StoreArgs) -> Result<Exit> {
    let store = place.visit()?;
    let run = LoggedRun::open(&*store, &args.run)?.run;
    may_see(&*store, run, &args.actor.actor(None)?)?;
    let mut projector = Projector::new(Arc::clone(&store), Config::default());
    let mut seen = match args.resync {
        Some(word) => projector.resync(run, word.mode(), SystemClock.now())?,
        None => projector.refresh(run, SystemClock.now())?,
    };
    if args.once {
        return once(&Line::of(&seen).json(), args.output);
    }
    let told = |seen: &Projected| -> Result<()> {
        let all = lines(seen);
        all.iter()
            .try_for_each(|line| print(&line.json(), args.output))
    };
    told(&seen)?;
    while !is_over(&seen) {
        std::thread::sleep(if seen.is_stale { LOOK_AGAIN } else { LOOK });
        projector.look(run)?;
        let next = projector.refresh(run, SystemClock.now())?;
        if next.is_news_after(&seen) {
            told(&next)?;
        }
        seen = next;
    }
    Ok(Exit::Ok)
}

/// The projector of the server does the work.
fn of_server(args: &WatchArgs, server: &Remote) -> Result<Exit> {
    let run = &args.run;
    let mode = args.resync.map(|word| match word {
        ResyncWord::Full => "full",
        ResyncWord::FromSnapshot => "from_snapshot",
    });
    let resynced = match mode {
        Some(mode) => Some(server.ask(|it| async move { it.resync(run, mode).await })?),
        None => None,
    };
    if args.once {
        let line = match resynced {
            Some(line) => line,
            None => server.ask(|it| async move { it.snapshot(run).await })?,
        };
        return once(&line, args.output);
    }
    let mut last = None;
    server.follow(
        |it| async move { it.watch(run).await },
        |event| {
            if event.name != "snapshot" {
                return Ok(false);
            }
            let line: Json = serde_json::from_str(&event.data)?;
            // After a break the stream begins with what was told before. A run that is stale may become good again without
            // a new event.
            let told = ["lastEventSeq", "observedSeq", "stale"].map(|field| line[field].clone());
            if last.as_ref() != Some(&told) {
                print(&line, args.output)?;
            }
            last = Some(told);
            Ok(is_terminal(&line))
        },
    )?;
    Ok(Exit::Ok)
}

fn is_terminal(line: &Json) -> bool {
    let status = line["status"].as_str().unwrap_or_default();
    matches!(status, "COMPLETED" | "FAILED" | "CANCELLED") && line["stale"] == false
}

fn once(line: &Json, format: OutputFormat) -> Result<Exit> {
    print(line, format)?;
    match line["stale"] == true {
        false => Ok(Exit::Ok),
        true => Err(falls_short(line).into()),
    }
}

impl ResyncWord {
    fn mode(self) -> ResyncMode {
        match self {
            ResyncWord::Full => ResyncMode::Full,
            ResyncWord::FromSnapshot => ResyncMode::FromSnapshot,
        }
    }
}

fn is_over(seen: &Projected) -> bool {
    seen.snapshot.status.is_terminal() && !seen.is_stale
}

/// Refuses actors of another tenant. The first event says whose the run is; the log may have a hole, so it is not read
/// as a whole.
fn may_see(store: &dyn Store, run: RunNo, actor: &Actor) -> Result<(), Error> {
    let first = store.chunks(run, 0, 1)?;
    let events = first
        .first()
        .map(|it| chunk::decode(it.first, it.codec, &it.body));
    let created = events.into_iter().flatten().flatten().next();
    match created.map(|event| event.body) {
        Some(Body::RunCreated { context, .. }) => stepwell_views::may_see(actor, &context),
        // Whose it is cannot be read: only those see it who see everything.
        _ => stepwell_views::may_see(actor, &RunContext::default()),
    }
}

fn falls_short(line: &Json) -> Refused {
    let why = format!(
        "the log of {} was read again and does not reach event {}, which was seen before; `stepwell db check` says what \
         is missing",
        line["runId"].as_str().unwrap_or_default(),
        line["observedSeq"]
    );
    Refused::new(PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED, &why)
}

fn print(line: &Json, format: OutputFormat) -> Result<()> {
    let mut out = io::stdout().lock();
    match format {
        OutputFormat::Json => writeln!(out, "{line}")?,
        OutputFormat::Human => writeln!(out, "{}", one_line(&text(line)))?,
    }
    out.flush()?;
    Ok(())
}
