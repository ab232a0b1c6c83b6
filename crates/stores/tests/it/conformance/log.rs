//! The log: its sequence, its keys, and what happens to an append that does not fit.

use std::sync::Arc;

use serde_json::json;
use stepwell_engine::chunk::ChunkWriter;
use stepwell_engine::store::{Append, AppendResult, Batch, CommitId, Guard, RunNo};
use stepwell_engine::{Error, StartRequest, record_outside};
use stepwell_kernel::contract::Recorder;
use stepwell_kernel::event::{Body, Event};
use stepwell_kernel::evolve::replay;
use stepwell_kernel::keys::hex;
use stepwell_kernel::plan::{Plan, StepNo, StepRef};
use stepwell_kernel::state::Phase;

use super::{Lab, START, chain, each_store, event, offers, request, serves};

const RUN: &str = "run_log";

fn received(id: &str, payload: &str) -> Body {
    Body::EventReceived {
        event_id: id.into(),
        event_type: "tick".into(),
        payload: Arc::new(json!(payload)),
    }
}

/// A run that exists, and its plan.
fn begun(lab: &Lab, run_id: &str) -> Arc<Plan> {
    let plan = chain(&["a"]);
    lab.hand(offers()).trigger(&plan, request(run_id)).unwrap();
    plan
}

/// An append of events with these numbers, at `after`.
fn append(lab: &Lab, plan: &Plan, after: u64, events: &[(u64, &str)], number: i64) -> AppendResult {
    let run = lab.store.find(RUN).unwrap().unwrap();
    let head = lab.store.load(run).unwrap().unwrap().head;
    let events: Vec<Event> = events
        .iter()
        .map(|(seq, id)| Event {
            seq: *seq,
            at: START,
            body: received(id, "y"),
        })
        .collect();
    let state = replay(plan, RUN, None, &lab.events(RUN)).unwrap();
    let chunks = lab.store.chunks(run, 0, usize::MAX).unwrap();
    let tail = chunks.last().unwrap().digests.last_chunk::<32>().unwrap();
    let mut recorder = Recorder::resume(plan, &state, hex(tail));
    let chunk = ChunkWriter::default().write(&mut recorder, plan, &events);
    let mut append = Append::new(run, after);
    append.chunk = Some(chunk.unwrap());
    append.head = Some(head);
    let batch = Batch {
        id: CommitId {
            session: 900,
            number,
        },
        session: None,
        now: START,
        appends: vec![append],
    };
    lab.store.commit(&batch).unwrap().pop().unwrap()
}

#[test]
fn c1_an_append_gets_the_next_number_of_its_run() {
    each_store(|lab| {
        let plan = begun(lab, RUN);
        begun(lab, "run_other");
        let before = lab.events(RUN).len() as u64;
        for (no, id) in ["a", "b", "c", "d"].into_iter().enumerate() {
            let body = received(id, "x");
            let stored = record_outside(&*lab.store, &plan, RUN, &body, &[], START).unwrap();
            assert_eq!(stored.seq, before + 1 + no as u64);
        }
        // Each run has a count of its own.
        let body = received("a", "x");
        let other = record_outside(&*lab.store, &plan, "run_other", &body, &[], START).unwrap();
        assert_eq!(other.seq, before + 1);
        let seqs: Vec<u64> = lab.events(RUN).iter().map(|event| event.seq).collect();
        assert_eq!(seqs, (1..=before + 4).collect::<Vec<u64>>());
        // What the engine appends goes on from there.
        let mut hand = lab.hand(offers());
        hand.submit(RUN, event("e", "tick", json!({}))).unwrap();
        let last = lab.events(RUN).last().unwrap().seq;
        assert_eq!(last, before + 5);
    });
}

#[test]
fn c2_a_second_row_with_the_same_number_is_refused() {
    each_store(|lab| {
        let plan = begun(lab, RUN);
        let last = lab.events(RUN).len() as u64;
        let before = lab.events(RUN);
        // A writer that read too early, or at nothing; one that leaves a gap; one in front of the end.
        for (number, (after, seq)) in [
            (last - 1, last),
            (0, 1),
            (last, last + 2),
            (last, last),
            (last + 7, last + 8),
        ]
        .into_iter()
        .enumerate()
        {
            let lost = append(lab, &plan, after, &[(seq, "c")], number as i64);
            assert_eq!(lost, AppendResult::Moved, "{seq} after {after}");
        }
        assert_eq!(lab.events(RUN), before);
        // A refused append has used up nothing.
        let next = append(lab, &plan, last, &[(last + 1, "c")], 50);
        assert_eq!(next, AppendResult::Committed);
        let second = append(lab, &plan, last, &[(last + 1, "d")], 51);
        assert_eq!(second, AppendResult::Moved);
        // The same commit once more is recognised, not written again.
        let again = append(lab, &plan, last, &[(last + 1, "c")], 50);
        assert_eq!(again, AppendResult::Again);
        assert_eq!(lab.events(RUN).len() as u64, last + 1);
    });
}

#[test]
fn c3_an_event_whose_key_exists_changes_nothing_and_returns_the_first() {
    each_store(|lab| {
        let plan = begun(lab, RUN);
        let record = |run_id: &str, id: &str, payload: &str, later: u64| {
            let now = START.plus(later);
            record_outside(&*lab.store, &plan, run_id, &received(id, payload), &[], now).unwrap()
        };
        let first = record(RUN, "a", "first", 0);
        record(RUN, "b", "x", 0);
        let before = lab.events(RUN);
        for payload in ["first", "another"] {
            assert_eq!(record(RUN, "a", payload, 5_000), first);
        }
        assert_eq!(lab.events(RUN), before);
        assert_eq!(first.seq, before.len() as u64 - 1);
        // The key is the run's: in another run the same event is another one.
        begun(lab, "run_other");
        assert_ne!(record("run_other", "a", "another", 0), first);
    });
}

#[test]
fn c3_an_event_from_outside_reaches_the_rows_and_the_owner_of_its_run() {
    each_store(|lab| {
        let plan = chain(&["a"]);
        let mut hand = lab.hand(serves());
        hand.trigger(&plan, request(RUN)).unwrap();
        let owner = Some(hand.coordinator.session());
        let run = lab.store.find(RUN).unwrap().unwrap();
        let head = || lab.store.load(run).unwrap().unwrap().head;
        assert_eq!(head().session, owner);
        record_outside(&*lab.store, &plan, RUN, &received("e", "x"), &[], START).unwrap();
        assert_eq!(head().session, owner, "it keeps its run");
        // Its next commit finds the log further on, and goes on from there.
        hand.work();
        assert_eq!(lab.status(RUN), "COMPLETED");
        assert_eq!(lab.count(RUN, "EventReceived"), 1);
        assert_eq!(lab.count(RUN, "StepStarted"), 1);
    });
}

#[test]
fn inside_the_engine_a_key_that_exists_is_a_conflict_and_nothing_is_written() {
    each_store(|lab| {
        let plan = begun(lab, RUN);
        let last = lab.events(RUN).len() as u64;
        append(lab, &plan, last, &[(last + 1, "a")], 1);
        let before = lab.events(RUN);
        let after = last + 1;
        let known = append(lab, &plan, after, &[(after + 1, "b"), (after + 2, "a")], 2);
        assert_eq!(known, AppendResult::KeyExists);
        let twice = append(lab, &plan, after, &[(after + 1, "b"), (after + 2, "b")], 3);
        assert_eq!(twice, AppendResult::KeyExists);
        assert_eq!(lab.events(RUN), before, "all or none");
    });
}

#[test]
fn c43_an_event_that_does_not_fit_leaves_no_row_no_marker_and_no_used_key() {
    each_store(|lab| {
        let plan = begun(lab, RUN);
        let mut hand = lab.hand(offers());
        hand.claim_as(RUN, "a", "w").unwrap();
        let sinks = ["sink".to_owned()];
        // Attempts are counted from one.
        let done = |logical: u32| {
            let body = Body::StepCompleted {
                step: StepRef::first(StepNo(0)),
                logical,
                execution: 1,
                output: None,
                artifacts: Vec::new(),
                ctx: Default::default(),
                routing: None,
                by: None,
            };
            record_outside(&*lab.store, &plan, RUN, &body, &sinks, START)
        };
        let (rows, head) = (lab.events(RUN), lab.status(RUN));
        let refused = done(0).unwrap_err();
        assert!(matches!(refused, Error::Schema { .. }), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains("SCHEMA_VALIDATION_FAILED"), "{text}");
        assert_eq!(lab.events(RUN), rows);
        assert_eq!(lab.status(RUN), head);
        assert_eq!(lab.store.backlog("sink").unwrap().0, 0);
        // Its key is free, and its number too.
        let stored = done(1).unwrap();
        assert_eq!(stored.seq, rows.len() as u64 + 1);
        assert_eq!(lab.store.backlog("sink").unwrap().0, 1);
        assert_eq!(done(1).unwrap(), stored);
    });
}

#[test]
fn a_writer_that_lost_goes_on_from_the_log() {
    each_store(|lab| {
        let plan = begun(lab, RUN);
        let mut hand = lab.hand(offers());
        let ticket = hand.hand_in(RUN, event("ours", "tick", json!({})));
        let batch = hand.batch().unwrap();
        record_outside(
            &*lab.store,
            &plan,
            RUN,
            &received("theirs", "x"),
            &[],
            START,
        )
        .unwrap();
        assert_eq!(hand.send(&batch), [AppendResult::Moved]);
        assert!(hand.answer(ticket).is_none(), "it is decided again first");
        hand.drive();
        assert!(matches!(hand.answer(ticket), Some(Ok(_))));
        let (state, _) = hand.state_of(RUN);
        assert!(state.seen_events().contains("theirs") && state.seen_events().contains("ours"));
        assert_eq!(lab.count(RUN, "EventReceived"), 2);
    });
}

#[test]
fn a_commit_whose_answer_was_lost_counts_once() {
    each_store(|lab| {
        begun(lab, RUN);
        let mut hand = lab.hand(offers());
        let ticket = hand.hand_in(RUN, event("e", "tick", json!({})));
        let batch = hand.batch().unwrap();
        // It was written; nobody was told.
        lab.store.commit(&batch).unwrap();
        let retry = hand.lose(&batch, stepwell_engine::store::StoreErrorKind::AnswerLost);
        assert_eq!(retry, stepwell_engine::coordinator::Retry::Same);
        assert_eq!(hand.send(&batch), [AppendResult::Again]);
        assert!(matches!(hand.answer(ticket), Some(Ok(_))));
        assert_eq!(lab.count(RUN, "EventReceived"), 1);
    });
}

#[test]
fn a_run_id_that_exists_is_refused_and_the_run_lives_on() {
    each_store(|lab| {
        let plan = begun(lab, RUN);
        let before = lab.events(RUN);
        let mut hand = lab.hand(offers());
        let again = hand.trigger(&plan, request(RUN));
        assert!(
            matches!(&again, Err(Error::Rejected(it)) if it.code.name() == "RUN_EXISTS"),
            "{again:?}"
        );
        assert_eq!(hand.state_of(RUN).0.phase(), Phase::Running);
        assert_eq!(lab.events(RUN), before);
    });
}

#[test]
fn c31_two_requests_with_the_same_key_are_one_run_also_across_servers() {
    each_store(|lab| {
        let plan = chain(&["a"]);
        let asked = |run_id: &str| StartRequest {
            request_id: Some("r".into()),
            ..request(run_id)
        };
        let (mut one, mut two) = (lab.hand(serves()), lab.hand(serves()));
        // Both decide before either commits.
        let first = one.hand_in_start(&plan, asked("run_1"));
        let second = two.hand_in_start(&plan, asked("run_2"));
        one.drive();
        two.drive();
        let run_1 = stepwell_kernel::command::Reply::Created {
            run_id: "run_1".into(),
        };
        assert_eq!(one.answer(first), Some(Ok(run_1.clone())));
        assert_eq!(two.answer(second), Some(Ok(run_1)));
        assert!(lab.store.find("run_2").unwrap().is_none());
        // Also when it has ended.
        one.work();
        assert_eq!(lab.status("run_1"), "COMPLETED");
        assert_eq!(two.trigger(&plan, asked("run_3")).unwrap(), "run_1");
        assert!(two.jobs.is_empty(), "nothing was started twice");
    });
}

#[test]
fn a_guard_that_does_not_hold_leaves_the_run_as_it_was() {
    each_store(|lab| {
        let plan = begun(lab, RUN);
        let before = lab.events(RUN);
        let mut hand = lab.hand(offers());
        hand.hand_in(RUN, event("e", "tick", json!({})));
        let mut batch = hand.batch().unwrap();
        batch.appends[0].guards.push(Guard::Lease {
            target: plan.step(StepNo(0)).name.clone(),
            worker: "nobody".into(),
        });
        let index = batch.appends[0].guards.len() - 1;
        let outcomes = lab.store.commit(&batch).unwrap();
        assert_eq!(outcomes, [AppendResult::GuardFailed(index)]);
        assert_eq!(lab.events(RUN), before);
        assert!(lab.store.load(RunNo(-1)).unwrap().is_none());
    });
}
