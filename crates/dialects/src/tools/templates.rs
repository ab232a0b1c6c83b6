//! Every template of a plan, with the step that it belongs to and who evaluates it.

use serde_json::Value as Json;
use stepwell_kernel::expr::{Template, TemplateValue, has_template};
use stepwell_kernel::plan::{MaxInFlight, Plan, StepNo, Work};

use super::ToolKind;

/// Who evaluates a template, and when: it decides what the template sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evaluated {
    /// When the run is created: the defaults of its parameters.
    AtCreation,
    /// When the run is created: its business key.
    AsKey,
    /// By the engine, at the end of the step: arcs, and variables that the step sets.
    AtBoundary,
    /// By the engine, before the step: its admission rules. They may wait for a variable that comes from outside.
    AtAdmission,
    /// By the engine, when the loop of the step begins.
    AtLoop,
    /// By the engine: what a child run is given.
    ForChild,
    /// By the worker: the input of the step.
    AsInput,
    /// By the worker, in the tasks of the step.
    InTasks,
    /// By the worker: the input of the undo.
    AsUndoInput,
    /// By the worker, in the tasks of the undo.
    InUndoTasks,
    /// By the worker, in the tasks of the library, which belong to the step that calls them.
    InLibrary,
}

impl Evaluated {
    /// Whether a worker evaluates it, in an execution of the step.
    pub(crate) fn is_by_worker(self) -> bool {
        match self {
            Evaluated::AsInput
            | Evaluated::InTasks
            | Evaluated::AsUndoInput
            | Evaluated::InUndoTasks
            | Evaluated::InLibrary => true,
            Evaluated::AtCreation
            | Evaluated::AsKey
            | Evaluated::AtBoundary
            | Evaluated::AtAdmission
            | Evaluated::AtLoop
            | Evaluated::ForChild => false,
        }
    }
}

/// Calls `see` for every template of the plan.
pub(crate) fn each(plan: &Plan, see: &mut dyn FnMut(Option<StepNo>, Evaluated, &Template)) {
    let net = plan.net();
    json(&net.workload, &mut |it| {
        see(None, Evaluated::AtCreation, it)
    });
    if let Some(key) = &net.policy.event_key {
        text(key, &mut |it| see(None, Evaluated::AsKey, it));
    }
    for edge in &net.edges {
        let mut see = |it: &Template| see(Some(edge.from), Evaluated::AtBoundary, it);
        edge.when.iter().for_each(&mut see);
        edge.args.iter().for_each(|it| value(it, &mut see));
        edge.set_ctx.iter().for_each(|(_, it)| value(it, &mut see));
    }
    for no in plan.numbers() {
        of_step(plan, no, see);
    }
    for entry in net.library.values() {
        let list = entry.get("tasks").unwrap_or(&Json::Null);
        tasks(list, &mut |it| see(None, Evaluated::InLibrary, it));
    }
}

fn of_step(plan: &Plan, no: StepNo, see: &mut dyn FnMut(Option<StepNo>, Evaluated, &Template)) {
    let step = plan.step(no);
    let mut see = |by: Evaluated, it: &Template| see(Some(no), by, it);
    let rules = step.admit.iter().flat_map(|admit| &admit.rules);
    let whens = rules.filter_map(|rule| rule.when.as_ref());
    whens.for_each(|it| see(Evaluated::AtAdmission, it));
    for (_, it) in &step.set_ctx {
        value(it, &mut |it| see(Evaluated::AtBoundary, it));
    }
    if let Some(each) = &step.each {
        value(&each.items, &mut |it| see(Evaluated::AtLoop, it));
        if let MaxInFlight::Computed(template) = &each.max_in_flight {
            see(Evaluated::AtLoop, template);
        }
    }
    json(&step.input, &mut |it| see(Evaluated::AsInput, it));
    match &step.work {
        Work::Pipeline { tasks: list } => tasks(list, &mut |it| see(Evaluated::InTasks, it)),
        Work::Task { config, .. } => json(config, &mut |it| see(Evaluated::AsInput, it)),
        Work::Child(child) => value(&child.input, &mut |it| see(Evaluated::ForChild, it)),
        Work::Wait(_) => {}
    }
    if let Some(undo) = &step.undo {
        json(&undo.input, &mut |it| see(Evaluated::AsUndoInput, it));
        tasks(&undo.tasks, &mut |it| see(Evaluated::InUndoTasks, it));
    }
}

fn text(text: &str, see: &mut dyn FnMut(&Template)) {
    if has_template(text)
        && let Ok(template) = Template::parse(text)
    {
        see(&template);
    }
}

fn value(value: &TemplateValue, see: &mut dyn FnMut(&Template)) {
    match value.as_template() {
        Some(template) => see(template),
        None if value.is_static() => {}
        None => json(&value.to_json(), see),
    }
}

fn json(value: &Json, see: &mut dyn FnMut(&Template)) {
    match value {
        Json::String(it) => text(it, see),
        Json::Array(items) => items.iter().for_each(|it| json(it, see)),
        Json::Object(map) => map.values().for_each(|it| json(it, see)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// Tasks in their normalised form. The text of a program is never rendered, and a condition may stand without braces.
fn tasks(tasks: &Json, see: &mut dyn FnMut(&Template)) {
    let tasks = tasks.as_array().into_iter().flatten();
    for task in tasks.filter_map(Json::as_object) {
        let kind = task.get("kind").and_then(Json::as_str);
        let program = kind.and_then(super::find).and_then(ToolKind::program_field);
        for (key, value) in task {
            let is_program = program == Some(key) || program.is_some() && key == "script";
            if !is_program {
                json(value, see);
            }
        }
    }
}
