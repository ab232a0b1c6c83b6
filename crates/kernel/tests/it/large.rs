//! Large runs behave like small ones: nothing is forgotten where a decision is cut short and goes on
//! with `Proceed`. What they cost is measured by the bench `kernel`.

use serde_json::json;
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::Rollback;
use stepwell_kernel::plan::{Admission, AdmitRule, OnDenied, OnFailure, Route, Step, WaitOn};

use crate::conformance::c::{child, looped, template};
use crate::support::{Sim, net, task, waits};

/// More than fits one decision, several times over.
const LARGE: usize = 4_000;

fn many(size: usize, step: impl Fn(&str) -> Step) -> Sim {
    let steps = (0..size).map(|no| step(&format!("s{no}"))).collect();
    let mut sim = Sim::new(net(steps, &[]));
    sim.checked = false;
    sim.start().unwrap();
    while sim.proceed().is_ok() {}
    sim
}

fn names(size: usize) -> impl Iterator<Item = String> {
    (0..size).map(|no| format!("s{no}"))
}

#[test]
fn results_during_a_pause_all_count_in_a_large_run() {
    let size = LARGE;
    let mut sim = many(size, |name| Step {
        route: Route::Exclusive,
        ..task(name)
    });
    names(size).for_each(|name| drop(sim.claim(&name).unwrap()));
    sim.pause().unwrap();
    names(size).for_each(|name| drop(sim.complete(&name).unwrap()));
    sim.resume().unwrap();
    while sim.proceed().is_ok() {}
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn failures_during_a_pause_are_all_answered_in_a_large_run() {
    let size = LARGE;
    let mut sim = many(size, |name| Step {
        on_failure: OnFailure::Skip,
        ..task(name)
    });
    names(size).for_each(|name| drop(sim.claim(&name).unwrap()));
    sim.pause().unwrap();
    let class = stepwell_kernel::plan::ErrorClass::Validation;
    names(size).for_each(|name| drop(sim.fail(&name, class).unwrap()));
    sim.resume().unwrap();
    while sim.proceed().is_ok() {}
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn events_find_who_waits_for_them_in_a_large_run() {
    let size = LARGE;
    let on = || WaitOn::Event {
        event_type: "go".into(),
    };
    let mut sim = many(size, |name| waits(name, on(), None));
    for name in names(size) {
        sim.deliver(&name, "go", json!(1)).unwrap();
    }
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn children_are_all_awaited_in_a_large_run() {
    let size = LARGE;
    let mut sim = many(size, child);
    sim.cancel().unwrap();
    let cancelled = RunOutcome::Cancelled(Rollback::None);
    for name in names(size) {
        sim.child_ended(&name, cancelled, json!(null)).unwrap();
    }
    assert_eq!(sim.outcome(), Some(cancelled));
}

#[test]
fn loops_that_stop_are_all_ended_in_a_large_run() {
    let size = LARGE;
    let mut sim = many(size, |name| looped(name, 1, 1));
    names(size).for_each(|name| drop(sim.claim(&format!("{name}[0]")).unwrap()));
    sim.cancel().unwrap();
    for name in names(size) {
        sim.confirm_kill(&format!("{name}[0]")).unwrap();
    }
    assert!(sim.phase().is_ended());
}

fn gated_tokens(size: usize) -> Sim {
    // One step after another lets a token through to a step that does not admit it yet.
    let rule = |when: Option<&str>, allow| AdmitRule {
        when: when.map(template),
        allow,
    };
    let mut steps: Vec<Step> = names(size).map(|name| task(&name)).collect();
    steps.push(Step {
        join: stepwell_kernel::plan::Join::Each,
        admit: Some(Admission {
            rules: vec![rule(Some("{{ ctx.open }}"), true), rule(None, false)],
            denied: OnDenied::Pending,
        }),
        ..task("gate")
    });
    for step in &mut steps {
        step.route = Route::Inclusive;
    }
    let names: Vec<String> = names(size).collect();
    let edges: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "gate")).collect();
    let mut sim = Sim::new(net(steps, &edges));
    sim.checked = false;
    sim.start().unwrap();
    names.iter().for_each(|name| drop(sim.run(name).unwrap()));
    sim
}

#[test]
fn denied_tokens_are_all_admitted_in_a_large_run() {
    let size = LARGE;
    let mut sim = gated_tokens(size);
    sim.patch_ctx(json!({ "open": true })).unwrap();
    assert_eq!(sim.state.tally().ready() as usize, size);
}

#[test]
fn denied_tokens_are_all_cancelled_in_a_large_run() {
    let size = LARGE;
    let mut sim = gated_tokens(size);
    sim.cancel().unwrap();
    while sim.proceed().is_ok() {}
    assert!(sim.phase().is_ended());
}
