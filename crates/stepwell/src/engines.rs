//! `stepwell engines`: what each engine can do, natively, by other means, or not at all.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::Value as Json;
use stepwell_engines::capabilities::{EngineRow, engines};

use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::place::ServerArgs;
use crate::remote::Remote;
use crate::term;
use crate::usage;

/// List the engines and what each can do
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell engines                 what every engine can do
  stepwell engines temporal        one engine
  stepwell engines -o json         for programs
  stepwell engines --server http://127.0.0.1:7117      the engines that a server serves, and whether they answer

`native`: the engine has a means of its own. `emulated`: the kernel, the store or another means does it; the
table has the cost. `no`: not possible; a plan that requires it (`requiresCapabilities`) is refused before
it starts, unless it has a `fallbackBehavior`.

Exit codes: 0, 1 the server does not answer or one of its engines does not, 2 wrong usage.")]
pub(crate) struct EnginesArgs {
    /// Name of an engine
    #[arg(value_name = "ENGINE")]
    engine: Option<String>,
    /// Show the engines outside that this server serves (`[engines]` of its configuration)
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "engine",
        help_heading = "Server"
    )]
    server: Option<String>,
    /// Show those of the server of a profile
    #[arg(long, value_name = "NAME", conflicts_with_all = ["engine", "server"], help_heading = "Server")]
    profile: Option<String>,
    /// File with the API token for the server [default: as for other commands]
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    token_file: Option<PathBuf>,
    /// File with certificates (PEM) to trust beside those of the system
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    ca: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
}

pub(crate) fn run(args: &EnginesArgs) -> Result<Exit> {
    if args.server.is_some() || args.profile.is_some() {
        return of_server(args);
    }
    let all = engines();
    let chosen: Vec<EngineRow> = match &args.engine {
        None => all,
        Some(name) => {
            let names: Vec<&str> = all.iter().map(|it| it.name).collect();
            let known = names.join(", ");
            let found: Vec<EngineRow> = all.into_iter().filter(|it| it.name == name).collect();
            if found.is_empty() {
                return usage(format!("unknown engine {name:?}; the engines are {known}"));
            }
            found
        }
    };
    let text = match args.output {
        OutputFormat::Json => format!("{}\n", serde_json::to_string_pretty(&chosen)?),
        OutputFormat::Human => {
            let tables: Vec<String> = chosen.iter().map(table).collect();
            tables.join("\n")
        }
    };
    term::print(&text)?;
    Ok(Exit::Ok)
}

/// How long a server is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Shows the engines outside that a server serves.
fn of_server(args: &EnginesArgs) -> Result<Exit> {
    let server = ServerArgs {
        server: args.server.clone(),
        profile: args.profile.clone(),
        token_file: args.token_file.clone(),
        ca: args.ca.clone(),
        allow_http: false,
    };
    let (url, options) = server.for_worker()?;
    let remote = Remote::new(&url, options, Some(PATIENCE), String::new())?;
    let answer = remote.ask(|connection| async move { connection.engines().await })?;
    let all = answer["engines"].as_array().cloned().unwrap_or_default();
    let is_ready = |it: &Json| it["ready"] == true;
    let text = match args.output {
        OutputFormat::Json => format!("{answer:#}\n"),
        OutputFormat::Human if all.is_empty() => {
            "the server runs all definitions itself\n".to_owned()
        }
        OutputFormat::Human => all.iter().map(|it| served(it, is_ready(it))).collect(),
    };
    term::print(&text)?;
    Ok(match all.iter().all(is_ready) {
        true => Exit::Ok,
        false => Exit::Problems,
    })
}

/// An engine outside that a server serves, and the definitions that run there.
fn served(engine: &Json, is_ready: bool) -> String {
    let word = |name: &str| engine[name].as_str().unwrap_or_default().to_owned();
    let state = match is_ready {
        true => "answers".to_owned(),
        false => format!("does not answer: {}: {}", word("code"), word("reason")),
    };
    let mut text = format!("{} ({}): {state}\n", word("name"), word("address"));
    for definition in engine["definitions"].as_array().into_iter().flatten() {
        let of = |name: &str| match definition[name].as_str() {
            Some(value) => format!(", {name} {value}"),
            None => String::new(),
        };
        let name = definition["name"].as_str().unwrap_or_default();
        text += &format!("  {name}{}{}\n", of("tenant"), of("project"));
    }
    text
}

fn table(engine: &EngineRow) -> String {
    let built = match engine.built {
        true => "",
        false => " (not in this build)",
    };
    let mut text = format!("{}{built}: --engine {}\n", engine.name, engine.address);
    let width = engine.capabilities.iter().map(|it| it.name.len()).max();
    for row in &engine.capabilities {
        let (name, word, note) = (row.name, row.support.word(), row.support.note());
        let line = format!(
            "  {name:<width$}  {word:<8}  {note}",
            width = width.unwrap_or(0)
        );
        text += line.trim_end();
        text.push('\n');
    }
    text
}
