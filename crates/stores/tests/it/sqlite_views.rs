//! The views for people: the contract's events, and linear.md's tables, by SQL alone.

use std::path::Path;

use rusqlite::Connection;
use serde_json::{Value as Json, json};
use stepwell_engine::chunk::ChunkWriter;
use stepwell_engine::store::{
    Append, AppendResult, Batch, Chunk, CommitId, Commits as _, Head, Maintenance as _, NewRun,
    Plans as _, RunNo, Sessions as _, TaskChange, ViewRow,
};
use stepwell_kernel::contract::{Record, Recorder, from_record};
use stepwell_kernel::event::Event;
use stepwell_kernel::plan::{Net, Plan};
use stepwell_kernel::time::Time;
use stepwell_stores::sqlite::SqliteStore;

use crate::place::Place;
use crate::sqlite::quick;

const HISTORIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/histories");

fn golden(name: &Path) -> (Plan, Vec<Record>) {
    let net = std::fs::read_to_string(name.join("net.json")).unwrap();
    let net: Net = serde_json::from_str(&net).unwrap();
    let log = std::fs::read_to_string(name.join("log.jsonl")).unwrap();
    let record = |line: &str| {
        let mut contract: Json = serde_json::from_str(line).unwrap();
        let fields = contract.as_object_mut().unwrap();
        let ext = fields.remove("ext").unwrap();
        let mut text = |name: &str| fields.remove(name).unwrap().as_str().unwrap().to_owned();
        let (prev_hash, hash) = (text("prevHash"), text("hash"));
        Record {
            contract,
            ext,
            prev_hash,
            hash,
        }
    };
    (Plan::new(net).unwrap(), log.lines().map(record).collect())
}

fn send(store: &SqliteStore, number: i64, append: Append) {
    let batch = Batch {
        id: CommitId { session: 0, number },
        session: None,
        now: Time(0),
        appends: vec![append],
    };
    assert_eq!(store.commit(&batch).unwrap(), [AppendResult::Committed]);
}

/// Events as the next chunk of a run.
fn encode(recorder: &mut Recorder, plan: &Plan, events: &[Event]) -> Chunk {
    let chunk = ChunkWriter::default().write(recorder, plan, events);
    chunk.unwrap()
}

/// A run's first append with everything that was recorded.
fn first(store: &SqliteStore, run: i64, run_id: &str, plan: &Plan, chunk: Chunk) -> Append {
    let mut append = Append::new(RunNo(run), 0);
    append.create = Some(Box::new(NewRun {
        run_id: run_id.into(),
        plan: Some(store.put_plan(plan).unwrap()),
        ..NewRun::default()
    }));
    append.chunk = Some(chunk);
    append
}

#[test]
fn events_are_the_contracts_own() {
    let place = Place::new();
    let store = SqliteStore::open(place.at("s.db"), quick()).unwrap();
    let conn = Connection::open(place.at("s.db")).unwrap();
    let mut number = 0;
    for folder in std::fs::read_dir(HISTORIES).unwrap() {
        let (plan, records) = golden(&folder.unwrap().path());
        number += 1;
        let run_id = format!(
            "{}-{number}",
            records[0].contract["runId"].as_str().unwrap()
        );
        // Histories may share an id; here each is a run of its own.
        let events: Vec<Event> = records.iter().map(|it| from_record(it).unwrap()).collect();
        let mut recorder = Recorder::new(run_id.as_str());
        let records = recorder.clone().record_all(&plan, &events).unwrap();
        // Two chunks, so that places in a chunk and sequence numbers differ.
        let half = events.len() / 2;
        let chunk = encode(&mut recorder, &plan, &events[..half]);
        let created = first(&store, number, &run_id, &plan, chunk);
        send(&store, number * 2, created);
        let mut rest = Append::new(RunNo(number), half as u64);
        rest.chunk = Some(encode(&mut recorder, &plan, &events[half..]));
        send(&store, number * 2 + 1, rest);

        let mut view = conn
            .prepare(
                "SELECT run_seq, event_type, event_id, idempotency_key, hash, emitted_at, event, ext
                 FROM events WHERE run_id = ?1 ORDER BY run_seq",
            )
            .unwrap();
        let mut rows = view.query([&run_id]).unwrap();
        for record in &records {
            let row = rows.next().unwrap().expect("an event of the log");
            let text = |index| row.get::<_, String>(index).unwrap();
            let contract = &record.contract;
            let event: Json = serde_json::from_str(&text(6)).unwrap();
            assert_eq!(event, *contract);
            assert_eq!(row.get::<_, u64>(0).unwrap(), contract["runSeq"]);
            assert_eq!(text(1), contract["eventType"]);
            assert_eq!(text(2), contract["eventId"]);
            assert_eq!(text(3), contract["idempotencyKey"]);
            assert_eq!(text(4), record.hash);
            assert_eq!(text(5), contract["emittedAt"]);
            let ext: Json = serde_json::from_str(&text(7)).unwrap();
            assert_eq!(ext, record.ext);
        }
        assert!(rows.next().unwrap().is_none());
    }
    assert!(number > 10, "histories were found");
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn linear_rows_have_their_own_names_and_read_leases_where_they_are_renewed() {
    let place = Place::new();
    let store = SqliteStore::open(place.at("s.db"), quick()).unwrap();
    let conn = Connection::open(place.at("s.db")).unwrap();
    let (plan, records) = golden(&Path::new(HISTORIES).join("linear-payment"));
    let events: Vec<Event> = records.iter().map(|it| from_record(it).unwrap()).collect();
    let session = store.open_session("one", Time(0), Time(60_000)).unwrap();
    let chunk = encode(&mut Recorder::new("run_1"), &plan, &events);
    let mut append = first(&store, 1, "run_1", &plan, chunk);
    append.head = Some(Head {
        status: "RUNNING".into(),
        session: Some(session),
        ..Head::default()
    });
    let row = |view: &'static str, columns: Json| ViewRow {
        view,
        row_no: 0,
        body: columns.to_string(),
    };
    let instance = json!({"biz_key": "order-1", "workflow_type": "payment",
        "workflow_version": 3, "status": "RUNNING", "started_at": 1_500});
    let step = json!({"step_type": "charge", "status": "RUNNING", "locked_by": "w",
        "locked_until": 1_000});
    append.view_rows = vec![
        row("workflow_instance", instance),
        row("workflow_step", step),
    ];
    send(&store, 1, append);
    let one = |what: &str| -> String { conn.query_row(what, [], |row| row.get(0)).unwrap() };
    assert_eq!(
        one("SELECT instance_id || ' ' || biz_key || ' ' || workflow_type || ' ' || workflow_version
               || ' ' || status || ' ' || started_at || ' ' || coalesce(completed_at, '-')
             FROM workflow_instance"),
        "run_1 order-1 payment 3 RUNNING 1970-01-01T00:00:01.500Z -"
    );
    let until = "SELECT locked_until FROM workflow_step WHERE instance_id = 'run_1'";
    assert_eq!(one(until), "1970-01-01T00:01:00.000Z", "the session's");
    let mut append = Append::new(RunNo(1), events.len() as u64);
    append.head_version = Some(1);
    append.tasks = vec![
        TaskChange::Put {
            target: "charge".into(),
            queue: "q".into(),
            op: "o".into(),
            priority: 0,
            visible_at: Time(0),
        },
        TaskChange::Lease {
            target: "charge".into(),
            worker: "w".into(),
            until: Time(90_000),
        },
    ];
    send(&store, 2, append);
    assert_eq!(one(until), "1970-01-01T00:01:30.000Z", "the task's");
}
