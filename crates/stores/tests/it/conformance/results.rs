//! Work and its results: nothing starts before its claim is committed, and of a result and the failure
//! that replaces it exactly one is recorded.

use serde_json::Value;
use stepwell_engine::Error;
use stepwell_engine::coordinator::Retry;
use stepwell_engine::read::{LogRecords, LoggedRun};
use stepwell_engine::store::{AppendResult, Batch, StoreErrorKind};
use stepwell_kernel::command::Reply;
use stepwell_kernel::time::Time;

use super::{Hand, Lab, chain, completed, each_store, offers, request, serves};

const RUN: &str = "run_r";

#[test]
fn no_work_is_started_before_its_claim_is_committed() {
    each_store(|lab| {
        let mut hand = lab.hand(serves());
        hand.hand_in_start(&chain(&["a", "b"]), request(RUN));
        let batch = hand.batch().unwrap();
        assert!(hand.jobs.is_empty());
        // The store does not take it, however often it is asked.
        for _ in 0..3 {
            assert_eq!(hand.lose(&batch, StoreErrorKind::Unavailable), Retry::Same);
            hand.advance(100);
            assert!(hand.batch().is_none(), "nothing goes on behind it");
            assert!(hand.jobs.is_empty());
        }
        assert!(lab.events(RUN).is_empty());
        hand.send(&batch);
        assert_eq!(hand.jobs.len(), 1);
        assert_eq!(lab.count(RUN, "StepStarted"), 1);
        // The same for a claim that comes with the result of the step before.
        let job = hand.jobs.remove(0);
        hand.finish_later(&job, completed(&job.claimed.claim));
        let batch = hand.batch().unwrap();
        hand.lose(&batch, StoreErrorKind::Full);
        assert!(hand.jobs.is_empty());
        hand.send(&batch);
        assert_eq!(hand.jobs.len(), 1);
    });
}

#[test]
fn a_claim_that_was_lost_starts_nothing() {
    each_store(|lab| {
        let mut hand = lab.hand(serves());
        hand.trigger(&chain(&["a", "b"]), request(RUN)).unwrap();
        let job = hand.jobs.remove(0);
        hand.finish_later(&job, completed(&job.claimed.claim));
        let batch = hand.batch().unwrap();
        // The session died before the commit: the claim in it never happened.
        hand.advance(15_001);
        lab.store.dead_sessions(hand.now).unwrap();
        let mut batch_later = batch.clone();
        batch_later.now = hand.now;
        let outcomes = lab.store.commit(&batch_later).unwrap();
        assert!(matches!(outcomes[..], [AppendResult::GuardFailed(_)]));
        hand.coordinator.committed(&batch, outcomes, hand.now);
        assert!(hand.jobs.is_empty());
        assert_eq!(lab.count(RUN, "StepStarted"), 1);
        assert_eq!(lab.count(RUN, "StepCompleted"), 0);
    });
}

/// A run of this process whose result the store does not take until the write budget is spent; the
/// batch with the result, and with what follows it.
fn slow(lab: &Lab) -> (Hand, Batch, Batch) {
    let mut config = serves();
    config.session_ms = 60_000;
    let mut hand = lab.hand(config);
    hand.trigger(&chain(&["a"]), request(RUN)).unwrap();
    let job = hand.jobs.remove(0);
    hand.finish_later(&job, completed(&job.claimed.claim));
    let result = hand.batch().unwrap();
    hand.advance(3_000);
    assert_eq!(hand.lose(&result, StoreErrorKind::AnswerLost), Retry::Same);
    hand.advance(1);
    assert_eq!(hand.lose(&result, StoreErrorKind::AnswerLost), Retry::Never);
    let failure = hand.batch().unwrap();
    assert_eq!(
        failure.appends[0].after, result.appends[0].after,
        "the same expected sequence"
    );
    (hand, result, failure)
}

#[test]
fn c38_a_result_that_could_not_be_written_in_time_fails_the_step() {
    each_store(|lab| {
        let (mut hand, result, failure) = slow(lab);
        assert_eq!(hand.send(&failure), [AppendResult::Committed]);
        // The original arrives after all, and finds its place taken.
        assert_ne!(
            lab.store.commit(&result).unwrap(),
            [AppendResult::Committed]
        );
        hand.drive();
        let kinds = lab.kinds(RUN);
        assert!(!kinds.contains(&"StepCompleted"), "{kinds:?}");
        let text = format!("{:?}", lab.events(RUN));
        assert!(text.contains("WRITE_LATENCY_EXCEEDED"), "{text}");
        let results = ["StepCompleted", "StepFailed", "StepExecutionFailed"];
        let count = |kind: &&str| kinds.iter().filter(|it| it == &kind).count();
        assert_eq!(results.iter().map(count).sum::<usize>(), 1, "{kinds:?}");
    });
}

#[test]
fn c38_a_result_that_was_written_after_all_counts_and_the_failure_does_not() {
    each_store(|lab| {
        let (mut hand, result, failure) = slow(lab);
        assert_eq!(
            lab.store.commit(&result).unwrap(),
            [AppendResult::Committed]
        );
        assert_eq!(hand.send(&failure), [AppendResult::Moved]);
        hand.drive();
        assert_eq!(lab.count(RUN, "StepCompleted"), 1);
        assert_eq!(lab.count(RUN, "StepFailed"), 0);
        assert_eq!(lab.count(RUN, "StepExecutionFailed"), 0);
        assert_eq!(lab.status(RUN), "COMPLETED");
    });
}

#[test]
fn c38_the_result_of_a_worker_outside_is_treated_the_same() {
    each_store(|lab| {
        for landed in [true, false] {
            let run_id = format!("run_{landed}");
            let mut hand = lab.hand(offers());
            hand.trigger(&chain(&["a"]), request(&run_id)).unwrap();
            let claim = hand.claim_as(&run_id, "a", "w").unwrap().claim;
            let ticket = hand.hand_in(&run_id, completed(&claim));
            let result = hand.batch().unwrap();
            hand.advance(3_001);
            assert_eq!(hand.lose(&result, StoreErrorKind::AnswerLost), Retry::Never);
            if landed {
                lab.store.commit(&result).unwrap();
            }
            hand.drive();
            let answer = hand.answer(ticket).expect("the worker is told");
            let done = lab.count(&run_id, "StepCompleted");
            let failed =
                lab.count(&run_id, "StepFailed") + lab.count(&run_id, "StepExecutionFailed");
            assert_eq!((done, failed), if landed { (1, 0) } else { (0, 1) });
            if landed {
                assert!(matches!(answer, Err(Error::Rejected(_))), "{answer:?}");
            } else {
                assert_eq!(answer, Ok(Reply::Done));
            }
        }
    });
}

#[test]
fn a_result_within_the_budget_is_kept_until_the_store_takes_it() {
    each_store(|lab| {
        let mut hand = lab.hand(serves());
        hand.trigger(&chain(&["a"]), request(RUN)).unwrap();
        let job = hand.jobs.remove(0);
        hand.finish_later(&job, completed(&job.claimed.claim));
        let result = hand.batch().unwrap();
        for _ in 0..3 {
            hand.advance(1_000);
            assert_eq!(hand.lose(&result, StoreErrorKind::Unavailable), Retry::Same);
        }
        hand.send(&result);
        hand.drive();
        assert_eq!(lab.status(RUN), "COMPLETED");
    });
}

/// A result that the store did not take for two seconds, for this reason, and what it took then.
fn waited(lab: &Lab, kind: StoreErrorKind) -> Vec<Value> {
    let mut hand = lab.hand(serves());
    hand.trigger(&chain(&["a", "b"]), request(RUN)).unwrap();
    let job = hand.jobs.remove(0);
    hand.finish_later(&job, completed(&job.claimed.claim));
    let mut result = hand.batch().unwrap();
    hand.advance(2_000);
    assert_eq!(hand.lose(&result, kind), Retry::Same);
    hand.coordinator.restamp(&mut result, hand.now);
    assert_eq!(hand.send(&result), [AppendResult::Committed]);
    // What follows continues the chain that was written.
    let job = hand.jobs.remove(0);
    hand.finish(&job, completed(&job.claimed.claim));
    assert_eq!(lab.status(RUN), "COMPLETED");
    let logged = LoggedRun::open(&*lab.store, RUN).unwrap();
    let mut records = LogRecords::of(&logged);
    let read = records.unread(&*lab.store, 100).unwrap();
    assert!(logged.unknown_to_this_version().is_empty());
    read.into_iter().map(|it| it.contract).collect()
}

fn ended<'a>(events: &'a [Value], step: &str) -> &'a Value {
    let is = |it: &&Value| it["eventType"] == "StepCompleted" && it["stepId"] == step;
    events.iter().find(is).unwrap()
}

#[test]
fn events_that_waited_for_the_store_say_when_they_were_appended() {
    each_store(|lab| {
        let events = waited(lab, StoreErrorKind::Unavailable);
        let late = ended(&events, "a");
        let time = |name: &str| Time::from_rfc3339(late[name].as_str().unwrap()).unwrap();
        assert_eq!(time("emittedAt").since(time("occurredAt")), 2_000);
        assert!(ended(&events, "b").get("occurredAt").is_none());
    });
}

#[test]
fn an_append_that_may_be_in_the_store_is_sent_again_as_it_was() {
    each_store(|lab| {
        let events = waited(lab, StoreErrorKind::AnswerLost);
        assert!(ended(&events, "a").get("occurredAt").is_none());
    });
}
