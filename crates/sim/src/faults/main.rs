//! `stepwell-faults`: what a machine does to real processes, again and again, until a number or a time is reached.
//! `kills` ends processes with SIGKILL on both databases; `database` cuts, delays, silences and restarts the database
//! under them, and under the command `stepwell run` where it was built; `corrupt` damages stores on purpose. After kills and faults the work is finished in peace and judged (`stepwell_sim::verdict`).
//! `cargo xtask kills`, `cargo xtask db-faults` and `cargo xtask corrupt` start it.

mod commands;
#[path = "../corrupt/mod.rs"]
mod corrupt;
mod corruptions;
mod database;
mod kills;
mod place;
mod tally;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Kills(kills::KillsArgs),
    Database(database::DatabaseArgs),
    Corrupt(corruptions::CorruptArgs),
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    match Args::parse().command {
        Command::Kills(args) => kills::run(&args),
        Command::Database(args) => database::run(&args),
        Command::Corrupt(args) => corruptions::run(&args),
    }
}
