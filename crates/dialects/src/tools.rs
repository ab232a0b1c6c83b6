//! Tool blocks: what a step runs without anyone writing a worker. All five languages take them.
//!
//! A block is one task or a list of tasks that run one after the other. Here it is read, checked
//! and normalised: whatever words the file used, the worker sees one form, so the same results
//! give the same events. Templates stay as written; the worker renders them. Not here: running
//! anything.
//!
//! A normalised task is `{name, kind, …}` with the kind's own fields and, where given:
//! `args` (mapping), `timeout_ms` (or `timeout`, a template), `auth`, `assert`, `set_ctx`,
//! `set_iter`, `set_step` (mappings of bare names; `set_step` is what the tasks after it find under
//! the bare name and as `step.name`), and `rules`, a list of
//! `{when?, do, attempts?, backoff?, delay_ms? | delay?, to?, set_ctx?, set_iter?, set_step?}`.

pub mod execution_fields;
pub mod kinds;
mod label;
mod rules;
mod script;
mod server_reach;
mod sets;
pub mod table;
mod task;
pub(crate) mod templates;
pub mod untrusted;
pub mod used;

use serde_json::{Map, Value as Json, json};
use stepwell_kernel::expr::{TemplateValue, has_template};
use stepwell_kernel::plan::{ChildSpec, WaitOn, WaitSpec, Work};

use crate::codes;
use crate::field::Field;
use crate::problem::Problems;
use crate::source::Span;
use crate::words::quote;

pub use kinds::{PipelineKind, RunBy, ToolKind, find, names as kind_names};
pub use rules::RuleAction;
pub(crate) use sets::{Assignments, VarScope};

/// What stands in a normalised task beside the fields of its kind.
pub const TASK_KEYS: [&str; 13] = [
    "name",
    "kind",
    "description",
    "args",
    "auth",
    "assert",
    "timeout",
    "timeout_ms",
    "rules",
    "set_ctx",
    "set_iter",
    "set_step",
    "select",
];

/// Most tasks one block may have.
pub const MAX_TASKS: usize = 200;

/// A task in its normalised form, and its place in the source.
#[derive(Clone, Debug)]
pub(crate) struct TaskDef {
    pub(crate) span: Span,
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    /// The name of the workbook entry that the task calls, and the place of that name in the source.
    pub(crate) workbook: Option<(String, Span)>,
    pub(crate) json: Map<String, Json>,
}

/// Reads a tool block as a step's work.
///
/// A block with nothing but one call of another workflow, one wait, one manual task or one sleep
/// needs no worker and becomes that; everything else is a pipeline.
pub fn work(field: &Field<'_>, p: &mut Problems) -> Option<Work> {
    let tasks = pipeline(field, p)?;
    let mut known = true;
    for (name, span) in tasks.iter().filter_map(|task| task.workbook.as_ref()) {
        known = false;
        p.error(
            codes::WORKBOOK_UNKNOWN,
            *span,
            format!("there is no workbook task {}", quote(name)),
        )
        .help("only playbooks have a `workbook`; write the task itself here");
    }
    known.then(|| into_work(tasks))
}

/// Reads a tool block as its tasks. `None` if anything in it was an error.
pub(crate) fn pipeline(field: &Field<'_>, p: &mut Problems) -> Option<Vec<TaskDef>> {
    let items = field.list_or_one();
    if items.is_empty() || items.len() > MAX_TASKS {
        field
            .error(
                codes::FIELD_VALUE,
                &format!("must have from 1 to {MAX_TASKS} tasks"),
                p,
            )
            .help("leave it out where there is nothing to do");
        return None;
    }
    let mut read: Vec<Option<TaskDef>> = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        read.push(task::read(item, at, p));
    }
    let names: Vec<&str> = read.iter().flatten().map(|it| it.name.as_str()).collect();
    let mut ok = label::unique(&read, p);
    if read.iter().all(Option::is_some) {
        for item in &items {
            ok &= rules::targets(item, &names, p);
        }
    }
    ok &= alone(&read, p);
    let tasks: Option<Vec<TaskDef>> = read.into_iter().collect();
    tasks.filter(|_| ok)
}

/// Nobody works on a wait, so it cannot stand between tasks that one worker runs in one go.
fn alone(tasks: &[Option<TaskDef>], p: &mut Problems) -> bool {
    let mut ok = true;
    for task in tasks.iter().flatten() {
        let waits = find(task.kind).is_some_and(|kind| kind.run_by == RunBy::Engine);
        if waits && (tasks.len() > 1 || task.json.contains_key("rules")) {
            ok = false;
            p.error(
                codes::TOOL_NOT_ALONE,
                task.span,
                format!(
                    "{} must be the only task of its step, without policy rules",
                    quote(task.kind)
                ),
            )
            .help("give it a step of its own and route the result from there");
        }
        if waits {
            ok &= nobody_reads(task, p);
        }
    }
    ok
}

/// No worker sees a wait, so nobody would look at these.
fn nobody_reads(task: &TaskDef, p: &mut Problems) -> bool {
    if task.json.contains_key("timeout") {
        p.error(
            codes::FIELD_VALUE,
            task.span,
            format!("the `timeout` of {} cannot be a template", quote(task.kind)),
        )
        .help("write it out, such as \"24h\"");
        return false;
    }
    for key in task.json.keys() {
        if !matches!(
            key.as_str(),
            "name" | "kind" | "description" | "event" | "timeout_ms" | "rules"
        ) {
            p.warn(
                codes::FIELD_UNUSED,
                task.span,
                format!("{} of a {} task is not used", quote(key), quote(task.kind)),
            )
            .help("remove it; give the step `set_ctx` to keep what the wait brought");
        }
    }
    true
}

/// The work that these tasks are.
pub(crate) fn into_work(tasks: Vec<TaskDef>) -> Work {
    if let [task] = &tasks[..]
        && let Some(work) = shortcut(task)
    {
        return work;
    }
    let tasks = tasks.into_iter().map(|it| Json::Object(it.json)).collect();
    Work::Pipeline { tasks }
}

/// The work of a step that has nothing to do but to pass tokens on.
#[must_use]
pub fn nothing() -> Work {
    Work::Pipeline {
        tasks: json!([{"name": "task_1", "kind": "noop"}]),
    }
}

/// Work that needs no worker, if this task is that and nothing else.
fn shortcut(task: &TaskDef) -> Option<Work> {
    let only = |keys: &[&str]| {
        task.json.keys().all(|key| {
            matches!(key.as_str(), "name" | "kind" | "description") || keys.contains(&&**key)
        })
    };
    let text = |key: &str| task.json.get(key).and_then(Json::as_str);
    let millis = |key: &str| task.json.get(key).and_then(Json::as_u64);
    match task.kind {
        "playbook" if only(&["path", "args", "return_step"]) => {
            let path = text("path").filter(|path| !has_template(path))?;
            let args = task.json.get("args").cloned().unwrap_or_else(|| json!({}));
            Some(Work::Child(ChildSpec {
                path: path.to_owned(),
                return_step: text("return_step").map(str::to_owned),
                input: TemplateValue::parse(&args).ok()?,
            }))
        }
        "wait" => Some(Work::Wait(WaitSpec {
            on: WaitOn::Event {
                event_type: text("event")?.to_owned(),
            },
            deadline_ms: millis("timeout_ms"),
        })),
        "manual" => Some(Work::Wait(WaitSpec {
            on: WaitOn::Manual,
            deadline_ms: millis("timeout_ms"),
        })),
        "sleep" if only(&["duration_ms"]) => Some(Work::Wait(WaitSpec {
            on: WaitOn::Timer {
                millis: millis("duration_ms")?,
            },
            deadline_ms: None,
        })),
        _ => None,
    }
}
