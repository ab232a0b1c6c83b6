//! Stores that cannot be used: the exit code, and a message that says what to do.

use super::place::Place;
use super::stepwell;

const SAGA: &str = "examples/actions/order-saga.yaml";
const MOCK: [&str; 2] = ["--engine", "mock"];

fn refused(place: &Place, args: &[&str], code: &str, what: &str) {
    let call = place.call(args);
    assert_eq!(call.code, 1, "{args:?}: {}{}", call.out, call.err);
    assert!(call.out.is_empty(), "{}", call.out);
    for text in [code, what, &format!("stepwell explain {code}")] {
        assert!(call.err.contains(text), "{text}: {}", call.err);
    }
}

fn by_all(place: &Place, code: &str, what: &str) {
    refused(place, &[&["run", SAGA][..], &MOCK].concat(), code, what);
    refused(place, &["runs", "list"], code, what);
    refused(place, &["runs", "pause", "run_a"], code, what);
    refused(place, &["db", "check"], code, what);
}

#[test]
fn what_is_no_database_is_left_alone() {
    let place = Place::sqlite("corrupt");
    let text = "This is a letter, and a long one. ".repeat(200);
    place.file("runs.db", &text);
    by_all(&place, "STORE_CORRUPT", "it is not a database");
    assert_eq!(std::fs::read_to_string(place.database()).unwrap(), text);
}

/// The schema's version stands at this place of the file's header.
fn set_schema(place: &Place, version: u32) {
    let mut bytes = std::fs::read(place.database()).unwrap();
    bytes[60..64].copy_from_slice(&version.to_be_bytes());
    std::fs::write(place.database(), bytes).unwrap();
}

#[test]
fn whoever_only_reads_does_not_migrate() {
    let place = Place::sqlite("older");
    place.good(&["db", "migrate"]);
    set_schema(&place, 1);
    refused(
        &place,
        &["runs", "list"],
        "STORE_OLDER",
        "open it once as its owner",
    );
}

#[test]
fn a_newer_schema_is_left_alone() {
    let place = Place::sqlite("newer");
    place.good(&[&["run", SAGA][..], &MOCK].concat());
    set_schema(&place, 99);
    by_all(&place, "STORE_NEWER", "use the newer program");
}

#[test]
fn a_store_is_made_only_when_that_is_asked_for() {
    let place = Place::sqlite("missing");
    refused(
        &place,
        &["runs", "list"],
        "STORE_UNUSABLE",
        "it is not there",
    );
    refused(
        &place,
        &["runs", "pause", "x"],
        "STORE_UNUSABLE",
        "it is not there",
    );
    assert!(!place.database().exists());
    place.good(&["db", "migrate"]);
    assert_eq!(place.good(&["runs", "list"]), "no runs\n");
}

#[test]
fn a_server_that_is_not_there_is_said() {
    let mut place = Place::sqlite("unreachable");
    place.url = "postgresql://nobody:secret@127.0.0.1:1/nothing".into();
    refused(&place, &["runs", "list"], "STORE_UNAVAILABLE", "127.0.0.1");
    let call = place.call(&[&["run", SAGA][..], &MOCK].concat());
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
fn every_store_code_is_explained() {
    for kind in ["UNAVAILABLE", "ANSWER_LOST", "FULL", "READ_ONLY", "HELD"] {
        assert_eq!(stepwell(&["explain", &format!("STORE_{kind}")]).code, 0);
    }
}
