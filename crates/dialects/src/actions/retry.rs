//! `retryPolicy`: its fields, its defaults for actions and for compensations, and its error words.

use serde_json::{Value as Json, json};
use stepwell_kernel::plan::{Backoff, BackoffKind, ErrorClass, RetryPolicy};

use super::fields;
use crate::codes;

use crate::problem::Problems;
use crate::reader::Field;
use crate::shape::KnownFields;
use crate::words::{list, nearest, quote};

/// The values of `retry` for fields that the file does not give.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryDefaults {
    attempts: u32,
    initial_ms: u64,
    multiplier: f64,
    max_ms: u64,
    fields: &'static KnownFields,
}

pub(super) const ACTION: RetryDefaults = RetryDefaults {
    attempts: 3,
    initial_ms: 1000,
    multiplier: 2.0,
    max_ms: 30_000,
    fields: &fields::RETRY,
};

/// The defaults for the undo of an action; [`ACTION`] has the defaults for its work.
pub(super) const HOOK: RetryDefaults = RetryDefaults {
    attempts: 2,
    initial_ms: 1000,
    multiplier: 2.0,
    max_ms: 10_000,
    fields: &fields::COMPENSATION_RETRY,
};

/// The classes that are retried if the file has no `retryableErrors`.
const RETRYABLE: [ErrorClass; 5] = [
    ErrorClass::Timeout,
    ErrorClass::RateLimit,
    ErrorClass::Transient,
    ErrorClass::Transport,
    ErrorClass::Unknown,
];

/// The words for errors. Validation, policy, auth and conflict are no words here: they must never
/// be retried.
const WORDS: [(&str, ErrorClass); 8] = [
    ("timeout", ErrorClass::Timeout),
    ("rate_limit", ErrorClass::RateLimit),
    ("transient", ErrorClass::Transient),
    ("5xx", ErrorClass::Transient),
    ("transport", ErrorClass::Transport),
    ("agent", ErrorClass::Agent),
    ("external", ErrorClass::External),
    ("unknown", ErrorClass::Unknown),
];

/// The JSON Schema of `retryableErrors`.
pub(super) fn schema() -> Json {
    json!({
        "description": "Only these classes of errors are retried.",
        "type": "array",
        "items": { "enum": WORDS.map(|(word, _)| word) },
        "default": RETRYABLE.map(ErrorClass::name),
    })
}

/// Words for what the specification forbids to retry.
const NEVER: [&str; 4] = ["validation", "policy", "auth", "conflict"];

/// The policy with its defaults; what is wrong is reported and replaced by the default.
pub(super) fn read(
    field: Option<&Field<'_>>,
    defaults: RetryDefaults,
    p: &mut Problems,
) -> RetryPolicy {
    let mut retry = RetryPolicy {
        max_executions: defaults.attempts,
        backoff: Backoff {
            kind: BackoffKind::Exponential,
            initial_ms: defaults.initial_ms,
            multiplier: defaults.multiplier,
            max_ms: defaults.max_ms,
        },
        classes: RETRYABLE.to_vec(),
    };
    let Some(mut f) = field.and_then(|field| field.known(defaults.fields, p)) else {
        return retry;
    };
    let attempts = f.opt("maxAttempts", p).and_then(|v| v.whole(p));
    if let Some(attempts) = attempts.and_then(|n| u32::try_from(n).ok()) {
        retry.max_executions = attempts;
    }
    let initial = f.opt("initialBackoffMs", p);
    if let Some(millis) = initial.as_ref().and_then(|v| v.time(p)) {
        retry.backoff.initial_ms = millis;
    }
    if let Some(factor) = f
        .opt("backoffMultiplier", p)
        .and_then(|v| multiplier(&v, p))
    {
        retry.backoff.multiplier = factor;
    }
    if let Some(millis) = f.opt("maxBackoffMs", p).and_then(|v| v.time(p)) {
        retry.backoff.max_ms = millis;
    }
    if let Some(initial) = initial.filter(|_| retry.backoff.initial_ms > retry.backoff.max_ms) {
        p.warn(
            codes::BACKOFF_CAPPED,
            initial.span(),
            format!(
                "{} is longer than `maxBackoffMs`, so every wait is {} ms",
                initial.label, retry.backoff.max_ms
            ),
        )
        .help("raise `maxBackoffMs`, or lower `initialBackoffMs`");
    }
    if let Some(errors) = f.opt("retryableErrors", p) {
        retry.classes = classes(&errors, p);
    }
    f.finish(p);
    retry
}

fn multiplier(field: &Field<'_>, p: &mut Problems) -> Option<f64> {
    let factor = field.number(p)?;
    if (1.0..=100.0).contains(&factor) {
        return Some(factor);
    }
    let message = format!("must be from 1 to 100, but is {factor}");
    field
        .error(codes::FIELD_VALUE, &message, p)
        .help("write 1 for equal waits, 2 to double each wait");
    None
}

fn classes(field: &Field<'_>, p: &mut Problems) -> Vec<ErrorClass> {
    let mut classes = Vec::new();
    for item in field.list(p).unwrap_or_default() {
        let Some(word) = item.string(p) else { continue };
        match WORDS.iter().find(|(known, _)| *known == word) {
            Some((_, class)) if classes.contains(class) => {}
            Some((_, class)) => classes.push(*class),
            None => unknown(&item, word, p),
        }
    }
    classes
}

fn unknown(item: &Field<'_>, word: &str, p: &mut Problems) {
    if NEVER.contains(&word) {
        let message = format!("is {}, which is never retried", quote(word));
        item.error(codes::ERROR_CLASS_FINAL, &message, p)
            .help("remove it: a retry cannot fix a validation failure, a denial or a conflict");
        return;
    }
    let known: Vec<&str> = WORDS.iter().map(|(known, _)| *known).collect();
    let help = match nearest(word, &known) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => format!("the known classes are {}", list(&known)),
    };
    let message = format!("names no class of errors: {}", quote(word));
    item.error(codes::ERROR_CLASS_UNKNOWN, &message, p)
        .help(help);
}
