//! Events about the run as a whole, signals included.

use super::super::fields::ENGINES;
use super::super::name::FieldName;
use super::super::value::FieldValue;
use super::View;
use super::words::rollback_word;
use crate::event::{Body, StopCause, SuccessKind};
use crate::plan::StepRef;

impl<'a> View<'a> {
    pub(super) fn run_event(&mut self, body: &'a Body) {
        match body {
            Body::RunCreated {
                context,
                parent,
                original_run_id,
                start_after,
                ..
            } => {
                self.put(FieldName::PlanRef, FieldValue::PlanRef);
                self.put(FieldName::Context, FieldValue::Context(context));
                self.now(FieldName::CreatedAt);
                if let Some(parent) = parent {
                    self.text(FieldName::ParentRunId, &parent.run_id);
                    self.text(FieldName::ParentStepId, &parent.step_id);
                }
                self.text_if(FieldName::OriginalRunId, original_run_id.as_ref());
                self.time_if(FieldName::StartAfter, *start_after);
            }
            Body::RunQueued {} => {
                self.word(FieldName::Status, "PENDING");
                self.now(FieldName::QueuedAt);
            }
            Body::RunApproved { by } => {
                self.word(FieldName::Status, "APPROVED");
                self.now(FieldName::ApprovedAt);
                self.text_if(FieldName::ApprovedBy, by.as_ref());
            }
            Body::RunStarted {
                engine,
                engine_run_ref,
                ..
            } => {
                self.word(FieldName::Status, "RUNNING");
                self.text(FieldName::EngineRunRef, engine_run_ref);
                // An engine the contract has no word for is one of ours.
                let known = ENGINES.iter().find(|word| *word == engine);
                self.word(FieldName::EngineType, known.unwrap_or(&"native"));
                self.put(FieldName::PlanRef, FieldValue::PlanRef);
                self.put(FieldName::Context, FieldValue::Context(self.context));
                self.now(FieldName::StartedAt);
            }
            Body::RunPaused {
                ordinal,
                drain_deadline,
            } => {
                self.word(FieldName::Status, "PAUSED");
                self.number(FieldName::LogicalAttemptId, *ordinal);
                self.now(FieldName::PausedAt);
                self.time_if(FieldName::DrainDeadline, *drain_deadline);
            }
            Body::RunResumed { ordinal } => {
                self.word(FieldName::Status, "RUNNING");
                self.number(FieldName::LogicalAttemptId, *ordinal);
                self.now(FieldName::ResumedAt);
            }
            Body::RunCompleted { .. } | Body::RunFailed { .. } | Body::RunCancelled { .. } => {
                self.last_event(body);
            }
            other => self.detail(other),
        }
    }

    fn last_event(&mut self, body: &'a Body) {
        let substatus = match body {
            Body::RunCompleted { success } => {
                self.word(FieldName::Status, "COMPLETED");
                self.now(FieldName::CompletedAt);
                (*success == SuccessKind::Partial).then_some("stepwell/PARTIAL")
            }
            Body::RunFailed {
                error, rollback, ..
            } => {
                self.word(FieldName::Status, "FAILED");
                self.now(FieldName::FailedAt);
                self.put(FieldName::Error, FieldValue::Failure(error));
                rollback_word(*rollback)
            }
            Body::RunCancelled {
                by,
                reason,
                rollback,
                ..
            } => {
                self.word(FieldName::Status, "CANCELLED");
                self.now(FieldName::CancelledAt);
                self.text_if(FieldName::CancelledBy, by.as_ref());
                self.text_if(FieldName::Reason, reason.as_ref());
                rollback_word(*rollback)
            }
            _ => None,
        };
        if let Some(substatus) = substatus {
            self.word(FieldName::Substatus, substatus);
        }
        self.duration(self.run_started);
    }

    /// Signals, and what the contract does not list.
    fn detail(&mut self, body: &'a Body) {
        match body {
            Body::SignalAccepted {
                signal_id,
                signal,
                by,
                ..
            } => {
                self.signal(signal_id, signal, by);
                self.now(FieldName::AcceptedAt);
            }
            Body::SignalRejected {
                signal_id,
                signal,
                by,
                code,
                message,
            } => {
                self.signal(signal_id, signal, by);
                self.now(FieldName::RejectedAt);
                self.text(FieldName::Code, code);
                self.text(FieldName::Message, message);
            }
            Body::TokensAdmitted { tokens } => {
                self.put(FieldName::StepIds, FieldValue::StepIds(tokens))
            }
            Body::CtxPatched { by, ctx } => {
                self.text(FieldName::ChangedBy, by);
                self.put(FieldName::Keys, FieldValue::Keys(ctx));
            }
            Body::OverrideInjected { step, .. } | Body::TargetUpdated { step, .. } => {
                self.step(StepRef::first(*step), None, None);
            }
            Body::EventReceived {
                event_id,
                event_type,
                ..
            } => {
                self.text(FieldName::ExternalEventId, event_id);
                self.text(FieldName::ExternalEventType, event_type);
            }
            Body::PauseDrainTimedOut { ordinal, in_flight } => {
                self.number(FieldName::LogicalAttemptId, *ordinal);
                self.number(FieldName::InFlight, *in_flight);
            }
            Body::RunStalled { stuck, deadline } => {
                self.put(FieldName::Stuck, FieldValue::Texts(stuck));
                self.time(FieldName::Deadline, *deadline);
            }
            Body::RunStopping { cause, compensate } => {
                self.put(FieldName::Compensate, FieldValue::Flag(*compensate));
                self.cause(cause);
            }
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
            _ => {}
        }
    }

    fn signal(&mut self, id: &'a str, signal: &'a str, by: &'a str) {
        self.text(FieldName::SignalId, id);
        self.text(FieldName::SignalType, signal);
        self.text(FieldName::RequestedBy, by);
    }

    fn cause(&mut self, cause: &'a StopCause) {
        let word = match cause {
            StopCause::StepFailed { step } => {
                self.step(*step, None, None);
                "step_failed"
            }
            StopCause::RunTimeout => "run_timeout",
            StopCause::StallTimeout { .. } => "stall_timeout",
            StopCause::Cancel { by, reason } => {
                self.text_if(FieldName::RequestedBy, by.as_ref());
                self.text_if(FieldName::Reason, reason.as_ref());
                "cancel"
            }
            StopCause::Emergency { by, reason } => {
                self.text_if(FieldName::RequestedBy, by.as_ref());
                self.text(FieldName::Reason, reason);
                "emergency"
            }
        };
        self.word(FieldName::Cause, word);
    }
}
