//! Effects: the only way out of the kernel. An effect is never truth; each can be derived again from
//! the state when a run is loaded, so losing one in a crash loses nothing.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::event::{Rollback, TaskKind};
use crate::plan::StepRef;
use crate::time::Time;

/// The work of a step, or its undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The step's own work.
    Step(StepRef),
    Undo(StepRef),
}

impl Target {
    /// The step it is about.
    #[must_use]
    pub fn step_ref(self) -> StepRef {
        match self {
            Target::Step(at) | Target::Undo(at) => at,
        }
    }
}

/// How urgent an alert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Wake someone.
    P1,
    /// Today.
    P2,
    /// For the record.
    P3,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// Everything was done.
    Succeeded,
    /// As much as the policy asks for.
    Partial,
    Failed(Rollback),
    Cancelled(Rollback),
}

/// Something for the engine to do once the events are committed.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// There is work to claim.
    Dispatch {
        target: Target,
        /// Not to be claimed before.
        visible_at: Time,
        /// Ordinary work, or a wait that ran out.
        task: TaskKind,
    },
    /// Work in flight is no longer wanted: reach it and stop it.
    CancelWork { target: Target, execution: u32 },
    /// Wake the run at this time at the latest.
    WakeAt(Time),
    /// Send an event to the outside.
    Publish(Json),
    /// A person is needed; give them this token.
    IssueToken { step: StepRef, execution: u32 },
    /// Start a child run, once per key.
    StartChild {
        /// The step that waits.
        step: StepRef,
        request_key: String,
        /// With these parameters.
        input: Arc<Json>,
    },
    /// Pass a cancel on to a child.
    CancelChild {
        /// The step that waits.
        step: StepRef,
        /// The child's key.
        request_key: String,
    },
    /// Pass a pause on to the open children.
    PauseChildren,
    /// Pass a resume on to the open children.
    ResumeChildren,
    /// Tell an operator.
    Alert {
        /// Which alert.
        code: &'static str,
        /// How urgent.
        priority: Priority,
        /// For people.
        message: String,
    },
    /// More is to be decided than fits one decision: send `Proceed`.
    Proceed,
    /// The run has ended: free its slot, tell its parent.
    RunEnded(RunOutcome),
}
