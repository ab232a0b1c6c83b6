//! The driver itself: what it says about a run is what the run did.

use expect_test::expect;
use serde_json::json;
use stepwell_kernel::command::ManualOutcome;
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::Rollback;
use stepwell_kernel::plan::{Completion, ErrorClass, OnFailure, Step, WaitOn};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::Status;

use crate::support::{Sim, chain, code, constant, net, retry, task, tasks, undoable, waits};

#[test]
fn a_chain_writes_two_events_a_step() {
    let mut sim = Sim::started(tasks(&["a", "b"]));
    assert_eq!(sim.ready(), ["a"]);
    sim.run_with("a", json!({ "rows": 3 })).unwrap();
    assert_eq!(sim.ready(), ["b"]);
    sim.run_everything();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
    expect![[r#"
        RunCreated
        RunApproved
        RunStarted
        StepStarted a
        StepCompleted a
        StepStarted b
        StepCompleted b
        RunCompleted
    "#]]
    .assert_eq(&sim.log());
}

#[test]
fn time_moves_only_when_told() {
    let step = Step {
        retry: retry(2, constant(500)),
        ..task("a")
    };
    let mut sim = Sim::started(net(vec![step], &[]));
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    assert!(sim.ready().is_empty());
    assert_eq!(code(sim.claim("a")), Code::StepNotEligible);
    sim.advance(500).run("a").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn people_timers_events_and_undos_can_be_driven() {
    let by_hand = Step {
        completion: Completion::Manual,
        ..task("by-hand")
    };
    let last = Step {
        on_failure: OnFailure::Stop { compensate: true },
        ..task("last")
    };
    let mut sim = Sim::started(chain(vec![
        undoable("first"),
        waits("nap", WaitOn::Timer { millis: 50 }, None),
        by_hand,
        task("listens"),
        last,
    ]));
    sim.run("first").unwrap();
    sim.advance_to_next_timer().unwrap();
    sim.run("by-hand").unwrap();
    sim.answer("by-hand", ManualOutcome::Succeeded, "someone")
        .unwrap();
    sim.claim("listens").unwrap();
    sim.wait_for_event("listens", "paid").unwrap();
    sim.deliver("e-1", "paid", json!({ "amount": 5 })).unwrap();
    sim.claim("listens").unwrap();
    sim.expire_lease("listens").unwrap();
    assert_eq!(sim.status("listens"), Some(Status::Ready));
    sim.run_failing("listens", ErrorClass::Transient).unwrap();
    assert_eq!(sim.status("listens"), Some(Status::Failed));
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
}

#[test]
fn a_crash_loses_nothing() {
    let last = Step {
        on_failure: OnFailure::Stop { compensate: true },
        ..task("b")
    };
    let mut sim = Sim::started(chain(vec![undoable("a"), last]));
    sim.run("a").unwrap();
    sim.crash();
    sim.run_failing("b", ErrorClass::Policy).unwrap();
    sim.crash();
    sim.run_undo("a").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::Complete)));
}
