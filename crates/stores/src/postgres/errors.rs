//! What an error of the database means for the port.

use stepwell_engine::store::{StoreError, StoreErrorKind};
use tokio_postgres::error::{Error, SqlState};

/// Why a statement failed.
#[derive(Debug)]
pub(super) enum DbError {
    /// The connection is gone; whether the last statement was done is not known.
    ConnectionLost(String),
    /// Two transactions were in each other's way; the same again will do.
    Conflict(String),
    /// A row with this key is there already.
    Duplicate(String),
    /// The database refuses a value.
    InvalidValue(String),
    /// Anything else. Nothing was done.
    Other(StoreError),
}

impl DbError {
    pub(super) fn of(error: &Error) -> DbError {
        let said = describe(error);
        let Some(db) = error.as_db_error() else {
            // Encoding happens before anything is sent.
            return if error.to_string().starts_with("error serializing parameter") {
                DbError::InvalidValue(said)
            } else {
                DbError::ConnectionLost(said)
            };
        };
        let code = db.code();
        if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED
        {
            return DbError::Conflict(said);
        }
        if *code == SqlState::UNIQUE_VIOLATION {
            return DbError::Duplicate(db.constraint().unwrap_or_default().to_owned());
        }
        let kind = match code.code() {
            // The server ends the connection, perhaps after the commit and before its answer.
            "57P01" | "57P02" | "57P05" | "25P03" => return DbError::ConnectionLost(said),
            "57P03" | "57014" | "55P03" | "53200" | "53300" | "53400" => {
                StoreErrorKind::Unavailable
            }
            "53100" => StoreErrorKind::Full,
            "25006" => StoreErrorKind::ReadOnly,
            "42501" | "3D000" | "3F000" => StoreErrorKind::Unusable,
            "XX001" | "XX002" => StoreErrorKind::Corrupt,
            code => match code.get(..2) {
                Some("08") => return DbError::ConnectionLost(said),
                Some("22" | "23" | "54") => return DbError::InvalidValue(said),
                Some("28") => StoreErrorKind::Unusable,
                Some("53" | "58") => StoreErrorKind::Unavailable,
                _ => StoreErrorKind::Internal,
            },
        };
        DbError::Other(StoreError::new(kind, said))
    }

    /// For a statement that changes something: what is not known must be said so.
    pub(super) fn of_write(self) -> StoreError {
        match self {
            DbError::ConnectionLost(said) => StoreError::new(
                StoreErrorKind::AnswerLost,
                format!("the connection to PostgreSQL broke before it answered: {said}"),
            ),
            other @ (DbError::Conflict(_)
            | DbError::Duplicate(_)
            | DbError::InvalidValue(_)
            | DbError::Other(_)) => other.of_read(),
        }
    }

    /// For a statement that changes nothing, or that was certainly not committed.
    pub(super) fn of_read(self) -> StoreError {
        match self {
            DbError::ConnectionLost(said) => StoreError::new(
                StoreErrorKind::Unavailable,
                format!("the connection to PostgreSQL broke: {said}"),
            ),
            DbError::Conflict(said) => StoreError::new(StoreErrorKind::Unavailable, said),
            DbError::Duplicate(name) => StoreError::new(
                StoreErrorKind::Internal,
                format!("a row of {name} is there already"),
            ),
            DbError::InvalidValue(said) => StoreError::new(
                StoreErrorKind::Internal,
                format!("PostgreSQL refuses a value: {said}"),
            ),
            DbError::Other(error) => error,
        }
    }
}

/// The error with what it was caused by; the driver's own text leaves that out.
pub(super) fn describe(error: &Error) -> String {
    if let Some(db) = error.as_db_error() {
        let mut said = format!("{} ({})", db.message(), db.code().code());
        for more in [db.detail(), db.hint()].into_iter().flatten() {
            said.push_str("; ");
            said.push_str(more);
        }
        return said;
    }
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        said.push_str(": ");
        said.push_str(&inner.to_string());
        cause = inner.source();
    }
    said
}
