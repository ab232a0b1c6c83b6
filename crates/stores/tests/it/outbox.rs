//! The outbox with real runs: events and markers together, a bus that is down, dead letters, order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::Value as Json;
use stepwell_bus::{Webhook, WebhookOptions};
use stepwell_engine::outbox::{Config, Delivery, Publisher, Sink, SinkError, spawn};
use stepwell_engine::store::{Append, AppendResult, Batch, Chunk, CommitId, Store};
use stepwell_kernel::codes::EVENT_BUS_DELIVERY_FAILED;
use stepwell_kernel::effect::Priority;
use stepwell_kernel::time::Time;
use stepwell_stores::postgres::PostgresStore;
use stepwell_stores::sqlite::SqliteStore;

use crate::listener::{Listener, OK};
use crate::place::Place;
use crate::runs::{START, chunks, each, engine, events, plan, request, run};
use crate::server;
use crate::sqlite::quick;

const SINK: &str = "hook";

/// What a sink says to a delivery.
type Say = dyn Fn(&Delivery) -> Result<(), SinkError> + Send + Sync;

/// A sink that fails as it is told to and notes everything.
#[derive(Clone)]
struct Script {
    notes: Arc<Mutex<Notes>>,
    answer: Arc<Say>,
}

#[derive(Default)]
struct Notes {
    now: Time,
    tried: Vec<(Time, Delivery)>,
    got: Vec<Delivery>,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Script")
    }
}

impl Sink for Script {
    fn name(&self) -> &str {
        SINK
    }

    fn deliver(&self, delivery: &Delivery) -> Result<(), SinkError> {
        let mut notes = self.notes.lock().unwrap();
        let now = notes.now;
        notes.tried.push((now, delivery.clone()));
        (self.answer)(delivery)?;
        notes.got.push(delivery.clone());
        Ok(())
    }
}

impl Script {
    fn new(answer: impl Fn(&Delivery) -> Result<(), SinkError> + Send + Sync + 'static) -> Script {
        Script {
            notes: Arc::default(),
            answer: Arc::new(answer),
        }
    }

    /// Ticks publishers in turn, in pretended time, until nothing is in the outbox.
    fn drain(&self, publishers: &mut [Publisher], store: &dyn Store, from: Time) -> Time {
        let mut now = from;
        for _ in 0..100_000 {
            let mut next = now.plus(1_000_000);
            for publisher in &mut *publishers {
                self.notes.lock().unwrap().now = now;
                next = next.min(publisher.tick(now).unwrap());
            }
            if store.backlog(SINK).unwrap().0 == 0 {
                return now;
            }
            now = now.max(next);
        }
        panic!("the outbox is never empty: {:?}", store.backlog(SINK));
    }

    /// The events that were delivered of a run, in the order they came.
    fn got(&self, run_id: &str) -> Vec<Json> {
        let notes = self.notes.lock().unwrap();
        let of_run = notes.got.iter().filter(|it| it.run_id == run_id);
        of_run.flat_map(|it| it.events.clone()).collect()
    }
}

fn config(name: &str) -> Config {
    Config {
        name: name.into(),
        backoff: Duration::from_millis(100),
        max_backoff: Duration::from_millis(2_000),
        poll: Duration::from_millis(10),
        lease: Duration::from_secs(100),
        ..Config::default()
    }
}

#[test]
fn c33_every_commit_has_its_marker_and_what_is_refused_has_none() {
    each(|store| {
        let no = run(&mut engine(store.clone(), &[SINK, "bus"]), "run_1", 3);
        let chunks = chunks(&*store, "run_1");
        let last = chunks.concat().len() as u64;
        // The run is elsewhere than this commit thinks: neither its event nor its marker is there.
        let mut append = Append::new(no, last - 1);
        append.sinks = vec![SINK.into()];
        append.chunk = Some(Chunk {
            first: last,
            last,
            codec: 1,
            body: r#"[[0,{},{"type":"X"}]]"#.into(),
            digests: vec![1; 80],
            keys: vec![vec![1]],
        });
        let batch = Batch {
            id: CommitId {
                session: 0,
                number: 77,
            },
            session: None,
            now: START,
            appends: vec![append],
        };
        assert_eq!(store.commit(&batch).unwrap(), [AppendResult::Moved]);
        assert_eq!(events(&*store, "run_1").len() as u64, last);
        for sink in [SINK, "bus"] {
            let (waiting, _) = store.backlog(sink).unwrap();
            assert_eq!(waiting, chunks.len() as u64);
            let mut firsts = Vec::new();
            while let [marker] = &store
                .take(sink, "me", START.plus(99), START.plus(100), 9)
                .unwrap()[..]
            {
                firsts.push(marker.first);
                store.sent(marker).unwrap();
            }
            let expected = chunks.iter().map(|it| it[0]["runSeq"].as_u64().unwrap());
            assert_eq!(firsts, expected.collect::<Vec<_>>());
        }
    });
}

/// A database that fails after it has written the marker: then nothing of the commit is there, and the
/// same run starts once it no longer does.
fn fails_after_the_marker(store: Arc<dyn Store>, fail: &dyn Fn(bool)) {
    let mut mock = engine(store.clone(), &[SINK]);
    run(&mut mock, "run_0", 1);
    let before = store.backlog(SINK).unwrap();
    fail(true);
    mock.trigger(&plan(2), request("run_1"))
        .expect_err("the store fails");
    let left = store.find("run_1").unwrap();
    assert_eq!(left, None, "neither the run nor its events");
    assert_eq!(store.backlog(SINK).unwrap(), before, "nor a marker");
    fail(false);
    run(&mut engine(store.clone(), &[SINK]), "run_1", 2);
    let chunks = chunks(&*store, "run_1").len() as u64;
    assert_eq!(store.backlog(SINK).unwrap().0, before.0 + chunks);
}

#[test]
fn c33_a_commit_that_fails_leaves_neither_event_nor_marker_in_sqlite() {
    let place = Place::new();
    let path = place.at("s.db");
    let store = Arc::new(SqliteStore::open(&path, quick()).unwrap());
    fails_after_the_marker(store, &|fail| {
        let beside = Connection::open(&path).unwrap();
        let sql = match fail {
            true => {
                "CREATE TRIGGER refuse AFTER INSERT ON outbox
                 BEGIN SELECT RAISE(ABORT, 'no marker today'); END"
            }
            false => "DROP TRIGGER refuse",
        };
        beside.execute_batch(sql).unwrap();
    });
}

#[test]
fn c33_a_commit_that_fails_leaves_neither_event_nor_marker_in_postgres() {
    let (url, schema) = (server::url(), server::schema());
    let store = PostgresStore::connect(&url, server::options(&schema)).unwrap();
    fails_after_the_marker(Arc::new(store), &|fail| {
        let sql = match fail {
            true => format!(
                "CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql
                   AS 'BEGIN RAISE EXCEPTION ''no marker today''; END';
                 CREATE TRIGGER refuse AFTER INSERT ON {schema}.outbox
                   FOR EACH ROW EXECUTE FUNCTION {schema}.refuse()"
            ),
            false => format!("DROP TRIGGER refuse ON {schema}.outbox"),
        };
        server::sql(&url, &sql);
    });
}

/// Waits for something that another thread does.
#[track_caller]
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn c34_with_the_bus_down_runs_go_on_and_all_is_delivered_when_it_is_back() {
    each(|store| {
        let listener = Listener::start(0, OK);
        let (port, url) = (listener.port, listener.url());
        let options = WebhookOptions {
            name: SINK.into(),
            timeout: Duration::from_secs(2),
            ..WebhookOptions::default()
        };
        let webhook = Webhook::new(&url, options).unwrap();
        let quick = Config {
            max_backoff: Duration::from_millis(100),
            max_attempts: 1_000,
            ..config("one")
        };
        let publishers = spawn(&store, vec![Box::new(webhook)], &quick).unwrap();
        let notify = publishers.notify();
        let mut mock = engine(store.clone(), &[SINK]);
        let empty = || store.backlog(SINK).unwrap().0 == 0;

        run(&mut mock, "run_0", 2);
        notify.notify();
        eventually("the first run is delivered", empty);
        let mut heard = listener.heard();
        drop(listener);

        for run_id in ["run_1", "run_2", "run_3"] {
            run(&mut mock, run_id, 3);
            notify.notify();
        }
        let waiting = store.backlog(SINK).unwrap().0;
        thread::sleep(Duration::from_millis(150));
        assert_eq!(
            store.backlog(SINK).unwrap().0,
            waiting,
            "nothing got through"
        );

        let listener = Listener::start(port, OK);
        eventually("the others are delivered", empty);
        publishers.stop(Duration::from_secs(5));
        heard.extend(listener.heard());
        assert_eq!(store.dead_letters(9).unwrap(), []);

        let mut got: BTreeMap<String, Vec<Json>> = BTreeMap::new();
        for request in heard {
            let body: Json = serde_json::from_str(&request.body).unwrap();
            let run_id = body["runId"].as_str().unwrap();
            assert_eq!(request.headers["stepwell-run"], run_id);
            let events = body["events"].as_array().unwrap().clone();
            got.entry(run_id.to_owned()).or_default().extend(events);
        }
        for run_id in ["run_0", "run_1", "run_2", "run_3"] {
            assert_eq!(got[run_id], events(&*store, run_id), "{run_id}");
        }
    });
}

#[test]
fn c35_retries_back_off_with_jitter_then_a_dead_letter_that_can_go_again() {
    each(|store| {
        let mut mock = engine(store.clone(), &[SINK]);
        let names: Vec<String> = (0..12).map(|no| format!("run_{no:02}")).collect();
        for run_id in &names {
            run(&mut mock, run_id, 1);
        }
        let healed = Arc::new(Mutex::new(false));
        let script = Script::new({
            let healed = healed.clone();
            move |delivery| match delivery.first_seq == 1 && !*healed.lock().unwrap() {
                true => Err(SinkError::refused("no beginnings")),
                false => Ok(()),
            }
        });
        let sink = Box::new(script.clone());
        let mut publisher = [Publisher::new(store.clone(), sink, config("one"))];
        let now = script.drain(&mut publisher, &*store, START.plus(100));

        // How long each delivery waited after its first, second, … failure.
        let mut waits: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let mut before: BTreeMap<String, Time> = BTreeMap::new();
        for (at, delivery) in &script.notes.lock().unwrap().tried {
            if delivery.first_seq != 1 {
                continue;
            }
            if let Some(before) = before.insert(delivery.run_id.clone(), *at) {
                let failures = delivery.attempt - 1;
                waits.entry(failures).or_default().push(at.since(before));
            }
        }
        assert_eq!(waits.len(), 9, "ten attempts");
        for (failures, waits) in &waits {
            let most = (100 << (failures - 1)).min(2_000);
            assert_eq!(waits.len(), names.len());
            // The outbox is looked into every 10 ms.
            assert!(
                waits.iter().all(|it| *it <= most + 20),
                "{failures}: {waits:?}"
            );
            let spread = waits.iter().max().unwrap() - waits.iter().min().unwrap();
            assert!(spread >= most / 4, "{failures}: {waits:?}");
        }
        let mean = |failures: u32| waits[&failures].iter().sum::<u64>() / 12;
        assert!(mean(3) > mean(1) && mean(5) > mean(3), "{waits:?}");

        let letters = store.dead_letters(99).unwrap();
        assert_eq!(letters.len(), names.len());
        assert!(
            letters
                .iter()
                .all(|it| it.marker.attempts == 10 && it.why == "no beginnings")
        );
        let alerts = store.alerts(99).unwrap();
        assert_eq!(alerts.len(), names.len());
        for alert in &alerts {
            assert_eq!(
                (alert.code.as_str(), alert.priority),
                (EVENT_BUS_DELIVERY_FAILED, Priority::P1)
            );
        }
        for run_id in &names {
            let rest = chunks(&*store, run_id)[1..].concat();
            assert_eq!(
                script.got(run_id),
                rest,
                "the run's others were not held up"
            );
        }

        *healed.lock().unwrap() = true;
        for letter in &letters {
            assert!(store.redrive(letter.no).unwrap());
        }
        publisher[0].notify();
        script.drain(&mut publisher, &*store, now);
        assert_eq!(store.dead_letters(99).unwrap(), []);
        for run_id in &names {
            let mut got = script.got(run_id);
            got.sort_by_key(|it| it["runSeq"].as_u64());
            assert_eq!(got, events(&*store, run_id));
        }
    });
}

#[test]
fn c36_deliveries_are_in_order_for_each_run() {
    // On the healthy path, and when deliveries fail now and then in both ways.
    for faults in [0, 3] {
        each(|store| {
            let mut mock = engine(store.clone(), &[SINK]);
            let names: Vec<String> = (0..5).map(|no| format!("run_{no}")).collect();
            for run_id in &names {
                run(&mut mock, run_id, 4);
            }
            let count = Mutex::new(0_u32);
            let script = Script::new(move |_| {
                let mut count = count.lock().unwrap();
                *count += 1;
                match (faults, *count % 7) {
                    (1.., 1 | 4) => Err(SinkError::refused("not this one")),
                    (1.., 6) => Err(SinkError::down("not now")),
                    _ => Ok(()),
                }
            });
            let publisher = |name: &str| {
                let sink = Box::new(script.clone());
                Publisher::new(store.clone(), sink, config(name))
            };
            let mut publishers = [publisher("one"), publisher("two")];
            script.drain(&mut publishers, &*store, START.plus(100));
            for run_id in &names {
                assert_eq!(script.got(run_id), events(&*store, run_id));
            }
        });
    }
}
