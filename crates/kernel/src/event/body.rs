//! The kinds of events, each with what it needs to be folded. The order of the enum is the contract's
//! own list first, then what is additive.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::parts::{
    AdmissionVerdict, ArtifactRef, Lease, LoopStart, Parent, Patch, Rollback, Routing, RunContext,
    SkipReason, StepError, StopCause, SuccessKind, TaskKind, UndoResult, WaitKind, is_false,
    present,
};
use crate::plan::{StepNo, StepRef};
use crate::time::Time;

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
        #[serde(default, skip_serializing_if = "AdmissionVerdict::is_allowed")]
        entry: AdmissionVerdict,
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
        #[serde(
            default,
            deserialize_with = "present",
            skip_serializing_if = "Option::is_none"
        )]
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
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
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
        success: SuccessKind,
    },
    /// The run has failed. A last event.
    RunFailed {
        /// Why.
        error: StepError,
        /// How far the undoing came.
        #[serde(default)]
        rollback: Rollback,
        /// The result of each undo.
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
        /// The result of each undo.
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
        /// What the worker wants to be told when the step runs again.
        #[serde(
            default,
            deserialize_with = "present",
            skip_serializing_if = "Option::is_none"
        )]
        memo: Option<Arc<Json>>,
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
        #[serde(
            default,
            deserialize_with = "present",
            skip_serializing_if = "Option::is_none"
        )]
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
        step: StepNo,
        /// What is merged over its input.
        value: Arc<Json>,
    },
    /// One step's later executions go to another target.
    TargetUpdated {
        /// Which.
        step: StepNo,
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
        /// What admission said about the final step's token.
        #[serde(default, skip_serializing_if = "AdmissionVerdict::is_allowed")]
        entry: AdmissionVerdict,
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
