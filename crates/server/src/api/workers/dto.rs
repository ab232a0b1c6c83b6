//! What workers and the server say to each other. docs/protocol.md explains it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// The version of the protocol that this server speaks.
pub(super) const PROTOCOL: u32 = 1;

/// A queue and an operation that a worker can do.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Served {
    /// The name of the queue.
    pub(super) queue: String,
    /// The name of the operation.
    pub(super) operation: String,
}

/// A worker asks for work, and may report results in the same request.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PollRequest {
    /// The version of the protocol: 1.
    pub(super) protocol: u32,
    /// The name of the worker process: 1 to 100 letters, digits and `.`, `_`, `:`, `-`. Two processes never share one.
    pub(super) worker_id: String,
    /// The queues and operations that the worker serves.
    pub(super) serves: Vec<Served>,
    /// The most tasks to give; 1 if absent, 256 at most; 0 gives none and only reports.
    #[serde(default = "one")]
    pub(super) max: usize,
    /// How long to wait for work, in seconds; 0 if absent, 50 at most.
    #[serde(default)]
    pub(super) wait_seconds: u64,
    /// How long a task belongs to the worker without a heartbeat, in seconds; 30 if absent, 1 to 3600.
    #[serde(default = "thirty")]
    pub(super) lease_seconds: u64,
    /// Results of earlier tasks. They are decided before work is looked for.
    #[serde(default)]
    #[schema(value_type = Vec<WorkResult>)]
    pub(super) completed: Vec<SentResult>,
}

fn one() -> usize {
    1
}

fn thirty() -> u64 {
    30
}

/// What the worker gets.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PollAnswer {
    /// The version of the protocol: 1.
    pub(super) protocol: u32,
    /// The tasks. Each belongs to the worker until its `leaseUntil`.
    pub(super) tasks: Vec<WorkTask>,
    /// What became of `completed`, in the same order.
    pub(super) results: Vec<ResultAnswer>,
    /// Tokens of tasks of this worker that it must stop, because their runs no longer want them.
    pub(super) cancel: Vec<String>,
}

/// A task: one execution of one step, or of its undo.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkTask {
    /// Stands for the task in results, heartbeats and logs.
    pub(super) task_token: String,
    /// The id of the run.
    pub(super) run_id: String,
    /// The step-run: `charge`, `charge#2`, `ship[3]`; with `~undo` for its undo.
    pub(super) step_id: String,
    /// The name of the queue.
    pub(super) queue: String,
    /// The name of the operation.
    pub(super) operation: String,
    /// Which attempt, from 1. An execution that replaces a lost one or answers a wait belongs to the same attempt.
    pub(super) attempt: u32,
    /// Which logical attempt, from 1: only an operator's retry raises it.
    pub(super) logical_attempt: u32,
    /// Which execution, from 1: every claim raises it.
    pub(super) execution: u32,
    /// Rises with every claim of the run: a system outside can refuse an execution that was replaced.
    pub(super) fence: u64,
    /// Equal for every execution of this logical attempt: for systems that accept such a key.
    pub(super) idempotency_key: String,
    /// `READY_STEP`, or `WAITING_TIMEOUT` if the wait of the step ran out.
    #[schema(value_type = String)]
    pub(super) task: Value,
    /// Whether the step is to be undone.
    pub(super) undo: bool,
    /// The end of the lease, RFC 3339. A heartbeat moves it.
    pub(super) lease_until: String,
    /// The hash of the run's compiled definition, for `/api/v1/plans/{hash}`.
    pub(super) plan_hash: String,
    /// The input of the step, as its templates make it. References to secrets stay references. Absent for the built-in
    /// tools, which evaluate their templates themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(super) input: Option<Value>,
    /// The other fields of the step in the definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(super) config: Option<Value>,
    /// The parameters of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(super) params: Option<Value>,
    /// The variables of the run that the step reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(super) ctx: Option<Value>,
    /// The outputs of other steps that the step reads, by the name of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(super) outputs: Option<Value>,
    /// What the worker saved when it let the step wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(super) memo: Option<Value>,
    /// The content of the event that ended the wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(super) payload: Option<Value>,
    /// The item of the loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(super) item: Option<Value>,
    /// The target that an operator redirected the step to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(super) target: Option<Value>,
    /// The run that started this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent_run_id: Option<String>,
    /// The tenant of the run.
    pub(super) tenant_id: String,
    /// The project of the run.
    pub(super) project_id: String,
    /// The place of the work in a distributed trace (W3C), if the run is traced: hand it on with calls to others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) traceparent: Option<String>,
    /// The state of the trace that its caller sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tracestate: Option<String>,
    /// All of the claim in the form of the engine, only for the built-in tools (queue `stepwell`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(super) claimed: Option<Value>,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum WorkOutcome {
    /// The work is done: `output`, `ctx`, `artifacts`.
    Completed,
    /// The work failed: `error`, `retryable`, `delayMs`.
    Failed,
    /// The step waits, and the worker is free: `wait`. The step runs again when the wait is over.
    Waiting,
    /// The worker has stopped, as it was told to.
    Stopped,
}

/// A result as it was sent. It is read by itself, so that one that cannot be read keeps no other from being accepted.
pub(super) type SentResult = Box<RawValue>;

/// The result of a task.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WorkResult {
    /// The token of the task.
    pub(super) task_token: String,
    pub(super) outcome: WorkOutcome,
    /// The output of the step.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub(super) output: Value,
    /// Changes of the run's variables: by name, null removes one.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub(super) ctx: serde_json::Map<String, Value>,
    /// References to artifacts, as `PUT /api/v1/worker/artifacts` gives them.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    pub(super) artifacts: Vec<Value>,
    /// Why the work failed.
    #[serde(default)]
    pub(super) error: Option<WorkError>,
    /// Whether to retry; absent: the class of the error decides.
    #[serde(default)]
    pub(super) retryable: Option<bool>,
    /// How long to wait before the retry, in milliseconds; absent: the definition decides.
    #[serde(default)]
    pub(super) delay_ms: Option<u64>,
    /// What the step waits for.
    #[serde(default)]
    pub(super) wait: Option<WorkWait>,
}

/// Why the work of a task failed.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WorkError {
    /// The kind of failure, which retry rules name: `transient`, `timeout`, `validation`, `unknown` and others.
    pub(super) class: String,
    /// The worker's own code.
    pub(super) code: String,
    /// The reason for people.
    pub(super) message: String,
}

/// What a wait is for.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum WaitsFor {
    /// An event of the type `eventType`.
    Event,
    /// A time: `timeoutMs` from now.
    Timer,
    /// A person completes the step.
    Manual,
    /// Another run, which is started: `call` and `input`.
    Child,
}

/// What a step waits for.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WorkWait {
    #[serde(rename = "for")]
    pub(super) waits_for: WaitsFor,
    /// The type of the event.
    #[serde(default)]
    pub(super) event_type: Option<String>,
    /// The longest wait, in milliseconds; absent: no limit.
    #[serde(default)]
    pub(super) timeout_ms: Option<u64>,
    /// Events to send to the outside when the wait begins.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    pub(super) outbound: Vec<Value>,
    /// Given back as `memo` when the step runs again.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub(super) memo: Option<Value>,
    /// The run to start: `path` of its definition, and `returnStep`.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub(super) call: Option<Value>,
    /// The parameters of the run to start.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub(super) input: Option<Value>,
}

/// Results of tasks, to report them without asking for work.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ResultsRequest {
    /// The version of the protocol: 1.
    pub(super) protocol: u32,
    /// At most 256.
    #[schema(value_type = Vec<WorkResult>)]
    pub(super) results: Vec<SentResult>,
}

/// What became of one result.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResultAnswer {
    /// The token of the task; empty if the result has none.
    pub(super) task_token: String,
    /// The result is in the log of the run. The same result reported again is accepted again.
    pub(super) accepted: bool,
    /// Why not: `LEASE_LOST` if the task is no longer this worker's, `RESULT_CONTRADICTED` if the task has another result,
    /// `REQUEST_INVALID` if the result cannot be read, and others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<String>,
    /// The reason for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
    /// Whether the same result can be accepted later: report it again. False: forget the task.
    pub(super) retry: bool,
}

/// What became of results.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResultsAnswer {
    /// In the order of the request.
    pub(super) results: Vec<ResultAnswer>,
}

/// Tasks that are still worked on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct HeartbeatsRequest {
    /// The version of the protocol: 1.
    pub(super) protocol: u32,
    /// At most 1000.
    pub(super) task_tokens: Vec<String>,
    /// How long the leases last from now, in seconds; 30 if absent, 1 to 3600.
    #[serde(default = "thirty")]
    pub(super) lease_seconds: u64,
}

/// The state of a lease.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum LeaseWord {
    /// The lease holds, and was extended.
    Held,
    /// The run no longer wants the work: stop, and report `stopped`.
    Cancel,
    /// The lease is lost: stop, a result is refused.
    Lost,
}

/// The state of one task.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct HeartbeatAnswer {
    pub(super) task_token: String,
    pub(super) state: LeaseWord,
}

/// The states of tasks.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct HeartbeatsAnswer {
    /// In the order of the request.
    pub(super) leases: Vec<HeartbeatAnswer>,
}
