//! A plan as typed data. Spans are kept where checks that need the whole file point.

use serde_json::Value as Json;
use stepwell_kernel::plan::{Gate, RetryPolicy, SideEffect, Undo, Work};

use crate::losses::Losses;
use crate::source::Span;

/// Everything but the steps.
#[derive(Debug)]
pub(super) struct Header<'n> {
    pub(super) plan_id: &'n str,
    pub(super) plan_version: String,
    pub(super) schema_version: String,
    /// The capability that says steps run side by side, where the plan asks for it.
    pub(super) wants_parallel: Option<Span>,
    pub(super) on_failure: OnStepFailure,
    pub(super) hold: Option<(u64, Span)>,
    pub(super) needs_approval: bool,
    pub(super) timeout_ms: Option<u64>,
    pub(super) drain_timeout_ms: Option<u64>,
    /// Of steps that have none of their own.
    pub(super) retry: Option<RetryPolicy>,
    pub(super) steps_span: Span,
    /// Adapter, capabilities, labels, and the fields that are not known here: for the engine that runs it.
    pub(super) extra: Json,
}

/// The words of `onStepFailure`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OnStepFailure {
    /// The run stops and fails.
    #[default]
    Fail,
    /// The run waits for an operator.
    Hold,
}

/// A name that points at a step, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepMention<'n> {
    pub(super) name: &'n str,
    pub(super) span: Span,
}

#[derive(Debug)]
pub(super) struct PlanStep<'n> {
    pub(super) id: StepMention<'n>,
    pub(super) description: Option<&'n str>,
    pub(super) needs: Vec<StepMention<'n>>,
    pub(super) work: Work,
    pub(super) gate: Option<Gate>,
    pub(super) duties: Vec<stepwell_kernel::plan::Duty>,
    pub(super) input: Json,
    pub(super) timeout_ms: Option<u64>,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) losses: Losses,
    pub(super) on_failure: Option<OnStepFailure>,
    pub(super) hold: Option<(u64, Span)>,
    pub(super) side_effect: SideEffect,
    pub(super) undo: Option<Undo>,
}
