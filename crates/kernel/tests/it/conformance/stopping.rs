//! Stopping: a failure that ends the run, a cancel or a run timeout never jumps straight to the end.

use expect_test::expect;
use serde_json::json;
use stepwell_kernel::command::{Command, ManualOutcome, TimerKind};
use stepwell_kernel::effect::{Effect, RunOutcome};
use stepwell_kernel::event::{Body, Rollback, StopCause};
use stepwell_kernel::expr::TemplateValue;
use stepwell_kernel::plan::{
    ChildSpec, Completion, ErrorClass, Net, OnFailure, Route, Step, UndoMode, Unhandled, WaitOn,
    Work,
};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::{Phase, Status};

use super::c::{looped, template};
use crate::support::{Sim, code, constant, net, retried, retry, task, undoable, waits};

fn aborting(name: &str) -> Step {
    Step {
        on_failure: OnFailure::Stop { compensate: false },
        ..task(name)
    }
}

fn compensating(name: &str) -> Step {
    Step {
        on_failure: OnFailure::Stop { compensate: true },
        ..task(name)
    }
}

fn child(name: &str) -> Step {
    let spec = ChildSpec {
        return_step: None,
        path: "other".into(),
        input: TemplateValue::parse(&json!({})).unwrap(),
    };
    Step::new(name, Work::Child(spec))
}

/// A step of every open condition beside one that is leased, and one that comes after it.
fn busy() -> Sim {
    let by_hand = Step {
        completion: Completion::Manual,
        ..task("by-hand")
    };
    let steps = vec![
        aborting("fails"),
        task("leased"),
        task("ready"),
        Step {
            retry: retry(5, constant(500)),
            ..task("backs-off")
        },
        by_hand,
        waits(
            "listens",
            WaitOn::Event {
                event_type: "e".into(),
            },
            Some(900),
        ),
        waits("naps", WaitOn::Timer { millis: 900 }, None),
        task("after"),
    ];
    let mut plan: Net = net(steps, &[("leased", "after")]);
    plan.policy.timeout_ms = Some(100_000);
    let mut sim = Sim::started(plan);
    sim.claim("leased").unwrap();
    sim.run_failing("backs-off", ErrorClass::Transient).unwrap();
    sim.run("by-hand").unwrap();
    sim.claim("fails").unwrap();
    sim
}

/// What must hold from the moment the run stops until its last lease ends.
fn stops(sim: &mut Sim, token: &str) {
    assert_eq!(sim.phase(), Phase::Stopping);
    for step in ["ready", "backs-off", "by-hand", "listens", "naps"] {
        assert_eq!(sim.status(step), Some(Status::Cancelled), "{step}");
    }
    assert_eq!(sim.status("leased"), Some(Status::Running));
    assert_eq!(sim.status("after"), None);
    // Nothing starts, no timer is left, tokens are void, events wake nobody.
    assert!(sim.claimable().is_empty());
    assert_eq!(code(sim.claim("ready")), Code::RunStopping);
    assert_eq!(sim.next_timer(), None);
    let answer = sim.answer_with("by-hand", token, ManualOutcome::Succeeded, "someone");
    assert_eq!(code(answer), Code::StepNotWaiting);
    sim.deliver("e1", "e", json!({})).unwrap();
    assert_eq!(sim.status("listens"), Some(Status::Cancelled));
}

#[test]
fn a_failure_stops_everything_that_no_worker_has() {
    let mut sim = busy();
    let token = sim.token("by-hand");
    sim.fail("fails", ErrorClass::Policy).unwrap();
    stops(&mut sim, &token);
    // A result in a run that stops is recorded, and leads nowhere.
    sim.complete("leased").unwrap();
    assert_eq!(sim.status("leased"), Some(Status::Succeeded));
    assert_eq!(sim.status("after"), None);
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
    expect![[r#"
        RunCreated
        RunApproved
        RunStarted
        StepStarted listens
        StepWaiting listens
        StepStarted naps
        StepWaiting naps
        StepStarted leased
        StepStarted backs-off
        StepExecutionFailed backs-off
        StepStarted by-hand
        StepWaiting by-hand
        StepStarted fails
        StepFailed fails
        RunStopping
        StepSkipped ready
        StepFailed backs-off
        StepFailed by-hand
        StepFailed listens
        StepFailed naps
        EventReceived
        StepCompleted leased
        RunFailed
    "#]]
    .assert_eq(&sim.log());
}

#[test]
fn a_cancel_and_a_run_timeout_stop_the_same_way() {
    let mut sim = busy();
    let token = sim.token("by-hand");
    sim.cancel().unwrap();
    sim.complete("fails").unwrap();
    stops(&mut sim, &token);
    sim.confirm_kill("leased").unwrap();
    assert_eq!(sim.status("leased"), Some(Status::Cancelled));
    assert_eq!(sim.outcome(), Some(RunOutcome::Cancelled(Rollback::None)));

    let mut sim = busy();
    let token = sim.token("by-hand");
    sim.advance(100_000);
    let run = sim.state.timers().own(TimerKind::Run).unwrap().1;
    sim.send(Command::FireTimer(run)).unwrap();
    sim.expire_lease("fails").unwrap();
    stops(&mut sim, &token);
    sim.expire_lease("leased").unwrap();
    assert_eq!(sim.status("leased"), Some(Status::Cancelled));
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
    assert_eq!(sim.state.error().unwrap().code, "RUN_TIMEOUT");
}

#[test]
fn nothing_is_retried_in_a_run_that_stops() {
    for ends in [
        |sim: &mut Sim| sim.fail("b", ErrorClass::Transient),
        |sim: &mut Sim| sim.expire_lease("b"),
        |sim: &mut Sim| sim.confirm_kill("b"),
        |sim: &mut Sim| sim.wait_for_event("b", "e"),
    ] {
        let mut sim = Sim::started(net(vec![aborting("a"), retried("b", 9)], &[]));
        sim.claim("b").unwrap();
        sim.run_failing("a", ErrorClass::Policy).unwrap();
        ends(&mut sim).unwrap();
        assert!(sim.step("b").status().is_terminal());
        assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
        // The first cause is the run's error.
        assert_eq!(sim.state.error().unwrap().message, "a: it broke");
    }
}

#[test]
fn children_are_cancelled_and_awaited() {
    let mut sim = Sim::started(net(vec![aborting("a"), child("calls")], &[]));
    sim.take_effects();
    sim.run_failing("a", ErrorClass::Policy).unwrap();
    let effects = sim.take_effects();
    let at = sim.at("calls");
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::CancelChild { step, .. } if *step == at)),
        "{effects:?}"
    );
    assert_eq!(sim.phase(), Phase::Stopping);
    sim.child_ended("calls", RunOutcome::Cancelled(Rollback::None), json!(null))
        .unwrap();
    assert_eq!(sim.status("calls"), Some(Status::Cancelled));
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
}

#[test]
fn the_first_cause_wins() {
    // A failure, then a cancel.
    let mut sim = Sim::started(net(vec![aborting("a"), task("b")], &[]));
    sim.claim("b").unwrap();
    sim.run_failing("a", ErrorClass::Policy).unwrap();
    assert_eq!(code(sim.cancel()), Code::RunStopping);
    sim.complete("b").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
    // A cancel, then a failure that asks for undoing.
    let mut sim = Sim::started(net(vec![undoable("done"), compensating("a")], &[]));
    sim.run("done").unwrap();
    sim.claim("a").unwrap();
    sim.cancel().unwrap();
    sim.fail("a", ErrorClass::Policy).unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Cancelled(Rollback::None)));
}

#[test]
fn compensate_beats_abort() {
    for order in [["aborts", "undoes"], ["undoes", "aborts"]] {
        let steps = vec![undoable("done"), aborting("aborts"), compensating("undoes")];
        let mut sim = Sim::started(net(steps, &[]));
        sim.run("done").unwrap();
        for step in order {
            sim.claim(step).unwrap();
        }
        for step in order {
            sim.fail(step, ErrorClass::Policy).unwrap();
        }
        assert_eq!(sim.phase(), Phase::Compensating, "{order:?}");
        sim.run_undo("done").unwrap();
        assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::Complete)));
        // The cause is still the first one.
        let message = &sim.state.error().unwrap().message;
        assert_eq!(*message, format!("{}: it broke", order[0]));
    }
}

#[test]
fn compensate_beats_abort_also_among_failures_that_a_pause_held_back() {
    for order in [["aborts", "undoes"], ["undoes", "aborts"]] {
        let steps = vec![undoable("done"), aborting("aborts"), compensating("undoes")];
        let mut sim = Sim::started(net(steps, &[]));
        sim.run("done").unwrap();
        for step in order {
            sim.claim(step).unwrap();
        }
        sim.pause().unwrap();
        for step in order {
            sim.fail(step, ErrorClass::Policy).unwrap();
        }
        assert_eq!(sim.phase(), Phase::Running);
        sim.resume().unwrap();
        assert_eq!(sim.phase(), Phase::Compensating, "{order:?}");
        sim.run_undo("done").unwrap();
        assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::Complete)));
        let message = &sim.state.error().unwrap().message;
        assert_eq!(*message, format!("{}: it broke", order[0]));
    }
}

#[test]
fn a_run_timeout_is_not_looked_at_once_the_run_stops() {
    let mut plan = net(vec![undoable("done"), compensating("a"), task("b")], &[]);
    plan.policy.timeout_ms = Some(1_000);
    let mut sim = Sim::started(plan);
    let run = sim.state.timers().own(TimerKind::Run).unwrap().1;
    sim.run("done").unwrap();
    sim.claim("b").unwrap();
    sim.run_failing("a", ErrorClass::Policy).unwrap();
    sim.advance(5_000);
    assert_eq!(code(sim.send(Command::FireTimer(run))), Code::TimerStale);
    sim.complete("b").unwrap();
    assert_eq!(sim.phase(), Phase::Compensating);
    assert_eq!(code(sim.send(Command::FireTimer(run))), Code::TimerStale);
    sim.run_undo("done").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::Complete)));
    assert_eq!(sim.state.error().unwrap().message, "a: it broke");
}

#[test]
fn the_undo_list_is_made_when_no_lease_is_left() {
    let steps = vec![undoable("one"), undoable("two"), compensating("a")];
    let mut sim = Sim::started(net(steps, &[]));
    sim.run("one").unwrap();
    sim.claim("two").unwrap();
    sim.run_failing("a", ErrorClass::Policy).unwrap();
    assert_eq!(sim.count("CompensationStarted"), 0);
    sim.complete("two").unwrap();
    let Some(Body::CompensationStarted {
        undo,
        not_compensable,
    }) = sim.last()
    else {
        panic!("{:?}", sim.last());
    };
    assert_eq!(*undo, [sim.at("two"), sim.at("one")]);
    assert!(not_compensable.is_empty());
}

/// Two steps are done, the run is being undone, and the first undo is claimed.
fn undoing() -> Sim {
    let steps = vec![undoable("one"), undoable("two"), compensating("a")];
    let mut sim = Sim::started(net(steps, &[]));
    sim.run("one").unwrap();
    sim.run("two").unwrap();
    sim.run_failing("a", ErrorClass::Policy).unwrap();
    sim.claim_undo("two").unwrap();
    sim
}

#[test]
fn a_cancel_during_compensation_finishes_the_current_undo() {
    let mut sim = undoing();
    sim.cancel().unwrap();
    assert_eq!(sim.outcome(), None);
    assert_eq!(code(sim.claim_undo("one")), Code::StepNotEligible);
    sim.complete_undo("two").unwrap();
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Cancelled(Rollback::Incomplete))
    );
    // One that fails is not tried again.
    let mut sim = undoing();
    sim.cancel().unwrap();
    sim.fail_undo("two", ErrorClass::Transient).unwrap();
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Cancelled(Rollback::Incomplete))
    );
    // If it was the last one, then everything was undone.
    let mut sim = undoing();
    sim.complete_undo("two").unwrap();
    sim.claim_undo("one").unwrap();
    sim.cancel().unwrap();
    sim.complete_undo("one").unwrap();
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Cancelled(Rollback::Complete))
    );
    // Between two undos there is none to finish.
    let mut sim = undoing();
    sim.complete_undo("two").unwrap();
    sim.cancel().unwrap();
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Cancelled(Rollback::Incomplete))
    );
}

#[test]
fn a_failed_undo_stops_or_does_not_stop_the_others_as_the_plan_says() {
    for (mode, expected) in [(UndoMode::Stop, 0), (UndoMode::Continue, 1)] {
        let steps = vec![undoable("one"), undoable("two"), compensating("a")];
        let mut plan = net(steps, &[]);
        plan.policy.undo_mode = mode;
        let mut sim = Sim::started(plan);
        sim.run("one").unwrap();
        sim.run("two").unwrap();
        sim.run_failing("a", ErrorClass::Policy).unwrap();
        sim.claim_undo("two").unwrap();
        sim.fail_undo("two", ErrorClass::Policy).unwrap();
        sim.run_everything();
        assert_eq!(sim.count("UndoCompleted"), expected);
        assert_eq!(
            sim.outcome(),
            Some(RunOutcome::Failed(Rollback::Incomplete))
        );
    }
}

#[test]
fn a_cancel_with_undo_compensates_and_ends_cancelled() {
    let mut sim = Sim::started(net(vec![undoable("done"), task("a")], &[]));
    sim.run("done").unwrap();
    sim.claim("a").unwrap();
    sim.cancel_with(true).unwrap();
    let stopping = sim.events().iter().find_map(|event| match &event.body {
        Body::RunStopping { cause, compensate } => Some((cause.clone(), *compensate)),
        _ => None,
    });
    assert!(matches!(stopping, Some((StopCause::Cancel { .. }, true))));
    sim.complete("a").unwrap();
    sim.run_undo("done").unwrap();
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Cancelled(Rollback::Complete))
    );
}

#[test]
fn what_a_child_has_done_while_the_run_stops_is_undone() {
    let step = Step {
        undo: undoable("call").undo,
        ..child("call")
    };
    let mut sim = Sim::started(net(vec![step, compensating("b")], &[]));
    sim.run_failing("b", ErrorClass::Validation).unwrap();
    assert_eq!(sim.phase(), Phase::Stopping, "the child is awaited");
    sim.child_ended("call", RunOutcome::Succeeded, json!({}))
        .unwrap();
    assert_eq!(sim.status("call"), Some(Status::Succeeded));
    sim.run_undo("call").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::Complete)));
}

/// Two things were held back by a pause: a route that leads nowhere, which stops the run, and a failure
/// that asks for undoing.
#[test]
fn compensate_beats_abort_also_for_a_failure_that_is_never_answered() {
    let routed = Step {
        route: Route::Exclusive,
        ..task("routed")
    };
    let mut net = net(
        vec![undoable("a"), routed, compensating("b"), task("never")],
        &[("routed", "never")],
    );
    net.edges[0].when = Some(template("{{ false }}"));
    net.policy.no_next_is_error = true;
    net.policy.unhandled = Unhandled::Stop;
    let mut sim = Sim::started(net);
    sim.run("a").unwrap();
    sim.claim("routed").unwrap();
    sim.claim("b").unwrap();
    sim.pause().unwrap();
    sim.complete("routed").unwrap();
    sim.fail("b", ErrorClass::Validation).unwrap();
    sim.resume().unwrap();
    assert_eq!(sim.phase(), Phase::Compensating);
    sim.run_undo("a").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::Complete)));
}

#[test]
fn a_loop_that_was_over_when_the_run_stopped_is_ended() {
    let mut sim = Sim::started(net(vec![looped("l", 1, 1), task("b")], &[]));
    sim.claim("b").unwrap();
    sim.claim("l[0]").unwrap();
    sim.pause().unwrap();
    sim.complete("l[0]").unwrap();
    assert_eq!(sim.status("l"), Some(Status::Looping), "held by the pause");
    sim.cancel().unwrap();
    assert_eq!(sim.status("l"), Some(Status::Cancelled));
    sim.confirm_kill("b").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Cancelled(Rollback::None)));
}

#[test]
fn a_child_is_asked_to_stop_once() {
    let mut sim = Sim::started(net(vec![child("call")], &[]));
    sim.take_effects();
    sim.cancel().unwrap();
    let cancelled = RunOutcome::Cancelled(Rollback::None);
    sim.child_ended("call", cancelled, json!(null)).unwrap();
    let effects = sim.take_effects();
    let asked = effects
        .iter()
        .filter(|it| matches!(it, Effect::CancelChild { .. }));
    assert_eq!(asked.count(), 1);
}

#[test]
fn a_failure_in_a_run_that_stops_leads_to_nothing_else() {
    let mut sim = Sim::started(net(vec![task("b"), looped("l", 1, 1)], &[]));
    sim.claim("b").unwrap();
    sim.claim("l[0]").unwrap();
    sim.cancel().unwrap();
    sim.fail("b", ErrorClass::Validation).unwrap();
    assert!(sim.state.due().is_empty(), "nobody answers it");
    sim.confirm_kill("l[0]").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Cancelled(Rollback::None)));
}

#[test]
fn stopping_ends_a_pause_so_that_what_was_done_can_be_undone() {
    let mut sim = Sim::started(net(vec![undoable("a"), task("b")], &[]));
    sim.run("a").unwrap();
    sim.pause().unwrap();
    sim.cancel_with(true).unwrap();
    assert_eq!(sim.state.pause(), None);
    sim.run_undo("a").unwrap();
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Cancelled(Rollback::Complete))
    );
}
