//! Projections: the contract's snapshot of each run, derived from its log by the projector. They can be
//! deleted and created again.

use stepwell_kernel::time::Time;

use super::{Result, RunNo};

/// A projection to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewProjection {
    pub run: RunNo,
    /// The last event in the snapshot.
    pub seq: u64,
    /// The snapshot, as JSON text.
    pub snapshot: String,
}

/// Stores the latest snapshot of each run.
pub trait Projections {
    /// Keeps the projections of runs in one transaction, each unless a later one of its run is kept already.
    ///
    /// Durable on return: the projections, or the later ones.
    ///
    /// Crash before the return: the old or the new ones are there; the projector goes on from its
    /// watermarks.
    ///
    /// Twice: the same rows.
    fn put_projections(&self, all: &[NewProjection], now: Time) -> Result<()>;

    /// Keeps one projection, as `put_projections` does.
    ///
    /// Durable on return: the projection, or a later one. Crash before the return: the old or the new one is there.
    /// Twice: the same row.
    fn put_projection(&self, run: RunNo, seq: u64, snapshot: &str, now: Time) -> Result<()> {
        let snapshot = snapshot.to_owned();
        self.put_projections(&[NewProjection { run, seq, snapshot }], now)
    }

    /// The kept projection of a run and its watermark: the last event in it.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the projection as it is then.
    fn projection(&self, run: RunNo) -> Result<Option<(u64, String)>>;
}
