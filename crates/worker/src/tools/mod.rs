//! The built-in tools, one file or folder each. What a tool is given and must keep to is in
//! `crate::tool`; the fields of a kind are a row of the dialects' table of tools.

pub mod duckdb;
pub mod file;
pub mod http;
pub mod postgres;
pub mod process;
pub mod python;
pub mod redis;
pub mod shell;
mod sql;
pub mod sqlite;

use std::sync::Arc;

use crate::security::Security;
use crate::tool::Tool;

/// Every tool by its kind, with what the process's environment and the worker's policy set. A new tool is a line here and its
/// module above; what its fields are is a row of the table of tools.
pub(crate) fn all(security: &Security) -> Vec<(&'static str, Arc<dyn Tool>)> {
    let http = http::HttpOptions {
        hosts: Arc::new(security.http_rules()),
        ..http::HttpOptions::default()
    };
    let (hosts, files) = (Arc::new(security.socket_rules()), security.file_rules());
    let postgres = postgres::PostgresOptions {
        hosts: Arc::clone(&hosts),
        files: files.clone(),
        ..postgres::PostgresOptions::default()
    };
    let sqlite = sqlite::SqliteOptions {
        files: files.clone(),
        ..sqlite::SqliteOptions::default()
    };
    vec![
        ("duckdb", Arc::new(duckdb::Duckdb::from_env())),
        (
            "file",
            Arc::new(file::FileTool {
                files: files.clone(),
                ..file::FileTool::default()
            }),
        ),
        ("http", Arc::new(http::Http::new(http))),
        ("postgres", Arc::new(postgres::Postgres::new(postgres))),
        ("python", Arc::new(python::Python::from_env())),
        ("redis", Arc::new(redis::Redis { hosts, files })),
        ("shell", Arc::new(shell::Shell::new(Default::default()))),
        ("sqlite", Arc::new(sqlite::Sqlite::new(sqlite))),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stepwell_dialects::tools::RunBy;
    use stepwell_dialects::tools::table::KINDS;

    #[test]
    fn every_kind_that_needs_a_tool_has_one_and_no_other() {
        let needed = KINDS.iter().filter(|kind| kind.run_by == RunBy::Tool);
        let needed: BTreeSet<&str> = needed.map(|kind| kind.name).collect();
        let there: BTreeSet<&str> = super::all(&Default::default())
            .into_iter()
            .map(|(kind, _)| kind)
            .collect();
        assert_eq!(needed, there);
    }
}
