//! The stepwell command: one file per subcommand, and nothing in them that another program could
//! need. Rules are the kernel's, languages the dialects', runs the engine's.

mod check;
mod definition;
mod exit;
mod explain;
mod graph;
mod picture;
mod plan;
mod run;
mod schema;
mod store;
mod term;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::exit::Exit;
use crate::term::{Tone, stderr_paint};

const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\nengines: mock\nstores:  memory"
);

/// A durable workflow engine: five workflow languages, one kernel, one binary
#[derive(Debug, Parser)]
#[command(
    name = "stepwell",
    version = LONG_VERSION,
    max_term_width = 100,
    after_help = "\
Examples:
  stepwell check workflow.yaml                               find every problem
  stepwell plan workflow.yaml                                show what it compiles to
  stepwell run workflow.yaml --engine mock --virtual-time    run it, with pretended work
  stepwell explain FIELD_MISSING                             what a code means

`stepwell COMMAND --help` has more examples and the exit codes."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::CheckArgs),
    Plan(plan::PlanArgs),
    Run(run::RunArgs),
    Resume(run::ResumeArgs),
    Explain(explain::ExplainArgs),
    #[command(hide = true)]
    Schema(schema::SchemaArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Check(args) => check::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Resume(args) => run::resume(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Schema(args) => schema::run(&args),
    };
    outcome.unwrap_or_else(|error| report(&error)).into()
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

fn report(error: &anyhow::Error) -> Exit {
    let is_pipe = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    if error
        .chain()
        .filter_map(|cause| cause.downcast_ref())
        .any(is_pipe)
    {
        return Exit::BrokenPipe;
    }
    let head = stderr_paint().tone(Tone::Bad, "error:");
    // With nowhere to say it, the exit code says it.
    let _ = writeln!(io::stderr(), "{head} {error:#}");
    match error.downcast_ref::<Usage>() {
        Some(_) => Exit::Usage,
        None => Exit::Problems,
    }
}
