//! The tools that a plan uses, and the places in its source where it names those that may not be used.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use stepwell_kernel::codes::TOOL_FORBIDDEN;
use stepwell_kernel::plan::{Plan, StepNo, Work};

use super::kinds::{self, RunBy};
use crate::problem::{Problem, Severity};
use crate::source::{Source, Span};
use crate::tree::{self, Node};

/// The fields that name a tool.
const NAMES: [&str; 2] = ["kind", "tool"];

/// The tools that a plan uses, also in undos and in named tasks.
#[must_use]
pub fn of_plan(plan: &Plan) -> BTreeSet<&str> {
    let steps = plan.numbers().flat_map(|no| of_step(plan, no));
    let library = plan.net().library.values();
    let named = library.filter_map(|entry| entry.get("tasks"));
    steps.chain(named.flat_map(of_tasks)).collect()
}

/// The tools of a step and of its undo, with those of the named tasks that they call.
#[must_use]
pub fn of_step(plan: &Plan, no: StepNo) -> BTreeSet<&str> {
    let step = plan.step(no);
    let work = match &step.work {
        Work::Pipeline { tasks } => Some(tasks),
        Work::Task { .. } | Work::Wait(_) | Work::Child(_) => None,
    };
    let undo = step.undo.as_ref().map(|undo| &undo.tasks);
    let tasks = work.into_iter().chain(undo);
    let library = &plan.net().library;
    let called = tasks
        .clone()
        .flat_map(|it| it.as_array().into_iter().flatten());
    let called = called.filter_map(|task| library.get(task.get("task")?.as_str()?)?.get("tasks"));
    tasks.chain(called).flat_map(of_tasks).collect()
}

fn of_tasks(tasks: &Json) -> impl Iterator<Item = &str> {
    let tasks = tasks.as_array().into_iter().flatten();
    let kinds = tasks.filter_map(|task| task.get("kind")?.as_str());
    // A kind that is not in the table is a tool that a worker was given.
    kinds.filter(|kind| kinds::find(kind).is_none_or(|it| it.run_by == RunBy::Tool))
}

/// A problem for each place where a tool is named that may not be used. `forbids` says why one may not.
#[must_use]
pub fn forbidden(
    source: Option<&Source>,
    plan: &Plan,
    forbids: impl Fn(&str) -> Option<String>,
) -> Vec<Problem> {
    let root = source.and_then(|source| tree::parse(source).ok());
    let mut found = Vec::new();
    for tool in of_plan(plan) {
        let Some(why) = forbids(tool) else { continue };
        let mut places = Vec::new();
        if let Some(root) = &root {
            named(root, tool, &mut places);
        }
        // A file may say it in a way that is not known here.
        if places.is_empty() {
            places.push(Span::at(0));
        }
        found.extend(places.into_iter().map(|place| {
            let mut problem = Problem::new(TOOL_FORBIDDEN, Severity::Error, place, why.clone());
            problem.help("use another tool, or have the list in the configuration changed");
            problem
        }));
    }
    found.sort_by_key(|it| it.span.start);
    found
}

/// Where a tool is named below a node.
fn named(node: &Node, tool: &str, places: &mut Vec<Span>) {
    for entry in node.as_map().into_iter().flatten() {
        let is_tool = |it: &str| kinds::find(it).map_or(it, |kind| kind.name) == tool;
        let is_name = NAMES.contains(&entry.key.as_str());
        match entry.node.as_str().filter(|it| is_name && is_tool(it)) {
            Some(_) => places.push(entry.node.span),
            None => named(&entry.node, tool, places),
        }
    }
    for item in node.as_seq().into_iter().flatten() {
        named(item, tool, places);
    }
}
