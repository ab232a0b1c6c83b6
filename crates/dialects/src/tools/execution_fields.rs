//! `execution` in templates: which fields the variable has, where it has a value, and where the definition uses the name
//! for something of its own. The values are the worker's (`crates/worker/src/fence.rs`).
//!
//! A field that does not exist would be rendered as nothing, and a fence that is nothing protects nobody; so a wrong
//! path is an error when the definition is loaded.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};
use stepwell_kernel::expr::ReadSite;
use stepwell_kernel::plan::{EdgeNo, Plan, StepNo, Undo, Work};

use super::templates::{self, Evaluated};

/// The name of the variable.
pub const ROOT: &str = "execution";

/// The fields of the variable.
pub const NAMES: [&str; 7] = [
    "attempt",
    "fence",
    "idempotency_key",
    "number",
    "run_id",
    "step_id",
    "task_key",
];

/// A read of a path that has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misread {
    /// The step of the template; absent where it belongs to no step.
    pub(crate) step: Option<StepNo>,
    /// The template as it is written.
    pub(crate) text: String,
    /// The place in the template, and the path, such as `execution.fense`.
    pub(crate) site: ReadSite,
    pub(crate) why: MisreadCause,
}

/// Why a path has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MisreadCause {
    /// The variable has no such field.
    UnknownField,
    /// The template is evaluated where there is no execution: in an arc, a loop, an admission, the input of a child run.
    NoExecution,
}

/// Every read below `execution` that has no value.
#[must_use]
pub(crate) fn misread(plan: &Plan) -> Vec<Misread> {
    let mut found = Vec::new();
    let by_plan = is_given_by_plan(plan);
    templates::each(plan, &mut |step, by, template| {
        if !template.reads_root(ROOT) || by == Evaluated::AsKey {
            return;
        }
        let is_outside = !by.is_by_worker();
        let is_given = match step {
            Some(no) if !is_outside => is_given(plan, no),
            _ => by_plan,
        };
        let sites = template.sites().into_iter().filter(|_| !is_given);
        for site in sites.filter(|site| site.path.split('.').next() == Some(ROOT)) {
            let field = site.path.split('.').nth(1);
            let why = match is_outside {
                true => MisreadCause::NoExecution,
                false if field.is_some_and(|field| !NAMES.contains(&field)) => {
                    MisreadCause::UnknownField
                }
                false => continue,
            };
            found.push(Misread {
                step,
                text: template.source().to_owned(),
                site,
                why,
            });
        }
    });
    found
}

/// Whether the definition itself uses the name for something that the tasks of a step see: then the name means that.
#[must_use]
pub fn is_given(plan: &Plan, no: StepNo) -> bool {
    let step = plan.step(no);
    let tasks = match &step.work {
        Work::Pipeline { tasks } => tasks,
        Work::Task { .. } | Work::Wait(_) | Work::Child(_) => &Json::Null,
    };
    let undo_gives = |undo: &Undo| undo.input.get(ROOT).is_some() || tasks_give(&undo.tasks);
    let arc_gives = |edge: &EdgeNo| {
        let args = plan.edge(*edge).args.as_ref();
        args.is_some_and(|args| args.to_json().get(ROOT).is_some())
    };
    is_given_by_plan(plan)
        || step.each.as_ref().is_some_and(|it| it.iterator == ROOT)
        || step.input.get(ROOT).is_some()
        || tasks_give(tasks)
        || step.undo.as_ref().is_some_and(undo_gives)
        || plan.incoming(no).iter().any(arc_gives)
}

/// A step, a parameter, or something of a named task that any step may call has the name.
fn is_given_by_plan(plan: &Plan) -> bool {
    plan.find_in_expression(ROOT).is_some()
        || plan.net().workload.get(ROOT).is_some()
        || library(plan).any(tasks_give)
}

fn library(plan: &Plan) -> impl Iterator<Item = &Json> {
    let entries = plan.net().library.values();
    entries.filter_map(|entry| entry.get("tasks"))
}

/// A task, an argument of a task, or a variable that a task sets has the name.
fn tasks_give(tasks: &Json) -> bool {
    let tasks = tasks.as_array().into_iter().flatten();
    tasks.filter_map(Json::as_object).any(|task| {
        let has = |map: &Map<String, Json>, key: &str| {
            let value = map.get(key);
            value.is_some_and(|it| it.get(ROOT).is_some())
        };
        let rules = task.get("rules").and_then(Json::as_array);
        let mut rules = rules.into_iter().flatten().filter_map(Json::as_object);
        task.get("name").and_then(Json::as_str) == Some(ROOT)
            || has(task, "args")
            || has(task, "set_step")
            || rules.any(|rule| has(rule, "set_step"))
    })
}

/// The names that no input, event or result can change in a named task that any step may call.
pub(super) fn fixed_in_library(plan: &Plan) -> BTreeSet<String> {
    let is_fixed = !is_given_by_plan(plan);
    is_fixed.then(|| ROOT.to_owned()).into_iter().collect()
}

/// The names that no input, event or result can change in a step: beside `execution`, the item of a loop over a list that
/// is written out.
#[must_use]
pub fn fixed_names(plan: &Plan, no: StepNo) -> BTreeSet<String> {
    let step = plan.step(no);
    let mut names = BTreeSet::new();
    if !is_given(plan, no) {
        names.insert(ROOT.to_owned());
    }
    if let Some(each) = &step.each
        && each.items.reads().is_empty()
    {
        names.insert(each.iterator.clone());
        names.insert(format!("iter.{}", each.iterator));
    }
    names
}
