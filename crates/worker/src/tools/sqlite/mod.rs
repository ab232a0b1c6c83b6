//! The tool `sqlite`: runs SQL on a database file with the engine that is built in. It works on
//! threads for blocking work, and looks often whether it is still wanted.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error, ErrorCode, OpenFlags};
use serde_json::{Map, Number, Value as Json};
use stepwell_kernel::codes::PATH_DENIED;
use stepwell_kernel::plan::ErrorClass;

use super::sql::codes;
use super::sql::params::{Params, wrong};
use super::sql::rows::{Budget, StatementResult, distinct, result};
use super::sql::scan::{Placeholder, SqlDialect};
use super::sql::{SqlStatement, SqlTask, details, left_open};
use crate::file_rules::FileRules;
use crate::outcome::{TaskOutcome, ToolError};
use crate::tool::{TaskContext, Tool, ToolCall, ToolFuture};

/// Steps of SQLite's machine between two looks at whether to stop: well below a millisecond.
const STEPS: i32 = 1000;

/// How long SQLite itself waits for a lock before we look whether to stop.
const NAP: Duration = Duration::from_millis(50);

/// How the tool works on this worker.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// Where relative paths begin; the process's directory if none.
    pub directory: Option<PathBuf>,
    /// How long a statement waits for the lock of another process, if its deadline is not sooner.
    pub busy_timeout: Duration,
    /// Which files may be databases.
    pub files: FileRules,
}

impl Default for SqliteOptions {
    fn default() -> SqliteOptions {
        SqliteOptions {
            directory: None,
            busy_timeout: Duration::from_secs(10),
            files: FileRules::default(),
        }
    }
}

/// Runs SQL on SQLite databases.
#[derive(Debug)]
pub struct Sqlite {
    options: SqliteOptions,
}

impl Tool for Sqlite {
    fn run<'a>(&'a self, call: &'a ToolCall, cx: &'a TaskContext) -> ToolFuture<'a> {
        Box::pin(async move { self.work(call, cx).await.unwrap_or_else(|failed| failed) })
    }
}

impl Sqlite {
    /// A tool; each task opens its own connection.
    #[must_use]
    pub fn new(options: SqliteOptions) -> Sqlite {
        Sqlite { options }
    }

    async fn work(&self, call: &ToolCall, cx: &TaskContext) -> Result<TaskOutcome, TaskOutcome> {
        let task = SqlTask::read(call, SqlDialect::Sqlite)?;
        let stopping = Arc::new(AtomicBool::new(false));
        // If this future is dropped, the thread sees it too.
        let _guard = StopOnDrop(Arc::clone(&stopping));
        self.one_file(&task)?;
        let mut job = SqliteJob {
            path: self.path(call)?,
            task,
            budget: Budget::new(cx.limits.result_bytes),
            patience: self.options.busy_timeout,
            stopping: Arc::clone(&stopping),
        };
        let mut thread = tokio::task::spawn_blocking(move || job.run());
        let stop = tokio::select! {
            biased;
            done = &mut thread => return done.map_err(|_| crashed()),
            stop = cx.stopped() => stop,
        };
        stopping.store(true, Ordering::Relaxed);
        match tokio::time::timeout(cx.limits.grace, thread).await {
            // It was faster than the request to stop, and what is done is done.
            Ok(Ok(done)) if done.error.is_none() => Ok(done),
            _ => Err(stop.error().into()),
        }
    }

    fn path(&self, call: &ToolCall) -> Result<PathBuf, ToolError> {
        let given = call.text("database")?.map(str::trim).unwrap_or_default();
        if given.is_empty() {
            let message = "`database` names no file; for one in memory, write :memory:";
            return Err(ToolError::invalid("TOOL_FIELD", message));
        }
        let given = given.strip_prefix("sqlite:///").unwrap_or(given);
        if given == ":memory:" {
            return Ok(PathBuf::from(given));
        }
        let path = match &self.options.directory {
            Some(directory) => directory.join(given),
            None => PathBuf::from(given),
        };
        self.options.files.check(&path)
    }

    /// Statements name files too, which nobody has judged: they are refused where files are.
    fn one_file(&self, task: &SqlTask) -> Result<(), ToolError> {
        let names_a_file = |it: &SqlStatement| {
            it.first() == "attach" || (it.first() == "vacuum" && it.has("into"))
        };
        let found = task.statements.iter().find(|it| names_a_file(it));
        match found.filter(|_| self.options.files != FileRules::Everywhere) {
            None => Ok(()),
            Some(statement) => Err(ToolError::new(
                ErrorClass::Policy,
                PATH_DENIED,
                format!(
                    "{} names another file, which the configuration of this worker does not allow (`confine` of \
                     [security])",
                    statement.shown
                ),
            )),
        }
    }
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn crashed() -> TaskOutcome {
    let message = "the thread that ran it ended early";
    TaskOutcome::failed(ToolError::new(
        ErrorClass::Unknown,
        codes::SQLITE_ERROR,
        message,
    ))
}

/// The work of one task, on its thread.
struct SqliteJob {
    path: PathBuf,
    task: SqlTask,
    budget: Budget,
    patience: Duration,
    stopping: Arc<AtomicBool>,
}

/// Why a statement failed.
enum SqliteFailure {
    Engine(Error),
    Ours(ToolError),
}

impl From<Error> for SqliteFailure {
    fn from(error: Error) -> SqliteFailure {
        SqliteFailure::Engine(error)
    }
}

impl From<ToolError> for SqliteFailure {
    fn from(error: ToolError) -> SqliteFailure {
        SqliteFailure::Ours(error)
    }
}

impl SqliteJob {
    fn run(&mut self) -> TaskOutcome {
        match self.statements() {
            Ok(answers) => TaskOutcome::ok(result(answers)),
            Err(failed) => *failed,
        }
    }

    fn statements(&mut self) -> Result<Vec<StatementResult>, Box<TaskOutcome>> {
        let opened = open(&self.path, Arc::clone(&self.stopping));
        let connection = opened.map_err(|error| {
            let place = self.path.display().to_string();
            failed(
                SqliteFailure::Engine(error),
                &format!("cannot open {place}"),
            )
        })?;
        let begin = transaction(&self.task);
        let statements = std::mem::take(&mut self.task.statements);
        let mut answers = Vec::new();
        for (at, statement) in statements.iter().enumerate() {
            let number = at + 1;
            let shown = format!("statement {number} ({})", statement.shown);
            let begun = match begin {
                Some((first, text)) if first == at => {
                    self.patiently(|_| execute(&connection, text))
                }
                _ => Ok(()),
            };
            let done =
                begun.and_then(|()| self.patiently(|job| job.statement(&connection, statement)));
            let told = |failure| {
                let mut told = failed(failure, &shown);
                let about = told
                    .details
                    .entry("sqlite")
                    .or_insert_with(|| Map::new().into());
                if let Some(about) = about.as_object_mut() {
                    about.extend(details(number, &statement.shown));
                }
                told
            };
            answers.push(done.map_err(told)?);
        }
        match (begin.is_some(), connection.is_autocommit()) {
            (true, _) => {
                let committed = self.patiently(|_| execute(&connection, "COMMIT"));
                committed.map_err(|failure| failed(failure, "at the commit"))?;
            }
            (false, false) => {
                return Err(Box::new(left_open().into()));
            }
            (false, true) => {}
        }
        Ok(answers)
    }

    /// Repeats a call while another process holds the database.
    fn patiently<T>(
        &mut self,
        mut what: impl FnMut(&mut SqliteJob) -> Result<T, SqliteFailure>,
    ) -> Result<T, SqliteFailure> {
        let since = Instant::now();
        loop {
            let done = what(self);
            let Err(SqliteFailure::Engine(error)) = &done else {
                return done;
            };
            let over = since.elapsed() >= self.patience || self.stopping.load(Ordering::Relaxed);
            if over || !is_busy(error) {
                return done;
            }
        }
    }

    fn statement(
        &mut self,
        connection: &Connection,
        statement: &SqlStatement,
    ) -> Result<StatementResult, SqliteFailure> {
        let named = |place: &Placeholder<'_>, _: &Json| match place {
            Placeholder::Name(name) => Ok(format!(" :{name} ")),
            Placeholder::Number(_) | Placeholder::Next => Ok(String::new()),
        };
        let params = &self.task.params;
        let text = params.rewrite(statement, SqlDialect::Sqlite, named)?.text;
        let mut prepared = connection.prepare(&text)?;
        bind(&mut prepared, params)?;
        if prepared.column_count() == 0 {
            prepared.raw_execute()?;
            let changes = ["insert", "update", "delete", "replace", "with"];
            let row_count = match changes.contains(&statement.first()) {
                true => connection.changes(),
                false => 0,
            };
            return Ok(StatementResult {
                row_count,
                ..StatementResult::default()
            });
        }
        let columns = distinct(prepared.column_names());
        let mut taken = Vec::new();
        let mut rows = prepared.raw_query();
        while let Some(row) = rows.next()? {
            let mut values = Map::new();
            for (at, column) in columns.iter().enumerate() {
                let value = row.get_ref(at)?;
                self.budget.value(column, size(value))?;
                values.insert(column.clone(), to_json(value));
            }
            taken.push(Json::Object(values));
        }
        Ok(StatementResult {
            row_count: taken.len() as u64,
            rows: Some(taken),
            columns,
        })
    }
}

fn open(path: &Path, stopping: Arc<AtomicBool>) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(NAP)?;
    connection.progress_handler(STEPS, Some(move || stopping.load(Ordering::Relaxed)))?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

fn execute(connection: &Connection, text: &str) -> Result<(), SqliteFailure> {
    Ok(connection.execute_batch(text)?)
}

/// Before which statement the task's transaction begins, and how. None if the file has its own, or
/// has a statement that cannot be in one. Settings and attached files come before it.
fn transaction(task: &SqlTask) -> Option<(usize, &'static str)> {
    let outside = |it: &SqlStatement| ["vacuum", "detach"].contains(&it.first());
    if task.has_own_transactions() || task.statements.iter().any(outside) {
        return None;
    }
    let before = |it: &SqlStatement| ["pragma", "attach"].contains(&it.first());
    let first = task.statements.iter().position(|it| !before(it))?;
    let reads = |it: &SqlStatement| {
        let writes = ["insert", "update", "delete", "replace"];
        match it.first() {
            "select" | "values" | "explain" | "pragma" => true,
            "with" => !writes.iter().any(|word| it.has(word)),
            _ => false,
        }
    };
    // A writer takes the lock immediately: taking it later fails if other processes wrote in between.
    let begin = match task.statements.iter().all(reads) {
        true => "BEGIN",
        false => "BEGIN IMMEDIATE",
    };
    Some((first, begin))
}

fn bind(prepared: &mut rusqlite::Statement<'_>, params: &Params) -> Result<(), SqliteFailure> {
    if *params == Params::None {
        return Ok(());
    }
    for index in 1..=prepared.parameter_count() {
        let name = prepared
            .parameter_name(index)
            .map(|name| name[1..].to_owned());
        let value = match &name {
            None => params.number(index)?,
            Some(name) => match name.parse() {
                Ok(number) => params.number(number)?,
                Err(_) => params.name(name)?,
            },
        };
        prepared.raw_bind_parameter(index, from_json(value)?)?;
    }
    Ok(())
}

fn from_json(value: &Json) -> Result<Value, ToolError> {
    Ok(match value {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Integer((*flag).into()),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Value::Integer(whole),
            (None, Some(real)) if !number.is_u64() => Value::Real(real),
            _ => return Err(wrong("a number is larger than SQLite's integers can be")),
        },
        Json::String(text) => Value::Text(text.clone()),
        list_or_mapping @ (Json::Array(_) | Json::Object(_)) => {
            Value::Text(list_or_mapping.to_string())
        }
    })
}

fn size(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(text) => text.len(),
        ValueRef::Blob(bytes) => 2 * bytes.len() + 2,
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 8,
    }
}

fn to_json(value: ValueRef<'_>) -> Json {
    match value {
        ValueRef::Null => Json::Null,
        ValueRef::Integer(whole) => whole.into(),
        ValueRef::Real(real) => Number::from_f64(real).map_or_else(
            || if real < 0.0 { "-Infinity" } else { "Infinity" }.into(),
            Json::Number,
        ),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned().into(),
        ValueRef::Blob(bytes) => format!("\\x{}", stepwell_kernel::keys::hex(bytes)).into(),
    }
}

fn is_busy(error: &Error) -> bool {
    // A snapshot that is too old stays too old.
    let snapshot = rusqlite::ffi::SQLITE_BUSY_SNAPSHOT;
    error.sqlite_error().is_some_and(|it| {
        let code = [ErrorCode::DatabaseBusy, ErrorCode::DatabaseLocked].contains(&it.code);
        code && it.extended_code != snapshot
    })
}

fn failed(failure: SqliteFailure, place: &str) -> Box<TaskOutcome> {
    let error = match failure {
        SqliteFailure::Ours(mut error) => {
            error.message = format!("{place}: {}", error.message);
            return Box::new(error.into());
        }
        SqliteFailure::Engine(error) => error,
    };
    // The engine's error repeats the whole statement; its message does not.
    let said = if let Error::SqlInputError { msg, .. } = &error {
        msg.clone()
    } else if let Error::SqliteFailure(_, Some(message)) = &error {
        message.clone()
    } else {
        error.to_string()
    };
    let code = error.sqlite_error().map(|it| it.code);
    let (class, name) = match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (ErrorClass::Transient, codes::SQLITE_BUSY)
        }
        Some(ErrorCode::ConstraintViolation) => (ErrorClass::Conflict, codes::SQLITE_CONSTRAINT),
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::DiskFull
            | ErrorCode::OutOfMemory
            | ErrorCode::FileLockingProtocolFailed,
        ) => (ErrorClass::Transient, codes::SQLITE_ERROR),
        Some(
            ErrorCode::PermissionDenied
            | ErrorCode::ReadOnly
            | ErrorCode::AuthorizationForStatementDenied,
        ) => (ErrorClass::Auth, codes::SQLITE_ERROR),
        _ => (ErrorClass::Validation, codes::SQLITE_ERROR),
    };
    let mut told = Map::new();
    if let Some(error) = error.sqlite_error() {
        told.insert("extended_code".into(), error.extended_code.into());
    }
    told.insert("code".into(), name.into());
    let error = ToolError::new(class, name, format!("{place}: {said}"));
    Box::new(TaskOutcome::failed(error).with("sqlite", Json::Object(told)))
}
