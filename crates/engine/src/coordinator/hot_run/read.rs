//! A run as the store has it: the last snapshot that can be used, and the events after it.

use std::sync::Arc;

use stepwell_kernel::chain::GENESIS;
use stepwell_kernel::contract::Recorder;
use stepwell_kernel::evolve::replay;
use stepwell_kernel::keys::hex;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::State;

use super::{HotRun, KnownRows};
use crate::chunk;
use crate::error::Error;
use crate::store::{StoredChunk, StoredRun};

impl HotRun {
    /// A run as it was stored. `all` reads the whole log, for a snapshot that cannot be used.
    pub(crate) fn read(
        stored: StoredRun,
        plan: Arc<Plan>,
        all: impl FnOnce() -> Result<Vec<StoredChunk>, Error>,
    ) -> Result<HotRun, Error> {
        let mut hot = HotRun::new(stored.run, &stored.run_id, plan);
        hot.fresh = true;
        let thawed = stored.snapshot.as_ref().and_then(|frozen| {
            let state = State::decode(frozen.version, &frozen.body, &hot.plan)?;
            (state.seq() == frozen.seq && state.run_id() == stored.run_id).then_some(state)
        });
        let chunks = match (&stored.snapshot, &thawed) {
            (None, _) => stored.chunks,
            (Some(frozen), Some(_)) => {
                hot.snapshot_bytes = frozen.body.len();
                stored.chunks
            }
            (Some(_), None) => all()?,
        };
        let mut state = thawed;
        let mut tail = GENESIS.to_owned();
        for chunk in &chunks {
            let fault = |source| Error::Unreadable {
                run_id: stored.run_id.clone(),
                source,
            };
            let events = chunk::decode(chunk.first, chunk.codec, &chunk.body).map_err(fault)?;
            let illegal = |source| Error::LogInvalid {
                run_id: stored.run_id.clone(),
                source,
            };
            let folded = replay(&hot.plan, &stored.run_id, state.take(), &events);
            state = Some(folded.map_err(illegal)?);
            hot.log_bytes += chunk.body.len();
            if let Some(hash) = chunk.digests.last_chunk::<32>() {
                tail = hex(hash);
            }
        }
        hot.state = state.unwrap_or(hot.state);
        hot.recorder = Recorder::resume(&hot.plan, &hot.state, tail);
        hot.committed = hot.state.seq();
        hot.head = stored.head;
        hot.head_version = stored.head_version;
        hot.event_key = stored.event_key;
        let tasks = stored.tasks.into_iter();
        hot.rows = KnownRows::new(tasks.map(|it| (it.target, it.leased)), stored.waits);
        Ok(hot)
    }
}
