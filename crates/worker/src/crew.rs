//! The crew: does jobs whose claims are committed, many at a time, and reports what became of each.
//!
//! One job is one execution of one step-run. It ends with exactly one report, whatever happens to it:
//! done, failed, waiting, or stopped as it was told. What a report leads to is decided elsewhere.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value as Json};
use stepwell_engine::keeper::{Job, Serves};
use stepwell_engine::rows::{BUILT_IN, served_by, target_name};
use stepwell_engine::service::{Done, Worker};
use stepwell_engine::store::RunNo;
use stepwell_kernel::command::{Command, WaitFor};
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{ArtifactRef, Patch, StepError};
use stepwell_kernel::expr::TemplateValue;
use stepwell_kernel::plan::ErrorClass;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::artifacts::Key;
use crate::handler::{self, Failure, Handlers, Reply};
use crate::keep;
use crate::log::StepLog;
use crate::means::Means;
use crate::outcome::ToolError;
use crate::pipeline::{self, Ending, MAX_VALUE, Surroundings};
use crate::place;
use crate::ready::{Ready, Shelf};
use crate::scope::{Fixed, Vars, View};
use crate::secrets::Redactor;
use crate::tool::{Cx, Stop};

/// The longest message that an event gets.
const MAX_MESSAGE: usize = 4 << 10;

/// Which execution of which work.
type Slot = (RunNo, Target, u32);

/// Does jobs, many at a time.
pub struct Crew {
    shared: Arc<Shared>,
    handle: Handle,
    /// Ends with the crew, if the crew made it.
    runtime: Option<Runtime>,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew")
            .field("means", &self.shared.means)
            .field("handlers", &self.shared.handlers)
            .finish_non_exhaustive()
    }
}

struct Shared {
    means: Means,
    handlers: Handlers,
    queues: HashMap<String, Semaphore>,
    running: Mutex<HashMap<Slot, CancellationToken>>,
    /// Somebody has finished.
    finished: Notify,
    shelf: Shelf,
}

/// What became of a job, before it is a command.
enum Became {
    Completed(Json, Patch, Vec<ArtifactRef>),
    Failed(StepError, Option<bool>, Option<Duration>, Patch),
    Waits(WaitFor, Option<Duration>, Vec<Json>, Option<Json>),
    Stopped,
}

impl Crew {
    /// A crew with threads of its own.
    pub fn new(means: Means, handlers: Handlers) -> io::Result<Crew> {
        let runtime = Builder::new_multi_thread()
            .thread_name("stepwell-worker")
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let mut crew = Crew::on(handle, means, handlers);
        crew.runtime = Some(runtime);
        Ok(crew)
    }

    /// A crew on a runtime that is there already.
    #[must_use]
    pub fn on(handle: Handle, means: Means, handlers: Handlers) -> Crew {
        let queues = handlers.limited();
        let queues = queues
            .map(|(queue, jobs)| (queue.clone(), Semaphore::new(jobs)))
            .collect();
        let shared = Arc::new(Shared {
            means,
            handlers,
            queues,
            running: Mutex::default(),
            finished: Notify::new(),
            shelf: Shelf::default(),
        });
        Crew {
            shared,
            handle,
            runtime: None,
        }
    }

    /// What it can do: pipelines of tools, and what it has handlers for.
    #[must_use]
    pub fn serves(&self) -> Serves {
        let tools = (BUILT_IN.to_owned(), "pipeline".to_owned());
        let handlers = self.shared.handlers.serves().cloned();
        Serves::Only(Arc::new(handlers.chain([tools]).collect()))
    }

    /// What it has.
    #[must_use]
    pub fn means(&self) -> &Means {
        &self.shared.means
    }

    /// Does a job and reports what became of it, once.
    pub fn begin(&self, job: Job, report: impl FnOnce(&Job, Command) + Send + 'static) {
        let claim = &job.claimed.claim;
        let slot = (job.run, claim.target, claim.execution);
        let cancelled = CancellationToken::new();
        self.shared.running().insert(slot, cancelled.clone());
        let shared = Arc::clone(&self.shared);
        self.handle.spawn(async move {
            let work = AssertUnwindSafe(shared.work(&job, cancelled));
            let became = match caught(work).await {
                Ok(became) => became,
                Err(message) => Became::Failed(
                    StepError::new(ErrorClass::Unknown, "WORKER_PANIC", message),
                    None,
                    None,
                    Patch::new(),
                ),
            };
            let command = command(&job, became);
            shared.running().remove(&slot);
            report(&job, command);
            shared.finished.notify_waiters();
        });
    }

    /// Tells a job to stop.
    pub fn stop(&self, run: RunNo, target: Target, execution: u32) {
        if let Some(cancelled) = self.shared.running().get(&(run, target, execution)) {
            cancelled.cancel();
        }
    }

    /// How many jobs there are.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.shared.running().len()
    }

    /// Tells all jobs to stop.
    pub fn stop_all(&self) {
        self.shared
            .running()
            .values()
            .for_each(CancellationToken::cancel);
    }

    /// Lets jobs end by themselves for as long as `patience`, then tells them to stop and waits until
    /// they have. Whoever gives jobs must have stopped to do so.
    pub fn drain(&self, patience: Duration) {
        let shared = Arc::clone(&self.shared);
        let grace = shared.means.limits.grace + Duration::from_secs(3);
        self.handle.block_on(async move {
            if tokio::time::timeout(patience, shared.idle()).await.is_ok() {
                return;
            }
            shared
                .running()
                .values()
                .for_each(CancellationToken::cancel);
            let _ = tokio::time::timeout(grace, shared.idle()).await;
        });
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop_all();
        if let Some(runtime) = self.runtime.take() {
            // Whatever runs there now has been told; programs are killed when their task is dropped.
            runtime.shutdown_background();
        }
    }
}

impl Worker for Crew {
    fn start(&mut self, job: Job, done: &Done) {
        let done = done.clone();
        self.begin(job, move |job, command| done.send(job, command));
    }

    fn stop(&mut self, run: RunNo, target: Target, execution: u32) {
        Crew::stop(self, run, target, execution);
    }
}

/// Runs work whose panic is its own.
async fn caught<T>(work: AssertUnwindSafe<impl Future<Output = T>>) -> Result<T, String> {
    let mut work = std::pin::pin!(work.0);
    std::future::poll_fn(|cx| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        match polled {
            Ok(std::task::Poll::Pending) => std::task::Poll::Pending,
            Ok(std::task::Poll::Ready(value)) => std::task::Poll::Ready(Ok(value)),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|it| (*it).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                let text = text.unwrap_or_else(|| "it does not say why".into());
                std::task::Poll::Ready(Err(format!("the worker's code panicked: {text}")))
            }
        }
    })
    .await
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, HashMap<Slot, CancellationToken>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn idle(&self) {
        loop {
            let finished = self.finished.notified();
            if self.running().is_empty() {
                return;
            }
            finished.await;
        }
    }

    async fn work(&self, job: &Job, cancelled: CancellationToken) -> Became {
        let claimed = &job.claimed;
        let target = claimed.claim.target;
        let (queue, operation) = served_by(&job.plan, target);
        let permit = match self.queues.get(queue) {
            Some(seats) => tokio::select! {
                permit = seats.acquire() => permit.ok(),
                () = cancelled.cancelled() => return Became::Stopped,
            },
            None => None,
        };
        let redactor = Redactor::new();
        let step_id: Arc<str> = target_name(&job.plan, target).into();
        let execution = claimed.claim.execution;
        let lines = self.means.logs.begin(
            &job.run_id,
            &step_id,
            execution,
            &redactor,
            &self.means.limits,
        );
        let cx = Cx {
            run_id: Arc::clone(&job.run_id),
            step_id,
            idempotency_key: claimed.idempotency_key.as_str().into(),
            attempt: 1,
            limits: self.means.limits,
            deadline: Instant::now() + self.means.limits.timeout,
            cancelled,
            log: StepLog::new(lines.clone()),
        };
        let became = match queue == BUILT_IN {
            true => self.tools(job, cx, redactor).await,
            false => self.handler(job, queue, operation, cx, &redactor).await,
        };
        if let Became::Failed(error, ..) = &became {
            let log = StepLog::new(lines.clone());
            log.note(&format!(
                "failed: {} {}: {}",
                error.class.name(),
                error.code,
                error.message
            ));
        }
        lines.finish().await;
        drop(permit);
        became
    }

    /// The arguments of the step's token.
    async fn args(&self, job: &Job) -> Result<Map<String, Json>, ToolError> {
        let Some(args) = job.claimed.args.as_deref() else {
            return Ok(Map::new());
        };
        Ok(match self.means.artifacts.expand(args).await? {
            Json::Object(map) => map,
            _ => Map::new(),
        })
    }

    /// The step's own input and its token's arguments, as its templates make them.
    fn input(
        &self,
        job: &Job,
        ready: &Ready,
        fixed: &Fixed,
        mut args: Map<String, Json>,
    ) -> Result<Map<String, Json>, ToolError> {
        let claimed = &job.claimed;
        if let Json::Object(own) = self.rendered(job, fixed, &ready.input, &args)? {
            args.extend(own);
        }
        if let Some(Json::Object(over)) = claimed.overrides.as_deref() {
            args.extend(over.clone());
        }
        Ok(args)
    }

    /// A part of the step that stands outside its tasks, as its templates make it.
    fn rendered(
        &self,
        job: &Job,
        fixed: &Fixed,
        written: &TemplateValue,
        args: &Map<String, Json>,
    ) -> Result<Json, ToolError> {
        let view = View {
            plan: &job.plan,
            fixed,
            vars: &Vars::default(),
            args,
            task: "",
            attempt: 1,
            outcome: None,
        };
        written.evaluate_within(&view, MAX_VALUE).map_err(|error| {
            let step = &job.plan.step(job.claimed.step).name;
            let message = place::of(&job.plan, step, &error);
            ToolError::new(ErrorClass::Expression, "EXPRESSION_FAILED", message)
        })
    }

    async fn tools(&self, job: &Job, cx: Cx, redactor: Redactor) -> Became {
        match self.run_tools(job, cx, redactor).await {
            Ok(became) => became,
            Err(error) => failed(error, Patch::new()),
        }
    }

    async fn run_tools(&self, job: &Job, cx: Cx, redactor: Redactor) -> Result<Became, ToolError> {
        let claimed = &job.claimed;
        let ready = self.shelf.of(job)?;
        let pipeline = ready.pipeline()?;
        let mut fixed = Fixed::new(&job.run_id, &job.plan, claimed);
        pipeline::bring(&self.means, &mut fixed).await?;
        let args = self.args(job).await?;
        self.unlock(job, &ready.keychain, &mut fixed, &redactor)
            .await?;
        let memo = match claimed.memo.as_deref() {
            Some(memo) => Some(self.means.artifacts.expand(memo).await?),
            None => None,
        };
        let args = self.input(job, &ready, &fixed, args)?;
        let step = &job.plan.step(claimed.step).name;
        let surroundings = Surroundings {
            means: &self.means,
            plan: &job.plan,
            step,
            fixed,
            args,
            cx,
            redactor,
            may_wait: matches!(claimed.claim.target, Target::Step(_)),
        };
        let payload = claimed.payload.as_deref();
        Ok(
            match surroundings.run(pipeline, memo.as_ref(), payload).await {
                Ending::Completed { output, ctx } => {
                    let (output, ctx, artifacts) =
                        self.shrink(job, output, ctx, &ready.keep).await?;
                    Became::Completed(output, ctx, artifacts)
                }
                Ending::Failed { error, ctx } => failed(error, ctx),
                Ending::Waits {
                    wait,
                    timeout,
                    memo,
                } => {
                    let key = self.key(job, "memo");
                    let (memo, _) = self
                        .means
                        .artifacts
                        .shrink(&key, memo, &keep::nothing())
                        .await?;
                    Became::Waits(wait, timeout, Vec::new(), Some(memo))
                }
                Ending::Stopped(Stop::Cancelled) => Became::Stopped,
                Ending::Stopped(stop) => failed(stop.error(), Patch::new()),
            },
        )
    }

    /// Gets the secrets that the templates name below `keychain`.
    async fn unlock(
        &self,
        job: &Job,
        names: &[String],
        fixed: &mut Fixed,
        redactor: &Redactor,
    ) -> Result<(), ToolError> {
        if names.is_empty() {
            return Ok(());
        }
        let entries = job.plan.net().extra.get("keychain").unwrap_or(&Json::Null);
        let mut values = Map::new();
        for name in names {
            let value = self.means.secrets.keychain(entries, name, redactor).await?;
            values.insert(name.clone(), value);
        }
        fixed.keychain = Arc::new(Json::Object(values));
        Ok(())
    }

    fn key(&self, job: &Job, name: &str) -> Key {
        let claim = &job.claimed.claim;
        let step_id = target_name(&job.plan, claim.target);
        Key::new(&job.run_id, &step_id, claim.execution, name)
    }

    /// What is too large for the log goes to the artifacts, and a reference stands in its place.
    async fn shrink(
        &self,
        job: &Job,
        output: Json,
        ctx: Patch,
        keep: &crate::artifacts::Keep,
    ) -> Result<(Json, Patch, Vec<ArtifactRef>), ToolError> {
        let store = &self.means.artifacts;
        let (output, reference) = store.shrink(&self.key(job, "output"), output, keep).await?;
        let mut artifacts: Vec<ArtifactRef> = reference.into_iter().collect();
        let mut small = Patch::new();
        for (name, value) in ctx {
            let key = self.key(job, &format!("ctx.{name}"));
            let (value, reference) = store.shrink(&key, value, &keep::nothing()).await?;
            artifacts.extend(reference);
            small.insert(name, value);
        }
        Ok((output, small, artifacts))
    }

    async fn handler(
        &self,
        job: &Job,
        queue: &str,
        operation: &str,
        cx: Cx,
        redactor: &Redactor,
    ) -> Became {
        match self.run_handler(job, queue, operation, cx, redactor).await {
            Ok(became) => became,
            Err(error) => failed(error, Patch::new()),
        }
    }

    async fn run_handler(
        &self,
        job: &Job,
        queue: &str,
        operation: &str,
        cx: Cx,
        redactor: &Redactor,
    ) -> Result<Became, ToolError> {
        let claimed = &job.claimed;
        let Some(handler) = self.handlers.find(queue, operation) else {
            let message =
                format!("this worker has no handler for {operation:?} of the queue {queue:?}");
            return Err(ToolError::invalid("HANDLER_MISSING", message));
        };
        let ready = self.shelf.of(job)?;
        let mut fixed = Fixed::new(&job.run_id, &job.plan, claimed);
        pipeline::bring(&self.means, &mut fixed).await?;
        let args = self.args(job).await?;
        let mut input = Json::Object(self.input(job, &ready, &fixed, args)?);
        if input.as_object().is_some_and(Map::is_empty) {
            // A file that says nothing of the input means all there is.
            input = Json::clone(&claimed.params);
        }
        self.means.secrets.fill(&mut input, redactor).await?;
        let config = self.rendered(job, &fixed, &ready.config, &Map::new())?;
        let told = handler::Job {
            run_id: Arc::clone(&job.run_id),
            step_id: Arc::clone(&cx.step_id),
            operation: operation.into(),
            attempt: claimed.logical,
            execution: claimed.claim.execution,
            idempotency_key: Arc::clone(&cx.idempotency_key),
            task: claimed.task,
            is_undo: matches!(claimed.claim.target, Target::Undo(_)),
            payload: claimed.payload.clone(),
            memo: claimed.memo.clone(),
            ctx: Arc::clone(&claimed.ctx),
            params: Arc::clone(&claimed.params),
            config,
            target: claimed.target.clone(),
            cancelled: cx.cancelled.clone(),
            log: cx.log.clone(),
        };
        let answer = tokio::select! {
            answer = handler(told, input) => answer,
            () = cx.cancelled.cancelled() => return Ok(Became::Stopped),
        };
        Ok(match answer {
            Ok(Reply::Completed {
                mut output,
                mut ctx,
                artifacts,
            }) => {
                redactor.json(&mut output);
                ctx.values_mut().for_each(|value| redactor.json(value));
                let (output, ctx, more) = self.shrink(job, output, ctx, &ready.keep).await?;
                Became::Completed(output, ctx, artifacts.into_iter().chain(more).collect())
            }
            Ok(Reply::Waiting {
                event_type,
                timeout,
                outbound,
                memo,
            }) => Became::Waits(WaitFor::Event { event_type }, timeout, outbound, memo),
            Ok(Reply::Sleeping { length, memo }) => {
                Became::Waits(WaitFor::Timer, Some(length), Vec::new(), memo)
            }
            Ok(Reply::Manual) => Became::Waits(WaitFor::Manual, None, Vec::new(), None),
            Err(Failure {
                class,
                code,
                message,
                retryable,
                delay,
            }) => {
                let message = cut(&redactor.text(&message));
                Became::Failed(
                    StepError::new(class, code, message),
                    retryable,
                    delay,
                    Patch::new(),
                )
            }
        })
    }
}

fn failed(error: ToolError, ctx: Patch) -> Became {
    let (retryable, delay) = (error.retryable, error.retry_after);
    let message = cut(&error.message);
    Became::Failed(
        StepError::new(error.class, error.code, message),
        retryable,
        delay,
        ctx,
    )
}

fn cut(message: &str) -> String {
    let mut end = message.len().min(MAX_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    match end < message.len() {
        true => format!("{}…", &message[..end]),
        false => message.to_owned(),
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

fn command(job: &Job, became: Became) -> Command {
    let claim = job.claimed.claim.clone();
    match became {
        Became::Completed(output, ctx, artifacts) => Command::CompleteStep {
            claim,
            output,
            ctx,
            artifacts,
        },
        Became::Failed(error, retryable, delay, ctx) => Command::FailStep {
            claim,
            error,
            retryable,
            delay_ms: delay.map(millis),
            ctx,
        },
        Became::Waits(wait, timeout, outbound, memo) => Command::WaitStep {
            claim,
            wait,
            timeout_ms: timeout.map(millis),
            outbound,
            memo,
        },
        Became::Stopped => Command::ConfirmKill { claim },
    }
}
