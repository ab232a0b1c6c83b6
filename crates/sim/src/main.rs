//! `stepwell-sim`: lives through many worlds, and shows the first that goes wrong.

use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use stepwell_sim::{NAMES, Options, simulate};

/// Simulates the engine with faults, from seeds.
#[derive(Debug, Parser)]
struct Args {
    /// Run only this seed
    #[arg(long)]
    seed: Option<u64>,
    /// These seeds, as FROM..TO.
    #[arg(long, value_parser = range, default_value = "0..1000")]
    seeds: Range<u64>,
    /// How many steps with faults each simulation takes.
    #[arg(long, default_value_t = 400)]
    steps: u64,
    /// Go on with further seeds for so many minutes, whatever goes wrong.
    #[arg(long)]
    minutes: Option<u64>,
    /// Run only this workload
    #[arg(long, value_parser = NAMES)]
    workload: Option<String>,
    /// Print every action of the simulation
    #[arg(short, long)]
    verbose: bool,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let parts = text.split_once("..").ok_or("not FROM..TO")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    Ok(number(parts.0)?..number(parts.1)?)
}

fn main() -> ExitCode {
    let args = Args::parse();
    let options = Options {
        steps: args.steps,
        workload: args.workload,
        trace: args.verbose,
        ..Options::default()
    };
    let began = Instant::now();
    let limit = args.minutes.map(|it| Duration::from_secs(it * 60));
    let seeds = match (args.seed, limit) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(_)) => args.seeds.start..u64::MAX,
        (None, None) => args.seeds,
    };
    let (mut worlds, mut steps, mut runs, mut events, mut effects) = (0u64, 0, 0, 0, 0);
    let mut wrong = Vec::new();
    for seed in seeds {
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            break;
        }
        match simulate(seed, &options) {
            Ok(report) => {
                print!("{}", report.trace);
                worlds += 1;
                steps += report.steps;
                runs += report.runs;
                events += report.events;
                effects += report.effects;
            }
            Err(violation) => {
                println!("{violation}\n");
                wrong.push(seed);
                if limit.is_none() {
                    break;
                }
            }
        }
    }
    println!(
        "{worlds} worlds are right, {} are wrong: {steps} steps, {runs} runs, {events} events, {effects} pieces of work, {:.1} s",
        wrong.len(),
        began.elapsed().as_secs_f64()
    );
    if wrong.is_empty() {
        ExitCode::SUCCESS
    } else {
        println!("wrong: {wrong:?}");
        ExitCode::FAILURE
    }
}
