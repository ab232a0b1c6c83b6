//! Patches of ctx, guards that break, and what the kernel says about workers.

use expect_test::expect;
use serde_json::{Value as Json, json};
use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::{Body, Rollback};
use stepwell_kernel::plan::ErrorClass;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::Status;

use super::{FORK, GATE, args, claimed, ctx, run_patching, started, words};
use crate::support::{START, Sim, code};

#[test]
fn p31_patches_apply_in_the_order_of_the_log_and_never_from_a_lost_execution() {
    let mut sim = started(FORK);
    sim.run("fork").unwrap();
    sim.claim("left").unwrap();
    sim.claim("right").unwrap();
    let patch = |sim: &mut Sim, step: &str, ctx: Json| {
        let claim = sim.claim_on(step);
        sim.complete_all(claim, Json::Null, ctx, Vec::new())
    };
    // right ends first, so left has the last word on what both say.
    patch(&mut sim, "right", json!({ "last": "right", "r": 1 })).unwrap();
    let lost = sim.claim_on("left");
    sim.expire_lease("left").unwrap();
    sim.claim("left").unwrap();
    let late = sim.complete_all(lost, Json::Null, json!({ "lost": true }), Vec::new());
    assert_eq!(code(late), Code::StaleExecution);
    assert_eq!(ctx(&sim), json!({ "last": "right", "r": 1 }));
    patch(&mut sim, "left", json!({ "last": "left" })).unwrap();
    assert_eq!(ctx(&sim), json!({ "last": "left", "r": 1 }));
    // A result that is repeated patches nothing: it gets the first answer back.
    let again = patch(&mut sim, "left", json!({ "again": 1 }));
    assert!(matches!(again, Ok(Reply::Duplicate(_))), "{again:?}");
    assert_eq!(ctx(&sim), json!({ "last": "left", "r": 1 }));
}

#[test]
fn patches_are_seen_by_the_arcs_and_gates_of_the_same_boundary() {
    let mut sim = started(&format!(
        r#"
workflow:
- step: a
  next: {{arcs: [{{step: b, when: "{{{{ ctx.n == 2 }}}}", set_ctx: {{go: true}}}}]}}
- step: b
  spec: {{policy: {{admit: {{{GATE}}}}}}}
"#
    ));
    run_patching(&mut sim, "a", json!({ "n": 2 }));
    assert_eq!(sim.ready(), ["b"]);
}

#[test]
fn denied_tokens_are_looked_at_oldest_first_when_any_step_changes_ctx() {
    let gate = format!("  spec: {{policy: {{admit: {{{GATE}}}}}}}\n");
    let mut sim = started(&format!(
        r#"
workflow:
- step: fork
  next: {{spec: {{mode: inclusive}}, arcs: [{{step: z}}, {{step: y}}, {{step: x}}]}}
- step: x
- step: y
{gate}- step: z
{gate}"#
    ));
    sim.run("fork").unwrap();
    assert_eq!(sim.ready(), ["x"]);
    run_patching(&mut sim, "x", json!({ "go": 1 }));
    let (z, y) = (sim.at("z"), sim.at("y"));
    let tokens = vec![z, y];
    assert_eq!(sim.last(), Some(&Body::TokensAdmitted { tokens }));
    assert_eq!(sim.count("TokensAdmitted"), 1);
}

#[test]
fn while_paused_patches_are_recorded_and_arcs_and_gates_wait_for_the_resume() {
    let mut sim = started(&format!(
        r#"
workflow:
- step: fork
  next: {{spec: {{mode: inclusive}}, arcs: [{{step: a}}, {{step: g}}]}}
- step: a
  next: {{arcs: [{{step: yes, when: "{{{{ ctx.go }}}}"}}, {{step: no}}]}}
- step: g
  spec: {{policy: {{admit: {{{GATE}}}}}}}
- step: yes
- step: no
"#
    ));
    sim.run("fork").unwrap();
    sim.claim("a").unwrap();
    sim.pause().unwrap();
    assert_eq!(words(&sim), ("paused", Some("draining")));
    sim.complete("a").unwrap();
    assert_eq!(words(&sim), ("paused", None));
    sim.patch_ctx(json!({ "go": true })).unwrap();
    assert_eq!(ctx(&sim), json!({ "go": true }));
    assert_eq!(sim.status("g"), Some(Status::Denied));
    assert_eq!(sim.status("yes"), None);
    let before = sim.events().last().unwrap().seq;
    sim.resume().unwrap();
    expect![[r#"
        SignalAccepted
        RunResumed
        StepRouted a
        TokensAdmitted
    "#]]
    .assert_eq(&sim.log_from(before + 1));
    assert_eq!(sim.ready(), ["g", "yes"]);
}

#[test]
fn a_guard_that_cannot_be_evaluated_fails_the_step_and_is_recorded() {
    let mut sim = started(
        r#"
workflow:
- step: a
  next:
    arcs:
    - {step: caught, when: "{{ event.name == 'step.failed' }}", args: {code: "{{ error.code }}"}}
    - {step: b, when: "{{ a.n / 0 > 1 }}"}
- step: b
- step: caught
"#,
    );
    sim.run_with("a", json!({ "n": 1 })).unwrap();
    assert_eq!(sim.status("a"), Some(Status::Failed));
    assert_eq!(args(&sim, "caught"), json!({ "code": "EXPRESSION_FAILED" }));
    sim.run("caught").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn a_step_may_stop_the_run_or_count_as_skipped_by_its_own_policy() {
    let body = |mode: &str| {
        format!(
            "workflow:\n- step: fork\n  next: {{spec: {{mode: inclusive}}, arcs: [{{step: a}}, {{step: b}}]}}\n- step: a\n  spec: {{policy: {{failure: {{mode: {mode}}}}}}}\n  next: after\n- step: b\n- step: after\n"
        )
    };
    let mut fast = started(&body("fail_fast"));
    fast.run("fork").unwrap();
    fast.run_failing("a", ErrorClass::External).unwrap();
    assert_eq!(words(&fast), ("failed", None));
    assert_eq!(fast.status("b"), Some(Status::Cancelled));

    let mut calm = started(&body("continue"));
    calm.run("fork").unwrap();
    calm.run_failing("a", ErrorClass::External).unwrap();
    assert_eq!(calm.status("a"), Some(Status::Skipped));
    assert_eq!(calm.ready(), ["b", "after"]);
    calm.run_everything();
    assert_eq!(words(&calm), ("success", None));
}

/// The kernel side of a worker that crashes in the middle of a pipeline.
#[test]
fn p26_a_dead_worker_loses_its_lease_and_the_step_run_starts_again_until_it_was_lost_too_often() {
    let mut sim = started("workflow:\n- step: a\n  tool: [{kind: noop}, {kind: noop}]\n");
    let mut keys = Vec::new();
    for execution in 1..=10 {
        let claimed = claimed(&mut sim, "a");
        assert_eq!(claimed.claim.execution, execution);
        keys.push(claimed.idempotency_key);
        sim.expire_lease("a").unwrap();
    }
    keys.dedup();
    assert_eq!(keys.len(), 1);
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
    let error = sim.state.error().unwrap();
    let named = (error.class, error.code.as_str());
    assert_eq!(named, (ErrorClass::LeaseLost, "LOST_TOO_OFTEN"));
    // What a worker reports as failed is its own task policy's last word.
    let mut told = started("workflow:\n- step: a\n  tool: {kind: noop}\n");
    told.claim("a").unwrap();
    let claim = told.claim_on("a");
    told.send(Command::FailStep {
        claim,
        error: stepwell_kernel::event::StepError::new(ErrorClass::Transient, "E", "no"),
        retryable: Some(true),
        delay_ms: None,
        ctx: Default::default(),
    })
    .unwrap();
    assert_eq!(words(&told), ("failed", None));
}

#[test]
fn a_step_timeout_ends_in_its_failure_arcs() {
    let mut sim = started(
        r#"
workflow:
- step: a
  spec: {timeout: 3}
  next: {arcs: [{step: late, when: "{{ error.kind == 'timeout' }}"}]}
- step: late
"#,
    );
    sim.claim("a").unwrap();
    assert_eq!(
        sim.next_timer().map(|(due, _)| due),
        Some(START.plus(3_000))
    );
    sim.advance_to_next_timer().unwrap();
    assert_eq!(sim.ready(), ["late"]);
}
