//! The `http` tool against a real server, good and bad ones.

mod answers;
mod hostile;
mod hosts;
mod redirects;
mod requests;
mod server;
mod tls;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::outcome::{TaskOutcome, ToolError};
use crate::step_log::{LogSink, StepLog, Stream};
use crate::tool::{TaskContext, TaskLimits, Tool as _, ToolCall};
use crate::tools::http::{Http, HttpOptions};
use serde_json::{Map, Value as Json, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The lines of a task.
#[derive(Clone, Default)]
struct Heap(Arc<Mutex<Vec<String>>>);

impl LogSink for Heap {
    fn line(&self, _: &str, _: Stream, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

impl Heap {
    fn text(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

/// What one task is run with.
struct Bench {
    http: Http,
    cx: TaskContext,
    log: Heap,
    auth: Option<Map<String, Json>>,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(HttpOptions::default())
    }

    fn with(options: HttpOptions) -> Bench {
        let log = Heap::default();
        let http = Http::new(HttpOptions {
            environment_proxy: false,
            ..options
        });
        let cx = TaskContext {
            run_id: "run".into(),
            step_id: "fetch".into(),
            idempotency_key: "run/fetch ä".into(),
            task_key: "run/fetch ä".into(),
            attempt: 1,
            execution: 3,
            fence: 41,
            trace: None,
            limits: TaskLimits {
                result_bytes: 1 << 20,
                ..TaskLimits::default()
            },
            deadline: Instant::now() + Duration::from_secs(30),
            cancelled: CancellationToken::new(),
            log: StepLog::new(Arc::new(log.clone())),
            redactor: Default::default(),
        };
        Bench {
            http,
            cx,
            log,
            auth: None,
        }
    }

    fn auth(mut self, auth: Json) -> Bench {
        self.auth = auth.as_object().cloned();
        self
    }

    /// The task ends after so many milliseconds.
    fn within(mut self, millis: u64) -> Bench {
        self.cx.deadline = Instant::now() + Duration::from_millis(millis);
        self
    }

    async fn run(&self, fields: Json) -> TaskOutcome {
        let Json::Object(fields) = fields else {
            panic!("fields are a mapping");
        };
        let call = ToolCall {
            name: "task".into(),
            fields,
            auth: self.auth.clone(),
            ..ToolCall::default()
        };
        self.http.run(&call, &self.cx).await
    }

    async fn error(&self, fields: Json) -> ToolError {
        self.run(fields).await.error.unwrap()
    }

    async fn get(&self, url: &str) -> TaskOutcome {
        self.run(json!({"url": url})).await
    }
}

/// An error as `(class, code, whether to try again)`.
fn kind(outcome: &TaskOutcome) -> (&str, &str, bool) {
    let error = outcome.error.as_ref().unwrap();
    (error.class.name(), &error.code, error.is_retryable())
}
