//! The built-in tools, one file or folder each. What a tool is given and must keep to is in
//! `crate::tool`; which fields a kind has is the dialects' table.

pub mod duckdb;
pub mod http;
pub mod postgres;
pub mod process;
pub mod python;
pub mod shell;
mod sql;
pub mod sqlite;

use std::sync::Arc;

use crate::tool::Tool;

/// Every tool, by its kind. `noop`, `sleep`, `playbook` and `workbook` need none: the pipeline does
/// them itself.
///
/// `STEPWELL_PYTHON` names the interpreter or a virtual environment, `STEPWELL_DUCKDB` the program.
pub(crate) fn all() -> Vec<(&'static str, Arc<dyn Tool>)> {
    let set = |name: &str| std::env::var_os(name).filter(|it| !it.is_empty());
    let mut python = python::PythonOptions::default();
    if let Some(path) = set("STEPWELL_PYTHON") {
        python.python = path.into();
    }
    let mut duckdb = duckdb::DuckdbOptions::default();
    if let Some(path) = set("STEPWELL_DUCKDB") {
        duckdb.program = path.into();
    }
    vec![
        ("duckdb", Arc::new(duckdb::Duckdb::new(duckdb))),
        ("http", Arc::new(http::Http::default())),
        (
            "postgres",
            Arc::new(postgres::Postgres::new(Default::default())),
        ),
        ("python", Arc::new(python::Python::new(python))),
        ("shell", Arc::new(shell::Shell::new(Default::default()))),
        ("sqlite", Arc::new(sqlite::Sqlite::new(Default::default()))),
    ]
}
