//! Events about the run as a whole, signals included.

use serde_json::Value as Json;

use super::View;
use super::words::{failure, rollback_word};
use stepwell_kernel::event::{Body, StopCause, SuccessKind};
use stepwell_kernel::plan::StepRef;

impl View<'_> {
    pub(super) fn run_event(&mut self, body: &Body) {
        match body {
            Body::RunCreated {
                context,
                parent,
                original_run_id,
                start_after,
                ..
            } => {
                self.plan_ref();
                self.context(context);
                self.now("createdAt");
                if let Some(parent) = parent {
                    self.text("parentRunId", parent.run_id.as_str());
                    self.text("parentStepId", parent.step_id.as_str());
                }
                self.text_if("originalRunId", original_run_id.as_ref());
                self.time_if("startAfter", *start_after);
            }
            Body::RunQueued {} => {
                self.text("status", "PENDING");
                self.now("queuedAt");
            }
            Body::RunApproved { by, reason } => {
                self.text("status", "APPROVED");
                self.now("approvedAt");
                self.text_if("approvedBy", by.as_ref());
                self.text_if("reason", reason.as_ref());
            }
            Body::RunStarted {
                engine,
                engine_run_ref,
                ..
            } => {
                self.text("status", "RUNNING");
                self.text("engineRunRef", engine_run_ref.as_str());
                // An engine the contract has no word for is one of ours.
                let known = ["temporal", "conductor", "mock", "native"]
                    .iter()
                    .find(|word| *word == engine);
                self.text("engineType", *known.unwrap_or(&"native"));
                self.plan_ref();
                self.context(&self.before.context);
                self.now("startedAt");
            }
            Body::RunPaused {
                ordinal,
                drain_deadline,
            } => {
                self.text("status", "PAUSED");
                self.put("logicalAttemptId", *ordinal);
                self.now("pausedAt");
                self.time_if("drainDeadline", *drain_deadline);
            }
            Body::RunResumed { ordinal } => {
                self.text("status", "RUNNING");
                self.put("logicalAttemptId", *ordinal);
                self.now("resumedAt");
            }
            Body::RunCompleted { .. } | Body::RunFailed { .. } | Body::RunCancelled { .. } => {
                self.last_event(body);
            }
            other => self.detail(other),
        }
    }

    fn last_event(&mut self, body: &Body) {
        let substatus = match body {
            Body::RunCompleted { success } => {
                self.text("status", "COMPLETED");
                self.now("completedAt");
                (*success == SuccessKind::Partial).then_some("stepwell/PARTIAL")
            }
            Body::RunFailed {
                error, rollback, ..
            } => {
                self.text("status", "FAILED");
                self.now("failedAt");
                self.put("error", failure(error));
                rollback_word(*rollback)
            }
            Body::RunCancelled {
                by,
                reason,
                rollback,
                ..
            } => {
                self.text("status", "CANCELLED");
                self.now("cancelledAt");
                self.text_if("cancelledBy", by.as_ref());
                self.text_if("reason", reason.as_ref());
                rollback_word(*rollback)
            }
            _ => None,
        };
        if let Some(substatus) = substatus {
            self.text("substatus", substatus);
        }
        self.duration(self.before.run_started);
    }

    /// Signals, and what the contract does not list.
    fn detail(&mut self, body: &Body) {
        match body {
            Body::SignalAccepted {
                signal_id,
                signal,
                by,
                reason,
                ..
            } => {
                self.signal(signal_id, signal, by);
                self.now("acceptedAt");
                self.text_if("reason", reason.as_ref());
            }
            Body::SignalRejected {
                signal_id,
                signal,
                by,
                code,
                message,
            } => {
                self.signal(signal_id, signal, by);
                self.now("rejectedAt");
                self.text("code", code.as_str());
                self.text("message", message.as_str());
            }
            Body::TokensAdmitted { tokens } => self.step_ids("stepIds", tokens),
            Body::CtxPatched { by, ctx } => {
                self.text("changedBy", by.as_str());
                let keys: Vec<Json> = ctx.keys().map(|key| key.as_str().into()).collect();
                self.put("keys", keys);
            }
            Body::OverrideInjected { step, .. } | Body::TargetUpdated { step, .. } => {
                self.step(StepRef::first(*step), None, None);
            }
            Body::EventReceived {
                event_id,
                event_type,
                ..
            } => {
                self.text("externalEventId", event_id.as_str());
                self.text("externalEventType", event_type.as_str());
            }
            Body::PauseDrainTimedOut { ordinal, in_flight } => {
                self.put("logicalAttemptId", *ordinal);
                self.put("inFlight", *in_flight);
            }
            Body::RunStalled { stuck, deadline } => {
                self.put("stuck", stuck.as_slice());
                self.time_if("deadline", Some(*deadline));
            }
            Body::RunStopping { cause, compensate } => {
                self.put("compensate", *compensate);
                self.cause(cause);
            }
            Body::CompensationStarted {
                undo,
                not_compensable,
            } => {
                self.step_ids("stepIds", undo);
                self.step_ids("notCompensable", not_compensable);
            }
            Body::CompensationInterrupted { by, reason } => {
                self.text_if("requestedBy", by.as_ref());
                self.text_if("reason", reason.as_ref());
            }
            _ => {}
        }
    }

    fn signal(&mut self, id: &str, signal: &str, by: &str) {
        self.text("signalId", id);
        self.text("signalType", signal);
        self.text("requestedBy", by);
    }

    fn cause(&mut self, cause: &StopCause) {
        let word = match cause {
            StopCause::StepFailed { step } => {
                self.step(*step, None, None);
                "step_failed"
            }
            StopCause::RunTimeout => "run_timeout",
            StopCause::StallTimeout { .. } => "stall_timeout",
            StopCause::Cancel { by, reason } => {
                self.text_if("requestedBy", by.as_ref());
                self.text_if("reason", reason.as_ref());
                "cancel"
            }
            StopCause::Emergency { by, reason } => {
                self.text_if("requestedBy", by.as_ref());
                self.text("reason", reason.as_str());
                "emergency"
            }
        };
        self.text("cause", word);
    }
}
