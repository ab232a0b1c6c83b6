//! One run: what is fetched after the watermark is applied; on a gap it is told once, and projection
//! goes on only when a resync has reached everything that was seen before.

use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::snapshot::{
    ContractEvent, Dependencies, FeedResult, Resync, ResyncAnswer, RunSnapshot, SnapshotProjector,
};
use stepwell_kernel::time::Time;

use crate::chunk::contract_events;
use crate::error::Error;
use crate::store::{NewAlert, PlanRow, RunNo, Store, StoreError, StoredChunk};

/// A snapshot is kept again after this many events, or after half as many as it has steps: so keeping
/// it costs a small part of making it, however long the run is.
const KEEP_AFTER: u64 = 16;

/// A run that is followed.
#[derive(Debug)]
pub(super) struct Followed {
    run: RunNo,
    run_id: String,
    version: Arc<str>,
    projector: SnapshotProjector,
    /// The watermark of what is kept.
    kept: u64,
    /// The time of the last event that was applied.
    pub(super) last_at: Option<Time>,
    /// When it was last needed, as its owner counts.
    pub(super) used: u64,
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
            run_id,
            version,
            kept: snapshot.last_event_seq,
            projector: SnapshotProjector::new(snapshot, dependencies),
            last_at: None,
            used: 0,
        }
    }

    pub(super) fn snapshot(&self) -> &RunSnapshot {
        self.projector.snapshot()
    }

    pub(super) fn is_stale(&self) -> bool {
        self.projector.is_stale()
    }

    /// Applies everything the log has.
    pub(super) fn catch_up(
        &mut self,
        store: &dyn Store,
        page: usize,
        alerts: &mut Vec<NewAlert>,
    ) -> Result<(), Error> {
        if self.is_stale() {
            // The last resync fell short. Everything is asked for, and whatever is there by now.
            self.resync(store, &Resync::Full, page, alerts)?;
        }
        while !self.is_stale() {
            let after = self.snapshot().last_event_seq;
            let chunks = store.chunks(self.run, after, page)?;
            let Some(last) = chunks.last().map(|it| it.last) else {
                break;
            };
            let events = self.read(&chunks, after)?;
            let fed = self.projector.feed(&events);
            let resync = self.told(fed, alerts);
            if let Some(wanted) = resync {
                self.resync(store, &wanted, page, alerts)?;
            } else if self.snapshot().last_event_seq < last || chunks.len() < page {
                // Read to the end, or nothing came of it: asking again at once would not help.
                break;
            }
        }
        Ok(())
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
        let mut after = snapshot.as_ref().map_or(0, |it| it.last_event_seq);
        let mut events = Vec::new();
        loop {
            let chunks = store.chunks(self.run, after, page)?;
            let Some(last) = chunks.last().map(|it| it.last) else {
                break;
            };
            events.extend(self.read(&chunks, after)?);
            after = last.max(after + 1);
        }
        Ok(ResyncAnswer { snapshot, events })
    }

    fn told(&mut self, fed: FeedResult, alerts: &mut Vec<NewAlert>) -> Option<Resync> {
        alerts.extend(fed.alerts.into_iter().map(|it| NewAlert {
            code: it.code.to_owned(),
            priority: it.priority,
            message: it.message,
        }));
        fed.resync
    }

    fn read(&mut self, chunks: &[StoredChunk], after: u64) -> Result<Vec<ContractEvent>, Error> {
        let mut events = Vec::new();
        for chunk in chunks {
            let read = contract_events(&self.run_id, &self.version, chunk);
            let read = read.map_err(|source| Error::Unreadable {
                run_id: self.run_id.clone(),
                source,
            })?;
            events.extend(read.iter().filter_map(ContractEvent::read));
            let at = read.last().and_then(|it| it.get("emittedAt"));
            self.last_at = at
                .and_then(Json::as_str)
                .and_then(Time::from_rfc3339)
                .or(self.last_at);
        }
        events.retain(|event| event.run_seq > after);
        Ok(events)
    }

    /// Keeps the snapshot, if it is time.
    pub(super) fn keep(&mut self, store: &dyn Store, now: Time) -> Result<(), StoreError> {
        let snapshot = self.projector.snapshot();
        let seq = snapshot.last_event_seq;
        let new = seq.saturating_sub(self.kept);
        let due = KEEP_AFTER.max(snapshot.steps.len() as u64 / 2);
        if new == 0 || (new < due && !snapshot.status.is_terminal()) {
            return Ok(());
        }
        // It has names and texts only, all of which have a JSON form.
        let Ok(text) = serde_json::to_string(snapshot) else {
            return Ok(());
        };
        store.put_projection(self.run, seq, &text, now)?;
        self.kept = seq;
        Ok(())
    }
}

/// A kept snapshot. One that cannot be read is made again.
fn read_snapshot(run_id: &str, text: &str) -> Option<RunSnapshot> {
    let snapshot: RunSnapshot = serde_json::from_str(text).ok()?;
    (snapshot.run_id == run_id).then_some(snapshot)
}
