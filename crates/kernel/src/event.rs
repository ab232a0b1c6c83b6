//! Events: what happened, in the past tense. The log is a list of these and nothing else is truth.
//!
//! The first thirteen kinds and `RunQueued` are the contract's; the rest are additive and never
//! change the run's status in the contract's view. An event holds the *results* of every decision
//! (routes taken, patches, deadlines), so replay evaluates nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::keys::EventKey;
use crate::plan::{EdgeNo, ErrorClass, Plan, StepRef};
use crate::time::Time;

/// One entry of a run's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its place in the run's log, from 1, without gaps.
    pub seq: u64,
    /// When it was decided; never earlier than the event before it.
    pub at: Time,
    /// What happened.
    pub body: Body,
}

/// Who a run belongs to and who started it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunContext {
    /// The tenant.
    pub tenant_id: String,
    /// The project.
    pub project_id: String,
    /// The environment.
    pub environment_id: String,
    /// The person or system that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub triggered_by: Option<String>,
    /// `manual`, `schedule`, `webhook` or `api`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_source: Option<String>,
}

/// The run and step that started a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Parent {
    /// The parent's run id.
    pub run_id: String,
    /// The step that waits for the child.
    pub step_id: String,
}

/// A pointer to something kept outside the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactRef {
    /// Where it is.
    pub uri: String,
    /// What it is.
    pub kind: String,
    /// Its hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// When it may be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepError {
    /// What retry rules look at.
    pub class: ErrorClass,
    /// A stable code.
    pub code: String,
    /// For people.
    pub message: String,
}

impl StepError {
    /// An error with the class's own name as its code.
    #[must_use]
    pub fn new(
        class: ErrorClass,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> StepError {
        StepError {
            class,
            code: code.into(),
            message: message.into(),
        }
    }
}

/// Changes of the run's ctx, by key.
pub type Patch = BTreeMap<String, Json>;

/// Whether a claim is ordinary work or the answer to a wait that ran out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskKind {
    /// Ordinary work.
    #[default]
    ReadyStep,
    /// The wait's deadline passed.
    WaitingTimeout,
}

impl TaskKind {
    fn is_ready_step(&self) -> bool {
        *self == TaskKind::ReadyStep
    }
}

/// Who works on an execution and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lease {
    /// The worker.
    pub worker: String,
    /// The end of the lease as it was granted; heartbeats extend the row, not the log.
    pub until: Time,
}

/// How a loop started. Items are not repeated in the log when they can be found again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopStart {
    /// How many items.
    pub count: u32,
    /// The most that run at a time.
    pub window: u32,
    /// Where the items are.
    pub items: LoopItems,
}

/// Where a loop's items are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoopItems {
    /// At this path of the run's state as it was when the loop started.
    Path(Vec<String>),
    /// Here, because they were computed.
    Inline(Arc<Vec<Json>>),
}

/// A token that moves along an edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Taken {
    /// The edge.
    pub edge: EdgeNo,
    /// The arguments bound to the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Arc<Json>>,
    /// What admission said.
    #[serde(default, skip_serializing_if = "Verdict::is_allowed")]
    pub verdict: Verdict,
}

/// What admission said about a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may enter.
    #[default]
    Allowed,
    /// It stays pending.
    Denied,
    /// It is dropped.
    Discarded,
}

impl Verdict {
    fn is_allowed(&self) -> bool {
        *self == Verdict::Allowed
    }
}

/// Where the tokens of a routed step went, with everything that was evaluated for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Routing {
    /// The edges taken, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<Taken>,
    /// Patches that the taken edges made.
    #[serde(default, skip_serializing_if = "Patch::is_empty")]
    pub set: Patch,
    /// The failure that led here counts as dealt with.
    #[serde(default, skip_serializing_if = "is_false")]
    pub handled: bool,
    /// A guard or an argument could not be evaluated, or nothing matched where something must.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<StepError>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !*value
}

/// What a step waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "for", rename_all = "snake_case")]
pub enum WaitKind {
    /// A person's approval before the work starts.
    Gate,
    /// A person's approval that is the step's own work.
    Approval,
    /// A person's completion.
    Manual,
    /// An event.
    Event {
        /// Its type.
        event_type: String,
        /// The event makes the step ready to run again instead of completing it.
        rerun: bool,
    },
    /// Time.
    Timer {
        /// The step is ready to run again instead of completed.
        rerun: bool,
    },
    /// A child run.
    Child {
        /// What the child is asked for under; a crash never starts two.
        request_key: String,
        /// Its parameters.
        input: Arc<Json>,
    },
}

/// Why a step was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SkipReason {
    /// Its own failure, and the plan says skip.
    OnFailure,
    /// An operator asked.
    Operator,
    /// Something it needs failed.
    DependencyFailed,
    /// The run was stopped before it started.
    Cancelled,
    /// Admission dropped its token.
    Discarded,
}

/// Why a run is stopping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum StopCause {
    /// A step failed for good.
    StepFailed {
        /// Which.
        step: StepRef,
    },
    /// The run took too long.
    RunTimeout,
    /// Only tokens that may not enter were left, for too long.
    StallTimeout {
        /// What is stuck, in words.
        stuck: Vec<String>,
    },
    /// Somebody cancelled it.
    Cancel {
        /// Who.
        by: Option<String>,
        /// Why.
        reason: Option<String>,
    },
    /// The emergency stop.
    Emergency {
        /// Who.
        by: Option<String>,
        /// Why.
        reason: String,
    },
}

impl StopCause {
    /// Whether the run ends cancelled rather than failed.
    #[must_use]
    pub fn is_cancel(&self) -> bool {
        matches!(self, StopCause::Cancel { .. } | StopCause::Emergency { .. })
    }
}

/// How far the undoing of a run came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rollback {
    /// Nothing was to be undone.
    #[default]
    None,
    /// Everything was undone.
    Complete,
    /// Something was not.
    Incomplete,
}

/// What became of one undo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UndoResult {
    /// The step.
    pub step: StepRef,
    /// What became of it.
    pub outcome: UndoOutcome,
    /// How often it was tried.
    pub executions: u32,
}

/// What became of one undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UndoOutcome {
    /// Undone.
    Done,
    /// Tried and failed.
    Failed,
    /// There is no undo for it.
    NotCompensable,
    /// Never tried.
    NotRun,
}

/// How a successful run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Success {
    /// Everything.
    Full,
    /// As much as the policy asks for.
    Partial,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Body {
    /// The run exists. Its first event.
    RunCreated {
        /// Hash of the plan that the run is pinned to.
        plan_hash: String,
        /// The run's parameters: the workload with the request merged over it.
        params: Arc<Json>,
        /// Who it belongs to.
        context: RunContext,
        /// The run and step that wait for this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<Parent>,
        /// The run that this one repeats.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        original_run_id: Option<String>,
        /// Not to be started before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start_after: Option<Time>,
    },
    /// The run waits for a slot.
    RunQueued {},
    /// The run may start.
    RunApproved {
        /// Who said so; absent when no approval is needed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The run has started.
    RunStarted {
        /// `native`, `temporal`, `conductor` or `mock`.
        engine: String,
        /// The engine's own reference.
        engine_run_ref: String,
        /// What admission said about the entry token.
        #[serde(default, skip_serializing_if = "Verdict::is_allowed")]
        entry: Verdict,
        /// When the run times out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Time>,
    },
    /// The first execution of a logical attempt was claimed.
    StepStarted {
        /// Which.
        step: StepRef,
        /// Logical attempt.
        logical: u32,
        /// Execution: the fence that a result must carry.
        execution: u32,
        /// The worker; absent when the engine itself acts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<Lease>,
        /// How its loop starts.
        #[serde(default, rename = "loop", skip_serializing_if = "Option::is_none")]
        each: Option<LoopStart>,
    },
    /// The step has succeeded.
    StepCompleted {
        /// Which.
        step: StepRef,
        /// Logical attempt.
        logical: u32,
        /// Execution.
        execution: u32,
        /// Its output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Arc<Json>>,
        /// Pointers to what it made.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        artifacts: Vec<ArtifactRef>,
        /// Patches of ctx.
        #[serde(default, skip_serializing_if = "Patch::is_empty")]
        ctx: Patch,
        /// Where its tokens went; absent while held back, and where every edge gets one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        routing: Option<Routing>,
        /// The person who completed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The step has failed for good in this logical attempt.
    StepFailed {
        /// Which.
        step: StepRef,
        /// Logical attempt.
        logical: u32,
        /// Execution.
        execution: u32,
        /// Why.
        error: StepError,
        /// It was stopped, it did not fail by itself.
        #[serde(default, skip_serializing_if = "is_false")]
        cancelled: bool,
        /// The person who failed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The step will not run.
    StepSkipped {
        /// Which.
        step: StepRef,
        /// Logical attempt.
        logical: u32,
        /// Why.
        reason: SkipReason,
    },
    /// A signal was allowed.
    SignalAccepted {
        /// The signal.
        signal_id: String,
        /// Its type.
        signal: String,
        /// Who sent it.
        by: String,
        /// What it says.
        #[serde(default, skip_serializing_if = "Json::is_null")]
        payload: Json,
    },
    /// A signal was refused.
    SignalRejected {
        /// The signal.
        signal_id: String,
        /// Its type.
        signal: String,
        /// Who sent it.
        by: String,
        /// Why.
        code: String,
        /// For people.
        message: String,
    },
    /// Nothing new starts.
    RunPaused {
        /// Which pause of the run, from 1.
        ordinal: u32,
        /// When a drain that is not done raises an alert.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        drain_deadline: Option<Time>,
    },
    /// The run goes on.
    RunResumed {
        /// Which pause ended.
        ordinal: u32,
    },
    /// The run has succeeded. A last event.
    RunCompleted {
        /// Everything, or as much as the policy asks for.
        success: Success,
    },
    /// The run has failed. A last event.
    RunFailed {
        /// Why.
        error: StepError,
        /// How far the undoing came.
        #[serde(default)]
        rollback: Rollback,
        /// What became of each undo.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        undos: Vec<UndoResult>,
    },
    /// The run was cancelled. A last event.
    RunCancelled {
        /// Who.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// How far the undoing came.
        #[serde(default)]
        rollback: Rollback,
        /// What became of each undo.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        undos: Vec<UndoResult>,
    },

    // Additive from here on: evidence and detail that the contract does not list.
    /// A later execution of the same logical attempt was claimed.
    StepExecutionStarted {
        /// Which.
        step: StepRef,
        /// Logical attempt.
        logical: u32,
        /// Execution.
        execution: u32,
        /// The worker.
        lease: Lease,
        /// Ordinary work, or a wait that ran out.
        #[serde(default, skip_serializing_if = "TaskKind::is_ready_step")]
        task: TaskKind,
    },
    /// An execution failed and another follows.
    StepExecutionFailed {
        /// Which.
        step: StepRef,
        /// Logical attempt.
        logical: u32,
        /// Execution.
        execution: u32,
        /// Why.
        error: StepError,
        /// Not to be claimed before.
        retry_at: Time,
    },
    /// The step waits without a worker.
    StepWaiting {
        /// Which.
        step: StepRef,
        /// Logical attempt.
        logical: u32,
        /// Execution.
        execution: u32,
        /// For what.
        wait: WaitKind,
        /// Until when.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Time>,
        /// Hash of the completion token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token_hash: Option<String>,
        /// Events to be published with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        outbound: Vec<Json>,
    },
    /// One of several people needed has approved.
    StepApproved {
        /// Which.
        step: StepRef,
        /// Execution.
        execution: u32,
        /// Who.
        by: String,
        /// How many have, this one included.
        approvals: u32,
    },
    /// The wait is over and the step may run (again).
    StepWoken {
        /// Which.
        step: StepRef,
        /// Execution that waited.
        execution: u32,
        /// The event that woke it; absent for an approval.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        event_id: Option<String>,
        /// What the event said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        payload: Option<Arc<Json>>,
        /// The person who approved.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The tokens of a finished step moved later than its end (after a pause or a failure).
    StepRouted {
        /// Which.
        step: StepRef,
        /// Where.
        routing: Routing,
    },
    /// A failed step waits for an operator.
    StepHeld {
        /// Which.
        step: StepRef,
        /// Until when.
        until: Time,
    },
    /// An operator asked for a new logical attempt.
    StepRetried {
        /// Which.
        step: StepRef,
        /// The new logical attempt.
        logical: u32,
    },
    /// Tokens that had been denied may enter now.
    TokensAdmitted {
        /// Which, oldest first.
        tokens: Vec<StepRef>,
    },
    /// Someone changed ctx from outside.
    CtxPatched {
        /// Who.
        by: String,
        /// What.
        ctx: Patch,
    },
    /// The parameters of steps that start later changed.
    ParamsUpdated {
        /// The parameters as they are now.
        params: Arc<Json>,
    },
    /// The input of one step's later attempts changed.
    OverrideInjected {
        /// Which.
        step: crate::plan::StepNo,
        /// What is merged over its input.
        value: Arc<Json>,
    },
    /// One step's later executions go to another target.
    TargetUpdated {
        /// Which.
        step: crate::plan::StepNo,
        /// Where to.
        target: Arc<Json>,
    },
    /// An event came that nobody waited for; it is kept.
    EventReceived {
        /// Its id.
        event_id: String,
        /// Its type.
        event_type: String,
        /// What it says.
        payload: Arc<Json>,
    },
    /// Work in flight did not end in time after a pause.
    PauseDrainTimedOut {
        /// Which pause.
        ordinal: u32,
        /// How many executions are still in flight.
        in_flight: u32,
    },
    /// Only tokens that may not enter and joins that starve are left.
    RunStalled {
        /// What is stuck, in words.
        stuck: Vec<String>,
        /// When the run fails if nothing changes.
        deadline: Time,
    },
    /// Everything is done but the final step.
    RunFinalizing {
        /// The summary that the final step gets.
        summary: Arc<Json>,
    },
    /// Nothing fires and nothing retries any more.
    RunStopping {
        /// Why.
        #[serde(flatten)]
        cause: StopCause,
        /// Whether what was done is undone.
        compensate: bool,
    },
    /// What was done is being undone.
    CompensationStarted {
        /// What to undo, first to last.
        undo: Vec<StepRef>,
        /// What has no undo.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_compensable: Vec<StepRef>,
    },
    /// An execution of an undo was claimed.
    UndoStarted {
        /// Which step is being undone.
        step: StepRef,
        /// Execution.
        execution: u32,
        /// The worker.
        lease: Lease,
    },
    /// An execution of an undo failed and another follows.
    UndoExecutionFailed {
        /// Which.
        step: StepRef,
        /// Execution.
        execution: u32,
        /// Why.
        error: StepError,
        /// Not to be claimed before.
        retry_at: Time,
    },
    /// The step is undone.
    UndoCompleted {
        /// Which.
        step: StepRef,
        /// Execution.
        execution: u32,
    },
    /// The step could not be undone.
    UndoFailed {
        /// Which.
        step: StepRef,
        /// Execution.
        execution: u32,
        /// Why.
        error: StepError,
    },
    /// Someone cancelled the run while it was being undone.
    CompensationInterrupted {
        /// Who.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

impl Body {
    /// The event's type, as the contract names it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Body::RunCreated { .. } => "RunCreated",
            Body::RunQueued {} => "RunQueued",
            Body::RunApproved { .. } => "RunApproved",
            Body::RunStarted { .. } => "RunStarted",
            Body::StepStarted { .. } => "StepStarted",
            Body::StepCompleted { .. } => "StepCompleted",
            Body::StepFailed { .. } => "StepFailed",
            Body::StepSkipped { .. } => "StepSkipped",
            Body::SignalAccepted { .. } => "SignalAccepted",
            Body::SignalRejected { .. } => "SignalRejected",
            Body::RunPaused { .. } => "RunPaused",
            Body::RunResumed { .. } => "RunResumed",
            Body::RunCompleted { .. } => "RunCompleted",
            Body::RunFailed { .. } => "RunFailed",
            Body::RunCancelled { .. } => "RunCancelled",
            Body::StepExecutionStarted { .. } => "StepExecutionStarted",
            Body::StepExecutionFailed { .. } => "StepExecutionFailed",
            Body::StepWaiting { .. } => "StepWaiting",
            Body::StepApproved { .. } => "StepApproved",
            Body::StepWoken { .. } => "StepWoken",
            Body::StepRouted { .. } => "StepRouted",
            Body::StepHeld { .. } => "StepHeld",
            Body::StepRetried { .. } => "StepRetried",
            Body::TokensAdmitted { .. } => "TokensAdmitted",
            Body::CtxPatched { .. } => "CtxPatched",
            Body::ParamsUpdated { .. } => "ParamsUpdated",
            Body::OverrideInjected { .. } => "OverrideInjected",
            Body::TargetUpdated { .. } => "TargetUpdated",
            Body::EventReceived { .. } => "EventReceived",
            Body::PauseDrainTimedOut { .. } => "PauseDrainTimedOut",
            Body::RunStalled { .. } => "RunStalled",
            Body::RunFinalizing { .. } => "RunFinalizing",
            Body::RunStopping { .. } => "RunStopping",
            Body::CompensationStarted { .. } => "CompensationStarted",
            Body::UndoStarted { .. } => "UndoStarted",
            Body::UndoExecutionFailed { .. } => "UndoExecutionFailed",
            Body::UndoCompleted { .. } => "UndoCompleted",
            Body::UndoFailed { .. } => "UndoFailed",
            Body::CompensationInterrupted { .. } => "CompensationInterrupted",
        }
    }

    /// The step the event is about.
    #[must_use]
    pub fn step(&self) -> Option<StepRef> {
        match self {
            Body::StepStarted { step, .. }
            | Body::StepCompleted { step, .. }
            | Body::StepFailed { step, .. }
            | Body::StepSkipped { step, .. }
            | Body::StepExecutionStarted { step, .. }
            | Body::StepExecutionFailed { step, .. }
            | Body::StepWaiting { step, .. }
            | Body::StepApproved { step, .. }
            | Body::StepWoken { step, .. }
            | Body::StepRouted { step, .. }
            | Body::StepHeld { step, .. }
            | Body::StepRetried { step, .. }
            | Body::UndoStarted { step, .. }
            | Body::UndoExecutionFailed { step, .. }
            | Body::UndoCompleted { step, .. }
            | Body::UndoFailed { step, .. } => Some(*step),
            _ => None,
        }
    }

    /// Whether nothing can follow.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(
            self,
            Body::RunCompleted { .. } | Body::RunFailed { .. } | Body::RunCancelled { .. }
        )
    }
}

impl Event {
    /// What the event is recorded under. Two events of a run never share it.
    #[must_use]
    pub fn key(&self, plan: &Plan) -> EventKey {
        let event_type = self.body.kind();
        let step_id = self.body.step().map(|at| plan.step_id(at));
        let step = |logical: u32, ordinal: u64| EventKey {
            step_id: step_id.clone(),
            logical: u64::from(logical),
            event_type,
            ordinal,
        };
        let run = |logical: u32, ordinal: u64| EventKey {
            step_id: None,
            logical: u64::from(logical),
            event_type,
            ordinal,
        };
        match &self.body {
            Body::StepStarted { logical, .. }
            | Body::StepCompleted { logical, .. }
            | Body::StepFailed { logical, .. }
            | Body::StepSkipped { logical, .. }
            | Body::StepRetried { logical, .. } => step(*logical, 0),
            Body::StepExecutionStarted {
                logical, execution, ..
            }
            | Body::StepExecutionFailed {
                logical, execution, ..
            } => step(*logical, u64::from(*execution)),
            // These may come more than once in one execution; the sequence number tells them apart.
            Body::StepWaiting { logical, .. } => step(*logical, self.seq),
            Body::StepApproved { .. }
            | Body::StepWoken { .. }
            | Body::StepRouted { .. }
            | Body::StepHeld { .. }
            | Body::UndoStarted { .. }
            | Body::UndoExecutionFailed { .. } => step(1, self.seq),
            Body::UndoCompleted { .. } | Body::UndoFailed { .. } => step(1, 0),
            Body::SignalAccepted { signal_id, .. } | Body::SignalRejected { signal_id, .. } => {
                EventKey {
                    step_id: Some(signal_id.clone()),
                    logical: 1,
                    event_type,
                    ordinal: 0,
                }
            }
            Body::EventReceived { event_id, .. } => EventKey {
                step_id: Some(event_id.clone()),
                logical: 1,
                event_type,
                ordinal: 0,
            },
            Body::RunPaused { ordinal, .. }
            | Body::RunResumed { ordinal }
            | Body::PauseDrainTimedOut { ordinal, .. } => run(*ordinal, 0),
            Body::RunCreated { .. }
            | Body::RunQueued {}
            | Body::RunApproved { .. }
            | Body::RunStarted { .. }
            | Body::RunCompleted { .. }
            | Body::RunFailed { .. }
            | Body::RunCancelled { .. }
            | Body::RunFinalizing { .. }
            | Body::CompensationStarted { .. }
            | Body::CompensationInterrupted { .. } => run(1, 0),
            Body::TokensAdmitted { .. }
            | Body::CtxPatched { .. }
            | Body::ParamsUpdated { .. }
            | Body::OverrideInjected { .. }
            | Body::TargetUpdated { .. }
            | Body::RunStalled { .. }
            | Body::RunStopping { .. } => run(1, self.seq),
        }
    }
}
