//! The tool `postgres`: runs SQL on a PostgreSQL server. Which statements there are and what a
//! result looks like is shared with the other databases, in `tools/sql`.

mod address;
mod connection;
mod error;
mod pool;
mod session;
#[cfg(test)]
mod tests;
mod values;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::file_rules::FileRules;
use crate::hosts::HostRules;
use crate::outcome::{TaskOutcome, ToolError};
use crate::tool::{StopReason, TaskContext, Tool, ToolCall, ToolFuture};
use crate::tools::sql::codes;
use crate::tools::sql::rows::{Budget, StatementResult, result};
use crate::tools::sql::scan::SqlDialect;
use crate::tools::sql::{SqlTask, left_open};
use address::Address;
use connection::{Busy, Connection};
use pool::Pool;
use session::TaskSession;

/// How the tool works on this worker.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// Which servers may be connected to.
    pub hosts: Arc<HostRules>,
    /// Which files may be certificates, keys and passwords.
    pub files: FileRules,
}

impl Default for PostgresOptions {
    fn default() -> PostgresOptions {
        PostgresOptions {
            connect_timeout: Duration::from_secs(15),
            hosts: Arc::default(),
            files: FileRules::default(),
        }
    }
}

/// Runs SQL on PostgreSQL servers. Connections are kept for the next task.
pub struct Postgres {
    options: PostgresOptions,
    pool: Pool,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Tool for Postgres {
    fn run<'a>(&'a self, call: &'a ToolCall, cx: &'a TaskContext) -> ToolFuture<'a> {
        Box::pin(async move { self.work(call, cx).await.unwrap_or_else(|failed| failed) })
    }
}

impl Postgres {
    /// A tool without any connection yet.
    #[must_use]
    pub fn new(options: PostgresOptions) -> Postgres {
        Postgres {
            options,
            pool: Pool::default(),
        }
    }

    async fn work(&self, call: &ToolCall, cx: &TaskContext) -> Result<TaskOutcome, TaskOutcome> {
        let task = SqlTask::read(call, SqlDialect::Postgres)?;
        let address = Address::read(call.auth.as_ref(), &self.options.files)?;
        let connecting = self.pool.take(&address, &self.options, cx);
        let connection = tokio::select! {
            biased;
            stop = cx.stopped() => return Err(stop.error().into()),
            connection = connecting => {
                connection.map_err(|error| error::of_connecting(&error, &address.place))?
            }
        };
        let busy = Busy::new(connection);
        let done = self.statements(&task, &busy, cx).await;
        let connection = busy.done();
        match done {
            StatementsEnd::Done(answers) => {
                if let Some(connection) = connection {
                    self.settle(connection, &address, cx.limits.grace).await?;
                }
                Ok(TaskOutcome::ok(result(answers)))
            }
            StatementsEnd::Failed(failed) => {
                if let Some(connection) = connection {
                    let grace = cx.limits.grace;
                    let too_large = failed.error.as_ref();
                    match too_large.is_some_and(|error| error.code == codes::SQL_TOO_LARGE) {
                        // The server still sends; nothing else can be said on this connection.
                        true => drop(tokio::time::timeout(grace, connection.cancel()).await),
                        false => self.recover(connection, &address, grace).await,
                    }
                }
                Err(failed)
            }
            StatementsEnd::Stopped(stop) => Err(stop.error().into()),
        }
    }

    async fn statements(&self, task: &SqlTask, busy: &Busy, cx: &TaskContext) -> StatementsEnd {
        let Some(connection) = busy.connection() else {
            return StatementsEnd::Stopped(StopReason::Cancelled);
        };
        let stopping = AtomicBool::new(false);
        let session = TaskSession {
            client: &connection.client,
            task,
            cx,
            budget: Budget::new(cx.limits.result_bytes),
            stopping: &stopping,
        };
        let mut work = std::pin::pin!(session.run());
        let stop = tokio::select! {
            biased;
            done = &mut work => return StatementsEnd::from(done),
            stop = cx.stopped() => stop,
        };
        stopping.store(true, Ordering::Relaxed);
        let grace = cx.limits.grace;
        let ending = tokio::time::timeout(grace, async {
            let (done, ()) = tokio::join!(work, connection.cancel());
            done
        });
        match ending.await {
            // It was faster than the request to stop, and what is done is done.
            Ok(Ok(answers)) => StatementsEnd::Done(answers),
            _ => {
                // So that no lock outlives the task, even if the server is slow to see us leave.
                let _ =
                    tokio::time::timeout(grace, connection.client.batch_execute("ROLLBACK")).await;
                StatementsEnd::Stopped(stop)
            }
        }
    }

    /// Cleans up after success; a transaction that the file left open is its mistake.
    async fn settle(
        &self,
        connection: Connection,
        address: &Address,
        grace: Duration,
    ) -> Result<(), ToolError> {
        let Ok(reset) = tokio::time::timeout(grace, connection.reset()).await else {
            return Ok(());
        };
        match reset {
            Ok(()) => self.pool.give(connection, address),
            Err(error) if error.code().is_some_and(|state| state.code() == "25001") => {
                return Err(left_open());
            }
            // What was asked for is done; only the connection is not worth keeping.
            Err(_) => {}
        }
        Ok(())
    }

    /// Takes back what a failed task did. The connection is kept if that works at once.
    async fn recover(&self, connection: Connection, address: &Address, grace: Duration) {
        if connection.is_closed() {
            return;
        }
        let clean = tokio::time::timeout(grace, async {
            connection.client.batch_execute("ROLLBACK").await?;
            connection.reset().await
        });
        if let Ok(Ok(())) = clean.await {
            self.pool.give(connection, address);
        }
    }
}

/// How the statements of a task ended.
enum StatementsEnd {
    Done(Vec<StatementResult>),
    Failed(TaskOutcome),
    Stopped(StopReason),
}

impl From<Result<Vec<StatementResult>, TaskOutcome>> for StatementsEnd {
    fn from(done: Result<Vec<StatementResult>, TaskOutcome>) -> StatementsEnd {
        match done {
            Ok(answers) => StatementsEnd::Done(answers),
            Err(failed) => StatementsEnd::Failed(failed),
        }
    }
}
