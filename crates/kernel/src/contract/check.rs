//! Whether an event fits its schema. What is written here has the fields of its type by construction;
//! `check_event` looks at the rest before anything is written. `check_envelope` checks any JSON against the
//! same table as the published schemas, by hand, because the kernel carries no validator; debug builds
//! check every event with it.

use serde_json::{Map, Value as Json};

use super::fields::{ENVELOPE, Field, Shape};
use super::view::fields_of;
use crate::event::{Body, Event, EventType};
use crate::time::Time;

/// The code of an event that does not fit its schema.
pub const SCHEMA_VALIDATION_FAILED: &str = "SCHEMA_VALIDATION_FAILED";

/// An event that does not fit its schema, and so must not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{SCHEMA_VALIDATION_FAILED}: {0}")]
pub struct SchemaFault(pub String);

/// Whether an event can be written: of what the schemas ask, types do not say that these numbers are at
/// least one.
pub fn check_event(event: &Event) -> Result<(), SchemaFault> {
    if event.seq == 0 {
        return fault("runSeq does not fit: 0");
    }
    if let Body::Opaque(opaque) = &event.body {
        return fault(format!(
            "this version cannot write an event {:.100}",
            opaque.name
        ));
    }
    if event.body.attempt() == 0 {
        return fault("logicalAttemptId does not fit: 0");
    }
    if let Body::StepApproved { approvals: 0, .. } = event.body {
        return fault("approvals does not fit: 0");
    }
    Ok(())
}

/// Whether an event has every field it needs, each of its shape, and no other.
pub fn check_envelope(event: &Json) -> Result<(), SchemaFault> {
    let Json::Object(given) = event else {
        return fault("an event is a JSON object");
    };
    let Some(name) = given.get("eventType").and_then(Json::as_str) else {
        return fault("eventType is missing or no text");
    };
    let Some(event_type) = EventType::from_name(name) else {
        return fault(format!("there is no event type {name:.100}"));
    };
    let own = fields_of(event_type);
    let known = check_fields(given, ENVELOPE, name)? + check_fields(given, own, name)?;
    // Fields that do not belong are looked for only if there are more than those that do.
    if known + 1 == given.len() {
        return Ok(());
    }
    let unknown = given.keys().find(|key| {
        let named = |fields: &[Field]| fields.iter().any(|field| field.name == **key);
        *key != "eventType" && !named(ENVELOPE) && !named(own)
    });
    let unknown = unknown.map_or("", String::as_str);
    fault(format!("{name} has no field {unknown:.100}"))
}

fn fault<T>(message: impl Into<String>) -> Result<T, SchemaFault> {
    Err(SchemaFault(message.into()))
}

/// Checks these fields, and says how many of them there are.
fn check_fields(
    given: &Map<String, Json>,
    fields: &'static [Field],
    of: &str,
) -> Result<usize, SchemaFault> {
    let mut found = 0;
    for field in fields {
        match given.get(field.name) {
            None if field.required => return fault(format!("{of} needs {}", field.name)),
            None => {}
            Some(value) => {
                check_value(value, field)?;
                found += 1;
            }
        }
    }
    Ok(found)
}

fn check_closed(value: &Json, fields: &'static [Field], of: &str) -> Result<(), SchemaFault> {
    let Json::Object(given) = value else {
        return fault(format!("{of} must be an object"));
    };
    let unknown = given
        .keys()
        .find(|key| fields.iter().all(|field| field.name != **key));
    if let Some(unknown) = unknown {
        return fault(format!("{of} has no field {unknown:.100}"));
    }
    check_fields(given, fields, of).map(|_| ())
}

fn check_value(value: &Json, field: &Field) -> Result<(), SchemaFault> {
    let text = value.as_str();
    let fits = match field.shape {
        Shape::Word(word) => text == Some(word),
        Shape::Words(words) => text.is_some_and(|text| words.contains(&text)),
        Shape::Text => text.is_some(),
        Shape::Uuid => text.is_some_and(is_uuid),
        Shape::RunId => text.is_some_and(is_run_id),
        Shape::Hash => text.is_some_and(is_hash),
        Shape::Moment => text.is_some_and(|text| Time::from_rfc3339(text).is_some()),
        Shape::Uri => text.is_some_and(is_uri),
        Shape::Version => text.is_some_and(is_version),
        Shape::Number(least) => value.as_u64().is_some_and(|number| number >= least),
        Shape::Flag => value.is_boolean(),
        Shape::Texts => value
            .as_array()
            .is_some_and(|list| list.iter().all(Json::is_string)),
        Shape::Object(fields) => return check_closed(value, fields, field.name),
        Shape::Objects(fields) => {
            let Json::Array(list) = value else {
                return fault(format!("{} must be a list", field.name));
            };
            return list
                .iter()
                .try_for_each(|value| check_closed(value, fields, field.name));
        }
    };
    if fits {
        return Ok(());
    }
    fault(format!(
        "{} does not fit: {:.200}",
        field.name,
        value.to_string()
    ))
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

pub(super) fn is_run_id(text: &str) -> bool {
    text.strip_prefix("run_").is_some_and(|rest| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        !rest.is_empty() && rest.bytes().all(allowed)
    })
}

/// 64 lower-case hex digits.
pub(crate) fn is_hash(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// A major and a minor number, such as `v1.2`.
pub(crate) fn is_version(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.strip_prefix('v')
        .and_then(|rest| rest.split_once('.'))
        .is_some_and(|(major, minor)| digits(major) && digits(minor))
}

/// A scheme, a colon, and only characters that a URI may have.
pub(crate) fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        && rest.bytes().all(|byte| is_uri_byte(byte) || byte == b'#')
        && rest.bytes().filter(|byte| *byte == b'#').count() <= 1
        && escapes_are_whole(rest)
}

/// Whether a byte may stand in a URI behind its scheme.
pub(crate) fn is_uri_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?@!$&'()*+,;=%".contains(&byte)
}

fn escapes_are_whole(text: &str) -> bool {
    text.split('%')
        .skip(1)
        .all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}
