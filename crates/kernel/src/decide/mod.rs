//! `decide`: a command against a state gives events, or a rejection that changes nothing.
//!
//! A handler first checks everything that can be refused, then emits. Each emitted event is folded
//! at once, and `settle` then draws every consequence until nothing more follows by itself: due
//! failures, routes, entries, stopping, undoing, quiescence. A decision that grows too long ends with
//! `Effect::Proceed` and goes on in the next one, so that no plan can make the kernel spin.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | no run, any command but the first | – | `RUN_UNKNOWN` |
//! | a run exists, the first command again | – | `RUN_EXISTS` |
//! | not ended, `Proceed` | whatever follows by itself | `NOTHING_TO_DO` |
//! | Ended, `Proceed` | – | `RUN_TERMINAL` |
//! | the state does not fit its rules, any command | – | `LOG_INVALID` |

mod actor_name;
mod claim;
mod compensate;
mod duties;
mod enter;
mod failure;
mod lifecycle;
mod outside;
mod people;
mod report;
mod route;
mod settle;
mod signal;
mod stop;
mod timer;

use std::collections::BTreeSet;

use crate::command::{Command, Env, Reply, TimerKind};
use crate::effect::Effect;
use crate::event::{Body, Event};
use crate::evolve::evolve;
use crate::plan::{Plan, StepRef};
use crate::rejection::{Code, Rejection};
use crate::state::{Phase, State};
use crate::time::Time;

pub use compensate::undo_order;
pub use duties::{approvals_needed, barred, barred_from_run, duties};
pub use people::{open_token, output_hash};
pub(crate) use settle::is_unsettled;

/// Most events that follow from one command; the rest come with `Proceed`.
pub const MAX_CONSEQUENCES: usize = 1_000;
/// Most items of one loop; a step with a longer list fails.
pub const MAX_ITEMS: usize = 1_000_000;
/// Most items of a loop that are open at a time.
pub const MAX_PARALLEL: u32 = 1_000;
/// Most external events that a run keeps for steps that do not wait yet.
pub const MAX_INBOX: usize = 1_000;
/// Most visits of one step in one run: a cycle that never ends fails instead.
pub const MAX_VISITS: usize = 100_000;

/// The result of a command. The events are already folded into the state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The events of the command; empty if the same command was decided before.
    pub events: Vec<Event>,
    /// What to do once the events are committed.
    pub effects: Vec<Effect>,
    /// The answer to the sender of the command.
    pub reply: Reply,
}

/// Decides a command. On `Ok` the state has the decision's events folded in; on `Err` it is as it was.
///
/// One rejection is not lawful: `LOG_INVALID` says that the state does not fit its own rules, so that an
/// event that must follow cannot. The state may then have a part of the decision folded in: throw it away,
/// and do not serve the run until its log has been looked at.
pub fn decide(
    plan: &Plan,
    state: &mut State,
    command: Command,
    env: &Env,
) -> Result<Decision, Rejection> {
    let wake_before = next_wake(state);
    let now = env.now.max(state.last_at());
    let mut decider = Decider {
        plan,
        state,
        env,
        now,
        decision: Decision::default(),
        ctx_changed: false,
        fault: None,
    };
    let handled = decider.handle(command);
    if handled.is_ok() {
        decider.settle();
    }
    if let Some(fault) = decider.fault {
        debug_assert!(false, "{fault}");
        return Err(fault);
    }
    let mut decision = decider.decision;
    decision.reply = handled?;
    sort_dispatches(plan, &mut decision.effects);
    let wake = next_wake(state);
    if wake != wake_before {
        decision.effects.extend(wake.map(Effect::WakeAt));
    }
    Ok(decision)
}

/// When the run must be woken by time at the latest. While paused only the drain counts.
#[must_use]
pub fn next_wake(state: &State) -> Option<Time> {
    if matches!(state.phase(), Phase::Created | Phase::Queued) {
        return state.start_after();
    }
    let timer = match state.pause() {
        Some(_) => state.timers().own(TimerKind::Drain),
        None => state.timers().next(),
    };
    timer.map(|(due, _)| due)
}

struct Decider<'a> {
    plan: &'a Plan,
    state: &'a mut State,
    env: &'a Env,
    now: Time,
    decision: Decision,
    /// ctx has changed in this decision, so denied tokens are looked at again.
    ctx_changed: bool,
    /// The state does not fit its own rules: the decision is void.
    fault: Option<Rejection>,
}

type Handled = Result<Reply, Rejection>;

impl Decider<'_> {
    fn handle(&mut self, mut command: Command) -> Handled {
        actor_name::tidy(&mut command)?;
        if let Command::CreateRun { .. } = command {
            return self.create(command);
        }
        if self.state.phase() == Phase::Void {
            return reject(Code::RunUnknown, "there is no such run: create it first");
        }
        match command {
            Command::CreateRun { .. } => reject(Code::RunExists, "the run exists already"),
            Command::EnqueueRun => self.enqueue(),
            Command::ApproveRun { actor, reason } => self.approve(&actor, reason),
            Command::StartRun {
                engine,
                engine_run_ref,
                fetched_sha256,
            } => self.start(engine, engine_run_ref, fetched_sha256),
            Command::ClaimStep {
                target,
                worker,
                lease_until,
            } => self.claim(target, worker, lease_until),
            Command::CompleteStep {
                claim,
                output,
                ctx,
                artifacts,
            } => self.complete(&claim, output, ctx, artifacts),
            Command::FailStep {
                claim,
                error,
                retryable,
                delay_ms,
                ctx,
            } => self.fail(&claim, error, retryable, delay_ms, ctx),
            Command::WaitStep {
                claim,
                wait,
                timeout_ms,
                outbound,
                memo,
            } => self.wait(&claim, &wait, timeout_ms, outbound, memo),
            Command::ConfirmKill { claim } => self.confirm_kill(&claim),
            Command::ExpireLease {
                target,
                execution,
                lease_until,
                cause,
            } => self.expire_lease(target, execution, lease_until, cause),
            Command::FireTimer(id) => self.fire_timer(id),
            Command::DeliverEvent {
                event_id,
                event_type,
                payload,
            } => self.deliver(event_id, event_type, payload),
            Command::CompleteManually {
                step,
                token,
                outcome,
                actor,
                output,
                details,
            } => self.complete_manually(step, &token, outcome, &actor, output, details),
            Command::ChildEnded {
                step,
                request_key,
                outcome,
                output,
                error,
            } => self.child_ended(step, &request_key, outcome, output, error),
            Command::PatchCtx { actor, ctx } => self.patch_from_outside(&actor, ctx),
            Command::CancelRun {
                actor,
                reason,
                compensate,
                keep_undo,
            } => self.cancel(&actor, reason, compensate, keep_undo),
            Command::Signal {
                signal_id,
                signal,
                payload,
                reason,
                actor,
            } => self.signal(signal_id, signal, payload, reason, &actor),
            Command::Proceed => self.proceed(),
        }
    }

    /// The state does not fit its own rules. The first fault counts; nothing is emitted after it.
    #[cold]
    fn invalid(&mut self, what: impl Into<String>) {
        let fault = || Rejection::new(Code::LogInvalid, what);
        self.fault.get_or_insert_with(fault);
    }

    /// The state names a step-run that it does not have.
    #[cold]
    fn missing(&mut self, at: StepRef) {
        let id = self.plan.step_id(at);
        self.invalid(format!("the state has no step-run {id}, which it names"));
    }

    /// Records an event and folds it in.
    fn emit(&mut self, body: Body) {
        if self.fault.is_some() {
            return;
        }
        // What happened to ctx during a pause is looked at when the pause ends.
        let resumed = matches!(body, Body::RunResumed { .. });
        self.ctx_changed |= resumed || body.patches_ctx();
        if self.decision.events.is_empty() {
            // Most commands are one event, and an event is large.
            self.decision.events.reserve_exact(1);
        }
        let event = Event {
            seq: self.state.seq() + 1,
            at: self.now,
            body: self.plan.hidden().hide(body),
        };
        match evolve(self.plan, self.state, &event, &mut self.decision.effects) {
            Ok(()) => self.decision.events.push(event),
            Err(illegal) => self.invalid(illegal.to_string()),
        }
    }

    fn proceed(&mut self) -> Handled {
        if self.state.phase().is_ended() {
            return terminal();
        }
        // A decision that was cut short may have had denied tokens still to look at.
        self.ctx_changed = true;
        self.settle();
        if self.decision.events.is_empty() {
            return reject(
                Code::NothingToDo,
                "nothing follows from the state by itself",
            );
        }
        Ok(Reply::Done)
    }
}

fn reject<T>(code: Code, message: impl Into<String>) -> Result<T, Rejection> {
    Err(Rejection::new(code, message))
}

fn terminal<T>() -> Result<T, Rejection> {
    reject(
        Code::RunTerminal,
        "the run has ended; start a new one, or send RETRY_RUN to repeat it",
    )
}

/// Of several dispatches of the same work the last one counts: a step that begins to wait until a time and is woken by
/// an event that was there before is ready now, not at that time. Work that becomes ready together is offered by `order`,
/// then by name.
fn sort_dispatches(plan: &Plan, effects: &mut Vec<Effect>) {
    let is_dispatch = |effect: &Effect| matches!(effect, Effect::Dispatch { .. });
    if effects.iter().filter(|effect| is_dispatch(effect)).count() < 2 {
        return;
    }
    let mut known = BTreeSet::new();
    effects.reverse();
    effects.retain(|effect| {
        let Effect::Dispatch { target, .. } = effect else {
            return true;
        };
        known.insert(*target)
    });
    effects.reverse();
    let places: Vec<usize> = (0..effects.len())
        .filter(|i| is_dispatch(&effects[*i]))
        .collect();
    let mut dispatches: Vec<Effect> = places.iter().map(|i| effects[*i].clone()).collect();
    dispatches.sort_by(|a, b| match (a, b) {
        (
            Effect::Dispatch {
                target: a,
                visible_at: a_at,
                ..
            },
            Effect::Dispatch {
                target: b,
                visible_at: b_at,
                ..
            },
        ) => {
            let (a, b) = (a.step_ref(), b.step_ref());
            let (left, right) = (plan.step(a.step), plan.step(b.step));
            (left.order, &left.name, a, a_at).cmp(&(right.order, &right.name, b, b_at))
        }
        _ => std::cmp::Ordering::Equal,
    });
    for (place, dispatch) in places.into_iter().zip(dispatches) {
        effects[place] = dispatch;
    }
}
