//! Random commands that mean something: mostly what a worker, timer, person or operator could send in
//! this state, sometimes nonsense.

use serde_json::json;
use stepwell_kernel::command::*;
use stepwell_kernel::decide::open_token;
use stepwell_kernel::effect::{RunOutcome, Target};
use stepwell_kernel::event::{CalledRun, Rollback, StepError, WaitKind};
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::plan::{ErrorClass, Plan, StepNo, StepRef};
use stepwell_kernel::state::{Phase, State};
use stepwell_kernel::time::Time;

/// A stream of small numbers from one choice.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed | 1)
    }

    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        // xorshift*: enough to spread a choice over its parts.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides.max(1)
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() {
            None
        } else {
            from.get(self.roll(1 << 31) as usize % from.len())
        }
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.roll(1 << 31).is_multiple_of(n)
    }
}

pub(super) fn actor(dice: &mut Dice) -> Actor {
    let role = *dice
        .pick(&[
            Role::Viewer,
            Role::Operator,
            Role::Engineer,
            Role::Admin,
            Role::System,
        ])
        .expect("roles");
    let tenant = if dice.one_in(6) {
        Some("other".into())
    } else {
        None
    };
    Actor {
        id: format!("p{}", dice.roll(1 << 20) % 3),
        role,
        tenant,
        may_answer: true,
    }
}

pub(super) fn create(run_id: &str) -> Command {
    Command::CreateRun {
        run_id: run_id.into(),
        // The examples make their business keys from these.
        params: json!({"orderId": "o-1", "paymentId": "p-1"}),
        context: stepwell_kernel::event::RunContext {
            tenant_id: "t".into(),
            project_id: "p".into(),
            environment_id: "e".into(),
            triggered_by: Some("p0".into()),
            trigger_source: None,
            priority: 0,
            labels: std::collections::BTreeMap::new(),
            trace: None,
        },
        parent: None,
        original_run_id: None,
        start_after: None,
    }
}

pub(super) fn start() -> Command {
    Command::StartRun {
        engine: "mock".into(),
        engine_run_ref: "mock://1".into(),
        fetched_sha256: None,
    }
}

fn claim_of(state: &State, target: Target) -> Claim {
    let execution = state.target(target).map_or(1, |run| run.execution());
    Claim {
        target,
        execution,
        worker: "w".into(),
        lease_until: None,
    }
}

/// What can be done in this state by someone who means well.
pub(super) fn lawful(
    plan: &Plan,
    state: &State,
    now: Time,
    key: &TokenKey,
    dice: &mut Dice,
) -> Option<Command> {
    match state.phase() {
        Phase::Void => return Some(create(state.run_id())),
        Phase::Created if plan.policy().must_queue => return Some(Command::EnqueueRun),
        Phase::Created | Phase::Queued if plan.policy().needs_approval && !state.approved() => {
            let id = format!("p{}", dice.roll(1 << 20) % 3);
            return Some(Command::ApproveRun {
                actor: Actor {
                    id,
                    role: Role::Admin,
                    tenant: None,
                    may_answer: true,
                },
                reason: None,
            });
        }
        Phase::Created | Phase::Queued => return Some(start()),
        _ => {}
    }
    let sources = wake_sources(plan, state);
    Some(match dice.pick(&sources)? {
        WakeSource::Queue => start(),
        WakeSource::Task { target, .. } => Command::ClaimStep {
            target: *target,
            worker: "w".into(),
            lease_until: now.plus(30_000),
        },
        WakeSource::Lease { target, until } => result(state, *target, *until, now, dice),
        WakeSource::Outside { step, wait } => outside(plan, state, *step, wait, key, dice),
        WakeSource::Child { step, request_key } => Command::ChildEnded {
            step: *step,
            request_key: request_key.clone(),
            outcome: if dice.one_in(3) {
                RunOutcome::Failed(Rollback::None)
            } else {
                RunOutcome::Succeeded
            },
            output: json!({"child": 1}),
            error: None,
        },
        WakeSource::Timer { .. } => {
            let timers: Vec<TimerId> = state.timers().iter().map(|(_, id)| id).collect();
            Command::FireTimer(*dice.pick(&timers)?)
        }
        WakeSource::Operator => signal(
            plan,
            if dice.one_in(2) {
                "RESUME"
            } else {
                "RETRY_STEP"
            },
            state,
            dice,
            Role::System,
        ),
        WakeSource::Ctx { .. } => Command::PatchCtx {
            actor: Actor {
                id: "op".into(),
                role: Role::Admin,
                tenant: None,
                may_answer: true,
            },
            ctx: [("open".to_owned(), json!(true))].into(),
        },
        WakeSource::Proceed => Command::Proceed,
    })
}

fn result(state: &State, target: Target, until: Time, now: Time, dice: &mut Dice) -> Command {
    let claim = claim_of(state, target);
    let class = *dice.pick(ErrorClass::ALL).expect("classes");
    match dice.roll(1 << 20) % 12 {
        0..=5 => Command::CompleteStep {
            claim: Claim {
                lease_until: Some(now),
                ..claim
            },
            output: json!({"n": 1}),
            ctx: if dice.one_in(3) {
                [("open".to_owned(), json!(true))].into()
            } else {
                Default::default()
            },
            artifacts: vec![],
        },
        6 | 7 => Command::FailStep {
            claim,
            error: StepError::new(class, "E", "random"),
            retryable: *dice
                .pick(&[None, Some(true), Some(false)])
                .expect("choices"),
            delay_ms: *dice.pick(&[None, Some(0), Some(70)]).expect("choices"),
            ctx: Default::default(),
        },
        8 => Command::WaitStep {
            claim,
            wait: match dice.roll(1 << 20) % 4 {
                0 => WaitFor::Event {
                    event_type: "ping".into(),
                },
                1 => WaitFor::Manual,
                2 => WaitFor::Child {
                    call: CalledRun {
                        path: "child".into(),
                        return_step: None,
                    },
                    input: json!({ "n": 1 }),
                },
                _ => WaitFor::Timer,
            },
            timeout_ms: *dice.pick(&[None, Some(3_000)]).expect("choices"),
            outbound: vec![],
            memo: dice.one_in(2).then(|| json!({ "task": 1 })),
        },
        9 => Command::ConfirmKill { claim },
        _ => Command::ExpireLease {
            target,
            execution: claim.execution,
            lease_until: Some(until.min(Time(now.0 - 1))),
            cause: any_end(dice),
        },
    }
}

fn any_end(dice: &mut Dice) -> LeaseEnd {
    let ends = [
        LeaseEnd::Expired,
        LeaseEnd::SessionDead,
        LeaseEnd::OwnSession,
        LeaseEnd::Unanswered,
    ];
    *dice.pick(&ends).expect("choices")
}

fn outside(
    plan: &Plan,
    state: &State,
    step: StepRef,
    wait: &WaitKind,
    key: &TokenKey,
    dice: &mut Dice,
) -> Command {
    match wait {
        WaitKind::Event { event_type, .. } => Command::DeliverEvent {
            event_id: format!("e{}", dice.roll(1 << 31)),
            event_type: event_type.clone(),
            payload: json!({"x": 1}),
        },
        _ => Command::CompleteManually {
            details: Default::default(),
            step,
            token: open_token(plan, state, step, key).unwrap_or_default(),
            outcome: *dice
                .pick(&[
                    ManualOutcome::Succeeded,
                    ManualOutcome::Succeeded,
                    ManualOutcome::Failed,
                    ManualOutcome::Cancelled,
                ])
                .expect("outcomes"),
            actor: Actor {
                id: format!("q{}", dice.roll(5_000)),
                role: Role::Operator,
                tenant: None,
                may_answer: true,
            },
            output: json!(null),
        },
    }
}

fn any_ref(plan: &Plan, dice: &mut Dice) -> StepRef {
    StepRef {
        step: StepNo((dice.roll(1 << 20) % plan.len() as u64) as u32),
        visit: *dice.pick(&[1, 1, 1, 2, 0, 9]).expect("visits"),
        item: *dice
            .pick(&[None, None, Some(0), Some(1), Some(99)])
            .expect("items"),
    }
}

fn signal(plan: &Plan, name: &str, state: &State, dice: &mut Dice, role: Role) -> Command {
    let step = plan.step_id(StepRef {
        visit: 1,
        item: None,
        ..any_ref(plan, dice)
    });
    let payload = match name {
        "RETRY_STEP" | "SKIP_STEP" => json!({"stepId": step}),
        "UPDATE_PARAMS" => json!({"params": {"items": [9]}}),
        "INJECT_OVERRIDE" => json!({"stepId": step, "override": {"a": 1}}),
        "UPDATE_TARGET" => json!({"stepId": step, "newTarget": {"queue": "x"}}),
        "EMERGENCY_STOP" => json!({"reason": "fire", "forceKill": dice.one_in(2)}),
        "ESCALATE_ALERT" => json!({"level": "P1"}),
        _ => json!({}),
    };
    Command::Signal {
        signal_id: format!("sig{}-{}", state.seq(), dice.roll(1 << 20) % 2),
        signal: name.into(),
        payload,
        reason: if dice.one_in(3) {
            None
        } else {
            Some("because".into())
        },
        actor: Actor {
            role,
            ..actor(dice)
        },
    }
}

/// Anything at all, also what makes no sense.
pub(super) fn wild(plan: &Plan, state: &State, now: Time, dice: &mut Dice) -> Command {
    let target = match dice.one_in(4) {
        true => Target::Undo(any_ref(plan, dice)),
        false => Target::Step(any_ref(plan, dice)),
    };
    let claim = Claim {
        target,
        execution: (dice.roll(1 << 20) % 3) as u32,
        worker: (*dice.pick(&["w", "x", ""]).expect("workers")).into(),
        lease_until: *dice
            .pick(&[None, Some(now), Some(Time(0))])
            .expect("leases"),
    };
    match dice.roll(1 << 20) % 20 {
        0 => create(state.run_id()),
        1 => Command::EnqueueRun,
        2 => Command::ApproveRun {
            actor: actor(dice),
            reason: None,
        },
        3 => start(),
        4 => Command::ClaimStep {
            target,
            worker: claim.worker,
            lease_until: now,
        },
        5 => Command::CompleteStep {
            claim,
            output: json!(1),
            ctx: Default::default(),
            artifacts: vec![],
        },
        6 => Command::FailStep {
            claim,
            error: StepError::new(ErrorClass::Unknown, "E", "wild"),
            retryable: None,
            delay_ms: Some(u64::MAX),
            ctx: Default::default(),
        },
        7 => Command::WaitStep {
            claim,
            wait: WaitFor::Manual,
            timeout_ms: Some(u64::MAX),
            outbound: vec![],
            memo: None,
        },
        8 => Command::ConfirmKill { claim },
        9 => Command::ExpireLease {
            target,
            execution: claim.execution,
            lease_until: None,
            cause: any_end(dice),
        },
        10 => Command::FireTimer(TimerId {
            kind: *dice
                .pick(&[
                    TimerKind::Attempt,
                    TimerKind::Wait,
                    TimerKind::Hold,
                    TimerKind::Run,
                    TimerKind::Drain,
                    TimerKind::Stall,
                ])
                .expect("kinds"),
            target: if dice.one_in(2) { Some(target) } else { None },
            armed: dice.roll(1 << 20) % 9,
        }),
        11 => Command::DeliverEvent {
            event_id: format!("e{}", dice.roll(1 << 20) % 5),
            event_type: "ping".into(),
            payload: json!(null),
        },
        12 => Command::CompleteManually {
            details: Default::default(),
            step: any_ref(plan, dice),
            token: "guess".into(),
            outcome: ManualOutcome::Succeeded,
            actor: actor(dice),
            output: json!({"notes": "hm"}),
        },
        13 => Command::ChildEnded {
            step: any_ref(plan, dice),
            request_key: "nobody".into(),
            outcome: RunOutcome::Succeeded,
            output: json!(1),
            error: None,
        },
        14 => Command::PatchCtx {
            actor: actor(dice),
            ctx: [("n".to_owned(), json!(0))].into(),
        },
        15 => Command::CancelRun {
            actor: actor(dice),
            reason: None,
            compensate: dice.one_in(2),
            keep_undo: false,
        },
        16 => Command::Proceed,
        _ => {
            let name = *dice
                .pick(&[
                    "PAUSE",
                    "RESUME",
                    "CANCEL",
                    "RETRY_STEP",
                    "RETRY_RUN",
                    "SKIP_STEP",
                    "SKIP_STEP",
                    "UPDATE_PARAMS",
                    "INJECT_OVERRIDE",
                    "UPDATE_TARGET",
                    "EMERGENCY_STOP",
                    "ESCALATE_ALERT",
                    "NONSENSE",
                ])
                .expect("signals");
            signal(plan, name, state, dice, Role::System)
        }
    }
}

pub(super) fn operator() -> Actor {
    Actor {
        id: "operator".into(),
        role: Role::Operator,
        tenant: None,
        may_answer: true,
    }
}
