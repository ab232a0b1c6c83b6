//! Parts of a log that this version does not know, because a newer version wrote them: types of events, fields, values.
//! They are never an error (statements C21 and C22 of the contract): an event that cannot be read is opaque, and every
//! reader of the log can tell people what this version passed over.

use std::fmt;

use serde::Deserialize as _;
use serde::de::IgnoredAny;
use serde_json::Value as Json;
use stepwell_kernel::contract::check_envelope;
use stepwell_kernel::event::{Body, Event, EventType, OpaqueEvent};
use stepwell_kernel::time::Time;

use super::ChunkFault;

/// How many characters of a value are shown.
const SHOWN: usize = 60;

/// A part of an event that this version does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPart {
    /// The sequence number of the event.
    pub seq: u64,
    /// The type of the event, as the log names it.
    pub event_type: String,
    /// What is not known.
    pub what: String,
    /// The whole event was passed over; otherwise only the part was.
    pub opaque: bool,
}

impl fmt::Display for UnknownPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {} ({}): {}", self.seq, self.event_type, self.what)
    }
}

/// The events of a chunk, one by one: those that cannot be read are opaque.
pub(super) fn entries(body: &str) -> Result<Vec<(Time, IgnoredAny, Body)>, ChunkFault> {
    let entries: Vec<(Time, IgnoredAny, Json)> =
        serde_json::from_str(body).map_err(|error| ChunkFault(error.to_string()))?;
    let read = |(at, rest, ext): (Time, IgnoredAny, Json)| {
        let Some(name) = ext.get("type").and_then(Json::as_str) else {
            return Err(ChunkFault("an event has no type".to_owned()));
        };
        let body = Body::deserialize(&ext).unwrap_or_else(|error| {
            Body::Opaque(OpaqueEvent {
                name: name.to_owned(),
                why: match EventType::from_name(name) {
                    None => "this version does not know the type".to_owned(),
                    Some(_) => error.to_string(),
                },
            })
        });
        Ok((at, rest, body))
    };
    entries.into_iter().map(read).collect()
}

/// What this version does not know of an event. `contract` and `ext` are its parts as they are stored.
pub(crate) fn unknown_parts(event: &Event, contract: &Json, ext: &Json) -> Vec<UnknownPart> {
    let part = |what: String, opaque: bool| UnknownPart {
        seq: event.seq,
        event_type: event.body.name().to_owned(),
        what,
        opaque,
    };
    if let Body::Opaque(opaque) = &event.body {
        return vec![part(opaque.why.clone(), true)];
    }
    let mut found = Vec::new();
    if let Ok(known) = serde_json::to_value(&event.body) {
        differing("", ext, &known, &mut found);
    }
    if let Err(fault) = check_envelope(contract) {
        found.push(fault.0);
    }
    found.into_iter().map(|what| part(what, false)).collect()
}

/// What one tree has that the other, which was read from it, has not.
fn differing(path: &str, stored: &Json, known: &Json, found: &mut Vec<String>) {
    match (stored, known) {
        (Json::Object(stored), Json::Object(known)) => {
            for (name, value) in stored {
                let path = match path {
                    "" => name.clone(),
                    _ => format!("{path}.{name}"),
                };
                match known.get(name) {
                    Some(known) => differing(&path, value, known, found),
                    // A value that is left out when it is the default says nothing new.
                    None if is_nothing(value) => {}
                    None => found.push(format!("this version does not know the field `{path}`")),
                }
            }
        }
        (Json::Array(stored), Json::Array(known)) => {
            for (place, (stored, known)) in stored.iter().zip(known).enumerate() {
                differing(&format!("{path}[{place}]"), stored, known, found);
            }
        }
        _ if stored == known => {}
        (Json::String(_), Json::String(known)) => found.push(format!(
            "this version does not know the value {} of `{path}` and reads it as \"{known}\"",
            shown(stored)
        )),
        _ => found.push(format!(
            "this version does not know the value {} of `{path}`",
            shown(stored)
        )),
    }
}

fn is_nothing(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::Bool(flag) => !flag,
        Json::Number(_) => false,
        Json::String(text) => text.is_empty(),
        Json::Array(list) => list.is_empty(),
        Json::Object(fields) => fields.is_empty(),
    }
}

fn shown(value: &Json) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
