//! Many at once: whatever the interleaving, exactly one wins.

use std::collections::HashSet;
use std::thread;

use super::fixture::{Fixture, at, has, next, paid, put, serves, slot, take, wait};
use crate::store::{Append, AppendResult, Batch, Delivered, Guard, Store};

super::table![
    of_many_appends_at_one_place_one_wins,
    of_many_runs_with_one_request_key_one_is_made,
    of_many_runs_with_one_unique_key_one_is_made,
    workers_at_once_reserve_different_tasks,
    slots_taken_at_once_never_exceed_their_limit,
    an_expiry_and_a_result_at_once_have_one_winner,
    an_event_and_a_wait_at_once_meet,
    numbers_reserved_at_once_are_different,
    batches_over_the_same_runs_do_not_block_each_other,
    publishers_at_once_take_different_markers,
];

const MANY: usize = 8;

/// More than enough for one thread to take everything there is.
const ROUNDS: usize = 50;

/// Does the same on many threads, every other one through the second way in if there is one.
fn at_once<T: Send>(w: &Fixture, work: impl Fn(usize, &dyn Store) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let start = |index: usize| {
            let second = w.second.as_deref().filter(|_| index % 2 == 1);
            let store = second.unwrap_or(w.store.as_ref());
            scope.spawn(move || work(index, store))
        };
        let threads: Vec<_> = (0..MANY).map(start).collect();
        threads.into_iter().map(|it| it.join().unwrap()).collect()
    })
}

fn won(outcomes: &[AppendResult]) -> usize {
    let won = outcomes.iter().filter(|it| **it == AppendResult::Committed);
    won.count()
}

fn commit(store: &dyn Store, batch: &Batch) -> AppendResult {
    store.commit(batch).unwrap().remove(0)
}

fn of_many_appends_at_one_place_one_wins(w: &Fixture) {
    let run = w.run("a");
    for after in 1..=10 {
        let outcomes = at_once(w, |_, store| {
            commit(store, &w.batch(at(0), vec![next(run, after)]))
        });
        assert_eq!(won(&outcomes), 1, "{outcomes:?}");
        let lost = outcomes
            .iter()
            .filter(|it| **it == AppendResult::Moved)
            .count();
        assert_eq!(lost, MANY - 1, "{outcomes:?}");
    }
    assert_eq!(w.last_seq(run), 11);
}

fn of_many_runs_with_one_request_key_one_is_made(w: &Fixture) {
    let outcomes = at_once(w, |index, store| {
        let mut append = w.new_run(w.number(), &format!("r{index}"));
        append.create.as_mut().unwrap().request_key = Some("r".into());
        commit(store, &w.batch(at(0), vec![append]))
    });
    assert_eq!(won(&outcomes), 1, "{outcomes:?}");
    let winner = outcomes
        .iter()
        .position(|it| *it == AppendResult::Committed);
    let taken = AppendResult::RequestTaken(format!("r{}", winner.unwrap()));
    let lost = outcomes.iter().filter(|it| **it == taken).count();
    assert_eq!(lost, MANY - 1, "{outcomes:?}");
}

fn of_many_runs_with_one_unique_key_one_is_made(w: &Fixture) {
    for round in 0..5 {
        let keys = [format!("a{round}"), format!("b{round}")];
        let run_id = |index: usize, key: &str| format!("r{index} {key}");
        let outcomes = at_once(w, |index, store| {
            let keyed = |key: &String| Append {
                unique_key: take("order", key),
                ..w.new_run(w.number(), &run_id(index, key))
            };
            // Every other one in the opposite order: batches must not wait for each other without end.
            let mut both: Vec<Append> = keys.iter().map(keyed).collect();
            if index % 2 == 1 {
                both = keys.iter().rev().map(keyed).collect();
            }
            let mut outcomes = store.commit(&w.batch(at(0), both)).unwrap();
            if index % 2 == 1 {
                outcomes.reverse();
            }
            outcomes
        });
        for (place, key) in keys.iter().enumerate() {
            let of_key: Vec<_> = outcomes.iter().map(|it| it[place].clone()).collect();
            assert_eq!(won(&of_key), 1, "{of_key:?}");
            let winner = of_key.iter().position(|it| *it == AppendResult::Committed);
            let taken = AppendResult::UniqueKeyTaken(run_id(winner.unwrap(), key));
            let lost = of_key.iter().filter(|it| **it == taken).count();
            assert_eq!(lost, MANY - 1, "{of_key:?}");
        }
    }
}

fn workers_at_once_reserve_different_tasks(w: &Fixture) {
    for run in 0..20 {
        w.run_with(&format!("r{run}"), |append| {
            append.tasks = vec![put("t", at(0)), put("u", at(0))];
        });
    }
    let all = at_once(w, |index, store| {
        let worker = format!("w{index}");
        let mut got = Vec::new();
        // A store that always returns the same row must fail here, not hang.
        for _ in 0..ROUNDS {
            let rows = store.reserve(&serves(), &worker, at(1), at(50), 3).unwrap();
            if rows.is_empty() {
                break;
            }
            got.extend(rows.into_iter().map(|it| (it.run, it.target)));
        }
        got
    });
    let all: Vec<_> = all.into_iter().flatten().collect();
    let different: HashSet<_> = all.iter().collect();
    assert_eq!((all.len(), different.len()), (40, 40));
}

fn slots_taken_at_once_never_exceed_their_limit(w: &Fixture) {
    let runs: Vec<_> = (0..MANY).map(|it| w.run(&format!("r{it}"))).collect();
    let outcomes = at_once(w, |index, store| {
        let append = Append {
            slots: vec![slot("k", 1, 3)],
            ..next(runs[index], 1)
        };
        commit(store, &w.batch(at(0), vec![append]))
    });
    assert_eq!(won(&outcomes), 3, "{outcomes:?}");
    assert_eq!(w.store.slots_taken("k").unwrap(), 3);
}

fn an_expiry_and_a_result_at_once_have_one_winner(w: &Fixture) {
    for round in 0..10 {
        let run = w.leased(&format!("r{round}"), at(100));
        // The clocks of servers differ: to some the lease holds, to others it is over.
        let outcomes = at_once(w, |index, store| {
            let mut append = next(run, 1);
            let now = if index < MANY / 2 {
                append.guards = vec![has("t", "w")];
                at(100)
            } else {
                append.guards = vec![Guard::Expired { target: "t".into() }];
                append.tasks = vec![put("t", at(101))];
                at(101)
            };
            commit(store, &w.batch(now, vec![append]))
        });
        assert_eq!(won(&outcomes), 1, "{outcomes:?}");
        assert_eq!(w.last_seq(run), 2);
    }
}

fn an_event_and_a_wait_at_once_meet(w: &Fixture) {
    for round in 0..20 {
        let id = format!("r{round}");
        let run = w.run(&id);
        let events = at_once(w, |index, store| {
            if index == 0 {
                let append = Append {
                    waits: vec![wait("s")],
                    ..next(run, 1)
                };
                let outcome = commit(store, &w.batch(at(0), vec![append]));
                assert_eq!(outcome, AppendResult::Committed);
                None
            } else if index == 1 {
                Some(store.deliver(&paid(&id, &id), at(0)).unwrap())
            } else {
                None
            }
        });
        assert!(!events.contains(&Some(Delivered::Again)));
        assert_eq!(w.mail_of(run).len(), 1, "round {round}: {events:?}");
    }
}

fn numbers_reserved_at_once_are_different(w: &Fixture) {
    let all = at_once(w, |_, store| {
        let ranges = (0..10).map(|_| store.reserve_numbers(7).unwrap());
        ranges.flatten().collect::<Vec<i64>>()
    });
    let all: Vec<i64> = all.into_iter().flatten().collect();
    let different: HashSet<i64> = all.iter().copied().collect();
    assert_eq!(different.len(), all.len());
}

fn batches_over_the_same_runs_do_not_block_each_other(w: &Fixture) {
    let runs: Vec<_> = (0..20).map(|it| w.run(&format!("r{it}"))).collect();
    let outcomes = at_once(w, |_, store| {
        let append = |run: &crate::store::RunNo| Append {
            slots: vec![slot(&format!("k{}", run.0 % 3), 1, 1000)],
            mail: vec![crate::store::NewMessage {
                to: format!("r{}", run.0 % 5),
                body: "{}".into(),
            }],
            ..next(*run, 1)
        };
        let batch = w.batch(at(0), runs.iter().map(append).collect());
        store.commit(&batch).unwrap()
    });
    let all: usize = outcomes.iter().map(|it| won(it)).sum();
    assert_eq!(all, runs.len(), "one winner for each run");
}

fn publishers_at_once_take_different_markers(w: &Fixture) {
    for run in 0..20 {
        w.run_with(&format!("r{run}"), |append| {
            append.sinks = vec!["hook".into()]
        });
    }
    let all = at_once(w, |index, store| {
        let publisher = format!("p{index}");
        let mut got = Vec::new();
        for _ in 0..ROUNDS {
            let taken = store.take("hook", &publisher, at(1), at(50), 3).unwrap();
            if taken.is_empty() {
                break;
            }
            got.extend(taken.into_iter().map(|it| it.run_id));
        }
        got
    });
    let all: Vec<String> = all.into_iter().flatten().collect();
    let different: HashSet<&String> = all.iter().collect();
    assert_eq!((all.len(), different.len()), (20, 20));
}
