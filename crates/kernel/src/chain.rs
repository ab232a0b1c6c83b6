//! The hash chain: each record carries the hash of the one before it over both its parts, so a log
//! that was changed anywhere no longer verifies.
//!
//! The hash is SHA-256 over the canonical JSON (RFC 8785) of `{contract, ext, prevHash}`. That form
//! writes every number as a double; integers that a double cannot hold are therefore given once more
//! in the member `exact`, as text by JSON pointer. It is absent where there are none, so any RFC 8785
//! tool can check an ordinary log.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use crate::canonical::{self, LARGEST_EXACT};
use crate::contract::Record;
use crate::keys;

/// What the first record names as the hash before it.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// What is wrong with a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainFaultKind {
    /// A record is not what was hashed.
    HashMismatch,
    /// A record does not continue the one before it.
    Break,
    /// Sequence numbers are missing, or not in order.
    Gap,
    /// A record belongs to another run.
    Foreign,
}

/// Where a chain is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainFault {
    /// The first sequence number that is not as it should be.
    pub seq: u64,
    /// What is wrong there.
    pub kind: ChainFaultKind,
}

impl fmt::Display for ChainFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ChainFaultKind::HashMismatch => "the record is not what was hashed",
            ChainFaultKind::Break => "the record does not continue the one before it",
            ChainFaultKind::Gap => "the record is missing or out of order",
            ChainFaultKind::Foreign => "the record belongs to another run",
        };
        write!(f, "event {}: {what}", self.seq)
    }
}

impl std::error::Error for ChainFault {}

/// The end of a chain. Kept elsewhere, it also shows that a log was cut short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// The last sequence number; zero for an empty log.
    pub seq: u64,
    /// The hash of the last record, lower-case hex; the genesis hash for an empty log.
    pub hash: String,
}

impl ChainHead {
    /// The head of an empty log.
    #[must_use]
    pub fn genesis() -> ChainHead {
        ChainHead {
            seq: 0,
            hash: GENESIS.to_owned(),
        }
    }
}

/// The hash of a record.
#[must_use]
pub fn link(contract: &Json, ext: &Json, prev_hash: &str) -> String {
    keys::hex(&link_bytes(contract, ext, prev_hash))
}

/// The bytes of the hash of a record. The recorder hashes what it writes, and comes here only for records
/// with integers that a double cannot hold.
#[must_use]
pub fn link_bytes(contract: &Json, ext: &Json, prev_hash: &str) -> [u8; 32] {
    let mut bytes = Vec::with_capacity(2048);
    bytes.extend_from_slice(b"{\"contract\":");
    canonical::write(contract, &mut bytes);
    let mut exact = BTreeMap::new();
    for (name, part) in [("/contract", contract), ("/ext", ext)] {
        if has_large_integer(part) {
            large_integers(part, name, &mut exact);
        }
    }
    if !exact.is_empty() {
        bytes.extend_from_slice(b",\"exact\":");
        canonical::write(&exact.into_iter().collect(), &mut bytes);
    }
    bytes.extend_from_slice(b",\"ext\":");
    canonical::write(ext, &mut bytes);
    bytes.extend_from_slice(b",\"prevHash\":");
    canonical::write_text(prev_hash, &mut bytes);
    bytes.push(b'}');
    Sha256::digest(bytes).into()
}

/// Integers that canonical JSON would round.
fn is_large(number: &serde_json::Number) -> bool {
    number
        .as_u64()
        .or_else(|| number.as_i64().map(i64::unsigned_abs))
        .is_some_and(|size| size > LARGEST_EXACT)
}

fn has_large_integer(value: &Json) -> bool {
    match value {
        Json::Number(number) => is_large(number),
        Json::Array(list) => list.iter().any(has_large_integer),
        Json::Object(map) => map.values().any(has_large_integer),
        Json::Null | Json::Bool(_) | Json::String(_) => false,
    }
}

fn large_integers(value: &Json, pointer: &str, found: &mut BTreeMap<String, Json>) {
    match value {
        Json::Number(number) if is_large(number) => {
            found.insert(pointer.to_owned(), number.to_string().into());
        }
        Json::Array(list) => {
            for (place, value) in list.iter().enumerate() {
                large_integers(value, &format!("{pointer}/{place}"), found);
            }
        }
        Json::Object(map) => {
            for (key, value) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                large_integers(value, &format!("{pointer}/{key}"), found);
            }
        }
        Json::Null | Json::Bool(_) | Json::String(_) | Json::Number(_) => {}
    }
}

/// Checks a whole log, from its first record on.
pub fn verify(records: &[Record]) -> Result<ChainHead, ChainFault> {
    verify_after(&ChainHead::genesis(), records)
}

/// Checks what follows a head that is known to be right.
pub fn verify_after(head: &ChainHead, records: &[Record]) -> Result<ChainHead, ChainFault> {
    let mut head = head.clone();
    let run_id = records.first().and_then(|it| it.contract.get("runId"));
    for record in records {
        let wanted = head.seq + 1;
        let fault = |kind| Err(ChainFault { seq: wanted, kind });
        if record.hash != link(&record.contract, &record.ext, &record.prev_hash) {
            return fault(ChainFaultKind::HashMismatch);
        }
        if record.contract.get("runSeq").and_then(Json::as_u64) != Some(wanted) {
            return fault(ChainFaultKind::Gap);
        }
        if record.prev_hash != head.hash {
            return fault(ChainFaultKind::Break);
        }
        if record.contract.get("runId") != run_id {
            return fault(ChainFaultKind::Foreign);
        }
        head = ChainHead {
            seq: wanted,
            hash: record.hash.clone(),
        };
    }
    Ok(head)
}
