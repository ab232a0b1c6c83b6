//! Projections: the contract's snapshot of each run, derived from its log by the projector. They can be
//! deleted and created again.

use stepwell_kernel::time::Time;

use super::{Result, RunNo};

/// Stores the latest snapshot of each run.
pub trait Projections {
    /// Keeps the projection of a run, unless a later one is kept already.
    ///
    /// Durable on return: the projection, or the later one.
    ///
    /// Crash before the return: the old or the new one is there; the projector goes on from its
    /// watermark.
    ///
    /// Twice: the same row.
    fn put_projection(&self, run: RunNo, seq: u64, snapshot: &str, now: Time) -> Result<()>;

    /// The kept projection of a run and its watermark: the last event in it.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the projection as it is then.
    fn projection(&self, run: RunNo) -> Result<Option<(u64, String)>>;
}
