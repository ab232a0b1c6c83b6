//! The values that events are made of: who, what, why, and where tokens went. Only data.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;

use crate::plan::{EdgeNo, ErrorClass, StepRef};
use crate::time::Time;

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
    pub(super) fn is_ready_step(&self) -> bool {
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
    /// Where this reference says; an item is a part of what it stands for.
    Reference(Arc<Json>),
}

/// A token that moves along an edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TakenEdge {
    /// The edge.
    pub edge: EdgeNo,
    /// The arguments bound to the token.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub args: Option<Arc<Json>>,
    /// What admission said.
    #[serde(default, skip_serializing_if = "AdmissionVerdict::is_allowed")]
    pub verdict: AdmissionVerdict,
}

/// What admission said about a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionVerdict {
    /// It may enter.
    #[default]
    Allowed,
    /// It stays pending.
    Denied,
    /// It is dropped.
    Discarded,
}

impl AdmissionVerdict {
    pub(super) fn is_allowed(&self) -> bool {
        *self == AdmissionVerdict::Allowed
    }
}

/// Where the tokens of a routed step went, with everything that was evaluated for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Routing {
    /// The edges taken, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<TakenEdge>,
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
pub(super) fn is_false(value: &bool) -> bool {
    !*value
}

/// A value that is there, even if it is null: only one that was left out is none.
pub(super) fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Arc<Json>>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
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
        /// What the worker asked for: the step runs again when that has ended. Absent where the child
        /// is the step's own work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CalledRun>,
    },
}

/// A run that a worker asks for in the middle of its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CalledRun {
    /// The definition: a path relative to the parent's, or a plan id.
    pub path: String,
    /// The step whose output is wanted; absent means the run's own output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_step: Option<String>,
}

impl WaitKind {
    /// Whether the step runs again when the wait is over, instead of being completed by it.
    #[must_use]
    pub fn reruns(&self) -> bool {
        match self {
            WaitKind::Event { rerun, .. } | WaitKind::Timer { rerun } => *rerun,
            WaitKind::Child { call, .. } => call.is_some(),
            WaitKind::Gate | WaitKind::Approval | WaitKind::Manual => false,
        }
    }
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
    /// A person cancelled the run.
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

/// The result of one undo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UndoResult {
    /// The step.
    pub step: StepRef,
    /// The result.
    pub outcome: UndoOutcome,
    /// How often it was tried.
    pub executions: u32,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<StepError>,
}

impl UndoResult {
    /// One that was never tried.
    #[must_use]
    pub fn untried(step: StepRef, outcome: UndoOutcome) -> UndoResult {
        UndoResult {
            step,
            outcome,
            executions: 0,
            error: None,
        }
    }
}

/// The result of one undo.
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
pub enum SuccessKind {
    /// Everything.
    Full,
    /// As much as the policy asks for.
    Partial,
}
