//! People and runs: who acts, with which role and tenant, who may answer, and what is said to whom.

use super::test_store::TestStore;

/// A person who did not start the run must sign.
const CHECKED: &str = "schemaVersion: 1\nworkflowId: checked\nworkspaceId: w\nname: Checked\nversion: 1\n\
    active: true\nexecutionTier: Auto\nactions:\n  - actionId: sign\n    order: 1\n    \
    portFamily: people\n    operation: paper:sign\n    executionTierOverride: ManualOnly\n    \
    separationOfDuties: [MakerChecker]\n";

/// Two different people must sign.
const TWICE: &str = "schemaVersion: 1\nworkflowId: twice\nworkspaceId: w\nname: Twice\nversion: 1\n\
    active: true\nexecutionTier: Auto\nactions:\n  - actionId: sign\n    order: 1\n    \
    portFamily: people\n    operation: paper:sign\n    executionTierOverride: ManualOnly\n    \
    separationOfDuties: [{distinctApprovers: 2}]\n";

/// Starts a run that waits for a person, and leaves it without a process.
fn waiting(store: &TestStore, text: &str, more: &[&str]) {
    let file = store.file("definition.yaml", text);
    let mut process = store.start(&[&["run", &file, "--run-id", "run_a"][..], more].concat());
    process.until("sign");
    process.interrupt();
    assert_eq!(process.end().0, 130);
}

const SIGN: [&str; 6] = [
    "runs",
    "complete",
    "run_a",
    "sign",
    "--outcome",
    "succeeded",
];

#[test]
fn who_started_a_run_does_not_check_it() {
    for (name, start, same) in [
        ("maker-login", &[][..], &[][..]),
        ("maker-named", &["--as", "kim"], &["--as", "kim"]),
    ] {
        let store = TestStore::sqlite(name);
        waiting(&store, CHECKED, start);
        let refused = store.call(&[&SIGN[..], same].concat());
        assert_eq!(refused.code, 1, "{}", refused.out);
        assert!(refused.err.contains("SOD_DENIED"), "{}", refused.err);
        assert_eq!(store.show("run_a")["status"], "RUNNING");
        store.good(&[&SIGN[..], &["--as", "bob"]].concat());
        let shown = store.good(&["runs", "show", "run_a"]);
        assert!(shown.contains("sign: succeeded by bob at "), "{shown}");
        let maker = same.last().unwrap_or(&"ada");
        assert!(shown.contains(&format!("started by    {maker}")), "{shown}");
        let json = store.show("run_a");
        assert_eq!(json["status"], "COMPLETED");
        assert_eq!(json["ext"]["startedBy"], *maker);
        assert_eq!(json["ext"]["answers"][0]["by"], "bob");
        let events = store.events("run_a");
        assert_eq!(events[0]["context"]["triggeredBy"], *maker);
    }
}

#[test]
fn who_repeats_a_run_is_its_maker() {
    let store = TestStore::sqlite("maker-repeated");
    waiting(&store, CHECKED, &[]);
    store.good(&["runs", "cancel", "run_a"]);
    let repeated = store.good(&["runs", "retry", "run_a", "--as", "bob"]);
    let id = repeated.trim().rsplit(' ').next().unwrap();
    assert_eq!(store.show(id)["ext"]["startedBy"], "bob");
}

#[test]
fn the_first_of_two_approvers_is_told_that_another_is_needed() {
    let store = TestStore::sqlite("two-approvers");
    waiting(&store, TWICE, &[]);
    let first = store.good(&[&SIGN[..], &["--as", "ada"]].concat());
    assert!(
        first.contains("1 of 2 approvals by ada; another person must approve"),
        "{first}"
    );
    let shown = store.good(&["runs", "show", "run_a"]);
    assert!(shown.contains("sign: approved by ada at "), "{shown}");
    assert!(shown.contains("1 of 2 approvals by ada"), "{shown}");
    let second = store.good(&[&SIGN[..], &["--as", "bob"]].concat());
    assert!(!second.contains("approvals"), "{second}");
    assert_eq!(store.show("run_a")["status"], "COMPLETED");
}

#[test]
fn roles_and_tenants_are_checked() {
    let store = TestStore::sqlite("roles");
    waiting(&store, CHECKED, &["--tenant", "acme"]);
    let refused = |args: &[&str], code: &str| {
        let call = store.call(args);
        assert_eq!(call.code, 1, "{args:?}: {}", call.out);
        assert!(call.err.contains(code), "{args:?}: {}", call.err);
    };
    let other = ["--as", "bob", "--tenant", "other"];
    for command in [
        &SIGN[..],
        &["runs", "show", "run_a"],
        &["runs", "events", "run_a"],
        &["runs", "logs", "run_a"],
        &["runs", "pause", "run_a"],
        &["runs", "cancel", "run_a"],
        &["runs", "signal", "run_a", "--event", "x", "--id", "1"],
        &["resume", "run_a"],
    ] {
        refused(&[command, &other].concat(), "AUTHZ_TENANT_FORBIDDEN");
    }
    assert_eq!(
        store.good(&["runs", "list", "--tenant", "other"]),
        "no runs\n"
    );
    let own = store.good(&["runs", "list", "--tenant", "acme"]);
    assert!(own.contains("run_a"), "{own}");
    let viewer = ["--as", "bob", "--role", "viewer"];
    for command in [
        &SIGN[..],
        &["runs", "pause", "run_a"],
        &["runs", "cancel", "run_a"],
        &["runs", "signal", "run_a", "--event", "x", "--id", "1"],
        &["resume", "run_a"],
        &["run", "examples/actions/order-saga.yaml"],
    ] {
        refused(&[command, &viewer].concat(), "AUTHZ_DENIED");
    }
    // The highest role counts.
    let retry = ["runs", "skip", "run_a", "sign", "--as", "bob"];
    refused(
        &[&retry[..], &["--role", "operator"]].concat(),
        "AUTHZ_DENIED",
    );
    let more = ["--role", "engineer", "--role", "viewer"];
    store.good(&[&retry[..], &more, &["--tenant", "acme"]].concat());
}

#[test]
fn the_actor_comes_from_the_option_the_variable_the_file_or_the_login() {
    let store = TestStore::sqlite("actor-sources");
    let config = store.file(
        "stepwell.toml",
        "[actor]\nname = 'filed'\nroles = ['operator']\ntenant = 't-file'\n",
    );
    let file = store.file("definition.yaml", CHECKED);
    let started = |run: &str, variables: &[(&str, &str)], more: &[&str]| {
        let args = ["run", &file, "--run-id", run, "--engine", "mock"];
        let call = store.call_with(variables, &[&args[..], more].concat());
        assert_eq!(call.code, 0, "{}{}", call.out, call.err);
        let created = store.events(run).swap_remove(0);
        let context = &created["context"];
        let text = |name: &str| context[name].as_str().unwrap().to_owned();
        (text("triggeredBy"), text("tenantId"))
    };
    let pair = |name: &str, tenant: &str| (name.to_owned(), tenant.to_owned());
    assert_eq!(started("run_1", &[], &[]), pair("ada", "local"));
    let at = ("STEPWELL_CONFIG", config.as_str());
    assert_eq!(started("run_2", &[at], &[]), pair("filed", "t-file"));
    let set = [at, ("STEPWELL_AS", "set"), ("STEPWELL_TENANT", "t-set")];
    assert_eq!(started("run_3", &set, &[]), pair("set", "t-set"));
    let given = ["--as", "given", "--tenant", "t-given"];
    assert_eq!(started("run_4", &set, &given), pair("given", "t-given"));
    let wrong = [("STEPWELL_ROLE", "king")];
    let call = store.call_with(&wrong, &["runs", "show", "run_1"]);
    assert_eq!(call.code, 2, "{}", call.err);
    assert!(
        call.err.contains("viewer, operator, engineer"),
        "{}",
        call.err
    );
    let viewer = [("STEPWELL_ROLE", "viewer")];
    let call = store.call_with(&viewer, &["run", &file]);
    assert!(call.err.contains("AUTHZ_DENIED"), "{}", call.err);
}

/// One person must sign.
const ALONE: &str = "schemaVersion: 1\nworkflowId: alone\nworkspaceId: w\nname: Alone\nversion: 1\n\
    active: true\nexecutionTier: Auto\nactions:\n  - actionId: sign\n    order: 1\n    \
    portFamily: people\n    operation: paper:sign\n    executionTierOverride: ManualOnly\n  \
    - actionId: file\n    order: 2\n    portFamily: people\n    operation: paper:file\n    \
    executionTierOverride: ManualOnly\n";

fn complete<'a>(outcome: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let start = ["runs", "complete", "run_a", "sign", "--outcome", outcome];
    [&start[..], more].concat()
}

/// The first answer counts, in every process that decides it.
fn answered_twice(store: &TestStore) {
    let token = store.show_tokens("run_a")["sign"].clone();
    let token = token.as_str().unwrap();
    let wrong = store.call(&complete("succeeded", &["--token", "wrong"]));
    assert!(wrong.err.contains("TOKEN_MISMATCH"), "{}", wrong.err);
    store.good(&complete("succeeded", &["--as", "bob", "--token", token]));
    for more in [&["--as", "eve"][..], &["--as", "eve", "--token", token]] {
        let same = store.good(&complete("succeeded", more));
        assert!(same.contains("already: succeeded by bob at "), "{same}");
        let other = store.call(&complete("failed", more));
        assert_eq!(other.code, 1, "{}", other.out);
        assert!(
            other.err.contains("ANSWER_CONTRADICTED") && other.err.contains("succeeded by bob at "),
            "{}",
            other.err
        );
    }
    let json = store.good(&complete("succeeded", &["-o", "json"]));
    assert!(json.contains("\"answer\": \"BEFORE\""), "{json}");
    assert!(json.contains("\"outcome\": \"Succeeded\""), "{json}");
    assert_eq!(store.count("run_a", "StepCompleted", "sign"), 1);
    assert_eq!(store.count("run_a", "StepAnswered", "sign"), 1);
    let event = ["runs", "signal", "run_a", "--event", "x", "--id", "e-1"];
    store.good(&event);
    let again = store.good(&event);
    assert!(again.contains("an event with this id is known"), "{again}");
    let pause = ["runs", "signal", "run_a", "PAUSE", "--id", "p-1"];
    store.good(&pause);
    let again = store.good(&pause);
    assert!(again.contains("a signal with this id is known"), "{again}");
    let refused = ["runs", "signal", "run_a", "PAUSE", "--id", "p-2"];
    for _ in 0..2 {
        let call = store.call(&refused);
        assert!(call.err.contains("RUN_PAUSED"), "{}", call.err);
    }
}

#[test]
fn the_first_answer_counts_without_a_process() {
    let store = TestStore::sqlite("answers-alone");
    waiting(&store, ALONE, &[]);
    answered_twice(&store);
}

fn answered_through_a_mailbox(store: &TestStore) {
    let file = store.file("definition.yaml", ALONE);
    let mut process = store.start(&["run", &file, "--run-id", "run_a"]);
    process.until("sign");
    answered_twice(store);
    process.kill();
}

#[test]
fn the_first_answer_counts_through_a_mailbox() {
    answered_through_a_mailbox(&TestStore::sqlite("answers-mail"));
}

#[test]
fn the_first_answer_counts_through_a_mailbox_on_postgres() {
    answered_through_a_mailbox(&TestStore::postgres("answers-mail"));
}

#[test]
fn what_people_say_is_in_the_events_of_the_contract() {
    let store = TestStore::sqlite("said");
    waiting(&store, ALONE, &[]);
    let when = "2026-05-04T16:20:00.000Z";
    store.good(&complete(
        "succeeded",
        &[
            "--as",
            "bob",
            "--notes",
            "page 2 was missing",
            "--evidence",
            "photo-1",
            "--evidence",
            "s3://audit/1.pdf",
            "--completed-at",
            when,
        ],
    ));
    store.good(&["runs", "pause", "run_a", "--reason", "lunch"]);
    let text = store.good(&["runs", "events", "run_a"]);
    let events = text.lines();
    let events: Vec<serde_json::Value> =
        events.map(|it| serde_json::from_str(it).unwrap()).collect();
    let of = |name: &str| events.iter().find(|it| it["eventType"] == name).unwrap();
    let answer = of("StepAnswered");
    assert_eq!(answer["outcome"], "Succeeded");
    assert_eq!(answer["answeredBy"], "bob");
    assert_eq!(answer["notes"], "page 2 was missing");
    assert_eq!(answer["completedAt"], when);
    assert_eq!(answer["evidenceRefs"][1], "s3://audit/1.pdf");
    assert_eq!(of("SignalAccepted")["reason"], "lunch");
    let shown = store.good(&["runs", "show", "run_a"]);
    assert!(
        shown.contains(": page 2 was missing (evidence: photo-1, s3://audit/1.pdf)"),
        "{shown}"
    );
    let wrong = store.call(&complete("succeeded", &["--completed-at", "yesterday"]));
    assert_eq!(wrong.code, 2, "{}", wrong.err);
}
