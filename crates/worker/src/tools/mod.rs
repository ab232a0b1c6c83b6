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
pub(crate) fn all() -> Vec<(&'static str, Arc<dyn Tool>)> {
    vec![
        ("duckdb", Arc::new(duckdb::Duckdb::new(Default::default()))),
        ("http", Arc::new(http::Http::default())),
        (
            "postgres",
            Arc::new(postgres::Postgres::new(Default::default())),
        ),
        ("python", Arc::new(python::Python::new(Default::default()))),
        ("shell", Arc::new(shell::Shell::new(Default::default()))),
        ("sqlite", Arc::new(sqlite::Sqlite::new(Default::default()))),
    ]
}
