//! Sessions, what is due, and queued runs.

use super::fixture::{Fixture, at, next, rows, running};
use crate::store::{Append, AppendResult, Head, RunNo, SessionNo};

super::table![
    sessions_have_numbers_of_their_own,
    a_session_is_renewed_until_its_last_instant,
    a_session_that_is_dead_is_never_renewed,
    a_closed_session_is_never_renewed,
    dead_sessions_with_runs_are_told_until_they_have_none,
    runs_of_a_session_are_found,
    due_runs_come_earliest_first,
    a_due_run_is_not_offered_twice,
    a_due_run_is_offered_again_in_time,
    a_changed_head_is_offered_at_once,
    an_owned_run_is_not_due,
    a_queued_run_is_not_due,
    queued_runs_wait_for_their_time,
    queued_runs_come_by_priority,
    queued_runs_come_by_age,
    next_due_is_the_earliest,
];

fn with_head(w: &Fixture, run_id: &str, head: Head) -> RunNo {
    w.run_with(run_id, |append| append.head = Some(head))
}

fn wakes(millis: i64) -> Head {
    Head {
        wake_at: Some(at(millis)),
        ..running()
    }
}

fn owned(session: SessionNo) -> Head {
    Head {
        session: Some(session),
        ..running()
    }
}

fn sessions_have_numbers_of_their_own(w: &Fixture) {
    let a = w.store.open_session("same", at(0), at(10)).unwrap();
    let b = w.store.open_session("same", at(0), at(10)).unwrap();
    assert_ne!(a, b);
}

fn a_session_is_renewed_until_its_last_instant(w: &Fixture) {
    let session = w.store.open_session("s", at(0), at(10)).unwrap();
    assert!(w.store.renew_session(session, at(10), at(20)).unwrap());
    assert!(w.store.renew_session(session, at(20), at(30)).unwrap());
    assert!(!w.store.renew_session(session, at(31), at(40)).unwrap());
    let unknown = SessionNo(987_654);
    assert!(!w.store.renew_session(unknown, at(0), at(10)).unwrap());
}

fn a_session_that_is_dead_is_never_renewed(w: &Fixture) {
    let session = w.store.open_session("s", at(0), at(10)).unwrap();
    with_head(w, "a", owned(session));
    assert_eq!(w.store.dead_sessions(at(10)).unwrap(), [], "it still lives");
    assert_eq!(w.store.dead_sessions(at(11)).unwrap(), [session]);
    // By a clock that is behind.
    assert!(!w.store.renew_session(session, at(5), at(99)).unwrap());
    assert_eq!(w.store.dead_sessions(at(5)).unwrap(), [session]);
}

fn a_closed_session_is_never_renewed(w: &Fixture) {
    let session = w.store.open_session("s", at(0), at(10)).unwrap();
    with_head(w, "a", owned(session));
    w.store.close_session(session).unwrap();
    assert!(!w.store.renew_session(session, at(1), at(99)).unwrap());
    assert_eq!(w.store.dead_sessions(at(1)).unwrap(), [session]);
}

fn dead_sessions_with_runs_are_told_until_they_have_none(w: &Fixture) {
    let session = w.store.open_session("s", at(0), at(10)).unwrap();
    let idle = w.store.open_session("idle", at(0), at(10)).unwrap();
    let a = with_head(w, "a", owned(session));
    assert_eq!(w.store.dead_sessions(at(11)).unwrap(), [session]);
    assert_eq!(w.store.dead_sessions(at(11)).unwrap(), [session]);
    assert_eq!(w.one(next(a, 1)), AppendResult::Committed);
    assert_eq!(w.store.dead_sessions(at(11)).unwrap(), []);
    for gone in [session, idle] {
        assert!(!w.store.renew_session(gone, at(1), at(99)).unwrap());
    }
}

fn runs_of_a_session_are_found(w: &Fixture) {
    let mine = w.store.open_session("mine", at(0), at(10)).unwrap();
    let other = w.store.open_session("other", at(0), at(10)).unwrap();
    let a = with_head(w, "a", owned(mine));
    with_head(w, "b", owned(other));
    let c = with_head(w, "c", owned(mine));
    w.run("d");
    assert_eq!(w.store.runs_of(mine, 9).unwrap(), [a, c]);
    assert_eq!(w.store.runs_of(mine, 1).unwrap(), [a]);
}

fn due_runs_come_earliest_first(w: &Fixture) {
    let a = with_head(w, "a", wakes(30));
    let b = with_head(w, "b", wakes(10));
    let c = with_head(w, "c", wakes(20));
    with_head(w, "d", wakes(31));
    w.run("never");
    assert_eq!(w.store.due(at(30), at(99), 2).unwrap(), [b, c]);
    assert_eq!(w.store.due(at(30), at(99), 9).unwrap(), [a]);
}

fn a_due_run_is_not_offered_twice(w: &Fixture) {
    let a = with_head(w, "a", wakes(10));
    assert_eq!(w.store.due(at(9), at(50), 9).unwrap(), []);
    assert_eq!(w.store.due(at(10), at(50), 9).unwrap(), [a]);
    assert_eq!(w.store.due(at(49), at(90), 9).unwrap(), []);
    assert_eq!(
        w.load(a).head_version,
        1,
        "an offer does not change the head"
    );
    assert_eq!(w.load(a).head.wake_at, Some(at(10)));
}

fn a_due_run_is_offered_again_in_time(w: &Fixture) {
    let a = with_head(w, "a", wakes(10));
    assert_eq!(w.store.due(at(10), at(50), 9).unwrap(), [a]);
    assert_eq!(w.store.due(at(50), at(90), 9).unwrap(), [a]);
}

fn a_changed_head_is_offered_at_once(w: &Fixture) {
    let a = with_head(w, "a", wakes(10));
    assert_eq!(w.store.due(at(10), at(50), 9).unwrap(), [a]);
    let again = Append {
        head: Some(wakes(12)),
        ..next(a, 1)
    };
    assert_eq!(w.one(again), AppendResult::Committed);
    assert_eq!(w.store.due(at(12), at(50), 9).unwrap(), [a]);
    let without_events = Append {
        head: Some(wakes(13)),
        ..rows(a, 2, 2)
    };
    assert_eq!(w.one(without_events), AppendResult::Committed);
    assert_eq!(w.store.due(at(13), at(50), 9).unwrap(), [a]);
}

fn an_owned_run_is_not_due(w: &Fixture) {
    let session = w.store.open_session("s", at(0), at(10)).unwrap();
    let head = Head {
        wake_at: Some(at(10)),
        ..owned(session)
    };
    with_head(w, "a", head);
    assert_eq!(w.store.due(at(10), at(50), 9).unwrap(), []);
    assert_eq!(w.store.next_due().unwrap(), None);
}

fn a_queued_run_is_not_due(w: &Fixture) {
    let head = Head {
        queued: true,
        ..wakes(10)
    };
    let a = with_head(w, "a", head);
    assert_eq!(w.store.due(at(10), at(50), 9).unwrap(), []);
    assert_eq!(w.store.next_due().unwrap(), None);
    assert_eq!(w.store.queued(at(10), 9).unwrap(), [a]);
}

fn queued_runs_come_by_priority(w: &Fixture) {
    let queued = |run_id: &str, priority: i32| {
        let run = w.number();
        let mut append = w.new_run(run, run_id);
        if let Some(new) = append.create.as_mut() {
            new.priority = priority;
        }
        append.head = Some(Head {
            queued: true,
            ..Head::default()
        });
        assert_eq!(w.one(append), AppendResult::Committed);
        run
    };
    let (a, b) = (queued("a", 0), queued("b", -1));
    let (c, d) = (queued("c", 7), queued("d", 0));
    assert_eq!(w.store.queued(at(1), 9).unwrap(), [c, a, d, b]);
    assert_eq!(w.store.queued(at(1), 2).unwrap(), [c, a]);
}

/// Each server numbers runs from a block of its own, so a younger run can have a smaller number.
fn queued_runs_come_by_age(w: &Fixture) {
    let (small, large) = (w.number(), w.number());
    let queued = |run: RunNo, run_id: &str, created: i64| {
        let mut append = w.new_run(run, run_id);
        if let Some(new) = append.create.as_mut() {
            new.created_at = at(created);
        }
        append.head = Some(Head {
            queued: true,
            ..Head::default()
        });
        assert_eq!(w.one(append), AppendResult::Committed);
    };
    queued(large, "older", 3);
    queued(small, "younger", 4);
    assert_eq!(w.store.queued(at(5), 9).unwrap(), [large, small]);
    assert_eq!(w.store.queued(at(5), 1).unwrap(), [large]);
}

fn queued_runs_wait_for_their_time(w: &Fixture) {
    let queued = |wake_at| Head {
        queued: true,
        wake_at,
        ..running()
    };
    let a = with_head(w, "a", queued(Some(at(10))));
    let b = with_head(w, "b", queued(None));
    let c = with_head(w, "c", queued(Some(at(5))));
    let session = w.store.open_session("s", at(0), at(10)).unwrap();
    let starting = Head {
        session: Some(session),
        ..queued(None)
    };
    with_head(w, "d", starting);
    w.run("e");
    assert_eq!(w.store.queued(at(4), 9).unwrap(), [b]);
    assert_eq!(w.store.queued(at(5), 9).unwrap(), [b, c]);
    assert_eq!(w.store.queued(at(10), 9).unwrap(), [a, b, c]);
    assert_eq!(w.store.queued(at(10), 2).unwrap(), [a, b]);
}

fn next_due_is_the_earliest(w: &Fixture) {
    assert_eq!(w.store.next_due().unwrap(), None);
    with_head(w, "a", wakes(30));
    with_head(w, "b", wakes(10));
    assert_eq!(w.store.next_due().unwrap(), Some(at(10)));
    w.store.due(at(10), at(50), 9).unwrap();
    assert_eq!(w.store.next_due().unwrap(), Some(at(30)));
    w.store.due(at(30), at(60), 9).unwrap();
    assert_eq!(
        w.store.next_due().unwrap(),
        Some(at(50)),
        "offered again then"
    );
}
