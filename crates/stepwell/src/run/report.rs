//! The end of a run in words: its state as its own language says it, why it failed, what was undone,
//! or what it is stuck at.

use serde_json::{Value as Json, json};
use stepwell_dialects::document::{run_substatus, run_word};
use stepwell_kernel::effect::Outcome;
use stepwell_kernel::event::{StopCause, UndoOutcome, UndoResult, WaitKind};
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::state::{Phase, State, Status, StepRun};

use crate::exit::Exit;
use crate::term::{Paint, Tone, count, duration, one_line, pad};

/// Why the engine stopped driving a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// It has ended, or nothing more can happen.
    #[default]
    Over,
    /// Ctrl-C.
    Interrupted,
    /// It had more events than this.
    GaveUp(u64),
}

/// How driving a run ended.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    pub(crate) end: End,
    /// What was done that the log does not show.
    pub(crate) notes: Vec<String>,
    pub(crate) is_virtual: bool,
    /// The command that goes on with the run, if it is kept.
    pub(crate) go_on: Option<String>,
    /// Somebody only looks: where the run is stands elsewhere.
    pub(crate) only_shown: bool,
}

impl Ending {
    /// For a run that is only looked at.
    pub(crate) fn shown() -> Ending {
        Ending {
            only_shown: true,
            ..Ending::default()
        }
    }
}

/// Most stuck things that are listed.
const LISTED: usize = 10;

pub(crate) fn exit(state: &State, end: &End) -> Exit {
    match (state.phase, end) {
        (Phase::Ended(Outcome::Succeeded | Outcome::Partial), _) => Exit::Ok,
        (Phase::Ended(Outcome::Failed(_)), _) => Exit::RunFailed,
        (Phase::Ended(Outcome::Cancelled(_)), _) => Exit::RunCancelled,
        (_, End::Interrupted) => Exit::Interrupted,
        (_, End::Over | End::GaveUp(_)) => Exit::RunStuck,
    }
}

/// The last lines that people see.
pub(crate) fn summary(plan: &Plan, state: &State, ending: &Ending, paint: Paint) -> String {
    let Ending {
        end,
        notes,
        is_virtual,
        go_on,
        only_shown,
    } = ending;
    let tone = match state.phase {
        Phase::Ended(Outcome::Succeeded) => Tone::Good,
        Phase::Ended(Outcome::Failed(_) | Outcome::Cancelled(_)) => Tone::Bad,
        _ => Tone::Warn,
    };
    let word = paint.tone(tone, run_word(plan, state));
    let sub = run_substatus(plan, state).map_or_else(String::new, |sub| format!(" ({sub})"));
    let until = state.ended_at.unwrap_or(state.last_at);
    let took = duration(until.since(state.started_at.unwrap_or(state.created_at)));
    let clock = if *is_virtual { " of virtual time" } else { "" };
    let mut text = format!(
        "\n{word}{sub}  {}  {}\n",
        one_line(&plan.net().plan_id),
        paint.tone(
            Tone::Dim,
            &format!(
                "{} in {took}{clock}, {}",
                state.run_id,
                count(state.seq as usize, "event")
            )
        )
    );
    let mut fact = |name: &str, value: &str| {
        let name = paint.tone(Tone::Dim, &pad(name, 12));
        text.push_str(&format!("  {name}  {}\n", one_line(value)));
    };
    if *end == End::Interrupted && !state.phase.is_ended() && go_on.is_none() {
        fact(
            "interrupted",
            "nothing is kept: this run was only in memory",
        );
    }
    if let Some(cause) = cause(plan, state) {
        fact("cause", &cause);
    }
    for (name, outcome) in UNDO_WORDS {
        let steps: Vec<String> = state
            .undos
            .iter()
            .filter(|undo| undo.outcome == outcome)
            .map(|undo| undo_line(plan, undo))
            .collect();
        if !steps.is_empty() {
            fact(name, &steps.join(", "));
        }
    }
    let label = match end {
        End::Interrupted => "was at",
        End::Over | End::GaveUp(_) => "stuck",
    };
    let reasons = match only_shown {
        true => Vec::new(),
        false => stuck(plan, state, end),
    };
    for reason in reasons {
        fact(label, &reason);
    }
    // A token that was not let in is looked at again when ctx changes; a starved join is not.
    let has_denied = || {
        let mut visits = state.steps.iter().flat_map(|step| &step.visits);
        visits.any(|visit| visit.run.status == Status::Denied)
    };
    if state.stalled.is_some() && has_denied() && !only_shown {
        fact("cure", "--patch KEY=VALUE sets ctx, as an operator would");
    }
    for note in notes {
        fact("note", note);
    }
    if let Some(go_on) = go_on.as_ref().filter(|_| !state.phase.is_ended()) {
        fact("go on with", go_on);
    }
    text
}

/// The step, and where its undo failed how often: somebody must now do it by hand.
fn undo_line(plan: &Plan, undo: &UndoResult) -> String {
    let step = plan.step_id(undo.step);
    match undo.outcome {
        UndoOutcome::Failed => {
            let attempts = count(undo.executions as usize, "attempt");
            match &undo.error {
                Some(error) => format!(
                    "{step} (after {attempts}: {}: {})",
                    error.code, error.message
                ),
                None => format!("{step} (after {attempts})"),
            }
        }
        _ => step,
    }
}

const UNDO_WORDS: [(&str, UndoOutcome); 4] = [
    ("undone", UndoOutcome::Done),
    ("undo failed", UndoOutcome::Failed),
    ("cannot undo", UndoOutcome::NotCompensable),
    ("not undone", UndoOutcome::NotRun),
];

/// Why it failed or was cancelled.
fn cause(plan: &Plan, state: &State) -> Option<String> {
    let from_stop = state.stop.as_ref().map(|stop| match &stop.cause {
        StopCause::StepFailed { step } => (Some(*step), "a step failed".to_owned()),
        StopCause::RunTimeout => (None, "the run took too long".to_owned()),
        StopCause::StallTimeout { stuck } => (None, format!("stalled: {}", stuck.join("; "))),
        StopCause::Cancel { by, reason } => (None, cancelled(by.as_deref(), reason.as_deref())),
        StopCause::Emergency { by, reason } => (None, cancelled(by.as_deref(), Some(reason))),
    });
    let (step, what) = from_stop
        .or_else(|| {
            let first = state.failures.first()?;
            Some((Some(first.step), "a step failed".to_owned()))
        })
        .unwrap_or((None, String::new()));
    let text = match (step, &state.error) {
        (Some(step), Some(error)) => {
            let id = plan.step_id(step);
            let tries = state.run(step).map_or(0, |run| run.execution);
            let after = match tries {
                0 | 1 => String::new(),
                _ => format!(" (after {tries} attempts)"),
            };
            // The run's error repeats whose it is.
            let own = error.message.strip_prefix(&format!("{id}: "));
            let message = own.unwrap_or(&error.message);
            format!("{id}: {}: {message}{after}", error.code)
        }
        (Some(step), None) => format!("{}: {what}", plan.step_id(step)),
        (None, Some(error)) => format!("{}: {}", error.code, error.message),
        (None, None) if what.is_empty() => return None,
        (None, None) => what,
    };
    let wanted = matches!(
        state.phase,
        Phase::Stopping
            | Phase::Compensating
            | Phase::Ended(Outcome::Failed(_) | Outcome::Cancelled(_))
    );
    (wanted || !state.failures.is_empty()).then_some(text)
}

fn cancelled(by: Option<&str>, reason: Option<&str>) -> String {
    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
    let why = reason.map_or_else(String::new, |why| format!(": {why}"));
    format!("cancelled{by}{why}")
}

/// What became of each undo, for programs.
pub(super) fn undone(plan: &Plan, state: &State) -> Json {
    let name = |outcome| match outcome {
        UndoOutcome::Done => "done",
        UndoOutcome::Failed => "failed",
        UndoOutcome::NotCompensable => "not_compensable",
        UndoOutcome::NotRun => "not_run",
    };
    state
        .undos
        .iter()
        .map(|undo| {
            json!({
                "stepId": plan.step_id(undo.step),
                "outcome": name(undo.outcome),
                "executions": undo.executions,
                "error": undo.error,
            })
        })
        .collect()
}

/// What keeps an open run from going on.
pub(super) fn stuck(plan: &Plan, state: &State, end: &End) -> Vec<String> {
    let mut reasons = Vec::new();
    match state.phase {
        Phase::Ended(_) => return reasons,
        Phase::Void | Phase::Created | Phase::Queued => {
            if plan.policy().needs_approval && !state.approved {
                reasons.push(format!(
                    "the run waits for approval; --approve gives it, and so does `stepwell runs \
                     approve {}`",
                    state.run_id
                ));
            } else {
                reasons.push("the run has not started".to_owned());
            }
        }
        _ => {}
    }
    if let End::GaveUp(most) = end {
        reasons.push(format!(
            "gave up after {most} events; pretended results can make a workflow go round for ever \
             (--max-events raises the limit)"
        ));
    }
    if state.pause.is_some() {
        reasons.push("the run is paused".to_owned());
    }
    if let Some(stalled) = &state.stalled {
        reasons.extend(stalled.iter().map(|it| format!("stalled: {it}")));
    }
    let open = open_steps(state);
    let more = open.len().saturating_sub(LISTED);
    for (at, run) in open.into_iter().take(LISTED) {
        reasons.push(format!("{}: {}", plan.step_id(at), doing(run)));
    }
    if more > 0 {
        reasons.push(format!("and {more} more"));
    }
    reasons
}

/// Step-runs that have begun and not ended, in plan order.
fn open_steps(state: &State) -> Vec<(StepRef, &StepRun)> {
    let mut open = Vec::new();
    for (no, step) in state.steps.iter().enumerate() {
        for (visit, number) in step.visits.iter().zip(1..) {
            let at = StepRef {
                step: stepwell_kernel::plan::StepNo(no as u32),
                visit: number,
                item: None,
            };
            let items = visit.each.iter().flat_map(|each| each.active.iter());
            let items = items.map(|(item, run)| (at.with_item(*item), run));
            let all = std::iter::once((at, &visit.run)).chain(items);
            open.extend(all.filter(|(_, run)| {
                // Denied tokens are named by the stall, loops by their items.
                !run.status.is_terminal() && !matches!(run.status, Status::Denied | Status::Looping)
            }));
        }
    }
    open
}

fn doing(run: &StepRun) -> String {
    match (&run.wait, run.status) {
        (Some(wait), Status::Waiting) => waits_for(&wait.kind),
        (_, Status::Held) => "failed, held for an operator".to_owned(),
        (_, Status::Running) => format!("running, attempt {}", run.execution),
        (_, Status::Ready) if run.is_backing_off() => "waits for its next attempt".to_owned(),
        _ => "ready".to_owned(),
    }
}

/// A wait's reason.
pub(crate) fn waits_for(kind: &WaitKind) -> String {
    match kind {
        WaitKind::Gate => "waits for approval before it starts".to_owned(),
        WaitKind::Approval => "waits for approval".to_owned(),
        WaitKind::Manual => "waits for a person".to_owned(),
        WaitKind::Event { event_type, .. } => format!("waits for event {event_type}"),
        WaitKind::Timer { .. } => "waits for time to pass".to_owned(),
        WaitKind::Child { .. } => "waits for its child run".to_owned(),
    }
}
