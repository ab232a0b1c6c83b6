//! The queue: runs that wait for a slot are started while slots are free, first come first served.

use std::collections::HashSet;

use stepwell_kernel::state::Phase;
use stepwell_kernel::time::Time;

use super::{Coordinator, Slots};
use crate::error::Error;
use crate::store::RunNo;

/// How many queued runs are looked at when slots may be free.
const QUEUE_PAGE: usize = 128;

impl Coordinator {
    /// Starts queued runs while slots are free. Two servers that do this at once start each run once:
    /// starting is an append like any other.
    pub fn dequeue(&mut self, now: Time) -> Result<(), Error> {
        for run in self.queued(now)? {
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
                continue;
            }
            self.start_run(run, now);
            // One at a time: the next may need the slot that this one takes.
            if !self.config.limits.are_none() {
                self.slots.look();
                return Ok(());
            }
        }
        Ok(())
    }

    /// Queued runs that this server may start.
    fn queued(&self, now: Time) -> Result<Vec<RunNo>, Error> {
        let Some(only) = &self.config.only else {
            return Ok(self.store.queued(now, QUEUE_PAGE)?);
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
            return Ok(Vec::new());
        }
        // However many of others' are before ours.
        let mut queued = self.store.queued(now, usize::MAX)?;
        queued.retain(|run| ours.contains(run));
        Ok(queued)
    }
}
