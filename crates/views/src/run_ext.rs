//! The shape of a run for programs: the snapshot of the contract, and `ext` beside it. The shapes have schemas, so that the
//! OpenAPI document and the types of clients say what the server shows.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value as Json;
use stepwell_kernel::event::{StepError, UndoOutcome};
use stepwell_kernel::snapshot::RunSnapshot;

use crate::people::ActRow;
use crate::why::ReasonRow;

/// A run for programs: the snapshot of the contract, and `ext` with what the contract has no field for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunOutput {
    #[serde(flatten)]
    pub snapshot: RunSnapshot,
    pub ext: RunExt,
}

/// A run for who looks at it: the snapshot of the contract, and `ext` with what the contract has no field for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "RunView")]
pub struct RunShown {
    #[serde(flatten)]
    pub snapshot: RunSnapshot,
    pub ext: ShownExt,
}

/// What the contract has no field for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunExt {
    /// The workflow's own name or id.
    pub plan_id: String,
    pub plan_version: String,
    /// The hash of the compiled definition.
    pub plan_hash: String,
    /// The language of the definition.
    pub dialect: String,
    /// The state in the word of the language.
    pub word: String,
    /// Detail of the state in the word of the language; null if there is none.
    pub substatus: Option<String>,
    /// Every visit of every step, also steps that no token has reached.
    pub steps: Vec<VisitRow>,
    /// The edges that hold tokens.
    pub tokens: Vec<TokensOfEdge>,
    pub params: Json,
    pub ctx: Json,
    /// The run and step that wait for this run; null if no run has started it.
    pub parent: Option<ParentRun>,
    /// The run that this run repeats; null if it repeats none.
    pub repeats: Option<String>,
    /// The result of each undo.
    pub compensation: Vec<UndoRow>,
    /// What keeps the run from going on, in sentences.
    pub stuck: Vec<String>,
    /// What the engine did that is not in the log.
    pub notes: Vec<String>,
    /// Types of events that this version does not know.
    pub unknown_to_this_version: Vec<String>,
}

/// What the contract has no field for, and what the run waits for, who started it and who answered.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShownExt {
    #[serde(flatten)]
    pub run: RunExt,
    /// Everything that can make the run move; empty if it has ended.
    pub waits_for: Vec<ReasonRow>,
    /// The child runs that steps have waited for, in the order of the log.
    pub children: Vec<ChildRow>,
    /// Who started the run; null if nobody is known.
    pub started_by: Option<String>,
    /// The names and values that the start request gave the run.
    pub labels: BTreeMap<String, String>,
    /// The business key of the run; null if its definition has none.
    pub business_key: Option<String>,
    /// What people did in the run, in the order of the log.
    pub answers: Vec<ActRow>,
    /// Whether a process works on the run now.
    pub has_owner: bool,
}

/// One visit of a step in the words of the language.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VisitRow {
    /// The id of the visit: `load`, `load#2`.
    pub step_id: String,
    /// The name of the step.
    pub step: String,
    /// The number of the visit, from 1; null if no token has reached the step.
    pub visit: Option<u32>,
    /// The state in the word of the language.
    pub word: String,
    pub started_at: Option<String>,
    pub ended_at: Option<String>,
    /// How often a worker has taken the work.
    pub executions: u32,
    /// The number of attempts: an execution that was lost and its replacement are one attempt.
    pub attempts: u32,
    /// How many executions were lost with their workers.
    pub losses: u32,
    /// The output; null if there is none yet.
    pub output: Json,
    pub error: Option<StepError>,
    /// Why a failed step was not tried again although its retry policy allows several attempts; null otherwise.
    pub not_retried: Option<String>,
    /// Whether it is not known if the work was done.
    pub outcome_unknown: bool,
    /// The items of a loop; null if the step has no loop.
    pub items: Option<ItemCounts>,
    /// How far the undo of the step is; null if no token has reached the step.
    pub compensation: Option<UndoWord>,
}

/// How far the undo of a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UndoWord {
    None,
    Due,
    Running,
    Done,
    Failed,
    NotCompensable,
}

/// The items of a loop.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ItemCounts {
    pub count: u32,
    pub done: u32,
    pub failed: u32,
}

/// An edge that holds tokens: a step that waits for all of its edges has not fired yet.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TokensOfEdge {
    /// The number of the edge in the net.
    pub edge: usize,
    pub from: String,
    pub to: String,
    pub count: u32,
}

/// The run and step that wait for a child.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentRun {
    pub run_id: String,
    pub step_id: String,
}

/// A child run that a step has waited for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildRow {
    pub step_id: String,
    pub run_id: String,
}

/// The result of one undo.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UndoRow {
    pub step_id: String,
    pub outcome: UndoOutcome,
    pub executions: u32,
    pub attempts: u32,
    pub error: Option<StepError>,
}

/// What a cancel with compensation would undo.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UndoPreview {
    pub run_id: String,
    /// Which cancel undoes these steps.
    pub message: String,
    /// Whether the run has ended: then nothing can be cancelled.
    pub ended: bool,
    /// What would be undone, in this order.
    pub undo: Vec<String>,
    /// What is done, has an effect outside of the run, and has no undo.
    pub cannot_undo: Vec<String>,
    /// What else is done and stays: it declares neither an effect outside of the run nor an undo.
    pub stays: Vec<String>,
    /// Work whose end decides whether it is undone.
    pub in_flight: Vec<String>,
}
