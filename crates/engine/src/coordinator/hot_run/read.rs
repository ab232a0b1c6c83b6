//! A run as the store has it: the last snapshot that can be used, and the events after it, whose hash
//! chain is verified from the snapshot on.

use std::sync::Arc;

use stepwell_kernel::evolve::replay;
use stepwell_kernel::plan::Plan;

use super::{HotRun, KnownRows, sealed_state};
use crate::chain_check::ChainCheck;
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
        let thawed = stored
            .snapshot
            .as_ref()
            .and_then(|frozen| sealed_state::open(frozen, &stored.run_id, &hot.plan));
        let chunks = match (&stored.snapshot, &thawed) {
            (None, _) => stored.chunks,
            (Some(frozen), Some(_)) => {
                hot.snapshot_bytes = frozen.body.len();
                stored.chunks
            }
            (Some(_), None) => all()?,
        };
        let (mut state, mut chain) = match thawed {
            Some((state, hash)) => {
                let chain = ChainCheck::after(&hot.plan, &state, hash);
                (Some(state), chain)
            }
            None => (None, ChainCheck::new(&stored.run_id)),
        };
        for chunk in &chunks {
            let events = chain.read(&hot.plan, chunk)?;
            let run_id = stored.run_id.clone();
            let illegal = |source| match chain.unknown().is_empty() {
                true => Error::LogInvalid { run_id, source },
                false => Error::Newer { run_id, source },
            };
            let folded = replay(&hot.plan, &stored.run_id, state.take(), &events);
            state = Some(folded.map_err(illegal)?);
            hot.log_bytes += chunk.body.len();
        }
        hot.state = state.unwrap_or(hot.state);
        hot.recorder = chain.into_recorder(&hot.plan, &hot.state);
        hot.committed = hot.state.seq();
        hot.head = stored.head;
        hot.head_version = stored.head_version;
        hot.event_key = stored.event_key;
        let tasks = stored.tasks.into_iter();
        hot.rows = KnownRows::new(tasks.map(|it| (it.target, it.leased)), stored.waits);
        Ok(hot)
    }
}
