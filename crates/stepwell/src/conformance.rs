//! `stepwell conformance`: plays the scenarios of the conformance kit against this very binary, and compares engines.

mod all_engines;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use stepwell_conformance::{Column, Kit, KitResults, load_built_in, load_folder};
use stepwell_engines::EngineAddress;

use crate::exit::Exit;
use crate::term;

/// Play the scenarios of the conformance kit, and show which statements hold
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell conformance                                    memory, SQLite and the mock engine
  stepwell conformance A24                                the scenarios of one statement
  stepwell conformance playbook/                          a part of a path, or a pattern with *
  stepwell conformance --store postgres:postgresql://me@db/scratch --engine native
  stepwell conformance --server                           through a server: every command goes over HTTP
  stepwell conformance --dir conformance --jobs 8         the files of a folder, not those built in
  stepwell conformance --engine all --temporal temporal://127.0.0.1:7233/default \
      --conductor conductor+http://127.0.0.1:8080/api --report docs/engines.md
  stepwell conformance --parity-only --engine native --engine temporal://127.0.0.1:7233/default
  stepwell conformance --json result.json --keep

A scenario starts this program as a user does, in a new folder and with a new store each time, and looks at what can
be seen from outside: output, exit codes, the event log, SQL, files, HTTP requests. On PostgreSQL each scenario gets a
schema of its own, which is removed at its end. `n/a` is a scenario that a store cannot do (`needs`) or that an engine
need not do (`exempt`); `known` fails today, and its file says why. conformance/README.md in the repository describes
the format.

`--engine all` plays on the native engine, on mock, on Temporal and on Conductor. Before the scenarios the definitions of
the five languages run on each of them: the events, their keys and their causal order must be the same. `--report` writes
what differs to a document, with the reason of each difference; a difference without a reason is a failure. A server that
does not answer is SKIPPED, which is exit code 1 unless --allow-missing is given.

Exit codes: 0 all scenarios passed or failed as known, 1 a scenario failed, or a scenario file has errors, 2 wrong usage.")]
pub(crate) struct ConformanceArgs {
    /// Only these scenarios: a statement (A24), a part of a path, or a pattern with *
    #[arg(value_name = "PATTERN")]
    pattern: Option<String>,
    /// Store to play on: memory, sqlite, postgres:URL, or the address of another store; can be repeated
    /// [default: memory and sqlite]
    #[arg(long, value_name = "STORE")]
    store: Vec<String>,
    /// Engine to play on: native on every store, mock on SQLite, the address of an engine on SQLite or the stores of
    /// --store, or `all` of them; can be repeated [default: native, and mock if no --store is given]
    #[arg(long, value_name = "ENGINE")]
    engine: Vec<String>,
    /// Address of the Temporal server for `--engine all`
    #[arg(long, value_name = "ADDRESS", env = "STEPWELL_TEMPORAL")]
    temporal: Option<String>,
    /// Address of the Conductor server for `--engine all`
    #[arg(long, value_name = "ADDRESS", env = "STEPWELL_CONDUCTOR")]
    conductor: Option<String>,
    /// With `--engine all`: a server that is not there is no failure
    #[arg(long)]
    allow_missing: bool,
    /// Write the differences of the engines and their reasons to this document, between its markers
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Only compare the events of the same definitions on the engines, and play no scenario
    #[arg(long)]
    parity_only: bool,
    /// Play through a server: each scenario has a server of its own on SQLite, and its commands go there over HTTP
    #[arg(long)]
    server: bool,
    /// Write the results as JSON to this file; `-` is standard output, without the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Number of scenarios that are played at the same time [default: the number of cores]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Play the scenario files of this folder instead of those that are built in
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Play against this program instead of this one: another version, or another program with the same commands
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Program with the handlers of the kit [default: examples/kit_handlers beside the program, if it is there]
    #[arg(long, value_name = "FILE")]
    handlers: Option<PathBuf>,
    /// Stop at the first scenario that fails
    #[arg(long)]
    fail_fast: bool,
    /// Keep the folders of scenarios that failed
    #[arg(long)]
    keep: bool,
    /// Print each scenario when it has been played
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(args: &ConformanceArgs) -> Result<Exit> {
    let pattern = args.pattern.as_deref();
    let scenarios = match &args.dir {
        Some(folder) => load_folder(folder, pattern)?,
        None => load_built_in(pattern)?,
    };
    let binary = match &args.program {
        // The scenarios are played in folders of their own.
        Some(path) => std::fs::canonicalize(path)
            .with_context(|| format!("cannot find the program {}", path.display()))?,
        None => std::env::current_exe().context("cannot find this program")?,
    };
    let handlers = match &args.handlers {
        Some(path) => Some(
            std::fs::canonicalize(path)
                .with_context(|| format!("cannot find the program {}", path.display()))?,
        ),
        None => binary
            .parent()
            .map(|folder| folder.join("examples/kit_handlers"))
            .filter(|path| path.is_file()),
    };
    let engines = all_engines::of(args)?;
    let columns = match &engines {
        Some(engines) => engines.columns()?,
        None => columns(args)?,
    };
    let kit = Kit {
        program: handlers,
        scenarios,
        columns,
        binary,
        jobs: args.jobs.unwrap_or_else(cores),
        keeps: args.keep,
        fails_fast: args.fail_fast,
        is_talkative: args.verbose,
    };
    let parity = match engines.is_some() || args.parity_only {
        true => kit.compare(),
        false => Vec::new(),
    };
    let results = match args.parity_only {
        true => None,
        false => Some(kit.play()?),
    };
    if let Some(results) = &results {
        print_results(args, results)?;
    }
    let is_good = results.as_ref().is_none_or(KitResults::is_good);
    let missing = engines.map(|it| it.missing).unwrap_or_default();
    let agrees = all_engines::conclude(args, results.as_ref(), &parity, &missing)?;
    Ok(match is_good && agrees {
        true => Exit::Ok,
        false => Exit::Problems,
    })
}

fn print_results(args: &ConformanceArgs, results: &KitResults) -> Result<()> {
    let to_output = args.json.as_ref().is_some_and(|it| it.as_os_str() == "-");
    if let Some(path) = &args.json {
        let text = format!("{:#}\n", results.json());
        match to_output {
            true => term::print(&text)?,
            false => std::fs::write(path, text)
                .with_context(|| format!("cannot write {}", path.display()))?,
        }
    }
    if !to_output {
        term::print(&results.text())?;
    }
    Ok(())
}

fn columns(args: &ConformanceArgs) -> Result<Vec<Column>> {
    let engines: Vec<&str> = match (&args.engine[..], &args.store[..]) {
        ([], []) if args.server => return Ok(vec![Column::of_server()]),
        ([], []) => vec!["native", "mock"],
        ([], _) => vec!["native"],
        (engines, _) => engines.iter().map(String::as_str).collect(),
    };
    let stores: Vec<&str> = match &args.store[..] {
        [] => vec!["memory", "sqlite"],
        stores => stores.iter().map(String::as_str).collect(),
    };
    let mut columns = Vec::new();
    for engine in engines {
        match engine {
            "native" => {
                for store in &stores {
                    columns.push(
                        Column::of_store(store).or_else(|error| crate::usage(error.to_string()))?,
                    );
                }
            }
            "mock" => columns.push(Column::of_engine(engine)),
            outside => match EngineAddress::parse(outside) {
                Some(Ok(address)) => {
                    all_engines::must_answer(&address)?;
                    if args.store.is_empty() {
                        columns.push(Column::of_engine(outside));
                        continue;
                    }
                    // A run outlives this process there, and so must its store.
                    for store in stores.iter().filter(|it| !it.starts_with("memory")) {
                        let column = Column::of_engine_on(outside, store);
                        columns.push(column.or_else(|error| crate::usage(error.to_string()))?);
                    }
                }
                Some(Err(error)) => return crate::usage(error.to_string()),
                None => {
                    return crate::usage(format!(
                        "there is no engine {outside:?}; write native, mock, temporal://HOST:PORT/NAMESPACE or \
                         conductor+http://HOST:PORT/api"
                    ));
                }
            },
        }
    }
    if args.server {
        columns.push(Column::of_server());
    }
    Ok(columns)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
