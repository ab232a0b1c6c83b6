//! A log with an event that cannot be read or is not what was hashed: the run is not served, an alert names it, and the other
//! runs go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use stepwell_engine::Error;
use stepwell_engine::service::{NoWorker, Service, Setup};
use stepwell_engine::store::{Alerts as _, RunReader as _};
use stepwell_kernel::command::Command;
use stepwell_kernel::effect::Priority;
use stepwell_stores::sqlite::SqliteStore;

use crate::place::Place;
use crate::runs::{plan, request};
use crate::sqlite::quick;

const LONG: Duration = Duration::from_secs(10);

fn cancel() -> Command {
    Command::CancelRun {
        actor: stepwell_engine::engine::engine_actor(),
        reason: None,
        compensate: false,
        keep_undo: false,
    }
}

fn serve(store: &Arc<SqliteStore>) -> Service {
    Service::start(Setup::new(store.clone(), NoWorker)).unwrap()
}

/// Damages the log of one of two runs, and says what the answer to a command for this run is.
fn damage(word: &str, by: &str) -> Error {
    let place = Place::new();
    let file = place.at("runs.db");
    let store = Arc::new(SqliteStore::open(&file, quick()).unwrap());
    let service = serve(&store);
    let handle = service.handle();
    for run_id in ["run_whole", "run_broken"] {
        handle.start(&plan(2), request(run_id)).unwrap();
        assert!(handle.flush(LONG).unwrap());
    }
    service.stop(LONG).unwrap();
    drop(store);
    let damaged = Connection::open(&file).unwrap().execute(
        "UPDATE log SET body = replace(body, ?1, ?2)
         WHERE run_no = (SELECT run_no FROM runs WHERE run_id = 'run_broken')",
        [word, by],
    );
    assert_eq!(damaged.unwrap(), 1);

    let store = Arc::new(SqliteStore::open(&file, quick()).unwrap());
    let service = serve(&store);
    let refused = service.handle().submit("run_broken", cancel()).unwrap_err();
    service.handle().submit("run_whole", cancel()).unwrap();
    let begin = Instant::now();
    while store.alerts(9).unwrap().is_empty() {
        assert!(begin.elapsed() < LONG, "no alert was written");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Asked for again, the run is refused again, and nobody is told twice.
    assert!(service.handle().submit("run_broken", cancel()).is_err());
    assert!(service.handle().flush(LONG).unwrap());
    let alerts = store.alerts(9).unwrap();
    let [alert] = &alerts[..] else {
        panic!("one alert, not {alerts:?}");
    };
    assert_eq!(
        (alert.code.as_str(), alert.priority),
        ("LOG_INVALID", Priority::P1)
    );
    assert_eq!(alert.run_id.as_deref(), Some("run_broken"));
    let run = store.find("run_broken").unwrap().unwrap();
    assert_eq!(store.load(run).unwrap().unwrap().head.status, "RUNNING");
    service.stop(LONG).unwrap();
    refused
}

#[test]
fn an_event_that_was_changed_is_refused_with_an_alert_and_other_runs_go_on() {
    let refused = damage("\"RunApproved\"", "\"RunQueued\"");
    assert!(matches!(refused, Error::ChainBroken { .. }), "{refused:?}");
    assert_eq!(refused.code(), Some("LOG_INVALID"));
}

/// A type that nobody has written is no type of a newer version: the hash chain tells them apart.
#[test]
fn a_type_that_was_changed_is_refused_with_an_alert_and_other_runs_go_on() {
    let refused = damage("\"RunApproved\"", "\"RunApprove\"");
    assert!(matches!(refused, Error::ChainBroken { .. }), "{refused:?}");
    assert_eq!(refused.code(), Some("LOG_INVALID"));
}

#[test]
fn an_event_that_cannot_be_read_is_refused_with_an_alert_and_other_runs_go_on() {
    let refused = damage("\"type\":\"RunApproved\"", "\"typo\":\"RunApproved\"");
    assert!(matches!(refused, Error::Unreadable { .. }), "{refused:?}");
    assert_eq!(refused.code(), Some("LOG_INVALID"));
}
