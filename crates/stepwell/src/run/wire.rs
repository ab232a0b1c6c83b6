//! The run for programs: its state and its log as JSON.

use serde_json::{Value as Json, json};
use stepwell_dialects::document::{run_substatus, run_word, step_word};
use stepwell_kernel::effect::Outcome;
use stepwell_kernel::event::Event;
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::state::{Compensation, Phase, State, Status, Visit};

use super::report::{self, End};

/// One entry of a run's log.
pub(super) fn event(_plan: &Plan, state: &State, event: &Event) -> Json {
    let mut value = serde_json::to_value(event).unwrap_or_default();
    value["runId"] = Json::from(state.run_id.as_str());
    value
}

/// The run as it is.
pub(super) fn snapshot(plan: &Plan, state: &State, end: &End, notes: &[String]) -> Json {
    let net = plan.net();
    let steps: Vec<Json> = plan
        .numbers()
        .flat_map(|no| {
            let visits = &state.steps[no.0 as usize].visits;
            let first = StepRef::first(no);
            let mut rows: Vec<Json> = visits
                .iter()
                .zip(1..)
                .map(|(visit, number)| {
                    let at = StepRef {
                        visit: number,
                        ..first
                    };
                    step(plan, state, at, Some(visit))
                })
                .collect();
            if rows.is_empty() {
                rows.push(step(plan, state, first, None));
            }
            rows
        })
        .collect();
    json!({
        "runId": state.run_id,
        "planId": net.plan_id,
        "planVersion": net.plan_version,
        "planHash": plan.hash(),
        "dialect": net.dialect.name(),
        "engineType": "mock",
        "status": run_status(state),
        "word": run_word(plan, state),
        "substatus": run_substatus(plan, state),
        "lastEventSeq": state.seq,
        "createdAt": state.created_at.to_rfc3339(),
        "startedAt": state.started_at.map(|at| at.to_rfc3339()),
        "endedAt": state.ended_at.map(|at| at.to_rfc3339()),
        "steps": steps,
        "error": state.error,
        "compensation": report::undone(plan, state),
        "stuck": report::stuck(plan, state, end),
        "notes": notes,
    })
}

fn step(plan: &Plan, state: &State, at: StepRef, visit: Option<&Visit>) -> Json {
    let run = visit.map(|visit| &visit.run);
    let items = visit.and_then(|visit| visit.each.as_ref()).map(|each| {
        let done = each.results.iter().flatten().count();
        json!({ "count": each.count(), "done": done, "failed": each.failed })
    });
    json!({
        "stepId": plan.step_id(at),
        "status": run.map_or("PENDING", |run| step_status(run.status, run.has_started())),
        "word": step_word(plan, state, at),
        "attempt": run.map_or(1, |run| run.logical),
        "executions": run.map_or(0, |run| run.execution),
        "startedAt": run.and_then(|run| run.started_at).map(|at| at.to_rfc3339()),
        "endedAt": run.and_then(|run| run.ended_at).map(|at| at.to_rfc3339()),
        "output": run.and_then(|run| run.output.as_deref()),
        "error": run.and_then(|run| run.error.as_deref()),
        "items": items,
        "compensation": run.map(|run| compensation(run.compensation)),
    })
}

fn compensation(compensation: Compensation) -> &'static str {
    match compensation {
        Compensation::None => "none",
        Compensation::Due => "due",
        Compensation::Running => "running",
        Compensation::Done => "done",
        Compensation::Failed => "failed",
        Compensation::NotCompensable => "not_compensable",
    }
}

fn run_status(state: &State) -> &'static str {
    match state.phase {
        Phase::Void | Phase::Created | Phase::Queued => "PENDING",
        _ if state.pause.is_some() => "PAUSED",
        Phase::Running | Phase::Finalizing | Phase::Stopping | Phase::Compensating => "RUNNING",
        Phase::Ended(Outcome::Succeeded | Outcome::Partial) => "COMPLETED",
        Phase::Ended(Outcome::Failed(_)) => "FAILED",
        Phase::Ended(Outcome::Cancelled(_)) => "CANCELLED",
    }
}

fn step_status(status: Status, started: bool) -> &'static str {
    match status {
        Status::Arrived | Status::Denied | Status::Ready if !started => "PENDING",
        Status::Arrived
        | Status::Denied
        | Status::Ready
        | Status::Running
        | Status::Waiting
        | Status::Looping => "RUNNING",
        Status::Succeeded => "SUCCESS",
        Status::Failed | Status::Held => "FAILED",
        Status::Cancelled if started => "FAILED",
        Status::Skipped | Status::Cancelled => "SKIPPED",
    }
}
