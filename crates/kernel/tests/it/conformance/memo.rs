//! A worker that lets its step wait is told how far it came when the step goes on.

use std::sync::Arc;

use expect_test::expect;
use serde_json::{Value as Json, json};
use stepwell_kernel::command::{Claimed, Command, Reply, WaitFor};
use stepwell_kernel::effect::{Effect, RunOutcome};
use stepwell_kernel::event::{CalledRun, Rollback, StepError};
use stepwell_kernel::expr::{Template, TemplateValue};
use stepwell_kernel::plan::{
    ErrorClass, Loop, LoopMode, MaxInFlight, Net, OnLoopFailure, Step, Work,
};
use stepwell_kernel::state::Status;

use crate::support::{RUN_ID, Sim, chain, retried, task};

fn claim(sim: &mut Sim, step: &str) -> Claimed {
    match sim.claim(step).unwrap() {
        Reply::Claimed(claimed) => *claimed,
        other => panic!("{other:?}"),
    }
}

fn wait(sim: &mut Sim, step: &str, wait: WaitFor, timeout_ms: Option<u64>) {
    let claim = sim.claim_on(step);
    let wait = Command::WaitStep {
        claim,
        wait,
        timeout_ms,
        outbound: Vec::new(),
        memo: Some(json!({ "at": 2 })),
    };
    sim.send(wait).unwrap();
}

fn artifact() -> Json {
    json!({ "uri": "artifact:x", "sha256": "00", "sizeBytes": 1 })
}

fn call() -> WaitFor {
    WaitFor::Child {
        call: CalledRun {
            path: "./ship.yaml".into(),
            return_step: Some("label".into()),
        },
        input: json!({ "order": 7 }),
    }
}

#[test]
fn a_step_that_slept_is_told_how_far_it_came() {
    let mut sim = Sim::started(chain(vec![task("a"), task("b")]));
    assert_eq!(claim(&mut sim, "a").memo, None);
    wait(&mut sim, "a", WaitFor::Timer, Some(60_000));
    sim.crash();
    sim.advance_to_next_timer().unwrap();
    let again = claim(&mut sim, "a");
    assert_eq!(again.memo.as_deref(), Some(&json!({ "at": 2 })));
    // The sleep is no second try.
    assert_eq!(sim.step("a").tries(), 1);
    sim.complete("a").unwrap();
    assert_eq!(claim(&mut sim, "b").memo, None);
}

#[test]
fn a_run_that_a_worker_asked_for_is_started_once_and_its_end_goes_to_the_worker() {
    let mut sim = Sim::started(chain(vec![retried("a", 3)]));
    claim(&mut sim, "a");
    sim.take_effects();
    wait(&mut sim, "a", call(), None);
    let key = sim.step("a").child().unwrap().to_owned();
    let starts = |effects: Vec<Effect>| {
        let started = |it: &Effect| matches!(it, Effect::StartChild { request_key, .. } if *request_key == key);
        effects.iter().filter(|it| started(it)).count()
    };
    assert_eq!(starts(sim.take_effects()), 1);
    sim.child_ended("a", RunOutcome::Succeeded, json!("sent"))
        .unwrap();
    let told = claim(&mut sim, "a");
    assert_eq!(told.memo.as_deref(), Some(&json!({ "at": 2 })));
    let ended = json!({ "status": "succeeded", "output": "sent", "error": null });
    assert_eq!(told.payload.as_deref(), Some(&ended));
    // The worker crashes: the next worker gets the same, and no second child is requested.
    sim.expire_lease("a").unwrap();
    let next = claim(&mut sim, "a");
    assert_eq!(next.payload.as_deref(), Some(&ended));
    assert_eq!(next.memo, told.memo);
    assert_eq!(starts(sim.take_effects()), 0);
    sim.complete("a").unwrap();
    expect![[r#"
        RunCreated
        RunApproved
        RunStarted
        StepStarted a
        StepWaiting a
        StepWoken a
        StepExecutionStarted a
        StepExecutionFailed a
        StepExecutionStarted a
        StepCompleted a
        RunCompleted
    "#]]
    .assert_eq(&sim.log());
}

#[test]
fn a_failed_run_is_told_too_and_the_worker_says_what_follows() {
    let mut sim = Sim::started(chain(vec![task("a")]));
    claim(&mut sim, "a");
    wait(&mut sim, "a", call(), None);
    sim.child_ended("a", RunOutcome::Failed(Rollback::None), Json::Null)
        .unwrap();
    assert_eq!(sim.status("a"), Some(Status::Ready));
    let told = claim(&mut sim, "a");
    assert_eq!(told.payload.as_deref().unwrap()["status"], "failed");
}

#[test]
fn a_try_that_failed_leaves_no_memo() {
    let mut sim = Sim::started(chain(vec![retried("a", 3)]));
    claim(&mut sim, "a");
    wait(&mut sim, "a", WaitFor::Timer, Some(1_000));
    sim.advance_to_next_timer().unwrap();
    claim(&mut sim, "a");
    sim.fail("a", ErrorClass::Transient).unwrap();
    sim.advance(600_000);
    assert_eq!(claim(&mut sim, "a").memo, None);
}

#[test]
fn a_run_that_stops_cancels_what_its_worker_asked_for() {
    let mut sim = Sim::started(chain(vec![task("a")]));
    claim(&mut sim, "a");
    wait(&mut sim, "a", call(), None);
    sim.take_effects();
    sim.cancel().unwrap();
    let effects = sim.take_effects();
    assert!(
        effects
            .iter()
            .any(|it| matches!(it, Effect::CancelChild { .. }))
    );
}

/// A step whose work reads these.
fn reads(name: &str, text: &str) -> Step {
    let tasks = json!([{ "name": "t", "kind": "noop", "args": { "x": text } }]);
    Step::new(name, Work::Pipeline { tasks })
}

fn three(text: &str) -> Net {
    chain(vec![task("a"), task("b"), reads("c", text)])
}

#[test]
fn a_claim_carries_what_its_work_reads_and_nothing_else() {
    let mut sim = Sim::started(three("{{ a.id }} {{ ctx.wanted }} {{ nobody }}"));
    sim.patch_ctx(json!({ "wanted": 1, "unwanted": 2 }))
        .unwrap();
    sim.run_with("a", json!({ "id": 7 })).unwrap();
    sim.run_with("b", json!("large")).unwrap();
    let claimed = claim(&mut sim, "c");
    assert_eq!(*claimed.ctx, json!({ "wanted": 1 }));
    let outputs: Vec<_> = claimed
        .outputs
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_ref()))
        .collect();
    assert_eq!(outputs, [("a", &json!({ "id": 7 }))]);
}

#[test]
fn a_claim_carries_all_of_ctx_where_all_of_it_is_read() {
    let mut sim = Sim::started(three("{{ ctx }}"));
    sim.patch_ctx(json!({ "one": 1, "two": 2 })).unwrap();
    sim.run("a").unwrap();
    sim.run("b").unwrap();
    assert_eq!(*claim(&mut sim, "c").ctx, json!({ "one": 1, "two": 2 }));
}

#[test]
fn what_failed_work_wants_known_is_known_when_its_failure_is_final() {
    let fail = |sim: &mut Sim| {
        let claim = sim.claim_on("a");
        let failed = Command::FailStep {
            claim,
            error: StepError::new(ErrorClass::Transient, "X", "x"),
            retryable: None,
            delay_ms: None,
            ctx: [("why".to_owned(), json!("x"))].into(),
        };
        sim.send(failed).unwrap();
    };
    let mut sim = Sim::started(chain(vec![retried("a", 2)]));
    sim.claim("a").unwrap();
    fail(&mut sim);
    assert!(
        sim.state.ctx().is_empty(),
        "an attempt that is retried changes nothing"
    );
    sim.advance(600_000);
    sim.claim("a").unwrap();
    fail(&mut sim);
    assert_eq!(*sim.state.ctx()["why"], json!("x"));
    let log = sim.log();
    assert!(log.contains("CtxPatched\nStepFailed a"), "{log}");
}

#[test]
fn a_step_whose_name_no_expression_can_say_is_meant_by_underscores() {
    let mut sim = Sim::started(chain(vec![
        task("charge-card"),
        reads("c", "{{ charge_card.id }}"),
    ]));
    sim.run_with("charge-card", json!({ "id": 7 })).unwrap();
    let claimed = claim(&mut sim, "c");
    assert_eq!(claimed.outputs[0].0, "charge-card");
    let taken = chain(vec![task("a-b"), task("a_b"), reads("c", "{{ a_b }}")]);
    let mut sim = Sim::started(taken);
    sim.run("a-b").unwrap();
    sim.run("a_b").unwrap();
    assert_eq!(
        claim(&mut sim, "c").outputs[0].0,
        "a_b",
        "who is called so is meant first"
    );
}

#[test]
fn a_loop_over_a_list_that_is_kept_elsewhere_counts_by_its_reference() {
    let mut each = task("each");
    each.each = Some(Loop {
        items: TemplateValue::parse(&json!("{{ a.rows }}")).unwrap(),
        iterator: "row".into(),
        mode: LoopMode::Parallel,
        max_in_flight: MaxInFlight::Fixed(2),
        on_failure: OnLoopFailure::Fail,
    });
    let mut sim = Sim::started(chain(vec![task("a"), each]));
    let rows = json!({ "_ref": artifact(), "_at": "/rows", "_count": 3 });
    sim.run_with(
        "a",
        json!({ "_ref": artifact(), "_keys": [], "rows": rows }),
    )
    .unwrap();
    sim.crash();
    let item = claim(&mut sim, "each[0]").item.unwrap();
    assert_eq!(item["_at"], "/rows/0");
    sim.complete("each[0]").unwrap();
    sim.run("each[1]").unwrap();
    sim.run("each[2]").unwrap();
    assert!(matches!(sim.outcome(), Some(RunOutcome::Succeeded)));
}

#[test]
fn what_is_kept_elsewhere_is_never_taken_for_absent() {
    let stub = json!({ "_ref": artifact(), "_keys": ["rows"], "n": 1,
        "list": { "_ref": artifact(), "_at": "/list", "_count": 7 } });
    let scope = |name: &str| (name == "a").then(|| Arc::new(stub.clone()));
    let value = |text: &str| Template::parse(text).unwrap().evaluate(&scope);
    assert_eq!(value("{{ a.n }}").unwrap(), json!(1));
    assert_eq!(value("{{ a.nothing }}").unwrap(), Json::Null);
    assert_eq!(value("{{ a.list | length }}").unwrap(), json!(7));
    for hidden in [
        "{{ a.rows }}",
        "{{ a.rows.x }}",
        "{{ a.rows | default(1) }}",
        "{{ a.list[0] }}",
        "{% for x in a.list %}{{ x }}{% endfor %}",
    ] {
        let error = value(hidden).unwrap_err().to_string();
        assert!(error.contains("artifact"), "{hidden}: {error}");
    }
}

#[test]
fn templates_of_the_workload_are_evaluated_once_and_those_of_a_request_never() {
    let mut net = chain(vec![task("a")]);
    net.policy.renders_workload = true;
    net.workload = json!({
        "base": "http://here",
        "url": "{{ workload.base }}/x",
        "id": "{{ execution_id }}",
        "from": "{{ env.HOME | default('nowhere') }}",
        "broken": "{{ 1 + missing }}",
        "asked": "x",
    });
    let mut sim = Sim::new(net);
    sim.send(Command::CreateRun {
        run_id: RUN_ID.into(),
        params: json!({ "asked": "{{ workload.base }}", "base": "http://there" }),
        context: Default::default(),
        parent: None,
        original_run_id: None,
        start_after: None,
    })
    .unwrap();
    let params = sim.state.current_params();
    assert_eq!(params["url"], "http://there/x");
    assert!(params["id"].is_i64());
    assert_eq!(params["from"], "nowhere");
    assert_eq!(params["broken"], "{{ 1 + missing }}");
    assert_eq!(params["asked"], "{{ workload.base }}");
}
