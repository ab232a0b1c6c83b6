//! A simulation: one store, a few servers, workers and people outside, and a time of its own. Every step is
//! drawn from the seed, so a simulation that went wrong goes wrong again in the same way.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use stepwell_engine::chunk;
use stepwell_engine::coordinator::{Config, Serves};
use stepwell_engine::limits::{Limits, WhenFull};
use stepwell_engine::store::{Delivered, Marker};
use stepwell_kernel::time::Time;

use crate::definitions::Definition;
use crate::external::RemoteWorker;
use crate::liveness;
use crate::oracle::Oracle;
use crate::pipelines::Pipelines;
use crate::report::Report;
use crate::rng::Rng;
use crate::sabotage::Sabotage;
use crate::server::{LocalTask, PendingRequest, RequestNo, Server, Told};
use crate::sim_store::SimStore;
use crate::workload::Workload;

/// Start time of every simulation: 2026-02-11T10:30:00.000Z
pub(crate) const START: Time = Time(1_770_805_800_000);
/// How many of the last actions are shown.
const SHOWN: usize = 50;

/// Settings of a simulation.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many steps with faults it takes; then the faults stop.
    pub steps: u64,
    /// Run only this workload; all workloads if none.
    pub workload: Option<String>,
    /// The most servers; up to three if none.
    pub max_servers: Option<usize>,
    /// The most runs that are started; up to fourteen if none.
    pub max_runs: Option<usize>,
    /// Whether the store is SQLite on a faulty disk; if none, one simulation in twelve has it.
    pub on_disk: Option<bool>,
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
            max_servers: None,
            max_runs: None,
            on_disk: None,
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
        if let Some(name) = &self.options.workload {
            write!(f, " --workload {name}")?;
        }
        if let Some(servers) = self.options.max_servers {
            write!(f, " --max-servers {servers}")?;
        }
        if let Some(runs) = self.options.max_runs {
            write!(f, " --max-runs {runs}")?;
        }
        if let Some(on_disk) = self.options.on_disk {
            write!(f, " --on-disk {on_disk}")?;
        }
        if let Some(sabotage) = self.options.sabotage {
            write!(f, " --sabotage {sabotage:?}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Violation {}

/// Writes an action down, if someone wants to read it.
macro_rules! say {
    ($simulation:expr, $($words:tt)+) => {
        if $simulation.records {
            let line = format!($($words)+);
            $simulation.write_down(&line);
        }
    };
}

pub(crate) use say;

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
    pub(crate) sinks: Vec<String>,
    pub(crate) sink_down: bool,
    /// Markers that a publisher has taken and not yet dealt with.
    pub(crate) taken: Vec<Marker>,
    pub(crate) limits: Limits,
    /// All servers do all work and have little room for it, so that they share it.
    crowded: bool,
    /// One piece of work in so many fails.
    pub(crate) fails: u64,
    pub(crate) requests: u64,
    pub(crate) tickets: u64,
    pub(crate) oracle: Oracle,
    /// The workers that run pipelines; made when the first pipeline is run.
    pub(crate) pipelines: Option<Pipelines>,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) max_runs: usize,
    /// How much time has passed, in milliseconds.
    passed_ms: u64,
    /// The faults are over.
    pub(crate) quiet: bool,
    /// Nobody has an answer of the store left from before.
    pub(crate) healed: bool,
    /// Actions are written down. Most simulations are right, and nobody reads what they did.
    pub(crate) records: bool,
    last: VecDeque<String>,
    trace: Option<String>,
}

impl Simulation {
    fn new(seed: u64, options: &Options, records: bool) -> Result<Simulation, String> {
        let mut rng = Rng::new(seed);
        let mut drawn = Rng::new(seed ^ 0xd1ce);
        let workload = Workload::new(options.workload.as_deref(), options.sabotage, &mut drawn)?;
        let pairs = workload.pairs();
        let count = usize::try_from(rng.between(1, 3)).unwrap_or(1);
        let count = count.min(options.max_servers.unwrap_or(count));
        let committers = usize::try_from(rng.between(1, 2)).unwrap_or(1);
        let on_disk = match options.on_disk {
            Some(on_disk) => on_disk,
            None => rng.one_in(12),
        };
        // A store on a disk is inside of its one process.
        let (count, committers) = if on_disk { (1, 1) } else { (count, committers) };
        let how = (count > 1, committers);
        let sim_store = SimStore::new(seed, START, how, options.sabotage, on_disk)?;
        let sim_store = Arc::new(sim_store);
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
            servers: Vec::new(),
            remotes: (0..2)
                .map(|no| RemoteWorker::new(&format!("remote-{no}")))
                .collect(),
            pairs,
            sink_down: false,
            taken: Vec::new(),
            fails: rng.between(3, 12),
            requests: 0,
            tickets: 0,
            oracle: Oracle {
                drawn: workload.drawn.clone(),
                ..Oracle::default()
            },
            pipelines: None,
            passed_ms: 0,
            sabotage: options.sabotage,
            max_runs: {
                let most = usize::try_from(rng.between(3, 14)).unwrap_or(3);
                options.max_runs.unwrap_or(most).min(most)
            },
            quiet: false,
            healed: false,
            workload,
            records: records || options.trace,
            last: VecDeque::new(),
            trace: options.trace.then(String::new),
            rng,
            sim_store,
            sinks,
            limits,
            crowded: count > 1 && Rng::new(seed ^ 0xc402d).one_in(3),
        };
        for no in 0..count {
            let config = simulation.config(no);
            let shards = [1, 1, 2, 3][simulation.rng.index(4)];
            let mut server = Server::new(&simulation.sim_store, config, shards, START);
            server.boot(&simulation.workload);
            simulation.servers.push(server);
        }
        Ok(simulation)
    }

    fn config(&mut self, no: usize) -> Config {
        let serves = match self.rng.below(4) {
            _ if self.crowded => Serves::Only(Arc::new(self.pairs.iter().cloned().collect())),
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
            capacity: usize::try_from(self.rng.between(1, if self.crowded { 2 } else { 8 }))
                .unwrap_or(1),
            limits: self.limits.clone(),
            sinks: self.sinks.clone(),
            cache: usize::try_from(self.rng.between(0, 4)).unwrap_or(1),
            ..Config::default()
        }
    }

    pub(crate) fn ticket(&mut self) -> RequestNo {
        self.tickets += 1;
        self.tickets
    }

    pub(crate) fn write_down(&mut self, what: &str) {
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
        self.passed_ms += now.since(self.now);
        self.now = now;
        self.sim_store.set_now(now);
        if self.sabotage == Some(Sabotage::StopClock) {
            return;
        }
        for server in &self.servers {
            server.set_now(now);
        }
    }

    /// Handles what the engine of a server has told.
    pub(crate) fn listen(&mut self, no: usize) -> Result<(), String> {
        for claim in self.sim_store.take_early() {
            self.oracle
                .begins(claim.run, claim.target, claim.execution, &claim.worker)?;
        }
        let all = self.servers[no].ear.take();
        self.take_given(no)?;
        self.answer_starts(no)?;
        if all.is_empty() {
            return Ok(());
        }
        // What is said is committed, so the log must show it.
        self.oracle.read(&self.sim_store)?;
        for told in all {
            match told {
                Told::Begin(mut job, reporter) => {
                    if self.sabotage == Some(Sabotage::WrongParams) {
                        job.claimed.params = Arc::new(serde_json::json!({ "n": -1 }));
                    }
                    if self.sabotage == Some(Sabotage::SameFence) {
                        job.claimed.fence = 1;
                    }
                    let claim = &job.claimed.claim;
                    let (target, execution) = (claim.target, claim.execution);
                    if self.sabotage != Some(Sabotage::StartEarly) {
                        self.oracle
                            .begins(job.run, target, execution, &claim.worker)?;
                        self.oracle.gets(job.run, target, &job.claimed)?;
                        self.oracle.tells(job.run, &job.claimed)?;
                    }
                    if self.sabotage == Some(Sabotage::WorkTwice) {
                        self.oracle
                            .begins(job.run, target, execution, &claim.worker)?;
                    }
                    let (step, run) = (&job.claimed.step_id, job.run.0);
                    say!(self, "s{no} begins {step} of {run}");
                    self.servers[no].tasks.push(LocalTask {
                        job: *job,
                        reporter,
                        stopped: false,
                        reported: false,
                    });
                }
                Told::Stop {
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
                Told::Answer(ticket, answer) => self.answered(no, ticket, answer)?,
                Told::Delivered(ticket, came) => {
                    let asked = self.servers[no].asked.remove(&ticket);
                    if let (Some(PendingRequest::Event(event)), Ok(Delivered::Kept)) =
                        (asked, &came)
                    {
                        self.oracle.kept.push(event);
                    }
                    say!(self, "s{no} delivered {ticket}: {came:?}");
                }
                Told::StoreFailed(error) if self.healed => {
                    return Err(format!("s{no} has no store: {error}"));
                }
                Told::StoreFailed(error) => say!(self, "s{no} has no store: {error}"),
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
        self.sim_store.set_fault_rate(fault_rate, 8);
        for _ in 0..steps {
            self.step += 1;
            self.act()?;
            self.check()?;
        }
        self.settle()
    }

    fn violation(&self, what: String, options: &Options) -> Violation {
        let mut last: Vec<String> = self.last.iter().cloned().collect();
        if self.records {
            last.extend(self.log_of_the_culprit(&what));
        }
        Violation {
            options: options.clone(),
            seed: self.seed,
            step: self.step,
            what,
            last,
        }
    }

    /// The definition and the log of the run that a violation begins with.
    fn log_of_the_culprit(&self, what: &str) -> Vec<String> {
        let store = self.sim_store.store();
        let run_id = what.split([':', ' ']).next().unwrap_or_default();
        let Ok(Some(run)) = store.find(run_id) else {
            return Vec::new();
        };
        let observed = self.oracle.runs.get(&run);
        let drawn = observed.and_then(|it| self.workload.drawn.get(&it.plan.net().plan_id));
        let text = drawn.map(Definition::text).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for chunk in store.chunks(run, 0, usize::MAX).unwrap_or_default() {
            let events = chunk::decode(chunk.first, chunk.codec, &chunk.body);
            for event in events.unwrap_or_default() {
                let since = event.at.0 - START.0;
                lines.push(format!("{run_id} {} +{since} {:?}", event.seq, event.body));
            }
        }
        lines
    }
}

/// Lives through the simulation of a seed. A simulation that goes wrong is lived through once more, to write down what
/// was done in it.
pub fn simulate(seed: u64, options: &Options) -> Result<Report, Box<Violation>> {
    // With a bug on purpose something is expected to go wrong.
    let records = options.trace || options.sabotage.is_some();
    let lived = live_through(seed, options, records);
    let Err(first) = lived else {
        return lived;
    };
    if records {
        return Err(first);
    }
    match live_through(seed, options, true) {
        Err(again) if without_numbers(&again.what) == without_numbers(&first.what) => Err(again),
        other => {
            let other = other.map_or_else(|it| it.what, |_| "nothing".to_owned());
            let what = format!("{}; lived through again: {other}", first.what);
            Err(Box::new(Violation { what, ..*first }))
        }
    }
}

/// What went wrong, without what may differ from one time to the next, such as the name of a folder.
fn without_numbers(what: &str) -> String {
    what.chars().filter(|it| !it.is_ascii_digit()).collect()
}

fn live_through(seed: u64, options: &Options, records: bool) -> Result<Report, Box<Violation>> {
    let mut simulation = Simulation::new(seed, options, records).map_err(|what| {
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
    let runs = simulation.oracle.runs.values();
    Ok(Report {
        store: simulation.sim_store.kind(),
        steps: simulation.step,
        judged: runs.filter(|it| it.model.is_some()).count(),
        runs: simulation.oracle.runs.len(),
        events: simulation.oracle.events,
        effects: simulation.oracle.effects.len(),
        simulated_ms: simulation.passed_ms,
        faults: simulation.sim_store.faults(),
        coverage: simulation.oracle.coverage,
        trace: simulation.trace.unwrap_or_default(),
    })
}
