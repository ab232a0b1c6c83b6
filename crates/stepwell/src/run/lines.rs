//! One line per change, for pipes and logs: `00:00.000  reserve-stock  running  (attempt 1 of 3)`; and
//! what the steps say, as `  reserve-stock | 3 pieces left`.

use std::collections::HashMap;
use std::io::{self, Write};

use stepwell_dialects::document::{run_substatus, run_word, step_word};
use stepwell_kernel::event::{AdmissionVerdict, Body, Event, SkipReason};
use stepwell_kernel::plan::StepRef;
use stepwell_kernel::state::State;
use stepwell_kernel::time::Time;
use stepwell_worker::step_log::Stream;

use super::follow::Followed;
use crate::term::{count, duration, one_line, pad, stamp, width};
use stepwell_views::phrases::{self, Progress};

/// The widest column of names.
const WIDEST: usize = 40;

/// Writes one line per change.
#[derive(Debug)]
pub(super) struct Lines {
    run_id: String,
    start: Option<Time>,
    columns: usize,
    /// How many tenths of a loop were reported, by run and visit.
    tenths: HashMap<(String, StepRef), usize>,
    /// The word that was last said about each run.
    words: HashMap<String, &'static str>,
    /// The steps that lead to each child.
    prefixes: HashMap<String, String>,
}

/// What a line says: whose it is, the word, the detail.
type Said = (String, String, String);

impl Lines {
    pub(super) fn new(run_id: &str) -> Lines {
        Lines {
            run_id: run_id.to_owned(),
            start: None,
            columns: 0,
            tenths: HashMap::new(),
            words: HashMap::new(),
            prefixes: HashMap::new(),
        }
    }

    /// Writes a line that a step has said.
    pub(super) fn say(
        &self,
        out: &mut dyn Write,
        run_id: &str,
        step_id: &str,
        stream: Stream,
        text: &str,
    ) -> io::Result<()> {
        let prefix = self.prefixes.get(run_id).map_or("", String::as_str);
        let step = one_line(&format!("{prefix}{step_id}"));
        // What the worker itself says must not be taken for the tool's own words.
        let text = match stream {
            Stream::Out | Stream::Err => one_line(text),
            Stream::Note => format!("({})", one_line(text)),
        };
        writeln!(out, "  {step} | {text}")
    }

    /// Writes what there is to say about an event.
    pub(super) fn write(
        &mut self,
        out: &mut dyn Write,
        followed: &Followed,
        event: &Event,
    ) -> io::Result<()> {
        let start = *self.start.get_or_insert(event.at);
        if !followed.prefix.is_empty() && !self.prefixes.contains_key(followed.state.run_id()) {
            let run_id = followed.state.run_id().to_owned();
            self.prefixes.insert(run_id, followed.prefix.clone());
        }
        if self.columns == 0 && followed.state.run_id() == self.run_id {
            let steps = followed.plan.net().steps.iter();
            let widest = steps.map(|step| width(&one_line(&step.name))).max();
            self.columns = widest.unwrap_or(0).clamp(5, WIDEST);
        }
        for (name, word, detail) in self.about(followed, event) {
            let name = pad(&one_line(&name), self.columns);
            let detail = match detail.as_str() {
                "" => String::new(),
                _ => format!("  ({})", one_line(&detail)),
            };
            writeln!(
                out,
                "{}  {name}  {word}{detail}",
                stamp(event.at.since(start))
            )?;
        }
        Ok(())
    }

    fn about(&mut self, followed: &Followed, event: &Event) -> Vec<Said> {
        let mut said: Vec<Said> = match event.body.step() {
            Some(at) => self.of_step(followed, event, at).into_iter().collect(),
            None => of_run(followed, &event.body).into_iter().collect(),
        };
        said.extend(refused(followed, &event.body));
        said.extend(self.turned(followed, &event.body));
        said
    }

    /// The run's word where a step's event changed it: `blocked`, `WaitingForApproval`.
    fn turned(&mut self, followed: &Followed, body: &Body) -> Option<Said> {
        let word = run_word(&followed.plan, &followed.state);
        let last = self.words.insert(followed.state.run_id().to_owned(), word);
        let is_news = last.is_some_and(|last| last != word) && body.step().is_some();
        is_news.then(|| (run_name(followed), word.to_owned(), String::new()))
    }

    fn of_step(&mut self, followed: &Followed, event: &Event, at: StepRef) -> Option<Said> {
        let (plan, state) = (&followed.plan, &followed.state);
        let mut word = step_word(plan, state, at).to_owned();
        let mut name = format!("{}{}", followed.prefix, plan.step_id(at));
        let is_item = at.item.is_some();
        let step = plan.step(at.step);
        let until = |later: Time| duration(later.since(event.at));
        let again = |at: Time| phrases::retries(at, event.at);
        let detail = match &event.body {
            Body::StepStarted {
                each: Some(each), ..
            } => {
                format!(
                    "{}, {} at a time",
                    count(each.count as usize, "item"),
                    each.window
                )
            }
            // Nobody works on it: that it waits is the next event, and says more.
            Body::StepStarted { lease: None, .. } => return None,
            Body::StepStarted { .. } if is_item => return None,
            Body::StepExecutionStarted { .. } if is_item => return None,
            Body::StepStarted { execution, .. } | Body::StepExecutionStarted { execution, .. } => {
                match (execution, state.run(at)) {
                    (0, _) | (_, None) => String::new(),
                    (_, Some(run)) => phrases::attempt_of(step, run),
                }
            }
            Body::StepCompleted { .. } if is_item => {
                name = format!("{}{}", followed.prefix, plan.step_id(at.visit_ref()));
                word = step_word(plan, state, at.visit_ref()).to_owned();
                self.progress(followed, at)?
            }
            Body::StepCompleted { by, .. } => {
                let run = state.run(at);
                let took = run.and_then(|run| Some(run.ended_at()?.since(run.started_at()?)));
                let took = took.filter(|took| *took > 0).map(duration);
                let by = by.as_ref().map(|by| format!("by {by}"));
                let each = state.visit(at).and_then(|visit| visit.each());
                let failed = each.and_then(|each| Progress::of(each, None, event.at).failures());
                let parts: Vec<String> = took.into_iter().chain(by).chain(failed).collect();
                parts.join(", ")
            }
            Body::StepFailed { error, .. } => phrases::error(error),
            Body::StepExecutionFailed {
                error,
                loss: Some(loss),
                ..
            } => {
                let losses = state.run(at).map_or(0, |run| run.losses());
                let lost = phrases::loss(*loss, losses, step.max_losses);
                format!("{lost}: {}", phrases::error(error))
            }
            Body::StepExecutionFailed {
                error, retry_at, ..
            } => {
                let tried = state.run(at).map(|run| phrases::attempt_of(step, run));
                let tried = tried.unwrap_or_default();
                let (error, again) = (phrases::error(error), again(*retry_at));
                format!("{tried} failed, {again}: {error}")
            }
            Body::StepSkipped { reason, .. } => skipped(*reason).to_owned(),
            Body::StepWaiting { wait, .. } => {
                let waits = phrases::waits(plan, state, at, event.at);
                waits.unwrap_or_else(|| phrases::waits_for(wait))
            }
            Body::StepApproved { by, .. } => format!("approved by {by}"),
            Body::StepWoken { by: Some(by), .. } => format!("approved by {by}"),
            Body::StepWoken {
                event_id: Some(_), ..
            } => "the event arrived".to_owned(),
            Body::StepHeld { until: held, .. } => {
                format!("held for an operator, at most {}", until(*held))
            }
            Body::StepRetried { logical, .. } => format!("retried, logical attempt {logical}"),
            Body::StepRouted { routing, .. } if routing.handled => {
                let to = routing.taken.iter();
                let to = to.map(|taken| plan.step(plan.edge(taken.edge).to).name.clone());
                format!("failure handled by {}", to.collect::<Vec<_>>().join(", "))
            }
            Body::UndoStarted { .. } => {
                word = "undoing".to_owned();
                phrases::undo_attempt(step, undo_tries(state))
            }
            Body::UndoExecutionFailed {
                error,
                loss: Some(loss),
                ..
            } => {
                word = "undoing".to_owned();
                let losses = state.undoing().map_or(0, |it| it.run().losses());
                let lost = phrases::loss(*loss, losses, None);
                format!("{lost}: {}", phrases::error(error))
            }
            Body::UndoExecutionFailed {
                error, retry_at, ..
            } => {
                word = "undoing".to_owned();
                let tried = phrases::undo_attempt(step, undo_tries(state));
                let (error, again) = (phrases::error(error), again(*retry_at));
                format!("{tried} failed, {again}: {error}")
            }
            Body::UndoCompleted { .. } => {
                word = "undone".to_owned();
                String::new()
            }
            Body::UndoFailed { error, .. } => {
                word = "undo failed".to_owned();
                phrases::error(error)
            }
            Body::RunCreated { .. }
            | Body::RunQueued { .. }
            | Body::RunApproved { .. }
            | Body::RunStarted { .. }
            | Body::SignalAccepted { .. }
            | Body::SignalRejected { .. }
            | Body::RunPaused { .. }
            | Body::RunResumed { .. }
            | Body::RunCompleted { .. }
            | Body::RunFailed { .. }
            | Body::RunCancelled { .. }
            | Body::StepAnswered { .. }
            | Body::StepWoken { .. }
            | Body::StepRouted { .. }
            | Body::TokensAdmitted { .. }
            | Body::CtxPatched { .. }
            | Body::ParamsUpdated { .. }
            | Body::OverrideInjected { .. }
            | Body::TargetUpdated { .. }
            | Body::EventReceived { .. }
            | Body::PauseDrainTimedOut { .. }
            | Body::Opaque(_)
            | Body::RunStalled { .. }
            | Body::RunFinalizing { .. }
            | Body::RunStopping { .. }
            | Body::CompensationStarted { .. }
            | Body::CompensationInterrupted { .. } => return None,
        };
        Some((name, word, detail))
    }

    /// How far a loop is, if it is worth a line: each item of a short one, each tenth of a long one.
    fn progress(&mut self, followed: &Followed, at: StepRef) -> Option<String> {
        let at = at.visit_ref();
        let visit = followed.state.visit(at)?;
        let started = visit.run().started_at();
        let progress = Progress::of(visit.each()?, started, followed.state.last_at());
        let (done, all) = (progress.done, progress.all);
        let tenth = if all <= 10 { done } else { done * 10 / all };
        let key = (followed.state.run_id().to_owned(), at);
        let last = self.tenths.insert(key, tenth).unwrap_or(0);
        (tenth > last).then(|| progress.live())
    }
}

/// How many attempts the undo has had that is open now. An execution that replaces a lost one is no new attempt.
fn undo_tries(state: &State) -> u32 {
    state.undoing().map_or(1, |undoing| undoing.run().tries())
}

/// Tokens that were not let in.
fn refused(followed: &Followed, body: &Body) -> Vec<Said> {
    let routing = if let Body::StepCompleted { routing, .. } = body {
        routing.as_ref()
    } else if let Body::StepRouted { routing, .. } = body {
        Some(routing)
    } else {
        None
    };
    let taken = routing.map(|routing| routing.taken.as_slice());
    let mut said = Vec::new();
    for taken in taken.unwrap_or_default() {
        let word = match taken.verdict {
            AdmissionVerdict::Allowed => continue,
            AdmissionVerdict::Denied => "denied",
            AdmissionVerdict::Discarded => "discarded",
        };
        let to = &followed.plan.step(followed.plan.edge(taken.edge).to).name;
        let name = format!("{}{to}", followed.prefix);
        said.push((name, word.to_owned(), "by its admission rules".to_owned()));
    }
    said
}

fn of_run(followed: &Followed, body: &Body) -> Option<Said> {
    let (plan, state) = (&followed.plan, &followed.state);
    let detail = match body {
        Body::RunStarted { .. } => match plan.net().plan_id.as_str() {
            _ if followed.prefix.is_empty() => String::new(),
            id => id.to_owned(),
        },
        Body::RunPaused { .. } | Body::RunResumed { .. } => String::new(),
        Body::RunStalled { stuck, .. } => format!("stalled: {}", stuck.join("; ")),
        Body::RunFinalizing { .. } => "final step".to_owned(),
        Body::RunStopping { compensate, .. } => match compensate {
            true => "stopping, then undoing".to_owned(),
            false => "stopping".to_owned(),
        },
        Body::CompensationStarted { undo, .. } => {
            format!("undoing {}", count(undo.len(), "step"))
        }
        Body::RunCompleted { .. } | Body::RunFailed { .. } | Body::RunCancelled { .. } => {
            run_substatus(plan, state).unwrap_or("").to_owned()
        }
        Body::RunCreated { .. }
        | Body::RunQueued { .. }
        | Body::RunApproved { .. }
        | Body::StepStarted { .. }
        | Body::StepCompleted { .. }
        | Body::StepFailed { .. }
        | Body::StepSkipped { .. }
        | Body::SignalAccepted { .. }
        | Body::SignalRejected { .. }
        | Body::StepExecutionStarted { .. }
        | Body::StepExecutionFailed { .. }
        | Body::StepWaiting { .. }
        | Body::StepAnswered { .. }
        | Body::StepApproved { .. }
        | Body::StepWoken { .. }
        | Body::StepRouted { .. }
        | Body::StepHeld { .. }
        | Body::StepRetried { .. }
        | Body::TokensAdmitted { .. }
        | Body::CtxPatched { .. }
        | Body::ParamsUpdated { .. }
        | Body::OverrideInjected { .. }
        | Body::TargetUpdated { .. }
        | Body::EventReceived { .. }
        | Body::PauseDrainTimedOut { .. }
        | Body::Opaque(_)
        | Body::UndoStarted { .. }
        | Body::UndoExecutionFailed { .. }
        | Body::UndoCompleted { .. }
        | Body::UndoFailed { .. }
        | Body::CompensationInterrupted { .. } => return None,
    };
    Some((run_name(followed), run_word(plan, state).to_owned(), detail))
}

fn run_name(followed: &Followed) -> String {
    match followed.prefix.as_str() {
        "" => "(run)".to_owned(),
        prefix => prefix.to_owned(),
    }
}

fn skipped(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::OnFailure => "skipped after its failure",
        SkipReason::Operator | SkipReason::OperatorAhead => "skipped by an operator",
        SkipReason::DependencyFailed => "a step before it failed",
        SkipReason::Cancelled => "cancelled",
        SkipReason::Discarded => "discarded by its admission rules",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_step_says_stands_behind_its_name() {
        let mut lines = Lines::new("run_a");
        lines.prefixes.insert("run_b".into(), "pay/".into());
        let mut out = Vec::new();
        for (run_id, stream, text) in [
            ("run_a", Stream::Out, "GET /a"),
            ("run_b", Stream::Err, "503\u{1b}[2J"),
            ("run_a", Stream::Note, "cut after 16 MiB"),
        ] {
            lines.say(&mut out, run_id, "fetch", stream, text).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        let all = "  fetch | GET /a\n  pay/fetch | 503\\u{1b}[2J\n  fetch | (cut after 16 MiB)\n";
        assert_eq!(text, all);
    }
}
