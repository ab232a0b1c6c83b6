//! The `stepwell` command: one file per subcommand. Code that other programs need belongs to the
//! library; workflow rules belong to the kernel, languages to the dialects, runs to the engine.

#![warn(clippy::wildcard_enum_match_arm, clippy::print_stdout)]

mod actor;
mod artifacts;
mod bench;
mod check;
mod conformance;
mod db;
mod definition;
mod dev;
mod dlq;
mod engines;
mod exit;
mod explain;
mod file_limit;
mod graph;
mod help_text;
mod log;
mod outbox;
mod output_format;
mod outside_engine;
mod patience;
mod place;
mod plan;
mod progress;
mod remote;
mod run;
mod runs;
mod schema;
mod serve;
mod served_engines;
mod sink;
mod sinks;
mod store;
mod term;
mod text_table;
mod token;
mod work;
mod worker;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use stepwell::settings::LogFormat;
use stepwell_client::ClientError;
use stepwell_engine::store::StoreError;

use crate::exit::Exit;
use crate::term::{Tone, stderr_paint};

/// The engine allocates and frees many small values; mimalloc needs a third of the time of glibc.
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
    /// Form of the log lines on standard error [default: the variable STEPWELL_LOG_FORMAT, else text]
    #[arg(long, value_name = "FORMAT", global = true)]
    log_format: Option<FormatChoice>,
    #[command(subcommand)]
    command: Command,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FormatChoice {
    /// Lines for people
    Text,
    /// A JSON object on each line
    Json,
}

impl Cli {
    /// The form that the option or else the variable asks for.
    fn log_format(&self) -> Result<Option<LogFormat>, String> {
        let set = std::env::var(log::FORMAT).ok().filter(|it| !it.is_empty());
        let choice = match (self.log_format, set) {
            (Some(choice), _) => Some(choice),
            (None, None) => None,
            (None, Some(text)) => match <FormatChoice as clap::ValueEnum>::from_str(&text, true) {
                Ok(choice) => Some(choice),
                Err(_) => {
                    let name = log::FORMAT;
                    return Err(format!(
                        "the variable {name} is {text:?}; write text or json"
                    ));
                }
            },
        };
        Ok(choice.map(|it| match it {
            FormatChoice::Text => LogFormat::Text,
            FormatChoice::Json => LogFormat::Json,
        }))
    }
}

const AFTER_HELP: &str = "\
Examples:
  stepwell check workflow.yaml                       report all problems of a definition
  stepwell plan workflow.yaml                        show the compiled plan
  stepwell run workflow.yaml --engine mock           run it with simulated work
  stepwell run workflow.yaml --engine mock --resume  continue the last open run
  stepwell runs list --open                          list the open runs
  stepwell runs show RUN                             show the state of a run and what it waits for
  stepwell runs logs RUN STEP                        show the output of a step
  stepwell dev                                       serve the definitions of this folder while you write them
  stepwell serve                                     serve the HTTP API on 127.0.0.1:7117
  stepwell token create ada --role admin             create a token for a server with access control
  stepwell worker --server http://127.0.0.1:7117     execute steps of a server in this process
  stepwell db check                                  check the store for damage
  stepwell explain STORE_HELD                        explain an error code

Alerts and errors of the store are logged to standard error. The variable STEPWELL_LOG sets the log
level: off, error, warn (default), info, debug or trace. `--log-format json` or the variable
STEPWELL_LOG_FORMAT=json writes log lines as JSON.

`stepwell COMMAND --help` shows more examples and the exit codes of a command.

Exit codes:
";

fn after_help() -> String {
    format!("{AFTER_HELP}{}", exit::table())
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::CheckArgs),
    Plan(plan::PlanArgs),
    Run(Box<run::RunArgs>),
    Resume(run::ResumeArgs),
    Runs(runs::RunsArgs),
    Serve(serve::ServeArgs),
    Token(token::TokenArgs),
    /// Serve the definitions of a folder while you write them
    #[command(after_help = dev::AFTER_HELP)]
    Dev(dev::DevArgs),
    Worker(worker::WorkerArgs),
    Artifacts(artifacts::ArtifactsArgs),
    Dlq(dlq::DlqArgs),
    Outbox(outbox::OutboxArgs),
    Sinks(sinks::SinksArgs),
    Alerts(dlq::AlertsArgs),
    Db(db::DbArgs),
    Engines(engines::EnginesArgs),
    Explain(explain::ExplainArgs),
    Bench(bench::BenchArgs),
    Conformance(conformance::ConformanceArgs),
    Schema(schema::SchemaArgs),
}

fn main() -> ExitCode {
    let json = wants_json(std::env::args_os().skip(1));
    let cli = match help_text::parse::<Cli>() {
        Ok(cli) => cli,
        Err(error) if json && error.use_stderr() => {
            let text = error.to_string();
            let text = text.trim_start_matches("error: ").trim_end();
            tell_program(Some(USAGE), text);
            return Exit::Usage.into();
        }
        Err(error) => error.exit(),
    };
    match cli.log_format() {
        Ok(format) => log::install(format),
        Err(message) => {
            log::install(None);
            return report(&Usage(message).into(), json).into();
        }
    }
    let outcome = match cli.command {
        Command::Check(args) => check::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Resume(args) => run::resume(&args),
        Command::Runs(args) => runs::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Dev(args) => dev::run(&args),
        Command::Worker(args) => worker::run(&args),
        Command::Artifacts(args) => artifacts::run(&args),
        Command::Dlq(args) => dlq::run(&args),
        Command::Outbox(args) => outbox::run(&args),
        Command::Sinks(args) => sinks::run(&args),
        Command::Alerts(args) => dlq::alerts(&args),
        Command::Db(args) => db::run(&args),
        Command::Engines(args) => engines::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Conformance(args) => conformance::run(&args),
        Command::Schema(args) => schema::run(&args),
    };
    outcome.unwrap_or_else(|error| report(&error, json)).into()
}

/// The command line is valid for `clap` but its arguments do not fit together.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Returns an error about the command line (exit code 2).
fn usage<T>(message: impl Into<String>) -> Result<T> {
    Err(Usage(message.into()).into())
}

/// The error code for a wrong command line in JSON output.
const USAGE: &str = "USAGE";

/// Whether the command was called with `-o json`. Reads the raw arguments, because a command line that
/// `clap` rejects has no parsed arguments.
fn wants_json(args: impl Iterator<Item = std::ffi::OsString>) -> bool {
    let args: Vec<_> = args.take_while(|arg| arg != "--").collect();
    let joined = ["-ojson", "-o=json", "--output=json"];
    let apart = |pair: &[std::ffi::OsString]| {
        (pair[0] == "-o" || pair[0] == "--output") && pair[1] == "json"
    };
    args.iter().any(|arg| joined.iter().any(|it| arg == it)) || args.windows(2).any(apart)
}

/// Writes an error as JSON to the last line of standard error.
fn tell_program(code: Option<&str>, message: &str) {
    let error = serde_json::json!({ "error": { "code": code, "message": message } });
    // If standard error is closed, the exit code still reports the failure.
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
    // If standard error is closed, the exit code still reports the failure.
    let _ = writeln!(io::stderr(), "{head} {error:#}");
    if let Some(code) = code {
        let hint = format!("run `stepwell explain {code}` for the cause and what to do");
        let hint = stderr_paint().tone(Tone::Dim, &hint);
        let _ = writeln!(io::stderr(), "{hint}");
    }
    exit
}

/// The error code of the first error in the chain that has a code.
fn code_of(error: &anyhow::Error) -> Option<String> {
    let known = |cause: &(dyn std::error::Error + 'static)| {
        let store = cause.downcast_ref::<StoreError>();
        let store = store.map(|it| it.kind.code().to_owned());
        let engine = cause.downcast_ref::<stepwell_engine::Error>();
        let engine = || Some(engine?.code()?.to_owned());
        let refused = cause.downcast_ref::<runs::Refused>();
        let refused = || Some(refused?.0.split_once(": ")?.0.to_owned());
        let client = cause.downcast_ref::<ClientError>();
        let client = || Some(client?.code().to_owned());
        store.or_else(engine).or_else(refused).or_else(client)
    };
    error.chain().find_map(known)
}
