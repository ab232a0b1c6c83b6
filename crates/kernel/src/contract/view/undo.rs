//! The undoing of a run: the fields of its events, and what they hold.

use super::super::fields::{
    COMPLETED_AT, ENGINE_ATTEMPT, FAILED_AT, FAILURE, Field, REASON, RETRY_AT, STARTED_AT, STEP,
    Shape, may, must,
};
use super::super::name::FieldName;
use super::super::value::FieldValue;
use super::View;
use crate::event::{Body, EventType, notice_events, outcome_events, run_events, step_events};

/// The fields of an event beside the envelope.
pub(super) const fn fields(event_type: EventType) -> &'static [Field] {
    match event_type {
        EventType::CompensationStarted => {
            const {
                &[
                    must("stepIds", Shape::Texts, "The steps to undo, in this order"),
                    must(
                        "notCompensable",
                        Shape::Texts,
                        "The steps that have no undo",
                    ),
                ]
            }
        }
        EventType::CompensationInterrupted => {
            const {
                &[
                    may(
                        "requestedBy",
                        Shape::Text,
                        "The person or system that cancelled the run; absent if unknown",
                    ),
                    REASON,
                ]
            }
        }
        EventType::UndoStarted => &[STEP, ENGINE_ATTEMPT, STARTED_AT],
        EventType::UndoExecutionFailed => &[STEP, ENGINE_ATTEMPT, FAILED_AT, FAILURE, RETRY_AT],
        EventType::UndoCompleted => &[STEP, ENGINE_ATTEMPT, COMPLETED_AT],
        EventType::UndoFailed => &[STEP, ENGINE_ATTEMPT, FAILED_AT, FAILURE],
        run_events!(types)
        | notice_events!(types)
        | step_events!(types)
        | outcome_events!(types)
        | EventType::Opaque => &[],
    }
}

impl<'a> View<'a> {
    pub(super) fn undo_event(&mut self, body: &'a Body) {
        match body {
            Body::CompensationStarted {
                undo,
                not_compensable,
            } => {
                self.put(FieldName::StepIds, FieldValue::StepIds(undo));
                self.put(
                    FieldName::NotCompensable,
                    FieldValue::StepIds(not_compensable),
                );
            }
            Body::CompensationInterrupted { by, reason } => {
                self.text_if(FieldName::RequestedBy, by.as_ref());
                self.text_if(FieldName::Reason, reason.as_ref());
            }
            Body::UndoStarted {
                step, execution, ..
            } => {
                self.step(*step, None, Some(*execution));
                self.now(FieldName::StartedAt);
            }
            Body::UndoCompleted { step, execution } => {
                self.step(*step, None, Some(*execution));
                self.now(FieldName::CompletedAt);
            }
            Body::UndoExecutionFailed {
                step,
                execution,
                error,
                ..
            }
            | Body::UndoFailed {
                step,
                execution,
                error,
            } => {
                self.step(*step, None, Some(*execution));
                self.now(FieldName::FailedAt);
                self.put(FieldName::Error, FieldValue::Failure(error));
                if let Body::UndoExecutionFailed { retry_at, .. } = body {
                    self.time(FieldName::RetryAt, *retry_at);
                }
            }
            run_events!()
            | notice_events!()
            | step_events!()
            | outcome_events!()
            | Body::Opaque(_) => {}
        }
    }
}
