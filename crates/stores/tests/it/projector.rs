//! The projector with real logs: its lag, gaps in what it reads, and crashes.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use stepwell_engine::projector::{Config, Projector, ResyncMode, spawn};
use stepwell_engine::store::Store;
use stepwell_kernel::codes::PROJECTOR_LAG_HIGH;
use stepwell_kernel::effect::Priority;
use stepwell_kernel::snapshot::{ContractEvent, RunSnapshot, RunStatus, project};
use stepwell_kernel::time::Time;

use crate::faulty::Torn;
use crate::runs::{START, chunks, each, engine, events, plan, request, run};

const GAP: &str = "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED";

/// What the kernel makes of all of a run's events.
fn whole(store: &dyn Store, run_id: &str) -> RunSnapshot {
    let events = events(store, run_id);
    let events: Vec<ContractEvent> = events.into_iter().filter_map(ContractEvent::read).collect();
    project(run_id, &events)
}

fn alerts(store: &dyn Store) -> Vec<(String, Priority)> {
    let alerts = store.alerts(99).unwrap().into_iter();
    alerts.map(|it| (it.code, it.priority)).collect()
}

fn after(millis: u64) -> Time {
    START.plus(millis)
}

#[test]
fn c27_lag_is_measured_and_told_once_when_it_is_high() {
    each(|store| {
        let high = (PROJECTOR_LAG_HIGH.to_owned(), Priority::P2);
        let mut mock = engine(store.clone(), &[]);
        let mut projector = Projector::new(store.clone(), Config::default());
        assert_eq!(projector.lag(after(0)), Duration::ZERO);
        let one = run(&mut mock, "run_1", 2);
        let last = whole(&*store, "run_1").last_event_seq;
        projector.committed(one, last, after(0));
        assert_eq!(projector.lag(after(700)), Duration::from_millis(700));
        projector.tick(after(700)).unwrap();
        assert_eq!(projector.lag(after(700)), Duration::ZERO);
        assert_eq!((projector.behind(), alerts(&*store)), (0, vec![]));

        // The next change of another run is known of and cannot be read yet: the lag grows.
        mock.create(&plan(2), request("run_2")).unwrap();
        let two = store.find("run_2").unwrap().unwrap();
        let created = whole(&*store, "run_2").last_event_seq;
        projector.committed(two, created + 1, after(1_000));
        projector.tick(after(6_000)).unwrap();
        assert_eq!(projector.lag(after(6_000)), Duration::from_secs(5));
        assert_eq!(
            alerts(&*store),
            [],
            "five seconds are not above five seconds"
        );
        for late in [6_001, 7_000, 60_000] {
            projector.tick(after(late)).unwrap();
            assert_eq!(alerts(&*store), std::slice::from_ref(&high), "once");
        }
        assert_eq!(store.alerts(1).unwrap()[0].run_id.as_deref(), Some("run_2"));
        projector.committed(one, last, after(60_000));
        projector.tick(after(60_000)).unwrap();
        assert_eq!(projector.behind(), 1, "who lags holds up nobody else");

        // Caught up with, it may lag again; and who is told late is told all the same.
        let mut projector = Projector::new(store.clone(), Config::default());
        projector.committed(two, created, after(0));
        projector.tick(after(5_001)).unwrap();
        assert_eq!(projector.lag(after(5_001)), Duration::ZERO);
        assert_eq!(alerts(&*store), vec![high.clone(); 2]);
        projector.tick(after(5_002)).unwrap();
        projector.committed(one, last, after(6_000));
        projector.tick(after(12_000)).unwrap();
        assert_eq!(alerts(&*store), vec![high; 3], "another episode");
    });
}

// also proves: C24
#[test]
fn c23_a_chunk_that_is_not_seen_makes_a_run_stale_until_a_resync_reaches_it() {
    each(|store| {
        let torn = Arc::new(Torn::new(store.clone()));
        let mut mock = engine(store.clone(), &[]);
        let no = run(&mut mock, "run_1", 5);
        let chunks = chunks(&*store, "run_1");
        let second = chunks[1][0]["runSeq"].as_u64().unwrap();
        let last = chunks.concat().len() as u64;
        let gap = (GAP.to_owned(), Priority::P2);
        let mut projector = Projector::new(torn.clone(), Config::default());

        // Once: bridged at once.
        torn.hidden.lock().unwrap().push_back(second);
        projector.committed(no, last, after(0));
        projector.tick(after(0)).unwrap();
        assert_eq!(alerts(&*store), std::slice::from_ref(&gap));
        assert_eq!((projector.behind(), projector.is_stale(no)), (0, false));
        assert_eq!(
            projector.project(no, after(1)).unwrap(),
            whole(&*store, "run_1")
        );

        // The resync does not reach the end that was seen before it, not even when everything is asked
        // for: the run stays stale, and nothing is invented.
        let no = run(&mut mock, "run_2", 5);
        let chunks = self::chunks(&*store, "run_2");
        let first = |at: usize| chunks[at][0]["runSeq"].as_u64().unwrap();
        let (second, tail) = (first(1), first(chunks.len() - 1));
        let last = chunks.concat().len() as u64;
        let hide = [second, tail, tail, tail, tail];
        torn.hidden.lock().unwrap().extend(hide);
        projector.committed(no, last, after(10));
        projector.tick(after(10)).unwrap();
        assert!(torn.hidden.lock().unwrap().is_empty());
        assert_eq!((projector.behind(), projector.is_stale(no)), (1, true));
        assert_eq!(alerts(&*store), vec![gap.clone(); 2]);
        assert_eq!(
            store.projection(no).unwrap(),
            None,
            "no further than the gap"
        );
        projector.tick(after(600)).unwrap();
        assert_eq!((projector.behind(), projector.is_stale(no)), (0, false));
        let expected = whole(&*store, "run_2");
        assert_eq!(projector.project(no, after(600)).unwrap(), expected);

        // The end is not seen yet: that is no gap, but the run is known to go further.
        let no = run(&mut mock, "run_3", 2);
        let chunks = self::chunks(&*store, "run_3");
        let tail = chunks[chunks.len() - 1][0]["runSeq"].as_u64().unwrap();
        torn.hidden.lock().unwrap().push_back(tail);
        projector.committed(no, chunks.concat().len() as u64, after(700));
        projector.tick(after(700)).unwrap();
        assert_eq!((projector.behind(), projector.is_stale(no)), (1, false));
        projector.tick(after(1_300)).unwrap();
        assert_eq!(projector.behind(), 0);
        let expected = whole(&*store, "run_3");
        assert_eq!(projector.project(no, after(1_300)).unwrap(), expected);
        assert_eq!(alerts(&*store), vec![gap; 2], "once for each gap");
    });
}

#[test]
fn c25_from_a_kept_snapshot_and_from_the_beginning_a_run_is_the_same() {
    each(|store| {
        let torn = Arc::new(Torn::new(store.clone()));
        let mut mock = engine(store.clone(), &[]);
        mock.trigger(&plan(30), request("run_1")).unwrap();
        let no = store.find("run_1").unwrap().unwrap();
        let mut projector = Projector::new(torn.clone(), Config::default());
        let mut before = 0;
        while store.projection(no).unwrap().is_none() {
            assert!(mock.step().unwrap(), "a snapshot is kept before the end");
            before = projector.project(no, after(0)).unwrap().last_event_seq;
        }
        let (kept, _) = store.projection(no).unwrap().unwrap();
        assert_eq!(kept, before, "its watermark is the last event in it");
        mock.run_to_end().unwrap();
        let expected = whole(&*store, "run_1");
        assert_eq!(expected.status, RunStatus::Completed);

        // A gap behind the snapshot: it is resynced from there, and another projector that has none
        // from the beginning.
        let chunks = store.chunks(no, before, 9).unwrap();
        torn.hidden.lock().unwrap().push_back(chunks[1].first);
        assert_eq!(projector.project(no, after(1)).unwrap(), expected);
        assert_eq!(alerts(&*store).len(), 1);
        let (kept, text) = store.projection(no).unwrap().unwrap();
        assert_eq!(kept, expected.last_event_seq, "the end is always kept");
        assert_eq!(
            serde_json::from_str::<RunSnapshot>(&text).unwrap(),
            expected
        );
        // After a crash: from what was kept.
        let mut again = Projector::new(store.clone(), Config::default());
        assert_eq!(again.project(no, after(2)).unwrap(), expected);
    });
}

/// A projector that goes on after a crash, or that reads beside another one, raises no alert again.
#[test]
fn c23_a_gap_in_a_run_that_goes_on_is_told_once_by_all_projectors() {
    each(|store| {
        let torn = Arc::new(Torn::new(store.clone()));
        let mut mock = engine(store.clone(), &[]);
        mock.trigger(&plan(5), request("run_1")).unwrap();
        while chunks(&*store, "run_1").len() < 3 {
            assert!(mock.step().unwrap());
        }
        let no = store.find("run_1").unwrap().unwrap();
        let second = chunks(&*store, "run_1")[1][0]["runSeq"].as_u64().unwrap();
        let whole = whole(&*store, "run_1");
        // What is read, and each page that a resync reads.
        torn.hidden.lock().unwrap().extend([second; 2]);
        let mut projector = Projector::new(torn.clone(), Config::default());
        let seen = projector.refresh(no, after(0)).unwrap();
        let gap = seen.gap.expect("events were read after a gap");
        assert_eq!(gap.before.last_event_seq, second - 1);
        assert!(!seen.is_stale && seen.resynced == Some(ResyncMode::Full));
        assert_eq!(seen.snapshot.last_event_seq, whole.last_event_seq);
        assert_ne!(seen.snapshot, whole, "nothing is invented");
        for _ in 0..2 {
            let mut other = Projector::new(store.clone(), Config::default());
            let seen = other.refresh(no, after(1)).unwrap();
            assert_eq!((seen.gap, seen.resynced), (None, None));
        }
        assert_eq!(alerts(&*store), [(GAP.to_owned(), Priority::P2)]);

        // What is there by now is in the next snapshot that is made from all events, and that one is kept.
        let mut other = Projector::new(store.clone(), Config::default());
        let seen = other.resync(no, ResyncMode::Full, after(2)).unwrap();
        assert_eq!(seen.snapshot, whole);
        let mut other = Projector::new(store.clone(), Config::default());
        assert_eq!(other.project(no, after(3)).unwrap(), whole);
    });
}

#[test]
fn c27_events_that_nobody_told_of_count_for_the_lag() {
    each(|store| {
        let mut mock = engine(store.clone(), &[]);
        mock.trigger(&plan(2), request("run_1")).unwrap();
        let no = store.find("run_1").unwrap().unwrap();
        let mut projector = Projector::new(store.clone(), Config::default());
        // What was there before is not late.
        let first = projector.refresh(no, after(99_000)).unwrap();
        assert_eq!(first.lag, Duration::ZERO);
        projector.look(no).unwrap();
        assert_eq!(projector.behind(), 0);
        mock.run_to_end().unwrap();
        projector.look(no).unwrap();
        assert_eq!(projector.behind(), 1);
        let late = projector.lag(after(99_000));
        assert!(late > Duration::from_secs(5), "{late:?}");
        let seen = projector.refresh(no, after(99_000)).unwrap();
        assert_eq!((seen.lag, projector.behind()), (late, 0));
        assert_eq!(seen.snapshot.status, RunStatus::Completed);
        let high = (PROJECTOR_LAG_HIGH.to_owned(), Priority::P2);
        assert_eq!(alerts(&*store), [high]);
    });
}

#[test]
fn a_projector_with_a_thread_follows_what_it_is_told() {
    each(|store| {
        let running = spawn(store.clone(), Config::default()).unwrap();
        let handle = running.handle();
        let mut mock = engine(store.clone(), &[]);
        for run_id in ["run_1", "run_2", "run_3"] {
            let no = run(&mut mock, run_id, 3);
            let last = whole(&*store, run_id).last_event_seq;
            handle.committed(no, last);
        }
        let begun = Instant::now();
        while handle.behind() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(30));
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(handle.lag(), Duration::ZERO);
        for run_id in ["run_1", "run_2", "run_3"] {
            let no = store.find(run_id).unwrap().unwrap();
            let (_, kept) = store.projection(no).unwrap().unwrap();
            let kept: RunSnapshot = serde_json::from_str(&kept).unwrap();
            assert_eq!(kept, whole(&*store, run_id));
            assert_eq!(handle.project(run_id).unwrap(), kept);
        }
        assert!(handle.project("nobody").is_err());
        running.stop();
    });
}
