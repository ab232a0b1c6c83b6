//! What this server remembers of workers: who asked for work lately, which tasks they were given, which results were
//! accepted, and the step logs that they write. All of it may be lost: the store knows who has which lease.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stepwell_engine::remote::RemoteClaim;
use stepwell_engine::store::RunNo;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;
use stepwell_worker::logs::LogWriter;

/// Workers and tasks that are remembered; with more, the older ones are forgotten.
const MAX_KEPT: usize = 20_000;
/// A worker that has not asked for this long is no longer listed, in milliseconds.
const FORGOTTEN_MS: u64 = 10 * 60 * 1000;

/// A worker that asked for work lately.
#[derive(Clone, Debug)]
pub(crate) struct SeenWorker {
    /// The name that it has given itself.
    pub(crate) worker_id: String,
    pub(crate) tenant: Option<String>,
    pub(crate) serves: Vec<(String, String)>,
    pub(crate) last_seen: Time,
}

/// A task that a worker was given.
pub(crate) struct GivenTask {
    pub(crate) token: String,
    pub(crate) claim: RemoteClaim,
    pub(crate) plan: Arc<Plan>,
    /// The worker was told that the run no longer wants it.
    told: bool,
    log: Option<Arc<LogWriter>>,
}

/// Names a task: the run and the name of the target.
type TaskName = (RunNo, String);

#[derive(Default)]
struct RegistryState {
    workers: HashMap<String, SeenWorker>,
    given: HashMap<TaskName, GivenTask>,
    /// Hashes of results that were accepted, in two halves: the older one is dropped when the newer one is full.
    accepted: [HashSet<[u8; 32]>; 2],
}

/// What this server remembers of workers.
#[derive(Default)]
pub(crate) struct Registry(Mutex<RegistryState>);

impl Registry {
    fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker has asked for work. `name` is the one that leases have.
    pub(crate) fn seen(&self, name: &str, worker: SeenWorker) {
        let mut state = self.state();
        let now = worker.last_seen;
        if state.workers.len() >= MAX_KEPT {
            state
                .workers
                .retain(|_, it| it.last_seen.plus(FORGOTTEN_MS) >= now);
        }
        state.workers.insert(name.to_owned(), worker);
    }

    pub(crate) fn forget_worker(&self, name: &str) {
        let mut state = self.state();
        state.workers.remove(name);
        state.given.retain(|_, it| it.claim.worker != name);
    }

    /// The workers of a tenant, or all, with the names that leases have.
    pub(crate) fn workers(&self, tenant: Option<&str>, now: Time) -> Vec<(String, SeenWorker)> {
        let state = self.state();
        let lately = state.workers.iter().filter(|(_, it)| {
            it.last_seen.plus(FORGOTTEN_MS) >= now
                && tenant.is_none_or(|tenant| it.tenant.as_deref() == Some(tenant))
        });
        let mut all: Vec<_> = lately
            .map(|(name, it)| (name.clone(), it.clone()))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// A worker is given a task.
    pub(crate) fn give(&self, token: &str, claim: &RemoteClaim, plan: &Arc<Plan>) {
        let mut state = self.state();
        if state.given.len() >= MAX_KEPT {
            // What is left here was never reported; heartbeats say what became of it.
            state.given.clear();
        }
        let task = GivenTask {
            token: token.to_owned(),
            claim: claim.clone(),
            plan: Arc::clone(plan),
            told: false,
            log: None,
        };
        state.given.insert((claim.run, claim.name.clone()), task);
    }

    /// The plan of a task, if this server gave it.
    pub(crate) fn plan_of(&self, claim: &RemoteClaim) -> Option<Arc<Plan>> {
        let state = self.state();
        let given = state.given.get(&(claim.run, claim.name.clone()));
        given.map(|it| Arc::clone(&it.plan))
    }

    /// The run of a task, if this server gave it.
    pub(crate) fn run_id_of(&self, run: RunNo, name: &str) -> Option<String> {
        let state = self.state();
        let given = state.given.get(&(run, name.to_owned()));
        given.map(|it| it.claim.run_id.clone())
    }

    /// The tokens of tasks that their worker must stop, and whether it was not told so before.
    pub(crate) fn stops(&self, tasks: impl Iterator<Item = TaskName>) -> (Vec<String>, bool) {
        let mut state = self.state();
        let (mut tokens, mut news) = (Vec::new(), false);
        for task in tasks {
            if let Some(given) = state.given.get_mut(&task) {
                news |= !std::mem::replace(&mut given.told, true);
                tokens.push(given.token.clone());
            }
        }
        (tokens, news)
    }

    /// The log of a task; begun with its first line.
    pub(crate) fn log_of(
        &self,
        claim: &RemoteClaim,
        begin: impl FnOnce() -> Arc<LogWriter>,
    ) -> Arc<LogWriter> {
        let mut state = self.state();
        let given = state.given.get_mut(&(claim.run, claim.name.clone()));
        match given.filter(|it| it.claim.execution == claim.execution) {
            Some(given) => Arc::clone(given.log.get_or_insert_with(begin)),
            // Given by another server, or reported already: these lines are appended.
            None => begin(),
        }
    }

    /// A task was reported; its log can be closed.
    pub(crate) fn reported(&self, claim: &RemoteClaim, result: [u8; 32]) -> Option<Arc<LogWriter>> {
        let mut state = self.state();
        if state.accepted[0].len() >= MAX_KEPT {
            let full = std::mem::take(&mut state.accepted[0]);
            state.accepted[1] = full;
        }
        state.accepted[0].insert(result);
        let task = (claim.run, claim.name.clone());
        let is_this = |it: &GivenTask| it.claim.execution == claim.execution;
        match state.given.get(&task).is_some_and(is_this) {
            true => state.given.remove(&task).and_then(|it| it.log),
            false => None,
        }
    }

    /// Whether exactly this result was accepted before.
    pub(crate) fn was_accepted(&self, result: &[u8; 32]) -> bool {
        self.state().accepted.iter().any(|it| it.contains(result))
    }
}
