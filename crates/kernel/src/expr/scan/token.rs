//! Cuts the inside of one tag into tokens, the way the engine's own lexer does.
//!
//! Nothing here knows what a token means to a template: names are told from operators by
//! their spelling alone.

use std::ops::Range;

use super::{OPERATOR_WORDS, ScanError, fail};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Word,
    Number,
    Text,
    Op,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ExprToken<'s> {
    pub(super) kind: TokenKind,
    pub(super) text: &'s str,
    pub(super) start: usize,
}

impl ExprToken<'_> {
    pub(super) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.end()
    }

    pub(super) fn is_op(&self, op: &str) -> bool {
        self.kind == TokenKind::Op && self.text == op
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        self.kind == TokenKind::Word && self.text == word
    }

    pub(super) fn opens(&self) -> bool {
        self.kind == TokenKind::Op && matches!(self.text, "(" | "[" | "{")
    }

    pub(super) fn closes(&self) -> bool {
        self.kind == TokenKind::Op && matches!(self.text, ")" | "]" | "}")
    }

    /// Whether an operand can end with this token, so that an operator after it is binary.
    pub(super) fn ends_operand(&self) -> bool {
        match self.kind {
            TokenKind::Word => !OPERATOR_WORDS.contains(&self.text),
            TokenKind::Number | TokenKind::Text => true,
            TokenKind::Op => self.closes(),
        }
    }
}

/// The first token outside all brackets that is wanted.
pub(super) fn at_top_level(
    tokens: &[ExprToken<'_>],
    wanted: impl Fn(&ExprToken<'_>) -> bool,
) -> Option<usize> {
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

/// One tag of a template as a list of tokens.
#[derive(Debug)]
pub(super) struct TemplateTag<'s> {
    pub(super) tokens: Vec<ExprToken<'s>>,
    /// The bytes between the delimiters.
    pub(super) inner: Range<usize>,
    /// The bytes of the tag with its delimiters.
    pub(super) range: Range<usize>,
}

impl<'s> TemplateTag<'s> {
    /// Reads the tag that opens at `open`, to the first closing delimiter outside brackets.
    pub(super) fn read(
        source: &'s str,
        open: usize,
        statement: bool,
    ) -> Result<TemplateTag<'s>, ScanError> {
        let bytes = source.as_bytes();
        let close = if statement { "%}" } else { "}}" };
        let mut at = open + 2;
        if matches!(bytes.get(at), Some(b'-' | b'+')) {
            at += 1;
        }
        let inner = at;
        let mut depth = 0usize;
        let mut tokens: Vec<ExprToken<'s>> = Vec::new();
        while let Some(&byte) = bytes.get(at) {
            if depth == 0
                && let Some(width) = closing_width(&bytes[at..], close.as_bytes())
            {
                return Ok(TemplateTag {
                    tokens,
                    inner: inner..at,
                    range: open..at + width,
                });
            }
            if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                at += 1;
                continue;
            }
            let after_dot = tokens.last().is_some_and(|t| t.is_op("."));
            let token = next_token(source, at, after_dot)?;
            if token.opens() {
                depth += 1;
            } else if token.closes() {
                let Some(less) = depth.checked_sub(1) else {
                    return fail(format!("`{}` closes nothing", token.text), token.range());
                };
                depth = less;
            }
            at = token.end();
            tokens.push(token);
        }
        fail(
            format!("the tag has no closing `{close}`"),
            open..source.len(),
        )
    }
}

/// How long the closing delimiter is, if the tag ends here.
fn closing_width(rest: &[u8], close: &[u8]) -> Option<usize> {
    match rest {
        [b'-' | b'+', rest @ ..] if rest.starts_with(close) => Some(3),
        _ => rest.starts_with(close).then_some(2),
    }
}

fn next_token(source: &str, start: usize, after_dot: bool) -> Result<ExprToken<'_>, ScanError> {
    let bytes = source.as_bytes();
    let (kind, end) = match bytes[start] {
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
            let word = |b: &&u8| b.is_ascii_alphanumeric() || **b == b'_';
            let length = bytes[start..].iter().take_while(word).count();
            (TokenKind::Word, Some(start + length))
        }
        b'0'..=b'9' => (TokenKind::Number, Some(number_end(bytes, start, after_dot))),
        b'\'' | b'"' => (TokenKind::Text, text_end(bytes, start)),
        _ => (TokenKind::Op, Some(start + op_width(&source[start..]))),
    };
    match end.and_then(|end| source.get(start..end)) {
        Some(text) => Ok(ExprToken { kind, text, start }),
        None => fail("the text has no closing quote", start..source.len()),
    }
}

/// After the closing quote, if there is one.
fn text_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            byte if *byte == bytes[start] => return Some(at + 1),
            _ => at += 1,
        }
    }
}

fn op_width(rest: &str) -> usize {
    match rest.as_bytes() {
        [b'*', b'*', ..] | [b'/', b'/', ..] | [b'=' | b'!' | b'<' | b'>', b'=', ..] => 2,
        _ => rest.chars().next().map_or(1, char::len_utf8),
    }
}

fn number_end(bytes: &[u8], mut at: usize, after_dot: bool) -> usize {
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let signed = |at: usize| {
        matches!(bytes.get(at.wrapping_sub(1)), Some(b'e' | b'E'))
            && matches!(bytes.get(at), Some(b'+' | b'-'))
            && digit(at + 1)
    };
    let hex = matches!(bytes.get(at + 1), Some(b'x' | b'X'));
    let mut fraction = after_dot;
    loop {
        if bytes.get(at).is_some_and(word) || (!hex && signed(at)) {
            at += 1;
        } else if !fraction && bytes.get(at) == Some(&b'.') && digit(at + 1) {
            fraction = true;
            at += 1;
        } else {
            return at;
        }
    }
}
