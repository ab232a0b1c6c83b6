//! From the parser's events to the tree.
//!
//! Here: driving the YAML parser, its errors in our words, and spans. The
//! nodes themselves are put together in [`crate::build`]. Not here: recursion
//! over the input. The parser is pulled event by event (its own `load` calls
//! itself for every level) and is dropped at the first exceeded limit.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span as ParserSpan, Tag};

use crate::build::{BuildStep, ParseAborted, TreeBuilder};
use crate::codes;
use crate::offsets::Offsets;
use crate::problem::{Problem, Problems};
use crate::scalar::CoreTag;
use crate::source::{Source, Span};
use crate::tree::{MAX_DEPTH, Node};
use crate::words;

pub(crate) fn parse(source: &Source) -> Result<Node, Vec<Problem>> {
    let (root, problems) = parse_on(source);
    match root {
        Some(root) if problems.is_empty() => Ok(root),
        _ => Err(problems),
    }
}

/// The tree also where a key stands twice (the first one counts), so that the rest of the definition
/// can still be checked. With any other problem values are missing from it, and what follows from
/// that would be noise.
pub(crate) fn parse_on(source: &Source) -> (Option<Node>, Vec<Problem>) {
    let mut problems = Problems::new();
    let root = read(source, &mut problems).ok().flatten();
    if root.is_none() && !problems.has_errors() {
        problems
            .error(codes::SOURCE_EMPTY, Span::default(), "the file is empty")
            .help("write at least one `key: value`");
    }
    let problems = problems.into_vec();
    let whole = |problem: &Problem| problem.code == codes::SOURCE_DUPLICATE_KEY;
    (root.filter(|_| problems.iter().all(whole)), problems)
}

/// The root node, or nothing if there is no document. `ParseAborted` means that the
/// reason is among the problems.
fn read(source: &Source, problems: &mut Problems) -> Result<Option<Node>, ParseAborted> {
    refuse_control_characters(source, problems)?;
    let offsets = Offsets::new(source.text());
    let spans = Spans {
        source,
        offsets: &offsets,
    };
    let mut builder = TreeBuilder::new(source);
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
                            codes::SOURCE_MANY_DOCUMENTS,
                            spans.plain(at),
                            "a second document begins here; a definition is one document",
                        )
                        .help("put each definition into its own file, or remove the `---`");
                    return Err(ParseAborted);
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                empty_root = plain && text.is_empty() && tag.is_none() && builder.at_root();
                let span = spans.scalar(at, style, text.is_empty());
                let tag = core_tag(tag.as_deref(), span, problems)?;
                let step = BuildStep::Scalar {
                    text: text.as_ref().into(),
                    plain,
                    tag,
                };
                builder.feed(step, span, anchor, problems)?;
            }
            Event::SequenceStart(anchor, tag) => {
                let span = spans.plain(at);
                fits(tag.as_deref(), CoreTag::Seq, span, problems)?;
                builder.feed(BuildStep::OpenSeq, span, anchor, problems)?;
            }
            Event::MappingStart(anchor, tag) => {
                let span = spans.plain(at);
                fits(tag.as_deref(), CoreTag::Map, span, problems)?;
                builder.feed(BuildStep::OpenMap, span, anchor, problems)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                builder.feed(BuildStep::Close, spans.close(at), 0, problems)?;
            }
            Event::Alias(anchor) => {
                builder.feed(BuildStep::Alias(anchor), spans.plain(at), 0, problems)?;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
    }
    Ok(builder.into_root().filter(|_| !empty_root))
}

/// The parser takes NUL for the end of the text and would drop the rest
/// silently; the other control characters are not allowed in YAML.
fn refuse_control_characters(source: &Source, problems: &mut Problems) -> Result<(), ParseAborted> {
    let bad = |b: &u8| *b < 0x20 && !matches!(b, b'\t' | b'\n' | b'\r');
    let Some(at) = source.text().bytes().position(|b| bad(&b)) else {
        return Ok(());
    };
    let byte = source.text().as_bytes().get(at).copied().unwrap_or(0);
    problems
        .error(
            codes::SOURCE_BAD_CHARACTER,
            Span::new(at, at + 1),
            format!("the control character U+{byte:04X} is not allowed"),
        )
        .help(format!(
            "remove it, or write \"\\x{byte:02x}\" in double quotes"
        ));
    Err(ParseAborted)
}

fn syntax_error(error: &ScanError, spans: &Spans<'_>, problems: &mut Problems) -> ParseAborted {
    let span = spans.point(error.marker().index());
    let words = error.info();
    if words.contains("recursion limit") {
        problems
            .error(
                codes::SOURCE_TOO_DEEP,
                span,
                format!("nested more than {MAX_DEPTH} levels deep"),
            )
            .help("flatten the structure");
    } else if words.contains("unknown anchor") {
        problems
            .error(
                codes::SOURCE_BAD_ALIAS,
                span,
                "there is no anchor of this name above",
            )
            .help(
                "define it first with `&name`, or put the text in quotes if `*` is meant literally",
            );
    } else {
        let tab = is_tab(words).then(|| spans.tab_near(span)).flatten();
        problems
            .error(codes::SOURCE_SYNTAX, tab.unwrap_or(span), words)
            .maybe_help(syntax_help(words).map(str::to_owned));
    }
    ParseAborted
}

/// Whether the parser stumbled over a tab; "unprintable" is another matter.
fn is_tab(words: &str) -> bool {
    words.split(' ').any(|word| matches!(word, "tab" | "tabs"))
}

/// What to do about a syntax error, by a piece of the parser's message.
fn syntax_help(words: &str) -> Option<&'static str> {
    const INDENT: &str =
        "check the indentation: what belongs to one list or mapping begins in the same column";
    const HELP: [(&str, &str); 10] = [
        (
            "mapping values are not allowed",
            "check the indentation; put a text that holds `: ` in quotes",
        ),
        (
            "Unicode character escape",
            "write the character itself instead of a surrogate escape",
        ),
        (
            "unknown escape",
            "in double quotes write `\\\\` for a backslash, or use single quotes",
        ),
        (
            "simple key expect",
            "a key must be followed by `: ` on the same line",
        ),
        (
            "',' or '}'",
            "before this a `,` or the closing `}` is missing",
        ),
        (
            "',' or ']'",
            "before this a `,` or the closing `]` is missing",
        ),
        ("expected '-' indicator", INDENT),
        ("expected key", INDENT),
        (
            "expected <document start>",
            "remove this: nothing may follow the end of the definition",
        ),
        ("quoted scalar, found unexpected", "close the quote"),
    ];
    if is_tab(words) {
        return Some("indent with spaces");
    }
    let found = HELP.iter().find(|(piece, _)| words.contains(piece));
    found.map(|(_, help)| *help)
}

/// The core tag, or the end: a tag asks for a meaning we do not have.
fn core_tag(
    tag: Option<&Tag>,
    span: Span,
    problems: &mut Problems,
) -> Result<Option<CoreTag>, ParseAborted> {
    let Some(tag) = tag else { return Ok(None) };
    // A declared tag prefix can be megabytes long, and the tag used often;
    // stopping at the first one keeps that from costing their product.
    match CoreTag::from_name(&format!("{}{}", tag.handle, tag.suffix)) {
        Some(core) => Ok(Some(core)),
        None => {
            // The parser's own way to write a tag repeats the `!` of its short form.
            let name = words::quote(&format!("{}{}", tag.handle, tag.suffix));
            problems
                .error(
                    codes::SOURCE_BAD_TAG,
                    span,
                    format!("the tag {name} is not known"),
                )
                .help("remove it; only !!str, !!int, !!float, !!bool, !!null, !!map and !!seq are");
            Err(ParseAborted)
        }
    }
}

/// Checks the tag of a collection.
fn fits(
    tag: Option<&Tag>,
    kind: CoreTag,
    span: Span,
    problems: &mut Problems,
) -> Result<(), ParseAborted> {
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
                codes::SOURCE_BAD_TAG,
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

    /// The tab that the parser stumbled over: it names what comes after it, or the end of what
    /// came before.
    fn tab_near(&self, span: Span) -> Option<Span> {
        let (before, after) = self.source.text().split_at_checked(span.start)?;
        let start = match before.ends_with('\t') {
            true => span.start - 1,
            false => span.start + after.find('\t')?,
        };
        Some(Span::new(start, start + 1))
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
            ScalarStyle::Plain | ScalarStyle::Literal | ScalarStyle::Folded => all,
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
