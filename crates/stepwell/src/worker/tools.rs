//! The built-in tools as the executor of a worker: a task of the server becomes an assignment, and the command that
//! reports it becomes a result.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use stepwell_client::protocol::TaskLine;
use stepwell_client::{Connection, Execute, Executing, Outcome, Task, TaskError, Wait};
use stepwell_engine::coordinator::{Assignment, Tenancy};
use stepwell_engine::store::RunNo;
use stepwell_kernel::codes;
use stepwell_kernel::command::{Claimed, Command, WaitFor};
use stepwell_kernel::event::Patch;
use stepwell_kernel::plan::{Net, Plan};
use stepwell_kernel::trace::TraceContext;
use stepwell_worker::Crew;
use stepwell_worker::logs::LogEntry;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Definitions that are kept; with more, they are fetched again.
const KEPT_PLANS: usize = 1_000;
/// Tasks whose tokens are kept for late lines of their logs.
const KEPT_TOKENS: usize = 10_000;
/// The most lines of one request.
const MAX_LINES: usize = 5_000;
/// How long a result waits for the lines before it.
const LAST_LINES: Duration = Duration::from_secs(5);

/// The tokens of the tasks that this worker was given: by run, step and execution.
#[derive(Debug, Default)]
pub(super) struct GivenTasks(Mutex<HashMap<(String, String, u32), String>>);

impl GivenTasks {
    fn all(&self) -> MutexGuard<'_, HashMap<(String, String, u32), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, task: &Task) {
        let mut all = self.all();
        if all.len() >= KEPT_TOKENS {
            // Lines of old tasks have long been sent.
            all.clear();
        }
        let name = (task.run_id.clone(), task.step_id.clone(), task.execution);
        all.insert(name, task.task_token.clone());
    }

    pub(super) fn token(&self, run_id: &str, step_id: &str, execution: u32) -> Option<String> {
        let name = (run_id.to_owned(), step_id.to_owned(), execution);
        self.all().get(&name).cloned()
    }
}

/// Asks the forwarder to send what was written.
#[derive(Clone, Debug)]
pub(super) struct SentLines(mpsc::UnboundedSender<oneshot::Sender<()>>);

impl SentLines {
    /// With the receiver that the forwarder has.
    pub(super) fn new() -> (SentLines, mpsc::UnboundedReceiver<oneshot::Sender<()>>) {
        let (ask, asked) = mpsc::unbounded_channel();
        (SentLines(ask), asked)
    }

    /// Waits until all lines that were written so far are sent: the server takes no lines of a task that is over. A server
    /// that does not answer does not keep the result back for long.
    async fn wait(&self) {
        let (tell, told) = oneshot::channel();
        if self.0.send(tell).is_ok() {
            let _ = tokio::time::timeout(LAST_LINES, told).await;
        }
    }
}

/// Takes the lines of the tools to the server, in the order in which they were written.
pub(super) async fn forward(
    mut lines: broadcast::Receiver<Arc<LogEntry>>,
    mut asked: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
    connection: Connection,
    given: Arc<GivenTasks>,
) {
    let line_of = |entry: &LogEntry| {
        let token = given.token(&entry.run_id, &entry.step_id, entry.execution)?;
        Some(TaskLine {
            task_token: token,
            task: entry.line.task.clone(),
            stream: entry.line.stream.name(),
            text: entry.line.text.clone(),
        })
    };
    let warn_lost = |lost: u64| {
        tracing::warn!(
            lost,
            "lines of step logs were written faster than they can be sent"
        );
    };
    loop {
        let (mut batch, mut waiting) = (Vec::new(), Vec::new());
        tokio::select! {
            line = lines.recv() => match line {
                Ok(entry) => batch.extend(line_of(&entry)),
                Err(broadcast::error::RecvError::Lagged(lost)) => warn_lost(lost),
                Err(broadcast::error::RecvError::Closed) => return,
            },
            Some(tell) = asked.recv() => waiting.push(tell),
        }
        // A task asks after it has written: what is found after the last question is all that they wait for.
        while let Ok(tell) = asked.try_recv() {
            waiting.push(tell);
        }
        let mut more = true;
        while more {
            more = false;
            while let Some(line) = next_line(&mut lines, &warn_lost) {
                batch.extend(line_of(&line));
                if batch.len() >= MAX_LINES {
                    more = true;
                    break;
                }
            }
            if !batch.is_empty()
                && let Err(error) = connection.log(&batch).await
            {
                tracing::warn!(%error, lines = batch.len(), "lines of step logs are lost");
            }
            batch.clear();
        }
        for tell in waiting {
            // The task may have given up waiting.
            let _ = tell.send(());
        }
    }
}

/// A line that was written already.
fn next_line(
    lines: &mut broadcast::Receiver<Arc<LogEntry>>,
    warn_lost: &impl Fn(u64),
) -> Option<Arc<LogEntry>> {
    loop {
        match lines.try_recv() {
            Ok(entry) => return Some(entry),
            Err(broadcast::error::TryRecvError::Lagged(lost)) => warn_lost(lost),
            Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed) => {
                return None;
            }
        }
    }
}

/// Executes tasks with the built-in tools.
pub(super) struct Tools {
    connection: Connection,
    crew: Arc<Crew>,
    given: Arc<GivenTasks>,
    lines: SentLines,
    plans: Arc<Mutex<HashMap<String, Arc<Plan>>>>,
    /// Numbers for the crew: the server's numbers of runs are not known here.
    next: AtomicI64,
}

impl Tools {
    pub(super) fn new(
        connection: Connection,
        crew: Crew,
        given: Arc<GivenTasks>,
        lines: SentLines,
    ) -> Tools {
        Tools {
            connection,
            crew: Arc::new(crew),
            given,
            lines,
            plans: Arc::default(),
            next: AtomicI64::new(1),
        }
    }
}

impl Execute for Tools {
    fn execute(&self, task: Task, cancelled: CancellationToken) -> Executing {
        self.given.add(&task);
        let (connection, crew) = (self.connection.clone(), Arc::clone(&self.crew));
        let (plans, lines) = (Arc::clone(&self.plans), self.lines.clone());
        let number = RunNo(self.next.fetch_add(1, Ordering::Relaxed));
        Box::pin(async move {
            let assignment = match assignment(&connection, &plans, task, number).await {
                Ok(assignment) => assignment,
                // The definition could not be fetched, or is of another version: another worker may do better.
                Err(why) => return Outcome::failed("transient", codes::WORKER_UNPREPARED, why),
            };
            let claim = assignment.claimed.claim.clone();
            let (tell, told) = oneshot::channel();
            crew.begin(assignment, move |_, result| {
                // Nobody waits if the worker ends.
                let _ = tell.send(result);
            });
            let mut told = std::pin::pin!(told);
            let result = tokio::select! {
                result = &mut told => result,
                () = cancelled.cancelled() => {
                    crew.stop(number, claim.target, claim.execution);
                    told.await
                }
            };
            lines.wait().await;
            match result {
                Ok(command) => outcome_of(command),
                Err(_) => Outcome::failed(
                    "unknown",
                    codes::WORKER_PANIC,
                    "the work ended without a report",
                ),
            }
        })
    }
}

/// The work that a task stands for.
async fn assignment(
    connection: &Connection,
    plans: &Mutex<HashMap<String, Arc<Plan>>>,
    task: Task,
    run: RunNo,
) -> Result<Assignment, String> {
    let known = || {
        let plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.get(&task.plan_hash).cloned()
    };
    let plan = match known() {
        Some(plan) => plan,
        None => {
            let net = connection.plan(&task.plan_hash, &task.run_id).await;
            let net = net.map_err(|error| format!("the definition cannot be fetched: {error}"))?;
            let net: Net = serde_json::from_value(net)
                .map_err(|error| format!("the definition cannot be read: {error}"))?;
            let plan = Plan::new(net).map_err(|fault| fault.to_string())?;
            if plan.hash() != task.plan_hash {
                return Err("the definition is not the one that the task names".to_owned());
            }
            let plan = Arc::new(plan);
            let mut plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
            if plans.len() >= KEPT_PLANS {
                plans.clear();
            }
            plans.insert(task.plan_hash.clone(), Arc::clone(&plan));
            plan
        }
    };
    let claimed: Claimed = serde_json::from_value(task.claimed.unwrap_or_default())
        .map_err(|error| format!("the claim cannot be read: {error}"))?;
    let traceparent = task.traceparent.as_deref();
    Ok(Assignment {
        run,
        trace: traceparent.and_then(|it| TraceContext::read(it, task.tracestate.as_deref())),
        run_id: task.run_id.into(),
        parent: task.parent_run_id.map(Into::into),
        tenancy: Tenancy::new(&task.tenant_id, &task.project_id),
        plan,
        claimed,
    })
}

/// The result that a command reports.
fn outcome_of(command: Command) -> Outcome {
    let map = |ctx: Patch| ctx.into_iter().collect::<Map<String, Json>>();
    match command {
        Command::CompleteStep {
            output,
            ctx,
            artifacts,
            ..
        } => Outcome::Completed {
            output,
            ctx: map(ctx),
            artifacts: artifacts.into_iter().map(|it| json!(it)).collect(),
        },
        Command::FailStep {
            error,
            retryable,
            delay_ms,
            ctx,
            ..
        } => Outcome::Failed {
            error: TaskError {
                class: error.class.name().to_owned(),
                code: error.code,
                message: error.message,
            },
            retryable,
            delay_ms,
            ctx: map(ctx),
        },
        Command::WaitStep {
            wait,
            timeout_ms,
            outbound,
            memo,
            ..
        } => {
            let mut told = Wait {
                timeout_ms,
                outbound,
                memo,
                ..Wait::default()
            };
            let word = match wait {
                WaitFor::Event { event_type } => {
                    told.event_type = Some(event_type);
                    "event"
                }
                WaitFor::Manual => "manual",
                WaitFor::Timer => "timer",
                WaitFor::Child { call, input } => {
                    told.call = Some(json!(call));
                    told.input = Some(input);
                    "child"
                }
            };
            told.waits_for = word.to_owned();
            Outcome::Waiting { wait: told }
        }
        Command::ConfirmKill { .. } => Outcome::Stopped,
        Command::CreateRun { .. }
        | Command::EnqueueRun
        | Command::ApproveRun { .. }
        | Command::StartRun { .. }
        | Command::ClaimStep { .. }
        | Command::ExpireLease { .. }
        | Command::FireTimer(_)
        | Command::DeliverEvent { .. }
        | Command::CompleteManually { .. }
        | Command::ChildEnded { .. }
        | Command::PatchCtx { .. }
        | Command::CancelRun { .. }
        | Command::Signal { .. }
        | Command::Proceed => Outcome::failed(
            "unknown",
            codes::WORKER_PANIC,
            "the work ended with no report",
        ),
    }
}
