//! The forms in which programs print a secret text: escaped for JSON, URLs, shells, SQL, XML and source
//! code, in hexadecimal, and in base64.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value as Json;

/// Shorter texts are in too many words: to hide them would shred every log.
pub(super) const SHORTEST: usize = 4;

/// Programs break base64 after so many characters: `base64`, and everything that writes PEM.
const BROKEN_AFTER: [usize; 2] = [76, 64];

/// A shorter piece of base64 is in too many words.
const SHORTEST_PIECE: usize = 8;

/// What is not encoded by: everything strict, Python's `quote`, JavaScript's `encodeURIComponent`, the
/// path of an address.
const UNENCODED: [&[u8]; 4] = [b"-_.~", b"-_.~/", b"-_.~!'()*", b"-_.~!'()*$&+,;=:@/"];

/// Adds what to look for instead of a text. Texts that are too short have no forms.
pub(super) fn add(text: &str, forms: &mut BTreeSet<String>) {
    if text.chars().count() < SHORTEST {
        return;
    }
    forms.insert(text.to_owned());
    let escaped = json_escaped(text);
    forms.insert(ascii_only(&escaped));
    forms.insert(json_escaped(&escaped));
    forms.insert(escaped.replace('/', "\\/"));
    forms.insert(escaped);
    for unencoded in UNENCODED {
        forms.extend(url_encoded(text, unencoded));
    }
    forms.extend(quoted(text));
    forms.extend(base64(text.as_bytes()));
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    forms.insert(hex.to_uppercase());
    forms.insert(hex);
}

fn json_escaped(text: &str) -> String {
    let quoted = Json::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// JSON as programs write it that keep to ASCII, which is what Python does unless told otherwise.
fn ascii_only(escaped: &str) -> String {
    let mut ascii = String::with_capacity(escaped.len());
    for c in escaped.chars() {
        match c.is_ascii() {
            true => ascii.push(c),
            false => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    ascii.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    ascii
}

fn url_encoded(text: &str, unencoded: &[u8]) -> [String; 4] {
    let (mut upper, mut lower) = (String::new(), String::new());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || unencoded.contains(&byte) {
            upper.push(byte.into());
            lower.push(byte.into());
        } else {
            upper.push_str(&format!("%{byte:02X}"));
            lower.push_str(&format!("%{byte:02x}"));
        }
    }
    // Forms write a space in a way of their own.
    let forms = [&upper, &lower].map(|it| it.replace("%20", "+"));
    let [upper_form, lower_form] = forms;
    [upper, lower, upper_form, lower_form]
}

/// As shells quote it in single quotes, in double quotes and with backslashes; as Python and SQL quote
/// it; and as XML escapes it. Without the quotes around it.
fn quoted(text: &str) -> [String; 8] {
    let escape = |is_special: &dyn Fn(char) -> bool| {
        let mut escaped = String::with_capacity(text.len());
        for c in text.chars() {
            if is_special(c) {
                escaped.push('\\');
            }
            escaped.push(c);
        }
        escaped
    };
    let xml = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    [
        text.replace('\'', r"'\''"),
        text.replace('\'', r#"'"'"'"#),
        escape(&|c| "\"\\$`".contains(c)),
        // `printf %q` and `set -x` of bash.
        escape(&|c| c.is_ascii() && !c.is_ascii_alphanumeric() && !"-_./:=@%+,".contains(c)),
        escape(&|c| "'\\".contains(c)),
        text.replace('\'', "''"),
        xml.replace('"', "&quot;").replace('\'', "&#39;"),
        xml,
    ]
}

/// The secret in base64, alone or inside something longer, such as `user:secret`. What stands before
/// it shifts it by none, one or two bytes; the characters that it shares with its neighbours are
/// left out.
fn base64(secret: &[u8]) -> Vec<String> {
    let whole = STANDARD_NO_PAD.encode(secret);
    let mut forms = Vec::new();
    for length in BROKEN_AFTER {
        if whole.len() > length {
            let pieces = whole.as_bytes().chunks(length);
            let pieces = pieces.filter(|it| it.len() >= SHORTEST_PIECE);
            forms.extend(pieces.map(|it| String::from_utf8_lossy(it).into_owned()));
        }
    }
    forms.extend([whole, URL_SAFE_NO_PAD.encode(secret)]);
    // A shorter one would be in too many words.
    if secret.len() > 5 {
        for shift in 0..3 {
            let shifted = [&[0; 2][..shift], secret].concat();
            let own = (shift * 8).div_ceil(6)..shifted.len() * 8 / 6;
            forms.push(STANDARD_NO_PAD.encode(&shifted)[own.clone()].to_owned());
            forms.push(URL_SAFE_NO_PAD.encode(&shifted)[own].to_owned());
        }
    }
    forms
}
