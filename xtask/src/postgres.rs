//! `cargo xtask test` and `cargo xtask postgres`: commands that find a real PostgreSQL.
//!
//! Tests of the PostgreSQL store never skip: they read the address of a server from
//! `STEPWELL_TEST_POSTGRES`, and these tasks see to it that there is one.

use crate::cluster::{Cluster, is_root};
use crate::programs;
use crate::repo::Repo;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// What tests read the server's address from.
pub(crate) const VARIABLE: &str = "STEPWELL_TEST_POSTGRES";

pub(crate) const TEST_HELP: &str = "\
All tests, with a real PostgreSQL for those of its store.

Usage: cargo xtask test [ARGS of cargo test]

Without ARGS: `cargo test --workspace --locked`. The tests find the server in
STEPWELL_TEST_POSTGRES: yours if it is set, else a private cluster that is removed afterwards.
RUST_TEST_THREADS is twice the number of cores unless you set it. `cargo xtask postgres --help` says what that needs. Python 3, Redis and DuckDB are found, or installed as root
on Debian; without DuckDB the tests of its tool are skipped.
";

pub(crate) const HELP: &str = "\
Runs a command with STEPWELL_TEST_POSTGRES set to a PostgreSQL server.

Usage: cargo xtask postgres -- COMMAND [ARGS]
       cargo xtask postgres -- sh -c 'psql $STEPWELL_TEST_POSTGRES'

If the variable is set it is used as it is: an address like
postgresql://user@host:5432/database, of a database in which schemas may be created.
Else a private cluster is started in a temporary directory (fsync on, loopback only) and removed
when the command ends, however it ends. That needs PostgreSQL 15 or newer, its initdb in PATH or
below /usr/lib/postgresql; as root on Debian it is installed with apt-get if it is missing.
";

pub(crate) fn test(repo: &Repo, args: &[String]) -> Result<()> {
    let mut words = vec!["test"];
    if args.is_empty() {
        words.extend(["--workspace", "--locked"]);
    }
    words.extend(args.iter().map(String::as_str));
    let mut command = repo.cargo(&words);
    command.envs(programs::variables(repo)?);
    if std::env::var_os(THREADS).is_none() {
        command.env(THREADS, threads().to_string());
    }
    with_server(command)?;
    if args.is_empty() {
        repo.knows_program();
    }
    Ok(())
}

/// How many tests of a binary run at the same time.
const THREADS: &str = "RUST_TEST_THREADS";

/// Twice the cores: tests with processes and servers wait for most of their time.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get) * 2
}

pub(crate) fn run(_: &Repo, args: &[String]) -> Result<()> {
    let words = match args {
        [dashes, words @ ..] if dashes == "--" => words,
        words => words,
    };
    let Some((program, rest)) = words.split_first() else {
        bail!("no command given; try --help");
    };
    let mut command = Command::new(program);
    command.args(rest);
    with_server(command)
}

/// Runs a command with the variable set; the server outlives it, and nothing else.
pub(crate) fn with_server(mut command: Command) -> Result<()> {
    let given = std::env::var(VARIABLE).ok().filter(|url| !url.is_empty());
    let cluster = match &given {
        Some(_) => None,
        None => Some(private()?),
    };
    if let Some(cluster) = &cluster {
        println!("{VARIABLE}={}", cluster.url());
        command.env(VARIABLE, cluster.url());
    }
    let shown = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("cannot run {shown}"))?;
    drop(cluster);
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

pub(crate) fn private() -> Result<Cluster> {
    let error = match Cluster::start(&[]) {
        Ok(cluster) => return Ok(cluster),
        Err(error) => error,
    };
    let debian = Path::new("/etc/debian_version").exists();
    if error.kind() == std::io::ErrorKind::NotFound && is_root() && debian {
        println!("{error}; installing it");
        apt_get(&["update"])?;
        apt_get(&["install", "-y", "--no-install-recommends", "postgresql"])?;
        return Cluster::start(&[]).context("PostgreSQL was installed and does not start");
    }
    bail!(
        "the tests need a PostgreSQL server, and none could be started: {error}\n\
         install PostgreSQL 15 or newer (Debian: apt-get install postgresql), or set {VARIABLE} to \
         the address of one, like postgresql://user@host:5432/database"
    );
}

pub(crate) fn apt_get(args: &[&str]) -> Result<()> {
    println!("+ apt-get {}", args.join(" "));
    let status = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status()
        .context("cannot run apt-get")?;
    if !status.success() {
        bail!("apt-get {} ended with {status}", args.join(" "));
    }
    Ok(())
}
