//! The time of an append that had to wait. Events are recorded with the time at which they were decided, and are
//! usually in the store a moment later. If the store was not there, `emittedAt` must still say when the events were
//! appended (contract, A.1): then it is set to the time of the attempt that succeeds, `occurredAt` says when the
//! events were decided, and the hashes are computed again. The engine folds the time of the decision, so that no
//! decision changes.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use stepwell_kernel::chain;
use stepwell_kernel::keys::hex;
use stepwell_kernel::time::Time;

use super::read::hashed_parts;
use super::{ChunkFault, DIGESTS};
use crate::store::{Chunk, CommitId, StoredChunk};

/// Sets `emittedAt` of all events of a chunk that is certainly not in the store. `before` is the hash of the event
/// before the chunk.
pub(crate) fn restamp(
    chunk: &mut Chunk,
    run_id: &str,
    plan_version: &str,
    before: &str,
    emitted: Time,
) -> Result<(), ChunkFault> {
    let mut stamped = StoredChunk {
        first: chunk.first,
        last: chunk.last,
        // Nobody looks at it.
        commit: CommitId {
            session: 0,
            number: 0,
        },
        codec: chunk.codec,
        body: stamp_body(&chunk.body, emitted)?,
        digests: std::mem::take(&mut chunk.digests),
    };
    let parts = hashed_parts(run_id, plan_version, &stamped);
    let mut hash = before.to_owned();
    if let Ok(parts) = &parts {
        let digests = stamped.digests.chunks_exact_mut(DIGESTS);
        for ((contract, ext), digests) in parts.iter().zip(digests) {
            let link = chain::link_bytes(contract, ext, &hash);
            hash = hex(&link);
            digests[DIGESTS - link.len()..].copy_from_slice(&link);
        }
    }
    chunk.digests = stamped.digests;
    parts?;
    chunk.body = stamped.body;
    Ok(())
}

/// The body with other times in the contract parts. The `ext` parts stay as they are, byte for byte.
fn stamp_body(body: &str, emitted: Time) -> Result<String, ChunkFault> {
    let mut rest = body;
    let mut out = String::with_capacity(body.len() + 128);
    token(&mut rest, '[', &mut out)?;
    loop {
        token(&mut rest, '[', &mut out)?;
        let (at, text) = value::<Time>(&mut rest)?;
        out.push_str(text);
        token(&mut rest, ',', &mut out)?;
        let (mut residual, text) = value::<Map<String, Json>>(&mut rest)?;
        match emitted > at {
            true => {
                residual.insert("emittedAt".into(), emitted.to_rfc3339().into());
                residual.insert("occurredAt".into(), at.to_rfc3339().into());
                out.push_str(&Json::Object(residual).to_string());
            }
            false => out.push_str(text),
        }
        token(&mut rest, ',', &mut out)?;
        out.push_str(value::<serde::de::IgnoredAny>(&mut rest)?.1);
        token(&mut rest, ']', &mut out)?;
        if !rest.starts_with(',') {
            break;
        }
        token(&mut rest, ',', &mut out)?;
    }
    token(&mut rest, ']', &mut out)?;
    Ok(out)
}

fn token(rest: &mut &str, letter: char, out: &mut String) -> Result<(), ChunkFault> {
    let Some(after) = rest.strip_prefix(letter) else {
        return Err(ChunkFault(format!("`{letter}` is missing in its body")));
    };
    *rest = after;
    out.push(letter);
    Ok(())
}

/// The next value, with its text.
fn value<'a, T: DeserializeOwned>(rest: &mut &'a str) -> Result<(T, &'a str), ChunkFault> {
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<T>();
    let value = match values.next() {
        Some(Ok(value)) => value,
        Some(Err(error)) => return Err(ChunkFault(error.to_string())),
        None => return Err(ChunkFault("its body ends too early".to_owned())),
    };
    let (text, after) = rest.split_at(values.byte_offset());
    *rest = after;
    Ok((value, text))
}
