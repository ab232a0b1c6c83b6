//! The run for programs: its state and its log as JSON.

use serde_json::Value as Json;
use stepwell_dialects::document::{contract_words, run_substatus, run_word, step_word};
use stepwell_engine::Error;
use stepwell_engine::read::{LogRecords, LoggedRun, RunSource};
use stepwell_kernel::contract::Record;
use stepwell_kernel::event::Event;
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::snapshot::{ContractEvent, RunSnapshot, StepSnapshot, project};
use stepwell_kernel::state::{State, UndoStatus, Visit};
use stepwell_kernel::time::Time;

use crate::run_ext::{
    ChildRow, ItemCounts, ParentRun, RunExt, RunOutput, RunShown, ShownExt, TokensOfEdge, UndoRow,
    UndoWord, VisitRow,
};
use crate::stuck::{End, stuck};
use crate::why::{self, WorkName};
use crate::{RunView, child_id, people, phrases};

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
) -> Result<RunOutput, Error> {
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
) -> Result<RunOutput, Error> {
    let (plan, state) = (&*logged.plan, &logged.state);
    let records = LogRecords::of(logged).unread(source, usize::MAX)?;
    let events: Vec<ContractEvent> = records
        .into_iter()
        .filter_map(|record| ContractEvent::read(record.contract))
        .take_while(|event| event.run_seq <= seq)
        .collect();
    let mut snapshot = project(state.run_id(), &events);
    complete(&mut snapshot, plan, state);
    let net = plan.net();
    let hidden = &plan.policy().hidden;
    let ext = RunExt {
        plan_id: net.plan_id.clone(),
        plan_version: net.plan_version.clone(),
        plan_hash: plan.hash().to_owned(),
        dialect: net.dialect.name().to_owned(),
        word: run_word(plan, state).to_owned(),
        substatus: run_substatus(plan, state).map(str::to_owned),
        steps: steps(plan, state),
        tokens: tokens(plan, state),
        params: without_secrets(hidden, Json::clone(&state.current_params())),
        ctx: without_secrets(hidden, serde_json::json!(state.ctx())),
        parent: state.parent().map(|it| ParentRun {
            run_id: it.run_id.clone(),
            step_id: it.step_id.clone(),
        }),
        repeats: state.original_run_id().map(str::to_owned),
        compensation: undone(plan, state),
        stuck: stuck(plan, state, end),
        notes: notes.to_vec(),
        unknown_to_this_version: logged.unknown_to_this_version(),
    };
    Ok(RunOutput { snapshot, ext })
}

/// The same for who looks at a run: with what it waits for, who started it and who answered. `unserved` is work of which it
/// is known that nobody serves it.
pub fn shown(
    source: &dyn RunSource,
    view: &RunView,
    now: Time,
    unserved: &[WorkName],
) -> Result<RunShown, Error> {
    shown_upto(source, view, view.last_read(), now, unserved)
}

/// The run as it was after one of its events, as `shown` would have told it then. The view must not have later events.
pub fn shown_at(source: &dyn RunSource, view: &RunView, seq: u64) -> Result<RunShown, Error> {
    shown_upto(source, view, seq, view.state.last_at(), &[])
}

fn shown_upto(
    source: &dyn RunSource,
    view: &RunView,
    seq: u64,
    now: Time,
    unserved: &[WorkName],
) -> Result<RunShown, Error> {
    let RunOutput { snapshot, ext } = upto(source, view, seq, End::default(), &[])?;
    let reasons = why::reasons(view, now, unserved);
    let ext = ShownExt {
        run: ext,
        waits_for: reasons.iter().map(why::Reason::row).collect(),
        children: children(view),
        started_by: view.state.context().triggered_by.clone(),
        labels: view.state.context().labels.clone(),
        business_key: business_key(view),
        answers: people::acts(view).iter().map(people::Act::row).collect(),
        has_owner: view.head.session.is_some(),
    };
    Ok(RunShown { snapshot, ext })
}

/// The business key of a run, as its first parameters give it.
fn business_key(view: &RunView) -> Option<String> {
    let key = view.plan.event_key(view.state.params().first()?)?;
    let shown = without_secrets(&view.plan.policy().hidden, key.into());
    shown.as_str().map(str::to_owned)
}

/// The child runs that steps have waited for, in the order of the log.
fn children(view: &RunView) -> Vec<ChildRow> {
    let child = |event: &Event| {
        Some(ChildRow {
            run_id: child_id(event)?.to_owned(),
            step_id: view.plan.step_id(event.body.step()?),
        })
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

fn tokens(plan: &Plan, state: &State) -> Vec<TokensOfEdge> {
    let edges = plan.net().edges.iter().zip(state.marks()).enumerate();
    edges
        .filter(|(_, (_, count))| **count > 0)
        .map(|(no, (edge, count))| TokensOfEdge {
            edge: no,
            from: plan.step_id(StepRef::first(edge.from)),
            to: plan.step_id(StepRef::first(edge.to)),
            count: *count,
        })
        .collect()
}

/// Every step of the plan in the language's own words, also those that no token has reached.
fn steps(plan: &Plan, state: &State) -> Vec<VisitRow> {
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

fn step(plan: &Plan, state: &State, at: StepRef, visit: Option<&Visit>) -> VisitRow {
    let run = visit.map(|visit| visit.run());
    let items = visit.and_then(|visit| visit.each()).map(|each| ItemCounts {
        count: each.count(),
        done: each.ended(),
        failed: each.failed(),
    });
    VisitRow {
        step_id: plan.step_id(at),
        step: plan.step(at.step).name.clone(),
        visit: visit.map(|_| at.visit),
        word: step_word(plan, state, at).to_owned(),
        started_at: run.and_then(|run| run.started_at()).map(Time::to_rfc3339),
        ended_at: run.and_then(|run| run.ended_at()).map(Time::to_rfc3339),
        executions: run.map_or(0, |run| run.execution()),
        attempts: run.map_or(0, |run| run.tries()),
        losses: run.map_or(0, |run| run.losses()),
        output: run
            .and_then(|run| run.output())
            .map(|it| Json::clone(it))
            .unwrap_or_default(),
        error: run.and_then(|run| run.error()).cloned(),
        not_retried: run.and_then(|run| phrases::not_retried(plan.step(at.step), run)),
        outcome_unknown: run.is_some_and(|run| run.unknown()),
        items,
        compensation: run.map(|run| compensation(run.compensation())),
    }
}

fn compensation(compensation: UndoStatus) -> UndoWord {
    match compensation {
        UndoStatus::None => UndoWord::None,
        UndoStatus::Due => UndoWord::Due,
        UndoStatus::Running => UndoWord::Running,
        UndoStatus::Done => UndoWord::Done,
        UndoStatus::Failed => UndoWord::Failed,
        UndoStatus::NotCompensable => UndoWord::NotCompensable,
    }
}

fn undone(plan: &Plan, state: &State) -> Vec<UndoRow> {
    state
        .undos()
        .iter()
        .map(|undo| UndoRow {
            step_id: plan.step_id(undo.step),
            outcome: undo.outcome,
            executions: undo.executions,
            attempts: undo.attempts,
            error: undo.error.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
