//! Evidence: what an auditor gets. One record for every attempt and every terminal transition of a
//! run, each holding the hash of the one before it.
//!
//! Evidence is derived from the log and from nothing else, so it can be made again at any time and
//! always comes out the same. Signing is for others: `signature` is not part of the hash.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use stepwell_kernel::event::{
    Body, Event, Lease, Rollback, RunContext, StepError, UndoOutcome, UndoResult,
};
use stepwell_kernel::keys;
use stepwell_kernel::plan::{ErrorClass, Plan, StepRef};
use stepwell_kernel::time::Time;

/// One record of the chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// The version of this record's shape.
    pub schema_version: u32,
    /// What the record is about.
    pub kind: EvidenceKind,
    pub run_id: String,
    /// The action; absent for records about the run itself.
    pub action_id: Option<String>,
    /// Which attempt, from 1; 0 if there was none.
    pub attempt: u32,
    /// When the attempt, the action or the run began.
    pub started_at_iso: String,
    pub ended_at_iso: String,
    /// What it came to.
    pub outcome: ActionOutcome,
    /// The class of the error, if it failed.
    pub error_class: Option<String>,
    /// The error in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// What belongs together.
    pub correlation: Correlation,
    /// The result of each compensation; only in a summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation: Option<CompensationSummary>,
    /// The hash of the record before; absent in the first.
    pub previous_hash: Option<String>,
    /// SHA-256 over the record's canonical JSON without `hash` and `signature`.
    pub hash: String,
    /// A signature over `hash`, if someone signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceKind {
    /// One attempt of an action.
    Attempt,
    /// An action reached a terminal state.
    Transition,
    /// One attempt of a compensation.
    CompensationAttempt,
    /// The run ended.
    Run,
    /// The result of all compensations of the run.
    CompensationSummary,
}

/// What an attempt, an action or a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActionOutcome {
    /// It did what it should.
    Succeeded,
    /// It did not.
    Failed,
    /// It was stopped or never began.
    Cancelled,
}

/// Metadata that ties a record to its run, its event and its effects outside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Correlation {
    /// The event that the record was made from.
    pub event_id: String,
    /// Its place in the log.
    pub event_seq: u64,
    /// The key that the action or compensation carried to the outside.
    pub idempotency_key: Option<String>,
    pub workflow_id: String,
    pub workflow_version: String,
    /// Whose run it is.
    pub tenant_id: String,
    /// Who started it.
    pub triggered_by: Option<String>,
    /// The worker, or the person who decided.
    pub actor: Option<String>,
}

/// The results of the compensations of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompensationSummary {
    /// How far the undoing came as a whole.
    pub rollback: Rollback,
    /// Each compensation, in the order they ran.
    pub actions: Vec<Compensated>,
}

/// The result of one compensation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compensated {
    pub action_id: String,
    /// The result of its compensation.
    pub outcome: UndoOutcome,
    /// How often it was tried.
    pub attempts: u32,
}

/// Something that is wrong with a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceFinding {
    /// The record's place in the chain, from 0.
    pub index: usize,
    /// What is wrong with it.
    pub fault: EvidenceFault,
}

/// What can be wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceFault {
    /// The record was changed after it was hashed.
    HashMismatch,
    /// It does not follow the record before it.
    ChainBreak,
    /// It ended before it began, or before the record before it.
    TimestampNotMonotonic,
}

/// The evidence of a run.
#[must_use]
pub fn evidence(plan: &Plan, run_id: &str, events: &[Event]) -> Vec<Evidence> {
    let mut chain = EvidenceChain {
        plan,
        run_id,
        context: RunContext::default(),
        began: HashMap::new(),
        run_started: events.first().map_or(Time(0), |event| event.at),
        records: Vec::new(),
    };
    for event in events {
        let known = |at: StepRef| (at.step.0 as usize) < plan.len();
        if event.body.step().is_none_or(known) {
            chain.event(event);
        }
    }
    chain.records
}

/// Everything that is wrong with a chain, in its order.
#[must_use]
pub fn verify(chain: &[Evidence]) -> Vec<EvidenceFinding> {
    let mut findings = Vec::new();
    let mut before: Option<&Evidence> = None;
    for (index, record) in chain.iter().enumerate() {
        let mut find = |fault| findings.push(EvidenceFinding { index, fault });
        if digest(record) != record.hash {
            find(EvidenceFault::HashMismatch);
        }
        if record.previous_hash.as_ref() != before.map(|before| &before.hash) {
            find(EvidenceFault::ChainBreak);
        }
        let ended = |record: &Evidence| Time::from_rfc3339(&record.ended_at_iso);
        let started = Time::from_rfc3339(&record.started_at_iso);
        let lasts = started.is_some() && started <= ended(record);
        if !lasts || before.is_some_and(|before| ended(record) < ended(before)) {
            find(EvidenceFault::TimestampNotMonotonic);
        }
        before = Some(record);
    }
    findings
}

/// SHA-256 of the record's RFC 8785 form without `hash` and `signature`, lower-case hex.
fn digest(record: &Evidence) -> String {
    let mut json = serde_json::to_value(record).unwrap_or_default();
    if let Json::Object(fields) = &mut json {
        fields.remove("hash");
        fields.remove("signature");
    }
    // A record is text and small whole numbers: it always has a canonical form.
    let canonical = serde_json_canonicalizer::to_vec(&json).unwrap_or_default();
    keys::hex(&Sha256::digest(canonical))
}

/// What of a step is in progress.
#[derive(Clone, Debug, Default)]
struct ActionStart {
    /// The action, in this logical attempt.
    action: Option<Time>,
    /// The attempt; taken when it ends.
    attempt: Option<Time>,
    logical: u32,
    worker: Option<String>,
}

struct EvidenceChain<'a> {
    plan: &'a Plan,
    run_id: &'a str,
    context: RunContext,
    /// By step and whether it is its compensation.
    began: HashMap<(StepRef, bool), ActionStart>,
    run_started: Time,
    records: Vec<Evidence>,
}

impl EvidenceChain<'_> {
    fn event(&mut self, event: &Event) {
        match &event.body {
            Body::RunCreated { context, .. } => self.context = context.clone(),
            Body::RunStarted { .. } => self.run_started = event.at,
            Body::StepStarted {
                step,
                logical,
                lease,
                ..
            } => self.begin((*step, false), *logical, lease.as_ref(), event.at),
            Body::StepExecutionStarted {
                step,
                logical,
                lease,
                ..
            } => self.begin((*step, false), *logical, Some(lease), event.at),
            Body::StepRetried { step, .. } => {
                self.began.remove(&(*step, false));
            }
            Body::StepExecutionFailed {
                step,
                execution,
                error,
                ..
            } => self.attempt(event, (*step, false), *execution, Err(error), None),
            Body::StepCompleted {
                step,
                execution,
                by,
                ..
            } => {
                self.attempt(event, (*step, false), *execution, Ok(()), by.as_ref());
                self.transition(event, *step, *execution, Ok(()), by.as_ref());
            }
            Body::StepFailed {
                step,
                execution,
                error,
                cancelled,
                by,
                ..
            } => {
                let mut error = error.clone();
                if *cancelled {
                    error.class = ErrorClass::Cancelled;
                }
                self.attempt(event, (*step, false), *execution, Err(&error), by.as_ref());
                self.transition(event, *step, *execution, Err(&error), by.as_ref());
            }
            Body::StepSkipped { step, .. } => self.skipped(event, *step),
            Body::UndoStarted { step, lease, .. } => {
                self.begin((*step, true), 1, Some(lease), event.at);
            }
            Body::UndoExecutionFailed {
                step,
                execution,
                error,
                ..
            }
            | Body::UndoFailed {
                step,
                execution,
                error,
            } => self.attempt(event, (*step, true), *execution, Err(error), None),
            Body::UndoCompleted { step, execution } => {
                self.attempt(event, (*step, true), *execution, Ok(()), None);
            }
            Body::RunCompleted { .. } => self.run(event, ActionOutcome::Succeeded, None, None),
            Body::RunFailed {
                error,
                rollback,
                undos,
            } => {
                self.run(event, ActionOutcome::Failed, Some(error), None);
                self.summary(event, ActionOutcome::Failed, *rollback, undos);
            }
            Body::RunCancelled {
                by,
                rollback,
                undos,
                ..
            } => {
                self.run(event, ActionOutcome::Cancelled, None, by.as_ref());
                self.summary(event, ActionOutcome::Cancelled, *rollback, undos);
            }
            _ => {}
        }
    }

    fn begin(&mut self, key: (StepRef, bool), logical: u32, lease: Option<&Lease>, at: Time) {
        let began = self.began.entry(key).or_default();
        began.action.get_or_insert(at);
        // A claim that answers a wait goes on with the attempt that waited.
        began.attempt.get_or_insert(at);
        began.logical = logical;
        began.worker = lease.map(|lease| lease.worker.clone());
    }

    /// The end of an attempt; nothing if none is open.
    fn attempt(
        &mut self,
        event: &Event,
        key: (StepRef, bool),
        execution: u32,
        result: Result<(), &StepError>,
        by: Option<&String>,
    ) {
        let Some(began) = self.began.get_mut(&key) else {
            return;
        };
        let Some(started) = began.attempt.take() else {
            return;
        };
        let began = began.clone();
        let kind = match key.1 {
            false => EvidenceKind::Attempt,
            true => EvidenceKind::CompensationAttempt,
        };
        let mut record = self.record(event, kind, started, result);
        self.about(&mut record, key, began.logical);
        record.attempt = execution;
        record.correlation.actor = by.cloned().or(began.worker);
        self.push(record);
    }

    /// The end of an action.
    fn transition(
        &mut self,
        event: &Event,
        step: StepRef,
        execution: u32,
        result: Result<(), &StepError>,
        by: Option<&String>,
    ) {
        let began = self.began.get(&(step, false)).cloned().unwrap_or_default();
        let started = began.action.unwrap_or(event.at);
        let mut record = self.record(event, EvidenceKind::Transition, started, result);
        self.about(&mut record, (step, false), began.logical.max(1));
        record.attempt = execution;
        record.correlation.actor = by.cloned().or(began.worker);
        self.push(record);
    }

    fn skipped(&mut self, event: &Event, step: StepRef) {
        let mut record = self.record(event, EvidenceKind::Transition, event.at, Ok(()));
        self.about(&mut record, (step, false), 1);
        record.outcome = ActionOutcome::Cancelled;
        self.push(record);
    }

    fn run(
        &mut self,
        event: &Event,
        outcome: ActionOutcome,
        error: Option<&StepError>,
        by: Option<&String>,
    ) {
        let result = error.map_or(Ok(()), Err);
        let mut record = self.record(event, EvidenceKind::Run, self.run_started, result);
        record.outcome = outcome;
        record.correlation.actor = by.cloned();
        self.push(record);
    }

    /// The results of the compensations, if the run was compensated.
    fn summary(
        &mut self,
        event: &Event,
        outcome: ActionOutcome,
        rollback: Rollback,
        undos: &[UndoResult],
    ) {
        if rollback == Rollback::None && undos.is_empty() {
            return;
        }
        let known = |undo: &&UndoResult| (undo.step.step.0 as usize) < self.plan.len();
        let compensated = |undo: &UndoResult| Compensated {
            action_id: self.plan.step_id(undo.step),
            outcome: undo.outcome,
            attempts: undo.executions,
        };
        let actions = undos.iter().filter(known).map(compensated).collect();
        let mut record = self.record(
            event,
            EvidenceKind::CompensationSummary,
            self.run_started,
            Ok(()),
        );
        record.outcome = outcome;
        record.compensation = Some(CompensationSummary { rollback, actions });
        self.push(record);
    }

    fn record(
        &self,
        event: &Event,
        kind: EvidenceKind,
        started: Time,
        result: Result<(), &StepError>,
    ) -> Evidence {
        let net = self.plan.net();
        let error = result.err();
        Evidence {
            schema_version: 1,
            kind,
            run_id: self.run_id.to_owned(),
            action_id: None,
            attempt: 0,
            started_at_iso: started.to_rfc3339(),
            ended_at_iso: event.at.to_rfc3339(),
            outcome: match error.map(|error| error.class) {
                None => ActionOutcome::Succeeded,
                Some(ErrorClass::Cancelled) => ActionOutcome::Cancelled,
                Some(_) => ActionOutcome::Failed,
            },
            error_class: error.map(|error| error.class.name().to_owned()),
            error_message: error.map(|error| error.message.clone()),
            correlation: Correlation {
                event_id: keys::event_id(self.run_id, event.seq),
                event_seq: event.seq,
                idempotency_key: None,
                workflow_id: net.plan_id.clone(),
                workflow_version: net.plan_version.clone(),
                tenant_id: self.context.tenant_id.clone(),
                triggered_by: self.context.triggered_by.clone(),
                actor: None,
            },
            compensation: None,
            previous_hash: None,
            hash: String::new(),
            signature: None,
        }
    }

    fn about(&self, record: &mut Evidence, (step, undo): (StepRef, bool), logical: u32) {
        let id = self.plan.step_id(step);
        record.correlation.idempotency_key = Some(match undo {
            true => keys::undo_key(self.run_id, &id),
            false => keys::step_key(self.run_id, &id, logical),
        });
        record.action_id = Some(id);
    }

    fn push(&mut self, mut record: Evidence) {
        record.previous_hash = self.records.last().map(|before| before.hash.clone());
        record.hash = digest(&record);
        self.records.push(record);
    }
}
