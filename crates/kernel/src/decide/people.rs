//! People: approvals, manual completion, and the checks on who may give them.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | a step-run waits for a person, `CompleteManually` with success | `StepApproved` while more people are needed, `StepWoken` at a gate, else the step succeeds | `TOKEN_MISMATCH`, `AUTHZ_DENIED`, `AUTHZ_TENANT_FORBIDDEN`, `SOD_DENIED` |
//! | a step-run waits for a person, `CompleteManually` with failure | the step fails without a retry | the same |
//! | any other state, `CompleteManually` | – | `RUN_TERMINAL`, `STEP_UNKNOWN`, `STEP_NOT_WAITING` |

use std::sync::Arc;

use serde_json::Value as Json;

use super::{Decider, Handled, reject, terminal};
use crate::command::{Actor, EarlierResult, ManualOutcome, Reply, Role};
use crate::event::{Body, Patch, StepError, WaitKind};
use crate::keys::{self, TokenKey};
use crate::plan::{Duty, ErrorClass, Plan, StepRef};
use crate::rejection::{Code, Rejection};
use crate::state::{State, Status};

/// The completion token of a step that waits for a person; the same on every call, so it can be given
/// out again after a crash.
#[must_use]
pub fn open_token(plan: &Plan, state: &State, step: StepRef, key: &TokenKey) -> Option<String> {
    let run = state
        .run(step)
        .filter(|run| run.status() == Status::Waiting)?;
    let wait = run.wait().filter(|wait| wait.token_hash().is_some())?;
    Some(make_token(
        plan,
        state,
        step,
        wait.kind(),
        run.logical(),
        run.execution(),
        key,
    ))
}

fn make_token(
    plan: &Plan,
    state: &State,
    step: StepRef,
    wait: &WaitKind,
    logical: u32,
    execution: u32,
    key: &TokenKey,
) -> String {
    let id = plan.step_id(step);
    // A gate opens before any execution, so its token names the logical attempt too.
    let id = if *wait == WaitKind::Gate {
        format!("{id}|gate|{logical}")
    } else {
        id
    };
    keys::completion_token(key, state.run_id(), &id, execution)
}

impl Decider<'_> {
    pub(super) fn token(
        &self,
        at: StepRef,
        wait: &WaitKind,
        logical: u32,
        execution: u32,
    ) -> String {
        make_token(
            self.plan,
            self.state,
            at,
            wait,
            logical,
            execution,
            &self.env.key,
        )
    }

    pub(super) fn complete_manually(
        &mut self,
        at: StepRef,
        token: &str,
        outcome: ManualOutcome,
        actor: &Actor,
        output: Json,
    ) -> Handled {
        let Some(run) = self.state.run(at) else {
            return reject(Code::StepUnknown, "there is no such step in this run");
        };
        let hash = keys::sha256_hex(token);
        // A repeated answer is recognised by its token, also when the run has gone on or ended.
        if let Some(answer) = run.answers().iter().find(|it| it.token_hash() == hash) {
            return Ok(Reply::Duplicate(Box::new(EarlierResult::Manual(
                answer.outcome(),
            ))));
        }
        if self.state.phase().is_ended() {
            return terminal();
        }
        let Some(wait) = run.wait().filter(|_| run.status() == Status::Waiting) else {
            return reject(Code::StepNotWaiting, "the step does not wait for a person");
        };
        let Some(expected) = wait.token_hash() else {
            return reject(Code::StepNotWaiting, "the step does not wait for a person");
        };
        if *expected != hash {
            return reject(
                Code::TokenMismatch,
                "the completion token is not the one of the open wait",
            );
        }
        let step = self.plan.step(at.step);
        let gated = *wait.kind() == WaitKind::Gate;
        let duties = match &step.gate {
            Some(gate) if gated => &gate.duties,
            _ => &step.duties,
        };
        if wait.approvals().contains(&actor.id) {
            return Ok(Reply::Duplicate(Box::new(EarlierResult::Manual(
                ManualOutcome::Succeeded,
            ))));
        }
        self.check_tenant(actor)?;
        if actor.role < Role::Operator {
            return reject(Code::AuthzDenied, "answering needs the role operator");
        }
        self.check_duties(duties, actor)?;
        let execution = run.execution();
        let needed = duties
            .iter()
            .filter_map(needed_approvers)
            .max()
            .unwrap_or(1);
        let approvals = wait.approvals().len() as u32 + 1;
        let by = Some(actor.id.clone());
        match outcome {
            ManualOutcome::Succeeded if approvals < needed => {
                self.emit(Body::StepApproved {
                    step: at,
                    execution,
                    by: actor.id.clone(),
                    approvals,
                });
            }
            ManualOutcome::Succeeded if gated => {
                self.emit(Body::StepWoken {
                    step: at,
                    execution,
                    event_id: None,
                    payload: None,
                    by,
                });
            }
            ManualOutcome::Succeeded => {
                self.succeed(
                    at,
                    execution,
                    Arc::new(output),
                    Patch::new(),
                    Vec::new(),
                    by,
                );
            }
            ManualOutcome::Failed | ManualOutcome::Cancelled => {
                let (class, code, verb) = match outcome {
                    ManualOutcome::Cancelled => {
                        (ErrorClass::Cancelled, "MANUAL_CANCELLED", "cancelled")
                    }
                    _ => (ErrorClass::Rejected, "MANUAL_FAILED", "rejected"),
                };
                let error = StepError::new(
                    class,
                    code,
                    format!("{verb} by {}{}", actor.id, notes(&output)),
                );
                self.fail_unstarted(at, error, by);
            }
        }
        Ok(Reply::Done)
    }

    pub(super) fn check_tenant(&self, actor: &Actor) -> Result<(), Rejection> {
        match &actor.tenant {
            Some(tenant) if *tenant != self.state.context().tenant_id => reject(
                Code::AuthzTenantForbidden,
                "the run belongs to another tenant",
            ),
            _ => Ok(()),
        }
    }

    pub(super) fn check_duties(&self, duties: &[Duty], actor: &Actor) -> Result<(), Rejection> {
        for duty in duties {
            match duty {
                Duty::MakerChecker
                    if self.state.context().triggered_by.as_ref() == Some(&actor.id) =>
                {
                    return reject(Code::SodDenied, "who started the run may not do this");
                }
                Duty::IncompatibleDuties { keys } => {
                    let clash = self.state.acted().iter().find(|(step, by)| {
                        *by == actor.id && keys.contains(&self.plan.step(*step).name)
                    });
                    if let Some((step, _)) = clash {
                        let name = &self.plan.step(*step).name;
                        return reject(
                            Code::SodDenied,
                            format!("who did {name} may not do this too"),
                        );
                    }
                }
                Duty::MakerChecker | Duty::DistinctApprovers { .. } => {}
            }
        }
        Ok(())
    }
}

fn needed_approvers(duty: &Duty) -> Option<u32> {
    match duty {
        Duty::DistinctApprovers { count } => Some(*count),
        Duty::MakerChecker | Duty::IncompatibleDuties { .. } => None,
    }
}

fn notes(output: &Json) -> String {
    match output.get("notes").and_then(Json::as_str) {
        Some(notes) => format!(": {notes}"),
        None => String::new(),
    }
}
