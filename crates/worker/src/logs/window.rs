//! A part of a large log: lines around a place in it, and places where a text is. Places are bytes of the file, so that
//! nobody must read what comes before.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use aho_corasick::{AhoCorasick, Input};

use super::line::{LogLine, read};
use super::read::blocking;
use super::{Logs, writer};
use crate::step_log::Stream;

/// The longest line that a window grows to.
const LONGEST: usize = 16 << 20;
/// How much is read at a time when a text is searched.
const BLOCK: usize = 1 << 20;
/// How much one search reads at most: the answer comes soon, and says where the next search goes on.
const SEARCHED: u64 = 16 << 20;

/// A line and where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedLine {
    pub at_byte: u64,
    pub line: LogLine,
}

/// Lines of one execution that stand one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogWindow {
    pub lines: Vec<PlacedLine>,
    /// Where the first line begins.
    pub first: u64,
    /// Where the line after the last one begins.
    pub next: u64,
    /// How many bytes the log has now.
    pub size: u64,
}

/// Which lines are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The text that lines contain; upper and lower case are the same, and the empty text is in every line.
    pub text: String,
    /// Only lines of this stream.
    pub stream: Option<Stream>,
}

impl Wanted {
    /// What stands in the file in every line that is looked for, and in as few others as possible. Only lines that have it
    /// are parsed.
    fn written(&self) -> String {
        let row = |field: &str, value: &str| match serde_json::to_string(value) {
            Ok(value) => format!("\"{field}\":{value}"),
            Err(_) => String::new(),
        };
        match (&self.stream, self.text.is_empty()) {
            (Some(stream), true) => row("stream", stream.name()),
            _ => {
                // Without its quotes, with its escapes.
                let text = serde_json::to_string(&self.text).unwrap_or_default();
                text[1..text.len().max(2) - 1].to_owned()
            }
        }
    }
}

/// Lines that are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogHits {
    pub lines: Vec<PlacedLine>,
    /// Where the search goes on; equal to `size` if all was searched.
    pub next: u64,
    pub size: u64,
}

/// Where bytes of a log are read.
enum Bytes {
    File(File),
    Memory(Vec<u8>),
}

impl Bytes {
    fn size(&self) -> io::Result<u64> {
        match self {
            Bytes::File(file) => Ok(file.metadata()?.len()),
            Bytes::Memory(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// At most so many bytes from there on.
    fn read_at(&mut self, from: u64, most: usize) -> io::Result<Vec<u8>> {
        match self {
            Bytes::File(file) => {
                file.seek(SeekFrom::Start(from))?;
                let mut bytes = Vec::new();
                file.take(most as u64).read_to_end(&mut bytes)?;
                Ok(bytes)
            }
            Bytes::Memory(bytes) => {
                let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
                let until = from.saturating_add(most).min(bytes.len());
                Ok(bytes[from..until].to_vec())
            }
        }
    }

    /// Where the first line begins that is not cut at this place.
    fn line_start(&mut self, at: u64) -> io::Result<u64> {
        if at == 0 {
            return Ok(0);
        }
        let mut from = at - 1;
        loop {
            let bytes = self.read_at(from, BLOCK)?;
            match bytes.iter().position(|it| *it == b'\n') {
                Some(end) => return Ok(from + end as u64 + 1),
                None if bytes.is_empty() => return Ok(from),
                None => from += bytes.len() as u64,
            }
        }
    }
}

impl Logs {
    /// The lines of an execution from a place on, or its last ones; about so many bytes of them.
    pub async fn window(
        &self,
        run_id: &str,
        step_id: &str,
        execution: u32,
        from: Option<u64>,
        most: usize,
    ) -> io::Result<LogWindow> {
        let mut bytes = self.opened(run_id, step_id, execution).await?;
        blocking(move || window(&mut bytes, from, most.min(LONGEST))).await
    }

    /// The lines of an execution after a place that are looked for.
    pub async fn search(
        &self,
        run_id: &str,
        step_id: &str,
        execution: u32,
        wanted: Wanted,
        from: u64,
        most: usize,
    ) -> io::Result<LogHits> {
        let mut bytes = self.opened(run_id, step_id, execution).await?;
        blocking(move || search(&mut bytes, &wanted, from, most)).await
    }

    /// The log of an execution; an empty one if it said nothing.
    async fn opened(&self, run_id: &str, step_id: &str, execution: u32) -> io::Result<Bytes> {
        let path = self.file(run_id, step_id, execution);
        let logs = self.clone();
        match blocking(move || logs.open_file(&path)).await {
            Ok(file) => Ok(Bytes::File(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = writer::key(run_id, step_id, execution);
                Ok(Bytes::Memory(self.bytes(&key).await?))
            }
            Err(error) => Err(error),
        }
    }
}

fn window(bytes: &mut Bytes, from: Option<u64>, most: usize) -> io::Result<LogWindow> {
    let size = bytes.size()?;
    let at = from.unwrap_or(size.saturating_sub(most as u64)).min(size);
    let first = bytes.line_start(at)?;
    let mut most = most;
    let read = loop {
        let read = bytes.read_at(first, most)?;
        // A line that is longer than the window is read to its end.
        if read.len() < most || read.contains(&b'\n') || most >= LONGEST {
            break read;
        }
        most = (most * 2).min(LONGEST);
    };
    let whole = read
        .iter()
        .rposition(|it| *it == b'\n')
        .map_or(0, |it| it + 1);
    Ok(LogWindow {
        lines: placed(first, &read[..whole]).collect(),
        first,
        next: first + whole as u64,
        size,
    })
}

/// The lines of a block that begins at a place.
fn placed(first: u64, block: &[u8]) -> impl Iterator<Item = PlacedLine> {
    let mut next = first;
    block
        .split_inclusive(|it| *it == b'\n')
        .filter_map(move |line| {
            let at_byte = next;
            next += line.len() as u64;
            let line = read(line)?;
            Some(PlacedLine { at_byte, line })
        })
}

fn search(bytes: &mut Bytes, wanted: &Wanted, from: u64, most: usize) -> io::Result<LogHits> {
    let size = bytes.size()?;
    let finder = AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .build([wanted.written()])
        .map_err(io::Error::other)?;
    let text = wanted.text.to_lowercase();
    let mut hits = LogHits {
        lines: Vec::new(),
        next: bytes.line_start(from.min(size))?,
        size,
    };
    let until = hits.next.saturating_add(SEARCHED);
    let mut step = BLOCK;
    while hits.next < size.min(until) && hits.lines.len() < most {
        let block = bytes.read_at(hits.next, step)?;
        let Some(end) = block.iter().rposition(|it| *it == b'\n') else {
            if block.len() < step || step >= LONGEST {
                // A line that is being written, or one that nobody can show.
                hits.next = size;
                break;
            }
            step *= 2;
            continue;
        };
        step = BLOCK;
        let first = hits.next;
        hits.next = first + end as u64 + 1;
        for (at, raw) in lines_with(&finder, &block[..=end]) {
            let Some(line) = read(raw) else { continue };
            let at_byte = first + at as u64;
            let is_of_stream = wanted.stream.is_none_or(|it| it == line.stream);
            if is_of_stream && line.text.to_lowercase().contains(&text) {
                hits.lines.push(PlacedLine { at_byte, line });
            }
            if hits.lines.len() == most {
                hits.next = at_byte + raw.len() as u64;
                break;
            }
        }
    }
    Ok(hits)
}

/// The lines of a block that contain what is looked for, with the places where they begin. The lines between are not looked
/// at one by one.
fn lines_with<'a>(
    finder: &'a AhoCorasick,
    block: &'a [u8],
) -> impl Iterator<Item = (usize, &'a [u8])> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let found = finder.find(Input::new(block).range(from..))?;
        let before = &block[from..found.start()];
        let start = before.iter().rposition(|it| *it == b'\n');
        let start = start.map_or(from, |it| from + it + 1);
        let rest = &block[found.end()..];
        let end = rest.iter().position(|it| *it == b'\n');
        let end = end.map_or(block.len(), |it| found.end() + it + 1);
        from = end;
        Some((start, &block[start..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::super::line::write;
    use super::*;

    fn text(text: &str) -> Wanted {
        Wanted {
            text: text.to_owned(),
            stream: None,
        }
    }

    fn log(lines: usize) -> Bytes {
        let line = |n: usize| {
            write(
                "2026-01-01T00:00:00Z",
                "",
                Stream::Out,
                &format!("Line {n}"),
            )
        };
        Bytes::Memory((1..=lines).flat_map(line).collect())
    }

    fn texts(lines: &[PlacedLine]) -> Vec<&str> {
        lines.iter().map(|it| it.line.text.as_str()).collect()
    }

    #[test]
    fn windows_join_without_a_gap_and_never_cut_a_line() {
        let mut bytes = log(100);
        let mut seen = Vec::new();
        let mut at = 0;
        loop {
            let window = window(&mut bytes, Some(at), 500).unwrap();
            if window.lines.is_empty() {
                break;
            }
            seen.extend(window.lines.iter().map(|it| it.line.text.clone()));
            at = window.next;
        }
        assert_eq!(seen.len(), 100);
        assert_eq!(seen[99], "Line 100");
    }

    #[test]
    fn the_end_is_shown_if_no_place_is_given_and_a_place_inside_a_line_begins_after_it() {
        let mut bytes = log(100);
        let end = window(&mut bytes, None, 200).unwrap();
        assert_eq!(texts(&end.lines).last(), Some(&"Line 100"));
        assert_eq!(end.next, end.size);
        let inside = window(&mut bytes, Some(end.first + 1), 10_000).unwrap();
        assert_eq!(inside.lines.len(), end.lines.len() - 1);
    }

    #[test]
    fn a_line_longer_than_the_window_is_shown_whole() {
        let long = write("t", "", Stream::Err, &"x".repeat(5000));
        let window = window(&mut Bytes::Memory(long), Some(0), 100).unwrap();
        assert_eq!(window.lines[0].line.text.len(), 5000);
    }

    #[test]
    fn a_search_finds_every_line_with_the_text_and_goes_on_where_it_stopped() {
        let mut bytes = log(100);
        let first = search(&mut bytes, &text("LINE 1"), 0, 5).unwrap();
        assert_eq!(first.lines.len(), 5);
        let rest = search(&mut bytes, &text("LINE 1"), first.next, 100).unwrap();
        // 1, 10 to 19 and 100.
        assert_eq!(first.lines.len() + rest.lines.len(), 12);
        assert_eq!(rest.next, rest.size);
        assert!(
            search(&mut bytes, &text("no such"), 0, 5)
                .unwrap()
                .lines
                .is_empty()
        );
        // A name of a field of the file is no text of a line.
        assert!(
            search(&mut bytes, &text("stream"), 0, 5)
                .unwrap()
                .lines
                .is_empty()
        );
    }

    #[test]
    fn lines_of_one_stream_are_found_with_and_without_a_text() {
        let mut all = Vec::new();
        for n in 1..=50 {
            all.extend(write(
                "t",
                "",
                Stream::Out,
                &format!("\"stream\":\"err\" {n}"),
            ));
            if n % 10 == 0 {
                all.extend(write("t", "", Stream::Err, &format!("Bad {n}")));
            }
        }
        let mut bytes = Bytes::Memory(all);
        let wanted = |text: &str| Wanted {
            text: text.to_owned(),
            stream: Some(Stream::Err),
        };
        let found = search(&mut bytes, &wanted(""), 0, 100).unwrap();
        let bad = ["Bad 10", "Bad 20", "Bad 30", "Bad 40", "Bad 50"];
        assert_eq!(texts(&found.lines), bad);
        assert_eq!(found.next, found.size);
        let found = search(&mut bytes, &wanted("bad 3"), 0, 100).unwrap();
        assert_eq!(texts(&found.lines), ["Bad 30"]);
    }

    #[test]
    fn one_search_of_a_large_log_ends_soon_and_says_where_the_next_goes_on() {
        let line = write("t", "", Stream::Out, &"x".repeat(4000));
        let mut all = line.repeat((SEARCHED as usize * 2) / line.len());
        all.extend(write("t", "", Stream::Out, "the Needle"));
        let size = all.len() as u64;
        let mut bytes = Bytes::Memory(all);
        let (mut at, mut calls) = (0, 0);
        let found = loop {
            let hits = search(&mut bytes, &text("needle"), at, 10).unwrap();
            assert!(hits.next > at && hits.next - at <= SEARCHED + BLOCK as u64);
            (at, calls) = (hits.next, calls + 1);
            if hits.next == size {
                break hits.lines;
            }
            assert!(hits.lines.is_empty());
        };
        assert_eq!(texts(&found), ["the Needle"]);
        assert!(calls > 1);
    }
}
