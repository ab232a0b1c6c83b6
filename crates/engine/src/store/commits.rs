//! Commits: the only way events and the rows that follow from events get into a store.
//!
//! The values of a commit are in `batch`.

use std::ops::Range;

use super::{Batch, Result};

/// The only way to write events.
pub trait Commits {
    /// Appends to many runs in one transaction. The answers are in the order of the batch. An append
    /// that is refused leaves its run as it was, whatever happens to the other appends.
    ///
    /// Durable on return: every append that is answered with `Committed` or `Again`, all its rows
    /// together. On `Err` nothing was done, except that after `StoreErrorKind::AnswerLost` it is not
    /// known.
    ///
    /// Crash before the return: each append is there as a whole or not at all.
    ///
    /// Twice: the same batch with the same id is recognised: appends of the first call are answered
    /// with `Again` and not done a second time. So a batch whose answer was lost is sent again as it was.
    fn commit(&self, batch: &Batch) -> Result<Vec<AppendResult>>;

    /// Commits several batches, in one transaction where the store can. Each is answered as by `commit`.
    ///
    /// Durable on return: as after `commit`, for each batch that is answered with `Ok`.
    ///
    /// Crash before the return: each append is there as a whole or not at all.
    ///
    /// Twice: each batch is recognised by its own id, in whichever company it comes.
    fn commit_all(&self, batches: &[&Batch]) -> Vec<Result<Vec<AppendResult>>> {
        batches.iter().map(|batch| self.commit(batch)).collect()
    }

    /// Reserves numbers for new runs. No other caller gets the same numbers.
    ///
    /// Durable on return: the reservation.
    ///
    /// Crash after the return: the numbers are never used. Gaps are allowed.
    ///
    /// Twice: two different ranges.
    fn reserve_numbers(&self, count: u32) -> Result<Range<i64>>;
}

/// The result of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendResult {
    /// The append was committed.
    Committed,
    /// The same commit had committed this append before.
    Again,
    /// The run, or with no chunk its head, has changed since the sender read it; or a message is gone.
    Moved,
    /// The guard with this index does not hold.
    GuardFailed(usize),
    /// An event is recorded under one of the keys already.
    KeyExists,
    /// There is a run with this id.
    RunExists,
    /// The start request's key belongs to this run.
    RequestTaken(String),
    /// This open run has the unique key.
    UniqueKeyTaken(String),
    /// No slot is free for this key.
    SlotsFull(String),
    /// The database refuses a value.
    Refused(String),
}
