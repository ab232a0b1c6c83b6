//! The tree on a screen of a given size: which rows there is room for, and how wide their parts are.
//! A pure function, so that the same moment always looks the same.

use stepwell_dialects::document::{run_substatus, run_word};
use stepwell_kernel::time::Time;

use super::Live;
use super::chatter::SHOWN;
use super::rows::{Row, Stage, rows};
use crate::term::{Paint, Tone, cut, duration, one_line, pad, width};

/// The widest column of names.
const WIDEST: usize = 48;
/// What names keep on a terminal that has no room for all.
const NARROWEST: usize = 8;
/// The columns of a line that are neither name, word, time nor detail, and the last one of the
/// screen: on some terminals, clearing the rest of a full line also clears its last letter.
const BETWEEN: usize = 11;
/// How many levels of children are set in; deeper ones stand below each other.
const SET_IN: usize = 6;
/// On a narrower screen the detail has a line of its own.
const NARROW: usize = 60;
/// A detail that is narrower has no room for a bar.
const BAR_FROM: usize = 50;
const BAR: usize = 16;

/// The values of one drawing.
pub(super) struct Screen<'s> {
    pub(super) root: Live<'s>,
    /// The runs below the root; the root may be among them.
    pub(super) below: &'s [Live<'s>],
    /// The last lines of output of running steps, with the steps.
    pub(super) said: &'s [(String, String)],
    pub(super) now: Time,
    pub(super) frame: &'static str,
    pub(super) columns: usize,
    /// The maximum number of lines.
    pub(super) height: usize,
    pub(super) paint: Paint,
}

/// The lines of the screen, none of them as wide as it.
pub(super) fn screen(it: &Screen<'_>) -> Vec<String> {
    // What is said must not drive out what happens.
    let said = it.said.len().min(SHOWN).min(it.height / 4);
    let room = it.height.saturating_sub(1 + said).max(1);
    let ended = it.root.state.phase().is_ended();
    let rows = rows(it.root, it.below, it.now, it.frame);
    let mut lines = vec![head(it)];
    lines.extend(body(rows, room, ended, it));
    for (step, text) in &it.said[it.said.len() - said..] {
        let line = format!("  {} | {text}", one_line(step));
        let line = cut(&line, it.columns.saturating_sub(1));
        lines.push(it.paint.tone(Tone::Dim, &line));
    }
    lines.truncate(it.height);
    lines
}

/// The rows that fit, as lines. On a narrow screen a row may take two.
fn body(rows: Vec<Row>, room: usize, ended: bool, it: &Screen<'_>) -> Vec<String> {
    let mut most = room;
    loop {
        let lines = table(&fit(rows.clone(), most, ended), it.columns, it.paint);
        let over = lines.len().saturating_sub(room);
        if over == 0 || most <= 1 {
            return lines;
        }
        most = most.saturating_sub(over.div_ceil(2)).max(1);
    }
}

/// `order-saga  Failed (Compensated)  4.2 s`.
fn head(it: &Screen<'_>) -> String {
    let (plan, state) = (it.root.plan, it.root.state);
    let mut rest = format!("  {}", run_word(plan, state));
    if let Some(sub) = run_substatus(plan, state) {
        rest.push_str(&format!(" ({sub})"));
    }
    if state.stalled().is_some() {
        rest.push_str(", stalled");
    }
    if let Some(started) = state.started_at() {
        let took = state.ended_at().unwrap_or(it.now).since(started);
        rest.push_str(&format!("  {}", duration(took)));
    }
    let columns = it.columns.saturating_sub(1);
    let rest = cut(&rest, columns);
    let id = cut(&one_line(&plan.net().plan_id), columns - width(&rest));
    format!("{}{rest}", it.paint.tone(Tone::Strong, &id))
}

fn table(rows: &[Row], columns: usize, paint: Paint) -> Vec<String> {
    let widest = |part: &dyn Fn(&Row) -> usize| rows.iter().map(part).max().unwrap_or(0);
    let narrow = columns < NARROW;
    let share = Share::of(
        columns.saturating_sub(BETWEEN),
        [
            widest(&|row| width(&row.name) + indent(row)),
            widest(&|row| width(row.word)),
            widest(&|row| width(&row.time)),
            widest(&|row| width(&row.detail) * usize::from(!narrow)),
        ],
    );
    let mut lines = Vec::new();
    for row in rows {
        let name = format!("{}{}", " ".repeat(indent(row)), row.name);
        let name = pad(&cut(&name, share.names), share.names);
        let word = cut(row.word, share.words);
        let gap = " ".repeat(share.words - width(&word));
        let time = cut(&row.time, share.times);
        let time = format!("{}{time}", " ".repeat(share.times - width(&time)));
        let icon = paint.tone(row.tone, row.icon);
        let word = match word.as_str() {
            "" => word,
            _ => paint.tone(row.tone, &word),
        };
        let detail = match narrow {
            true => String::new(),
            false => cut(&self::detail(row, share.details), share.details),
        };
        let rest = format!("{time}  {detail}");
        lines.push(match rest.trim_end() {
            "" => format!("  {icon} {name}  {word}").trim_end().to_owned(),
            rest => {
                let rest = paint.tone(Tone::Dim, rest);
                format!("  {icon} {name}  {word}{gap}  {rest}")
            }
        });
        if narrow && !row.detail.is_empty() && row.stage != Stage::Done {
            let indent = " ".repeat(indent(row) + 6);
            let room = columns.saturating_sub(1);
            let line = cut(&format!("{indent}{}", self::detail(row, room)), room);
            lines.push(paint.tone(Tone::Dim, &line));
        }
    }
    lines
}

/// What is said about a row, with a bar where there is room for one.
fn detail(row: &Row, room: usize) -> String {
    let text = one_line(&row.detail);
    match row.bar {
        Some((done, all)) if room >= BAR_FROM => format!("{} {text}", bar(done, all)),
        _ => text,
    }
}

fn indent(row: &Row) -> usize {
    row.depth.min(SET_IN) * 2
}

fn bar(done: usize, all: usize) -> String {
    let full = (done * BAR).checked_div(all).unwrap_or(BAR).min(BAR);
    format!("{}{}", "█".repeat(full), "░".repeat(BAR - full))
}

/// How wide the parts of a row may be. A line that wraps counts as two on the screen, and the next
/// drawing would start too low: so together they never take more than there is.
#[derive(Debug, PartialEq, Eq)]
struct Share {
    names: usize,
    words: usize,
    times: usize,
    details: usize,
}

impl Share {
    /// Shares the room among what names, words, times and details would like to have.
    fn of(room: usize, [names, words, times, details]: [usize; 4]) -> Share {
        let words = words.min(room.saturating_sub(names.min(NARROWEST)));
        let times = times.min(room.saturating_sub(words + names.min(NARROWEST)));
        let left = room - words - times;
        // A third of the line is the detail's, if it wants that much.
        let kept = details.min(room / 3).min(left.saturating_sub(NARROWEST));
        let names = names.min(WIDEST).min(left - kept);
        Share {
            names,
            words,
            times,
            details: left - names,
        }
    }
}

/// The rows that fit. What is done at the top is left out first, then what is to come at the end, then
/// failures that were dealt with; how many those are is said in one line at each end.
fn fit(rows: Vec<Row>, most: usize, ended: bool) -> Vec<Row> {
    if rows.len() <= most {
        return rows;
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    // Of what is done the oldest goes first, of all else the last.
    order.sort_by_key(|at| match rows[*at].stage {
        Stage::Done => (Stage::Done, *at),
        stage @ (Stage::ToCome | Stage::Failed | Stage::Busy) => (stage, rows.len() - at),
    });
    let hide = |folds: usize| {
        let keep = most.saturating_sub(folds);
        let hidden = &order[..rows.len() - keep];
        (hidden, Folds::of(&rows, hidden, ended))
    };
    let (mut hidden, mut folds) = hide(1);
    if folds.count() > 1 {
        (hidden, folds) = hide(2);
    }
    let mut is_hidden = vec![false; rows.len()];
    for at in hidden {
        is_hidden[*at] = true;
    }
    let shown = rows.into_iter().zip(is_hidden);
    let shown = shown.filter(|(_, hidden)| !hidden).map(|(row, _)| row);
    let (top, bottom) = (folds.top.into_iter(), folds.bottom);
    top.chain(shown).chain(bottom).collect()
}

/// The lines that stand for rows that are left out.
struct Folds {
    top: Option<Row>,
    bottom: Option<Row>,
}

impl Folds {
    fn of(rows: &[Row], hidden: &[usize], ended: bool) -> Folds {
        let count = |stage| {
            let hidden = hidden.iter().filter(|at| rows[**at].stage == stage);
            hidden.count()
        };
        let to_come = if ended { "not reached" } else { "to come" };
        let done = [
            (count(Stage::Done), "done"),
            (count(Stage::Failed), "failed"),
        ];
        let rest = [
            (count(Stage::Busy), "under way"),
            (count(Stage::ToCome), to_come),
        ];
        Folds {
            top: fold(done),
            bottom: fold(rest),
        }
    }

    fn count(&self) -> usize {
        usize::from(self.top.is_some()) + usize::from(self.bottom.is_some())
    }
}

/// `… 120 done, 2 failed`.
fn fold(counts: [(usize, &str); 2]) -> Option<Row> {
    let some = counts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = some
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!parts.is_empty()).then(|| Row {
        depth: 0,
        icon: "…",
        tone: Tone::Dim,
        name: parts.join(", "),
        word: "",
        time: String::new(),
        detail: String::new(),
        bar: None,
        stage: Stage::Done,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_never_wraps_however_narrow_the_terminal() {
        for room in 0..200 {
            for wanted in [
                [0, 0, 0, 0],
                [5, 7, 5, 10],
                [60, 26, 11, 200],
                [8, 26, 11, 3],
            ] {
                let it = Share::of(room, wanted);
                let whole = it.names + it.words + it.times + it.details;
                assert!(whole <= room, "{room}: {it:?}");
            }
        }
        let share = |names, words, times, details| Share {
            names,
            words,
            times,
            details,
        };
        assert_eq!(Share::of(69, [13, 9, 5, 60]), share(13, 9, 5, 42));
        assert_eq!(Share::of(29, [30, 9, 5, 60]), share(8, 9, 5, 7));
    }

    fn row(number: usize, stage: Stage) -> Row {
        let mut row = fold([(number, "step"), (0, "")]).unwrap();
        row.stage = stage;
        row
    }

    fn names(stages: &[(Stage, usize)], most: usize) -> Vec<String> {
        let mut rows = Vec::new();
        for (stage, count) in stages {
            for _ in 0..*count {
                rows.push(row(rows.len() + 1, *stage));
            }
        }
        fit(rows, most, false)
            .into_iter()
            .map(|row| row.name)
            .collect()
    }

    #[test]
    fn what_is_done_at_the_top_folds_first() {
        let stages = [(Stage::Done, 122), (Stage::Busy, 1), (Stage::ToCome, 2)];
        let shown = [
            "120 done", "121 step", "122 step", "123 step", "124 step", "125 step",
        ];
        assert_eq!(names(&stages, 6), shown);
    }

    #[test]
    fn what_is_to_come_folds_next() {
        let stages = [
            (Stage::Done, 10),
            (Stage::Failed, 1),
            (Stage::Busy, 1),
            (Stage::ToCome, 9),
        ];
        let shown = ["10 done", "11 step", "12 step", "13 step", "8 to come"];
        assert_eq!(names(&stages, 5), shown);
        assert_eq!(
            names(&stages, 3),
            ["10 done, 1 failed", "12 step", "9 to come"]
        );
    }

    #[test]
    fn more_that_runs_than_there_is_room_for_is_counted() {
        let shown = ["1 step", "2 step", "48 under way, 1 to come"];
        assert_eq!(names(&[(Stage::Busy, 50), (Stage::ToCome, 1)], 3), shown);
    }

    #[test]
    fn a_bar_is_as_long_as_ever_however_much_is_done() {
        for done in 0..=120 {
            assert_eq!(width(&bar(done, 120)), BAR);
        }
        assert_eq!(bar(0, 0), "█".repeat(BAR));
        assert_eq!(bar(60, 120), format!("{}{}", "█".repeat(8), "░".repeat(8)));
    }
}
