//! The lifecycle of the run: the fields of its events, and what they hold.

use super::super::fields::{
    COMPLETED_AT, CONTEXT, DURATION, ENGINES, FAILED_AT, FAILURE, Field, ORDINAL, PLAN_REF, REASON,
    STARTED_AT, SUBSTATUS, Shape, may, must, status,
};
use super::super::name::FieldName;
use super::super::value::FieldValue;
use super::View;
use super::words::rollback_word;
use crate::event::{
    Body, EventType, StopCause, SuccessKind, notice_events, outcome_events, step_events,
    undo_events,
};

/// The fields of an event beside the envelope.
pub(super) const fn fields(event_type: EventType) -> &'static [Field] {
    match event_type {
        EventType::RunCreated => {
            const {
                &[
                    must(
                        "planRef",
                        Shape::Object(PLAN_REF),
                        "The plan that the run is pinned to",
                    ),
                    must(
                        "context",
                        Shape::Object(CONTEXT),
                        "The tenant, project and environment of the run, and who started the run",
                    ),
                    must("createdAt", Shape::Moment, "When the run was created"),
                    may(
                        "parentRunId",
                        Shape::Text,
                        "The run that waits for this run; absent if no run has started it",
                    ),
                    may(
                        "parentStepId",
                        Shape::Text,
                        "The step of the parent that waits for this run",
                    ),
                    may(
                        "originalRunId",
                        Shape::Text,
                        "The run that this run repeats; absent if it repeats none",
                    ),
                    may(
                        "startAfter",
                        Shape::Moment,
                        "When the run may start at the earliest; absent: at once",
                    ),
                ]
            }
        }
        EventType::RunQueued => {
            const {
                &[
                    status("PENDING"),
                    must("queuedAt", Shape::Moment, "When the run was queued"),
                ]
            }
        }
        EventType::RunApproved => {
            const {
                &[
                    status("APPROVED"),
                    must("approvedAt", Shape::Moment, "When the run was approved"),
                    may(
                        "approvedBy",
                        Shape::Text,
                        "The person who approved the run; absent when the plan needs no approval",
                    ),
                    REASON,
                ]
            }
        }
        EventType::RunStarted => {
            const {
                &[
                    status("RUNNING"),
                    must(
                        "engineRunRef",
                        Shape::Text,
                        "The id that the engine itself has given to the run",
                    ),
                    must(
                        "engineType",
                        Shape::Words(ENGINES),
                        "The engine that executes the run",
                    ),
                    must(
                        "planRef",
                        Shape::Object(PLAN_REF),
                        "The plan that the run is pinned to",
                    ),
                    must(
                        "context",
                        Shape::Object(CONTEXT),
                        "The tenant, project and environment of the run, and who started the run",
                    ),
                    STARTED_AT,
                ]
            }
        }
        EventType::RunPaused => {
            const {
                &[
                    status("PAUSED"),
                    ORDINAL,
                    must("pausedAt", Shape::Moment, "When the run was paused"),
                    may(
                        "drainDeadline",
                        Shape::Moment,
                        "When an alert is raised if work in flight has not ended; absent: never",
                    ),
                ]
            }
        }
        EventType::RunResumed => {
            const {
                &[
                    status("RUNNING"),
                    ORDINAL,
                    must("resumedAt", Shape::Moment, "When the pause ended"),
                ]
            }
        }
        EventType::RunFinalizing => &[],
        EventType::RunStopping => {
            const {
                &[
                    must(
                        "cause",
                        Shape::Words(&[
                            "step_failed",
                            "run_timeout",
                            "stall_timeout",
                            "cancel",
                            "emergency",
                        ]),
                        "Why the run stops",
                    ),
                    must(
                        "compensate",
                        Shape::Flag,
                        "Whether the completed steps are undone",
                    ),
                    may(
                        "stepId",
                        Shape::Text,
                        "The step that failed; absent for other causes",
                    ),
                    may(
                        "requestedBy",
                        Shape::Text,
                        "The person or system that stopped the run; absent for other causes",
                    ),
                    REASON,
                ]
            }
        }
        EventType::RunCompleted => {
            const { &[status("COMPLETED"), SUBSTATUS, COMPLETED_AT, DURATION] }
        }
        EventType::RunFailed => {
            const { &[status("FAILED"), SUBSTATUS, FAILED_AT, FAILURE, DURATION] }
        }
        EventType::RunCancelled => {
            const {
                &[
                    status("CANCELLED"),
                    SUBSTATUS,
                    must("cancelledAt", Shape::Moment, "When the run ended"),
                    may(
                        "cancelledBy",
                        Shape::Text,
                        "The person or system that cancelled the run; absent if unknown",
                    ),
                    REASON,
                    DURATION,
                ]
            }
        }
        notice_events!(types)
        | step_events!(types)
        | outcome_events!(types)
        | undo_events!(types)
        | EventType::Opaque => &[],
    }
}

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
            Body::RunApproved { by, reason } => {
                self.word(FieldName::Status, "APPROVED");
                self.now(FieldName::ApprovedAt);
                self.text_if(FieldName::ApprovedBy, by.as_ref());
                self.text_if(FieldName::Reason, reason.as_ref());
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
            Body::RunCompleted { success } => {
                let partial = *success == SuccessKind::Partial;
                self.end("COMPLETED", partial.then_some("stepwell/PARTIAL"));
                self.now(FieldName::CompletedAt);
            }
            Body::RunFailed {
                error, rollback, ..
            } => {
                self.end("FAILED", rollback_word(*rollback));
                self.now(FieldName::FailedAt);
                self.put(FieldName::Error, FieldValue::Failure(error));
            }
            Body::RunCancelled {
                by,
                reason,
                rollback,
                ..
            } => {
                self.end("CANCELLED", rollback_word(*rollback));
                self.now(FieldName::CancelledAt);
                self.text_if(FieldName::CancelledBy, by.as_ref());
                self.text_if(FieldName::Reason, reason.as_ref());
            }
            Body::RunFinalizing { .. } => {}
            Body::RunStopping { cause, compensate } => {
                self.put(FieldName::Compensate, FieldValue::Flag(*compensate));
                self.cause(cause);
            }
            notice_events!()
            | step_events!()
            | outcome_events!()
            | undo_events!()
            | Body::Opaque(_) => {}
        }
    }

    fn end(&mut self, status: &'static str, substatus: Option<&'static str>) {
        self.word(FieldName::Status, status);
        if let Some(substatus) = substatus {
            self.word(FieldName::Substatus, substatus);
        }
        self.duration(self.run_started);
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
