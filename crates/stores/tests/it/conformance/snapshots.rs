//! States that are written down, so that a long log need not be read.

use stepwell_engine::coordinator::Config;
use stepwell_kernel::evolve::replay;

use super::{Lab, START, chain, each_store, event, offers, request};

const RUN: &str = "run_s";

/// A run with a log that is long for its snapshots.
fn long(lab: &Lab) {
    let config = Config {
        snapshot_bytes: 1_000,
        ..offers()
    };
    let mut hand = lab.hand(config);
    hand.trigger(&chain(&["a", "b"]), request(RUN)).unwrap();
    for no in 0..60 {
        let payload = serde_json::json!({ "n": no, "text": "x".repeat(50) });
        hand.submit(RUN, event(&format!("e{no}"), "tick", payload))
            .unwrap();
    }
    let claim = hand.claim_as(RUN, "a", "w").unwrap().claim;
    hand.submit(RUN, super::completed(&claim)).unwrap();
    hand.submit(RUN, event("last", "tick", serde_json::json!({})))
        .unwrap();
}

#[test]
fn a_run_that_is_read_from_its_snapshot_is_what_its_log_says() {
    each_store(|lab| {
        long(lab);
        let run = lab.store.find(RUN).unwrap().unwrap();
        let stored = lab.store.load(run).unwrap().unwrap();
        let frozen = stored.snapshot.expect("there is one");
        assert!(frozen.seq > 5);
        assert!(stored.chunks[0].first > 1, "not everything is read");
        let plan = chain(&["a", "b"]);
        let whole = replay(&plan, RUN, None, &lab.events(RUN)).unwrap();
        let mut hand = lab.hand(offers());
        let (state, _) = hand.state_of(RUN);
        assert_eq!(state.encode(), whole.encode());
        // It goes on, and the chain of hashes holds: the next one is made of the last.
        let claim = hand.claim_as(RUN, "b", "w").unwrap().claim;
        hand.submit(RUN, super::completed(&claim)).unwrap();
        assert_eq!(lab.status(RUN), "COMPLETED");
        verify_chain(lab);
    });
}

/// Every stored hash is what the events before it give.
fn verify_chain(lab: &Lab) {
    let plan = chain(&["a", "b"]);
    let run = lab.store.find(RUN).unwrap().unwrap();
    let chunks = lab.store.chunks(run, 0, usize::MAX).unwrap();
    let stored: Vec<String> = chunks
        .iter()
        .flat_map(|chunk| chunk.digests.chunks(stepwell_engine::chunk::DIGESTS))
        .map(|digests| stepwell_kernel::keys::hex(&digests[48..]))
        .collect();
    let mut recorder = stepwell_kernel::contract::Recorder::new(RUN);
    let records = recorder.record_all(&plan, &lab.events(RUN)).unwrap();
    let made: Vec<String> = records.into_iter().map(|record| record.hash).collect();
    assert_eq!(made, stored);
}

#[test]
fn a_snapshot_that_cannot_be_used_falls_back_to_the_log() {
    each_store(|lab| {
        long(lab);
        let run = lab.store.find(RUN).unwrap().unwrap();
        let whole = replay(&chain(&["a", "b"]), RUN, None, &lab.events(RUN)).unwrap();
        for (number, version, body) in [
            (1, stepwell_kernel::state::FORMAT + 1, whole.encode()),
            (2, stepwell_kernel::state::FORMAT, b"not a state".to_vec()),
        ] {
            let stored = lab.store.load(run).unwrap().unwrap();
            // An event with a snapshot that this program cannot read.
            let mut hand = lab.hand(offers());
            hand.hand_in(
                RUN,
                event(&format!("s{number}"), "tick", serde_json::json!({})),
            );
            let mut batch = hand.batch().unwrap();
            let seq = batch.appends[0].after + 1;
            batch.appends[0].snapshot =
                Some(stepwell_engine::store::StateSnapshot { seq, version, body });
            hand.send(&batch);
            drop(hand);
            let after = lab.store.load(run).unwrap().unwrap();
            assert!(after.snapshot.unwrap().seq > stored.snapshot.unwrap().seq);
            let mut hand = lab.hand(offers());
            let whole = replay(&chain(&["a", "b"]), RUN, None, &lab.events(RUN)).unwrap();
            assert_eq!(hand.state_of(RUN).0.encode(), whole.encode());
            hand.submit(
                RUN,
                event(&format!("t{number}"), "tick", serde_json::json!({})),
            )
            .unwrap();
        }
        verify_chain(lab);
        assert!(lab.events(RUN).iter().all(|event| event.at == START));
    });
}

#[test]
fn a_short_log_has_no_snapshot() {
    each_store(|lab| {
        let mut hand = lab.hand(offers());
        hand.trigger(&chain(&["a"]), request(RUN)).unwrap();
        let run = lab.store.find(RUN).unwrap().unwrap();
        assert_eq!(lab.store.load(run).unwrap().unwrap().snapshot, None);
    });
}
