//! How a coordinator works: what it serves, how much at a time, for whom.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use stepwell_kernel::effect::Target;

use super::HotRun;
use crate::engine_routes::EngineRoutes;
use crate::limits::Limits;

/// Which work this process does itself.
#[derive(Clone)]
pub enum Serves {
    /// No work: all work is offered to workers in other processes.
    Nothing,
    /// The work of every queue and operation.
    Everything,
    /// The work of these pairs of queue and operation.
    Only(Arc<HashSet<(String, String)>>),
}

impl Serves {
    /// Whether work of this queue and operation is among it.
    #[must_use]
    pub fn has(&self, queue: &str, operation: &str) -> bool {
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

/// What happens to a step that waits for a child run whose definition cannot be found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingChildren {
    /// The step fails with CHILD_UNKNOWN.
    #[default]
    Fail,
    /// The driver is told (`Notice::MissingChild`) and says how the child ended.
    AskDriver,
}

/// The engine that pretends all work.
pub(crate) const PRETENDS: &str = "mock";
/// The engine that does the work itself.
pub(crate) const NATIVE: &str = "native";

/// How a coordinator works.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which engine the log names.
    pub engine_type: &'static str,
    /// What the engine's own ids of runs begin with, before the id of the run: empty, or the part of the engine that belongs
    /// to this store.
    pub engine_place: String,
    /// An engine outside, such as Temporal, moves the runs: time passes for a run only when that engine says so
    /// ([`crate::service::Handle::wake`]), and that engine hands out the work.
    pub driven: bool,
    /// Engines outside that move some of the runs; this process moves the rest.
    pub routes: Option<Arc<EngineRoutes>>,
    pub missing_children: MissingChildren,
    /// What this server is called. Programs call themselves `app:host:pid` ([`Config::process_name`]), and readers of
    /// the store add the number of the session.
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
    /// Names of the sinks that get every event.
    pub sinks: Vec<String>,
    /// How many runs are kept in memory when nothing is to be done for them.
    pub cache: usize,
    /// Runs that have ended are kept in memory like others: for those who look at them there.
    pub keeps_ended: bool,
    /// How long a session lives without being renewed, where other processes share the store: at least 5 s, so that a
    /// renewal that hangs can be given up in time. Where a lock proves that there is no other process, a session of a
    /// service ends only with its process.
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
            engine_type: NATIVE,
            engine_place: String::new(),
            driven: false,
            routes: None,
            missing_children: MissingChildren::default(),
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
    /// The name of this process: the program, the machine and the id of the process.
    #[must_use]
    pub fn process_name(app: &str) -> String {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let host = std::env::var("HOSTNAME").ok();
        let host = host.or_else(|| read("/proc/sys/kernel/hostname"));
        let host = host.or_else(|| read("/etc/hostname"));
        // Parts are separated by colons, and `#` begins the number of a shard.
        let clean = |text: &str| text.trim().replace([':', '#'], "-");
        let host = host.map(|it| clean(&it)).filter(|it| !it.is_empty());
        let host = host.unwrap_or_else(|| "localhost".into());
        format!("{}:{host}:{}", clean(app), std::process::id())
    }

    pub(crate) fn works_on(&self, run_id: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(run_id))
    }

    /// Whether work of a run may be given to workers in other processes that wait here: what was begun as a rehearsal is not
    /// finished for real.
    pub(super) fn may_hand_out(&self, hot: &HotRun) -> bool {
        self.is_of_this_engine(hot) && self.works_on(hot.run_id())
    }

    /// Whether this engine, or an engine outside that this process serves, moves the run. A run that has not started may become
    /// anyone's, and pretending does no harm to any run that this process is asked for.
    pub(super) fn is_of_this_engine(&self, hot: &HotRun) -> bool {
        let other = |engine: &str| engine != self.engine_type;
        self.engine_type == PRETENDS
            || !hot.state().engine().is_some_and(other)
            || self.is_routed(hot)
    }

    /// Whether one of the engines outside that this process serves beside its own moves the run: that engine has the timers of
    /// the run.
    pub(super) fn is_routed(&self, hot: &HotRun) -> bool {
        let served = |routes: &EngineRoutes| hot.state().engine().is_some_and(|it| routes.has(it));
        self.routes.as_deref().is_some_and(served)
    }

    /// Whether this process does a run's work itself.
    pub(super) fn does(&self, hot: &HotRun, target: Target) -> bool {
        self.is_of_this_engine(hot)
            && self.has_tool(hot, target)
            && self.works_on(hot.run_id())
            && !self.is_routed(hot)
    }

    /// Whether an engine outside hands the work out, to tools of the processes that serve it. Other work is for workers that
    /// wait at servers, whichever engine moves the run.
    pub(super) fn hands_out_outside(&self, hot: &HotRun, target: Target) -> bool {
        self.is_routed(hot) && self.has_tool(hot, target)
    }

    /// Whether the tools of this process could do the work.
    pub(super) fn has_tool(&self, hot: &HotRun, target: Target) -> bool {
        let (queue, op) = crate::rows::served_by(hot.plan(), target);
        self.serves.has(queue, op)
    }
}
