//! Snapshots: a run as the contract shows it, projected from the contract's events alone. Always a new
//! value; nothing is updated in place.
//!
//! ```text
//! run:   PENDING ─► APPROVED ─► RUNNING ⇄ PAUSED ─► COMPLETED | FAILED | CANCELLED   (these stay)
//! step:  PENDING ─► RUNNING ─► SUCCESS | FAILED,  PENDING ─► SKIPPED                 (per attempt)
//! ```
//!
//! A duplicate is recognised without a list of keys: an idempotency key is a function of type, step
//! and attempt, and the snapshot remembers which of those it has applied.

mod fold;
mod projector;
mod read;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use projector::{
    Dependencies, FeedResult, ProjectorAlert, Resync, ResyncAnswer, SnapshotProjector,
};
pub use read::ContractEvent;

use fold::Fold;

/// Defines a status of the contract from one table: each row is the documentation, the variant and its word.
macro_rules! statuses {
    (
        $(#[$meta:meta])*
        $enum:ident {
            $(#[doc = $first_doc:literal])+ $first:ident = $first_word:literal,
            $($(#[doc = $doc:literal])+ $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum $enum {
            $(#[doc = $first_doc])+
            #[default]
            #[serde(rename = $first_word)]
            $first,
            $($(#[doc = $doc])+ #[serde(rename = $word)] $variant,)+
            /// A word that this version does not know.
            #[serde(untagged)]
            Other(String),
        }

        impl $enum {
            /// The words of the contract, in the order of the table.
            pub const WORDS: &'static [&'static str] = &[$first_word, $($word),+];

            /// The word of the status.
            #[must_use]
            pub fn word(&self) -> &str {
                match self {
                    $enum::$first => $first_word,
                    $($enum::$variant => $word,)+
                    $enum::Other(word) => word,
                }
            }
        }
    };
}

statuses! {
    /// A run's status in the contract's words.
    RunStatus {
        /// The run was created and is not approved.
        Pending = "PENDING",
        /// The run is approved and has not started.
        Approved = "APPROVED",
        /// The run has started and has not ended.
        Running = "RUNNING",
        /// No new step starts until the run is resumed.
        Paused = "PAUSED",
        /// The run has ended with success.
        Completed = "COMPLETED",
        /// The run has ended with an error.
        Failed = "FAILED",
        /// The run was ended by a person or by its parent.
        Cancelled = "CANCELLED",
    }
}

impl RunStatus {
    /// Whether the run has ended: the status never changes again.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(
            self,
            RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled
        )
    }
}

statuses! {
    /// The status of one attempt of a step in the contract's words.
    StepStatus {
        /// The attempt has not started.
        Pending = "PENDING",
        /// The attempt has started and has not ended.
        Running = "RUNNING",
        /// The attempt has ended with success.
        Success = "SUCCESS",
        /// The attempt has ended with an error.
        Failed = "FAILED",
        /// The step will not run.
        Skipped = "SKIPPED",
    }
}

/// A reference to an artifact, as the event has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
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
    pub expires_at: Option<String>,
}

/// An error, as the event has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotError {
    /// The reason for programs; the code of an error never changes.
    pub code: String,
    /// The reason for people.
    pub message: String,
    /// Whether the same work may succeed when tried again; by the class of the error, also where no attempt is left.
    pub retryable: bool,
    /// The class of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
}

/// One attempt of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepSnapshot {
    /// The id of the visit or of the loop item.
    pub step_id: String,
    pub status: StepStatus,
    /// The number of the logical attempt, from 1; RETRY_STEP raises it.
    pub logical_attempt_id: u64,
    /// The number of the last execution; absent if no event has named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_attempt_id: Option<u64>,
    /// When the attempt started; absent before the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// The time of the event that reported the start, if that time is not `startedAt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_event_time: Option<String>,
    /// When the attempt ended, with any status; absent before the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    /// The time from the start to the end, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// References to the artifacts of the step.
    pub artifacts: Vec<Artifact>,
    /// The error of the attempt; absent if the attempt has not failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
    /// Why the step was skipped; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A run as the events of the contract show it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSnapshot {
    pub run_id: String,
    pub status: RunStatus,
    /// Detail of the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substatus: Option<String>,
    /// How many steps are in flight while a paused run drains. Not a part of the projection: who shows the run adds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// The status in a sentence for people, added as `inFlight` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The highest sequence number seen.
    pub last_event_seq: u64,
    /// Every attempt of every step that was seen, in the order they were first seen.
    pub steps: Vec<StepSnapshot>,
    /// References to the artifacts of all steps; empty until the run has succeeded.
    pub artifacts: Vec<Artifact>,
    /// The id that the engine itself has given to the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_run_ref: Option<String>,
    /// When the run started; absent before the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// The time of the event that reported the start, if that time is not `startedAt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_event_time: Option<String>,
    /// When the run ended, with any status; absent before the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    /// The time from the start to the end, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_duration_ms: Option<u64>,
    /// The number of attempts of steps that have failed.
    #[serde(default)]
    pub failed_steps: u64,
    /// The error of the run; absent if the run has not failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
    /// The number of pauses that have begun.
    #[serde(default)]
    pub pauses: u64,
    /// The number of pauses that have ended.
    #[serde(default)]
    pub resumes: u64,
}

impl RunSnapshot {
    /// A run of which nothing was seen.
    #[must_use]
    pub fn new(run_id: impl Into<String>) -> RunSnapshot {
        RunSnapshot {
            run_id: run_id.into(),
            ..RunSnapshot::default()
        }
    }

    /// The last attempt of a step that was seen.
    #[must_use]
    pub fn step(&self, step_id: &str) -> Option<&StepSnapshot> {
        let attempts = self.steps.iter().filter(|step| step.step_id == step_id);
        attempts.max_by_key(|step| step.logical_attempt_id)
    }
}

/// Projects a run from all its events.
#[must_use]
pub fn project(run_id: &str, events: &[ContractEvent]) -> RunSnapshot {
    incremental(&RunSnapshot::new(run_id), events)
}

/// Projects further events over a snapshot. The same value as from scratch.
#[must_use]
pub fn incremental(snapshot: &RunSnapshot, events: &[ContractEvent]) -> RunSnapshot {
    let mut ordered: Vec<&ContractEvent> = events.iter().collect();
    ordered.sort_by_key(|event| event.run_seq);
    let mut fold = Fold::new(snapshot.clone());
    for event in ordered {
        fold.apply(event);
    }
    fold.done()
}

/// Whether something lies between two events that were fetched one after the other.
#[must_use]
pub fn detect_non_contiguous(last_seq: u64, next_seq: u64) -> bool {
    next_seq > last_seq.saturating_add(1)
}
