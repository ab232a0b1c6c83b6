//! `cargo xtask brokers`: every broker is really started, killed in the middle of many events, and started again. What the
//! sinks sent is read back from the brokers, and what the sources got is compared with what was sent.

mod servers;
mod sinks;
mod sources;

use crate::repo::Repo;
use anyhow::{Context as _, Result, bail};
use servers::{ALL, Kind, Server};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

pub(crate) const HELP: &str = "\
Sends events through every sink and messages through every source, with the broker killed (-9) and started again in the
middle, and checks what arrived: all of it, in the order of each run, twice only where docs/sinks.md says so. A message that
NATS never takes must become a dead letter and keep no other message back.

Usage: cargo xtask brokers [--quick] [--events N] [--only KIND,KIND] [--no-build]

  --quick      1,000 events and 50 messages, and a server is stopped instead of killed; about 3 minutes
  --events N   so many events; default 10,000
  --only KINDS of nats, redis, kafka, amqp and snowflake
  --no-build   with the programs that are in target/debug

NATS comes from PyPI, Redis and RabbitMQ from Debian, Kafka from Maven (Java 17 is needed), the emulation of Snowflake from
PyPI. What cannot be had is printed as SKIPPED.
";

/// How much is sent.
#[derive(Clone, Copy)]
struct Amount {
    events: usize,
    messages: u64,
    /// A server that is killed keeps what it has taken for half a minute; one that stops gives it back.
    kills_server: bool,
}

/// The programs that take part.
struct Programs {
    stepwell: PathBuf,
    /// Reads from brokers and writes to them.
    broker: PathBuf,
}

impl Programs {
    fn broker(&self, args: &[&str]) -> Result<String> {
        let done = Command::new(&self.broker).args(args).output()?;
        match done.status.success() {
            true => Ok(String::from_utf8(done.stdout)?),
            false => bail!("broker {args:?}: {}", String::from_utf8_lossy(&done.stderr)),
        }
    }
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    let mut amount = Amount {
        events: 10_000,
        messages: 300,
        kills_server: true,
    };
    let (mut only, mut builds) = (ALL.to_vec(), true);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--quick" => {
                amount = Amount {
                    events: 1_000,
                    messages: 50,
                    kills_server: false,
                }
            }
            "--events" => amount.events = value()?.parse()?,
            "--only" => {
                let names = value()?;
                only.retain(|kind| names.split(',').any(|it| it == kind.name()));
            }
            "--no-build" => builds = false,
            other => bail!("unknown argument `{other}`; try --help"),
        }
    }
    if builds {
        build(repo)?;
    }
    let programs = Programs {
        stepwell: repo.root.join("target/debug/stepwell"),
        broker: repo.root.join("target/debug/examples/broker"),
    };
    let folder = repo
        .root
        .join(format!("target/tmp/brokers-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    // The brokers are on this machine, which is closed to servers as long as nobody opens it.
    std::fs::write(
        folder.join("stepwell.toml"),
        "[security.network]\nopen = [\"loopback\"]\n",
    )?;
    let checked = all(repo, &programs, &only, amount, &folder);
    if checked.is_ok() {
        std::fs::remove_dir_all(&folder)?;
    }
    checked
}

fn build(repo: &Repo) -> Result<()> {
    let both = [
        &["build", "-p", "stepwell", "--locked"][..],
        &[
            "build",
            "-p",
            "stepwell-bus",
            "--example",
            "broker",
            "--all-features",
            "--locked",
        ],
    ];
    for args in both {
        if !repo.cargo(args).status()?.success() {
            bail!("`cargo {}` did not work", args.join(" "));
        }
    }
    Ok(())
}

fn all(
    repo: &Repo,
    programs: &Programs,
    only: &[Kind],
    amount: Amount,
    folder: &Path,
) -> Result<()> {
    let mut servers = Vec::new();
    let mut skipped = Vec::new();
    for kind in only {
        let begun = Instant::now();
        match Server::start(repo, *kind, folder) {
            Ok(server) => {
                println!(
                    "{}: started in {:.1} s",
                    kind.name(),
                    begun.elapsed().as_secs_f32()
                );
                servers.push(server);
            }
            Err(error) => skipped.push((kind.name(), error)),
        }
    }
    if !servers.is_empty() {
        sinks::check(programs, &mut servers, amount.events, folder)?;
        if let Some(nats) = servers.iter_mut().find(|it| it.kind == Kind::Nats) {
            sinks::too_large(programs, nats, folder).context("a message that is too large")?;
        }
        sources::check(programs, &mut servers, amount, folder)?;
    }
    for (name, error) in &skipped {
        println!("SKIPPED: {name} cannot be started: {error:#}");
    }
    match servers.is_empty() && !only.is_empty() {
        true => println!("SKIPPED: no broker can be had on this machine"),
        false => println!("brokers: {} of {} checked", servers.len(), only.len()),
    }
    Ok(())
}
