//! The end of a run in words: its state as its own language says it, why it failed, what was undone,
//! what it is stuck at, and what to do next.

mod cause;
mod next;

use stepwell_dialects::document::{run_substatus, run_word};
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::{UndoOutcome, UndoResult};
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::state::{Phase, State, Status};

use super::tree::Live;
use crate::exit::Exit;
use crate::term::{Paint, Tone, count, duration, one_line, pad, width};
pub(crate) use cause::{Failing, failing};
use stepwell_views::stuck::{End, stuck};

/// How driving a run ended.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    pub(crate) end: End,
    /// What the command did that is not in the log.
    pub(crate) notes: Vec<String>,
    pub(crate) is_virtual: bool,
    /// The command that continues the run, if a store keeps the run.
    pub(crate) go_on: Option<String>,
    /// The run is only shown: its location is printed elsewhere.
    pub(crate) only_shown: bool,
    /// The option that names the store (may be empty), if a store keeps the run.
    pub(crate) kept: Option<String>,
    /// The end of the log of the step that failed: see `failing`.
    pub(crate) tail: Option<Vec<String>>,
}

impl Ending {
    /// For a run that is only looked at, in the store that the option names.
    pub(crate) fn shown(store: String) -> Ending {
        Ending {
            only_shown: true,
            kept: Some(store),
            ..Ending::default()
        }
    }
}

/// How wide the names of facts are.
const FACTS: usize = 12;

pub(crate) fn exit(state: &State, end: &End) -> Exit {
    match (state.phase(), end) {
        (Phase::Ended(RunOutcome::Succeeded | RunOutcome::Partial), _) => Exit::Ok,
        (Phase::Ended(RunOutcome::Failed(_)), _) => Exit::RunFailed,
        (Phase::Ended(RunOutcome::Cancelled(_)), _) => Exit::RunCancelled,
        (_, End::Interrupted) => Exit::Interrupted,
        (_, End::Over | End::GaveUp(_)) => Exit::RunStuck,
    }
}

/// The last lines that people see. ChildRuns are the runs that the run started, where they are known.
pub(crate) fn summary(top: Live<'_>, below: &[Live<'_>], ending: &Ending, paint: Paint) -> String {
    let (plan, state) = (top.plan, top.state);
    let mut text = format!("\n{}\n", headline(top, ending, paint));
    let mut fact = |name: &str, value: &str| {
        let name = paint.tone(Tone::Dim, &pad(name, FACTS));
        text.push_str(&format!("  {name}  {}\n", one_line(value)));
    };
    let end = ending.end;
    if end == End::Interrupted && !state.phase().is_ended() && ending.go_on.is_none() {
        fact(
            "interrupted",
            "the run is lost, because its store was in memory",
        );
    }
    let cause = cause::find(top, below);
    if let Some(cause) = &cause {
        fact("cause", &cause.text);
        for line in &cause.more {
            fact("", line);
        }
    }
    for (at, line) in ending.tail.iter().flatten().enumerate() {
        fact(if at == 0 { "its log" } else { "" }, &format!("| {line}"));
    }
    let unknown = unknown(plan, state);
    if !unknown.is_empty() {
        let them = if unknown.len() == 1 { "its" } else { "their" };
        let what = format!(
            "{}: cut off in the middle; whether {them} work took effect is not known",
            unknown.join(", ")
        );
        fact("unknown", &what);
    }
    for (name, outcome) in UNDO_WORDS {
        let undos = state.undos().iter().filter(|undo| undo.outcome == outcome);
        let steps: Vec<String> = undos.map(|undo| undo_line(plan, undo)).collect();
        if !steps.is_empty() {
            fact(name, &steps.join(", "));
        }
    }
    if !ending.only_shown {
        let label = match end {
            End::Interrupted => "was at",
            End::Over | End::GaveUp(_) => "stuck",
        };
        for reason in stuck(plan, state, end) {
            fact(label, &reason);
        }
        if is_refused(state) {
            fact(
                "solution",
                "--patch KEY=VALUE sets ctx, as an operator would",
            );
        }
    }
    for note in &ending.notes {
        fact("note", note);
    }
    let hints = next::hints(top, cause.as_ref(), ending);
    let widest = hints.iter().map(|(command, _)| width(command)).max();
    for (at, (command, what)) in hints.iter().enumerate() {
        let command = pad(command, widest.unwrap_or(0));
        fact(
            if at == 0 { "next" } else { "" },
            &format!("{command}  # {what}"),
        );
    }
    if let Some(go_on) = ending.go_on.as_ref().filter(|_| !state.phase().is_ended()) {
        fact("continue", go_on);
    }
    text
}

/// `Failed (Compensated)  order-saga  run_… in 4.2 s, 17 events`.
fn headline(top: Live<'_>, ending: &Ending, paint: Paint) -> String {
    let (plan, state) = (top.plan, top.state);
    let tone = match state.phase() {
        Phase::Ended(RunOutcome::Succeeded) => Tone::Good,
        Phase::Ended(RunOutcome::Failed(_) | RunOutcome::Cancelled(_)) => Tone::Bad,
        Phase::Void
        | Phase::Created
        | Phase::Queued
        | Phase::Running
        | Phase::Finalizing
        | Phase::Stopping
        | Phase::Compensating
        | Phase::Ended(_) => Tone::Warn,
    };
    let word = paint.tone(tone, run_word(plan, state));
    let sub = run_substatus(plan, state).map_or_else(String::new, |sub| format!(" ({sub})"));
    let until = state.ended_at().unwrap_or(state.last_at());
    let took = duration(until.since(state.started_at().unwrap_or(state.created_at())));
    let clock = match ending.is_virtual {
        true => " of virtual time",
        false => "",
    };
    let events = count(state.seq() as usize, "event");
    let facts = format!("{} in {took}{clock}, {events}", state.run_id());
    let facts = paint.tone(Tone::Dim, &facts);
    format!("{word}{sub}  {}  {facts}", one_line(&plan.net().plan_id))
}

/// Whether a token was not let in: it is looked at again when ctx changes; a starved join is not.
fn is_refused(state: &State) -> bool {
    let mut visits = state.steps().iter().flat_map(|step| step.visits());
    state.stalled().is_some() && visits.any(|visit| visit.run().status() == Status::Denied)
}

/// The steps whose work was cut off: nobody knows whether it had its effect.
fn unknown(plan: &Plan, state: &State) -> Vec<String> {
    let mut cut_off = Vec::new();
    for (no, step) in plan.numbers().zip(state.steps()) {
        for (visit, number) in step.visits().iter().zip(1..) {
            let at = StepRef {
                visit: number,
                ..StepRef::first(no)
            };
            if visit.run().unknown() {
                cut_off.push(plan.step_id(at));
            }
        }
    }
    cut_off
}

/// The step, and the number of failed undos: a person must now undo it by hand.
fn undo_line(plan: &Plan, undo: &UndoResult) -> String {
    let step = plan.step_id(undo.step);
    match undo.outcome {
        UndoOutcome::Failed => {
            let attempts = match undo.attempts {
                // The log is of a version that did not count attempts.
                0 => count(undo.executions as usize, "execution"),
                attempts => count(attempts as usize, "attempt"),
            };
            match &undo.error {
                Some(error) => format!(
                    "{step} (after {attempts}: {}: {})",
                    error.code, error.message
                ),
                None => format!("{step} (after {attempts})"),
            }
        }
        UndoOutcome::Done | UndoOutcome::NotCompensable | UndoOutcome::NotRun => step,
    }
}

const UNDO_WORDS: [(&str, UndoOutcome); 4] = [
    ("undone", UndoOutcome::Done),
    ("undo failed", UndoOutcome::Failed),
    ("cannot undo", UndoOutcome::NotCompensable),
    ("not undone", UndoOutcome::NotRun),
];

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;
    use stepwell_kernel::event::Rollback;

    use super::super::tree::tests::{failure, plan, running, visit};
    use super::*;

    #[test]
    fn the_end_of_the_log_stands_below_the_cause() {
        let plan = plan(&["fetch", "store"]);
        let mut failed = visit(Status::Failed);
        failed["run"]["tries"] = json!(5);
        failed["run"]["error"] = json!(failure());
        let at = StepRef::first(stepwell_kernel::plan::StepNo(0));
        let state = running(&plan, [failed], |state| {
            state["failures"] = json!([{ "step": at, "error": failure() }]);
            state["phase"] = json!(Phase::Ended(RunOutcome::Failed(Rollback::None)));
        });
        let top = Live {
            plan: &plan,
            state: &state,
        };
        let ending = Ending {
            tail: Some(vec!["GET /a".into(), "connection refused\u{1b}[2J".into()]),
            kept: Some(" --store sqlite:night.db".into()),
            ..Ending::default()
        };
        let text = summary(top, &[], &ending, Paint(false));
        let facts = text.lines().skip(2).filter_map(|line| line.get(2..));
        let facts: Vec<&str> = facts.collect();
        expect![[r#"
              cause         fetch: CONNECT_FAILED: nobody answers
                            attempt 5 of 5, error class transport
              its log       | GET /a
                            | connection refused\u{1b}[2J
              next          stepwell runs show run_a --store sqlite:night.db        # every step, and the facts
                            stepwell runs logs run_a fetch --store sqlite:night.db  # what it said
                            stepwell runs retry run_a --store sqlite:night.db       # repeats it as a new run"#]].assert_eq(&facts.join("\n"));
        let failing = failing(top, &[]).unwrap();
        assert_eq!((&*failing.run_id, &*failing.step_id), ("run_a", "fetch"));
    }
}
