//! Ctrl-C in the middle of a step.

use crate::stage::{RUN, Stage, example, is_gone, soon};

const TRIP: &str = "actions/trip.yaml";

#[test]
fn a_step_that_ends_within_the_patience_is_not_executed_again() {
    let stage = Stage::new("drained");
    stage.hold("hotel");
    let process = stage.start(&example(TRIP), &[]);
    stage.begun("hotel", 1);
    process.send("INT");
    process.until("waiting up to");
    stage.release("hotel");
    let (code, said) = process.end();
    assert_eq!(code, 130, "{said}");
    assert!(said.contains("stepwell resume run_a"), "{said}");
    // What came of it is in the log, and nothing was begun after it.
    assert_eq!(stage.log().completed(), ["flight", "hotel"]);
    assert_eq!(stage.times("car"), (0, 0));

    stage.good(&["resume", RUN]);
    assert_eq!(
        stage.log().completed(),
        ["flight", "hotel", "car", "itinerary"]
    );
    assert_eq!(stage.times("hotel"), (1, 1));
    assert_eq!(stage.log().executions("hotel"), 1);
}

#[test]
fn a_second_interrupt_stops_at_once() {
    let stage = Stage::new("interrupted-twice");
    stage.hold("hotel");
    let process = stage.start(&example(TRIP), &[]);
    let step = stage.begun("hotel", 1);
    process.send("INT");
    process.until("waiting up to");
    process.send("INT");
    let (code, said) = process.end();
    assert_eq!(code, 130, "{said}");
    soon("the step ends with its worker", || is_gone(step));

    stage.hold_no_more("hotel");
    stage.good(&["resume", RUN]);
    let log = stage.log();
    assert_eq!(log.completed(), ["flight", "hotel", "car", "itinerary"]);
    assert_eq!(log.executions("hotel"), 2);
    assert_eq!(stage.times("hotel"), (2, 1));
    assert_eq!(stage.read("bookings.txt").matches("hotel").count(), 1);
}
