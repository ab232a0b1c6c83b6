//! Runs that start runs.

use serde_json::json;
use stepwell_engine::coordinator::MissingChildren;
use stepwell_engine::engine::engine_actor;
use stepwell_engine::store::RunFilter;
use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::Rollback;
use stepwell_kernel::state::Phase;

use crate::definitions::{
    Named, Test, cancel, engine, engine_on, phase, plan, run, signal, trigger,
};

const PARENT: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: parent}
workflow:
- step: before
  next: call
- step: call
  tool: {kind: playbook, path: child, args: {n: 3}, return_step: answer}
  next: [{step: after, args: {got: "{{ call.x }}"}}]
- step: after
"#;

const CHILD: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: child}
workflow:
- step: answer
  next: tidy
- step: tidy
"#;

fn named() -> Named {
    Named(vec![("child", plan(CHILD))])
}

/// An engine with a parent whose first step has run, so that its child has been asked for.
fn called() -> Test {
    let mut engine = engine(named());
    engine.config().limits.total = Some(1);
    trigger(&mut engine, &plan(PARENT), "run_parent");
    run(&mut engine, "run_parent", "before", json!(null));
    engine
}

/// The one run beside the parent.
#[track_caller]
fn child(engine: &Test) -> String {
    let runs = engine.runs();
    let children: Vec<&str> = runs
        .iter()
        .filter(|(_, live)| live.state().parent().is_some())
        .map(|(id, _)| *id)
        .collect();
    let [child] = children[..] else {
        panic!("one child, not {children:?}");
    };
    child.to_owned()
}

/// What a crash leaves is the store; a new engine reads the parent back from it.
fn crash(crashed: Test) -> Test {
    let store = crashed.store().clone();
    drop(crashed);
    let mut engine = engine_on(store, named());
    engine.config().limits.total = Some(1);
    engine.recover("run_parent").unwrap();
    for run in engine.store().list(&everything()).unwrap() {
        engine.recover(&run.run_id).unwrap();
    }
    engine
}

fn everything() -> RunFilter {
    RunFilter {
        limit: 100,
        ..RunFilter::default()
    }
}

fn starts(engine: &Test, run_id: &str) -> usize {
    let kinds = engine.events(run_id, 0).unwrap();
    kinds
        .iter()
        .filter(|it| it.body.kind() == "RunStarted")
        .count()
}

/// Runs what is left and looks at the end.
#[track_caller]
fn finish(mut engine: Test) {
    let child = child(&engine);
    run(&mut engine, &child, "answer", json!({ "x": 9 }));
    run(&mut engine, &child, "tidy", json!({ "x": 0 }));
    let parent = engine.run("run_parent").unwrap();
    let after = parent.plan().parse_step_id("after").unwrap();
    let args = parent.state().visit(after).unwrap().args().cloned();
    assert_eq!(args.as_deref(), Some(&json!({ "got": 9 })));
    run(&mut engine, "run_parent", "after", json!(null));
    assert_eq!(
        phase(&engine, "run_parent"),
        Phase::Ended(RunOutcome::Succeeded)
    );
    assert_eq!(starts(&engine, &child), 1);
}

#[test]
fn p32_a_child_is_started_once_whenever_the_crash_comes() {
    // No crash; and the child runs in its parent's slot.
    let engine = called();
    let id = child(&engine);
    assert_eq!(engine.run(&id).unwrap().state().current_params()["n"], 3);
    assert_eq!(phase(&engine, &id), Phase::Running);
    finish(engine);

    // After the child has started: it is found again, twice over.
    let engine = crash(crash(called()));
    assert_eq!(child(&engine), id);
    assert_eq!(starts(&engine, &id), 1);
    finish(engine);

    // Between the parent's commit and the child's first: the catalog has nothing, so none is made.
    let mut lost = crate::definitions::engine(Named::default());
    lost.config().missing_children = MissingChildren::AskDriver;
    trigger(&mut lost, &plan(PARENT), "run_parent");
    run(&mut lost, "run_parent", "before", json!(null));
    assert!(
        lost.runs()
            .iter()
            .all(|(_, live)| live.state().parent().is_none())
    );
    let engine = crash(lost);
    assert_eq!(child(&engine), id, "its id follows from the attempt");
    finish(engine);
}

// also proves: P32
#[test]
fn a_cancel_reaches_the_child_and_the_parent_ends_after_it() {
    let mut engine = called();
    let id = child(&engine);
    cancel(&mut engine, "run_parent").unwrap();
    let cancelled = Phase::Ended(RunOutcome::Cancelled(Rollback::None));
    assert_eq!(phase(&engine, &id), cancelled);
    assert_eq!(phase(&engine, "run_parent"), cancelled);
}

// also proves: P32
#[test]
fn a_pause_and_a_resume_reach_the_child() {
    let mut engine = called();
    let id = child(&engine);
    let paused = |engine: &Test| {
        let paused = |run_id: &str| engine.run(run_id).unwrap().state().pause().is_some();
        [paused("run_parent"), paused(&id)]
    };
    assert_eq!(
        signal(&mut engine, "run_parent", "s1", "PAUSE"),
        Reply::Done
    );
    assert_eq!(paused(&engine), [true, true]);
    let mut engine = crash(engine);
    assert_eq!(paused(&engine), [true, true]);
    assert_eq!(
        signal(&mut engine, "run_parent", "s2", "RESUME"),
        Reply::Done
    );
    assert_eq!(paused(&engine), [false, false]);
    finish(engine);
}

#[test]
fn a_child_that_is_stopped_fails_the_step_that_waits_for_it() {
    let mut engine = called();
    let id = child(&engine);
    cancel(&mut engine, &id).unwrap();
    let parent = engine.run("run_parent").unwrap();
    let call = parent
        .state()
        .run(parent.plan().parse_step_id("call").unwrap());
    let error = call.unwrap().error().unwrap();
    assert_eq!(error.code, "CHILD_CANCELLED");
    // The arc has no guard, so it is taken and does not handle the failure.
    run(&mut engine, "run_parent", "after", json!(null));
    assert_eq!(
        phase(&engine, "run_parent"),
        Phase::Ended(RunOutcome::Failed(Rollback::None))
    );
}

#[test]
fn a_child_that_must_be_approved_starts_when_it_is_in_its_parents_slot() {
    let strict = plan(
        "metadata: {planId: strict, planVersion: '1', schemaVersion: v1.2, requiresApproval: true}\nsteps: [{stepId: s, kind: do}]\n",
    );
    let mut engine = engine(Named(vec![("child", strict)]));
    engine.config().limits.total = Some(1);
    trigger(&mut engine, &plan(PARENT), "run_parent");
    run(&mut engine, "run_parent", "before", json!(null));
    let id = child(&engine);
    assert_eq!(phase(&engine, &id), Phase::Queued);
    let actor = engine_actor();
    engine
        .submit(
            &id,
            Command::ApproveRun {
                actor,
                reason: None,
            },
        )
        .unwrap();
    engine.dequeue_and_start().unwrap();
    assert_eq!(phase(&engine, &id), Phase::Running);
}
