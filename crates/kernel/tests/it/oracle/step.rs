//! Events about a step or its undo.

use serde_json::Value as Json;

use super::View;
use super::words::{artifact, failure, retried, skip_word, wait_word};
use stepwell_kernel::event::{Body, WaitKind};

impl View<'_> {
    pub(super) fn step_event(&mut self, body: &Body) {
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
                self.now("startedAt");
            }
            Body::StepCompleted {
                step,
                logical,
                execution,
                artifacts,
                ..
            } => {
                self.attempt(*step, *logical, Some(*execution));
                self.now("completedAt");
                let refs: Vec<Json> = artifacts.iter().map(artifact).collect();
                self.put("artifactRefs", refs);
                self.duration(self.before.started(*step));
            }
            Body::StepFailed {
                step,
                logical,
                execution,
                error,
                ..
            } => {
                self.attempt(*step, *logical, Some(*execution));
                self.now("failedAt");
                self.put("error", failure(error));
                self.duration(self.before.started(*step));
            }
            Body::StepSkipped {
                step,
                logical,
                reason,
            } => {
                self.attempt(*step, *logical, None);
                self.now("skippedAt");
                self.text("reason", skip_word(*reason));
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
                self.now("failedAt");
                self.put("error", retried(failure(error)));
                self.time_if("retryAt", Some(*retry_at));
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
                self.text("waitingFor", wait_word(wait));
                if let WaitKind::Event { event_type, .. } = wait {
                    self.text("awaitedEventType", event_type.as_str());
                }
                self.time_if("deadline", *deadline);
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
                self.text("outcome", format!("{outcome:?}"));
                self.text("answeredBy", by.as_str());
                self.time_if("completedAt", Some(*completed_at));
                self.text_if("notes", notes.as_ref());
                if !evidence_refs.is_empty() {
                    self.put("evidenceRefs", evidence_refs.clone());
                }
            }
            Body::StepApproved {
                step,
                execution,
                by,
                approvals,
            } => {
                self.step(*step, None, Some(*execution));
                self.text("approvedBy", by.as_str());
                self.put("approvals", *approvals);
            }
            Body::StepWoken {
                step,
                execution,
                event_id,
                by,
                ..
            } => {
                self.step(*step, None, Some(*execution));
                self.text_if("externalEventId", event_id.as_ref());
                self.text_if("approvedBy", by.as_ref());
            }
            Body::StepRouted { step, routing } => {
                self.step(*step, None, None);
                self.put("handled", routing.handled);
            }
            Body::StepHeld { step, until } => {
                self.step(*step, None, None);
                self.time_if("until", Some(*until));
            }
            Body::StepRetried { step, logical } => self.step(*step, Some(*logical), None),
            _ => {}
        }
    }

    pub(super) fn undo_event(&mut self, body: &Body) {
        match body {
            Body::UndoStarted {
                step, execution, ..
            } => {
                self.step(*step, None, Some(*execution));
                self.now("startedAt");
            }
            Body::UndoCompleted { step, execution } => {
                self.step(*step, None, Some(*execution));
                self.now("completedAt");
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
                self.now("failedAt");
                self.put("error", failure(error));
                if let Body::UndoExecutionFailed { retry_at, .. } = body {
                    self.time_if("retryAt", Some(*retry_at));
                }
            }
            _ => {}
        }
    }
}
