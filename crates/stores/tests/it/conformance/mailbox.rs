//! A command to a run that another server has goes through the mailbox, and is answered.

use serde_json::json;
use stepwell_engine::Error;
use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::rejection::Code;

use super::{Hand, Lab, chain, each_store, event, request, serves, signal};

const RUN: &str = "run_m";

/// The server that has the run, and another one.
fn two(lab: &Lab) -> (Hand, Hand) {
    let mut owner = lab.hand(serves());
    owner.trigger(&chain(&["a"]), request(RUN)).unwrap();
    (owner, lab.hand(serves()))
}

fn in_mailbox(lab: &Lab) -> usize {
    let run = lab.store.find(RUN).unwrap().unwrap();
    lab.store.load(run).unwrap().unwrap().mail.len()
}

#[test]
fn a_command_to_a_run_of_another_server_is_done_by_it() {
    each_store(|lab| {
        let (mut owner, mut other) = two(lab);
        let ticket = other.hand_in(RUN, event("e", "tick", json!({ "n": 1 })));
        other.drive();
        assert_eq!(other.answer(ticket), None, "it is not done yet");
        assert_eq!((in_mailbox(lab), lab.count(RUN, "EventReceived")), (1, 0));
        owner.tick();
        assert_eq!((in_mailbox(lab), lab.count(RUN, "EventReceived")), (0, 1));
        other.tick();
        let done = Some(Ok(Reply::Done));
        assert_eq!(other.answer(ticket), done);
        // Asking again gives nothing more.
        owner.tick();
        other.tick();
        assert_eq!(lab.count(RUN, "EventReceived"), 1);
    });
}

#[test]
fn a_refusal_comes_back_with_its_code() {
    each_store(|lab| {
        let (mut owner, mut other) = two(lab);
        let claim = Command::ClaimStep {
            target: owner.target(RUN, "a"),
            worker: "w".into(),
            lease_until: owner.now.plus(1_000),
        };
        let ticket = other.hand_in(RUN, claim);
        let before = lab.events(RUN);
        other.drive();
        owner.tick();
        other.tick();
        let answer = other.answer(ticket);
        assert!(
            matches!(&answer, Some(Err(Error::Rejected(it))) if it.code == Code::StepNotEligible),
            "{answer:?}"
        );
        assert_eq!(lab.events(RUN), before);
        assert_eq!(in_mailbox(lab), 0, "nothing is left of it");
    });
}

#[test]
fn a_message_to_a_dead_owner_is_read_by_whoever_takes_the_run_over() {
    each_store(|lab| {
        let (owner, mut other) = two(lab);
        let ticket = other.hand_in(RUN, signal("p", "PAUSE"));
        other.drive();
        drop(owner);
        other.advance(15_001);
        for _ in 0..3 {
            other.tick();
        }
        let done = Some(Ok(Reply::Done));
        assert_eq!(other.answer(ticket), done);
        assert_eq!(lab.status(RUN), "PAUSED");
        assert_eq!(lab.count(RUN, "RunPaused"), 1);
    });
}

#[test]
fn a_command_to_a_run_that_nobody_has_is_done_at_once() {
    each_store(|lab| {
        let mut one = lab.hand(super::offers());
        one.trigger(&chain(&["a"]), request(RUN)).unwrap();
        let mut two = lab.hand(super::offers());
        two.submit(RUN, event("e", "tick", json!({}))).unwrap();
        one.submit(RUN, event("f", "tick", json!({}))).unwrap();
        assert_eq!(lab.count(RUN, "EventReceived"), 2);
    });
}

#[test]
fn a_message_that_nobody_can_read_is_dropped_and_one_that_is_too_deep_is_not_sent() {
    each_store(|lab| {
        let (mut owner, mut other) = two(lab);
        let run = lab.store.find(RUN).unwrap().unwrap();
        lab.store.post(run, "not a letter", owner.now).unwrap();
        owner.tick();
        assert_eq!(in_mailbox(lab), 0);
        // Too deep to be read: its sender is told before it is sent.
        let deep = super::values::nested(1_000);
        let ticket = other.hand_in(RUN, event("e", "tick", deep));
        other.drive();
        let answer = other.answer(ticket);
        assert!(
            matches!(answer, Some(Err(Error::Refused { .. }))),
            "{answer:?}"
        );
        owner.work();
        assert_eq!(lab.status(RUN), "COMPLETED");
    });
}
