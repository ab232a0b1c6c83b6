//! Values that cannot be written: only their sender fails.

use serde_json::{Value as Json, json};
use stepwell_engine::Error;
use stepwell_engine::store::AppendResult;

use super::{beside, chain, completed, completed_with, each_store, event, offers, request, serves};

const RUN: &str = "run_v";

/// A list in a list in a list.
pub(crate) fn nested(depth: usize) -> Json {
    (1..depth).fold(json!([]), |inner, _| Json::Array(vec![inner]))
}

#[test]
fn an_output_that_is_nested_too_deep_fails_its_step_and_says_so() {
    each_store(|lab| {
        let mut hand = lab.hand(serves());
        hand.trigger(&chain(&["a", "b"]), request(RUN)).unwrap();
        let job = hand.jobs.remove(0);
        hand.finish(&job, completed_with(&job.claimed.claim, nested(1_000)));
        let text = format!("{:?}", lab.events(RUN));
        assert!(
            text.contains("VALUE_REFUSED") && text.contains("nested"),
            "{text}"
        );
        assert_eq!(lab.count(RUN, "StepFailed"), 1);
        assert_eq!(lab.status(RUN), "FAILED");
        assert_eq!(hand.coordinator.busy(), 0);
        // Everyone can still read it.
        lab.hand(offers()).state_of(RUN);
    });
}

#[test]
fn an_output_that_is_nested_as_deep_as_it_may_be_can_be_read_back() {
    each_store(|lab| {
        let mut hand = lab.hand(serves());
        hand.trigger(&chain(&["a", "b"]), request(RUN)).unwrap();
        let job = hand.jobs.remove(0);
        hand.finish(&job, completed_with(&job.claimed.claim, nested(90)));
        assert_eq!(lab.count(RUN, "StepCompleted"), 1);
        lab.hand(offers()).state_of(RUN);
        hand.work();
        assert_eq!(lab.status(RUN), "COMPLETED");
    });
}

#[test]
fn a_value_that_is_too_deep_costs_the_results_beside_it_nothing() {
    each_store(|lab| {
        let mut hand = lab.hand(serves());
        hand.trigger(&beside(&["a", "b", "c"]), request(RUN))
            .unwrap();
        hand.trigger(&chain(&["x"]), request("run_w")).unwrap();
        let jobs = std::mem::take(&mut hand.jobs);
        let deep = jobs[1].claimed.step_id.clone();
        for job in &jobs {
            let claim = &job.claimed.claim;
            let output = match job.claimed.step_id == deep {
                true => nested(1_000),
                false => json!("good"),
            };
            hand.finish_later(job, completed_with(claim, output));
        }
        hand.drive();
        assert_eq!(lab.count(RUN, "StepCompleted"), 2, "{:?}", lab.kinds(RUN));
        assert_eq!(lab.count(RUN, "StepFailed"), 1);
        assert_eq!(lab.status(RUN), "FAILED");
        assert_eq!(lab.status("run_w"), "COMPLETED");
    });
}

#[test]
fn whoever_sends_a_value_that_is_too_deep_is_told() {
    each_store(|lab| {
        let mut hand = lab.hand(offers());
        hand.trigger(&chain(&["a"]), request(RUN)).unwrap();
        let before = lab.events(RUN);
        let refused = hand.submit(RUN, event("e", "tick", nested(1_000)));
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
        assert_eq!(lab.events(RUN), before);
        // A start as well: there is no such run.
        let deep = stepwell_engine::StartRequest {
            params: json!({ "deep": nested(1_000) }),
            ..request("run_deep")
        };
        let refused = hand.trigger(&chain(&["a"]), deep);
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
        assert_eq!(lab.store.find("run_deep").unwrap(), None);
        // Brackets in a text are not brackets.
        let text = json!("[{\"".repeat(1_000));
        hand.submit(RUN, event("f", "tick", text)).unwrap();
        let claim = hand.claim_as(RUN, "a", "w").unwrap().claim;
        hand.submit(RUN, completed(&claim)).unwrap();
        assert_eq!(lab.status(RUN), "COMPLETED");
    });
}

#[test]
fn a_result_that_the_database_refuses_fails_its_step_only() {
    each_store(|lab| {
        let mut hand = lab.hand(serves());
        hand.trigger(&chain(&["a", "b"]), request(RUN)).unwrap();
        hand.trigger(&chain(&["a"]), request("run_w")).unwrap();
        let jobs = std::mem::take(&mut hand.jobs);
        for job in &jobs {
            hand.finish_later(job, completed(&job.claimed.claim));
        }
        let batch = hand.batch().unwrap();
        assert_eq!(batch.appends.len(), 2);
        // What a database says to a value that it does not take.
        let good = stepwell_engine::store::Batch {
            appends: vec![batch.appends[1].clone()],
            ..batch.clone()
        };
        assert_eq!(lab.store.commit(&good).unwrap(), [AppendResult::Committed]);
        let outcomes = vec![
            AppendResult::Refused("a zero byte".into()),
            AppendResult::Committed,
        ];
        hand.coordinator.committed(&batch, outcomes, hand.now);
        hand.drive();
        assert_eq!(lab.status("run_w"), "COMPLETED");
        assert_eq!(lab.status(RUN), "FAILED");
        let text = format!("{:?}", lab.events(RUN));
        assert!(
            text.contains("VALUE_REFUSED") && text.contains("a zero byte"),
            "{text}"
        );
        assert_eq!(hand.coordinator.busy(), 0);
    });
}
