//! Executions: every claim counts, the number is the fence, and only the first writes StepStarted.

use expect_test::expect;
use serde_json::json;
use stepwell_kernel::command::{Command, Reply, WaitFor};
use stepwell_kernel::effect::{Effect, RunOutcome};
use stepwell_kernel::event::{Body, Rollback, StepError, TaskKind};
use stepwell_kernel::plan::{ErrorClass, OnFailure, RetryPolicy, Step, WaitTimeout};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::Status;

use crate::support::{Sim, chain, code, constant, net, retried, retry, task, tasks};

#[test]
fn a_step_that_kills_its_worker_is_exhausted_like_any_other() {
    for executions in [1, 2, 7] {
        let mut sim = Sim::started(chain(vec![retried("a", executions)]));
        for _ in 0..executions {
            sim.claim("a").unwrap();
            sim.expire_lease("a").unwrap();
        }
        assert_eq!(sim.status("a"), Some(Status::Failed));
        assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
        assert_eq!(sim.state.error().unwrap().class, ErrorClass::LeaseLost);
    }
}

#[test]
fn a_lost_lease_is_retried_whatever_the_classes_say_and_at_once() {
    let step = Step {
        retry: RetryPolicy {
            max_executions: 2,
            ..RetryPolicy::once()
        },
        ..task("a")
    };
    let mut sim = Sim::started(chain(vec![step]));
    sim.claim("a").unwrap();
    sim.expire_lease("a").unwrap();
    assert_eq!(sim.ready(), ["a"]);
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
}

#[test]
fn failures_and_lost_leases_count_together() {
    let mut sim = Sim::started(chain(vec![retried("a", 3)]));
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    sim.claim("a").unwrap();
    sim.expire_lease("a").unwrap();
    sim.claim("a").unwrap();
    sim.confirm_kill("a").unwrap();
    assert_eq!(sim.status("a"), Some(Status::Failed));
}

#[test]
fn a_claim_after_a_wait_is_an_execution_that_does_not_count() {
    let mut sim = Sim::started(chain(vec![retried("a", 2)]));
    for n in 1..=5 {
        sim.claim("a").unwrap();
        assert_eq!(sim.claim_on("a").execution, n);
        sim.wait_for_event("a", "e").unwrap();
        sim.deliver(&format!("e{n}"), "e", json!({})).unwrap();
    }
    sim.claim("a").unwrap();
    sim.wait("a", WaitFor::Timer, Some(10)).unwrap();
    sim.advance_to_next_timer().unwrap();
    assert_eq!(sim.step("a").tries(), 1);
    // Two may fail, as before.
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    assert_eq!(sim.status("a"), Some(Status::Ready));
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    assert_eq!(sim.status("a"), Some(Status::Failed));
}

#[test]
fn a_result_of_an_execution_that_is_not_current_is_refused() {
    let mut sim = Sim::started(chain(vec![retried("a", 5), task("b")]));
    sim.claim("a").unwrap();
    let old = sim.claim_on("a");
    sim.expire_lease("a").unwrap();
    sim.claim("a").unwrap();
    let current = sim.claim_on("a");
    // The old worker's own lease was renewed: the fence is the number, not the time.
    let mut zombie = old.clone();
    zombie.lease_until = Some(sim.env.now.plus(1_000_000));
    let mut ahead = current.clone();
    ahead.execution += 1;
    for stale in [zombie, ahead] {
        let commands = [
            Command::CompleteStep {
                claim: stale.clone(),
                output: json!(1),
                ctx: Default::default(),
                artifacts: Vec::new(),
            },
            Command::FailStep {
                claim: stale.clone(),
                error: StepError::new(ErrorClass::Unknown, "X", "x"),
                retryable: None,
                delay_ms: None,
                ctx: Default::default(),
            },
            Command::WaitStep {
                claim: stale.clone(),
                wait: WaitFor::Event {
                    event_type: "e".into(),
                },
                timeout_ms: None,
                outbound: vec![json!("hello")],
                memo: None,
            },
            Command::ConfirmKill {
                claim: stale.clone(),
            },
            Command::ExpireLease {
                target: stale.target,
                execution: stale.execution,
                lease_until: None,
            },
        ];
        for command in commands {
            assert_eq!(code(sim.send(command)), Code::StaleExecution);
        }
    }
    sim.complete("a").unwrap();
    assert_eq!(sim.ready(), ["b"]);
}

#[test]
fn the_first_claim_writes_step_started_and_the_others_their_evidence() {
    let mut sim = Sim::started(chain(vec![retried("a", 3)]));
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    sim.claim("a").unwrap();
    sim.wait_for_event("a", "e").unwrap();
    sim.deliver("e1", "e", json!({})).unwrap();
    sim.run("a").unwrap();
    expect![[r#"
        RunCreated
        RunApproved
        RunStarted
        StepStarted a
        StepExecutionFailed a
        StepExecutionStarted a
        StepWaiting a
        StepWoken a
        StepExecutionStarted a
        StepCompleted a
        RunCompleted
    "#]]
    .assert_eq(&sim.log());
    let executions: Vec<u32> = sim
        .events()
        .iter()
        .filter_map(|event| match event.body {
            Body::StepStarted { execution, .. }
            | Body::StepExecutionStarted { execution, .. }
            | Body::StepCompleted { execution, .. } => Some(execution),
            _ => None,
        })
        .collect();
    assert_eq!(executions, [1, 2, 3, 3]);
}

#[test]
fn of_a_result_and_a_lost_lease_exactly_one_is_recorded() {
    let mut sim = Sim::started(chain(vec![retried("a", 3)]));
    sim.claim("a").unwrap();
    let claim = sim.claim_on("a");
    sim.complete("a").unwrap();
    sim.env.now = claim.lease_until.unwrap().plus(1);
    let late = Command::ExpireLease {
        target: claim.target,
        execution: claim.execution,
        lease_until: None,
    };
    assert_eq!(code(sim.send(late)), Code::StepNotRunning);
    // And the other way round.
    let mut sim = Sim::started(chain(vec![retried("a", 3)]));
    sim.claim("a").unwrap();
    sim.expire_lease("a").unwrap();
    assert_eq!(code(sim.complete("a")), Code::StepNotRunning);
}

#[test]
fn a_workers_yes_counts_only_where_the_plan_leaves_it_the_choice() {
    let fail = |class, retryable, choice| {
        let retry = RetryPolicy {
            max_executions: 3,
            classes: vec![ErrorClass::Transient],
            ..RetryPolicy::once()
        };
        let mut plan = chain(vec![Step { retry, ..task("a") }]);
        plan.policy.handler_may_retry = choice;
        let mut sim = Sim::started(plan);
        sim.claim("a").unwrap();
        let claim = sim.claim_on("a");
        sim.send(Command::FailStep {
            claim,
            error: StepError::new(class, "X", "x"),
            retryable,
            delay_ms: None,
            ctx: Default::default(),
        })
        .unwrap();
        sim.status("a") == Some(Status::Ready)
    };
    for &class in ErrorClass::ALL {
        let covered = matches!(class, ErrorClass::Transient | ErrorClass::LeaseLost);
        for choice in [false, true] {
            assert_eq!(fail(class, None, choice), covered, "{class:?}");
            assert!(!fail(class, Some(false), choice), "{class:?}");
        }
        assert_eq!(fail(class, Some(true), false), covered, "{class:?}");
        assert!(fail(class, Some(true), true), "{class:?}");
    }
}

#[test]
fn work_that_becomes_ready_together_is_offered_by_order_and_then_by_name() {
    let ordered = |name: &str, order| Step {
        order,
        ..task(name)
    };
    let steps = vec![
        ordered("z", 2),
        ordered("b", 1),
        ordered("y", 1),
        ordered("a", 2),
    ];
    let mut sim = Sim::started(net(steps, &[]));
    let effects = sim.take_effects();
    let offered: Vec<String> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Dispatch { target, .. } => Some(sim.plan.step_id(target.step_ref())),
            _ => None,
        })
        .collect();
    assert_eq!(offered, ["b", "y", "a", "z"]);
    assert!(
        matches!(sim.claim("z"), Ok(Reply::Claimed(_))),
        "an offer is no lock"
    );
}

#[test]
fn an_event_wakes_who_has_waited_longest() {
    let mut sim = Sim::started(net(vec![task("a"), task("b")], &[]));
    for step in ["b", "a"] {
        sim.claim(step).unwrap();
        sim.wait_for_event(step, "go").unwrap();
    }
    sim.deliver("e1", "go", json!(1)).unwrap();
    assert_eq!(sim.status("b"), Some(Status::Ready));
    assert_eq!(sim.status("a"), Some(Status::Waiting));
    sim.deliver("e2", "go", json!(2)).unwrap();
    assert_eq!(sim.status("a"), Some(Status::Ready));
}

#[test]
fn a_new_logical_attempt_does_not_see_the_event_of_the_last() {
    let mut net = tasks(&["a"]);
    net.steps[0].on_failure = OnFailure::Hold { timeout_ms: 60_000 };
    let mut sim = Sim::started(net);
    sim.claim("a").unwrap();
    sim.wait_for_event("a", "go").unwrap();
    sim.deliver("e1", "go", json!(1)).unwrap();
    sim.run_failing("a", ErrorClass::Validation).unwrap();
    sim.signal("RETRY_STEP", json!({ "stepId": "a" })).unwrap();
    let Ok(Reply::Claimed(claimed)) = sim.claim("a") else {
        panic!("it can be claimed");
    };
    assert_eq!(claimed.payload, None);
}

#[test]
fn a_lost_lease_is_retried_at_once_and_an_error_after_its_backoff() {
    let step = Step {
        retry: retry(3, constant(5_000)),
        ..task("a")
    };
    let mut sim = Sim::started(chain(vec![step]));
    sim.claim("a").unwrap();
    sim.expire_lease("a").unwrap();
    assert_eq!(sim.step("a").visible_at(), sim.env.now);
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    assert_eq!(sim.step("a").visible_at(), sim.env.now.plus(5_000));
}

#[test]
fn work_that_was_lost_is_asked_for_again_as_what_it_was() {
    let mut net = chain(vec![retried("a", 3)]);
    net.policy.wait_timeout = WaitTimeout::Claim;
    let mut sim = Sim::started(net);
    sim.claim("a").unwrap();
    let event_type = "go".into();
    sim.wait("a", WaitFor::Event { event_type }, Some(1_000))
        .unwrap();
    sim.advance(1_000);
    sim.claim("a").unwrap();
    sim.expire_lease("a").unwrap();
    assert_eq!(sim.step("a").task(), TaskKind::WaitingTimeout);
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    assert_eq!(sim.step("a").task(), TaskKind::ReadyStep);
}
