//! D: `dag` workflows, run: states, failures and retries. Timeouts, undoing and telemetry are in
//! `undoing`.

use expect_test::expect;
use serde_json::json;
use stepwell_dialects::dag::telemetry::{Telemetry, telemetry};
use stepwell_dialects::dag::words::{run_substatus, run_word, step_word};
use stepwell_kernel::command::{Command, ManualOutcome, Reply};
use stepwell_kernel::effect::{Effect, RunOutcome, Target};
use stepwell_kernel::event::{Body, Rollback, StepError};
use stepwell_kernel::plan::ErrorClass;
use stepwell_kernel::rejection::Code;

use crate::support::{RUN_ID, START, Sim, admin, code};

mod undoing;

/// The table of the specification: every change of a run's state that there may be.
const TABLE: [(&str, &str); 10] = [
    ("idle", "queued"),
    ("queued", "executing"),
    ("executing", "blocked"),
    ("executing", "completed"),
    ("executing", "failed"),
    ("executing", "compensating"),
    ("blocked", "executing"),
    ("blocked", "failed"),
    ("compensating", "completed"),
    ("compensating", "failed"),
];

/// A workflow with these lines below `spec`.
fn text(spec: &str) -> String {
    format!(
        "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n{}",
        spec.trim_start_matches('\n')
    )
}

#[track_caller]
fn defined(spec: &str) -> Sim {
    super::defined(&text(spec))
}

#[track_caller]
fn started(spec: &str) -> Sim {
    super::started(&text(spec))
}

fn emitted(sim: &Sim) -> Vec<Telemetry> {
    telemetry(&sim.plan, RUN_ID, sim.events()).expect("a log")
}

/// The run's states in order, every change of them checked against the table.
#[track_caller]
fn path(sim: &Sim) -> String {
    let mut path = Vec::new();
    for change in emitted(sim).iter().filter(|it| it.step.is_none()) {
        let Some(from) = change.from else {
            path.push(change.to);
            continue;
        };
        assert_eq!(Some(&from), path.last(), "{change:?} does not follow");
        if from != change.to {
            assert!(TABLE.contains(&(from, change.to)), "{change:?} is unlawful");
            path.push(change.to);
        }
    }
    assert_eq!(path.last(), Some(&run_word(&sim.state)));
    path.join(" ")
}

/// A step's states in order.
fn step_path(sim: &Sim, step: &str) -> String {
    let of_step = |it: &Telemetry| it.step.as_deref() == Some(step);
    let changes: Vec<Telemetry> = emitted(sim).into_iter().filter(of_step).collect();
    let words = std::iter::once("pending").chain(changes.iter().map(|it| it.to));
    words.collect::<Vec<_>>().join(" ")
}

fn word(sim: &Sim, step: &str) -> &'static str {
    step_word(&sim.plan, &sim.state, sim.at(step))
}

/// The run's word with what qualifies it.
fn words(sim: &Sim) -> (&'static str, Option<&'static str>) {
    (run_word(&sim.state), run_substatus(&sim.state))
}

/// Which steps were undone, in the order the undos were started.
fn undone(sim: &Sim) -> Vec<String> {
    let step = |body: &Body| match body {
        Body::UndoStarted { step, .. } => Some(sim.plan.step_id(*step)),
        _ => None,
    };
    sim.events()
        .iter()
        .filter_map(|it| step(&it.body))
        .collect()
}

const CHAIN: &str = "
  steps:
  - {name: a, agent: x, action: do}
  - {name: b, agent: x, action: do, dependsOn: [a]}
";

/// `a`, then `b`, both undoable; then `c`, whose failure undoes them.
const SAGA: &str = "
  steps:
  - {name: a, agent: x, action: do}
  - {name: b, agent: x, action: do, dependsOn: [a]}
  - {name: c, agent: x, action: do, dependsOn: [b], onFailure: compensate}
  compensation:
  - {step: a, agent: x, action: undo}
  - {step: b, agent: x, action: undo}
";

/// `a`, then a gate with a day to answer, then `z`; the gate has this `onFailure`.
fn gated(on_failure: &str) -> Sim {
    let mut sim = started(&format!(
        "
  steps:
  - {{name: a, agent: x, action: do}}
  - {{name: g, gate: approval, dependsOn: [a], timeout: 24h, onFailure: {on_failure}}}
  - {{name: z, agent: x, action: do, dependsOn: [g]}}
  compensation: [{{step: a, agent: x, action: undo}}]
"
    ));
    sim.run("a").unwrap();
    assert_eq!(words(&sim), ("blocked", None));
    sim
}

/// A saga that is being undone.
fn compensating() -> Sim {
    let mut sim = started(SAGA);
    sim.run("a").unwrap();
    sim.run("b").unwrap();
    sim.run_failing("c", ErrorClass::Agent).unwrap();
    assert_eq!(run_word(&sim.state), "compensating");
    sim
}

#[test]
fn d1_a_run_is_idle_then_queued_then_executing() {
    let mut sim = defined(CHAIN);
    sim.create().unwrap();
    assert_eq!(words(&sim), ("idle", None));
    assert_eq!(code(sim.start_run()), Code::InvalidTransition);
    assert_eq!(words(&sim), ("idle", None));
    sim.enqueue().unwrap();
    assert_eq!(words(&sim), ("queued", None));
    assert_eq!(code(sim.claim("a")), Code::RunNotRunning);
    sim.start_run().unwrap();
    assert_eq!(words(&sim), ("executing", None));
    assert_eq!(path(&sim), "idle queued executing");
}

#[test]
fn d3_a_transition_that_the_table_lacks_is_refused_and_changes_nothing() {
    // The driver compares the state before and after every refusal.
    let mut sim = defined(CHAIN);
    assert_eq!(code(sim.enqueue()), Code::RunUnknown);
    sim.create().unwrap();
    assert_eq!(code(sim.create()), Code::RunExists);
    assert_eq!(code(sim.start_run()), Code::InvalidTransition);
    sim.enqueue().unwrap();
    assert_eq!(code(sim.enqueue()), Code::InvalidTransition);
    assert_eq!(code(sim.create()), Code::RunExists);
    sim.start_run().unwrap();
    assert_eq!(code(sim.enqueue()), Code::InvalidTransition);
    assert_eq!(code(sim.start_run()), Code::InvalidTransition);
    assert_eq!(sim.events().len(), 4);
    sim.claim("a").unwrap();
    sim.wait_for_event("a", "reply").unwrap();
    assert_eq!(words(&sim), ("blocked", None));
    assert_eq!(code(sim.enqueue()), Code::InvalidTransition);
    assert_eq!(code(sim.start_run()), Code::InvalidTransition);
    assert_eq!(path(&sim), "idle queued executing blocked");
}

#[test]
fn d4_an_ended_run_has_no_exit_and_a_restart_is_another_run() {
    let mut done = started(CHAIN);
    done.run_everything();
    let mut failed = started(CHAIN);
    failed.run_failing("a", ErrorClass::Agent).unwrap();
    for (sim, end) in [(&mut done, "completed"), (&mut failed, "failed")] {
        assert_eq!(run_word(&sim.state), end);
        let log = sim.events().len();
        assert_eq!(code(sim.enqueue()), Code::RunTerminal);
        assert_eq!(code(sim.start_run()), Code::RunTerminal);
        assert_eq!(code(sim.claim("a")), Code::RunTerminal);
        assert_eq!(code(sim.cancel()), Code::RunTerminal);
        assert_eq!(code(sim.resume()), Code::RunTerminal);
        let retry = sim.signal("RETRY_STEP", json!({ "stepId": "a" }));
        assert_eq!(code(retry), Code::RunTerminal);
        assert_eq!(
            code(sim.deliver("e1", "reply", json!({}))),
            Code::RunTerminal
        );
        assert_eq!(code(sim.proceed()), Code::RunTerminal);
        let again = sim.signal_as("s", "RETRY_RUN", json!({}), None, admin());
        let request_key = format!("{RUN_ID}|RETRY_RUN|s");
        assert_eq!(again, Ok(Reply::RetryRun { request_key }));
        assert_eq!(sim.events().len(), log);
        assert_eq!(run_word(&sim.state), end);
    }
}

#[test]
fn d5_a_compensating_run_never_executes_again() {
    let mut sim = compensating();
    assert_eq!(code(sim.start_run()), Code::InvalidTransition);
    assert_eq!(code(sim.enqueue()), Code::InvalidTransition);
    assert_eq!(code(sim.claim("c")), Code::RunStopping);
    for signal in ["RETRY_STEP", "SKIP_STEP"] {
        let refused = sim.signal(signal, json!({ "stepId": "c" })).unwrap();
        let Reply::Refused(refused) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(refused.code, Code::RunStopping);
    }
    let Reply::Refused(refused) = sim.resume().unwrap() else {
        panic!("a run that compensates cannot be resumed");
    };
    assert_eq!(refused.code, Code::RunStopping);
    assert_eq!(run_word(&sim.state), "compensating");
    sim.run_everything();
    assert_eq!(path(&sim), "idle queued executing compensating completed");
}

#[test]
fn d6_a_run_is_blocked_exactly_while_everything_that_started_waits_outside() {
    let mut sim = started(
        "
  steps:
  - {name: g, gate: approval, timeout: 24h}
  - {name: w, agent: x, action: do, retryPolicy: {maxRetries: 1, backoff: 5s}}
  - {name: z, agent: x, action: do, dependsOn: [g]}
",
    );
    // w has not started, so everything that has started waits.
    assert_eq!(words(&sim), ("blocked", None));
    sim.claim("w").unwrap();
    assert_eq!(words(&sim), ("executing", None), "w runs");
    sim.fail("w", ErrorClass::Transient).unwrap();
    assert_eq!(words(&sim), ("executing", None), "w will run again");
    sim.advance(5_000).claim("w").unwrap();
    sim.wait_for_event("w", "reply").unwrap();
    assert_eq!(words(&sim), ("blocked", None), "both wait");
    sim.deliver("e1", "reply", json!({})).unwrap();
    assert_eq!(words(&sim), ("executing", None), "w was answered");
    sim.claim("w").unwrap();
    sim.complete("w").unwrap();
    assert_eq!(words(&sim), ("blocked", None), "g still waits");
    sim.answer("g", ManualOutcome::Succeeded, "boss").unwrap();
    assert_eq!(words(&sim), ("executing", None));
    sim.run_everything();
    assert_eq!(
        path(&sim),
        "idle queued executing blocked executing blocked executing blocked executing completed"
    );
}

#[test]
fn d7_a_gate_that_runs_out_fails_the_run_or_undoes_it() {
    let mut aborted = gated("abort");
    assert_eq!(
        aborted.next_timer().map(|(due, _)| due),
        Some(START.plus(86_400_000))
    );
    aborted.advance_to_next_timer().unwrap();
    assert_eq!(path(&aborted), "idle queued executing blocked failed");
    assert_eq!(aborted.outcome(), Some(RunOutcome::Failed(Rollback::None)));
    assert_eq!(undone(&aborted), [""; 0]);

    let mut undone_run = gated("compensate");
    undone_run.advance_to_next_timer().unwrap();
    assert_eq!(words(&undone_run), ("compensating", None));
    undone_run.run_everything();
    assert_eq!(
        path(&undone_run),
        "idle queued executing blocked executing compensating completed"
    );
    assert_eq!(undone(&undone_run), ["a"]);
}

#[test]
fn d8_a_rejection_returns_to_executing_fails_the_gate_and_applies_its_on_failure() {
    let mut aborted = gated("abort");
    aborted.answer("g", ManualOutcome::Failed, "boss").unwrap();
    assert_eq!(step_path(&aborted, "g"), "pending running failed");
    assert_eq!(
        path(&aborted),
        "idle queued executing blocked executing failed"
    );
    let error = aborted.state.error().cloned().unwrap();
    assert_eq!(error.class, ErrorClass::Rejected);

    let mut rolled_back = gated("compensate");
    rolled_back
        .answer("g", ManualOutcome::Failed, "boss")
        .unwrap();
    rolled_back.run_everything();
    assert_eq!(step_path(&rolled_back, "g"), "pending running failed");
    assert_eq!(
        path(&rolled_back),
        "idle queued executing blocked executing compensating completed"
    );

    let mut skipped = gated("skip");
    skipped.answer("g", ManualOutcome::Failed, "boss").unwrap();
    assert_eq!(word(&skipped, "g"), "skipped");
    assert_eq!(words(&skipped), ("executing", None));
    assert_eq!(skipped.ready(), ["z"]);
    skipped.run_everything();
    assert_eq!(
        path(&skipped),
        "idle queued executing blocked executing completed"
    );
}

#[test]
fn d9_a_run_completes_when_every_step_is_completed_or_skipped() {
    let mut sim = started(
        "
  steps:
  - {name: a, agent: x, action: do}
  - {name: note, agent: x, action: do, onFailure: skip}
",
    );
    sim.run_failing("note", ErrorClass::Agent).unwrap();
    assert_eq!(words(&sim), ("executing", None));
    sim.run("a").unwrap();
    assert_eq!(
        (word(&sim, "a"), word(&sim, "note")),
        ("completed", "skipped")
    );
    assert_eq!(words(&sim), ("completed", None));
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));

    let mut all_skipped =
        started("\n  steps: [{name: a, agent: x, action: do, onFailure: skip}]\n");
    all_skipped.run_failing("a", ErrorClass::Agent).unwrap();
    assert_eq!(path(&all_skipped), "idle queued executing completed");
}

#[test]
fn d10_abort_starts_nothing_more_and_undoes_nothing() {
    let mut sim = started(
        "
  steps:
  - {name: done, agent: x, action: do}
  - {name: busy, agent: x, action: do, dependsOn: [done]}
  - {name: bad, agent: x, action: do, dependsOn: [done], onFailure: abort}
  - {name: late, agent: x, action: do, dependsOn: [done]}
  - {name: after, agent: x, action: do, dependsOn: [busy]}
  compensation: [{step: done, agent: x, action: undo}]
",
    );
    sim.run("done").unwrap();
    sim.claim("busy").unwrap();
    sim.run_failing("bad", ErrorClass::Agent).unwrap();
    assert_eq!(
        words(&sim),
        ("executing", None),
        "work in flight is awaited"
    );
    assert_eq!(code(sim.claim("late")), Code::RunStopping);
    sim.complete("busy").unwrap();
    expect![[r#"
        RunCreated
        RunQueued
        RunApproved
        RunStarted
        StepStarted done
        StepCompleted done
        StepStarted busy
        StepStarted bad
        StepFailed bad
        RunStopping
        StepSkipped late
        StepCompleted busy
        RunFailed
    "#]]
    .assert_eq(&sim.log());
    assert_eq!(path(&sim), "idle queued executing failed");
    assert_eq!(words(&sim), ("failed", None));
}

#[test]
fn d11_compensate_goes_from_executing_to_compensating() {
    let mut sim = compensating();
    assert_eq!(path(&sim), "idle queued executing compensating");
    sim.run_everything();
    let failed = |it: &Telemetry| it.step.is_none() && it.to == "failed";
    assert!(!emitted(&sim).iter().any(failed));
}

#[test]
fn compensate_beats_abort_when_both_fail() {
    let mut sim = started(
        "
  steps:
  - {name: a, agent: x, action: do}
  - {name: b, agent: x, action: do, dependsOn: [a], onFailure: abort}
  - {name: c, agent: x, action: do, dependsOn: [a], onFailure: compensate}
  compensation: [{step: a, agent: x, action: undo}]
",
    );
    sim.run("a").unwrap();
    sim.claim("b").unwrap();
    sim.claim("c").unwrap();
    sim.fail("b", ErrorClass::Agent).unwrap();
    sim.fail("c", ErrorClass::Agent).unwrap();
    assert_eq!(words(&sim), ("compensating", None));
    sim.run_everything();
    assert_eq!(words(&sim), ("completed", Some("rollback")));
    // The first cause is still the one that is told.
    let error = sim.state.error().cloned().unwrap();
    assert_eq!(error.message, "b: it broke");
}

/// The reading for an empty undo list: there is no rollback to speak of, so the run has failed.
#[test]
fn compensate_with_nothing_done_is_a_plain_failure() {
    let mut sim = started(SAGA.replace("dependsOn: [b], ", "").as_str());
    sim.run_failing("c", ErrorClass::Agent).unwrap();
    assert_eq!(sim.count("CompensationStarted"), 0);
    assert_eq!(path(&sim), "idle queued executing failed");
    assert_eq!(words(&sim), ("failed", None));
}

// also proves: D13
#[test]
fn d12_skip_ends_the_step_skipped_and_its_dependents_run() {
    let mut sim = started(
        "
  steps:
  - {name: note, agent: x, action: do, onFailure: skip}
  - {name: a, agent: x, action: do}
  - {name: z, agent: x, action: do, dependsOn: [note, a]}
",
    );
    sim.run_failing("note", ErrorClass::Agent).unwrap();
    assert_eq!(words(&sim), ("executing", None));
    assert_eq!(step_path(&sim, "note"), "pending running skipped");
    assert_eq!(code(sim.claim("z")), Code::StepNotEligible);
    sim.run("a").unwrap();
    assert_eq!(sim.ready(), ["z"], "the skipped dependency counts");
    sim.run("z").unwrap();
    assert_eq!(path(&sim), "idle queued executing completed");
}

// also proves: D28
#[test]
fn d14_a_step_stays_pending_until_all_its_dependencies_are_met() {
    let mut sim = started(
        "
  steps:
  - {name: a, agent: x, action: do}
  - {name: b, agent: x, action: do, dependsOn: [a]}
  - {name: c, agent: x, action: do, dependsOn: [a]}
  - {name: d, agent: x, action: do, dependsOn: [b, c]}
",
    );
    for step in ["b", "c", "d"] {
        assert_eq!(word(&sim, step), "pending");
        assert_eq!(code(sim.claim(step)), Code::StepNotEligible);
    }
    sim.run("a").unwrap();
    assert_eq!(sim.ready(), ["b", "c"]);
    sim.claim("b").unwrap();
    sim.claim("c").unwrap();
    assert_eq!((word(&sim, "b"), word(&sim, "c")), ("running", "running"));
    sim.complete("c").unwrap();
    assert_eq!(word(&sim, "d"), "pending");
    assert_eq!(code(sim.claim("d")), Code::StepNotEligible);
    sim.complete("b").unwrap();
    assert_eq!(sim.ready(), ["d"]);
}

#[test]
fn d15_a_step_timeout_is_not_retried_and_triggers_on_failure_at_once() {
    let mut sim = started(
        "
  steps:
  - {name: a, agent: x, action: do, timeout: 5s, retryPolicy: {maxRetries: 3}, onFailure: skip}
  - {name: b, agent: x, action: do, dependsOn: [a]}
",
    );
    sim.advance(700).claim("a").unwrap();
    sim.take_effects();
    let (due, _) = sim.next_timer().unwrap();
    assert_eq!(due, START.plus(5_700));
    sim.advance_to_next_timer().unwrap();
    assert_eq!(sim.count("StepExecutionFailed"), 0);
    assert_eq!(word(&sim, "a"), "skipped");
    assert_eq!(sim.ready(), ["b"]);
    assert_eq!(sim.events().last().unwrap().at, START.plus(5_700));
    // The worker is told to stop, and its late result changes nothing.
    let stop = Effect::CancelWork {
        target: Target::Step(sim.at("a")),
        execution: 1,
    };
    assert!(sim.take_effects().contains(&stop));
    assert_eq!(code(sim.complete("a")), Code::StepNotRunning);
    // A worker that reports a timeout itself is treated alike.
    let mut told =
        started("\n  steps: [{name: a, agent: x, action: do, retryPolicy: {maxRetries: 3}}]\n");
    told.run_failing("a", ErrorClass::Timeout).unwrap();
    assert_eq!(path(&told), "idle queued executing failed");
}

const RETRIED: &str = "
  steps:
  - {name: a, agent: x, action: do, retryPolicy: {maxRetries: 3, backoff: 2s, retryOn: [external]}}
";

#[test]
fn d16_validation_and_governance_errors_are_never_retried_and_governance_escalates() {
    for (class, alerts) in [
        (ErrorClass::Validation, vec![]),
        (ErrorClass::Governance, vec!["GOVERNANCE_BLOCKED"]),
    ] {
        // A worker that says it may be retried changes nothing about it.
        for retryable in [None, Some(true)] {
            let mut sim = started(RETRIED);
            sim.claim("a").unwrap();
            sim.send(Command::FailStep {
                claim: sim.claim_on("a"),
                error: StepError::new(class, "NO", "it is not allowed"),
                retryable,
                delay_ms: None,
                ctx: Default::default(),
            })
            .unwrap();
            assert_eq!(word(&sim, "a"), "failed");
            assert_eq!(sim.count("StepExecutionFailed"), 0);
            assert_eq!(sim.alerts(), alerts);
            assert_eq!(path(&sim), "idle queued executing failed");
        }
    }
}

#[test]
fn d17_transient_errors_are_retried_and_others_only_if_configured() {
    for class in [
        ErrorClass::Transient,
        ErrorClass::Transport,
        ErrorClass::RateLimit,
        ErrorClass::External,
    ] {
        let mut sim = started(RETRIED);
        sim.run_failing("a", class).unwrap();
        assert_eq!(word(&sim, "a"), "running", "{class:?}");
        assert_eq!(code(sim.advance(1_999).claim("a")), Code::StepNotEligible);
        sim.advance(1).run("a").unwrap();
        assert_eq!(path(&sim), "idle queued executing completed");
    }
    for class in [ErrorClass::Agent, ErrorClass::Unknown] {
        let mut sim = started(RETRIED);
        sim.run_failing("a", class).unwrap();
        assert_eq!(path(&sim), "idle queued executing failed", "{class:?}");
    }
    // Where a step says nothing, errors that pass are retried and others are not.
    let mut silent = started(CHAIN);
    silent.run_failing("a", ErrorClass::Transient).unwrap();
    assert_eq!(silent.count("StepExecutionFailed"), 1);
    silent.advance(1_000).run("a").unwrap();
    let mut external = started(CHAIN);
    external.run_failing("a", ErrorClass::External).unwrap();
    assert_eq!(path(&external), "idle queued executing failed");
    let none = CHAIN.replace("a, agent: x,", "a, agent: x, retryPolicy: {maxRetries: 0},");
    let mut never = started(&none);
    never.run_failing("a", ErrorClass::Transient).unwrap();
    assert_eq!(path(&never), "idle queued executing failed");
}

#[test]
fn d18_three_retries_are_four_executions() {
    let mut sim = started(RETRIED);
    for execution in 1..=4 {
        assert_eq!(sim.outcome(), None);
        sim.run_failing("a", ErrorClass::Transient).unwrap();
        assert_eq!(sim.claim_on("a").execution, execution);
        sim.advance(2_000);
    }
    assert_eq!(path(&sim), "idle queued executing failed");
    assert_eq!(sim.count("StepExecutionFailed"), 3);
    // Executions that were lost with their worker ended with no error, and are not among the four.
    let mut lost = started(RETRIED);
    for failed in 0..4 {
        assert_eq!((lost.outcome(), lost.step("a").tries()), (None, failed));
        for _ in 0..2 {
            lost.claim("a").unwrap();
            lost.expire_lease("a").unwrap();
        }
        lost.run_failing("a", ErrorClass::Transient).unwrap();
        lost.advance(2_000);
    }
    assert_eq!(path(&lost), "idle queued executing failed");
    assert_eq!(lost.step("a").losses(), 8);
}

// also proves: D19
#[test]
fn delays_between_executions_follow_the_strategy_and_the_cap() {
    for (backoff, delays) in [
        ("constant", [2_000, 2_000, 2_000, 2_000]),
        ("linear", [2_000, 4_000, 6_000, 7_000]),
        ("exponential", [2_000, 4_000, 7_000, 7_000]),
    ] {
        let mut sim = started(&format!(
            "\n  steps: [{{name: a, agent: x, action: do, retryPolicy: {{maxRetries: 4, backoff: {backoff}, initialDelay: 2s, maxDelay: 7s}}}}]\n"
        ));
        for delay in delays {
            sim.run_failing("a", ErrorClass::Transient).unwrap();
            let retry_at = match sim.last() {
                Some(Body::StepExecutionFailed { retry_at, .. }) => *retry_at,
                other => panic!("{other:?}"),
            };
            assert_eq!(retry_at, sim.env.now.plus(delay), "{backoff}");
            assert_eq!(
                code(sim.advance(delay - 1).claim("a")),
                Code::StepNotEligible
            );
            sim.advance(1);
        }
        sim.run("a").unwrap();
        assert_eq!(path(&sim), "idle queued executing completed");
    }
}
