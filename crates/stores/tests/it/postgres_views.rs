//! The views: the contract's events exactly, and linear runs under their specification's names.

use std::path::Path;

use serde_json::{Value as Json, json};
use stepwell_engine::chunk::ChunkWriter;
use stepwell_engine::store::{
    Append, AppendResult, Batch, Chunk, CommitId, Commits as _, Head, NewRun, Plans as _, RunNo,
    Sessions as _, TaskChange, ViewRow,
};
use stepwell_kernel::contract::{Record, Recorder, from_record};
use stepwell_kernel::event::Event;
use stepwell_kernel::plan::{Net, Plan};
use stepwell_kernel::time::Time;
use stepwell_stores::postgres::PostgresStore;

use crate::server::{options, schema, sql, url};

fn history(name: &Path) -> (Plan, Vec<Record>) {
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

fn start(store: &PostgresStore, plan: &Plan, run: RunNo, run_id: &str) -> Append {
    let mut append = Append::new(run, 0);
    append.create = Some(Box::new(NewRun {
        run_id: run_id.into(),
        plan: Some(store.put_plan(plan).unwrap()),
        event_key: run_id.into(),
        ..NewRun::default()
    }));
    append.head = Some(Head::default());
    append
}

/// Events as the next chunk of a run.
fn encode(recorder: &mut Recorder, plan: &Plan, events: &[Event]) -> Chunk {
    let chunk = ChunkWriter::default().write(recorder, plan, events);
    chunk.unwrap()
}

fn commit(store: &PostgresStore, number: i64, append: Append) {
    let id = CommitId { session: 1, number };
    let batch = Batch {
        id,
        session: None,
        now: Time(1000),
        appends: vec![append],
    };
    assert_eq!(store.commit(&batch).unwrap(), [AppendResult::Committed]);
}

#[test]
fn recorded_histories_come_back_as_the_contracts_events() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/histories");
    for folder in std::fs::read_dir(root).unwrap() {
        // Histories share the ids of their runs.
        let schema = schema();
        let store = PostgresStore::connect(&url(), options(&schema)).unwrap();
        let (plan, records) = history(&folder.unwrap().path());
        let run_id = records[0].contract["runId"].as_str().unwrap();
        let events: Vec<Event> = records.iter().map(|it| from_record(it).unwrap()).collect();
        let run = RunNo(1);
        let middle = events.len() / 2;
        let mut first = start(&store, &plan, run, run_id);
        let mut recorder = Recorder::new(run_id);
        first.chunk = Some(encode(&mut recorder, &plan, &events[..middle]));
        commit(&store, 1, first);
        let mut second = Append::new(run, middle as u64);
        second.chunk = Some(encode(&mut recorder, &plan, &events[middle..]));
        commit(&store, 2, second);
        let query = format!(
            "SELECT event, ext, hash, event_id, event_type FROM {schema}.events \
             WHERE run_id = '{run_id}' ORDER BY run_seq"
        );
        let rows = sql(&url(), &query);
        assert_eq!(rows.len(), records.len());
        for (row, record) in rows.iter().zip(&records) {
            let json = |column: usize| -> Json {
                serde_json::from_str(row[column].as_deref().unwrap()).unwrap()
            };
            assert_eq!(json(0), record.contract);
            assert_eq!(json(1), record.ext);
            assert_eq!(row[2].as_deref(), Some(record.hash.as_str()));
            assert_eq!(row[3].as_deref(), record.contract["eventId"].as_str());
            assert_eq!(row[4].as_deref(), record.contract["eventType"].as_str());
        }
    }
}

#[test]
fn a_nul_in_an_event_hides_no_other() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/histories");
    let (plan, mut records) = history(&Path::new(root).join("linear-payment"));
    let schema = schema();
    let store = PostgresStore::connect(&url(), options(&schema)).unwrap();
    let run_id = records[0].contract["runId"].as_str().unwrap().to_owned();
    let events: Vec<Event> = records.iter().map(|it| from_record(it).unwrap()).collect();
    records[1].contract["note"] = "a\0b \\u0000".into();
    let mut append = start(&store, &plan, RunNo(1), &run_id);
    let mut chunk = encode(&mut Recorder::new(run_id.as_str()), &plan, &events);
    let mut body: Json = serde_json::from_str(&chunk.body).unwrap();
    body[1][1]["note"] = records[1].contract["note"].clone();
    chunk.body = body.to_string();
    append.chunk = Some(chunk);
    commit(&store, 1, append);
    let mut broken = start(&store, &plan, RunNo(2), "broken");
    let mut chunk = encode(&mut Recorder::new("run_broken"), &plan, &events[..1]);
    chunk.body = "not JSON".into();
    broken.chunk = Some(chunk);
    commit(&store, 2, broken);
    let query =
        format!("SELECT event FROM {schema}.events WHERE run_id <> 'broken' ORDER BY run_seq");
    let rows = sql(&url(), &query);
    assert_eq!(rows.len(), records.len());
    let event: Json = serde_json::from_str(rows[1][0].as_deref().unwrap()).unwrap();
    records[1].contract["note"] = "a\u{fffd}b \\u0000".into();
    assert_eq!(event, records[1].contract);
    // A query that looks into the events is answered, also for the one with the value.
    let looks = format!(
        "SELECT event->>'note', ext->>'type', event::jsonb->>'runId' FROM {schema}.events \
         WHERE run_id <> 'broken' AND event->>'eventId' IS NOT NULL ORDER BY run_seq"
    );
    let looked = sql(&url(), &looks);
    assert_eq!(looked.len(), records.len());
    assert_eq!(looked[1][0].as_deref(), Some("a\u{fffd}b \\u0000"));
    let all = sql(&url(), &format!("SELECT event FROM {schema}.events"));
    assert_eq!(all.len(), records.len() + 1);
}

#[test]
fn a_linear_step_is_locked_as_long_as_its_task_or_its_servers_session() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/histories");
    let (plan, records) = history(&Path::new(root).join("linear-payment"));
    let events: Vec<Event> = records.iter().map(|it| from_record(it).unwrap()).collect();
    let schema = schema();
    let store = PostgresStore::connect(&url(), options(&schema)).unwrap();
    let session = store.open_session("a", Time(0), Time(7000)).unwrap();
    let mut append = start(&store, &plan, RunNo(1), "linear");
    append.chunk = Some(encode(
        &mut Recorder::new("run_linear"),
        &plan,
        &events[..1],
    ));
    append.head = Some(Head {
        session: Some(session),
        ..Head::default()
    });
    let step = |row_no: u32, locked_by: Option<&str>| ViewRow {
        view: "workflow_step",
        row_no,
        body: json!({"step_type": "t", "status": "RUNNING", "locked_by": locked_by,
                     "locked_until": 5000, "last_error": "a\0b"})
        .to_string(),
    };
    let instance = ViewRow {
        view: "workflow_instance",
        row_no: 0,
        body: json!({"status": "RUNNING", "started_at": 1500}).to_string(),
    };
    append.view_rows = vec![
        instance,
        step(0, Some("w")),
        step(1, Some("server")),
        step(2, None),
    ];
    let target = plan.step(stepwell_kernel::plan::StepNo(0)).name.clone();
    append.tasks = vec![
        TaskChange::Put {
            target: target.clone(),
            queue: "q".into(),
            op: "o".into(),
            priority: 0,
            visible_at: Time(0),
        },
        TaskChange::Lease {
            target,
            worker: "w".into(),
            until: Time(9000),
        },
    ];
    commit(&store, 1, append);
    let query = format!(
        "SELECT step_seq, extract(epoch FROM locked_until)::integer FROM {schema}.workflow_step \
         WHERE instance_id = 'linear' ORDER BY step_seq"
    );
    let shown: Vec<String> = sql(&url(), &query)
        .iter()
        .map(|row| format!("{:?}", row[1].as_deref()))
        .collect();
    assert_eq!(shown, ["Some(\"9\")", "Some(\"7\")", "None"]);
    let query = format!("SELECT instance_id, status, started_at FROM {schema}.workflow_instance");
    let row = &sql(&url(), &query)[0];
    assert_eq!(row[0].as_deref(), Some("linear"));
    assert_eq!(row[1].as_deref(), Some("RUNNING"));
    let query = format!("SELECT DISTINCT last_error FROM {schema}.workflow_step");
    let errors = sql(&url(), &query);
    assert_eq!(
        errors,
        [[Some("a\u{fffd}b".to_owned())]],
        "a NUL hides no row"
    );
}
