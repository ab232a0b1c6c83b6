//! Messages from outside: events, the ends of children, patches of ctx.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | a step-run waits for this type, `DeliverEvent` | `StepWoken` | – |
//! | no step-run waits for this type, `DeliverEvent` | `EventReceived` | `INBOX_FULL` |
//! | Ended or malformed, `DeliverEvent` | – | `RUN_TERMINAL`, `INVALID_ID` |
//! | a step-run waits for this child, `ChildEnded` | `StepWoken` where a worker asked for the child, else the step succeeds, fails or ends | `STEP_UNKNOWN`, `STEP_NOT_WAITING` |
//! | Running or Finalizing, `PatchCtx` | `CtxPatched` | `AUTHZ_DENIED`, `NOTHING_TO_DO` for an empty patch, and what `duties.rs` says |
//! | any other state, `PatchCtx` | – | `RUN_TERMINAL`, `RUN_NOT_RUNNING` |

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::{Decider, Handled, MAX_INBOX, reject, terminal};
use crate::codes;
use crate::command::{Actor, Command, EarlierResult, Reply, Role};
use crate::effect::RunOutcome;
use crate::event::{Body, Patch, StepError, WaitKind};
use crate::plan::{ErrorClass, StepRef};
use crate::rejection::Code;
use crate::state::Phase;

impl Decider<'_> {
    /// An event wakes the oldest wait for its type, or is kept until someone waits for it.
    pub(super) fn deliver(
        &mut self,
        event_id: String,
        event_type: String,
        payload: Json,
    ) -> Handled {
        if let Err(why) = Command::check_event(&event_id, &event_type) {
            return reject(Code::InvalidId, why.message);
        }
        if self.state.seen_events().contains(&event_id) {
            return Ok(Reply::Duplicate(Box::new(EarlierResult::Event)));
        }
        if self.state.phase().is_ended() {
            return terminal();
        }
        let payload = Arc::new(payload);
        match self.waits_for(&event_type) {
            Some((step, execution)) if self.state.phase().is_moving() => {
                self.emit(Body::StepWoken {
                    step,
                    execution,
                    event_id: Some(event_id),
                    payload: Some(payload),
                    by: None,
                });
            }
            _ if self.state.inbox().len() >= MAX_INBOX => {
                return reject(
                    Code::InboxFull,
                    format!("{MAX_INBOX} events are kept already that nobody waits for"),
                );
            }
            _ => self.emit(Body::EventReceived {
                event_id,
                event_type,
                payload,
            }),
        }
        Ok(Reply::Done)
    }

    fn waits_for(&self, wanted: &str) -> Option<(StepRef, u32)> {
        let at = self.state.listening().get(wanted)?.first()?;
        Some((at, self.state.run(at)?.execution()))
    }

    pub(super) fn child_ended(
        &mut self,
        at: StepRef,
        key: &str,
        outcome: RunOutcome,
        output: Json,
        error: Option<StepError>,
    ) -> Handled {
        let ours = key.starts_with(&format!(
            "{}|{}|",
            self.state.run_id(),
            self.plan.step_id(at)
        ));
        if ours && self.state.has_closed(at) {
            return Ok(Reply::Duplicate(Box::new(EarlierResult::Child)));
        }
        let Some(run) = self.state.run(at) else {
            return reject(Code::StepUnknown, "there is no such step in this run");
        };
        let waits = run.wait().is_some_and(
            |wait| matches!(wait.kind(), WaitKind::Child { request_key, .. } if request_key == key),
        );
        if !waits {
            if run.status().is_terminal() && ours {
                return Ok(Reply::Duplicate(Box::new(EarlierResult::Child)));
            }
            return reject(
                Code::StepNotWaiting,
                "the step does not wait for this child",
            );
        }
        let execution = run.execution();
        let called = run.wait().is_some_and(|wait| wait.kind().reruns());
        // What a child has done while the run stops is done, and may have to be undone.
        let done = matches!(outcome, RunOutcome::Succeeded | RunOutcome::Partial);
        if self.state.phase() == Phase::Stopping && !done {
            self.cancel_step(at, "the run is stopping");
            return Ok(Reply::Done);
        }
        if called && self.state.phase().is_moving() {
            self.emit(Body::StepWoken {
                step: at,
                execution,
                event_id: None,
                payload: Some(Arc::new(ended(outcome, output, error))),
                by: None,
            });
            return Ok(Reply::Done);
        }
        match outcome {
            RunOutcome::Succeeded | RunOutcome::Partial => {
                self.succeed(
                    at,
                    execution,
                    Arc::new(output),
                    Patch::new(),
                    Vec::new(),
                    None,
                );
            }
            RunOutcome::Failed(_) | RunOutcome::Cancelled(_) => {
                let cancelled = matches!(outcome, RunOutcome::Cancelled(_));
                let code = if cancelled {
                    codes::CHILD_CANCELLED
                } else {
                    codes::CHILD_FAILED
                };
                let message = error.map_or_else(
                    || "the child run did not succeed".to_owned(),
                    |error| error.message,
                );
                self.fail_for_good(
                    at,
                    execution,
                    StepError::new(ErrorClass::External, code, message),
                    None,
                );
            }
        }
        Ok(Reply::Done)
    }

    pub(super) fn patch_from_outside(&mut self, actor: &Actor, ctx: Patch) -> Handled {
        self.check_tenant(actor)?;
        if self.state.phase().is_ended() {
            return terminal();
        }
        if !matches!(self.state.phase(), Phase::Running | Phase::Finalizing) {
            return reject(
                Code::RunNotRunning,
                "ctx can be patched while the run is running or paused",
            );
        }
        if actor.role < Role::Engineer {
            return reject(Code::AuthzDenied, "patching ctx needs the role engineer");
        }
        if ctx.is_empty() {
            return reject(Code::NothingToDo, "the patch is empty");
        }
        self.check_change(actor)?;
        self.emit(Body::CtxPatched {
            by: actor.id.clone(),
            ctx,
        });
        Ok(Reply::Done)
    }
}

/// How a child ended, as the worker that asked for it is told.
fn ended(outcome: RunOutcome, output: Json, error: Option<StepError>) -> Json {
    let status = match outcome {
        RunOutcome::Succeeded => "succeeded",
        RunOutcome::Partial => "partial",
        RunOutcome::Failed(_) => "failed",
        RunOutcome::Cancelled(_) => "cancelled",
    };
    json!({ "status": status, "output": output, "error": error })
}
