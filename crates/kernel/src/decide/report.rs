//! Results: what a worker says about work it claimed. A result whose execution is not current, whose
//! lease is lost or whose step has ended changes nothing.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | a lease is held, `CompleteStep` | `StepCompleted`; a wait for a person where a person must complete it; `UndoCompleted` for an undo | what `claim.rs` says about a result |
//! | a lease is held, `FailStep` | `CtxPatched` before a failure for good, then what `failure.rs` says | what `claim.rs` says about a result |
//! | a lease is held, `WaitStep` | what `enter.rs` says about a wait; the step ends where the run stops | `INVALID_TRANSITION` for an undo or a wait without an end, `NOT_MANUAL`, `INVALID_ID` |
//! | a lease is held, `ConfirmKill` | the step ends where the run stops, else what `failure.rs` says about work that was stopped | what `claim.rs` says about a result |
//! | a lease has run out, `ExpireLease` | the step ends where the run stops, else what `failure.rs` says about a loss | `LEASE_ALIVE` |
//! | any other state, `ExpireLease` | – | `STEP_NOT_RUNNING`, `STALE_EXECUTION` |
//! | the step has ended with this execution, a result of the same kind again | nothing: the first answer is repeated, and says whether the first result was another one | – |

use std::sync::Arc;

use serde_json::Value as Json;

use super::{Decider, Handled, reject};
use crate::codes;
use crate::command::{Claim, EarlierResult, LeaseEnd, Reply, WaitFor};
use crate::effect::Target;
use crate::event::{ArtifactRef, Body, Loss, Patch, StepError, WaitKind};
use crate::plan::{Completion, ErrorClass, Route, StepRef};
use crate::rejection::{Code, Rejection};
use crate::scope::Boundary;
use crate::state::{ItemResult, Phase, Status};
use crate::time::{LONGEST_WAIT_MS, Time};

impl Decider<'_> {
    pub(super) fn complete(
        &mut self,
        claim: &Claim,
        output: Json,
        ctx: Patch,
        artifacts: Vec<ArtifactRef>,
    ) -> Handled {
        if let Err(rejection) = self.check_claim(claim) {
            return self.repeated(claim, Ok(&output), rejection);
        }
        let at = match claim.target {
            Target::Step(at) => at,
            Target::Undo(at) => {
                self.emit(Body::UndoCompleted {
                    step: at,
                    execution: claim.execution,
                });
                return Ok(Reply::Done);
            }
        };
        let step = self.plan.step(at.step);
        if step.completion == Completion::Manual {
            // The worker's part is done; only a person can say that the step has succeeded.
            if self.state.phase().is_moving() {
                let done = super::people::worker_part(&output, &ctx, &artifacts);
                self.begin_wait(
                    at,
                    claim.execution,
                    WaitKind::Manual,
                    None,
                    Vec::new(),
                    done,
                );
            } else {
                self.cancel_step(at, "the run is stopping");
            }
            return Ok(Reply::Done);
        }
        self.succeed(at, claim.execution, Arc::new(output), ctx, artifacts, None);
        Ok(Reply::Done)
    }

    /// Records a success, with the patches and routes that follow from it. What cannot be evaluated
    /// fails the step instead.
    pub(super) fn succeed(
        &mut self,
        at: StepRef,
        execution: u32,
        output: Arc<Json>,
        ctx: Patch,
        artifacts: Vec<ArtifactRef>,
        by: Option<String>,
    ) {
        let Some(run) = self.state.run(at) else {
            return self.missing(at);
        };
        let logical = run.logical();
        let step = self.plan.step(at.step);
        let event = if step.each.is_some() {
            "loop.done"
        } else {
            "step.done"
        };
        let mut boundary = Boundary {
            event: Some(event),
            this: Some((at.step, output.clone())),
            error: None,
            args: self.state.visit(at).and_then(|visit| visit.args().cloned()),
            patch: ctx,
            item: None,
        };
        let mut routing = None;
        if at.item.is_none() && self.state.phase().is_moving() {
            if let Err(error) = self.patch_at_boundary(&step.set_ctx, &mut boundary) {
                return self.fail_for_good(at, execution, error, None);
            }
            if step.route != Route::Edges && self.state.pause().is_none() {
                let routed = self.route(at, &boundary);
                match routed.error {
                    Some(error) if error.class == ErrorClass::Expression => {
                        return self.fail_for_good(at, execution, error, None);
                    }
                    _ => routing = Some(routed),
                }
            }
        }
        // A loop's output is the outputs of its items, which are in the log already.
        let looped = at.item.is_none() && step.each.is_some();
        let output = (!looped && !output.is_null()).then_some(output);
        let ctx = boundary.patch;
        let unrouted = routing.as_ref().is_some_and(|it| it.error.is_some());
        self.emit(Body::StepCompleted {
            step: at,
            logical,
            execution,
            output,
            artifacts,
            ctx,
            routing,
            by,
        });
        if unrouted {
            self.stop_if_unhandled(at);
        }
    }

    pub(super) fn fail(
        &mut self,
        claim: &Claim,
        error: StepError,
        retryable: Option<bool>,
        delay_ms: Option<u64>,
        ctx: Patch,
    ) -> Handled {
        if let Err(rejection) = self.check_claim(claim) {
            return self.repeated(claim, Err(&error), rejection);
        }
        let again = self.retries_at(claim.target, error.class, retryable, delay_ms);
        // What the work wants known is known before anyone looks at its failure.
        if again.is_none() && !ctx.is_empty() && self.state.phase().is_moving() {
            let by = claim.worker.clone();
            self.emit(Body::CtxPatched { by, ctx });
        }
        self.execution_failed(claim.target, claim.execution, error, retryable, delay_ms);
        Ok(Reply::Done)
    }

    pub(super) fn wait(
        &mut self,
        claim: &Claim,
        wait: &WaitFor,
        timeout_ms: Option<u64>,
        outbound: Vec<Json>,
        memo: Option<Json>,
    ) -> Handled {
        self.check_claim(claim)?;
        let Target::Step(at) = claim.target else {
            return reject(Code::InvalidTransition, "an undo cannot wait");
        };
        let kind = match wait {
            WaitFor::Manual if self.plan.step(at.step).completion != Completion::Manual => {
                return reject(Code::NotManual, "the step's completion mode is not manual");
            }
            WaitFor::Event { event_type } if event_type.is_empty() || event_type.len() > 200 => {
                return reject(Code::InvalidId, "an event type has 1 to 200 characters");
            }
            WaitFor::Timer if timeout_ms.is_none() => {
                return reject(Code::InvalidTransition, "a wait for time needs a timeout");
            }
            WaitFor::Manual => WaitKind::Manual,
            WaitFor::Event { event_type } => WaitKind::Event {
                event_type: event_type.clone(),
                rerun: true,
            },
            WaitFor::Timer => WaitKind::Timer { rerun: true },
            WaitFor::Child { call, input } => WaitKind::Child {
                request_key: self.child_key(at, claim.execution),
                input: Arc::new(input.clone()),
                call: Some(call.clone()),
            },
        };
        if !self.state.phase().is_moving() {
            // Nothing waits in a run that stops.
            self.cancel_step(at, "the run is stopping");
            return Ok(Reply::Done);
        }
        // A run that does a part of the step's work has no more time than the step.
        let is_child = matches!(kind, WaitKind::Child { .. });
        let limit = self.plan.step(at.step).timeout_ms.filter(|_| is_child);
        let timeout_ms = timeout_ms.into_iter().chain(limit).min();
        let deadline = timeout_ms.map(|timeout| self.now.plus(timeout.min(LONGEST_WAIT_MS)));
        self.begin_wait(at, claim.execution, kind, deadline, outbound, memo);
        Ok(Reply::Done)
    }

    pub(super) fn confirm_kill(&mut self, claim: &Claim) -> Handled {
        self.check_claim(claim)?;
        match claim.target {
            Target::Step(at) if self.state.phase() == Phase::Stopping => {
                self.cancel_step(at, "stopped while it was running");
            }
            target @ (Target::Step(_) | Target::Undo(_)) => {
                let error = StepError::new(
                    ErrorClass::LeaseLost,
                    codes::KILLED,
                    "the worker was stopped",
                );
                // A server that stops its work is to blame, not the work.
                self.execution_lost(target, claim.execution, error, Loss::Released);
            }
        }
        Ok(Reply::Done)
    }

    pub(super) fn expire_lease(
        &mut self,
        target: Target,
        execution: u32,
        lease_until: Option<Time>,
        cause: LeaseEnd,
    ) -> Handled {
        let Some(run) = self.state.target(target) else {
            return reject(Code::StepNotRunning, "there is no such execution");
        };
        if run.execution() != execution {
            return reject(
                Code::StaleExecution,
                format!("execution {execution} is no longer current"),
            );
        }
        let Some(lease) = run.lease().filter(|_| run.status() == Status::Running) else {
            return reject(Code::StepNotRunning, "the execution has ended");
        };
        let until = lease_until.unwrap_or(lease.until);
        // A lease that ends now is still alive: its owner's result may be on its way.
        if until >= self.now {
            return reject(Code::LeaseAlive, format!("the lease runs until {until}"));
        }
        let worker = &lease.worker;
        let (message, loss) = match cause {
            LeaseEnd::Expired => (
                format!("worker {worker} did not renew its lease, which ended at {until}"),
                Loss::Lost,
            ),
            LeaseEnd::SessionDead => (
                format!(
                    "the process of worker {worker} ended, or lost its session, during the work"
                ),
                Loss::Lost,
            ),
            LeaseEnd::OwnSession => (
                format!("worker {worker} lost its session and stopped the work"),
                Loss::Released,
            ),
            LeaseEnd::Unanswered => (
                format!("worker {worker} does not have the work: the answer to its claim was lost"),
                Loss::Released,
            ),
        };
        match target {
            Target::Step(at) if self.state.phase() == Phase::Stopping => {
                self.cancel_step(at, &message)
            }
            Target::Step(_) | Target::Undo(_) => {
                let error = StepError::new(ErrorClass::LeaseLost, codes::LEASE_EXPIRED, message);
                self.execution_lost(target, execution, error, loss);
            }
        }
        Ok(Reply::Done)
    }

    /// A result that came before: the same kind of result of the same execution gets the first answer
    /// back, anything else the rejection.
    fn repeated(
        &self,
        claim: &Claim,
        reported: Result<&Json, &StepError>,
        rejection: Rejection,
    ) -> Handled {
        let Target::Step(at) = claim.target else {
            return Err(rejection);
        };
        let closed = at.item.and_then(|item| {
            let each = self.state.visit(at)?.each()?;
            each.results().get(item as usize)?.clone()
        });
        let earlier = match (closed, self.state.run(at)) {
            (Some(ItemResult::Succeeded(output)), _) => Ok(output),
            (Some(ItemResult::Failed(error)), _) => Err(StepError::clone(&error)),
            (None, Some(run)) if run.execution() == claim.execution => {
                match (run.status(), run.error()) {
                    (Status::Succeeded, _) => Ok(run.output().cloned()),
                    (Status::Failed | Status::Held, Some(error)) => Err(error.clone()),
                    _ => return Err(rejection),
                }
            }
            _ => return Err(rejection),
        };
        let earlier = match (reported, earlier) {
            (Ok(output), Ok(first)) => match first.as_deref().unwrap_or(&Json::Null) == output {
                true => EarlierResult::Succeeded,
                false => EarlierResult::SucceededOtherwise,
            },
            (Err(error), Err(first)) => match first == *error {
                true => EarlierResult::Failed(first),
                false => EarlierResult::FailedOtherwise(first),
            },
            _ => return Err(rejection),
        };
        Ok(Reply::Duplicate(Box::new(earlier)))
    }
}
