//! Why a command did not go through.

use stepwell_kernel::chain::ChainFault;
use stepwell_kernel::codes;
use stepwell_kernel::contract::SchemaFault;
use stepwell_kernel::evolve::IllegalEvent;
use stepwell_kernel::rejection::{Code, Rejection};

use crate::chunk::ChunkFault;
use crate::store::{StoreError, StoreErrorKind};

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
    /// The run's log has an entry that cannot be read: the run is not served.
    #[error("LOG_INVALID: run {run_id}: the log cannot be read: {source}")]
    Unreadable { run_id: String, source: ChunkFault },
    /// The run's log has an event that cannot follow those before it: the run is not served.
    #[error("LOG_INVALID: run {run_id}: {source}")]
    LogInvalid {
        run_id: String,
        source: IllegalEvent,
    },
    /// A newer version wrote events that this version does not know, and the event cannot follow those that it knows:
    /// the run is not served by this version.
    #[error(
        "STORE_NEWER: run {run_id}: a newer version of this program wrote events that this version does not know, and \
         {source}; use the newer version for this run"
    )]
    Newer {
        run_id: String,
        source: IllegalEvent,
    },
    /// The hash chain of the run's log is broken: the log is not what was written, and the run is not served.
    #[error("LOG_INVALID: run {run_id}: the log is damaged: {source}")]
    ChainBroken { run_id: String, source: ChainFault },
    /// The run was found damaged and is in quarantine until it is repaired.
    #[error("LOG_INVALID: run {run_id} is in quarantine: {why}; `stepwell db check` says more")]
    Quarantined { run_id: String, why: String },
    /// There is no such run here.
    #[error("RUN_UNKNOWN: there is no run {0}")]
    UnknownRun(String),
    /// The run's plan cannot be read.
    #[error("LOG_INVALID: run {run_id}: its plan cannot be read: {why}")]
    Plan { run_id: String, why: String },
    /// Others changed the run each time before this command could be committed.
    #[error("RUN_CONTENDED: run {0} changes too fast; try again")]
    Contended(String),
    /// The database cannot store a value of this command.
    #[error("VALUE_REFUSED: run {run_id}: the database refuses a value: {why}")]
    Refused { run_id: String, why: String },
    /// No slot is free, and the policy is to reject the command (`WhenFull::Reject`).
    #[error("CONCURRENCY_LIMIT: no slot is free for {key}; try again in {retry_after_ms} ms")]
    Busy {
        /// The slots that are full: `all`, `tenant/…`, `plan/…` or `key/…`.
        key: String,
        /// Milliseconds until the sender may try again; set by the policy.
        retry_after_ms: u64,
    },
    /// The run was started by another engine, which finishes it.
    #[error(
        "ENGINE_DIFFERS: run {run_id} was started by the engine {engine}, and the engine {asked} does not finish it"
    )]
    OtherEngine {
        run_id: String,
        /// The engine that started the run.
        engine: String,
        /// The engine that was to continue the run.
        asked: String,
    },
    /// The run is on a server, and this is what the server said, or why it was not reached.
    #[error("{code}: {why}")]
    Server { code: String, why: String },
    /// The engine stops; the command was not taken.
    #[error("ENGINE_STOPS: the engine is shutting down")]
    Stopping,
}

impl Error {
    /// Whether the run itself cannot be served: its log or its plan is not what was written, or a newer version is
    /// needed for it. The other runs go on.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Error::LogInvalid { .. }
            | Error::Newer { .. }
            | Error::Unreadable { .. }
            | Error::ChainBroken { .. }
            | Error::Quarantined { .. }
            | Error::Plan { .. } => true,
            Error::Rejected(_)
            | Error::Store(_)
            | Error::Schema { .. }
            | Error::UnknownRun(_)
            | Error::Contended(_)
            | Error::Refused { .. }
            | Error::Busy { .. }
            | Error::OtherEngine { .. }
            | Error::Server { .. }
            | Error::Stopping => false,
        }
    }

    /// The code, for programs and for `stepwell explain`; none where something is broken that no
    /// caller can fix.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Error::Rejected(rejection) => Some(rejection.code.name()),
            Error::Store(error) => Some(error.kind.code()),
            Error::LogInvalid { .. }
            | Error::Unreadable { .. }
            | Error::ChainBroken { .. }
            | Error::Quarantined { .. }
            | Error::Plan { .. } => Some(Code::LogInvalid.name()),
            Error::Newer { .. } => Some(StoreErrorKind::Newer.code()),
            Error::UnknownRun(_) => Some(Code::RunUnknown.name()),
            Error::Contended(_) => Some(codes::RUN_CONTENDED),
            Error::Refused { .. } => Some(codes::VALUE_REFUSED),
            Error::Busy { .. } => Some(codes::CONCURRENCY_LIMIT),
            Error::OtherEngine { .. } => Some(codes::ENGINE_DIFFERS),
            Error::Server { code, .. } => Some(code),
            Error::Stopping => Some(codes::ENGINE_STOPS),
            Error::Schema { .. } => None,
        }
    }
}
