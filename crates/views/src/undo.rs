//! What a cancel with compensation would undo, before anybody cancels.

use serde_json::{Value as Json, json};
use stepwell_engine::rows::target_name;
use stepwell_kernel::decide::undo_order;
use stepwell_kernel::explain::{WakeSource, wake_sources};

use crate::RunView;

/// What would be undone, in this order, what cannot be undone, and the work whose end decides whether it is.
#[must_use]
pub fn preview(view: &RunView) -> Json {
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
    json!({
        "runId": state.run_id(),
        "ended": state.phase().is_ended(),
        "undo": undo.iter().map(|at| plan.step_id(*at)).collect::<Vec<_>>(),
        "cannotUndo": cannot.iter().map(|at| plan.step_id(*at)).collect::<Vec<_>>(),
        "inFlight": in_flight,
    })
}
