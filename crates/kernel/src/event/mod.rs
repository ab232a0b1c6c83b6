//! Events: what happened, in the past tense. The log is a list of these and nothing else is truth.
//!
//! An event holds the *results* of every decision (routes taken, patches, deadlines), so replay evaluates
//! nothing. `body` is the table of events, `table` says what its columns mean, and `parts` has the values that
//! events are made of.

mod body;
mod parts;
mod table;

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use body::{Body, EventType};
pub use body::{notice_events, outcome_events, run_events, step_events, undo_events};
pub use parts::{
    AdmissionVerdict, ArtifactRef, CalledRun, Lease, LoopItems, LoopStart, Loss, OpaqueEvent,
    Parent, Patch, Rollback, Routing, RunContext, SkipReason, StepError, StopCause, SuccessKind,
    TakenEdge, TaskKind, UndoOutcome, UndoResult, WaitKind,
};

pub use table::{Emitter, EventOrigin};

use crate::keys::EventKey;
use crate::plan::Plan;
use crate::time::Time;

/// One entry of a run's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// The place of the event in the log of its run, from 1, without gaps.
    pub seq: u64,
    /// When the event was decided; never earlier than the event before.
    pub at: Time,
    /// The type and the data of the event.
    pub body: Body,
}

impl Event {
    /// The key of the event, as the table of events says. Two events of a run never have the same key.
    #[must_use]
    pub fn key<'a>(&'a self, plan: &'a Plan) -> EventKey<'a> {
        let step = || self.body.step().map(|at| plan.step_id_text(at));
        EventKey {
            step_id: self.body.id().map(Cow::from).or_else(step),
            logical: u64::from(self.body.attempt()),
            event_type: self.body.event_type(),
            ordinal: self.body.ordinal(self.seq),
        }
    }
}
