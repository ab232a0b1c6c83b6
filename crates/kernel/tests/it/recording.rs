//! What the recorder writes is what trees of JSON give: the contract part, `ext`, the hash, the bytes of
//! ids and keys; and it fits the published schemas.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use stepwell_kernel::contract::{Record, RecordBuffers, Recorder, check_envelope, schemas};
use stepwell_kernel::event::{ArtifactRef, Body, Event, Patch, RunContext, StepError};
use stepwell_kernel::keys;
use stepwell_kernel::plan::{ErrorClass, Plan, StepNo, StepRef};
use stepwell_kernel::time::Time;

use crate::histories::{one_of_each, play, random_run, rich};
use crate::oracle;
use crate::support::RUN_ID;

/// A validator for each type of event.
static SCHEMAS: LazyLock<BTreeMap<String, Validator>> = LazyLock::new(|| {
    let options = jsonschema::options().should_validate_formats(true);
    let validator = |(path, schema): (String, Json)| {
        Some((
            path.strip_prefix("events/")?
                .strip_suffix(".schema.json")?
                .to_owned(),
            options.build(&schema).unwrap(),
        ))
    };
    schemas().into_iter().filter_map(validator).collect()
});

/// Records a log in pieces of this length, and compares each with the oracle.
fn check(plan: &Plan, events: &[Event], piece: usize) {
    let expected = oracle::records(plan, RUN_ID, events);
    let mut recorder = Recorder::new(RUN_ID);
    let mut buffers = RecordBuffers::default();
    let mut place = 0;
    for events in events.chunks(piece.max(1)) {
        let mut same = recorder.clone();
        let records = same.record_all(plan, events).unwrap();
        assert_eq!(records, expected[place..place + events.len()]);
        let written = recorder.write_all(plan, events, &mut buffers, |event, recorded| {
            let Record { contract, hash, .. } = &expected[place];
            let ext = serde_json::to_string(&event.body).unwrap();
            assert_eq!(String::from_utf8_lossy(recorded.ext), ext);
            assert_eq!(keys::uuid(&recorded.event_id), contract["eventId"]);
            assert_eq!(
                keys::hex(&recorded.idempotency_key),
                contract["idempotencyKey"]
            );
            assert_eq!(keys::hex(&recorded.hash), *hash);
            assert_eq!(*recorded.key, event.key(plan));
            let mut text = vec![b'{'];
            for (name, value) in recorded.fields {
                text.extend_from_slice(if text.len() > 1 { b"," } else { b"" });
                text.extend_from_slice(name.member().as_bytes());
                recorded.writer.write(value, &mut text);
            }
            text.push(b'}');
            assert_eq!(String::from_utf8(text).unwrap(), contract.to_string());
            place += 1;
        });
        written.unwrap();
        assert_eq!(recorder.head(), same.head());
    }
    for record in &expected {
        let kind = record.contract["eventType"].as_str().unwrap();
        SCHEMAS[kind].validate(&record.contract).unwrap();
        SCHEMAS["ext"].validate(&record.ext).unwrap();
        check_envelope(&record.contract).unwrap();
    }
}

/// Any JSON, with the numbers and names that have forms of their own.
fn payload() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        (-9..9_i64).prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        any::<String>().prop_map(Json::from),
    ];
    let name = prop_oneof!["[a-z]{0,3}", any::<String>(), "[\u{e000}\u{1f600}é]{1,2}"];
    leaf.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::vec((name.clone(), inner), 0..4)
                .prop_map(|fields| Json::Object(fields.into_iter().collect())),
        ]
    })
}

/// What random events are made of.
#[derive(Clone, Debug)]
struct Parts {
    text: String,
    other: Option<String>,
    number: u32,
    size: Option<u64>,
    time: Time,
    json: Json,
    step: StepRef,
    class: ErrorClass,
}

fn parts() -> impl Strategy<Value = Parts> {
    let step =
        (0..8_u32, 1..4_u32, prop::option::of(0..9_u32)).prop_map(|(step, visit, item)| StepRef {
            step: StepNo(step),
            visit,
            item,
        });
    let time = prop_oneof![any::<i64>(), 0..4_102_444_800_000_i64].prop_map(Time);
    let text = prop_oneof!["[ -~]{0,8}", any::<String>()];
    let class = prop::sample::select(ErrorClass::ALL.to_vec());
    (
        text.clone(),
        prop::option::of(text),
        any::<u32>(),
        any::<Option<u64>>(),
        time,
        payload(),
        step,
        class,
    )
        .prop_map(
            |(text, other, number, size, time, json, step, class)| Parts {
                text,
                other,
                number,
                size,
                time,
                json,
                step,
                class,
            },
        )
}

/// Puts random parts wherever a body has something of their kind.
fn filled(body: Body, parts: &Parts) -> Body {
    let mut tree = serde_json::to_value(&body).unwrap();
    let fields = tree.as_object_mut().unwrap();
    for (name, value) in fields.iter_mut() {
        fill(name, value, parts);
    }
    // What has no such form stays as it was.
    serde_json::from_value(tree).unwrap_or(body)
}

fn fill(name: &str, value: &mut Json, parts: &Parts) {
    let optional = |text: &Option<String>| text.clone().map_or(Json::Null, Json::from);
    match name {
        "by" if value.is_string() => *value = parts.text.clone().into(),
        "reason" if value == "because" => *value = optional(&parts.other),
        "step" if value.is_object() => *value = serde_json::to_value(parts.step).unwrap(),
        "logical" | "ordinal" | "approvals" => *value = parts.number.max(1).into(),
        "execution" | "in_flight" => *value = parts.number.into(),
        "params" | "output" | "payload" | "memo" | "summary" | "value" | "target" => {
            *value = parts.json.clone();
        }
        "deadline" | "retry_at" | "until" | "start_after" | "drain_deadline" => {
            *value = parts.time.0.into();
        }
        "event_id" | "event_type" | "message" | "code" | "worker" | "signal" | "engine"
        | "engine_run_ref" | "plan_hash" | "tenantId" | "triggeredBy" => {
            *value = parts.text.clone().into();
        }
        "class" => *value = serde_json::to_value(parts.class).unwrap(),
        "sizeBytes" => *value = parts.size.map_or(Json::Null, Json::from),
        "uri" | "sha256" | "kind" => *value = optional(&parts.other),
        // An item of a list is filled by what it has, whatever the list is called.
        _ => match value {
            Json::Object(fields) => fields
                .iter_mut()
                .for_each(|(name, it)| fill(name, it, parts)),
            Json::Array(list) => list.iter_mut().for_each(|it| fill("", it, parts)),
            _ => {}
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_run_is_recorded_as_trees_would_be(moves in random_run(), piece in 1..9_usize) {
        let sim = play(&moves);
        check(&sim.plan, sim.events(), piece);
    }

    #[test]
    fn events_of_every_type_are_recorded_as_trees_would_be(
        parts in prop::collection::vec(parts(), 39),
        piece in 1..50_usize,
    ) {
        let bodies = one_of_each().into_iter().zip(&parts);
        let bodies = bodies.map(|(body, parts)| filled(body, parts));
        let event = |(seq, body)| Event { seq, at: parts[0].time, body };
        let events: Vec<Event> = (1..).zip(bodies).map(event).collect();
        check(&Plan::new(rich()).unwrap(), &events, piece);
    }
}

/// Large numbers, names that must be sorted anew, and text that is escaped, in every place that has some.
#[test]
fn what_has_a_form_of_its_own_is_written_in_it() {
    let odd = json!({ "\u{1f600}": 1, "\u{e000}": 2, "b\"\n\u{1}": [1.0, 1e21, -0.0, 1e-7], "a": u64::MAX });
    let at = StepRef::first(StepNo(0));
    let artifact = ArtifactRef {
        uri: "a b".into(),
        kind: "\t".into(),
        sha256: Some("no hash".into()),
        size_bytes: Some(u64::MAX),
        expires_at: Some(Time(i64::MAX)),
    };
    let bodies = [
        Body::RunCreated {
            plan_hash: String::new(),
            params: Arc::new(odd.clone()),
            context: RunContext::default(),
            parent: None,
            original_run_id: None,
            start_after: Some(Time(-1)),
        },
        Body::StepCompleted {
            step: at,
            logical: 1,
            execution: 0,
            output: Some(Arc::new(odd.clone())),
            artifacts: vec![artifact],
            ctx: Patch::from([("é\u{0}".to_owned(), odd)]),
            routing: None,
            by: Some("\"".into()),
        },
        Body::RunFailed {
            error: StepError::new(ErrorClass::Unknown, "é", "\\"),
            rollback: Default::default(),
            undos: Vec::new(),
        },
    ];
    let event = |(seq, body)| Event {
        seq,
        at: Time(i64::MAX),
        body,
    };
    let events: Vec<Event> = (1..).zip(bodies).map(event).collect();
    check(&Plan::new(rich()).unwrap(), &events, 2);
}

/// A batch with one event that does not fit is refused, and what is recorded next is as if it had never
/// come.
#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let plan = Plan::new(rich()).unwrap();
    let step = StepRef::first(StepNo(0));
    let bad = [
        Body::StepRetried { step, logical: 0 },
        Body::RunResumed { ordinal: 0 },
        Body::StepApproved {
            step,
            execution: 1,
            by: String::new(),
            approvals: 0,
        },
    ];
    for body in bad {
        let events = [(1, Body::RunQueued {}), (2, body.clone())];
        let event = |(seq, body)| Event {
            seq,
            at: Time(1),
            body,
        };
        let events = events.map(event);
        let mut recorder = Recorder::new(RUN_ID);
        assert!(recorder.record_all(&plan, &events).is_err(), "{body:?}");
        assert!(check_envelope(&oracle::records(&plan, RUN_ID, &events)[1].contract).is_err());
        let first = recorder.record_all(&plan, &events[..1]).unwrap();
        assert_eq!(first, oracle::records(&plan, RUN_ID, &events[..1]));
    }
    let unnumbered = Event {
        seq: 0,
        at: Time(1),
        body: Body::RunQueued {},
    };
    assert!(Recorder::new(RUN_ID).record(&plan, &unnumbered).is_err());
}
