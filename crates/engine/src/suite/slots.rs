//! Slots: taken and freed with the run's own change, never more than there are.

use super::fixture::{Fixture, at, next, slot};
use crate::store::{Append, AppendResult, RunNo, SlotChange};

super::table![
    slots_never_exceed_their_limit,
    slots_are_counted_over_the_whole_batch,
    a_run_without_a_slot_loses_alone,
    a_slot_freed_in_a_batch_can_be_taken_after_it,
    slots_are_never_below_zero,
    a_smaller_limit_does_not_keep_slots_from_being_freed,
    no_limit_is_no_limit,
    all_slots_of_an_append_or_none,
];

fn takes(run: RunNo, after: u64, slots: Vec<SlotChange>) -> Append {
    Append {
        slots,
        ..next(run, after)
    }
}

fn full() -> AppendResult {
    AppendResult::SlotsFull("k".into())
}

fn slots_never_exceed_their_limit(w: &Fixture) {
    let a = w.run("a");
    assert_eq!(w.store.slots_taken("k").unwrap(), 0);
    let two = takes(a, 1, vec![slot("k", 2, 2)]);
    assert_eq!(w.one(two), AppendResult::Committed);
    assert_eq!(w.one(takes(a, 2, vec![slot("k", 1, 2)])), full());
    assert_eq!(w.store.slots_taken("k").unwrap(), 2);
    assert_eq!(w.last_seq(a), 2);
    let three = takes(a, 2, vec![slot("k", 1, 3)]);
    assert_eq!(
        w.one(three),
        AppendResult::Committed,
        "the limit was raised"
    );
}

fn slots_are_counted_over_the_whole_batch(w: &Fixture) {
    let runs = ["a", "b", "c", "d"].map(|id| w.run(id));
    let appends = runs.map(|run| takes(run, 1, vec![slot("k", 1, 2)]));
    let all = w.send(at(0), appends.to_vec());
    let won = AppendResult::Committed;
    assert_eq!(all, [won.clone(), won, full(), full()]);
    assert_eq!(w.store.slots_taken("k").unwrap(), 2);
}

fn a_run_without_a_slot_loses_alone(w: &Fixture) {
    let (a, b, c) = (w.run("a"), w.run("b"), w.run("c"));
    let appends = vec![
        takes(a, 1, vec![slot("k", 1, 5)]),
        takes(b, 1, vec![slot("k", 9, 5)]),
        takes(c, 1, vec![slot("k", 1, 5)]),
    ];
    let all = w.send(at(0), appends);
    assert_eq!(
        all,
        [AppendResult::Committed, full(), AppendResult::Committed]
    );
    assert_eq!(w.last_seq(b), 1);
    assert_eq!(w.store.slots_taken("k").unwrap(), 2);
}

fn a_slot_freed_in_a_batch_can_be_taken_after_it(w: &Fixture) {
    let (a, b) = (w.run("a"), w.run("b"));
    let first = takes(a, 1, vec![slot("k", 1, 1)]);
    assert_eq!(w.one(first), AppendResult::Committed);
    let appends = vec![
        takes(a, 2, vec![slot("k", -1, 1)]),
        takes(b, 1, vec![slot("k", 1, 1)]),
    ];
    let all = w.send(at(0), appends);
    assert_eq!(all, [AppendResult::Committed, AppendResult::Committed]);
    assert_eq!(w.store.slots_taken("k").unwrap(), 1);
}

fn slots_are_never_below_zero(w: &Fixture) {
    let a = w.run("a");
    let frees = takes(a, 1, vec![slot("k", -3, 1)]);
    assert_eq!(w.one(frees), AppendResult::Committed);
    assert_eq!(w.store.slots_taken("k").unwrap(), 0);
    let two = takes(a, 2, vec![slot("k", 2, 1)]);
    assert_eq!(w.one(two), full(), "nothing was saved up");
}

fn a_smaller_limit_does_not_keep_slots_from_being_freed(w: &Fixture) {
    let a = w.run("a");
    let three = takes(a, 1, vec![slot("k", 3, 3)]);
    assert_eq!(w.one(three), AppendResult::Committed);
    let frees = takes(a, 2, vec![slot("k", -1, 1)]);
    assert_eq!(w.one(frees), AppendResult::Committed);
    assert_eq!(w.store.slots_taken("k").unwrap(), 2);
}

fn no_limit_is_no_limit(w: &Fixture) {
    let a = w.run("a");
    let many = SlotChange {
        key: "k".into(),
        change: 100_000,
        limit: None,
    };
    assert_eq!(w.one(takes(a, 1, vec![many])), AppendResult::Committed);
    assert_eq!(w.store.slots_taken("k").unwrap(), 100_000);
}

fn all_slots_of_an_append_or_none(w: &Fixture) {
    let a = w.run("a");
    let both = vec![slot("free", 1, 1), slot("k", 1, 0)];
    assert_eq!(w.one(takes(a, 1, both)), full());
    assert_eq!(w.store.slots_taken("free").unwrap(), 0);
    let twice = vec![slot("free", 1, 1), slot("free", 1, 1)];
    let lost = AppendResult::SlotsFull("free".into());
    assert_eq!(w.one(takes(a, 1, twice)), lost, "the same key twice");
    let swapped = vec![slot("free", 1, 1), slot("free", -1, 1), slot("free", 1, 1)];
    assert_eq!(w.one(takes(a, 1, swapped)), AppendResult::Committed);
    assert_eq!(w.store.slots_taken("free").unwrap(), 1);
}
