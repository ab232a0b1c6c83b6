//! Another way to write a chunk, to compare with: from records that are trees of JSON, and the templates as
//! stores have them. Slow, and written without a look at how the chunk writer does it.

use std::io;

use serde_json::Value as Json;
use stepwell_engine::chunk::{CODEC, DIGESTS, templates};
use stepwell_engine::store::Chunk;
use stepwell_kernel::contract::Record;
use stepwell_kernel::event::Event;
use stepwell_kernel::plan::Plan;

/// Members of the contract part that are in neither the template nor the residual.
const KEPT_ELSEWHERE: [&str; 4] = ["eventId", "eventType", "idempotencyKey", "runSeq"];

/// Writes a chunk. `events` and `records` are the same events in both forms, at least one.
pub(super) fn encode(plan: &Plan, run_id: &str, events: &[Event], records: &[Record]) -> Chunk {
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

/// What the placeholders of a template stand for.
struct Shared<'a> {
    at: &'a str,
    run_id: &'a str,
    version: &'a str,
}

/// Writes what a contract part says that its template does not.
fn write_residual(kind: &str, contract: &Json, shared: &Shared<'_>, out: &mut Vec<u8>) {
    let template = template(kind, shared);
    let mut separator = b'{';
    let mut member = |name: &str, out: &mut Vec<u8>| {
        out.push(separator);
        separator = b',';
        write_json(name, out);
        out.push(b':');
    };
    let mut found = 0;
    for (name, value) in contract.as_object().into_iter().flatten() {
        if KEPT_ELSEWHERE.contains(&name.as_str()) {
            continue;
        }
        let part = template.iter().find(|(known, _)| known == name);
        found += usize::from(part.is_some());
        if part.is_none_or(|(_, part)| part != value) {
            member(name, out);
            write_json(value, out);
        }
    }
    if found < template.len() {
        for (name, _) in &template {
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

/// The template of a type with its placeholders filled, in the order that it is written in.
fn template(kind: &str, shared: &Shared<'_>) -> Vec<(String, Json)> {
    let templates = templates();
    let found = templates.iter().find(|it| it.event_type == kind).unwrap();
    let members = found.json.trim_matches(['{', '}']).split(',');
    let member = |text: &str| {
        let (name, value) = text.split_once(':').unwrap();
        let value = match value {
            "\"$at\"" => shared.at.into(),
            "\"$runId\"" => shared.run_id.into(),
            "\"$planVersion\"" => shared.version.into(),
            value => serde_json::from_str(value).unwrap(),
        };
        (serde_json::from_str(name).unwrap(), value)
    };
    members.map(member).collect()
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
