//! How a chunk of the log is written: small, and still readable with SQL alone.
//!
//! The body is a JSON array with one `[at, residual, ext]` for each event: its time in milliseconds,
//! what its contract part says beyond the template of its type, and its `ext` part, whose `type` names
//! it. A template is the contract part that most events of a type share; `"$at"`, `"$runId"` and
//! `"$planVersion"` in it stand for the event's time (RFC 3339), the run's id and the plan's version.
//! The contract part is the template with the residual merged over it (RFC 7396: null removes), and
//! with `eventId`, `idempotencyKey`, `runSeq` and `eventType`, which are kept as `digests`, numbers and
//! in `ext`. Templates never change under a codec's number.

use stepwell_kernel::contract::Record;
use stepwell_kernel::event::Event;

use crate::store::Chunk;

/// How chunks are written now.
pub const CODEC: i16 = 1;

/// The contract part that most events of a type share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Of which codec.
    pub codec: i16,
    /// Of which type.
    pub event_type: &'static str,
    /// JSON text with placeholders.
    pub json: String,
}

/// Why a chunk cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a chunk of the log cannot be read: {0}")]
pub struct ChunkFault(pub String);

/// All templates, for the stores' view of the log.
#[must_use]
pub fn templates() -> Vec<Template> {
    todo!()
}

/// Writes a chunk. `events` and `records` are the same events in both forms, at least one.
#[must_use]
pub fn encode(
    run_id: &str,
    plan_version: &str,
    events: &[(Event, Record)],
    keys: Vec<Vec<u8>>,
) -> Chunk {
    todo!()
}

/// Reads a chunk's events.
pub fn decode(first: u64, codec: i16, body: &str) -> Result<Vec<Event>, ChunkFault> {
    todo!()
}
