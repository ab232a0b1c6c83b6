//! The marking: where the tokens are. A token that has reached a step is a visit of that step;
//! tokens that still wait for others at a join are counted on their edges.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::loops::LoopState;
use super::step_run::StepRun;

/// One step of the plan in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepState {
    /// Incoming edges without a token; a joining step fires when none is missing.
    pub missing: u32,
    /// Each firing of the step.
    pub visits: Vec<Visit>,
    /// Arguments of tokens that wait at the join.
    #[serde(
        default,
        with = "super::frozen::maybe",
        skip_serializing_if = "Option::is_none"
    )]
    pub joined_args: Option<Arc<Json>>,
    /// An operator skipped it before its tokens came: they are absorbed. Only a join and the final step
    /// can be skipped ahead.
    pub absorbed: bool,
}

impl StepState {
    /// A step with this many incoming edges, none marked.
    #[must_use]
    pub fn new(missing: u32) -> StepState {
        StepState {
            missing,
            visits: Vec::new(),
            joined_args: None,
            absorbed: false,
        }
    }
}

/// One firing of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Visit {
    /// Its executions.
    pub run: StepRun,
    /// The arguments bound to its token.
    #[serde(
        default,
        with = "super::frozen::maybe",
        skip_serializing_if = "Option::is_none"
    )]
    pub args: Option<Arc<Json>>,
    /// Its loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<Box<LoopState>>,
}
