//! Events about a step-run: their fields, and what the fields hold.

use super::super::fields::{
    ARTIFACT, COMPLETED_AT, DURATION, ENGINE_ATTEMPT, FAILED_AT, FAILURE, Field, LOGICAL,
    PLAN_VERSION, RETRY_AT, STARTED_AT, STEP, Shape, may, must,
};
use super::super::name::FieldName;
use super::super::value::FieldValue;
use super::View;
use super::words::{skip_word, wait_word};
use crate::event::{Body, EventType, WaitKind, notice_events, run_events, undo_events};

/// The fields of an event beside the envelope.
pub(super) const fn fields(event_type: EventType) -> &'static [Field] {
    match event_type {
        EventType::StepStarted => &[STEP, LOGICAL, ENGINE_ATTEMPT, STARTED_AT, PLAN_VERSION],
        EventType::StepExecutionStarted => {
            &[STEP, LOGICAL, ENGINE_ATTEMPT, STARTED_AT, PLAN_VERSION]
        }
        EventType::StepExecutionFailed => &[
            STEP,
            LOGICAL,
            ENGINE_ATTEMPT,
            FAILED_AT,
            FAILURE,
            RETRY_AT,
            PLAN_VERSION,
        ],
        EventType::StepWaiting => {
            const {
                &[
                    STEP,
                    LOGICAL,
                    ENGINE_ATTEMPT,
                    must(
                        "waitingFor",
                        Shape::Words(&["gate", "approval", "manual", "event", "timer", "child"]),
                        "What the step waits for",
                    ),
                    may(
                        "awaitedEventType",
                        Shape::Text,
                        "The type of the external event that the step waits for; absent for other waits",
                    ),
                    may(
                        "deadline",
                        Shape::Moment,
                        "When the wait ends at the latest; absent: no limit",
                    ),
                    PLAN_VERSION,
                ]
            }
        }
        EventType::StepAnswered => {
            const {
                &[
                    STEP,
                    LOGICAL,
                    ENGINE_ATTEMPT,
                    must(
                        "outcome",
                        Shape::Words(&["Succeeded", "Failed", "Cancelled"]),
                        "What the person answered",
                    ),
                    must("answeredBy", Shape::Text, "The person who answered"),
                    must(
                        "completedAt",
                        Shape::Moment,
                        "When the person completed the work, as the person says",
                    ),
                    may(
                        "notes",
                        Shape::Text,
                        "Why, in the words of the person; absent if the person said nothing",
                    ),
                    may(
                        "evidenceRefs",
                        Shape::Texts,
                        "Ids of evidence, or references to it; absent if there are none",
                    ),
                ]
            }
        }
        EventType::StepApproved => {
            const {
                &[
                    STEP,
                    ENGINE_ATTEMPT,
                    must("approvedBy", Shape::Text, "The person who approved"),
                    must(
                        "approvals",
                        Shape::Number(1),
                        "The number of approvals so far, this approval included",
                    ),
                ]
            }
        }
        EventType::StepWoken => {
            const {
                &[
                    STEP,
                    ENGINE_ATTEMPT,
                    may(
                        "externalEventId",
                        Shape::Text,
                        "The id of the external event that ended the wait; absent if no event did",
                    ),
                    may(
                        "approvedBy",
                        Shape::Text,
                        "The person who approved; absent if no person ended the wait",
                    ),
                ]
            }
        }
        EventType::StepHeld => {
            const {
                &[
                    STEP,
                    must(
                        "until",
                        Shape::Moment,
                        "When the run stops if no operator has acted",
                    ),
                ]
            }
        }
        EventType::StepRetried => &[STEP, LOGICAL],
        EventType::StepCompleted => {
            const {
                &[
                    STEP,
                    LOGICAL,
                    ENGINE_ATTEMPT,
                    COMPLETED_AT,
                    must(
                        "artifactRefs",
                        Shape::Objects(ARTIFACT),
                        "References to the artifacts of the step",
                    ),
                    PLAN_VERSION,
                    DURATION,
                ]
            }
        }
        EventType::StepFailed => {
            const {
                &[
                    STEP,
                    LOGICAL,
                    ENGINE_ATTEMPT,
                    FAILED_AT,
                    FAILURE,
                    may(
                        "artifactRefs",
                        Shape::Objects(ARTIFACT),
                        "References to the artifacts that the step made before it failed",
                    ),
                    PLAN_VERSION,
                    DURATION,
                ]
            }
        }
        EventType::StepSkipped => {
            const {
                &[
                    STEP,
                    LOGICAL,
                    must(
                        "skippedAt",
                        Shape::Moment,
                        "When the engine decided that the step will not run",
                    ),
                    must(
                        "reason",
                        Shape::Words(&[
                            "ON_FAILURE",
                            "OPERATOR",
                            "DEPENDENCY_FAILED",
                            "CANCELLED",
                            "DISCARDED",
                        ]),
                        "Why the step will not run",
                    ),
                    PLAN_VERSION,
                ]
            }
        }
        EventType::StepRouted => {
            const {
                &[
                    STEP,
                    must(
                        "handled",
                        Shape::Flag,
                        "Whether the edges have handled the failure of the step",
                    ),
                ]
            }
        }
        EventType::TokensAdmitted => {
            const {
                &[must(
                    "stepIds",
                    Shape::Texts,
                    "The steps that the tokens enter, oldest first",
                )]
            }
        }
        run_events!(types) | notice_events!(types) | undo_events!(types) | EventType::Opaque => &[],
    }
}

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
                ..
            } => {
                self.attempt(*step, *logical, Some(*execution));
                self.now(FieldName::FailedAt);
                self.put(FieldName::Error, FieldValue::RetriedFailure(error));
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
            Body::StepAnswered {
                step,
                logical,
                execution,
                outcome,
                by,
                completed_at,
                notes,
                evidence_refs,
                ..
            } => {
                self.step(*step, Some(*logical), Some(*execution));
                self.word(FieldName::Outcome, outcome.word());
                self.text(FieldName::AnsweredBy, by);
                self.time(FieldName::CompletedAt, *completed_at);
                self.text_if(FieldName::Notes, notes.as_ref());
                if !evidence_refs.is_empty() {
                    self.put(FieldName::EvidenceRefs, FieldValue::Texts(evidence_refs));
                }
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
            Body::TokensAdmitted { tokens } => {
                self.put(FieldName::StepIds, FieldValue::StepIds(tokens));
            }
            run_events!() | notice_events!() | undo_events!() | Body::Opaque(_) => {}
        }
    }
}
