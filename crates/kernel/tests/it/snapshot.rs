//! Snapshots: a pure fold of the contract's events, tolerant of what it does not know.

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use stepwell_kernel::effect::Priority;
use stepwell_kernel::plan::{ErrorClass, OnFailure, Plan};
use stepwell_kernel::snapshot::{
    ContractEvent, Dependencies, FeedResult, Resync, ResyncAnswer, RunSnapshot, RunStatus,
    SnapshotProjector, StepStatus, detect_non_contiguous, incremental, project,
};

use crate::contract::records;
use crate::histories::{artifact, play, random_run};
use crate::support::{RUN_ID, Sim, net, task, tasks};

fn events_of(sim: &Sim) -> Vec<ContractEvent> {
    let all = records(&sim.plan, sim.events());
    all.into_iter()
        .map(|record| ContractEvent::read(record.contract).unwrap())
        .collect()
}

/// An event with only what a reader needs.
fn event(seq: u64, kind: &str, more: Json) -> ContractEvent {
    let second = seq % 60;
    let mut event = json!({
        "eventType": kind,
        "runSeq": seq,
        "emittedAt": format!("2026-02-11T10:30:{second:02}.000Z"),
    });
    for (name, value) in more.as_object().unwrap() {
        event[name] = value.clone();
    }
    ContractEvent::read(event).unwrap()
}

fn step(seq: u64, kind: &str, step: &str) -> ContractEvent {
    event(seq, kind, json!({ "stepId": step, "logicalAttemptId": 1 }))
}

fn started() -> Vec<ContractEvent> {
    let started = json!({ "startedAt": "2026-02-11T10:30:02.000Z", "engineRunRef": "ref" });
    vec![
        event(1, "RunApproved", json!({})),
        event(2, "RunStarted", started),
    ]
}

/// A run that was finished, as a projector sees it.
fn finished() -> Vec<ContractEvent> {
    let mut sim = Sim::started(tasks(&["a", "b"]));
    sim.claim("a").unwrap();
    sim.advance(1_500);
    sim.complete_all(sim.claim_on("a"), Json::Null, json!({}), vec![artifact()])
        .unwrap();
    sim.run("b").unwrap();
    events_of(&sim)
}

#[test]
fn c10_each_canonical_type_has_the_effect_of_the_table() {
    let status = |kind: &str| {
        let mut events = started();
        events.push(event(3, kind, json!({})));
        project(RUN_ID, &events).status
    };
    assert_eq!(project(RUN_ID, &[]).status, RunStatus::Pending);
    assert_eq!(
        project(RUN_ID, &[event(1, "RunQueued", json!({}))]).status,
        RunStatus::Pending
    );
    assert_eq!(project(RUN_ID, &started()[..1]).status, RunStatus::Approved);
    assert_eq!(status("StepStarted"), RunStatus::Running);
    assert_eq!(status("RunPaused"), RunStatus::Paused);
    assert_eq!(status("RunResumed"), RunStatus::Running);
    assert_eq!(status("SignalAccepted"), RunStatus::Running);
    assert_eq!(status("SignalRejected"), RunStatus::Running);
    assert_eq!(status("RunCompleted"), RunStatus::Completed);
    assert_eq!(status("RunFailed"), RunStatus::Failed);
    assert_eq!(status("RunCancelled"), RunStatus::Cancelled);
    for (kind, wanted) in [
        ("StepStarted", StepStatus::Running),
        ("StepCompleted", StepStatus::Success),
        ("StepFailed", StepStatus::Failed),
        ("StepSkipped", StepStatus::Skipped),
    ] {
        let run = project(RUN_ID, &[step(1, kind, "a")]);
        assert_eq!((run.steps.len(), &run.steps[0].status), (1, &wanted));
        assert_eq!(run.status, RunStatus::Pending);
    }
    let run = project(RUN_ID, &started());
    assert_eq!(run.engine_run_ref.as_deref(), Some("ref"));
    assert_eq!(run.started_at.as_deref(), Some("2026-02-11T10:30:02.000Z"));
}

#[test]
fn c10_a_terminal_run_is_immutable() {
    for last in ["RunCompleted", "RunFailed", "RunCancelled"] {
        let mut events = started();
        events.push(event(3, last, json!({})));
        let ended = project(RUN_ID, &events);
        for kind in [
            "RunStarted",
            "RunPaused",
            "RunCompleted",
            "RunFailed",
            "RunCancelled",
        ] {
            let after = incremental(
                &ended,
                &[event(4, kind, json!({})), step(5, "StepFailed", "a")],
            );
            let wanted = RunSnapshot {
                last_event_seq: 5,
                ..ended.clone()
            };
            assert_eq!(after, wanted, "{kind} after {last}");
        }
    }
}

#[test]
fn c14_a_retry_leaves_the_failed_attempt_as_it_was() {
    let mut net = tasks(&["a"]);
    net.steps[0].on_failure = OnFailure::Hold { timeout_ms: 1_000 };
    let mut sim = Sim::started(net);
    sim.run_failing("a", ErrorClass::Policy).unwrap();
    let before = project(RUN_ID, &events_of(&sim));
    sim.signal("RETRY_STEP", json!({ "stepId": "a" })).unwrap();
    let retried = project(RUN_ID, &events_of(&sim));
    assert_eq!(retried.steps[0], before.steps[0]);
    assert_eq!(retried.steps[1].status, StepStatus::Pending);
    assert_eq!(retried.steps[1].logical_attempt_id, 2);
    sim.run("a").unwrap();
    let after = project(RUN_ID, &events_of(&sim));
    assert_eq!(after.steps[0], before.steps[0]);
    assert_eq!(after.step("a").unwrap().status, StepStatus::Success);
    assert_eq!(
        (after.failed_steps, after.status),
        (1, RunStatus::Completed)
    );
}

#[test]
fn c15_only_a_pending_attempt_is_skipped() {
    let running = [step(1, "StepStarted", "a"), step(2, "StepSkipped", "a")];
    assert_eq!(
        project(RUN_ID, &running).steps[0].status,
        StepStatus::Running
    );
    // In a run of ours: what has started ends as failed, and its next attempt is skipped.
    let mut sim = Sim::started(tasks(&["a", "b"]));
    sim.claim("a").unwrap();
    sim.signal("SKIP_STEP", json!({ "stepId": "a" })).unwrap();
    let run = project(RUN_ID, &events_of(&sim));
    let seen: Vec<_> = run
        .steps
        .iter()
        .map(|step| (step.logical_attempt_id, step.status.clone()))
        .collect();
    assert_eq!(seen, [(1, StepStatus::Failed), (2, StepStatus::Skipped)]);
}

#[test]
fn c16_a_projection_is_a_new_value() {
    let events = finished();
    let first = project(RUN_ID, &events[..4]);
    let kept = first.clone();
    let second = incremental(&first, &events[4..]);
    assert_eq!(first, kept);
    assert_ne!(first, second);
    assert_eq!(project(RUN_ID, &events), second);
    assert_eq!(second.status, RunStatus::Completed);
    assert_eq!(second.artifacts.len(), 1);
}

#[test]
fn c17_events_project_by_sequence_whatever_their_times() {
    let late = json!({ "emittedAt": "2026-02-11T12:00:00.000Z" });
    let mut events = started();
    events.push(event(3, "RunPaused", late));
    events.push(event(
        4,
        "RunResumed",
        json!({ "emittedAt": "2026-02-11T08:00:00.000Z" }),
    ));
    assert_eq!(project(RUN_ID, &events).status, RunStatus::Running);
    events.reverse();
    assert_eq!(project(RUN_ID, &events).status, RunStatus::Running);
}

#[test]
fn c18_durations_use_the_event_time_where_there_is_one() {
    let occurred = |at: &str| json!({ "stepId": "a", "occurredAt": at });
    let both = [
        event(1, "StepStarted", occurred("2026-02-11T10:00:00.000Z")),
        event(2, "StepCompleted", occurred("2026-02-11T10:00:00.250Z")),
    ];
    assert_eq!(project(RUN_ID, &both).steps[0].duration_ms, Some(250));
    let neither = [step(1, "StepStarted", "a"), step(4, "StepCompleted", "a")];
    assert_eq!(project(RUN_ID, &neither).steps[0].duration_ms, Some(3_000));
    // startedAt is shown as it was given, and does not change the duration.
    let started = json!({ "startedAt": "2026-02-11T09:00:00.000Z", "occurredAt": "2026-02-11T10:30:01.000Z" });
    let run = [
        event(1, "RunStarted", started),
        event(5, "RunCompleted", json!({})),
    ];
    let run = project(RUN_ID, &run);
    assert_eq!(run.started_at.as_deref(), Some("2026-02-11T09:00:00.000Z"));
    assert_eq!(run.total_duration_ms, Some(4_000));
    assert_eq!(project(RUN_ID, &finished()).total_duration_ms, Some(1_500));
}

#[test]
fn c20_a_duplicate_changes_nothing_but_the_watermark() {
    let mut events = started();
    events.push(event(3, "RunPaused", json!({ "logicalAttemptId": 1 })));
    events.push(event(4, "RunResumed", json!({ "logicalAttemptId": 1 })));
    events.push(step(5, "StepStarted", "a"));
    events.push(step(6, "StepFailed", "a"));
    let once = project(RUN_ID, &events);
    // The same events again under higher numbers: the same keys.
    let again: Vec<ContractEvent> = events
        .iter()
        .map(|event| {
            let mut again = event.clone();
            again.run_seq += 6;
            again
        })
        .collect();
    let twice = incremental(&once, &again);
    let wanted = RunSnapshot {
        last_event_seq: 12,
        ..once.clone()
    };
    assert_eq!(twice, wanted);
    // And the very same events, late.
    assert_eq!(incremental(&twice, &events), twice);
}

#[test]
fn c21_an_unknown_type_moves_only_the_watermark() {
    let before = project(RUN_ID, &started());
    let unknown = event(
        9,
        "RunTeleported",
        json!({ "status": "FAILED", "stepId": "a" }),
    );
    let wanted = RunSnapshot {
        last_event_seq: 9,
        ..before.clone()
    };
    assert_eq!(incremental(&before, &[unknown]), wanted);
}

#[test]
fn c22_unknown_fields_and_words_never_make_a_reader_fail() {
    let odd = json!({
        "status": "LEVITATING", "engineType": "steam", "startedAt": 7, "artifactRefs": "none",
        "error": [], "emittedBy": null, "planRef": { "more": true },
    });
    let run = project(RUN_ID, &[event(1, "RunStarted", odd)]);
    assert_eq!(run.status, RunStatus::Running);
    let odd = json!({ "stepId": "a", "logicalAttemptId": "one", "error": { "code": 5 }, "x": {} });
    let run = incremental(&run, &[event(2, "StepFailed", odd)]);
    assert_eq!(run.steps[0].status, StepStatus::Failed);
    // A snapshot that a later version wrote.
    let later = json!({
        "runId": RUN_ID, "status": "ARCHIVED", "lastEventSeq": 3, "artifacts": [], "mood": "fine",
        "steps": [{ "stepId": "a", "status": "DREAMING", "logicalAttemptId": 1, "artifacts": [] }],
    });
    let later: RunSnapshot = serde_json::from_value(later).unwrap();
    assert_eq!(later.status, RunStatus::Other("ARCHIVED".into()));
    assert_eq!(later.steps[0].status, StepStatus::Other("DREAMING".into()));
    assert_eq!(
        ContractEvent::read(json!({ "eventType": "RunStarted" })),
        None
    );
}

#[test]
fn a_snapshot_has_the_contracts_names_and_fits_its_schema() {
    let run = project(RUN_ID, &finished());
    let written = serde_json::to_value(&run).unwrap();
    for name in [
        "runId",
        "status",
        "lastEventSeq",
        "steps",
        "artifacts",
        "totalDurationMs",
    ] {
        assert!(written.get(name).is_some(), "{name}");
    }
    assert_eq!(written["steps"][0]["logicalAttemptId"], 1);
    let schema = &stepwell_kernel::contract::schemas()["snapshot/RunSnapshot.schema.json"];
    jsonschema::validator_for(schema)
        .unwrap()
        .validate(&written)
        .unwrap();
    assert_eq!(serde_json::from_value::<RunSnapshot>(written).unwrap(), run);
}

// The projector.

fn log(seqs: impl IntoIterator<Item = u64>) -> Vec<ContractEvent> {
    let name = |seq: u64| format!("s{seq}");
    seqs.into_iter()
        .map(|seq| step(seq, "StepStarted", &name(seq)))
        .collect()
}

fn projector_at(seq: u64) -> SnapshotProjector {
    let mut projector = SnapshotProjector::new(RunSnapshot::new(RUN_ID), Dependencies::default());
    assert_eq!(projector.feed(&log(1..=seq)), FeedResult::default());
    projector
}

#[test]
fn c23_a_gap_marks_the_run_stale_and_is_bridged_without_inventing_anything() {
    assert!(detect_non_contiguous(11, 13));
    assert!(!detect_non_contiguous(11, 12));
    assert!(!detect_non_contiguous(11, 11));
    let mut projector = projector_at(10);
    let fed = projector.feed(&log([11, 13]));
    let codes: Vec<_> = fed
        .alerts
        .iter()
        .map(|alert| (alert.code, alert.priority))
        .collect();
    assert_eq!(
        codes,
        [("PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED", Priority::P2)]
    );
    assert_eq!(fed.resync, Some(Resync::FromSnapshot { snapshot_seq: 11 }));
    assert!(projector.is_stale());
    assert_eq!(projector.snapshot().last_event_seq, 11);
    // Told once, and standing still until the answer.
    assert_eq!(projector.feed(&log([13])), FeedResult::default());
    assert_eq!(projector.snapshot().last_event_seq, 11);
    let answer = ResyncAnswer {
        snapshot: None,
        events: log([13]),
    };
    assert_eq!(projector.resync(&answer), FeedResult::default());
    assert!(!projector.is_stale());
    assert_eq!(projector.snapshot().last_event_seq, 13);
    assert!(projector.snapshot().step("s12").is_none());
    assert_eq!(projector.feed(&log([14])), FeedResult::default());
    assert_eq!(projector.snapshot().last_event_seq, 14);
}

#[test]
fn c24_a_resync_is_complete_only_at_what_was_observed_before_it() {
    let mut projector = projector_at(3);
    projector.feed(&log([5, 6]));
    // More is observed while the answer is on its way.
    projector.feed(&log([7]));
    for reached in [4, 6] {
        let short = ResyncAnswer {
            snapshot: None,
            events: log(1..=reached),
        };
        assert_eq!(projector.resync(&short).resync, Some(Resync::Full));
        assert!(projector.is_stale());
        assert_eq!(projector.snapshot().last_event_seq, 3);
        assert_eq!(projector.feed(&log([4])), FeedResult::default());
    }
    let whole = ResyncAnswer {
        snapshot: None,
        events: log(1..=7),
    };
    assert_eq!(projector.resync(&whole), FeedResult::default());
    assert_eq!(*projector.snapshot(), project(RUN_ID, &log(1..=7)));
}

#[test]
fn c25_both_modes_of_resync_give_the_same() {
    let wanted = project(RUN_ID, &log(1..=9));
    let answers = [
        // FULL, and FROM_SNAPSHOT where the store has no snapshot.
        ResyncAnswer {
            snapshot: None,
            events: log(1..=9),
        },
        ResyncAnswer {
            snapshot: Some(project(RUN_ID, &log(1..=2))),
            events: log(3..=9),
        },
        ResyncAnswer {
            snapshot: Some(project(RUN_ID, &log(1..=9))),
            events: Vec::new(),
        },
        ResyncAnswer {
            snapshot: None,
            events: log(5..=9),
        },
    ];
    for answer in answers {
        let mut projector = projector_at(4);
        projector.feed(&log([9]));
        assert_eq!(projector.resync(&answer), FeedResult::default());
        assert_eq!(*projector.snapshot(), wanted);
    }
    let mut fresh = SnapshotProjector::new(RunSnapshot::new(RUN_ID), Dependencies::default());
    assert_eq!(fresh.feed(&log([2])).resync, Some(Resync::Full));
}

#[test]
fn c26_an_inversion_is_told_and_projection_goes_on() {
    let plan = Plan::new(net(
        vec![task("a"), task("b"), task("c")],
        &[("a", "c"), ("b", "c")],
    ))
    .unwrap();
    let mut projector = SnapshotProjector::new(RunSnapshot::new(RUN_ID), Dependencies::of(&plan));
    let fed = projector.feed(&[
        step(1, "StepStarted", "a"),
        step(2, "StepSkipped", "b"),
        step(3, "StepStarted", "c"),
        step(4, "StepCompleted", "a"),
        step(5, "StepCompleted", "c"),
    ]);
    let told: Vec<_> = fed
        .alerts
        .iter()
        .map(|alert| (alert.code, alert.priority))
        .collect();
    assert_eq!(told, [("PROJECTOR_CAUSAL_VIOLATION", Priority::P3)]);
    assert!(fed.alerts[0].message.contains("c started before a"));
    assert_eq!(fed.resync, None);
    assert_eq!(projector.snapshot().last_event_seq, 5);
    assert_eq!(
        projector.snapshot().step("c").unwrap().status,
        StepStatus::Success
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn c19_projection_from_any_watermark_equals_projection_from_scratch(
        moves in random_run(),
        cut in any::<prop::sample::Index>(),
    ) {
        let sim = play(&moves);
        let events = events_of(&sim);
        let whole = project(RUN_ID, &events);
        let cut = cut.index(events.len() + 1);
        let first = project(RUN_ID, &events[..cut]);
        // A snapshot is kept and read again in between, and some events come twice.
        let kept = serde_json::to_string(&first).unwrap();
        let kept: RunSnapshot = serde_json::from_str(&kept).unwrap();
        prop_assert_eq!(&incremental(&kept, &events[cut / 2..]), &whole);
        prop_assert_eq!(whole.last_event_seq, sim.state.seq());
    }

    #[test]
    fn our_own_runs_have_no_inversions(moves in random_run()) {
        let sim = play(&moves);
        let snapshot = RunSnapshot::new(RUN_ID);
        let mut projector = SnapshotProjector::new(snapshot, Dependencies::of(&sim.plan));
        prop_assert_eq!(projector.feed(&events_of(&sim)), FeedResult::default());
        let whole = project(RUN_ID, &events_of(&sim));
        prop_assert_eq!(projector.snapshot(), &whole);
    }

    #[test]
    fn no_json_makes_the_reader_fail(
        kind in prop::sample::select(vec!["RunStarted", "RunFailed", "StepCompleted", "StepFailed"]),
        odd in prop::collection::vec((field(), value()), 0..8),
    ) {
        let mut event = json!({ "eventType": kind, "runSeq": 1, "stepId": "a" });
        for (name, value) in odd {
            event[name] = value;
        }
        let event = ContractEvent::read(event).unwrap();
        prop_assert_eq!(project(RUN_ID, &[event]).last_event_seq, 1);
    }
}

fn field() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "stepId",
        "emittedAt",
        "occurredAt",
        "startedAt",
        "completedAt",
        "failedAt",
        "error",
        "artifactRefs",
        "logicalAttemptId",
        "engineAttemptId",
        "status",
        "substatus",
        "reason",
    ])
}

fn value() -> impl Strategy<Value = Json> {
    prop_oneof![
        Just(Json::Null),
        any::<i64>().prop_map(Json::from),
        ".{0,12}".prop_map(Json::from),
        Just(json!([{ "uri": 1 }, { "uri": "s3://x", "more": {} }])),
        Just(json!({ "code": [], "retryable": "maybe" })),
    ]
}
