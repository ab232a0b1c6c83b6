//! People: approvals, manual completion, and the checks on who may give them.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | a step-run waits for a person, `CompleteManually` with success | `StepAnswered`, then `StepApproved` while more people are needed, `StepWoken` at a gate, else the step succeeds | `TOKEN_MISMATCH`, `AUTHZ_DENIED`, `AUTHZ_TENANT_FORBIDDEN`, `SIGNAL_INVALID_PAYLOAD`, and what `duties.rs` says |
//! | a step-run waits for a person, `CompleteManually` with failure | `StepAnswered`, then the step fails without a retry | the same |
//! | any other state, `CompleteManually` | – | `RUN_TERMINAL`, `STEP_UNKNOWN`, `STEP_NOT_WAITING` |

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::duties::{approvals_needed, duties};
use super::{Decider, Handled, reject, terminal};
use crate::canonical;
use crate::codes;
use crate::command::{Actor, AnswerDetails, EarlierResult, ManualOutcome, Reply, Role};
use crate::event::{ArtifactRef, Body, Patch, StepError, WaitKind};
use crate::keys::{self, TokenKey};
use crate::plan::{ErrorClass, Plan, StepRef};
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
        details: AnswerDetails,
    ) -> Handled {
        // Who may not ask is not told how the run is.
        self.check_tenant(actor)?;
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
        let gated = *wait.kind() == WaitKind::Gate;
        let duties = duties(self.plan, at, wait.kind());
        if wait.approvals().contains(&actor.id) {
            return Ok(Reply::Duplicate(Box::new(EarlierResult::Manual(
                ManualOutcome::Succeeded,
            ))));
        }
        if actor.role < Role::Operator || !actor.may_answer {
            return reject(Code::AuthzDenied, "answering needs the role operator");
        }
        self.check_duties(duties, actor)?;
        check_details(&details)?;
        let execution = run.execution();
        let needed = approvals_needed(self.plan, at, wait.kind());
        let approvals = wait.approvals().len() as u32 + 1;
        let by = Some(actor.id.clone());
        // Programs also write the notes into the output.
        let written = || Some(output.get("notes")?.as_str()?.to_owned());
        let notes = details.notes.or_else(written);
        let told = match &notes {
            Some(notes) => format!(": {notes}"),
            None => String::new(),
        };
        self.emit(Body::StepAnswered {
            step: at,
            logical: run.logical(),
            execution,
            outcome,
            by: actor.id.clone(),
            completed_at: details.completed_at.unwrap_or(self.now),
            notes,
            evidence_refs: details.evidence_refs,
            output_sha256: output_hash(&output),
        });
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
                let memo = self.state.run(at).and_then(|run| run.memo().cloned());
                let done = memo.map(WorkerPart::read).unwrap_or_default();
                let output = together(done.output, output);
                self.succeed(
                    at,
                    execution,
                    Arc::new(output),
                    done.ctx,
                    done.artifacts,
                    by,
                );
            }
            ManualOutcome::Failed | ManualOutcome::Cancelled => {
                let (class, code, verb) = if outcome == ManualOutcome::Cancelled {
                    (ErrorClass::Cancelled, codes::MANUAL_CANCELLED, "cancelled")
                } else {
                    (ErrorClass::Rejected, codes::MANUAL_FAILED, "rejected")
                };
                let error = StepError::new(class, code, format!("{verb} by {}{told}", actor.id));
                self.fail_unstarted(at, error, by);
            }
        }
        Ok(Reply::Done)
    }

    pub(super) fn check_tenant(&self, actor: &Actor) -> Result<(), Rejection> {
        if actor.is_of(self.state.context()) {
            return Ok(());
        }
        reject(
            Code::AuthzTenantForbidden,
            "the run belongs to another tenant",
        )
    }
}

/// The hash of what a person gave as output, by which a repeated answer is compared; nothing if there was no output.
#[must_use]
pub fn output_hash(output: &Json) -> Option<String> {
    if output.is_null() {
        return None;
    }
    let mut canonical = Vec::new();
    canonical::write(output, &mut canonical);
    Some(keys::sha256_of_bytes(&canonical))
}

/// What a worker did of a step that a person completes. The wait keeps it.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WorkerPart {
    #[serde(rename = "workerOutput")]
    output: Json,
    #[serde(skip_serializing_if = "Patch::is_empty")]
    ctx: Patch,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    artifacts: Vec<ArtifactRef>,
}

impl WorkerPart {
    /// From the memo of a wait; a memo of another kind has nothing of it.
    fn read(memo: Arc<Json>) -> WorkerPart {
        serde_json::from_value(Arc::unwrap_or_clone(memo)).unwrap_or_default()
    }
}

/// What a wait for a person keeps of the worker's result; nothing if there is none.
pub(super) fn worker_part(output: &Json, ctx: &Patch, artifacts: &[ArtifactRef]) -> Option<Json> {
    let part = WorkerPart {
        output: output.clone(),
        ctx: ctx.clone(),
        artifacts: artifacts.to_vec(),
    };
    let is_empty = part.output.is_null() && part.ctx.is_empty() && part.artifacts.is_empty();
    (!is_empty).then(|| serde_json::to_value(part).unwrap_or_default())
}

/// The output of a step whose work a worker and a person did: fields of the person's have priority.
fn together(worker: Json, person: Json) -> Json {
    match (worker, person) {
        (Json::Null, person) => person,
        (worker, Json::Null) => worker,
        (Json::Object(mut worker), Json::Object(person)) => {
            worker.extend(person);
            Json::Object(worker)
        }
        (worker, person) => json!({ "result": worker, "answer": person }),
    }
}

/// The most characters of notes.
const MAX_NOTES: usize = 10_000;
/// The most references to evidence, and the most characters of a reference.
const MAX_REFS: (usize, usize) = (100, 2_000);

/// Refuses what is too large for the log.
fn check_details(details: &AnswerDetails) -> Result<(), Rejection> {
    let length = |text: &String| text.chars().count();
    let (refs, each) = MAX_REFS;
    let fits = |text: &String| (1..=each).contains(&length(text));
    if details
        .notes
        .as_ref()
        .is_some_and(|it| length(it) > MAX_NOTES)
    {
        return reject(
            Code::SignalInvalidPayload,
            format!("notes have at most {MAX_NOTES} characters; keep longer texts as evidence"),
        );
    }
    if details.evidence_refs.len() > refs || !details.evidence_refs.iter().all(fits) {
        return reject(
            Code::SignalInvalidPayload,
            format!(
                "there are at most {refs} references to evidence, each of 1 to {each} characters"
            ),
        );
    }
    Ok(())
}
