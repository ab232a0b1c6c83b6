//! A client of the Stepwell server, without the engine: workers that do steps in a process of their own, and the simple
//! calls. `docs/protocol.md` describes what goes over the wire.
//!
//! - [`WorkerClient`]: handlers for queues and operations; asks for work, keeps its leases, reports results in batches.
//! - [`WorkLoop`]: the same without handlers, for those who execute tasks in their own way.
//! - [`Connection`]: one method for each request: runs, their logs and streams, commands, sinks, tokens, and those of
//!   workers.
//! - [`EventStream`]: the log or the snapshots of a run as they come.
//! - [`protocol`]: the values of the requests and answers.
//!
//! ```no_run
//! # async fn example() -> Result<(), stepwell_client::ClientError> {
//! use stepwell_client::{Outcome, WorkerClient};
//!
//! WorkerClient::new("http://127.0.0.1:7117", None)?
//!     .on("order", "PACK", |task| async move {
//!         let what = task.input["what"].clone();
//!         Outcome::done(serde_json::json!({ "packed": what }))
//!     })
//!     .run(async {
//!         // Drains when this future ends.
//!         std::future::pending::<()>().await;
//!     })
//!     .await
//! # }
//! ```

mod connection;
mod error;
mod operations;
pub mod protocol;
mod runs;
mod stream;
mod work_loop;
mod worker;

pub use connection::{ActsAs, Connection, ConnectionOptions};
pub use error::ClientError;
pub use operations::PendingDeliveries;
pub use protocol::{Outcome, Task, TaskError, TaskResult, Wait};
pub use runs::{
    CommandAnswer, DeliveredEvent, EventPage, ExecutionLog, LogPage, StartedRun, StepLogLine,
};
pub use stream::{EventStream, StreamEvent};
pub use work_loop::{Execute, Executing, LinkChange, WorkLoop, WorkOptions};
pub use worker::WorkerClient;
