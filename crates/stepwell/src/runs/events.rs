//! `stepwell runs events`: prints the event log of a run as JSON lines, also while the run is active.

use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use stepwell_engine::Error;
use stepwell_engine::read::LogRecords;
use stepwell_kernel::event::RunContext;

use crate::actor::ActorArgs;
use crate::exit::Exit;
use crate::store::StoreArgs;
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
    store: StoreArgs,
    /// Events are always JSON; accepted because all commands have this option
    #[arg(short, long, value_enum, hide = true)]
    output: Option<crate::output_format::OutputFormat>,
}

pub(super) fn run(args: &EventsArgs) -> Result<Exit> {
    let _ = args.output;
    let store = args.store.read()?;
    let unknown = || Error::UnknownRun(args.run.clone());
    let no = store.find(&args.run)?.ok_or_else(unknown)?;
    let mut row = store.summary(no)?.ok_or_else(unknown)?;
    let context = RunContext {
        tenant_id: row.tenant.clone(),
        ..RunContext::default()
    };
    may_see(&args.actor.actor(None)?, &context)?;
    let mut log = LogRecords::after(&*store, &row, args.after)?;
    loop {
        let mut out = io::stdout().lock();
        loop {
            let records = log.unread(&*store, AT_A_TIME)?;
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
        // The row was read before the log: an end that it has is in what was printed.
        if !args.follow || row.head.ended_at.is_some() {
            return Ok(Exit::Ok);
        }
        std::thread::sleep(LOOK);
        row = store.summary(no)?.ok_or_else(unknown)?;
    }
}
