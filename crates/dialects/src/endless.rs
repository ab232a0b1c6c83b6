//! Playbooks whose tokens never come to an end: every step that can be reached has an arc that is always taken.

use std::collections::BTreeSet;

use stepwell_kernel::plan::{Dialect, EntryPoint, OnFailure, Plan, StepNo, Unhandled};

use crate::failure_arcs::can_fail;

/// The steps that follow each other without end, in the order of the file; none where a run can end.
pub(crate) fn steps(plan: &Plan) -> Vec<&str> {
    let net = plan.net();
    if net.dialect != Dialect::Playbook || net.policy.timeout_ms.is_some() {
        return Vec::new();
    }
    let reached = reached(plan);
    match reached.iter().any(|no| may_end(plan, *no)) {
        true => Vec::new(),
        false => reached
            .iter()
            .map(|no| plan.step(*no).name.as_str())
            .collect(),
    }
}

/// The steps that a token can get to.
fn reached(plan: &Plan) -> BTreeSet<StepNo> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<StepNo> = match plan.policy().entry {
        EntryPoint::Step(entry) => vec![entry],
        EntryPoint::Roots => plan
            .numbers()
            .filter(|no| plan.incoming(*no).is_empty())
            .collect(),
    };
    while let Some(no) = next.pop() {
        if reached.insert(no) {
            let edges = plan.outgoing(no).iter();
            next.extend(edges.map(|edge| plan.edge(*edge).to));
        }
    }
    reached
}

/// Whether a token can come to its end at a step: no arc fits, the step does not let it in, or its failure stops the run.
fn may_end(plan: &Plan, no: StepNo) -> bool {
    let step = plan.step(no);
    let edges = plan.outgoing(no).iter();
    let goes_on = edges
        .map(|edge| plan.edge(*edge))
        .any(|edge| edge.when.is_none());
    let stops = step.on_failure != OnFailure::Route || plan.policy().unhandled == Unhandled::Stop;
    !goes_on || step.admit.is_some() || (stops && can_fail(plan, no))
}
