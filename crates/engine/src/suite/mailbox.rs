//! The mailbox, and events from outside that meet those who wait.

use std::thread;
use std::time::{Duration, Instant};

use super::fixture::{Fixture, at, next, paid, rows, running, wait};
use crate::store::{
    Append, AppendResult, Delivered, Head, MessageNo, MessageState, NewMessage, OutsideEvent,
    RunNo, TRIGGER_KEY, WaitChange,
};
use stepwell_kernel::time::Time;

super::table![
    mail_lies_there_until_it_is_taken,
    a_message_is_taken_once,
    a_message_of_another_run_is_not_taken,
    mail_comes_oldest_first,
    mail_is_for_whoever_has_the_run,
    mail_of_a_commit_arrives_with_it,
    mail_to_a_run_of_the_same_batch_arrives,
    mail_to_nobody_is_dropped,
    an_answer_is_read_once,
    an_answered_message_is_not_offered_again,
    an_answered_message_cannot_be_taken,
    the_first_answer_stays,
    an_event_before_the_wait_is_not_missed,
    an_event_after_the_wait_is_not_missed,
    an_event_goes_to_who_waited_longest,
    events_that_come_together_are_delivered_in_order,
    the_oldest_kept_event_comes_first,
    kept_events_can_be_read,
    a_wait_gets_one_event,
    one_event_serves_one_wait,
    an_event_counts_once_for_ever,
    events_of_another_type_or_key_do_not_meet,
    events_are_for_runs_of_their_tenant,
    an_event_that_is_given_back_goes_to_another_wait,
    a_wait_that_is_over_gets_nothing,
    a_wait_of_a_loser_takes_no_event,
    waits_are_read_back,
    another_server_sees_that_there_is_news,
];

fn took(run: RunNo, after: u64, mail: MessageNo) -> Append {
    Append {
        taken: vec![mail],
        ..next(run, after)
    }
}

fn mail_lies_there_until_it_is_taken(w: &Fixture) {
    let a = w.run("a");
    let mail = w.store.post(a, r#"{"n":1}"#, at(0)).unwrap();
    assert_eq!(w.mail_of(a), [r#"{"n":1}"#]);
    assert_eq!(w.store.take_answer(mail).unwrap(), MessageState::Waiting);
    assert_eq!(w.one(took(a, 1, mail)), AppendResult::Committed);
    assert_eq!(w.mail_of(a), Vec::<String>::new());
    assert_eq!(w.store.take_answer(mail).unwrap(), MessageState::Taken);
}

fn a_message_is_taken_once(w: &Fixture) {
    let (a, b) = (w.run("a"), w.run("b"));
    let mail = w.store.post(a, "{}", at(0)).unwrap();
    assert_eq!(w.one(took(a, 1, mail)), AppendResult::Committed);
    let both = w.send(at(0), vec![took(a, 2, mail), next(b, 1)]);
    assert_eq!(both, [AppendResult::Moved, AppendResult::Committed]);
    assert_eq!(w.last_seq(a), 2);
    let other = w.store.post(a, "{}", at(0)).unwrap();
    let half = Append {
        taken: vec![other, mail],
        ..next(a, 2)
    };
    assert_eq!(w.one(half), AppendResult::Moved);
    assert_eq!(
        w.store.take_answer(other).unwrap(),
        MessageState::Waiting,
        "it still lies there"
    );
}

fn a_message_of_another_run_is_not_taken(w: &Fixture) {
    let (a, b) = (w.run("a"), w.run("b"));
    let mail = w.store.post(a, "{}", at(0)).unwrap();
    assert_eq!(w.one(took(b, 1, mail)), AppendResult::Moved);
    assert_eq!(w.mail_of(a).len(), 1);
}

fn mail_comes_oldest_first(w: &Fixture) {
    let (a, b) = (w.run("a"), w.run("b"));
    let session = w.store.open_session("s", at(0), at(99)).unwrap();
    for (run, body) in [(b, "1"), (a, "2"), (b, "3")] {
        w.store.post(run, body, at(0)).unwrap();
    }
    let bodies = |limit| -> Vec<String> {
        let mail = w.store.mail(session, limit).unwrap();
        mail.into_iter().map(|it| it.body).collect()
    };
    assert_eq!(bodies(9), ["1", "2", "3"]);
    assert_eq!(bodies(2), ["1", "2"]);
    assert_eq!(w.mail_of(b), ["1", "3"]);
}

fn mail_is_for_whoever_has_the_run(w: &Fixture) {
    let mine = w.store.open_session("mine", at(0), at(99)).unwrap();
    let other = w.store.open_session("other", at(0), at(99)).unwrap();
    let owned = w.run_with("owned", |append| {
        append.head = Some(Head {
            session: Some(mine),
            ..running()
        });
    });
    let free = w.run("free");
    w.store.post(owned, "1", at(0)).unwrap();
    w.store.post(free, "2", at(0)).unwrap();
    let count = |session| w.store.mail(session, 9).unwrap().len();
    assert_eq!(count(mine), 2);
    assert_eq!(count(other), 1);
}

fn mail_to(to: &str, body: &str) -> NewMessage {
    NewMessage {
        to: to.into(),
        body: body.into(),
    }
}

fn mail_of_a_commit_arrives_with_it(w: &Fixture) {
    let (a, b) = (w.run("a"), w.run("b"));
    let sends = Append {
        mail: vec![mail_to("b", "1"), mail_to("b", "2"), mail_to("a", "self")],
        ..next(a, 1)
    };
    assert_eq!(w.one(sends), AppendResult::Committed);
    assert_eq!(w.mail_of(b), ["1", "2"]);
    assert_eq!(w.mail_of(a), ["self"]);
}

fn mail_to_a_run_of_the_same_batch_arrives(w: &Fixture) {
    let a = w.run("a");
    let b = w.number();
    let sends = Append {
        mail: vec![mail_to("b", "hello")],
        ..next(a, 1)
    };
    let both = w.send(at(0), vec![sends, w.new_run(b, "b")]);
    assert_eq!(both, [AppendResult::Committed, AppendResult::Committed]);
    assert_eq!(w.mail_of(b), ["hello"]);
}

fn mail_to_nobody_is_dropped(w: &Fixture) {
    let a = w.run("a");
    let sends = Append {
        mail: vec![mail_to("nobody", "1"), mail_to("a", "2")],
        ..next(a, 1)
    };
    assert_eq!(w.one(sends), AppendResult::Committed);
    assert_eq!(w.mail_of(a), ["2"]);
    let later = w.run("nobody");
    assert_eq!(w.mail_of(later), Vec::<String>::new());
}

fn an_answer_is_read_once(w: &Fixture) {
    let a = w.run("a");
    let mail = w.store.post(a, "{}", at(0)).unwrap();
    w.store.answer(mail, r#"{"no":true}"#).unwrap();
    let answer = MessageState::Answered(r#"{"no":true}"#.to_string());
    assert_eq!(w.store.take_answer(mail).unwrap(), answer);
    assert_eq!(w.store.take_answer(mail).unwrap(), MessageState::Taken);
}

fn an_answered_message_is_not_offered_again(w: &Fixture) {
    let a = w.run("a");
    let session = w.store.open_session("s", at(0), at(99)).unwrap();
    let mail = w.store.post(a, "{}", at(0)).unwrap();
    w.store.answer(mail, "{}").unwrap();
    assert_eq!(w.store.mail(session, 9).unwrap(), vec![]);
    assert_eq!(w.mail_of(a), Vec::<String>::new());
}

fn an_answered_message_cannot_be_taken(w: &Fixture) {
    let a = w.run("a");
    let mail = w.store.post(a, "{}", at(0)).unwrap();
    w.store.answer(mail, "no").unwrap();
    assert_eq!(w.one(took(a, 1, mail)), AppendResult::Moved);
    let answer = w.store.take_answer(mail).unwrap();
    assert_eq!(answer, MessageState::Answered("no".into()));
}

fn the_first_answer_stays(w: &Fixture) {
    let a = w.run("a");
    let mail = w.store.post(a, "{}", at(0)).unwrap();
    w.store.answer(mail, "first").unwrap();
    w.store.answer(mail, "second").unwrap();
    let answer = w.store.take_answer(mail).unwrap();
    assert_eq!(answer, MessageState::Answered("first".into()));
    let taken = w.store.post(a, "{}", at(0)).unwrap();
    assert_eq!(w.one(took(a, 1, taken)), AppendResult::Committed);
    w.store.answer(taken, "too late").unwrap();
    assert_eq!(w.store.take_answer(taken).unwrap(), MessageState::Taken);
}

fn waits(run: RunNo, after: u64, step: &str) -> Append {
    Append {
        waits: vec![wait(step)],
        ..next(run, after)
    }
}

fn mail_in(id: &str) -> String {
    paid(id, "").mail
}

fn an_event_before_the_wait_is_not_missed(w: &Fixture) {
    let a = w.run("a");
    let kept = w.store.deliver(&paid("e", "a"), at(1)).unwrap();
    assert_eq!(kept, Delivered::Kept);
    assert_eq!(w.mail_of(a), Vec::<String>::new());
    assert_eq!(w.one_at(at(2), waits(a, 1, "s")), AppendResult::Committed);
    assert_eq!(w.mail_of(a), [mail_in("e")]);
    let without_events = Append {
        waits: vec![wait("s")],
        ..rows(a, 2, 2)
    };
    w.store.deliver(&paid("f", "a"), at(3)).unwrap();
    assert_eq!(w.one_at(at(4), without_events), AppendResult::Committed);
    assert_eq!(w.mail_of(a), [mail_in("e"), mail_in("f")]);
}

fn an_event_after_the_wait_is_not_missed(w: &Fixture) {
    let a = w.run_with("a", |append| append.waits = vec![wait("s")]);
    let given = w.store.deliver(&paid("e", "a"), at(1)).unwrap();
    assert_eq!(given, Delivered::ToRun(a));
    assert_eq!(w.mail_of(a), [mail_in("e")]);
}

fn keyed(w: &Fixture, run_id: &str, key: &str) -> RunNo {
    w.run_with(run_id, |append| {
        append.create.as_mut().unwrap().event_key = key.into();
    })
}

fn an_event_goes_to_who_waited_longest(w: &Fixture) {
    let (a, b) = (keyed(w, "a", "k"), keyed(w, "b", "k"));
    assert_eq!(w.one_at(at(1), waits(b, 1, "s")), AppendResult::Committed);
    assert_eq!(w.one_at(at(2), waits(a, 1, "s")), AppendResult::Committed);
    let deliver = |id, now| w.store.deliver(&paid(id, "k"), now).unwrap();
    assert_eq!(deliver("1", at(3)), Delivered::ToRun(b));
    assert_eq!(deliver("2", at(4)), Delivered::ToRun(a));
    assert_eq!(deliver("3", at(5)), Delivered::Kept);
}

fn events_that_come_together_are_delivered_in_order(w: &Fixture) {
    let (a, b) = (keyed(w, "a", "k"), keyed(w, "b", "k"));
    assert_eq!(w.one_at(at(1), waits(b, 1, "s")), AppendResult::Committed);
    assert_eq!(w.one_at(at(2), waits(a, 1, "s")), AppendResult::Committed);
    let events = ["2", "1", "2", "3"].map(|id| paid(id, "k"));
    let delivered = w.store.deliver_all(&events, at(3)).unwrap();
    let expected = [
        Delivered::ToRun(b),
        Delivered::ToRun(a),
        Delivered::Again,
        Delivered::Kept,
    ];
    assert_eq!(delivered, expected);
    assert_eq!(w.mail_of(b), [mail_in("2")]);
    let again = w.store.deliver_all(&events[..2], at(4)).unwrap();
    assert_eq!(again, [Delivered::Again, Delivered::Again]);
    assert_eq!(w.store.deliver_all(&[], at(5)), Ok(Vec::new()));
}

fn the_oldest_kept_event_comes_first(w: &Fixture) {
    let a = w.run("a");
    for (id, millis) in [("z", 1), ("y", 2), ("x", 3)] {
        w.store.deliver(&paid(id, "a"), at(millis)).unwrap();
    }
    assert_eq!(w.one_at(at(4), waits(a, 1, "s")), AppendResult::Committed);
    assert_eq!(w.mail_of(a), [mail_in("z")]);
    assert_eq!(w.one_at(at(5), waits(a, 2, "s")), AppendResult::Committed);
    assert_eq!(w.mail_of(a), [mail_in("z"), mail_in("y")]);
}

fn kept_events_can_be_read(w: &Fixture) {
    let a = w.run_with("a", |append| append.waits = vec![wait("s")]);
    assert_eq!(
        w.store.deliver(&paid("given", "a"), at(1)).unwrap(),
        Delivered::ToRun(a)
    );
    let nobody = TRIGGER_KEY;
    for (id, key, millis) in [
        ("y", nobody, 5),
        ("x", nobody, 5),
        ("w", nobody, 2),
        ("v", "b", 2),
    ] {
        w.store.deliver(&paid(id, key), at(millis)).unwrap();
    }
    let kept = |key: &str, after: (Time, &str), limit| {
        let kept = w.store.kept("tenant", "paid", key, after, limit).unwrap();
        kept.into_iter().map(|it| it.id).collect::<Vec<_>>()
    };
    assert_eq!(kept(nobody, (at(0), ""), 9), ["w", "x", "y"]);
    assert_eq!(kept(nobody, (at(0), ""), 2), ["w", "x"]);
    assert_eq!(kept(nobody, (at(5), "x"), 9), ["y"]);
    assert_eq!(kept(nobody, (at(5), "y"), 9), Vec::<String>::new());
    assert_eq!(kept("a", (at(0), ""), 9), Vec::<String>::new());
    assert_eq!(
        w.store.kept("tenant", "sold", nobody, (at(0), ""), 9),
        Ok(Vec::new())
    );
    // Reading takes nothing away, and says what was delivered when.
    let first = w
        .store
        .kept("tenant", "paid", nobody, (at(0), ""), 1)
        .unwrap();
    assert_eq!((first[0].since, first[0].payload.as_str()), (at(2), "{}"));
}

fn a_wait_gets_one_event(w: &Fixture) {
    let a = w.run_with("a", |append| append.waits = vec![wait("s")]);
    let deliver = |id, now| w.store.deliver(&paid(id, "a"), now).unwrap();
    assert_eq!(deliver("1", at(1)), Delivered::ToRun(a));
    assert_eq!(deliver("2", at(2)), Delivered::Kept);
    assert_eq!(w.mail_of(a), [mail_in("1")]);
    // It waits again: what was kept comes, and then the next.
    assert_eq!(w.one_at(at(3), waits(a, 1, "s")), AppendResult::Committed);
    assert_eq!(w.mail_of(a), [mail_in("1"), mail_in("2")]);
    assert_eq!(deliver("3", at(4)), Delivered::Kept);
}

fn one_event_serves_one_wait(w: &Fixture) {
    let (a, b) = (keyed(w, "a", "k"), keyed(w, "b", "k"));
    w.store.deliver(&paid("e", "k"), at(1)).unwrap();
    let both = w.send(at(2), vec![waits(a, 1, "s"), waits(b, 1, "s")]);
    assert_eq!(both, [AppendResult::Committed, AppendResult::Committed]);
    assert_eq!(w.mail_of(a), [mail_in("e")]);
    assert_eq!(w.mail_of(b), Vec::<String>::new());
    let given = w.store.deliver(&paid("f", "k"), at(3)).unwrap();
    assert_eq!(given, Delivered::ToRun(b));
}

fn an_event_counts_once_for_ever(w: &Fixture) {
    let a = w.run("a");
    let deliver = |now| w.store.deliver(&paid("e", "a"), now).unwrap();
    assert_eq!(deliver(at(1)), Delivered::Kept);
    assert_eq!(deliver(at(2)), Delivered::Again);
    assert_eq!(w.one_at(at(3), waits(a, 1, "s")), AppendResult::Committed);
    assert_eq!(deliver(at(4)), Delivered::Again, "after a run was given it");
    let mail = w.load(a).mail[0].no;
    assert_eq!(w.one_at(at(5), took(a, 2, mail)), AppendResult::Committed);
    assert_eq!(w.one_at(at(6), waits(a, 3, "s")), AppendResult::Committed);
    assert_eq!(deliver(at(7)), Delivered::Again, "after it was taken");
    assert_eq!(w.mail_of(a), Vec::<String>::new());
}

fn events_of_another_type_or_key_do_not_meet(w: &Fixture) {
    let a = w.run_with("a", |append| append.waits = vec![wait("s")]);
    let deliver = |event: &OutsideEvent| w.store.deliver(event, at(1)).unwrap();
    assert_eq!(deliver(&paid("1", "b")), Delivered::Kept);
    let refunded = OutsideEvent {
        event_type: "refunded".into(),
        ..paid("2", "a")
    };
    assert_eq!(deliver(&refunded), Delivered::Kept);
    let b = w.run("other");
    assert_eq!(w.one_at(at(2), waits(b, 1, "s")), AppendResult::Committed);
    assert_eq!(w.mail_of(a), Vec::<String>::new());
    assert_eq!(w.mail_of(b), Vec::<String>::new());
}

fn events_are_for_runs_of_their_tenant(w: &Fixture) {
    let of = |tenant: &str, id: &str| OutsideEvent {
        tenant: tenant.into(),
        ..paid(id, "k")
    };
    let run = |run_id: &str, tenant: &str| {
        w.run_with(run_id, |append| {
            let new = append.create.as_mut().unwrap();
            (new.event_key, new.tenant) = ("k".into(), tenant.into());
        })
    };
    let deliver = |event: &OutsideEvent, now| w.store.deliver(event, now).unwrap();
    let (local, acme) = (run("a", "local"), run("b", "acme"));
    assert_eq!(deliver(&of("evil", "1"), at(1)), Delivered::Kept);
    assert_eq!(
        w.one_at(at(2), waits(acme, 1, "s")),
        AppendResult::Committed
    );
    assert_eq!(
        w.mail_of(acme),
        Vec::<String>::new(),
        "kept for another tenant"
    );
    assert_eq!(deliver(&of("evil", "2"), at(3)), Delivered::Kept);
    assert_eq!(deliver(&of("local", "2"), at(3)), Delivered::Kept);
    // The same id of another tenant is another event.
    assert_eq!(deliver(&of("acme", "2"), at(4)), Delivered::ToRun(acme));
    assert_eq!(deliver(&of("acme", "2"), at(5)), Delivered::Again);
    assert_eq!(
        w.one_at(at(6), waits(local, 1, "s")),
        AppendResult::Committed
    );
    assert_eq!(w.mail_of(local), [mail_in("2")]);
    // Also for a run that waits from its first commit.
    let evil = w.run_with("c", |append| {
        let new = append.create.as_mut().unwrap();
        (new.event_key, new.tenant) = ("k".into(), "evil".into());
        append.waits = vec![wait("s")];
    });
    assert_eq!(w.mail_of(evil), [mail_in("1")]);
    let kept = w.store.kept("evil", "paid", "k", (at(0), ""), 9).unwrap();
    assert_eq!(kept.iter().map(|it| &*it.id).collect::<Vec<_>>(), ["2"]);
    assert_eq!(
        w.store.kept("acme", "paid", "k", (at(0), ""), 9),
        Ok(Vec::new())
    );
}

fn an_event_that_is_given_back_goes_to_another_wait(w: &Fixture) {
    let (a, b) = (keyed(w, "a", "k"), keyed(w, "b", "k"));
    assert_eq!(w.one_at(at(1), waits(a, 1, "s")), AppendResult::Committed);
    let event = paid("1", "k");
    let deliver = |now| w.store.deliver(&event, now).unwrap();
    assert_eq!(deliver(at(2)), Delivered::ToRun(a));
    let mail = w.load(a).mail[0].no;
    let back = |mail, now| w.store.give_back(mail, &event, now).unwrap();
    assert_eq!(back(mail, at(3)), Delivered::Kept);
    assert_eq!(w.mail_of(a), Vec::<String>::new());
    assert_eq!(back(mail, at(4)), Delivered::Again, "the message is gone");
    assert_eq!(deliver(at(4)), Delivered::Again, "its id is known");
    assert_eq!(w.one_at(at(5), waits(b, 1, "s")), AppendResult::Committed);
    assert_eq!(w.mail_of(b), [mail_in("1")]);
    let c = keyed(w, "c", "k");
    assert_eq!(w.one_at(at(6), waits(c, 1, "s")), AppendResult::Committed);
    let mail = w.load(b).mail[0].no;
    assert_eq!(back(mail, at(7)), Delivered::ToRun(c));
    assert_eq!(w.mail_of(c), [mail_in("1")]);
    assert_eq!(w.mail_of(b), Vec::<String>::new());
}

fn a_wait_that_is_over_gets_nothing(w: &Fixture) {
    let a = w.run_with("a", |append| append.waits = vec![wait("s")]);
    let over = Append {
        waits: vec![WaitChange::Delete { step: "s".into() }],
        ..next(a, 1)
    };
    assert_eq!(w.one(over), AppendResult::Committed);
    let kept = w.store.deliver(&paid("e", "a"), at(1)).unwrap();
    assert_eq!(kept, Delivered::Kept);
    assert_eq!(w.load(a).waits, Vec::<String>::new());
}

fn a_wait_of_a_loser_takes_no_event(w: &Fixture) {
    let a = w.run("a");
    w.store.deliver(&paid("e", "a"), at(1)).unwrap();
    assert_eq!(w.one_at(at(2), waits(a, 7, "s")), AppendResult::Moved);
    assert_eq!(w.mail_of(a), Vec::<String>::new());
    assert_eq!(w.one_at(at(3), waits(a, 1, "s")), AppendResult::Committed);
    assert_eq!(w.mail_of(a), [mail_in("e")]);
}

fn waits_are_read_back(w: &Fixture) {
    let a = w.run_with("a", |append| append.waits = vec![wait("t"), wait("s")]);
    assert_eq!(w.load(a).waits, ["s", "t"]);
}

fn another_server_sees_that_there_is_news(w: &Fixture) {
    let Some(second) = &w.second else {
        return;
    };
    let a = w.run("a");
    let before = w.store.news().unwrap();
    second.post(a, "{}", at(0)).unwrap();
    // News travel; a store that is told of them by its server hears them a moment later.
    let heard = || Some(w.store.news().unwrap()).filter(|it| *it != before);
    let patience = Instant::now() + Duration::from_secs(5);
    let after = loop {
        match heard() {
            Some(after) => break after,
            None => assert!(Instant::now() < patience, "no news came"),
        }
        thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(w.store.news().unwrap(), after, "nothing happened since");
    assert_eq!(w.mail_of(a).len(), 1);
}
