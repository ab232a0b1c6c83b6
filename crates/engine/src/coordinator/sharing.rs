//! Sharing: servers of one store do each other's work. Work that finds no room here is offered to the others as a
//! task, and keeps its place in line; work that others offer is taken while there is room. A run is the unit: while a
//! server does some work of a run, all of the run is that server's.

use std::collections::{BTreeMap, HashMap};

use stepwell_kernel::time::Time;

use super::{Coordinator, HotRun, Serves};
use crate::rows::{parse_target, served_by};
use crate::store::{Guard, RunNo, StoreError, TaskRow};

/// How many tasks are asked for at a time.
const PAGE: usize = 256;
/// How long a task that is about to be claimed is not offered to other workers, in milliseconds.
const RESERVE_MS: u64 = 10_000;
/// How many runs of a queue and operation are offered with one poll: a server that is alone writes no more than this
/// for nobody.
const OFFERED: usize = 128;

/// Whether others offer more work than there was room for.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    more: bool,
    look: bool,
}

impl Sharing {
    /// There is room for more work than the runs of this server have.
    pub(super) fn has_room(&mut self) {
        self.look |= std::mem::take(&mut self.more);
    }

    pub(super) fn must_look(&self) -> bool {
        self.look
    }

    /// Whether the work that others offer is to be looked at now; asked for once.
    pub(super) fn take_look(&mut self) -> bool {
        std::mem::take(&mut self.look)
    }
}

impl Coordinator {
    /// Offers to other servers what has found no room here since the last poll. What lies there already is taken first.
    pub(super) fn share(&mut self, now: Time) -> Result<(), StoreError> {
        let serves = matches!(self.config.serves, Serves::Only(_));
        if !serves || self.stopping || self.config.only.is_some() || self.store_is_ours() {
            return Ok(());
        }
        let session = self.lease.session();
        // By queue and operation, how many may still be offered.
        let mut left: HashMap<(String, String), usize> = HashMap::new();
        let waiting: Vec<RunNo> = self.capacity.waiting().collect();
        for run in waiting {
            let Some(hot) = self.runs.get_mut(run).filter(|hot| is_sharable(hot)) else {
                continue;
            };
            if hot.head().session != Some(session) {
                continue;
            }
            let Some(first) = hot.work().ready().next() else {
                continue;
            };
            let (queue, op) = served_by(hot.plan(), first);
            let pair = (queue.to_owned(), op.to_owned());
            let left = match left.get_mut(&pair) {
                Some(left) => left,
                None => {
                    let lying = self.store.next_visible(std::slice::from_ref(&pair))?;
                    let lies = lying.is_some_and(|at| at <= now);
                    left.entry(pair).or_insert(if lies { 0 } else { OFFERED })
                }
            };
            if *left > 0 {
                *left -= 1;
                hot.share();
                self.schedule.mark(run);
            }
        }
        Ok(())
    }

    /// Work that others have left and that this process has room for.
    pub(super) fn reserve_tasks(&mut self, now: Time) -> Result<(), StoreError> {
        let set = match &self.config.serves {
            // A server that serves everything does so only for the runs that it is asked for.
            Serves::Nothing | Serves::Everything => return Ok(()),
            Serves::Only(set) => set.clone(),
        };
        // What lies there for runs that are worked on here is dispatched when they are attended to; the rest is not for a
        // server that works only on some runs.
        if self.stopping || self.config.only.is_some() {
            return Ok(());
        }
        // Each limited queue is asked for by itself: no more of it than it has room for.
        let mut asked: BTreeMap<Option<&str>, Vec<(String, String)>> = BTreeMap::new();
        for pair in &*set {
            let limited = self.config.queues.contains_key(&pair.0);
            let queue = limited.then_some(pair.0.as_str());
            asked.entry(queue).or_default().push(pair.clone());
        }
        let mut left = self.capacity.room(&self.config).min(PAGE);
        let mut more = false;
        for (queue, pairs) in asked {
            let room = match queue {
                Some(queue) => self.capacity.room_in(queue, &self.config).min(left),
                None => left,
            };
            if room == 0 {
                // Nobody has looked whether there is some.
                more = true;
                continue;
            }
            let (worker, until) = (self.lease.worker(), now.plus(RESERVE_MS));
            let tasks = self.store.reserve(&pairs, worker, now, until, room)?;
            left = left.saturating_sub(tasks.len());
            more |= tasks.len() == room;
            for task in tasks {
                self.take_reserved(task);
            }
        }
        self.sharing.more = more;
        Ok(())
    }

    /// A reserved task becomes work of this process: the claim takes the row away. A task that cannot be
    /// adopted is offered to others again when its reservation ends.
    pub(super) fn adopt(&mut self, task: &TaskRow) {
        let hot = match self.runs.load(task.run, self.room()) {
            Ok(hot) => hot,
            Err(error) => {
                tracing::warn!(%error, run = task.run.0, "a task's run cannot be read now");
                return;
            }
        };
        if hot.is_in_flight() || hot.is_owned_by_other(self.lease.session()) {
            return;
        }
        let Some(target) = parse_target(hot.plan(), &task.target) else {
            let what = "a task is named after no step of its run's plan";
            return self.invariants.broken(task.run, what);
        };
        if !self.config.does(hot, target) {
            // The run is of another engine.
            return;
        }
        let Some(worker) = task.worker.clone() else {
            let what = "a task was reserved for nobody";
            return self.invariants.broken(task.run, what);
        };
        hot.add_ready(target, task.visible_at);
        hot.draft().guard(&Guard::Lease {
            target: task.target.clone(),
            worker,
        });
        self.schedule.mark(task.run);
    }
}

/// Whether all that a run has to do here waits for room.
fn is_sharable(hot: &HotRun) -> bool {
    !hot.is_changing() && !hot.work().has_jobs() && !hot.work().is_shared()
}
