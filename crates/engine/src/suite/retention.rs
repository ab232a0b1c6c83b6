//! Runs that have ended are deleted with everything that belongs to them, and no others are.

use super::fixture::{Fixture, alert, at, free, next, paid, put, take, wait};
use crate::store::{
    Append, AppendResult, DeleteFilter, DeletedRun, Head, MessageState, RunFilter, RunNo, SinkRow,
    SinkStart, StateSnapshot, ViewRow,
};

super::table![
    runs_that_ended_before_the_time_are_deleted,
    those_that_ended_first_are_deleted_first,
    runs_are_deleted_by_status_and_tenant,
    everything_of_a_run_is_deleted,
    other_runs_keep_everything,
    an_open_run_is_not_deleted,
    a_child_is_not_deleted_before_its_parent_has_ended,
    a_run_with_a_delivery_that_waits_is_not_deleted,
    a_run_with_a_message_that_nobody_answered_is_not_deleted,
    a_run_in_quarantine_is_not_deleted,
    the_id_and_the_request_of_a_deleted_run_can_be_used_again,
    an_append_to_a_deleted_run_is_refused,
    a_store_with_deleted_runs_has_no_problems,
];

fn ended(status: &str, millis: i64) -> Head {
    Head {
        status: status.into(),
        ended_at: Some(at(millis)),
        ..Head::default()
    }
}

/// A run that has ended at a time.
fn run(w: &Fixture, run_id: &str, millis: i64) -> RunNo {
    w.run_with(run_id, |append| {
        append.head = Some(ended("COMPLETED", millis))
    })
}

fn before(millis: i64) -> DeleteFilter {
    DeleteFilter {
        ended_before: at(millis),
        ..DeleteFilter::default()
    }
}

fn delete(w: &Fixture, filter: &DeleteFilter, limit: usize) -> Vec<String> {
    let gone = w.store.delete_ended(filter, limit, at(1_000)).unwrap();
    gone.into_iter().map(|it| it.run_id).collect()
}

fn there(w: &Fixture) -> Vec<String> {
    let all = RunFilter {
        limit: 99,
        ..RunFilter::default()
    };
    let runs = w.store.list(&all).unwrap();
    runs.into_iter().rev().map(|it| it.run_id).collect()
}

fn nothing() -> Vec<String> {
    Vec::new()
}

fn runs_that_ended_before_the_time_are_deleted(w: &Fixture) {
    let old = run(w, "old", 9);
    run(w, "then", 10);
    run(w, "later", 11);
    w.run("open");
    let gone = w.store.delete_ended(&before(10), 9, at(1_000)).unwrap();
    let expected = DeletedRun {
        run: old,
        run_id: "old".into(),
        tenant: "tenant".into(),
        status: "COMPLETED".into(),
        ended_at: at(9),
    };
    assert_eq!(gone, [expected]);
    assert_eq!(there(w), ["then", "later", "open"]);
    assert_eq!(delete(w, &before(10), 9), nothing());
    // A time that has not come is now.
    let early = w.store.delete_ended(&before(99), 9, at(11)).unwrap();
    assert_eq!(early.len(), 1);
    assert_eq!(there(w), ["later", "open"]);
}

fn those_that_ended_first_are_deleted_first(w: &Fixture) {
    for (id, millis) in [("a", 5), ("b", 3), ("c", 4), ("d", 3)] {
        run(w, id, millis);
    }
    assert_eq!(delete(w, &before(99), 0), nothing());
    assert_eq!(delete(w, &before(99), 3), ["b", "d", "c"]);
    assert_eq!(delete(w, &before(99), 3), ["a"]);
    assert_eq!(there(w), nothing());
}

fn runs_are_deleted_by_status_and_tenant(w: &Fixture) {
    for (id, status, tenant) in [
        ("a", "COMPLETED", "t"),
        ("b", "FAILED", "t"),
        ("c", "CANCELLED", "t"),
        ("d", "FAILED", "u"),
    ] {
        w.run_with(id, |append| {
            append.head = Some(ended(status, 1));
            append.create.as_mut().unwrap().tenant = tenant.into();
        });
    }
    let filter = DeleteFilter {
        statuses: vec!["FAILED".into(), "COMPLETED".into()],
        tenant: Some("t".into()),
        ..before(9)
    };
    assert_eq!(delete(w, &filter, 9), ["a", "b"]);
    assert_eq!(there(w), ["c", "d"]);
}

fn hook() -> SinkRow {
    SinkRow {
        name: "hook".into(),
        address: "webhook:https://example.com/".into(),
        since: at(0),
    }
}

/// A run that has a row in every table that runs have rows in, and has ended.
fn with_everything(w: &Fixture, run_id: &str) -> RunNo {
    w.store.add_sink(&hook(), SinkStart::Now, at(0)).unwrap();
    let run = w.run_with(run_id, |append| {
        append.tasks = vec![put("t", at(0))];
        append.waits = vec![wait("s")];
        append.unique_key = take("plan", &format!("key of {run_id}"));
        append.view_rows = ["one", "other"]
            .map(|view| ViewRow {
                view,
                row_no: 1,
                body: "{}".into(),
            })
            .to_vec();
        append.alerts = vec![alert("A")];
        let new = append.create.as_mut().unwrap();
        new.request_key = Some(format!("request of {run_id}"));
        new.labels.insert("team".into(), "x".into());
    });
    let last = Append {
        head: Some(ended("FAILED", 5)),
        snapshot: Some(StateSnapshot {
            seq: 1,
            version: 1,
            body: vec![1],
        }),
        ..next(run, 1)
    };
    assert_eq!(w.one(last), AppendResult::Committed);
    w.store.put_projection(run, 2, "{}", at(5)).unwrap();
    let mail = w.store.post(run, "{}", at(5)).unwrap();
    w.store.answer(mail, "done").unwrap();
    // One delivery is given up, the other one arrives.
    let mut taken = w.store.take("hook", "me", at(6), at(9), 9).unwrap();
    w.store
        .bury(&taken.remove(0), at(6), "why", &alert("DEAD"))
        .unwrap();
    let taken = w.store.take("hook", "me", at(20), at(29), 9).unwrap();
    w.store.sent(&taken[0]).unwrap();
    w.store.remove_sink("hook").unwrap();
    run
}

fn everything_of_a_run_is_deleted(w: &Fixture) {
    let run = with_everything(w, "a");
    assert_eq!(w.store.dead_letters(9).unwrap().len(), 1);
    assert_eq!(w.store.alerts(9).unwrap().len(), 2);
    assert_eq!(delete(w, &before(99), 9), ["a"]);
    assert_eq!(w.store.find("a").unwrap(), None);
    assert_eq!(w.store.load(run).unwrap(), None);
    assert_eq!(w.store.chunks(run, 0, 9).unwrap(), []);
    assert_eq!(w.store.projection(run).unwrap(), None);
    assert_eq!(w.store.kept_rows(run).unwrap(), None);
    assert_eq!(w.store.dead_letters(9).unwrap(), []);
    assert_eq!(w.store.alerts(9).unwrap(), []);
    assert_eq!(
        w.store.count_runs(&RunFilter::default()).unwrap().by_status,
        []
    );
    let labelled = RunFilter {
        labels: vec![("team".into(), "x".into())],
        limit: 9,
        ..RunFilter::default()
    };
    assert_eq!(w.store.list(&labelled).unwrap(), []);
    // The step of the run waits no more: the event is kept for another run.
    let kept = w.store.deliver(&paid("e", "a"), at(9)).unwrap();
    assert_eq!(kept, crate::store::Delivered::Kept);
    let health = w.store.check().unwrap();
    assert_eq!((health.runs, health.problems), (0, nothing()));
}

fn other_runs_keep_everything(w: &Fixture) {
    let stays = with_everything(w, "stays");
    let open = next(stays, 2);
    with_everything(w, "goes");
    assert_eq!(w.one(open), AppendResult::Committed);
    let loaded = w.load(stays);
    let kept = w.store.kept_rows(stays).unwrap();
    assert_eq!(delete(w, &before(99), 9), ["goes"]);
    assert_eq!(w.load(stays), loaded);
    assert_eq!(w.store.kept_rows(stays).unwrap(), kept);
    assert_eq!(w.store.projection(stays).unwrap(), Some((2, "{}".into())));
    assert_eq!(w.store.dead_letters(9).unwrap().len(), 1);
    let alerts = w.store.alerts(9).unwrap();
    assert!(
        alerts
            .iter()
            .all(|it| it.run_id.as_deref() == Some("stays"))
    );
    assert_eq!(alerts.len(), 2);
}

fn an_open_run_is_not_deleted(w: &Fixture) {
    w.run("open");
    let session = w.store.open_session("server", at(0), at(99)).unwrap();
    w.run_with("owned", |append| {
        append.head = Some(Head {
            session: Some(session),
            ..ended("COMPLETED", 1)
        });
    });
    w.run_with("holds a slot", |append| {
        append.head = Some(Head {
            slots: vec!["all".into()],
            ..ended("COMPLETED", 1)
        });
    });
    assert_eq!(delete(w, &before(99), 9), nothing());
    assert_eq!(there(w).len(), 3);
}

fn a_child_is_not_deleted_before_its_parent_has_ended(w: &Fixture) {
    let parent = w.run("parent");
    let child = |id: &str, of: &str| {
        w.run_with(id, |append| {
            append.head = Some(ended("COMPLETED", 1));
            append.create.as_mut().unwrap().parent = Some(of.into());
        })
    };
    child("child", "parent");
    child("orphan", "nobody");
    assert_eq!(delete(w, &before(99), 9), ["orphan"]);
    let end = Append {
        head: Some(ended("COMPLETED", 2)),
        ..next(parent, 1)
    };
    assert_eq!(w.one(end), AppendResult::Committed);
    assert_eq!(delete(w, &before(99), 9), ["child", "parent"]);
}

fn a_run_with_a_delivery_that_waits_is_not_deleted(w: &Fixture) {
    w.run_with("a", |append| {
        append.head = Some(ended("COMPLETED", 1));
        append.sinks = vec!["bus".into(), "hook".into()];
    });
    run(w, "b", 1);
    assert_eq!(delete(w, &before(99), 9), ["b"]);
    for sink in ["hook", "bus"] {
        assert_eq!(delete(w, &before(99), 9), nothing());
        let taken = w.store.take(sink, "me", at(2), at(9), 9).unwrap();
        w.store.sent(&taken[0]).unwrap();
    }
    assert_eq!(delete(w, &before(99), 9), ["a"]);
}

fn a_run_with_a_message_that_nobody_answered_is_not_deleted(w: &Fixture) {
    let a = run(w, "a", 1);
    let mail = w.store.post(a, "{}", at(2)).unwrap();
    assert_eq!(delete(w, &before(99), 9), nothing());
    w.store.answer(mail, "no").unwrap();
    assert_eq!(delete(w, &before(99), 9), ["a"]);
    assert_eq!(w.store.take_answer(mail).unwrap(), MessageState::Taken);
}

fn a_run_in_quarantine_is_not_deleted(w: &Fixture) {
    let a = run(w, "a", 1);
    w.store.quarantine(a, "its log has a hole", at(2)).unwrap();
    assert_eq!(delete(w, &before(99), 9), nothing());
    w.store.release(a).unwrap();
    assert_eq!(delete(w, &before(99), 9), ["a"]);
}

fn the_id_and_the_request_of_a_deleted_run_can_be_used_again(w: &Fixture) {
    let make = |number: RunNo| {
        let mut append = w.new_run(number, "a");
        append.head = Some(ended("COMPLETED", 1));
        append.unique_key = take("plan", "key");
        append.create.as_mut().unwrap().request_key = Some("request".into());
        w.one(append)
    };
    let first = w.number();
    assert_eq!(make(first), AppendResult::Committed);
    assert_eq!(make(w.number()), AppendResult::RunExists);
    assert_eq!(delete(w, &before(99), 9), ["a"]);
    let second = w.number();
    assert_eq!(make(second), AppendResult::Committed);
    assert_ne!(first, second);
    assert_eq!(w.store.find("a").unwrap(), Some(second));
}

fn an_append_to_a_deleted_run_is_refused(w: &Fixture) {
    let a = run(w, "a", 1);
    assert_eq!(delete(w, &before(99), 9), ["a"]);
    let late = Append {
        unique_key: free("plan", "key"),
        ..next(a, 1)
    };
    assert_eq!(w.one(late), AppendResult::Moved);
    assert_eq!(w.store.load(a).unwrap(), None);
    assert_eq!(w.store.check().unwrap().problems, nothing());
}

fn a_store_with_deleted_runs_has_no_problems(w: &Fixture) {
    for number in 0..6 {
        with_everything(w, &format!("run-{number}"));
    }
    w.run("open");
    assert_eq!(delete(w, &before(99), 4).len(), 4);
    let health = w.store.check().unwrap();
    assert_eq!((health.runs, health.open), (3, 1));
    assert_eq!(health.problems, nothing());
}
