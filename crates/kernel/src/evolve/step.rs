//! Step events that do not end a step: claims, retries, waits, wake-ups.

use super::lawful::{
    NO_STEP_RUN, Why, is_one_of, need, next_execution, same_execution, same_logical, step_run,
};
use super::{Fold, MISPLACED, at_path, visit_of};
use crate::codes;
use crate::command::{ManualOutcome, TimerKind};
use crate::effect::{Effect, Priority, Target};
use crate::event::{
    Body, Lease, LoopItems, LoopStart, Loss, StepError, TaskKind, WaitKind, notice_events,
    outcome_events, run_events, undo_events,
};
use crate::plan::{ErrorClass, Plan, RunPolicy, StepRef, WaitTimeout};
use crate::state::{Due, LoopState, State, Status, StepRun, WaitState};
use crate::time::Time;

/// The reason for an event that ends a wait of a step-run that does not wait.
const NOT_WAITING: Why = "the step-run does not wait";

/// Counts an execution that was lost. The claim that replaces it is no new try of the work.
pub(super) fn count_loss(run: &mut StepRun, loss: Option<Loss>) {
    match loss {
        Some(Loss::Lost) => {
            run.losses += 1;
            run.woken = true;
        }
        Some(Loss::Released) => run.woken = true,
        None => {}
    }
}

/// Whether an event of this group can follow the state.
pub(super) fn check(plan: &Plan, state: &State, body: &Body) -> Result<(), Why> {
    match body {
        Body::StepStarted {
            step: at,
            logical,
            execution,
            lease,
            each,
        } => {
            let run = step_run(plan, state, *at)?;
            need(!run.has_started(), "the logical attempt has started")?;
            same_logical(run, *logical)?;
            next_execution(run, *execution)?;
            let expected: &[Status] = match (lease, each) {
                (Some(_), None) => &[Status::Ready],
                (None, None) => &[Status::Arrived, Status::Waiting],
                (None, Some(_)) if at.item.is_none() && plan.step(at.step).each.is_some() => {
                    &[Status::Arrived]
                }
                (_, Some(_)) => return Err("the step has no loop"),
            };
            is_one_of(run, expected)
        }
        Body::StepExecutionStarted {
            step: at,
            logical,
            execution,
            ..
        } => {
            let run = step_run(plan, state, *at)?;
            need(run.has_started(), "the logical attempt has not started")?;
            same_logical(run, *logical)?;
            next_execution(run, *execution)?;
            is_one_of(run, &[Status::Ready, Status::Waiting])
        }
        Body::StepExecutionFailed {
            step: at,
            logical,
            execution,
            ..
        } => {
            let run = step_run(plan, state, *at)?;
            same_logical(run, *logical)?;
            same_execution(run, *execution)?;
            is_one_of(run, &[Status::Running, Status::Waiting])
        }
        Body::StepWaiting {
            step: at,
            logical,
            execution,
            ..
        } => {
            let run = step_run(plan, state, *at)?;
            same_logical(run, *logical)?;
            same_execution(run, *execution)?;
            is_one_of(run, &[Status::Arrived, Status::Running])
        }
        Body::StepAnswered { step: at, .. }
        | Body::StepApproved { step: at, .. }
        | Body::StepWoken { step: at, .. } => {
            let run = step_run(plan, state, *at)?;
            is_one_of(run, &[Status::Waiting])?;
            need(run.wait.is_some(), "the step-run does not wait")
        }
        Body::StepHeld { step: at, .. } => {
            is_one_of(step_run(plan, state, *at)?, &[Status::Failed])
        }
        Body::StepRetried { step: at, logical } => {
            let run = step_run(plan, state, *at)?;
            need(at.item.is_none(), "an item is retried with its loop")?;
            need(*logical > run.logical, "the logical attempt does not rise")?;
            is_one_of(run, &[Status::Failed, Status::Held])
        }
        run_events!() | notice_events!() | outcome_events!() | undo_events!() | Body::Opaque(_) => {
            Err(MISPLACED)
        }
    }
}

impl Fold<'_> {
    pub(super) fn apply_step(&mut self, body: &Body) -> Result<(), Why> {
        match body {
            Body::StepStarted {
                step,
                logical,
                execution,
                lease,
                each,
            } => {
                self.started(*step, *logical, *execution, lease.as_ref(), each.as_ref())?;
            }
            Body::StepExecutionStarted {
                step,
                execution,
                lease,
                task,
                ..
            } => {
                self.executing(*step, *execution, lease, *task)?;
            }
            Body::StepExecutionFailed {
                step,
                execution,
                error,
                retry_at,
                loss,
                ..
            } => {
                self.execution_failed(*step, *execution, error, *retry_at, *loss)?;
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
                self.waiting(*step, *execution, wait, *deadline, token_hash.clone())?;
                let memo = memo.clone();
                self.change(*step, |run| run.memo = memo)?;
                self.effects
                    .extend(outbound.iter().cloned().map(Effect::Publish));
            }
            // Evidence: the event that follows changes the state.
            Body::StepAnswered { .. } => {}
            Body::StepApproved { step, by, .. } => {
                self.state.acted.push((step.step, by.clone()));
                let approve = |run: &mut StepRun| {
                    let wait = run.wait.as_mut().ok_or(NOT_WAITING)?;
                    wait.approvals.push(by.clone());
                    Ok::<(), Why>(())
                };
                self.change(*step, approve)??;
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
                self.woken(*step, |run| run.payload = payload)?;
            }
            Body::StepHeld { step, until } => {
                self.settle(Due::Failure(*step));
                self.change(*step, |run| run.status = Status::Held)?;
                self.arm(*step, TimerKind::Hold, *until)?;
            }
            Body::StepRetried { step, logical } => {
                self.settle(Due::Failure(*step));
                self.settle(Due::Route(*step));
                self.disarm(*step)?;
                let params = self.params_version();
                self.change(*step, |run| {
                    run.logical = *logical;
                    run.tries = 0;
                    run.losses = 0;
                    run.started_at = None;
                    run.ended_at = None;
                    run.task = TaskKind::ReadyStep;
                    run.payload = None;
                    run.memo = None;
                    run.params = params;
                })?;
                self.state.failures.retain(|failure| failure.step != *step);
                let visit = visit_of(&mut self.state.steps, *step).ok_or(NO_STEP_RUN)?;
                if let Some(each) = visit.each.take() {
                    visit.run.execution = visit.run.execution.max(each.highest);
                }
                self.enter(*step)?;
            }
            run_events!()
            | notice_events!()
            | outcome_events!()
            | undo_events!()
            | Body::Opaque(_) => {
                return Err(MISPLACED);
            }
        }
        Ok(())
    }

    fn started(
        &mut self,
        at: StepRef,
        logical: u32,
        execution: u32,
        lease: Option<&Lease>,
        each: Option<&LoopStart>,
    ) -> Result<(), Why> {
        // Before anything changes: the items may not be where the event says.
        let begun = each.map(|each| self.begun(each)).transpose()?;
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
        })?;
        if lease.is_some() {
            self.arm_attempt(at)?;
        }
        if let Some(begun) = begun {
            self.settle(Due::Enter(at));
            let visit = visit_of(&mut self.state.steps, at).ok_or(NO_STEP_RUN)?;
            visit.each = Some(Box::new(begun));
            self.advance_loop(at)?;
        }
        Ok(())
    }

    /// The loop that an event starts.
    fn begun(&self, each: &LoopStart) -> Result<LoopState, Why> {
        let window = each.window.max(1);
        let begun = match &each.items {
            LoopItems::Inline(items) => LoopState::new(items.clone(), window),
            LoopItems::Reference(list) => {
                LoopState::by_reference(list.clone(), each.count as usize, window)
            }
            LoopItems::Path(path) => {
                let value = at_path(self.plan, self.state, path);
                let list = value.as_deref().and_then(|value| value.as_array().cloned());
                let list = list.ok_or("there is no list at the path of the loop's items")?;
                LoopState::new(std::sync::Arc::new(list), window)
            }
        };
        if begun.count() == each.count {
            Ok(begun)
        } else {
            Err("the loop has another number of items")
        }
    }

    fn arm_attempt(&mut self, at: StepRef) -> Result<(), Why> {
        match self.plan.step(at.step).timeout_ms {
            Some(timeout) => self.arm(at, TimerKind::Attempt, self.at.plus(timeout)),
            None => Ok(()),
        }
    }

    fn executing(
        &mut self,
        at: StepRef,
        execution: u32,
        lease: &Lease,
        task: TaskKind,
    ) -> Result<(), Why> {
        self.disarm(at)?;
        self.change(at, |run| {
            run.execution = execution;
            // A claim that answers a wait or replaces a lost execution is not a new try of the work.
            let answers = run.woken || run.status == Status::Waiting;
            if !answers {
                run.tries += 1;
            }
            run.woken = false;
            run.task = task;
            run.wait = None;
            run.lease = Some(lease.clone());
            run.status = Status::Running;
        })?;
        self.arm_attempt(at)
    }

    fn execution_failed(
        &mut self,
        at: StepRef,
        execution: u32,
        error: &StepError,
        retry_at: Time,
        loss: Option<Loss>,
    ) -> Result<(), Why> {
        self.disarm(at)?;
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
            count_loss(run, loss);
            run.lease.take().is_some()
        })?;
        if had_lease && error.class == ErrorClass::Timeout {
            self.effects.push(Effect::CancelWork {
                target: Target::Step(at),
                execution,
            });
        }
        let losses = self.state.run(at).map_or(0, StepRun::losses);
        self.announce_losses(Target::Step(at), loss, losses);
        self.dispatch(at)
    }

    /// An operator learns about work that is lost again and again: perhaps it kills its workers.
    pub(super) fn announce_losses(&mut self, target: Target, loss: Option<Loss>, losses: u32) {
        if loss != Some(Loss::Lost) || losses != RunPolicy::ALERT_LOSSES {
            return;
        }
        let at = target.step_ref();
        let step = self.plan.step(at.step);
        let (what, most) = match target {
            Target::Step(_) => ("", step.max_losses.unwrap_or(RunPolicy::MAX_LOSSES)),
            Target::Undo(_) => ("the undo of ", RunPolicy::MAX_LOSSES),
        };
        let message = format!(
            "{what}{} has been lost {losses} times with its worker; it fails after {most} losses. \
             Check whether the work ends or overloads its worker",
            self.plan.step_id(at)
        );
        self.alert(codes::STEP_LOST_REPEATEDLY, Priority::P2, message);
    }

    fn waiting(
        &mut self,
        at: StepRef,
        execution: u32,
        wait: &WaitKind,
        deadline: Option<Time>,
        token_hash: Option<String>,
    ) -> Result<(), Why> {
        self.disarm(at)?;
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
        })?;
        let handlers = matches!(wait, WaitKind::Event { rerun: true, .. });
        if let Some(deadline) = deadline {
            match self.plan.policy().wait_timeout {
                WaitTimeout::Claim if handlers => {
                    self.offer(at, deadline, TaskKind::WaitingTimeout)
                }
                WaitTimeout::Ignore if handlers => {}
                WaitTimeout::Claim | WaitTimeout::Ignore | WaitTimeout::Fail => {
                    self.arm(at, TimerKind::Wait, deadline)?;
                }
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
        Ok(())
    }

    /// The wait is over: the step is entered again, or may be claimed again.
    fn woken(&mut self, at: StepRef, set: impl FnOnce(&mut StepRun)) -> Result<(), Why> {
        self.disarm(at)?;
        let now = self.at;
        let kind = self.change(at, |run| {
            set(run);
            run.remember_answer(ManualOutcome::Succeeded);
            run.wait.take().map(|wait| wait.kind)
        })?;
        match kind.ok_or(NOT_WAITING)?.reruns() {
            true => {
                self.change(at, |run| {
                    run.status = Status::Ready;
                    run.woken = true;
                    run.visible_at = now;
                })?;
                self.revive();
                self.dispatch(at)
            }
            false => self.enter(at),
        }
    }
}
