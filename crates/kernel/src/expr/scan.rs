//! Reads a template's source before the Jinja engine does.
//!
//! Three things are decided here from tokens alone: whether the source is safe to
//! hand to a recursive parser (nesting, chains, statements), which names it reads
//! from its scope, and where guards must be spliced in. The engine's operators cannot
//! be overridden, so `a ~ b` is handed over as `a|_s ~ b|_s`, which lets a filter
//! charge the evaluation's memory before the operator copies anything.
//!
//! No evaluation lives here, and nothing here may fail on any input other than by
//! returning a [`ScanError`].

use std::collections::BTreeSet;
use std::ops::Range;

/// Brackets inside brackets; the engine's own parser gives up at 150.
const MAX_NESTING: usize = 48;
/// Operators, filters and attribute steps that may pile up above one operand. The
/// engine recurses once for each when it compiles or drops the expression.
const MAX_CHAIN: usize = 160;
/// `if`/`for` blocks inside each other, and `elif` branches, which nest as well.
const MAX_BLOCKS: usize = 32;
/// Longest text a literal repetition such as `'-' * 40` may make.
const MAX_LITERAL_REPEAT: usize = 4096;

const OPERATOR_WORDS: [&str; 7] = ["and", "or", "not", "in", "is", "if", "else"];
const CONSTANTS: [&str; 6] = ["true", "True", "false", "False", "none", "None"];
const FUNCTIONS: [&str; 3] = ["range", "dict", "namespace"];

#[derive(Debug)]
pub(super) struct ScanError {
    pub(super) message: String,
    pub(super) range: Range<usize>,
}

/// What the scan found out.
#[derive(Debug, Default)]
pub(super) struct Scanned {
    /// The byte range of the expression if the template is one `{{ … }}` and nothing else.
    pub(super) whole: Option<Range<usize>>,
    /// Guards to splice in, in order of their offset in the original source.
    inserts: Vec<(usize, String)>,
    /// Dotted paths read from the scope.
    pub(super) reads: BTreeSet<String>,
    /// The path, if the template is one plain dotted path.
    pub(super) path: Option<Vec<String>>,
    /// The filters (`false`) and tests (`true`) it names, and where.
    pub(super) calls: Vec<(String, usize, bool)>,
    /// Whether the source has any tag at all.
    pub(super) has_tags: bool,
}

impl Scanned {
    /// The part of the source in `within`, with the guards spliced in.
    pub(super) fn guarded(&self, source: &str, within: Range<usize>) -> String {
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
    pub(super) fn original_offset(&self, guarded: usize, start: usize) -> usize {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Word,
    Number,
    Text,
    Op,
}

#[derive(Clone, Copy, Debug)]
struct Token<'s> {
    kind: Kind,
    text: &'s str,
    start: usize,
}

impl Token<'_> {
    fn end(&self) -> usize {
        self.start + self.text.len()
    }
    fn is_op(&self, op: &str) -> bool {
        self.kind == Kind::Op && self.text == op
    }
    fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text == word
    }
    fn opens(&self) -> bool {
        self.kind == Kind::Op && matches!(self.text, "(" | "[" | "{")
    }
    fn closes(&self) -> bool {
        self.kind == Kind::Op && matches!(self.text, ")" | "]" | "}")
    }
    fn range(&self) -> Range<usize> {
        self.start..self.end()
    }
    /// Whether an operand can end with this token, so that an operator after it is binary.
    fn ends_operand(&self) -> bool {
        match self.kind {
            Kind::Word => !OPERATOR_WORDS.contains(&self.text),
            Kind::Number | Kind::Text => true,
            Kind::Op => self.closes(),
        }
    }
}

fn fail<T>(message: impl Into<String>, range: Range<usize>) -> Result<T, ScanError> {
    Err(ScanError {
        message: message.into(),
        range,
    })
}

/// One open `{% if %}`, `{% for %}` or `{% with %}` and the names bound inside it.
#[derive(Debug, Default)]
struct Block<'s> {
    elifs: usize,
    bound: Vec<&'s str>,
}

pub(super) fn scan(source: &str) -> Result<Scanned, ScanError> {
    let mut out = Scanned::default();
    let mut blocks = vec![Block::default()];
    let mut comparisons = 0;
    let mut at = 0;
    let trimmed = source.trim_ascii();
    let lead = source.len() - source.trim_ascii_start().len();
    while let Some(open) = next_tag(source, at) {
        out.has_tags = true;
        let statement = match source.as_bytes().get(open + 1) {
            Some(b'#') => {
                at = match source.get(open + 2..).and_then(|s| s.find("#}")) {
                    Some(found) => open + 2 + found + 2,
                    None => return fail("the comment has no closing `#}`", open..source.len()),
                };
                continue;
            }
            Some(b'%') => true,
            _ => false,
        };
        let (tokens, inner, after) = tokens(source, open, statement)?;
        check_depth(&tokens)?;
        if statement {
            at = scan_statement(source, &tokens, open..after, &mut blocks, &mut out)?;
        } else {
            if tokens.is_empty() {
                return fail("there is nothing between `{{` and `}}`", open..after);
            }
            collect_reads(&tokens, &blocks, &mut out.reads);
            if open == lead && after == lead + trimmed.len() {
                out.path = plain_path(&tokens);
                out.whole = Some(inner);
            }
            at = after;
        }
        for (i, token) in tokens
            .iter()
            .enumerate()
            .filter(|(_, t)| t.kind == Kind::Word)
        {
            let test = is_test_name(&tokens, i);
            let filter = i > 0 && tokens[i - 1].is_op("|");
            if (test && !token.is_word("not")) || filter {
                out.calls.push((token.text.to_owned(), token.start, test));
            }
        }
        add_guards(&tokens, &mut comparisons, &mut out.inserts)?;
        if statement && tokens.first().is_some_and(|t| t.is_word("set")) {
            guard_assignment(&tokens, &mut out.inserts);
        }
    }
    out.inserts.sort_by_key(|(offset, _)| *offset);
    Ok(out)
}

fn next_tag(source: &str, from: usize) -> Option<usize> {
    let bytes = source.as_bytes();
    (from..bytes.len().saturating_sub(1))
        .find(|&i| bytes[i] == b'{' && matches!(bytes[i + 1], b'{' | b'%' | b'#'))
}

/// Cuts one tag into tokens; returns them, the range between the delimiters, and the end.
fn tokens(
    source: &str,
    open: usize,
    statement: bool,
) -> Result<(Vec<Token<'_>>, Range<usize>, usize), ScanError> {
    let bytes = source.as_bytes();
    let close = if statement { "%}" } else { "}}" };
    let mut at = open + 2;
    if matches!(bytes.get(at), Some(b'-' | b'+')) {
        at += 1;
    }
    let inner = at;
    let mut depth = 0usize;
    let mut out: Vec<Token<'_>> = Vec::new();
    while let Some(&byte) = bytes.get(at) {
        if depth == 0 {
            if bytes[at..].starts_with(close.as_bytes()) {
                return Ok((out, inner..at, at + 2));
            }
            if matches!(byte, b'-' | b'+') && bytes[at + 1..].starts_with(close.as_bytes()) {
                return Ok((out, inner..at, at + 3));
            }
        }
        let start = at;
        let kind = match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {
                at += 1;
                continue;
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                while matches!(bytes.get(at), Some(b) if b.is_ascii_alphanumeric() || *b == b'_') {
                    at += 1;
                }
                Kind::Word
            }
            b'0'..=b'9' => {
                at = number_end(bytes, at, out.last().is_some_and(|t| t.is_op(".")));
                Kind::Number
            }
            b'\'' | b'"' => {
                at += 1;
                loop {
                    match bytes.get(at) {
                        None => return fail("the text has no closing quote", start..source.len()),
                        Some(b'\\') => at += 2,
                        Some(b) if *b == byte => break at += 1,
                        Some(_) => at += 1,
                    }
                }
                Kind::Text
            }
            _ => {
                match byte {
                    b'(' | b'[' | b'{' => depth += 1,
                    b')' | b']' | b'}' => match depth.checked_sub(1) {
                        Some(less) => depth = less,
                        None => {
                            return fail(
                                format!("`{}` closes nothing", byte as char),
                                start..start + 1,
                            );
                        }
                    },
                    _ => {}
                }
                let two = bytes.get(at..at + 2).unwrap_or_default();
                at += if matches!(two, b"**" | b"//" | b"==" | b"!=" | b"<=" | b">=") {
                    2
                } else {
                    source[at..].chars().next().map_or(1, char::len_utf8)
                };
                Kind::Op
            }
        };
        match source.get(start..at) {
            Some(text) => out.push(Token { kind, text, start }),
            None => return fail("the text has no closing quote", start..source.len()),
        }
    }
    fail(
        format!("the tag has no closing `{close}`"),
        open..source.len(),
    )
}

fn number_end(bytes: &[u8], mut at: usize, after_dot: bool) -> usize {
    let word = |b: Option<&u8>| matches!(b, Some(b) if b.is_ascii_alphanumeric() || *b == b'_');
    let signed = |at: usize| {
        matches!(bytes.get(at.wrapping_sub(1)), Some(b'e' | b'E'))
            && matches!(bytes.get(at), Some(b'+' | b'-'))
            && matches!(bytes.get(at + 1), Some(b) if b.is_ascii_digit())
    };
    let hex = matches!(bytes.get(at + 1), Some(b'x' | b'X'));
    let mut fraction = after_dot;
    loop {
        if word(bytes.get(at)) || (!hex && signed(at)) {
            at += 1;
        } else if !fraction
            && bytes.get(at) == Some(&b'.')
            && matches!(bytes.get(at + 1), Some(b) if b.is_ascii_digit())
        {
            fraction = true;
            at += 1;
        } else {
            return at;
        }
    }
}

/// Refuses what would make a recursive parser or compiler run out of stack.
fn check_depth(tokens: &[Token<'_>]) -> Result<(), ScanError> {
    let mut levels = vec![0usize];
    for token in tokens {
        let deep = match token.kind {
            Kind::Op if token.opens() => {
                if let Some(level) = levels.last_mut() {
                    *level += 1;
                }
                levels.push(0);
                0
            }
            Kind::Op if token.closes() => {
                levels.pop();
                0
            }
            Kind::Op if token.text == "," => {
                if let Some(level) = levels.last_mut() {
                    *level = 0;
                }
                0
            }
            Kind::Op => 1,
            Kind::Word if OPERATOR_WORDS.contains(&token.text) => 1,
            _ => 0,
        };
        if let Some(level) = levels.last_mut() {
            *level += deep;
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

fn scan_statement<'s>(
    source: &'s str,
    tokens: &[Token<'s>],
    tag: Range<usize>,
    blocks: &mut Vec<Block<'s>>,
    out: &mut Scanned,
) -> Result<usize, ScanError> {
    let Some(name) = tokens.first() else {
        return fail("the statement is empty", tag);
    };
    let rest = &tokens[1..];
    match name.text {
        "if" => {
            collect_reads(rest, blocks, &mut out.reads);
            blocks.push(Block::default());
        }
        "elif" | "else" => {
            if let Some(block) = blocks.last_mut() {
                // What the other branch bound is not bound here.
                block.bound.clear();
                block.elifs += 1;
            }
            collect_reads(rest, blocks, &mut out.reads);
        }
        "for" => {
            let split = rest.iter().position(|t| t.is_word("in")).unwrap_or(0);
            let (targets, iter) = rest.split_at(split);
            let iter = iter.get(1..).unwrap_or_default();
            if let Some(token) = iter.last().filter(|t| t.is_word("recursive")) {
                return fail("recursive loops are not available", token.range());
            }
            let filter = at_top_level(iter, |t| t.is_word("if")).unwrap_or(iter.len());
            collect_reads(&iter[..filter], blocks, &mut out.reads);
            let mut bound: Vec<_> = targets
                .iter()
                .filter(|t| t.kind == Kind::Word)
                .map(|t| t.text)
                .collect();
            bound.push("loop");
            blocks.push(Block { elifs: 0, bound });
            collect_reads(&iter[filter..], blocks, &mut out.reads);
        }
        "set" => {
            let Some(split) = at_top_level(rest, |t| t.is_op("=")) else {
                return fail(
                    "`{% set x %}…{% endset %}` is not available; write `{% set x = … %}`",
                    tag,
                );
            };
            let (targets, value) = rest.split_at(split);
            collect_reads(&value[1..], blocks, &mut out.reads);
            if targets.iter().any(|t| t.is_op(".")) {
                collect_reads(targets, blocks, &mut out.reads);
            } else if let Some(block) = blocks.last_mut() {
                let names = targets.iter().filter(|t| t.kind == Kind::Word);
                block.bound.extend(names.map(|t| t.text));
            }
        }
        "endif" | "endfor" => {
            if blocks.len() > 1 {
                blocks.pop();
            }
        }
        "raw" => {
            let mut from = tag.end;
            while let Some(found) = source.get(from..).and_then(|s| s.find("{%")) {
                let body = source[from + found + 2..].trim_start_matches(['-', '+']);
                if body.trim_start().starts_with("endraw") {
                    let end = source[from + found..]
                        .find("%}")
                        .map(|e| from + found + e + 2);
                    return Ok(end.unwrap_or(source.len()));
                }
                from += found + 2;
            }
            return fail("`{% raw %}` has no `{% endraw %}`", tag);
        }
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

fn at_top_level(tokens: &[Token<'_>], wanted: impl Fn(&Token<'_>) -> bool) -> Option<usize> {
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate() {
        if token.opens() {
            depth += 1;
        } else if token.closes() {
            depth = depth.saturating_sub(1);
        } else if depth == 0 && wanted(token) {
            return Some(i);
        }
    }
    None
}

/// Every name that may come from the scope, as the longest plain path that follows it.
///
/// This errs towards reading too much: missing a read would evaluate the name to
/// undefined, while an extra one costs a lookup.
fn collect_reads(tokens: &[Token<'_>], blocks: &[Block<'_>], reads: &mut BTreeSet<String>) {
    for (i, token) in tokens.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|i| tokens.get(i));
        let after = tokens.get(i + 1);
        let called = after.is_some_and(|t| t.is_op("("));
        if token.kind != Kind::Word
            || OPERATOR_WORDS.contains(&token.text)
            || CONSTANTS.contains(&token.text)
            || (called && FUNCTIONS.contains(&token.text))
            || before.is_some_and(|t| t.is_op(".") || t.is_op("|"))
            || is_test_name(tokens, i)
            // A keyword argument, as in `f(name=1)`.
            || (after.is_some_and(|t| t.is_op("="))
                && before.is_some_and(|t| t.is_op("(") || t.is_op(",")))
            || blocks.iter().any(|b| b.bound.contains(&token.text))
        {
            continue;
        }
        let mut path = token.text.to_owned();
        for step in steps(&tokens[i + 1..]).0 {
            path.push('.');
            path.push_str(step);
        }
        reads.insert(path);
    }
}

fn is_test_name(tokens: &[Token<'_>], i: usize) -> bool {
    let back = |n: usize| i.checked_sub(n).and_then(|i| tokens.get(i));
    back(1).is_some_and(|t| t.is_word("is"))
        || (back(1).is_some_and(|t| t.is_word("not")) && back(2).is_some_and(|t| t.is_word("is")))
}

/// The plain attribute steps at the head of `tokens`, and how many tokens they take.
fn steps<'s>(tokens: &[Token<'s>]) -> (Vec<&'s str>, usize) {
    let mut out = Vec::new();
    let mut at = 0;
    loop {
        let (name, width) = match tokens.get(at..) {
            Some([dot, name, ..]) if dot.is_op(".") && name.kind == Kind::Word => (name.text, 2),
            Some([open, name, close, ..])
                if open.is_op("[")
                    && close.is_op("]")
                    && name.kind == Kind::Text
                    && is_plain(&name.text[1..name.text.len() - 1]) =>
            {
                (&name.text[1..name.text.len() - 1], 3)
            }
            _ => return (out, at),
        };
        // `ctx.get('x')` reads `ctx`: the last step is a method, not an attribute.
        if tokens.get(at + width).is_some_and(|t| t.is_op("(")) {
            return (out, at);
        }
        out.push(name);
        at += width;
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn plain_path(tokens: &[Token<'_>]) -> Option<Vec<String>> {
    let root = tokens.first()?;
    let (steps, width) = steps(&tokens[1..]);
    let plain = root.kind == Kind::Word
        && width + 1 == tokens.len()
        && root.text != "loop"
        && root.text != "self"
        && !OPERATOR_WORDS.contains(&root.text)
        && !CONSTANTS.contains(&root.text)
        && !FUNCTIONS.contains(&root.text);
    plain.then(|| {
        std::iter::once(root.text)
            .chain(steps)
            .map(str::to_owned)
            .collect()
    })
}

fn add_guards(
    tokens: &[Token<'_>],
    comparisons: &mut usize,
    inserts: &mut Vec<(usize, String)>,
) -> Result<(), ScanError> {
    let concatenates = tokens.iter().any(|t| t.is_op("~"));
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        if token.kind != Kind::Op {
            continue;
        }
        let before = i.checked_sub(1).and_then(|i| tokens.get(i));
        let binary = before.is_some_and(Token::ends_operand);
        match token.text {
            "(" | "[" | "{" => open.push((i, 0)),
            ":" => {
                if let Some((_, colons)) = open.last_mut() {
                    *colons += 1;
                }
            }
            ")" | "}" => drop(open.pop()),
            "]" => {
                let Some((at, colons)) = open.pop() else {
                    continue;
                };
                if colons == 0 {
                    continue;
                }
                if colons > 1 {
                    // The engine indexes out of bounds for some negative steps.
                    return fail(
                        "slices with a step are not available; use `| reverse` or a loop",
                        tokens[at].start..token.end(),
                    );
                }
                let next = tokens.get(i + 1);
                if !next.is_some_and(|t| t.is_op(".") || t.is_op("[") || t.is_op("(")) {
                    inserts.push((token.end(), "|_g".to_owned()));
                }
            }
            "~" | "+" | "*" | "<" | "<=" | ">" | ">=" if binary => {
                if token.text == "*" && is_small_repeat(tokens, i) {
                    continue;
                }
                let (left, right) = match token.text {
                    "~" => ("|_s".to_owned(), "|_s".to_owned()),
                    "+" => ("|_g".to_owned(), "|_g".to_owned()),
                    "*" => ("|_m".to_owned(), "|_m".to_owned()),
                    // `'a' ~ 1 < 'b'` compares the whole text, not the 1 beside the sign.
                    _ if concatenates => ("|_o".to_owned(), "|_o".to_owned()),
                    _ => {
                        *comparisons += 1;
                        (format!("|_l({comparisons})"), format!("|_r({comparisons})"))
                    }
                };
                if let Some(before) = before {
                    inserts.push((before.end(), left));
                }
                if let Some(last) = operand_end(tokens, i + 1).and_then(|i| tokens.get(i)) {
                    inserts.push((last.end(), right));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whatever is kept in a variable passes through a guard, because keeping is what lets a
/// loop nest lists or stack lazy views without end.
fn guard_assignment(tokens: &[Token<'_>], inserts: &mut Vec<(usize, String)>) {
    let Some(equals) = at_top_level(tokens, |t| t.is_op("=")) else {
        return;
    };
    let attribute = tokens[..equals].iter().any(|t| t.is_op("."));
    let guard = if attribute { ")|_k" } else { ")|_n" };
    if let (Some(first), Some(last)) = (tokens.get(equals + 1), tokens.last()) {
        inserts.push((first.start, "(".to_owned()));
        inserts.push((last.end(), guard.to_owned()));
    }
}

/// `'-' * 40` between things that cannot make it anything else.
fn is_small_repeat(tokens: &[Token<'_>], op: usize) -> bool {
    let (Some(left), Some(right)) = (tokens.get(op.wrapping_sub(1)), tokens.get(op + 1)) else {
        return false;
    };
    let (text, count) = match (left.kind, right.kind) {
        (Kind::Text, Kind::Number) => (left, right),
        (Kind::Number, Kind::Text) => (right, left),
        _ => return false,
    };
    let apart = |t: Option<&Token<'_>>| {
        t.is_none_or(|t| {
            t.kind == Kind::Op && matches!(t.text, "(" | ")" | "[" | "]" | "," | "~" | "+" | "=")
        })
    };
    apart(op.checked_sub(2).and_then(|i| tokens.get(i)))
        && apart(tokens.get(op + 2))
        && count.text.parse::<usize>().is_ok_and(|n| {
            text.text
                .len()
                .checked_mul(n)
                .is_some_and(|len| len <= MAX_LITERAL_REPEAT)
        })
}

/// The last token of the operand that starts at `at`, following the engine's grammar for
/// what binds tighter than a binary operator.
fn operand_end(tokens: &[Token<'_>], at: usize) -> Option<usize> {
    let mut at = postfix_end(tokens, at)?;
    loop {
        match tokens.get(at + 1) {
            Some(t) if t.is_op("|") => {
                at = name_end(tokens, at + 2)?;
                if tokens.get(at + 1).is_some_and(|t| t.is_op("(")) {
                    at = closing(tokens, at + 1)?;
                }
            }
            Some(t) if t.is_word("is") => {
                let negated = tokens.get(at + 2).is_some_and(|t| t.is_word("not"));
                at = name_end(tokens, at + 2 + usize::from(negated))?;
                match tokens.get(at + 1) {
                    Some(t) if t.is_op("(") => at = closing(tokens, at + 1)?,
                    Some(t) if takes_test_argument(t) => at = postfix_end(tokens, at + 1)?,
                    _ => {}
                }
            }
            _ => return Some(at),
        }
    }
}

fn takes_test_argument(token: &Token<'_>) -> bool {
    match token.kind {
        Kind::Word => !matches!(token.text, "and" | "or" | "else" | "is"),
        Kind::Number | Kind::Text => true,
        Kind::Op => matches!(token.text, "+" | "-" | "[" | "{"),
    }
}

fn name_end(tokens: &[Token<'_>], mut at: usize) -> Option<usize> {
    tokens.get(at)?;
    while tokens.get(at + 1).is_some_and(|t| t.is_op(".")) && tokens.get(at + 2).is_some() {
        at += 2;
    }
    Some(at)
}

fn postfix_end(tokens: &[Token<'_>], mut at: usize) -> Option<usize> {
    while tokens.get(at)?.is_op("-") {
        at += 1;
    }
    let first = tokens.get(at)?;
    if first.opens() {
        at = closing(tokens, at)?;
    } else if first.kind == Kind::Text {
        while tokens.get(at + 1).is_some_and(|t| t.kind == Kind::Text) {
            at += 1;
        }
    }
    loop {
        match tokens.get(at + 1) {
            Some(t) if t.is_op(".") => {
                tokens.get(at + 2)?;
                at += 2;
            }
            Some(t) if t.is_op("(") || t.is_op("[") => at = closing(tokens, at + 1)?,
            _ => return Some(at),
        }
    }
}

fn closing(tokens: &[Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        if token.opens() {
            depth += 1;
        } else if token.closes() {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                return Some(i);
            }
        }
    }
    None
}
