//! Why an artifact could not be kept or read.

use stepwell_kernel::plan::ErrorClass;

use crate::outcome::ToolError;

/// Why an artifact could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The artifact is not in the store.
    #[error(
        "the artifact `{uri}` is not in the store: it was pruned, or the store that is configured is another one"
    )]
    Missing {
        /// What was asked for.
        uri: String,
    },
    /// The content of the artifact differs from what was written.
    #[error(
        "the artifact `{uri}` is not what was written: {why}; restore it from a backup or run the step again"
    )]
    Corrupt {
        /// What was asked for.
        uri: String,
        /// The difference, such as a wrong hash or length.
        why: String,
    },
    /// Something else is kept under the name, and stays.
    #[error(
        "there is another artifact `{uri}` already, and artifacts are never replaced: give this one another name"
    )]
    Exists {
        /// The address of the artifact that is there.
        uri: String,
    },
    /// The artifact is larger than the limit for reading into memory.
    #[error(
        "the artifact `{uri}` has {size} bytes, more than the {limit} that may be read at once; read it in the program that needs it"
    )]
    TooLarge {
        /// What was asked for.
        uri: String,
        size: u64,
        /// The largest size that is read, in bytes.
        limit: u64,
    },
    /// The reference or the store's address is wrong.
    #[error("{0}")]
    Address(String),
    /// A request to the store failed.
    #[error("the artifact store failed on `{path}`: {why}")]
    Store {
        /// The path of the file or object.
        path: String,
        /// The message of the store.
        why: String,
    },
}

impl ArtifactError {
    /// The code of the error that the step gets; `stepwell explain CODE` describes the code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            ArtifactError::Missing { .. } => "ARTIFACT_MISSING",
            ArtifactError::Corrupt { .. } => "ARTIFACT_CORRUPT",
            ArtifactError::Exists { .. } => "ARTIFACT_EXISTS",
            ArtifactError::TooLarge { .. } => "ARTIFACT_TOO_LARGE",
            ArtifactError::Address(_) | ArtifactError::Store { .. } => "ARTIFACT_STORE",
        }
    }

    /// What retry rules look at. Only a store that fails may do better the next time.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            ArtifactError::Store { .. } => ErrorClass::Transport,
            ArtifactError::Missing { .. }
            | ArtifactError::Corrupt { .. }
            | ArtifactError::Exists { .. }
            | ArtifactError::TooLarge { .. }
            | ArtifactError::Address(_) => ErrorClass::Validation,
        }
    }

    pub(super) fn store(path: impl ToString, error: object_store::Error) -> ArtifactError {
        let path = path.to_string();
        if let object_store::Error::NotFound { .. } = error {
            let uri = format!("artifact:{path}");
            return ArtifactError::Missing { uri };
        }
        let why = error.to_string();
        ArtifactError::Store { path, why }
    }
}

impl From<ArtifactError> for ToolError {
    fn from(error: ArtifactError) -> ToolError {
        ToolError::new(error.class(), error.code(), error.to_string())
    }
}
