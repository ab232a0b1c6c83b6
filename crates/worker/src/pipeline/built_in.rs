//! Tasks that the pipeline does itself, without a tool: `noop`, `sleep` and calls of other definitions. A
//! long sleep and a call hold no worker: the step waits. Workbook calls are replaced in `library.rs`.

use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::{Map, Value as Json};
use stepwell_kernel::codes;
use stepwell_kernel::command::WaitFor;
use stepwell_kernel::event::CalledRun;

use super::progress::{self, PipelineProgress, WaitPurpose};
use super::task::{self, PipelineTask};
use super::{Performed, PipelineContext};
use crate::outcome::{TaskOutcome, ToolError};
use crate::report;
use crate::tool::ToolCall;

/// Sleeps of at least this long hold no worker.
const LONG_SLEEP: Duration = Duration::from_secs(1);

/// A task that failed before it began.
fn refused(error: ToolError, call: &ToolCall) -> Performed {
    ControlFlow::Continue((TaskOutcome::failed(error), call.args.clone()))
}

impl PipelineContext<'_> {
    /// A task that does nothing returns its own arguments, not those of the whole step.
    pub(super) fn noop(&self, task: &PipelineTask, call: &ToolCall) -> TaskOutcome {
        let own = task.args.to_json();
        let given = call.args.iter().filter(|(key, _)| own.get(key).is_some());
        let given = given.map(|(key, value)| (key.clone(), value.clone()));
        let result = match own.as_object().is_none_or(Map::is_empty) {
            true => Json::Null,
            false => Json::Object(given.collect()),
        };
        let mut outcome = TaskOutcome::ok(result);
        self.redact(&mut outcome);
        outcome
    }

    /// A sleep in the middle of a block.
    pub(super) async fn nap(&self, call: &ToolCall, now: &PipelineProgress) -> Performed {
        let fixed = call.fields.get("duration_ms").and_then(Json::as_u64);
        let length = fixed.map(Duration::from_millis);
        let Some(length) = length.or_else(|| task::duration(call.fields.get("duration")?)) else {
            let error = ToolError::invalid(codes::TOOL_FIELD, "`duration` is no length of time");
            return refused(error, call);
        };
        if length >= LONG_SLEEP && self.may_wait {
            let report = self.waits(WaitFor::Timer, Some(length), now, WaitPurpose::Slept);
            return ControlFlow::Break(report);
        }
        match self.sleep(length).await {
            ControlFlow::Break(()) => ControlFlow::Break(report::killed(self.claim)),
            ControlFlow::Continue(()) => {
                ControlFlow::Continue((TaskOutcome::ok(progress::slept()), call.args.clone()))
            }
        }
    }

    /// Sleeps; breaks off if the step is cancelled.
    pub(super) async fn sleep(&self, length: Duration) -> ControlFlow<()> {
        tokio::select! {
            () = tokio::time::sleep(length) => ControlFlow::Continue(()),
            () = self.cx.cancelled.cancelled() => ControlFlow::Break(()),
        }
    }

    /// A call of another definition in the middle of a block: the step waits for that run.
    pub(super) fn call(
        &self,
        call: &ToolCall,
        timeout: Option<Duration>,
        now: &PipelineProgress,
    ) -> Performed {
        let text = |name: &str| call.text(name).map(|it| it.map(str::to_owned));
        let called = text("path").and_then(|path| Ok((path, text("return_step")?)));
        let (path, return_step) = match called {
            Ok((Some(path), return_step)) if !path.trim().is_empty() => (path, return_step),
            Ok(_) => {
                let error = ToolError::invalid(codes::TOOL_FIELD, "`path` is empty");
                return refused(error, call);
            }
            Err(error) => {
                return refused(error, call);
            }
        };
        if !self.may_wait {
            let error =
                ToolError::invalid(codes::UNDO_CANNOT_WAIT, "an undo cannot call another run");
            return refused(error, call);
        }
        let input = Json::Object(call.args.clone());
        let mut clean = input.clone();
        self.redactor.json(&mut clean);
        if clean != input || self.redactor.finds(&path) {
            let message = "a secret cannot be handed to another run, which would write it down; \
                           name it in the definition that is called";
            let error = ToolError::invalid(codes::SECRET_IN_CALL, message);
            return refused(error, call);
        }
        let wait = WaitFor::Child {
            call: CalledRun { path, return_step },
            input,
        };
        ControlFlow::Break(self.waits(wait, timeout, now, WaitPurpose::Called))
    }
}
