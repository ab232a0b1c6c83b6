//! Every signal in every phase of a run, and every reason to refuse one.

use expect_test::expect;
use serde_json::{Value as Json, json};
use stepwell_kernel::command::{Actor, EarlierResult, Reply, Role};
use stepwell_kernel::effect::{Effect, Priority};
use stepwell_kernel::event::Body;
use stepwell_kernel::plan::{ErrorClass, Net};
use stepwell_kernel::rejection::Code;
use stepwell_kernel::signal::{MAX_SIGNAL_BYTES, SignalKind};
use stepwell_kernel::state::{Phase, Status};

use super::{compensating, held};
use crate::support::{Sent, Sim, actor, chain, code, task, tasks, undoable};

const PHASES: [&str; 14] = [
    "created",
    "queued",
    "approved",
    "running",
    "in-flight",
    "paused",
    "draining",
    "held",
    "finalizing",
    "stopping",
    "undoing",
    "completed",
    "failed",
    "cancelled",
];

fn with_final_step() -> Net {
    let mut net = tasks(&["a", "b"]);
    net.steps.push(task("last"));
    net.policy.final_step = Some(stepwell_kernel::plan::StepNo(2));
    net
}

/// A run of `a` then `b` in a phase of its life. `b` is what step signals are about.
fn in_phase(phase: &str) -> Sim {
    let mut sim = match phase {
        "held" => Sim::new(chain(vec![task("a"), held("b", 60_000)])),
        "finalizing" => Sim::new(with_final_step()),
        "undoing" => Sim::new(chain(vec![undoable("a"), compensating("b")])),
        _ => Sim::new(tasks(&["a", "b"])),
    };
    sim.create().unwrap();
    match phase {
        "created" => return sim,
        "queued" => {
            sim.enqueue().unwrap();
            return sim;
        }
        "approved" => {
            sim.approve("approver").unwrap();
            return sim;
        }
        _ => sim.start_run().unwrap(),
    };
    sim.run("a").unwrap();
    match phase {
        "running" => {}
        "in-flight" => drop(sim.claim("b").unwrap()),
        "paused" => drop(sim.pause().unwrap()),
        "draining" => {
            sim.claim("b").unwrap();
            sim.pause().unwrap();
        }
        "held" | "undoing" | "failed" => {
            drop(sim.run_failing("b", ErrorClass::Policy).unwrap());
        }
        "finalizing" | "completed" => drop(sim.run("b").unwrap()),
        "stopping" => {
            sim.claim("b").unwrap();
            sim.cancel().unwrap();
        }
        "cancelled" => drop(sim.cancel().unwrap()),
        other => panic!("no phase {other}"),
    }
    sim
}

fn payload(kind: SignalKind) -> Json {
    match kind {
        SignalKind::Pause
        | SignalKind::Resume
        | SignalKind::Cancel
        | SignalKind::RetryRun
        | SignalKind::EmergencyStop => json!({}),
        SignalKind::RetryStep | SignalKind::SkipStep => json!({ "stepId": "b" }),
        SignalKind::UpdateParams => json!({ "params": { "x": 1 } }),
        SignalKind::InjectOverride => json!({ "stepId": "b", "override": { "x": 1 } }),
        SignalKind::UpdateTarget => json!({ "stepId": "b", "newTarget": { "queue": "q" } }),
        SignalKind::EscalateAlert => json!({ "level": "INFO" }),
    }
}

fn send(sim: &mut Sim, id: &str, kind: SignalKind, from: Actor) -> Sent {
    sim.signal_as(id, kind.name(), payload(kind), Some("because"), from)
}

/// What came of it: `ok`, or the code it was refused with; and that the log says the same.
#[track_caller]
fn verdict(sim: &Sim, before: usize, sent: &Sent) -> &'static str {
    let new = &sim.events()[before..];
    match sent {
        Ok(Reply::Done) => {
            assert!(
                matches!(new[0].body, Body::SignalAccepted { .. }),
                "{new:?}"
            );
            "ok"
        }
        Ok(Reply::RetryRun { .. }) => {
            assert!(new.is_empty(), "a run that has ended has a last event");
            "ok"
        }
        Ok(Reply::Refused(rejection)) => {
            assert!(
                matches!(&new[0].body, Body::SignalRejected { code, .. } if code == rejection.code.name())
            );
            assert_eq!(new.len(), 1, "a refused signal changes nothing else");
            rejection.code.name()
        }
        Ok(other) => panic!("{other:?}"),
        Err(rejection) => {
            assert!(new.is_empty());
            rejection.code.name()
        }
    }
}

/// The code that a signal was refused with, recorded or not.
fn refused(sent: Sent) -> Code {
    match sent {
        Ok(Reply::Refused(rejection)) | Err(rejection) => rejection.code,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

// also proves: C12, C49
#[test]
fn every_signal_has_an_answer_in_every_phase() {
    let mut table = String::new();
    for kind in SignalKind::ALL {
        table.push_str(&format!("{}\n", kind.name()));
        let mut last = String::new();
        for phase in PHASES {
            let mut sim = in_phase(phase);
            let before = sim.events().len();
            let sent = send(&mut sim, "s", kind, actor("root", Role::System));
            let answer = verdict(&sim, before, &sent);
            if answer == last {
                table.push_str(&format!(" {phase}"));
            } else {
                let gap = if last.is_empty() { "" } else { "\n" };
                table.push_str(&format!("{gap}    {answer}: {phase}"));
                last = answer.to_owned();
            }
        }
        table.push('\n');
    }
    expect![[r#"
        PAUSE
            RUN_NOT_RUNNING: created queued approved
            ok: running in-flight
            RUN_PAUSED: paused draining
            ok: held finalizing
            RUN_STOPPING: stopping undoing
            RUN_TERMINAL: completed failed cancelled
        RESUME
            RUN_NOT_RUNNING: created queued approved
            RUN_NOT_PAUSED: running in-flight
            ok: paused draining
            RUN_NOT_PAUSED: held finalizing
            RUN_STOPPING: stopping undoing
            RUN_TERMINAL: completed failed cancelled
        CANCEL
            ok: created queued approved running in-flight paused draining held finalizing stopping undoing
            RUN_TERMINAL: completed failed cancelled
        RETRY_STEP
            RUN_NOT_RUNNING: created queued approved
            STEP_NOT_TERMINAL: running in-flight paused draining
            ok: held
            STEP_TERMINAL: finalizing
            RUN_STOPPING: stopping undoing
            RUN_TERMINAL: completed failed cancelled
        RETRY_RUN
            RUN_NOT_TERMINAL: created queued approved running in-flight paused draining held finalizing stopping undoing
            ok: completed failed cancelled
        SKIP_STEP
            RUN_NOT_RUNNING: created queued approved
            ok: running in-flight paused draining held
            STEP_TERMINAL: finalizing
            RUN_STOPPING: stopping undoing
            RUN_TERMINAL: completed failed cancelled
        UPDATE_PARAMS
            ok: created queued approved running in-flight paused draining held finalizing
            RUN_STOPPING: stopping undoing
            RUN_TERMINAL: completed failed cancelled
        INJECT_OVERRIDE
            ok: created queued approved running in-flight paused draining held finalizing
            RUN_STOPPING: stopping undoing
            RUN_TERMINAL: completed failed cancelled
        UPDATE_TARGET
            ok: created queued approved running in-flight paused draining held finalizing
            RUN_STOPPING: stopping undoing
            RUN_TERMINAL: completed failed cancelled
        EMERGENCY_STOP
            ok: created queued approved running in-flight paused draining held finalizing stopping undoing
            RUN_TERMINAL: completed failed cancelled
        ESCALATE_ALERT
            ok: created queued approved running in-flight paused draining held finalizing stopping undoing
            RUN_TERMINAL: completed failed cancelled
    "#]]
    .assert_eq(&table);
}

#[test]
fn c46_a_signal_is_validated_then_authorised_then_recorded_then_applied() {
    for phase in PHASES {
        let mut sim = in_phase(phase);
        let ended = sim.phase().is_ended();
        let (phase_before, pause) = (sim.phase(), sim.state.pause());
        let stranger = Actor {
            tenant: Some("elsewhere".into()),
            ..actor("stranger", Role::Viewer)
        };
        for (no, kind) in SignalKind::ALL.into_iter().enumerate() {
            let id = |what: &str| format!("{what}-{no}");
            let viewer = actor("viewer", Role::Viewer);
            let before = sim.events().len();
            // Everything is wrong with it: the payload is what it is refused for.
            let bad = json!({ "nonsense": 1, "stepId": "nowhere" });
            let sent = sim.signal_as(&id("bad"), kind.name(), bad, None, stranger.clone());
            assert_eq!(refused(sent), Code::SignalInvalidPayload, "{phase}");
            // The tenant comes before the role, the role before the reason.
            let sent = sim.signal_as(
                &id("far"),
                kind.name(),
                payload(kind),
                None,
                stranger.clone(),
            );
            assert_eq!(refused(sent), Code::AuthzTenantForbidden, "{phase}");
            let sent = sim.signal_as(&id("low"), kind.name(), payload(kind), None, viewer);
            assert_eq!(refused(sent), Code::AuthzDenied, "{phase}");
            if kind.is_destructive() {
                let admin = actor("admin", Role::Admin);
                let sent = sim.signal_as(&id("why"), kind.name(), payload(kind), Some("  "), admin);
                assert_eq!(refused(sent), Code::AuthzReasonRequired, "{phase}");
            }
            // All of it is on record, unless the log has its last event.
            let recorded = sim.events().len() - before;
            let expected = if ended {
                0
            } else {
                3 + usize::from(kind.is_destructive())
            };
            assert_eq!(recorded, expected, "{phase} {kind:?}");
            // 60 a minute is another statement.
            sim.advance(60_000);
        }
        let nothing = sim.signal_as("x", "REWIND", json!({}), None, stranger);
        assert_eq!(refused(nothing), Code::SignalNotFound, "{phase}");
        assert_eq!(
            (sim.phase(), sim.state.pause()),
            (phase_before, pause),
            "{phase}"
        );
    }
}

#[test]
fn c46_status_changes_only_by_the_event_that_the_signal_causes() {
    let mut sim = in_phase("running");
    let seq = sim.state.seq() + 1;
    sim.pause().unwrap();
    sim.resume().unwrap();
    sim.signal("EMERGENCY_STOP", json!({})).unwrap();
    expect![[r#"
        SignalAccepted
        RunPaused
        SignalAccepted
        RunResumed
        SignalAccepted
        RunStopping
        StepSkipped b
        RunCancelled
    "#]]
    .assert_eq(&sim.log_from(seq));
}

#[test]
fn the_least_role_of_a_signal_is_enough_and_the_one_below_is_not() {
    let roles = [
        Role::Viewer,
        Role::Operator,
        Role::Engineer,
        Role::Admin,
        Role::System,
    ];
    for kind in SignalKind::ALL {
        for role in roles {
            let mut sim = in_phase("held");
            let sent = send(&mut sim, "s", kind, actor("someone", role));
            let denied = matches!(&sent, Ok(Reply::Refused(it)) if it.code == Code::AuthzDenied);
            assert_eq!(denied, role < kind.role(), "{kind:?} by {role:?}");
        }
    }
    let of = |role| {
        SignalKind::ALL
            .into_iter()
            .filter(move |kind| kind.role() == role)
    };
    let names = |role| of(role).map(SignalKind::name).collect::<Vec<_>>().join(" ");
    assert_eq!(names(Role::Operator), "PAUSE RESUME CANCEL");
    assert_eq!(names(Role::Engineer), "RETRY_STEP RETRY_RUN SKIP_STEP");
    assert_eq!(
        names(Role::Admin),
        "UPDATE_PARAMS INJECT_OVERRIDE UPDATE_TARGET EMERGENCY_STOP"
    );
    assert_eq!(names(Role::System), "ESCALATE_ALERT");
}

#[test]
fn a_signal_of_the_runs_own_tenant_is_taken() {
    let mut sim = in_phase("running");
    let ours = Actor {
        tenant: Some("tenant".into()),
        ..actor("operator", Role::Operator)
    };
    assert_eq!(
        send(&mut sim, "s", SignalKind::Pause, ours),
        Ok(Reply::Done)
    );
    assert!(sim.state.pause().is_some());
}

#[test]
fn a_reason_is_recorded_whether_it_comes_beside_the_payload_or_in_it() {
    let reason = |sim: &Sim| match sim
        .events()
        .iter()
        .rev()
        .find_map(|event| match &event.body {
            Body::SignalAccepted { reason, .. } => Some(reason.clone()),
            _ => None,
        }) {
        Some(reason) => reason,
        None => panic!("no signal was accepted"),
    };
    let mut sim = in_phase("running");
    let admin = actor("admin", Role::Admin);
    let params = json!({ "params": { "x": 2 } });
    sim.signal_as("1", "UPDATE_PARAMS", params, Some("a typo"), admin.clone())
        .unwrap();
    assert_eq!(reason(&sim).as_deref(), Some("a typo"));
    let stop = json!({ "reason": "fire" });
    sim.signal_as("2", "EMERGENCY_STOP", stop, Some(""), admin)
        .unwrap();
    assert_eq!(reason(&sim).as_deref(), Some("fire"));
    assert!(
        matches!(sim.last(), Some(Body::RunCancelled { reason, .. }) if reason.as_deref() == Some("fire"))
    );
}

// also proves: C7
#[test]
fn a_repeated_signal_is_answered_as_the_first_time_and_changes_nothing() {
    for phase in PHASES {
        for kind in SignalKind::ALL {
            let mut sim = in_phase(phase);
            let root = actor("root", Role::System);
            let first = send(&mut sim, "once", kind, root.clone());
            let expected = match &first {
                Ok(Reply::Done) => EarlierResult::SignalAccepted,
                Ok(Reply::Refused(it)) => EarlierResult::SignalRejected(it.code.name().into()),
                // Nothing was recorded in a run that has ended, so there is nothing to repeat.
                _ => {
                    assert!(sim.phase().is_ended());
                    let again = send(&mut sim, "once", kind, root);
                    assert_eq!(again, first);
                    continue;
                }
            };
            let before = sim.state.clone();
            // The id counts, not what the signal says the second time.
            let again = sim.signal_as("once", "CANCEL", json!({ "reason": "no" }), None, root);
            assert_eq!(
                again,
                Ok(Reply::Duplicate(Box::new(expected))),
                "{phase} {kind:?}"
            );
            assert_eq!(sim.state, before, "{phase} {kind:?}");
            let stranger = Actor {
                tenant: Some("elsewhere".into()),
                ..actor("stranger", Role::System)
            };
            let spied = send(&mut sim, "once", kind, stranger);
            assert_eq!(code(spied), Code::AuthzTenantForbidden, "{phase} {kind:?}");
        }
    }
}

#[test]
fn a_run_takes_sixty_signals_a_minute() {
    let mut sim = in_phase("running");
    let root = || actor("root", Role::System);
    for no in 0..60 {
        send(
            &mut sim,
            &format!("s{no}"),
            SignalKind::EscalateAlert,
            root(),
        )
        .unwrap();
        sim.advance(1);
    }
    let more = send(&mut sim, "more", SignalKind::Cancel, root());
    assert_eq!(code(more), Code::SignalRateLimited);
    // A repeated one is no new signal.
    let again = send(&mut sim, "s3", SignalKind::EscalateAlert, root());
    assert_eq!(
        again,
        Ok(Reply::Duplicate(Box::new(EarlierResult::SignalAccepted)))
    );
    // The first came 60 ms ago; exactly a minute after it there is room for one.
    sim.advance(60_000 - 60 - 1);
    assert_eq!(
        code(send(&mut sim, "more", SignalKind::Pause, root())),
        Code::SignalRateLimited
    );
    sim.advance(1);
    send(&mut sim, "more", SignalKind::Pause, root()).unwrap();
    assert_eq!(
        code(send(&mut sim, "most", SignalKind::Resume, root())),
        Code::SignalRateLimited
    );
}

#[test]
fn refused_signals_count_against_the_limit_too() {
    let mut sim = in_phase("running");
    for no in 0..60 {
        let sent = sim.signal_as(
            &format!("s{no}"),
            "REWIND",
            json!({}),
            None,
            actor("x", Role::Viewer),
        );
        assert_eq!(refused(sent), Code::SignalNotFound);
    }
    assert_eq!(code(sim.pause()), Code::SignalRateLimited);
}

#[test]
fn a_payload_has_at_most_64_kilobytes() {
    let mut sim = in_phase("running");
    let empty = serde_json::to_vec(&json!({ "params": { "x": "" } }))
        .unwrap()
        .len();
    let of = |size: usize| json!({ "params": { "x": "y".repeat(size - empty) } });
    assert_eq!(MAX_SIGNAL_BYTES, 65_536);
    let sent = sim.signal("UPDATE_PARAMS", of(MAX_SIGNAL_BYTES));
    assert_eq!(sent, Ok(Reply::Done));
    let sent = sim.signal("UPDATE_PARAMS", of(MAX_SIGNAL_BYTES + 1));
    assert_eq!(refused(sent), Code::SignalInvalidPayload);
}

#[test]
fn payloads_that_do_not_fit_their_schema_are_refused() {
    let long = "x".repeat(501);
    let wrong = [
        ("PAUSE", json!("now")),
        ("PAUSE", json!({ "reason": 7 })),
        ("CANCEL", json!({ "reason": long })),
        ("RESUME", json!({ "reason": "x" })),
        ("RETRY_STEP", json!({})),
        ("RETRY_STEP", json!({ "stepId": "b", "force": "yes" })),
        ("SKIP_STEP", json!({ "stepId": ["b"] })),
        ("UPDATE_PARAMS", json!({})),
        ("UPDATE_PARAMS", json!({ "params": [] })),
        ("INJECT_OVERRIDE", json!({ "stepId": "b" })),
        ("UPDATE_TARGET", json!({ "stepId": "b", "newTarget": "q" })),
        ("EMERGENCY_STOP", json!({ "forceKill": 1 })),
        ("ESCALATE_ALERT", json!({ "level": "LOUD" })),
        ("ESCALATE_ALERT", Json::Null),
    ];
    for (name, payload) in wrong {
        let mut sim = in_phase("running");
        let sent = sim.signal_as(
            "s",
            name,
            payload.clone(),
            Some("x"),
            actor("root", Role::System),
        );
        assert_eq!(
            refused(sent),
            Code::SignalInvalidPayload,
            "{name} {payload}"
        );
    }
}

/// The contract's own schemas, as `specs` has them.
#[test]
fn payload_schemas_accept_what_the_kernel_accepts() {
    let probes = [
        json!({}),
        json!({ "reason": "r" }),
        json!({ "stepId": "b" }),
        json!({ "stepId": "b", "force": true }),
        json!({ "stepId": "b", "reason": "r" }),
        json!({ "params": {} }),
        json!({ "stepId": "b", "override": {} }),
        json!({ "stepId": "b", "newTarget": {} }),
        json!({ "reason": "r", "forceKill": false }),
        json!({ "level": "P1", "note": "n" }),
        json!({ "level": "P9" }),
        json!({ "reason": "r", "force": false }),
        json!([]),
    ];
    for kind in SignalKind::ALL {
        let schema = kind.schema();
        let validator = jsonschema::validator_for(&schema).expect("a schema is one");
        for probe in &probes {
            // A missing reason has a code of its own and is looked at after the payload.
            if kind == SignalKind::EmergencyStop && probe.get("reason").is_none() {
                continue;
            }
            let taken = kind.check(probe).is_ok();
            assert_eq!(validator.is_valid(probe), taken, "{kind:?} {probe}");
        }
    }
}

#[test]
fn a_signal_for_a_step_that_the_plan_does_not_have_is_refused() {
    for (name, id) in [
        ("RETRY_STEP", "nowhere"),
        ("SKIP_STEP", "nowhere"),
        ("SKIP_STEP", "b#2"),
        ("RETRY_STEP", "b#2"),
        ("SKIP_STEP", "b[0]"),
        ("SKIP_STEP", "a#3"),
    ] {
        let mut sim = in_phase("running");
        let sent = sim.signal(name, json!({ "stepId": id }));
        assert_eq!(refused(sent), Code::StepUnknown, "{name} {id}");
    }
}

#[test]
fn a_signal_needs_an_id_that_fits_into_a_key() {
    for id in ["", "a|b", &"x".repeat(201)] {
        let mut sim = in_phase("running");
        let sent = send(&mut sim, id, SignalKind::Pause, actor("root", Role::System));
        assert_eq!(code(sent), Code::InvalidId);
    }
}

#[test]
fn destructive_signals_raise_p1() {
    for kind in SignalKind::ALL {
        let mut sim = in_phase("running");
        sim.take_effects();
        send(&mut sim, "s", kind, actor("root", Role::System)).unwrap();
        let alert = sim
            .take_effects()
            .into_iter()
            .find_map(|effect| match effect {
                Effect::Alert { code, priority, .. } => Some((code, priority)),
                _ => None,
            });
        let expected = match kind {
            SignalKind::UpdateParams
            | SignalKind::InjectOverride
            | SignalKind::UpdateTarget
            | SignalKind::EmergencyStop => Some(("DESTRUCTIVE_SIGNAL", Priority::P1)),
            SignalKind::EscalateAlert => Some(("ESCALATED", Priority::P3)),
            _ => None,
        };
        assert_eq!(alert, expected, "{kind:?}");
    }
}

#[test]
fn escalation_is_as_urgent_as_its_level() {
    for (level, expected) in [
        ("INFO", Priority::P3),
        ("WARNING", Priority::P2),
        ("CRITICAL", Priority::P1),
        ("P1", Priority::P1),
    ] {
        let mut sim = in_phase("running");
        sim.take_effects();
        let root = actor("root", Role::System);
        sim.signal_as("s", "ESCALATE_ALERT", json!({ "level": level }), None, root)
            .unwrap();
        let priorities: Vec<Priority> = sim
            .take_effects()
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Alert { priority, .. } => Some(priority),
                _ => None,
            })
            .collect();
        assert_eq!(priorities, [expected], "{level}");
    }
}

#[test]
fn c49_retry_run_asks_for_a_new_run_and_leaves_the_old_one_alone() {
    let mut sim = in_phase("failed");
    let before = sim.state.clone();
    let reply = sim
        .signal("RETRY_RUN", json!({ "reason": "again" }))
        .unwrap();
    let Reply::RetryRun { request_key } = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(sim.state, before);
    // The same signal asks under the same key, so it cannot start two.
    let engineer = actor("engineer", Role::Engineer);
    let again = |sim: &mut Sim, id: &str| send(sim, id, SignalKind::RetryRun, engineer.clone());
    let same = again(&mut sim, "signal-1").unwrap();
    assert_eq!(
        same,
        Reply::RetryRun {
            request_key: request_key.clone()
        }
    );
    assert_ne!(
        again(&mut sim, "signal-2").unwrap(),
        Reply::RetryRun { request_key }
    );
    assert_eq!(sim.phase(), before.phase());
    assert!(matches!(sim.phase(), Phase::Ended(_)));
    assert_eq!(sim.status("b"), Some(Status::Failed));
}
