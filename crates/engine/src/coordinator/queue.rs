//! The queue: runs that wait for a slot are started while slots are free, first come first served.

use std::collections::HashSet;

use stepwell_kernel::state::Phase;
use stepwell_kernel::time::Time;

use super::{Coordinator, Handoff, Notice, Slots};
use crate::error::Error;
use crate::store::RunNo;

/// How many queued runs are looked at when slots may be free.
const QUEUE_PAGE: usize = 128;

/// For how many polls a server that works on some runs only leaves a free slot to the runs before its own. The process that works
/// on these runs takes it meanwhile; there may be no such process.
const GIVE_WAY_POLLS: u64 = 3;

impl Coordinator {
    /// Starts queued runs while slots are free. Two servers that do this at once start each run once:
    /// starting is an append like any other.
    pub fn dequeue(&mut self, now: Time) -> Result<(), Error> {
        let (queued, others_before) = self.queued(now)?;
        for run in queued {
            if !self.shard.has(run) {
                // First come, first served, whichever shard has the run.
                if self.may_start_elsewhere(run)? {
                    if self.slots.tell(run) {
                        self.notices.push(Notice::Elsewhere(Handoff::Queued(run)));
                    }
                    // It may need the slot that the next would take.
                    if !self.config.limits.are_none() {
                        return Ok(());
                    }
                }
                continue;
            }
            let hot = match self.runs.load(run, self.room()) {
                Ok(hot) => hot,
                Err(Error::Store(error)) => return Err(error.into()),
                // One that cannot be read must not hold up those behind it.
                Err(error) => {
                    tracing::error!(%error, "a queued run cannot be started");
                    continue;
                }
            };
            // Something else is about to move it, or has.
            if hot.is_changing() || hot.state().phase() != Phase::Queued {
                continue;
            }
            let limits = &self.config.limits;
            if Slots::full(limits, &*self.store, hot.plan(), hot.state())?.is_some() {
                self.slots.none_free();
                continue;
            }
            let patience = GIVE_WAY_POLLS.saturating_mul(self.config.poll_ms);
            if others_before && !limits.are_none() && !self.slots.is_left(now, patience) {
                // Looked at again with the next poll.
                return Ok(());
            }
            self.start_run(run, None, now);
            // One at a time: the next may need the slot that this one takes.
            if !self.config.limits.are_none() {
                self.slots.look();
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether a queued run of another shard could start now.
    fn may_start_elsewhere(&mut self, run: RunNo) -> Result<bool, Error> {
        if self.config.limits.are_none() {
            return Ok(true);
        }
        // Read anew: nothing here hears of what its own shard does with it.
        self.refresh(run);
        let hot = match self.runs.load(run, self.room()) {
            Ok(hot) => hot,
            Err(Error::Store(error)) => return Err(error.into()),
            // Its own shard says so.
            Err(_) => return Ok(false),
        };
        if hot.state().phase() != Phase::Queued {
            return Ok(false);
        }
        let limits = &self.config.limits;
        Ok(Slots::full(limits, &*self.store, hot.plan(), hot.state())?.is_none())
    }

    /// Queued runs that this server may start, and whether runs that it may not start stand before them.
    fn queued(&self, now: Time) -> Result<(Vec<RunNo>, bool), Error> {
        let Some(only) = &self.config.only else {
            return Ok((self.store.queued(now, QUEUE_PAGE)?, false));
        };
        let mut ours = HashSet::new();
        for run_id in only {
            match self.runs.number_of(run_id) {
                Ok(run) => drop(ours.insert(run)),
                // A child that is yet to be created has no number.
                Err(Error::UnknownRun(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if ours.is_empty() {
            return Ok((Vec::new(), false));
        }
        // However many of others' are before ours.
        let mut queued = self.store.queued(now, usize::MAX)?;
        let others_before = queued.first().is_some_and(|first| !ours.contains(first));
        queued.retain(|run| ours.contains(run));
        Ok((queued, others_before))
    }
}
