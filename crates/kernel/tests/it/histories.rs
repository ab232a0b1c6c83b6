//! Logs to check laws on: one event of every type, and random runs of a net with a bit of everything.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use stepwell_kernel::command::{Command, ManualOutcome, WaitFor};
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{
    AdmissionVerdict, ArtifactRef, Body, CalledRun, Lease, LoopItems, LoopStart, Loss, Parent,
    Patch, Rollback, Routing, RunContext, SkipReason, StepError, StopCause, SuccessKind, TakenEdge,
    TaskKind, UndoOutcome, UndoResult, WaitKind,
};
use stepwell_kernel::plan::{
    Completion, EdgeNo, ErrorClass, Gate, Net, OnFailure, Step, StepNo, StepRef, WaitOn,
};
use stepwell_kernel::state::Status;
use stepwell_kernel::time::Time;
use stepwell_kernel::trace::TraceContext;

use crate::support::{START, Sim, constant, net, retried, retry, task, undoable, waits};

/// A net with retries, a wait of each kind, a gate, manual work, undos, a held and a skipped failure.
pub(crate) fn rich() -> Net {
    let gated = Step {
        gate: Some(Gate::default()),
        timeout_ms: Some(5_000),
        ..retried("gated", 2)
    };
    let by_hand = Step {
        completion: Completion::Manual,
        ..task("by-hand")
    };
    let backs_off = Step {
        retry: retry(3, constant(250)),
        on_failure: OnFailure::Skip,
        ..undoable("backs-off")
    };
    let held = Step {
        on_failure: OnFailure::Hold { timeout_ms: 1_000 },
        ..task("held")
    };
    let last = Step {
        on_failure: OnFailure::Stop { compensate: true },
        ..task("last")
    };
    let steps = vec![
        undoable("first"),
        gated,
        by_hand,
        backs_off,
        waits("nap", WaitOn::Timer { millis: 400 }, None),
        waits("asks", WaitOn::Approval, Some(9_000)),
        held,
        last,
    ];
    let mut net = net(
        steps,
        &[
            ("first", "gated"),
            ("first", "by-hand"),
            ("first", "backs-off"),
            ("backs-off", "nap"),
            ("nap", "asks"),
            ("gated", "held"),
            ("by-hand", "last"),
            ("asks", "last"),
            ("held", "last"),
        ],
    );
    net.policy.skip_unreached = true;
    net.policy.timeout_ms = Some(60_000);
    net
}

/// A run of the rich net under random commands; refused ones are a part of it.
pub(crate) fn random_run() -> impl Strategy<Value = Vec<(u8, u8)>> {
    prop::collection::vec((any::<u8>(), any::<u8>()), 0..60)
}

pub(crate) fn play(moves: &[(u8, u8)]) -> Sim {
    let mut sim = Sim::started(rich());
    for (what, which) in moves {
        step(&mut sim, *what, usize::from(*which));
    }
    sim
}

fn step(sim: &mut Sim, what: u8, which: usize) {
    let pick = |targets: Vec<Target>| (!targets.is_empty()).then(|| targets[which % targets.len()]);
    let all: Vec<Target> = sim
        .plan
        .numbers()
        .map(|no| Target::Step(StepRef::first(no)))
        .collect();
    let running: Vec<Target> = all
        .iter()
        .copied()
        .chain(
            sim.state
                .undoing()
                .and_then(|it| it.current())
                .map(Target::Undo),
        )
        .filter(|target| {
            sim.state
                .target(*target)
                .is_some_and(|run| run.status() == Status::Running)
        })
        .collect();
    let name = sim.plan.step_id(all[which % all.len()].step_ref());
    let people: Vec<Target> = all
        .into_iter()
        .filter(|target| {
            let run = sim.state.target(*target);
            let wait = run.and_then(|run| run.wait());
            wait.is_some_and(|wait| wait.token_hash().is_some())
        })
        .collect();
    match what % 20 {
        0..6 => {
            if let Some(target) = pick(sim.claimable()) {
                sim.claim_as(target, "w").unwrap();
            }
        }
        6..10 => {
            if let Some(target) = pick(running) {
                let claim = sim.claim_for(target);
                let output = json!({ "n": which, "ratio": which as f64 / 7.0, "big": u64::MAX });
                sim.complete_all(claim, output, json!({ "seen": which }), vec![artifact()])
                    .ok();
            }
        }
        10 | 11 => {
            if let Some(target) = pick(running) {
                let class = ErrorClass::ALL[which % ErrorClass::ALL.len()];
                sim.fail_claim(sim.claim_for(target), class).ok();
            }
        }
        12 | 13 => {
            if let Some(target) = pick(people) {
                let name = sim.plan.step_id(target.step_ref());
                let outcome = match which % 8 {
                    0 => ManualOutcome::Failed,
                    _ => ManualOutcome::Succeeded,
                };
                sim.answer(&name, outcome, "someone").ok();
            }
        }
        14 => {
            if sim.next_timer().is_some() {
                sim.advance_to_next_timer().ok();
            }
        }
        15 => {
            sim.pause().ok();
        }
        16 => {
            sim.resume().ok();
        }
        17 => {
            let signal = ["RETRY_STEP", "SKIP_STEP", "NONSENSE"][which % 3];
            sim.signal(signal, json!({ "stepId": name })).ok();
        }
        18 => {
            if let Some(Target::Step(at)) = pick(running) {
                let name = sim.plan.step_id(at);
                let event_type = "paid".into();
                sim.wait(&name, WaitFor::Event { event_type }, Some(700))
                    .ok();
            } else {
                sim.deliver(&format!("e{which}"), "paid", json!({ "n": which }))
                    .ok();
            }
        }
        _ if which.is_multiple_of(5) => {
            sim.cancel_with(which.is_multiple_of(2)).ok();
        }
        _ => {
            sim.advance(which as u64);
            sim.send(Command::Proceed).ok();
        }
    }
}

pub(crate) fn artifact() -> ArtifactRef {
    ArtifactRef {
        uri: "s3://bucket/a b".into(),
        kind: "report".into(),
        sha256: Some("no hash".into()),
        size_bytes: Some(7),
        expires_at: Some(START),
    }
}

/// One body of every type, with every optional field there.
pub(crate) fn one_of_each() -> Vec<Body> {
    let step = StepRef::first(StepNo(0));
    let item = StepRef {
        visit: 2,
        ..step.with_item(3)
    };
    let (logical, execution) = (1, 2);
    let lease = Lease {
        worker: "w".into(),
        until: START,
    };
    let error = StepError::new(ErrorClass::Timeout, "TIMEOUT", "too \"slow\"");
    let value: Arc<Json> = Arc::new(json!({ "x": [1, 2.5, "é", null], "big": u64::MAX }));
    let by = Some("someone".to_owned());
    let reason = Some("because".to_owned());
    let ctx: Patch = [("k".to_owned(), json!(true))].into();
    let undos = vec![UndoResult {
        step,
        outcome: UndoOutcome::NotRun,
        executions: 0,
        attempts: 0,
        error: None,
    }];
    let routing = Routing {
        taken: vec![TakenEdge {
            edge: EdgeNo(0),
            args: Some(value.clone()),
            verdict: AdmissionVerdict::Denied,
        }],
        set: ctx.clone(),
        handled: true,
        error: Some(error.clone()),
    };
    let context = RunContext {
        tenant_id: "t".into(),
        project_id: "p".into(),
        environment_id: "e".into(),
        triggered_by: by.clone(),
        trigger_source: Some("carrier pigeon".into()),
        priority: -7,
        labels: std::collections::BTreeMap::from([("team".into(), "payments".into())]),
        trace: Some(TraceContext {
            traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into(),
            tracestate: Some("shop=1".into()),
            recorded: true,
        }),
    };
    let child = WaitKind::Child {
        request_key: "k".into(),
        input: value.clone(),
        call: Some(CalledRun {
            path: "other".into(),
            return_step: Some("last".into()),
        }),
    };
    let items = LoopItems::Inline(Arc::new(vec![json!(1)]));
    vec![
        Body::RunCreated {
            plan_hash: "h".into(),
            params: value.clone(),
            context,
            parent: Some(Parent {
                run_id: "run_p".into(),
                step_id: "s".into(),
            }),
            original_run_id: Some("run_o".into()),
            start_after: Some(START),
        },
        Body::RunQueued {},
        Body::RunApproved {
            by: by.clone(),
            reason: by.clone(),
        },
        Body::RunStarted {
            engine: "native".into(),
            engine_run_ref: "r".into(),
            entry: AdmissionVerdict::Denied,
            deadline: Some(START),
        },
        Body::StepStarted {
            step,
            logical,
            execution,
            lease: Some(lease.clone()),
            each: Some(LoopStart {
                count: 1,
                window: 1,
                items,
            }),
        },
        Body::StepCompleted {
            step,
            logical,
            execution,
            output: Some(value.clone()),
            artifacts: vec![artifact()],
            ctx: ctx.clone(),
            routing: Some(routing.clone()),
            by: by.clone(),
        },
        Body::StepFailed {
            step: item,
            logical,
            execution: 0,
            error: error.clone(),
            cancelled: true,
            unknown: true,
            by: by.clone(),
        },
        Body::StepSkipped {
            step,
            logical,
            reason: SkipReason::DependencyFailed,
        },
        Body::SignalAccepted {
            signal_id: "s".into(),
            signal: "PAUSE".into(),
            by: "someone".into(),
            reason: Some("x".into()),
            payload: json!({ "reason": "x" }),
        },
        Body::SignalRejected {
            signal_id: "s".into(),
            signal: "PAUSE".into(),
            by: "someone".into(),
            code: "RUN_PAUSED".into(),
            message: "m".into(),
        },
        Body::RunPaused {
            ordinal: 2,
            drain_deadline: Some(START),
        },
        Body::RunResumed { ordinal: 2 },
        Body::RunCompleted {
            success: SuccessKind::Partial,
        },
        Body::RunFailed {
            error: error.clone(),
            rollback: Rollback::Incomplete,
            undos: undos.clone(),
        },
        Body::RunCancelled {
            by: by.clone(),
            reason: reason.clone(),
            rollback: Rollback::Complete,
            undos,
        },
        Body::StepExecutionStarted {
            step,
            logical,
            execution,
            lease: lease.clone(),
            task: TaskKind::WaitingTimeout,
        },
        Body::StepExecutionFailed {
            step,
            logical,
            execution,
            error: error.clone(),
            retry_at: START,
            loss: Some(Loss::Lost),
        },
        Body::StepWaiting {
            step,
            logical,
            execution,
            wait: child,
            deadline: Some(START),
            token_hash: Some("h".into()),
            outbound: vec![json!({ "type": "x" })],
            memo: Some(value.clone()),
        },
        Body::StepAnswered {
            step,
            logical,
            execution,
            outcome: ManualOutcome::Failed,
            by: "someone".into(),
            completed_at: START,
            notes: Some("torn".into()),
            evidence_refs: vec!["photo-1".into()],
            output_sha256: None,
        },
        Body::StepApproved {
            step,
            execution,
            by: "someone".into(),
            approvals: 1,
        },
        Body::StepWoken {
            step,
            execution,
            event_id: Some("e".into()),
            payload: Some(value.clone()),
            by: by.clone(),
        },
        Body::StepRouted { step, routing },
        Body::StepHeld { step, until: START },
        Body::StepRetried { step, logical: 2 },
        Body::TokensAdmitted { tokens: vec![item] },
        Body::CtxPatched {
            by: "someone".into(),
            ctx,
        },
        Body::ParamsUpdated {
            params: value.clone(),
        },
        Body::OverrideInjected {
            step: StepNo(0),
            value: value.clone(),
        },
        Body::TargetUpdated {
            step: StepNo(0),
            target: value.clone(),
        },
        Body::EventReceived {
            event_id: "e".into(),
            event_type: "paid".into(),
            payload: value.clone(),
        },
        Body::PauseDrainTimedOut {
            ordinal: 1,
            in_flight: 3,
        },
        Body::RunStalled {
            stuck: vec!["x".into()],
            deadline: START,
        },
        Body::RunFinalizing {
            summary: value,
            entry: Default::default(),
        },
        Body::RunStopping {
            cause: StopCause::Emergency {
                by: by.clone(),
                reason: "x".into(),
            },
            compensate: true,
        },
        Body::CompensationStarted {
            undo: vec![step],
            not_compensable: vec![item],
        },
        Body::UndoStarted {
            step,
            execution,
            lease,
        },
        Body::UndoExecutionFailed {
            step,
            execution,
            error: error.clone(),
            retry_at: Time(0),
            loss: Some(Loss::Released),
        },
        Body::UndoCompleted { step, execution },
        Body::UndoFailed {
            step,
            execution,
            error,
        },
        Body::CompensationInterrupted { by, reason },
    ]
}
