//! The engine: takes commands to the kernel, commits what it decides, and does what follows.
//!
//! - `store`: the port of the databases, with the memory store that is the oracle for the others;
//!   `suite` (only with the feature `suite`): what every store must do, as code that any store can run.
//! - `coordinator`: holds the hot runs and turns decisions into commits; no thread, no clock.
//! - `service`: the coordinator in a loop with a clock, a worker and committers: the engine that everything
//!   runs on; `engine`: the same loop in line, on the caller's thread, for tests.
//! - `outbox`: takes what was committed to sinks outside; `projector`: keeps the contract's snapshots.
//! - `chunk`, `rows`: how the log and the rows beside it are written.
//! - `outside`: what other engines report about runs.
//! - `mock`: a worker that pretends.
//! - `read`: a run out of a store, for those who only look.
//!
//! No SQL, no HTTP, and no rule about workflows: those are the kernel's.

pub mod chunk;
pub mod clock;
pub mod coordinator;
pub mod engine;
mod error;
pub mod limits;
pub mod mock;
mod number_map;
pub mod outbox;
mod outside;
pub mod port;
pub mod projector;
pub mod read;
pub mod rows;
pub mod service;
mod start;
pub mod store;
#[cfg(feature = "suite")]
pub mod suite;
mod ticker;

pub use engine::Engine;
pub use error::Error;
pub use outside::{RecordedEvent, record_outside};
pub use start::{MAX_CHILD_DEPTH, StartRequest, run_id_for};
