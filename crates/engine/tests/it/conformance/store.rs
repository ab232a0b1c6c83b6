//! The log: its sequence, its keys, and what happens to an append that does not fit.

use serde_json::json;
use stepwell_engine::engine::Error;
use stepwell_engine::memory::MemoryStore;
use stepwell_engine::port::{AppendError, Store};
use stepwell_kernel::command::Command;
use stepwell_kernel::event::{Body, Event};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::Phase;

use crate::{START, chain, engine, plan, request, task};

const RUN: &str = "run_store";

fn received(seq: u64, id: &str, payload: &str) -> Event {
    Event {
        seq,
        at: START,
        body: Body::EventReceived {
            event_id: id.into(),
            event_type: "tick".into(),
            payload: std::sync::Arc::new(json!(payload)),
        },
    }
}

fn one_step() -> std::sync::Arc<Plan> {
    plan(chain(vec![task("a")]))
}

#[test]
fn c1_the_store_assigns_the_next_number_at_append() {
    let (plan, mut store) = (one_step(), MemoryStore::default());
    let mut last = 0;
    // Whatever number the writer brings, the store counts on; each run has a count of its own.
    for (brought, id) in [(0, "a"), (77, "b"), (1, "c"), (u64::MAX, "d")] {
        let stored = store
            .record(&plan, RUN, &received(brought, id, "x"))
            .unwrap();
        assert!(stored.seq > last, "{id}");
        last = stored.seq;
    }
    let other = store
        .record(&plan, "run_other", &received(9, "a", "x"))
        .unwrap();
    assert_eq!((last, other.seq), (4, 1));
    let seqs: Vec<u64> = store.events(RUN, 0).iter().map(|event| event.seq).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
}

#[test]
fn c2_a_second_row_with_the_same_number_is_refused() {
    let (plan, mut store) = (one_step(), MemoryStore::default());
    store
        .append(
            &plan,
            RUN,
            0,
            &[received(1, "a", "x"), received(2, "b", "x")],
        )
        .unwrap();
    let before = store.events(RUN, 0);
    let refused = [
        // Two writers that both read 1, or 0.
        store.append(&plan, RUN, 1, &[received(2, "c", "y")]),
        store.append(&plan, RUN, 0, &[received(1, "c", "y")]),
        // One that leaves a gap, repeats a number in a batch, or writes in front of the end.
        store.append(&plan, RUN, 2, &[received(4, "c", "y")]),
        store.append(
            &plan,
            RUN,
            2,
            &[received(3, "c", "y"), received(3, "d", "y")],
        ),
        store.append(&plan, RUN, 2, &[received(2, "c", "y")]),
        store.append(&plan, RUN, 9, &[received(10, "c", "y")]),
    ];
    assert_eq!(
        refused,
        [
            Err(AppendError::Moved {
                expected: 1,
                actual: 2
            }),
            Err(AppendError::Moved {
                expected: 0,
                actual: 2
            }),
            Err(AppendError::OutOfOrder { after: 2, found: 4 }),
            Err(AppendError::OutOfOrder { after: 3, found: 3 }),
            Err(AppendError::OutOfOrder { after: 2, found: 2 }),
            Err(AppendError::Moved {
                expected: 9,
                actual: 2
            }),
        ]
    );
    assert_eq!(store.events(RUN, 0), before);
    // A refused append has used up nothing.
    store
        .append(&plan, RUN, 2, &[received(3, "c", "y")])
        .unwrap();
}

#[test]
fn c3_an_event_whose_key_exists_changes_nothing_and_returns_the_first() {
    let (plan, mut store) = (one_step(), MemoryStore::default());
    let first = store
        .record(&plan, RUN, &received(0, "a", "first"))
        .unwrap();
    store.record(&plan, RUN, &received(0, "b", "x")).unwrap();
    let before = store.events(RUN, 0);
    for payload in ["first", "another"] {
        let later = Event {
            at: START.plus(5_000),
            ..received(0, "a", payload)
        };
        assert_eq!(store.record(&plan, RUN, &later), Ok(first.clone()));
    }
    assert_eq!(store.events(RUN, 0), before);
    // The key is the run's: in another run the same event is another one.
    let other = store
        .record(&plan, "run_other", &received(0, "a", "another"))
        .unwrap();
    assert_ne!(other, first);
}

#[test]
fn inside_the_engine_a_key_that_exists_is_a_conflict_and_nothing_is_written() {
    let (plan, mut store) = (one_step(), MemoryStore::default());
    store
        .append(&plan, RUN, 0, &[received(1, "a", "x")])
        .unwrap();
    let before = store.events(RUN, 0);
    let batch = [received(2, "b", "x"), received(3, "a", "y")];
    let refused = store.append(&plan, RUN, 1, &batch);
    assert!(
        matches!(refused, Err(AppendError::KeyExists { seq: 1, .. })),
        "{refused:?}"
    );
    let twice = [received(2, "b", "x"), received(3, "b", "y")];
    let refused = store.append(&plan, RUN, 1, &twice);
    assert!(
        matches!(refused, Err(AppendError::KeyExists { seq: 2, .. })),
        "{refused:?}"
    );
    assert_eq!(store.events(RUN, 0), before, "all or none");
}

/// A store that another writer gets in front of, once.
#[derive(Debug, Default)]
struct Contended {
    inner: MemoryStore,
    intruder: Option<Event>,
}

impl Store for Contended {
    fn append(
        &mut self,
        plan: &Plan,
        run_id: &str,
        expected: u64,
        events: &[Event],
    ) -> Result<(), AppendError> {
        if let Some(event) = self.intruder.take_if(|event| event.seq == expected + 1) {
            self.inner.append(plan, run_id, expected, &[event])?;
        }
        self.inner.append(plan, run_id, expected, events)
    }

    fn events(&self, run_id: &str, after: u64) -> Vec<Event> {
        self.inner.events(run_id, after)
    }

    fn claim_request(&mut self, key: &str, run_id: &str) -> Option<String> {
        self.inner.claim_request(key, run_id)
    }
}

#[test]
fn a_writer_that_lost_goes_on_from_the_log() {
    let store = Contended {
        inner: MemoryStore::default(),
        // RunCreated, RunQueued, RunApproved, RunStarted; then this.
        intruder: Some(received(5, "theirs", "x")),
    };
    let mut engine = stepwell_engine::Engine::new(
        store,
        stepwell_engine::clock::VirtualClock::at(START),
        stepwell_engine::port::NoCatalog,
        stepwell_kernel::keys::TokenKey([7; 32]),
    );
    engine.trigger(&one_step(), request(RUN)).unwrap();
    let deliver = |id: &str| Command::DeliverEvent {
        event_id: id.into(),
        event_type: "tick".into(),
        payload: json!({}),
    };
    let lost = engine.submit(RUN, deliver("ours"));
    assert!(
        matches!(
            lost,
            Err(Error::Append {
                source: AppendError::Moved {
                    expected: 4,
                    actual: 5
                },
                ..
            })
        ),
        "{lost:?}"
    );
    let state = &engine.run(RUN).unwrap().state;
    assert_eq!(state.seq, 5);
    assert!(state.seen_events.contains("theirs") && !state.seen_events.contains("ours"));
    engine.submit(RUN, deliver("ours")).unwrap();
    assert_eq!(engine.events(RUN, 5).len(), 1);
}

#[test]
fn a_run_id_that_exists_is_refused_and_the_run_lives_on() {
    let mut engine = engine();
    engine.trigger(&one_step(), request(RUN)).unwrap();
    let before = engine.events(RUN, 0);
    let again = engine.trigger(&one_step(), request(RUN));
    assert!(
        matches!(&again, Err(Error::Rejected(it)) if it.code.name() == "RUN_EXISTS"),
        "{again:?}"
    );
    assert_eq!(engine.run(RUN).unwrap().state.phase, Phase::Running);
    assert_eq!(engine.events(RUN, 0), before);
}
