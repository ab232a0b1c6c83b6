//! `atMostOnce` and `maxLosses` in all five languages: what they compile to, and what they exclude.

use expect_test::expect;
use serde_json::Value as Json;
use stepwell_dialects::{actions, dag, linear, plan, playbook};
use stepwell_kernel::plan::{Plan, RetryPolicy, Step};

use crate::support::Sim;
use crate::{Compile, accepts, diagnosed, net, reported};

/// A language, and a definition with one step that has these fields.
struct Language {
    compile: Compile,
    schema: fn() -> Json,
    text: fn(&str) -> String,
    /// The fields of a step that ask for another execution.
    retries: &'static [&'static str],
}

const LANGUAGES: [Language; 5] = [
    Language {
        compile: actions::compile,
        schema: actions::schema,
        text: |fields| {
            format!(
                "schemaVersion: 1\nworkflowId: w\nworkspaceId: s\nname: W\nversion: 2\nactive: true\n\
                 executionTier: Auto\nactions:\n\
                 - {{actionId: a, order: 1, portFamily: q, operation: 'a:b', {fields}}}\n"
            )
        },
        retries: &["retryPolicy: {maxAttempts: 3}", "maxLosses: 4"],
    },
    Language {
        compile: dag::compile,
        schema: dag::schema,
        text: |fields| {
            format!(
                "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n  timeout: 1h\n  steps:\n  - {{name: a, agent: x, action: do, {fields}}}\n"
            )
        },
        retries: &["retryPolicy: {maxRetries: 3}", "maxLosses: 4"],
    },
    Language {
        compile: plan::compile,
        schema: plan::schema,
        text: |fields| {
            format!(
                "metadata: {{planId: p, planVersion: '1', schemaVersion: v1.2}}\nsteps:\n- {{stepId: a, {fields}}}\n"
            )
        },
        retries: &["retryPolicy: {maxAttempts: 3}", "maxLosses: 4"],
    },
    Language {
        compile: playbook::compile,
        schema: playbook::schema,
        text: |fields| {
            format!(
                "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: p}}\nworkflow:\n- step: a\n  spec: {{{fields}}}\n  tool: {{kind: noop}}\n"
            )
        },
        retries: &["maxLosses: 4"],
    },
    Language {
        compile: linear::compile,
        schema: linear::schema,
        text: |fields| {
            format!("workflowType: w\nworkflowVersion: 1\nsteps: [{{stepType: a, {fields}}}]\n")
        },
        retries: &["maxAttempts: 3", "backoff: {initial: 1s}"],
    },
];

fn step(language: &Language, fields: &str) -> Step {
    let text = (language.text)(fields);
    assert!(accepts(&(language.schema)(), &text), "{text}");
    net(&text, language.compile).steps.remove(0)
}

#[test]
fn a_step_of_every_language_can_say_that_it_runs_at_most_once() {
    for language in &LANGUAGES {
        let once = step(language, "atMostOnce: true");
        assert_eq!((once.at_most_once, once.retry), (true, RetryPolicy::once()));
        // Without it, retries and losses are as ever.
        for off in ["atMostOnce: false", "atMostOnce: false, RETRIES"] {
            for retries in language.retries {
                let written = step(language, &off.replace("RETRIES", retries));
                assert!(!written.at_most_once);
            }
        }
    }
    let playbook = &LANGUAGES[3];
    assert!(step(playbook, "at_most_once: true").at_most_once);
}

#[test]
fn what_asks_for_another_execution_contradicts_at_most_once() {
    for language in &LANGUAGES {
        for retries in language.retries {
            let text = (language.text)(&format!("atMostOnce: true, {retries}"));
            assert_eq!(
                reported(&text, language.compile),
                ["FIELD_CONFLICT"],
                "{text}"
            );
            // The schema of a playbook has no rules between fields.
            if language.retries.len() > 1 {
                assert!(!accepts(&(language.schema)(), &text), "{text}");
            }
        }
    }
    let text = (LANGUAGES[2].text)("atMostOnce: true, retryPolicy: {maxAttempts: 3}");
    expect![[r#"
        error[FIELD_CONFLICT]: `retryPolicy` has no meaning in a step with `atMostOnce`, which has one execution
         --> t.yaml:3:46
          |
        3 | - {stepId: a, atMostOnce: true, retryPolicy: {maxAttempts: 3}}
          |                                              ^^^^^^^^^^^^^^^^
          |
          = help: remove `retryPolicy` or `atMostOnce`; a failure of the step is handled as the definition says
    "#]]
    .assert_eq(&diagnosed(&text, LANGUAGES[2].compile));
}

#[test]
fn a_promise_in_the_wrong_place_of_a_playbook_is_an_error() {
    for field in [
        "atMostOnce: true",
        "at_most_once: true",
        "maxLosses: 3",
        "max_losses: 3",
    ] {
        let begin =
            "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\nworkflow:\n- step: a\n";
        for rest in [
            format!("  {field}\n  tool: {{kind: noop}}\n"),
            format!("  tool: {{kind: noop, {field}}}\n"),
            format!(
                "  tool: {{kind: noop}}\n  loop: {{in: [1], iterator: n, spec: {{{field}}}}}\n"
            ),
        ] {
            let text = format!("{begin}{rest}");
            assert_eq!(
                reported(&text, playbook::compile),
                ["FIELD_UNKNOWN"],
                "{text}"
            );
        }
    }
}

#[test]
fn every_language_but_linear_limits_losses() {
    for language in &LANGUAGES[..4] {
        assert_eq!(step(language, "maxLosses: 4").max_losses, Some(4));
        for wrong in ["maxLosses: 0", "maxLosses: 1001"] {
            let text = (language.text)(wrong);
            assert_eq!(reported(&text, language.compile), ["FIELD_VALUE"], "{text}");
        }
    }
    assert_eq!(step(&LANGUAGES[3], "max_losses: 2").max_losses, Some(2));
    let linear = (LANGUAGES[4].text)("maxLosses: 4");
    assert_eq!(reported(&linear, linear::compile), ["FIELD_UNKNOWN"]);
}

#[test]
fn a_step_that_only_waits_is_never_lost() {
    for fields in ["atMostOnce: true", "maxLosses: 2"] {
        let gate = format!(
            "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n  timeout: 1h\n  steps:\n  - {{name: a, gate: approval, {fields}}}\n"
        );
        assert_eq!(reported(&gate, dag::compile), ["FIELD_CONFLICT"]);
        assert!(!accepts(&dag::schema(), &gate));
        let wait = (LANGUAGES[2].text)(&format!("waitFor: paid, {fields}"));
        assert_eq!(reported(&wait, plan::compile), ["INVALID_STEP_SCHEMA"]);
        assert!(!accepts(&plan::schema(), &wait));
    }
    let wait = (LANGUAGES[4].text)("waitFor: {event: paid, timeout: 1h}, atMostOnce: true");
    assert_eq!(reported(&wait, linear::compile), ["WAIT_FIELD"]);
    assert!(!accepts(&linear::schema(), &wait));
}

/// A started run of the definition with one step.
fn started(language: &Language, fields: &str) -> Sim {
    let net = net(&(language.text)(fields), language.compile);
    Plan::new(net.clone()).expect("a sound net");
    Sim::started(net)
}

#[test]
fn a_loss_is_an_attempt_in_linear_only() {
    for (at, language) in LANGUAGES.iter().enumerate() {
        let mut sim = started(language, "");
        sim.claim("a").unwrap();
        sim.expire_lease("a").unwrap();
        let is_linear = at == 4;
        assert_eq!(sim.step("a").losses(), u32::from(!is_linear));
        sim.claim("a").unwrap();
        assert_eq!(sim.step("a").tries(), 1 + u32::from(is_linear));
        // A server that stops its work charges nobody, in no language.
        sim.confirm_kill("a").unwrap();
        sim.claim("a").unwrap();
        assert_eq!(sim.step("a").tries(), 1 + u32::from(is_linear));
    }
}

#[test]
fn a_step_that_runs_at_most_once_fails_with_its_worker_in_every_language() {
    for language in &LANGUAGES {
        let mut sim = started(language, "atMostOnce: true");
        sim.claim("a").unwrap();
        sim.expire_lease("a").unwrap();
        assert!(sim.outcome().is_some(), "the run has failed");
        let error = sim.state.error().unwrap();
        assert_eq!(
            (error.class.name(), error.code.as_str()),
            ("lease_lost", "LEASE_EXPIRED")
        );
    }
}
