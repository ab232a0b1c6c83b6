//! Calls of other playbooks, and waits.

use serde_json::{Value as Json, json};
use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::decide::next_wake;
use stepwell_kernel::effect::{Effect, RunOutcome};
use stepwell_kernel::event::Rollback;
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::Phase;
use stepwell_kernel::time::Time;

use super::{args, defined, started, words};
use crate::support::{START, Sim, code};

/// A step that calls another playbook.
const PARENT: &str = r#"
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
    assert!(sim.ready().is_empty() && sim.step("call").lease().is_none());
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
    sim.child_ended("call", RunOutcome::Succeeded, json!({ "answer": 42 }))
        .unwrap();
    assert_eq!(args(&sim, "after"), json!({ "got": 42 }));
    // Told twice, it counts once; another attempt's end is not this one's.
    let again = |key: &str| Command::ChildEnded {
        step: call,
        request_key: key.into(),
        outcome: RunOutcome::Failed(Rollback::None),
        output: json!(null),
        error: None,
    };
    let told = sim.send(again("run_sim|call|1|1"));
    assert!(matches!(told, Ok(Reply::Duplicate(_))), "{told:?}");
    assert_eq!(
        code(sim.send(again("run_other|call|1|1"))),
        Code::StepNotWaiting
    );
}

#[test]
fn a_child_that_fails_or_is_cancelled_fails_its_step() {
    for (outcome, wanted) in [
        (RunOutcome::Failed(Rollback::None), "CHILD_FAILED"),
        (RunOutcome::Cancelled(Rollback::None), "CHILD_CANCELLED"),
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
    sim.child_ended("call", RunOutcome::Cancelled(Rollback::None), json!(null))
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
    sim.child_ended("call", RunOutcome::Succeeded, json!({ "answer": 1 }))
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
    sim.child_ended("call", RunOutcome::Failed(Rollback::None), json!(null))
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
    sim.child_ended("call", RunOutcome::Succeeded, json!(null))
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
