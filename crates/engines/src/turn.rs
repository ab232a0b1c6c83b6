//! A turn: what an engine outside must know of a run to move it. Derived from the state of the run, so that the same state gives
//! the same turn.

use serde::{Deserialize, Serialize};
use stepwell_dialects::document;
use stepwell_engine::coordinator::{HotRun, Serves};
use stepwell_engine::rows::{served_by, target_name};
use stepwell_kernel::effect::{RunOutcome, Target};
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::Phase;
use stepwell_kernel::time::Time;

/// The most attempts of one run that are listed at a time: engines limit what a run may have in flight.
pub const MAX_WORK: usize = 500;

/// One execution of a step or of an undo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkItem {
    /// The name of the target: the id of the step, with `~undo` for its undo.
    pub target: String,
    /// The number that the execution has, or will have once it is claimed.
    pub execution: u32,
    /// In how many milliseconds the work can be claimed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_in_ms: u64,
    /// A worker has claimed it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub held: bool,
    /// The run no longer wants it: the worker is to stop.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stop: bool,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl WorkItem {
    /// The name of the attempt at the engine.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}@{}", self.target, self.execution)
    }
}

/// A place in the log of a run: how far someone has seen it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The sequence number of the last event.
    pub seq: u64,
    /// The hash of that event.
    pub hash: String,
}

/// How a run ended, in the words of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EndedAs {
    Completed,
    Failed,
    Cancelled,
}

/// What an engine outside must know of a run to move it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Turn {
    /// What of the log the turn is derived from.
    pub seen: Seen,
    /// The status of the run, in the words of the contract.
    pub status: String,
    /// Work that is to be started, or in flight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<WorkItem>,
    /// In how many milliseconds the run must be looked at again; absent: when something happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_in_ms: Option<u64>,
    /// How the run ended; absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndedAs>,
}

impl Turn {
    /// The turn of a run as it is in memory, for processes that do this work. Work that they do not do is for workers that wait
    /// at servers, and not for the engine.
    #[must_use]
    pub fn of(hot: &HotRun, now: Time, serves: &Serves) -> Turn {
        let (plan, state) = (hot.plan(), hot.state());
        let (status, _) = document::contract_words(state);
        let now = now.max(state.last_at());
        let (mut held, mut ready, mut wake) = (Vec::new(), Vec::new(), None::<Time>);
        let mut wake_at = |at: Time| wake = Some(wake.map_or(at, |wake| wake.min(at)));
        for source in wake_sources(plan, state) {
            match source {
                WakeSource::Task {
                    target, visible_at, ..
                } => {
                    let (queue, operation) = served_by(plan, target);
                    if !serves.has(queue, operation) {
                        continue;
                    }
                    let execution = state.target(target).map_or(0, |it| it.execution()) + 1;
                    let order = plan.step(target.step_ref().step).order;
                    let item = WorkItem {
                        target: target_name(plan, target),
                        execution,
                        start_in_ms: visible_at.since(now),
                        held: false,
                        stop: false,
                    };
                    ready.push((item.start_in_ms, order, item));
                    // The claim arms the timer of the attempt, and nobody tells the engine of that.
                    if let Some(limit) = timeout_ms(plan, target) {
                        wake_at(visible_at.max(now).plus(limit));
                    }
                }
                WakeSource::Lease { target, .. } => held.push(WorkItem {
                    target: target_name(plan, target),
                    execution: state.target(target).map_or(0, |it| it.execution()),
                    start_in_ms: 0,
                    held: true,
                    stop: state.phase() == Phase::Stopping && matches!(target, Target::Step(_)),
                }),
                WakeSource::Timer { due, .. } => wake_at(due),
                // Decided by the service itself, or told by it when someone has acted.
                WakeSource::Queue
                | WakeSource::Proceed
                | WakeSource::Outside { .. }
                | WakeSource::Child { .. }
                | WakeSource::Operator
                | WakeSource::Ctx { .. } => {}
            }
        }
        // What can start together starts in the order of the definition.
        ready.sort_by_key(|(start, order, _)| (*start, *order));
        held.extend(ready.into_iter().map(|(_, _, item)| item));
        held.truncate(MAX_WORK);
        Turn {
            seen: Seen {
                seq: hot.committed(),
                hash: hot.chain_head().to_owned(),
            },
            status: status.to_owned(),
            work: held,
            wake_in_ms: wake.map(|at| at.since(now)),
            ended: match state.phase() {
                Phase::Ended(outcome) => Some(ended_as(outcome)),
                _ => None,
            },
        }
    }
}

fn ended_as(outcome: RunOutcome) -> EndedAs {
    match outcome {
        RunOutcome::Succeeded | RunOutcome::Partial => EndedAs::Completed,
        RunOutcome::Failed(_) => EndedAs::Failed,
        RunOutcome::Cancelled(_) => EndedAs::Cancelled,
    }
}

/// How long an execution of a target may take.
fn timeout_ms(plan: &Plan, target: Target) -> Option<u64> {
    let step = plan.step(target.step_ref().step);
    match target {
        Target::Step(_) => step.timeout_ms,
        Target::Undo(_) => step.undo.as_ref()?.timeout_ms,
    }
}

/// What an engine outside kept for the store while the store did not answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KeptReport {
    /// Work was begun whose claim could not be written within the write budget, and its worker is lost.
    #[serde(rename_all = "camelCase")]
    Begun {
        target: String,
        execution: u32,
        worker: String,
    },
    /// A result that could not be written within the write budget: the command that reports it.
    #[serde(rename_all = "camelCase")]
    Result {
        target: String,
        execution: u32,
        worker: String,
        command: Box<stepwell_kernel::command::Command>,
    },
    /// The engine outside was asked to cancel the run.
    Cancel { reason: Option<String> },
}
