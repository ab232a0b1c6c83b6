//! What playbooks compile to.

use serde_json::json;
use stepwell_kernel::plan::{
    EntryPoint, FinalFailure, Join, LoopMode, MaxInFlight, Net, OnDenied, OnFailure, OnLoopFailure,
    RetryPolicy, Route, StepNo, Unhandled, Work,
};

use super::{codes, loaded, net, step};

const TWO: &str = "workflow:\n- step: a\n  next: b\n- step: b\n";

#[test]
fn p1_the_first_step_is_the_entry() {
    assert_eq!(net(TWO).policy.entry, EntryPoint::Step(StepNo(0)));
}

#[test]
fn p2_a_configured_entry_is_honoured_and_an_unknown_one_refused() {
    let body = "executor: {spec: {entry_step: b}}\nworkflow:\n- step: a\n- step: b\n  next: a\n";
    assert_eq!(net(body).policy.entry, EntryPoint::Step(StepNo(1)));
    let unknown = format!("executor: {{spec: {{entry_step: c}}}}\n{TWO}");
    assert_eq!(codes(&unknown), ["STEP_UNDEFINED"]);
    assert!(loaded(&unknown).plan.is_none());
}

#[test]
fn p7_an_arc_without_a_guard_has_none_and_the_default_mode_is_exclusive() {
    let net = net(TWO);
    assert_eq!(net.edges[0].when, None);
    assert_eq!(step(&net, "a").route, Route::Exclusive);
    let inclusive =
        "workflow:\n- step: a\n  next: {spec: {mode: inclusive}, arcs: [{step: b}]}\n- step: b\n";
    assert_eq!(self::net(inclusive).steps[0].route, Route::Inclusive);
}

#[test]
fn p19_no_step_name_is_reserved() {
    let net = net(
        "workflow:\n- step: end\n  next: start\n- step: start\n  next: previous\n- step: previous\n",
    );
    assert_eq!(net.policy.entry, EntryPoint::Step(StepNo(0)));
    assert_eq!(net.edges.len(), 2);
}

/// A net without what only says where the text came from.
fn unsourced(mut net: Net) -> Net {
    net.source = Default::default();
    net
}

#[test]
fn p27_both_vocabularies_compile_to_the_same_net() {
    let v10 = r#"
workflow:
- step: a
  args: {x: 1}
  set_ctx: {seen: "{{ a.n }}"}
  tool:
  - name: t
    kind: python
    args: {n: 2}
    code: result = n
    spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {p: 1}, set_iter: {q: 2}}}}]}}
  next: {arcs: [{step: b, args: {k: "{{ ctx.seen }}"}}]}
- step: b
"#;
    let later = r#"
workflow:
- step: a
  input: {x: 1}
  set: {ctx.seen: "{{ a.n }}"}
  tool:
  - name: t
    kind: python
    input: {n: 2}
    code: result = n
    spec: {policy: {rules: [{else: {do: continue, set: {ctx.p: 1, iter.q: 2}}}]}}
  next: {arcs: [{step: b, set: {args.k: "{{ ctx.seen }}"}}]}
- step: b
"#;
    assert_eq!(unsourced(net(v10)), unsourced(net(later)));
}

#[test]
fn arcs_carry_arguments_and_patches() {
    let net = net(
        "workflow:\n- step: a\n  next: [{step: b, args: {n: 1}, set: {ctx.x: '{{ a }}'}}]\n- step: b\n",
    );
    let edge = &net.edges[0];
    assert_eq!(edge.args.as_ref().unwrap().to_json(), json!({"n": 1}));
    assert_eq!(edge.set_ctx[0].0, "x");
}

#[test]
fn tokens_are_not_joined_unless_the_step_says_so() {
    let body = "workflow:\n- step: a\n  next: {spec: {mode: inclusive}, arcs: [b, c]}\n- step: b\n  next: d\n- step: c\n  next: d\n- step: d\n  join: all\n";
    let net = net(body);
    assert_eq!(step(&net, "b").join, Join::Each);
    assert_eq!(step(&net, "d").join, Join::All);
    assert_eq!(step(&net, "b").on_failure, OnFailure::Route);
    assert_eq!(
        codes(&body.replace("  join: all\n", "")),
        ["STEP_RUNS_TWICE"]
    );
}

#[test]
fn a_cycle_behind_a_fan_out_is_no_meeting() {
    let body = "workflow:\n- step: a\n  next: {spec: {mode: inclusive}, arcs: [b, c]}\n- step: b\n  next: {arcs: [{step: b, when: '{{ workload.more }}'}]}\n- step: c\n";
    assert_eq!(codes(body), [""; 0]);
}

#[test]
fn a_lost_lease_is_retried_and_nothing_else() {
    let net = net(TWO);
    assert_eq!(net.steps[0].retry, RetryPolicy::once());
    assert_eq!(net.steps[0].max_losses, None, "the default of the kernel");
}

#[test]
fn admission_keeps_the_order_and_the_default_is_to_wait() {
    let rules = "[{when: '{{ ctx.x }}', then: {allow: true}}, {else: {then: {allow: false}}}]";
    let body = format!("workflow:\n- step: a\n  spec: {{policy: {{admit: {{rules: {rules}}}}}}}\n");
    let admit = net(&body).steps[0].admit.clone().unwrap();
    let seen: Vec<_> = admit
        .rules
        .iter()
        .map(|it| (it.when.is_some(), it.allow))
        .collect();
    assert_eq!(seen, [(true, true), (false, false)]);
    assert_eq!(admit.denied, OnDenied::Pending);
    let discard = body.replace("admit: {", "admit: {denied: discard, ");
    assert_eq!(
        net(&discard).steps[0].admit.clone().unwrap().denied,
        OnDenied::Discard
    );
    assert_eq!(net(TWO).steps[0].admit, None);
}

#[test]
fn run_policy_is_read() {
    let net = net(
        "executor: {spec: {final_step: z, no_next_is_error: true, timeout: 1h, policy: {completion: partial, final: partial, stall_timeout: 5m, defaults: {timeout_s: 30}}}}\nworkflow:\n- step: a\n- step: z\n  spec: {timeout: 7}\n",
    );
    let policy = &net.policy;
    assert_eq!(policy.final_step, Some(StepNo(1)));
    assert!(policy.no_next_is_error);
    assert_eq!(policy.unhandled, Unhandled::Partial);
    assert_eq!(policy.final_failure, FinalFailure::Partial);
    assert_eq!(
        (policy.timeout_ms, policy.stall_timeout_ms),
        (Some(3_600_000), 300_000)
    );
    let timeouts: Vec<_> = net.steps.iter().map(|it| it.timeout_ms).collect();
    assert_eq!(timeouts, [Some(30_000), Some(7_000)]);
    let fast = "executor: {spec: {policy: {failure: {mode: fail_fast}}}}\nworkflow: [{step: a}]\n";
    assert_eq!(self::net(fast).policy.unhandled, Unhandled::Stop);
    assert_eq!(self::net(TWO).policy.unhandled, Unhandled::Fail);
}

#[test]
fn loops_have_a_mode_a_limit_and_a_failure_mode() {
    let each = |spec: &str| {
        let body = format!(
            "workflow:\n- step: a\n  loop: {{in: '{{{{ workload.items }}}}', iterator: it, spec: {spec}}}\n"
        );
        net(&body).steps[0].each.clone().unwrap()
    };
    let plain = each("{}");
    assert_eq!(
        (plain.mode, plain.max_in_flight),
        (LoopMode::Sequential, MaxInFlight::Fixed(1))
    );
    assert_eq!(plain.on_failure, OnLoopFailure::Fail);
    let wide = each("{mode: parallel}");
    assert_eq!(
        (wide.mode, wide.max_in_flight),
        (LoopMode::Parallel, MaxInFlight::Fixed(1000))
    );
    let computed = each(
        "{mode: parallel, max_in_flight: '{{ workload.n }}', policy: {failure: {mode: continue}}}",
    );
    assert!(matches!(computed.max_in_flight, MaxInFlight::Computed(_)));
    assert_eq!(computed.on_failure, OnLoopFailure::Continue);
    for bad in ["0", "-1", "1001", "many"] {
        let body = format!(
            "workflow:\n- step: a\n  loop: {{in: [1], spec: {{mode: parallel, max_in_flight: {bad}}}}}\n"
        );
        assert_eq!(codes(&body).len(), 1, "{bad}");
    }
}

#[test]
fn the_worker_gets_the_workbook_the_keychain_and_what_is_required() {
    let net = net(
        "keychain: [{name: k, kind: bearer, ref: vault/x}]\nexecutor: {requires: {tools: [noop]}}\nworkbook: [{name: w, tool: {kind: noop}}]\nworkflow:\n- step: a\n  tool: {kind: workbook, name: w, args: {x: 1}}\n",
    );
    assert_eq!(
        net.library["w"],
        json!({"tasks": [{"name": "task_1", "kind": "noop"}]})
    );
    assert_eq!(net.extra["keychain"][0]["ref"], "vault/x");
    assert_eq!(net.extra["requires"]["tools"][0], "noop");
    let Work::Pipeline { tasks } = &net.steps[0].work else {
        panic!("a pipeline")
    };
    assert_eq!(
        tasks,
        &json!([{"name": "task_1", "kind": "workbook", "task": "w", "args": {"x": 1}}])
    );
}

#[test]
fn a_call_gets_the_input_of_its_step() {
    let net = net(
        "workflow:\n- step: a\n  input: {x: 1, y: 1}\n  tool: {kind: playbook, path: ./b.yaml, return_step: z, args: {y: '{{ workload.y }}'}}\n",
    );
    let Work::Child(child) = &net.steps[0].work else {
        panic!("a child")
    };
    assert_eq!(
        (child.path.as_str(), child.return_step.as_deref()),
        ("./b.yaml", Some("z"))
    );
    assert_eq!(
        child.input.to_json(),
        json!({"x": 1, "y": "{{ workload.y }}"})
    );
}
