//! The port of the stores: what the engine needs from a database, in a few small traits.
//!
//! A store moves rows and enforces constraints; it never decides. The log is the truth, every other
//! row is a projection that is written only in the commit that appends its events (`commit`). What
//! can be read back is in `rows`. All calls block; the engine makes them from threads of their own.
//!
//! Rules that every store keeps, and that `suite` checks:
//!
//! - An append is a compare-and-set on the run's last sequence number, for each run of a batch alone.
//! - Whoever is not the owner of a run writes the run's head in every append (`Head`), or leaves the
//!   run a message, and a change of the head without events is a compare-and-set on its version. So no
//!   wake-up is ever overwritten.
//! - A commit whose answer was lost is sent again as it was; the store recognises it by its id.
//! - A time that something lasts until is its last instant: at `until == now` it still lasts.
//!
//! An append is refused for the first of these that is so: the run, or the commit, is there already
//! (`RunExists`, `Again`); `RequestTaken`; a plan that is not kept (`Refused`); `Moved`; `KeyExists`;
//! `BizKeyTaken`; `GuardFailed`; a message is gone or answered (`Moved`); `SlotsFull`. Appends of a
//! batch are decided in their order, each after the changes of those before it that won; mail is put
//! into mailboxes after all of them.

mod commit;
mod dump;
mod memory;
mod rows;

use std::fmt;
use std::ops::Range;

use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

pub use commit::{
    Append, AppendResult, Batch, Chunk, Guard, Head, LinearInstance, LinearRows, LinearStep,
    NewAlert, NewMessage, NewRun, SlotChange, StateSnapshot, TaskChange, WaitChange,
};
pub use dump::{DumpRows, MarkerState, StoreDump};
pub use memory::MemoryStore;
pub use rows::{
    AlertRow, DeadLetter, Delivered, Health, Marker, OutsideEvent, PlanRow, RunFilter, RunSummary,
    StoredChunk, StoredMessage, StoredRun, TaskRow,
};

/// A run's number: small, and later runs have larger ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunNo(pub i64);

/// A plan's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanNo(pub i64);

/// A server's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionNo(pub i64);

/// A message in the mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageNo(pub i64);

/// What a commit is known by: unique in a store, because a session's number is part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitId {
    /// The session that made it; zero for what is written without one.
    pub session: i64,
    /// Which of its commits.
    pub number: i64,
}

/// Why a store could not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", self.kind.code())]
pub struct StoreError {
    /// What kind of trouble.
    pub kind: StoreErrorKind,
    /// For people, with what to do.
    pub message: String,
}

/// Kinds of trouble with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// It cannot be reached, or is busy. Nothing was done; trying again helps.
    Unavailable,
    /// The answer was lost: it is not known whether it was done. Send the same again.
    AnswerLost,
    /// There is no room. Nothing was done; trying again helps once someone made room.
    Full,
    /// It may not be written. Nothing was done.
    ReadOnly,
    /// Another process has it.
    Held,
    /// It is damaged, or not a store of this program.
    Corrupt,
    /// A newer version of this program has written it.
    Newer,
    /// An older version of this program has written it, and migrating was not asked for.
    Older,
    /// It cannot be opened as it was asked for: a wrong address, a missing file, no permission.
    Unusable,
    /// A statement failed that should not: a bug.
    Internal,
}

impl StoreErrorKind {
    /// Every kind.
    pub const ALL: [StoreErrorKind; 10] = [
        StoreErrorKind::Unavailable,
        StoreErrorKind::AnswerLost,
        StoreErrorKind::Full,
        StoreErrorKind::ReadOnly,
        StoreErrorKind::Held,
        StoreErrorKind::Corrupt,
        StoreErrorKind::Newer,
        StoreErrorKind::Older,
        StoreErrorKind::Unusable,
        StoreErrorKind::Internal,
    ];

    /// The code, for programs and for `stepwell explain`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            StoreErrorKind::Unavailable => "STORE_UNAVAILABLE",
            StoreErrorKind::AnswerLost => "STORE_ANSWER_LOST",
            StoreErrorKind::Full => "STORE_FULL",
            StoreErrorKind::ReadOnly => "STORE_READ_ONLY",
            StoreErrorKind::Held => "STORE_HELD",
            StoreErrorKind::Corrupt => "STORE_CORRUPT",
            StoreErrorKind::Newer => "STORE_NEWER",
            StoreErrorKind::Older => "STORE_OLDER",
            StoreErrorKind::Unusable => "STORE_UNUSABLE",
            StoreErrorKind::Internal => "STORE_INTERNAL",
        }
    }

    /// Whether the same call may succeed later without anyone changing the program.
    #[must_use]
    pub fn may_pass(self) -> bool {
        matches!(
            self,
            StoreErrorKind::Unavailable
                | StoreErrorKind::AnswerLost
                | StoreErrorKind::Full
                | StoreErrorKind::ReadOnly
        )
    }
}

impl StoreError {
    /// StoreErrorKind of a kind.
    pub fn new(kind: StoreErrorKind, message: impl fmt::Display) -> StoreError {
        StoreError {
            kind,
            message: message.to_string(),
        }
    }
}

/// What a store answers.
pub type Result<T> = std::result::Result<T, StoreError>;

/// The log: commits, and runs read back.
pub trait Log {
    /// Appends to many runs in one transaction. The answers are in the order of the batch; a run that
    /// lost is as it was, whatever the others came to. On `Err` nothing was done, except that after
    /// `StoreErrorKind::AnswerLost` nobody knows.
    fn commit(&self, batch: &Batch) -> Result<Vec<AppendResult>>;

    /// Numbers for new runs that nobody else gets.
    fn reserve_numbers(&self, count: u32) -> Result<Range<i64>>;

    /// Keeps a plan; the same plan has the same number each time.
    fn put_plan(&self, plan: &Plan) -> Result<PlanNo>;

    /// A plan that was kept.
    fn plan(&self, no: PlanNo) -> Result<Option<PlanRow>>;

    /// The number of a run.
    fn find(&self, run_id: &str) -> Result<Option<RunNo>>;

    /// A run with everything that is needed to go on: its head, its snapshot, the chunks after it,
    /// its tasks and its mail.
    fn load(&self, run: RunNo) -> Result<Option<StoredRun>>;

    /// Chunks of a run that hold events after `after`, in order, at most `limit`.
    fn chunks(&self, run: RunNo, after: u64, limit: usize) -> Result<Vec<StoredChunk>>;

    /// Runs, newest first.
    fn list(&self, filter: &RunFilter) -> Result<Vec<RunSummary>>;

    /// The secret that completion tokens are made with: made once, the same for ever.
    fn secret(&self) -> Result<[u8; 32]>;

    /// Looks for damage: the database's own check, and the rows against each other.
    fn check(&self) -> Result<Health>;
}

/// Sessions: which server has which runs, and what is due.
pub trait Sessions {
    /// Opens a session that lives until `until` unless it is renewed.
    fn open_session(&self, name: &str, now: Time, until: Time) -> Result<SessionNo>;

    /// Renews a session that has not ended. Says whether it lives.
    fn renew_session(&self, session: SessionNo, now: Time, until: Time) -> Result<bool>;

    /// Ends a session; it can never be renewed.
    fn close_session(&self, session: SessionNo) -> Result<()>;

    /// Marks sessions whose time is over as dead, for ever, and returns those that still have runs.
    /// Dead sessions without runs are forgotten.
    fn dead_sessions(&self, now: Time) -> Result<Vec<SessionNo>>;

    /// Runs of a session, at most `limit`.
    fn runs_of(&self, session: SessionNo, limit: usize) -> Result<Vec<RunNo>>;

    /// Runs nobody has and that are not queued whose time has come, earliest (then smallest number)
    /// first; the time of one that was offered is the end of the offer. They are not offered again until `until`,
    /// unless their head changes, so that servers do not all wake the same run.
    fn due(&self, now: Time, until: Time, limit: usize) -> Result<Vec<RunNo>>;

    /// When `due` has its next run to offer.
    fn next_due(&self) -> Result<Option<Time>>;

    /// Queued runs that may start by their time, oldest first.
    fn queued(&self, now: Time, limit: usize) -> Result<Vec<RunNo>>;

    /// How many slots of a key are taken.
    fn slots_taken(&self, key: &str) -> Result<u32>;
}

/// Tasks: work for whoever serves its queue.
pub trait Tasks {
    /// Reserves visible tasks of these queues and operations for a worker until `until`; no two
    /// workers get the same one. By priority, time, run and target. A reservation is not a lease: the
    /// claim must be committed first.
    fn reserve(
        &self,
        serves: &[(String, String)],
        worker: &str,
        now: Time,
        until: Time,
        limit: usize,
    ) -> Result<Vec<TaskRow>>;

    /// Extends a lease that has not ended. Says whether the worker still has it; it does not if the
    /// run stops.
    fn heartbeat(
        &self,
        run: RunNo,
        target: &str,
        worker: &str,
        now: Time,
        until: Time,
    ) -> Result<bool>;

    /// Tasks whose lease (not mere reservation) has ended, at most `limit`; by its end, run and target.
    fn expired(&self, now: Time, limit: usize) -> Result<Vec<TaskRow>>;

    /// When `reserve` has its next task of these queues and operations to give: when one becomes
    /// visible, or the instant after its reservation ends.
    fn next_visible(&self, serves: &[(String, String)]) -> Result<Option<Time>>;
}

/// Messages to runs.
pub trait Mailbox {
    /// Puts a message into a run's mailbox.
    fn post(&self, to: RunNo, body: &str, now: Time) -> Result<MessageNo>;

    /// Unanswered messages to runs that nobody has or that `session` has, oldest first.
    fn mail(&self, session: SessionNo, limit: usize) -> Result<Vec<StoredMessage>>;

    /// Answers a message that stays until its sender has read the answer. The first answer counts, and
    /// one to a message that is gone is nothing.
    fn answer(&self, mail: MessageNo, answer: &str) -> Result<()>;

    /// What became of a message: `None` while it lies there, `Some(None)` once it was taken,
    /// `Some(Some(answer))` once it was answered; reading an answer removes it.
    fn answered(&self, mail: MessageNo) -> Result<Option<Option<String>>>;

    /// An event from outside that is not addressed to a run. It goes to the run that has waited
    /// longest for its type and key (by the time of the batch, then run and step), or is kept until one
    /// waits, which gets the oldest (by time, then id). The same id counts once.
    fn deliver(&self, event: &OutsideEvent, now: Time) -> Result<Delivered>;

    /// A number that changes when another process may have posted something; cheap to ask for.
    fn news(&self) -> Result<i64>;
}

/// The outbox, its dead letters, and alerts.
pub trait Outbox {
    /// Takes markers of a sink: for each run the oldest that is due and nobody has, at most `limit`
    /// runs, by the time they are due from and run. They are the publisher's until `until`.
    fn take(
        &self,
        sink: &str,
        publisher: &str,
        now: Time,
        until: Time,
        limit: usize,
    ) -> Result<Vec<Marker>>;

    /// The chunk that a marker stands for was delivered.
    fn sent(&self, marker: &Marker) -> Result<()>;

    /// Delivery failed, which is counted; try again from `at` on.
    fn failed(&self, marker: &Marker, at: Time, why: &str) -> Result<()>;

    /// Delivery failed for good: the marker becomes a dead letter, this failure counted, and an alert,
    /// in one transaction. Nothing if the marker is gone.
    fn bury(&self, marker: &Marker, now: Time, why: &str, alert: &NewAlert) -> Result<()>;

    /// Dead letters, oldest first.
    fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>>;

    /// Puts a dead letter back into the outbox, with no attempts, waiting and due since it was given up.
    /// Says whether there was one.
    fn redrive(&self, letter: i64) -> Result<bool>;

    /// How many markers of a sink wait, and since when the oldest does.
    fn backlog(&self, sink: &str) -> Result<(u64, Option<Time>)>;

    /// Raises an alert outside a run's commit.
    fn alert(&self, run: Option<RunNo>, alert: &NewAlert, now: Time) -> Result<()>;

    /// Alerts, newest first.
    fn alerts(&self, limit: usize) -> Result<Vec<AlertRow>>;

    /// Keeps the projection of a run, unless one that is further is kept already.
    fn put_projection(&self, run: RunNo, seq: u64, snapshot: &str, now: Time) -> Result<()>;

    /// The kept projection of a run and its watermark.
    fn projection(&self, run: RunNo) -> Result<Option<(u64, String)>>;
}

/// Everything a database must do.
pub trait Store: Log + Sessions + Tasks + Mailbox + Outbox + Send + Sync + fmt::Debug {
    /// `memory`, `sqlite` or `postgres`.
    fn kind(&self) -> &'static str;

    /// How many commits may be under way at a time.
    fn committers(&self) -> usize {
        1
    }

    /// How many bytes it takes on disk.
    fn bytes(&self) -> Result<u64> {
        Ok(0)
    }
}
