//! Events about the run as a whole.

use super::lawful::{NO_STEP_RUN, Why, has_started, in_force, moving, need, visited};
use super::{Fold, MISPLACED, claimable_deadline};
use crate::codes;
use crate::command::TimerKind;
use crate::effect::{Effect, Priority, RunOutcome, Target};
use crate::event::{
    AdmissionVerdict, Body, StopCause, SuccessKind, TaskKind, notice_events, outcome_events,
    step_events, undo_events,
};
use crate::plan::{EntryPoint, Plan, StepNo, StepRef};
use crate::state::{Due, Pause, Phase, State, Status, StopState};

/// Whether an event of this group can follow the state.
pub(super) fn check(plan: &Plan, state: &State, body: &Body) -> Result<(), Why> {
    let phase = state.phase;
    match body {
        Body::RunCreated { .. } | Body::RunFailed { .. } => Ok(()),
        Body::RunQueued {} => need(phase == Phase::Created, "the run was not just created"),
        Body::RunApproved { .. } => {
            need(!has_started(phase), "the run has started already")?;
            need(!state.approved, "the run is approved already")
        }
        Body::RunStarted { .. } => need(!has_started(phase), "the run has started already"),
        Body::RunPaused { .. } => {
            moving(phase)?;
            need(state.pause.is_none(), "the run is paused already")
        }
        Body::RunResumed { ordinal } => in_force(state, *ordinal),
        Body::RunFinalizing { .. } => {
            let ended = phase == Phase::Running || phase == Phase::Stopping;
            need(ended, "the run is not running or stopping")?;
            let last = plan.policy().final_step;
            need(last.is_some(), "the plan has no final step")
        }
        Body::RunStopping { cause, .. } => {
            let stops = phase.is_moving() || phase == Phase::Stopping;
            need(stops, "the run is not running")?;
            match cause {
                StopCause::StepFailed { step } => visited(state, *step),
                StopCause::RunTimeout
                | StopCause::StallTimeout { .. }
                | StopCause::Cancel { .. }
                | StopCause::Emergency { .. } => Ok(()),
            }
        }
        Body::RunCompleted { .. } => moving(phase),
        Body::RunCancelled { .. } => {
            need(!phase.is_moving(), "the run is running and has not stopped")
        }
        notice_events!()
        | step_events!()
        | outcome_events!()
        | undo_events!()
        | Body::Opaque(_) => Err(MISPLACED),
    }
}

impl Fold<'_> {
    pub(super) fn apply_run(&mut self, body: &Body) -> Result<(), Why> {
        match body {
            Body::RunCreated {
                params,
                context,
                parent,
                original_run_id,
                start_after,
                ..
            } => {
                self.state.phase = Phase::Created;
                self.state.created_at = self.at;
                self.state.params = vec![params.clone()];
                self.state.context = context.clone();
                self.state.parent = parent.clone();
                self.state.original_run_id = original_run_id.clone();
                self.state.start_after = *start_after;
                self.effects.extend(start_after.map(Effect::WakeAt));
            }
            Body::RunQueued {} => self.state.phase = Phase::Queued,
            Body::RunApproved { .. } => self.state.approved = true,
            Body::RunStarted {
                engine,
                entry,
                deadline,
                ..
            } => {
                self.state.phase = Phase::Running;
                self.state.started_at = Some(self.at);
                self.state.engine = Some(engine.clone());
                if let Some(deadline) = deadline {
                    self.state
                        .timers
                        .arm_own(TimerKind::Run, *deadline, self.seq);
                }
                self.place_entry(*entry)?;
            }
            Body::RunPaused {
                ordinal,
                drain_deadline,
            } => {
                self.state.pause = Some(Pause {
                    ordinal: *ordinal,
                    drain_timed_out: false,
                });
                self.state.pauses = *ordinal;
                if let Some(deadline) = drain_deadline {
                    self.state
                        .timers
                        .arm_own(TimerKind::Drain, *deadline, self.seq);
                }
                self.effects.push(Effect::PauseChildren);
            }
            Body::RunResumed { .. } => {
                self.state.pause = None;
                self.state.timers.disarm_own(TimerKind::Drain);
                self.effects.push(Effect::ResumeChildren);
                self.offer_everything()?;
            }
            Body::RunFinalizing { summary, entry } => {
                self.state.phase = Phase::Finalizing;
                let last = self.plan.policy().final_step;
                let skipped = |no: &StepNo| self.state.steps[no.0 as usize].absorbed;
                if let Some(step) = last.filter(|no| !skipped(no)) {
                    self.visit(step, Some(summary.clone()), *entry)?;
                }
            }
            Body::RunStopping { cause, compensate } => self.stopping(cause, *compensate)?,
            Body::RunCompleted { success } => self.ended(match success {
                SuccessKind::Full => RunOutcome::Succeeded,
                SuccessKind::Partial => RunOutcome::Partial,
            }),
            Body::RunFailed {
                error,
                rollback,
                undos,
            } => {
                if error.code == codes::PLAN_INTEGRITY_VALIDATION_FAILED {
                    self.alert(
                        codes::PLAN_INTEGRITY_VALIDATION_FAILED,
                        Priority::P1,
                        error.message.clone(),
                    );
                }
                self.state.error = Some(error.clone());
                self.state.undos.clone_from(undos);
                self.ended(RunOutcome::Failed(*rollback));
            }
            Body::RunCancelled {
                rollback, undos, ..
            } => {
                self.state.undos.clone_from(undos);
                self.ended(RunOutcome::Cancelled(*rollback));
            }
            notice_events!()
            | step_events!()
            | outcome_events!()
            | undo_events!()
            | Body::Opaque(_) => {
                return Err(MISPLACED);
            }
        }
        Ok(())
    }

    /// Offers to workers what a pause held back.
    fn offer_everything(&mut self) -> Result<(), Why> {
        let offered = |status| matches!(status, Status::Ready | Status::Waiting);
        for at in open_runs(self.state, offered) {
            let run = self.state.run(at).ok_or(NO_STEP_RUN)?;
            match claimable_deadline(self.plan, run) {
                Some(deadline) => self.offer(at, deadline, TaskKind::WaitingTimeout),
                None if run.status == Status::Ready => self.dispatch(at)?,
                // It waits for something that no worker answers.
                None => {}
            }
        }
        Ok(())
    }

    fn place_entry(&mut self, verdict: AdmissionVerdict) -> Result<(), Why> {
        let plan = self.plan;
        match plan.policy().entry {
            EntryPoint::Step(step) => self.visit(step, None, verdict),
            EntryPoint::Roots => {
                let mut roots: Vec<StepNo> = plan
                    .numbers()
                    .filter(|no| plan.incoming(*no).is_empty())
                    .collect();
                roots.retain(|no| plan.policy().final_step != Some(*no));
                roots
                    .into_iter()
                    .try_for_each(|root| self.visit(root, None, AdmissionVerdict::Allowed))
            }
        }
    }

    /// Nothing fires any more. Work in flight is asked to stop, children are cancelled; the events that
    /// end each open step follow.
    fn stopping(&mut self, cause: &StopCause, compensate: bool) -> Result<(), Why> {
        self.state.stop = Some(StopState {
            cause: cause.clone(),
            compensate,
        });
        if self.state.phase == Phase::Stopping {
            // Only the cause or the mode has changed.
            return Ok(());
        }
        self.state.phase = Phase::Stopping;
        self.state.pause = None;
        self.state.stalled = None;
        // Nothing is due any more but the end of loops whose items have all ended.
        let mut due = std::mem::take(&mut self.state.due);
        due.retain(|due| match due {
            Due::Enter(at) => {
                let run = self.state.run(at);
                run.is_some_and(|run| run.status == Status::Looping)
            }
            Due::Route(_) | Due::Failure(_) => false,
        });
        self.state.due = due;
        self.state.timers.clear();
        for at in open_runs(self.state, |status| {
            matches!(status, Status::Running | Status::Waiting | Status::Held)
        }) {
            let run = self.state.run(at).ok_or(NO_STEP_RUN)?;
            if let Some(request_key) = run.child().map(str::to_owned) {
                self.effects.push(Effect::CancelChild {
                    step: at,
                    request_key,
                });
            }
            if run.lease.is_some() {
                let (target, execution) = (Target::Step(at), run.execution);
                self.effects.push(Effect::CancelWork { target, execution });
            }
            self.change(at, |run| {
                run.timer = None;
                // Nobody will deal with it any more.
                if run.status == Status::Held {
                    run.status = Status::Failed;
                }
            })?;
        }
        Ok(())
    }

    fn ended(&mut self, outcome: RunOutcome) {
        self.state.phase = Phase::Ended(outcome);
        self.state.ended_at = Some(self.at);
        self.state.pause = None;
        self.state.stalled = None;
        self.state.timers.clear();
        self.state.due.clear();
        self.state.inbox.clear();
        self.effects.push(Effect::RunEnded(outcome));
    }

    pub(super) fn alert(&mut self, code: &'static str, priority: Priority, message: String) {
        self.effects.push(Effect::Alert {
            code,
            priority,
            message,
        });
    }
}

/// All open step-runs in a condition, in plan order, items after their visit.
pub(crate) fn open_runs(state: &State, wanted: impl Fn(Status) -> bool) -> Vec<StepRef> {
    let is_wanted = |at: &StepRef| state.run(*at).is_some_and(|run| wanted(run.status));
    state.open.iter().copied().filter(is_wanted).collect()
}
