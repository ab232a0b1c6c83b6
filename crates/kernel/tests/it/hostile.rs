//! Logs and plans that mean harm: nothing panics, nothing grows without end.

use serde_json::{Value as Json, json};
use stepwell_kernel::decide::MAX_VISITS;
use stepwell_kernel::event::{Body, Event, SkipReason, StopCause};
use stepwell_kernel::evolve::{evolve, replay};
use stepwell_kernel::plan::{Edge, EntryPoint, Join, OnFailure, Route, StepNo, StepRef};
use stepwell_kernel::state::{FORMAT, State};

use crate::support::{Sim, net, task, tasks};

/// The event cannot follow, and leaves the state as it was.
#[track_caller]
fn refused(sim: &Sim, body: Body) -> &'static str {
    let mut state = sim.state.clone();
    let event = Event {
        seq: state.seq() + 1,
        at: state.last_at(),
        body,
    };
    let mut effects = Vec::new();
    let illegal = evolve(&sim.plan, &mut state, &event, &mut effects).unwrap_err();
    assert_eq!((illegal.seq, illegal.kind), (event.seq, event.body.kind()));
    assert_eq!(state, sim.state, "{illegal}");
    assert!(effects.is_empty(), "{illegal}");
    illegal.why
}

#[test]
fn an_event_that_cannot_follow_is_named_with_its_reason() {
    let mut sim = Sim::started(tasks(&["a", "b"]));
    sim.run("a").unwrap();
    let first = sim.events()[0].clone();
    assert_eq!(refused(&sim, first.body.clone()), "the run exists already");
    let done = sim.events().iter().rev().map(|it| it.body.clone());
    let mut done = done.filter(|body| matches!(body, Body::StepCompleted { .. }));
    let why = refused(&sim, done.next().unwrap());
    assert_eq!(why, "the status of the step-run does not allow it");
    // A log with a gap, a repeated event or a time that goes back is no log of a run.
    let events = sim.events();
    let whole = replay(&sim.plan, "run_sim", None, events).unwrap();
    assert_eq!(whole, sim.state);
    let gap = events.iter().filter(|event| event.seq != 3);
    let illegal = replay(&sim.plan, "run_sim", None, gap).unwrap_err();
    assert_eq!(
        illegal.to_string(),
        format!(
            "event 4 ({}{}) cannot follow the events before it: its sequence number is not the next one",
            events[3].body.kind(),
            illegal
                .step
                .as_ref()
                .map_or_else(String::new, |step| format!(" of {step}")),
        )
    );
    let mut early = events.to_vec();
    early[2].at = stepwell_kernel::time::Time(0);
    let illegal = replay(&sim.plan, "run_sim", None, &early).unwrap_err();
    assert_eq!(illegal.why, "it is earlier than the event before it");
}

#[test]
fn a_replay_goes_on_from_a_snapshot() {
    let mut sim = Sim::started(tasks(&["a", "b"]));
    let snapshot = sim.state.clone();
    sim.run("a").unwrap();
    let state = replay(&sim.plan, "run_sim", Some(snapshot), sim.events()).unwrap();
    assert_eq!(state, sim.state);
}

#[test]
fn events_that_name_no_step_of_the_plan_cannot_follow() {
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
        refused(&Sim::started(tasks(&["a"])), body);
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
        refused(&Sim::started(tasks(&["a"])), body);
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
