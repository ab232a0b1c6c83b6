//! Notices about the run, signals included: the fields of their events, and what they hold.

use super::super::fields::{
    Field, ORDINAL, REASON, REQUESTED_BY, SIGNAL_ID, SIGNAL_TYPE, STEP, Shape, must,
};
use super::super::name::FieldName;
use super::super::value::FieldValue;
use super::View;
use crate::event::{Body, EventType, outcome_events, run_events, step_events, undo_events};
use crate::plan::StepRef;

/// The fields of an event beside the envelope.
pub(super) const fn fields(event_type: EventType) -> &'static [Field] {
    match event_type {
        EventType::SignalAccepted => {
            const {
                &[
                    SIGNAL_ID,
                    SIGNAL_TYPE,
                    REQUESTED_BY,
                    must("acceptedAt", Shape::Moment, "When the signal was accepted"),
                    REASON,
                ]
            }
        }
        EventType::SignalRejected => {
            const {
                &[
                    SIGNAL_ID,
                    SIGNAL_TYPE,
                    REQUESTED_BY,
                    must("rejectedAt", Shape::Moment, "When the signal was refused"),
                    must("code", Shape::Text, "The code of the refusal, for programs"),
                    must(
                        "message",
                        Shape::Text,
                        "The reason of the refusal, for people",
                    ),
                ]
            }
        }
        EventType::EventReceived => {
            const {
                &[
                    must(
                        "externalEventId",
                        Shape::Text,
                        "The id that the sender of the external event chose",
                    ),
                    must(
                        "externalEventType",
                        Shape::Text,
                        "The type of the external event",
                    ),
                ]
            }
        }
        EventType::CtxPatched => {
            const {
                &[
                    must(
                        "changedBy",
                        Shape::Text,
                        "The person or system that changed ctx",
                    ),
                    must("keys", Shape::Texts, "The variables of ctx that changed"),
                ]
            }
        }
        EventType::ParamsUpdated => &[],
        EventType::OverrideInjected => &[STEP],
        EventType::TargetUpdated => &[STEP],
        EventType::PauseDrainTimedOut => {
            const {
                &[
                    ORDINAL,
                    must(
                        "inFlight",
                        Shape::Number(0),
                        "The number of executions that have not ended",
                    ),
                ]
            }
        }
        EventType::RunStalled => {
            const {
                &[
                    must("stuck", Shape::Texts, "What is stuck, in words"),
                    must(
                        "deadline",
                        Shape::Moment,
                        "When the run fails if nothing changes",
                    ),
                ]
            }
        }
        run_events!(types)
        | step_events!(types)
        | outcome_events!(types)
        | undo_events!(types)
        | EventType::Opaque => &[],
    }
}

impl<'a> View<'a> {
    pub(super) fn notice_event(&mut self, body: &'a Body) {
        match body {
            Body::SignalAccepted {
                signal_id,
                signal,
                by,
                reason,
                ..
            } => {
                self.signal(signal_id, signal, by);
                self.now(FieldName::AcceptedAt);
                self.text_if(FieldName::Reason, reason.as_ref());
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
            Body::ParamsUpdated { .. } => {}
            run_events!()
            | step_events!()
            | outcome_events!()
            | undo_events!()
            | Body::Opaque(_) => {}
        }
    }

    fn signal(&mut self, id: &'a str, signal: &'a str, by: &'a str) {
        self.text(FieldName::SignalId, id);
        self.text(FieldName::SignalType, signal);
        self.text(FieldName::RequestedBy, by);
    }
}
