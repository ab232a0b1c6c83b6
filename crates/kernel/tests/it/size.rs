//! The cost of an event does not grow with the run. Each test does the same to a run and to one eight
//! times as large; where the cost of an event grows with the run, that takes 64 times as long.

use std::time::{Duration, Instant};

use serde_json::json;
use stepwell_kernel::effect::Outcome;
use stepwell_kernel::event::Rollback;
use stepwell_kernel::plan::{Admission, AdmitRule, Denied, OnFailure, Route, Step, WaitOn};

use crate::conformance::c::{child, looped, template};
use crate::support::{Sim, net, task, waits};

/// Between 8, which is linear, and 64, which is quadratic.
const MOST: u32 = 28;
const SMALL: usize = 500;

/// Times both until the best times say that it is linear: whatever else the machine does only makes
/// them longer.
#[track_caller]
fn check_linear(work: impl Fn(usize) -> Duration) {
    let (mut small, mut large) = (Duration::MAX, Duration::MAX);
    for tries in 1..=12 {
        small = small.min(work(SMALL));
        large = large.min(work(8 * SMALL));
        if tries > 1 && large < small * MOST {
            return;
        }
    }
    panic!("{SMALL} take {small:?}, eight times as many take {large:?}");
}

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

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

#[test]
fn results_during_a_pause_cost_the_same_in_a_large_run() {
    check_linear(|size| {
        let mut sim = many(size, |name| Step {
            route: Route::Exclusive,
            ..task(name)
        });
        names(size).for_each(|name| drop(sim.claim(&name).unwrap()));
        timed(|| {
            sim.pause().unwrap();
            names(size).for_each(|name| drop(sim.complete(&name).unwrap()));
            sim.resume().unwrap();
            while sim.proceed().is_ok() {}
            assert_eq!(sim.outcome(), Some(Outcome::Succeeded));
        })
    });
}

#[test]
fn failures_during_a_pause_cost_the_same_in_a_large_run() {
    check_linear(|size| {
        let mut sim = many(size, |name| Step {
            on_failure: OnFailure::Skip,
            ..task(name)
        });
        names(size).for_each(|name| drop(sim.claim(&name).unwrap()));
        timed(|| {
            sim.pause().unwrap();
            let class = stepwell_kernel::plan::ErrorClass::Validation;
            names(size).for_each(|name| drop(sim.fail(&name, class).unwrap()));
            sim.resume().unwrap();
            while sim.proceed().is_ok() {}
            assert_eq!(sim.outcome(), Some(Outcome::Succeeded));
        })
    });
}

#[test]
fn events_find_who_waits_for_them_in_a_large_run() {
    check_linear(|size| {
        let on = || WaitOn::Event {
            event_type: "go".into(),
        };
        let mut sim = many(size, |name| waits(name, on(), None));
        timed(|| {
            for name in names(size) {
                sim.deliver(&name, "go", json!(1)).unwrap();
            }
            assert_eq!(sim.outcome(), Some(Outcome::Succeeded));
        })
    });
}

#[test]
fn children_are_awaited_at_the_same_cost_in_a_large_run() {
    check_linear(|size| {
        let mut sim = many(size, child);
        timed(|| {
            sim.cancel().unwrap();
            let cancelled = Outcome::Cancelled(Rollback::None);
            for name in names(size) {
                sim.child_ended(&name, cancelled, json!(null)).unwrap();
            }
            assert_eq!(sim.outcome(), Some(cancelled));
        })
    });
}

#[test]
fn loops_that_stop_are_ended_at_the_same_cost_in_a_large_run() {
    check_linear(|size| {
        let mut sim = many(size, |name| looped(name, 1, 1));
        names(size).for_each(|name| drop(sim.claim(&format!("{name}[0]")).unwrap()));
        timed(|| {
            sim.cancel().unwrap();
            for name in names(size) {
                sim.confirm_kill(&format!("{name}[0]")).unwrap();
            }
            assert!(sim.phase().is_ended());
        })
    });
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
            denied: Denied::Pending,
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
fn denied_tokens_are_admitted_at_the_same_cost_in_a_large_run() {
    check_linear(|size| {
        let mut sim = gated_tokens(size);
        timed(|| {
            sim.patch_ctx(json!({ "open": true })).unwrap();
            assert_eq!(sim.state.tally.ready as usize, size);
        })
    });
}

#[test]
fn denied_tokens_are_cancelled_at_the_same_cost_in_a_large_run() {
    check_linear(|size| {
        let mut sim = gated_tokens(size);
        timed(|| {
            sim.cancel().unwrap();
            while sim.proceed().is_ok() {}
            assert!(sim.phase().is_ended());
        })
    });
}
