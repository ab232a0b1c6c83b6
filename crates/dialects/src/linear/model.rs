//! The file as typed data. Defaults are filled in: step over workflow over global.

use serde_json::Value as Json;
use stepwell_kernel::expr::TemplateValue;
use stepwell_kernel::plan::Work;

use crate::losses::Losses;

#[derive(Debug)]
pub(super) struct LinearWorkflow {
    pub(super) workflow_type: String,
    pub(super) version: i64,
    pub(super) description: Option<String>,
    pub(super) biz_key: Option<String>,
    pub(super) defaults: LinearDefaults,
    pub(super) timeout_claims: bool,
    pub(super) steps: Vec<LinearStep>,
}

/// What holds for steps that say nothing themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinearDefaults {
    pub(super) max_attempts: u32,
    pub(super) lease_seconds: i64,
    pub(super) backoff: BackoffFields,
}

/// Doubles from `initial_ms` and is never longer than `max_ms`.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackoffFields {
    pub(super) initial_ms: u64,
    pub(super) max_ms: u64,
}

impl LinearDefaults {
    /// What holds where the whole file says nothing.
    pub(super) const GLOBAL: LinearDefaults = LinearDefaults {
        max_attempts: 10,
        lease_seconds: 30,
        backoff: BackoffFields {
            initial_ms: 1_000,
            max_ms: 300_000,
        },
    };
}

#[derive(Debug)]
pub(super) struct LinearStep {
    pub(super) name: String,
    pub(super) step_type: String,
    pub(super) description: Option<String>,
    pub(super) max_attempts: u32,
    pub(super) backoff: BackoffFields,
    pub(super) timeout_ms: Option<u64>,
    pub(super) losses: Losses,
    pub(super) input: Json,
    pub(super) does: StepAction,
}

/// What a step does.
#[derive(Debug)]
pub(super) enum StepAction {
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
        /// What is published when the wait begins.
        outbound: Vec<TemplateValue>,
    },
}
