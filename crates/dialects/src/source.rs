//! The text of one definition and positions in it.
//!
//! Here: reading bytes as text, size and encoding limits, byte offsets to
//! lines and columns. Not here: any idea of YAML, and no reading of files;
//! the caller brings the bytes and says what they are called.

use std::ops::Range;

use sha2::{Digest as _, Sha256};
use stepwell_kernel::keys::hex;

use crate::codes;
use crate::problem::{Problem, Severity};

/// The largest definition that is read at all.
pub const MAX_SOURCE_BYTES: usize = 4 * 1024 * 1024;

/// The byte order mark, with which some editors begin a file.
const MARK: char = '\u{feff}';

/// A range of bytes in a [`Source`], `start..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    /// The offset of the first byte, from 0.
    pub start: usize,
    /// The offset after the last byte.
    pub end: usize,
}

impl Span {
    /// The range `start..end`; an end before the start is taken as empty.
    #[must_use]
    pub fn new(start: usize, end: usize) -> Self {
        Span {
            start,
            end: end.max(start),
        }
    }

    /// The empty range at `offset`.
    #[must_use]
    pub fn at(offset: usize) -> Self {
        Span::new(offset, offset)
    }
}

/// One definition: its name for messages, its text, and where its lines begin.
#[derive(Debug, Clone)]
pub struct Source {
    name: String,
    text: String,
    /// Whether the bytes began with a byte order mark, which is no part of the text.
    had_mark: bool,
    /// Byte offset of each line's first character, ascending; never empty.
    line_starts: Vec<usize>,
}

impl Source {
    /// Reads `bytes` as UTF-8, dropping a byte order mark.
    ///
    /// # Errors
    /// `SOURCE_TOO_LARGE` above [`MAX_SOURCE_BYTES`], `SOURCE_NOT_UTF8` with
    /// the offset of the first bad byte. There is then no text to show, so
    /// render the problem against [`Source::unreadable`].
    pub fn from_bytes(name: impl Into<String>, bytes: &[u8]) -> Result<Source, Problem> {
        if bytes.len() > MAX_SOURCE_BYTES {
            return Err(refuse(
                codes::SOURCE_TOO_LARGE,
                // Callers stop reading above the limit, so its length is not known.
                format!("the file is longer than {MAX_SOURCE_BYTES} bytes"),
                "move large data out of the file and refer to it",
            ));
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                let plain = text.strip_prefix(MARK).unwrap_or(text);
                Ok(Source {
                    had_mark: plain.len() < text.len(),
                    ..Source::with_text(name.into(), plain.to_owned())
                })
            }
            Err(_) if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) => {
                Err(refuse(
                    codes::SOURCE_NOT_UTF8,
                    "the file is UTF-16, not UTF-8".to_owned(),
                    "save it as UTF-8, for example with `iconv -f UTF-16 -t UTF-8`",
                ))
            }
            Err(error) => Err(refuse(
                codes::SOURCE_NOT_UTF8,
                format!("byte {} is not valid UTF-8", error.valid_up_to()),
                "save the file as UTF-8",
            )),
        }
    }

    /// A stand-in without text, to render problems of a source that could not
    /// be read.
    #[must_use]
    pub fn unreadable(name: impl Into<String>) -> Source {
        Source::with_text(name.into(), String::new())
    }

    fn with_text(name: String, text: String) -> Source {
        // YAML counts a lone carriage return as a line break too, and lines
        // in messages must agree with what the parser saw as lines.
        let bytes = text.as_bytes();
        let mut line_starts = vec![0];
        for (at, byte) in bytes.iter().enumerate() {
            let breaks = match byte {
                b'\n' => true,
                b'\r' => bytes.get(at + 1) != Some(&b'\n'),
                _ => false,
            };
            if breaks {
                line_starts.push(at + 1);
            }
        }
        Source {
            name,
            text,
            had_mark: false,
            line_starts,
        }
    }

    /// The same with stars under these spans and wherever else their texts are, at the same places.
    pub(crate) fn masked(&self, spans: impl Iterator<Item = Span>) -> Source {
        let mut masked = self.clone();
        for span in spans {
            let span = Span::new(self.floor(span.start), self.floor(span.end));
            let secret = self.slice(span).trim_matches(['"', '\'']);
            masked.mask(span);
            // Shorter texts are in too many words.
            if secret.len() >= 4 {
                for (at, found) in self.text.match_indices(secret) {
                    masked.mask(Span::new(at, at + found.len()));
                }
            }
        }
        masked
    }

    fn mask(&mut self, span: Span) {
        let star = |c: char| match c {
            '\n' | '\r' | '"' | '\'' => c.to_string(),
            c => "*".repeat(c.len_utf8()),
        };
        let stars: String = self.slice(span).chars().map(star).collect();
        if stars.len() == span.end - span.start {
            self.text.replace_range(span.start..span.end, &stars);
        }
    }

    /// What messages call this source, usually a file name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text, without a byte order mark.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// SHA-256 of the bytes that the text was read from, in hex.
    #[must_use]
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        if self.had_mark {
            hash.update(MARK.to_string());
        }
        hash.update(&self.text);
        hex(&hash.finalize())
    }

    /// The text under `span`; empty if the span does not fit the text.
    #[must_use]
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.start..span.end).unwrap_or("")
    }

    /// Line and column of a byte offset, both from 1, the column in
    /// characters. Offsets past the end or inside a character are moved back.
    #[must_use]
    pub fn line_col(&self, offset: usize) -> (usize, usize) {
        let offset = self.floor(offset);
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let start = self.line_starts.get(line.saturating_sub(1)).copied();
        let before = self.text.get(start.unwrap_or(0)..offset).unwrap_or("");
        (line, before.chars().count() + 1)
    }

    /// The range of the line that holds `offset`, without its line break.
    #[must_use]
    pub fn line_span(&self, offset: usize) -> Span {
        let offset = self.floor(offset);
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let start = self.line_starts.get(line.saturating_sub(1)).copied();
        let start = start.unwrap_or(0);
        let end = self.line_starts.get(line).copied();
        let end = end.unwrap_or(self.text.len());
        let text = self.text.get(start..end).unwrap_or("");
        Span::new(start, start + text.trim_end_matches(['\n', '\r']).len())
    }

    /// Where a part of a text stands, given the place of the whole text. Quotes, escapes and the indentation of a block
    /// are in the source and not in the text, so the part is searched; what is not found has the place of the whole.
    pub(crate) fn part(&self, whole: Span, text: &str, range: Range<usize>) -> Span {
        let wanted = text.get(range.clone()).unwrap_or_default();
        let wanted = wanted.lines().next().unwrap_or_default().trim();
        let before = text.get(..range.start).unwrap_or_default();
        if wanted.is_empty() {
            return whole;
        }
        let earlier = before.matches(wanted).count();
        let mut found = self.slice(whole).match_indices(wanted);
        found.nth(earlier).map_or(whole, |(at, _)| {
            Span::new(whole.start + at, whole.start + at + wanted.len())
        })
    }

    /// The nearest character boundary at or before `offset`.
    pub(crate) fn floor(&self, offset: usize) -> usize {
        self.text.floor_char_boundary(offset.min(self.text.len()))
    }
}

fn refuse(code: &'static str, message: String, help: &str) -> Problem {
    let mut problem = Problem::new(code, Severity::Error, Span::default(), message);
    problem.help(help);
    problem
}
