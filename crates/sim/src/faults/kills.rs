//! Processes that are killed with SIGKILL, at random instants of short lives. On SQLite one process at a time has the
//! store; on PostgreSQL two share it, so that one of them works while the other one dies.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use stepwell_sim::Rng;
use stepwell_sim::verdict::Verdict;

use crate::place::{Place, Process};
use crate::tally::Tally;

/// How many kills are judged together.
const EPISODE: u64 = 100;
/// How many runs each process starts.
const RUNS: u64 = 4;

/// Kill real processes
#[derive(Debug, Args)]
pub(crate) struct KillsArgs {
    /// How many kills
    #[arg(long, default_value_t = 10_000)]
    kills: u64,
    /// End after this many minutes
    #[arg(long)]
    minutes: Option<u64>,
    /// Which databases
    #[arg(long, value_enum, default_value_t = Database::Both)]
    database: Database,
    /// How many stores at a time [default: two for each core]
    #[arg(long)]
    lanes: Option<usize>,
    /// Seed of the random numbers [default: the clock]
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Database {
    Sqlite,
    Postgres,
    Both,
}

pub(crate) fn run(args: &KillsArgs) -> Result<bool> {
    let seed = args.seed.unwrap_or_else(seed_of_clock);
    println!("seed {seed}");
    let server = match args.database {
        Database::Sqlite => None,
        Database::Postgres | Database::Both => Some(
            std::env::var("STEPWELL_TEST_POSTGRES")
                .context("STEPWELL_TEST_POSTGRES is not set: use `cargo xtask kills`")?,
        ),
    };
    let lanes = args.lanes.unwrap_or_else(|| {
        let cores = thread::available_parallelism().map_or(2, usize::from);
        cores * 2
    });
    let tally = Tally::new("kills", args.kills, args.minutes)?;
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..lanes.max(1))
            .map(|lane| {
                let server = match args.database {
                    // In turn.
                    Database::Both if lane % 2 == 0 => None,
                    Database::Sqlite | Database::Postgres | Database::Both => server.as_deref(),
                };
                let tally = &tally;
                let rng = Rng::new(seed.wrapping_add(lane as u64));
                scope.spawn(move || {
                    let done = lane_of(server, rng, tally);
                    if done.is_err() {
                        tally.end();
                    }
                    done
                })
            })
            .collect();
        tally.watch(|| threads.iter().all(thread::ScopedJoinHandle::is_finished));
        for thread in threads {
            thread
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked")))?;
        }
        Ok(())
    })?;
    println!("{}", tally.table());
    Ok(tally.is_good())
}

/// A seed that differs from call to call.
pub(crate) fn seed_of_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |it| it.as_micros() as u64)
}

/// Episodes until everything is done.
fn lane_of(server: Option<&str>, mut rng: Rng, tally: &Tally) -> Result<()> {
    loop {
        let kills = tally.take(EPISODE);
        if kills == 0 {
            return Ok(());
        }
        let place = Place::new(rng.draw(), server.map(|url| (url, url)))?;
        let (killed, verdict) = match server {
            None => one_after_the_other(&place, kills, &mut rng, tally)?,
            Some(_) => in_turn(&place, kills, &mut rng, tally)?,
        };
        let database = if server.is_some() {
            "postgres"
        } else {
            "sqlite"
        };
        place.clean(&verdict);
        tally.judged(database, killed, verdict);
    }
}

/// Starts the next process, with new runs, so that there is always something to interrupt.
fn next(place: &Place, begun: &mut u64) -> Result<Process> {
    let (first, runs) = (begun.to_string(), RUNS.to_string());
    *begun += RUNS;
    place.spawn(&["--first", &first, "--runs", &runs, "--stay"])
}

/// Lets a process live for a moment: it may die while it starts.
fn live(process: &mut Process, rng: &mut Rng) {
    if rng.one_in(3) {
        thread::sleep(Duration::from_micros(rng.below(40_000)));
    } else if process.hears("ready") {
        thread::sleep(Duration::from_micros(rng.below(120_000)));
    }
}

fn one_after_the_other(
    place: &Place,
    kills: u64,
    rng: &mut Rng,
    tally: &Tally,
) -> Result<(u64, Verdict)> {
    let (mut killed, mut begun) = (0, 0);
    while killed < kills && !tally.is_over() {
        let mut process = next(place, &mut begun)?;
        live(&mut process, rng);
        process.kill()?;
        killed += 1;
        tally.count("SIGKILL");
    }
    Ok((killed, place.judge(begun)?))
}

fn in_turn(place: &Place, kills: u64, rng: &mut Rng, tally: &Tally) -> Result<(u64, Verdict)> {
    let (mut killed, mut begun) = (0, 0);
    let mut first = next(place, &mut begun)?;
    while killed < kills && !tally.is_over() {
        let mut second = next(place, &mut begun)?;
        live(&mut second, rng);
        // The older one dies most of the time; at times the one that has hardly begun does.
        if rng.one_in(3) {
            second.kill()?;
        } else {
            std::mem::replace(&mut first, second).kill()?;
        }
        killed += 1;
        tally.count("SIGKILL");
    }
    first.kill()?;
    tally.count("SIGKILL");
    Ok((killed + 1, place.judge(begun)?))
}
