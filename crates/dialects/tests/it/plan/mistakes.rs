//! Typical mistakes in a plan, and what the author is told.

use expect_test::{Expect, expect};
use stepwell_dialects::plan::compile;

use super::text;
use crate::definition;

fn check(text: &str, expected: Expect) {
    expected.assert_eq(&definition::shown(compile, text));
}

fn check_steps(steps: &str, expected: Expect) {
    check(&text(steps), expected);
}

#[test]
fn an_unknown_step_field_is_an_invalid_step() {
    check_steps(
        "- {stepId: a, kind: x, timeoutt: 5s}\n",
        expect![[r#"
        error[INVALID_STEP_SCHEMA]: `steps[0]` has no field `timeoutt`
         --> t.yaml:3:24
          |
        3 | - {stepId: a, kind: x, timeoutt: 5s}
          |                        ^^^^^^^^
          |
          = help: did you mean `timeout`?
    "#]],
    );
}

#[test]
fn a_duplicate_id_is_an_invalid_plan() {
    check_steps(
        "- {stepId: a}\n- {stepId: a}\n",
        expect![[r#"
        error[INVALID_PLAN_SCHEMA]: a step before this one has the id `a` too
         --> t.yaml:4:12
          |
        4 | - {stepId: a}
          |            ^
          |
          = help: give each step an id of its own
    "#]],
    );
}

#[test]
fn an_unknown_dependency_gets_the_nearest_name() {
    check_steps(
        "- {stepId: extract}\n- {stepId: load, dependsOn: [extrct]}\n",
        expect![[r#"
            error[INVALID_PLAN_SCHEMA]: there is no step `extrct`
             --> t.yaml:4:30
              |
            4 | - {stepId: load, dependsOn: [extrct]}
              |                              ^^^^^^
              |
              = help: did you mean `extract`?
        "#]],
    );
}

#[test]
fn a_circle_is_shown_as_a_path() {
    check_steps(
        "- {stepId: r}\n- {stepId: a, dependsOn: [c, r]}\n- {stepId: b, dependsOn: [a]}\n- {stepId: c, dependsOn: [b]}\n- {stepId: me, dependsOn: [me]}\n",
        expect![[r#"
            error[INVALID_PLAN_SCHEMA]: these steps depend on each other: a → c → b → a
             --> t.yaml:4:27
              |
            4 | - {stepId: a, dependsOn: [c, r]}
              |                           ^
              |
              = help: remove one of these from its step's `dependsOn`

            error[INVALID_PLAN_SCHEMA]: the step `me` depends on itself
             --> t.yaml:7:28
              |
            7 | - {stepId: me, dependsOn: [me]}
              |                            ^^
              |
              = help: remove it from its own `dependsOn`
        "#]],
    );
}

#[test]
fn an_unknown_schema_version_names_the_known_ones() {
    check(
        "metadata: {planId: p, planVersion: '1', schemaVersion: v2.0}\nsteps: [{stepId: a}]\n",
        expect![[r#"
            error[PLAN_SCHEMA_VERSION_UNKNOWN]: the schema version `v2.0` is not known
             --> t.yaml:1:56
              |
            1 | metadata: {planId: p, planVersion: '1', schemaVersion: v2.0}
              |                                                        ^^^^
              |
              = help: write `v1.2`; every `v1.x` is read
        "#]],
    );
}

#[test]
fn a_plan_needs_its_id_and_version() {
    check(
        "metadata: {schemaVersion: v1.2}\nsteps: [{stepId: a}]\n",
        expect![[r#"
            error[INVALID_PLAN_SCHEMA]: the plan needs `planId`
             --> t.yaml:1:11
              |
            1 | metadata: {schemaVersion: v1.2}
              |           ^^^^^^^^^^^^^^^^^^^^^
              |
              = help: add `planId: …` to `metadata`

            error[INVALID_PLAN_SCHEMA]: the plan needs `planVersion`
             --> t.yaml:1:11
              |
            1 | metadata: {schemaVersion: v1.2}
              |           ^^^^^^^^^^^^^^^^^^^^^
              |
              = help: add `planVersion: …` to `metadata`
        "#]],
    );
}

#[test]
fn an_unknown_capability_lists_or_guesses() {
    check(
        "metadata: {planId: p, planVersion: '1', schemaVersion: v1.2, requiresCapabilities: [workflow.fan.paralel, teleport], targetAdapter: airflow}\nsteps: [{stepId: a}]\n",
        expect![[r#"
            error[PLAN_CAPABILITY_UNSUPPORTED]: the capability `workflow.fan.paralel` is not known here
             --> t.yaml:1:85
              |
            1 | … v1.2, requiresCapabilities: [workflow.fan.paralel, teleport], targetAdapter: airflow}
              |                                ^^^^^^^^^^^^^^^^^^^^
              |
              = help: did you mean `workflow.fan.parallel`?

            error[PLAN_CAPABILITY_UNSUPPORTED]: the capability `teleport` is not known here
             --> t.yaml:1:107
              |
            1 | …ities: [workflow.fan.paralel, teleport], targetAdapter: airflow}
              |                                ^^^^^^^^
              |
              = help: the known ones are `basic-execution`, `history.rotation`, `signal.cancel`, `signal.emergency-stop`, `signal.pause.emulated`, `signal.pause.native`, `signal.retry`, `signal.skip`, `signal.update-params`, `workflow.approval`, `workflow.artifacts`, `workflow.cancel`, `workflow.compensation`, `workflow.events`, `workflow.fan.parallel`, `workflow.pause`, `workflow.queue`, `workflow.retry`, `workflow.secrets`, `workflow.signals`, `workflow.timeout`, `workflow.timers`

            error[FIELD_VALUE]: `targetAdapter` must be `native`, `temporal`, `conductor`, `mock` or `any`, but is `airflow`
             --> t.yaml:1:133
              |
            1 | …el, teleport], targetAdapter: airflow}
              |                                ^^^^^^^
        "#]],
    );
}

#[test]
fn a_secret_written_out_is_refused_and_not_shown() {
    check_steps(
        "- {stepId: a, config: {password: hunter2}}\n",
        expect![[r#"
        error[PLAN_SECRET_VALUE]: `password` is a secret that is written out; a plan contains only references to secrets
         --> t.yaml:3:34
          |
        3 | - {stepId: a, config: {password: *******}}
          |                                  ^^^^^^^
          |
          = help: keep it in a secret store, and write `password: secret://NAME`
    "#]],
    );
}

#[test]
fn contradictions_in_a_step_are_refused() {
    check_steps(
        "- {stepId: a, sideEffect: compensable}\n- {stepId: b, sideEffect: pure, compensation: {kind: undo}}\n- {stepId: c, tool: {kind: noop}, waitFor: e}\n- {stepId: d, waitFor: {event: e, delay: 5s}}\n- {stepId: e, retryPolicy: {backoff: 5s, initialDelay: 1s}}\n",
        expect![[r#"
            error[INVALID_STEP_SCHEMA]: `sideEffect` says that there is a `compensation`
             --> t.yaml:3:27
              |
            3 | - {stepId: a, sideEffect: compensable}
              |                           ^^^^^^^^^^^
              |
              = help: add one, or change `sideEffect`

            error[INVALID_STEP_SCHEMA]: `sideEffect` says that there is nothing to undo
             --> t.yaml:4:27
              |
            4 | - {stepId: b, sideEffect: pure, compensation: {kind: undo}}
              |                           ^^^^
              |
              = help: remove the `compensation`, or change `sideEffect`

            error[INVALID_STEP_SCHEMA]: `waitFor` has no meaning in a step that runs a `tool`
             --> t.yaml:5:44
              |
            5 | - {stepId: c, tool: {kind: noop}, waitFor: e}
              |                                            ^
              |
              = help: remove it, or make two steps of it

            error[INVALID_STEP_SCHEMA]: `waitFor` needs one of `event` and `delay`
             --> t.yaml:6:24
              |
            6 | - {stepId: d, waitFor: {event: e, delay: 5s}}
              |                        ^^^^^^^^^^^^^^^^^^^^^
              |
              = help: write `waitFor: {event: order.paid}` or `waitFor: {delay: 10m}`

            error[FIELD_CONFLICT]: `backoff` is a duration already, so `initialDelay` has no meaning
             --> t.yaml:7:56
              |
            7 | - {stepId: e, retryPolicy: {backoff: 5s, initialDelay: 1s}}
              |                                                        ^^
              |
              = help: remove `initialDelay`, or make `backoff` a strategy such as `exponential`
        "#]],
    );
}

#[test]
fn an_empty_or_shapeless_file_is_refused() {
    for text in ["{}", "[]", "metadata: 7\nsteps: 7\n", "planId: p\n"] {
        assert!(!definition::codes(compile, text).is_empty(), "{text}");
    }
    assert_eq!(
        definition::codes(compile, &text("  []\n")),
        ["INVALID_PLAN_SCHEMA"]
    );
}
