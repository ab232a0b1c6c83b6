//! Which runs have changed since a mark.

use std::time::{Duration, Instant};

use super::fixture::{Fixture, at, next};
use crate::store::{AppendResult, Changed, DeleteFilter, Head, Mark, RunNo};

super::table![
    changes_are_told_from_a_mark_on,
    a_mark_that_the_store_does_not_know_is_lost,
    more_changes_than_asked_for_are_not_told,
    a_mark_of_a_deleted_run_tells_nothing_wrong,
];

/// Reads until these runs were told. A database may hold changes back while other transactions are under way.
fn told(w: &Fixture, mark: &mut Mark, wanted: &[RunNo]) {
    let until = Instant::now() + Duration::from_secs(20);
    let mut seen: Vec<RunNo> = Vec::new();
    while !wanted.iter().all(|it| seen.contains(it)) {
        assert!(Instant::now() < until, "{seen:?} instead of {wanted:?}");
        match w.store.changed_since(mark, 100).unwrap() {
            Changed::Runs(runs, new) => {
                assert!(new.at >= mark.at, "{new} after {mark}");
                seen.extend(runs);
                *mark = new;
            }
            other => panic!("{other:?}"),
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, wanted);
}

fn changes_are_told_from_a_mark_on(w: &Fixture) {
    let mut mark = w.store.mark().unwrap();
    let (a, b) = (w.run("a"), w.run("b"));
    told(w, &mut mark, &[a, b]);
    assert_eq!(w.one(next(b, 1)), AppendResult::Committed);
    let begin = mark.clone();
    told(w, &mut mark, &[b]);
    assert_eq!(w.one(next(a, 1)), AppendResult::Committed);
    assert_eq!(w.one(next(a, 2)), AppendResult::Committed);
    told(w, &mut mark, &[a]);
    // Anyone may go on from any mark, as often as they like.
    told(w, &mut begin.clone(), &[a, b]);
    if let Some(second) = &w.second {
        let until = Instant::now() + Duration::from_secs(20);
        while second.changed_since(&mark, 9).unwrap() == Changed::Lost {
            assert!(Instant::now() < until);
        }
    }
}

fn a_mark_that_the_store_does_not_know_is_lost(w: &Fixture) {
    w.run("a");
    let mark = w.store.mark().unwrap();
    let later = Mark {
        at: mark.at + 1_000_000_000,
        ..mark
    };
    assert_eq!(w.store.changed_since(&later, 9).unwrap(), Changed::Lost);
}

fn more_changes_than_asked_for_are_not_told(w: &Fixture) {
    let mut mark = w.store.mark().unwrap();
    let begin = mark.clone();
    let runs = ["a", "b", "c"].map(|it| w.run(it));
    told(w, &mut mark, &runs);
    assert_eq!(w.store.changed_since(&begin, 2).unwrap(), Changed::TooMany);
}

fn a_mark_of_a_deleted_run_tells_nothing_wrong(w: &Fixture) {
    let mut mark = w.store.mark().unwrap();
    let old = w.run_with("old", |append| {
        append.head = Some(Head {
            status: "COMPLETED".into(),
            ended_at: Some(at(1)),
            ..Head::default()
        });
    });
    told(w, &mut mark, &[old]);
    let filter = DeleteFilter {
        ended_before: at(10),
        ..DeleteFilter::default()
    };
    assert_eq!(w.store.delete_ended(&filter, 9, at(20)).unwrap().len(), 1);
    let new = w.run("new");
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match w.store.changed_since(&mark, 9).unwrap() {
            // The place of the mark is gone with its run.
            Changed::Lost => break,
            Changed::Runs(runs, _) if runs.contains(&new) => break,
            Changed::Runs(..) => assert!(Instant::now() < until, "the new run is never told"),
            Changed::TooMany => panic!("there is one run"),
        }
    }
}
