//! The signals of the contract: validated, then authorised, then recorded, then applied. A refused
//! signal is recorded too; it changes nothing else.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | any state, `Signal` that is refused | `SignalRejected`, where the run has not ended | `INVALID_ID`, `SIGNAL_RATE_LIMITED`, `SIGNAL_NOT_FOUND`, `AUTHZ_DENIED`, `AUTHZ_REASON_REQUIRED` |
//! | Running or Finalizing, PAUSE | `SignalAccepted`, `RunPaused` | `RUN_PAUSED` |
//! | paused, RESUME | `SignalAccepted`, `RunResumed`, then what was held back | `RUN_NOT_PAUSED` |
//! | a step-run is Failed or Held, RETRY_STEP | `SignalAccepted`, `StepRetried` | `STEP_UNKNOWN`, `STEP_TERMINAL`, `STEP_NOT_TERMINAL` |
//! | a step-run has not ended, SKIP_STEP | `SignalAccepted`, `StepFailed` if it had started, `StepSkipped` | `STEP_UNKNOWN`, `STEP_TERMINAL`, `STEP_NOT_ELIGIBLE`, and what `duties.rs` says |
//! | not stopping, UPDATE_PARAMS, INJECT_OVERRIDE or UPDATE_TARGET | `SignalAccepted`, then `ParamsUpdated`, `OverrideInjected` or `TargetUpdated` | `RUN_STOPPING`, `RUN_NOT_RUNNING`, and what `duties.rs` says |
//! | not ended, CANCEL | `SignalAccepted`, then what `stop.rs` says | – |
//! | not ended, EMERGENCY_STOP | `SignalAccepted`, `RunStopping`; with forceKill also `StepFailed` or `UndoFailed` | – |
//! | not ended, ESCALATE_ALERT | `SignalAccepted` | – |
//! | not ended, RETRY_RUN | – | `RUN_NOT_TERMINAL` |
//! | Ended because the definition was not the one referred to, RETRY_RUN | – | `INVALID_TRANSITION` |
//! | Ended, any signal but RETRY_RUN | – | `RUN_TERMINAL` |

use std::sync::Arc;

use serde_json::Value as Json;

use super::lifecycle::merge;
use super::stop::is_cut_off;
use super::{Decider, Handled, reject, terminal};
use crate::codes;
use crate::command::{Actor, EarlierResult, Reply};
use crate::event::{Body, SkipReason, StepError, StopCause};
use crate::evolve::open_runs;
use crate::plan::{ErrorClass, Join, StepNo, StepRef};
use crate::rejection::{Code, Rejection};
use crate::signal::{SIGNALS_PER_MINUTE, SignalKind, SignalNeeds};
use crate::state::{ItemResult, Phase, Status};

impl Decider<'_> {
    pub(super) fn signal(
        &mut self,
        signal_id: String,
        signal: String,
        payload: Json,
        reason: Option<String>,
        actor: &Actor,
    ) -> Handled {
        let fits = |id: &str| (1..=200).contains(&id.len()) && !id.contains('|');
        if !fits(&signal_id) {
            return reject(
                Code::InvalidId,
                "a signal id has 1 to 200 characters and no |",
            );
        }
        if let Some(refused) = self.state.signals().get(&signal_id) {
            self.check_tenant(actor)?;
            let first = refused
                .clone()
                .map_or(EarlierResult::SignalAccepted, EarlierResult::SignalRejected);
            return Ok(Reply::Duplicate(Box::new(first)));
        }
        if self.state.phase().is_ended() {
            return self.signal_after_the_end(&signal_id, &signal, &payload, reason, actor);
        }
        let minute_ago = self.now.0 - 60_000;
        let recent = self
            .state
            .signal_times()
            .iter()
            .filter(|at| at.0 > minute_ago)
            .count();
        if recent >= SIGNALS_PER_MINUTE {
            return reject(
                Code::SignalRateLimited,
                format!("at most {SIGNALS_PER_MINUTE} signals a minute for a run"),
            );
        }
        let reason = stated(reason, &payload);
        match self.examine(&signal, &payload, reason.as_deref(), actor) {
            Err(Rejection { code, message }) => {
                self.emit(Body::SignalRejected {
                    signal_id,
                    signal: signal.chars().take(100).collect(),
                    by: actor.id.clone(),
                    code: code.name().to_owned(),
                    message: message.clone(),
                });
                Ok(Reply::Refused(Rejection { code, message }))
            }
            Ok((kind, step)) => {
                let by = actor.id.clone();
                self.emit(Body::SignalAccepted {
                    signal_id,
                    signal,
                    by,
                    reason: reason.clone(),
                    payload: payload.clone(),
                });
                self.apply_signal(kind, step, &payload, reason, actor);
                Ok(Reply::Done)
            }
        }
    }

    /// In a run that has ended only RETRY_RUN means anything, and it leaves the log alone: what it
    /// causes is another run.
    fn signal_after_the_end(
        &self,
        id: &str,
        signal: &str,
        payload: &Json,
        reason: Option<String>,
        actor: &Actor,
    ) -> Handled {
        let reason = stated(reason, payload);
        // Who may not ask is not told how the run is.
        if self.authentic(signal, payload, reason.as_deref(), actor)? != SignalKind::RetryRun {
            return terminal();
        }
        // The plan of such a run is not a definition that anyone wrote.
        let untrusted = |error: &StepError| error.code == codes::PLAN_INTEGRITY_VALIDATION_FAILED;
        if self.state.error().is_some_and(untrusted) {
            return reject(
                Code::InvalidTransition,
                "the definition of the run was not the one referred to, so there is nothing to repeat: start it by reference again",
            );
        }
        Ok(Reply::RetryRun {
            request_key: format!("{}|RETRY_RUN|{id}", self.state.run_id()),
        })
    }

    /// Everything that can be wrong with a signal.
    fn examine(
        &self,
        signal: &str,
        payload: &Json,
        reason: Option<&str>,
        actor: &Actor,
    ) -> Result<(SignalKind, Option<StepRef>), Rejection> {
        let kind = self.authentic(signal, payload, reason, actor)?;
        let step = self.signal_step(payload)?;
        self.lawful(kind, step)?;
        self.dutiful(kind, step, actor)?;
        Ok((kind, step))
    }

    /// The kind of the signal, after its checks: the payload is valid, the run belongs to the tenant of the actor,
    /// the role of the actor is high enough, and a destructive signal has a reason.
    fn authentic(
        &self,
        signal: &str,
        payload: &Json,
        reason: Option<&str>,
        actor: &Actor,
    ) -> Result<SignalKind, Rejection> {
        let Some(kind) = SignalKind::from_name(signal) else {
            let known: Vec<&str> = SignalKind::ALL.iter().map(|kind| kind.name()).collect();
            let message = format!(
                "there is no signal {signal:.100}; there are {}",
                known.join(", ")
            );
            return reject(Code::SignalNotFound, message);
        };
        kind.check(payload)?;
        self.check_tenant(actor)?;
        if actor.role < kind.role() {
            let message =
                format!("{} needs the role {:?}", kind.name(), kind.role()).to_lowercase();
            return reject(Code::AuthzDenied, message);
        }
        if kind.is_destructive() && reason.is_none() {
            return reject(
                Code::AuthzReasonRequired,
                format!("{} needs a reason", kind.name()),
            );
        }
        Ok(kind)
    }

    fn signal_step(&self, payload: &Json) -> Result<Option<StepRef>, Rejection> {
        let Some(id) = payload.get("stepId").and_then(Json::as_str) else {
            return Ok(None);
        };
        match self.plan.parse_step_id(id) {
            Some(at) => Ok(Some(at)),
            None => reject(Code::StepUnknown, format!("the plan has no step {id:.200}")),
        }
    }

    /// Whether the state of the run allows the signal.
    fn lawful(&self, kind: SignalKind, step: Option<StepRef>) -> Result<(), Rejection> {
        let phase = self.state.phase();
        let stopping = matches!(phase, Phase::Stopping | Phase::Compensating);
        match kind.needs() {
            SignalNeeds::NotEnded => {}
            SignalNeeds::Ended => {
                return reject(
                    Code::RunNotTerminal,
                    "the run has not ended; cancel it before it is repeated",
                );
            }
            SignalNeeds::NotStopping | SignalNeeds::Started if stopping => {
                return reject(
                    Code::RunStopping,
                    "the run is stopping; what follows is its end",
                );
            }
            SignalNeeds::Started if !phase.is_moving() => {
                return reject(Code::RunNotRunning, "the run has not started");
            }
            SignalNeeds::NotStopping | SignalNeeds::Started => {}
        }
        match kind {
            SignalKind::Pause if self.state.pause().is_some() => {
                reject(Code::RunPaused, "the run is paused already")
            }
            SignalKind::Resume if self.state.pause().is_none() => {
                reject(Code::RunNotPaused, "the run is not paused")
            }
            SignalKind::RetryStep => {
                let at = named(step)?;
                self.may_retry(at)
            }
            SignalKind::SkipStep => {
                let at = named(step)?;
                self.may_skip(at)
            }
            SignalKind::Pause
            | SignalKind::Resume
            | SignalKind::Cancel
            | SignalKind::RetryRun
            | SignalKind::UpdateParams
            | SignalKind::InjectOverride
            | SignalKind::UpdateTarget
            | SignalKind::EmergencyStop
            | SignalKind::EscalateAlert => Ok(()),
        }
    }

    /// Whether separation of duties allows the signal.
    fn dutiful(
        &self,
        kind: SignalKind,
        step: Option<StepRef>,
        actor: &Actor,
    ) -> Result<(), Rejection> {
        match kind {
            SignalKind::SkipStep => self.check_skip(named(step)?, actor),
            SignalKind::UpdateParams | SignalKind::InjectOverride | SignalKind::UpdateTarget => {
                self.check_change(actor)
            }
            // A step that is retried, and a run that is repeated, ask people again.
            SignalKind::RetryStep
            | SignalKind::RetryRun
            | SignalKind::Pause
            | SignalKind::Resume
            | SignalKind::Cancel
            | SignalKind::EmergencyStop
            | SignalKind::EscalateAlert => Ok(()),
        }
    }

    fn may_retry(&self, at: StepRef) -> Result<(), Rejection> {
        match self.status_of(at)? {
            Some(Status::Held) => Ok(()),
            Some(Status::Failed) if self.is_routed(at) => reject(
                Code::StepTerminal,
                "its failure has been routed on; a second end would make more tokens",
            ),
            Some(Status::Failed) if at.item.is_none() => Ok(()),
            Some(Status::Failed) => reject(
                Code::StepTerminal,
                "an item is retried with its loop: name the step itself",
            ),
            Some(Status::Succeeded | Status::Skipped | Status::Cancelled) => {
                reject(Code::StepTerminal, "only a failed step can be retried")
            }
            None
            | Some(
                Status::Arrived
                | Status::Denied
                | Status::Ready
                | Status::Running
                | Status::Waiting
                | Status::Looping,
            ) => reject(Code::StepNotTerminal, "the step has not failed"),
        }
    }

    fn may_skip(&self, at: StepRef) -> Result<(), Rejection> {
        match self.status_of(at)? {
            Some(status) if status.is_terminal() => {
                reject(Code::StepTerminal, "the step has ended")
            }
            // Where every token counts, a skip would make one out of nothing.
            None if self.plan.step(at.step).join == Join::Each
                && self.plan.policy().final_step != Some(at.step) =>
            {
                reject(
                    Code::StepNotEligible,
                    "no token has reached this step; skip it when one has",
                )
            }
            None | Some(_) => Ok(()),
        }
    }

    fn is_routed(&self, at: StepRef) -> bool {
        self.state.run(at).is_some_and(|run| run.routed())
    }

    /// A step-run's condition; absent for a step that no token has reached yet. A later visit exists
    /// only once a token has made it: skipping one ahead would make tokens out of nothing.
    fn status_of(&self, at: StepRef) -> Result<Option<Status>, Rejection> {
        if let Some(run) = self.state.run(at) {
            return Ok(Some(run.status()));
        }
        let visits = self.state.step(at.step).visits();
        let closed = at.item.and_then(|item| {
            let each = self.state.visit(at)?.each()?;
            each.results().get(item as usize)?.as_ref()
        });
        match (at.item, closed) {
            (None, _) if at.visit == 1 && visits.is_empty() => Ok(None),
            (_, Some(ItemResult::Succeeded(_))) => Ok(Some(Status::Succeeded)),
            (_, Some(ItemResult::Failed(_))) => Ok(Some(Status::Failed)),
            (_, Some(ItemResult::Skipped)) => Ok(Some(Status::Skipped)),
            (_, Some(ItemResult::Cancelled)) => Ok(Some(Status::Cancelled)),
            _ => reject(Code::StepUnknown, "there is no such visit or item"),
        }
    }

    fn apply_signal(
        &mut self,
        kind: SignalKind,
        step: Option<StepRef>,
        payload: &Json,
        reason: Option<String>,
        actor: &Actor,
    ) {
        let by = Some(actor.id.clone());
        let value = |name: &str| Arc::new(payload.get(name).cloned().unwrap_or_default());
        match (kind, step) {
            (SignalKind::Pause, _) => {
                let draining = self.state.tally().running() > 0;
                let drain_deadline =
                    draining.then(|| self.now.plus(self.plan.policy().drain_timeout_ms));
                self.emit(Body::RunPaused {
                    ordinal: self.state.pauses() + 1,
                    drain_deadline,
                });
            }
            (SignalKind::Resume, _) => {
                self.emit(Body::RunResumed {
                    ordinal: self.state.pauses(),
                });
                self.settle();
                self.fire_overdue();
            }
            (SignalKind::Cancel, _) => self.begin_cancel(by, reason, false),
            (SignalKind::RetryStep, Some(at)) => {
                let Some(run) = self.state.run(at) else {
                    return self.missing(at);
                };
                let logical = run.logical() + 1;
                self.emit(Body::StepRetried { step: at, logical });
            }
            (SignalKind::SkipStep, Some(at)) => self.skip(at),
            (SignalKind::UpdateParams, _) => {
                let params = merge(
                    &self.state.current_params(),
                    payload.get("params").cloned().unwrap_or_default(),
                );
                self.emit(Body::ParamsUpdated {
                    params: Arc::new(params),
                });
            }
            (SignalKind::InjectOverride, Some(at)) => {
                let before = self
                    .state
                    .overrides()
                    .get(&at.step)
                    .map(|value| value.as_ref().clone())
                    .unwrap_or_default();
                let value = Arc::new(merge(&before, value("override").as_ref().clone()));
                self.emit(Body::OverrideInjected {
                    step: at.step,
                    value,
                });
            }
            (SignalKind::UpdateTarget, Some(at)) => {
                let step: StepNo = at.step;
                self.emit(Body::TargetUpdated {
                    step,
                    target: value("newTarget"),
                });
            }
            (SignalKind::EmergencyStop, _) => {
                let force = payload
                    .get("forceKill")
                    .and_then(Json::as_bool)
                    .unwrap_or(false);
                self.emergency(by, reason.unwrap_or_default(), force);
            }
            // Telling an operator is all there is to it: the fold of SignalAccepted raises the alert.
            (SignalKind::EscalateAlert, _) => {}
            (
                SignalKind::RetryRun
                | SignalKind::RetryStep
                | SignalKind::SkipStep
                | SignalKind::InjectOverride
                | SignalKind::UpdateTarget,
                _,
            ) => self.invalid("a signal was accepted that the run's state does not allow"),
        }
    }

    /// A step that has started ends as failed and its next attempt is skipped; any other is skipped.
    fn skip(&mut self, at: StepRef) {
        let run = self.state.run(at);
        let (logical, execution) = run.map_or((1, 0), |run| (run.logical(), run.execution()));
        let held = run.is_some_and(|run| run.status() == Status::Held);
        let started = run.is_some_and(|run| run.has_started());
        let unknown = run.is_some_and(is_cut_off);
        if started && !held {
            let error = StepError::new(
                ErrorClass::Cancelled,
                codes::SKIPPED_BY_OPERATOR,
                "an operator skipped the step",
            );
            self.emit(Body::StepFailed {
                step: at,
                logical,
                execution,
                error,
                cancelled: true,
                unknown,
                by: None,
            });
        }
        // The items of a loop end with it.
        let each = self
            .state
            .visit(at)
            .filter(|_| at.item.is_none())
            .and_then(|visit| visit.each());
        let items: Vec<u32> = each
            .map(|each| each.active().keys().copied().collect())
            .unwrap_or_default();
        for item in items {
            self.cancel_step(at.with_item(item), "an operator skipped the step");
        }
        let logical = if started { logical + 1 } else { logical };
        // Steps before it may still run: those after it must not overtake them.
        let reason = match self.state.run(at) {
            None => SkipReason::OperatorAhead,
            Some(_) => SkipReason::Operator,
        };
        // An item that has ended has left the loop's window, so there is nothing left to skip.
        if !(started && at.item.is_some()) {
            self.emit(Body::StepSkipped {
                step: at,
                logical,
                reason,
            });
        }
    }

    /// Everything stops and the run ends cancelled, whatever it was stopping for before.
    fn emergency(&mut self, by: Option<String>, reason: String, force: bool) {
        match self.state.phase() {
            Phase::Running | Phase::Finalizing | Phase::Stopping => {
                let cause = StopCause::Emergency { by, reason };
                self.emit(Body::RunStopping {
                    cause,
                    compensate: false,
                });
                if force {
                    for at in open_runs(self.state, |status| status == Status::Running) {
                        self.cancel_step(at, "killed by an emergency stop");
                    }
                }
            }
            Phase::Compensating => {
                self.begin_cancel(by, Some(reason), false);
                if force {
                    self.kill_undo();
                }
            }
            Phase::Void | Phase::Created | Phase::Queued | Phase::Ended(_) => {
                self.begin_cancel(by, Some(reason), false);
            }
        }
    }

    /// The undo in flight is given up; it may have happened or not, so it counts as failed.
    fn kill_undo(&mut self) {
        let undoing = self.state.undoing();
        let Some(undoing) = undoing.filter(|undoing| undoing.run().status() == Status::Running)
        else {
            return;
        };
        let execution = undoing.run().execution();
        if let Some(step) = undoing.current() {
            let message = "killed by an emergency stop";
            self.emit(Body::UndoFailed {
                step,
                execution,
                error: StepError::new(ErrorClass::Cancelled, codes::KILLED, message),
            });
        }
    }
}

fn named(step: Option<StepRef>) -> Result<StepRef, Rejection> {
    step.ok_or_else(|| Rejection::new(Code::StepUnknown, "the signal names no step"))
}

/// Why a signal was sent: the sender's own word, or the payload's. A blank one says nothing.
fn stated(reason: Option<String>, payload: &Json) -> Option<String> {
    let written = payload.get("reason").and_then(Json::as_str);
    let says = |reason: &String| !reason.trim().is_empty();
    let written = written.map(str::to_owned).filter(says);
    written.or_else(|| reason.filter(says))
}
