//! Retention: runs that ended long ago are deleted with everything that belongs to them. This is the only way that a
//! chunk of a log goes.

use stepwell_kernel::time::Time;

use super::{Result, RunNo};

/// Deletes runs that have ended.
pub trait Retention {
    /// Deletes runs that ended before a time, those that ended first, at most `limit`, each with its log, its rows and its
    /// messages, in one transaction. The key of the request that started a run can be used again.
    ///
    /// Not deleted are runs that are open or have an owner, hold a slot, or are in quarantine; runs with a chunk that is
    /// still to be delivered to a sink, or with a message that nobody has answered; and runs whose parent is open.
    ///
    /// Durable on return: the deletion of all runs that are returned.
    ///
    /// Crash before the return: all of these runs are there as a whole, or none is.
    ///
    /// Twice: the next runs, if there are more.
    fn delete_ended(
        &self,
        filter: &DeleteFilter,
        limit: usize,
        now: Time,
    ) -> Result<Vec<DeletedRun>>;
}

/// Which runs to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteFilter {
    /// Only runs that ended before this time, and before now.
    pub ended_before: Time,
    /// Only runs with one of these statuses; with any status if there are none.
    pub statuses: Vec<String>,
    /// Only runs of this tenant; of all tenants if absent.
    pub tenant: Option<String>,
}

/// A run that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedRun {
    /// The number it had in this store; no other run gets it.
    pub run: RunNo,
    pub run_id: String,
    /// The tenant that it belonged to.
    pub tenant: String,
    /// The status that it ended with.
    pub status: String,
    pub ended_at: Time,
}
