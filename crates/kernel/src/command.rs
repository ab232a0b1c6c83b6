//! Commands: what someone wants, in the imperative. Every one carries all the entropy it needs.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::effect::{RunOutcome, Target};
use crate::event::{ArtifactRef, CalledRun, Parent, Patch, RunContext, StepError};
use crate::keys::TokenKey;
use crate::plan::{StepNo, StepRef};
use crate::rejection::{Code, Rejection};
use crate::time::Time;

/// The values from outside that a decision needs.
#[derive(Clone, Debug)]
pub struct Env {
    /// The current time; the kernel uses the time of the last event if that is later.
    pub now: Time,
    /// The secret that completion tokens are made with.
    pub key: TokenKey,
}

/// Who sends a signal or completes a step by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The name of the person or system, as events record it.
    pub id: String,
    /// The highest role that the actor has.
    pub role: Role,
    /// The tenant of the actor; absent for operators of the whole installation, who may act on every run.
    pub tenant: Option<String>,
    /// Whether the actor may answer for manual steps and approvals, if the role allows it: a server gives this right apart
    /// from the roles.
    #[serde(default = "yes")]
    pub may_answer: bool,
}

fn yes() -> bool {
    true
}

impl Actor {
    /// Whether the actor may see and change runs of this context: an actor with a tenant only those of its tenant.
    #[must_use]
    pub fn is_of(&self, run: &RunContext) -> bool {
        self.tenant.as_ref().is_none_or(|it| *it == run.tenant_id)
    }
}

/// What an actor may do. Each role may also do what the roles before it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// May read everything and change nothing.
    Viewer,
    /// May pause, resume and cancel runs.
    Operator,
    /// May retry runs and steps, and skip steps.
    Engineer,
    /// May send every signal that a person may send.
    Admin,
    /// The engine itself, not a person.
    System,
}

/// The proof that a worker has claimed an execution. Only a claim makes this proof, so nobody can report on work
/// that was not claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The step-run whose work or undo was claimed.
    pub target: Target,
    /// The number of the execution. A result with an older number is refused.
    pub execution: u32,
    pub worker: String,
    /// The end of the lease as the store has it now, after heartbeats; absent: as the claim granted it.
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
    /// The step-run that the timer is for; absent for a timer of the run itself.
    pub target: Option<Target>,
    /// The sequence number of the event that armed the timer. A timer that is no longer armed names an older event.
    pub armed: u64,
}

/// What a handler asks to wait for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// An event; the step runs again when it comes.
    Event { event_type: String },
    /// A person completes the step.
    Manual,
    /// Time; the step runs again when it has passed.
    Timer,
    /// Another run, which is started; the step runs again when it has ended.
    Child {
        /// The definition of the child, and which output of the child is the result.
        call: CalledRun,
        /// The parameters of the child.
        input: Json,
    },
}

/// How a person ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ManualOutcome {
    /// The work is done, or the person has approved.
    Succeeded,
    /// The work has failed, or the person has rejected.
    Failed,
    /// The person has withdrawn the work: the step fails with class `cancelled`.
    Cancelled,
}

impl ManualOutcome {
    /// The outcome in the words of the manual completion signal.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            ManualOutcome::Succeeded => "Succeeded",
            ManualOutcome::Failed => "Failed",
            ManualOutcome::Cancelled => "Cancelled",
        }
    }
}

/// What a person says beside the outcome of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerDetails {
    /// When the person completed the work; absent: when the answer is decided.
    #[serde(default)]
    pub completed_at: Option<Time>,
    /// Why, in the words of the person.
    #[serde(default)]
    pub notes: Option<String>,
    /// Ids of evidence, or references to it.
    #[serde(default)]
    pub evidence_refs: Vec<String>,
}

/// Why a lease ended before its work did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseEnd {
    /// The worker did not renew the lease.
    #[default]
    Expired,
    /// The session of the server that did the work is over, and nobody knows how: a crash, most often.
    SessionDead,
    /// The server that reports this has lost its own session and has stopped its work. The work is not to blame.
    OwnSession,
    /// The claim is in the log, and the work is not known to the server that made the claim: the answer of its commit was
    /// lost.
    Unanswered,
}

/// A request to the kernel. The kernel answers with events or with a rejection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Create a run. The first command of every run.
    CreateRun {
        run_id: String,
        /// The parameters of the request; they are merged over the workload of the plan.
        params: Json,
        /// The tenant, project and environment of the run, and who started the run.
        context: RunContext,
        /// The run and step that wait for this run; absent if no run has started it.
        parent: Option<Parent>,
        /// The id of the run that this run repeats; absent if it repeats none.
        original_run_id: Option<String>,
        /// When the run may start at the earliest; absent: at once.
        start_after: Option<Time>,
    },
    /// Put the run into the queue for a slot.
    EnqueueRun,
    /// Allow the run to start.
    ApproveRun {
        actor: Actor,
        /// The reason that the person gave; absent if none was given.
        #[serde(default)]
        reason: Option<String>,
    },
    StartRun {
        /// `native`, `temporal`, `conductor` or `mock`.
        engine: String,
        /// The id that the engine itself has given to the run.
        engine_run_ref: String,
        /// SHA-256 of the definition as it was fetched; absent if the definition was not fetched by reference.
        fetched_sha256: Option<String>,
    },
    /// A worker takes the next execution of a step or an undo.
    ClaimStep {
        target: Target,
        worker: String,
        lease_until: Time,
    },
    /// A worker reports that its work has succeeded.
    CompleteStep {
        claim: Claim,
        output: Json,
        ctx: Patch,
        /// References to the artifacts of the step.
        artifacts: Vec<ArtifactRef>,
    },
    /// A worker reports that its work has failed.
    FailStep {
        claim: Claim,
        error: StepError,
        /// Whether the handler wants a retry; absent: the class of the error decides. True counts only if the plan
        /// lets handlers decide.
        retryable: Option<bool>,
        /// The wait before the retry that the handler wants, in milliseconds; absent: the backoff of the plan.
        delay_ms: Option<u64>,
        /// Patches of ctx, which are applied if the failure is not retried.
        ctx: Patch,
    },
    /// A worker reports that the step must wait; the worker is free for other work.
    WaitStep {
        claim: Claim,
        wait: WaitFor,
        /// The longest wait, in milliseconds; absent: no limit.
        timeout_ms: Option<u64>,
        /// The events that the engine publishes when the wait begins.
        outbound: Vec<Json>,
        /// The data that the worker gets back when the step runs again, such as how far the work has come.
        memo: Option<Json>,
    },
    /// A worker reports that it has stopped its work, as the engine asked.
    ConfirmKill { claim: Claim },
    /// The engine reports that a lease has run out.
    ExpireLease {
        target: Target,
        execution: u32,
        /// The end of the lease as the store has it, after heartbeats; absent: as the claim granted it.
        lease_until: Option<Time>,
        /// Why the lease is over.
        #[serde(default)]
        cause: LeaseEnd,
    },
    /// The engine reports that a timer is due.
    FireTimer(TimerId),
    /// An event came from outside.
    DeliverEvent {
        /// The id that the sender chose: an event that is delivered twice counts once.
        event_id: String,
        event_type: String,
        payload: Json,
    },
    /// A person completes or approves.
    CompleteManually {
        step: StepRef,
        /// The completion token that the person was given.
        token: String,
        outcome: ManualOutcome,
        actor: Actor,
        /// The output of the step, if the person says that the work is done.
        output: Json,
        /// When, why and with which evidence.
        #[serde(default)]
        details: AnswerDetails,
    },
    /// A child run has ended.
    ChildEnded {
        /// The step-run that waits for the child.
        step: StepRef,
        /// The key that the child was started with.
        request_key: String,
        outcome: RunOutcome,
        output: Json,
        /// The error of the child; absent if the child did not fail.
        error: Option<StepError>,
    },
    /// Change ctx from outside.
    PatchCtx { actor: Actor, ctx: Patch },
    /// Cancel the run. Work in flight is told to stop.
    CancelRun {
        actor: Actor,
        reason: Option<String>,
        /// Whether the completed steps are undone before the run ends.
        compensate: bool,
        /// Refuse where the run is undoing steps: a cancel drops the rest of that.
        #[serde(default)]
        keep_undo: bool,
    },
    /// A signal of the contract.
    Signal {
        /// The id that the sender chose: a signal that is sent twice counts once.
        signal_id: String,
        /// The type of the signal, such as `PAUSE`.
        signal: String,
        payload: Json,
        /// The reason for the signal; destructive signals need one.
        reason: Option<String>,
        /// The sender; its role must be high enough for the signal.
        actor: Actor,
    },
    /// Go on deciding where the last decision stopped.
    Proceed,
}

impl Command {
    /// Refuses events that no run takes. Asked before an event is kept for a run, too: later nobody would be told.
    pub fn check_event(event_id: &str, event_type: &str) -> Result<(), Rejection> {
        let fits = |text: &str| (1..=200).contains(&text.len()) && !text.contains('\0');
        if fits(event_id) && !event_id.contains('|') && fits(event_type) {
            return Ok(());
        }
        Err(Rejection::new(
            Code::InvalidId,
            "an event needs an id and a type of 1 to 200 characters without NUL, the id without |",
        ))
    }

    /// The proof that a worker's result comes with.
    #[must_use]
    pub fn claim(&self) -> Option<&Claim> {
        match self {
            Command::CompleteStep { claim, .. }
            | Command::FailStep { claim, .. }
            | Command::WaitStep { claim, .. }
            | Command::ConfirmKill { claim } => Some(claim),
            Command::CreateRun { .. }
            | Command::EnqueueRun
            | Command::ApproveRun { .. }
            | Command::StartRun { .. }
            | Command::ClaimStep { .. }
            | Command::ExpireLease { .. }
            | Command::FireTimer(_)
            | Command::DeliverEvent { .. }
            | Command::CompleteManually { .. }
            | Command::ChildEnded { .. }
            | Command::PatchCtx { .. }
            | Command::CancelRun { .. }
            | Command::Signal { .. }
            | Command::Proceed => None,
        }
    }

    /// The proof that a worker's result comes with, to change it.
    pub fn claim_mut(&mut self) -> Option<&mut Claim> {
        match self {
            Command::CompleteStep { claim, .. }
            | Command::FailStep { claim, .. }
            | Command::WaitStep { claim, .. }
            | Command::ConfirmKill { claim } => Some(claim),
            Command::CreateRun { .. }
            | Command::EnqueueRun
            | Command::ApproveRun { .. }
            | Command::StartRun { .. }
            | Command::ClaimStep { .. }
            | Command::ExpireLease { .. }
            | Command::FireTimer(_)
            | Command::DeliverEvent { .. }
            | Command::CompleteManually { .. }
            | Command::ChildEnded { .. }
            | Command::PatchCtx { .. }
            | Command::CancelRun { .. }
            | Command::Signal { .. }
            | Command::Proceed => None,
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
    /// The claim succeeded; this is the work.
    Claimed(Box<Claimed>),
    /// The same command was decided before; this is the result of that time.
    Duplicate(Box<EarlierResult>),
    /// A signal was recorded as refused.
    Refused(Rejection),
    /// The engine must start a new run that repeats this run.
    RetryRun {
        /// The key of the start request of the new run.
        request_key: String,
    },
}

/// The result that a repeated command had the first time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EarlierResult {
    /// The step had succeeded.
    Succeeded,
    /// The step had failed.
    Failed(StepError),
    /// The step had succeeded, with another output than the one that is reported now.
    SucceededOtherwise,
    /// The step had failed, with another error than the one that is reported now.
    FailedOtherwise(StepError),
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claimed {
    /// The proof that the result must carry.
    pub claim: Claim,
    pub step: StepNo,
    /// The id of the step-run in its run, such as `build#2` or `build[0]`.
    pub step_id: String,
    /// The logical attempt, from 1; RETRY_STEP raises it.
    pub logical: u32,
    /// A key for effects outside. The key is the same in all executions of the logical attempt, also after a
    /// restart.
    pub idempotency_key: String,
    /// Which attempt, from 1: an execution that replaces a lost one or answers a wait belongs to the same attempt.
    pub attempt: u32,
    /// The fencing token ([`crate::keys::fence`]): it rises with every claim of the run, so the outside can refuse an
    /// execution that was replaced.
    pub fence: u64,
    /// Ordinary work, or a wait that ran out.
    pub task: crate::event::TaskKind,
    /// The arguments bound to the token.
    pub args: Option<Arc<Json>>,
    /// The item of the loop; absent if the step has no loop.
    pub item: Option<Json>,
    /// The content of the event that ended the wait, or the result of the child; absent if there was none.
    pub payload: Option<Arc<Json>>,
    /// What an operator merged over the step's input.
    pub overrides: Option<Arc<Json>>,
    /// The target that an operator redirected the step to; absent: the target of the plan.
    pub target: Option<Arc<Json>>,
    /// The run's parameters, as they were when this logical attempt started.
    pub params: Arc<Json>,
    /// The data that the worker saved when it let the step wait.
    pub memo: Option<Arc<Json>>,
    /// The variables of ctx that the work reads.
    pub ctx: Arc<Json>,
    /// The outputs of other steps that the work reads, by the name of the step.
    pub outputs: Vec<(String, Arc<Json>)>,
}
