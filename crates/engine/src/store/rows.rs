//! What is read back from a store.

use stepwell_kernel::effect::Priority;
use stepwell_kernel::time::Time;

use super::{CommitId, Head, MessageNo, PlanNo, RunNo, StateSnapshot};

/// A plan that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRow {
    /// Its number.
    pub no: PlanNo,
    /// The plan's own id.
    pub plan_id: String,
    /// Its version.
    pub version: String,
    /// Hash of the compiled plan.
    pub hash: String,
    /// The net, as JSON text.
    pub net: String,
}

/// A run with everything that is needed to go on.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRun {
    /// Its number.
    pub run: RunNo,
    /// Its id.
    pub run_id: String,
    /// Its plan.
    pub plan: PlanNo,
    /// What events are matched by.
    pub event_key: String,
    /// Its head.
    pub head: Head,
    /// How often the head has changed.
    pub head_version: i64,
    /// The latest state that was written down.
    pub snapshot: Option<StateSnapshot>,
    /// The chunk that the snapshot's last event is in, if there is a snapshot, and all after it.
    pub chunks: Vec<StoredChunk>,
    /// Its tasks.
    pub tasks: Vec<TaskRow>,
    /// Unanswered messages, oldest first.
    pub mail: Vec<StoredMessage>,
    /// Steps that wait for an event.
    pub waits: Vec<String>,
}

/// A chunk of a run's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredChunk {
    /// The first event's sequence number.
    pub first: u64,
    /// The last event's.
    pub last: u64,
    /// The commit that wrote it.
    pub commit: CommitId,
    /// How `body` is written.
    pub codec: i16,
    /// The events, as JSON text.
    pub body: String,
    /// For each event its id (16 bytes), idempotency key (32) and hash (32).
    pub digests: Vec<u8>,
}

/// A row of `tasks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    /// The run.
    pub run: RunNo,
    /// The step's id, with `~undo` for its undo.
    pub target: String,
    /// The queue.
    pub queue: String,
    /// The operation.
    pub op: String,
    /// Smaller first.
    pub priority: i32,
    /// Not before.
    pub visible_at: Time,
    /// Who reserved or leased it.
    pub worker: Option<String>,
    /// Until when.
    pub until: Option<Time>,
    /// The claim is committed.
    pub leased: bool,
    /// The worker must stop.
    pub stopping: bool,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its number; later ones have larger ones.
    pub no: MessageNo,
    /// To which run.
    pub run: RunNo,
    /// What it says, as JSON text.
    pub body: String,
}

/// An event from outside that is not addressed to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideEvent {
    /// Its id: delivered twice, it counts once.
    pub id: String,
    /// Its type.
    pub event_type: String,
    /// Whom it is for: a run's `event_key`.
    pub key: String,
    /// What it says, as JSON text.
    pub payload: String,
    /// The message to the run that gets it, as JSON text.
    pub mail: String,
}

/// What became of an event from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// A run that waits has it in its mailbox.
    ToRun(RunNo),
    /// It is kept until one waits.
    Kept,
    /// It had been delivered before.
    Again,
}

/// A marker of the outbox: the chunk of a run that begins at `first` is to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// To whom.
    pub sink: String,
    /// Which run.
    pub run: RunNo,
    /// The run's id.
    pub run_id: String,
    /// The chunk's first sequence number.
    pub first: u64,
    /// How often delivery has failed.
    pub attempts: u32,
}

/// A delivery that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its number.
    pub no: i64,
    /// What was to be delivered.
    pub marker: Marker,
    /// Why it was given up.
    pub why: String,
    /// When.
    pub at: Time,
}

/// An alert that was raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertRow {
    /// Its number.
    pub no: i64,
    /// About which run.
    pub run_id: Option<String>,
    /// Which alert.
    pub code: String,
    /// How urgent.
    pub priority: Priority,
    /// For people.
    pub message: String,
    /// When.
    pub at: Time,
}

/// Which runs to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only this status.
    pub status: Option<String>,
    /// Only runs of this plan.
    pub plan_id: Option<String>,
    /// Only runs of this tenant.
    pub tenant: Option<String>,
    /// Only runs that have not ended.
    pub open: bool,
    /// Only runs with a smaller number: the next page.
    pub before: Option<RunNo>,
    /// At most this many.
    pub limit: usize,
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Its number.
    pub run: RunNo,
    /// Its id.
    pub run_id: String,
    /// The plan's own id.
    pub plan_id: String,
    /// The plan's version.
    pub plan_version: String,
    /// Who it belongs to.
    pub tenant: String,
    /// When it was created.
    pub created_at: Time,
    /// Its head.
    pub head: Head,
    /// The last event's sequence number.
    pub last_seq: u64,
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
