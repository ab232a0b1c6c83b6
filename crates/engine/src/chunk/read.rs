//! A chunk's events as the contract has them, for consumers outside: rebuilt from the body, the
//! templates and the digests alone. What type an event has does not matter, so that a chunk of a later
//! version with types this program does not know is still delivered and projected.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use stepwell_kernel::event::EventType;
use stepwell_kernel::keys;
use stepwell_kernel::snapshot::ContractEvent;
use stepwell_kernel::time::Time;

use super::template::{ENVELOPE, Part, fields};
use super::{CODEC, ChunkFault, DIGESTS};
use crate::store::StoredChunk;

#[derive(Deserialize)]
struct Entry(Time, Map<String, Json>, Map<String, Json>);

/// An entry whose second part is passed over.
#[derive(Deserialize)]
struct SnapshotEntry(Time, Map<String, Json>, TypeOf);

#[derive(Deserialize)]
struct TypeOf {
    #[serde(rename = "type")]
    event_type: String,
}

/// An event that a step sent to the outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Outbound {
    /// Sequence number of the run's event that records the sending.
    pub seq: u64,
    /// Position among the events that were sent with `seq`, from 0.
    pub place: usize,
    pub step_id: String,
    /// The content as the step produced it.
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
    let entries: Vec<Entry> = entries(chunk)?;
    let mut events = Vec::with_capacity(entries.len());
    let mut outbound = Vec::new();
    let digests = chunk.digests.chunks_exact(DIGESTS);
    for (seq, (Entry(at, residual, mut ext), digests)) in
        (chunk.first..).zip(entries.into_iter().zip(digests))
    {
        let Some(Json::String(event_type)) = ext.remove("type") else {
            return Err(ChunkFault(format!("event {seq} has no type")));
        };
        let known = EventType::from_name(&event_type);
        let sent = match ext.remove("outbound") {
            Some(Json::Array(sent)) if known == Some(EventType::StepWaiting) => sent,
            _ => Vec::new(),
        };
        let contract = contract(known, at, residual, run_id, plan_version);
        let contract = with_digests(contract, digests, seq, event_type);
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
        events.push(Json::Object(contract));
    }
    Ok((events, outbound))
}

/// The same without what a snapshot has no place for: ids and keys, which cost the most to make.
pub(crate) fn snapshot_events(
    run_id: &str,
    plan_version: &str,
    chunk: &StoredChunk,
) -> Result<Vec<ContractEvent>, ChunkFault> {
    let entries: Vec<SnapshotEntry> = entries(chunk)?;
    Ok((chunk.first..)
        .zip(entries)
        .map(|(seq, SnapshotEntry(at, residual, ext))| {
            let known = EventType::from_name(&ext.event_type);
            let fields = contract(known, at, residual, run_id, plan_version);
            ContractEvent::new(ext.event_type, seq, fields)
        })
        .collect())
}

/// What the hashes of a chunk's events are computed from, in order: the contract part and the `ext` part.
pub fn hashed_parts(
    run_id: &str,
    plan_version: &str,
    chunk: &StoredChunk,
) -> Result<Vec<(Json, Json)>, ChunkFault> {
    let digests = chunk.digests.chunks_exact(DIGESTS);
    (chunk.first..)
        .zip(entries::<Entry>(chunk)?.into_iter().zip(digests))
        .map(|(seq, (Entry(at, residual, ext), digests))| {
            let event_type = ext.get("type").and_then(Json::as_str);
            let event_type =
                event_type.ok_or_else(|| ChunkFault(format!("event {seq} has no type")))?;
            let known = EventType::from_name(event_type);
            let contract = contract(known, at, residual, run_id, plan_version);
            let contract = with_digests(contract, digests, seq, event_type.to_owned());
            Ok((Json::Object(contract), Json::Object(ext)))
        })
        .collect()
}

fn entries<T: DeserializeOwned>(chunk: &StoredChunk) -> Result<Vec<T>, ChunkFault> {
    if chunk.codec != CODEC {
        return Err(ChunkFault(format!(
            "it is written in form {}, this program knows form {CODEC}",
            chunk.codec
        )));
    }
    let entries: Vec<T> =
        serde_json::from_str(&chunk.body).map_err(|error| ChunkFault(error.to_string()))?;
    if entries.len() * DIGESTS != chunk.digests.len() {
        return Err(ChunkFault(format!(
            "it has {} events and {} bytes of digests",
            entries.len(),
            chunk.digests.len()
        )));
    }
    Ok(entries)
}

fn contract(
    known: Option<EventType>,
    at: Time,
    residual: Map<String, Json>,
    run_id: &str,
    plan_version: &str,
) -> Map<String, Json> {
    let mut contract = from_template(known, at, run_id, plan_version);
    merge(&mut contract, residual);
    contract
}

/// Adds what is kept beside the body.
fn with_digests(
    mut contract: Map<String, Json>,
    digests: &[u8],
    seq: u64,
    event_type: String,
) -> Map<String, Json> {
    let id = digests.first_chunk().map(keys::uuid);
    contract.insert("eventId".into(), id.into());
    contract.insert("idempotencyKey".into(), keys::hex(&digests[16..48]).into());
    contract.insert("runSeq".into(), seq.into());
    contract.insert("eventType".into(), event_type.into());
    contract
}

fn from_template(
    event_type: Option<EventType>,
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
    // A type of a later version shares the envelope, as the type of every event does.
    let members = event_type.map_or(ENVELOPE, fields).iter();
    members
        .map(|(name, part)| (name.as_str().to_owned(), value(part)))
        .collect()
}

/// Applies a JSON merge patch (RFC 7396): a null removes the field.
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
            value @ (Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_)) => {
                target.insert(name, value);
            }
        }
    }
}
