//! What `dag` and `plan` say about an undo where the file says nothing, and an undo that tools do.

use serde_json::{Value as Json, json};
use stepwell_kernel::plan::{Backoff, BackoffKind, ErrorClass, Retry, Work};

use crate::problem::Problems;
use crate::reader::Field;
use crate::tools;

/// The queue that the built-in worker serves; an undo has no work of its own, only a queue.
pub(crate) const TOOL_QUEUE: &str = "builtin";
/// The operation under which it runs a list of tools.
pub(crate) const TOOL_OPERATION: &str = "pipeline";

/// Three executions, a second apart, for errors that pass: an undo is idempotent, and giving up
/// early leaves the world half done.
pub(crate) fn retry() -> Retry {
    Retry {
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

/// The input of an undo that tools do: a task for the built-in worker.
pub(crate) fn tool_input(tool: &Field<'_>, input: Json, p: &mut Problems) -> Option<Json> {
    match tools::work(tool, p)? {
        Work::Pipeline { tasks } if input.is_null() => Some(json!({ "tasks": tasks })),
        Work::Pipeline { tasks } => Some(json!({ "tasks": tasks, "input": input })),
        _ => {
            tool.error("FIELD_VALUE", "cannot wait or start a run while undoing", p)
                .help("use a tool that does its work at once, such as `shell` or `http`");
            None
        }
    }
}
