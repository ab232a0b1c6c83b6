//! Statements of the execution contract about engines outside.

use std::collections::BTreeMap;
use std::time::Duration;

use stepwell_engines::{AttemptEnd, KeptReport};

use crate::support::{Lab, StoreKind, never_stopped};

const TWO: &str = "
schemaVersion: 1
workflowId: two
workspaceId: test
name: Two
version: 1
active: true
executionTier: Auto
actions:
  - {actionId: left, order: 1, portFamily: t, operation: 'left:do', dependsOn: [], tool: {kind: shell, cmds: ['echo began left']}}
  - {actionId: right, order: 2, portFamily: t, operation: 'right:do', dependsOn: [], tool: {kind: noop}}
  - {actionId: last, order: 3, portFamily: t, operation: 'last:do', dependsOn: [left, right], tool: {kind: noop}}
";

#[tokio::test(flavor = "multi_thread")]
async fn c37_work_begins_when_its_start_cannot_be_written_and_the_start_is_written_before_its_end()
{
    let lab = Lab::with_budget(StoreKind::Sqlite, TWO, Duration::from_millis(400));
    lab.start("run_a");
    let turn = lab.driver.turn("run_a", None, None).await.unwrap();
    let left = turn
        .work
        .iter()
        .find(|it| it.target == "left")
        .unwrap()
        .clone();
    let lock = lab.lock();
    let end = lab
        .driver
        .attempt("run_a", &left, &never_stopped())
        .await
        .unwrap();
    let types = lab.event_types("run_a");
    assert!(
        !types.contains(&"StepStarted".to_owned()),
        "the store is locked: {types:?}"
    );
    let AttemptEnd::Kept(report) = end else {
        panic!("{end:?}");
    };
    assert!(matches!(&report, KeptReport::Result { target, .. } if target == "left"));
    drop(lock);
    lab.driver
        .turn("run_a", None, Some(report.clone()))
        .await
        .unwrap();
    // The engine brings it once more: it counts once.
    lab.driver.turn("run_a", None, Some(report)).await.unwrap();
    lab.drive("run_a").await;
    let of_left: Vec<String> = lab.steps("run_a").remove("left").unwrap();
    let kinds: Vec<&str> = of_left
        .iter()
        .filter_map(|it| it.split(' ').next())
        .collect();
    assert_eq!(kinds, ["StepStarted", "StepCompleted"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c37_the_start_of_work_whose_worker_is_lost_is_written_when_the_store_is_back() {
    let lab = Lab::with_budget(StoreKind::Sqlite, TWO, Duration::from_millis(400));
    lab.start("run_a");
    lab.driver.turn("run_a", None, None).await.unwrap();
    let begun = KeptReport::Begun {
        target: "left".into(),
        execution: 1,
        worker: "temporal:gone".into(),
    };
    lab.driver
        .turn("run_a", None, Some(begun.clone()))
        .await
        .unwrap();
    lab.driver.turn("run_a", None, Some(begun)).await.unwrap();
    lab.drive("run_a").await;
    let of_left = lab.steps("run_a").remove("left").unwrap();
    let kinds: Vec<&str> = of_left
        .iter()
        .filter_map(|it| it.split(' ').next())
        .collect();
    let expected = [
        "StepStarted",
        "StepExecutionFailed",
        "StepExecutionStarted",
        "StepCompleted",
    ];
    assert_eq!(
        kinds, expected,
        "the loss is recorded once, and the work done again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn c47_the_same_plan_gives_the_same_events_with_the_same_keys() {
    let outside = Lab::new(StoreKind::Memory, TWO);
    outside.start("run_a");
    outside.drive("run_a").await;
    let native = Lab::native(StoreKind::Memory, TWO);
    native.start("run_a");
    native.wait("run_a").await;
    let (outside, native): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (outside.steps("run_a"), native.steps("run_a"));
    assert_eq!(outside, native);
    assert!(native.contains_key("last"));
}

#[tokio::test(flavor = "multi_thread")]
async fn c37_a_start_and_a_result_that_only_the_engine_has_are_one_commit() {
    let lab = Lab::new(StoreKind::Sqlite, TWO);
    lab.start("run_a");
    lab.driver.turn("run_a", None, None).await.unwrap();
    let worker = "temporal:gone";
    let report = KeptReport::Result {
        target: "left".into(),
        execution: 1,
        worker: worker.into(),
        command: Box::new(lab.completed("left", worker)),
    };
    for _ in 0..2 {
        let brought = Some(report.clone());
        lab.driver.turn("run_a", None, brought).await.unwrap();
    }
    let commits = lab.commits("run_a");
    let both = ["StepStarted".to_owned(), "StepCompleted".to_owned()];
    assert!(
        commits.iter().any(|it| it.starts_with(&both)),
        "{commits:?}"
    );
    lab.drive("run_a").await;
    assert_eq!(lab.steps("run_a")["left"].len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn c37_work_goes_on_while_the_store_is_away_for_longer_than_its_lease_and_is_done_once() {
    let folder = tempfile::tempdir().unwrap();
    let effects = folder.path().join("effects");
    let text = TWO.replace(
        "echo began left",
        &format!("echo left >> {}; sleep 12", effects.display()),
    );
    let text = text.replace(
        "operation: 'right:do', dependsOn: [], tool: {kind: noop}",
        &format!(
            "operation: 'right:do', dependsOn: [], tool: {{kind: shell, cmds: ['echo right >> {}']}}",
            effects.display()
        ),
    );
    let lab = Lab::with_budget(StoreKind::Sqlite, &text, Duration::from_millis(400));
    lab.start("run_a");
    let turn = lab.driver.turn("run_a", None, None).await.unwrap();
    let item = |name: &str| turn.work.iter().find(|it| it.target == name).unwrap();
    let (left, right) = (item("left").clone(), item("right").clone());
    let driver = lab.driver.clone();
    let working =
        tokio::spawn(async move { driver.attempt("run_a", &left, &never_stopped()).await });
    lab.until("run_a", "StepStarted").await;
    let lock = lab.lock();
    // It begins without its start, and its result is left with the engine.
    let end = lab
        .driver
        .attempt("run_a", &right, &never_stopped())
        .await
        .unwrap();
    assert!(matches!(end, AttemptEnd::Kept(_)), "{end:?}");
    // An engine that starts it once more does not do it once more.
    let driver = lab.driver.clone();
    let again =
        tokio::spawn(async move { driver.attempt("run_a", &right, &never_stopped()).await });
    tokio::time::sleep(Duration::from_millis(11_500)).await;
    drop(lock);
    again.await.unwrap().unwrap();
    working.await.unwrap().unwrap();
    lab.drive("run_a").await;
    let steps = lab.steps("run_a");
    for name in ["left", "right"] {
        let events = steps[name].iter();
        let kinds: Vec<&str> = events.filter_map(|it| it.split(' ').next()).collect();
        assert_eq!(kinds, ["StepStarted", "StepCompleted"], "{name}");
    }
    let done = std::fs::read_to_string(&effects).unwrap();
    assert_eq!(done, "left\nright\n");
    assert!(
        lab.alert_codes()
            .contains(&"WRITE_LATENCY_EXCEEDED".to_owned())
    );
}
