//! Work for workers in other processes: it is given to workers that wait, or found in the store and claimed for them,
//! their leases are extended, and their results are reported with the lease as guard. How a worker is talked to is the
//! caller's matter.
//!
//! ```text
//! sit ──────────────► given (committed) ─┬► the worker works, heartbeats ─► report (committed if the lease holds)
//! reserve ─► claim ─► claimed (committed) ┘           └─ no heartbeat: the lease ends, the work is offered again
//! ```
//!
//! A worker takes a seat before its results are reported: what they make ready is claimed for it in their commit.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stepwell_kernel::command::{Claim, Command, Reply};
use stepwell_kernel::effect::Target;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::time::Time;

use crate::coordinator::Assignment;
use crate::error::Error;
use crate::port::Clock;
use crate::rows::target_name;
use crate::seats::{Seat, Seats};
use crate::service::Handle;
use crate::store::{Guard, RunNo, Store, StoreError, TaskRow};

/// How long a task is reserved before its claim must be committed, in milliseconds.
const RESERVE_MS: u64 = 5_000;
/// How long it is believed that nothing lies in the store for a worker, in milliseconds: another server may have put
/// something there.
const CLEAR_MS: u64 = 1_000;

/// A worker in another process, and what it asks for.
#[derive(Clone, Debug)]
pub struct RemoteWorker {
    /// The name that leases and the log have.
    pub name: String,
    /// The only tenant whose work the worker may get; absent: all tenants.
    pub tenant: Option<String>,
    /// Pairs of queue and operation that the worker serves.
    pub serves: Vec<(String, String)>,
}

/// A claim of a worker in another process: what its result and its heartbeats must name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteClaim {
    #[serde(with = "run_number")]
    pub run: RunNo,
    pub run_id: String,
    pub target: Target,
    /// The name of the target's row.
    pub name: String,
    pub execution: u32,
    pub worker: String,
}

/// Run numbers as numbers.
mod run_number {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::store::RunNo;

    pub(super) fn serialize<S: Serializer>(run: &RunNo, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(run.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<RunNo, D::Error> {
        i64::deserialize(from).map(RunNo)
    }
}

impl RemoteClaim {
    /// The claim of an assignment.
    #[must_use]
    pub fn of(assignment: &Assignment) -> RemoteClaim {
        let claim = &assignment.claimed.claim;
        RemoteClaim {
            run: assignment.run,
            run_id: assignment.run_id.to_string(),
            target: claim.target,
            name: target_name(&assignment.plan, claim.target),
            execution: claim.execution,
            worker: claim.worker.clone(),
        }
    }

    /// The proof that the result of the work must have.
    #[must_use]
    pub fn proof(&self) -> Claim {
        Claim {
            target: self.target,
            execution: self.execution,
            worker: self.worker.clone(),
            // The guard of the commit says whether the lease holds.
            lease_until: None,
        }
    }

    fn guard(&self) -> Guard {
        Guard::Lease {
            target: self.name.clone(),
            worker: self.worker.clone(),
        }
    }
}

/// What a heartbeat found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// The lease holds, and is extended.
    Held,
    /// The run no longer wants the work: the worker must stop, and report that it has stopped.
    Stopping,
    /// The lease has ended: others may do the work, and a result is refused.
    Lost,
}

/// Gives work to workers in other processes, and takes their results.
#[derive(Clone)]
pub struct RemoteWork {
    store: Arc<dyn Store>,
    engine: Handle,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for RemoteWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteWork").finish_non_exhaustive()
    }
}

/// A task that is about to be claimed, as long as the value lives.
struct ReservedTask {
    seats: Arc<Seats>,
    run: RunNo,
    target: String,
}

impl Drop for ReservedTask {
    fn drop(&mut self) {
        self.seats.unreserve(self.run, &self.target);
    }
}

impl RemoteWork {
    #[must_use]
    pub fn new(store: Arc<dyn Store>, engine: Handle, clock: Arc<dyn Clock>) -> RemoteWork {
        RemoteWork {
            store,
            engine,
            clock,
        }
    }

    /// A worker waits for work, `places` tasks at most. `wake` is called, from any thread, when the seat has news: work was
    /// given, nothing more is on its way, or there may be something to reserve. It must not block.
    #[must_use]
    pub fn sit(
        &self,
        worker: RemoteWorker,
        places: usize,
        lease_ms: u64,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Seat {
        self.engine.seats().sit(worker, places, lease_ms, wake)
    }

    /// Until when there is nothing to reserve for a worker; none if `reserve` may find something.
    #[must_use]
    pub fn clear_until(&self, worker: &RemoteWorker) -> Option<Time> {
        self.engine.seats().may_lie(worker, self.clock.now()).err()
    }

    /// Reserves tasks that lie in the store for a worker. Asks the store, so it may block. Where no other process can claim
    /// them, a reservation is only in memory and ends with the process.
    pub fn reserve(&self, worker: &RemoteWorker, limit: usize) -> Result<Vec<TaskRow>, StoreError> {
        let (now, seats) = (self.clock.now(), self.engine.seats());
        let Ok(looked) = seats.may_lie(worker, now) else {
            return Ok(Vec::new());
        };
        if limit == 0 {
            return Ok(Vec::new());
        }
        let (tenant, serves) = (worker.tenant.as_deref(), &worker.serves);
        let found = match self.store.is_shared() {
            true => {
                let until = now.plus(RESERVE_MS);
                self.store
                    .reserve_for(tenant, serves, &worker.name, now, until, limit)?
            }
            false => {
                let most = limit.saturating_add(seats.reserved());
                let mut open = self.store.open_for(tenant, serves, now, most)?;
                for task in &mut open {
                    task.worker = Some(worker.name.clone());
                }
                seats.reserve(open, limit)
            }
        };
        if found.len() < limit {
            let next = self.store.next_visible(serves)?.filter(|at| *at > now);
            let until = now.plus(CLEAR_MS);
            seats.set_clear(worker, looked, next.map_or(until, |at| at.min(until)));
        }
        Ok(found)
    }

    /// Claims a reserved task for its worker until the lease ends. `on_claimed` is called on the engine's thread once
    /// the claim is committed. A task whose claim is refused is offered again when its reservation ends.
    pub fn claim(
        &self,
        task: TaskRow,
        lease_ms: u64,
        on_claimed: impl FnOnce(Result<Assignment, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        let until = self.clock.now().plus(lease_ms);
        let seats = Arc::clone(self.engine.seats());
        let (run, target) = (task.run, task.target.clone());
        let reserved = ReservedTask { seats, run, target };
        self.engine.claim_task(task, until, move |claimed| {
            drop(reserved);
            on_claimed(claimed);
        })
    }

    /// Reports the result of a claim; it counts if the lease holds when it is committed. A result that was reported before
    /// gets the first answer. `on_answer` is called on the engine's thread.
    pub fn report(
        &self,
        claim: &RemoteClaim,
        result: Command,
        on_answer: impl FnOnce(Result<Reply, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        let run = (claim.run, claim.run_id.as_str());
        let (engine, run_id) = (self.engine.clone(), claim.run_id.clone());
        let mut again = result.clone();
        if let Some(proof) = again.claim_mut() {
            // Long ago: a command with this proof changes nothing.
            proof.lease_until = Some(Time(0));
        }
        let answered = move |answer| match answer {
            // The row of work that was reported is gone, so the guard refuses a repetition too. What was answered the
            // first time is in the run.
            Err(Error::Rejected(lost)) if lost.code == Code::LeaseLost => {
                let on_answer = move |answer: Result<Reply, Error>| match answer {
                    Ok(Reply::Duplicate(earlier)) => on_answer(Ok(Reply::Duplicate(earlier))),
                    Ok(_) | Err(_) => on_answer(Err(lost.into())),
                };
                // If the engine is gone, nobody answers, and the caller notices that.
                let _ = engine.submit_with(&run_id, again, on_answer);
            }
            answer => on_answer(answer),
        };
        self.engine
            .submit_guarded(run, result, claim.guard(), answered)
    }

    /// Extends a lease. Asks the store, so it may block.
    pub fn heartbeat(&self, claim: &RemoteClaim, lease_ms: u64) -> Result<LeaseState, StoreError> {
        let now = self.clock.now();
        let (run, name, worker) = (claim.run, &claim.name, &claim.worker);
        let until = now.plus(lease_ms);
        let held = self.store.heartbeat(run, name, worker, now, until)?;
        self.lease_state(claim, held, now)
    }

    /// Extends a lease that nobody has ended, also if its time is over: the store was away, and its worker goes on. Asks the
    /// store, so it may block.
    pub fn revive(&self, claim: &RemoteClaim, lease_ms: u64) -> Result<LeaseState, StoreError> {
        let now = self.clock.now();
        let (run, name, worker) = (claim.run, &claim.name, &claim.worker);
        let until = now.plus(lease_ms);
        let held = self.store.revive(run, name, worker, now, until)?;
        self.lease_state(claim, held, now)
    }

    /// How a lease is that was extended, or could not be.
    fn lease_state(
        &self,
        claim: &RemoteClaim,
        held: bool,
        now: Time,
    ) -> Result<LeaseState, StoreError> {
        if held {
            return Ok(LeaseState::Held);
        }
        let (run, name, worker) = (claim.run, &claim.name, &claim.worker);
        let held = self.store.leases(Some(worker), None, usize::MAX)?;
        let stops = |task: &TaskRow| {
            task.run == run && task.target == *name && task.stopping && task.until >= Some(now)
        };
        Ok(match held.iter().any(stops) {
            true => LeaseState::Stopping,
            false => LeaseState::Lost,
        })
    }

    /// Which of these claims are still their workers': the lease has not ended and the work was not reported. A worker that is
    /// told to stop has its lease until it has stopped. Nothing is extended. Asks the store, so it may block.
    pub fn held(&self, claims: &[RemoteClaim]) -> Result<Vec<bool>, StoreError> {
        let now = self.clock.now();
        let mut leases: HashMap<&str, HashSet<(RunNo, String)>> = HashMap::new();
        for claim in claims {
            if let Entry::Vacant(worker) = leases.entry(&claim.worker) {
                let held = self.store.leases(Some(&claim.worker), None, usize::MAX)?;
                let alive = held.into_iter().filter(|it| it.until >= Some(now));
                worker.insert(alive.map(|it| (it.run, it.target)).collect());
            }
        }
        let has = |claim: &RemoteClaim| {
            let lease = (claim.run, claim.name.clone());
            let held = leases.get(claim.worker.as_str());
            held.is_some_and(|held| held.contains(&lease))
        };
        Ok(claims.iter().map(has).collect())
    }

    /// Ends all leases of a worker that has stopped its work: the work is offered again soon. Says how many there were.
    pub fn give_back(&self, worker: &str) -> Result<usize, StoreError> {
        let now = self.clock.now();
        let held = self.store.leases(Some(worker), None, usize::MAX)?;
        let mut given = 0;
        for task in held {
            // The lease ends now: who looks for leases that have ended finds it next.
            let ended = self
                .store
                .heartbeat(task.run, &task.target, worker, now, now)?;
            given += usize::from(ended);
        }
        Ok(given)
    }
}

#[cfg(test)]
mod tests;
