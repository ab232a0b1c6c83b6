//! Pipelines: the tasks of one step-run in order, under their own policy rules.
//!
//! A pipeline does not sleep for long and does not wait for other runs: it says that the step waits,
//! and writes down how far it came. The worker that claims the step after the wait continues there.

mod built_in;
mod library;
mod outcome_view;
mod prepare;
mod progress;
mod rules;
mod script;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use stepwell_dialects::tools::untrusted::{self, FindingKind};
use stepwell_dialects::tools::{PipelineKind, RunBy, execution_fields};
use stepwell_engine::coordinator::Tenancy;
use stepwell_kernel::codes;
use stepwell_kernel::command::{Claim, Command, WaitFor};
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::Patch;
use stepwell_kernel::expr::TemplateError;
use stepwell_kernel::plan::{ErrorClass, Plan};
use tokio::time::Instant;

use crate::expression_location;
use crate::fence;
use crate::outcome::{TaskOutcome, ToolError};
use crate::report;
use crate::resources::WorkerResources;
use crate::scope::{ScopeView, StepInputs};
use crate::secrets::Redactor;
use crate::tool::{TaskContext, ToolCall};
use outcome_view::OutcomeView;
use progress::{PipelineProgress, WaitPurpose};
use rules::NextAction;
use task::PipelineTask;

pub(crate) use task::MAX_VALUE;

/// Tasks that one execution may run: jumps can repeat without end.
const MAX_TASKS: u32 = 10_000;
/// Waits before a retry of at least this long hold no worker.
const LONG_BACKOFF: Duration = Duration::from_secs(10);

/// The tasks of a step, read once.
#[derive(Debug)]
pub(crate) struct Pipeline {
    tasks: Vec<PipelineTask>,
    /// The results of single tasks are read.
    keeps_results: bool,
}

impl Pipeline {
    /// Reads the tasks of the step of this name. `keeps_results`: the results of single tasks are read.
    pub(crate) fn read(
        plan: &Plan,
        step: &str,
        tasks: &Json,
        keeps_results: bool,
    ) -> Result<Pipeline, ToolError> {
        let mut tasks = library::flatten(task::read(tasks)?, &plan.net().library)?;
        let fixed = plan
            .find(step)
            .map(|no| execution_fields::fixed_names(plan, no));
        let fixed = fixed.unwrap_or_default();
        for task in &mut tasks {
            task.unguarded = unguarded(task, &fixed);
        }
        Ok(Pipeline {
            tasks,
            keeps_results,
        })
    }

    /// Which parts of a large output the file wants in the log.
    pub(crate) fn select(&self) -> impl Iterator<Item = &String> {
        self.tasks.iter().flat_map(|task| &task.select)
    }

    /// The paths that its templates read.
    pub(crate) fn reads(&self) -> impl Iterator<Item = String> {
        self.tasks.iter().flat_map(PipelineTask::reads)
    }
}

/// The first value from outside in a task that has no guard, and the safe form.
fn unguarded(task: &PipelineTask, fixed: &BTreeSet<String>) -> Option<String> {
    let found = untrusted::of_task(task.written.as_object()?, fixed);
    found.into_iter().find_map(|it| match it.kind {
        FindingKind::Unguarded(reach) => Some(format!(
            "{it}: {} comes from outside and gets into {} without a guard, which the configuration of this \
             worker forbids; {}",
            it.written,
            reach.words(),
            reach.safe_form()
        )),
        FindingKind::SecretOnCommandLine => None,
    })
}

/// The resources and values that one execution of a pipeline uses.
pub(crate) struct PipelineContext<'a> {
    pub(crate) resources: &'a WorkerResources,
    pub(crate) plan: &'a Plan,
    /// Whose run it is.
    pub(crate) tenancy: &'a Tenancy,
    /// The claim that the report of this execution carries.
    pub(crate) claim: &'a Claim,
    pub(crate) step: &'a str,
    pub(crate) fixed: StepInputs,
    /// The token's arguments and the step's own input.
    pub(crate) args: Map<String, Json>,
    pub(crate) cx: TaskContext,
    pub(crate) redactor: Redactor,
    /// The step may wait; an undo may not.
    pub(crate) may_wait: bool,
}

/// What one task came to: its outcome with the arguments that it was given, or the report that ends this
/// execution of the step, because the step waits or was stopped.
type Performed = ControlFlow<Command, (TaskOutcome, Map<String, Json>)>;

impl PipelineContext<'_> {
    /// Runs the tasks from where the memo says, else from the first.
    pub(crate) async fn run(
        &self,
        pipeline: &Pipeline,
        memo: Option<&Json>,
        payload: Option<&Json>,
    ) -> Command {
        let mut now = match memo.map(PipelineProgress::read) {
            None => PipelineProgress::default(),
            Some(Ok(progress)) => progress,
            Some(Err(error)) => return self.failed(error, Patch::new()),
        };
        let mut came = now.came_back(payload);
        while let Some(task) = pipeline.tasks.get(now.at) {
            // The task before may have ended although it was asked to stop; no other begins.
            if self.cx.cancelled.is_cancelled() {
                return report::killed(self.claim);
            }
            now.ran += 1;
            if now.ran > MAX_TASKS {
                let message = format!(
                    "{MAX_TASKS} tasks have run in one execution; a jump repeats without end"
                );
                let error = ToolError::invalid(codes::PIPELINE_ENDLESS, message);
                return self.failed(error, patch(now.vars.ctx));
            }
            let started = Instant::now();
            let performed = match came.take() {
                Some(outcome) => ControlFlow::Continue((outcome, self.args.clone())),
                None => {
                    if now.attempt == 1 {
                        now.come_to_next();
                    }
                    self.perform(task, &now).await
                }
            };
            let (mut outcome, args) = match performed {
                ControlFlow::Continue(performed) => performed,
                ControlFlow::Break(report) => return report,
            };
            if outcome.error.is_none()
                && let Err(error) = prepare::returns(task, &outcome.result)
            {
                outcome.error = Some(error);
            }
            let seen = OutcomeView::of(&outcome, now.attempt, started.elapsed());
            match self.judge(pipeline, task, &args, &outcome, &seen, &mut now) {
                Ok(NextAction::Go(at)) => {
                    now.at = at;
                    now.attempt = 1;
                }
                Ok(NextAction::End) => break,
                Ok(NextAction::Fail(error)) => {
                    let error = self.named(task, pipeline, error);
                    return self.failed(error, patch(now.vars.ctx));
                }
                Ok(NextAction::Again(delay)) => {
                    let attempt = now.attempt;
                    now.attempt += 1;
                    let log = self.cx.log.of(&task.name);
                    let secs = delay.as_secs_f64();
                    log.note(&format!(
                        "attempt {attempt} is followed by another in {secs} s"
                    ));
                    if delay >= LONG_BACKOFF && self.may_wait {
                        return self.waits(WaitFor::Timer, Some(delay), &now, WaitPurpose::Retry);
                    }
                    if self.sleep(delay).await.is_break() {
                        return report::killed(self.claim);
                    }
                }
                Err(error) => {
                    let error = self.expression(&error);
                    return self.failed(error, patch(now.vars.ctx));
                }
            }
        }
        let mut output = now.output(pipeline.keeps_results);
        self.redactor.json(&mut output);
        let ctx = self.clean(patch(now.vars.ctx));
        report::completed(self.claim, output, ctx, Vec::new())
    }

    fn failed(&self, mut error: ToolError, ctx: Patch) -> Command {
        error.message = self.redactor.text(&error.message).into_owned();
        error.code = self.redactor.text(&error.code).into_owned();
        report::failed(self.claim, error, self.clean(ctx))
    }

    /// The step waits; its memo says how to go on.
    fn waits(
        &self,
        wait: WaitFor,
        timeout: Option<Duration>,
        now: &PipelineProgress,
        purpose: WaitPurpose,
    ) -> Command {
        let memo = Some(now.memo(purpose));
        report::waiting(self.claim, wait, timeout, Vec::new(), memo)
    }

    fn clean(&self, mut ctx: Patch) -> Patch {
        ctx.values_mut().for_each(|value| self.redactor.json(value));
        ctx
    }

    /// In a block of several tasks, which of them failed.
    fn named(&self, task: &PipelineTask, pipeline: &Pipeline, mut error: ToolError) -> ToolError {
        if pipeline.tasks.len() > 1 {
            error.message = format!("task `{}`: {}", task.name, error.message);
        }
        error
    }

    fn view<'v>(
        &'v self,
        task: &'v PipelineTask,
        now: &'v PipelineProgress,
        args: &'v Map<String, Json>,
        outcome: Option<&'v Json>,
    ) -> ScopeView<'v> {
        ScopeView {
            plan: self.plan,
            fixed: &self.fixed,
            vars: &now.vars,
            args,
            task: &task.name,
            attempt: now.attempt,
            place: Some(now.place()),
            outcome,
        }
    }

    /// Says where the expression stands.
    fn expression(&self, error: &TemplateError) -> ToolError {
        let place = expression_location::of(self.plan, self.step, error);
        ToolError::new(ErrorClass::Expression, codes::EXPRESSION_FAILED, place)
    }

    /// Does a task once.
    async fn perform(&self, task: &PipelineTask, now: &PipelineProgress) -> Performed {
        let prepared = match self.prepare(task, now).await {
            Ok(prepared) => prepared,
            Err(error) => {
                return ControlFlow::Continue((TaskOutcome::failed(error), self.args.clone()));
            }
        };
        let (call, timeout) = prepared;
        match task.run_by {
            RunBy::Tool => self.run_tool(task, call, timeout, now).await,
            RunBy::Pipeline(PipelineKind::Noop) => {
                ControlFlow::Continue((self.noop(task, &call), call.args))
            }
            RunBy::Pipeline(PipelineKind::Sleep) => self.nap(&call, now).await,
            RunBy::Pipeline(PipelineKind::Playbook) => self.call(&call, timeout, now),
            RunBy::Pipeline(PipelineKind::Workbook) | RunBy::Engine => {
                let message = format!(
                    "the plan has a `{}` task where none can be; compile the definition again",
                    task.kind
                );
                let error = ToolError::invalid(codes::PIPELINE_BROKEN, message);
                ControlFlow::Continue((TaskOutcome::failed(error), call.args))
            }
        }
    }

    async fn run_tool(
        &self,
        task: &PipelineTask,
        call: ToolCall,
        timeout: Option<Duration>,
        now: &PipelineProgress,
    ) -> Performed {
        let kind = task.kind.as_str();
        let Some(tool) = self.resources.tool(kind) else {
            let message = format!(
                "this worker has no tool `{kind}`; run the step on a worker that has it, or register it"
            );
            let error = ToolError::invalid(codes::TOOL_MISSING, message);
            return ControlFlow::Continue((TaskOutcome::failed(error), call.args));
        };
        let task_key: Arc<str> =
            fence::task_key(&self.cx.idempotency_key, &task.name, now.place()).into();
        let cx = TaskContext {
            attempt: self.cx.attempt - 1 + now.attempt,
            deadline: Instant::now() + timeout.unwrap_or(self.cx.limits.timeout),
            idempotency_key: match self.claim.target {
                Target::Step(_) => Arc::clone(&task_key),
                Target::Undo(_) => Arc::clone(&self.cx.idempotency_key),
            },
            task_key,
            log: self.cx.log.of(&task.name),
            ..self.cx.clone()
        };
        let mut outcome = tool.run(&call, &cx).await;
        if cx.cancelled.is_cancelled() && outcome.error.is_some() {
            return ControlFlow::Break(report::killed(self.claim));
        }
        self.redact(&mut outcome);
        ControlFlow::Continue((wrapped(kind, outcome), call.args))
    }

    fn redact(&self, outcome: &mut TaskOutcome) {
        self.redactor.json(&mut outcome.result);
        outcome
            .details
            .values_mut()
            .for_each(|it| self.redactor.json(it));
        if let Some(error) = &mut outcome.error {
            error.message = self.redactor.text(&error.message).into_owned();
            error.code = self.redactor.text(&error.code).into_owned();
        }
    }
}

fn patch(ctx: Map<String, Json>) -> Patch {
    ctx.into_iter().collect::<BTreeMap<_, _>>()
}

/// An answer over HTTP is more than its body: files read `step.data` and `step.status_code`.
fn wrapped(kind: &str, mut outcome: TaskOutcome) -> TaskOutcome {
    if let ("http", Some(status)) = (
        kind,
        outcome.details.get("http").and_then(|it| it.get("status")),
    ) {
        let status = status.clone();
        let body = std::mem::take(&mut outcome.result);
        outcome.result = json!({ "status_code": status, "data": body });
    }
    outcome
}

/// Values that are kept elsewhere are brought here before anything is rendered.
pub(crate) async fn bring(
    resources: &WorkerResources,
    fixed: &mut StepInputs,
) -> Result<(), ToolError> {
    for value in fixed.referable() {
        *value = resources.artifacts.expand_shared(value).await?;
    }
    Ok(())
}
