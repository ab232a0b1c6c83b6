//! Runs outlive the processes that work on them.

use super::test_store::TestStore;

const SAGA: &str = "examples/actions/order-saga.yaml";
const SLOW: [&str; 4] = ["--engine", "mock", "--work-ms", "60000"];
const FAST: [&str; 4] = ["--engine", "mock", "--work-ms", "1"];

/// The steps of a definition, in order.
const STEPS: [&str; 3] = ["authorise-payment", "reserve-stock", "ship"];

fn run<'a>(file: &'a str, more: &[&'a str], how: [&'a str; 4]) -> Vec<&'a str> {
    [&["run", file], more, &how].concat()
}

/// Works until the second step has started, and is killed there.
fn killed_in_the_second_step(test_store: &TestStore, run_id: &str) {
    let quick = ["--engine", "mock", "--work-ms", "700"];
    let mut process = test_store.start(&run(SAGA, &["--run-id", run_id], quick));
    process.until("reserve-stock      Running");
    process.kill();
}

fn survives_a_kill(test_store: &TestStore) {
    killed_in_the_second_step(test_store, "run_killed");
    assert_eq!(test_store.count("run_killed", "StepCompleted", STEPS[0]), 1);
    assert_eq!(test_store.count("run_killed", "StepCompleted", STEPS[1]), 0);
    let out = test_store.good(&run(SAGA, &["--resume"], FAST));
    // What was done is neither done nor told again.
    assert!(!out.contains("authorise-payment"), "{out}");
    assert!(
        out.contains("reserve-stock      Running  (lost with its worker (1 of 10), executed again"),
        "{out}"
    );
    // A crash uses up no attempt.
    assert!(
        out.contains("reserve-stock      Running  (attempt 1 of 5)"),
        "{out}"
    );
    assert!(out.contains("Succeeded  order-saga  run_killed"), "{out}");
    for step in STEPS {
        assert_eq!(
            test_store.count("run_killed", "StepCompleted", step),
            1,
            "{step}"
        );
        assert_eq!(
            test_store.count("run_killed", "StepStarted", step),
            1,
            "{step}"
        );
    }
    assert_eq!(test_store.show("run_killed")["status"], "COMPLETED");
    let call = test_store.call(&run(SAGA, &["--resume"], FAST));
    assert_eq!(call.code, 2, "{}", call.out);
    assert!(
        call.err.contains("has no run of `order-saga`"),
        "{}",
        call.err
    );
}

#[test]
fn a_killed_run_goes_on_where_it_was() {
    survives_a_kill(&TestStore::sqlite("killed"));
}

#[test]
fn a_killed_run_goes_on_where_it_was_on_postgres() {
    survives_a_kill(&TestStore::postgres("killed"));
}

fn survives_an_interrupt(test_store: &TestStore) {
    let mut process = test_store.start(&run(SAGA, &["--run-id", "run_stopped"], SLOW));
    process.until("authorise-payment  Running");
    process.interrupt();
    let (code, text) = process.end();
    assert_eq!(code, 130, "{text}");
    let go_on = "continue      stepwell resume run_stopped --engine mock --work-ms 60000";
    assert!(text.contains(go_on), "{text}");
    // The session was given back, so that nobody waits for its end.
    let began = std::time::Instant::now();
    let out = test_store.good(&["resume", "run_stopped", "--engine", "mock"]);
    assert!(began.elapsed().as_secs() < 4, "{:?}", began.elapsed());
    assert!(out.contains("Succeeded  order-saga  run_stopped"), "{out}");
    // A run that has ended is only shown.
    let out = test_store.good(&["resume", "run_stopped", "--engine", "mock"]);
    assert!(out.contains("Succeeded  order-saga  run_stopped"), "{out}");
}

#[test]
fn an_interrupted_run_goes_on_by_its_id() {
    survives_an_interrupt(&TestStore::sqlite("interrupted"));
}

#[test]
fn an_interrupted_run_goes_on_by_its_id_on_postgres() {
    survives_an_interrupt(&TestStore::postgres("interrupted"));
}

#[test]
fn a_run_works_on_no_other_run_of_its_store() {
    let test_store = TestStore::sqlite("others");
    killed_in_the_second_step(&test_store, "run_left");
    test_store.good(&run(SAGA, &["--run-id", "run_new"], FAST));
    test_store.good(&[
        "run",
        "examples/playbook/nightly-load.yaml",
        "--engine",
        "mock",
    ]);
    // The lease that was lost with its process is ended, and nobody has taken the work up.
    assert_eq!(test_store.show("run_left")["status"], "RUNNING");
    assert_eq!(
        test_store.count("run_left", "StepExecutionStarted", STEPS[1]),
        0
    );
    let reasons = test_store.show("run_left")["ext"]["waitsFor"].to_string();
    assert!(reasons.contains("a worker that serves"), "{reasons}");
    assert!(test_store.good(&["db", "check"]).contains("1 open"));
    let out = test_store.good(&run(SAGA, &["--resume", "--run-id", "run_left"], FAST));
    assert!(out.contains("Succeeded  order-saga  run_left"), "{out}");
}

#[test]
fn children_go_on_with_their_parent() {
    let test_store = TestStore::sqlite("family");
    let head = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata:\n  name: ";
    let leaf = format!(
        "{head}leaf\nworkflow:\n  - step: one\n    tool:\n      kind: noop\n    next: two\n  \
         - step: two\n    tool:\n      kind: noop\n"
    );
    test_store.file("leaf.yaml", &leaf);
    let parent = format!(
        "{head}parent\nworkflow:\n  - step: call\n    tool:\n      kind: playbook\n      \
         path: ./leaf.yaml\n"
    );
    let file = test_store.file("parent.yaml", &parent);
    let mut process = test_store.start(&run(&file, &["--run-id", "run_top"], SLOW));
    process.until("call/one  running");
    process.kill();
    let out = test_store.good(&run(&file, &["--resume"], FAST));
    assert!(out.contains("call/two  success"), "{out}");
    assert!(out.contains("success  parent  run_top"), "{out}");
    let list = test_store.good(&["runs", "list", "-o", "json"]);
    assert_eq!(list.matches("\"COMPLETED\"").count(), 2, "{list}");
}

#[test]
fn a_changed_definition_goes_on_with_the_old_one() {
    let test_store = TestStore::sqlite("changed");
    let text = std::fs::read_to_string(super::root().join(SAGA)).unwrap();
    let file = test_store.file("saga.yaml", &text);
    let mut process = test_store.start(&run(&file, &["--run-id", "run_old"], SLOW));
    process.until("authorise-payment  Running");
    process.kill();
    test_store.file("saga.yaml", &format!("{text}\n# changed\n"));
    let call = test_store.call(&run(&file, &["--resume"], FAST));
    assert_eq!(call.code, 0, "{}{}", call.out, call.err);
    assert!(call.err.contains("goes on with its own"), "{}", call.err);
}

#[test]
fn virtual_time_keeps_nothing() {
    let test_store = TestStore::sqlite("virtual");
    let how = ["--engine", "mock", "--virtual-time"];
    test_store.good(&[&["run", SAGA][..], &how].concat());
    assert!(!test_store.database().exists());
    let call = test_store.call(&[&["run", SAGA, "--store", &test_store.url][..], &how].concat());
    assert_eq!(call.code, 2);
    assert!(call.err.contains("--virtual-time"), "{}", call.err);
}
