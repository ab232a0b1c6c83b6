//! What this process does at a time, and how work is claimed: no more than there is room for, in all
//! and of each queue with a limit. Runs whose work finds no room stand in line.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::Value as Json;
use stepwell_kernel::command::{Command, Env, Reply};
use stepwell_kernel::decide::decide;
use stepwell_kernel::effect::Target;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use super::{Config, Coordinator, HotRun};
use crate::rows::served_by;
use crate::store::RunNo;

/// Work of this process in flight or being claimed. A run's jobs change only here, together with
/// their counts.
#[derive(Debug, Default)]
pub(super) struct Load {
    busy: usize,
    /// How many of `busy` are of which queue.
    queues: HashMap<String, usize>,
    /// Runs with work of a queue that was full, in turn.
    lines: BTreeMap<String, VecDeque<RunNo>>,
}

impl Load {
    pub(super) fn busy(&self) -> usize {
        self.busy
    }

    /// How much more this process may do.
    pub(super) fn room(&self, config: &Config) -> usize {
        config.capacity.saturating_sub(self.busy)
    }

    /// How much more of a queue's work this process may do.
    pub(super) fn room_in(&self, queue: &str, config: &Config) -> usize {
        let room = self.room(config);
        let Some(limit) = config.queues.get(queue) else {
            return room;
        };
        let busy = self.queues.get(queue).copied().unwrap_or(0);
        room.min(limit.saturating_sub(busy))
    }

    /// A run has this work in flight. An execution that timed out may still be known; it makes room
    /// for this one.
    pub(super) fn begin(&mut self, hot: &mut HotRun, target: Target, execution: u32) {
        if hot.jobs.insert(target, execution).is_some() {
            return;
        }
        let queue = served_by(&hot.plan, target).0;
        self.busy += 1;
        match self.queues.get_mut(queue) {
            Some(count) => *count += 1,
            None => drop(self.queues.insert(queue.to_owned(), 1)),
        }
    }

    /// A run has this work in flight no longer.
    pub(super) fn end(&mut self, hot: &mut HotRun, target: Target) {
        if hot.jobs.remove(&target).is_some() {
            self.less(served_by(&hot.plan, target).0);
        }
    }

    /// A run is forgotten with all its work.
    pub(super) fn forget(&mut self, hot: &mut HotRun) {
        for target in hot.jobs.keys() {
            self.less(served_by(&hot.plan, *target).0);
        }
        self.leave(hot);
    }

    fn less(&mut self, queue: &str) {
        self.busy = self.busy.saturating_sub(1);
        if let Some(count) = self.queues.get_mut(queue) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.queues.remove(queue);
            }
        }
    }

    /// A run stands in line for a queue that is full.
    fn stand(&mut self, hot: &mut HotRun, queue: &str) {
        if hot.lines.insert(queue.to_owned()) {
            let line = self.lines.entry(queue.to_owned()).or_default();
            line.push_back(hot.run);
        }
    }

    /// A run has nothing to stand in line for.
    fn leave(&mut self, hot: &mut HotRun) {
        for queue in std::mem::take(&mut hot.lines) {
            if let Some(line) = self.lines.get_mut(&queue) {
                line.retain(|run| *run != hot.run);
            }
        }
    }

    fn next_in_line(&mut self, queue: &str) -> Option<RunNo> {
        let next = self.lines.get_mut(queue)?.pop_front();
        if next.is_none() {
            self.lines.remove(queue);
        }
        next
    }
}

impl Coordinator {
    /// Lets runs that found no room try again.
    pub(super) fn feed(&mut self, now: Time) {
        let mut free = self.load.room(&self.config);
        while free > 0 {
            let Some(run) = self.awaiting_capacity.pop_front() else {
                break;
            };
            if let Some(hot) = self.runs.get_mut(&run) {
                hot.awaiting_capacity = false;
                free = free.saturating_sub(hot.ready.len().max(1));
                self.look_at(run);
            }
        }
        let queues: Vec<String> = self.load.lines.keys().cloned().collect();
        for queue in queues {
            let mut room = self.load.room_in(&queue, &self.config);
            while room > 0 {
                let Some(run) = self.load.next_in_line(&queue) else {
                    break;
                };
                if let Some(hot) = self.runs.get_mut(&run) {
                    hot.lines.remove(&queue);
                    // A run whose work is gone leaves its turn to the next.
                    room -= usize::from(hot.has_ready(&queue, now));
                    self.look_at(run);
                }
            }
        }
    }

    /// A run no longer stands in line. What it stood there for may be gone by now, and what is left
    /// may be for later.
    fn look_at(&mut self, run: RunNo) {
        self.dirty.insert(run);
        self.set_timer(run);
    }

    /// Claims what this process can do now, in the same commit as what made it ready.
    pub(super) fn claim_ready(&mut self, run: RunNo, now: Time) {
        loop {
            let Some(hot) = self.runs.get_mut(&run) else {
                return;
            };
            if hot.owner(hot.draft.as_ref(), self.session).is_some() {
                // It is for the server that has the run.
                hot.ready.clear();
            }
            if hot.ready.is_empty() {
                self.load.leave(hot);
                return;
            }
            let Some((visible_at, order, target)) = hot.next_ready() else {
                return;
            };
            if visible_at > now || self.stopping {
                return;
            }
            if self.load.room(&self.config) == 0 {
                if !hot.awaiting_capacity {
                    hot.awaiting_capacity = true;
                    self.awaiting_capacity.push_back(run);
                }
                return;
            }
            let plan = hot.plan.clone();
            let queue = served_by(&plan, target).0;
            if self.load.room_in(queue, &self.config) == 0 {
                self.load.stand(hot, queue);
                continue;
            }
            hot.ready.remove(&(visible_at, order, target));
            let claim = Command::ClaimStep {
                target,
                worker: self.worker.clone(),
                lease_until: now.plus(lease_ms(&plan)),
            };
            let env = Env {
                now,
                key: self.key.clone(),
            };
            // A task that is out of date is dropped: the state offers it again when it is due.
            let Ok(decision) = decide(&plan, &mut hot.state, claim, &env) else {
                continue;
            };
            let draft = hot.absorb(decision.events);
            if let Reply::Claimed(claimed) = decision.reply {
                let execution = claimed.claim.execution;
                draft.starts.push(*claimed);
                self.load.begin(hot, target, execution);
            }
            self.follow(run, decision.effects);
        }
    }
}

/// How long a lease is granted for. What this process does itself is its session's as long as that
/// lives, whatever this says.
fn lease_ms(plan: &Plan) -> u64 {
    let own = plan.net().extra.get("leaseSeconds").and_then(Json::as_u64);
    own.map_or(30_000, |seconds| seconds.saturating_mul(1_000))
}
