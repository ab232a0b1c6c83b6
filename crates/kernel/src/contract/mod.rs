//! The contract's view of the log: each event as the JSON that the execution contract describes, with
//! everything else the fold needs beside it in `ext`.
//!
//! ```text
//! Event ──Recorder──► Record { contract, ext, prevHash, hash } ──from_record──► Event
//! ```
//!
//! `view` has the tables of fields, which `check` and `schema` read, and says what the fields of an event
//! hold; `value` writes it, and `recorder` hashes what is written: no tree of JSON is built for
//! it. A reader of the contract needs only the `contract` part; the engine needs only `ext`, the sequence
//! number and the time.

mod check;
mod fields;
mod name;
mod recorder;
mod schema;
mod stamps;
mod value;
mod view;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use check::{SCHEMA_VALIDATION_FAILED, SchemaFault, check_envelope, check_event};
pub use name::FieldName;
pub use recorder::{RecordBuffers, Recorded, Recorder};
pub use schema::schemas;
pub use value::{FieldValue, FieldWriter};
pub(crate) use view::words::plan_ref;

use crate::event::{Body, Event};
use crate::time::Time;

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
