//! What this server remembers of workers: who asked for work lately, which tasks they were given, which results were
//! accepted, and the step logs that they write. All of it may be lost: the store knows who has which lease.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stepwell_engine::remote::RemoteClaim;
use stepwell_engine::store::RunNo;
use stepwell_kernel::event::ArtifactRef;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;
use stepwell_worker::logs::LogWriter;

/// Workers and tasks that are remembered; with more, the older ones are forgotten.
const MAX_KEPT: usize = 20_000;
/// Artifacts of one task that are remembered.
const MAX_ARTIFACTS: usize = 100;
/// A worker that has not asked for this long is no longer listed, in milliseconds.
const FORGOTTEN_MS: u64 = 10 * 60 * 1000;
/// A worker that has no request open is taken to be there for this long after its last one, in milliseconds: it works on
/// what it was given, and asks again.
const THERE_MS: u64 = 30 * 1000;

/// A worker that asked for work lately.
#[derive(Clone, Debug)]
pub(crate) struct SeenWorker {
    /// The name that it has given itself.
    pub(crate) worker_id: String,
    pub(crate) tenant: Option<String>,
    pub(crate) serves: Vec<(String, String)>,
    pub(crate) last_seen: Time,
    /// How many requests for work of this worker are open.
    open: usize,
}

impl SeenWorker {
    pub(crate) fn new(
        worker_id: String,
        tenant: Option<String>,
        serves: Vec<(String, String)>,
        last_seen: Time,
    ) -> SeenWorker {
        SeenWorker {
            worker_id,
            tenant,
            serves,
            last_seen,
            open: 0,
        }
    }

    /// Whether the worker is there now, as far as this server knows.
    pub(crate) fn is_there(&self, now: Time) -> bool {
        self.open > 0 || self.last_seen.plus(THERE_MS) >= now
    }
}

/// A task that a worker was given.
pub(crate) struct GivenTask {
    pub(crate) token: String,
    pub(crate) claim: RemoteClaim,
    pub(crate) plan: Arc<Plan>,
    /// The worker was told that the run no longer wants it.
    told: bool,
    log: Option<Arc<LogWriter>>,
    /// What the worker has put: it is not read again to see whether a result says the truth about it.
    kept: Vec<ArtifactRef>,
}

/// Names a task: the run and the name of the target.
type TaskName = (RunNo, String);
/// Names an execution of a task.
type Execution = (RunNo, String, u32);

fn execution(claim: &RemoteClaim) -> Execution {
    (claim.run, claim.name.clone(), claim.execution)
}

#[derive(Default)]
struct RegistryState {
    workers: HashMap<String, SeenWorker>,
    /// When the leases of a worker were looked at last.
    looked: HashMap<String, Time>,
    given: HashMap<TaskName, GivenTask>,
    /// Hashes of results that were accepted, in two halves: the older one is dropped when the newer one is full.
    accepted: [HashMap<Execution, [u8; 32]>; 2],
}

/// What this server remembers of workers.
#[derive(Default)]
pub(crate) struct Registry(Mutex<RegistryState>);

impl Registry {
    fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker begins a request for work. `name` is the one that leases have.
    pub(crate) fn begins(&self, name: &str, mut worker: SeenWorker) {
        let mut state = self.state();
        let now = worker.last_seen;
        worker.open = 1 + state.workers.get(name).map_or(0, |it| it.open);
        if state.workers.len() >= MAX_KEPT {
            state
                .workers
                .retain(|_, it| it.last_seen.plus(FORGOTTEN_MS) >= now);
        }
        state.workers.insert(name.to_owned(), worker);
    }

    /// A request for work of a worker is over: answered, or its connection is gone.
    pub(crate) fn ends(&self, name: &str, now: Time) {
        if let Some(worker) = self.state().workers.get_mut(name) {
            worker.open = worker.open.saturating_sub(1);
            worker.last_seen = worker.last_seen.max(now);
        }
    }

    /// The workers that are there now.
    pub(crate) fn there(&self, now: Time) -> Vec<SeenWorker> {
        let state = self.state();
        let there = state.workers.values().filter(|it| it.is_there(now));
        there.cloned().collect()
    }

    pub(crate) fn forget_worker(&self, name: &str) {
        let mut state = self.state();
        state.workers.remove(name);
        state.looked.remove(name);
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
            kept: Vec::new(),
        };
        state.given.insert((claim.run, claim.name.clone()), task);
    }

    /// The plan of a task, if this server gave it.
    pub(crate) fn plan_of(&self, claim: &RemoteClaim) -> Option<Arc<Plan>> {
        let state = self.state();
        let given = state.given.get(&(claim.run, claim.name.clone()));
        given.map(|it| Arc::clone(&it.plan))
    }

    /// Whether another execution of the task was given since: then this one is over, whoever has the lease now.
    pub(crate) fn is_replaced(&self, claim: &RemoteClaim) -> bool {
        let state = self.state();
        let given = state.given.get(&(claim.run, claim.name.clone()));
        given.is_some_and(|it| it.claim.execution != claim.execution)
    }

    /// A worker has put an artifact of a task.
    pub(crate) fn kept(&self, claim: &RemoteClaim, reference: &ArtifactRef) {
        let mut state = self.state();
        if let Some(given) = state.given.get_mut(&(claim.run, claim.name.clone()))
            && given.claim.execution == claim.execution
            && given.kept.len() < MAX_ARTIFACTS
        {
            given.kept.push(reference.clone());
        }
    }

    /// Whether the worker of a task has put exactly this artifact.
    pub(crate) fn has_kept(&self, claim: &RemoteClaim, reference: &ArtifactRef) -> bool {
        let state = self.state();
        let given = state.given.get(&(claim.run, claim.name.clone()));
        let is_it = |it: &ArtifactRef| {
            let of = |it: &ArtifactRef| (it.uri.clone(), it.sha256.clone(), it.size_bytes);
            of(it) == of(reference)
        };
        given.is_some_and(|given| given.kept.iter().any(is_it))
    }

    /// The run of a task, if this server gave it.
    pub(crate) fn run_id_of(&self, run: RunNo, name: &str) -> Option<String> {
        let state = self.state();
        let given = state.given.get(&(run, name.to_owned()));
        given.map(|it| it.claim.run_id.clone())
    }

    /// Whether the leases of a worker are to be looked at now, since nobody has for a while. Several requests of a worker, and
    /// those that come often, share a look.
    pub(crate) fn is_time_to_look(&self, worker: &str, now: Time, pause_ms: u64) -> bool {
        let mut state = self.state();
        let looked = state.looked.get(worker);
        if looked.is_some_and(|at| now.since(*at) < pause_ms) {
            return false;
        }
        if state.looked.len() >= MAX_KEPT {
            state.looked.clear();
        }
        state.looked.insert(worker.to_owned(), now);
        true
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
        state.accepted[0].insert(execution(claim), result);
        let task = (claim.run, claim.name.clone());
        let is_this = |it: &GivenTask| it.claim.execution == claim.execution;
        match state.given.get(&task).is_some_and(is_this) {
            true => state.given.remove(&task).and_then(|it| it.log),
            false => None,
        }
    }

    /// The hash of the result of an execution, if this server has accepted one.
    pub(crate) fn result_of(&self, claim: &RemoteClaim) -> Option<[u8; 32]> {
        let (state, execution) = (self.state(), execution(claim));
        let mut halves = state.accepted.iter();
        halves.find_map(|half| half.get(&execution).copied())
    }
}
