//! L: waits, their deadlines, and the events that end them.

use expect_test::expect;
use serde_json::{Value as Json, json};
use stepwell_engine::coordinator::{Message, Notice};
use stepwell_engine::store::{Delivered, OutsideEvent, StoreErrorKind};
use stepwell_kernel::command::{Claim, Command, WaitFor};
use stepwell_kernel::event::{Body, TaskKind};
use stepwell_kernel::rejection::Code;

use super::linear::{CHAIN, LEASE_MS, RUN, check, claim, claim_command, run, started};
use super::{Hand, Lab, define, each_store, event, failed, offers, request};

fn wait(claim: &Claim, event_type: &str, outbound: Vec<Json>) -> Command {
    Command::WaitStep {
        claim: claim.clone(),
        wait: WaitFor::Event {
            event_type: event_type.into(),
        },
        timeout_ms: Some(1_000),
        outbound,
        memo: None,
    }
}

/// A run whose first step waits for `checked` for a second.
fn waiting(lab: &Lab) -> Hand {
    let mut hand = started(lab);
    let claim = claim(&mut hand, "VALIDATE").claim;
    hand.submit(RUN, wait(&claim, "checked", vec![])).unwrap();
    hand
}

#[test]
fn l9_with_timeout_claiming_a_wait_that_ran_out_is_claimed_as_one() {
    each_store(|lab| {
        let mut hand = waiting(lab);
        let plan = super::linear::plan();
        hand.advance(999);
        hand.tick();
        assert_eq!(hand.reserve(&plan, "w", 10), [], "not yet");
        hand.advance(1);
        assert_eq!(hand.reserve(&plan, "w", 10).len(), 1);
        let claimed = claim(&mut hand, "VALIDATE");
        assert_eq!(claimed.task, TaskKind::WaitingTimeout);
        check(
            lab,
            &expect![[r#"
                RUNNING at 0 VALIDATE started=+0
                  0 VALIDATE RUNNING 0/3 locked_by=w locked_until=+31000
                  1 PAY PENDING 0/3
                  2 SHIP PENDING 0/3
            "#]],
        );
    });
}

#[test]
fn l9_without_timeout_claiming_a_wait_is_left_waiting() {
    each_store(|lab| {
        let text = CHAIN.replace("steps:", "timeoutClaims: false\nsteps:");
        let plan = define(&text);
        let mut hand = lab.hand(offers());
        hand.trigger(&plan, request(RUN)).unwrap();
        let claim = claim(&mut hand, "VALIDATE").claim;
        hand.submit(RUN, wait(&claim, "checked", vec![])).unwrap();
        let before = lab.tables(RUN);
        hand.advance(1_000_000).tick();
        assert_eq!(hand.reserve(&plan, "w", 10), []);
        let late = claim_command(&mut hand, "VALIDATE", "w");
        assert_eq!(hand.code(RUN, late), Code::StepNotEligible);
        assert_eq!(lab.tables(RUN), before);
        hand.submit(RUN, event("e", "checked", json!({}))).unwrap();
        assert_eq!(hand.reserve(&plan, "w", 10).len(), 1, "the event wakes it");
    });
}

#[test]
fn l13_waiting_sets_event_and_deadline_and_leaves_the_instance_alone() {
    each_store(|lab| {
        let mut hand = started(lab);
        run(&mut hand, "VALIDATE");
        hand.advance(3);
        let claim = claim(&mut hand, "PAY").claim;
        hand.advance(4);
        hand.submit(RUN, wait(&claim, "paid", vec![])).unwrap();
        check(
            lab,
            &expect![[r#"
                RUNNING at 1 PAY started=+0
                  0 VALIDATE DONE 0/3
                  1 PAY WAITING 0/3 waits=paid deadline=+1007
                  2 SHIP PENDING 0/3
            "#]],
        );
    });
}

#[test]
fn l14_what_a_wait_announces_is_in_the_outbox_with_it_or_not_at_all() {
    each_store(|lab| {
        let mut hand = started(lab);
        let claim = claim(&mut hand, "VALIDATE").claim;
        let (tables, log) = (lab.tables(RUN), lab.events(RUN));
        let markers = lab.store.backlog("sink").unwrap().0;
        let announced = json!({ "type": "ask-bank" });
        hand.hand_in(RUN, wait(&claim, "paid", vec![announced.clone()]));
        let batch = hand.batch().unwrap();
        // The commit does not come through: no row, no marker, no announcement.
        hand.lose(&batch, StoreErrorKind::Unavailable);
        assert_eq!(lab.tables(RUN), tables);
        assert_eq!(lab.events(RUN), log);
        assert_eq!(lab.store.backlog("sink").unwrap().0, markers);
        let published = |hand: &Hand| {
            let said = hand.said.iter();
            said.filter(|it| matches!(it, Notice::Published(..)))
                .count()
        };
        assert_eq!(published(&hand), 0);
        // It does: all of them.
        hand.send(&batch);
        let events = lab.events(RUN);
        let Body::StepWaiting { outbound, .. } = &events[log.len()].body else {
            panic!("{events:?}");
        };
        assert_eq!(*outbound, [announced]);
        assert_eq!(lab.store.backlog("sink").unwrap().0, markers + 1);
        assert_eq!(published(&hand), 1);
        assert!(lab.tables(RUN).contains("WAITING 0/3 waits=paid"));
        // The marker stands for the chunk that says it.
        let mut firsts = Vec::new();
        for _ in 0..markers + 1 {
            let until = hand.now.plus(1_000);
            let taken = lab.store.take("sink", "p", hand.now, until, 10).unwrap();
            for marker in &taken {
                firsts.push(marker.first);
                lab.store.sent(marker).unwrap();
            }
        }
        assert_eq!(firsts.last(), Some(&(log.len() as u64 + 1)));
    });
}

#[test]
fn l18_only_the_awaited_event_wakes_the_waiting_step() {
    each_store(|lab| {
        let mut hand = waiting(lab);
        let before = lab.tables(RUN);
        hand.advance(1);
        hand.submit(RUN, event("e1", "paid", json!({}))).unwrap();
        hand.submit(RUN, event("e2", "Checked", json!({}))).unwrap();
        assert_eq!(lab.tables(RUN), before);
        hand.advance(1);
        hand.submit(RUN, event("e3", "checked", json!({ "ok": true })))
            .unwrap();
        check(
            lab,
            &expect![[r#"
                RUNNING at 0 VALIDATE started=+0
                  0 VALIDATE READY 0/3 next_run_at=+2
                  1 PAY PENDING 0/3
                  2 SHIP PENDING 0/3
            "#]],
        );
        // The same event again changes nothing, and the same step runs again.
        let before = lab.tables(RUN);
        hand.submit(RUN, event("e3", "checked", json!({ "ok": false })))
            .unwrap();
        assert_eq!(lab.tables(RUN), before);
        let claimed = claim(&mut hand, "VALIDATE");
        assert_eq!(claimed.payload.as_deref(), Some(&json!({ "ok": true })));
        assert_eq!(claimed.task, TaskKind::ReadyStep);
    });
}

/// An event that names no run, only what it is about.
fn about(id: &str, key: &str, event_type: &str) -> OutsideEvent {
    let payload = json!({ "id": id });
    let message = Message::from(event(id, event_type, payload.clone()));
    OutsideEvent {
        tenant: "tenant".into(),
        id: id.into(),
        event_type: event_type.into(),
        key: key.into(),
        payload: payload.to_string(),
        mail: message.body(),
    }
}

#[test]
fn l18_an_event_finds_its_run_by_what_it_is_about() {
    each_store(|lab| {
        let mut hand = waiting(lab);
        let before = lab.tables(RUN);
        let deliver =
            |event: &OutsideEvent, hand: &Hand| lab.store.deliver(event, hand.now).unwrap();
        assert_eq!(
            deliver(&about("a", "run_x", "checked"), &hand),
            Delivered::Kept
        );
        assert_eq!(deliver(&about("b", RUN, "paid"), &hand), Delivered::Kept);
        hand.tick();
        assert_eq!(lab.tables(RUN), before);
        let run = lab.store.find(RUN).unwrap().unwrap();
        let ours = about("c", RUN, "checked");
        assert_eq!(deliver(&ours, &hand), Delivered::ToRun(run));
        assert_eq!(deliver(&ours, &hand), Delivered::Again);
        hand.tick();
        assert!(
            lab.tables(RUN)
                .contains("0 VALIDATE READY 0/3 next_run_at=+0\n")
        );
        let claimed = claim(&mut hand, "VALIDATE");
        assert_eq!(claimed.payload.as_deref(), Some(&json!({ "id": "c" })));
    });
}

#[test]
fn l19_a_timeout_claim_that_loses_its_lease_comes_back_as_a_timeout() {
    each_store(|lab| {
        let mut hand = waiting(lab);
        hand.advance(1_000);
        claim(&mut hand, "VALIDATE");
        hand.advance(LEASE_MS + 1).tick();
        check(
            lab,
            &expect![[r#"
                RUNNING at 0 VALIDATE started=+0
                  0 VALIDATE READY 1/3 next_run_at=+31001 last_error="LEASE_EXPIRED"
                  1 PAY PENDING 0/3
                  2 SHIP PENDING 0/3
            "#]],
        );
        // Also for a server that has only the store.
        let mut other = lab.hand_at(offers(), hand.now);
        let claimed = claim(&mut other, "VALIDATE");
        assert_eq!(claimed.task, TaskKind::WaitingTimeout);
        // Once it was handled, it is ordinary work again.
        other
            .submit(RUN, failed(&claimed.claim, "once more", true, 0))
            .unwrap();
        assert_eq!(claim(&mut other, "VALIDATE").task, TaskKind::ReadyStep);
    });
}

#[test]
fn l20_an_event_that_came_before_the_wait_is_used_in_its_commit_once_oldest_first() {
    each_store(|lab| {
        let mut hand = started(lab);
        for (id, event_type, payload) in [
            ("e1", "checked", 1),
            ("e2", "other", 0),
            ("e3", "checked", 2),
        ] {
            hand.submit(RUN, event(id, event_type, json!(payload)))
                .unwrap();
        }
        for expected in [1, 2] {
            let claim = claim(&mut hand, "VALIDATE");
            if expected == 2 {
                assert_eq!(claim.payload.as_deref(), Some(&json!(1)));
            }
            hand.hand_in(RUN, wait(&claim.claim, "checked", vec![]));
            let batch = hand.batch().unwrap();
            hand.send(&batch);
            assert!(hand.batch().is_none(), "one commit");
            check(
                lab,
                &expect![[r#"
                    RUNNING at 0 VALIDATE started=+0
                      0 VALIDATE READY 0/3 next_run_at=+0
                      1 PAY PENDING 0/3
                      2 SHIP PENDING 0/3
                "#]],
            );
        }
        let claim = claim(&mut hand, "VALIDATE");
        assert_eq!(claim.payload.as_deref(), Some(&json!(2)));
        hand.submit(RUN, wait(&claim.claim, "checked", vec![]))
            .unwrap();
        check(
            lab,
            &expect![[r#"
                RUNNING at 0 VALIDATE started=+0
                  0 VALIDATE WAITING 0/3 waits=checked deadline=+1000
                  1 PAY PENDING 0/3
                  2 SHIP PENDING 0/3
            "#]],
        );
    });
}

#[test]
fn l20_an_event_that_names_no_run_is_kept_until_one_waits() {
    each_store(|lab| {
        let mut hand = started(lab);
        let early = about("a", RUN, "checked");
        assert_eq!(
            lab.store.deliver(&early, hand.now).unwrap(),
            Delivered::Kept
        );
        let first = claim(&mut hand, "VALIDATE");
        hand.submit(RUN, wait(&first.claim, "checked", vec![]))
            .unwrap();
        assert!(
            lab.tables(RUN).contains("0 VALIDATE READY"),
            "{}",
            lab.tables(RUN)
        );
        let claimed = claim(&mut hand, "VALIDATE");
        assert_eq!(claimed.payload.as_deref(), Some(&json!({ "id": "a" })));
        // It is used up.
        hand.submit(RUN, wait(&claimed.claim, "checked", vec![]))
            .unwrap();
        assert!(lab.tables(RUN).contains("0 VALIDATE WAITING"));
    });
}
