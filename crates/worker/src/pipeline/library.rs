//! Tasks that are named once and called by many steps: a call is replaced by the tasks that it names.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};
use stepwell_dialects::tools::{PipelineKind, RunBy};

use super::task::PipelineTask;
use crate::outcome::ToolError;
use stepwell_kernel::codes;

/// Puts the tasks of the library in the place of their calls.
pub(super) fn flatten(
    tasks: Vec<PipelineTask>,
    library: &BTreeMap<String, Json>,
) -> Result<Vec<PipelineTask>, ToolError> {
    let mut flat = Vec::with_capacity(tasks.len());
    for task in tasks {
        if task.run_by != RunBy::Pipeline(PipelineKind::Workbook) {
            flat.push(task);
            continue;
        }
        let name = task
            .written
            .get("task")
            .and_then(Json::as_str)
            .unwrap_or_default();
        let missing = || {
            let message = format!("there is no workbook task `{name}`");
            ToolError::invalid(codes::WORKBOOK_UNKNOWN, message)
        };
        let entry = library
            .get(name)
            .and_then(|entry| entry.get("tasks"))
            .and_then(Json::as_array)
            .ok_or_else(missing)?;
        flat.extend(called(&task, entry)?);
    }
    Ok(flat)
}

/// The tasks of an entry as a step calls them: with the call's arguments over their own, and what the
/// call says of its end said of the last.
fn called(call: &PipelineTask, entry: &[Json]) -> Result<Vec<PipelineTask>, ToolError> {
    let mut tasks = Vec::with_capacity(entry.len());
    for (at, json) in entry.iter().enumerate() {
        let mut json = json.clone();
        let Some(map) = json.as_object_mut() else {
            return Err(ToolError::invalid(
                codes::PIPELINE_BROKEN,
                "a task of the workbook is not a mapping; compile the definition again",
            ));
        };
        merge_args(map, &call.written);
        let last = at + 1 == entry.len();
        if last {
            for key in [
                "rules",
                "set_ctx",
                "set_iter",
                "set_step",
                "timeout",
                "timeout_ms",
                "auth",
            ] {
                if let Some(value) = call.written.get(key) {
                    map.insert(key.to_owned(), value.clone());
                }
            }
        }
        let mut task = PipelineTask::read(&json)?;
        if last {
            task.alias = Some(call.name.clone());
        }
        tasks.push(task);
    }
    Ok(tasks)
}

fn merge_args(into: &mut Map<String, Json>, call: &Json) {
    let Some(own) = call.get("args").and_then(Json::as_object) else {
        return;
    };
    let args = into
        .entry("args")
        .or_insert_with(|| Json::Object(Map::new()));
    if let Some(args) = args.as_object_mut() {
        args.extend(own.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::super::task;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_becomes_the_tasks_that_it_names_with_its_own_arguments() {
        let calls =
            json!([{"name": "rate", "kind": "workbook", "task": "score", "args": {"x": 2}}]);
        let entry = json!({"tasks": [
            {"name": "task_1", "kind": "python", "code": "result = x", "args": {"x": null, "y": 1}},
        ]});
        let library = BTreeMap::from([("score".to_owned(), entry)]);
        let tasks = flatten(task::read(&calls).unwrap(), &library).unwrap();
        assert_eq!(tasks.len(), 1);
        assert_eq!(tasks[0].kind, "python");
        assert_eq!(tasks[0].args.to_json(), json!({"x": 2, "y": 1}));
        assert_eq!(tasks[0].alias.as_deref(), Some("rate"));
        let nobody = flatten(task::read(&calls).unwrap(), &BTreeMap::new());
        assert_eq!(nobody.unwrap_err().code, "WORKBOOK_UNKNOWN");
    }
}
