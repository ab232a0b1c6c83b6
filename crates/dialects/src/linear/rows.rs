//! A run as the specification's two tables. Every column is derived from the state and the plan, so
//! rows and log can never say different things.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value as Json};
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::{Body, Event, WaitKind};
use stepwell_kernel::plan::{ErrorClass, Plan, StepNo, StepRef};
use stepwell_kernel::state::{Phase, State, Status, StepRun};
use stepwell_kernel::time::Time;

use super::words::{self, StepWord};
use crate::view_rows::{RunChange, ViewRow};

/// A row of `workflow_instance`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceRow {
    /// The id of the run; all rows of a run are kept under this id.
    #[serde(skip)]
    pub instance_id: String,
    /// What the run is about, unique while it is RUNNING.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub biz_key: Option<String>,
    /// The name of the workflow, as its definition has it.
    pub workflow_type: String,
    pub workflow_version: i64,
    /// RUNNING, COMPLETED, FAILED or CANCELED.
    pub status: &'static str,
    /// The place of the first step that is not done, from 0; the last step if all are done.
    pub current_step_seq: u32,
    /// The type of the step at `current_step_seq`.
    pub current_step_type: String,
    /// When the run started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the run ended with success; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
    /// When the run ended as failed; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Time>,
}

/// A row of `workflow_step`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepRow {
    /// The id of the run; all rows of a run are kept under this id.
    #[serde(skip)]
    pub instance_id: String,
    /// The place of the step in the chain, from 0; also the place of its row.
    pub step_seq: u32,
    /// The type of the step, which selects its handler.
    pub step_type: String,
    /// PENDING, READY, RUNNING, WAITING, DONE or DEAD.
    pub status: &'static str,
    /// How many executions have failed.
    pub attempts: u32,
    /// The most executions; the step is DEAD when so many have failed.
    pub max_attempts: u32,
    /// From when a READY step can be claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_run_at: Option<Time>,
    /// The event a WAITING step waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_event_type: Option<String>,
    /// When the wait ends at the latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Time>,
    /// The worker of a RUNNING step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked_by: Option<String>,
    /// The end of the lease of a RUNNING step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<Time>,
    /// Why the last execution failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The rows that events have changed: the instance, and the steps that an event is about and those that
/// follow them, because a step that completes makes the next one ready. All steps at the start.
#[must_use]
pub fn view_rows(change: RunChange<'_>) -> Vec<ViewRow> {
    let RunChange {
        plan,
        state,
        events,
        event_key,
    } = change;
    let tenant = &state.context().tenant_id;
    let key = plan.unique_key(tenant, state.run_id(), event_key);
    let instance = instance_row(plan, state, key.as_ref().map(|it| it.key.as_str()));
    let mut rows = vec![ViewRow::new("workflow_instance", 0, &instance)];
    // Only where it changes: it may be large, and the instance is written with every commit.
    if events.iter().any(|event| changes_context(&event.body)) {
        rows.push(ViewRow::new("workflow_context", 0, &context(state)));
    }
    let steps = changed_steps(plan, events).into_iter();
    rows.extend(steps.map(|no| {
        let row = step_row(plan, state, no);
        ViewRow::new("workflow_step", no.0, &row)
    }));
    rows
}

fn changes_context(body: &Body) -> bool {
    matches!(body, Body::RunCreated { .. } | Body::ParamsUpdated { .. }) || body.patches_ctx()
}

/// The context of an instance: what it was started with, and over it what its steps have set.
#[must_use]
pub fn context(state: &State) -> Map<String, Json> {
    let mut context = match &*state.current_params() {
        Json::Object(params) => params.clone(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_) => {
            Map::new()
        }
    };
    let set = state.ctx().iter();
    context.extend(set.map(|(name, value)| (name.clone(), Json::clone(value))));
    context
}

fn changed_steps(plan: &Plan, events: &[Event]) -> BTreeSet<StepNo> {
    let creates = |event: &Event| matches!(event.body, Body::RunCreated { .. });
    if events.iter().any(creates) {
        return plan.numbers().collect();
    }
    let starts = |event: &Event| matches!(event.body, Body::RunStarted { .. });
    let first = events.iter().any(starts).then_some(StepNo(0));
    let named = events.iter().filter_map(|event| event.body.step());
    let both = named.flat_map(|at| [at.step, StepNo(at.step.0 + 1)]);
    both.filter(|no| (no.0 as usize) < plan.len())
        .chain(first)
        .collect()
}

/// The run's row of `workflow_instance`.
#[must_use]
pub fn instance_row(plan: &Plan, state: &State, biz_key: Option<&str>) -> InstanceRow {
    let done = |no: &StepNo| words::step_state(plan, state, StepRef::first(*no)) == StepWord::Done;
    let last = StepNo((plan.len() as u32).saturating_sub(1));
    // Where nothing has failed, everything before the first open step is done: looking at all of it in every commit
    // would take the square of the length of the chain.
    let fine =
        state.phase() == Phase::Running && state.due().is_empty() && state.failures().is_empty();
    let open = state.open().first().filter(|_| fine);
    let from = open.map_or(0, |at| at.step.0 as usize);
    let mut numbers = plan.numbers().skip(from);
    let current = numbers.find(|no| !done(no)).unwrap_or(last);
    let ended = |wanted: fn(RunOutcome) -> bool| {
        let is_wanted = matches!(state.phase(), Phase::Ended(outcome) if wanted(outcome));
        state.ended_at().filter(|_| is_wanted)
    };
    let exists = state.phase() != Phase::Void;
    InstanceRow {
        instance_id: state.run_id().to_owned(),
        biz_key: biz_key.map(str::to_owned),
        workflow_type: plan.net().plan_id.clone(),
        workflow_version: plan.net().plan_version.parse().unwrap_or_default(),
        status: words::run_word(state),
        current_step_seq: current.0,
        current_step_type: step_type(plan, current),
        started_at: state
            .started_at()
            .or_else(|| exists.then_some(state.created_at())),
        completed_at: ended(|outcome| {
            matches!(outcome, RunOutcome::Succeeded | RunOutcome::Partial)
        }),
        failed_at: ended(|outcome| matches!(outcome, RunOutcome::Failed(_))),
    }
}

/// The run's rows of `workflow_step`, all of them from the start on.
#[must_use]
pub fn step_rows(plan: &Plan, state: &State) -> Vec<StepRow> {
    plan.numbers().map(|no| step_row(plan, state, no)).collect()
}

/// The row of one step in `workflow_step`.
#[must_use]
pub fn step_row(plan: &Plan, state: &State, no: StepNo) -> StepRow {
    let at = StepRef::first(no);
    let run = state.run(at);
    let status = words::step_state(plan, state, at);
    let wait = run
        .and_then(|run| run.wait())
        .filter(|_| status == StepWord::Waiting);
    let lease = run
        .and_then(|run| run.lease())
        .filter(|_| status == StepWord::Running);
    StepRow {
        instance_id: state.run_id().to_owned(),
        step_seq: no.0,
        step_type: step_type(plan, no),
        status: status.word(),
        attempts: run.map_or(0, failed_executions),
        max_attempts: plan.step(no).retry.max_executions,
        next_run_at: run
            .filter(|_| status == StepWord::Ready)
            .map(|run| run.visible_at()),
        waiting_event_type: wait.and_then(|wait| match wait.kind() {
            WaitKind::Event { event_type, .. } => Some(event_type.clone()),
            WaitKind::Gate
            | WaitKind::Approval
            | WaitKind::Manual
            | WaitKind::Timer { .. }
            | WaitKind::Child { .. } => None,
        }),
        deadline_at: wait.and_then(|wait| wait.deadline()),
        locked_by: lease.map(|lease| lease.worker.clone()),
        locked_until: lease.map(|lease| lease.until),
        last_error: run.and_then(last_error),
    }
}

/// A step's type: its name, unless the file gives it another because the type occurs twice.
fn step_type(plan: &Plan, no: StepNo) -> String {
    let types = plan.net().extra.get("stepTypes");
    let own = types.and_then(|types| types.get(no.0 as usize)?.as_str());
    own.unwrap_or(&plan.step(no).name).to_owned()
}

/// `tries` counts executions as they begin; the one that is open, waits or succeeded has not failed.
fn failed_executions(run: &StepRun) -> u32 {
    let last_failed = match run.status() {
        Status::Ready => !run.woken(),
        Status::Failed | Status::Held | Status::Cancelled => true,
        Status::Skipped => run.error().is_some(),
        Status::Arrived
        | Status::Denied
        | Status::Running
        | Status::Waiting
        | Status::Looping
        | Status::Succeeded => false,
    };
    if last_failed {
        run.tries()
    } else {
        run.tries().saturating_sub(1)
    }
}

fn last_error(run: &StepRun) -> Option<String> {
    let error = run.error()?;
    Some(match (error.class, error.message.is_empty()) {
        (ErrorClass::LeaseLost, _) => "LEASE_EXPIRED".to_owned(),
        (_, true) => error.code.clone(),
        (_, false) => error.message.clone(),
    })
}
