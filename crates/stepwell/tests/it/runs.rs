//! `stepwell runs`: looking and steering, with and without a process that has the store.

use super::test_store::{Process, TestStore};

const SAGA: &str = "examples/actions/order-saga.yaml";

/// Only a person can end it, so it runs natively.
const DESK: &str = "schemaVersion: 1\nworkflowId: desk\nworkspaceId: w\nname: Desk\nversion: 1\n\
    active: true\nexecutionTier: Auto\nactions:\n  - actionId: sign\n    order: 1\n    \
    portFamily: people\n    operation: paper:sign\n    executionTierOverride: ManualOnly\n";

/// Only an event can end it.
const PARCEL: &str = "workflowType: parcel\nworkflowVersion: 1\n\
    bizKey: \"{{ workload.parcel }}\"\nsteps:\n  - stepType: ARRIVE\n    waitFor:\n      \
    event: parcel.arrived\n      timeout: 24h\n";

fn slow(test_store: &TestStore, run: &str) -> Process {
    let how = ["--engine", "mock", "--work-ms", "60000", "--run-id", run];
    let mut process = test_store.start(&[&["run", SAGA][..], &how].concat());
    process.until("authorise-payment  Running");
    process
}

/// While a process works on the run.
fn steered_from_outside(test_store: &TestStore) {
    let process = slow(test_store, "run_a");
    let list = test_store.good(&["runs", "list"]);
    assert!(list.contains("run_a  order-saga  RUNNING"), "{list}");
    let shown = test_store.good(&["runs", "show", "run_a"]);
    assert!(
        shown.contains("authorise-payment: at work: Stepwell runs "),
        "{shown}"
    );
    assert_eq!(
        test_store.good(&["runs", "pause", "run_a"]),
        "run_a is paused\n"
    );
    assert_eq!(test_store.show("run_a")["status"], "PAUSED");
    let again = test_store.call(&["runs", "pause", "run_a"]);
    assert_eq!(again.code, 1, "{}", again.out);
    assert!(again.err.contains("RUN_PAUSED"), "{}", again.err);
    test_store.good(&["runs", "resume", "run_a"]);
    let unknown = test_store.call(&["runs", "pause", "run_b"]);
    assert_eq!(unknown.code, 1);
    assert!(unknown.err.contains("RUN_UNKNOWN"), "{}", unknown.err);
    test_store.good(&[
        "runs", "cancel", "run_a", "--reason", "enough", "--actor", "bob",
    ]);
    let (code, text) = process.end();
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("cancelled by bob: enough"), "{text}");
}

#[test]
fn a_run_of_another_process_is_steered_through_its_mailbox() {
    let test_store = TestStore::sqlite("steered");
    steered_from_outside(&test_store);
}

#[test]
fn a_run_of_another_process_is_steered_on_postgres() {
    steered_from_outside(&TestStore::postgres("steered"));
}

#[test]
fn a_store_has_one_owner() {
    let test_store = TestStore::sqlite("owner");
    let process = slow(&test_store, "run_a");
    for args in [
        &["run", SAGA, "--engine", "mock"][..],
        &["dlq", "redrive", "--all"],
    ] {
        let call = test_store.call(args);
        assert_eq!(call.code, 1, "{args:?}");
        assert!(call.err.contains("STORE_HELD"), "{}", call.err);
    }
    process.kill();
}

/// Commands change a run that no process owns.
fn steered_alone(test_store: &TestStore) {
    slow(test_store, "run_a").kill();
    // On PostgreSQL the old owner counts as alive for some seconds; then this process takes the run over.
    test_store.good(&["runs", "pause", "run_a"]);
    let status = test_store.show("run_a");
    assert_eq!(status["status"], "PAUSED", "{status}");
    test_store.good(&["runs", "resume", "run_a"]);
    test_store.good(&["runs", "skip", "run_a", "ship", "--reason", "by hand"]);
    let missing = test_store.call(&["runs", "retry", "run_a", "--step", "ship"]);
    assert_eq!(missing.code, 1, "{}", missing.out);
    let retried = test_store.call(&["runs", "retry", "run_a"]);
    assert!(retried.err.contains("RUN_NOT_TERMINAL"), "{}", retried.err);
    let params = [
        "--payload",
        r#"{"params": {"rush": true}}"#,
        "--reason",
        "why",
    ];
    test_store.good(&[&["runs", "signal", "run_a", "update_params"][..], &params].concat());
    test_store.good(&["runs", "cancel", "run_a", "--compensate"]);
    // The step was cut off: whether it took effect is not known, so its undo is executed by the process that resumes the run.
    let shown = test_store.good(&["runs", "show", "run_a"]);
    assert!(
        shown.contains("no process has the run now; a process that waits for it takes it up by itself, else `stepwell resume run_a`"),
        "{shown}"
    );
    let resumed = test_store.call(&["resume", "run_a", "--engine", "mock"]);
    assert_eq!(resumed.code, 4, "{}", resumed.err);
    assert!(
        resumed.out.contains("undone        authorise-payment"),
        "{}",
        resumed.out
    );
    assert_eq!(test_store.show("run_a")["status"], "CANCELLED");
    let repeated = test_store.good(&["runs", "retry", "run_a"]);
    let id = repeated.trim().rsplit(' ').next().unwrap();
    let out = test_store.good(&["resume", id, "--engine", "mock"]);
    assert!(out.contains("Succeeded  order-saga"), "{out}");
    let page = test_store.good(&["runs", "list", "--limit", "1"]);
    assert!(page.contains(&format!("--before {id}")), "{page}");
    let page = test_store.good(&["runs", "list", "--before", id]);
    assert!(page.contains("run_a") && !page.contains(id), "{page}");
    let failed = test_store.good(&["runs", "list", "--status", "failed"]);
    assert_eq!(failed, "no runs\n");
    let open = test_store.good(&[
        "runs",
        "list",
        "--open",
        "--plan",
        "order-saga",
        "-o",
        "json",
    ]);
    assert!(open.contains("\"runs\": []"), "{open}");
    let health = test_store.good(&["db", "check"]);
    assert!(health.contains("2 runs, 0 open"), "{health}");
    let alerts = test_store.good(&["alerts", "list"]);
    assert!(alerts.contains("UPDATE_PARAMS was sent by ada"), "{alerts}");
    assert_eq!(test_store.good(&["dlq", "list"]), "no dead letters\n");
    assert!(
        test_store
            .good(&["db", "migrate"])
            .contains("schema version")
    );
}

#[test]
fn commands_are_decided_here_where_nobody_else_does() {
    steered_alone(&TestStore::sqlite("alone"));
}

#[test]
fn commands_are_decided_here_where_nobody_else_does_on_postgres() {
    steered_alone(&TestStore::postgres("alone"));
}

#[test]
fn a_person_completes_a_step_of_a_native_run() {
    completed_by_a_person(&TestStore::sqlite("person"));
}

#[test]
fn a_person_completes_a_step_of_a_native_run_on_postgres() {
    completed_by_a_person(&TestStore::postgres("person"));
}

fn completed_by_a_person(test_store: &TestStore) {
    let file = test_store.file("desk.yaml", DESK);
    let mut process = test_store.start(&["run", &file, "--run-id", "run_desk"]);
    process.until("sign");
    let shown = test_store.good(&["runs", "show", "run_desk"]);
    let how = "stepwell runs complete run_desk sign --outcome succeeded";
    assert!(shown.contains(how), "{shown}");
    assert!(!shown.contains("token "), "{shown}");
    let shown = test_store.good(&["runs", "show", "run_desk", "--tokens"]);
    assert!(shown.contains("token         sign  "), "{shown}");
    let health = test_store.good(&["db", "check"]);
    assert!(
        health.contains("1 waiting for a person or an event"),
        "{health}"
    );
    let none = test_store.call(&[
        "runs",
        "complete",
        "run_desk",
        "stamp",
        "--outcome",
        "failed",
    ]);
    assert!(none.err.contains("STEP_UNKNOWN"), "{}", none.err);
    let output = ["--output-json", r#"{"page": 2}"#];
    let done = [
        "runs",
        "complete",
        "run_desk",
        "sign",
        "--outcome",
        "succeeded",
    ];
    test_store.good(&[&done[..], &output].concat());
    let (code, text) = process.end();
    assert_eq!(code, 0, "{text}");
    let shown = test_store.show("run_desk");
    assert_eq!(shown["ext"]["steps"][0]["output"]["page"], 2, "{shown}");
}

/// A plan whose runs start only after an approval.
const CAREFUL: &str = "metadata: {planId: careful, planVersion: '1', schemaVersion: v1.2, \
    requiresApproval: true}\nsteps:\n  - stepId: sign\n    approval: {approvers: 1, timeout: 24h}\n";

#[test]
fn a_run_is_approved_while_a_process_waits_for_that_and_while_none_does() {
    let test_store = TestStore::sqlite("approved");
    let file = test_store.file("careful.yaml", CAREFUL);
    let mock = ["--engine", "mock", "--run-id", "run_a"];
    let call = test_store.call(&[&["run", &file][..], &mock].concat());
    assert_eq!(call.code, 5, "{}", call.err);
    assert!(
        call.out.contains("stepwell runs approve run_a"),
        "{}",
        call.out
    );
    let approve = ["runs", "approve", "run_a", "--actor", "bob"];
    assert_eq!(test_store.good(&approve), "run_a is approved\n");
    let again = test_store.call(&approve);
    assert!(again.err.contains("INVALID_TRANSITION"), "{}", again.err);
    test_store.good(&["resume", "run_a", "--engine", "mock"]);
    let mut process = test_store.start(&["run", &file, "--run-id", "run_b"]);
    let wait = || test_store.call(&["runs", "show", "run_b"]).code != 0;
    while wait() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    test_store.good(&["runs", "approve", "run_b"]);
    process.until("waits for approval");
    test_store.good(&["runs", "complete", "run_b", "sign", "--outcome", "approved"]);
    assert_eq!(process.end().0, 0);
    slow(&test_store, "run_c").kill();
    let needless = test_store.call(&["runs", "approve", "run_c"]);
    assert!(
        needless.err.contains("requires no approval"),
        "{}",
        needless.err
    );
}

#[test]
fn an_event_finds_the_run_that_waits_for_its_key() {
    let test_store = TestStore::sqlite("event");
    let file = test_store.file("parcel.yaml", PARCEL);
    let args = ["run", &file, "--run-id", "run_p", "-i", "parcel=p-7"];
    let mut process = test_store.start(&args);
    process.until("ARRIVE");
    process.interrupt();
    assert_eq!(process.end().0, 130);
    let event = [
        "runs",
        "signal",
        "--event",
        "parcel.arrived",
        "--id",
        "e-1",
        "--key",
    ];
    let other = test_store.good(&[&event[..], &["p-8"]].concat());
    assert!(other.contains("the event is kept"), "{other}");
    let event = [
        "runs",
        "signal",
        "--event",
        "parcel.arrived",
        "--id",
        "e-2",
        "--key",
        "p-7",
    ];
    assert_eq!(test_store.good(&event), "run_p received the event\n");
    assert!(test_store.good(&event).contains("is already stored"));
    // Nobody had to be there: the event was all that the run waited for.
    assert_eq!(test_store.show("run_p")["status"], "COMPLETED");
    // Without a receiver it is for the definitions that it triggers: no run gets it, and its id counts once too.
    let for_all = ["runs", "signal", "--event", "parcel.arrived", "--id", "e-3"];
    assert!(test_store.good(&for_all).contains("that it triggers"));
    assert!(test_store.good(&for_all).contains("is already stored"));
    assert_eq!(
        test_store.call(&["runs", "signal", "--event", "x"]).code,
        2,
        "an event needs an id"
    );
    assert_eq!(test_store.call(&["runs", "signal", "run_p"]).code, 2);
}

#[test]
fn the_log_is_followed_to_its_end() {
    let test_store = TestStore::sqlite("followed");
    let process = slow(&test_store, "run_a");
    let mut follower = test_store.start(&["runs", "events", "run_a", "--follow"]);
    follower.until("StepStarted");
    test_store.good(&["runs", "cancel", "run_a"]);
    let (code, text) = follower.end();
    assert_eq!(code, 0, "{text}");
    assert!(
        text.lines().last().unwrap().contains("RunCancelled"),
        "{text}"
    );
    assert!(!text.contains("prevHash"), "{text}");
    assert_eq!(process.end().0, 4);
}

#[cfg(unix)]
#[test]
fn an_owner_that_does_not_answer_is_not_waited_for_for_ever() {
    let test_store = TestStore::sqlite("silent");
    let process = slow(&test_store, "run_a");
    let pause = ["runs", "pause", "run_a", "--timeout", "1", "-o", "json"];
    let call = loop {
        process.send("STOP");
        let call = test_store.call(&pause);
        // It may have been stopped while it wrote, when nobody can write anything.
        if !call.err.contains("STORE_UNAVAILABLE") {
            break call;
        }
        process.send("CONT");
    };
    assert_eq!(call.code, 6, "{}{}", call.out, call.err);
    assert_eq!(call.json()["answer"], "UNANSWERED");
    // The command lies there, and is done when the owner comes to itself.
    process.send("CONT");
    let follow = ["runs", "events", "run_a", "--follow"];
    let mut follower = test_store.start(&follow);
    follower.until("RunPaused");
    follower.kill();
    process.kill();
}
