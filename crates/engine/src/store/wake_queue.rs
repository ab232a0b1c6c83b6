//! The wake queue: runs that no session owns and whose time has come.

use stepwell_kernel::time::Time;

use super::{Result, RunNo};

/// Offers runs that are due.
pub trait WakeQueue {
    /// Runs that no session owns and that are not queued, whose time has come; earliest first, then
    /// smallest number. The time of a run that was offered is the end of the offer: it is not offered
    /// again until `until` unless its head changes, so that servers do not all wake the same run.
    ///
    /// Durable on return: the offers.
    ///
    /// Crash after the return: each run is offered again after `until`. Nothing is lost: the run's own
    /// `wake_at` is not changed.
    ///
    /// Twice: the second call does not get the runs of the first until `until`.
    fn due(&self, now: Time, until: Time, limit: usize) -> Result<Vec<RunNo>>;

    /// When `due` has its next run to offer.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the time as it is then.
    fn next_due(&self) -> Result<Option<Time>>;
}
