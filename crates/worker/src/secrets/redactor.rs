//! Takes secret values out of text: as they are, and in the forms in which programs print them.
//!
//! Values are looked for, not keys: whatever a field is called, the secret in it does not get out.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value as Json};

/// What stands in a secret's place.
pub const MASK: &str = "***";

/// Shorter texts are in too many words.
const SHORTEST: usize = 4;

/// Fields of a credential that say where and as whom, not with what. Hiding `localhost` or `bearer`
/// would make logs unreadable and results wrong.
const PLAIN_FIELDS: [&str; 16] = [
    "type", "kind", "provider", "scheme", "host", "hostname", "port", "database", "dbname", "db",
    "user", "username", "login", "region", "schema", "sslmode",
];

/// Knows the secret values that were seen, and takes them out of text. Cheap to clone; all clones
/// know the same.
#[derive(Clone, Default)]
pub struct Redactor {
    inner: Arc<RedactorState>,
}

#[derive(Default)]
struct RedactorState {
    /// Read on every line of a log, before the lock.
    knows_any: AtomicBool,
    known: RwLock<KnownSecrets>,
}

#[derive(Default)]
struct KnownSecrets {
    forms: BTreeSet<String>,
    matcher: Option<Arc<AhoCorasick>>,
}

/// How many forms it knows, never which.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.inner.known.read();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Redactor")
            .field("forms", &known.forms.len())
            .finish_non_exhaustive()
    }
}

impl Redactor {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new() -> Redactor {
        Redactor::default()
    }

    /// Remembers a secret text.
    pub fn add(&self, secret: &str) {
        self.learn(forms_of(secret));
    }

    /// Remembers every text below a secret value, but for the fields of a credential that say where
    /// and as whom.
    pub fn add_value(&self, secret: &Json) {
        let mut forms = BTreeSet::new();
        collect(secret, &mut forms);
        self.learn(forms);
    }

    fn learn(&self, forms: BTreeSet<String>) {
        let known = self.inner.known.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        let before = known.forms.len();
        known.forms.extend(forms);
        if known.forms.len() == before {
            return;
        }
        match AhoCorasick::new(&known.forms) {
            Ok(matcher) => known.matcher = Some(Arc::new(matcher)),
            // A secret has at most 64 KiB, so this takes thousands of them; those before still hold.
            Err(error) => tracing::error!(%error, "secrets are too large to be searched for"),
        }
        self.inner.knows_any.store(true, Ordering::Release);
    }

    fn matcher(&self) -> Option<Arc<AhoCorasick>> {
        if !self.inner.knows_any.load(Ordering::Acquire) {
            return None;
        }
        let known = self.inner.known.read();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        known.matcher.clone()
    }

    /// The text without secrets.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.matcher() {
            Some(matcher) => masked(&matcher, text),
            None => Cow::Borrowed(text),
        }
    }

    /// Takes secrets out of every text below a value, out of names of fields, and out of numbers
    /// that are a secret as a whole.
    pub fn json(&self, value: &mut Json) {
        if let Some(matcher) = self.matcher() {
            mask_value(&matcher, value);
        }
    }
}

fn mask_value(matcher: &AhoCorasick, value: &mut Json) {
    match value {
        Json::Null | Json::Bool(_) => {}
        Json::Number(number) => {
            if masked(matcher, &number.to_string()) == MASK {
                *value = MASK.into();
            }
        }
        Json::String(text) => {
            if let Cow::Owned(clean) = masked(matcher, text) {
                *text = clean;
            }
        }
        Json::Array(items) => {
            for item in items {
                mask_value(matcher, item);
            }
        }
        Json::Object(fields) => {
            for field in fields.values_mut() {
                mask_value(matcher, field);
            }
            if fields.keys().any(|name| matcher.is_match(name)) {
                let clean: Map<String, Json> = std::mem::take(fields)
                    .into_iter()
                    .map(|(name, field)| (masked(matcher, &name).into_owned(), field))
                    .collect();
                *fields = clean;
            }
        }
    }
}

/// Secrets may overlap in a text, so all matches are looked at and joined.
fn masked<'a>(matcher: &AhoCorasick, text: &'a str) -> Cow<'a, str> {
    let mut spans: Vec<(usize, usize)> = matcher
        .find_overlapping_iter(text)
        .map(|found| (found.start(), found.end()))
        .collect();
    if spans.is_empty() {
        return Cow::Borrowed(text);
    }
    spans.sort_unstable();
    let mut clean = String::with_capacity(text.len());
    let mut done = 0;
    for (start, end) in spans {
        if start >= done {
            clean.push_str(&text[done..start]);
            // Two that touch are one.
            if start > done || done == 0 {
                clean.push_str(MASK);
            }
        }
        done = done.max(end);
    }
    clean.push_str(&text[done..]);
    Cow::Owned(clean)
}

fn collect(secret: &Json, forms: &mut BTreeSet<String>) {
    match secret {
        Json::String(text) => forms.extend(forms_of(text)),
        Json::Array(items) => items.iter().for_each(|item| collect(item, forms)),
        Json::Object(fields) => {
            for (name, field) in fields {
                let is_plain = PLAIN_FIELDS.contains(&name.to_ascii_lowercase().as_str());
                if !is_plain {
                    collect(field, forms);
                }
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// What to look for: the secret and each of its lines, and each of these as programs write them.
fn forms_of(secret: &str) -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    let lines = secret.lines().map(str::trim);
    for text in lines.chain([secret, secret.trim()]) {
        if text.chars().count() >= SHORTEST {
            forms.insert(text.to_owned());
            let escaped = json_escaped(text);
            forms.insert(ascii_only(&escaped));
            forms.insert(escaped);
            forms.extend(url_encoded(text));
            forms.extend(base64_forms(text.as_bytes()));
        }
    }
    forms
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

fn url_encoded(text: &str) -> [String; 4] {
    let (mut upper, mut lower) = (String::new(), String::new());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
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

/// The secret in base64, alone or inside something longer, such as `user:secret`. What stands before
/// it shifts it by none, one or two bytes; the characters that it shares with its neighbours are
/// left out.
fn base64_forms(secret: &[u8]) -> Vec<String> {
    let mut forms = vec![
        STANDARD_NO_PAD.encode(secret),
        URL_SAFE_NO_PAD.encode(secret),
    ];
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
