//! The contract's view: every event fits its schema and can be turned back; keys are the contract's.

use std::collections::BTreeSet;

use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use stepwell_kernel::contract::{
    Record, Recorder, SCHEMA_VALIDATION_FAILED, check_envelope, from_record, schemas,
};
use stepwell_kernel::event::{Event, EventOrigin, EventType, Rollback};
use stepwell_kernel::evolve::replay;
use stepwell_kernel::keys::idempotency_key;
use stepwell_kernel::plan::{ErrorClass, Plan};
use stepwell_kernel::signal::SignalKind;

use crate::histories::{one_of_each, play, random_run, rich};
use crate::support::{RUN_ID, START, Sim, tasks, undoable};

/// The contract's own files, where this checkout has them beside it.
const CORPUS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../shared/corpus/contract"
);

fn corpus(file: &str) -> Option<Json> {
    let text = std::fs::read_to_string(format!("{CORPUS}/{file}"));
    if text.is_err() {
        println!("SKIPPED: {file} of the contract is not beside this checkout");
    }
    Some(serde_json::from_str(&text.ok()?).unwrap())
}

fn validator(schema: &Json) -> Validator {
    jsonschema::options()
        .should_validate_formats(true)
        .build(schema)
        .unwrap()
}

pub(crate) fn records(plan: &Plan, events: &[Event]) -> Vec<Record> {
    Recorder::new(RUN_ID).record_all(plan, events).unwrap()
}

/// A log with one event of every type; no run could have it.
fn every_type() -> (Plan, Vec<Event>) {
    let events = one_of_each().into_iter().zip(1..).map(|(body, seq)| Event {
        seq,
        at: START.plus(seq * 10),
        body,
    });
    (Plan::new(rich()).unwrap(), events.collect())
}

fn error_of(event: &Json) -> String {
    check_envelope(event).unwrap_err().to_string()
}

#[test]
fn every_type_has_a_schema_and_a_sample() {
    let kinds: BTreeSet<&str> = EventType::ALL.iter().map(|it| it.name()).collect();
    let samples: BTreeSet<&str> = one_of_each().iter().map(|body| body.kind()).collect();
    assert_eq!(kinds, samples);
    let schemas = schemas();
    for kind in kinds {
        assert!(schemas.contains_key(&format!("events/{kind}.schema.json")));
    }
    let contract = |it: &&EventType| it.origin() == EventOrigin::Contract;
    assert_eq!(EventType::ALL.iter().filter(contract).count(), 14);
    assert_eq!(
        schemas
            .keys()
            .filter(|path| path.starts_with("signals/"))
            .count(),
        SignalKind::ALL.len()
    );
}

#[test]
fn c44_every_event_fits_its_published_schema() {
    let schemas = schemas();
    let ext = validator(&schemas["events/ext.schema.json"]);
    let (plan, events) = every_type();
    for record in records(&plan, &events) {
        let kind = record.contract["eventType"].as_str().unwrap();
        let schema = validator(&schemas[&format!("events/{kind}.schema.json")]);
        schema.validate(&record.contract).unwrap();
        ext.validate(&record.ext)
            .unwrap_or_else(|error| panic!("{kind}: {error}\n{}", record.ext));
    }
}

#[test]
fn c44_published_schemas_are_draft_2020_12_and_valid() {
    for (path, schema) in schemas() {
        assert_eq!(
            schema["$schema"], "https://json-schema.org/draft/2020-12/schema",
            "{path}"
        );
        assert!(jsonschema::meta::is_valid(&schema), "{path}");
        let ours = format!("https://stepwell.dev/schemas/{path}");
        assert_eq!(schema["$id"], ours, "{path}");
    }
}

/// `native` is the one documented extension: the rest is validated against the closed originals.
#[test]
fn c44_the_contracts_own_schemas_accept_our_events() {
    for kind in ["RunStarted", "StepStarted", "StepCompleted", "StepFailed"] {
        let Some(mut schema) = corpus(&format!("{kind}.schema.json")) else {
            return;
        };
        if kind == "RunStarted" {
            let engines = schema.pointer_mut("/properties/engineType/enum").unwrap();
            engines.as_array_mut().unwrap().push(json!("native"));
        }
        let schema = validator(&schema);
        let (plan, events) = every_type();
        let mut all = records(&plan, &events);
        let mut sim = Sim::started(tasks(&["a", "b"]));
        sim.run("a").unwrap();
        sim.run_failing("b", ErrorClass::Transport).unwrap();
        all.extend(records(&sim.plan, sim.events()));
        let ours = all
            .iter()
            .filter(|record| record.contract["eventType"] == kind);
        assert!(ours.clone().count() >= 2);
        ours.for_each(|record| schema.validate(&record.contract).unwrap());
    }
}

#[test]
fn our_closed_schemas_have_the_fields_of_the_contracts_own() {
    for kind in ["RunStarted", "StepStarted", "StepCompleted", "StepFailed"] {
        let Some(theirs) = corpus(&format!("{kind}.schema.json")) else {
            return;
        };
        let ours = &schemas()[&format!("events/{kind}.schema.json")];
        let names = |schema: &Json| -> BTreeSet<String> {
            schema["properties"]
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect()
        };
        let required = |schema: &Json| -> BTreeSet<String> {
            let list = schema["required"].as_array().unwrap();
            list.iter()
                .map(|name| name.as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(names(ours), names(&theirs), "{kind}");
        assert_eq!(required(ours), required(&theirs), "{kind}");
    }
}

#[test]
fn c43_an_event_that_does_not_fit_is_refused() {
    let mut sim = Sim::started(tasks(&["a"]));
    sim.run("a").unwrap();
    let all = records(&sim.plan, sim.events());
    let find = |kind: &str| {
        let found = all
            .iter()
            .find(|record| record.contract["eventType"] == kind);
        found.unwrap().contract.clone()
    };
    let good = find("StepCompleted");
    check_envelope(&good).unwrap();
    for (field, value) in [
        ("eventType", json!("StepCompletedd")),
        ("eventId", json!("not-a-uuid")),
        ("runId", json!("41")),
        ("runSeq", json!(0)),
        ("runSeq", json!("1")),
        ("idempotencyKey", json!("AB")),
        ("emittedAt", json!("yesterday")),
        ("emittedBy", json!("someone")),
        ("logicalAttemptId", json!(0)),
        ("artifactRefs", json!([{ "uri": "s3://x" }])),
        (
            "artifactRefs",
            json!([{ "uri": "s3://x", "kind": "k", "bytes": "…" }]),
        ),
        ("durationMs", json!(-1)),
        ("surprise", json!(true)),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        assert!(
            error_of(&bad).starts_with(SCHEMA_VALIDATION_FAILED),
            "{field}"
        );
    }
    for field in good.as_object().unwrap().keys() {
        let mut less = good.clone();
        less.as_object_mut().unwrap().remove(field);
        let optional = ["engineAttemptId", "planVersion", "durationMs"].contains(&field.as_str());
        assert_eq!(check_envelope(&less).is_ok(), optional, "{field}");
    }
    let mut bad = find("RunStarted");
    bad["planRef"]["schemaVersion"] = json!("1.2");
    assert!(error_of(&bad).contains("schemaVersion"));
}

#[test]
fn c43_a_refused_event_uses_nothing_up() {
    let mut sim = Sim::new(tasks(&["a"]));
    sim.create().unwrap();
    let mut recorder = Recorder::new("not a run id");
    let before = recorder.head().to_owned();
    assert!(recorder.record_all(&sim.plan, sim.events()).is_err());
    assert_eq!(recorder.head(), before);
}

const VECTORS: [(&str, &str, u64, &str, &str, &str); 5] = [
    (
        "run-001",
        "model.orders",
        1,
        "StepStarted",
        "1.2.0",
        "6c99484df8a52a1dc3f2533b796f7257c11f57149d3fe3277d4c7ab98433d033",
    ),
    (
        "run-001",
        "RUN",
        1,
        "RunStarted",
        "1.2.0",
        "d219f09c191299aed8f136206aac54aba08233611a71d86470eb60174fb086b4",
    ),
    (
        "run-001",
        "model.orders",
        2,
        "StepFailed",
        "1.2.0",
        "4f18c2cf80d85cdea73fac0533dd58b1eb5d3acc92b6c13d6b445c821122c1e4",
    ),
    (
        "run-001",
        "RUN",
        1,
        "RunFailed",
        "1.2.0",
        "ca371c53bc82cae11e9cacc286e8c769b06048e86714a8b1d79125cc37d04564",
    ),
    (
        "run-002",
        "seed.customers",
        1,
        "StepSkipped",
        "2026.02.19",
        "7132ad0fe081216bb22aeceb390c290b0737afdef5ac2d5f39a4b46181e157d0",
    ),
];

#[test]
fn c4_keys_are_the_contracts_vectors() {
    for (run, step, logical, kind, version, digest) in VECTORS {
        let key = idempotency_key(run, Some(step), Some(logical), kind, version);
        assert_eq!(key.as_deref(), Some(digest));
    }
    for bad in ["a|b", "|"] {
        assert_eq!(
            idempotency_key("run_1", Some(bad), None, "StepStarted", "1"),
            None
        );
        assert_eq!(idempotency_key(bad, None, None, "RunStarted", "1"), None);
        assert_eq!(
            idempotency_key("run_1", None, None, "RunStarted", bad),
            None
        );
        let mut net = tasks(&["a"]);
        net.steps[0].name = bad.into();
        assert_eq!(Plan::new(net).unwrap_err().code, "NAME_INVALID");
    }
}

#[test]
fn c4_the_corpus_has_no_other_vectors() {
    let Some(corpus) = corpus("idempotency_vectors.json") else {
        return;
    };
    let theirs = corpus["vectors"].as_array().unwrap().iter();
    let theirs: BTreeSet<&str> = theirs
        .map(|it| it["expectedDigest"].as_str().unwrap())
        .collect();
    assert_eq!(theirs, VECTORS.iter().map(|vector| vector.5).collect());
}

#[test]
fn c4_recorded_keys_of_steps_follow_the_formula() {
    let mut sim = Sim::started(tasks(&["a"]));
    sim.run("a").unwrap();
    for record in records(&sim.plan, sim.events()) {
        let kind = record.contract["eventType"].as_str().unwrap();
        let step = record.contract.get("stepId").and_then(Json::as_str);
        let logical = record
            .contract
            .get("logicalAttemptId")
            .and_then(Json::as_u64);
        let key = idempotency_key(RUN_ID, step, logical, kind, "1.2.0");
        assert_eq!(
            record.contract["idempotencyKey"].as_str(),
            key.as_deref(),
            "{kind}"
        );
    }
}

#[test]
fn c5_absent_and_default_parts_give_the_same_key() {
    for (run, step, logical, kind, version, digest) in VECTORS {
        if step == "RUN" {
            for (step, logical) in [
                (None, None),
                (Some("RUN"), None),
                (None, Some(logical)),
                (Some("RUN"), Some(1)),
            ] {
                let key = idempotency_key(run, step, logical, kind, version);
                assert_eq!(key.as_deref(), Some(digest));
            }
        }
    }
    // The value that the specification's RunStarted example should have had.
    assert_eq!(
        idempotency_key("run_2026-02-11_abc123", None, None, "RunStarted", "1.2").unwrap(),
        "d83771af5b84baa2de5960eb05b227e463fe30f67383adc9974e22718da6820c"
    );
}

#[test]
fn c6_two_pauses_are_both_recorded() {
    let mut sim = Sim::started(tasks(&["a"]));
    for _ in 0..2 {
        sim.pause().unwrap();
        sim.resume().unwrap();
    }
    let all = records(&sim.plan, sim.events());
    for kind in ["RunPaused", "RunResumed"] {
        let of_kind = all
            .iter()
            .filter(|record| record.contract["eventType"] == kind);
        let ordinals: Vec<u64> = of_kind
            .clone()
            .map(|record| record.contract["logicalAttemptId"].as_u64().unwrap())
            .collect();
        assert_eq!(ordinals, [1, 2]);
        for (record, ordinal) in of_kind.zip(1..) {
            let key = idempotency_key(RUN_ID, None, Some(ordinal), kind, "1.2.0").unwrap();
            assert_eq!(record.contract["idempotencyKey"], key);
        }
    }
}

#[test]
fn c7_a_signals_key_has_its_id_and_a_replayed_one_changes_nothing() {
    let mut sim = Sim::started(tasks(&["a"]));
    let admin = crate::support::admin;
    sim.signal_as("s-1", "PAUSE", json!({}), None, admin())
        .unwrap();
    sim.signal_as("s-2", "PAUSE", json!({}), None, admin())
        .unwrap();
    let before = sim.events().len();
    sim.signal_as("s-1", "PAUSE", json!({}), None, admin())
        .unwrap();
    assert_eq!(sim.events().len(), before);
    let all = records(&sim.plan, sim.events());
    let verdict = |id: &str| {
        let found = all.iter().find(|record| record.contract["signalId"] == id);
        &found.unwrap().contract
    };
    for id in ["s-1", "s-2"] {
        let kind = verdict(id)["eventType"].as_str().unwrap();
        let key = idempotency_key(RUN_ID, Some(id), None, kind, "1.2.0").unwrap();
        assert_eq!(verdict(id)["idempotencyKey"], key);
    }
    assert_eq!(verdict("s-1")["eventType"], "SignalAccepted");
    assert_eq!(verdict("s-2")["eventType"], "SignalRejected");
}

#[test]
fn terminal_events_say_how_long_it_took_and_how_it_ended() {
    let mut net = tasks(&["a", "b"]);
    net.steps[0] = undoable("a");
    net.steps[1].on_failure = stepwell_kernel::plan::OnFailure::Stop { compensate: true };
    let mut sim = Sim::started(net);
    sim.claim("a").unwrap();
    sim.advance(150).complete("a").unwrap();
    sim.claim("b").unwrap();
    sim.advance(30).fail("b", ErrorClass::Validation).unwrap();
    sim.run_undo("a").unwrap();
    let all = records(&sim.plan, sim.events());
    let find = |kind: &str| {
        let found = all
            .iter()
            .find(|record| record.contract["eventType"] == kind);
        &found.unwrap().contract
    };
    assert_eq!(find("StepCompleted")["durationMs"], 150);
    assert_eq!(find("StepCompleted")["emittedBy"], "activity-worker");
    assert_eq!(find("StepFailed")["durationMs"], 30);
    assert_eq!(find("StepFailed")["error"]["category"], "validation");
    assert_eq!(find("UndoStarted")["stepId"], "a");
    assert_eq!(find("RunFailed")["durationMs"], 180);
    assert_eq!(find("RunFailed")["substatus"], "stepwell/ROLLED_BACK");
    assert_eq!(
        sim.outcome(),
        Some(stepwell_kernel::effect::RunOutcome::Failed(
            Rollback::Complete
        ))
    );
}

#[test]
fn every_type_can_be_turned_back() {
    let (plan, events) = every_type();
    for (record, event) in records(&plan, &events).iter().zip(&events) {
        assert_eq!(from_record(record).as_ref(), Ok(event));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn records_of_any_run_fit_and_turn_back(moves in random_run()) {
        let sim = play(&moves);
        let all = records(&sim.plan, sim.events());
        let text = serde_json::to_string(&all).unwrap();
        let read: Vec<Record> = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&read, &all);
        let events: Vec<Event> = read.iter().map(|it| from_record(it).unwrap()).collect();
        prop_assert_eq!(events, sim.events());
    }

    #[test]
    fn recording_can_go_on_from_the_state(moves in random_run(), cut in any::<prop::sample::Index>()) {
        let sim = play(&moves);
        let all = records(&sim.plan, sim.events());
        let cut = cut.index(all.len());
        let state = replay(&sim.plan, RUN_ID, None, &sim.events()[..cut]).unwrap();
        let head = all[..cut].last().map_or(stepwell_kernel::chain::GENESIS, |it| &it.hash);
        let mut recorder = Recorder::resume(&sim.plan, &state, head);
        let rest = recorder.record_all(&sim.plan, &sim.events()[cut..]).unwrap();
        prop_assert_eq!(&rest, &all[cut..]);
    }

    #[test]
    fn c1_sequence_numbers_strictly_increase(moves in random_run()) {
        let sim = play(&moves);
        let all = records(&sim.plan, sim.events());
        let seqs: Vec<u64> = all.iter().map(|it| it.contract["runSeq"].as_u64().unwrap()).collect();
        prop_assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]));
        let keys: BTreeSet<&str> =
            all.iter().map(|it| it.contract["idempotencyKey"].as_str().unwrap()).collect();
        prop_assert_eq!(keys.len(), all.len());
    }

    #[test]
    fn signals_take_what_the_contracts_schemas_take(payload in payload(), which in 0..SignalKind::ALL.len()) {
        let kind = SignalKind::ALL[which];
        let words = kind.name().split('_').map(|word| {
            let (first, rest) = word.split_at(1);
            format!("{first}{}", rest.to_lowercase())
        });
        let name: String = words.collect();
        let ours = validator(&kind.schema()).is_valid(&payload);
        // A missing reason is refused with a code of its own, by `decide`.
        let unreasoned = kind == SignalKind::EmergencyStop
            && payload.get("reason").is_none_or(|reason| reason == "");
        if !unreasoned {
            prop_assert_eq!(kind.check(&payload).is_ok(), ours, "{} {}", name, payload);
        }
        if let Some(schema) = corpus(&format!("signals/{name}.v1.json")) && !unreasoned {
            let theirs = validator(&schema).is_valid(&payload);
            prop_assert_eq!(ours, theirs, "{} {}", name, payload);
        }
    }
}

/// Payloads near those that fit.
fn payload() -> impl Strategy<Value = Json> {
    let value = prop_oneof![
        Just(json!("")),
        Just(json!("INFO")),
        "[a-zé]{1,20}".prop_map(Json::from),
        (495..505usize).prop_map(|n| Json::from("é".repeat(n))),
        (995..1005usize).prop_map(|n| Json::from("x".repeat(n))),
        any::<bool>().prop_map(Json::from),
        any::<i32>().prop_map(Json::from),
        Just(json!({})),
        Just(json!({ "x": 1 })),
        Just(json!([])),
        Just(Json::Null),
    ];
    let text = prop_oneof![Just(json!("INFO")), "[a-zé]{1,20}".prop_map(Json::from)];
    let fitting = (text, any::<bool>()).prop_map(|(text, flag)| {
        let mut all = json!({ "reason": text, "note": text, "level": "P1", "force": flag });
        all["forceKill"] = flag.into();
        all["stepId"] = text;
        for name in ["params", "override", "newTarget"] {
            all[name] = json!({ "k": flag });
        }
        all
    });
    let names = prop::sample::subsequence(
        vec![
            "reason",
            "stepId",
            "force",
            "params",
            "override",
            "newTarget",
            "forceKill",
            "level",
            "note",
            "other",
        ],
        0..4,
    );
    let odd = (
        prop::sample::select(vec!["reason", "force", "params", "level", "note"]),
        value,
    );
    (fitting, names, prop::option::of(odd)).prop_map(|(all, names, odd)| {
        let mut payload = json!({});
        for name in names {
            payload[name] = all.get(name).cloned().unwrap_or(json!(1));
        }
        if let Some((name, value)) = odd {
            payload[name] = value;
        }
        payload
    })
}
