//! L: linear.md. What must hold is read off the specification's own two tables, row by row.

use expect_test::{Expect, expect};
use serde_json::json;
use stepwell_dialects::linear::rows::{InstanceRow, StepRow, instance_row, step_rows};
use stepwell_kernel::command::{Claim, Claimed, Command, Reply, WaitFor};
use stepwell_kernel::effect::{Effect, RunOutcome, Target};
use stepwell_kernel::event::{Body, Rollback, StepError, TaskKind};
use stepwell_kernel::plan::{ErrorClass, StepNo, StepRef};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::time::Time;

use crate::support::{LEASE_MS, START, Sent, Sim, WORKER, code};

const CHAIN: &str = "\
workflowType: order.process
workflowVersion: 3
defaults: {maxAttempts: 3}
steps: [{stepType: VALIDATE}, {stepType: PAY}, {stepType: SHIP}]
";

/// Both tables, times in milliseconds since the start. Columns that are NULL are left out.
fn tables(sim: &Sim) -> String {
    let instance = instance_row(&sim.plan, &sim.state, None);
    let rows = step_rows(&sim.plan, &sim.state);
    let current = rows.iter().find(|row| row.status != "DONE");
    let current = current.or(rows.last()).map(|row| row.step_seq);
    assert_eq!(Some(instance.current_step_seq), current);
    let mut text = shown_instance(&instance);
    for row in rows {
        text.push_str(&shown_step(&row));
    }
    text
}

fn column<T>(name: &str, value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(String::new, |value| format!(" {name}={}", show(value)))
}

fn at(time: Time) -> String {
    format!("+{}", time.0 - START.0)
}

fn shown_instance(row: &InstanceRow) -> String {
    format!(
        "{} at {} {}{}{}{}\n",
        row.status,
        row.current_step_seq,
        row.current_step_type,
        column("started", row.started_at, at),
        column("completed", row.completed_at, at),
        column("failed", row.failed_at, at),
    )
}

fn shown_step(row: &StepRow) -> String {
    format!(
        "  {} {} {} {}/{}{}{}{}{}{}{}\n",
        row.step_seq,
        row.step_type,
        row.status,
        row.attempts,
        row.max_attempts,
        column("next_run_at", row.next_run_at, at),
        column("waits", row.waiting_event_type.clone(), |it| it),
        column("deadline", row.deadline_at, at),
        column("locked_by", row.locked_by.clone(), |it| it),
        column("locked_until", row.locked_until, at),
        column("last_error", row.last_error.clone(), |it| format!("{it:?}")),
    )
}

#[track_caller]
fn check(sim: &Sim, expected: Expect) {
    expected.assert_eq(&tables(sim));
}

/// The handler returns `Retry(backoff, last_error)`.
fn retry(sim: &mut Sim, step: &str, backoff_ms: u64, last_error: &str) -> Sent {
    let claim = sim.claim_on(step);
    sim.send(Command::FailStep {
        claim,
        error: StepError::new(ErrorClass::Unknown, "RETRY", last_error),
        retryable: Some(true),
        delay_ms: Some(backoff_ms),
        ctx: Default::default(),
    })
}

/// The handler returns `Dead(last_error)`.
fn dead(sim: &mut Sim, step: &str, last_error: &str) -> Sent {
    let claim = sim.claim_on(step);
    sim.send(Command::FailStep {
        claim,
        error: StepError::new(ErrorClass::Unknown, "DEAD", last_error),
        retryable: Some(false),
        delay_ms: None,
        ctx: Default::default(),
    })
}

/// The handler returns `Waiting(event, timeout, [])`.
fn waiting(sim: &mut Sim, step: &str, event: &str, timeout_ms: u64) -> Sent {
    let event_type = event.to_owned();
    sim.wait(step, WaitFor::Event { event_type }, Some(timeout_ms))
}

#[track_caller]
fn claimed(sent: Sent) -> Claimed {
    match sent {
        Ok(Reply::Claimed(claimed)) => *claimed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn l2_after_start_the_first_step_is_ready_and_the_others_are_pending() {
    let sim = Sim::start_of(CHAIN);
    check(
        &sim,
        expect![[r#"
            RUNNING at 0 VALIDATE started=+0
              0 VALIDATE READY 0/3 next_run_at=+0
              1 PAY PENDING 0/3
              2 SHIP PENDING 0/3
        "#]],
    );
    assert_eq!(sim.ready(), ["VALIDATE"]);
}

#[test]
fn l4_a_lost_lease_makes_the_step_ready_or_dead() {
    let mut sim = Sim::start_of(CHAIN);
    sim.claim("VALIDATE").unwrap();
    sim.expire_lease("VALIDATE").unwrap();
    check(
        &sim,
        expect![[r#"
        RUNNING at 0 VALIDATE started=+0
          0 VALIDATE READY 1/3 next_run_at=+60001 last_error="LEASE_EXPIRED"
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
    sim.claim("VALIDATE").unwrap();
    sim.expire_lease("VALIDATE").unwrap();
    check(
        &sim,
        expect![[r#"
        RUNNING at 0 VALIDATE started=+0
          0 VALIDATE READY 2/3 next_run_at=+120002 last_error="LEASE_EXPIRED"
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
    sim.claim("VALIDATE").unwrap();
    sim.expire_lease("VALIDATE").unwrap();
    check(
        &sim,
        expect![[r#"
        FAILED at 0 VALIDATE started=+0 failed=+180003
          0 VALIDATE DEAD 3/3 last_error="LEASE_EXPIRED"
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
}

#[test]
fn l5_a_lease_that_ends_now_is_still_its_owners() {
    let mut sim = Sim::start_of(CHAIN);
    sim.claim("VALIDATE").unwrap();
    let claim = sim.claim_on("VALIDATE");
    let until = claim.lease_until.unwrap();
    sim.env.now = until;
    let before = tables(&sim);
    let expire = Command::ExpireLease {
        target: claim.target,
        execution: claim.execution,
        lease_until: None,
        cause: Default::default(),
    };
    assert_eq!(code(sim.send(expire)), Code::LeaseAlive);
    assert_eq!(tables(&sim), before);
    sim.complete("VALIDATE").unwrap();
    check(
        &sim,
        expect![[r#"
        RUNNING at 1 PAY started=+0
          0 VALIDATE DONE 0/3
          1 PAY READY 0/3 next_run_at=+60000
          2 SHIP PENDING 0/3
    "#]],
    );
}

#[test]
fn l6_only_ready_steps_whose_time_has_come_can_be_claimed() {
    let mut sim = Sim::start_of(CHAIN);
    assert_eq!(code(sim.claim("PAY")), Code::StepNotEligible, "PENDING");
    sim.claim("VALIDATE").unwrap();
    assert_eq!(
        code(sim.claim("VALIDATE")),
        Code::StepNotEligible,
        "RUNNING"
    );
    retry(&mut sim, "VALIDATE", 500, "busy").unwrap();
    sim.advance(499);
    assert_eq!(
        code(sim.claim("VALIDATE")),
        Code::StepNotEligible,
        "not yet"
    );
    sim.advance(1).run("VALIDATE").unwrap();
    assert_eq!(code(sim.claim("VALIDATE")), Code::StepTerminal, "DONE");
    sim.claim("PAY").unwrap();
    waiting(&mut sim, "PAY", "paid", 1_000).unwrap();
    assert_eq!(code(sim.claim("PAY")), Code::StepNotEligible, "WAITING");
    sim.deliver("e1", "paid", json!({})).unwrap();
    sim.claim("PAY").unwrap();
    dead(&mut sim, "PAY", "no money").unwrap();
    assert_eq!(code(sim.claim("PAY")), Code::RunTerminal, "DEAD");
}

#[test]
fn l8_a_claim_is_in_the_log_with_its_lease_before_the_handler_gets_the_work() {
    let mut sim = Sim::start_of(CHAIN);
    sim.advance(7);
    let given = claimed(sim.claim("VALIDATE"));
    let Some(Body::StepStarted {
        lease: Some(lease),
        execution: 1,
        ..
    }) = sim.last()
    else {
        panic!("{:?}", sim.last());
    };
    assert_eq!(lease.worker, WORKER);
    assert_eq!(lease.until, START.plus(7 + LEASE_MS));
    assert_eq!(given.claim.lease_until, Some(lease.until));
    check(
        &sim,
        expect![[r#"
        RUNNING at 0 VALIDATE started=+0
          0 VALIDATE RUNNING 0/3 locked_by=worker-1 locked_until=+60007
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
}

#[test]
fn l9_with_timeout_claiming_a_wait_that_ran_out_is_run_as_one() {
    let mut sim = Sim::start_of(CHAIN);
    sim.claim("VALIDATE").unwrap();
    waiting(&mut sim, "VALIDATE", "checked", 1_000).unwrap();
    sim.advance(999);
    assert_eq!(code(sim.claim("VALIDATE")), Code::StepNotEligible);
    sim.advance(1);
    let given = claimed(sim.claim("VALIDATE"));
    assert_eq!(given.task, TaskKind::WaitingTimeout);
    check(
        &sim,
        expect![[r#"
        RUNNING at 0 VALIDATE started=+0
          0 VALIDATE RUNNING 0/3 locked_by=worker-1 locked_until=+61000
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
    // It is offered for that moment, not before.
    let offered = sim.take_effects().into_iter().any(|effect| {
        effect
            == Effect::Dispatch {
                target: target(0),
                visible_at: START.plus(1_000),
                task: TaskKind::WaitingTimeout,
            }
    });
    assert!(offered);
}

#[test]
fn l9_without_timeout_claiming_a_wait_is_left_waiting() {
    let text = CHAIN.replace("steps:", "timeoutClaims: false\nsteps:");
    let mut sim = Sim::start_of(&text);
    sim.claim("VALIDATE").unwrap();
    waiting(&mut sim, "VALIDATE", "checked", 1_000).unwrap();
    let before = tables(&sim);
    sim.advance(1_000_000);
    assert_eq!(code(sim.claim("VALIDATE")), Code::StepNotEligible);
    assert_eq!(sim.next_timer(), None);
    assert_eq!(tables(&sim), before);
    sim.deliver("e1", "checked", json!({})).unwrap();
    assert_eq!(
        claimed(sim.claim("VALIDATE")).task,
        TaskKind::ReadyStep,
        "the event still wakes it"
    );
}

#[test]
fn a_wait_that_runs_out_during_a_pause_is_offered_again_after_it() {
    let mut sim = Sim::start_of(CHAIN);
    sim.claim("VALIDATE").unwrap();
    waiting(&mut sim, "VALIDATE", "checked", 1_000).unwrap();
    sim.pause().unwrap();
    sim.advance(2_000);
    // A worker that got the offer before is refused, and forgets it.
    assert_eq!(code(sim.claim("VALIDATE")), Code::RunPaused);
    sim.take_effects();
    sim.resume().unwrap();
    let offered = Effect::Dispatch {
        target: target(0),
        visible_at: START.plus(1_000),
        task: TaskKind::WaitingTimeout,
    };
    assert!(sim.take_effects().contains(&offered));
    assert_eq!(
        claimed(sim.claim("VALIDATE")).task,
        TaskKind::WaitingTimeout
    );
}

#[test]
fn l10_a_result_without_its_lease_changes_no_row_and_publishes_nothing() {
    let results = |claim: &Claim| {
        [
            completion(claim.clone()),
            Command::FailStep {
                claim: claim.clone(),
                error: StepError::new(ErrorClass::Unknown, "RETRY", "late"),
                retryable: Some(true),
                delay_ms: Some(1),
                ctx: Default::default(),
            },
            Command::FailStep {
                claim: claim.clone(),
                error: StepError::new(ErrorClass::Unknown, "DEAD", "late"),
                retryable: Some(false),
                delay_ms: None,
                ctx: Default::default(),
            },
            announcing_wait(claim.clone()),
        ]
    };
    let refused = |sim: &mut Sim, claim: &Claim, expected: Code| {
        let before = tables(sim);
        sim.take_effects();
        for command in results(claim) {
            assert_eq!(code(sim.send(command)), expected);
            assert_eq!(tables(sim), before);
            assert_eq!(sim.take_effects(), []);
        }
    };
    let mut sim = Sim::start_of(CHAIN);
    sim.claim("VALIDATE").unwrap();
    let first = sim.claim_on("VALIDATE");
    let thief = Claim {
        worker: "thief".into(),
        ..first.clone()
    };
    refused(&mut sim, &thief, Code::LeaseLost);
    // Expired, and nobody has noticed yet.
    sim.env.now = first.lease_until.unwrap().plus(1);
    refused(&mut sim, &first, Code::LeaseLost);
    // Recovered, and nobody has claimed it again.
    sim.expire_lease("VALIDATE").unwrap();
    refused(&mut sim, &first, Code::StepNotRunning);
    // Claimed again by the same worker.
    sim.claim("VALIDATE").unwrap();
    refused(&mut sim, &first, Code::StaleExecution);
}

#[test]
fn l10_a_renewed_lease_is_the_one_that_counts() {
    let mut sim = Sim::start_of(CHAIN);
    sim.claim("VALIDATE").unwrap();
    sim.advance(LEASE_MS + 1);
    let renewed = Claim {
        lease_until: Some(sim.env.now),
        ..sim.claim_on("VALIDATE")
    };
    sim.send(completion(renewed)).unwrap();
    check(
        &sim,
        expect![[r#"
        RUNNING at 1 PAY started=+0
          0 VALIDATE DONE 0/3
          1 PAY READY 0/3 next_run_at=+60001
          2 SHIP PENDING 0/3
    "#]],
    );
}

#[test]
fn l11_completed_activates_the_next_step_and_moves_the_pointer_at_once() {
    let mut sim = Sim::start_of(CHAIN);
    sim.advance(5).claim("VALIDATE").unwrap();
    let seq = sim.state.seq();
    sim.advance(5).complete("VALIDATE").unwrap();
    // One event, so there is no moment in between.
    assert_eq!(sim.state.seq(), seq + 1);
    check(
        &sim,
        expect![[r#"
        RUNNING at 1 PAY started=+0
          0 VALIDATE DONE 0/3
          1 PAY READY 0/3 next_run_at=+10
          2 SHIP PENDING 0/3
    "#]],
    );
}

#[test]
fn l12_completed_at_the_last_step_completes_the_instance() {
    let mut sim = Sim::start_of(CHAIN);
    for step in ["VALIDATE", "PAY", "SHIP"] {
        sim.advance(10).run(step).unwrap();
    }
    check(
        &sim,
        expect![[r#"
        COMPLETED at 2 SHIP started=+0 completed=+30
          0 VALIDATE DONE 0/3
          1 PAY DONE 0/3
          2 SHIP DONE 0/3
    "#]],
    );
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn l13_waiting_sets_event_and_deadline_and_leaves_the_instance_alone() {
    let mut sim = Sim::start_of(CHAIN);
    sim.run("VALIDATE").unwrap();
    sim.advance(3).claim("PAY").unwrap();
    sim.advance(4);
    waiting(&mut sim, "PAY", "paid", 1_000).unwrap();
    check(
        &sim,
        expect![[r#"
        RUNNING at 1 PAY started=+0
          0 VALIDATE DONE 0/3
          1 PAY WAITING 0/3 waits=paid deadline=+1007
          2 SHIP PENDING 0/3
    "#]],
    );
}

#[test]
fn l15_retry_makes_the_step_ready_after_the_backoff() {
    let mut sim = Sim::start_of(CHAIN);
    sim.claim("VALIDATE").unwrap();
    sim.advance(10);
    retry(&mut sim, "VALIDATE", 2_500, "the shop is closed").unwrap();
    check(
        &sim,
        expect![[r#"
        RUNNING at 0 VALIDATE started=+0
          0 VALIDATE READY 1/3 next_run_at=+2510 last_error="the shop is closed"
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
    sim.advance(2_500).claim("VALIDATE").unwrap();
    check(
        &sim,
        expect![[r#"
        RUNNING at 0 VALIDATE started=+0
          0 VALIDATE RUNNING 1/3 locked_by=worker-1 locked_until=+62510 last_error="the shop is closed"
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
}

#[test]
fn l16_max_attempts_three_gives_exactly_three_executions() {
    let mut sim = Sim::start_of(CHAIN);
    for execution in 1..=3 {
        let given = claimed(sim.claim("VALIDATE"));
        assert_eq!(given.claim.execution, execution);
        retry(&mut sim, "VALIDATE", 100, &format!("broken {execution}")).unwrap();
        sim.advance(100);
    }
    assert_eq!(code(sim.claim("VALIDATE")), Code::RunTerminal);
    check(
        &sim,
        expect![[r#"
        FAILED at 0 VALIDATE started=+0 failed=+200
          0 VALIDATE DEAD 3/3 last_error="broken 3"
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
}

#[test]
fn l16_waits_do_not_use_up_attempts() {
    let mut sim = Sim::start_of(CHAIN);
    for n in 0..20 {
        sim.claim("VALIDATE").unwrap();
        waiting(&mut sim, "VALIDATE", "more", 1_000).unwrap();
        sim.deliver(&format!("e{n}"), "more", json!({})).unwrap();
    }
    check(
        &sim,
        expect![[r#"
        RUNNING at 0 VALIDATE started=+0
          0 VALIDATE READY 0/3 next_run_at=+0
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
    // The three executions that may fail are still there.
    for _ in 0..3 {
        sim.claim("VALIDATE").unwrap();
        retry(&mut sim, "VALIDATE", 0, "broken").unwrap();
    }
    check(
        &sim,
        expect![[r#"
        FAILED at 0 VALIDATE started=+0 failed=+0
          0 VALIDATE DEAD 3/3 last_error="broken"
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
}

#[test]
fn l17_dead_fails_the_instance_although_attempts_remain() {
    let mut sim = Sim::start_of(CHAIN);
    sim.run("VALIDATE").unwrap();
    sim.claim("PAY").unwrap();
    sim.advance(20);
    dead(&mut sim, "PAY", "the card is stolen").unwrap();
    check(
        &sim,
        expect![[r#"
        FAILED at 1 PAY started=+0 failed=+20
          0 VALIDATE DONE 0/3
          1 PAY DEAD 1/3 last_error="the card is stolen"
          2 SHIP PENDING 0/3
    "#]],
    );
}

#[test]
fn l18_only_the_awaited_event_wakes_the_waiting_step() {
    let mut sim = Sim::start_of(CHAIN);
    // Nobody waits: no row changes.
    let before = tables(&sim);
    sim.deliver("e0", "other", json!({})).unwrap();
    assert_eq!(tables(&sim), before);
    sim.claim("VALIDATE").unwrap();
    waiting(&mut sim, "VALIDATE", "checked", 1_000).unwrap();
    let before = tables(&sim);
    sim.advance(1);
    sim.deliver("e1", "paid", json!({})).unwrap();
    sim.deliver("e2", "Checked", json!({})).unwrap();
    assert_eq!(tables(&sim), before);
    sim.advance(1);
    sim.deliver("e3", "checked", json!({ "ok": true })).unwrap();
    check(
        &sim,
        expect![[r#"
        RUNNING at 0 VALIDATE started=+0
          0 VALIDATE READY 0/3 next_run_at=+2
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
    // The same step runs again; the same event again changes nothing.
    let before = tables(&sim);
    sim.deliver("e3", "checked", json!({ "ok": false }))
        .unwrap();
    assert_eq!(tables(&sim), before);
    let given = claimed(sim.claim("VALIDATE"));
    assert_eq!(given.step, StepNo(0));
    assert_eq!(given.payload.as_deref(), Some(&json!({ "ok": true })));
}

#[test]
fn l19_a_timeout_claim_that_loses_its_lease_comes_back_as_a_timeout() {
    let mut sim = Sim::start_of(CHAIN);
    sim.claim("VALIDATE").unwrap();
    waiting(&mut sim, "VALIDATE", "checked", 1_000).unwrap();
    sim.advance(1_000).claim("VALIDATE").unwrap();
    sim.take_effects();
    sim.expire_lease("VALIDATE").unwrap();
    check(
        &sim,
        expect![[r#"
        RUNNING at 0 VALIDATE started=+0
          0 VALIDATE READY 1/3 next_run_at=+61001 last_error="LEASE_EXPIRED"
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
    let again = sim.take_effects().into_iter().any(
        |effect| matches!(effect, Effect::Dispatch { task, .. } if task == TaskKind::WaitingTimeout),
    );
    assert!(again);
    assert_eq!(
        claimed(sim.claim("VALIDATE")).task,
        TaskKind::WaitingTimeout
    );
    // Once it was handled, it is ordinary work again.
    retry(&mut sim, "VALIDATE", 0, "ask once more").unwrap();
    assert_eq!(claimed(sim.claim("VALIDATE")).task, TaskKind::ReadyStep);
}

#[test]
fn l20_an_event_that_came_before_the_wait_is_used_once_oldest_first() {
    let mut sim = Sim::start_of(CHAIN);
    sim.deliver("e1", "checked", json!(1)).unwrap();
    sim.deliver("e2", "other", json!(0)).unwrap();
    sim.deliver("e3", "checked", json!(2)).unwrap();
    sim.claim("VALIDATE").unwrap();
    for expected in [1, 2] {
        let seq = sim.state.seq();
        waiting(&mut sim, "VALIDATE", "checked", 1_000).unwrap();
        let both = "StepWaiting VALIDATE\nStepWoken VALIDATE\n";
        assert_eq!(sim.log_from(seq + 1), both, "one commit");
        let row = &step_rows(&sim.plan, &sim.state)[0];
        let ready = "  0 VALIDATE READY 0/3 next_run_at=+0\n";
        assert_eq!(shown_step(row), ready);
        let given = claimed(sim.claim("VALIDATE"));
        assert_eq!(given.payload.as_deref(), Some(&json!(expected)));
        assert_eq!(given.task, TaskKind::ReadyStep);
    }
    waiting(&mut sim, "VALIDATE", "checked", 1_000).unwrap();
    check(
        &sim,
        expect![[r#"
        RUNNING at 0 VALIDATE started=+0
          0 VALIDATE WAITING 0/3 waits=checked deadline=+1000
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
}

#[test]
fn l20_the_payload_survives_a_lost_lease_and_a_retry() {
    let mut sim = Sim::start_of(CHAIN);
    sim.claim("VALIDATE").unwrap();
    waiting(&mut sim, "VALIDATE", "checked", 1_000).unwrap();
    sim.deliver("e1", "checked", json!("yes")).unwrap();
    sim.claim("VALIDATE").unwrap();
    sim.expire_lease("VALIDATE").unwrap();
    sim.crash();
    let given = claimed(sim.claim("VALIDATE"));
    assert_eq!(given.payload.as_deref(), Some(&json!("yes")));
    retry(&mut sim, "VALIDATE", 0, "again").unwrap();
    let given = claimed(sim.claim("VALIDATE"));
    assert_eq!(given.payload.as_deref(), Some(&json!("yes")));
}

#[test]
fn l21_no_step_of_an_instance_that_is_no_longer_running_can_be_claimed() {
    // Failed.
    let mut sim = Sim::start_of(CHAIN);
    sim.claim("VALIDATE").unwrap();
    dead(&mut sim, "VALIDATE", "no").unwrap();
    assert_eq!(sim.ready(), [""; 0]);
    assert_eq!(code(sim.claim("PAY")), Code::RunTerminal);
    // Cancelled while a step is READY, or WAITING past its deadline.
    let mut sim = Sim::start_of(CHAIN);
    sim.cancel().unwrap();
    check(
        &sim,
        expect![[r#"
        CANCELED at 0 VALIDATE started=+0
          0 VALIDATE DEAD 0/3
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
    assert_eq!(code(sim.claim("VALIDATE")), Code::RunTerminal);
    let mut sim = Sim::start_of(CHAIN);
    sim.claim("VALIDATE").unwrap();
    waiting(&mut sim, "VALIDATE", "checked", 1_000).unwrap();
    sim.advance(1_000).cancel().unwrap();
    check(
        &sim,
        expect![[r#"
        CANCELED at 0 VALIDATE started=+0
          0 VALIDATE DEAD 1/3 last_error="the run was stopped; whether its work took effect is not known"
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
    assert_eq!(code(sim.claim("VALIDATE")), Code::RunTerminal);
    // Cancelled while a worker has one: it may end, and nothing follows.
    let mut sim = Sim::start_of(CHAIN);
    sim.claim("VALIDATE").unwrap();
    sim.cancel().unwrap();
    assert_eq!(code(sim.claim("PAY")), Code::RunStopping);
    sim.complete("VALIDATE").unwrap();
    check(
        &sim,
        expect![[r#"
        CANCELED at 1 PAY started=+0
          0 VALIDATE DONE 0/3
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
    assert_eq!(code(sim.claim("PAY")), Code::RunTerminal);
    // Completed.
    let mut sim = Sim::start_of(CHAIN);
    sim.run_everything();
    assert_eq!(code(sim.claim("SHIP")), Code::RunTerminal);
}

#[test]
fn a_step_that_kills_its_worker_is_dead_in_the_end_also_when_it_was_woken() {
    let mut sim = Sim::start_of(CHAIN);
    sim.claim("VALIDATE").unwrap();
    waiting(&mut sim, "VALIDATE", "checked", 1_000).unwrap();
    sim.deliver("e1", "checked", json!({})).unwrap();
    let mut claims = 0;
    while sim.outcome().is_none() {
        sim.claim("VALIDATE").unwrap();
        sim.expire_lease("VALIDATE").unwrap();
        claims += 1;
    }
    assert_eq!(claims, 3);
    check(
        &sim,
        expect![[r#"
        FAILED at 0 VALIDATE started=+0 failed=+180003
          0 VALIDATE DEAD 3/3 last_error="LEASE_EXPIRED"
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]],
    );
}

fn target(step: u32) -> Target {
    Target::Step(StepRef::first(StepNo(step)))
}

fn completion(claim: Claim) -> Command {
    Command::CompleteStep {
        claim,
        output: json!(null),
        ctx: Default::default(),
        artifacts: Vec::new(),
    }
}

fn announcing_wait(claim: Claim) -> Command {
    Command::WaitStep {
        claim,
        wait: WaitFor::Event {
            event_type: "paid".into(),
        },
        timeout_ms: Some(1_000),
        outbound: vec![json!({ "type": "ask-bank" })],
        memo: None,
    }
}
