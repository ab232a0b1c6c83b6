//! Pause: results are recorded, everything that follows from them waits for RESUME.

use expect_test::expect;
use serde_json::json;
use stepwell_kernel::command::{Command, ManualOutcome, Reply, TimerKind, WaitFor};
use stepwell_kernel::decide::next_wake;
use stepwell_kernel::effect::{Effect, Priority, RunOutcome, Target};
use stepwell_kernel::event::{Body, Rollback, TaskKind};
use stepwell_kernel::plan::{
    Admission, AdmitRule, Edge, ErrorClass, Join, Net, OnDenied, Route, RunPolicy, Step, StepNo,
    WaitOn, WaitTimeout,
};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::Status;

use super::{child, compensating, held, looped, template, timers, value};
use crate::support::{Sim, chain, code, constant, net, retry, task, tasks, undoable, waits};

fn dispatched(sim: &mut Sim) -> Vec<String> {
    let effects = sim.take_effects();
    let targets = effects.into_iter().filter_map(|effect| match effect {
        Effect::Dispatch { target, .. } => Some(target.step_ref()),
        _ => None,
    });
    targets.map(|at| sim.plan.step_id(at)).collect()
}

/// Pauses now; says from which event on.
fn paused(sim: &mut Sim) -> u64 {
    sim.pause().unwrap();
    sim.take_effects();
    sim.state.seq() + 1
}

/// A timer that is due while the run is paused does nothing yet.
#[track_caller]
fn overdue(sim: &mut Sim, kind: TimerKind) {
    let (due, id) = sim
        .state
        .timers()
        .iter()
        .find(|(_, id)| id.kind == kind)
        .unwrap();
    sim.env.now = sim.env.now.max(due);
    let seq = sim.state.seq();
    assert_eq!(code(sim.send(Command::FireTimer(id))), Code::RunPaused);
    assert_eq!(sim.state.seq(), seq);
    let wake = next_wake(&sim.state);
    assert_ne!(wake, Some(due), "a paused run is not woken for it");
}

#[test]
fn c39_pause_stops_scheduling_and_lets_work_in_flight_go_on() {
    let mut sim = Sim::started(net(
        vec![task("a"), task("b"), task("c"), task("d")],
        &[("a", "c"), ("b", "d")],
    ));
    sim.claim("a").unwrap();
    sim.take_effects();
    sim.pause().unwrap();
    assert!(sim.state.is_draining());
    assert_eq!(sim.state.tally().running(), 1, "in flight means leased");
    assert_eq!(code(sim.claim("b")), Code::RunPaused);
    // The worker goes on and its result counts; what it makes possible is not offered.
    sim.complete_with("a", json!({ "rows": 1 })).unwrap();
    assert_eq!(sim.status("a"), Some(Status::Succeeded));
    assert!(!sim.state.is_draining() && sim.state.pause().is_some());
    assert_eq!(sim.state.tally().running(), 0);
    assert_eq!(code(sim.claim("c")), Code::RunPaused);
    assert_eq!(dispatched(&mut sim), Vec::<String>::new());
    sim.resume().unwrap();
    assert_eq!(dispatched(&mut sim), ["b", "c"]);
}

#[test]
fn c39_nothing_that_happens_in_a_pause_is_scheduled() {
    let mut again = task("again");
    again.retry = retry(3, constant(100));
    let steps = vec![
        again,
        task("hand"),
        looped("each", 3, 1),
        waits("nap", WaitOn::Timer { millis: 50 }, None),
        task("last"),
    ];
    let mut sim = Sim::started(net(steps, &[("nap", "last"), ("hand", "last")]));
    sim.claim("again").unwrap();
    sim.claim("hand").unwrap();
    sim.claim("each[0]").unwrap();
    paused(&mut sim);
    sim.fail("again", ErrorClass::Transient).unwrap();
    sim.wait_for_event("hand", "paid").unwrap();
    sim.deliver("e", "paid", json!({})).unwrap();
    sim.complete("each[0]").unwrap();
    sim.patch_ctx(json!({ "x": 1 })).unwrap();
    sim.advance(1_000);
    assert_eq!(dispatched(&mut sim), Vec::<String>::new());
    for step in ["again", "hand", "each[1]"] {
        assert_eq!(code(sim.claim(step)), Code::RunPaused, "{step}");
    }
    sim.resume().unwrap();
    assert_eq!(dispatched(&mut sim), ["again", "each[1]", "hand"]);
}

#[test]
fn c40_a_drain_that_takes_too_long_raises_an_alert_and_can_be_resumed() {
    assert_eq!(RunPolicy::default().drain_timeout_ms, 5 * 60 * 1000);
    let mut sim = Sim::started(tasks(&["a", "b"]));
    sim.claim("a").unwrap();
    sim.pause().unwrap();
    let (due, id) = sim.next_timer().unwrap();
    assert_eq!(
        (id.kind, due),
        (TimerKind::Drain, sim.env.now.plus(300_000))
    );
    assert_eq!(next_wake(&sim.state), Some(due));
    sim.advance(299_999);
    assert_eq!(code(sim.send(Command::FireTimer(id))), Code::TimerNotDue);
    sim.take_effects();
    sim.advance(1);
    sim.send(Command::FireTimer(id)).unwrap();
    assert!(matches!(
        sim.last(),
        Some(Body::PauseDrainTimedOut {
            ordinal: 1,
            in_flight: 1
        })
    ));
    let alerts: Vec<_> = sim
        .take_effects()
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Alert { code, priority, .. } => Some((code, priority)),
            _ => None,
        })
        .collect();
    assert_eq!(alerts, [("PAUSE_DRAIN_TIMEOUT", Priority::P2)]);
    assert!(
        sim.state
            .pause()
            .is_some_and(|pause| pause.drain_timed_out())
    );
    assert!(sim.state.is_draining(), "the work is still in flight");
    sim.resume().unwrap();
    assert_eq!(sim.state.pause(), None);
}

#[test]
fn c41_a_completion_after_the_drain_timeout_is_applied() {
    let mut sim = Sim::started(tasks(&["a", "b"]));
    sim.claim("a").unwrap();
    sim.pause().unwrap();
    sim.advance_to_next_timer().unwrap();
    assert_eq!(sim.count("PauseDrainTimedOut"), 1);
    // The worker has renewed its lease all the while.
    let mut claim = sim.claim_on("a");
    claim.lease_until = Some(sim.env.now.plus(1_000));
    sim.complete_all(
        claim,
        json!({ "rows": 7 }),
        json!({ "rows": 7 }),
        Vec::new(),
    )
    .unwrap();
    assert_eq!(sim.status("a"), Some(Status::Succeeded));
    assert_eq!(
        sim.state
            .ctx()
            .get("rows")
            .map(|rows| rows.as_ref().clone()),
        Some(json!(7))
    );
    sim.resume().unwrap();
    sim.run("b").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn a_drain_that_is_done_in_time_raises_nothing() {
    let mut sim = Sim::started(tasks(&["a", "b"]));
    sim.claim("a").unwrap();
    sim.pause().unwrap();
    let (_, id) = sim.next_timer().unwrap();
    sim.complete("a").unwrap();
    assert_eq!(sim.next_timer(), None);
    sim.advance(300_000);
    assert_eq!(code(sim.send(Command::FireTimer(id))), Code::TimerStale);
    // And one with nothing in flight has nothing to wait for.
    sim.resume().unwrap();
    sim.pause().unwrap();
    assert_eq!(sim.next_timer(), None);
}

#[test]
fn c42_resume_repeats_nothing_that_was_done() {
    let mut sim = Sim::started(tasks(&["a", "b", "c"]));
    sim.run("a").unwrap();
    sim.claim("b").unwrap();
    let seq = paused(&mut sim);
    sim.complete("b").unwrap();
    sim.resume().unwrap();
    assert_eq!(sim.ready(), ["c"]);
    assert_eq!(code(sim.claim("a")), Code::StepTerminal);
    assert_eq!(code(sim.claim("b")), Code::StepTerminal);
    sim.run_everything();
    expect![[r#"
        StepCompleted b
        SignalAccepted
        RunResumed
        StepStarted c
        StepCompleted c
        RunCompleted
    "#]]
    .assert_eq(&sim.log_from(seq));
}

#[test]
fn c51_the_end_of_a_run_waits_for_resume() {
    let mut sim = Sim::started(tasks(&["a"]));
    sim.claim("a").unwrap();
    let seq = paused(&mut sim);
    sim.complete("a").unwrap();
    assert_eq!(code(sim.proceed()), Code::NothingToDo);
    assert_eq!(sim.outcome(), None);
    sim.resume().unwrap();
    expect![[r#"
        StepCompleted a
        SignalAccepted
        RunResumed
        RunCompleted
    "#]]
    .assert_eq(&sim.log_from(seq));
}

#[test]
fn c51_a_failure_is_answered_at_resume() {
    let mut plan = net(
        vec![undoable("a"), compensating("b"), task("c")],
        &[("a", "b"), ("a", "c")],
    );
    plan.policy.skip_unreached = true;
    let mut sim = Sim::started(plan);
    sim.run("a").unwrap();
    sim.claim("b").unwrap();
    let seq = paused(&mut sim);
    sim.fail("b", ErrorClass::Policy).unwrap();
    assert_eq!(sim.status("b"), Some(Status::Failed));
    assert_eq!(sim.count("RunStopping"), 0);
    assert_eq!(code(sim.claim_undo("a")), Code::RunNotRunning);
    sim.resume().unwrap();
    expect![[r#"
        StepFailed b
        SignalAccepted
        RunResumed
        RunStopping
        StepSkipped c
        CompensationStarted
    "#]]
    .assert_eq(&sim.log_from(seq));
}

#[test]
fn c51_only_a_cancel_ends_a_paused_run() {
    for emergency in [false, true] {
        let mut sim = Sim::started(net(vec![task("a"), task("b")], &[]));
        sim.claim("a").unwrap();
        let seq = paused(&mut sim);
        if emergency {
            sim.signal("EMERGENCY_STOP", json!({})).unwrap();
        } else {
            sim.signal("CANCEL", json!({})).unwrap();
        }
        assert_eq!(sim.outcome(), None, "work in flight ends first");
        sim.confirm_kill("a").unwrap();
        assert_eq!(sim.outcome(), Some(RunOutcome::Cancelled(Rollback::None)));
        expect![[r#"
            SignalAccepted
            RunStopping
            StepSkipped b
            StepFailed a
            RunCancelled
        "#]]
        .assert_eq(&sim.log_from(seq));
    }
}

#[test]
fn a_failure_that_is_held_is_held_at_resume_and_its_time_starts_then() {
    let mut sim = Sim::started(chain(vec![held("a", 5_000)]));
    sim.claim("a").unwrap();
    let seq = paused(&mut sim);
    sim.fail("a", ErrorClass::Policy).unwrap();
    sim.advance(60_000);
    assert_eq!(sim.status("a"), Some(Status::Failed));
    sim.resume().unwrap();
    assert_eq!(sim.status("a"), Some(Status::Held));
    assert_eq!(sim.next_timer().unwrap().0, sim.env.now.plus(5_000));
    expect![[r#"
        StepFailed a
        SignalAccepted
        RunResumed
        StepHeld a
    "#]]
    .assert_eq(&sim.log_from(seq));
}

#[test]
fn a_failure_in_a_pause_can_be_retried_before_it_is_answered() {
    let mut sim = Sim::started(tasks(&["a"]));
    sim.claim("a").unwrap();
    paused(&mut sim);
    sim.fail("a", ErrorClass::Policy).unwrap();
    sim.signal("RETRY_STEP", json!({ "stepId": "a" })).unwrap();
    sim.resume().unwrap();
    assert_eq!(sim.count("RunStopping"), 0);
    sim.run("a").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn a_backoff_that_ends_in_a_pause_is_claimed_after_it() {
    let mut step = task("a");
    step.retry = retry(2, constant(1_000));
    let mut sim = Sim::started(chain(vec![step]));
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    paused(&mut sim);
    sim.advance(2_000);
    assert_eq!(code(sim.claim("a")), Code::RunPaused);
    sim.resume().unwrap();
    sim.run("a").unwrap();
    // And one that does not end in it is not shortened by it.
    let mut step = task("a");
    step.retry = retry(2, constant(1_000));
    let mut sim = Sim::started(chain(vec![step]));
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    paused(&mut sim);
    sim.resume().unwrap();
    assert_eq!(code(sim.advance(999).claim("a")), Code::StepNotEligible);
    sim.advance(1).run("a").unwrap();
}

#[test]
fn an_attempt_that_is_overdue_ends_at_resume() {
    let mut step = task("a");
    step.timeout_ms = Some(1_000);
    let mut sim = Sim::started(chain(vec![step]));
    sim.claim("a").unwrap();
    let seq = paused(&mut sim);
    overdue(&mut sim, TimerKind::Attempt);
    sim.resume().unwrap();
    let error = sim.step("a").error().cloned().unwrap();
    assert_eq!(
        (error.class, error.code.as_str()),
        (ErrorClass::Timeout, "TIMEOUT")
    );
    expect![[r#"
        SignalAccepted
        RunResumed
        StepFailed a
        RunStopping
        RunFailed
    "#]]
    .assert_eq(&sim.log_from(seq));
}

#[test]
fn an_overdue_attempt_that_completes_in_the_pause_has_completed() {
    let mut step = task("a");
    step.timeout_ms = Some(1_000);
    let mut sim = Sim::started(chain(vec![step]));
    sim.claim("a").unwrap();
    paused(&mut sim);
    overdue(&mut sim, TimerKind::Attempt);
    sim.complete("a").unwrap();
    sim.resume().unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn a_wait_that_is_overdue_ends_at_resume() {
    let wait = |on: WaitOn| Sim::started(chain(vec![waits("a", on, Some(1_000))]));
    let event = || WaitOn::Event {
        event_type: "paid".into(),
    };
    for on in [WaitOn::Approval, WaitOn::Manual, event()] {
        let mut sim = wait(on);
        paused(&mut sim);
        overdue(&mut sim, TimerKind::Wait);
        assert_eq!(sim.status("a"), Some(Status::Waiting));
        sim.resume().unwrap();
        assert_eq!(sim.status("a"), Some(Status::Failed));
        assert_eq!(
            sim.step("a").error().cloned().unwrap().class,
            ErrorClass::Timeout
        );
    }
    // What comes in the pause is in time: the deadline was not looked at.
    let mut sim = wait(WaitOn::Approval);
    paused(&mut sim);
    overdue(&mut sim, TimerKind::Wait);
    sim.answer("a", ManualOutcome::Succeeded, "someone")
        .unwrap();
    sim.resume().unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
    let mut sim = wait(event());
    paused(&mut sim);
    overdue(&mut sim, TimerKind::Wait);
    sim.deliver("e", "paid", json!({ "n": 1 })).unwrap();
    assert_eq!(
        sim.count("StepCompleted"),
        0,
        "the engine's own work waits too"
    );
    sim.resume().unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn a_time_that_comes_in_a_pause_has_come_at_resume() {
    let mut sim = Sim::started(chain(vec![
        waits("nap", WaitOn::Timer { millis: 500 }, None),
        task("a"),
    ]));
    paused(&mut sim);
    overdue(&mut sim, TimerKind::Wait);
    sim.resume().unwrap();
    assert_eq!(sim.status("nap"), Some(Status::Succeeded));
    assert_eq!(sim.ready(), ["a"]);
}

#[test]
fn a_wait_that_runs_out_in_a_pause_is_offered_to_a_worker_after_it() {
    let mut plan = tasks(&["a"]);
    plan.policy.wait_timeout = WaitTimeout::Claim;
    for wait_in_pause in [false, true] {
        let mut sim = Sim::started(plan.clone());
        sim.claim("a").unwrap();
        let wait = |sim: &mut Sim| {
            let event_type = "paid".into();
            sim.wait("a", WaitFor::Event { event_type }, Some(1_000))
                .unwrap();
        };
        if !wait_in_pause {
            wait(&mut sim);
        }
        paused(&mut sim);
        if wait_in_pause {
            wait(&mut sim);
        }
        let deadline = sim.step("a").wait().unwrap().deadline().unwrap();
        sim.advance(2_000);
        assert_eq!(code(sim.claim("a")), Code::RunPaused);
        assert_eq!(dispatched(&mut sim), Vec::<String>::new());
        sim.resume().unwrap();
        let offered = sim.take_effects();
        let expected = Effect::Dispatch {
            target: Target::Step(sim.at("a")),
            visible_at: deadline,
            task: TaskKind::WaitingTimeout,
        };
        assert!(offered.contains(&expected), "{offered:?}");
        let Reply::Claimed(claimed) = sim.claim("a").unwrap() else {
            panic!("no claim");
        };
        assert_eq!(claimed.task, TaskKind::WaitingTimeout);
    }
}

#[test]
fn a_run_timeout_is_decided_at_resume() {
    let mut plan = tasks(&["a", "b"]);
    plan.policy.timeout_ms = Some(1_000);
    let mut sim = Sim::started(plan.clone());
    let seq = paused(&mut sim);
    overdue(&mut sim, TimerKind::Run);
    sim.resume().unwrap();
    expect![[r#"
        SignalAccepted
        RunResumed
        RunStopping
        StepSkipped a
        RunFailed
    "#]]
    .assert_eq(&sim.log_from(seq));
    assert!(
        matches!(sim.last(), Some(Body::RunFailed { error, .. }) if error.code == "RUN_TIMEOUT")
    );
    // A run that has nothing left to do is done, however late that is found.
    let mut sim = Sim::started(plan);
    sim.run("a").unwrap();
    sim.claim("b").unwrap();
    paused(&mut sim);
    sim.complete("b").unwrap();
    overdue(&mut sim, TimerKind::Run);
    sim.resume().unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn a_hold_that_runs_out_in_a_pause_ends_the_run_at_resume() {
    let mut sim = Sim::started(chain(vec![held("a", 1_000), task("b")]));
    sim.run_failing("a", ErrorClass::Policy).unwrap();
    paused(&mut sim);
    overdue(&mut sim, TimerKind::Hold);
    sim.resume().unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
    // A retry or a skip during the pause is in time.
    for signal in ["RETRY_STEP", "SKIP_STEP"] {
        let mut sim = Sim::started(chain(vec![held("a", 1_000), task("b")]));
        sim.run_failing("a", ErrorClass::Policy).unwrap();
        paused(&mut sim);
        overdue(&mut sim, TimerKind::Hold);
        sim.signal(signal, json!({ "stepId": "a" })).unwrap();
        sim.resume().unwrap();
        sim.run_everything();
        assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded), "{signal}");
    }
}

/// `a` goes to `b` if `ctx.go`, else to `c`; `c` is not let in unless `ctx.open`.
fn routed() -> Net {
    let mut plan = net(vec![task("a"), task("b"), task("c")], &[]);
    for step in &mut plan.steps {
        step.join = Join::Each;
        step.route = Route::Exclusive;
    }
    let rule = |when: Option<&str>, allow| AdmitRule {
        when: when.map(template),
        allow,
    };
    plan.steps[2].admit = Some(Admission {
        rules: vec![rule(Some("{{ ctx.open }}"), true), rule(None, false)],
        denied: OnDenied::Pending,
    });
    let mut go = Edge::plain(StepNo(0), StepNo(1));
    go.when = Some(template("{{ ctx.go }}"));
    let mut stay = Edge::plain(StepNo(0), StepNo(2));
    stay.set_ctx = vec![("stayed".into(), value(&json!(true)))];
    plan.edges = vec![go, stay];
    plan.policy.stall_timeout_ms = 1_000;
    plan.policy.entry = stepwell_kernel::plan::EntryPoint::Step(StepNo(0));
    plan
}

#[test]
fn routes_are_chosen_at_resume_with_ctx_as_it_is_then() {
    let mut sim = Sim::started(routed());
    sim.claim("a").unwrap();
    let seq = paused(&mut sim);
    sim.complete("a").unwrap();
    assert_eq!((sim.status("b"), sim.status("c")), (None, None));
    sim.patch_ctx(json!({ "go": true })).unwrap();
    sim.resume().unwrap();
    assert_eq!(sim.ready(), ["b"]);
    expect![[r#"
        StepCompleted a
        CtxPatched
        SignalAccepted
        RunResumed
        StepRouted a
    "#]]
    .assert_eq(&sim.log_from(seq));
}

#[test]
fn a_patch_of_a_result_in_a_pause_is_recorded_with_the_result() {
    let mut plan = routed();
    plan.steps[0].set_ctx = vec![("go".into(), value(&json!("{{ output.data.go }}")))];
    let mut sim = Sim::started(plan);
    sim.claim("a").unwrap();
    paused(&mut sim);
    sim.complete_with("a", json!({ "go": true })).unwrap();
    assert_eq!(
        sim.state.ctx().get("go").map(|go| go.as_ref().clone()),
        Some(json!(true))
    );
    sim.resume().unwrap();
    assert_eq!(sim.ready(), ["b"]);
}

#[test]
fn denied_tokens_are_looked_at_again_at_resume() {
    let mut sim = Sim::started(routed());
    sim.run("a").unwrap();
    assert_eq!(sim.status("c"), Some(Status::Denied));
    assert_eq!(timers(&sim), [TimerKind::Stall]);
    let seq = paused(&mut sim);
    sim.patch_ctx(json!({ "open": true })).unwrap();
    assert_eq!(sim.status("c"), Some(Status::Denied));
    overdue(&mut sim, TimerKind::Stall);
    sim.resume().unwrap();
    assert_eq!(sim.ready(), ["c"], "it was revived in time");
    expect![[r#"
        CtxPatched
        SignalAccepted
        RunResumed
        TokensAdmitted
    "#]]
    .assert_eq(&sim.log_from(seq));
}

#[test]
fn a_stall_that_runs_out_in_a_pause_ends_the_run_at_resume() {
    let mut sim = Sim::started(routed());
    sim.run("a").unwrap();
    paused(&mut sim);
    overdue(&mut sim, TimerKind::Stall);
    sim.resume().unwrap();
    let Some(Body::RunFailed { error, .. }) = sim.last() else {
        panic!("{:?}", sim.last());
    };
    assert_eq!(error.code, "STALL_TIMEOUT");
    assert!(
        error.message.contains("c is not admitted"),
        "{}",
        error.message
    );
}

#[test]
fn children_are_paused_and_resumed_with_their_parent() {
    let mut sim = Sim::started(chain(vec![child("a"), child("b")]));
    sim.take_effects();
    sim.pause().unwrap();
    assert!(sim.take_effects().contains(&Effect::PauseChildren));
    // A child that ends all the same has ended; the next one is not started.
    sim.child_ended("a", RunOutcome::Succeeded, json!({}))
        .unwrap();
    assert_eq!(sim.status("b"), Some(Status::Arrived));
    let starts = |sim: &mut Sim| {
        let effects = sim.take_effects();
        let is = |effect: &&Effect| matches!(effect, Effect::StartChild { .. });
        (
            effects.iter().filter(is).count(),
            effects.contains(&Effect::ResumeChildren),
        )
    };
    assert_eq!(starts(&mut sim), (0, false));
    sim.resume().unwrap();
    assert_eq!(starts(&mut sim), (1, true));
    assert_eq!(sim.status("b"), Some(Status::Waiting));
}

#[test]
fn a_loop_drains_in_a_pause_and_ends_at_resume() {
    let mut sim = Sim::started(chain(vec![looped("a", 2, 2), task("b")]));
    sim.claim("a[0]").unwrap();
    sim.claim("a[1]").unwrap();
    let seq = paused(&mut sim);
    sim.complete_with("a[1]", json!(1)).unwrap();
    sim.complete_with("a[0]", json!(0)).unwrap();
    assert_eq!(sim.status("a"), Some(Status::Looping));
    sim.resume().unwrap();
    assert_eq!(sim.ready(), ["b"]);
    expect![[r#"
        StepCompleted a[1]
        StepCompleted a[0]
        SignalAccepted
        RunResumed
        StepCompleted a
    "#]]
    .assert_eq(&sim.log_from(seq));
}

#[test]
fn a_loop_does_not_start_in_a_pause() {
    let mut sim = Sim::started(chain(vec![task("first"), looped("a", 2, 2)]));
    sim.claim("first").unwrap();
    paused(&mut sim);
    sim.complete("first").unwrap();
    assert_eq!(sim.status("a"), Some(Status::Arrived));
    sim.resume().unwrap();
    assert_eq!(sim.ready(), ["a[0]", "a[1]"]);
}

#[test]
fn a_lost_lease_in_a_pause_is_recorded_and_retried_after_it() {
    let mut step = task("a");
    step.retry = retry(2, constant(0));
    let mut sim = Sim::started(chain(vec![step]));
    sim.claim("a").unwrap();
    paused(&mut sim);
    sim.expire_lease("a").unwrap();
    assert!(matches!(sim.last(), Some(Body::StepExecutionFailed { .. })));
    assert!(!sim.state.is_draining());
    assert_eq!(code(sim.claim("a")), Code::RunPaused);
    sim.resume().unwrap();
    sim.run("a").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn a_gate_is_answered_in_a_pause_and_opens_at_resume() {
    let mut step: Step = task("a");
    step.gate = Some(stepwell_kernel::plan::Gate {
        duties: Vec::new(),
        deadline_ms: None,
    });
    let mut sim = Sim::started(chain(vec![step]));
    paused(&mut sim);
    sim.answer("a", ManualOutcome::Succeeded, "someone")
        .unwrap();
    assert_eq!(code(sim.claim("a")), Code::RunPaused);
    assert_eq!(dispatched(&mut sim), Vec::<String>::new());
    sim.resume().unwrap();
    sim.run("a").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn a_final_step_waits_for_resume() {
    let mut plan = tasks(&["a"]);
    plan.steps.push(task("last"));
    plan.policy.final_step = Some(StepNo(1));
    let mut sim = Sim::started(plan);
    sim.claim("a").unwrap();
    paused(&mut sim);
    sim.complete("a").unwrap();
    assert_eq!(sim.count("RunFinalizing"), 0);
    sim.resume().unwrap();
    assert_eq!(sim.ready(), ["last"]);
    // It can be paused there as anywhere.
    sim.claim("last").unwrap();
    paused(&mut sim);
    sim.complete("last").unwrap();
    assert_eq!(sim.outcome(), None);
    sim.resume().unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn a_crash_in_a_pause_loses_nothing_that_was_held_back() {
    let mut sim = Sim::started(routed());
    sim.claim("a").unwrap();
    paused(&mut sim);
    sim.complete("a").unwrap();
    sim.crash();
    sim.patch_ctx(json!({ "go": true })).unwrap();
    sim.crash();
    sim.resume().unwrap();
    assert_eq!(sim.ready(), ["b"]);
}
