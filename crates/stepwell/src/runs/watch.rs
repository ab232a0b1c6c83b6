//! `stepwell runs watch`: the snapshot of a run in the words of the contract, kept up to date by the projector. It reads
//! the log from its watermark on, marks a run with a hole STALE, and resyncs.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Value as Json, json};
use stepwell_engine::Error;
use stepwell_engine::chunk;
use stepwell_engine::clock::SystemClock;
use stepwell_engine::port::Clock as _;
use stepwell_engine::projector::{Config, Gap, Projected, Projector, ResyncMode};
use stepwell_engine::read::LoggedRun;
use stepwell_engine::store::{RunNo, Store};
use stepwell_kernel::codes::PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED;
use stepwell_kernel::command::Actor;
use stepwell_kernel::event::{Body, RunContext};
use stepwell_kernel::snapshot::RunSnapshot;

use super::Refused;
use crate::actor::ActorArgs;
use crate::exit::Exit;
use crate::output_format::OutputFormat;
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
    store: StoreArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ResyncWord {
    /// From all events
    Full,
    /// From the kept snapshot and the events after it; from all events if no snapshot is kept
    FromSnapshot,
}

pub(super) fn run(args: &WatchArgs) -> Result<Exit> {
    let store = args.store.visit()?;
    let run = LoggedRun::open(&*store, &args.run)?.run;
    may_see(&*store, run, &args.actor.actor(None)?)?;
    let mut projector = Projector::new(Arc::clone(&store), Config::default());
    let mut seen = match args.resync {
        Some(word) => projector.resync(run, word.mode(), SystemClock.now())?,
        None => projector.refresh(run, SystemClock.now())?,
    };
    if args.once {
        print(&[Line::of(&seen)], args.output)?;
        return match seen.is_stale {
            false => Ok(Exit::Ok),
            true => Err(falls_short(&seen).into()),
        };
    }
    print(&lines(&seen), args.output)?;
    while !is_over(&seen) {
        std::thread::sleep(if seen.is_stale { LOOK_AGAIN } else { LOOK });
        projector.look(run)?;
        let next = projector.refresh(run, SystemClock.now())?;
        if next.is_news_after(&seen) {
            print(&lines(&next), args.output)?;
        }
        seen = next;
    }
    Ok(Exit::Ok)
}

impl ResyncWord {
    fn mode(self) -> ResyncMode {
        match self {
            ResyncWord::Full => ResyncMode::Full,
            ResyncWord::FromSnapshot => ResyncMode::FromSnapshot,
        }
    }
}

/// The word of the contract.
fn word(mode: ResyncMode) -> &'static str {
    match mode {
        ResyncMode::Full => "FULL",
        ResyncMode::FromSnapshot => "FROM_SNAPSHOT",
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

fn falls_short(seen: &Projected) -> Refused {
    let why = format!(
        "the log of {} was read again and does not reach event {}, which was seen before; `stepwell db check` says what \
         is missing",
        seen.snapshot.run_id, seen.observed
    );
    Refused::new(PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED, &why)
}

/// The run at a moment.
struct Line<'a> {
    snapshot: &'a RunSnapshot,
    is_stale: bool,
    observed: u64,
    gap: Option<&'a Gap>,
    resynced: Option<ResyncMode>,
    lag: Duration,
}

/// What there is to tell: a run with a gap was STALE before it was resynced.
fn lines(seen: &Projected) -> Vec<Line<'_>> {
    let stale = seen.gap.iter().map(|gap| Line {
        snapshot: &gap.before,
        is_stale: true,
        observed: gap.observed,
        gap: Some(gap),
        resynced: None,
        lag: seen.lag,
    });
    let now = Line {
        gap: None,
        ..Line::of(seen)
    };
    stale.chain([now]).collect()
}

impl<'a> Line<'a> {
    fn of(seen: &'a Projected) -> Line<'a> {
        Line {
            snapshot: &seen.snapshot,
            is_stale: seen.is_stale,
            observed: seen.observed,
            gap: seen.gap.as_ref(),
            resynced: seen.resynced,
            lag: seen.lag,
        }
    }

    fn json(&self) -> Result<Json> {
        let gap = self.gap.map(|gap| {
            json!({
                "after": gap.before.last_event_seq,
                "next": gap.next,
            })
        });
        Ok(json!({
            "runId": self.snapshot.run_id,
            "status": self.snapshot.status.word(),
            "stale": self.is_stale,
            "lastEventSeq": self.snapshot.last_event_seq,
            "observedSeq": self.observed,
            "gap": gap,
            "resync": self.resynced.map(word),
            "lagMs": u64::try_from(self.lag.as_millis()).unwrap_or(u64::MAX),
            "snapshot": serde_json::to_value(self.snapshot)?,
        }))
    }

    fn text(&self) -> String {
        let snapshot = self.snapshot;
        let mut text = format!("{}  {}", snapshot.run_id, snapshot.status.word());
        if self.is_stale {
            text.push_str(" STALE");
        }
        text.push_str(&format!("  event {}", snapshot.last_event_seq));
        if self.is_stale {
            text.push_str(&format!(" of {}", self.observed));
        }
        text.push_str(&format!("  lag {} ms", self.lag.as_millis()));
        let steps = counts(snapshot);
        if !steps.is_empty() {
            text.push_str(&format!("  steps: {steps}"));
        }
        if let Some(gap) = self.gap {
            let last = gap.before.last_event_seq;
            text.push_str(&format!("  event {} came after event {last}", gap.next));
        }
        if let Some(mode) = self.resynced {
            text.push_str(&format!("  resync {}", word(mode)));
        }
        text
    }
}

/// How many steps have each status, each step with its last attempt.
fn counts(snapshot: &RunSnapshot) -> String {
    let attempts = snapshot.steps.iter();
    let last: BTreeMap<&str, &str> = attempts
        .map(|it| (it.step_id.as_str(), it.status.word()))
        .collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for status in last.into_values() {
        *counts.entry(status).or_default() += 1;
    }
    let counts = counts.iter();
    let words: Vec<String> = counts.map(|(status, n)| format!("{n} {status}")).collect();
    words.join(", ")
}

fn print(lines: &[Line<'_>], format: OutputFormat) -> Result<()> {
    let mut out = io::stdout().lock();
    for line in lines {
        match format {
            OutputFormat::Json => writeln!(out, "{}", line.json()?)?,
            OutputFormat::Human => writeln!(out, "{}", one_line(&line.text()))?,
        }
    }
    out.flush()?;
    Ok(())
}
