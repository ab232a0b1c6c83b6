//! What is said about typical mistakes.

use expect_test::{Expect, expect};
use stepwell_dialects::problem::render;
use stepwell_dialects::{Severity, load};

use super::{codes, loaded, shown};
use crate::source;

fn check(body: &str, expected: Expect) {
    expected.assert_eq(&shown(body));
}

/// As [`check`], for a whole file.
fn check_file(text: &str, expected: Expect) {
    let source = source(text);
    expected.assert_eq(&render(&source, &load(&source).problems, false));
}

#[test]
fn an_arc_to_a_misspelt_step() {
    check(
        "workflow:\n- step: fetch\n  next: {arcs: [{step: stroe}]}\n- step: store\n",
        expect![[r#"
            error[STEP_UNDEFINED]: there is no step `stroe`
             --> t.yaml:6:24
              |
            6 |   next: {arcs: [{step: stroe}]}
              |                        ^^^^^
              |
              = help: did you mean `store`?
        "#]],
    );
}

#[test]
fn an_unknown_entry() {
    check(
        "executor: {spec: {entry_step: begin}}\nworkflow:\n- step: fetch\n",
        expect![[r#"
            error[STEP_UNDEFINED]: `entry_step` names `begin`, and there is no such step
             --> t.yaml:4:31
              |
            4 | executor: {spec: {entry_step: begin}}
              |                               ^^^^^
              |
              = help: the steps are `fetch`
        "#]],
    );
}

#[test]
fn an_arc_into_the_final_step() {
    check(
        "executor: {spec: {final_step: z}}\nworkflow:\n- step: a\n  next: z\n- step: z\n  next: a\n",
        expect![[r#"
            error[FINAL_STEP_ARC]: `z` is the final step, so no arc may lead to it
             --> t.yaml:7:9
              |
            7 |   next: z
              |         ^
              |
              = help: remove the arc: the final step runs by itself once everything else is done

            error[FINAL_STEP_ARC]: `z` is the final step, so nothing comes after it
             --> t.yaml:9:9
              |
            9 |   next: a
              |         ^
              |
              = help: remove its `next`
        "#]],
    );
}

#[test]
fn branches_that_meet_without_a_join() {
    check(
        "workflow:\n- step: a\n  next: {spec: {mode: inclusive}, arcs: [b, c]}\n- step: b\n  next: c\n- step: c\n",
        expect![[r#"
            warning[STEP_RUNS_TWICE]: branches that part at `a` can meet at `c`, which then runs once for each
             --> t.yaml:9:9
              |
            9 | - step: c
              |         ^
              |
              = help: write `join: all` in this step to wait for all of its arcs, if it should run once
        "#]],
    );
}

#[test]
fn a_guard_without_braces() {
    check(
        "workflow:\n- step: a\n  next: {arcs: [{step: a, when: event.name == 'call.done'}]}\n",
        expect![[r#"
            error[CONDITION_CONSTANT]: `when` is plain text, so it would never change its mind
             --> t.yaml:6:33
              |
            6 |   next: {arcs: [{step: a, when: event.name == 'call.done'}]}
              |                                 ^^^^^^^^^^^^^^^^^^^^^^^^^
              |
              = help: write "{{ event.name == 'call.done' }}"
        "#]],
    );
}

#[test]
fn a_template_that_does_not_parse() {
    check(
        "workflow:\n- step: a\n  tool: {kind: http, url: '{{ workload.url }'}\n",
        expect![[r#"
            error[TEMPLATE_SYNTAX]: this template does not parse: `}` closes nothing
             --> t.yaml:6:44
              |
            6 |   tool: {kind: http, url: '{{ workload.url }'}
              |                                            ^
              |
              = help: templates are Jinja: `{{ ctx.page | int + 1 }}`; write `{% raw %}{{{% endraw %}` for a literal `{{`
        "#]],
    );
}

#[test]
fn an_arc_that_is_never_taken() {
    check(
        "workflow:\n- step: a\n  next: [b, c]\n- step: b\n- step: c\n",
        expect![[r#"
            warning[ARC_UNREACHABLE]: this arc is never taken: one before it always matches
             --> t.yaml:6:13
              |
            6 |   next: [b, c]
              |             ^
              |
              = help: put the arc without `when` last, or write `spec: {mode: inclusive}` to take every arc that matches
        "#]],
    );
}

#[test]
fn a_key_from_elsewhere_is_a_warning_and_a_slip_an_error() {
    check(
        "tracing: true\nworkflow:\n- step: a\n  tol: {kind: noop}\n",
        expect![[r#"
            warning[FIELD_UNUSED]: a playbook has no field `tracing`: it is not used
             --> t.yaml:4:1
              |
            4 | tracing: true
              | ^^^^^^^
              |
              = help: remove it; the known fields are `apiVersion`, `kind`, `metadata`, `keychain`, `executor`, `workload`, `workflow`, `workbook`

            error[FIELD_UNKNOWN]: a step has no field `tol`
             --> t.yaml:7:3
              |
            7 |   tol: {kind: noop}
              |   ^^^
              |
              = help: did you mean `tool`?
        "#]],
    );
}

#[test]
fn an_older_version() {
    check_file(
        "apiVersion: noetl.io/v1\nkind: Playbook\nmetadata: {name: t}\nworkflow: [{step: a}]\n",
        expect![[r#"
            error[API_VERSION]: `noetl.io/v1` is not a version of playbooks that is read here
             --> t.yaml:1:13
              |
            1 | apiVersion: noetl.io/v1
              |             ^^^^^^^^^^^
              |
              = help: write `apiVersion: noetl.io/v2`; steps of version 1 must be rewritten with `tool` and `next.arcs`
        "#]],
    );
}

#[test]
fn a_variable_without_a_scope() {
    check(
        "workflow:\n- step: a\n  set: {page: 1, iter.x: 2}\n",
        expect![[r#"
            error[SET_SCOPE]: `page` does not say where the variable lives
             --> t.yaml:6:9
              |
            6 |   set: {page: 1, iter.x: 2}
              |         ^^^^
              |
              = help: write `ctx.page`; the scopes that can be set here are `ctx`

            error[SET_SCOPE]: `iter` variables cannot be set here
             --> t.yaml:6:18
              |
            6 |   set: {page: 1, iter.x: 2}
              |                  ^^^^^^
              |
              = help: write `ctx.x`; the scopes that can be set here are `ctx`
        "#]],
    );
}

#[test]
fn a_jump_to_a_task_that_is_not_there() {
    check(
        "workflow:\n- step: a\n  tool:\n  - name: fetch\n    kind: noop\n    spec: {policy: {rules: [{else: {do: jump, to: fecth}}]}}\n",
        expect![[r#"
            error[TASK_UNKNOWN]: there is no task `fecth` in this block
             --> t.yaml:9:51
              |
            9 |     spec: {policy: {rules: [{else: {do: jump, to: fecth}}]}}
              |                                                   ^^^^^
              |
              = help: did you mean `fetch`?
        "#]],
    );
}

#[test]
fn a_file_in_no_language() {
    check_file(
        "kind: Playbok\nworkflow: []\n",
        expect![[r#"
            error[LANGUAGE_UNKNOWN]: this is in none of the workflow languages
             --> t.yaml:1:1
              |
            1 | kind: Playbok
              | ^
              |
              = help: it looks most like playbook, since it has `kind`, `workflow`, but `kind: Playbook` (apiVersion noetl.io/v2) is missing; languages are recognised by their content: actions by `workflowId` and `actions`; dag by `kind: Workflow` (apiVersion ioa.dev/v0.2); plan by `metadata.planId` and `steps`; playbook by `kind: Playbook` (apiVersion noetl.io/v2); linear by `workflowType` and `steps`
        "#]],
    );
    check_file(
        "- 1\n",
        expect![[r#"
        error[LANGUAGE_UNKNOWN]: a definition is a mapping, but this is a list
         --> t.yaml:1:1
          |
        1 | - 1
          | ^
          |
          = help: languages are recognised by their content: actions by `workflowId` and `actions`; dag by `kind: Workflow` (apiVersion ioa.dev/v0.2); plan by `metadata.planId` and `steps`; playbook by `kind: Playbook` (apiVersion noetl.io/v2); linear by `workflowType` and `steps`
    "#]],
    );
}

#[test]
fn p28_no_key_and_no_shape_is_passed_over_in_silence() {
    let step = |extra: &str| codes(&format!("workflow:\n- step: a\n  {extra}\n"));
    let cases = [
        ("when: '{{ x }}'", "FIELD_UNUSED"),
        ("sepc: {}", "FIELD_UNKNOWN"),
        ("spec: {next_mode: exclusive}", "FIELD_UNUSED"),
        ("spec: {policy: {admt: {}}}", "FIELD_UNKNOWN"),
        ("spec: {policy: {lifecycle: {ttl: 1}}}", "FIELD_UNUSED"),
        ("tool: {kind: noop, result: {a: 1}}", "FIELD_UNUSED"),
        ("tool: {kind: noop, spec: {cache: 1}}", "FIELD_UNUSED"),
        (
            "tool: {kind: noop, spec: {policy: {ruels: []}}}",
            "FIELD_UNKNOWN",
        ),
        ("tool: {kind: noop, eval: []}", "FIELD_UNUSED"),
        ("loop: {in: [1], parallel: true}", "FIELD_UNKNOWN"),
        (
            "loop: {in: [1], spec: {policy: {exec: local}}}",
            "FIELD_UNUSED",
        ),
        ("loop: {in: [1], spec: {max_in_flight: 3}}", "FIELD_UNUSED"),
        ("loop: {in: text}", "FIELD_TYPE"),
        (
            "next: {spec: {on_no_match: quiet}, arcs: [a]}",
            "FIELD_UNUSED",
        ),
        ("next: {arcs: []}", "NEXT_EMPTY"),
        ("next: {arcs: [{step: a, cond: x}]}", "FIELD_UNKNOWN"),
        ("next: 5", "FIELD_TYPE"),
        ("join: all", "JOIN_POINTLESS"),
    ];
    for (extra, code) in cases {
        assert_eq!(step(extra), [code], "{extra}");
    }
    let root = |extra: &str| codes(&format!("{extra}\nworkflow: [{{step: a}}]\n"));
    assert_eq!(
        root("executor: {spec: {policy: {colour: red}}}"),
        ["FIELD_UNUSED"]
    );
    assert_eq!(root("executor: {spec: {entrystep: a}}"), ["FIELD_UNKNOWN"]);
    assert_eq!(
        root("workload: {x: '{{ .Values.y }}'}"),
        ["TEMPLATE_IGNORED"]
    );
    assert!(root("workload: {x: '{{ job.uuid }}'}").is_empty());
    assert_eq!(
        root("keychain: [{name: k, token: abc}]"),
        ["KEYCHAIN_PLAINTEXT"]
    );
    assert_eq!(root("workload: [1]"), ["FIELD_TYPE"]);
}

#[test]
fn all_problems_are_reported_at_once() {
    let body = "workflow:\n- step: a\n  next: x\n  tool: {kind: nope}\n- step: a\n  loop: {in: 5}\n- step: 'b#2'\n";
    assert_eq!(codes(body), ["TOOL_UNKNOWN", "FIELD_TYPE", "NAME_INVALID"]);
    let body = "workflow:\n- step: a\n  next: x\n- step: a\n";
    assert_eq!(codes(body), ["STEP_UNDEFINED", "NAME_DUPLICATE"]);
}

#[test]
fn steps_that_no_token_reaches_are_warnings() {
    let loaded = loaded("workflow:\n- step: a\n- step: b\n");
    assert!(loaded.plan.is_some());
    assert_eq!(loaded.problems[0].code, "STEP_UNREACHABLE");
    assert_eq!(loaded.problems[0].severity, Severity::Warning);
}

#[test]
fn every_mistake_of_a_rule_is_found_at_once() {
    let rule = r#"{when: "{{ 1", then: {do: retri, attempts: 0}}"#;
    check(
        &format!(
            "workflow:\n- step: a\n  tool:\n    kind: noop\n    spec: {{policy: {{rules: [{rule}]}}}}\n"
        ),
        expect![[r#"
            error[TEMPLATE_SYNTAX]: this template does not parse: the tag has no closing `}}`
             --> t.yaml:8:37
              |
            8 |     spec: {policy: {rules: [{when: "{{ 1", then: {do: retri, attempts: 0}}]}}
              |                                     ^^^^
              |
              = help: templates are Jinja: `{{ ctx.page | int + 1 }}`; write `{% raw %}{{{% endraw %}` for a literal `{{`

            error[FIELD_VALUE]: `do` must be `retry`, `jump`, `break`, `fail` or `continue`, but is `retri`
             --> t.yaml:8:55
              |
            8 |     spec: {policy: {rules: [{when: "{{ 1", then: {do: retri, attempts: 0}}]}}
              |                                                       ^^^^^
              |
              = help: did you mean `retry`?

            error[FIELD_VALUE]: `attempts` must be from 1 to 1000, but is 0
             --> t.yaml:8:72
              |
            8 |     spec: {policy: {rules: [{when: "{{ 1", then: {do: retri, attempts: 0}}]}}
              |                                                                        ^
        "#]],
    );
}
