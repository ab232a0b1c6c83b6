//! Start requests, the queue, repeated runs, and children under signals.

use std::sync::Arc;

use expect_test::expect;
use serde_json::json;
use stepwell_engine::engine::{Error, engine_actor};
use stepwell_engine::port::Catalog;
use stepwell_engine::{StartRequest, run_id_for};
use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::{Body, Rollback};
use stepwell_kernel::expr::TemplateValue;
use stepwell_kernel::plan::{ChildSpec, Net, Plan, Step, Work};
use stepwell_kernel::state::Phase;

use crate::{
    MemoryEngine, START, chain, engine, engine_with, log, plan, request, run_to_the_end, task,
};

fn one_step() -> Arc<Plan> {
    plan(chain(vec![task("a")]))
}

fn asked(run_id: &str, id: &str) -> StartRequest {
    StartRequest {
        request_id: Some(id.into()),
        ..request(run_id)
    }
}

fn signal(id: &str, name: &str) -> Command {
    Command::Signal {
        signal_id: id.into(),
        signal: name.into(),
        payload: json!({}),
        reason: Some("because".into()),
        actor: engine_actor(),
    }
}

fn phase(engine: &MemoryEngine, run_id: &str) -> Phase {
    engine.run(run_id).expect("the run exists").state().phase()
}

#[test]
fn c31_two_requests_with_the_same_id_are_one_run() {
    let mut engine = engine();
    let plan_one = one_step();
    assert_eq!(
        engine.trigger(&plan_one, asked("run_1", "r")).unwrap(),
        "run_1"
    );
    assert_eq!(
        engine.trigger(&plan_one, asked("run_2", "r")).unwrap(),
        "run_1"
    );
    assert!(engine.run("run_2").is_none());
    assert_eq!(engine.runs().len(), 1);
    // Also when the first has ended.
    let mut engine = run_to_the_end(engine, 0);
    assert_eq!(phase(&engine, "run_1"), Phase::Ended(RunOutcome::Succeeded));
    assert_eq!(
        engine.trigger(&plan_one, asked("run_3", "r")).unwrap(),
        "run_1"
    );
    assert_eq!(phase(&engine, "run_1"), Phase::Ended(RunOutcome::Succeeded));
}

#[test]
fn c31_each_part_of_the_key_makes_another_run() {
    let mut engine = engine();
    let plan_one = one_step();
    engine.trigger(&plan_one, asked("run_0", "r")).unwrap();
    let mut others: Vec<(Arc<Plan>, StartRequest)> = Vec::new();
    let changed = |change: &dyn Fn(&mut StartRequest)| {
        let mut request = asked("", "r");
        change(&mut request);
        request
    };
    others.push((
        plan_one.clone(),
        changed(&|it| it.context.tenant_id = "other".into()),
    ));
    others.push((
        plan_one.clone(),
        changed(&|it| it.context.project_id = "other".into()),
    ));
    others.push((
        plan_one.clone(),
        changed(&|it| it.context.environment_id = "other".into()),
    ));
    others.push((
        plan_one.clone(),
        changed(&|it| it.request_id = Some("s".into())),
    ));
    let mut net = chain(vec![task("a")]);
    net.plan_version = "2".into();
    others.push((plan(net), changed(&|_| {})));
    let mut net = chain(vec![task("a")]);
    net.plan_id = "other".into();
    others.push((plan(net), changed(&|_| {})));
    for (no, (plan, mut request)) in others.into_iter().enumerate() {
        request.run_id = format!("run_{}", no + 1);
        let run_id = request.run_id.clone();
        assert_eq!(engine.trigger(&plan, request).unwrap(), run_id);
    }
    // Without a request id there is nothing to compare.
    engine.trigger(&plan_one, request("run_x")).unwrap();
    engine.trigger(&plan_one, request("run_y")).unwrap();
    assert_eq!(engine.runs().len(), 9);
}

#[test]
fn a_start_that_was_refused_does_not_use_up_its_request() {
    let mut engine = engine();
    let refused = engine.trigger(&one_step(), asked("not-an-id", "r"));
    assert!(matches!(&refused, Err(Error::Rejected(it)) if it.code.name() == "INVALID_ID"));
    assert_eq!(
        engine.trigger(&one_step(), asked("run_1", "r")).unwrap(),
        "run_1"
    );
    assert_eq!(phase(&engine, "run_1"), Phase::Running);
}

#[test]
fn a_run_without_a_slot_is_queued_and_starts_later() {
    let mut engine = engine();
    engine.config().limits.total = Some(1);
    for id in ["run_1", "run_2", "run_3"] {
        engine.trigger(&one_step(), request(id)).unwrap();
    }
    assert_eq!(phase(&engine, "run_1"), Phase::Running);
    assert_eq!(phase(&engine, "run_2"), Phase::Queued);
    expect![[r#"
        RunCreated
        RunQueued
    "#]]
    .assert_eq(&log(&engine, "run_2"));
    let engine = run_to_the_end(engine, 1_000);
    let started = |id: &str| {
        let events = engine.events(id, 0).unwrap();
        let start = events
            .iter()
            .find(|event| event.body.kind() == "RunStarted");
        start.expect("it has started").at.since(START)
    };
    // One after the other, in the order they came.
    assert_eq!(
        [started("run_1"), started("run_2"), started("run_3")],
        [0, 1_000, 2_000]
    );
    expect![[r#"
        RunCreated
        RunQueued
        RunApproved
        RunStarted
        StepStarted a
        StepCompleted a
        RunCompleted
    "#]]
    .assert_eq(&log(&engine, "run_3"));
}

#[test]
fn a_delayed_run_is_accepted_and_starts_at_its_time() {
    let mut engine = engine();
    let delayed = StartRequest {
        start_after: Some(START.plus(60_000)),
        ..request("run_1")
    };
    engine.trigger(&one_step(), delayed).unwrap();
    assert_eq!(phase(&engine, "run_1"), Phase::Queued);
    assert_eq!(engine.next_wake(), Some(START.plus(60_000)));
    assert!(!engine.fire_due().unwrap());
    let engine = run_to_the_end(engine, 0);
    let events = engine.events("run_1", 0).unwrap();
    let start = events
        .iter()
        .find(|event| event.body.kind() == "RunStarted")
        .unwrap();
    assert_eq!(start.at, START.plus(60_000));
    assert_eq!(phase(&engine, "run_1"), Phase::Ended(RunOutcome::Succeeded));
}

#[test]
fn a_delayed_run_whose_time_came_while_no_slot_was_free_holds_nobody_up() {
    let mut engine = engine();
    engine.config().limits.total = Some(1);
    engine.trigger(&one_step(), request("run_1")).unwrap();
    let delayed = StartRequest {
        start_after: Some(START.plus(10)),
        ..request("run_2")
    };
    engine.trigger(&one_step(), delayed).unwrap();
    let engine = run_to_the_end(engine, 5_000);
    assert_eq!(phase(&engine, "run_1"), Phase::Ended(RunOutcome::Succeeded));
    assert_eq!(phase(&engine, "run_2"), Phase::Ended(RunOutcome::Succeeded));
}

#[test]
fn a_run_that_waits_for_approval_keeps_its_place_and_blocks_nobody() {
    let mut engine = engine();
    engine.config().limits.total = Some(1);
    let mut net = chain(vec![task("a")]);
    net.policy.needs_approval = true;
    engine.trigger(&plan(net), request("run_1")).unwrap();
    engine.trigger(&one_step(), request("run_2")).unwrap();
    assert_eq!(phase(&engine, "run_1"), Phase::Queued);
    assert_eq!(phase(&engine, "run_2"), Phase::Running);
}

#[test]
fn a_cancelled_run_leaves_the_queue_and_frees_its_slot() {
    let mut engine = engine();
    engine.config().limits.total = Some(1);
    for id in ["run_1", "run_2", "run_3"] {
        engine.trigger(&one_step(), request(id)).unwrap();
    }
    engine.submit("run_2", signal("s", "CANCEL")).unwrap();
    assert_eq!(
        phase(&engine, "run_2"),
        Phase::Ended(RunOutcome::Cancelled(Rollback::None))
    );
    engine.submit("run_1", signal("s", "CANCEL")).unwrap();
    assert_eq!(phase(&engine, "run_3"), Phase::Running);
}

#[test]
fn c49_retry_run_starts_a_new_run_that_keeps_the_original() {
    let mut engine = engine();
    let mut net = chain(vec![task("a")]);
    net.workload = json!({ "x": 1, "y": 1 });
    let start = StartRequest {
        params: json!({ "x": 2 }),
        ..request("run_1")
    };
    engine.trigger(&plan(net), start).unwrap();
    let early = engine
        .submit("run_1", signal("early", "RETRY_RUN"))
        .unwrap();
    assert!(matches!(early, Reply::Refused(it) if it.code.name() == "RUN_NOT_TERMINAL"));
    engine.submit("run_1", signal("s", "CANCEL")).unwrap();
    let before = engine.events("run_1", 0).unwrap();
    let retry = |engine: &mut MemoryEngine, run_id: &str, id: &str| match engine
        .submit(run_id, signal(id, "RETRY_RUN"))
        .unwrap()
    {
        Reply::RetryRun { request_key } => run_id_for(&request_key),
        other => panic!("{other:?}"),
    };
    let second = retry(&mut engine, "run_1", "again");
    assert_eq!(
        retry(&mut engine, "run_1", "again"),
        second,
        "the same signal, the same run"
    );
    assert_eq!(engine.events("run_1", 0).unwrap(), before);
    assert_eq!(engine.runs().len(), 2);
    let state = &engine.run(&second).unwrap().state();
    assert_eq!(state.phase(), Phase::Running);
    assert_eq!(state.original_run_id(), Some("run_1"));
    assert_eq!(*state.current_params(), json!({ "x": 2, "y": 1 }));
    assert!(matches!(
        &engine.events(&second, 0).unwrap()[0].body,
        Body::RunCreated { original_run_id: Some(id), .. } if id == "run_1"
    ));
    // The repetition of a repetition still names the first.
    let mut engine = run_to_the_end(engine, 0);
    let third = retry(&mut engine, &second, "and-again");
    let state = &engine.run(&third).unwrap().state();
    assert_eq!(state.original_run_id(), Some("run_1"));
}

struct OnePlan(Arc<Plan>);

impl std::fmt::Debug for OnePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnePlan")
    }
}

impl Catalog for OnePlan {
    fn find(&self, _: &Plan, _: &str) -> Option<Arc<Plan>> {
        Some(self.0.clone())
    }
}

fn parent() -> Net {
    let spec = ChildSpec {
        path: "child".into(),
        return_step: None,
        input: TemplateValue::parse(&json!({})).unwrap(),
    };
    chain(vec![Step::new("sub", Work::Child(spec)), task("after")])
}

/// A parent that waits for its child, whose one step is ready.
fn family() -> (MemoryEngine, String) {
    let mut engine = engine_with(OnePlan(one_step()));
    engine
        .trigger(&plan(parent()), request("run_parent"))
        .unwrap();
    let child = run_id_for("run_parent|sub|1|1");
    assert_eq!(phase(&engine, &child), Phase::Running);
    (engine, child)
}

#[test]
fn pause_and_resume_reach_the_children() {
    let (mut engine, child) = family();
    let paused = |engine: &MemoryEngine| engine.run(&child).unwrap().state().pause().is_some();
    for round in 0..2 {
        engine
            .submit("run_parent", signal(&format!("p{round}"), "PAUSE"))
            .unwrap();
        assert!(paused(&engine));
        engine
            .submit("run_parent", signal(&format!("r{round}"), "RESUME"))
            .unwrap();
        assert!(!paused(&engine));
    }
    let engine = run_to_the_end(engine, 10);
    assert_eq!(
        phase(&engine, "run_parent"),
        Phase::Ended(RunOutcome::Succeeded)
    );
}

#[test]
fn a_cancel_reaches_the_children_and_awaits_them() {
    let (mut engine, child) = family();
    engine.submit("run_parent", signal("c", "CANCEL")).unwrap();
    assert_eq!(
        phase(&engine, &child),
        Phase::Ended(RunOutcome::Cancelled(Rollback::None))
    );
    assert_eq!(
        phase(&engine, "run_parent"),
        Phase::Ended(RunOutcome::Cancelled(Rollback::None))
    );
    let end = |id: &str| engine.run(id).unwrap().state().ended_at();
    assert!(end(&child) <= end("run_parent"));
}

#[test]
fn a_skipped_step_leaves_no_child_behind() {
    let (mut engine, child) = family();
    let skip = Command::Signal {
        signal_id: "s".into(),
        signal: "SKIP_STEP".into(),
        payload: json!({ "stepId": "sub" }),
        reason: None,
        actor: engine_actor(),
    };
    engine.submit("run_parent", skip).unwrap();
    assert_eq!(
        phase(&engine, &child),
        Phase::Ended(RunOutcome::Cancelled(Rollback::None))
    );
    let engine = run_to_the_end(engine, 0);
    assert_eq!(
        phase(&engine, "run_parent"),
        Phase::Ended(RunOutcome::Succeeded)
    );
}
