//! The worker: does the work whose claims are committed, with the built-in tools or with handlers
//! written in Rust, and reports what became of it. It never decides what happens next in a run.
//!
//! ```text
//! job ──► crew ──► pipeline ──► tool       (a step that names tools)
//!            └───► handler                 (a step that names a queue and an operation)
//! ```
//!
//! `secrets`, `artifacts` and `logs` are what every task may need; `means` puts them together.

pub mod artifacts;
pub mod crew;
pub mod handler;
mod keep;
pub mod log;
pub mod logs;
pub mod means;
pub mod outcome;
mod pipeline;
mod place;
mod ready;
mod scope;
pub mod secrets;
pub mod tool;
pub mod tools;

pub use crew::Crew;
pub use handler::{Failure, Handlers, Job, Output, Reply};
pub use means::Means;
