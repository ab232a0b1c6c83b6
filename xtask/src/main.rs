//! `cargo xtask`: the developer tasks of this repository.
//!
//! One file per task; `ci` runs all of them. This crate is not shipped, and Stepwell itself must build
//! and run without it.

mod api;
mod brokers;
mod ci;
mod cluster;
mod conformance;
mod corpus;
mod deps;
mod engines;
mod faults;
mod growth;
mod mutants;
mod playbooks;
mod postgres;
mod programs;
mod repo;
mod schemas;
mod served;
mod sim;
mod soak;
mod source;
mod tidy;
mod ui;
mod upgrade;

use anyhow::{Result, bail};
use repo::Repo;
use std::process::ExitCode;

const HELP: &str = "\
Developer tasks of Stepwell.

Usage: cargo xtask <TASK> [OPTIONS]

Tasks:
  ci           all checks of a change, in order; stops at the first failure
  test         all tests, with a real PostgreSQL server
  postgres     run a command with a real PostgreSQL server: `cargo xtask postgres -- COMMAND`
  tidy         rules of this repository that the compiler does not check
  deps         check licences, banned crates and unused dependencies
  conformance  write docs/conformance.md from the tests; --check compares
  schemas      write schemas/ from the types; --check compares
  api          send generated requests to a real server: answers are as its OpenAPI document says
  ui           build the web UI into crates/server/ui; --check proves that it is what the sources give
  browser      drive the web UI of a real server with a real browser
  screenshots  write screenshots of every page to docs/images
  brokers      send events through every sink and source, with the real broker killed in the middle
  sim          simulate servers with faults, from seeds: `cargo xtask sim --minutes 5`
  corpus       run `stepwell check` on real files next to the checkout, if there are any
  playbooks    run the real playbooks of the corpus, with all their work
  kills        kill real processes on both databases, 10,000 times, and check what is left
  db-faults    let a PostgreSQL fail under real processes, 1,000 times, and check what is left
  engines      run definitions on a real Temporal server, with kills, and compare with the native engine
  growth       run long plans and long loops at two sizes: time is linear, memory bounded
  soak         keep a server under load for 30 minutes: memory, handles, threads and store stay flat
  mutants      plant faults in a copy of the checkout, one at a time: the kit or a test notices each
  upgrade      replace servers of an earlier revision one by one under load: `cargo xtask upgrade REV`
  corrupt      damage copies of a store, 1,000 times, and check that each damage is noticed or harmless

`cargo xtask <TASK> --help` describes a task and how to fix its findings.
";

/// A task takes the checkout and its own arguments.
type Task = fn(&Repo, &[String]) -> Result<()>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let Some((task, rest)) = args.split_first() else {
        print!("{HELP}");
        bail!("no task given");
    };
    let (help, task): (&str, Task) = match task.as_str() {
        "ci" => (ci::HELP, ci::run),
        "test" => (postgres::TEST_HELP, postgres::test),
        "postgres" => (postgres::HELP, postgres::run),
        "tidy" => (tidy::HELP, tidy::run),
        "deps" => (deps::HELP, deps::run),
        "conformance" => (conformance::HELP, conformance::run),
        "schemas" => (schemas::HELP, schemas::run),
        "api" => (api::HELP, api::run),
        "ui" => (ui::HELP, ui::run),
        "browser" => (ui::BROWSER_HELP, ui::browser),
        "screenshots" => (ui::SCREENSHOTS_HELP, ui::screenshots),
        "brokers" => (brokers::HELP, brokers::run),
        "sim" => (sim::HELP, sim::run),
        "corpus" => (corpus::HELP, corpus::run),
        "playbooks" => (playbooks::HELP, playbooks::run),
        "kills" => (faults::KILLS_HELP, faults::kills),
        "corrupt" => (faults::CORRUPT_HELP, faults::corrupt),
        "db-faults" => (faults::DATABASE_HELP, faults::database),
        "engines" => (engines::HELP, engines::run),
        "growth" => (growth::HELP, growth::run),
        "soak" => (soak::HELP, soak::run),
        "mutants" => (mutants::HELP, mutants::run),
        "upgrade" => (upgrade::HELP, upgrade::run),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            return Ok(());
        }
        other => bail!("unknown task `{other}`; `cargo xtask --help` lists all tasks"),
    };
    // Arguments after `--` belong to the command that a task runs.
    let own = rest.iter().take_while(|arg| *arg != "--");
    if own.into_iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{help}");
        return Ok(());
    }
    task(&Repo::find()?, rest)
}

/// The arguments of a task that knows `--check` and nothing else.
fn wants_check(args: &[String]) -> Result<bool> {
    match args {
        [] => Ok(false),
        [flag] if flag == "--check" => Ok(true),
        [other, ..] => bail!("unknown argument `{other}`; try --help"),
    }
}

/// Refuses any argument, for tasks that take none.
fn no_arguments(args: &[String]) -> Result<()> {
    match args {
        [] => Ok(()),
        [other, ..] => bail!("unknown argument `{other}`; try --help"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_is_the_only_flag_it_knows() {
        assert!(!wants_check(&[]).unwrap());
        assert!(wants_check(&["--check".to_owned()]).unwrap());
        assert!(wants_check(&["--chek".to_owned()]).is_err());
        assert!(no_arguments(&["x".to_owned()]).is_err());
    }
}
