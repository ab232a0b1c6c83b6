//! Step events that do not end a step: claims, retries, waits, wake-ups.

use super::Fold;
use super::at_path;
use crate::command::{ManualOutcome, TimerKind};
use crate::effect::{Effect, Target};
use crate::event::{Body, Lease, LoopItems, LoopStart, StepError, TaskKind, WaitKind};
use crate::plan::{ErrorClass, StepRef, WaitTimeout};
use crate::state::{Due, LoopState, Status, WaitState};
use crate::time::Time;

impl Fold<'_> {
    pub(super) fn apply_step(&mut self, body: &Body) {
        match body {
            Body::StepStarted {
                step,
                logical,
                execution,
                lease,
                each,
            } => {
                self.started(*step, *logical, *execution, lease.as_ref(), each.as_ref());
            }
            Body::StepExecutionStarted {
                step,
                execution,
                lease,
                task,
                ..
            } => {
                self.executing(*step, *execution, lease, *task);
            }
            Body::StepExecutionFailed {
                step,
                execution,
                error,
                retry_at,
                ..
            } => {
                self.execution_failed(*step, *execution, error, *retry_at);
            }
            Body::StepWaiting {
                step,
                execution,
                wait,
                deadline,
                token_hash,
                outbound,
                memo,
                ..
            } => {
                self.waiting(*step, *execution, wait, *deadline, token_hash.clone());
                let memo = memo.clone();
                self.change(*step, |run| run.memo = memo);
                self.effects
                    .extend(outbound.iter().cloned().map(Effect::Publish));
            }
            Body::StepApproved { step, by, .. } => {
                self.state.acted.push((step.step, by.clone()));
                self.change(*step, |run| {
                    if let Some(wait) = &mut run.wait {
                        wait.approvals.push(by.clone());
                    }
                });
            }
            Body::StepWoken {
                step,
                event_id,
                payload,
                by,
                ..
            } => {
                if let Some(id) = event_id {
                    self.state.inbox.retain(|kept| kept.id != *id);
                    self.state.seen_events.insert(id.clone());
                }
                if let Some(by) = by {
                    self.state.acted.push((step.step, by.clone()));
                }
                let payload = payload.clone();
                self.woken(*step, |run| run.payload = payload);
            }
            Body::StepHeld { step, until } => {
                self.settle(Due::Failure(*step));
                self.change(*step, |run| run.status = Status::Held);
                self.arm(*step, TimerKind::Hold, *until);
            }
            Body::StepRetried { step, logical } => {
                self.settle(Due::Failure(*step));
                self.settle(Due::Route(*step));
                self.disarm(*step);
                let params = self.params_version();
                self.change(*step, |run| {
                    run.logical = *logical;
                    run.tries = 0;
                    run.started_at = None;
                    run.ended_at = None;
                    run.task = TaskKind::ReadyStep;
                    run.payload = None;
                    run.memo = None;
                    run.params = params;
                });
                self.state.failures.retain(|failure| failure.step != *step);
                if let Some(visit) = self.visit_mut(*step)
                    && let Some(each) = visit.each.take()
                {
                    visit.run.execution = visit.run.execution.max(each.highest);
                }
                self.enter(*step);
            }
            _ => {}
        }
    }

    fn visit_mut(&mut self, at: StepRef) -> Option<&mut crate::state::Visit> {
        self.state
            .steps
            .get_mut(at.step.0 as usize)?
            .visits
            .get_mut((at.visit as usize).checked_sub(1)?)
    }

    fn started(
        &mut self,
        at: StepRef,
        logical: u32,
        execution: u32,
        lease: Option<&Lease>,
        each: Option<&LoopStart>,
    ) {
        let now = self.at;
        let params = self.params_version();
        let overrides = self.state.overrides.get(&at.step).cloned();
        self.change(at, |run| {
            run.logical = logical;
            run.execution = execution;
            run.tries += 1;
            run.started_at = Some(now);
            run.params = params;
            run.overrides = overrides;
            run.lease = lease.cloned();
            run.status = match (lease, each) {
                (Some(_), _) => Status::Running,
                (None, Some(_)) => Status::Looping,
                (None, None) => Status::Arrived,
            };
        });
        if lease.is_some() {
            self.arm_attempt(at);
        }
        if let Some(each) = each {
            self.settle(Due::Enter(at));
            let window = each.window.max(1);
            let begun = match &each.items {
                LoopItems::Inline(items) => LoopState::new(items.clone(), window),
                LoopItems::Reference(list) => {
                    LoopState::by_reference(list.clone(), each.count as usize, window)
                }
                LoopItems::Path(path) => {
                    let value = at_path(self.plan, self.state, path);
                    let list = value.as_deref().and_then(|value| value.as_array().cloned());
                    LoopState::new(std::sync::Arc::new(list.unwrap_or_default()), window)
                }
            };
            if let Some(visit) = self.visit_mut(at) {
                visit.each = Some(Box::new(begun));
            }
            self.advance_loop(at);
        }
    }

    fn arm_attempt(&mut self, at: StepRef) {
        if let Some(timeout) = self.plan.step(at.step).timeout_ms {
            self.arm(at, TimerKind::Attempt, self.at.plus(timeout));
        }
    }

    fn executing(&mut self, at: StepRef, execution: u32, lease: &Lease, task: TaskKind) {
        self.disarm(at);
        self.change(at, |run| {
            run.execution = execution;
            // A claim that answers a wait is not a new try of the work.
            let answers = run.woken || run.status == Status::Waiting;
            if !answers {
                run.tries += 1;
            }
            run.woken = false;
            run.task = task;
            run.wait = None;
            run.lease = Some(lease.clone());
            run.status = Status::Running;
        });
        self.arm_attempt(at);
    }

    fn execution_failed(&mut self, at: StepRef, execution: u32, error: &StepError, retry_at: Time) {
        self.disarm(at);
        let lost = error.class == ErrorClass::LeaseLost;
        let had_lease = self.change(at, |run| {
            run.status = Status::Ready;
            run.visible_at = retry_at;
            run.error = Some(std::sync::Arc::new(error.clone()));
            run.wait = None;
            // Work that was lost is asked for again as what it was; a failed answer is ordinary work.
            if !lost {
                run.task = TaskKind::ReadyStep;
                run.memo = None;
            }
            run.lease.take().is_some()
        });
        if had_lease == Some(true) && error.class == ErrorClass::Timeout {
            self.effects.push(Effect::CancelWork {
                target: Target::Step(at),
                execution,
            });
        }
        self.dispatch(at);
    }

    fn waiting(
        &mut self,
        at: StepRef,
        execution: u32,
        wait: &WaitKind,
        deadline: Option<Time>,
        token_hash: Option<String>,
    ) {
        self.disarm(at);
        self.settle(Due::Enter(at));
        let needs_token = token_hash.is_some();
        self.change(at, |run| {
            run.status = Status::Waiting;
            run.execution = execution;
            run.lease = None;
            run.woken = false;
            run.task = TaskKind::ReadyStep;
            run.payload = None;
            run.wait = Some(Box::new(WaitState {
                kind: wait.clone(),
                deadline,
                token_hash,
                approvals: Vec::new(),
            }));
        });
        let handlers = matches!(wait, WaitKind::Event { rerun: true, .. });
        if let Some(deadline) = deadline {
            match self.plan.policy().wait_timeout {
                WaitTimeout::Claim if handlers => {
                    self.offer(at, deadline, TaskKind::WaitingTimeout)
                }
                WaitTimeout::Ignore if handlers => {}
                _ => self.arm(at, TimerKind::Wait, deadline),
            }
        }
        if needs_token {
            self.effects.push(Effect::IssueToken {
                step: at,
                execution,
            });
        }
        if let WaitKind::Child {
            request_key, input, ..
        } = wait
        {
            self.effects.push(Effect::StartChild {
                step: at,
                request_key: request_key.clone(),
                input: input.clone(),
            });
        }
    }

    /// The wait is over: the step is entered again, or may be claimed again.
    fn woken(&mut self, at: StepRef, set: impl FnOnce(&mut crate::state::StepRun)) {
        self.disarm(at);
        let now = self.at;
        let kind = self.change(at, |run| {
            set(run);
            run.remember_answer(ManualOutcome::Succeeded);
            run.wait.take().map(|wait| wait.kind)
        });
        match kind.flatten() {
            Some(kind) if kind.reruns() => {
                self.change(at, |run| {
                    run.status = Status::Ready;
                    run.woken = true;
                    run.visible_at = now;
                });
                self.revive();
                self.dispatch(at);
            }
            Some(_) => self.enter(at),
            None => {}
        }
    }
}
