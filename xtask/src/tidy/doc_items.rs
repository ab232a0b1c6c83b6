//! Documents that describe the code name only items that exist: `crates/x/src/y.rs::function`.
//!
//! The form is a link or a code span with a path, `::` and the name of an item of that file.

use super::{Finding, Tree};
use crate::source::Source;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (line, file, item) in items(text) {
            let source = tree.files.get(&file);
            if !source.is_some_and(|source| defines(source, &item)) {
                let message = format!("names `{item}`, which {file} does not define");
                findings.push(Finding::error(path, line, message));
            }
        }
    }
    findings
}

/// The items in code spans, with their lines: `crates/x/src/y.rs::Type::method` gives `method`.
fn items(text: &str) -> Vec<(usize, String, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for span in line.split('`').skip(1).step_by(2) {
            let Some((file, item)) = span.split_once(".rs::") else {
                continue;
            };
            let item = item.trim_end_matches("()");
            let item = item.rsplit("::").next().unwrap_or(item);
            found.push((index + 1, format!("{file}.rs"), item.to_owned()));
        }
    }
    found
}

/// Whether a file defines a function, type, constant, enum variant or module of that name.
fn defines(text: &str, item: &str) -> bool {
    let source = Source::scan(text);
    let words: Vec<&str> = source
        .code
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .collect();
    let is_definition = |pair: &[&str]| {
        let kinds = [
            "fn", "struct", "enum", "trait", "type", "const", "static", "mod",
        ];
        kinds.contains(&pair[0]) && pair[1] == item
    };
    words.windows(2).any(is_definition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_in_code_spans() {
        let text =
            "First `crates/a/src/b.rs::start`, then\n`crates/a/src/c.rs::Log::commit()`; `x::y`.";
        let found = items(text);
        let wanted = [
            (1, "crates/a/src/b.rs".to_owned(), "start".to_owned()),
            (2, "crates/a/src/c.rs".to_owned(), "commit".to_owned()),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn an_item_that_the_file_does_not_define_is_missing() {
        let code = "pub fn start() {}\nstruct Log;\n// fn gone() {}\n";
        assert!(defines(code, "start") && defines(code, "Log"));
        assert!(!defines(code, "gone") && !defines(code, "star"));
    }
}
