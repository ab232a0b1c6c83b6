//! How a chunk of the log is written: small, and still readable with SQL alone.
//!
//! The body is a JSON array with one `[at, residual, ext]` for each event: its time in milliseconds,
//! what its contract part says beyond the template of its type, and its `ext` part, whose `type` names
//! it. A template is the contract part that most events of a type share; `"$at"`, `"$runId"` and
//! `"$planVersion"` in it stand for the event's time (RFC 3339), the run's id and the plan's version.
//! The contract part is the template with the residual merged over its members (null removes), and
//! with `eventId`, `idempotencyKey`, `runSeq` and `eventType`, which are kept as `digests`, numbers and
//! in `ext`. Templates never change under a codec's number.

mod read;
mod template;

use std::io;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value as Json;
use stepwell_kernel::contract::Record;
use stepwell_kernel::event::{Body, Event};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use crate::store::Chunk;
use template::{Part, fields};

pub use read::{Outbound, contract_events, with_outbound};
pub use template::{Template, templates};

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

/// Writes a chunk. `events` and `records` are the same events in both forms, at least one.
#[must_use]
pub fn encode(plan: &Plan, run_id: &str, events: &[Event], records: &[Record]) -> Chunk {
    let version = plan.net().plan_version.as_str();
    let mut body = Vec::with_capacity(256 * events.len());
    let mut digests = Vec::with_capacity(DIGESTS * events.len());
    body.push(b'[');
    for (place, (event, record)) in events.iter().zip(records).enumerate() {
        if place > 0 {
            body.push(b',');
        }
        body.push(b'[');
        write_json(&event.at, &mut body);
        body.push(b',');
        let at = event.at.to_rfc3339();
        let shared = Shared {
            at: &at,
            run_id,
            version,
        };
        write_residual(event.body.kind(), &record.contract, &shared, &mut body);
        body.push(b',');
        write_json(&event.body, &mut body);
        body.push(b']');
        push_hex(text(&record.contract, "eventId"), 16, &mut digests);
        push_hex(text(&record.contract, "idempotencyKey"), 32, &mut digests);
        push_hex(&record.hash, 32, &mut digests);
    }
    body.push(b']');
    let first = events.first().map_or(0, |event| event.seq);
    Chunk {
        first,
        last: events.last().map_or(first, |event| event.seq),
        codec: CODEC,
        body: String::from_utf8(body).unwrap_or_default(),
        digests,
        keys: events
            .iter()
            .map(|event| event.key(plan).to_bytes())
            .collect(),
    }
}

/// How deep the brackets of a JSON text are nested.
#[must_use]
pub fn depth(json: &str) -> usize {
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

/// Reads a chunk's events.
pub fn decode(first: u64, codec: i16, body: &str) -> Result<Vec<Event>, ChunkFault> {
    #[derive(Deserialize)]
    struct Entry(Time, #[allow(dead_code)] IgnoredAny, Body);

    if codec != CODEC {
        return Err(ChunkFault(format!(
            "it is written in form {codec}, this program knows form {CODEC}"
        )));
    }
    let entries: Vec<Entry> =
        serde_json::from_str(body).map_err(|error| ChunkFault(error.to_string()))?;
    let event = |(seq, Entry(at, _, body))| Event { seq, at, body };
    Ok((first..).zip(entries).map(event).collect())
}

/// What the placeholders of a template stand for.
struct Shared<'a> {
    at: &'a str,
    run_id: &'a str,
    version: &'a str,
}

/// Writes what a contract part says that its template does not.
fn write_residual(kind: &str, contract: &Json, shared: &Shared<'_>, out: &mut Vec<u8>) {
    let template = fields(kind);
    let mut separator = b'{';
    let mut member = |name: &str, out: &mut Vec<u8>| {
        out.push(separator);
        separator = b',';
        write_json(name, out);
        out.push(b':');
    };
    let mut found = 0;
    for (name, value) in contract.as_object().into_iter().flatten() {
        if template::KEPT_ELSEWHERE.contains(&name.as_str()) {
            continue;
        }
        let part = template.iter().find(|(known, _)| known == name);
        found += usize::from(part.is_some());
        if part.is_none_or(|(_, part)| !part.is(value, shared)) {
            member(name, out);
            write_json(value, out);
        }
    }
    if found < template.len() {
        for (name, _) in template {
            if contract.get(name).is_none() {
                member(name, out);
                out.extend_from_slice(b"null");
            }
        }
    }
    if separator == b'{' {
        out.push(b'{');
    }
    out.push(b'}');
}

impl Part {
    fn is(self, value: &Json, shared: &Shared<'_>) -> bool {
        match self {
            Part::At => value.as_str() == Some(shared.at),
            Part::RunId => value.as_str() == Some(shared.run_id),
            Part::PlanVersion => value.as_str() == Some(shared.version),
            Part::Text(text) => value.as_str() == Some(text),
            Part::Number(number) => value.as_u64() == Some(number),
            Part::Flag(flag) => value.as_bool() == Some(flag),
            Part::EmptyList => value.as_array().is_some_and(Vec::is_empty),
        }
    }
}

/// Writing into memory does not fail, and everything that is written here has a JSON form.
fn write_json<T: serde::Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    let written: io::Result<()> = serde_json::to_writer(out, value).map_err(Into::into);
    debug_assert!(written.is_ok(), "{written:?}");
}

fn text<'a>(contract: &'a Json, name: &str) -> &'a str {
    contract.get(name).and_then(Json::as_str).unwrap_or("")
}

/// Appends exactly `length` bytes: those that the hex digits stand for, dashes left out.
fn push_hex(digits: &str, length: usize, out: &mut Vec<u8>) {
    let end = out.len() + length;
    let mut high = None;
    for byte in digits.bytes().filter(|byte| *byte != b'-') {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => 0,
        };
        match high.take() {
            None => high = Some(digit << 4),
            Some(high) => out.push(high | digit),
        }
    }
    out.resize(end, 0);
}
