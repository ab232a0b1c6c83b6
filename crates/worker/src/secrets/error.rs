//! Why a secret could not be had. Messages name the reference, never a value.

use stepwell_kernel::plan::ErrorClass;

use crate::outcome::ToolError;

/// Why a secret could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// No provider has it.
    #[error("the secret `{reference}` is not there: {why}")]
    NotFound {
        /// As the definition names it.
        reference: String,
        /// Where it was looked for.
        why: String,
    },
    /// A provider refuses to give it.
    #[error("the secret `{reference}` may not be read: {why}")]
    Denied {
        /// As the definition names it.
        reference: String,
        /// What the provider said.
        why: String,
    },
    /// A provider could not be asked; the next time it may answer.
    #[error("the secret `{reference}` could not be read: {why}")]
    Provider {
        /// As the definition names it.
        reference: String,
        /// What went wrong.
        why: String,
    },
    /// The worker's settings are wrong.
    #[error("{0}")]
    Settings(String),
}

impl SecretError {
    /// A stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            SecretError::NotFound { .. } => "SECRET_NOT_FOUND",
            SecretError::Denied { .. }
            | SecretError::Provider { .. }
            | SecretError::Settings(_) => "SECRET_PROVIDER",
        }
    }

    /// What retry rules look at. Only a provider that does not answer may do better the next time.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            SecretError::NotFound { .. } | SecretError::Settings(_) => ErrorClass::Validation,
            SecretError::Denied { .. } => ErrorClass::Auth,
            SecretError::Provider { .. } => ErrorClass::Transport,
        }
    }

    pub(super) fn not_found(reference: &str, why: impl Into<String>) -> SecretError {
        SecretError::NotFound {
            reference: reference.to_owned(),
            why: why.into(),
        }
    }

    pub(super) fn provider(reference: &str, why: impl Into<String>) -> SecretError {
        SecretError::Provider {
            reference: reference.to_owned(),
            why: why.into(),
        }
    }
}

impl From<SecretError> for ToolError {
    fn from(error: SecretError) -> ToolError {
        ToolError::new(error.class(), error.code(), error.to_string())
    }
}
