//! A PostgreSQL that is cut off, delayed, silenced, restarted and whose connections are ended, while real processes work
//! on it through a proxy.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use stepwell_sim::Rng;
use stepwell_sim::proxy::{Direction, Fault, Proxy};
use stepwell_sim::verdict::Verdict;

/// Only the standard library is in it, so it can be included here as it is.
#[path = "../../../../xtask/src/cluster.rs"]
#[allow(dead_code, reason = "xtask uses the rest")]
mod cluster;

use crate::commands::{self, Commands};
use crate::kills::seed_of_clock;
use crate::place::{Place, Process};
use crate::tally::Tally;
use cluster::Cluster;

/// How many faults are judged together.
const EPISODE: u64 = 50;
/// How many processes share the database.
const PROCESSES: usize = 2;
/// How many runs are started for each fault.
const RUNS: u64 = 3;
/// How long a fault that is armed may take to happen.
const HAPPENS: Duration = Duration::from_secs(2);
/// A server that was stopped at once is free again only when all its processes have noticed.
const RESTART: Duration = Duration::from_secs(60);

/// Let a database fail under real processes
#[derive(Debug, Args)]
pub(crate) struct DatabaseArgs {
    /// How many faults
    #[arg(long, default_value_t = 1_000)]
    count: u64,
    /// End after this many minutes
    #[arg(long)]
    minutes: Option<u64>,
    /// How many servers at a time
    #[arg(long, default_value_t = 2)]
    lanes: usize,
    /// Seed of the random numbers [default: the clock]
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(args: &DatabaseArgs) -> Result<bool> {
    let seed = args.seed.unwrap_or_else(seed_of_clock);
    println!("seed {seed}");
    let tally = Tally::new("faults", args.count, args.minutes)?;
    thread::scope(|scope| -> Result<()> {
        let start = |lane: usize| {
            let tally = &tally;
            let rng = Rng::new(seed.wrapping_add(lane as u64));
            scope.spawn(move || {
                let done = lane_of(rng, tally);
                if done.is_err() {
                    tally.end();
                }
                done
            })
        };
        let threads: Vec<_> = (0..args.lanes.max(1)).map(start).collect();
        tally.watch(|| threads.iter().all(thread::ScopedJoinHandle::is_finished));
        for thread in threads {
            let done = thread.join();
            done.unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked")))?;
        }
        Ok(())
    })?;
    println!("{}", tally.table());
    Ok(tally.is_good())
}

fn lane_of(mut rng: Rng, tally: &Tally) -> Result<()> {
    let cluster = Cluster::start(&[]).context("no PostgreSQL can be started")?;
    let proxy = Proxy::start(cluster.port())?;
    let through = format!(
        "postgresql://postgres@127.0.0.1:{}/postgres?connect_timeout=2",
        proxy.port()
    );
    let server = Server { cluster, proxy };
    loop {
        let faults = tally.take(EPISODE);
        if faults == 0 {
            return Ok(());
        }
        let place = Place::new(rng.draw(), Some((&through, &server.cluster.url())))?;
        let direct = server.cluster.url();
        let commands = match commands::program() {
            Some(program) => Some(Commands::new(program, place.folder(), &direct)?),
            None => None,
        };
        let over = AtomicBool::new(false);
        let (judged, of_commands) = thread::scope(|scope| {
            let of_commands = commands.as_ref().map(|it| {
                let (over, through, direct) = (&over, &through, &direct);
                scope.spawn(move || it.run(through, direct, over))
            });
            let judged = episode(&server, &place, faults, &mut rng, tally, &over);
            over.store(true, Ordering::SeqCst);
            (judged, of_commands.map(thread::ScopedJoinHandle::join))
        });
        let (count, mut verdict) = judged?;
        if let Some(of_commands) = of_commands {
            let judged =
                of_commands.unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked")))?;
            tally.also("stepwell run", judged.runs);
            verdict.add(judged);
        }
        place.clean(&verdict);
        tally.judged("postgres", count, verdict);
    }
}

struct Server {
    cluster: Cluster,
    proxy: Proxy,
}

fn episode(
    server: &Server,
    place: &Place,
    faults: u64,
    rng: &mut Rng,
    tally: &Tally,
    over: &AtomicBool,
) -> Result<(u64, Verdict)> {
    let each = RUNS * faults / PROCESSES as u64;
    let mut processes = Vec::new();
    for number in 0..PROCESSES as u64 {
        let (first, runs) = ((number * each).to_string(), each.to_string());
        let more = [
            "--first",
            &first,
            "--runs",
            &runs,
            "--stay",
            "--long-ms",
            "60",
        ];
        let mut process: Process = place.spawn(&more)?;
        if !process.hears("ready") {
            process.kill()?;
            bail!("a process ended before it was ready");
        }
        processes.push(process);
    }
    let mut count = 0;
    while count < faults && !tally.is_over() {
        thread::sleep(Duration::from_millis(rng.below(60)));
        if let Some(kind) = server.hurt(rng)? {
            tally.count(kind);
            count += 1;
        }
    }
    over.store(true, Ordering::SeqCst);
    // No process may end by itself, whatever the database does.
    for process in processes {
        process.kill()?;
    }
    Ok((count, place.judge(each * PROCESSES as u64)?))
}

impl Server {
    /// Lets one fault happen, and says which. None if it did not come to it.
    fn hurt(&self, rng: &mut Rng) -> Result<Option<&'static str>> {
        let moment = |rng: &mut Rng, most| thread::sleep(Duration::from_millis(rng.below(most)));
        Ok(match rng.below(100) {
            0..60 => return Ok(self.piece(rng)),
            60..70 => {
                self.proxy.cut_all();
                Some("all connections cut")
            }
            70..78 => {
                self.proxy.refuse(true);
                self.proxy.cut_all();
                moment(rng, 800);
                self.proxy.refuse(false);
                Some("unreachable for a while")
            }
            78..84 => {
                // The network forgets its connections, and says so only later.
                self.proxy.silence(true);
                moment(rng, 1_500);
                self.proxy.silence(false);
                self.proxy.cut_all();
                Some("black hole for a while")
            }
            84..96 => {
                self.terminate()?;
                Some("pg_terminate_backend")
            }
            _ => {
                self.cluster.halt()?;
                moment(rng, 300);
                let until = Instant::now() + RESTART;
                while let Err(error) = self.cluster.resume() {
                    if Instant::now() > until {
                        return Err(error.into());
                    }
                    thread::sleep(Duration::from_millis(100));
                }
                Some("immediate restart")
            }
        })
    }

    /// One piece of one connection, at a random place of its traffic.
    fn piece(&self, rng: &mut Rng) -> Option<&'static str> {
        let (direction, fault, kind) = match rng.below(7) {
            0 => (
                Direction::ToServer,
                Fault::CutBefore,
                "cut before a request",
            ),
            1 => (Direction::ToServer, Fault::CutAfter, "cut after a request"),
            2 => (
                Direction::ToClient,
                Fault::CutBefore,
                "cut before an answer",
            ),
            3 => {
                let part = rng.between(2, 6) as usize;
                (
                    Direction::ToServer,
                    Fault::Truncate(part),
                    "request truncated",
                )
            }
            4 => {
                let part = rng.between(2, 6) as usize;
                (
                    Direction::ToClient,
                    Fault::Truncate(part),
                    "answer truncated",
                )
            }
            5 => {
                let delay = Fault::Delay(Duration::from_millis(rng.between(20, 1_500)));
                let direction = match rng.one_in(2) {
                    true => Direction::ToServer,
                    false => Direction::ToClient,
                };
                (direction, delay, "delay")
            }
            _ => (
                Direction::ToServer,
                Fault::BlackHole,
                "one connection black-holed",
            ),
        };
        let before = self.proxy.happened();
        self.proxy.arm(direction, fault, rng.below(30) as u32);
        let until = Instant::now() + HAPPENS;
        while self.proxy.happened() == before {
            if Instant::now() > until {
                return None;
            }
            thread::sleep(Duration::from_millis(1));
        }
        if fault == Fault::BlackHole && !rng.one_in(4) {
            // Most networks tell the peers sooner than any deadline.
            thread::sleep(Duration::from_millis(rng.below(800)));
            self.proxy.cut_silent();
        }
        Some(kind)
    }

    fn terminate(&self) -> Result<()> {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE application_name = 'stepwell'";
        let mut psql = self.cluster.program("psql");
        let status = psql
            .args(["-qAt", &self.cluster.url(), "-c", sql])
            .stdout(Stdio::null())
            .status()?;
        match status.success() {
            true => Ok(()),
            false => bail!("psql ended with {status}"),
        }
    }
}
