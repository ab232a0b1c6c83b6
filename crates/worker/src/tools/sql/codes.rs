//! The codes of errors that the tools for SQL give. Codes of one tool are on its page in
//! `docs/tools`, the others in `docs/errors`.

/// A parameter is missing, or of no use.
pub(crate) const SQL_PARAMS: &str = "SQL_PARAMS";
/// The rows are more than a result may have.
pub(crate) const SQL_TOO_LARGE: &str = "SQL_TOO_LARGE";
/// A transaction was begun and not ended.
pub(crate) const SQL_TRANSACTION: &str = "SQL_TRANSACTION";
/// A statement that makes no sense without a terminal or a stream.
pub(crate) const SQL_UNSUPPORTED: &str = "SQL_UNSUPPORTED";

/// `auth` does not say where the server is.
pub(crate) const PG_ADDRESS: &str = "PG_ADDRESS";
/// The server cannot be reached, or was lost.
pub(crate) const PG_UNREACHABLE: &str = "PG_UNREACHABLE";
/// Stands for a code for each state that a server tells.
const PG_SQLSTATE: &str = "PG_SQLSTATE";

/// Another process holds the database.
pub(crate) const SQLITE_BUSY: &str = "SQLITE_BUSY";
/// A row breaks a rule of its table.
pub(crate) const SQLITE_CONSTRAINT: &str = "SQLITE_CONSTRAINT";
/// Anything else that SQLite refuses.
pub(crate) const SQLITE_ERROR: &str = "SQLITE_ERROR";

/// DuckDB refused a statement.
pub(crate) const DUCKDB_ERROR: &str = "DUCKDB_ERROR";
/// The program `duckdb` is not there.
pub(crate) const DUCKDB_MISSING: &str = "DUCKDB_MISSING";

/// The code for a state: `PG_23505`.
pub(crate) fn sqlstate(state: &str) -> String {
    PG_SQLSTATE.replace("SQLSTATE", state)
}
