//! The worker: does the work whose claims are committed, with the built-in tools or with handlers
//! written in Rust, and reports the results. It never decides what happens next in a run.
//!
//! ```text
//! job ──► crew ──► pipeline ──► tool       (a step that names tools)
//!            └───► handler                 (a step that names a queue and an operation)
//! ```
//!
//! `secrets`, `artifacts` and `logs` are what every task may need; `resources` puts them together.

pub mod artifacts;
pub mod crew;
mod expression_location;
pub mod handler;
pub mod logs;
pub mod outcome;
mod pipeline;
mod report;
pub mod resources;
mod retained;
mod scope;
pub mod secrets;
pub mod step_log;
pub mod tool;
pub mod tools;
mod warm_pool;

pub use crew::Crew;
pub use handler::{Failure, Handlers, Job, Output, Reply};
pub use resources::WorkerResources;
