//! Values at the edge of what databases take: large, odd, or refused.

use super::fixture::{Fixture, alert, at, next, put, running};
use crate::store::{Append, AppendResult, Head, NewAlert, SlotChange};

super::table![
    odd_text_comes_back_as_it_was,
    a_large_chunk_comes_back_as_it_was,
    a_thousand_runs_in_one_batch,
    a_long_chunk_has_all_its_keys,
    any_bytes_make_a_key,
    a_value_the_database_refuses_fails_alone,
    times_at_the_edge_come_back,
];

const ODD: &str = "\u{1F980} é \u{0}\u{1}\u{7f} 漢 ' \" \\ ; -- % _ $1 ? \u{feff}\u{202e} e\u{301}";

fn odd_json() -> String {
    serde_json::to_string(ODD).unwrap()
}

fn odd_text_comes_back_as_it_was(w: &Fixture) {
    let run = w.run("a");
    // JSON writes the null character as an escape, which databases with a JSON type refuse in it.
    let body = format!("[[0,{{}},{{\"type\":\"X\",\"odd\":{}}}]]", odd_json());
    let visible = ODD.replace('\u{0}', "");
    let mut append = next(run, 1);
    append.chunk.as_mut().unwrap().body.clone_from(&body);
    append.tasks = vec![put(&visible, at(0))];
    append.slots = vec![SlotChange {
        key: visible.clone(),
        change: 1,
        limit: None,
    }];
    append.alerts = vec![alert(&visible)];
    append.head = Some(Head {
        substatus: Some(visible.clone()),
        ..running()
    });
    assert_eq!(w.one(append), AppendResult::Committed);
    w.store.post(run, &odd_json(), at(0)).unwrap();
    let read = w.load(run);
    assert_eq!(read.chunks[1].body, body);
    assert_eq!(read.tasks[0].target, visible);
    assert_eq!(read.head.substatus.as_ref(), Some(&visible));
    assert_eq!(read.mail[0].body, odd_json());
    assert_eq!(w.store.slots_taken(&visible).unwrap(), 1);
    assert_eq!(w.store.alerts(1).unwrap()[0].code, visible);
    w.store.put_projection(run, 1, &odd_json(), at(0)).unwrap();
    let projection = w.store.projection(run).unwrap();
    assert_eq!(projection, Some((1, odd_json())));
    let named = w.run(&visible);
    assert_eq!(w.store.find(&visible).unwrap(), Some(named));
}

fn a_large_chunk_comes_back_as_it_was(w: &Fixture) {
    let run = w.run("a");
    let text = "0123456789abcdef".repeat(65_536);
    let body = format!("[[0,{{}},{{\"type\":\"X\",\"text\":\"{text}\"}}]]");
    let mut append = next(run, 1);
    append.chunk.as_mut().unwrap().body.clone_from(&body);
    append.snapshot = Some(crate::store::StateSnapshot {
        seq: 2,
        version: 1,
        body: text.clone().into_bytes(),
    });
    assert_eq!(w.one(append), AppendResult::Committed);
    let read = w.load(run);
    assert!(
        read.chunks[0].body == body,
        "the body is not what was written"
    );
    assert!(read.snapshot.unwrap().body == text.into_bytes());
}

fn a_thousand_runs_in_one_batch(w: &Fixture) {
    let numbers = w.store.reserve_numbers(1000).unwrap();
    let runs: Vec<_> = numbers.map(crate::store::RunNo).collect();
    let create = runs
        .iter()
        .map(|run| w.new_run(*run, &format!("r{}", run.0)));
    let created = w.send(at(0), create.collect());
    assert!(created.iter().all(|it| *it == AppendResult::Committed));
    // Every third has moved in between; the others do not notice.
    let moves = runs.iter().step_by(3).map(|run| next(*run, 1));
    w.send(at(0), moves.collect());
    let all = w.send(at(0), runs.iter().map(|run| next(*run, 1)).collect());
    assert_eq!(all.len(), 1000);
    for (index, outcome) in all.iter().enumerate() {
        let expected = if index % 3 == 0 {
            AppendResult::Moved
        } else {
            AppendResult::Committed
        };
        assert_eq!(*outcome, expected, "append {index}");
    }
    assert!(runs.iter().all(|run| w.last_seq(*run) == 2));
}

fn a_long_chunk_has_all_its_keys(w: &Fixture) {
    let run = w.run("a");
    let long = super::fixture::chunk(2, 2001);
    let append = Append {
        chunk: Some(long.clone()),
        ..next(run, 1)
    };
    assert_eq!(w.one(append), AppendResult::Committed);
    assert_eq!(w.load(run).chunks[1].digests, long.digests);
    for key in [&long.keys[0], &long.keys[1999]] {
        let mut again = next(run, 2001);
        again.chunk.as_mut().unwrap().keys = vec![key.clone()];
        assert_eq!(w.one(again), AppendResult::KeyExists);
    }
}

fn any_bytes_make_a_key(w: &Fixture) {
    let run = w.run("a");
    let keys = [
        vec![],
        vec![0],
        vec![0, 0],
        vec![255, 254],
        b"A".to_vec(),
        b"a".to_vec(),
    ];
    for (index, key) in keys.iter().enumerate() {
        let mut append = next(run, index as u64 + 1);
        append.chunk.as_mut().unwrap().keys = vec![key.clone()];
        assert_eq!(w.one(append), AppendResult::Committed, "{key:?} is new");
    }
    for key in keys {
        let mut append = next(run, 7);
        append.chunk.as_mut().unwrap().keys = vec![key.clone()];
        assert_eq!(w.one(append), AppendResult::KeyExists, "{key:?} is known");
    }
}

fn a_value_the_database_refuses_fails_alone(w: &Fixture) {
    let (a, b, c) = (w.run("a"), w.run("b"), w.run("c"));
    let before = w.load(b);
    let odd = NewAlert {
        message: ODD.into(),
        ..alert("A")
    };
    let append = Append {
        alerts: vec![odd],
        ..next(b, 1)
    };
    let all = w.send(at(0), vec![next(a, 1), append, next(c, 1)]);
    assert_eq!(
        (&all[0], &all[2]),
        (&AppendResult::Committed, &AppendResult::Committed)
    );
    assert_eq!((w.last_seq(a), w.last_seq(c)), (2, 2));
    // Not every database refuses the null character; but then it must come back.
    match &all[1] {
        AppendResult::Committed => assert_eq!(w.store.alerts(1).unwrap()[0].message, ODD),
        AppendResult::Refused(_) => assert_eq!(w.load(b), before),
        other => panic!("{other:?}"),
    }
}

fn times_at_the_edge_come_back(w: &Fixture) {
    use stepwell_kernel::time::Time;
    for (index, millis) in [0, 1, 253_402_300_799_999].into_iter().enumerate() {
        let time = Time(millis);
        let run = w.run_with(&format!("r{index}"), |append| {
            append.tasks = vec![put("t", time)];
            append.head = Some(Head {
                wake_at: Some(time),
                ended_at: Some(time),
                ..running()
            });
        });
        let read = w.load(run);
        assert_eq!(read.head.wake_at, Some(time));
        assert_eq!(read.head.ended_at, Some(time));
        assert_eq!(read.tasks[0].visible_at, time);
    }
}
