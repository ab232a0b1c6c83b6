//! What was done is undone for real when a later action fails for good.

use std::collections::BTreeSet;

use crate::test_site::{RUN, TestSite, example};

const TRIP: &str = "actions/trip.yaml";
const UNDONE: &str = "booked flight\nbooked hotel\ncancelled hotel\ncancelled flight\n";

fn is_undone(site: &TestSite) {
    assert_eq!(site.read("bookings.txt"), UNDONE);
    let log = site.log();
    assert_eq!(log.completed(), ["flight", "hotel"]);
    assert_eq!(log.count("StepFailed", "car"), 1);
    for step in ["flight", "hotel"] {
        assert_eq!(log.count("UndoCompleted", step), 1, "{:?}", log.types());
    }
    assert_eq!(site.times("itinerary"), (0, 0));
    assert_eq!(site.show()["status"], "FAILED");
}

#[test]
fn what_was_done_is_undone_the_last_first() {
    let site = TestSite::new("saga");
    let call = site.run(&example(TRIP), &["--input", "cars=0"]);
    assert_eq!(call.code, 3, "{}{}", call.out, call.err);
    is_undone(&site);
    assert_eq!(site.times("car"), (2, 2), "two attempts were allowed");
    for text in ["no car is left", "SHELL_EXIT", "Compensated"] {
        assert!(call.out.contains(text), "{text}: {}", call.out);
    }
}

#[test]
fn an_undo_that_was_killed_is_taken_up_again() {
    let site = TestSite::new("saga-killed");
    site.hold("hotel~undo");
    let process = site.start(&example(TRIP), &["--input", "cars=0"]);
    site.begun("hotel~undo", 1);
    process.kill();
    assert_eq!(site.log().count("UndoCompleted", "hotel"), 0);

    site.hold_no_more("hotel~undo");
    let call = site.call(&["resume", RUN]);
    assert_eq!(call.code, 3, "{}{}", call.out, call.err);
    is_undone(&site);
    assert_eq!(site.times("hotel~undo"), (2, 1));
    assert_eq!(site.times("flight~undo"), (1, 1));
    let seen = site.seen();
    let undos = seen.iter().filter(|it| it.step == "hotel~undo");
    let keys: BTreeSet<&str> = undos.map(|it| it.key.as_str()).collect();
    assert_eq!(keys.len(), 1, "both executions have one key: {keys:?}");
}
