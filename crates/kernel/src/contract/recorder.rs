//! Recording: an event becomes its contract part, its `ext` part and their hash, all written into memory
//! that is used again. What fields there are is said in `view`, how they are written in `value`.

use serde::Serialize as _;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::check::{self, SchemaFault};
use super::name::FieldName;
use super::stamps::Stamps;
use super::value::{FieldValue, FieldWriter};
use super::{Record, view};
use crate::canonical::{MemberStack, TwinSerializer};
use crate::chain::{self, GENESIS};
use crate::event::{Body, Event};
use crate::keys::{self, EventKey};
use crate::plan::Plan;
use crate::state::State;
use crate::time::Time;

/// Turns a run's events into records, one after the other.
#[derive(Clone, Debug)]
pub struct Recorder {
    run_id: String,
    /// The run's id is one that the contract allows.
    known: bool,
    stamps: Stamps,
    head: String,
}

/// Memory that recording uses again and again. One can serve any number of recorders.
#[derive(Debug, Default)]
pub struct RecordBuffers {
    /// The text that the id of an event is the hash of.
    preimage: Vec<u8>,
    /// The text that the hash of a record is computed from.
    hashed: Vec<u8>,
    ext: Vec<u8>,
    members: MemberStack,
    /// The time that was written last: many events have the same.
    now: Option<(Time, [u8; 24])>,
}

/// An event as it was recorded.
#[derive(Debug)]
pub struct Recorded<'a> {
    /// The fields of the contract part, in the order of canonical JSON.
    pub fields: &'a [(FieldName, FieldValue<'a>)],
    /// Writes the values of `fields` as JSON.
    pub writer: FieldWriter<'a>,
    /// The `ext` part of the event: JSON text.
    pub ext: &'a [u8],
    /// The key of the event; a run has at most one event for each key.
    pub key: &'a EventKey<'a>,
    /// The bytes of the UUID that is the id of the event.
    pub event_id: [u8; 16],
    /// SHA-256 of the text of `key`.
    pub idempotency_key: [u8; 32],
    /// SHA-256 of the record and the hash of the record before: the link of the chain.
    pub hash: [u8; 32],
    /// The contract part of the event: JSON text.
    contract: &'a [u8],
}

impl Recorder {
    /// For a run whose log is empty.
    #[must_use]
    pub fn new(run_id: impl Into<String>) -> Recorder {
        let run_id = run_id.into();
        Recorder {
            known: check::is_run_id(&run_id),
            run_id,
            stamps: Stamps::default(),
            head: GENESIS.to_owned(),
        }
    }

    /// For a run whose log folds to `state` and ends with a record of this hash.
    #[must_use]
    pub fn resume(plan: &Plan, state: &State, head: impl Into<String>) -> Recorder {
        Recorder {
            stamps: Stamps::of(plan, state),
            head: head.into(),
            ..Recorder::new(state.run_id().to_owned())
        }
    }

    /// The hash of the last record.
    #[must_use]
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Records the next event. One that does not fit its schema is refused and changes nothing.
    pub fn record(&mut self, plan: &Plan, event: &Event) -> Result<Record, SchemaFault> {
        let mut records = self.record_all(plan, std::slice::from_ref(event))?;
        Ok(records.remove(0))
    }

    /// Records a batch, all or nothing.
    pub fn record_all(
        &mut self,
        plan: &Plan,
        events: &[Event],
    ) -> Result<Vec<Record>, SchemaFault> {
        let mut records: Vec<Record> = Vec::with_capacity(events.len());
        let mut prev_hash = self.head.clone();
        self.write_all(
            plan,
            events,
            &mut RecordBuffers::default(),
            |event, recorded| {
                let hash = keys::hex(&recorded.hash);
                records.push(Record {
                    contract: tree(recorded.contract),
                    ext: ext_tree(&event.body),
                    prev_hash: std::mem::replace(&mut prev_hash, hash.clone()),
                    hash,
                });
            },
        )?;
        Ok(records)
    }

    /// Records a batch, all or nothing, and shows each event as it was recorded.
    pub fn write_all<'e>(
        &mut self,
        plan: &'e Plan,
        events: &'e [Event],
        buffers: &mut RecordBuffers,
        mut take: impl FnMut(&'e Event, &Recorded<'_>),
    ) -> Result<(), SchemaFault> {
        if !self.known {
            return Err(SchemaFault(format!(
                "runId does not fit: {:.200}",
                Json::from(self.run_id.as_str()).to_string()
            )));
        }
        events.iter().try_for_each(check::check_event)?;
        for event in events {
            self.write(plan, event, buffers, &mut take);
        }
        Ok(())
    }

    /// Records one event that fits its schema.
    fn write<'e>(
        &mut self,
        plan: &'e Plan,
        event: &'e Event,
        buffers: &mut RecordBuffers,
        take: &mut impl FnMut(&'e Event, &Recorded<'_>),
    ) {
        let RecordBuffers {
            preimage,
            hashed,
            ext,
            members,
            now,
        } = buffers;
        let now = match now {
            Some((at, text)) if *at == event.at => text,
            _ => &now.insert((event.at, event.at.rfc3339_bytes())).1,
        };
        let open = self.stamps.fold(event);
        let fields = view::fields(event, open, &self.stamps);
        let event_id = keys::event_id_bytes(&self.run_id, event.seq, preimage);
        let key = event.key(plan);
        let idempotency_key = key.hash(&self.run_id, &plan.net().plan_version, preimage);
        let writer = FieldWriter {
            plan,
            run_id: &self.run_id,
            event_type: key.event_type.name(),
            seq: event.seq,
            now,
            event_id: &event_id,
            key: &idempotency_key,
        };
        hashed.clear();
        hashed.extend_from_slice(b"{\"contract\":");
        let begin = hashed.len();
        writer.write_object(&fields, hashed);
        let contract = begin..hashed.len();
        hashed.extend_from_slice(b",\"ext\":");
        ext.clear();
        let mut twin = TwinSerializer::new(ext, hashed, members);
        event.body.serialize(&mut twin).expect(HAS_JSON);
        let exact = twin.is_exact() && fields.iter().all(|(_, value)| value.is_exact());
        hashed.extend_from_slice(b",\"prevHash\":\"");
        hashed.extend_from_slice(self.head.as_bytes());
        hashed.extend_from_slice(b"\"}");
        let hash: [u8; 32] = match exact {
            true => Sha256::digest(&hashed).into(),
            false => {
                let contract = tree(&hashed[contract.clone()]);
                chain::link_bytes(&contract, &ext_tree(&event.body), &self.head)
            }
        };
        let contract = &hashed[contract];
        debug_assert_eq!(check::check_envelope(&tree(contract)), Ok(()));
        self.head = keys::hex(&hash);
        take(
            event,
            &Recorded {
                fields: &fields,
                writer,
                ext,
                key: &key,
                event_id,
                idempotency_key,
                hash,
                contract,
            },
        );
    }
}

/// Why writing a body cannot fail: every map in it has texts as keys.
const HAS_JSON: &str = "every part of an event has a JSON form";

/// Reads a contract part that was written here.
fn tree(contract: &[u8]) -> Json {
    serde_json::from_slice(contract)
        .expect("what was written is JSON, and nested three deep at most")
}

/// The `ext` part as a tree. It is not read from text, since it may be nested deeper than a reader goes.
fn ext_tree(body: &Body) -> Json {
    serde_json::to_value(body).expect(HAS_JSON)
}
