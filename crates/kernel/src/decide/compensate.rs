//! Compensation: what was done is undone, in reverse order of completion, one at a time. So is work that was cut
//! off, of which nobody knows whether it was done. A step that failed by itself is never among it.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | Stopping with compensation, nothing is in flight, steps had effects | `CompensationStarted` | – |
//! | Compensating, nothing is left to undo | the end of the run, by `stop.rs` | – |

use super::Decider;
use crate::event::{Body, Rollback, UndoOutcome, UndoResult};
use crate::plan::{Plan, StepRef};
use crate::state::{State, Undoing};

/// What would be undone if the run stopped now with compensation, in this order, and what had effects and cannot be undone.
/// Work in flight is in neither: how it ends decides.
#[must_use]
pub fn undo_order(plan: &Plan, state: &State) -> (Vec<StepRef>, Vec<StepRef>) {
    let marked = state.marked().iter().rev().copied();
    marked.partition(|at| plan.step(at.step).undo.is_some())
}

impl Decider<'_> {
    /// Starts undoing if anything left a mark. Says whether there was.
    pub(super) fn begin_compensation(&mut self) -> bool {
        let (undo, not_compensable) = undo_order(self.plan, self.state);
        if undo.is_empty() && not_compensable.is_empty() {
            return false;
        }
        self.emit(Body::CompensationStarted {
            undo,
            not_compensable,
        });
        true
    }

    pub(super) fn settle_compensation(&mut self) {
        if self.state.undoing().is_none_or(Undoing::is_over) {
            self.end_run();
        }
    }

    /// How far the undoing came: complete only if everything that left a mark was undone.
    pub(super) fn rollback(&self) -> (Rollback, Vec<UndoResult>) {
        let Some(undoing) = self.state.undoing() else {
            return (Rollback::None, Vec::new());
        };
        let mut results = undoing.results().to_vec();
        results.extend(
            undoing
                .todo()
                .iter()
                .skip(undoing.next())
                .map(|step| UndoResult::untried(*step, UndoOutcome::NotRun)),
        );
        let complete = results
            .iter()
            .all(|result| result.outcome == UndoOutcome::Done);
        (
            if complete {
                Rollback::Complete
            } else {
                Rollback::Incomplete
            },
            results,
        )
    }
}
