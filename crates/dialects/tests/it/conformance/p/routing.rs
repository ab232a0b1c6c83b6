//! Entry, admission, arcs and the arguments of tokens.

use expect_test::expect;
use serde_json::{Value as Json, json};
use stepwell_kernel::effect::{Effect, RunOutcome};
use stepwell_kernel::event::Rollback;
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::plan::ErrorClass;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::Status;

use super::{GATE, args, claimed, guarded, run_patching, started, starts, words};
use crate::support::{Sim, code};

// also proves: P1, P13
#[test]
fn p3_a_start_puts_one_token_on_the_first_step() {
    let mut sim = started("workflow:\n- step: b\n- step: a\n  next: b\n");
    assert_eq!(sim.ready(), ["b"]);
    assert_eq!(sim.state.tally().active(), 1);
    sim.run("b").unwrap();
    // b has no next: its branch, and with it the run, is over. a was never entered.
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
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
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));

    let mut discarded = guarded(&format!("denied: discard, {GATE}"));
    discarded.run("a").unwrap();
    assert_eq!(discarded.status("b"), Some(Status::Skipped));
    assert_eq!(discarded.outcome(), Some(RunOutcome::Succeeded));
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
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
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
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn p6_a_denied_token_keeps_the_run_open_and_is_named_with_what_it_waits_for() {
    let mut sim = guarded(GATE);
    sim.run("a").unwrap();
    assert_eq!(sim.outcome(), None);
    let stuck = sim.state.stalled().unwrap();
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
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
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
    assert_eq!(failing.outcome(), Some(RunOutcome::Succeeded));

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
    assert_eq!(quiet.outcome(), Some(RunOutcome::Succeeded));
    assert_eq!(starts(&quiet), ["fork", "a", "other"]);

    let mut loud = started(&body("no_next_is_error: true"));
    loud.run("fork").unwrap();
    loud.run("a").unwrap();
    assert_eq!(loud.outcome(), None, "the other branch finishes first");
    loud.run("other").unwrap();
    assert_eq!(loud.outcome(), Some(RunOutcome::Failed(Rollback::None)));
    let error = loud.state.error().cloned().unwrap();
    assert_eq!(error.code, "NO_NEXT_MATCHED");
    assert!(error.message.starts_with("a: "), "{error:?}");
    // A leaf is not a step whose arcs all said no.
    assert_eq!(loud.status("other"), Some(Status::Succeeded));

    let policy = "no_next_is_error: true, policy: {failure: {mode: fail_fast}}";
    let mut fast = started(&body(policy));
    fast.run("fork").unwrap();
    fast.run("a").unwrap();
    assert_eq!(fast.outcome(), Some(RunOutcome::Failed(Rollback::None)));
    assert_eq!(fast.state.error().cloned().unwrap().code, "NO_NEXT_MATCHED");
    assert_eq!(fast.status("other"), Some(Status::Cancelled));
}
