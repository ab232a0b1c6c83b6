//! What is worked out once for each step of a plan and not for each job: its tasks, its input's
//! templates, the secrets that it names, and what of a large output stays in the log.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value as Json;
use stepwell_engine::coordinator::Assignment;
use stepwell_engine::rows::{BUILT_IN, served_by};
use stepwell_kernel::codes;
use stepwell_kernel::effect::Target;
use stepwell_kernel::expr::TemplateValue;
use stepwell_kernel::plan::{Plan, StepNo, Work};

use crate::artifacts::RetainedPaths;
use crate::outcome::ToolError;
use crate::pipeline::Pipeline;
use crate::result_reads::ResultReads;
use crate::retained::OutputReads;

/// Steps that are kept ready; with more, all are read anew.
const KEPT: usize = 4_096;

/// A step that can be worked on.
#[derive(Debug)]
pub(crate) struct PreparedStep {
    /// The tasks; none if a handler does the work.
    pipeline: Option<Pipeline>,
    /// The step's own input.
    pub(crate) input: TemplateValue,
    /// The same as the author wrote it: only here are references to secrets looked for.
    pub(crate) written: Json,
    /// What else the file says of a step that a handler does.
    pub(crate) config: TemplateValue,
    /// The names below `keychain` that its tasks read.
    pub(crate) keychain: Vec<String>,
    /// What of a large output stays in the log.
    pub(crate) keep: RetainedPaths,
}

impl PreparedStep {
    fn read(job: &Assignment, reads: &PlanReads) -> Result<PreparedStep, ToolError> {
        let target = job.claimed.claim.target;
        let step = job.plan.step(job.claimed.step);
        let (input, tasks) = match (target, &step.undo, &step.work) {
            (Target::Undo(_), Some(undo), _) => (&undo.input, &undo.tasks),
            (_, _, Work::Pipeline { tasks }) => (&step.input, tasks),
            (_, _, Work::Task { .. } | Work::Wait(_) | Work::Child(_)) => {
                (&step.input, &Json::Null)
            }
        };
        let pipeline = match served_by(&job.plan, target).0 == BUILT_IN {
            true if tasks.is_null() => None,
            true => Some(Pipeline::read(
                &job.plan,
                &step.name,
                tasks,
                reads.results.has(&step.name),
            )?),
            false => None,
        };
        let select = pipeline.iter().flat_map(Pipeline::select);
        let template =
            |json: &Json| TemplateValue::parse(json).map_err(|error| broken(error.error));
        let config = match &step.work {
            Work::Task { config, .. } => config,
            Work::Pipeline { .. } | Work::Wait(_) | Work::Child(_) => &Json::Null,
        };
        Ok(PreparedStep {
            input: template(input)?,
            written: input.clone(),
            config: template(config)?,
            keychain: keychain(&template(input)?, pipeline.as_ref()),
            keep: reads.outputs.retained(job.claimed.step, select),
            pipeline,
        })
    }

    pub(crate) fn pipeline(&self) -> Result<&Pipeline, ToolError> {
        let pipeline = self.pipeline.as_ref();
        pipeline.ok_or_else(|| broken("the step has no tasks"))
    }
}

fn broken(why: impl ToString) -> ToolError {
    ToolError::invalid(codes::PIPELINE_BROKEN, why.to_string())
}

/// The names below `keychain` that the templates of a step read.
fn keychain(input: &TemplateValue, pipeline: Option<&Pipeline>) -> Vec<String> {
    let paths = pipeline.into_iter().flat_map(Pipeline::reads);
    let names = paths.chain(input.reads()).filter_map(|path| {
        let rest = path.strip_prefix("keychain.")?;
        Some(rest.split('.').next().unwrap_or(rest).to_owned())
    });
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The work of a step, or its undo.
type StepPart = (StepNo, bool);

/// The steps that are kept ready, by their plan's hash.
#[derive(Debug, Default)]
pub(crate) struct WarmPool {
    plans: Mutex<HashMap<String, WarmPlan>>,
}

/// What the templates and expressions of a whole plan read.
#[derive(Debug)]
struct PlanReads {
    results: ResultReads,
    outputs: OutputReads,
}

impl PlanReads {
    fn of(plan: &Plan) -> PlanReads {
        PlanReads {
            results: ResultReads::of(plan),
            outputs: OutputReads::of(plan),
        }
    }
}

/// What is kept of a plan.
#[derive(Debug)]
struct WarmPlan {
    reads: Arc<PlanReads>,
    steps: HashMap<StepPart, Arc<PreparedStep>>,
}

impl WarmPool {
    /// What a job needs; read if it is not there.
    pub(crate) fn of(&self, job: &Assignment) -> Result<Arc<PreparedStep>, ToolError> {
        let lock = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let is_undo = matches!(job.claimed.claim.target, Target::Undo(_));
        let part = (job.claimed.step, is_undo);
        let hash = job.plan.hash();
        let known = lock().get(hash).map(|plan| {
            let ready = plan.steps.get(&part).map(Arc::clone);
            (ready, Arc::clone(&plan.reads))
        });
        let reads = match known {
            Some((Some(ready), _)) => return Ok(ready),
            Some((None, reads)) => reads,
            None => Arc::new(PlanReads::of(&job.plan)),
        };
        let ready = Arc::new(PreparedStep::read(job, &reads)?);
        let mut plans = lock();
        if plans.values().map(|plan| plan.steps.len()).sum::<usize>() >= KEPT {
            plans.clear();
        }
        let plan = plans.entry(hash.to_owned()).or_insert_with(|| WarmPlan {
            reads,
            steps: HashMap::new(),
        });
        plan.steps.insert(part, Arc::clone(&ready));
        Ok(ready)
    }
}
