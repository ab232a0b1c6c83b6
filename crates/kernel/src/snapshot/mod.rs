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

/// A run's status in the contract's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RunStatus {
    /// It exists.
    #[default]
    Pending,
    /// It may start.
    Approved,
    /// It runs.
    Running,
    /// Nothing new starts.
    Paused,
    /// It has succeeded.
    Completed,
    /// It has failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// A later version's word.
    #[serde(untagged)]
    Other(String),
}

impl RunStatus {
    /// Whether it can no longer change.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(
            self,
            RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled
        )
    }
}

/// The status of one attempt of a step in the contract's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StepStatus {
    /// It has not started.
    #[default]
    Pending,
    /// It has started.
    Running,
    /// It has succeeded.
    Success,
    /// It has failed.
    Failed,
    /// It will not run.
    Skipped,
    /// A later version's word.
    #[serde(untagged)]
    Other(String),
}

/// A pointer as an event gave it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
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
    pub expires_at: Option<String>,
}

/// An error as an event gave it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotError {
    /// Stable code.
    pub code: String,
    /// For people.
    pub message: String,
    /// Whether the same work may succeed when tried again.
    pub retryable: bool,
    /// What kind of error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
}

/// One attempt of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepSnapshot {
    /// The step.
    pub step_id: String,
    /// The attempt's status.
    pub status: StepStatus,
    /// Which attempt, as operators count them.
    pub logical_attempt_id: u64,
    /// The last execution seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_attempt_id: Option<u64>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// The start's event time, where that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_event_time: Option<String>,
    /// When it ended, however it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    /// From start to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Pointers to what it made.
    pub artifacts: Vec<Artifact>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
    /// Why it was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSnapshot {
    /// The run.
    pub run_id: String,
    /// Its status.
    pub status: RunStatus,
    /// Detail of the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substatus: Option<String>,
    /// The highest sequence number seen.
    pub last_event_seq: u64,
    /// Every attempt of every step that was seen, in the order they were first seen.
    pub steps: Vec<StepSnapshot>,
    /// Pointers to what all its steps made, once it has succeeded.
    pub artifacts: Vec<Artifact>,
    /// The engine's own reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_run_ref: Option<String>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// The start's event time, where that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_event_time: Option<String>,
    /// When it ended, however it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    /// From start to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_duration_ms: Option<u64>,
    /// How many attempts of steps have failed.
    #[serde(default)]
    pub failed_steps: u64,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
    /// How many pauses were seen to begin.
    #[serde(default)]
    pub pauses: u64,
    /// How many pauses were seen to end.
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
