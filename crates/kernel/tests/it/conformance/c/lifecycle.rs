//! From nothing to the end: approval, start, attempts, results.

use expect_test::expect;
use serde_json::json;
use stepwell_kernel::command::{Claim, Command, EarlierResult, Reply, Role};
use stepwell_kernel::effect::{Effect, Priority, RunOutcome, Target};
use stepwell_kernel::event::{Body, Rollback};
use stepwell_kernel::keys::idempotency_key;
use stepwell_kernel::plan::{ErrorClass, Net};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::{Phase, Status};

use super::held;
use crate::support::{Sim, actor, chain, code, retried, task, tasks};

fn needing_approval() -> Net {
    let mut net = tasks(&["a"]);
    net.policy.needs_approval = true;
    net
}

#[test]
fn c11_a_run_that_is_not_approved_does_not_start() {
    for queued in [false, true] {
        let mut sim = Sim::new(needing_approval());
        assert_eq!(code(sim.start_run()), Code::RunUnknown);
        sim.create().unwrap();
        if queued {
            sim.enqueue().unwrap();
        }
        assert_eq!(code(sim.start_run()), Code::RunNotApproved);
        assert_eq!(code(sim.claim("a")), Code::RunNotRunning);
        sim.approve("approver").unwrap();
        assert_eq!(code(sim.approve("approver")), Code::InvalidTransition);
        sim.start_run().unwrap();
        assert_eq!(code(sim.start_run()), Code::InvalidTransition);
        assert_eq!(sim.phase(), Phase::Running);
    }
}

#[test]
fn c11_a_run_without_an_approver_is_approved_when_it_starts() {
    let mut sim = Sim::new(tasks(&["a"]));
    sim.create().unwrap();
    sim.enqueue().unwrap();
    assert!(!sim.state.approved());
    sim.start_run().unwrap();
    expect![[r#"
        RunCreated
        RunQueued
        RunApproved
        RunStarted
    "#]]
    .assert_eq(&sim.log());
}

#[test]
fn an_approval_before_the_queue_is_not_repeated_after_it() {
    let mut sim = Sim::new(needing_approval());
    sim.create().unwrap();
    sim.approve("approver").unwrap();
    sim.enqueue().unwrap();
    sim.start_run().unwrap();
    expect![[r#"
        RunCreated
        RunApproved
        RunQueued
        RunStarted
    "#]]
    .assert_eq(&sim.log());
}

#[test]
fn a_run_with_a_start_time_does_not_start_before_it() {
    let mut sim = Sim::new(tasks(&["a"]));
    let after = sim.env.now.plus(5_000);
    sim.send(Command::CreateRun {
        run_id: sim.state.run_id().to_owned(),
        params: json!({}),
        context: sim.context.clone(),
        parent: None,
        original_run_id: None,
        start_after: Some(after),
    })
    .unwrap();
    assert!(sim.take_effects().contains(&Effect::WakeAt(after)));
    sim.advance(4_999);
    assert_eq!(code(sim.start_run()), Code::InvalidTransition);
    sim.advance(1);
    sim.start_run().unwrap();
}

#[test]
fn c12_cancel_is_taken_everywhere_but_at_the_end() {
    let mut created = Sim::new(needing_approval());
    created.create().unwrap();
    let mut approved = Sim::new(needing_approval());
    approved.create().unwrap();
    approved.approve("approver").unwrap();
    let mut queued = Sim::new(tasks(&["a"]));
    queued.create().unwrap();
    queued.enqueue().unwrap();
    let running = Sim::started(tasks(&["a", "b"]));
    let mut paused = Sim::started(tasks(&["a", "b"]));
    paused.pause().unwrap();
    for mut sim in [created, approved, queued, running, paused] {
        let mut by_command = Sim::started(tasks(&["a"]));
        by_command.cancel().unwrap();
        assert_eq!(code(by_command.cancel()), Code::RunTerminal);

        let sent = sim.signal("CANCEL", json!({ "reason": "enough" }));
        assert_eq!(sent, Ok(Reply::Done));
        assert_eq!(sim.outcome(), Some(RunOutcome::Cancelled(Rollback::None)));
        let Some(Body::RunCancelled { by, reason, .. }) = sim.last() else {
            panic!("{:?}", sim.last());
        };
        assert_eq!(
            (by.as_deref(), reason.as_deref()),
            (Some("admin"), Some("enough"))
        );
        assert_eq!(code(sim.signal("CANCEL", json!({}))), Code::RunTerminal);
        assert_eq!(code(sim.cancel()), Code::RunTerminal);
    }
}

#[test]
fn c8_an_engine_retry_keeps_the_keys_and_leaves_evidence() {
    let mut sim = Sim::started(chain(vec![retried("a", 4)]));
    let Reply::Claimed(first) = sim.claim("a").unwrap() else {
        panic!("no claim");
    };
    sim.fail("a", ErrorClass::Transient).unwrap();
    sim.claim("a").unwrap();
    sim.expire_lease("a").unwrap();
    sim.claim("a").unwrap();
    sim.confirm_kill("a").unwrap();
    let Reply::Claimed(last) = sim.claim("a").unwrap() else {
        panic!("no claim");
    };
    sim.complete("a").unwrap();
    expect![[r#"
        StepStarted a
        StepExecutionFailed a
        StepExecutionStarted a
        StepExecutionFailed a
        StepExecutionStarted a
        StepExecutionFailed a
        StepExecutionStarted a
        StepCompleted a
        RunCompleted
    "#]]
    .assert_eq(&sim.log_from(4));
    // What the worker carries to the outside is the same in every execution.
    assert_eq!(first.idempotency_key, last.idempotency_key);
    assert_eq!((first.logical, last.logical), (1, 1));
    assert_eq!((first.claim.execution, last.claim.execution), (1, 4));
    // The canonical events have the contract's key of attempt 1, whatever the execution was.
    let run_id = sim.state.run_id().to_owned();
    for kind in ["StepStarted", "StepCompleted"] {
        let event = sim
            .events()
            .iter()
            .find(|event| event.body.kind() == kind)
            .unwrap();
        let digest = event.key(&sim.plan).digest(&run_id, "1.2.0");
        let formula = idempotency_key(&run_id, Some("a"), Some(1), kind, "1.2.0");
        assert_eq!(Some(digest), formula);
    }
    // Each piece of evidence has a key of its own, with the execution behind the formula.
    let evidence = sim.events().iter().filter(|event| {
        matches!(
            event.body,
            Body::StepExecutionStarted { .. } | Body::StepExecutionFailed { .. }
        )
    });
    let ordinals: Vec<(u64, u64)> = evidence
        .map(|event| event.key(&sim.plan))
        .map(|key| (key.logical, key.ordinal))
        .collect();
    assert_eq!(ordinals, [(1, 1), (1, 2), (1, 2), (1, 3), (1, 3), (1, 4)]);
}

#[test]
fn c9_only_retry_step_raises_the_logical_attempt() {
    let mut step = held("a", 60_000);
    step.retry = retried("a", 2).retry;
    let mut sim = Sim::started(chain(vec![step]));
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    // A loss raises neither the logical attempt nor the number of attempts.
    sim.claim("a").unwrap();
    sim.expire_lease("a").unwrap();
    assert_eq!(sim.status("a"), Some(Status::Ready));
    assert_eq!((sim.step("a").logical(), sim.step("a").execution()), (1, 2));
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    assert_eq!(sim.status("a"), Some(Status::Held));
    assert_eq!((sim.step("a").logical(), sim.step("a").execution()), (1, 3));
    sim.signal("RETRY_STEP", json!({ "stepId": "a" })).unwrap();
    assert_eq!((sim.step("a").logical(), sim.step("a").execution()), (2, 3));
    // A new logical attempt has all its executions, and the fence goes on counting.
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    assert_eq!(sim.status("a"), Some(Status::Ready));
    let Reply::Claimed(claimed) = sim.claim("a").unwrap() else {
        panic!("no claim");
    };
    assert_eq!((claimed.logical, claimed.claim.execution), (2, 5));
    let starts: Vec<u32> = sim
        .events()
        .iter()
        .filter_map(|event| match event.body {
            Body::StepStarted { logical, .. } => Some(logical),
            _ => None,
        })
        .collect();
    assert_eq!(starts, [1, 2]);
}

#[test]
fn c13_a_result_for_an_attempt_that_is_not_running_is_refused() {
    let mut sim = Sim::started(chain(vec![retried("a", 2), task("b")]));
    let unclaimed = Claim {
        target: Target::Step(sim.at("a")),
        execution: 0,
        worker: "worker-1".into(),
        lease_until: None,
    };
    assert_eq!(
        code(sim.fail_claim(unclaimed.clone(), ErrorClass::Transient)),
        Code::StepNotRunning
    );
    let complete = |sim: &mut Sim, claim| sim.complete_all(claim, json!(1), json!({}), Vec::new());
    assert_eq!(code(complete(&mut sim, unclaimed)), Code::StepNotRunning);

    // Between two executions.
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    let first = sim.claim_on("a");
    assert_eq!(
        code(complete(&mut sim, first.clone())),
        Code::StepNotRunning
    );
    sim.claim("a").unwrap();
    assert_eq!(
        code(complete(&mut sim, first.clone())),
        Code::StaleExecution
    );
    assert_eq!(
        code(sim.fail_claim(first, ErrorClass::Transient)),
        Code::StaleExecution
    );

    // After the end: the same result gets the first answer, another one is refused.
    sim.complete("a").unwrap();
    let before = sim.state.clone();
    assert_eq!(
        sim.complete("a"),
        Ok(Reply::Duplicate(Box::new(EarlierResult::Succeeded)))
    );
    assert_eq!(
        code(sim.fail("a", ErrorClass::Transient)),
        Code::StepNotRunning
    );
    assert_eq!(sim.state, before);

    // Of a step that no token has reached, and in a run that has ended.
    sim.run("b").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
    let late = sim.claim_on("b");
    assert_eq!(
        code(sim.fail_claim(late, ErrorClass::Transient)),
        Code::StepNotRunning
    );
}

#[test]
fn c45_a_definition_that_is_not_the_one_referred_to_fails_the_run() {
    for prepare in [
        |_: &mut Sim| {},
        |sim: &mut Sim| drop(sim.enqueue().unwrap()),
        |sim: &mut Sim| {
            drop(sim.approve("approver").unwrap());
        },
    ] {
        let mut sim = Sim::new(needing_approval());
        sim.create().unwrap();
        prepare(&mut sim);
        sim.take_effects();
        let start = |found: String| Command::StartRun {
            engine: "native".into(),
            engine_run_ref: "stepwell://x".into(),
            fetched_sha256: Some(found),
        };
        sim.send(start("cd".repeat(32))).unwrap();
        let Some(Body::RunFailed { error, .. }) = sim.last() else {
            panic!("{:?}", sim.last());
        };
        assert_eq!(error.code, "PLAN_INTEGRITY_VALIDATION_FAILED");
        assert_eq!((sim.count("RunStarted"), sim.count("StepStarted")), (0, 0));
        let alert = sim
            .take_effects()
            .into_iter()
            .find_map(|effect| match effect {
                Effect::Alert { code, priority, .. } => Some((code, priority)),
                _ => None,
            });
        assert_eq!(
            alert,
            Some(("PLAN_INTEGRITY_VALIDATION_FAILED", Priority::P1))
        );
        assert_eq!(code(sim.send(start("ab".repeat(32)))), Code::RunTerminal);
    }
}

#[test]
fn c45_the_right_definition_starts() {
    let mut sim = Sim::new(tasks(&["a"]));
    sim.create().unwrap();
    sim.send(Command::StartRun {
        engine: "native".into(),
        engine_run_ref: "stepwell://x".into(),
        fetched_sha256: Some("ab".repeat(32)),
    })
    .unwrap();
    assert_eq!(sim.phase(), Phase::Running);
}

#[test]
fn nothing_happens_to_a_run_that_has_ended() {
    let mut sim = Sim::started(tasks(&["a"]));
    sim.run("a").unwrap();
    let before = sim.state.clone();
    let target = Target::Step(sim.at("a"));
    let ended = [
        sim.enqueue(),
        sim.approve("approver"),
        sim.start_run(),
        sim.claim_as(target, "worker-2"),
        sim.deliver("e", "t", json!({})),
        sim.patch_ctx(json!({ "x": 1 })),
        sim.cancel(),
        sim.cancel_with(true),
        sim.proceed(),
        sim.signal_as("s", "PAUSE", json!({}), None, actor("admin", Role::Admin)),
    ];
    for sent in ended {
        assert_eq!(code(sent), Code::RunTerminal);
    }
    assert_eq!(sim.state, before);
}
