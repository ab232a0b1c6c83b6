//! Playbooks: what they compile to, and what is said about the ones that are wrong.

mod compile;
mod examples;
mod mistakes;
mod tools;
mod words;

use stepwell_dialects::problem::render;
use stepwell_dialects::{Loaded, load};
use stepwell_kernel::plan::{Net, Step};

use crate::source;

/// A playbook with this below its header.
fn text(body: &str) -> String {
    format!("apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: t}}\n{body}")
}

fn loaded(body: &str) -> Loaded {
    load(&source(&text(body)))
}

/// The net of a playbook that must load without a problem.
fn net(body: &str) -> Net {
    let loaded = loaded(body);
    let shown = render(&source(&text(body)), &loaded.problems, false);
    assert!(loaded.problems.is_empty(), "{shown}");
    loaded.plan.expect("a plan").net().clone()
}

fn step<'n>(net: &'n Net, name: &str) -> &'n Step {
    let found = net.steps.iter().find(|step| step.name == name);
    found.expect("the step is there")
}

/// The net of a playbook with one step that has these tools.
fn tasks(tool: &str) -> serde_json::Value {
    let net = net(&format!("workflow:\n- step: a\n  tool: {tool}\n"));
    match &net.steps[0].work {
        stepwell_kernel::plan::Work::Pipeline { tasks } => tasks.clone(),
        other => panic!("not a pipeline: {other:?}"),
    }
}

/// The problems of a playbook as people see them.
fn shown(body: &str) -> String {
    render(&source(&text(body)), &loaded(body).problems, false)
}

/// The codes of the problems, errors and warnings.
fn codes(body: &str) -> Vec<&'static str> {
    let problems = loaded(body).problems;
    problems.iter().map(|problem| problem.code).collect()
}
