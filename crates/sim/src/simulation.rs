//! A simulation: one store, a few servers, workers and people outside, and a time of its own. Every step is
//! drawn from the seed, so a simulation that went wrong goes wrong again in the same way.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use stepwell_engine::coordinator::{Config, Notice, Serves, Ticket};
use stepwell_engine::limits::{Limits, WhenFull};
use stepwell_engine::store::{Batch, Marker};
use stepwell_kernel::time::Time;

use crate::external::RemoteWorker;
use crate::liveness;
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::sabotage::Sabotage;
use crate::server::{LocalTask, Server};
use crate::sim_store::SimStore;
use crate::workload::Workload;

/// 2026-02-11T10:30:00.000Z
const START: Time = Time(1_770_805_800_000);
/// How many of the last actions are shown.
const SHOWN: usize = 50;

/// How a simulation is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many steps with faults it takes; then the faults stop.
    pub steps: u64,
    /// Run only this workload; all workloads if none.
    pub workload: Option<String>,
    /// What is broken on purpose.
    pub sabotage: Option<Sabotage>,
    /// Keep the whole trace.
    pub trace: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            steps: 400,
            workload: None,
            sabotage: None,
            trace: false,
        }
    }
}

/// A simulation that went wrong.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The seed of the simulation.
    pub seed: u64,
    /// The number of the step before the violation was found.
    pub step: u64,
    /// What is not as it must be.
    pub what: String,
    /// The trace of the last actions.
    pub last: Vec<String>,
    /// How the simulation was made.
    pub options: Options,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.last {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "seed {}, step {}: {}", self.seed, self.step, self.what)?;
        let (seed, steps) = (self.seed, self.options.steps);
        write!(
            f,
            "run it again: cargo run -p stepwell-sim -- --seed {seed} --steps {steps} --verbose"
        )?;
        match &self.options.workload {
            Some(name) => write!(f, " --workload {name}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Violation {}

/// What a simulation came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many steps it took, the quiet ones included.
    pub steps: u64,
    /// How many runs there were.
    pub runs: usize,
    /// How many events their logs have.
    pub events: u64,
    /// How much work was done.
    pub effects: usize,
    /// Every action, if that was asked for.
    pub trace: String,
}

pub(crate) struct Simulation {
    pub(crate) seed: u64,
    pub(crate) rng: Rng,
    pub(crate) now: Time,
    pub(crate) step: u64,
    pub(crate) workload: Workload,
    pub(crate) sim_store: Arc<SimStore>,
    pub(crate) servers: Vec<Server>,
    pub(crate) remotes: Vec<RemoteWorker>,
    pub(crate) pairs: Vec<(String, String)>,
    /// Batches that nobody waits for any more and that may still arrive.
    pub(crate) late_batches: Vec<Batch>,
    pub(crate) sinks: Vec<String>,
    pub(crate) sink_down: bool,
    /// Markers that a publisher has taken and not yet dealt with.
    pub(crate) taken: Vec<Marker>,
    pub(crate) limits: Limits,
    /// One piece of work in so many fails.
    pub(crate) fails: u64,
    pub(crate) requests: u64,
    pub(crate) tickets: u64,
    pub(crate) oracle: Oracle,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) max_runs: usize,
    /// The faults are over.
    pub(crate) quiet: bool,
    last: VecDeque<String>,
    trace: Option<String>,
}

impl Simulation {
    fn new(seed: u64, options: &Options) -> Result<Simulation, String> {
        let mut rng = Rng::new(seed);
        let workload = Workload::new(options.workload.as_deref())?;
        let pairs = workload.pairs();
        let count = usize::try_from(rng.between(1, 3)).unwrap_or(1);
        let sim_store = Arc::new(SimStore::new(seed, START, count > 1, options.sabotage));
        let sinks: Vec<String> = ["audit", "bus"]
            .into_iter()
            .take(rng.index(3))
            .map(str::to_owned)
            .collect();
        let limits = match rng.below(4) {
            0 => Limits {
                total: Some(2),
                ..Limits::default()
            },
            1 => Limits {
                per_tenant: Some(2),
                per_plan: Some(1),
                when_full: match rng.below(3) {
                    0 => WhenFull::Delay { by_ms: 5_000 },
                    1 => WhenFull::Reject {
                        retry_after_ms: 100,
                    },
                    _ => WhenFull::Queue,
                },
                ..Limits::default()
            },
            _ => Limits::default(),
        };
        let mut simulation = Simulation {
            seed,
            now: START,
            step: 0,
            workload,
            servers: Vec::new(),
            remotes: (0..2)
                .map(|no| RemoteWorker::new(&format!("remote-{no}")))
                .collect(),
            pairs,
            late_batches: Vec::new(),
            sink_down: false,
            taken: Vec::new(),
            fails: rng.between(3, 12),
            requests: 0,
            tickets: 0,
            oracle: Oracle::default(),
            sabotage: options.sabotage,
            max_runs: usize::try_from(rng.between(2, 10)).unwrap_or(2),
            quiet: false,
            last: VecDeque::new(),
            trace: options.trace.then(String::new),
            rng,
            sim_store,
            sinks,
            limits,
        };
        for no in 0..count {
            let config = simulation.config(no);
            let mut server = Server::new(&simulation.sim_store, config);
            server.boot(&simulation.workload, START);
            simulation.servers.push(server);
        }
        Ok(simulation)
    }

    fn config(&mut self, no: usize) -> Config {
        let serves = match self.rng.below(4) {
            0 => Serves::Nothing,
            1 | 2 => Serves::Everything,
            _ => {
                let rng = &mut self.rng;
                let some: HashSet<(String, String)> = { self.pairs.iter() }
                    .filter(|_| !rng.one_in(3))
                    .cloned()
                    .collect();
                Serves::Only(Arc::new(some))
            }
        };
        Config {
            name: format!("server-{no}"),
            serves,
            capacity: usize::try_from(self.rng.between(1, 8)).unwrap_or(1),
            limits: self.limits.clone(),
            sinks: self.sinks.clone(),
            cache: usize::try_from(self.rng.between(0, 4)).unwrap_or(1),
            ..Config::default()
        }
    }

    pub(crate) fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// Writes an action down.
    pub(crate) fn say(&mut self, what: &str) {
        let since = self.now.0 - START.0;
        let line = format!("{:5} +{since:<9} {what}", self.step);
        if let Some(trace) = &mut self.trace {
            // Writing to a string cannot fail.
            let _ = writeln!(trace, "{line}");
        }
        self.last.push_back(line);
        if self.last.len() > SHOWN {
            self.last.pop_front();
        }
    }

    pub(crate) fn set_now(&mut self, now: Time) {
        self.now = now;
        self.sim_store.set_now(now);
    }

    /// Handles the notices of a coordinator.
    pub(crate) fn listen(&mut self, no: usize) -> Result<(), String> {
        let Some(server) = self.servers.get_mut(no) else {
            return Ok(());
        };
        let Some(coordinator) = server.coordinator.as_mut() else {
            return Ok(());
        };
        let notices: Vec<Notice> = coordinator.notices().collect();
        if notices.is_empty() {
            return Ok(());
        }
        // What is said is committed, so the log must show it.
        self.oracle.read(&self.sim_store)?;
        for notice in notices {
            match notice {
                Notice::Start(job) => {
                    let claim = &job.claimed.claim;
                    let (target, execution) = (claim.target, claim.execution);
                    if self.sabotage != Some(Sabotage::StartEarly) {
                        self.oracle
                            .begins(job.run, target, execution, &claim.worker)?;
                    }
                    let text = format!("s{no} begins {} of {}", job.claimed.step_id, job.run.0);
                    self.say(&text);
                    self.servers[no].tasks.push(LocalTask {
                        job: *job,
                        stopped: false,
                        reported: false,
                    });
                }
                Notice::Stop {
                    run,
                    target,
                    execution,
                } => {
                    for work in &mut self.servers[no].tasks {
                        let claim = &work.job.claimed.claim;
                        let same = claim.target == target && claim.execution == execution;
                        work.stopped |= work.job.run == run && same;
                    }
                }
                Notice::Answer(ticket, answer) => self.answered(no, ticket, answer)?,
                Notice::Offer { .. }
                | Notice::Person { .. }
                | Notice::MissingChild { .. }
                | Notice::Published(..)
                | Notice::Alert(..)
                | Notice::Changed { .. }
                | Notice::Ended(..) => {}
            }
        }
        Ok(())
    }

    /// Everything that must be true now.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        if !self.sim_store.take_touched() {
            return Ok(());
        }
        let list = self.oracle.read(&self.sim_store)?;
        self.oracle.children()?;
        liveness::check(&self.oracle, &self.sim_store, &list, &self.limits)
    }

    fn live(&mut self, steps: u64) -> Result<(), String> {
        let fault_rate = [0, 400, 100];
        let fault_rate = fault_rate[self.rng.index(fault_rate.len())];
        self.sim_store.set_fault_rate(fault_rate);
        for _ in 0..steps {
            self.step += 1;
            self.act()?;
            self.check()?;
        }
        self.settle()
    }

    fn violation(&self, what: String, options: &Options) -> Violation {
        Violation {
            options: options.clone(),
            seed: self.seed,
            step: self.step,
            what,
            last: self.last.iter().cloned().collect(),
        }
    }
}

/// Lives through the simulation of a seed.
pub fn simulate(seed: u64, options: &Options) -> Result<Report, Box<Violation>> {
    let mut simulation = Simulation::new(seed, options).map_err(|what| {
        Box::new(Violation {
            seed,
            step: 0,
            what,
            last: Vec::new(),
            options: options.clone(),
        })
    })?;
    let lived = simulation.live(options.steps);
    if let Err(what) = lived {
        if let Some(trace) = &simulation.trace {
            print!("{trace}");
        }
        return Err(Box::new(simulation.violation(what, options)));
    }
    let kinds: BTreeMap<_, _> = { simulation.oracle.effects.iter() }.collect();
    Ok(Report {
        steps: simulation.step,
        runs: simulation.oracle.runs.len(),
        events: simulation.oracle.events,
        effects: kinds.len(),
        trace: simulation.trace.unwrap_or_default(),
    })
}
