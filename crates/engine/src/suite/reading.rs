//! What is read back: runs, pages of the log, lists, plans, snapshots and projections.

use super::fixture::{Fixture, at, chunk, next, plan, running};
use crate::store::{Append, AppendResult, Head, PlanNo, RunFilter, RunNo, StateSnapshot};

super::table![
    numbers_are_given_once,
    the_same_plan_has_the_same_number,
    a_plan_is_read_back,
    chunks_are_read_in_pages,
    a_snapshot_saves_reading_what_is_before_it,
    several_runs_are_read_as_each_is_alone,
    an_older_snapshot_does_not_replace_a_newer_one,
    a_projection_never_goes_back,
    runs_are_listed_newest_first,
    lists_are_filtered,
    the_secret_stays_the_same,
    a_healthy_store_has_no_problems,
];

fn numbers_are_given_once(w: &Fixture) {
    let first = w.store.reserve_numbers(3).unwrap();
    let second = w.store.reserve_numbers(2).unwrap();
    assert_eq!(first.end - first.start, 3);
    assert_eq!(second.end - second.start, 2);
    assert!(first.end <= second.start, "later runs have larger numbers");
}

fn the_same_plan_has_the_same_number(w: &Fixture) {
    let again = w.store.put_plan(&plan("plan_suite")).unwrap();
    assert_eq!(again, w.plan);
    let other = w.store.put_plan(&plan("other")).unwrap();
    assert_ne!(other, w.plan);
}

fn a_plan_is_read_back(w: &Fixture) {
    let wrote = plan("plan_suite");
    let row = w.store.plan(w.plan).unwrap().unwrap();
    assert_eq!(row.no, w.plan);
    assert_eq!(
        (row.plan_id.as_str(), row.version.as_str()),
        ("plan_suite", "1")
    );
    assert_eq!(row.hash, wrote.hash());
    let net: stepwell_kernel::plan::Net = serde_json::from_str(&row.net).unwrap();
    assert_eq!(&net, wrote.net());
    assert_eq!(w.store.plan(PlanNo(987_654)).unwrap(), None);
}

/// Events 1, 2–4, 5–6 and 7 in a chunk each.
fn long(w: &Fixture) -> RunNo {
    let run = w.run("long");
    for (first, last) in [(2, 4), (5, 6), (7, 7)] {
        let append = Append {
            chunk: Some(chunk(first, last)),
            ..next(run, first - 1)
        };
        assert_eq!(w.one(append), AppendResult::Committed);
    }
    run
}

fn chunks_are_read_in_pages(w: &Fixture) {
    let run = long(w);
    let page = |after, limit| -> Vec<(u64, u64)> {
        let chunks = w.store.chunks(run, after, limit).unwrap();
        chunks.into_iter().map(|it| (it.first, it.last)).collect()
    };
    assert_eq!(page(0, 9), [(1, 1), (2, 4), (5, 6), (7, 7)]);
    assert_eq!(page(0, 2), [(1, 1), (2, 4)]);
    assert_eq!(page(4, 2), [(5, 6), (7, 7)]);
    assert_eq!(page(3, 1), [(2, 4)], "a chunk that holds later events");
    assert_eq!(page(7, 9), []);
    let all = w.store.chunks(run, 0, 9).unwrap();
    assert_eq!(all, w.load(run).chunks);
}

fn frozen(seq: u64, text: &str) -> StateSnapshot {
    StateSnapshot {
        seq,
        version: 3,
        body: text.as_bytes().to_vec(),
    }
}

fn a_snapshot_saves_reading_what_is_before_it(w: &Fixture) {
    let run = long(w);
    let append = Append {
        snapshot: Some(frozen(6, "state")),
        ..next(run, 7)
    };
    assert_eq!(w.one(append), AppendResult::Committed);
    let read = w.load(run);
    assert_eq!(read.snapshot, Some(frozen(6, "state")));
    let firsts: Vec<u64> = read.chunks.iter().map(|it| it.first).collect();
    assert_eq!(
        firsts,
        [5, 7, 8],
        "the one its last event is in comes along"
    );
    assert_eq!(w.store.chunks(run, 0, 9).unwrap().len(), 5, "all are kept");
}

fn several_runs_are_read_as_each_is_alone(w: &Fixture) {
    let (a, b, c) = (w.run("a"), long(w), w.run("c"));
    let with_snapshot = Append {
        snapshot: Some(frozen(6, "state")),
        ..next(b, 7)
    };
    assert_eq!(w.one(with_snapshot), AppendResult::Committed);
    w.store.post(c, "{}", at(5)).unwrap();
    let read = w.store.load_all(&[c, RunNo(987_654), b, a]).unwrap();
    assert_eq!(read, [w.load(c), w.load(b), w.load(a)]);
    assert_eq!(w.store.load_all(&[]).unwrap(), []);
}

fn an_older_snapshot_does_not_replace_a_newer_one(w: &Fixture) {
    let run = long(w);
    for (after, seq) in [(7, 4), (8, 2), (9, 6)] {
        let append = Append {
            snapshot: Some(frozen(seq, "state")),
            ..next(run, after)
        };
        assert_eq!(w.one(append), AppendResult::Committed);
        let kept = w.load(run).snapshot.unwrap().seq;
        assert_eq!(kept, if seq == 2 { 4 } else { seq });
    }
}

fn a_projection_never_goes_back(w: &Fixture) {
    let run = w.run("a");
    assert_eq!(w.store.projection(run).unwrap(), None);
    let put = |seq, text| w.store.put_projection(run, seq, text, at(0)).unwrap();
    put(2, "two");
    put(1, "one");
    assert_eq!(w.store.projection(run).unwrap(), Some((2, "two".into())));
    put(3, "three");
    assert_eq!(w.store.projection(run).unwrap(), Some((3, "three".into())));
}

fn ids(w: &Fixture, filter: &RunFilter) -> Vec<String> {
    let runs = w.store.list(filter).unwrap();
    runs.into_iter().map(|it| it.run_id).collect()
}

fn everything() -> RunFilter {
    RunFilter {
        limit: 99,
        ..RunFilter::default()
    }
}

fn runs_are_listed_newest_first(w: &Fixture) {
    let a = w.run("a");
    let b = w.run("b");
    w.run("c");
    assert_eq!(w.one(next(b, 1)), AppendResult::Committed);
    assert_eq!(ids(w, &everything()), ["c", "b", "a"]);
    let page = RunFilter {
        limit: 1,
        ..everything()
    };
    assert_eq!(ids(w, &page), ["c"]);
    let older = RunFilter {
        before: Some(b),
        ..everything()
    };
    assert_eq!(ids(w, &older), ["a"]);
    let rows = w.store.list(&everything()).unwrap();
    let row = &rows[1];
    assert_eq!((row.run, row.last_seq, &row.head), (b, 2, &running()));
    assert_eq!(
        (row.plan_id.as_str(), row.plan_version.as_str()),
        ("plan_suite", "1")
    );
    assert_eq!((row.tenant.as_str(), row.created_at), ("tenant", at(0)));
    assert_eq!((rows[2].run, rows[2].last_seq), (a, 1));
}

fn lists_are_filtered(w: &Fixture) {
    let other = w.store.put_plan(&plan("other")).unwrap();
    w.run("running");
    w.run_with("done", |append| {
        append.head = Some(Head {
            status: "COMPLETED".into(),
            ended_at: Some(at(9)),
            ..Head::default()
        });
    });
    w.run_with("planned", |append| {
        append.create.as_mut().unwrap().plan = Some(other)
    });
    w.run_with("rented", |append| {
        append.create.as_mut().unwrap().tenant = "t2".into()
    });
    let with = |change: fn(&mut RunFilter)| {
        let mut filter = everything();
        change(&mut filter);
        ids(w, &filter)
    };
    assert_eq!(with(|it| it.statuses = vec!["COMPLETED".into()]), ["done"]);
    assert_eq!(with(|it| it.plan_id = Some("other".into())), ["planned"]);
    assert_eq!(with(|it| it.tenant = Some("t2".into())), ["rented"]);
    assert_eq!(with(|it| it.open = true), ["rented", "planned", "running"]);
    let both = with(|it| {
        it.open = true;
        it.statuses = vec!["COMPLETED".into()];
    });
    assert_eq!(both, Vec::<String>::new());
}

fn the_secret_stays_the_same(w: &Fixture) {
    let secret = w.store.secret().unwrap();
    assert_eq!(w.store.secret().unwrap(), secret);
    assert_ne!(secret, [0; 32]);
    if let Some(second) = &w.second {
        assert_eq!(second.secret().unwrap(), secret);
    }
}

fn a_healthy_store_has_no_problems(w: &Fixture) {
    long(w);
    w.run_with("done", |append| {
        append.head = Some(Head {
            status: "COMPLETED".into(),
            ended_at: Some(at(9)),
            ..Head::default()
        });
    });
    let health = w.store.check().unwrap();
    assert_eq!((health.runs, health.open), (2, 1));
    assert_eq!(health.problems, Vec::<String>::new());
}
