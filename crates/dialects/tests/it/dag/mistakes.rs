//! Typical mistakes in a workflow, and what the author is told.

use expect_test::{Expect, expect};
use stepwell_dialects::dag::compile;

use super::workflow;
use crate::definition;

fn check(text: &str, expected: Expect) {
    expected.assert_eq(&definition::shown(compile, text));
}

fn check_spec(spec: &str, expected: Expect) {
    check(&workflow(spec), expected);
}

#[test]
fn an_old_version_is_told_the_new_one() {
    check(
        "apiVersion: ioa.dev/v0.1\nkind: Workflow\nmetadata: {name: w}\nspec: {timeout: 1h, steps: [{name: s, agent: a, action: b}]}\n",
        expect![[r#"
            error[DAG_VERSION_UNKNOWN]: the version `ioa.dev/v0.1` is not known
             --> t.yaml:1:13
              |
            1 | apiVersion: ioa.dev/v0.1
              |             ^^^^^^^^^^^^
              |
              = help: write `apiVersion: ioa.dev/v0.2`
        "#]],
    );
}

#[test]
fn a_circle_is_shown_as_a_path() {
    check_spec(
        "  steps:\n  - {name: root, agent: a, action: b}\n  - {name: build, agent: a, action: b, dependsOn: [root, ship]}\n  - {name: test, agent: a, action: b, dependsOn: [build]}\n  - {name: ship, agent: a, action: b, dependsOn: [test]}\n",
        expect![[r#"
            error[DAG_CYCLE]: these steps depend on each other: build → ship → test → build
             --> t.yaml:8:58
              |
            8 |   - {name: build, agent: a, action: b, dependsOn: [root, ship]}
              |                                                          ^^^^
              |
              = help: remove one of these from its step's `dependsOn`
        "#]],
    );
}

#[test]
fn an_unknown_dependency_gets_the_nearest_name() {
    check_spec(
        "  steps:\n  - {name: build, agent: a, action: b}\n  - {name: ship, agent: a, action: b, dependsOn: [biuld]}\n",
        expect![[r#"
            error[DAG_STEP_UNKNOWN]: there is no step `biuld`
             --> t.yaml:8:51
              |
            8 |   - {name: ship, agent: a, action: b, dependsOn: [biuld]}
              |                                                   ^^^^^
              |
              = help: did you mean `build`?
        "#]],
    );
}

#[test]
fn a_step_without_work_is_told_the_three_kinds() {
    check_spec(
        "  steps:\n  - name: build\n    agent: a\n",
        expect![[r#"
        error[FIELD_MISSING]: a step needs `action`
         --> t.yaml:7:5
          |
        7 |   - name: build
          |     ^^^^^^^^^^^
          |
          = help: add `action: …`, or a `tool` that the built-in worker runs, or `gate: approval`
    "#]],
    );
}

#[test]
fn a_gate_that_also_works_is_refused() {
    check_spec(
        "  steps:\n  - name: ok\n    gate: approval\n    tool: {kind: noop}\n    retryPolicy: {maxRetries: 1}\n",
        expect![[r#"
            error[FIELD_CONFLICT]: `tool` has no meaning at a gate, which waits for a person
             --> t.yaml:9:11
              |
            9 |     tool: {kind: noop}
              |           ^^^^^^^^^^^^
              |
              = help: remove it, or make a step of its own that depends on the `gate` step

            error[FIELD_CONFLICT]: `retryPolicy` has no meaning at a gate, which waits for a person
              --> t.yaml:10:18
               |
            10 |     retryPolicy: {maxRetries: 1}
               |                  ^^^^^^^^^^^^^^^
               |
               = help: remove it, or make a step of its own that depends on the `gate` step
        "#]],
    );
}

#[test]
fn every_mistake_of_a_step_is_told_at_once() {
    check_spec(
        "  steps:\n  - name: 'a#1'\n    agent: a\n    action: b\n    timeout: -5s\n    onFailure: ignore\n    retires: 3\n    retryPolicy: {maxRetries: 5000, backoff: expnential}\n",
        expect![[r#"
            error[NAME_INVALID]: the name `a#1` holds `#`
             --> t.yaml:7:11
              |
            7 |   - name: 'a#1'
              |           ^^^^^
              |
              = help: write a name such as `a-1`

            error[FIELD_DURATION]: `timeout` must not be negative
              --> t.yaml:10:14
               |
            10 |     timeout: -5s
               |              ^^^
               |
               = help: write a number with a unit, such as "500ms", "30s", "5m" or "1h30m"

            error[FIELD_VALUE]: `onFailure` must be `abort`, `skip` or `compensate`, but is `ignore`
              --> t.yaml:11:16
               |
            11 |     onFailure: ignore
               |                ^^^^^^

            error[FIELD_UNKNOWN]: `steps[0]` has no field `retires`
              --> t.yaml:12:5
               |
            12 |     retires: 3
               |     ^^^^^^^
               |
               = help: the known fields are `action`, `agent`, `atMostOnce`, `compensable`, `dependsOn`, `description`, `gate`, `input`, `maxLosses`, `name`, `onFailure`, `retryPolicy`, `timeout`, `tool`

            error[FIELD_VALUE]: `maxRetries` must be from 0 to 1000, but is 5000
              --> t.yaml:13:31
               |
            13 |     retryPolicy: {maxRetries: 5000, backoff: expnential}
               |                               ^^^^

            error[FIELD_VALUE]: `backoff` must be `constant`, `linear`, `exponential` or a duration such as `30s`, but is `expnential`
              --> t.yaml:13:46
               |
            13 |     retryPolicy: {maxRetries: 5000, backoff: expnential}
               |                                              ^^^^^^^^^^
               |
               = help: did you mean `exponential`?
        "#]],
    );
}

#[test]
fn compensation_must_name_a_step_once() {
    check_spec(
        "  steps:\n  - {name: pay, agent: a, action: b, compensable: true}\n  - {name: ship, agent: a, action: b, compensable: true}\n  compensation:\n  - {step: pay, agent: a, action: refund}\n  - {step: pay, agent: a, action: refund}\n  - {step: shipp, agent: a, action: recall}\n",
        expect![[r#"
            error[DAG_COMPENSATION_MISSING]: the step `ship` has no compensation
             --> t.yaml:8:52
              |
            8 |   - {name: ship, agent: a, action: b, compensable: true}
              |                                                    ^^^^
              |
              = help: add an entry for it to `spec.compensation`, or remove `compensable`

            error[DAG_COMPENSATION_DUPLICATE]: the step `pay` has a compensation already
              --> t.yaml:11:12
               |
            11 |   - {step: pay, agent: a, action: refund}
               |            ^^^
               |
               = help: keep one; a compensation may be a list of tools

            error[DAG_COMPENSATION_UNKNOWN]: there is no step `shipp` to compensate
              --> t.yaml:12:12
               |
            12 |   - {step: shipp, agent: a, action: recall}
               |            ^^^^^
               |
               = help: did you mean `ship`?
        "#]],
    );
}

#[test]
fn a_workflow_that_may_run_for_ever_is_warned_of() {
    check(
        "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: w}\nspec:\n  failurePolicy: compensate\n  steps:\n  - {name: s, agent: a, action: b}\n  - {name: t, agent: a, action: b, timeout: 5s}\n",
        expect![[r#"
            warning[DAG_POLICY_UNUSED]: this workflow has no `compensation`, so there is nothing to undo
             --> t.yaml:5:18
              |
            5 |   failurePolicy: compensate
              |                  ^^^^^^^^^^
              |
              = help: add `compensation` for the steps that change something, or write `abort`

            warning[DAG_NO_TIMEOUT]: `s` may run without end: neither step nor workflow has a `timeout`
             --> t.yaml:7:12
              |
            7 |   - {name: s, agent: a, action: b}
              |            ^
              |
              = help: add `timeout: 30m` to `spec`, or a `timeout` to each step
        "#]],
    );
}

#[test]
fn a_bad_name_and_a_bad_trigger_are_refused() {
    check(
        "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: My Workflow, version: 1.10}\nspec:\n  timeout: 1h\n  trigger: {schedule: nightly, condition: '{{ event. }}'}\n  steps: [{name: s, agent: a, action: b}, {name: s, agent: a, action: b}]\n",
        expect![[r#"
            error[NAME_INVALID]: the name `My Workflow` must be lower-case letters, digits and `-`, and begin with a letter
             --> t.yaml:3:18
              |
            3 | metadata: {name: My Workflow, version: 1.10}
              |                  ^^^^^^^^^^^
              |
              = help: write a name such as `my-workflow`

            error[FIELD_TYPE]: `version` must be text, but is the number 1.1
             --> t.yaml:3:40
              |
            3 | metadata: {name: My Workflow, version: 1.10}
              |                                        ^^^^
              |
              = help: put it in quotes

            error[FIELD_VALUE]: `schedule` is not a schedule: a schedule has 5 fields, and this has 1
             --> t.yaml:6:23
              |
            6 |   trigger: {schedule: nightly, condition: '{{ event. }}'}
              |                       ^^^^^^^
              |
              = help: write minute, hour, day, month and weekday, such as `0 2 * * *`, or `@daily`

            error[FIELD_CONFLICT]: `condition` stands beside `schedule`
             --> t.yaml:6:43
              |
            6 |   trigger: {schedule: nightly, condition: '{{ event. }}'}
              |                                           ^^^^^^^^^^^^^^
              |
              = help: a condition asks about an event: remove it, or write `event` instead of `schedule`

            error[TEMPLATE_SYNTAX]: this template does not parse: unexpected end of input, expected identifier or integer
             --> t.yaml:6:43
              |
            6 |   trigger: {schedule: nightly, condition: '{{ event. }}'}
              |                                           ^^^^^^^^^^^^^^
              |
              = help: templates are Jinja: `{{ ctx.page | int + 1 }}`; write `{% raw %}{{{% endraw %}` for a literal `{{`

            error[DAG_STEP_DUPLICATE]: a step before this one is named `s` too
             --> t.yaml:7:50
              |
            7 |   steps: [{name: s, agent: a, action: b}, {name: s, agent: a, action: b}]
              |                                                  ^
              |
              = help: give each step a name of its own
        "#]],
    );
}

#[test]
fn an_empty_or_shapeless_file_is_refused() {
    for text in [
        "{}",
        "[]",
        "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: []\nspec: 1\n",
    ] {
        assert!(!definition::codes(compile, text).is_empty(), "{text}");
    }
    assert_eq!(
        definition::codes(compile, &workflow("  steps: []\n")),
        ["DAG_EMPTY"]
    );
}

#[test]
fn a_misspelt_gate_or_field_is_one_mistake() {
    check_spec(
        "  steps:\n  - {name: go, gate: aproval, timeout: 1h}\n  - {name: ship, agnt: a, action: b, timeout: 1h}\n  - {name: send, agent: a, action: b, timeout: 1h, retryPolicy: {backoff: 30}}\n",
        expect![[r#"
            error[FIELD_VALUE]: `gate` must be `approval`, but is `aproval`
             --> t.yaml:7:22
              |
            7 |   - {name: go, gate: aproval, timeout: 1h}
              |                      ^^^^^^^
              |
              = help: did you mean `approval`?

            error[FIELD_UNKNOWN]: `steps[1]` has no field `agnt`
             --> t.yaml:8:18
              |
            8 |   - {name: ship, agnt: a, action: b, timeout: 1h}
              |                  ^^^^
              |
              = help: did you mean `agent`?

            error[FIELD_DURATION]: `backoff` needs a unit
             --> t.yaml:9:75
              |
            9 |   - {name: send, agent: a, action: b, timeout: 1h, retryPolicy: {backoff: 30}}
              |                                                                           ^^
              |
              = help: write a number with a unit, such as "500ms", "30s", "5m" or "1h30m"
        "#]],
    );
}
