//! Reads a template's source before the Jinja engine does.
//!
//! Three things are decided here from tokens alone: whether the source is safe to hand to
//! a recursive parser (nesting, chains, statements), which names it reads from its scope,
//! and where guards must be spliced in.
//!
//! No evaluation lives here, and nothing here may fail on any input other than by
//! returning a [`ScanError`].

mod guards;
mod reads;
mod statement;
mod tags;
mod token;

use std::collections::BTreeSet;
use std::ops::Range;

use guards::Guards;
pub(super) use reads::FUNCTIONS;
pub use reads::ReadSite;
use reads::{collect_calls, collect_reads, plain_path};
use statement::{StatementBlock, scan_statement};
pub use tags::{OutputTag, output_tags};
use token::{ExprToken, TemplateTag, TokenKind};

/// Brackets inside brackets; the engine's own parser gives up at 150.
const MAX_NESTING: usize = 48;
/// Operators, filters and attribute steps that may pile up above one operand. The
/// engine recurses once for each when it compiles or drops the expression.
const MAX_CHAIN: usize = 160;

const OPERATOR_WORDS: [&str; 7] = ["and", "or", "not", "in", "is", "if", "else"];

#[derive(Debug)]
pub(super) struct ScanError {
    pub(super) message: String,
    pub(super) range: Range<usize>,
}

fn fail<T>(message: impl Into<String>, range: Range<usize>) -> Result<T, ScanError> {
    Err(ScanError {
        message: message.into(),
        range,
    })
}

/// Something that a template calls by its name.
#[derive(Debug)]
pub(super) struct NamedCall {
    pub(super) name: String,
    /// Where the name stands in the source.
    pub(super) at: usize,
    pub(super) kind: CallKind,
}

/// What a template calls, by the way it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// `x | name`
    Filter,
    /// `x is name`
    Test,
    /// `name(…)`
    Function,
    /// `x.name(…)`
    Method,
}

/// What the scan found out.
#[derive(Debug, Default)]
pub(super) struct Scanned {
    /// The byte range of the expression if the template is one `{{ … }}` and nothing else.
    pub(super) whole: Option<Range<usize>>,
    /// Guards to splice in, in order of their offset in the original source.
    inserts: Vec<(usize, String)>,
    /// What is read from the scope, and where.
    pub(super) sites: Vec<ReadSite>,
    /// The path, if the template is one plain dotted path.
    pub(super) path: Option<Vec<String>>,
    /// The filters, tests, functions and methods it names.
    pub(super) calls: Vec<NamedCall>,
    /// Whether the source has any tag at all.
    pub(super) has_tags: bool,
}

impl Scanned {
    /// The dotted paths read from the scope.
    pub(super) fn reads(&self) -> BTreeSet<String> {
        self.sites.iter().map(|site| site.path.clone()).collect()
    }

    /// The paths that must have a value, because the template says nothing for the other case.
    pub(super) fn needs(&self) -> BTreeSet<&str> {
        let is_tested = |path: &str| {
            let is_below = |site: &ReadSite| {
                let rest = path.strip_prefix(site.path.as_str());
                site.tested && rest.is_some_and(|it| it.is_empty() || it.starts_with('.'))
            };
            self.sites.iter().any(is_below)
        };
        let certain = self.sites.iter().filter(|site| !site.may_be_skipped);
        let paths = certain.map(|site| site.path.as_str());
        paths.filter(|path| !is_tested(path)).collect()
    }

    /// The text for the engine: the expression, or the whole source if it is more than
    /// one, with the guards spliced in.
    pub(super) fn guarded(&self, source: &str) -> String {
        let within = self.whole.clone().unwrap_or(0..source.len());
        let mut out = String::with_capacity(within.len() + self.inserts.len() * 8);
        let mut at = within.start;
        for (offset, text) in &self.inserts {
            if *offset < at || *offset > within.end {
                continue;
            }
            out.push_str(source.get(at..*offset).unwrap_or_default());
            out.push_str(text);
            at = *offset;
        }
        out.push_str(source.get(at..within.end).unwrap_or_default());
        out
    }

    /// Where an offset into the guarded text lies in the source.
    pub(super) fn original_offset(&self, guarded: usize) -> usize {
        let start = self.whole.as_ref().map_or(0, |whole| whole.start);
        let mut shift = 0;
        for (offset, text) in &self.inserts {
            if *offset < start {
                continue;
            }
            let here = offset - start + shift;
            if guarded <= here {
                break;
            }
            if guarded < here + text.len() {
                return *offset;
            }
            shift += text.len();
        }
        start + guarded.saturating_sub(shift)
    }
}

/// Reads a whole source.
pub(super) fn scan(source: &str) -> Result<Scanned, ScanError> {
    let mut out = Scanned::default();
    let mut blocks = vec![StatementBlock::default()];
    let mut guards = Guards::default();
    let text = trimmed(source);
    let mut at = 0;
    while let Some(open) = next_tag(source, at) {
        out.has_tags = true;
        let sign = source.as_bytes()[open + 1];
        if sign == b'#' {
            at = comment_end(source, open)?;
            continue;
        }
        let statement = sign == b'%';
        let tag = TemplateTag::read(source, open, statement)?;
        check_depth(&tag.tokens)?;
        at = if statement {
            scan_statement(source, &tag.tokens, tag.range, &mut blocks, &mut out)?
        } else {
            scan_expression(&tag, &text, &blocks, &mut out)?
        };
        collect_calls(&tag.tokens, &mut out.calls);
        guards.add(&tag.tokens)?;
        if statement && tag.tokens.first().is_some_and(|t| t.is_word("set")) {
            guards.guard_assignment(&tag.tokens);
        }
    }
    out.inserts = guards.inserts;
    out.inserts.sort_by_key(|(offset, _)| *offset);
    Ok(out)
}

fn next_tag(source: &str, from: usize) -> Option<usize> {
    let bytes = source.as_bytes();
    (from..bytes.len().saturating_sub(1))
        .find(|&i| bytes[i] == b'{' && matches!(bytes[i + 1], b'{' | b'%' | b'#'))
}

fn comment_end(source: &str, open: usize) -> Result<usize, ScanError> {
    let inner = open + 2;
    match source.get(inner..).and_then(|s| s.find("#}")) {
        Some(found) => Ok(inner + found + 2),
        None => fail("the comment has no closing `#}`", open..source.len()),
    }
}

/// The source without the blanks around it.
fn trimmed(source: &str) -> Range<usize> {
    let start = source.len() - source.trim_ascii_start().len();
    start..start + source.trim_ascii().len()
}

/// Reads one `{{ … }}`; returns where to go on.
fn scan_expression(
    tag: &TemplateTag<'_>,
    text: &Range<usize>,
    blocks: &[StatementBlock<'_>],
    out: &mut Scanned,
) -> Result<usize, ScanError> {
    if tag.tokens.is_empty() {
        return fail("there is nothing between `{{` and `}}`", tag.range.clone());
    }
    collect_reads(&tag.tokens, blocks, &mut out.sites);
    if tag.range == *text {
        out.path = plain_path(&tag.tokens);
        out.whole = Some(tag.inner.clone());
    }
    Ok(tag.range.end)
}

/// Refuses what would make a recursive parser or compiler run out of stack.
fn check_depth(tokens: &[ExprToken<'_>]) -> Result<(), ScanError> {
    // How much has piled up in each open bracket, the outermost first.
    let mut levels = vec![0usize];
    for token in tokens {
        let deeper = token.kind == TokenKind::Op || OPERATOR_WORDS.iter().any(|w| token.is_word(w));
        if token.closes() {
            levels.pop();
        } else if let Some(level) = levels.last_mut() {
            *level = if token.is_op(",") {
                0
            } else {
                *level + usize::from(deeper)
            };
        }
        if token.opens() {
            levels.push(0);
        }
        if levels.len() > MAX_NESTING {
            return fail(
                format!("brackets are nested more than {MAX_NESTING} deep; split the expression"),
                token.range(),
            );
        }
        if levels.iter().sum::<usize>() > MAX_CHAIN {
            return fail(
                format!("more than {MAX_CHAIN} operators in one expression; split it up"),
                token.range(),
            );
        }
    }
    Ok(())
}
