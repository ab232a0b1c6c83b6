//! The engine: takes commands to the kernel, commits what it decides, and does what follows.
//!
//! - `store`: the port of the databases, with the memory store that is the oracle for the others;
//!   `suite` (only with the feature `suite`): what every store must do, as code that any store can run.
//! - `coordinator`: holds the hot runs and turns decisions into commits; no thread, no clock.
//! - `service`: the coordinator in a loop with a clock, a worker and committers: the engine that everything
//!   runs on; `engine`: the same loop in line, on the caller's thread, for tests.
//! - `session_renewer`: keeps the session of a server alive, and ends its work in time if that fails.
//! - `shard`: which of several deciding threads has which run.
//! - `outbox`: takes what was committed to sinks outside; `projector`: keeps the contract's snapshots.
//! - `chain_check`: verifies the hash chain of a run that is read; `audit`: all of a run, for damage;
//!   `scrub`: audits one run after the other while the engine works.
//! - `chunk`, `rows`: how the log and the rows beside it are written.
//! - `outside`: what other engines report about runs; `engine_routes`: which definitions run on another engine.
//! - `mock`: a worker that pretends.
//! - `remote`: work for workers in other processes; `seats`: those of them that wait for work here.
//! - `read`: a run out of a store, for those who only look.
//!
//! No SQL, no HTTP, and no rule about workflows: those are the kernel's.

// A new variant must show every place that has to know of it.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod audit;
mod chain_check;
pub mod chunk;
pub mod clock;
pub mod coordinator;
pub mod engine;
mod engine_routes;
mod error;
pub mod limits;
pub mod mock;
mod number_map;
pub mod outbox;
mod outside;
pub mod port;
pub mod projector;
pub mod random;
pub mod read;
pub mod remote;
mod repeat;
pub mod rows;
mod scrub;
mod seats;
pub mod service;
mod session_renewer;
mod shard;
mod start;
pub mod store;
#[cfg(feature = "suite")]
#[allow(clippy::wildcard_enum_match_arm)] // A test names the answer that it wants.
pub mod suite;
mod ticker;

pub use chain_check::ChainCheck;
pub use engine::Engine;
pub use engine_routes::{EngineRoute, EngineRoutes, engine_outside};
pub use error::Error;
pub use limits::{Limits, WhenFull};
pub use outside::{RecordedEvent, record_outside};
pub use repeat::{AskedDefinition, check_repeated, check_repeated_parameter};
pub use scrub::{Scrub, ScrubOptions};
pub use seats::Seat;
pub use session_renewer::SessionRenewer;
pub use shard::Shard;
pub use start::{
    MAX_CHILD_DEPTH, MAX_LABELS, StartRequest, check_labels, check_request_id, run_id_for,
    run_id_of_request, run_id_of_trigger,
};
