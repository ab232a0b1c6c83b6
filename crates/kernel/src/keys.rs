//! Keys and ids derived by formula: idempotency keys of the contract, completion tokens, event ids.
//!
//! Nothing here draws randomness; a secret key arrives with the command that needs it.

use std::borrow::Cow;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::canonical::write_number;
use crate::event::EventType;
use crate::time::Time;

/// The secret that completion tokens are made with. Held by the engine, never logged.
#[derive(Clone)]
pub struct TokenKey(pub [u8; 32]);

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey(…)")
    }
}

/// Two lower-case hex digits for each byte.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len() * 2);
    write_hex(bytes, &mut out);
    // Digits are text.
    String::from_utf8(out).unwrap_or_default()
}

/// Appends two lower-case hex digits for each byte.
pub(crate) fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for part in bytes.chunks(32) {
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(part) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        out.extend_from_slice(&text[..part.len() * 2]);
    }
}

/// SHA-256 of a text, lower-case hex.
#[must_use]
pub fn sha256_hex(text: &str) -> String {
    sha256_of_bytes(text.as_bytes())
}

/// SHA-256 of bytes that may be no text, lower-case hex.
#[must_use]
pub fn sha256_of_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The contract's idempotency key: absent stepId is `RUN`, absent logicalAttemptId is 1.
///
/// Returns nothing if a part contains `|`, since two different events could then share a key.
#[must_use]
pub fn idempotency_key(
    run_id: &str,
    step_id: Option<&str>,
    logical: Option<u64>,
    event_type: &str,
    plan_version: &str,
) -> Option<String> {
    let step_id = step_id.unwrap_or("RUN");
    if [run_id, step_id, event_type, plan_version]
        .iter()
        .any(|part| part.contains('|'))
    {
        return None;
    }
    let mut text = Vec::new();
    write_preimage(
        [run_id, step_id, event_type, plan_version],
        logical.unwrap_or(1),
        &mut text,
    );
    Some(hex(&Sha256::digest(text)))
}

/// Appends the text that the idempotency key is the hash of: `runId|stepId|logical|eventType|planVersion`.
fn write_preimage(parts: [&str; 4], logical: u64, out: &mut Vec<u8>) {
    let [run_id, step_id, event_type, plan_version] = parts.map(str::as_bytes);
    let length = run_id.len() + step_id.len() + event_type.len() + plan_version.len();
    // Four separators and the longest number there is.
    out.reserve(length + 24);
    out.extend_from_slice(run_id);
    out.push(b'|');
    out.extend_from_slice(step_id);
    out.push(b'|');
    write_number(logical, out);
    out.push(b'|');
    out.extend_from_slice(event_type);
    out.push(b'|');
    out.extend_from_slice(plan_version);
}

/// Identifies an event within its run: a run has at most one event for each key. `ordinal` distinguishes events
/// that can happen more than once in an attempt (executions, waits, patches). The canonical events have the ordinal
/// zero, so their keys are exactly the keys of the contract.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventKey<'a> {
    /// The step, or the signal that a verdict is about; absent for the run itself.
    pub step_id: Option<Cow<'a, str>>,
    /// The logical attempt; for pauses their ordinal.
    pub logical: u64,
    pub event_type: EventType,
    /// Zero for canonical events.
    pub ordinal: u64,
}

impl EventKey<'_> {
    /// The idempotency key, lower-case hex.
    #[must_use]
    pub fn digest(&self, run_id: &str, plan_version: &str) -> String {
        hex(&self.hash(run_id, plan_version, &mut Vec::new()))
    }

    /// The bytes of the idempotency key. `text` is memory that is used for the preimage.
    pub(crate) fn hash(&self, run_id: &str, plan_version: &str, text: &mut Vec<u8>) -> [u8; 32] {
        text.clear();
        let step = self.step_id.as_deref().unwrap_or("RUN");
        let parts = [run_id, step, self.event_type.name(), plan_version];
        write_preimage(parts, self.logical, text);
        if self.ordinal > 0 {
            text.push(b'|');
            write_number(self.ordinal, text);
        }
        Sha256::digest(text).into()
    }

    /// The key without what all keys of a run share, as few bytes as possible: the step, then the type's
    /// number, attempt and ordinal. Two keys never have the same bytes, since a byte that no UTF-8 text
    /// has says where the step ends. The step comes first so that what a run records next is close to
    /// what it recorded last: a database then touches one page for it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let step = self.step_id.as_deref();
        let mut bytes = Vec::with_capacity(5 + step.map_or(0, str::len));
        bytes.push(u8::from(step.is_some()));
        bytes.extend_from_slice(step.unwrap_or_default().as_bytes());
        bytes.push(u8::MAX);
        bytes.push(self.event_type as u8);
        write_varint(self.logical, &mut bytes);
        write_varint(self.ordinal, &mut bytes);
        bytes
    }
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
fn write_varint(mut number: u64, bytes: &mut Vec<u8>) {
    while number > 127 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// The contract's key for a start request.
#[must_use]
pub fn request_key(
    tenant: &str,
    project: &str,
    environment: &str,
    plan_id: &str,
    plan_version: &str,
    request_id: &str,
) -> String {
    sha256_hex(
        &[
            tenant,
            project,
            environment,
            plan_id,
            plan_version,
            request_id,
        ]
        .join("|"),
    )
}

/// The opaque token a person needs to complete a waiting step: an HMAC over run, step and execution,
/// so it can be made again after a crash and need not be stored.
#[must_use]
pub fn completion_token(key: &TokenKey, run_id: &str, step_id: &str, execution: u32) -> String {
    // HMAC takes keys of any length, so this cannot fail.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&key.0) else {
        return String::new();
    };
    mac.update(format!("{run_id}|{step_id}|{execution}").as_bytes());
    hex(&mac.finalize().into_bytes())
}

/// An event's id: a UUID (version 4 in form) derived from the run and the sequence number, so that
/// replaying a log gives the same ids.
#[must_use]
pub fn event_id(run_id: &str, seq: u64) -> String {
    uuid(&event_id_bytes(run_id, seq, &mut Vec::new()))
}

/// The bytes of an event's id. `text` is memory that is used for what is hashed.
pub(crate) fn event_id_bytes(run_id: &str, seq: u64, text: &mut Vec<u8>) -> [u8; 16] {
    text.clear();
    text.extend_from_slice(run_id.as_bytes());
    text.push(b'#');
    write_number(seq, text);
    let digest = Sha256::digest(text);
    let mut bytes = [0u8; 16];
    bytes.copy_from_slice(&digest[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

/// A UUID as text.
#[must_use]
pub fn uuid(bytes: &[u8; 16]) -> String {
    let mut out = Vec::with_capacity(36);
    write_uuid(bytes, &mut out);
    // Digits are text.
    String::from_utf8(out).unwrap_or_default()
}

/// Appends a UUID as text.
pub(crate) fn write_uuid(bytes: &[u8; 16], out: &mut Vec<u8>) {
    for (place, part) in [(0, 4), (4, 6), (6, 8), (8, 10), (10, 16)] {
        if place > 0 {
            out.push(b'-');
        }
        write_hex(&bytes[place..part], out);
    }
}

/// The run's id as a 63-bit integer: playbooks splice `execution_id` into SQL as a number.
#[must_use]
pub fn execution_id(run_id: &str) -> i64 {
    let digest = Sha256::digest(run_id.as_bytes());
    let mut bytes = [0u8; 8];
    bytes.copy_from_slice(&digest[..8]);
    (u64::from_be_bytes(bytes) >> 1) as i64
}

/// The key every attempt of a compensation carries.
#[must_use]
pub fn undo_key(run_id: &str, step_id: &str) -> String {
    format!("{run_id}:{step_id}:compensate")
}

/// The fencing token of a claim: when it was granted, in microseconds, and the sequence number of the event that granted
/// it, added up. In a run neither goes back and the second one rises, so the token of a later claim is always the greater
/// one, whatever the clocks do. Claims of different runs (a run that is repeated, a child that is called again) are in the
/// order of their times, as exact as the clocks of the servers. Below 2^53 until the year 2255, for readers whose numbers
/// are floats.
#[must_use]
pub fn fence(granted_at: Time, seq: u64) -> u64 {
    let millis = u64::try_from(granted_at.0).unwrap_or(0);
    millis.saturating_mul(1000).saturating_add(seq)
}

/// The key every attempt of a step carries, the same across retries and restarts.
#[must_use]
pub fn step_key(run_id: &str, step_id: &str, logical: u32) -> String {
    format!("{run_id}:{step_id}:{logical}")
}
