//! Terminal output: colours, column widths, tables and escaped text.
//!
//! Colours are used only on a terminal and only if `NO_COLOR` is not set. All output goes through
//! `io::Write` and never `println!`, so that a closed pipe is an error and not a panic.

use std::io::{self, IsTerminal, Write};

pub(crate) use stepwell_views::duration;
use unicode_width::UnicodeWidthChar;

/// The meaning of a text, which selects its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Success, shown in green.
    Good,
    /// Failure, shown in red.
    Bad,
    /// Warning, shown in yellow.
    Warn,
    /// In progress, shown in cyan.
    Busy,
    /// Less important text, shown dim.
    Dim,
    /// Important text, shown in bold.
    Strong,
    /// Text without a colour.
    Plain,
}

/// Adds colours to text if the flag is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paint(pub(crate) bool);

impl Paint {
    /// `text` in the colour of a tone.
    pub(crate) fn tone(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Warn => "33",
            Tone::Busy => "36",
            Tone::Dim => "2",
            Tone::Strong => "1",
            Tone::Plain => return text.to_owned(),
        };
        if self.0 {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

fn colors_wanted() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Colours for standard output.
pub(crate) fn stdout_paint() -> Paint {
    Paint(io::stdout().is_terminal() && colors_wanted())
}

/// Colours for standard error.
pub(crate) fn stderr_paint() -> Paint {
    Paint(io::stderr().is_terminal() && colors_wanted())
}

/// Whether standard output is a terminal that can redraw lines.
pub(crate) fn is_live() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Columns and rows of the terminal.
pub(crate) fn size() -> (usize, usize) {
    terminal_size::terminal_size().map_or((80, 24), |(width, height)| {
        (usize::from(width.0), usize::from(height.0))
    })
}

/// Writes text to standard output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Untrusted text on one line, with control and invisible characters escaped.
pub(crate) fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let hidden = c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        match c {
            '\n' | '\r' | '\t' => out.push(' '),
            _ if hidden => out.extend(c.escape_default()),
            _ => out.push(c),
        }
    }
    out
}

/// The width of a text in terminal columns.
pub(crate) fn width(text: &str) -> usize {
    text.chars().filter_map(char::width).sum()
}

/// `text` padded to `columns`.
pub(crate) fn pad(text: &str, columns: usize) -> String {
    let missing = columns.saturating_sub(width(text));
    format!("{text}{}", " ".repeat(missing))
}

/// `text` shortened to `columns`, with `…` at the end if it was shortened.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    if columns == 0 {
        return String::new();
    }
    let mut out = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// Time since the start: `00:00.000`, `1:02:03.000`.
pub(crate) fn stamp(millis: u64) -> String {
    let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
    let (seconds, milli) = (millis / 1000 % 60, millis % 1000);
    match hours {
        0 => format!("{minutes:02}:{seconds:02}.{milli:03}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}.{milli:03}"),
    }
}

/// A size for people: `812 B`, `64.0 KiB`, `1.5 GiB`.
pub(crate) fn bytes(number: u64) -> String {
    let mut size = number as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            return match unit {
                "B" => format!("{number} B"),
                unit => format!("{size:.1} {unit}"),
            };
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

/// `1 step`, `7 steps`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_since_the_start_read_well() {
        assert_eq!(stamp(0), "00:00.000");
        assert_eq!(stamp(3_723_004), "1:02:03.004");
    }

    #[test]
    fn hostile_text_stays_on_its_line() {
        assert_eq!(one_line("a\nb\u{1b}[2J"), "a b\\u{1b}[2J");
        assert_eq!(cut("reserve-stock", 8), "reserve…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("日本語", 0), "");
        assert_eq!(pad("日", 4), "日  ");
    }
}
