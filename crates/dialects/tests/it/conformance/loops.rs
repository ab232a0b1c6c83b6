//! P23 and what the design says of loops in playbooks.

use expect_test::expect;
use serde_json::{Value as Json, json};
use stepwell_dialects::playbook::words::run_word;
use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::effect::{Effect, RunOutcome};
use stepwell_kernel::event::Rollback;
use stepwell_kernel::plan::ErrorClass;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::Status;

use super::p::{claimed, started};
use crate::support::{Sim, code};

/// A loop over `workload.items` with this `spec`, and arcs for how it can end.
fn body(items: &str, spec: &str) -> String {
    format!(
        r#"
workload: {{items: {items}, limit: 2}}
workflow:
- step: each
  loop: {{in: "{{{{ workload.items }}}}", iterator: it, spec: {{{spec}}}}}
  next:
    arcs:
    - step: failed
      when: "{{{{ event.name == 'step.failed' }}}}"
      args: {{why: "{{{{ error.message }}}}", out: "{{{{ each }}}}"}}
    - step: done
      when: "{{{{ event.name == 'loop.done' }}}}"
      args: {{out: "{{{{ each }}}}"}}
- step: done
- step: failed
"#
    )
}

fn looping(items: &str, spec: &str) -> Sim {
    started(&body(items, spec))
}

/// What the arc after the loop was given.
#[track_caller]
fn out(sim: &Sim, step: &str) -> Json {
    let visit = sim.state.visit(sim.at(step)).expect("the loop is over");
    visit.args().map(|it| Json::clone(it)).unwrap_or_default()
}

#[test]
fn p23_a_sequential_loop_runs_one_item_after_the_other_and_is_done_once() {
    let mut sim = looping("[a, b, c]", "mode: sequential");
    for item in 0..3 {
        let id = format!("each[{item}]");
        assert_eq!(sim.ready(), [id.as_str()]);
        let claimed = claimed(&mut sim, &id);
        assert_eq!(claimed.item, Some(json!(["a", "b", "c"][item])));
        assert!(sim.ready().is_empty(), "one at a time");
        sim.complete_with(&id, json!(item)).unwrap();
    }
    assert_eq!(
        out(&sim, "done")["out"],
        json!({ "count": 3, "failed": 0, "errors": [], "data": [0, 1, 2] })
    );
    assert_eq!(sim.ready(), ["done"]);
    sim.run("done").unwrap();
    expect![[r#"
        RunCreated
        RunApproved
        RunStarted
        StepStarted each
        StepStarted each[0]
        StepCompleted each[0]
        StepStarted each[1]
        StepCompleted each[1]
        StepStarted each[2]
        StepCompleted each[2]
        StepCompleted each
        StepStarted done
        StepCompleted done
        RunCompleted
    "#]]
    .assert_eq(&sim.log());
}

// also proves: P23
#[test]
fn a_parallel_loop_keeps_results_in_item_order_and_never_exceeds_its_limit() {
    for spec in [
        "mode: parallel, max_in_flight: 2",
        r#"mode: parallel, max_in_flight: "{{ workload.limit }}""#,
        r#"mode: parallel, max_in_flight: "{{ workload.items | length - 3 }}""#,
    ] {
        let mut sim = looping("[a, b, c, d, e]", spec);
        assert_eq!(sim.ready(), ["each[0]", "each[1]"]);
        sim.claim("each[0]").unwrap();
        sim.claim("each[1]").unwrap();
        assert_eq!(code(sim.claim("each[2]")), Code::StepNotEligible);
        // An item that ends early makes room for the next one.
        sim.complete_with("each[1]", json!("B")).unwrap();
        assert_eq!(sim.ready(), ["each[2]"]);
        sim.run_with("each[2]", json!("C")).unwrap();
        // An item whose worker died still has its place.
        sim.expire_lease("each[0]").unwrap();
        assert_eq!(sim.ready(), ["each[0]", "each[3]"]);
        sim.run_with("each[3]", json!("D")).unwrap();
        sim.run_with("each[4]", json!("E")).unwrap();
        assert_eq!(sim.status("done"), None, "item 0 is open");
        sim.run_with("each[0]", json!("A")).unwrap();
        assert_eq!(
            out(&sim, "done")["out"]["data"],
            json!(["A", "B", "C", "D", "E"])
        );
        sim.run_everything();
        assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
    }
}

// also proves: P23
#[test]
fn a_loop_over_nothing_is_done_at_once_and_once() {
    for spec in ["mode: sequential", "mode: parallel, max_in_flight: 3"] {
        let mut sim = looping("[]", spec);
        assert_eq!(out(&sim, "done")["out"]["count"], 0);
        assert_eq!(sim.ready(), ["done"]);
        sim.run("done").unwrap();
        expect![[r#"
            RunCreated
            RunApproved
            RunStarted
            StepStarted each
            StepCompleted each
            StepStarted done
            StepCompleted done
            RunCompleted
        "#]]
        .assert_eq(&sim.log());
    }
}

// also proves: P23
#[test]
fn a_loop_in_a_cycle_is_done_once_for_every_entry() {
    let mut sim = started(
        r#"
workflow:
- step: page
  next: [{step: each, args: {rows: "{{ page.rows }}"}}]
- step: each
  loop: {in: "{{ args.rows }}", iterator: row, spec: {mode: parallel}}
  next: {arcs: [{step: page, when: "{{ each.count > 0 }}"}]}
"#,
    );
    sim.run_with("page", json!({ "rows": [1, 2] })).unwrap();
    assert_eq!(sim.ready(), ["each[0]", "each[1]"]);
    sim.run("each[1]").unwrap();
    sim.run("each[0]").unwrap();
    sim.run_with("page#2", json!({ "rows": [7] })).unwrap();
    assert_eq!(sim.ready(), ["each#2[0]"]);
    let claimed = claimed(&mut sim, "each#2[0]");
    assert_eq!((claimed.item, claimed.claim.execution), (Some(json!(7)), 1));
    sim.complete("each#2[0]").unwrap();
    sim.run_with("page#3", json!({ "rows": [] })).unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
    let done = |id: &str| {
        sim.log()
            .lines()
            .filter(|it| *it == format!("StepCompleted {id}"))
            .count()
    };
    assert_eq!([done("each"), done("each#2"), done("each#3")], [1, 1, 1]);
}

#[test]
fn a_tokens_arguments_are_not_taken_for_a_parameter_of_the_same_name() {
    let mut sim = started(
        r#"
workload: {input: {rows: [wrong]}, args: {rows: [wrong, wrong]}}
workflow:
- step: a
  next: [{step: by_args, args: {rows: [1, 2, 3]}}]
- step: by_args
  loop: {in: "{{ args.rows }}"}
  next: [{step: by_input, args: {rows: [4]}}]
- step: by_input
  loop: {in: "{{ input.rows }}"}
"#,
    );
    sim.run("a").unwrap();
    for (id, item) in [
        ("by_args[0]", 1),
        ("by_args[1]", 2),
        ("by_args[2]", 3),
        ("by_input[0]", 4),
    ] {
        assert_eq!(claimed(&mut sim, id).item, Some(json!(item)));
        sim.complete(id).unwrap();
    }
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn after_a_failed_item_none_is_started_the_rest_drain_and_the_step_fails_once() {
    let mut sim = looping("[a, b, c, d]", "mode: parallel, max_in_flight: 3");
    sim.claim("each[0]").unwrap();
    sim.claim("each[1]").unwrap();
    sim.run_failing("each[2]", ErrorClass::External).unwrap();
    assert_eq!(sim.status("each"), Some(Status::Looping));
    assert_eq!(code(sim.claim("each[3]")), Code::StepNotEligible);
    sim.complete_with("each[0]", json!("A")).unwrap();
    assert!(sim.ready().is_empty(), "no item is started any more");
    sim.fail("each[1]", ErrorClass::Agent).unwrap();
    // One boundary event, with the first error in item order.
    assert_eq!(out(&sim, "failed")["why"], "item 1 failed: it broke");
    sim.run("failed").unwrap();
    assert_eq!(run_word(&sim.state), "success");
    expect![[r#"
        RunCreated
        RunApproved
        RunStarted
        StepStarted each
        StepStarted each[0]
        StepStarted each[1]
        StepStarted each[2]
        StepFailed each[2]
        StepCompleted each[0]
        StepFailed each[1]
        StepFailed each
        StepRouted each
        StepStarted failed
        StepCompleted failed
        RunCompleted
    "#]]
    .assert_eq(&sim.log());
}

#[test]
fn an_item_that_was_ready_when_another_failed_is_not_started() {
    let mut sim = looping("[a, b]", "mode: parallel");
    sim.run_failing("each[0]", ErrorClass::External).unwrap();
    assert_eq!(code(sim.claim("each[1]")), Code::StepNotEligible);
    assert_eq!(sim.ready(), ["failed"]);
}

#[test]
fn in_continue_mode_the_loop_is_done_with_its_errors() {
    let mut sim = looping(
        "[a, b, c]",
        "mode: sequential, policy: {failure: {mode: continue}}",
    );
    sim.run_with("each[0]", json!("A")).unwrap();
    sim.run_failing("each[1]", ErrorClass::External).unwrap();
    sim.run_with("each[2]", json!("C")).unwrap();
    let error = json!({ "kind": "external", "code": "EXTERNAL", "message": "it broke" });
    assert_eq!(
        out(&sim, "done")["out"],
        json!({
            "count": 3,
            "failed": 1,
            "errors": [{ "index": 1, "error": error }],
            "data": ["A", null, "C"],
        })
    );
    sim.run("done").unwrap();
    assert_eq!(run_word(&sim.state), "success");
    assert_eq!(sim.count("StepRouted"), 0);
}

#[test]
fn a_single_number_or_mapping_is_a_list_of_one() {
    for (given, item) in [("7", json!(7)), ("{id: 1}", json!({"id": 1}))] {
        let mut sim = looping(given, "mode: sequential");
        assert_eq!(claimed(&mut sim, "each[0]").item, Some(item));
        sim.complete_with("each[0]", json!("done")).unwrap();
        assert_eq!(out(&sim, "done")["out"]["count"], json!(1), "{given}");
    }
}

#[test]
fn a_list_or_a_limit_that_cannot_be_used_fails_the_step() {
    let why = |sim: &Sim| sim.step("each").error().unwrap().code.clone();
    let text = looping("some text", "mode: sequential");
    assert_eq!(why(&text), "LOOP_NOT_A_LIST");
    assert_eq!(text.ready(), ["failed"]);
    for limit in ["0", "-1", "'many'", "none"] {
        let spec = format!(r#"mode: parallel, max_in_flight: "{{{{ {limit} }}}}""#);
        let sim = looping("[a]", &spec);
        assert_eq!(why(&sim), "LOOP_BAD_LIMIT", "{limit}");
        assert_eq!(sim.ready(), ["failed"]);
    }
}

/// A loop whose first item was lost once and whose second has failed, beside a step that keeps the
/// run open.
fn failed_beside() -> Sim {
    let mut sim = started(
        r#"
workload: {items: [a, b]}
workflow:
- step: fork
  next: {spec: {mode: inclusive}, arcs: [{step: each}, {step: other}]}
- step: each
  loop: {in: "{{ workload.items }}", spec: {mode: parallel}}
  next: {arcs: [{step: done, when: "{{ event.name == 'loop.done' }}", args: {out: "{{ each }}"}}]}
- step: other
- step: done
"#,
    );
    sim.run("fork").unwrap();
    sim.claim("each[0]").unwrap();
    sim.claim("each[1]").unwrap();
    sim.expire_lease("each[0]").unwrap();
    sim.claim("each[0]").unwrap();
    assert_eq!(
        code(sim.fail("each[1]", ErrorClass::External)),
        Code::LeaseLost
    );
    sim.expire_lease("each[1]").unwrap();
    sim.run_failing("each[1]", ErrorClass::External).unwrap();
    sim
}

#[test]
fn a_retried_loop_runs_all_items_again_and_late_results_change_nothing() {
    let mut sim = failed_beside();
    let late = sim.claim_on("each[0]");
    assert_eq!(late.execution, 2);
    sim.fail("each[0]", ErrorClass::External).unwrap();
    assert_eq!(sim.status("each"), Some(Status::Failed));
    sim.signal("RETRY_STEP", json!({ "stepId": "each" }))
        .unwrap();
    assert_eq!(sim.ready(), ["each[0]", "each[1]", "other"]);
    // The fence: no execution of the new attempt has a number of the old one.
    let claimed = claimed(&mut sim, "each[0]");
    assert_eq!((claimed.logical, claimed.claim.execution), (2, 3));
    let result = Command::CompleteStep {
        claim: late,
        output: json!("late"),
        ctx: Default::default(),
        artifacts: Vec::new(),
    };
    assert_eq!(code(sim.send(result)), Code::StaleExecution);
    sim.complete_with("each[0]", json!("A")).unwrap();
    sim.run_with("each[1]", json!("B")).unwrap();
    assert_eq!(out(&sim, "done")["out"]["data"], json!(["A", "B"]));
    sim.run_everything();
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Succeeded),
        "the retry answers the failure"
    );
}

#[test]
fn an_item_that_has_ended_is_neither_retried_nor_skipped() {
    let mut sim = looping("[a, b]", "mode: sequential");
    sim.run("each[0]").unwrap();
    for signal in ["RETRY_STEP", "SKIP_STEP"] {
        let reply = sim.signal(signal, json!({ "stepId": "each[0]" })).unwrap();
        let Reply::Refused(refused) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(refused.code, Code::StepTerminal);
    }
    let Reply::Refused(refused) = sim
        .signal("SKIP_STEP", json!({ "stepId": "each[9]" }))
        .unwrap()
    else {
        panic!("there is no item 9");
    };
    assert_eq!(refused.code, Code::StepUnknown);
    let Reply::Refused(refused) = sim
        .signal("RETRY_STEP", json!({ "stepId": "each" }))
        .unwrap()
    else {
        panic!("the loop has not failed");
    };
    assert_eq!(refused.code, Code::StepNotTerminal);
}

#[test]
fn a_skipped_item_leaves_the_loop_and_the_others_go_on() {
    let mut sim = looping("[a, b, c]", "mode: sequential");
    sim.signal("SKIP_STEP", json!({ "stepId": "each[0]" }))
        .unwrap();
    assert_eq!(sim.ready(), ["each[1]"]);
    sim.claim("each[1]").unwrap();
    sim.signal("SKIP_STEP", json!({ "stepId": "each[1]" }))
        .unwrap();
    assert_eq!(code(sim.complete("each[1]")), Code::StepNotRunning);
    sim.run_with("each[2]", json!("C")).unwrap();
    assert_eq!(
        out(&sim, "done")["out"],
        json!({ "count": 3, "failed": 0, "errors": [], "data": [null, null, "C"] })
    );
    sim.run("done").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

#[test]
fn a_skipped_loop_ends_its_items_and_its_branch_goes_on() {
    let mut sim = looping("[a, b, c]", "mode: parallel, max_in_flight: 2");
    sim.run_with("each[0]", json!("A")).unwrap();
    sim.claim("each[1]").unwrap();
    sim.take_effects();
    sim.signal("SKIP_STEP", json!({ "stepId": "each" }))
        .unwrap();
    assert_eq!(sim.status("each"), Some(Status::Skipped));
    let stopped = |it: &Effect| matches!(it, Effect::CancelWork { .. });
    assert_eq!(
        sim.take_effects().iter().filter(|it| stopped(it)).count(),
        1
    );
    assert_eq!(code(sim.complete("each[1]")), Code::StepNotRunning);
    assert_eq!(sim.ready(), ["done"]);
    sim.run("done").unwrap();
    expect![[r#"
        RunCreated
        RunApproved
        RunStarted
        StepStarted each
        StepStarted each[0]
        StepCompleted each[0]
        StepStarted each[1]
        SignalAccepted
        StepFailed each
        StepFailed each[1]
        StepSkipped each[2]
        StepSkipped each
        StepRouted each
        StepStarted done
        StepCompleted done
        RunCompleted
    "#]]
    .assert_eq(&sim.log());
}

#[test]
fn a_paused_loop_opens_nothing_and_ends_with_the_resume() {
    let mut sim = looping("[a, b]", "mode: sequential");
    sim.claim("each[0]").unwrap();
    sim.pause().unwrap();
    sim.complete("each[0]").unwrap();
    assert_eq!(code(sim.claim("each[1]")), Code::RunPaused);
    sim.resume().unwrap();
    sim.claim("each[1]").unwrap();
    sim.pause().unwrap();
    sim.complete("each[1]").unwrap();
    assert_eq!(sim.status("each"), Some(Status::Looping));
    sim.resume().unwrap();
    assert_eq!(sim.ready(), ["done"]);
}

#[test]
fn a_cancelled_run_ends_its_loops() {
    let mut sim = looping("[a, b, c]", "mode: parallel, max_in_flight: 2");
    sim.claim("each[0]").unwrap();
    sim.cancel().unwrap();
    assert_eq!(sim.outcome(), None, "item 0 is in flight");
    sim.confirm_kill("each[0]").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Cancelled(Rollback::None)));
    assert_eq!(sim.status("each"), Some(Status::Cancelled));
}

#[test]
fn patches_of_items_apply_in_the_order_they_end_and_the_loops_own_at_its_end() {
    let mut sim = started(
        r#"
workload: {items: [a, b]}
workflow:
- step: each
  loop: {in: "{{ workload.items }}", spec: {mode: parallel}}
  set_ctx: {total: "{{ each.count }}"}
"#,
    );
    for (id, who) in [("each[1]", "b"), ("each[0]", "a")] {
        sim.claim(id).unwrap();
        let claim = sim.claim_on(id);
        let patch = json!({ "last": who, who: 1 });
        assert!(!sim.state.ctx().contains_key("total"));
        sim.complete_all(claim, Json::Null, patch, Vec::new())
            .unwrap();
    }
    let value = |key: &str| sim.state.ctx()[key].as_ref().clone();
    assert_eq!(
        [value("last"), value("a"), value("b"), value("total")],
        [json!("a"), json!(1), json!(1), json!(2)]
    );
}

#[test]
fn a_loop_of_calls_gives_every_child_its_item() {
    let mut sim = started(
        r#"
workload: {orders: [{id: 7}, {id: 8}], item: wrong}
workflow:
- step: call
  loop: {in: "{{ workload.orders }}", iterator: order, spec: {mode: parallel}}
  tool:
    kind: playbook
    path: child
    args: {id: "{{ iter.order.id }}", bare: "{{ order.id }}", at: "{{ iter.index }}"}
  next: {arcs: [{step: done, args: {out: "{{ call }}"}}]}
- step: done
"#,
    );
    let child = |effect: Effect| match effect {
        Effect::StartChild {
            request_key, input, ..
        } => Some((request_key, Json::clone(&input))),
        _ => None,
    };
    let children: Vec<_> = sim.take_effects().into_iter().filter_map(child).collect();
    assert_eq!(
        children,
        [
            (
                "run_sim|call[0]|1|1".to_owned(),
                json!({ "id": 7, "bare": 7, "at": 0 })
            ),
            (
                "run_sim|call[1]|1|1".to_owned(),
                json!({ "id": 8, "bare": 8, "at": 1 })
            ),
        ]
    );
    sim.child_ended("call[1]", RunOutcome::Succeeded, json!({ "ok": 8 }))
        .unwrap();
    let again = Command::ChildEnded {
        step: sim.at("call[1]"),
        request_key: "run_sim|call[1]|1|1".into(),
        outcome: RunOutcome::Failed(Rollback::None),
        output: json!(null),
        error: None,
    };
    let told = sim.send(again);
    assert!(matches!(told, Ok(Reply::Duplicate(_))), "{told:?}");
    sim.child_ended("call[0]", RunOutcome::Succeeded, json!({ "ok": 7 }))
        .unwrap();
    assert_eq!(
        out(&sim, "done")["out"]["data"],
        json!([{ "ok": 7 }, { "ok": 8 }])
    );
}

#[test]
fn a_run_returns_the_outputs_of_the_loop_that_is_named() {
    let mut sim = started(
        "workload: {xs: [1, 2]}\nworkflow:\n- step: each\n  loop: {in: \"{{ xs }}\", iterator: x}\n  next: after\n- step: after\n",
    );
    sim.run("each[0]").unwrap();
    sim.run("each[1]").unwrap();
    sim.run("after").unwrap();
    let returned = |name| stepwell_kernel::run_output(&sim.plan, &sim.state, name);
    assert_eq!(returned(Some("each"))["count"], 2);
    assert!(returned(Some("nobody")).is_null(), "not some other step's");
}
