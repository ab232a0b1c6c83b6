//! The port that tools stand behind: what a tool is given, and what it must keep to.
//!
//! A tool gets its task rendered: no template and no secret reference is left in it. It keeps to the
//! limits by itself, stops when [`TaskContext::stopped`] says so, and returns an [`TaskOutcome`] whatever happens;
//! it never panics. If its future is dropped, nothing that it started may live on.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value as Json};
use stepwell_kernel::codes;
use stepwell_kernel::plan::ErrorClass;
use stepwell_kernel::trace::TraceContext;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::outcome::{TaskOutcome, ToolError};
use crate::secrets::Redactor;
use crate::step_log::StepLog;

/// What a tool's work gives back.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = TaskOutcome> + Send + 'a>>;

/// A kind of tool.
pub trait Tool: fmt::Debug + Send + Sync {
    /// Does what the task asks for.
    fn run<'a>(&'a self, call: &'a ToolCall, cx: &'a TaskContext) -> ToolFuture<'a>;
}

/// A task, ready to be done.
#[derive(Clone, Default)]
pub struct ToolCall {
    /// The task's name in its block.
    pub name: String,
    /// The fields of its kind, as `crates/dialects/src/tools/kinds.rs` names them.
    pub fields: Map<String, Json>,
    /// Arguments of the token, then of the step, then of the task; later ones replace earlier ones.
    pub args: Map<String, Json>,
    /// What `auth` stands for: a mapping such as `{host, user, password}` or `{type, token}`.
    pub auth: Option<Map<String, Json>>,
}

/// Neither arguments nor credentials belong into a log.
impl fmt::Debug for ToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("name", &self.name)
            .field("fields", &self.fields.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl ToolCall {
    /// A field that is text, if it is given.
    pub fn text(&self, name: &str) -> Result<Option<&str>, ToolError> {
        match self.fields.get(name) {
            None | Some(Json::Null) => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(other) => Err(ToolError::invalid(
                codes::TOOL_FIELD,
                format!("`{name}` must be text, it is {}", kind_of(other)),
            )),
        }
    }

    /// A field that is true or false; text that says so is taken too, since templates give text.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, ToolError> {
        match self.fields.get(name) {
            None | Some(Json::Null) => Ok(None),
            Some(Json::Bool(flag)) => Ok(Some(*flag)),
            Some(Json::String(text)) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Some(Json::String(text)) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            Some(other) => Err(ToolError::invalid(
                codes::TOOL_FIELD,
                format!("`{name}` must be true or false, it is {}", kind_of(other)),
            )),
        }
    }
}

/// What a value is, for messages.
#[must_use]
pub fn kind_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "text",
        Json::Array(_) => "a list",
        Json::Object(_) => "a mapping",
    }
}

/// The items of a list; every other value is the only item.
pub(crate) fn list_or_one(value: &Json) -> &[Json] {
    let items = value.as_array().map(Vec::as_slice);
    items.unwrap_or(std::slice::from_ref(value))
}

/// How much one task may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLimits {
    /// Bytes that a tool's result may have: a response's body, rows, what a program returns.
    pub result_bytes: usize,
    /// Bytes of standard output, and of standard error, that are kept in the result.
    pub captured_bytes: usize,
    /// Bytes that the log of one execution keeps.
    pub log_bytes: usize,
    /// How long a task may take that says nothing of it.
    pub timeout: Duration,
    /// How long a program has between being asked to end and being killed.
    pub grace: Duration,
}

impl Default for TaskLimits {
    fn default() -> TaskLimits {
        TaskLimits {
            result_bytes: 16 << 20,
            captured_bytes: 1 << 20,
            log_bytes: 16 << 20,
            timeout: Duration::from_secs(3600),
            grace: Duration::from_secs(2),
        }
    }
}

/// What a task runs in.
#[derive(Clone, Debug)]
pub struct TaskContext {
    pub run_id: Arc<str>,
    /// The step-run: `fetch`, `fetch#2`, `load[3]`.
    pub step_id: Arc<str>,
    /// Equal for every attempt of this work. Tools pass it to systems that accept such a key. Each task of a step has its
    /// own; all tasks of an undo have that of the undo, as its specification says.
    pub idempotency_key: Arc<str>,
    /// Equal for every attempt of this task, and for no other task.
    pub task_key: Arc<str>,
    /// Which attempt this is, from 1: attempts of the step, and of the task inside its execution, count together.
    pub attempt: u32,
    /// Which execution of the step-run this is, from 1. Each claim raises the number: a retry, a loss, a wait that is
    /// over.
    pub execution: u32,
    /// The fencing token: it rises with every claim of the run. A system outside that remembers the highest number can
    /// refuse an execution that was replaced.
    pub fence: u64,
    /// What the work is a part of in a distributed trace.
    pub trace: Option<TraceContext>,
    /// Limits for sizes and times.
    pub limits: TaskLimits,
    /// The task must end before this time.
    pub deadline: Instant,
    /// Set when the task is no longer wanted.
    pub cancelled: CancellationToken,
    /// Receives the output of the task.
    pub log: StepLog,
    /// Knows the secrets of the run. A tool that cuts a text must take them out before, because half a
    /// secret is not recognised afterwards.
    pub redactor: Redactor,
}

/// Why a task must end before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The deadline has passed.
    Timeout,
    /// The task is no longer wanted.
    Cancelled,
}

impl StopReason {
    /// As the task's error.
    #[must_use]
    pub fn error(self) -> ToolError {
        match self {
            StopReason::Timeout => ToolError::new(
                ErrorClass::Timeout,
                codes::TASK_TIMEOUT,
                "the task took longer than its timeout",
            ),
            StopReason::Cancelled => ToolError {
                retryable: Some(false),
                ..ToolError::new(
                    ErrorClass::Cancelled,
                    codes::TASK_CANCELLED,
                    "it was cancelled",
                )
            },
        }
    }
}

impl TaskContext {
    /// Waits until the task must end.
    pub async fn stopped(&self) -> StopReason {
        tokio::select! {
            biased;
            () = self.cancelled.cancelled() => StopReason::Cancelled,
            () = tokio::time::sleep_until(self.deadline) => StopReason::Timeout,
        }
    }

    /// How much time is left.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}
