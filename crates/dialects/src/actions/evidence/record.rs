//! The records of evidence: what a record says, and what can be wrong with it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stepwell_kernel::event::{Rollback, UndoOutcome};

/// One record of the chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// The version of this record's shape.
    pub schema_version: u32,
    /// What the record is about.
    pub kind: EvidenceKind,
    pub run_id: String,
    /// The action; absent for records about the run itself.
    pub action_id: Option<String>,
    /// Which attempt, from 1; 0 if there was none. An execution that was lost and its replacement are one attempt.
    pub attempt: u32,
    /// The number of the execution, from 1: every claim by a worker is one. Absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<u32>,
    /// When the attempt, the action or the run began.
    pub started_at_iso: String,
    pub ended_at_iso: String,
    /// How the attempt, the action or the run ended.
    pub outcome: ActionOutcome,
    /// The class of the error; absent if there was no failure.
    pub error_class: Option<String>,
    /// The error in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// The run, the event and the key that the record belongs to.
    pub correlation: Correlation,
    /// What a person said; absent if no person decided. The person is `correlation.actor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<PersonDecision>,
    /// The result of each compensation; only in a summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation: Option<CompensationSummary>,
    /// The hash of the record before; absent in the first.
    pub previous_hash: Option<String>,
    /// SHA-256 over the record's canonical JSON without `hash` and `signature`.
    pub hash: String,
    /// A signature over `hash`, if someone signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceKind {
    /// One attempt of an action.
    Attempt,
    /// An action reached a terminal state.
    Transition,
    /// One attempt of a compensation.
    CompensationAttempt,
    /// A person approved the run.
    RunApproval,
    /// A person answered for an action: approved, rejected, or reported how the work ended.
    Answer,
    /// A person or system sent a signal, such as SKIP_STEP, and it took effect.
    Signal,
    /// A person or system changed variables of the run from outside.
    Change,
    /// A person or system stopped the run, or the undoing of the run.
    Stop,
    /// The end of the run.
    Run,
    /// The result of all compensations of the run.
    CompensationSummary,
}

/// How an attempt, an action or a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ActionOutcome {
    /// The work is done.
    Succeeded,
    /// The work ended with an error.
    Failed,
    /// The work was stopped before it began, or never began.
    Cancelled,
    /// The work was cut off or lost: nobody knows whether it had its effect.
    Unknown,
}

/// Metadata that ties a record to its run, its event and its effects outside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Correlation {
    /// The event that the record was made from.
    pub event_id: String,
    /// The sequence number of the event in the log of the run.
    pub event_seq: u64,
    /// The key that the action or compensation carried to the outside.
    pub idempotency_key: Option<String>,
    pub workflow_id: String,
    pub workflow_version: String,
    /// The tenant that the run belongs to.
    pub tenant_id: String,
    /// The person or system that started the run; absent if the start request named none.
    pub triggered_by: Option<String>,
    /// The worker, or the person who decided.
    pub actor: Option<String>,
}

/// What a person or system said that decided something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PersonDecision {
    /// Why, in the words of the person; absent if the person said nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Ids of evidence, or references to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence_refs: Vec<String>,
    /// When the person completed the work, as the person says; only for answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at_iso: Option<String>,
    /// The type of the signal, such as `SKIP_STEP`; only for signals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// The id that the sender of the signal chose; only for signals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal_id: Option<String>,
    /// The names of the changed variables; only for changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
}

/// The results of the compensations of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompensationSummary {
    /// How far the undoing came as a whole.
    pub rollback: Rollback,
    /// Each compensation, in the order they ran.
    pub actions: Vec<Compensated>,
}

/// The result of one compensation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Compensated {
    pub action_id: String,
    /// The result of its compensation.
    pub outcome: UndoOutcome,
    /// The number of attempts of the compensation.
    pub attempts: u32,
    /// The number of executions of the compensation; greater than `attempts` if executions were lost.
    pub executions: u32,
}

/// Something that is wrong with a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvidenceFinding {
    /// The record's place in the chain, from 0.
    pub index: usize,
    /// What is wrong with the record.
    pub fault: EvidenceFault,
}

/// What can be wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceFault {
    /// The record was changed after it was hashed.
    HashMismatch,
    /// `previousHash` is not the hash of the record before.
    ChainBreak,
    /// The record says that its work ended before it began, or before the work of the earlier record ended.
    TimestampNotMonotonic,
}
