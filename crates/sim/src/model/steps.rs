//! The model of actions, dag and linear: which steps may start, whether a failure is retried and when, how the run ends,
//! which steps are undone and in which order, and which parameters work gets.

use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{
    Body, Event, Rollback, SkipReason, StepError, StopCause, UndoOutcome,
};
use stepwell_kernel::plan::{ErrorClass, StepNo, StepRef};
use stepwell_kernel::time::Time;

use super::Verdict;
use crate::definitions::{Answer, Growth, Language, StepDefinition, StepsDefinition};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Not started in this logical attempt.
    #[default]
    Pending,
    Started,
    Succeeded,
    /// Failed, and not tried again.
    Failed,
    /// Skipped by the definition or by an operator, which satisfies the steps after it.
    Skipped,
    /// Never to run: the run has stopped.
    Dropped,
}

#[derive(Clone, Debug, Default)]
struct StepModel {
    stage: Stage,
    /// Failures that were reported in this logical attempt.
    failures: u32,
    /// Executions that were lost with their process.
    losses: u32,
    /// The parameters that the logical attempt began with.
    params: Arc<Json>,
    undo_failures: u32,
    undo_losses: u32,
}

/// Why the run stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Failure,
    Cancel,
}

/// A run as the specifications describe it.
#[derive(Clone, Debug)]
pub(crate) struct StepsModel {
    definition: Arc<StepsDefinition>,
    steps: Vec<StepModel>,
    /// Steps that succeeded, or that were cut off so that nobody knows, in the order of their end.
    completed: Vec<usize>,
    params: Arc<Json>,
    stopping: Option<Cause>,
    /// A step failed and its answer is not to go on.
    must_stop: bool,
    compensates: bool,
    /// What is still to be undone, the next one first; none before undoing begins.
    undo: Option<Vec<usize>>,
    undo_failed: bool,
    interrupted: bool,
    cancel_asked: bool,
    paused: bool,
}

impl StepsModel {
    pub(crate) fn new(definition: Arc<StepsDefinition>) -> StepsModel {
        StepsModel {
            steps: vec![StepModel::default(); definition.steps.len()],
            definition,
            completed: Vec::new(),
            params: Arc::default(),
            stopping: None,
            must_stop: false,
            compensates: false,
            undo: None,
            undo_failed: false,
            interrupted: false,
            cancel_asked: false,
            paused: false,
        }
    }

    /// Takes the next event of the log. An error says what the specifications do not allow.
    pub(crate) fn take(&mut self, event: &Event) -> Verdict {
        match &event.body {
            Body::RunCreated { params, .. } => self.params = params.clone(),
            Body::SignalAccepted {
                signal, payload, ..
            } => self.signal(signal, payload),
            Body::ParamsUpdated { params } if **params != *self.params => {
                return Err(format!(
                    "the parameters became {params}, not {}",
                    self.params
                ));
            }
            Body::RunPaused { .. } => self.paused = true,
            Body::RunResumed { .. } => self.paused = false,
            Body::StepStarted { step, .. } => return self.starts(*step, true),
            Body::StepExecutionStarted { step, .. } => return self.starts(*step, false),
            Body::StepExecutionFailed {
                step,
                error,
                retry_at,
                ..
            } => return self.retries(*step, error, event.at, *retry_at),
            Body::StepCompleted { step, .. } => return self.completes(*step),
            Body::StepFailed {
                step,
                error,
                cancelled,
                unknown,
                by,
                ..
            } => {
                self.fails(*step, error, *cancelled, by.is_some())?;
                if *unknown {
                    self.left_a_mark(index(step.step));
                }
            }
            Body::StepSkipped { step, reason, .. } => return self.skips(*step, *reason),
            Body::StepRetried { step, .. } => {
                let (it, _) = self.step(*step)?;
                *it = StepModel::default();
                self.reconsider();
            }
            Body::RunStopping { cause, compensate } => return self.stops(cause, *compensate),
            Body::CompensationStarted { undo, .. } => return self.undoing(undo),
            Body::CompensationInterrupted { .. } => self.interrupted = true,
            Body::UndoStarted { step, .. } => return self.undo_starts(*step),
            Body::UndoExecutionFailed { step, error, .. } => {
                return self.undo_fails(*step, error, true);
            }
            Body::UndoFailed { step, error, .. } => return self.undo_fails(*step, error, false),
            Body::UndoCompleted { step, .. } => {
                self.undo_starts(*step)?;
                self.undo_is_over();
            }
            Body::RunCompleted { .. } => return self.succeeds(),
            Body::RunFailed {
                rollback, undos, ..
            } => {
                if self.stopping != Some(Cause::Failure) {
                    return Err(format!(
                        "the run failed, but it stops because of {:?}",
                        self.stopping
                    ));
                }
                let outcomes: Vec<UndoOutcome> = undos.iter().map(|it| it.outcome).collect();
                return self.rolled_back(*rollback, &outcomes);
            }
            Body::RunCancelled { .. } if !self.cancel_asked => {
                return Err("the run was cancelled, and nobody asked for it".into());
            }
            _ => {}
        }
        Ok(())
    }

    /// Work begins with these parameters.
    pub(crate) fn begins(&self, target: Target, params: &Json) -> Verdict {
        let Target::Step(at) = target else {
            return Ok(());
        };
        let it = self
            .steps
            .get(index(at.step))
            .ok_or("a step of no definition")?;
        match *it.params == *params {
            true => Ok(()),
            false => Err(format!(
                "{} began with the parameters {params}, not {}",
                self.definition.steps[index(at.step)].name,
                it.params
            )),
        }
    }

    fn step(&mut self, at: StepRef) -> Result<(&mut StepModel, &StepDefinition), String> {
        let index = index(at.step);
        match (self.steps.get_mut(index), self.definition.steps.get(index)) {
            (Some(it), Some(definition)) => Ok((it, definition)),
            _ => Err("a step of no definition".into()),
        }
    }

    fn signal(&mut self, signal: &str, payload: &Json) {
        if signal == "CANCEL" || signal == "EMERGENCY_STOP" {
            self.cancel_asked = true;
        }
        if signal == "UPDATE_PARAMS"
            && let (Some(old), Some(new)) = (self.params.as_object(), payload["params"].as_object())
        {
            let mut merged = old.clone();
            merged.extend(new.clone());
            self.params = Arc::new(Json::Object(merged));
        }
    }

    fn starts(&mut self, at: StepRef, first: bool) -> Verdict {
        if self.stopping.is_some() || self.must_stop {
            return Err(format!("step {} started in a run that stops", at.step.0));
        }
        let stages: Vec<Stage> = self.steps.iter().map(|it| it.stage).collect();
        let params = self.params.clone();
        let skipped_counts = |need: &usize| stages.get(*need) == Some(&Stage::Skipped);
        let (it, definition) = self.step(at)?;
        let open =
            |need: &&usize| stages.get(**need) != Some(&Stage::Succeeded) && !skipped_counts(need);
        if let Some(need) = definition.needs.iter().find(open) {
            return Err(format!(
                "{} started before step {need}, which it depends on, had succeeded",
                definition.name
            ));
        }
        if !matches!(it.stage, Stage::Pending | Stage::Started) {
            return Err(format!(
                "{} started, but it is {:?}",
                definition.name, it.stage
            ));
        }
        if it.failures >= definition.max_attempts {
            return Err(format!(
                "{} started after {} failures, of {} attempts",
                definition.name, it.failures, definition.max_attempts
            ));
        }
        it.stage = Stage::Started;
        if first {
            it.params = params;
        }
        Ok(())
    }

    fn completes(&mut self, at: StepRef) -> Verdict {
        let (it, definition) = self.step(at)?;
        if it.stage != Stage::Started {
            return Err(format!(
                "{} completed, but it is {:?}",
                definition.name, it.stage
            ));
        }
        it.stage = Stage::Succeeded;
        self.left_a_mark(index(at.step));
        Ok(())
    }

    /// A step is undone once, however often it was begun.
    fn left_a_mark(&mut self, step: usize) {
        self.completed.retain(|it| *it != step);
        self.completed.push(step);
    }

    /// An execution failed, and another one follows.
    fn retries(&mut self, at: StepRef, error: &StepError, now: Time, retry_at: Time) -> Verdict {
        let language = self.definition.language;
        if self.stopping.is_some() {
            return Err(format!("step {} is retried in a run that stops", at.step.0));
        }
        let (it, definition) = self.step(at)?;
        if is_loss(error) {
            it.losses += 1;
            return Ok(());
        }
        it.failures += 1;
        let name = &definition.name;
        if is_retried(language, error.class) == Some(false) {
            return Err(format!(
                "{name} is retried after a failure of class {:?}",
                error.class
            ));
        }
        if it.failures >= definition.max_attempts {
            return Err(format!(
                "{name} is retried after {} failures, of {} attempts",
                it.failures, definition.max_attempts
            ));
        }
        let wait = backoff(definition, it.failures);
        if it.losses == 0 && retry_at != now.plus(wait) {
            return Err(format!(
                "{name} is retried {} ms after failure {}, not {wait} ms",
                retry_at.since(now),
                it.failures
            ));
        }
        Ok(())
    }

    /// A step failed for good, or was stopped.
    fn fails(&mut self, at: StepRef, error: &StepError, cancelled: bool, by_hand: bool) -> Verdict {
        let language = self.definition.language;
        let stopping = self.stopping.is_some() || self.must_stop;
        let (it, definition) = self.step(at)?;
        if !is_loss(error) {
            it.failures += 1;
        }
        // A loss counts as an attempt in some languages and in others not; the model accepts both.
        let attempts = it.failures + it.losses + u32::from(is_loss(error));
        let exhausted = attempts >= definition.max_attempts;
        let may_end = is_retried(language, error.class) != Some(true) || exhausted;
        if !stopping && !cancelled && !by_hand && !may_end {
            return Err(format!(
                "{} failed for good after {attempts} of {} attempts, with class {:?}",
                definition.name, definition.max_attempts, error.class
            ));
        }
        it.stage = Stage::Failed;
        let answer = definition.answer;
        if !cancelled && answer != Answer::Skip {
            self.must_stop = true;
            self.compensates |= answer == Answer::Compensate;
        }
        Ok(())
    }

    /// A step that failed is tried again, as is possible in a pause: other steps may still make the run stop.
    fn reconsider(&mut self) {
        let failed = self.steps.iter().zip(&self.definition.steps);
        let failed = failed.filter(|(it, _)| it.stage == Stage::Failed);
        let answers: Vec<Answer> = failed.map(|(_, it)| it.answer).collect();
        self.must_stop = answers.iter().any(|it| *it != Answer::Skip);
        self.compensates = answers.contains(&Answer::Compensate);
    }

    fn skips(&mut self, at: StepRef, reason: SkipReason) -> Verdict {
        let stops = self.stopping.is_some() || self.must_stop;
        let (it, definition) = self.step(at)?;
        let name = &definition.name;
        let wrong = match reason {
            SkipReason::OnFailure => definition.answer != Answer::Skip || it.stage != Stage::Failed,
            SkipReason::Operator | SkipReason::OperatorAhead => it.stage == Stage::Succeeded,
            SkipReason::DependencyFailed | SkipReason::Cancelled => !stops,
            SkipReason::Discarded => true,
        };
        if wrong {
            return Err(format!(
                "{name}, which is {:?}, was skipped: {reason:?}",
                it.stage
            ));
        }
        it.stage = match reason {
            SkipReason::OnFailure | SkipReason::Operator | SkipReason::OperatorAhead => {
                Stage::Skipped
            }
            _ => Stage::Dropped,
        };
        Ok(())
    }

    fn stops(&mut self, cause: &StopCause, compensate: bool) -> Verdict {
        let (expected, why) = match cause {
            StopCause::StepFailed { step } => {
                let (it, definition) = self.step(*step)?;
                if it.stage != Stage::Failed || definition.answer == Answer::Skip {
                    return Err(format!(
                        "the run stops because of {}, which is {:?} and answers with {:?}",
                        definition.name, it.stage, definition.answer
                    ));
                }
                (self.compensates, Cause::Failure)
            }
            StopCause::RunTimeout => {
                if self.definition.timeout_ms.is_none() {
                    return Err("the run timed out, and has no timeout".into());
                }
                // The first cause wins, but undoing beats not undoing: a step may still fail while the run stops.
                let undoes = self.stopping.is_some() && self.compensates;
                let undoes = undoes || self.definition.timeout_compensates;
                (undoes, Cause::Failure)
            }
            StopCause::Cancel { .. } => {
                if !self.cancel_asked {
                    return Err("the run is cancelled, and nobody asked for it".into());
                }
                (compensate, Cause::Cancel)
            }
            StopCause::Emergency { .. } if self.cancel_asked => (false, Cause::Cancel),
            _ => return Err(format!("the run stops because of {cause:?}")),
        };
        if compensate != expected {
            return Err(format!(
                "the run stops with undoing: {compensate}, not {expected}"
            ));
        }
        self.compensates = compensate;
        // The first cause wins.
        self.stopping.get_or_insert(why);
        Ok(())
    }

    /// The steps that are to be undone, the last completed one first.
    fn to_undo(&self) -> Vec<usize> {
        let last_first = self.completed.iter().rev().copied();
        last_first
            .filter(|it| self.definition.steps[*it].undo.is_some())
            .collect()
    }

    fn undoing(&mut self, undo: &[StepRef]) -> Verdict {
        if self.stopping.is_none() || !self.compensates {
            return Err("steps are undone, and nothing says so".into());
        }
        let expected = self.to_undo();
        let undo: Vec<usize> = undo.iter().map(|it| index(it.step)).collect();
        if undo != expected {
            return Err(format!("the undos are {undo:?}, not {expected:?}"));
        }
        self.undo = Some(undo);
        Ok(())
    }

    fn undo_starts(&mut self, at: StepRef) -> Verdict {
        let next = self.undo.as_ref().and_then(|it| it.first());
        if next != Some(&index(at.step)) {
            return Err(format!(
                "step {} is undone, the next is {next:?}",
                at.step.0
            ));
        }
        if self.undo_failed && self.definition.language == Language::Dag {
            return Err(format!(
                "step {} is undone after an undo that failed",
                at.step.0
            ));
        }
        Ok(())
    }

    /// The undo that is the first of the list has ended.
    fn undo_is_over(&mut self) {
        if let Some(undo) = &mut self.undo {
            undo.remove(0);
        }
    }

    fn undo_fails(&mut self, at: StepRef, error: &StepError, again: bool) -> Verdict {
        self.undo_starts(at)?;
        let (language, interrupted) = (self.definition.language, self.interrupted);
        let (it, definition) = self.step(at)?;
        match is_loss(error) {
            true => it.undo_losses += 1,
            false => it.undo_failures += 1,
        }
        // Only the specification of actions says how often an undo is tried.
        if language == Language::Actions {
            let most = definition.undo.flatten().unwrap_or(2);
            let (low, high) = (it.undo_failures, it.undo_failures + it.undo_losses);
            let retried = is_retried(language, error.class);
            let wrong = match again {
                true => interrupted || low >= most || (retried == Some(false) && !is_loss(error)),
                // An undo that is in flight when the compensation is interrupted ends; no other begins.
                false => high < most && retried == Some(true) && !interrupted,
            };
            if wrong {
                return Err(format!(
                    "the undo of {} failed {high} times of {most}, and is tried again: {again}",
                    definition.name
                ));
            }
        }
        if !again {
            self.undo_failed = true;
            self.undo_is_over();
        }
        Ok(())
    }

    fn succeeds(&self) -> Verdict {
        if self.stopping.is_some() || self.must_stop {
            return Err("the run completed, but it must stop".into());
        }
        let done = |it: &StepModel| matches!(it.stage, Stage::Succeeded | Stage::Skipped);
        match self.steps.iter().position(|it| !done(it)) {
            None => Ok(()),
            Some(open) => Err(format!(
                "the run completed, and {} is {:?}",
                self.definition.steps[open].name, self.steps[open].stage
            )),
        }
    }

    fn rolled_back(&self, rollback: Rollback, undos: &[UndoOutcome]) -> Verdict {
        let due = match self.compensates {
            true => self.to_undo().len(),
            false => 0,
        };
        let done = undos.iter().filter(|it| **it == UndoOutcome::Done).count();
        let left = self.undo.as_ref().map_or(due, Vec::len);
        let wrong = match rollback {
            Rollback::None => due > 0,
            Rollback::Complete => left > 0 || self.undo_failed || done != due,
            Rollback::Incomplete => false,
        };
        // With `continue` every undo is tried, whatever became of the others.
        let all = self.definition.language == Language::Actions && !self.interrupted;
        if wrong || (all && left > 0) {
            return Err(format!(
                "the run failed with rollback {rollback:?}: {due} undos were due, {done} are done, {left} were not tried"
            ));
        }
        Ok(())
    }
}

fn index(step: StepNo) -> usize {
    step.0 as usize
}

fn is_loss(error: &StepError) -> bool {
    error.class == ErrorClass::LeaseLost
}

/// Whether a failure of this class is retried while attempts are left; none where the specification leaves it open.
fn is_retried(language: Language, class: ErrorClass) -> Option<bool> {
    match (language, class) {
        (Language::Actions | Language::Dag, ErrorClass::Transient) => Some(true),
        (Language::Actions, ErrorClass::Timeout | ErrorClass::Unknown) => Some(true),
        (Language::Actions, ErrorClass::RateLimit | ErrorClass::Transport) => Some(true),
        (Language::Dag, ErrorClass::Timeout) => Some(false),
        (Language::Actions | Language::Dag, ErrorClass::Validation) => Some(false),
        _ => None,
    }
}

/// The wait after the failure of this number.
fn backoff(step: &StepDefinition, failure: u32) -> u64 {
    let grown = match step.growth {
        Growth::Constant => step.initial_ms,
        Growth::Linear => step.initial_ms * u64::from(failure),
        Growth::Exponential => step.initial_ms << (failure - 1).min(30),
    };
    grown.min(step.max_ms)
}
