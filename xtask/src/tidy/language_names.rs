//! The engine and the stores know no language: no identifier of theirs names one, and no code of theirs
//! asks which language a plan was written in.
//!
//! Rules of a language are policies of the plan (kernel) or functions of its dialect. Only code is checked:
//! a comment may name a language, and a test may use a definition. `plan` and `actions` are languages, too,
//! but also common words, so identifiers may contain them.

use super::{Finding, Tree};
use crate::source::Source;

/// Words that belong to one language.
const WORDS: &[&str] = &["linear", "playbook", "playbooks", "dag", "biz"];

/// Source of crates that serve all languages alike.
const CHECKED: &[&str] = &["crates/engine/src/", "crates/stores/src/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.files {
        if path.ends_with(".rs") && CHECKED.iter().any(|root| path.starts_with(root)) {
            for (line, what) in names_in(text) {
                findings.push(Finding::error(path, line, what));
            }
        }
    }
    findings
}

/// What is wrong in a file, with its lines from 1. Unit tests do not count.
fn names_in(text: &str) -> Vec<(usize, String)> {
    let source = Source::scan(text);
    let code = &source.code[..source.tests_start()];
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let identifiers = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        for identifier in identifiers {
            if let Some(word) = WORDS.iter().find(|word| has_part(identifier, word)) {
                let message = format!(
                    "`{identifier}` names a language ({word}): make it a policy of the plan or a \
                     function of the dialect"
                );
                found.push((index + 1, message));
            }
        }
        if line.contains(".dialect") {
            let message = "`.dialect` asks for the language of a plan: make the difference a policy \
                           of the plan or a function of the dialect";
            found.push((index + 1, message.to_owned()));
        }
    }
    found
}

/// Whether a part of an identifier is this word: `biz_key` and `BizKey` have the parts `biz` and `key`.
fn has_part(identifier: &str, word: &str) -> bool {
    let mut parts = vec![String::new()];
    let mut lower_before = false;
    for c in identifier.chars() {
        if c == '_' || (c.is_uppercase() && lower_before) {
            parts.push(String::new());
        }
        if c != '_'
            && let Some(part) = parts.last_mut()
        {
            part.extend(c.to_lowercase());
        }
        lower_before = c.is_lowercase() || c.is_numeric();
    }
    parts.iter().any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        names_in(text).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn identifiers_that_name_a_language_are_found() {
        let text = "struct LinearRows;\nlet biz_key = 1;\nuse dialects::dag;\nconst DAG_STEPS: u8 = 1;\n\
                    Dialect::Playbook\n";
        assert_eq!(lines(text), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn asking_for_the_language_of_a_plan_is_found() {
        assert_eq!(lines("\nif plan.net().dialect == wanted {}\n"), [2]);
    }

    #[test]
    fn other_words_comments_texts_and_tests_are_left_alone() {
        let text = "// The cost is linear.\nlet bizarre = \"a linear run\";\nlet daggers = 1;\n\
                    let dialects = 1;\n#[cfg(test)]\nmod tests {\n    fn linear() {}\n}\n";
        assert_eq!(lines(text), [0; 0]);
    }
}
