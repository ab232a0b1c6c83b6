//! Maintenance: what belongs to the store as a whole.

use std::collections::BTreeMap;

use stepwell_kernel::time::Time;

use super::{Head, Result, RunNo, UniqueKey, ViewRow};

/// The store as a whole.
pub trait Maintenance {
    /// The secret that completion tokens are made with. It is made once and never changes, so that a
    /// token which was given out before a crash is accepted after it.
    ///
    /// Durable on return: the secret.
    ///
    /// Crash before the return: no token was made with a secret that is not durable.
    ///
    /// Twice: the same secret.
    fn secret(&self) -> Result<[u8; 32]>;

    /// Looks for damage: the database's own check, and the rows against each other.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the findings of then.
    fn check(&self) -> Result<Health>;

    /// How many bytes the store takes on disk; zero in memory.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the size of then.
    fn bytes(&self) -> Result<u64>;

    /// How much waits or is under way, for those who watch the store.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the numbers as they are then.
    fn waiting(&self, now: Time) -> Result<WaitingCounts>;

    /// Fails if what was written is not where it was written to: the files of the store were deleted or
    /// replaced. Asked before the end of a run is reported.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: as it is then.
    fn still_there(&self) -> Result<()> {
        Ok(())
    }

    /// Puts a damaged run into quarantine: nobody executes or shows it until it is released. The views for
    /// SQL leave it out.
    ///
    /// Durable on return: the quarantine.
    ///
    /// Crash before the return: the run is in quarantine or not; the process that found the damage finds it again.
    ///
    /// Twice: the first reason stays.
    fn quarantine(&self, run: RunNo, why: &str, now: Time) -> Result<()>;

    /// The runs in quarantine, and why; oldest first.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the runs of then.
    fn quarantined(&self) -> Result<Vec<(RunNo, String)>>;

    /// Ends the quarantine of a run that was repaired.
    ///
    /// Durable on return: the end. Crash before the return: the run is in quarantine or not. Twice: nothing
    /// more.
    fn release(&self, run: RunNo) -> Result<()>;

    /// The run that the scrub verified last; none before the first run of a round.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the run of then.
    fn scrubbed(&self) -> Result<Option<RunNo>>;

    /// Remembers how far the scrub has come, so that it goes on there.
    ///
    /// Durable on return: the position. Crash before the return: some runs are verified again. Twice:
    /// nothing more.
    fn set_scrubbed(&self, run: Option<RunNo>) -> Result<()>;

    /// The rows of a run that follow from its log, as they are: to be compared with the log.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the rows of then.
    fn kept_rows(&self, run: RunNo) -> Result<Option<KeptRows>>;

    /// Corrects what belongs to no run, or what only the store knows of, after the runs were repaired. Says in words what
    /// was done.
    ///
    /// Durable on return: what was corrected. Crash before the return: all of it or nothing. Twice: nothing more.
    fn correct(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Replaces the rows of a run that follow from its log: what its own row says of it, its head, the keys of its events, its waits, its
    /// unique key and its view rows; its snapshot is removed. Tasks stay, because a lease is not in the log;
    /// the server that wakes the run adds those that are missing.
    ///
    /// Durable on return: all of the rows, or on `Err` none.
    ///
    /// Crash before the return: all of them or none.
    ///
    /// Twice: the same rows.
    fn rebuild(&self, run: RunNo, rows: &DerivedRows, now: Time) -> Result<()>;
}

/// What the row of a run says of it that is in its log too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunColumns {
    pub tenant: String,
    pub project: String,
    pub environment: String,
    /// The parent run, which waits for this run.
    pub parent: Option<String>,
    /// What events are matched by.
    pub event_key: String,
    pub created_at: Time,
    /// Queued runs with a greater number start first.
    pub priority: i32,
    /// What lists of runs are searched by.
    pub labels: BTreeMap<String, String>,
}

/// The rows of a run that follow from its log, as a store has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptRows {
    pub columns: RunColumns,
    /// The tenant as the head repeats it, for lists of runs.
    pub head_tenant: String,
    /// When the run is offered to servers.
    pub due_at: Option<Time>,
    /// The keys of its events, in any order.
    pub keys: Vec<Vec<u8>>,
    /// The steps that wait for an event: step, type and key of the event.
    pub waits: Vec<(String, String, String)>,
    pub unique_keys: Vec<UniqueKey>,
    /// The rows of views: name of the view, place, body.
    pub view_rows: Vec<(String, i64, String)>,
}

/// The rows of a run that follow from its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DerivedRows {
    pub columns: RunColumns,
    pub head: Head,
    /// The keys of all events.
    pub keys: Vec<Vec<u8>>,
    /// The steps that wait for an event, with the type of the event.
    pub waits: Vec<(String, String)>,
    /// The key that only this run may have while it is open.
    pub unique_key: Option<UniqueKey>,
    pub view_rows: Vec<ViewRow>,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The version of the schema.
    pub schema: i64,
    /// How many runs there are.
    pub runs: u64,
    /// How many have not ended.
    pub open: u64,
    /// What is wrong, in words; empty if nothing is.
    pub problems: Vec<String>,
}

/// How much waits or is under way in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingCounts {
    /// Runs that wait for a slot.
    pub queued: u64,
    /// Tasks that workers outside can take, now or later.
    pub offered: u64,
    /// Tasks that workers outside have.
    pub leased: u64,
    /// Deliveries to sinks that have not arrived.
    pub outbox: u64,
    /// Since when the oldest of these deliveries waits.
    pub outbox_since: Option<Time>,
    /// Deliveries that were given up.
    pub dead_letters: u64,
    /// Servers that have renewed their session in time.
    pub sessions: u64,
}
