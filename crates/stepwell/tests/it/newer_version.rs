//! Runs that a newer version of the program has written to: types of events, fields and values that this version does not
//! know. Every door goes on, shows what is stored, and says what this version does not know.

use serde_json::{Value as Json, json};
use stepwell_engine::chunk::{CODEC, DIGESTS};
use stepwell_engine::store::{Append, AppendResult, Batch, Chunk, CommitId, Head, Store};
use stepwell_kernel::time::Time;
use stepwell_kernel::{chain, keys};
use stepwell_stores::OpenMode;

use super::test_store::TestStore;

const MANUAL: &str = "\
schemaVersion: '1.0'
workflowId: sign
workspaceId: w
name: sign
version: 1
active: true
executionTier: Auto
actions:
  - actionId: sign
    order: 1
    portFamily: office
    operation: paper:sign
    executionTierOverride: ManualOnly
";

/// An event as a newer version writes it: what its contract part says beyond the template of its type, and its `ext`
/// part.
struct Written {
    residual: Json,
    ext: Json,
}

/// Appends events to a run the way a newer version would: with keys, digests and hashes that fit.
fn write(test_store: &TestStore, run_id: &str, template: &Json, events: &[Written]) {
    let lines = test_store.good(&["runs", "events", run_id, "--ext"]);
    let last: Json = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    let mut seq = last["runSeq"].as_u64().unwrap();
    let mut hash = last["hash"].as_str().unwrap().to_owned();
    let at = Time::from_rfc3339(last["emittedAt"].as_str().unwrap()).unwrap();
    let store = open(test_store);
    let run = store.find(run_id).unwrap().unwrap();
    let stored = store.load(run).unwrap().unwrap();
    let mut chunk = Chunk {
        first: seq + 1,
        last: seq + events.len() as u64,
        codec: CODEC,
        body: String::new(),
        digests: Vec::new(),
        keys: Vec::new(),
    };
    let mut entries = Vec::new();
    for Written { residual, ext } in events {
        seq += 1;
        let event_id = keys::event_id(run_id, seq);
        let key = keys::sha256_hex(&format!("newer|{run_id}|{seq}"));
        let mut contract = template.as_object().unwrap().clone();
        contract.extend(residual.as_object().unwrap().clone());
        let own = [
            ("eventId", Json::from(event_id.clone())),
            ("idempotencyKey", key.clone().into()),
            ("runSeq", seq.into()),
            ("eventType", ext["type"].clone()),
            ("emittedAt", at.to_rfc3339().into()),
            ("runId", run_id.into()),
        ]
        .map(|(name, value)| (name.to_owned(), value));
        contract.extend(own);
        hash = chain::link(&Json::Object(contract), ext, &hash);
        for hex in [event_id.replace('-', ""), key, hash.clone()] {
            let digits = hex.as_bytes().chunks(2);
            let byte = |it: &[u8]| u8::from_str_radix(std::str::from_utf8(it).unwrap(), 16);
            chunk.digests.extend(digits.map(|it| byte(it).unwrap()));
        }
        // A number of a type that this version does not have.
        chunk.keys.push(vec![0, 255, 200, 1, seq as u8]);
        entries.push(json!([at.0, residual, ext]));
    }
    chunk.body = Json::Array(entries).to_string();
    assert_eq!(chunk.digests.len(), DIGESTS * events.len());
    let head = Head {
        wake_at: Some(at),
        ..stored.head
    };
    let append = Append {
        chunk: Some(chunk),
        head: Some(head),
        ..Append::new(run, seq - events.len() as u64)
    };
    let batch = Batch {
        id: CommitId {
            session: 0,
            number: 7,
        },
        session: None,
        now: at,
        appends: vec![append],
    };
    assert_eq!(store.commit(&batch).unwrap(), [AppendResult::Committed]);
}

fn open(test_store: &TestStore) -> std::sync::Arc<dyn Store> {
    stepwell_stores::open(&test_store.url, OpenMode::Own).unwrap()
}

/// A run whose only step waits for a person.
fn waiting(test_store: &TestStore) {
    let file = test_store.file("sign.yaml", MANUAL);
    let mut process = test_store.start(&["run", &file, "--run-id", "run_sign"]);
    process.until("WaitingForManualCompletion");
    process.interrupt();
    process.end();
}

fn goes_on(test_store: &TestStore) {
    waiting(test_store);
    let envelope = json!({ "emittedBy": "engine" });
    write(
        test_store,
        "run_sign",
        &envelope,
        &[
            Written {
                residual: json!({ "note": "for the auditors" }),
                ext: json!({ "type": "RunAnnotated", "note": "for the auditors" }),
            },
            Written {
                residual: json!({ "patchedBy": "eve", "keys": ["colour"], "ticket": "T-1" }),
                ext: json!({ "type": "CtxPatched", "by": "eve", "ctx": { "colour": "red" }, "ticket": "T-1" }),
            },
        ],
    );

    // The log is shown as it is stored, and people are told.
    let events = test_store.call(&["runs", "events", "run_sign", "--ext"]);
    assert_eq!(events.code, 0, "{}", events.err);
    let lines: Vec<Json> = events
        .out
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    let annotated = &lines[lines.len() - 2];
    assert_eq!(annotated["eventType"], "RunAnnotated");
    assert_eq!(annotated["note"], "for the auditors");
    assert_eq!(annotated["ext"]["note"], "for the auditors");
    assert_eq!(lines[lines.len() - 1]["ticket"], "T-1");
    assert_eq!(lines[lines.len() - 1]["prevHash"], annotated["hash"]);
    assert!(
        events
            .err
            .contains("(RunAnnotated): this version does not know the type"),
        "{}",
        events.err
    );
    assert!(events.err.contains("the field `ticket`"), "{}", events.err);

    let shown = test_store.good(&["runs", "show", "run_sign"]);
    assert!(
        shown.contains("(RunAnnotated): this version does not know the type"),
        "{shown}"
    );
    let shown: Json =
        serde_json::from_str(&test_store.good(&["runs", "show", "run_sign", "-o", "json"]))
            .unwrap();
    assert_eq!(
        shown["lastEventSeq"].as_u64().unwrap() as usize,
        lines.len()
    );
    assert_eq!(shown["status"], "RUNNING");
    let unknown = shown["ext"]["unknownToThisVersion"].as_array().unwrap();
    assert!(unknown.len() >= 2, "{unknown:?}");

    // A signal is decided; what was opaque stays in the log.
    let signal = test_store.call(&["runs", "signal", "run_sign", "PAUSE"]);
    assert_eq!(signal.code, 0, "{}", signal.err);
    assert!(signal.err.contains("RunAnnotated"), "{}", signal.err);
    let check = test_store.call(&["db", "check"]);
    assert_eq!(check.code, 0, "{}{}", check.out, check.err);
    assert!(
        check.out.contains("a newer version wrote the run"),
        "{}",
        check.out
    );
    let repair = test_store.good(&["db", "check", "--repair"]);
    assert!(!repair.contains("quarantine"), "{repair}");
    test_store.good(&["runs", "resume", "run_sign"]);
    test_store.good(&[
        "runs",
        "complete",
        "run_sign",
        "sign",
        "--outcome",
        "succeeded",
    ]);
    let all = test_store.good(&["runs", "events", "run_sign"]);
    assert!(
        all.contains("RunAnnotated") && all.contains("RunCompleted"),
        "{all}"
    );
    test_store.good(&["db", "check"]);
}

#[test]
fn a_run_with_types_and_fields_of_a_newer_version_goes_on() {
    goes_on(&TestStore::sqlite("newer-version"));
}

#[test]
fn a_run_with_types_and_fields_of_a_newer_version_goes_on_on_postgres() {
    goes_on(&TestStore::postgres("newer-version"));
}

#[test]
fn a_word_of_a_newer_version_is_read_as_the_nearest_one_and_named() {
    let test_store = TestStore::sqlite("newer-word");
    waiting(&test_store);
    let lines = test_store.good(&["runs", "events", "run_sign", "--ext"]);
    let wait: Json = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(wait["eventType"], "StepWaiting", "{wait}");
    let (step, execution) = (&wait["ext"]["step"], &wait["ext"]["execution"]);
    let failed_at = &wait["emittedAt"];
    write(
        &test_store,
        "run_sign",
        &json!({
            "emittedBy": "activity-worker", "engineAttemptId": 1, "logicalAttemptId": 1, "planVersion": "1",
            "failedAt": failed_at,
        }),
        &[Written {
            residual: json!({
                "emittedBy": "engine", "engineAttemptId": execution, "stepId": "sign", "planVersion": "1",
                "error": { "category": "quota", "code": "QUOTA", "message": "no more", "retryable": false },
            }),
            ext: json!({
                "type": "StepFailed", "step": step, "logical": 1, "execution": execution,
                "error": { "class": "quota", "code": "QUOTA", "message": "no more" },
            }),
        }],
    );
    let shown = test_store.good(&["runs", "show", "run_sign"]);
    assert!(
        shown.contains("the value \"quota\" of `error.class` and reads it as \"unknown\""),
        "{shown}"
    );
    assert!(
        test_store
            .good(&["runs", "events", "run_sign"])
            .contains("quota")
    );
    test_store.good(&["db", "check"]);
    // The process that continues the run takes the failure for one of an unknown class.
    let resumed = test_store.call(&["resume", "run_sign"]);
    assert_eq!(resumed.code, 3, "{}", resumed.out);
    assert_eq!(test_store.show("run_sign")["status"], "FAILED");
}

#[test]
fn a_run_whose_state_only_a_newer_version_can_tell_is_shown_as_far_as_it_is_known() {
    let test_store = TestStore::sqlite("newer-state");
    waiting(&test_store);
    let envelope = json!({ "emittedBy": "engine" });
    write(
        &test_store,
        "run_sign",
        &envelope,
        &[
            Written {
                residual: json!({}),
                ext: json!({ "type": "RunFrozen" }),
            },
            Written {
                residual: json!({ "logicalAttemptId": 3, "resumedAt": "2026-01-01T00:00:00.000Z", "status": "RUNNING" }),
                ext: json!({ "type": "RunResumed", "ordinal": 3 }),
            },
        ],
    );
    let shown = test_store.good(&["runs", "show", "run_sign"]);
    assert!(shown.contains("use the newer version"), "{shown}");
    assert!(
        test_store
            .good(&["runs", "events", "run_sign"])
            .contains("RunFrozen")
    );
    let check = test_store.good(&["db", "check"]);
    assert!(check.contains("cannot tell the state"), "{check}");
    let repair = test_store.good(&["db", "check", "--repair"]);
    assert!(!repair.contains("quarantine"), "{repair}");
    // To decide on a state that is not known would be wrong.
    let refused = test_store.call(&["runs", "cancel", "run_sign"]);
    assert_eq!(refused.code, 1, "{}", refused.out);
    assert!(refused.err.contains("STORE_NEWER"), "{}", refused.err);
}
