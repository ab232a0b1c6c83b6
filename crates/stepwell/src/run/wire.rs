//! The run for programs: its state and its log as JSON.

use anyhow::Result;
use serde_json::{Value as Json, json};
use stepwell_dialects::document::{run_substatus, run_word, step_word};
use stepwell_kernel::contract::Recorder;
use stepwell_kernel::event::Event;
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::snapshot::{ContractEvent, project};
use stepwell_kernel::state::{State, UndoStatus, Visit};

use super::report::{self, Ending};

/// One entry of a run's log: the contract's event, and beside it `ext` and the hash chain.
pub(crate) fn event(recorder: &mut Recorder, plan: &Plan, event: &Event) -> Result<Json> {
    let record = recorder.record(plan, event)?;
    let mut line = record.contract;
    line["ext"] = record.ext;
    line["prevHash"] = record.prev_hash.into();
    line["hash"] = record.hash.into();
    Ok(line)
}

/// The run as the contract's snapshot, projected from its events, and beside it `ext`: what the
/// contract has no field for.
pub(crate) fn snapshot(
    plan: &Plan,
    state: &State,
    events: &[Event],
    ending: &Ending,
) -> Result<Json> {
    let records = Recorder::new(state.run_id()).record_all(plan, events)?;
    let events: Vec<ContractEvent> = records
        .iter()
        .filter_map(|record| ContractEvent::read(&record.contract))
        .collect();
    let mut value = serde_json::to_value(project(state.run_id(), &events))?;
    let net = plan.net();
    value["ext"] = json!({
        "planId": net.plan_id,
        "planVersion": net.plan_version,
        "planHash": plan.hash(),
        "dialect": net.dialect.name(),
        "word": run_word(plan, state),
        "substatus": run_substatus(plan, state),
        "steps": steps(plan, state),
        "compensation": report::undone(plan, state),
        "stuck": report::stuck(plan, state, &ending.end),
        "notes": ending.notes,
    });
    Ok(value)
}

/// Every step of the plan in the language's own words, also those that no token has reached.
fn steps(plan: &Plan, state: &State) -> Vec<Json> {
    let mut rows = Vec::new();
    for no in plan.numbers() {
        let visits = state.steps()[no.0 as usize].visits();
        for visit in 1..=visits.len().max(1) {
            let at = StepRef {
                visit: visit as u32,
                ..StepRef::first(no)
            };
            rows.push(step(plan, state, at, visits.get(visit - 1)));
        }
    }
    rows
}

fn step(plan: &Plan, state: &State, at: StepRef, visit: Option<&Visit>) -> Json {
    let run = visit.map(|visit| visit.run());
    let items = visit.and_then(|visit| visit.each()).map(|each| {
        let done = each.results().iter().flatten().count();
        json!({ "count": each.count(), "done": done, "failed": each.failed() })
    });
    json!({
        "stepId": plan.step_id(at),
        "word": step_word(plan, state, at),
        "executions": run.map_or(0, |run| run.execution()),
        "output": run.and_then(|run| run.output()),
        "error": run.and_then(|run| run.error()),
        "items": items,
        "compensation": run.map(|run| compensation(run.compensation())),
    })
}

fn compensation(compensation: UndoStatus) -> &'static str {
    match compensation {
        UndoStatus::None => "none",
        UndoStatus::Due => "due",
        UndoStatus::Running => "running",
        UndoStatus::Done => "done",
        UndoStatus::Failed => "failed",
        UndoStatus::NotCompensable => "not_compensable",
    }
}
