//! A chunk's events as the contract has them, for consumers outside: rebuilt from the body, the
//! templates and the digests alone. What type an event has does not matter, so that a chunk of a later
//! version with types this program does not know is still delivered and projected.

use serde::Deserialize;
use serde_json::{Map, Value as Json};
use stepwell_kernel::keys;
use stepwell_kernel::time::Time;

use super::template::{Part, fields};
use super::{CODEC, ChunkFault, DIGESTS};
use crate::store::StoredChunk;

#[derive(Deserialize)]
struct Entry(Time, Map<String, Json>, Map<String, Json>);

/// An event that a step sent to the outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Outbound {
    /// The event of the run that it was sent with.
    pub seq: u64,
    /// Which of those that were sent with it, from 0.
    pub place: usize,
    pub step_id: String,
    /// What was sent.
    pub event: Json,
}

/// The contract's events of a chunk, in order.
pub fn contract_events(
    run_id: &str,
    plan_version: &str,
    chunk: &StoredChunk,
) -> Result<Vec<Json>, ChunkFault> {
    Ok(with_outbound(run_id, plan_version, chunk)?.0)
}

/// The contract's events of a chunk and what steps sent to the outside with them, both in order.
pub fn with_outbound(
    run_id: &str,
    plan_version: &str,
    chunk: &StoredChunk,
) -> Result<(Vec<Json>, Vec<Outbound>), ChunkFault> {
    if chunk.codec != CODEC {
        return Err(ChunkFault(format!(
            "it is written in form {}, this program knows form {CODEC}",
            chunk.codec
        )));
    }
    let entries: Vec<Entry> =
        serde_json::from_str(&chunk.body).map_err(|error| ChunkFault(error.to_string()))?;
    if entries.len() * DIGESTS != chunk.digests.len() {
        return Err(ChunkFault(format!(
            "it has {} events and {} bytes of digests",
            entries.len(),
            chunk.digests.len()
        )));
    }
    let mut events = Vec::with_capacity(entries.len());
    let mut outbound = Vec::new();
    let digests = chunk.digests.chunks_exact(DIGESTS);
    for (seq, (Entry(at, residual, mut ext), digests)) in
        (chunk.first..).zip(entries.into_iter().zip(digests))
    {
        let Some(Json::String(event_type)) = ext.remove("type") else {
            return Err(ChunkFault(format!("event {seq} has no type")));
        };
        let sent = match ext.remove("outbound") {
            Some(Json::Array(sent)) if event_type == "StepWaiting" => sent,
            _ => Vec::new(),
        };
        let mut contract = from_template(&event_type, at, run_id, plan_version);
        merge(&mut contract, residual);
        let step_id = contract
            .get("stepId")
            .and_then(Json::as_str)
            .unwrap_or_default();
        outbound.extend(sent.into_iter().enumerate().map(|(place, event)| Outbound {
            seq,
            place,
            step_id: step_id.to_owned(),
            event,
        }));
        let id = digests.first_chunk().map(keys::uuid);
        contract.insert("eventId".into(), id.into());
        contract.insert("idempotencyKey".into(), keys::hex(&digests[16..48]).into());
        contract.insert("runSeq".into(), seq.into());
        contract.insert("eventType".into(), event_type.into());
        events.push(Json::Object(contract));
    }
    Ok((events, outbound))
}

fn from_template(
    event_type: &str,
    at: Time,
    run_id: &str,
    plan_version: &str,
) -> Map<String, Json> {
    let value = |part: &Part| -> Json {
        match *part {
            Part::At => at.to_rfc3339().into(),
            Part::RunId => run_id.into(),
            Part::PlanVersion => plan_version.into(),
            Part::Text(text) => text.into(),
            Part::Number(number) => number.into(),
            Part::Flag(flag) => flag.into(),
            Part::EmptyList => Json::Array(Vec::new()),
        }
    };
    let members = fields(event_type).iter();
    members
        .map(|(name, part)| (name.as_str().to_owned(), value(part)))
        .collect()
}

/// RFC 7396.
fn merge(target: &mut Map<String, Json>, patch: Map<String, Json>) {
    for (name, value) in patch {
        match value {
            Json::Null => {
                target.remove(&name);
            }
            Json::Object(patch) => {
                let inner = target.entry(name).or_insert(Json::Null);
                if !inner.is_object() {
                    *inner = Json::Object(Map::new());
                }
                if let Json::Object(inner) = inner {
                    merge(inner, patch);
                }
            }
            value => {
                target.insert(name, value);
            }
        }
    }
}
