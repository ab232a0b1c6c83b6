//! When a run ends and as what: quiescence, failures, the final step, stalls.

use expect_test::expect;
use serde_json::json;
use stepwell_kernel::command::Reply;
use stepwell_kernel::decide::next_wake;
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::{Body, Rollback};
use stepwell_kernel::plan::ErrorClass;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::Status;

use super::{FORK, GATE, args, claimed, ctx, guarded, started, starts, words};
use crate::support::{START, Sim, code};

#[test]
fn p15_a_run_ends_in_the_decision_that_ends_its_last_token_and_not_before() {
    let mut sim = started(FORK);
    sim.run("fork").unwrap();
    sim.run("left").unwrap();
    assert_eq!(sim.outcome(), None, "a runnable token is left");
    sim.claim("right").unwrap();
    assert_eq!(sim.outcome(), None, "a step-run is in flight");
    sim.expire_lease("right").unwrap();
    assert_eq!(sim.outcome(), None, "it will be tried again");
    sim.claim("right").unwrap();
    let before = sim.events().len();
    sim.complete("right").unwrap();
    // The end is in the same decision, at the same time.
    let last = &sim.events()[before..];
    let kinds: Vec<&str> = last.iter().map(|it| it.body.kind()).collect();
    assert_eq!(kinds, ["StepCompleted", "RunCompleted"]);
    assert_eq!(last[0].at, last[1].at);

    let mut denied = guarded(GATE);
    denied.run("a").unwrap();
    assert_eq!(denied.outcome(), None, "a denied token is left");

    let mut fan_in = started(
        r#"
workflow:
- step: fork
  next: {spec: {mode: inclusive}, arcs: [{step: l}, {step: r}]}
- step: l
  next: j
- step: r
  next: {arcs: [{step: j, when: "{{ ctx.both }}"}]}
- step: j
  join: all
"#,
    );
    fan_in.run_everything();
    assert_eq!(fan_in.outcome(), None, "a fan-in is open");
    assert_eq!(words(&fan_in), ("running", Some("stalled")));
}

/// `bad` fails beside `good`, under this policy.
fn failing_beside(policy: &str) -> Sim {
    let mut sim = started(&format!(
        "executor: {{spec: {{policy: {{{policy}}}}}}}\n{}",
        FORK.replace("left", "bad").replace("right", "good")
    ));
    sim.run("fork").unwrap();
    sim.run_failing("bad", ErrorClass::External).unwrap();
    sim
}

#[test]
fn p16_the_final_status_follows_the_documented_policy() {
    let mut success = started(FORK);
    success.run_everything();
    assert_eq!(words(&success), ("success", None));

    for (policy, word) in [
        ("", "failed"),
        ("completion: fail", "failed"),
        ("failure: {mode: continue}", "failed"),
        ("completion: partial", "partial"),
    ] {
        let mut sim = failing_beside(policy);
        assert_eq!(words(&sim), ("running", None), "good finishes first");
        sim.run("good").unwrap();
        assert_eq!(words(&sim), (word, None), "{policy}");
    }
    let fast = failing_beside("failure: {mode: fail_fast}");
    assert_eq!(words(&fast), ("failed", None));
    assert_eq!(fast.status("good"), Some(Status::Cancelled));
}

fn finalized(policy: &str) -> Sim {
    started(&format!(
        "executor: {{spec: {{final_step: last, policy: {{{policy}}}}}}}\n{FORK}- step: last\n"
    ))
}

#[test]
fn p17_the_final_step_runs_once_after_everything_else_with_a_summary() {
    let mut sim = finalized("");
    sim.run("fork").unwrap();
    sim.run("left").unwrap();
    assert_eq!(code(sim.claim("last")), Code::StepNotEligible);
    sim.run_failing("right", ErrorClass::External).unwrap();
    assert_eq!(words(&sim), ("running", Some("final_step")));
    assert_eq!(sim.ready(), ["last"]);
    let claimed = claimed(&mut sim, "last");
    let summary = claimed.args.as_deref().unwrap();
    let id = &summary["execution_id"];
    assert!(id.as_i64().is_some_and(|id| id > 0), "{id}");
    let wanted = json!({
        "execution_id": id,
        "run_id": "run_sim",
        "counts": { "succeeded": 2, "failed": 1, "skipped": 0 },
        "results": ["fork", "left"],
        "failures": [{ "step": "right", "code": "EXTERNAL", "message": "it broke" }],
    });
    assert_eq!(*summary, wanted);
    sim.complete("last").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
    assert_eq!(sim.count("RunFinalizing"), 1);
    assert_eq!(starts(&sim), ["fork", "left", "right", "last"]);
}

#[test]
fn the_final_step_runs_after_a_failure_that_stops_the_run() {
    let mut sim = finalized("failure: {mode: fail_fast}");
    sim.run("fork").unwrap();
    sim.claim("left").unwrap();
    sim.run_failing("right", ErrorClass::External).unwrap();
    assert_eq!(sim.status("last"), None, "left is still at work");
    sim.complete("left").unwrap();
    assert_eq!(words(&sim), ("running", Some("final_step")));
    let claimed = claimed(&mut sim, "last");
    let failures = &claimed.args.as_deref().unwrap()["failures"];
    let wanted = json!([{ "step": "right", "code": "EXTERNAL", "message": "it broke" }]);
    assert_eq!(*failures, wanted);
    sim.complete("last").unwrap();
    assert_eq!(words(&sim), ("failed", None));
    assert!(sim.state.error().unwrap().message.starts_with("right"));
    assert_eq!((sim.count("RunFinalizing"), sim.count("RunFailed")), (1, 1));

    // A cancel ends also the final step.
    let mut cancelled = finalized("failure: {mode: fail_fast}");
    cancelled.run("fork").unwrap();
    cancelled
        .run_failing("right", ErrorClass::External)
        .unwrap();
    cancelled.cancel().unwrap();
    assert_eq!(words(&cancelled), ("cancelled", None));
    assert_eq!(cancelled.count("RunFinalizing"), 1);
}

#[test]
fn the_final_step_does_not_run_after_a_cancel_or_a_timeout() {
    let mut cancelled = finalized("");
    cancelled.run("fork").unwrap();
    cancelled.cancel().unwrap();
    assert_eq!(words(&cancelled), ("cancelled", None));
    assert_eq!(cancelled.status("last"), None);

    let mut late = started(&format!(
        "executor: {{spec: {{final_step: last, timeout: 10s}}}}\n{FORK}- step: last\n"
    ));
    late.run("fork").unwrap();
    late.advance_to_next_timer().unwrap();
    assert_eq!(words(&late), ("failed", None));
    assert_eq!(late.state.error().unwrap().code, "RUN_TIMEOUT");
    assert_eq!(late.status("last"), None);
}

#[test]
fn the_final_step_is_admitted_like_any_other() {
    let body = |denied: &str| {
        format!(
            "executor: {{spec: {{final_step: last}}}}\nworkflow:\n- step: a\n- step: last\n  spec: {{policy: {{admit: {{{denied}{GATE}}}}}}}\n"
        )
    };
    let mut sim = started(&body(""));
    sim.run("a").unwrap();
    assert_eq!(sim.status("last"), Some(Status::Denied));
    assert_eq!(sim.outcome(), None);
    sim.patch_ctx(json!({ "go": true })).unwrap();
    sim.run("last").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));

    let mut dropped = started(&body("denied: discard, "));
    dropped.run("a").unwrap();
    assert_eq!(dropped.outcome(), Some(RunOutcome::Succeeded));
    assert_eq!(starts(&dropped), ["a"]);
}

#[test]
fn p18_a_failing_final_step_fails_the_run_or_makes_it_partial() {
    for (policy, word) in [
        ("", "failed"),
        ("final: fail", "failed"),
        ("final: partial", "partial"),
    ] {
        let mut sim = finalized(policy);
        sim.run("fork").unwrap();
        sim.run("left").unwrap();
        sim.run("right").unwrap();
        sim.run_failing("last", ErrorClass::External).unwrap();
        assert_eq!(words(&sim), (word, None), "{policy}");
    }
    // The failure of another step is not made better by it.
    let mut both = finalized("final: partial");
    both.run("fork").unwrap();
    both.run("left").unwrap();
    both.run_failing("right", ErrorClass::External).unwrap();
    both.run_failing("last", ErrorClass::External).unwrap();
    assert_eq!(words(&both), ("failed", None));
    // And the failure of the final step is not made better by a policy for the other steps.
    for (policy, word) in [
        ("completion: partial", "failed"),
        ("completion: partial, final: partial", "partial"),
    ] {
        let mut both = finalized(policy);
        both.run("fork").unwrap();
        both.run("left").unwrap();
        both.run_failing("right", ErrorClass::External).unwrap();
        both.run_failing("last", ErrorClass::External).unwrap();
        assert_eq!(words(&both), (word, None), "{policy}");
    }
}

#[test]
fn p19_steps_called_start_and_end_are_ordinary() {
    let mut sim = started(
        "workflow:\n- step: end\n  next: start\n- step: start\n  next: final\n- step: final\n",
    );
    sim.run_everything();
    assert_eq!(starts(&sim), ["end", "start", "final"]);
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn p20_a_noop_step_routes_and_patches_ctx() {
    let mut sim = started(
        r#"
workload: {n: 2}
workflow:
- step: choose
  tool: {kind: noop}
  set_ctx: {doubled: "{{ workload.n * 2 }}", again: "{{ ctx.doubled + 1 }}"}
  next:
    arcs:
    - {step: small, when: "{{ ctx.doubled < 4 }}"}
    - {step: large, when: "{{ ctx.again == 5 }}", set_ctx: {size: large}}
- step: small
- step: large
"#,
    );
    sim.run("choose").unwrap();
    assert_eq!(sim.ready(), ["large"]);
    assert_eq!(
        ctx(&sim),
        json!({ "again": 5, "doubled": 4, "size": "large" })
    );
}

#[test]
fn p21_every_visit_of_a_cycle_is_a_step_run_of_its_own() {
    let mut sim = started(
        r#"
workflow:
- step: page
  next: [{step: store, args: {n: "{{ page.n }}"}}]
- step: store
  next: [{step: page, when: "{{ args.n < 3 }}"}]
"#,
    );
    sim.claim("page").unwrap();
    sim.expire_lease("page").unwrap();
    sim.run_with("page", json!({ "n": 1 })).unwrap();
    assert_eq!(sim.claim_on("page").execution, 2);
    sim.run("store").unwrap();
    // The second visit starts from nothing.
    sim.run_with("page#2", json!({ "n": 2 })).unwrap();
    assert_eq!(sim.claim_on("page#2").execution, 1);
    sim.run("store#2").unwrap();
    sim.run_with("page#3", json!({ "n": 3 })).unwrap();
    assert_eq!(args(&sim, "store#3"), json!({ "n": 3 }));
    assert_eq!(args(&sim, "store"), json!({ "n": 1 }));
    sim.run("store#3").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
    expect![[r#"
        RunCreated
        RunApproved
        RunStarted
        StepStarted page
        StepExecutionFailed page
        StepExecutionStarted page
        StepCompleted page
        StepStarted store
        StepCompleted store
        StepStarted page#2
        StepCompleted page#2
        StepStarted store#2
        StepCompleted store#2
        StepStarted page#3
        StepCompleted page#3
        StepStarted store#3
        StepCompleted store#3
        RunCompleted
    "#]]
    .assert_eq(&sim.log());
}

#[test]
fn p22_two_tokens_run_a_step_twice_unless_it_joins() {
    let body = |join: &str| {
        format!(
            r#"
workflow:
- step: fork
  next: {{spec: {{mode: inclusive}}, arcs: [{{step: l}}, {{step: r}}]}}
- step: l
  next: [{{step: z, args: {{from: l, l: 1}}}}]
- step: r
  next: [{{step: z, args: {{from: r, r: 1}}}}]
- step: z
{join}"#
        )
    };
    let mut twice = started(&body(""));
    twice.run("fork").unwrap();
    twice.run("r").unwrap();
    twice.run("l").unwrap();
    assert_eq!(twice.ready(), ["z", "z#2"]);
    assert_eq!(args(&twice, "z")["from"], "r");
    assert_eq!(args(&twice, "z#2")["from"], "l");
    twice.run_everything();
    assert_eq!(starts(&twice), ["fork", "r", "l", "z", "z#2"]);

    let mut once = started(&body("  join: all\n"));
    once.run("fork").unwrap();
    once.run("r").unwrap();
    assert_eq!(code(once.claim("z")), Code::StepNotEligible);
    once.run("l").unwrap();
    assert_eq!(args(&once, "z"), json!({ "from": "l", "l": 1, "r": 1 }));
    once.run_everything();
    assert_eq!(starts(&once), ["fork", "r", "l", "z"]);
    assert_eq!(once.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn p27_both_vocabularies_give_the_same_events() {
    let v10 = r#"
workflow:
- step: a
  args: {x: 1}
  set_ctx: {seen: "{{ outcome.data.n }}"}
  tool: {kind: noop}
  next: {arcs: [{step: b, when: "{{ outcome.status == 'ok' }}", args: {k: "{{ ctx.seen }}"}}]}
- step: b
  args: {y: "{{ args.k }}"}
  tool: {kind: noop}
"#;
    let later = r#"
workflow:
- step: a
  input: {x: 1}
  set: {ctx.seen: "{{ output.data.n }}"}
  tool: {kind: noop}
  next: {arcs: [{step: b, when: "{{ output.status == 'ok' }}", set: {args.k: "{{ ctx.seen }}"}}]}
- step: b
  input: {y: "{{ args.k }}"}
  tool: {kind: noop}
"#;
    let logs: Vec<Vec<Body>> = [v10, later]
        .map(|body| {
            let mut sim = started(body);
            sim.run_with("a", json!({ "n": 4 })).unwrap();
            assert_eq!(args(&sim, "b"), json!({ "k": 4 }));
            sim.run("b").unwrap();
            assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
            // The plans differ, since their guards are written differently.
            let bodies = sim.events().iter().map(|it| it.body.clone());
            bodies.skip(1).collect()
        })
        .into();
    assert_eq!(logs[0], logs[1]);
}

/// `a` fails and its only arc has this guard.
fn failed_through(guard: &str, policy: &str) -> Sim {
    let mut sim = started(&format!(
        r#"
executor: {{spec: {{policy: {{{policy}}}}}}}
workload: {{on: true}}
workflow:
- step: a
  next: {{arcs: [{{step: b{guard}}}]}}
- step: b
"#
    ));
    sim.run_failing("a", ErrorClass::External).unwrap();
    sim
}

#[test]
fn p29_a_failure_is_handled_only_by_a_guard_that_looks_at_it() {
    for guard in ["", r#", when: "{{ workload.on }}""#] {
        for (policy, word) in [("", "failed"), ("completion: partial", "partial")] {
            let mut sim = failed_through(guard, policy);
            assert_eq!(sim.ready(), ["b"], "the arc is taken all the same");
            sim.run("b").unwrap();
            assert_eq!(words(&sim), (word, None), "{guard} {policy}");
        }
        let failed = failed_through(guard, "");
        let error = failed.state.failures()[0].error();
        assert_eq!(error.code, "EXTERNAL");
    }
    for guard in [
        "event.name == 'step.failed'",
        "event.name != 'step.done'",
        "outcome.status == 'error'",
        "output.status == 'error'",
        "error.kind == 'external'",
    ] {
        let mut sim = failed_through(&format!(r#", when: "{{{{ {guard} }}}}""#), "");
        sim.run("b").unwrap();
        assert_eq!(words(&sim), ("success", None), "{guard}");
    }
    let unmatched = failed_through(r#", when: "{{ event.name == 'step.done' }}""#, "");
    assert_eq!(words(&unmatched), ("failed", None));
}

#[test]
fn p30_a_stalled_run_names_what_is_stuck_and_a_patch_revives_it() {
    let body = format!(
        r#"
executor: {{spec: {{policy: {{stall_timeout: 1h}}}}}}
workflow:
- step: fork
  next: {{spec: {{mode: inclusive}}, arcs: [{{step: l}}, {{step: r}}]}}
- step: l
  next: j
- step: r
  spec: {{policy: {{admit: {{{GATE}}}}}}}
  next: j
- step: j
  join: all
"#
    );
    let mut sim = started(&body);
    sim.run("fork").unwrap();
    assert_eq!(sim.state.stalled(), None, "l can still run");
    sim.advance(1_000).run("l").unwrap();
    assert_eq!(words(&sim), ("running", Some("stalled")));
    let stuck = [
        "r is not admitted: its rules read ctx.go",
        "j waits for a token from r",
    ];
    assert_eq!(sim.state.stalled().unwrap(), stuck);
    assert_eq!(next_wake(&sim.state), Some(START.plus(3_601_000)));
    sim.advance(10_000);
    sim.patch_ctx(json!({ "unrelated": 1 })).unwrap();
    assert_eq!(next_wake(&sim.state), Some(START.plus(3_601_000)));
    let mut expired = started(&body);
    expired.run("fork").unwrap();
    expired.run("l").unwrap();
    expired.advance_to_next_timer().unwrap();
    assert_eq!(expired.outcome(), Some(RunOutcome::Failed(Rollback::None)));
    let error = expired.state.error().cloned().unwrap();
    assert_eq!(error.code, "STALL_TIMEOUT");
    assert!(stuck.iter().all(|stuck| error.message.contains(stuck)));

    sim.patch_ctx(json!({ "go": true })).unwrap();
    assert_eq!(words(&sim), ("running", None));
    assert_eq!(sim.next_timer(), None, "the stall is over");
    sim.run("r").unwrap();
    sim.run("j").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn a_stall_lasts_a_day_where_the_file_does_not_say() {
    let mut sim = guarded(GATE);
    sim.run("a").unwrap();
    assert_eq!(next_wake(&sim.state), Some(START.plus(86_400_000)));
}

#[test]
fn a_starved_join_can_be_skipped_by_an_operator() {
    let mut sim = started(
        r#"
workflow:
- step: fork
  next: {spec: {mode: inclusive}, arcs: [{step: l}, {step: r}]}
- step: l
  next: j
- step: r
  next: {arcs: [{step: j, when: "{{ ctx.never }}"}]}
- step: j
  join: all
  next: after
- step: after
"#,
    );
    sim.run("fork").unwrap();
    sim.run("l").unwrap();
    sim.run("r").unwrap();
    assert_eq!(words(&sim), ("running", Some("stalled")));
    sim.signal("SKIP_STEP", json!({ "stepId": "j" })).unwrap();
    assert_eq!(sim.ready(), ["after"]);
    sim.run("after").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

/// The reading: where every token counts, only a token can be skipped. Its branch may never be taken,
/// and then skipping the step ahead would start what comes after it out of nothing.
#[test]
fn a_step_is_skipped_once_its_token_has_come() {
    let mut sim = started("workflow:\n- step: a\n  next: b\n- step: b\n  next: c\n- step: c\n");
    let early = sim.signal("SKIP_STEP", json!({ "stepId": "b" })).unwrap();
    assert!(
        matches!(&early, Reply::Refused(why) if why.code == Code::StepNotEligible),
        "{early:?}"
    );
    sim.run("a").unwrap();
    sim.signal("SKIP_STEP", json!({ "stepId": "b" })).unwrap();
    sim.run("c").unwrap();
    assert_eq!(starts(&sim), ["a", "c"]);
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn a_failure_that_was_routed_on_is_not_retried() {
    let text = "workflow:\n- step: a\n  next: {arcs: [{step: b, when: \"{{ event.name == 'call.error' }}\"}]}\n- step: b\n- step: c\n";
    let mut sim = started(text);
    sim.run_failing("a", ErrorClass::Validation).unwrap();
    assert_eq!(sim.ready(), ["b"]);
    let late = sim.signal("RETRY_STEP", json!({ "stepId": "a" })).unwrap();
    assert!(
        matches!(&late, Reply::Refused(why) if why.code == Code::StepTerminal),
        "{late:?}"
    );
    sim.run("b").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn guards_of_one_step_may_use_either_name_of_a_boundary() {
    let text = r#"
workflow:
- step: a
  next:
    spec: {mode: inclusive}
    arcs:
    - {step: b, when: "{{ event.name == 'call.done' }}"}
    - {step: c, when: "{{ event.name == 'step.done' }}"}
    - {step: d, when: "{{ event.name == 'call.error' }}"}
- step: b
- step: c
- step: d
"#;
    let mut sim = started(text);
    sim.run("a").unwrap();
    assert_eq!(sim.ready(), ["b", "c"]);
}
