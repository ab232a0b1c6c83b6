//! How a coordinator works: what it serves, how much at a time, for whom.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use stepwell_kernel::effect::Target;
use stepwell_kernel::plan::Plan;

use crate::limits::Limits;

/// Which work this process does itself.
#[derive(Clone)]
pub enum Serves {
    /// None: work is offered to others.
    Nothing,
    /// All.
    Everything,
    /// These queues and operations.
    Only(Arc<HashSet<(String, String)>>),
}

impl Serves {
    pub(super) fn has(&self, queue: &str, operation: &str) -> bool {
        match self {
            Serves::Nothing => false,
            Serves::Everything => true,
            // Borrowed pairs cannot be looked up in a set of owned ones; the sets are small.
            Serves::Only(set) => set.iter().any(|(q, o)| q == queue && o == operation),
        }
    }
}

impl fmt::Debug for Serves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Serves::Nothing => f.write_str("Nothing"),
            Serves::Everything => f.write_str("Everything"),
            Serves::Only(set) => write!(f, "Only({})", set.len()),
        }
    }
}

/// How a coordinator works.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which engine the log names.
    pub engine_type: &'static str,
    /// What this server is called.
    pub name: String,
    /// Which work this process does itself.
    pub serves: Serves,
    /// The only runs that are started and worked on here; absent means all. Runs that this coordinator
    /// creates and their children join them. Messages and dead servers are seen to for all runs, and
    /// time too where there is nobody else who does.
    pub only: Option<HashSet<String>>,
    /// How much of it at a time.
    pub capacity: usize,
    /// How much of a queue's at a time, for queues with a limit of their own. What finds no room is not
    /// claimed, so its timeout does not run.
    pub queues: BTreeMap<String, usize>,
    /// How many runs may run at a time.
    pub limits: Limits,
    /// Who gets every event.
    pub sinks: Vec<String>,
    /// How many runs are kept in memory when nothing is to be done for them.
    pub cache: usize,
    /// Runs that have ended are kept in memory like others: for those who look at them there.
    pub keeps_ended: bool,
    /// How long a session lives without being renewed.
    pub session_ms: u64,
    /// How often the store is asked for what others have left there.
    pub poll_ms: u64,
    /// How long a result may take to be written before the step fails instead.
    pub write_budget_ms: u64,
    /// A state is not written down for a log shorter than this.
    pub snapshot_bytes: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            engine_type: "native",
            name: "stepwell".into(),
            serves: Serves::Nothing,
            only: None,
            capacity: 1_000,
            queues: BTreeMap::new(),
            limits: Limits::default(),
            sinks: Vec::new(),
            cache: 4_096,
            keeps_ended: false,
            session_ms: 15_000,
            poll_ms: 500,
            write_budget_ms: 3_000,
            snapshot_bytes: 1024 * 1024,
        }
    }
}

impl Config {
    pub(crate) fn works_on(&self, run_id: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(run_id))
    }

    /// Whether this process does a run's work itself.
    pub(crate) fn does(&self, run_id: &str, plan: &Plan, target: Target) -> bool {
        let (queue, op) = crate::rows::served_by(plan, target);
        self.serves.has(queue, op) && self.works_on(run_id)
    }
}
