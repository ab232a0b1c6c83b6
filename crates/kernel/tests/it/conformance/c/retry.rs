//! Retry, skip and hold; and what an operator's changes reach.

use expect_test::expect;
use serde_json::{Value as Json, json};
use stepwell_kernel::command::{Claimed, ManualOutcome, Reply, TimerKind};
use stepwell_kernel::effect::{Effect, RunOutcome, Target};
use stepwell_kernel::event::{Body, Rollback, SkipReason};
use stepwell_kernel::plan::{Edge, EntryPoint, ErrorClass, Join, Net, Route, Step, StepNo, WaitOn};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::Status;

use super::{child, compensating, held, looped, timers};
use crate::support::{Sent, Sim, WORKER, chain, code, net, retried, task, tasks, undoable, waits};

fn retry_step(sim: &mut Sim, id: &str) -> Sent {
    sim.signal("RETRY_STEP", json!({ "stepId": id }))
}

fn skip_step(sim: &mut Sim, id: &str) -> Sent {
    sim.signal("SKIP_STEP", json!({ "stepId": id }))
}

#[track_caller]
fn refused(sent: Sent) -> Code {
    match sent {
        Ok(Reply::Refused(rejection)) => rejection.code,
        other => panic!("expected a recorded refusal, got {other:?}"),
    }
}

#[track_caller]
fn claimed(sent: Sent) -> Claimed {
    match sent {
        Ok(Reply::Claimed(claimed)) => *claimed,
        other => panic!("expected a claim, got {other:?}"),
    }
}

/// `a`, then `b` and `c`, then `d`; a failure of `b` is held.
fn diamond() -> Net {
    let mut net = net(
        vec![task("a"), held("b", 10_000), task("c"), task("d")],
        &[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")],
    );
    net.policy.skip_unreached = true;
    net
}

#[test]
fn c49_a_held_step_that_is_retried_lets_its_dependents_run() {
    let mut sim = Sim::started(diamond());
    sim.run("a").unwrap();
    sim.run_failing("b", ErrorClass::Policy).unwrap();
    sim.run("c").unwrap();
    assert_eq!(sim.status("b"), Some(Status::Held));
    assert_eq!(sim.status("d"), None, "dependents stay pending");
    assert!(sim.outcome().is_none());
    let seq = sim.state.seq() + 1;
    retry_step(&mut sim, "b").unwrap();
    assert_eq!(timers(&sim), [], "the hold is over");
    sim.run("b").unwrap();
    sim.run("d").unwrap();
    expect![[r#"
        SignalAccepted
        StepRetried b
        StepStarted b
        StepCompleted b
        StepStarted d
        StepCompleted d
        RunCompleted
    "#]]
    .assert_eq(&sim.log_from(seq));
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
    assert_eq!(code(retry_step(&mut sim, "b")), Code::RunTerminal);
    let hint = retry_step(&mut sim, "b").unwrap_err().message;
    assert!(hint.contains("RETRY_RUN"), "{hint}");
}

#[test]
fn a_hold_that_nobody_answers_fails_the_run_and_skips_dependents_just_before() {
    let mut sim = Sim::started(diamond());
    sim.run("a").unwrap();
    sim.run_failing("b", ErrorClass::Policy).unwrap();
    sim.run("c").unwrap();
    let (due, id) = sim.next_timer().unwrap();
    assert_eq!((id.kind, due), (TimerKind::Hold, sim.env.now.plus(10_000)));
    let seq = sim.state.seq() + 1;
    sim.advance_to_next_timer().unwrap();
    expect![[r#"
        RunStopping
        StepSkipped d
        RunFailed
    "#]]
    .assert_eq(&sim.log_from(seq));
    assert!(
        matches!(sim.last(), Some(Body::RunFailed { error, .. }) if error.message == "b: it broke")
    );
    assert_eq!(sim.step("d").skip(), Some(SkipReason::DependencyFailed));
}

#[test]
fn a_held_step_does_not_stop_the_others() {
    let mut sim = Sim::started(diamond());
    sim.run("a").unwrap();
    sim.run_failing("b", ErrorClass::Policy).unwrap();
    assert_eq!(sim.ready(), ["c"]);
    sim.claim("c").unwrap();
    sim.advance_to_next_timer().unwrap();
    assert!(sim.outcome().is_none(), "work in flight ends first");
    sim.complete("c").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
}

#[test]
fn retry_step_while_the_run_stops_or_undoes_is_refused() {
    let mut sim = Sim::started(net(
        vec![undoable("a"), held("b", 10_000), task("c")],
        &[("a", "b"), ("a", "c")],
    ));
    sim.run("a").unwrap();
    sim.run_failing("b", ErrorClass::Policy).unwrap();
    sim.claim("c").unwrap();
    sim.cancel_with(true).unwrap();
    assert_eq!(refused(retry_step(&mut sim, "b")), Code::RunStopping);
    assert_eq!(refused(skip_step(&mut sim, "b")), Code::RunStopping);
    sim.confirm_kill("c").unwrap();
    assert_eq!(sim.count("CompensationStarted"), 1);
    assert_eq!(refused(retry_step(&mut sim, "b")), Code::RunStopping);
}

#[test]
fn c48_a_pending_step_is_skipped_and_its_dependents_go_on() {
    // Not reached, reached, backing off and never started.
    let mut sim = Sim::started(tasks(&["a", "b", "c"]));
    let seq = sim.state.seq() + 1;
    skip_step(&mut sim, "b").unwrap();
    assert_eq!(sim.ready(), ["a"], "c does not overtake a");
    skip_step(&mut sim, "a").unwrap();
    sim.run("c").unwrap();
    expect![[r#"
        SignalAccepted
        StepSkipped b
        SignalAccepted
        StepSkipped a
        StepRouted b
        StepStarted c
        StepCompleted c
        RunCompleted
    "#]]
    .assert_eq(&sim.log_from(seq));
    let skips: Vec<(u32, SkipReason)> = sim
        .events()
        .iter()
        .filter_map(|event| match event.body {
            Body::StepSkipped {
                logical, reason, ..
            } => Some((logical, reason)),
            _ => None,
        })
        .collect();
    assert_eq!(
        skips,
        [(1, SkipReason::OperatorAhead), (1, SkipReason::Operator)]
    );
}

// also proves: C15
#[test]
fn c48_a_started_step_ends_as_failed_and_its_next_attempt_is_skipped() {
    let retried = retried("a", 3);
    for state in ["running", "backoff", "waiting", "held"] {
        let first = if state == "held" {
            held("a", 9_000)
        } else {
            retried.clone()
        };
        let mut sim = Sim::started(chain(vec![first, task("b")]));
        sim.claim("a").unwrap();
        match state {
            "backoff" => drop(sim.fail("a", ErrorClass::Transient).unwrap()),
            "waiting" => drop(sim.wait_for_event("a", "paid").unwrap()),
            "held" => drop(sim.fail("a", ErrorClass::Policy).unwrap()),
            _ => {}
        }
        sim.take_effects();
        let seq = sim.state.seq() + 1;
        skip_step(&mut sim, "a").unwrap();
        let mut attempts = Vec::new();
        for event in sim.events().iter().filter(|event| event.seq >= seq) {
            match &event.body {
                Body::StepFailed {
                    logical,
                    error,
                    cancelled,
                    ..
                } => {
                    assert!(*cancelled);
                    assert_eq!(error.code, "SKIPPED_BY_OPERATOR");
                    attempts.push(("failed", *logical));
                }
                Body::StepSkipped { logical, .. } => attempts.push(("skipped", *logical)),
                _ => {}
            }
        }
        // A held one has failed already.
        let expected: &[(&str, u32)] = match state {
            "held" => &[("skipped", 2)],
            _ => &[("failed", 1), ("skipped", 2)],
        };
        assert_eq!(attempts, expected, "{state}");
        assert_eq!(sim.ready(), ["b"], "{state}");
        assert_eq!(timers(&sim), [], "{state}");
        // The worker is told, and what it still says changes nothing.
        let stop = Effect::CancelWork {
            target: Target::Step(sim.at("a")),
            execution: 1,
        };
        assert_eq!(sim.take_effects().contains(&stop), state == "running");
        let before = sim.state.clone();
        assert_eq!(code(sim.complete("a")), Code::StepNotRunning);
        assert_eq!(sim.state, before);
        assert_eq!(refused(skip_step(&mut sim, "a")), Code::StepTerminal);
        assert_eq!(refused(retry_step(&mut sim, "a")), Code::StepTerminal);
        sim.run("b").unwrap();
        assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded), "{state}");
    }
}

#[test]
fn c48_a_finished_step_is_not_skipped() {
    let mut sim = Sim::started(net(
        vec![task("a"), task("b"), task("z")],
        &[("a", "z"), ("b", "z")],
    ));
    sim.run("a").unwrap();
    assert_eq!(refused(skip_step(&mut sim, "a")), Code::StepTerminal);
    skip_step(&mut sim, "b").unwrap();
    assert_eq!(refused(skip_step(&mut sim, "b")), Code::StepTerminal);
}

#[test]
fn a_finished_item_of_a_loop_is_neither_skipped_nor_retried() {
    let mut sim = Sim::started(chain(vec![looped("a", 4, 2)]));
    sim.run("a[0]").unwrap();
    skip_step(&mut sim, "a[1]").unwrap();
    for id in ["a[0]", "a[1]"] {
        assert_eq!(refused(skip_step(&mut sim, id)), Code::StepTerminal, "{id}");
        assert_eq!(
            refused(retry_step(&mut sim, id)),
            Code::StepTerminal,
            "{id}"
        );
    }
    assert_eq!(refused(retry_step(&mut sim, "a[2]")), Code::StepNotTerminal);
    assert_eq!(refused(skip_step(&mut sim, "a[9]")), Code::StepUnknown);
    // Another item in flight keeps the loop open.
    sim.claim("a[3]").unwrap();
    sim.run_failing("a[2]", ErrorClass::Policy).unwrap();
    assert_eq!(refused(retry_step(&mut sim, "a[2]")), Code::StepTerminal);
}

#[test]
fn retry_step_needs_a_failed_step() {
    let mut sim = Sim::started(tasks(&["a", "b"]));
    assert_eq!(refused(retry_step(&mut sim, "a")), Code::StepNotTerminal);
    assert_eq!(refused(retry_step(&mut sim, "b")), Code::StepNotTerminal);
    sim.claim("a").unwrap();
    assert_eq!(refused(retry_step(&mut sim, "a")), Code::StepNotTerminal);
    sim.complete("a").unwrap();
    assert_eq!(refused(retry_step(&mut sim, "a")), Code::StepTerminal);
}

#[test]
fn an_operators_skip_satisfies_every_join() {
    let mut sim = Sim::started(net(
        vec![task("a"), task("b"), task("c"), task("d")],
        &[("a", "c"), ("b", "c"), ("b", "d")],
    ));
    sim.run("a").unwrap();
    sim.claim("b").unwrap();
    skip_step(&mut sim, "b").unwrap();
    assert_eq!(sim.ready(), ["c", "d"]);
}

#[test]
fn skipping_a_loop_ends_its_items() {
    let mut sim = Sim::started(chain(vec![looped("a", 3, 2), task("b")]));
    sim.claim("a[0]").unwrap();
    let seq = sim.state.seq() + 1;
    skip_step(&mut sim, "a").unwrap();
    expect![[r#"
        SignalAccepted
        StepFailed a
        StepFailed a[0]
        StepSkipped a[1]
        StepSkipped a
    "#]]
    .assert_eq(&sim.log_from(seq));
    sim.run("b").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn skipping_an_item_lets_the_loop_go_on() {
    let mut sim = Sim::started(chain(vec![looped("a", 3, 1)]));
    skip_step(&mut sim, "a[0]").unwrap();
    sim.claim("a[1]").unwrap();
    skip_step(&mut sim, "a[1]").unwrap();
    sim.run("a[2]").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn skipping_a_step_that_waits_for_a_child_cancels_the_child() {
    let mut sim = Sim::started(chain(vec![child("a"), task("b")]));
    sim.take_effects();
    skip_step(&mut sim, "a").unwrap();
    let cancelled: Vec<String> = sim
        .take_effects()
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::CancelChild { request_key, .. } => Some(request_key),
            _ => None,
        })
        .collect();
    assert_eq!(cancelled, ["run_sim|a|1|1"]);
    assert_eq!(sim.ready(), ["b"]);
}

#[test]
fn skipping_voids_the_token_of_the_person_who_was_asked() {
    let mut sim = Sim::started(chain(vec![waits("a", WaitOn::Approval, None), task("b")]));
    let token = sim.token("a");
    skip_step(&mut sim, "a").unwrap();
    let late = sim.answer_with("a", &token, ManualOutcome::Failed, "someone");
    assert_eq!(code(late), Code::StepNotWaiting);
}

fn each(step: Step) -> Step {
    Step {
        join: Join::Each,
        route: Route::Inclusive,
        ..step
    }
}

#[test]
fn a_step_that_fires_for_each_token_is_not_skipped_before_one_comes() {
    let mut plan = net(vec![task("a"), task("b"), task("c")], &[]);
    plan.steps = plan.steps.into_iter().map(each).collect();
    plan.edges = vec![
        Edge::plain(StepNo(0), StepNo(1)),
        Edge::plain(StepNo(1), StepNo(2)),
    ];
    plan.policy.entry = EntryPoint::Step(StepNo(0));
    let mut sim = Sim::started(plan);
    // Its branch may never be taken: a token for `c` would come out of nothing.
    assert_eq!(refused(skip_step(&mut sim, "b")), Code::StepNotEligible);
    sim.run("a").unwrap();
    skip_step(&mut sim, "b").unwrap();
    sim.run("c").unwrap();
    assert_eq!(sim.status("b"), Some(Status::Skipped));
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn a_final_step_that_was_skipped_does_not_run() {
    let mut plan = tasks(&["a"]);
    plan.steps.push(task("last"));
    plan.policy.final_step = Some(StepNo(1));
    let mut sim = Sim::started(plan);
    skip_step(&mut sim, "last").unwrap();
    sim.run("a").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
    assert_eq!(sim.count("StepStarted"), 1);
}

// also proves: C14
#[test]
fn a_retried_step_starts_from_nothing() {
    let mut step = held("a", 9_000);
    step.timeout_ms = Some(500);
    let mut sim = Sim::started(chain(vec![step]));
    sim.claim("a").unwrap();
    sim.advance_to_next_timer().unwrap();
    assert_eq!(sim.status("a"), Some(Status::Held));
    retry_step(&mut sim, "a").unwrap();
    let run = sim.step("a");
    assert_eq!(
        (run.status(), run.logical(), run.tries()),
        (Status::Ready, 2, 0)
    );
    assert!(!run.has_started() && run.lease().is_none() && run.timer().is_none());
    // A late result of the attempt before is of an execution that is over.
    assert_eq!(code(sim.complete("a")), Code::StepNotRunning);
    sim.run("a").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn a_retried_loop_runs_all_its_items_again_and_late_results_are_stale() {
    let mut step = looped("a", 2, 2);
    step.on_failure = held("a", 9_000).on_failure;
    let mut sim = Sim::started(chain(vec![step]));
    sim.run("a[0]").unwrap();
    sim.run_failing("a[1]", ErrorClass::Policy).unwrap();
    let late = sim.claim_on("a[1]");
    assert_eq!(sim.status("a"), Some(Status::Held));
    retry_step(&mut sim, "a").unwrap();
    assert_eq!(sim.ready(), ["a[0]", "a[1]"]);
    assert_eq!(
        code(sim.fail_claim(late.clone(), ErrorClass::Policy)),
        Code::StepNotRunning
    );
    sim.claim_as(Target::Step(sim.at("a[1]")), WORKER).unwrap();
    assert_eq!(
        code(sim.fail_claim(late, ErrorClass::Policy)),
        Code::StaleExecution
    );
}

#[test]
fn c50_params_reach_only_what_starts_later() {
    let mut plan = net(
        vec![retried("a", 3), held("b", 9_000), task("c")],
        &[("a", "c"), ("b", "c")],
    );
    plan.workload = json!({ "x": 1, "y": { "z": 1 } });
    let mut sim = Sim::started(plan);
    let old = json!({ "x": 1, "y": { "z": 1 } });
    let new = json!({ "x": 2, "y": { "z": 1 } });
    assert_eq!(*claimed(sim.claim("a")).params, old);
    assert_eq!(*claimed(sim.claim("b")).params, old);
    sim.signal("UPDATE_PARAMS", json!({ "params": { "x": 2 } }))
        .unwrap();
    // The same logical attempt keeps what it started with, in every execution.
    sim.fail("a", ErrorClass::Transient).unwrap();
    assert_eq!(*claimed(sim.claim("a")).params, old);
    sim.expire_lease("a").unwrap();
    assert_eq!(*claimed(sim.claim("a")).params, old);
    sim.complete("a").unwrap();
    // A new logical attempt and a step that had not started see the new ones.
    sim.expire_lease("b").unwrap();
    assert_eq!(*claimed(sim.claim("b")).params, old);
    sim.fail("b", ErrorClass::Transient).unwrap();
    retry_step(&mut sim, "b").unwrap();
    assert_eq!(*claimed(sim.claim("b")).params, new);
    sim.complete("b").unwrap();
    assert_eq!(*claimed(sim.claim("c")).params, new);
}

#[test]
fn overrides_reach_only_logical_attempts_that_start_later() {
    let mut step = held("a", 9_000);
    step.retry = retried("a", 2).retry;
    let mut sim = Sim::started(chain(vec![step]));
    let inject = |sim: &mut Sim, value: Json| {
        sim.signal(
            "INJECT_OVERRIDE",
            json!({ "stepId": "a", "override": value }),
        )
        .unwrap();
    };
    inject(&mut sim, json!({ "x": 1 }));
    let seen = |claim: Claimed| claim.overrides.map(|value| Json::clone(&value));
    assert_eq!(seen(claimed(sim.claim("a"))), Some(json!({ "x": 1 })));
    inject(&mut sim, json!({ "y": 2 }));
    sim.fail("a", ErrorClass::Transient).unwrap();
    assert_eq!(seen(claimed(sim.claim("a"))), Some(json!({ "x": 1 })));
    sim.fail("a", ErrorClass::Transient).unwrap();
    retry_step(&mut sim, "a").unwrap();
    assert_eq!(
        seen(claimed(sim.claim("a"))),
        Some(json!({ "x": 1, "y": 2 }))
    );
}

#[test]
fn an_undo_sees_the_parameters_that_its_step_saw() {
    let mut plan = chain(vec![undoable("a"), compensating("b")]);
    plan.workload = json!({ "x": 1 });
    let mut sim = Sim::started(plan);
    sim.signal("UPDATE_PARAMS", json!({ "params": { "x": 2 } }))
        .unwrap();
    sim.run("a").unwrap();
    sim.signal("UPDATE_PARAMS", json!({ "params": { "x": 3 } }))
        .unwrap();
    sim.run_failing("b", ErrorClass::Policy).unwrap();
    assert_eq!(*claimed(sim.claim_undo("a")).params, json!({ "x": 2 }));
}

#[test]
fn a_new_target_is_used_by_later_executions() {
    let mut sim = Sim::started(chain(vec![retried("a", 2)]));
    assert_eq!(claimed(sim.claim("a")).target, None);
    let new = json!({ "queue": "other" });
    sim.signal("UPDATE_TARGET", json!({ "stepId": "a", "newTarget": new }))
        .unwrap();
    sim.fail("a", ErrorClass::Transient).unwrap();
    let target = claimed(sim.claim("a"))
        .target
        .map(|value| Json::clone(&value));
    assert_eq!(target, Some(new));
}
