//! The values of requests and answers. Unknown fields of answers are ignored, so that a newer server can say more.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// The version of the protocol that this client speaks.
pub const PROTOCOL: u32 = 1;

/// A queue and an operation that a worker serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedPair {
    pub queue: String,
    pub operation: String,
}

/// Asks for work, and reports results.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PollBody<'a> {
    pub protocol: u32,
    pub worker_id: &'a str,
    pub serves: &'a [ServedPair],
    pub max: usize,
    pub wait_seconds: u64,
    pub lease_seconds: u64,
    pub completed: &'a [TaskResult],
}

/// The answer to a poll.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Polled {
    pub tasks: Vec<Task>,
    pub results: Vec<ResultAnswer>,
    /// Tokens of tasks that must be stopped.
    #[serde(default)]
    pub cancel: Vec<String>,
}

/// A task: one execution of one step, or of its undo.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    pub task_token: String,
    pub run_id: String,
    /// The step-run: `charge`, `charge#2`, `ship[3]`; with `~undo` for its undo.
    pub step_id: String,
    pub queue: String,
    pub operation: String,
    pub attempt: u32,
    pub logical_attempt: u32,
    pub execution: u32,
    /// Rises with every claim of the run.
    pub fence: u64,
    /// Equal for every execution of this logical attempt.
    pub idempotency_key: String,
    /// `READY_STEP`, or `WAITING_TIMEOUT` if the wait of the step ran out.
    #[serde(default)]
    pub task: String,
    #[serde(default)]
    pub undo: bool,
    pub lease_until: String,
    pub plan_hash: String,
    /// The input of the step, as its templates make it.
    #[serde(default)]
    pub input: Json,
    #[serde(default)]
    pub config: Json,
    #[serde(default)]
    pub params: Json,
    #[serde(default)]
    pub ctx: Json,
    #[serde(default)]
    pub outputs: Json,
    #[serde(default)]
    pub memo: Option<Json>,
    #[serde(default)]
    pub payload: Option<Json>,
    #[serde(default)]
    pub item: Option<Json>,
    #[serde(default)]
    pub target: Option<Json>,
    #[serde(default)]
    pub parent_run_id: Option<String>,
    /// The tenant of the run.
    #[serde(default)]
    pub tenant_id: String,
    /// The project of the run.
    #[serde(default)]
    pub project_id: String,
    /// The place of the work in a distributed trace (W3C), if the run is traced.
    #[serde(default)]
    pub traceparent: Option<String>,
    #[serde(default)]
    pub tracestate: Option<String>,
    /// The claim in the form of the engine, only for the built-in tools.
    #[serde(default)]
    pub claimed: Option<Json>,
}

/// Why the work of a task failed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskError {
    /// The kind of failure, which retry rules name: `transient`, `validation`, `unknown`, …
    pub class: String,
    pub code: String,
    pub message: String,
}

/// What a step waits for.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// `event`, `timer`, `manual` or `child`.
    #[serde(rename = "for")]
    pub waits_for: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outbound: Vec<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memo: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Json>,
}

/// How a task ended.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase", tag = "outcome")]
pub enum Outcome {
    /// The work is done.
    #[serde(rename_all = "camelCase")]
    Completed {
        output: Json,
        #[serde(skip_serializing_if = "Map::is_empty")]
        ctx: Map<String, Json>,
        /// References, as `Connection::put_artifact` gives them.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        artifacts: Vec<Json>,
    },
    /// The work failed; the retry rules of the definition decide what follows.
    #[serde(rename_all = "camelCase")]
    Failed {
        error: TaskError,
        #[serde(skip_serializing_if = "Option::is_none")]
        retryable: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        delay_ms: Option<u64>,
        #[serde(skip_serializing_if = "Map::is_empty")]
        ctx: Map<String, Json>,
    },
    /// The step waits; it runs again when the wait is over.
    Waiting { wait: Wait },
    /// The worker has stopped, as it was told to.
    Stopped,
}

impl Outcome {
    /// The work is done, with this output.
    #[must_use]
    pub fn done(output: Json) -> Outcome {
        Outcome::Completed {
            output,
            ctx: Map::new(),
            artifacts: Vec::new(),
        }
    }

    /// The work failed; the class decides whether it is tried again.
    #[must_use]
    pub fn failed(class: &str, code: &str, message: impl Into<String>) -> Outcome {
        Outcome::Failed {
            error: TaskError {
                class: class.to_owned(),
                code: code.to_owned(),
                message: message.into(),
            },
            retryable: None,
            delay_ms: None,
            ctx: Map::new(),
        }
    }

    /// The step waits for an event of this type.
    #[must_use]
    pub fn wait_for(event_type: &str) -> Outcome {
        Outcome::Waiting {
            wait: Wait {
                waits_for: "event".to_owned(),
                event_type: Some(event_type.to_owned()),
                ..Wait::default()
            },
        }
    }
}

/// The result of a task.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskResult {
    pub task_token: String,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What became of one result.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultAnswer {
    pub task_token: String,
    pub accepted: bool,
    #[serde(default)]
    pub code: Option<String>,
    #[serde(default)]
    pub detail: Option<String>,
    /// Report the same result again.
    #[serde(default)]
    pub retry: bool,
}

/// What became of results.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ResultsAnswer {
    pub results: Vec<ResultAnswer>,
}

/// The state of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskLease {
    Held,
    /// The run no longer wants the work.
    Cancel,
    /// Others may do the work.
    Lost,
}

/// The state of one task.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    pub task_token: String,
    pub state: TaskLease,
}

/// The states of tasks.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Heartbeats {
    pub leases: Vec<Heartbeat>,
}

/// A line of a step's log.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskLine {
    pub task_token: String,
    pub task: String,
    /// `out`, `err` or `note`.
    pub stream: &'static str,
    pub text: String,
}
