//! The values of a commit: for each run a chunk of its log and the rows that follow from it.

use stepwell_kernel::time::Time;

use super::{CommitId, MessageNo, NewAlert, PlanNo, RunNo, SessionNo};

/// Appends to many runs, at most one for each, in the order of their numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// What it is known by. A batch that is sent again has the same id and the same content.
    pub id: CommitId,
    /// Who sends it.
    pub session: Option<SessionNo>,
    /// The sender's time. Databases with a clock that everyone shares use their own for leases.
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
    /// What must hold besides.
    pub guards: Vec<Guard>,
    /// The run's head as it is now. Always there unless the sender owns the run.
    pub head: Option<Head>,
    /// With no chunk: the version of the head that the sender knows. Such an append always counts the
    /// version on, even if `head` is not there, so that a second sending is recognised.
    pub head_version: Option<i64>,
    /// Work for others.
    pub tasks: Vec<TaskChange>,
    /// Who waits for which event.
    pub waits: Vec<WaitChange>,
    /// The rows of a linear run.
    pub linear: Option<Box<LinearRows>>,
    /// Messages that this append takes; if one is gone, answered, or another run's, it is refused.
    pub taken: Vec<MessageNo>,
    /// Messages to runs.
    pub mail: Vec<NewMessage>,
    /// The sinks that the chunk is to be delivered to.
    pub sinks: Vec<String>,
    /// Slots that are taken or freed.
    pub slots: Vec<SlotChange>,
    /// The state, so that the log before it need not be read.
    pub snapshot: Option<StateSnapshot>,
    /// What someone must be told.
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
            linear: None,
            taken: Vec::new(),
            mail: Vec::new(),
            sinks: Vec::new(),
            slots: Vec::new(),
            snapshot: None,
            alerts: Vec::new(),
        }
    }
}

/// A run that comes into being.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewRun {
    /// Its id, unique.
    pub run_id: String,
    /// The start request's key, unique if there is one.
    pub request_key: Option<String>,
    pub plan: Option<PlanNo>,
    /// Who it belongs to.
    pub tenant: String,
    pub project: String,
    pub environment: String,
    /// The run that waits for it.
    pub parent: Option<String>,
    /// What events are matched by; the run's id if it has no key of its own.
    pub event_key: String,
    pub created_at: Time,
}

/// Events of one run and commit, encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The first event's sequence number: `after + 1`.
    pub first: u64,
    /// The last event's.
    pub last: u64,
    /// How `body` is written.
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
    /// The batch's session lives.
    Session,
    /// That session is dead.
    Dead(SessionNo),
    /// The worker has reserved or leased this task, and not lost it.
    Lease {
        /// The task.
        target: String,
        worker: String,
    },
    /// The lease of this task has ended.
    Expired {
        /// The task.
        target: String,
    },
}

/// The one row of a run that changes: what the run is doing and who sees to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The contract's word.
    pub status: String,
    /// The contract's second word.
    pub substatus: Option<String>,
    /// The server that has it.
    pub session: Option<SessionNo>,
    /// When it must be looked at, if nobody has it. For a queued run: not to be started before.
    pub wake_at: Option<Time>,
    /// It waits for a slot.
    pub queued: bool,
    pub ended_at: Option<Time>,
    /// The slots that it holds, so that exactly these are freed.
    pub slots: Vec<String>,
}

/// A change of the rows of `tasks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskChange {
    /// There is work; replaces what was known of it, reservation included.
    Put {
        /// The step's id, with `~undo` for its undo.
        target: String,
        queue: String,
        /// The operation.
        op: String,
        /// Smaller first.
        priority: i32,
        /// Not before.
        visible_at: Time,
    },
    /// A worker has claimed it.
    Lease {
        target: String,
        worker: String,
        until: Time,
    },
    /// It is done, or no longer wanted.
    Delete { target: String },
    /// Its worker must stop: heartbeats are refused, the lease ends by itself or by the worker.
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
    /// A step waits for an event. One that is kept for it already becomes mail in the same commit.
    Put {
        /// The step's id.
        step: String,
        event_type: String,
    },
    /// It no longer does.
    Delete {
        /// The step's id.
        step: String,
    },
}

/// The rows of a linear run, under the names of its specification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinearRows {
    /// The instance, whenever it changes.
    pub instance: Option<LinearInstance>,
    /// The steps that changed; all of them at the start.
    pub steps: Vec<LinearStep>,
}

/// A row of `workflow_instance`, without what other tables have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinearInstance {
    /// What the run is about; unique among RUNNING instances of a type.
    pub biz_key: Option<String>,
    pub workflow_type: String,
    pub workflow_version: i64,
    /// RUNNING, COMPLETED, FAILED or CANCELED.
    pub status: String,
    /// The first step that is not done.
    pub current_step_seq: u32,
    pub current_step_type: String,
    /// When the run started.
    pub started_at: Option<Time>,
    pub completed_at: Option<Time>,
    pub failed_at: Option<Time>,
}

/// A row of `workflow_step`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinearStep {
    /// The step's place, from 0.
    pub step_seq: u32,
    pub step_type: String,
    /// PENDING, READY, RUNNING, WAITING, DONE or DEAD.
    pub status: String,
    /// How many executions have failed.
    pub attempts: u32,
    /// How many may.
    pub max_attempts: u32,
    /// From when a READY step can be claimed.
    pub next_run_at: Option<Time>,
    /// The event a WAITING step waits for.
    pub waiting_event_type: Option<String>,
    /// How long it waits.
    pub deadline_at: Option<Time>,
    /// The worker of a RUNNING step.
    pub locked_by: Option<String>,
    /// The end of its lease.
    pub locked_until: Option<Time>,
    /// Why the last execution failed.
    pub last_error: Option<String>,
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
    /// Whose: `tenant/…`, `plan/…`, `key/…`.
    pub key: String,
    /// By how many.
    pub change: i32,
    /// How many there are; if more would be taken, the append is refused.
    pub limit: Option<u32>,
}

/// A run's state, written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSnapshot {
    /// The last event in it.
    pub seq: u64,
    /// Which program can read it; one of another version is ignored.
    pub version: i32,
    /// The state.
    pub body: Vec<u8>,
}
