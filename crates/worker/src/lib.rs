//! The worker: does the work whose claims are committed, with the built-in tools or with handlers
//! written in Rust, and reports the results. It never decides what happens next in a run.
//!
//! ```text
//! job ──► crew ──► pipeline ──► tool       (a step that names tools)
//!            └───► handler                 (a step that names a queue and an operation)
//! ```
//!
//! A tool returns a [`outcome::TaskOutcome`]. The pipeline, or the handler's reply, becomes the kernel's
//! `Command` that completes, fails or suspends the step, and that command is what the [`Crew`] reports.
//!
//! [`secrets`], [`artifacts`] and [`logs`] are what every task may need; [`WorkerResources`] puts them
//! together with the tools. The table of tools is in the dialects; [`tools`] has one module for each.
//!
//! A handler is an async function for a queue and an operation:
//!
//! ```
//! use stepwell_worker::{Failure, Handlers, Job, Output};
//!
//! #[derive(serde::Deserialize)]
//! struct Charge {
//!     amount: u64,
//! }
//!
//! let handlers = Handlers::new()
//!     .on("billing", "charge", |job: Job, input: Charge| async move {
//!         job.log.note(&format!("charging {}", input.amount));
//!         Ok::<_, Failure>(Output(input.amount))
//!     })
//!     .limit("billing", 4);
//! assert_eq!(handlers.serves().count(), 1);
//! assert_eq!(handlers.limits()["billing"], 4);
//! ```

#![warn(clippy::wildcard_enum_match_arm)]

pub mod artifacts;
pub mod crew;
mod expression_location;
mod fence;
pub mod fetch;
mod file_rules;
pub mod handler;
pub mod large_params;
pub mod logs;
mod no_links;
pub mod outcome;
mod pipeline;
mod report;
pub mod resources;
mod result_reads;
mod retained;
mod scope;
pub mod secrets;
pub mod security;
pub mod step_log;
#[cfg(test)]
mod testing;
pub mod tool;
mod tool_rules;
pub mod tools;
mod warm_pool;

pub use crew::{Crew, OutsideInput, OutsideInputs};
pub use file_rules::FileRules;
pub use handler::{Failure, Handlers, Job, Output, Reply};
pub use resources::WorkerResources;
pub use security::{Security, Unguarded};
/// Which hosts may be connected to.
pub use stepwell_http::hosts;
pub use tool_rules::ToolRules;
