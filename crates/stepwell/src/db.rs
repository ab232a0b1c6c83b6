//! `stepwell db`: migrates and checks the store.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::run_view::RunView;
use crate::runs::{say, waits_for_someone};
use crate::store::StoreArgs;
use crate::term::{self, Tone, count, one_line};
use stepwell_stores::OpenMode;

/// The maximum number of runs without a wake-up that `check` reads.
const ASLEEP: usize = 100;

/// Migrate or check the store
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell db check
  stepwell db check --store postgresql://me@db/stepwell -o json
  stepwell db migrate                         create the store, or update its schema

`check` runs the integrity check of the database, compares the rows with each other, and looks for open
runs that no timer, task, message or person can continue. `check` also works while another process owns
the store.

Exit codes: 0 no problems, 1 problems found or the store cannot be used, 2 wrong usage.")]
pub(crate) struct DbArgs {
    #[command(subcommand)]
    command: DbCommand,
}

#[derive(Debug, Subcommand)]
enum DbCommand {
    /// Create or update the tables; existing data is kept
    Migrate(CommonArgs),
    /// Check for damage and for open runs that nothing can continue
    Check(CommonArgs),
}

#[derive(Debug, Args)]
struct CommonArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &DbArgs) -> Result<Exit> {
    match &args.command {
        DbCommand::Migrate(on) => migrate(on),
        DbCommand::Check(on) => check(on),
    }
}

fn migrate(on: &CommonArgs) -> Result<Exit> {
    // Opening the store as its owner runs the migrations.
    let store = on.store.address()?.open(OpenMode::Own)?;
    let schema = store.check()?.schema;
    let text = format!("{} has schema version {schema}", on.store.shown());
    let json = json!({ "store": on.store.shown(), "kind": store.name(), "schema": schema });
    say(on.output, &text, &json)?;
    Ok(Exit::Ok)
}

fn check(on: &CommonArgs) -> Result<Exit> {
    let store = on.store.read()?;
    let health = store.check()?;
    let (mut people, mut lost) = (Vec::new(), Vec::new());
    for run_id in store.asleep(ASLEEP)? {
        let view = RunView::read(&*store, &run_id)?;
        match (view.state.phase().is_ended(), waits_for_someone(&view)) {
            (true, _) => {}
            (false, true) => people.push(run_id),
            (false, false) => lost.push(run_id),
        }
    }
    let good = health.problems.is_empty() && lost.is_empty();
    let json = json!({
        "store": on.store.shown(), "kind": store.name(), "ok": good, "schema": health.schema,
        "runs": health.runs, "open": health.open, "problems": health.problems,
        "waitForSomeone": people, "nothingWakes": lost,
    });
    if on.output == OutputFormat::Json {
        say(on.output, "", &json)?;
    } else {
        let paint = term::stdout_paint();
        let mut text = String::new();
        for problem in &health.problems {
            let bad = paint.tone(Tone::Bad, "bad ");
            text.push_str(&format!("{bad}  {}\n", one_line(problem)));
        }
        for run_id in &lost {
            let bad = paint.tone(Tone::Bad, "bad ");
            text.push_str(&format!("{bad}  run {run_id} is open, but no timer, task, message or person can continue it\n"));
        }
        let mark = match good {
            true => paint.tone(Tone::Good, "ok  "),
            false => paint.tone(Tone::Bad, "bad "),
        };
        let waiting = match people.len() {
            0 => String::new(),
            many => format!(", {many} waiting for a person or an event"),
        };
        text.push_str(&format!(
            "{mark}  {}  schema {}, {}, {} open{waiting}\n",
            on.store.shown(),
            health.schema,
            count(usize::try_from(health.runs).unwrap_or(usize::MAX), "run"),
            health.open,
        ));
        term::print(&text)?;
    }
    Ok(if good { Exit::Ok } else { Exit::Problems })
}
