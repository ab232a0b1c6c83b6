//! Names of steps, runs and executions.

use serde_json::json;
use stepwell_kernel::command::Command;
use stepwell_kernel::keys::{execution_id, idempotency_key};
use stepwell_kernel::plan::{Edge, Join, Plan, Route, StepNo, StepRef};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::State;

use super::{looped, template};
use crate::support::{Sim, code, net, task, tasks};

#[test]
fn a_step_run_is_named_by_visit_and_item() {
    let plan = Plan::new(tasks(&["a", "b c.d"])).unwrap();
    let at = |visit, item| StepRef {
        step: StepNo(1),
        visit,
        item,
    };
    for (at, id) in [
        (at(1, None), "b c.d"),
        (at(2, None), "b c.d#2"),
        (at(1, Some(3)), "b c.d[3]"),
        (at(2, Some(3)), "b c.d#2[3]"),
        (at(1, Some(0)), "b c.d[0]"),
    ] {
        assert_eq!(plan.step_id(at), id);
        assert_eq!(plan.parse_step_id(id), Some(at));
    }
}

#[test]
fn a_step_run_has_one_id_only() {
    let plan = Plan::new(tasks(&["a"])).unwrap();
    for id in [
        "",
        "A",
        "a#1",
        "a#0",
        "a#02",
        "a#+2",
        "a#-2",
        "a[03]",
        "a[+3]",
        "a[]",
        "a[3",
        "a[3]x",
        "a[-1]",
        "a[3]#2",
        "a#2#3",
        "a[1][2]",
        "a# 2",
        "a#4294967296",
    ] {
        assert_eq!(plan.parse_step_id(id), None, "{id}");
    }
}

#[test]
fn names_that_identity_needs_for_itself_are_refused() {
    for name in ["", "a|b", "a#2", "a[0", "a]"] {
        let fault = Plan::new(net(vec![task(name)], &[])).unwrap_err();
        assert_eq!(fault.code, "NAME_INVALID", "{name}");
    }
    for (id, version) in [("p|q", "1"), ("p", "1|2")] {
        let mut plan = tasks(&["a"]);
        plan.plan_id = id.into();
        plan.plan_version = version.into();
        assert_eq!(Plan::new(plan).unwrap_err().code, "NAME_INVALID");
    }
}

#[test]
fn later_visits_and_items_are_named_in_the_log() {
    // `b` goes back to `a` once.
    let mut plan = net(vec![task("a"), looped("b", 2, 2)], &[]);
    for step in &mut plan.steps {
        step.join = Join::Each;
        step.route = Route::Exclusive;
    }
    let mut back = Edge::plain(StepNo(1), StepNo(0));
    back.when = Some(template("{{ not ctx.again }}"));
    back.set_ctx = vec![("again".into(), super::value(&json!(true)))];
    plan.edges = vec![Edge::plain(StepNo(0), StepNo(1)), back];
    plan.policy.entry = stepwell_kernel::plan::EntryPoint::Step(StepNo(0));
    let mut sim = Sim::started(plan);
    sim.run_everything();
    let started: Vec<String> = sim
        .events()
        .iter()
        .filter(|event| event.body.kind() == "StepStarted")
        .filter_map(|event| event.body.step())
        .map(|at| sim.plan.step_id(at))
        .collect();
    assert_eq!(
        started,
        ["a", "b", "b[0]", "b[1]", "a#2", "b#2", "b#2[0]", "b#2[1]"]
    );
    assert!(sim.outcome().is_some());
}

#[test]
fn run_ids_have_the_contracts_form() {
    let create = |id: &str| {
        let mut sim = Sim::new(tasks(&["a"]));
        sim.state = State::new(id, &sim.plan);
        sim.send(Command::CreateRun {
            run_id: id.into(),
            params: json!({}),
            context: sim.context.clone(),
            parent: None,
            original_run_id: None,
            start_after: None,
        })
    };
    create("run_0190a5c0-7b1e-7cc3-98c4-dc0c0c07398f").unwrap();
    create(&format!("run_{}", "x".repeat(200))).unwrap();
    for id in [
        "", "run", "run_", "Run_1", "run_a|b", "run_a b", "run_é", "job_1",
    ] {
        assert_eq!(code(create(id)), Code::InvalidId, "{id}");
    }
    assert_eq!(
        code(create(&format!("run_{}", "x".repeat(201)))),
        Code::InvalidId
    );
}

#[test]
fn an_execution_id_is_a_number_that_fits_into_sql() {
    let first = execution_id("run_0190a5c0-7b1e-7cc3-98c4-dc0c0c07398f");
    assert!(first > 0);
    assert_eq!(
        first,
        execution_id("run_0190a5c0-7b1e-7cc3-98c4-dc0c0c07398f")
    );
    assert_ne!(
        first,
        execution_id("run_0190a5c0-7b1e-7cc3-98c4-dc0c0c073990")
    );
}

#[test]
fn a_bar_in_any_part_of_a_key_is_refused() {
    let key = |run, step, kind, version| idempotency_key(run, Some(step), Some(1), kind, version);
    assert!(key("run_1", "a", "StepStarted", "1").is_some());
    for (run, step, kind, version) in [
        ("run|1", "a", "StepStarted", "1"),
        ("run_1", "a|b", "StepStarted", "1"),
        ("run_1", "a", "Step|Started", "1"),
        ("run_1", "a", "StepStarted", "1|2"),
    ] {
        assert_eq!(key(run, step, kind, version), None);
    }
}

/// What can happen more than once in an attempt has an ordinal; `Sim` refuses a key that repeats.
#[test]
fn what_happens_twice_in_an_attempt_has_two_keys() {
    let mut sim = Sim::started(tasks(&["a"]));
    for round in 0..3 {
        sim.claim("a").unwrap();
        sim.wait_for_event("a", "tick").unwrap();
        sim.deliver(&format!("e{round}"), "tick", json!({}))
            .unwrap();
        sim.patch_ctx(json!({ "n": round })).unwrap();
        sim.pause().unwrap();
        sim.resume().unwrap();
    }
    sim.run("a").unwrap();
    for kind in [
        "StepWaiting",
        "StepWoken",
        "CtxPatched",
        "RunPaused",
        "RunResumed",
    ] {
        assert_eq!(sim.count(kind), 3, "{kind}");
    }
    let ordinals: Vec<u64> = sim
        .events()
        .iter()
        .filter(|event| event.body.kind() == "RunPaused")
        .map(|event| event.key(&sim.plan).logical)
        .collect();
    assert_eq!(ordinals, [1, 2, 3]);
}
