//! An append that could not be written at once, before it is sent again: its events get the time of this attempt as
//! the time of their append, and everything that depends on their hashes follows.

use stepwell_kernel::contract::Recorder;
use stepwell_kernel::keys::hex;
use stepwell_kernel::time::Time;

use super::{HotRun, sealed_state};
use crate::chunk;
use crate::store::Append;

impl HotRun {
    /// Gives the events of the append in flight the time `now` as the time of their append. An append that may be
    /// in the store already stays as it is: sent again, it must be recognised.
    pub(in crate::coordinator) fn restamp(&mut self, append: &mut Append, now: Time) {
        let Some(flight) = self.flight.as_mut() else {
            return;
        };
        let Some(chunk) = append.chunk.as_mut() else {
            return;
        };
        let waits = self.state.seq() == chunk.last && !flight.is_doubtful;
        if !waits || now <= flight.emitted_at {
            return;
        }
        let version = &self.plan.net().plan_version;
        let done = chunk::restamp(chunk, &self.run_id, version, &flight.before, now);
        if let Err(error) = done {
            // The chunk is as it was, with the time at which it was decided.
            tracing::warn!(%error, run = &*self.run_id, "a chunk keeps the time of its decision");
            return;
        }
        flight.emitted_at = now;
        if let Some(hash) = chunk.digests.last_chunk::<32>() {
            self.recorder = Recorder::resume(&self.plan, &self.state, hex(hash));
            if append.snapshot.is_some() {
                append.snapshot = Some(sealed_state::seal(&self.state, hash));
            }
        }
    }

    /// The answer to the append in flight was lost: it may be in the store.
    pub(in crate::coordinator) fn doubt(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.doubt();
        }
    }
}
