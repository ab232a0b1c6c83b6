//! What SQLite's errors mean to the engine, and what to do about them.

use std::path::Path;

use rusqlite::{Error, ErrorCode, ffi};
use stepwell_engine::store::{StoreError, StoreErrorKind};

/// What an error means before anything was committed.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the errors of the library; a new one is internal until it is looked at"
)]
pub(super) fn said(path: &Path, error: &Error) -> StoreError {
    let at = path.display();
    let Error::SqliteFailure(failure, _) = error else {
        let kind = match error {
            // A column that does not hold what the schema says was not written by this program.
            Error::InvalidColumnType(..)
            | Error::FromSqlConversionFailure(..)
            | Error::IntegralValueOutOfRange(..)
            | Error::Utf8Error(..) => StoreErrorKind::Corrupt,
            _ => StoreErrorKind::Internal,
        };
        return StoreError::new(kind, format!("{at}: {error}"));
    };
    let (kind, advice) = match failure.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => (
            StoreErrorKind::Unavailable,
            "another process is writing it; try again",
        ),
        ErrorCode::OperationInterrupted => (
            StoreErrorKind::Unavailable,
            "reading took longer than a second and was given up; ask for less at a time",
        ),
        ErrorCode::DiskFull => (
            StoreErrorKind::Full,
            "there is no room on the disk; make some and go on",
        ),
        ErrorCode::ReadOnly => (
            StoreErrorKind::ReadOnly,
            "it may not be written; check the permissions of the file and of its directory",
        ),
        ErrorCode::NotADatabase => (StoreErrorKind::Corrupt, "it is not a database"),
        ErrorCode::DatabaseCorrupt => (
            StoreErrorKind::Corrupt,
            "it is damaged; `stepwell db check` says where, and a backup is the way back",
        ),
        ErrorCode::CannotOpen
        | ErrorCode::PermissionDenied
        | ErrorCode::AuthorizationForStatementDenied => (
            StoreErrorKind::Unusable,
            "it cannot be opened; check the path and the permissions of its directory",
        ),
        ErrorCode::OutOfMemory => (StoreErrorKind::Unavailable, "memory ran out"),
        ErrorCode::SystemIoFailure => io_failure(failure.extended_code),
        _ => (StoreErrorKind::Internal, "this is a bug"),
    };
    StoreError::new(kind, format!("{at}: {advice} ({error})"))
}

/// What an error means that `COMMIT` gave. The last page that it writes is what makes the commit: if
/// the disk refused a page, nothing was done; if it failed otherwise, nobody knows.
pub(super) fn said_at_commit(path: &Path, error: &Error) -> StoreError {
    let mut said = said(path, error);
    let from_disk = matches!(error, Error::SqliteFailure(failure, _)
        if failure.code == ErrorCode::SystemIoFailure);
    if from_disk && said.kind != StoreErrorKind::Full {
        said.kind = StoreErrorKind::AnswerLost;
    }
    said
}

fn io_failure(extended: i32) -> (StoreErrorKind, &'static str) {
    match extended {
        // Limits on the size of a file are reported as a failed write.
        ffi::SQLITE_IOERR_WRITE | ffi::SQLITE_IOERR_TRUNCATE | ffi::SQLITE_IOERR_SHMSIZE => (
            StoreErrorKind::Full,
            "the disk took no more; make room, or raise the limit on file sizes, and go on",
        ),
        // Waiting does not bring back what was cut off.
        ffi::SQLITE_IOERR_SHORT_READ => (
            StoreErrorKind::Corrupt,
            "the database or its write-ahead log ends too early; restore it from a backup",
        ),
        _ => (
            StoreErrorKind::Unavailable,
            "the disk failed; look at the system's log",
        ),
    }
}

/// Whether an error is about one value and not about the database: then one run fails, not the batch.
pub(super) fn refuses_value(error: &Error) -> Option<String> {
    let is_value = if let Error::SqliteFailure(failure, _) = error {
        matches!(
            failure.code,
            ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch
        )
    } else {
        matches!(error, Error::ToSqlConversionFailure(_))
    };
    is_value.then(|| error.to_string())
}
