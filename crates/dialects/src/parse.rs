//! From the parser's events to the tree.
//!
//! Here: driving the YAML parser, its errors in our words, and spans. The
//! nodes themselves are put together in [`crate::build`]. Not here: recursion
//! over the input. The parser is pulled event by event (its own `load` calls
//! itself for every level) and is dropped at the first exceeded limit.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span as ParserSpan, Tag};

use crate::build::{Builder, Step, Stop};
use crate::offsets::Offsets;
use crate::problem::{Problem, Problems};
use crate::scalar::CoreTag;
use crate::source::{Source, Span};
use crate::tree::{MAX_DEPTH, Node};
use crate::words;

pub(crate) fn parse(source: &Source) -> Result<Node, Vec<Problem>> {
    let mut problems = Problems::new();
    let root = read(source, &mut problems).ok().flatten();
    match root {
        Some(root) if !problems.has_errors() => Ok(root),
        _ => {
            if !problems.has_errors() {
                problems
                    .error("SOURCE_EMPTY", Span::default(), "the definition is empty")
                    .help("write at least one `key: value`");
            }
            Err(problems.into_vec())
        }
    }
}

/// The root node, or nothing if there is no document. `Stop` means that the
/// reason is among the problems.
fn read(source: &Source, problems: &mut Problems) -> Result<Option<Node>, Stop> {
    refuse_control_characters(source, problems)?;
    let offsets = Offsets::new(source.text());
    let spans = Spans {
        source,
        offsets: &offsets,
    };
    let mut builder = Builder::new(source);
    let mut documents = 0;
    let mut empty_root = false;

    for event in Parser::new_from_str(&offsets.text) {
        let (event, at) = match event {
            Ok(event) => event,
            Err(error) => return Err(syntax_error(&error, &spans, problems)),
        };
        match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    problems
                        .error(
                            "SOURCE_MANY_DOCUMENTS",
                            spans.plain(at),
                            "a second document begins here; a definition is one document",
                        )
                        .help("put each definition into its own file, or remove the `---`");
                    return Err(Stop);
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                empty_root = plain && text.is_empty() && tag.is_none() && builder.at_root();
                let span = spans.scalar(at, style, text.is_empty());
                let tag = core_tag(tag.as_deref(), span, problems)?;
                let step = Step::Scalar {
                    text: text.as_ref().into(),
                    plain,
                    tag,
                };
                builder.feed(step, span, anchor, problems)?;
            }
            Event::SequenceStart(anchor, tag) => {
                let span = spans.plain(at);
                fits(tag.as_deref(), CoreTag::Seq, span, problems)?;
                builder.feed(Step::OpenSeq, span, anchor, problems)?;
            }
            Event::MappingStart(anchor, tag) => {
                let span = spans.plain(at);
                fits(tag.as_deref(), CoreTag::Map, span, problems)?;
                builder.feed(Step::OpenMap, span, anchor, problems)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                builder.feed(Step::Close, spans.close(at), 0, problems)?;
            }
            Event::Alias(anchor) => {
                builder.feed(Step::Alias(anchor), spans.plain(at), 0, problems)?;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
    }
    Ok(builder.into_root().filter(|_| !empty_root))
}

/// The parser takes NUL for the end of the text and would drop the rest
/// without a word; the other control characters are not allowed in YAML.
fn refuse_control_characters(source: &Source, problems: &mut Problems) -> Result<(), Stop> {
    let bad = |b: &u8| *b < 0x20 && !matches!(b, b'\t' | b'\n' | b'\r');
    let Some(at) = source.text().bytes().position(|b| bad(&b)) else {
        return Ok(());
    };
    let byte = source.text().as_bytes().get(at).copied().unwrap_or(0);
    problems
        .error(
            "SOURCE_BAD_CHARACTER",
            Span::new(at, at + 1),
            format!("the control character U+{byte:04X} is not allowed"),
        )
        .help(format!(
            "remove it, or write \"\\x{byte:02x}\" in double quotes"
        ));
    Err(Stop)
}

fn syntax_error(error: &ScanError, spans: &Spans<'_>, problems: &mut Problems) -> Stop {
    let span = spans.point(error.marker().index());
    let words = error.info();
    if words.contains("recursion limit") {
        problems
            .error(
                "SOURCE_TOO_DEEP",
                span,
                format!("nested more than {MAX_DEPTH} levels deep"),
            )
            .help("flatten the structure");
    } else if words.contains("unknown anchor") {
        problems
            .error(
                "SOURCE_BAD_ALIAS",
                span,
                "there is no anchor of this name above",
            )
            .help(
                "define it first with `&name`, or put the text in quotes if `*` is meant literally",
            );
    } else {
        let help = if words.contains("tab") {
            Some("indent with spaces")
        } else if words.contains("mapping values are not allowed") {
            Some("check the indentation; put a text that holds `: ` in quotes")
        } else if words.contains("Unicode character escape") {
            Some("write the character itself instead of a surrogate escape")
        } else if words.contains("unknown escape") {
            Some("in double quotes write `\\\\` for a backslash, or use single quotes")
        } else if words.contains("simple key expect") {
            Some("a key must be followed by `: ` on the same line")
        } else {
            None
        };
        problems
            .error("SOURCE_SYNTAX", span, words)
            .maybe_help(help.map(str::to_owned));
    }
    Stop
}

/// The core tag, or the end: a tag asks for a meaning we do not have.
fn core_tag(
    tag: Option<&Tag>,
    span: Span,
    problems: &mut Problems,
) -> Result<Option<CoreTag>, Stop> {
    let Some(tag) = tag else { return Ok(None) };
    // A declared tag prefix can be megabytes long, and the tag used often;
    // stopping at the first one keeps that from costing their product.
    match CoreTag::from_name(&format!("{}{}", tag.handle, tag.suffix)) {
        Some(core) => Ok(Some(core)),
        None => {
            let name = words::quote(&tag.to_string());
            problems
                .error(
                    "SOURCE_BAD_TAG",
                    span,
                    format!("the tag {name} is not known"),
                )
                .help("remove it; only !!str, !!int, !!float, !!bool, !!null, !!map and !!seq are");
            Err(Stop)
        }
    }
}

/// Checks the tag of a collection.
fn fits(tag: Option<&Tag>, kind: CoreTag, span: Span, problems: &mut Problems) -> Result<(), Stop> {
    let non_specific = tag.is_some_and(|tag| tag.handle.is_empty() && tag.suffix == "!");
    let tag = core_tag(tag, span, problems)?;
    if tag.is_some_and(|tag| tag != kind) && !non_specific {
        let found = if kind == CoreTag::Map {
            "a mapping"
        } else {
            "a list"
        };
        problems
            .error(
                "SOURCE_BAD_TAG",
                span,
                format!("this tag does not fit {found}"),
            )
            .help("remove the tag");
    }
    Ok(())
}

/// The parser's spans in bytes, without what it includes too much.
struct Spans<'a> {
    source: &'a Source,
    offsets: &'a Offsets<'a>,
}

impl Spans<'_> {
    fn plain(&self, span: ParserSpan) -> Span {
        let start = self.offsets.byte(span.start.index());
        let end = self.offsets.byte(span.end.index());
        let text = self.source.slice(Span::new(start, end));
        Span::new(start, start + text.trim_end().len())
    }

    /// The character at an index, or nothing at the end.
    fn point(&self, index: usize) -> Span {
        let start = self.offsets.byte(index);
        let rest = self.source.text().get(start..).unwrap_or("");
        let width = match rest.chars().next() {
            None | Some('\n' | '\r') => 0,
            Some(c) => c.len_utf8(),
        };
        Span::new(start, start + width)
    }

    /// Flow collections end with a bracket, whose token reaches to the next
    /// word or over a comment; block collections end where nothing is.
    fn close(&self, span: ParserSpan) -> Span {
        let point = self.point(span.start.index());
        if !span.is_empty() && matches!(self.source.slice(point), "]" | "}") {
            point
        } else {
            Span::default()
        }
    }

    fn scalar(&self, span: ParserSpan, style: ScalarStyle, empty: bool) -> Span {
        let all = self.plain(span);
        match style {
            ScalarStyle::Plain if empty => Span::at(all.start),
            ScalarStyle::SingleQuoted => self.quoted(all, '\''),
            ScalarStyle::DoubleQuoted => self.quoted(all, '"'),
            _ => all,
        }
    }

    /// The span up to the closing quote: the token includes what follows on
    /// the line, a comment for example.
    fn quoted(&self, all: Span, quote: char) -> Span {
        let mut chars = self.source.slice(all).char_indices().peekable();
        let opened = chars.find(|(_, c)| *c == quote);
        if opened.is_none() {
            return all;
        }
        while let Some((at, c)) = chars.next() {
            if c == '\\' && quote == '"' {
                chars.next();
            } else if c == quote {
                let doubled = quote == '\'' && chars.peek().is_some_and(|(_, c)| *c == quote);
                if !doubled {
                    return Span::new(all.start, all.start + at + 1);
                }
                chars.next();
            }
        }
        all
    }
}
