//! How pretended steps are made to fail, as it is written on a command line. Nothing here knows an engine.

use std::str::FromStr;

use stepwell_kernel::plan::{ErrorClass, Plan, StepRef};

/// How a step is made to fail: `STEP[=CLASS][@ATTEMPT]`, with `~undo` after the step for its undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailRule {
    /// The step's id, or its name for every visit and item.
    pub step: String,
    /// Whether the undo of the step fails instead of the step.
    pub undo: bool,
    pub how: Failing,
    /// The execution that fails, from 1; absent means every execution.
    pub attempt: Option<u32>,
}

/// How a step is made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// The worker reports an error of this class.
    Class(ErrorClass),
    /// The worker dies, so the lease of the step expires.
    Crash,
}

/// A rule that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not STEP[=CLASS][@ATTEMPT]: {why}")]
pub struct BadRule {
    text: String,
    why: String,
}

impl FromStr for FailRule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<FailRule, BadRule> {
        let bad = |why: String| BadRule {
            text: text.to_owned(),
            why,
        };
        let (rest, attempt) = match text.rsplit_once('@') {
            Some((rest, attempt)) => {
                let number = attempt.parse().ok().filter(|n| *n >= 1);
                (
                    rest,
                    Some(number.ok_or_else(|| {
                        bad(format!("{attempt:?} is no attempt; the first is 1"))
                    })?),
                )
            }
            None => (text, None),
        };
        let (step, how) = match rest.split_once('=') {
            Some((step, "crash")) => (step, Failing::Crash),
            Some((step, class)) => {
                let known = || {
                    ErrorClass::ALL
                        .iter()
                        .map(|it| it.name())
                        .collect::<Vec<_>>()
                        .join(", ")
                };
                let class = ErrorClass::from_name(class).ok_or_else(|| {
                    bad(format!(
                        "there is no class {class:?}; there are {} and crash",
                        known()
                    ))
                })?;
                (step, Failing::Class(class))
            }
            None => (rest, Failing::Class(ErrorClass::Unknown)),
        };
        let (step, undo) = match step.strip_suffix("~undo") {
            Some(step) => (step, true),
            None => (step, false),
        };
        if step.is_empty() {
            return Err(bad("the step is missing".into()));
        }
        Ok(FailRule {
            step: step.to_owned(),
            undo,
            how,
            attempt,
        })
    }
}

/// How a step is made to fail by these rules, if it is.
pub(super) fn failing(
    rules: &[FailRule],
    plan: &Plan,
    step: StepRef,
    undo: bool,
    execution: u32,
) -> Option<Failing> {
    let id = plan.step_id(step);
    let name = &plan.step(step.step).name;
    let matches = |rule: &&FailRule| {
        (rule.step == id || rule.step == *name)
            && rule.undo == undo
            && rule.attempt.is_none_or(|attempt| attempt == execution)
    };
    rules.iter().find(matches).map(|rule| rule.how)
}
