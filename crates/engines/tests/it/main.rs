//! The driver on a real service and real stores, with an engine outside that lives in the test: a loop that asks for turns and starts
//! attempts, as every engine does. It can forget everything it knows at any time.
#![allow(clippy::unwrap_used)]

mod conformance;
#[cfg(feature = "temporal")]
mod replay;
mod support;

use std::time::Duration;

use serde_json::json;
use stepwell_engines::{Seen, TurnError};
use stepwell_kernel::command::{Actor, Command, Role};
use support::{Lab, StoreKind};

const CHAIN: &str = "
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: chain}
workflow:
  - step: one
    tool: {kind: shell, cmds: ['echo 1']}
    next: [{step: two}]
  - step: two
    tool: {kind: shell, cmds: ['echo 2']}
    next: [{step: three}]
  - step: three
    tool: {kind: shell, cmds: ['echo 3']}
";

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_driven_to_its_end_on_every_store() {
    for kind in [StoreKind::Memory, StoreKind::Sqlite] {
        let lab = Lab::new(kind, CHAIN);
        lab.start("run_a");
        lab.drive("run_a").await;
        let types = lab.event_types("run_a");
        let started = types.iter().filter(|it| *it == "StepStarted").count();
        let completed = types.iter().filter(|it| *it == "StepCompleted").count();
        assert_eq!((started, completed), (3, 3), "{types:?}");
        assert_eq!(types.last().map(String::as_str), Some("RunCompleted"));
        assert_eq!(
            lab.engine_of("run_a"),
            ("temporal".into(), "temporal://test/run_a".into())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_moves_a_driven_run_but_its_engine() {
    let lab = Lab::new(StoreKind::Memory, CHAIN);
    lab.start("run_a");
    tokio::time::sleep(Duration::from_millis(700)).await;
    let types = lab.event_types("run_a");
    assert!(!types.contains(&"StepStarted".to_owned()), "{types:?}");
    let turn = lab.driver.turn("run_a", None, None).await.unwrap();
    let keys: Vec<String> = turn.work.iter().map(|it| it.key()).collect();
    assert_eq!(keys, ["one@1"]);
    let again = lab
        .driver
        .turn("run_a", Some(&turn.seen), None)
        .await
        .unwrap();
    assert_eq!(
        again.work, turn.work,
        "a turn that is asked for twice changes nothing"
    );
}

/// A signal of an operator.
fn signal(id: &str, signal: &str) -> Command {
    Command::Signal {
        signal_id: id.into(),
        signal: signal.into(),
        payload: json!(null),
        reason: None,
        actor: Actor {
            id: "ada".into(),
            role: Role::Operator,
            tenant: None,
            may_answer: true,
        },
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_has_seen_more_than_the_store_is_told_so() {
    let lab = Lab::new(StoreKind::Memory, CHAIN);
    lab.start("run_a");
    for seen in [
        Seen {
            seq: 900,
            hash: "00".into(),
        },
        Seen {
            seq: 1,
            hash: "ab".repeat(32),
        },
    ] {
        match lab.driver.turn("run_a", Some(&seen), None).await {
            Err(TurnError::Diverged(why)) => assert!(why.contains("run_a"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(lab.alert_codes().contains(&"ENGINE_DIVERGED".to_owned()));
    // Nothing is done again until a person says so; then the store is the truth.
    let turn = lab.driver.turn("run_a", None, None).await.unwrap();
    assert!(turn.work.is_empty(), "{turn:?}");
    let paused = lab.event_types("run_a");
    assert!(paused.contains(&"RunPaused".to_owned()), "{paused:?}");
    let resumed = lab.driver.command("run_a", signal("s1", "RESUME")).await;
    assert!(resumed.unwrap().is_ok());
    lab.drive("run_a").await;
    assert_eq!(
        lab.event_types("run_a").last().map(String::as_str),
        Some("RunCompleted")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_gets_the_kernels_answer() {
    let lab = Lab::new(StoreKind::Memory, CHAIN);
    lab.start("run_a");
    let paused = lab
        .driver
        .command("run_a", signal("s1", "PAUSE"))
        .await
        .unwrap();
    assert!(paused.is_ok(), "{paused:?}");
    let turn = lab.driver.turn("run_a", None, None).await.unwrap();
    assert!(
        turn.work.is_empty(),
        "a paused run starts nothing: {turn:?}"
    );
    let cancelled = Command::CancelRun {
        actor: Actor {
            id: "eve".into(),
            role: Role::Viewer,
            tenant: None,
            may_answer: false,
        },
        reason: None,
        compensate: false,
        keep_undo: false,
    };
    let refused = lab.driver.command("run_a", cancelled).await.unwrap();
    assert!(refused.is_err(), "{refused:?}");
    lab.driver
        .command("run_a", signal("s2", "RESUME"))
        .await
        .unwrap()
        .unwrap();
    lab.drive("run_a").await;
}
