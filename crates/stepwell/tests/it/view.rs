//! What `stepwell run` shows and suggests: lines, the end of a failed run, and logs.

use expect_test::expect;

use super::test_store::TestStore;
use super::{mock, scratch, stepwell};

const SAGA: &str = "examples/actions/order-saga.yaml";

/// A playbook of one step that calls another, which has a loop.
const PARENT: &str = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata:\n  name: parent\nworkflow:\n  \
    - step: pay\n    tool:\n      kind: playbook\n      path: ./leaf.yaml\n";
const LEAF: &str = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata:\n  name: leaf\nworkload:\n  \
    cards: [1, 2, 3, 4, 5]\nworkflow:\n  - step: charge\n    loop:\n      in: \"{{ workload.cards }}\"\n      \
    iterator: card\n    tool:\n      kind: noop\n";

/// The lines after the run's own.
fn end(out: &str) -> String {
    let (_, end) = out.rsplit_once("\n\n").unwrap();
    let facts = end.lines().skip(1).filter_map(|line| line.get(2..));
    facts.map(|line| format!("{line}\n")).collect()
}

/// The commands that the end of a run suggests.
fn suggested(out: &str) -> Vec<Vec<String>> {
    let hints = end(out);
    let hints = hints
        .lines()
        .filter_map(|line| line.split_once("stepwell "));
    let words = |(_, command): (&str, &str)| {
        let command = command.split("  #").next().unwrap_or(command);
        command.split_whitespace().map(str::to_owned).collect()
    };
    hints.map(words).collect()
}

#[test]
fn a_retry_says_which_attempt_failed_and_when_the_next_is() {
    let call = mock(SAGA, &["--fail", "reserve-stock=transient@1"]);
    assert_eq!(call.code, 0, "{}", call.out);
    let stock = call.out.lines().filter(|it| it.contains("reserve-stock "));
    expect![[r#"
        00:00.000  reserve-stock      Running  (attempt 1 of 5)
        00:00.000  reserve-stock      Running  (attempt 1 of 5 failed, retries in 500 ms: SIMULATED_FAILURE (transient): simulated, as --fail asks)
        00:00.500  reserve-stock      Running  (attempt 2 of 5)
        00:00.500  reserve-stock      Succeeded  (500 ms)"#]].assert_eq(&stock.collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_failure_is_followed_down_to_the_item_of_the_child_where_it_began() {
    let parent = scratch("view/parent.yaml", PARENT.as_bytes());
    scratch("view/leaf.yaml", LEAF.as_bytes());
    let call = mock(&parent, &["--fail", "charge=auth"]);
    assert_eq!(call.code, 3, "{}{}", call.out, call.err);
    expect![[r#"
        cause         pay/charge[0]: SIMULATED_FAILURE (auth): simulated, as --fail asks
                      charge: 1 of 5 items failed, 0 succeeded
                      in the run run_783fb204ce6bebe9d661235342c70f3e
        next          stepwell explain SIMULATED_FAILURE  # explains the code: cause and what to do
    "#]]
    .assert_eq(&end(&call.out));
}

#[test]
fn a_loop_lists_the_first_items_that_failed_and_counts_the_rest() {
    let parallel = "iterator: card\n      spec:\n        mode: parallel";
    let text = LEAF.replace("iterator: card", parallel);
    let leaf = scratch("view/items.yaml", text.as_bytes());
    let call = mock(&leaf, &["--fail", "charge=auth", "--work-ms", "100"]);
    assert_eq!(call.code, 3, "{}{}", call.out, call.err);
    expect![[r#"
        cause         charge[0]: SIMULATED_FAILURE (auth): simulated, as --fail asks
                      charge: 5 of 5 items failed, 0 succeeded
                      charge[1]: SIMULATED_FAILURE (auth): simulated, as --fail asks
                      charge[2]: SIMULATED_FAILURE (auth): simulated, as --fail asks
                      charge[3]: SIMULATED_FAILURE (auth): simulated, as --fail asks
                      and 1 more
        next          stepwell explain SIMULATED_FAILURE  # explains the code: cause and what to do
    "#]]
    .assert_eq(&end(&call.out));
}

#[test]
fn a_run_in_memory_suggests_nothing_that_needs_a_store() {
    let call = mock(SAGA, &["--fail", "ship=external"]);
    // To explain a code needs no store.
    assert_eq!(suggested(&call.out), [["explain", "SIMULATED_FAILURE"]]);
}

#[test]
fn what_a_failed_run_suggests_is_accepted() {
    let test_store = TestStore::sqlite("suggested");
    let args = ["run", SAGA, "--engine", "mock", "--fail", "ship=external"];
    let call = test_store.call(&[&args[..], &["--run-id", "run_a"]].concat());
    assert_eq!(call.code, 3, "{}", call.err);
    let mut hints = suggested(&call.out);
    hints.retain(|words| words[0] != "explain");
    let text: Vec<String> = hints.iter().map(|words| words.join(" ")).collect();
    let all = [
        "runs show run_a",
        "runs logs run_a ship",
        "runs retry run_a",
    ];
    assert_eq!(text, all);
    for words in hints.iter().filter(|words| words[1] != "logs") {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        test_store.good(&words);
    }
    let shown = test_store.good(&["runs", "show", "run_a"]);
    let all = [
        "cause         ship: SIMULATED_FAILURE",
        "stepwell runs retry run_a",
    ];
    for text in all {
        assert!(shown.contains(text), "{text}: {shown}");
    }
}

#[test]
fn a_held_step_can_be_retried_as_the_end_suggests() {
    let test_store = TestStore::sqlite("held");
    let file = "examples/plan/release.yaml";
    let args = ["run", file, "--engine", "mock", "--fail", "build=auth@1"];
    let mut process = test_store.start(&[&args[..], &["--run-id", "run_a"]].concat());
    process.until("held for an operator");
    process.interrupt();
    let (code, out) = process.end();
    assert_eq!(code, 130, "{out}");
    let hints = suggested(&out);
    let text: Vec<String> = hints.iter().map(|words| words.join(" ")).collect();
    assert_eq!(text[0], "runs retry run_a --step build", "{out}");
    assert_eq!(text[1], "runs skip run_a build", "{out}");
    let words: Vec<&str> = hints[0].iter().map(String::as_str).collect();
    test_store.good(&words);
}

#[test]
fn a_store_that_was_named_is_named_in_what_is_suggested() {
    let test_store = TestStore::sqlite("named");
    let args = ["run", SAGA, "--engine", "mock", "--fail", "ship=external"];
    let call = stepwell(&[&args[..], &["--store", &test_store.url]].concat());
    let mut hints = suggested(&call.out);
    hints.retain(|words| words[0] != "explain");
    assert!(!hints.is_empty(), "{}", call.out);
    for words in hints {
        assert!(words.ends_with(&["--store".into(), test_store.url.clone()]));
    }
}

#[test]
fn logs_that_are_not_there_are_said_with_a_hint() {
    let test_store = TestStore::sqlite("logs");
    let args = ["run", SAGA, "--engine", "mock", "--run-id", "run_a"];
    test_store.good(&args);
    for (args, code, hint) in [
        (&["run_b"][..], "RUN_UNKNOWN", "run_b"),
        (&["run_a", "shipp"], "STEP_UNKNOWN", "did you mean `ship`?"),
        (&["run_a", "zzz"], "STEP_UNKNOWN", "runs show run_a"),
        (&["run_a", "ship"], "LOG_MISSING", "no log of ship"),
        (&["run_a", "--follow"], "LOG_MISSING", "no log of any step"),
        (
            &["run_a", "ship", "--execution", "2"],
            "LOG_MISSING",
            "execution 2 of ship",
        ),
    ] {
        let call = test_store.call(&[&["runs", "logs"][..], args].concat());
        assert_eq!(call.code, 1, "{args:?}: {}", call.out);
        let explain = format!("stepwell explain {code}");
        for text in [code, hint, &explain] {
            assert!(call.err.contains(text), "{text}: {}", call.err);
        }
        assert_eq!(stepwell(&["explain", code]).code, 0);
    }
    assert_eq!(
        test_store
            .call(&["runs", "logs", "run_a", "--execution", "0"])
            .code,
        2
    );
}

#[test]
fn a_step_that_is_a_run_of_its_own_has_its_log_there() {
    let test_store = TestStore::sqlite("logs-child");
    let parent = test_store.file("parent.yaml", PARENT);
    test_store.file("leaf.yaml", LEAF);
    test_store.good(&["run", &parent, "--engine", "mock", "--run-id", "run_a"]);
    let call = test_store.call(&["runs", "logs", "run_a", "pay"]);
    assert_eq!(call.code, 1);
    assert!(
        call.err
            .contains("the step started a child run: `stepwell runs logs run_")
    );
}

#[test]
fn every_command_says_its_exit_codes() {
    let help = stepwell(&["--help"]).out;
    assert!(help.contains("130  interrupted"), "{help}");
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands = commands.lines().take_while(|line| !line.is_empty());
    let names = commands.filter_map(|line| line.split_whitespace().next());
    for name in names.filter(|name| *name != "help") {
        let help = stepwell(&[name, "--help"]).out;
        assert!(help.contains("Exit codes:"), "{name}: {help}");
    }
}
