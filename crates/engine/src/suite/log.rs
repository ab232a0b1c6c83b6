//! Appends: compare-and-set for each run alone, and commits whose answer was lost.

use super::fixture::{Fixture, at, chunk, next, put, rows, running, take};
use crate::store::{Append, AppendResult, Head, NewMessage, PlanNo, RunNo};

super::table![
    an_empty_batch_does_nothing,
    a_commit_is_read_back_as_it_was_written,
    a_run_that_moved_loses_alone,
    a_chunk_must_follow_the_last_one,
    a_run_that_is_not_there_has_moved,
    a_lost_answer_is_recognised_by_its_commit,
    a_lost_answer_is_recognised_after_the_run_went_on,
    a_lost_answer_of_a_new_run_is_recognised,
    another_commit_at_the_same_place_is_not_ours,
    a_repeated_commit_changes_nothing,
    a_key_is_recorded_once_in_a_run,
    a_key_twice_in_one_chunk_is_refused,
    a_key_may_be_in_two_runs,
    a_run_id_is_given_once,
    a_request_key_is_given_once,
    a_request_key_in_one_batch_goes_to_the_first,
    a_run_id_in_one_batch_goes_to_the_first,
    a_loser_takes_no_request_key,
    a_head_change_without_events_is_a_compare_and_set,
    a_head_change_needs_the_last_event_too,
    a_head_changes_its_version_each_time,
    an_owner_may_leave_the_head_alone,
    a_lost_answer_without_events_is_recognised,
    rows_without_a_head_are_recognised_too,
    a_loser_leaves_no_rows,
    a_run_without_a_plan_is_refused_alone,
    batches_that_share_a_transaction_are_answered_as_alone,
];

fn an_empty_batch_does_nothing(w: &Fixture) {
    assert_eq!(w.send(at(0), vec![]), vec![]);
}

fn a_commit_is_read_back_as_it_was_written(w: &Fixture) {
    let run = w.number();
    let batch = w.batch(at(0), vec![w.new_run(run, "a")]);
    assert_eq!(w.store.commit(&batch).unwrap(), [AppendResult::Committed]);
    let wrote = batch.appends[0].chunk.clone().unwrap();
    let read = w.load(run);
    assert_eq!(
        (read.run, read.run_id.as_str(), read.plan),
        (run, "a", w.plan)
    );
    assert_eq!(read.event_key, "a");
    assert_eq!(read.head, running());
    assert_eq!(read.head_version, 1);
    let [stored] = &read.chunks[..] else {
        panic!("one chunk was written, not {:?}", read.chunks);
    };
    assert_eq!((stored.first, stored.last), (wrote.first, wrote.last));
    assert_eq!(stored.commit, batch.id);
    assert_eq!((stored.codec, &stored.body), (wrote.codec, &wrote.body));
    assert_eq!(stored.digests, wrote.digests);
    assert_eq!(w.store.find("a").unwrap(), Some(run));
}

fn a_run_that_moved_loses_alone(w: &Fixture) {
    let (a, b, c) = (w.run("a"), w.run("b"), w.run("c"));
    assert_eq!(w.one(next(b, 1)), AppendResult::Committed);
    let all = w.send(at(0), vec![next(a, 1), next(b, 1), next(c, 1)]);
    let expected = [
        AppendResult::Committed,
        AppendResult::Moved,
        AppendResult::Committed,
    ];
    assert_eq!(all, expected);
    assert_eq!([a, b, c].map(|run| w.last_seq(run)), [2, 2, 2]);
}

fn a_chunk_must_follow_the_last_one(w: &Fixture) {
    let run = w.run("a");
    assert_eq!(w.one(next(run, 2)), AppendResult::Moved, "a gap");
    assert_eq!(w.one(next(run, 0)), AppendResult::Moved, "from the past");
    let askew = Append {
        chunk: Some(chunk(3, 3)),
        ..next(run, 1)
    };
    assert_eq!(
        w.one(askew),
        AppendResult::Moved,
        "a chunk that does not follow"
    );
    assert_eq!(w.last_seq(run), 1);
}

fn a_run_that_is_not_there_has_moved(w: &Fixture) {
    let run = w.number();
    assert_eq!(w.one(next(run, 0)), AppendResult::Moved);
    assert_eq!(w.one(rows(run, 0, 0)), AppendResult::Moved);
    assert_eq!(w.store.load(run).unwrap(), None);
    assert_eq!(w.store.find("nobody").unwrap(), None);
}

fn a_lost_answer_is_recognised_by_its_commit(w: &Fixture) {
    let (a, b) = (w.run("a"), w.run("b"));
    let batch = w.batch(at(0), vec![next(a, 1), next(b, 5)]);
    let first = w.store.commit(&batch).unwrap();
    assert_eq!(first, [AppendResult::Committed, AppendResult::Moved]);
    let second = w.store.commit(&batch).unwrap();
    assert_eq!(second, [AppendResult::Again, AppendResult::Moved]);
    assert_eq!(w.last_seq(a), 2);
}

fn a_lost_answer_is_recognised_after_the_run_went_on(w: &Fixture) {
    let a = w.run("a");
    let batch = w.batch(at(0), vec![next(a, 1)]);
    assert_eq!(w.store.commit(&batch).unwrap(), [AppendResult::Committed]);
    assert_eq!(w.one(next(a, 2)), AppendResult::Committed);
    assert_eq!(w.store.commit(&batch).unwrap(), [AppendResult::Again]);
}

fn a_lost_answer_of_a_new_run_is_recognised(w: &Fixture) {
    let run = w.number();
    let mut append = w.new_run(run, "a");
    append.create.as_mut().unwrap().request_key = Some("r".into());
    append.unique_key = take("order", "o-1");
    let batch = w.batch(at(0), vec![append]);
    assert_eq!(w.store.commit(&batch).unwrap(), [AppendResult::Committed]);
    assert_eq!(w.store.commit(&batch).unwrap(), [AppendResult::Again]);
    assert_eq!(w.one(next(run, 1)), AppendResult::Committed);
    assert_eq!(w.store.commit(&batch).unwrap(), [AppendResult::Again]);
}

fn another_commit_at_the_same_place_is_not_ours(w: &Fixture) {
    let a = w.run("a");
    let same = next(a, 1);
    assert_eq!(w.one(same.clone()), AppendResult::Committed);
    assert_eq!(
        w.one(same),
        AppendResult::Moved,
        "same content, other commit"
    );
    let mut batch = w.batch(at(0), vec![next(a, 2)]);
    assert_eq!(w.store.commit(&batch).unwrap(), [AppendResult::Committed]);
    batch.id.session += 1;
    assert_eq!(
        w.store.commit(&batch).unwrap(),
        [AppendResult::Moved],
        "the session is part of the id"
    );
}

fn a_repeated_commit_changes_nothing(w: &Fixture) {
    let (a, b) = (w.run("a"), w.run("b"));
    let mut append = next(a, 1);
    append.tasks = vec![put("t", at(0))];
    append.mail = vec![mail("b")];
    append.sinks = vec!["hook".into()];
    append.slots = vec![super::fixture::slot("k", 1, 5)];
    append.alerts = vec![super::fixture::alert("A")];
    append.waits = vec![super::fixture::wait("s")];
    let batch = w.batch(at(0), vec![append]);
    assert_eq!(w.store.commit(&batch).unwrap(), [AppendResult::Committed]);
    let before = w.load(a);
    assert_eq!(w.store.commit(&batch).unwrap(), [AppendResult::Again]);
    assert_eq!(w.load(a), before);
    assert_eq!(w.mail_of(b).len(), 1, "mail");
    assert_eq!(w.store.slots_taken("k").unwrap(), 1, "slots");
    assert_eq!(w.store.alerts(9).unwrap().len(), 1, "alerts");
    assert_eq!(w.store.backlog("hook").unwrap().0, 1, "outbox");
}

fn mail(to: &str) -> NewMessage {
    NewMessage {
        to: to.into(),
        body: "{}".into(),
    }
}

fn with_key(mut append: Append, key: &str) -> Append {
    append.chunk.as_mut().unwrap().keys = vec![key.as_bytes().to_vec()];
    append
}

fn a_key_is_recorded_once_in_a_run(w: &Fixture) {
    let (a, b) = (w.run("a"), w.run("b"));
    assert_eq!(w.one(with_key(next(a, 1), "k")), AppendResult::Committed);
    let both = w.send(at(0), vec![with_key(next(a, 2), "k"), next(b, 1)]);
    assert_eq!(both, [AppendResult::KeyExists, AppendResult::Committed]);
    assert_eq!(w.last_seq(a), 2);
    assert_eq!(
        w.one(with_key(next(a, 2), "other")),
        AppendResult::Committed
    );
}

fn a_key_twice_in_one_chunk_is_refused(w: &Fixture) {
    let a = w.run("a");
    let mut append = next(a, 1);
    let mut twice = chunk(2, 3);
    twice.keys = vec![b"k".to_vec(), b"k".to_vec()];
    append.chunk = Some(twice);
    assert_eq!(w.one(append), AppendResult::KeyExists);
    assert_eq!(w.last_seq(a), 1);
}

fn a_key_may_be_in_two_runs(w: &Fixture) {
    let (a, b) = (w.run("a"), w.run("b"));
    let both = w.send(
        at(0),
        vec![with_key(next(a, 1), "k"), with_key(next(b, 1), "k")],
    );
    assert_eq!(both, [AppendResult::Committed, AppendResult::Committed]);
}

fn a_run_id_is_given_once(w: &Fixture) {
    let a = w.run("a");
    let other = w.number();
    assert_eq!(w.one(w.new_run(other, "a")), AppendResult::RunExists);
    assert_eq!(w.store.load(other).unwrap(), None);
    assert_eq!(w.store.find("a").unwrap(), Some(a));
}

fn requested(w: &Fixture, run: RunNo, run_id: &str, key: &str) -> Append {
    let mut append = w.new_run(run, run_id);
    append.create.as_mut().unwrap().request_key = Some(key.into());
    append
}

fn a_request_key_is_given_once(w: &Fixture) {
    let (a, b) = (w.number(), w.number());
    assert_eq!(w.one(requested(w, a, "a", "r")), AppendResult::Committed);
    let taken = AppendResult::RequestTaken("a".into());
    assert_eq!(w.one(requested(w, b, "b", "r")), taken);
    assert_eq!(w.store.find("b").unwrap(), None);
    assert_eq!(w.one(requested(w, b, "b", "s")), AppendResult::Committed);
}

fn a_request_key_in_one_batch_goes_to_the_first(w: &Fixture) {
    let (a, b) = (w.number(), w.number());
    let both = vec![requested(w, a, "a", "r"), requested(w, b, "b", "r")];
    let taken = AppendResult::RequestTaken("a".into());
    assert_eq!(w.send(at(0), both), [AppendResult::Committed, taken]);
}

fn a_run_id_in_one_batch_goes_to_the_first(w: &Fixture) {
    let (a, b) = (w.number(), w.number());
    let both = w.batch(at(0), vec![w.new_run(a, "twice"), w.new_run(b, "twice")]);
    let outcomes = w.store.commit(&both).unwrap();
    assert_eq!(outcomes, [AppendResult::Committed, AppendResult::RunExists]);
    assert_eq!(w.store.find("twice").unwrap(), Some(a));
    assert_eq!(w.store.load(b).unwrap(), None);
    // Sent once more as it was, each gets its answer again.
    let outcomes = w.store.commit(&both).unwrap();
    assert_eq!(outcomes, [AppendResult::Again, AppendResult::RunExists]);
}

fn a_loser_takes_no_request_key(w: &Fixture) {
    let (a, b) = (w.number(), w.number());
    let mut loser = requested(w, a, "a", "r");
    loser.slots = vec![super::fixture::slot("k", 2, 1)];
    let both = w.send(at(0), vec![loser, requested(w, b, "b", "r")]);
    assert_eq!(
        both,
        [AppendResult::SlotsFull("k".into()), AppendResult::Committed]
    );
    assert_eq!(w.store.find("a").unwrap(), None);
    assert_eq!(w.store.find("b").unwrap(), Some(b));
}

fn a_head_change_without_events_is_a_compare_and_set(w: &Fixture) {
    let a = w.run("a");
    let wakes = Append {
        head: Some(Head {
            wake_at: Some(at(7)),
            ..running()
        }),
        ..rows(a, 1, 1)
    };
    assert_eq!(w.one(wakes), AppendResult::Committed);
    assert_eq!(w.one(rows(a, 1, 1)), AppendResult::Moved, "an old version");
    let unsure = Append {
        head_version: None,
        ..rows(a, 1, 1)
    };
    assert_eq!(w.one(unsure), AppendResult::Moved, "no version");
    assert_eq!(w.load(a).head.wake_at, Some(at(7)));
    assert_eq!(w.one(rows(a, 1, 2)), AppendResult::Committed);
    assert_eq!(w.load(a).head_version, 3);
}

fn a_head_change_needs_the_last_event_too(w: &Fixture) {
    let a = w.run("a");
    let silent = Append {
        head: None,
        ..next(a, 1)
    };
    assert_eq!(w.one(silent), AppendResult::Committed);
    assert_eq!(w.one(rows(a, 1, 1)), AppendResult::Moved);
    assert_eq!(w.one(rows(a, 2, 1)), AppendResult::Committed);
}

fn a_head_changes_its_version_each_time(w: &Fixture) {
    let a = w.run("a");
    assert_eq!(w.one(next(a, 1)), AppendResult::Committed);
    assert_eq!(w.load(a).head_version, 2);
}

fn an_owner_may_leave_the_head_alone(w: &Fixture) {
    let a = w.run("a");
    let silent = Append {
        head: None,
        ..next(a, 1)
    };
    assert_eq!(w.one(silent), AppendResult::Committed);
    let run = w.load(a);
    assert_eq!((run.head_version, run.head), (1, running()));
}

fn a_lost_answer_without_events_is_recognised(w: &Fixture) {
    let a = w.run("a");
    let batch = w.batch(at(0), vec![rows(a, 1, 1)]);
    assert_eq!(w.store.commit(&batch).unwrap(), [AppendResult::Committed]);
    assert_eq!(w.store.commit(&batch).unwrap(), [AppendResult::Again]);
    assert_eq!(w.load(a).head_version, 2);
    assert_eq!(w.one(rows(a, 1, 2)), AppendResult::Committed);
    assert_eq!(w.store.commit(&batch).unwrap(), [AppendResult::Moved]);
}

fn rows_without_a_head_are_recognised_too(w: &Fixture) {
    let a = w.run("a");
    let mail = w.store.post(a, "{}", at(0)).unwrap();
    let silent = Append {
        head: None,
        taken: vec![mail],
        ..rows(a, 1, 1)
    };
    let batch = w.batch(at(0), vec![silent]);
    assert_eq!(w.store.commit(&batch).unwrap(), [AppendResult::Committed]);
    assert_eq!(w.store.commit(&batch).unwrap(), [AppendResult::Again]);
    let run = w.load(a);
    assert_eq!((run.head_version, run.head), (2, running()));
}

fn a_loser_leaves_no_rows(w: &Fixture) {
    let (a, b) = (w.run("a"), w.run("b"));
    let before = w.load(a);
    let mut loser = next(a, 5);
    loser.tasks = vec![put("t", at(0))];
    loser.mail = vec![mail("b")];
    loser.sinks = vec!["hook".into()];
    loser.slots = vec![super::fixture::slot("k", 1, 5)];
    loser.alerts = vec![super::fixture::alert("A")];
    loser.waits = vec![super::fixture::wait("s")];
    assert_eq!(w.one(loser), AppendResult::Moved);
    assert_eq!(w.load(a), before);
    assert_eq!(w.mail_of(b), Vec::<String>::new());
    assert_eq!(w.store.slots_taken("k").unwrap(), 0);
    assert_eq!(w.store.alerts(9).unwrap(), vec![]);
    assert_eq!(w.store.backlog("hook").unwrap(), (0, None));
}

fn a_run_without_a_plan_is_refused_alone(w: &Fixture) {
    let (a, b, c) = (w.number(), w.number(), w.number());
    let mut without = w.new_run(a, "a");
    without.create.as_mut().unwrap().plan = None;
    let mut unknown = w.new_run(b, "b");
    unknown.create.as_mut().unwrap().plan = Some(PlanNo(987_654));
    let all = w.send(at(0), vec![without, unknown, w.new_run(c, "c")]);
    assert!(matches!(all[0], AppendResult::Refused(_)), "{all:?}");
    assert!(matches!(all[1], AppendResult::Refused(_)), "{all:?}");
    assert_eq!(all[2], AppendResult::Committed);
    assert_eq!(w.store.find("a").unwrap(), None);
    assert_eq!(w.store.find("b").unwrap(), None);
}

fn batches_that_share_a_transaction_are_answered_as_alone(w: &Fixture) {
    let (old, new) = (w.run("old"), w.number());
    let first = w.batch(at(0), vec![next(old, w.last_seq(old))]);
    // It begins where the first batch has gone on, sends a message to a run that the batch creates, and has a
    // chunk that is refused when its rows are written.
    let mut twice = w.new_run(w.number(), "twice");
    if let Some(chunk) = &mut twice.chunk {
        chunk.keys = vec![b"k".to_vec(), b"k".to_vec()];
    }
    let mut created = w.new_run(new, "new");
    created.mail = vec![mail("new")];
    let second = w.batch(
        at(0),
        vec![next(old, first.appends[0].after), created, twice],
    );
    let third = w.batch(at(0), vec![next(new, 2)]);
    let answers = w.store.commit_all(&[&first, &second, &third]);
    let answers: Vec<Vec<AppendResult>> = answers.into_iter().map(|it| it.unwrap()).collect();
    assert_eq!(answers[0], [AppendResult::Committed]);
    assert_eq!(
        answers[1][..2],
        [AppendResult::Moved, AppendResult::Committed]
    );
    assert_eq!(answers[1][2], AppendResult::KeyExists);
    assert_eq!(w.mail_of(new).len(), 1);
    assert_eq!(answers[2].len(), 1);
    // The answers were lost: each batch is recognised, together or alone.
    let again = w.store.commit_all(&[&first, &second]);
    assert_eq!(again[0].as_ref().unwrap()[..], [AppendResult::Again]);
    assert_eq!(again[1].as_ref().unwrap()[1], AppendResult::Again);
    assert_eq!(w.store.commit(&first).unwrap(), [AppendResult::Again]);
    assert_eq!(w.mail_of(new).len(), 1);
}
