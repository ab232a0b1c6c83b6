//! The live tree of steps on a terminal, drawn over in place, in plan order. Children stand below
//! the step that started them; the items of a loop are a count.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use stepwell_dialects::document::{run_word, step_word};
use stepwell_engine::MAX_CHILD_DEPTH;
use stepwell_kernel::plan::{Plan, StepNo, StepRef};
use stepwell_kernel::state::{Compensation, State, Status, StepRun, Visit};
use stepwell_kernel::time::Time;

use super::RunEngine;
use super::report::waits_for;
use crate::log::Hold;
use crate::term::{self, Paint, Tone, cut, duration, one_line, pad, width};

/// At most this often.
const PACE: Duration = Duration::from_millis(100);
const FRAMES: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠇", "⠏", "⠛"];
/// The widest column of names.
const WIDEST: usize = 48;
/// What names keep on a terminal that has no room for all.
const NARROWEST: usize = 8;
/// The columns of a line that are neither name, word nor detail.
const BETWEEN: usize = 8;
/// How wide a drawing is that no terminal shows.
const PIPED: usize = 120;

/// Draws the tree.
#[derive(Debug)]
pub(super) struct Tree {
    run_id: String,
    paint: Paint,
    /// Lines that are on the screen and are drawn over next.
    drawn: usize,
    last: Option<Instant>,
    frame: usize,
    /// A line between two drawings would tear them: they are written above the next.
    log: Option<Hold>,
}

/// One line of the tree.
struct Row {
    depth: usize,
    icon: &'static str,
    tone: Tone,
    name: String,
    word: &'static str,
    detail: String,
    /// Neither done nor still to come: these stay when there is no room for all.
    busy: bool,
}

impl Tree {
    pub(super) fn new(run_id: &str) -> Tree {
        Tree {
            run_id: run_id.to_owned(),
            paint: term::stdout_paint(),
            drawn: 0,
            last: None,
            frame: 0,
            log: Some(Hold::new()),
        }
    }

    /// Draws, unless it was drawn a moment ago.
    pub(super) fn draw(&mut self, engine: &RunEngine) -> io::Result<()> {
        if self.last.is_some_and(|last| last.elapsed() < PACE) {
            return Ok(());
        }
        self.last = Some(Instant::now());
        self.frame = (self.frame + 1) % FRAMES.len();
        let (_, height) = term::size();
        self.paint_rows(engine, height.saturating_sub(2).max(3))
    }

    /// Draws every line for the last time.
    pub(super) fn draw_last(&mut self, engine: &RunEngine) -> io::Result<()> {
        self.paint_rows(engine, usize::MAX)?;
        self.log = None;
        Ok(())
    }

    fn paint_rows(&mut self, engine: &RunEngine, most: usize) -> io::Result<()> {
        let Some(live) = engine.run(&self.run_id) else {
            return Ok(());
        };
        let (columns, _) = term::size();
        let root = Live {
            plan: &live.plan,
            state: &live.state,
        };
        let all = engine.runs().into_iter().map(|(_, live)| Live {
            plan: &live.plan,
            state: &live.state,
        });
        let frame = FRAMES[self.frame];
        let rows = fit(rows(root, all, engine.now(), frame), most);
        let lines = lines(root, rows, columns, self.paint);
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\u{1b}[{}A", self.drawn));
        }
        let mut out = io::stdout().lock();
        let logged = self.log.as_ref().map(Hold::lines).unwrap_or_default();
        if !logged.is_empty() {
            text.push_str("\r\u{1b}[J");
            out.write_all(text.as_bytes())?;
            out.flush()?;
            io::stderr().write_all(logged.concat().as_bytes())?;
            text.clear();
        }
        for line in &lines {
            text.push_str(&format!("\r\u{1b}[2K{line}\n"));
        }
        text.push_str("\u{1b}[J");
        self.drawn = lines.len();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

/// A run as it is drawn.
#[derive(Clone, Copy)]
pub(crate) struct Live<'r> {
    pub(crate) plan: &'r Plan,
    pub(crate) state: &'r State,
}

/// A run and those below it, drawn once.
pub(crate) fn still<'r>(
    root: Live<'r>,
    below: impl Iterator<Item = Live<'r>>,
    now: Time,
    paint: Paint,
) -> String {
    let columns = if term::is_live() {
        term::size().0
    } else {
        PIPED
    };
    let rows = rows(root, below, now, "•");
    let mut text = String::new();
    for line in lines(root, rows, columns, paint) {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn lines(root: Live<'_>, rows: Vec<Row>, columns: usize, paint: Paint) -> Vec<String> {
    let name = |row: &Row| width(&row.name) + row.depth * 2;
    let names = rows.iter().map(name).max().unwrap_or(0);
    let words = rows.iter().map(|row| width(row.word)).max().unwrap_or(0);
    let (names, words, details) = share(columns, names, words);
    let run_word = run_word(root.plan, root.state);
    let id = one_line(&root.plan.net().plan_id);
    let id = cut(&id, columns.saturating_sub(width(run_word) + 2));
    let mut lines = vec![format!("{}  {run_word}", paint.tone(Tone::Strong, &id))];
    for row in rows {
        let indent = "  ".repeat(row.depth);
        let name = pad(&cut(&format!("{indent}{}", row.name), names), names);
        let word = pad(&cut(row.word, words), words);
        let detail = cut(&one_line(&row.detail), details);
        lines.push(format!(
            "  {} {name}  {}  {}",
            paint.tone(row.tone, row.icon),
            paint.tone(row.tone, &word),
            paint.tone(Tone::Dim, &detail),
        ));
    }
    lines
}

/// How wide names, words and details may be. A line that wraps counts as two on the screen, and the
/// next drawing would start too low: so together with what stands between them they never do.
fn share(columns: usize, names: usize, words: usize) -> (usize, usize, usize) {
    let room = columns.saturating_sub(BETWEEN);
    let words = words.min(room.saturating_sub(names.min(NARROWEST)));
    let names = names.min(WIDEST).min(room.saturating_sub(words));
    (names, words, room.saturating_sub(names + words))
}

fn rows<'r>(
    root: Live<'r>,
    all: impl Iterator<Item = Live<'r>>,
    now: Time,
    frame: &'static str,
) -> Vec<Row> {
    let mut children: HashMap<(&str, &str), Vec<Live<'r>>> = HashMap::new();
    for child in all {
        if let Some(parent) = &child.state.parent {
            let key = (parent.run_id.as_str(), parent.step_id.as_str());
            children.entry(key).or_default().push(child);
        }
    }
    let mut rows = Vec::new();
    add(&mut rows, root, &children, now, frame, 0);
    rows
}

fn add(
    rows: &mut Vec<Row>,
    live: Live<'_>,
    children: &HashMap<(&str, &str), Vec<Live<'_>>>,
    now: Time,
    frame: &'static str,
    depth: usize,
) {
    for no in live.plan.numbers() {
        rows.push(row(live, no, now, frame, depth));
        let visits = live.state.steps[no.0 as usize].visits.len() as u32;
        if visits == 0 || depth >= MAX_CHILD_DEPTH {
            continue;
        }
        let at = StepRef {
            visit: visits,
            ..StepRef::first(no)
        };
        let key = (live.state.run_id.as_str(), &*live.plan.step_id(at));
        let found = children.get(&key).and_then(|all| all.last());
        if let Some(child) = found {
            add(rows, *child, children, now, frame, depth + 1);
        }
    }
}

fn row(live: Live<'_>, no: StepNo, now: Time, frame: &'static str, depth: usize) -> Row {
    let visits = &live.state.steps[no.0 as usize].visits;
    let at = StepRef {
        visit: visits.len().max(1) as u32,
        ..StepRef::first(no)
    };
    let name = one_line(&live.plan.step(no).name);
    let name = match visits.len() {
        0 | 1 => name,
        more => format!("{name} ×{more}"),
    };
    let word = step_word(live.plan, live.state, at);
    let Some(visit) = visits.last() else {
        return Row {
            depth,
            icon: "○",
            tone: Tone::Dim,
            name,
            word,
            detail: String::new(),
            busy: false,
        };
    };
    let (icon, tone, busy) = look(&visit.run, frame);
    Row {
        depth,
        icon,
        tone,
        name,
        word,
        detail: detail(visit, now),
        busy,
    }
}

fn look(run: &StepRun, frame: &'static str) -> (&'static str, Tone, bool) {
    match (run.compensation, run.status) {
        (Compensation::Running, _) => (frame, Tone::Warn, true),
        (Compensation::Done, _) => ("↺", Tone::Warn, false),
        (Compensation::Failed, _) => ("✗", Tone::Bad, false),
        (_, Status::Succeeded) => ("✓", Tone::Good, false),
        (_, Status::Failed) => ("✗", Tone::Bad, false),
        (_, Status::Held) => ("✗", Tone::Bad, true),
        (_, Status::Skipped) => ("↷", Tone::Dim, false),
        (_, Status::Cancelled) => ("⊘", Tone::Dim, false),
        (_, Status::Running | Status::Looping) => (frame, Tone::Busy, true),
        (_, Status::Waiting) => ("◷", Tone::Warn, true),
        (_, Status::Denied) => ("⊘", Tone::Warn, true),
        (_, Status::Ready) if run.is_backing_off() => ("◷", Tone::Warn, true),
        (_, Status::Arrived | Status::Ready) => ("○", Tone::Plain, true),
    }
}

fn detail(visit: &Visit, now: Time) -> String {
    let run = &visit.run;
    let mut parts = Vec::new();
    if let Some(each) = &visit.each {
        let done = each.results.iter().flatten().count();
        parts.push(format!("{done}/{}", each.count()));
        if each.failed > 0 {
            parts.push(format!("{} failed", each.failed));
        }
    }
    if run.execution > 1 {
        parts.push(format!("attempt {}", run.execution));
    }
    if let (Status::Waiting, Some(wait)) = (run.status, &run.wait) {
        parts.push(waits_for(&wait.kind));
        if let Some(deadline) = wait.deadline {
            parts.push(format!("{} left", duration(deadline.since(now))));
        }
    }
    if run.is_backing_off() {
        parts.push(format!("again in {}", duration(run.visible_at.since(now))));
    }
    if let Some(error) = run
        .error
        .as_ref()
        .filter(|_| run.status != Status::Succeeded)
    {
        parts.push(format!("{}: {}", error.code, error.message));
    }
    match run.compensation {
        Compensation::Due => parts.push("to be undone".to_owned()),
        Compensation::Running => parts.push("undoing".to_owned()),
        Compensation::Done => parts.push("undone".to_owned()),
        Compensation::Failed => parts.push("undo failed".to_owned()),
        Compensation::NotCompensable => parts.push("cannot be undone".to_owned()),
        Compensation::None => {}
    }
    if let Some(started) = run.started_at {
        let took = run.ended_at.unwrap_or(now).since(started);
        if took > 0 {
            parts.push(duration(took));
        }
    }
    parts.join(", ")
}

/// The rows that fit: all of them, or the busy ones and what fits around them, with a line that
/// says how many are not shown.
fn fit(rows: Vec<Row>, most: usize) -> Vec<Row> {
    if rows.len() <= most {
        return rows;
    }
    let room = most.saturating_sub(1);
    let busy = rows.iter().filter(|row| row.busy).count();
    let mut quiet = room.saturating_sub(busy);
    let all = rows.len();
    let mut shown: Vec<Row> = rows
        .into_iter()
        .filter(|row| {
            let fits = row.busy || quiet > 0;
            quiet -= usize::from(!row.busy && quiet > 0);
            fits
        })
        .take(room)
        .collect();
    let hidden = all - shown.len();
    shown.push(Row {
        depth: 0,
        icon: "…",
        tone: Tone::Dim,
        name: format!("{hidden} more"),
        word: "",
        detail: String::new(),
        busy: false,
    });
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_never_wraps_however_narrow_the_terminal() {
        for columns in 0..200 {
            for (names, words) in [(0, 0), (5, 7), (60, 26), (8, 26)] {
                let (names, words, details) = share(columns, names, words);
                let whole = names + words + details;
                assert!(
                    whole <= columns.saturating_sub(BETWEEN),
                    "{columns} columns"
                );
            }
        }
        assert_eq!(share(80, 13, 9), (13, 9, 50));
        assert_eq!(share(40, 30, 9), (23, 9, 0));
        assert_eq!(share(30, 30, 26), (8, 14, 0));
    }
}
