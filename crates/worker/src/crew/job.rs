//! One job from its claim to what became of it: with tools, or with a handler.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value as Json};
use stepwell_engine::coordinator::Assignment;
use stepwell_engine::rows::{BUILT_IN, served_by, target_name};
use stepwell_kernel::command::WaitFor;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{ArtifactRef, Patch, StepError};
use stepwell_kernel::expr::TemplateValue;
use stepwell_kernel::plan::ErrorClass;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::became::{Became, cut, failed};
use super::{CrewShared, caught};
use crate::artifacts::{ArtifactKey, RetainedPaths};
use crate::expression_location;
use crate::handler::{self, Failure, Reply};
use crate::outcome::ToolError;
use crate::pipeline::{self, Ending, MAX_VALUE, PipelineContext};
use crate::retained;
use crate::scope::{ScopeView, StepInputs, TaskVars};
use crate::secrets::Redactor;
use crate::step_log::StepLog;
use crate::tool::{StopReason, TaskContext};
use crate::warm_pool::PreparedStep;

impl CrewShared {
    pub(super) async fn work(&self, job: &Assignment, cancelled: CancellationToken) -> Became {
        let claimed = &job.claimed;
        let target = claimed.claim.target;
        let (queue, operation) = served_by(&job.plan, target);
        let redactor = Redactor::new();
        let step_id: Arc<str> = target_name(&job.plan, target).into();
        let execution = claimed.claim.execution;
        let lines = self.resources.logs.begin(
            &job.run_id,
            &step_id,
            execution,
            &redactor,
            &self.resources.limits,
        );
        let cx = TaskContext {
            run_id: Arc::clone(&job.run_id),
            step_id,
            idempotency_key: claimed.idempotency_key.as_str().into(),
            attempt: 1,
            limits: self.resources.limits,
            deadline: Instant::now() + self.resources.limits.timeout,
            cancelled,
            log: StepLog::new(lines.clone()),
        };
        let known = redactor.clone();
        let work = async {
            match queue == BUILT_IN {
                true => self.tools(job, cx, redactor).await,
                false => self.handler(job, queue, operation, cx, &redactor).await,
            }
        };
        let became = match caught(AssertUnwindSafe(work)).await {
            Ok(became) => became,
            Err(message) => {
                let message = cut(&known.text(&message));
                let error = StepError::new(ErrorClass::Unknown, "WORKER_PANIC", message);
                Became::Failed(error, None, None, Patch::new())
            }
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
        became
    }

    /// The arguments of the step's token.
    async fn args(&self, job: &Assignment) -> Result<Map<String, Json>, ToolError> {
        let Some(args) = job.claimed.args.as_deref() else {
            return Ok(Map::new());
        };
        Ok(match self.resources.artifacts.expand(args).await? {
            Json::Object(map) => map,
            _ => Map::new(),
        })
    }

    /// The step's own input and its token's arguments, as its templates make them.
    async fn input(
        &self,
        job: &Assignment,
        ready: &PreparedStep,
        fixed: &StepInputs,
        mut args: Map<String, Json>,
        redactor: &Redactor,
    ) -> Result<Map<String, Json>, ToolError> {
        let claimed = &job.claimed;
        // Looked for in what the author wrote: data from outside cannot name a secret.
        let resolved = self
            .resources
            .secrets
            .gather(&ready.written, redactor)
            .await?;
        let mut own = self.rendered(job, fixed, &ready.input, &args)?;
        resolved.apply(&mut own)?;
        if let Json::Object(own) = own {
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
            outcome: None,
        };
        written.evaluate_within(&view, MAX_VALUE).map_err(|error| {
            let step = &job.plan.step(job.claimed.step).name;
            let message = expression_location::of(&job.plan, step, &error);
            ToolError::new(ErrorClass::Expression, "EXPRESSION_FAILED", message)
        })
    }

    async fn tools(&self, job: &Assignment, cx: TaskContext, redactor: Redactor) -> Became {
        match self.run_tools(job, cx, redactor).await {
            Ok(became) => became,
            Err(error) => failed(error, Patch::new()),
        }
    }

    async fn run_tools(
        &self,
        job: &Assignment,
        cx: TaskContext,
        redactor: Redactor,
    ) -> Result<Became, ToolError> {
        let claimed = &job.claimed;
        let ready = self.warm_pool.of(job)?;
        let pipeline = ready.pipeline()?;
        let mut fixed = StepInputs::new(&job.run_id, &job.plan, claimed);
        pipeline::bring(&self.resources, &mut fixed).await?;
        let args = self.args(job).await?;
        self.unlock(job, &ready.keychain, &mut fixed, &redactor)
            .await?;
        let memo = match claimed.memo.as_deref() {
            Some(memo) => Some(self.resources.artifacts.expand(memo).await?),
            None => None,
        };
        let args = self.input(job, &ready, &fixed, args, &redactor).await?;
        let step = &job.plan.step(claimed.step).name;
        let context = PipelineContext {
            resources: &self.resources,
            plan: &job.plan,
            step,
            fixed,
            args,
            cx,
            redactor,
            may_wait: matches!(claimed.claim.target, Target::Step(_)),
        };
        let payload = context.fixed.payload.clone();
        let payload = payload.as_deref();
        Ok(match context.run(pipeline, memo.as_ref(), payload).await {
            Ending::Completed { output, ctx } => {
                let (output, ctx, artifacts) = self.shrink(job, output, ctx, &ready.keep).await?;
                Became::Completed(output, ctx, artifacts)
            }
            Ending::Failed { error, ctx } => {
                let (_, ctx, _) = self
                    .shrink(job, Json::Null, ctx, &retained::nothing())
                    .await?;
                failed(error, ctx)
            }
            Ending::Waits {
                wait,
                timeout,
                memo,
            } => {
                let redactor = &context.redactor;
                self.waits(job, wait, timeout, Vec::new(), Some(memo), redactor)
                    .await?
            }
            Ending::Stopped(StopReason::Cancelled) => Became::Stopped,
            Ending::Stopped(stop) => failed(stop.error(), Patch::new()),
        })
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

    fn key(&self, job: &Assignment, name: &str) -> ArtifactKey {
        let claim = &job.claimed.claim;
        let step_id = target_name(&job.plan, claim.target);
        ArtifactKey::new(&job.run_id, &step_id, claim.execution, name)
    }

    /// The step waits. All that this writes down is without secrets, and small.
    async fn waits(
        &self,
        job: &Assignment,
        mut wait: WaitFor,
        timeout: Option<Duration>,
        mut outbound: Vec<Json>,
        memo: Option<Json>,
        redactor: &Redactor,
    ) -> Result<Became, ToolError> {
        let store = &self.resources.artifacts;
        outbound.iter_mut().for_each(|event| redactor.json(event));
        if let WaitFor::Child { input, .. } = &mut wait
            && let Json::Object(fields) = input
        {
            for (name, value) in fields {
                let key = self.key(job, &format!("input.{name}"));
                let whole = std::mem::take(value);
                *value = store.shrink(&key, whole, &retained::nothing()).await?.0;
            }
        }
        let memo = match memo {
            Some(mut memo) => {
                redactor.json(&mut memo);
                let key = self.key(job, "memo");
                Some(store.shrink(&key, memo, &retained::nothing()).await?.0)
            }
            None => None,
        };
        Ok(Became::Waits(wait, timeout, outbound, memo))
    }

    /// What is too large for the log goes to the artifacts, and a reference stands in its place.
    async fn shrink(
        &self,
        job: &Assignment,
        output: Json,
        ctx: Patch,
        keep: &RetainedPaths,
    ) -> Result<(Json, Patch, Vec<ArtifactRef>), ToolError> {
        let store = &self.resources.artifacts;
        let (output, reference) = store.shrink(&self.key(job, "output"), output, keep).await?;
        let mut artifacts: Vec<ArtifactRef> = reference.into_iter().collect();
        let mut small = Patch::new();
        for (name, value) in ctx {
            let key = self.key(job, &format!("ctx.{name}"));
            let (value, reference) = store.shrink(&key, value, &retained::nothing()).await?;
            artifacts.extend(reference);
            small.insert(name, value);
        }
        Ok((output, small, artifacts))
    }

    async fn handler(
        &self,
        job: &Assignment,
        queue: &str,
        operation: &str,
        cx: TaskContext,
        redactor: &Redactor,
    ) -> Became {
        match self.run_handler(job, queue, operation, cx, redactor).await {
            Ok(became) => became,
            Err(error) => failed(error, Patch::new()),
        }
    }

    async fn run_handler(
        &self,
        job: &Assignment,
        queue: &str,
        operation: &str,
        cx: TaskContext,
        redactor: &Redactor,
    ) -> Result<Became, ToolError> {
        let claimed = &job.claimed;
        let Some(handler) = self.handlers.find(queue, operation) else {
            let message =
                format!("this worker has no handler for {operation:?} of the queue {queue:?}");
            return Err(ToolError::invalid("HANDLER_MISSING", message));
        };
        let ready = self.warm_pool.of(job)?;
        let mut fixed = StepInputs::new(&job.run_id, &job.plan, claimed);
        pipeline::bring(&self.resources, &mut fixed).await?;
        let args = self.args(job).await?;
        self.unlock(job, &ready.keychain, &mut fixed, redactor)
            .await?;
        let input = self.input(job, &ready, &fixed, args, redactor).await?;
        let input = match input.is_empty() {
            // A file that says nothing of the input means all there is.
            true => Json::clone(&fixed.params),
            false => Json::Object(input),
        };
        let memo = match &claimed.memo {
            Some(memo) => Some(self.resources.artifacts.expand_shared(memo).await?),
            None => None,
        };
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
            payload: fixed.payload.clone(),
            memo,
            ctx: Arc::clone(&fixed.ctx),
            params: Arc::clone(&fixed.params),
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
            }) => {
                let wait = WaitFor::Event { event_type };
                self.waits(job, wait, timeout, outbound, memo, redactor)
                    .await?
            }
            Ok(Reply::Sleeping { length, memo }) => {
                let (wait, length) = (WaitFor::Timer, Some(length));
                self.waits(job, wait, length, Vec::new(), memo, redactor)
                    .await?
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
