//! What must hold besides: sessions and leases, checked in the append's own transaction.

use super::fixture::{Fixture, at, has, lease, next, put, rows};
use crate::store::{Append, AppendResult, Guard, RunNo, SessionNo, TaskChange};

super::table![
    a_living_session_may_write_until_its_last_instant,
    a_dead_session_cannot_write,
    a_closed_session_cannot_write,
    no_session_is_not_a_living_one,
    a_session_is_dead_only_when_marked,
    a_lease_holds_at_its_last_instant,
    a_late_result_after_the_lease_changes_nothing,
    another_workers_lease_is_not_mine,
    a_reservation_is_enough_to_claim,
    a_task_that_is_gone_is_not_held,
    a_task_put_again_is_not_held,
    a_lease_is_expired_only_after_its_last_instant,
    a_reservation_does_not_expire,
    exactly_one_of_expiry_and_late_result_wins,
    the_first_guard_that_fails_is_named,
    a_guard_fails_alone,
    a_heartbeat_saves_the_lease,
];

fn guarded(append: Append, guards: Vec<Guard>) -> Append {
    Append { guards, ..append }
}

fn a_living_session_may_write_until_its_last_instant(w: &Fixture) {
    let a = w.run("a");
    let session = w.store.open_session("s", at(0), at(100)).unwrap();
    let write = |after| guarded(next(a, after), vec![Guard::Session]);
    assert_eq!(
        w.one_of(session, at(100), write(1)),
        AppendResult::Committed
    );
    assert_eq!(
        w.one_of(session, at(101), write(2)),
        AppendResult::GuardFailed(0)
    );
    assert_eq!(w.last_seq(a), 2);
}

fn a_dead_session_cannot_write(w: &Fixture) {
    let a = w.run("a");
    let session = w.store.open_session("s", at(0), at(100)).unwrap();
    let owns = Append {
        head: Some(crate::store::Head {
            session: Some(session),
            ..super::fixture::running()
        }),
        ..next(a, 1)
    };
    let owns = guarded(owns, vec![Guard::Session]);
    assert_eq!(w.one_of(session, at(0), owns), AppendResult::Committed);
    assert_eq!(w.store.dead_sessions(at(101)).unwrap(), [session]);
    // Even if its own clock says that it is in time.
    let late = guarded(next(a, 2), vec![Guard::Session]);
    assert_eq!(
        w.one_of(session, at(50), late),
        AppendResult::GuardFailed(0)
    );
    let taken_over = guarded(next(a, 2), vec![Guard::Dead(session)]);
    assert_eq!(w.one_at(at(101), taken_over), AppendResult::Committed);
}

fn a_closed_session_cannot_write(w: &Fixture) {
    let a = w.run("a");
    let session = w.store.open_session("s", at(0), at(100)).unwrap();
    w.store.close_session(session).unwrap();
    let late = guarded(next(a, 1), vec![Guard::Session]);
    assert_eq!(w.one_of(session, at(1), late), AppendResult::GuardFailed(0));
    let other = guarded(next(a, 1), vec![Guard::Dead(session)]);
    assert_eq!(w.one_at(at(1), other), AppendResult::Committed);
}

fn no_session_is_not_a_living_one(w: &Fixture) {
    let a = w.run("a");
    let write = guarded(next(a, 1), vec![Guard::Session]);
    assert_eq!(w.one(write.clone()), AppendResult::GuardFailed(0));
    let unknown = SessionNo(987_654);
    assert_eq!(
        w.one_of(unknown, at(0), write),
        AppendResult::GuardFailed(0)
    );
    let dead = guarded(next(a, 1), vec![Guard::Dead(unknown)]);
    assert_eq!(w.one(dead), AppendResult::Committed);
}

fn a_session_is_dead_only_when_marked(w: &Fixture) {
    let a = w.run("a");
    let session = w.store.open_session("s", at(0), at(100)).unwrap();
    // Its time is over, but nobody has said so; it may be renewing at this moment.
    let takes_over = guarded(next(a, 1), vec![Guard::Dead(session)]);
    assert_eq!(w.one_at(at(200), takes_over), AppendResult::GuardFailed(0));
}

fn result(run: RunNo, after: u64) -> Append {
    let mut append = guarded(next(run, after), vec![has("t", "w")]);
    append.tasks = vec![TaskChange::Delete { target: "t".into() }];
    append
}

fn expiry(run: RunNo, after: u64) -> Append {
    let over = Guard::Expired { target: "t".into() };
    let mut append = guarded(next(run, after), vec![over]);
    append.tasks = vec![put("t", at(0))];
    append
}

fn a_lease_holds_at_its_last_instant(w: &Fixture) {
    let a = w.leased("a", at(100));
    assert_eq!(w.one_at(at(100), result(a, 1)), AppendResult::Committed);
    assert_eq!(w.load(a).tasks, vec![]);
}

fn a_late_result_after_the_lease_changes_nothing(w: &Fixture) {
    let a = w.leased("a", at(100));
    let before = w.load(a);
    assert_eq!(
        w.one_at(at(101), result(a, 1)),
        AppendResult::GuardFailed(0)
    );
    assert_eq!(w.load(a), before);
}

fn another_workers_lease_is_not_mine(w: &Fixture) {
    let a = w.leased("a", at(100));
    let other = guarded(next(a, 1), vec![has("t", "v")]);
    assert_eq!(w.one_at(at(1), other), AppendResult::GuardFailed(0));
}

fn a_reservation_is_enough_to_claim(w: &Fixture) {
    let a = w.run_with("a", |append| append.tasks = vec![put("t", at(0))]);
    let serves = super::fixture::serves();
    let got = w.store.reserve(&serves, "w", at(1), at(10), 1).unwrap();
    assert_eq!(got.len(), 1);
    let claim = |after| {
        let mut append = guarded(next(a, after), vec![has("t", "w")]);
        append.tasks = vec![lease("t", "w", at(100))];
        append
    };
    assert_eq!(
        w.one_at(at(11), claim(1)),
        AppendResult::GuardFailed(0),
        "late"
    );
    assert_eq!(w.one_at(at(10), claim(1)), AppendResult::Committed);
    let task = &w.load(a).tasks[0];
    assert!(task.leased);
    assert_eq!(task.worker.as_deref(), Some("w"));
    assert_eq!(task.until, Some(at(100)));
}

fn a_task_that_is_gone_is_not_held(w: &Fixture) {
    let a = w.leased("a", at(100));
    let over = Append {
        tasks: vec![TaskChange::Delete { target: "t".into() }],
        ..next(a, 1)
    };
    assert_eq!(w.one(over), AppendResult::Committed);
    assert_eq!(w.one_at(at(1), result(a, 2)), AppendResult::GuardFailed(0));
    assert_eq!(
        w.one_at(at(200), expiry(a, 2)),
        AppendResult::GuardFailed(0)
    );
}

fn a_task_put_again_is_not_held(w: &Fixture) {
    let a = w.leased("a", at(100));
    let again = Append {
        tasks: vec![put("t", at(0))],
        ..rows(a, 1, 1)
    };
    assert_eq!(w.one(again), AppendResult::Committed);
    assert_eq!(w.one_at(at(1), result(a, 1)), AppendResult::GuardFailed(0));
    let task = &w.load(a).tasks[0];
    assert_eq!(
        (&task.worker, task.until, task.leased),
        (&None, None, false)
    );
}

fn a_lease_is_expired_only_after_its_last_instant(w: &Fixture) {
    let a = w.leased("a", at(100));
    assert_eq!(
        w.one_at(at(100), expiry(a, 1)),
        AppendResult::GuardFailed(0)
    );
    assert_eq!(w.one_at(at(101), expiry(a, 1)), AppendResult::Committed);
}

fn a_reservation_does_not_expire(w: &Fixture) {
    let a = w.run_with("a", |append| append.tasks = vec![put("t", at(0))]);
    let serves = super::fixture::serves();
    w.store.reserve(&serves, "w", at(1), at(10), 1).unwrap();
    assert_eq!(w.one_at(at(11), expiry(a, 1)), AppendResult::GuardFailed(0));
    assert_eq!(w.store.expired(at(11), 9).unwrap(), vec![]);
}

fn exactly_one_of_expiry_and_late_result_wins(w: &Fixture) {
    let (a, b) = (w.leased("a", at(100)), w.leased("b", at(100)));
    // The result came in time and was first: the expiry finds the run moved.
    assert_eq!(w.one_at(at(100), result(a, 1)), AppendResult::Committed);
    assert_eq!(w.one_at(at(101), expiry(a, 1)), AppendResult::Moved);
    // The expiry was first: the result is from the past, whatever it knows.
    assert_eq!(w.one_at(at(101), expiry(b, 1)), AppendResult::Committed);
    assert_eq!(w.one_at(at(100), result(b, 1)), AppendResult::Moved);
    assert_eq!(
        w.one_at(at(100), result(b, 2)),
        AppendResult::GuardFailed(0)
    );
}

fn the_first_guard_that_fails_is_named(w: &Fixture) {
    let a = w.leased("a", at(100));
    let guards = vec![has("t", "w"), has("u", "w"), Guard::Session];
    let append = guarded(next(a, 1), guards);
    assert_eq!(w.one_at(at(1), append), AppendResult::GuardFailed(1));
}

fn a_guard_fails_alone(w: &Fixture) {
    let (a, b, c) = (w.run("a"), w.leased("b", at(100)), w.run("c"));
    let all = w.send(at(101), vec![next(a, 1), result(b, 1), next(c, 1)]);
    let expected = [
        AppendResult::Committed,
        AppendResult::GuardFailed(0),
        AppendResult::Committed,
    ];
    assert_eq!(all, expected);
}

fn a_heartbeat_saves_the_lease(w: &Fixture) {
    let a = w.leased("a", at(100));
    let beat = |now, until| w.store.heartbeat(a, "t", "w", now, until).unwrap();
    assert!(beat(at(100), at(200)), "at its last instant");
    assert_eq!(
        w.one_at(at(101), expiry(a, 1)),
        AppendResult::GuardFailed(0)
    );
    assert_eq!(w.one_at(at(200), result(a, 1)), AppendResult::Committed);
}
