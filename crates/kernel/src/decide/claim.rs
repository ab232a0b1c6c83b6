//! Claims: a worker takes a step or an undo. The claim and its event are one commit, so nothing is
//! ever worked on that is not in the log.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | Running or Finalizing, a step-run is Ready, `ClaimStep` | `StepStarted` for the first execution of a logical attempt, else `StepExecutionStarted` | `INVALID_ID`, `LEASE_LOST`, `STEP_NOT_ELIGIBLE` before its time |
//! | Running or Finalizing, a wait ran out that a worker answers, `ClaimStep` | `StepExecutionStarted` | `STEP_NOT_ELIGIBLE` before its deadline |
//! | Compensating, an undo is Ready, `ClaimStep` | `UndoStarted` | `STEP_NOT_ELIGIBLE` once the undoing is halted |
//! | any other state, `ClaimStep` | – | `RUN_TERMINAL`, `RUN_STOPPING`, `RUN_NOT_RUNNING`, `RUN_PAUSED`, `STEP_NOT_ELIGIBLE`, `STEP_TERMINAL` |
//! | a result of any kind (used by `report.rs`) | – | `STEP_NOT_RUNNING`, `STALE_EXECUTION`, `LEASE_LOST` |

use super::{Decider, Handled, reject, terminal};
use crate::command::{Claim, Claimed, Reply};
use crate::effect::Target;
use crate::event::{Body, Lease, TaskKind};
use crate::evolve::claimable_deadline;
use crate::keys;
use crate::plan::StepRef;
use crate::rejection::{Code, Rejection};
use crate::scope;
use crate::state::{Phase, Status, StepRun};
use crate::time::Time;

impl Decider<'_> {
    pub(super) fn claim(&mut self, target: Target, worker: String, lease_until: Time) -> Handled {
        if worker.is_empty() || worker.len() > 300 {
            return reject(
                Code::InvalidId,
                "a worker needs an id of 1 to 300 characters",
            );
        }
        if lease_until < self.now {
            return reject(
                Code::LeaseLost,
                "the lease would have ended before it began",
            );
        }
        match (self.state.phase(), target) {
            (Phase::Ended(_), _) => return terminal(),
            (Phase::Compensating, Target::Undo(_))
            | (Phase::Running | Phase::Finalizing, Target::Step(_)) => {}
            (Phase::Stopping | Phase::Compensating, _) => {
                return reject(Code::RunStopping, "the run is stopping: nothing new starts");
            }
            _ => return reject(Code::RunNotRunning, "the run has not started"),
        }
        if self.state.pause().is_some() {
            return reject(
                Code::RunPaused,
                "the run is paused: nothing new starts until RESUME",
            );
        }
        let Some(run) = self.state.target(target) else {
            return reject(Code::StepNotEligible, "no token has reached this step");
        };
        let task = self.claimable(run, target)?;
        let lease = Lease {
            worker: worker.clone(),
            until: lease_until,
        };
        let (logical, execution, fresh) = (run.logical(), run.execution() + 1, !run.has_started());
        match target {
            Target::Step(step) if fresh => {
                self.emit(Body::StepStarted {
                    step,
                    logical,
                    execution,
                    lease: Some(lease),
                    each: None,
                });
            }
            Target::Step(step) => {
                self.emit(Body::StepExecutionStarted {
                    step,
                    logical,
                    execution,
                    lease,
                    task,
                });
            }
            Target::Undo(step) => self.emit(Body::UndoStarted {
                step,
                execution,
                lease,
            }),
        }
        let claim = Claim {
            target,
            execution,
            worker,
            lease_until: Some(lease_until),
        };
        Ok(Reply::Claimed(Box::new(self.claimed(claim, logical, task))))
    }

    /// Whether it can be claimed now, and as what.
    fn claimable(&self, run: &StepRun, target: Target) -> Result<TaskKind, Rejection> {
        match run.status() {
            Status::Ready if run.visible_at() <= self.now => {
                let halted = self.state.undoing().is_some_and(|undoing| undoing.halted());
                if matches!(target, Target::Undo(_)) && halted {
                    return reject(Code::StepNotEligible, "no further undo is started");
                }
                Ok(run.task())
            }
            Status::Ready => reject(
                Code::StepNotEligible,
                format!("not to be claimed before {}", run.visible_at()),
            ),
            Status::Waiting => {
                let deadline = claimable_deadline(self.plan, run);
                if deadline.is_some_and(|deadline| deadline <= self.now) {
                    return Ok(TaskKind::WaitingTimeout);
                }
                reject(Code::StepNotEligible, "the step waits")
            }
            Status::Running => reject(Code::StepNotEligible, "another worker has it"),
            Status::Arrived | Status::Denied | Status::Looping | Status::Held => reject(
                Code::StepNotEligible,
                "there is nothing for a worker to do yet",
            ),
            Status::Succeeded | Status::Failed | Status::Skipped | Status::Cancelled => {
                reject(Code::StepTerminal, "the step has ended")
            }
        }
    }

    fn claimed(&self, claim: Claim, logical: u32, task: TaskKind) -> Claimed {
        let at = claim.target.step_ref();
        let step_id = self.plan.step_id(at);
        let idempotency_key = match claim.target {
            Target::Step(_) => keys::step_key(self.state.run_id(), &step_id, logical),
            Target::Undo(_) => keys::undo_key(self.state.run_id(), &step_id),
        };
        // An undo sees what the step saw that it undoes.
        let seen = self.state.run(at);
        let claimed_run = self.state.target(claim.target);
        let version = seen.map_or(0, |run| run.params() as usize);
        let reads = self.plan.reads(at.step);
        Claimed {
            step: at.step,
            logical,
            idempotency_key,
            attempt: claimed_run.map_or(1, |run| run.tries().max(1)),
            fence: keys::fence(self.now, self.state.seq()),
            task,
            args: self.state.visit(at).and_then(|visit| visit.args().cloned()),
            item: self.item(at),
            payload: claimed_run.and_then(|run| run.payload().cloned()),
            overrides: seen.and_then(|run| run.overrides().cloned()),
            target: self.state.targets().get(&at.step).cloned(),
            params: self
                .state
                .params()
                .get(version)
                .cloned()
                .unwrap_or_default(),
            memo: claimed_run.and_then(|run| run.memo().cloned()),
            ctx: scope::seen_ctx(self.state, &reads.ctx),
            outputs: scope::seen_outputs(self.plan, self.state, &reads.steps),
            step_id,
            claim,
        }
    }

    fn item(&self, at: StepRef) -> Option<serde_json::Value> {
        let each = self.state.visit(at)?.each()?;
        each.item(at.item?)
    }

    /// The step-run a result is about, if the result may still be recorded.
    pub(super) fn check_claim(&self, claim: &Claim) -> Result<&StepRun, Rejection> {
        let Some(run) = self.state.target(claim.target) else {
            return reject(Code::StepNotRunning, "there is no such execution");
        };
        if claim.execution != run.execution() {
            let message = format!(
                "execution {} is no longer current, {} is",
                claim.execution,
                run.execution()
            );
            return reject(Code::StaleExecution, message);
        }
        let Some(lease) = run.lease().filter(|_| run.status() == Status::Running) else {
            return reject(Code::StepNotRunning, "the execution has ended");
        };
        if lease.worker != claim.worker {
            return reject(Code::LeaseLost, "the lease belongs to another worker");
        }
        let until = claim.lease_until.unwrap_or(lease.until);
        if until < self.now {
            return reject(Code::LeaseLost, format!("the lease ended at {until}"));
        }
        Ok(run)
    }
}
