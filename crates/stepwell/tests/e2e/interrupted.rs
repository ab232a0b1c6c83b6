//! Ctrl-C in the middle of a step.

use crate::test_site::{RUN, TestSite, example, is_gone, soon};

const TRIP: &str = "actions/trip.yaml";

#[test]
fn a_step_that_ends_within_the_patience_is_not_executed_again() {
    let site = TestSite::new("drained");
    site.hold("hotel");
    let process = site.start(&example(TRIP), &[]);
    site.begun("hotel", 1);
    process.send("INT");
    process.until("waiting up to");
    site.release("hotel");
    let (code, said) = process.end();
    assert_eq!(code, 130, "{said}");
    assert!(said.contains("stepwell resume run_a"), "{said}");
    // What came of it is in the log, and nothing was begun after it.
    assert_eq!(site.log().completed(), ["flight", "hotel"]);
    assert_eq!(site.times("car"), (0, 0));

    site.good(&["resume", RUN]);
    assert_eq!(
        site.log().completed(),
        ["flight", "hotel", "car", "itinerary"]
    );
    assert_eq!(site.times("hotel"), (1, 1));
    assert_eq!(site.log().executions("hotel"), 1);
}

#[test]
fn a_second_interrupt_stops_at_once() {
    let site = TestSite::new("interrupted-twice");
    site.hold("hotel");
    let process = site.start(&example(TRIP), &[]);
    let step = site.begun("hotel", 1);
    process.send("INT");
    process.until("waiting up to");
    process.send("INT");
    let (code, said) = process.end();
    assert_eq!(code, 130, "{said}");
    soon("the step ends with its worker", || is_gone(step));

    site.hold_no_more("hotel");
    site.good(&["resume", RUN]);
    let log = site.log();
    assert_eq!(log.completed(), ["flight", "hotel", "car", "itinerary"]);
    assert_eq!(log.executions("hotel"), 2);
    assert_eq!(site.times("hotel"), (2, 1));
    assert_eq!(site.read("bookings.txt").matches("hotel").count(), 1);
}
