//! The result of one task: a value, or an error.

use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use stepwell_kernel::codes;
use stepwell_kernel::plan::ErrorClass;

use crate::hosts::DeniedHost;

/// The result of one task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskOutcome {
    /// What it returned. A failed task may have something to show too, such as an error's body.
    pub result: Json,
    /// Absent if the task succeeded.
    pub error: Option<ToolError>,
    /// What its kind tells beside that, by the kind's own name: `http`, `pg`, `py`, `sh`.
    pub details: Map<String, Json>,
}

/// The error of a task that names a host which the configuration of the worker closes.
pub(crate) fn denied_host(denied: &DeniedHost) -> ToolError {
    ToolError::new(
        ErrorClass::Policy,
        codes::HOST_DENIED,
        format!(
            "{denied} in the configuration of this worker; use another host, or have the list changed"
        ),
    )
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ToolError {
    /// The rules of the task compare this class.
    pub class: ErrorClass,
    /// A stable code, such as `HTTP_404`; rules can compare it.
    pub code: String,
    /// The text for the operator: what happened, and what to do if that is known.
    pub message: String,
    /// Whether a retry can succeed; absent means that the class decides.
    pub retryable: Option<bool>,
    /// The server asked to wait this long before the next request.
    pub retry_after: Option<Duration>,
}

impl ToolError {
    /// An error whose class says whether to try again.
    pub fn new(
        class: ErrorClass,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> ToolError {
        ToolError {
            class,
            code: code.into(),
            message: message.into(),
            retryable: None,
            retry_after: None,
        }
    }

    /// The task itself is wrong: it fails the same way each time.
    pub fn invalid(code: impl Into<String>, message: impl Into<String>) -> ToolError {
        ToolError::new(ErrorClass::Validation, code, message)
    }

    /// Whether to try again may help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retryable.unwrap_or(match self.class {
            ErrorClass::Timeout
            | ErrorClass::RateLimit
            | ErrorClass::Transient
            | ErrorClass::Transport
            | ErrorClass::LeaseLost => true,
            ErrorClass::Validation
            | ErrorClass::Policy
            | ErrorClass::Auth
            | ErrorClass::Conflict
            | ErrorClass::Agent
            | ErrorClass::External
            | ErrorClass::Governance
            | ErrorClass::Expression
            | ErrorClass::Rejected
            | ErrorClass::Cancelled
            | ErrorClass::Unknown => false,
        })
    }
}

impl TaskOutcome {
    /// The outcome of a task that succeeded.
    #[must_use]
    pub fn ok(result: Json) -> TaskOutcome {
        TaskOutcome {
            result,
            ..TaskOutcome::default()
        }
    }

    #[must_use]
    pub fn failed(error: ToolError) -> TaskOutcome {
        TaskOutcome {
            error: Some(error),
            ..TaskOutcome::default()
        }
    }

    /// Adds the details of a tool, under the name of the tool.
    #[must_use]
    pub fn with(mut self, name: &str, details: Json) -> TaskOutcome {
        self.details.insert(name.to_owned(), details);
        self
    }

    /// As templates see it: `outcome`, and `output` in the later words.
    #[must_use]
    pub fn to_json(&self, attempt: u32, took: Duration) -> Json {
        let error = self.error.as_ref().map(|error| {
            json!({
                "kind": error.class.name(),
                "retryable": error.is_retryable(),
                "code": error.code,
                "message": error.message,
            })
        });
        let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let mut seen = json!({
            "status": if error.is_some() { "error" } else { "ok" },
            "result": self.result,
            "data": self.result,
            "error": error,
            "meta": { "attempt": attempt, "duration_ms": took },
        });
        if let Some(map) = seen.as_object_mut() {
            map.extend(self.details.clone());
        }
        seen
    }
}

impl From<ToolError> for TaskOutcome {
    fn from(error: ToolError) -> TaskOutcome {
        TaskOutcome::failed(error)
    }
}
