//! The file as typed data. Defaults are filled in: step over workflow over global.

use serde_json::Value as Json;
use stepwell_kernel::plan::Work;

#[derive(Debug)]
pub(super) struct Workflow {
    pub(super) workflow_type: String,
    pub(super) version: i64,
    pub(super) description: Option<String>,
    pub(super) biz_key: Option<String>,
    pub(super) defaults: Defaults,
    pub(super) timeout_claims: bool,
    pub(super) steps: Vec<Step>,
}

/// What holds for steps that say nothing themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Defaults {
    pub(super) max_attempts: u32,
    pub(super) lease_seconds: i64,
    pub(super) backoff: Backoff,
}

/// Doubles from `initial_ms` and is never longer than `max_ms`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    pub(super) initial_ms: u64,
    pub(super) max_ms: u64,
}

impl Defaults {
    /// What holds where the whole file says nothing.
    pub(super) const GLOBAL: Defaults = Defaults {
        max_attempts: 10,
        lease_seconds: 30,
        backoff: Backoff {
            initial_ms: 1_000,
            max_ms: 300_000,
        },
    };
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) step_type: String,
    pub(super) description: Option<String>,
    pub(super) max_attempts: u32,
    pub(super) backoff: Backoff,
    pub(super) timeout_ms: Option<u64>,
    pub(super) input: Json,
    pub(super) does: Does,
}

/// What a step does.
#[derive(Debug)]
pub(super) enum Does {
    /// A worker's handler does it.
    Handler {
        queue: Option<String>,
        operation: Option<String>,
        /// What the handler is told to wait for, as the file has it.
        wait_for: Json,
    },
    /// The built-in worker runs tools.
    Tool(Work),
    /// Nobody works: an event completes it.
    Wait {
        event: String,
        timeout_ms: Option<u64>,
    },
}
