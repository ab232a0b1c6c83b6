//! Sinks: a real listener hears what real processes committed, now or later.

use serde_json::Value as Json;

use super::listener::{Answer, Listener, OK};
use super::test_store::TestStore;

const SAGA: &str = "examples/actions/order-saga.yaml";
const REFUSED: Answer =
    Answer::Write("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");

/// Runs the saga with a sink.
fn run(test_store: &TestStore, sink: &str, more: &[&str]) -> String {
    let how = ["--engine", "mock", "--run-id", "run_a", "--sink", sink];
    test_store.good(&[&["run", SAGA][..], &how, more].concat())
}

/// The sequence numbers of all events, as they came.
fn heard(listener: &Listener) -> Vec<u64> {
    let mut seqs = Vec::new();
    for request in listener.heard() {
        let body: Json = serde_json::from_str(&request.body).unwrap();
        assert_eq!(body["runId"], "run_a");
        let events = body["events"].as_array().unwrap().iter();
        seqs.extend(events.map(|event| event["runSeq"].as_u64().unwrap()));
    }
    seqs
}

fn whole_log(test_store: &TestStore) -> Vec<u64> {
    (1..=test_store.events("run_a").len() as u64).collect()
}

fn events_arrive(test_store: &TestStore) {
    let listener = Listener::start(0, OK);
    let out = run(test_store, &format!("hook=webhook:{}", listener.url()), &[]);
    assert!(!out.contains("pending"), "{out}");
    assert_eq!(heard(&listener), whole_log(test_store));
    let signed = |it: &super::listener::Heard| it.headers.contains_key("stepwell-signature");
    assert!(listener.heard().iter().all(signed));
    assert_eq!(
        test_store.good(&["outbox", "list"]),
        "no pending deliveries\n"
    );
}

#[test]
fn events_arrive_in_order() {
    events_arrive(&TestStore::sqlite("sink-order"));
}

#[test]
fn events_arrive_in_order_on_postgres() {
    events_arrive(&TestStore::postgres("sink-order"));
}

/// A port where nobody listens.
fn free_port() -> u16 {
    Listener::start(0, OK).port
}

fn delivered_later(test_store: &TestStore) {
    let port = free_port();
    let sink = format!("hook=webhook:http://127.0.0.1:{port}/events?token=geheim");
    let out = run(test_store, &sink, &["--sink-attempts", "100"]);
    let how = "stepwell outbox flush --sink hook=ADDRESS";
    assert!(out.contains("to hook pending"), "{out}");
    assert!(out.contains(how) && !out.contains("geheim"), "{out}");
    let list = test_store.good(&["outbox", "list", "-o", "json"]);
    let list: Json = serde_json::from_str(&list).unwrap();
    assert_eq!(list["sinks"][0]["sink"], "hook");
    let waiting = list["sinks"][0]["waiting"].as_u64().unwrap();
    assert!(waiting > 1, "{list}");
    let flush = ["outbox", "flush", "--sink", &sink, "-o", "json"];
    let none = test_store.call(&[&flush[..], &["--timeout", "0"]].concat());
    assert_eq!(none.code, 1, "{}{}", none.out, none.err);
    assert_eq!(none.json()["left"][0]["waiting"], waiting);
    let listener = Listener::start(port, OK);
    let done: Json = serde_json::from_str(&test_store.good(&flush)).unwrap();
    assert_eq!(done["delivered"], waiting, "{done}");
    assert_eq!(heard(&listener), whole_log(test_store));
    assert!(
        test_store
            .good(&flush[..4])
            .contains("no pending deliveries")
    );
}

#[test]
fn what_a_sink_that_is_down_missed_is_delivered_later() {
    delivered_later(&TestStore::sqlite("sink-down"));
}

#[test]
fn what_a_sink_that_is_down_missed_is_delivered_later_on_postgres() {
    delivered_later(&TestStore::postgres("sink-down"));
}

#[test]
fn what_was_given_up_is_redriven_and_flushed() {
    let test_store = TestStore::sqlite("sink-dead");
    let rude = Listener::start(0, REFUSED);
    let sink = format!("hook=webhook:{}", rude.url());
    let how = ["--engine", "mock", "--run-id", "run_a", "--sink", &sink];
    let call = test_store.call(&[&["run", SAGA, "--sink-attempts", "1"][..], &how].concat());
    assert_eq!(call.code, 0, "{}", call.err);
    for word in ["EVENT_BUS_DELIVERY_FAILED", "priority=P1"] {
        assert!(call.err.contains(word), "{word}: {}", call.err);
    }
    assert!(!call.err.contains('\u{1b}'), "{}", call.err);
    let letters = test_store.good(&["dlq", "list"]);
    assert!(letters.contains("hook  run_a"), "{letters}");
    let again = test_store.good(&["dlq", "redrive", "--all"]);
    assert!(
        again.contains("stepwell outbox flush --sink hook="),
        "{again}"
    );
    let list = test_store.good(&["outbox", "list"]);
    assert!(list.contains("hook"), "{list}");
    let flush = ["outbox", "flush", "--sink"];
    let worse = test_store.call(&[&flush[..], &[&sink, "--sink-attempts", "1"]].concat());
    assert_eq!(worse.code, 1, "{}", worse.out);
    assert!(worse.out.contains("failed for good"), "{}", worse.out);
    test_store.good(&["dlq", "redrive", "--all"]);
    let kind = Listener::start(0, OK);
    test_store.good(&[&flush[..], &[&format!("hook=webhook:{}", kind.url())]].concat());
    assert_eq!(heard(&kind), whole_log(&test_store));
    assert_eq!(test_store.good(&["dlq", "list"]), "no dead letters\n");
}

#[test]
fn without_a_sink_nothing_waits() {
    let test_store = TestStore::sqlite("sink-none");
    test_store.good(&["run", SAGA, "--engine", "mock"]);
    assert_eq!(
        test_store.good(&["outbox", "list"]),
        "no pending deliveries\n"
    );
}

#[test]
fn a_sink_that_cannot_be_is_wrong_usage() {
    let test_store = TestStore::sqlite("sink-usage");
    for sinks in [
        &["--sink", "https://x"][..],
        &["--sink", "webhook:ftp://x"],
        &["--sink", "webhook:http://x", "--sink", "webhook:http://y"],
        &["--sink", "webhook:http://x", "--virtual-time"],
    ] {
        let call = test_store.call(&[&["run", SAGA, "--engine", "mock"][..], sinks].concat());
        assert_eq!(call.code, 2, "{sinks:?}: {}{}", call.out, call.err);
    }
    test_store.good(&["run", SAGA, "--engine", "mock"]);
    assert_eq!(test_store.call(&["outbox", "flush"]).code, 2);
    for sink in [
        &["a", "https://x"][..],
        &["a", "webhook:ftp://x"],
        &["a b", "webhook:http://x"],
    ] {
        let call = test_store.call(&[&["sinks", "add"][..], sink].concat());
        assert_eq!(call.code, 2, "{sink:?}: {}{}", call.out, call.err);
    }
    assert_eq!(test_store.call(&["sinks", "remove", "a"]).code, 1);
}

/// Only a person can end it.
const DESK: &str = "schemaVersion: 1\nworkflowId: desk\nworkspaceId: w\nname: Desk\nversion: 1\n\
    active: true\nexecutionTier: Auto\nactions:\n  - actionId: sign\n    order: 1\n    \
    portFamily: people\n    operation: paper:sign\n    executionTierOverride: ManualOnly\n";

/// The sink belongs to the store: processes that know nothing of it leave their events for it too.
fn registered(test_store: &TestStore) {
    let desk = test_store.file("desk.yaml", DESK);
    let mut process = test_store.start(&["run", &desk, "--run-id", "run_a"]);
    process.until("WaitingForManualCompletion");
    // While another process has the store.
    let listener = Listener::start(0, OK);
    let address = format!("webhook:{}?token=geheim", listener.url());
    let added = test_store.good(&["sinks", "add", "hook", &address, "--from", "beginning"]);
    assert!(added.contains("hook is registered"), "{added}");
    process.interrupt();
    process.end();
    let list = test_store.good(&["sinks", "list"]);
    assert!(list.contains("hook") && !list.contains("geheim"), "{list}");
    // A command that decides alone.
    test_store.good(&["runs", "cancel", "run_a"]);
    let flushed = test_store.good(&["outbox", "flush"]);
    assert!(!flushed.contains("pending"), "{flushed}");
    assert_eq!(heard(&listener), whole_log(test_store));
    let last = test_store.events("run_a").pop().unwrap();
    assert_eq!(last["eventType"], "RunCancelled");
    // A run that names no sink.
    let before = listener.heard().len();
    test_store.good(&["run", SAGA, "--engine", "mock", "--run-id", "run_b"]);
    assert!(listener.heard().len() > before);
    test_store.good(&["sinks", "remove", "hook"]);
    let after = listener.heard().len();
    test_store.good(&["run", SAGA, "--engine", "mock", "--run-id", "run_c"]);
    assert_eq!(listener.heard().len(), after);
    assert_eq!(test_store.good(&["sinks", "list"]), "no registered sinks\n");
    test_store.good(&["db", "check"]);
}

#[test]
fn a_registered_sink_gets_the_events_of_every_process() {
    registered(&TestStore::sqlite("sink-registered"));
}

#[test]
fn a_registered_sink_gets_the_events_of_every_process_on_postgres() {
    registered(&TestStore::postgres("sink-registered"));
}

#[test]
fn the_option_registers_the_sink() {
    let test_store = TestStore::sqlite("sink-option");
    let listener = Listener::start(0, OK);
    run(
        &test_store,
        &format!("hook=webhook:{}", listener.url()),
        &[],
    );
    let list = test_store.good(&["sinks", "list"]);
    assert!(list.contains("hook"), "{list}");
    let before = listener.heard().len();
    test_store.good(&["run", SAGA, "--engine", "mock", "--run-id", "run_b"]);
    assert!(listener.heard().len() > before);
}
