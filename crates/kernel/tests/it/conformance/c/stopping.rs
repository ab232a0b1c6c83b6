//! Stopping: cancel in every phase, emergency stop, and what beats what.

use expect_test::expect;
use serde_json::json;
use stepwell_kernel::command::{ManualOutcome, Reply, TimerKind};
use stepwell_kernel::effect::{Effect, Priority, RunOutcome, Target};
use stepwell_kernel::event::{Body, Rollback, StopCause, UndoOutcome};
use stepwell_kernel::plan::{ErrorClass, Net, OnFailure, Step, StepNo, WaitOn};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::{Phase, Status};

use super::{child, compensating, held, looped, timers};
use crate::support::{Sim, chain, code, constant, net, retry, task, tasks, undoable, waits};

const NONE: Option<RunOutcome> = Some(RunOutcome::Cancelled(Rollback::None));

fn stop_effects(sim: &mut Sim) -> Vec<Effect> {
    let wanted = |effect: &Effect| {
        matches!(
            effect,
            Effect::CancelWork { .. } | Effect::CancelChild { .. }
        )
    };
    sim.take_effects().into_iter().filter(wanted).collect()
}

/// Every way in which a step can be open.
fn everything() -> Net {
    let mut again = task("again");
    again.retry = retry(2, constant(60_000));
    let steps = vec![
        task("leased"),
        task("ready"),
        again,
        waits("person", WaitOn::Approval, Some(90_000)),
        waits("nap", WaitOn::Timer { millis: 70_000 }, None),
        child("child"),
        held("held", 80_000),
        looped("each", 4, 2),
        task("unreached"),
    ];
    let mut plan = net(steps, &[("leased", "unreached")]);
    plan.policy.skip_unreached = true;
    plan.policy.timeout_ms = Some(95_000);
    plan
}

fn everything_open() -> Sim {
    let mut sim = Sim::started(everything());
    sim.claim("leased").unwrap();
    sim.run_failing("again", ErrorClass::Transient).unwrap();
    sim.run_failing("held", ErrorClass::Policy).unwrap();
    sim.claim("each[1]").unwrap();
    assert_eq!(sim.status("held"), Some(Status::Held));
    assert_eq!(
        timers(&sim),
        [
            TimerKind::Wait,
            TimerKind::Hold,
            TimerKind::Wait,
            TimerKind::Run
        ]
    );
    sim.take_effects();
    sim
}

#[test]
fn a_cancel_ends_what_is_idle_and_awaits_what_is_not() {
    let mut sim = everything_open();
    let token = sim.token("person");
    let seq = sim.state.seq() + 1;
    sim.cancel().unwrap();
    expect![[r#"
        RunStopping
        StepSkipped ready
        StepFailed again
        StepFailed person
        StepFailed nap
        StepSkipped each[0]
    "#]]
    .assert_eq(&sim.log_from(seq));
    assert_eq!(sim.phase(), Phase::Stopping);
    assert_eq!(timers(&sim), [], "the run timeout is disarmed too");
    let at = |id: &str| Target::Step(sim.at(id));
    let (leased, item, waits) = (at("leased"), at("each[1]"), sim.at("child"));
    assert_eq!(
        stop_effects(&mut sim),
        [
            Effect::CancelWork {
                target: leased,
                execution: 1
            },
            Effect::CancelChild {
                step: waits,
                request_key: "run_sim|child|1|1".into()
            },
            Effect::CancelWork {
                target: item,
                execution: 1
            },
        ]
    );
    let late = sim.answer_with("person", &token, ManualOutcome::Succeeded, "someone");
    assert_eq!(code(late), Code::StepNotWaiting);
    assert_eq!(code(sim.claim("ready")), Code::RunStopping);
    // Each of the three ends in its own way; the last of them ends the run.
    let seq = sim.state.seq() + 1;
    sim.complete("leased").unwrap();
    sim.expire_lease("each[1]").unwrap();
    assert_eq!(sim.outcome(), None, "the child is awaited");
    sim.child_ended("child", RunOutcome::Cancelled(Rollback::None), json!({}))
        .unwrap();
    expect![[r#"
        StepCompleted leased
        StepFailed each[1]
        StepFailed each
        StepFailed child
        StepSkipped unreached
        RunCancelled
    "#]]
    .assert_eq(&sim.log_from(seq));
    assert_eq!(sim.outcome(), NONE);
}

#[test]
fn nothing_retries_in_a_run_that_stops() {
    let mut step = task("a");
    step.retry = retry(5, constant(0));
    let mut sim = Sim::started(chain(vec![step]));
    sim.claim("a").unwrap();
    sim.cancel().unwrap();
    sim.fail("a", ErrorClass::Transient).unwrap();
    assert!(
        !sim.events()
            .iter()
            .any(|event| event.body.kind() == "StepExecutionFailed")
    );
    assert_eq!(sim.outcome(), NONE);
}

#[test]
fn work_in_flight_may_ask_to_wait_and_is_ended_instead() {
    let mut sim = Sim::started(tasks(&["a"]));
    sim.claim("a").unwrap();
    sim.cancel().unwrap();
    sim.wait_for_event("a", "paid").unwrap();
    assert_eq!(sim.outcome(), NONE);
    assert_eq!(sim.status("a"), Some(Status::Cancelled));
}

#[test]
fn an_event_that_comes_while_the_run_stops_starts_nothing() {
    let mut sim = Sim::started(net(vec![task("a"), task("b")], &[]));
    sim.claim("a").unwrap();
    sim.claim("b").unwrap();
    sim.wait_for_event("b", "paid").unwrap();
    sim.cancel().unwrap();
    sim.deliver("e", "paid", json!({})).unwrap();
    sim.complete("a").unwrap();
    assert_eq!(sim.outcome(), NONE);
    assert_eq!(sim.count("StepWoken"), 0);
}

#[test]
fn a_cancel_in_each_phase_ends_the_run_cancelled() {
    let finalizing = || {
        let mut plan = tasks(&["a"]);
        plan.steps.push(task("last"));
        plan.policy.final_step = Some(StepNo(1));
        let mut sim = Sim::started(plan);
        sim.run("a").unwrap();
        assert_eq!(sim.phase(), Phase::Finalizing);
        sim
    };
    let stalled = || {
        let mut plan = net(
            vec![task("a"), task("b"), task("c")],
            &[("a", "c"), ("b", "c")],
        );
        plan.steps[1].route = stepwell_kernel::plan::Route::Exclusive;
        plan.edges[1].when = Some(super::template("{{ false }}"));
        let mut sim = Sim::started(plan);
        sim.run("a").unwrap();
        sim.run("b").unwrap();
        assert!(sim.state.stalled().is_some());
        sim
    };
    for (name, mut sim) in [("finalizing", finalizing()), ("stalled", stalled())] {
        sim.signal("CANCEL", json!({})).unwrap();
        assert_eq!(sim.outcome(), NONE, "{name}");
        assert_eq!(timers(&sim), [], "{name}");
    }
}

#[test]
fn the_final_step_does_not_run_after_a_cancel() {
    let mut plan = tasks(&["a"]);
    plan.steps.push(task("last"));
    plan.policy.final_step = Some(StepNo(1));
    let mut sim = Sim::started(plan);
    sim.claim("a").unwrap();
    sim.cancel().unwrap();
    sim.complete("a").unwrap();
    assert_eq!(sim.outcome(), NONE);
    assert_eq!(sim.status("last"), None);
}

#[test]
fn the_first_cause_wins_over_a_later_cancel() {
    let mut sim = Sim::started(net(vec![task("a"), task("b")], &[]));
    sim.claim("a").unwrap();
    sim.claim("b").unwrap();
    sim.fail("a", ErrorClass::Policy).unwrap();
    assert_eq!(code(sim.cancel()), Code::RunStopping);
    // A signal is taken, since the contract's run is RUNNING, and changes nothing.
    assert_eq!(sim.signal("CANCEL", json!({})), Ok(Reply::Done));
    sim.complete("b").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
}

#[test]
fn the_first_failure_is_the_one_that_the_run_failed_with() {
    let mut sim = Sim::started(net(vec![task("a"), task("b")], &[]));
    sim.claim("a").unwrap();
    sim.claim("b").unwrap();
    sim.fail("b", ErrorClass::Policy).unwrap();
    sim.fail("a", ErrorClass::Conflict).unwrap();
    assert!(
        matches!(sim.last(), Some(Body::RunFailed { error, .. }) if error.message == "b: it broke")
    );
}

/// `done` can be undone; then `one` and `two` run side by side.
fn two_failures(one: Step, two: Step) -> Sim {
    let mut sim = Sim::started(net(
        vec![undoable("done"), one, two],
        &[("done", "one"), ("done", "two")],
    ));
    sim.run("done").unwrap();
    sim.claim("one").unwrap();
    sim.claim("two").unwrap();
    sim
}

#[test]
fn compensate_beats_abort_whichever_comes_first() {
    let abort = |name| task(name);
    for (first, second) in [("one", "two"), ("two", "one")] {
        let mut sim = two_failures(abort("one"), compensating("two"));
        sim.fail(first, ErrorClass::Policy).unwrap();
        sim.fail(second, ErrorClass::Policy).unwrap();
        assert_eq!(sim.phase(), Phase::Compensating, "{first} first");
        sim.run_undo("done").unwrap();
        assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::Complete)));
        // The cause is still the first.
        let message = format!("{first}: it broke");
        assert!(
            matches!(sim.last(), Some(Body::RunFailed { error, .. }) if error.message == message)
        );
    }
}

#[test]
fn two_aborts_undo_nothing() {
    let mut sim = two_failures(task("one"), task("two"));
    sim.fail("one", ErrorClass::Policy).unwrap();
    sim.fail("two", ErrorClass::Policy).unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
}

#[test]
fn a_cancel_without_undo_is_not_turned_into_one_by_a_failure() {
    let mut sim = two_failures(task("one"), compensating("two"));
    sim.cancel().unwrap();
    sim.complete("one").unwrap();
    sim.fail("two", ErrorClass::Policy).unwrap();
    assert_eq!(sim.outcome(), NONE);
}

#[test]
fn a_run_timeout_that_aborts_is_turned_into_undoing_by_a_failure_that_asks_for_it() {
    let mut plan = chain(vec![undoable("done"), compensating("two")]);
    plan.policy.timeout_ms = Some(1_000);
    let mut sim = Sim::started(plan);
    sim.run("done").unwrap();
    sim.claim("two").unwrap();
    sim.advance_to_next_timer().unwrap();
    assert_eq!(sim.phase(), Phase::Stopping);
    sim.fail("two", ErrorClass::Policy).unwrap();
    assert_eq!(sim.phase(), Phase::Compensating);
    sim.run_undo("done").unwrap();
    assert!(
        matches!(sim.last(), Some(Body::RunFailed { error, .. }) if error.code == "RUN_TIMEOUT")
    );
}

#[test]
fn a_step_that_succeeds_while_the_run_stops_is_undone_too() {
    let mut sim = Sim::started(net(vec![undoable("a"), compensating("b")], &[]));
    sim.claim("a").unwrap();
    sim.claim("b").unwrap();
    sim.fail("b", ErrorClass::Policy).unwrap();
    assert_eq!(
        sim.count("CompensationStarted"),
        0,
        "the undo list is computed when no lease is left"
    );
    sim.complete("a").unwrap();
    sim.run_undo("a").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::Complete)));
}

fn undoing() -> Sim {
    let mut sim = Sim::started(chain(vec![undoable("a"), undoable("b"), compensating("c")]));
    sim.run("a").unwrap();
    sim.run("b").unwrap();
    sim.run_failing("c", ErrorClass::Policy).unwrap();
    assert_eq!(sim.phase(), Phase::Compensating);
    sim
}

fn undos(sim: &Sim) -> Vec<(String, UndoOutcome)> {
    let results = sim.state.undos().iter();
    results
        .map(|undo| (sim.plan.step_id(undo.step), undo.outcome))
        .collect()
}

#[test]
fn a_cancel_during_undoing_finishes_the_undo_in_flight() {
    let mut sim = undoing();
    sim.claim_undo("b").unwrap();
    sim.signal("CANCEL", json!({})).unwrap();
    assert_eq!(sim.outcome(), None);
    sim.complete_undo("b").unwrap();
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Cancelled(Rollback::Incomplete))
    );
    assert_eq!(
        undos(&sim),
        [
            ("b".into(), UndoOutcome::Done),
            ("a".into(), UndoOutcome::NotRun)
        ]
    );
}

#[test]
fn a_cancel_during_undoing_with_no_undo_in_flight_ends_at_once() {
    let mut sim = undoing();
    sim.cancel().unwrap();
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Cancelled(Rollback::Incomplete))
    );
    assert_eq!(
        undos(&sim),
        [
            ("b".into(), UndoOutcome::NotRun),
            ("a".into(), UndoOutcome::NotRun)
        ]
    );
}

#[test]
fn a_cancel_that_asks_for_undoing_undoes() {
    let mut sim = Sim::started(chain(vec![undoable("a"), task("b")]));
    sim.run("a").unwrap();
    sim.cancel_with(true).unwrap();
    sim.run_undo("a").unwrap();
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Cancelled(Rollback::Complete))
    );
}

#[test]
fn c50_an_emergency_stop_needs_a_reason_raises_p1_and_cancels_everything() {
    let mut sim = everything_open();
    let admin = crate::support::admin();
    let sent = sim.signal_as("s", "EMERGENCY_STOP", json!({}), None, admin);
    assert!(matches!(sent, Ok(Reply::Refused(it)) if it.code == Code::AuthzReasonRequired));
    assert_eq!(sim.phase(), Phase::Running);
    sim.take_effects();
    sim.signal("EMERGENCY_STOP", json!({ "reason": "fire" }))
        .unwrap();
    let effects = sim.take_effects();
    let alert = effects.iter().find_map(|effect| match effect {
        Effect::Alert { priority, .. } => Some(*priority),
        _ => None,
    });
    assert_eq!(alert, Some(Priority::P1));
    let stops = effects
        .iter()
        .filter(|effect| matches!(effect, Effect::CancelWork { .. }));
    assert_eq!(stops.count(), 2);
    assert_eq!(
        sim.outcome(),
        None,
        "without forceKill work in flight ends by itself"
    );
    sim.confirm_kill("leased").unwrap();
    sim.confirm_kill("each[1]").unwrap();
    sim.child_ended("child", RunOutcome::Cancelled(Rollback::None), json!({}))
        .unwrap();
    assert_eq!(sim.outcome(), NONE);
    assert!(
        matches!(sim.last(), Some(Body::RunCancelled { reason, by, .. })
            if reason.as_deref() == Some("fire") && by.as_deref() == Some("admin"))
    );
}

#[test]
fn c50_a_forced_emergency_stop_waits_for_no_worker() {
    let mut sim = Sim::started(net(vec![task("a"), looped("each", 2, 2)], &[]));
    sim.claim("a").unwrap();
    sim.claim("each[0]").unwrap();
    let late = sim.claim_on("a");
    let seq = sim.state.seq() + 1;
    sim.take_effects();
    sim.signal("EMERGENCY_STOP", json!({ "forceKill": true }))
        .unwrap();
    expect![[r#"
        SignalAccepted
        RunStopping
        StepFailed a
        StepFailed each[0]
        StepSkipped each[1]
        StepFailed each
        RunCancelled
    "#]]
    .assert_eq(&sim.log_from(seq));
    assert!(
        !stop_effects(&mut sim).is_empty(),
        "the workers are told all the same"
    );
    assert_eq!(
        code(sim.fail_claim(late, ErrorClass::Policy)),
        Code::StepNotRunning
    );
}

#[test]
fn an_emergency_stop_beats_whatever_the_run_was_stopping_for() {
    for force in [false, true] {
        let mut sim = two_failures(task("one"), compensating("two"));
        sim.fail("two", ErrorClass::Policy).unwrap();
        assert_eq!(sim.phase(), Phase::Stopping);
        sim.signal("EMERGENCY_STOP", json!({ "forceKill": force }))
            .unwrap();
        if !force {
            assert!(matches!(
                sim.state.stop().map(|stop| stop.cause()),
                Some(StopCause::Emergency { .. })
            ));
            sim.complete("one").unwrap();
        }
        assert_eq!(sim.outcome(), NONE, "nothing is undone either");
    }
}

#[test]
fn a_second_emergency_stop_can_force_what_the_first_did_not() {
    let mut sim = Sim::started(tasks(&["a"]));
    sim.claim("a").unwrap();
    sim.signal("EMERGENCY_STOP", json!({})).unwrap();
    assert_eq!(sim.outcome(), None);
    sim.signal("EMERGENCY_STOP", json!({ "forceKill": true }))
        .unwrap();
    assert_eq!(sim.outcome(), NONE);
}

#[test]
fn an_emergency_stop_during_undoing_starts_no_further_undo() {
    let mut sim = undoing();
    sim.claim_undo("b").unwrap();
    sim.signal("EMERGENCY_STOP", json!({})).unwrap();
    assert_eq!(sim.outcome(), None);
    sim.complete_undo("b").unwrap();
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Cancelled(Rollback::Incomplete))
    );
}

#[test]
fn a_forced_emergency_stop_during_undoing_gives_up_the_undo_in_flight() {
    let mut sim = undoing();
    sim.claim_undo("b").unwrap();
    sim.take_effects();
    let seq = sim.state.seq() + 1;
    sim.signal("EMERGENCY_STOP", json!({ "forceKill": true }))
        .unwrap();
    expect![[r#"
        SignalAccepted
        CompensationInterrupted
        UndoFailed b
        RunCancelled
    "#]]
    .assert_eq(&sim.log_from(seq));
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Cancelled(Rollback::Incomplete))
    );
    assert_eq!(
        undos(&sim),
        [
            ("b".into(), UndoOutcome::Failed),
            ("a".into(), UndoOutcome::NotRun)
        ]
    );
    let target = Target::Undo(sim.at("b"));
    assert_eq!(
        stop_effects(&mut sim),
        [Effect::CancelWork {
            target,
            execution: 1
        }]
    );
}

#[test]
fn an_emergency_stop_before_the_start_ends_the_run() {
    let mut sim = Sim::new(tasks(&["a"]));
    sim.create().unwrap();
    sim.signal("EMERGENCY_STOP", json!({})).unwrap();
    assert_eq!(sim.outcome(), NONE);
}

#[test]
fn a_step_whose_failure_is_skipped_does_not_stop_the_run() {
    let mut one = task("a");
    one.on_failure = OnFailure::Skip;
    let mut sim = Sim::started(chain(vec![one, task("b")]));
    sim.run_failing("a", ErrorClass::Policy).unwrap();
    sim.run("b").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}
