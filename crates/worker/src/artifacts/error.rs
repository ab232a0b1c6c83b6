//! Why an artifact could not be kept or read.

use stepwell_kernel::plan::ErrorClass;

use crate::outcome::ToolError;

/// Why an artifact could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// It is not in the store.
    #[error(
        "the artifact `{uri}` is not in the store: it was pruned, or the store that is configured is another one"
    )]
    Missing {
        /// What was asked for.
        uri: String,
    },
    /// It is not what was put there.
    #[error(
        "the artifact `{uri}` is not what was written: {why}; restore it from a backup or run the step again"
    )]
    Corrupt {
        /// What was asked for.
        uri: String,
        /// In which way.
        why: String,
    },
    /// It is larger than may be read into memory.
    #[error(
        "the artifact `{uri}` has {size} bytes, more than the {limit} that may be read at once; read it in the program that needs it"
    )]
    TooLarge {
        /// What was asked for.
        uri: String,
        size: u64,
        /// What may be read.
        limit: u64,
    },
    /// The reference or the store's address is wrong.
    #[error("{0}")]
    Address(String),
    /// The store does not answer as it should.
    #[error("the artifact store failed on `{path}`: {why}")]
    Store {
        /// What it was about.
        path: String,
        /// What the store said.
        why: String,
    },
}

impl ArtifactError {
    /// A stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            ArtifactError::Missing { .. } => "ARTIFACT_MISSING",
            ArtifactError::Corrupt { .. } => "ARTIFACT_CORRUPT",
            ArtifactError::TooLarge { .. } => "ARTIFACT_TOO_LARGE",
            ArtifactError::Address(_) | ArtifactError::Store { .. } => "ARTIFACT_STORE",
        }
    }

    /// What retry rules look at. Only a store that fails may do better the next time.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            ArtifactError::Store { .. } => ErrorClass::Transport,
            _ => ErrorClass::Validation,
        }
    }

    pub(super) fn store(path: impl ToString, error: object_store::Error) -> ArtifactError {
        let path = path.to_string();
        match error {
            object_store::Error::NotFound { .. } => ArtifactError::Missing {
                uri: format!("artifact:{path}"),
            },
            other => ArtifactError::Store {
                path,
                why: other.to_string(),
            },
        }
    }
}

impl From<ArtifactError> for ToolError {
    fn from(error: ArtifactError) -> ToolError {
        ToolError::new(error.class(), error.code(), error.to_string())
    }
}
