//! Checks that need the whole workflow: names, the graph, compensation, and what will never happen.

use std::collections::{HashMap, HashSet};

use stepwell_kernel::plan::{MAX_EDGES, MAX_STEPS, Work};

use super::model::{DagOnFailure, DagStep, DagWorkflow, FailurePolicy};
use crate::codes;
use crate::depends;
use crate::problem::Problems;
use crate::words::{self, quote};

/// Reports what is wrong and gives each step's dependencies as places in the file.
pub(crate) fn workflow(it: &DagWorkflow<'_>, p: &mut Problems) -> Vec<Vec<usize>> {
    let edges: usize = it.steps.iter().map(|step| step.needs.len()).sum();
    if it.steps.len() > MAX_STEPS || edges > MAX_EDGES {
        let message =
            format!("a workflow may have at most {MAX_STEPS} steps and {MAX_EDGES} dependencies");
        p.error(codes::PLAN_TOO_LARGE, it.steps_span, message)
            .help("split it into several workflows");
    }
    let places = places(&it.steps, p);
    let needs = needs(&it.steps, &places, p);
    graph(it, &needs, p);
    compensation(it, &places, p);
    unused_policy(it, p);
    timeouts(it, p);
    needs
}

fn places<'n>(steps: &[DagStep<'n>], p: &mut Problems) -> HashMap<&'n str, usize> {
    let mut places = HashMap::with_capacity(steps.len());
    for (at, step) in steps.iter().enumerate() {
        if places.contains_key(step.name.name) {
            let message = format!(
                "a step before this one is named {} too",
                quote(step.name.name)
            );
            p.error(codes::DAG_STEP_DUPLICATE, step.name.span, message)
                .help("give each step a name of its own");
        } else {
            places.insert(step.name.name, at);
        }
    }
    places
}

fn needs(
    steps: &[DagStep<'_>],
    places: &HashMap<&str, usize>,
    p: &mut Problems,
) -> Vec<Vec<usize>> {
    let mut all = Vec::with_capacity(steps.len());
    for step in steps {
        let mut known = Vec::new();
        for need in &step.needs {
            match places.get(need.name) {
                Some(place) => known.push(*place),
                None => {
                    let message = format!("there is no step {}", quote(need.name));
                    let help = nearest_step(need.name, steps, p);
                    p.error(codes::DAG_STEP_UNKNOWN, need.span, message)
                        .help(help);
                }
            }
        }
        all.push(known);
    }
    all
}

fn nearest_step(given: &str, steps: &[DagStep<'_>], p: &Problems) -> String {
    // Past the cap nobody sees the help, and finding it costs.
    if p.is_full() {
        return String::new();
    }
    let names: Vec<&str> = steps.iter().map(|step| step.name.name).collect();
    match words::nearest(given, &names) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None if names.len() <= 12 => format!("the steps are {}", words::list(&names)),
        None => "name a step of this workflow".to_owned(),
    }
}

fn graph(it: &DagWorkflow<'_>, needs: &[Vec<usize>], p: &mut Problems) {
    let name = |at: usize| quote(it.steps[at].name.name);
    let dependency_cycles = depends::dependency_cycles(needs);
    if !it.steps.is_empty() && it.steps.iter().all(|step| !step.needs.is_empty()) {
        p.error(
            codes::DAG_NO_ROOT,
            it.steps_span,
            "every step depends on another, so none can be the first",
        )
        .help("remove `dependsOn` from the step that starts the workflow");
    }
    for cycle in &dependency_cycles.cycles {
        let [first, ..] = cycle[..] else { continue };
        let next = cycle.get(1).copied().unwrap_or(first);
        let next_name = it.steps[next].name.name;
        let mention = it.steps[first]
            .needs
            .iter()
            .find(|need| need.name == next_name);
        let span = mention.map_or(it.steps[first].name.span, |need| need.span);
        let (message, help) = if cycle.len() == 1 {
            let message = format!("the step {} depends on itself", name(first));
            (message, "remove it from its own `dependsOn`")
        } else {
            let path = depends::path(cycle, |at| it.steps[at].name.name.to_owned());
            let message = format!("these steps depend on each other: {path}");
            (message, "remove one of these from its step's `dependsOn`")
        };
        p.error(codes::DAG_CYCLE, span, message).help(help);
    }
    for at in dependency_cycles.starved {
        let message = format!(
            "the step {} can never start: it waits for steps that depend on each other",
            name(at)
        );
        p.error(codes::DAG_UNREACHABLE, it.steps[at].name.span, message)
            .help("fix the steps it depends on");
    }
}

fn compensation(it: &DagWorkflow<'_>, places: &HashMap<&str, usize>, p: &mut Problems) {
    let mut undone = HashSet::new();
    for undo in &it.compensation {
        let name = undo.step.name;
        if !places.contains_key(name) {
            let message = format!("there is no step {} to compensate", quote(name));
            let help = nearest_step(name, &it.steps, p);
            p.error(codes::DAG_COMPENSATION_UNKNOWN, undo.step.span, message)
                .help(help);
        } else if !undone.insert(name) {
            let message = format!("the step {} has a compensation already", quote(name));
            p.error(codes::DAG_COMPENSATION_DUPLICATE, undo.step.span, message)
                .help("keep one; a compensation may be a list of tools");
        }
    }
    for step in &it.steps {
        let has = undone.contains(step.name.name);
        match step.compensable {
            Some((true, span)) if !has => p
                .error(
                    codes::DAG_COMPENSATION_MISSING,
                    span,
                    format!("the step {} has no compensation", quote(step.name.name)),
                )
                .help("add an entry for it to `spec.compensation`, or remove `compensable`"),
            Some((false, span)) if has => p
                .error(
                    codes::FIELD_CONFLICT,
                    span,
                    format!(
                        "the step {} cannot be compensated and has a compensation",
                        quote(step.name.name)
                    ),
                )
                .help("remove one of the two"),
            _ => continue,
        };
    }
}

/// A policy that asks for what the file does not provide.
fn unused_policy(it: &DagWorkflow<'_>, p: &mut Problems) {
    if it.compensation.is_empty() {
        let by_step = it.steps.iter().find_map(|step| match step.on_failure {
            Some((DagOnFailure::Compensate, span)) => Some(span),
            _ => None,
        });
        let by_run = it
            .failure
            .filter(|(policy, _)| *policy == FailurePolicy::Compensate);
        if let Some(span) = by_run.map(|(_, span)| span).or(by_step) {
            p.warn(
                codes::DAG_POLICY_UNUSED,
                span,
                "this workflow has no `compensation`, so there is nothing to undo",
            )
            .help("add `compensation` for the steps that change something, or write `abort`");
        }
    }
    if let Some((FailurePolicy::Retry, span)) = it.failure
        && it.steps.iter().all(|step| step.retry.is_none())
    {
        p.warn(
            codes::DAG_POLICY_UNUSED,
            span,
            "no step has a `retryPolicy`, so nothing is retried and a failure aborts",
        )
        .help("add a `retryPolicy` to the steps, or write `abort`");
    }
}

/// Without any timeout a lost agent would keep the workflow open without end.
fn timeouts(it: &DagWorkflow<'_>, p: &mut Problems) {
    if it.timeout_ms.is_some() {
        return;
    }
    let endless = |step: &&DagStep<'_>| {
        let waits = matches!(&step.work, Work::Wait(wait) if wait.deadline_ms.is_some());
        step.timeout_ms.is_none() && !waits
    };
    let mut steps = it.steps.iter().filter(endless);
    let Some(first) = steps.next() else { return };
    let others = match steps.count() {
        0 => String::new(),
        1 => " and one more step".to_owned(),
        n => format!(" and {n} more steps"),
    };
    let message = format!(
        "{}{others} may run without end: neither step nor workflow has a `timeout`",
        quote(first.name.name)
    );
    p.warn(codes::DAG_NO_TIMEOUT, first.name.span, message)
        .help("add `timeout: 30m` to `spec`, or a `timeout` to each step");
}
