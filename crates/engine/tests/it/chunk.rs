//! Chunks: what is written is what is read, and SQL can rebuild the contract's part from it.

mod laws;
mod oracle;

use std::collections::BTreeSet;
use std::path::Path;

use expect_test::{expect, expect_file};
use proptest::prelude::*;
use serde_json::Value as Json;
use stepwell_engine::chunk::{CODEC, ChunkWriter, DIGESTS, contract_events, decode, templates};
use stepwell_engine::store::{Chunk, CommitId, StoredChunk};
use stepwell_kernel::contract::{Record, Recorder, from_record};
use stepwell_kernel::event::{Body, Event};
use stepwell_kernel::evolve::replay;
use stepwell_kernel::keys;
use stepwell_kernel::plan::{Net, Plan};
use stepwell_kernel::time::Time;

/// The contract part as a store's view makes it, by the rules of the module's documentation alone.
fn rebuild(plan: &Plan, run_id: &str, chunk: &Chunk, place: usize) -> Json {
    let entries: Json = serde_json::from_str(&chunk.body).unwrap();
    let entry = &entries[place];
    let event_type = entry[2]["type"].as_str().unwrap();
    let template = templates()
        .into_iter()
        .find(|it| it.codec == chunk.codec && it.event_type == event_type)
        .unwrap();
    let quoted = |text: &str| serde_json::to_string(text).unwrap();
    let at = Time(entry[0].as_i64().unwrap()).to_rfc3339();
    let text = template
        .json
        .replace("\"$at\"", &quoted(&at))
        .replace("\"$runId\"", &quoted(run_id))
        .replace("\"$planVersion\"", &quoted(&plan.net().plan_version));
    let mut contract: Json = serde_json::from_str(&text).unwrap();
    merge(&mut contract, &entry[1]);
    let digests = &chunk.digests[place * DIGESTS..];
    let id = keys::hex(&digests[..16]);
    let id = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-");
    contract["eventId"] = id.into();
    contract["idempotencyKey"] = keys::hex(&digests[16..48]).into();
    contract["runSeq"] = (chunk.first + place as u64).into();
    contract["eventType"] = event_type.into();
    contract
}

/// Applies a JSON merge patch (RFC 7396): a null removes the field.
fn merge(target: &mut Json, patch: &Json) {
    let Json::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Json::Object(Default::default());
    }
    let fields = target.as_object_mut().unwrap();
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.as_str()).or_insert(Json::Null), value);
        }
    }
}

fn check(plan: &Plan, run_id: &str, events: &[Event], records: &[Record]) {
    let mut recorder = Recorder::new(run_id);
    let chunk = ChunkWriter::default().write(&mut recorder, plan, events);
    let chunk = chunk.expect("they fit");
    assert_eq!(chunk, oracle::encode(plan, run_id, events, records));
    assert_eq!(
        decode(chunk.first, chunk.codec, &chunk.body).unwrap(),
        events
    );
    assert_eq!(chunk.digests.len(), DIGESTS * events.len());
    assert_eq!(chunk.last + 1 - chunk.first, events.len() as u64);
    let entries: Json = serde_json::from_str(&chunk.body).unwrap();
    let read = contract_events(run_id, &plan.net().plan_version, &stored(&chunk)).unwrap();
    let contracts: Vec<Json> = records.iter().map(|it| it.contract.clone()).collect();
    assert_eq!(read, contracts);
    for (place, record) in records.iter().enumerate() {
        assert_eq!(rebuild(plan, run_id, &chunk, place), record.contract);
        assert_eq!(entries[place][2], record.ext);
        let hash = &chunk.digests[place * DIGESTS + 48..][..32];
        assert_eq!(keys::hex(hash), record.hash);
        assert_eq!(chunk.keys[place], events[place].key(plan).to_bytes());
    }
    let keys: BTreeSet<&Vec<u8>> = chunk.keys.iter().collect();
    assert_eq!(keys.len(), events.len(), "no two events share a key");
}

fn stored(chunk: &Chunk) -> StoredChunk {
    StoredChunk {
        first: chunk.first,
        last: chunk.last,
        commit: CommitId {
            session: 0,
            number: 0,
        },
        codec: chunk.codec,
        body: chunk.body.clone(),
        digests: chunk.digests.clone(),
    }
}

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

#[test]
fn recorded_histories_go_through_chunks() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/histories");
    for folder in std::fs::read_dir(root).unwrap() {
        let (plan, records) = golden(&folder.unwrap().path());
        let run_id = records[0].contract["runId"].as_str().unwrap();
        let events: Vec<Event> = records.iter().map(|it| from_record(it).unwrap()).collect();
        check(&plan, run_id, &events, &records);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 2_000, ..Default::default() })]

    #[test]
    fn random_histories_go_through_chunks(
        net in laws::any_net(),
        choices in prop::collection::vec(any::<u64>(), 1..60),
    ) {
        laws::play(net, &choices, |plan, events| {
            if let Some(first) = events.first() {
                assert_eq!(first.seq, 1);
                let mut recorder = Recorder::new("run_law");
                let records = recorder.record_all(plan, events).expect("they fit");
                check(plan, "run_law", events, &records);
            }
        });
    }
}

/// What a step costs in the store when nothing goes wrong.
#[test]
fn a_happy_step_is_small() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/histories");
    let (plan, records) = golden(&Path::new(root).join("dag-nightly-pipeline"));
    let events: Vec<Event> = records.iter().map(|it| from_record(it).unwrap()).collect();
    let run_id = records[0].contract["runId"].as_str().unwrap();
    let at = events
        .windows(2)
        .position(|pair| {
            matches!(pair[0].body, Body::StepCompleted { .. })
                && matches!(pair[1].body, Body::StepStarted { lease: Some(_), .. })
        })
        .expect("a happy step");
    let state = replay(&plan, run_id, None, &events[..at]).unwrap();
    let mut recorder = Recorder::resume(&plan, &state, records[at - 1].hash.as_str());
    let chunk = ChunkWriter::default().write(&mut recorder, &plan, &events[at..at + 2]);
    let chunk = chunk.expect("they fit");
    expect![[r#"
        293 bytes
        [[1767225600000,{"stepId":"extract-orders"},{"type":"StepCompleted","step":{"step":0,"visit":1},"logical":1,"execution":1}],[1767225600000,{"stepId":"extract-clicks"},{"type":"StepStarted","step":{"step":1,"visit":1},"logical":1,"execution":1,"lease":{"worker":"mock","until":1767225630000}}]]"#]].assert_eq(&format!("{} bytes\n{}", chunk.body.len(), chunk.body));
}

/// Stores have these templates, and every event they keep was written against them: they change only
/// together with `CODEC`, and then the old ones stay.
#[test]
fn templates_never_change_under_a_codecs_number() {
    let lines: Vec<String> = templates()
        .iter()
        .map(|it| format!("{} {} {}\n", it.codec, it.event_type, it.json))
        .collect();
    expect_file!["chunk/templates.txt"].assert_eq(&lines.concat());
}

#[test]
fn what_is_no_chunk_is_refused() {
    for (codec, body) in [
        (CODEC + 1, "[]"),
        (CODEC, ""),
        (CODEC, "[[1,{}]]"),
        (CODEC, r#"[[1,{},{"kind":"RunStarted"}]]"#),
    ] {
        assert!(decode(1, codec, body).is_err(), "{body}");
    }
    // A newer version may have written what this one does not know: it is opaque.
    for ext in [
        r#"{"type":"NoSuchEvent"}"#,
        r#"{"type":"RunStarted","engine":7}"#,
    ] {
        let events = decode(1, CODEC, &format!("[[1,{{}},{ext}]]")).unwrap();
        assert!(matches!(events[0].body, Body::Opaque(_)), "{ext}");
    }
    assert_eq!(decode(1, CODEC, "[]"), Ok(Vec::new()));
}

#[test]
fn the_contracts_events_are_read_whatever_their_type() {
    let mut chunk = StoredChunk {
        first: 7,
        last: 7,
        commit: CommitId {
            session: 0,
            number: 0,
        },
        codec: CODEC,
        body: r#"[[1,{"more":{"a":null,"b":1}},{"type":"NoSuchEvent"}]]"#.into(),
        digests: vec![0; DIGESTS],
    };
    let read = contract_events("run", "1", &chunk).unwrap();
    assert_eq!(read[0]["eventType"], "NoSuchEvent");
    assert_eq!(read[0]["runSeq"], 7);
    assert_eq!(read[0]["more"], serde_json::json!({"b": 1}));
    chunk.digests.pop();
    assert!(contract_events("run", "1", &chunk).is_err());
}
