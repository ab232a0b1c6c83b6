//! An event as the contract shows it: which component speaks, and the fields of its type. What the
//! contract has no field for (outputs, params, routes, payloads) stays in `ext`.
//!
//! Every field that is put here is one of its type's in `fields`, and has its shape there: tests compare
//! the two for events of every type.

mod run;
mod step;
pub(super) mod words;

use super::name::FieldName;
use super::stamps::{Open, Stamps};
use super::value::FieldValue;
use crate::event::{Body, Event, RunContext};
use crate::plan::StepRef;
use crate::time::Time;

/// The fields of an event in the order of canonical JSON. `stamps` has seen every event up to this one;
/// `open` is what it knew of the event's step before.
pub(super) fn fields<'a>(
    event: &'a Event,
    open: Option<Open>,
    stamps: &'a Stamps,
) -> Vec<(FieldName, FieldValue<'a>)> {
    let mut view = View {
        at: event.at,
        open,
        run_started: stamps.run_started,
        context: &stamps.context,
        // No type has more; in this order few fields have to move.
        fields: Vec::with_capacity(16),
    };
    view.put(FieldName::EmittedAt, FieldValue::Now);
    view.word(FieldName::EmittedBy, emitted_by(&event.body, open));
    view.put(FieldName::EventId, FieldValue::EventId);
    view.put(FieldName::EventType, FieldValue::EventType);
    view.put(FieldName::IdempotencyKey, FieldValue::IdempotencyKey);
    view.put(FieldName::RunId, FieldValue::RunId);
    view.put(FieldName::RunSeq, FieldValue::RunSeq);
    view.event(&event.body);
    view.fields
}

/// Who speaks: a worker about work it has, the planner about approval, authorization (`system`) about
/// signals and people, the engine about everything else.
fn emitted_by(body: &Body, open: Option<Open>) -> &'static str {
    match body {
        Body::RunApproved { .. } => "planner",
        Body::SignalAccepted { .. } | Body::SignalRejected { .. } => "system",
        Body::StepCompleted { by: Some(_), .. } | Body::StepFailed { by: Some(_), .. } => "system",
        Body::StepStarted { lease: Some(_), .. }
        | Body::StepExecutionStarted { .. }
        | Body::UndoStarted { .. }
        | Body::UndoExecutionFailed { .. }
        | Body::UndoCompleted { .. }
        | Body::UndoFailed { .. } => "activity-worker",
        Body::StepCompleted { .. }
        | Body::StepExecutionFailed { .. }
        | Body::StepFailed {
            cancelled: false, ..
        } if open.is_some_and(|open| open.leased) => "activity-worker",
        _ => "engine",
    }
}

struct View<'a> {
    at: Time,
    open: Option<Open>,
    run_started: Option<Time>,
    context: &'a RunContext,
    fields: Vec<(FieldName, FieldValue<'a>)>,
}

impl<'a> View<'a> {
    fn event(&mut self, body: &'a Body) {
        match body {
            Body::StepStarted { .. }
            | Body::StepCompleted { .. }
            | Body::StepFailed { .. }
            | Body::StepSkipped { .. }
            | Body::StepExecutionStarted { .. }
            | Body::StepExecutionFailed { .. }
            | Body::StepWaiting { .. }
            | Body::StepApproved { .. }
            | Body::StepWoken { .. }
            | Body::StepRouted { .. }
            | Body::StepHeld { .. }
            | Body::StepRetried { .. } => self.step_event(body),
            Body::UndoStarted { .. }
            | Body::UndoExecutionFailed { .. }
            | Body::UndoCompleted { .. }
            | Body::UndoFailed { .. } => self.undo_event(body),
            body => self.run_event(body),
        }
    }

    /// Puts a field in its place.
    fn put(&mut self, name: FieldName, value: FieldValue<'a>) {
        let after = self.fields.iter().rposition(|(other, _)| *other < name);
        self.fields
            .insert(after.map_or(0, |at| at + 1), (name, value));
    }

    fn word(&mut self, name: FieldName, word: &'static str) {
        self.put(name, FieldValue::Word(word));
    }

    fn text(&mut self, name: FieldName, text: &'a str) {
        self.put(name, FieldValue::Text(text));
    }

    fn text_if(&mut self, name: FieldName, text: Option<&'a String>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    fn time(&mut self, name: FieldName, time: Time) {
        self.put(name, FieldValue::Time(time));
    }

    fn time_if(&mut self, name: FieldName, time: Option<Time>) {
        if let Some(time) = time {
            self.time(name, time);
        }
    }

    fn number(&mut self, name: FieldName, number: impl Into<u64>) {
        self.put(name, FieldValue::Number(number.into()));
    }

    /// The event's own time under the name its type has for it.
    fn now(&mut self, name: FieldName) {
        self.put(name, FieldValue::Now);
    }

    fn duration(&mut self, since: Option<Time>) {
        if let Some(since) = since {
            self.number(FieldName::DurationMs, self.at.since(since));
        }
    }

    fn step(&mut self, at: StepRef, logical: Option<u32>, execution: Option<u32>) {
        self.put(FieldName::StepId, FieldValue::StepId(at));
        if let Some(logical) = logical {
            self.number(FieldName::LogicalAttemptId, logical);
        }
        if let Some(execution) = execution.filter(|execution| *execution >= 1) {
            self.number(FieldName::EngineAttemptId, execution);
        }
    }

    fn attempt(&mut self, at: StepRef, logical: u32, execution: Option<u32>) {
        self.step(at, Some(logical), execution);
        self.put(FieldName::PlanVersion, FieldValue::PlanVersion);
    }
}
