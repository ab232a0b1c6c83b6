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

    /// The failure of a sink that was tried most often, among what still waits; none if nothing that waits has failed.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the failure as it is then.
    fn delivery_failure(&self, sink: &str) -> Result<Option<DeliveryFailure>>;

    /// The sinks that something waits for, by name.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the sinks as they are then.
    fn waiting_sinks(&self) -> Result<Vec<String>>;

    /// Registers a sink: from now on every commit marks its chunks for the sink, no matter which process commits. With
    /// `SinkStart::Beginning` the chunks that are there are marked too, in the same transaction. A sink of this
    /// name gets the new address. Says how many chunks were marked.
    ///
    /// Durable on return: the sink and the marks.
    ///
    /// Crash before the return: both or neither.
    ///
    /// Twice: chunks that still wait are not marked again; with `SinkStart::Beginning` those that were delivered are.
    fn add_sink(&self, sink: &SinkRow, start: SinkStart, now: Time) -> Result<u64>;

    /// The registered sinks, by name.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the sinks as they are then.
    fn sinks(&self) -> Result<Vec<SinkRow>>;

    /// Forgets a sink and everything that waits for it. Says how much that was; `None` if there is no such sink.
    ///
    /// Durable on return: the removal. Crash before the return: all of it or nothing. Twice: there is no such sink.
    fn remove_sink(&self, name: &str) -> Result<Option<u64>>;
}

/// A sink that the store knows: every event of every run is delivered to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkRow {
    pub name: String,
    /// Where the sink is: `webhook:https://…`, `nats://…`. That of a webhook may contain secrets.
    pub address: String,
    /// When the sink was registered, or its address was changed.
    pub since: Time,
}

/// What a new sink gets of the events that are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkStart {
    /// The sink gets all of them.
    Beginning,
    /// The sink gets none of them.
    Now,
}

/// A delivery that has failed and is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryFailure {
    /// How often it was tried.
    pub attempts: u32,
    /// Why the last try failed.
    pub why: String,
    /// When it is tried again.
    pub due_at: Time,
}

/// A marker of the outbox: the chunk of a run that begins at `first` is to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub sink: String,
    /// The run that the chunk belongs to.
    pub run: RunNo,
    pub run_id: String,
    /// The chunk's first sequence number.
    pub first: u64,
    /// How often delivery has failed.
    pub attempts: u32,
}

/// The columns of a marker that `Marker` does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkerState {
    /// How often delivery has failed.
    pub attempts: u32,
    /// The delivery is not attempted before this time.
    pub due_at: Time,
    /// The publisher that claimed the marker; absent if no publisher has.
    pub publisher: Option<String>,
    /// The last instant of the claim.
    pub until: Option<Time>,
    /// Why the last attempt failed.
    pub why: Option<String>,
    /// Since when the delivery waits.
    pub since: Time,
}

impl MarkerState {
    /// Of a marker that nobody has tried.
    #[must_use]
    pub fn due(now: Time) -> MarkerState {
        MarkerState {
            attempts: 0,
            due_at: now,
            publisher: None,
            until: None,
            why: None,
            since: now,
        }
    }
}
