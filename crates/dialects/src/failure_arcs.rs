//! Arcs that are taken after a failure although nobody says so: an arc without a guard is taken whatever the end of its
//! step was.

use serde_json::Value as Json;
use stepwell_kernel::plan::{Dialect, OnFailure, Plan, Route, StepNo, Unhandled, Work};

/// The names of the steps that can fail and go on as if nothing had happened, in the order of the file.
pub(crate) fn steps(plan: &Plan) -> Vec<&str> {
    let net = plan.net();
    if net.dialect != Dialect::Playbook || net.policy.unhandled == Unhandled::Stop {
        return Vec::new();
    }
    let goes_on = |no: &StepNo| {
        let step = plan.step(*no);
        step.on_failure == OnFailure::Route && can_fail(plan, *no) && leads_on(plan, *no)
    };
    let found = plan.numbers().filter(goes_on);
    found.map(|no| plan.step(no).name.as_str()).collect()
}

/// Whether an arc without a guard is looked at after a failure, and none before it, or beside it, asks for the failure.
fn leads_on(plan: &Plan, no: StepNo) -> bool {
    let mut edges = plan.outgoing(no).iter().map(|edge| plan.edge(*edge));
    match plan.step(no).route {
        Route::Exclusive => edges
            .find(|edge| edge.when.is_none() || edge.handles_failure())
            .is_some_and(|edge| edge.when.is_none()),
        Route::Inclusive => {
            let mut all = edges.clone();
            edges.any(|edge| edge.when.is_none()) && !all.any(|edge| edge.handles_failure())
        }
        Route::Edges => false,
    }
}

pub(crate) fn can_fail(plan: &Plan, no: StepNo) -> bool {
    match &plan.step(no).work {
        Work::Pipeline { tasks } => {
            let tasks = tasks.as_array().into_iter().flatten();
            tasks.filter_map(Json::as_object).any(|task| {
                let kind = task.get("kind").and_then(Json::as_str);
                let works = !matches!(kind, Some("noop" | "sleep"));
                let rules = task.get("rules").and_then(Json::as_array);
                works && !rules.into_iter().flatten().any(goes_on)
            })
        }
        Work::Task { .. } | Work::Wait(_) | Work::Child(_) => true,
    }
}

/// Whether a rule of a task makes something else of a failure.
fn goes_on(rule: &Json) -> bool {
    let action = rule.get("do").and_then(Json::as_str);
    let when = rule.get("when").and_then(Json::as_str);
    let asks = when.is_none_or(|when| when.contains("error"));
    matches!(action, Some("continue" | "break" | "jump")) && asks
}
