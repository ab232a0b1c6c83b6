//! A worker with handlers: async functions for queues and operations.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::error::ClientError;
use crate::protocol::{Outcome, ServedPair, Task};
use crate::work_loop::{Execute, Executing, WorkLoop, WorkOptions};

type Handler = Arc<dyn Fn(Task) -> Executing + Send + Sync>;

/// A worker in a process of its own.
pub struct WorkerClient {
    connection: Connection,
    options: WorkOptions,
    handlers: HashMap<ServedPair, Handler>,
}

impl std::fmt::Debug for WorkerClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerClient")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl WorkerClient {
    /// A worker of the server at this address, with an API token if the server needs one.
    pub fn new(url: &str, token: Option<String>) -> Result<WorkerClient, ClientError> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.unwrap_or_default().as_micros();
        Ok(WorkerClient {
            connection: Connection::new(url, token)?,
            options: WorkOptions {
                worker_id: format!("worker-{}-{now}", std::process::id()),
                serves: Vec::new(),
                parallel: 16,
                lease: Duration::from_secs(30),
                grace: Duration::from_secs(10),
            },
            handlers: HashMap::new(),
        })
    }

    /// Sets the name of the worker; no two processes share one.
    #[must_use]
    pub fn named(mut self, worker_id: &str) -> WorkerClient {
        self.options.worker_id = worker_id.to_owned();
        self
    }

    /// Sets how many tasks there may be at a time.
    #[must_use]
    pub fn parallel(mut self, tasks: usize) -> WorkerClient {
        self.options.parallel = tasks.max(1);
        self
    }

    /// Sets how long a task belongs to the worker without a heartbeat.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> WorkerClient {
        self.options.lease = lease;
        self
    }

    /// Adds a handler for a queue and an operation. A handler whose work is cancelled is dropped at its next `await`.
    #[must_use]
    pub fn on<F, Fut>(mut self, queue: &str, operation: &str, handler: F) -> WorkerClient
    where
        F: Fn(Task) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        let serves = ServedPair {
            queue: queue.to_owned(),
            operation: operation.to_owned(),
        };
        self.options.serves.push(serves.clone());
        let handler: Handler = Arc::new(move |task| Box::pin(handler(task)));
        self.handlers.insert(serves, handler);
        self
    }

    /// Works until `until` ends, then drains.
    pub async fn run(self, until: impl Future<Output = ()>) -> Result<(), ClientError> {
        let executor = Handlers(self.handlers);
        WorkLoop::new(self.connection, self.options, executor)
            .run(until)
            .await
    }
}

struct Handlers(HashMap<ServedPair, Handler>);

impl Execute for Handlers {
    fn execute(&self, task: Task, cancelled: CancellationToken) -> Executing {
        let serves = ServedPair {
            queue: task.queue.clone(),
            operation: task.operation.clone(),
        };
        let Some(handler) = self.0.get(&serves).cloned() else {
            // The server gives only what was asked for.
            return Box::pin(async {
                Outcome::failed("validation", "HANDLER_MISSING", "no handler for this task")
            });
        };
        Box::pin(async move {
            tokio::select! {
                outcome = handler(task) => outcome,
                () = cancelled.cancelled() => Outcome::Stopped,
            }
        })
    }
}
