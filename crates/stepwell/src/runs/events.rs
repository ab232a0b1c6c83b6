//! `stepwell runs events`: prints the event log of a run as JSON lines, also while the run is active.

use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use stepwell_kernel::contract::Recorder;

use crate::exit::Exit;
use crate::run::wire;
use crate::run_view::RunView;
use crate::store::StoreArgs;

/// How often to read new events with `--follow`.
const LOOK: Duration = Duration::from_millis(200);

/// Print the event log of a run as JSON lines
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell runs events RUN
  stepwell runs events RUN --follow           until the run has ended
  stepwell runs events RUN --ext              with extension fields and the hash chain
  stepwell runs events RUN --after 40 | jq -c '[.runSeq, .eventType]'")]
pub(super) struct EventsArgs {
    /// Run id
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
    store: StoreArgs,
    /// Events are always JSON; accepted because all commands have this option
    #[arg(short, long, value_enum, hide = true)]
    output: Option<crate::output_format::OutputFormat>,
}

pub(super) fn run(args: &EventsArgs) -> Result<Exit> {
    let _ = args.output;
    let store = args.store.read()?;
    let mut view = RunView::read(&*store, &args.run)?;
    let mut recorder = Recorder::new(&args.run);
    loop {
        let fresh = std::mem::take(&mut view.events);
        let mut out = io::stdout().lock();
        for event in &fresh {
            let mut line = wire::event(&mut recorder, &view.plan, event)?;
            if let Some(fields) = line.as_object_mut().filter(|_| !args.ext) {
                for name in ["ext", "prevHash", "hash"] {
                    fields.remove(name);
                }
            }
            if event.seq > args.after {
                writeln!(out, "{line}")?;
            }
        }
        out.flush()?;
        drop(out);
        if !args.follow || view.state.phase().is_ended() {
            return Ok(Exit::Ok);
        }
        std::thread::sleep(LOOK);
        view.catch_up(&*store)?;
    }
}
