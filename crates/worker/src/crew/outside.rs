//! What handlers in other processes are given, and how their large results are kept: the templates of a step are evaluated
//! here, with values that are kept as artifacts, so that a handler in any language gets plain JSON. References to
//! secrets stay references: only the process that does the work resolves them.

use std::fmt;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value as Json};
use stepwell_engine::coordinator::{Assignment, Tenancy};
use stepwell_engine::rows::target_name;
use stepwell_kernel::command::{Claim, Claimed, Command};
use stepwell_kernel::event::{Patch, TaskKind};
use stepwell_kernel::plan::Plan;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::job::merge;
use super::{CrewShared, run_secrets};
use crate::artifacts::Artifacts;
use crate::handler::Handlers;
use crate::logs::Logs;
use crate::outcome::ToolError;
use crate::report;
use crate::resources::WorkerResources;
use crate::secrets::{Redactor, Secrets};
use crate::step_log::StepLog;
use crate::tool::TaskContext;
use crate::warm_pool::WarmPool;

/// What a handler in another process is given beside its claim.
#[derive(Clone, Debug)]
pub struct OutsideInput {
    /// The input of the step, as its templates make it.
    pub input: Json,
    /// The other fields of the step in the definition.
    pub config: Json,
    pub params: Arc<Json>,
    pub ctx: Arc<Json>,
    pub payload: Option<Arc<Json>>,
    pub memo: Option<Arc<Json>>,
}

/// Prepares the work of handlers in other processes.
#[derive(Clone)]
pub struct OutsideInputs(Arc<CrewShared>);

impl fmt::Debug for OutsideInputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutsideInputs").finish_non_exhaustive()
    }
}

impl OutsideInputs {
    /// Without secrets and tools: nothing is done here.
    #[must_use]
    pub fn new(artifacts: Artifacts, logs: Logs) -> OutsideInputs {
        let secrets = Secrets::new(Vec::new());
        OutsideInputs(Arc::new(CrewShared {
            resources: WorkerResources::new(secrets, artifacts, logs),
            handlers: Handlers::new(),
            running: Mutex::default(),
            warm_pool: WarmPool::default(),
            run_secrets: run_secrets::RunSecrets::default(),
        }))
    }

    /// What the handler of an assignment gets; or the command that fails the step, if that cannot be evaluated.
    pub async fn of(&self, job: &Assignment) -> Result<OutsideInput, Box<Command>> {
        let input = self.0.outside(job).await;
        input.map_err(|error| Box::new(report::failed(&job.claimed.claim, error, Patch::new())))
    }

    /// Keeps the large values of a result as artifacts, as the worker of this process would.
    pub async fn shrink(
        &self,
        (run_id, plan): (&str, &Arc<Plan>),
        claim: &Claim,
        result: Command,
    ) -> Command {
        let job = bare(run_id, plan, claim);
        let keep = match self.0.warm_pool.of(&job) {
            Ok(prepared) => prepared,
            Err(error) => return report::failed(claim, error, Patch::new()),
        };
        let unknown = Redactor::new();
        let stored = self
            .0
            .store_large_values(&job, result, &keep.keep, &unknown);
        stored
            .await
            .unwrap_or_else(|error| report::failed(claim, error, Patch::new()))
    }
}

/// An assignment of which only the claim is known.
fn bare(run_id: &str, plan: &Arc<Plan>, claim: &Claim) -> Assignment {
    Assignment {
        run: stepwell_engine::store::RunNo(0),
        run_id: run_id.into(),
        parent: None,
        tenancy: Tenancy::default(),
        plan: Arc::clone(plan),
        claimed: Claimed {
            claim: claim.clone(),
            step: claim.target.step_ref().step,
            step_id: target_name(plan, claim.target),
            logical: 1,
            idempotency_key: String::new(),
            attempt: 1,
            fence: 0,
            task: TaskKind::ReadyStep,
            args: None,
            item: None,
            payload: None,
            overrides: None,
            target: None,
            params: Arc::default(),
            memo: None,
            ctx: Arc::default(),
            outputs: Vec::new(),
        },
        trace: None,
    }
}

impl CrewShared {
    async fn outside(&self, job: &Assignment) -> Result<OutsideInput, ToolError> {
        let claimed = &job.claimed;
        let redactor = Redactor::new();
        let key: Arc<str> = claimed.idempotency_key.as_str().into();
        let limits = self.resources.limits;
        let cx = TaskContext {
            run_id: Arc::clone(&job.run_id),
            step_id: target_name(&job.plan, claimed.claim.target).into(),
            idempotency_key: Arc::clone(&key),
            task_key: key,
            attempt: claimed.attempt,
            execution: claimed.claim.execution,
            fence: claimed.fence,
            trace: job.trace.clone(),
            limits,
            deadline: Instant::now() + limits.timeout,
            cancelled: CancellationToken::new(),
            log: StepLog::nowhere(),
            redactor: redactor.clone(),
        };
        let prepared = self.warm_pool.of(job)?;
        let fixed = self.fixed(job, &prepared, &cx, &redactor).await?;
        let mut args = self.args(job).await?;
        let own = self.rendered(job, &fixed, &prepared.input, &args)?;
        merge(job, &mut args, own);
        let input = match args.is_empty() {
            // A file that says nothing of the input means all there is.
            true => Json::clone(&fixed.params),
            false => Json::Object(args),
        };
        let memo = match &claimed.memo {
            Some(memo) => Some(self.resources.artifacts.expand_shared(memo).await?),
            None => None,
        };
        Ok(OutsideInput {
            input,
            config: self.rendered(job, &fixed, &prepared.config, &Map::new())?,
            params: Arc::clone(&fixed.params),
            ctx: Arc::clone(&fixed.ctx),
            payload: fixed.payload.clone(),
            memo,
        })
    }
}
