//! Faults that really happen to a file: each is named, says what to do, and leaves the store usable.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use rusqlite::Connection;
use stepwell_engine::store::{
    Append, AppendResult, Batch, Chunk, CommitId, Commits as _, Head, Mailbox as _,
    Maintenance as _, MessageState, NewRun, PlanNo, Plans as _, RunNo, RunReader as _,
    Sessions as _, StoreError, StoreErrorKind,
};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;
use stepwell_stores::sqlite::{Mode, SqliteOptions, SqliteStore};

use crate::place::Place;
use crate::sqlite::quick;

fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path, quick())
}

pub(crate) fn with_mode(mode: Mode) -> SqliteOptions {
    SqliteOptions { mode, ..quick() }
}

pub(crate) fn refused(path: &Path, options: SqliteOptions, kind: StoreErrorKind, says: &str) {
    let error = SqliteStore::open(path, options).unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.message.contains(says), "{error}");
}

pub(crate) fn plan(store: &SqliteStore) -> PlanNo {
    let net = include_str!("../../../../fixtures/histories/linear-payment/net.json");
    let plan = Plan::new(serde_json::from_str(net).unwrap()).unwrap();
    store.put_plan(&plan).unwrap()
}

pub(crate) fn chunk(seq: u64, body: &str) -> Chunk {
    Chunk {
        first: seq,
        last: seq,
        codec: 1,
        body: body.into(),
        digests: vec![7; 80],
        keys: vec![seq.to_be_bytes().to_vec()],
    }
}

pub(crate) fn batch(number: i64, appends: Vec<Append>) -> Batch {
    Batch {
        id: CommitId { session: 1, number },
        session: None,
        now: Time(0),
        appends,
    }
}

pub(crate) fn create(plan: PlanNo, no: i64, body: &str) -> Append {
    let mut append = Append::new(RunNo(no), 0);
    append.create = Some(Box::new(NewRun {
        run_id: format!("run_{no}"),
        plan: Some(plan),
        ..NewRun::default()
    }));
    append.chunk = Some(chunk(1, body));
    append.head = Some(Head {
        status: "RUNNING".into(),
        ..Head::default()
    });
    append
}

#[test]
fn a_missing_directory_is_made() {
    let place = Place::new();
    let path = place.at("deep/.stepwell/s.db");
    open(&path).unwrap();
    assert!(path.exists());
}

#[test]
fn a_second_owner_is_told_who_has_it() {
    let place = Place::new();
    let path = place.at("s.db");
    let first = open(&path).unwrap();
    let pid = format!("process {}", std::process::id());
    refused(&path, quick(), StoreErrorKind::Held, &pid);
    drop(first);
    open(&path).unwrap();
}

#[test]
fn guests_read_and_send_beside_the_owner() {
    let place = Place::new();
    let path = place.at("s.db");
    let owner = open(&path).unwrap();
    let made = create(plan(&owner), 1, "[]");
    owner.commit(&batch(1, vec![made])).unwrap();
    let guest = SqliteStore::open(&path, with_mode(Mode::Guest)).unwrap();
    let mail = guest.post(RunNo(1), "{}", Time(0)).unwrap();
    assert_eq!(guest.take_answer(mail).unwrap(), MessageState::Waiting);
    owner.answer(mail, "yes").unwrap();
    assert_eq!(
        guest.take_answer(mail).unwrap(),
        MessageState::Answered("yes".into())
    );
    assert_eq!(guest.take_answer(mail).unwrap(), MessageState::Taken);
    assert_eq!(guest.find("run_1").unwrap(), Some(RunNo(1)));
    let error = guest.commit(&batch(2, Vec::new())).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Held);

    let reader = SqliteStore::open(&path, with_mode(Mode::ReadOnly)).unwrap();
    assert_eq!(reader.find("run_1").unwrap(), Some(RunNo(1)));
    let error = reader.post(RunNo(1), "{}", Time(0)).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::ReadOnly);
}

#[test]
fn what_is_not_there_is_not_made_by_a_reader() {
    let place = Place::new();
    for mode in [Mode::Guest, Mode::ReadOnly] {
        let path = place.at("none.db");
        refused(
            &path,
            with_mode(mode),
            StoreErrorKind::Unusable,
            "does not exist",
        );
        assert!(!path.exists());
    }
    refused(place.path(), quick(), StoreErrorKind::Unusable, "directory");
}

#[test]
fn not_a_database() {
    let place = Place::new();
    let path = place.at("s.db");
    let text = "workflow: this is YAML, not a database\n".repeat(200);
    std::fs::write(&path, &text).unwrap();
    for mode in [Mode::Own, Mode::Guest, Mode::ReadOnly] {
        refused(
            &path,
            with_mode(mode),
            StoreErrorKind::Corrupt,
            "not a database",
        );
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let place = Place::new();
    let path = place.at("s.db");
    let theirs = Connection::open(&path).unwrap();
    theirs.execute_batch("CREATE TABLE t (x)").unwrap();
    drop(theirs);
    let before = std::fs::read(&path).unwrap();
    refused(&path, quick(), StoreErrorKind::Corrupt, "another program");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_newer_schema_is_named_and_left_alone() {
    let place = Place::new();
    let path = place.at("s.db");
    drop(open(&path).unwrap());
    let newer = Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    drop(newer);
    for mode in [Mode::Own, Mode::Guest, Mode::ReadOnly] {
        refused(
            &path,
            with_mode(mode),
            StoreErrorKind::Newer,
            "schema version 99",
        );
        refused(&path, with_mode(mode), StoreErrorKind::Newer, "up to 13");
    }
}

#[test]
fn an_older_schema_is_migrated_by_its_owner_only() {
    let place = Place::new();
    let path = place.at("s.db");
    let older = Connection::open(&path).unwrap();
    let first = include_str!("../../migrations/sqlite/0001_start.sql");
    older.execute_batch(first).unwrap();
    older
        .execute_batch("PRAGMA application_id = 0x53746570; PRAGMA user_version = 1;")
        .unwrap();
    refused(
        &path,
        with_mode(Mode::Guest),
        StoreErrorKind::Older,
        "needs 13",
    );
    open(&path).unwrap();
    let version: i64 = older
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, 13);
    older.prepare("SELECT event FROM events").unwrap();
}

#[test]
fn overwritten_bytes_are_found() {
    let place = Place::new();
    let path = place.at("s.db");
    let store = open(&path).unwrap();
    let plan = plan(&store);
    let body = format!("[\"{}\"]", "x".repeat(3_000));
    let appends = (1..=200).map(|no| create(plan, no, &body)).collect();
    store.commit(&batch(1, appends)).unwrap();
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    drop(store);
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let size = file.metadata().unwrap().len();
    for page in (60..size / 4096).step_by(3) {
        file.seek(SeekFrom::Start(page * 4096)).unwrap();
        file.write_all(&[0xa5; 4096]).unwrap();
    }
    drop(file);
    // The damage may be met while opening, while checking, or be listed by the check.
    let found = open(&path).and_then(|store| store.check());
    match found {
        Ok(health) => assert!(!health.problems.is_empty()),
        Err(error) => assert_eq!(error.kind, StoreErrorKind::Corrupt, "{error}"),
    }
}

#[test]
fn a_full_store_goes_on_once_there_is_room() {
    let place = Place::new();
    let path = place.at("s.db");
    let options = SqliteOptions {
        max_pages: Some(150),
        ..quick()
    };
    let store = SqliteStore::open(&path, options).unwrap();
    let plan = plan(&store);
    let body = format!("[\"{}\"]", "x".repeat(3_000));
    let mut kept = 0;
    let error = loop {
        let made = create(plan, kept + 1, &body);
        match store.commit(&batch(kept + 1, vec![made])) {
            Ok(outcomes) => assert_eq!(outcomes, [AppendResult::Committed]),
            Err(error) => break error,
        }
        kept += 1;
    };
    assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
    assert!(kept > 20);
    // Nothing was done, reading goes on, and so does what needs no room.
    assert_eq!(store.find(&format!("run_{}", kept + 1)).unwrap(), None);
    assert!(store.load(RunNo(kept)).unwrap().is_some());
    drop(store);
    let store = open(&path).unwrap();
    let made = create(plan, kept + 1, &body);
    let outcomes = store.commit(&batch(kept + 1, vec![made])).unwrap();
    assert_eq!(outcomes, [AppendResult::Committed]);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_value_the_database_refuses_fails_alone() {
    let place = Place::new();
    let store = open(&place.at("s.db")).unwrap();
    let plan = plan(&store);
    let mut bad = create(plan, 2, "[]");
    bad.chunk.as_mut().unwrap().digests = vec![1; 3];
    let twice = {
        let mut append = create(plan, 4, "[]");
        let chunk = append.chunk.as_mut().unwrap();
        chunk.last = 2;
        chunk.digests = vec![7; 160];
        chunk.keys = vec![vec![1], vec![1]];
        append
    };
    let appends = vec![
        create(plan, 1, "[]"),
        bad,
        create(plan, 3, "[]"),
        twice,
        create(plan, 5, "[]"),
    ];
    let outcomes = store.commit(&batch(1, appends)).unwrap();
    assert!(
        matches!(outcomes[1], AppendResult::Refused(_)),
        "{outcomes:?}"
    );
    assert_eq!(outcomes[3], AppendResult::KeyExists);
    for index in [0, 2, 4] {
        assert_eq!(outcomes[index], AppendResult::Committed);
    }
    assert!(store.load(RunNo(2)).unwrap().is_none());
    assert!(store.load(RunNo(4)).unwrap().is_none());
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn another_process_that_writes_for_long_is_a_passing_trouble() {
    let place = Place::new();
    let path = place.at("s.db");
    let options = SqliteOptions {
        patience: std::time::Duration::from_millis(50),
        ..quick()
    };
    let store = SqliteStore::open(&path, options).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.reserve_numbers(1).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(error.kind.may_pass());
    other.execute_batch("ROLLBACK").unwrap();
    store.reserve_numbers(1).unwrap();
}

#[test]
fn open_runs_that_nothing_will_wake_are_found() {
    let place = Place::new();
    let store = open(&place.at("s.db")).unwrap();
    let plan = plan(&store);
    let session = store.open_session("one", Time(0), Time(9)).unwrap();
    let with = |no, change: &dyn Fn(&mut Head)| {
        let mut append = create(plan, no, "[]");
        change(append.head.as_mut().unwrap());
        append
    };
    let appends = vec![
        with(1, &|_| {}),
        with(2, &|head| head.wake_at = Some(Time(9))),
        with(3, &|head| head.session = Some(session)),
        with(4, &|head| head.queued = true),
        with(5, &|head| head.ended_at = Some(Time(9))),
    ];
    store.commit(&batch(1, appends)).unwrap();
    let found = store.asleep(9).unwrap();
    assert_eq!(found, ["run_1"]);
    store.post(RunNo(1), "{}", Time(0)).unwrap();
    assert_eq!(store.asleep(9).unwrap(), Vec::<String>::new());
}
