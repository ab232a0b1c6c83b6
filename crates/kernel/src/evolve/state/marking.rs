//! The marking: where the tokens are. A token that has reached a step is a visit of that step;
//! tokens that still wait for others at a join are counted on their edges.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::evolved::evolved;
use super::loops::LoopState;
use super::step_run::StepRun;

evolved! {
    /// One step of the plan in one run.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct StepState {
        /// How many incoming edges have no token; a joining step fires when this is zero.
        missing: u32 => copy,
        /// Each firing of the step, oldest first.
        visits: Vec<Visit> => deref([Visit]),
        /// The arguments of tokens that wait at the join.
        #[serde(
            default,
            with = "super::encoding::maybe",
            skip_serializing_if = "Option::is_none"
        )]
        joined_args: Option<Arc<Json>> => opt(Arc<Json>),
        /// Whether an operator skipped the step before its tokens came: they are absorbed. Only a join and
        /// the final step can be skipped ahead.
        absorbed: bool => copy,
        /// Whether the tokens of a step that was skipped ahead pass on, once all of them are there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        passes: bool => copy,
    }
}

impl StepState {
    /// A step with this many incoming edges, none marked.
    pub(in crate::evolve) fn new(missing: u32) -> StepState {
        StepState {
            missing,
            visits: Vec::new(),
            joined_args: None,
            absorbed: false,
            passes: false,
        }
    }
}

evolved! {
    /// One firing of a step.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct Visit {
        /// The step-run of this visit: its status, executions, lease and result.
        run: StepRun => get,
        /// The arguments bound to the token that made this visit.
        #[serde(
            default,
            with = "super::encoding::maybe",
            skip_serializing_if = "Option::is_none"
        )]
        args: Option<Arc<Json>> => opt(Arc<Json>),
        /// The loop of this visit, once it has started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        each: Option<Box<LoopState>> => opt_deref(LoopState),
    }
}
