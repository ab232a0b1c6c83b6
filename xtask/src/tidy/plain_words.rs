//! Comments, messages and documents use plain words: each phrase of the list has a standard term.
//!
//! The list is data. A new entry is one line in `PHRASES` or `TYPE_NAMES`.

use super::{Finding, Tree};
use crate::source::Source;

/// Phrases that readers stumble over, and what to write instead. Compared without case, as whole words.
const PHRASES: &[(&str, &str)] = &[
    ("whoever", "name the process, person or caller"),
    ("whomever", "name the process, person or caller"),
    ("somebody", "name the process, person or caller"),
    ("someone else's", "name the owner"),
    ("nobody else's", "name the owner"),
    ("hungry", "`awaiting capacity`"),
    ("trouble", "`error` or `failure`"),
    ("mend", "`fix` or `correct`"),
    ("mends", "`fixes` or `corrects`"),
    ("mended", "`fixed` or `corrected`"),
    ("mending", "`fixing` or `correcting`"),
    ("cure", "`solution` or `what to do`"),
    ("lets go of", "`drops`"),
    ("let go of", "`drop`"),
    ("without a word", "say what is missing"),
    ("in vain", "`without success`"),
    ("has to say", "name the output"),
    ("have to say", "name the output"),
    ("what became of", "`the result of`"),
    ("what becomes of", "`the result of`"),
    ("for ever", "`forever` or `without end`"),
    ("thrown away", "`deleted`"),
    ("at first sight", "leave it out"),
    ("with its own eyes", "leave it out"),
    ("comes to rest", "`becomes idle`"),
    ("come to rest", "`become idle`"),
    ("beside the point", "`less important`"),
    ("all is well", "`success` or `no problems`"),
    ("loudly", "`with a message`"),
    ("keeper", "`coordinator`"),
];

/// Type names that do not say what the type is.
const TYPE_NAMES: &[&str] = &[
    "Became", "Below", "Depot", "Desk", "Doer", "Keeper", "Means", "Picture", "Shelf", "Trouble",
    "Way", "Yard",
];

/// The file with the list itself.
const OWN: &str = "xtask/src/tidy/plain_words.rs";

/// Folders and files whose texts are checked.
const CHECKED: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "crates/bus/",
    "crates/dialects/",
    "crates/engine/",
    "crates/engines/",
    "crates/kernel/",
    "crates/sim/",
    "crates/stepwell/",
    "crates/stores/",
    "crates/worker/",
    "docs/",
    "examples/",
    "xtask/",
];

const ENDINGS: &[&str] = &[".rs", ".md", ".yaml", ".tsv"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.files {
        let is_text = ENDINGS.iter().any(|ending| path.ends_with(ending));
        if is_text && path != OWN && CHECKED.iter().any(|root| path.starts_with(root)) {
            for (line, phrase, instead) in phrases_in(text) {
                let message = format!("`{phrase}` is not a plain word: write {instead}");
                findings.push(Finding::error(path, line, message));
            }
        }
        if path.ends_with(".rs") && path.starts_with("crates/") {
            for (line, name) in type_names_in(text) {
                let message = format!("the type name {name} does not say what the type is");
                findings.push(Finding::error(path, line, message));
            }
        }
    }
    findings
}

/// The phrases of the list with their lines, from 1. Identifiers such as `mend_it` do not count.
fn phrases_in(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let lower = line.to_ascii_lowercase();
        for (phrase, instead) in PHRASES {
            if has_word(&lower, phrase) {
                found.push((index + 1, *phrase, *instead));
            }
        }
    }
    found
}

/// Whether a line has a phrase that is not part of a longer word.
fn has_word(line: &str, phrase: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(phrase).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + phrase.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// Definitions of types with a name of the list.
fn type_names_in(text: &str) -> Vec<(usize, &'static str)> {
    let source = Source::scan(text);
    let mut found = Vec::new();
    for (index, line) in source.code.lines().enumerate() {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        while let Some(word) = words.next() {
            if matches!(word, "struct" | "enum" | "trait" | "type") {
                let name = words.next().unwrap_or_default();
                found.extend(
                    TYPE_NAMES
                        .iter()
                        .filter(|it| **it == name)
                        .map(|it| (index + 1, *it)),
                );
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phrase_of_the_list_is_found() {
        for (phrase, _) in PHRASES {
            let text = format!("fine\n/// X {phrase}.\n");
            let found = phrases_in(&text);
            assert!(
                found.iter().any(|it| it.0 == 2 && it.1 == *phrase),
                "{phrase}"
            );
            let capitals = phrase.to_uppercase();
            assert!(!phrases_in(&capitals).is_empty(), "{capitals}");
        }
    }

    #[test]
    fn parts_of_words_and_identifiers_do_not_count() {
        for fine in [
            "recommend",
            "troubleshooting",
            "secure",
            "fn mend_it()",
            "housekeeper",
        ] {
            assert!(phrases_in(fine).is_empty(), "{fine}");
        }
    }

    #[test]
    fn types_with_riddle_names_are_found() {
        assert_eq!(
            type_names_in("\npub(crate) struct Depot {\n"),
            [(2, "Depot")]
        );
        assert_eq!(type_names_in("enum Way<'a> { A }"), [(1, "Way")]);
        assert!(type_names_in("// struct Depot\nstruct Wayside;\nlet x = Depot;").is_empty());
    }
}
