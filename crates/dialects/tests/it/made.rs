//! States made by hand, through their encoded form: only `evolve` can change a state itself.

use serde_json::{Value as Json, json};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::{FORMAT, State, Status};

/// The state that `change` leaves in the encoded form of this one.
pub(crate) fn edited(plan: &Plan, state: &State, change: impl FnOnce(&mut Json)) -> State {
    let mut encoded = serde_json::from_slice(&state.encode()).expect("the encoded state");
    change(&mut encoded);
    let bytes = serde_json::to_vec(&encoded).expect("JSON");
    State::decode(FORMAT, &bytes, plan).expect("a state of this plan")
}

/// A state before the first event, changed.
pub(crate) fn fresh(plan: &Plan, change: impl FnOnce(&mut Json)) -> State {
    edited(plan, &State::new("run_1", plan), change)
}

/// The encoded form of a first visit in this status.
pub(crate) fn visit(status: Status) -> Json {
    json!({ "run": {
        "status": status, "logical": 1, "execution": 0, "tries": 0, "visible_at": 0,
        "woken": false, "task": "READY_STEP", "params": 0, "compensation": "none",
        "routed": false,
    } })
}

/// The encoded form of a pause.
pub(crate) fn pause() -> Json {
    json!({ "ordinal": 1, "drain_timed_out": false })
}
