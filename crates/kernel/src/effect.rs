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
    /// The step-run whose work or undo this is.
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
    /// A person must act at once.
    P1,
    /// A person must act on the same day.
    P2,
    /// Nobody must act; the alert is for later reading.
    P3,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// The run reached its end and no failure was left unhandled.
    Succeeded,
    /// A failure was left, and the policy of the plan accepts that.
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
        /// When the work can be claimed at the earliest.
        visible_at: Time,
        /// Ordinary work, or a wait that ran out.
        task: TaskKind,
    },
    /// Work in flight is no longer needed: tell its worker to stop.
    CancelWork { target: Target, execution: u32 },
    /// Wake the run at this time at the latest.
    WakeAt(Time),
    /// Send an event to the outside.
    Publish(Json),
    /// A person must complete the step: give the person the completion token.
    IssueToken { step: StepRef, execution: u32 },
    /// Start a child run, once per key.
    StartChild {
        /// The step that waits.
        step: StepRef,
        request_key: String,
        /// The parameters of the child.
        input: Arc<Json>,
    },
    /// Pass a cancel on to a child.
    CancelChild {
        /// The step that waits.
        step: StepRef,
        /// The key that the child was started with.
        request_key: String,
    },
    /// Pass a pause on to the open children.
    PauseChildren,
    /// Pass a resume on to the open children.
    ResumeChildren,
    /// An operator must learn about a problem.
    Alert {
        /// The stable name of the alert, for programs.
        code: &'static str,
        priority: Priority,
        /// What happened and what to do, for people.
        message: String,
    },
    /// The decision reached the limit of events: send `Proceed` to continue.
    Proceed,
    /// The run has ended: free its slot, tell its parent.
    RunEnded(RunOutcome),
}
