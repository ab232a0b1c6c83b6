//! How many step-runs are in which condition, kept up to date so that no question about the run as a
//! whole has to look at every step.

use serde::{Deserialize, Serialize};

use super::step_run::{Status, StepRun};

/// Counts of open step-runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// The engine must act.
    pub arrived: u32,
    /// Tokens that may not enter.
    pub denied: u32,
    /// Can be claimed and have never run.
    pub ready: u32,
    /// Can be claimed (perhaps later) and have run before.
    pub again: u32,
    /// A worker has them: these are in flight.
    pub running: u32,
    /// Wait for a person or an event.
    pub waits_outside: u32,
    /// Wait for time.
    pub waits_time: u32,
    /// Wait for a child.
    pub waits_child: u32,
    /// Their items run.
    pub looping: u32,
    /// Wait for an operator.
    pub held: u32,
    /// Joins that have some of their tokens but not all.
    pub starved: u32,
    /// Step-runs that ended well, for the summary.
    pub succeeded: u32,
    /// Step-runs that failed for good.
    pub failed: u32,
    /// Step-runs that were skipped.
    pub skipped: u32,
}

impl Tally {
    /// Counts a step-run in.
    pub fn enter(&mut self, run: &StepRun) {
        if let Some(count) = self.slot(run) {
            *count += 1;
        }
    }

    /// Counts a step-run out, before it changes.
    pub fn leave(&mut self, run: &StepRun) {
        if let Some(count) = self.slot(run) {
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
