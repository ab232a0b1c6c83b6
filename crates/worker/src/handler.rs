//! Handlers: work that is written in Rust. A handler is an async function for a queue and an operation,
//! with its input and output as types, and every outcome that a language knows.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use stepwell_kernel::codes;
use stepwell_kernel::event::{ArtifactRef, Patch, TaskKind};
use stepwell_kernel::plan::ErrorClass;
use tokio_util::sync::CancellationToken;

use crate::step_log::StepLog;

/// What a handler receives besides its input.
#[derive(Clone, Debug)]
pub struct Job {
    pub run_id: Arc<str>,
    /// The step-run: `charge`, `charge#2`, `ship[3]`.
    pub step_id: Arc<str>,
    /// The operation: also that of an undo.
    pub operation: Arc<str>,
    /// Which attempt, from 1. An execution that replaces a lost one or answers a wait belongs to the same attempt.
    pub attempt: u32,
    /// Which logical attempt, from 1: only an operator's retry raises the number, and attempts begin anew.
    pub logical_attempt: u32,
    /// Which execution, from 1. Each claim raises the number: a retry, a crash, a wait that is over.
    pub execution: u32,
    /// Equal for every execution of this logical attempt. Pass it to systems that accept such a key.
    pub idempotency_key: Arc<str>,
    /// The fencing token: it rises with every claim of the run. A system outside that remembers the highest number can
    /// refuse an execution that was replaced.
    pub fence: u64,
    /// Ordinary work, or the continuation after a wait timed out.
    pub task: TaskKind,
    /// Whether the handler must undo the step instead of doing it.
    pub is_undo: bool,
    /// The content of the event that the step waited for; absent if no event arrived.
    pub payload: Option<Arc<Json>>,
    /// The memo of the reply that let the step wait; absent if the step did not wait.
    pub memo: Option<Arc<Json>>,
    /// The variables of the run at the time of the claim.
    pub ctx: Arc<Json>,
    /// The input of the run, merged over the workload of the plan, as of the start of this logical attempt.
    pub params: Arc<Json>,
    /// The other fields of the step in the definition, such as the event that the step waits for.
    pub config: Json,
    /// The target of the last redirection by an operator; absent if the step was not redirected.
    pub target: Option<Arc<Json>>,
    /// Set when the work is no longer wanted. A handler that takes long should check the token.
    pub cancelled: CancellationToken,
    /// Lines that are written here appear in `stepwell runs logs`.
    pub log: StepLog,
}

/// What a handler returns if the result is more than a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The step succeeded with this output.
    Completed {
        output: Json,
        /// Patches of the run's ctx.
        ctx: Patch,
        /// References to artifacts that the handler wrote.
        artifacts: Vec<ArtifactRef>,
    },
    /// The step waits for an event. The handler runs again when the event arrives or the time is over.
    Waiting {
        event_type: String,
        /// The longest wait; absent means no limit.
        timeout: Option<Duration>,
        /// Events to send to the outside when the wait begins.
        outbound: Vec<Json>,
        /// Data that the handler receives as `Job::memo` when it runs again.
        memo: Option<Json>,
    },
    /// The step waits for a time. Then the handler runs again.
    Sleeping {
        length: Duration,
        /// Data that the handler receives as `Job::memo` when it runs again.
        memo: Option<Json>,
    },
    /// The step waits until a person completes it.
    Manual,
}

impl Reply {
    /// The step succeeded with this output.
    pub fn done(output: impl Serialize) -> Result<Reply, Failure> {
        Ok(Reply::Completed {
            output: to_json(&output)?,
            ctx: Patch::new(),
            artifacts: Vec::new(),
        })
    }

    /// The step waits for an event of this type.
    #[must_use]
    pub fn wait_for(event_type: impl Into<String>) -> Reply {
        Reply::Waiting {
            event_type: event_type.into(),
            timeout: None,
            outbound: Vec::new(),
            memo: None,
        }
    }

    /// Limits the wait for an event.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Reply {
        if let Reply::Waiting { timeout, .. } = &mut self {
            *timeout = Some(limit);
        }
        self
    }

    /// Sends an event to the outside when the wait begins.
    #[must_use]
    pub fn sending(mut self, event: Json) -> Reply {
        if let Reply::Waiting { outbound, .. } = &mut self {
            outbound.push(event);
        }
        self
    }

    /// Sets a key of the run's ctx when the step has succeeded.
    #[must_use]
    pub fn setting(mut self, key: impl Into<String>, value: Json) -> Reply {
        if let Reply::Completed { ctx, .. } = &mut self {
            ctx.insert(key.into(), value);
        }
        self
    }
}

/// Why the work of a handler failed. With `?`, any error becomes a failure of class `unknown`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The retry rules of the definition compare this class.
    pub class: ErrorClass,
    /// The handler's own code. It appears in the log, and rules can compare it.
    pub code: String,
    /// The text for the operator.
    pub message: String,
    /// Whether to retry; absent means that the class decides. `Some(true)` counts only if the plan leaves the choice
    /// to handlers.
    pub retryable: Option<bool>,
    /// Wait before the next attempt; absent means that the retry policy decides.
    pub delay: Option<Duration>,
}

impl Failure {
    /// A failure whose class decides whether the step is tried again.
    pub fn new(class: ErrorClass, code: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure {
            class,
            code: code.into(),
            message: message.into(),
            retryable: None,
            delay: None,
        }
    }

    /// A failure of class `transient`: a retry can succeed.
    pub fn retry(message: impl Into<String>) -> Failure {
        Failure {
            retryable: Some(true),
            ..Failure::new(ErrorClass::Transient, "RETRY", message)
        }
    }

    /// A failure that no retry can correct.
    pub fn dead(message: impl Into<String>) -> Failure {
        Failure {
            retryable: Some(false),
            ..Failure::new(ErrorClass::Unknown, "DEAD", message)
        }
    }

    /// Sets the wait before the next attempt.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Failure {
        self.delay = Some(delay);
        self
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        Failure::new(ErrorClass::Unknown, codes::HANDLER_FAILED, message)
    }
}

/// What a handler may return: a value, or a [`Reply`], or a [`Failure`].
pub trait IntoReply {
    fn into_reply(self) -> Result<Reply, Failure>;
}

impl IntoReply for Result<Reply, Failure> {
    fn into_reply(self) -> Result<Reply, Failure> {
        self
    }
}

/// A value that is what a step returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output<T>(pub T);

impl<T: Serialize> IntoReply for Result<Output<T>, Failure> {
    fn into_reply(self) -> Result<Reply, Failure> {
        Reply::done(self?.0)
    }
}

impl IntoReply for Result<Json, Failure> {
    fn into_reply(self) -> Result<Reply, Failure> {
        Reply::done(self?)
    }
}

impl IntoReply for Result<(), Failure> {
    fn into_reply(self) -> Result<Reply, Failure> {
        self?;
        Reply::done(Json::Null)
    }
}

fn to_json(value: &impl Serialize) -> Result<Json, Failure> {
    serde_json::to_value(value).map_err(|error| {
        let message = format!("what the handler returned has no JSON form: {error}");
        Failure::new(ErrorClass::Validation, codes::HANDLER_OUTPUT, message)
    })
}

/// What a handler's work gives back.
pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>;

type Boxed = Arc<dyn Fn(Job, Json) -> HandlerFuture + Send + Sync>;

/// The handlers of a worker, by queue and operation.
#[derive(Clone, Default)]
pub struct Handlers {
    all: HashMap<(String, String), Boxed>,
    limits: BTreeMap<String, usize>,
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.all.keys()).finish()
    }
}

impl Handlers {
    /// A set without handlers; add handlers with `on`.
    #[must_use]
    pub fn new() -> Handlers {
        Handlers::default()
    }

    /// Adds an async function for a queue and an operation. Its input is the rendered input of the step. If the input
    /// cannot be read as the type `I`, the step fails with class `validation`.
    #[must_use]
    pub fn on<I, F, Fut, A>(mut self, queue: &str, operation: &str, handler: F) -> Handlers
    where
        I: DeserializeOwned + Send + 'static,
        F: Fn(Job, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = A> + Send + 'static,
        A: IntoReply,
    {
        let boxed: Boxed = Arc::new(move |job, input| {
            let read = serde_json::from_value::<I>(input);
            match read {
                Ok(input) => {
                    let working = handler(job, input);
                    Box::pin(async move { working.await.into_reply() })
                }
                Err(error) => Box::pin(async move {
                    let message = format!("the input does not fit the handler: {error}");
                    Err(Failure::new(
                        ErrorClass::Validation,
                        codes::HANDLER_INPUT,
                        message,
                    ))
                }),
            }
        });
        self.all
            .insert((queue.to_owned(), operation.to_owned()), boxed);
        self
    }

    /// At most so many jobs of a queue at a time. The engine respects it: work above the limit
    /// is not claimed.
    #[must_use]
    pub fn limit(mut self, queue: &str, jobs: usize) -> Handlers {
        self.limits.insert(queue.to_owned(), jobs.max(1));
        self
    }

    pub(crate) fn find(&self, queue: &str, operation: &str) -> Option<&Boxed> {
        // Borrowed pairs cannot be looked up in a map of owned ones.
        self.all.get(&(queue.to_owned(), operation.to_owned()))
    }

    /// The pairs of queue and operation that have a handler.
    pub fn serves(&self) -> impl Iterator<Item = &(String, String)> {
        self.all.keys()
    }

    /// How many jobs of a queue there may be at a time, for queues with a limit.
    #[must_use]
    pub fn limits(&self) -> &BTreeMap<String, usize> {
        &self.limits
    }
}
