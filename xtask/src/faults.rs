//! `cargo xtask kills`, `cargo xtask db-faults` and `cargo xtask corrupt`: real processes that are killed, real databases
//! that fail, and stores that are damaged. The work is done by `stepwell-faults` of `crates/sim`; here are a server and the arguments.

use crate::postgres;
use crate::repo::Repo;
use anyhow::{Result, bail};

pub(crate) const KILLS_HELP: &str = "\
Kills real processes with SIGKILL, again and again, on both databases, and checks that nothing is lost,
doubled after its commit, or stuck.

Usage: cargo xtask kills [--kills N] [--minutes M] [--database sqlite|postgres|both] [--lanes L] [--seed S]

Without options 10,000 kills, two stores at a time for each core. Every hundred kills the rest of the work is done in
peace and judged. Ctrl-C ends early, with the table of what was judged. The exit code is not 0 if anything is wrong;
the files are kept then. The tests have a bounded part: crates/sim/tests/it/kills.rs.
";

pub(crate) const DATABASE_HELP: &str = "\
Lets a PostgreSQL fail under real processes: connections are cut before and after a request and before an answer,
messages truncated and delayed, networks silent, backends terminated, servers restarted; then checks that nothing is
lost, doubled after its commit, or stuck. `stepwell run` is one of the processes, and must end with exit code 0.

Usage: cargo xtask db-faults [--count N] [--minutes M] [--lanes L] [--seed S]

Without options 1,000 faults on two private servers. Every fifty faults the rest of the work is done in peace and
judged. Ctrl-C ends early, with the table of what was judged. The exit code is not 0 if anything is wrong; the files are
kept then. The tests have a bounded part: crates/sim/tests/it/database.rs.
";

pub(crate) const CORRUPT_HELP: &str = "\
Damages copies of a real store, one random change each (bits, bytes, pages, the end of a file, the write-ahead log, an
artifact, rows changed with SQL), and asks `stepwell db check`, all commands that read, SQL and the ends of the open runs.
Each damage must be noticed or be harmless; wrong data that is served without an error is a failure.

Usage: cargo xtask corrupt [--count N] [--lanes L] [--minutes M] [--seed S] [--only KIND] [--sqlite]

Without options 1,000 stores, a tenth of them on PostgreSQL (--sqlite: none). The exit code is not 0 if anything is
silent. The tests have a bounded part: crates/stepwell/tests/it/corruptions.rs.
";

pub(crate) fn corrupt(repo: &Repo, args: &[String]) -> Result<()> {
    build(repo)?;
    postgres::with_server(command(repo, "corrupt", args))
}

pub(crate) fn kills(repo: &Repo, args: &[String]) -> Result<()> {
    build(repo)?;
    postgres::with_server(command(repo, "kills", args))
}

pub(crate) fn database(repo: &Repo, args: &[String]) -> Result<()> {
    build(repo)?;
    let status = command(repo, "database", args).status()?;
    if !status.success() {
        bail!("the faults ended with {status}");
    }
    Ok(())
}

/// The program that is killed is another one than the program that kills.
fn build(repo: &Repo) -> Result<()> {
    let words = [
        "build",
        "--locked",
        "-p",
        "stepwell-sim",
        "-p",
        "stepwell",
        "--bins",
    ];
    let status = repo.cargo(&words).status()?;
    if !status.success() {
        bail!("the programs cannot be built");
    }
    Ok(())
}

fn command(repo: &Repo, task: &str, args: &[String]) -> std::process::Command {
    let words = [
        "run",
        "--locked",
        "-q",
        "-p",
        "stepwell-sim",
        "--bin",
        "stepwell-faults",
    ];
    let mut command = repo.cargo(&words);
    command.args(["--", task]).args(args);
    command
}
