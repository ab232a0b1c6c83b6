//! Why a template could not be parsed or evaluated, said to the person who wrote it.
//!
//! The engine's errors become [`TemplateError`]s here and nowhere else; deciding that
//! something is an error happens where it is found.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use minijinja::{Error, ErrorKind};

use super::scan::Scanned;
use super::{FUEL, MAX_SOURCE, value};

/// What went wrong with a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TemplateErrorKind {
    /// The source does not parse, or uses a statement, filter or test that does not exist.
    Syntax,
    /// The template uses a value that is not defined.
    Undefined,
    /// A filter, test or operator got a value of the wrong type.
    Type,
    /// The evaluation took too many steps.
    Fuel,
    /// The source, the result, or an intermediate value is too large.
    TooLarge,
    /// The template engine failed for a reason that has no kind of its own; `message` has the reason.
    Other,
}

/// Why a template could not be parsed or evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct TemplateError {
    pub kind: TemplateErrorKind,
    /// What is wrong, and where possible what to do about it.
    pub message: String,
    /// The line in the source, from 1; absent if the engine does not know the place.
    pub line: Option<usize>,
    /// The byte range of the fault in the source; absent if the engine does not know the place.
    pub range: Option<Range<usize>>,
    /// The beginning of the template, short enough for one line of a message.
    pub excerpt: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = match self.kind {
            TemplateErrorKind::Syntax => "does not parse",
            TemplateErrorKind::Undefined => "needs a value that is not there",
            TemplateErrorKind::Type => "mixes kinds of values",
            TemplateErrorKind::Fuel => "takes too many steps; loop over less or move it to a step",
            TemplateErrorKind::TooLarge => "makes too much; move the work to a step",
            TemplateErrorKind::Other => "failed",
        };
        write!(f, "template `{}` {advice}: {}", self.excerpt, self.message)?;
        match self.line {
            Some(line) if line > 1 => write!(f, " (line {line})"),
            _ => Ok(()),
        }
    }
}

impl TemplateError {
    /// The source is longer than `MAX_SOURCE`.
    pub(super) fn long_source(source: &str) -> TemplateError {
        TemplateError {
            kind: TemplateErrorKind::TooLarge,
            message: format!("the source is over {} KiB", MAX_SOURCE / 1024),
            line: None,
            range: None,
            excerpt: excerpt(source.get(..256).unwrap_or_default()),
        }
    }

    /// The source is wrong at these bytes.
    pub(super) fn syntax(source: &str, range: Range<usize>, message: String) -> TemplateError {
        TemplateError {
            kind: TemplateErrorKind::Syntax,
            message,
            line: Some(line_of(source, range.start)),
            range: Some(range),
            excerpt: excerpt(source),
        }
    }

    /// Translates an error of the template engine. Positions become positions in the source as its author wrote it.
    pub(super) fn of_engine(error: &Error, source: &str, scanned: &Scanned) -> TemplateError {
        let (kind, message) = classify(error);
        let range = error.range().map(|range| locate(source, scanned, range));
        TemplateError {
            kind,
            message: message.into_owned(),
            line: match &range {
                Some(range) => Some(line_of(source, range.start)),
                None => error.line(),
            },
            range,
            excerpt: excerpt(source),
        }
    }
}

fn classify(error: &Error) -> (TemplateErrorKind, Cow<'_, str>) {
    use ErrorKind as E;
    let detail = match error.detail() {
        Some(detail) => Cow::Borrowed(detail),
        None => Cow::Owned(error.kind().to_string()),
    };
    if let Some(message) = detail.strip_prefix(value::TOO_LARGE) {
        return (TemplateErrorKind::TooLarge, Cow::Owned(message.to_owned()));
    }
    match error.kind() {
        E::SyntaxError | E::UnknownFilter | E::UnknownTest | E::UnknownFunction => {
            (TemplateErrorKind::Syntax, detail)
        }
        E::UndefinedError => (TemplateErrorKind::Undefined, detail),
        // The engine only says so in words.
        E::InvalidOperation | E::UnknownMethod if detail.contains("undefined") => {
            (TemplateErrorKind::Undefined, detail)
        }
        E::InvalidOperation
        | E::UnknownMethod
        | E::NonPrimitive
        | E::NonKey
        | E::CannotUnpack
        | E::MissingArgument
        | E::TooManyArguments => (TemplateErrorKind::Type, detail),
        E::OutOfFuel => (
            TemplateErrorKind::Fuel,
            Cow::Owned(format!("more than {FUEL} instructions")),
        ),
        _ => (TemplateErrorKind::Other, detail),
    }
}

/// Where a range of the guarded text lies in the source.
fn locate(source: &str, scanned: &Scanned, guarded: Range<usize>) -> Range<usize> {
    let from = scanned.original_offset(guarded.start).min(source.len());
    let to = scanned.original_offset(guarded.end);
    let to = to.clamp(from, source.len());
    // The error came from a guard, which has no place of its own: point at its tag.
    if from == to {
        tag_around(source, from)
    } else {
        from..to
    }
}

fn tag_around(source: &str, at: usize) -> Range<usize> {
    let before = source.get(..at).unwrap_or_default();
    let open = before.rfind("{{").max(before.rfind("{%")).unwrap_or(at);
    let after = source.get(at..).unwrap_or_default();
    let close = [after.find("}}"), after.find("%}")];
    let close = close
        .into_iter()
        .flatten()
        .min()
        .map_or(at, |end| at + end + 2);
    open..close
}

fn line_of(source: &str, offset: usize) -> usize {
    let before = source.as_bytes().iter().take(offset);
    1 + before.filter(|b| **b == b'\n').count()
}

fn excerpt(source: &str) -> String {
    let line = source.trim().replace(['\n', '\r'], " ");
    match line.char_indices().nth(119) {
        Some((cut, _)) if line[cut..].chars().nth(1).is_some() => format!("{}…", &line[..cut]),
        _ => line,
    }
}
