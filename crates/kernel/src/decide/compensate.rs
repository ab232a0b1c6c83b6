//! Compensation: what was done is undone, in reverse order of completion, one at a time. So is work that was cut
//! off, of which nobody knows whether it was done. A step that failed by itself is never among it.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | Stopping with compensation, nothing is in flight, steps had effects | `CompensationStarted` | – |
//! | Compensating, nothing is left to undo | the end of the run, by `stop.rs` | – |

use super::Decider;
use crate::event::{Body, Rollback, UndoOutcome, UndoResult};
use crate::plan::StepRef;
use crate::state::Undoing;

impl Decider<'_> {
    /// Starts undoing if anything left a mark. Says whether there was.
    pub(super) fn begin_compensation(&mut self) -> bool {
        let marked: Vec<StepRef> = self.state.marked().iter().rev().copied().collect();
        if marked.is_empty() {
            return false;
        }
        let (undo, not_compensable) = marked
            .into_iter()
            .partition(|at| self.plan.step(at.step).undo.is_some());
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
