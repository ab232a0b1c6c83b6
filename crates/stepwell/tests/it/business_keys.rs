//! Business keys of linear runs, through the binary: one open run has a key, also after its process was
//! killed, until the run ends.

use super::test_store::TestStore;

/// Only an event or a cancel can end it.
const PARCEL: &str = "workflowType: parcel\nworkflowVersion: 1\n\
    bizKey: \"{{ workload.parcel }}\"\nsteps:\n  - stepType: PACK\n    tool: {kind: noop}\n  \
    - stepType: ARRIVE\n    waitFor:\n      event: parcel.arrived\n      timeout: 24h\n";

fn args<'a>(file: &'a str, run_id: &'a str, input: &'a str) -> [&'a str; 6] {
    ["run", file, "--run-id", run_id, "-i", input]
}

/// Starts a run and kills its process as soon as the run waits.
fn killed(test_store: &TestStore, file: &str, run_id: &str, input: &str) {
    let mut process = test_store.start(&args(file, run_id, input));
    process.until("ARRIVE");
    process.kill();
    assert_eq!(test_store.show(run_id)["status"], "RUNNING");
}

fn refused(test_store: &TestStore, file: &str, input: &str, holder: &str) {
    let call = test_store.call(&args(file, "run_refused", input));
    assert_eq!(call.code, 1, "{}{}", call.out, call.err);
    assert!(call.err.contains("BIZ_KEY_TAKEN"), "{}", call.err);
    let open = format!("run {holder} is open");
    assert!(call.err.contains(&open), "{}", call.err);
    let shown = test_store.call(&["runs", "show", "run_refused"]);
    assert!(shown.err.contains("RUN_UNKNOWN"), "nothing of it is there");
}

fn one_open_run_has_a_key(test_store: &TestStore) {
    let file = test_store.file("parcel.yaml", PARCEL);
    killed(test_store, &file, "run_first", "parcel=p-1");
    refused(test_store, &file, "parcel=p-1", "run_first");
    killed(test_store, &file, "run_other", "parcel=p-2");
    refused(test_store, &file, "parcel=p-1", "run_first");

    // The end of the run frees the key, and the next run has it.
    let event = ["runs", "signal", "--event", "parcel.arrived", "--id", "e-1"];
    test_store.good(&[&event[..], &["--key", "p-1"]].concat());
    assert_eq!(test_store.show("run_first")["status"], "COMPLETED");
    killed(test_store, &file, "run_second", "parcel=p-1");
    refused(test_store, &file, "parcel=p-1", "run_second");
    test_store.good(&["runs", "cancel", "run_second"]);
    assert_eq!(test_store.show("run_second")["status"], "CANCELLED");
    killed(test_store, &file, "run_third", "parcel=p-1");
    refused(test_store, &file, "parcel=p-2", "run_other");
}

/// A run that calls the one above.
const SENDER: &str = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: sender}\n\
    workflow:\n- step: send\n  tool: {kind: playbook, path: parcel.yaml, args: {parcel: p-1}}\n";

fn a_step_whose_child_finds_its_key_taken_fails(test_store: &TestStore) {
    let file = test_store.file("parcel.yaml", PARCEL);
    let sender = test_store.file("sender.yaml", SENDER);
    killed(test_store, &file, "run_first", "parcel=p-1");
    let call = test_store.call(&["run", &sender, "--run-id", "run_sender"]);
    assert_eq!(call.code, 3, "{}{}", call.out, call.err);
    assert_eq!(test_store.show("run_sender")["status"], "FAILED");
    let events = test_store.events("run_sender");
    let failed = events.iter().find(|it| it["eventType"] == "StepFailed");
    let why = failed.unwrap().to_string();
    assert!(why.contains("BIZ_KEY_TAKEN"), "{why}");
    assert!(why.contains("run run_first is open"), "{why}");
    let open = test_store.good(&["runs", "list", "--open"]);
    assert_eq!(open.matches("parcel").count(), 1, "{open}");
}

#[test]
fn a_step_whose_child_finds_its_key_taken_fails_on_sqlite() {
    a_step_whose_child_finds_its_key_taken_fails(&TestStore::sqlite("taken-by-child"));
}

#[test]
fn a_step_whose_child_finds_its_key_taken_fails_on_postgres() {
    a_step_whose_child_finds_its_key_taken_fails(&TestStore::postgres("taken-by-child"));
}

#[test]
fn one_open_run_has_a_business_key_on_sqlite() {
    one_open_run_has_a_key(&TestStore::sqlite("business-keys"));
}

#[test]
fn one_open_run_has_a_business_key_on_postgres() {
    one_open_run_has_a_key(&TestStore::postgres("business-keys"));
}

/// A run that waits for two events of one type.
const TWO_PARCELS: &str = "workflowType: two-parcels\nworkflowVersion: 1\n\
    bizKey: \"{{ workload.parcel }}\"\nsteps:\n  - stepType: ARRIVE\n    waitFor:\n      \
    event: parcel.arrived\n      timeout: 24h\n  - stepType: SECOND\n    waitFor:\n      \
    event: parcel.arrived\n      timeout: 24h\n";

fn an_event_that_comes_again_by_key_does_not_use_up_the_wait_for_the_next(test_store: &TestStore) {
    let file = test_store.file("parcels.yaml", TWO_PARCELS);
    killed(test_store, &file, "run_two", "parcel=p-1");
    let signal = ["runs", "signal", "--event", "parcel.arrived", "--id"];
    test_store.good(&[&signal[..], &["e-1", "run_two"]].concat());
    test_store.good(&[&signal[..], &["e-1", "--key", "p-1"]].concat());
    assert_eq!(test_store.show("run_two")["status"], "RUNNING");
    test_store.good(&[&signal[..], &["e-2", "--key", "p-1"]].concat());
    assert_eq!(test_store.show("run_two")["status"], "COMPLETED");
}

#[test]
fn an_event_that_comes_again_by_key_does_not_use_up_the_wait_for_the_next_on_sqlite() {
    let test_store = TestStore::sqlite("event-again");
    an_event_that_comes_again_by_key_does_not_use_up_the_wait_for_the_next(&test_store);
}

#[test]
fn an_event_that_comes_again_by_key_does_not_use_up_the_wait_for_the_next_on_postgres() {
    let test_store = TestStore::postgres("event-again");
    an_event_that_comes_again_by_key_does_not_use_up_the_wait_for_the_next(&test_store);
}
