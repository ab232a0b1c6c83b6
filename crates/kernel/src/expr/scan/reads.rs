//! Which names a template takes from its scope, and which filters and tests it calls.
//!
//! Reads err towards too much: missing one would evaluate the name to undefined, while an
//! extra one costs a lookup. What statements bind is decided in `statement.rs`.

use std::collections::BTreeSet;

use super::statement::StatementBlock;
use super::token::{ExprToken, TokenKind};
use super::{NamedCall, OPERATOR_WORDS};

const CONSTANTS: [&str; 6] = ["true", "True", "false", "False", "none", "None"];
const FUNCTIONS: [&str; 3] = ["range", "dict", "namespace"];

/// Every name that may come from the scope, as the longest plain path that follows it.
pub(super) fn collect_reads(
    tokens: &[ExprToken<'_>],
    blocks: &[StatementBlock<'_>],
    reads: &mut BTreeSet<String>,
) {
    for (i, token) in tokens.iter().enumerate() {
        if is_name(tokens, i) && !blocks.iter().any(|b| b.bound.contains(&token.text)) {
            let mut path = token.text.to_owned();
            for step in steps(&tokens[i + 1..]).0 {
                path.push('.');
                path.push_str(step);
            }
            reads.insert(path);
        }
    }
}

/// Whether a token names a variable rather than an operator, attribute, filter or keyword.
fn is_name(tokens: &[ExprToken<'_>], i: usize) -> bool {
    let token = &tokens[i];
    let before = |op: &str| i > 0 && tokens[i - 1].is_op(op);
    let after = |op: &str| tokens.get(i + 1).is_some_and(|t| t.is_op(op));
    let function = after("(") && FUNCTIONS.contains(&token.text);
    let member = before(".") || before("|") || is_test_name(tokens, i);
    let keyword_argument = after("=") && (before("(") || before(","));
    let reserved = OPERATOR_WORDS.contains(&token.text) || CONSTANTS.contains(&token.text);
    token.kind == TokenKind::Word && !(reserved || function || member || keyword_argument)
}

fn is_test_name(tokens: &[ExprToken<'_>], i: usize) -> bool {
    match &tokens[..i] {
        [.., is, not] if is.is_word("is") && not.is_word("not") => true,
        [.., is] => is.is_word("is"),
        [] => false,
    }
}

/// The filters and tests that are named.
pub(super) fn collect_calls(tokens: &[ExprToken<'_>], calls: &mut Vec<NamedCall>) {
    for (i, token) in tokens.iter().enumerate() {
        let is_test = is_test_name(tokens, i);
        let is_filter = i > 0 && tokens[i - 1].is_op("|");
        if token.kind == TokenKind::Word && ((is_test && token.text != "not") || is_filter) {
            calls.push(NamedCall {
                name: token.text.to_owned(),
                at: token.start,
                is_test,
            });
        }
    }
}

/// The path, if the tokens are one plain dotted path.
pub(super) fn plain_path(tokens: &[ExprToken<'_>]) -> Option<Vec<String>> {
    let root = tokens.first()?;
    let (steps, width) = steps(&tokens[1..]);
    let plain = root.kind == TokenKind::Word
        && width + 1 == tokens.len()
        && !matches!(root.text, "loop" | "self")
        && !OPERATOR_WORDS.contains(&root.text)
        && !CONSTANTS.contains(&root.text)
        && !FUNCTIONS.contains(&root.text);
    plain.then(|| {
        let path = std::iter::once(root.text).chain(steps);
        path.map(str::to_owned).collect()
    })
}

/// The plain attribute steps at the head of `tokens`, and how many tokens they take.
fn steps<'s>(tokens: &[ExprToken<'s>]) -> (Vec<&'s str>, usize) {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some((name, width)) = step(&tokens[at..]) {
        // `ctx.get('x')` reads `ctx`: the last step is a method, not an attribute.
        if tokens.get(at + width).is_some_and(|t| t.is_op("(")) {
            break;
        }
        out.push(name);
        at += width;
    }
    (out, at)
}

/// `.name` or `['name']`, and how many tokens it takes.
fn step<'s>(tokens: &[ExprToken<'s>]) -> Option<(&'s str, usize)> {
    match tokens {
        [dot, name, ..] if dot.is_op(".") && name.kind == TokenKind::Word => Some((name.text, 2)),
        [open, key, close, ..]
            if open.is_op("[") && key.kind == TokenKind::Text && close.is_op("]") =>
        {
            let name = &key.text[1..key.text.len() - 1];
            is_plain(name).then_some((name, 3))
        }
        _ => None,
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
