//! `cargo xtask soak`: a server under steady load for a long time, with start, end and deletion of runs. Memory, file
//! handles, threads, connections and the size of the store must stay flat.

mod load;
mod samples;

use crate::postgres;
use crate::repo::Repo;
use crate::served::Served;
use anyhow::{Context as _, Result, bail};
use load::Load;
use samples::{Samples, Watched};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) const HELP: &str = "\
Runs `stepwell serve` under steady load and watches what it takes: memory, file handles, threads, sockets, the size of
the store. Runs are started, followed, cancelled, listed, and deleted 20 seconds after their end (5 seconds in a soak of less
than ten minutes). Linux only.

Usage: cargo xtask soak [--minutes M] [--rate R] [--postgres] [--release | --program FILE]

  --minutes M   how long; default 30, at least 1
  --rate R      how many runs are started in a second; default 20
  --postgres    on a private PostgreSQL instead of SQLite; with psql in PATH its size is watched too
  --release     with the release build, which is made first
  --program FILE  with this `stepwell`, and nothing is built

A line is printed every ten seconds, or 30 times. The first third is warm-up: caches fill, and the file of a store has the size of the
most that was in it at a time. The exit code is not 0 if a line through the rest of the samples rises by more than is allowed
(the table at the end says how much; memory may rise more in a soak of less than ten minutes, which finds coarse leaks only), if a
request fails, or if a run does not end.
";

/// How often a sample is taken at most, and how many are taken at least.
const PACE: Duration = Duration::from_secs(10);
const SAMPLES: u32 = 30;
/// A shorter soak finds coarse leaks only.
const LONG: Duration = Duration::from_secs(10 * 60);

struct Options {
    length: Duration,
    rate: u32,
    on_postgres: bool,
    profile: &'static str,
    /// A program that is there, instead of one that is built.
    program: Option<PathBuf>,
}

impl Options {
    fn is_short(&self) -> bool {
        self.length < LONG
    }

    /// Everything that has ended is deleted soon.
    fn settings(&self) -> String {
        let age = if self.is_short() { "5s" } else { "20s" };
        let lines = ["completed", "failed", "cancelled", "audit"];
        let lines = lines.map(|name| format!("{name} = \"{age}\"\n"));
        format!("[retention]\n{}", lines.concat())
    }
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        length: Duration::from_secs(30 * 60),
        rate: 20,
        on_postgres: false,
        profile: "debug",
        program: None,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        let mut number = || -> Result<u32> {
            let text = value()?;
            let number = text.parse().ok().filter(|it| *it > 0);
            number.with_context(|| format!("{arg} {text}: a whole number is needed"))
        };
        match arg.as_str() {
            "--minutes" => options.length = Duration::from_secs(u64::from(number()?) * 60),
            "--rate" => options.rate = number()?,
            "--postgres" => options.on_postgres = true,
            "--release" => options.profile = "release",
            "--program" => options.program = Some(value()?.into()),
            other => bail!("unknown argument `{other}`; try --help"),
        }
    }
    Ok(options)
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    let options = options(args)?;
    let program = match &options.program {
        Some(program) => fs::canonicalize(program)
            .with_context(|| format!("there is no program {}", program.display()))?,
        None => built(repo, options.profile)?,
    };
    let cluster = options.on_postgres.then(postgres::private).transpose()?;
    let url = cluster.as_ref().map(|it| it.url().to_owned());
    let folder = std::env::temp_dir().join(format!("stepwell-soak-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("stepwell.toml"), options.settings())?;
    let outcome = soak(&program, &folder, &options, url.as_deref());
    fs::remove_dir_all(&folder).ok();
    outcome
}

/// Builds the `stepwell` of this repository.
fn built(repo: &Repo, profile: &str) -> Result<PathBuf> {
    if profile != "release" {
        return repo.program().map(Path::to_owned);
    }
    repo.cargo_output(&["build", "-q", "--locked", "-p", "stepwell", "--release"])?;
    Ok(repo.root.join("target").join(profile).join("stepwell"))
}

fn soak(program: &Path, folder: &Path, options: &Options, url: Option<&str>) -> Result<()> {
    let store: Vec<&str> = url.map_or_else(Vec::new, |url| vec!["--store", url]);
    let server = Served::start(program, folder, &store)?;
    let watched = Watched {
        process: server.id(),
        folder: folder.to_path_buf(),
        database: url.map(ToOwned::to_owned),
    };
    let load = Load::start(&server.url, options.rate)?;
    let mut samples = Samples::default();
    println!("{}", Samples::HEAD);
    let pace = PACE.min(options.length / SAMPLES);
    let begin = Instant::now();
    while begin.elapsed() < options.length {
        std::thread::sleep(pace.min(options.length - begin.elapsed()));
        let sample = watched.sample(begin.elapsed(), load.counts())?;
        println!("{sample}");
        samples.push(sample);
    }
    let failures = load.stop();
    let verdict = samples.verdict(options.is_short());
    println!("\n{}", verdict.table);
    if !failures.is_empty() {
        bail!(
            "{} requests or runs failed, the first: {}",
            failures.len(),
            failures[0]
        );
    }
    match verdict.rising.is_empty() {
        true => Ok(()),
        false => bail!("not flat: {}", verdict.rising.join(", ")),
    }
}
