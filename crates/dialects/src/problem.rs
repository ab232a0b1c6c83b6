//! What is wrong with a definition, and how it is shown.
//!
//! Here: the problem itself, the collector every layer writes into, and the
//! two renderings (text for people, JSON for programs). Not here: deciding
//! what is wrong. Codes are stable names that tests and users rely on;
//! messages may be reworded.

use std::collections::HashSet;
use std::ops::Range;

use annotate_snippets::{
    AnnotationKind, Group, Level, Origin, Renderer, Snippet, normalize_untrusted_str,
};
use serde_json::{Value as Json, json};

use crate::codes;
use crate::secret_literals;
use crate::source::{Source, Span};

/// How many problems are kept; the rest are only counted.
pub const MAX_PROBLEMS: usize = 100;

/// The longest piece of a source line that is shown, in characters.
const SNIPPET_CHARS: usize = 100;

/// How much of that piece stands before the problem when a line is cut.
const SNIPPET_LEAD: usize = 30;

/// The longest message or help text that is shown, in characters.
const MESSAGE_CHARS: usize = 2_000;

/// Whether a problem stops the definition from being used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The definition is refused.
    Error,
    /// The definition is used, but probably does not mean what it says.
    Warning,
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// A stable name, such as `FIELD_MISSING`.
    pub code: &'static str,
    pub severity: Severity,
    /// The bytes of the source that the problem is about.
    pub span: Span,
    /// What is wrong, in one sentence without a final stop.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    /// The part of the text below the span that the problem is about. `load` finds its place and takes it out.
    inside: Option<Box<InsideText>>,
}

/// A part of a text: what the text is once it is read, and which bytes of it are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InsideText {
    text: String,
    range: Range<usize>,
}

impl Problem {
    #[must_use]
    pub fn new(
        code: &'static str,
        severity: Severity,
        span: Span,
        message: impl Into<String>,
    ) -> Problem {
        Problem {
            code,
            severity,
            span,
            message: message.into(),
            help: None,
            inside: None,
        }
    }

    /// Says which part of the text below the span is meant.
    pub(crate) fn inside(&mut self, text: &str, range: Range<usize>) -> &mut Self {
        self.inside = Some(Box::new(InsideText {
            text: text.to_owned(),
            range,
        }));
        self
    }

    /// Moves the span to the part of its text that is meant.
    pub(crate) fn locate(&mut self, source: &Source) {
        if let Some(inside) = self.inside.take() {
            self.span = source.part(self.span, &inside.text, inside.range);
        }
    }

    /// Says what the author must do.
    pub fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }

    /// Says what the author must do, if `help` is present; otherwise the earlier text stays.
    pub fn maybe_help(&mut self, help: Option<String>) -> &mut Self {
        self.help = help.or(self.help.take());
        self
    }
}

/// Collects problems while a definition is read.
///
/// ```
/// use stepwell_dialects::{Problems, Span};
/// let mut problems = Problems::new();
/// problems
///     .error("FIELD_VALUE", Span::new(4, 9), "`retries` is too large")
///     .help("write at most 10");
/// assert!(problems.has_errors());
/// assert_eq!(problems.into_vec().len(), 1);
/// ```
#[derive(Debug, Default)]
pub struct Problems {
    kept: Vec<Problem>,
    dropped: usize,
    errors: usize,
    /// Takes the problems after the limit, so that callers need not know the limit.
    overflow: Option<Problem>,
    /// Misspelt keys: the mapping, and the field that was meant.
    slips: Vec<(Span, &'static str)>,
    /// Missing fields: which of the kept, the mapping, and the names that would do.
    owed: Vec<(usize, Span, Vec<&'static str>)>,
}

impl Problems {
    #[must_use]
    pub fn new() -> Self {
        Problems::default()
    }

    /// Adds an error; the result takes a [`Problem::help`].
    pub fn error(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Problem {
        self.push(Problem::new(code, Severity::Error, span, message))
    }

    /// Adds a warning; the result takes a [`Problem::help`].
    pub fn warn(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Problem {
        self.push(Problem::new(code, Severity::Warning, span, message))
    }

    /// Adds a finished problem.
    pub fn push(&mut self, problem: Problem) -> &mut Problem {
        if problem.severity == Severity::Error {
            self.errors += 1;
        }
        if self.is_full() {
            self.dropped += 1;
            return self.overflow.insert(problem);
        }
        let at = self.kept.len();
        self.kept.push(problem);
        &mut self.kept[at]
    }

    /// Remembers that a key of `mapping` is a slip of `meant`, which was reported as an error.
    pub(crate) fn slipped(&mut self, mapping: Span, meant: &'static str) {
        if !self.is_full() {
            self.slips.push((mapping, meant));
        }
    }

    /// Adds an error about a field that `mapping` lacks. It is left out if the field is there under
    /// a misspelt name: that is one mistake, and the message of the misspelling has the solution.
    pub(crate) fn missing(
        &mut self,
        code: &'static str,
        mapping: Span,
        names: &[&'static str],
        message: impl Into<String>,
    ) -> &mut Problem {
        if !self.is_full() {
            self.owed.push((self.kept.len(), mapping, names.to_vec()));
        }
        self.error(code, mapping, message)
    }

    /// What is kept, without missing fields that are there under a misspelt name.
    fn without_follow_ups(&mut self) -> Vec<Problem> {
        let slips = &self.slips;
        let is_slip = |mapping: Span, names: &[&'static str]| {
            let same =
                |(place, meant): &(Span, &'static str)| *place == mapping && names.contains(meant);
            slips.iter().any(same)
        };
        let follow_ups: HashSet<usize> = self
            .owed
            .iter()
            .filter(|(_, mapping, names)| is_slip(*mapping, names))
            .map(|(at, ..)| *at)
            .collect();
        let kept = std::mem::take(&mut self.kept).into_iter().enumerate();
        kept.filter(|(at, _)| !follow_ups.contains(at))
            .map(|(_, problem)| problem)
            .collect()
    }

    /// Whether a problem with this code was reported.
    pub(crate) fn has(&self, code: &str) -> bool {
        self.kept.iter().any(|it| it.code == code)
    }

    /// Whether anything was an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Whether nothing was reported at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether further problems are only counted; costly checks may stop.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.kept.len() >= MAX_PROBLEMS
    }

    /// The problems as [`Problems::into_vec`] has them, each at the very part of a text that it is about.
    #[must_use]
    pub(crate) fn into_located(mut self, source: &Source) -> Vec<Problem> {
        self.kept.iter_mut().for_each(|it| it.locate(source));
        self.hide_secrets(source);
        self.into_vec()
    }

    /// Takes the secrets that were found out of what is said about other things.
    fn hide_secrets(&mut self, source: &Source) {
        let about = self.kept.iter();
        let about = about.filter(|it| codes::ABOUT_SECRETS.contains(&it.code));
        let secrets: Vec<String> = about
            .map(|it| source.slice(it.span).trim_matches(['"', '\'']).to_owned())
            .filter(|it| it.len() >= secret_literals::HIDDEN_LENGTH)
            .collect();
        for problem in &mut self.kept {
            for secret in &secrets {
                let hide = |text: &mut String| *text = text.replace(secret, secret_literals::MASK);
                hide(&mut problem.message);
                problem.help.iter_mut().for_each(hide);
            }
        }
    }

    /// The problems in source order, each once; if some were only counted, a
    /// last `TOO_MANY_PROBLEMS` says how many.
    #[must_use]
    pub fn into_vec(mut self) -> Vec<Problem> {
        let mut problems = self.without_follow_ups();
        problems.sort_by(|a, b| {
            let key = |it: &Problem| (it.span, it.severity, it.code);
            (key(a), &a.message).cmp(&(key(b), &b.message))
        });
        // A node behind an alias is read once per alias, and is wrong each time.
        problems.dedup();
        if self.dropped > 0 {
            let span = problems.last().map_or(Span::default(), |last| last.span);
            let severity = match self.errors > 0 {
                true => Severity::Error,
                false => Severity::Warning,
            };
            // Readers may stop looking once it is full.
            let message = format!("and at least {} more", self.dropped);
            let at = Span::at(span.start);
            let mut more = Problem::new(codes::TOO_MANY_PROBLEMS, severity, at, message);
            more.help("fix these first");
            problems.push(more);
        }
        problems
    }
}

impl Extend<Problem> for Problems {
    fn extend<T: IntoIterator<Item = Problem>>(&mut self, problems: T) {
        for problem in problems {
            self.push(problem);
        }
    }
}

/// The problems as text for a terminal or a log, separated by empty lines.
#[must_use]
pub fn render(source: &Source, problems: &[Problem], color: bool) -> String {
    let renderer = if color {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    // What is said about a secret does not show it, nor does what is said about its line.
    let is_secret = |it: &&Problem| codes::ABOUT_SECRETS.contains(&it.code);
    let mut secrets: Vec<Span> = problems
        .iter()
        .filter(is_secret)
        .map(|it| it.span)
        .collect();
    // Nobody has looked for secrets in a file that cannot be read as a definition.
    let is_unread =
        |it: &Problem| it.code.starts_with("SOURCE_") || it.code.starts_with("LANGUAGE_");
    if problems.iter().any(is_unread) {
        secrets.extend(secret_literals::on_lines(source.text()));
    }
    let source = &source.masked(secrets.into_iter());
    let mut out = String::new();
    for problem in problems {
        if !out.is_empty() {
            out.push('\n');
        }
        for line in renderer.render(&[group(source, problem)]).lines() {
            if !is_gap(line) {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

/// The renderer's line for another file, which it draws without a name where a cut line's position
/// stands above it already.
fn is_gap(line: &str) -> bool {
    let mut pieces = line.split('\u{1b}');
    let first = pieces.next().unwrap_or_default();
    let rest = pieces.map(|piece| piece.split_once('m').map_or(piece, |(_, text)| text));
    let text: String = std::iter::once(first).chain(rest).collect();
    text.trim() == ":::"
}

fn group<'a>(source: &'a Source, problem: &'a Problem) -> Group<'a> {
    let level = match problem.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level
        .primary_title(clean(&problem.message))
        .id(problem.code);
    let (line, column) = source.line_col(problem.span.start);
    let name = clean(source.name());
    let mut group = if source.text().is_empty() {
        title.element(Origin::path(name))
    } else {
        let piece = Piece::of(source, problem.span);
        let mark = AnnotationKind::Primary.span(piece.start..piece.end);
        let snippet = Snippet::source(piece.text)
            .line_start(line)
            .annotation(mark);
        if piece.cut_before {
            // A snippet counts its columns from where it is cut, so it must
            // not name the position itself.
            let origin = Origin::path(name).line(line).char_column(column);
            title.element(origin).element(snippet)
        } else {
            title.element(snippet.path(name))
        }
    };
    if let Some(help) = &problem.help {
        group = group.element(Level::HELP.message(clean(help)));
    }
    group
}

/// The part of a span's first line that is shown, and where the span is in it.
///
/// Only one line: a mapping's span runs over all its lines, and underlining
/// them all hides the message.
struct Piece {
    text: String,
    start: usize,
    end: usize,
    cut_before: bool,
}

impl Piece {
    fn of(source: &Source, span: Span) -> Piece {
        let line = source.line_span(span.start);
        let start = source.floor(span.start).clamp(line.start, line.end);
        let end = source.floor(span.end).clamp(start, line.end);
        let before = source.slice(Span::new(line.start, start));
        let marked = source.slice(Span::new(start, end));
        let after = source.slice(Span::new(end, line.end));

        let count = |text: &str| text.chars().count();
        if count(before) + count(marked) + count(after) <= SNIPPET_CHARS {
            return Piece {
                text: format!("{before}{marked}{after}"),
                start: before.len(),
                end: before.len() + marked.len(),
                cut_before: false,
            };
        }
        let skip = count(before).saturating_sub(SNIPPET_LEAD);
        let dots = if skip > 0 { "…" } else { "" };
        let mut text = String::from(dots);
        text.extend(before.chars().skip(skip));
        let start = text.len();
        let room = SNIPPET_CHARS - SNIPPET_LEAD;
        text.extend(marked.chars().take(room));
        let end = text.len();
        let room = room.saturating_sub(count(marked));
        text.extend(after.chars().take(room));
        if text.len() - start < marked.len() + after.len() {
            text.push('…');
        }
        Piece {
            text,
            start,
            end,
            cut_before: skip > 0,
        }
    }
}

/// Text that may hold pieces of the input: shortened and made harmless.
fn clean(text: &str) -> String {
    let mut short: String = text.chars().take(MESSAGE_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    normalize_untrusted_str(&short)
}

/// The problems as JSON, for programs.
#[must_use]
pub fn to_json(source: &Source, problems: &[Problem]) -> Json {
    problems
        .iter()
        .map(|problem| {
            let (line, column) = source.line_col(problem.span.start);
            let (end_line, end_column) = source.line_col(problem.span.end);
            json!({
                "code": problem.code,
                "severity": match problem.severity {
                    Severity::Error => "error",
                    Severity::Warning => "warning",
                },
                "file": source.name(),
                "line": line,
                "column": column,
                "endLine": end_line,
                "endColumn": end_column,
                "message": problem.message,
                "help": problem.help,
            })
        })
        .collect()
}
