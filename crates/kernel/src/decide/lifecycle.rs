//! From nothing to running: create, enqueue, approve, start.
//!
//! ```text
//! Void ─► Created ─► (Queued) ─► Running        approval may come before or after the queue
//! ```
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | no run, `CreateRun` | `RunCreated` | `INVALID_ID`, `BIZ_KEY_MISSING` |
//! | any other state, `CreateRun` | – | `RUN_EXISTS` |
//! | Created, `EnqueueRun` | `RunQueued` | – |
//! | any other state, `EnqueueRun` | – | `RUN_TERMINAL`, `INVALID_TRANSITION` |
//! | Created or Queued and not approved, `ApproveRun` | `RunApproved` | `AUTHZ_DENIED`, and what `people.rs` says about the tenant and `duties.rs` about duties |
//! | any other state, `ApproveRun` | – | `RUN_TERMINAL`, `INVALID_TRANSITION` |
//! | Created or Queued, `StartRun` | `RunApproved` if no approval is needed, `RunStarted` | `INVALID_TRANSITION` before its time or its queue, `RUN_NOT_APPROVED` |
//! | Created or Queued, `StartRun` with another definition's hash | `RunFailed` | – |
//! | any other state, `StartRun` | – | `RUN_TERMINAL`, `INVALID_TRANSITION` |

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::{Decider, Handled, reject, terminal};
use crate::codes;
use crate::command::{Actor, Command, Reply, Role};
use crate::event::{AdmissionVerdict, Body, Rollback, StepError};
use crate::expr::{Template, has_template};
use crate::keys;
use crate::plan::{EntryPoint, ErrorClass};
use crate::reference;
use crate::rejection::Code;
use crate::scope::Boundary;
use crate::state::Phase;

impl Decider<'_> {
    pub(super) fn create(&mut self, command: Command) -> Handled {
        let Command::CreateRun {
            run_id,
            params,
            context,
            parent,
            original_run_id,
            start_after,
        } = command
        else {
            return reject(Code::InvalidTransition, "not a create command");
        };
        if self.state.phase() != Phase::Void {
            return reject(Code::RunExists, "the run exists already");
        }
        if run_id != self.state.run_id() || !valid_run_id(&run_id) {
            return reject(
                Code::InvalidId,
                "a run id is run_ and 1 to 200 letters, digits, - or _",
            );
        }
        let workload = &self.plan.net().workload;
        let params = match self.plan.policy().renders_workload {
            true => {
                let given = Arc::new(merge(workload, params.clone()));
                merge(&rendered(workload, &run_id, &given), params)
            }
            false => merge(workload, params),
        };
        let params = Arc::new(params);
        if let Err(why) = self.plan.check_event_key(&params) {
            return reject(Code::KeyMissing, why);
        }
        self.emit(Body::RunCreated {
            plan_hash: self.plan.hash().to_owned(),
            params,
            context,
            parent,
            original_run_id,
            start_after,
        });
        Ok(Reply::Created { run_id })
    }

    pub(super) fn enqueue(&mut self) -> Handled {
        match self.state.phase() {
            Phase::Created => {
                self.emit(Body::RunQueued {});
                Ok(Reply::Done)
            }
            Phase::Ended(_) => terminal(),
            Phase::Void
            | Phase::Queued
            | Phase::Running
            | Phase::Finalizing
            | Phase::Stopping
            | Phase::Compensating => reject(
                Code::InvalidTransition,
                "only a run that was just created can be queued",
            ),
        }
    }

    pub(super) fn approve(&mut self, actor: &Actor, reason: Option<String>) -> Handled {
        self.check_tenant(actor)?;
        match self.state.phase() {
            Phase::Ended(_) => return terminal(),
            Phase::Created | Phase::Queued if !self.state.approved() => {}
            Phase::Void
            | Phase::Created
            | Phase::Queued
            | Phase::Running
            | Phase::Finalizing
            | Phase::Stopping
            | Phase::Compensating => {
                return reject(Code::InvalidTransition, "the run is approved already");
            }
        }
        if actor.role < Role::Operator || !actor.may_answer {
            return reject(Code::AuthzDenied, "approving needs the role operator");
        }
        self.check_duties(&self.plan.policy().duties, actor)?;
        self.emit(Body::RunApproved {
            by: Some(actor.id.clone()),
            reason,
        });
        Ok(Reply::Done)
    }

    pub(super) fn start(
        &mut self,
        engine: String,
        engine_run_ref: String,
        fetched: Option<String>,
    ) -> Handled {
        let policy = self.plan.policy();
        match self.state.phase() {
            Phase::Ended(_) => return terminal(),
            Phase::Created if policy.must_queue => {
                return reject(
                    Code::InvalidTransition,
                    "the run is idle: queue it before it is started",
                );
            }
            Phase::Created | Phase::Queued => {}
            Phase::Void
            | Phase::Running
            | Phase::Finalizing
            | Phase::Stopping
            | Phase::Compensating => {
                return reject(Code::InvalidTransition, "the run has started already");
            }
        }
        if self
            .state
            .start_after()
            .is_some_and(|after| after > self.now)
        {
            return reject(Code::InvalidTransition, "the run is not to be started yet");
        }
        if let Some(found) = fetched.filter(|found| *found != self.plan.net().source.sha256) {
            let wanted = &self.plan.net().source.sha256;
            let message =
                format!("the definition has sha256 {found}, the plan reference says {wanted}");
            let error = StepError::new(
                ErrorClass::Validation,
                codes::PLAN_INTEGRITY_VALIDATION_FAILED,
                message,
            );
            self.emit(Body::RunFailed {
                error,
                rollback: Rollback::None,
                undos: Vec::new(),
            });
            return Ok(Reply::Done);
        }
        if !self.state.approved() {
            if policy.needs_approval {
                return reject(
                    Code::RunNotApproved,
                    "the run needs an approval before it starts",
                );
            }
            self.emit(Body::RunApproved {
                by: None,
                reason: None,
            });
        }
        let entry = match policy.entry {
            // A rule that cannot be evaluated denies: the stall then names it.
            EntryPoint::Step(step) => self
                .admits(step, &Boundary::default())
                .unwrap_or(AdmissionVerdict::Denied),
            EntryPoint::Roots => AdmissionVerdict::Allowed,
        };
        let deadline = policy.timeout_ms.map(|timeout| self.now.plus(timeout));
        self.emit(Body::RunStarted {
            engine,
            engine_run_ref,
            entry,
            deadline,
        });
        Ok(Reply::Done)
    }
}

/// The contract's pattern for run ids.
fn valid_run_id(id: &str) -> bool {
    let Some(rest) = id.strip_prefix("run_") else {
        return false;
    };
    (1..=200).contains(&rest.len())
        && rest
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Deep merge: objects by key, anything else is replaced. A reference stands for a whole value.
pub(super) fn merge(base: &Json, over: Json) -> Json {
    match (base, over) {
        (_, over) if reference::is_reference(&over) => over,
        (Json::Object(base), Json::Object(over)) => {
            let mut merged = base.clone();
            for (key, value) in over {
                let value = match merged.get(&key) {
                    Some(before) => merge(before, value),
                    None => value,
                };
                merged.insert(key, value);
            }
            Json::Object(merged)
        }
        (base, Json::Null) => base.clone(),
        (_, over) => over,
    }
}

/// The plan's own parameters with their templates evaluated once, so that the log has the values. They
/// see each other as written, and which run it is; one that fails stays as it is.
fn rendered(value: &Json, run_id: &str, given: &Arc<Json>) -> Json {
    let scope = |name: &str| match name {
        "workload" => Some(given.clone()),
        "run_id" => Some(Arc::new(json!(run_id))),
        "execution_id" => Some(Arc::new(json!(keys::execution_id(run_id)))),
        "job" => Some(Arc::new(json!({
            "uuid": run_id,
            "execution_id": keys::execution_id(run_id),
        }))),
        name => given.get(name).map(|value| Arc::new(value.clone())),
    };
    match value {
        Json::String(text) if has_template(text) => {
            let template = Template::parse(text).ok();
            let value = template.and_then(|template| template.evaluate(&scope).ok());
            value.unwrap_or_else(|| json!(text))
        }
        Json::Array(items) => items.iter().map(|it| rendered(it, run_id, given)).collect(),
        Json::Object(map) => {
            let fields = map.iter();
            let fields = fields.map(|(key, it)| (key.clone(), rendered(it, run_id, given)));
            Json::Object(fields.collect())
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => value.clone(),
    }
}
