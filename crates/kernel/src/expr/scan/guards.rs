//! Where guards go.
//!
//! The engine's operators cannot be overridden, so `a ~ b` is handed over as
//! `a|_s ~ b|_s`, which lets a filter charge the evaluation's memory before the operator
//! copies anything. What a guard does is in `library/guards.rs` and `library/ordering.rs`;
//! here is only where one has to stand, by the engine's rules of precedence.

use super::token::{ExprToken, TokenKind, at_top_level};
use super::{ScanError, fail};

/// Longest text a literal repetition such as `'-' * 40` may make.
const MAX_LITERAL_REPEAT: usize = 4096;

/// Guards to splice in, by their offset in the source.
#[derive(Debug, Default)]
pub(super) struct Guards {
    pub(super) inserts: Vec<(usize, String)>,
    comparisons: usize,
}

impl Guards {
    fn insert(&mut self, at: usize, guard: impl Into<String>) {
        self.inserts.push((at, guard.into()));
    }

    /// Guards the operators and slices of one tag.
    pub(super) fn add(&mut self, tokens: &[ExprToken<'_>]) -> Result<(), ScanError> {
        let concatenates = tokens.iter().any(|t| t.is_op("~"));
        let mut open: Vec<(usize, usize)> = Vec::new();
        for (i, token) in tokens.iter().enumerate() {
            if token.kind != TokenKind::Op {
                continue;
            }
            match token.text {
                "(" | "[" | "{" => open.push((i, 0)),
                ":" => {
                    if let Some((_, colons)) = open.last_mut() {
                        *colons += 1;
                    }
                }
                ")" | "}" => drop(open.pop()),
                "]" => {
                    if let Some((from, colons)) = open.pop() {
                        self.guard_slice(tokens, from, i, colons)?;
                    }
                }
                "~" | "+" | "*" | "<" | "<=" | ">" | ">=" => {
                    self.guard_operator(tokens, i, concatenates);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn guard_slice(
        &mut self,
        tokens: &[ExprToken<'_>],
        open: usize,
        close: usize,
        colons: usize,
    ) -> Result<(), ScanError> {
        let end = tokens[close].end();
        if colons > 1 {
            // The engine indexes out of bounds for some negative steps.
            return fail(
                "slices with a step are not available; use `| reverse` or a loop",
                tokens[open].start..end,
            );
        }
        let next = tokens.get(close + 1);
        let goes_on = next.is_some_and(|t| t.is_op(".") || t.is_op("[") || t.is_op("("));
        if colons == 1 && !goes_on {
            self.insert(end, "|_g");
        }
        Ok(())
    }

    fn guard_operator(&mut self, tokens: &[ExprToken<'_>], op: usize, concatenates: bool) {
        let before = op.checked_sub(1).and_then(|i| tokens.get(i));
        let Some(before) = before.filter(|t| t.ends_operand()) else {
            return;
        };
        let (left, right) = match tokens[op].text {
            "~" => ("|_s".to_owned(), "|_s".to_owned()),
            "+" => ("|_g".to_owned(), "|_g".to_owned()),
            "*" if is_small_repeat(tokens, op) => return,
            "*" => ("|_m".to_owned(), "|_m".to_owned()),
            // `'a' ~ 1 < 'b'` compares the whole text, not the 1 beside the sign.
            _ if concatenates => ("|_o".to_owned(), "|_o".to_owned()),
            _ => {
                self.comparisons += 1;
                let id = self.comparisons;
                (format!("|_l({id})"), format!("|_r({id})"))
            }
        };
        self.insert(before.end(), left);
        if let Some(last) = operand_end(tokens, op + 1).and_then(|i| tokens.get(i)) {
            self.insert(last.end(), right);
        }
    }

    /// Whatever is kept in a variable passes through a guard, because keeping is what lets a
    /// loop nest lists or stack lazy views without end.
    pub(super) fn guard_assignment(&mut self, tokens: &[ExprToken<'_>]) {
        let Some(equals) = at_top_level(tokens, |t| t.is_op("=")) else {
            return;
        };
        let attribute = tokens[..equals].iter().any(|t| t.is_op("."));
        if let (Some(first), Some(last)) = (tokens.get(equals + 1), tokens.last()) {
            self.insert(first.start, "(");
            self.insert(last.end(), if attribute { ")|_k" } else { ")|_n" });
        }
    }
}

/// `'-' * 40` between things that cannot make it anything else.
fn is_small_repeat(tokens: &[ExprToken<'_>], op: usize) -> bool {
    let (Some(left), Some(right)) = (tokens.get(op.wrapping_sub(1)), tokens.get(op + 1)) else {
        return false;
    };
    let (text, count) = match (left.kind, right.kind) {
        (TokenKind::Text, TokenKind::Number) => (left, right),
        (TokenKind::Number, TokenKind::Text) => (right, left),
        _ => return false,
    };
    let apart = |t: Option<&ExprToken<'_>>| {
        t.is_none_or(|t| {
            t.kind == TokenKind::Op
                && matches!(t.text, "(" | ")" | "[" | "]" | "," | "~" | "+" | "=")
        })
    };
    let length = |count: usize| text.text.len().checked_mul(count);
    let length = count.text.parse().ok().and_then(length);
    apart(op.checked_sub(2).and_then(|i| tokens.get(i)))
        && apart(tokens.get(op + 2))
        && length.is_some_and(|length| length <= MAX_LITERAL_REPEAT)
}

/// The last token of the operand that starts at `at`, following the engine's grammar for
/// what binds tighter than a binary operator.
fn operand_end(tokens: &[ExprToken<'_>], at: usize) -> Option<usize> {
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

fn takes_test_argument(token: &ExprToken<'_>) -> bool {
    match token.kind {
        TokenKind::Word => !matches!(token.text, "and" | "or" | "else" | "is"),
        TokenKind::Number | TokenKind::Text => true,
        TokenKind::Op => matches!(token.text, "+" | "-" | "[" | "{"),
    }
}

fn name_end(tokens: &[ExprToken<'_>], mut at: usize) -> Option<usize> {
    tokens.get(at)?;
    while tokens.get(at + 1).is_some_and(|t| t.is_op(".")) && tokens.get(at + 2).is_some() {
        at += 2;
    }
    Some(at)
}

fn postfix_end(tokens: &[ExprToken<'_>], mut at: usize) -> Option<usize> {
    while tokens.get(at)?.is_op("-") {
        at += 1;
    }
    let first = tokens.get(at)?;
    if first.opens() {
        at = closing(tokens, at)?;
    } else if first.kind == TokenKind::Text {
        while tokens
            .get(at + 1)
            .is_some_and(|t| t.kind == TokenKind::Text)
        {
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

fn closing(tokens: &[ExprToken<'_>], open: usize) -> Option<usize> {
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
