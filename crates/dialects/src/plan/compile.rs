//! From the model to the net. Nothing can go wrong here: all checks are done.

use serde_json::Value as Json;
use stepwell_kernel::plan::{
    self, Dialect, Edge, Net, OnFailure, RetryPolicy, RunPolicy, SourceRef, StepNo, UndoMode, Work,
};

use super::model::{Header, OnStepFailure, PlanStep};

/// How long a held step waits for an operator: one day.
const HOLD_MS: u64 = 24 * 60 * 60 * 1000;

/// The net of a plan whose steps depend on each other as `needs` says.
pub(super) fn net(
    header: Header<'_>,
    steps: Vec<PlanStep<'_>>,
    needs: &[Vec<usize>],
    source: SourceRef,
) -> Net {
    let number = |at: usize| StepNo(u32::try_from(at).unwrap_or(u32::MAX));
    let compensate = steps.iter().any(|step| step.undo.is_some());
    let mut edges = Vec::new();
    for (at, needed) in needs.iter().enumerate() {
        edges.extend(
            needed
                .iter()
                .map(|need| Edge::plain(number(*need), number(at))),
        );
    }
    let compiled = steps.into_iter().enumerate().map(|(at, it)| {
        let on_failure = match it.on_failure.unwrap_or(header.on_failure) {
            OnStepFailure::Fail => OnFailure::Stop { compensate },
            OnStepFailure::Hold => OnFailure::Hold {
                timeout_ms: it.hold.or(header.hold).map_or(HOLD_MS, |(hold, _)| hold),
            },
        };
        let retry = it.retry.clone().or_else(|| {
            let is_repeatable = !it.losses.at_most_once && !matches!(it.work, Work::Wait(_));
            header.retry.clone().filter(|_| is_repeatable)
        });
        let retry = retry.unwrap_or_else(RetryPolicy::once);
        step(number(at).0, it, on_failure, retry)
    });
    Net {
        dialect: Dialect::Plan,
        plan_id: header.plan_id.to_owned(),
        plan_version: header.plan_version,
        schema_version: header.schema_version,
        source,
        workload: Json::Null,
        steps: compiled.collect(),
        edges,
        policy: RunPolicy {
            needs_approval: header.needs_approval,
            timeout_ms: header.timeout_ms,
            drain_timeout_ms: header
                .drain_timeout_ms
                .unwrap_or(RunPolicy::DRAIN_TIMEOUT_MS),
            timeout_compensates: compensate,
            undo_mode: UndoMode::Continue,
            skip_unreached: true,
            strict_templates: true,
            ..RunPolicy::default()
        },
        library: Default::default(),
        extra: header.extra,
    }
}

fn step(order: u32, it: PlanStep<'_>, on_failure: OnFailure, retry: RetryPolicy) -> plan::Step {
    let mut step = plan::Step {
        description: it.description.map(str::to_owned),
        order,
        input: it.input,
        gate: it.gate,
        duties: it.duties,
        retry,
        timeout_ms: it.timeout_ms,
        on_failure,
        undo: it.undo,
        side_effect: it.side_effect,
        ..plan::Step::new(it.id.name, it.work)
    };
    it.losses.apply(&mut step);
    step
}
