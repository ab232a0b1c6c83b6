//! How a chunk of the log is written: small, and still readable with SQL alone.
//!
//! The body is a JSON array with one `[at, residual, ext]` for each event: its time in milliseconds,
//! what its contract part says beyond the template of its type, and its `ext` part, whose `type` names
//! it. A template is the contract part that most events of a type share; `"$at"`, `"$runId"` and
//! `"$planVersion"` in it stand for the event's time (RFC 3339), the run's id and the plan's version.
//! The contract part is the template with the residual merged over its members (null removes), and
//! with `eventId`, `idempotencyKey`, `runSeq` and `eventType`, which are kept as `digests`, numbers and
//! in `ext`. Templates never change under a codec's number.

mod lines;
mod opaque;
mod read;
mod restamp;
mod template;

use serde::de::IgnoredAny;
use stepwell_kernel::contract::{
    FieldName, FieldValue, RecordBuffers, Recorded, Recorder, SchemaFault,
};
use stepwell_kernel::event::{Body, Event, EventType};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use crate::store::Chunk;
use template::{Part, fields};

pub use lines::from_lines;
pub use opaque::UnknownPart;
pub(crate) use opaque::unknown_parts;
pub use read::hashed_parts;
pub(crate) use read::snapshot_events;
pub use read::{Outbound, contract_events, with_outbound};
pub(crate) use restamp::restamp;
pub use template::{ChunkTemplate, templates};

/// How chunks are written now.
pub const CODEC: i16 = 1;

/// Bytes of `digests` for each event: its id (16), idempotency key (32) and hash (32).
pub const DIGESTS: usize = 80;

/// How deep the values of a chunk may be nested, its own brackets counted. Readers give up at 128, and
/// what cannot be read back must not be written.
pub const MAX_DEPTH: usize = 100;

/// Why a chunk cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a chunk of the log cannot be read: {0}")]
pub struct ChunkFault(pub String);

/// Writes chunks, in memory that is used again and again.
#[derive(Debug, Default)]
pub struct ChunkWriter {
    buffers: RecordBuffers,
}

impl ChunkWriter {
    /// Records events, at least one, and writes them as a chunk. If one does not fit its schema, nothing is
    /// recorded.
    pub fn write(
        &mut self,
        recorder: &mut Recorder,
        plan: &Plan,
        events: &[Event],
    ) -> Result<Chunk, SchemaFault> {
        let mut body = Vec::with_capacity(192 * events.len());
        let mut digests = Vec::with_capacity(DIGESTS * events.len());
        let mut keys = Vec::with_capacity(events.len());
        let mut separator = b'[';
        recorder.write_all(plan, events, &mut self.buffers, |event, recorded| {
            body.push(separator);
            separator = b',';
            body.push(b'[');
            // Writing into memory does not fail.
            let _ = serde_json::to_writer(&mut body, &event.at);
            body.push(b',');
            write_residual(event.body.event_type(), recorded, &mut body);
            body.push(b',');
            body.extend_from_slice(recorded.ext);
            body.push(b']');
            digests.extend_from_slice(&recorded.event_id);
            digests.extend_from_slice(&recorded.idempotency_key);
            digests.extend_from_slice(&recorded.hash);
            keys.push(recorded.key.to_bytes());
        })?;
        body.push(b']');
        let first = events.first().map_or(0, |event| event.seq);
        Ok(Chunk {
            first,
            last: events.last().map_or(first, |event| event.seq),
            codec: CODEC,
            body: String::from_utf8(body).unwrap_or_default(),
            digests,
            keys,
        })
    }
}

/// How deep the brackets of a JSON text are nested.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut quoted, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// How deep a JSON text is nested, if that is more than `MAX_DEPTH`.
#[must_use]
pub fn too_deep(json: &str) -> Option<usize> {
    // Nothing is nested deeper than it has brackets, and those are counted many at a time.
    let opens = |byte: &u8| u8::from(*byte == b'[') + u8::from(*byte == b'{');
    let parts = json.as_bytes().chunks(255);
    let count = |part: &[u8]| usize::from(part.iter().map(opens).sum::<u8>());
    if parts.map(count).sum::<usize>() <= MAX_DEPTH {
        return None;
    }
    Some(depth(json)).filter(|depth| *depth > MAX_DEPTH)
}

/// Reads a chunk's events. What a newer version wrote and this version cannot read is opaque.
pub fn decode(first: u64, codec: i16, body: &str) -> Result<Vec<Event>, ChunkFault> {
    if codec != CODEC {
        return Err(ChunkFault(format!(
            "it is written in form {codec}, this program knows form {CODEC}"
        )));
    }
    let entries = match serde_json::from_str::<Vec<(Time, IgnoredAny, Body)>>(body) {
        Ok(entries) => entries,
        Err(_) => opaque::entries(body)?,
    };
    let event = |(seq, (at, _, body))| Event { seq, at, body };
    Ok((first..).zip(entries).map(event).collect())
}

/// Writes what a contract part says that its template does not.
fn write_residual(event_type: EventType, recorded: &Recorded<'_>, out: &mut Vec<u8>) {
    let template = fields(event_type);
    let mut separator = b'{';
    let mut member = |name: FieldName, out: &mut Vec<u8>| {
        out.push(separator);
        separator = b',';
        out.extend_from_slice(name.member().as_bytes());
    };
    let mut found = 0;
    for (name, value) in recorded.fields {
        let part = template.iter().find(|(known, _)| known == name);
        found += usize::from(part.is_some());
        if !is_kept_elsewhere(value) && part.is_none_or(|(_, part)| !part.is(value)) {
            member(*name, out);
            recorded.writer.write(value, out);
        }
    }
    if found < template.len() {
        let has = |name: &FieldName| recorded.fields.iter().any(|(known, _)| known == name);
        for (name, _) in template.iter().filter(|(name, _)| !has(name)) {
            member(*name, out);
            out.extend_from_slice(b"null");
        }
    }
    if separator == b'{' {
        out.push(b'{');
    }
    out.push(b'}');
}

/// Whether a value is in neither the template nor the residual, but among digests, numbers and `ext`.
fn is_kept_elsewhere(value: &FieldValue<'_>) -> bool {
    matches!(
        value,
        FieldValue::EventId
            | FieldValue::EventType
            | FieldValue::IdempotencyKey
            | FieldValue::RunSeq
    )
}

impl Part {
    fn is(self, value: &FieldValue<'_>) -> bool {
        match (self, value) {
            (Part::At, FieldValue::Now)
            | (Part::RunId, FieldValue::RunId)
            | (Part::PlanVersion, FieldValue::PlanVersion) => true,
            (Part::Text(text), FieldValue::Word(word)) => text == *word,
            (Part::Number(number), FieldValue::Number(value)) => number == *value,
            (Part::Flag(flag), FieldValue::Flag(value)) => flag == *value,
            (Part::EmptyList, FieldValue::Artifacts(artifacts)) => artifacts.is_empty(),
            _ => false,
        }
    }
}
