//! P: playbooks, run. Loops have a file of their own.

use expect_test::expect;
use serde_json::{Value as Json, json};
use stepwell_dialects::playbook::words::{run_substatus, run_word};
use stepwell_kernel::command::{Claimed, Command, Reply};
use stepwell_kernel::decide::next_wake;
use stepwell_kernel::effect::{Effect, Outcome};
use stepwell_kernel::event::{Body, Rollback};
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::plan::ErrorClass;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::{Phase, Status};
use stepwell_kernel::time::Time;

use crate::support::{START, Sim, code};

/// A playbook with this below its header.
pub(super) fn text(body: &str) -> String {
    format!("apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: t}}\n{body}")
}

#[track_caller]
pub(super) fn defined(body: &str) -> Sim {
    super::defined(&text(body))
}

#[track_caller]
pub(super) fn started(body: &str) -> Sim {
    super::started(&text(body))
}

/// Claims a step and says what its worker gets.
#[track_caller]
pub(super) fn claimed(sim: &mut Sim, step: &str) -> Claimed {
    match sim.claim(step).unwrap() {
        Reply::Claimed(claimed) => *claimed,
        other => panic!("{other:?}"),
    }
}

/// What a step's token carries.
fn args(sim: &Sim, step: &str) -> Json {
    let visit = sim.state.visit(sim.at(step)).expect("a token came");
    visit.args.as_deref().cloned().unwrap_or_default()
}

/// Claims a step and completes it with these patches of ctx.
#[track_caller]
fn run_patching(sim: &mut Sim, step: &str, ctx: Json) {
    sim.claim(step).unwrap();
    let claim = sim.claim_on(step);
    sim.complete_all(claim, Json::Null, ctx, Vec::new())
        .unwrap();
}

fn ctx(sim: &Sim) -> Json {
    let entries = sim.state.ctx.iter();
    entries
        .map(|(key, value)| (key.clone(), Json::clone(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Steps by name in the order they started.
fn starts(sim: &Sim) -> Vec<String> {
    let step = |body: &Body| match body {
        Body::StepStarted { step, .. } => Some(sim.plan.step_id(*step)),
        _ => None,
    };
    sim.events()
        .iter()
        .filter_map(|it| step(&it.body))
        .collect()
}

fn words(sim: &Sim) -> (&'static str, Option<&'static str>) {
    (run_word(&sim.state), run_substatus(&sim.state))
}

const FORK: &str = r#"
workflow:
- step: fork
  next: {spec: {mode: inclusive}, arcs: [{step: left}, {step: right}]}
- step: left
- step: right
"#;

// also proves: P1, P13
#[test]
fn p3_a_start_puts_one_token_on_the_first_step() {
    let mut sim = started("workflow:\n- step: b\n- step: a\n  next: b\n");
    assert_eq!(sim.ready(), ["b"]);
    assert_eq!(sim.state.tally.active(), 1);
    sim.run("b").unwrap();
    // b has no next: its branch, and with it the run, is over. a was never entered.
    assert_eq!(sim.outcome(), Some(Outcome::Succeeded));
    assert_eq!(starts(&sim), ["b"]);
    expect![[r#"
        RunCreated
        RunApproved
        RunStarted
        StepStarted b
        StepCompleted b
        RunCompleted
    "#]]
    .assert_eq(&sim.log());
}

#[test]
fn p2_the_entry_step_gets_the_only_token() {
    let sim = started(
        "executor: {spec: {entry_step: b}}\nworkflow:\n- step: a\n  next: b\n- step: b\n  next: a\n",
    );
    assert_eq!(sim.ready(), ["b"]);
}

/// A gate that `rules` guard, behind an open step.
fn guarded(rules: &str) -> Sim {
    started(&format!(
        "workflow:\n- step: a\n  next: b\n- step: b\n  spec: {{policy: {{admit: {{{rules}}}}}}}\n"
    ))
}

#[test]
fn p4_the_first_admission_rule_that_matches_decides() {
    let admitted = |rules: &str| {
        let mut sim = guarded(rules);
        run_patching(&mut sim, "a", json!({ "go": true, "n": 3 }));
        sim.status("b") == Some(Status::Ready)
    };
    let mut open = started("workflow:\n- step: a\n  next: b\n- step: b\n");
    open.run("a").unwrap();
    assert_eq!(open.status("b"), Some(Status::Ready), "no admit allows");
    let yes = r#"{when: "{{ ctx.go }}", then: {allow: true}}"#;
    let no = r#"{when: "{{ ctx.n == 3 }}", then: {allow: false}}"#;
    let never = r#"{when: "{{ ctx.n == 4 }}", then: {allow: true}}"#;
    let deny = "{else: {then: {allow: false}}}";
    let allow = "{else: {then: {allow: true}}}";
    assert!(admitted(&format!("rules: [{yes}, {no}]")));
    assert!(!admitted(&format!("rules: [{no}, {yes}]")));
    assert!(admitted(&format!("rules: [{yes}, {deny}]")));
    assert!(!admitted(&format!("rules: [{never}, {deny}]")));
    assert!(admitted(&format!("rules: [{never}, {allow}]")));
    assert!(admitted(&format!("rules: [{never}]")), "none matches");
}

const GATE: &str =
    r#"rules: [{when: "{{ ctx.go }}", then: {allow: true}}, {else: {then: {allow: false}}}]"#;

#[test]
fn p5_a_denied_token_waits_for_ctx_and_never_reaches_a_worker() {
    let mut sim = guarded(GATE);
    sim.take_effects();
    sim.run("a").unwrap();
    assert_eq!(sim.status("b"), Some(Status::Denied));
    assert_eq!(code(sim.claim("b")), Code::StepNotEligible);
    assert!(sim.ready().is_empty());
    let offered = |effects: &[Effect]| {
        let dispatch = |it: &Effect| matches!(it, Effect::Dispatch { .. });
        effects.iter().any(dispatch)
    };
    assert!(!offered(&sim.take_effects()));
    // A change of ctx that does not help is looked at and changes nothing.
    sim.patch_ctx(json!({ "other": 1 })).unwrap();
    assert_eq!(sim.status("b"), Some(Status::Denied));
    assert!(!offered(&sim.take_effects()));
    sim.patch_ctx(json!({ "go": true })).unwrap();
    assert_eq!(sim.status("b"), Some(Status::Ready));
    assert!(offered(&sim.take_effects()));
    // Allowed once is allowed.
    sim.patch_ctx(json!({ "go": false })).unwrap();
    sim.run("b").unwrap();
    assert_eq!(sim.outcome(), Some(Outcome::Succeeded));

    let mut discarded = guarded(&format!("denied: discard, {GATE}"));
    discarded.run("a").unwrap();
    assert_eq!(discarded.status("b"), Some(Status::Skipped));
    assert_eq!(discarded.outcome(), Some(Outcome::Succeeded));
    assert_eq!(starts(&discarded), ["a"]);
}

#[test]
fn the_entry_is_admitted_like_any_other_step() {
    let mut sim = started(&format!(
        "workload: {{go: false}}\nworkflow:\n- step: a\n  spec: {{policy: {{admit: {{{GATE}}}}}}}\n"
    ));
    assert_eq!(sim.status("a"), Some(Status::Denied));
    assert_eq!(words(&sim), ("running", Some("stalled")));
    sim.patch_ctx(json!({ "go": 1 })).unwrap();
    sim.run("a").unwrap();
    assert_eq!(sim.outcome(), Some(Outcome::Succeeded));
}

#[test]
fn a_joining_step_is_admitted_like_any_other() {
    let mut sim = started(
        r#"
workflow:
- step: fork
  next: {spec: {mode: inclusive}, arcs: [{step: l}, {step: r}]}
- step: l
  next: [{step: j, args: {l: 1}}]
- step: r
  next: [{step: j, args: {r: 2}}]
- step: j
  join: all
  spec: {policy: {admit: {rules: [{when: "{{ ctx.go and args.l + args.r == 3 }}", then: {allow: true}}, {else: {then: {allow: false}}}]}}}
"#,
    );
    sim.run("fork").unwrap();
    sim.run("l").unwrap();
    assert_eq!(sim.status("j"), None);
    sim.run("r").unwrap();
    assert_eq!(sim.status("j"), Some(Status::Denied));
    sim.patch_ctx(json!({ "go": true })).unwrap();
    assert_eq!(sim.ready(), ["j"]);
    assert_eq!(args(&sim, "j"), json!({ "l": 1, "r": 2 }));
    sim.run("j").unwrap();
    assert_eq!(sim.outcome(), Some(Outcome::Succeeded));
}

#[test]
fn p6_a_denied_token_keeps_the_run_open_and_is_named_with_what_it_waits_for() {
    let mut sim = guarded(GATE);
    sim.run("a").unwrap();
    assert_eq!(sim.outcome(), None);
    let stuck = sim.state.stalled.clone().unwrap();
    assert_eq!(stuck, ["b is not admitted: its rules read ctx.go"]);
    let b = sim.at("b");
    let sources = wake_sources(&sim.plan, &sim.state);
    assert!(sources.contains(&WakeSource::Ctx { step: b }));
}

#[test]
fn p7_an_arc_without_a_guard_is_taken_and_the_default_mode_takes_one() {
    let mut sim = started(
        "workflow:\n- step: a\n  next: {arcs: [{step: b}, {step: c}]}\n- step: b\n- step: c\n",
    );
    sim.run("a").unwrap();
    assert_eq!(sim.ready(), ["b"]);
    sim.run("b").unwrap();
    assert_eq!(sim.outcome(), Some(Outcome::Succeeded));
    assert_eq!(starts(&sim), ["a", "b"]);
}

/// `a`, whose arcs to `x`, `y` and `z` ask for `ctx.x`, `ctx.y` and nothing.
fn routed(mode: &str, ctx: Json) -> Sim {
    let mut sim = started(&format!(
        r#"
workflow:
- step: a
  next:
    spec: {{mode: {mode}}}
    arcs:
    - {{step: x, when: "{{{{ ctx.x }}}}"}}
    - {{step: y, when: "{{{{ ctx.y }}}}"}}
    - {{step: z}}
- step: x
- step: y
- step: z
"#
    ));
    run_patching(&mut sim, "a", ctx);
    sim
}

#[test]
fn p8_exclusive_takes_the_first_arc_that_matches() {
    let both = json!({ "x": true, "y": true });
    assert_eq!(routed("exclusive", both).ready(), ["x"]);
    assert_eq!(routed("exclusive", json!({ "y": 1 })).ready(), ["y"]);
    assert_eq!(routed("exclusive", json!({})).ready(), ["z"]);
}

#[test]
fn p9_inclusive_takes_every_arc_that_matches() {
    let both = json!({ "x": true, "y": true });
    assert_eq!(routed("inclusive", both).ready(), ["x", "y", "z"]);
    assert_eq!(routed("inclusive", json!({ "y": 1 })).ready(), ["y", "z"]);
    assert_eq!(routed("inclusive", json!({})).ready(), ["z"]);
}

#[test]
fn p10_arc_args_are_bound_to_the_token_and_keep_their_types() {
    let mut sim = started(
        r#"
workload: {limit: 5}
workflow:
- step: a
  next:
    arcs:
    - step: b
      args:
        int: "{{ workload.limit }}"
        sum: "{{ workload.limit + 0.5 }}"
        list: "{{ a.rows }}"
        none: "{{ a.missing }}"
        flag: "{{ workload.limit > 3 }}"
        text: "page {{ ctx.page }}"
        plain: 7
- step: b
"#,
    );
    sim.claim("a").unwrap();
    let claim = sim.claim_on("a");
    let (rows, page) = (json!({ "rows": [1, { "x": null }] }), json!({ "page": 1 }));
    sim.complete_all(claim, rows, page, Vec::new()).unwrap();
    let bound = json!({
        "int": 5, "sum": 5.5, "list": [1, { "x": null }], "none": null, "flag": true,
        "text": "page 1", "plain": 7,
    });
    // What was bound stays as it was: for later changes of ctx and params, for every execution.
    sim.patch_ctx(json!({ "page": 2 })).unwrap();
    sim.signal("UPDATE_PARAMS", json!({ "params": { "limit": 9 } }))
        .unwrap();
    for _ in 1..=2 {
        let claimed = claimed(&mut sim, "b");
        assert_eq!(claimed.args.as_deref(), Some(&bound));
        sim.expire_lease("b").unwrap();
    }
    sim.crash();
    assert_eq!(args(&sim, "b"), bound);
}

const BOUNDARIES: &str = r#"
workload: {items: [1, 2]}
workflow:
- step: a
  next:
    arcs:
    - {step: done, when: "{{ event.name == 'step.done' }}", args: {by: "{{ event.name }}"}}
    - {step: failed, when: "{{ event.name == 'step.failed' }}", args: {by: "{{ event.name }}", code: "{{ error.code }}", status: "{{ outcome.status }}"}}
- step: done
  loop: {in: "{{ workload.items }}"}
  next:
    arcs:
    - {step: looped, when: "{{ event.name == 'loop.done' }}", args: {by: "{{ event.name }}"}}
- step: failed
- step: looped
"#;

#[test]
fn p12_arcs_are_evaluated_after_success_failure_and_loops_with_the_event_that_it_was() {
    let mut sim = started(BOUNDARIES);
    sim.run("a").unwrap();
    assert_eq!(args(&sim, "done"), json!({ "by": "step.done" }));
    sim.run("done[0]").unwrap();
    sim.run("done[1]").unwrap();
    assert_eq!(args(&sim, "looped"), json!({ "by": "loop.done" }));
    sim.run_everything();
    assert_eq!(starts(&sim), ["a", "done", "done[0]", "done[1]", "looped"]);

    let mut failing = started(BOUNDARIES);
    failing.run_failing("a", ErrorClass::External).unwrap();
    assert_eq!(failing.ready(), ["failed"]);
    assert_eq!(
        args(&failing, "failed"),
        json!({ "by": "step.failed", "code": "EXTERNAL", "status": "error" })
    );
    failing.run_everything();
    assert_eq!(failing.outcome(), Some(Outcome::Succeeded));

    let older = BOUNDARIES
        .replace("step.done", "call.done")
        .replace("step.failed", "call.error");
    let mut old = started(&older);
    old.run_failing("a", ErrorClass::External).unwrap();
    assert_eq!(args(&old, "failed")["by"], "call.error");
}

#[test]
fn p14_no_matching_arc_ends_the_branch_or_fails_the_run() {
    let body = |spec: &str| {
        format!(
            "executor: {{spec: {{{spec}}}}}\n{}",
            r#"
workflow:
- step: fork
  next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: other}]}
- step: a
  next: {arcs: [{step: b, when: "{{ ctx.never }}"}]}
- step: b
- step: other
"#
        )
    };
    let mut quiet = started(&body(""));
    quiet.run_everything();
    assert_eq!(quiet.outcome(), Some(Outcome::Succeeded));
    assert_eq!(starts(&quiet), ["fork", "a", "other"]);

    let mut loud = started(&body("no_next_is_error: true"));
    loud.run("fork").unwrap();
    loud.run("a").unwrap();
    assert_eq!(loud.outcome(), None, "the other branch finishes first");
    loud.run("other").unwrap();
    assert_eq!(loud.outcome(), Some(Outcome::Failed(Rollback::None)));
    let error = loud.state.error.clone().unwrap();
    assert_eq!(error.code, "NO_NEXT_MATCHED");
    assert!(error.message.starts_with("a: "), "{error:?}");
    // A leaf is not a step whose arcs all said no.
    assert_eq!(loud.status("other"), Some(Status::Succeeded));

    let policy = "no_next_is_error: true, policy: {failure: {mode: fail_fast}}";
    let mut fast = started(&body(policy));
    fast.run("fork").unwrap();
    fast.run("a").unwrap();
    assert_eq!(fast.outcome(), Some(Outcome::Failed(Rollback::None)));
    assert_eq!(fast.state.error.clone().unwrap().code, "NO_NEXT_MATCHED");
    assert_eq!(fast.status("other"), Some(Status::Cancelled));
}

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
    assert_eq!(sim.outcome(), Some(Outcome::Failed(Rollback::None)));
    assert_eq!(sim.count("RunFinalizing"), 1);
    assert_eq!(starts(&sim), ["fork", "left", "right", "last"]);
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
    assert_eq!(late.state.error.as_ref().unwrap().code, "RUN_TIMEOUT");
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
    assert_eq!(sim.outcome(), Some(Outcome::Succeeded));

    let mut dropped = started(&body("denied: discard, "));
    dropped.run("a").unwrap();
    assert_eq!(dropped.outcome(), Some(Outcome::Succeeded));
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
}

#[test]
fn p19_steps_called_start_and_end_are_ordinary() {
    let mut sim = started(
        "workflow:\n- step: end\n  next: start\n- step: start\n  next: final\n- step: final\n",
    );
    sim.run_everything();
    assert_eq!(starts(&sim), ["end", "start", "final"]);
    assert_eq!(sim.outcome(), Some(Outcome::Succeeded));
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
    assert_eq!(sim.outcome(), Some(Outcome::Succeeded));
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
    assert_eq!(once.outcome(), Some(Outcome::Succeeded));
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
            assert_eq!(sim.outcome(), Some(Outcome::Succeeded));
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
        let error = &failed.state.failures[0].error;
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
    assert_eq!(sim.state.stalled, None, "l can still run");
    sim.advance(1_000).run("l").unwrap();
    assert_eq!(words(&sim), ("running", Some("stalled")));
    let stuck = [
        "r is not admitted: its rules read ctx.go",
        "j waits for a token from r",
    ];
    assert_eq!(sim.state.stalled.clone().unwrap(), stuck);
    assert_eq!(next_wake(&sim.state), Some(START.plus(3_601_000)));
    sim.advance(10_000);
    sim.patch_ctx(json!({ "unrelated": 1 })).unwrap();
    assert_eq!(next_wake(&sim.state), Some(START.plus(3_601_000)));
    let mut expired = started(&body);
    expired.run("fork").unwrap();
    expired.run("l").unwrap();
    expired.advance_to_next_timer().unwrap();
    assert_eq!(expired.outcome(), Some(Outcome::Failed(Rollback::None)));
    let error = expired.state.error.clone().unwrap();
    assert_eq!(error.code, "STALL_TIMEOUT");
    assert!(stuck.iter().all(|stuck| error.message.contains(stuck)));

    sim.patch_ctx(json!({ "go": true })).unwrap();
    assert_eq!(words(&sim), ("running", None));
    assert_eq!(sim.next_timer(), None, "the stall is over");
    sim.run("r").unwrap();
    sim.run("j").unwrap();
    assert_eq!(sim.outcome(), Some(Outcome::Succeeded));
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
    assert_eq!(sim.outcome(), Some(Outcome::Succeeded));
}

#[test]
fn a_step_that_no_token_has_reached_cannot_be_skipped_in_a_playbook() {
    let mut sim = started("workflow:\n- step: a\n  next: b\n- step: b\n  next: c\n- step: c\n");
    let Reply::Refused(refused) = sim.signal("SKIP_STEP", json!({ "stepId": "b" })).unwrap() else {
        panic!("a skip must not make a token out of nothing");
    };
    assert_eq!(refused.code, Code::StepNotEligible);
    assert_eq!(sim.ready(), ["a"]);
    sim.run("a").unwrap();
    sim.signal("SKIP_STEP", json!({ "stepId": "b" })).unwrap();
    assert_eq!(sim.ready(), ["c"]);
    sim.run("c").unwrap();
    assert_eq!(starts(&sim), ["a", "c"]);
}

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
    assert!(matches!(again, Ok(Reply::Already(_))), "{again:?}");
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
    assert_eq!(sim.outcome(), Some(Outcome::Succeeded));
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

/// What the kernel has to say about a worker that dies in the middle of a pipeline.
#[test]
fn a_dead_worker_loses_its_lease_and_the_step_run_starts_again_five_times_in_all() {
    let mut sim = started("workflow:\n- step: a\n  tool: [{kind: noop}, {kind: noop}]\n");
    let mut keys = Vec::new();
    for execution in 1..=5 {
        let claimed = claimed(&mut sim, "a");
        assert_eq!(claimed.claim.execution, execution);
        keys.push(claimed.idempotency_key);
        sim.expire_lease("a").unwrap();
    }
    keys.dedup();
    assert_eq!(keys.len(), 1);
    assert_eq!(sim.outcome(), Some(Outcome::Failed(Rollback::None)));
    assert_eq!(
        sim.state.error.as_ref().unwrap().class,
        ErrorClass::LeaseLost
    );
    // What a worker reports as failed is its own task policy's last word.
    let mut told = started("workflow:\n- step: a\n  tool: {kind: noop}\n");
    told.claim("a").unwrap();
    let claim = told.claim_on("a");
    told.send(Command::FailStep {
        claim,
        error: stepwell_kernel::event::StepError::new(ErrorClass::Transient, "E", "no"),
        retryable: Some(true),
        delay_ms: None,
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

/// A step that calls another playbook.
pub(super) const PARENT: &str = r#"
workflow:
- step: call
  args: {base: 1}
  tool: {kind: playbook, path: child, args: {n: "{{ workload.n }}"}}
  set_ctx: {got: "{{ call.answer }}"}
  next:
    arcs:
    - {step: bad, when: "{{ event.name == 'step.failed' }}", args: {code: "{{ error.code }}"}}
    - {step: after, args: {got: "{{ ctx.got }}"}}
- step: after
- step: bad
"#;

#[test]
fn a_child_is_asked_for_under_one_key_an_attempt_without_a_lease() {
    let mut sim = defined(&format!("workload: {{n: 3}}{PARENT}"));
    sim.start().unwrap();
    let started = |sim: &mut Sim| {
        let child = |effect: Effect| match effect {
            Effect::StartChild {
                request_key, input, ..
            } => Some((request_key, Json::clone(&input))),
            _ => None,
        };
        sim.take_effects()
            .into_iter()
            .filter_map(child)
            .collect::<Vec<_>>()
    };
    let input = json!({ "base": 1, "n": 3 });
    assert_eq!(
        started(&mut sim),
        [("run_sim|call|1|1".to_owned(), input.clone())]
    );
    assert!(sim.ready().is_empty() && sim.step("call").lease.is_none());
    // A crash loses the effect; the key is in the log.
    sim.crash();
    let call = sim.at("call");
    let request_key = "run_sim|call|1|1".to_owned();
    assert_eq!(
        wake_sources(&sim.plan, &sim.state),
        [WakeSource::Child {
            step: call,
            request_key
        }]
    );
    sim.child_ended("call", Outcome::Succeeded, json!({ "answer": 42 }))
        .unwrap();
    assert_eq!(args(&sim, "after"), json!({ "got": 42 }));
    // Told twice, it counts once; another attempt's end is not this one's.
    let again = |key: &str| Command::ChildEnded {
        step: call,
        request_key: key.into(),
        outcome: Outcome::Failed(Rollback::None),
        output: json!(null),
        error: None,
    };
    let told = sim.send(again("run_sim|call|1|1"));
    assert!(matches!(told, Ok(Reply::Already(_))), "{told:?}");
    assert_eq!(
        code(sim.send(again("run_other|call|1|1"))),
        Code::StepNotWaiting
    );
}

#[test]
fn a_child_that_fails_or_is_cancelled_fails_its_step() {
    for (outcome, wanted) in [
        (Outcome::Failed(Rollback::None), "CHILD_FAILED"),
        (Outcome::Cancelled(Rollback::None), "CHILD_CANCELLED"),
    ] {
        let mut sim = started(PARENT);
        sim.child_ended("call", outcome, json!(null)).unwrap();
        assert_eq!(args(&sim, "bad"), json!({ "code": wanted }));
    }
}

#[test]
fn a_cancelled_parent_cancels_its_child_and_waits_for_its_end() {
    let mut sim = started(PARENT);
    sim.take_effects();
    sim.cancel().unwrap();
    let cancel = Effect::CancelChild {
        step: sim.at("call"),
        request_key: "run_sim|call|1|1".into(),
    };
    assert!(sim.take_effects().contains(&cancel));
    assert_eq!(sim.phase(), Phase::Stopping);
    sim.child_ended("call", Outcome::Cancelled(Rollback::None), json!(null))
        .unwrap();
    assert_eq!(words(&sim), ("cancelled", None));
}

#[test]
fn a_child_that_nobody_waits_for_any_more_is_cancelled() {
    let cancel = |sim: &Sim| Effect::CancelChild {
        step: sim.at("call"),
        request_key: "run_sim|call|1|1".into(),
    };
    let mut skipped = started(PARENT);
    skipped.take_effects();
    skipped
        .signal("SKIP_STEP", json!({ "stepId": "call" }))
        .unwrap();
    assert!(skipped.take_effects().contains(&cancel(&skipped)));
    assert_eq!(skipped.ready(), ["after"]);

    let mut late = started(&PARENT.replace("args: {base: 1}", "spec: {timeout: 60}"));
    late.take_effects();
    assert_eq!(next_wake(&late.state), Some(START.plus(60_000)));
    late.advance_to_next_timer().unwrap();
    assert!(late.take_effects().contains(&cancel(&late)));
    assert_eq!(args(&late, "bad"), json!({ "code": "TIMEOUT" }));
}

#[test]
fn a_pause_reaches_the_children_and_what_they_come_to_waits_for_the_resume() {
    let mut sim = started(PARENT);
    sim.take_effects();
    sim.pause().unwrap();
    assert!(sim.take_effects().contains(&Effect::PauseChildren));
    sim.child_ended("call", Outcome::Succeeded, json!({ "answer": 1 }))
        .unwrap();
    assert_eq!(sim.status("after"), None);
    sim.resume().unwrap();
    assert!(sim.take_effects().contains(&Effect::ResumeChildren));
    assert_eq!(sim.ready(), ["after"]);
}

#[test]
fn a_retried_call_asks_for_another_child() {
    let mut sim = started(
        r#"
workflow:
- step: fork
  next: {spec: {mode: inclusive}, arcs: [{step: call}, {step: other}]}
- step: call
  tool: {kind: playbook, path: child}
- step: other
"#,
    );
    sim.run("fork").unwrap();
    sim.child_ended("call", Outcome::Failed(Rollback::None), json!(null))
        .unwrap();
    sim.take_effects();
    sim.signal("RETRY_STEP", json!({ "stepId": "call" }))
        .unwrap();
    let keys: Vec<String> = sim
        .take_effects()
        .into_iter()
        .filter_map(|it| match it {
            Effect::StartChild { request_key, .. } => Some(request_key),
            _ => None,
        })
        .collect();
    assert_eq!(keys, ["run_sim|call|2|2"]);
    sim.child_ended("call", Outcome::Succeeded, json!(null))
        .unwrap();
    sim.run("other").unwrap();
    assert_eq!(words(&sim), ("success", None));
}

#[test]
fn waits_end_by_their_event_their_time_or_their_timeout() {
    let body = r#"
workflow:
- step: nap
  tool: {kind: sleep, duration: 5}
  next: hear
- step: hear
  tool: {kind: wait, event: paid, timeout: 60}
  next:
    arcs:
    - {step: late, when: "{{ error.kind == 'timeout' }}"}
    - {step: paid, args: {sum: "{{ hear.sum }}"}}
- step: paid
- step: late
"#;
    let mut sim = started(body);
    let due = |sim: &Sim| sim.next_timer().map(|(due, _)| due);
    assert_eq!(due(&sim), Some(START.plus(5_000)));
    sim.advance_to_next_timer().unwrap();
    assert_eq!(words(&sim), ("running", Some("waiting")));
    assert_eq!(due(&sim), Some(Time(START.0 + 65_000)));
    let mut late = started(body);
    late.advance_to_next_timer().unwrap();
    late.advance_to_next_timer().unwrap();
    assert_eq!(late.ready(), ["late"]);
    sim.deliver("e1", "paid", json!({ "sum": 9 })).unwrap();
    assert_eq!(args(&sim, "paid"), json!({ "sum": 9 }));
}
