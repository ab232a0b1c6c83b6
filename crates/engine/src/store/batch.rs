//! The values of a commit: for each run a chunk of its log and the rows that follow from it.

use std::collections::BTreeMap;

pub use stepwell_dialects::ViewRow;
pub use stepwell_kernel::plan::UniqueKey;
use stepwell_kernel::time::Time;

use super::{CommitId, MessageNo, NewAlert, PlanNo, RunNo, SessionNo};

/// Appends to many runs, at most one for each, in the order of their numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Identifies the batch. A batch that is sent again has the same id and the same content.
    pub id: CommitId,
    /// The session of the sender; absent for a sender that owns no runs.
    pub session: Option<SessionNo>,
    /// The sender's time. A database that several servers share uses its own clock for leases.
    pub now: Time,
    /// One for each run.
    pub appends: Vec<Append>,
}

/// One run's part of a commit: all of it or nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    pub run: RunNo,
    /// The run's own row, with its first chunk.
    pub create: Option<Box<NewRun>>,
    /// The last sequence number that the sender knows.
    pub after: u64,
    /// The events; none if only rows change (see `head_version`).
    pub chunk: Option<Chunk>,
    /// Further conditions for the append.
    pub guards: Vec<Guard>,
    /// The run's head as it is now. Always there unless the sender owns the run.
    pub head: Option<Head>,
    /// With no chunk: the version of the head that the sender knows. Such an append always counts the
    /// version on, even if `head` is not there, so that a second sending is recognised.
    pub head_version: Option<i64>,
    /// Changes of the work that is offered to workers in other processes.
    pub tasks: Vec<TaskChange>,
    /// Changes of the steps that wait for an event.
    pub waits: Vec<WaitChange>,
    /// The key that only one open run may have, when the run is created and when it ends.
    pub unique_key: Option<Box<KeyChange>>,
    /// Rows for readers with SQL, which the language of the run makes. The last one of a place counts.
    pub view_rows: Vec<ViewRow>,
    /// Messages that this append takes. The append is refused if one is gone, answered, or for another run.
    pub taken: Vec<MessageNo>,
    /// Messages to this run or to other runs.
    pub mail: Vec<NewMessage>,
    /// The sinks that the chunk is to be delivered to.
    pub sinks: Vec<String>,
    /// Slots that are taken or freed.
    pub slots: Vec<SlotChange>,
    /// The state, so that the log before it need not be read.
    pub snapshot: Option<StateSnapshot>,
    /// Alerts to be raised with this append.
    pub alerts: Vec<NewAlert>,
}

impl Append {
    /// An append that changes nothing yet.
    #[must_use]
    pub fn new(run: RunNo, after: u64) -> Append {
        Append {
            run,
            create: None,
            after,
            chunk: None,
            guards: Vec::new(),
            head: None,
            head_version: None,
            tasks: Vec::new(),
            waits: Vec::new(),
            unique_key: None,
            view_rows: Vec::new(),
            taken: Vec::new(),
            mail: Vec::new(),
            sinks: Vec::new(),
            slots: Vec::new(),
            snapshot: None,
            alerts: Vec::new(),
        }
    }
}

/// The row of a run that is created.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewRun {
    /// Unique in the store.
    pub run_id: String,
    /// Key of the start request; unique in the store if present.
    pub request_key: Option<String>,
    pub plan: Option<PlanNo>,
    /// The tenant that the run belongs to.
    pub tenant: String,
    pub project: String,
    pub environment: String,
    /// The parent run, which waits for this run.
    pub parent: Option<String>,
    /// Events from outside reach the run by this key; the run's id if the plan defines no key.
    pub event_key: String,
    pub created_at: Time,
    /// Queued runs with a greater number start first.
    pub priority: i32,
    /// What lists of runs are searched by.
    pub labels: BTreeMap<String, String>,
}

/// Events of one run and commit, encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Sequence number of the first event: `after + 1`.
    pub first: u64,
    /// Sequence number of the last event.
    pub last: u64,
    /// The format of `body`.
    pub codec: i16,
    /// The events, as JSON text.
    pub body: String,
    /// For each event its id (16 bytes), idempotency key (32) and hash (32).
    pub digests: Vec<u8>,
    /// For each event the preimage of its key. Unique in the run.
    pub keys: Vec<Vec<u8>>,
}

/// What must hold for an append, checked in its own transaction by the database's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The session of the batch is alive.
    Session,
    /// This session is dead.
    Dead(SessionNo),
    /// The worker holds the reservation or the lease of this task.
    Lease { target: String, worker: String },
    /// The lease of this task has ended.
    Expired { target: String },
}

/// The one changing row of a run: status, owner and next wake-up time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Status of the run, as the execution contract spells it: `RUNNING`, `PAUSED` and so on.
    pub status: String,
    /// Substatus of the run, as the execution contract spells it; absent if the status has none.
    pub substatus: Option<String>,
    /// The session that owns the run; absent if no server owns the run.
    pub session: Option<SessionNo>,
    /// When a server must look at the run, if no server owns it. A queued run does not start before this time.
    pub wake_at: Option<Time>,
    /// Whether the run waits for a slot.
    pub queued: bool,
    pub ended_at: Option<Time>,
    /// The slots that the run holds; when the run ends, exactly these are freed. They change only in an append that
    /// takes or frees slots.
    pub slots: Vec<String>,
}

/// A change of the rows of `tasks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskChange {
    /// There is work. Replaces the row of this target, with its reservation.
    Put {
        /// The step's id, with `~undo` for its undo.
        target: String,
        queue: String,
        op: String,
        /// Workers get tasks with smaller numbers first; the order of the step in its plan.
        priority: i32,
        /// Workers do not see the task before this time.
        visible_at: Time,
    },
    /// A worker has claimed the task.
    Lease {
        target: String,
        worker: String,
        until: Time,
    },
    /// The task is done or no longer wanted.
    Delete { target: String },
    /// The worker must stop: its heartbeats are refused, and the lease expires or the worker ends it.
    Stop { target: String },
}

impl TaskChange {
    /// The task that changes.
    #[must_use]
    pub fn target(&self) -> &str {
        match self {
            TaskChange::Put { target, .. }
            | TaskChange::Lease { target, .. }
            | TaskChange::Delete { target }
            | TaskChange::Stop { target } => target,
        }
    }
}

/// A change of the rows of `waits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitChange {
    /// A step waits for an event. If the store has such an event already, it becomes a message in the same commit.
    Put {
        /// The id of the step-run.
        step: String,
        event_type: String,
    },
    /// The step no longer waits.
    Delete { step: String },
}

/// A change of the owner of a unique key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// The run that is created has the key from now on. Refused while another run has it.
    Take(UniqueKey),
    /// The run has ended: others may have the key.
    Free(UniqueKey),
}

impl KeyChange {
    /// The key that changes hands.
    #[must_use]
    pub fn key(&self) -> &UniqueKey {
        match self {
            KeyChange::Take(key) | KeyChange::Free(key) => key,
        }
    }

    /// The key that a run wants to have.
    #[must_use]
    pub fn taken(&self) -> Option<&UniqueKey> {
        match self {
            KeyChange::Take(key) => Some(key),
            KeyChange::Free(_) => None,
        }
    }
}

/// A message to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// The run's id. Mail to a run that is not there is dropped.
    pub to: String,
    /// What it says, as JSON text.
    pub body: String,
}

/// Slots that are taken (positive) or freed (negative).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotChange {
    /// The slots: `all`, `tenant/…`, `plan/…` or `key/…`.
    pub key: String,
    pub change: i32,
    /// The number of slots. The append is refused if more would be taken; absent when slots are freed.
    pub limit: Option<u32>,
}

/// The encoded state of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSnapshot {
    /// Sequence number of the last event in the state.
    pub seq: u64,
    /// The format of `body`; a snapshot of another version is ignored.
    pub version: i32,
    pub body: Vec<u8>,
}
