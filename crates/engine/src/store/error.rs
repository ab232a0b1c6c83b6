//! Why a store could not do something. Every call of the port answers with `Result`; what an error
//! means for a retry is decided by its kind alone, never by its text.

use std::fmt;

/// Why a store could not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", self.kind.code())]
pub struct StoreError {
    /// Decides whether a retry helps.
    pub kind: StoreErrorKind,
    /// For people, with what to do.
    pub message: String,
}

/// Kinds of store errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The store cannot be reached, or is busy. Nothing was done; a retry helps.
    Unavailable,
    /// The answer was lost: it is not known whether the call was done. Send the same call again.
    AnswerLost,
    /// There is no room. Nothing was done; a retry helps after space was freed.
    Full,
    /// The store may not be written. Nothing was done.
    ReadOnly,
    /// Another process owns the store.
    Held,
    /// The store is damaged, or not a store of this program.
    Corrupt,
    /// The files of the store were deleted, replaced or cut while this process used them.
    Gone,
    /// A newer version of this program has written the store.
    Newer,
    /// An older version of this program has written the store, and migrating was not asked for.
    Older,
    /// The store cannot be opened as it was asked for: a wrong address, a missing file, no permission.
    Unusable,
    /// A statement failed that cannot fail: a bug.
    Internal,
}

impl StoreErrorKind {
    /// All kinds, in the order of the declaration.
    pub const ALL: [StoreErrorKind; 11] = [
        StoreErrorKind::Unavailable,
        StoreErrorKind::AnswerLost,
        StoreErrorKind::Full,
        StoreErrorKind::ReadOnly,
        StoreErrorKind::Held,
        StoreErrorKind::Corrupt,
        StoreErrorKind::Gone,
        StoreErrorKind::Newer,
        StoreErrorKind::Older,
        StoreErrorKind::Unusable,
        StoreErrorKind::Internal,
    ];

    /// The code, for programs and for `stepwell explain`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            StoreErrorKind::Unavailable => "STORE_UNAVAILABLE",
            StoreErrorKind::AnswerLost => "STORE_ANSWER_LOST",
            StoreErrorKind::Full => "STORE_FULL",
            StoreErrorKind::ReadOnly => "STORE_READ_ONLY",
            StoreErrorKind::Held => "STORE_HELD",
            StoreErrorKind::Corrupt => "STORE_CORRUPT",
            StoreErrorKind::Gone => "STORE_GONE",
            StoreErrorKind::Newer => "STORE_NEWER",
            StoreErrorKind::Older => "STORE_OLDER",
            StoreErrorKind::Unusable => "STORE_UNUSABLE",
            StoreErrorKind::Internal => "STORE_INTERNAL",
        }
    }

    /// Whether the same call may succeed later without a change of the program.
    #[must_use]
    pub fn may_pass(self) -> bool {
        match self {
            StoreErrorKind::Unavailable
            | StoreErrorKind::AnswerLost
            | StoreErrorKind::Full
            | StoreErrorKind::ReadOnly => true,
            StoreErrorKind::Held
            | StoreErrorKind::Corrupt
            | StoreErrorKind::Gone
            | StoreErrorKind::Newer
            | StoreErrorKind::Older
            | StoreErrorKind::Unusable
            | StoreErrorKind::Internal => false,
        }
    }
}

impl StoreError {
    /// An error of a kind.
    pub fn new(kind: StoreErrorKind, message: impl fmt::Display) -> StoreError {
        StoreError {
            kind,
            message: message.to_string(),
        }
    }
}

/// What a store answers.
pub type Result<T> = std::result::Result<T, StoreError>;
