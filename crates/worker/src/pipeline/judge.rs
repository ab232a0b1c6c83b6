//! What the rules of a task lead to: the first that holds decides.

use std::time::Duration;

use serde_json::{Map, Value as Json};
use stepwell_kernel::expr::TemplateError;
use stepwell_kernel::plan::ErrorClass;

use super::progress::Progress;
use super::seen::Seen;
use super::task::{self, Act, Rule, Sets, Task};
use super::{Pipeline, Surroundings};
use crate::outcome::{Outcome, ToolError};
use crate::scope::View;
use crate::secrets::Redactor;

/// What the rules say about it.
pub(super) enum Next {
    Go(usize),
    End,
    Again(Duration),
    Fail(ToolError),
}

impl Surroundings<'_> {
    /// What the first rule that holds says. Without one, success goes on and an error fails.
    pub(super) fn judge(
        &self,
        pipeline: &Pipeline,
        task: &Task,
        args: &Map<String, Json>,
        outcome: &Outcome,
        seen: &Seen,
        now: &mut Progress,
    ) -> Result<Next, TemplateError> {
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
                None => Act::Continue,
                Some(_) => Act::Fail,
            },
            |rule| rule.act,
        );
        let again = match (act, decided) {
            (Act::Retry, Some(rule)) => self.again(rule, &view, outcome)?,
            _ => None,
        };
        let mut sets = Vec::new();
        if outcome.error.is_none() && again.is_none() {
            sets.push(&task.sets);
        }
        sets.extend(decided.map(|rule| &rule.sets));
        let sets = sets.into_iter().map(|it| Assigned::of(it, &view));
        let sets: Vec<Assigned> = sets.collect::<Result<_, _>>()?;
        sets.into_iter()
            .for_each(|it| it.apply(now, &self.redactor));
        if let Some(delay) = again {
            return Ok(Next::Again(delay));
        }
        now.remember(task, &outcome.result);
        let error = || outcome.error.clone();
        Ok(match act {
            Act::Continue => Next::Go(now.at + 1),
            Act::Break => Next::End,
            Act::Jump => match target(pipeline, now.at, decided.and_then(|it| it.to.as_deref())) {
                Some(at) => Next::Go(at),
                None => Next::Fail(ToolError::invalid(
                    "PIPELINE_BROKEN",
                    "a jump leads nowhere",
                )),
            },
            Act::Retry => Next::Fail(error().unwrap_or_else(|| {
                let message = format!(
                    "after {} attempts its rule still asks for another",
                    now.attempt
                );
                ToolError::new(ErrorClass::Unknown, "RETRIES_EXHAUSTED", message)
            })),
            Act::Fail => Next::Fail(error().unwrap_or_else(|| {
                let message = said(&outcome.result).unwrap_or("its rule says that it has failed");
                ToolError::new(ErrorClass::Unknown, "TASK_FAILED", message)
            })),
        })
    }

    /// How long to wait for the next attempt; nothing if there is none.
    fn again(
        &self,
        rule: &Rule,
        view: &View<'_>,
        outcome: &Outcome,
    ) -> Result<Option<Duration>, TemplateError> {
        let attempts = match rule.attempts.evaluate(view)? {
            Json::Number(number) => number.as_u64(),
            Json::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        if u64::from(view.attempt) >= attempts.unwrap_or(3) {
            return Ok(None);
        }
        let delay = match rule.delay_ms {
            Some(millis) => Duration::from_millis(millis),
            None => task::duration(&rule.delay.evaluate(view)?).unwrap_or(Duration::from_secs(1)),
        };
        let asked = outcome.error.as_ref().and_then(|error| error.retry_after);
        let own = rule.backoff.after(delay, view.attempt);
        Ok(Some(own.max(asked.unwrap_or_default())))
    }
}

/// What a rule or task sets, evaluated.
struct Assigned {
    ctx: Map<String, Json>,
    iter: Map<String, Json>,
    step: Map<String, Json>,
}

impl Assigned {
    fn of(sets: &Sets, view: &View<'_>) -> Result<Assigned, TemplateError> {
        Ok(Assigned {
            ctx: task::mapping(&sets.ctx, view)?,
            iter: task::mapping(&sets.iter, view)?,
            step: task::mapping(&sets.step, view)?,
        })
    }

    /// A variable may be written down, in ctx or while the step waits, so no secret gets into one.
    fn apply(self, now: &mut Progress, redactor: &Redactor) {
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
