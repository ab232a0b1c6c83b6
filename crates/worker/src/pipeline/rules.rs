//! What the rules of a task lead to: the first that holds decides.

use std::time::Duration;

use serde_json::{Map, Value as Json};
use stepwell_dialects::tools::RuleAction;
use stepwell_kernel::codes;
use stepwell_kernel::expr::TemplateError;
use stepwell_kernel::plan::ErrorClass;

use super::outcome_view::OutcomeView;
use super::progress::PipelineProgress;
use super::task::{self, Assignments, PipelineTask, TaskRule};
use super::{Pipeline, PipelineContext};
use crate::outcome::{TaskOutcome, ToolError};
use crate::scope::ScopeView;
use crate::secrets::Redactor;

/// What the rules say about it.
pub(super) enum NextAction {
    Go(usize),
    End,
    Again(Duration),
    Fail(ToolError),
}

impl PipelineContext<'_> {
    /// What the first rule that holds says. Without one, success goes on and an error fails.
    pub(super) fn judge(
        &self,
        pipeline: &Pipeline,
        task: &PipelineTask,
        args: &Map<String, Json>,
        outcome: &TaskOutcome,
        seen: &OutcomeView,
        now: &mut PipelineProgress,
    ) -> Result<NextAction, TemplateError> {
        let mut decided = None;
        for rule in &task.rules {
            let when = rule.when.as_ref();
            let view = self.view(task, now, args, Some(seen.by(when)));
            if when.map_or(Ok(true), |when| when.truthy(&view))? {
                decided = Some(rule);
                break;
            }
        }
        let view = self.view(task, now, args, Some(seen.plain()));
        let act = decided.map_or(
            match outcome.error {
                None => RuleAction::Continue,
                Some(_) => RuleAction::Fail,
            },
            |rule| rule.act,
        );
        // Only a rule asks for another attempt; what its action is otherwise is done below.
        let again = match decided.filter(|_| act == RuleAction::Retry) {
            Some(rule) => self.again(rule, &view, outcome)?,
            None => None,
        };
        let mut sets = Vec::new();
        if outcome.error.is_none() && again.is_none() {
            sets.push(&task.sets);
        }
        // What a retried attempt would set goes with the attempt.
        sets.extend(decided.filter(|_| again.is_none()).map(|rule| &rule.sets));
        let sets = sets
            .into_iter()
            .map(|it| EvaluatedAssignments::of(it, &view));
        let sets: Vec<EvaluatedAssignments> = sets.collect::<Result<_, _>>()?;
        sets.into_iter()
            .for_each(|it| it.apply(now, &self.redactor));
        if let Some(delay) = again {
            return Ok(NextAction::Again(delay));
        }
        now.remember(task, &outcome.result);
        let error = || outcome.error.clone();
        Ok(match act {
            RuleAction::Continue => NextAction::Go(now.at + 1),
            RuleAction::Break => NextAction::End,
            RuleAction::Jump => {
                match target(pipeline, now.at, decided.and_then(|it| it.to.as_deref())) {
                    Some(at) => NextAction::Go(at),
                    None => NextAction::Fail(ToolError::invalid(
                        codes::PIPELINE_BROKEN,
                        "a jump leads nowhere",
                    )),
                }
            }
            RuleAction::Retry => NextAction::Fail(error().unwrap_or_else(|| {
                let message = format!(
                    "after {} attempts its rule still asks for another",
                    now.attempt
                );
                ToolError::new(ErrorClass::Unknown, codes::RETRIES_EXHAUSTED, message)
            })),
            RuleAction::Fail => NextAction::Fail(error().unwrap_or_else(|| {
                let message = said(&outcome.result).unwrap_or("its rule says that it has failed");
                ToolError::new(ErrorClass::Unknown, codes::TASK_FAILED, message)
            })),
        })
    }

    /// How long to wait for the next attempt; nothing if there is none.
    fn again(
        &self,
        rule: &TaskRule,
        view: &ScopeView<'_>,
        outcome: &TaskOutcome,
    ) -> Result<Option<Duration>, TemplateError> {
        let attempts = match rule.attempts.evaluate(view)? {
            Json::Number(number) => number.as_u64(),
            Json::String(text) => text.trim().parse().ok(),
            Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => None,
        };
        if u64::from(view.attempt) >= attempts.unwrap_or(3) {
            return Ok(None);
        }
        let delay = match rule.delay_ms {
            Some(millis) => Duration::from_millis(millis),
            None => task::duration(&rule.delay.evaluate(view)?).unwrap_or(Duration::from_secs(1)),
        };
        let asked = outcome.error.as_ref().and_then(|error| error.retry_after);
        let own = rule.wait(delay, view.attempt, &self.cx.idempotency_key);
        Ok(Some(own.max(asked.unwrap_or_default())))
    }
}

/// What a rule or task sets, evaluated.
struct EvaluatedAssignments {
    ctx: Map<String, Json>,
    iter: Map<String, Json>,
    step: Map<String, Json>,
}

impl EvaluatedAssignments {
    fn of(sets: &Assignments, view: &ScopeView<'_>) -> Result<EvaluatedAssignments, TemplateError> {
        Ok(EvaluatedAssignments {
            ctx: task::mapping(&sets.ctx, view)?,
            iter: task::mapping(&sets.iter, view)?,
            step: task::mapping(&sets.step, view)?,
        })
    }

    /// A variable may be written down, in ctx or while the step waits, so no secret gets into one.
    fn apply(self, now: &mut PipelineProgress, redactor: &Redactor) {
        let clean = |mut map: Map<String, Json>| {
            map.values_mut().for_each(|value| redactor.json(value));
            map
        };
        now.vars.ctx.extend(clean(self.ctx));
        now.vars.iter.extend(clean(self.iter));
        now.vars.step.extend(clean(self.step));
    }
}

fn target(pipeline: &Pipeline, at: usize, to: Option<&str>) -> Option<usize> {
    match to? {
        "previous" => at.checked_sub(1),
        name => pipeline
            .tasks
            .iter()
            .position(|task| task.name == name || task.alias.as_deref() == Some(name)),
    }
}

/// A message that a result brings along.
fn said(result: &Json) -> Option<&str> {
    ["message", "error"]
        .iter()
        .find_map(|key| result.get(key)?.as_str())
}
