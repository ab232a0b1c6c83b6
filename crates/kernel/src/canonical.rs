//! Canonical JSON (RFC 8785): of a tree here, of a type without a tree in `twin`. Every event is hashed,
//! so this is on the path of every step. Only the rare number goes the long way.

mod twin;

use serde_json::{Map, Value as Json};

pub(crate) use twin::{MemberStack, TwinSerializer};

/// Largest integer that is written as it is; beyond it canonical JSON writes what a double holds.
pub(crate) const LARGEST_EXACT: u64 = 1 << 53;

/// Appends the canonical form.
pub(crate) fn write(value: &Json, out: &mut Vec<u8>) {
    match value {
        Json::Null => out.extend_from_slice(b"null"),
        Json::Bool(true) => out.extend_from_slice(b"true"),
        Json::Bool(false) => out.extend_from_slice(b"false"),
        Json::String(text) => write_text(text, out),
        Json::Number(number) => {
            if let Some(size) = number.as_u64().filter(|size| *size <= LARGEST_EXACT) {
                write_number(size, out);
            } else if let Some(size) = number
                .as_i64()
                .map(i64::unsigned_abs)
                .filter(|size| *size <= LARGEST_EXACT)
            {
                out.push(b'-');
                write_number(size, out);
            } else {
                // A JSON number is finite, so it has a canonical form.
                let form = serde_json_canonicalizer::to_vec(number);
                out.extend_from_slice(&form.unwrap_or_default());
            }
        }
        Json::Array(list) => {
            out.push(b'[');
            for (place, value) in list.iter().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                write(value, out);
            }
            out.push(b']');
        }
        Json::Object(map) => write_map(map, out),
    }
}

/// Appends a number in decimal.
pub(crate) fn write_number(mut number: u64, out: &mut Vec<u8>) {
    if number < 10 {
        // Most numbers of an event are attempts and visits.
        out.push(b'0' + number as u8);
        return;
    }
    let mut digits = [0; 20];
    let mut first = digits.len();
    while number > 0 {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    out.extend_from_slice(&digits[first..]);
}

fn write_map(map: &Map<String, Json>, out: &mut Vec<u8>) {
    // By UTF-16 code units, which for the usual keys is the order they are in already.
    if map.keys().is_sorted() && map.keys().all(|key| key.is_ascii()) {
        write_members(map, out);
    } else {
        let mut entries: Vec<(&String, &Json)> = map.iter().collect();
        entries.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        write_members(entries, out);
    }
}

fn write_members<'a>(entries: impl IntoIterator<Item = (&'a String, &'a Json)>, out: &mut Vec<u8>) {
    out.push(b'{');
    for (place, (key, value)) in entries.into_iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_text(key, out);
        out.push(b':');
        write(value, out);
    }
    out.push(b'}');
}

/// Appends a text as JSON.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    // Without a branch for each byte, so that many are looked at at a time.
    let any = bytes
        .iter()
        .fold(false, |any, byte| any | is_escaped(*byte));
    match any {
        true => write_escaped(bytes, out),
        false => out.extend_from_slice(bytes),
    }
    out.push(b'"');
}

fn is_escaped(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

fn write_escaped(mut bytes: &[u8], out: &mut Vec<u8>) {
    while let Some(at) = bytes.iter().position(|byte| is_escaped(*byte)) {
        out.extend_from_slice(&bytes[..at]);
        match bytes[at] {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            control @ 0x00..0x20 => {
                out.extend_from_slice(b"\\u00");
                crate::keys::write_hex(&[control], out);
            }
            quoted => out.extend_from_slice(&[b'\\', quoted]),
        }
        bytes = &bytes[at + 1..];
    }
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) fn json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            any::<u64>().prop_map(Json::from),
            (-1000..1000i64).prop_map(Json::from),
            any::<f64>().prop_map(Json::from),
            any::<String>().prop_map(Json::from),
            "[\\x00-\\x7f]{0,20}".prop_map(Json::from),
        ];
        let key = prop_oneof!["[a-z]{0,4}", any::<String>(), "[\u{e000}\u{1f600}é]{1,2}"];
        leaf.prop_recursive(4, 64, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
                prop::collection::vec((key.clone(), inner), 0..6)
                    .prop_map(|fields| Json::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_value_has_the_form_that_the_standard_gives_it(value in json()) {
            let mut ours = Vec::new();
            write(&value, &mut ours);
            let theirs = serde_json_canonicalizer::to_vec(&value).unwrap();
            prop_assert_eq!(String::from_utf8(ours), String::from_utf8(theirs));
        }
    }
}
