//! A chunk made from the lines of a log that another process has printed or served: the contract's event with `ext`,
//! `prevHash` and `hash` beside it. Who reads the chunk verifies the hashes, as for a chunk of a store.

use serde_json::{Map, Value as Json};
use stepwell_kernel::event::EventType;
use stepwell_kernel::time::Time;

use super::template::{ENVELOPE, fields};
use super::{CODEC, ChunkFault, DIGESTS};
use crate::store::{CommitId, StoredChunk};

/// What is in a line and not in the body of a chunk.
const BESIDE: [&str; 7] = [
    "ext",
    "prevHash",
    "hash",
    "eventId",
    "idempotencyKey",
    "runSeq",
    "eventType",
];

/// The chunk of these lines, at least one, which follow each other without a gap.
pub fn from_lines(lines: Vec<Json>) -> Result<StoredChunk, ChunkFault> {
    let mut entries = Vec::with_capacity(lines.len());
    let mut digests = Vec::with_capacity(lines.len() * DIGESTS);
    let mut first = None;
    let mut last = 0;
    for line in lines {
        let Json::Object(line) = line else {
            return Err(fault("a line is no object"));
        };
        let seq = line.get("runSeq").and_then(Json::as_u64);
        last = seq.ok_or_else(|| fault("a line has no runSeq"))?;
        first.get_or_insert(last);
        for (name, bytes) in [("eventId", 16), ("idempotencyKey", 32), ("hash", 32)] {
            let text = line.get(name).and_then(Json::as_str).unwrap_or_default();
            let read = unhex(text).filter(|it| it.len() == bytes);
            digests.extend(read.ok_or_else(|| fault(&format!("{name} of event {last}")))?);
        }
        entries.push(entry(line)?);
    }
    let first = first.ok_or_else(|| fault("there is no line"))?;
    Ok(StoredChunk {
        first,
        last,
        commit: CommitId {
            session: 0,
            number: 0,
        },
        codec: CODEC,
        body: Json::Array(entries).to_string(),
        digests,
    })
}

/// `[at, residual, ext]`. The residual says everything, and removes what its template says beyond that.
fn entry(mut line: Map<String, Json>) -> Result<Json, ChunkFault> {
    let ext = line.remove("ext").unwrap_or_default();
    // An append that had to wait says when it was decided, which is what readers fold.
    let at = line.get("occurredAt").or(line.get("emittedAt"));
    let at = at.and_then(Json::as_str).and_then(Time::from_rfc3339);
    let at = at.ok_or_else(|| fault("a line has no emittedAt"))?;
    let known = ext.get("type").and_then(Json::as_str);
    let template = known
        .and_then(EventType::from_name)
        .map_or(ENVELOPE, fields);
    for name in BESIDE {
        line.remove(name);
    }
    for (name, _) in template {
        line.entry(name.as_str()).or_insert(Json::Null);
    }
    Ok(Json::Array(vec![at.0.into(), Json::Object(line), ext]))
}

/// The bytes of a text of hexadecimal digits; the hyphens of an id do not count.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|it| *it != b'-').collect();
    let pairs = digits.chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

fn fault(what: &str) -> ChunkFault {
    ChunkFault(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{contract_events, decode, hashed_parts};
    use crate::coordinator::fixture;

    #[test]
    fn a_chunk_of_lines_is_read_as_the_chunk_that_the_lines_are_from() {
        let (store, runs) = fixture::store_with(1);
        let (run_id, version) = ("run_0".to_owned(), "1".to_owned());
        let chunk = store.chunks(runs[0], 0, 1).unwrap().remove(0);
        let parts = hashed_parts(&run_id, &version, &chunk).unwrap();
        let digests = chunk.digests.chunks_exact(DIGESTS);
        let lines = parts
            .into_iter()
            .zip(digests)
            .map(|((mut line, ext), digests)| {
                line["ext"] = ext;
                line["hash"] = stepwell_kernel::keys::hex(&digests[48..]).into();
                line
            });
        let made = from_lines(lines.collect()).unwrap();
        assert_eq!((made.first, made.last), (chunk.first, chunk.last));
        assert_eq!(made.digests, chunk.digests);
        let events = |it: &StoredChunk| decode(it.first, it.codec, &it.body).unwrap();
        assert_eq!(events(&made), events(&chunk));
        let contract = |it: &StoredChunk| contract_events(&run_id, &version, it).unwrap();
        assert_eq!(contract(&made), contract(&chunk));
    }
}
