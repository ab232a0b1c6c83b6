//! Stepwell inside a program: a store, an engine, and a worker with the program's own handlers beside the
//! built-in tools, in one process. Runs survive the end of the process, however it ends: the next process
//! that opens the store goes on with them. The command `stepwell run` uses the same engine.
//!
//! ```
//! use serde_json::{Value, json};
//! use stepwell::files::Definition;
//! use stepwell::{Failure, Job, Stepwell};
//! use std::sync::Arc;
//!
//! /// The step `charge` of the queue `payments`.
//! async fn charge(job: Job, order: Value) -> Result<Value, Failure> {
//!     // The key is the same for every attempt, so the bank can tell a retry from a second charge.
//!     Ok(json!({ "order": order["id"], "receipt": job.idempotency_key }))
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // In a file, `stepwell.start("order.yaml", params)` is enough.
//!     let text = "
//! apiVersion: ioa.dev/v0.2
//! kind: Workflow
//! metadata: {name: order, owner: shop, version: '1'}
//! spec:
//!   timeout: 5m
//!   failurePolicy: abort
//!   steps: [{name: charge, agent: payments, action: charge}]
//! ";
//!     let plan = Arc::new(Definition::from_text("order.yaml", text).into_plan()?);
//!
//!     // `sqlite:orders.db` or `postgresql://...` keep the runs when the process ends.
//!     let stepwell = Stepwell::at("memory:").on("payments", "charge", charge).open()?;
//!     let run = stepwell.start_plan(&plan, None, json!({ "id": 7 }))?;
//!     assert_eq!(run.wait()?.output["order"], 7);
//!     stepwell.stop()?;
//!     Ok(())
//! }
//! ```
//!
//! [`Stepwell`] is the engine, [`Run`] a run of it, [`Reply`] and [`Failure`] what a handler may answer.
//! `docs/handlers.md` has the details.

#![warn(clippy::wildcard_enum_match_arm)]

/// The example of `docs/effects.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/effects.md")]
pub struct EffectsPage;

#[doc(hidden)]
pub mod data;
mod embedded;
pub mod engine_settings;
pub mod files;
pub mod profiles;
pub mod server_settings;
pub mod settings;
pub mod telemetry_settings;

pub use embedded::{Builder, Ended, Error, Run, RunFailure, StartOptions, Stepwell};
pub use stepwell_engine::{Limits, ScrubOptions, WhenFull};
pub use stepwell_kernel::effect::RunOutcome;
pub use stepwell_kernel::event::StepError;
pub use stepwell_kernel::plan::ErrorClass;
pub use stepwell_worker::{Failure, Job, Output, Reply};
