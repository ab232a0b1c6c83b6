//! One run: what is fetched after the watermark is applied; on a gap it is told once, and projection
//! goes on only when a resync has reached everything that was seen before.

use std::collections::VecDeque;
use std::sync::Arc;

use stepwell_kernel::plan::Plan;
use stepwell_kernel::snapshot::{
    ContractEvent, Dependencies, FeedResult, Resync, ResyncAnswer, RunSnapshot, SnapshotProjector,
};
use stepwell_kernel::time::Time;

use crate::chain_check::ChainCheck;
use crate::chunk::snapshot_events;
use crate::error::Error;
use crate::store::{NewAlert, NewProjection, PlanRow, RunNo, Store, StoredChunk};

/// A snapshot is kept again after this many events, or after half as many as it has steps: so keeping
/// it costs a small part of making it, however long the run is.
const KEEP_AFTER: u64 = 16;

/// How many verified hashes are remembered, so that a resync need not read them again.
const KNOWN_HASHES: usize = 128;

/// A run that is followed.
#[derive(Debug)]
pub(super) struct Followed {
    run: RunNo,
    run_id: String,
    version: Arc<str>,
    /// Hashes of the hash chain that were verified: of the last events of chunks, the latest first.
    hashes: VecDeque<(u64, String)>,
    projector: SnapshotProjector,
    /// The watermark of what is kept.
    kept: u64,
    /// This process has committed the events up to here by itself, a moment ago: their hashes are not computed again.
    own: u64,
    /// The time of the last event that was applied.
    pub(super) last_at: Option<Time>,
    /// When it was last needed, as its owner counts.
    pub(super) used: u64,
    /// The gap that was seen when the run was last caught up with.
    pub(super) gap: Option<Gap>,
    /// How the snapshot was made again then.
    pub(super) resynced: Option<ResyncMode>,
    /// An alert was raised or the snapshot was made again: what came of it is kept soon, so that the next projector
    /// does not do the same again.
    keep_soon: bool,
}

/// A gap in what was read of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    /// The run as it was before the gap.
    pub before: RunSnapshot,
    /// The first event after the gap.
    pub next: u64,
    /// The last event that was read.
    pub observed: u64,
}

/// How a snapshot is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResyncMode {
    /// From all events of the run.
    Full,
    /// From the kept snapshot and the events after it; from all events if no snapshot is kept.
    FromSnapshot,
}

/// What a run's plan says about its projection.
pub(super) fn plan(row: Option<PlanRow>, run_id: &str) -> Result<(Arc<str>, Dependencies), Error> {
    let fault = |why: String| Error::Plan {
        run_id: run_id.to_owned(),
        why,
    };
    let row = row.ok_or_else(|| fault("it is not kept".into()))?;
    let net = serde_json::from_str(&row.net).map_err(|error| fault(error.to_string()))?;
    let plan = Plan::new(net).map_err(|error| fault(error.to_string()))?;
    Ok((row.version.into(), Dependencies::of(&plan)))
}

impl Followed {
    /// From what was kept, or from the beginning if that cannot be read.
    pub(super) fn new(
        run: RunNo,
        run_id: String,
        version: Arc<str>,
        kept: Option<(u64, String)>,
        dependencies: Dependencies,
    ) -> Followed {
        let snapshot = kept.and_then(|(_, snapshot)| read_snapshot(&run_id, &snapshot));
        let snapshot = snapshot.unwrap_or_else(|| RunSnapshot::new(&run_id));
        Followed {
            run,
            hashes: VecDeque::new(),
            run_id,
            version,
            kept: snapshot.last_event_seq,
            projector: SnapshotProjector::new(snapshot, dependencies),
            own: 0,
            last_at: None,
            used: 0,
            gap: None,
            resynced: None,
            keep_soon: false,
        }
    }

    pub(super) fn snapshot(&self) -> &RunSnapshot {
        self.projector.snapshot()
    }

    pub(super) fn is_stale(&self) -> bool {
        self.projector.is_stale()
    }

    /// The highest event that was seen.
    pub(super) fn observed(&self) -> u64 {
        let awaited = self.projector.awaited().unwrap_or_default();
        awaited.max(self.snapshot().last_event_seq)
    }

    /// The last event of the first chunk that is not projected, and when its first new event was appended.
    pub(super) fn unread(&self, store: &dyn Store) -> Result<Option<(u64, Time)>, Error> {
        let after = self.snapshot().last_event_seq;
        let chunks = store.chunks(self.run, after, 1)?;
        let Some(chunk) = chunks.first() else {
            return Ok(None);
        };
        let (events, _) = self.snapshot_events(chunk)?;
        let new = events.iter().find(|it| it.run_seq > after);
        Ok(new
            .and_then(ContractEvent::emitted_at)
            .map(|at| (chunk.last, at)))
    }

    /// The events of a chunk, and the time of the last of them.
    fn snapshot_events(
        &self,
        chunk: &StoredChunk,
    ) -> Result<(Vec<ContractEvent>, Option<Time>), Error> {
        let read = snapshot_events(&self.run_id, &self.version, chunk);
        let read = read.map_err(|source| Error::Unreadable {
            run_id: self.run_id.clone(),
            source,
        })?;
        let last_at = read.last().and_then(ContractEvent::emitted_at);
        Ok((read, last_at))
    }

    /// Applies everything the log has, and then makes the snapshot again if that is asked for.
    pub(super) fn catch_up(
        &mut self,
        store: &dyn Store,
        asked: Option<ResyncMode>,
        (page, own): (usize, u64),
        alerts: &mut Vec<NewAlert>,
    ) -> Result<(), Error> {
        (self.gap, self.resynced) = (None, None);
        self.own = self.own.max(own);
        if self.is_stale() {
            // The last resync fell short. Everything is asked for, and whatever is there by now.
            self.resync(store, &Resync::Full, page, alerts)?;
        }
        // Also before a resync that is asked for: a resync bridges a gap and raises no alert.
        self.apply_unread(store, page, alerts)?;
        if let Some(mode) = asked {
            let snapshot_seq = self.snapshot().last_event_seq;
            self.projector.doubt();
            self.keep_soon = true;
            let wanted = match mode {
                ResyncMode::Full => Resync::Full,
                ResyncMode::FromSnapshot => Resync::FromSnapshot { snapshot_seq },
            };
            self.resync(store, &wanted, page, alerts)?;
        }
        Ok(())
    }

    /// Applies what comes after the watermark, as long as nothing is missing.
    fn apply_unread(
        &mut self,
        store: &dyn Store,
        page: usize,
        alerts: &mut Vec<NewAlert>,
    ) -> Result<(), Error> {
        while !self.is_stale() {
            let after = self.snapshot().last_event_seq;
            let chunks = store.chunks(self.run, after, page)?;
            let Some(last) = chunks.last().map(|it| it.last) else {
                break;
            };
            let events = self.read(store, &chunks, after)?;
            let fed = self.projector.feed(&events);
            let resync = self.told(fed, alerts);
            if let Some(wanted) = resync {
                self.gap = self.gap_in(&events);
                self.resync(store, &wanted, page, alerts)?;
            } else if self.snapshot().last_event_seq < last || chunks.len() < page {
                // Read to the end, or nothing came of it: asking again at once would not help.
                break;
            }
        }
        Ok(())
    }

    /// The gap because of which nothing more of these events was applied.
    fn gap_in(&self, events: &[ContractEvent]) -> Option<Gap> {
        let before = self.snapshot().clone();
        let watermark = before.last_event_seq;
        let seqs = events.iter().map(|event| event.run_seq);
        Some(Gap {
            before,
            next: seqs.filter(|seq| *seq > watermark).min()?,
            observed: self.projector.awaited()?,
        })
    }

    /// Asks for a resync, and for all of it if less was not enough. It may still fall short: then the
    /// run stays stale.
    fn resync(
        &mut self,
        store: &dyn Store,
        wanted: &Resync,
        page: usize,
        alerts: &mut Vec<NewAlert>,
    ) -> Result<(), Error> {
        let answer = self.ask(store, wanted, page)?;
        let fed = self.projector.resync(&answer);
        let more = self.told(fed, alerts);
        if more.is_some() && *wanted != Resync::Full {
            let answer = self.ask(store, &Resync::Full, page)?;
            let fed = self.projector.resync(&answer);
            self.told(fed, alerts);
        }
        Ok(())
    }

    /// What the store has. Without a snapshot that is early enough it is everything.
    fn ask(
        &mut self,
        store: &dyn Store,
        wanted: &Resync,
        page: usize,
    ) -> Result<ResyncAnswer, Error> {
        let snapshot = match wanted {
            Resync::Full => None,
            Resync::FromSnapshot { snapshot_seq } => store
                .projection(self.run)?
                .filter(|(seq, _)| seq <= snapshot_seq)
                .and_then(|(_, snapshot)| read_snapshot(&self.run_id, &snapshot)),
        };
        self.resynced = Some(match snapshot {
            Some(_) => ResyncMode::FromSnapshot,
            None => ResyncMode::Full,
        });
        let mut after = snapshot.as_ref().map_or(0, |it| it.last_event_seq);
        let mut events = Vec::new();
        loop {
            let chunks = store.chunks(self.run, after, page)?;
            let Some(last) = chunks.last().map(|it| it.last) else {
                break;
            };
            events.extend(self.read(store, &chunks, after)?);
            after = last.max(after + 1);
        }
        Ok(ResyncAnswer { snapshot, events })
    }

    fn told(&mut self, fed: FeedResult, alerts: &mut Vec<NewAlert>) -> Option<Resync> {
        self.keep_soon |= !fed.alerts.is_empty();
        alerts.extend(fed.alerts.into_iter().map(|it| NewAlert {
            code: it.code.to_owned(),
            priority: it.priority,
            message: it.message,
        }));
        fed.resync
    }

    fn read(
        &mut self,
        store: &dyn Store,
        chunks: &[StoredChunk],
        after: u64,
    ) -> Result<Vec<ContractEvent>, Error> {
        let mut events = Vec::new();
        let mut reached = after;
        for chunk in chunks {
            // After a gap nothing is applied: the projector tells it and asks for what is missing.
            if chunk.first <= reached + 1 {
                if chunk.last > self.own {
                    self.verify(store, chunk, reached)?;
                }
                reached = chunk.last;
            }
            let (read, last_at) = self.snapshot_events(chunk)?;
            self.last_at = last_at.or(self.last_at);
            events.extend(read);
        }
        events.retain(|event| event.run_seq > after);
        Ok(events)
    }

    /// Verifies the hash chain of a chunk that continues what was read.
    fn verify(
        &mut self,
        store: &dyn Store,
        chunk: &StoredChunk,
        reached: u64,
    ) -> Result<(), Error> {
        let known = self.hashes.iter().find(|(seq, _)| *seq == reached);
        let chain = match known {
            Some((_, hash)) => Some(ChainCheck::at(&self.run_id, reached, hash.clone())),
            None => ChainCheck::from_store(store, self.run, &self.run_id, reached)?,
        };
        if let Some(mut chain) = chain {
            chain.verify(&self.version, chunk)?;
            self.hashes.truncate(KNOWN_HASHES - 1);
            self.hashes
                .push_front((chain.seq(), chain.hash().to_owned()));
        }
        Ok(())
    }

    /// The snapshot, if it is time to keep it. The caller keeps it.
    pub(super) fn take_to_keep(&mut self) -> Option<NewProjection> {
        let snapshot = self.projector.snapshot();
        let seq = snapshot.last_event_seq;
        let new = seq.saturating_sub(self.kept);
        let due = KEEP_AFTER.max(snapshot.steps.len() as u64 / 2);
        let is_due = new > 0 && (new >= due || snapshot.status.is_terminal());
        if !is_due && (!self.keep_soon || self.is_stale()) {
            return None;
        }
        // It has names and texts only, all of which have a JSON form.
        let snapshot = serde_json::to_string(snapshot).ok()?;
        self.kept = seq;
        self.keep_soon = false;
        let run = self.run;
        Some(NewProjection { run, seq, snapshot })
    }
}

/// A kept snapshot. One that cannot be read is made again.
fn read_snapshot(run_id: &str, text: &str) -> Option<RunSnapshot> {
    let snapshot: RunSnapshot = serde_json::from_str(text).ok()?;
    (snapshot.run_id == run_id).then_some(snapshot)
}
