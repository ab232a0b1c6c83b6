//! Which names a template takes from its scope, and which filters and tests it calls.
//!
//! Reads err towards too much: missing one would evaluate the name to undefined, while an
//! extra one costs a lookup. What statements bind is decided in `statement.rs`.

use std::ops::Range;

use super::statement::StatementBlock;
use super::token::{ExprToken, TokenKind};
use super::{CallKind, NamedCall, OPERATOR_WORDS};

const CONSTANTS: [&str; 6] = ["true", "True", "false", "False", "none", "None"];
/// The functions there are.
pub(in crate::expr) const FUNCTIONS: [&str; 3] = ["range", "dict", "namespace"];

/// One place where a template reads a value of its scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadSite {
    /// The dotted path, such as `ctx.page`.
    pub path: String,
    /// The bytes of the path in the source.
    pub range: Range<usize>,
    /// Whether the template says what holds where the path has no value: by a default, a test, `or`, `.get()`.
    pub tested: bool,
    /// Whether the result may not depend on the value: the path stands in a branch, a loop or a default.
    pub may_be_skipped: bool,
}

/// Every name that may come from the scope, as the longest path that follows it.
pub(super) fn collect_reads(
    tokens: &[ExprToken<'_>],
    blocks: &[StatementBlock<'_>],
    sites: &mut Vec<ReadSite>,
) {
    let branches = tokens
        .iter()
        .any(|t| ["if", "or", "and"].iter().any(|w| t.is_word(w)));
    let mut may_be_skipped = branches || blocks.len() > 1;
    let mut is_condition = false;
    for (i, token) in tokens.iter().enumerate() {
        match token.text {
            "if" if token.kind == TokenKind::Word => is_condition = true,
            "else" if token.kind == TokenKind::Word => is_condition = false,
            _ => {}
        }
        // What a default is made of is read for nothing where the value is there.
        may_be_skipped |= is_default(tokens, i);
        if is_name(tokens, i) && !blocks.iter().any(|b| b.bound.contains(&token.text)) {
            let mut site = site(tokens, i);
            site.tested |= is_condition;
            site.may_be_skipped = may_be_skipped;
            sites.push(site);
        }
    }
}

fn is_default(tokens: &[ExprToken<'_>], i: usize) -> bool {
    let filter = i > 0 && tokens[i - 1].is_op("|");
    let name = tokens.get(i).filter(|_| filter);
    name.is_some_and(|t| t.is_word("default") || t.is_word("d"))
}

/// What is read at a name, with or without brackets around the name.
fn site(tokens: &[ExprToken<'_>], at: usize) -> ReadSite {
    let before = tokens[..at].iter().rev();
    let mut brackets = before.take_while(|t| t.is_op("(")).count();
    let outside = at.checked_sub(brackets + 1).and_then(|i| tokens.get(i));
    if outside.is_some_and(|t| t.ends_operand()) {
        // The outermost bracket is a call's.
        brackets = brackets.saturating_sub(1);
    }
    let mut path = tokens[at].text.to_owned();
    let mut last = at;
    let mut got = false;
    let mut next = at + 1;
    loop {
        let rest = tokens.get(next..).unwrap_or_default();
        if let Some((name, width)) = attribute(rest).or_else(|| item(rest)) {
            path.push('.');
            path.push_str(name);
            got |= width > 3;
            next += width;
            last = next - 1;
        } else if brackets > 0 && rest.first().is_some_and(|t| t.is_op(")")) {
            brackets -= 1;
            next += 1;
        } else {
            break;
        }
    }
    let rest = tokens.get(next..).unwrap_or_default();
    let before = at.checked_sub(1).and_then(|i| tokens.get(i));
    let has_default = match rest {
        [next, ..] if ["or", "and", "is"].iter().any(|w| next.is_word(w)) => true,
        [pipe, ..] if pipe.is_op("|") => is_default(tokens, next + 1),
        [dot, get, open, ..] => dot.is_op(".") && get.is_word("get") && open.is_op("("),
        _ => false,
    };
    ReadSite {
        path,
        range: tokens[at].start..tokens[last].end(),
        tested: got || has_default || before.is_some_and(|t| t.is_word("not")),
        may_be_skipped: false,
    }
}

/// `.name` or `['name']` that is no method.
fn attribute<'s>(tokens: &[ExprToken<'s>]) -> Option<(&'s str, usize)> {
    let (name, width) = step(tokens)?;
    let is_method = tokens.get(width).is_some_and(|t| t.is_op("("));
    (!is_method).then_some((name, width))
}

/// `.get('name')`, and how many tokens it takes.
fn item<'s>(tokens: &[ExprToken<'s>]) -> Option<(&'s str, usize)> {
    match tokens {
        [dot, get, open, key, close, ..]
            if dot.is_op(".")
                && get.is_word("get")
                && open.is_op("(")
                && key.kind == TokenKind::Text
                && close.is_op(")") =>
        {
            let name = &key.text[1..key.text.len() - 1];
            is_plain(name).then_some((name, 5))
        }
        _ => None,
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

/// The filters, tests, functions and methods that are named.
pub(super) fn collect_calls(tokens: &[ExprToken<'_>], calls: &mut Vec<NamedCall>) {
    for (i, token) in tokens.iter().enumerate() {
        if token.kind == TokenKind::Word
            && let Some(kind) = call_kind(tokens, i)
        {
            calls.push(NamedCall {
                name: token.text.to_owned(),
                at: token.start,
                kind,
            });
        }
    }
}

fn call_kind(tokens: &[ExprToken<'_>], i: usize) -> Option<CallKind> {
    /// Words of statements, which may stand before a bracket.
    const STATEMENTS: [&str; 3] = ["elif", "for", "set"];
    let text = tokens[i].text;
    let before = |op: &str| i > 0 && tokens[i - 1].is_op(op);
    let is_called = tokens.get(i + 1).is_some_and(|t| t.is_op("("));
    let is_word = OPERATOR_WORDS.contains(&text) || i == 0 && STATEMENTS.contains(&text);
    match () {
        () if is_test_name(tokens, i) => (text != "not").then_some(CallKind::Test),
        () if before("|") => Some(CallKind::Filter),
        () if before(".") => is_called.then_some(CallKind::Method),
        () => (is_called && !is_word).then_some(CallKind::Function),
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
