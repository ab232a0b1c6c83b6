//! Runs the statements of a task on one connection: in one transaction where that can be, rows read
//! as they come and counted while they do.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt as _;
use serde_json::Value as Json;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, SimpleQueryMessage, SimpleQueryRow};

use super::error::{ErrorContext, in_doubt, of_commit, of_statement};
use super::values;
use crate::outcome::{TaskOutcome, ToolError};
use crate::tool::{StopReason, TaskContext};
use crate::tools::sql::codes;
use crate::tools::sql::params::Rewritten;
use crate::tools::sql::rows::{Budget, StatementResult, distinct};
use crate::tools::sql::scan::{Placeholder, SqlDialect};
use crate::tools::sql::{SqlStatement, SqlTask, details};

/// A task at work.
pub(super) struct TaskSession<'a> {
    pub(super) client: &'a Client,
    pub(super) task: &'a SqlTask,
    pub(super) cx: &'a TaskContext,
    pub(super) budget: Budget,
    /// Set when no further statement may begin.
    pub(super) stopping: &'a AtomicBool,
}

/// Why a statement failed.
enum StatementFailure {
    Server(Error, Option<Rewritten>),
    Ours(ToolError),
}

impl From<ToolError> for StatementFailure {
    fn from(error: ToolError) -> StatementFailure {
        StatementFailure::Ours(error)
    }
}

impl TaskSession<'_> {
    /// Runs them all; the failure of the first that fails.
    pub(super) async fn run(mut self) -> Result<Vec<StatementResult>, TaskOutcome> {
        let together = one_transaction(self.task);
        let tells_again = match together {
            true => {
                self.begin().await?;
                false
            }
            false => self.introduce().await?,
        };
        let mut answers = Vec::new();
        for (at, statement) in self.task.statements.iter().enumerate() {
            let number = at + 1;
            if self.stopping.load(Ordering::Relaxed) {
                return Err(StopReason::Cancelled.error().into());
            }
            match self.statement(statement).await {
                Ok(answer) => {
                    answers.push(answer);
                    if tells_again && begins_transaction(statement) {
                        // For this transaction too: behind a pooler it can be on another connection.
                        let told = self.settings("SET LOCAL")?;
                        self.control(&told).await.map_err(in_doubt)?;
                    }
                }
                Err(failure) => {
                    let failed = self.failed(failure, number, statement);
                    return Err(match together {
                        true => failed,
                        false => in_doubt(failed),
                    });
                }
            }
        }
        if together {
            let committed = self.client.batch_execute("COMMIT").await;
            committed.map_err(|error| of_commit(&error))?;
        }
        Ok(answers)
    }

    /// Begins the task's transaction, and tells the server which execution it is in the same round trip.
    async fn begin(&self) -> Result<(), TaskOutcome> {
        let told = format!("BEGIN;{}", self.settings("SET LOCAL")?);
        match self.client.batch_execute(&told).await {
            Ok(()) => Ok(()),
            Err(error) if error.as_db_error().is_some() && !error.is_closed() => {
                self.not_told(&error);
                self.control("ROLLBACK; BEGIN").await
            }
            Err(error) => Err(self.uncontrolled(error)),
        }
    }

    /// Tells the server for the session which execution it is: the file has its own transactions, or none. The session
    /// is cleaned up after the task. False if the server takes no such settings.
    async fn introduce(&self) -> Result<bool, TaskOutcome> {
        match self.client.batch_execute(&self.settings("SET")?).await {
            Ok(()) => Ok(true),
            Err(error) if error.as_db_error().is_some() && !error.is_closed() => {
                self.not_told(&error);
                Ok(false)
            }
            Err(error) => Err(self.uncontrolled(error)),
        }
    }

    /// Statements that make the facts about the execution settings: as `current_setting('stepwell.fence')` they are
    /// known to every statement and trigger. Not with `set_config`: after a query it is too late for the `SET
    /// TRANSACTION` of a file.
    fn settings(&self, set: &str) -> Result<String, ToolError> {
        let mut all = String::new();
        for (fact, value) in self.cx.facts() {
            let value = values::literal(&Json::String(value), None)?;
            all.push_str(&format!("{set} {} = {value};", fact.setting));
        }
        Ok(all)
    }

    /// A server that does not know such settings is still good enough for SQL that does not read them.
    fn not_told(&self, error: &Error) {
        let why = error.as_db_error().map_or("", |it| it.message());
        self.cx.log.note(&format!(
            "the server takes no settings `stepwell.…` (fence, idempotency key): {why}"
        ));
    }

    async fn control(&self, text: &str) -> Result<(), TaskOutcome> {
        let done = self.client.batch_execute(text).await;
        done.map_err(|error| self.uncontrolled(error))
    }

    fn uncontrolled(&self, error: Error) -> TaskOutcome {
        self.failed(StatementFailure::Server(error, None), 0, &begin())
    }

    fn failed(
        &self,
        failure: StatementFailure,
        number: usize,
        statement: &SqlStatement,
    ) -> TaskOutcome {
        match failure {
            StatementFailure::Server(error, sent) => of_statement(
                &error,
                &ErrorContext {
                    number,
                    statement,
                    sent: sent.as_ref(),
                    params: &self.task.params,
                },
            ),
            StatementFailure::Ours(mut error) => {
                let shown = &statement.shown;
                error.message = format!("statement {number} ({shown}): {}", error.message);
                let told = details(number, shown);
                TaskOutcome::failed(error).with("pg", Json::Object(told))
            }
        }
    }

    async fn statement(
        &mut self,
        statement: &SqlStatement,
    ) -> Result<StatementResult, StatementFailure> {
        refuse_copy(statement)?;
        let expected = self.expected(statement).await?;
        let mut places = 0;
        let sent = self
            .task
            .params
            .rewrite(statement, SqlDialect::Postgres, |_, value| {
                let kind = expected.get(places);
                places += 1;
                values::literal(value, kind)
            })?;
        let kinds = match may_return_rows(statement) {
            true => match self.client.prepare(&sent.text).await {
                Ok(prepared) => kinds(prepared.columns()),
                Err(error) => return Err(StatementFailure::Server(error, Some(sent))),
            },
            false => Vec::new(),
        };
        match self.rows(&sent.text, &kinds).await {
            Err(StatementFailure::Server(error, _)) => {
                Err(StatementFailure::Server(error, Some(sent)))
            }
            other => other,
        }
    }

    /// What the server expects in each place of a parameter. It matters only to lists: an array, or
    /// JSON; so the server is asked only if there are any.
    async fn expected(&self, statement: &SqlStatement) -> Result<Vec<Type>, StatementFailure> {
        let mut lists = false;
        let mut count = 0;
        let number = |_: &Placeholder<'_>, value: &Json| {
            lists |= value.is_array();
            count += 1;
            Ok(format!(" ${count} "))
        };
        let params = &self.task.params;
        let numbered = params.rewrite(statement, SqlDialect::Postgres, number)?;
        if !lists || !can_be_prepared(statement) {
            return Ok(Vec::new());
        }
        match self.client.prepare(&numbered.text).await {
            Ok(prepared) => Ok(prepared.params().to_vec()),
            Err(error) => Err(StatementFailure::Server(error, Some(numbered))),
        }
    }

    async fn rows(
        &mut self,
        text: &str,
        kinds: &[Type],
    ) -> Result<StatementResult, StatementFailure> {
        let server = |error| StatementFailure::Server(error, None);
        let stream = self.client.simple_query_raw(text).await.map_err(server)?;
        let mut stream = pin!(stream);
        let mut answer = StatementResult::default();
        while let Some(message) = stream.next().await {
            match message.map_err(server)? {
                SimpleQueryMessage::RowDescription(columns) => {
                    answer.columns = distinct(columns.iter().map(|column| column.name()));
                    answer.rows = Some(Vec::new());
                }
                SimpleQueryMessage::Row(row) => {
                    let row = self.row(&row, &answer.columns, kinds)?;
                    answer.rows.get_or_insert_default().push(row);
                }
                SimpleQueryMessage::CommandComplete(count) => answer.row_count = count,
                _ => {}
            }
        }
        if let Some(rows) = &answer.rows {
            answer.row_count = rows.len() as u64;
        }
        Ok(answer)
    }

    fn row(
        &mut self,
        row: &SimpleQueryRow,
        columns: &[String],
        kinds: &[Type],
    ) -> Result<Json, ToolError> {
        for (at, column) in columns.iter().enumerate() {
            let bytes = row.get(at).map_or(4, str::len);
            self.budget.value(column, bytes)?;
        }
        let values = (0..columns.len()).map(|at| match row.get(at) {
            Some(text) => values::to_json(text, kinds.get(at).unwrap_or(&Type::TEXT)),
            None => Json::Null,
        });
        Ok(values::row(columns, values))
    }
}

/// Whether a transaction is open after a statement that was not before: the settings of the one before are gone.
fn begins_transaction(statement: &SqlStatement) -> bool {
    match statement.first() {
        "begin" | "start" => true,
        "commit" | "end" | "rollback" | "abort" => statement.has("chain") && !statement.has("no"),
        _ => false,
    }
}

fn begin() -> SqlStatement {
    SqlStatement {
        text: "BEGIN".into(),
        words: vec!["begin".into()],
        shown: "BEGIN".into(),
        line: 1,
    }
}

fn kinds(columns: &[tokio_postgres::Column]) -> Vec<Type> {
    columns
        .iter()
        .map(|column| column.type_().clone())
        .collect()
}

/// All statements of a task are one transaction, unless the file says itself where one begins and
/// ends, or one of them cannot be in any. A lone procedure or block may end transactions inside.
fn one_transaction(task: &SqlTask) -> bool {
    let alone = task.statements.len() == 1;
    let refuses = |statement: &SqlStatement| {
        let on = |words: &[&str]| words.iter().any(|word| statement.has(word));
        match statement.first() {
            "vacuum" => true,
            "call" | "do" => alone,
            "create" | "drop" | "alter" => {
                let second = statement.words.get(1).map_or("", String::as_str);
                ["database", "tablespace", "subscription", "system"].contains(&second)
                    || on(&["concurrently"])
            }
            "reindex" => on(&["concurrently", "database", "system", "schema"]),
            "cluster" => statement.words.len() == 1,
            _ => false,
        }
    };
    !task.has_own_transactions() && !task.statements.iter().any(refuses)
}

/// Statements that take part in planning, and so can be asked about before they run.
fn can_be_prepared(statement: &SqlStatement) -> bool {
    let kinds = [
        "select", "insert", "update", "delete", "merge", "with", "values",
    ];
    kinds.contains(&statement.first())
}

fn may_return_rows(statement: &SqlStatement) -> bool {
    let kinds = [
        "select", "with", "values", "table", "show", "explain", "fetch", "execute", "call",
    ];
    kinds.contains(&statement.first()) || statement.has("returning")
}

/// There is nobody at the other end of such a copy.
fn refuse_copy(statement: &SqlStatement) -> Result<(), ToolError> {
    let copies = statement.first() == "copy";
    if copies && (statement.has("stdin") || statement.has("stdout")) {
        return Err(ToolError::invalid(
            codes::SQL_UNSUPPORTED,
            "COPY from STDIN and to STDOUT is not supported; use INSERT, SELECT or a file of the server",
        ));
    }
    Ok(())
}
