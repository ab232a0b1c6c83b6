//! Stepwell inside a program: a store, an engine, a worker with the program's own handlers beside the
//! built-in tools, in one process. What runs here survives whatever ends the process.
//!
//! ```no_run
//! use serde_json::{Value, json};
//! use stepwell::{Failure, Job, Stepwell};
//!
//! async fn charge(job: Job, order: Value) -> Result<Value, Failure> {
//!     Ok(json!({ "receipt": format!("{}-{}", order["id"], job.idempotency_key) }))
//! }
//!
//! fn main() -> Result<(), stepwell::Error> {
//!     let stepwell = Stepwell::at("sqlite:orders.db").on("payments", "charge", charge).open()?;
//!     let run = stepwell.start("order.yaml", json!({ "id": 7 }))?;
//!     println!("{}", run.wait()?.output);
//!     stepwell.stop()
//! }
//! ```

#[doc(hidden)]
pub mod data;
mod embedded;
pub mod files;

pub use embedded::{Builder, Ended, Error, Run, Stepwell};
pub use stepwell_kernel::effect::RunOutcome;
pub use stepwell_kernel::plan::ErrorClass;
pub use stepwell_worker::{Failure, Job, Output, Reply};
