//! The rows of the tree: each step of a run in plan order with its state in the language's own words,
//! the runs that it started below it. Nothing here knows how large the screen is.

use std::collections::HashMap;

use stepwell_dialects::document::step_word;
use stepwell_engine::MAX_CHILD_DEPTH;
use stepwell_kernel::plan::{StepNo, StepRef};
use stepwell_kernel::state::{LoopState, Status, StepRun, UndoStatus, Visit};
use stepwell_kernel::time::Time;

use super::Live;
use crate::term::{Tone, duration, one_line};
use stepwell_views::phrases::{
    Progress, attempt_of, error, losses, next_attempt_of, retries, undo_attempt, waits,
};

/// Most items of a loop that have a row of their own.
const ITEMS: usize = 4;

/// Where a row is in its life; what may be left out first when there is no room comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Done,
    ToCome,
    Failed,
    Busy,
}

/// One line of the tree.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) depth: usize,
    pub(super) icon: &'static str,
    pub(super) tone: Tone,
    pub(super) name: String,
    pub(super) word: &'static str,
    /// How long it has taken.
    pub(super) time: String,
    pub(super) detail: String,
    /// How much of a loop is done, out of how much.
    pub(super) bar: Option<(usize, usize)>,
    pub(super) stage: Stage,
}

/// The runs that a step-run started, by run and step-run.
type Children<'r> = HashMap<(&'r str, &'r str), Vec<Live<'r>>>;

/// What all rows are made from.
struct Making<'r> {
    children: Children<'r>,
    now: Time,
    frame: &'static str,
    rows: Vec<Row>,
}

/// The rows of a run and of those below it. The frame is the icon of what runs.
pub(super) fn rows(root: Live<'_>, below: &[Live<'_>], now: Time, frame: &'static str) -> Vec<Row> {
    let mut children: Children<'_> = HashMap::new();
    for child in below {
        if let Some(parent) = child.state.parent() {
            let key = (parent.run_id.as_str(), parent.step_id.as_str());
            children.entry(key).or_default().push(*child);
        }
    }
    let mut making = Making {
        children,
        now,
        frame,
        rows: Vec::new(),
    };
    making.run(root, 0);
    making.rows
}

impl Making<'_> {
    fn run(&mut self, live: Live<'_>, depth: usize) {
        for no in live.plan.numbers() {
            let visits = live.state.steps()[no.0 as usize].visits();
            let at = StepRef {
                visit: visits.len().max(1) as u32,
                ..StepRef::first(no)
            };
            let Some(visit) = visits.last() else {
                self.rows.push(to_come(live, no, depth));
                continue;
            };
            let mut name = one_line(&live.plan.step(no).name);
            if visits.len() > 1 {
                name.push_str(&format!(" ×{}", visits.len()));
            }
            let row = self.row(live, at, visit.run(), name, depth);
            self.rows.push(row);
            self.child(live, at, depth);
            self.items(live, at, visit, depth);
        }
    }

    /// The run that a step-run started last.
    fn child(&mut self, live: Live<'_>, at: StepRef, depth: usize) {
        if depth >= MAX_CHILD_DEPTH {
            return;
        }
        let id = live.plan.step_id(at);
        let key = (live.state.run_id(), id.as_str());
        let found = self.children.get(&key).and_then(|all| all.last().copied());
        if let Some(child) = found {
            self.run(child, depth + 1);
        }
    }

    /// The open items that someone may wonder about: those that wait, are tried again or are runs.
    fn items(&mut self, live: Live<'_>, at: StepRef, visit: &Visit, depth: usize) {
        let active = visit.each().into_iter().flat_map(|each| each.active());
        let worth = active.filter(|(_, run)| {
            run.status() == Status::Waiting || run.tries() > 1 || run.losses() > 0
        });
        for (item, run) in worth.take(ITEMS) {
            let at = at.with_item(*item);
            let name = one_line(&live.plan.step_id(at));
            let row = self.row(live, at, run, name, depth + 1);
            self.rows.push(row);
            self.child(live, at, depth + 1);
        }
    }

    fn row(&self, live: Live<'_>, at: StepRef, run: &StepRun, name: String, depth: usize) -> Row {
        let (icon, tone, stage) = look(run, self.frame);
        let took = run
            .started_at()
            .map(|it| run.ended_at().unwrap_or(self.now).since(it));
        let looping = run.status() == Status::Looping;
        let progress = loop_of(live, at).filter(|_| looping);
        let progress = progress.map(|each| Progress::of(each, run.started_at(), self.now));
        Row {
            depth,
            icon,
            tone,
            name,
            word: step_word(live.plan, live.state, at),
            time: took
                .filter(|took| *took > 0)
                .map(duration)
                .unwrap_or_default(),
            detail: detail(live, at, run, self.now),
            bar: progress.map(|progress| (progress.done, progress.all)),
            stage,
        }
    }
}

fn to_come(live: Live<'_>, no: StepNo, depth: usize) -> Row {
    Row {
        depth,
        icon: "○",
        tone: Tone::Dim,
        name: one_line(&live.plan.step(no).name),
        word: step_word(live.plan, live.state, StepRef::first(no)),
        time: String::new(),
        detail: String::new(),
        bar: None,
        stage: Stage::ToCome,
    }
}

fn look(run: &StepRun, frame: &'static str) -> (&'static str, Tone, Stage) {
    match (run.compensation(), run.status()) {
        (UndoStatus::Running, _) => (frame, Tone::Warn, Stage::Busy),
        (UndoStatus::Done, _) => ("↺", Tone::Warn, Stage::Done),
        (UndoStatus::Failed, _) => ("✗", Tone::Bad, Stage::Failed),
        (_, Status::Succeeded) => ("✓", Tone::Good, Stage::Done),
        (_, Status::Failed) => ("✗", Tone::Bad, Stage::Failed),
        (_, Status::Held) => ("✗", Tone::Bad, Stage::Busy),
        (_, Status::Skipped) => ("↷", Tone::Dim, Stage::Done),
        (_, Status::Cancelled) => ("⊘", Tone::Dim, Stage::Done),
        (_, Status::Running | Status::Looping) => (frame, Tone::Busy, Stage::Busy),
        (_, Status::Waiting) => ("◷", Tone::Warn, Stage::Busy),
        (_, Status::Denied) => ("⊘", Tone::Warn, Stage::Busy),
        (_, Status::Ready) if run.is_backing_off() => ("◷", Tone::Warn, Stage::Busy),
        (_, Status::Arrived | Status::Ready) => ("○", Tone::Plain, Stage::Busy),
    }
}

/// The loop of a visit; an item of a loop has none.
fn loop_of(live: Live<'_>, at: StepRef) -> Option<&LoopState> {
    let visit = live.state.visit(at).filter(|_| at.item.is_none());
    visit.and_then(Visit::each)
}

/// What matters most comes first: the end is cut where there is no room.
fn detail(live: Live<'_>, at: StepRef, run: &StepRun, now: Time) -> String {
    let step = live.plan.step(at.step);
    let mut parts = Vec::new();
    if let Some(each) = loop_of(live, at) {
        let progress = Progress::of(each, run.started_at(), now);
        parts.push(match run.status() {
            Status::Looping => progress.live(),
            Status::Arrived
            | Status::Denied
            | Status::Ready
            | Status::Running
            | Status::Waiting
            | Status::Succeeded
            | Status::Failed
            | Status::Held
            | Status::Skipped
            | Status::Cancelled => progress.counts(),
        });
    }
    match run.status() {
        Status::Waiting => parts.extend(waits(live.plan, live.state, at, now)),
        Status::Ready if run.is_backing_off() => {
            parts.push(retries(run.visible_at(), now));
            parts.push(next_attempt_of(step, run));
        }
        Status::Held => parts.push("held for an operator".to_owned()),
        Status::Denied => parts.push("not let in by its admission rules".to_owned()),
        // The first attempt is said where there can be a second: nobody need ask how many are left.
        Status::Running if step.retry.max_executions > 1 || run.tries() > 1 => {
            parts.push(attempt_of(step, run));
        }
        _ if run.tries() > 1 => parts.push(attempt_of(step, run)),
        Status::Arrived
        | Status::Ready
        | Status::Running
        | Status::Looping
        | Status::Succeeded
        | Status::Failed
        | Status::Skipped
        | Status::Cancelled => {}
    }
    parts.extend(losses(run));
    parts.extend(undo(live, at, run, now));
    let last_error = run.error();
    if let Some(found) = last_error.filter(|_| run.status() != Status::Succeeded) {
        parts.push(error(found));
    }
    parts.join(", ")
}

fn undo(live: Live<'_>, at: StepRef, run: &StepRun, now: Time) -> Option<String> {
    let text = match run.compensation() {
        UndoStatus::None => return None,
        UndoStatus::Due => "to be undone",
        UndoStatus::Done => "undone",
        UndoStatus::Failed => "undo failed",
        UndoStatus::NotCompensable => "cannot be undone",
        UndoStatus::Running => {
            let undoing = live.state.undoing();
            let Some(undoing) = undoing.filter(|it| it.current() == Some(at)) else {
                return Some("undoing".to_owned());
            };
            let step = live.plan.step(at.step);
            return Some(match undoing.run().is_backing_off() {
                true => {
                    let next = undo_attempt(step, undoing.run().tries() + 1);
                    let when = retries(undoing.run().visible_at(), now);
                    format!("undoing, {when}, {next}")
                }
                false => format!("undoing, {}", undo_attempt(step, undoing.run().tries())),
            });
        }
    };
    Some(text.to_owned())
}
