//! One job from its claim to what became of it: with tools, or with a handler.

use std::sync::Arc;

use serde_json::{Map, Value as Json};
use stepwell_engine::keeper::Job;
use stepwell_engine::rows::{BUILT_IN, served_by, target_name};
use stepwell_kernel::command::WaitFor;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{ArtifactRef, Patch, StepError};
use stepwell_kernel::expr::TemplateValue;
use stepwell_kernel::plan::ErrorClass;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::became::{Became, cut, failed};
use crate::artifacts::{Keep, Key};
use crate::handler::{self, Failure, Reply};
use crate::keep;
use crate::log::StepLog;
use crate::outcome::ToolError;
use crate::pipeline::{self, Ending, MAX_VALUE, Surroundings};
use crate::place;
use crate::ready::Ready;
use crate::scope::{Fixed, Vars, View};
use crate::secrets::Redactor;
use crate::tool::{Cx, Stop};

impl Shared {
    pub(super) async fn work(&self, job: &Job, cancelled: CancellationToken) -> Became {
        let claimed = &job.claimed;
        let target = claimed.claim.target;
        let (queue, operation) = served_by(&job.plan, target);
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
        keep: &Keep,
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
