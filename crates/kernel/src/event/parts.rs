//! The values that events are made of: who, what, why, and where tokens went. Only data.
//!
//! A word that only a newer version knows is read as the one marked `other`, so that the event still counts; the log keeps
//! the word. Where no word fits, the event is opaque.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;

use crate::plan::{EdgeNo, ErrorClass, StepRef};
use crate::time::Time;
use crate::trace::TraceContext;

/// The tenant, project and environment that a run belongs to, and who started the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunContext {
    /// The tenant that owns the run; only actors of this tenant may act on the run.
    pub tenant_id: String,
    /// The project of the tenant that the run belongs to.
    pub project_id: String,
    /// The environment that the run works in, such as `production`.
    pub environment_id: String,
    /// The person or system that started the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub triggered_by: Option<String>,
    /// `manual`, `schedule`, `webhook` or `api`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_source: Option<String>,
    /// Where runs wait for a slot, the run with the greatest number starts first; of equal ones the oldest.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// What lists of runs are searched by: names and values that the start request gave.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The place of the run in a distributed trace; absent if nobody traces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks with a reference"
)]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// The run and step that started a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Parent {
    /// The parent's run id.
    pub run_id: String,
    /// The step that waits for the child.
    pub step_id: String,
}

/// A reference to data that is kept outside the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactRef {
    /// The address of the artifact.
    pub uri: String,
    /// What the artifact is, in the word of the worker.
    pub kind: String,
    /// SHA-256 of the artifact, lower-case hex; absent if the worker did not give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The size of the artifact in bytes; absent if the worker did not give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// The time from which the artifact may be deleted; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

/// Why a run, a step or an undo failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepError {
    /// The kind of the failure; retry rules name classes.
    #[serde(deserialize_with = "class_or_unknown")]
    pub class: ErrorClass,
    /// The reason for programs; the code of an error never changes.
    pub code: String,
    /// The reason for people.
    pub message: String,
}

impl StepError {
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

/// Reads a class; one that only a newer version knows is `unknown`.
fn class_or_unknown<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ErrorClass, D::Error> {
    let name = Cow::<str>::deserialize(deserializer)?;
    Ok(ErrorClass::from_name(&name).unwrap_or(ErrorClass::Unknown))
}

/// An event that this version cannot read. The log and the hash chain have it as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpaqueEvent {
    /// The type of the event, as the log names it.
    pub name: String,
    /// What this version does not know: the type, or a value of the event.
    pub why: String,
}

/// How an execution counts that ended without a result of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// The engine stopped the work or gave it back. It counts neither as a loss nor as an attempt.
    Released,
    /// The execution was lost with its worker. It counts as a loss of the step-run, not as an attempt.
    #[serde(other)]
    Lost,
}

/// Changes of the run's ctx, by key.
pub type Patch = BTreeMap<String, Json>;

/// Whether a claim is ordinary work or the answer to a wait that ran out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskKind {
    /// The deadline of a wait has passed; the worker decides what follows.
    WaitingTimeout,
    /// The step is ready: ordinary work.
    #[default]
    #[serde(other)]
    ReadyStep,
}

impl TaskKind {
    pub(super) fn is_ready_step(&self) -> bool {
        *self == TaskKind::ReadyStep
    }
}

/// The worker that works on an execution, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lease {
    /// The id that the worker has given with its claim.
    pub worker: String,
    /// When the lease ends, as the claim granted it; heartbeats extend the lease in the store, not in the log.
    pub until: Time,
}

/// How a loop started. Items are not repeated in the log when they can be found again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopStart {
    /// The number of items.
    pub count: u32,
    /// The most items that run at a time.
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
    /// In the event, because an expression computed them.
    Inline(Arc<Vec<Json>>),
    /// In an artifact; each item is a part of its value.
    Reference(Arc<Json>),
}

/// A token that moves along an edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TakenEdge {
    /// The number of the edge in the plan.
    pub edge: EdgeNo,
    /// The arguments bound to the token.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub args: Option<Arc<Json>>,
    /// Whether the token may enter the next step.
    #[serde(default, skip_serializing_if = "AdmissionVerdict::is_allowed")]
    pub verdict: AdmissionVerdict,
}

/// Whether a token may enter its step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionVerdict {
    /// The token may enter the step.
    #[default]
    Allowed,
    /// The token may not enter and is removed.
    Discarded,
    /// The token may not enter now; it waits for a change of ctx.
    #[serde(other)]
    Denied,
}

impl AdmissionVerdict {
    pub(super) fn is_allowed(&self) -> bool {
        *self == AdmissionVerdict::Allowed
    }
}

/// The edges that got a token when a step ended, with all values that were evaluated for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Routing {
    /// The edges that got a token, in the order of the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<TakenEdge>,
    /// The variables of ctx that the taken edges changed.
    #[serde(default, skip_serializing_if = "Patch::is_empty")]
    pub set: Patch,
    /// Whether the edges have handled the failure of the step.
    #[serde(default, skip_serializing_if = "is_false")]
    pub handled: bool,
    /// Why routing failed: a guard or an argument could not be evaluated, or no edge matched and the plan requires
    /// one.
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

/// Reads a value that may be null: `None` means that the field is absent, `Some(null)` that it is null.
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
    /// A person must report that the work is done or has failed.
    Manual,
    /// An external event must come.
    Event {
        /// The type of the external event; events of other types do not end the wait.
        event_type: String,
        /// Whether the event makes the step ready to run again; otherwise the event completes the step.
        rerun: bool,
    },
    /// The step waits until its deadline.
    Timer {
        /// Whether the step is then ready to run again; otherwise it is completed.
        rerun: bool,
    },
    /// A child run must end.
    Child {
        /// The key of the request for the child: one child for each key, also after a crash.
        request_key: String,
        /// The parameters of the child.
        input: Arc<Json>,
        /// The child that a worker asked for: the step runs again when the child has ended. Absent if the child is
        /// the work of the step itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CalledRun>,
    },
}

/// A run that a worker asks for in the middle of its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CalledRun {
    /// The definition of the child: a path relative to the definition of the parent, or a plan id.
    pub path: String,
    /// The step of the child whose output is the result; absent means the output of the run itself.
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
    /// The step failed, and the plan says that the step is then skipped.
    OnFailure,
    /// A step that this step depends on failed.
    DependencyFailed,
    /// The run was stopped before the step started.
    Cancelled,
    /// The token of the step was not admitted and was removed.
    Discarded,
    /// An operator sent SKIP_STEP before the step was due: the steps after it wait until it is.
    OperatorAhead,
    /// An operator sent SKIP_STEP.
    #[serde(other)]
    Operator,
}

/// Why a run is stopping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum StopCause {
    /// A step failed and is not retried again.
    StepFailed {
        /// The step-run that failed.
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
        /// The person or system that cancelled; absent if unknown.
        by: Option<String>,
        /// The reason of the cancel; absent if none was given.
        reason: Option<String>,
    },
    /// An operator sent EMERGENCY_STOP.
    Emergency {
        /// The person or system that sent the signal; absent if unknown.
        by: Option<String>,
        /// The reason of the emergency stop; the signal requires one.
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

/// Whether the completed steps of a run were undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rollback {
    /// Nothing was to be undone.
    #[default]
    None,
    /// Every step that had an effect was undone.
    Complete,
    /// At least one undo failed, did not run, or does not exist.
    #[serde(other)]
    Incomplete,
}

/// The result of one undo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UndoResult {
    /// The step-run that the undo is for.
    pub step: StepRef,
    pub outcome: UndoOutcome,
    /// The number of executions of the undo.
    pub executions: u32,
    /// The number of attempts of the undo: an execution that was lost and its replacement are one attempt. Absent if
    /// the undo was never executed, and in events of versions that did not count attempts.
    #[serde(default, skip_serializing_if = "is_none")]
    pub attempts: u32,
    /// The error of the last execution; absent if the undo did not fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<StepError>,
}

impl UndoResult {
    /// The result of an undo that was never executed.
    #[must_use]
    pub fn untried(step: StepRef, outcome: UndoOutcome) -> UndoResult {
        UndoResult {
            step,
            outcome,
            executions: 0,
            attempts: 0,
            error: None,
        }
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if passes a reference"
)]
fn is_none(count: &u32) -> bool {
    *count == 0
}

/// The result of one undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UndoOutcome {
    /// The undo was executed and succeeded.
    Done,
    /// The undo was executed and failed.
    Failed,
    /// The plan has no undo for the step.
    NotCompensable,
    /// The undo was never executed, because the undoing ended before.
    #[serde(other)]
    NotRun,
}

/// How a successful run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SuccessKind {
    /// No failure was left unhandled.
    Full,
    /// A failure was left, and the policy of the plan accepts that.
    #[serde(other)]
    Partial,
}
