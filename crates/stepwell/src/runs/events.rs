//! `stepwell runs events`: prints the event log of a run as JSON lines, also while the run is active.

use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use stepwell_engine::read::{LogRecords, LoggedRun};

use crate::actor::ActorArgs;
use crate::exit::Exit;
use crate::place::PlaceArgs;
use stepwell_views::{may_see, snapshot};

/// How often to read new events with `--follow`.
const LOOK: Duration = Duration::from_millis(200);

/// How many commits are read at a time.
const AT_A_TIME: usize = 256;

/// Print the event log of a run as JSON lines
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell runs events RUN
  stepwell runs events RUN --follow           until the run has ended
  stepwell runs events RUN --ext              with extension fields and the hash chain
  stepwell runs events RUN --after 40 | jq -c '[.runSeq, .eventType]'")]
pub(super) struct EventsArgs {
    /// Run id, as `stepwell runs list` shows it
    #[arg(value_name = "RUN")]
    run: String,
    /// Only events after this sequence number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: u64,
    /// Include extension fields and the hash chain
    #[arg(long)]
    ext: bool,
    /// Wait for new events until the run has ended
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    actor: ActorArgs,
    #[command(flatten)]
    store: PlaceArgs,
    /// Events are always JSON; accepted because all commands have this option
    #[arg(short, long, value_enum, hide = true)]
    output: Option<crate::output_format::OutputFormat>,
}

pub(super) fn run(args: &EventsArgs) -> Result<Exit> {
    let _ = args.output;
    let source = args.store.runs(&args.actor)?;
    let mut run = LoggedRun::open(&*source, &args.run)?;
    // The first commit says whose run it is.
    for event in run.unread_chunks(&*source, 1)? {
        run.fold(&event)?;
    }
    may_see(&args.actor.actor(None)?, run.state.context())?;
    // A number that the log has not reached yet: what comes before is read over.
    let log = LogRecords::of_after(&*source, &run, args.after)?;
    let log = log.unwrap_or_else(|| LogRecords::of(&run));
    let mut log = log.noting_unknown();
    let has_ended = run.head.ended_at.is_some();
    let mut told = 0;
    loop {
        let mut out = io::stdout().lock();
        loop {
            let records = log.unread(&*source, AT_A_TIME)?;
            if records.is_empty() {
                break;
            }
            for record in records {
                let seq = record.contract["runSeq"].as_u64();
                let mut line = snapshot::event(record);
                if let Some(fields) = line.as_object_mut().filter(|_| !args.ext) {
                    for name in ["ext", "prevHash", "hash"] {
                        fields.remove(name);
                    }
                }
                if seq.is_none_or(|seq| seq > args.after) {
                    writeln!(out, "{line}")?;
                }
            }
        }
        out.flush()?;
        drop(out);
        let unknown = log.unknown_to_this_version();
        for note in &unknown[told..] {
            tracing::warn!("a newer version wrote the run: {note}");
        }
        told = unknown.len();
        if !args.follow || has_ended || log.has_end() {
            return Ok(Exit::Ok);
        }
        std::thread::sleep(LOOK);
    }
}
