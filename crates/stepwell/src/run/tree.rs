//! The live tree of steps on a terminal, drawn over in place. This file only puts lines on the screen;
//! what they are is a function of state, time and size (`rows`, `layout`, `chatter`).

mod chatter;
mod layout;
mod rows;
#[cfg(test)]
pub(super) mod tests;

use std::io::{self, Write};
use std::time::{Duration, Instant};

use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::State;
use stepwell_kernel::time::Time;

use super::follow::Follower;
use stepwell_views::RunView;

use crate::log::LogHold;
use crate::term::{self, Paint, width};
use chatter::Chatter;
use layout::{Screen, screen};

/// Shortest time between two drawings.
const PACE: Duration = Duration::from_millis(100);
/// How much longer than a drawing the time to the next one is at least: a drawing goes over all steps of a plan, and
/// must not take the processor from the steps.
const REST: u32 = 20;
const FRAMES: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠇", "⠏", "⠛"];
/// The width if the output is not a terminal.
const PIPED: usize = 120;
/// The last drawing stays, so it may be longer than the screen; a plan of thousands of steps is not
/// what people want to scroll over.
const LAST: usize = 100;
/// Terminals that know these sequences show the text between them at once; other terminals ignore them.
const SYNC: (&str, &str) = ("\u{1b}[?2026h", "\u{1b}[?2026l");

/// Draws the steps of a run on the terminal, again and again in the same place.
#[derive(Debug)]
pub(super) struct Tree {
    paint: Paint,
    /// The lines that are on the screen and are drawn over next.
    drawn: Vec<String>,
    /// When the next drawing is due.
    next: Option<Instant>,
    frame: usize,
    chatter: Chatter,
    /// A line between two drawings would tear them: they are written above the next.
    log: Option<LogHold>,
}

impl Tree {
    pub(super) fn new() -> Tree {
        Tree {
            paint: term::stdout_paint(),
            drawn: Vec::new(),
            next: None,
            frame: 0,
            chatter: Chatter::default(),
            log: Some(LogHold::new()),
        }
    }

    /// Remembers a line that a step has said, for as long as it runs.
    pub(super) fn say(&mut self, run_id: &str, step_id: &str, text: &str) {
        self.chatter.hear(run_id, step_id, text);
    }

    /// Draws, unless it was drawn a moment ago.
    pub(super) fn draw(&mut self, follower: &Follower, now: Time) -> io::Result<()> {
        let began = Instant::now();
        if self.next.is_some_and(|next| began < next) {
            return Ok(());
        }
        self.frame = (self.frame + 1) % FRAMES.len();
        let (_, height) = term::size();
        self.put(follower, now, height.saturating_sub(1))?;
        let took = began.elapsed();
        self.next = Some(began + PACE.max(took * REST));
        Ok(())
    }

    /// Draws for the last time.
    pub(super) fn draw_last(&mut self, follower: &Follower, now: Time) -> io::Result<()> {
        self.chatter = Chatter::default();
        let (_, height) = term::size();
        self.put(follower, now, height.max(LAST))?;
        self.log = None;
        Ok(())
    }

    fn put(&mut self, follower: &Follower, now: Time, height: usize) -> io::Result<()> {
        let Ok(root) = follower.root() else {
            return Ok(());
        };
        let below = follower.live();
        self.chatter.forget_ended(&below);
        let (columns, _) = term::size();
        let lines = screen(&Screen {
            root: root.live(),
            below: &below,
            said: &self.chatter.lines(),
            now,
            frame: FRAMES[self.frame],
            columns,
            height,
            paint: self.paint,
        });
        let logged = self.log.as_ref().map(LogHold::lines).unwrap_or_default();
        if lines == self.drawn && logged.is_empty() {
            return Ok(());
        }
        let mut text = up(&self.drawn, columns);
        let mut out = io::stdout().lock();
        if !logged.is_empty() {
            text.push_str("\u{1b}[J");
            out.write_all(text.as_bytes())?;
            out.flush()?;
            io::stderr().write_all(logged.concat().as_bytes())?;
            text.clear();
        }
        for line in &lines {
            // What is there is written over, and only what is left of the line is cleared.
            text.push_str(&format!("{line}\u{1b}[K\n"));
        }
        text.push_str("\u{1b}[J");
        self.drawn = lines;
        out.write_all(format!("{}{text}{}", SYNC.0, SYNC.1).as_bytes())?;
        out.flush()
    }
}

/// Moves the cursor to where the last drawing began. Where the terminal has become narrower since, it
/// has broken the lines that no longer fit, so that the drawing is higher than it was.
fn up(drawn: &[String], columns: usize) -> String {
    let columns = columns.max(1);
    let rows = |line: &String| bare_width(line).div_ceil(columns).max(1);
    match drawn.iter().map(rows).sum::<usize>() {
        0 => "\r".to_owned(),
        rows => format!("\r\u{1b}[{rows}A"),
    }
}

/// How wide a painted line is: colours take no room.
fn bare_width(line: &str) -> usize {
    let mut parts = line.split("\u{1b}[");
    let first = parts.next().map_or(0, width);
    let after = |part: &str| part.split_once('m').map_or(0, |(_, text)| width(text));
    first + parts.map(after).sum::<usize>()
}

/// A run as it is drawn.
#[derive(Clone, Copy)]
pub(crate) struct Live<'r> {
    pub(crate) plan: &'r Plan,
    pub(crate) state: &'r State,
}

impl<'r> Live<'r> {
    /// The form in which the tree draws a run that was read from the store.
    pub(crate) fn of(view: &'r RunView) -> Live<'r> {
        Live {
            plan: &view.plan,
            state: &view.state,
        }
    }
}

/// A run and those below it, drawn once, with every step.
pub(crate) fn still(root: Live<'_>, below: &[Live<'_>], now: Time, paint: Paint) -> String {
    let columns = match term::is_live() {
        true => term::size().0,
        false => PIPED,
    };
    let lines = screen(&Screen {
        root,
        below,
        said: &[],
        now,
        frame: "•",
        columns,
        height: usize::MAX,
        paint,
    });
    let mut text = String::new();
    for line in lines {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
