//! Evidence: what an auditor gets. One record for every attempt and every terminal transition of a
//! run, and for everything that a person decided, each holding the hash of the one before it.
//!
//! Evidence is derived from the log and from nothing else, so it can be made again at any time and
//! always comes out the same. Signing is for others: `signature` is not part of the hash.

mod record;

use std::collections::HashMap;

use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use stepwell_kernel::command::ManualOutcome;
use stepwell_kernel::event::{
    Body, Event, Lease, Rollback, RunContext, SkipReason, StepError, StopCause, UndoResult,
};
use stepwell_kernel::keys;
use stepwell_kernel::plan::{ErrorClass, Plan, StepRef};
use stepwell_kernel::time::Time;

pub use record::{
    ActionOutcome, Compensated, CompensationSummary, Correlation, Evidence, EvidenceFault,
    EvidenceFinding, EvidenceKind, PersonDecision,
};

/// The evidence of a run.
#[must_use]
pub fn evidence(plan: &Plan, run_id: &str, events: &[Event]) -> Vec<Evidence> {
    let mut chain = EvidenceChain {
        plan,
        run_id,
        context: RunContext::default(),
        began: HashMap::new(),
        run_started: events.first().map_or(Time(0), |event| event.at),
        signalled_by: None,
        is_unknown: false,
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

/// A decision of which only the reason is known.
fn because(reason: Option<String>) -> PersonDecision {
    PersonDecision {
        reason,
        ..PersonDecision::default()
    }
}

/// What of a step is in progress.
#[derive(Clone, Debug, Default)]
struct ActionStart {
    /// The action, in this logical attempt.
    action: Option<Time>,
    /// The attempt; taken when it ends.
    attempt: Option<Time>,
    logical: u32,
    /// The number of attempts so far.
    attempts: u32,
    /// The next claim goes on with this attempt: it answers a wait, or replaces an execution that was lost.
    goes_on: bool,
    /// When the open wait began.
    waits: Option<Time>,
    worker: Option<String>,
}

struct EvidenceChain<'a> {
    plan: &'a Plan,
    run_id: &'a str,
    context: RunContext,
    /// By step and whether it is its compensation.
    began: HashMap<(StepRef, bool), ActionStart>,
    run_started: Time,
    /// The sender of the last signal: a step that an operator skips ends right after the signal.
    signalled_by: Option<String>,
    /// The event says that nobody knows how the work ended.
    is_unknown: bool,
    records: Vec<Evidence>,
}

impl EvidenceChain<'_> {
    fn event(&mut self, event: &Event) {
        self.is_unknown = matches!(
            event.body,
            Body::StepFailed { unknown: true, .. }
                | Body::StepExecutionFailed { loss: Some(_), .. }
                | Body::UndoExecutionFailed { loss: Some(_), .. }
        );
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
            Body::StepWaiting { step, .. } => {
                let began = self.began.entry((*step, false)).or_default();
                began.waits = Some(event.at);
                began.goes_on = true;
            }
            Body::StepExecutionFailed {
                step,
                execution,
                error,
                loss,
                ..
            } => {
                self.attempt(event, (*step, false), *execution, Err(error), None);
                self.goes_on((*step, false), loss.is_some());
            }
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
            Body::StepSkipped { step, reason, .. } => self.skipped(event, *step, *reason),
            Body::UndoStarted { step, lease, .. } => {
                self.begin((*step, true), 1, Some(lease), event.at);
            }
            Body::UndoExecutionFailed {
                step,
                execution,
                error,
                loss,
                ..
            } => {
                self.attempt(event, (*step, true), *execution, Err(error), None);
                self.goes_on((*step, true), loss.is_some());
            }
            Body::UndoFailed {
                step,
                execution,
                error,
            } => self.attempt(event, (*step, true), *execution, Err(error), None),
            Body::UndoCompleted { step, execution } => {
                self.attempt(event, (*step, true), *execution, Ok(()), None);
            }
            Body::RunCompleted { .. } => self.run(event, ActionOutcome::Succeeded, None),
            Body::RunFailed {
                error,
                rollback,
                undos,
            } => {
                self.run(event, ActionOutcome::Failed, Some(error));
                self.summary(event, ActionOutcome::Failed, *rollback, undos);
            }
            Body::RunCancelled {
                rollback, undos, ..
            } => {
                self.run(event, ActionOutcome::Cancelled, None);
                self.summary(event, ActionOutcome::Cancelled, *rollback, undos);
            }
            Body::StepAnswered { .. } => self.answered(event),
            Body::RunApproved {
                by: by @ Some(_),
                reason,
            } => self.decided(
                event,
                EvidenceKind::RunApproval,
                by.clone(),
                because(reason.clone()),
            ),
            Body::SignalAccepted {
                signal_id,
                signal,
                by,
                reason,
                payload,
            } => {
                self.signalled_by = Some(by.clone());
                let decision = PersonDecision {
                    signal: Some(signal.clone()),
                    signal_id: Some(signal_id.clone()),
                    ..because(reason.clone())
                };
                let mut record =
                    self.decision(event, EvidenceKind::Signal, Some(by.clone()), decision);
                let named = payload.get("stepId").and_then(Json::as_str);
                record.action_id = named.map(str::to_owned);
                self.push(record);
            }
            Body::CtxPatched { by, ctx } => {
                let decision = PersonDecision {
                    changed: ctx.keys().cloned().collect(),
                    ..PersonDecision::default()
                };
                self.decided(event, EvidenceKind::Change, Some(by.clone()), decision);
            }
            Body::CompensationInterrupted { by, reason }
            | Body::RunStopping {
                cause: StopCause::Cancel { by, reason },
                ..
            } => self.decided(
                event,
                EvidenceKind::Stop,
                by.clone(),
                because(reason.clone()),
            ),
            Body::RunStopping {
                cause: StopCause::Emergency { by, reason },
                ..
            } => {
                let reason = Some(reason.clone());
                self.decided(event, EvidenceKind::Stop, by.clone(), because(reason));
            }
            // None of these is an attempt, an end, or something that a person decided.
            Body::RunApproved { by: None, .. }
            | Body::RunQueued { .. }
            | Body::RunPaused { .. }
            | Body::RunResumed { .. }
            | Body::RunFinalizing { .. }
            | Body::RunStopping {
                cause:
                    StopCause::StepFailed { .. }
                    | StopCause::RunTimeout
                    | StopCause::StallTimeout { .. },
                ..
            }
            | Body::SignalRejected { .. }
            | Body::EventReceived { .. }
            | Body::ParamsUpdated { .. }
            | Body::OverrideInjected { .. }
            | Body::TargetUpdated { .. }
            | Body::PauseDrainTimedOut { .. }
            | Body::RunStalled { .. }
            | Body::Opaque(_)
            | Body::StepApproved { .. }
            | Body::StepWoken { .. }
            | Body::StepHeld { .. }
            | Body::StepRouted { .. }
            | Body::TokensAdmitted { .. }
            | Body::CompensationStarted { .. } => {}
        }
    }

    fn begin(&mut self, key: (StepRef, bool), logical: u32, lease: Option<&Lease>, at: Time) {
        let began = self.began.entry(key).or_default();
        began.action.get_or_insert(at);
        // A claim that answers a wait goes on with the attempt that waited.
        began.attempt.get_or_insert(at);
        // A wait for an approval comes before the first attempt.
        if !began.goes_on || began.attempts == 0 {
            began.attempts += 1;
        }
        began.goes_on = false;
        began.logical = logical;
        began.worker = lease.map(|lease| lease.worker.clone());
    }

    /// Whether the next claim goes on with the attempt whose execution has ended.
    fn goes_on(&mut self, key: (StepRef, bool), goes_on: bool) {
        if let Some(began) = self.began.get_mut(&key) {
            began.goes_on = goes_on;
        }
    }

    /// The record of what a person or system decided about the run.
    fn decision(
        &self,
        event: &Event,
        kind: EvidenceKind,
        by: Option<String>,
        decision: PersonDecision,
    ) -> Evidence {
        let mut record = self.record(event, kind, event.at, Ok(()));
        record.correlation.actor = by;
        record.decision = Some(decision);
        record
    }

    fn decided(
        &mut self,
        event: &Event,
        kind: EvidenceKind,
        by: Option<String>,
        decision: PersonDecision,
    ) {
        let record = self.decision(event, kind, by, decision);
        self.push(record);
    }

    /// The answer of a person for an action that waits.
    fn answered(&mut self, event: &Event) {
        let Body::StepAnswered {
            step,
            logical,
            execution,
            outcome,
            by,
            completed_at,
            notes,
            evidence_refs,
            ..
        } = &event.body
        else {
            return;
        };
        let decision = PersonDecision {
            evidence_refs: evidence_refs.clone(),
            completed_at_iso: Some(completed_at.to_rfc3339()),
            ..because(notes.clone())
        };
        let mut record = self.decision(event, EvidenceKind::Answer, Some(by.clone()), decision);
        let began = self.began.get(&(*step, false)).cloned().unwrap_or_default();
        self.about(&mut record, (*step, false), *logical);
        record.started_at_iso = began.waits.unwrap_or(event.at).to_rfc3339();
        record.attempt = began.attempts;
        record.execution = Some(*execution).filter(|it| *it > 0);
        record.outcome = match outcome {
            ManualOutcome::Succeeded => ActionOutcome::Succeeded,
            ManualOutcome::Failed => ActionOutcome::Failed,
            ManualOutcome::Cancelled => ActionOutcome::Cancelled,
        };
        self.push(record);
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
        record.attempt = began.attempts;
        record.execution = Some(execution).filter(|it| *it > 0);
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
        record.attempt = began.attempts;
        record.execution = Some(execution).filter(|it| *it > 0);
        record.correlation.actor = by.cloned().or(began.worker);
        self.push(record);
    }

    fn skipped(&mut self, event: &Event, step: StepRef, reason: SkipReason) {
        let mut record = self.record(event, EvidenceKind::Transition, event.at, Ok(()));
        self.about(&mut record, (step, false), 1);
        record.outcome = ActionOutcome::Cancelled;
        if matches!(reason, SkipReason::Operator | SkipReason::OperatorAhead) {
            record.correlation.actor = self.signalled_by.clone();
        }
        self.push(record);
    }

    fn run(&mut self, event: &Event, outcome: ActionOutcome, error: Option<&StepError>) {
        let result = error.map_or(Ok(()), Err);
        let mut record = self.record(event, EvidenceKind::Run, self.run_started, result);
        record.outcome = outcome;
        if let Body::RunCancelled { by, reason, .. } = &event.body {
            record.correlation.actor = by.clone();
            record.decision = reason.is_some().then(|| because(reason.clone()));
        }
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
            attempts: self
                .began
                .get(&(undo.step, true))
                .map_or(0, |it| it.attempts),
            executions: undo.executions,
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
            execution: None,
            started_at_iso: started.to_rfc3339(),
            ended_at_iso: event.at.to_rfc3339(),
            outcome: match error.map(|error| error.class) {
                None => ActionOutcome::Succeeded,
                Some(_) if self.is_unknown => ActionOutcome::Unknown,
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
            decision: None,
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
