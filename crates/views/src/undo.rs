//! What a cancel with compensation would undo, before anybody cancels.

use std::collections::BTreeSet;

use stepwell_engine::rows::target_name;
use stepwell_kernel::decide::undo_order;
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::plan::StepRef;
use stepwell_kernel::state::{Status, Visit};

use crate::RunView;
use crate::run_ext::UndoPreview;

/// The steps that a cancel with compensation would undo now, in this order.
#[must_use]
pub fn undone_steps(view: &RunView) -> Vec<String> {
    let (undo, _) = undo_order(&view.plan, &view.state);
    undo.iter().map(|at| view.plan.step_id(*at)).collect()
}

/// What would be undone, in this order, what cannot be undone, and the work whose end decides whether it is.
#[must_use]
pub fn preview(view: &RunView) -> UndoPreview {
    let (plan, state) = (&view.plan, &view.state);
    let (undo, cannot) = undo_order(plan, state);
    let in_flight: Vec<String> = wake_sources(plan, state)
        .into_iter()
        .filter_map(|source| match source {
            WakeSource::Lease { target, .. } => Some(target_name(plan, target)),
            WakeSource::Queue
            | WakeSource::Task { .. }
            | WakeSource::Outside { .. }
            | WakeSource::Child { .. }
            | WakeSource::Timer { .. }
            | WakeSource::Operator
            | WakeSource::Ctx { .. }
            | WakeSource::Proceed => None,
        })
        .collect();
    let stays = plan.numbers().flat_map(|no| {
        let visits = state.steps()[no.0 as usize].visits().iter().zip(1..);
        let is_done = |(visit, _): &(&Visit, u32)| visit.run().status() == Status::Succeeded;
        visits.filter(is_done).map(move |(_, visit)| StepRef {
            visit,
            ..StepRef::first(no)
        })
    });
    // The items of a loop are undone one by one, and their loop with them.
    let marked: BTreeSet<StepRef> = undo
        .iter()
        .chain(&cannot)
        .map(|at| at.visit_ref())
        .collect();
    let stays = stays.filter(|at| !marked.contains(at));
    let message = match undo.is_empty() {
        true => "nothing would be undone",
        false => {
            "these steps are undone by a cancel with `compensate: true`; a cancel without it undoes nothing"
        }
    };
    UndoPreview {
        run_id: state.run_id().to_owned(),
        message: message.to_owned(),
        ended: state.phase().is_ended(),
        undo: undo.iter().map(|at| plan.step_id(*at)).collect(),
        cannot_undo: cannot.iter().map(|at| plan.step_id(*at)).collect(),
        stays: stays.map(|at| plan.step_id(at)).collect(),
        in_flight,
    }
}
