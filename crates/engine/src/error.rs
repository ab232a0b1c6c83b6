//! Why a command did not go through.

use stepwell_kernel::contract::SchemaFault;
use stepwell_kernel::evolve::IllegalEvent;
use stepwell_kernel::rejection::Rejection;

use crate::chunk::ChunkFault;
use crate::store::StoreError;

/// Why a command did not go through. Nothing of it is in the log.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The kernel refused it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The store could not be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the kernel decided does not fit the contract's schemas: a bug, and nothing was written.
    #[error("run {run_id}: {source}")]
    Schema {
        run_id: String,
        /// What does not fit.
        source: SchemaFault,
    },
    /// The run's log cannot be read.
    #[error("run {run_id}: {source}")]
    Unreadable { run_id: String, source: ChunkFault },
    /// The run's log has an event that cannot follow those before it: the run is not served.
    #[error("LOG_INVALID: run {run_id}: {source}")]
    LogInvalid {
        run_id: String,
        source: IllegalEvent,
    },
    /// There is no such run here.
    #[error("RUN_UNKNOWN: there is no run {0}")]
    UnknownRun(String),
    /// The run's plan cannot be read.
    #[error("run {run_id}: its plan cannot be read: {why}")]
    Plan { run_id: String, why: String },
    /// Others changed the run each time before this command could be committed.
    #[error("RUN_CONTENDED: run {0} changes too fast; try again")]
    Contended(String),
    /// The database does not take a value of this command.
    #[error("VALUE_REFUSED: run {run_id}: the database refuses a value: {why}")]
    Refused { run_id: String, why: String },
    /// Another running instance has this business key.
    #[error("BIZ_KEY_TAKEN: a running instance has the business key {0:?} already")]
    BizKeyTaken(String),
    /// No slot is free, and the policy is to say so.
    #[error("CONCURRENCY_LIMIT: no slot is free for {key}; try again in {retry_after_ms} ms")]
    Busy {
        /// Whose slots.
        key: String,
        /// When to try again.
        retry_after_ms: u64,
    },
    /// The engine stops; the command was not taken.
    #[error("ENGINE_STOPS: the engine is shutting down")]
    Stopping,
}

impl Error {
    /// The code, for programs and for `stepwell explain`; none where something is broken that no
    /// caller can fix.
    #[must_use]
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Error::Rejected(rejection) => Some(rejection.code.name()),
            Error::Store(error) => Some(error.kind.code()),
            Error::LogInvalid { .. } => Some("LOG_INVALID"),
            Error::UnknownRun(_) => Some("RUN_UNKNOWN"),
            Error::Contended(_) => Some("RUN_CONTENDED"),
            Error::Refused { .. } => Some("VALUE_REFUSED"),
            Error::BizKeyTaken(_) => Some("BIZ_KEY_TAKEN"),
            Error::Busy { .. } => Some("CONCURRENCY_LIMIT"),
            Error::Stopping => Some("ENGINE_STOPS"),
            Error::Schema { .. } | Error::Unreadable { .. } | Error::Plan { .. } => None,
        }
    }
}
