//! Keys in the form that stores keep: the numbers of the types never change, and no two keys share bytes.

use std::collections::BTreeMap;

use expect_test::expect;
use proptest::prelude::*;
use stepwell_kernel::event::EventType;
use stepwell_kernel::keys::EventKey;

/// Stored keys have these numbers in them. A new type gets the next one; no other line may change.
#[test]
fn the_numbers_of_types_never_change() {
    let mut types = EventType::ALL.to_vec();
    types.sort_by_key(|it| *it as u8);
    let line = |it: &EventType| format!("{} {}", *it as u8, it.name());
    let table: Vec<String> = types.iter().map(line).collect();
    expect![[r#"
        0 RunCreated
        1 RunQueued
        2 RunApproved
        3 RunStarted
        4 StepStarted
        5 StepCompleted
        6 StepFailed
        7 StepSkipped
        8 SignalAccepted
        9 SignalRejected
        10 RunPaused
        11 RunResumed
        12 RunCompleted
        13 RunFailed
        14 RunCancelled
        15 StepExecutionStarted
        16 StepExecutionFailed
        17 StepWaiting
        18 StepApproved
        19 StepWoken
        20 StepRouted
        21 StepHeld
        22 StepRetried
        23 TokensAdmitted
        24 CtxPatched
        25 ParamsUpdated
        26 OverrideInjected
        27 TargetUpdated
        28 EventReceived
        29 PauseDrainTimedOut
        30 RunStalled
        31 RunFinalizing
        32 RunStopping
        33 CompensationStarted
        34 UndoStarted
        35 UndoExecutionFailed
        36 UndoCompleted
        37 UndoFailed
        38 CompensationInterrupted
        39 StepAnswered"#]]
    .assert_eq(&table.join("\n"));
}

#[test]
fn a_happy_key_is_short() {
    let key = EventKey {
        step_id: Some("charge".into()),
        logical: 1,
        event_type: EventType::StepCompleted,
        ordinal: 0,
    };
    assert_eq!(key.to_bytes(), b"\x01charge\xff\x05\x01\x00");
    let run = EventKey {
        step_id: None,
        event_type: EventType::RunStopping,
        ordinal: 300,
        ..key
    };
    assert_eq!(run.to_bytes(), b"\x00\xff\x20\x01\xac\x02");
}

fn any_key() -> impl Strategy<Value = EventKey<'static>> {
    let number = prop_oneof![0..4u64, 126..130u64, 255..258u64, any::<u64>()];
    let step = prop::option::of(prop_oneof![
        Just(String::new()),
        "[\\x00-\\x02a]{0,3}",
        any::<String>(),
    ]);
    (step, number.clone(), 0..EventType::ALL.len(), number).prop_map(
        |(step_id, logical, kind, ordinal)| EventKey {
            step_id: step_id.map(Into::into),
            logical,
            event_type: EventType::ALL[kind],
            ordinal,
        },
    )
}

proptest! {
    #[test]
    fn no_two_keys_share_bytes(keys in prop::collection::vec(any_key(), 2..60)) {
        let mut seen = BTreeMap::new();
        for key in keys {
            let other = seen.insert(key.to_bytes(), key.clone());
            prop_assert!(other.is_none_or(|other| other == key));
        }
    }
}
