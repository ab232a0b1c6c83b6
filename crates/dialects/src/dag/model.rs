//! A workflow resource as typed data. Spans are kept where checks that need the whole file point.

use serde_json::Value as Json;
use stepwell_kernel::plan::{RetryPolicy, Work};

use crate::losses::Losses;
use crate::source::Span;

/// A definition after reading, before it is compiled to a net.
#[derive(Debug)]
pub(crate) struct DagWorkflow<'n> {
    pub(crate) name: &'n str,
    pub(crate) version: String,
    pub(crate) steps: Vec<DagStep<'n>>,
    pub(crate) steps_span: Span,
    pub(crate) compensation: Vec<DagCompensation<'n>>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) failure: Option<(FailurePolicy, Span)>,
    /// Metadata, trigger, domains: for people and for what starts runs.
    pub(crate) extra: Json,
}

/// The words of `failurePolicy`: what a failed step means for the workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailurePolicy {
    Compensate,
    Retry,
    Abort,
}

/// The words of `onFailure`, which replace `failurePolicy` for one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DagOnFailure {
    Abort,
    Skip,
    Compensate,
}

/// A name that points at a step, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepMention<'n> {
    pub(crate) name: &'n str,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) struct DagStep<'n> {
    pub(crate) name: StepMention<'n>,
    pub(crate) description: Option<&'n str>,
    pub(crate) agent: Option<&'n str>,
    pub(crate) work: Work,
    pub(crate) is_gate: bool,
    pub(crate) input: Json,
    pub(crate) needs: Vec<StepMention<'n>>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) losses: Losses,
    pub(crate) on_failure: Option<(DagOnFailure, Span)>,
    pub(crate) compensable: Option<(bool, Span)>,
}

#[derive(Debug)]
pub(crate) struct DagCompensation<'n> {
    pub(crate) step: StepMention<'n>,
    pub(crate) queue: String,
    pub(crate) operation: String,
    pub(crate) input: Json,
    /// Tools that the built-in worker runs for it.
    pub(crate) tasks: Json,
    pub(crate) timeout_ms: Option<u64>,
}
