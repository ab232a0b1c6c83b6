//! A step-run: one visit of a step, one item of a loop, or one undo. All three have executions,
//! leases, waits and timers, and share this shape.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

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
    /// It can be claimed from `visible_at` on; after a failed execution that is its backoff.
    Ready,
    /// A worker has it.
    Running,
    /// It waits without a worker.
    Waiting,
    /// Its items run.
    Looping,
    /// It succeeded.
    Succeeded,
    /// It failed for good in this logical attempt.
    Failed,
    /// It failed for good and waits for an operator.
    Held,
    /// It will not run.
    Skipped,
    /// It was stopped.
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

/// What a step-run waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitState {
    /// For what.
    pub kind: WaitKind,
    /// Until when.
    pub deadline: Option<Time>,
    /// Hash of the completion token.
    pub token_hash: Option<String>,
    /// Who has approved so far.
    pub approvals: Vec<String>,
}

impl WaitState {
    /// Whether something outside the engine must happen: a person or an event.
    #[must_use]
    pub fn is_outside(&self) -> bool {
        matches!(
            self.kind,
            WaitKind::Gate | WaitKind::Approval | WaitKind::Manual | WaitKind::Event { .. }
        )
    }
}

/// A person's answer that was taken, so that a repeated one is recognised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManualAnswer {
    /// The logical attempt that it was given to.
    pub logical: u32,
    /// Hash of the token it came with.
    pub token_hash: String,
    /// What it was.
    pub outcome: ManualOutcome,
}

/// How far the undoing of a step came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoStatus {
    /// Nothing is to be undone.
    #[default]
    None,
    /// It is to be undone.
    Due,
    /// It is being undone.
    Running,
    /// It is undone.
    Done,
    /// It could not be undone.
    Failed,
    /// There is no undo for it.
    NotCompensable,
}

/// One visit, item or undo.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRun {
    /// Its condition.
    pub status: Status,
    /// Logical attempt, from 1.
    pub logical: u32,
    /// Executions so far, over all logical attempts' claims of this one: the fence.
    pub execution: u32,
    /// Executions that count against the maximum: re-claims after a wait do not.
    pub tries: u32,
    /// Not to be claimed before.
    pub visible_at: Time,
    /// The next claim is the answer to a wait, so it does not count.
    pub woken: bool,
    /// What the next or current claim is for.
    pub task: TaskKind,
    /// Who works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Box<WaitState>>,
    /// The timer that is armed for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<(Time, TimerId)>,
    /// When this logical attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// Which version of the parameters it sees.
    pub params: u32,
    /// What an operator had merged over its input when this logical attempt started.
    #[serde(
        default,
        with = "super::frozen::maybe",
        skip_serializing_if = "Option::is_none"
    )]
    pub overrides: Option<Arc<Json>>,
    /// What it returned.
    #[serde(
        default,
        with = "super::frozen::maybe",
        skip_serializing_if = "Option::is_none"
    )]
    pub output: Option<Arc<Json>>,
    /// Why it failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<StepError>>,
    /// The payload of the event that woke it.
    #[serde(
        default,
        with = "super::frozen::maybe",
        skip_serializing_if = "Option::is_none"
    )]
    pub payload: Option<Arc<Json>>,
    /// What the worker that let it wait wants to be told.
    #[serde(
        default,
        with = "super::frozen::maybe",
        skip_serializing_if = "Option::is_none"
    )]
    pub memo: Option<Arc<Json>>,
    /// Why it was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<SkipReason>,
    /// What people have answered, an approval before a completion.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<ManualAnswer>,
    /// How far its undoing came.
    pub compensation: UndoStatus,
    /// Its failure was answered by edges that lead on: what it was for is another step's now.
    pub routed: bool,
}

impl StepRun {
    /// A step-run that a token has just reached.
    #[must_use]
    pub fn new(status: Status, visible_at: Time) -> StepRun {
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

    /// Remembers that a person ended the open wait like this, by the token the wait had.
    pub fn remember_answer(&mut self, outcome: ManualOutcome) {
        let wait = self.wait.as_ref();
        if let Some(token_hash) = wait.and_then(|wait| wait.token_hash.clone()) {
            self.answers.push(ManualAnswer {
                logical: self.logical,
                token_hash,
                outcome,
            });
        }
    }

    /// The key of the child that it waits for.
    #[must_use]
    pub fn child(&self) -> Option<&String> {
        match &self.wait.as_ref()?.kind {
            WaitKind::Child { request_key, .. } => Some(request_key),
            _ => None,
        }
    }

    /// The type of the event that it waits for.
    #[must_use]
    pub fn listens_for(&self) -> Option<&str> {
        match &self.wait.as_ref()?.kind {
            WaitKind::Event { event_type, .. } => Some(event_type),
            _ => None,
        }
    }

    /// Whether an execution failed and the next one is not due yet.
    #[must_use]
    pub fn is_backing_off(&self) -> bool {
        self.status == Status::Ready && self.tries > 0 && !self.woken
    }
}
