//! Statements: which there are, what each binds, and how deep they may nest.
//!
//! What an expression reads is decided in `reads.rs`; how a statement runs is the engine's.

use std::ops::Range;

use super::reads::{ReadSite, collect_reads};
use super::token::{ExprToken, TokenKind, at_top_level};
use super::{ScanError, Scanned, fail};

/// `if`/`for` blocks inside each other, and `elif` branches, which nest as well.
const MAX_BLOCKS: usize = 32;

/// One open `{% if %}` or `{% for %}` and the names bound inside it.
#[derive(Debug, Default)]
pub(super) struct StatementBlock<'s> {
    elifs: usize,
    pub(super) bound: Vec<&'s str>,
}

/// Reads one statement; returns where to go on.
pub(super) fn scan_statement<'s>(
    source: &str,
    tokens: &[ExprToken<'s>],
    tag: Range<usize>,
    blocks: &mut Vec<StatementBlock<'s>>,
    out: &mut Scanned,
) -> Result<usize, ScanError> {
    let Some((name, rest)) = tokens.split_first() else {
        return fail("the statement is empty", tag);
    };
    match name.text {
        "if" => {
            collect_condition(rest, blocks, &mut out.sites);
            blocks.push(StatementBlock::default());
        }
        "elif" | "else" => {
            if let Some(block) = blocks.last_mut() {
                // What the other branch bound is not bound here.
                block.bound.clear();
                block.elifs += 1;
            }
            collect_condition(rest, blocks, &mut out.sites);
        }
        "for" => scan_for(rest, blocks, out)?,
        "set" => scan_set(rest, &tag, blocks, out)?,
        "endif" | "endfor" if blocks.len() > 1 => drop(blocks.pop()),
        "endif" | "endfor" => {}
        "raw" => return raw_end(source, tag),
        other => {
            return fail(
                format!(
                    "the statement `{other}` is not available; \
                     use `if`, `for`, `set` or `raw`"
                ),
                tag,
            );
        }
    }
    let elifs: usize = blocks.iter().map(|b| b.elifs).sum();
    if blocks.len() + elifs > MAX_BLOCKS {
        return fail(
            format!("more than {MAX_BLOCKS} blocks inside each other; split the template"),
            tag,
        );
    }
    Ok(tag.end)
}

/// A condition may ask for what is not there.
fn collect_condition(
    tokens: &[ExprToken<'_>],
    blocks: &[StatementBlock<'_>],
    sites: &mut Vec<ReadSite>,
) {
    let from = sites.len();
    collect_reads(tokens, blocks, sites);
    sites[from..].iter_mut().for_each(|site| site.tested = true);
}

fn scan_for<'s>(
    tokens: &[ExprToken<'s>],
    blocks: &mut Vec<StatementBlock<'s>>,
    out: &mut Scanned,
) -> Result<(), ScanError> {
    let split = tokens.iter().position(|t| t.is_word("in")).unwrap_or(0);
    let (targets, items) = tokens.split_at(split);
    let items = items.get(1..).unwrap_or_default();
    if let Some(token) = items.last().filter(|t| t.is_word("recursive")) {
        return fail("recursive loops are not available", token.range());
    }
    let filter = at_top_level(items, |t| t.is_word("if")).unwrap_or(items.len());
    let (items, filter) = items.split_at(filter);
    collect_reads(items, blocks, &mut out.sites);
    let mut bound: Vec<_> = words(targets).collect();
    bound.push("loop");
    blocks.push(StatementBlock { elifs: 0, bound });
    collect_reads(filter, blocks, &mut out.sites);
    Ok(())
}

fn scan_set<'s>(
    tokens: &[ExprToken<'s>],
    tag: &Range<usize>,
    blocks: &mut [StatementBlock<'s>],
    out: &mut Scanned,
) -> Result<(), ScanError> {
    let Some(split) = at_top_level(tokens, |t| t.is_op("=")) else {
        return fail(
            "`{% set x %}…{% endset %}` is not available; write `{% set x = … %}`",
            tag.clone(),
        );
    };
    let (targets, value) = tokens.split_at(split);
    collect_reads(&value[1..], blocks, &mut out.sites);
    if targets.iter().any(|t| t.is_op(".")) {
        collect_reads(targets, blocks, &mut out.sites);
    } else if let Some(block) = blocks.last_mut() {
        block.bound.extend(words(targets));
    }
    Ok(())
}

fn words<'s>(tokens: &[ExprToken<'s>]) -> impl Iterator<Item = &'s str> {
    let words = tokens.iter().filter(|t| t.kind == TokenKind::Word);
    words.map(|t| t.text)
}

/// After the `{% endraw %}` that ends what the tag began.
fn raw_end(source: &str, tag: Range<usize>) -> Result<usize, ScanError> {
    let mut from = tag.end;
    while let Some(found) = source.get(from..).and_then(|s| s.find("{%")) {
        let open = from + found;
        let body = source[open + 2..].trim_start_matches(['-', '+']);
        if body.trim_start().starts_with("endraw") {
            let close = source[open..].find("%}");
            return Ok(close.map_or(source.len(), |close| open + close + 2));
        }
        from = open + 2;
    }
    fail("`{% raw %}` has no `{% endraw %}`", tag)
}
