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
    /// A worker can claim it from `visible_at` on; after a failed execution that is the end of its backoff.
    Ready,
    /// A worker has claimed it.
    Running,
    /// It waits for a person, an event, time or a child run, without a worker.
    Waiting,
    /// The items of its loop run.
    Looping,
    /// It succeeded.
    Succeeded,
    /// It failed for good in this logical attempt.
    Failed,
    /// It failed for good and waits for an operator.
    Held,
    /// It will not run.
    Skipped,
    /// It was stopped before it ended by itself.
    Cancelled,
}

impl Status {
    /// Whether it can no longer change by itself.
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
        /// The condition it is in.
        status: Status => copy,
        /// The logical attempt, from 1. RETRY_STEP raises it.
        logical: u32 => copy,
        /// The number of the current or last execution. It rises with every claim, so a late result of an
        /// earlier execution is recognised by it.
        execution: u32 => copy,
        /// How many executions count against the maximum: a claim that answers a wait does not.
        tries: u32 => copy,
        /// When it may be claimed at the earliest.
        visible_at: Time => copy,
        /// Whether the next claim answers a wait, so that it does not count as a try.
        woken: bool => copy,
        /// What the next or current claim is for.
        task: TaskKind => copy,
        /// The worker that has it, and until when.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<Lease> => opt(Lease),
        /// The wait it is in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait: Option<Box<WaitState>> => opt_deref(WaitState),
        /// The timer that is armed for it, with the time it is due.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timer: Option<(Time, TimerId)> => copy,
        /// When this logical attempt started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        started_at: Option<Time> => copy,
        /// When it ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended_at: Option<Time> => copy,
        /// Which version of the run's parameters it sees, as an index into `State::params`.
        params: u32 => copy,
        /// What operators had merged over its input when this logical attempt started.
        #[serde(
            default,
            with = "super::encoding::maybe",
            skip_serializing_if = "Option::is_none"
        )]
        overrides: Option<Arc<Json>> => opt(Arc<Json>),
        /// The output it returned.
        #[serde(
            default,
            with = "super::encoding::maybe",
            skip_serializing_if = "Option::is_none"
        )]
        output: Option<Arc<Json>> => opt(Arc<Json>),
        /// The error of its last failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Arc<StepError>> => opt_deref(StepError),
        /// The payload of the event that ended its wait.
        #[serde(
            default,
            with = "super::encoding::maybe",
            skip_serializing_if = "Option::is_none"
        )]
        payload: Option<Arc<Json>> => opt(Arc<Json>),
        /// What the worker that let it wait wants to get back when the step runs again.
        #[serde(
            default,
            with = "super::encoding::maybe",
            skip_serializing_if = "Option::is_none"
        )]
        memo: Option<Arc<Json>> => opt(Arc<Json>),
        /// Why it was skipped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        skip: Option<SkipReason> => copy,
        /// The answers of people, an approval before a completion.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        answers: Vec<ManualAnswer> => deref([ManualAnswer]),
        /// How far its undoing has come.
        compensation: UndoStatus => copy,
        /// Whether edges that lead on have answered its failure: its work is another step's now.
        routed: bool => copy,
    }
}

impl StepRun {
    /// A step-run that a token has just reached.
    pub(in crate::evolve) fn new(status: Status, visible_at: Time) -> StepRun {
        StepRun {
            status,
            logical: 1,
            execution: 0,
            tries: 0,
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
