//! The rules for names (of workflows, jobs, steps) that all languages share.
//!
//! Not here: uniqueness, which depends on what is named, and the looking up of
//! names. The functions are used through [`crate::reader`].

use stepwell_kernel::unseen::is_unseen;

use crate::codes;
use crate::field::wrong_type;
use crate::problem::Problems;
use crate::source::Span;
use crate::tree::Node;
use crate::words::quote;

/// The longest name, in characters.
pub const MAX_NAME_CHARS: usize = 200;

/// Checks the name rules all languages share and gives the name.
///
/// `|`, `#`, `[` and `]` build the addresses of steps inside the engine, so a
/// name that held them could stand for another step.
pub fn check_name<'n>(node: &'n Node, p: &mut Problems) -> Option<&'n str> {
    let Some(name) = node.as_str() else {
        wrong_type("a name", "text", node, p);
        return None;
    };
    check_name_text(name, node.span, p).then_some(name)
}

/// As [`check_name`] for a name that is a key.
pub fn check_name_text(name: &str, span: Span, p: &mut Problems) -> bool {
    let bad = |c: char| matches!(c, '|' | '#' | '[' | ']') || c.is_control() || is_unseen(c);
    let why = if name.trim().is_empty() {
        "is empty".to_owned()
    } else if name.chars().count() > MAX_NAME_CHARS {
        format!("is longer than {MAX_NAME_CHARS} characters")
    } else if let Some(c) = name.chars().find(|c| bad(*c)) {
        format!("holds {}", quote(&c.to_string()))
    } else if name.trim() != name {
        "begins or ends with a space".to_owned()
    } else {
        return true;
    };
    let better: String = name
        .trim()
        .chars()
        .take(MAX_NAME_CHARS)
        .map(|c| if bad(c) { '-' } else { c })
        .collect();
    let better = better.trim_matches(['-', ' ']);
    let help = if better.is_empty() {
        "write a name such as `build-image`".to_owned()
    } else {
        format!("write a name such as {}", quote(better))
    };
    p.error(
        codes::NAME_INVALID,
        span,
        format!("the name {} {why}", quote(name)),
    )
    .help(help);
    false
}
