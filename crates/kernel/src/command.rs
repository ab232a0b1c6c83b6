//! Commands: what someone wants, in the imperative. Every one carries all the entropy it needs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::effect::{RunOutcome, Target};
use crate::event::{ArtifactRef, CalledRun, Parent, Patch, RunContext, StepError};
use crate::keys::TokenKey;
use crate::plan::{StepNo, StepRef};
use crate::time::Time;

/// What the outside world contributes to a decision.
#[derive(Clone, Debug)]
pub struct Env {
    /// The time; the kernel uses the last event's if that is later.
    pub now: Time,
    /// The secret for completion tokens.
    pub key: TokenKey,
}

/// Who sends a signal or completes a step by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The person or system.
    pub id: String,
    /// What they may do.
    pub role: Role,
    /// Their tenant; absent for operators of the whole installation.
    pub tenant: Option<String>,
}

/// What an actor may do; each role may do what the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look.
    Viewer,
    /// Pause, resume, cancel.
    Operator,
    /// Retry and skip.
    Engineer,
    /// Everything a person may do.
    Admin,
    /// The engine itself.
    System,
}

/// Who a result comes from. Only a claim makes one, so nobody can report on work that was not claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// What was claimed.
    pub target: Target,
    /// Which execution: the fence.
    pub execution: u32,
    pub worker: String,
    /// The lease's end as the store's row has it now; absent means as it was granted.
    pub lease_until: Option<Time>,
}

/// The timers a run can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimerKind {
    /// An execution took too long.
    Attempt,
    /// A wait took too long, or the time it waited for has come.
    Wait,
    /// A held failure was not dealt with.
    Hold,
    /// The run took too long.
    Run,
    /// A pause's drain took too long.
    Drain,
    /// A stall took too long.
    Stall,
}

/// A timer that was armed by the event with this sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TimerId {
    pub kind: TimerKind,
    /// Whose; absent for the run's own.
    pub target: Option<Target>,
    /// The event that armed it: a stale timer names an older one.
    pub armed: u64,
}

/// What a handler asks to wait for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// An event; the step runs again when it comes.
    Event { event_type: String },
    /// A person.
    Manual,
    /// Time; the step runs again when it has passed.
    Timer,
    /// Another run, which is started; the step runs again when it has ended.
    Child {
        /// Which definition, and what of it is wanted.
        call: CalledRun,
        /// With these parameters.
        input: Json,
    },
}

/// How a person ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManualOutcome {
    /// Done, or approved.
    Succeeded,
    /// Not done, or rejected.
    Failed,
    /// Withdrawn.
    Cancelled,
}

/// What someone wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Bring a run into being.
    CreateRun {
        run_id: String,
        /// Merged over the plan's workload.
        params: Json,
        /// Who it belongs to.
        context: RunContext,
        /// The run and step that wait for it.
        parent: Option<Parent>,
        /// The run that it repeats.
        original_run_id: Option<String>,
        /// Not to be started before.
        start_after: Option<Time>,
    },
    /// Put it into the queue.
    EnqueueRun,
    /// Allow it to start.
    ApproveRun { actor: Actor },
    StartRun {
        /// `native`, `temporal`, `conductor` or `mock`.
        engine: String,
        /// The engine's own reference.
        engine_run_ref: String,
        /// Hash of the definition as it was fetched; absent when it was not fetched by reference.
        fetched_sha256: Option<String>,
    },
    /// Take work.
    ClaimStep {
        target: Target,
        worker: String,
        lease_until: Time,
    },
    /// Report success.
    CompleteStep {
        claim: Claim,
        output: Json,
        ctx: Patch,
        /// Pointers to what was made.
        artifacts: Vec<ArtifactRef>,
    },
    /// Report failure.
    FailStep {
        claim: Claim,
        error: StepError,
        /// The handler's own word on whether to retry; absent leaves it to the class. Yes counts only
        /// where the plan leaves the choice to handlers.
        retryable: Option<bool>,
        /// The handler's own word on how long to wait.
        delay_ms: Option<u64>,
        /// Patches of ctx, for what follows a failure for good.
        ctx: Patch,
    },
    /// Report that it waits.
    WaitStep {
        claim: Claim,
        wait: WaitFor,
        /// For how long at most.
        timeout_ms: Option<u64>,
        /// Events to publish with it.
        outbound: Vec<Json>,
        /// What the worker wants to be told when the step runs again: how far it came.
        memo: Option<Json>,
    },
    /// Report that it was killed as asked.
    ConfirmKill { claim: Claim },
    /// Report that a lease has run out.
    ExpireLease {
        target: Target,
        execution: u32,
        /// When it ended, as the store's row has it; absent means as it was granted.
        lease_until: Option<Time>,
    },
    /// A timer is due.
    FireTimer(TimerId),
    /// An event came from outside.
    DeliverEvent {
        /// Its id: delivered twice, it counts once.
        event_id: String,
        event_type: String,
        payload: Json,
    },
    /// A person completes or approves.
    CompleteManually {
        step: StepRef,
        /// The token they were given.
        token: String,
        outcome: ManualOutcome,
        actor: Actor,
        /// What they said, and pointers to evidence.
        output: Json,
    },
    /// A child run has ended.
    ChildEnded {
        /// The step that waits.
        step: StepRef,
        /// The child's key.
        request_key: String,
        outcome: RunOutcome,
        output: Json,
        /// Why it failed.
        error: Option<StepError>,
    },
    /// Change ctx from outside.
    PatchCtx { actor: Actor, ctx: Patch },
    /// Cancel the run; with `compensate` what was done is undone.
    CancelRun {
        actor: Actor,
        reason: Option<String>,
        /// Whether to undo.
        compensate: bool,
    },
    /// A signal of the contract.
    Signal {
        /// Its id: sent twice, it counts once.
        signal_id: String,
        /// Its type, as `PAUSE`.
        signal: String,
        payload: Json,
        /// Why; signals that change what was planned need one.
        reason: Option<String>,
        /// Who sends it.
        actor: Actor,
    },
    /// Go on deciding where the last decision stopped.
    Proceed,
}

impl Command {
    /// The proof that a worker's result comes with.
    #[must_use]
    pub fn claim(&self) -> Option<&Claim> {
        match self {
            Command::CompleteStep { claim, .. }
            | Command::FailStep { claim, .. }
            | Command::WaitStep { claim, .. }
            | Command::ConfirmKill { claim } => Some(claim),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub fn claim_mut(&mut self) -> Option<&mut Claim> {
        match self {
            Command::CompleteStep { claim, .. }
            | Command::FailStep { claim, .. }
            | Command::WaitStep { claim, .. }
            | Command::ConfirmKill { claim } => Some(claim),
            _ => None,
        }
    }
}

/// What the sender of a command gets back, beside the events.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Reply {
    #[default]
    Done,
    /// A run was created, or had been created by the same request.
    Created {
        /// The id of that run.
        run_id: String,
    },
    /// Work was claimed.
    Claimed(Box<Claimed>),
    /// It had been done before; this is what came of it then.
    Duplicate(Box<EarlierResult>),
    /// A signal was recorded as refused.
    Refused(crate::rejection::Rejection),
    /// A new run is to be started that repeats this one.
    RetryRun {
        /// The new run's start request.
        request_key: String,
    },
}

/// What a repeated command came to the first time.
#[derive(Clone, Debug, PartialEq)]
pub enum EarlierResult {
    /// The step had succeeded.
    Succeeded,
    /// The step had failed.
    Failed(StepError),
    /// The person's answer had been taken.
    Manual(ManualOutcome),
    /// The event had been taken.
    Event,
    /// The signal had been accepted.
    SignalAccepted,
    /// The signal had been refused.
    SignalRejected(String),
    /// The child's end had been taken.
    Child,
}

/// Everything a worker needs to do the work.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// The proof.
    pub claim: Claim,
    pub step: StepNo,
    /// Its id in this run.
    pub step_id: String,
    /// Logical attempt.
    pub logical: u32,
    /// The same across retries and restarts.
    pub idempotency_key: String,
    /// Ordinary work, or a wait that ran out.
    pub task: crate::event::TaskKind,
    /// The arguments bound to the token.
    pub args: Option<Arc<Json>>,
    /// The loop's item.
    pub item: Option<Json>,
    /// The payload of the event that woke the step.
    pub payload: Option<Arc<Json>>,
    /// What an operator merged over the step's input.
    pub overrides: Option<Arc<Json>>,
    /// Where an operator redirected the step to.
    pub target: Option<Arc<Json>>,
    /// The run's parameters, as they were when this logical attempt started.
    pub params: Arc<Json>,
    /// What the worker that let the step wait wanted to be told.
    pub memo: Option<Arc<Json>>,
    /// The run's ctx, as far as the work looks at it.
    pub ctx: Arc<Json>,
    /// What other steps returned, by name, as far as the work looks at it.
    pub outputs: Vec<(String, Arc<Json>)>,
}
