//! SQLite under the engine's suite, and beside the memory store.

use std::cell::RefCell;

use stepwell_engine::store::{
    AppendResult, AuditLog as _, AuditRow, Commits as _, DeleteFilter, Documents as _, Head,
    Mailbox as _, Maintenance as _, MemoryStore, NewDocument, Retention as _, Sessions as _,
};
use stepwell_engine::suite::{self, Fresh};
use stepwell_kernel::time::Time;
use stepwell_stores::sqlite::{Durability, Mode, SqliteOptions, SqliteStore};

use crate::place::Place;
use crate::sqlite_faults::{batch, create, plan};

/// Without waiting for the disk: what these tests look at does not depend on it.
pub(crate) fn quick() -> SqliteOptions {
    SqliteOptions {
        durability: Durability::Off,
        ..SqliteOptions::default()
    }
}

#[test]
fn keeps_every_rule_of_the_port() {
    let places = RefCell::new(Vec::new());
    suite::run("", &|| {
        let place = Place::new();
        let store = SqliteStore::open(place.at("s.db"), quick()).unwrap();
        places.borrow_mut().push(place);
        Fresh::alone(store)
    });
}

#[test]
fn does_what_the_memory_store_does() {
    for seed in 0..4 {
        let place = Place::new();
        let sqlite = SqliteStore::open(place.at("s.db"), quick()).unwrap();
        suite::differential(seed, 1_000, &[&MemoryStore::default(), &sqlite]);
    }
}

#[test]
fn a_new_owner_finds_all_earlier_sessions_dead() {
    let place = Place::new();
    let secret = {
        let store = SqliteStore::open(place.at("s.db"), quick()).unwrap();
        let session = store.open_session("one", Time(0), Time(1_000_000)).unwrap();
        assert!(
            store
                .renew_session(session, Time(1), Time(2_000_000))
                .unwrap()
        );
        store.secret().unwrap()
    };
    let store = SqliteStore::open(place.at("s.db"), quick()).unwrap();
    let second = store.open_session("two", Time(2), Time(1_000_000)).unwrap();
    assert!(second.0 > 1, "a number is never used again");
    assert!(
        !store
            .renew_session(stepwell_engine::store::SessionNo(1), Time(2), Time(3))
            .unwrap()
    );
    assert_eq!(store.secret().unwrap(), secret);
}

#[test]
fn nobody_changes_the_audit_log_with_sql() {
    let place = Place::new();
    let store = SqliteStore::open(place.at("s.db"), quick()).unwrap();
    let row = AuditRow {
        at: Time(5),
        actor: "ada".into(),
        ..AuditRow::default()
    };
    store.record(&[row]).unwrap();
    let conn = rusqlite::Connection::open(place.at("s.db")).unwrap();
    for change in [
        "UPDATE audit_log SET actor = 'bob'",
        "DELETE FROM audit_log",
        "INSERT OR REPLACE INTO audit_log SELECT * FROM audit_log",
    ] {
        let refused = conn.execute(change, []).unwrap_err().to_string();
        assert!(refused.contains("audit_log"), "{change}: {refused}");
    }
    // What the program deletes by age leaves no way for others.
    assert_eq!(store.prune_audit(Time(5), 9).unwrap(), 0);
    assert!(conn.execute("DELETE FROM audit_log", []).is_err());
    assert_eq!(store.prune_audit(Time(6), 9).unwrap(), 1);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn what_deleted_runs_took_on_disk_is_used_again() {
    let place = Place::new();
    let store = SqliteStore::open(place.at("s.db"), quick()).unwrap();
    let plan = plan(&store);
    let body = format!("[\"{}\"]", "x".repeat(30_000));
    let fill = |numbers: std::ops::RangeInclusive<i64>| {
        let number = *numbers.start();
        let appends = numbers.map(|no| {
            let mut append = create(plan, no, &body);
            append.head = Some(Head {
                status: "COMPLETED".into(),
                ended_at: Some(Time(no)),
                ..Head::default()
            });
            append
        });
        let answers = store.commit(&batch(number, appends.collect())).unwrap();
        assert!(answers.iter().all(|it| *it == AppendResult::Committed));
        store.bytes().unwrap()
    };
    let full = fill(1..=50);
    let filter = DeleteFilter {
        ended_before: Time(100),
        ..DeleteFilter::default()
    };
    let gone = store.delete_ended(&filter, 100, Time(1_000)).unwrap();
    assert_eq!(gone.len(), 50);
    assert!(store.bytes().unwrap() < full / 5);
    let pages = || -> i64 {
        let conn = rusqlite::Connection::open(place.at("s.db")).unwrap();
        conn.query_row("PRAGMA page_count", [], |row| row.get(0))
            .unwrap()
    };
    let before = pages();
    fill(101..=150);
    assert!(pages() <= before + 5, "{} pages, {before} before", pages());
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn guests_write_documents_and_add_to_the_audit_log() {
    let place = Place::new();
    let owner = SqliteStore::open(place.at("s.db"), quick()).unwrap();
    let options = SqliteOptions {
        mode: Mode::Guest,
        ..quick()
    };
    let guest = SqliteStore::open(place.at("s.db"), options).unwrap();
    let document = NewDocument {
        kind: "token".into(),
        key: "ci".into(),
        body: "{}".into(),
        ..NewDocument::default()
    };
    assert_eq!(
        guest.put_document(&document, None, Time(1)).unwrap(),
        Some(1)
    );
    assert_eq!(
        owner.put_document(&document, Some(1), Time(2)).unwrap(),
        Some(2)
    );
    assert!(!guest.delete_document("token", "", "ci", 1).unwrap());
    guest.record(&[AuditRow::default()]).unwrap();
    assert_eq!(owner.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn news_tells_of_guests_only() {
    let place = Place::new();
    let owner = SqliteStore::open(place.at("s.db"), quick()).unwrap();
    let before = owner.news().unwrap();
    owner.reserve_numbers(1).unwrap();
    assert_eq!(owner.news().unwrap(), before);
    let options = SqliteOptions {
        mode: Mode::Guest,
        ..quick()
    };
    let guest = SqliteStore::open(place.at("s.db"), options).unwrap();
    guest
        .post(stepwell_engine::store::RunNo(1), "{}", Time(0))
        .unwrap();
    assert_ne!(owner.news().unwrap(), before);
}
