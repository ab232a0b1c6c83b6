//! One assignment from its claim to the command that reports its result: with tools, or with a handler.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use serde_json::{Map, Value as Json};
use stepwell_engine::coordinator::Assignment;
use stepwell_engine::rows::{BUILT_IN, served_by, target_name};
use stepwell_kernel::codes;
use stepwell_kernel::command::{Command, WaitFor};
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::Patch;
use stepwell_kernel::expr::TemplateValue;
use stepwell_kernel::plan::ErrorClass;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{CrewShared, caught};
use crate::expression_location;
use crate::handler::{self, Failure, Reply};
use crate::outcome::ToolError;
use crate::pipeline::{self, MAX_VALUE, PipelineContext};
use crate::report;
use crate::scope::{ScopeView, StepInputs, TaskVars};
use crate::secrets::Redactor;
use crate::step_log::StepLog;
use crate::tool::TaskContext;
use crate::warm_pool::PreparedStep;

impl CrewShared {
    /// Does the work of an assignment. Whatever happens, a panic included, one command reports it.
    pub(super) async fn work(&self, job: &Assignment, cancelled: CancellationToken) -> Command {
        let claimed = &job.claimed;
        let claim = &claimed.claim;
        let (queue, operation) = served_by(&job.plan, claim.target);
        let redactor = self.redactor(job).await;
        let step_id: Arc<str> = target_name(&job.plan, claim.target).into();
        let lines = self.resources.logs.begin(
            &job.run_id,
            &step_id,
            claim.execution,
            &redactor,
            &self.resources.limits,
        );
        let cx = TaskContext {
            run_id: Arc::clone(&job.run_id),
            step_id,
            idempotency_key: claimed.idempotency_key.as_str().into(),
            task_key: claimed.idempotency_key.as_str().into(),
            attempt: claimed.attempt,
            execution: claim.execution,
            fence: claimed.fence,
            trace: job.trace.clone(),
            limits: self.resources.limits,
            deadline: Instant::now() + self.resources.limits.timeout,
            cancelled,
            log: StepLog::new(lines.clone()),
            redactor: redactor.clone(),
        };
        let known = redactor.clone();
        let work = async {
            match queue == BUILT_IN {
                true => self.run_tools(job, cx, redactor).await,
                false => self.run_handler(job, queue, operation, cx, &redactor).await,
            }
        };
        let result = caught(AssertUnwindSafe(work)).await;
        let result = result.unwrap_or_else(|message| {
            Err(ToolError::new(
                ErrorClass::Unknown,
                codes::WORKER_PANIC,
                message,
            ))
        });
        let command = result.unwrap_or_else(|mut error| {
            // Wherever it comes from: an error may contain what the step was given.
            error.message = known.text(&error.message).into_owned();
            error.code = known.text(&error.code).into_owned();
            report::failed(claim, error, Patch::new())
        });
        if let Command::FailStep { error, .. } = &command {
            let (class, code, message) = (error.class.name(), &error.code, &error.message);
            // The class is for retry rules. `unknown` would read as if nothing were known about the failure.
            let class = match error.class == ErrorClass::Unknown {
                true => String::new(),
                false => format!(" ({class})"),
            };
            StepLog::new(lines.clone()).note(&format!("failed: {code}{class}: {message}"));
        }
        lines.finish().await;
        command
    }

    /// The arguments of the step's token.
    pub(super) async fn args(&self, job: &Assignment) -> Result<Map<String, Json>, ToolError> {
        let Some(args) = job.claimed.args.as_deref() else {
            return Ok(Map::new());
        };
        Ok(match self.resources.artifacts.expand(args).await? {
            Json::Object(map) => map,
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_) => {
                Map::new()
            }
        })
    }

    /// The step's own input and its token's arguments, as its templates make them.
    async fn input(
        &self,
        job: &Assignment,
        prepared: &PreparedStep,
        fixed: &StepInputs,
        redactor: &Redactor,
    ) -> Result<Map<String, Json>, ToolError> {
        let mut args = self.args(job).await?;
        // Looked for in what the author wrote: data from outside cannot name a secret.
        let resolved = self
            .resources
            .secrets
            .gather(&prepared.written, redactor)
            .await?;
        let mut own = self.rendered(job, fixed, &prepared.input, &args)?;
        resolved.apply(&mut own)?;
        merge(job, &mut args, own);
        Ok(args)
    }

    /// A part of the step that stands outside its tasks, as its templates make it.
    pub(super) fn rendered(
        &self,
        job: &Assignment,
        fixed: &StepInputs,
        written: &TemplateValue,
        args: &Map<String, Json>,
    ) -> Result<Json, ToolError> {
        let view = ScopeView {
            plan: &job.plan,
            fixed,
            vars: &TaskVars::default(),
            args,
            task: "",
            attempt: 1,
            place: None,
            outcome: None,
        };
        written.evaluate_within(&view, MAX_VALUE).map_err(|error| {
            let step = &job.plan.step(job.claimed.step).name;
            let message = expression_location::of(&job.plan, step, &error);
            ToolError::new(ErrorClass::Expression, codes::EXPRESSION_FAILED, message)
        })
    }

    /// Runs the tasks of the step, or of its undo.
    async fn run_tools(
        &self,
        job: &Assignment,
        cx: TaskContext,
        redactor: Redactor,
    ) -> Result<Command, ToolError> {
        let claimed = &job.claimed;
        let prepared = self.warm_pool.of(job)?;
        let pipeline = prepared.pipeline()?;
        let fixed = self.fixed(job, &prepared, &cx, &redactor).await?;
        let memo = match &claimed.memo {
            Some(memo) => Some(self.resources.artifacts.expand(memo).await?),
            None => None,
        };
        let args = self.input(job, &prepared, &fixed, &redactor).await?;
        let payload = fixed.payload.clone();
        let context = PipelineContext {
            resources: &self.resources,
            plan: &job.plan,
            tenancy: &job.tenancy,
            claim: &claimed.claim,
            step: &job.plan.step(claimed.step).name,
            fixed,
            args,
            cx,
            redactor,
            may_wait: matches!(claimed.claim.target, Target::Step(_)),
        };
        let command = context
            .run(pipeline, memo.as_ref(), payload.as_deref())
            .await;
        self.store_large_values(job, command, &prepared.keep, &context.redactor)
            .await
    }

    /// What the templates of the step see, apart from its arguments. Values that are kept as artifacts
    /// are fetched.
    pub(super) async fn fixed(
        &self,
        job: &Assignment,
        prepared: &PreparedStep,
        cx: &TaskContext,
        redactor: &Redactor,
    ) -> Result<StepInputs, ToolError> {
        let mut fixed = StepInputs::new(cx, &job.plan, &job.claimed);
        pipeline::bring(&self.resources, &mut fixed).await?;
        self.unlock(job, &prepared.keychain, &mut fixed, redactor)
            .await?;
        Ok(fixed)
    }

    /// Gets the secrets that the templates name below `keychain`.
    async fn unlock(
        &self,
        job: &Assignment,
        names: &[String],
        fixed: &mut StepInputs,
        redactor: &Redactor,
    ) -> Result<(), ToolError> {
        if names.is_empty() {
            return Ok(());
        }
        let entries = job.plan.net().extra.get("keychain").unwrap_or(&Json::Null);
        let mut values = Map::new();
        for name in names {
            let value = self
                .resources
                .secrets
                .keychain(entries, name, redactor)
                .await?;
            values.insert(name.clone(), value);
        }
        fixed.keychain = Arc::new(Json::Object(values));
        Ok(())
    }

    /// Calls the handler of the step, or of its undo.
    async fn run_handler(
        &self,
        job: &Assignment,
        queue: &str,
        operation: &str,
        cx: TaskContext,
        redactor: &Redactor,
    ) -> Result<Command, ToolError> {
        let claimed = &job.claimed;
        let Some(handler) = self.handlers.find(queue, operation) else {
            let message = format!(
                "this worker has no handler for the operation {operation:?} of the queue {queue:?}; \
                 register one, or give the queue to a worker that has it"
            );
            return Err(ToolError::invalid(codes::HANDLER_MISSING, message));
        };
        let prepared = self.warm_pool.of(job)?;
        let fixed = self.fixed(job, &prepared, &cx, redactor).await?;
        let input = self.input(job, &prepared, &fixed, redactor).await?;
        let input = match input.is_empty() {
            // A file that says nothing of the input means all there is.
            true => Json::clone(&fixed.params),
            false => Json::Object(input),
        };
        let memo = match &claimed.memo {
            Some(memo) => Some(self.resources.artifacts.expand_shared(memo).await?),
            None => None,
        };
        let config = self.rendered(job, &fixed, &prepared.config, &Map::new())?;
        let told = handler::Job {
            run_id: Arc::clone(&job.run_id),
            step_id: Arc::clone(&cx.step_id),
            operation: operation.into(),
            attempt: claimed.attempt,
            logical_attempt: claimed.logical,
            execution: claimed.claim.execution,
            idempotency_key: Arc::clone(&cx.idempotency_key),
            fence: claimed.fence,
            task: claimed.task,
            is_undo: matches!(claimed.claim.target, Target::Undo(_)),
            payload: fixed.payload.clone(),
            memo,
            ctx: Arc::clone(&fixed.ctx),
            params: Arc::clone(&fixed.params),
            config,
            target: claimed.target.clone(),
            cancelled: cx.cancelled.clone(),
            log: cx.log.clone(),
        };
        let mut work = std::pin::pin!(handler(told, input));
        let reply = tokio::select! {
            reply = &mut work => reply,
            () = cx.cancelled.cancelled() => {
                // It has heard of it too. What it brings to an end is what it was; of everything else nobody knows
                // how far it came.
                match tokio::time::timeout(cx.limits.grace, work).await {
                    Ok(reply @ Ok(Reply::Completed { .. })) => reply,
                    Ok(_) | Err(_) => return Ok(report::killed(&claimed.claim)),
                }
            }
        };
        let command = command_of(job, reply, redactor);
        self.store_large_values(job, command, &prepared.keep, redactor)
            .await
    }
}

/// Puts the step's own input over its token's arguments, and what an operator wants over both.
pub(super) fn merge(job: &Assignment, args: &mut Map<String, Json>, own: Json) {
    if let Json::Object(own) = own {
        args.extend(own);
    }
    if let Some(Json::Object(over)) = job.claimed.overrides.as_deref() {
        args.extend(over.clone());
    }
}

/// The command that reports what a handler returned, without secrets.
fn command_of(job: &Assignment, reply: Result<Reply, Failure>, redactor: &Redactor) -> Command {
    let claim = &job.claimed.claim;
    match reply {
        Ok(Reply::Completed {
            mut output,
            mut ctx,
            artifacts,
        }) => {
            redactor.json(&mut output);
            ctx.values_mut().for_each(|value| redactor.json(value));
            report::completed(claim, output, ctx, artifacts)
        }
        Ok(Reply::Waiting {
            event_type,
            timeout,
            outbound,
            memo,
        }) => match redactor.finds(&event_type) {
            true => {
                let message = "the type of the event that the step waits for contains a secret, and \
                               would be written down; wait for an event of another type";
                let error = ToolError::invalid(codes::SECRET_IN_CALL, message);
                report::failed(claim, error, Patch::new())
            }
            false => {
                let wait = WaitFor::Event { event_type };
                report::waiting(claim, wait, timeout, outbound, memo)
            }
        },
        Ok(Reply::Sleeping { length, memo }) => {
            report::waiting(claim, WaitFor::Timer, Some(length), Vec::new(), memo)
        }
        Ok(Reply::Manual) => report::waiting(claim, WaitFor::Manual, None, Vec::new(), None),
        Err(failure) => {
            let error = ToolError {
                class: failure.class,
                code: redactor.text(&failure.code).into_owned(),
                message: redactor.text(&failure.message).into_owned(),
                retryable: failure.retryable,
                retry_after: failure.delay,
            };
            report::failed(claim, error, Patch::new())
        }
    }
}
