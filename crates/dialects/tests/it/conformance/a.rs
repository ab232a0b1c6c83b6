//! A: actions.md.

use expect_test::expect;
use serde_json::{Value as Json, json};
use stepwell_dialects::actions::evidence::{EvidenceKind, evidence, verify};
use stepwell_dialects::actions::words::{run_substatus, run_word, step_word};
use stepwell_kernel::command::{
    Actor, Claimed, Command, EarlierResult, ManualOutcome, Reply, Role, TimerKind, WaitFor,
};
use stepwell_kernel::effect::{Effect, RunOutcome, Target};
use stepwell_kernel::event::{Body, Event, Rollback, StepError, UndoOutcome};
use stepwell_kernel::keys;
use stepwell_kernel::plan::ErrorClass;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::{State, Status};
use stepwell_kernel::time::Time;

use crate::support::{START, Sent, Sim, actor, code};

/// A workflow of the tier `Auto`. Each action is its id and further fields in flow style; its order
/// is its place.
fn workflow(actions: &[(&str, &str)]) -> String {
    let mut text = "schemaVersion: 1\nworkflowId: w\nworkspaceId: s\nname: W\nversion: 2\n\
         active: true\nexecutionTier: Auto\nactions:\n"
        .to_owned();
    for (at, (id, more)) in actions.iter().enumerate() {
        let (order, comma) = (at + 1, if more.is_empty() { "" } else { ", " });
        text.push_str(&format!(
            "- {{actionId: {id}, order: {order}, portFamily: q, operation: 'a:b'{comma}{more}}}\n"
        ));
    }
    text
}

fn started(actions: &[(&str, &str)]) -> Sim {
    Sim::start_of(&workflow(actions))
}

const UNDO: &str = "compensation: {compensationOperation: 'a:undo', compensationInput: {}}";
const MANUAL: &str = "completionMode: manual";

/// An action's state in the language's words.
fn word(sim: &Sim, action: &str) -> &'static str {
    step_word(&sim.plan, &sim.state, sim.at(action))
}

#[track_caller]
fn claimed(sent: Sent) -> Claimed {
    match sent {
        Ok(Reply::Claimed(claimed)) => *claimed,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn already(sent: Sent) -> EarlierResult {
    match sent {
        Ok(Reply::Duplicate(first)) => *first,
        other => panic!("{other:?}"),
    }
}

/// What was offered since the last call, in the order it was, with its time after the start.
fn offered(sim: &mut Sim) -> Vec<(String, u64)> {
    let effects = sim.take_effects();
    let offer = |effect| match effect {
        Effect::Dispatch {
            target, visible_at, ..
        } => Some((sim.plan.step_id(target.step_ref()), visible_at.since(START))),
        _ => None,
    };
    effects.into_iter().filter_map(offer).collect()
}

fn names(offers: Vec<(String, u64)>) -> Vec<String> {
    offers.into_iter().map(|(name, _)| name).collect()
}

// 1. The execution graph.

// also proves: A3
#[test]
fn a2_without_a_graph_the_next_action_waits_for_the_one_before() {
    // The file lists them in another order than they run in.
    let text = workflow(&[("c", ""), ("a", ""), ("b", "")])
        .replace("order: 1", "order: 9")
        .replace("order: 2", "order: 1")
        .replace("order: 3", "order: 2")
        .replace("order: 9", "order: 3");
    let mut sim = Sim::start_of(&text);
    for (action, later) in [("a", ["b", "c"]), ("b", ["c", "c"]), ("c", ["a", "b"])] {
        assert_eq!(sim.ready(), [action]);
        sim.claim(action).unwrap();
        assert_eq!(sim.ready(), [""; 0], "at most one is in flight");
        for other in later {
            assert!(sim.claim(other).is_err());
        }
        // A failed attempt is not the end of the action either.
        sim.fail(action, ErrorClass::Transient).unwrap();
        assert_eq!(sim.ready(), [""; 0]);
        sim.advance(1_000);
        assert_eq!(sim.ready(), [action]);
        sim.run(action).unwrap();
    }
    assert_eq!(run_word(&sim.state), "Succeeded");
}

#[test]
fn a4_an_action_becomes_runnable_when_every_predecessor_succeeded() {
    let mut sim = started(&[
        ("a", ""),
        ("b", ""),
        ("c", "dependsOn: [a, b]"),
        ("d", "dependsOn: [a]"),
    ]);
    assert_eq!(sim.ready(), ["a", "b"]);
    sim.run("a").unwrap();
    assert_eq!(sim.ready(), ["b", "d"]);
    assert_eq!(code(sim.claim("c")), Code::StepNotEligible);
    sim.run("d").unwrap();
    sim.claim("b").unwrap();
    assert_eq!(code(sim.claim("c")), Code::StepNotEligible);
    sim.complete("b").unwrap();
    assert_eq!(sim.ready(), ["c"]);
}

// also proves: A31
#[test]
fn a5_actions_that_become_runnable_together_are_offered_by_order() {
    let fan = "dependsOn: [first]";
    let text = workflow(&[("first", ""), ("z", fan), ("m", fan), ("a", fan)]);
    let mut sim = Sim::start_of(&text);
    assert_eq!(names(offered(&mut sim)), ["first"]);
    sim.run("first").unwrap();
    assert_eq!(names(offered(&mut sim)), ["z", "m", "a"]);
    // After a pause too.
    sim.pause().unwrap();
    sim.resume().unwrap();
    assert_eq!(names(offered(&mut sim)), ["z", "m", "a"]);
    // However the file lists them.
    let (head, actions) = text.split_at(text.find("- {").unwrap());
    let mut lines: Vec<&str> = actions.lines().collect();
    lines.reverse();
    let reversed = format!("{head}{}\n", lines.join("\n"));
    let mut sim = Sim::start_of(&reversed);
    sim.run("first").unwrap();
    assert_eq!(names(offered(&mut sim)), ["first", "z", "m", "a"]);
}

#[test]
fn a6_after_a_failure_for_good_nothing_is_offered_any_more() {
    // In sequence, and with attempts used up.
    let once = "retryPolicy: {maxAttempts: 1}";
    let mut sim = started(&[("a", once), ("b", "")]);
    sim.take_effects();
    sim.run_failing("a", ErrorClass::Transient).unwrap();
    assert_eq!(offered(&mut sim), []);
    assert_eq!(run_word(&sim.state), "Failed");
    assert_eq!((word(&sim, "a"), word(&sim, "b")), ("Failed", "Cancelled"));
    // In a graph: what was offered is withdrawn, what would follow a sibling is not offered.
    let mut sim = started(&[
        ("a", "dependsOn: []"),
        ("b", ""),
        ("c", ""),
        ("d", "dependsOn: [b]"),
    ]);
    sim.claim("b").unwrap();
    sim.take_effects();
    sim.run_failing("a", ErrorClass::Validation).unwrap();
    assert_eq!(code(sim.claim("c")), Code::RunStopping);
    assert_eq!(word(&sim, "c"), "Cancelled");
    sim.complete("b").unwrap();
    assert_eq!(offered(&mut sim), []);
    assert_eq!(word(&sim, "b"), "Succeeded");
    assert_eq!(word(&sim, "d"), "Cancelled");
    assert_eq!(run_word(&sim.state), "Failed");
}

/// `a` and its siblings run when it fails: one works, one waits for a person, one backs off.
fn failing_among_siblings() -> Sim {
    let mut sim = started(&[
        ("a", "dependsOn: []"),
        ("works", UNDO),
        ("person", MANUAL),
        ("retries", ""),
        ("done", UNDO),
    ]);
    sim.run("done").unwrap();
    sim.claim("works").unwrap();
    sim.run("person").unwrap();
    sim.run_failing("retries", ErrorClass::Transient).unwrap();
    assert_eq!(word(&sim, "person"), "WaitingForManualCompletion");
    assert_eq!(word(&sim, "retries"), "Running");
    sim.claim("a").unwrap();
    sim.take_effects();
    sim.fail("a", ErrorClass::Conflict).unwrap();
    sim
}

#[test]
fn a7_siblings_end_before_compensation_starts() {
    let mut sim = failing_among_siblings();
    // Who waits is ended by the engine, who works is asked to stop and awaited.
    assert_eq!(word(&sim, "person"), "Cancelled");
    assert_eq!(word(&sim, "retries"), "Cancelled");
    assert_eq!(word(&sim, "works"), "Running");
    let works = sim.claim_on("works");
    assert!(sim.take_effects().contains(&Effect::CancelWork {
        target: works.target,
        execution: works.execution,
    }));
    assert_eq!(sim.count("CompensationStarted"), 0);
    assert_eq!(code(sim.claim_undo("done")), Code::RunStopping);
    // It finishes: it is undone too, and first.
    sim.complete("works").unwrap();
    sim.run_undo("works").unwrap();
    sim.run_undo("done").unwrap();
    expect![[r#"
        RunCreated
        RunApproved
        RunStarted
        StepStarted done
        StepCompleted done
        StepStarted works
        StepStarted person
        StepWaiting person
        StepStarted retries
        StepExecutionFailed retries
        StepStarted a
        StepFailed a
        RunStopping
        StepFailed person
        StepFailed retries
        StepCompleted works
        CompensationStarted
        UndoStarted works
        UndoCompleted works
        UndoStarted done
        UndoCompleted done
        RunFailed
    "#]]
    .assert_eq(&sim.log());
}

#[test]
fn a7_a_sibling_that_can_be_cancelled_is() {
    let mut sim = failing_among_siblings();
    sim.confirm_kill("works").unwrap();
    assert_eq!(word(&sim, "works"), "Cancelled");
    sim.run_undo("works").unwrap();
    sim.run_undo("done").unwrap();
    assert_eq!(run_word(&sim.state), "Failed");
    assert_eq!(
        sim.count("UndoCompleted"),
        2,
        "an action that was cut off may have had its effect, so it is undone too"
    );
}

#[test]
fn a7_a_sibling_whose_worker_is_gone_ends_with_its_lease() {
    let mut sim = failing_among_siblings();
    sim.expire_lease("works").unwrap();
    assert_eq!(word(&sim, "works"), "Cancelled");
    sim.run_undo("works").unwrap();
    sim.run_undo("done").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::Complete)));
}

#[test]
fn a7_a_sibling_whose_worker_hands_over_to_a_person_is_cancelled() {
    for by_result in [true, false] {
        let mut sim = started(&[("a", "dependsOn: []"), ("person", MANUAL)]);
        sim.claim("person").unwrap();
        sim.run_failing("a", ErrorClass::Conflict).unwrap();
        if by_result {
            sim.complete("person").unwrap();
        } else {
            sim.wait("person", WaitFor::Manual, None).unwrap();
        }
        // Only a person's signal could have made it succeed.
        assert_eq!(word(&sim, "person"), "Cancelled", "{by_result}");
        assert_eq!(run_word(&sim.state), "Failed");
    }
}

// 2. The lifecycle of an action.

#[test]
fn a8_an_action_that_is_not_eligible_does_not_start() {
    let mut sim = Sim::load(&workflow(&[("a", ""), ("b", "")]));
    assert_eq!(code(sim.claim("a")), Code::RunUnknown);
    sim.create().unwrap();
    assert_eq!(code(sim.claim("a")), Code::RunNotRunning);
    sim.start_run().unwrap();
    assert_eq!(code(sim.claim("b")), Code::StepNotEligible);
    assert_eq!(word(&sim, "b"), "Pending");
    sim.pause().unwrap();
    assert_eq!(code(sim.claim("a")), Code::RunPaused);
    assert_eq!(word(&sim, "a"), "Pending");
    sim.resume().unwrap();
    sim.claim("a").unwrap();
    assert_eq!(code(sim.claim("a")), Code::StepNotEligible, "it is taken");
    // A gate comes before the action.
    let mut sim = started(&[("a", "executionTierOverride: HumanApprove")]);
    assert_eq!(code(sim.claim("a")), Code::StepNotEligible);
    assert_eq!(
        (run_word(&sim.state), word(&sim, "a")),
        ("WaitingForApproval", "Pending")
    );
    sim.answer("a", ManualOutcome::Succeeded, "boss").unwrap();
    sim.run("a").unwrap();
    assert_eq!(run_word(&sim.state), "Succeeded");
}

#[test]
fn a9_a_second_result_changes_nothing() {
    let fails = |sim: &mut Sim, step: &str| sim.fail(step, ErrorClass::Validation);
    // Succeeded first, in a run that goes on.
    let mut sim = started(&[("a", ""), ("b", "")]);
    sim.run_with("a", json!(1)).unwrap();
    let seq = sim.state.seq();
    assert_eq!(
        already(sim.complete_with("a", json!(1))),
        EarlierResult::Succeeded
    );
    assert_eq!(
        already(sim.complete_with("a", json!(2))),
        EarlierResult::SucceededOtherwise
    );
    assert_eq!(code(fails(&mut sim, "a")), Code::StepNotRunning);
    assert_eq!(code(sim.wait_for_event("a", "e")), Code::StepNotRunning);
    assert_eq!(sim.state.seq(), seq);
    assert_eq!(sim.step("a").output().map(|it| &**it), Some(&json!(1)));
    // Failed first, in a run that has ended.
    sim.claim("b").unwrap();
    fails(&mut sim, "b").unwrap();
    let first = StepError::new(ErrorClass::Validation, "VALIDATION", "it broke");
    assert_eq!(
        already(sim.fail("b", ErrorClass::Transport)),
        EarlierResult::FailedOtherwise(first.clone())
    );
    assert_eq!(already(fails(&mut sim, "b")), EarlierResult::Failed(first));
    assert_eq!(code(sim.complete("b")), Code::StepNotRunning);
    // Another execution of the same action.
    let mut sim = started(&[("a", "")]);
    sim.claim("a").unwrap();
    let old = sim.claim_on("a");
    sim.fail("a", ErrorClass::Transient).unwrap();
    sim.advance(1_000).run("a").unwrap();
    assert_eq!(
        code(sim.fail_claim(old.clone(), ErrorClass::Transient)),
        Code::StaleExecution
    );
    let stale = sim.complete_all(old, Json::Null, json!({}), Vec::new());
    assert_eq!(code(stale), Code::StaleExecution);
}

#[test]
fn a10_only_a_manual_action_can_wait_for_manual_completion() {
    let mut sim = started(&[("a", ""), ("b", MANUAL)]);
    sim.claim("a").unwrap();
    assert_eq!(code(sim.wait("a", WaitFor::Manual, None)), Code::NotManual);
    assert_eq!(word(&sim, "a"), "Running");
    // Any other wait is not for a person, and is not called so.
    sim.wait_for_event("a", "paid").unwrap();
    assert_eq!(word(&sim, "a"), "Running");
    sim.deliver("e1", "paid", Json::Null).unwrap();
    sim.claim("a").unwrap();
    sim.wait("a", WaitFor::Timer, Some(10)).unwrap();
    assert_eq!(word(&sim, "a"), "Running");
    sim.advance(10).fire_due_timers();
    sim.run("a").unwrap();
    sim.claim("b").unwrap();
    sim.wait("b", WaitFor::Manual, None).unwrap();
    assert_eq!(word(&sim, "b"), "WaitingForManualCompletion");
}

#[test]
fn a11_waiting_for_manual_completion_is_not_the_end_of_anything() {
    let mut sim = started(&[("a", MANUAL), ("b", "")]);
    sim.run("a").unwrap();
    assert_eq!(word(&sim, "a"), "WaitingForManualCompletion");
    assert_eq!(code(sim.claim("b")), Code::StepNotEligible);
    assert_eq!(run_word(&sim.state), "Running");
    sim.answer("a", ManualOutcome::Succeeded, "someone")
        .unwrap();
    assert_eq!(word(&sim, "a"), "Succeeded");
    sim.run("b").unwrap();
    // At the end of the run.
    let mut sim = started(&[("a", MANUAL)]);
    sim.run("a").unwrap();
    assert_eq!(sim.outcome(), None);
    sim.answer("a", ManualOutcome::Succeeded, "someone")
        .unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

// 3. Retry, timeout, manual completion.

#[test]
fn a12_max_attempts_three_gives_exactly_three_executions() {
    let mut sim = started(&[("a", "retryPolicy: {maxAttempts: 3}")]);
    for attempt in 1..=3 {
        assert_eq!(claimed(sim.claim("a")).claim.execution, attempt);
        sim.fail("a", ErrorClass::Transient).unwrap();
        let expected = if attempt < 3 { "Running" } else { "Failed" };
        assert_eq!(word(&sim, "a"), expected);
        sim.advance(30_000);
    }
    assert_eq!(code(sim.claim("a")), Code::RunTerminal);
    assert_eq!(run_word(&sim.state), "Failed");
}

#[test]
fn a12_an_execution_that_was_lost_is_none_of_the_three() {
    let mut sim = started(&[("a", "retryPolicy: {maxAttempts: 3}")]);
    for attempt in 1..=3 {
        sim.claim("a").unwrap();
        sim.expire_lease("a").unwrap();
        assert_eq!(word(&sim, "a"), "Running");
        sim.run_failing("a", ErrorClass::Transient).unwrap();
        let expected = if attempt < 3 { "Running" } else { "Failed" };
        assert_eq!(word(&sim, "a"), expected);
        sim.advance(30_000);
    }
    let failed = |event: &&Event| match &event.body {
        Body::StepExecutionFailed { loss, .. } => loss.is_none(),
        Body::StepFailed { .. } => true,
        _ => false,
    };
    assert_eq!(sim.events().iter().filter(failed).count(), 3);
}

#[test]
fn a15_retries_wait_as_the_formula_says_to_the_millisecond() {
    let delays = |policy: &str, attempts: u32| -> Vec<u64> {
        let more = format!("retryPolicy: {{maxAttempts: {attempts}{policy}}}");
        let mut sim = started(&[("a", &more)]);
        let mut delays = Vec::new();
        for _ in 1..attempts {
            sim.run_failing("a", ErrorClass::Unknown).unwrap();
            let Some(Body::StepExecutionFailed { retry_at, .. }) = sim.last() else {
                panic!("{:?}", sim.last());
            };
            let delay = retry_at.since(sim.env.now);
            sim.advance(delay - 1);
            assert_eq!(code(sim.claim("a")), Code::StepNotEligible, "too early");
            sim.advance(1);
            delays.push(delay);
        }
        delays
    };
    assert_eq!(
        delays("", 10),
        [
            1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000, 30_000
        ]
    );
    let policy = ", initialBackoffMs: 100, backoffMultiplier: 1.5, maxBackoffMs: 300";
    assert_eq!(delays(policy, 5), [100, 150, 225, 300]);
}

// also proves: A17, A18
#[test]
fn a16_what_cannot_be_mended_is_not_retried_and_the_rest_is() {
    use ErrorClass::{Auth, Conflict, Policy, RateLimit, Timeout, Transient, Transport, Unknown};
    for class in [ErrorClass::Validation, Policy, Auth, Conflict] {
        // Whatever the worker thinks of it.
        for retryable in [None, Some(false), Some(true)] {
            let mut sim = started(&[("a", "retryPolicy: {maxAttempts: 10}")]);
            sim.claim("a").unwrap();
            let claim = sim.claim_on("a");
            sim.send(Command::FailStep {
                claim,
                error: StepError::new(class, "NO", "no"),
                retryable,
                delay_ms: None,
                ctx: Default::default(),
            })
            .unwrap();
            assert_eq!(word(&sim, "a"), "Failed", "{class:?} {retryable:?}");
            assert_eq!(run_word(&sim.state), "Failed");
        }
    }
    for class in [Timeout, RateLimit, Transient, Transport, Unknown] {
        let mut sim = started(&[("a", "retryPolicy: {maxAttempts: 4}")]);
        let mut executions = 0;
        while sim.outcome().is_none() {
            sim.run_failing("a", class).unwrap();
            executions += 1;
            sim.advance(30_000);
        }
        assert_eq!(executions, 4, "{class:?}");
    }
}

#[test]
fn a19_an_attempt_that_takes_too_long_fails_as_a_timeout_and_is_retried() {
    let mut sim = started(&[("a", "timeoutMs: 5000, retryPolicy: {maxAttempts: 2}")]);
    sim.claim("a").unwrap();
    let late = sim.claim_on("a");
    sim.take_effects();
    sim.advance_to_next_timer().unwrap();
    assert_eq!(sim.env.now, START.plus(5_000));
    let Some(Body::StepExecutionFailed {
        error, retry_at, ..
    }) = sim.last()
    else {
        panic!("{:?}", sim.last());
    };
    assert_eq!(error.class.name(), "timeout");
    assert_eq!(*retry_at, START.plus(6_000));
    // The worker is told, and is too late.
    assert!(sim.take_effects().contains(&Effect::CancelWork {
        target: late.target,
        execution: 1,
    }));
    let result = sim.complete_all(late, Json::Null, json!({}), Vec::new());
    assert_eq!(code(result), Code::StepNotRunning);
    sim.advance(1_000).claim("a").unwrap();
    sim.advance_to_next_timer().unwrap();
    assert_eq!(sim.env.now, START.plus(11_000));
    assert_eq!(word(&sim, "a"), "Failed");
    assert_eq!(sim.state.error().unwrap().class, ErrorClass::Timeout);
}

#[test]
fn a19_a_timeout_that_is_not_among_the_retryable_errors_is_final() {
    let policy = "timeoutMs: 5000, retryPolicy: {retryableErrors: [transport]}";
    let mut sim = started(&[("a", policy)]);
    sim.claim("a").unwrap();
    sim.advance_to_next_timer().unwrap();
    assert_eq!(word(&sim, "a"), "Failed");
}

#[test]
fn a20_every_attempt_has_five_minutes_of_its_own() {
    let mut sim = started(&[("a", "")]);
    for (claim, due) in [(0, 300_000), (310_000, 610_000), (620_000, 920_000)] {
        sim.env.now = START.plus(claim);
        sim.claim("a").unwrap();
        let (at, id) = sim.next_timer().unwrap();
        assert_eq!((at, id.kind), (START.plus(due), TimerKind::Attempt));
        sim.env.now = START.plus(due - 1);
        let early = sim.send(Command::FireTimer(id));
        assert_eq!(code(early), Code::TimerNotDue);
        sim.advance_to_next_timer().unwrap();
    }
    assert_eq!(word(&sim, "a"), "Failed");
}

#[test]
fn a21_entering_the_wait_makes_a_token_and_keeps_its_hash() {
    let mut sim = started(&[("a", MANUAL), ("b", "executionTierOverride: ManualOnly")]);
    sim.claim("a").unwrap();
    sim.take_effects();
    sim.complete("a").unwrap();
    let token = sim.token("a");
    assert_eq!(token.len(), 64, "as long as a SHA-256");
    let Some(Body::StepWaiting { token_hash, .. }) = sim.last() else {
        panic!("{:?}", sim.last());
    };
    assert_eq!(*token_hash, Some(keys::sha256_hex(&token)));
    assert!(
        sim.take_effects()
            .iter()
            .any(|effect| matches!(effect, Effect::IssueToken { .. }))
    );
    // It outlives a crash, and the log does not give it away.
    sim.crash();
    assert_eq!(sim.token("a"), token);
    let log = serde_json::to_string(sim.events()).unwrap();
    assert!(!log.contains(&token));
    sim.answer("a", ManualOutcome::Succeeded, "someone")
        .unwrap();
    // Each wait has its own.
    assert_ne!(sim.token("b"), token);
}

#[test]
fn a22_a_signal_needs_an_open_wait_and_its_token() {
    let mut sim = started(&[("a", MANUAL), ("b", MANUAL)]);
    let answer = |sim: &mut Sim, step: &str, token: &str| {
        code(sim.answer_with(step, token, ManualOutcome::Succeeded, "someone"))
    };
    assert_eq!(answer(&mut sim, "a", "x"), Code::StepNotWaiting, "Pending");
    assert_eq!(answer(&mut sim, "b", "x"), Code::StepUnknown, "not reached");
    sim.claim("a").unwrap();
    assert_eq!(answer(&mut sim, "a", "x"), Code::StepNotWaiting, "Running");
    sim.complete("a").unwrap();
    for wrong in ["", "x", &sim.token("a").to_uppercase()] {
        assert_eq!(answer(&mut sim, "a", wrong), Code::TokenMismatch);
    }
    let first = sim.token("a");
    sim.answer("a", ManualOutcome::Succeeded, "someone")
        .unwrap();
    assert_eq!(
        answer(&mut sim, "a", "x"),
        Code::StepNotWaiting,
        "Succeeded"
    );
    // The token of one action opens no other.
    sim.run("b").unwrap();
    assert_eq!(answer(&mut sim, "b", &first), Code::TokenMismatch);
    assert_eq!(word(&sim, "b"), "WaitingForManualCompletion");
}

#[test]
fn a23_a_repeated_signal_reports_the_first_outcome() {
    use ManualOutcome::{Cancelled, Failed, Succeeded};
    for first in [Succeeded, Failed, Cancelled] {
        let mut sim = started(&[("a", MANUAL)]);
        sim.run("a").unwrap();
        let token = sim.token("a");
        sim.answer("a", first, "someone").unwrap();
        let seq = sim.state.seq();
        for (again, by) in [
            (first, "someone"),
            (Succeeded, "other"),
            (Failed, "someone"),
        ] {
            let reply = already(sim.answer_with("a", &token, again, by));
            assert_eq!(reply, EarlierResult::Manual(first));
        }
        sim.crash();
        let reply = already(sim.answer_with("a", &token, Failed, "someone"));
        assert_eq!(reply, EarlierResult::Manual(first));
        assert_eq!(sim.state.seq(), seq);
    }
}

#[test]
fn a23_an_approval_and_a_completion_of_one_action_are_both_remembered() {
    let both = "executionTierOverride: HumanApprove, completionMode: manual";
    let mut sim = started(&[("a", both), ("b", "")]);
    let approval = sim.token("a");
    sim.answer("a", ManualOutcome::Succeeded, "boss").unwrap();
    sim.run("a").unwrap();
    let completion = sim.token("a");
    assert_ne!(approval, completion);
    sim.answer("a", ManualOutcome::Failed, "clerk").unwrap();
    let again = |sim: &mut Sim, token: &str| {
        already(sim.answer_with("a", token, ManualOutcome::Cancelled, "boss"))
    };
    assert_eq!(
        again(&mut sim, &completion),
        EarlierResult::Manual(ManualOutcome::Failed)
    );
    assert_eq!(
        again(&mut sim, &approval),
        EarlierResult::Manual(ManualOutcome::Succeeded)
    );
}

#[test]
fn a24_separation_of_duties_is_checked_before_a_signal_is_taken() {
    use ManualOutcome::{Failed, Succeeded};
    let denied = |sim: &mut Sim, step: &str, by: &str| {
        for outcome in [Succeeded, Failed, ManualOutcome::Cancelled] {
            let before = sim.state.seq();
            assert_eq!(code(sim.answer(step, outcome, by)), Code::SodDenied);
            assert_eq!(sim.state.seq(), before);
            assert_eq!(word(sim, step), "WaitingForManualCompletion");
        }
    };
    let duties = |list: &str| format!("{MANUAL}, separationOfDuties: [{list}]");
    // Who started the run may not complete it.
    let mut sim = started(&[("a", &duties("MakerChecker"))]);
    sim.run("a").unwrap();
    denied(&mut sim, "a", "maker");
    sim.answer("a", Succeeded, "checker").unwrap();
    assert_eq!(word(&sim, "a"), "Succeeded");
    // Who did one may not do the other.
    let mut sim = started(&[("a", MANUAL), ("b", &duties("{incompatibleDuties: [a]}"))]);
    sim.run("a").unwrap();
    sim.answer("a", Succeeded, "ann").unwrap();
    sim.run("b").unwrap();
    denied(&mut sim, "b", "ann");
    sim.answer("b", Succeeded, "bob").unwrap();
    // Two different people are needed; one of them twice is one.
    let mut sim = started(&[("a", &duties("{distinctApprovers: 2}"))]);
    sim.run("a").unwrap();
    sim.answer("a", Succeeded, "ann").unwrap();
    let seq = sim.state.seq();
    assert_eq!(
        already(sim.answer("a", Succeeded, "ann")),
        EarlierResult::Manual(Succeeded)
    );
    assert_eq!(sim.state.seq(), seq);
    assert_eq!(word(&sim, "a"), "WaitingForManualCompletion");
    sim.answer("a", Succeeded, "bob").unwrap();
    assert_eq!(word(&sim, "a"), "Succeeded");
}

#[test]
fn a24_who_may_only_look_or_belongs_elsewhere_is_refused() {
    let mut sim = started(&[("a", MANUAL)]);
    sim.run("a").unwrap();
    let token = sim.token("a");
    let mut send = |actor: Actor| {
        let step = sim.at("a");
        code(sim.send(Command::CompleteManually {
            details: Default::default(),
            step,
            token: token.clone(),
            outcome: ManualOutcome::Succeeded,
            actor,
            output: Json::Null,
        }))
    };
    let stranger = Actor {
        tenant: Some("other".into()),
        ..actor("stranger", Role::Admin)
    };
    assert_eq!(send(stranger), Code::AuthzTenantForbidden);
    assert_eq!(send(actor("guest", Role::Viewer)), Code::AuthzDenied);
    assert_eq!(word(&sim, "a"), "WaitingForManualCompletion");
}

#[test]
fn a_manual_outcome_is_the_actions_state_and_is_never_retried() {
    use ManualOutcome::{Cancelled, Failed};
    let retries = "retryPolicy: {maxAttempts: 5}";
    for more in [
        format!("{MANUAL}, {retries}"),
        format!("executionTierOverride: ManualOnly, {retries}"),
    ] {
        for (outcome, expected) in [(Failed, "Failed"), (Cancelled, "Cancelled")] {
            let mut sim = started(&[("done", UNDO), ("a", &more)]);
            sim.run("done").unwrap();
            if sim.status("a") == Some(Status::Ready) {
                sim.run("a").unwrap();
            }
            sim.answer("a", outcome, "someone").unwrap();
            assert_eq!(word(&sim, "a"), expected, "{more}");
            // The run has failed, so what was done is undone.
            sim.run_undo("done").unwrap();
            assert_eq!(run_word(&sim.state), "Failed");
        }
    }
}

// 4. Compensation.

// also proves: A29
#[test]
fn a25_a_failure_is_compensated_if_something_left_a_mark() {
    let failing = |first: &str| {
        let mut sim = started(&[("a", first), ("b", "")]);
        sim.run("a").unwrap();
        sim.run_failing("b", ErrorClass::Conflict).unwrap();
        sim
    };
    for unmarked in ["", "sideEffecting: false"] {
        let sim = failing(unmarked);
        assert_eq!(sim.count("CompensationStarted"), 0);
        assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
        assert_eq!(run_substatus(&sim.state), None);
    }
    let mut sim = failing(UNDO);
    assert_eq!(sim.outcome(), None);
    sim.run_undo("a").unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::Complete)));
    assert_eq!(
        (run_word(&sim.state), run_substatus(&sim.state)),
        ("Failed", Some("Compensated"))
    );
    // It says that it has a side effect, and has no hook: recorded, and the rest goes on.
    let sim = failing("sideEffecting: true");
    assert_eq!(sim.count("CompensationStarted"), 1);
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Failed(Rollback::Incomplete))
    );
    assert_eq!(sim.state.undos()[0].outcome, UndoOutcome::NotCompensable);
    // An action that failed leaves no mark, nor does one that was never reached.
    let mut sim = started(&[("a", UNDO), ("b", UNDO)]);
    sim.run_failing("a", ErrorClass::Conflict).unwrap();
    assert_eq!(sim.outcome(), Some(RunOutcome::Failed(Rollback::None)));
}

#[test]
fn a25_a_run_that_succeeds_or_is_cancelled_is_not_compensated() {
    let mut sim = started(&[("a", UNDO), ("b", "")]);
    sim.run_everything();
    assert_eq!(
        (sim.count("CompensationStarted"), run_word(&sim.state)),
        (0, "Succeeded")
    );
    let mut sim = started(&[("a", UNDO), ("b", "")]);
    sim.run("a").unwrap();
    sim.cancel().unwrap();
    assert_eq!(
        (sim.count("CompensationStarted"), run_word(&sim.state)),
        (0, "Cancelled")
    );
}

/// Four actions beside each other that complete as `order` says, then one that fails.
fn compensating(order: &[&str]) -> Sim {
    let mut sim = started(&[
        ("a", &format!("dependsOn: [], {UNDO}")),
        ("b", UNDO),
        ("c", "sideEffecting: true"),
        ("d", UNDO),
        ("last", "dependsOn: [a, b, c, d]"),
    ]);
    for action in ["a", "b", "c", "d"] {
        sim.claim(action).unwrap();
    }
    for action in order {
        sim.complete(action).unwrap();
    }
    sim.run_failing("last", ErrorClass::Conflict).unwrap();
    sim
}

#[test]
fn a26_hooks_run_in_reverse_completion_order() {
    for (order, expected) in [
        (["b", "d", "c", "a"], ["a", "d", "b"]),
        (["a", "b", "c", "d"], ["d", "b", "a"]),
        (["d", "c", "b", "a"], ["a", "b", "d"]),
    ] {
        let mut sim = compensating(&order);
        for undo in expected {
            // One at a time.
            assert_eq!(sim.ready(), [undo]);
            sim.claim_undo(undo).unwrap();
            assert_eq!(sim.ready(), [""; 0]);
            sim.complete_undo(undo).unwrap();
        }
        assert_eq!(run_word(&sim.state), "Failed");
    }
}

#[test]
fn a27_every_attempt_of_a_hook_carries_its_one_key() {
    let mut sim = compensating(&["a", "b", "c", "d"]);
    for attempt in 1..=2 {
        let given = claimed(sim.claim_undo("d"));
        assert_eq!(given.idempotency_key, "run_sim:d:compensate");
        assert_eq!(given.claim.execution, attempt);
        sim.fail_undo("d", ErrorClass::Transient).unwrap();
        sim.crash();
        sim.advance(10_000);
    }
    assert_eq!(
        claimed(sim.claim_undo("b")).idempotency_key,
        "run_sim:b:compensate"
    );
}

#[test]
fn a28_a_hook_is_tried_twice_and_its_failure_does_not_stop_the_others() {
    let mut sim = compensating(&["a", "b", "c", "d"]);
    sim.claim_undo("d").unwrap();
    sim.fail_undo("d", ErrorClass::Transient).unwrap();
    let Some(Body::UndoExecutionFailed { retry_at, .. }) = sim.last() else {
        panic!("{:?}", sim.last());
    };
    assert_eq!(*retry_at, START.plus(1_000));
    sim.advance(999);
    assert_eq!(code(sim.claim_undo("d")), Code::StepNotEligible);
    sim.advance(1);
    sim.claim_undo("d").unwrap();
    sim.fail_undo("d", ErrorClass::Transient).unwrap();
    assert_eq!(sim.count("UndoFailed"), 1);
    // A final failure is tried once.
    sim.claim_undo("b").unwrap();
    sim.fail_undo("b", ErrorClass::Auth).unwrap();
    assert_eq!(sim.count("UndoFailed"), 2);
    sim.run_undo("a").unwrap();
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Failed(Rollback::Incomplete))
    );
    assert_eq!(run_substatus(&sim.state), Some("PartiallyCompensated"));
    let undo = sim.plan.net().steps[0].undo.clone().unwrap();
    let waits: Vec<u64> = (1..=5)
        .map(|n| undo.retry.backoff.delay_ms(n, || 0))
        .collect();
    assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 10_000]);
}

#[test]
fn a28_a_hook_that_hangs_or_loses_its_worker_is_tried_again() {
    let mut sim = compensating(&["a", "b", "c", "d"]);
    sim.claim_undo("d").unwrap();
    sim.advance_to_next_timer().unwrap();
    assert_eq!(
        sim.env.now,
        START.plus(300_000),
        "five minutes, as an action"
    );
    sim.advance(1_000).claim_undo("d").unwrap();
    let claim = sim.claim_for(Target::Undo(sim.at("d")));
    sim.env.now = claim.lease_until.unwrap().plus(1);
    sim.send(Command::ExpireLease {
        target: claim.target,
        execution: claim.execution,
        lease_until: None,
        cause: Default::default(),
    })
    .unwrap();
    // A loss uses up no attempt: the hook has timed out once, and has one attempt left.
    assert_eq!(sim.count("UndoFailed"), 0);
    sim.claim_undo("d").unwrap();
    sim.advance_to_next_timer().unwrap();
    assert_eq!(sim.count("UndoFailed"), 1, "two attempts, and that is all");
    sim.run_undo("b").unwrap();
    sim.run_undo("a").unwrap();
    assert_eq!(run_word(&sim.state), "Failed");
}

/// The evidence of a run in lines, times in milliseconds after the start.
fn shown_evidence(sim: &Sim) -> String {
    let since = |iso: &str| Time::from_rfc3339(iso).unwrap().since(START);
    let mut text = String::new();
    for record in evidence(&sim.plan, sim.state.run_id(), sim.events()) {
        assert_eq!(record.run_id, "run_sim");
        assert_eq!(record.correlation.workflow_id, "w");
        assert_eq!(record.correlation.tenant_id, "tenant");
        let kind = serde_json::to_value(record.kind).unwrap();
        text.push_str(&format!(
            "{} {} {} {}..{} {:?}{}{}\n",
            kind.as_str().unwrap(),
            record.action_id.as_deref().unwrap_or("-"),
            record.attempt,
            since(&record.started_at_iso),
            since(&record.ended_at_iso),
            record.outcome,
            record
                .error_class
                .map_or_else(String::new, |class| format!(" {class}")),
            record
                .correlation
                .actor
                .map_or_else(String::new, |actor| format!(" by {actor}")),
        ));
        for undo in record.compensation.iter().flat_map(|it| &it.actions) {
            let line = format!(
                "  {} {:?} {}\n",
                undo.action_id, undo.outcome, undo.attempts
            );
            text.push_str(&line);
        }
    }
    text
}

// also proves: A32
#[test]
fn a29_a_compensated_run_is_failed_with_a_summary_in_its_evidence() {
    let mut sim = started(&[
        ("pay", UNDO),
        ("mail", "sideEffecting: true"),
        ("book", UNDO),
        ("ask", MANUAL),
        ("ship", "retryPolicy: {maxAttempts: 2}"),
        ("never", ""),
    ]);
    sim.run("pay").unwrap();
    sim.advance(10).run("mail").unwrap();
    sim.advance(10).run("book").unwrap();
    sim.run("ask").unwrap();
    sim.advance(10);
    sim.answer("ask", ManualOutcome::Succeeded, "ann").unwrap();
    sim.run_failing("ship", ErrorClass::RateLimit).unwrap();
    sim.advance(1_000).claim("ship").unwrap();
    sim.advance(5).fail("ship", ErrorClass::Conflict).unwrap();
    sim.claim_undo("book").unwrap();
    sim.fail_undo("book", ErrorClass::Transport).unwrap();
    sim.advance(1_000).run_undo("book").unwrap();
    sim.run_undo("pay").unwrap();
    assert_eq!(run_word(&sim.state), "Failed");
    expect![[r#"
        attempt pay 1 0..0 Succeeded by worker-1
        transition pay 1 0..0 Succeeded by worker-1
        attempt mail 1 10..10 Succeeded by worker-1
        transition mail 1 10..10 Succeeded by worker-1
        attempt book 1 20..20 Succeeded by worker-1
        transition book 1 20..20 Succeeded by worker-1
        answer ask 1 20..30 Succeeded by ann
        attempt ask 1 20..30 Succeeded by ann
        transition ask 1 20..30 Succeeded by ann
        attempt ship 1 30..30 Failed rate_limit by worker-1
        attempt ship 2 1030..1035 Failed conflict by worker-1
        transition ship 2 30..1035 Failed conflict by worker-1
        compensation_attempt book 1 1035..1035 Failed transport by worker-1
        compensation_attempt book 2 2035..2035 Succeeded by worker-1
        compensation_attempt pay 1 2035..2035 Succeeded by worker-1
        transition never 0 2035..2035 Cancelled
        run - 0 0..2035 Failed conflict
        compensation_summary - 0 0..2035 Failed
          mail NotCompensable 0
          book Done 2
          pay Done 1
    "#]]
    .assert_eq(&shown_evidence(&sim));
    let records = evidence(&sim.plan, sim.state.run_id(), sim.events());
    assert_eq!(verify(&records), []);
    for record in &records {
        let about_the_run = matches!(
            record.kind,
            EvidenceKind::Run | EvidenceKind::CompensationSummary
        );
        assert_eq!(record.action_id.is_none(), about_the_run);
        assert_eq!(record.correlation.idempotency_key.is_none(), about_the_run);
        assert!(!record.correlation.event_id.is_empty());
    }
}

#[test]
fn a29_a_cancelled_run_stays_cancelled_although_it_was_compensated() {
    let mut sim = started(&[("a", UNDO), ("b", "")]);
    sim.run("a").unwrap();
    sim.cancel_with(true).unwrap();
    sim.run_undo("a").unwrap();
    assert_eq!(run_word(&sim.state), "Cancelled");
    assert_eq!(
        sim.outcome(),
        Some(RunOutcome::Cancelled(Rollback::Complete))
    );
    expect![[r#"
        attempt a 1 0..0 Succeeded by worker-1
        transition a 1 0..0 Succeeded by worker-1
        stop - 0 0..0 Succeeded by admin
        transition b 0 0..0 Cancelled
        compensation_attempt a 1 0..0 Succeeded by worker-1
        run - 0 0..0 Cancelled by admin
        compensation_summary - 0 0..0 Cancelled
          a Done 1
    "#]]
    .assert_eq(&shown_evidence(&sim));
}

#[test]
fn a32_evidence_says_how_every_attempt_and_action_of_a_stopped_run_ended() {
    let mut sim = failing_among_siblings();
    sim.advance(7).expire_lease("works").unwrap();
    sim.run_undo("works").unwrap();
    sim.run_undo("done").unwrap();
    expect![[r#"
        attempt done 1 0..0 Succeeded by worker-1
        transition done 1 0..0 Succeeded by worker-1
        attempt retries 1 0..0 Failed transient by worker-1
        attempt a 1 0..0 Failed conflict by worker-1
        transition a 1 0..0 Failed conflict by worker-1
        attempt person 1 0..0 Cancelled cancelled by worker-1
        transition person 1 0..0 Cancelled cancelled by worker-1
        transition retries 1 0..0 Cancelled cancelled by worker-1
        attempt works 1 0..60001 Unknown cancelled by worker-1
        transition works 1 0..60001 Unknown cancelled by worker-1
        compensation_attempt works 1 60001..60001 Succeeded by worker-1
        compensation_attempt done 1 60001..60001 Succeeded by worker-1
        run - 0 0..60001 Failed conflict
        compensation_summary - 0 0..60001 Failed
          works Done 1
          done Done 1
    "#]]
    .assert_eq(&shown_evidence(&sim));
}

// 5. Determinism.

#[test]
fn a30_the_key_of_an_action_is_the_same_across_retries_and_restarts() {
    let mut sim = started(&[("a", ""), ("b", "")]);
    let first = claimed(sim.claim("a")).idempotency_key;
    sim.fail("a", ErrorClass::Transient).unwrap();
    sim.crash();
    sim.advance(1_000);
    assert_eq!(claimed(sim.claim("a")).idempotency_key, first);
    sim.crash();
    sim.expire_lease("a").unwrap();
    assert_eq!(claimed(sim.claim("a")).idempotency_key, first);
    sim.complete("a").unwrap();
    assert_ne!(claimed(sim.claim("b")).idempotency_key, first);
    // Another run's is another.
    let mut other = Sim::load(&workflow(&[("a", "")]));
    other.state = State::new("run_other", &other.plan);
    other.start().unwrap();
    assert_ne!(claimed(other.claim("a")).idempotency_key, first);
}

#[test]
fn a31_the_same_state_gives_the_same_offers() {
    let run = |crashes: bool| {
        let mut sim = started(&[
            ("a", "dependsOn: []"),
            ("b", ""),
            ("c", "dependsOn: [a, b]"),
            ("d", "dependsOn: [a, b]"),
            ("e", "dependsOn: [b]"),
        ]);
        let mut offers = offered(&mut sim);
        for step in ["b", "a", "d", "c", "e"] {
            if crashes {
                sim.crash();
            }
            sim.run_failing(step, ErrorClass::Transient).unwrap();
            offers.extend(offered(&mut sim));
            if crashes {
                sim.crash();
            }
            sim.advance(1_000).run(step).unwrap();
            offers.extend(offered(&mut sim));
        }
        (offers, sim.events().to_vec())
    };
    assert_eq!(run(false), run(false));
    assert_eq!(run(false), run(true));
}
