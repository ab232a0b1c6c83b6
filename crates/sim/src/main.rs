//! `stepwell-sim`: lives through many simulations, says what was injected and seen, and shows each that goes wrong as small
//! as it can be made.

use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use stepwell_sim::{NAMES, Options, Sabotage, Summary, shrink, simulate};

/// How many seeds a sabotage may take until it is found.
const SABOTAGE_SEEDS: u64 = 400;
/// How often a long call says how far it is.
const TELLS_EVERY: Duration = Duration::from_secs(60);
/// After so many violations the rest is not looked at.
const MAX_WRONG: usize = 5;

/// Simulates the engine with faults, from seeds.
#[derive(Debug, Parser)]
struct Args {
    /// Run only this seed
    #[arg(long)]
    seed: Option<u64>,
    /// These seeds, as FROM..TO, or how many.
    #[arg(long, value_parser = range, default_value = "1000")]
    seeds: Range<u64>,
    /// How many steps with faults each simulation takes.
    #[arg(long, default_value_t = 400)]
    steps: u64,
    /// Stop after so many minutes. Without --seeds: go on with further seeds until then
    #[arg(long)]
    minutes: Option<u64>,
    /// Go on with further seeds until so many runs were simulated; with --seeds: at most those seeds
    #[arg(long)]
    runs: Option<usize>,
    /// Run only this workload
    #[arg(long, value_parser = NAMES)]
    workload: Option<String>,
    /// The most servers
    #[arg(long)]
    max_servers: Option<usize>,
    /// The most runs that are started
    #[arg(long)]
    max_runs: Option<usize>,
    /// Whether the store is SQLite on a faulty disk; without it one simulation in twelve has it
    #[arg(long)]
    on_disk: Option<bool>,
    /// Break this on purpose
    #[arg(long, value_parser = sabotage)]
    sabotage: Option<Sabotage>,
    /// Break each thing on purpose, and say how many seeds it takes to find it
    #[arg(long)]
    sabotages: bool,
    /// Print every action of the simulation
    #[arg(short, long)]
    verbose: bool,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    match text.split_once("..") {
        Some((from, to)) => Ok(number(from)?..number(to)?),
        None => Ok(0..number(text)?),
    }
}

fn sabotage(name: &str) -> Result<Sabotage, String> {
    Sabotage::find(name).ok_or_else(|| format!("there are {:?}", Sabotage::ALL))
}

fn main() -> ExitCode {
    let args = Args::parse();
    let options = Options {
        steps: args.steps,
        workload: args.workload.clone(),
        max_servers: args.max_servers,
        max_runs: args.max_runs,
        on_disk: args.on_disk,
        sabotage: args.sabotage,
        trace: args.verbose,
    };
    let right = match args.sabotages {
        true => find_sabotages(&options),
        false => live(&args, &options),
    };
    match right {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn live(args: &Args, options: &Options) -> bool {
    let began = Instant::now();
    let limit = args.minutes.map(|it| Duration::from_secs(it * 60));
    let asked = std::env::args().any(|it| it.starts_with("--seeds"));
    let endless = (limit.is_some() || args.runs.is_some()) && !asked;
    let seeds = match args.seed {
        Some(seed) => seed..seed + 1,
        None if endless => 0..u64::MAX,
        None => args.seeds.clone(),
    };
    let mut summary = Summary::default();
    let mut wrong = Vec::new();
    let mut next = seeds.start;
    let mut told = Instant::now();
    for seed in seeds.clone() {
        let over = limit.is_some_and(|limit| began.elapsed() >= limit)
            || args.runs.is_some_and(|runs| summary.runs() >= runs);
        if over || wrong.len() >= MAX_WRONG {
            break;
        }
        if told.elapsed() >= TELLS_EVERY {
            told = Instant::now();
            eprintln!("so far: {}; {} wrong", summary.pace(), wrong.len());
        }
        next = seed + 1;
        let start = Instant::now();
        match simulate(seed, options) {
            Ok(report) => {
                print!("{}", report.trace);
                summary.add(&report, start.elapsed());
            }
            Err(violation) => {
                // The whole trace is out already.
                match options.trace {
                    true => println!("{violation}\n"),
                    false => println!("{}\n", shrink(&violation)),
                }
                wrong.push(seed);
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    print!("seeds {}..{next} in {seconds:.1} s\n{summary}", seeds.start);
    if !wrong.is_empty() {
        println!("wrong: {wrong:?}");
    }
    wrong.is_empty()
}

/// Puts each bug in, and looks for the first seed that finds it.
fn find_sabotages(options: &Options) -> bool {
    let mut missed = Vec::new();
    for sabotage in Sabotage::ALL {
        let options = Options {
            sabotage: Some(*sabotage),
            ..options.clone()
        };
        // A wrong rule shows only in runs of drawn definitions.
        let drawn = sabotage.drawn_workloads();
        let found = (0..SABOTAGE_SEEDS).find_map(|seed| {
            let mut options = options.clone();
            if sabotage.is_of_rules() {
                let index = usize::try_from(seed).unwrap_or(0) % drawn.len();
                options.workload = Some(drawn[index].to_owned());
            }
            simulate(seed, &options).err()
        });
        match found {
            Some(violation) => {
                let seeds = violation.seed + 1;
                println!(
                    "{sabotage:?}: found after {seeds} seeds: {}",
                    violation.what
                );
            }
            None => {
                println!("{sabotage:?}: not found in {SABOTAGE_SEEDS} seeds");
                missed.push(*sabotage);
            }
        }
    }
    let all = Sabotage::ALL.len();
    println!("{} of {all} sabotages were found", all - missed.len());
    missed.is_empty()
}
