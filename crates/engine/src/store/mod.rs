//! The port of the stores: what the engine needs from a database, in small traits, one for each concern.
//!
//! | trait | what it keeps |
//! |---|---|
//! | [`Commits`] | appends to runs: the only way events get in |
//! | [`Plans`] | plans, each kept once |
//! | [`RunReader`] | runs read back: recovery begins here |
//! | [`Sessions`] | which server owns which runs |
//! | [`WakeQueue`] | runs whose time has come |
//! | [`Slots`] | how many runs of a key run, and which wait |
//! | [`Tasks`] | work for workers outside, and its leases |
//! | [`Mailbox`] | messages to runs, and their answers |
//! | [`Inbox`] | events from outside, and who waits for them |
//! | [`Outbox`] | what is still to be delivered to sinks |
//! | [`DeadLetters`] | deliveries that were given up |
//! | [`Alerts`] | what a person must be told |
//! | [`Projections`] | the contract's snapshots |
//! | [`Documents`] | small documents of the installation |
//! | [`AuditLog`] | who did what |
//! | [`Retention`] | runs that ended long ago are deleted |
//! | [`Maintenance`] | the store as a whole |
//!
//! [`Store`] is all of them together, with what a store can do ([`Capabilities`]). A store moves rows
//! and enforces constraints; it never decides. The log is the truth; every other row follows from events
//! and is written only in the commit that appends the events (`batch`). All calls block; the engine makes
//! them from threads of their own.
//!
//! # Crash recovery
//!
//! Every method says what is durable when it returns, what a crash means, and what a second call does.
//! On `Err` nothing was done, except after [`StoreErrorKind::AnswerLost`], when nobody knows: then the
//! same call is made again. Rules that every store keeps, and that the store suite checks:
//!
//! - An append is a compare-and-set on the run's last sequence number, for each run of a batch alone.
//! - A sender that does not own a run writes the run's head in every append ([`Head`]), or leaves the run
//!   a message; and a change of the head without events is a compare-and-set on the head's version. So no
//!   wake-up is ever overwritten.
//! - A commit whose answer was lost is sent again as it was; the store recognises the commit by its id.
//! - A time that something lasts until is its last instant: at `until == now` it still lasts.
//!
//! An append is refused for the first of these reasons that is true: the run, or the commit, is there
//! already (`RunExists`, `Again`); `RequestTaken`; a plan that is not kept (`Refused`); `Moved`;
//! `KeyExists`; `UniqueKeyTaken`; `GuardFailed`; a message is gone or answered (`Moved`); `SlotsFull`.
//! Appends of a batch are decided in their order, each after the changes of those before it that were
//! committed; messages are put into mailboxes after all of them.
//!
//! # Example
//!
//! A run is created and read back. A second server that does not know of the first event is told so.
//!
//! ```
//! use stepwell_engine::store::{
//!     Append, AppendResult, Batch, Chunk, CommitId, Commits as _, Head, MemoryStore, NewRun, Plans as _,
//!     RunNo, RunReader as _,
//! };
//! use stepwell_dialects::{Source, load};
//! use stepwell_kernel::time::Time;
//!
//! let text = "workflowType: shop.order\nworkflowVersion: 1\nsteps: [{stepType: PACK}]\n";
//! let source = Source::from_bytes("order.yaml", text.as_bytes()).expect("it is UTF-8");
//! let plan = load(&source).plan.expect("it is a valid definition");
//!
//! let store = MemoryStore::default();
//! let plan = store.put_plan(&plan)?;
//! let run = RunNo(store.reserve_numbers(1)?.start);
//!
//! let mut first = Append::new(run, 0);
//! first.create = Some(Box::new(NewRun {
//!     run_id: "run_1".into(),
//!     plan: Some(plan),
//!     event_key: "run_1".into(),
//!     ..NewRun::default()
//! }));
//! first.chunk = Some(Chunk {
//!     first: 1,
//!     last: 1,
//!     codec: 1,
//!     body: "[]".into(),
//!     digests: vec![0; 80],
//!     keys: vec![b"run_1/created".to_vec()],
//! });
//! first.head = Some(Head { status: "RUNNING".into(), ..Head::default() });
//! let batch = Batch {
//!     id: CommitId { session: 0, number: 1 },
//!     session: None,
//!     now: Time(0),
//!     appends: vec![first],
//! };
//! assert_eq!(store.commit(&batch)?, [AppendResult::Committed]);
//!
//! // The answer was lost: the same batch again is recognised and done once.
//! assert_eq!(store.commit(&batch)?, [AppendResult::Again]);
//!
//! // A different commit that begins at the same place comes too late.
//! let mut late = batch.clone();
//! late.id.number = 2;
//! assert_eq!(store.commit(&late)?, [AppendResult::RunExists]);
//!
//! let stored = store.load(run)?.expect("the run is there");
//! assert_eq!((stored.head.status.as_str(), stored.chunks.len()), ("RUNNING", 1));
//! # Ok::<(), stepwell_engine::store::StoreError>(())
//! ```

mod alerts;
mod audit_log;
mod batch;
mod change_feed;
mod commits;
mod dead_letters;
mod documents;
#[cfg(feature = "suite")]
mod dump;
mod error;
mod inbox;
mod mailbox;
mod maintenance;
mod memory;
mod outbox;
mod patience;
mod patient;
mod plans;
mod projections;
mod retention;
mod run_reader;
mod sessions;
mod slots;
mod tasks;
mod wake_queue;

use std::fmt;

use crate::read::RunSource;

pub use alerts::{AlertRow, Alerts, NewAlert, NoticeFilter};
pub use audit_log::{AuditFilter, AuditLog, AuditRow, StoredAuditRow};
pub use batch::{
    Append, Batch, Chunk, Guard, Head, KeyChange, NewMessage, NewRun, SlotChange, StateSnapshot,
    TaskChange, UniqueKey, ViewRow, WaitChange,
};
pub use change_feed::{ChangeFeed, Changed, Mark, NoMark};
pub use commits::{AppendResult, Commits};
pub use dead_letters::{DeadLetter, DeadLetters};
pub use documents::{DocumentFilter, Documents, NewDocument, StoredDocument};
#[cfg(feature = "suite")]
pub use dump::{DumpRows, StoreDump};
pub use error::{Result, StoreError, StoreErrorKind};
pub use inbox::{
    Delivered, Inbox, InboxEvent, LOCAL_TENANT, OutsideEvent, TRIGGER_KEY, name_of_tenant,
    tenant_and_name,
};
pub use mailbox::{Mailbox, MessageState, StoredMessage};
pub use maintenance::{DerivedRows, Health, KeptRows, Maintenance, RunColumns, WaitingCounts};
pub use memory::MemoryStore;
pub use outbox::{DeliveryFailure, Marker, MarkerState, Outbox, SinkRow, SinkStart};
pub use patience::{Asks, LogWaits, Patience, WaitListener};
pub use patient::PatientStore;
pub use plans::{PlanRow, Plans};
pub use projections::{NewProjection, Projections};
pub use retention::{DeleteFilter, DeletedRun, Retention};
pub use run_reader::{
    COUNTED_FASTER, FoundRuns, RunCounts, RunFilter, RunReader, RunSummary, StoredChunk, StoredRun,
};
pub use sessions::Sessions;
pub use slots::Slots;
pub use tasks::{TaskRow, Tasks};
pub use wake_queue::WakeQueue;

/// A run's number in a store: small, and later runs have larger ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunNo(pub i64);

/// A plan's number in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanNo(pub i64);

/// The number of a server's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionNo(pub i64);

/// The number of a message in the mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageNo(pub i64);

/// What a commit is known by: unique in a store, because a session's number is part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitId {
    /// The session that made it; zero for what is written without a session.
    pub session: i64,
    /// Which of the session's commits.
    pub number: i64,
}

/// What a store can do. The engine asks for these, never for a store's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Other processes may append to runs at the same time, so a run that this process does not own may
    /// have changed since it was read.
    pub shared: bool,
    /// Committed rows survive the end of the process.
    pub durable: bool,
    /// How many commits may be under way at a time.
    pub concurrent_commits: usize,
}

/// Everything a database must do.
pub trait Store:
    Commits
    + Plans
    + RunReader
    + ChangeFeed
    + Sessions
    + WakeQueue
    + Slots
    + Tasks
    + Mailbox
    + Inbox
    + Outbox
    + DeadLetters
    + Alerts
    + Projections
    + Documents
    + AuditLog
    + Retention
    + Maintenance
    + RunSource
    + Send
    + Sync
    + fmt::Debug
{
    /// A name for people: `memory`, `sqlite`, `postgres`. Programs ask for `capabilities`.
    fn name(&self) -> &'static str;

    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// Whether other processes may append to runs at the same time.
    fn is_shared(&self) -> bool {
        self.capabilities().shared
    }
}
