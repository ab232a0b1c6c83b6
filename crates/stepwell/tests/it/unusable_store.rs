//! Stores that cannot be used: the exit code, and a message that says what to do.

use super::test_store::TestStore;
use super::{stepwell, stepwell_in};

const SAGA: &str = "examples/actions/order-saga.yaml";
const MOCK: [&str; 2] = ["--engine", "mock"];

fn refused(test_store: &TestStore, args: &[&str], code: &str, what: &str) {
    let call = test_store.call(args);
    assert_eq!(call.code, 1, "{args:?}: {}{}", call.out, call.err);
    assert!(call.out.is_empty(), "{}", call.out);
    for text in [code, what, &format!("stepwell explain {code}")] {
        assert!(call.err.contains(text), "{text}: {}", call.err);
    }
}

fn by_all(test_store: &TestStore, code: &str, what: &str) {
    refused(
        test_store,
        &[&["run", SAGA][..], &MOCK].concat(),
        code,
        what,
    );
    refused(test_store, &["runs", "list"], code, what);
    refused(test_store, &["runs", "pause", "run_a"], code, what);
    refused(test_store, &["db", "check"], code, what);
}

#[test]
fn what_is_no_database_is_left_alone() {
    let test_store = TestStore::sqlite("corrupt");
    let text = "This is a letter, and a long one. ".repeat(200);
    test_store.file("runs.db", &text);
    by_all(&test_store, "STORE_CORRUPT", "it is not a database");
    assert_eq!(
        std::fs::read_to_string(test_store.database()).unwrap(),
        text
    );
}

/// The schema's version is at this offset of the file's header.
fn set_schema(test_store: &TestStore, version: u32) {
    let mut bytes = std::fs::read(test_store.database()).unwrap();
    bytes[60..64].copy_from_slice(&version.to_be_bytes());
    std::fs::write(test_store.database(), bytes).unwrap();
}

#[test]
fn a_command_that_reads_creates_nothing_on_postgres() {
    let test_store = TestStore::postgres("reads-only");
    refused(
        &test_store,
        &["runs", "list"],
        "STORE_UNUSABLE",
        "the database has no store in the schema",
    );
    refused(
        &test_store,
        &["db", "check"],
        "STORE_UNUSABLE",
        "name the right schema",
    );
    test_store.good(&["db", "migrate"]);
    test_store.good(&["runs", "list"]);
}

#[test]
fn whoever_only_reads_does_not_migrate() {
    let test_store = TestStore::sqlite("older");
    test_store.good(&["db", "migrate"]);
    set_schema(&test_store, 1);
    refused(
        &test_store,
        &["runs", "list"],
        "STORE_OLDER",
        "run `stepwell db migrate`",
    );
}

#[test]
fn a_newer_schema_is_left_alone() {
    let test_store = TestStore::sqlite("newer");
    test_store.good(&[&["run", SAGA][..], &MOCK].concat());
    set_schema(&test_store, 99);
    by_all(&test_store, "STORE_NEWER", "use the newer program");
}

#[test]
fn a_store_is_made_only_when_that_is_asked_for() {
    let test_store = TestStore::sqlite("missing");
    refused(
        &test_store,
        &["runs", "list"],
        "STORE_UNUSABLE",
        "the file does not exist",
    );
    refused(
        &test_store,
        &["runs", "pause", "x"],
        "STORE_UNUSABLE",
        "the file does not exist",
    );
    assert!(!test_store.database().exists());
    test_store.good(&["db", "migrate"]);
    assert_eq!(test_store.good(&["runs", "list"]), "no runs\n");
}

#[test]
fn a_server_that_is_not_there_is_said() {
    let mut test_store = TestStore::sqlite("unreachable");
    test_store.url = "postgresql://nobody:secret@127.0.0.1:1/nothing".into();
    refused(
        &test_store,
        &["runs", "list"],
        "STORE_UNAVAILABLE",
        "127.0.0.1",
    );
    let call = test_store.call(&[&["run", SAGA][..], &MOCK].concat());
    assert_eq!(call.code, 1);
    assert!(!call.err.contains("secret"), "{}", call.err);
}

#[test]
fn a_wrong_address_says_what_the_forms_are() {
    let call = stepwell(&["runs", "list", "--store", "mysql://x"]);
    assert_eq!(call.code, 1);
    assert!(call.err.contains("sqlite:PATH"), "{}", call.err);
}

#[test]
fn a_kind_of_store_is_no_name_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    for kind in ["memory", "sqlite", "postgres"] {
        let call = stepwell_in(folder.path(), &["db", "migrate", "--store", kind]);
        assert_eq!(call.code, 1, "{}{}", call.out, call.err);
        let file = format!("written as ./{kind}");
        for text in ["STORE_UNUSABLE", &file, "memory:"] {
            assert!(call.err.contains(text), "{}", call.err);
        }
        assert!(!folder.path().join(kind).exists());
    }
}

#[test]
fn every_store_code_is_explained() {
    for kind in ["UNAVAILABLE", "ANSWER_LOST", "FULL", "READ_ONLY", "HELD"] {
        assert_eq!(stepwell(&["explain", &format!("STORE_{kind}")]).code, 0);
    }
}
