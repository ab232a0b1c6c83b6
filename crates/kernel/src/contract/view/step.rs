//! Events about a step or its undo.

use super::super::name::FieldName;
use super::super::value::FieldValue;
use super::View;
use super::words::{skip_word, wait_word};
use crate::event::{Body, WaitKind};

impl<'a> View<'a> {
    pub(super) fn step_event(&mut self, body: &'a Body) {
        match body {
            Body::StepStarted {
                step,
                logical,
                execution,
                ..
            }
            | Body::StepExecutionStarted {
                step,
                logical,
                execution,
                ..
            } => {
                self.attempt(*step, *logical, Some(*execution));
                self.now(FieldName::StartedAt);
            }
            Body::StepCompleted {
                step,
                logical,
                execution,
                artifacts,
                ..
            } => {
                self.attempt(*step, *logical, Some(*execution));
                self.now(FieldName::CompletedAt);
                self.put(FieldName::ArtifactRefs, FieldValue::Artifacts(artifacts));
                self.duration(self.open.map(|open| open.since));
            }
            Body::StepFailed {
                step,
                logical,
                execution,
                error,
                ..
            } => {
                self.attempt(*step, *logical, Some(*execution));
                self.now(FieldName::FailedAt);
                self.put(FieldName::Error, FieldValue::Failure(error));
                self.duration(self.open.map(|open| open.since));
            }
            Body::StepSkipped {
                step,
                logical,
                reason,
            } => {
                self.attempt(*step, *logical, None);
                self.now(FieldName::SkippedAt);
                self.word(FieldName::Reason, skip_word(*reason));
            }
            Body::StepExecutionFailed {
                step,
                logical,
                execution,
                error,
                retry_at,
            } => {
                self.attempt(*step, *logical, Some(*execution));
                self.now(FieldName::FailedAt);
                self.put(FieldName::Error, FieldValue::Failure(error));
                self.time(FieldName::RetryAt, *retry_at);
            }
            Body::StepWaiting {
                step,
                logical,
                execution,
                wait,
                deadline,
                ..
            } => {
                self.attempt(*step, *logical, Some(*execution));
                self.word(FieldName::WaitingFor, wait_word(wait));
                if let WaitKind::Event { event_type, .. } = wait {
                    self.text(FieldName::AwaitedEventType, event_type);
                }
                self.time_if(FieldName::Deadline, *deadline);
            }
            Body::StepApproved {
                step,
                execution,
                by,
                approvals,
            } => {
                self.step(*step, None, Some(*execution));
                self.text(FieldName::ApprovedBy, by);
                self.number(FieldName::Approvals, *approvals);
            }
            Body::StepWoken {
                step,
                execution,
                event_id,
                by,
                ..
            } => {
                self.step(*step, None, Some(*execution));
                self.text_if(FieldName::ExternalEventId, event_id.as_ref());
                self.text_if(FieldName::ApprovedBy, by.as_ref());
            }
            Body::StepRouted { step, routing } => {
                self.step(*step, None, None);
                self.put(FieldName::Handled, FieldValue::Flag(routing.handled));
            }
            Body::StepHeld { step, until } => {
                self.step(*step, None, None);
                self.time(FieldName::Until, *until);
            }
            Body::StepRetried { step, logical } => self.step(*step, Some(*logical), None),
            _ => {}
        }
    }

    pub(super) fn undo_event(&mut self, body: &'a Body) {
        match body {
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
            _ => {}
        }
    }
}
