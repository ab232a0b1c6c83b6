//! Calls of definitions that do not exist, or that have errors, as far as a check can tell.

use std::path::Path;

use serde_json::Value as Json;
use stepwell_kernel::expr::has_template;
use stepwell_kernel::plan::{Plan, Work};

use crate::{Node, Problem, Severity, Source, Span, Value, tree};

const CODE: &str = "CHILD_UNKNOWN";

/// A problem for each call whose definition is not found: an error if the call names a file and the definition is strict
/// about names, else a warning, because the definition may be known where the run is executed.
pub fn unknown(source: &Source, plan: &Plan, is_known: &dyn Fn(&str) -> bool) -> Vec<Problem> {
    let mut paths = called(plan);
    paths.sort_unstable();
    paths.dedup();
    paths.retain(|path| !is_known(path));
    if paths.is_empty() {
        return Vec::new();
    }
    let root = tree::parse(source).ok();
    let place = |path: &str| root.as_ref().and_then(|root| place(root, path));
    paths
        .into_iter()
        .map(|path| {
            let strict = plan.policy().strict_templates;
            let severity = match strict && names_a_file(path) {
                true => Severity::Error,
                false => Severity::Warning,
            };
            let message = format!("there is no definition `{path}` that can be run");
            let at = place(path).unwrap_or_default();
            let mut problem = Problem::new(CODE, severity, at, message);
            problem.help(
                "write the path of a file relative to this file, or the name that a definition near it declares; \
                 `stepwell check` says what is wrong with the file",
            );
            problem
        })
        .collect()
}

fn names_a_file(path: &str) -> bool {
    let ending = Path::new(path).extension().and_then(|it| it.to_str());
    let known = ending.is_some_and(|it| ["yaml", "yml", "json"].contains(&it));
    known || path.starts_with("./") || path.starts_with("../")
}

/// The definitions that steps and their tasks call by a path that is written out.
#[must_use]
pub fn called(plan: &Plan) -> Vec<&str> {
    let net = plan.net();
    let mut paths = Vec::new();
    let mut lists: Vec<&Json> = net
        .library
        .values()
        .filter_map(|it| it.get("tasks"))
        .collect();
    for step in &net.steps {
        match &step.work {
            Work::Child(child) => paths.push(child.path.as_str()),
            Work::Pipeline { tasks } => lists.push(tasks),
            Work::Task { .. } | Work::Wait(_) => {}
        }
    }
    for task in lists.into_iter().filter_map(Json::as_array).flatten() {
        let is_call = task.get("kind").and_then(Json::as_str) == Some("playbook");
        let path = task.get("path").and_then(Json::as_str);
        paths.extend(path.filter(|path| is_call && !has_template(path)));
    }
    paths
}

/// The first text that is this path.
fn place(node: &Node, path: &str) -> Option<Span> {
    match &node.value {
        Value::Str(text) => (text == path).then_some(node.span),
        Value::Seq(items) => items.iter().find_map(|it| place(it, path)),
        Value::Map(entries) => entries.iter().find_map(|it| place(&it.node, path)),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => None,
    }
}
