//! Why a secret could not be read. Messages contain the reference, never a value.

use stepwell_kernel::plan::ErrorClass;

use crate::outcome::ToolError;

/// Why a secret could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// No provider has the secret.
    #[error("the secret `{reference}` is not there: {why}")]
    NotFound {
        /// The reference as the definition has it.
        reference: String,
        /// Where the secret was searched.
        why: String,
    },
    /// A provider refused access.
    #[error("the secret `{reference}` may not be read: {why}")]
    Denied {
        reference: String,
        /// The message of the provider.
        why: String,
    },
    /// A provider did not answer; a later attempt can succeed.
    #[error("the secret `{reference}` could not be read: {why}")]
    Provider {
        reference: String,
        /// The error of the connection or of the provider.
        why: String,
    },
    /// The settings of the worker are wrong.
    #[error("{0}")]
    Settings(String),
}

impl SecretError {
    /// The code of the error that the step gets; `stepwell explain CODE` describes the code.
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
