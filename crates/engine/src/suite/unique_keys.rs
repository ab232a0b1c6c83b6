//! Unique keys: at most one open run of a tenant has a key, taken and freed with the run's own change.

use super::fixture::{Fixture, at, free, next, slot, take};
use crate::store::{Append, AppendResult, RunNo};

super::table![
    unique_keys_belong_to_one_open_run,
    unique_keys_are_free_when_the_run_ends,
    unique_keys_are_freed_by_their_run_alone,
    unique_keys_of_other_tenants_do_not_meet,
    unique_keys_in_one_batch_go_to_the_first,
    a_unique_key_freed_in_a_batch_can_be_taken_after_it,
    a_loser_takes_no_unique_key,
    a_loser_frees_no_unique_key,
];

fn keyed(w: &Fixture, run: RunNo, run_id: &str, tenant: &str) -> Append {
    Append {
        unique_key: take(tenant, "o-1"),
        ..w.new_run(run, run_id)
    }
}

fn ends(run: RunNo, after: u64) -> Append {
    Append {
        unique_key: free("acme", "o-1"),
        ..next(run, after)
    }
}

fn taken(holder: &str) -> AppendResult {
    AppendResult::UniqueKeyTaken(holder.into())
}

fn unique_keys_belong_to_one_open_run(w: &Fixture) {
    let (a, b) = (w.number(), w.number());
    assert_eq!(w.one(keyed(w, a, "a", "acme")), AppendResult::Committed);
    assert_eq!(w.one(keyed(w, b, "b", "acme")), taken("a"));
    assert_eq!(w.store.find("b").unwrap(), None);
    let mut itself = next(a, 1);
    itself.unique_key = take("acme", "o-1");
    assert_eq!(w.one(itself), AppendResult::Committed, "its own key");
    assert_eq!(w.one(keyed(w, b, "b", "acme")), taken("a"));
}

fn unique_keys_are_free_when_the_run_ends(w: &Fixture) {
    for run_id in ["a", "b", "c"] {
        let run = w.number();
        assert_eq!(
            w.one(keyed(w, run, run_id, "acme")),
            AppendResult::Committed
        );
        assert_eq!(w.one(ends(run, 1)), AppendResult::Committed);
    }
}

fn unique_keys_are_freed_by_their_run_alone(w: &Fixture) {
    let (a, b) = (w.number(), w.number());
    let other = w.run("other");
    assert_eq!(w.one(keyed(w, a, "a", "acme")), AppendResult::Committed);
    assert_eq!(w.one(ends(other, 1)), AppendResult::Committed);
    assert_eq!(w.one(keyed(w, b, "b", "acme")), taken("a"));
    let mut wrong = next(a, 1);
    wrong.unique_key = free("acme", "o-2");
    assert_eq!(w.one(wrong), AppendResult::Committed);
    assert_eq!(w.one(keyed(w, b, "b", "acme")), taken("a"));
}

fn unique_keys_of_other_tenants_do_not_meet(w: &Fixture) {
    let (a, b) = (w.number(), w.number());
    let both = vec![keyed(w, a, "a", "acme"), keyed(w, b, "b", "globex")];
    let outcomes = w.send(at(0), both);
    assert_eq!(outcomes, [AppendResult::Committed, AppendResult::Committed]);
    // The run of another tenant frees nothing, and its own key is free again with its own end.
    let ended = Append {
        unique_key: free("globex", "o-1"),
        ..next(b, 1)
    };
    assert_eq!(w.one(ended), AppendResult::Committed);
    let (c, d) = (w.number(), w.number());
    assert_eq!(w.one(keyed(w, c, "c", "acme")), taken("a"));
    assert_eq!(w.one(keyed(w, d, "d", "globex")), AppendResult::Committed);
}

fn unique_keys_in_one_batch_go_to_the_first(w: &Fixture) {
    let (a, b) = (w.number(), w.number());
    let both = vec![keyed(w, a, "a", "acme"), keyed(w, b, "b", "acme")];
    let outcomes = w.send(at(0), both);
    assert_eq!(outcomes, [AppendResult::Committed, taken("a")]);
}

fn a_unique_key_freed_in_a_batch_can_be_taken_after_it(w: &Fixture) {
    let (a, b, c) = (w.number(), w.number(), w.number());
    assert_eq!(w.one(keyed(w, a, "a", "acme")), AppendResult::Committed);
    let all = vec![
        ends(a, 1),
        keyed(w, b, "b", "acme"),
        keyed(w, c, "c", "acme"),
    ];
    assert_eq!(
        w.send(at(0), all),
        [AppendResult::Committed, AppendResult::Committed, taken("b")]
    );
}

fn a_loser_takes_no_unique_key(w: &Fixture) {
    let (a, b) = (w.number(), w.number());
    let mut loser = keyed(w, a, "a", "acme");
    loser.slots = vec![slot("k", 2, 1)];
    let both = w.send(at(0), vec![loser, keyed(w, b, "b", "acme")]);
    assert_eq!(
        both,
        [AppendResult::SlotsFull("k".into()), AppendResult::Committed]
    );
}

fn a_loser_frees_no_unique_key(w: &Fixture) {
    let (a, b) = (w.number(), w.number());
    assert_eq!(w.one(keyed(w, a, "a", "acme")), AppendResult::Committed);
    assert_eq!(w.one(ends(a, 7)), AppendResult::Moved);
    assert_eq!(w.one(keyed(w, b, "b", "acme")), taken("a"));
}
