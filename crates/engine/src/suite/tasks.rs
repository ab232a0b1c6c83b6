//! Tasks: reservations, leases, heartbeats and their ends.

use super::fixture::{Fixture, at, has, lease, next, put, rows, serves};
use crate::store::{Append, AppendResult, TaskChange, TaskRow};

super::table![
    a_task_is_visible_from_its_time_on,
    no_two_workers_reserve_the_same_task,
    a_reservation_that_ended_is_offered_again,
    a_leased_task_is_never_reserved_again,
    a_task_that_stops_is_not_reserved,
    only_what_is_served_is_reserved,
    tasks_come_by_priority_then_time_then_run,
    a_task_put_again_is_free_again,
    a_deleted_task_is_gone,
    a_lease_of_nothing_makes_no_task,
    a_heartbeat_needs_a_lease_that_holds,
    a_heartbeat_is_refused_when_the_run_stops,
    expired_leases_are_listed_after_their_last_instant,
    next_visible_is_when_reserving_helps,
    only_tasks_of_the_tenant_are_reserved,
    what_is_open_is_what_would_be_reserved,
    the_kinds_of_open_tasks_are_listed_once,
];

fn targets(rows: &[TaskRow]) -> Vec<&str> {
    rows.iter().map(|row| row.target.as_str()).collect()
}

fn stop() -> TaskChange {
    TaskChange::Stop { target: "t".into() }
}

fn a_task_is_visible_from_its_time_on(w: &Fixture) {
    let a = w.run_with("a", |append| append.tasks = vec![put("t", at(10))]);
    let reserve = |now| w.store.reserve(&serves(), "w", now, at(50), 9).unwrap();
    assert_eq!(reserve(at(9)), vec![]);
    let expected = TaskRow {
        run: a,
        target: "t".into(),
        queue: "q".into(),
        op: "op".into(),
        priority: 0,
        visible_at: at(10),
        worker: Some("w".into()),
        until: Some(at(50)),
        leased: false,
        stopping: false,
    };
    assert_eq!(reserve(at(10)), std::slice::from_ref(&expected));
    assert_eq!(w.load(a).tasks, [expected]);
}

fn no_two_workers_reserve_the_same_task(w: &Fixture) {
    w.run_with("a", |append| {
        append.tasks = vec![put("t", at(0)), put("u", at(0)), put("v", at(0))];
    });
    let reserve = |who, limit| {
        let rows = w.store.reserve(&serves(), who, at(1), at(50), limit);
        rows.unwrap()
    };
    assert_eq!(targets(&reserve("w", 2)), ["t", "u"]);
    assert_eq!(targets(&reserve("x", 2)), ["v"]);
    assert_eq!(reserve("w", 2), vec![], "not even by the same worker");
}

fn a_reservation_that_ended_is_offered_again(w: &Fixture) {
    w.run_with("a", |append| append.tasks = vec![put("t", at(0))]);
    let reserve = |who, now, until| {
        let rows = w.store.reserve(&serves(), who, now, until, 9);
        rows.unwrap()
    };
    assert_eq!(reserve("w", at(1), at(50)).len(), 1);
    assert_eq!(reserve("x", at(50), at(90)), vec![], "its last instant");
    let again = reserve("x", at(51), at(90));
    assert_eq!(again[0].worker.as_deref(), Some("x"));
    assert_eq!(again[0].until, Some(at(90)));
}

fn a_leased_task_is_never_reserved_again(w: &Fixture) {
    w.leased("a", at(100));
    for now in [at(1), at(100), at(101), at(100_000)] {
        let got = w.store.reserve(&serves(), "x", now, now.plus(9), 9);
        assert_eq!(got.unwrap(), vec![]);
    }
    assert_eq!(w.store.next_visible(&serves()).unwrap(), None);
}

fn a_task_that_stops_is_not_reserved(w: &Fixture) {
    w.run_with("a", |append| append.tasks = vec![put("t", at(0)), stop()]);
    let got = w.store.reserve(&serves(), "x", at(1), at(9), 9);
    assert_eq!(got.unwrap(), vec![]);
    assert_eq!(w.store.next_visible(&serves()).unwrap(), None);
}

fn only_what_is_served_is_reserved(w: &Fixture) {
    let task = |target: &str, queue: &str, op: &str| TaskChange::Put {
        target: target.into(),
        queue: queue.into(),
        op: op.into(),
        priority: 0,
        visible_at: at(0),
    };
    w.run_with("a", |append| {
        append.tasks = vec![
            task("1", "q", "x"),
            task("2", "r", "op"),
            task("3", "r", "x"),
        ];
    });
    let reserve = |serves: &[(&str, &str)]| {
        let serves = serves.iter().map(|(q, o)| (q.to_string(), o.to_string()));
        let serves: Vec<(String, String)> = serves.collect();
        w.store.reserve(&serves, "w", at(1), at(9), 9).unwrap()
    };
    assert_eq!(reserve(&[]), vec![]);
    assert_eq!(
        reserve(&[("q", "op"), ("x", "r")]),
        vec![],
        "pairs, not lists"
    );
    assert_eq!(targets(&reserve(&[("q", "x"), ("r", "op")])), ["1", "2"]);
    assert_eq!(targets(&reserve(&[("r", "x")])), ["3"]);
}

fn tasks_come_by_priority_then_time_then_run(w: &Fixture) {
    let task = |target: &str, priority, millis| TaskChange::Put {
        target: target.into(),
        queue: "q".into(),
        op: "op".into(),
        priority,
        visible_at: at(millis),
    };
    w.run_with("a", |append| {
        append.tasks = vec![task("late", 1, 5), task("low", 9, 0)]
    });
    w.run_with("b", |append| {
        append.tasks = vec![task("soon", 1, 4), task("high", -1, 9)]
    });
    w.run_with("c", |append| append.tasks = vec![task("later run", 1, 5)]);
    let got = w.store.reserve(&serves(), "w", at(10), at(50), 4).unwrap();
    assert_eq!(targets(&got), ["high", "soon", "late", "later run"]);
    let rest = w.store.reserve(&serves(), "w", at(10), at(50), 4).unwrap();
    assert_eq!(targets(&rest), ["low"]);
}

fn a_task_put_again_is_free_again(w: &Fixture) {
    let a = w.leased("a", at(100));
    let again = Append {
        tasks: vec![stop(), put("t", at(7))],
        ..next(a, 1)
    };
    assert_eq!(w.one(again), AppendResult::Committed);
    let got = w.store.reserve(&serves(), "x", at(7), at(50), 9).unwrap();
    assert_eq!(targets(&got), ["t"]);
    assert!(!got[0].stopping);
}

fn a_deleted_task_is_gone(w: &Fixture) {
    let a = w.run_with("a", |append| append.tasks = vec![put("t", at(0))]);
    let gone = Append {
        tasks: vec![TaskChange::Delete { target: "t".into() }],
        ..rows(a, 1, 1)
    };
    assert_eq!(w.one(gone), AppendResult::Committed);
    assert_eq!(w.load(a).tasks, vec![]);
    let got = w.store.reserve(&serves(), "w", at(1), at(9), 9);
    assert_eq!(got.unwrap(), vec![]);
}

fn a_lease_of_nothing_makes_no_task(w: &Fixture) {
    let a = w.run_with("a", |append| {
        append.tasks = vec![lease("t", "w", at(9)), stop()];
    });
    assert_eq!(w.load(a).tasks, vec![]);
}

fn a_heartbeat_needs_a_lease_that_holds(w: &Fixture) {
    let a = w.leased("a", at(100));
    let beat = |who, now, until| w.store.heartbeat(a, "t", who, now, until).unwrap();
    assert!(!beat("x", at(1), at(200)), "another worker");
    assert!(beat("w", at(100), at(200)), "at the last instant");
    assert_eq!(w.load(a).tasks[0].until, Some(at(200)));
    assert!(!beat("w", at(201), at(300)), "too late");
    assert_eq!(w.load(a).tasks[0].until, Some(at(200)));
    assert!(!w.store.heartbeat(a, "u", "w", at(1), at(9)).unwrap());
    let b = w.run_with("b", |append| append.tasks = vec![put("t", at(0))]);
    w.store.reserve(&serves(), "w", at(1), at(50), 9).unwrap();
    let reserved = w.store.heartbeat(b, "t", "w", at(2), at(90)).unwrap();
    assert!(!reserved, "a reservation is not a lease");
}

fn a_heartbeat_is_refused_when_the_run_stops(w: &Fixture) {
    let a = w.leased("a", at(100));
    let stops = Append {
        tasks: vec![stop()],
        ..next(a, 1)
    };
    assert_eq!(w.one(stops), AppendResult::Committed);
    assert!(!w.store.heartbeat(a, "t", "w", at(1), at(200)).unwrap());
    let task = &w.load(a).tasks[0];
    assert!(task.stopping && task.leased);
    assert_eq!(task.until, Some(at(100)), "it ends by itself");
    assert_eq!(w.store.expired(at(101), 9).unwrap().len(), 1);
    let result = Append {
        guards: vec![has("t", "w")],
        ..next(a, 2)
    };
    assert_eq!(w.one_at(at(100), result), AppendResult::Committed);
}

fn expired_leases_are_listed_after_their_last_instant(w: &Fixture) {
    let a = w.leased("a", at(100));
    let b = w.leased("b", at(90));
    let expired = |now, limit| w.store.expired(now, limit).unwrap();
    assert_eq!(expired(at(90), 9), vec![]);
    let runs = |rows: Vec<TaskRow>| rows.into_iter().map(|it| it.run).collect::<Vec<_>>();
    assert_eq!(runs(expired(at(100), 9)), [b]);
    assert_eq!(runs(expired(at(101), 9)), [b, a]);
    assert_eq!(runs(expired(at(101), 1)), [b]);
    assert_eq!(runs(expired(at(101), 9)), [b, a], "listing changes nothing");
}

fn next_visible_is_when_reserving_helps(w: &Fixture) {
    assert_eq!(w.store.next_visible(&serves()).unwrap(), None);
    w.run_with("a", |append| {
        append.tasks = vec![put("t", at(20)), put("u", at(10))]
    });
    let next_visible = || w.store.next_visible(&serves()).unwrap();
    assert_eq!(next_visible(), Some(at(10)));
    assert_eq!(w.store.next_visible(&[]).unwrap(), None);
    w.store.reserve(&serves(), "w", at(10), at(15), 9).unwrap();
    assert_eq!(next_visible(), Some(at(16)), "after the reservation's end");
    let got = w.store.reserve(&serves(), "w", at(16), at(40), 9).unwrap();
    assert_eq!(targets(&got), ["u"]);
    assert_eq!(next_visible(), Some(at(20)));
}

fn only_tasks_of_the_tenant_are_reserved(w: &Fixture) {
    w.run_with("a", |append| append.tasks = vec![put("t", at(0))]);
    let reserve = |tenant| {
        let rows = w
            .store
            .reserve_for(tenant, &serves(), "w", at(1), at(50), 9);
        rows.unwrap()
    };
    assert_eq!(reserve(Some("other")), vec![]);
    assert_eq!(targets(&reserve(Some("tenant"))), ["t"]);
    w.leased("b", at(60));
    let leases = |worker, tenant| w.store.leases(worker, tenant, 9).unwrap();
    assert_eq!(targets(&leases(None, None)), ["t"]);
    assert_eq!(targets(&leases(Some("w"), Some("tenant"))), ["t"]);
    assert_eq!(leases(Some("x"), None), vec![]);
    assert_eq!(leases(None, Some("other")), vec![]);
}

fn what_is_open_is_what_would_be_reserved(w: &Fixture) {
    w.run_with("a", |append| {
        append.tasks = vec![put("t", at(5)), put("u", at(0)), put("v", at(90))];
    });
    w.leased("b", at(100));
    w.run_with("c", |append| append.tasks = vec![put("t", at(0)), stop()]);
    let open = |now, limit| w.store.open_for(None, &serves(), now, limit).unwrap();
    assert_eq!(targets(&open(at(10), 9)), ["u", "t"]);
    assert_eq!(
        targets(&open(at(10), 9)),
        ["u", "t"],
        "a look reserves nothing"
    );
    assert_eq!(targets(&open(at(10), 1)), ["u"]);
    assert_eq!(targets(&open(at(4), 9)), ["u"]);
    assert!(open(at(10), 9).iter().all(|it| it.worker.is_none()));
    let other = w.store.open_for(Some("nobody"), &serves(), at(10), 9);
    assert_eq!(other.unwrap(), vec![]);
    let taken = w.store.reserve(&serves(), "w", at(10), at(50), 1).unwrap();
    assert_eq!(targets(&taken), ["u"]);
    assert_eq!(targets(&open(at(50), 9)), ["t"]);
    assert_eq!(
        targets(&open(at(51), 9)),
        ["u", "t"],
        "its reservation ended"
    );
    assert_eq!(w.store.open_for(None, &[], at(10), 9).unwrap(), vec![]);
}

fn the_kinds_of_open_tasks_are_listed_once(w: &Fixture) {
    let kinds = |limit| w.store.open_kinds(limit).unwrap();
    assert_eq!(kinds(9), vec![]);
    let of = |target: &str, queue: &str, op: &str| TaskChange::Put {
        target: target.into(),
        queue: queue.into(),
        op: op.into(),
        priority: 0,
        visible_at: at(90),
    };
    w.run_with("a", |append| {
        append.tasks = vec![of("t", "b", "y"), of("u", "b", "x"), of("v", "a", "z")];
    });
    w.run_with("b", |append| append.tasks = vec![of("t", "b", "x")]);
    w.run_with("c", |append| append.tasks = vec![of("t", "c", "x"), stop()]);
    // Its only task is leased.
    w.leased("d", at(100));
    let pair = |queue: &str, op: &str| (queue.to_owned(), op.to_owned());
    let all = [pair("a", "z"), pair("b", "x"), pair("b", "y")];
    assert_eq!(kinds(9), all);
    assert_eq!(kinds(2), all[..2]);
}
