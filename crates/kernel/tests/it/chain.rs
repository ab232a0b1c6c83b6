//! The hash chain: whatever is changed, moved, dropped or added is found, at its place.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use stepwell_kernel::chain::{
    ChainFault, ChainFaultKind, ChainHead, GENESIS, link, verify, verify_after,
};
use stepwell_kernel::contract::Record;

use crate::contract::records;
use crate::histories::{play, random_run};
use crate::support::{Sim, tasks};

fn log() -> Vec<Record> {
    let mut sim = Sim::started(tasks(&["a", "b"]));
    sim.run_with("a", json!({ "big": u64::MAX, "ratio": 0.1 }))
        .unwrap();
    sim.run("b").unwrap();
    records(&sim.plan, sim.events())
}

fn fault(seq: u64, kind: ChainFaultKind) -> Result<ChainHead, ChainFault> {
    Err(ChainFault { seq, kind })
}

#[test]
fn a_log_verifies_from_its_genesis_and_from_any_head() {
    let log = log();
    assert_eq!(log[0].prev_hash, GENESIS);
    let head = verify(&log).unwrap();
    assert_eq!(head.seq, log.len() as u64);
    let middle = verify(&log[..3]).unwrap();
    assert_eq!(verify_after(&middle, &log[3..]), Ok(head));
    assert_eq!(verify(&[]), Ok(ChainHead::genesis()));
}

#[test]
fn an_ordinary_record_is_plain_rfc_8785() {
    let (contract, ext) = (json!({ "b": 1, "a": "é" }), json!({ "x": 2.50 }));
    let canonical =
        format!(r#"{{"contract":{{"a":"é","b":1}},"ext":{{"x":2.5}},"prevHash":"{GENESIS}"}}"#);
    let hash = stepwell_kernel::keys::sha256_hex(&canonical);
    assert_eq!(link(&contract, &ext, GENESIS), hash);
}

#[test]
fn integers_that_no_double_holds_are_told_apart() {
    let hash = |n: Json| link(&json!({}), &json!({ "output": { "a/b": n } }), GENESIS);
    assert_ne!(hash(json!(u64::MAX)), hash(json!(u64::MAX - 1)));
    assert_ne!(hash(json!(i64::MIN)), hash(json!(i64::MIN + 1)));
    assert_ne!(hash(json!((1u64 << 53) + 1)), hash(json!(1u64 << 53)));
}

#[test]
fn a_record_that_is_dropped_moved_or_doubled_is_found() {
    let log = log();
    let mut dropped = log.clone();
    dropped.remove(2);
    assert_eq!(verify(&dropped), fault(3, ChainFaultKind::Gap));
    let mut swapped = log.clone();
    swapped.swap(2, 3);
    assert_eq!(verify(&swapped), fault(3, ChainFaultKind::Gap));
    let mut doubled = log.clone();
    doubled.insert(2, log[1].clone());
    assert_eq!(verify(&doubled), fault(3, ChainFaultKind::Gap));
    assert_eq!(verify(&log[1..]), fault(1, ChainFaultKind::Gap));
}

#[test]
fn a_record_that_was_changed_and_hashed_anew_breaks_the_next() {
    let mut log = log();
    log[4].ext["output"] = json!("forged");
    log[4].hash = link(&log[4].contract, &log[4].ext, &log[4].prev_hash);
    assert_eq!(verify(&log), fault(6, ChainFaultKind::Break));
}

#[test]
fn a_record_of_another_run_is_found() {
    let mut log = log();
    let last = log.last_mut().unwrap();
    last.contract["runId"] = json!("run_other");
    last.hash = link(&last.contract, &last.ext, &last.prev_hash);
    let seq = log.len() as u64;
    assert_eq!(verify(&log), fault(seq, ChainFaultKind::Foreign));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_log_of_any_run_verifies_also_after_a_store(moves in random_run()) {
        let sim = play(&moves);
        let all = records(&sim.plan, sim.events());
        let text = serde_json::to_vec(&all).unwrap();
        let read: Vec<Record> = serde_json::from_slice(&text).unwrap();
        prop_assert!(verify(&read).is_ok());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn any_changed_byte_is_found(
        at in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        static LOG: LazyLock<Vec<Record>> = LazyLock::new(log);
        let mut log = LOG.clone();
        let at = at.index(log.len());
        let mut text = serde_json::to_vec(&log[at]).unwrap();
        let place = place.index(text.len());
        text[place] = byte;
        // What cannot be read at all is found by the reader.
        if let Ok(changed) = serde_json::from_slice::<Record>(&text) && changed != log[at] {
            log[at] = changed;
            let fault = verify(&log).unwrap_err();
            prop_assert_eq!(fault, ChainFault { seq: at as u64 + 1, kind: ChainFaultKind::HashMismatch });
        }
    }
}
