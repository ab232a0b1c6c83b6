//! Why a run failed: from the run down to the step where it began, through loops and child runs.

use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::{StepError, StopCause};
use stepwell_kernel::plan::{ErrorClass, StepRef};
use stepwell_kernel::state::{ItemResult, Phase, State, StepRun};

use super::super::tree::Live;
use stepwell_views::phrases;

/// Most failed items that are listed beside the first.
const LISTED: usize = 3;
/// A child's child's child: no deeper, whatever the states say.
const DEEPEST: usize = stepwell_engine::MAX_CHILD_DEPTH + 1;

/// The step-run that failed first, in the run that it is a step of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failing {
    /// The run that is reported, or a run below it.
    pub(crate) run_id: String,
    /// Id of the step-run, such as `fetch` or `load[3]`.
    pub(crate) step_id: String,
    /// Whether a worker executed the step, so that it may have a log.
    pub(super) ran: bool,
}

/// Why a run failed or was cancelled.
#[derive(Debug, Default)]
pub(super) struct Cause {
    /// The cause in one line.
    pub(super) text: String,
    /// Further details, one line each.
    pub(super) more: Vec<String>,
    pub(super) failing: Option<Failing>,
    /// The error code, if the error has one.
    pub(super) code: Option<String>,
}

/// The step-run that failed first, if the cause was a step: its log can be shown.
pub(crate) fn failing(top: Live<'_>, below: &[Live<'_>]) -> Option<Failing> {
    find(top, below)?.failing
}

pub(super) fn find(top: Live<'_>, below: &[Live<'_>]) -> Option<Cause> {
    let state = top.state;
    let stopped = matches!(
        state.phase(),
        Phase::Stopping
            | Phase::Compensating
            | Phase::Ended(RunOutcome::Failed(_) | RunOutcome::Cancelled(_))
    );
    if !stopped && state.failures().is_empty() {
        return None;
    }
    match first_step(state) {
        Some(at) => Some(of_step(top, at, below)),
        None => of_run(state),
    }
}

/// The step that stopped the run, or else the first that failed.
fn first_step(state: &State) -> Option<StepRef> {
    match state.stop().map(|stop| stop.cause()) {
        Some(StopCause::StepFailed { step }) => Some(*step),
        Some(_) => None,
        None => state.failures().first().map(|failure| failure.step()),
    }
}

/// The cause is not a step: a timeout, or a person who stopped the run.
fn of_run(state: &State) -> Option<Cause> {
    let by = |by: &Option<String>| {
        by.as_ref()
            .map_or_else(String::new, |by| format!(" by {by}"))
    };
    let what = state.stop().map(|stop| match stop.cause() {
        StopCause::StepFailed { .. } => "a step failed".to_owned(),
        StopCause::RunTimeout => "the run took too long".to_owned(),
        StopCause::StallTimeout { stuck } => format!("stalled: {}", stuck.join("; ")),
        StopCause::Cancel { by: who, reason } => {
            let why = reason.as_ref().map(|why| format!(": {why}"));
            format!("cancelled{}{}", by(who), why.unwrap_or_default())
        }
        StopCause::Emergency { by: who, reason } => format!("cancelled{}: {reason}", by(who)),
    });
    let text = match state.error() {
        Some(error) => phrases::error(error),
        None => what?,
    };
    Some(Cause {
        text,
        code: state.error().map(|error| error.code.clone()),
        ..Cause::default()
    })
}

fn of_step(top: Live<'_>, at: StepRef, below: &[Live<'_>]) -> Cause {
    let mut cause = Cause::default();
    let (mut live, mut at) = (top, at);
    let mut path = String::new();
    for _ in 0..DEEPEST {
        if at.item.is_none() {
            at = first_item(live, at, &mut cause);
        }
        let Some(child) = child_of(live, at, below) else {
            break;
        };
        let Some(next) = first_step(child.state) else {
            break;
        };
        path.push_str(&format!("{}/", live.plan.step_id(at)));
        (live, at) = (child, next);
    }
    let id = live.plan.step_id(at);
    let error = error_of(live.state, at, &id);
    let run = live.state.run(at).filter(|run| run.tries() > 0);
    let what = match &error {
        None => "it failed".to_owned(),
        // The class stands in the next line, with the attempt.
        Some(error) if run.is_some() => format!("{}: {}", error.code, error.message),
        Some(error) => phrases::error(error),
    };
    cause.text = format!("{path}{id}: {what}");
    if let Some(run) = run {
        cause.more.insert(0, tried(live, at, run, error.as_ref()));
    }
    if !path.is_empty() {
        cause
            .more
            .push(format!("in the run {}", live.state.run_id()));
    }
    cause.code = error.map(|error| error.code);
    cause.failing = Some(Failing {
        run_id: live.state.run_id().to_owned(),
        step_id: id,
        // An item that has ended has no step-run any more.
        ran: run.is_some() || at.item.is_some(),
    });
    cause
}

/// `attempt 1 of 3, error class external (not retried)`.
fn tried(live: Live<'_>, at: StepRef, run: &StepRun, error: Option<&StepError>) -> String {
    let step = live.plan.step(at.step);
    let mut attempt = phrases::attempt_of(step, run);
    if let Some(losses) = phrases::losses(run) {
        attempt = format!("{attempt}, {losses}");
    }
    let Some(class) = error.map(|error| error.class) else {
        return attempt;
    };
    // If attempts are left, the reason why they were not used is shown.
    let left = run.tries() < step.retry.max_executions;
    let why = match left && !step.retry.covers(class) {
        true => " (not retried)",
        false if step.at_most_once && class == ErrorClass::LeaseLost => {
            " (not executed again: atMostOnce)"
        }
        false => "",
    };
    format!("{attempt}, error class {}{why}", class.name())
}

/// For a loop its first item that failed, and says how many there are.
fn first_item(live: Live<'_>, at: StepRef, cause: &mut Cause) -> StepRef {
    let visit = live.state.visit(at);
    let Some(each) = visit.and_then(|visit| visit.each()) else {
        return at;
    };
    let mut errors = each.errors().peekable();
    let Some((first, _)) = errors.peek().copied() else {
        return at;
    };
    let id = live.plan.step_id(at);
    let all = each.count();
    let closed = each.results().iter().flatten();
    let good = closed.filter(|it| matches!(it, ItemResult::Succeeded(_)));
    let (failed, good) = (each.failed() as usize, good.count());
    cause.more.push(format!(
        "{id}: {failed} of {all} items failed, {good} succeeded"
    ));
    // The first is the cause itself.
    for (item, error) in errors.skip(1).take(LISTED) {
        let id = live.plan.step_id(at.with_item(item));
        cause.more.push(format!("{id}: {}", phrases::error(error)));
    }
    let more = failed.saturating_sub(1 + LISTED);
    if more > 0 {
        cause.more.push(format!("and {more} more"));
    }
    at.with_item(first)
}

/// The run that a step-run started last.
fn child_of<'r>(live: Live<'_>, at: StepRef, below: &[Live<'r>]) -> Option<Live<'r>> {
    let id = live.plan.step_id(at);
    let is_child = |child: &&Live<'_>| {
        let parent = child.state.parent();
        parent.is_some_and(|it| it.run_id == live.state.run_id() && it.step_id == id)
    };
    below.iter().rev().find(is_child).copied()
}

fn error_of(state: &State, at: StepRef, id: &str) -> Option<StepError> {
    let visit = state.visit(at)?;
    if let Some(item) = at.item {
        let each = visit.each()?;
        let mut errors = each.errors();
        return errors
            .find(|(it, _)| *it == item)
            .map(|(_, error)| error.clone());
    }
    let own = visit.run().error();
    // A step that succeeded and could not be routed has no error of its own.
    let mut failures = state.failures().iter();
    let unrouted = || failures.find(|it| it.step() == at).map(|it| it.error());
    let found = own.or_else(unrouted).or(state.error()).cloned()?;
    // The run's error repeats whose it is.
    let message = found.message.strip_prefix(&format!("{id}: "));
    let message = message.unwrap_or(&found.message).to_owned();
    Some(StepError { message, ..found })
}
