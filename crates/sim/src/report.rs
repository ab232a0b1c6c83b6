//! What a simulation came to, and what many of them came to together: faults by kind, kinds of events and transitions
//! that were seen.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use stepwell_kernel::event::EventType;

/// How often each kind of fault was injected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(BTreeMap<&'static str, u64>);

impl Faults {
    pub(crate) fn count(&mut self, fault: &'static str) {
        *self.0.entry(fault).or_default() += 1;
    }

    pub(crate) fn count_many(&mut self, fault: &'static str, count: u64) {
        *self.0.entry(fault).or_default() += count;
    }

    fn add(&mut self, other: &Faults) {
        for (fault, count) in &other.0 {
            *self.0.entry(fault).or_default() += count;
        }
    }

    /// How many faults there were in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// Which kinds of events were seen, each after which kind of the same step or run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    transitions: BTreeMap<(&'static str, &'static str), u64>,
}

impl Coverage {
    pub(crate) fn see(&mut self, before: &'static str, kind: &'static str) {
        *self.transitions.entry((before, kind)).or_default() += 1;
    }

    fn add(&mut self, other: &Coverage) {
        for (transition, count) in &other.transitions {
            *self.transitions.entry(*transition).or_default() += count;
        }
    }

    /// How many transitions were seen: two kinds of events of the same step or run, one right after the other.
    #[must_use]
    pub fn transitions(&self) -> usize {
        self.transitions.len()
    }

    /// How often each kind of event was seen, and those that never were.
    #[must_use]
    pub fn kinds(&self) -> (BTreeMap<&'static str, u64>, Vec<&'static str>) {
        let mut seen: BTreeMap<&'static str, u64> = BTreeMap::new();
        for ((_, kind), count) in &self.transitions {
            *seen.entry(kind).or_default() += count;
        }
        let all = EventType::ALL.iter().map(|it| it.name());
        let missing = all.filter(|it| !seen.contains_key(it)).collect();
        (seen, missing)
    }
}

/// The store of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreKind {
    /// The memory store, of one server.
    #[default]
    Memory,
    /// The memory store, which several servers share as they do PostgreSQL.
    SharedMemory,
    /// SQLite on a disk that fails.
    Sqlite,
}

impl StoreKind {
    fn words(self) -> &'static str {
        match self {
            StoreKind::Memory => "memory, one server",
            StoreKind::SharedMemory => "memory, shared by servers",
            StoreKind::Sqlite => "SQLite on a faulty disk",
        }
    }
}

/// What a simulation came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The store that it had.
    pub store: StoreKind,
    /// How many steps it took, the quiet ones included.
    pub steps: u64,
    /// How many runs there were.
    pub runs: usize,
    /// How many of them the model judged.
    pub judged: usize,
    /// How many events their logs have.
    pub events: u64,
    /// How much work was done.
    pub effects: usize,
    /// How much time passed in the simulation, in milliseconds.
    pub simulated_ms: u64,
    /// The faults that were injected.
    pub faults: Faults,
    /// The kinds of events and transitions that were seen.
    pub coverage: Coverage,
    /// Every action, if that was asked for.
    pub trace: String,
}

/// How much was simulated in how much time.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    simulations: u64,
    runs: usize,
    simulated_ms: u64,
    took: Duration,
}

impl Pace {
    fn add(&mut self, report: &Report, took: Duration) {
        self.simulations += 1;
        self.runs += report.runs;
        self.simulated_ms += report.simulated_ms;
        self.took += took;
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64().max(0.001);
        let hours = self.simulated_ms as f64 / 3_600_000.0;
        write!(
            f,
            "{} runs of {} simulations, {hours:.0} simulated hours in {seconds:.1} s: {:.0} runs a second, {:.0} simulated \
             hours a minute",
            self.runs,
            self.simulations,
            self.runs as f64 / seconds,
            hours * 60.0 / seconds,
        )
    }
}

/// What many simulations came to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How many simulations were right.
    pub right: u64,
    sum: Report,
    paces: BTreeMap<StoreKind, Pace>,
}

impl Summary {
    /// Adds a simulation that was right, and how long it took.
    pub fn add(&mut self, report: &Report, took: Duration) {
        self.right += 1;
        self.paces
            .entry(report.store)
            .or_default()
            .add(report, took);
        let sum = &mut self.sum;
        sum.steps += report.steps;
        sum.runs += report.runs;
        sum.judged += report.judged;
        sum.events += report.events;
        sum.effects += report.effects;
        sum.simulated_ms += report.simulated_ms;
        sum.faults.add(&report.faults);
        sum.coverage.add(&report.coverage);
    }

    /// How many runs there were.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.sum.runs
    }

    /// How much was simulated so far and how fast, in one line.
    #[must_use]
    pub fn pace(&self) -> String {
        let mut all = Pace::default();
        for pace in self.paces.values() {
            all.simulations += pace.simulations;
            all.runs += pace.runs;
            all.simulated_ms += pace.simulated_ms;
            all.took += pace.took;
        }
        all.to_string()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = &self.sum;
        writeln!(
            f,
            "{} simulations are right: {} runs ({} judged by the model), {} events, {} pieces of work, {} steps",
            self.right, sum.runs, sum.judged, sum.events, sum.effects, sum.steps
        )?;
        writeln!(f, "pace: {}", self.pace())?;
        for (kind, pace) in &self.paces {
            writeln!(f, "  {}: {pace}", kind.words())?;
        }
        writeln!(f, "faults injected: {}", sum.faults.total())?;
        for (fault, count) in &sum.faults.0 {
            writeln!(f, "  {count:>10}  {fault}")?;
        }
        let (seen, missing) = sum.coverage.kinds();
        writeln!(
            f,
            "coverage: {} of {} kinds of events, {} transitions",
            seen.len(),
            seen.len() + missing.len(),
            sum.coverage.transitions()
        )?;
        for (kind, count) in &seen {
            writeln!(f, "  {count:>10}  {kind}")?;
        }
        if !missing.is_empty() {
            writeln!(f, "never seen: {}", missing.join(", "))?;
        }
        Ok(())
    }
}
