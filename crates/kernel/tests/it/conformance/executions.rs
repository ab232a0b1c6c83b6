//! Executions: every claim counts, the number is the fence, and only the first writes StepStarted.

use expect_test::expect;
use serde_json::json;
use stepwell_kernel::command::{Command, LeaseEnd, Reply, WaitFor};
use stepwell_kernel::effect::{Effect, RunOutcome};
use stepwell_kernel::event::{Body, Rollback, StepError, TaskKind};
use stepwell_kernel::keys;
use stepwell_kernel::plan::{ErrorClass, OnFailure, RetryPolicy, Step, WaitTimeout};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::Status;

use crate::support::{Sim, chain, code, constant, net, retried, retry, task, tasks};

/// The alerts among the effects since the last look, by code.
fn alerts(sim: &mut Sim) -> Vec<&'static str> {
    let effects = sim.take_effects().into_iter();
    let alerts = effects.filter_map(|effect| match effect {
        Effect::Alert { code, .. } => Some(code),
        _ => None,
    });
    alerts.collect()
}

fn end_lease(sim: &mut Sim, step: &str, cause: LeaseEnd) {
    let claim = sim.claim_on(step);
    sim.env.now = sim.env.now.max(claim.lease_until.unwrap().plus(1));
    let ended = Command::ExpireLease {
        target: claim.target,
        execution: claim.execution,
        lease_until: None,
        cause,
    };
    sim.send(ended).unwrap();
}

#[test]
fn a_step_that_kills_its_worker_is_exhausted_by_its_losses() {
    for (given, most) in [(None, 10), (Some(1), 1), (Some(4), 4)] {
        let step = Step {
            max_losses: given,
            ..retried("a", 2)
        };
        let mut sim = Sim::started(chain(vec![step]));
        for loss in 1..=most {
            assert_eq!(sim.status("a"), Some(Status::Ready), "before loss {loss}");
            sim.claim("a").unwrap();
            end_lease(&mut sim, "a", LeaseEnd::SessionDead);
            let told = alerts(&mut sim);
            let expected: &[&str] = match loss == 3 && most > 3 {
                true => &["STEP_LOST_REPEATEDLY"],
                false => &[],
            };
            assert_eq!(told, expected, "at loss {loss}");
        }
        assert_eq!(sim.status("a"), Some(Status::Failed));
        assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
        assert_eq!(sim.step("a").losses(), most);
        let error = sim.state.error().unwrap();
        let named = (error.class, error.code.as_str());
        assert_eq!(named, (ErrorClass::LeaseLost, "LOST_TOO_OFTEN"));
    }
}

#[test]
fn where_losses_are_attempts_they_exhaust_a_step_like_any_failure() {
    for executions in [1, 2, 7] {
        let mut net = chain(vec![retried("a", executions)]);
        net.policy.losses_are_attempts = true;
        let mut sim = Sim::started(net);
        for _ in 0..executions {
            sim.claim("a").unwrap();
            sim.expire_lease("a").unwrap();
        }
        assert_eq!(sim.status("a"), Some(Status::Failed));
        assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
        assert_eq!(sim.state.error().unwrap().code, "LEASE_EXPIRED");
        assert_eq!(sim.step("a").losses(), 0);
    }
}

#[test]
fn a_loss_uses_up_no_attempt() {
    // Also in a step that is tried once.
    for attempts in [1, 3] {
        let mut sim = Sim::started(chain(vec![retried("a", attempts)]));
        for attempt in 1..=attempts {
            for _ in 0..3 {
                sim.claim("a").unwrap();
                sim.expire_lease("a").unwrap();
                assert_eq!(sim.step("a").tries(), attempt);
            }
            sim.run_failing("a", ErrorClass::Transient).unwrap();
        }
        assert_eq!(sim.status("a"), Some(Status::Failed));
        assert_eq!(sim.step("a").tries(), attempts);
        assert_eq!(sim.step("a").losses(), 3 * attempts);
        assert_eq!(sim.state.error().unwrap().class, ErrorClass::Transient);
    }
}

#[test]
fn a_loss_of_an_answer_to_a_wait_uses_up_no_attempt_either() {
    let mut sim = Sim::started(chain(vec![retried("a", 2)]));
    sim.claim("a").unwrap();
    sim.wait_for_event("a", "e").unwrap();
    sim.deliver("e1", "e", json!({})).unwrap();
    for _ in 0..4 {
        sim.claim("a").unwrap();
        sim.expire_lease("a").unwrap();
    }
    assert_eq!((sim.step("a").tries(), sim.step("a").losses()), (1, 4));
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    assert_eq!(sim.status("a"), Some(Status::Ready));
}

#[test]
fn work_that_the_engine_stopped_or_gave_back_charges_nobody() {
    for counted in [false, true] {
        let mut net = chain(vec![task("a")]);
        net.policy.losses_are_attempts = counted;
        let mut sim = Sim::started(net);
        for _ in 0..20 {
            sim.claim("a").unwrap();
            sim.confirm_kill("a").unwrap();
            for cause in [LeaseEnd::OwnSession, LeaseEnd::Unanswered] {
                sim.claim("a").unwrap();
                end_lease(&mut sim, "a", cause);
            }
        }
        assert_eq!((sim.step("a").tries(), sim.step("a").losses()), (1, 0));
        assert_eq!(alerts(&mut sim), [""; 0]);
        sim.run("a").unwrap();
        assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
    }
}

#[test]
fn a_step_that_runs_at_most_once_fails_when_it_is_lost() {
    type End = fn(&mut Sim);
    let ends: [(End, &str); 5] = [
        (
            |sim| end_lease(sim, "a", LeaseEnd::Expired),
            "LEASE_EXPIRED",
        ),
        (
            |sim| end_lease(sim, "a", LeaseEnd::SessionDead),
            "LEASE_EXPIRED",
        ),
        (
            |sim| end_lease(sim, "a", LeaseEnd::OwnSession),
            "LEASE_EXPIRED",
        ),
        (
            |sim| end_lease(sim, "a", LeaseEnd::Unanswered),
            "LEASE_EXPIRED",
        ),
        (|sim| drop(sim.confirm_kill("a").unwrap()), "KILLED"),
    ];
    for (end, code) in ends {
        let step = Step {
            at_most_once: true,
            on_failure: OnFailure::Skip,
            ..retried("a", 5)
        };
        let mut sim = Sim::started(chain(vec![step, task("b")]));
        sim.claim("a").unwrap();
        end(&mut sim);
        assert_eq!(sim.count("StepExecutionStarted"), 0);
        let failed = sim.events().iter().find_map(|event| match &event.body {
            Body::StepFailed { error, .. } => Some(error.clone()),
            _ => None,
        });
        let failed = failed.unwrap();
        assert_eq!(
            (failed.class, failed.code.as_str()),
            (ErrorClass::LeaseLost, code)
        );
        // The definition says what follows.
        assert_eq!(sim.status("a"), Some(Status::Skipped));
        sim.run("b").unwrap();
        assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
    }
}

#[test]
fn a_step_that_runs_at_most_once_is_not_retried_after_an_error_but_may_wait() {
    let step = || Step {
        at_most_once: true,
        timeout_ms: Some(1_000),
        ..retried("a", 5)
    };
    let mut sim = Sim::started(chain(vec![step()]));
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
    let mut sim = Sim::started(chain(vec![step()]));
    sim.claim("a").unwrap();
    sim.advance_to_next_timer().unwrap();
    assert_eq!(sim.state.error().unwrap().class, ErrorClass::Timeout);
    // The claim after a wait goes on with the same work.
    let mut sim = Sim::started(chain(vec![step()]));
    sim.claim("a").unwrap();
    sim.wait_for_event("a", "e").unwrap();
    sim.deliver("e1", "e", json!({})).unwrap();
    sim.run("a").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn a_retry_of_an_operator_starts_with_no_losses() {
    let step = Step {
        on_failure: OnFailure::Hold { timeout_ms: 60_000 },
        max_losses: Some(2),
        ..task("a")
    };
    let mut sim = Sim::started(chain(vec![step]));
    for _ in 0..2 {
        sim.claim("a").unwrap();
        sim.expire_lease("a").unwrap();
    }
    assert_eq!(sim.status("a"), Some(Status::Held));
    sim.signal("RETRY_STEP", json!({ "stepId": "a" })).unwrap();
    sim.claim("a").unwrap();
    sim.expire_lease("a").unwrap();
    assert_eq!(
        (sim.status("a"), sim.step("a").losses()),
        (Some(Status::Ready), 1)
    );
}

#[test]
fn the_fencing_token_rises_with_every_claim_and_the_key_stays() {
    let mut sim = Sim::started(chain(vec![retried("a", 5)]));
    let mut seen = Vec::new();
    for _ in 0..3 {
        let Ok(Reply::Claimed(claimed)) = sim.claim("a") else {
            panic!("it can be claimed");
        };
        seen.push((claimed.fence, claimed.idempotency_key));
        sim.expire_lease("a").unwrap();
    }
    assert!(
        seen.is_sorted_by(|a, b| a.0 < b.0 && a.1 == b.1),
        "{seen:?}"
    );
    let claims = sim.events().iter().filter(|event| {
        let kind = event.body.kind();
        kind == "StepStarted" || kind == "StepExecutionStarted"
    });
    let granted: Vec<u64> = claims.map(|it| keys::fence(it.at, it.seq)).collect();
    assert_eq!(seen.iter().map(|it| it.0).collect::<Vec<_>>(), granted);
}

#[test]
fn the_fencing_token_rises_from_run_to_run() {
    let claim = |sim: &mut Sim| match sim.claim("a") {
        Ok(Reply::Claimed(claimed)) => claimed.fence,
        other => panic!("{other:?}"),
    };
    let mut first = Sim::started(chain(vec![retried("a", 5)]));
    let mut fences = Vec::new();
    for _ in 0..5 {
        fences.push(claim(&mut first));
        first.expire_lease("a").unwrap();
    }
    // Repeated, or called again: a new run, whose log begins anew.
    let mut second = Sim::started(chain(vec![retried("a", 5)]));
    second.env.now = first.env.now.plus(1);
    fences.push(claim(&mut second));
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
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
fn failures_and_lost_leases_count_together_where_losses_are_attempts() {
    let mut net = chain(vec![retried("a", 3)]);
    net.policy.losses_are_attempts = true;
    let mut sim = Sim::started(net);
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    sim.claim("a").unwrap();
    sim.expire_lease("a").unwrap();
    sim.claim("a").unwrap();
    sim.confirm_kill("a").unwrap();
    assert_eq!(
        sim.status("a"),
        Some(Status::Ready),
        "a stop charges nobody"
    );
    sim.claim("a").unwrap();
    sim.expire_lease("a").unwrap();
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
                cause: Default::default(),
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
        cause: Default::default(),
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
