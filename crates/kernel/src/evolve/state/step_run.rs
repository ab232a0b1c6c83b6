//! A step-run: one visit of a step, one item of a loop, or one undo. All three have executions,
//! leases, waits and timers, and share this shape.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::evolved::evolved;
use crate::command::{ManualOutcome, TimerId};
use crate::event::{Lease, SkipReason, StepError, TaskKind, WaitKind};
use crate::time::Time;

/// The condition of a step-run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// A token is here and the engine itself must act next.
    Arrived,
    /// A token is here and may not enter.
    Denied,
    /// A worker can claim the step-run from `visible_at` on; after a failed execution `visible_at` is the end of
    /// the backoff.
    Ready,
    /// A worker has claimed the step-run.
    Running,
    /// The step-run waits for a person, an event, time or a child run, without a worker.
    Waiting,
    /// The items of the loop run.
    Looping,
    /// The work is done, or a person has completed or approved the step.
    Succeeded,
    /// The step-run failed and is not retried in this logical attempt.
    Failed,
    /// The step-run failed, is not retried, and waits for an operator.
    Held,
    /// The step-run will not run.
    Skipped,
    /// The step-run was stopped before its work ended.
    Cancelled,
}

impl Status {
    /// Whether the step-run has ended. Only RETRY_STEP can change the status again.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Status::Succeeded | Status::Failed | Status::Skipped | Status::Cancelled
        )
    }
}

evolved! {
    /// The wait of a step-run.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct WaitState {
        /// What the step-run waits for.
        kind: WaitKind => get,
        /// When the wait ends at the latest.
        deadline: Option<Time> => copy,
        /// The hash of the completion token, where a person is waited for.
        token_hash: Option<String> => opt_deref(str),
        /// The ids of the people who have approved so far.
        approvals: Vec<String> => deref([String]),
    }
}

impl WaitState {
    /// Whether something outside the engine must happen: a person or an event.
    #[must_use]
    pub fn is_outside(&self) -> bool {
        match self.kind {
            WaitKind::Gate | WaitKind::Approval | WaitKind::Manual | WaitKind::Event { .. } => true,
            WaitKind::Timer { .. } | WaitKind::Child { .. } => false,
        }
    }
}

evolved! {
    /// A person's answer that was recorded, so that a repeated answer is recognised.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ManualAnswer {
        /// The logical attempt that the answer was given to.
        logical: u32 => copy,
        /// The hash of the token that the answer came with.
        token_hash: String => deref(str),
        /// What the person answered.
        outcome: ManualOutcome => copy,
    }
}

/// How far the undoing of a step has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoStatus {
    /// Nothing is to be undone.
    #[default]
    None,
    /// The step is to be undone.
    Due,
    /// The step is being undone.
    Running,
    /// The step is undone.
    Done,
    /// The step could not be undone.
    Failed,
    /// The plan has no undo for the step.
    NotCompensable,
}

evolved! {
    /// One visit of a step, one item of a loop, or one undo.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct StepRun {
        /// How far the step-run has come.
        status: Status => copy,
        /// The logical attempt, from 1. RETRY_STEP raises it.
        logical: u32 => copy,
        /// The number of the current or last execution. It rises with every claim, so a late result of an
        /// earlier execution is recognised by it.
        execution: u32 => copy,
        /// How many executions count against the maximum of attempts. A claim that answers a wait does not count, and
        /// neither does a claim that replaces a lost execution.
        tries: u32 => copy,
        /// How often an execution of this logical attempt was lost with its worker. Work that the engine stopped or
        /// gave back is not counted.
        #[serde(default, skip_serializing_if = "is_zero")]
        losses: u32 => copy,
        /// When a worker can claim the step-run at the earliest.
        visible_at: Time => copy,
        /// Whether the next claim does not count as a try: it answers a wait, or replaces a lost execution.
        woken: bool => copy,
        /// What the next or current claim is for.
        task: TaskKind => copy,
        /// The worker that has claimed the step-run, and until when.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<Lease> => opt(Lease),
        /// The wait that the step-run is in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait: Option<Box<WaitState>> => opt_deref(WaitState),
        /// The timer that is armed for the step-run, and the time when the timer is due.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timer: Option<(Time, TimerId)> => copy,
        /// When this logical attempt started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        started_at: Option<Time> => copy,
        /// When this logical attempt ended; absent while it is open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended_at: Option<Time> => copy,
        /// The version of the run's parameters that the step-run sees, as an index into `State::params`.
        params: u32 => copy,
        /// What operators had merged over the input of the step when this logical attempt started.
        #[serde(
            default,
            with = "super::encoding::maybe",
            skip_serializing_if = "Option::is_none"
        )]
        overrides: Option<Arc<Json>> => opt(Arc<Json>),
        /// The output of the work.
        #[serde(
            default,
            with = "super::encoding::maybe",
            skip_serializing_if = "Option::is_none"
        )]
        output: Option<Arc<Json>> => opt(Arc<Json>),
        /// The error of the last failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Arc<StepError>> => opt_deref(StepError),
        /// The content of the event that ended the wait, or the result of the child.
        #[serde(
            default,
            with = "super::encoding::maybe",
            skip_serializing_if = "Option::is_none"
        )]
        payload: Option<Arc<Json>> => opt(Arc<Json>),
        /// The data that the worker saved when it let the step wait. The next claim returns the data.
        #[serde(
            default,
            with = "super::encoding::maybe",
            skip_serializing_if = "Option::is_none"
        )]
        memo: Option<Arc<Json>> => opt(Arc<Json>),
        /// Why the step-run was skipped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        skip: Option<SkipReason> => copy,
        /// The answers of people, an approval before a completion.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        answers: Vec<ManualAnswer> => deref([ManualAnswer]),
        /// How far the undo of the step-run has come.
        compensation: UndoStatus => copy,
        /// Whether edges have handled the failure: another step continues the work.
        routed: bool => copy,
        /// Whether the work was cut off, so that nobody knows whether it had its effect.
        #[serde(default, skip_serializing_if = "is_false")]
        unknown: bool => copy,
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if passes a reference"
)]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !*value
}

impl StepRun {
    /// A step-run that a token has just reached.
    pub(in crate::evolve) fn new(status: Status, visible_at: Time) -> StepRun {
        StepRun {
            status,
            logical: 1,
            execution: 0,
            tries: 0,
            losses: 0,
            visible_at,
            woken: false,
            task: TaskKind::ReadyStep,
            lease: None,
            wait: None,
            timer: None,
            started_at: None,
            ended_at: None,
            params: 0,
            overrides: None,
            output: None,
            error: None,
            payload: None,
            memo: None,
            skip: None,
            answers: Vec::new(),
            compensation: UndoStatus::None,
            routed: false,
            unknown: false,
        }
    }

    /// Whether this logical attempt has started: the contract then speaks of FAILED, else of SKIPPED.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.started_at.is_some()
    }

    /// Whether a person has answered in this logical attempt, so that its gate is open.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        let mut answers = self.answers.iter();
        answers.any(|answer| answer.logical == self.logical)
    }

    /// Remembers how a person ended the open wait, by the token that the wait had.
    pub(in crate::evolve) fn remember_answer(&mut self, outcome: ManualOutcome) {
        let wait = self.wait.as_ref();
        if let Some(token_hash) = wait.and_then(|wait| wait.token_hash.clone()) {
            self.answers.push(ManualAnswer {
                logical: self.logical,
                token_hash,
                outcome,
            });
        }
    }

    /// The request key of the child run that it waits for.
    #[must_use]
    pub fn child(&self) -> Option<&str> {
        match &self.wait.as_ref()?.kind {
            WaitKind::Child { request_key, .. } => Some(request_key),
            WaitKind::Gate
            | WaitKind::Approval
            | WaitKind::Manual
            | WaitKind::Event { .. }
            | WaitKind::Timer { .. } => None,
        }
    }

    /// The type of the event that it waits for.
    #[must_use]
    pub fn listens_for(&self) -> Option<&str> {
        match &self.wait.as_ref()?.kind {
            WaitKind::Event { event_type, .. } => Some(event_type),
            WaitKind::Gate
            | WaitKind::Approval
            | WaitKind::Manual
            | WaitKind::Timer { .. }
            | WaitKind::Child { .. } => None,
        }
    }

    /// Whether an execution failed and the next one is not due yet.
    #[must_use]
    pub fn is_backing_off(&self) -> bool {
        self.status == Status::Ready && self.tries > 0 && !self.woken
    }
}
