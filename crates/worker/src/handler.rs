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
use stepwell_kernel::event::{ArtifactRef, Patch, TaskKind};
use stepwell_kernel::plan::ErrorClass;
use tokio_util::sync::CancellationToken;

use crate::step_log::StepLog;

/// What a handler is told beside its input.
#[derive(Clone, Debug)]
pub struct Job {
    pub run_id: Arc<str>,
    /// The step-run: `charge`, `charge#2`, `ship[3]`.
    pub step_id: Arc<str>,
    /// The operation: also that of an undo.
    pub operation: Arc<str>,
    /// Which logical attempt, from 1.
    pub attempt: u32,
    /// Which execution, from 1; a crash uses one up.
    pub execution: u32,
    /// The same for every execution: hand it to systems that take one.
    pub idempotency_key: Arc<str>,
    /// Ordinary work, or the answer to a wait that ran out.
    pub task: TaskKind,
    /// This undoes the step instead of doing it.
    pub is_undo: bool,
    /// What the event said that the step waited for.
    pub payload: Option<Arc<Json>>,
    /// What the handler wanted to be told when it let the step wait.
    pub memo: Option<Arc<Json>>,
    /// The run's ctx.
    pub ctx: Arc<Json>,
    /// The run's parameters.
    pub params: Arc<Json>,
    /// What else the file says of the step, such as what it waits for.
    pub config: Json,
    /// Where an operator redirected the step to.
    pub target: Option<Arc<Json>>,
    /// The work is no longer wanted: a handler that takes long should look.
    pub cancelled: CancellationToken,
    /// Where its words go.
    pub log: StepLog,
}

/// What a handler returns when it is more than a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// It is done.
    Completed {
        output: Json,
        /// Patches of the run's ctx.
        ctx: Patch,
        /// Pointers to what was made.
        artifacts: Vec<ArtifactRef>,
    },
    /// It waits for an event; the handler runs again when that comes, or when time is over.
    Waiting {
        event_type: String,
        /// How long at most.
        timeout: Option<Duration>,
        /// Events to send with it.
        outbound: Vec<Json>,
        /// What to be told then.
        memo: Option<Json>,
    },
    /// It goes on after this long.
    Sleeping {
        /// How long.
        length: Duration,
        /// What to be told then.
        memo: Option<Json>,
    },
    /// A person completes it.
    Manual,
}

impl Reply {
    /// It is done, with this.
    pub fn done(output: impl Serialize) -> Result<Reply, Failure> {
        Ok(Reply::Completed {
            output: to_json(&output)?,
            ctx: Patch::new(),
            artifacts: Vec::new(),
        })
    }

    /// It waits for an event of this type.
    #[must_use]
    pub fn wait_for(event_type: impl Into<String>) -> Reply {
        Reply::Waiting {
            event_type: event_type.into(),
            timeout: None,
            outbound: Vec::new(),
            memo: None,
        }
    }

    /// But no longer than this.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Reply {
        if let Reply::Waiting { timeout, .. } = &mut self {
            *timeout = Some(limit);
        }
        self
    }

    /// And sends this event with it.
    #[must_use]
    pub fn sending(mut self, event: Json) -> Reply {
        if let Reply::Waiting { outbound, .. } = &mut self {
            outbound.push(event);
        }
        self
    }

    /// And sets a key of the run's ctx.
    #[must_use]
    pub fn setting(mut self, key: impl Into<String>, value: Json) -> Reply {
        if let Reply::Completed { ctx, .. } = &mut self {
            ctx.insert(key.into(), value);
        }
        self
    }
}

/// Why a handler did not do it. Any error becomes one of class `unknown` with `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What retry rules look at.
    pub class: ErrorClass,
    /// A stable code.
    pub code: String,
    /// For people.
    pub message: String,
    /// The handler's own word on whether to try again.
    pub retryable: Option<bool>,
    /// And when.
    pub delay: Option<Duration>,
}

impl Failure {
    /// Of a class, which decides whether it is tried again.
    pub fn new(class: ErrorClass, code: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure {
            class,
            code: code.into(),
            message: message.into(),
            retryable: None,
            delay: None,
        }
    }

    /// It may work later.
    pub fn retry(message: impl Into<String>) -> Failure {
        Failure {
            retryable: Some(true),
            ..Failure::new(ErrorClass::Transient, "RETRY", message)
        }
    }

    /// It will never work.
    pub fn dead(message: impl Into<String>) -> Failure {
        Failure {
            retryable: Some(false),
            ..Failure::new(ErrorClass::Unknown, "DEAD", message)
        }
    }

    /// To be tried again after this long.
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
        Failure::new(ErrorClass::Unknown, "HANDLER_FAILED", message)
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
        Failure::new(ErrorClass::Validation, "HANDLER_OUTPUT", message)
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
    /// None.
    #[must_use]
    pub fn new() -> Handlers {
        Handlers::default()
    }

    /// With an async function for a queue and an operation. Its input is what the step is given,
    /// rendered; if that cannot be read as the type, the step fails with class `validation`.
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
                        "HANDLER_INPUT",
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

    /// What they serve.
    pub fn serves(&self) -> impl Iterator<Item = &(String, String)> {
        self.all.keys()
    }

    /// How many jobs of a queue there may be at a time, for queues with a limit.
    #[must_use]
    pub fn limits(&self) -> &BTreeMap<String, usize> {
        &self.limits
    }
}
