//! The outbox in order for each run, dead letters, and alerts.

use super::fixture::{Fixture, alert, at, next, rows};
use crate::store::{
    AlertRow, Append, AppendResult, Marker, NoticeFilter, RunNo, SinkRow, SinkStart,
};

super::table![
    a_chunk_has_one_marker_for_each_sink,
    no_chunk_no_marker,
    a_registered_sink_gets_every_chunk_of_every_commit,
    a_registered_sink_can_begin_at_the_beginning,
    order_per_run_holds_in_the_outbox,
    a_marker_that_is_not_due_holds_up_its_run,
    a_marker_is_its_publishers_for_a_while,
    sinks_do_not_hold_up_each_other,
    runs_do_not_hold_up_each_other,
    a_failure_is_counted,
    a_buried_marker_is_a_letter_and_an_alert,
    burying_what_was_sent_does_nothing,
    a_letter_goes_back_in_its_place,
    the_backlog_is_counted_from_the_oldest,
    alerts_are_read_newest_first,
    alerts_and_dead_letters_are_filtered_and_paged,
];

fn told(run: RunNo, after: u64, sinks: &[&str]) -> Append {
    Append {
        sinks: sinks.iter().map(ToString::to_string).collect(),
        ..next(run, after)
    }
}

/// A run whose events `1..=events` each are a chunk for `hook`.
fn noisy(w: &Fixture, run_id: &str, events: u64) -> RunNo {
    let run = w.run_with(run_id, |append| append.sinks = vec!["hook".into()]);
    for after in 1..events {
        let now = at(after as i64);
        assert_eq!(
            w.one_at(now, told(run, after, &["hook"])),
            AppendResult::Committed
        );
    }
    run
}

fn take(w: &Fixture, now: i64, until: i64) -> Vec<Marker> {
    let taken = w.store.take("hook", "me", at(now), at(until), 9);
    taken.unwrap()
}

fn firsts(markers: &[Marker]) -> Vec<(&str, u64)> {
    let show = |it| {
        let it: &Marker = it;
        (it.run_id.as_str(), it.first)
    };
    markers.iter().map(show).collect()
}

fn a_chunk_has_one_marker_for_each_sink(w: &Fixture) {
    let a = w.run("a");
    let append = told(a, 1, &["hook", "bus"]);
    assert_eq!(w.one(append), AppendResult::Committed);
    for sink in ["hook", "bus"] {
        let got = w.store.take(sink, "me", at(1), at(9), 9).unwrap();
        let expected = Marker {
            sink: sink.into(),
            run: a,
            run_id: "a".into(),
            first: 2,
            attempts: 0,
        };
        assert_eq!(got, [expected]);
    }
    assert_eq!(w.store.take("none", "me", at(1), at(9), 9).unwrap(), []);
}

fn no_chunk_no_marker(w: &Fixture) {
    let a = w.run("a");
    let append = Append {
        sinks: vec!["hook".into()],
        ..rows(a, 1, 1)
    };
    assert_eq!(w.one(append), AppendResult::Committed);
    assert_eq!(take(w, 1, 9), []);
}

fn hook() -> SinkRow {
    SinkRow {
        name: "hook".into(),
        address: "webhook:https://example.com/".into(),
        since: at(1),
    }
}

fn a_registered_sink_gets_every_chunk_of_every_commit(w: &Fixture) {
    let a = w.run("a");
    assert_eq!(w.store.add_sink(&hook(), SinkStart::Now, at(1)).unwrap(), 0);
    assert_eq!(w.store.sinks().unwrap(), [hook()]);
    // Nobody names the sink; one who does marks no chunk twice.
    assert_eq!(w.one(next(a, 1)), AppendResult::Committed);
    assert_eq!(w.one(told(a, 2, &["hook"])), AppendResult::Committed);
    w.run("b");
    let lost = w.one(next(a, 1));
    assert_ne!(lost, AppendResult::Committed);
    assert_eq!(w.store.backlog("hook").unwrap().0, 3);
    assert_eq!(firsts(&take(w, 9, 20)), [("a", 2), ("b", 1)]);
    assert_eq!(w.store.remove_sink("hook").unwrap(), Some(3));
    assert_eq!(w.store.remove_sink("hook").unwrap(), None);
    assert_eq!(w.one(next(a, 3)), AppendResult::Committed);
    assert_eq!(w.store.backlog("hook").unwrap().0, 0);
    assert_eq!(w.store.sinks().unwrap(), []);
}

fn a_registered_sink_can_begin_at_the_beginning(w: &Fixture) {
    let a = w.run("a");
    assert_eq!(w.one(next(a, 1)), AppendResult::Committed);
    let marked = w.store.add_sink(&hook(), SinkStart::Beginning, at(5));
    assert_eq!(marked.unwrap(), 2);
    assert_eq!(w.one(next(a, 2)), AppendResult::Committed);
    assert_eq!(w.store.backlog("hook").unwrap().0, 3);
    let got = take(w, 9, 20);
    assert_eq!(firsts(&got), [("a", 1)]);
    w.store.sent(&got[0]).unwrap();
    // Again: what was delivered is marked again, what waits is not marked twice.
    let moved = SinkRow {
        address: "webhook:https://example.org/".into(),
        ..hook()
    };
    let marked = w.store.add_sink(&moved, SinkStart::Beginning, at(6));
    assert_eq!(marked.unwrap(), 1);
    assert_eq!(w.store.sinks().unwrap(), [moved]);
    assert_eq!(w.store.backlog("hook").unwrap().0, 3);
}

fn order_per_run_holds_in_the_outbox(w: &Fixture) {
    noisy(w, "a", 3);
    for first in 1..=3 {
        let got = take(w, 10, 20);
        assert_eq!(firsts(&got), [("a", first)]);
        assert_eq!(take(w, 10, 20), [], "the next waits for this one");
        w.store.sent(&got[0]).unwrap();
    }
    assert_eq!(take(w, 10, 20), []);
}

fn a_marker_that_is_not_due_holds_up_its_run(w: &Fixture) {
    noisy(w, "a", 2);
    let got = take(w, 10, 20);
    w.store.failed(&got[0], at(50), "refused").unwrap();
    assert_eq!(take(w, 49, 90), []);
    assert_eq!(firsts(&take(w, 50, 90)), [("a", 1)]);
}

fn a_marker_is_its_publishers_for_a_while(w: &Fixture) {
    noisy(w, "a", 1);
    assert_eq!(take(w, 10, 20).len(), 1);
    assert_eq!(take(w, 20, 30), [], "its last instant");
    assert_eq!(firsts(&take(w, 21, 30)), [("a", 1)]);
}

fn sinks_do_not_hold_up_each_other(w: &Fixture) {
    let a = w.run_with("a", |append| {
        append.sinks = vec!["hook".into(), "bus".into()]
    });
    let next = told(a, 1, &["hook", "bus"]);
    assert_eq!(w.one(next), AppendResult::Committed);
    let bus = w.store.take("bus", "me", at(1), at(9), 9).unwrap();
    w.store.sent(&bus[0]).unwrap();
    let bus = w.store.take("bus", "me", at(1), at(9), 9).unwrap();
    assert_eq!(firsts(&bus), [("a", 2)]);
    assert_eq!(firsts(&take(w, 1, 9)), [("a", 1)]);
}

fn runs_do_not_hold_up_each_other(w: &Fixture) {
    noisy(w, "a", 2);
    noisy(w, "b", 2);
    let got = take(w, 10, 20);
    assert_eq!(firsts(&got), [("a", 1), ("b", 1)]);
    w.store.failed(&got[0], at(99), "refused").unwrap();
    w.store.sent(&got[1]).unwrap();
    assert_eq!(firsts(&take(w, 11, 20)), [("b", 2)]);
    let few = w.store.take("hook", "me", at(99), at(100), 1).unwrap();
    assert_eq!(few.len(), 1, "the limit counts");
}

fn a_failure_is_counted(w: &Fixture) {
    noisy(w, "a", 1);
    for attempts in 0..3 {
        let got = take(w, 10, 20);
        assert_eq!(got[0].attempts, attempts);
        w.store.failed(&got[0], at(5), "refused").unwrap();
    }
}

fn a_buried_marker_is_a_letter_and_an_alert(w: &Fixture) {
    noisy(w, "a", 2);
    let got = take(w, 10, 20);
    w.store
        .bury(&got[0], at(11), "gone", &alert("DEAD"))
        .unwrap();
    let letters = w.store.dead_letters(9).unwrap();
    let [letter] = &letters[..] else {
        panic!("one letter, not {letters:?}");
    };
    assert_eq!((letter.why.as_str(), letter.at), ("gone", at(11)));
    let buried = Marker {
        attempts: 1,
        ..got[0].clone()
    };
    assert_eq!(letter.marker, buried);
    let alerts = w.store.alerts(9).unwrap();
    assert_eq!(alerts.len(), 1);
    assert_eq!((alerts[0].code.as_str(), alerts[0].at), ("DEAD", at(11)));
    assert_eq!(alerts[0].run_id.as_deref(), Some("a"));
    assert_eq!(firsts(&take(w, 11, 20)), [("a", 2)], "the next may go");
}

fn burying_what_was_sent_does_nothing(w: &Fixture) {
    noisy(w, "a", 1);
    let got = take(w, 10, 20);
    w.store.sent(&got[0]).unwrap();
    w.store.sent(&got[0]).unwrap();
    w.store.failed(&got[0], at(11), "late").unwrap();
    w.store
        .bury(&got[0], at(11), "late", &alert("DEAD"))
        .unwrap();
    assert_eq!(w.store.dead_letters(9).unwrap(), []);
    assert_eq!(w.store.alerts(9).unwrap(), []);
    assert_eq!(w.store.backlog("hook").unwrap(), (0, None));
}

fn a_letter_goes_back_in_its_place(w: &Fixture) {
    noisy(w, "a", 2);
    noisy(w, "b", 1);
    for _ in 0..3 {
        let got = take(w, 10, 20);
        w.store.failed(&got[0], at(10), "no").unwrap();
        w.store.failed(&got[1], at(10), "no").unwrap();
    }
    for marker in take(w, 10, 20) {
        w.store
            .bury(&marker, at(11), "gone", &alert("DEAD"))
            .unwrap();
    }
    let letters = w.store.dead_letters(9).unwrap();
    assert_eq!(letters.len(), 2);
    assert!(letters[0].no < letters[1].no, "oldest first");
    assert_eq!(w.store.dead_letters(1).unwrap(), letters[..1]);
    let of_a = letters.iter().find(|it| it.marker.run_id == "a").unwrap();
    assert!(w.store.redrive(of_a.no).unwrap());
    assert!(!w.store.redrive(of_a.no).unwrap(), "there is none any more");
    assert!(!w.store.redrive(987_654).unwrap());
    assert_eq!(w.store.dead_letters(9).unwrap().len(), 1);
    let got = take(w, 11, 20);
    assert_eq!(firsts(&got), [("a", 1)], "before what came later");
    assert_eq!(got[0].attempts, 0, "all attempts again");
}

fn the_backlog_is_counted_from_the_oldest(w: &Fixture) {
    assert_eq!(w.store.backlog("hook").unwrap(), (0, None));
    noisy(w, "a", 3);
    assert_eq!(w.store.backlog("hook").unwrap(), (3, Some(at(0))));
    let got = take(w, 10, 20);
    assert_eq!(w.store.backlog("hook").unwrap().0, 3, "taken is not sent");
    w.store.sent(&got[0]).unwrap();
    assert_eq!(w.store.backlog("hook").unwrap(), (2, Some(at(1))));
    let got = take(w, 10, 20);
    w.store.failed(&got[0], at(50), "no").unwrap();
    let failed = w.store.backlog("hook").unwrap();
    assert_eq!(failed, (2, Some(at(1))), "it waits since it was written");
    assert_eq!(w.store.backlog("bus").unwrap(), (0, None));
}

fn alerts_are_read_newest_first(w: &Fixture) {
    let a = w.run_with("a", |append| append.alerts = vec![alert("1"), alert("2")]);
    w.store.alert(None, &alert("3"), at(3)).unwrap();
    w.store.alert(Some(a), &alert("4"), at(4)).unwrap();
    let alerts = w.store.alerts(9).unwrap();
    let seen: Vec<_> = alerts
        .iter()
        .map(|it| (it.code.as_str(), it.run_id.as_deref(), it.at))
        .collect();
    let expected = [
        ("4", Some("a"), at(4)),
        ("3", None, at(3)),
        ("2", Some("a"), at(0)),
        ("1", Some("a"), at(0)),
    ];
    assert_eq!(seen, expected);
    assert_eq!(alerts[0].priority, alert("4").priority);
    assert_eq!(alerts[0].message, "look");
    assert_eq!(w.store.alerts(2).unwrap(), alerts[..2]);
}

fn alerts_and_dead_letters_are_filtered_and_paged(w: &Fixture) {
    for (run, tenant, project) in [("a", "t", "p"), ("b", "t", "q"), ("c", "u", "p")] {
        w.run_with(run, |append| {
            let new = append.create.as_mut().unwrap();
            (new.tenant, new.project) = (tenant.into(), project.into());
            append.sinks = vec!["hook".into()];
            append.alerts = vec![alert("A"), alert("B")];
        });
    }
    w.store.alert(None, &alert("A"), at(1)).unwrap();
    for marker in take(w, 10, 20) {
        w.store.bury(&marker, at(11), "no", &alert("D")).unwrap();
    }
    let alerts = |change: &dyn Fn(&mut NoticeFilter)| -> Vec<String> {
        let mut filter = NoticeFilter {
            limit: 99,
            ..NoticeFilter::default()
        };
        change(&mut filter);
        let found = w.store.list_alerts(&filter).unwrap();
        let line = |it: AlertRow| format!("{}{}", it.run_id.unwrap_or_default(), it.code);
        found.into_iter().map(line).collect()
    };
    let of_t = alerts(&|it| it.tenant = Some("t".into()));
    assert_eq!(of_t, ["bD", "aD", "bB", "bA", "aB", "aA"]);
    let more = alerts(&|it| (it.tenant, it.about_store) = (Some("t".into()), true));
    assert_eq!(more, ["bD", "aD", "A", "bB", "bA", "aB", "aA"]);
    let of_q = alerts(&|it| (it.tenant, it.project) = (Some("t".into()), Some("q".into())));
    assert_eq!(of_q, ["bD", "bB", "bA"]);
    assert_eq!(
        alerts(&|it| it.run_id = Some("c".into())),
        ["cD", "cB", "cA"]
    );
    assert_eq!(alerts(&|it| it.word = Some("A".into())), ["cA", "bA", "aA"]);
    assert_eq!(alerts(&|it| it.tenant = Some("none".into())), [""; 0]);
    let mut filter = NoticeFilter {
        tenant: Some("t".into()),
        limit: 2,
        ..NoticeFilter::default()
    };
    let mut pages = Vec::new();
    loop {
        let page = w.store.list_alerts(&filter).unwrap();
        let Some(last) = page.last() else { break };
        filter.past = Some(last.no);
        pages.extend(page.into_iter().map(|it| it.code));
    }
    assert_eq!(pages, ["D", "D", "B", "A", "B", "A"]);
    let letters = |change: &dyn Fn(&mut NoticeFilter)| -> Vec<(i64, String)> {
        let mut filter = NoticeFilter::all(99);
        change(&mut filter);
        let found = w.store.list_dead_letters(&filter).unwrap();
        found
            .into_iter()
            .map(|it| (it.no, it.marker.run_id))
            .collect()
    };
    let ids = |found: Vec<(i64, String)>| found.into_iter().map(|it| it.1).collect::<Vec<_>>();
    let all = letters(&|_| {});
    assert_eq!(ids(all.clone()), ["a", "b", "c"]);
    assert_eq!(ids(letters(&|it| it.past = Some(all[0].0))), ["b", "c"]);
    let newest = letters(&|it| it.newest_first = true);
    assert_eq!(ids(newest.clone()), ["c", "b", "a"]);
    let older = letters(&|it| (it.newest_first, it.past) = (true, Some(newest[0].0)));
    assert_eq!(ids(older), ["b", "a"]);
    assert_eq!(ids(letters(&|it| it.tenant = Some("u".into()))), ["c"]);
    assert_eq!(
        ids(letters(&|it| it.project = Some("p".into()))),
        ["a", "c"]
    );
    assert_eq!(ids(letters(&|it| it.run_id = Some("b".into()))), ["b"]);
    assert_eq!(ids(letters(&|it| it.word = Some("bus".into()))), [""; 0]);
}
