//! Where in its file an expression stands: found only when it has failed, by looking at the file.

use std::fs;

use sha2::{Digest, Sha256};
use stepwell_kernel::expr::TemplateError;
use stepwell_kernel::plan::Plan;

/// Files larger than this are not searched.
const MAX_BYTES: u64 = 16 << 20;

/// The error with the file and the line of its expression, as far as they can be found.
pub(crate) fn of(plan: &Plan, step: &str, error: &TemplateError) -> String {
    let source = &plan.net().source;
    let Some(path) = source.uri.strip_prefix("file:") else {
        return format!("step `{step}`: {error}");
    };
    let text = fs::metadata(path)
        .ok()
        .filter(|it| it.len() <= MAX_BYTES)
        .and_then(|_| fs::read(path).ok())
        // What is there now may not be what the run was started with.
        .filter(|bytes| stepwell_kernel::keys::hex(&Sha256::digest(bytes)) == source.sha256)
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let line = text.and_then(|text| line(&text, step, &error.excerpt));
    match line {
        Some(line) => format!("{path}:{line}: step `{step}`: {error}"),
        None => format!("{path}: step `{step}`: {error}"),
    }
}

/// The line of the expression; the step's own if the file writes the expression in another way.
fn line(text: &str, step: &str, excerpt: &str) -> Option<usize> {
    let wanted = excerpt.split('…').next().unwrap_or(excerpt).trim();
    let names = |line: &str| {
        let line = line.trim_start_matches(['-', ' ', '{', '"']);
        let value = line.split_once(':').map(|(_, value)| value);
        value.is_some_and(|value| value.trim().trim_matches(['"', '\'', ',']) == step)
    };
    let lines: Vec<&str> = text.lines().collect();
    let begins = lines.iter().position(|line| names(line));
    let after = begins.unwrap_or(0);
    let found = lines[after..].iter().position(|line| line.contains(wanted));
    let anywhere = || lines.iter().position(|line| line.contains(wanted));
    let at = match wanted.is_empty() {
        true => begins,
        false => found.map(|it| it + after).or_else(anywhere).or(begins),
    };
    at.map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_found_in_its_own_step() {
        let text = "workflow:\n- step: a\n  url: '{{ x }}'\n- step: b\n  url: '{{ x }}'\n";
        assert_eq!(line(text, "b", "{{ x }}"), Some(5));
        assert_eq!(line(text, "a", "{{ x }}"), Some(3));
        assert_eq!(line(text, "b", "{{ folded over lines }}"), Some(4));
        assert_eq!(line(text, "nobody", "{{ y }}"), None);
    }
}
