//! What `dag` and `plan` say about an undo where the file says nothing, and an undo that tools do in
//! any language.

use serde_json::Value as Json;
use stepwell_kernel::plan::{Backoff, BackoffKind, ErrorClass, RetryPolicy, Work};

use crate::codes;
use crate::problem::Problems;
use crate::reader::Field;
use crate::tools;

/// The queue that the built-in worker serves, for an undo by tools that names no other.
pub(crate) const TOOL_QUEUE: &str = "builtin";
/// The operation under which it runs a list of tools.
pub(crate) const TOOL_OPERATION: &str = "pipeline";

/// Three executions, a second apart, for errors that pass: an undo is idempotent, and giving up
/// early leaves the world half done.
pub(crate) fn retry() -> RetryPolicy {
    RetryPolicy {
        max_executions: 3,
        backoff: Backoff {
            kind: BackoffKind::Constant,
            initial_ms: 1_000,
            multiplier: 1.0,
            max_ms: 1_000,
        },
        classes: vec![
            ErrorClass::Transient,
            ErrorClass::Transport,
            ErrorClass::RateLimit,
            ErrorClass::LeaseLost,
        ],
    }
}

/// The tools of an undo that the built-in worker does.
pub(crate) fn tool_tasks(tool: &Field<'_>, p: &mut Problems) -> Option<Json> {
    match tools::work(tool, p)? {
        Work::Pipeline { tasks } => Some(tasks),
        Work::Task { .. } | Work::Wait(_) | Work::Child(_) => {
            tool.error(
                codes::FIELD_VALUE,
                "cannot wait or start a run while undoing",
                p,
            )
            .help("use a tool that does its work at once, such as `shell` or `http`");
            None
        }
    }
}
