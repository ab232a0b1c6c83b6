//! The audit log: who did what, or tried to. Rows are added and never changed; the database itself refuses it. Old rows
//! are deleted by their age.

use stepwell_kernel::time::Time;

use super::Result;

/// Keeps what people and programs did.
pub trait AuditLog {
    /// Adds rows, in one transaction.
    ///
    /// Durable on return: all rows.
    ///
    /// Crash before the return: all rows are there or none.
    ///
    /// Twice: the rows are there twice.
    fn record(&self, rows: &[AuditRow]) -> Result<()>;

    /// Rows, newest first.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the rows as they are then.
    fn audit_rows(&self, filter: &AuditFilter) -> Result<Vec<StoredAuditRow>>;

    /// Deletes rows that are older than a time, oldest first, at most `limit`. Returns how many were deleted.
    ///
    /// Durable on return: the deletion.
    ///
    /// Crash before the return: all of these rows are there or none.
    ///
    /// Twice: the next rows, if there are more.
    fn prune_audit(&self, before: Time, limit: usize) -> Result<usize>;
}

/// What someone did, or tried to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditRow {
    pub at: Time,
    /// The tenant that was acted on; absent if it is the installation.
    pub tenant: Option<String>,
    /// The person or program that acted.
    pub actor: String,
    /// The name of the token that was shown; never the token itself.
    pub token: Option<String>,
    /// Where the request came from: an address, or a command.
    pub source: String,
    /// What was asked for, such as `run.cancel`.
    pub action: String,
    /// What it was done to: the id of a run, the name of a document.
    pub target: String,
    /// Whether it was done; else `code` says why not.
    pub accepted: bool,
    /// The code of the refusal.
    pub code: Option<String>,
    /// The reason that the actor gave.
    pub reason: Option<String>,
}

/// A row of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAuditRow {
    /// Number in this store; later rows have larger ones.
    pub no: i64,
    pub row: AuditRow,
}

/// Which rows of the audit log to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only rows of this tenant; rows of the installation are not among them.
    pub tenant: Option<String>,
    pub actor: Option<String>,
    pub action: Option<String>,
    pub target: Option<String>,
    /// Only what was done, or only what was refused.
    pub accepted: Option<bool>,
    /// Only rows with a smaller number: the next page.
    pub before: Option<i64>,
    /// At most this many.
    pub limit: usize,
}
