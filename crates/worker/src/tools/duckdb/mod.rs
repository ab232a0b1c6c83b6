//! The tool `duckdb`: runs SQL with the program `duckdb`, one process for each task. The engine is
//! not linked in: it takes minutes to build, and whoever needs it has it.

mod answers;
mod process;
mod script;

use std::path::PathBuf;

use serde_json::Value as Json;
use stepwell_kernel::plan::ErrorClass;

use super::sql::codes;
use super::sql::rows::{Budget, result};
use super::sql::scan::Dialect;
use super::sql::{Task, details};
use crate::outcome::{Outcome, ToolError};
use crate::tool::{Call, Cx, Tool, Working};
use process::{Ended, Process};
use script::Script;

/// How the tool works on this worker.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program; looked for in PATH if it is only a name.
    pub program: PathBuf,
    /// Where it runs, and where relative paths begin; the process's directory if none.
    pub directory: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            program: PathBuf::from("duckdb"),
            directory: None,
        }
    }
}

/// Runs SQL with DuckDB.
#[derive(Debug)]
pub struct Duckdb {
    options: Options,
}

impl Tool for Duckdb {
    fn run<'a>(&'a self, call: &'a Call, cx: &'a Cx) -> Working<'a> {
        Box::pin(async move { self.work(call, cx).await.unwrap_or_else(|failed| failed) })
    }
}

impl Duckdb {
    /// A tool; each task starts its own process.
    #[must_use]
    pub fn new(options: Options) -> Duckdb {
        Duckdb { options }
    }

    async fn work(&self, call: &Call, cx: &Cx) -> Result<Outcome, Outcome> {
        let task = Task::read(call, Dialect::Duckdb)?;
        let database = call.text("database")?.map(str::trim).unwrap_or_default();
        let database = match database {
            "" => ":memory:",
            // It must be no option of the program.
            given if given.starts_with('-') => &format!("./{given}"),
            given => given,
        };
        let script = Script::new(&task)?;
        let mut process = Process::start(&self.options, database)?;
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
        let seen = answers::read(&ended, &script, Budget::new(cx.limits.result_bytes));
        match seen {
            Ok(answers) => Ok(Outcome::ok(result(answers))),
            Err(at) => Err(told(&ended, &task, at)),
        }
    }
}

/// What the program said went wrong, and where.
fn told(ended: &Ended, task: &Task, at: answers::Failed) -> Outcome {
    let (number, ours) = match at {
        answers::Failed::Statement(number) => (number, None),
        answers::Failed::Ours(number, error) => (number, Some(error)),
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
        return Outcome::failed(error).with("duckdb", Json::Object(about));
    }
    let said = task.params.hidden_in(ended.said());
    let kind = said.split_once(" Error:").map_or("", |(kind, _)| kind);
    about.insert("type".into(), kind.into());
    let error = ToolError::new(class(kind), codes::DUCKDB_ERROR, format!("{place}: {said}"));
    Outcome::failed(error).with("duckdb", Json::Object(about))
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
