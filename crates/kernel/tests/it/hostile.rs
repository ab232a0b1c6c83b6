//! Logs and plans that mean harm: nothing panics, nothing grows without end.

use serde_json::{Value as Json, json};
use stepwell_kernel::decide::MAX_VISITS;
use stepwell_kernel::event::{Body, Event, SkipReason, StopCause};
use stepwell_kernel::evolve::replay;
use stepwell_kernel::plan::{Edge, EntryPoint, Join, OnFailure, Plan, Route, StepNo, StepRef};
use stepwell_kernel::state::{FORMAT, State};

use crate::support::{Sim, net, task, tasks};

#[test]
fn events_that_name_no_step_of_the_plan_change_nothing() {
    let plan = Plan::new(tasks(&["a"])).unwrap();
    let nowhere = StepRef::first(StepNo(99));
    let bodies = [
        json!({"type": "StepStarted", "step": nowhere, "logical": 1, "execution": 1}),
        json!({"type": "StepCompleted", "step": nowhere, "logical": 1, "execution": 1}),
        json!({"type": "StepRouted", "step": StepRef::first(StepNo(0)), "routing": {"taken": [{"edge": 77}]}}),
        json!({"type": "StepCompleted", "step": {"step": 0, "visit": 0}, "logical": 1, "execution": 1}),
        json!({"type": "StepStarted", "step": {"step": 0, "visit": 9, "item": 4}, "logical": 1, "execution": 1}),
        json!({"type": "TokensAdmitted", "tokens": [nowhere]}),
        json!({"type": "CompensationStarted", "undo": [nowhere]}),
        json!({"type": "UndoCompleted", "step": nowhere, "execution": 1}),
    ];
    for body in bodies {
        let body: Body = serde_json::from_value(body).unwrap();
        let event = Event {
            seq: 1,
            at: crate::support::START,
            body,
        };
        let state = replay(&plan, "run_sim", std::slice::from_ref(&event));
        assert!(state.steps()[0].visits().is_empty(), "{event:?}");
    }
    let stop = Body::RunStopping {
        cause: StopCause::StepFailed { step: nowhere },
        compensate: true,
    };
    let skip = Body::StepSkipped {
        step: nowhere,
        logical: 1,
        reason: SkipReason::Operator,
    };
    for body in [stop, skip] {
        let event = Event {
            seq: 1,
            at: crate::support::START,
            body,
        };
        let state = replay(&plan, "run_sim", &[event]);
        assert_eq!(state.seq(), 1, "it is counted and nothing else");
    }
}

#[test]
fn a_cycle_that_never_ends_fails_the_run() {
    let mut plan = net(vec![task("a")], &[]);
    plan.edges = vec![Edge::plain(StepNo(0), StepNo(0))];
    plan.steps[0].join = Join::Each;
    plan.steps[0].route = Route::Exclusive;
    plan.steps[0].on_failure = OnFailure::Route;
    plan.policy.entry = EntryPoint::Step(StepNo(0));
    let mut sim = Sim::started(plan);
    sim.run("a").unwrap();
    sim.checked = false;
    // As if it had gone round so often already.
    let mut encoded: Json = serde_json::from_slice(&sim.state.encode()).unwrap();
    let visits = encoded["steps"][0]["visits"].as_array_mut().unwrap();
    let done = visits[0].clone();
    visits.resize(MAX_VISITS, done);
    let bytes = serde_json::to_vec(&encoded).unwrap();
    sim.state = State::decode(FORMAT, &bytes, &sim.plan).unwrap();
    sim.run("a#2").unwrap();
    let Some(Body::RunFailed { error, .. }) = sim.last() else {
        panic!("{:?}", sim.last());
    };
    assert_eq!(error.code, "TOO_MANY_VISITS");
}
