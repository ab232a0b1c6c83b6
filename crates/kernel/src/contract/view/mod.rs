//! An event as the contract shows it: which component speaks, and the fields of its type. What the
//! contract has no field for (outputs, params, routes, payloads) stays in `ext`.
//!
//! There is one file for each group of events, with the table of their fields and the code that fills them: tests
//! compare the two for events of every type.

mod notice;
mod run;
mod step;
mod undo;
pub(super) mod words;

use super::fields::Field;
use super::name::FieldName;
use super::stamps::{Open, Stamps};
use super::value::FieldValue;
use crate::event::{
    Body, Emitter, Event, EventType, RunContext, notice_events, outcome_events, run_events,
    step_events, undo_events,
};
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

/// The fields of a type beside the envelope.
pub(super) const fn fields_of(event_type: EventType) -> &'static [Field] {
    match event_type {
        run_events!(types) => run::fields(event_type),
        notice_events!(types) => notice::fields(event_type),
        step_events!(types) | outcome_events!(types) => step::fields(event_type),
        undo_events!(types) => undo::fields(event_type),
        EventType::Opaque => &[],
    }
}

/// The contract's word for the component that emits an event.
fn emitted_by(body: &Body, open: Option<Open>) -> &'static str {
    match body.event_type().emitter() {
        Emitter::Engine => "engine",
        Emitter::Planner => "planner",
        Emitter::System => "system",
        Emitter::Worker => "activity-worker",
        Emitter::Holder => holder(body, open),
    }
}

fn holder(body: &Body, open: Option<Open>) -> &'static str {
    if let Body::StepCompleted { by: Some(_), .. } | Body::StepFailed { by: Some(_), .. } = body {
        return "system";
    }
    let cancelled = matches!(
        body,
        Body::StepFailed {
            cancelled: true,
            ..
        }
    );
    let leased = if let Body::StepStarted { lease, .. } = body {
        lease.is_some()
    } else {
        open.is_some_and(|open| open.leased) && !cancelled
    };
    if leased { "activity-worker" } else { "engine" }
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
            run_events!() => self.run_event(body),
            notice_events!() => self.notice_event(body),
            step_events!() | outcome_events!() => self.step_event(body),
            undo_events!() => self.undo_event(body),
            Body::Opaque(_) => {}
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
