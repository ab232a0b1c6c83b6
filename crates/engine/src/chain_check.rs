//! Verifies the hash chain of a run while its log is read. A run whose chain is broken is not served.
//!
//! There are two ways to verify a chunk. The quick one records the decoded events once more, as they were
//! recorded when they were written, and compares the hashes: it costs about as much as writing them did, and
//! proves the part that the engine folds. The thorough one computes the hashes from the stored bytes: it
//! also proves what only readers outside use, and does not depend on how this version records an event, so
//! it has the last word when the quick way finds another hash.

use serde_json::Value as Json;
use stepwell_kernel::chain::{ChainFault, ChainFaultKind, GENESIS};
use stepwell_kernel::contract::{RecordBuffers, Recorder};
use stepwell_kernel::event::{Body, Event};
use stepwell_kernel::keys::hex;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::State;

use crate::chunk::{self, DIGESTS, UnknownPart};
use crate::error::Error;
use crate::read::RunSource;
use crate::store::{RunNo, Store, StoreError, StoredChunk};

/// The chain of a run, verified up to an event.
#[derive(Debug)]
pub struct ChainCheck {
    run_id: String,
    /// The last event that was verified.
    seq: u64,
    /// The hash of that event, as the store has it.
    hash: String,
    recorder: Recorder,
    buffers: RecordBuffers,
    /// The recorder has recorded all events with the hashes that the store has.
    in_step: bool,
    /// The plan has masks where secrets were written out, and so is not the very plan that the log names.
    is_masked: bool,
    /// What was read and this version does not know.
    unknown: Vec<UnknownPart>,
}

impl ChainCheck {
    /// The chain of a run of which nothing is verified.
    #[must_use]
    pub fn new(run_id: &str) -> ChainCheck {
        ChainCheck {
            run_id: run_id.to_owned(),
            seq: 0,
            hash: GENESIS.to_owned(),
            recorder: Recorder::new(run_id),
            buffers: RecordBuffers::default(),
            in_step: true,
            is_masked: false,
            unknown: Vec::new(),
        }
    }

    /// The same for a reader who has the plan only with masks in it.
    pub(crate) fn of_shown_plan(run_id: &str) -> ChainCheck {
        ChainCheck {
            is_masked: true,
            ..ChainCheck::new(run_id)
        }
    }

    /// The chain after a state whose last event has a hash that is known to be right.
    #[must_use]
    pub fn after(plan: &Plan, state: &State, hash: String) -> ChainCheck {
        ChainCheck {
            run_id: state.run_id().to_owned(),
            seq: state.seq(),
            recorder: Recorder::resume(plan, state, hash.clone()),
            hash,
            buffers: RecordBuffers::default(),
            in_step: true,
            is_masked: false,
            unknown: Vec::new(),
        }
    }

    /// The chain after an event whose hash was verified before.
    #[must_use]
    pub fn at(run_id: &str, seq: u64, hash: String) -> ChainCheck {
        ChainCheck {
            seq,
            hash,
            in_step: false,
            ..ChainCheck::new(run_id)
        }
    }

    /// The chain after an event that was verified before and whose hash is read from the store, for
    /// readers that go on in the middle of a log. None if the store does not show the event.
    pub fn from_store(
        store: &dyn Store,
        run: RunNo,
        run_id: &str,
        seq: u64,
    ) -> Result<Option<ChainCheck>, StoreError> {
        ChainCheck::from_log(run_id, seq, |before| store.chunks(run, before, 1))
    }

    /// The same for every source of logs.
    pub fn from_source(
        source: &dyn RunSource,
        run: RunNo,
        run_id: &str,
        seq: u64,
    ) -> Result<Option<ChainCheck>, Error> {
        ChainCheck::from_log(run_id, seq, |before| source.log_chunks(run, before, 1))
    }

    fn from_log<E>(
        run_id: &str,
        seq: u64,
        read: impl FnOnce(u64) -> Result<Vec<StoredChunk>, E>,
    ) -> Result<Option<ChainCheck>, E> {
        let Some(before) = seq.checked_sub(1) else {
            return Ok(Some(ChainCheck::new(run_id)));
        };
        let chunks = read(before)?;
        Ok(chunks
            .first()
            .and_then(|it| ChainCheck::inside(run_id, it, seq)))
    }

    /// The chain after an event of a chunk that was verified before. None if the chunk does not hold the event.
    pub(crate) fn inside(run_id: &str, chunk: &StoredChunk, seq: u64) -> Option<ChainCheck> {
        if !(chunk.first..=chunk.last).contains(&seq) {
            return None;
        }
        let place = (seq - chunk.first) as usize * DIGESTS;
        let digests = chunk.digests.get(place..place + DIGESTS);
        let hash = digests.map(stored_hash).unwrap_or_default();
        Some(ChainCheck::at(run_id, seq, hash))
    }

    /// The last event that was verified.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The hash of the last event that was verified.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Decodes the next chunk and verifies it, the quick way first. Events that were verified before are
    /// left out of the answer; the last of them must still have the hash that was verified.
    pub fn read(&mut self, plan: &Plan, chunk: &StoredChunk) -> Result<Vec<Event>, Error> {
        let mut events = self.decode(chunk)?;
        self.fits(chunk, events.len())?;
        if !self.is_masked {
            self.is_pinned(plan, &events)?;
        }
        events.retain(|event| event.seq > self.seq);
        if self.in_step && self.records_the_same(plan, chunk, &events) {
            self.advance(chunk);
        } else {
            self.in_step = false;
            let parts = self.verify_parts(&plan.net().plan_version, chunk)?;
            let unknown = unknown_parts(chunk, &events, &parts);
            self.unknown.extend(unknown);
        }
        Ok(events)
    }

    /// What a chunk that was verified has after an event that this version does not know.
    pub(crate) fn unknown_in(
        &self,
        chunk: &StoredChunk,
        parts: &[(Json, Json)],
        after: u64,
    ) -> Result<Vec<UnknownPart>, Error> {
        let mut events = self.decode(chunk)?;
        events.retain(|event| event.seq > after);
        Ok(unknown_parts(chunk, &events, parts))
    }

    /// What the log has that this version does not know, as far as the log was read with `read`: a newer version
    /// wrote it.
    #[must_use]
    pub fn unknown(&self) -> &[UnknownPart] {
        &self.unknown
    }

    /// The plan that is kept for the run is the one that its log names.
    pub fn is_pinned(&self, plan: &Plan, events: &[Event]) -> Result<(), Error> {
        let other = |event: &Event| matches!(&event.body, Body::RunCreated { plan_hash, .. } if plan_hash != plan.hash());
        match events.iter().any(other) {
            true => Err(Error::Plan {
                run_id: self.run_id.clone(),
                why: "it is not the plan that the log names".to_owned(),
            }),
            false => Ok(()),
        }
    }

    /// Verifies the next chunk the thorough way.
    pub fn verify(&mut self, plan_version: &str, chunk: &StoredChunk) -> Result<(), Error> {
        self.verify_parts(plan_version, chunk).map(|_| ())
    }

    /// Verifies the next chunk the thorough way; gives the contract part and the `ext` part of its events.
    pub(crate) fn verify_parts(
        &mut self,
        plan_version: &str,
        chunk: &StoredChunk,
    ) -> Result<Vec<(Json, Json)>, Error> {
        let events = chunk::hashed_parts(&self.run_id, plan_version, chunk);
        let events = events.map_err(|source| self.unreadable(source))?;
        self.fits(chunk, events.len())?;
        let parts = (chunk.first..).zip(events.iter().zip(chunk.digests.chunks_exact(DIGESTS)));
        let known = self.seq;
        for (seq, ((contract, ext), digests)) in parts.filter(|(seq, _)| *seq > known) {
            let hash = stepwell_kernel::chain::link(contract, ext, &self.hash);
            if hash != stored_hash(digests) {
                return Err(self.broken(seq, ChainFaultKind::HashMismatch));
            }
            self.hash = hash;
            self.seq = seq;
        }
        // The recorder has not recorded these.
        self.in_step = false;
        Ok(events)
    }

    /// The recorder for what follows; `state` is the state after the last event that was verified.
    #[must_use]
    pub(crate) fn into_recorder(self, plan: &Plan, state: &State) -> Recorder {
        match self.in_step {
            true => self.recorder,
            false => Recorder::resume(plan, state, self.hash),
        }
    }

    fn decode(&self, chunk: &StoredChunk) -> Result<Vec<Event>, Error> {
        let decoded = chunk::decode(chunk.first, chunk.codec, &chunk.body);
        decoded.map_err(|source| self.unreadable(source))
    }

    /// The chunk has as many events and digests as its numbers say, and continues what was verified.
    fn fits(&self, chunk: &StoredChunk, events: usize) -> Result<(), Error> {
        let counted = chunk.first.checked_add(events as u64) == chunk.last.checked_add(1);
        if !counted || events == 0 || chunk.digests.len() != events * DIGESTS {
            return Err(self.broken(chunk.first, ChainFaultKind::Gap));
        }
        if chunk.first > self.seq + 1 || chunk.first == 0 {
            return Err(self.broken(self.seq + 1, ChainFaultKind::Gap));
        }
        // The chunk with the last verified event comes along where reading goes on inside of it.
        if (chunk.first..=chunk.last).contains(&self.seq) {
            let place = (self.seq - chunk.first) as usize * DIGESTS;
            let digests = &chunk.digests[place..place + DIGESTS];
            if stored_hash(digests) != self.hash {
                return Err(self.broken(self.seq, ChainFaultKind::Break));
            }
        }
        Ok(())
    }

    fn records_the_same(&mut self, plan: &Plan, chunk: &StoredChunk, events: &[Event]) -> bool {
        let verified = (self.seq + 1).saturating_sub(chunk.first) as usize;
        let mut digests = chunk.digests.chunks_exact(DIGESTS).skip(verified);
        let mut same = true;
        let recorder = &mut self.recorder;
        let recorded = recorder.write_all(plan, events, &mut self.buffers, |_, recorded| {
            same &= digests.next().is_some_and(|digests| {
                digests[..16] == recorded.event_id
                    && digests[16..48] == recorded.idempotency_key
                    && digests[48..] == recorded.hash
            });
        });
        same && recorded.is_ok()
    }

    fn advance(&mut self, chunk: &StoredChunk) {
        if chunk.last > self.seq {
            self.seq = chunk.last;
            self.hash = stored_hash(&chunk.digests);
        }
    }

    /// The next event is not there.
    pub(crate) fn missing(&self) -> Error {
        self.broken(self.seq + 1, ChainFaultKind::Gap)
    }

    fn broken(&self, seq: u64, kind: ChainFaultKind) -> Error {
        Error::ChainBroken {
            run_id: self.run_id.clone(),
            source: ChainFault { seq, kind },
        }
    }

    fn unreadable(&self, source: chunk::ChunkFault) -> Error {
        Error::Unreadable {
            run_id: self.run_id.clone(),
            source,
        }
    }
}

/// What events of a chunk have that this version does not know. The chain is whole, so what differs was written so: by another
/// version.
fn unknown_parts(
    chunk: &StoredChunk,
    events: &[Event],
    parts: &[(Json, Json)],
) -> Vec<UnknownPart> {
    let of_event = |event: &Event| {
        let place = (event.seq - chunk.first) as usize;
        let part = parts.get(place);
        part.map(|(contract, ext)| chunk::unknown_parts(event, contract, ext))
    };
    events.iter().filter_map(of_event).flatten().collect()
}

/// The hash that ends these digests.
fn stored_hash(digests: &[u8]) -> String {
    digests
        .last_chunk::<32>()
        .map(|hash| hex(hash))
        .unwrap_or_default()
}
