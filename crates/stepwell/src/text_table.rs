//! Text tables for people: columns separated by two spaces, no borders, no wrapping.
//!
//! The layout is that of a pipe as well: a table has the same text on a terminal and in a file, and a
//! long cell is never cut or wrapped. JSON output never comes through here.

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};

use crate::term::{Paint, Tone};

/// Spaces between two columns.
const GAP: u16 = 2;

/// A table with a header line. Cell `toned` of each row has the colour of the row's tone.
pub(crate) fn render<Row>(
    head: &[&str],
    rows: impl IntoIterator<Item = (Row, Tone)>,
    toned: usize,
    paint: Paint,
) -> String
where
    Row: IntoIterator<Item = String>,
{
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(head.iter().map(|name| styled(name, Tone::Dim)));
    for (cells, tone) in rows {
        let cell = |(at, text): (usize, String)| match at == toned {
            true => styled(&text, tone),
            false => Cell::new(text),
        };
        table.add_row(cells.into_iter().enumerate().map(cell));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    table.style_text_only();
    match paint.0 {
        true => table.enforce_styling(),
        false => table.force_no_tty(),
    };
    format!("{}\n", table.trim_fmt())
}

fn styled(text: &str, tone: Tone) -> Cell {
    let cell = Cell::new(text);
    match tone {
        Tone::Good => cell.fg(Color::DarkGreen),
        Tone::Bad => cell.fg(Color::DarkRed),
        Tone::Warn => cell.fg(Color::DarkYellow),
        Tone::Busy => cell.fg(Color::DarkCyan),
        Tone::Dim => cell.add_attribute(Attribute::Dim),
        Tone::Strong => cell.add_attribute(Attribute::Bold),
        Tone::Plain => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(paint: Paint) -> String {
        let row = |cells: [&str; 3], tone| (cells.map(str::to_owned), tone);
        let rows = [
            row(["run_a", "FAILED", "日本"], Tone::Bad),
            row(["run_long", "OK", &"x".repeat(300)], Tone::Good),
        ];
        render(&["RUN", "STATUS", "WHY"], rows, 1, paint)
    }

    #[test]
    fn a_pipe_gets_plain_text_that_is_never_wrapped() {
        let wanted = format!(
            "RUN       STATUS  WHY\nrun_a     FAILED  日本\nrun_long  OK      {}\n",
            "x".repeat(300)
        );
        assert_eq!(table(Paint(false)), wanted);
    }

    #[test]
    fn a_terminal_gets_the_same_text_with_colours() {
        let painted = table(Paint(true));
        assert!(painted.contains("\u{1b}["), "{painted:?}");
        assert_eq!(painted.lines().count(), 3, "{painted:?}");
        for cell in ["run_a", "FAILED", "日本"] {
            assert!(painted.contains(cell), "{painted:?}");
        }
    }
}
