//! A run as the specification's two tables. Every column is derived from the state and the plan, so
//! rows and log can never say different things.

use serde::Serialize;
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::WaitKind;
use stepwell_kernel::plan::{ErrorClass, Plan, StepNo, StepRef};
use stepwell_kernel::state::{Phase, State, Status, StepRun};
use stepwell_kernel::time::Time;

use super::words;

/// A row of `workflow_instance`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceRow {
    /// The run.
    pub instance_id: String,
    /// What the run is about, unique while it is RUNNING.
    pub biz_key: Option<String>,
    /// The workflow.
    pub workflow_type: String,
    /// Its version.
    pub workflow_version: i64,
    /// RUNNING, COMPLETED, FAILED or CANCELED.
    pub status: &'static str,
    /// The first step that is not done; the last one if all are.
    pub current_step_seq: u32,
    /// Its type.
    pub current_step_type: String,
    /// When the run started.
    pub started_at: Option<Time>,
    /// When it completed.
    pub completed_at: Option<Time>,
    /// When it failed.
    pub failed_at: Option<Time>,
}

/// A row of `workflow_step`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepRow {
    /// The run.
    pub instance_id: String,
    /// The step's place, from 0.
    pub step_seq: u32,
    /// Its type.
    pub step_type: String,
    /// PENDING, READY, RUNNING, WAITING, DONE or DEAD.
    pub status: &'static str,
    /// How many executions have failed.
    pub attempts: u32,
    /// How many may.
    pub max_attempts: u32,
    /// From when a READY step can be claimed.
    pub next_run_at: Option<Time>,
    /// The event a WAITING step waits for.
    pub waiting_event_type: Option<String>,
    /// How long it waits.
    pub deadline_at: Option<Time>,
    /// The worker of a RUNNING step.
    pub locked_by: Option<String>,
    /// The end of its lease.
    pub locked_until: Option<Time>,
    /// Why the last execution failed.
    pub last_error: Option<String>,
}

/// The run's row of `workflow_instance`.
#[must_use]
pub fn instance_row(plan: &Plan, state: &State, biz_key: Option<&str>) -> InstanceRow {
    let done = |no: &StepNo| words::step_word(plan, state, StepRef::first(*no)) == "DONE";
    let last = StepNo((plan.len() as u32).saturating_sub(1));
    let current = plan.numbers().find(|no| !done(no)).unwrap_or(last);
    let ended = |wanted: fn(RunOutcome) -> bool| match state.phase() {
        Phase::Ended(outcome) if wanted(outcome) => state.ended_at(),
        _ => None,
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

/// One of them.
#[must_use]
pub fn step_row(plan: &Plan, state: &State, no: StepNo) -> StepRow {
    let at = StepRef::first(no);
    let run = state.run(at);
    let status = words::step_word(plan, state, at);
    let wait = run
        .and_then(|run| run.wait())
        .filter(|_| status == "WAITING");
    let lease = run
        .and_then(|run| run.lease())
        .filter(|_| status == "RUNNING");
    StepRow {
        instance_id: state.run_id().to_owned(),
        step_seq: no.0,
        step_type: step_type(plan, no),
        status,
        attempts: run.map_or(0, failed_executions),
        max_attempts: plan.step(no).retry.max_executions,
        next_run_at: run
            .filter(|_| status == "READY")
            .map(|run| run.visible_at()),
        waiting_event_type: wait.and_then(|wait| match wait.kind() {
            WaitKind::Event { event_type, .. } => Some(event_type.clone()),
            _ => None,
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
