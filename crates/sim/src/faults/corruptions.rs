//! Stores that are damaged on purpose, one change each, and what the command makes of them. The work is in
//! `crates/sim/src/corrupt`; here are the arguments.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::commands;
use crate::corrupt::Corruptions;
use crate::kills::seed_of_clock;

/// Damage copies of a store
#[derive(Debug, Args)]
pub(crate) struct CorruptArgs {
    /// How many stores
    #[arg(long, default_value_t = 1_000)]
    count: u64,
    /// How many stores at a time
    #[arg(long, default_value_t = 2)]
    lanes: usize,
    /// End after this many minutes
    #[arg(long)]
    minutes: Option<u64>,
    /// Seed of the random numbers [default: the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Only damage of this kind, as the table names it
    #[arg(long)]
    only: Option<String>,
    /// No PostgreSQL
    #[arg(long)]
    sqlite: bool,
}

pub(crate) fn run(args: &CorruptArgs) -> Result<bool> {
    let seed = args.seed.unwrap_or_else(seed_of_clock);
    println!("seed {seed}");
    let postgres = std::env::var("STEPWELL_TEST_POSTGRES").ok();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let corruptions = Corruptions {
        program: commands::program()
            .context("the command is not built: use `cargo xtask corrupt`")?,
        examples: PathBuf::from(root),
        seed,
        count: args.count,
        lanes: args.lanes,
        limit: args.minutes.map(|it| Duration::from_secs(60 * it)),
        only: args.only.clone(),
        postgres: postgres.filter(|_| !args.sqlite),
    };
    let report = corruptions.run(&mut |line| println!("{line}"))?;
    println!("{}", report.table());
    Ok(report.silent().is_empty() && report.count() > 0)
}
