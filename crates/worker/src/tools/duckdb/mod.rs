//! The tool `duckdb`: runs SQL with the program `duckdb`, one process for each task. The engine is
//! not linked in: it takes minutes to build, and users of DuckDB have it installed.

mod output;
mod process;
mod script;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde_json::Value as Json;
use stepwell_kernel::plan::ErrorClass;

use super::sql::codes;
use super::sql::rows::{Budget, result};
use super::sql::scan::SqlDialect;
use super::sql::{SqlTask, details};
use crate::outcome::{TaskOutcome, ToolError};
use crate::tool::{TaskContext, Tool, ToolCall, ToolFuture};
use process::{DuckdbExit, DuckdbProcess};
use script::Script;

/// How the tool works on this worker.
#[derive(Clone, Debug)]
pub struct DuckdbOptions {
    /// The program; searched in PATH if it is only a name.
    pub program: PathBuf,
    /// The working directory, where relative paths begin; absent means the directory of this process.
    pub directory: Option<PathBuf>,
}

impl Default for DuckdbOptions {
    fn default() -> DuckdbOptions {
        DuckdbOptions {
            program: PathBuf::from("duckdb"),
            directory: None,
        }
    }
}

/// Runs SQL with DuckDB.
#[derive(Debug)]
pub struct Duckdb {
    options: DuckdbOptions,
}

impl Tool for Duckdb {
    fn run<'a>(&'a self, call: &'a ToolCall, cx: &'a TaskContext) -> ToolFuture<'a> {
        Box::pin(async move { self.work(call, cx).await.unwrap_or_else(|failed| failed) })
    }
}

impl Duckdb {
    /// A tool; each task starts its own process.
    #[must_use]
    pub fn new(options: DuckdbOptions) -> Duckdb {
        Duckdb { options }
    }

    /// With the program that `STEPWELL_DUCKDB` names, else the `duckdb` in `PATH`.
    pub(super) fn from_env() -> Duckdb {
        let mut options = DuckdbOptions::default();
        if let Some(path) = std::env::var_os("STEPWELL_DUCKDB").filter(|it| !it.is_empty()) {
            options.program = path.into();
        }
        Duckdb::new(options)
    }

    async fn work(&self, call: &ToolCall, cx: &TaskContext) -> Result<TaskOutcome, TaskOutcome> {
        let task = SqlTask::read(call, SqlDialect::Duckdb)?;
        let database = call.text("database")?.map(str::trim).unwrap_or_default();
        let database = match database {
            "" => ":memory:",
            // It must be no option of the program.
            given if given.starts_with('-') => &format!("./{given}"),
            given => given,
        };
        let script = Script::new(&task)?;
        let mut process = DuckdbProcess::start(&self.options, database, cx)?;
        let ended = tokio::select! {
            biased;
            ended = process.run(&script, cx.limits) => Ok(ended?),
            stop = cx.stopped() => Err(stop),
        };
        let ended = match ended {
            Ok(ended) => ended,
            Err(stop) => {
                process.end(cx.limits.grace).await;
                return Err(stop.error().into());
            }
        };
        let seen = output::read(&ended, &script, Budget::new(cx.limits.result_bytes));
        match seen {
            Ok(answers) => Ok(TaskOutcome::ok(result(answers))),
            Err(at) => Err(told(&ended, &task, at)),
        }
    }
}

/// What the program said went wrong, and where.
fn told(ended: &DuckdbExit, task: &SqlTask, at: output::DuckdbFailure) -> TaskOutcome {
    let (number, ours) = match at {
        output::DuckdbFailure::Statement(number) => (number, None),
        output::DuckdbFailure::Ours(number, error) => (number, Some(error)),
    };
    let shown = task.statements.get(number.saturating_sub(1));
    let shown = shown.map_or("", |statement| statement.shown.as_str());
    let place = match number {
        0 => "at the beginning".to_owned(),
        number if shown.is_empty() => format!("after statement {}", number - 1),
        number => format!("statement {number} ({shown})"),
    };
    let mut about = details(number, shown);
    if let Some(mut error) = ours {
        error.message = format!("{place}: {}", error.message);
        return TaskOutcome::failed(error).with("duckdb", Json::Object(about));
    }
    let said = task.params.hidden_in(ended.said());
    let kind = said.split_once(" Error:").map_or("", |(kind, _)| kind);
    about.insert("type".into(), kind.into());
    let error = ToolError::new(class(kind), codes::DUCKDB_ERROR, format!("{place}: {said}"));
    TaskOutcome::failed(error).with("duckdb", Json::Object(about))
}

fn class(kind: &str) -> ErrorClass {
    match kind {
        "Parser" | "Binder" | "Catalog" | "Conversion" | "Invalid Input" | "Out of Range"
        | "Not implemented" | "Syntax" | "Mismatch Type" | "Dependency" => ErrorClass::Validation,
        "Constraint" | "TransactionContext" => ErrorClass::Conflict,
        "IO" | "HTTP" | "Connection" | "Out of Memory" => ErrorClass::Transient,
        "Permission" => ErrorClass::Auth,
        _ => ErrorClass::Unknown,
    }
}
