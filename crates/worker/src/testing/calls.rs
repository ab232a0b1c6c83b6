//! What a tool is given, made by hand.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::outcome::TaskOutcome;
use crate::secrets::Redactor;
use crate::step_log::{LogSink, StepLog, Stream};
use crate::tool::{TaskContext, TaskLimits, Tool, ToolCall};
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

/// A task with these fields.
pub(crate) fn call(fields: Json) -> ToolCall {
    let Json::Object(fields) = fields else {
        panic!("fields are a mapping");
    };
    ToolCall {
        name: "task".into(),
        fields,
        ..ToolCall::default()
    }
}

/// A task with credentials.
pub(crate) fn call_with(fields: Json, auth: Json) -> ToolCall {
    ToolCall {
        auth: auth.as_object().cloned(),
        ..call(fields)
    }
}

/// A context with a deadline in 30 seconds and without a log.
pub(crate) fn cx() -> TaskContext {
    cx_for(Duration::from_secs(30))
}

/// A context with a deadline after `time`.
pub(crate) fn cx_for(time: Duration) -> TaskContext {
    TaskContext {
        run_id: "run".into(),
        step_id: "step".into(),
        idempotency_key: "key".into(),
        task_key: "key".into(),
        attempt: 1,
        execution: 3,
        fence: 41,
        trace: None,
        limits: TaskLimits::default(),
        deadline: tokio::time::Instant::now() + time,
        cancelled: CancellationToken::new(),
        log: StepLog::nowhere(),
        redactor: Redactor::new(),
    }
}

/// With a bound on the result.
pub(crate) fn cx_within(result_bytes: usize) -> TaskContext {
    let mut cx = cx();
    cx.limits.result_bytes = result_bytes;
    cx
}

/// Runs it, and it must go well.
pub(crate) async fn ok(tool: &dyn Tool, call: &ToolCall) -> Json {
    let outcome = tool.run(call, &cx()).await;
    assert_eq!(outcome.error, None);
    outcome.result
}

/// Runs it, and it must not go well: the code.
pub(crate) async fn code(tool: &dyn Tool, call: &ToolCall) -> String {
    failed(tool, call).await.error.unwrap().code
}

/// Runs the call, which must fail.
pub(crate) async fn failed(tool: &dyn Tool, call: &ToolCall) -> TaskOutcome {
    let outcome = tool.run(call, &cx()).await;
    assert!(outcome.error.is_some(), "{:?}", outcome.result);
    outcome
}

/// A log that keeps its lines for the test.
#[derive(Default)]
pub(crate) struct Kept(pub(crate) Mutex<Vec<String>>);

impl LogSink for Kept {
    fn line(&self, _: &str, _: Stream, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

/// A log and the lines that it keeps.
pub(crate) fn kept() -> (StepLog, Arc<Kept>) {
    let kept = Arc::new(Kept::default());
    let lines: Arc<dyn LogSink> = Arc::<Kept>::clone(&kept);
    (StepLog::new(lines), kept)
}
