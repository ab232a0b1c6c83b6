//! L: linear.md's two tables, read with plain SQL after every commit: start, claims, and leases.

use std::sync::Arc;

use expect_test::{Expect, expect};
use serde_json::json;
use stepwell_engine::store::{AppendResult, StoreErrorKind};
use stepwell_kernel::command::{Claimed, Command};
use stepwell_kernel::event::TaskKind;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::{Code, Rejection};

use super::{Hand, Lab, START, completed, define, each_store, failed, offers, request};

pub(crate) const CHAIN: &str = "\
workflowType: order.process
workflowVersion: 3
defaults: {maxAttempts: 3}
steps: [{stepType: VALIDATE}, {stepType: PAY}, {stepType: SHIP}]
";
/// How long a worker gets for a step.
pub(crate) const LEASE_MS: u64 = 30_000;
pub(crate) const RUN: &str = "run_linear";

pub(crate) fn plan() -> Arc<Plan> {
    define(CHAIN)
}

/// A run that has just started, and its coordinator, which offers the work to others.
pub(crate) fn started(lab: &Lab) -> Hand {
    let mut config = offers();
    config.sinks = vec!["sink".into()];
    let mut hand = lab.hand(config);
    hand.trigger(&plan(), request(RUN)).unwrap();
    hand
}

#[track_caller]
pub(crate) fn check(lab: &Lab, expected: &Expect) {
    expected.assert_eq(&lab.tables(RUN));
}

#[track_caller]
pub(crate) fn claim(hand: &mut Hand, step: &str) -> Claimed {
    hand.claim_as(RUN, step, "w").unwrap()
}

/// Claims a step and completes it.
#[track_caller]
pub(crate) fn run(hand: &mut Hand, step: &str) {
    let claimed = claim(hand, step);
    hand.submit(RUN, completed(&claimed.claim)).unwrap();
}

pub(crate) fn claim_command(hand: &mut Hand, step: &str, worker: &str) -> Command {
    Command::ClaimStep {
        target: hand.target(RUN, step),
        worker: worker.into(),
        lease_until: hand.now.plus(LEASE_MS),
    }
}

#[test]
fn l1_instance_and_steps_are_inserted_in_one_transaction_or_not_at_all() {
    each_store(|lab| {
        let mut hand = lab.hand(offers());
        hand.hand_in_start(&plan(), request(RUN));
        let batch = hand.batch().unwrap();
        assert_eq!(lab.tables(RUN), "", "nothing before the commit");
        // A part of the commit that cannot be: nothing of it is there, not even the run.
        let mut broken = batch.clone();
        broken.appends[0]
            .slots
            .push(stepwell_engine::store::SlotChange {
                key: "none".into(),
                change: 1,
                limit: Some(0),
            });
        broken.id.number += 1_000;
        let outcomes = lab.store.commit(&broken).unwrap();
        assert_eq!(outcomes, [AppendResult::SlotsFull("none".into())]);
        assert_eq!(lab.tables(RUN), "");
        assert_eq!(lab.store.find(RUN).unwrap(), None);
        // The commit itself: all of it.
        assert_eq!(hand.send(&batch), [AppendResult::Committed]);
        check(lab, &started_tables());
    });
}

fn started_tables() -> Expect {
    expect![[r#"
        RUNNING at 0 VALIDATE started=+0
          0 VALIDATE READY 0/3 next_run_at=+0
          1 PAY PENDING 0/3
          2 SHIP PENDING 0/3
    "#]]
}

#[test]
fn l2_after_start_the_first_step_is_ready_now_and_the_others_are_pending() {
    each_store(|lab| {
        let mut hand = started(lab);
        check(lab, &started_tables());
        let given = hand.reserve(&plan(), "w", 10);
        let targets: Vec<&str> = given.iter().map(|task| task.target.as_str()).collect();
        assert_eq!(targets, ["VALIDATE"], "and only it can be claimed");
    });
}

#[test]
fn l3_a_changed_or_missing_definition_does_not_change_a_run_that_has_started() {
    each_store(|lab| {
        let mut hand = started(lab);
        run(&mut hand, "VALIDATE");
        hand.coordinator.close().unwrap();
        drop(hand);
        // A server that has never seen the definition, and runs another one of the same name.
        let mut hand = lab.hand(offers());
        let shorter = CHAIN.replace(", {stepType: PAY}, {stepType: SHIP}", "");
        hand.trigger(&define(&shorter), request("run_short"))
            .unwrap();
        let claimed = hand.claim_as("run_short", "VALIDATE", "w").unwrap();
        hand.submit("run_short", completed(&claimed.claim)).unwrap();
        run(&mut hand, "PAY");
        run(&mut hand, "SHIP");
        check(
            lab,
            &expect![[r#"
                COMPLETED at 2 SHIP started=+0 completed=+0
                  0 VALIDATE DONE 0/3
                  1 PAY DONE 0/3
                  2 SHIP DONE 0/3
            "#]],
        );
        expect![[r#"
            COMPLETED at 0 VALIDATE started=+0 completed=+0
              0 VALIDATE DONE 0/3
        "#]]
        .assert_eq(&lab.tables("run_short"));
    });
}

#[test]
fn l4_a_lost_lease_makes_the_step_ready_or_dead() {
    each_store(|lab| {
        let mut hand = started(lab);
        claim(&mut hand, "VALIDATE");
        hand.advance(LEASE_MS + 1).tick();
        check(
            lab,
            &expect![[r#"
                RUNNING at 0 VALIDATE started=+0
                  0 VALIDATE READY 1/3 next_run_at=+30001 last_error="LEASE_EXPIRED"
                  1 PAY PENDING 0/3
                  2 SHIP PENDING 0/3
            "#]],
        );
        // Any server recovers it, not only the one that gave it out.
        claim(&mut hand, "VALIDATE");
        let mut other = lab.hand_at(offers(), hand.now);
        other.advance(LEASE_MS + 1).tick();
        check(
            lab,
            &expect![[r#"
                RUNNING at 0 VALIDATE started=+0
                  0 VALIDATE READY 2/3 next_run_at=+60002 last_error="LEASE_EXPIRED"
                  1 PAY PENDING 0/3
                  2 SHIP PENDING 0/3
            "#]],
        );
        claim(&mut other, "VALIDATE");
        other.advance(LEASE_MS + 1).tick();
        check(
            lab,
            &expect![[r#"
                FAILED at 0 VALIDATE started=+0 failed=+90003
                  0 VALIDATE DEAD 3/3 last_error="LEASE_EXPIRED"
                  1 PAY PENDING 0/3
                  2 SHIP PENDING 0/3
            "#]],
        );
    });
}

#[test]
fn l5_a_lease_that_ends_now_is_still_its_owners() {
    each_store(|lab| {
        let mut hand = started(lab);
        let claimed = claim(&mut hand, "VALIDATE");
        let before = lab.tables(RUN);
        hand.advance(LEASE_MS);
        assert_eq!(claimed.claim.lease_until, Some(hand.now));
        hand.tick();
        lab.hand_at(offers(), hand.now).tick();
        assert_eq!(lab.tables(RUN), before, "nobody takes it");
        hand.submit(RUN, completed(&claimed.claim)).unwrap();
        check(
            lab,
            &expect![[r#"
                RUNNING at 1 PAY started=+0
                  0 VALIDATE DONE 0/3
                  1 PAY READY 0/3 next_run_at=+30000
                  2 SHIP PENDING 0/3
            "#]],
        );
    });
}

#[test]
fn l5_a_lease_that_was_renewed_in_its_last_instant_is_not_recovered() {
    each_store(|lab| {
        let mut hand = started(lab);
        claim(&mut hand, "VALIDATE");
        let before = lab.events(RUN);
        // The recovery is decided; the heartbeat is faster than its commit, and no event tells of it.
        let last = hand.now.plus(LEASE_MS);
        hand.advance(LEASE_MS + 1);
        hand.coordinator.tick(hand.now).unwrap();
        let recovery = hand.batch().unwrap();
        let run = lab.store.find(RUN).unwrap().unwrap();
        let until = last.plus(LEASE_MS);
        let held = lab.store.heartbeat(run, "VALIDATE", "w", last, until);
        assert!(held.unwrap());
        let outcomes = hand.send(&recovery);
        assert!(
            matches!(outcomes[..], [AppendResult::GuardFailed(_)]),
            "{outcomes:?}"
        );
        hand.drive();
        assert_eq!(lab.events(RUN), before);
        // It is recovered when the renewed lease has ended.
        hand.now = until.plus(1);
        hand.tick();
        assert!(lab.tables(RUN).contains("READY 1/3"), "{}", lab.tables(RUN));
    });
}

#[test]
fn l6_only_ready_steps_whose_time_has_come_can_be_claimed() {
    each_store(|lab| {
        let mut hand = started(lab);
        let refused = |hand: &mut Hand, step: &str, code: Code, why: &str| {
            let before = lab.tables(RUN);
            let claim = claim_command(hand, step, "w");
            assert_eq!(hand.code(RUN, claim), code, "{why}");
            assert_eq!(hand.reserve(&plan(), "w", 10), [], "{why}");
            assert_eq!(lab.tables(RUN), before, "{why}");
        };
        let claimed = claim(&mut hand, "VALIDATE");
        refused(&mut hand, "PAY", Code::StepNotEligible, "PENDING");
        refused(&mut hand, "VALIDATE", Code::StepNotEligible, "RUNNING");
        hand.submit(RUN, failed(&claimed.claim, "busy", true, 500))
            .unwrap();
        hand.advance(499);
        refused(&mut hand, "VALIDATE", Code::StepNotEligible, "not yet");
        hand.advance(1);
        let given = hand.reserve(&plan(), "w", 10);
        assert_eq!(given.len(), 1, "now");
        let claimed = claim(&mut hand, "VALIDATE");
        hand.submit(RUN, failed(&claimed.claim, "no", false, 0))
            .unwrap();
        refused(&mut hand, "VALIDATE", Code::RunTerminal, "DEAD");
    });
}

#[test]
fn l8_a_claim_is_committed_with_its_lease_before_the_worker_hears_of_it() {
    each_store(|lab| {
        let mut hand = started(lab);
        hand.advance(7);
        let command = claim_command(&mut hand, "VALIDATE", "worker-1");
        let ticket = hand.hand_in(RUN, command);
        let batch = hand.batch().unwrap();
        check(lab, &started_tables());
        assert!(hand.answer(ticket).is_none(), "no work before the commit");
        // The store does not take it: still no work.
        hand.lose(&batch, StoreErrorKind::Unavailable);
        assert!(hand.answer(ticket).is_none());
        hand.send(&batch);
        assert!(hand.answer(ticket).is_some_and(|answer| answer.is_ok()));
        check(
            lab,
            &expect![[r#"
                RUNNING at 0 VALIDATE started=+0
                  0 VALIDATE RUNNING 0/3 locked_by=worker-1 locked_until=+30007
                  1 PAY PENDING 0/3
                  2 SHIP PENDING 0/3
            "#]],
        );
        // A heartbeat moves the end of the lease where everyone sees it.
        let run = lab.store.find(RUN).unwrap().unwrap();
        let until = hand.now.plus(LEASE_MS + 50);
        let store = hand.coordinator.store();
        let held = store.heartbeat(run, "VALIDATE", "worker-1", hand.now, until);
        assert!(held.unwrap());
        if lab.store.capabilities().durable {
            assert!(lab.tables(RUN).contains("locked_until=+30057"));
        }
    });
}

#[test]
fn a_worker_gets_what_the_step_is_about() {
    each_store(|lab| {
        let mut hand = started(lab);
        let claimed = claim(&mut hand, "VALIDATE");
        assert_eq!(claimed.task, TaskKind::ReadyStep);
        assert_eq!((claimed.claim.execution, claimed.logical), (1, 1));
        assert_eq!(claimed.claim.lease_until, Some(START.plus(LEASE_MS)));
    });
}

#[test]
fn a_business_key_is_unique_among_all_running_instances() {
    each_store(|lab| {
        let keyed = define(&CHAIN.replace("steps:", "bizKey: \"{{ workload.order }}\"\nsteps:"));
        let order = |run_id: &str, order: &str| stepwell_engine::StartRequest {
            params: json!({ "order": order }),
            ..request(run_id)
        };
        let mut hand = lab.hand(offers());
        hand.trigger(&keyed, order("run_1", "o-1")).unwrap();
        let taken = hand.trigger(&keyed, order("run_2", "o-1"));
        assert_eq!(taken, Err(Rejection::key_taken("o-1", "run_1").into()));
        assert_eq!(lab.store.find("run_2").unwrap(), None, "nothing of it");
        assert_eq!(lab.tables("run_2"), "");
        // Two servers at once: one of them.
        let mut other = lab.hand(offers());
        let (a, b) = (
            hand.hand_in_start(&keyed, order("run_3", "o-3")),
            other.hand_in_start(&keyed, order("run_4", "o-3")),
        );
        other.drive();
        hand.drive();
        assert!(matches!(other.answer(b), Some(Ok(_))));
        let taken = Some(Err(Rejection::key_taken("o-3", "run_4").into()));
        assert_eq!(hand.answer(a), taken);
        // Another key, or after the end: no conflict. The type makes no difference.
        hand.trigger(&keyed, order("run_5", "o-5")).unwrap();
        let text = CHAIN
            .replace("order.process", "order.return")
            .replace("steps:", "bizKey: \"{{ workload.order }}\"\nsteps:");
        let taken = hand.trigger(&define(&text), order("run_6", "o-1"));
        assert_eq!(taken, Err(Rejection::key_taken("o-1", "run_1").into()));
        hand.submit("run_1", super::signal("c", "CANCEL")).unwrap();
        hand.trigger(&keyed, order("run_7", "o-1")).unwrap();
    });
}
