//! A workflow resource as typed data. Spans are kept where checks that need the whole file point.

use serde_json::Value as Json;
use stepwell_kernel::plan::{Retry, Work};

use crate::source::Span;

/// The whole file.
#[derive(Debug)]
pub(crate) struct Workflow<'n> {
    pub(crate) name: &'n str,
    pub(crate) version: String,
    pub(crate) steps: Vec<Step<'n>>,
    pub(crate) steps_span: Span,
    pub(crate) compensation: Vec<Compensation<'n>>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) failure: Option<(Failure, Span)>,
    /// Metadata, trigger, domains: for people and for what starts runs.
    pub(crate) extra: Json,
}

/// `failurePolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Compensate,
    Retry,
    Abort,
}

/// `onFailure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Abort,
    Skip,
    Compensate,
}

/// A name that points at a step, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mention<'n> {
    pub(crate) name: &'n str,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) struct Step<'n> {
    pub(crate) name: Mention<'n>,
    pub(crate) description: Option<&'n str>,
    pub(crate) agent: Option<&'n str>,
    pub(crate) work: Work,
    pub(crate) is_gate: bool,
    pub(crate) input: Json,
    pub(crate) needs: Vec<Mention<'n>>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) retry: Option<Retry>,
    pub(crate) on_failure: Option<(OnFailure, Span)>,
    pub(crate) compensable: Option<(bool, Span)>,
}

#[derive(Debug)]
pub(crate) struct Compensation<'n> {
    pub(crate) step: Mention<'n>,
    pub(crate) queue: String,
    pub(crate) operation: String,
    pub(crate) input: Json,
    /// Tools that the built-in worker runs for it.
    pub(crate) tasks: Json,
    pub(crate) timeout_ms: Option<u64>,
}
