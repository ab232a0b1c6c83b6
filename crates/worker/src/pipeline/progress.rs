//! How far a pipeline came: what a step that waits is told when it goes on.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};
use stepwell_dialects::tools::{PipelineKind, RunBy};
use stepwell_kernel::codes;
use stepwell_kernel::plan::ErrorClass;

use super::task::PipelineTask;
use crate::outcome::{TaskOutcome, ToolError};
use crate::scope::TaskVars;

/// The form of a memo. A memo of another form was written by another version.
const FORM: u64 = 1;

/// What a wait was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitPurpose {
    /// The task is to be done again.
    Retry,
    /// The task was a sleep, which is over.
    Slept,
    /// The task was a call, which has ended.
    Called,
}

/// How far a pipeline came.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PipelineProgress {
    /// The task that is next.
    pub(super) at: usize,
    /// Which attempt of it, from 1.
    pub(super) attempt: u32,
    /// Tasks that have run.
    pub(super) ran: u32,
    /// How often each task was come to, by its place: a jump comes to one again.
    visits: BTreeMap<usize, u32>,
    pub(super) vars: TaskVars,
    /// What the step returns, so far.
    output: Json,
    resumed: Option<WaitPurpose>,
}

impl Default for PipelineProgress {
    fn default() -> PipelineProgress {
        PipelineProgress {
            at: 0,
            attempt: 1,
            ran: 0,
            visits: BTreeMap::new(),
            vars: TaskVars::default(),
            output: Json::Null,
            resumed: None,
        }
    }
}

impl PipelineProgress {
    /// Encodes the progress as the memo of the step, which the engine stores while the step waits.
    pub(super) fn memo(&self, resumed: WaitPurpose) -> Json {
        let resumed = match resumed {
            WaitPurpose::Retry => "retry",
            WaitPurpose::Slept => "slept",
            WaitPurpose::Called => "called",
        };
        json!({
            "form": FORM,
            "at": self.at,
            "attempt": self.attempt,
            "ran": self.ran,
            "visits": self.visits,
            "ctx": self.vars.ctx,
            "iter": self.vars.iter,
            "step": self.vars.step,
            "results": self.vars.results,
            "prev": self.vars.prev,
            "output": self.output,
            "resumed": resumed,
        })
    }

    /// Decodes a memo that `memo` made. Fails if another version of the worker made it.
    pub(super) fn read(memo: &Json) -> Result<PipelineProgress, ToolError> {
        let broken = || {
            let message = "how far the step came was written down by another version of the worker";
            ToolError::invalid(codes::PIPELINE_BROKEN, message)
        };
        let number = |key: &str| memo.get(key).and_then(Json::as_u64).ok_or_else(broken);
        let map = |key: &str| -> Result<Map<String, Json>, ToolError> {
            memo.get(key)
                .and_then(Json::as_object)
                .cloned()
                .ok_or_else(broken)
        };
        let value = |key: &str| memo.get(key).cloned().unwrap_or_default();
        if number("form")? != FORM {
            return Err(broken());
        }
        let resumed = match memo.get("resumed").and_then(Json::as_str) {
            Some("retry") => WaitPurpose::Retry,
            Some("slept") => WaitPurpose::Slept,
            Some("called") => WaitPurpose::Called,
            _ => return Err(broken()),
        };
        let small = |key: &str| number(key).and_then(|it| u32::try_from(it).map_err(|_| broken()));
        Ok(PipelineProgress {
            at: small("at")? as usize,
            attempt: small("attempt")?,
            ran: small("ran")?,
            visits: serde_json::from_value(value("visits")).map_err(|_| broken())?,
            vars: TaskVars {
                ctx: map("ctx")?,
                iter: map("iter")?,
                step: map("step")?,
                results: map("results")?,
                prev: value("prev"),
            },
            output: value("output"),
            resumed: Some(resumed),
        })
    }

    /// The result of the task that the step waited for, if that is known without doing it.
    pub(super) fn came_back(&mut self, payload: Option<&Json>) -> Option<TaskOutcome> {
        match self.resumed.take()? {
            WaitPurpose::Retry => None,
            WaitPurpose::Slept => Some(TaskOutcome::ok(slept())),
            WaitPurpose::Called => Some(ended(payload.unwrap_or(&Json::Null))),
        }
    }

    /// The next task is come to for the first time, or again by a jump.
    pub(super) fn come_to_next(&mut self) {
        *self.visits.entry(self.at).or_default() += 1;
    }

    /// The place of the task at hand, and which visit it is. A retry of the task has the same, and nothing else has.
    pub(super) fn place(&self) -> (usize, u32) {
        (self.at, self.visits.get(&self.at).copied().unwrap_or(1))
    }

    /// Keeps what a task returned.
    pub(super) fn remember(&mut self, task: &PipelineTask, result: &Json) {
        for name in [Some(&task.name), task.alias.as_ref()]
            .into_iter()
            .flatten()
        {
            self.vars.results.insert(name.clone(), result.clone());
        }
        let is_noop = task.run_by == RunBy::Pipeline(PipelineKind::Noop);
        if !is_noop || !result.is_null() {
            self.output = result.clone();
        }
        self.vars.prev = result.clone();
    }

    /// What the step returns: what its last task returned, and, if it is read, what each
    /// returned.
    pub(super) fn output(&mut self, keeps_results: bool) -> Json {
        let output = std::mem::take(&mut self.output);
        if !keeps_results {
            return output;
        }
        let results = Json::Object(std::mem::take(&mut self.vars.results));
        let mut map = match output {
            Json::Object(map) => map,
            other @ (Json::Null
            | Json::Bool(_)
            | Json::Number(_)
            | Json::String(_)
            | Json::Array(_)) => Map::from_iter([("data".to_owned(), other)]),
        };
        map.entry("results").or_insert(results);
        Json::Object(map)
    }
}

/// What a sleep returns.
pub(super) fn slept() -> Json {
    json!({ "waited": true })
}

/// What a call returns, by how the run ended.
fn ended(payload: &Json) -> TaskOutcome {
    let output = payload.get("output").cloned().unwrap_or_default();
    let failed = |code: &str| {
        let error = payload.get("error");
        let message = error
            .and_then(|it| it.get("message"))
            .and_then(Json::as_str);
        let message = message.unwrap_or("the run that was called did not succeed");
        TaskOutcome {
            result: output.clone(),
            ..TaskOutcome::failed(ToolError::new(ErrorClass::External, code, message))
        }
    };
    match payload.get("status").and_then(Json::as_str) {
        Some("succeeded" | "partial") => TaskOutcome::ok(output),
        Some("cancelled") => failed(codes::CHILD_CANCELLED),
        _ => failed(codes::CHILD_FAILED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_back() {
        let mut progress = PipelineProgress {
            at: 2,
            attempt: 3,
            ran: 7,
            output: json!([1]),
            ..PipelineProgress::default()
        };
        progress.vars.iter.insert("page".into(), json!(4));
        progress.vars.prev = json!({ "a": null });
        let read = PipelineProgress::read(&progress.memo(WaitPurpose::Retry)).unwrap();
        let expected = PipelineProgress {
            resumed: Some(WaitPurpose::Retry),
            ..progress
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn a_memo_of_another_form_is_refused() {
        let mut memo = PipelineProgress::default().memo(WaitPurpose::Slept);
        memo["form"] = json!(2);
        assert_eq!(
            PipelineProgress::read(&memo).unwrap_err().code,
            "PIPELINE_BROKEN"
        );
        assert!(PipelineProgress::read(&Json::Null).is_err());
    }
}
