//! What to do next, as commands that can be pasted. Only what the run's state allows is suggested.

use stepwell_dialects::words::quote;
use stepwell_kernel::codes;
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::WaitKind;
use stepwell_kernel::state::{Phase, Status};

use super::super::tree::Live;
use super::Ending;
use super::cause::Cause;
use crate::explain;
use crate::store::word;
use stepwell_views::stuck::open_steps;

/// Most steps that have commands of their own.
const LISTED: usize = 3;

/// A command and what it is for.
pub(super) type Hint = (String, String);

pub(super) fn hints(top: Live<'_>, cause: Option<&Cause>, ending: &Ending) -> Vec<Hint> {
    let mut hints = Vec::new();
    // Nobody finds a run again that was only in memory.
    if let Some(store) = &ending.kept {
        let failed = matches!(
            top.state.phase(),
            Phase::Ended(RunOutcome::Failed(_) | RunOutcome::Cancelled(_) | RunOutcome::Partial)
        );
        if failed {
            hints.extend(after_the_end(top, cause, ending, store));
        } else if !top.state.phase().is_ended() && !ending.only_shown {
            hints.extend(while_open(top, store));
        }
    }
    let code = cause.and_then(|cause| cause.code.as_deref());
    if let Some(code) = code.filter(|code| explain::has_page(code)) {
        let what = "explains the code: cause and what to do";
        hints.push((format!("stepwell explain {code}"), what.to_owned()));
    }
    hints
}

/// A run that has ended takes no command but to be repeated.
fn after_the_end(top: Live<'_>, cause: Option<&Cause>, ending: &Ending, store: &str) -> Vec<Hint> {
    let run = word(top.state.run_id());
    let mut hints = Vec::new();
    if !ending.only_shown {
        let what = "every step, and the facts";
        hints.push((format!("stepwell runs show {run}{store}"), what.to_owned()));
    }
    let failing = cause.and_then(|cause| cause.failing.as_ref());
    if let Some(failing) = failing.filter(|failing| failing.ran) {
        let (run, step) = (word(&failing.run_id), word(&failing.step_id));
        let command = format!("stepwell runs logs {run} {step}{store}");
        hints.push((command, "what it said".to_owned()));
    }
    let code = top.state.error().map(|error| error.code.as_str());
    if code == Some(codes::PLAN_INTEGRITY_VALIDATION_FAILED) {
        // The plan of such a run is not a definition that anyone wrote, so the run cannot be repeated.
        let what = "starts it again, after the reference has the hash of the definition";
        hints.push((
            "stepwell run --plan-ref FILE".to_owned() + store,
            what.to_owned(),
        ));
        return hints;
    }
    let what = "repeats it as a new run";
    hints.push((format!("stepwell runs retry {run}{store}"), what.to_owned()));
    hints
}

/// What someone can do so that an open run moves.
fn while_open(top: Live<'_>, store: &str) -> Vec<Hint> {
    let (plan, state) = (top.plan, top.state);
    let run = word(state.run_id());
    let mut hints = Vec::new();
    if plan.policy().needs_approval && !state.approved() {
        let what = "lets it start";
        hints.push((
            format!("stepwell runs approve {run}{store}"),
            what.to_owned(),
        ));
    }
    if state.pause().is_some() {
        let what = "ends the pause";
        hints.push((
            format!("stepwell runs resume {run}{store}"),
            what.to_owned(),
        ));
    }
    let mut steps = 0;
    for (at, step_run) in open_steps(state) {
        let id = word(&plan.step_id(at));
        let wait = step_run.wait().map(|wait| wait.kind());
        let mut found = match (step_run.status(), wait) {
            (Status::Held, _) => vec![
                (
                    format!("stepwell runs retry {run} --step {id}"),
                    "tries it again",
                ),
                (
                    format!("stepwell runs skip {run} {id}"),
                    "goes on without it",
                ),
                (format!("stepwell runs logs {run} {id}"), "what it said"),
            ],
            (Status::Waiting, Some(WaitKind::Gate | WaitKind::Approval | WaitKind::Manual)) => {
                let command = format!("stepwell runs complete {run} {id} --outcome succeeded");
                vec![(command, "answers it")]
            }
            (Status::Waiting, Some(WaitKind::Event { event_type, .. })) => {
                let event = word(event_type);
                let command = format!("stepwell runs signal {run} --event {event} --id ID");
                vec![(command, "is the event")]
            }
            _ => continue,
        };
        steps += 1;
        if steps > LISTED {
            break;
        }
        let with_store = found.drain(..);
        hints.extend(
            with_store.map(|(command, what)| (format!("{command}{store}"), what.to_owned())),
        );
    }
    // A failed step that nothing was made of can be tried again while the run goes on.
    for failure in state.failures().iter().take(LISTED) {
        let run_of = state.run(failure.step());
        let lawful = run_of.is_some_and(|it| it.status() == Status::Failed && !it.routed());
        if lawful && state.phase().is_moving() && failure.step().item.is_none() {
            let id = plan.step_id(failure.step());
            let command = format!("stepwell runs retry {run} --step {}{store}", word(&id));
            hints.push((command, format!("tries {} again", quote(&id))));
        }
    }
    hints
}
