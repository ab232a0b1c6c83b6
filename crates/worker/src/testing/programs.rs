//! What the tests of `shell` and `python` share: a call, its surroundings, and a look at processes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::outcome::ToolError;
use crate::secrets::Redactor;
use crate::step_log::{LogSink, StepLog, Stream};
use crate::tool::{TaskContext, TaskLimits, ToolCall};
use serde_json::{Map, Value as Json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The lines of a log, as they came.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Vec<(Stream, String)>>);

impl LogSink for Kept {
    fn line(&self, _: &str, stream: Stream, text: &str) {
        self.0.lock().unwrap().push((stream, text.to_owned()));
    }
}

impl Kept {
    pub(crate) fn of(&self, stream: Stream) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let of_it = lines.iter().filter(|(from, _)| *from == stream);
        of_it.map(|(_, text)| text.clone()).collect()
    }
}

pub(crate) fn cx() -> TaskContext {
    TaskContext {
        run_id: "run-1".into(),
        step_id: "load[3]".into(),
        idempotency_key: "key-1".into(),
        task_key: "key-1".into(),
        attempt: 2,
        execution: 3,
        fence: 41,
        trace: None,
        limits: TaskLimits {
            grace: Duration::from_millis(100),
            log_bytes: 1 << 20,
            ..TaskLimits::default()
        },
        deadline: Instant::now() + Duration::from_secs(30),
        cancelled: CancellationToken::new(),
        log: StepLog::nowhere(),
        redactor: Redactor::new(),
    }
}

/// Surroundings whose log is kept.
pub(crate) fn logged() -> (TaskContext, Arc<Kept>) {
    let kept = Arc::new(Kept::default());
    let log = StepLog::new(kept.clone());
    (TaskContext { log, ..cx() }, kept)
}

/// Surroundings that end soon.
pub(crate) fn short(time: Duration) -> TaskContext {
    TaskContext {
        deadline: Instant::now() + time,
        ..cx()
    }
}

pub(crate) fn call(fields: Json, args: Json) -> ToolCall {
    let map = |value: Json| -> Map<String, Json> { serde_json::from_value(value).unwrap() };
    ToolCall {
        name: "task".into(),
        fields: map(fields),
        args: map(args),
        auth: None,
    }
}

pub(crate) fn code(error: &Option<ToolError>) -> &str {
    error.as_ref().map_or("", |error| error.code.as_str())
}

/// Neither running nor stopped; a zombie that its new parent has not reaped yet counts as gone.
pub(crate) fn is_gone(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    let state = stat.rsplit(") ").next().unwrap_or("");
    state.starts_with('Z') || state.starts_with('X')
}

/// Looks until it holds, or for five seconds.
pub(crate) async fn soon(what: impl Fn() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(5);
    while !what() {
        if Instant::now() > until {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}

/// The numbers in a file, one on a line.
pub(crate) fn pids(file: &std::path::Path) -> Vec<i32> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect()
}

/// Memory that this process holds, in bytes.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// Held by tests that measure memory or need much of it: tests share one process.
pub(crate) static MEMORY: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
