//! A message of another system: a CloudEvent in either content mode, or anything else with a body.

use serde_json::{Map, Value as Json};
use sha2::{Digest as _, Sha256};
use stepwell_kernel::keys;

use crate::source::Received;

/// Headers of a message, as the broker has them.
pub(crate) type Headers = Vec<(String, String)>;

/// What names of headers begin with that are attributes of a CloudEvent.
const PREFIXES: &[&str] = &["ce-", "ce_", "cloudevents:", "cloudevents_"];
/// The longest id that is taken as it is.
const MAX_ID: usize = 200;

/// A message that was read. `place` names the message in its broker, and is its id if the sender gave none; `content_type`
/// and `headers` are those of the broker.
pub(crate) fn message(
    place: String,
    own_id: Option<&str>,
    content_type: Option<&str>,
    headers: &Headers,
    body: Vec<u8>,
) -> Received {
    let mut attributes = Map::new();
    for (name, value) in headers {
        let small = name.to_ascii_lowercase();
        let attribute = PREFIXES.iter().find_map(|it| small.strip_prefix(it));
        let name = attribute.map_or(name.as_str(), |it| it);
        // Attributes come first: a header of the same name does not replace one.
        if attribute.is_some() || !attributes.contains_key(name) {
            attributes.insert(name.to_owned(), unescaped(value).into());
        }
    }
    let content_type = content_type.map(str::to_owned).or_else(|| {
        let of_type = headers
            .iter()
            .find(|it| it.0.eq_ignore_ascii_case("content-type"));
        of_type.map(|it| it.1.clone())
    });
    let is_structured =
        content_type.is_some_and(|it| it.starts_with("application/cloudevents+json"));
    let payload = match std::str::from_utf8(&body) {
        Err(_) => Err("the body is neither JSON nor text".to_owned()),
        Ok(text) => match serde_json::from_str::<Json>(text) {
            Ok(Json::Object(mut event)) if is_structured || is_event(&event) => {
                let data = event.remove("data").unwrap_or(Json::Null);
                attributes.extend(event);
                Ok(data)
            }
            Ok(_) if is_structured => Err("the body is not a CloudEvent".to_owned()),
            Ok(value) => Ok(value),
            Err(_) if is_structured => Err("the body is not a CloudEvent".to_owned()),
            Err(_) => Ok(Json::String(text.to_owned())),
        },
    };
    let text = |name: &str| attributes.get(name).and_then(Json::as_str);
    let is_cloud_event = text("specversion").is_some();
    let id = match (is_cloud_event, text("id"), text("source")) {
        // Together they are unique.
        (true, Some(id), Some(source)) => good_id(&format!("{source}#{id}")),
        (true, Some(id), None) => good_id(id),
        _ => good_id(own_id.filter(|it| !it.is_empty()).unwrap_or(&place)),
    };
    Received {
        id,
        place,
        payload,
        attributes,
        body,
    }
}

/// Whether a body is a CloudEvent although no header says so: senders to Redis have no headers.
fn is_event(body: &Map<String, Json>) -> bool {
    let is_text = |name: &str| body.get(name).is_some_and(Json::is_string);
    is_text("specversion") && is_text("id") && is_text("source") && is_text("type")
}

/// An id that the inbox can have: as it is, or its hash.
fn good_id(id: &str) -> String {
    let fits = (1..=MAX_ID).contains(&id.len()) && !id.contains('|');
    match fits && !id.chars().any(char::is_control) {
        true => id.to_owned(),
        false => keys::hex(&Sha256::digest(id.as_bytes())),
    }
}

/// A value of a header whose characters may be written as `%XX`; a value that is not written so stays as it is.
fn unescaped(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = |it: u8| char::from(it).to_digit(16);
        match (*first, tail) {
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
                    rest = after;
                }
                _ => return value.to_owned(),
            },
            (b'%', _) => return value.to_owned(),
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| value.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        let pair = |it: &(&str, &str)| (it.0.to_owned(), it.1.to_owned());
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn both_content_modes_are_understood() {
        let structured =
            br#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1}}"#;
        let ways = [
            message(
                "p".into(),
                None,
                Some("application/cloudevents+json"),
                &headers(&[]),
                structured.to_vec(),
            ),
            message("p".into(), None, None, &headers(&[]), structured.to_vec()),
            message(
                "p".into(),
                None,
                None,
                &headers(&[
                    ("ce-specversion", "1.0"),
                    ("ce-id", "1"),
                    ("ce-source", "/s"),
                    ("ce-type", "t"),
                ]),
                br#"{"a":1}"#.to_vec(),
            ),
            message(
                "p".into(),
                None,
                None,
                &headers(&[
                    ("cloudEvents_specversion", "1.0"),
                    ("cloudEvents_id", "1"),
                    ("cloudEvents_source", "%2Fs"),
                    ("cloudEvents_type", "t"),
                ]),
                br#"{"a":1}"#.to_vec(),
            ),
        ];
        for it in ways {
            assert_eq!(it.id, "/s#1");
            assert_eq!(it.payload, Ok(json!({"a": 1})));
            assert_eq!(it.attributes["type"], json!("t"));
        }
    }

    #[test]
    fn other_messages_have_the_id_of_the_sender_or_their_place() {
        let plain = message("q/7".into(), None, None, &headers(&[]), b"hello".to_vec());
        assert_eq!(
            (plain.id.as_str(), plain.payload),
            ("q/7", Ok(json!("hello")))
        );
        let own = message(
            "q/7".into(),
            Some("m1"),
            None,
            &headers(&[]),
            b"[1]".to_vec(),
        );
        assert_eq!((own.id.as_str(), own.payload), ("m1", Ok(json!([1]))));
        let odd = message("q".into(), Some("a|b"), None, &headers(&[]), b"1".to_vec());
        assert_eq!(
            odd.id.len(),
            64,
            "an id that the inbox cannot have is hashed"
        );
    }

    #[test]
    fn a_body_that_cannot_be_read_is_said_so() {
        let binary = message("p".into(), None, None, &headers(&[]), vec![0xff, 0xfe]);
        assert!(binary.payload.is_err());
        let cut = message(
            "p".into(),
            None,
            Some("application/cloudevents+json"),
            &headers(&[]),
            b"{".to_vec(),
        );
        assert!(cut.payload.is_err());
    }
}
