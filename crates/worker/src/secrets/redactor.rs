//! Takes secret values out of text: as they are, and in the forms in which programs print them. Which parts
//! of a value are secret is in `parts.rs`, the forms are in `forms.rs`.
//!
//! Values are looked for, not keys: whatever a field is called, the secret in it does not get out.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use aho_corasick::AhoCorasick;
use serde_json::{Map, Value as Json};

use super::{forms, parts};

/// What stands in a secret's place.
pub const MASK: &str = "***";

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
    /// The secret texts whose forms are known.
    texts: BTreeSet<String>,
    forms: BTreeSet<String>,
    /// Searches for all forms. Absent from the time that a form is added until the next search.
    matcher: Option<Arc<AhoCorasick>>,
    /// The length of the longest form, in bytes.
    longest: usize,
}

/// How many forms it knows, never which.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("forms", &self.read().forms.len())
            .finish_non_exhaustive()
    }
}

impl Redactor {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new() -> Redactor {
        Redactor::default()
    }

    /// The one that knows every secret that any redactor of this process has seen. What is not about one
    /// run goes through it: log lines of the process, and messages of panics.
    #[must_use]
    pub fn of_process() -> &'static Redactor {
        static ALL: OnceLock<Redactor> = OnceLock::new();
        ALL.get_or_init(Redactor::new)
    }

    /// Remembers a secret text, and the parts of it that are secret by themselves.
    pub fn add(&self, secret: &str) {
        self.learn(parts::of_text(secret));
    }

    /// Remembers every text below a secret value, but for the fields of a credential that say where
    /// and as whom.
    pub fn add_value(&self, secret: &Json) {
        self.learn(parts::of_value(secret));
    }

    pub(crate) fn is_same(&self, other: &Redactor) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Remembers all that another redactor knows now.
    pub(crate) fn absorb(&self, other: &Redactor) {
        if !self.is_same(other) {
            let (forms, texts) = {
                let known = other.read();
                (known.forms.clone(), known.texts.clone())
            };
            self.keep(&forms);
            self.write().texts.extend(texts);
        }
    }

    fn learn(&self, texts: BTreeSet<String>) {
        // Each step resolves its secrets again, and most are known.
        if texts.is_subset(&self.read().texts) {
            return;
        }
        let mut found = BTreeSet::new();
        for text in &texts {
            forms::add(text, &mut found);
        }
        self.keep(&found);
        Redactor::of_process().keep(&found);
        self.write().texts.extend(texts);
    }

    fn keep(&self, forms: &BTreeSet<String>) {
        if forms.is_empty() || forms.is_subset(&self.read().forms) {
            return;
        }
        let mut known = self.write();
        known.longest = forms
            .iter()
            .map(String::len)
            .fold(known.longest, usize::max);
        known.forms.extend(forms.iter().cloned());
        known.matcher = None;
        self.inner.knows_any.store(true, Ordering::Release);
    }

    fn read(&self) -> RwLockReadGuard<'_, KnownSecrets> {
        let known = self.inner.known.read();
        known.unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, KnownSecrets> {
        let known = self.inner.known.write();
        known.unwrap_or_else(PoisonError::into_inner)
    }

    fn matcher(&self) -> Option<Arc<AhoCorasick>> {
        if !self.inner.knows_any.load(Ordering::Acquire) {
            return None;
        }
        if let Some(matcher) = &self.read().matcher {
            return Some(Arc::clone(matcher));
        }
        let mut known = self.write();
        if known.matcher.is_none() {
            // A secret has at most 64 KiB, so it takes many thousands of them to fail. Nobody is told of it
            // from here: the line would be searched for secrets too, and wait for this lock.
            known.matcher = AhoCorasick::new(&known.forms).ok().map(Arc::new);
        }
        known.matcher.clone()
    }

    /// The length of the longest form that it knows, in bytes: a text that is cut must be searched so far
    /// beyond the cut.
    #[must_use]
    pub fn longest(&self) -> usize {
        match self.inner.knows_any.load(Ordering::Acquire) {
            true => self.read().longest,
            false => 0,
        }
    }

    /// Whether a text contains a secret.
    #[must_use]
    pub fn finds(&self, text: &str) -> bool {
        self.matcher().is_some_and(|it| it.is_match(text))
    }

    /// A part of the bytes, without the secrets that are in it or reach into it. So a text can be cut
    /// anywhere, if [`Redactor::longest`] bytes before and after the part are given too.
    #[must_use]
    pub fn window(&self, bytes: &[u8], part: Range<usize>) -> Vec<u8> {
        let Some(matcher) = self.matcher() else {
            return bytes[part].to_vec();
        };
        let mut clean = Vec::with_capacity(part.len());
        let mut done = part.start;
        for span in spans(&matcher, bytes) {
            if span.end <= part.start || span.start >= part.end {
                continue;
            }
            clean.extend_from_slice(&bytes[done..span.start.max(done)]);
            clean.extend_from_slice(MASK.as_bytes());
            done = span.end.min(part.end);
        }
        clean.extend_from_slice(&bytes[done..part.end]);
        clean
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

fn masked<'a>(matcher: &AhoCorasick, text: &'a str) -> Cow<'a, str> {
    let spans = spans(matcher, text.as_bytes());
    if spans.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut done = 0;
    for span in spans {
        clean.push_str(&text[done..span.start]);
        clean.push_str(MASK);
        done = span.end;
    }
    clean.push_str(&text[done..]);
    Cow::Owned(clean)
}

/// Where the secrets are, in order. Secrets may overlap in a text, so all matches are looked at; those
/// that overlap or touch are one.
fn spans(matcher: &AhoCorasick, bytes: &[u8]) -> Vec<Range<usize>> {
    let found = matcher.find_overlapping_iter(bytes);
    let mut all: Vec<Range<usize>> = found.map(|it| it.start()..it.end()).collect();
    all.sort_unstable_by_key(|it| it.start);
    let mut joined: Vec<Range<usize>> = Vec::new();
    for span in all {
        match joined.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => joined.push(span),
        }
    }
    joined
}
