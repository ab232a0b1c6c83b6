//! Runs wait in the queue until a slot is free.

use serde_json::json;
use stepwell_dialects::dag::words::run_word;

use crate::definitions::{Named, Test, cancel, engine, plan, run, trigger};

const WORKFLOW: &str = "
apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: {name: w}
spec:
  timeout: 1h
  steps: [{name: s, agent: a, action: do}]
";

fn words(engine: &Test) -> Vec<&'static str> {
    engine
        .runs()
        .iter()
        .map(|(_, live)| run_word(live.state()))
        .collect()
}

#[test]
fn d2_with_all_slots_taken_a_workflow_stays_queued_until_one_is_free() {
    let plan = plan(WORKFLOW);
    let mut engine = engine(Named::default());
    engine.config().limits.total = Some(2);
    for run_id in ["run_1", "run_2", "run_3", "run_4"] {
        trigger(&mut engine, &plan, run_id);
    }
    assert_eq!(
        words(&engine),
        ["executing", "executing", "queued", "queued"]
    );
    // Nobody gets in by asking.
    engine.dequeue_and_start().unwrap();
    assert_eq!(
        words(&engine),
        ["executing", "executing", "queued", "queued"]
    );
    // Who ends makes room for the one that came first, and in the same breath.
    run(&mut engine, "run_2", "s", json!(null));
    assert_eq!(
        words(&engine),
        ["executing", "completed", "executing", "queued"]
    );
    // A cancelled run frees its slot as well.
    cancel(&mut engine, "run_1").unwrap();
    assert_eq!(
        words(&engine),
        ["failed", "completed", "executing", "executing"]
    );
    let queued = |run_id: &str| {
        let kinds = engine
            .events(run_id, 0)
            .unwrap()
            .into_iter()
            .map(|it| it.body.kind());
        kinds.take(4).collect::<Vec<_>>()
    };
    for run_id in ["run_1", "run_4"] {
        let wanted = ["RunCreated", "RunQueued", "RunApproved", "RunStarted"];
        assert_eq!(queued(run_id), wanted);
    }
}

#[test]
fn a_queued_run_that_is_cancelled_takes_no_slot() {
    let plan = plan(WORKFLOW);
    let mut engine = engine(Named::default());
    engine.config().limits.total = Some(1);
    for run_id in ["run_1", "run_2", "run_3"] {
        trigger(&mut engine, &plan, run_id);
    }
    cancel(&mut engine, "run_2").unwrap();
    run(&mut engine, "run_1", "s", json!(null));
    assert_eq!(words(&engine), ["completed", "failed", "executing"]);
}
