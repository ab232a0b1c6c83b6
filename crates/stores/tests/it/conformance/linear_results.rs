//! L: what handlers return: completed, retry, dead, and results that come too late.

use expect_test::expect;
use serde_json::json;
use stepwell_engine::store::AppendResult;
use stepwell_kernel::command::{Claim, Command, WaitFor};
use stepwell_kernel::rejection::Code;

use super::linear::{LEASE_MS, RUN, check, claim, claim_command, run, started};
use super::{Hand, completed, each_store, failed, offers, signal};

#[test]
fn l10_a_result_without_its_lease_updates_no_step_no_instance_and_no_outbox_row() {
    each_store(|lab| {
        let wait = |claim: &Claim| Command::WaitStep {
            claim: claim.clone(),
            wait: WaitFor::Event {
                event_type: "paid".into(),
            },
            timeout_ms: Some(1_000),
            outbound: vec![json!({ "type": "ask-bank" })],
            memo: None,
        };
        let refused = |hand: &mut Hand, claim: &Claim, code: Code| {
            let before = (
                lab.tables(RUN),
                lab.store.backlog("sink").unwrap(),
                lab.events(RUN),
            );
            for late in [
                completed(claim),
                failed(claim, "late", true, 1),
                failed(claim, "late", false, 0),
                wait(claim),
            ] {
                assert_eq!(hand.code(RUN, late), code);
            }
            let after = (
                lab.tables(RUN),
                lab.store.backlog("sink").unwrap(),
                lab.events(RUN),
            );
            assert_eq!(after, before);
        };
        let mut hand = started(lab);
        let first = claim(&mut hand, "VALIDATE").claim;
        let thief = Claim {
            worker: "thief".into(),
            ..first.clone()
        };
        refused(&mut hand, &thief, Code::LeaseLost);
        // Expired, and nobody has noticed yet.
        hand.advance(LEASE_MS + 1);
        refused(&mut hand, &first, Code::LeaseLost);
        // Recovered, and nobody has claimed it again.
        hand.tick();
        refused(&mut hand, &first, Code::StepNotRunning);
        // Claimed again by the same worker.
        claim(&mut hand, "VALIDATE");
        refused(&mut hand, &first, Code::StaleExecution);
    });
}

#[test]
fn l10_of_a_late_result_and_the_recovery_exactly_one_is_written() {
    each_store(|lab| {
        for late_first in [true, false] {
            let run_id = format!("run_{late_first}");
            let mut one = lab.hand(offers());
            one.trigger(&super::linear::plan(), super::request(&run_id))
                .unwrap();
            let claim = one.claim_as(&run_id, "VALIDATE", "w").unwrap().claim;
            let mut two = lab.hand_at(offers(), one.now);
            // The result is decided in time; the recovery a moment later; then both are sent.
            let ticket = one.hand_in(&run_id, completed(&claim));
            let result = one.batch().unwrap();
            two.advance(LEASE_MS + 1);
            two.coordinator.tick(two.now).unwrap();
            let recovery = two.batch().unwrap();
            if late_first {
                assert_eq!(one.send(&result), [AppendResult::Committed]);
                assert_ne!(two.send(&recovery), [AppendResult::Committed]);
            } else {
                assert_eq!(two.send(&recovery), [AppendResult::Committed]);
                assert_ne!(one.send(&result), [AppendResult::Committed]);
            }
            one.advance(LEASE_MS + 1);
            one.drive();
            two.drive();
            let kinds = lab.kinds(&run_id);
            let done = kinds.contains(&"StepCompleted");
            let lost = kinds.contains(&"StepExecutionFailed");
            assert_eq!((done, lost), (late_first, !late_first), "{kinds:?}");
            let answer = one.answer(ticket).unwrap();
            assert_eq!(answer.is_ok(), late_first, "{answer:?}");
        }
    });
}

#[test]
fn l11_completed_activates_the_next_step_and_moves_the_pointer_in_one_commit() {
    each_store(|lab| {
        let mut hand = started(lab);
        hand.advance(5);
        let claim = claim(&mut hand, "VALIDATE").claim;
        hand.advance(5);
        let before = lab.tables(RUN);
        hand.hand_in(RUN, completed(&claim));
        let batch = hand.batch().unwrap();
        assert_eq!(lab.tables(RUN), before);
        hand.send(&batch);
        assert!(hand.batch().is_none(), "that was all");
        check(
            lab,
            &expect![[r#"
                RUNNING at 1 PAY started=+0
                  0 VALIDATE DONE 0/3
                  1 PAY READY 0/3 next_run_at=+10
                  2 SHIP PENDING 0/3
            "#]],
        );
    });
}

#[test]
fn l12_completed_at_the_last_step_completes_the_instance() {
    each_store(|lab| {
        let mut hand = started(lab);
        for step in ["VALIDATE", "PAY", "SHIP"] {
            hand.advance(10);
            run(&mut hand, step);
        }
        check(
            lab,
            &expect![[r#"
                COMPLETED at 2 SHIP started=+0 completed=+30
                  0 VALIDATE DONE 0/3
                  1 PAY DONE 0/3
                  2 SHIP DONE 0/3
            "#]],
        );
        assert_eq!(lab.status(RUN), "COMPLETED");
    });
}

#[test]
fn l15_retry_makes_the_step_ready_after_the_backoff() {
    each_store(|lab| {
        let mut hand = started(lab);
        let first = claim(&mut hand, "VALIDATE").claim;
        hand.advance(10);
        hand.submit(RUN, failed(&first, "the shop is closed", true, 2_500))
            .unwrap();
        check(
            lab,
            &expect![[r#"
                RUNNING at 0 VALIDATE started=+0
                  0 VALIDATE READY 1/3 next_run_at=+2510 last_error="the shop is closed"
                  1 PAY PENDING 0/3
                  2 SHIP PENDING 0/3
            "#]],
        );
        hand.advance(2_500);
        claim(&mut hand, "VALIDATE");
        check(
            lab,
            &expect![[r#"
                RUNNING at 0 VALIDATE started=+0
                  0 VALIDATE RUNNING 1/3 locked_by=w locked_until=+32510 last_error="the shop is closed"
                  1 PAY PENDING 0/3
                  2 SHIP PENDING 0/3
            "#]],
        );
    });
}

#[test]
fn l16_max_attempts_three_gives_exactly_three_executions() {
    each_store(|lab| {
        let mut hand = started(lab);
        for execution in 1..=3 {
            let claim = claim(&mut hand, "VALIDATE").claim;
            assert_eq!(claim.execution, execution);
            let why = format!("broken {execution}");
            hand.submit(RUN, failed(&claim, &why, true, 100)).unwrap();
            hand.advance(100).tick();
        }
        let fourth = claim_command(&mut hand, "VALIDATE", "w");
        assert_eq!(hand.code(RUN, fourth), Code::RunTerminal);
        check(
            lab,
            &expect![[r#"
                FAILED at 0 VALIDATE started=+0 failed=+200
                  0 VALIDATE DEAD 3/3 last_error="broken 3"
                  1 PAY PENDING 0/3
                  2 SHIP PENDING 0/3
            "#]],
        );
    });
}

#[test]
fn l17_dead_fails_the_instance_although_attempts_remain() {
    each_store(|lab| {
        let mut hand = started(lab);
        run(&mut hand, "VALIDATE");
        let claim = claim(&mut hand, "PAY").claim;
        hand.advance(20);
        hand.submit(RUN, failed(&claim, "the card is stolen", false, 0))
            .unwrap();
        check(
            lab,
            &expect![[r#"
                FAILED at 1 PAY started=+0 failed=+20
                  0 VALIDATE DONE 0/3
                  1 PAY DEAD 1/3 last_error="the card is stolen"
                  2 SHIP PENDING 0/3
            "#]],
        );
        assert_eq!(lab.status(RUN), "FAILED");
    });
}

#[test]
fn l21_no_step_of_an_instance_that_is_no_longer_running_can_be_claimed() {
    each_store(|lab| {
        let mut hand = started(lab);
        hand.submit(RUN, signal("c", "CANCEL")).unwrap();
        check(
            lab,
            &expect![[r#"
                CANCELED at 0 VALIDATE started=+0
                  0 VALIDATE DEAD 0/3
                  1 PAY PENDING 0/3
                  2 SHIP PENDING 0/3
            "#]],
        );
        let plan = super::linear::plan();
        assert_eq!(hand.reserve(&plan, "w", 10), [], "its task is gone");
        let late = claim_command(&mut hand, "VALIDATE", "w");
        assert_eq!(hand.code(RUN, late), Code::RunTerminal);
        // Cancelled while a worker has it: it may end, and nothing follows.
        hand.trigger(&plan, super::request("run_2")).unwrap();
        let claim = hand.claim_as("run_2", "VALIDATE", "w").unwrap().claim;
        hand.submit("run_2", signal("c", "CANCEL")).unwrap();
        assert_eq!(hand.reserve(&plan, "w", 10), []);
        hand.submit("run_2", completed(&claim)).unwrap();
        expect![[r#"
            CANCELED at 1 PAY started=+0
              0 VALIDATE DONE 0/3
              1 PAY PENDING 0/3
              2 SHIP PENDING 0/3
        "#]]
        .assert_eq(&lab.tables("run_2"));
        assert_eq!(hand.reserve(&plan, "w", 10), []);
    });
}

#[test]
fn heartbeats_are_refused_while_the_run_stops() {
    each_store(|lab| {
        let mut hand = started(lab);
        claim(&mut hand, "VALIDATE");
        let run = lab.store.find(RUN).unwrap().unwrap();
        let (now, until) = (hand.now, hand.now.plus(2 * LEASE_MS));
        let beat = |worker: &str| {
            lab.store
                .heartbeat(run, "VALIDATE", worker, now, until)
                .unwrap()
        };
        assert!(beat("w"));
        assert!(!beat("thief"));
        hand.submit(RUN, signal("c", "CANCEL")).unwrap();
        assert!(!beat("w"), "it is told to stop");
        // Nobody hears from it again: the renewed lease ends, and with it the run.
        hand.advance(2 * LEASE_MS).tick();
        assert!(lab.tables(RUN).starts_with("RUNNING"));
        hand.advance(1).tick();
        assert!(
            lab.tables(RUN).starts_with("CANCELED"),
            "{}",
            lab.tables(RUN)
        );
    });
}
