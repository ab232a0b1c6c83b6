//! The stepwell command: one file per subcommand, and nothing in them that another program could
//! need. Rules are the kernel's, languages the dialects', runs the engine's.

mod artifacts;
mod bench;
mod check;
mod db;
mod definition;
mod dlq;
mod exit;
mod explain;
mod graph;
mod log;
mod outbox;
mod output_format;
mod plan;
mod run;
mod run_view;
mod runs;
mod schema;
mod sink;
mod store;
mod term;
mod work;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use stepwell_engine::store::StoreError;

use crate::exit::Exit;
use crate::term::{Tone, stderr_paint};

/// The engine makes and drops many small values; this allocator takes a third of the time of glibc's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\nengines: native, mock\nstores:  sqlite, postgres, memory"
);

/// A durable workflow engine: five workflow languages, one kernel, one binary
#[derive(Debug, Parser)]
#[command(
    name = "stepwell",
    version = LONG_VERSION,
    max_term_width = 100,
    after_help = after_help()
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  stepwell check workflow.yaml                       find every problem
  stepwell plan workflow.yaml                        show what it compiles to
  stepwell run workflow.yaml --engine mock           run it, with pretended work
  stepwell run workflow.yaml --engine mock --resume  go on where it was
  stepwell runs list --open                          what has not ended
  stepwell runs show RUN                             where it is, and why it is not moving
  stepwell runs logs RUN STEP                        what a step has said
  stepwell db check                                  whether the store is sound
  stepwell explain STORE_HELD                        what a code means

Alerts and trouble with the store are logged to standard error; the variable STEPWELL_LOG says from
which level: off, error, warn (the default), info, debug or trace.

`stepwell COMMAND --help` has more examples, and what the exit codes mean there.

Exit codes:
";

fn after_help() -> String {
    format!("{AFTER_HELP}{}", exit::table())
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::CheckArgs),
    Plan(plan::PlanArgs),
    Run(run::RunArgs),
    Resume(run::ResumeArgs),
    Runs(runs::RunsArgs),
    Artifacts(artifacts::ArtifactsArgs),
    Dlq(dlq::DlqArgs),
    Outbox(outbox::OutboxArgs),
    Alerts(dlq::AlertsArgs),
    Db(db::DbArgs),
    Explain(explain::ExplainArgs),
    Bench(bench::BenchArgs),
    #[command(hide = true)]
    Schema(schema::SchemaArgs),
}

fn main() -> ExitCode {
    let json = wants_json(std::env::args_os().skip(1));
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if json && error.use_stderr() => {
            let text = error.to_string();
            let text = text.trim_start_matches("error: ").trim_end();
            tell_program(Some(USAGE), text);
            return Exit::Usage.into();
        }
        Err(error) => error.exit(),
    };
    log::install();
    let outcome = match cli.command {
        Command::Check(args) => check::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Resume(args) => run::resume(&args),
        Command::Runs(args) => runs::run(&args),
        Command::Artifacts(args) => artifacts::run(&args),
        Command::Dlq(args) => dlq::run(&args),
        Command::Outbox(args) => outbox::run(&args),
        Command::Alerts(args) => dlq::alerts(&args),
        Command::Db(args) => db::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Schema(args) => schema::run(&args),
    };
    outcome.unwrap_or_else(|error| report(&error, json)).into()
}

/// A command line that `clap` takes but that cannot be meant.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error about the command line.
fn usage<T>(message: impl Into<String>) -> Result<T> {
    Err(Usage(message.into()).into())
}

/// The code of a wrong command line, for programs.
const USAGE: &str = "USAGE";

/// Whether the command was called with `-o json`. What `clap` refuses has no parsed arguments, and its
/// caller is a program all the same.
fn wants_json(args: impl Iterator<Item = std::ffi::OsString>) -> bool {
    let args: Vec<_> = args.take_while(|arg| arg != "--").collect();
    let joined = ["-ojson", "-o=json", "--output=json"];
    let apart = |pair: &[std::ffi::OsString]| {
        (pair[0] == "-o" || pair[0] == "--output") && pair[1] == "json"
    };
    args.iter().any(|arg| joined.iter().any(|it| arg == it)) || args.windows(2).any(apart)
}

/// An error for programs: the last line of standard error.
fn tell_program(code: Option<&str>, message: &str) {
    let error = serde_json::json!({ "error": { "code": code, "message": message } });
    // With nowhere to say it, the exit code says it.
    let _ = writeln!(io::stderr(), "{error}");
}

fn report(error: &anyhow::Error, json: bool) -> Exit {
    let is_pipe = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    if error
        .chain()
        .filter_map(|cause| cause.downcast_ref())
        .any(is_pipe)
    {
        return Exit::BrokenPipe;
    }
    let (exit, fallback) = match error.downcast_ref::<Usage>() {
        Some(_) => (Exit::Usage, Some(USAGE)),
        None => (Exit::Problems, None),
    };
    let code = code_of(error);
    if json {
        tell_program(code.as_deref().or(fallback), &format!("{error:#}"));
        return exit;
    }
    let head = stderr_paint().tone(Tone::Bad, "error:");
    // With nowhere to say it, the exit code says it.
    let _ = writeln!(io::stderr(), "{head} {error:#}");
    if let Some(code) = code {
        let hint = format!("`stepwell explain {code}` says what to do");
        let hint = stderr_paint().tone(Tone::Dim, &hint);
        let _ = writeln!(io::stderr(), "{hint}");
    }
    exit
}

/// The code of an error that has one, and a page.
fn code_of(error: &anyhow::Error) -> Option<String> {
    let known = |cause: &(dyn std::error::Error + 'static)| {
        let store = cause.downcast_ref::<StoreError>();
        let store = store.map(|it| it.kind.code().to_owned());
        let engine = cause.downcast_ref::<stepwell_engine::Error>();
        let engine = || Some(engine?.code()?.to_owned());
        let refused = cause.downcast_ref::<runs::Refused>();
        let refused = || Some(refused?.0.split_once(": ")?.0.to_owned());
        store.or_else(engine).or_else(refused)
    };
    error.chain().find_map(known)
}
