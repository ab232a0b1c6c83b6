//! The outbox: which chunks are still to be delivered to which sink. A marker is written in the commit
//! that appends its chunk (`Append::sinks`), so nothing that was committed is ever forgotten.

use stepwell_kernel::time::Time;

use super::{Result, RunNo};

/// Hands markers to publishers.
pub trait Outbox {
    /// Takes markers of a sink: for each run the oldest that is due and nobody has, at most `limit`
    /// runs, by the time they are due from and run. They are the publisher's until `until`. A run's
    /// later markers wait for its oldest, which is what keeps a sink's order for each run.
    ///
    /// Durable on return: the claims.
    ///
    /// Crash after the return: a claim ends by itself after `until`, and the chunk is delivered again.
    /// A sink may therefore see a chunk twice; its events carry ids.
    ///
    /// Twice: the second call does not get the markers of the first until `until`.
    fn take(
        &self,
        sink: &str,
        publisher: &str,
        now: Time,
        until: Time,
        limit: usize,
    ) -> Result<Vec<Marker>>;

    /// The chunk that a marker stands for was delivered: the marker is removed.
    ///
    /// Durable on return: the removal.
    ///
    /// Crash before the return: the chunk may be delivered once more.
    ///
    /// Twice: the second call changes nothing.
    fn sent(&self, marker: &Marker) -> Result<()>;

    /// Delivery failed, which is counted; try again from `at` on.
    ///
    /// Durable on return: the count, the reason and the time.
    ///
    /// Crash before the return: the failure is perhaps not counted; the claim ends by itself.
    ///
    /// Twice: counted twice.
    fn failed(&self, marker: &Marker, at: Time, why: &str) -> Result<()>;

    /// How many markers of a sink wait, and since when the oldest does.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the numbers as they are then.
    fn backlog(&self, sink: &str) -> Result<(u64, Option<Time>)>;

    /// The sinks that something waits for, by name.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the sinks as they are then.
    fn waiting_sinks(&self) -> Result<Vec<String>>;
}

/// A marker of the outbox: the chunk of a run that begins at `first` is to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The sink's name.
    pub sink: String,
    /// Whose chunk.
    pub run: RunNo,
    pub run_id: String,
    /// The chunk's first sequence number.
    pub first: u64,
    /// How often delivery has failed.
    pub attempts: u32,
}

/// A marker of the outbox with what `Marker` does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkerState {
    /// How often delivery has failed.
    pub attempts: u32,
    /// Not delivered before.
    pub due_at: Time,
    /// The publisher that claimed it.
    pub publisher: Option<String>,
    /// The last instant of the claim.
    pub until: Option<Time>,
    /// Why it failed last.
    pub why: Option<String>,
    /// Since when it waits.
    pub since: Time,
}
