//! `cargo xtask sim`: the simulator in release, for as long as asked.

use crate::repo::Repo;
use anyhow::{Result, bail};

pub(crate) const HELP: &str = "\
Simulates servers, stores, workers and people with faults, and checks every log.

Usage: cargo xtask sim [--seeds N | --seeds FROM..TO] [--minutes M] [--runs N] [--steps N] [--workload NAME]
       cargo xtask sim --sabotages

Builds the simulator in release and runs it: N seeds (1,000 if nothing is said), as many as fit into M minutes, or as
many as it takes for N runs. Prints the seeds, the pace (runs a second and simulated hours a minute, for each kind of
store), the faults that were injected by kind, which kinds of events and transitions were seen, and each simulation that
went wrong with a shortened trace, the log of its run and the command that shows it again. One call uses one core.
With --sabotages: puts each bug of crates/sim/src/sabotage.rs in, and says how many seeds it takes to find the bug;
fails if one is not found.
";

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    let mut words = vec!["run", "--release", "--locked", "-p", "stepwell-sim", "--"];
    words.extend(args.iter().map(String::as_str));
    match repo.cargo(&words).status()?.success() {
        true => Ok(()),
        false => bail!("a simulation went wrong, or a bug was not found; the output says which"),
    }
}
