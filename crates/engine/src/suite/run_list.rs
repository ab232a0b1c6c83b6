//! Lists of runs with all their filters, and how many runs they have for each status.

use std::collections::BTreeMap;

use super::fixture::{Fixture, at, plan};
use crate::store::{Append, Head, NewRun, RunFilter, RunNo};

super::table![
    a_list_says_what_a_run_is,
    lists_have_runs_of_several_statuses_in_one_order,
    lists_are_filtered_by_what_was_said_at_the_start,
    lists_are_filtered_by_language,
    lists_are_filtered_by_all_labels,
    lists_are_filtered_by_times,
    lists_are_searched_for_text,
    a_search_ends_after_so_many_runs_and_goes_on_there,
    a_unique_key_finds_runs_that_have_ended,
    filters_are_combined,
    lists_of_several_versions_of_a_plan_have_one_order,
    every_filter_has_pages,
    runs_are_counted_by_status,
];

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(pair).collect()
}

fn has(status: &str, ended: Option<i64>) -> Head {
    Head {
        status: status.into(),
        ended_at: ended.map(at),
        ..Head::default()
    }
}

/// A run whose row and head are changed before it is created.
fn run(w: &Fixture, run_id: &str, head: Head, change: impl FnOnce(&mut NewRun)) -> RunNo {
    w.run_with(run_id, |append: &mut Append| {
        append.head = Some(head);
        change(append.create.as_mut().unwrap());
    })
}

fn ids(w: &Fixture, change: impl FnOnce(&mut RunFilter)) -> Vec<String> {
    let mut filter = RunFilter {
        limit: 99,
        ..RunFilter::default()
    };
    change(&mut filter);
    let runs = w.store.list(&filter).unwrap();
    runs.into_iter().map(|it| it.run_id).collect()
}

fn a_list_says_what_a_run_is(w: &Fixture) {
    let no = run(w, "a", has("RUNNING", None), |new| {
        new.parent = Some("mother".into());
        new.event_key = "order-1".into();
        new.labels = labels(&[("team", "payments"), ("ärger", "nö")]);
    });
    run(w, "b", has("COMPLETED", Some(5)), |_| {});
    let filter = RunFilter {
        limit: 9,
        ..RunFilter::default()
    };
    let rows = w.store.list(&filter).unwrap();
    let (b, a) = (&rows[0], &rows[1]);
    assert_eq!((a.run, a.run_id.as_str(), a.last_seq), (no, "a", 1));
    assert_eq!(
        (a.plan_id.as_str(), a.plan_version.as_str()),
        ("plan_suite", "1")
    );
    assert_eq!((a.language.as_str(), a.tenant.as_str()), ("plan", "tenant"));
    assert_eq!(
        (a.project.as_str(), a.environment.as_str()),
        ("project", "test")
    );
    assert_eq!(a.parent.as_deref(), Some("mother"));
    assert_eq!(a.unique_key.as_deref(), Some("order-1"));
    assert_eq!(a.labels, labels(&[("team", "payments"), ("ärger", "nö")]));
    assert_eq!((a.created_at, &a.head), (at(0), &has("RUNNING", None)));
    assert_eq!((b.parent.as_deref(), b.unique_key.as_deref()), (None, None));
    assert_eq!(
        (&b.labels, &b.head),
        (&labels(&[]), &has("COMPLETED", Some(5)))
    );
}

fn lists_have_runs_of_several_statuses_in_one_order(w: &Fixture) {
    for (id, status) in [
        ("a", "FAILED"),
        ("b", "RUNNING"),
        ("c", "PAUSED"),
        ("d", "FAILED"),
    ] {
        run(w, id, has(status, None), |_| {});
    }
    let of = |statuses: &[&str]| {
        ids(w, |it| {
            it.statuses = statuses.iter().map(ToString::to_string).collect()
        })
    };
    assert_eq!(of(&["FAILED", "RUNNING"]), ["d", "b", "a"]);
    assert_eq!(
        of(&["RUNNING", "FAILED", "RUNNING"]),
        ["d", "b", "a"],
        "no run twice"
    );
    assert_eq!(of(&["PAUSED", "COMPLETED"]), ["c"]);
    assert_eq!(of(&["failed"]), Vec::<String>::new());
    assert_eq!(of(&[]).len(), 4);
    let page = ids(w, |it| {
        it.statuses = vec!["FAILED".into(), "RUNNING".into()];
        it.limit = 2;
    });
    assert_eq!(page, ["d", "b"]);
}

fn lists_are_filtered_by_what_was_said_at_the_start(w: &Fixture) {
    let running = || has("RUNNING", None);
    run(w, "plain", running(), |_| {});
    run(w, "tenant", running(), |new| new.tenant = "t2".into());
    run(w, "project", running(), |new| new.project = "p2".into());
    run(w, "environment", running(), |new| {
        new.environment = "e2".into()
    });
    run(w, "child", running(), |new| {
        new.parent = Some("plain".into())
    });
    run(w, "key", running(), |new| new.event_key = "order-1".into());
    assert_eq!(ids(w, |it| it.tenant = Some("t2".into())), ["tenant"]);
    assert_eq!(ids(w, |it| it.project = Some("p2".into())), ["project"]);
    assert_eq!(
        ids(w, |it| it.environment = Some("e2".into())),
        ["environment"]
    );
    assert_eq!(ids(w, |it| it.parent = Some("plain".into())), ["child"]);
    assert_eq!(ids(w, |it| it.unique_key = Some("order-1".into())), ["key"]);
    let none = ids(w, |it| it.unique_key = Some("plain".into()));
    assert_eq!(none, Vec::<String>::new(), "the id of a run is no key");
}

fn lists_are_filtered_by_language(w: &Fixture) {
    run(w, "a", has("RUNNING", None), |_| {});
    assert_eq!(ids(w, |it| it.language = Some("plan".into())), ["a"]);
    assert_eq!(
        ids(w, |it| it.language = Some("other".into())),
        Vec::<String>::new()
    );
    let both = ids(w, |it| {
        it.language = Some("plan".into());
        it.plan_id = Some("plan_suite".into());
    });
    assert_eq!(both, ["a"]);
}

fn lists_are_filtered_by_all_labels(w: &Fixture) {
    let running = || has("RUNNING", None);
    run(w, "a", running(), |new| {
        new.labels = labels(&[("team", "x"), ("kind", "slow")])
    });
    run(w, "b", running(), |new| {
        new.labels = labels(&[("team", "x")])
    });
    run(w, "c", running(), |new| {
        new.labels = labels(&[("team", "y"), ("kind", "slow")])
    });
    run(w, "d", running(), |_| {});
    let of =
        |wanted: &[(&str, &str)]| ids(w, |it| it.labels = labels(wanted).into_iter().collect());
    assert_eq!(of(&[("team", "x")]), ["b", "a"]);
    assert_eq!(of(&[("kind", "slow")]), ["c", "a"]);
    assert_eq!(of(&[("team", "x"), ("kind", "slow")]), ["a"]);
    assert_eq!(of(&[("team", "X")]), Vec::<String>::new());
    assert_eq!(of(&[("team", "slow")]), Vec::<String>::new());
}

fn lists_are_filtered_by_times(w: &Fixture) {
    for (id, created, ended) in [
        ("a", 1, Some(10)),
        ("b", 3, None),
        ("c", 2, Some(20)),
        ("d", 4, Some(15)),
    ] {
        let status = if ended.is_some() {
            "COMPLETED"
        } else {
            "RUNNING"
        };
        run(w, id, has(status, ended), |new| {
            new.created_at = at(created)
        });
    }
    let created = |from: Option<i64>, until: Option<i64>| {
        ids(w, |it| {
            it.created_from = from.map(at);
            it.created_until = until.map(at);
        })
    };
    assert_eq!(created(Some(2), None), ["d", "c", "b"]);
    assert_eq!(created(Some(2), Some(4)), ["c", "b"]);
    assert_eq!(created(None, Some(2)), ["a"]);
    let ended = |from: Option<i64>, until: Option<i64>| {
        ids(w, |it| {
            it.ended_from = from.map(at);
            it.ended_until = until.map(at);
        })
    };
    assert_eq!(ended(Some(15), None), ["d", "c"]);
    assert_eq!(ended(Some(10), Some(20)), ["d", "a"]);
    assert_eq!(ended(None, Some(15)), ["a"]);
    assert_eq!(
        ended(None, Some(99)),
        ["d", "c", "a"],
        "a run that is open has no end"
    );
}

fn lists_are_searched_for_text(w: &Fixture) {
    let other = w.store.put_plan(&plan("shop.Order")).unwrap();
    let running = || has("RUNNING", None);
    run(w, "Invoice-7", running(), |_| {});
    run(w, "b", running(), |new| new.event_key = "invoice-8".into());
    run(w, "c", running(), |new| {
        new.labels = labels(&[("note", "an INVOICE, Ärger")])
    });
    run(w, "d", running(), |new| new.plan = Some(other));
    run(w, "e", running(), |new| {
        new.labels = labels(&[("invoice", "50%_")])
    });
    let of = |text: &str| ids(w, |it| it.text = Some(text.into()));
    assert_eq!(
        of("INVOICE"),
        ["c", "b", "Invoice-7"],
        "names of labels are not searched"
    );
    assert_eq!(of("p.order"), ["d"]);
    assert_eq!(of("0%_"), ["e"], "no character stands for others");
    assert_eq!(of("Ärg"), ["c"]);
    assert_eq!(of("nothing of it"), Vec::<String>::new());
    assert_eq!(of("").len(), 5);
}

fn a_unique_key_finds_runs_that_have_ended(w: &Fixture) {
    let keyed = |new: &mut NewRun| new.event_key = "order-1".into();
    run(w, "first", has("COMPLETED", Some(3)), keyed);
    run(w, "second", has("RUNNING", None), keyed);
    let both = ids(w, |it| it.unique_key = Some("order-1".into()));
    assert_eq!(both, ["second", "first"]);
}

fn filters_are_combined(w: &Fixture) {
    let wanted = |new: &mut NewRun| {
        new.tenant = "t2".into();
        new.labels = labels(&[("team", "x")]);
        new.event_key = "order-1".into();
        new.parent = Some("mother".into());
        new.created_at = at(5);
    };
    run(w, "all", has("FAILED", Some(9)), wanted);
    run(w, "status", has("COMPLETED", Some(9)), wanted);
    run(w, "tenant", has("FAILED", Some(9)), |new| {
        wanted(new);
        new.tenant = "t3".into();
    });
    run(w, "label", has("FAILED", Some(9)), |new| {
        wanted(new);
        new.labels.clear();
    });
    run(w, "time", has("FAILED", Some(9)), |new| {
        wanted(new);
        new.created_at = at(6);
    });
    let every = |it: &mut RunFilter| {
        it.statuses = vec!["FAILED".into(), "CANCELLED".into()];
        it.tenant = Some("t2".into());
        it.project = Some("project".into());
        it.environment = Some("test".into());
        it.plan_id = Some("plan_suite".into());
        it.language = Some("plan".into());
        it.labels = vec![("team".into(), "x".into())];
        it.unique_key = Some("order-1".into());
        it.parent = Some("mother".into());
        it.text = Some("ORDER".into());
        it.created_from = Some(at(5));
        it.created_until = Some(at(6));
        it.ended_from = Some(at(9));
        it.ended_until = Some(at(10));
    };
    assert_eq!(ids(w, every), ["all"]);
    let mut filter = RunFilter::default();
    every(&mut filter);
    assert_eq!(
        w.store.count_runs(&filter).unwrap().by_status,
        [("FAILED".to_owned(), 1)]
    );
    // Without its first condition each list is found in another way.
    filter.limit = 9;
    filter.labels.clear();
    let listed = |filter: &RunFilter| {
        let runs = w.store.list(filter).unwrap();
        runs.into_iter().map(|it| it.run_id).collect::<Vec<_>>()
    };
    assert_eq!(listed(&filter), ["label", "all"]);
    filter.unique_key = None;
    assert_eq!(listed(&filter), ["label", "all"]);
    filter.parent = None;
    assert_eq!(listed(&filter), ["label", "all"]);
    filter.statuses.clear();
    assert_eq!(listed(&filter), ["label", "status", "all"]);
    filter.plan_id = None;
    assert_eq!(listed(&filter), ["label", "status", "all"]);
    filter.tenant = None;
    assert_eq!(listed(&filter), ["label", "tenant", "status", "all"]);
    (filter.created_from, filter.created_until) = (None, None);
    assert_eq!(
        listed(&filter),
        ["time", "label", "tenant", "status", "all"]
    );
    filter.open = true;
    assert_eq!(listed(&filter), Vec::<String>::new());
}

fn lists_of_several_versions_of_a_plan_have_one_order(w: &Fixture) {
    let mut later = plan("plan_suite").net().clone();
    later.plan_version = "2".into();
    let later = stepwell_kernel::plan::Plan::new(later).unwrap();
    let later = w.store.put_plan(&later).unwrap();
    for (id, is_later) in [("a", false), ("b", true), ("c", false), ("d", true)] {
        run(w, id, has("RUNNING", None), |new| {
            new.plan = Some(if is_later { later } else { w.plan });
        });
    }
    let page = ids(w, |it| {
        it.plan_id = Some("plan_suite".into());
        it.limit = 3;
    });
    assert_eq!(page, ["d", "c", "b"]);
}

fn every_filter_has_pages(w: &Fixture) {
    for number in 0..5 {
        run(w, &format!("run-{number}"), has("FAILED", Some(9)), |new| {
            new.labels = labels(&[("team", "x")]);
            new.event_key = "order-1".into();
            new.parent = Some("mother".into());
        });
    }
    let filters: [fn(&mut RunFilter); 9] = [
        |_| {},
        |it| it.statuses = vec!["FAILED".into(), "PAUSED".into()],
        |it| it.tenant = Some("tenant".into()),
        |it| it.plan_id = Some("plan_suite".into()),
        |it| it.labels = vec![("team".into(), "x".into())],
        |it| it.unique_key = Some("order-1".into()),
        |it| it.parent = Some("mother".into()),
        |it| it.created_from = Some(at(0)),
        |it| it.ended_from = Some(at(0)),
    ];
    for change in filters {
        let mut filter = RunFilter {
            limit: 2,
            ..RunFilter::default()
        };
        change(&mut filter);
        let mut seen = Vec::new();
        loop {
            let page = w.store.list(&filter).unwrap();
            let Some(last) = page.last() else { break };
            filter.before = Some(last.run);
            seen.extend(page.into_iter().map(|it| it.run_id));
        }
        assert_eq!(
            seen,
            ["run-4", "run-3", "run-2", "run-1", "run-0"],
            "{filter:?}"
        );
    }
}

fn runs_are_counted_by_status(w: &Fixture) {
    for (id, status, tenant) in [
        ("a", "RUNNING", "t"),
        ("b", "FAILED", "t"),
        ("c", "FAILED", "u"),
        ("d", "COMPLETED", "u"),
    ] {
        run(w, id, has(status, None), |new| {
            new.tenant = tenant.into();
            new.labels = labels(&[("team", tenant)]);
        });
    }
    let counted = |change: fn(&mut RunFilter)| {
        let mut filter = RunFilter {
            // Neither matters: all runs are counted.
            limit: 1,
            before: Some(RunNo(1)),
            ..RunFilter::default()
        };
        change(&mut filter);
        w.store.count_runs(&filter).unwrap().by_status
    };
    let count = |status: &str, count: u64| (status.to_owned(), count);
    let all = [
        count("COMPLETED", 1),
        count("FAILED", 2),
        count("RUNNING", 1),
    ];
    assert_eq!(counted(|_| {}), all);
    let of_u = [count("COMPLETED", 1), count("FAILED", 1)];
    assert_eq!(counted(|it| it.tenant = Some("u".into())), of_u);
    assert_eq!(
        counted(|it| it.labels = vec![("team".into(), "u".into())]),
        of_u
    );
    assert_eq!(counted(|it| it.plan_id = Some("plan_suite".into())), all);
    assert_eq!(counted(|it| it.plan_id = Some("none".into())), []);
    let some = counted(|it| it.statuses = vec!["RUNNING".into(), "FAILED".into()]);
    assert_eq!(some, [count("FAILED", 2), count("RUNNING", 1)]);
    assert_eq!(
        counted(|it| it.text = Some("B".into())),
        [count("FAILED", 1)]
    );
}

fn a_search_ends_after_so_many_runs_and_goes_on_there(w: &Fixture) {
    let oldest = run(w, "needle", has("FAILED", Some(1)), |new| {
        (new.tenant, new.project) = ("t".into(), "rare".into());
        new.environment = "rare".into();
        new.labels = labels(&[("team", "x"), ("kind", "rare")]);
    });
    let mut appends = Vec::new();
    for place in 0..60 {
        let mut append = w.new_run(w.number(), &format!("hay-{place}"));
        let new = append.create.as_mut().unwrap();
        (new.tenant, new.labels) = ("t".into(), labels(&[("team", "x")]));
        append.head = Some(has("FAILED", Some(9)));
        appends.push(append);
    }
    w.send(at(0), appends);
    // No index has all of it.
    let searches: [fn(&mut RunFilter); 8] = [
        |it| it.text = Some("NEEDLE".into()),
        |it| (it.text, it.tenant) = (Some("NEEDLE".into()), Some("t".into())),
        |it| it.project = Some("rare".into()),
        |it| (it.tenant, it.environment) = (Some("t".into()), Some("rare".into())),
        |it| (it.statuses, it.project) = (vec!["FAILED".into()], Some("rare".into())),
        |it| (it.plan_id, it.text) = (Some("plan_suite".into()), Some("needle".into())),
        |it| it.labels = vec![("team".into(), "x".into()), ("kind".into(), "rare".into())],
        |it| (it.created_from, it.project) = (Some(at(0)), Some("rare".into())),
    ];
    for change in searches {
        let mut filter = RunFilter {
            limit: 10,
            look_at: Some(7),
            ..RunFilter::default()
        };
        change(&mut filter);
        let counts = w.store.count_runs(&filter).unwrap();
        assert!(
            counts.is_partial && counts.by_status.is_empty(),
            "{filter:?}: {counts:?}"
        );
        let mut pages = 0;
        let found = loop {
            let page = w.store.search(&filter).unwrap();
            pages += 1;
            match page.searched_to {
                Some(last) if page.runs.is_empty() => filter.before = Some(last),
                _ => break page.runs,
            }
        };
        assert!((5..=10).contains(&pages), "{pages} pages of {filter:?}");
        assert_eq!(found.iter().map(|it| it.run).collect::<Vec<_>>(), [oldest]);
        // Without a limit it is found at once.
        (filter.before, filter.look_at) = (None, None);
        let found = w.store.search(&filter).unwrap();
        assert_eq!(
            (found.runs.len(), found.searched_to),
            (1, None),
            "{filter:?}"
        );
        let counts = w.store.count_runs(&filter).unwrap();
        assert_eq!(counts.by_status, [("FAILED".to_owned(), 1)], "{filter:?}");
        assert!(
            !counts.is_partial && filter.fits(&found.runs[0]),
            "{filter:?}"
        );
    }
    // What an index has is counted further, and a page that is full is followed by the rest.
    let mut filter = RunFilter {
        statuses: vec!["FAILED".into()],
        limit: 61,
        look_at: Some(7),
        ..RunFilter::default()
    };
    let page = w.store.search(&filter).unwrap();
    assert!(page.runs.len() == 61 || page.searched_to.is_some());
    filter.look_at = Some(61);
    assert_eq!(w.store.count_runs(&filter).unwrap().by_status[0].1, 61);
    let runs = [oldest, RunNo(i64::MAX)];
    let rows = w.store.summaries(&runs).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(w.store.summary(oldest).unwrap().as_ref(), rows.first());
}
