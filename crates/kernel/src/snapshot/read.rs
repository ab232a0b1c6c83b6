//! A tolerant reader of the contract's events: what it does not know it passes over, and no type, field
//! or word that a later version adds makes it fail.

use serde_json::{Map, Value as Json};

use super::{Artifact, SnapshotError};
use crate::time::Time;

/// An event as any version of the contract may have written it.
#[derive(Clone, Debug, PartialEq)]
pub struct ContractEvent {
    /// The type of the event; this version may not know it.
    pub event_type: String,
    /// The place of the event in the log of its run, from 1.
    pub run_seq: u64,
    fields: Map<String, Json>,
}

impl ContractEvent {
    /// Reads an event; `None` only if it has no type or no place in the log.
    #[must_use]
    pub fn read(event: Json) -> Option<ContractEvent> {
        let Json::Object(fields) = event else {
            return None;
        };
        Some(ContractEvent {
            event_type: fields.get("eventType")?.as_str()?.to_owned(),
            run_seq: fields.get("runSeq")?.as_u64()?,
            fields,
        })
    }

    /// An event of the log with its fields, of which those that a snapshot has no place for may be missing.
    #[must_use]
    pub fn new(event_type: String, run_seq: u64, fields: Map<String, Json>) -> ContractEvent {
        ContractEvent {
            event_type,
            run_seq,
            fields,
        }
    }

    /// When the event was appended.
    #[must_use]
    pub fn emitted_at(&self) -> Option<Time> {
        self.text("emittedAt").and_then(Time::from_rfc3339)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name)?.as_str()
    }

    pub(super) fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.fields.get(name)?.as_u64()
    }

    /// The event's time: when it occurred, else when it was appended.
    pub(super) fn event_time(&self) -> Option<&str> {
        self.text("occurredAt").or_else(|| self.text("emittedAt"))
    }

    pub(super) fn artifacts(&self) -> Vec<Artifact> {
        let list = self.fields.get("artifactRefs").and_then(Json::as_array);
        let list = list.map(Vec::as_slice).unwrap_or_default();
        list.iter()
            .filter_map(|artifact| {
                let text = |name: &str| Some(artifact.get(name)?.as_str()?.to_owned());
                Some(Artifact {
                    uri: text("uri")?,
                    kind: text("kind").unwrap_or_default(),
                    sha256: text("sha256"),
                    size_bytes: artifact.get("sizeBytes").and_then(Json::as_u64),
                    expires_at: text("expiresAt"),
                })
            })
            .collect()
    }

    pub(super) fn error(&self) -> Option<SnapshotError> {
        let error = self.fields.get("error")?;
        let text = |name: &str| Some(error.get(name)?.as_str()?.to_owned());
        Some(SnapshotError {
            code: text("code").unwrap_or_default(),
            message: text("message").unwrap_or_default(),
            retryable: error
                .get("retryable")
                .and_then(Json::as_bool)
                .unwrap_or(false),
            category: text("category"),
        })
    }
}

/// Milliseconds between two instants, if both can be read.
pub(super) fn duration(from: Option<&str>, to: Option<&str>) -> Option<u64> {
    let from = Time::from_rfc3339(from?)?;
    Some(Time::from_rfc3339(to?)?.since(from))
}
