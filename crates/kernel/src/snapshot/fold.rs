//! One event changes a snapshot: the contract's table of effects. What has been applied, what comes too
//! late and what is not known changes nothing but the watermark.

use std::collections::HashMap;

use super::read::{ContractEvent, duration};
use super::{RunSnapshot, RunStatus, StepSnapshot, StepStatus};

/// A snapshot in the making, with its attempts by name.
pub(super) struct Fold {
    run: RunSnapshot,
    places: HashMap<String, HashMap<u64, usize>>,
}

impl Fold {
    pub(super) fn new(run: RunSnapshot) -> Fold {
        let mut fold = Fold {
            places: HashMap::new(),
            run,
        };
        for (place, step) in fold.run.steps.iter().enumerate() {
            let attempts = fold.places.entry(step.step_id.clone()).or_default();
            attempts.insert(step.logical_attempt_id, place);
        }
        fold
    }

    pub(super) fn done(self) -> RunSnapshot {
        self.run
    }

    pub(super) fn apply(&mut self, event: &ContractEvent) {
        if event.run_seq <= self.run.last_event_seq {
            return;
        }
        self.run.last_event_seq = event.run_seq;
        if self.run.status.is_terminal() {
            return;
        }
        match event.event_type.as_str() {
            "RunApproved" | "RunStarted" | "RunPaused" | "RunResumed" => self.moves(event),
            "RunCompleted" | "RunFailed" | "RunCancelled" => self.ends(event),
            "StepStarted"
            | "StepExecutionStarted"
            | "StepCompleted"
            | "StepFailed"
            | "StepSkipped"
            | "StepRetried" => self.step_event(event),
            _ => {}
        }
    }

    fn moves(&mut self, event: &ContractEvent) {
        let run = &mut self.run;
        let ordinal = event.number("logicalAttemptId");
        let status = match event.event_type.as_str() {
            "RunApproved" if run.status == RunStatus::Pending => RunStatus::Approved,
            "RunStarted" if run.started_at.is_none() => {
                run.engine_run_ref = event.owned("engineRunRef");
                let event_time = event.event_time();
                let started = event.text("startedAt").or(event_time);
                run.started_at = Some(started.unwrap_or_default().to_owned());
                run.started_event_time = other(event_time, started);
                RunStatus::Running
            }
            // A pause that was applied before is a duplicate, whatever came in between.
            "RunPaused" if ordinal.is_none_or(|ordinal| ordinal > run.pauses) => {
                run.pauses = ordinal.unwrap_or(run.pauses + 1);
                RunStatus::Paused
            }
            "RunResumed" if ordinal.is_none_or(|ordinal| ordinal > run.resumes) => {
                run.resumes = ordinal.unwrap_or(run.resumes + 1);
                RunStatus::Running
            }
            _ => return,
        };
        run.status = status;
        run.substatus = event.owned("substatus");
    }

    fn ends(&mut self, event: &ContractEvent) {
        let run = &mut self.run;
        let (status, at) = match event.event_type.as_str() {
            "RunCompleted" => {
                let made = run.steps.iter().flat_map(|step| step.artifacts.clone());
                run.artifacts = made.collect();
                (RunStatus::Completed, "completedAt")
            }
            "RunFailed" => {
                run.error = event.error();
                (RunStatus::Failed, "failedAt")
            }
            _ => (RunStatus::Cancelled, "cancelledAt"),
        };
        run.status = status;
        run.substatus = event.owned("substatus");
        run.completed_at = event
            .owned(at)
            .or_else(|| event.event_time().map(str::to_owned));
        let started = run.started_event_time.as_ref().or(run.started_at.as_ref());
        run.total_duration_ms = duration(started.map(String::as_str), event.event_time());
    }

    fn step_event(&mut self, event: &ContractEvent) {
        let Some(step_id) = event.text("stepId") else {
            return;
        };
        let attempt = event.number("logicalAttemptId").unwrap_or(1);
        let step = self.step(step_id, attempt);
        let open = matches!(step.status, StepStatus::Pending | StepStatus::Running);
        let engine_attempt = event.number("engineAttemptId");
        match event.event_type.as_str() {
            "StepStarted" if step.status == StepStatus::Pending => {
                step.status = StepStatus::Running;
                step.engine_attempt_id = engine_attempt;
                let event_time = event.event_time();
                let started = event.text("startedAt").or(event_time);
                step.started_at = started.map(str::to_owned);
                step.started_event_time = other(event_time, started);
            }
            "StepExecutionStarted" if step.status == StepStatus::Running => {
                step.engine_attempt_id = engine_attempt.or(step.engine_attempt_id);
            }
            "StepCompleted" if open => {
                step.status = StepStatus::Success;
                end(step, event, "completedAt");
            }
            "StepFailed" if open => {
                step.status = StepStatus::Failed;
                step.error = event.error();
                end(step, event, "failedAt");
                self.run.failed_steps += 1;
            }
            "StepSkipped" if step.status == StepStatus::Pending => {
                step.status = StepStatus::Skipped;
                step.reason = event.owned("reason");
                end(step, event, "skippedAt");
            }
            _ => {}
        }
    }

    /// The attempt, made in PENDING if this is the first that is heard of it.
    fn step(&mut self, step_id: &str, attempt: u64) -> &mut StepSnapshot {
        if !self.places.contains_key(step_id) {
            self.places.insert(step_id.to_owned(), HashMap::new());
        }
        let next = self.run.steps.len();
        let place = match self.places.get_mut(step_id) {
            Some(attempts) => *attempts.entry(attempt).or_insert(next),
            None => next,
        };
        if place == next {
            self.run.steps.push(StepSnapshot {
                step_id: step_id.to_owned(),
                logical_attempt_id: attempt,
                ..StepSnapshot::default()
            });
        }
        &mut self.run.steps[place]
    }
}

fn end(step: &mut StepSnapshot, event: &ContractEvent, at: &str) {
    step.engine_attempt_id = event.number("engineAttemptId").or(step.engine_attempt_id);
    step.completed_at = event
        .owned(at)
        .or_else(|| event.event_time().map(str::to_owned));
    step.artifacts = event.artifacts();
    let started = step
        .started_event_time
        .as_ref()
        .or(step.started_at.as_ref());
    step.duration_ms = duration(started.map(String::as_str), event.event_time());
}

/// The event's time, if it is not the time that is shown.
fn other(event_time: Option<&str>, shown: Option<&str>) -> Option<String> {
    event_time
        .filter(|time| Some(*time) != shown)
        .map(str::to_owned)
}
