//! What goes to standard error: errors for programs, and the log.

use serde_json::Value as Json;

use super::stepwell;
use super::test_store::TestStore;

/// The last line of standard error, which is the error for programs.
fn error(text: &str) -> Json {
    let line = text.lines().last().unwrap_or_default();
    let json: Json = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {text}"));
    json["error"].clone()
}

#[test]
fn programs_get_errors_as_json() {
    let test_store = TestStore::sqlite("errors");
    for (args, exit, code) in [
        (&["runs", "list", "-o", "json"][..], 1, "STORE_UNUSABLE"),
        (&["runs", "list", "--output=json", "--nope"], 2, "USAGE"),
        (&["outbox", "flush", "-ojson"], 1, "STORE_UNUSABLE"),
        (
            &["run", "nowhere.yaml", "-o", "json"],
            1,
            "SOURCE_UNREADABLE",
        ),
    ] {
        let call = test_store.call(args);
        assert_eq!(call.code, exit, "{args:?}: {}", call.err);
        assert_eq!(error(&call.err)["code"], code, "{}", call.err);
        assert!(error(&call.err)["message"].is_string());
    }
    let human = test_store.call(&["runs", "list"]);
    assert!(human.err.starts_with("error: "), "{}", human.err);
}

#[test]
fn alerts_are_logged_beside_the_output() {
    let test_store = TestStore::sqlite("logged");
    let saga = "examples/actions/order-saga.yaml";
    let start = [
        "--engine",
        "mock",
        "--work-ms",
        "60000",
        "--run-id",
        "run_a",
    ];
    let mut process = test_store.start(&[&["run", saga][..], &start].concat());
    process.until("authorise-payment  Running");
    process.kill();
    let params = [
        "--payload",
        r#"{"params": {"rush": true}}"#,
        "--reason",
        "why",
    ];
    let call =
        test_store.call(&[&["runs", "signal", "run_a", "update_params"][..], &params].concat());
    assert_eq!(call.code, 0, "{}", call.err);
    let logged = [
        "WARN",
        "UPDATE_PARAMS was sent by ada",
        "code=",
        "priority=P",
    ];
    for word in logged {
        assert!(call.err.contains(word), "{word}: {}", call.err);
    }
    assert!(!call.out.contains("WARN") && !call.err.contains('\u{1b}'));
    assert!(stepwell(&["--help"]).out.contains("STEPWELL_LOG"));
}
