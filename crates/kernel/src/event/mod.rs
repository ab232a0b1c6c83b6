//! Events: what happened, in the past tense. The log is a list of these and nothing else is truth.
//!
//! The first thirteen kinds and `RunQueued` are the contract's; the rest are additive and never
//! change the run's status in the contract's view. An event holds the *results* of every decision
//! (routes taken, patches, deadlines), so replay evaluates nothing.
//!
//! `body` is the list of kinds, `parts` the values they are made of; the keys are made here.

mod body;
mod parts;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use body::Body;
pub use parts::{
    AdmissionVerdict, ArtifactRef, CalledRun, Lease, LoopItems, LoopStart, Parent, Patch, Rollback,
    Routing, RunContext, SkipReason, StepError, StopCause, SuccessKind, TakenEdge, TaskKind,
    UndoOutcome, UndoResult, WaitKind,
};

use crate::keys::EventKey;
use crate::plan::Plan;
use crate::time::Time;

/// One entry of a run's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its place in the run's log, from 1, without gaps.
    pub seq: u64,
    /// When it was decided; never earlier than the event before it.
    pub at: Time,
    /// What happened.
    pub body: Body,
}
impl Event {
    /// What the event is recorded under. Two events of a run never share it.
    #[must_use]
    pub fn key<'a>(&'a self, plan: &'a Plan) -> EventKey<'a> {
        let event_type = self.body.kind();
        let step_id = || self.body.step().map(|at| plan.step_id_text(at));
        let step = |logical: u32, ordinal: u64| EventKey {
            step_id: step_id(),
            logical: u64::from(logical),
            event_type,
            ordinal,
        };
        let run = |logical: u32, ordinal: u64| EventKey {
            step_id: None,
            logical: u64::from(logical),
            event_type,
            ordinal,
        };
        match &self.body {
            Body::StepStarted { logical, .. }
            | Body::StepCompleted { logical, .. }
            | Body::StepFailed { logical, .. }
            | Body::StepSkipped { logical, .. }
            | Body::StepRetried { logical, .. } => step(*logical, 0),
            Body::StepExecutionStarted {
                logical, execution, ..
            }
            | Body::StepExecutionFailed {
                logical, execution, ..
            } => step(*logical, u64::from(*execution)),
            // These may come more than once in one execution; the sequence number tells them apart.
            Body::StepWaiting { logical, .. } => step(*logical, self.seq),
            Body::StepApproved { .. }
            | Body::StepWoken { .. }
            | Body::StepRouted { .. }
            | Body::StepHeld { .. }
            | Body::UndoStarted { .. }
            | Body::UndoExecutionFailed { .. } => step(1, self.seq),
            Body::UndoCompleted { .. } | Body::UndoFailed { .. } => step(1, 0),
            Body::SignalAccepted { signal_id, .. } | Body::SignalRejected { signal_id, .. } => {
                EventKey {
                    step_id: Some(signal_id.as_str().into()),
                    logical: 1,
                    event_type,
                    ordinal: 0,
                }
            }
            Body::EventReceived { event_id, .. } => EventKey {
                step_id: Some(event_id.as_str().into()),
                logical: 1,
                event_type,
                ordinal: 0,
            },
            Body::RunPaused { ordinal, .. }
            | Body::RunResumed { ordinal }
            | Body::PauseDrainTimedOut { ordinal, .. } => run(*ordinal, 0),
            Body::RunCreated { .. }
            | Body::RunQueued {}
            | Body::RunApproved { .. }
            | Body::RunStarted { .. }
            | Body::RunCompleted { .. }
            | Body::RunFailed { .. }
            | Body::RunCancelled { .. }
            | Body::RunFinalizing { .. }
            | Body::CompensationStarted { .. }
            | Body::CompensationInterrupted { .. } => run(1, 0),
            Body::TokensAdmitted { .. }
            | Body::CtxPatched { .. }
            | Body::ParamsUpdated { .. }
            | Body::OverrideInjected { .. }
            | Body::TargetUpdated { .. }
            | Body::RunStalled { .. }
            | Body::RunStopping { .. } => run(1, self.seq),
        }
    }
}
