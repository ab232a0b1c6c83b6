//! The contract's view of the log: each event as the JSON that the execution contract describes, with
//! everything else the fold needs beside it in `ext`.
//!
//! ```text
//! Event ──Recorder──► Record { contract, ext, prevHash, hash } ──from_record──► Event
//! ```
//!
//! `fields` is the one table of fields; `check` and `schema` read it; `view` fills it. A reader of the
//! contract needs only the `contract` part; the engine needs only `ext`, the sequence number and the
//! time.

mod check;
mod fields;
mod schema;
mod stamps;
mod view;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use check::{SCHEMA_VALIDATION_FAILED, SchemaFault, check_envelope};
pub use schema::schemas;

use crate::chain::{self, GENESIS};
use crate::event::{Body, Event};
use crate::plan::Plan;
use crate::state::State;
use crate::time::Time;
use stamps::Stamps;

/// The contract's own event types, `RunQueued` included.
pub fn canonical_types() -> impl Iterator<Item = &'static str> {
    let canonical = fields::kinds().filter(|kind| kind.canonical);
    canonical.map(|kind| kind.name)
}

/// Every event type.
pub fn event_types() -> impl Iterator<Item = &'static str> {
    fields::kinds().map(|kind| kind.name)
}

/// An event as it is written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    /// What the contract shows.
    pub contract: Json,
    /// Everything else: the event's body as the fold reads it.
    pub ext: Json,
    /// The hash of the record before it.
    pub prev_hash: String,
    /// The hash over the other three.
    pub hash: String,
}

/// Why a record is no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// The sequence number or the time is missing or no such thing.
    #[error("the record's contract part has no usable {0}")]
    Envelope(&'static str),
    /// The body cannot be read.
    #[error("the record's ext part is no event body: {0}")]
    Body(String),
    /// The two parts speak of different things.
    #[error("the record's contract part is a {contract}, its ext part a {ext}")]
    Types {
        /// What the contract part says.
        contract: String,
        /// What the body is.
        ext: String,
    },
}

/// Turns a run's events into records, one after the other.
#[derive(Clone, Debug)]
pub struct Recorder {
    run_id: String,
    stamps: Stamps,
    head: String,
}

impl Recorder {
    /// For a run whose log is empty.
    #[must_use]
    pub fn new(run_id: impl Into<String>) -> Recorder {
        Recorder {
            run_id: run_id.into(),
            stamps: Stamps::default(),
            head: GENESIS.to_owned(),
        }
    }

    /// For a run whose log folds to `state` and ends with a record of this hash.
    #[must_use]
    pub fn resume(plan: &Plan, state: &State, head: impl Into<String>) -> Recorder {
        Recorder {
            run_id: state.run_id.clone(),
            stamps: Stamps::of(plan, state),
            head: head.into(),
        }
    }

    /// The hash of the last record.
    #[must_use]
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Records the next event. One that does not fit its schema is refused and changes nothing.
    pub fn record(&mut self, plan: &Plan, event: &Event) -> Result<Record, SchemaFault> {
        let contract = view::to_contract(plan, &self.run_id, event, &self.stamps);
        check_envelope(&contract)?;
        let ext = serde_json::to_value(&event.body)
            .map_err(|error| SchemaFault(format!("the body has no JSON form: {error}")))?;
        self.stamps.fold(event);
        let prev_hash = self.head.clone();
        let hash = chain::link(&contract, &ext, &prev_hash);
        self.head.clone_from(&hash);
        Ok(Record {
            contract,
            ext,
            prev_hash,
            hash,
        })
    }

    /// Records a batch, all or nothing.
    pub fn record_all(
        &mut self,
        plan: &Plan,
        events: &[Event],
    ) -> Result<Vec<Record>, SchemaFault> {
        // What each event is about to change is kept, not a copy of everything: a run may have a
        // thousand open steps.
        let head = self.head.clone();
        let mut before = Vec::with_capacity(events.len());
        let mut records = Vec::with_capacity(events.len());
        for event in events {
            let stamp = self.stamps.before(event);
            match self.record(plan, event) {
                Ok(record) => records.push(record),
                Err(fault) => {
                    self.head = head;
                    before
                        .into_iter()
                        .rev()
                        .for_each(|stamp| self.stamps.restore(stamp));
                    return Err(fault);
                }
            }
            before.push(stamp);
        }
        Ok(records)
    }
}

/// The event that a record was made of.
pub fn from_record(record: &Record) -> Result<Event, RecordFault> {
    let seq = record.contract.get("runSeq").and_then(Json::as_u64);
    let seq = seq.ok_or(RecordFault::Envelope("runSeq"))?;
    let at = record.contract.get("emittedAt").and_then(Json::as_str);
    let at = at
        .and_then(Time::from_rfc3339)
        .ok_or(RecordFault::Envelope("emittedAt"))?;
    let body =
        Body::deserialize(&record.ext).map_err(|error| RecordFault::Body(error.to_string()))?;
    let named = record.contract.get("eventType").and_then(Json::as_str);
    if named != Some(body.kind()) {
        return Err(RecordFault::Types {
            contract: named.unwrap_or_default().to_owned(),
            ext: body.kind().to_owned(),
        });
    }
    Ok(Event { seq, at, body })
}
