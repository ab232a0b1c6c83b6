//! The run for programs: its state and its log as JSON.

use serde_json::{Value as Json, json};
use stepwell_dialects::document::{contract_words, run_substatus, run_word, step_word};
use stepwell_engine::Error;
use stepwell_engine::read::{LogRecords, LoggedRun, RunSource};
use stepwell_kernel::contract::Record;
use stepwell_kernel::event::{Event, UndoOutcome};
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::snapshot::{ContractEvent, RunSnapshot, StepSnapshot, project};
use stepwell_kernel::state::{State, UndoStatus, Visit};
use stepwell_kernel::time::Time;

use crate::stuck::{End, stuck};
use crate::why::{self, WorkName};
use crate::{RunView, child_id, people};

/// What stands in the place of a secret.
const MASK: &str = "***";

/// One entry of a run's log as it is stored: the contract's event, and beside it `ext` and the hash chain.
pub fn event(record: Record) -> Json {
    let mut line = record.contract;
    line["ext"] = record.ext;
    line["prevHash"] = record.prev_hash.into();
    line["hash"] = record.hash.into();
    line
}

/// The run as the contract's snapshot, projected from its events, and beside it `ext`: what the
/// contract has no field for.
///
/// `end` says why an engine stopped driving the run, and `notes` what that engine did that is not in the log.
pub fn snapshot(
    source: &dyn RunSource,
    logged: &LoggedRun,
    end: End,
    notes: &[String],
) -> Result<Json, Error> {
    upto(source, logged, logged.last_read(), end, notes)
}

/// The same for the run after one of its events, whose state is that of `logged`. The log may have grown since `logged`
/// was read: later events are left out, so that the events and the state tell of the same moment.
fn upto(
    source: &dyn RunSource,
    logged: &LoggedRun,
    seq: u64,
    end: End,
    notes: &[String],
) -> Result<Json, Error> {
    let (plan, state) = (&*logged.plan, &logged.state);
    let records = LogRecords::of(logged).unread(source, usize::MAX)?;
    let events: Vec<ContractEvent> = records
        .into_iter()
        .filter_map(|record| ContractEvent::read(record.contract))
        .take_while(|event| event.run_seq <= seq)
        .collect();
    let mut snapshot = project(state.run_id(), &events);
    complete(&mut snapshot, plan, state);
    let mut value = json!(snapshot);
    let net = plan.net();
    value["ext"] = json!({
        "planId": net.plan_id,
        "planVersion": net.plan_version,
        "planHash": plan.hash(),
        "dialect": net.dialect.name(),
        "word": run_word(plan, state),
        "substatus": run_substatus(plan, state),
        "steps": steps(plan, state),
        "tokens": tokens(plan, state),
        "params": without_secrets(&plan.policy().hidden, json!(state.current_params())),
        "ctx": without_secrets(&plan.policy().hidden, json!(state.ctx())),
        "parent": state.parent().map(|it| json!({ "runId": it.run_id, "stepId": it.step_id })),
        "repeats": state.original_run_id(),
        "compensation": undone(plan, state),
        "stuck": stuck(plan, state, end),
        "notes": notes,
        "unknownToThisVersion": logged.unknown_to_this_version(),
    });
    Ok(value)
}

/// The same for who looks at a run: with what it waits for, who started it and who answered. `unserved` is work of which it
/// is known that nobody serves it.
pub fn shown(
    source: &dyn RunSource,
    view: &RunView,
    now: Time,
    unserved: &[WorkName],
) -> Result<Json, Error> {
    shown_upto(source, view, view.last_read(), now, unserved)
}

/// The run as it was after one of its events, as `shown` would have told it then. The view must not have later events.
pub fn shown_at(source: &dyn RunSource, view: &RunView, seq: u64) -> Result<Json, Error> {
    shown_upto(source, view, seq, view.state.last_at(), &[])
}

fn shown_upto(
    source: &dyn RunSource,
    view: &RunView,
    seq: u64,
    now: Time,
    unserved: &[WorkName],
) -> Result<Json, Error> {
    let mut value = upto(source, view, seq, End::default(), &[])?;
    let reasons = why::reasons(view, now, unserved);
    value["ext"]["waitsFor"] = reasons.iter().map(why::Reason::json).collect();
    value["ext"]["children"] = children(view);
    value["ext"]["startedBy"] = json!(view.state.context().triggered_by);
    value["ext"]["answers"] = people::acts(view).iter().map(people::Act::json).collect();
    value["ext"]["hasOwner"] = view.head.session.is_some().into();
    Ok(value)
}

/// The child runs that steps have waited for, in the order of the log.
fn children(view: &RunView) -> Json {
    let child = |event: &Event| {
        let run = child_id(event)?;
        let step = view.plan.step_id(event.body.step()?);
        Some(json!({ "stepId": step, "runId": run }))
    };
    view.events.iter().filter_map(child).collect()
}

/// Adds what the events do not say: the substatus, what a pause waits for, and the steps that no token has reached.
fn complete(snapshot: &mut RunSnapshot, plan: &Plan, state: &State) {
    let (_, substatus) = contract_words(state);
    snapshot.substatus = substatus.map(str::to_owned).or(snapshot.substatus.take());
    if substatus == Some("DRAINING") {
        let count = u64::from(state.tally().running());
        let tasks = if count == 1 { "task" } else { "tasks" };
        snapshot.in_flight = Some(count);
        snapshot.message = Some(format!(
            "Workflow paused. Waiting for {count} in-flight {tasks} to complete."
        ));
    }
    if state.phase().is_ended() {
        return;
    }
    for no in plan.numbers() {
        if state.steps()[no.0 as usize].visits().is_empty() {
            snapshot.steps.push(StepSnapshot {
                step_id: plan.step_id(StepRef::first(no)),
                logical_attempt_id: 1,
                ..StepSnapshot::default()
            });
        }
    }
}

/// A value of the state without the secrets that the definition has written out: the state has them, its events do not.
fn without_secrets(hidden: &[String], value: Json) -> Json {
    if hidden.is_empty() {
        return value;
    }
    let is_secret = |text: &str| hidden.iter().any(|it| it == text);
    match value {
        Json::String(mut text) => {
            for secret in hidden.iter().filter(|it| !it.is_empty()) {
                text = text.replace(secret.as_str(), MASK);
            }
            text.into()
        }
        Json::Number(number) if is_secret(&number.to_string()) => MASK.into(),
        Json::Array(items) => items
            .into_iter()
            .map(|it| without_secrets(hidden, it))
            .collect(),
        Json::Object(fields) => fields
            .into_iter()
            .map(|(name, it)| (name, without_secrets(hidden, it)))
            .collect(),
        other @ (Json::Null | Json::Bool(_) | Json::Number(_)) => other,
    }
}

/// The edges that hold tokens: a step that waits for all of its edges has not fired yet.
fn tokens(plan: &Plan, state: &State) -> Vec<Json> {
    let edges = plan.net().edges.iter().zip(state.marks()).enumerate();
    edges
        .filter(|(_, (_, count))| **count > 0)
        .map(|(no, (edge, count))| {
            let name = |no| plan.step_id(StepRef::first(no));
            json!({ "edge": no, "from": name(edge.from), "to": name(edge.to), "count": count })
        })
        .collect()
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
        let done = each.ended();
        json!({ "count": each.count(), "done": done, "failed": each.failed() })
    });
    json!({
        "stepId": plan.step_id(at),
        "step": plan.step(at.step).name,
        "visit": visit.map(|_| at.visit),
        "word": step_word(plan, state, at),
        "startedAt": run.and_then(|run| run.started_at()).map(Time::to_rfc3339),
        "endedAt": run.and_then(|run| run.ended_at()).map(Time::to_rfc3339),
        "executions": run.map_or(0, |run| run.execution()),
        "attempts": run.map_or(0, |run| run.tries()),
        "losses": run.map_or(0, |run| run.losses()),
        "output": run.and_then(|run| run.output()),
        "error": run.and_then(|run| run.error()),
        "outcomeUnknown": run.is_some_and(|run| run.unknown()),
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

/// The result of each undo, for programs.
fn undone(plan: &Plan, state: &State) -> Json {
    let name = |outcome| match outcome {
        UndoOutcome::Done => "done",
        UndoOutcome::Failed => "failed",
        UndoOutcome::NotCompensable => "not_compensable",
        UndoOutcome::NotRun => "not_run",
    };
    state
        .undos()
        .iter()
        .map(|undo| {
            json!({
                "stepId": plan.step_id(undo.step),
                "outcome": name(undo.outcome),
                "executions": undo.executions,
                "attempts": undo.attempts,
                "error": undo.error,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_the_definition_are_masked_wherever_they_stand() {
        let hidden = ["hunter2".to_owned(), "4711".to_owned()];
        let shown = without_secrets(
            &hidden,
            json!({ "url": "db://ada:hunter2@host", "pin": 4711, "deep": [{ "n": 1 }, "hunter2"] }),
        );
        assert_eq!(
            shown,
            json!({ "url": "db://ada:***@host", "pin": "***", "deep": [{ "n": 1 }, "***"] })
        );
    }
}
