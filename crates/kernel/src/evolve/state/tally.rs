//! How many step-runs are in which status, kept up to date so that no question about the run as a whole
//! has to look at every step.

use serde::{Deserialize, Serialize};

use super::evolved::evolved;
use super::step_run::{Status, StepRun};

evolved! {
    /// Counts of step-runs by status.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Tally {
        /// Step-runs that the engine itself must act on.
        arrived: u32 => copy,
        /// Tokens that may not enter.
        denied: u32 => copy,
        /// Step-runs that can be claimed and have never run.
        ready: u32 => copy,
        /// Step-runs that can be claimed (perhaps later) and have run before.
        again: u32 => copy,
        /// Step-runs that a worker has: these are in flight.
        running: u32 => copy,
        /// Step-runs that wait for a person or an event.
        waits_outside: u32 => copy,
        /// Step-runs that wait for time.
        waits_time: u32 => copy,
        /// Step-runs that wait for a child run.
        waits_child: u32 => copy,
        /// Step-runs whose items run.
        looping: u32 => copy,
        /// Failed step-runs that wait for an operator.
        held: u32 => copy,
        /// Joins that have some of their tokens but not all.
        starved: u32 => copy,
        /// Step-runs that succeeded, for the summary of the run.
        succeeded: u32 => copy,
        /// Step-runs that failed for good.
        failed: u32 => copy,
        /// Step-runs that were skipped.
        skipped: u32 => copy,
    }
}

impl Tally {
    /// The counts of these step-runs. Joins that starve are counted apart.
    #[must_use]
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a StepRun>) -> Tally {
        let mut tally = Tally::default();
        runs.into_iter().for_each(|run| tally.enter(run));
        tally
    }

    /// Adds a step-run to the count of its status.
    pub(in crate::evolve) fn enter(&mut self, run: &StepRun) {
        if let Some(count) = self.slot(run) {
            *count += 1;
        }
    }

    /// Takes a step-run out of the count of its status, before the step-run changes.
    pub(in crate::evolve) fn leave(&mut self, run: &StepRun) {
        if let Some(count) = self.slot(run) {
            // Every step-run was counted when it appeared, so no count goes below zero.
            debug_assert!(*count > 0, "a step-run leaves a count of zero");
            *count = count.saturating_sub(1);
        }
    }

    fn slot(&mut self, run: &StepRun) -> Option<&mut u32> {
        Some(match run.status {
            Status::Arrived => &mut self.arrived,
            Status::Denied => &mut self.denied,
            Status::Ready if run.tries == 0 => &mut self.ready,
            Status::Ready => &mut self.again,
            Status::Running => &mut self.running,
            Status::Waiting if run.wait.as_ref().is_some_and(|wait| wait.is_outside()) => {
                &mut self.waits_outside
            }
            Status::Waiting if run.child().is_some() => &mut self.waits_child,
            Status::Waiting => &mut self.waits_time,
            Status::Looping => &mut self.looping,
            Status::Held => &mut self.held,
            Status::Succeeded => &mut self.succeeded,
            Status::Failed => &mut self.failed,
            Status::Skipped => &mut self.skipped,
            Status::Cancelled => return None,
        })
    }

    /// Step-runs that have not ended, tokens that may not enter left out.
    #[must_use]
    pub fn active(&self) -> u32 {
        self.arrived
            + self.ready
            + self.again
            + self.running
            + self.waits_outside
            + self.waits_time
            + self.waits_child
            + self.looping
            + self.held
    }

    /// Step-runs that nobody works on and that no child is awaited for: a run that stops ends them.
    #[must_use]
    pub fn idle(&self) -> u32 {
        self.arrived + self.denied + self.ready + self.again + self.waits_outside + self.waits_time
    }

    /// Step-runs that a run that stops waits for.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.running + self.waits_child + self.looping
    }

    /// Whether a started step-run does anything but wait for a person or an event.
    #[must_use]
    pub fn someone_works(&self) -> bool {
        self.running + self.again + self.waits_time + self.waits_child > 0
    }
}
