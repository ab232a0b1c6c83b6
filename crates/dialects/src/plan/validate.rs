//! Checks that need the whole plan: ids, dependencies, and what its parts promise each other.

use std::collections::HashMap;

use stepwell_kernel::plan::{MAX_EDGES, MAX_STEPS};

use super::model::{Header, OnStepFailure, PlanStep};
use crate::codes;
use crate::depends;
use crate::problem::Problems;
use crate::words::{self, quote};

/// Reports what is wrong and gives each step's dependencies as places in the file. A plan without
/// any dependency is a list: each step depends on the one before it.
pub(super) fn plan(
    header: &Header<'_>,
    steps: &[PlanStep<'_>],
    p: &mut Problems,
) -> Vec<Vec<usize>> {
    let edges: usize = steps.iter().map(|step| step.needs.len()).sum();
    if steps.len() > MAX_STEPS || edges > MAX_EDGES {
        let message =
            format!("a plan may have at most {MAX_STEPS} steps and {MAX_EDGES} dependencies");
        p.error(codes::PLAN_TOO_LARGE, header.steps_span, message)
            .help("split it into several plans");
    }
    unused_holds(header, steps, p);
    let places = places(steps, p);
    if steps.iter().all(|step| step.needs.is_empty()) {
        sequential(header, steps, p);
        return (0..steps.len())
            .map(|at| at.checked_sub(1).into_iter().collect())
            .collect();
    }
    let needs = needs(steps, &places, p);
    circles(steps, &needs, p);
    needs
}

/// A plan that asks for parallel steps and has no dependency is probably not meant as a list.
fn sequential(header: &Header<'_>, steps: &[PlanStep<'_>], p: &mut Problems) {
    if let Some(span) = header.wants_parallel
        && steps.len() > 1
    {
        p.warn(
            codes::PLAN_SEQUENTIAL,
            span,
            "no step has `dependsOn`, so the steps run one after the other, not side by side",
        )
        .help("let the steps that may run side by side depend on the same step");
    }
}

fn places<'n>(steps: &[PlanStep<'n>], p: &mut Problems) -> HashMap<&'n str, usize> {
    let mut places = HashMap::with_capacity(steps.len());
    for (at, step) in steps.iter().enumerate() {
        if places.contains_key(step.id.name) {
            let message = format!(
                "a step before this one has the id {} too",
                quote(step.id.name)
            );
            p.error(codes::INVALID_PLAN_SCHEMA, step.id.span, message)
                .help("give each step an id of its own");
        } else {
            places.insert(step.id.name, at);
        }
    }
    places
}

fn needs(
    steps: &[PlanStep<'_>],
    places: &HashMap<&str, usize>,
    p: &mut Problems,
) -> Vec<Vec<usize>> {
    let names: Vec<&str> = steps.iter().map(|step| step.id.name).collect();
    let mut all = Vec::with_capacity(steps.len());
    for step in steps {
        let mut known = Vec::new();
        for need in &step.needs {
            if let Some(place) = places.get(need.name) {
                known.push(*place);
                continue;
            }
            let help = if p.is_full() {
                String::new()
            } else if let Some(near) = words::nearest(need.name, &names) {
                format!("did you mean {}?", quote(near))
            } else if names.len() <= 12 {
                format!("the steps are {}", words::list(&names))
            } else {
                "name a step of this plan".to_owned()
            };
            let message = format!("there is no step {}", quote(need.name));
            p.error(codes::INVALID_PLAN_SCHEMA, need.span, message)
                .help(help);
        }
        all.push(known);
    }
    all
}

fn circles(steps: &[PlanStep<'_>], needs: &[Vec<usize>], p: &mut Problems) {
    let dependency_cycles = depends::dependency_cycles(needs);
    for cycle in &dependency_cycles.cycles {
        let [first, ..] = cycle[..] else { continue };
        let next = steps[cycle.get(1).copied().unwrap_or(first)].id.name;
        let mention = steps[first].needs.iter().find(|need| need.name == next);
        let span = mention.map_or(steps[first].id.span, |need| need.span);
        let (message, help) = if cycle.len() == 1 {
            let message = format!("the step {} depends on itself", quote(next));
            (message, "remove it from its own `dependsOn`")
        } else {
            let path = depends::path(cycle, |at| steps[at].id.name.to_owned());
            let message = format!("these steps depend on each other: {path}");
            (message, "remove one of these from its step's `dependsOn`")
        };
        p.error(codes::INVALID_PLAN_SCHEMA, span, message)
            .help(help);
    }
}

/// A time to hold that nothing holds.
fn unused_holds(header: &Header<'_>, steps: &[PlanStep<'_>], p: &mut Problems) {
    let holds =
        |step: &PlanStep<'_>| step.on_failure.unwrap_or(header.on_failure) == OnStepFailure::Hold;
    let by_plan = header.hold.filter(|_| !steps.iter().any(holds));
    let by_step = steps.iter().filter(|step| !holds(step));
    let by_step = by_step.filter_map(|step| step.hold);
    for (_, span) in by_plan.into_iter().chain(by_step) {
        p.warn(
            codes::PLAN_HOLD_UNUSED,
            span,
            "nothing is held, so `holdTimeout` has no effect",
        )
        .help("add `onStepFailure: hold`, or remove it");
    }
}
